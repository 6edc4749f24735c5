/* A connection to one RC repair server as the cold thread sees it.  See rc_reader.h.
 *
 * Life      DOWN, ADDRESS, ROUTE, CONNECTING, LOGIN, UP; whatever is wrong leads over CLOSING and GONE, where the hot
 *           thread has to be waited for, back to DOWN.  Then it waits (struct tw_read_backoff): the first read that is
 *           answered makes the wait short again; a login alone does not.
 * Ends      are counted once, by cause; nothing of a connection outlives its end: queue pair,
 *           completion queue and id are destroyed in this order and made anew. */
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/verbs/rc_reader.h"

#define LOGIN_LOOK_NS 1000000u /* between looks for the answer to a login */
#define HANDS_LOOK_NS 5000000u /* between looks whether the hot thread has let go */
#define RESOLVE_MS    2000
#define SEND_WRS      (TW_RC_DEPTH_MAX + TW_RC_CHAIN_MAX + TW_RC_CREDITS)
#define RECV_WRS      TW_RC_CREDITS
#define LOGIN_SENT    0u
#define LOGIN_REPLY   1u

static void count(const struct tw_rc_conn *conn, unsigned int counter)
{
	tw_reader_count(conn->counters, counter, 1);
}

static void set_up(struct tw_rc_conn *conn, struct tw_rc_reader *reader, bool up)
{
	/* relaxed: only this thread writes it, and nothing is ordered by it */
	uint32_t mask = atomic_load_explicit(&reader->up, memory_order_relaxed);
	mask = up ? mask | 1u << conn->index : mask & ~(1u << conn->index);
	atomic_store_explicit(&reader->up, mask, memory_order_relaxed);
	if (conn->counters != NULL) {
		tw_counter_set(conn->counters, TW_READER_up, up);
	}
}

/* --- devices ----------------------------------------------------------------------------------- */

void tw_rc_device_release(struct tw_rc_device *device)
{
	if (device->mr != NULL) {
		(void)ibv_dereg_mr(device->mr);
	}
	if (device->pd != NULL) {
		(void)ibv_dealloc_pd(device->pd);
	}
	if (device->context != NULL) {
		(void)ibv_close_device(device->context); /* its descriptor leaves the epoll set */
	}
	*device = (struct tw_rc_device){ 0 };
}

static void leave_device(struct tw_rc_conn *conn)
{
	struct tw_rc_device *device = conn->device;
	conn->device = NULL;
	conn->place = (struct tw_verbs_place){ 0 };
	if (device != NULL && --device->users == 0 && device->removed) {
		tw_rc_device_release(device);
	}
}

/* The slab is registered once for each device, however often a connection is made anew. */
static bool open_device(struct tw_rc_device *device, struct tw_rc_reader *reader,
			struct ibv_context *of)
{
	const struct tw_slab *slab = &reader->slots.slab;
	struct epoll_event readable = { .events = EPOLLIN };
	struct ibv_device_attr attr;
	if (tw_verbs_again(&device->context, of, NULL) < 0) {
		return false;
	}
	if (ibv_query_device(device->context, &attr) == 0) {
		device->initiator =
			attr.max_qp_init_rd_atom > 0 ? (uint32_t)attr.max_qp_init_rd_atom : 0;
		device->pd = ibv_alloc_pd(device->context);
	}
	device->mr = device->pd == NULL ? NULL
					: ibv_reg_mr(device->pd, slab->base, slab->size_bytes,
						     IBV_ACCESS_LOCAL_WRITE);
	if (device->mr == NULL ||
	    epoll_ctl(reader->epoll_fd, EPOLL_CTL_ADD, device->context->async_fd, &readable) != 0) {
		tw_rc_device_release(device);
		return false;
	}
	return true;
}

static bool join_device(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	struct tw_rc_device *unused = NULL;
	for (uint32_t i = 0; i < TW_READER_MAX_SERVERS; i++) {
		struct tw_rc_device *device = &reader->devices[i];
		if (device->context != NULL && !device->removed &&
		    device->context->device == conn->id->verbs->device) {
			device->users++;
			conn->device = device;
			return true;
		}
		unused = device->context == NULL ? device : unused;
	}
	if (unused == NULL || !open_device(unused, reader, conn->id->verbs)) {
		return false;
	}
	unused->users = 1;
	conn->device = unused;
	return true;
}

/* --- ending ------------------------------------------------------------------------------------ */

