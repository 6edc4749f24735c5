/* Line arbitration of one channel: see arb.h for what holds.
 *
 * In order  what begins where all before it has left is given out as it lies; all that follows is for the rest.
 * Segments  what lies between the next number to deliver and the highest known to exist is an ordered
 *           partition into segments: GAP, DATA (held bytes), LOST (decided by a hole) or DONE (given out
 *           already, see arb_latest.c).  So a number is in exactly one of them, and is delivered once
 *           because a segment leaves at the front once.  Nothing is held in the common case and the
 *           list is empty.
 * Order     gaps further back were seen later, so the oldest gap is the first one, and a gap is only
 *           ever given up when it has come to the front.
 * Pulling   tw_arb_input() only judges a datagram; tw_arb_next() takes it in as soon as nothing that
 *           must leave first stands before it: a full store or a session that has to be flushed.
 * Bounds    slots and segments are fixed at init; what is taken in adds at most TW_ARB_INPUT_SEGS segments,
 *           whatever the datagram says. */
#include "protocol/arb.h"

#include "base/fail.h"
#include "protocol/arb_impl.h"

bool tw_arb_any_missing(const struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq)
{
	if (tw_seq_before(arb->known_end, end_seq)) {
		return true;
	}
	for (uint32_t i = tw_arb_segs_find(&arb->segs, first_seq); i < arb->segs.count; i++) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, i);
		if (!tw_seq_before(seg->first_seq, end_seq)) {
			break;
		}
		if (seg->kind == TW_ARB_SEG_GAP) {
			return true;
		}
	}
	return false;
}

bool tw_arb_range(const struct tw_arb *arb, const struct tw_dgram *dgram, bool repair,
		  uint64_t *first_seq, uint64_t *end_seq)
{
	*first_seq = tw_max_seq(dgram->hdr->first_msg_seq, arb->next_seq);
	*end_seq = dgram->end_seq;
	if (arb->final_seq != 0) {
		*end_seq = tw_min_seq(*end_seq, arb->final_seq);
	}
	if (repair) {
		*first_seq = tw_max_seq(*first_seq, arb->asked_first_seq);
		*end_seq = tw_min_seq(*end_seq, tw_min_seq(arb->asked_end_seq, arb->known_end));
	}
	return tw_seq_before(*first_seq, *end_seq);
}

/* --- lines ----------------------------------------------------------------------------------- */

static uint64_t down_ns(const struct tw_arb *arb)
{
	return TW_ARB_DOWN_HEARTBEATS * arb->conf.heartbeat_max_ns;
}

/* A line has gone down or come up. */
static void line_notice(struct tw_arb *arb, uint32_t line_idx, enum tw_arb_run_type type)
{
	arb->line_notices[line_idx] = type;
	arb->notice_due = arb->figures_changed = true;
}

/* Whether nothing of a gap may still come this way: see "Giving up" in arb.h. */
static bool line_is_past(const struct tw_arb *arb, const struct tw_arb_line *line,
			 const struct tw_arb_seg *gap)
{
	uint64_t wait_ns = arb->conf.wait_ns;

	if (line->state == TW_ARB_LINE_DOWN ||
	    (line->state == TW_ARB_LINE_NEW && arb->now_ns - line->heard_ns >= down_ns(arb))) {
		return true;
	}
	return !tw_seq_before(line->end_seq, gap->end_seq) ||
	       (line->idle_ns >= gap->seen_ns && line->idle_ns - gap->seen_ns >= wait_ns);
}

bool tw_arb_lines_past(const struct tw_arb *arb, const struct tw_arb_seg *gap)
{
	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		if (!line_is_past(arb, &arb->lines[i], gap)) {
			return false;
		}
	}
	return true;
}

/* --- input ----------------------------------------------------------------------------------- */

static uint64_t start_seq(const struct tw_arb *arb, const struct tw_wire_hdr *hdr)
{
	return arb->conf.start == TW_START_LIVE ? hdr->first_msg_seq : 1;
}

/* A lower session than the current one, or one that a lower session has taken over from: what is left
 * of that in a queue must not bring it back. */
