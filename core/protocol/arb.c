/* Line arbitration of one channel: see arb.h for what holds.
 *
 * Segments  what lies between the next number to deliver and the highest known to exist is an ordered
 *           partition into segments: GAP, DATA (held bytes) or LOST (decided by a hole).  So a number
 *           is in exactly one of them, and is delivered once because a segment leaves at the front
 *           once.  Nothing is held in the common case and the list is empty.
 * Order     gaps further back were seen later, so the oldest gap is the first one, and a gap is only
 *           ever given up when it has come to the front.
 * Pulling   tw_arb_input() only judges a datagram; tw_arb_next() takes it in as soon as nothing that
 *           must leave first stands before it: a full store or a session that has to be flushed.
 * Bounds    slots and segments are fixed at init; what is taken in adds at most INPUT_SEGS segments,
 *           whatever the datagram says. */
#include "protocol/arb.h"

#include <string.h>

#include "base/fail.h"
#include "base/slab.h"
#include "protocol/arb_line.h"
#include "protocol/arb_segs.h"

#define INPUT_SEGS      4u /* more than one datagram can add: a gap before it, or a gap cut in three */
#define DOWN_HEARTBEATS 3u

/* The datagram in hand: given, but not yet taken in. */
struct hand {
	struct tw_dgram dgram;
	uint64_t recv_ns;
	uint32_t line;
	bool held;
};

struct tw_arb {
	struct tw_arb_conf conf;
	uint64_t now_ns;
	uint64_t session;      /* 0: none */
	uint64_t left_session; /* a lower one has taken over from it */
	uint64_t next_seq, known_end;
	uint64_t final_seq; /* one past the last of an ended session, 0: not ended */
	bool end_reported;
	bool stale_heard; /* nothing but stale sessions since stale_since_ns */
	uint64_t stale_since_ns;
	uint64_t store_full, contradictions;
	uint64_t gap_first_seq, gap_end_seq; /* GAP to report; equal: none */
	uint32_t line_notices[TW_MAX_LINES]; /* enum tw_arb_run_type to report, 0: none */
	uint32_t seg_limit;
	struct hand hand;
	struct tw_arb_line lines[TW_MAX_LINES];
	struct tw_arb_segs segs;
	struct tw_arb_slots slots;
};

static uint64_t min_seq(uint64_t a_seq, uint64_t b_seq)
{
	return tw_seq_before(a_seq, b_seq) ? a_seq : b_seq;
}

