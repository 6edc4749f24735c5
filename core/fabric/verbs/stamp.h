/* A device's completion timestamps as wall-clock time.
 *
 * Clock     free-running ticks, some 40 to 64 bits of them in a completion, and readable now.  The cold
 *           thread reads it beside the wall clock every 100 ms and fits the same kind of curve as for
 *           the TSC (base/clock_fit.h), so no offset and no epoch is ever assumed.
 * Checked   the rate against what the device states (its unit is thereby checked too); every stamp
 *           against the time of the poll.
 * Threads   tw_stamp_begin(), tw_stamp_reading(): cold.  tw_stamp_curve(), tw_stamp_wall(): the hot one.
 * Ordering  clock_cell.h. */
#ifndef TW_FABRIC_VERBS_STAMP_H
#define TW_FABRIC_VERBS_STAMP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock_cell.h"
#include "base/clock_fit.h"

#define TW_STAMP_RATE_PPM 1000 /* crystals are within 100; a wrong unit is off by far more */
#define TW_STAMP_OLD_NS   10000000000ull /* longer in a queue: rather a stamp that means nothing */
#define TW_STAMP_AHEAD_NS 1000000ull     /* more than the fit's error: not of this device's clock */

struct tw_stamp {
	struct tw_clock_cell cell;
	struct tw_clock_fitter fitter;
	uint64_t mask;    /* bits of a completion's stamp */
	uint64_t khz;     /* as stated */
	_Atomic bool off; /* the rate does not hold: no stamp of it is believed any more */
};

/* Whether two readings agree with the stated rate; *ppm is how far the second is off. */
bool tw_stamp_rate_holds(struct tw_clock_reading a, struct tw_clock_reading b, uint64_t khz,
			 int64_t *ppm);

/* Begins with two readings that hold, some time apart.  False: they do not, or there is no rate. */
bool tw_stamp_begin(struct tw_stamp *stamp, uint64_t mask, uint64_t khz, struct tw_clock_reading a,
		    struct tw_clock_reading b, int64_t *ppm);
/* Every 100 ms; ticks are all bits of the clock. */
void tw_stamp_reading(struct tw_stamp *stamp, struct tw_clock_reading reading);

/* The curve in force, for one batch of completions.  False: none is to be believed. */
bool tw_stamp_curve(const struct tw_stamp *stamp, struct tw_clock_curve *curve);
/* Wall clock of a completion's stamp; 0 where it cannot be, `now_ns` being the wall clock. */
uint64_t tw_stamp_wall(const struct tw_clock_curve *curve, uint64_t mask, uint64_t stamp,
		       uint64_t now_ns);

#endif
