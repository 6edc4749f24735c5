/* The segments and slots of an arbiter: see arb_segs.h. */
#include "protocol/arb_segs.h"

#include "base/fail.h"
#include "protocol/arb.h"
#include "wire/datagram.h"

void tw_arb_segs_init(struct tw_arb_segs *segs, uint32_t size)
{
	segs->mask = size - 1;
	segs->head = 0;
	segs->count = 0;
	segs->free_count = size;
	for (uint32_t i = 0; i < size; i++) {
		segs->free_ids[i] = i;
	}
}

struct tw_arb_seg *tw_arb_segs_insert(struct tw_arb_segs *segs, uint32_t index,
				      const struct tw_arb_seg *like)
{
	uint32_t *ring = segs->ring;
	uint32_t mask = segs->mask;

	TW_ASSERT(segs->free_count > 0);
	uint32_t id = segs->free_ids[--segs->free_count];
	segs->pool[id] = *like;
	if (index < segs->count / 2) {
		uint32_t head = --segs->head;
		for (uint32_t i = 0; i < index; i++) {
			ring[(head + i) & mask] = ring[(head + i + 1) & mask];
		}
	} else {
		for (uint32_t i = segs->count; i > index; i--) {
			ring[(segs->head + i) & mask] = ring[(segs->head + i - 1) & mask];
		}
	}
	ring[(segs->head + index) & mask] = id;
	segs->count++;
	return &segs->pool[id];
}

void tw_arb_segs_pop(struct tw_arb_segs *segs)
{
	segs->free_ids[segs->free_count++] = segs->ring[segs->head & segs->mask];
	segs->head++;
	segs->count--;
}

uint32_t tw_arb_segs_find(const struct tw_arb_segs *segs, uint64_t seq)
{
	uint32_t low = 0;
	uint32_t high = segs->count - 1;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (tw_seq_before(seq, tw_arb_segs_at(segs, mid)->end_seq)) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	return low;
}

/* Moves the cursor to the message numbered `seq` and returns where it begins. */
static const uint8_t *cursor_to(struct tw_arb_cursor *cursor, uint64_t seq)
{
	if (!tw_seq_before(seq, cursor->end_seq)) {
		cursor->at = cursor->end;
		cursor->seq = cursor->end_seq;
	}
	while (tw_seq_before(cursor->seq, seq)) {
		cursor->at += tw_msg_bytes(cursor->at);
		cursor->seq++;
	}
	return cursor->at;
}

/* Makes *seg the part [first_seq, end_seq) of what `like` and the cursor bring. */
static void fill_seg(struct tw_arb_slots *slots, struct tw_arb_seg *seg,
		     const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
		     uint64_t first_seq, uint64_t end_seq)
{
	seg->first_seq = first_seq;
	seg->end_seq = end_seq;
	seg->kind = like->kind;
	seg->line = like->line;
	seg->slot = like->slot;
	if (like->kind != TW_ARB_SEG_DATA) {
		return;
	}
	seg->msgs = cursor_to(cursor, first_seq);
	seg->bytes = (uint32_t)(cursor_to(cursor, end_seq) - seg->msgs);
	seg->send_ns = like->send_ns;
	seg->recv_ns = like->recv_ns;
	if (seg->slot != TW_ARB_NO_SLOT) {
		slots->refs[seg->slot]++;
	}
}

uint32_t tw_arb_segs_fill(struct tw_arb_segs *segs, struct tw_arb_slots *slots, uint32_t index,
			  const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
			  uint64_t first_seq, uint64_t end_seq)
{
	struct tw_arb_seg *gap = tw_arb_segs_at(segs, index);

	if (tw_seq_before(gap->first_seq, first_seq)) {
		tw_arb_segs_insert(segs, index, gap)->end_seq = first_seq;
		gap->first_seq = first_seq;
		index++;
	}
	if (tw_seq_before(end_seq, gap->end_seq)) {
		struct tw_arb_seg *part = tw_arb_segs_insert(segs, index, gap);
		gap->first_seq = end_seq;
		fill_seg(slots, part, like, cursor, first_seq, end_seq);
	} else {
		fill_seg(slots, gap, like, cursor, first_seq, end_seq);
	}
	return index + 1;
}

void tw_arb_segs_append(struct tw_arb_segs *segs, struct tw_arb_slots *slots,
			const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
			uint64_t first_seq, uint64_t end_seq)
{
	fill_seg(slots, tw_arb_segs_insert(segs, segs->count, like), like, cursor, first_seq,
		 end_seq);
}

void tw_arb_slots_init(struct tw_arb_slots *slots, uint32_t count, uint32_t stride_bytes)
{
	slots->stride_bytes = stride_bytes;
	slots->used = 0;
	slots->free_count = count;
	slots->released_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		slots->refs[i] = 0;
		slots->free_ids[i] = i;
	}
}

uint32_t tw_arb_slots_take(struct tw_arb_slots *slots)
{
	TW_ASSERT(slots->free_count > 0);
	uint32_t slot = slots->free_ids[--slots->free_count];
	/* The last released one moves down, so that free and released ones stay without a hole. */
	slots->free_ids[slots->free_count] =
		slots->free_ids[slots->free_count + slots->released_count];
	slots->used++;
	return slot;
}

void tw_arb_slots_release(struct tw_arb_slots *slots, uint32_t slot)
{
	if (--slots->refs[slot] == 0) {
		slots->free_ids[slots->free_count + slots->released_count++] = slot;
		slots->used--;
	}
}

void tw_arb_slots_recycle(struct tw_arb_slots *slots)
{
	slots->free_count += slots->released_count;
	slots->released_count = 0;
}
