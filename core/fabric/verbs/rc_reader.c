/* The client of repair over RC: opening, closing, and the cold thread.  See rc_reader.h. */
#include "fabric/verbs/rc_reader.h"

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

#define EVENTS 4

/* --- the cold thread --------------------------------------------------------------------------- */

static bool stopping(const struct tw_rc_reader *reader)
{
	/* RC12: pairs with RC11 */
	return atomic_load_explicit(&reader->stop, memory_order_acquire);
}

static void take_cm_events(struct tw_rc_reader *reader, uint64_t now_ns)
{
	struct rdma_cm_event *event;
	while (rdma_get_cm_event(reader->events, &event) == 0) {
		struct rdma_cm_event copy = *event;
		/* before the id may be destroyed, which waits for it */
		(void)rdma_ack_cm_event(event);
		tw_rc_conn_event(copy.id->context, reader, copy.event, copy.status, now_ns);
	}
}

static void *cold_thread(void *arg)
{
	struct tw_rc_reader *reader = arg;
	struct epoll_event events[EVENTS];
	while (!stopping(reader)) {
		uint64_t now_ns = tw_mono_ns();
		uint64_t wake_ns = UINT64_MAX;
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			uint64_t at_ns = tw_rc_conn_turn(&reader->conns[i], reader, now_ns);
			wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
		}
		(void)epoll_wait(reader->epoll_fd, events, EVENTS, tw_tcp_wait_ms(now_ns, wake_ns));
		uint64_t wakes;
		ssize_t unused = read(reader->event_fd, &wakes, sizeof(wakes));
		(void)unused; /* non-blocking: there may be none */
		now_ns = tw_mono_ns();
		take_cm_events(reader, now_ns);
		for (uint32_t i = 0; i < TW_READER_MAX_SERVERS; i++) {
			tw_rc_device_events(&reader->devices[i], reader, now_ns);
		}
	}
	return NULL;
}

/* --- open and close ---------------------------------------------------------------------------- */

static void init_conn(struct tw_rc_reader *reader, uint32_t index, uint32_t *fifos,
		      struct tw_rc_login *logins)
{
	struct tw_rc_conn *conn = &reader->conns[index];
	conn->index = index;
	conn->login = &logins[index];
	conn->deadline_ns = UINT64_MAX;
	conn->counters = reader->conf.counters != NULL ? &reader->conf.counters[index] : NULL;
	conn->fifo = fifos + (size_t)index * reader->ring_capacity;
	tw_read_backoff_init(&conn->backoff, &reader->conf, (uint64_t)(uintptr_t)conn);
}

static int allocate(struct tw_rc_reader *reader, struct tw_error *err)
{
	const struct tw_reader_conf *conf = &reader->conf;
	size_t conn_bytes = conf->server_count * sizeof(struct tw_rc_conn);
	size_t slots = (size_t)conf->slots + conf->small_slots;
	size_t aux_bytes = slots * sizeof(struct tw_rc_aux);
	size_t login_bytes = conf->server_count * sizeof(struct tw_rc_login);
	reader->ring_capacity = 1;
	while (reader->ring_capacity < slots) {
		reader->ring_capacity *= 2;
	}
	reader->ops = calloc(slots, sizeof(reader->ops[0]));
	reader->conns = aligned_alloc(_Alignof(struct tw_rc_conn), conn_bytes);
	uint32_t *fifos =
		calloc((size_t)reader->ring_capacity * conf->server_count, sizeof(uint32_t));
	if (reader->conns == NULL || reader->ops == NULL || fifos == NULL) {
		free(reader->conns);
		free(fifos);
		reader->conns = NULL;
		return tw_fail(err, TW_ENOMEM, "repair over RC: calloc: %zu slots", slots);
	}
	memset(reader->conns, 0, conn_bytes);
	reader->conns[0].fifo = fifos; /* close frees it there */
	int rc = tw_read_slots_init(&reader->slots, conf, aux_bytes + login_bytes, err);
	if (rc < 0) {
		return rc;
	}
	uint8_t *extra = reader->slots.slab.base + reader->slots.extra_at;
	reader->aux = (void *)extra;
	for (uint32_t i = 0; i < conf->server_count; i++) {
		init_conn(reader, i, fifos, (void *)(extra + aux_bytes));
	}
	return TW_OK;
}

