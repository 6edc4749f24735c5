/* The repair ladder: which gaps to ask for, where and when.  See repair.h.
 *
 * Notes     what was asked for of a gap lies with the gap (struct tw_arb_note): it is cut with it and
 *           goes with it, so nothing here grows with the number of gaps.
 * Rounds    a gap is asked for in rounds: all of it, in as many reads as that takes, then a pause.  The
 *           place in a round is a position or a number (asked_to), as the round began.
 * Passes    the oldest gap first, a bounded number of gaps a call.  What has been looked at is not looked at
 *           again before something of it is due: so a gap costs the same however many there are. */
#include "protocol/repair.h"

#include "protocol/repair_impl.h"

#define UNIT     TW_WIRE_UNIT_BYTES
#define FEW_GAPS 16u

/* --- what to ask for ------------------------------------------------------------------------- */

struct ask {
	uint64_t begin, end; /* all that is to be asked for of the gap in this round */
	uint32_t publisher, server;
	bool by_seq;
	bool begins_round;
	bool from_begin; /* nothing before `begin` was asked for in this round */
};

/* What an earlier read of the round has left. */
static bool rest_of_round(const struct tw_repair *repair, const struct tw_arb_gap *gap,
			  const struct tw_arb_note *note, struct ask *ask)
{
	*ask = (struct ask){ .by_seq = note->asked_by_seq };
	if (note->asked_by_seq) {
		ask->begin = tw_seq_before(note->asked_to, gap->first_seq) ? gap->first_seq
									   : note->asked_to;
		ask->end = gap->end_seq;
		ask->from_begin = ask->begin == gap->first_seq;
		return tw_seq_before(ask->begin, ask->end);
	}
	if (!gap->has_place || note->asked_to >= gap->end_pos) {
		return false;
	}
	ask->publisher = gap->publisher;
	ask->begin = gap->begin_pos;
	ask->end = gap->end_pos;
	ask->from_begin = note->asked_to <= gap->begin_pos;
	if (!ask->from_begin && note->asked_to - gap->begin_pos > repair->overlap_units) {
		ask->begin = note->asked_to - repair->overlap_units;
	}
	return true;
}

/* Whether to ask by number.  A head that is larger than one read is what a late joiner misses, and its history
 * may have lost its begin: where it begins now is what a read by number tells. */
static bool is_by_seq(const struct tw_repair *repair, const struct tw_arb_gap *gap,
		      const struct tw_arb_note *note)
{
	return note->by_seq || !gap->has_place ||
	       (gap->head && gap->end_pos - gap->begin_pos > repair->read_units);
}

static void new_round(const struct tw_repair *repair, const struct tw_arb_gap *gap,
		      const struct tw_arb_note *note, struct ask *ask)
{
	bool by_seq = is_by_seq(repair, gap, note);

	*ask = (struct ask){ .begin = by_seq ? gap->first_seq : gap->begin_pos,
			     .end = by_seq ? gap->end_seq : gap->end_pos,
			     .publisher = by_seq ? 0 : gap->publisher,
			     .by_seq = by_seq,
			     .begins_round = true,
			     .from_begin = true };
}

enum plan { PLAN_ASK, PLAN_WAIT, PLAN_OVER };

/* Whether, and for what, the gap is to be asked for now. */
static enum plan plan(struct tw_repair *repair, const struct tw_arb_gap *gap,
		      const struct tw_arb_note *note, struct ask *ask)
{
	uint32_t from = note->server;

	if (note->rounds == 0 || !rest_of_round(repair, gap, note, ask)) {
		if (repair->now_ns < note->retry_ns) {
			tw_repair_later(repair, note->retry_ns);
			return PLAN_WAIT;
		}
		if (note->rounds >= repair->conf.attempts_max) {
			return PLAN_OVER;
		}
		new_round(repair, gap, note, ask);
		from = note->rounds == 0 ? 0 : note->server + 1u;
	}
	ask->server = tw_repair_pick_server(repair, from, gap->end_seq);
	if (ask->server == TW_REPAIR_NO_SERVER) {
		return PLAN_WAIT;
	}
	uint64_t gone_seq = repair->servers[ask->server].gone_seq;
	if (ask->by_seq && tw_seq_before(ask->begin, gone_seq)) {
		ask->begin = gone_seq;
	}
	return PLAN_ASK; /* of something: that server's history begins before the gap's end */
}

