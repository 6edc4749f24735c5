/* tw-subscribe: libtidewire with a command line.
 *
 * Threads   the hot thread, pinned where the site says so, polls, formats and writes; a stalled reader
 *           of its output stalls it.  The main thread takes signals, logs alarms once a second, and
 *           opens and closes the handle while there is no hot thread. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/app.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "subscriber/sub_internal.h"
#include "subscriber/subscribe.h"

#define EVENTS      256u
#define ALARM_TICKS 10u /* of 100 ms */

static const char help[] =
	"usage: tw-subscribe -c FILE [options]\n"
	"Receives Tidewire channels and writes what comes to standard output: in order, or in "
	"mode\n"
	"latest as soon as it comes.\n"
	"\n"
	"  -c, --config FILE     the site's YAML file\n"
	"      --as NAME         this host's entry (default: by host name)\n"
	"      --channel N       channel id; may be given several times (default: all of the "
	"site)\n"
	"      --format FORMAT   text (default), json (one object a line) or none\n"
	"      --messages-only   leave out what is not a message (gap, lost, session, end, line "
	"...)\n"
	"      --count N         leave after N messages\n"
	"      --until-end       leave when every channel's session has ended; exit status 1 "
	"where\n"
	"                        anything was lost\n"
	"      --start WHERE     session: from its first message; live: from the first one heard\n"
	"                        (default: as the site says)\n"
	"      --mode MODE       ordered: what comes ahead of a gap waits for it; latest: it does "
	"not\n"
	"                        (depth quotes alone; default: as the site says)\n"
	"      --summary FILE    write the summary there; default: standard error, or with\n"
	"                        --format none standard output\n"
	"      --name NAME       of the counter file under run_dir (default: sub-PID)\n"
	"      --check           check the configuration against this host and leave\n"
	"      --help, --version\n"
	"\n"
	"Exit status: 0; 1 lost messages or a dead channel with --until-end; 64 usage; 69, 70, 71, "
	"77,\n"
	"78 as in sysexits.h.\n";

struct options {
	struct tw_sub_conf conf;
	uint16_t channels[TW_MAX_CHANNELS];
	enum tw_subscribe_format format;
	bool messages_only, until_end, check;
	uint64_t count; /* 0: no limit */
	const char *summary;
};

struct seen { /* what has been said about a line */
	uint64_t downs;
	bool up, version, replay, environment, source;
};

struct program {
	struct tw_app app;
	struct options options;
	struct tw_sub *sub;
	struct tw_subscribe_out out;
	struct tw_tally tally;
	const char *ended_by; /* the hot thread's; read after it ended */
	int cpu;
	/* main thread */
	struct seen *seen; /* two a channel */
	uint64_t *lost_said;
	unsigned int ticks;
};

enum option_id {
	OPT_AS = 256,
	OPT_CHANNEL,
	OPT_FORMAT,
	OPT_MESSAGES_ONLY,
	OPT_COUNT,
	OPT_UNTIL_END,
	OPT_SUMMARY,
	OPT_NAME,
	OPT_START,
	OPT_MODE,
	OPT_CHECK,
	OPT_HELP,
	OPT_VERSION
};

