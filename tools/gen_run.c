/* One run of the generator: checks the settings, opens the output, plays the day. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "gen.h"

#define SRC_ADDR 0x0ac30001u /* 10.195.0.1 */
#define SRC_PORT 32000u

#define MAX_MESSAGES 10000000000ull /* times 10^9 ns still fits in 64 bits */

static const struct gen_protocol *const protocols[] = {
	&gen_tops16,
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

static int check(const struct tw_gen_conf *conf, struct tw_error *err)
{
	if (find_protocol(conf->protocol) == NULL) {
		return tw_fail(err, TW_EARG, "--protocol %s: unknown; allowed: %s", conf->protocol,
			       tw_gen_protocol(0)->name);
	}
	if (conf->symbols < 1 || conf->symbols > TW_GEN_MAX_SYMBOLS) {
		return tw_fail(err, TW_EARG, "--symbols %u: allowed 1 to %u", conf->symbols,
			       TW_GEN_MAX_SYMBOLS);
	}
	if (conf->rate < 1 || conf->rate > TW_GEN_MAX_RATE) {
		return tw_fail(err, TW_EARG, "--rate %llu: allowed 1 to %u",
			       (unsigned long long)conf->rate, TW_GEN_MAX_RATE);
	}
	uint64_t least = gen_day_min_messages(conf->symbols);
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
	return TW_OK;
}

int tw_gen_run(const struct tw_gen_conf *conf, struct tw_gen_summary *summary, struct tw_error *err)
{
	int status = check(conf, err);

	if (status != TW_OK) {
		return status;
	}
	const struct tw_gen_capture_conf capture_conf = {
		.path = conf->output,
		.format = conf->format,
		.gzip = conf->gzip,
		.src_addr = SRC_ADDR,
		.group = conf->group,
		.src_port = SRC_PORT,
		.port = conf->port,
	};
	struct gen_feed feed = {
		.protocol = find_protocol(conf->protocol),
		.summary = summary,
		.rng = { conf->seed ^ 0x7769726500000000u },
	};
	struct gen_rng rng = { conf->seed };
	struct gen_instrument *instruments = calloc(conf->symbols, sizeof(*instruments));

	memset(summary, 0, sizeof(*summary));
	if (instruments == NULL) {
		return tw_fail(err, TW_ENOMEM, "instruments: calloc: out of memory");
	}
	status = tw_gen_capture_open(&feed.capture, &capture_conf, err);
	if (status != TW_OK) {
		goto undo_instruments;
	}
	gen_instruments_make(instruments, conf->symbols, &rng);
	feed.protocol->open(&feed, conf->start_ns);
	status = gen_day_run(conf, instruments, &feed);
	summary->last_seq = feed.next_seq - 1;
	summary->capture_bytes = tw_gen_capture_bytes(feed.capture);
	int closed = tw_gen_capture_close(feed.capture, err);
	status = closed != TW_OK ? closed : status;
	if (status != TW_OK && closed == TW_OK) {
		status = tw_fail(err, TW_EINTERNAL, "%s: the script failed: %s", conf->protocol,
				 tw_strstatus(status));
	}

undo_instruments:
	free(instruments);
	return status;
}
