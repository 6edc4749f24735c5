/* What a subscriber was given, checked against what was sent: see ledger.h. */
#include "tests/sim/ledger.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/splitmix.h"
#include "tidewire/msg.h"
#include "wire/datagram.h"

enum { GIVEN_DATA = 1, GIVEN_HOLE = 2 };

/* --- messages -------------------------------------------------------------------------------- */

static uint64_t msg_seed(uint64_t session, uint64_t seq)
{
	uint64_t state = session * 0x9e3779b97f4a7c15u ^ seq;

	return tw_splitmix_next(&state);
}

static uint16_t msg_template(uint64_t seed)
{
	return (uint16_t)(1 + seed % (TW_MSG_KIND_LIMIT - 1));
}

uint32_t tw_ledger_msg_bytes(uint64_t session, uint64_t seq)
{
	return tw_msg_kind_bytes(msg_template(msg_seed(session, seq)));
}

uint32_t tw_ledger_msg(void *msg, uint64_t session, uint64_t seq)
{
	uint64_t state = msg_seed(session, seq);
	uint16_t template_id = msg_template(state);
	uint32_t bytes = tw_msg_kind_bytes(template_id);
	struct tw_msg_sbe sbe = { .block_length = (uint16_t)(bytes - sizeof(sbe)),
				  .template_id = template_id,
				  .schema_id = TW_MSG_SCHEMA_ID,
				  .version = TW_MSG_SCHEMA_VERSION };

	memcpy(msg, &sbe, sizeof(sbe));
	for (uint32_t at = sizeof(sbe); at < bytes; at += 8) {
		uint64_t word = tw_splitmix_next(&state);
		memcpy((uint8_t *)msg + at, &word, sizeof(word));
	}
	return bytes;
}

uint32_t tw_ledger_dgram(void *to, uint32_t mtu_bytes, const struct tw_ledger_spec *spec)
{
	struct tw_wire_hdr hdr = { .magic = TW_WIRE_MAGIC,
				   .version_major = TW_WIRE_MAJOR,
				   .header_bytes = TW_WIRE_HDR_BYTES,
				   .flags = spec->flags,
				   .channel = spec->channel,
				   .environment = spec->environment,
				   .session = spec->session,
				   .publisher = spec->publisher,
				   .packet_seq = spec->packet_seq,
				   .log_pos = spec->log_pos,
				   .first_msg_seq = spec->first_seq,
				   .send_ns = spec->send_ns };
	uint8_t *bytes = to;
	uint32_t used = TW_WIRE_HDR_BYTES;

	if ((spec->flags & TW_WIRE_HOLE) != 0) {
		struct tw_wire_hole hole = { .end_msg_seq = spec->end_seq };
		memcpy(bytes + used, &hole, sizeof(hole));
		used += sizeof(hole);
	} else if ((spec->flags & TW_WIRE_HEARTBEAT) == 0) {
		uint64_t seq = spec->first_seq;
		while (seq < spec->end_seq &&
		       used + tw_ledger_msg_bytes(spec->session, seq) <= mtu_bytes) {
			used += tw_ledger_msg(bytes + used, spec->session, seq++);
			hdr.msg_count++;
		}
	}
	hdr.payload_bytes = (uint16_t)(used - TW_WIRE_HDR_BYTES);
	memcpy(bytes, &hdr, sizeof(hdr));
	uint32_t len = (used + TW_WIRE_UNIT_BYTES - 1) / TW_WIRE_UNIT_BYTES * TW_WIRE_UNIT_BYTES;
	memset(bytes + used, 0, len - used);
	return len;
}

