/* A venue's own UDP multicast as an input: a socket for each line, read in turn.
 *
 * Time      a packet's receive time is the kernel's (SO_TIMESTAMPNS: when the driver handed it over, on the
 *           wall clock), not when this thread got to it.
 * Joins     a join that the kernel took may still bring nothing: the report was lost, or the interface went
 *           and came back.  Until a line is heard for the first time its group is left and joined again,
 *           at doubling intervals; after that, while the line is silent, the kernel's own list of
 *           memberships is looked at and a lost one is joined again.  What waits in the socket is heard,
 *           though the hot thread may have been kept from reading it.
 * Threads   next: the hot thread.  open, tick, close: the main thread; tick changes memberships alone, which
 *           the kernel serializes with reading.
 * Ordering  heard_ns and the join counters are single words that order nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "feedhandler/input.h"
#include "feedhandler/venue_arb.h"

#define BATCH          32u
#define CONTROL_BYTES  64u           /* a timestamp and a drop count, each with its header */
#define JOIN_FAILED_NS 200000000ull  /* the first retry; then at doubling intervals */
#define JOIN_SILENT_NS 3000000000ull /* the first one of a join that the kernel took */
#define JOIN_MAX_NS    24000000000ull
#define SILENT_NS      2000000000ull /* of one that was heard: its membership is looked at */
#define GROUP_FMT      TW_IPV4_FMT ":%u"
#define GROUP_ARGS(at) TW_IPV4_ARGS((at)->group), (at)->port

_Static_assert(CMSG_SPACE(sizeof(struct timespec)) + CMSG_SPACE(sizeof(uint32_t)) <= CONTROL_BYTES,
	       "control");

struct control {
	_Alignas(struct cmsghdr) uint8_t bytes[CONTROL_BYTES];
};

struct line {
	int fd;
	uint32_t group;
	uint16_t port;
	char interface[16];
	char tag; /* 'a', 'b' */
	struct tw_input_line *counts;
	/* hot thread */
	uint32_t got, at;
	uint32_t drops_seen;
	struct mmsghdr msgs[BATCH];
	struct iovec iov[BATCH];
	struct control control[BATCH];
	struct sockaddr_in from[BATCH];
	_Atomic uint64_t heard_ns; /* 0: never; written by the hot thread, read by the tick */
	/* main thread */
	unsigned int index; /* of the interface that is joined on; 0: none */
	uint64_t next_check_ns, interval_ns;
	bool reported;
};

struct multicast {
	struct tw_input input;
	uint32_t turn; /* the line to read next */
	uint8_t *room; /* TW_VENUE_PACKET_MAX_BYTES for each message of each line */
	struct tw_input_line counts[TW_VENUE_LINES];
	struct line lines[TW_VENUE_LINES];
};

/* ---- joins: main thread ---- */

/* By name or address; 0 where there is none now. */
static unsigned int find_interface(const char *interface)
{
	struct in_addr addr;
	if (inet_pton(AF_INET, interface, &addr) != 1) {
		return if_nametoindex(interface);
	}
	struct ifaddrs *list;
	unsigned int index = 0;
	if (getifaddrs(&list) != 0) {
		return 0;
	}
	for (const struct ifaddrs *i = list; i != NULL && index == 0; i = i->ifa_next) {
		struct sockaddr_in sin;
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET) {
			continue;
		}
		memcpy(&sin, i->ifa_addr, sizeof(sin));
		/* of 127.0.0.0/8 every address is local, though one is listed */
		bool loopback =
			(i->ifa_flags & IFF_LOOPBACK) != 0 && ntohl(addr.s_addr) >> 24 == 127;
		if (sin.sin_addr.s_addr == addr.s_addr || loopback) {
			index = if_nametoindex(i->ifa_name);
		}
	}
	freeifaddrs(list);
	return index;
}

static void report(struct line *line, const char *what, int error)
{
	atomic_fetch_add_explicit(&line->counts->joins_failed, 1,
				  memory_order_relaxed); /* orders nothing */
	if (!line->reported) {
		line->reported = true;
		tw_log(TW_LOG_WARNING, "venue line %c: join " GROUP_FMT " on %s: %s%s%s; retried",
		       line->tag, GROUP_ARGS(line), line->interface, what, error != 0 ? ": " : "",
		       error != 0 ? strerror(error) : "");
	}
}

