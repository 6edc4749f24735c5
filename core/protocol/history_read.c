/* Readers of a history log on its own host, and the index by message number: see history_read.h.
 *
 * Ordering  H4 pairs with H3: what lies below the `published` that was loaded is written.
 *           H2 pairs with H1, H5: who has copied a byte of a newer datagram, or of a newer life, sees
 *                the intent, or the life, that covers it.
 *           H7 pairs with H6: who has seen a life's numbers does not see an earlier one's
 *                `published`, which might be the larger.
 *           H8 pairs with H5: who has seen a newer life's `intent`, which might be the smaller, sees
 *                that life's numbers.  So the life is looked at last.
 *           HX1 to HX4: history_read.h.
 * Mutants   see core/base/bus.c. */
#include "protocol/history_read.h"

#include <stdbool.h>
#include <string.h>

#include "base/fail.h"
#include "base/words.h"
#include "wire/datagram.h"

#ifndef TW_MUTANT
#define TW_MUTANT 0
#endif

#define UNIT  TW_WIRE_UNIT_BYTES
#define TRIES 4u /* a read by number that the writer laps begins again further up */
/* Datagrams from a checkpoint to what is looked for: fewer than units of a step and a batch, which is
 * at most 64 datagrams of 64 units. */
#define WALK_MAX (TW_HISTORY_STEP_UNITS + 64u * 64u)

/* --- the index ---------------------------------------------------------------------------------- */

uint64_t tw_history_index_marks(uint64_t units)
{
	uint64_t marks = 4;
	while (marks < units / TW_HISTORY_STEP_UNITS + 2) {
		marks *= 2;
	}
	return marks;
}

void tw_history_index_init(struct tw_history_index *index, struct tw_history_mark *marks,
			   uint64_t mark_count)
{
	TW_ASSERT(mark_count != 0 && (mark_count & (mark_count - 1)) == 0);
	memset(index, 0, sizeof(*index));
	index->marks = marks;
	index->mark_count = mark_count;
}

void tw_history_index_begin(struct tw_history_index *index)
{
	uint64_t count = atomic_load_explicit(&index->count, memory_order_relaxed);
	/* relaxed: announced by the `count` of this life's first checkpoint */
	atomic_store_explicit(&index->first, count, memory_order_relaxed);
	index->due_pos = 0;
}

void tw_history_index_add(struct tw_history_index *index, uint64_t log_pos, uint64_t first_msg_seq)
{
	uint64_t number = atomic_load_explicit(&index->count, memory_order_relaxed);
	struct tw_history_mark *mark = &index->marks[number & (index->mark_count - 1)];
	atomic_store_explicit(&index->begun, number + 1, memory_order_relaxed);
	/* HX1: pairs with HX2 */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&mark->first_msg_seq, first_msg_seq, memory_order_relaxed);
	atomic_store_explicit(&mark->log_pos, log_pos, memory_order_relaxed);
	/* HX3: pairs with HX4 */
	atomic_store_explicit(&index->count, number + 1, memory_order_release);
	index->due_pos = log_pos + TW_HISTORY_STEP_UNITS;
}

struct mark {
	uint64_t first_msg_seq, log_pos;
};

/* false: another checkpoint has taken its place. */
static bool load_mark(const struct tw_history_index *index, uint64_t number, struct mark *out)
{
	const struct tw_history_mark *mark = &index->marks[number & (index->mark_count - 1)];
	out->first_msg_seq = atomic_load_explicit(&mark->first_msg_seq, memory_order_relaxed);
	out->log_pos = atomic_load_explicit(&mark->log_pos, memory_order_relaxed);
	/* HX2: pairs with HX1 */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&index->begun, memory_order_relaxed) <=
	       number + index->mark_count;
}

/* --- by position -------------------------------------------------------------------------------- */

int tw_history_view_make(struct tw_history_view *view, const void *memory, size_t size_bytes,
			 uint32_t max_dgram_bytes)
{
	if ((uintptr_t)memory % UNIT != 0 || size_bytes / UNIT < 2 || max_dgram_bytes == 0 ||
	    max_dgram_bytes % UNIT != 0 || max_dgram_bytes > TW_WIRE_DGRAM_MAX_BYTES) {
		return TW_EARG;
	}
	*view = (struct tw_history_view){ .control = memory,
					  .log = (const uint8_t *)memory +
						 sizeof(struct tw_history_control),
					  .units = size_bytes / UNIT - 1,
					  .max_units = max_dgram_bytes / UNIT };
	return TW_OK;
}

static bool is_life(const struct tw_history_control *control, uint64_t session, uint32_t publisher)
{
	return atomic_load_explicit(&control->session, memory_order_relaxed) == session &&
	       atomic_load_explicit(&control->publisher, memory_order_relaxed) == publisher;
}

