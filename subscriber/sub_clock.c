/* The library's clock keeper: one background thread per process that refits the wall clock while any
 * handle is open, because the TSC parameters behind tw_wall_ns() belong to the process.
 *
 * Threads   `gate` lets one join or leave at a time start or stop the thread; `lock` guards the list
 *           and `stop`, and is never held while the thread is joined.  Hot threads take neither. */
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

static struct {
	pthread_mutex_t gate, lock;
	pthread_cond_t wake;
	pthread_t thread;
	struct tw_sub_clock_user *users;
	bool stop;
} keeper = { .gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER };

static void refit(void)
{
	if (!tw_clock_refit(NULL)) {
		return;
	}
	for (struct tw_sub_clock_user *user = keeper.users; user != NULL; user = user->next) {
		tw_counter_add(&user->counters, TW_SUB_clock_steps, 1);
	}
}

static void *keep(void *arg)
{
	(void)arg;
	struct timespec due;

	pthread_mutex_lock(&keeper.lock);
	while (!keeper.stop) {
		clock_gettime(CLOCK_MONOTONIC, &due);
		due.tv_nsec += (long)TW_CLOCK_REFIT_NS;
		if (due.tv_nsec >= 1000000000) {
			due.tv_nsec -= 1000000000;
			due.tv_sec++;
		}
		while (!keeper.stop &&
		       pthread_cond_timedwait(&keeper.wake, &keeper.lock, &due) != ETIMEDOUT) {
		}
		if (!keeper.stop) {
			refit();
		}
	}
	pthread_mutex_unlock(&keeper.lock);
	return NULL;
}

static int start(struct tw_error *err)
{
	pthread_condattr_t attr;
	int sys = pthread_condattr_init(&attr);

	if (sys == 0) {
		(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		sys = pthread_cond_init(&keeper.wake, &attr);
		(void)pthread_condattr_destroy(&attr);
	}
	if (sys != 0) {
		errno = sys;
		return tw_fail_sys(err, TW_ESYS, "clock keeper: pthread_cond_init");
	}
	keeper.stop = false;
	int rc = tw_thread_start(&keeper.thread, "tw-clock", keep, NULL, err);
	if (rc < 0) {
		(void)pthread_cond_destroy(&keeper.wake);
	}
	return rc;
}

int tw_sub_clock_join(struct tw_sub_clock_user *user, struct tw_error *err)
{
	int rc = TW_OK;

	pthread_mutex_lock(&keeper.gate);
	if (keeper.users == NULL) {
		rc = start(err);
	}
	if (rc >= 0) {
		pthread_mutex_lock(&keeper.lock);
		user->next = keeper.users;
		keeper.users = user;
		pthread_mutex_unlock(&keeper.lock);
	}
	pthread_mutex_unlock(&keeper.gate);
	return rc;
}

void tw_sub_clock_leave(struct tw_sub_clock_user *user)
{
	pthread_mutex_lock(&keeper.gate);
	pthread_mutex_lock(&keeper.lock);
	struct tw_sub_clock_user **link = &keeper.users;
	while (*link != NULL && *link != user) {
		link = &(*link)->next;
	}
	if (*link != NULL) {
		*link = user->next;
	}
	bool last = keeper.users == NULL;
	keeper.stop = last;
	if (last) {
		pthread_cond_signal(&keeper.wake);
	}
	pthread_mutex_unlock(&keeper.lock);
	if (last) {
		pthread_join(keeper.thread, NULL);
		(void)pthread_cond_destroy(&keeper.wake);
	}
	pthread_mutex_unlock(&keeper.gate);
}
