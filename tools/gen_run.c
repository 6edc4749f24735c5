/* One run of the generator: checks the settings, opens the output, plays the day. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "gen.h"

#define SRC_ADDR 0x0ac30001u /* 10.195.0.1, and .2 for line B */
#define SRC_PORT 32000u

#define MAX_MESSAGES 10000000000ull /* times 10^9 ns still fits in 64 bits */
#define NS_PER_S     1000000000ull
#define HOUR_NS      (3600 * NS_PER_S)
#define DAY_NS       (24 * HOUR_NS)

static const struct gen_protocol *const protocols[] = {
	&gen_tops16,
	&gen_itch50,
};

const struct gen_protocol *tw_gen_protocol(unsigned int index)
{
	return index < sizeof(protocols) / sizeof(protocols[0]) ? protocols[index] : NULL;
}

static const struct gen_protocol *find_protocol(const char *name)
{
	for (unsigned int i = 0; tw_gen_protocol(i) != NULL; i++) {
		if (strcmp(tw_gen_protocol(i)->name, name) == 0) {
			return tw_gen_protocol(i);
		}
	}
	return NULL;
}

static const struct gen_framing *find_framing(const struct gen_protocol *protocol, const char *name)
{
	if (name == NULL) {
		return protocol->framings[0];
	}
	for (unsigned int i = 0; protocol->framings[i] != NULL; i++) {
		if (strcmp(protocol->framings[i]->name, name) == 0) {
			return protocol->framings[i];
		}
	}
	return NULL;
}

static struct tm utc_of(uint64_t time_ns)
{
	time_t seconds = (time_t)(time_ns / NS_PER_S);
	struct tm tm;

	(void)gmtime_r(&seconds, &tm);
	return tm;
}

/* Of New York by its rule since 2007, from the second Sunday of March to the first of November; the
 * night of the change itself is no trading day. */
static bool summer_time(const struct tm *tm)
{
	int sunday = tm->tm_mday - tm->tm_wday; /* the latest one's day of the month */

	if (tm->tm_mon == 2) {
		return sunday >= 8;
	}
	return tm->tm_mon == 10 ? sunday < 1 : tm->tm_mon > 2 && tm->tm_mon < 10;
}

uint64_t gen_midnight_ns(uint64_t time_ns)
{
	const struct tm winter = utc_of(time_ns - 5 * HOUR_NS);
	uint64_t offset_ns = summer_time(&winter) ? 4 * HOUR_NS : 5 * HOUR_NS;
	uint64_t local_ns = time_ns - offset_ns;

	return local_ns - local_ns % DAY_NS + offset_ns;
}

/* Bursts and pauses make a day longer or shorter than its average: an eighth and ten minutes are
 * more than they ever do. */
static int check_midnight(const struct tw_gen_conf *conf, struct tw_error *err)
{
	uint64_t day_ns = conf->messages * NS_PER_S / conf->rate;

	if (conf->start_ns < DAY_NS) {
		return tw_fail(err, TW_EARG, "--start: with %s not before 1970-01-02",
			       conf->protocol);
	}
	if (conf->start_ns + day_ns + day_ns / 8 + HOUR_NS / 6 >
	    gen_midnight_ns(conf->start_ns) + DAY_NS) {
		return tw_fail(err, TW_EARG,
			       "--rate %llu: %llu messages would last past midnight in New York",
			       (unsigned long long)conf->rate, (unsigned long long)conf->messages);
	}
	return TW_OK;
}

static int check_lines(const struct tw_gen_conf *conf, const struct gen_framing *framing,
		       struct tw_error *err)
{
	if (conf->port_b == 0) {
		return TW_OK;
	}
	if (!framing->two_lines) {
		return tw_fail(err, TW_EARG, "--lines ab: not with framing %s", framing->name);
	}
	if (conf->group_b == conf->group) {
		return tw_fail(err, TW_EARG, "--group-b: the same group as line A's");
	}
	if (conf->skew_ns > TW_GEN_MAX_SKEW_NS) {
		return tw_fail(err, TW_EARG, "--skew %u: allowed 0 to %u", conf->skew_ns,
			       TW_GEN_MAX_SKEW_NS);
	}
	return TW_OK;
}