/* Nobody else looks at it: what was outstanding goes with the queue pair. */
static void destroy(struct tw_rc_conn *conn)
{
	if (conn->qp != NULL) {
		tw_rc_qp_break(conn->qp);
		(void)rdma_disconnect(conn->id); /* the other side may have */
		(void)ibv_destroy_qp(conn->qp);
		conn->qp = NULL;
	}
	if (conn->cq != NULL) {
		(void)ibv_destroy_cq(conn->cq);
		conn->cq = NULL;
	}
	leave_device(conn);
	if (conn->id != NULL) {
		(void)rdma_destroy_id(conn->id);
		conn->id = NULL;
	}
}

static void down(struct tw_rc_conn *conn, uint64_t now_ns)
{
	/* relaxed: the hot thread has let go of it */
	atomic_store_explicit(&conn->failed, false, memory_order_relaxed);
	atomic_store_explicit(&conn->dead, false, memory_order_relaxed);
	if (atomic_exchange_explicit(&conn->good, false, memory_order_relaxed)) {
		tw_read_backoff_reset(&conn->backoff);
	}
	conn->state = TW_RC_DOWN;
	conn->deadline_ns = UINT64_MAX;
	conn->retry_at_ns = tw_read_backoff_fail(&conn->backoff, now_ns);
}

static bool is_held(const struct tw_rc_conn *conn)
{
	/* RC10: pairs with RC9 */
	return atomic_load_explicit(&conn->busy, memory_order_acquire);
}

static bool has_failed(const struct tw_rc_conn *conn)
{
	/* RC6: pairs with RC5 */
	return atomic_load_explicit(&conn->failed, memory_order_acquire);
}

static void bury(struct tw_rc_conn *conn)
{
	destroy(conn);
	/* RC7: pairs with RC8 */
	atomic_store_explicit(&conn->dead, true, memory_order_release);
	conn->state = TW_RC_GONE;
}

static void count_why(const struct tw_rc_conn *conn, enum tw_rc_why why)
{
	static const unsigned int counters[] = {
		[TW_RC_WHY_TIMEOUT] = TW_READER_timeouts,
		[TW_RC_WHY_STUCK] = TW_READER_stuck,
		[TW_RC_WHY_SILENT] = TW_READER_silent,
		[TW_RC_WHY_NOT_READY] = TW_READER_not_ready,
		[TW_RC_WHY_ACCESS] = TW_READER_access_errors,
		[TW_RC_WHY_MALFORMED] = TW_READER_malformed,
		[TW_RC_WHY_HUNG_UP] = TW_READER_hung_up,
		[TW_RC_WHY_LIFE] = TW_READER_lives_over,
		[TW_RC_WHY_DEVICE] = TW_READER_device_lost,
		[TW_RC_WHY_QUEUES] = TW_READER_queue_errors,
		[TW_RC_WHY_ADDRESS] = TW_READER_address_lost,
	};
	count(conn, TW_READER_failures);
	if (why != TW_RC_WHY_FAILED) {
		count(conn, counters[why]);
	}
}

static void fail(struct tw_rc_conn *conn, struct tw_rc_reader *reader, enum tw_rc_why why,
		 uint64_t now_ns)
{
	bool shared = conn->state == TW_RC_UP;
	if (conn->state == TW_RC_DOWN || conn->state == TW_RC_CLOSING ||
	    conn->state == TW_RC_GONE) {
		return; /* on its way already */
	}
	if (why == TW_RC_WHY_DEVICE && conn->device != NULL) {
		conn->device->removed = true;
	}
	count_why(conn, why);
	set_up(conn, reader, false);
	atomic_store_explicit(&conn->usable, false, memory_order_relaxed);
	/* RC4: pairs with RC3 */
	atomic_thread_fence(memory_order_seq_cst);
	if (!shared || !is_held(conn)) {
		destroy(conn);
		down(conn, now_ns);
	} else if (has_failed(conn)) {
		bury(conn);
	} else {
		tw_rc_qp_break(conn->qp); /* the hot thread sees what is flushed */
		conn->state = TW_RC_CLOSING;
	}
}

/* --- connecting -------------------------------------------------------------------------------- */

static bool start(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint64_t now_ns)
{
	const struct tw_reader_server *server = &reader->servers[conn->index];
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(server->port),
				   .sin_addr.s_addr = htonl(server->addr) };
	count(conn, TW_READER_connects);
	conn->state = TW_RC_ADDRESS;
	conn->deadline_ns = now_ns + reader->conf.connect_timeout_ns;
	return tw_rc_id_make(&conn->id, reader->events, conn, reader->conf.tos, NULL) == TW_OK &&
	       rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&sin, RESOLVE_MS) == 0;
}

