/* The two clocks.  Reading the wall clock costs a TSC read, a few loads and one multiplication.
 *
 * Threads   readers: any, wait-free but for a refit that passes them.  Refits take turns by a lock.
 * Ordering  clock_cell.h; `unsettled` goes with the curve of the same refit. */
#include "base/clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock_cell.h"
#include "base/clock_fit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#define HAVE_TSC 1
#else
#define HAVE_TSC 0
#endif

#define CALIBRATE_NS   20000000u /* two readings of 50 ns error, 20 ms apart: 2.5 ppm */
#define BRACKETS       8
#define REFIT_TRIES    3
#define BRACKET_MAX_NS 100000u /* a reading less sure than that is thrown away */

static struct tw_clock_cell cell; /* empty: not calibrated, or no TSC: the vDSO serves */
static _Atomic bool unsettled;
static _Atomic uint64_t steps; /* one writer at a time: who holds refit_lock */
static pthread_once_t init_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t refit_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t vdso_offset_ns; /* under refit_lock: CLOCK_REALTIME - CLOCK_MONOTONIC */

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts = { 0 };
	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t tw_mono_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

#if HAVE_TSC
static struct tw_clock_fitter fitter; /* under refit_lock */

/* Stamps need no order with the instructions around them. */
static inline uint64_t read_tsc(void)
{
	return __builtin_ia32_rdtsc();
}

static inline uint64_t read_tsc_ordered(void)
{
	__builtin_ia32_lfence();
	uint64_t tsc = __builtin_ia32_rdtsc();
	__builtin_ia32_lfence();
	return tsc;
}

uint64_t tw_wall_ns(void)
{
	struct tw_clock_curve curve;
	for (;;) {
		uint64_t generation = tw_clock_cell_read(&cell, &curve);
		if (generation == 0) {
			return read_clock(CLOCK_REALTIME);
		}
		/* before the check, so that the curve is the one in force at that tick */
		uint64_t tsc = read_tsc();
		if (tw_clock_cell_holds(&cell, generation)) {
			return tw_clock_curve_ns(&curve, tsc);
		}
	}
}

/* Reads the clock between two TSC reads, several times, and keeps the closest pair: an interrupt
 * or a lost time slice only ever widens one.  Returns its width in ticks. */
static uint64_t read_bracketed(clockid_t id, struct tw_clock_reading *out)
{
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < BRACKETS; i++) {
		uint64_t before = read_tsc_ordered();
		uint64_t ns = read_clock(id);
		uint64_t width = read_tsc_ordered() - before;
		if (width < best) {
			best = width;
			*out = (struct tw_clock_reading){ .tsc = before + width / 2,
							  .wall_ns = ns };
		}
	}
	return best;
}

static bool tsc_is_invariant(void)
{
	unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
	/* leaf 0x80000007, EDX bit 8: the TSC runs at one rate in all power states */
	return __get_cpuid(0x80000007u, &eax, &ebx, &ecx, &edx) != 0 && (edx & (1u << 8)) != 0;
}

/* A kernel that fell back to one of these has found the TSCs of this machine to disagree. */
static bool kernel_distrusts_tsc(void)
{
	static const char *const slow[] = { "hpet", "acpi_pm", "jiffies", "refined-jiffies" };
	char name[32] = "";
	FILE *f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
	if (f == NULL) {
		return false;
	}
	if (fgets(name, sizeof(name), f) != NULL) {
		name[strcspn(name, "\n")] = '\0';
	}
	fclose(f);
	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
		if (strcmp(name, slow[i]) == 0) {
			return true;
		}
	}
	return false;
}

static void calibrate(void)
{
	if (!tsc_is_invariant() || kernel_distrusts_tsc()) {
		return;
	}
	/* the rate by the monotonic clock, which does not step meanwhile */
	struct tw_clock_reading first = { 0 }, second = { 0 }, wall = { 0 };
	read_bracketed(CLOCK_MONOTONIC, &first);
	struct timespec until = { .tv_sec = (time_t)((first.wall_ns + CALIBRATE_NS) / 1000000000u),
				  .tv_nsec = (long)((first.wall_ns + CALIBRATE_NS) % 1000000000u) };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
	}
	read_bracketed(CLOCK_MONOTONIC, &second);
	uint64_t mult = tw_clock_mult(second.wall_ns - first.wall_ns, second.tsc - first.tsc);
	/* slower than 1 MHz or faster than 1 THz is no TSC */
	if (mult > (1000ull << TW_CLOCK_SHIFT) || mult < (1ull << TW_CLOCK_SHIFT) / 1000) {
		return;
	}
	read_bracketed(CLOCK_REALTIME, &wall);
	tw_clock_fitter_init(&fitter, wall, mult);
	tw_clock_cell_publish(&cell, &fitter.curve);
}