static uint64_t max_seq(uint64_t a_seq, uint64_t b_seq)
{
	return tw_seq_before(a_seq, b_seq) ? b_seq : a_seq;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Offsets of the parts in the caller's memory. */
struct layout {
	size_t segs, ring, free_segs, slot_refs, free_slots, slots, total;
	uint32_t seg_limit, ring_size, slot_count, slot_bytes;
};

static bool conf_holds(const struct tw_arb_conf *conf)
{
	return conf->lines >= 1 && conf->lines <= TW_MAX_LINES && conf->store_dgrams >= 1 &&
	       conf->store_dgrams <= TW_ARB_STORE_MAX_DGRAMS &&
	       conf->mtu_bytes > TW_WIRE_HDR_BYTES && conf->mtu_bytes <= TW_WIRE_DGRAM_MAX_BYTES &&
	       conf->heartbeat_max_ns >= 1 &&
	       conf->heartbeat_max_ns <= UINT64_MAX / DOWN_HEARTBEATS;
}

static size_t take_bytes(size_t *total, size_t bytes)
{
	size_t at = *total;
	size_t line = TW_CACHE_LINE_BYTES;

	*total += (bytes + line - 1) / line * line;
	return at;
}

static struct layout lay_out(const struct tw_arb_conf *conf)
{
	struct layout lay = { .ring_size = 1 };

	/* A held datagram and the gap before it make two segments; as much again for gaps that only
	 * heartbeats have shown, holes, and datagrams that fill several gaps. */
	lay.seg_limit = 4 * conf->store_dgrams + 2 * INPUT_SEGS;
	while (lay.ring_size < lay.seg_limit + INPUT_SEGS) {
		lay.ring_size *= 2;
	}
	/* One more than may be in use: a datagram that makes room for itself cannot use the slots
	 * that this releases, their bytes are still being read. */
	lay.slot_count = conf->store_dgrams + 1;
	lay.slot_bytes = (conf->mtu_bytes - TW_WIRE_HDR_BYTES + TW_CACHE_LINE_BYTES - 1) /
			 TW_CACHE_LINE_BYTES * TW_CACHE_LINE_BYTES;
	(void)take_bytes(&lay.total, sizeof(struct tw_arb));
	lay.segs = take_bytes(&lay.total, lay.ring_size * sizeof(struct tw_arb_seg));
	lay.ring = take_bytes(&lay.total, lay.ring_size * sizeof(uint32_t));
	lay.free_segs = take_bytes(&lay.total, lay.ring_size * sizeof(uint32_t));
	lay.slot_refs = take_bytes(&lay.total, lay.slot_count * sizeof(uint32_t));
	lay.free_slots = take_bytes(&lay.total, lay.slot_count * sizeof(uint32_t));
	lay.slots = take_bytes(&lay.total, (size_t)lay.slot_count * lay.slot_bytes);
	return lay;
}

size_t tw_arb_size(const struct tw_arb_conf *conf)
{
	return conf_holds(conf) ? lay_out(conf).total : 0;
}

int tw_arb_init(struct tw_arb **arb_p, void *memory, size_t size_bytes,
		const struct tw_arb_conf *conf, uint64_t now_ns)
{
	*arb_p = NULL;
	if (!conf_holds(conf) || memory == NULL || (uintptr_t)memory % TW_CACHE_LINE_BYTES != 0) {
		return TW_EARG;
	}
	struct layout lay = lay_out(conf);
	if (size_bytes < lay.total) {
		return TW_EARG;
	}
	uint8_t *base = memory;
	struct tw_arb *arb = memory;
	memset(base, 0, lay.slots);
	arb->conf = *conf;
	arb->now_ns = now_ns;
	arb->seg_limit = lay.seg_limit;
	arb->segs.pool = (void *)(base + lay.segs);
	arb->segs.ring = (void *)(base + lay.ring);
	arb->segs.free_ids = (void *)(base + lay.free_segs);
	tw_arb_segs_init(&arb->segs, lay.ring_size);
	arb->slots.bytes = base + lay.slots;
	arb->slots.refs = (void *)(base + lay.slot_refs);
	arb->slots.free_ids = (void *)(base + lay.free_slots);
	tw_arb_slots_init(&arb->slots, lay.slot_count, lay.slot_bytes);
	for (uint32_t i = 0; i < conf->lines; i++) {
		tw_arb_line_init(&arb->lines[i], now_ns);
	}
	*arb_p = arb;
	return TW_OK;
}

/* Whether anything in [first_seq, end_seq), which begins past next_seq, has not been decided. */
static bool any_missing(const struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq)
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

/* --- taking in ------------------------------------------------------------------------------- */

/* Makes numbers up to `end_seq` known: what nobody has brought of them is a gap. */
static void reveal(struct tw_arb *arb, uint64_t end_seq)
{
	if (!tw_seq_before(arb->known_end, end_seq)) {
		return;
	}
	struct tw_arb_seg gap = { .first_seq = arb->known_end,
				  .end_seq = end_seq,
				  .seen_ns = arb->now_ns,
				  .slot = TW_ARB_NO_SLOT,
				  .kind = TW_ARB_SEG_GAP,
				  .in_gap = true };
	(void)tw_arb_segs_insert(&arb->segs, arb->segs.count, &gap);
	arb->gap_first_seq = gap.first_seq;
	arb->gap_end_seq = gap.end_seq;
	arb->known_end = end_seq;
}

/* Puts what is new of [first_seq, end_seq) into the list. */
static void place(struct tw_arb *arb, const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
		  uint64_t first_seq, uint64_t end_seq)
{
	reveal(arb, first_seq);
	uint32_t i = tw_seq_before(first_seq, arb->known_end)
			     ? tw_arb_segs_find(&arb->segs, first_seq)
			     : arb->segs.count;
	while (i < arb->segs.count && tw_seq_before(first_seq, end_seq)) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, i);
		uint64_t stop_seq = min_seq(seg->end_seq, end_seq);
		i = seg->kind != TW_ARB_SEG_GAP ? i + 1
						: tw_arb_segs_fill(&arb->segs, &arb->slots, i, like,
								   cursor, first_seq, stop_seq);
		first_seq = stop_seq;
	}
	if (tw_seq_before(first_seq, end_seq)) {
		tw_arb_segs_append(&arb->segs, &arb->slots, like, cursor, first_seq, end_seq);
		arb->known_end = end_seq;
	}
}

/* Numbers that the datagram in hand may decide: what is not delivered yet, up to a final END. */
static bool hand_range(const struct tw_arb *arb, const struct tw_dgram *dgram, uint64_t *first_seq,
		       uint64_t *end_seq)
{
	*first_seq = max_seq(dgram->hdr->first_msg_seq, arb->next_seq);
	*end_seq = dgram->end_seq;
	if (arb->final_seq != 0) {
		*end_seq = min_seq(*end_seq, arb->final_seq);
	}
	return tw_seq_before(*first_seq, *end_seq);
}

