/* tw-demo: the whole way of the data on one machine, for about ten seconds.  Generates a feed, sends
 * it through feedhandler and publisher to two subscribers over `udp` on `lo`, losing datagrams on
 * both lines, and shows from the programs' own counters what became of it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/fail.h"
#include "base/options.h"
#include "tools/launch.h"

#define SUBSCRIBERS      2u
#define LATE             1u /* this one comes when the session is under way, and begins live */
#define LATE_NS          2000000000ull
#define READY_TIMEOUT_MS 20000u
#define END_TIMEOUT_NS   60000000000ull
#define PROGRESS_NS      1000000000ull

static const char usage_text[] =
	"usage: tw-demo [--seconds N] [--rate N] [--loss PCT] [--seed N] [--verbose]\n"
	"Generates N seconds (default 10) of a feed at N messages a second (default 50000), sends "
	"it\n"
	"through feedhandler and publisher to two subscribers over udp on lo, loses PCT percent\n"
	"(default 1) of the datagrams independently on each line, and prints what became of it.\n"
	"Exit status 0 if every message was delivered to each subscriber or reported as lost.\n";

struct demo {
	struct tw_launch launch;
	int signal_fd;
	uint32_t seconds, rate;
	uint64_t seed;
	const char *loss_pct, *loss_both_pct;
	int feed, pub, sub[SUBSCRIBERS];
	struct tw_stats_reader *sub_stats[SUBSCRIBERS], *pub_stats;
};

/* Sum over all groups of one set, or those whose label ends with `suffix`. */
static uint64_t counter_sum(const struct tw_stats_reader *reader, const char *group,
			    const char *name, const char *suffix)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < tw_stats_value_count(reader); i++) {
		struct tw_stats_value v;
		tw_stats_value_at(reader, i, &v);
		size_t label = strlen(v.label), end = suffix != NULL ? strlen(suffix) : 0;
		if (strcmp(v.group, group) == 0 && strcmp(v.name, name) == 0 && label >= end &&
		    (end == 0 || strcmp(v.label + label - end, suffix) == 0)) {
			sum += v.value;
		}
	}
	return sum;
}

static const struct tw_hist *find_hist(const struct tw_stats_reader *reader, const char *group,
				       const char *name)
{
	for (uint32_t i = 0; i < tw_stats_hist_count(reader); i++) {
		struct tw_stats_hist h;
		tw_stats_hist_at(reader, i, &h);
		if (strcmp(h.group, group) == 0 && strcmp(h.name, name) == 0) {
			return h.hist;
		}
	}
	return NULL;
}

static int generate(struct demo *demo, const char *path, struct tw_error *err)
{
	char seed[24], messages[24], rate[24];
	snprintf(seed, sizeof(seed), "%" PRIu64, demo->seed);
	snprintf(messages, sizeof(messages), "%" PRIu64, (uint64_t)demo->seconds * demo->rate);
	snprintf(rate, sizeof(rate), "%" PRIu32, demo->rate);
	char *argv[] = { "tw-gen", "--protocol", "tops16", "--seed",   seed,         "--messages",
			 messages, "--rate",     rate,     "--output", (char *)path, NULL };
	int gen = tw_launch_start(&demo->launch, "tw-gen", argv, -1, err);
	if (gen < 0) {
		return gen;
	}
	const struct tw_launch_child *child = &demo->launch.children[gen];
	while (!child->exited) {
		if (tw_launch_turn(&demo->launch, demo->signal_fd, 1000) != 0) {
			return tw_fail(err, TW_ESTATE, "stopped by a signal");
		}
	}
	if (child->status != 0) {
		return tw_fail(err, TW_ECLOSED, "tw-gen left with %d: %s", child->status,
			       child->last);
	}
	return TW_OK;
}

/* `start`: where it begins if the session has begun without it. */
static int start_subscriber(struct demo *demo, uint32_t i, const char *start, struct tw_error *err)
{
	struct tw_launch *l = &demo->launch;
	char name[] = "sub1", file[] = "sub1.counters";
	name[3] = file[3] = (char)('1' + i);
	char *argv[] = { "tw-subscribe", "-c",      l->site_path,  "--as",
			 "local",        "--name",  name,          "--format",
			 "none",         "--start", (char *)start, NULL };
	int sub = tw_launch_start(l, "tw-subscribe", argv, -1, err);
	if (sub < 0) {
		return sub;
	}
	int rc = tw_launch_wait_ready(l, (uint32_t)sub, demo->signal_fd, READY_TIMEOUT_MS, err);
	if (rc != TW_OK) {
		return rc;
	}
	demo->sub[i] = sub;
	return tw_stats_open(&demo->sub_stats[i], l->run_dir, file, err);
}