static void note_asked(struct tw_repair *repair, struct tw_arb_note *note, const struct ask *ask,
		       uint64_t asked_to)
{
	struct tw_repair_server *server = &repair->servers[ask->server];
	uint64_t trip_ns = tw_repair_round_trip_ns(server);

	if (server->first_asked_ns == 0) {
		server->first_asked_ns = repair->now_ns;
	}
	if (ask->begins_round) {
		note->rounds++;
	}
	note->asked_by_seq = ask->by_seq;
	note->asked_to = asked_to;
	note->server = (uint8_t)ask->server;
	uint64_t wait_ns = tw_repair_back_off_ns(repair, note->rounds);
	note->retry_ns = repair->now_ns + (wait_ns < trip_ns ? trip_ns : wait_ns);
}

static uint32_t max_msgs(const struct tw_repair *repair)
{
	return repair->conf.read_max_bytes / repair->msg_bytes;
}

static uint64_t cost_bytes(const struct tw_repair *repair, bool by_seq, uint64_t begin,
			   uint64_t end)
{
	uint64_t bytes;

	if (end - begin > repair->conf.read_max_bytes) {
		return repair->conf.read_max_bytes;
	}
	bytes = (end - begin) * (by_seq ? repair->msg_bytes : UNIT);
	return bytes < repair->conf.read_max_bytes ? bytes : repair->conf.read_max_bytes;
}

/* Takes the gaps after `gap_id` into a read that ends with it, as far as that may go. */
static void join(struct tw_repair *repair, uint32_t gap_id, const struct ask *first,
		 struct tw_repair_slot *read)
{
	uint64_t unit_bytes = first->by_seq ? repair->msg_bytes : UNIT;
	uint64_t max = first->by_seq ? max_msgs(repair) : repair->read_units;
	uint64_t apart = (uint64_t)repair->conf.join_units * UNIT / unit_bytes;

	for (uint32_t id = tw_arb_gap_after(repair->arb, gap_id); id != TW_ARB_NO_GAP;
	     id = tw_arb_gap_after(repair->arb, id)) {
		struct tw_arb_note *note = tw_arb_gap_note(repair->arb, id);
		struct tw_arb_gap gap;
		struct ask ask;
		tw_arb_gap(repair->arb, id, repair->now_ns, &gap);
		if (!gap.due || plan(repair, &gap, note, &ask) != PLAN_ASK || !ask.begins_round ||
		    ask.server != first->server || ask.by_seq != first->by_seq ||
		    ask.publisher != first->publisher || ask.begin < read->end ||
		    ask.begin - read->end >= apart || ask.end - read->begin > max ||
		    tw_repair_paced_at_ns(repair, cost_bytes(repair, ask.by_seq, read->begin,
							     ask.end)) > repair->now_ns) {
			return;
		}
		read->end = ask.end;
		read->end_seq = gap.end_seq;
		repair->stats.retries += note->rounds > 0 ? 1 : 0;
		note_asked(repair, note, &ask, ask.end);
	}
}

/* The reads that a poll gives out. */
struct posting {
	struct tw_repair_read *out;
	uint32_t count, max;
};

/* Asks for as much as one read takes; posting has room.  false: not now. */
static bool post(struct tw_repair *repair, uint32_t gap_id, const struct tw_arb_gap *gap,
		 const struct ask *ask, struct posting *posting)
{
	struct tw_arb_note *note = tw_arb_gap_note(repair->arb, gap_id);
	uint64_t max = ask->by_seq ? max_msgs(repair) : repair->read_units;
	bool fits = ask->end - ask->begin <= max;
	/* by number, from where nobody knows yet where the history begins */
	bool wide = ask->by_seq && !fits &&
		    tw_seq_before(ask->begin, repair->servers[ask->server].has_seq);
	uint64_t end = fits || wide ? ask->end : ask->begin + max;

	uint64_t at_ns =
		tw_repair_paced_at_ns(repair, cost_bytes(repair, ask->by_seq, ask->begin, end));
	if (at_ns > repair->now_ns) {
		tw_repair_go_on(repair, at_ns);
		return false;
	}
	uint64_t room_bytes = ask->by_seq ? repair->conf.read_max_bytes : (end - ask->begin) * UNIT;
	struct tw_repair_slot *read = tw_repair_take(repair, (uint32_t)room_bytes);
	if (read == NULL) {
		return false; /* until a read ends, or is overdue */
	}
	read->begin = ask->begin;
	read->end = end;
	read->first_seq = ask->by_seq ? ask->begin : gap->first_seq;
	read->end_seq = ask->by_seq ? end : gap->end_seq;
	read->asked_ns = repair->now_ns;
	read->publisher = ask->publisher;
	read->server = ask->server;
	read->by_seq = ask->by_seq;
	read->whole = ask->from_begin && end == ask->end;
	read->head = !ask->by_seq && gap->head && ask->from_begin;
	read->wide = wide;
	repair->stats.retries += ask->begins_round && note->rounds > 0 ? 1 : 0;
	note_asked(repair, note, ask, end);
	read->round = note->rounds;
	if (fits) {
		join(repair, gap_id, ask, read);
	}
	if (!ask->by_seq) {
		uint32_t joined_bytes = (uint32_t)((read->end - read->begin) * UNIT);
		repair->outstanding_bytes += joined_bytes - read->room_bytes;
		read->room_bytes = joined_bytes;
	}
	read->cost_bytes = (uint32_t)cost_bytes(repair, ask->by_seq, read->begin, read->end);
	repair->paced_ns = (repair->paced_ns < repair->now_ns ? repair->now_ns : repair->paced_ns) +
			   tw_repair_rate_ns(repair, read->cost_bytes);
	repair->stats.reads++;
	posting->out[posting->count++] = (struct tw_repair_read){ .id = read->id,
								  .server = read->server,
								  .channel = repair->conf.channel,
								  .by_seq = read->by_seq,
								  .session = repair->session,
								  .publisher = read->publisher,
								  .begin = read->begin,
								  .end = read->end };
	return true;
}

