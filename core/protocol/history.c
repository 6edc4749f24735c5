/* The writer of a history log.  What it is for: history.h.
 *
 * Ordering  H1 pairs with H2 (whoever reads: an acquire fence between copy and control line):
 *                who has copied a byte of a new datagram sees the `intent` that covers it.
 *           H3 pairs with H4: what lies below `published` was written and posted before.
 *           H5 pairs with H2, H8: who has copied a byte of a new life, or seen its `intent`, sees the
 *                life's numbers.
 *           H6 pairs with H7: who has seen a life's numbers does not see the `published` of the one
 *                before, which would promise what is not written yet.
 *           A reader by RDMA has no fences: it READs the control line when the bytes are complete,
 *           and this host's stores become visible to it in the order of H1, H3.
 * Mutants   see core/base/bus.c. */
#include "protocol/history.h"

#include <string.h>

#include "base/fail.h"

#ifndef TW_MUTANT
#define TW_MUTANT 0
#endif

#define MIN_DGRAMS 4u

int tw_history_init(struct tw_history *history, void *memory, size_t size_bytes,
		    uint32_t max_dgram_bytes, uint64_t session, uint32_t publisher)
{
	*history = (struct tw_history){ 0 };
	uint64_t max_units = max_dgram_bytes / TW_WIRE_UNIT_BYTES;
	if ((uintptr_t)memory % TW_WIRE_UNIT_BYTES != 0 || max_units == 0 ||
	    max_dgram_bytes % TW_WIRE_UNIT_BYTES != 0 ||
	    size_bytes / TW_WIRE_UNIT_BYTES < 1 + MIN_DGRAMS * max_units) {
		return TW_EARG;
	}
	history->control = memory;
	history->log = (uint8_t *)memory + sizeof(struct tw_history_control);
	history->units = size_bytes / TW_WIRE_UNIT_BYTES - 1;
	history->max_units = (uint32_t)max_units;

	/* The life's numbers first, before any byte of the log changes: until then whoever reads an
	 * earlier life still reads bytes that hold. */
	struct tw_history_control *control = history->control;
	atomic_store_explicit(&control->published, 0, memory_order_relaxed);
	/* H6: pairs with H7 */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&control->publisher, publisher, memory_order_relaxed);
	atomic_store_explicit(&control->session, session, memory_order_relaxed);
	/* H5: pairs with H2, H8 */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&control->intent, 0, memory_order_relaxed);
	atomic_store_explicit(&control->units, history->units, memory_order_relaxed);
	atomic_store_explicit(&control->magic, TW_HISTORY_MAGIC, memory_order_relaxed);
	return TW_OK;
}

static void announce(struct tw_history *history, uint64_t intent)
{
	history->intent = intent;
	atomic_store_explicit(&history->control->intent, intent, memory_order_relaxed);
	/* H1: pairs with H2 */
	atomic_thread_fence(memory_order_release);
}

uint8_t *tw_history_claim(struct tw_history *history)
{
	uint64_t end = history->head + history->max_units;
	if (end > history->completed + history->units) {
		return NULL;
	}
	if (history->intent < end && TW_MUTANT != 4) {
		announce(history, end);
	}
	return history->log + history->head_idx * TW_WIRE_UNIT_BYTES;
}

uint64_t tw_history_claim_pos(const struct tw_history *history)
{
	return history->head;
}

void tw_history_commit(struct tw_history *history, uint32_t units)
{
	TW_ASSERT(units > 0 && units <= history->max_units &&
		  (history->intent >= history->head + units || TW_MUTANT == 4));
	if (TW_MUTANT == 4) { /* announced after it was written */
		announce(history, history->head + history->max_units);
	}
	history->head += units;
	history->head_idx += units;
	/* the next one may be as large as any: it begins the log anew where that would not fit */
	if (history->head_idx + history->max_units > history->units) {
		history->head += history->units - history->head_idx;
		history->head_idx = 0;
	}
}

void tw_history_publish(struct tw_history *history)
{
	/* H3: pairs with H4 */
	atomic_store_explicit(&history->control->published, history->head, memory_order_release);
}

void tw_history_complete(struct tw_history *history, uint64_t pos)
{
	TW_ASSERT(pos >= history->completed && pos <= history->head);
	history->completed = pos;
}