/* All but the subscriber that comes late. */
static int start_all(struct demo *demo, struct tw_error *err)
{
	struct tw_launch *l = &demo->launch;
	for (uint32_t i = 0; i < LATE; i++) {
		int rc = start_subscriber(demo, i, "session", err);
		if (rc != TW_OK) {
			return rc;
		}
	}
	char *pub_argv[] = { "tw-publisher", "-c", l->site_path, "--as", "pub", NULL };
	demo->pub = tw_launch_start(l, "tw-publisher", pub_argv, -1, err);
	if (demo->pub < 0) {
		return demo->pub;
	}
	int rc = tw_launch_wait_ready(l, (uint32_t)demo->pub, demo->signal_fd, READY_TIMEOUT_MS,
				      err);
	if (rc == TW_OK) {
		rc = tw_stats_open(&demo->pub_stats, l->run_dir, "pub.counters", err);
	}
	if (rc != TW_OK) {
		return rc;
	}
	char *fh_argv[] = { "tw-feedhandler", "-c", l->site_path, "--as", "feed", NULL };
	demo->feed = tw_launch_start(l, "tw-feedhandler", fh_argv, -1, err);
	return demo->feed < 0 ? demo->feed : TW_OK;
}

static void progress(const struct demo *demo, double seconds)
{
	printf("  %4.1f s  sent %8" PRIu64, seconds,
	       counter_sum(demo->pub_stats, "pub_channel", "messages", NULL));
	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		const struct tw_stats_reader *s = demo->sub_stats[i];
		if (s == NULL) {
			printf("  | subscriber %u comes late", i + 1);
			continue;
		}
		printf("  | subscriber %u: %8" PRIu64 " delivered, %4" PRIu64 " gaps, %3" PRIu64
		       " lost",
		       i + 1, counter_sum(s, "sub_channel", "messages", NULL),
		       counter_sum(s, "sub_channel", "gaps", NULL),
		       counter_sum(s, "sub_channel", "lost_messages", NULL));
	}
	printf("\n");
	fflush(stdout);
}

/* Until both subscribers have seen the end of the session. */
static int watch(struct demo *demo, double *seconds, struct tw_error *err)
{
	const struct tw_launch_child *c = demo->launch.children;
	uint64_t begin_ns = tw_mono_ns(), next_ns = begin_ns + PROGRESS_NS;
	uint64_t limit_ns = begin_ns + (uint64_t)demo->seconds * 1000000000u + END_TIMEOUT_NS;
	for (;;) {
		uint64_t now_ns = tw_mono_ns();
		uint32_t ended = 0;
		if (demo->sub_stats[LATE] == NULL && now_ns - begin_ns >= LATE_NS) {
			int rc = start_subscriber(demo, LATE, "live", err);
			if (rc != TW_OK) {
				return rc;
			}
		}
		for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
			if (demo->sub_stats[i] == NULL) {
				continue;
			}
			if (c[demo->sub[i]].exited) {
				return tw_fail(err, TW_ECLOSED, "subscriber %u left with %d: %s",
					       i + 1, c[demo->sub[i]].status, c[demo->sub[i]].last);
			}
			ended += counter_sum(demo->sub_stats[i], "sub_channel", "sessions_ended",
					     NULL) != 0;
		}
		*seconds = (double)(now_ns - begin_ns) / 1e9;
		if (ended == SUBSCRIBERS) {
			progress(demo, *seconds);
			return TW_OK;
		}
		if (c[demo->pub].exited || (c[demo->feed].exited && c[demo->feed].status != 0)) {
			const struct tw_launch_child *dead =
				c[demo->pub].exited ? &c[demo->pub] : &c[demo->feed];
			return tw_fail(err, TW_ECLOSED, "%s left with %d: %s", dead->name,
				       dead->status, dead->last);
		}
		if (now_ns >= limit_ns) {
			return tw_fail(err, TW_ETIMEOUT, "the session did not end");
		}
		if (now_ns >= next_ns) {
			progress(demo, *seconds);
			next_ns += PROGRESS_NS;
		}
		uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
		/* the end of a session is a counter, not a descriptor: looked at ten times a second */
		int wait_ms = (int)(wait_ns / 1000000u) + 1;
		if (tw_launch_turn(&demo->launch, demo->signal_fd, wait_ms < 100 ? wait_ms : 100) !=
		    0) {
			return tw_fail(err, TW_ESTATE, "stopped by a signal");
		}
	}
}

