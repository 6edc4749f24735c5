/* Fitting a line through (TSC, wall clock) readings: the arithmetic of clock.c, without a clock.
 *
 * The curve that is read has three parts: the line before as it was, up to `join_tsc`; from there a
 * line that takes up the error found, until `end_tsc`; then the line fitted.  Because `join_tsc`
 * lies in the future when the curve is published, readers that still hold the curve before agree
 * with those that hold the new one, and time never runs backwards, except by a step.
 * Units     mult: nanoseconds a tick, times 2^TW_CLOCK_SHIFT. */
#ifndef TW_BASE_CLOCK_FIT_H
#define TW_BASE_CLOCK_FIT_H

#include <stdbool.h>
#include <stdint.h>

#define TW_CLOCK_SHIFT   48u
#define TW_CLOCK_SAMPLES 16u

struct tw_clock_curve { /* eight words: one cache line */
	uint64_t old_tsc, old_ns, old_mult;
	uint64_t join_tsc, slew_mult;
	uint64_t end_tsc, end_ns, mult;
};

__extension__ typedef __int128 tw_clock_wide;

/* ticks x mult, rounded down, for ticks of either sign */
static inline uint64_t tw_clock_scale(int64_t ticks, uint64_t mult)
{
	return (uint64_t)(int64_t)(((tw_clock_wide)ticks * (tw_clock_wide)mult) >> TW_CLOCK_SHIFT);
}

static inline uint64_t tw_clock_curve_ns(const struct tw_clock_curve *c, uint64_t tsc)
{
	if ((int64_t)(tsc - c->join_tsc) < 0) {
		return c->old_ns + tw_clock_scale((int64_t)(tsc - c->old_tsc), c->old_mult);
	}
	int64_t ticks = (int64_t)(tsc - c->end_tsc);
	return c->end_ns + tw_clock_scale(ticks, ticks < 0 ? c->slew_mult : c->mult);
}

struct tw_clock_reading {
	uint64_t tsc, wall_ns;
};

struct tw_clock_fitter {
	struct tw_clock_curve curve;
	struct tw_clock_reading
		readings[TW_CLOCK_SAMPLES]; /* ring; the slope goes through its ends */
	uint32_t count, next;
};

void tw_clock_fitter_init(struct tw_clock_fitter *fitter, struct tw_clock_reading reading,
			  uint64_t mult);

/* Takes a reading.  True where the wall clock was over TW_CLOCK_STEP_NS away from the curve, which
 * then starts afresh at the reading; *step_ns is the signed difference. */
bool tw_clock_fitter_update(struct tw_clock_fitter *fitter, struct tw_clock_reading reading,
			    int64_t *step_ns);

/* mult for `ns` in `ticks`; 0 where that makes no clock. */
uint64_t tw_clock_mult(uint64_t ns, uint64_t ticks);

#endif
