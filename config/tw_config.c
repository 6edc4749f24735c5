/* tw-config: looks at a site file without running anything. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "base/app.h"
#include "base/fail.h"
#include "base/options.h"
#include "base/text.h"
#include "config/schema.h"

static const char usage[] =
	"usage: tw-config check FILE              check the whole site, print what follows from "
	"it\n"
	"       tw-config show FILE [--as NAME]   effective values with their origin, of one host "
	"or "
	"all\n"
	"       tw-config sample                  a commented file with every key\n"
	"       tw-config --help | --version\n"
	"NAME is a host, feedhandler or publisher. Exit status: 0, 64 usage, 66 no such file, 78 "
	"configuration.\n";

static void print_channels(const struct tw_site *site)
{
	for (uint32_t i = 0; i < site->channel_count; i++) {
		const struct tw_site_channel *ch = &site->channels[i];
		static const char *const depths[] = { "quotes", "levels", "orders" };
		(void)printf("channel %u %s: %s", ch->id, ch->name, depths[ch->depth]);
		for (uint32_t line = 0; line < ch->lines; line++) {
			uint32_t g = ch->groups[line];
			char mac[18];
			tw_group_mac(g, mac);
			(void)printf(", %c " TW_IPV4_FMT " (%s)", 'a' + (int)line, TW_IPV4_ARGS(g),
				     mac);
		}
		(void)printf("\n");
	}
}

static void print_hosts(const struct tw_site *site)
{
	for (uint32_t i = 0; i < site->host_count; i++) {
		const struct tw_site_host *h = &site->hosts[i];
		const struct {
			const char *role;
			int cpu;
		} roles[] = { { "publisher", h->cpu_publisher },
			      { "repair", h->cpu_repair },
			      { "feedhandler", h->cpu_feedhandler },
			      { "subscriber", h->cpu_subscriber } };
		const char *mark = ", CPU";
		(void)printf("host %s: lines %s%s%s, %u hot threads with one subscriber", h->name,
			     h->lines[0], h->lines[1][0] != '\0' ? " " : "", h->lines[1],
			     tw_site_hot_threads(site, i));
		for (size_t r = 0; r < sizeof(roles) / sizeof(roles[0]); r++) {
			if (roles[r].cpu >= 0) {
				(void)printf("%s %d %s", mark, roles[r].cpu, roles[r].role);
				mark = ",";
			}
		}
		(void)printf("%s\n", mark[1] != '\0' ? ", none pinned" : "");
	}
}

static void print_publishers(const struct tw_site *site)
{
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		const struct tw_site_publisher *p = &site->publishers[i];
		double mbytes = (double)p->history_bytes / 1e6;
		(void)printf("publisher %s: history %.1f MB a channel, %.1f MB for %u: %.1f s at a "
			     "peak of %u Mbit/s\n",
			     p->name, mbytes, mbytes * p->channel_count, p->channel_count,
			     p->history_ms / 1e3, p->peak_mbps);
	}
}

/* What is no error, yet probably not meant. */
static void print_notes(const struct tw_site *site)
{
	for (uint32_t i = 0; i < site->channel_count; i++) {
		bool written = false, sent = false;
		for (uint32_t f = 0; f < site->feedhandler_count; f++) {
			for (uint32_t k = 0; k < site->feedhandlers[f].channel_count; k++) {
				written = written || site->feedhandlers[f].channels[k] == i;
			}
		}
		for (uint32_t p = 0; p < site->publisher_count; p++) {
			for (uint32_t k = 0; k < site->publishers[p].channel_count; k++) {
				sent = sent || site->publishers[p].channels[k] == i;
			}
		}
		if (!written || !sent) {
			(void)printf("note: no %s channel %u\n",
				     !written && !sent ? "feedhandler writes and no publisher sends"
				     : !written        ? "feedhandler writes"
						       : "publisher sends",
				     site->channels[i].id);
		}
	}
	if (tw_fault_active(&site->fault)) {
		(void)printf("note: faults are injected at every subscriber\n");
	}
}

static int check(const struct tw_site *site)
{
	(void)printf("%s: ok\n", site->path);
	(void)printf("site %s, %s, environment id 0x%04x, run_dir %s, mtu %u bytes\n", site->name,
		     site->production ? "production" : "test", site->environment_id, site->run_dir,
		     site->fabric.mtu_bytes);
	print_channels(site);
	print_hosts(site);
	print_publishers(site);
	print_notes(site);
	return EX_OK;
}

static int show(const struct tw_site *site, const char *as, struct tw_error *err)
{
	char why[128];
	if (as == NULL) {
		(void)printf("# %s: the whole site\n", site->path);
		return tw_site_show(site, stdout);
	}
	int host = tw_site_find_host(site, as, why, err);
	if (host < 0) {
		return host;
	}
	(void)printf("# %s: host %s: %s\n", site->path, site->hosts[host].name, why);
	return tw_site_show_host(site, host, stdout);
}

int main(int argc, char **argv)
{
	static const struct option options[] = { { "as", required_argument, NULL, 'a' },
						 { "help", no_argument, NULL, 'h' },
						 { "version", no_argument, NULL, 'V' },
						 { NULL, 0, NULL, 0 } };
	const char *as = NULL;
	struct tw_error err = { 0 };
	struct tw_site *site;
	int option;
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		switch (option) {
		case 'a':
			as = optarg;
			break;
		case 'h':
			(void)fputs(usage, stdout);
			return EX_OK;
		case 'V':
			(void)printf("tw-config %s\n", TW_VERSION);
			return EX_OK;
		default:
			return tw_usage_error("tw-config", NULL);
		}
	}
	const char *verb = optind < argc ? argv[optind] : "";
	const char *path = optind + 1 < argc ? argv[optind + 1] : NULL;
	bool is_show = strcmp(verb, "show") == 0;
	if (strcmp(verb, "sample") == 0 && path == NULL && as == NULL) {
		tw_config_sample(stdout);
		return fflush(stdout) == 0 ? EX_OK : EX_IOERR;
	}
	if ((!is_show && strcmp(verb, "check") != 0) || path == NULL || optind + 2 != argc ||
	    (as != NULL && !is_show)) {
		(void)tw_fail(&err, TW_EARG,
			      "allowed are check FILE, show [--as NAME] FILE and "
			      "sample");
		return tw_usage_error("tw-config", &err);
	}
	int rc = tw_site_load(&site, path, &err);
	if (rc == TW_OK) {
		rc = is_show ? show(site, as, &err) : check(site);
		tw_site_free(site);
	}
	if (rc < 0) {
		(void)fprintf(stderr, "tw-config: %s\n", err.text);
		return rc == TW_ENOTFOUND && site == NULL ? EX_NOINPUT : tw_exit_status(rc);
	}
	return fflush(stdout) == 0 && ferror(stdout) == 0 ? EX_OK : EX_IOERR;
}
