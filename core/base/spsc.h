/* Bounded ring from one thread to one other: elements of one size, copied in and out.
 *
 * Threads   one pushes, one pops; wait-free for both, no kernel.
 * Memory    the caller's: capacity * element bytes, which stay where they are.
 * Indices   free-running, unsigned, masked on access; each side keeps a stale copy of the other's, so
 *           that an index crosses cores only when a side seems to be full or empty.
 * Ordering  SP1 pairs with SP2: an element is written before it is announced.
 *           SP3 pairs with SP4: an element is read before its place is given back. */
#ifndef TW_BASE_SPSC_H
#define TW_BASE_SPSC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/fail.h"
#include "base/slab.h"

struct tw_spsc {
	/* who pushes */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic uint32_t tail;
	uint32_t head_seen;
	/* who pops */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic uint32_t head;
	uint32_t tail_seen;
	/* const after init */
	_Alignas(TW_CACHE_PAIR_BYTES) uint8_t *memory;
	uint32_t capacity, element_bytes;
};

/* `capacity` is a power of two, at most 2^31. */
static inline void tw_spsc_init(struct tw_spsc *ring, void *memory, uint32_t capacity,
				uint32_t element_bytes)
{
	TW_ASSERT(capacity != 0 && (capacity & (capacity - 1)) == 0 && element_bytes != 0);
	*ring = (struct tw_spsc){ .memory = memory,
				  .capacity = capacity,
				  .element_bytes = element_bytes };
}

static inline uint8_t *tw_spsc_place(const struct tw_spsc *ring, uint32_t index)
{
	return ring->memory + (size_t)(index & (ring->capacity - 1)) * ring->element_bytes;
}

/* false: full. */
static inline bool tw_spsc_push(struct tw_spsc *ring, const void *element)
{
	/* relaxed: only this thread writes it */
	uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
	if (tail - ring->head_seen == ring->capacity) {
		/* SP4: pairs with SP3 */
		ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
		if (tail - ring->head_seen == ring->capacity) {
			return false;
		}
	}
	memcpy(tw_spsc_place(ring, tail), element, ring->element_bytes);
	/* SP1: pairs with SP2 */
	atomic_store_explicit(&ring->tail, tail + 1, memory_order_release);
	return true;
}

/* Whether there is nothing to pop; for the popping thread. */
static inline bool tw_spsc_empty(struct tw_spsc *ring)
{
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	if (head == ring->tail_seen) {
		/* SP2: pairs with SP1 */
		ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
	}
	return head == ring->tail_seen;
}

/* false: empty, and *element is as it was. */
static inline bool tw_spsc_pop(struct tw_spsc *ring, void *element)
{
	if (tw_spsc_empty(ring)) {
		return false;
	}
	/* relaxed: only this thread writes it */
	uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
	memcpy(element, tw_spsc_place(ring, head), ring->element_bytes);
	/* SP3: pairs with SP4 */
	atomic_store_explicit(&ring->head, head + 1, memory_order_release);
	return true;
}

#endif
