/* Counters under threads: readers see whole values that never fall; a name has one owner. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/counters.h"

#define READERS    2
#define WRITERS    2
#define BUMPS      1000000u
#define STARTS     3000u
#define CONTENDERS 3u
#define HALVES     0x100000001u /* added each time: a value is torn where its halves differ */

static char dir[] = "/tmp/tw-stress-counters-XXXXXX";
static struct tw_counters groups[WRITERS];
static _Atomic unsigned int writers_left = WRITERS;
static _Atomic int owners; /* in this round */
static pthread_barrier_t round_barrier;
static _Atomic unsigned int passed, failed;

static void check(bool good, const char *what)
{
	atomic_fetch_add_explicit(good ? &passed : &failed, 1, memory_order_relaxed);
	if (!good) {
		fprintf(stderr, "stress_counters: %s\n", what);
	}
}

static void *bump(void *arg)
{
	const struct tw_counters *c = arg;
	struct tw_hist *hist = &c->hists[TW_SUB_CHANNEL_HIST_repair];
	for (unsigned int i = 1; i <= BUMPS; i++) {
		tw_counter_add(c, TW_SUB_CHANNEL_messages, HALVES);
		tw_counter_set(c, TW_SUB_CHANNEL_next_seq, i * (uint64_t)HALVES);
		tw_counter_max(c, TW_SUB_CHANNEL_held_max, i);
		tw_hist_record(hist, (int64_t)i);
	}
	atomic_fetch_sub_explicit(&writers_left, 1, memory_order_relaxed);
	return NULL;
}

static bool torn(uint64_t v)
{
	return (v >> 32) != (v & UINT32_MAX);
}

/* Watches through the writers' own mapping (where ThreadSanitizer sees both sides) and through the
 * file. */
static void *watch(void *arg)
{
	(void)arg;
	struct tw_stats_reader *r = NULL;
	struct tw_error err;
	if (tw_stats_open(&r, dir, "stress.counters", &err) != TW_OK) {
		check(false, err.text);
		return NULL;
	}
	uint64_t last[WRITERS] = { 0 };
	uint64_t last_count = 0;
	bool good = true;
	bool over = false;
	while (!over) {
		over = atomic_load_explicit(&writers_left, memory_order_relaxed) == 0;
		for (size_t i = 0; i < WRITERS; i++) {
			uint64_t v = tw_counter_get(&groups[i], TW_SUB_CHANNEL_messages);
			good = good && !torn(v) && v >= last[i];
			last[i] = v;
		}
		struct tw_stats_value v;
		tw_stats_value_at(r, TW_SUB_CHANNEL_next_seq, &v);
		good = good && !torn(v.value);
		struct tw_hist_summary s;
		struct tw_stats_hist h;
		tw_stats_hist_at(r, TW_SUB_CHANNEL_HIST_repair, &h);
		tw_hist_summarize(h.hist, &s);
		good = good && s.count >= last_count && s.p50_ns <= s.max_ns && s.max_ns <= BUMPS;
		last_count = s.count;
		tw_hist_summarize(&groups[1].hists[TW_SUB_CHANNEL_HIST_repair], &s);
		good = good && s.count <= BUMPS && s.p999_ns <= s.max_ns;
		sched_yield();
	}
	check(good, "a reader saw a torn or falling value");
	tw_stats_reader_close(r);
	return NULL;
}

static void check_values(void)
{
	pthread_t threads[READERS + WRITERS];
	struct tw_stats *stats = NULL;
	struct tw_error err;
	int rc = tw_stats_create(&stats, dir, "stress", "stress_counters", &err);
	for (int i = 0; i < WRITERS && rc == TW_OK; i++) {
		rc = tw_stats_add(stats, TW_SET_sub_channel, i == 0 ? "0" : "1", &groups[i], &err);
	}
	if (rc == TW_OK) {
		rc = tw_stats_seal(stats, &err);
	}
	if (rc != TW_OK) {
		check(false, err.text);
		tw_stats_close(stats, true);
		return;
	}
	int made = 0;
	for (; made < READERS + WRITERS; made++) {
		bool writes = made < WRITERS;
		if (pthread_create(&threads[made], NULL, writes ? bump : watch,
				   writes ? &groups[made] : NULL) != 0) {
			check(false, "pthread_create");
			exit(1);
		}
	}
	for (int i = 0; i < made; i++) {
		pthread_join(threads[i], NULL);
	}
	for (int i = 0; i < WRITERS; i++) {
		struct tw_hist_summary s;
		tw_hist_summarize(&groups[i].hists[TW_SUB_CHANNEL_HIST_repair], &s);
		check(tw_counter_get(&groups[i], TW_SUB_CHANNEL_messages) == BUMPS * HALVES &&
			      tw_counter_get(&groups[i], TW_SUB_CHANNEL_held_max) == BUMPS &&
			      s.count == BUMPS && s.max_ns == BUMPS,
		      "the sums are wrong at the end");
	}
	tw_stats_close(stats, true);
}

/* As processes that start under one name at the same moment, over and over: in each round all have
 * found the name free before the first one takes it. */
static void *contend(void *arg)
{
	bool checks = arg != NULL;
	bool one = true;
	bool understood = true;
	for (unsigned int i = 0; i < STARTS; i++) {
		struct tw_stats *stats = NULL;
		struct tw_counters c;
		int rc = tw_stats_create(&stats, dir, "contended", "p", NULL);
		if (rc == TW_OK) {
			rc = tw_stats_add(stats, TW_SET_loop, "", &c, NULL);
		}
		understood = understood && rc == TW_OK;
		pthread_barrier_wait(&round_barrier);
		if (rc == TW_OK) {
			rc = tw_stats_seal(stats, NULL);
		}
		understood = understood && (rc == TW_OK || rc == TW_EBUSY);
		atomic_fetch_add(&owners, rc == TW_OK ? 1 : 0);
		pthread_barrier_wait(&round_barrier);
		if (checks) {
			one = one && atomic_exchange(&owners, 0) == 1;
		}
		tw_stats_close(stats, true);
		pthread_barrier_wait(&round_barrier);
	}
	check(one, "a round without exactly one owner of the name");
	check(understood, "refused for another reason than TW_EBUSY");
	return NULL;
}

static void check_names(void)
{
	pthread_t threads[CONTENDERS];
	int yes = 1;
	if (pthread_barrier_init(&round_barrier, NULL, CONTENDERS) != 0) {
		check(false, "pthread_barrier_init");
		return;
	}
	for (size_t i = 0; i < CONTENDERS; i++) {
		if (pthread_create(&threads[i], NULL, contend, i == 0 ? &yes : NULL) != 0) {
			check(false, "pthread_create");
			exit(1);
		}
	}
	for (size_t i = 0; i < CONTENDERS; i++) {
		pthread_join(threads[i], NULL);
	}
	pthread_barrier_destroy(&round_barrier);
}

int main(void)
{
	if (mkdtemp(dir) == NULL) {
		perror("mkdtemp");
		return 1;
	}
	check_values();
	check_names();
	check(rmdir(dir) == 0, "a file was left behind");
	printf("stress_counters: %u passed, %u failed\n", atomic_load(&passed),
	       atomic_load(&failed));
	return atomic_load(&failed) != 0 ? 1 : 0;
}
