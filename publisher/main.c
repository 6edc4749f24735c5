/* tw-publisher: sends channels from their buses to every line. */
#include <stdio.h>
#include <sysexits.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "publisher/publisher.h"

#define PROGRAM "tw-publisher"

static const char help[] =
	"usage: " PROGRAM " -c SITE.yaml [--as NAME] [--check] [--summary FILE]\n"
	"\n"
	"Packs the messages of its channels' buses into datagrams and multicasts them on every\n"
	"line, until SIGINT or SIGTERM; then prints a JSON summary.  A bus that is not there yet "
	"is\n"
	"waited for, a new session is followed, a restart goes on where the last one stopped.\n"
	"\n"
	"  -c, --config FILE   the site's configuration\n"
	"      --as NAME       which publisher, or whose host, this is (default: by host name)\n"
	"      --check         open everything, say what was chosen and why, then leave\n"
	"      --summary FILE  write the summary there instead of standard output\n"
	"      --help, --version\n"
	"\n"
	"exit status: 0 done, 64 usage, 69 busy, 70 internal, 71 system call failed,\n"
	"77 not permitted, 78 configuration\n";

static void print_help(FILE *out)
{
	(void)fputs(help, out);
}

static void log_line(const char *text)
{
	tw_log(TW_LOG_INFO, "%s", text);
}

static void print_line(const char *text)
{
	(void)puts(text);
}

static void log_ready(const struct tw_publisher *pub)
{
	char list[128];
	int len = 0;
	list[0] = '\0';
	for (uint32_t i = 0; i < pub->conf->channel_count && len >= 0 && len < 100; i++) {
		len += snprintf(list + len, sizeof(list) - (size_t)len, "%s%u", i == 0 ? "" : ", ",
				pub->channels[i].conf.channel);
	}
	tw_log(TW_LOG_INFO, "ready: sending channel%s %s%s",
	       pub->conf->channel_count == 1 ? "" : "s", list, len >= 100 ? ", ..." : "");
}

static int run(struct tw_app *app, struct tw_publisher *pub, const struct tw_options *opt,
	       struct tw_error *err)
{
	FILE *out;
	int rc = tw_summary_open(&out, opt->summary, err);
	if (rc != TW_OK) {
		return rc;
	}
	rc = tw_publisher_start(pub, err);
	if (rc == TW_OK) {
		log_ready(pub);
		(void)tw_app_run(app, tw_publisher_tick, pub);
		rc = tw_publisher_join(pub, err);
		tw_publisher_summary(pub, out);
	}
	int closed = tw_summary_close(out, opt->summary, rc == TW_OK ? err : NULL);
	return rc != TW_OK ? rc : closed;
}

static int with_site(struct tw_app *app, struct tw_site *site, const struct tw_options *opt,
		     struct tw_error *err)
{
	char why[128];
	int index = tw_site_find_publisher(site, opt->as, why, err);
	if (index < 0) {
		return index;
	}
	tw_log(TW_LOG_INFO, "publisher %s (%s), site %s, %s", site->publishers[index].name, why,
	       site->name, site->production ? "production" : "test");
	struct tw_publisher *pub;
	int rc = tw_publisher_open(&pub, site, (uint32_t)index, app, err);
	if (rc != TW_OK) {
		return rc;
	}
	tw_publisher_describe(pub, opt->check ? print_line : log_line);
	if (!opt->check) {
		rc = run(app, pub, opt, err);
	}
	tw_publisher_close(pub);
	return rc;
}

int main(int argc, char **argv)
{
	struct tw_options opt;
	int status = tw_options_parse(&opt, argc, argv, PROGRAM, print_help);
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
		rc = with_site(&app, site, &opt, &err);
	}
	tw_site_free(site);
	if (rc < 0) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		return tw_exit_status(rc);
	}
	return EX_OK;
}
