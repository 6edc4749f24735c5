/* Queue pairs of repair over RC: see rc_qp.h.
 *
 * rdma_init_qp_attr() gives what the connection manager knows (path, MTU, packet sequence numbers, the other
 * end's depths); the rest is decided here. */
#include "fabric/verbs/rc_qp.h"

#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/verbs/rc_plan.h"

int tw_rc_id_make(struct rdma_cm_id **id_p, struct rdma_event_channel *events, void *context,
		  uint8_t tos, struct tw_error *err)
{
	struct rdma_cm_id *id = NULL;
	*id_p = NULL;
	if (rdma_create_id(events, &id, context, RDMA_PS_TCP) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: rdma_create_id");
	}
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) != 0) {
		int rc = tw_fail_sys(err, TW_ESYS, "repair over RC: rdma_set_option: ToS %u", tos);
		(void)rdma_destroy_id(id);
		return rc;
	}
	*id_p = id;
	return TW_OK;
}

/* ibv_modify_qp() returns the error number. */
static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, const char *state,
		  struct tw_error *err)
{
	int rc = ibv_modify_qp(qp, attr, mask);
	if (rc != 0) {
		errno = rc;
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_modify_qp: %s", state);
	}
	return TW_OK;
}

static int cm_attr(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr,
		   int *mask, struct tw_error *err)
{
	*attr = (struct ibv_qp_attr){ .qp_state = state };
	if (rdma_init_qp_attr(id, attr, mask) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: rdma_init_qp_attr: state %d",
				   (int)state);
	}
	return TW_OK;
}

int tw_rc_qp_init(struct rdma_cm_id *id, struct ibv_qp *qp, unsigned int access,
		  struct tw_error *err)
{
	struct ibv_qp_attr attr;
	int mask;
	int rc = cm_attr(id, IBV_QPS_INIT, &attr, &mask, err);
	if (rc == TW_OK) {
		attr.qp_access_flags = access;
		rc = modify(qp, &attr, mask, "INIT", err);
	}
	return rc;
}

/* Where it cannot be asked for, none: the next change of a GID then ends the connection. */
static struct tw_verbs_place place_of(const struct ibv_qp *qp, const struct ibv_ah_attr *ah)
{
	struct tw_verbs_place place = { .port = ah->port_num, .index = ah->grh.sgid_index };
	union ibv_gid gid;
	if (ibv_query_gid(qp->context, place.port, place.index, &gid) == 0) {
		memcpy(place.gid, gid.raw, sizeof(place.gid));
	}
	return place;
}

int tw_rc_qp_ready(struct rdma_cm_id *id, struct ibv_qp *qp, struct tw_rc_qp_conf *conf,
		   struct tw_error *err)
{
	struct ibv_qp_attr attr;
	int mask;
	int rc = cm_attr(id, IBV_QPS_RTR, &attr, &mask, err);
	if (rc < 0) {
		return rc;
	}
	conf->place = place_of(qp, &attr.ah_attr);
	attr.ah_attr.grh.traffic_class = conf->tos;
	attr.min_rnr_timer = TW_RC_RNR_TIMER;
	conf->responder = tw_rc_depth(conf->responder, attr.max_dest_rd_atomic);
	attr.max_dest_rd_atomic = (uint8_t)conf->responder;
	rc = modify(qp, &attr, mask, "RTR", err);
	if (rc == TW_OK) {
		rc = cm_attr(id, IBV_QPS_RTS, &attr, &mask, err);
	}
	if (rc < 0) {
		return rc;
	}
	attr.timeout = conf->ack_timeout;
	attr.retry_cnt = conf->retries;
	attr.rnr_retry = TW_RC_RNR_RETRIES;
	conf->initiator = tw_rc_depth(conf->initiator, attr.max_rd_atomic);
	attr.max_rd_atomic = (uint8_t)conf->initiator;
	return modify(qp, &attr, mask, "RTS", err);
}

int tw_rc_qp_open_memory(struct ibv_qp *qp, bool open, struct tw_error *err)
{
	struct ibv_qp_attr attr = { .qp_access_flags = open ? IBV_ACCESS_REMOTE_READ : 0 };
	return modify(qp, &attr, IBV_QP_ACCESS_FLAGS, "access", err);
}

void tw_rc_qp_break(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	(void)ibv_modify_qp(qp, &attr, IBV_QP_STATE); /* it is there, or was already */
}