/* --- judging --------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool wrong(struct tw_ledger *ledger, const char *fmt,
							...)
{
	if (ledger->error[0] == '\0') {
		va_list args;
		va_start(args, fmt);
		(void)vsnprintf(ledger->error, sizeof(ledger->error), fmt, args);
		va_end(args);
	}
	return false;
}

void tw_ledger_init(struct tw_ledger *ledger)
{
	memset(ledger, 0, sizeof(*ledger));
}

static uint8_t *given_of(struct tw_ledger *ledger, uint64_t session)
{
	for (uint32_t i = 0; i < TW_LEDGER_SESSIONS; i++) {
		if (ledger->sessions[i] == session || ledger->sessions[i] == 0) {
			ledger->sessions[i] = session;
			return ledger->given[i];
		}
	}
	return NULL;
}

static void mark_given(uint8_t *given, const struct tw_dgram *dgram, uint64_t first_seq,
		       uint64_t end_seq)
{
	uint8_t what = (dgram->hdr->flags & TW_WIRE_HOLE) != 0 ? GIVEN_HOLE : GIVEN_DATA;

	for (uint64_t seq = first_seq; seq < end_seq && seq < TW_LEDGER_MSGS; seq++) {
		given[seq] = given[seq] == 0 ? what : given[seq];
	}
}

void tw_ledger_repair(struct tw_ledger *ledger, const struct tw_dgram *dgram, uint64_t first_seq,
		      uint64_t end_seq)
{
	uint8_t *given = given_of(ledger, dgram->hdr->session);

	if (given != NULL) {
		mark_given(given, dgram, first_seq, end_seq);
	}
}

void tw_ledger_too_late(struct tw_ledger *ledger, uint64_t session, uint64_t seq)
{
	uint8_t *given = given_of(ledger, session);

	if (given != NULL && seq < TW_LEDGER_MSGS && given[seq] == 0) {
		given[seq] = GIVEN_HOLE;
	}
}

void tw_ledger_give(struct tw_ledger *ledger, const struct tw_dgram *dgram,
		    enum tw_arb_result result)
{
	const struct tw_wire_hdr *hdr = dgram->hdr;
	uint8_t *given = given_of(ledger, hdr->session);

	if (given == NULL ||
	    (result != TW_ARB_FIRST && result != TW_ARB_HELD && result != TW_ARB_HEARTBEAT)) {
		return;
	}
	if (ledger->session != hdr->session) {
		memset(given, 0, TW_LEDGER_MSGS); /* it begins, perhaps not for the first time */
	}
	mark_given(given, dgram, hdr->first_msg_seq, dgram->end_seq);
}

bool tw_ledger_was_given(const struct tw_ledger *ledger, uint64_t session, uint64_t seq)
{
	for (uint32_t i = 0; i < TW_LEDGER_SESSIONS && seq < TW_LEDGER_MSGS; i++) {
		if (ledger->sessions[i] == session) {
			return ledger->given[i][seq] == GIVEN_DATA;
		}
	}
	return false;
}

static bool judge_flags(struct tw_ledger *ledger, const struct tw_arb_run *run, bool in_gap)
{
	if (run->type == TW_RUN_DATA && run->fills_gap != in_gap) {
		return wrong(ledger, "fills_gap is %d at %" PRIu64, run->fills_gap, run->first_seq);
	}
	if (run->repaired && (!in_gap || run->type != TW_RUN_DATA)) {
		return wrong(ledger, "repaired outside of a gap at %" PRIu64, run->first_seq);
	}
	if (!in_gap && run->gap_ns != 0) {
		return wrong(ledger, "gap_ns outside of a gap at %" PRIu64, run->first_seq);
	}
	ledger->fills += run->fills_gap ? 1 : 0;
	return true;
}

/* --- latest ---------------------------------------------------------------------------------- */

/* A new part behind all others. */
static bool add_gap(struct tw_ledger *ledger, uint64_t first_seq, uint64_t end_seq, bool silent)
{
	if (ledger->gap_count == TW_LEDGER_GAPS) {
		return wrong(ledger, "more than %u open gaps", TW_LEDGER_GAPS);
	}
	ledger->gaps[ledger->gap_count++] =
		(struct tw_ledger_gap){ first_seq, end_seq, ledger->now_ns, silent };
	return true;
}

