/* splitmix64: a generator whose state is a counter, and the bijection that makes it random.  The same on
 * every machine.
 * Threads   one for each state. */
#ifndef TW_BASE_SPLITMIX_H
#define TW_BASE_SPLITMIX_H

#include <stdint.h>

/* A bijection of 64 bits in which every input bit changes about half of the output bits; 0 stays 0. */
static inline uint64_t tw_splitmix_mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t tw_splitmix_next(uint64_t *state)
{
	return tw_splitmix_mix(*state += 0x9e3779b97f4a7c15u);
}

#endif