static void copy_units(const struct tw_history_view *view, uint64_t begin, uint64_t count,
		       uint8_t *dst)
{
	uint64_t at = begin % view->units;
	uint64_t before_end = view->units - at < count ? view->units - at : count;
	tw_words_move(dst, view->log + at * UNIT, before_end * UNIT);
	tw_words_move(dst + before_end * UNIT, view->log, (count - before_end) * UNIT);
}

int tw_history_read(const struct tw_history_view *view, uint64_t session, uint32_t publisher,
		    uint64_t begin, uint64_t end, void *dst, uint32_t max_bytes)
{
	const struct tw_history_control *control = view->control;
	if (end <= begin || end - begin > max_bytes / UNIT || end - begin > view->units) {
		return TW_EARG;
	}
	if (session == 0 || !is_life(control, session, publisher)) {
		return TW_ENOTFOUND;
	}
	/* H7: pairs with H6 */
	atomic_thread_fence(memory_order_acquire);
	/* H4: pairs with H3 */
	if (end > atomic_load_explicit(&control->published, memory_order_acquire)) {
		return TW_EBUSY;
	}
	copy_units(view, begin, end - begin, dst);
	/* H2: pairs with H1, H5 */
	atomic_thread_fence(memory_order_acquire);
	uint64_t intent = atomic_load_explicit(&control->intent, memory_order_relaxed);
	/* H8: pairs with H5 */
	atomic_thread_fence(memory_order_acquire);
	if (!is_life(control, session, publisher)) {
		return TW_ENOTFOUND;
	}
	if (begin + view->units < intent && TW_MUTANT != 6) {
		return 0;
	}
	return (int)((end - begin) * UNIT);
}

/* --- by message number ------------------------------------------------------------------------- */

struct walk {
	const struct tw_history_view *view;
	uint64_t session;
	uint32_t publisher;
	uint64_t pos; /* where a datagram begins */
};

/* Where the one after a datagram of `units` at the walk's place begins: as tw_history_commit(). */
static void step(struct walk *walk, uint32_t units)
{
	walk->pos += units;
	uint64_t at = walk->pos % walk->view->units;
	if (at + walk->view->max_units > walk->view->units) {
		walk->pos += walk->view->units - at;
	}
}

/* Units of the datagram whose header was copied; 0: it is not what lies there in this life. */
static uint32_t header_units(const struct walk *walk, const struct tw_wire_hdr *hdr)
{
	uint32_t bytes = (uint32_t)hdr->header_bytes + hdr->payload_bytes;
	uint32_t units = (bytes + UNIT - 1) / UNIT;
	if (hdr->magic != TW_WIRE_MAGIC || hdr->log_pos != walk->pos ||
	    hdr->session != walk->session || hdr->publisher != walk->publisher ||
	    hdr->header_bytes < TW_WIRE_HDR_BYTES || units > walk->view->max_units) {
		return 0;
	}
	return units;
}

/* Copies units of the datagram at the walk's place: `count`, or 0 for all of them. */
static int copy_dgram(const struct walk *walk, uint32_t count, void *dst, uint32_t max_bytes)
{
	const struct tw_history_view *view = walk->view;
	if (count == 0) {
		struct tw_wire_hdr hdr;
		int rc = copy_dgram(walk, 1, &hdr, sizeof(hdr));
		if (rc <= 0) {
			return rc;
		}
		count = header_units(walk, &hdr);
		if (count == 0) {
			return 0;
		}
	}
	return tw_history_read(view, walk->session, walk->publisher, walk->pos, walk->pos + count,
			       dst, max_bytes);
}

/* One datagram whole and parsed.  > 0: its bytes; TW_EARG: it does not fit. */
static int take_dgram(const struct walk *walk, uint8_t *dst, uint32_t max_bytes,
		      struct tw_dgram *out)
{
	int rc = copy_dgram(walk, 0, dst, max_bytes);
	if (rc <= 0) {
		return rc;
	}
	if (tw_dgram_parse(out, dst, (size_t)rc) != TW_DGRAM_OK || out->hdr->log_pos != walk->pos) {
		return 0;
	}
	return rc;
}

/* One past the last message of the datagram at the walk's place, from its header where that tells
 * it.  1: known; 0 and < 0 as everywhere. */