static void drop_gap(struct tw_ledger *ledger, uint32_t index)
{
	ledger->gap_count--;
	memmove(&ledger->gaps[index], &ledger->gaps[index + 1],
		(ledger->gap_count - index) * sizeof(ledger->gaps[0]));
}

/* What lies between all that is known and `seq` was passed over: a hole. */
static bool pass_to(struct tw_ledger *ledger, uint64_t seq)
{
	if (seq > ledger->front_seq) {
		if (!add_gap(ledger, ledger->front_seq, seq, true)) {
			return false;
		}
		ledger->front_seq = seq;
	}
	return true;
}

/* [first_seq, end_seq) is no longer missing; false: some of it was not. */
static bool close_part(struct tw_ledger *ledger, uint64_t first_seq, uint64_t end_seq)
{
	uint32_t i = 0;

	while (i < ledger->gap_count && ledger->gaps[i].end_seq <= first_seq) {
		i++;
	}
	while (first_seq < end_seq) {
		if (i == ledger->gap_count || first_seq < ledger->gaps[i].first_seq) {
			return wrong(ledger, "%" PRIu64 " comes again", first_seq);
		}
		struct tw_ledger_gap was = ledger->gaps[i];
		uint64_t stop_seq = end_seq < was.end_seq ? end_seq : was.end_seq;
		drop_gap(ledger, i);
		uint32_t parts =
			(was.first_seq < first_seq ? 1u : 0) + (stop_seq < was.end_seq ? 1u : 0);
		if (ledger->gap_count + parts > TW_LEDGER_GAPS) {
			return wrong(ledger, "more than %u open gaps", TW_LEDGER_GAPS);
		}
		memmove(&ledger->gaps[i + parts], &ledger->gaps[i],
			(ledger->gap_count - i) * sizeof(ledger->gaps[0]));
		ledger->gap_count += parts;
		if (was.first_seq < first_seq) {
			ledger->gaps[i] = was;
			ledger->gaps[i++].end_seq = first_seq;
		}
		if (stop_seq < was.end_seq) {
			ledger->gaps[i] = was;
			ledger->gaps[i].first_seq = stop_seq;
		}
		first_seq = stop_seq;
	}
	return true;
}

static bool take_latest(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	bool lost = run->type == TW_RUN_LOST;
	bool in_gap = false;

	if (run->end_seq <= run->first_seq || (lost && run->first_seq != ledger->next_seq)) {
		return wrong(ledger, "run [%" PRIu64 ", %" PRIu64 ") where %" PRIu64 " is next",
			     run->first_seq, run->end_seq, ledger->next_seq);
	}
	if (run->first_seq >= ledger->front_seq) {
		if (!pass_to(ledger, run->first_seq)) {
			return false;
		}
		ledger->ahead += ledger->gap_count > 0 ? 1 : 0;
		ledger->front_seq = run->end_seq;
	} else {
		for (uint32_t i = 0; i < ledger->gap_count; i++) {
			const struct tw_ledger_gap *gap = &ledger->gaps[i];
			in_gap = in_gap || (!gap->silent && gap->first_seq <= run->first_seq &&
					    run->first_seq < gap->end_seq);
			if (!lost && gap->silent && gap->first_seq < run->end_seq &&
			    run->first_seq < gap->end_seq) {
				return wrong(ledger, "%" PRIu64 " fills what was no gap",
					     run->first_seq);
			}
		}
		if (!close_part(ledger, run->first_seq, run->end_seq)) {
			return false;
		}
	}
	ledger->next_seq = ledger->gap_count > 0 ? ledger->gaps[0].first_seq : ledger->front_seq;
	return judge_flags(ledger, run, in_gap);
}

/* --- in order -------------------------------------------------------------------------------- */