static void print_leg(const char *title, const struct tw_hist *hist)
{
	struct tw_hist_summary s = { 0 };
	if (hist != NULL) {
		tw_hist_summarize(hist, &s);
	}
	if (s.count == 0) {
		printf("  %-34s %10s\n", title, "no samples");
		return;
	}
	printf("  %-34s %10.1f %10.1f %10.1f %10.1f   %" PRIu64 "\n", title, (double)s.p50_ns / 1e3,
	       (double)s.p99_ns / 1e3, (double)s.p999_ns / 1e3, (double)s.max_ns / 1e3, s.count);
}

static void print_tables(const struct demo *demo, double seconds)
{
	uint64_t sent = counter_sum(demo->pub_stats, "pub_channel", "messages", NULL);
	uint64_t dgrams = counter_sum(demo->pub_stats, "pub_channel", "datagrams", NULL);
	uint64_t bytes = counter_sum(demo->pub_stats, "pub_channel", "bytes", NULL);
	printf("\npublisher     %" PRIu64 " messages in %" PRIu64
	       " datagrams: %.0f messages/s, %.0f datagrams/s, %.1f messages a datagram, %.1f "
	       "Mbit/s a line\n",
	       sent, dgrams, (double)sent / seconds, (double)dgrams / seconds,
	       dgrams != 0 ? (double)sent / (double)dgrams : 0.0,
	       (double)bytes * 8 / seconds / 1e6);

	printf("\n%-13s %4s %10s %10s %10s %10s %10s %10s\n", "line use", "line", "datagrams",
	       "first", "duplicate", "dropped", "missing", "reordered");
	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		for (int line = 0; line < 2; line++) {
			char suffix[] = "line a";
			suffix[5] = (char)('a' + line);
			const struct tw_stats_reader *s = demo->sub_stats[i];
			printf("subscriber %u  %4c", i + 1, 'A' + line);
			static const char *const names[] = { "datagrams",  "first",
							     "duplicates", "fault_dropped",
							     "missing",    "reordered" };
			for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
				printf(" %10" PRIu64, counter_sum(s, "sub_line", names[n], suffix));
			}
			printf("\n");
		}
	}

	printf("\n%-36s %10s %10s %10s %10s   samples\n", "latency, us", "p50", "p99", "p99.9",
	       "max");
	print_leg("exchange -> feedhandler",
		  find_hist(demo->sub_stats[0], "sub_channel", "exchange_to_feedhandler"));
	print_leg("feedhandler -> sent",
		  find_hist(demo->sub_stats[0], "sub_channel", "feedhandler_to_sent"));
	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		const struct tw_stats_reader *s = demo->sub_stats[i];
		char title[48];
		snprintf(title, sizeof(title), "subscriber %u: sent -> received", i + 1);
		print_leg(title, find_hist(s, "sub_channel", "sent_to_received"));
		snprintf(title, sizeof(title), "subscriber %u: received -> consumed", i + 1);
		print_leg(title, find_hist(s, "sub_channel", "received_to_consumed"));
		snprintf(title, sizeof(title), "subscriber %u: gap repaired", i + 1);
		print_leg(title, find_hist(s, "sub_channel", "repair"));
	}
	printf("  (all processes share %u CPUs; stamps are taken when polled, so queueing "
	       "counts)\n",
	       tw_cpu_allowed());
}

/* The one line.  Each subscriber is owed what was sent from where it began; the early one's figure
 * stands for delivered, the worse one's for the rest.  0 if the books balance. */
static int verdict(const struct demo *demo)
{
	uint64_t sent = counter_sum(demo->pub_stats, "pub_channel", "messages", NULL);
	uint64_t delivered = 0, gaps = 0, by_line = 0, by_history = 0, lost = 0;
	bool balanced = sent >= (uint64_t)demo->seconds * demo->rate;
	printf("\n");
	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		const struct tw_stats_reader *s = demo->sub_stats[i];
		uint64_t first = counter_sum(s, "sub_channel", "first_seq", NULL);
		uint64_t owed = sent + 1 - first;
		uint64_t d = counter_sum(s, "sub_channel", "messages", NULL);
		uint64_t l = counter_sum(s, "sub_channel", "lost_messages", NULL);
		uint64_t g = counter_sum(s, "sub_channel", "gaps", NULL);
		uint64_t rl = counter_sum(s, "sub_channel", "repaired_by_line", NULL);
		uint64_t rh = counter_sum(s, "sub_channel", "repaired_by_history", NULL);
		delivered = i == 0 ? d : delivered;
		lost = l > lost ? l : lost;
		gaps = g > gaps ? g : gaps;
		by_line = rl > by_line ? rl : by_line;
		by_history = rh > by_history ? rh : by_history;
		printf("subscriber %u %s at message %" PRIu64 ": %" PRIu64 " of %" PRIu64
		       " delivered, %" PRIu64 " lost\n",
		       i + 1, first == 1 ? "began" : "joined live", first, d, owed, l);
		if (d + l != owed) {
			printf("subscriber %u: delivered and lost are not what was sent\n", i + 1);
			balanced = false;
		}
	}
	printf("\ndemo: %" PRIu64 " messages, %" PRIu64 " delivered to each subscriber, %" PRIu64
	       " gaps, %" PRIu64 " repaired by line, %" PRIu64 " by history, %" PRIu64 " lost\n",
	       sent, delivered, gaps, by_line, by_history, lost);
	return balanced ? 0 : 1;
}

