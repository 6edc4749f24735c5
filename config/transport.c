/* Choosing the way onto the network: what the site asks for, held against the machine's devices and
 * its port 4791. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/schema.h"
#include "fabric/verbs/device.h"

#define WHY_BYTES 128

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
					   "which holds it by being loaded, or use transport "
					   "verbs; 'ss -ulpn' shows any other holder)",
					   TW_ROCE_PORT)
			     : tw_fail_sys(err, TW_ESYS, "fabric.transport: udp: bind port %u",
					   TW_ROCE_PORT);
	}
	(void)close(fd);
	return rc;
}

/* The host of this machine: the one whose lines have been resolved. */
static const struct tw_site_host *resolved_host(const struct tw_site *site)
{
	for (uint32_t h = 0; h < site->host_count; h++) {
		for (uint32_t line = 0; line < TW_MAX_LINES; line++) {
			if (site->hosts[h].resolved[line].interface[0] != '\0') {
				return &site->hosts[h];
			}
		}
	}
	return NULL;
}

/* A RoCE device that takes the frames of one of the host's lines for itself. */
static const char *line_with_roce(const struct tw_site_host *host, char device[64])
{
	for (uint32_t line = 0; host != NULL && line < TW_MAX_LINES; line++) {
		const char *name = host->resolved[line].interface;
		if (name[0] != '\0' && tw_machine_roce_device("/sys", name, device)) {
			return name;
		}
	}
	return NULL;
}

/* Whether an RDMA device carries each of the host's lines; *why then says which. */
static int try_verbs(const struct tw_site *site, const struct tw_site_host *host,
		     char why[WHY_BYTES], struct tw_error *err)
{
	char text[WHY_BYTES];
	size_t used = 0;

	text[0] = '\0';
	for (uint32_t line = 0; host != NULL && line < TW_MAX_LINES; line++) {
		struct tw_verbs_facts facts;
		const struct tw_verbs_need need = {
			.line = (char)('a' + line),
			.mtu_bytes = site->fabric.mtu_bytes,
			.partition_key = (uint16_t)site->fabric.partition_key,
		};
		if (host->resolved[line].interface[0] == '\0') {
			continue;
		}
		int rc = tw_verbs_probe(&facts, &host->resolved[line], &need, err);
		if (rc != TW_OK) {
			return rc;
		}
		int n = snprintf(text + used, sizeof(text) - used, "%s%c is %.24s port %u GID %u",
				 used > 0 ? ", " : "", 'a' + (int)line, facts.device, facts.port,
				 facts.gid_index);
		used += n > 0 ? (size_t)n : 0;
		used = used < sizeof(text) ? used : sizeof(text) - 1;
	}
	if (used == 0) {
		return tw_fail(err, TW_EARG, "fabric.transport: verbs: no line has been resolved");
	}
	const bool chosen = site->fabric.transport == TW_TRANSPORT_AUTO;
	(void)snprintf(why, WHY_BYTES, "%s: %.100s", chosen ? "verbs" : "verbs, as configured",
		       text);
	return TW_OK;
}

static int try_udp(const struct tw_site *site, const char *owned, const char *device,
		   char why[WHY_BYTES], struct tw_error *err)
{
	if (site->fabric.partition_key != TW_VERBS_PKEY) {
		return tw_fail(
			err, TW_ECONFIG,
			"fabric.partition_key: found 0x%x, allowed with transport udp 0xffff: "
			"partitions are InfiniBand's",
			site->fabric.partition_key);
	}
	int rc = try_port(site, err);
	if (rc < 0) {
		return rc;
	}
	if (owned != NULL) {
		(void)snprintf(why, WHY_BYTES,
			       "udp, as configured, though %.30s may take the RoCE frames of %.15s",
			       device, owned);
	} else if (site->fabric.transport == TW_TRANSPORT_UDP) {
		(void)snprintf(why, WHY_BYTES, "udp, as configured");
	} else {
		(void)snprintf(why, WHY_BYTES,
			       "udp: port %u can be bound and no RDMA device takes RoCE for itself",
			       TW_ROCE_PORT);
	}
	return TW_TRANSPORT_UDP;
}

int tw_site_transport(const struct tw_site *site, char why[WHY_BYTES], struct tw_error *err)
{
	const enum tw_transport transport = site->fabric.transport;
	const struct tw_site_host *host = resolved_host(site);
	struct tw_error verbs_err = { .code = TW_OK };
	char device[64];

	if (transport == TW_TRANSPORT_SHM) {
		return tw_fail(
			err, TW_EUNSUPPORTED,
			"fabric.transport: shm: not supported by this version: use verbs, udp "
			"or auto");
	}
	if (transport != TW_TRANSPORT_UDP) {
		int rc = try_verbs(site, host, why, &verbs_err);
		if (rc == TW_OK) {
			return TW_TRANSPORT_VERBS;
		}
		if (transport == TW_TRANSPORT_VERBS) {
			*(err != NULL ? err : &verbs_err) = verbs_err;
			return rc;
		}
	}
	const char *owned = line_with_roce(host, device);
	if (owned != NULL && transport == TW_TRANSPORT_AUTO) {
		return tw_fail(
			err, TW_EUNSUPPORTED,
			"fabric.transport: auto: RDMA device %s takes the RoCE frames of %s "
			"before any socket sees them, and verbs cannot be used: %.240s: cure "
			"that, or turn RoCE off there ('devlink dev param set DEV name "
			"enable_roce value false cmode driverinit', 'devlink dev reload DEV'; "
			"rdma_rxe: unload it)",
			device, owned, verbs_err.text);
	}
	return try_udp(site, owned, device, why, err);
}
