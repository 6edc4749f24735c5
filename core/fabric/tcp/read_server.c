/* The server of repair over TCP: opening, accepting, and whose turn it is.  What it promises:
 * fabric/reader.h; one connection: read_server_client.c.
 *
 * Turns     rounds over the connections that have something to do, one step each, beginning behind the
 *           one that was answered last: when bytes are short nobody gets them twice in a row.
 * Live first  this thread shares nothing with a hot thread but memory that it reads.  Where it has no CPU of
 *           its own it is a batch thread with a raised nice value, so that the scheduler prefers
 *           whoever sends or receives live data.
 * Ordering  RV1 pairs with RV2: `stop`; only its value counts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/fail.h"
#include "fabric/tcp/read_server_client.h"
#include "fabric/tcp/tcp.h"

#define WAKE_EVENT      UINT32_MAX
#define LISTEN_EVENT    (UINT32_MAX - 1)
#define EVENTS          64
#define ROUNDS          16u          /* before the kernel is asked what has happened since */
#define ACCEPT_AGAIN_NS 100000000ull /* after an accept that failed for want of something */
#define OUT_BYTES       (TW_RW_HEAD_BYTES + TW_READ_MAX_BYTES)

/* --- accepting --------------------------------------------------------------------------------- */

static struct tw_client *free_client(struct tw_tcp_read_server *server)
{
	for (uint32_t i = 0; i < server->client_count; i++) {
		if (server->clients[i].state == TW_CLIENT_NONE) {
			return &server->clients[i];
		}
	}
	return NULL;
}

static void listen_again(struct tw_tcp_read_server *server, bool on)
{
	struct epoll_event event = { .events = on ? EPOLLIN : 0u, .data.u32 = LISTEN_EVENT };
	if (on != server->listening &&
	    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event) == 0) {
		server->listening = on;
	}
}

/* Takes who waits, as long as there is room: the others wait in the kernel.  Returns when to try
 * again. */
static uint64_t accept_all(struct tw_tcp_read_server *server, uint64_t now_ns)
{
	for (;;) {
		struct tw_client *client = free_client(server);
		if (client == NULL) {
			listen_again(server, false);
			return UINT64_MAX; /* when one has ended */
		}
		uint32_t addr;
		uint16_t port;
		int fd = tw_tcp_accept(server->listen_fd, &addr, &port);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) {
			continue;
		}
		if (fd < 0 && errno == EAGAIN) {
			listen_again(server, true);
			return UINT64_MAX;
		}
		if (fd <
		    0) { /* descriptors or memory: without a pause epoll would report it for ever */
			listen_again(server, false);
			return now_ns + ACCEPT_AGAIN_NS;
		}
		tw_tcp_tune(fd, server->service.conf.tos, server->service.conf.priority);
		tw_client_begin(client, server, fd, addr, port, now_ns);
		client->next_ns = now_ns;
	}
}

/* --- the thread -------------------------------------------------------------------------------- */

static bool stopping(const struct tw_tcp_read_server *server)
{
	/* RV2: pairs with RV1 */
	return atomic_load_explicit(&server->stop, memory_order_acquire);
}

/* One step for everybody who has one; returns when the next round is due. */
static uint64_t round_of_turns(struct tw_tcp_read_server *server, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;
	uint32_t at = server->turn;
	for (uint32_t i = 0; i < server->client_count; i++) {
		struct tw_client *client = &server->clients[at];
		at = at + 1 == server->client_count ? 0 : at + 1;
		if (client->state == TW_CLIENT_NONE) {
			continue;
		}
		if (client->next_ns <= now_ns) {
			client->next_ns = tw_client_turn(client, server, now_ns);
		}
		next_ns = client->next_ns < next_ns ? client->next_ns : next_ns;
	}
	return next_ns;
}

static void woken(struct tw_tcp_read_server *server)
{
	uint64_t wakes;
	ssize_t unused = read(server->event_fd, &wakes, sizeof(wakes));
	(void)unused; /* non-blocking: there may be none */
	for (uint32_t i = 0; i < server->client_count; i++) {
		server->clients[i].next_ns = 0;
	}
}

/* Whether somebody knocks. */
static bool take_events(struct tw_tcp_read_server *server, const struct epoll_event *events, int n)
{
	bool knock = false;
	for (int i = 0; i < n; i++) {
		uint32_t which = events[i].data.u32;
		if (which == LISTEN_EVENT) {
			knock = true;
		} else if (which != WAKE_EVENT) {
			server->clients[which].next_ns = 0;
		} else { /* the end, or somebody is to be revoked */
			woken(server);
		}
	}
	return knock;
}

static void *server_thread(void *arg)
{
	struct tw_tcp_read_server *server = arg;
	struct epoll_event events[EVENTS];
	uint64_t accept_ns = UINT64_MAX;
	server->start_status =
		tw_read_server_stand_back(server->service.conf.cpu, &server->start_err);
	bool failed = server->start_status < 0;
	sem_post(&server->ready);
	while (!failed && !stopping(server)) {
		uint64_t now_ns = tw_mono_ns();
		uint32_t open_before = server->open_count;
		uint64_t next_ns = round_of_turns(server, now_ns);
		for (uint32_t i = 1; i < ROUNDS && next_ns <= now_ns; i++) {
			next_ns = round_of_turns(server, now_ns);
		}
		if (now_ns >= accept_ns ||
		    (server->open_count < open_before && !server->listening)) {
			accept_ns = accept_all(server, now_ns);
			next_ns = now_ns;
		}
		next_ns = accept_ns < next_ns ? accept_ns : next_ns;
		int n = epoll_wait(server->epoll_fd, events, EVENTS,
				   tw_tcp_wait_ms(now_ns, next_ns));
		if (take_events(server, events, n)) {
			accept_ns = accept_all(server, tw_mono_ns());
		}
	}
	return NULL;
}

