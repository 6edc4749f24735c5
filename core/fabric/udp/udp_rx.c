/* Receiving half of the `udp` transport.
 *
 * Sockets   one per endpoint, bound to its group: the kernel sorts the groups.
 * Buffers   a poll takes up to RX_MSGS datagrams or GRO super-datagrams with one recvmmsg() into
 *           the endpoint's own buffers; datagrams are handed out from there.  What does not fit the
 *           caller's array is kept for the next poll, which then does not enter the kernel, so the
 *           buffers are overwritten only after the last of them has been handed out and given back.
 *           It asks for one where the last call brought none, and for more while all that it asks for
 *           comes: the kernel's look for one more where there is none takes 0.15 us, and what has
 *           come would wait for it.
 * Alignment a buffer begins so that the first datagram lies on a cache line.  GRO segments lie at
 *           multiples of the frame length; where that is 4 modulo 8, the datagram is moved down by 4
 *           over its own header, which has been read.
 * Stamps    recv_ns is taken once for each recvmmsg(), also for what is handed out later.
 * Hostile   every byte of a frame, until tw_roce_accept().
 * Threads   one per handle. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/slab.h"
#include "fabric/udp/roce.h"
#include "fabric/udp/udp.h"

#define RX_MSGS      16u /* per recvmmsg: 1 MiB of buffers an endpoint */
#define RX_CALLS_MAX 64u /* recvmmsg in a row that bring nothing but bad frames */
/* Frames begin so that the datagrams behind their headers are cache-line aligned. */
#define RX_LEAD_BYTES (TW_CACHE_LINE_BYTES - TW_ROCE_HDR_BYTES)
#define RX_DATA_BYTES 65535u /* no UDP payload is longer, GRO or not */
/* An odd number of cache lines, so that the buffers' first lines do not share a cache set. */
#define RX_STRIDE_BYTES 65728u
_Static_assert(RX_STRIDE_BYTES >= RX_LEAD_BYTES + RX_DATA_BYTES, "a buffer holds the longest");
_Static_assert(RX_STRIDE_BYTES / TW_CACHE_LINE_BYTES % 2 == 1 &&
		       RX_STRIDE_BYTES % TW_CACHE_LINE_BYTES == 0,
	       "an odd number of lines");

struct control {
	_Alignas(struct cmsghdr) uint8_t bytes[CMSG_SPACE(sizeof(int))];
};

struct udp_rx_endpoint {
	struct tw_roce_flow flow; /* to the group, from the sender of the last frame */
	struct tw_counters counters;
	/* what the last recvmmsg brought and where handing out stands */
	uint32_t got, at; /* messages */
	uint32_t ask;     /* of the next recvmmsg */
	uint32_t offset_bytes;
	uint32_t segment; /* index in its GRO batch */
	uint64_t recv_ns;
	struct mmsghdr msgs[RX_MSGS];
	struct iovec iov[RX_MSGS];
	struct sockaddr_in from[RX_MSGS];
	struct control control[RX_MSGS];
};

struct udp_rx {
	struct tw_rx base;
	int epoll_fd; /* every endpoint's socket */
	uint32_t mtu_bytes;
	struct tw_slab slab;
	struct pollfd *fds; /* by endpoint */
	struct tw_roce_tables tables;
	struct udp_rx_endpoint endpoint[];
};

/* Twice as many as long as all that were asked for come, else what came, but one at least. */
static uint32_t next_ask(uint32_t asked, uint32_t got)
{
	if (got == asked) {
		return 2 * asked > RX_MSGS ? RX_MSGS : 2 * asked;
	}
	return got > 0 ? got : 1;
}

/* Takes what the socket has.  Messages, 0, or a negative status. */
static int receive(struct udp_rx_endpoint *ep, int fd)
{
	for (uint32_t i = 0; i < ep->got; i++) { /* the kernel wrote into those */
		struct msghdr *msg = &ep->msgs[i].msg_hdr;
		msg->msg_namelen = sizeof(ep->from[i]);
		msg->msg_controllen = sizeof(ep->control[i]);
	}
	ep->got = 0;
	ep->at = 0;
	ep->offset_bytes = 0;
	ep->segment = 0;
	const int got = recvmmsg(fd, ep->msgs, ep->ask, MSG_DONTWAIT, NULL);
	if (got >= 0) {
		ep->got = (uint32_t)got;
		ep->recv_ns = tw_wall_ns();
		ep->ask = next_ask(ep->ask, ep->got);
		return got;
	}
	ep->ask = next_ask(ep->ask, 0);
	/* ENOMEM and ENOBUFS pass; anything else says that the socket is no longer one. */
	return errno == EAGAIN || errno == EINTR || errno == ENOMEM || errno == ENOBUFS ? 0
											: TW_ESYS;
}

