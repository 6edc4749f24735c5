/* What repair asks of an arbiter, and tells it: see arb.h, "Repair". */
#include "base/fail.h"
#include "protocol/arb_impl.h"

#define FRONT_GAPS 64u

/* --- gaps ------------------------------------------------------------------------------------ */

uint32_t tw_arb_gaps(const struct tw_arb *arb)
{
	return arb->segs.gap_count;
}

uint32_t tw_arb_gap_first(const struct tw_arb *arb)
{
	return arb->segs.first_gap;
}

uint32_t tw_arb_gap_after(const struct tw_arb *arb, uint32_t gap_id)
{
	return arb->segs.gaps[gap_id].after;
}

uint32_t tw_arb_gap_from(const struct tw_arb *arb, uint64_t seq, uint64_t end_seq)
{
	const struct tw_arb_segs *segs = &arb->segs;

	if (segs->gap_count == 0 || !tw_seq_before(seq, arb->known_end)) {
		return TW_ARB_NO_GAP;
	}
	for (uint32_t i = tw_arb_segs_find(segs, seq); i < segs->count; i++) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(segs, i);
		if (!tw_seq_before(seg->first_seq, end_seq)) {
			break;
		}
		if (seg->kind == TW_ARB_SEG_GAP) {
			return tw_arb_segs_id(segs, seg);
		}
	}
	return TW_ARB_NO_GAP;
}

static bool is_due(const struct tw_arb *arb, const struct tw_arb_seg *gap, uint64_t now_ns)
{
	return now_ns - gap->seen_ns >= arb->conf.wait_ns ||
	       !tw_seq_before(tw_arb_shown_seq(arb), gap->end_seq);
}

/* Places are what the lines said, and nothing is asked for on the word of two that cannot both be
 * right: a datagram has at least one message and at most TW_WIRE_DGRAM_MAX_BYTES, and so much at most
 * is skipped at the end of a log, which holds several. */
static bool place_holds(const struct tw_arb_seg *gap, const struct tw_arb_place *begin,
			const struct tw_arb_place *end)
{
	uint64_t msgs = gap->end_seq - gap->first_seq;
	uint64_t dgram_units = TW_WIRE_DGRAM_MAX_BYTES / TW_WIRE_UNIT_BYTES;

	return begin->pos != TW_ARB_NO_POS && end->pos != TW_ARB_NO_POS &&
	       begin->publisher == end->publisher && begin->pos < end->pos &&
	       (end->pos - begin->pos) / (2 * dgram_units) <= msgs;
}

void tw_arb_gap(const struct tw_arb *arb, uint32_t gap_id, uint64_t now_ns, struct tw_arb_gap *out)
{
	const struct tw_arb_seg *gap = &arb->segs.pool[gap_id];
	const struct tw_arb_gap_info *info = &arb->segs.gaps[gap_id];

	now_ns = now_ns > arb->now_ns ? now_ns : arb->now_ns;
	*out = (struct tw_arb_gap){ .first_seq = gap->first_seq,
				    .end_seq = gap->end_seq,
				    .seen_ns = gap->seen_ns,
				    .due = is_due(arb, gap, now_ns),
				    .passed = now_ns - gap->seen_ns >= arb->conf.wait_ns &&
					      tw_arb_lines_past(arb, gap) };
	bool head = info->begin.pos == TW_ARB_HEAD_POS;
	struct tw_arb_place begin =
		head ? (struct tw_arb_place){ 0, info->end.publisher } : info->begin;
	if (place_holds(gap, &begin, &info->end)) {
		out->has_place = true;
		out->head = head;
		out->publisher = begin.publisher;
		out->begin_pos = begin.pos;
		out->end_pos = info->end.pos;
	}
}

struct tw_arb_note *tw_arb_gap_note(struct tw_arb *arb, uint32_t gap_id)
{
	return &arb->segs.gaps[gap_id].note;
}

uint32_t tw_arb_gap_walker(const struct tw_arb *arb)
{
	return arb->segs.walker;
}

void tw_arb_gap_walk_to(struct tw_arb *arb, uint32_t gap_id)
{
	arb->segs.walker = gap_id;
}

bool tw_arb_gap_has_room(const struct tw_arb *arb, uint32_t gap_id)
{
	const struct tw_arb_segs *segs = &arb->segs;
	uint64_t seq = arb->next_seq;

	if (arb->slots.used < arb->conf.store_dgrams && tw_arb_segs_have_room(arb, 2)) {
		return true;
	}
	for (uint32_t id = segs->first_gap, i = 0; id != TW_ARB_NO_GAP && i < FRONT_GAPS; i++) {
		if (segs->pool[id].first_seq != seq) {
			return false;
		}
		if (id == gap_id) {
			return true;
		}
		seq = segs->pool[id].end_seq;
		id = segs->gaps[id].after;
	}
	return false;
}

