/* Membership of groups through rdma_cm; see ud.h.
 *
 * What for   rdma_cm knows the Q_Key, has IGMP (or the subnet manager) told, and reports when a
 *            membership is lost.  The queue pairs are our own, on our own context: rdma_cm shares
 *            its contexts between all of a process, and their events with them.
 * Route      none is needed: the id is bound to the line's address, and so to its interface.
 * Events     every event is taken, copied and acknowledged at once, before anything is done about
 *            it: leaving waits for acknowledgements. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/udp/udp.h"
#include "fabric/verbs/ud.h"

#define JOIN_NS 5000000000ull /* a subnet manager answers within that, or it is down */

int tw_ud_channel_open(struct tw_ud *ud, struct tw_error *err)
{
	ud->channel = rdma_create_event_channel();
	if (ud->channel == NULL) {
		return tw_fail_sys(err, TW_ESYS,
				   "verbs: rdma_create_event_channel (is the module rdma_ucm "
				   "loaded, and may this user open /dev/infiniband/rdma_cm?)");
	}
	const int flags = fcntl(ud->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(ud->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
		return tw_fail_sys(err, TW_ESYS, "verbs: rdma_cm: fcntl O_NONBLOCK");
	}
	return TW_OK;
}

/* What an event means; it has been acknowledged. */
static void take_event(struct tw_ud *ud, struct tw_ud_flow *flow, const struct rdma_cm_event *event)
{
	struct tw_ud_line *line = &ud->lines[flow->line];

	tw_counter_add(&line->counters, TW_VERBS_LINE_cm_events, 1);
	switch (event->event) {
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		if (flow->join == TW_UD_JOINING) {
			flow->ah = event->param.ud.ah_attr;
			flow->remote_qpn = event->param.ud.qp_num;
			flow->remote_qkey = event->param.ud.qkey;
			flow->join = TW_UD_JOINED;
		}
		break;
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		tw_counter_add(&line->counters, TW_VERBS_LINE_multicast_errors, 1);
		flow->join_status = event->status;
		if (flow->join == TW_UD_JOINING) {
			flow->join = TW_UD_JOIN_FAILED;
		} else {
			tw_ud_recall(ud, flow, true);
		}
		break;
	case RDMA_CM_EVENT_ADDR_CHANGE:
		tw_ud_recall(ud, flow, true);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		tw_counter_add(&line->counters, TW_VERBS_LINE_device_errors, 1);
		line->reopen = true;
		tw_ud_recall_line(ud, flow->line, true);
		break;
	default: /* of connections, which these ids have none of */
		break;
	}
}

void tw_ud_cm_events(struct tw_ud *ud)
{
	struct rdma_cm_event *event;
	while (rdma_get_cm_event(ud->channel, &event) == 0) {
		const struct rdma_cm_event copy = *event;
		struct tw_ud_flow *flow = event->id->context;
		(void)rdma_ack_cm_event(event);
		take_event(ud, flow, &copy);
	}
}

/* The interface may leave the choice of the RoCE version to a default, and that to an operator. */
static int check_version(struct tw_ud *ud, const struct tw_ud_flow *flow, struct tw_error *err)
{
	const struct tw_verbs_facts *facts = &ud->lines[flow->line].device.facts;
	uint8_t mapped[16] = { [10] = 0xff, [11] = 0xff };
	const uint32_t be = htonl(flow->group);
	memcpy(mapped + 12, &be, sizeof(be));
	if (facts->link != TW_VERBS_LINK_ETHERNET ||
	    memcmp(flow->ah.grh.dgid.raw, mapped, sizeof(mapped)) == 0) {
		return TW_OK;
	}
	return tw_fail(err, TW_ECONFIG,
		       "%s " TW_IPV4_FMT " on %s (line %c): rdma_cm joins as RoCE v1 there: write "
		       "'RoCE v2' to /sys/kernel/config/rdma_cm/%s/ports/%u/default_roce_mode",
		       ud->what, TW_IPV4_ARGS(flow->group), facts->device, 'a' + flow->line,
		       facts->device, facts->port);
}

static struct sockaddr_in address_of(const struct tw_ud_flow *flow)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(flow->group) };
}

