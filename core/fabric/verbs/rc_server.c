/* The server of repair over RC: its thread, connection events, completions.  What it promises: fabric/reader.h;
 * one client: rc_server_client.c; what belongs to the device: rc_memory.c.
 *
 * One-sided  a client that has logged in READs histories without this thread, or any other of the process,
 *            taking part.  What is left for it is logins, reads by number, and looking now and then whether a
 *            history has begun a new life.
 * Turns      as over TCP: rounds over the clients, beginning behind the one that was answered last.
 * Ordering   RV3 pairs with RV4: `stop`; only its value counts. */
#include "fabric/verbs/rc_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/fail.h"
#include "fabric/tcp/tcp.h"

#define EVENTS      16
#define COMPLETIONS 16
#define LIVES_NS    20000000ull   /* between looks for a new life */
#define REOPEN_NS   1000000000ull /* between tries to find a device again */

/* --- completions ------------------------------------------------------------------------------- */

static struct tw_rc_client *client_of_qp(const struct tw_rc_set *set, uint32_t qp_num)
{
	struct tw_rc_server *server = set->server;
	for (uint32_t i = 0; i < server->client_count; i++) {
		struct tw_rc_client *client = &server->clients[i];
		if (client->set == set && client->qp != NULL && client->qp->qp_num == qp_num) {
			return client;
		}
	}
	return NULL; /* of one that is gone */
}

static void take_completion(struct tw_rc_set *set, const struct ibv_wc *wc)
{
	bool well = wc->status == IBV_WC_SUCCESS;
	struct tw_rc_client *client = client_of_qp(set, wc->qp_num);
	if ((wc->wr_id & TW_RC_SENT) != 0) {
		if (client != NULL && client->sending) {
			tw_rc_client_sent(client, set->server, well);
		}
		return;
	}
	if ((wc->wr_id & TW_RC_PROBE) != 0) {
		if (client != NULL) {
			tw_rc_client_probed(client, well);
		}
		return;
	}
	uint32_t buffer = (uint32_t)wc->wr_id;
	if (client != NULL && well) {
		tw_rc_client_asks(client, buffer, wc->byte_len);
		return;
	}
	tw_rc_set_receive(set, buffer);
	if (client != NULL) {
		tw_rc_client_breaks(client);
	}
}

void tw_rc_set_drain(struct tw_rc_set *set)
{
	struct ibv_wc wcs[COMPLETIONS];
	int n;
	do {
		n = ibv_poll_cq(set->cq, COMPLETIONS, wcs);
		for (int i = 0; i < n; i++) {
			take_completion(set, &wcs[i]);
		}
	} while (n == COMPLETIONS);
}

static void take_completions(struct tw_rc_set *set)
{
	struct ibv_cq *cq;
	void *context;
	while (ibv_get_cq_event(set->completions, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
	}
	(void)ibv_req_notify_cq(set->cq, 0); /* before the last look */
	tw_rc_set_drain(set);
}

/* --- connection events ------------------------------------------------------------------------- */

static void take_cm_event(struct tw_rc_server *server, const struct rdma_cm_event *event,
			  uint64_t now_ns)
{
	struct tw_rc_client *client = event->id->context;
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		tw_rc_client_begin(server, event->id, &event->param.conn, now_ns);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		server->removed = true;
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_DISCONNECTED:
		if (client != NULL) {
			tw_rc_client_leave(client, server, now_ns);
		}
		break;
	default: /* established, time-wait, address change: nothing hangs on them */
		break;
	}
}

/* An event has to be given back before its id may be destroyed: what it holds is copied first. */
static void take_cm_events(struct tw_rc_server *server, uint64_t now_ns)
{
	struct rdma_cm_event *event;
	while (rdma_get_cm_event(server->events, &event) == 0) {
		uint8_t hello[TW_RC_HELLO_BYTES];
		struct rdma_cm_event copy = *event;
		uint8_t len = copy.param.conn.private_data_len;
		bool request = copy.event == RDMA_CM_EVENT_CONNECT_REQUEST;
		copy.param.conn.private_data = NULL;
		if (request && event->param.conn.private_data != NULL && len >= sizeof(hello)) {
			memcpy(hello, event->param.conn.private_data, sizeof(hello));
			copy.param.conn.private_data = hello;
			copy.param.conn.private_data_len = sizeof(hello);
		}
		if (request) {
			copy.id->context = NULL; /* it has the listener's */
		}
		(void)rdma_ack_cm_event(event);
		take_cm_event(server, &copy, now_ns);
	}
}