static bool is_stale(const struct tw_arb *arb, uint64_t session)
{
	return tw_seq_before(session, arb->session) ||
	       (session == arb->left_session && session != arb->session);
}

/* A stale session was heard: whether it has been all there was for long enough to adopt it. */
static bool takes_over(struct tw_arb *arb)
{
	if (!arb->stale_heard) {
		arb->stale_heard = true;
		arb->stale_since_ns = arb->now_ns;
	}
	return arb->conf.session_takeover_ns != 0 &&
	       arb->now_ns - arb->stale_since_ns >= arb->conf.session_takeover_ns;
}

/* Counts what a known END contradicts. */
static void judge_end(struct tw_arb *arb, const struct tw_dgram *dgram)
{
	bool end = (dgram->hdr->flags & TW_WIRE_END) != 0;
	bool contradicts = arb->final_seq != 0
				   ? tw_seq_before(arb->final_seq, dgram->end_seq) ||
					     (end && dgram->end_seq != arb->final_seq)
				   : end && tw_seq_before(dgram->end_seq, arb->known_end);
	arb->contradictions += contradicts ? 1 : 0;
	arb->figures_changed = true;
}

static enum tw_arb_result judge(struct tw_arb *arb, const struct tw_dgram *dgram, bool new_session)
{
	const struct tw_wire_hdr *hdr = dgram->hdr;
	uint64_t first_seq;
	uint64_t end_seq;

	if ((hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		return TW_ARB_HEARTBEAT;
	}
	if (new_session) {
		return hdr->first_msg_seq == start_seq(arb, hdr) ? TW_ARB_FIRST : TW_ARB_HELD;
	}
	if (!tw_arb_range(arb, dgram, false, &first_seq, &end_seq)) {
		return TW_ARB_DUPLICATE;
	}
	if (first_seq == arb->next_seq) {
		return TW_ARB_FIRST;
	}
	return tw_arb_any_missing(arb, first_seq, end_seq) ? TW_ARB_HELD : TW_ARB_DUPLICATE;
}

enum tw_arb_result tw_arb_judge_origin(const struct tw_arb *arb, const struct tw_wire_hdr *hdr)
{
	if (hdr->channel != arb->conf.channel) {
		return TW_ARB_FOREIGN_CHANNEL;
	}
	if (hdr->environment != arb->conf.environment) {
		return TW_ARB_FOREIGN_ENVIRONMENT;
	}
	if ((hdr->flags & TW_WIRE_REPLAY) != 0 && !arb->conf.accept_replay) {
		return TW_ARB_FOREIGN_REPLAY;
	}
	return TW_ARB_FIRST;
}

enum tw_arb_result tw_arb_input(struct tw_arb *arb, uint32_t line_idx, const struct tw_dgram *dgram,
				uint64_t recv_ns, uint64_t now_ns)
{
	const struct tw_wire_hdr *hdr = dgram->hdr;
	bool new_session = hdr->session != arb->session;

	TW_ASSERT(line_idx < arb->conf.lines && !arb->hand.held);
	TW_ASSERT(arb->segs.count == 0 || tw_arb_segs_at(&arb->segs, 0)->kind == TW_ARB_SEG_GAP);
	tw_arb_advance_clock(arb, now_ns);
	tw_arb_slots_recycle(&arb->slots);
	enum tw_arb_result origin = tw_arb_judge_origin(arb, hdr);
	if (origin != TW_ARB_FIRST) {
		return origin;
	}
	struct tw_arb_line *line = &arb->lines[line_idx];
	if (new_session && is_stale(arb, hdr->session) && !takes_over(arb)) {
		/* nothing of this session is there */
		if (tw_arb_line_silent(line, down_ns(arb), arb->now_ns)) {
			line_notice(arb, line_idx, TW_RUN_LINE_DOWN);
		}
		return TW_ARB_STALE;
	}
	arb->stale_heard = false;
	if (tw_arb_line_heard(line, arb->now_ns)) {
		line_notice(arb, line_idx, TW_RUN_LINE_UP);
	}
	enum tw_arb_result result = judge(arb, dgram, new_session);
	if (!new_session) {
		if (arb->final_seq != 0 || (hdr->flags & TW_WIRE_END) != 0) {
			judge_end(arb, dgram);
		}
		if (tw_arb_line_count(line, hdr, arb->now_ns)) {
			arb->figures_changed = true;
		}
	}
	if (result == TW_ARB_DUPLICATE) {
		line->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);
		return result;
	}
	if (result == TW_ARB_HELD) {
		if (arb->expects_repair && !new_session && !tw_arb_has_room(arb, hdr) &&
		    tw_arb_set_aside_dgram(arb, line_idx, dgram)) {
			return TW_ARB_SET_ASIDE;
		}
		result = arb->conf.latest ? TW_ARB_FIRST : TW_ARB_HELD;
	}
	arb->hand = (struct tw_arb_hand){
		.dgram = *dgram, .recv_ns = recv_ns, .line = line_idx, .held = true
	};
	return result;
}

