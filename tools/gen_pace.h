/* When messages arrive: bursts of eight on average, microseconds apart; the pauses between bursts are
 * exponential and make up for it, so that the average is the rate asked for. */
#ifndef TW_TOOLS_GEN_PACE_H
#define TW_TOOLS_GEN_PACE_H

#include "gen_rng.h"

#define GEN_BURST_MSGS   8ull
#define GEN_BURST_GAP_NS 2000u

struct gen_pace {
	uint64_t pause_ns, gap_ns;
	uint32_t left; /* messages of the open burst */
};

static inline struct gen_pace gen_pace_of(uint64_t rate)
{
	uint64_t period_ns = 1000000000u / rate; /* 10 at the highest rate */
	uint64_t gap_ns = period_ns / 4 < GEN_BURST_GAP_NS ? period_ns / 4 : GEN_BURST_GAP_NS;

	return (struct gen_pace){
		.pause_ns = GEN_BURST_MSGS * 1000000000u / rate - (GEN_BURST_MSGS - 1) * gap_ns,
		.gap_ns = gap_ns,
	};
}

static inline uint64_t gen_pace_gap(struct gen_pace *pace, struct gen_rng *rng)
{
	if (pace->left > 0) {
		pace->left--;
		return gen_rng_exponential(rng, pace->gap_ns);
	}
	/* geometric: the mean over many bursts is GEN_BURST_MSGS */
	pace->left = (uint32_t)((gen_rng_exponential(rng, 2 * (GEN_BURST_MSGS - 1)) + 1) / 2);
	return gen_rng_exponential(rng, pace->pause_ns);
}

#endif
