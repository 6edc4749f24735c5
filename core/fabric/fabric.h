/* One interface, several ways onto the wire: `udp`, `verbs`; shm and sim have the same shape.
 *
 * Endpoints  a receiver has one endpoint per (channel, line) group, a sender one per channel with all
 *            its lines; they are numbered in the order of the open call.
 * Receive    tw_rx_poll() fills in datagrams that lie in the endpoint's own buffers: 8-byte aligned,
 *            valid until the next poll of the same endpoint.  RoCE headers and ICRC are already off.
 * Send       tw_tx_post() posts one run of datagrams on every line, from where they lie; a line that
 *            cannot take one skips it and counts it, the others go on.  The memory may be reused once
 *            tw_tx_completed() says so for every line.
 * Hot path   poll and post allocate nothing, lock nothing, log nothing.  (`udp` enters the kernel.)
 * Threads    one per handle; `verbs` has a cold one of its own that heals what breaks. */
#ifndef TW_FABRIC_FABRIC_H
#define TW_FABRIC_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"
#include "tidewire/error.h"

#define TW_FABRIC_MAX_LINES 2u
#define TW_ROCE_PORT        4791u
#define TW_ROCE_MCAST_QP    0xffffffu
#define TW_ROCE_QKEY        0x01234567u /* rdma_cm's for RDMA_PS_UDP */
#define TW_RX_BATCH         64u
#define TW_TX_BATCH         64u

struct tw_rx_dgram {
	const uint8_t *data; /* the Tidewire datagram, 8-byte aligned */
	uint32_t len_bytes;
	uint32_t src_addr; /* IPv4, host order */
	uint64_t recv_ns;  /* wall clock when it was polled */
};

struct tw_rx;
struct tw_tx;

struct tw_fabric_line {     /* one line's interface on this host, IPv4 in host order */
	uint32_t address;   /* of the interface; 127.0.0.1 is `lo` */
	char interface[16]; /* name, for messages; may be empty */
};

struct tw_fabric_conf {
	uint32_t mtu_bytes; /* largest Tidewire datagram */
	uint8_t tos;        /* DSCP << 2 of the live class */
	uint8_t ttl;
	uint32_t rcvbuf_bytes; /* wanted, for each endpoint */
	enum {
		TW_GSO_AUTO = 0,
		TW_GSO_ON,
		TW_GSO_OFF
	} gso; /* sending: AUTO on lo and veth, elsewhere off; receiving: GRO unless OFF */
	struct tw_fabric_line lines[TW_FABRIC_MAX_LINES];

	/* `verbs` alone */
	uint16_t partition_key;
	uint32_t receive_depth; /* datagrams, for each endpoint; 0: as many as rcvbuf_bytes holds */
	bool extended_completions; /* else only where the device stamps: for tests without such one */
	struct tw_counters verbs[TW_FABRIC_MAX_LINES]; /* TW_SET_verbs_line; zeroed: nobody reads */
};

struct tw_rx_endpoint { /* what to receive */
	uint32_t group; /* IPv4 multicast, host order */
	uint8_t line;
	struct tw_counters
		counters; /* TW_SET_sub_line: icrc_bad, foreign_frames, receive_*, stamps_bad, fault_* */
};
struct tw_tx_endpoint {
	uint32_t groups[TW_FABRIC_MAX_LINES]; /* 0: the channel has no such line */
	uint32_t publisher;                   /* goes into the source QP number */
	/* TW_SET_pub_line, all of it: datagrams and bytes are those that the line has taken */
	struct tw_counters counters[TW_FABRIC_MAX_LINES];
	/* Where datagrams lie: page aligned, there until close.  `verbs` registers it (for sending
	 * alone: no key to it ever leaves this host) and copies datagrams that lie elsewhere. */
	void *memory;
	size_t memory_bytes;
};

struct tw_tx_dgram {
	const uint8_t *data;
	uint32_t len_bytes; /* a multiple of 4, at most mtu_bytes */
};

struct tw_rx_ops {
	int (*poll)(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out, unsigned int max);
	/* Waits in the kernel until something may be there or timeout_ns is over (event mode). */
	int (*wait)(struct tw_rx *rx, uint64_t timeout_ns);
	/* A descriptor that becomes readable when something may be there, once armed. */
	int (*event_fd)(const struct tw_rx *rx);
	/* 1: something may be there already; 0: the descriptor will say; *due_ns: at the latest then. */
	int (*arm)(struct tw_rx *rx, uint64_t *due_ns);
	const char *(*describe)(const struct tw_rx *rx, unsigned int line);
	bool (*note)(struct tw_rx *rx, struct tw_error *out);
	void (*close)(struct tw_rx *rx);
};
struct tw_rx { /* first member of every implementation's receiver */
	const struct tw_rx_ops *ops;
	uint32_t endpoints;
	/* const after open */
	const char *stamp; /* where recv_ns comes from, and why: "poll", "NIC clock" ... */
	bool sourceless;   /* src_addr is 0 and means nothing: InfiniBand has no addresses */
};

struct tw_tx_ops {
	void (*post)(struct tw_tx *tx, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
		     unsigned int n);
	uint64_t (*completed)(struct tw_tx *tx, uint32_t endpoint);
	void (*overtaken)(struct tw_tx *tx, uint32_t endpoint);
	const char *(*describe)(const struct tw_tx *tx, unsigned int line);
	bool (*note)(struct tw_tx *tx, struct tw_error *out);
	void (*close)(struct tw_tx *tx);
};
struct tw_tx { /* first member of every implementation's sender */
	const struct tw_tx_ops *ops;
	unsigned int batch_dgrams; /* tw_tx_batch() */
};

/* 0..max datagrams, or a negative status (the endpoint is gone: open again).  At most
 * TW_RX_BATCH come at once; what is there beyond that or max stays for the next poll, in order. */
