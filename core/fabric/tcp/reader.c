/* The client of repair over TCP: rings, slots and the thread.  What it promises: fabric/reader.h.
 *
 * Threads   the hot thread owns the list of free slots; a slot belongs to the reader's thread from
 *           post until poll.  Rings carry numbers; what a slot holds is ordered by them (SP1, SP2).
 * Waking    the reader's thread says `asleep` before it looks at the ring for the last time, the hot
 *           thread pushes before it looks at `asleep`: one of them sees the other.
 * Ordering  RD1 pairs with RD2: of the two stores (a post, `asleep`) at least one is seen by who made
 *           the other one.  RD3 pairs with RD4: `stop`; only its value counts. */
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

static TW_COLD void wake(struct tw_reader *reader)
{
	/* relaxed: one of several wakes is enough, and which one does not matter */
	if (atomic_exchange_explicit(&reader->asleep, false, memory_order_relaxed)) {
		uint64_t one = 1;
		ssize_t unused = write(reader->event_fd, &one, sizeof(one));
		(void)unused; /* it can only say that the thread is woken already */
	}
}

static bool take_small_slot(struct tw_reader *reader, const struct tw_read *read, uint32_t *slot_p)
{
	if (reader->free_small_count == 0 || read->by_seq ||
	    read->end - read->begin > TW_READ_SMALL_BYTES / TW_RW_UNIT_BYTES) {
		return false;
	}
	*slot_p = reader->free_small[--reader->free_small_count];
	return true;
}

/* Each server that holds none has one in reserve. */
static bool take_slot(struct tw_reader *reader, const struct tw_read *read, uint32_t *slot_p)
{
	bool first = reader->held[read->server] == 0;
	if (reader->free_count <= reader->idle_servers - first) {
		return false;
	}
	*slot_p = reader->free_slots[--reader->free_count];
	reader->held[read->server]++;
	reader->idle_servers -= first;
	return true;
}

bool tw_reader_post(struct tw_reader *reader, const struct tw_read *read)
{
	uint32_t slot;
	if (read->server >= reader->conf.server_count || !tw_rw_read_holds(read) ||
	    (!take_small_slot(reader, read, &slot) && !take_slot(reader, read, &slot))) {
		return false;
	}
	reader->slots[slot].read = *read;
	reader->slots[slot].posted_ns = tw_mono_ns();
	TW_ASSERT(tw_spsc_push(&reader->posts, &slot));
	/* RD1: pairs with RD2 */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&reader->asleep, memory_order_relaxed)) {
		wake(reader);
	}
	return true;
}

bool tw_reader_poll(struct tw_reader *reader, struct tw_read_done *done)
{
	struct tw_reader_end end;
	if (!tw_spsc_pop(&reader->ends, &end)) {
		return false;
	}
	const struct tw_reader_slot *slot = &reader->slots[end.slot];
	*done = (struct tw_read_done){
		.id = slot->read.id,
		.status = end.status,
		.server = slot->read.server,
		.channel = slot->read.channel,
		.data = slot->data,
		.len_bytes = end.len_bytes,
		.slot = end.slot,
	};
	return true;
}

void tw_reader_release(struct tw_reader *reader, const struct tw_read_done *done)
{
	if (done->slot >= reader->conf.slots) {
		TW_ASSERT(reader->free_small_count < reader->conf.small_slots);
		reader->free_small[reader->free_small_count++] = done->slot;
		return;
	}
	TW_ASSERT(reader->free_count < reader->conf.slots && reader->held[done->server] > 0);
	reader->free_slots[reader->free_count++] = done->slot;
	reader->idle_servers += --reader->held[done->server] == 0;
}

uint32_t tw_reader_up(const struct tw_reader *reader)
{
	/* relaxed: a hint; who posts to a server that has just gone down is told so */
	return atomic_load_explicit(&reader->up, memory_order_relaxed);
}

/* --- the thread -------------------------------------------------------------------------------- */

static bool stopping(const struct tw_reader *reader)
{
	/* RD4: pairs with RD3 */
	return atomic_load_explicit(&reader->stop, memory_order_acquire);
}

static void take_posts(struct tw_reader *reader, uint64_t now_ns)
{
	uint32_t slot;
	while (tw_spsc_pop(&reader->posts, &slot)) {
		tw_conn_take(&reader->conns[reader->slots[slot].read.server], reader, slot, now_ns);
	}
}

/* Sleeps until something happens; returns the events. */
static int sleep_until(struct tw_reader *reader, uint64_t now_ns, uint64_t wake_ns,
		       struct epoll_event *events)
{
	int wait_ms = tw_tcp_wait_ms(now_ns, wake_ns);
	atomic_store_explicit(&reader->asleep, true, memory_order_relaxed);
	/* RD2: pairs with RD1 */
	atomic_thread_fence(memory_order_seq_cst);
	if (!tw_spsc_empty(&reader->posts) || stopping(reader)) {
		wait_ms = 0;
	}
	int n = epoll_wait(reader->epoll_fd, events, EVENTS, wait_ms);
	atomic_store_explicit(&reader->asleep, false, memory_order_relaxed);
	return n;
}

static void take_events(struct tw_reader *reader, const struct epoll_event *events, int n,
			uint64_t now_ns)
{
	for (int i = 0; i < n; i++) {
		uint32_t which = events[i].data.u32;
		if (which == WAKE_EVENT) {
			uint64_t wakes;
			ssize_t unused = read(reader->event_fd, &wakes, sizeof(wakes));
			(void)unused; /* non-blocking: there may be none */
			continue;
		}
		tw_conn_events(&reader->conns[which], reader, events[i].events, now_ns);
	}
}

