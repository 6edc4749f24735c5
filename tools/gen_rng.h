/* Random numbers that are the same on every machine: splitmix64 and integer arithmetic. */
#ifndef TW_TOOLS_GEN_RNG_H
#define TW_TOOLS_GEN_RNG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/splitmix.h"

struct gen_rng {
	uint64_t state;
};

static inline uint64_t gen_rng_next(struct gen_rng *rng)
{
	return tw_splitmix_next(&rng->state);
}

/* 0 .. n - 1 */
static inline uint32_t gen_rng_below(struct gen_rng *rng, uint32_t n)
{
	return (uint32_t)((gen_rng_next(rng) >> 32) * n >> 32);
}

static inline bool gen_rng_chance(struct gen_rng *rng, uint32_t in_million)
{
	return gen_rng_below(rng, 1000000) < in_million;
}

/* Exponentially distributed with this mean, which is below 2^40. */
static inline uint64_t gen_rng_exponential(struct gen_rng *rng, uint64_t mean)
{
	uint64_t x = gen_rng_next(rng) | 1;
	unsigned int zeros = (unsigned int)__builtin_clzll(x);
	/* x is 2^(63 - zeros) * (1 + f); log2(1 + f) by a parabola, in 16-bit fractions */
	uint64_t f = x << zeros << 1 >> 48;
	uint64_t log2_1f = f + (f * (65536 - f) >> 16) * 22525 / 65536;
	uint64_t bits = ((uint64_t)(zeros + 1) << 16) - log2_1f;

	return mean * (bits * 45426 >> 16) >> 16; /* 45426 / 65536 is ln 2 */
}

#endif
