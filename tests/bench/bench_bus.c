/* The bus beside a bare ring: 48-byte messages a second in batches, and the round trip of one message
 * over two rings between two pinned threads.
 *
 * The bare ring is the least that can carry a message between two threads: one producer, one consumer,
 * a slot of 48 bytes, an index each.  What the bus does beyond it: any number of readers, variable
 * lengths, readers that may be lapped and know it, numbers, shared memory. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bus.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "tests/bench/bench.h"
#include "wire/datagram.h"

#define MESSAGE_BYTES   48u
#define RING_SLOTS      (1u << 16)
#define BATCH           32u
#define STREAM_MESSAGES 20000000ull
#define ROUND_TRIPS     200000u
#define RUNS            7

struct bare_ring {
	_Alignas(128) _Atomic uint64_t head; /* producer */
	uint64_t tail_seen;
	_Alignas(128) _Atomic uint64_t tail; /* consumer */
	_Alignas(128) uint8_t slots[RING_SLOTS][MESSAGE_BYTES];
};

static struct bare_ring *bare[2];
static char run_dir[] = "/dev/shm/tw-bench-XXXXXX";
static struct tw_bus_writer *writers[2];
static struct tw_bus_reader *readers[2];
static _Atomic uint64_t sink;
static int cpus[2] = { 0, 1 };

/* --- bare ring ------------------------------------------------------------------------------------ */

static bool bare_push(struct bare_ring *r, const void *batch, unsigned int n)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	if (head + n - r->tail_seen > RING_SLOTS) {
		r->tail_seen = atomic_load_explicit(&r->tail,
						    memory_order_acquire); /* BR4: pairs with BR3 */
		if (head + n - r->tail_seen > RING_SLOTS) {
			return false;
		}
	}
	for (unsigned int i = 0; i < n; i++) {
		memcpy(r->slots[(head + i) % RING_SLOTS],
		       (const uint8_t *)batch + (size_t)i * MESSAGE_BYTES, MESSAGE_BYTES);
	}
	/* BR1: pairs with BR2: slots are written before they are announced */
	atomic_store_explicit(&r->head, head + n, memory_order_release);
	return true;
}

static unsigned int bare_pop(struct bare_ring *r, void *out, unsigned int max)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint64_t head =
		atomic_load_explicit(&r->head, memory_order_acquire); /* BR2: pairs with BR1 */
	unsigned int n = head - tail < max ? (unsigned int)(head - tail) : max;
	for (unsigned int i = 0; i < n; i++) {
		memcpy((uint8_t *)out + (size_t)i * MESSAGE_BYTES,
		       r->slots[(tail + i) % RING_SLOTS], MESSAGE_BYTES);
	}
	/* BR3: pairs with BR4: slots are read before they are given back */
	atomic_store_explicit(&r->tail, tail + n, memory_order_release);
	return n;
}

/* --- the same work over either ------------------------------------------------------------------- */

enum kind { BARE, BUS };

static void message_fill(uint8_t message[MESSAGE_BYTES])
{
	memset(message, 0, MESSAGE_BYTES);
	tw_msg_init(message, TW_MSG_ORDER_DELETE);
}

static void send_batch(enum kind kind, int ring, const uint8_t *batch, unsigned int n)
{
	if (kind == BARE) {
		while (!bare_push(bare[ring], batch, n)) {
			tw_idle_turn(&(struct tw_idle){ .mode = TW_IDLE_SPIN });
		}
		return;
	}
	for (unsigned int i = 0; i < n; i++) {
		while (!tw_bus_append(writers[ring], batch + (size_t)i * MESSAGE_BYTES,
				      MESSAGE_BYTES, true)) {
			tw_bus_flush(writers[ring]);
		}
	}
	tw_bus_flush(writers[ring]);
}

static unsigned int receive_some(enum kind kind, int ring, void *out, unsigned int max)
{
	if (kind == BARE) {
		return bare_pop(bare[ring], out, max);
	}
	struct tw_bus_batch batch;
	int n = tw_bus_read(readers[ring], out, max * MESSAGE_BYTES, &batch);
	if (n < 0) {
		fprintf(stderr, "bench_bus: bus read: %s\n", tw_strstatus(n));
		exit(1);
	}
	if (n > 0) {
		tw_bus_release(readers[ring]);
	}
	return (unsigned int)n;
}

static void pin(int which)
{
	struct tw_error err;
	if (cpus[which] >= 0 && tw_cpu_pin(cpus[which], &err) != TW_OK) {
		fprintf(stderr, "bench_bus: %s; running unpinned\n", err.text);
		cpus[which] = -1;
	}
}

static void *stream_consumer(void *arg)
{
	enum kind kind = *(enum kind *)arg;
	_Alignas(8) static uint8_t out[64 * MESSAGE_BYTES];
	uint64_t sum = 0;
	pin(1);
	for (uint64_t got = 0; got < STREAM_MESSAGES;) {
		unsigned int n = receive_some(kind, 0, out, 64);
		sum += out[0];
		got += n;
	}
	atomic_fetch_add(&sink, sum);
	return NULL;
}

