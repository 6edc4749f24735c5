/* Seeded random numbers for simulations: xoshiro256**, its state filled by splitmix64.  The same seed
 * gives the same sequence on every machine.
 * Threads   one for each struct. */
#ifndef TW_FABRIC_SIM_RNG_H
#define TW_FABRIC_SIM_RNG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/splitmix.h"

struct tw_rng {
	uint64_t s[4];
};

static inline void tw_rng_init(struct tw_rng *rng, uint64_t seed)
{
	for (int i = 0; i < 4; i++) {
		rng->s[i] = tw_splitmix_next(&seed);
	}
}

static inline uint64_t tw_rng_rotl(uint64_t x, int k)
{
	return (x << k) | (x >> (64 - k));
}

static inline uint64_t tw_rng_next(struct tw_rng *rng)
{
	uint64_t *s = rng->s;
	uint64_t result = tw_rng_rotl(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = tw_rng_rotl(s[3], 45);
	return result;
}

/* Uniform in [0, limit), 0 for limit 0.  The bias of the multiplication is below limit / 2^32. */
static inline uint32_t tw_rng_below(struct tw_rng *rng, uint32_t limit)
{
	return (uint32_t)(((tw_rng_next(rng) >> 32) * limit) >> 32);
}

/* Uniform in [low, high]. */
static inline uint32_t tw_rng_between(struct tw_rng *rng, uint32_t low, uint32_t high)
{
	return low + tw_rng_below(rng, high - low + 1);
}

static inline bool tw_rng_chance(struct tw_rng *rng, uint32_t ppm)
{
	return ppm != 0 && tw_rng_below(rng, 1000000u) < ppm;
}

#endif
