/* An arbiter in `latest` mode: what is new is given out at once, in the caller's own datagram.
 *
 * Giving    the part of the datagram that fills one gap, or lies beyond all that is known, is a run; a
 *           datagram may have several.  Until the last of them is pulled the datagram stays in hand:
 *           no gap is given up meanwhile, the rest of the datagram may fill it.
 * DONE      what was given out ahead of a gap stays in the list as a segment without bytes, so that it
 *           is a duplicate when it comes again.  See arb_segs.h for why there are few of them.
 * Lost      holes, and what is given up, wait in the list for their turn as they do in order. */
#include "protocol/arb_impl.h"

void tw_arb_pop_done(struct tw_arb *arb)
{
	if (arb->segs.count > 0) {
		const struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, 0);
		if (seg->kind == TW_ARB_SEG_DONE) {
			arb->next_seq = seg->end_seq;
			tw_arb_segs_pop(&arb->segs);
		}
	}
}

/* Gives out the DATA segment at `index`. */
static void give_out(struct tw_arb *arb, uint32_t index, struct tw_arb_run *run)
{
	struct tw_arb_seg *seg = tw_arb_segs_at(&arb->segs, index);

	tw_arb_data_run(arb, seg, run);
	seg->kind = TW_ARB_SEG_DONE;
	tw_arb_segs_merge(&arb->segs, index);
	tw_arb_pop_done(arb);
}

bool tw_arb_give_next(struct tw_arb *arb, struct tw_arb_run *run)
{
	struct tw_arb_giving *in = &arb->giving;
	struct tw_arb_segs *segs = &arb->segs;

	while (tw_seq_before(in->first_seq, in->end_seq)) {
		uint64_t first_seq = in->first_seq;
		if (!tw_seq_before(first_seq, arb->known_end)) {
			in->first_seq = in->end_seq;
			tw_arb_segs_append(segs, &arb->slots, &in->like, &in->cursor, first_seq,
					   in->end_seq);
			arb->known_end = in->end_seq;
			arb->tail = in->cursor.end_place;
			give_out(arb, segs->count - 1, run);
			return true;
		}
		if (tw_seq_before(first_seq, arb->next_seq)) {
			in->first_seq = arb->next_seq; /* it was given out and has left the list */
			continue;
		}
		uint32_t index = tw_arb_segs_find(segs, first_seq);
		const struct tw_arb_seg *seg = tw_arb_segs_at(segs, index);
		in->first_seq = tw_min_seq(seg->end_seq, in->end_seq);
		if (seg->kind == TW_ARB_SEG_GAP) {
			index = tw_arb_segs_fill(segs, &arb->slots, index, &in->like, &in->cursor,
						 first_seq, in->first_seq);
			give_out(arb, index - 1, run);
			return true;
		}
	}
	return false;
}
