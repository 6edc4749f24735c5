/* A simulated site: its subscribers, and what they must hold to. */
#include <string.h>

#include "protocol/arb_impl.h"
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

	if (w->healing && sub->repairs) {
		return flushed;
	}
	/* one that takes long to work off a backlog of the old session: the line is down by then */
	bool down = sub->slow && sub->ledger.line_up[1 - w->lossy_line] == 0;
	return !w->gentle || before || flushed || down;
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
			tw_world_fail(
				w,
				"subscriber %" PRIu32 ": LOST [%" PRIu64 ", %" PRIu64
				") though line %c%s",
				index, run->first_seq, run->end_seq, w->lossy_line == 0 ? 'B' : 'A',
				sub->repairs ? ", or an honest server, has it" : " brought it");
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

/* What is kept of what was given out ahead of gaps is as little as can be, and no bytes. */
static void check_list(struct world *w, const struct sub *sub, uint32_t index)
{
	const struct tw_arb_segs *segs = &sub->arb->segs;
	bool was_done = true;

	for (uint32_t i = 0; i < segs->count; i++) {
		bool done = tw_arb_segs_at(segs, i)->kind == TW_ARB_SEG_DONE;
		if (done && (was_done || !sub->conf.latest)) {
			tw_world_fail(w, "subscriber %" PRIu32 ": DONE stands at %" PRIu32, index,
				      i);
		}
		was_done = done;
	}
	if (segs->count > sub->arb->seg_limit || (sub->conf.latest && tw_arb_held(sub->arb) != 0)) {
		tw_world_fail(w, "subscriber %" PRIu32 ": %" PRIu32 " segments, %" PRIu32 " held",
			      index, segs->count, tw_arb_held(sub->arb));
	}
}

/* Who kept the figures has to look at them again only when told so. */
static void check_figures(struct world *w, struct sub *sub, uint32_t index)
{
	struct figures now = { .gaps_seen = tw_arb_gaps_seen(sub->arb),
			       .store_full = tw_arb_store_full(sub->arb),
			       .set_aside = tw_arb_set_aside(sub->arb),
			       .contradictions = tw_arb_contradictions(sub->arb),
			       .held = tw_arb_held(sub->arb) };

	for (uint32_t line = 0; line < w->lines; line++) {
		struct tw_arb_line_stats stats;
		tw_arb_line_stats(sub->arb, line, &stats);
		now.missing[line] = stats.missing;
		now.reordered[line] = stats.reordered;
		now.downs[line] = stats.downs;
		now.up[line] = stats.up;
	}
	bool changed = memcmp(&now, &sub->figures, sizeof(now)) != 0;
	if (!tw_arb_figures_changed(sub->arb) && changed) {
		tw_world_fail(w, "subscriber %" PRIu32 ": figures have changed unsaid", index);
	}
	sub->figures = now;
}

/* A line was polled empty. */
static void idle(struct world *w, struct sub *sub, uint32_t index, uint32_t line_idx)
{
	uint64_t now_ns = tw_sim_now(w->sim);
	const struct tw_arb_line *line = &sub->arb->lines[line_idx];
	bool due = tw_arb_idle(sub->arb, line_idx, now_ns);
	struct tw_arb_run run;

	if (!due && tw_arb_next(sub->arb, &run)) {
		tw_world_fail(w, "subscriber %" PRIu32 ": %d though nothing was to come", index,
			      (int)run.type);
	}
	if (line->state != TW_ARB_LINE_DOWN &&
	    now_ns - line->heard_ns >= TW_ARB_DOWN_HEARTBEATS * sub->conf.heartbeat_max_ns) {
		tw_world_fail(w, "subscriber %" PRIu32 ": line %" PRIu32 " is not down", index,
			      line_idx);
	}
	for (uint32_t i = 0; i < TW_ARB_LIVES; i++) {
		const struct tw_arb_life *life = &line->lives[i];
		if (life->seen != TW_ARB_SEEN_ALL && now_ns - life->grown_ns >= sub->conf.wait_ns) {
			tw_world_fail(w, "subscriber %" PRIu32 ": a number is open for too long",
				      index);
		}
	}
	tw_world_pull(w, index);
}