static int change_membership(const struct line *line, int option)
{
	const struct ip_mreqn member = { .imr_multiaddr.s_addr = htonl(line->group),
					 .imr_ifindex = (int)line->index };
	return setsockopt(line->fd, IPPROTO_IP, option, &member, sizeof(member));
}

static void join(struct line *line)
{
	if (line->index != 0) {
		(void)change_membership(line,
					IP_DROP_MEMBERSHIP); /* gone with its interface: fine */
	}
	line->index = find_interface(line->interface);
	if (line->index == 0) {
		report(line, "no such interface", 0);
		return;
	}
	if (change_membership(line, IP_ADD_MEMBERSHIP) != 0) {
		report(line, "setsockopt IP_ADD_MEMBERSHIP", errno);
		line->index = 0;
		return;
	}
	atomic_fetch_add_explicit(&line->counts->joins, 1,
				  memory_order_relaxed); /* orders nothing */
	if (line->reported) {
		line->reported = false;
		tw_log(TW_LOG_INFO, "venue line %c: joined " GROUP_FMT " on %s", line->tag,
		       GROUP_ARGS(line), line->interface);
	}
}

/* Whether the kernel lists the membership.  Its table: an interface's line, then one for each of its groups,
 * whose first word is the address as it lies in memory, in hexadecimal. */
static bool is_member(const struct line *line)
{
	char text[256];
	FILE *f = fopen("/proc/net/igmp", "re");
	if (f == NULL) {
		return true; /* it cannot be told */
	}
	unsigned long index = 0;
	bool found = false;
	while (!found && fgets(text, sizeof(text), f) != NULL) {
		if (text[0] >= '0' && text[0] <= '9') {
			index = strtoul(text, NULL, 10);
		} else if (index == line->index && (text[0] == '\t' || text[0] == ' ')) {
			found = strtoul(text, NULL, 16) == htonl(line->group);
		}
	}
	(void)fclose(f);
	return found;
}

static bool has_waiting(const struct line *line)
{
	struct pollfd fd = { .fd = line->fd, .events = POLLIN };
	return poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN) != 0;
}

/* Leaving costs what comes in between, so a group that is joined is left alone for as long as a venue that is
 * there would have sent several heartbeats. */
static void schedule(struct line *line, uint64_t now_ns)
{
	uint64_t least_ns = line->index == 0 ? JOIN_FAILED_NS : JOIN_SILENT_NS;
	uint64_t next_ns = 2 * line->interval_ns;
	next_ns = next_ns < JOIN_MAX_NS ? next_ns : JOIN_MAX_NS;
	line->interval_ns = next_ns > least_ns ? next_ns : least_ns;
	line->next_check_ns = now_ns + line->interval_ns;
}

static void check_line(struct line *line, uint64_t now_ns)
{
	uint64_t heard_ns = atomic_load_explicit(&line->heard_ns, memory_order_relaxed);
	if (now_ns < line->next_check_ns) {
		return;
	}
	bool heard = heard_ns != 0 || has_waiting(line);
	if (heard && now_ns - heard_ns < SILENT_NS) {
		line->interval_ns = 0;
	} else if (!heard || line->index == 0) {
		join(line);
	} else if (if_nametoindex(line->interface) != line->index &&
		   find_interface(line->interface) != line->index) {
		report(line, "the interface has changed", 0);
		join(line);
	} else if (!is_member(line)) {
		report(line, "the membership is gone", 0);
		join(line);
	}
	schedule(line, now_ns);
}

static void multicast_tick(struct tw_input *input)
{
	struct multicast *mc = (struct multicast *)input;
	uint64_t now_ns = tw_mono_ns();
	for (uint32_t l = 0; l < input->lines; l++) {
		check_line(&mc->lines[l], now_ns);
	}
}

/* ---- reading: hot thread ---- */

/* What the kernel says beside a packet. */
static void read_control(struct line *line, struct msghdr *msg, uint64_t *recv_ns)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET) {
			continue;
		}
		if (c->cmsg_type == SCM_TIMESTAMPNS) {
			struct timespec ts;
			memcpy(&ts, CMSG_DATA(c), sizeof(ts));
			*recv_ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
		} else if (c->cmsg_type == SO_RXQ_OVFL) {
			uint32_t drops; /* since the socket was made, modulo 2^32 */
			memcpy(&drops, CMSG_DATA(c), sizeof(drops));
			line->counts->kernel_drops += (uint32_t)(drops - line->drops_seen);
			line->drops_seen = drops;
		}
	}
}

