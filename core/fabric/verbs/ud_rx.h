/* The receiver of the `verbs` transport: what its hot half (ud_rx.c) and its cold one (ud_rx_open.c) share.
 *
 * Threads   see ud.h: fields of a flow are its owner's. */
#ifndef TW_FABRIC_VERBS_UD_RX_H
#define TW_FABRIC_VERBS_UD_RX_H

#include <stddef.h>

#include "base/slab.h"
#include "fabric/verbs/stamp.h"
#include "fabric/verbs/ud.h"

struct rx_done { /* a datagram that waits here */
	uint32_t slot, len_bytes, src_addr;
	uint64_t recv_ns;
};

struct rx_flow {
	struct tw_ud_flow flow;

	/* the flow's owner */
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex; /* the same one, where it is an extended one */
	struct ibv_mr *mr;
	bool broken; /* a completion said so; what came before it is still to be handed out */
	bool armed;  /* the completion channel will say */
	uint32_t got, at, lent_count, spare_count;
	uint32_t outstanding; /* receives posted and not completed */
	uint32_t backlog;     /* completions found since a look last emptied the queue */
	uint32_t free_min;
	struct tw_counters counters;
	uint32_t depth; /* const after open */
	struct tw_slots slots;
	uint32_t *spare; /* depth */
	uint32_t lent[TW_RX_BATCH];
	struct rx_done stash[TW_RX_BATCH];
};

struct ud_rx {
	struct tw_rx base;
	struct tw_ud ud;
	uint32_t mtu_bytes;
	int epoll_fd;  /* the completion channels and heal_fd */
	bool extended; /* completion queues are, clock or not; const after open */
	bool stamps[TW_FABRIC_MAX_LINES]; /* by the device; const after open */
	char stamp_text[96];
	struct tw_stamp clocks[TW_FABRIC_MAX_LINES];
	struct ibv_comp_channel *channels[TW_FABRIC_MAX_LINES];
	struct ibv_wc wc[TW_RX_BATCH];
	uint64_t ticks[TW_RX_BATCH]; /* of the device's clock, with `stamps` */
	struct ibv_recv_wr wr[TW_RX_BATCH];
	struct ibv_sge sge[TW_RX_BATCH];
	struct rx_flow flows[];
};

static inline struct ud_rx *tw_ud_rx_of(struct tw_ud *ud)
{
	return (void *)((char *)ud - offsetof(struct ud_rx, ud));
}

/* The base is the first member, and the whole is aligned as it must be. */
static inline struct ud_rx *tw_ud_rx_self(struct tw_rx *base)
{
	return (void *)base;
}

static inline const struct ud_rx *tw_ud_rx_self_const(const struct tw_rx *base)
{
	return (const void *)base;
}

static inline const uint8_t *tw_ud_rx_grh(const struct rx_flow *f, uint32_t slot)
{
	return tw_slots_dgram(&f->slots, slot) - TW_GRH_BYTES;
}

/* Posts up to a batch of the spare slots.  False: the queue refused. */
bool tw_ud_rx_post(struct ud_rx *rx, struct rx_flow *f);

int tw_ud_rx_poll(struct tw_rx *base, uint32_t endpoint, struct tw_rx_dgram *out, unsigned int max);
int tw_ud_rx_wait(struct tw_rx *base, uint64_t timeout_ns);
int tw_ud_rx_event_fd(const struct tw_rx *base);
int tw_ud_rx_arm(struct tw_rx *base, uint64_t *due_ns);

#endif
