/* See clock_fit.h. */
#include "base/clock_fit.h"

#include "base/clock.h"

/* An error is taken up within half the time between refits: 1 ms, the most that is no step, then
 * makes the clock run 2 % fast or slow for that long. */
#define SLEW_NS        (TW_CLOCK_REFIT_NS / 2)
#define JOIN_NS        2000000u  /* from the reading to the new curve: time to publish it */
#define READING_GAP_NS 50000000u /* readings closer than that add noise, not knowledge */
#define RESTART_NS     10000     /* a jump, or another rate: what the slope is made of is past */

__extension__ typedef unsigned __int128 wide;

uint64_t tw_clock_mult(uint64_t ns, uint64_t ticks)
{
	if (ns == 0 || ticks == 0) {
		return 0;
	}
	wide mult = ((wide)ns << TW_CLOCK_SHIFT) / ticks;
	return mult > UINT64_MAX ? 0 : (uint64_t)mult;
}

static uint64_t ticks_of(uint64_t ns, uint64_t mult)
{
	return (uint64_t)(((wide)ns << TW_CLOCK_SHIFT) / mult);
}

static void remember(struct tw_clock_fitter *f, struct tw_clock_reading reading)
{
	f->readings[f->next] = reading;
	f->next = (f->next + 1) % TW_CLOCK_SAMPLES;
	if (f->count < TW_CLOCK_SAMPLES) {
		f->count++;
	}
}

static void forget(struct tw_clock_fitter *f, struct tw_clock_reading reading)
{
	f->count = 0;
	f->next = 0;
	remember(f, reading);
}

static void start_at(struct tw_clock_curve *c, struct tw_clock_reading reading, uint64_t mult)
{
	*c = (struct tw_clock_curve){ .old_tsc = reading.tsc,
				      .old_ns = reading.wall_ns,
				      .old_mult = mult,
				      .join_tsc = reading.tsc,
				      .slew_mult = mult,
				      .end_tsc = reading.tsc,
				      .end_ns = reading.wall_ns,
				      .mult = mult };
}

void tw_clock_fitter_init(struct tw_clock_fitter *f, struct tw_clock_reading reading, uint64_t mult)
{
	*f = (struct tw_clock_fitter){ 0 };
	start_at(&f->curve, reading, mult);
	remember(f, reading);
}

/* The slope over the readings kept (1.6 s of them at the usual pace, where a reading's error of
 * 50 ns makes 0.03 ppm), or the present one. */
static uint64_t slope(const struct tw_clock_fitter *f)
{
	uint32_t newest = (f->next + TW_CLOCK_SAMPLES - 1) % TW_CLOCK_SAMPLES;
	uint32_t oldest = (newest + TW_CLOCK_SAMPLES + 1 - f->count) % TW_CLOCK_SAMPLES;
	const struct tw_clock_reading *a = &f->readings[oldest];
	const struct tw_clock_reading *b = &f->readings[newest];
	if (b->wall_ns <= a->wall_ns || (int64_t)(b->tsc - a->tsc) <= 0) {
		return f->curve.mult;
	}
	uint64_t mult = tw_clock_mult(b->wall_ns - a->wall_ns, b->tsc - a->tsc);
	return mult == 0 ? f->curve.mult : mult;
}

/* False, and nothing done, where no rising line leads from the old curve to the new one. */
static bool bend(struct tw_clock_curve *c, struct tw_clock_reading reading, uint64_t mult)
{
	uint64_t join_tsc = reading.tsc + ticks_of(JOIN_NS, mult);
	uint64_t slew_ticks = ticks_of(SLEW_NS, mult);
	uint64_t end_tsc = join_tsc + slew_ticks;
	uint64_t end_ns = reading.wall_ns + tw_clock_scale((int64_t)(end_tsc - reading.tsc), mult);
	uint64_t join_ns = tw_clock_curve_ns(c, join_tsc);
	if ((int64_t)(end_ns - join_ns) <= 0 || slew_ticks == 0) {
		return false;
	}
	/* rounded down, so that the slewed part starts at join_ns or just above, never below */
	uint64_t slew_mult = tw_clock_mult(end_ns - join_ns, slew_ticks);
	if (slew_mult == 0) {
		return false;
	}
	*c = (struct tw_clock_curve){ .old_tsc = c->end_tsc,
				      .old_ns = c->end_ns,
				      .old_mult = c->mult,
				      .join_tsc = join_tsc,
				      .slew_mult = slew_mult,
				      .end_tsc = end_tsc,
				      .end_ns = end_ns,
				      .mult = mult };
	return true;
}

bool tw_clock_fitter_update(struct tw_clock_fitter *f, struct tw_clock_reading reading,
			    int64_t *step_ns)
{
	int64_t error_ns = (int64_t)(reading.wall_ns - tw_clock_curve_ns(&f->curve, reading.tsc));
	*step_ns = 0;
	if (error_ns > (int64_t)TW_CLOCK_STEP_NS || error_ns < -(int64_t)TW_CLOCK_STEP_NS) {
		start_at(&f->curve, reading, f->curve.mult);
		forget(f, reading);
		*step_ns = error_ns;
		return true;
	}
	if ((int64_t)(reading.tsc - f->curve.end_tsc) < 0) {
		return false; /* still taking up the last error */
	}
	const struct tw_clock_reading *last =
		&f->readings[(f->next + TW_CLOCK_SAMPLES - 1) % TW_CLOCK_SAMPLES];
	if ((error_ns > RESTART_NS || error_ns < -RESTART_NS) && f->count > 1) {
		/* a jump leaves the rate as it is; was it the rate, the next reading has the new one */
		forget(f, reading);
	} else if (tw_clock_scale((int64_t)(reading.tsc - last->tsc), f->curve.mult) >=
		   READING_GAP_NS) {
		remember(f, reading);
	}
	if (!bend(&f->curve, reading, slope(f))) {
		forget(f, reading); /* the slope is absurd: the error will grow into a step */
	}
	return false;
}
