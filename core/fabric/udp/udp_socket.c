/* Interfaces and sockets of the `udp` transport; see udp.h. */
#include "fabric/udp/udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "fabric/udp/roce.h"

#define SNDBUF_BYTES (4 << 20) /* wanted: a few batches of every channel of a host */

int tw_udp_check_mtu(const struct tw_fabric_conf *conf, struct tw_error *err)
{
	if (conf->mtu_bytes < TW_WIRE_DGRAM_MIN_MTU_BYTES ||
	    conf->mtu_bytes > TW_WIRE_DGRAM_MAX_BYTES || conf->mtu_bytes % 4 != 0) {
		return tw_fail(err, TW_ECONFIG,
			       "fabric.mtu_bytes: %u is not a multiple of 4 from %u to %u",
			       conf->mtu_bytes, TW_WIRE_DGRAM_MIN_MTU_BYTES,
			       TW_WIRE_DGRAM_MAX_BYTES);
	}
	return TW_OK;
}

static void set_ifreq_name(struct ifreq *req, const char *name)
{
	memset(req, 0, sizeof(*req));
	memcpy(req->ifr_name, name, strnlen(name, sizeof(req->ifr_name) - 1));
}

static bool is_veth(int fd, const char *name)
{
	struct ethtool_drvinfo info = { .cmd = ETHTOOL_GDRVINFO };
	struct ifreq req;
	set_ifreq_name(&req, name);
	req.ifr_data = (char *)&info;
	return ioctl(fd, SIOCETHTOOL, &req) == 0 && strcmp(info.driver, "veth") == 0;
}

/* The entry that has the address; of 127.0.0.0/8 every address is local, though just 127.0.0.1 is
 * listed. */
static const struct ifaddrs *find_address(const struct ifaddrs *list, uint32_t address)
{
	const struct ifaddrs *loopback = NULL;
	for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET) {
			continue;
		}
		struct sockaddr_in sin;
		memcpy(&sin, i->ifa_addr, sizeof(sin));
		if (ntohl(sin.sin_addr.s_addr) == address) {
			return i;
		}
		if ((i->ifa_flags & IFF_LOOPBACK) != 0) {
			loopback = i;
		}
	}
	return address >> 24 == 127 ? loopback : NULL;
}

static int query_if(struct tw_udp_if *iface, const struct ifaddrs *found, struct tw_error *err)
{
	const size_t name_bytes = strnlen(found->ifa_name, sizeof(iface->name) - 1);
	memcpy(iface->name, found->ifa_name, name_bytes);
	iface->name[name_bytes] = '\0';
	iface->index = (int)if_nametoindex(iface->name);
	if (iface->index == 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: if_nametoindex", iface->name);
	}
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: socket", iface->name);
	}
	int ret = TW_OK;
	struct ifreq req;
	set_ifreq_name(&req, iface->name);
	if (ioctl(fd, SIOCGIFMTU, &req) != 0) {
		ret = tw_fail_sys(err, TW_ESYS, "%s: ioctl SIOCGIFMTU", iface->name);
	} else {
		iface->mtu_bytes = (uint32_t)req.ifr_mtu;
		iface->segments_in_software =
			(found->ifa_flags & IFF_LOOPBACK) != 0 || is_veth(fd, iface->name);
	}
	close(fd);
	return ret;
}

int tw_udp_if_find(struct tw_udp_if *iface, const struct tw_fabric_conf *conf, unsigned int line,
		   struct tw_error *err)
{
	const struct tw_fabric_line *want = &conf->lines[line];
	*iface = (struct tw_udp_if){ .address = want->address };
	struct ifaddrs *list;
	if (getifaddrs(&list) != 0) {
		return tw_fail_sys(err, TW_ESYS, "line %c: getifaddrs", 'a' + (int)line);
	}
	int ret;
	const struct ifaddrs *found = find_address(list, want->address);
	if (found == NULL) {
		ret = tw_fail(
			err, TW_ECONFIG,
			"line %c: no interface of this host has the address " TW_IPV4_FMT "%s%s",
			'a' + (int)line, TW_IPV4_ARGS(want->address),
			want->interface[0] != '\0' ? ", configured for " : "", want->interface);
	} else {
		ret = query_if(iface, found, err);
	}
	freeifaddrs(list);
	if (ret != TW_OK) {
		return ret;
	}
	const uint32_t headers = TW_ROCE_IP_UDP_BYTES + TW_ROCE_OVERHEAD_BYTES;
	if (conf->mtu_bytes + headers > iface->mtu_bytes) {
		return tw_fail(
			err, TW_ECONFIG,
			"%s: fabric.mtu_bytes %u needs an interface MTU of %u (%u bytes of IP, "
			"UDP and RoCE headers), the interface has %u",
			iface->name, conf->mtu_bytes, conf->mtu_bytes + headers, headers,
			iface->mtu_bytes);
	}
	return TW_OK;
}

