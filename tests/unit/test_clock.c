/* The clocks: the fit on virtual time, where drift and steps can be had, then the real thing. */
#include <criterion/criterion.h>
#include <time.h>

#include "base/clock.h"
#include "base/clock_fit.h"

TestSuite(clock, .timeout = 60);

static uint64_t rng_state = 0x2545f4914f6cdd1du;
static uint64_t next_random(void) /* xorshift64 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

/* A machine with a TSC of 2.9 GHz, whose wall clock drifts, steps and is read with errors. */
struct machine {
	uint64_t tsc;
	double wall_ns; /* since wall_zero, so that a double holds it */
	double ns_per_tick;
	uint64_t noise_ns; /* a reading is off by up to this */
};
static const uint64_t wall_zero = 1764430201123456789u;

static void run_for(struct machine *m, double ns)
{
	uint64_t ticks = (uint64_t)(ns / m->ns_per_tick);
	m->tsc += ticks;
	m->wall_ns += (double)ticks * m->ns_per_tick;
}

static uint64_t true_ns(const struct machine *m)
{
	return wall_zero + (uint64_t)m->wall_ns;
}

static struct tw_clock_reading take_reading(const struct machine *m)
{
	uint64_t off = m->noise_ns == 0 ? 0 : next_random() % (2 * m->noise_ns);
	return (struct tw_clock_reading){ .tsc = m->tsc,
					  .wall_ns = true_ns(m) + off - m->noise_ns };
}

static struct machine boot(struct tw_clock_fitter *f, double ppm_off)
{
	struct machine m = { .tsc = UINT64_C(1) << 62, .ns_per_tick = 1.0 / 2.9 };
	tw_clock_fitter_init(f, take_reading(&m),
			     tw_clock_mult((uint64_t)(1e9 * (1 + ppm_off * 1e-6)), 2900000000u));
	return m;
}

static int64_t error_of(const struct tw_clock_fitter *f, const struct machine *m)
{
	return (int64_t)(tw_clock_curve_ns(&f->curve, m->tsc) - true_ns(m));
}

Test(clock_fit, scale_rounds_down_on_both_sides_of_zero)
{
	uint64_t third = tw_clock_mult(1, 3);
	cr_assert_eq(tw_clock_scale(0, third), 0);
	cr_assert_eq(tw_clock_scale(2, third), 0);
	cr_assert_eq((int64_t)tw_clock_scale(-1, third), -1);
	cr_assert_eq((int64_t)tw_clock_scale(-4, third), -2);
	/* a hundred years of a 5 GHz counter */
	uint64_t year100 = UINT64_C(3155760000) * 1000000000u;
	uint64_t got = tw_clock_scale((int64_t)(year100 / 5 * 5), tw_clock_mult(1, 1));
	cr_assert_eq(got, year100);
	cr_assert_eq(tw_clock_mult(0, 5), 0);
	cr_assert_eq(tw_clock_mult(5, 0), 0);
	cr_assert_eq(tw_clock_mult(UINT64_MAX, 1), 0);
}

Test(clock_fit, a_drifting_noisy_clock_is_followed)
{
	static const double ppms[] = { 0, 5, -5, 50, -50, 400, -400 };
	for (size_t p = 0; p < sizeof(ppms) / sizeof(ppms[0]); p++) {
		struct tw_clock_fitter f;
		struct machine m = boot(&f, ppms[p]); /* calibrated that far off */
		m.noise_ns = 50;
		int64_t step_ns;
		for (int i = 0; i < 50; i++) {
			run_for(&m, 1e8 + (double)(next_random() % 5000000));
			cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
			cr_assert_eq(step_ns, 0);
			if (i > 5) { /* noise of 50 ns, and the drift of one interval at 1 ppm */
				int64_t e = error_of(&f, &m);
				cr_assert(e < 250 && e > -250, "%g ppm, refit %d: off by %ld ns",
					  ppms[p], i, e);
			}
		}
	}
}

