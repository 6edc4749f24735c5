/* tw-fabric: what RDMA devices there are, what a site would use of them, and whether multicast gets
 * through. */
#include <arpa/inet.h>
#include <getopt.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/app.h"
#include "base/fail.h"
#include "base/options.h"
#include "config/config.h"
#include "fabric/verbs/device.h"
#include "tools/fabric_tool.h"

static const char help[] =
	"usage: tw-fabric [--json]                      list RDMA devices, ports and GIDs\n"
	"       tw-fabric -c SITE.yaml [--as NAME]      what this host would use, and why\n"
	"       tw-fabric receive -c SITE.yaml [--as NAME] --channel ID [--wait SECONDS] [--json]\n"
	"       tw-fabric send    -c SITE.yaml [--as NAME] --channel ID [--count N] [--rate N]\n"
	"       tw-fabric receive|send --interface NAME --group ADDRESS [--transport verbs|udp] "
	"...\n"
	"\n"
	"Try multicast: 'receive' on some hosts, then 'send' with the same channel on one.\n"
	"\n"
	"  -c, --config FILE    the site's configuration\n"
	"      --as NAME        which host this is, or a process of it (default: by host name)\n"
	"      --channel ID     try the groups of this channel, on every line\n"
	"      --interface NAME try without a site: this interface ...\n"
	"      --group ADDRESS  ... and this group\n"
	"      --transport T    without a site: verbs or udp (default verbs)\n"
	"      --mtu BYTES      without a site: largest datagram (default 1024)\n"
	"      --count N        datagrams to send on each line (default 1000)\n"
	"      --size BYTES     of each (default: the MTU)\n"
	"      --rate N         a second (default 1000)\n"
	"      --wait SECONDS   for the sender to begin (default 60)\n"
	"      --json           the result as JSON\n"
	"      --help, --version\n"
	"\n"
	"exit status: 0 everything came or was sent, 64 usage, 69 something was lost or is not\n"
	"available, 71 system call failed, 77 not permitted, 78 configuration\n";

struct options {
	const char *verb, *config, *as, *interface, *group;
	uint32_t verbs, channel, count, size_bytes, rate, wait_s, mtu_bytes;
	bool json;
};

enum {
	AS = 256,
	CHANNEL,
	INTERFACE,
	GROUP,
	TRANSPORT,
	MTU,
	COUNT,
	SIZE,
	RATE,
	WAIT,
	JSON,
	HELP,
	VERSION
};

static int take_option(struct options *o, int c, const char *name, struct tw_error *err)
{
	switch (c) {
	case 'c':
		o->config = optarg;
		return TW_OK;
	case AS:
		o->as = optarg;
		return TW_OK;
	case INTERFACE:
		o->interface = optarg;
		return TW_OK;
	case GROUP:
		o->group = optarg;
		return TW_OK;
	case TRANSPORT:
		return tw_option_word(name, optarg, "udp|verbs", &o->verbs, err);
	case CHANNEL:
		return tw_option_u32(name, optarg, 1, 65535, &o->channel, err);
	case MTU:
		return tw_option_u32(name, optarg, 256, 4096, &o->mtu_bytes, err);
	case COUNT:
		return tw_option_u32(name, optarg, 1, 100000000, &o->count, err);
	case SIZE:
		if (tw_option_u32(name, optarg, 64, 4096, &o->size_bytes, NULL) != TW_OK ||
		    o->size_bytes % 4 != 0) {
			return tw_option_refuse(name, optarg, "64 to 4096, a multiple of 4", err);
		}
		return TW_OK;
	case RATE:
		return tw_option_u32(name, optarg, 1, 10000000, &o->rate, err);
	case WAIT:
		return tw_option_u32(name, optarg, 1, 86400, &o->wait_s, err);
	default:
		o->json = true;
		return TW_OK;
	}
}