static int watch(const struct tw_rc_reader *reader, int fd, struct tw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN };
	if (epoll_ctl(reader->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: epoll_ctl");
	}
	return TW_OK;
}

static int open_kernel(struct tw_rc_reader *reader, struct tw_error *err)
{
	reader->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	reader->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (reader->epoll_fd < 0 || reader->event_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: epoll_create1, eventfd");
	}
	reader->events = rdma_create_event_channel();
	if (reader->events == NULL) {
		return tw_fail_sys(err,
				   errno == ENODEV || errno == ENOENT ? TW_EUNSUPPORTED : TW_ESYS,
				   "repair over RC: rdma_create_event_channel (module rdma_ucm)");
	}
	if (fcntl(reader->events->fd, F_SETFL, O_NONBLOCK) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: fcntl");
	}
	int rc = watch(reader, reader->event_fd, err);
	if (rc == TW_OK) {
		rc = watch(reader, reader->events->fd, err);
	}
	if (rc == TW_OK) {
		rc = tw_thread_start(&reader->thread, "repair-rc", cold_thread, reader, err);
		reader->started = rc == TW_OK;
	}
	return rc;
}

static uint32_t up(const struct tw_reader *base)
{
	const struct tw_rc_reader *reader = (const void *)base;
	/* relaxed: a hint; who posts to a server that has just gone down is told so */
	return atomic_load_explicit(&reader->up, memory_order_relaxed);
}

static void close_devices(struct tw_rc_reader *reader)
{
	for (uint32_t i = 0; i < TW_READER_MAX_SERVERS; i++) {
		tw_rc_device_release(&reader->devices[i]);
	}
}

static void close_reader(struct tw_reader *base)
{
	struct tw_rc_reader *reader = (void *)base;
	if (reader->started) {
		/* RC11: pairs with RC12 */
		atomic_store_explicit(&reader->stop, true, memory_order_release);
		uint64_t one = 1;
		ssize_t unused = write(reader->event_fd, &one, sizeof(one));
		(void)unused;
		pthread_join(reader->thread, NULL);
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			tw_rc_conn_close(&reader->conns[i], reader);
		}
	}
	close_devices(reader);
	if (reader->events != NULL) {
		rdma_destroy_event_channel(reader->events);
	}
	if (reader->event_fd >= 0) {
		close(reader->event_fd);
	}
	if (reader->epoll_fd >= 0) {
		close(reader->epoll_fd);
	}
	tw_read_slots_fini(&reader->slots);
	if (reader->conns != NULL) {
		free(reader->conns[0].fifo);
	}
	free(reader->conns);
	free(reader->ops);
	free(reader);
}

int tw_rc_reader_open(struct tw_reader **reader_p, const struct tw_reader_conf *conf,
		      struct tw_error *err)
{
	static const struct tw_reader_ops ops = { .post = tw_rc_hot_post,
						  .poll = tw_rc_hot_poll,
						  .release = tw_rc_hot_release,
						  .up = up,
						  .close = close_reader };
	*reader_p = NULL;
	int rc = tw_reader_conf_check(conf, err);
	if (rc < 0) {
		return rc;
	}
	struct tw_rc_reader *reader = aligned_alloc(_Alignof(struct tw_rc_reader), sizeof(*reader));
	if (reader == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair over RC: out of memory");
	}
	memset(reader, 0, sizeof(*reader));
	reader->base.ops = &ops;
	reader->epoll_fd = reader->event_fd = -1;
	reader->conf = *conf;
	memcpy(reader->servers, conf->servers, conf->server_count * sizeof(conf->servers[0]));
	reader->conf.servers = reader->servers;
	rc = allocate(reader, err);
	if (rc == TW_OK) {
		rc = open_kernel(reader, err);
	}
	if (rc < 0) {
		close_reader(&reader->base);
		return rc;
	}
	*reader_p = &reader->base;
	return TW_OK;
}
