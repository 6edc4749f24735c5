/* What the sending and the receiving half of the `verbs` transport share: lines (a device each),
 * flows (a queue pair on a group each) and the thread that heals them.
 *
 * Owners    a flow belongs to the hot thread while its state is HOT or RECALLED, to the cold thread
 *           else.  The hot thread gives it up when a completion says that its queue pair is broken,
 *           or when the cold one, which hears of events, has asked for it; the cold thread takes it
 *           apart, builds it anew with a back-off that doubles, and hands it back.  Neither ever
 *           waits for the other.
 * States    HOT -> COLD (given up) -> GONE (nothing of it is left in the device) -> HOT.
 *           HOT -> RECALLED -> COLD is the cold thread's wish.
 * Ordering  VB1 pairs with VB2: who sees the flow HOT sees what was built.
 *           VB3 pairs with VB4: who sees it COLD sees what the hot thread left.
 *           VB5 pairs with VB2: who sees it GONE knows that no device reads the memory any more.
 * Threads   open and close: the caller's, while no other runs.  Else as said. */
#ifndef TW_FABRIC_VERBS_UD_H
#define TW_FABRIC_VERBS_UD_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "fabric/verbs/device.h"

#define TW_UD_TEXT_BYTES 192
#define TW_UD_NOTES      16u /* kept until somebody asks; the oldest goes */

enum tw_ud_state { TW_UD_HOT = 0, TW_UD_RECALLED, TW_UD_COLD, TW_UD_GONE };
enum tw_ud_join { TW_UD_LEFT = 0, TW_UD_JOINING, TW_UD_JOINED, TW_UD_JOIN_FAILED };

struct tw_ud;
struct tw_ud_flow;

struct tw_ud_flow_ops { /* cold thread, or open and close */
	/* Queues on the joined group; `flow` has line, parameters and domain. */
	int (*build)(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err);
	/* Whatever of it is there, drained; returns work requests that stay unaccounted for. */
	uint32_t (*unbuild)(struct tw_ud *ud, struct tw_ud_flow *flow);
};

struct tw_ud_flow {
	/* read by both threads */
	_Alignas(64) _Atomic uint32_t state; /* enum tw_ud_state */

	/* const after open */
	const struct tw_ud_flow_ops *ops;
	uint32_t group; /* IPv4, host order */
	uint8_t line;
	bool receives; /* full member; else it only sends */

	/* written while it is COLD or GONE; read by its owner, and always by the cold thread */
	struct ibv_qp *qp;
	struct rdma_cm_id *id;
	struct ibv_ah_attr ah; /* of the join event: the group's */
	uint32_t remote_qpn, remote_qkey;

	/* cold thread */
	enum tw_ud_join join;
	int join_status;
	bool rejoin;   /* what broke it may have cost the membership */
	bool fallback; /* full member, because send-only is not to be had */
	bool told;     /* why it cannot be built */
	uint64_t built_ns, retry_at_ns, backoff_ns;
	struct tw_ud_flow *next; /* of the handle */
};

struct tw_ud_line { /* cold thread, after open */
	bool used;
	bool reopen; /* the device went, or its GID is another: close when no flow is left */
	struct tw_fabric_line conf;
	struct tw_verbs_need need;
	struct tw_verbs_device device;
	struct ibv_pd *pd;
	struct tw_counters counters; /* TW_SET_verbs_line: the caller's, or `own` */
	_Atomic uint64_t own[TW_N_verbs_line_counters];
	char text[TW_UD_TEXT_BYTES]; /* as at open; const after it */
};

struct tw_ud {            /* the common part of a handle */
	const char *what; /* "receive", "send": for errors */
	struct tw_ud_line lines[TW_FABRIC_MAX_LINES];
	struct tw_ud_flow *flows;
	uint8_t tos, ttl; /* const after open */
	struct rdma_event_channel *channel;
	int wake_fd; /* eventfd: the cold thread is to look at once */
	int heal_fd; /* eventfd: a flow is HOT again, or is wanted back: the hot thread is to poll */
	pthread_t thread;
	bool started;
	_Atomic bool stopping;
	void (*line_closing)(struct tw_ud *ud,
			     unsigned int line); /* no flow is left; may be NULL */
	void (*sample)(struct tw_ud *ud);        /* every 100 ms on the cold thread; may be NULL */
	pthread_mutex_t note_lock;               /* cold on both sides */
	uint32_t note_head, note_tail;           /* free-running */
	struct tw_error notes[TW_UD_NOTES];
};

/* Opens the lines that `groups` (by line, how many are to be joined) names. */
int tw_ud_init(struct tw_ud *ud, const char *what, const struct tw_fabric_conf *conf,
	       const uint32_t groups[TW_FABRIC_MAX_LINES], struct tw_error *err) TW_MUST_USE;
/* Joins and builds; the flow is then HOT and belongs to the handle until tw_ud_fini(). */
int tw_ud_add(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err) TW_MUST_USE;
/* Starts the cold thread. */
int tw_ud_start(struct tw_ud *ud, struct tw_error *err) TW_MUST_USE;
/* Ends the cold thread, takes every flow apart, closes everything.  A half-made one is fine. */
void tw_ud_fini(struct tw_ud *ud);

/* The common part of a receiver or a sender of this transport, for tests that break it. */
struct tw_ud *tw_ud_of_rx(struct tw_rx *rx);
struct tw_ud *tw_ud_of_tx(struct tw_tx *tx);

/* Takes the oldest text about what broke or healed. */
bool tw_ud_note(struct tw_ud *ud, struct tw_error *out);
void tw_ud_say(struct tw_ud *ud, const struct tw_error *what);

/* Hot thread: is the flow mine?  Gives it up where the cold thread asks for it. */
bool tw_ud_wanted(struct tw_ud_flow *flow, uint32_t state) TW_COLD;
static inline bool tw_ud_mine(struct tw_ud_flow *flow)
{
	/* VB2: pairs with VB1, VB5 */
	const uint32_t state = atomic_load_explicit(&flow->state, memory_order_acquire);
	return __builtin_expect(state == TW_UD_HOT, 1) || tw_ud_wanted(flow, state);
}
/* Hot thread: gives up a flow that is broken. */
void tw_ud_give_up(struct tw_ud_flow *flow) TW_COLD;

/* Joining (join.c).  Both wait for the event for a bounded time and deal with any other on the way. */
int tw_ud_channel_open(struct tw_ud *ud, struct tw_error *err) TW_MUST_USE;
int tw_ud_join(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err) TW_MUST_USE;
void tw_ud_leave(struct tw_ud_flow *flow);
/* Takes and acknowledges every event that is there. */
void tw_ud_cm_events(struct tw_ud *ud);

/* Asks for a flow, because of an event (heal.c). */
void tw_ud_recall(struct tw_ud *ud, struct tw_ud_flow *flow, bool rejoin);
void tw_ud_recall_line(struct tw_ud *ud, unsigned int line, bool rejoin);

/* Queue pairs (qp.c). */
/* To INIT, RTR and RTS, with the group's Q_Key. */
int tw_ud_qp_up(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err) TW_MUST_USE;
/* Attaches to the group. */
int tw_ud_attach(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err) TW_MUST_USE;
/* Everything still posted comes back with an error. */
void tw_ud_qp_flush(struct tw_ud_flow *flow);
int tw_ud_fail(struct tw_ud *ud, const struct tw_ud_flow *flow, int cause, const char *call,
	       struct tw_error *err);

#endif
