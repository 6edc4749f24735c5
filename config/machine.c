/* What the configuration says, held against the machine that it runs on. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fail.h"
#include "base/text.h"
#include "config/schema.h"

/* Whether anything of this machine is called `name`, and a list of what is there for the error. */
static bool interface_exists(const struct ifaddrs *all, const char *name, char names[160])
{
	size_t used = 0;
	bool found = false;
	names[0] = '\0';
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		bool seen = false;
		for (const struct ifaddrs *j = all; j != i && !seen; j = j->ifa_next) {
			seen = strcmp(i->ifa_name, j->ifa_name) == 0;
		}
		found = found || strcmp(i->ifa_name, name) == 0;
		if (!seen && used + strlen(i->ifa_name) + 3u < 160u) {
			used += (size_t)snprintf(names + used, 160u - used, "%s%s",
						 used > 0 ? ", " : "", i->ifa_name);
		}
	}
	return found;
}

static int resolve_line(const struct tw_site *site, const struct tw_site_host *host, uint32_t line,
			const struct ifaddrs *all, struct tw_fabric_line *out, struct tw_error *err)
{
	const char *name = host->lines[line];
	uint32_t own = host->line_addresses[line];
	uint32_t want = own != 0 ? own : host->address;
	uint32_t address = 0;
	bool up = false;
	char names[160];
	for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
		if (strcmp(i->ifa_name, name) != 0 || i->ifa_addr == NULL ||
		    i->ifa_addr->sa_family != AF_INET) {
			continue;
		}
		struct sockaddr_in in;
		memcpy(&in, i->ifa_addr, sizeof(in));
		uint32_t a = ntohl(in.sin_addr.s_addr);
		if (address == 0 || a == want) {
			address = a;
			up = (i->ifa_flags & IFF_UP) != 0;
		}
		/* where groups are joined on lo, whatever else it was given */
		if ((i->ifa_flags & IFF_LOOPBACK) != 0) {
			address = INADDR_LOOPBACK;
		}
	}
	if (address == 0 || !up) {
		bool exists = interface_exists(all, name, names);
		return tw_fail(err, TW_ECONFIG,
			       "%s: hosts.%s.lines.%c: interface %s: %s (this machine has %s)",
			       site->path, host->name, 'a' + (int)line, name,
			       !exists        ? "not there"
			       : address == 0 ? "has no IPv4 address"
					      : "is down",
			       names);
	}
	if (own != 0 && own != address) {
		return tw_fail(err, TW_ECONFIG,
			       "%s: hosts.%s.addresses.%c: found " TW_IPV4_FMT ", but interface %s "
			       "has " TW_IPV4_FMT,
			       site->path, host->name, 'a' + (int)line, TW_IPV4_ARGS(own), name,
			       TW_IPV4_ARGS(address));
	}
	*out = (struct tw_fabric_line){ .address = address };
	memcpy(out->interface, name, strlen(name) + 1u);
	return TW_OK;
}

int tw_site_resolve_lines(struct tw_site *site, uint32_t host, struct tw_error *err)
{
	struct tw_site_host *h = &site->hosts[host];
	struct tw_fabric_line resolved[TW_MAX_LINES] = { 0 };
	struct ifaddrs *all;
	if (getifaddrs(&all) != 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: hosts.%s.lines: getifaddrs", site->path,
				   h->name);
	}
	int rc = TW_OK;
	for (uint32_t line = 0; line < TW_MAX_LINES && rc == TW_OK; line++) {
		if (h->lines[line][0] != '\0') {
			rc = resolve_line(site, h, line, all, &resolved[line], err);
		}
	}
	freeifaddrs(all);
	if (rc == TW_OK) {
		memcpy(h->resolved, resolved, sizeof(resolved));
	}
	return rc;
}

void tw_site_fabric_conf(const struct tw_site *site, uint32_t host, struct tw_fabric_conf *out)
{
	const struct tw_site_fabric *f = &site->fabric;
	*out = (struct tw_fabric_conf){
		.mtu_bytes = f->mtu_bytes,
		.tos = (uint8_t)(f->live.dscp << 2), /* Not-ECT */
		.ttl = (uint8_t)f->ttl,
		.rcvbuf_bytes = f->receive_buffer_kbytes * 1024u,
		.gso = f->gso,
		.partition_key = (uint16_t)f->partition_key,
		.receive_depth = f->receive_depth,
	};
	_Static_assert(sizeof(out->lines) == sizeof(site->hosts[0].resolved), "lines");
	memcpy(out->lines, site->hosts[host].resolved, sizeof(out->lines));
}

unsigned int tw_site_hot_threads(const struct tw_site *site, uint32_t host)
{
	unsigned int n = 1; /* a subscriber */
	for (uint32_t i = 0; i < site->feedhandler_count; i++) {
		n += site->feedhandlers[i].host == host ? 1u : 0u;
	}
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		n += site->publishers[i].host == host ? 1u : 0u;
	}
	return n;
}