static const struct option long_options[] = {
	{ "config", required_argument, NULL, 'c' },
	{ "as", required_argument, NULL, OPT_AS },
	{ "channel", required_argument, NULL, OPT_CHANNEL },
	{ "format", required_argument, NULL, OPT_FORMAT },
	{ "messages-only", no_argument, NULL, OPT_MESSAGES_ONLY },
	{ "count", required_argument, NULL, OPT_COUNT },
	{ "until-end", no_argument, NULL, OPT_UNTIL_END },
	{ "summary", required_argument, NULL, OPT_SUMMARY },
	{ "name", required_argument, NULL, OPT_NAME },
	{ "start", required_argument, NULL, OPT_START },
	{ "mode", required_argument, NULL, OPT_MODE },
	{ "check", no_argument, NULL, OPT_CHECK },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static int add_channel(struct options *options, const char *name, const char *text,
		       struct tw_error *err)
{
	uint32_t id;
	int rc = tw_option_u32(name, text, 1, UINT16_MAX, &id, err);
	if (rc != TW_OK) {
		return rc;
	}
	if (options->conf.channel_count == TW_MAX_CHANNELS) {
		return tw_fail(err, TW_EARG, "--channel: more than the %u that a site can have",
			       TW_MAX_CHANNELS);
	}
	options->channels[options->conf.channel_count++] = (uint16_t)id;
	options->conf.channels = options->channels;
	return TW_OK;
}

/* An option with a value. */
static int take_value(struct options *options, int id, const char *name, const char *value,
		      struct tw_error *err)
{
	uint32_t index = 0;
	int rc;

	switch (id) {
	case 'c':
		options->conf.site_path = value;
		return TW_OK;
	case OPT_AS:
		options->conf.as = value;
		return TW_OK;
	case OPT_CHANNEL:
		return add_channel(options, name, value, err);
	case OPT_FORMAT:
		rc = tw_option_word(name, value, "text|json|none", &index, err);
		options->format = (enum tw_subscribe_format)index;
		return rc;
	case OPT_COUNT:
		return tw_option_u64(name, value, 1, UINT64_MAX, &options->count, err);
	case OPT_SUMMARY:
		options->summary = value;
		return TW_OK;
	case OPT_NAME:
		options->conf.name = value;
		return TW_OK;
	case OPT_START:
		rc = tw_option_word(name, value, "session|live", &index, err);
		options->conf.start = TW_SUB_START_SESSION + index;
		return rc;
	default: /* OPT_MODE */
		rc = tw_option_word(name, value, "ordered|latest", &index, err);
		options->conf.mode = TW_SUB_MODE_ORDERED + index;
		return rc;
	}
}

/* An exit status, or -1 to go on. */
static int parse_options(struct options *options, int argc, char **argv)
{
	struct tw_error err = { 0 };
	int index = 0;
	int id;

	memset(options, 0, sizeof(*options));
	tw_sub_conf_init(&options->conf);
	while ((id = getopt_long(argc, argv, "c:", long_options, &index)) != -1) {
		switch (id) {
		case OPT_MESSAGES_ONLY:
			options->messages_only = true;
			break;
		case OPT_UNTIL_END:
			options->until_end = true;
			break;
		case OPT_CHECK:
			options->check = true;
			break;
		case OPT_HELP:
			fputs(help, stdout);
			return 0;
		case OPT_VERSION:
			puts("tw-subscribe " TW_VERSION);
			return 0;
		case '?':
			return tw_usage_error("tw-subscribe", NULL);
		default:
			if (take_value(options, id, long_options[index].name, optarg, &err) < 0) {
				return tw_usage_error("tw-subscribe", &err);
			}
		}
	}
	if (optind < argc) {
		(void)tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind]);
	} else if (options->conf.site_path == NULL) {
		(void)tw_fail(&err, TW_EARG, "-c FILE is missing");
	}
	return err.code != TW_OK ? tw_usage_error("tw-subscribe", &err) : -1;
}

static int check(const struct options *options)
{
	struct tw_sub_plan plan;
	struct tw_error err;

	int rc = tw_sub_plan_make(&plan, &options->conf, &err);
	if (rc < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		return tw_exit_status(rc);
	}
	printf("site %s, host %s (%s)\n", plan.site->name, plan.site->hosts[plan.host].name,
	       plan.host_why);
	printf("transport %s (%s)\nidle %s\n", plan.verbs ? "verbs" : "udp", plan.transport_why,
	       plan.idle_why);
	printf("repair %s\n", plan.repair_text);
	for (uint32_t i = 0; i < plan.channel_count; i++) {
		const struct tw_site_channel *channel = &plan.site->channels[plan.channels[i]];
		printf("channel %u %s, %u line%s, %s\n", channel->id, channel->name, channel->lines,
		       channel->lines == 1 ? "" : "s", channel->latest ? "latest" : "ordered");
	}
	tw_sub_plan_free(&plan);
	return 0;
}

/* Whether the program's work is done, and its exit status then. */
static bool done(struct program *program, int *status)
{
	const struct options *options = &program->options;

	if (options->count != 0 && program->tally.messages >= options->count) {
		program->ended_by = "count";
		*status = 0;
		return true;
	}
	if (options->until_end && tw_tally_over(&program->tally)) {
		bool whole =
			program->tally.lost_messages == 0 && !tw_tally_any_down(&program->tally);
		program->ended_by = "end";
		*status = whole ? 0 : 1;
		return true;
	}
	return false;
}

static int handle_failed(struct program *program, int status)
{
	struct tw_error err;

	tw_sub_error(program->sub, 0, &err);
	tw_log(TW_LOG_ERROR, "%s", err.code != TW_OK ? err.text : tw_strstatus(status));
	program->ended_by = "error";
	return tw_exit_status(status);
}

/* Handles `n` events; true and an exit status once the program's work is done. */
static bool handle_events(struct program *program, const struct tw_event *events, int n,
			  int *status)
{
	for (int i = 0; i < n; i++) {
		tw_tally_event(&program->tally, &events[i]);
		tw_subscribe_out_event(&program->out, &events[i]);
		if (done(program, status)) {
			return true;
		}
	}
	return false;
}