static bool take_numbers(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	if (!ledger->started || run->session != ledger->session) {
		return wrong(ledger, "run of session %" PRIu64 " in session %" PRIu64, run->session,
			     ledger->session);
	}
	if (ledger->ended) {
		return wrong(ledger, "numbers after END");
	}
	if (ledger->latest) {
		return take_latest(ledger, run);
	}
	if (run->first_seq != ledger->next_seq || run->end_seq <= run->first_seq) {
		return wrong(ledger, "run [%" PRIu64 ", %" PRIu64 ") where %" PRIu64 " is next",
			     run->first_seq, run->end_seq, ledger->next_seq);
	}
	/* A run lies in one reported gap or outside of all; gaps that lie behind are passed. */
	while (ledger->gap_count > 0 && ledger->gaps[0].end_seq <= run->first_seq) {
		drop_gap(ledger, 0);
	}
	const struct tw_ledger_gap *gap = &ledger->gaps[0];
	bool in_gap = ledger->gap_count > 0 && gap->first_seq <= run->first_seq;
	uint64_t border_seq = in_gap ? gap->end_seq : gap->first_seq;
	/* what was set aside for want of room was reported in parts */
	for (uint32_t i = 1; in_gap && i < ledger->gap_count; i++) {
		if (ledger->gaps[i].first_seq == border_seq) {
			border_seq = ledger->gaps[i].end_seq;
		}
	}
	if (ledger->gap_count > 0 && run->end_seq > border_seq) {
		return wrong(ledger, "run [%" PRIu64 ", %" PRIu64 ") crosses the border of a gap",
			     run->first_seq, run->end_seq);
	}
	ledger->next_seq = run->end_seq;
	return judge_flags(ledger, run, in_gap);
}

