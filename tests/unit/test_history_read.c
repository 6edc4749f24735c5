/* Reading a history log by position and by message number, one thread: what is there, what has gone, what is
 * not there yet, and whose life it is.  The same with a writer at work: tests/stress/stress_read.c. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#define MTU       1024u
#define UNIT      TW_WIRE_UNIT_BYTES
#define LOG_UNITS 2005u /* not a multiple of anything */
#define MAX_BYTES 65536u
#define SESSION   9u
#define SALT      3u

struct bed {
	struct tw_history history;
	struct tw_history_view view;
	struct tw_history_index index;
	struct tw_history_mark *marks;
	struct tw_pack pack;
	uint8_t *memory;
	uint64_t given; /* messages */
};

static _Alignas(64) uint8_t got[MAX_BYTES];

static void begin_life(struct bed *bed, uint64_t session, uint32_t publisher, uint64_t first_seq)
{
	struct tw_pack_conf conf = { .channel = 1,
				     .session = session,
				     .publisher = publisher,
				     .mtu_bytes = MTU,
				     .first_msg_seq = first_seq,
				     .heartbeat_min_ns = 1000,
				     .heartbeat_max_ns = 1000 };
	cr_assert_eq(tw_history_init(&bed->history, bed->memory, (LOG_UNITS + 1) * UNIT, MTU,
				     session, publisher),
		     TW_OK);
	tw_history_index_begin(&bed->index);
	tw_pack_init(&bed->pack, &conf, &bed->history, 0);
	bed->given = first_seq - 1;
}

static void bed_up(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	bed->memory = aligned_alloc(UNIT, (LOG_UNITS + 1) * UNIT);
	memset(bed->memory, 0, (LOG_UNITS + 1) * UNIT);
	cr_assert_eq(tw_history_view_make(&bed->view, bed->memory, (LOG_UNITS + 1) * UNIT, MTU),
		     TW_OK);
	cr_assert_eq(bed->view.units, LOG_UNITS);
	uint64_t marks = tw_history_index_marks(bed->view.units);
	bed->marks = calloc(marks, sizeof(bed->marks[0]));
	tw_history_index_init(&bed->index, bed->marks, marks);
}

static void bed_down(struct bed *bed)
{
	free(bed->marks);
	free(bed->memory);
}

struct source {
	struct bed *bed;
	uint32_t left;
	bool lapped;
};

static int give(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	*batch = (struct tw_bus_batch){ .first_seq = source->bed->given + 1 };
	if (source->lapped) {
		source->lapped = false;
		batch->end_seq = batch->first_seq + 1000;
		source->bed->given += 1000;
		return TW_ELAPPED;
	}
	while (source->left > 0) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint32_t len = test_msg_make(msg, source->bed->given + 1, SALT);
		if (batch->bytes + len > max_bytes) {
			break;
		}
		tw_words_put((uint8_t *)dst + batch->bytes, msg, len);
		batch->bytes += len;
		batch->count++;
		source->bed->given++;
		source->left--;
	}
	return (int)batch->count;
}

/* One datagram of at most `msgs` messages, or a hole of 1000; published unless told otherwise. */
static struct tw_wire_hdr write_one(struct bed *bed, uint32_t msgs, bool hole, bool publish)
{
	struct source source = { .bed = bed, .left = msgs, .lapped = hole };
	struct tw_pack_dgram out;
	struct tw_wire_hdr hdr;
	cr_assert_eq(tw_pack_poll(&bed->pack, give, &source, 0, 1, &out, 1), 1);
	memcpy(&hdr, out.data, sizeof(hdr));
	tw_history_index_note(&bed->index, hdr.log_pos, hdr.first_msg_seq);
	if (publish) {
		tw_history_publish(&bed->history);
	}
	tw_history_complete(&bed->history, out.end_pos);
	return hdr;
}

static uint64_t units_of(const struct tw_wire_hdr *hdr)
{
	return ((uint64_t)hdr->header_bytes + hdr->payload_bytes + UNIT - 1) / UNIT;
}

