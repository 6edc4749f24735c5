/* Command lines and summaries; see options.h. */
#include "base/options.h"

#include <getopt.h>
#include <string.h>
#include <sysexits.h>

#include "base/app.h"
#include "base/fail.h"

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
			return EX_USAGE; /* getopt_long has said why */
		}
	}
	if (optind != argc) {
		(void)fprintf(stderr, "%s: unexpected argument '%s'\n", program, argv[optind]);
		return EX_USAGE;
	}
	if (opt->config == NULL) {
		(void)fprintf(stderr, "%s: -c SITE.yaml is missing (--help)\n", program);
		return EX_USAGE;
	}
	return -1;
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
