/* Taking a datagram into an arbiter's list: what is ahead of a gap, fills one, or shows one, and what there is
 * room for.  See arb.c, which gives out in place what is next, and this the rest. */
#include <string.h>

#include "base/fail.h"
#include "protocol/arb_impl.h"

/* Whether what is seen to be missing can become part of the last gap. */
static bool last_is_gap(const struct tw_arb *arb)
{
	return arb->segs.count > 0 &&
	       tw_arb_segs_at(&arb->segs, arb->segs.count - 1)->kind == TW_ARB_SEG_GAP;
}

static void gap_is_seen(struct tw_arb *arb, uint64_t end_seq, const struct tw_arb_place *end)
{
	arb->gaps_seen++;
	arb->gap_first_seq = arb->known_end;
	arb->gap_end_seq = end_seq;
	arb->notice_due = arb->figures_changed = true;
	arb->known_end = end_seq;
	arb->tail = *end;
}

static void extend(struct tw_arb *arb, uint64_t end_seq, const struct tw_arb_place *end)
{
	tw_arb_segs_extend(&arb->segs, end_seq, end);
	gap_is_seen(arb, end_seq, end);
}

/* Makes numbers up to `end_seq` known, before which lies what is behind `end`: what nobody has brought
 * of them is a gap. */
static void reveal(struct tw_arb *arb, uint64_t end_seq, const struct tw_arb_place *end)
{
	if (!tw_seq_before(arb->known_end, end_seq)) {
		return;
	}
	if (!tw_arb_segs_have_room(arb, 1) && last_is_gap(arb)) {
		extend(arb, end_seq, end);
		return;
	}
	struct tw_arb_seg gap = { .first_seq = arb->known_end,
				  .end_seq = end_seq,
				  .seen_ns = arb->now_ns,
				  .slot = TW_ARB_NO_SLOT,
				  .kind = TW_ARB_SEG_GAP,
				  .in_gap = true };
	tw_arb_segs_reveal(&arb->segs, &gap, &arb->tail, end);
	gap_is_seen(arb, end_seq, end);
}

/* Puts what is new of [first_seq, end_seq) into the list. */
static void place(struct tw_arb *arb, const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
		  uint64_t first_seq, uint64_t end_seq)
{
	reveal(arb, first_seq, &cursor->begin_place);
	uint32_t i = tw_seq_before(first_seq, arb->known_end)
			     ? tw_arb_segs_find(&arb->segs, first_seq)
			     : arb->segs.count;
	while (i < arb->segs.count && tw_seq_before(first_seq, end_seq)) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, i);
		uint64_t stop_seq = tw_min_seq(seg->end_seq, end_seq);
		i = seg->kind != TW_ARB_SEG_GAP ? i + 1
						: tw_arb_segs_fill(&arb->segs, &arb->slots, i, like,
								   cursor, first_seq, stop_seq);
		first_seq = stop_seq;
	}
	if (tw_seq_before(first_seq, end_seq)) {
		tw_arb_segs_append(&arb->segs, &arb->slots, like, cursor, first_seq, end_seq);
		arb->known_end = end_seq;
		arb->tail = cursor->end_place;
	}
}

static void take_in_heartbeat(struct tw_arb *arb, const struct tw_wire_hdr *hdr,
			      const struct tw_arb_place *place)
{
	uint64_t end_seq = hdr->first_msg_seq;

	if (arb->final_seq == 0) {
		reveal(arb, end_seq, place);
		if (end_seq == arb->known_end) {
			arb->tail = *place; /* a new publisher says where it goes on */
		}
		if ((hdr->flags & TW_WIRE_END) != 0 && end_seq == arb->known_end) {
			arb->final_seq = end_seq;
		}
	}
}