static __attribute__((noinline)) void check_line(struct tw_arb *arb, uint32_t line_idx)
{
	if (tw_arb_line_check(&arb->lines[line_idx], arb->conf.wait_ns, down_ns(arb),
			      arb->now_ns)) {
		line_notice(arb, line_idx, TW_RUN_LINE_DOWN);
	}
	arb->figures_changed = true;
}

bool tw_arb_idle(struct tw_arb *arb, uint32_t line_idx, uint64_t now_ns)
{
	TW_ASSERT(line_idx < arb->conf.lines);
	struct tw_arb_line *line = &arb->lines[line_idx];
	tw_arb_advance_clock(arb, now_ns);
	line->idle_ns = arb->now_ns;
	if (arb->now_ns >= line->check_ns) {
		check_line(arb, line_idx);
		return true;
	}
	return arb->segs.count != 0;
}

/* --- pulling --------------------------------------------------------------------------------- */

static bool hand_is_new_session(const struct tw_arb *arb)
{
	return arb->hand.held && arb->hand.dgram.hdr->session != arb->session;
}

/* Whether the first gap is to be given up now.  While a datagram is in hand only want of room, or a
 * new session, is a reason: the datagram may be what the gap waits for. */
static bool gives_up(struct tw_arb *arb, struct tw_arb_seg *gap)
{
	if (hand_is_new_session(arb)) {
		return true;
	}
	if (arb->hand.held) {
		/* one from history was let in because it has room */
		if (arb->hand.repair || arb->hand.giving ||
		    tw_arb_has_room(arb, arb->hand.dgram.hdr)) {
			return false;
		}
		arb->store_full++;
		arb->figures_changed = true;
		return true;
	}
	if (arb->conf.repair || arb->now_ns - gap->seen_ns < arb->conf.wait_ns) {
		return false;
	}
	return tw_arb_lines_past(arb, gap);
}

void tw_arb_data_run(struct tw_arb *arb, const struct tw_arb_seg *seg, struct tw_arb_run *run)
{
	*run = (struct tw_arb_run){ .type = TW_RUN_DATA,
				    .line = seg->line,
				    .from_store = seg->slot != TW_ARB_NO_SLOT,
				    .fills_gap = seg->in_gap,
				    .repaired = seg->repaired,
				    .msgs = seg->msgs,
				    .bytes = seg->bytes,
				    .count = (uint32_t)(seg->end_seq - seg->first_seq),
				    .first_seq = seg->first_seq,
				    .end_seq = seg->end_seq,
				    .session = arb->session,
				    .send_ns = seg->send_ns,
				    .recv_ns = seg->recv_ns,
				    .gap_ns = seg->in_gap ? arb->now_ns - seg->seen_ns : 0 };
	arb->repaired_msgs += seg->repaired ? run->count : 0;
}

