/* tw-exchange's command line. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/app.h"
#include "base/fail.h"
#include "exch.h"

#define PPM_PER_PCT 10000u

enum {
	INPUT = 256,
	SEED,
	MESSAGES,
	SYMBOLS,
	RATE,
	SPEED,
	RESTAMP,
	SESSION,
	LINE_A,
	LINE_B,
	INTERFACE_A,
	INTERFACE_B,
	DROP_A,
	DROP_B,
	DROP_BOTH,
	DUPLICATE,
	REORDER,
	REREQUEST,
	REREQUEST_RATE,
	STORE,
	START_DELAY,
	LINGER,
	SUMMARY,
	HELP,
	VERSION
};

static const struct option options[] = {
	{ "input", required_argument, NULL, INPUT },
	{ "seed", required_argument, NULL, SEED },
	{ "messages", required_argument, NULL, MESSAGES },
	{ "symbols", required_argument, NULL, SYMBOLS },
	{ "rate", required_argument, NULL, RATE },
	{ "speed-pct", required_argument, NULL, SPEED },
	{ "restamp", no_argument, NULL, RESTAMP },
	{ "session", required_argument, NULL, SESSION },
	{ "a", required_argument, NULL, LINE_A },
	{ "b", required_argument, NULL, LINE_B },
	{ "interface-a", required_argument, NULL, INTERFACE_A },
	{ "interface-b", required_argument, NULL, INTERFACE_B },
	{ "drop-a", required_argument, NULL, DROP_A },
	{ "drop-b", required_argument, NULL, DROP_B },
	{ "drop-both", required_argument, NULL, DROP_BOTH },
	{ "duplicate", required_argument, NULL, DUPLICATE },
	{ "reorder", required_argument, NULL, REORDER },
	{ "rerequest", required_argument, NULL, REREQUEST },
	{ "rerequest-rate", required_argument, NULL, REREQUEST_RATE },
	{ "store-messages", required_argument, NULL, STORE },
	{ "start-delay-ms", required_argument, NULL, START_DELAY },
	{ "linger", required_argument, NULL, LINGER },
	{ "summary", required_argument, NULL, SUMMARY },
	{ "help", no_argument, NULL, HELP },
	{ "version", no_argument, NULL, VERSION },
	{ NULL, 0, NULL, 0 },
};

static void print_help(void)
{
	(void)puts(
		"Usage: tw-exchange --a GROUP:PORT [OPTION]...\n"
		"Plays a day of ITCH 5.0 live, as MoldUDP64 on one or two multicast lines.\n\n"
		"The day\n"
		"  --input FILE          a BinaryFILE, plain or gzip; else a day is made up\n"
		"  --messages N          of the day made up (default 100000); at most, of FILE\n"
		"  --symbols N           instruments of the day made up (default 100)\n"
		"  --rate N              messages a second (default 10000)\n"
		"  --speed-pct N         100: in the messages' own time (default); 0: evenly at "
		"--rate,\n"
		"                        with --rate 0 at once\n"
		"  --restamp             the messages' times become those of now\n"
		"  --session NAME        at most ten letters and digits (default: from the clock)\n"
		"  --seed N              of the day made up and of the faults (default 1)\n"
		"Lines\n"
		"  --a, --b GROUP:PORT   multicast groups; without --b there is one line\n"
		"  --interface-a, --interface-b ADDR   address to send from (default 127.0.0.1)\n"
		"  --start-delay-ms N    between ready and the first message (default 0)\n"
		"  --linger S            the end of session is repeated for so long (default 3)\n"
		"Faults, in percent of the packets with messages, with up to four decimals\n"
		"  --drop-a, --drop-b, --drop-both PCT\n"
		"  --duplicate PCT       sent twice on a line\n"
		"  --reorder PCT         sent behind the next packet of the line\n"
		"Re-requests\n"
		"  --rerequest ADDR:PORT answer them here; port 0: any, the ready line says which\n"
		"  --rerequest-rate N    answers a second to one address (default 10000)\n"
		"  --store-messages N    only the newest N can be had again (default: all)\n\n"
		"  --summary FILE        what happened, as JSON (default: standard output)\n"
		"  --help, --version");
}

static int parse_number(const char *name, const char *text, uint64_t min, uint64_t max,
			uint64_t *out, struct tw_error *err)
{
	char *end = NULL;

	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v < min || v > max) {
		return tw_fail(err, TW_EARG, "--%s %s: not a number from %" PRIu64 " to %" PRIu64,
			       name, text, min, max);
	}
	*out = v;
	return TW_OK;
}

static int parse_u32(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *out,
		     struct tw_error *err)
{
	uint64_t v = 0;
	int status = parse_number(name, text, min, max, &v, err);

	if (status == TW_OK) {
		*out = (uint32_t)v;
	}
	return status;
}

static int parse_percent(const char *name, const char *text, uint32_t *ppm, struct tw_error *err)
{
	uint32_t unit = PPM_PER_PCT;
	uint32_t v = 0;
	const char *at = text;

	for (; isdigit((unsigned char)*at) && v <= 100 * PPM_PER_PCT; at++) {
		v = v * 10 + (uint32_t)(*at - '0') * PPM_PER_PCT;
	}
	if (at != text && *at == '.') {
		for (at++; isdigit((unsigned char)*at) && unit > 1; at++) {
			unit /= 10;
			v += unit * (uint32_t)(*at - '0');
		}
	}
	if (at == text || *at != '\0' || v > 100 * PPM_PER_PCT) {
		return tw_fail(err, TW_EARG,
			       "--%s %s: not a percentage from 0 to 100 with up to four decimals",
			       name, text);
	}
	*ppm = v;
	return TW_OK;
}

static int parse_addr(const char *name, const char *text, struct in_addr *addr,
		      struct tw_error *err)
{
	if (inet_pton(AF_INET, text, addr) != 1) {
		return tw_fail(err, TW_EARG, "--%s %s: not an IPv4 address", name, text);
	}
	return TW_OK;
}

static int parse_endpoint(const char *name, const char *text, bool group, struct sockaddr_in *out,
			  struct tw_error *err)
{
	char addr[INET_ADDRSTRLEN] = "";
	const char *colon = strchr(text, ':');
	struct in_addr in = { 0 };
	uint64_t port = 0;

	if (colon != NULL && (size_t)(colon - text) < sizeof(addr)) {
		memcpy(addr, text, (size_t)(colon - text));
	}
	if (colon == NULL || inet_pton(AF_INET, addr, &in) != 1 ||
	    IN_MULTICAST(ntohl(in.s_addr)) != group ||
	    parse_number(name, colon + 1, group ? 1 : 0, UINT16_MAX, &port, NULL) != TW_OK) {
		return tw_fail(err, TW_EARG, "--%s %s: not %s ADDRESS:PORT", name, text,
			       group ? "a multicast" : "an");
	}
	*out = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port),
				     .sin_addr = in };
	return TW_OK;
}

static int parse_session(const char *text, char session[static EXCH_SESSION_BYTES + 1],
			 struct tw_error *err)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++) {
		if (!isalnum((unsigned char)text[i])) {
			len = 0;
		}
	}
	if (len == 0 || len > EXCH_SESSION_BYTES) {
		return tw_fail(err, TW_EARG, "--session %s: not one to %u letters and digits", text,
			       EXCH_SESSION_BYTES);
	}
	(void)snprintf(session, EXCH_SESSION_BYTES + 1, "%-10s", text);
	return TW_OK;
}

static int take_line_option(struct exch_conf *conf, int c, const char *name, struct tw_error *err)
{
	switch (c) {
	case LINE_A:
	case LINE_B:
		return parse_endpoint(name, optarg, true, &conf->groups[c - LINE_A], err);
	case INTERFACE_A:
	case INTERFACE_B:
		return parse_addr(name, optarg, &conf->interfaces[c - INTERFACE_A], err);
	case DROP_A:
	case DROP_B:
		return parse_percent(name, optarg, &conf->faults.drop_ppm[c - DROP_A], err);
	case DROP_BOTH:
		return parse_percent(name, optarg, &conf->faults.drop_both_ppm, err);
	case DUPLICATE:
		return parse_percent(name, optarg, &conf->faults.duplicate_ppm, err);
	case REORDER:
		return parse_percent(name, optarg, &conf->faults.reorder_ppm, err);
	case REREQUEST:
		conf->serve = true;
		return parse_endpoint(name, optarg, false, &conf->rerequest, err);
	case REREQUEST_RATE:
		return parse_u32(name, optarg, 1, 1000000, &conf->rerequest_rate, err);
	case STORE:
		return parse_number(name, optarg, 1, UINT64_MAX, &conf->store_messages, err);
	default:
		return tw_fail(err, TW_EINTERNAL, "--%s: not handled", name);
	}
}

static int take_option(struct exch_conf *conf, int c, const char *name, struct tw_error *err)
{
	switch (c) {
	case INPUT:
		conf->day.input = optarg;
		return TW_OK;
	case SEED:
		return parse_number(name, optarg, 0, UINT64_MAX, &conf->day.seed, err);
	case MESSAGES:
		return parse_number(name, optarg, 1, UINT64_MAX, &conf->day.max_messages, err);
	case SYMBOLS:
		return parse_u32(name, optarg, 1, UINT32_MAX, &conf->day.symbols, err);
	case RATE:
		return parse_number(name, optarg, 0, TW_GEN_MAX_RATE, &conf->day.rate, err);
	case SPEED:
		return parse_u32(name, optarg, 0, EXCH_MAX_SPEED_PCT, &conf->day.speed_pct, err);
	case RESTAMP:
		conf->restamp = true;
		return TW_OK;
	case SESSION:
		return parse_session(optarg, conf->session, err);
	case START_DELAY:
		return parse_u32(name, optarg, 0, 3600000, &conf->start_delay_ms, err);
	case LINGER:
		return parse_u32(name, optarg, 0, 86400, &conf->linger_s, err);
	case SUMMARY:
		conf->summary = optarg;
		return TW_OK;
	default:
		return take_line_option(conf, c, name, err);
	}
}

static int check(const struct exch_conf *conf, struct tw_error *err)
{
	const struct sockaddr_in *groups = conf->groups;

	if (groups[0].sin_port == 0) {
		return tw_fail(err, TW_EARG, "--a: missing; see tw-exchange --help");
	}
	if (groups[0].sin_addr.s_addr == groups[1].sin_addr.s_addr &&
	    groups[0].sin_port == groups[1].sin_port) {
		return tw_fail(err, TW_EARG, "--b: the same group and port as line A's");
	}
	if (groups[1].sin_port == 0 && conf->faults.drop_ppm[1] != 0) {
		return tw_fail(err, TW_EARG, "--drop-b: without --b there is no line B");
	}
	if (!conf->serve && conf->store_messages != 0) {
		return tw_fail(err, TW_EARG,
			       "--store-messages: without --rerequest there is no use");
	}
	return TW_OK;
}

int exch_options_parse(struct exch_conf *conf, int argc, char **argv)
{
	const struct in_addr loopback = { htonl(INADDR_LOOPBACK) };
	struct tw_error err = { 0 };
	int status = TW_OK;
	int index = 0;
	int c = 0;

	*conf = (struct exch_conf){
		.day = { .seed = 1, .symbols = 100, .rate = 10000, .speed_pct = 100 },
		.interfaces = { loopback, loopback },
		.rerequest_rate = 10000,
		.linger_s = 3,
	};
	while (status == TW_OK && (c = getopt_long(argc, argv, ":", options, &index)) != -1) {
		if (c == HELP) {
			print_help();
			return 0;
		}
		if (c == VERSION) {
			(void)puts("tw-exchange " TW_VERSION);
			return 0;
		}
		status = c == ':' || c == '?'
				 ? tw_fail(&err, TW_EARG, "%s: %s", argv[optind - 1],
					   c == ':' ? "needs a value" : "unknown option")
				 : take_option(conf, c, options[index].name, &err);
	}
	if (status == TW_OK && optind != argc) {
		status = tw_fail(&err, TW_EARG, "%s: not an option", argv[optind]);
	}
	if (status == TW_OK) {
		status = check(conf, &err);
	}
	conf->faults.seed = conf->day.seed;
	if (status != TW_OK) {
		(void)fprintf(stderr, "tw-exchange: %s\n", err.text);
		return tw_exit_status(status);
	}
	return -1;
}
