/* Pinning and idling of hot threads. */
#include "base/cpu.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"

#define MAX_CPUS        8192 /* the most that Linux can be built for */
#define YIELD_AFTER     4u   /* empty turns that only pause: work often comes in pairs */
#define PAUSES_PER_TURN 4u
#define EVENT_SLEEP_NS  50000L
#define IDLE_WHY_BYTES  96

static pthread_once_t allowed_once = PTHREAD_ONCE_INIT;
static cpu_set_t allowed_set[MAX_CPUS / CPU_SETSIZE]; /* const after allowed_once */
static unsigned int allowed_count;

/* The main thread's mask, taken before the first pin, and not the caller's: a pinned thread may run
 * on one CPU, the process on all of these. */
static void read_allowed(void)
{
	CPU_ZERO_S(sizeof(allowed_set), allowed_set);
	if (sched_getaffinity(getpid(), sizeof(allowed_set), allowed_set) == 0) {
		allowed_count = (unsigned int)CPU_COUNT_S(sizeof(allowed_set), allowed_set);
	}
	if (allowed_count == 0) {
		long online = sysconf(_SC_NPROCESSORS_ONLN);
		allowed_count = online > 0 ? (unsigned int)online : 1;
		for (unsigned int cpu = 0; cpu < allowed_count && cpu < MAX_CPUS; cpu++) {
			CPU_SET_S(cpu, sizeof(allowed_set), allowed_set);
		}
	}
}

unsigned int tw_cpu_allowed(void)
{
	pthread_once(&allowed_once, read_allowed);
	return allowed_count;
}

/* "0-3,8" */
static void format_set(char *out, size_t out_bytes)
{
	size_t len = 0;
	out[0] = '\0';
	for (int cpu = 0; cpu < MAX_CPUS && len < out_bytes; cpu++) {
		if (!CPU_ISSET_S((size_t)cpu, sizeof(allowed_set), allowed_set)) {
			continue;
		}
		int last = cpu;
		while (last + 1 < MAX_CPUS &&
		       CPU_ISSET_S((size_t)last + 1, sizeof(allowed_set), allowed_set)) {
			last++;
		}
		const char *comma = len == 0 ? "" : ",";
		int n = last == cpu
				? snprintf(out + len, out_bytes - len, "%s%d", comma, cpu)
				: snprintf(out + len, out_bytes - len, "%s%d-%d", comma, cpu, last);
		len += n > 0 ? (size_t)n : 0;
		cpu = last;
	}
}

int tw_cpu_pin(int cpu, struct tw_error *err)
{
	if (cpu < 0) {
		return TW_OK;
	}
	(void)tw_cpu_allowed();
	if (cpu >= MAX_CPUS || !CPU_ISSET_S((size_t)cpu, sizeof(allowed_set), allowed_set)) {
		char set[128];
		format_set(set, sizeof(set));
		return tw_fail(err, TW_EARG, "cpu %d: not among the allowed ones: %s", cpu, set);
	}
	cpu_set_t one[MAX_CPUS / CPU_SETSIZE];
	CPU_ZERO_S(sizeof(one), one);
	CPU_SET_S((size_t)cpu, sizeof(one), one);
	int rc = pthread_setaffinity_np(pthread_self(), sizeof(one), one);
	if (rc != 0) {
		errno = rc;
		return tw_fail_sys(err, TW_ESYS, "cpu %d: pthread_setaffinity_np", cpu);
	}
	return TW_OK;
}

enum tw_idle_mode tw_idle_resolve(enum tw_idle_mode mode, unsigned int hot_threads,
				  const char **why)
{
	static _Thread_local char text[IDLE_WHY_BYTES];
	static const char *const names[] = { [TW_IDLE_AUTO] = "auto",
					     [TW_IDLE_SPIN] = "spin",
					     [TW_IDLE_YIELD] = "yield",
					     [TW_IDLE_EVENT] = "event" };
	bool automatic = mode == TW_IDLE_AUTO;
	unsigned int cpus = tw_cpu_allowed();
	if (automatic) {
		mode = hot_threads > cpus ? TW_IDLE_YIELD : TW_IDLE_SPIN;
	}
	if (why != NULL) {
		snprintf(text, sizeof(text), "%u hot thread%s on %u CPU%s: %s%s", hot_threads,
			 hot_threads == 1 ? "" : "s", cpus, cpus == 1 ? "" : "s", names[mode],
			 automatic ? "" : ", as configured");
		*why = text;
	}
	return mode;
}

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("isb" ::: "memory"); /* yield is a no-op on most arm64 cores */
#endif
}

void tw_idle_turn(struct tw_idle *idle)
{
	if (idle->empty_turns < UINT32_MAX) {
		idle->empty_turns++;
	}
	switch (idle->mode) {
	case TW_IDLE_SPIN:
		cpu_pause();
		return;
	case TW_IDLE_EVENT: {
		struct timespec ts = { .tv_nsec = EVENT_SLEEP_NS };
		clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL);
		return;
	}
	case TW_IDLE_AUTO: /* not resolved: the mode that is wrong nowhere */
	case TW_IDLE_YIELD:
		break;
	}
	if (idle->empty_turns > YIELD_AFTER) {
		sched_yield();
		return;
	}
	for (unsigned int i = 0; i < PAUSES_PER_TURN; i++) {
		cpu_pause();
	}
}