/* Messages, 0 where there are none, or a negative status. */
static int receive(struct line *line)
{
	for (uint32_t i = 0; i < line->got; i++) { /* the kernel wrote into those */
		line->msgs[i].msg_hdr.msg_namelen = sizeof(line->from[i]);
		line->msgs[i].msg_hdr.msg_controllen = sizeof(line->control[i].bytes);
	}
	line->got = 0;
	line->at = 0;
	int got = recvmmsg(line->fd, line->msgs, BATCH, MSG_DONTWAIT, NULL);
	if (got > 0) {
		line->got = (uint32_t)got;
		line->counts->heard_ns = tw_mono_ns();
		atomic_store_explicit(&line->heard_ns, line->counts->heard_ns,
				      memory_order_relaxed); /* orders nothing */
		return got;
	}
	/* the first ones pass; an interface that went down says so once */
	bool passes = errno == EAGAIN || errno == EINTR || errno == ENOMEM || errno == ENOBUFS ||
		      errno == ENETDOWN || errno == EHOSTUNREACH;
	return got == 0 || passes ? 0 : TW_ESYS;
}

/* Message line->at; false where it is no good. */
static bool take(struct multicast *mc, struct line *line, struct tw_packet *packet)
{
	uint32_t i = line->at++;
	struct mmsghdr *msg = &line->msgs[i];
	uint64_t recv_ns = 0;
	read_control(line, &msg->msg_hdr, &recv_ns);
	line->counts->packets++;
	line->counts->bytes += msg->msg_len;
	mc->input.counts.packets++;
	mc->input.counts.bytes += msg->msg_len;
	if ((msg->msg_hdr.msg_flags & MSG_TRUNC) != 0) {
		line->counts->truncated++;
		mc->input.counts.truncated++;
		return false;
	}
	if (recv_ns == 0) {
		line->counts->unstamped++;
		recv_ns = tw_wall_ns();
	}
	*packet = (struct tw_packet){ .payload = line->iov[i].iov_base,
				      .len_bytes = msg->msg_len,
				      .src_addr = ntohl(line->from[i].sin_addr.s_addr),
				      .dst_addr = line->group,
				      .src_port = ntohs(line->from[i].sin_port),
				      .dst_port = line->port,
				      .recv_ns = recv_ns,
				      .line = (uint32_t)(line - mc->lines) };
	return true;
}

static int multicast_next(struct tw_input *input, struct tw_packet *packet, struct tw_error *err)
{
	struct multicast *mc = (struct multicast *)input;
	input->empty_lines = 0;
	for (uint32_t tried = 0; tried <= input->lines; tried++) {
		struct line *line = &mc->lines[mc->turn];
		while (line->at < line->got) {
			if (take(mc, line, packet)) {
				return 1;
			}
		}
		mc->turn = mc->turn + 1 < input->lines ? mc->turn + 1 : 0;
		line = &mc->lines[mc->turn];
		int got = receive(line);
		if (got < 0) {
			return tw_fail_sys(err, TW_ESYS, "venue line %c: recvmmsg", line->tag);
		}
		if (got == 0) {
			input->empty_lines |= UINT32_C(1) << mc->turn;
		}
	}
	return 0;
}

/* ---- opening ---- */

static int set_int(int fd, int level, int option, int value)
{
	return setsockopt(fd, level, option, &value, sizeof(value));
}