static int check(const struct tw_gen_conf *conf, struct tw_error *err)
{
	const struct gen_protocol *protocol = find_protocol(conf->protocol);

	if (protocol == NULL) {
		return tw_fail(err, TW_EARG, "--protocol %s: unknown; --help lists them",
			       conf->protocol);
	}
	if (find_framing(protocol, conf->framing) == NULL) {
		return tw_fail(err, TW_EARG, "--framing %s: %s has no such framing", conf->framing,
			       protocol->name);
	}
	if (conf->symbols < protocol->min_symbols || conf->symbols > protocol->max_symbols) {
		return tw_fail(err, TW_EARG, "--symbols %u: with %s allowed %u to %u",
			       conf->symbols, protocol->name, protocol->min_symbols,
			       protocol->max_symbols);
	}
	if (conf->rate < 1 || conf->rate > TW_GEN_MAX_RATE) {
		return tw_fail(err, TW_EARG, "--rate %llu: allowed 1 to %u",
			       (unsigned long long)conf->rate, TW_GEN_MAX_RATE);
	}
	uint64_t least = protocol->min_messages(conf->symbols);
	if (conf->messages < least || conf->messages > MAX_MESSAGES) {
		return tw_fail(err, TW_EARG,
			       "--messages %llu: with %u symbols allowed %llu to %llu",
			       (unsigned long long)conf->messages, conf->symbols,
			       (unsigned long long)least, MAX_MESSAGES);
	}
	if (conf->messages / conf->rate > 366ull * 86400) {
		return tw_fail(err, TW_EARG,
			       "--rate %llu: %llu messages would last longer than a year",
			       (unsigned long long)conf->rate, (unsigned long long)conf->messages);
	}
	int status = protocol->within_midnight ? check_midnight(conf, err) : TW_OK;
	return status != TW_OK ? status
			       : check_lines(conf, find_framing(protocol, conf->framing), err);
}

int tw_gen_run(const struct tw_gen_conf *conf, struct tw_gen_summary *summary, struct tw_error *err)
{
	int status = check(conf, err);

	if (status != TW_OK) {
		return status;
	}
	const struct gen_protocol *protocol = find_protocol(conf->protocol);
	const struct gen_framing *framing = find_framing(protocol, conf->framing);
	const struct tw_gen_capture_conf capture_conf = {
		.path = conf->output,
		.format = framing->plain ? TW_GEN_PLAIN : conf->format,
		.gzip = conf->gzip,
		.src_port = SRC_PORT,
		.lines = { { SRC_ADDR, conf->group, conf->port },
			   { SRC_ADDR + 1, conf->group_b, conf->port_b } },
	};
	struct gen_rng rng = { conf->seed };
	struct gen_instrument *instruments = calloc(conf->symbols, sizeof(*instruments));
	struct gen_feed *feed = calloc(1, sizeof(*feed));

	memset(summary, 0, sizeof(*summary));
	if (instruments == NULL || feed == NULL) {
		status = tw_fail(err, TW_ENOMEM, "instruments: calloc: out of memory");
		goto undo_calloc;
	}
	feed->protocol = protocol;
	feed->framing = framing;
	feed->summary = summary;
	feed->rng.state = conf->seed ^ 0x7769726500000000u;
	feed->rng_b.state = ~feed->rng.state;
	feed->midnight_ns = protocol->within_midnight ? gen_midnight_ns(conf->start_ns) : 0;
	feed->skew_ns = conf->skew_ns;
	feed->two_lines = conf->port_b != 0;
	status = tw_gen_capture_open(&feed->capture, &capture_conf, err);
	if (status != TW_OK) {
		goto undo_calloc;
	}
	gen_instruments_make(instruments, conf->symbols, &rng);
	framing->open(feed, conf->start_ns);
	status = protocol->play(conf, instruments, feed);
	if (status == TW_OK) {
		status = framing->finish(feed);
	}
	summary->last_seq = feed->next_seq - 1;
	summary->capture_bytes = tw_gen_capture_bytes(feed->capture);
	int closed = tw_gen_capture_close(feed->capture, err);
	status = closed != TW_OK ? closed : status;
	if (status != TW_OK && closed == TW_OK) {
		status = tw_fail(err, TW_EINTERNAL, "%s: the script failed: %s", conf->protocol,
				 tw_strstatus(status));
	}

undo_calloc:
	free(feed);
	free(instruments);
	return status;
}
