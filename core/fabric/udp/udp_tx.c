/* Sending half of the `udp` transport.
 *
 * Frames    are made one behind the other in a buffer of the sender's, so that a send is one piece: the
 *           datagrams are copied there in the pass that computes their CRCs.  Headers and ICRCs are
 *           written around them for each line in turn.
 * GSO       a run of equal lengths (the last may be shorter) goes in one send that the kernel cuts
 *           into segments with the identifications 0, 1, 2 ...; the ICRCs count with those.  It needs
 *           a UDP checksum, so it has a socket of its own; single datagrams go without checksum.  A
 *           kernel or device that refuses it makes the line go on without it, for good.
 * Lines     stand alone: one that cannot take a datagram skips it, the other still gets it.
 * Threads   one per handle. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/slab.h"
#include "fabric/udp/roce.h"
#include "fabric/udp/udp.h"

#define GSO_MAX_SEGMENTS 62u    /* below the 64 that kernels before 6.9 take; 62 x 1,048 fit */
#define UDP_MAX_BYTES    65507u /* payload of an IPv4 UDP datagram */
#define CONTROL_BYTES    CMSG_SPACE(sizeof(uint16_t))
#define FRAMES_BYTES     ((size_t)TW_TX_BATCH * (TW_WIRE_DGRAM_MAX_BYTES + TW_ROCE_OVERHEAD_BYTES))

struct udp_tx_line {
	int fd;     /* without checksum; -1: no such line */
	int gso_fd; /* with checksum; -1: never GSO */
	bool gso;   /* still works */
};

struct udp_tx_group { /* a channel on a line */
	bool used;
	struct sockaddr_in to;
	struct tw_roce_flow flow;
	struct tw_counters counters;
};

struct udp_tx_endpoint {
	uint64_t posted; /* datagrams; a send has copied them when it returns */
	struct udp_tx_group groups[TW_FABRIC_MAX_LINES];
};

struct control {
	_Alignas(struct cmsghdr) uint8_t bytes[CONTROL_BYTES];
};

/* The frames of one post, and the sends that one call to the kernel takes of them. */
struct batch {
	unsigned int sends;
	unsigned int at[TW_TX_BATCH + 1]; /* first datagram of each send, and where the last ends */
	struct mmsghdr msgs[TW_TX_BATCH];
	struct iovec iov[TW_TX_BATCH];
	struct control control[TW_TX_BATCH];
	uint32_t crc[TW_TX_BATCH];              /* of each datagram's own bytes */
	uint32_t offset_bytes[TW_TX_BATCH + 1]; /* of each frame, and of the last one's end */
	uint8_t *frames;                        /* FRAMES_BYTES */
};

struct udp_tx {
	struct tw_tx base;
	struct udp_tx_line lines[TW_FABRIC_MAX_LINES];
	struct batch batch;
	struct tw_slab slab; /* the frames */
	struct tw_roce_tables tables;
	uint32_t endpoints;
	struct udp_tx_endpoint endpoint[];
};

/* Datagrams of this length that one GSO send can carry. */
static unsigned int longest_run(uint32_t len_bytes)
{
	const unsigned int fit = UDP_MAX_BYTES / (len_bytes + TW_ROCE_OVERHEAD_BYTES);
	return fit > GSO_MAX_SEGMENTS ? GSO_MAX_SEGMENTS : fit;
}

/* Datagrams at the front of `dgrams` that one GSO send can carry. */
static unsigned int run_length(const struct tw_tx_dgram *dgrams, unsigned int n)
{
	const uint32_t len_bytes = dgrams[0].len_bytes;
	unsigned int most = longest_run(len_bytes);
	most = most > n ? n : most;
	unsigned int run = 1;
	while (run < most && dgrams[run].len_bytes == len_bytes) {
		run++;
	}
	if (run < most && dgrams[run].len_bytes < len_bytes) {
		run++;
	}
	return run;
}

/* Adds one send of datagrams first .. first + run - 1. */
static void add_send(struct batch *b, struct udp_tx_group *group,
		     const struct tw_roce_tables *tables, const struct tw_tx_dgram *dgrams,
		     unsigned int first, unsigned int run)
{
	for (unsigned int i = 0; i < run; i++) {
		const unsigned int d = first + i;
		uint8_t *frame = b->frames + b->offset_bytes[d];
		tw_roce_seal(&group->flow, tables, dgrams[d].len_bytes, b->crc[d], (uint16_t)i,
			     frame, frame + TW_ROCE_HDR_BYTES + dgrams[d].len_bytes);
	}
	struct iovec *iov = &b->iov[b->sends];
	struct msghdr *msg = &b->msgs[b->sends].msg_hdr;
	*iov = (struct iovec){
		.iov_base = b->frames + b->offset_bytes[first],
		.iov_len = b->offset_bytes[first + run] - b->offset_bytes[first],
	};
	*msg = (struct msghdr){ .msg_name = &group->to,
				.msg_namelen = sizeof(group->to),
				.msg_iov = iov,
				.msg_iovlen = 1 };
	if (run > 1) {
		struct control *control = &b->control[b->sends];
		const uint16_t segment_bytes =
			(uint16_t)(dgrams[first].len_bytes + TW_ROCE_OVERHEAD_BYTES);
		msg->msg_control = control;
		msg->msg_controllen = sizeof(*control);
		struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg);
		cmsg->cmsg_level = SOL_UDP;
		cmsg->cmsg_type = UDP_SEGMENT;
		cmsg->cmsg_len = CMSG_LEN(sizeof(segment_bytes));
		memcpy(CMSG_DATA(cmsg), &segment_bytes, sizeof(segment_bytes));
	}
	b->sends++;
	b->at[b->sends] = first + run;
}

