/* tw-feedhandler: reads a venue's feed, normalizes it, numbers it and writes it on the bus. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/fail.h"
#include "base/log.h"
#include "feedhandler/feedhandler.h"
#include "feedhandler/registry.h"

#define PROGRAM "tw-feedhandler"

struct options {
	const char *config, *as, *summary;
	bool check;
};

static void usage(FILE *out)
{
	(void)fprintf(
		out,
		"usage: " PROGRAM " -c SITE.yaml [--as NAME] [--check] [--summary FILE]\n"
		"\n"
		"Reads a venue's feed, normalizes it and writes it on the bus of its channels.\n"
		"A file waits for the publishers of its channels; the program ends with the file.\n"
		"\n"
		"  -c, --config FILE   the site's configuration\n"
		"      --as NAME       which feedhandler, or whose host, this is\n"
		"      --check         look at configuration and input, then leave\n"
		"      --summary FILE  write a JSON summary at the end; - is standard output\n"
		"      --help, --version\n"
		"\n"
		"exit status: 0 done, 64 usage, 65 the input is damaged, 69 no publisher or busy,\n"
		"71 system call failed, 77 not permitted, 78 configuration\n"
		"\n");
	tw_registry_print(out);
}

/* Exit status to leave with, or -1 to go on. */
static int parse_options(struct options *opt, int argc, char **argv)
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
	*opt = (struct options){ 0 };
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
			usage(stdout);
			return EX_OK;
		case VERSION:
			(void)printf(PROGRAM " " TW_VERSION "\n");
			return EX_OK;
		default:
			return EX_USAGE;
		}
	}
	if (optind != argc) {
		(void)fprintf(stderr, PROGRAM ": unexpected argument '%s'\n", argv[optind]);
		return EX_USAGE;
	}
	if (opt->config == NULL) {
		(void)fprintf(stderr, PROGRAM ": -c SITE.yaml is missing (--help)\n");
		return EX_USAGE;
	}
	return -1;
}

static int write_summary(const struct tw_feedhandler *fh, const char *path, struct tw_error *err)
{
	if (strcmp(path, "-") == 0) {
		tw_feedhandler_summary(fh, stdout);
		return fflush(stdout) == 0 ? TW_OK
					   : tw_fail_sys(err, TW_ESYS, "standard output: fflush");
	}
	FILE *out = fopen(path, "we");
	if (out == NULL) {
		return tw_fail_sys(err, TW_ESYS, "%s: fopen", path);
	}
	tw_feedhandler_summary(fh, out);
	bool failed = ferror(out) != 0;
	if (fclose(out) != 0 || failed) {
		return tw_fail_sys(err, TW_ESYS, "%s: write", path);
	}
	return TW_OK;
}

static int run(struct tw_app *app, const struct tw_site *site, uint32_t index,
	       const struct options *opt, struct tw_error *err)
{
	struct tw_feedhandler *fh;
	int rc = tw_feedhandler_open(&fh, site, index, app, err);
	if (rc != TW_OK) {
		return rc;
	}
	rc = tw_feedhandler_start(fh, err);
	if (rc != TW_OK) {
		tw_feedhandler_close(fh);
		return rc;
	}
	(void)tw_app_run(app, tw_feedhandler_tick, fh);
	int status = tw_feedhandler_join(fh);
	if (opt->summary != NULL) {
		rc = write_summary(fh, opt->summary, err);
	}
	tw_feedhandler_close(fh);
	return rc != TW_OK ? rc : status;
}

int main(int argc, char **argv)
{
	struct options opt;
	int status = parse_options(&opt, argc, argv);
	if (status >= 0) {
		return status;
	}
	tw_log_init(PROGRAM, TW_LOG_INFO);
	struct tw_app app;
	tw_app_init(&app, PROGRAM);

	struct tw_error err = { 0 };
	struct tw_site *site;
	int rc = tw_site_load(&site, opt.config, &err);
	if (rc == TW_OK) {
		char why[128];
		int index = tw_site_find_feedhandler(site, opt.as, why, &err);
		rc = index;
		if (index >= 0 && opt.check) {
			rc = tw_feedhandler_check(site, (uint32_t)index, stdout, &err);
		} else if (index >= 0) {
			tw_log(TW_LOG_INFO, "feedhandler %s (%s), site %s, %s",
			       site->feedhandlers[index].name, why, site->name,
			       site->production ? "production" : "test");
			rc = run(&app, site, (uint32_t)index, &opt, &err);
		}
	}
	tw_site_free(site);
	if (rc < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		return tw_exit_status(rc);
	}
	return rc;
}