static void *hot(void *arg)
{
	struct program *program = arg;
	struct tw_subscribe_out *out = &program->out;
	struct tw_event events[EVENTS];
	struct tw_error err;
	int status = 0;

	program->ended_by = "signal";
	int n = tw_cpu_pin(program->cpu, &err);
	if (n < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		program->ended_by = "error";
		tw_app_stop(&program->app, tw_exit_status(n));
		return NULL;
	}
	while (!tw_app_stopping(&program->app)) {
		n = tw_sub_poll(program->sub, events, EVENTS);
		if (n == 0) {
			tw_subscribe_out_flush(out);
			tw_sub_idle(program->sub);
		} else if (n < 0) {
			tw_app_stop(&program->app, handle_failed(program, n));
		} else if (handle_events(program, events, n, &status)) {
			tw_app_stop(&program->app, status);
		}
		if (out->error != 0 && !tw_app_stopping(&program->app)) {
			program->ended_by = out->error == EPIPE ? "output closed" : "output failed";
			tw_app_stop(&program->app, 0); /* run() looks at the error */
		}
	}
	tw_subscribe_out_flush(out);
	return NULL;
}

static void say_once(bool *said, uint64_t count, const struct tw_sub_channel_info *channel,
		     unsigned int line, const char *what)
{
	if (!*said && count > 0) {
		*said = true;
		tw_log(TW_LOG_WARNING, "alarm: channel %u line %c: %s are dropped", channel->id,
		       'a' + (int)line, what);
	}
}

static void watch_line(struct seen *seen, const struct tw_sub_line_stats *stats,
		       const struct tw_sub_channel_info *channel, unsigned int line)
{
	say_once(&seen->version, stats->foreign_version, channel, line,
		 "datagrams of another major version");
	say_once(&seen->replay, stats->foreign_replay, channel, line, "replayed datagrams");
	say_once(&seen->environment, stats->foreign_environment, channel, line,
		 "datagrams of another site or environment");
	say_once(&seen->source, stats->foreign_source, channel, line,
		 "datagrams from no configured publisher");
	if (stats->downs > seen->downs) {
		tw_log(TW_LOG_WARNING, "alarm: channel %u line %c went down", channel->id,
		       'a' + (int)line);
	}
	if (stats->up && (!seen->up || stats->downs > seen->downs)) {
		tw_log(TW_LOG_INFO, "channel %u line %c is up", channel->id, 'a' + (int)line);
	}
	seen->downs = stats->downs;
	seen->up = stats->up != 0;
}

static void watch(struct program *program)
{
	struct tw_sub_channel_info channel = { .size = sizeof(channel) };
	struct tw_sub_stats stats = { .size = sizeof(stats) };

	for (uint32_t i = 0; tw_sub_channel_at(program->sub, i, &channel) >= 0; i++) {
		(void)tw_sub_stats_read(program->sub, channel.id, &stats);
		for (unsigned int l = 0; l < 2 && stats.lines[l].present; l++) {
			watch_line(&program->seen[2 * i + l], &stats.lines[l], &channel, l);
		}
		if (stats.lost_messages > program->lost_said[i]) {
			tw_log(TW_LOG_WARNING,
			       "alarm: channel %u: %" PRIu64 " messages lost in %" PRIu64
			       " ranges so far",
			       channel.id, stats.lost_messages, stats.lost_ranges);
			program->lost_said[i] = stats.lost_messages;
		}
	}
}

static void tick(void *ctx)
{
	struct program *program = ctx;

	if (++program->ticks % ALARM_TICKS == 0) {
		watch(program);
	}
}

static void say_ready(struct program *program)
{
	struct tw_sub_info info = { .size = sizeof(info) };
	struct tw_sub_channel_info channel = { .size = sizeof(channel) };

	(void)tw_sub_info_read(program->sub, &info);
	program->cpu = info.cpu;
	tw_log(TW_LOG_INFO, "site %s (%s), host %s: %s", info.site, info.environment, info.host,
	       info.host_why);
	tw_log(TW_LOG_INFO, "transport %s: %s; idle %s: %s; clock %s", info.transport,
	       info.transport_why, info.idle, info.idle_why, info.clock_source);
	for (unsigned int l = 0; l < 2; l++) {
		if (info.lines[l][0] != '\0') {
			tw_log(TW_LOG_INFO, "line %c: %s", 'a' + (int)l, info.lines[l]);
		}
	}
	tw_log(TW_LOG_INFO, "repair %s", info.repair);
	if (info.fault_active) {
		tw_log(TW_LOG_WARNING, "alarm: the fault layer is active: datagrams are lost, "
				       "doubled, reordered or delayed on purpose");
	}
	if (info.accepts_replay) {
		tw_log(TW_LOG_WARNING, "alarm: replayed datagrams are accepted");
	}
	for (uint32_t i = 0; tw_sub_channel_at(program->sub, i, &channel) >= 0; i++) {
		if (channel.latest) {
			tw_log(TW_LOG_INFO, "channel %u: mode latest, not in order", channel.id);
		}
	}
	tw_log(TW_LOG_INFO, "ready: %u channel%s, counters %s/%s.counters", info.channel_count,
	       info.channel_count == 1 ? "" : "s", info.run_dir, info.counters);
}