/* -1 to go on, else an exit status. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = { { "config", required_argument, NULL, 'c' },
					       { "as", required_argument, NULL, AS },
					       { "channel", required_argument, NULL, CHANNEL },
					       { "interface", required_argument, NULL, INTERFACE },
					       { "group", required_argument, NULL, GROUP },
					       { "transport", required_argument, NULL, TRANSPORT },
					       { "mtu", required_argument, NULL, MTU },
					       { "count", required_argument, NULL, COUNT },
					       { "size", required_argument, NULL, SIZE },
					       { "rate", required_argument, NULL, RATE },
					       { "wait", required_argument, NULL, WAIT },
					       { "json", no_argument, NULL, JSON },
					       { "help", no_argument, NULL, HELP },
					       { "version", no_argument, NULL, VERSION },
					       { NULL, 0, NULL, 0 } };
	struct tw_error err = { 0 };
	int index = 0;
	int c;
	*o = (struct options){
		.verb = "", .verbs = 1, .mtu_bytes = 1024, .count = 1000, .rate = 1000, .wait_s = 60
	};
	while ((c = getopt_long(argc, argv, "c:", longs, &index)) != -1) {
		if (c == HELP) {
			(void)fputs(help, stdout);
			return EX_OK;
		}
		if (c == VERSION) {
			(void)printf("tw-fabric %s\n", TW_VERSION);
			return EX_OK;
		}
		if (c == '?') {
			return tw_usage_error("tw-fabric", NULL);
		}
		if (take_option(o, c, longs[index].name, &err) != TW_OK) {
			return tw_usage_error("tw-fabric", &err);
		}
	}
	if (optind < argc) {
		o->verb = argv[optind++];
	}
	const bool tries = strcmp(o->verb, "send") == 0 || strcmp(o->verb, "receive") == 0;
	const bool direct = o->interface != NULL && o->group != NULL && o->config == NULL;
	if (optind != argc || (o->verb[0] != '\0' && !tries)) {
		(void)tw_fail(&err, TW_EARG, "unexpected argument '%s'", argv[optind - 1]);
	} else if (tries && !direct && (o->config == NULL || o->channel == 0)) {
		(void)tw_fail(&err, TW_EARG,
			      "-c SITE.yaml and --channel ID are needed, or "
			      "--interface and --group");
	}
	return err.code != TW_OK ? tw_usage_error("tw-fabric", &err) : -1;
}

/* --- with a site ------------------------------------------------------------------------------ */

static void explain_line(const struct tw_site *site, const struct tw_fabric_line *line, char name)
{
	const struct tw_verbs_need need = { .line = name,
					    .mtu_bytes = site->fabric.mtu_bytes,
					    .groups = site->channel_count,
					    .partition_key = (uint16_t)site->fabric.partition_key };
	struct tw_verbs_facts facts;
	struct tw_error err;
	char text[256];
	if (tw_verbs_probe(&facts, line, &need, &err) == TW_OK) {
		tw_verbs_facts_text(&facts, text, sizeof(text));
		printf("line %c: %s can be used: %s\n", name, line->interface, text);
	} else {
		printf("line %c: %s has no device to use: %s\n", name, line->interface, err.text);
	}
}

/* Finds the host and the transport; prints nothing.  Negative, or whether it is verbs. */
static int find(struct tw_site *site, const struct options *o, uint32_t *host, char why[128],
		char transport_why[128], struct tw_error *err)
{
	int rc = tw_site_find_host(site, o->as, why, err);
	if (rc < 0) {
		return rc;
	}
	*host = (uint32_t)rc;
	rc = tw_site_resolve_lines(site, *host, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_site_transport(site, transport_why, err);
	return rc < 0 ? rc : rc == TW_TRANSPORT_VERBS;
}

static int explain(struct tw_site *site, const struct options *o, struct tw_error *err)
{
	char why[128] = "", transport_why[128] = "";
	uint32_t host = UINT32_MAX;
	int rc = find(site, o, &host, why, transport_why, err);
	if (host == UINT32_MAX) {
		return rc;
	}
	printf("host %s: %s\n", site->hosts[host].name, why);
	for (unsigned int l = 0; l < TW_MAX_LINES; l++) {
		const struct tw_fabric_line *line = &site->hosts[host].resolved[l];
		if (line->interface[0] != '\0') {
			explain_line(site, line, (char)('a' + l));
		}
	}
	if (rc >= 0) {
		printf("transport %s\n", transport_why);
	}
	return rc < 0 ? rc : TW_OK;
}

static int site_conf(struct tw_site *site, const struct options *o, struct tw_probe_conf *conf,
		     struct tw_error *err)
{
	char why[128], transport_why[128];
	uint32_t host;
	int rc = find(site, o, &host, why, transport_why, err);
	if (rc < 0) {
		return rc;
	}
	conf->verbs = rc != 0;
	rc = tw_site_find_channel(site, (uint16_t)o->channel);
	if (rc < 0) {
		return tw_fail(err, TW_ENOTFOUND, "%s: channels: no channel %u", site->path,
			       o->channel);
	}
	tw_site_fabric_conf(site, host, &conf->fabric);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		conf->groups[l] = site->channels[rc].groups[l];
		if (conf->groups[l] != 0 && conf->fabric.lines[l].address == 0) {
			return tw_fail(err, TW_ECONFIG,
				       "%s: hosts.%s.lines.%c: channel %u has that line, the host "
				       "has no interface for it",
				       site->path, site->hosts[host].name, 'a' + (int)l,
				       o->channel);
		}
	}
	fprintf(stderr, "tw-fabric: transport %s\n", transport_why);
	return TW_OK;
}

