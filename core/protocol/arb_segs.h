/* What an arbiter holds back: an ordered list of segments and the slots that keep their bytes.  Part of
 * line arbitration (arb.h); the memory is the arbiter's.
 *
 * Segments  tile the numbers from the next to deliver to the highest known to exist without overlap.
 *           No DONE segment is the first one or lies beside another, so there are no more of them
 *           than others.
 * Cost      the list is a ring of indices into a pool: an append or a removal at the front moves
 *           nothing, an insertion four bytes for each segment on its shorter side; finding a number is
 *           a binary search.
 * Gaps      are linked in order besides, with what is known of where they lie in the publisher's
 *           history and the repair ladder's notes, in memory that nothing else touches.
 * Slots     a released slot becomes free only with tw_arb_slots_recycle(), because the caller may
 *           still be reading it.  Segments of one datagram share its slot.
 * Threads   one. */
#ifndef TW_PROTOCOL_ARB_SEGS_H
#define TW_PROTOCOL_ARB_SEGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/arb.h"

#define TW_ARB_NO_SLOT UINT32_MAX
#define TW_ARB_NO_POS  UINT64_MAX
/* Where a session's message 1 lies: the begin of its first publisher's log.  Nobody has said who that is. */
#define TW_ARB_HEAD_POS (UINT64_MAX - 1)

enum tw_arb_seg_kind {
	TW_ARB_SEG_GAP, /* nobody has brought it */
	TW_ARB_SEG_DATA,
	TW_ARB_SEG_LOST, /* a HOLE has decided it */
	TW_ARB_SEG_DONE  /* it was given out ahead of a gap: `latest` alone */
};

struct tw_arb_seg {
	uint64_t first_seq, end_seq;
	uint64_t seen_ns;    /* in_gap: when the gap that it is, or came from, was seen */
	const uint8_t *msgs; /* DATA */
	uint64_t send_ns, recv_ns;
	uint32_t bytes;
	uint32_t slot; /* TW_ARB_NO_SLOT: the bytes lie in the caller's datagram */
	enum tw_arb_seg_kind kind;
	uint8_t line;
	bool in_gap;
	bool repaired; /* DATA: from history */
};

/* A place between two datagrams in the history of one publisher. */
struct tw_arb_place {
	uint64_t pos; /* log units, TW_ARB_NO_POS: not known, or TW_ARB_HEAD_POS */
	uint32_t publisher;
};

/* More of the GAP segment with the same id. */
struct tw_arb_gap_info {
	struct tw_arb_place begin, end; /* what lies before it ends there, what lies after begins */
	struct tw_arb_note note;
	uint32_t before, after; /* ids of the neighbouring gaps */
};

struct tw_arb_segs {
	struct tw_arb_seg *pool;
	struct tw_arb_gap_info *gaps;
	uint32_t *ring, *free_ids;
	uint32_t mask, head, count, free_count;
	uint32_t first_gap, last_gap, gap_count;
	uint32_t walker; /* a gap, or TW_ARB_NO_GAP: see tw_arb_gap_walker() */
};

struct tw_arb_slots {
	uint8_t *bytes;
	uint32_t *refs, *free_ids; /* the free ones, then the released ones */
	uint32_t stride_bytes, used, free_count, released_count;
};

/* A walk over a datagram's messages in step with their numbers; and where the datagram lies. */
struct tw_arb_cursor {
	const uint8_t *at, *end;
	uint64_t seq, end_seq;
	uint64_t first_seq; /* of the datagram, as end_seq is; 0: there is none */
	struct tw_arb_place begin_place, end_place;
};

/* `size` is a power of two; pool, gaps, ring and free_ids have so many entries. */
void tw_arb_segs_init(struct tw_arb_segs *segs, uint32_t size);

static inline struct tw_arb_seg *tw_arb_segs_at(const struct tw_arb_segs *segs, uint32_t index)
{
	return &segs->pool[segs->ring[(segs->head + index) & segs->mask]];
}

static inline uint32_t tw_arb_segs_id(const struct tw_arb_segs *segs, const struct tw_arb_seg *seg)
{
	return (uint32_t)(seg - segs->pool);
}

/* A new gap behind all others. */
void tw_arb_segs_reveal(struct tw_arb_segs *segs, const struct tw_arb_seg *gap,
			const struct tw_arb_place *begin, const struct tw_arb_place *end);
/* Makes the last segment, which is a gap, longer. */
void tw_arb_segs_extend(struct tw_arb_segs *segs, uint64_t end_seq, const struct tw_arb_place *end);
/* The first segment leaves. */
void tw_arb_segs_pop(struct tw_arb_segs *segs);
/* The DONE segment at `index` takes in those beside it. */
void tw_arb_segs_merge(struct tw_arb_segs *segs, uint32_t index);
/* Index of the segment with `seq`, which must be in the list. */
uint32_t tw_arb_segs_find(const struct tw_arb_segs *segs, uint64_t seq);

/* Turns the part [first_seq, end_seq) of the gap at `index` into what `like` and, for DATA, the cursor
 * bring; what is left of the gap stays on either side.  Adds at most two segments; returns the index
 * after that part.  The cursor moves to end_seq. */
uint32_t tw_arb_segs_fill(struct tw_arb_segs *segs, struct tw_arb_slots *slots, uint32_t index,
			  const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
			  uint64_t first_seq, uint64_t end_seq);
/* The same as a new last segment. */
void tw_arb_segs_append(struct tw_arb_segs *segs, struct tw_arb_slots *slots,
			const struct tw_arb_seg *like, struct tw_arb_cursor *cursor,
			uint64_t first_seq, uint64_t end_seq);

/* refs and free_ids have `count` entries, bytes count x stride_bytes. */
void tw_arb_slots_init(struct tw_arb_slots *slots, uint32_t count, uint32_t stride_bytes);
static inline uint8_t *tw_arb_slots_at(const struct tw_arb_slots *slots, uint32_t slot)
{
	return slots->bytes + (size_t)slot * slots->stride_bytes;
}
uint32_t tw_arb_slots_take(struct tw_arb_slots *slots);               /* without references yet */
void tw_arb_slots_release(struct tw_arb_slots *slots, uint32_t slot); /* one reference */
static inline void tw_arb_slots_recycle(struct tw_arb_slots *slots)
{
	slots->free_count += slots->released_count;
	slots->released_count = 0;
}

#endif
