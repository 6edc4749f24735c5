/* tw-gen: writes a made-up trading day as an exchange's feed into a file.
 *
 * The same options give the same bytes, on every machine. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/app.h"
#include "base/fail.h"
#include "gen.h"

#define DEFAULT_START "2026-01-05T14:29:00Z" /* a Monday, shortly before 09:30 in New York */

static const struct option options[] = {
	{ "protocol", required_argument, NULL, 'p' }, { "output", required_argument, NULL, 'o' },
	{ "seed", required_argument, NULL, 's' },     { "messages", required_argument, NULL, 'm' },
	{ "rate", required_argument, NULL, 'r' },     { "symbols", required_argument, NULL, 'n' },
	{ "start", required_argument, NULL, 't' },    { "format", required_argument, NULL, 'f' },
	{ "group", required_argument, NULL, 'g' },    { "gzip", no_argument, NULL, 'z' },
	{ "framing", required_argument, NULL, 'F' },  { "lines", required_argument, NULL, 'l' },
	{ "group-b", required_argument, NULL, 'G' },  { "skew", required_argument, NULL, 'k' },
	{ "summary", required_argument, NULL, 'S' },  { "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },        { NULL, 0, NULL, 0 },
};

static void print_help(void)
{
	(void)puts("Usage: tw-gen --protocol NAME --output FILE|- [OPTION]...\n"
		   "Writes a made-up trading day as an exchange's feed into a file.\n\n"
		   "  --protocol NAME    one of those below\n"
		   "  --framing NAME     the first of the protocol's is the default\n"
		   "  --output FILE      file to write; - is standard output\n"
		   "  --seed N           another seed is another day (default 1)\n"
		   "  --messages N       exactly so many messages (default 100000)\n"
		   "  --rate N           messages a second, on average (default 10000)\n"
		   "  --symbols N        instruments (default 100)\n"
		   "  --start TIME       UTC (default " DEFAULT_START ")\n"
		   "  --format pcap|pcapng   of a capture (default pcap, with nanoseconds)\n"
		   "  --group ADDR:PORT  multicast group (default 239.195.16.1:10378)\n"
		   "  --lines a|ab       every packet once, or on two lines (default a)\n"
		   "  --group-b ADDR:PORT    of line B (default 239.195.17.1:10378)\n"
		   "  --skew NS          line B arrives so much later on average (default 1500)\n"
		   "  --gzip             compress\n"
		   "  --summary FILE     write what was made as JSON; - is standard output\n"
		   "  --help, --version\n\n"
		   "Protocols:");
	for (unsigned int i = 0; tw_gen_protocol(i) != NULL; i++) {
		const struct gen_protocol *p = tw_gen_protocol(i);
		(void)printf("  %-18s %s:", p->name, p->description);
		for (unsigned int k = 0; p->framings[k] != NULL; k++) {
			(void)printf(" %s", p->framings[k]->name);
		}
		(void)putchar('\n');
	}
}

static int parse_number(const char *name, const char *text, uint64_t max, uint64_t *out,
			struct tw_error *err)
{
	char *end = NULL;

	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v > max) {
		return tw_fail(err, TW_EARG, "--%s %s: not a number from 0 to %" PRIu64, name, text,
			       max);
	}
	*out = v;
	return TW_OK;
}

/* 2026-01-05T14:30:00Z, with up to nine decimals of the second. */
static int parse_time(const char *text, uint64_t *out, struct tw_error *err)
{
	struct tm tm;
	uint64_t ns = 0;

	memset(&tm, 0, sizeof(tm));
	const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	if (rest != NULL && *rest == '.') {
		uint64_t unit = 100000000;
		for (rest++; *rest >= '0' && *rest <= '9' && unit != 0; rest++, unit /= 10) {
			ns += unit * (uint64_t)(*rest - '0');
		}
	}
	/* 2^63 ns end in 2262; leave room for the day itself */
	if (rest == NULL || strcmp(rest, "Z") != 0 || tm.tm_year < 70 || tm.tm_year > 350) {
		return tw_fail(err, TW_EARG, "--start %s: not a time like " DEFAULT_START, text);
	}
	*out = (uint64_t)timegm(&tm) * 1000000000u + ns;
	return TW_OK;
}

