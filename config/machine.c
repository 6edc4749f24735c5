/* What the configuration says, held against the machine that it runs on. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/schema.h"

#define WHY_BYTES 128

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
			       "%s: hosts.%s.addresses.%c: found %u.%u.%u.%u, but interface %s "
			       "has %u.%u.%u.%u",
			       site->path, host->name, 'a' + (int)line, own >> 24, own >> 16 & 255,
			       own >> 8 & 255, own & 255, name, address >> 24, address >> 16 & 255,
			       address >> 8 & 255, address & 255);
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
	};
	_Static_assert(sizeof(out->lines) == sizeof(site->hosts[0].resolved), "lines");
	memcpy(out->lines, site->hosts[host].resolved, sizeof(out->lines));
}

/* First line of a small file, without its end; false where it cannot be read. */
static bool read_line(const char *path, char *out, size_t room)
{
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		return false;
	}
	bool ok = fgets(out, (int)room, f) != NULL;
	(void)fclose(f);
	if (ok) {
		out[strcspn(out, "\n")] = '\0';
	}
	return ok;
}

/* A port's GID table says which interface each entry belongs to and of which RoCE version it is. */
static bool port_owns(const char *port, const char *interface)
{
	char path[512], text[64];
	bool owns = false;
	(void)snprintf(path, sizeof(path), "%s/gid_attrs/ndevs", port);
	DIR *gids = opendir(path);
	if (gids == NULL) {
		return false;
	}
	for (const struct dirent *e = readdir(gids); e != NULL && !owns; e = readdir(gids)) {
		if (e->d_name[0] == '.' || strlen(e->d_name) > 8) {
			continue;
		}
		(void)snprintf(path, sizeof(path), "%s/gid_attrs/ndevs/%.8s", port, e->d_name);
		if (!read_line(path, text, sizeof(text)) || strcmp(text, interface) != 0) {
			continue;
		}
		(void)snprintf(path, sizeof(path), "%s/gid_attrs/types/%.8s", port, e->d_name);
		owns = read_line(path, text, sizeof(text)) && strcmp(text, "RoCE v2") == 0;
	}
	(void)closedir(gids);
	return owns;
}

static bool device_owns(const char *sysfs, const char *device, const char *interface)
{
	char port[400];
	bool owns = false, is_port = true;
	for (unsigned int i = 1; is_port && !owns; i++) {
		(void)snprintf(port, sizeof(port), "%s/class/infiniband/%s/ports/%u", sysfs, device,
			       i);
		is_port = access(port, F_OK) == 0;
		owns = is_port && port_owns(port, interface);
	}
	return owns;
}

bool tw_machine_roce_device(const char *sysfs, const char *interface, char device[64])
{
	char path[512];
	bool found = false;
	(void)snprintf(path, sizeof(path), "%s/class/infiniband", sysfs);
	DIR *devices = opendir(path);
	if (devices == NULL) {
		return false;
	}
	for (const struct dirent *e = readdir(devices); e != NULL && !found; e = readdir(devices)) {
		if (e->d_name[0] != '.' && strlen(e->d_name) < 64) {
			found = device_owns(sysfs, e->d_name, interface);
			memcpy(device, e->d_name, strlen(e->d_name) + 1u);
		}
	}
	(void)closedir(devices);
	return found;
}

/* Binds what the udp fabric will bind, and lets it go.  Sockets with SO_REUSEADDR share the port, so
 * other Tidewire processes are no obstacle; the kernel's own socket of rdma_rxe is. */
static int try_port(const struct tw_site *site, struct tw_error *err)
{
	uint32_t group = site->channel_count > 0 ? site->channels[0].groups[0] : INADDR_ANY;
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(TW_ROCE_PORT),
				  .sin_addr.s_addr = htonl(group) };
	int one = 1;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "fabric.transport: udp: socket");
	}
	int rc = TW_OK;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0) {
		rc = tw_fail_sys(err, TW_ESYS, "fabric.transport: udp: SO_REUSEADDR");
	} else if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0) {
		rc = errno == EADDRINUSE
			     ? tw_fail_sys(err, TW_EUNSUPPORTED,
					   "fabric.transport: udp: bind port %u (unload rdma_rxe, "
					   "which holds it by being loaded; 'ss -ulpn' shows any "
					   "other holder)",
					   TW_ROCE_PORT)
			     : tw_fail_sys(err, TW_ESYS, "fabric.transport: udp: bind port %u",
					   TW_ROCE_PORT);
	}
	(void)close(fd);
	return rc;
}

/* A RoCE device on one of the lines of this machine, which is the host that has been resolved. */
static const char *line_with_roce(const struct tw_site *site, char device[64])
{
	for (uint32_t h = 0; h < site->host_count; h++) {
		for (uint32_t line = 0; line < TW_MAX_LINES; line++) {
			const char *name = site->hosts[h].resolved[line].interface;
			if (name[0] != '\0' && tw_machine_roce_device("/sys", name, device)) {
				return name;
			}
		}
	}
	return NULL;
}

int tw_site_transport(const struct tw_site *site, char why[WHY_BYTES], struct tw_error *err)
{
	enum tw_transport transport = site->fabric.transport;
	char device[64];
	if (transport == TW_TRANSPORT_VERBS || transport == TW_TRANSPORT_SHM) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "fabric.transport: %s: not supported by this version: use udp or "
			       "auto",
			       transport == TW_TRANSPORT_VERBS ? "verbs" : "shm");
	}
	const char *owned = line_with_roce(site, device);
	if (owned != NULL && transport == TW_TRANSPORT_AUTO) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "fabric.transport: auto: RDMA device %s takes the RoCE frames of %s "
			       "before any socket sees them: turn that off ('devlink dev param set "
			       "DEV name enable_roce value false cmode driverinit', then 'devlink "
			       "dev reload DEV'; rdma_rxe: unload it); using the device needs "
			       "transport verbs, which this version does not have",
			       device, owned);
	}
	int rc = try_port(site, err);
	if (rc < 0) {
		return rc;
	}
	if (owned != NULL) {
		(void)snprintf(why, WHY_BYTES,
			       "udp, as configured, though %.30s may take the RoCE frames of %.15s",
			       device, owned);
	} else if (transport == TW_TRANSPORT_UDP) {
		(void)snprintf(why, WHY_BYTES, "udp, as configured");
	} else {
		(void)snprintf(why, WHY_BYTES,
			       "udp: port %u can be bound and no RDMA device takes RoCE for itself",
			       TW_ROCE_PORT);
	}
	return TW_TRANSPORT_UDP;
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
