/* Command lines and summaries; see options.h. */
#include "base/options.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>
#include <sysexits.h>

#include "base/app.h"
#include "base/fail.h"
#include "base/text.h"

#define FOUND_BYTES 80 /* of a wrong value that are shown */

int tw_option_refuse(const char *name, const char *text, const char *allowed, struct tw_error *err)
{
	return tw_fail(err, TW_EARG, "--%s: found '%.*s', allowed %s", name, FOUND_BYTES, text,
		       allowed);
}

int tw_option_u64(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out,
		  struct tw_error *err)
{
	char allowed[64];
	uint64_t v;
	if (tw_text_u64(text, false, &v) != TW_NUMBER_OK || v < min || v > max) {
		(void)snprintf(allowed, sizeof(allowed), "%" PRIu64 " to %" PRIu64, min, max);
		return tw_option_refuse(name, text, allowed, err);
	}
	*out = v;
	return TW_OK;
}

int tw_option_u32(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *out,
		  struct tw_error *err)
{
	uint64_t v = 0;
	int rc = tw_option_u64(name, text, min, max, &v, err);
	if (rc == TW_OK) {
		*out = (uint32_t)v;
	}
	return rc;
}

int tw_option_ppm(const char *name, const char *text, uint32_t *out_ppm, struct tw_error *err)
{
	uint64_t v;
	if (tw_text_ppm(text, &v) != TW_NUMBER_OK || v > (uint64_t)100 * TW_PPM_PER_PCT) {
		return tw_option_refuse(name, text, "0 to 100 with up to four decimals", err);
	}
	*out_ppm = (uint32_t)v;
	return TW_OK;
}

int tw_option_word(const char *name, const char *text, const char *set, uint32_t *out,
		   struct tw_error *err)
{
	char allowed[128];
	int index = tw_text_find(set, text);
	if (index < 0) {
		tw_text_or(set, allowed, sizeof(allowed));
		return tw_option_refuse(name, text, allowed, err);
	}
	*out = (uint32_t)index;
	return TW_OK;
}

int tw_usage_error(const char *program, const struct tw_error *err)
{
	if (err != NULL) {
		(void)fprintf(stderr, "%s: %s\n", program, err->text);
	}
	(void)fprintf(stderr, "%s: --help says what there is\n", program);
	return EX_USAGE;
}

int tw_options_parse(struct tw_options *opt, int argc, char **argv, const char *program,
		     void (*help)(FILE *out))
{
	enum { AS = 256, CHECK, SUMMARY, HELP, VERSION };
	static const struct option longs[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "as", required_argument, NULL, AS },
		{ "check", no_argument, NULL, CHECK },
		{ "summary", required_argument, NULL, SUMMARY },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
		{ NULL, 0, NULL, 0 },
	};
	*opt = (struct tw_options){ 0 };
	int c;
	while ((c = getopt_long(argc, argv, "c:", longs, NULL)) != -1) {
		switch (c) {
		case 'c':
			opt->config = optarg;
			break;
		case AS:
			opt->as = optarg;
			break;
		case CHECK:
			opt->check = true;
			break;
		case SUMMARY:
			opt->summary = optarg;
			break;
		case HELP:
			help(stdout);
			return EX_OK;
		case VERSION:
			(void)printf("%s %s\n", program, TW_VERSION);
			return EX_OK;
		default:
			return tw_usage_error(program, NULL);
		}
	}
	struct tw_error err = { 0 };
	if (optind != argc) {
		(void)tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind]);
	} else if (opt->config == NULL) {
		(void)tw_fail(&err, TW_EARG, "-c SITE.yaml is missing");
	}
	return err.code != TW_OK ? tw_usage_error(program, &err) : -1;
}

int tw_summary_open(FILE **out, const char *path, struct tw_error *err)
{
	*out = stdout;
	if (path != NULL && strcmp(path, "-") != 0) {
		*out = fopen(path, "we");
	}
	return *out != NULL ? TW_OK : tw_fail_sys(err, TW_ESYS, "%s: fopen", path);
}

int tw_summary_close(FILE *out, const char *path, struct tw_error *err)
{
	bool failed = ferror(out) != 0;
	failed |= (out == stdout ? fflush(out) : fclose(out)) != 0;
	return failed ? tw_fail_sys(err, TW_ESYS, "%s: write",
				    out == stdout ? "standard output" : path)
		      : TW_OK;
}