static void *reader_thread(void *arg)
{
	struct tw_reader *reader = arg;
	struct epoll_event events[EVENTS];
	reader->start_status = tw_cpu_pin(reader->conf.cpu, &reader->start_err);
	bool failed = reader->start_status < 0;
	sem_post(&reader->ready);
	while (!failed && !stopping(reader)) {
		uint64_t now_ns = tw_mono_ns();
		uint64_t wake_ns = UINT64_MAX;
		take_posts(reader, now_ns);
		for (uint32_t i = 0; i < reader->conf.server_count; i++) {
			uint64_t at_ns = tw_conn_turn(&reader->conns[i], reader, now_ns);
			wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
		}
		int n = sleep_until(reader, now_ns, wake_ns, events);
		take_events(reader, events, n, tw_mono_ns());
	}
	return NULL;
}

/* --- open and close ---------------------------------------------------------------------------- */

static int check_conf(const struct tw_reader_conf *conf, struct tw_error *err)
{
	if (conf->server_count == 0 || conf->server_count > TW_READER_MAX_SERVERS ||
	    conf->slots < conf->server_count || conf->slots > TW_READER_MAX_SLOTS ||
	    conf->small_slots > TW_READER_MAX_SLOTS) {
		return tw_fail(err, TW_EARG,
			       "repair reader: %u servers, %u slots and %u small ones: 1 to %u "
			       "servers are possible, with a slot each and at most %u of either",
			       conf->server_count, conf->slots, conf->small_slots,
			       TW_READER_MAX_SERVERS, TW_READER_MAX_SLOTS);
	}
	if (conf->retry_min_ns == 0 || conf->retry_min_ns > conf->retry_max_ns ||
	    conf->connect_timeout_ns == 0 || conf->idle_timeout_ns == 0) {
		return tw_fail(err, TW_EARG, "repair reader: times are 0 or contradict each other");
	}
	if (!tw_rw_name_holds(conf->name)) {
		return tw_fail(err, TW_EARG, "repair reader: name is not printable ASCII");
	}
	return TW_OK;
}

static int allocate(struct tw_reader *reader, struct tw_error *err)
{
	const struct tw_reader_conf *conf = &reader->conf;
	uint32_t slots = conf->slots + conf->small_slots;
	reader->ring_capacity = 1;
	while (reader->ring_capacity < slots) {
		reader->ring_capacity *= 2;
	}
	uint32_t capacity = reader->ring_capacity;
	reader->free_slots = calloc(slots, sizeof(reader->free_slots[0]));
	reader->slots = calloc(slots, sizeof(reader->slots[0]));
	reader->post_memory = calloc(capacity, sizeof(uint32_t));
	reader->end_memory = calloc(capacity, sizeof(struct tw_reader_end));
	uint32_t *fifos = calloc((size_t)capacity * conf->server_count, sizeof(uint32_t));
	reader->conns[0].fifo = fifos; /* close frees it there */
	if (reader->free_slots == NULL || reader->slots == NULL || reader->post_memory == NULL ||
	    reader->end_memory == NULL || fifos == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair reader: calloc: %u slots", slots);
	}
	int rc = tw_slab_init(&reader->slab,
			      (size_t)conf->slots * TW_READ_MAX_BYTES +
				      (size_t)conf->small_slots * TW_READ_SMALL_BYTES,
			      err);
	if (rc < 0) {
		return rc;
	}
	uint8_t *data = reader->slab.base;
	for (uint32_t i = 0; i < slots; i++) {
		reader->slots[i].data = data;
		reader->free_slots[i] = i;
		data += i < conf->slots ? TW_READ_MAX_BYTES : TW_READ_SMALL_BYTES;
	}
	reader->free_count = conf->slots;
	reader->free_small = reader->free_slots + conf->slots;
	reader->free_small_count = conf->small_slots;
	reader->idle_servers = conf->server_count;
	tw_spsc_init(&reader->posts, reader->post_memory, capacity, sizeof(uint32_t));
	tw_spsc_init(&reader->ends, reader->end_memory, capacity, sizeof(struct tw_reader_end));
	for (uint32_t i = 0; i < conf->server_count; i++) {
		tw_conn_init(&reader->conns[i], reader, i, fifos + (size_t)i * capacity);
	}
	return TW_OK;
}

static int open_kernel(struct tw_reader *reader, struct tw_error *err)
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

int tw_reader_open(struct tw_reader **reader_p, const struct tw_reader_conf *conf,
		   struct tw_error *err)
{
	*reader_p = NULL;
	int rc = check_conf(conf, err);
	if (rc < 0) {
		return rc;
	}
	struct tw_reader *reader = aligned_alloc(_Alignof(struct tw_reader), sizeof(*reader));
	if (reader == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair reader: out of memory");
	}
	memset(reader, 0, sizeof(*reader));
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
		tw_reader_close(reader);
		return rc;
	}
	*reader_p = reader;
	return TW_OK;
}

void tw_reader_close(struct tw_reader *reader)
{
	if (reader == NULL) {
		return;
	}
	if (reader->started) {
		/* RD3: pairs with RD4 */
		atomic_store_explicit(&reader->stop, true, memory_order_release);
		uint64_t one = 1;
		ssize_t unused = write(reader->event_fd, &one, sizeof(one));
		(void)unused;
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
	tw_slab_fini(&reader->slab);
	free(reader->conns[0].fifo);
	free(reader->end_memory);
	free(reader->post_memory);
	free(reader->slots);
	free(reader->free_slots);
	free(reader);
}