/* Starts a join; 0, or the cause. */
static int start(struct tw_ud_flow *flow, bool send_only)
{
	struct sockaddr_in to = address_of(flow);
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
					: RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = (struct sockaddr *)&to,
	};
	flow->join = TW_UD_JOINING;
	flow->join_status = 0;
	if (rdma_join_multicast_ex(flow->id, &attr, flow) != 0) {
		flow->join = TW_UD_LEFT;
		return errno;
	}
	return 0;
}

/* Waits until the join has been decided.  0, or the cause. */
static int decided(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	const uint64_t until_ns = tw_mono_ns() + JOIN_NS;
	for (;;) {
		tw_ud_cm_events(ud);
		if (flow->join == TW_UD_JOINED) {
			return 0;
		}
		const uint64_t now_ns = tw_mono_ns();
		if (flow->join == TW_UD_JOIN_FAILED || now_ns >= until_ns) {
			break;
		}
		struct pollfd fd = { .fd = ud->channel->fd, .events = POLLIN };
		(void)poll(&fd, 1, (int)((until_ns - now_ns) / 1000000u) + 1);
	}
	if (flow->join != TW_UD_JOIN_FAILED) {
		return ETIMEDOUT;
	}
	return flow->join_status < 0 ? -flow->join_status : flow->join_status;
}

static int bind_id(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	const struct tw_ud_line *line = &ud->lines[flow->line];
	struct sockaddr_in from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(line->conf.address) };
	if (rdma_create_id(ud->channel, &flow->id, flow, RDMA_PS_UDP) != 0) {
		flow->id = NULL;
		return tw_ud_fail(ud, flow, errno, "rdma_create_id", err);
	}
	if (rdma_bind_addr(flow->id, (struct sockaddr *)&from) != 0) {
		return tw_ud_fail(ud, flow, errno, "rdma_bind_addr", err);
	}
	if (flow->id->verbs == NULL ||
	    strcmp(ibv_get_device_name(flow->id->verbs->device), line->device.facts.device) != 0) {
		return tw_fail(err, TW_ECONFIG,
			       "%s " TW_IPV4_FMT " (line %c): rdma_cm takes " TW_IPV4_FMT
			       " for %s, its GID is %s's: two devices with one address",
			       ud->what, TW_IPV4_ARGS(flow->group), 'a' + flow->line,
			       TW_IPV4_ARGS(line->conf.address),
			       flow->id->verbs == NULL
				       ? "none of its devices"
				       : ibv_get_device_name(flow->id->verbs->device),
			       line->device.facts.device);
	}
	return TW_OK;
}

int tw_ud_join(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	int rc = bind_id(ud, flow, err);
	if (rc != TW_OK) {
		goto undo_id;
	}
	int cause = start(flow, !flow->receives);
	cause = cause != 0 ? cause : decided(ud, flow);
	if (cause != 0 && cause != ETIMEDOUT && !flow->receives) {
		/* an older subnet manager, or kernel: it costs what others send to the group */
		tw_ud_leave(flow);
		rc = bind_id(ud, flow, err);
		if (rc != TW_OK) {
			goto undo_id;
		}
		flow->fallback = true;
		cause = start(flow, false);
		cause = cause != 0 ? cause : decided(ud, flow);
	}
	if (cause != 0) {
		rc = tw_ud_fail(ud, flow, cause, "rdma_join_multicast_ex", err);
		goto undo_id;
	}
	rc = check_version(ud, flow, err);
	if (rc == TW_OK) {
		return rc;
	}
undo_id:
	tw_ud_leave(flow);
	return rc;
}

void tw_ud_leave(struct tw_ud_flow *flow)
{
	if (flow->id != NULL) {
		if (flow->join != TW_UD_LEFT) {
			/* destroying the id leaves too, but librdmacm 44 then keeps the memory */
			struct sockaddr_in from = address_of(flow);
			(void)rdma_leave_multicast(flow->id, (struct sockaddr *)&from);
		}
		(void)rdma_destroy_id(flow->id); /* drops events not yet taken */
		flow->id = NULL;
	}
	flow->join = TW_UD_LEFT;
}
