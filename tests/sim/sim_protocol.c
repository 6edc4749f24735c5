/* The protocol under a seeded network: many small worlds (world.h), each from one seed.
 *
 *   sim_protocol [--seeds N] [--first S]      N worlds (10,000) from seed S (1) on, one of 1,000 subscribers
 *   sim_protocol --seed S [--verbose]         replays one
 *   --subscribers N                           so many in each world
 *   --stop                                    leaves with the first failure
 *
 * Prints "sim_protocol: N passed, N failed"; a failure prints its seed and the command that replays it.
 * Exit status 0 when all passed. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/world.h"

#define CROWD         1000u
#define CROWD_SEEDS   2u
#define REPEAT_EVERY  97u /* every so manieth world runs twice and must do the same */
#define MAX_REPORTED  10u
#define DEFAULT_SEEDS 10000u

struct options {
	uint64_t seeds, first, seed;
	uint32_t subscribers;
	bool one, verbose, stop;
};

struct totals {
	uint64_t passed, failed;
	struct tw_world_result sum;
	uint64_t gentle, repairs, healing;
};

static void add(struct totals *totals, const struct tw_world_result *r)
{
	struct tw_world_result *s = &totals->sum;

	totals->gentle += r->gentle ? 1 : 0;
	totals->repairs += r->repairs ? 1 : 0;
	totals->healing += r->healing ? 1 : 0;
	s->events += r->events;
	s->data_msgs += r->data_msgs;
	s->lost_msgs += r->lost_msgs;
	s->gaps += r->gaps;
	s->fills += r->fills;
	s->ahead += r->ahead;
	s->ends += r->ends;
	s->holes += r->holes;
	s->crashes += r->crashes;
	s->sessions += r->sessions;
	s->cuts += r->cuts;
	s->stalls += r->stalls;
	s->restarts += r->restarts;
	s->store_full += r->store_full;
	s->set_aside += r->set_aside;
	s->overflowed += r->overflowed;
	s->downs += r->downs;
	s->takeovers += r->takeovers;
	s->repaired_msgs += r->repaired_msgs;
	s->reads += r->reads;
	s->retries += r->retries;
	s->gone += r->gone;
	s->refused += r->refused;
	s->busy += r->busy;
	s->broken += r->broken;
	s->overdue += r->overdue;
	s->ignored += r->ignored;
	s->given_up += r->given_up;
}

static void run_one(struct totals *totals, const struct tw_world_conf *conf, bool twice)
{
	struct tw_world_result result;
	struct tw_world_result again;

	tw_world_run(conf, &result);
	if (result.passed && twice) {
		tw_world_run(conf, &again);
		if (again.trace_hash != result.trace_hash || again.events != result.events) {
			result.passed = false;
			(void)snprintf(result.error, sizeof(result.error),
				       "the same seed did not do the same again");
		}
	}
	add(totals, &result);
	if (result.passed) {
		totals->passed++;
		return;
	}
	totals->failed++;
	if (totals->failed <= MAX_REPORTED) {
		printf("seed %" PRIu64 ": %s\n  replay: sim_protocol --seed %" PRIu64, conf->seed,
		       result.error, conf->seed);
		if (conf->subscribers != 0) {
			printf(" --subscribers %" PRIu32, conf->subscribers);
		}
		printf(" --verbose\n");
		(void)fflush(stdout);
	}
}

/* A run in which something never happened has not tested it. */
static bool covers(const struct totals *totals)
{
	const struct tw_world_result *s = &totals->sum;
	const struct {
		const char *what;
		uint64_t count;
	} rows[] = { { "gentle worlds", totals->gentle },
		     { "messages", s->data_msgs },
		     { "lost messages", s->lost_msgs },
		     { "gaps", s->gaps },
		     { "gaps filled", s->fills },
		     { "runs ahead of a gap", s->ahead },
		     { "ends", s->ends },
		     { "holes", s->holes },
		     { "publisher crashes", s->crashes },
		     { "sessions", s->sessions },
		     { "cuts", s->cuts },
		     { "stalls", s->stalls },
		     { "subscriber restarts", s->restarts },
		     { "full stores", s->store_full },
		     { "set aside", s->set_aside },
		     { "queue overflows", s->overflowed },
		     { "lines down", s->downs },
		     { "lower sessions", s->takeovers },
		     { "worlds with repair", totals->repairs },
		     { "healing worlds", totals->healing },
		     { "messages from history", s->repaired_msgs },
		     { "reads", s->reads },
		     { "retries", s->retries },
		     { "reads gone", s->gone },
		     { "refused", s->refused },
		     { "busy", s->busy },
		     { "broken", s->broken },
		     { "overdue", s->overdue },
		     { "answers to nobody", s->ignored },
		     { "messages given up", s->given_up } };
	bool all = true;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		printf("%s%" PRIu64 " %s", i == 0 ? "" : ", ", rows[i].count, rows[i].what);
		all = all && rows[i].count != 0;
	}
	printf("\n");
	return all;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end = NULL;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return errno == 0 && end != text && *end == '\0' && text[0] != '-';
}

static bool parse_options(struct options *o, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		uint64_t value = 0;
		if (strcmp(argv[i], "--verbose") == 0) {
			o->verbose = true;
			continue;
		}
		if (strcmp(argv[i], "--stop") == 0) {
			o->stop = true;
			continue;
		}
		if (i + 1 == argc || !parse_number(argv[i + 1], &value)) {
			return false;
		}
		if (strcmp(argv[i], "--seeds") == 0) {
			o->seeds = value;
		} else if (strcmp(argv[i], "--first") == 0) {
			o->first = value;
		} else if (strcmp(argv[i], "--seed") == 0) {
			o->seed = value;
			o->one = true;
		} else if (strcmp(argv[i], "--subscribers") == 0 && value <= 4096) {
			o->subscribers = (uint32_t)value;
		} else {
			return false;
		}
		i++;
	}
	return true;
}

/* --stop: with the first failure. */
static bool ends(const struct options *options, const struct totals *totals)
{
	return options->stop && totals->failed != 0;
}

int main(int argc, char **argv)
{
	struct options options = { .seeds = DEFAULT_SEEDS, .first = 1 };
	struct totals totals = { 0 };
	struct tw_world_conf conf = { 0 };

	if (!parse_options(&options, argc, argv)) {
		(void)fprintf(stderr, "usage: sim_protocol [--seeds N] [--first S] [--seed S] "
				      "[--subscribers N] [--verbose] [--stop]\n");
		return 64;
	}
	conf.subscribers = options.subscribers;
	conf.verbose = options.verbose;
	if (options.one) {
		conf.seed = options.seed;
		run_one(&totals, &conf, false);
	} else {
		for (uint64_t i = 0; i < options.seeds && !ends(&options, &totals); i++) {
			conf.seed = options.first + i;
			run_one(&totals, &conf, conf.seed % REPEAT_EVERY == 0);
		}
		conf.subscribers = CROWD;
		for (uint64_t i = 0; i < CROWD_SEEDS && !ends(&options, &totals); i++) {
			conf.seed = options.first + i;
			run_one(&totals, &conf, false);
		}
		if (!ends(&options, &totals) && !covers(&totals) && options.seeds >= 1000) {
			printf("something above never happened\n");
			totals.failed++;
		}
	}
	printf("sim_protocol: %" PRIu64 " passed, %" PRIu64 " failed\n", totals.passed,
	       totals.failed);
	return totals.failed == 0 ? 0 : 1;
}
