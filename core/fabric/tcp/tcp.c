/* Sockets of repair over TCP: see tcp.h. */
#include "fabric/tcp/tcp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"

#define BACKLOG         128
#define KEEP_IDLE_S     10 /* a host that has died is noticed after some 25 s */
#define KEEP_INTERVAL_S 5
#define KEEP_PROBES     3
#define LONGEST_WAIT_MS 1000000

int tw_tcp_socket(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void set(int fd, int level, int option, int value)
{
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

void tw_tcp_tune(int fd, uint8_t tos, uint8_t priority)
{
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
	set(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL_S);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_PROBES);
	/* in this order: IP_TOS sets a priority of its own */
	set(fd, IPPROTO_IP, IP_TOS, tos);
	set(fd, SOL_SOCKET, SO_PRIORITY, priority);
}

static struct sockaddr_in address_of(uint32_t addr, uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(addr) };
}

int tw_tcp_connect(int fd, uint32_t addr, uint16_t port)
{
	struct sockaddr_in sin = address_of(addr, port);
	return connect(fd, (const struct sockaddr *)&sin, sizeof(sin));
}

int tw_tcp_listen(int fd, uint32_t addr, uint16_t *port, struct tw_error *err)
{
	struct sockaddr_in sin = address_of(addr, *port);
	socklen_t len = sizeof(sin);
	/* a restart does not wait for the last life's connections */
	set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (bind(fd, (const struct sockaddr *)&sin, sizeof(sin)) != 0) {
		return tw_fail_sys(err, errno == EADDRINUSE ? TW_EBUSY : TW_ESYS,
				   "repair server " TW_TCP_FMT ": bind", TW_TCP_ARGS(addr, *port));
	}
	if (listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&sin, &len) != 0) {
		return tw_fail_sys(err, errno == EADDRINUSE ? TW_EBUSY : TW_ESYS,
				   "repair server " TW_TCP_FMT ": listen",
				   TW_TCP_ARGS(addr, *port));
	}
	*port = ntohs(sin.sin_port);
	return TW_OK;
}

int tw_tcp_accept(int fd, uint32_t *addr, uint16_t *port)
{
	struct sockaddr_in sin = { 0 };
	socklen_t len = sizeof(sin);
	int got = accept4(fd, (struct sockaddr *)&sin, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
	*addr = ntohl(sin.sin_addr.s_addr);
	*port = ntohs(sin.sin_port);
	return got;
}

static int outcome(ssize_t got)
{
	if (got > 0) {
		return (int)got;
	}
	return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? TW_TCP_AGAIN : TW_TCP_LOST;
}

int tw_tcp_recv(int fd, void *data, uint32_t len_bytes)
{
	ssize_t got;
	do {
		got = recv(fd, data, len_bytes, 0);
	} while (got < 0 && errno == EINTR);
	return outcome(got);
}

int tw_tcp_send(int fd, const void *data, uint32_t len_bytes)
{
	ssize_t got;
	do {
		got = send(fd, data, len_bytes, MSG_NOSIGNAL);
	} while (got < 0 && errno == EINTR);
	return outcome(got);
}

int tw_tcp_wait_ms(uint64_t now_ns, uint64_t at_ns)
{
	if (at_ns == UINT64_MAX) {
		return -1;
	}
	if (at_ns <= now_ns) {
		return 0;
	}
	uint64_t ms = (at_ns - now_ns + 999999) / 1000000;
	return ms < LONGEST_WAIT_MS ? (int)ms : LONGEST_WAIT_MS;
}