static void put_summary(const struct program *program, FILE *file)
{
	tw_subscribe_summary(file, program->sub, &program->tally, &program->out.symbols,
			     program->ended_by);
}

/* Whole or not there at all, because others wait for it. */
static bool write_summary_file(const struct program *program, const char *path)
{
	char part[TW_FILE_BYTES + 32];

	int len = snprintf(part, sizeof(part), "%s.%d", path, (int)getpid());
	if (len < 0 || (size_t)len >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return false;
	}
	FILE *file = fopen(part, "we");
	if (file == NULL) {
		return false;
	}
	put_summary(program, file);
	bool failed = ferror(file) != 0;
	failed |= fclose(file) != 0;
	failed = failed || rename(part, path) != 0;
	if (failed) {
		int error = errno;
		(void)unlink(part);
		errno = error;
	}
	return !failed;
}

static int write_summary(const struct program *program)
{
	const char *path = program->options.summary;

	if (path == NULL || strcmp(path, "-") == 0) {
		bool quiet = program->options.format == TW_SUBSCRIBE_NONE;
		FILE *file = path != NULL || quiet ? stdout : stderr;
		put_summary(program, file);
		return fflush(file) == 0 || errno == EPIPE ? 0 : tw_exit_status(TW_ESYS);
	}
	if (!write_summary_file(program, path)) {
		tw_log(TW_LOG_ERROR, "%s: write: %s", path, strerror(errno));
		put_summary(program, stderr); /* rather there than nowhere */
		return tw_exit_status(TW_ESYS);
	}
	return 0;
}

static int open_all(struct program *program, struct tw_error *err)
{
	int rc = tw_sub_open(&program->sub, &program->options.conf, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_tally_init(&program->tally, program->sub, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_subscribe_out_init(&program->out, STDOUT_FILENO, program->options.format, err);
	if (rc < 0) {
		return rc;
	}
	program->out.app = &program->app;
	program->out.sub = program->sub;
	program->out.messages_only = program->options.messages_only;
	program->seen = calloc(program->tally.channel_count, 2 * sizeof(program->seen[0]));
	program->lost_said = calloc(program->tally.channel_count, sizeof(program->lost_said[0]));
	if (program->seen == NULL || program->lost_said == NULL) {
		return tw_fail(err, TW_ENOMEM, "alarms: calloc");
	}
	return TW_OK;
}

static void close_all(struct program *program)
{
	free(program->lost_said);
	free(program->seen);
	tw_subscribe_out_fini(&program->out);
	tw_tally_fini(&program->tally);
	tw_sub_close(program->sub);
}

/* Runs the hot thread to its end; the exit status. */
static int run(struct program *program)
{
	struct tw_error err;
	pthread_t thread;

	say_ready(program);
	int rc = tw_thread_start(&thread, "tw-subscribe", hot, program, &err);
	if (rc < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		return tw_exit_status(rc);
	}
	int status = tw_app_run(&program->app, tick, program);
	pthread_join(thread, NULL);
	watch(program);
	if (program->out.error != 0 && program->out.error != EPIPE) {
		/* a reader that closes has seen enough; anything else has cost output */
		tw_log(TW_LOG_ERROR, "output: write: %s",
		       program->out.error == ETIMEDOUT ? "the reader stalls, the rest is dropped"
						       : strerror(program->out.error));
		status = status != 0 ? status : tw_exit_status(TW_ESYS);
	}
	if (program->options.until_end && program->tally.lost_messages > 0 && status == 0) {
		status = 1;
	}
	int summary_status = write_summary(program);
	return status != 0 ? status : summary_status;
}

int main(int argc, char **argv)
{
	static struct program program;
	struct tw_error err;

	int status = parse_options(&program.options, argc, argv);
	if (status >= 0) {
		return status;
	}
	tw_log_init("tw-subscribe", TW_LOG_INFO);
	if (program.options.check) {
		return check(&program.options);
	}
	tw_app_init(&program.app, "tw-subscribe");
	int rc = open_all(&program, &err);
	if (rc < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		status = tw_exit_status(rc);
	} else {
		status = run(&program);
	}
	close_all(&program);
	return status;
}