uint64_t tw_arb_gaps_seen(const struct tw_arb *arb)
{
	return arb->gaps_seen;
}

uint64_t tw_arb_shown_seq(const struct tw_arb *arb)
{
	uint64_t shown_seq = UINT64_MAX;

	for (uint32_t i = 0; i < arb->conf.lines; i++) {
		const struct tw_arb_line *line = &arb->lines[i];
		if (line->state != TW_ARB_LINE_DOWN) {
			shown_seq = tw_min_seq(shown_seq, line->end_seq);
		}
	}
	return shown_seq;
}

/* --- filling --------------------------------------------------------------------------------- */

void tw_arb_asked(struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq)
{
	arb->asked_first_seq = first_seq;
	arb->asked_end_seq = end_seq;
}

void tw_arb_expect_repair(struct tw_arb *arb, bool expected)
{
	arb->expects_repair = expected && arb->conf.repair;
}

enum tw_arb_repaired tw_arb_repair(struct tw_arb *arb, const struct tw_dgram *dgram,
				   uint64_t recv_ns, uint64_t now_ns)
{
	const struct tw_wire_hdr *hdr = dgram->hdr;
	uint64_t first_seq;
	uint64_t end_seq;

	TW_ASSERT(!arb->hand.held);
	TW_ASSERT(arb->segs.count == 0 || tw_arb_segs_at(&arb->segs, 0)->kind == TW_ARB_SEG_GAP);
	tw_arb_advance_clock(arb, now_ns);
	tw_arb_slots_recycle(&arb->slots);
	if (tw_arb_judge_origin(arb, hdr) != TW_ARB_FIRST || arb->session == 0 ||
	    hdr->session != arb->session || (hdr->flags & TW_WIRE_HEARTBEAT) != 0 ||
	    dgram->len_bytes > arb->conf.mtu_bytes) {
		return TW_ARB_REPAIR_REFUSED;
	}
	if (!tw_arb_range(arb, dgram, true, &first_seq, &end_seq) ||
	    !tw_arb_any_missing(arb, first_seq, end_seq)) {
		return TW_ARB_REPAIR_NOTHING;
	}
	/* what is next to deliver leaves at once and needs none */
	bool needs_slot = (hdr->flags & TW_WIRE_HOLE) == 0;
	if (first_seq != arb->next_seq &&
	    (!tw_arb_segs_have_room(arb, 2) ||
	     (needs_slot && arb->slots.used >= arb->conf.store_dgrams))) {
		arb->repair_no_room++;
		return TW_ARB_REPAIR_NO_ROOM;
	}
	arb->hand = (struct tw_arb_hand){
		.dgram = *dgram, .recv_ns = recv_ns, .held = true, .repair = true
	};
	return TW_ARB_REPAIRED;
}

uint64_t tw_arb_give_up(struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq, uint64_t now_ns)
{
	const struct tw_arb_seg lost = { .slot = TW_ARB_NO_SLOT, .kind = TW_ARB_SEG_LOST };
	struct tw_arb_cursor none = { 0 }; /* says nothing about places */
	uint64_t lost_msgs = 0;

	TW_ASSERT(!arb->hand.held);
	tw_arb_advance_clock(arb, now_ns);
	first_seq = tw_max_seq(first_seq, arb->next_seq);
	end_seq = tw_min_seq(end_seq, arb->known_end);
	if (!tw_seq_before(first_seq, end_seq)) {
		return 0;
	}
	uint32_t i = tw_arb_segs_find(&arb->segs, first_seq);
	while (i < arb->segs.count) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, i);
		if (!tw_seq_before(seg->first_seq, end_seq)) {
			break;
		}
		uint64_t begin_seq = tw_max_seq(seg->first_seq, first_seq);
		uint64_t stop_seq = tw_min_seq(seg->end_seq, end_seq);
		bool whole = begin_seq == seg->first_seq && stop_seq == seg->end_seq;
		if (seg->kind != TW_ARB_SEG_GAP || (!whole && !tw_arb_segs_have_room(arb, 2))) {
			i++;
			continue;
		}
		i = tw_arb_segs_fill(&arb->segs, &arb->slots, i, &lost, &none, begin_seq, stop_seq);
		lost_msgs += stop_seq - begin_seq;
	}
	return lost_msgs;
}

uint64_t tw_arb_repaired_msgs(const struct tw_arb *arb)
{
	return arb->repaired_msgs;
}

uint64_t tw_arb_repair_no_room(const struct tw_arb *arb)
{
	return arb->repair_no_room;
}

const struct tw_arb_conf *tw_arb_conf(const struct tw_arb *arb)
{
	return &arb->conf;
}