static inline int tw_rx_poll(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out,
			     unsigned int max)
{
	return rx->ops->poll(rx, endpoint, out, max);
}
static inline int tw_rx_wait(struct tw_rx *rx, uint64_t timeout_ns)
{
	return rx->ops->wait(rx, timeout_ns);
}
/* The same for a caller that waits elsewhere, for more than this: the descriptor, valid until close,
 * and before each wait on it tw_rx_arm(), after a poll of every endpoint that gave nothing.
 * Readable does not mean that there is something; not armed again, it may stay silent.
 * Arm returns 1 where something may be there already, 0 where the descriptor will say, or a
 * negative status; *due_ns (mono) is lowered to when it should be polled in any case. */
static inline int tw_rx_event_fd(const struct tw_rx *rx)
{
	return rx->ops->event_fd(rx);
}
static inline int tw_rx_arm(struct tw_rx *rx, uint64_t *due_ns)
{
	return rx->ops->arm(rx, due_ns);
}
/* What a line uses, for start-up lines; "" where there is nothing to say. */
const char *tw_rx_describe(const struct tw_rx *rx, unsigned int line);
const char *tw_tx_describe(const struct tw_tx *tx, unsigned int line);
/* Off the hot path, one thread: takes a text about what broke or healed since, if there is one. */
bool tw_rx_note(struct tw_rx *rx, struct tw_error *out);
bool tw_tx_note(struct tw_tx *tx, struct tw_error *out);
void tw_rx_close(struct tw_rx *rx); /* NULL ok */

/* How many datagrams of mtu_bytes are best posted at once where more are to be had; 1 to TW_TX_BATCH.
 * (With GSO a send has room for so many, and a rest that goes alone costs nearly as much as a full one.) */
static inline unsigned int tw_tx_batch(const struct tw_tx *tx)
{
	return tx->batch_dgrams;
}
/* Posts `n` (at most TW_TX_BATCH) datagrams on every line of the endpoint. */
static inline void tw_tx_post(struct tw_tx *tx, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
			      unsigned int n)
{
	tx->ops->post(tx, endpoint, dgrams, n);
}
/* Datagrams of this endpoint, counted from open, whose sends are done on every line (skipped ones
 * count as done).  Of a burst's last few it may be known only with the next post. */
static inline uint64_t tw_tx_completed(struct tw_tx *tx, uint32_t endpoint)
{
	return tx->ops->completed(tx, endpoint);
}
/* The sender has no memory left for this endpoint: a line whose sends are behind those of another
 * is given up (and built anew), so that it does not hold the other; counted as skipped from there. */
static inline void tw_tx_overtaken(struct tw_tx *tx, uint32_t endpoint)
{
	tx->ops->overtaken(tx, endpoint);
}
void tw_tx_close(struct tw_tx *tx); /* NULL ok */

/* Either of the ways below. */
int tw_rx_open(struct tw_rx **rx_p, bool verbs, const struct tw_fabric_conf *conf,
	       const struct tw_rx_endpoint *endpoints, uint32_t n,
	       struct tw_error *err) TW_MUST_USE;
int tw_tx_open(struct tw_tx **tx_p, bool verbs, const struct tw_fabric_conf *conf,
	       const struct tw_tx_endpoint *endpoints, uint32_t n,
	       struct tw_error *err) TW_MUST_USE;

/* `udp`: user-space RoCE v2 (core/fabric/udp). */
int tw_udp_rx_open(struct tw_rx **rx_p, const struct tw_fabric_conf *conf,
		   const struct tw_rx_endpoint *endpoints, uint32_t n,
		   struct tw_error *err) TW_MUST_USE;
int tw_udp_tx_open(struct tw_tx **tx_p, const struct tw_fabric_conf *conf,
		   const struct tw_tx_endpoint *endpoints, uint32_t n,
		   struct tw_error *err) TW_MUST_USE;

/* `verbs`: UD queue pairs on RDMA devices (core/fabric/verbs). */
int tw_ud_rx_open(struct tw_rx **rx_p, const struct tw_fabric_conf *conf,
		  const struct tw_rx_endpoint *endpoints, uint32_t n,
		  struct tw_error *err) TW_MUST_USE;
int tw_ud_tx_open(struct tw_tx **tx_p, const struct tw_fabric_conf *conf,
		  const struct tw_tx_endpoint *endpoints, uint32_t n,
		  struct tw_error *err) TW_MUST_USE;

/* The fault layer: a receiver around a receiver that loses, doubles, reorders and delays datagrams,
 * the same for the same seed whatever the timing: each decision is a hash of the seed, the line and
 * the datagram's identity.  Works on any fabric, in every build. */
struct tw_fault_line {
	uint32_t loss_ppm, duplicate_ppm, reorder_ppm;
	uint64_t delay_ns;
	/* the line is cut from the datagram of this message number on, up to that of the other one;
	 * heartbeats too, by the number that they say comes next */
	uint64_t cut_begin_seq, cut_end_seq;
};
struct tw_fault_conf {
	uint64_t seed;
	uint32_t correlated_loss_ppm; /* lost on every line at once */
	uint64_t reorder_ns;          /* a reordered datagram comes so much later (at least) */
	struct tw_fault_line lines[TW_FABRIC_MAX_LINES];
};
bool tw_fault_active(const struct tw_fault_conf *conf);
/* Takes ownership of `inner` (also on failure).  `endpoints` as given to the inner open. */
int tw_fault_open(struct tw_rx **rx_p, struct tw_rx *inner, const struct tw_fault_conf *conf,
		  const struct tw_rx_endpoint *endpoints, uint32_t n, uint32_t mtu_bytes,
		  struct tw_error *err) TW_MUST_USE;

#endif