/* --- passes ---------------------------------------------------------------------------------- */

enum visit {
	VISIT_ON,      /* to the next one */
	VISIT_GONE,    /* it has been given up, all of it: the walker is at the next one */
	VISIT_UNDUE,   /* nor is any after it */
	VISIT_BLOCKED, /* nothing can be asked for now, or there is no room for it */
	VISIT_FULL,    /* this call has given out all that it may */
	VISIT_AGAIN    /* there may be more to ask of it */
};

/* When the gap is given up, whatever the servers do. */
static uint64_t give_up_at_ns(const struct tw_repair *repair, const struct tw_arb_gap *gap,
			      struct tw_arb_note *note)
{
	uint64_t at_ns = gap->seen_ns + repair->conf.give_up_ns;

	if (note->grace_ns == 0 && repair->now_ns >= at_ns && repair->resumed_ns > gap->seen_ns) {
		note->grace_ns = repair->resumed_ns + repair->conf.give_up_ns;
	}
	return note->grace_ns == 0 ? at_ns : note->grace_ns;
}

/* Up to which number the gap has no rung left; its first_seq: it has. */
static uint64_t hopeless_to(struct tw_repair *repair, const struct tw_arb_gap *gap,
			    struct tw_arb_note *note, enum plan plan)
{
	uint64_t gone_seq = tw_repair_gone_seq(repair);
	uint64_t at_ns = give_up_at_ns(repair, gap, note);

	if (repair->now_ns >= at_ns) {
		return gap->end_seq;
	}
	tw_repair_later(repair, at_ns);
	if (plan == PLAN_OVER) {
		if (!tw_repair_is_outstanding(repair, gap->first_seq, gap->end_seq)) {
			return gap->end_seq;
		}
		note->retry_ns = repair->now_ns + repair->conf.retry_min_ns;
		tw_repair_later(repair, note->retry_ns);
	}
	if (!tw_seq_before(gap->first_seq, gone_seq)) {
		return gap->first_seq;
	}
	return tw_seq_before(gone_seq, gap->end_seq) ? gone_seq : gap->end_seq;
}

static enum visit visit(struct tw_repair *repair, uint32_t gap_id, struct posting *posting)
{
	struct tw_arb_note *note = tw_arb_gap_note(repair->arb, gap_id);
	struct tw_arb_gap gap;
	struct ask ask;

	tw_arb_gap(repair->arb, gap_id, repair->now_ns, &gap);
	if (!gap.due) {
		tw_repair_go_on(repair, gap.seen_ns + repair->conf.wait_ns);
		repair->undue_end_seq = gap.end_seq;
		return VISIT_UNDUE;
	}
	enum plan what = plan(repair, &gap, note, &ask);
	uint64_t lost_seq = hopeless_to(repair, &gap, note, what);
	if (lost_seq != gap.first_seq && gap.passed) {
		uint64_t lost_msgs =
			tw_arb_give_up(repair->arb, gap.first_seq, lost_seq, repair->now_ns);
		repair->stats.lost_msgs += lost_msgs;
		if (lost_msgs != 0) {
			return lost_seq == gap.end_seq ? VISIT_GONE : VISIT_AGAIN;
		}
	} else if (lost_seq != gap.first_seq) {
		tw_repair_later(repair,
				repair->now_ns); /* until the lines have been polled empty */
	}
	if (lost_seq == gap.end_seq || what != PLAN_ASK) {
		return VISIT_ON;
	}
	if (posting->count == posting->max) {
		return VISIT_FULL;
	}
	if (!tw_arb_gap_has_room(repair->arb, gap_id)) {
		tw_repair_go_on(repair, repair->now_ns + repair->conf.retry_min_ns);
		return VISIT_BLOCKED;
	}
	return post(repair, gap_id, &gap, &ask, posting) ? VISIT_AGAIN : VISIT_BLOCKED;
}