/* Messages a second. */
static double stream(enum kind kind)
{
	_Alignas(8) uint8_t batch[BATCH * MESSAGE_BYTES];
	for (unsigned int i = 0; i < BATCH; i++) {
		message_fill(batch + (size_t)i * MESSAGE_BYTES);
	}
	pthread_t consumer;
	if (pthread_create(&consumer, NULL, stream_consumer, &kind) != 0) {
		exit(1);
	}
	uint64_t begin_ns = tw_mono_ns();
	for (uint64_t sent = 0; sent < STREAM_MESSAGES; sent += BATCH) {
		send_batch(kind, 0, batch, BATCH);
	}
	pthread_join(consumer, NULL);
	return (double)STREAM_MESSAGES * 1e9 / (double)(tw_mono_ns() - begin_ns);
}

static void *echo(void *arg)
{
	enum kind kind = *(enum kind *)arg;
	_Alignas(8) uint8_t message[MESSAGE_BYTES];
	pin(1);
	for (unsigned int i = 0; i < ROUND_TRIPS; i++) {
		while (receive_some(kind, 0, message, 1) == 0) {
		}
		send_batch(kind, 1, message, 1);
	}
	return NULL;
}

/* Seconds a round trip. */
static double round_trip(enum kind kind)
{
	_Alignas(8) uint8_t message[MESSAGE_BYTES];
	message_fill(message);
	pthread_t thread;
	if (pthread_create(&thread, NULL, echo, &kind) != 0) {
		exit(1);
	}
	uint64_t begin_ns = tw_mono_ns();
	for (unsigned int i = 0; i < ROUND_TRIPS; i++) {
		send_batch(kind, 0, message, 1);
		while (receive_some(kind, 1, message, 1) == 0) {
		}
	}
	double seconds = (double)(tw_mono_ns() - begin_ns) / 1e9;
	pthread_join(thread, NULL);
	return seconds / ROUND_TRIPS;
}

static void open_rings(void)
{
	struct tw_error err;
	for (int i = 0; i < 2; i++) {
		bare[i] = aligned_alloc(128, sizeof(*bare[i]));
		if (bare[i] == NULL) {
			exit(1);
		}
		memset(bare[i], 0, sizeof(*bare[i]));
		struct tw_bus_conf conf = { .run_dir = run_dir,
					    .channel = (uint16_t)(i + 1),
					    .size_bytes = 4u << 20,
					    .wall_ns = tw_wall_ns() };
		if (tw_bus_create(&writers[i], &conf, 0, &err) != TW_OK ||
		    tw_bus_open(&readers[i], run_dir, conf.channel, true, &err) != TW_OK) {
			fprintf(stderr, "bench_bus: %s\n", err.text);
			exit(1);
		}
	}
}

static void close_rings(void)
{
	for (int i = 0; i < 2; i++) {
		tw_bus_reader_close(readers[i]);
		tw_bus_writer_close(writers[i]);
		free(bare[i]);
	}
	DIR *dir = opendir(run_dir);
	if (dir != NULL) {
		const struct dirent *entry;
		while ((entry = readdir(dir)) != NULL) {
			(void)unlinkat(dirfd(dir), entry->d_name, 0); /* "." and ".." refuse */
		}
		closedir(dir);
	}
	rmdir(run_dir);
}

int main(void)
{
	tw_clock_init();
	if (mkdtemp(run_dir) == NULL) {
		perror("bench_bus: mkdtemp");
		return 1;
	}
	if (tw_cpu_allowed() < 2) {
		fprintf(stderr, "bench_bus: two CPUs are needed\n");
		return 1;
	}
	pin(0);
	open_rings();
	struct bench_series bare_rate = { .n = 0 }, bus_rate = { .n = 0 };
	struct bench_series bare_trip = { .n = 0 }, bus_trip = { .n = 0 };
	for (int run = 0; run < RUNS; run++) {
		bench_add(&bare_rate, stream(BARE));
		bench_add(&bus_rate, stream(BUS));
		bench_add(&bare_trip, round_trip(BARE));
		bench_add(&bus_trip, round_trip(BUS));
	}
	printf("48-byte messages, batches of %u, one writer, one (gating) reader, 2 CPUs\n", BATCH);
	bench_print("bare ring", &bare_rate, "M messages/s", 1e-6);
	bench_print("bus", &bus_rate, "M messages/s", 1e-6);
	bench_ratio("bus to bare ring, messages/s", &bus_rate, &bare_rate);
	bench_print("bare ring, round trip", &bare_trip, "us", 1e6);
	bench_print("bus, round trip", &bus_trip, "us", 1e6);
	bench_ratio("bus to bare ring, round trip", &bus_trip, &bare_trip);
	close_rings();
	return 0;
}