/* --- lives and the device ---------------------------------------------------------------------- */

static void for_all(struct tw_rc_server *server, const struct tw_rc_set *set, uint64_t now_ns)
{
	for (uint32_t i = 0; i < server->client_count; i++) {
		if (set == NULL || server->clients[i].set == set) {
			tw_rc_client_leave(&server->clients[i], server, now_ns);
		}
	}
}

/* Whoever can read a life's memory goes before it is registered for another. */
static void look_at_lives(struct tw_rc_server *server, uint64_t now_ns)
{
	bool look = now_ns >= server->lives_ns;
	for (uint32_t i = 0; i < server->set_count; i++) {
		struct tw_rc_set *set = &server->sets[i];
		if (look && !set->renewing && tw_rc_set_has_new_life(set)) {
			set->renewing = true;
			for_all(server, set, now_ns);
		}
		if (set->renewing && set->client_count == 0 && tw_rc_set_renew(set, NULL) < 0) {
			server->removed =
				true; /* nothing can be had from it: begin from the start */
		} else if (set->client_count == 0) {
			set->renewing = false;
		}
	}
	if (look) {
		server->lives_ns = now_ns + LIVES_NS;
	}
}

static void look_at_device(struct tw_rc_server *server, uint64_t now_ns)
{
	if (server->removed) {
		tw_read_service_count(&server->service, TW_READ_SERVER_device_lost);
		for (uint32_t i = 0; i < server->client_count; i++) {
			tw_rc_client_destroy(&server->clients[i], server);
		}
		tw_rc_device_close(server);
		server->reopen_ns = now_ns + REOPEN_NS;
	} else if (server->listen_id == NULL && now_ns >= server->reopen_ns &&
		   tw_rc_device_open(server, NULL) < 0) {
		server->reopen_ns = now_ns + REOPEN_NS;
	}
}

/* --- the thread -------------------------------------------------------------------------------- */

static bool stopping(const struct tw_rc_server *server)
{
	/* RV4: pairs with RV3 */
	return atomic_load_explicit(&server->stop, memory_order_acquire);
}

static uint64_t round_of_turns(struct tw_rc_server *server, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	uint32_t at = server->turn;
	for (uint32_t i = 0; i < server->client_count; i++) {
		struct tw_rc_client *client = &server->clients[at];
		at = at + 1 == server->client_count ? 0 : at + 1;
		if (client->state == TW_RC_CLIENT_NONE) {
			continue;
		}
		if (client->next_ns <= now_ns) {
			client->next_ns = tw_rc_client_turn(client, server, now_ns);
		}
		next_ns = client->next_ns < next_ns ? client->next_ns : next_ns;
	}
	return next_ns;
}

static void woken(struct tw_rc_server *server)
{
	uint64_t wakes;
	ssize_t unused = read(server->event_fd, &wakes, sizeof(wakes));
	(void)unused; /* non-blocking: there may be none */
	for (uint32_t i = 0; i < server->client_count; i++) {
		server->clients[i].next_ns = 0;
	}
}

static void take_events(struct tw_rc_server *server, const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++) {
		uint32_t which = events[i].data.u32;
		if (which == TW_RC_WAKE_EVENT) {
			woken(server);
		} else if (which == TW_RC_CM_EVENT) {
			take_cm_events(server, tw_mono_ns());
		} else if (which == TW_RC_ASYNC_EVENT) {
			tw_rc_server_events(server);
		} else if (server->sets[which].cq != NULL) {
			take_completions(&server->sets[which]);
		}
	}
}