Test(clock_fit, a_change_of_rate_is_followed)
{
	struct tw_clock_fitter f;
	struct machine m = boot(&f, 0);
	int64_t step_ns;
	for (int i = 0; i < 100; i++) {
		if (i == 30) {
			m.ns_per_tick *= 1 + 500e-6; /* the most that adjtime() slews */
		}
		run_for(&m, 1e8);
		int64_t e = error_of(&f, &m);
		cr_assert(e < 60000 && e > -60000, "refit %d: off by %ld ns", i, e);
		cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
	}
	int64_t e = error_of(&f, &m);
	cr_assert(e < 100 && e > -100, "off by %ld ns at the end", e);
}

/* Readers that hold the curve before and readers that hold the new one must agree from the reading
 * until the new one is published, and neither may see time run backwards after. */
Test(clock_fit, time_never_runs_backwards)
{
	struct tw_clock_fitter f;
	struct machine m = boot(&f, 20);
	uint64_t last = 0;
	for (int i = 0; i < 300; i++) {
		m.noise_ns = i % 3 == 0 ? 400000 : 100; /* some readings are bad ones */
		struct tw_clock_curve before = f.curve;
		struct tw_clock_reading reading = take_reading(&m);
		int64_t step_ns;
		cr_assert_not(tw_clock_fitter_update(&f, reading, &step_ns));
		const struct tw_clock_curve *now = &f.curve;
		cr_assert(now->join_tsc - reading.tsc > 2900000 /* 1 ms to publish it */);
		for (uint64_t t = reading.tsc; t < now->join_tsc - 50;
		     t += 1 + next_random() % 9999) {
			uint64_t ns = tw_clock_curve_ns(now, t);
			cr_assert_eq(ns, tw_clock_curve_ns(&before, t));
			cr_assert(ns >= last);
			last = ns;
		}
		const uint64_t corners[] = { now->join_tsc, now->end_tsc };
		for (size_t c = 0; c < 2; c++) {
			for (uint64_t t = corners[c] - 50; t < corners[c] + 50; t++) {
				uint64_t ns = tw_clock_curve_ns(now, t);
				cr_assert(ns >= last, "refit %d: %lu after %lu", i, ns, last);
				last = ns;
			}
		}
		run_for(&m, 1e8);
		uint64_t ns = tw_clock_curve_ns(now, m.tsc);
		cr_assert(ns >= last);
		last = ns;
	}
}

Test(clock_fit, a_step_is_reported_once_and_taken)
{
	static const int64_t steps[] = { 1100000,     -1100000,      5000000,
					 -2000000000, 3600000000000, -3600000000000 };
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct tw_clock_fitter f;
		struct machine m = boot(&f, 0);
		int64_t step_ns = 0;
		m.wall_ns = 4e12;
		cr_assert(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
		for (int k = 0; k < 20; k++) {
			run_for(&m, 1e8);
			cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
		}
		run_for(&m, 1e8);
		m.wall_ns += (double)steps[i];
		cr_assert(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
		cr_assert(step_ns - steps[i] < 1000 && steps[i] - step_ns < 1000, "%ld for %ld",
			  step_ns, steps[i]);
		cr_assert(error_of(&f, &m) == 0);
		for (int k = 0; k < 20; k++) {
			run_for(&m, 1e8);
			int64_t e = error_of(&f, &m);
			cr_assert(e < 100 && e > -100, "off by %ld ns after the step", e);
			cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
			cr_assert_eq(step_ns, 0);
		}
	}
}

Test(clock_fit, less_than_a_step_is_taken_up_until_the_next_refit)
{
	static const int64_t jumps[] = { 900000, -900000, 20000, -20000 };
	for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		struct tw_clock_fitter f;
		struct machine m = boot(&f, 0);
		int64_t step_ns;
		run_for(&m, 1e8);
		tw_clock_fitter_update(&f, take_reading(&m), &step_ns);
		run_for(&m, 1e8);
		m.wall_ns += (double)jumps[i];
		cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
		run_for(&m, 1e8);
		int64_t e = error_of(&f, &m);
		cr_assert(e < 20 && e > -20, "%ld left of %ld", e, jumps[i]);
	}
}

