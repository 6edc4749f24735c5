/* The client of repair over TCP: rings, slots and the thread.  What it promises: fabric/reader.h.
 *
 * Threads   the hot thread owns the list of free slots; a slot belongs to the reader's thread from
 *           post until poll.  Rings carry numbers; what a slot holds is ordered by them (SP1, SP2).
 * Calling   the reader's thread takes posts when it is called: one write(2) to an eventfd, which it cannot
 *           miss.  Each call costs system calls and a change of threads at both ends, much more than a
 *           read does; so between two of them is a pause, and what is posted meanwhile goes out with
 *           the next one, as a NIC moderates its interrupts.  The pause is an eighth of gather_ns after a
 *           quiet time and doubles up to it while reads keep coming: a lone read goes at once, a few soon.
 * Ordering  RD3 pairs with RD4: `stop`; only its value counts. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "fabric/tcp/reader_conn.h"
#include "fabric/tcp/tcp.h"

#define WAKE_EVENT UINT32_MAX
#define EVENTS     (TW_READER_MAX_SERVERS + 1)

/* --- hot thread -------------------------------------------------------------------------------- */

static TW_COLD void wake(const struct tw_tcp_reader *reader)
{
	uint64_t one = 1;
	ssize_t unused = write(reader->event_fd, &one, sizeof(one));
	(void)unused; /* it can only say that the thread is woken already */
}

/* Calls the reader's thread, unless it is too early: then the next poll tries again. */
static void call(struct tw_tcp_reader *reader, uint64_t now_ns)
{
	uint64_t since_ns = now_ns - reader->called_ns, longest_ns = reader->conf.gather_ns;
	reader->gathered = since_ns < reader->pause_ns;
	if (reader->gathered) {
		return;
	}
	uint64_t pause_ns = since_ns < 2 * longest_ns ? 2 * reader->pause_ns : 0;
	pause_ns = pause_ns < longest_ns ? pause_ns : longest_ns;
	reader->pause_ns = pause_ns > longest_ns / 8 ? pause_ns : longest_ns / 8;
	reader->called_ns = now_ns;
	wake(reader);
}

static struct tw_tcp_reader *tcp_of(struct tw_reader *reader)
{
	return (void *)reader;
}

static bool post(struct tw_reader *base, const struct tw_read *read)
{
	struct tw_tcp_reader *reader = tcp_of(base);
	uint32_t slot;
	if (!tw_read_slots_take(&reader->slots, read, &slot)) {
		return false;
	}
	TW_ASSERT(tw_spsc_push(&reader->posts, &slot));
	call(reader, reader->slots.slots[slot].posted_ns);
	return true;
}

static bool poll_end(struct tw_reader *base, struct tw_read_done *done)
{
	struct tw_tcp_reader *reader = tcp_of(base);
	struct tw_reader_end end;
	if (reader->gathered) {
		call(reader, tw_mono_ns());
	}
	if (!tw_spsc_pop(&reader->ends, &end)) {
		return false;
	}
	tw_read_slots_done(&reader->slots, end.slot, end.status, end.len_bytes, done);
	return true;
}

static void release(struct tw_reader *base, const struct tw_read_done *done)
{
	tw_read_slots_give(&tcp_of(base)->slots, done);
}

static uint32_t up(const struct tw_reader *base)
{
	const struct tw_tcp_reader *reader = (const void *)base;
	/* relaxed: a hint; who posts to a server that has just gone down is told so */
	return atomic_load_explicit(&reader->up, memory_order_relaxed);
}

/* --- the thread -------------------------------------------------------------------------------- */

static bool stopping(const struct tw_tcp_reader *reader)
{
	/* RD4: pairs with RD3 */
	return atomic_load_explicit(&reader->stop, memory_order_acquire);
}

static void take_posts(struct tw_tcp_reader *reader, uint64_t now_ns)
{
	uint32_t slot;
	while (tw_spsc_pop(&reader->posts, &slot)) {
		tw_conn_take(&reader->conns[reader->slots.slots[slot].read.server], reader, slot,
			     now_ns);
	}
}

/* Whether it was called. */
static bool take_events(struct tw_tcp_reader *reader, const struct epoll_event *events, int n,
			uint64_t now_ns)
{
	bool called = false;
	for (int i = 0; i < n; i++) {
		uint32_t which = events[i].data.u32;
		if (which == WAKE_EVENT) {
			uint64_t wakes;
			ssize_t unused = read(reader->event_fd, &wakes, sizeof(wakes));
			(void)unused; /* non-blocking: there may be none */
			called = true;
			continue;
		}
		tw_conn_events(&reader->conns[which], reader, events[i].events, now_ns);
	}
	return called;
}

