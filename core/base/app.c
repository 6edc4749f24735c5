/* Signals and the housekeeping loop.
 *
 * SIGINT and SIGTERM are blocked everywhere and taken by sigtimedwait() in the main thread, so that
 * no hot thread is ever interrupted.  SIGRTMIN wakes the main thread when another one stops the
 * program.  Once the loop has ended a second signal ends the process from a handler, whatever the
 * rest of the shutdown hangs on.
 * Ordering  AP1 pairs with AP2: who sees `stop` in tw_app_run() sees `result`. */
#include "base/app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"

#define NO_RESULT         (-1)
#define THREAD_NAME_BYTES 16 /* with the NUL: a kernel limit, pthread_setname_np(3) */

static _Atomic int stop_signals; /* SIGINT and SIGTERM taken so far */

static void stop_set(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
}

void tw_app_init(struct tw_app *app, const char *program)
{
	app->program = program;
	app->main_thread = pthread_self();
	atomic_init(&app->stop, false);
	atomic_init(&app->result, NO_RESULT);

	sigset_t set;
	stop_set(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigaction(SIGPIPE, &ignore, NULL);
}

void tw_app_stop(struct tw_app *app, int exit_status)
{
	int none = NO_RESULT;
	/* the first one stands; AP1 publishes it */
	atomic_compare_exchange_strong_explicit(&app->result, &none, exit_status,
						memory_order_relaxed, memory_order_relaxed);
	/* AP1: pairs with AP2 */
	atomic_store_explicit(&app->stop, true, memory_order_release);
	if (!pthread_equal(pthread_self(), app->main_thread)) {
		pthread_kill(app->main_thread, SIGRTMIN);
	}
}

static bool stopped(const struct tw_app *app)
{
	/* AP2: pairs with AP1 */
	return atomic_load_explicit(&app->stop, memory_order_acquire);
}

static void on_stop_signal(int sig)
{
	if (atomic_fetch_add_explicit(&stop_signals, 1, memory_order_relaxed) > 0) {
		_exit(128 + sig);
	}
}

/* From here on signals interrupt the main thread; the second one ends the process. */
static void arm_second_signal(void)
{
	struct sigaction action = { .sa_handler = on_stop_signal, .sa_flags = SA_RESTART };
	sigset_t set;
	stop_set(&set);
	action.sa_mask = set;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void wait_for_signal(struct tw_app *app, uint64_t wait_ns)
{
	struct timespec ts = { .tv_sec = (time_t)(wait_ns / 1000000000u),
			       .tv_nsec = (long)(wait_ns % 1000000000u) };
	sigset_t set;
	stop_set(&set);
	sigaddset(&set, SIGRTMIN);
	int sig = sigtimedwait(&set, NULL, &ts);
	if (sig == SIGINT || sig == SIGTERM) {
		atomic_fetch_add_explicit(&stop_signals, 1, memory_order_relaxed);
		tw_log(TW_LOG_INFO, "%s: stopping", sig == SIGINT ? "SIGINT" : "SIGTERM");
		tw_app_stop(app, 0);
	}
}

static void housekeep(void (*tick)(void *ctx), void *ctx)
{
	int64_t step_ns = 0;
	if (tw_clock_refit(&step_ns)) {
		tw_log(TW_LOG_WARNING, "the wall clock stepped by %+.6f s", (double)step_ns * 1e-9);
	}
	if (tick != NULL) {
		tick(ctx);
	}
}

int tw_app_run(struct tw_app *app, void (*tick)(void *ctx), void *ctx)
{
	tw_clock_init();
	uint64_t next_ns = tw_mono_ns() + TW_CLOCK_REFIT_NS;
	while (!stopped(app)) {
		uint64_t now_ns = tw_mono_ns();
		if (now_ns < next_ns) {
			wait_for_signal(app, next_ns - now_ns);
			continue;
		}
		housekeep(tick, ctx);
		next_ns += TW_CLOCK_REFIT_NS;
		if (next_ns <= now_ns) { /* ticks that were missed are not made up for */
			next_ns = now_ns + TW_CLOCK_REFIT_NS;
		}
	}
	arm_second_signal();
	return atomic_load_explicit(&app->result, memory_order_relaxed); /* AP2 was before */
}

int tw_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg,
		    struct tw_error *err)
{
	/* a new thread inherits its maker's mask; faults of its own must still reach a handler */
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS };
	sigset_t all, before;
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		sigdelset(&all, faults[i]);
	}
	pthread_t made;
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int rc = pthread_create(&made, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc != 0) {
		errno = rc;
		return tw_fail_sys(err, TW_ESYS, "thread %s: pthread_create", name);
	}
	char short_name[THREAD_NAME_BYTES];
	snprintf(short_name, sizeof(short_name), "%s", name);
	(void)pthread_setname_np(made, short_name); /* it may have ended already */
	*thread = made;
	return TW_OK;
}