static int parse_group(const char *name, const char *text, uint32_t *group, uint16_t *port_out,
		       struct tw_error *err)
{
	char addr[INET_ADDRSTRLEN] = "";
	const char *colon = strchr(text, ':');
	struct in_addr in = { 0 };
	uint64_t port = 0;

	if (colon == NULL) {
		return tw_fail(err, TW_EARG, "--%s %s: no port, wanted ADDRESS:PORT", name, text);
	}
	if ((size_t)(colon - text) < sizeof(addr)) {
		memcpy(addr, text, (size_t)(colon - text));
	}
	if (inet_pton(AF_INET, addr, &in) != 1 || !IN_MULTICAST(ntohl(in.s_addr)) ||
	    parse_number(name, colon + 1, UINT16_MAX, &port, NULL) != TW_OK || port == 0) {
		return tw_fail(err, TW_EARG, "--%s %s: not a multicast ADDRESS:PORT", name, text);
	}
	*group = ntohl(in.s_addr);
	*port_out = (uint16_t)port;
	return TW_OK;
}

static int parse_format(const char *text, struct tw_gen_conf *conf, struct tw_error *err)
{
	if (strcmp(text, "pcap") == 0) {
		conf->format = TW_GEN_PCAP;
	} else if (strcmp(text, "pcapng") == 0) {
		conf->format = TW_GEN_PCAPNG;
	} else {
		return tw_fail(err, TW_EARG, "--format %s: allowed: pcap, pcapng", text);
	}
	return TW_OK;
}

static int parse_lines(const char *text, bool *two, struct tw_error *err)
{
	if (strcmp(text, "a") != 0 && strcmp(text, "ab") != 0) {
		return tw_fail(err, TW_EARG, "--lines %s: allowed: a, ab", text);
	}
	*two = text[1] == 'b';
	return TW_OK;
}

/* 0; 1 where the program is done (help, version); or a status. */
static int parse_options(int argc, char **argv, struct tw_gen_conf *conf, const char **summary,
			 struct tw_error *err)
{
	uint64_t symbols = conf->symbols;
	uint64_t skew_ns = conf->skew_ns;
	bool two_lines = false;
	int status = parse_time(DEFAULT_START, &conf->start_ns, err);
	int c = 0;

	while (status == TW_OK && (c = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			conf->protocol = optarg;
			break;
		case 'o':
			conf->output = optarg;
			break;
		case 's':
			status = parse_number("seed", optarg, UINT64_MAX, &conf->seed, err);
			break;
		case 'm':
			status = parse_number("messages", optarg, UINT64_MAX, &conf->messages, err);
			break;
		case 'r':
			status = parse_number("rate", optarg, UINT64_MAX, &conf->rate, err);
			break;
		case 'n':
			status = parse_number("symbols", optarg, UINT32_MAX, &symbols, err);
			break;
		case 't':
			status = parse_time(optarg, &conf->start_ns, err);
			break;
		case 'f':
			status = parse_format(optarg, conf, err);
			break;
		case 'g':
			status = parse_group("group", optarg, &conf->group, &conf->port, err);
			break;
		case 'G':
			status = parse_group("group-b", optarg, &conf->group_b, &conf->port_b, err);
			break;
		case 'k':
			status = parse_number("skew", optarg, UINT32_MAX, &skew_ns, err);
			break;
		case 'l':
			status = parse_lines(optarg, &two_lines, err);
			break;
		case 'F':
			conf->framing = optarg;
			break;
		case 'z':
			conf->gzip = true;
			break;
		case 'S':
			*summary = optarg;
			break;
		case 'h':
			print_help();
			return 1;
		case 'V':
			(void)puts("tw-gen " TW_VERSION);
			return 1;
		default:
			return tw_fail(err, TW_EARG, "%s: %s", argv[optind - 1],
				       c == ':' ? "needs a value" : "unknown option");
		}
	}
	conf->symbols = (uint32_t)symbols;
	conf->skew_ns = (uint32_t)skew_ns;
	if (!two_lines) {
		conf->port_b = 0;
	}
	if (status != TW_OK) {
		return status;
	}
	if (optind != argc) {
		return tw_fail(err, TW_EARG, "%s: not an option", argv[optind]);
	}
	if (conf->protocol == NULL || conf->output == NULL) {
		return tw_fail(err, TW_EARG, "%s: missing; see tw-gen --help",
			       conf->protocol == NULL ? "--protocol" : "--output");
	}
	if (*summary != NULL && strcmp(*summary, "-") == 0 && strcmp(conf->output, "-") == 0) {
		return tw_fail(err, TW_EARG, "--summary -: standard output is the output's");
	}
	return TW_OK;
}