/* Fills the batch from datagram `first` on, as far as sends of one kind reach.  True: they are GSO. */
static bool fill(struct batch *b, const struct udp_tx_line *line, struct udp_tx_group *group,
		 const struct tw_roce_tables *tables, const struct tw_tx_dgram *dgrams,
		 unsigned int first, unsigned int n)
{
	bool gso = false;
	b->sends = 0;
	b->at[0] = first;
	while (first < n) {
		const unsigned int run = line->gso ? run_length(dgrams + first, n - first) : 1;
		if (b->sends == 0) {
			gso = run > 1;
		} else if (gso != (run > 1)) {
			break;
		}
		add_send(b, group, tables, dgrams, first, run);
		first += run;
	}
	return gso;
}

static void count_sent(const struct udp_tx_group *group, const struct tw_tx_dgram *dgrams,
		       unsigned int first, unsigned int end)
{
	uint64_t bytes = 0;
	for (unsigned int i = first; i < end; i++) {
		bytes += dgrams[i].len_bytes;
	}
	tw_counter_add(&group->counters, TW_PUB_LINE_datagrams, end - first);
	tw_counter_add(&group->counters, TW_PUB_LINE_bytes, bytes);
}

/* Sends what fill() has prepared.  Returns the first datagram that is still to be dealt with: the
 * batch's end, n where the line is full, or a GSO send that must go another way. */
static unsigned int send_batch(struct batch *b, struct udp_tx_line *line,
			       const struct udp_tx_group *group, const struct tw_tx_dgram *dgrams,
			       unsigned int n, bool gso)
{
	const int fd = gso ? line->gso_fd : line->fd;
	unsigned int done = 0;
	bool again = false; /* the send at `done` has already failed once */
	while (done < b->sends) {
		const int sent = sendmmsg(fd, b->msgs + done, b->sends - done, MSG_DONTWAIT);
		if (sent > 0) {
			count_sent(group, dgrams, b->at[done], b->at[done + (unsigned int)sent]);
			done += (unsigned int)sent;
			again = false;
			continue;
		}
		const int cause = errno;
		if (cause == EINTR) {
			continue;
		}
		if (cause == EAGAIN || cause == ENOBUFS) {
			/* Full: the rest of this call would only wait for the same room. */
			tw_counter_add(&group->counters, TW_PUB_LINE_skipped, n - b->at[done]);
			return n;
		}
		if (gso && (cause == EIO || cause == EINVAL)) {
			line->gso = false;
			return b->at[done];
		}
		/* An error that the socket had pending from elsewhere (an ICMP message) is gone
		 * once reported: a second failure is the datagram's own. */
		if (again) {
			tw_counter_add(&group->counters, TW_PUB_LINE_errors,
				       b->at[done + 1] - b->at[done]);
			done++;
		}
		again = !again;
	}
	return b->at[b->sends];
}

/* Copies the datagrams to where their frames will be. */
static void take(struct batch *b, const struct tw_crc32 *crc32, const struct tw_tx_dgram *dgrams,
		 unsigned int n)
{
	b->offset_bytes[0] = 0;
	for (unsigned int i = 0; i < n; i++) {
		const uint32_t len_bytes = dgrams[i].len_bytes;
		TW_ASSERT(len_bytes <= TW_WIRE_DGRAM_MAX_BYTES && len_bytes % 4 == 0);
		b->crc[i] = crc32->copy(b->frames + b->offset_bytes[i] + TW_ROCE_HDR_BYTES,
					dgrams[i].data, len_bytes);
		b->offset_bytes[i + 1] = b->offset_bytes[i] + len_bytes + TW_ROCE_OVERHEAD_BYTES;
	}
}

static void udp_tx_post(struct tw_tx *base, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
			unsigned int n)
{
	struct udp_tx *tx = (struct udp_tx *)base;
	TW_ASSERT(endpoint < tx->endpoints && n <= TW_TX_BATCH);
	struct udp_tx_endpoint *ep = &tx->endpoint[endpoint];
	take(&tx->batch, tx->tables.crc32, dgrams, n);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		struct udp_tx_group *group = &ep->groups[l];
		unsigned int at = group->used ? 0 : n;
		while (at < n) {
			struct udp_tx_line *line = &tx->lines[l];
			const bool gso = fill(&tx->batch, line, group, &tx->tables, dgrams, at, n);
			at = send_batch(&tx->batch, line, group, dgrams, n, gso);
		}
	}
	ep->posted += n;
}