static void take_in_heartbeat(struct tw_arb *arb, const struct tw_wire_hdr *hdr)
{
	uint64_t end_seq = hdr->first_msg_seq;

	if (arb->final_seq == 0) {
		reveal(arb, end_seq);
		if ((hdr->flags & TW_WIRE_END) != 0 && end_seq == arb->known_end) {
			arb->final_seq = end_seq;
		}
	}
}

static void take_in(struct tw_arb *arb)
{
	const struct hand *hand = &arb->hand;
	const struct tw_dgram *dgram = &hand->dgram;
	const struct tw_wire_hdr *hdr = dgram->hdr;
	struct tw_arb_cursor cursor = { .at = dgram->msgs,
					.end = dgram->msgs + dgram->msgs_bytes,
					.seq = hdr->first_msg_seq,
					.end_seq = dgram->end_seq };
	struct tw_arb_seg like = { .slot = TW_ARB_NO_SLOT,
				   .kind = TW_ARB_SEG_DATA,
				   .line = (uint8_t)hand->line,
				   .send_ns = hdr->send_ns,
				   .recv_ns = hand->recv_ns };
	uint64_t first_seq;
	uint64_t end_seq;

	arb->lines[hand->line].end_seq = max_seq(arb->lines[hand->line].end_seq, dgram->end_seq);
	if ((hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		take_in_heartbeat(arb, hdr);
		return;
	}
	if (!hand_range(arb, dgram, &first_seq, &end_seq)) {
		return;
	}
	if ((hdr->flags & TW_WIRE_HOLE) != 0) {
		like.kind = TW_ARB_SEG_LOST;
	} else if (tw_seq_before(arb->next_seq, first_seq)) {
		/* Behind a gap: next_seq itself is missing, so nothing of it leaves now. */
		TW_ASSERT(dgram->msgs_bytes <= arb->slots.stride_bytes);
		like.slot = tw_arb_slots_take(&arb->slots);
		uint8_t *copy = tw_arb_slots_at(&arb->slots, like.slot);
		memcpy(copy, dgram->msgs, dgram->msgs_bytes);
		cursor.at = copy;
		cursor.end = copy + dgram->msgs_bytes;
	}
	place(arb, &like, &cursor, first_seq, end_seq);
}

/* --- lines ----------------------------------------------------------------------------------- */

static uint64_t down_ns(const struct tw_arb *arb)
{
	return DOWN_HEARTBEATS * arb->conf.heartbeat_max_ns;
}

/* Nothing of this session is there on the line. */
static void line_silent(struct tw_arb *arb, uint32_t line_idx)
{
	if (tw_arb_line_silent(&arb->lines[line_idx], down_ns(arb), arb->now_ns)) {
		arb->line_notices[line_idx] = TW_RUN_LINE_DOWN;
	}
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

/* --- input ----------------------------------------------------------------------------------- */

static void advance_clock(struct tw_arb *arb, uint64_t now_ns)
{
	arb->now_ns = now_ns > arb->now_ns ? now_ns : arb->now_ns;
}

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
	if (!hand_range(arb, dgram, &first_seq, &end_seq)) {
		return TW_ARB_DUPLICATE;
	}
	if (first_seq == arb->next_seq) {
		return TW_ARB_FIRST;
	}
	return any_missing(arb, first_seq, end_seq) ? TW_ARB_HELD : TW_ARB_DUPLICATE;
}

enum tw_arb_result tw_arb_input(struct tw_arb *arb, uint32_t line_idx, const struct tw_dgram *dgram,
				uint64_t recv_ns, uint64_t now_ns)
{
	const struct tw_wire_hdr *hdr = dgram->hdr;
	bool new_session = hdr->session != arb->session;

	TW_ASSERT(line_idx < arb->conf.lines && !arb->hand.held);
	TW_ASSERT(arb->segs.count == 0 || tw_arb_segs_at(&arb->segs, 0)->kind == TW_ARB_SEG_GAP);
	advance_clock(arb, now_ns);
	tw_arb_slots_recycle(&arb->slots);
	if (hdr->channel != arb->conf.channel) {
		return TW_ARB_FOREIGN_CHANNEL;
	}
	if (hdr->environment != arb->conf.environment) {
		return TW_ARB_FOREIGN_ENVIRONMENT;
	}
	if ((hdr->flags & TW_WIRE_REPLAY) != 0 && !arb->conf.accept_replay) {
		return TW_ARB_FOREIGN_REPLAY;
	}
	struct tw_arb_line *line = &arb->lines[line_idx];
	if (is_stale(arb, hdr->session) && !takes_over(arb)) {
		line_silent(arb, line_idx);
		return TW_ARB_STALE;
	}
	arb->stale_heard = false;
	if (tw_arb_line_heard(line, arb->now_ns)) {
		arb->line_notices[line_idx] = TW_RUN_LINE_UP;
	}
	enum tw_arb_result result = judge(arb, dgram, new_session);
	if (!new_session) {
		judge_end(arb, dgram);
		tw_arb_line_count(line, hdr, arb->now_ns);
	}
	if (result == TW_ARB_DUPLICATE) {
		line->end_seq = max_seq(line->end_seq, dgram->end_seq);
		return result;
	}
	arb->hand = (struct hand){
		.dgram = *dgram, .recv_ns = recv_ns, .line = line_idx, .held = true
	};
	return result;
}

void tw_arb_idle(struct tw_arb *arb, uint32_t line_idx, uint64_t now_ns)
{
	TW_ASSERT(line_idx < arb->conf.lines);
	struct tw_arb_line *line = &arb->lines[line_idx];
	advance_clock(arb, now_ns);
	line->idle_ns = arb->now_ns;
	line_silent(arb, line_idx);
	tw_arb_line_settle(line, arb->conf.wait_ns, arb->now_ns);
}

/* --- pulling --------------------------------------------------------------------------------- */

static bool hand_is_new_session(const struct tw_arb *arb)
{
	return arb->hand.held && arb->hand.dgram.hdr->session != arb->session;
}

/* Whether the datagram in hand finds room.  What is next to deliver always does: it leaves at once. */
static bool hand_has_room(const struct tw_arb *arb)
{
	const struct tw_wire_hdr *hdr = arb->hand.dgram.hdr;

	if (!tw_seq_before(arb->next_seq, hdr->first_msg_seq)) {
		return true;
	}
	bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;
	if (heartbeat && !tw_seq_before(arb->known_end, hdr->first_msg_seq)) {
		return true;
	}
	bool needs_slot = !heartbeat && (hdr->flags & TW_WIRE_HOLE) == 0;
	return arb->segs.count + INPUT_SEGS <= arb->seg_limit &&
	       (!needs_slot || arb->slots.used < arb->conf.store_dgrams);
}

/* Whether the first gap is to be given up now.  While a datagram is in hand only want of room, or a
 * new session, is a reason: the datagram may be what the gap waits for. */
static bool gives_up(struct tw_arb *arb, struct tw_arb_seg *gap)
{
	if (hand_is_new_session(arb)) {
		return true;
	}
	if (arb->hand.held) {
		if (hand_has_room(arb)) {
			return false;
		}
		arb->store_full++;
		return true;
	}
	if (arb->now_ns - gap->seen_ns < arb->conf.wait_ns) {
		return false;
	}
	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		if (!line_is_past(arb, &arb->lines[i], gap)) {
			return false;
		}
	}
	return true;
}