void tw_world_pull(struct world *w, uint32_t index)
{
	static const char *const names[] = { "?",       "DATA", "GAP",  "LOST",
					     "SESSION", "END",  "DOWN", "UP" };
	struct sub *sub = &w->subs[index];
	struct tw_arb_run run;

	sub->ledger.now_ns = tw_sim_now(w->sim);
	while (tw_arb_next(sub->arb, &run)) {
		tw_world_trace(w, "  sub %" PRIu32 ": %s [%" PRIu64 ", %" PRIu64 ") line %u%s%s%s",
			       index, names[run.type], run.first_seq, run.end_seq, run.line,
			       run.from_store ? " held" : "", run.fills_gap ? " fills" : "",
			       run.repaired ? " from history" : "");
		hash_in(w, (uint64_t)run.type << 56 ^ (uint64_t)index << 40 ^ run.first_seq << 20 ^
				   run.end_seq);
		hash_in(w, run.gap_ns ^ tw_sim_now(w->sim) ^ (uint64_t)run.repaired << 63);
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
	check_list(w, sub, index);
	check_figures(w, sub, index);
	for (uint32_t i = 0; i < GUARD_BYTES; i++) {
		if (sub->memory[sub->size_bytes + i] != GUARD) {
			tw_world_fail(w, "subscriber %" PRIu32 ": wrote past its memory", index);
		}
	}
}

/* A datagram may bring again what repair has given up and what waits for its turn to be LOST. */
static void tell_too_late(struct sub *sub, const struct tw_dgram *dgram)
{
	const struct tw_arb_segs *segs = &sub->arb->segs;

	if (dgram->hdr->session != sub->arb->session) {
		return;
	}
	for (uint32_t i = 0; i < segs->count; i++) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(segs, i);
		for (uint64_t seq = seg->first_seq;
		     seg->kind == TW_ARB_SEG_LOST && seq < seg->end_seq && seq < TW_LEDGER_MSGS;
		     seq++) {
			tw_ledger_too_late(&sub->ledger, sub->arb->session, seq);
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
	tell_too_late(sub, &dgram);
	enum tw_arb_result result = tw_arb_input(sub->arb, line, &dgram, now_ns, now_ns);
	tw_world_trace(
		w, "  sub %" PRIu32 ": line %u packet %" PRIu64 " [%" PRIu64 ", %" PRIu64 ") -> %d",
		index, line, dgram.hdr->packet_seq, dgram.hdr->first_msg_seq, dgram.end_seq,
		(int)result);
	if (result >= TW_ARB_FOREIGN_CHANNEL) {
		tw_world_fail(w, "subscriber %" PRIu32 ": result %d", index, (int)result);
	}
	tw_ledger_give(&sub->ledger, &dgram, result);
	tw_world_pull(w, index);
}

void tw_world_give_repair(struct world *w, uint32_t index, const struct tw_dgram *dgram)
{
	struct sub *sub = &w->subs[index];
	uint64_t now_ns = tw_sim_now(w->sim);
	uint64_t first_seq;
	uint64_t end_seq;
	bool any = tw_arb_range(sub->arb, dgram, true, &first_seq, &end_seq);
	enum tw_arb_repaired result = tw_arb_repair(sub->arb, dgram, now_ns, now_ns);

	tw_world_trace(w, "  sub %" PRIu32 ": history [%" PRIu64 ", %" PRIu64 ") -> %d", index,
		       dgram->hdr->first_msg_seq, dgram->end_seq, (int)result);
	if (result == TW_ARB_REPAIRED) {
		if (!any) {
			tw_world_fail(w, "subscriber %" PRIu32 ": takes what it has not asked for",
				      index);
			return;
		}
		tw_ledger_repair(&sub->ledger, dgram, first_seq, end_seq);
	}
	tw_world_pull(w, index);
}

/* A stall that begins just when something is missing is the worst one: what fills the gap waits in a
 * queue until long after the deadline. */
static void maybe_stall(struct world *w, struct sub *sub, uint32_t index)
{
	bool gap = sub->ledger.gaps_reported != sub->gaps_reported;

	for (uint32_t line = 0; line < w->lines; line++) {
		gap = gap && sub->ledger.line_up[line] != 0; /* nobody waits for one that is down */
	}
	sub->gaps_reported = sub->ledger.gaps_reported;
	if (gap && w->gentle && !w->reorders && !w->healed && tw_world_one_in(w, 4)) {
		sub->stalled = true;
		sub->has_stalled = true;
		w->result->stalls++;
		tw_world_timer_in(w, WAIT_NS + tw_world_up_to(w, 300 * US), T_WAKE, index);
	}
}

/* One turn of the subscriber's loop, or as many as it takes: a batch of each line, and idle where nothing
 * is left. */
void tw_world_poll_sub(struct world *w, uint32_t index)
{
	struct sub *sub = &w->subs[index];
	struct tw_sim_dgram received;

	if (!sub->runs || sub->stalled) {
		return;
	}
	bool more;
	do {
		more = false;
		for (uint32_t line = 0; line < w->lines; line++) {
			uint32_t n = 0;
			while (n < sub->batch && tw_sim_recv(w->sim, index, line, &received)) {
				give(w, sub, index, line, &received);
				n++;
			}
			if (n < sub->batch) {
				idle(w, sub, index, line);
			}
			more = more || n == sub->batch;
		}
	} while (more && !sub->slow && w->result->error[0] == '\0');
	tw_world_poll_repair(w, index);
	maybe_stall(w, sub, index);
	if (more) {
		return;
	}
	/* Every line has been polled empty now. */
	uint64_t seen_ns = tw_ledger_oldest_gap_ns(&sub->ledger);
	uint64_t now_ns = tw_sim_now(w->sim);
	uint64_t limit_ns = WAIT_NS;
	if (sub->repairs) {
		/* what was seen before it stood still has as long again; and many gaps are not looked
		 * at all the time */
		limit_ns = sub->repair_conf.give_up_ns + sub->repair_conf.retry_min_ns;
		limit_ns = limit_ns > WAIT_NS ? limit_ns : WAIT_NS;
		limit_ns += sub->resumed_ns > seen_ns ? sub->resumed_ns - seen_ns : 0;
	}
	if (seen_ns < now_ns && now_ns - seen_ns >= limit_ns) {
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
	r->ahead += sub->ledger.ahead;
	r->ends += sub->ledger.ends;
	r->repaired_msgs += sub->ledger.repaired_msgs;
	r->store_full += tw_arb_store_full(sub->arb);
	r->set_aside += tw_arb_set_aside(sub->arb);
	for (uint32_t line = 0; line < w->lines; line++) {
		tw_arb_line_stats(sub->arb, line, &stats);
		r->downs += stats.downs;
	}
	if (sub->repairs) {
		struct tw_repair_stats repair;
		tw_repair_stats(sub->repair, &repair);
		r->reads += repair.reads;
		r->retries += repair.retries;
		r->gone += repair.gone;
		r->refused += repair.refused;
		r->busy += repair.busy;
		r->broken += repair.broken;
		r->overdue += repair.overdue;
		r->ignored += repair.ignored;
		r->given_up += repair.lost_msgs;
		if (repair.repaired_msgs != sub->ledger.repaired_msgs) {
			tw_world_fail(w, "%" PRIu64 " messages repaired, %" PRIu64 " said so",
				      repair.repaired_msgs, sub->ledger.repaired_msgs);
		}
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
	sub->ledger.latest = sub->conf.latest;
	sub->runs = true;
	sub->gaps_reported = 0;
	sub->figures = (struct figures){ 0 };
	sub->start_session_idx = w->pub_session_idx;
	sub->start_seq = w->read_seq;
	memset(sub->memory, GUARD, sub->size_bytes + GUARD_BYTES);
	if (tw_arb_init(&sub->arb, sub->memory, sub->size_bytes, &sub->conf, tw_sim_now(w->sim)) !=
	    TW_OK) {
		tw_world_fail(w, "the arbiter refuses its configuration");
	}
	tw_world_start_repair(w, index);
	tw_world_trace(w, "sub %" PRIu32 ": starts%s%s, store %" PRIu32, index,
		       sub->conf.start == TW_START_LIVE ? " live" : "",
		       sub->conf.latest ? ", latest" : "", sub->conf.store_dgrams);
	tw_world_timer_in(w, tw_world_up_to(w, POLL_NS), T_POLL, index);
}