/* Length of the frames in message `i`: its own, or what the kernel says it joined them from. */
static uint32_t segment_bytes(struct udp_rx_endpoint *ep, uint32_t i)
{
	struct msghdr *msg = &ep->msgs[i].msg_hdr;
	const struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg);
	if (cmsg != NULL && cmsg->cmsg_level == SOL_UDP && cmsg->cmsg_type == UDP_GRO) {
		int bytes;
		memcpy(&bytes, CMSG_DATA(cmsg), sizeof(bytes));
		if (bytes > 0) {
			return (uint32_t)bytes;
		}
	}
	return ep->msgs[i].msg_len;
}

/* Hands out datagrams of message ep->at.  Returns how many; at most max. */
static unsigned int take_frames(struct udp_rx *rx, struct udp_rx_endpoint *ep,
				struct tw_rx_dgram *out, unsigned int max)
{
	const uint32_t m = ep->at;
	const uint32_t len_bytes = ep->msgs[m].msg_len;
	const uint32_t step_bytes = segment_bytes(ep, m);
	const uint32_t src_addr = ntohl(ep->from[m].sin_addr.s_addr);
	uint8_t *base = ep->iov[m].iov_base;
	unsigned int taken = 0;

	tw_roce_receiver_from(&ep->flow, src_addr, ntohs(ep->from[m].sin_port));
	while (taken < max && (ep->offset_bytes < len_bytes || len_bytes == 0)) {
		uint8_t *frame = base + ep->offset_bytes;
		uint32_t frame_bytes = len_bytes - ep->offset_bytes;
		frame_bytes = frame_bytes > step_bytes ? step_bytes : frame_bytes;
		struct tw_roce_ud ud;
		const enum tw_roce_verdict verdict =
			tw_roce_accept(&ep->flow, &rx->tables, frame, frame_bytes, rx->mtu_bytes,
				       (uint16_t)ep->segment, &ud);
		ep->offset_bytes += frame_bytes;
		ep->segment++;
		if (verdict == TW_ROCE_OK) {
			uint8_t *data = frame + TW_ROCE_HDR_BYTES;
			if (((uintptr_t)data & 7u) != 0) {
				data -= 4;
				memmove(data, data + 4, ud.len_bytes);
			}
			out[taken++] = (struct tw_rx_dgram){ .data = data,
							     .len_bytes = ud.len_bytes,
							     .src_addr = src_addr,
							     .recv_ns = ep->recv_ns };
		} else {
			tw_counter_add(&ep->counters,
				       verdict == TW_ROCE_FOREIGN ? TW_SUB_LINE_foreign_frames
								  : TW_SUB_LINE_icrc_bad,
				       1);
		}
		if (len_bytes == 0) { /* an empty UDP datagram: counted, once */
			break;
		}
	}
	if (ep->offset_bytes >= len_bytes) {
		ep->at++;
		ep->offset_bytes = 0;
		ep->segment = 0;
	}
	return taken;
}

static int udp_rx_poll(struct tw_rx *base, uint32_t endpoint, struct tw_rx_dgram *out,
		       unsigned int max)
{
	struct udp_rx *rx = (struct udp_rx *)base;
	TW_ASSERT(endpoint < base->endpoints);
	struct udp_rx_endpoint *ep = &rx->endpoint[endpoint];
	unsigned int n = 0;
	max = max > TW_RX_BATCH ? TW_RX_BATCH : max;
	/* 0 means to the caller that the queue is empty: frames that are no good are read past, but
	 * not for ever. */
	for (unsigned int calls = 0; n == 0 && calls < RX_CALLS_MAX; calls++) {
		if (ep->at == ep->got) {
			const int got = receive(ep, rx->fds[endpoint].fd);
			if (got <= 0) {
				return got;
			}
		}
		while (n < max && ep->at < ep->got) {
			n += take_frames(rx, ep, out + n, max - n);
		}
	}
	return (int)n;
}

/* What was received and not handed out does not make a socket readable. */
static int udp_rx_arm(struct tw_rx *base, uint64_t *due_ns)
{
	struct udp_rx *rx = (struct udp_rx *)base;
	(void)due_ns; /* nothing here goes by time */
	for (uint32_t i = 0; i < base->endpoints; i++) {
		if (rx->endpoint[i].at < rx->endpoint[i].got) {
			return 1;
		}
	}
	return 0;
}

static int udp_rx_event_fd(const struct tw_rx *base)
{
	return ((const struct udp_rx *)base)->epoll_fd;
}

static int udp_rx_wait(struct tw_rx *base, uint64_t timeout_ns)
{
	struct udp_rx *rx = (struct udp_rx *)base;
	uint64_t due_ns = UINT64_MAX;
	if (udp_rx_arm(base, &due_ns) != 0) {
		return 1;
	}
	const struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
					  .tv_nsec = (long)(timeout_ns % 1000000000u) };
	const int ready = ppoll(rx->fds, base->endpoints, &timeout, NULL);
	if (ready < 0) {
		return errno == EINTR ? 0 : TW_ESYS;
	}
	return ready;
}