Test(clock_fit, refits_in_quick_succession_do_no_harm)
{
	struct tw_clock_fitter f;
	struct machine m = boot(&f, 3);
	int64_t step_ns;
	m.noise_ns = 50;
	for (int i = 0; i < 200000; i++) {
		run_for(&m, (double)(next_random() % 100000));
		cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
		int64_t e = error_of(&f, &m);
		cr_assert(e < 1000 && e > -1000, "refit %d: off by %ld ns", i, e);
	}
}

Test(clock_fit, a_stalled_housekeeper_is_caught_up_with)
{
	struct tw_clock_fitter f;
	struct machine m = boot(&f, 0.5);
	int64_t step_ns;
	for (int i = 0; i < 30; i++) {
		run_for(&m, 1e8);
		tw_clock_fitter_update(&f, take_reading(&m), &step_ns);
	}
	run_for(&m, 60e9); /* a minute without a refit */
	int64_t e = error_of(&f, &m);
	cr_assert(e < 10000 && e > -10000, "off by %ld ns", e);
	cr_assert_not(tw_clock_fitter_update(&f, take_reading(&m), &step_ns));
	run_for(&m, 1e8);
	e = error_of(&f, &m);
	cr_assert(e < 20 && e > -20, "off by %ld ns", e);
}

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;
	cr_assert_eq(clock_gettime(id, &ts), 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Between two readings of CLOCK_REALTIME, give or take what is no step: no matter how long the
 * machine stops in between. */
static void assert_wall_is_real(void)
{
	uint64_t before = read_clock(CLOCK_REALTIME);
	uint64_t wall = tw_wall_ns();
	uint64_t after = read_clock(CLOCK_REALTIME);
	cr_assert(wall + TW_CLOCK_STEP_NS >= before, "%lu before %lu", wall, before);
	cr_assert(wall <= after + TW_CLOCK_STEP_NS, "%lu after %lu", wall, after);
}

Test(clock, before_init_the_wall_clock_is_the_kernels)
{
	uint64_t before = read_clock(CLOCK_REALTIME);
	uint64_t wall = tw_wall_ns();
	uint64_t after = read_clock(CLOCK_REALTIME);
	cr_assert_str_eq(tw_clock_source(), "vdso");
	cr_assert(before <= wall && wall <= after);
	cr_assert(tw_clock_settled());
}

Test(clock, the_wall_clock_is_the_real_one)
{
	tw_clock_init();
	tw_clock_init();
	for (int i = 0; i < 20; i++) {
		assert_wall_is_real();
		int64_t step_ns = 42;
		uint64_t steps = tw_clock_steps();
		if (tw_clock_refit(&step_ns)) { /* somebody set the clock during the test */
			cr_assert_not(tw_clock_settled());
			cr_assert_eq(tw_clock_steps(), steps + 1);
		} else {
			cr_assert_eq(step_ns, 0);
			cr_assert(tw_clock_settled());
			cr_assert_eq(tw_clock_steps(), steps);
		}
		assert_wall_is_real();
		struct timespec pause = { .tv_nsec = 10000000 };
		nanosleep(&pause, NULL); /* time to drift in */
	}
	(void)tw_clock_refit(NULL);
}

Test(clock, the_wall_clock_does_not_run_backwards)
{
	tw_clock_init();
	uint64_t last = tw_wall_ns();
	uint64_t until = tw_mono_ns() + 300000000u;
	uint64_t next_refit = 0;
	bool stepped = false;
	while (tw_mono_ns() < until) {
		uint64_t now = tw_wall_ns();
		cr_assert(now >= last || stepped, "%lu after %lu", now, last);
		last = now;
		if (tw_mono_ns() >= next_refit) {
			stepped = tw_clock_refit(NULL);
			next_refit = tw_mono_ns() + 20000000u;
		}
	}
}

Test(clock, the_monotonic_clock_is_the_kernels)
{
	uint64_t before = read_clock(CLOCK_MONOTONIC);
	uint64_t mono = tw_mono_ns();
	uint64_t after = read_clock(CLOCK_MONOTONIC);
	cr_assert(before <= mono && mono <= after);
}