static void *server_thread(void *arg)
{
	struct tw_rc_server *server = arg;
	struct epoll_event events[EVENTS];
	server->start_status =
		tw_read_server_stand_back(server->service.conf.cpu, &server->start_err);
	bool failed = server->start_status < 0;
	sem_post(&server->ready);
	while (!failed && !stopping(server)) {
		uint64_t now_ns = tw_mono_ns();
		look_at_device(server, now_ns);
		uint64_t next_ns = UINT64_MAX;
		if (server->listen_id != NULL) {
			next_ns = round_of_turns(server, now_ns);
			look_at_lives(server, now_ns);
		}
		uint64_t look_ns = server->listen_id == NULL ? server->reopen_ns : server->lives_ns;
		next_ns = look_ns < next_ns ? look_ns : next_ns;
		int n = epoll_wait(server->epoll_fd, events, EVENTS,
				   tw_tcp_wait_ms(now_ns, next_ns));
		take_events(server, events, n);
	}
	return NULL;
}

int tw_rc_server_watch(const struct tw_rc_server *server, int fd, uint32_t which,
		       struct tw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = which };
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: epoll_ctl");
	}
	return TW_OK;
}

/* --- open and close ---------------------------------------------------------------------------- */

/* Sorts the channels into sets by their readers. */
static int make_sets(struct tw_rc_server *server, struct tw_error *err)
{
	const struct tw_read_server_conf *conf = &server->service.conf;
	server->sets = calloc(conf->channel_count, sizeof(server->sets[0]));
	server->memories = calloc(conf->channel_count, sizeof(server->memories[0]));
	if (server->sets == NULL || server->memories == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair over RC: calloc: %u channels",
			       conf->channel_count);
	}
	uint32_t placed = 0;
	for (uint32_t i = 0; i < conf->channel_count; i++) {
		uint32_t readers = conf->channels[i].readers;
		bool seen = false;
		for (uint32_t s = 0; s < server->set_count; s++) {
			seen |= server->sets[s].readers == readers;
		}
		if (seen) {
			continue;
		}
		struct tw_rc_set *set = &server->sets[server->set_count++];
		set->server = server;
		set->readers = readers;
		set->memories = &server->memories[placed];
		for (uint32_t j = i; j < conf->channel_count; j++) {
			if (conf->channels[j].readers == readers) {
				server->memories[placed++].channel = &conf->channels[j];
				set->memory_count++;
			}
		}
	}
	return TW_OK;
}

static int check_channels(const struct tw_read_server_conf *conf, struct tw_error *err)
{
	if (conf->channel_count > TW_RC_CHANNELS_MAX) {
		return tw_fail(err, TW_EARG, "repair over RC: %u channels: at most %u",
			       conf->channel_count, TW_RC_CHANNELS_MAX);
	}
	for (uint32_t i = 0; i < conf->channel_count; i++) {
		const struct tw_read_server_channel *channel = &conf->channels[i];
		if (channel->memory != NULL &&
		    ((uintptr_t)channel->memory % TW_RW_UNIT_BYTES != 0 ||
		     channel->memory_bytes < UINT64_C(2) * TW_RW_UNIT_BYTES)) {
			return tw_fail(
				err, TW_EARG,
				"repair over RC: channel %u: history: not a control line and "
				"a log",
				channel->channel);
		}
	}
	return TW_OK;
}

static int allocate(struct tw_rc_server *server, struct tw_error *err)
{
	const struct tw_read_server_conf *conf = &server->service.conf;
	int rc = check_channels(conf, err);
	if (rc == TW_OK) {
		rc = make_sets(server, err);
	}
	if (rc < 0) {
		return rc;
	}
	server->client_count = conf->max_clients + TW_SERVER_EXTRA;
	server->clients = calloc(server->client_count, sizeof(server->clients[0]));
	if (server->clients == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair over RC: calloc: %u clients",
			       server->client_count);
	}
	server->set_buffers = server->client_count * TW_RC_CREDITS;
	size_t in_bytes = (size_t)server->set_buffers * TW_RW_HEAD_BYTES;
	size_t out_bytes = (size_t)TW_RC_OUTS * TW_RC_OUT_BYTES;
	rc = tw_slab_init(&server->slab, out_bytes + in_bytes * server->set_count, err);
	if (rc < 0) {
		return rc;
	}
	for (uint32_t i = 0; i < server->set_count; i++) {
		server->sets[i].in = server->slab.base + out_bytes + i * in_bytes;
	}
	for (uint32_t i = 0; i < TW_RC_OUTS; i++) {
		server->free_outs[server->free_out_count++] = i;
	}
	for (uint32_t i = 0; i < server->client_count; i++) {
		server->clients[i].index = i;
		server->clients[i].party.place = TW_NO_PLACE;
	}
	return TW_OK;
}

