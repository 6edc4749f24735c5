/* The asynchronous events of a device's context: one way of taking them, whoever uses the context.
 *
 * Whose     a context has one stream of events and so one reader: it must be the reader's own, as
 *           tw_verbs_open() and tw_verbs_again() give them.  librdmacm's are shared by all of a process.
 * Given back  an event is acknowledged before anything is done about it, because destroying a queue
 *           waits for that.  What it names is compared, and is there only as long as it has not been
 *           destroyed: by the thread that takes the events.
 * Threads   one that is not hot. */
#ifndef TW_FABRIC_VERBS_ASYNC_H
#define TW_FABRIC_VERBS_ASYNC_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "tidewire/error.h"

enum tw_trouble {
	TW_TROUBLE_NONE = 0, /* of connections that we do not have, limits, migration */
	TW_TROUBLE_DEVICE,   /* nothing of the context can be used any more */
	TW_TROUBLE_PORT_DOWN,
	TW_TROUBLE_PORT_UP,
	TW_TROUBLE_SUBNET, /* InfiniBand: its manager is another, or has forgotten us */
	TW_TROUBLE_GID,    /* the port's GIDs are others: perhaps not ours */
	TW_TROUBLE_ADDRESS, /* its LID or partition keys are others: paths made before are worth nothing */
	TW_TROUBLE_QUEUE /* a queue pair, completion queue or shared receive queue is at fault */
};

struct tw_verbs_event {
	enum tw_trouble trouble;
	uint8_t port; /* PORT_DOWN to ADDRESS */
	/* QUEUE: which of them, where it is one; never dereferenced */
	const struct ibv_qp *qp;
	const struct ibv_cq *cq;
	const struct ibv_srq *srq;
};

/* Another context of the same device, for this caller alone. */
int tw_verbs_again(struct ibv_context **context_p, struct ibv_context *of,
		   struct tw_error *err) TW_MUST_USE;
/* From then on taking an event never waits. */
int tw_verbs_listen(struct ibv_context *context, struct tw_error *err) TW_MUST_USE;
/* Takes one and acknowledges it.  False: there is none. */
bool tw_verbs_take_event(struct ibv_context *context, struct tw_verbs_event *event);
/* Whether it is about this queue pair, by itself or by one of its queues; NULL is none. */
bool tw_verbs_is_about(const struct tw_verbs_event *event, const struct ibv_qp *qp);

/* A GID by its place in a port's table. */
struct tw_verbs_place {
	uint8_t port;
	uint8_t index;
	uint8_t gid[16];
};
/* Whether it is still there. */
bool tw_verbs_gid_holds(struct ibv_context *context, const struct tw_verbs_place *place);

#endif
