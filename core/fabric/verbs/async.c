/* Taking the asynchronous events of a device's context; see async.h. */
#include "fabric/verbs/async.h"

#include <fcntl.h>
#include <string.h>

#include "base/fail.h"

int tw_verbs_again(struct ibv_context **context_p, struct ibv_context *of, struct tw_error *err)
{
	struct ibv_context *context = ibv_open_device(of->device);
	*context_p = NULL;
	if (context == NULL) {
		return tw_fail_sys(err, TW_ESYS, "%s: ibv_open_device",
				   ibv_get_device_name(of->device));
	}
	int rc = tw_verbs_listen(context, err);
	if (rc < 0) {
		(void)ibv_close_device(context);
		return rc;
	}
	*context_p = context;
	return TW_OK;
}

int tw_verbs_listen(struct ibv_context *context, struct tw_error *err)
{
	const int flags = fcntl(context->async_fd, F_GETFL);
	if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: fcntl O_NONBLOCK",
				   ibv_get_device_name(context->device));
	}
	return TW_OK;
}

static enum tw_trouble trouble_of(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_DEVICE_FATAL:
		return TW_TROUBLE_DEVICE;
	case IBV_EVENT_PORT_ERR:
		return TW_TROUBLE_PORT_DOWN;
	case IBV_EVENT_PORT_ACTIVE:
		return TW_TROUBLE_PORT_UP;
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_SM_CHANGE:
		return TW_TROUBLE_SUBNET;
	case IBV_EVENT_GID_CHANGE:
		return TW_TROUBLE_GID;
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
		return TW_TROUBLE_ADDRESS;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		return TW_TROUBLE_QUEUE;
	default:
		return TW_TROUBLE_NONE;
	}
}

bool tw_verbs_take_event(struct ibv_context *context, struct tw_verbs_event *out)
{
	struct ibv_async_event event;
	if (ibv_get_async_event(context, &event) != 0) {
		return false;
	}
	*out = (struct tw_verbs_event){ .trouble = trouble_of(event.event_type) };
	if (event.event_type == IBV_EVENT_CQ_ERR) {
		out->cq = event.element.cq;
	} else if (event.event_type == IBV_EVENT_SRQ_ERR) {
		out->srq = event.element.srq;
	} else if (out->trouble == TW_TROUBLE_QUEUE) {
		out->qp = event.element.qp;
	} else if (out->trouble >= TW_TROUBLE_PORT_DOWN) {
		out->port = (uint8_t)event.element.port_num;
	}
	ibv_ack_async_event(&event);
	return true;
}

bool tw_verbs_is_about(const struct tw_verbs_event *event, const struct ibv_qp *qp)
{
	if (event->trouble != TW_TROUBLE_QUEUE || qp == NULL) {
		return false;
	}
	if (event->cq != NULL) {
		return event->cq == qp->recv_cq || event->cq == qp->send_cq;
	}
	return event->srq != NULL ? event->srq == qp->srq : event->qp == qp;
}

bool tw_verbs_gid_holds(struct ibv_context *context, const struct tw_verbs_place *place)
{
	union ibv_gid gid;
	return ibv_query_gid(context, place->port, place->index, &gid) == 0 &&
	       memcmp(gid.raw, place->gid, sizeof(place->gid)) == 0;
}
