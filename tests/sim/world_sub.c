/* A simulated site: its subscribers, and what they must hold to. */
#include <string.h>

#include "tests/sim/world_impl.h"

/* --- subscribers ----------------------------------------------------------------------------- */

static void hash_in(struct world *w, uint64_t value)
{
	w->result->trace_hash = (w->result->trace_hash ^ value) * 0x100000001b3u;
}

static const struct session *find_session(const struct world *w, uint64_t id)
{
	for (uint32_t i = 0; i < w->session_count; i++) {
		if (w->sessions[i].id == id) {
			return &w->sessions[i];
		}
	}
	return NULL;
}

/* What a gentle world excuses: what was sent before this subscriber listened; and, where a stall let a
 * new session on one line come before the backlog of the other, the flush of the old one. */
static bool is_excused(const struct world *w, const struct sub *sub, const struct tw_arb_run *run)
{
	const struct session *start = &w->sessions[sub->start_session_idx];
	bool before = find_session(w, run->session) < start ||
		      (run->session == start->id && run->end_seq <= sub->start_seq);
	bool flushed = sub->has_stalled && sub->hand_session != run->session;

	return !w->gentle || before || flushed;
}

static void check_run(struct world *w, struct sub *sub, uint32_t index,
		      const struct tw_arb_run *run)
{
	const struct session *session = find_session(w, run->session);

	if (!tw_ledger_take(&sub->ledger, run)) {
		tw_world_fail(w, "subscriber %" PRIu32 ": %s", index, sub->ledger.error);
		return;
	}
	switch (run->type) {
	case TW_RUN_DATA:
		if (run->recv_ns < run->send_ns || run->recv_ns > tw_sim_now(w->sim)) {
			tw_world_fail(w, "subscriber %" PRIu32 ": stamps of %" PRIu64, index,
				      run->first_seq);
		}
		break;
	case TW_RUN_GAP:
	case TW_RUN_LOST:
		if (session == NULL || run->end_seq > session->made + 1) {
			tw_world_fail(w,
				      "subscriber %" PRIu32 ": [%" PRIu64 ", %" PRIu64
				      ") was never made",
				      index, run->first_seq, run->end_seq);
		} else if (run->type == TW_RUN_LOST && !is_excused(w, sub, run)) {
			tw_world_fail(w,
				      "subscriber %" PRIu32 ": LOST [%" PRIu64 ", %" PRIu64
				      ") though line %c brought it",
				      index, run->first_seq, run->end_seq,
				      w->lossy_line == 0 ? 'B' : 'A');
		}
		break;
	case TW_RUN_SESSION:
		if (session == NULL ||
		    (sub->conf.start == TW_START_SESSION && run->first_seq != 1)) {
			tw_world_fail(w,
				      "subscriber %" PRIu32 ": session %" PRIu64 " from %" PRIu64,
				      index, run->session, run->first_seq);
		}
		break;
	case TW_RUN_END:
		if (session == NULL || run->first_seq != session->msgs + 1u) {
			tw_world_fail(w, "subscriber %" PRIu32 ": END at %" PRIu64, index,
				      run->first_seq);
		}
		break;
	case TW_RUN_LINE_DOWN:
	case TW_RUN_LINE_UP:
		break;
	}
}

static void pull(struct world *w, struct sub *sub, uint32_t index)
{
	static const char *const names[] = { "?",       "DATA", "GAP",  "LOST",
					     "SESSION", "END",  "DOWN", "UP" };
	struct tw_arb_run run;

	sub->ledger.now_ns = tw_sim_now(w->sim);
	while (tw_arb_next(sub->arb, &run)) {
		tw_world_trace(w, "  sub %" PRIu32 ": %s [%" PRIu64 ", %" PRIu64 ") line %u%s%s",
			       index, names[run.type], run.first_seq, run.end_seq, run.line,
			       run.from_store ? " held" : "", run.fills_gap ? " fills" : "");
		hash_in(w, (uint64_t)run.type << 56 ^ (uint64_t)index << 40 ^ run.first_seq << 20 ^
				   run.end_seq);
		hash_in(w, run.gap_ns ^ tw_sim_now(w->sim));
		check_run(w, sub, index, &run);
	}
	if (!tw_ledger_pulled(&sub->ledger)) {
		tw_world_fail(w, "subscriber %" PRIu32 ": %s", index, sub->ledger.error);
	}
	if (tw_arb_held(sub->arb) > sub->conf.store_dgrams) {
		tw_world_fail(
			w, "subscriber %" PRIu32 ": %" PRIu32 " datagrams in a store of %" PRIu32,
			index, tw_arb_held(sub->arb), sub->conf.store_dgrams);
	}
	for (uint32_t i = 0; i < GUARD_BYTES; i++) {
		if (sub->memory[sub->size_bytes + i] != GUARD) {
			tw_world_fail(w, "subscriber %" PRIu32 ": wrote past its memory", index);
		}
	}
}

