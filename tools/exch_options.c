/* tw-exchange's command line. */
#include <arpa/inet.h>
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/app.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/text.h"
#include "exch.h"

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

static int parse_addr(const char *name, const char *text, struct in_addr *addr,
		      struct tw_error *err)
{
	return inet_pton(AF_INET, text, addr) == 1
		       ? TW_OK
		       : tw_option_refuse(name, text, "an IPv4 address", err);
}

static int parse_endpoint(const char *name, const char *text, bool group, struct sockaddr_in *out,
			  struct tw_error *err)
{
	uint32_t address;
	uint16_t port;

	if (!tw_text_endpoint(text, &address, &port) || IN_MULTICAST(address) != group ||
	    (group && port == 0)) {
		return tw_option_refuse(name, text,
					group ? "a multicast GROUP:PORT" : "an ADDRESS:PORT", err);
	}
	*out = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr = { htonl(address) } };
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
		return tw_option_refuse("session", text, "one to ten letters and digits", err);
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
		return tw_option_ppm(name, optarg, &conf->faults.drop_ppm[c - DROP_A], err);
	case DROP_BOTH:
		return tw_option_ppm(name, optarg, &conf->faults.drop_both_ppm, err);
	case DUPLICATE:
		return tw_option_ppm(name, optarg, &conf->faults.duplicate_ppm, err);
	case REORDER:
		return tw_option_ppm(name, optarg, &conf->faults.reorder_ppm, err);
	case REREQUEST:
		conf->serve = true;
		return parse_endpoint(name, optarg, false, &conf->rerequest, err);
	case REREQUEST_RATE:
		return tw_option_u32(name, optarg, 1, 1000000, &conf->rerequest_rate, err);
	case STORE:
		return tw_option_u64(name, optarg, 1, UINT64_MAX, &conf->store_messages, err);
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
		return tw_option_u64(name, optarg, 0, UINT64_MAX, &conf->day.seed, err);
	case MESSAGES:
		return tw_option_u64(name, optarg, 1, UINT64_MAX, &conf->day.max_messages, err);
	case SYMBOLS:
		return tw_option_u32(name, optarg, 1, UINT32_MAX, &conf->day.symbols, err);
	case RATE:
		return tw_option_u64(name, optarg, 0, TW_GEN_MAX_RATE, &conf->day.rate, err);
	case SPEED:
		return tw_option_u32(name, optarg, 0, EXCH_MAX_SPEED_PCT, &conf->day.speed_pct,
				     err);
	case RESTAMP:
		conf->restamp = true;
		return TW_OK;
	case SESSION:
		return parse_session(optarg, conf->session, err);
	case START_DELAY:
		return tw_option_u32(name, optarg, 0, 3600000, &conf->start_delay_ms, err);
	case LINGER:
		return tw_option_u32(name, optarg, 0, 86400, &conf->linger_s, err);
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
		return tw_fail(err, TW_EARG, "--a is missing");
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
	while (status == TW_OK && (c = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (c == HELP) {
			print_help();
			return 0;
		}
		if (c == VERSION) {
			(void)puts("tw-exchange " TW_VERSION);
			return 0;
		}
		if (c == '?') {
			return tw_usage_error("tw-exchange", NULL);
		}
		status = take_option(conf, c, options[index].name, &err);
	}
	if (status == TW_OK && optind != argc) {
		status = tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind]);
	}
	if (status == TW_OK) {
		status = check(conf, &err);
	}
	conf->faults.seed = conf->day.seed;
	return status != TW_OK ? tw_usage_error("tw-exchange", &err) : -1;
}