static uint64_t udp_tx_completed(struct tw_tx *base, uint32_t endpoint)
{
	struct udp_tx *tx = (struct udp_tx *)base;
	TW_ASSERT(endpoint < tx->endpoints);
	return tx->endpoint[endpoint].posted;
}

/* No send is ever under way: nothing holds anybody. */
static void udp_tx_overtaken(struct tw_tx *base, uint32_t endpoint)
{
	(void)base;
	(void)endpoint;
}

static void udp_tx_close(struct tw_tx *base)
{
	struct udp_tx *tx = (struct udp_tx *)base;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (tx->lines[l].gso_fd >= 0) {
			close(tx->lines[l].gso_fd);
		}
		if (tx->lines[l].fd >= 0) {
			close(tx->lines[l].fd);
		}
	}
	tw_slab_fini(&tx->slab);
	free(tx);
}

static const struct tw_tx_ops udp_tx_ops = {
	.post = udp_tx_post,
	.completed = udp_tx_completed,
	.overtaken = udp_tx_overtaken,
	.close = udp_tx_close,
};

static int open_line(struct udp_tx *tx, const struct tw_fabric_conf *conf, unsigned int l,
		     uint16_t *port, struct tw_error *err)
{
	struct udp_tx_line *line = &tx->lines[l];
	struct tw_udp_if iface;
	int ret = tw_udp_if_find(&iface, conf, l, err);
	if (ret != TW_OK) {
		return ret;
	}
	*port = 0;
	line->fd = tw_udp_tx_socket(&iface, conf, false, port, err);
	if (line->fd < 0) {
		return line->fd;
	}
	if (conf->gso == TW_GSO_ON || (conf->gso == TW_GSO_AUTO && iface.segments_in_software)) {
		line->gso_fd = tw_udp_tx_socket(&iface, conf, true, port, err);
		if (line->gso_fd < 0) {
			return line->gso_fd;
		}
		line->gso = true;
		const unsigned int run = longest_run(conf->mtu_bytes);
		tx->base.batch_dgrams = TW_TX_BATCH - TW_TX_BATCH % run;
	}
	return TW_OK;
}

static int open_group(struct udp_tx_endpoint *ep, const struct tw_tx_endpoint *want,
		      const struct tw_fabric_conf *conf, unsigned int l, uint16_t port,
		      struct tw_error *err)
{
	struct udp_tx_group *group = &ep->groups[l];
	if (want->groups[l] >> 28 != 0xe) {
		return tw_fail(err, TW_EARG, "send to " TW_IPV4_FMT ": not a multicast address",
			       TW_IPV4_ARGS(want->groups[l]));
	}
	group->used = true;
	group->to = (struct sockaddr_in){ .sin_family = AF_INET,
					  .sin_port = htons(TW_ROCE_PORT),
					  .sin_addr.s_addr = htonl(want->groups[l]) };
	group->counters = want->counters[l];
	tw_roce_sender_init(&group->flow, conf->lines[l].address, port, want->groups[l],
			    tw_roce_source_qp(want->publisher));
	return TW_OK;
}

int tw_udp_tx_open(struct tw_tx **tx_p, const struct tw_fabric_conf *conf,
		   const struct tw_tx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	*tx_p = NULL;
	int ret = tw_udp_check_mtu(conf, err);
	if (ret != TW_OK) {
		return ret;
	}
	struct udp_tx *tx = calloc(1, sizeof(*tx) + n * sizeof(tx->endpoint[0]));
	if (tx == NULL) {
		return tw_fail(err, TW_ENOMEM, "udp sender: calloc: %u endpoints", n);
	}
	tx->base = (struct tw_tx){ .ops = &udp_tx_ops, .batch_dgrams = TW_TX_BATCH };
	tx->endpoints = n;
	tw_roce_tables_init(&tx->tables);
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		tx->lines[l].fd = -1;
		tx->lines[l].gso_fd = -1;
	}
	ret = tw_slab_init(&tx->slab, FRAMES_BYTES, err);
	if (ret != TW_OK) {
		udp_tx_close(&tx->base);
		return ret;
	}
	tx->batch.frames = tx->slab.base;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		uint16_t port = 0;
		for (uint32_t i = 0; i < n; i++) {
			if (endpoints[i].groups[l] == 0) {
				continue;
			}
			if (tx->lines[l].fd < 0) {
				ret = open_line(tx, conf, l, &port, err);
			}
			if (ret == TW_OK) {
				ret = open_group(&tx->endpoint[i], &endpoints[i], conf, l, port,
						 err);
			}
			if (ret != TW_OK) {
				udp_tx_close(&tx->base);
				return ret;
			}
		}
	}
	*tx_p = &tx->base;
	return TW_OK;
}