static void give(struct world *w, struct sub *sub, uint32_t index, uint32_t line,
		 const struct tw_sim_dgram *received)
{
	struct tw_dgram dgram;
	uint64_t now_ns = tw_sim_now(w->sim);

	if (tw_dgram_parse(&dgram, received->data, received->len_bytes) != TW_DGRAM_OK) {
		tw_world_fail(w, "subscriber %" PRIu32 ": a datagram does not parse", index);
		return;
	}
	sub->hand_session = dgram.hdr->session;
	enum tw_arb_result result = tw_arb_input(sub->arb, line, &dgram, now_ns, now_ns);
	tw_world_trace(
		w, "  sub %" PRIu32 ": line %u packet %" PRIu64 " [%" PRIu64 ", %" PRIu64 ") -> %d",
		index, line, dgram.hdr->packet_seq, dgram.hdr->first_msg_seq, dgram.end_seq,
		(int)result);
	if (result >= TW_ARB_FOREIGN_CHANNEL) {
		tw_world_fail(w, "subscriber %" PRIu32 ": result %d", index, (int)result);
	}
	tw_ledger_give(&sub->ledger, &dgram, result);
	pull(w, sub, index);
}

/* One turn of the subscriber's loop: a batch of each line, then idle where nothing is left. */
void tw_world_poll_sub(struct world *w, uint32_t index)
{
	struct sub *sub = &w->subs[index];
	struct tw_sim_dgram received;

	if (!sub->runs || sub->stalled) {
		return;
	}
	bool more = true;
	while (more && w->result->error[0] == '\0') {
		more = false;
		for (uint32_t line = 0; line < w->lines; line++) {
			uint32_t n = 0;
			while (n < sub->batch && tw_sim_recv(w->sim, index, line, &received)) {
				give(w, sub, index, line, &received);
				n++;
			}
			if (n < sub->batch) {
				tw_arb_idle(sub->arb, line, tw_sim_now(w->sim));
				pull(w, sub, index);
			}
			more = more || n == sub->batch;
		}
	}
	/* Every line has been polled empty now. */
	uint64_t seen_ns = tw_ledger_oldest_gap_ns(&sub->ledger);
	uint64_t now_ns = tw_sim_now(w->sim);
	if (seen_ns < now_ns && now_ns - seen_ns >= WAIT_NS) {
		tw_world_fail(w, "subscriber %" PRIu32 ": the gap at %" PRIu64 " still waits",
			      index, sub->ledger.next_seq);
	}
}

void tw_world_add_totals(struct world *w, const struct sub *sub)
{
	struct tw_world_result *r = w->result;
	struct tw_arb_line_stats stats;

	r->data_msgs += sub->ledger.data_msgs;
	r->lost_msgs += sub->ledger.lost_msgs;
	r->gaps += sub->ledger.gaps_reported;
	r->fills += sub->ledger.fills;
	r->ends += sub->ledger.ends;
	r->store_full += tw_arb_store_full(sub->arb);
	for (uint32_t line = 0; line < w->lines; line++) {
		tw_arb_line_stats(sub->arb, line, &stats);
		r->downs += stats.downs;
	}
	if (tw_arb_contradictions(sub->arb) != 0) {
		tw_world_fail(w, "contradictions were counted in a world without any");
	}
}

void tw_world_start_sub(struct world *w, uint32_t index)
{
	struct sub *sub = &w->subs[index];

	if (sub->runs) { /* restart */
		tw_world_add_totals(w, sub);
		w->result->restarts++;
	}
	tw_sim_clear(w->sim, index); /* nobody listened before */
	tw_ledger_init(&sub->ledger);
	sub->runs = true;
	sub->start_session_idx = w->pub_session_idx;
	sub->start_seq = w->read_seq;
	memset(sub->memory, GUARD, sub->size_bytes + GUARD_BYTES);
	if (tw_arb_init(&sub->arb, sub->memory, sub->size_bytes, &sub->conf, tw_sim_now(w->sim)) !=
	    TW_OK) {
		tw_world_fail(w, "the arbiter refuses its configuration");
	}
	tw_world_trace(w, "sub %" PRIu32 ": starts%s, store %" PRIu32, index,
		       sub->conf.start == TW_START_LIVE ? " live" : "", sub->conf.store_dgrams);
	tw_world_timer_in(w, tw_world_up_to(w, POLL_NS), T_POLL, index);
}