static void print_counts(FILE *f, const struct tw_gen_summary *s)
{
	const char *comma = "";

	for (unsigned int type = 0; type < 256; type++) {
		if (s->counts[type] != 0) {
			(void)fprintf(f, "%s\"%c\":%" PRIu64, comma, (char)type, s->counts[type]);
			comma = ",";
		}
	}
}

static int write_summary(const char *path, const struct tw_gen_conf *conf,
			 const struct tw_gen_summary *s, struct tw_error *err)
{
	FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");

	if (f == NULL) {
		return tw_fail_sys(err, TW_ESYS, "%s: open", path);
	}
	(void)fprintf(f, "{\"protocol\":\"%s\"", conf->protocol);
	if (s->session_name[0] != '\0') {
		(void)fprintf(f, ",\"session\":\"%s\"", s->session_name);
	} else {
		(void)fprintf(f, ",\"session\":%u", s->session);
	}
	(void)fprintf(f, ",\"symbols\":%u", conf->symbols);
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{ "seed", conf->seed },
		{ "messages", s->messages },
		{ "packets", s->packets },
		{ "heartbeats", s->heartbeats },
		{ "first_seq", s->first_seq },
		{ "last_seq", s->last_seq },
		{ "first_ns", s->first_ns },
		{ "last_ns", s->last_ns },
		{ "capture_bytes", s->capture_bytes },
		{ "payload_bytes", s->payload_bytes },
		{ "one_sided_quotes", s->one_sided_quotes },
		{ "empty_quotes", s->empty_quotes },
		{ "traded_qty", s->traded_qty },
		{ "broken_qty", s->broken_qty },
		{ "unprinted_qty", s->unprinted_qty },
		{ "living_orders", s->living_orders },
		{ "living_qty", s->living_qty },
	};
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		(void)fprintf(f, ",\"%s\":%" PRIu64, numbers[i].name, numbers[i].value);
	}
	(void)fprintf(f, ",\"book_hash\":\"%016" PRIx64 "\",\"counts\":{", s->book_hash);
	print_counts(f, s);
	(void)fputs("}}\n", f);
	int failed = ferror(f);
	if ((f == stdout ? fflush(f) : fclose(f)) != 0 || failed) {
		return tw_fail_sys(err, TW_ESYS, "%s: write", path);
	}
	return TW_OK;
}

int main(int argc, char **argv)
{
	struct tw_gen_conf conf = {
		.seed = 1,
		.messages = 100000,
		.rate = 10000,
		.symbols = 100,
		.group = 0xefc31001u, /* 239.195.16.1 */
		.port = 10378,
		.group_b = 0xefc31101u, /* 239.195.17.1 */
		.port_b = 10378,
		.skew_ns = 1500,
	};
	struct tw_gen_summary summary;
	struct tw_error err = { 0 };
	const char *summary_path = NULL;

	int status = parse_options(argc, argv, &conf, &summary_path, &err);
	if (status == 1) {
		return 0;
	}
	if (status == TW_OK) {
		status = tw_gen_run(&conf, &summary, &err);
	}
	if (status == TW_OK && summary_path != NULL) {
		status = write_summary(summary_path, &conf, &summary, &err);
	}
	if (status != TW_OK) {
		(void)fprintf(stderr, "tw-gen: %s\n", err.text);
		return tw_exit_status(status);
	}
	(void)fprintf(stderr,
		      "tw-gen: %" PRIu64 " messages in %" PRIu64 " packets, %" PRIu64
		      " bytes, %.3f s of feed\n",
		      summary.messages, summary.packets, summary.capture_bytes,
		      (double)(summary.last_ns - summary.first_ns) / 1e9);
	return 0;
}