static int open_kernel(struct tw_rc_server *server, struct tw_error *err)
{
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	server->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (server->epoll_fd < 0 || server->event_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: epoll_create1, eventfd");
	}
	server->events = rdma_create_event_channel();
	if (server->events == NULL) {
		return tw_fail_sys(err, errno == ENODEV || errno == ENOENT ? TW_ENOTFOUND : TW_ESYS,
				   "repair over RC: rdma_create_event_channel");
	}
	if (fcntl(server->events->fd, F_SETFL, O_NONBLOCK) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: fcntl");
	}
	int rc = tw_rc_server_watch(server, server->event_fd, TW_RC_WAKE_EVENT, err);
	if (rc == TW_OK) {
		rc = tw_rc_server_watch(server, server->events->fd, TW_RC_CM_EVENT, err);
	}
	return rc;
}

static int start(struct tw_rc_server *server, struct tw_error *err)
{
	int rc = tw_thread_start(&server->thread, "repair-rc", server_thread, server, err);
	server->started = rc == TW_OK;
	if (rc == TW_OK) {
		while (sem_wait(&server->ready) != 0) {
			/* a signal */
		}
		rc = server->start_status;
		if (rc < 0 && err != NULL) {
			*err = server->start_err;
		}
	}
	return rc;
}

static struct tw_rc_server *rc_of(struct tw_read_server *server)
{
	return (struct tw_rc_server *)server;
}

static uint16_t port_of(const struct tw_read_server *server)
{
	return ((const struct tw_rc_server *)server)->service.conf.port;
}

static void info_of(struct tw_read_server *server, uint32_t index, struct tw_read_client_info *out)
{
	tw_read_service_client(&rc_of(server)->service, index, out);
}

static void wake(const struct tw_rc_server *server)
{
	uint64_t one = 1;
	ssize_t unused = write(server->event_fd, &one, sizeof(one));
	(void)unused; /* it can only say that the thread is woken already */
}

static void revoke_client(struct tw_read_server *server, uint32_t index)
{
	tw_read_service_revoke(&rc_of(server)->service, index);
	wake(rc_of(server));
}

static void close_server(struct tw_read_server *base)
{
	struct tw_rc_server *server = rc_of(base);
	if (server->started) {
		/* RV3: pairs with RV4 */
		atomic_store_explicit(&server->stop, true, memory_order_release);
		wake(server);
		pthread_join(server->thread, NULL);
	}
	for (uint32_t i = 0; i < server->client_count; i++) {
		tw_rc_client_leave(&server->clients[i], server, 0);
		tw_rc_client_destroy(&server->clients[i], server);
	}
	tw_rc_device_close(server);
	if (server->events != NULL) {
		rdma_destroy_event_channel(server->events);
	}
	if (server->event_fd >= 0) {
		close(server->event_fd);
	}
	if (server->epoll_fd >= 0) {
		close(server->epoll_fd);
	}
	tw_slab_fini(&server->slab);
	free(server->clients);
	free(server->memories);
	free(server->sets);
	sem_destroy(&server->ready);
	tw_read_service_fini(&server->service);
	free(server);
}

int tw_rc_read_server_open(struct tw_read_server **server_p, const struct tw_read_server_conf *conf,
			   struct tw_error *err)
{
	static const struct tw_read_server_ops ops = {
		.port = port_of, .client = info_of, .revoke = revoke_client, .close = close_server
	};
	*server_p = NULL;
	struct tw_rc_server *server = calloc(1, sizeof(*server));
	if (server == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair over RC: out of memory");
	}
	server->base.ops = &ops;
	server->epoll_fd = server->event_fd = -1;
	sem_init(&server->ready, 0, 0);
	int rc = tw_read_service_init(&server->service, conf, err);
	if (rc == TW_OK) {
		rc = allocate(server, err);
	}
	if (rc == TW_OK) {
		rc = open_kernel(server, err);
	}
	if (rc == TW_OK) {
		rc = tw_rc_device_open(server, err);
	}
	if (rc == TW_OK) {
		rc = start(server, err);
	}
	if (rc < 0) {
		close_server(&server->base);
		return rc;
	}
	*server_p = &server->base;
	return TW_OK;
}