/* One try to refit: false where the time to publish the new curve has passed. */
static bool try_refit(bool *stepped, int64_t *step_ns)
{
	struct tw_clock_fitter trial = fitter;
	struct tw_clock_reading reading = { 0 };
	uint64_t width = read_bracketed(CLOCK_REALTIME, &reading);
	if (tw_clock_scale((int64_t)(width / 2), trial.curve.mult) > BRACKET_MAX_NS) {
		return false;
	}
	*stepped = tw_clock_fitter_update(&trial, reading, step_ns);
	bool bent = !*stepped && trial.curve.join_tsc != fitter.curve.join_tsc;
	if (bent && (int64_t)(read_tsc_ordered() - trial.curve.join_tsc) >= 0) {
		return false; /* a lost time slice; published now, the curve could run backwards */
	}
	fitter = trial;
	/* Before the curve, so that whoever stamps by the new curve knows.  Whoever still stamps by
	 * the old one is right about that clock. */
	atomic_store_explicit(&unsettled, *stepped, memory_order_relaxed);
	if (*stepped || bent) {
		tw_clock_cell_publish(&cell, &fitter.curve);
	}
	return true;
}

/* The caller holds refit_lock. */
static bool refit_tsc(int64_t *step_ns)
{
	bool stepped = false;
	for (int i = 0; i < REFIT_TRIES; i++) {
		if (try_refit(&stepped, step_ns)) {
			return stepped;
		}
	}
	*step_ns = 0;
	return false; /* too busy to tell; the next refit will */
}
#else
uint64_t tw_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

static void calibrate(void)
{
}

static bool refit_tsc(int64_t *step_ns)
{
	*step_ns = 0;
	return false;
}
#endif

static int64_t read_offset(void)
{
	/* the smallest of several: a lost time slice between the two reads adds to it */
	int64_t best = INT64_MAX;
	for (int i = 0; i < BRACKETS; i++) {
		int64_t mono = (int64_t)read_clock(CLOCK_MONOTONIC);
		int64_t offset = (int64_t)read_clock(CLOCK_REALTIME) - mono;
		if (offset < best) {
			best = offset;
		}
	}
	return best;
}

/* The vDSO needs no fit; that it stepped shows against the monotonic clock, which is slewed
 * alike but never stepped.  The caller holds refit_lock. */
static bool refit_vdso(int64_t *step_ns)
{
	int64_t offset = read_offset();
	int64_t moved = offset - vdso_offset_ns;
	bool stepped = moved > (int64_t)TW_CLOCK_STEP_NS || moved < -(int64_t)TW_CLOCK_STEP_NS;
	vdso_offset_ns = offset;
	atomic_store_explicit(&unsettled, stepped, memory_order_relaxed);
	*step_ns = stepped ? moved : 0;
	return stepped;
}

static void init(void)
{
	pthread_mutex_lock(&refit_lock);
	vdso_offset_ns = read_offset();
	calibrate();
	pthread_mutex_unlock(&refit_lock);
}

void tw_clock_init(void)
{
	pthread_once(&init_once, init);
}

static bool uses_tsc(void)
{
	/* set once and for all by tw_clock_init(); nothing is read by it here */
	return atomic_load_explicit(&cell.generation, memory_order_relaxed) != 0;
}

bool tw_clock_refit(int64_t *step_ns)
{
	int64_t ignored = 0;
	int64_t *step_p = step_ns != NULL ? step_ns : &ignored;
	*step_p = 0;
	tw_clock_init();
	pthread_mutex_lock(&refit_lock);
	bool stepped = uses_tsc() ? refit_tsc(step_p) : refit_vdso(step_p);
	atomic_fetch_add_explicit(&steps, stepped ? 1 : 0, memory_order_relaxed);
	pthread_mutex_unlock(&refit_lock);
	return stepped;
}

uint64_t tw_clock_steps(void)
{
	return atomic_load_explicit(&steps, memory_order_relaxed);
}

bool tw_clock_settled(void)
{
	return !atomic_load_explicit(&unsettled, memory_order_relaxed);
}

const char *tw_clock_source(void)
{
	return uses_tsc() ? "tsc" : "vdso";
}
