/* Pinning and idling. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu.h"

TestSuite(cpu, .timeout = 60);

static int first_allowed(void)
{
	cpu_set_t set;
	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET((size_t)cpu, &set)) {
			return cpu;
		}
	}
	return -1;
}

static int last_allowed(void)
{
	cpu_set_t set;
	int last = -1;
	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET((size_t)cpu, &set)) {
			last = cpu;
		}
	}
	return last;
}

Test(cpu, allowed_is_the_process_not_the_pinned_thread)
{
	cpu_set_t set;
	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	cr_assert_eq(tw_cpu_allowed(), (unsigned int)CPU_COUNT(&set));
	cr_assert_eq(tw_cpu_pin(first_allowed(), NULL), TW_OK);
	cr_assert_eq(tw_cpu_allowed(), (unsigned int)CPU_COUNT(&set));
}

static void *ask_from_one_cpu(void *arg)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)first_allowed(), &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0) {
		return NULL;
	}
	*(unsigned int *)arg = tw_cpu_allowed(); /* the process's first look */
	return NULL;
}

Test(cpu, a_bound_thread_may_ask_first)
{
	cpu_set_t set;
	pthread_t thread;
	unsigned int answer = 0;
	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	cr_assert_eq(pthread_create(&thread, NULL, ask_from_one_cpu, &answer), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(answer, (unsigned int)CPU_COUNT(&set)); /* tells only where there are two */
}

Test(cpu, a_pinned_thread_runs_there_and_may_be_moved)
{
	int last = last_allowed();
	int first = first_allowed();
	cr_assert_eq(tw_cpu_pin(first, NULL), TW_OK);
	cr_assert_eq(sched_getcpu(), first);
	cr_assert_eq(tw_cpu_pin(-1, NULL), TW_OK); /* leaves it alone */
	cr_assert_eq(sched_getcpu(), first);
	cr_assert_eq(tw_cpu_pin(last, NULL), TW_OK);
	cr_assert_eq(sched_getcpu(), last);
}

Test(cpu, a_cpu_that_is_not_ours_is_named)
{
	struct tw_error err;
	static const int bad[] = { 8191, 8192, INT32_MAX };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char name[32];
		snprintf(name, sizeof(name), "cpu %d:", bad[i]);
		cr_assert_eq(tw_cpu_pin(bad[i], &err), TW_EARG);
		cr_assert_not_null(strstr(err.text, name), "%s", err.text);
	}
}

Test(cpu, the_allowed_set_is_listed)
{
	cpu_set_t one;
	struct tw_error err;
	char expected[64];
	int cpu = last_allowed();
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0); /* before the first look */
	cr_assert_eq(tw_cpu_allowed(), 1);
	snprintf(expected, sizeof(expected), "cpu %d: not among the allowed ones: %d", cpu + 1,
		 cpu);
	cr_assert_eq(tw_cpu_pin(cpu + 1, &err), TW_EARG);
	cr_assert_str_eq(err.text, expected);
}

Test(cpu, auto_spins_while_there_are_cpus_and_says_why)
{
	const char *why = NULL;
	char expected[96];
	unsigned int n = tw_cpu_allowed();
	cr_assert_eq(tw_idle_resolve(TW_IDLE_AUTO, n, &why), TW_IDLE_SPIN);
	snprintf(expected, sizeof(expected), "%u hot thread%s on %u CPU%s: spin", n,
		 n == 1 ? "" : "s", n, n == 1 ? "" : "s");
	cr_assert_str_eq(why, expected);
	cr_assert_eq(tw_idle_resolve(TW_IDLE_AUTO, n + 1, &why), TW_IDLE_YIELD);
	snprintf(expected, sizeof(expected), "%u hot threads on %u CPU%s: yield", n + 1, n,
		 n == 1 ? "" : "s");
	cr_assert_str_eq(why, expected);
	cr_assert_eq(tw_idle_resolve(TW_IDLE_AUTO, 1, NULL), TW_IDLE_SPIN);
}

Test(cpu, a_configured_mode_stays)
{
	static const enum tw_idle_mode modes[] = { TW_IDLE_SPIN, TW_IDLE_YIELD, TW_IDLE_EVENT };
	for (size_t i = 0; i < 3; i++) {
		const char *why = NULL;
		cr_assert_eq(tw_idle_resolve(modes[i], 1000000, &why), modes[i]);
		cr_assert_not_null(strstr(why, "as configured"));
	}
}

Test(cpu, idle_turns_count_up_to_the_reset)
{
	static const enum tw_idle_mode modes[] = { TW_IDLE_SPIN, TW_IDLE_YIELD, TW_IDLE_EVENT };
	for (size_t i = 0; i < 3; i++) {
		struct tw_idle idle = { .mode = modes[i] };
		for (uint32_t n = 1; n <= 20; n++) {
			tw_idle_turn(&idle);
			cr_assert_eq(idle.empty_turns, n);
		}
		tw_idle_reset(&idle);
		cr_assert_eq(idle.empty_turns, 0);
		idle.empty_turns = UINT32_MAX;
		tw_idle_turn(&idle);
		cr_assert_eq(idle.empty_turns, UINT32_MAX); /* a month of spinning must not wrap */
	}
}