/* The first segment, or of a gap what is not in hand, as a run. */
static void take_first(struct tw_arb *arb, struct tw_arb_run *run)
{
	struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, 0);
	uint64_t end_seq = seg->end_seq;

	if (seg->kind == TW_ARB_SEG_GAP && arb->hand.held && !hand_is_new_session(arb)) {
		end_seq = min_seq(end_seq, arb->hand.dgram.hdr->first_msg_seq);
	}
	*run = (struct tw_arb_run){ .type = seg->kind == TW_ARB_SEG_DATA ? TW_RUN_DATA
									 : TW_RUN_LOST,
				    .first_seq = seg->first_seq,
				    .end_seq = end_seq,
				    .session = arb->session,
				    .gap_ns = seg->in_gap ? arb->now_ns - seg->seen_ns : 0 };
	if (seg->kind == TW_ARB_SEG_DATA) {
		run->line = seg->line;
		run->from_store = seg->slot != TW_ARB_NO_SLOT;
		run->fills_gap = seg->in_gap;
		run->msgs = seg->msgs;
		run->bytes = seg->bytes;
		run->count = (uint32_t)(end_seq - seg->first_seq);
		run->send_ns = seg->send_ns;
		run->recv_ns = seg->recv_ns;
		if (seg->slot != TW_ARB_NO_SLOT) {
			tw_arb_slots_release(&arb->slots, seg->slot);
		}
	}
	arb->next_seq = end_seq;
	if (end_seq == seg->end_seq) {
		tw_arb_segs_pop(&arb->segs);
	} else {
		seg->first_seq = end_seq;
	}
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
	arb->final_seq = 0;
	arb->end_reported = false;
	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		tw_arb_line_reset(&arb->lines[i]);
	}
	tw_arb_line_count(&arb->lines[arb->hand.line], hdr, arb->now_ns);
	*run = (struct tw_arb_run){ .type = TW_RUN_SESSION,
				    .first_seq = arb->next_seq,
				    .end_seq = arb->next_seq,
				    .session = arb->session };
}

bool tw_arb_next(struct tw_arb *arb, struct tw_arb_run *run)
{
	for (;;) {
		if (take_notice(arb, run)) {
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
		arb->hand.held = false;
		take_in(arb);
	}
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
