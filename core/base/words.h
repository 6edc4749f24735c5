/* Memory that others may read while it is being overwritten, moved in relaxed 8-byte atomics.
 *
 * Ordering  none by itself: whoever calls brings the fences and says which.  The atomics make a
 *           torn copy a copy with wrong bytes in it, to be thrown away, and not a data race.
 * Units     both addresses 8-byte aligned, lengths a multiple of 8. */
#ifndef TW_BASE_WORDS_H
#define TW_BASE_WORDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* From our own memory (any alignment) into shared memory. */
static inline void tw_words_put(void *shared, const void *own, size_t len_bytes)
{
	_Atomic uint64_t *to = shared;
	const uint8_t *from = own;
	for (size_t i = 0; i < len_bytes / 8; i++) {
		uint64_t word;
		memcpy(&word, from + i * 8, sizeof(word));
		atomic_store_explicit(&to[i], word, memory_order_relaxed);
	}
}

/* From shared memory; the target may be shared as well. */
static inline void tw_words_move(void *target, const void *shared, size_t len_bytes)
{
	_Atomic uint64_t *to = target;
	const _Atomic uint64_t *from = shared;
	for (size_t i = 0; i < len_bytes / 8; i++) {
		uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
		atomic_store_explicit(&to[i], word, memory_order_relaxed);
	}
}

static inline void tw_words_zero(void *shared, size_t len_bytes)
{
	_Atomic uint64_t *to = shared;
	for (size_t i = 0; i < len_bytes / 8; i++) {
		atomic_store_explicit(&to[i], 0, memory_order_relaxed);
	}
}

#endif
