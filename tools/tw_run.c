/* tw-run: the newcomer's way to see an own capture.  Starts feedhandler, publisher and subscriber over
 * `udp` on `lo` with a configuration that it writes itself; the subscriber's messages, and nothing
 * else, go to standard output, the summary to standard error. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/options.h"
#include "tools/launch.h"

#define READY_TIMEOUT_MS 20000u
#define END_TIMEOUT_NS   30000000000ull /* from the feedhandler's end to the subscriber's */
#define MAX_FILES        64u

static const char usage_text[] =
	"usage: tw-run [options] FILE...\n"
	"Sends recorded exchange feeds through feedhandler, publisher and subscriber on this "
	"machine\n"
	"and prints the messages, in order, one a line.  Several FILEs are read one after the "
	"other.\n"
	"\n"
	"  --protocol P       of the feed (default tops16)\n"
	"  --depth D          quotes, levels or orders (default quotes)\n"
	"  --format F         json, text or none (default json)\n"
	"  --summary FILE     write the JSON summary there instead of standard error\n"
	"  --rate N           at most N messages a second (default 50000), 0: no limit\n"
	"  --speed PCT        100: with the timing of the capture, 0: not by time (default)\n"
	"  --loss PCT         lose datagrams, independently on each line\n"
	"  --loss-a PCT, --loss-b PCT   on one line\n"
	"  --loss-both PCT    lose datagrams on both lines at once\n"
	"  --duplicate PCT, --reorder PCT   on both lines\n"
	"  --seed N           of the losses (default 1)\n"
	"  --no-repair        what no line brings is lost, not read from the history\n"
	"  --verbose          the programs' log lines on standard error\n"
	"  --keep             leave configuration and run_dir behind, and say where\n"
	"  --help, --version\n"
	"\n"
	"Exit status: 0 if the session ended and nothing was lost, 1 if something was lost,\n"
	"64 usage, 65 a file is no capture, 69 a program could not do its part.\n";

struct options {
	struct tw_launch_site site;
	const char *format;
	const char *summary;
	bool verbose, keep;
};

enum {
	OPT_PROTOCOL = 256,
	OPT_DEPTH,
	OPT_FORMAT,
	OPT_SUMMARY,
	OPT_RATE,
	OPT_SPEED,
	OPT_LOSS,
	OPT_LOSS_A,
	OPT_LOSS_B,
	OPT_LOSS_BOTH,
	OPT_DUPLICATE,
	OPT_REORDER,
	OPT_SEED,
	OPT_NO_REPAIR,
	OPT_VERBOSE,
	OPT_KEEP,
	OPT_HELP,
	OPT_VERSION
};

static const struct option long_options[] = {
	{ "protocol", required_argument, NULL, OPT_PROTOCOL },
	{ "depth", required_argument, NULL, OPT_DEPTH },
	{ "format", required_argument, NULL, OPT_FORMAT },
	{ "summary", required_argument, NULL, OPT_SUMMARY },
	{ "rate", required_argument, NULL, OPT_RATE },
	{ "speed", required_argument, NULL, OPT_SPEED },
	{ "loss", required_argument, NULL, OPT_LOSS },
	{ "loss-a", required_argument, NULL, OPT_LOSS_A },
	{ "loss-b", required_argument, NULL, OPT_LOSS_B },
	{ "loss-both", required_argument, NULL, OPT_LOSS_BOTH },
	{ "duplicate", required_argument, NULL, OPT_DUPLICATE },
	{ "reorder", required_argument, NULL, OPT_REORDER },
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "no-repair", no_argument, NULL, OPT_NO_REPAIR },
	{ "verbose", no_argument, NULL, OPT_VERBOSE },
	{ "keep", no_argument, NULL, OPT_KEEP },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int take_percentage(struct tw_launch_site *site, int c, const char *name,
			   struct tw_error *err)
{
	uint32_t
		ppm; /* it goes into the configuration as it was typed, once it is known to be one */
	int rc = tw_option_ppm(name, optarg, &ppm, err);
	if (rc != TW_OK) {
		return rc;
	}
	switch (c) {
	case OPT_LOSS:
		site->loss_pct[0] = site->loss_pct[1] = optarg;
		break;
	case OPT_LOSS_A:
		site->loss_pct[0] = optarg;
		break;
	case OPT_LOSS_B:
		site->loss_pct[1] = optarg;
		break;
	case OPT_LOSS_BOTH:
		site->loss_both_pct = optarg;
		break;
	case OPT_DUPLICATE:
		site->duplicate_pct = optarg;
		break;
	default:
		site->reorder_pct = optarg;
	}
	return TW_OK;
}

