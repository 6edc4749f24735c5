/* UD queue pairs on a group; see ud.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/udp/udp.h"
#include "fabric/verbs/ud.h"

int tw_ud_fail(struct tw_ud *ud, const struct tw_ud_flow *flow, int cause, const char *call,
	       struct tw_error *err)
{
	const struct tw_ud_line *line = &ud->lines[flow->line];
	errno = cause;
	return tw_fail_sys(err, cause == ENOMEM ? TW_ENOMEM : TW_ESYS,
			   "%s " TW_IPV4_FMT " on %s (line %c): %s", ud->what,
			   TW_IPV4_ARGS(flow->group), line->device.facts.device, 'a' + flow->line,
			   call);
}

int tw_ud_qp_up(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	const struct tw_verbs_facts *facts = &ud->lines[flow->line].device.facts;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .pkey_index = facts->pkey_index,
				    .port_num = facts->port,
				    .qkey = flow->remote_qkey };
	int cause = ibv_modify_qp(flow->qp, &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	if (cause != 0) {
		return tw_ud_fail(ud, flow, cause, "ibv_modify_qp to INIT", err);
	}
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR };
	cause = ibv_modify_qp(flow->qp, &attr, IBV_QP_STATE);
	if (cause != 0) {
		return tw_ud_fail(ud, flow, cause, "ibv_modify_qp to RTR", err);
	}
	/* any start does: UD has no sequence to keep, but a rebuilt sender should not look the same */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .sq_psn = (uint32_t)tw_mono_ns() & 0xffffffu };
	cause = ibv_modify_qp(flow->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return cause == 0 ? TW_OK : tw_ud_fail(ud, flow, cause, "ibv_modify_qp to RTS", err);
}

int tw_ud_attach(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	const struct tw_verbs_facts *facts = &ud->lines[flow->line].device.facts;
	const int cause = ibv_attach_mcast(flow->qp, &flow->ah.grh.dgid, flow->ah.dlid);
	if (cause == 0) {
		return TW_OK;
	}
	if (cause == ENOMEM || cause == ENOSPC || cause == EBUSY) {
		/* a device at its limit says no more than that */
		errno = cause;
		return tw_fail_sys(err, TW_EFULL,
				   "%s " TW_IPV4_FMT " on %s (line %c): ibv_attach_mcast: the "
				   "device takes at most %u queue pairs on one group "
				   "(max_mcast_qp_attach), %u groups (max_mcast_grp): fewer "
				   "subscribers on this host, or one tw-relay for all of them",
				   ud->what, TW_IPV4_ARGS(flow->group), facts->device,
				   'a' + flow->line, facts->max_mcast_qp_attach,
				   facts->max_mcast_grp);
	}
	return tw_ud_fail(ud, flow, cause, "ibv_attach_mcast", err);
}

void tw_ud_qp_flush(struct tw_ud_flow *flow)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	/* a device that is gone refuses, and then nothing comes back: the drain has a limit */
	(void)ibv_modify_qp(flow->qp, &attr, IBV_QP_STATE);
}