static int set_int(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

int tw_udp_tx_socket(const struct tw_udp_if *iface, const struct tw_fabric_conf *conf,
		     bool checksum, uint16_t *port, struct tw_error *err)
{
	const char *call = "socket";
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		goto failed;
	}
	/* Both sockets of a line send from one port: one flow for hashing NICs and switches. */
	call = "setsockopt SO_REUSEPORT";
	if (set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1) != 0) {
		goto failed;
	}
	call = "bind";
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(*port),
				   .sin_addr.s_addr = htonl(iface->address) };
	socklen_t len = sizeof(sin);
	if (bind(fd, (struct sockaddr *)&sin, len) != 0) {
		goto failed;
	}
	call = "getsockname";
	if (getsockname(fd, (struct sockaddr *)&sin, &len) != 0) {
		goto failed;
	}
	const struct ip_mreqn from = { .imr_address.s_addr = htonl(iface->address),
				       .imr_ifindex = iface->index };
	call = "setsockopt IP_MULTICAST_IF";
	if (setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)) != 0) {
		goto failed;
	}
	/* IP_RECVERR makes a queue that drops say so (ENOBUFS); else such a send succeeds. */
	const struct {
		int level, option, value;
		const char *call;
	} options[] = {
		{ IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "setsockopt IP_MTU_DISCOVER" },
		{ IPPROTO_IP, IP_MULTICAST_TTL, conf->ttl, "setsockopt IP_MULTICAST_TTL" },
		{ IPPROTO_IP, IP_MULTICAST_LOOP, 1, "setsockopt IP_MULTICAST_LOOP" },
		{ IPPROTO_IP, IP_TOS, conf->tos, "setsockopt IP_TOS" },
		{ IPPROTO_IP, IP_RECVERR, 1, "setsockopt IP_RECVERR" },
		{ SOL_SOCKET, SO_NO_CHECK, !checksum, "setsockopt SO_NO_CHECK" },
		/* nothing is sent to this port, and what comes all the same is not read */
		{ SOL_SOCKET, SO_RCVBUF, 1, "setsockopt SO_RCVBUF" },
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		call = options[i].call;
		if (set_int(fd, options[i].level, options[i].option, options[i].value) != 0) {
			goto failed;
		}
	}
	call = "setsockopt SO_SNDBUF";
	if (set_int(fd, SOL_SOCKET, SO_SNDBUFFORCE, SNDBUF_BYTES) != 0 &&
	    set_int(fd, SOL_SOCKET, SO_SNDBUF, SNDBUF_BYTES) != 0) {
		goto failed;
	}
	*port = ntohs(sin.sin_port);
	return fd;

failed:
	(void)tw_fail_sys(err, TW_ESYS, "send from " TW_IPV4_FMT " on %s: %s",
			  TW_IPV4_ARGS(iface->address), iface->name, call);
	if (fd >= 0) {
		close(fd);
	}
	return TW_ESYS;
}

/* Why 4791 cannot be had: as far as that can be seen from here, and what to do. */
static int port_taken(const struct tw_udp_if *iface, uint32_t group, struct tw_error *err)
{
	const bool rxe = access("/sys/module/rdma_rxe", F_OK) == 0;
	return tw_fail_sys(err, TW_EBUSY,
			   "receive " TW_IPV4_FMT
			   " on %s: UDP port %u: %s; unload rdma_rxe (modprobe -r "
			   "rdma_rxe), or use fabric.transport: verbs%s: bind",
			   TW_IPV4_ARGS(group), iface->name, TW_ROCE_PORT,
			   rxe ? "the kernel module rdma_rxe is loaded and holds it"
			       : "held by a socket without SO_REUSEADDR, as rdma_rxe's is",
			   rxe ? "" : ", or end the program that holds it");
}

static int set_rcvbuf(int fd, uint32_t wanted_bytes, uint32_t *granted_bytes)
{
	const int wanted = wanted_bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)wanted_bytes;
	if (wanted > 0 && set_int(fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted) != 0 &&
	    set_int(fd, SOL_SOCKET, SO_RCVBUF, wanted) != 0) {
		return -1;
	}
	int doubled = 0;
	socklen_t len = sizeof(doubled);
	if (getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &doubled, &len) != 0) {
		return -1;
	}
	*granted_bytes = (uint32_t)doubled / 2;
	return 0;
}

int tw_udp_rx_socket(const struct tw_udp_if *iface, const struct tw_fabric_conf *conf,
		     uint32_t group, uint32_t *granted_bytes, struct tw_error *err)
{
	const char *call = "socket";
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0) {
		goto failed;
	}
	call = "setsockopt SO_REUSEADDR";
	if (set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1) != 0) {
		goto failed;
	}
	/* Options before bind and join: no datagram is taken that they would have kept out. */
	call = "setsockopt IP_MULTICAST_ALL";
	if (set_int(fd, IPPROTO_IP, IP_MULTICAST_ALL, 0) != 0) {
		goto failed;
	}
	call = "setsockopt UDP_GRO";
	if (conf->gso != TW_GSO_OFF && set_int(fd, IPPROTO_UDP, UDP_GRO, 1) != 0) {
		goto failed;
	}
	call = "setsockopt SO_RCVBUF";
	if (set_rcvbuf(fd, conf->rcvbuf_bytes, granted_bytes) != 0) {
		goto failed;
	}
	call = "bind";
	const struct sockaddr_in sin = { .sin_family = AF_INET,
					 .sin_port = htons(TW_ROCE_PORT),
					 .sin_addr.s_addr = htonl(group) };
	if (bind(fd, (const struct sockaddr *)&sin, sizeof(sin)) != 0) {
		if (errno == EADDRINUSE) {
			int ret = port_taken(iface, group, err);
			close(fd);
			return ret;
		}
		goto failed;
	}
	const struct ip_mreqn join = { .imr_multiaddr.s_addr = htonl(group),
				       .imr_address.s_addr = htonl(iface->address),
				       .imr_ifindex = iface->index };
	call = "setsockopt IP_ADD_MEMBERSHIP";
	if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof(join)) != 0) {
		goto failed;
	}
	return fd;

failed:
	(void)tw_fail_sys(err, TW_ESYS, "receive " TW_IPV4_FMT " on %s: %s", TW_IPV4_ARGS(group),
			  iface->name, call);
	if (fd >= 0) {
		close(fd);
	}
	return TW_ESYS;
}
