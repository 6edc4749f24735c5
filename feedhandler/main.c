/* tw-feedhandler: reads a venue's feed, normalizes it, numbers it and writes it on the bus. */
#include <stdio.h>
#include <sysexits.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "feedhandler/feedhandler.h"
#include "feedhandler/registry.h"

#define PROGRAM "tw-feedhandler"

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
		"      --summary FILE  write the JSON summary there instead of standard output\n"
		"      --help, --version\n"
		"\n"
		"exit status: 0 done, 64 usage, 65 the input is damaged, 69 no publisher or busy,\n"
		"71 system call failed, 77 not permitted, 78 configuration\n"
		"\n");
	tw_registry_print(out);
}

static int run(struct tw_app *app, const struct tw_site *site, uint32_t index,
	       const struct tw_options *opt, struct tw_error *err)
{
	FILE *out;
	int rc = tw_summary_open(&out, opt->summary, err);
	if (rc != TW_OK) {
		return rc;
	}
	struct tw_feedhandler *fh;
	int status = EX_OK;
	rc = tw_feedhandler_open(&fh, site, index, app, err);
	if (rc == TW_OK) {
		rc = tw_feedhandler_start(fh, err);
	}
	if (rc == TW_OK) {
		(void)tw_app_run(app, tw_feedhandler_tick, fh);
		status = tw_feedhandler_join(fh);
		tw_feedhandler_summary(fh, out);
	}
	tw_feedhandler_close(fh);
	int closed = tw_summary_close(out, opt->summary, rc == TW_OK ? err : NULL);
	if (rc == TW_OK) {
		rc = closed;
	}
	return rc != TW_OK ? rc : status;
}

int main(int argc, char **argv)
{
	struct tw_options opt;
	int status = tw_options_parse(&opt, argc, argv, PROGRAM, usage);
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
