/* Queue pairs of repair over RC: the same steps at both ends.
 *
 * Ours      queue pairs are made and moved by us and not by rdma_cm, which would leave remote write, read and
 *           atomics on between accepting and any change of that: here the access flags are from the
 *           first state on what they are to be.  A server's are 0, and REMOTE_READ alone is what
 *           tw_rc_qp_open_memory() gives.  A client's are REMOTE_WRITE, so that a WRITE of no bytes is
 *           acknowledged; it registers no memory that could be written.
 * Class     the traffic class is set in the address vector at both ends, and by option for what the connection
 *           manager sends.
 * Threads   any one at a time per queue pair. */
#ifndef TW_FABRIC_VERBS_RC_QP_H
#define TW_FABRIC_VERBS_RC_QP_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/verbs/async.h"
#include "tidewire/error.h"

#define TW_RC_RNR_RETRIES 6u  /* 7 would be for ever */
#define TW_RC_RNR_TIMER   16u /* 2.56 ms */

struct tw_rc_qp_conf {
	uint8_t tos;
	uint8_t ack_timeout; /* as in tw_rc_ack_timeout() */
	uint8_t retries;
	uint32_t initiator, responder; /* most READs that this end posts, and answers */
	struct tw_verbs_place place;   /* set by tw_rc_qp_ready(): the GID that it sends from */
};

/* rdma_create_id(RDMA_PS_TCP) and its class. */
int tw_rc_id_make(struct rdma_cm_id **id_p, struct rdma_event_channel *events, void *context,
		  uint8_t tos, struct tw_error *err) TW_MUST_USE;
/* To INIT. */
int tw_rc_qp_init(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned int access,
		  struct tw_error *err) TW_MUST_USE;
/* To RTR and RTS.  Lowers initiator and responder to what the other end offers. */
int tw_rc_qp_ready(struct rdma_cm_id *id, struct ibv_qp *qp, struct tw_rc_qp_conf *conf,
		   struct tw_error *err) TW_MUST_USE;
/* REMOTE_READ and nothing else; or nothing at all. */
int tw_rc_qp_open_memory(struct ibv_qp *qp, bool open, struct tw_error *err) TW_MUST_USE;
/* To ERR: what is outstanding is flushed. */
void tw_rc_qp_break(struct ibv_qp *qp);

#endif
