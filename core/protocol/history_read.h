/* Reading a history log on its own host, by log position or by message number, while it is written.
 *
 * Whole      what is returned was whole when it was copied: the intent rule of history.h, with the
 *            life looked at before and after.  Nothing here ever stops or disturbs the writer.
 * Index      message number -> log position: the writer leaves a checkpoint every so many units in
 *            a ring of its own, in plain memory beside the registered one; a reader searches it and
 *            walks headers from there.  A server that reads by position alone needs none.
 * Lives      the memory of a view is used for one life after another; a read names its session, and
 *            by position its publisher, and gets nothing of any other.
 * Ordering   HX1 pairs with HX2: whoever has read a word of a new checkpoint sees the `begun` that
 *            covers it; HX3 pairs with HX4: below `count` checkpoints are written, and `first` is of
 *            the life that they are of.  The log's: H2, H4, H7, H8 (history.c has the other sides).
 * Threads    one writer, any readers. */
#ifndef TW_PROTOCOL_HISTORY_READ_H
#define TW_PROTOCOL_HISTORY_READ_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slab.h"
#include "protocol/history.h"
#include "tidewire/error.h"

#define TW_HISTORY_STEP_UNITS 256u /* between checkpoints, at least: 16 KiB */

struct tw_history_mark { /* one checkpoint */
	_Atomic uint64_t first_msg_seq;
	_Atomic uint64_t log_pos; /* of the datagram that begins with it */
};

struct tw_history_index {
	/* written by the writer alone, once for each checkpoint */
	_Alignas(TW_CACHE_PAIR_BYTES) uint64_t due_pos; /* its own: where the next one is due */
	/* read by all; numbers of checkpoints, free-running over lives */
	_Atomic uint64_t begun; /* announced before it is written */
	_Atomic uint64_t count; /* written */
	_Atomic uint64_t first; /* first one of this life */
	/* const after init */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_history_mark *marks;
	uint64_t mark_count; /* a power of two */
};

/* Checkpoints that an index over a log of so many units needs; the caller gives memory for them. */
uint64_t tw_history_index_marks(uint64_t units);
void tw_history_index_init(struct tw_history_index *index, struct tw_history_mark *marks,
			   uint64_t mark_count);

/* Writer: a life has begun (after tw_history_init(), before its first datagram). */
void tw_history_index_begin(struct tw_history_index *index);
void tw_history_index_add(struct tw_history_index *index, uint64_t log_pos, uint64_t first_msg_seq);
/* Writer, once for each datagram or for the first of each batch, in order. */
static inline void tw_history_index_note(struct tw_history_index *index, uint64_t log_pos,
					 uint64_t first_msg_seq)
{
	if (__builtin_expect(log_pos >= index->due_pos, 0)) {
		tw_history_index_add(index, log_pos, first_msg_seq);
	}
}

struct tw_history_view { /* const after making: valid for every life of that memory */
	const struct tw_history_control *control;
	const uint8_t *log;
	uint64_t units;
	uint32_t max_units;
};
/* As tw_history_init() lays it out, which may come later: until then there is no life to read. */
int tw_history_view_make(struct tw_history_view *view, const void *memory, size_t size_bytes,
			 uint32_t max_dgram_bytes) TW_MUST_USE;

/* Copies log positions [begin, end), all of them or nothing, as they lie there: where the range goes
 * over the end of the log the units that were skipped are in it, with whatever they hold.  `dst` is
 * 8-byte aligned.
 * Returns bytes; 0: overwritten; TW_EBUSY: not published yet; TW_ENOTFOUND: not the life that the log
 * holds; TW_EARG: an empty range, or one that is larger than `max_bytes` or the log. */
int tw_history_read(const struct tw_history_view *view, uint64_t session, uint32_t publisher,
		    uint64_t begin, uint64_t end, void *dst, uint32_t max_bytes) TW_MUST_USE;

/* Copies the datagrams that hold message numbers [begin_seq, end_seq) or some of them, one after the
 * other, from the first that is still there, as many as fit whole; skipped units are left out.
 * Returns bytes; 0: overwritten, or before this life began; TW_EBUSY, TW_ENOTFOUND, TW_EARG as above,
 * TW_EARG also where not even the first one fits. */
int tw_history_read_msgs(const struct tw_history_view *view, const struct tw_history_index *index,
			 uint64_t session, uint64_t begin_seq, uint64_t end_seq, void *dst,
			 uint32_t max_bytes) TW_MUST_USE;

#endif
