/* What the mains of all Tidewire programs share: options in common, signals, the housekeeping loop.
 *
 * Threads   a program has its hot thread(s) and the main thread.  The main thread sits in
 *           tw_app_run() and does everything that may enter the kernel: signals, clock refit. */
#ifndef TW_BASE_APP_H
#define TW_BASE_APP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "tidewire/error.h"

#define TW_VERSION "0.1.0"

struct tw_app {
	const char *program;
	_Atomic bool stop;  /* set by SIGINT, SIGTERM or tw_app_stop(); hot loops load it relaxed */
	_Atomic int result; /* exit status that tw_app_run() returns; -1 until stopped */
	pthread_t main_thread;
};

/* Blocks SIGINT and SIGTERM in this and every later thread and ignores SIGPIPE.  Once per process,
 * before any thread is made. */
void tw_app_init(struct tw_app *app, const char *program);

/* Any thread: asks the program to stop with this exit status (the first caller's one stands). */
void tw_app_stop(struct tw_app *app, int exit_status);

static inline bool tw_app_stopping(const struct tw_app *app)
{
	/* nothing is ordered by it: a hot loop may turn once more */
	return atomic_load_explicit(&app->stop, memory_order_relaxed);
}

/* The thread of tw_app_init(): until stop, waits for signals and calls tick(ctx) every 100 ms, the
 * clock refitted before (NULL allowed).  Returns the exit status.  A second SIGINT or SIGTERM ends
 * the process at once, with 128 + the signal's number, after the return too. */
int tw_app_run(struct tw_app *app, void (*tick)(void *ctx), void *ctx);

/* Starts a thread with all signals blocked but those of its own faults.  Linux keeps 15 bytes of
 * the name. */
int tw_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg,
		    struct tw_error *err) TW_MUST_USE;

#endif