/* The first segment, or of a gap what is not in hand, as LOST. */
static void take_lost(struct tw_arb *arb, struct tw_arb_seg *seg, struct tw_arb_run *run)
{
	uint64_t end_seq = seg->end_seq;

	if (seg->kind == TW_ARB_SEG_GAP && arb->hand.held && !hand_is_new_session(arb)) {
		end_seq = tw_min_seq(end_seq, arb->hand.dgram.hdr->first_msg_seq);
	}
	*run = (struct tw_arb_run){ .type = TW_RUN_LOST,
				    .first_seq = seg->first_seq,
				    .end_seq = end_seq,
				    .session = arb->session,
				    .gap_ns = seg->in_gap ? arb->now_ns - seg->seen_ns : 0 };
	arb->next_seq = end_seq;
	if (end_seq == seg->end_seq) {
		tw_arb_segs_pop(&arb->segs);
		tw_arb_pop_done(arb);
	} else { /* what follows is in hand */
		seg->first_seq = end_seq;
		arb->segs.gaps[tw_arb_segs_id(&arb->segs, seg)].begin.pos = TW_ARB_NO_POS;
	}
}

static void take_first(struct tw_arb *arb, struct tw_arb_run *run)
{
	struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, 0);

	if (seg->kind != TW_ARB_SEG_DATA) {
		take_lost(arb, seg, run);
		return;
	}
	tw_arb_data_run(arb, seg, run);
	if (seg->slot != TW_ARB_NO_SLOT) {
		tw_arb_slots_release(&arb->slots, seg->slot);
		arb->figures_changed = true;
	}
	arb->next_seq = seg->end_seq;
	tw_arb_segs_pop(&arb->segs);
}

/* What is said outside the order of numbers: line states, and a gap that was just seen. */
static bool take_notice(struct tw_arb *arb, struct tw_arb_run *run)
{
	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		if (arb->line_notices[i] != 0) {
			*run = (struct tw_arb_run){ .type = arb->line_notices[i],
						    .line = (uint8_t)i,
						    .session = arb->session };
			arb->line_notices[i] = 0;
			return true;
		}
	}
	if (arb->gap_first_seq != arb->gap_end_seq) {
		*run = (struct tw_arb_run){ .type = TW_RUN_GAP,
					    .first_seq = arb->gap_first_seq,
					    .end_seq = arb->gap_end_seq,
					    .session = arb->session };
		arb->gap_first_seq = arb->gap_end_seq;
		return true;
	}
	arb->notice_due = false;
	return false;
}

/* Begins the session of the datagram in hand; everything of the one before has left. */
static void begin_session(struct tw_arb *arb, struct tw_arb_run *run)
{
	const struct tw_wire_hdr *hdr = arb->hand.dgram.hdr;

	if (tw_seq_before(hdr->session, arb->session)) {
		arb->left_session = arb->session;
	}
	arb->session = hdr->session;
	arb->next_seq = start_seq(arb, hdr);
	arb->known_end = arb->next_seq;
	arb->tail.pos = arb->next_seq == 1 ? TW_ARB_HEAD_POS : TW_ARB_NO_POS;
	arb->final_seq = 0;
	arb->end_reported = false;
	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		tw_arb_line_reset(&arb->lines[i], arb->now_ns);
	}
	(void)tw_arb_line_count(&arb->lines[arb->hand.line], hdr, arb->now_ns);
	arb->figures_changed = true;
	*run = (struct tw_arb_run){ .type = TW_RUN_SESSION,
				    .first_seq = arb->next_seq,
				    .end_seq = arb->next_seq,
				    .session = arb->session };
}

/* Whether nothing stands before the datagram in hand. */
static bool nothing_before(const struct tw_arb *arb)
{
	return arb->segs.count == 0 && !arb->notice_due &&
	       (arb->final_seq == 0 || arb->end_reported);
}

/* Whether messages are in hand that begin where all before them has left.  (Of a session that has ended there are
 * none, nor are any from history, which fills gaps.) */
static bool hand_goes_on(const struct tw_arb *arb)
{
	const struct tw_wire_hdr *hdr = arb->hand.dgram.hdr;

	return hdr->first_msg_seq == arb->next_seq && hdr->session == arb->session &&
	       (hdr->flags & (TW_WIRE_HEARTBEAT | TW_WIRE_HOLE)) == 0;
}

