/* A bed for the repair ladder's unit tests: see repair_bed.h. */
#include "tests/unit/repair_bed.h"

#include <stdlib.h>
#include <string.h>

#define LOG_BYTES (1024u * 1024u)

static void *memory_of(size_t bytes)
{
	size_t align = _Alignof(struct bed);
	void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);

	cr_assert_not_null(memory);
	memset(memory, 0, (bytes + align - 1) / align * align);
	return memory;
}

/* --- publisher ------------------------------------------------------------------------------- */

static void start_publisher(struct bed *bed, uint32_t publisher)
{
	struct tw_pack_conf conf = { .channel = CHANNEL,
				     .environment = ENVIRONMENT,
				     .session = bed->session,
				     .publisher = publisher,
				     .mtu_bytes = MTU_BYTES,
				     .first_msg_seq = bed->made_seq,
				     .heartbeat_min_ns = 1,
				     .heartbeat_max_ns = 1 };

	cr_assert_eq(tw_history_init(&bed->history, bed->log, bed->log_bytes, MTU_BYTES,
				     bed->session, publisher),
		     TW_OK);
	tw_history_index_begin(&bed->index);
	tw_pack_init(&bed->pack, &conf, &bed->history, bed->now_ns);
}

void bed_restart_publisher(struct bed *bed, uint32_t publisher)
{
	start_publisher(bed, publisher);
}

static int source(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct bed *bed = ctx;
	uint8_t *to = dst;

	*batch = (struct tw_bus_batch){ .first_seq = bed->made_seq };
	while (bed->want > 0) {
		uint32_t bytes = tw_ledger_msg_bytes(bed->session, bed->made_seq);
		cr_assert_leq(batch->bytes + bytes, max_bytes, "a datagram is too small for that");
		batch->bytes += tw_ledger_msg(to + batch->bytes, bed->session, bed->made_seq++);
		batch->count++;
		bed->want--;
	}
	return (int)batch->count;
}

uint32_t bed_send(struct bed *bed, uint32_t msgs)
{
	struct tw_pack_dgram made;
	struct tw_dgram parsed;

	cr_assert_lt(bed->count, BED_DGRAMS);
	struct bed_dgram *dgram = &bed->dgrams[bed->count];
	bed->want = msgs;
	int n = tw_pack_poll(&bed->pack, source, bed, bed->now_ns, bed->now_ns, &made, 1);
	cr_assert_eq(n, 1);
	memcpy(dgram->bytes, made.data, made.len_bytes);
	dgram->len_bytes = made.len_bytes;
	tw_history_publish(&bed->history);
	tw_history_complete(&bed->history, made.end_pos);
	cr_assert_eq(tw_dgram_parse(&parsed, dgram->bytes, made.len_bytes), TW_DGRAM_OK);
	dgram->first_seq = parsed.hdr->first_msg_seq;
	dgram->end_seq = parsed.end_seq;
	dgram->pos = parsed.hdr->log_pos;
	dgram->end_pos = dgram->pos + made.len_bytes / TW_WIRE_UNIT_BYTES;
	tw_history_index_note(&bed->index, dgram->pos, dgram->first_seq);
	return bed->count++;
}

void bed_send_many(struct bed *bed, uint32_t dgrams)
{
	for (uint32_t i = 0; i < dgrams; i++) {
		bed_send(bed, 1 + i % 3);
	}
}

/* --- subscriber ------------------------------------------------------------------------------ */

struct bed *bed_draft(void)
{
	struct bed *bed = memory_of(sizeof(*bed));

	bed->session = SESSION;
	bed->made_seq = 1;
	bed->now_ns = 1000 * US;
	bed->dgrams = memory_of(BED_DGRAMS * sizeof(*bed->dgrams));
	bed->reply = memory_of(TW_REPAIR_READ_MAX_BYTES);
	bed->log_bytes = LOG_BYTES;
	bed->arb_conf = (struct tw_arb_conf){ .channel = CHANNEL,
					      .environment = ENVIRONMENT,
					      .start = TW_START_SESSION,
					      .lines = 2,
					      .wait_ns = WAIT_NS,
					      .heartbeat_max_ns = 1000000 * US,
					      .store_dgrams = 512,
					      .mtu_bytes = MTU_BYTES,
					      .repair = true };
	bed->conf = (struct tw_repair_conf){ .channel = CHANNEL,
					     .servers = 1,
					     .wait_ns = WAIT_NS,
					     .retry_min_ns = RETRY_NS,
					     .retry_max_ns = 8 * RETRY_NS,
					     .give_up_ns = 100000 * US,
					     .attempts_max = 4,
					     .reads_max = BED_READS,
					     .read_max_bytes = 16384,
					     .join_units = 8 };
	return bed;
}

void bed_open(struct bed *bed)
{
	size_t bytes = tw_arb_size(&bed->arb_conf);

	bed->log = memory_of(bed->log_bytes);
	cr_assert_eq(tw_history_view_make(&bed->view, bed->log, bed->log_bytes, MTU_BYTES), TW_OK);
	uint64_t marks = tw_history_index_marks(bed->view.units);
	bed->marks = memory_of(marks * sizeof(*bed->marks));
	tw_history_index_init(&bed->index, bed->marks, marks);
	start_publisher(bed, PUBLISHER);
	bed->arb_memory = memory_of(bytes);
	cr_assert_eq(tw_arb_init(&bed->arb, bed->arb_memory, bytes, &bed->arb_conf, bed->now_ns),
		     TW_OK);
	bytes = tw_repair_size(&bed->conf);
	cr_assert_neq(bytes, 0);
	bed->repair_memory = memory_of(bytes);
	cr_assert_eq(tw_repair_init(&bed->repair, bed->repair_memory, bytes, &bed->conf, bed->arb),
		     TW_OK);
	tw_ledger_init(&bed->ledger);
	tw_repair_server(bed->repair, 0, true, bed->now_ns);
}