static int peek_dgram(const struct walk *walk, uint64_t *end_seq, uint32_t *units)
{
	_Alignas(64) uint8_t bytes[2 * UNIT];
	struct tw_wire_hdr hdr;
	struct tw_wire_hole hole;
	int rc = copy_dgram(walk, 1, bytes, sizeof(bytes));
	if (rc <= 0) {
		return rc;
	}
	memcpy(&hdr, bytes, sizeof(hdr));
	*units = header_units(walk, &hdr);
	if (*units == 0) {
		return 0;
	}
	*end_seq = hdr.first_msg_seq + hdr.msg_count;
	if ((hdr.flags & TW_WIRE_HOLE) == 0) {
		return 1;
	}
	if (hdr.header_bytes != TW_WIRE_HDR_BYTES || *units != 2) {
		return 0;
	}
	rc = copy_dgram(walk, 2, bytes, sizeof(bytes));
	if (rc > 0) {
		memcpy(&hole, bytes + TW_WIRE_HDR_BYTES, sizeof(hole));
		*end_seq = hole.end_msg_seq;
	}
	return rc;
}

/* Moves the walk to the datagram that holds `seq`, or to the first after it.  1: there. */
static int walk_to(struct walk *walk, uint64_t seq)
{
	for (uint32_t left = WALK_MAX; left > 0; left--) {
		uint64_t end_seq;
		uint32_t units;
		int rc = peek_dgram(walk, &end_seq, &units);
		if (rc <= 0) {
			return rc;
		}
		if (end_seq > seq) {
			return 1;
		}
		step(walk, units);
	}
	return 0;
}

static bool mark_holds(const struct tw_history_view *view, const struct tw_history_index *index,
		       uint64_t number, struct mark *out)
{
	/* a look ahead only: what is copied from there is judged by tw_history_read() */
	uint64_t intent = atomic_load_explicit(&view->control->intent, memory_order_relaxed);
	return load_mark(index, number, out) && out->log_pos + view->units >= intent;
}

/* The last checkpoint that holds and is not behind `seq`, else the first that holds. */
static bool search(const struct tw_history_view *view, const struct tw_history_index *index,
		   uint64_t seq, struct mark *out)
{
	/* HX4: pairs with HX3 */
	uint64_t count = atomic_load_explicit(&index->count, memory_order_acquire);
	uint64_t first = atomic_load_explicit(&index->first, memory_order_relaxed);
	uint64_t low = count > index->mark_count ? count - index->mark_count : 0;
	low = low < first ? first : low;
	uint64_t begin = low, end = count;
	struct mark mark;
	/* end becomes the first one that holds and begins behind `seq` */
	while (begin < end) {
		uint64_t middle = begin + (end - begin) / 2;
		if (mark_holds(view, index, middle, &mark) && mark.first_msg_seq > seq) {
			end = middle;
		} else {
			begin = middle + 1;
		}
	}
	if (end > low && mark_holds(view, index, end - 1, out)) {
		return true;
	}
	return end < count && mark_holds(view, index, end, out);
}

/* Copies datagrams from the walk's place on while they hold numbers below end_seq and fit. */
static int copy_run(struct walk *walk, uint64_t end_seq, uint8_t *dst, uint32_t max_bytes)
{
	uint32_t done_bytes = 0;
	for (;;) {
		struct tw_dgram dgram;
		int rc = take_dgram(walk, dst + done_bytes, max_bytes - done_bytes, &dgram);
		if (rc <= 0) {
			return done_bytes > 0 ? (int)done_bytes : rc;
		}
		if (dgram.hdr->first_msg_seq >= end_seq) {
			return (int)done_bytes;
		}
		done_bytes += (uint32_t)rc;
		if (dgram.end_seq >= end_seq || done_bytes == max_bytes) {
			return (int)done_bytes;
		}
		step(walk, (uint32_t)rc / UNIT);
	}
}

int tw_history_read_msgs(const struct tw_history_view *view, const struct tw_history_index *index,
			 uint64_t session, uint64_t begin_seq, uint64_t end_seq, void *dst,
			 uint32_t max_bytes)
{
	const struct tw_history_control *control = view->control;
	if (session == 0 || begin_seq == 0 || end_seq <= begin_seq) {
		return TW_EARG;
	}
	for (unsigned int i = 0; i < TRIES; i++) {
		struct walk walk = {
			.view = view,
			.session = session,
			.publisher =
				atomic_load_explicit(&control->publisher, memory_order_relaxed),
		};
		if (!is_life(control, session, walk.publisher)) {
			return TW_ENOTFOUND;
		}
		struct mark mark;
		if (!search(view, index, begin_seq, &mark)) {
			/* before the first checkpoint of a life there is nothing to be had yet */
			return atomic_load_explicit(&control->published, memory_order_relaxed) == 0
				       ? TW_EBUSY
				       : 0;
		}
		walk.pos = mark.log_pos;
		int rc = walk_to(&walk, begin_seq);
		if (rc > 0) {
			rc = copy_run(&walk, end_seq, dst, max_bytes);
		}
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}