static int open_socket(struct line *line, uint32_t wanted_bytes, struct tw_error *err)
{
	const struct {
		int level, option, value;
		const char *call;
	} options[] = {
		{ SOL_SOCKET, SO_REUSEADDR, 1, "setsockopt SO_REUSEADDR" },
		{ IPPROTO_IP, IP_MULTICAST_ALL, 0, "setsockopt IP_MULTICAST_ALL" },
		{ SOL_SOCKET, SO_TIMESTAMPNS, 1, "setsockopt SO_TIMESTAMPNS" },
		{ SOL_SOCKET, SO_RXQ_OVFL, 1, "setsockopt SO_RXQ_OVFL" },
	};
	const char *call = "socket";
	line->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (line->fd < 0) {
		goto failed;
	}
	/* Options before bind and join: no packet is taken that they would have kept out. */
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		call = options[i].call;
		if (set_int(line->fd, options[i].level, options[i].option, options[i].value) != 0) {
			goto failed;
		}
	}
	call = "setsockopt SO_RCVBUF";
	int wanted = wanted_bytes > INT32_MAX / 2 ? INT32_MAX / 2 : (int)wanted_bytes;
	if (wanted > 0 && set_int(line->fd, SOL_SOCKET, SO_RCVBUFFORCE, wanted) != 0 &&
	    set_int(line->fd, SOL_SOCKET, SO_RCVBUF, wanted) != 0) {
		goto failed;
	}
	int doubled = 0;
	socklen_t len = sizeof(doubled);
	if (getsockopt(line->fd, SOL_SOCKET, SO_RCVBUF, &doubled, &len) != 0) {
		goto failed;
	}
	line->counts->receive_buffer_bytes = (uint32_t)doubled / 2; /* the kernel doubles it */
	call = "bind";
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = htons(line->port),
					.sin_addr.s_addr = htonl(line->group) };
	if (bind(line->fd, (const struct sockaddr *)&at, sizeof(at)) != 0) {
		goto failed;
	}
	return TW_OK;

failed:
	return tw_fail_sys(err, TW_ESYS, "venue line %c: " GROUP_FMT ": %s", line->tag,
			   GROUP_ARGS(line), call);
}

static void multicast_close(struct tw_input *input)
{
	struct multicast *mc = (struct multicast *)input;
	for (uint32_t l = 0; l < input->lines; l++) {
		if (mc->lines[l].fd >= 0) {
			(void)close(mc->lines[l].fd);
		}
	}
	free(mc->room);
	free(mc);
}

static const struct tw_input_ops multicast_ops = { .next = multicast_next,
						   .close = multicast_close,
						   .tick = multicast_tick };

static void prepare_batch(struct line *line, uint8_t *room)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		line->iov[i] =
			(struct iovec){ .iov_base = room + (size_t)i * TW_VENUE_PACKET_MAX_BYTES,
					.iov_len = TW_VENUE_PACKET_MAX_BYTES };
		line->msgs[i].msg_hdr = (struct msghdr){ .msg_name = &line->from[i],
							 .msg_namelen = sizeof(line->from[i]),
							 .msg_iov = &line->iov[i],
							 .msg_iovlen = 1,
							 .msg_control = line->control[i].bytes,
							 .msg_controllen = CONTROL_BYTES };
	}
}

int tw_input_multicast_open(struct tw_input **input_p, const struct tw_input_multicast_conf *conf,
			    struct tw_error *err)
{
	*input_p = NULL;
	TW_ASSERT(conf->lines > 0 && conf->lines <= TW_VENUE_LINES);
	struct multicast *mc = calloc(1, sizeof(*mc));
	if (mc == NULL) {
		return tw_fail(err, TW_ENOMEM, "venue lines: out of memory");
	}
	const size_t room_bytes = (size_t)TW_VENUE_PACKET_MAX_BYTES * BATCH;
	mc->input = (struct tw_input){
		.ops = &multicast_ops, .lines = conf->lines, .line = mc->counts, .parts = 1
	};
	for (uint32_t l = 0; l < conf->lines; l++) {
		mc->lines[l].fd = -1;
	}
	mc->room = calloc(conf->lines, room_bytes);
	int rc = mc->room != NULL ? TW_OK : tw_fail(err, TW_ENOMEM, "venue lines: out of memory");
	for (uint32_t l = 0; rc == TW_OK && l < conf->lines; l++) {
		struct line *line = &mc->lines[l];
		line->group = conf->line[l].group;
		line->port = conf->line[l].port;
		memcpy(line->interface, conf->line[l].interface, sizeof(line->interface));
		line->tag = (char)('a' + (int)l);
		line->counts = &mc->counts[l];
		prepare_batch(line, mc->room + l * room_bytes);
		rc = open_socket(line, conf->receive_buffer_bytes, err);
	}
	if (rc != TW_OK) {
		multicast_close(&mc->input);
		return rc;
	}
	uint64_t now_ns = tw_mono_ns();
	for (uint32_t l = 0; l < conf->lines; l++) {
		struct line *line = &mc->lines[l];
		line->counts->heard_ns = now_ns;
		join(line);
		schedule(line, now_ns);
	}
	*input_p = &mc->input;
	return TW_OK;
}