static void *reader_thread(void *arg)
{
	struct tw_tcp_reader *reader = arg;
	struct epoll_event events[EVENTS];
	reader->start_status = tw_cpu_pin(reader->conf.cpu, &reader->start_err);
	bool failed = reader->start_status < 0, called = false;
	sem_post(&reader->ready);
	while (!failed && !stopping(reader)) {
		uint64_t now_ns = tw_mono_ns();
		uint64_t wake_ns = UINT64_MAX;
		if (called) {
			take_posts(reader, now_ns);
		}
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			uint64_t at_ns = tw_conn_turn(&reader->conns[i], reader, now_ns);
			wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
		}
		int n = epoll_wait(reader->epoll_fd, events, EVENTS,
				   tw_tcp_wait_ms(now_ns, wake_ns));
		called = take_events(reader, events, n, tw_mono_ns());
	}
	return NULL;
}

/* --- open and close ---------------------------------------------------------------------------- */

static int allocate(struct tw_tcp_reader *reader, struct tw_error *err)
{
	const struct tw_reader_conf *conf = &reader->conf;
	reader->ring_capacity = 1;
	while (reader->ring_capacity < conf->slots + conf->small_slots) {
		reader->ring_capacity *= 2;
	}
	uint32_t capacity = reader->ring_capacity;
	reader->post_memory = calloc(capacity, sizeof(uint32_t));
	reader->end_memory = calloc(capacity, sizeof(struct tw_reader_end));
	uint32_t *fifos = calloc((size_t)capacity * conf->server_count, sizeof(uint32_t));
	reader->conns[0].fifo = fifos; /* close frees it there */
	if (reader->post_memory == NULL || reader->end_memory == NULL || fifos == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair reader: calloc: %u slots", conf->slots);
	}
	int rc = tw_read_slots_init(&reader->slots, conf, 0, err);
	if (rc < 0) {
		return rc;
	}
	tw_spsc_init(&reader->posts, reader->post_memory, capacity, sizeof(uint32_t));
	tw_spsc_init(&reader->ends, reader->end_memory, capacity, sizeof(struct tw_reader_end));
	for (uint32_t i = 0; i < conf->server_count; i++) {
		tw_conn_init(&reader->conns[i], reader, i, fifos + (size_t)i * capacity);
	}
	return TW_OK;
}

static int open_kernel(struct tw_tcp_reader *reader, struct tw_error *err)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = WAKE_EVENT };
	reader->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (reader->epoll_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair reader: epoll_create1");
	}
	reader->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (reader->event_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "repair reader: eventfd");
	}
	if (epoll_ctl(reader->epoll_fd, EPOLL_CTL_ADD, reader->event_fd, &event) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair reader: epoll_ctl");
	}
	int rc = tw_thread_start(&reader->thread, "repair-reader", reader_thread, reader, err);
	reader->started = rc == TW_OK;
	if (rc == TW_OK) {
		while (sem_wait(&reader->ready) != 0) {
			/* a signal */
		}
		rc = reader->start_status;
		if (rc < 0 && err != NULL) {
			*err = reader->start_err;
		}
	}
	return rc;
}

static void close_reader(struct tw_reader *base)
{
	struct tw_tcp_reader *reader = tcp_of(base);
	if (reader->started) {
		/* RD3: pairs with RD4 */
		atomic_store_explicit(&reader->stop, true, memory_order_release);
		wake(reader);
		pthread_join(reader->thread, NULL);
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			tw_conn_close(&reader->conns[i], reader);
		}
	}
	if (reader->event_fd >= 0) {
		close(reader->event_fd);
	}
	if (reader->epoll_fd >= 0) {
		close(reader->epoll_fd);
	}
	sem_destroy(&reader->ready);
	tw_read_slots_fini(&reader->slots);
	free(reader->conns[0].fifo);
	free(reader->end_memory);
	free(reader->post_memory);
	free(reader);
}

int tw_tcp_reader_open(struct tw_reader **reader_p, const struct tw_reader_conf *conf,
		       struct tw_error *err)
{
	static const struct tw_reader_ops ops = {
		.post = post, .poll = poll_end, .release = release, .up = up, .close = close_reader
	};
	*reader_p = NULL;
	int rc = tw_reader_conf_check(conf, err);
	if (rc < 0) {
		return rc;
	}
	struct tw_tcp_reader *reader =
		aligned_alloc(_Alignof(struct tw_tcp_reader), sizeof(*reader));
	if (reader == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair reader: out of memory");
	}
	memset(reader, 0, sizeof(*reader));
	reader->base.ops = &ops;
	reader->epoll_fd = reader->event_fd = -1;
	sem_init(&reader->ready, 0, 0);
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
