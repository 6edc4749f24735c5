/* Stamps of a device's clock; see stamp.h. */
#include "fabric/verbs/stamp.h"

#include <string.h>

bool tw_stamp_rate_holds(struct tw_clock_reading a, struct tw_clock_reading b, uint64_t khz,
			 int64_t *ppm)
{
	const int64_t ticks = (int64_t)(b.tsc - a.tsc);
	const int64_t ns = (int64_t)(b.wall_ns - a.wall_ns);
	*ppm = INT64_MAX;
	if (ticks <= 0 || ns <= 0 || khz == 0) {
		return false;
	}
	const tw_clock_wide stated = (tw_clock_wide)ns * (int64_t)khz; /* ticks times 1,000,000 */
	const tw_clock_wide off = (tw_clock_wide)ticks * 1000000 - stated;
	const tw_clock_wide scaled = off * 1000000 / stated;
	if (scaled > INT32_MAX || scaled < -INT32_MAX) {
		return false;
	}
	*ppm = (int64_t)scaled;
	return *ppm <= TW_STAMP_RATE_PPM && *ppm >= -TW_STAMP_RATE_PPM;
}

bool tw_stamp_begin(struct tw_stamp *stamp, uint64_t mask, uint64_t khz, struct tw_clock_reading a,
		    struct tw_clock_reading b, int64_t *ppm)
{
	const uint64_t mult = khz != 0 ? tw_clock_mult(1000000, khz) : 0;
	memset(stamp, 0, sizeof(*stamp));
	*ppm = INT64_MAX;
	b.tsc = a.tsc + ((b.tsc - a.tsc) & mask); /* it may have wrapped */
	if (mask == 0 || mult == 0 || !tw_stamp_rate_holds(a, b, khz, ppm)) {
		return false;
	}
	stamp->mask = mask;
	stamp->khz = khz;
	tw_clock_fitter_init(&stamp->fitter, b, mult);
	tw_clock_cell_publish(&stamp->cell, &stamp->fitter.curve);
	return true;
}

void tw_stamp_reading(struct tw_stamp *stamp, struct tw_clock_reading reading)
{
	const struct tw_clock_fitter *f = &stamp->fitter;
	const struct tw_clock_reading last =
		f->readings[(f->next + TW_CLOCK_SAMPLES - 1) % TW_CLOCK_SAMPLES];
	int64_t step_ns, ppm;
	reading.tsc = last.tsc + ((reading.tsc - last.tsc) & stamp->mask);
	/* A step of the wall clock looks like a rate that does not hold: it begins anew, and the next
	 * reading tells the two apart. */
	const bool holds = tw_stamp_rate_holds(last, reading, stamp->khz, &ppm);
	const bool stepped = tw_clock_fitter_update(&stamp->fitter, reading, &step_ns);
	if (!stepped) {
		/* relaxed: it orders nothing, and a batch more or less does not matter */
		atomic_store_explicit(&stamp->off, !holds, memory_order_relaxed);
	}
	tw_clock_cell_publish(&stamp->cell, &stamp->fitter.curve);
}

bool tw_stamp_curve(const struct tw_stamp *stamp, struct tw_clock_curve *curve)
{
	if (atomic_load_explicit(&stamp->off, memory_order_relaxed)) {
		return false;
	}
	for (;;) {
		const uint64_t generation = tw_clock_cell_read(&stamp->cell, curve);
		if (generation == 0) {
			return false;
		}
		if (tw_clock_cell_holds(&stamp->cell, generation)) {
			return true;
		}
	}
}

uint64_t tw_stamp_wall(const struct tw_clock_curve *curve, uint64_t mask, uint64_t stamp,
		       uint64_t now_ns)
{
	/* the bits above the mask are those of the nearest time to the curve's */
	const uint64_t half = mask / 2 + 1;
	uint64_t ahead = (stamp - curve->end_tsc) & mask;
	const uint64_t ticks = curve->end_tsc + ahead - (ahead >= half ? mask + 1 : 0);
	const uint64_t wall_ns = tw_clock_curve_ns(curve, ticks);
	if ((int64_t)(wall_ns - now_ns) > (int64_t)TW_STAMP_AHEAD_NS ||
	    (int64_t)(now_ns - wall_ns) > (int64_t)TW_STAMP_OLD_NS) {
		return 0;
	}
	return wall_ns;
}