struct bed *bed_new(void)
{
	struct bed *bed = bed_draft();

	bed_open(bed);
	return bed;
}

void bed_free(struct bed *bed)
{
	free(bed->log);
	free(bed->marks);
	free(bed->arb_memory);
	free(bed->repair_memory);
	free(bed->dgrams);
	free(bed->reply);
	free(bed);
}

static void pull(struct bed *bed)
{
	struct tw_arb_run run;

	while (tw_arb_next(bed->arb, &run)) {
		cr_assert(tw_ledger_take(&bed->ledger, &run), "%s", bed->ledger.error);
		if (run.fills_gap) {
			*(run.repaired ? &bed->from_history_msgs : &bed->from_line_msgs) +=
				run.count;
		}
	}
	cr_assert(tw_ledger_pulled(&bed->ledger), "%s", bed->ledger.error);
}

static void input(struct bed *bed, uint32_t line, const void *data, uint32_t len_bytes)
{
	struct tw_dgram dgram;

	cr_assert_eq(tw_dgram_parse(&dgram, data, len_bytes), TW_DGRAM_OK);
	enum tw_arb_result result = tw_arb_input(bed->arb, line, &dgram, bed->now_ns, bed->now_ns);
	tw_ledger_give(&bed->ledger, &dgram, result);
	pull(bed);
}

void bed_give(struct bed *bed, uint32_t line, uint32_t index)
{
	input(bed, line, bed->dgrams[index].bytes, bed->dgrams[index].len_bytes);
}

void bed_give_both(struct bed *bed, uint32_t index)
{
	bed_give(bed, A, index);
	bed_give(bed, B, index);
}

void bed_heartbeat(struct bed *bed, unsigned int flags)
{
	struct tw_pack_dgram made;

	bed->now_ns += 2;
	if ((flags & TW_WIRE_END) != 0) {
		tw_pack_end(&bed->pack, bed->now_ns);
	}
	cr_assert_eq(tw_pack_poll(&bed->pack, source, bed, bed->now_ns, bed->now_ns, &made, 1), 1);
	cr_assert_eq(made.msg_count, 0);
	input(bed, A, made.data, made.len_bytes);
	input(bed, B, made.data, made.len_bytes);
}

void bed_idle(struct bed *bed)
{
	for (uint32_t line = 0; line < bed->arb_conf.lines; line++) {
		tw_arb_idle(bed->arb, line, bed->now_ns);
		pull(bed);
	}
}

void bed_pass(struct bed *bed, uint64_t ns)
{
	uint64_t step_ns = tw_repair_stall_ns(&bed->conf) / 2;

	while (bed->repair != NULL && step_ns > 0 && ns > step_ns) {
		bed->now_ns += step_ns;
		ns -= step_ns;
		(void)tw_repair_poll(bed->repair, bed->now_ns, bed->reads, 0);
		pull(bed);
	}
	bed->now_ns += ns;
}

void bed_stand_still(struct bed *bed, uint64_t ns)
{
	bed->now_ns += ns;
}

/* --- repair ---------------------------------------------------------------------------------- */

uint32_t bed_poll(struct bed *bed)
{
	bed->read_count = tw_repair_poll(bed->repair, bed->now_ns, bed->reads, BED_READS);
	cr_assert_leq(tw_repair_outstanding(bed->repair), bed->conf.reads_max);
	pull(bed);
	return bed->read_count;
}

enum tw_repair_status bed_serve(struct bed *bed, const struct tw_repair_read *read)
{
	int rc = read->by_seq
			 ? tw_history_read_msgs(&bed->view, &bed->index, read->session, read->begin,
						read->end, bed->reply, TW_REPAIR_READ_MAX_BYTES)
			 : tw_history_read(&bed->view, read->session, read->publisher, read->begin,
					   read->end, bed->reply, TW_REPAIR_READ_MAX_BYTES);

	bed->reply_bytes = rc > 0 ? (size_t)rc : 0;
	switch (rc) {
	case 0:
	case TW_ENOTFOUND:
		return TW_REPAIR_GONE;
	case TW_EBUSY:
		return TW_REPAIR_BUSY;
	default:
		cr_assert_gt(rc, 0, "the server cannot read that");
		return TW_REPAIR_OK;
	}
}

void bed_reply(struct bed *bed, uint64_t id, enum tw_repair_status status)
{
	struct tw_dgram dgram;

	tw_repair_reply(bed->repair, id, status, bed->reply, bed->reply_bytes, bed->now_ns);
	while (tw_repair_next_dgram(bed->repair, &dgram)) {
		(void)tw_arb_repair(bed->arb, &dgram, bed->now_ns, bed->now_ns);
		pull(bed);
	}
}

void bed_answer(struct bed *bed, const struct tw_repair_read *read)
{
	bed_reply(bed, read->id, bed_serve(bed, read));
}

void bed_answer_all(struct bed *bed)
{
	for (uint32_t i = 0; i < bed->read_count; i++) {
		bed_answer(bed, &bed->reads[i]);
	}
}

struct tw_repair_stats bed_stats(const struct bed *bed)
{
	struct tw_repair_stats stats;

	tw_repair_stats(bed->repair, &stats);
	return stats;
}