static bool make_queues(struct tw_rc_conn *conn)
{
	/* half as much again as can be outstanding */
	conn->cq =
		ibv_create_cq(conn->device->context, (SEND_WRS + RECV_WRS) * 3 / 2, NULL, NULL, 0);
	if (conn->cq == NULL) {
		return false;
	}
	struct ibv_qp_init_attr init = { .send_cq = conn->cq,
					 .recv_cq = conn->cq,
					 .cap = { .max_send_wr = SEND_WRS,
						  .max_recv_wr = RECV_WRS,
						  .max_send_sge = 1,
						  .max_recv_sge = 2 },
					 .qp_type = IBV_QPT_RC };
	conn->qp = ibv_create_qp(conn->device->pd, &init);
	return conn->qp != NULL;
}

static bool request_connection(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	struct tw_rc_hello_head hello;
	if (!join_device(conn, reader) || !make_queues(conn) ||
	    tw_rc_qp_init(conn->id, conn->qp, IBV_ACCESS_REMOTE_WRITE, NULL) < 0) {
		return false;
	}
	tw_rc_put_hello(&hello, 0);
	conn->state = TW_RC_CONNECTING;
	struct rdma_conn_param param = {
		.private_data = &hello,
		.private_data_len = sizeof(hello),
		.initiator_depth = (uint8_t)tw_rc_depth(conn->device->initiator, TW_RC_DEPTH_MAX),
		.retry_count = TW_RC_READER_RETRIES,
		.rnr_retry_count = TW_RC_RNR_RETRIES,
		.qp_num = conn->qp->qp_num,
	};
	return rdma_connect(conn->id, &param) == 0;
}

static bool post_login(struct tw_rc_conn *conn, const struct tw_rc_reader *reader)
{
	struct ibv_sge into = { .addr = (uintptr_t)conn->login->reply,
				.length = sizeof(conn->login->reply),
				.lkey = conn->lkey };
	struct ibv_sge from = { .addr = (uintptr_t)conn->login->request,
				.length = sizeof(conn->login->request),
				.lkey = conn->lkey };
	struct ibv_recv_wr recv = { .wr_id = LOGIN_REPLY, .sg_list = &into, .num_sge = 1 };
	struct ibv_send_wr send = { .wr_id = LOGIN_SENT,
				    .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	tw_rw_put_login((struct tw_rw_login_head *)(void *)conn->login->request,
			reader->conf.environment, reader->conf.name);
	conn->login_sent = conn->login_answered = false;
	return ibv_post_recv(conn->qp, &recv, &bad_recv) == 0 &&
	       ibv_post_send(conn->qp, &send, &bad_send) == 0;
}

static bool connected(struct tw_rc_conn *conn, const struct tw_rc_reader *reader)
{
	struct tw_rc_qp_conf conf = {
		.tos = reader->conf.tos,
		.ack_timeout = tw_rc_ack_timeout(reader->conf.idle_timeout_ns),
		.retries = TW_RC_READER_RETRIES,
		.initiator = conn->device->initiator,
	};
	if (tw_rc_qp_ready(conn->id, conn->qp, &conf, NULL) < 0 || rdma_establish(conn->id) != 0) {
		return false;
	}
	conn->place = conf.place;
	conn->depth = conf.initiator;
	conn->lkey = conn->device->mr->lkey;
	conn->state = TW_RC_LOGIN;
	return post_login(conn, reader);
}

/* --- login ------------------------------------------------------------------------------------- */

static void logged_in(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	for (uint32_t i = 0; i < conn->grant_count; i++) {
		/* devices that cannot READ have it served */
		conn->grants[i].one_sided &= conn->depth != 0;
	}
	conn->state = TW_RC_UP;
	conn->deadline_ns = UINT64_MAX;
	/* RC1: pairs with RC2 */
	atomic_store_explicit(&conn->usable, true, memory_order_release);
	set_up(conn, reader, true);
	count(conn, TW_READER_logins);
}

static void judge_login(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint64_t now_ns)
{
	enum tw_rw_login result;
	if (tw_rc_parse_login_reply(conn->login->reply, conn->login_bytes, reader->conf.environment,
				    &result, conn->grants,
				    &conn->grant_count) != TW_RW_WELL_FORMED) {
		fail(conn, reader, TW_RC_WHY_MALFORMED, now_ns);
	} else if (result != TW_LOGIN_OK) {
		count(conn, TW_READER_logins_refused);
		tw_read_backoff_longest(&conn->backoff);
		fail(conn, reader, TW_RC_WHY_FAILED, now_ns);
	} else {
		logged_in(conn, reader);
	}
}

static void look_for_login(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint64_t now_ns)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(conn->cq, 1, &wc)) > 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			fail(conn, reader, tw_rc_why_of(wc.status), now_ns);
			return;
		}
		if (wc.wr_id == LOGIN_REPLY) {
			conn->login_answered = true;
			conn->login_bytes = wc.byte_len;
		} else {
			conn->login_sent = true;
		}
	}
	if (n < 0) {
		fail(conn, reader, TW_RC_WHY_FAILED, now_ns);
	} else if (conn->login_sent && conn->login_answered) {
		judge_login(conn, reader, now_ns);
	}
}