/* --- without one ------------------------------------------------------------------------------ */

static int direct_conf(const struct options *o, struct tw_probe_conf *conf, struct tw_error *err)
{
	struct in_addr group;
	struct ifaddrs *all;
	if (o->group == NULL || inet_pton(AF_INET, o->group, &group) != 1 ||
	    !IN_MULTICAST(ntohl(group.s_addr))) {
		return tw_fail(err, TW_EARG,
			       "--group: found '%s', allowed an IPv4 multicast address", o->group);
	}
	conf->verbs = o->verbs != 0;
	conf->groups[0] = ntohl(group.s_addr);
	conf->fabric = (struct tw_fabric_conf){ .mtu_bytes = o->mtu_bytes,
						.tos = 34 << 2,
						.ttl = 8,
						.rcvbuf_bytes = 4u << 20,
						.partition_key = TW_VERBS_PKEY };
	struct tw_fabric_line *line = &conf->fabric.lines[0];
	if (getifaddrs(&all) != 0) {
		return tw_fail_sys(err, TW_ESYS, "getifaddrs");
	}
	for (const struct ifaddrs *i = all; i != NULL && line->address == 0; i = i->ifa_next) {
		if (i->ifa_addr != NULL && i->ifa_addr->sa_family == AF_INET &&
		    strcmp(i->ifa_name, o->interface) == 0) {
			struct sockaddr_in in;
			memcpy(&in, i->ifa_addr, sizeof(in));
			line->address = ntohl(in.sin_addr.s_addr);
			memcpy(line->interface, i->ifa_name,
			       strnlen(i->ifa_name, sizeof(line->interface) - 1));
		}
	}
	freeifaddrs(all);
	return line->address != 0
		       ? TW_OK
		       : tw_fail(err, TW_ECONFIG,
				 "--interface: %s: not there, or without an IPv4 address",
				 o->interface);
}

static int try_multicast(struct tw_site *site, const struct options *o, struct tw_error *err)
{
	struct tw_probe_conf conf = {
		.json = o->json, .count = o->count, .rate = o->rate, .wait_s = o->wait_s
	};
	int rc = site != NULL ? site_conf(site, o, &conf, err) : direct_conf(o, &conf, err);
	if (rc != TW_OK) {
		return rc;
	}
	conf.size_bytes = o->size_bytes != 0 ? o->size_bytes : conf.fabric.mtu_bytes;
	if (conf.size_bytes > conf.fabric.mtu_bytes) {
		return tw_fail(err, TW_EARG, "--size: found %u, allowed up to the MTU, %u",
			       conf.size_bytes, conf.fabric.mtu_bytes);
	}
	return o->verb[0] == 's' ? tw_probe_send(&conf, err) : tw_probe_receive(&conf, err);
}

int main(int argc, char **argv)
{
	struct options o;
	struct tw_error err = { 0 };
	struct tw_site *site = NULL;
	int status = parse(&o, argc, argv);
	if (status >= 0) {
		return status;
	}
	int rc = o.config != NULL ? tw_site_load(&site, o.config, &err) : TW_OK;
	if (rc == TW_OK) {
		rc = o.verb[0] != '\0' ? try_multicast(site, &o, &err)
		     : site != NULL    ? explain(site, &o, &err)
				       : tw_fabric_list(stdout, o.json, &err);
	}
	tw_site_free(site);
	if (rc < 0) {
		(void)fflush(stdout);
		(void)fprintf(stderr, "tw-fabric: %s\n", err.text);
		return rc == TW_ETIMEOUT ? EX_UNAVAILABLE : tw_exit_status(rc);
	}
	return fflush(stdout) == 0 && ferror(stdout) == 0 ? EX_OK : EX_IOERR;
}