static int read_at(const struct bed *bed, uint64_t begin, uint64_t end)
{
	return tw_history_read(&bed->view, SESSION, 1, begin, end, got, MAX_BYTES);
}

static int read_msgs(const struct bed *bed, uint64_t begin_seq, uint64_t end_seq)
{
	return tw_history_read_msgs(&bed->view, &bed->index, SESSION, begin_seq, end_seq, got,
				    MAX_BYTES);
}

/* What `got` holds must be datagrams one after the other without a gap in their numbers; every message is
 * compared. */
static void expect_run(int bytes, uint64_t *first_seq, uint64_t *end_seq)
{
	uint64_t next = 0;
	for (int at = 0; at < bytes;) {
		struct tw_dgram d;
		const struct tw_wire_hdr *hdr = (const void *)(got + at);
		int len = (int)(units_of(hdr) * UNIT);
		cr_assert_leq(at + len, bytes);
		cr_assert_eq(tw_dgram_parse(&d, got + at, (size_t)len), TW_DGRAM_OK);
		cr_assert(next == 0 || d.hdr->first_msg_seq == next);
		*first_seq = next == 0 ? d.hdr->first_msg_seq : *first_seq;
		const uint8_t *msg = d.msgs;
		for (uint32_t i = 0; i < d.hdr->msg_count; i++) {
			cr_assert(test_msg_is(msg, d.hdr->first_msg_seq + i, SALT));
			msg += tw_msg_bytes(msg);
		}
		next = d.end_seq;
		at += len;
	}
	*end_seq = next;
}

Test(history_read, before_there_is_a_life, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	cr_assert_eq(read_at(&bed, 0, 1), TW_ENOTFOUND);
	cr_assert_eq(read_msgs(&bed, 1, 2), TW_ENOTFOUND);
	cr_assert_eq(tw_history_read(&bed.view, 0, 0, 0, 1, got, MAX_BYTES), TW_ENOTFOUND,
		     "zeroed memory is no life");
	cr_assert_eq(tw_history_read_msgs(&bed.view, &bed.index, 0, 1, 2, got, MAX_BYTES), TW_EARG);
	begin_life(&bed, SESSION, 1, 1);
	cr_assert_eq(read_at(&bed, 0, 1), TW_EBUSY);
	cr_assert_eq(read_msgs(&bed, 1, 2), TW_EBUSY);
	bed_down(&bed);
}

Test(history_read, view_refuses_what_cannot_be, .timeout = 60)
{
	static _Alignas(64) uint8_t memory[8 * UNIT];
	struct tw_history_view view;
	cr_assert_eq(tw_history_view_make(&view, memory + 8, 4 * UNIT, MTU), TW_EARG);
	cr_assert_eq(tw_history_view_make(&view, memory, UNIT, MTU), TW_EARG);
	cr_assert_eq(tw_history_view_make(&view, memory, 8 * UNIT, 1000), TW_EARG);
	cr_assert_eq(tw_history_view_make(&view, memory, 8 * UNIT, 8192), TW_EARG);
	cr_assert_eq(tw_history_view_make(&view, memory, 8 * UNIT, 128), TW_OK);
}

