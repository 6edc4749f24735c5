/* The re-request server.  A reply is much larger than its request, and the source of a request can be
 * forged: sources are answered so often and no more. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "exch.h"

#define TURN_REQUESTS 16u /* the lines come first */
#define NS_PER_S      1000000000u

enum exch_verdict exch_request_parse(const void *data, size_t len_bytes, const char *session,
				     struct exch_request *request)
{
	struct tw_bytes bytes = tw_bytes_of(data, len_bytes);
	const uint8_t *theirs = tw_bytes_take(&bytes, EXCH_SESSION_BYTES);
	uint64_t seq = tw_bytes_be64(&bytes);
	uint16_t count = tw_bytes_be16(&bytes);

	if (bytes.failed || tw_bytes_left(&bytes) != 0 || seq == 0 || count == 0) {
		return EXCH_MALFORMED;
	}
	if (memcmp(theirs, session, EXCH_SESSION_BYTES) != 0) {
		return EXCH_OTHER_SESSION;
	}
	*request = (struct exch_request){ .seq = seq, .count = count };
	return EXCH_WELL_FORMED;
}

void exch_limits_init(struct exch_limits *limits, uint32_t rate)
{
	uint32_t burst = rate / 10 > 1 ? rate / 10 : 1;

	memset(limits, 0, sizeof(*limits));
	limits->period_ns = NS_PER_S / rate;
	limits->burst_ns = (burst - 1) * limits->period_ns;
}

static struct exch_source *find_source(struct exch_limits *limits, uint32_t addr)
{
	/* neighbours in a subnet differ in their low bits: a multiplication spreads them */
	struct exch_source *set = limits->sources[(addr * 0x9e3779b1u) >> 24];
	struct exch_source *oldest = set;

	for (unsigned int i = 0; i < EXCH_LIMIT_WAYS; i++) {
		if (set[i].used && set[i].addr == addr) {
			return &set[i];
		}
		if (set[i].next_ns < oldest->next_ns) {
			oldest = &set[i];
		}
	}
	*oldest = (struct exch_source){ .addr = addr, .used = true };
	return oldest;
}

bool exch_limits_admit(struct exch_limits *limits, uint32_t addr, uint64_t now_ns)
{
	struct exch_source *source = find_source(limits, addr);

	if (source->next_ns > now_ns + limits->burst_ns) {
		return false;
	}
	source->next_ns = (source->next_ns > now_ns ? source->next_ns : now_ns) + limits->period_ns;
	return true;
}

int exch_server_init(struct exch_server *server, const struct sockaddr_in *addr,
		     const struct exch_day *day, const char *session, uint64_t store_messages,
		     uint32_t rate, struct tw_error *err)
{
	socklen_t len = sizeof(server->addr);

	memset(server, 0, sizeof(*server));
	server->day = day;
	server->session = session;
	server->store_messages = store_messages != 0 ? store_messages : UINT64_MAX;
	exch_limits_init(&server->limits, rate);
	server->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (server->fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "re-requests: socket");
	}
	if (bind(server->fd, (const struct sockaddr *)addr, sizeof(*addr)) != 0) {
		return tw_fail_sys(err, TW_ESYS, "re-requests: bind to port %u",
				   ntohs(addr->sin_port));
	}
	if (getsockname(server->fd, (struct sockaddr *)&server->addr, &len) != 0) {
		return tw_fail_sys(err, TW_ESYS, "re-requests: getsockname");
	}
	return TW_OK;
}

void exch_server_fini(struct exch_server *server)
{
	if (server->fd >= 0) {
		(void)close(server->fd);
		server->fd = -1;
	}
}

static void answer(struct exch_server *server, const struct exch_request *request, uint64_t sent,
		   const struct sockaddr_in *to)
{
	uint8_t packet[EXCH_PACKET_BYTES];
	uint64_t oldest_seq = sent > server->store_messages ? sent - server->store_messages + 1 : 1;
	uint16_t messages = 0;

	if (request->seq < oldest_seq || request->seq > sent) {
		server->stats.refused++;
		return;
	}
	uint64_t there = sent - request->seq + 1;
	uint16_t len = exch_packet_make(server->day, server->session, request->seq - 1,
					request->count < there ? request->count : (uint16_t)there,
					packet, &messages);
	if (sendto(server->fd, packet, len, 0, (const struct sockaddr *)to, sizeof(*to)) !=
	    (ssize_t)len) {
		server->stats.send_errors++;
		return;
	}
	server->stats.answered++;
	server->stats.messages += messages;
}

static void handle(struct exch_server *server, const void *data, size_t len_bytes,
		   const struct sockaddr_in *from, uint64_t sent, uint64_t now_ns)
{
	struct exch_request request;

	server->stats.received++;
	switch (exch_request_parse(data, len_bytes, server->session, &request)) {
	case EXCH_MALFORMED:
		server->stats.malformed++;
		return;
	case EXCH_OTHER_SESSION:
		server->stats.other_session++;
		return;
	case EXCH_WELL_FORMED:
		break;
	}
	if (!exch_limits_admit(&server->limits, from->sin_addr.s_addr, now_ns)) {
		server->stats.limited++;
		return;
	}
	answer(server, &request, sent, from);
}

void exch_server_turn(struct exch_server *server, uint64_t sent, uint64_t now_ns)
{
	for (unsigned int i = 0; i < TURN_REQUESTS; i++) {
		uint8_t data[EXCH_HEADER_BYTES +
			     1]; /* longer ones are malformed whatever follows */
		struct sockaddr_in from = { 0 };
		socklen_t from_len = sizeof(from);
		ssize_t n = recvfrom(server->fd, data, sizeof(data), 0, (struct sockaddr *)&from,
				     &from_len);
		if (n < 0) {
			return; /* nothing there, or an error of an earlier reply that ends here */
		}
		handle(server, data, (size_t)n, &from, sent, now_ns);
	}
}