/* When what has been looked at is to be again: not for each of a thousand gaps a moment after the other. */
static uint64_t again_at_ns(const struct tw_repair *repair)
{
	uint64_t pause_ns = tw_arb_gaps(repair->arb) > FEW_GAPS ? repair->conf.retry_min_ns / 8 : 0;

	if (repair->again_ns == 0 || repair->again_ns >= repair->began_ns + pause_ns) {
		return repair->again_ns;
	}
	return repair->began_ns + pause_ns;
}

static bool is_again(const struct tw_repair *repair)
{
	return repair->now_ns >= again_at_ns(repair);
}

/* Whether to go on at the walker. */
static bool is_ahead(const struct tw_repair *repair)
{
	const struct tw_arb *arb = repair->arb;
	bool new_gap = tw_arb_gaps_seen(arb) != repair->gaps_seen &&
		       repair->ahead_ns == UINT64_MAX && repair->undue_end_seq == 0 &&
		       tw_arb_gap_walker(arb) != TW_ARB_NO_GAP;
	bool more_due = repair->undue_end_seq != 0 &&
			!tw_seq_before(tw_arb_shown_seq(arb), repair->undue_end_seq);

	return repair->now_ns >= repair->ahead_ns || new_gap || more_due;
}

static void pass(struct tw_repair *repair, struct posting *posting)
{
	struct tw_arb *arb = repair->arb;

	if (is_again(repair)) {
		tw_arb_gap_walk_to(arb, tw_arb_gap_first(arb));
		repair->again_ns = UINT64_MAX;
		repair->began_ns = repair->now_ns;
	}
	repair->ahead_ns = UINT64_MAX;
	repair->gaps_seen = tw_arb_gaps_seen(arb);
	repair->undue_end_seq = 0;
	for (uint32_t looked = 0; looked < TW_REPAIR_LOOK_GAPS;) {
		uint32_t gap_id = tw_arb_gap_walker(arb);
		if (gap_id == TW_ARB_NO_GAP) {
			return;
		}
		enum visit visited = visit(repair, gap_id, posting);
		if (visited == VISIT_UNDUE || visited == VISIT_BLOCKED) {
			return;
		}
		if (visited == VISIT_FULL) {
			break;
		}
		if (visited == VISIT_ON) {
			tw_arb_gap_walk_to(arb, tw_arb_gap_after(arb, gap_id));
		}
		looked += visited != VISIT_AGAIN ? 1 : 0;
	}
	tw_repair_go_on(repair, 0); /* the next call does */
}

uint32_t tw_repair_poll(struct tw_repair *repair, uint64_t now_ns, struct tw_repair_read *out,
			uint32_t max)
{
	struct posting posting = { .out = out, .max = max };

	tw_repair_end_walk(repair);
	tw_repair_begin(repair, now_ns);
	if (repair->now_ns - repair->polled_ns > tw_repair_stall_ns(&repair->conf)) {
		repair->resumed_ns = repair->now_ns;
	}
	repair->polled_ns = repair->now_ns;
	if (tw_arb_gaps(repair->arb) == 0) {
		return 0;
	}
	tw_repair_check_overdue(repair);
	if (is_again(repair) || is_ahead(repair)) {
		pass(repair, &posting);
	}
	return posting.count;
}

/* --- reading --------------------------------------------------------------------------------- */

uint64_t tw_repair_next_ns(const struct tw_repair *repair)
{
	if (tw_arb_gaps(repair->arb) == 0) {
		return UINT64_MAX;
	}
	if (is_again(repair) || is_ahead(repair)) {
		return 0;
	}
	uint64_t again_ns = again_at_ns(repair);
	uint64_t next_ns = again_ns < repair->ahead_ns ? again_ns : repair->ahead_ns;
	bool checks = repair->outstanding > repair->overdue;
	return checks && repair->overdue_check_ns < next_ns ? repair->overdue_check_ns : next_ns;
}

uint32_t tw_repair_outstanding(const struct tw_repair *repair)
{
	return repair->outstanding;
}

void tw_repair_stats(const struct tw_repair *repair, struct tw_repair_stats *out)
{
	*out = repair->stats;
	out->repaired_msgs = tw_arb_repaired_msgs(repair->arb);
}