Test(history_read, positions_published_and_not, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	begin_life(&bed, SESSION, 1, 1);
	struct tw_wire_hdr a = write_one(&bed, 3, false, true);
	struct tw_wire_hdr b = write_one(&bed, 5, false, false);
	uint64_t end = b.log_pos + units_of(&b);
	cr_assert_eq(b.log_pos, units_of(&a));
	cr_assert_eq(read_at(&bed, 0, b.log_pos), (int)(b.log_pos * UNIT));
	cr_assert_eq(memcmp(got, bed.memory + UNIT, b.log_pos * UNIT), 0);
	cr_assert_eq(read_at(&bed, 0, b.log_pos + 1), TW_EBUSY, "all or nothing");
	tw_history_publish(&bed.history);
	cr_assert_eq(read_at(&bed, b.log_pos, end), (int)(units_of(&b) * UNIT));
	cr_assert_eq(memcmp(got, bed.memory + UNIT + b.log_pos * UNIT, units_of(&b) * UNIT), 0);
	cr_assert_eq(read_at(&bed, end, end + 1), TW_EBUSY);
	cr_assert_eq(read_at(&bed, 3, 3), TW_EARG);
	cr_assert_eq(read_at(&bed, 3, 2), TW_EARG);
	cr_assert_eq(read_at(&bed, 0, LOG_UNITS + 1), TW_EARG);
	cr_assert_eq(tw_history_read(&bed.view, SESSION, 1, 0, 2, got, UNIT), TW_EARG, "no room");
	cr_assert_eq(tw_history_read(&bed.view, SESSION, 2, 0, 1, got, UNIT), TW_ENOTFOUND);
	cr_assert_eq(tw_history_read(&bed.view, SESSION + 1, 1, 0, 1, got, UNIT), TW_ENOTFOUND);
	bed_down(&bed);
}

Test(history_read, over_the_end_and_past_recall, .timeout = 60)
{
	struct bed bed;
	struct tw_wire_hdr last, first_of_lap = { 0 };
	bed_up(&bed);
	begin_life(&bed, SESSION, 1, 1);
	do {
		last = write_one(&bed, 1000, false, true);
		if (last.log_pos >= LOG_UNITS && first_of_lap.packet_seq == 0) {
			first_of_lap = last;
		}
	} while (last.log_pos < LOG_UNITS + 500);
	cr_assert_eq(first_of_lap.log_pos, LOG_UNITS,
		     "the units that would not hold one are skipped");
	/* across the end: the image, skipped units and all */
	cr_assert_eq(read_at(&bed, LOG_UNITS - 40, LOG_UNITS + 20), 60 * (int)UNIT);
	cr_assert_eq(memcmp(got, bed.memory + UNIT + (LOG_UNITS - 40) * UNIT, 40 * UNIT), 0);
	cr_assert_eq(memcmp(got + 40 * UNIT, bed.memory + UNIT, 20 * UNIT), 0);
	/* the oldest position that holds is the announced one less the log */
	uint64_t oldest = bed.history.intent - LOG_UNITS;
	cr_assert_eq(read_at(&bed, oldest, oldest + 10), 10 * (int)UNIT);
	cr_assert_eq(read_at(&bed, oldest - 1, oldest + 10), 0);
	/* claiming the next one takes more of it away, before a byte is written */
	cr_assert_not_null(tw_history_claim(&bed.history));
	cr_assert_gt(bed.history.intent - LOG_UNITS, oldest);
	cr_assert_eq(read_at(&bed, oldest, oldest + 10), 0);
	bed_down(&bed);
}

Test(history_read, every_number_is_found, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	begin_life(&bed, SESSION, 1, 1);
	uint64_t seed = 1;
	while (bed.history.head < 5 * LOG_UNITS) {
		seed = test_mix(seed);
		write_one(&bed, 1 + (uint32_t)(seed % 40), seed % 31 == 0, true);
	}
	uint64_t all = bed.given, oldest = 0, missing = 0;
	for (uint64_t seq = 1; seq <= all; seq++) {
		int bytes = read_msgs(&bed, seq, seq + 1);
		uint64_t first, end;
		cr_assert_geq(bytes, 0);
		if (bytes == 0) {
			cr_assert_eq(oldest, 0, "%llu has gone, %llu is there",
				     (unsigned long long)seq, (unsigned long long)oldest);
			missing++;
			continue;
		}
		expect_run(bytes, &first, &end);
		cr_assert(first <= seq && seq < end);
		oldest = oldest == 0 ? seq : oldest;
	}
	cr_assert_gt(missing, 0);
	cr_assert_neq(oldest, 0);
	/* no more is lost than what one step of the index, and a batch, may hide */
	struct tw_dgram d;
	cr_assert_gt(read_msgs(&bed, oldest, oldest + 1), 0);
	cr_assert_eq(tw_dgram_parse(&d, got, MTU), TW_DGRAM_OK);
	cr_assert_leq(d.hdr->log_pos,
		      bed.history.intent - LOG_UNITS + TW_HISTORY_STEP_UNITS + 2 * MTU / UNIT);
	cr_assert_eq(read_msgs(&bed, all + 1, all + 2), TW_EBUSY);
	bed_down(&bed);
}

