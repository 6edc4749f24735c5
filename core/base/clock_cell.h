/* How the clock's curve gets from the thread that refits to those that stamp.
 *
 * A sequence lock over two copies: generation g lies in copy g % 2, and while g + 1 is written
 * readers go on with g, so that nobody ever waits for a writer that has lost its CPU.
 * Threads   one writer at a time; any number of readers, who go round again only when two
 *           generations have passed them.
 * Ordering  CK1 pairs with CK2: who sees a generation sees its copy.
 *           CK3 pairs with CK4: who has read any word of generation g + 2 out of the copy of g then
 *           sees that g + 1 has been published, and reads again. */
#ifndef TW_BASE_CLOCK_CELL_H
#define TW_BASE_CLOCK_CELL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/clock_fit.h"

#define TW_CLOCK_CURVE_WORDS (sizeof(struct tw_clock_curve) / sizeof(uint64_t))

struct tw_clock_cell {
	alignas(64) _Atomic uint64_t generation; /* 0: nothing published yet */
	struct {
		alignas(64) _Atomic uint64_t words[TW_CLOCK_CURVE_WORDS];
	} copies[2];
};

static inline void tw_clock_cell_publish(struct tw_clock_cell *cell,
					 const struct tw_clock_curve *curve)
{
	uint64_t words[TW_CLOCK_CURVE_WORDS] = { 0 };
	memcpy(words, curve, sizeof(words));
	/* only the writer changes it */
	uint64_t next = atomic_load_explicit(&cell->generation, memory_order_relaxed) + 1;
	_Atomic uint64_t *copy = cell->copies[next % 2].words;
	/* CK3: pairs with CK4 */
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < TW_CLOCK_CURVE_WORDS; i++) {
		atomic_store_explicit(&copy[i], words[i], memory_order_relaxed);
	}
	/* CK1: pairs with CK2 */
	atomic_store_explicit(&cell->generation, next, memory_order_release);
}

/* Copies the curve out and returns its generation; 0 (and no curve) where there is none.  It may
 * be torn until tw_clock_cell_holds() has said that it is not. */
static inline uint64_t tw_clock_cell_read(const struct tw_clock_cell *cell,
					  struct tw_clock_curve *curve)
{
	/* CK2: pairs with CK1 */
	uint64_t generation = atomic_load_explicit(&cell->generation, memory_order_acquire);
	if (generation == 0) {
		return 0;
	}
	const _Atomic uint64_t *copy = cell->copies[generation % 2].words;
	uint64_t words[TW_CLOCK_CURVE_WORDS] = { 0 };
	for (size_t i = 0; i < TW_CLOCK_CURVE_WORDS; i++) {
		words[i] = atomic_load_explicit(&copy[i], memory_order_relaxed);
	}
	memcpy(curve, words, sizeof(words));
	return generation;
}

/* Whether the curve read is whole, and still the one in force. */
static inline bool tw_clock_cell_holds(const struct tw_clock_cell *cell, uint64_t generation)
{
	/* CK4: pairs with CK3 */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&cell->generation, memory_order_relaxed) == generation;
}

#endif
