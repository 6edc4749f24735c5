/* tw-gen: writes a made-up trading day as an exchange's feed into a file.
 *
 * The same options give the same bytes, on every machine. */
#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/app.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/text.h"
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
		return tw_option_refuse("start", text, "a time like " DEFAULT_START, err);
	}
	*out = (uint64_t)timegm(&tm) * 1000000000u + ns;
	return TW_OK;
}

static int parse_group(const char *name, const char *text, uint32_t *group, uint16_t *port_out,
		       struct tw_error *err)
{
	uint32_t address;
	uint16_t port;

	if (!tw_text_endpoint(text, &address, &port) || !IN_MULTICAST(address) || port == 0) {
		return tw_option_refuse(name, text, "a multicast ADDRESS:PORT", err);
	}
	*group = address;
	*port_out = port;
	return TW_OK;
}

static int check_options(int argc, char **argv, const struct tw_gen_conf *conf, const char *summary,
			 struct tw_error *err)
{
	if (optind != argc) {
		return tw_fail(err, TW_EARG, "unexpected argument '%s'", argv[optind]);
	}
	if (conf->protocol == NULL || conf->output == NULL) {
		return tw_fail(err, TW_EARG, "%s is missing",
			       conf->protocol == NULL ? "--protocol" : "--output");
	}
	if (summary != NULL && strcmp(summary, "-") == 0 && strcmp(conf->output, "-") == 0) {
		return tw_fail(err, TW_EARG, "--summary -: standard output is the output's");
	}
	return TW_OK;
}

/* Exit status to leave with, or -1 to go on. */
static int parse_options(int argc, char **argv, struct tw_gen_conf *conf, const char **summary)
{
	struct tw_error err = { 0 };
	uint32_t format = TW_GEN_PCAP;
	uint32_t two_lines = 0;
	int status = parse_time(DEFAULT_START, &conf->start_ns, &err);
	int c = 0;

	while (status == TW_OK && (c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'p':
			conf->protocol = optarg;
			break;
		case 'o':
			conf->output = optarg;
			break;
		case 's':
			status = tw_option_u64("seed", optarg, 0, UINT64_MAX, &conf->seed, &err);
			break;
		case 'm':
			status = tw_option_u64("messages", optarg, 0, UINT64_MAX, &conf->messages,
					       &err);
			break;
		case 'r':
			status = tw_option_u64("rate", optarg, 0, UINT64_MAX, &conf->rate, &err);
			break;
		case 'n':
			status = tw_option_u32("symbols", optarg, 0, UINT32_MAX, &conf->symbols,
					       &err);
			break;
		case 't':
			status = parse_time(optarg, &conf->start_ns, &err);
			break;
		case 'f':
			status = tw_option_word("format", optarg, "pcap|pcapng", &format, &err);
			break;
		case 'g':
			status = parse_group("group", optarg, &conf->group, &conf->port, &err);
			break;
		case 'G':
			status =
				parse_group("group-b", optarg, &conf->group_b, &conf->port_b, &err);
			break;
		case 'k':
			status = tw_option_u32("skew", optarg, 0, UINT32_MAX, &conf->skew_ns, &err);
			break;
		case 'l':
			status = tw_option_word("lines", optarg, "a|ab", &two_lines, &err);
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
			return 0;
		case 'V':
			(void)puts("tw-gen " TW_VERSION);
			return 0;
		default:
			return tw_usage_error("tw-gen", NULL);
		}
	}
	conf->format = (enum tw_gen_format)format;
	if (two_lines == 0) {
		conf->port_b = 0;
	}
	if (status == TW_OK) {
		status = check_options(argc, argv, conf, *summary, &err);
	}
	return status != TW_OK ? tw_usage_error("tw-gen", &err) : -1;
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
	FILE *f;
	int rc = tw_summary_open(&f, path, err);

	if (rc != TW_OK) {
		return rc;
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
	return tw_summary_close(f, path, err);
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

	int exit_status = parse_options(argc, argv, &conf, &summary_path);
	if (exit_status >= 0) {
		return exit_status;
	}
	int status = tw_gen_run(&conf, &summary, &err);
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