Test(history_read, runs_of_numbers, .timeout = 60)
{
	struct bed bed;
	uint64_t first, end;
	bed_up(&bed);
	begin_life(&bed, SESSION, 1, 501); /* the session is older than this publisher */
	struct tw_wire_hdr hole = { 0 };
	for (int i = 0; i < 60; i++) {
		struct tw_wire_hdr hdr = write_one(&bed, 20, i == 30, true);
		hole = i == 30 ? hdr : hole;
	}
	/* from the first that is there */
	expect_run(read_msgs(&bed, 1, 541), &first, &end);
	cr_assert_eq(first, 501);
	cr_assert(end >= 541);
	cr_assert_eq(read_msgs(&bed, 1, 501), 0, "before this life");
	/* to what there is */
	expect_run(read_msgs(&bed, bed.given - 5, bed.given + 500), &first, &end);
	cr_assert_leq(first, bed.given - 5);
	cr_assert_eq(end, bed.given + 1);
	/* over the hole */
	uint64_t hole_seq = hole.first_msg_seq;
	expect_run(read_msgs(&bed, hole_seq - 5, hole_seq + 1005), &first, &end);
	cr_assert_leq(first, hole_seq - 5);
	cr_assert_geq(end, hole_seq + 1005);
	/* what lies in it is the hole's to answer for */
	expect_run(read_msgs(&bed, hole_seq + 500, hole_seq + 501), &first, &end);
	cr_assert_eq(first, hole_seq);
	cr_assert_eq(end, hole_seq + 1000);
	/* as many as fit, whole */
	int bytes = tw_history_read_msgs(&bed.view, &bed.index, SESSION, 501, 2000, got, 3000);
	cr_assert(bytes > 0 && bytes <= 3000);
	expect_run(bytes, &first, &end);
	cr_assert_eq(first, 501);
	cr_assert_eq(tw_history_read_msgs(&bed.view, &bed.index, SESSION, 501, 2000, got, 64),
		     TW_EARG, "not one fits");
	cr_assert_eq(read_msgs(&bed, 0, 5), TW_EARG);
	cr_assert_eq(read_msgs(&bed, 5, 5), TW_EARG);
	bed_down(&bed);
}

Test(history_read, a_new_life_hides_the_old_one, .timeout = 60)
{
	struct bed bed;
	uint64_t first, end;
	bed_up(&bed);
	begin_life(&bed, SESSION, 1, 1);
	for (int i = 0; i < 200; i++) {
		write_one(&bed, 20, false, true);
	}
	uint64_t all = bed.given;
	begin_life(&bed, SESSION, 2, all + 1); /* a restart of the publisher */
	cr_assert_eq(read_at(&bed, 0, 1), TW_ENOTFOUND);
	cr_assert_eq(tw_history_read(&bed.view, SESSION, 2, 0, 1, got, UNIT), TW_EBUSY);
	cr_assert_eq(read_msgs(&bed, 5, 6), TW_EBUSY, "nothing of it is published");
	write_one(&bed, 20, false, true);
	cr_assert_eq(read_msgs(&bed, 5, 6), 0, "that was the other one's");
	expect_run(read_msgs(&bed, 5, all + 3), &first, &end);
	cr_assert_eq(first, all + 1);
	begin_life(&bed, SESSION + 1, 1, 1);
	cr_assert_eq(read_msgs(&bed, 5, 6), TW_ENOTFOUND);
	write_one(&bed, 20, false, true);
	cr_assert_gt(tw_history_read_msgs(&bed.view, &bed.index, SESSION + 1, 1, 2, got, MAX_BYTES),
		     0);
	bed_down(&bed);
}