static void udp_rx_close(struct tw_rx *base)
{
	struct udp_rx *rx = (struct udp_rx *)base;
	for (uint32_t i = 0; rx->fds != NULL && i < base->endpoints; i++) {
		if (rx->fds[i].fd >= 0) {
			close(rx->fds[i].fd);
		}
	}
	if (rx->epoll_fd >= 0) {
		close(rx->epoll_fd);
	}
	free(rx->fds);
	tw_slab_fini(&rx->slab);
	free(rx);
}

static const struct tw_rx_ops udp_rx_ops = {
	.poll = udp_rx_poll,
	.wait = udp_rx_wait,
	.event_fd = udp_rx_event_fd,
	.arm = udp_rx_arm,
	.close = udp_rx_close,
};

static void init_buffers(struct udp_rx_endpoint *ep, uint8_t *memory)
{
	for (uint32_t i = 0; i < RX_MSGS; i++) {
		ep->iov[i] = (struct iovec){
			.iov_base = memory + (size_t)i * RX_STRIDE_BYTES + RX_LEAD_BYTES,
			.iov_len = RX_DATA_BYTES,
		};
		ep->msgs[i].msg_hdr = (struct msghdr){ .msg_name = &ep->from[i],
						       .msg_namelen = sizeof(ep->from[i]),
						       .msg_iov = &ep->iov[i],
						       .msg_iovlen = 1,
						       .msg_control = &ep->control[i],
						       .msg_controllen = sizeof(ep->control[i]) };
	}
}

static int open_endpoint(struct udp_rx *rx, uint32_t i, const struct tw_fabric_conf *conf,
			 const struct tw_rx_endpoint *want, struct tw_error *err)
{
	struct udp_rx_endpoint *ep = &rx->endpoint[i];
	if (want->line >= TW_FABRIC_MAX_LINES || want->group >> 28 != 0xe) {
		return tw_fail(err, TW_EARG, "receive " TW_IPV4_FMT ": line %u: %s",
			       TW_IPV4_ARGS(want->group), want->line,
			       want->line >= TW_FABRIC_MAX_LINES ? "no such line"
								 : "not a multicast address");
	}
	struct tw_udp_if iface;
	int ret = tw_udp_if_find(&iface, conf, want->line, err);
	if (ret != TW_OK) {
		return ret;
	}
	uint32_t granted_bytes = 0;
	rx->fds[i].fd = tw_udp_rx_socket(&iface, conf, want->group, &granted_bytes, err);
	if (rx->fds[i].fd < 0) {
		return rx->fds[i].fd;
	}
	rx->fds[i].events = POLLIN;
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(rx->epoll_fd, EPOLL_CTL_ADD, rx->fds[i].fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "receive " TW_IPV4_FMT ": epoll_ctl",
				   TW_IPV4_ARGS(want->group));
	}
	ep->counters = want->counters;
	tw_counter_set(&ep->counters, TW_SUB_LINE_receive_buffer_bytes, granted_bytes);
	tw_roce_receiver_init(&ep->flow, want->group);
	ep->ask = 1;
	init_buffers(ep, rx->slab.base + (size_t)i * RX_MSGS * RX_STRIDE_BYTES);
	return TW_OK;
}

int tw_udp_rx_open(struct tw_rx **rx_p, const struct tw_fabric_conf *conf,
		   const struct tw_rx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	*rx_p = NULL;
	int ret = tw_udp_check_mtu(conf, err);
	if (ret != TW_OK) {
		return ret;
	}
	struct udp_rx *rx = calloc(1, sizeof(*rx) + n * sizeof(rx->endpoint[0]));
	if (rx == NULL) {
		return tw_fail(err, TW_ENOMEM, "udp receiver: calloc: %u endpoints", n);
	}
	rx->base.ops = &udp_rx_ops;
	rx->base.endpoints = n;
	rx->base.stamp = "poll";
	rx->epoll_fd = -1;
	rx->mtu_bytes = conf->mtu_bytes;
	tw_roce_tables_init(&rx->tables);
	rx->fds = calloc(n == 0 ? 1 : n, sizeof(*rx->fds));
	if (rx->fds == NULL) {
		ret = tw_fail(err, TW_ENOMEM, "udp receiver: calloc: %u endpoints", n);
		goto undo_rx;
	}
	for (uint32_t i = 0; i < n; i++) {
		rx->fds[i].fd = -1;
	}
	rx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (rx->epoll_fd < 0) {
		ret = tw_fail_sys(err, TW_ESYS, "udp receiver: epoll_create1");
		goto undo_rx;
	}
	ret = tw_slab_init(&rx->slab, (size_t)(n == 0 ? 1 : n) * RX_MSGS * RX_STRIDE_BYTES, err);
	if (ret != TW_OK) {
		goto undo_rx;
	}
	for (uint32_t i = 0; i < n; i++) {
		ret = open_endpoint(rx, i, conf, &endpoints[i], err);
		if (ret != TW_OK) {
			goto undo_rx;
		}
	}
	*rx_p = &rx->base;
	return TW_OK;

undo_rx:
	udp_rx_close(&rx->base);
	return ret;
}
