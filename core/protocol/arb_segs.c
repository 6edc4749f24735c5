/* The segments and slots of an arbiter: see arb_segs.h. */
#include "protocol/arb_segs.h"

#include "base/fail.h"
#include "wire/datagram.h"

static const struct tw_arb_place nowhere = { .pos = TW_ARB_NO_POS };

void tw_arb_segs_init(struct tw_arb_segs *segs, uint32_t size)
{
	segs->mask = size - 1;
	segs->head = 0;
	segs->count = 0;
	segs->free_count = size;
	segs->first_gap = TW_ARB_NO_GAP;
	segs->last_gap = TW_ARB_NO_GAP;
	segs->gap_count = 0;
	segs->walker = TW_ARB_NO_GAP;
	for (uint32_t i = 0; i < size; i++) {
		segs->free_ids[i] = i;
	}
}

/* A new segment at `index`, a copy of *like.  Pointers to others stay valid. */
static struct tw_arb_seg *insert(struct tw_arb_segs *segs, uint32_t index,
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

/* Links gap `id` before gap `after`, or as the last one. */
static void link_gap(struct tw_arb_segs *segs, uint32_t id, uint32_t after)
{
	struct tw_arb_gap_info *gaps = segs->gaps;
	uint32_t before = after == TW_ARB_NO_GAP ? segs->last_gap : gaps[after].before;

	gaps[id].before = before;
	gaps[id].after = after;
	*(before == TW_ARB_NO_GAP ? &segs->first_gap : &gaps[before].after) = id;
	*(after == TW_ARB_NO_GAP ? &segs->last_gap : &gaps[after].before) = id;
	if (segs->walker == after) {
		segs->walker = id;
	}
	segs->gap_count++;
}

static void unlink_gap(struct tw_arb_segs *segs, uint32_t id)
{
	struct tw_arb_gap_info *gaps = segs->gaps;
	uint32_t before = gaps[id].before;
	uint32_t after = gaps[id].after;

	*(before == TW_ARB_NO_GAP ? &segs->first_gap : &gaps[before].after) = after;
	*(after == TW_ARB_NO_GAP ? &segs->last_gap : &gaps[after].before) = before;
	if (segs->walker == id) {
		segs->walker = after;
	}
	segs->gap_count--;
}

void tw_arb_segs_reveal(struct tw_arb_segs *segs, const struct tw_arb_seg *gap,
			const struct tw_arb_place *begin, const struct tw_arb_place *end)
{
	uint32_t id = tw_arb_segs_id(segs, insert(segs, segs->count, gap));

	segs->gaps[id] = (struct tw_arb_gap_info){ .begin = *begin, .end = *end };
	link_gap(segs, id, TW_ARB_NO_GAP);
}

void tw_arb_segs_extend(struct tw_arb_segs *segs, uint64_t end_seq, const struct tw_arb_place *end)
{
	struct tw_arb_seg *seg = tw_arb_segs_at(segs, segs->count - 1);

	TW_ASSERT(seg->kind == TW_ARB_SEG_GAP);
	seg->end_seq = end_seq;
	segs->gaps[tw_arb_segs_id(segs, seg)].end = *end;
}

void tw_arb_segs_pop(struct tw_arb_segs *segs)
{
	const struct tw_arb_seg *seg = tw_arb_segs_at(segs, 0);

	if (seg->kind == TW_ARB_SEG_GAP) {
		unlink_gap(segs, tw_arb_segs_id(segs, seg));
	}
	segs->free_ids[segs->free_count++] = segs->ring[segs->head & segs->mask];
	segs->head++;
	segs->count--;
}

/* A segment that is not a gap leaves.  Pointers to others stay valid. */
static void take_out(struct tw_arb_segs *segs, uint32_t index)
{
	uint32_t *ring = segs->ring;
	uint32_t mask = segs->mask;

	segs->free_ids[segs->free_count++] = ring[(segs->head + index) & mask];
	if (index < segs->count / 2) {
		for (uint32_t i = index; i > 0; i--) {
			ring[(segs->head + i) & mask] = ring[(segs->head + i - 1) & mask];
		}
		segs->head++;
	} else {
		for (uint32_t i = index; i + 1 < segs->count; i++) {
			ring[(segs->head + i) & mask] = ring[(segs->head + i + 1) & mask];
		}
	}
	segs->count--;
}

void tw_arb_segs_merge(struct tw_arb_segs *segs, uint32_t index)
{
	struct tw_arb_seg *seg = tw_arb_segs_at(segs, index);

	if (index + 1 < segs->count) {
		const struct tw_arb_seg *after = tw_arb_segs_at(segs, index + 1);
		if (after->kind == TW_ARB_SEG_DONE) {
			seg->end_seq = after->end_seq;
			take_out(segs, index + 1);
		}
	}
	if (index > 0) {
		const struct tw_arb_seg *before = tw_arb_segs_at(segs, index - 1);
		if (before->kind == TW_ARB_SEG_DONE) {
			seg->first_seq = before->first_seq;
			take_out(segs, index - 1);
		}
	}
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
	seg->repaired = like->repaired;
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
	uint32_t id = tw_arb_segs_id(segs, gap);

	if (tw_seq_before(gap->first_seq, first_seq)) {
		struct tw_arb_seg *left = insert(segs, index, gap);
		uint32_t left_id = tw_arb_segs_id(segs, left);
		segs->gaps[left_id] = segs->gaps[id];
		/* only a datagram that is taken from its begin on tells where the one before ends */
		segs->gaps[left_id].end =
			first_seq == cursor->first_seq ? cursor->begin_place : nowhere;
		link_gap(segs, left_id, id);
		left->end_seq = first_seq;
		gap->first_seq = first_seq;
		index++;
	}
	if (tw_seq_before(end_seq, gap->end_seq)) {
		struct tw_arb_seg *part = insert(segs, index, gap);
		segs->gaps[id].begin = end_seq == cursor->end_seq ? cursor->end_place : nowhere;
		gap->first_seq = end_seq;
		fill_seg(slots, part, like, cursor, first_seq, end_seq);
	} else {
		unlink_gap(segs, id);
		fill_seg(slots, gap, like, cursor, first_seq, end_seq);
	}
	return index + 1;
}

void tw_arb_segs_append(struct tw_arb_segs *segs, struct tw_arb_slots *slots,
			const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
			uint64_t first_seq, uint64_t end_seq)
{
	fill_seg(slots, insert(segs, segs->count, like), like, cursor, first_seq, end_seq);
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