void tw_arb_take_in(struct tw_arb *arb)
{
	const struct tw_arb_hand *hand = &arb->hand;
	const struct tw_dgram *dgram = &hand->dgram;
	const struct tw_wire_hdr *hdr = dgram->hdr;
	struct tw_arb_cursor cursor = { .at = dgram->msgs,
					.end = dgram->msgs + dgram->msgs_bytes,
					.seq = hdr->first_msg_seq,
					.end_seq = dgram->end_seq,
					.first_seq = hdr->first_msg_seq,
					.begin_place = tw_arb_begin_place(hdr),
					.end_place = tw_arb_end_place(hdr) };
	struct tw_arb_seg like = { .slot = TW_ARB_NO_SLOT,
				   .kind = TW_ARB_SEG_DATA,
				   .line = (uint8_t)hand->line,
				   .repaired = hand->repair,
				   .send_ns = hdr->send_ns,
				   .recv_ns = hand->recv_ns };
	uint64_t first_seq;
	uint64_t end_seq;

	if (!hand->repair) {
		struct tw_arb_line *line = &arb->lines[hand->line];
		line->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);
	}
	if ((hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		take_in_heartbeat(arb, hdr, &cursor.begin_place);
		return;
	}
	if (!tw_arb_range(arb, dgram, hand->repair, &first_seq, &end_seq)) {
		return;
	}
	if ((hdr->flags & TW_WIRE_HOLE) != 0) {
		like.kind = TW_ARB_SEG_LOST;
	} else if (arb->conf.latest) {
		reveal(arb, first_seq, &cursor.begin_place);
		arb->giving = (struct tw_arb_giving){ like, cursor, first_seq, end_seq };
		arb->hand.giving = true; /* the gap that this may have shown is said first */
		arb->hand.held = true;
		return;
	} else if (tw_seq_before(arb->next_seq, first_seq)) {
		/* Behind a gap: next_seq itself is missing, so nothing of it leaves now. */
		TW_ASSERT(dgram->msgs_bytes <= arb->slots.stride_bytes);
		like.slot = tw_arb_slots_take(&arb->slots);
		arb->figures_changed = true;
		uint8_t *copy = tw_arb_slots_at(&arb->slots, like.slot);
		memcpy(copy, dgram->msgs, dgram->msgs_bytes);
		cursor.at = copy;
		cursor.end = copy + dgram->msgs_bytes;
	}
	place(arb, &like, &cursor, first_seq, end_seq);
}

/* --- room ------------------------------------------------------------------------------------ */

bool tw_arb_has_room(const struct tw_arb *arb, const struct tw_wire_hdr *hdr)
{
	if (!tw_seq_before(arb->next_seq, hdr->first_msg_seq)) {
		return true;
	}
	bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;
	if (heartbeat && (!tw_seq_before(arb->known_end, hdr->first_msg_seq) ||
			  (arb->expects_repair && last_is_gap(arb)))) {
		return true;
	}
	bool data = !heartbeat && (hdr->flags & TW_WIRE_HOLE) == 0;
	if (data && arb->conf.latest && hdr->first_msg_seq == arb->known_end &&
	    tw_arb_segs_at(&arb->segs, arb->segs.count - 1)->kind == TW_ARB_SEG_DONE) {
		return true; /* it goes on where the last one ended, which takes nothing */
	}
	return tw_arb_segs_have_room(arb, heartbeat ? 1 : 2) &&
	       (!data || arb->slots.used < arb->conf.store_dgrams);
}

bool tw_arb_set_aside_dgram(struct tw_arb *arb, uint32_t line_idx, const struct tw_dgram *dgram)
{
	struct tw_arb_line *line = &arb->lines[line_idx];
	uint64_t end_seq = dgram->end_seq;

	if (arb->final_seq != 0) {
		end_seq = tw_min_seq(end_seq, arb->final_seq);
	}
	if (tw_seq_before(arb->known_end, end_seq)) {
		const struct tw_arb_seg *last = tw_arb_segs_at(&arb->segs, arb->segs.count - 1);
		bool goes_on = last_is_gap(arb) && arb->now_ns - last->seen_ns < arb->conf.wait_ns;
		struct tw_arb_place end = tw_arb_end_place(dgram->hdr);
		if (goes_on) {
			extend(arb, end_seq, &end);
		} else if (tw_arb_segs_have_room(arb, 1) || last_is_gap(arb)) {
			reveal(arb, end_seq, &end);
		} else {
			return false;
		}
	}
	line->end_seq = tw_max_seq(line->end_seq, dgram->end_seq);
	arb->set_aside++;
	arb->figures_changed = true;
	return true;
}