/* An option with a value. */
static int take_value(struct options *o, int c, const char *name, struct tw_error *err)
{
	uint32_t index; /* words go on as they were typed */
	switch (c) {
	case OPT_PROTOCOL:
		if (strspn(optarg, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(optarg)) {
			return tw_option_refuse(name, optarg, "small letters and digits", err);
		}
		o->site.protocol = optarg;
		return TW_OK;
	case OPT_DEPTH:
		o->site.depth = optarg;
		return tw_option_word(name, optarg, "quotes|levels|orders", &index, err);
	case OPT_FORMAT:
		o->format = optarg;
		return tw_option_word(name, optarg, "json|text|none", &index, err);
	case OPT_SUMMARY:
		o->summary = optarg;
		return TW_OK;
	case OPT_RATE:
		return tw_option_u32(name, optarg, 0, 1000000000, &o->site.rate_msgs, err);
	case OPT_SPEED:
		return tw_option_u32(name, optarg, 0, 100000, &o->site.speed_pct, err);
	case OPT_SEED:
		return tw_option_u64(name, optarg, 0, INT64_MAX, &o->site.seed, err);
	default:
		return take_percentage(&o->site, c, name, err);
	}
}

/* Exits the program on --help and --version; 0, or an exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
	struct tw_error err = { 0 };
	int index = 0;
	int c;
	while ((c = getopt_long(argc, argv, "", long_options, &index)) != -1) {
		switch (c) {
		case OPT_NO_REPAIR:
			o->site.repair = false;
			break;
		case OPT_VERBOSE:
			o->verbose = true;
			break;
		case OPT_KEEP:
			o->keep = true;
			break;
		case OPT_HELP:
			fputs(usage_text, stdout);
			exit(0);
		case OPT_VERSION:
			puts("tw-run " TW_VERSION);
			exit(0);
		case '?':
			return tw_usage_error("tw-run", NULL);
		default:
			if (take_value(o, c, long_options[index].name, &err) != TW_OK) {
				return tw_usage_error("tw-run", &err);
			}
		}
	}
	if (optind == argc) {
		(void)tw_fail(&err, TW_EARG, "no FILE");
	} else if ((uint32_t)(argc - optind) > MAX_FILES) {
		(void)tw_fail(&err, TW_EARG, "more than %u files, from '%s'", MAX_FILES,
			      argv[optind + (int)MAX_FILES]);
	}
	if (err.code != TW_OK) {
		return tw_usage_error("tw-run", &err);
	}
	o->site.files = (const char *const *)&argv[optind];
	o->site.file_count = (uint32_t)(argc - optind);
	return 0;
}

static int check_files(struct tw_launch_site *site)
{
	static char paths[MAX_FILES][TW_PATH_BYTES];
	static const char *absolute[MAX_FILES];
	for (uint32_t i = 0; i < site->file_count; i++) {
		char *full = realpath(site->files[i], NULL);
		if (full == NULL || access(full, R_OK) != 0) {
			fprintf(stderr, "tw-run: %s: %s\n", site->files[i], strerror(errno));
			free(full);
			return 65;
		}
		int n = snprintf(paths[i], sizeof(paths[i]), "%s", full);
		free(full);
		if (n < 0 || (size_t)n >= sizeof(paths[i])) {
			fprintf(stderr, "tw-run: %s: path too long\n", site->files[i]);
			return 65;
		}
		absolute[i] = paths[i];
	}
	site->files = absolute;
	return 0;
}

/* Copies the summary file to standard error; false where there is none. */
static bool show_file(const char *path)
{
	FILE *in = fopen(path, "re");
	if (in == NULL) {
		return false;
	}
	char chunk[4096];
	size_t n;
	while ((n = fread(chunk, 1, sizeof(chunk), in)) > 0) {
		fwrite(chunk, 1, n, stderr);
	}
	fclose(in);
	return true;
}

static int fail_with(const struct tw_error *err, int exit_status)
{
	fprintf(stderr, "tw-run: %s\n", err->text);
	return exit_status;
}

/* The subscriber's exit status, once the session has run through. */
static int run_session(struct tw_launch *l, const struct options *o, int signal_fd)
{
	struct tw_error err = { 0 };
	char summary[TW_PATH_BYTES + 32];
	snprintf(summary, sizeof(summary), "%s/summary.json", l->dir);
	char *site = l->site_path;

	char *sub_argv[] = { "tw-subscribe",
			     "-c",
			     site,
			     "--as",
			     "local",
			     "--name",
			     "sub",
			     "--channel",
			     "1",
			     "--format",
			     (char *)o->format,
			     "--messages-only",
			     "--until-end",
			     "--summary",
			     (char *)(o->summary != NULL ? o->summary : summary),
			     NULL };
	char *pub_argv[] = { "tw-publisher", "-c", site, "--as", "pub", NULL };
	char *fh_argv[] = { "tw-feedhandler", "-c", site, "--as", "feed", NULL };

	int sub = tw_launch_start(l, "tw-subscribe", sub_argv, STDOUT_FILENO, &err);
	if (sub < 0 ||
	    tw_launch_wait_ready(l, (uint32_t)sub, signal_fd, READY_TIMEOUT_MS, &err) != 0) {
		return fail_with(&err, 69);
	}
	int pub = tw_launch_start(l, "tw-publisher", pub_argv, -1, &err);
	if (pub < 0 ||
	    tw_launch_wait_ready(l, (uint32_t)pub, signal_fd, READY_TIMEOUT_MS, &err) != 0) {
		return fail_with(&err, 69);
	}
	int feed = tw_launch_start(l, "tw-feedhandler", fh_argv, -1, &err);
	if (feed < 0) {
		return fail_with(&err, 69);
	}

	const struct tw_launch_child *c = l->children;
	uint64_t feed_end_ns = 0;
	while (!c[sub].exited) {
		if (tw_launch_turn(l, signal_fd, 1000) != 0) {
			tw_launch_stop(l, (uint32_t)sub);
			break;
		}
		if (c[pub].exited && !c[sub].exited) {
			fprintf(stderr, "tw-run: tw-publisher left with %d: %s\n", c[pub].status,
				c[pub].last);
			tw_launch_stop(l, (uint32_t)sub);
			return 69;
		}
		if (c[feed].exited && feed_end_ns == 0) {
			if (c[feed].status != 0) {
				fprintf(stderr, "tw-run: tw-feedhandler left with %d: %s\n",
					c[feed].status, c[feed].last);
				tw_launch_stop(l, (uint32_t)sub);
				return c[feed].status;
			}
			feed_end_ns = tw_mono_ns();
		}
		if (feed_end_ns != 0 && tw_mono_ns() - feed_end_ns > END_TIMEOUT_NS) {
			fprintf(stderr, "tw-run: the end of the session did not arrive\n");
			tw_launch_stop(l, (uint32_t)sub);
			return 69;
		}
	}
	if (o->summary == NULL && !show_file(summary)) {
		fprintf(stderr, "tw-run: tw-subscribe left with %d: %s\n", c[sub].status,
			c[sub].last);
	}
	return c[sub].status;
}

int main(int argc, char **argv)
{
	struct options o = {
		.site = { .protocol = "tops16",
			  .depth = "quotes",
			  .rate_msgs = 50000,
			  .repair = true,
			  .seed = 1 },
		.format = "json",
	};
	int status = parse_options(argc, argv, &o);
	if (status == 0) {
		status = check_files(&o.site);
	}
	if (status != 0) {
		return status;
	}

	static struct tw_launch launch;
	launch.verbose = o.verbose;
	launch.keep = o.keep;
	struct tw_error err = { 0 };
	int signal_fd = tw_launch_signal_fd(&err);
	if (signal_fd < 0 || tw_launch_init(&launch, &err) != 0 ||
	    tw_launch_write_site(&launch, &o.site, &err) != 0) {
		status = fail_with(&err, 69);
	} else {
		status = run_session(&launch, &o, signal_fd);
		if (o.keep) {
			fprintf(stderr, "tw-run: kept %s\n", launch.dir);
		}
	}
	tw_launch_fini(&launch);
	return status;
}
