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

static inline void tw_word_put(_Atomic uint64_t *to, const uint8_t *from)
{
	uint64_t word;

	memcpy(&word, from, sizeof(word));
	atomic_store_explicit(to, word, memory_order_relaxed);
}

/* From our own memory (any alignment) into shared memory. */
static inline void tw_words_put(void *shared, const void *own, size_t len_bytes)
{
	_Atomic uint64_t *to = shared;
	const uint8_t *from = own;
	const uint8_t *end = from + len_bytes / 8 * 8;

	/* by four: compilers leave loops of atomics as they are */
	for (; end - from >= 32; from += 32, to += 4) {
		tw_word_put(&to[0], from);
		tw_word_put(&to[1], from + 8);
		tw_word_put(&to[2], from + 16);
		tw_word_put(&to[3], from + 24);
	}
	for (; from < end; from += 8, to++) {
		tw_word_put(to, from);
	}
}

static inline void tw_word_move(_Atomic uint64_t *to, const _Atomic uint64_t *from)
{
	uint64_t word = atomic_load_explicit(from, memory_order_relaxed);

	atomic_store_explicit(to, word, memory_order_relaxed);
}

/* From shared memory; the target may be shared as well. */
static inline void tw_words_move(void *target, const void *shared, size_t len_bytes)
{
	_Atomic uint64_t *to = target;
	const _Atomic uint64_t *from = shared;
	const _Atomic uint64_t *end = from + len_bytes / 8;

	for (; end - from >= 4; from += 4, to += 4) {
		tw_word_move(&to[0], &from[0]);
		tw_word_move(&to[1], &from[1]);
		tw_word_move(&to[2], &from[2]);
		tw_word_move(&to[3], &from[3]);
	}
	for (; from < end; from++, to++) {
		tw_word_move(to, from);
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