/* --- events and turns -------------------------------------------------------------------------- */

void tw_rc_conn_event(struct tw_rc_conn *conn, struct tw_rc_reader *reader,
		      enum rdma_cm_event_type event, int status, uint64_t now_ns)
{
	bool well = true;
	switch (event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		conn->state = TW_RC_ROUTE;
		well = rdma_resolve_route(conn->id, RESOLVE_MS) == 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		well = request_connection(conn, reader);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		well = status == 0 && connected(conn, reader);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		fail(conn, reader, TW_RC_WHY_HUNG_UP, now_ns);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		fail(conn, reader, TW_RC_WHY_DEVICE, now_ns);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
		well = false;
		break;
	default: /* time-wait, address change: nothing hangs on them */
		break;
	}
	if (!well) {
		fail(conn, reader, TW_RC_WHY_FAILED, now_ns);
	}
}

/* What an event of its device means for a connection.  It lives through a port that is down: what is sent
 * meanwhile is sent again, and is given up as silent where the port stays away. */
static void device_event(struct tw_rc_conn *conn, struct tw_rc_reader *reader,
			 const struct tw_verbs_event *event, uint64_t now_ns)
{
	if (event->trouble == TW_TROUBLE_DEVICE) {
		fail(conn, reader, TW_RC_WHY_DEVICE, now_ns);
	} else if (tw_verbs_is_about(event, conn->qp)) {
		fail(conn, reader, TW_RC_WHY_QUEUES, now_ns);
	} else if (event->port == 0 || event->port != conn->place.port) {
		return;
	} else if (event->trouble == TW_TROUBLE_PORT_DOWN) {
		count(conn, TW_READER_port_downs);
	} else if (event->trouble == TW_TROUBLE_ADDRESS ||
		   (event->trouble == TW_TROUBLE_GID &&
		    !tw_verbs_gid_holds(conn->device->context, &conn->place))) {
		fail(conn, reader, TW_RC_WHY_ADDRESS, now_ns);
	}
}

void tw_rc_device_events(struct tw_rc_device *device, struct tw_rc_reader *reader, uint64_t now_ns)
{
	struct tw_verbs_event event;
	/* who was the last to use a device that has failed closes it */
	while (device->context != NULL && tw_verbs_take_event(device->context, &event)) {
		device->removed |= event.trouble == TW_TROUBLE_DEVICE;
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			if (reader->conns[i].device == device) {
				count(&reader->conns[i], TW_READER_async_events);
				device_event(&reader->conns[i], reader, &event, now_ns);
			}
		}
		if (device->removed && device->users == 0) {
			tw_rc_device_release(device);
		}
	}
}

uint64_t tw_rc_conn_turn(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint64_t now_ns)
{
	if (conn->state == TW_RC_DOWN && now_ns >= conn->retry_at_ns &&
	    !start(conn, reader, now_ns)) {
		fail(conn, reader, TW_RC_WHY_FAILED, now_ns);
	}
	if (conn->state == TW_RC_LOGIN) {
		look_for_login(conn, reader, now_ns);
	}
	if (now_ns >= conn->deadline_ns) {
		fail(conn, reader, TW_RC_WHY_TIMEOUT, now_ns);
	}
	if (conn->state == TW_RC_UP && has_failed(conn)) {
		fail(conn, reader, conn->why, now_ns);
	}
	if (conn->state == TW_RC_CLOSING && has_failed(conn)) {
		bury(conn);
	}
	if ((conn->state == TW_RC_CLOSING || conn->state == TW_RC_GONE) && !is_held(conn)) {
		destroy(conn);
		down(conn, now_ns);
	}
	switch (conn->state) {
	case TW_RC_DOWN:
		return conn->retry_at_ns;
	case TW_RC_LOGIN:
		return now_ns + LOGIN_LOOK_NS;
	case TW_RC_CLOSING:
	case TW_RC_GONE:
		return now_ns + HANDS_LOOK_NS;
	case TW_RC_ADDRESS:
	case TW_RC_ROUTE:
	case TW_RC_CONNECTING:
	case TW_RC_UP:
		break;
	}
	return conn->deadline_ns;
}

void tw_rc_conn_close(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	destroy(conn);
	set_up(conn, reader, false);
	conn->state = TW_RC_DOWN;
}