static int run(struct demo *demo)
{
	struct tw_error err = { 0 };
	char capture[TW_PATH_BYTES + 32];
	int rc = tw_launch_init(&demo->launch, &err);
	if (rc == TW_OK) {
		snprintf(capture, sizeof(capture), "%s/feed.pcap", demo->launch.dir);
		printf("generating %" PRIu32 " s of TOPS 1.6 at %" PRIu32
		       " messages/s (seed %" PRIu64 ")\n",
		       demo->seconds, demo->rate, demo->seed);
		fflush(stdout);
		rc = generate(demo, capture, &err);
	}
	const char *files[] = { capture };
	struct tw_launch_site site = {
		.protocol = "tops16",
		.depth = "quotes",
		.files = files,
		.file_count = 1,
		.speed_pct = 100,
		.restamp = true,
		.repair = true,
		.loss_both_pct = demo->loss_both_pct,
		.seed = demo->seed,
		.loss_pct = { demo->loss_pct, demo->loss_pct },
	};
	if (rc == TW_OK) {
		rc = tw_launch_write_site(&demo->launch, &site, &err);
	}
	if (rc == TW_OK) {
		printf("feedhandler -> publisher -> 2 subscribers over udp on lo, lines A and B; "
		       "%s %% of datagrams lost on each, %s %% on both at once\n",
		       demo->loss_pct, demo->loss_both_pct);
		fflush(stdout);
		rc = start_all(demo, &err);
	}
	double seconds = 0;
	if (rc == TW_OK) {
		rc = watch(demo, &seconds, &err);
	}
	if (rc != TW_OK) {
		fprintf(stderr, "tw-demo: %s\n", err.text);
		return tw_exit_status(rc);
	}
	print_tables(demo, seconds);
	return verdict(demo);
}

/* Exit status to leave with, or -1 to go on. */
static int parse_options(struct demo *demo, int argc, char **argv)
{
	static const struct option options[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "rate", required_argument, NULL, 'r' },
		{ "loss", required_argument, NULL, 'l' },
		{ "seed", required_argument, NULL, 'S' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ NULL, 0, NULL, 0 },
	};
	struct tw_error err = { 0 };
	uint32_t ppm; /* it goes into the configuration as it was typed */
	int rc = TW_OK;
	int c;
	while (rc == TW_OK && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 's':
			rc = tw_option_u32("seconds", optarg, 1, 3600, &demo->seconds, &err);
			break;
		case 'r':
			rc = tw_option_u32("rate", optarg, 1, 10000000, &demo->rate, &err);
			break;
		case 'S':
			rc = tw_option_u64("seed", optarg, 0, UINT32_MAX, &demo->seed, &err);
			break;
		case 'l':
			rc = tw_option_ppm("loss", optarg, &ppm, &err);
			demo->loss_pct = optarg;
			break;
		case 'v':
			demo->launch.verbose = true;
			break;
		case 'h':
			fputs(usage_text, stdout);
			return 0;
		case 'V':
			puts("tw-demo " TW_VERSION);
			return 0;
		default:
			return tw_usage_error("tw-demo", NULL);
		}
	}
	if (rc == TW_OK && optind != argc) {
		rc = tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind]);
	}
	return rc != TW_OK ? tw_usage_error("tw-demo", &err) : -1;
}

int main(int argc, char **argv)
{
	static struct demo demo = {
		.seconds = 8, .rate = 50000, .seed = 1, .loss_pct = "1", .loss_both_pct = "0.5"
	};
	int status = parse_options(&demo, argc, argv);
	if (status >= 0) {
		return status;
	}
	struct tw_error err = { 0 };
	demo.signal_fd = tw_launch_signal_fd(&err);
	if (demo.signal_fd < 0) {
		fprintf(stderr, "tw-demo: %s\n", err.text);
		return 71;
	}
	status = run(&demo);
	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		tw_stats_reader_close(demo.sub_stats[i]);
	}
	tw_stats_reader_close(demo.pub_stats);
	tw_launch_fini(&demo.launch);
	close(demo.signal_fd);
	return status;
}