/* They leave as they lie. */
static void take_hand(struct tw_arb *arb, struct tw_arb_run *run)
{
	struct tw_arb_hand *hand = &arb->hand;
	const struct tw_dgram *dgram = &hand->dgram;
	const struct tw_wire_hdr *hdr = dgram->hdr;
	struct tw_arb_line *line = &arb->lines[hand->line];

	*run = (struct tw_arb_run){ .type = TW_RUN_DATA,
				    .line = (uint8_t)hand->line,
				    .msgs = dgram->msgs,
				    .bytes = dgram->msgs_bytes,
				    .count = hdr->msg_count,
				    .first_seq = arb->next_seq,
				    .end_seq = dgram->end_seq,
				    .session = arb->session,
				    .send_ns = hdr->send_ns,
				    .recv_ns = hand->recv_ns };
	line->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);
	arb->next_seq = arb->known_end = dgram->end_seq;
	arb->tail = tw_arb_end_place(hdr);
	hand->held = false;
}

/* The next run where something stands before what is in hand, or that is not next.  (Inlined it would make the
 * common case save registers for it.) */
static __attribute__((noinline)) bool take_any(struct tw_arb *arb, struct tw_arb_run *run)
{
	for (;;) {
		if (arb->notice_due && take_notice(arb, run)) {
			return true;
		}
		if (arb->segs.count > 0) {
			struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, 0);
			if (seg->kind != TW_ARB_SEG_GAP || gives_up(arb, seg)) {
				take_first(arb, run);
				return true;
			}
		}
		if (arb->final_seq != 0 && !arb->end_reported && arb->next_seq == arb->final_seq) {
			arb->end_reported = true;
			*run = (struct tw_arb_run){ .type = TW_RUN_END,
						    .first_seq = arb->final_seq,
						    .end_seq = arb->final_seq,
						    .session = arb->session };
			return true;
		}
		if (!arb->hand.held) {
			return false;
		}
		if (hand_is_new_session(arb)) {
			begin_session(arb, run);
			return true;
		}
		if (arb->hand.giving) {
			arb->hand.held = tw_arb_give_next(arb, run);
			if (arb->hand.held) {
				return true;
			}
			continue;
		}
		arb->hand.held = false;
		tw_arb_take_in(arb);
	}
}

bool tw_arb_next(struct tw_arb *arb, struct tw_arb_run *run)
{
	if (nothing_before(arb)) {
		if (!arb->hand.held) {
			return false;
		}
		if (hand_goes_on(arb)) {
			take_hand(arb, run);
			return true;
		}
	}
	return take_any(arb, run);
}

/* --- reading --------------------------------------------------------------------------------- */

uint64_t tw_arb_session(const struct tw_arb *arb)
{
	return arb->session;
}

uint64_t tw_arb_next_seq(const struct tw_arb *arb)
{
	return arb->next_seq;
}

uint32_t tw_arb_held(const struct tw_arb *arb)
{
	return arb->slots.used;
}

uint64_t tw_arb_store_full(const struct tw_arb *arb)
{
	return arb->store_full;
}

uint64_t tw_arb_set_aside(const struct tw_arb *arb)
{
	return arb->set_aside;
}

uint64_t tw_arb_contradictions(const struct tw_arb *arb)
{
	return arb->contradictions;
}

void tw_arb_line_stats(const struct tw_arb *arb, uint32_t line_idx, struct tw_arb_line_stats *out)
{
	TW_ASSERT(line_idx < arb->conf.lines);
	const struct tw_arb_line *line = &arb->lines[line_idx];

	*out = (struct tw_arb_line_stats){ .missing = line->missing,
					   .reordered = line->reordered,
					   .downs = line->downs,
					   .up = line->state == TW_ARB_LINE_UP };
}

bool tw_arb_figures_changed(struct tw_arb *arb)
{
	bool changed = arb->figures_changed;

	arb->figures_changed = false;
	return changed;
}
