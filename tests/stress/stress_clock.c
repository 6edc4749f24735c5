/* The clock under threads: no torn curve, no time that runs backwards while another thread refits.
 *
 * Part one hammers the cell alone with curves whose words tell their generation; refits of the real
 * clock (part two) are far too rare to tear anything. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/clock_cell.h"

#define READERS      2
#define PUBLICATIONS 300000u
#define REFITS       3000u

static struct tw_clock_cell cell;
static _Atomic bool done;
static _Atomic unsigned int passed, failed;

static void check(bool good, const char *what)
{
	atomic_fetch_add_explicit(good ? &passed : &failed, 1, memory_order_relaxed);
	if (!good) {
		fprintf(stderr, "stress_clock: %s\n", what);
	}
}

static void *write_cell(void *arg)
{
	(void)arg;
	for (uint64_t g = 1; g <= PUBLICATIONS; g++) {
		/* each word its own multiple, so that words in the wrong place show as well */
		struct tw_clock_curve c = { g, 2 * g, 3 * g, 4 * g, 5 * g, 6 * g, 7 * g, 8 * g };
		tw_clock_cell_publish(&cell, &c);
		if (g % 1024 == 0) {
			sched_yield();
		}
	}
	atomic_store_explicit(&done, true, memory_order_relaxed);
	return NULL;
}

static bool whole(const struct tw_clock_curve *c, uint64_t g)
{
	return c->old_tsc == g && c->old_ns == 2 * g && c->old_mult == 3 * g &&
	       c->join_tsc == 4 * g && c->slew_mult == 5 * g && c->end_tsc == 6 * g &&
	       c->end_ns == 7 * g && c->mult == 8 * g;
}

static void *read_cell(void *arg)
{
	(void)arg;
	uint64_t held = 0;
	uint64_t last = 0;
	bool torn = false;
	bool backwards = false;
	bool over = false;
	while (!over) {
		/* one more turn after the end, so that everybody has read the last one */
		over = atomic_load_explicit(&done, memory_order_relaxed);
		struct tw_clock_curve c;
		uint64_t g = tw_clock_cell_read(&cell, &c);
		if (g == 0 || !tw_clock_cell_holds(&cell, g)) {
			continue;
		}
		held++;
		torn = torn || !whole(&c, g);
		backwards = backwards || g < last;
		last = g;
	}
	check(held > 0, "a reader never got a curve");
	check(!torn, "a torn curve was taken for whole");
	check(!backwards, "a reader went back to an older curve");
	return NULL;
}

static uint64_t real_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static _Atomic bool stepped; /* somebody set the machine's clock: nothing can be said then */

static void *refit(void *arg)
{
	(void)arg;
	for (unsigned int i = 0; i < REFITS; i++) {
		if (tw_clock_refit(NULL)) {
			atomic_store_explicit(&stepped, true, memory_order_relaxed);
		}
		struct timespec pause = { .tv_nsec = 200000 };
		nanosleep(&pause, NULL); /* a curve lives for 50 ms at least: spread over several */
	}
	atomic_store_explicit(&done, true, memory_order_relaxed);
	return NULL;
}

static void *read_wall(void *arg)
{
	(void)arg;
	uint64_t last = 0;
	bool backwards = false;
	bool off = false;
	while (!atomic_load_explicit(&done, memory_order_relaxed)) {
		uint64_t before = real_ns();
		for (int i = 0; i < 100; i++) {
			uint64_t now = tw_wall_ns();
			backwards = backwards || now < last;
			last = now;
		}
		uint64_t after = real_ns();
		off = off || last + TW_CLOCK_STEP_NS < before || last > after + TW_CLOCK_STEP_NS;
		sched_yield();
	}
	bool excused = atomic_load_explicit(&stepped, memory_order_relaxed);
	check(!backwards || excused, "the wall clock ran backwards");
	check(!off || excused, "the wall clock is not CLOCK_REALTIME");
	return NULL;
}

static void run(void *(*writer)(void *), void *(*reader)(void *))
{
	pthread_t threads[READERS + 1];
	atomic_store_explicit(&done, false, memory_order_relaxed);
	int made = 0;
	for (; made < READERS + 1; made++) {
		if (pthread_create(&threads[made], NULL, made == 0 ? writer : reader, NULL) != 0) {
			check(false, "pthread_create");
			break;
		}
	}
	for (int i = 0; i < made; i++) {
		pthread_join(threads[i], NULL);
	}
}

int main(void)
{
	run(write_cell, read_cell);
	tw_clock_init();
	run(refit, read_wall);
	printf("stress_clock (%s): %u passed, %u failed\n", tw_clock_source(), atomic_load(&passed),
	       atomic_load(&failed));
	return atomic_load(&failed) != 0 ? 1 : 0;
}