/* --- open and close ---------------------------------------------------------------------------- */

static int allocate(struct tw_tcp_read_server *server, struct tw_error *err)
{
	const struct tw_read_server_conf *conf = &server->service.conf;
	server->client_count = conf->max_clients + TW_SERVER_EXTRA;
	server->clients = calloc(server->client_count, sizeof(server->clients[0]));
	size_t stride = OUT_BYTES + TW_SERVER_IN_BYTES;
	size_t bytes = server->client_count * stride;
	server->buffers = aligned_alloc(TW_CACHE_LINE_BYTES, bytes);
	if (server->clients == NULL || server->buffers == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair server: %zu bytes for %u connections", bytes,
			       server->client_count);
	}
	for (uint32_t i = 0; i < server->client_count; i++) {
		struct tw_client *client = &server->clients[i];
		client->fd = -1;
		client->index = i;
		client->party.place = TW_NO_PLACE;
		client->out = server->buffers + i * stride;
		client->in = client->out + OUT_BYTES;
	}
	return TW_OK;
}

static int watch(const struct tw_tcp_read_server *server, int fd, uint32_t which,
		 struct tw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = which };
	if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair server: epoll_ctl");
	}
	return TW_OK;
}

static int open_kernel(struct tw_tcp_read_server *server, struct tw_error *err)
{
	server->listen_fd = tw_tcp_socket();
	if (server->listen_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair server: socket");
	}
	int rc = tw_tcp_listen(server->listen_fd, server->service.conf.addr,
			       &server->service.conf.port, err);
	if (rc < 0) {
		return rc;
	}
	server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (server->epoll_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair server: epoll_create1");
	}
	server->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (server->event_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair server: eventfd");
	}
	rc = watch(server, server->event_fd, WAKE_EVENT, err);
	if (rc == TW_OK) {
		rc = watch(server, server->listen_fd, LISTEN_EVENT, err);
	}
	server->listening = rc == TW_OK;
	if (rc == TW_OK) {
		rc = tw_thread_start(&server->thread, "repair-server", server_thread, server, err);
		server->started = rc == TW_OK;
	}
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

static struct tw_tcp_read_server *tcp_of(struct tw_read_server *server)
{
	return (struct tw_tcp_read_server *)server;
}

static uint16_t port_of(const struct tw_read_server *server)
{
	return ((const struct tw_tcp_read_server *)server)->service.conf.port;
}

static void client_of(struct tw_read_server *server, uint32_t index,
		      struct tw_read_client_info *out)
{
	tw_read_service_client(&tcp_of(server)->service, index, out);
}

static void wake(const struct tw_tcp_read_server *server)
{
	uint64_t one = 1;
	ssize_t unused = write(server->event_fd, &one, sizeof(one));
	(void)unused; /* it can only say that the thread is woken already */
}

static void revoke_client(struct tw_read_server *server, uint32_t index)
{
	tw_read_service_revoke(&tcp_of(server)->service, index);
	wake(tcp_of(server));
}

static void close_fd(int fd)
{
	if (fd >= 0) {
		close(fd);
	}
}

static void close_server(struct tw_read_server *base)
{
	struct tw_tcp_read_server *server = tcp_of(base);
	if (server->started) {
		/* RV1: pairs with RV2 */
		atomic_store_explicit(&server->stop, true, memory_order_release);
		wake(server);
		pthread_join(server->thread, NULL);
		for (uint32_t i = 0; i < server->client_count; i++) {
			tw_client_end(&server->clients[i], server);
		}
	}
	close_fd(server->event_fd);
	close_fd(server->epoll_fd);
	close_fd(server->listen_fd);
	free(server->buffers);
	free(server->clients);
	sem_destroy(&server->ready);
	tw_read_service_fini(&server->service);
	free(server);
}

int tw_tcp_read_server_open(struct tw_read_server **server_p,
			    const struct tw_read_server_conf *conf, struct tw_error *err)
{
	static const struct tw_read_server_ops ops = {
		.port = port_of, .client = client_of, .revoke = revoke_client, .close = close_server
	};
	*server_p = NULL;
	struct tw_tcp_read_server *server = calloc(1, sizeof(*server));
	if (server == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair server: out of memory");
	}
	server->base.ops = &ops;
	server->listen_fd = server->epoll_fd = server->event_fd = -1;
	sem_init(&server->ready, 0, 0);
	int rc = tw_read_service_init(&server->service, conf, err);
	if (rc == TW_OK) {
		rc = allocate(server, err);
	}
	if (rc == TW_OK) {
		rc = open_kernel(server, err);
	}
	if (rc < 0) {
		close_server(&server->base);
		return rc;
	}
	*server_p = &server->base;
	return TW_OK;
}