static uint64_t hash_of(const uint8_t *bytes, uint32_t count)
{
	uint64_t hash = count;

	for (uint32_t i = 0; i + 8 <= count; i += 8) { /* messages are whole words */
		uint64_t word;
		memcpy(&word, bytes + i, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	}
	return hash;
}

static bool take_data(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	_Alignas(8) uint8_t want[TW_MSG_MAX_BYTES];
	uint32_t at = 0;

	if (!take_numbers(ledger, run)) {
		return false;
	}
	if (run->count != run->end_seq - run->first_seq) {
		return wrong(ledger, "count %u of [%" PRIu64 ", %" PRIu64 ")", run->count,
			     run->first_seq, run->end_seq);
	}
	for (uint64_t seq = run->first_seq; seq < run->end_seq; seq++) {
		bool any = ledger->any_content;
		uint32_t bytes =
			any ? tw_msg_bytes(run->msgs + at) : tw_ledger_msg(want, run->session, seq);
		if (at + bytes > run->bytes || (!any && memcmp(run->msgs + at, want, bytes) != 0)) {
			return wrong(ledger, "message %" PRIu64 " is not what was sent", seq);
		}
		at += bytes;
	}
	if (at != run->bytes) {
		return wrong(ledger, "%u bytes where the messages have %u", run->bytes, at);
	}
	ledger->data_msgs += run->count;
	ledger->repaired_msgs += run->repaired ? run->count : 0;
	if (ledger->lent_count < TW_LEDGER_LENT) {
		ledger->lent[ledger->lent_count++] =
			(struct tw_ledger_lent){ run->msgs, run->bytes,
						 hash_of(run->msgs, run->bytes) };
	}
	return true;
}

bool tw_ledger_pulled(struct tw_ledger *ledger)
{
	for (uint32_t i = 0; i < ledger->lent_count; i++) {
		const struct tw_ledger_lent *lent = &ledger->lent[i];
		if (hash_of(lent->msgs, lent->bytes) != lent->hash) {
			return wrong(ledger, "bytes of run %u changed while they were lent", i);
		}
	}
	ledger->lent_count = 0;
	return true;
}

uint64_t tw_ledger_oldest_gap_ns(const struct tw_ledger *ledger)
{
	for (uint32_t i = 0; i < ledger->gap_count; i++) {
		if (ledger->next_seq < ledger->gaps[i].end_seq && !ledger->gaps[i].silent) {
			return ledger->gaps[i].seen_ns;
		}
	}
	return UINT64_MAX;
}

static bool take_lost(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	if (!take_numbers(ledger, run)) {
		return false;
	}
	for (uint64_t seq = run->first_seq; seq < run->end_seq && seq < TW_LEDGER_MSGS; seq++) {
		if (tw_ledger_was_given(ledger, run->session, seq)) {
			return wrong(ledger,
				     "LOST [%" PRIu64 ", %" PRIu64 ") claims %" PRIu64
				     ", which came",
				     run->first_seq, run->end_seq, seq);
		}
	}
	ledger->lost_msgs += run->end_seq - run->first_seq;
	ledger->last_lost_first_seq = run->first_seq;
	ledger->last_lost_end_seq = run->end_seq;
	return true;
}

static bool take_gap(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	if (run->session != ledger->session || ledger->ended || run->end_seq <= run->first_seq ||
	    run->first_seq < ledger->next_seq || run->first_seq < ledger->gap_end_seq) {
		return wrong(ledger, "GAP [%" PRIu64 ", %" PRIu64 ") where %" PRIu64 " is next",
			     run->first_seq, run->end_seq, ledger->next_seq);
	}
	if (ledger->latest) {
		if (run->first_seq < ledger->front_seq) {
			return wrong(ledger, "GAP at %" PRIu64 ", which is known", run->first_seq);
		}
		if (!pass_to(ledger, run->first_seq)) {
			return false;
		}
		ledger->front_seq = run->end_seq;
	}
	if (!add_gap(ledger, run->first_seq, run->end_seq, false)) {
		return false;
	}
	ledger->gap_end_seq = run->end_seq;
	ledger->gaps_reported++;
	return true;
}

static bool take_line(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	uint8_t up = run->type == TW_RUN_LINE_UP;

	if (run->line >= TW_MAX_LINES ||
	    (ledger->line_known[run->line] && ledger->line_up[run->line] == up)) {
		return wrong(ledger, "line %u is %s twice", run->line, up ? "up" : "down");
	}
	ledger->line_known[run->line] = 1;
	ledger->line_up[run->line] = up;
	return true;
}

static bool take_session(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	if (ledger->started && run->session == ledger->session) {
		return wrong(ledger, "SESSION %" PRIu64 " begins twice", run->session);
	}
	if (run->first_seq == 0) {
		return wrong(ledger, "SESSION begins at 0");
	}
	ledger->started = true;
	ledger->ended = false;
	ledger->session = run->session;
	ledger->next_seq = run->first_seq;
	ledger->front_seq = run->first_seq;
	ledger->gap_end_seq = run->first_seq;
	ledger->gap_count = 0;
	ledger->sessions_begun++;
	return true;
}

static bool take_end(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	if (!ledger->started || ledger->ended || run->session != ledger->session ||
	    run->first_seq != ledger->next_seq) {
		return wrong(ledger, "END at %" PRIu64 " where %" PRIu64 " is next", run->first_seq,
			     ledger->next_seq);
	}
	ledger->ended = true;
	ledger->end_seq = run->first_seq;
	ledger->ends++;
	return true;
}

bool tw_ledger_take(struct tw_ledger *ledger, const struct tw_arb_run *run)
{
	switch (run->type) {
	case TW_RUN_DATA:
		return take_data(ledger, run);
	case TW_RUN_LOST:
		return take_lost(ledger, run);
	case TW_RUN_GAP:
		return take_gap(ledger, run);
	case TW_RUN_SESSION:
		return take_session(ledger, run);
	case TW_RUN_END:
		return take_end(ledger, run);
	case TW_RUN_LINE_DOWN:
	case TW_RUN_LINE_UP:
		return take_line(ledger, run);
	}
	return wrong(ledger, "run of type %d", (int)run->type);
}
