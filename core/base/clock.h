/* The two clocks of a process.
 *
 * tw_mono_ns()  every timer and every now_ns argument; CLOCK_MONOTONIC through the vDSO.
 * tw_wall_ns()  stamps only; nanoseconds since the Unix epoch.  Where the TSC is invariant: TSC
 *               scaled by parameters that tw_clock_refit() fits against CLOCK_REALTIME; else the
 *               vDSO.  Neither enters the kernel.
 * Threads       reading: any.  tw_clock_refit(): one thread, off the hot path, every 100 ms (the
 *               housekeeping thread of app.h, or the library's own).
 * Ordering      parameters are published by a sequence lock; see clock.c. */
#ifndef TW_BASE_CLOCK_H
#define TW_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "tidewire/error.h"

#define TW_CLOCK_REFIT_NS 100000000ull
#define TW_CLOCK_STEP_NS  1000000ull /* a larger difference at a refit is a step */

/* Calibrates; idempotent, cheap after the first call.  Before it tw_wall_ns() uses the vDSO. */
void tw_clock_init(void);

uint64_t tw_mono_ns(void);
uint64_t tw_wall_ns(void);

/* Refits against CLOCK_REALTIME.  Returns true where the wall clock stepped by more than
 * TW_CLOCK_STEP_NS since the last refit; *step_ns (NULL allowed) is then the signed step. */
bool tw_clock_refit(int64_t *step_ns);

/* Steps seen so far by whoever refits: for the others to compare. */
uint64_t tw_clock_steps(void);

/* False from a step until the next refit that sees none: stamps then carry TS_BAD. */
bool tw_clock_settled(void);

/* "tsc" or "vdso", for summaries. */
const char *tw_clock_source(void);

#endif
