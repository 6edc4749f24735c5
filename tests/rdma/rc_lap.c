/* A history that is rewritten under RDMA READ: ranges that are about to be overwritten, and what has only just been
 * published, are read by the reader of the product while the writer goes on.  Whatever is accepted must be whole:
 * each byte of each datagram is compared.
 *
 *   rc_lap ADDRESS
 *
 * Slow      a READ takes far longer than writing a datagram: a writer at full speed would be laps ahead, and
 *           nothing would ever be read while it is written.  So the source dawdles in the middle of each
 *           datagram.
 * Threads   the writer (main); one that posts and polls; the reader's and the server's own.
 * Mutant    rc_lap_mutant.c: the same against a history that stores `intent` after it has written. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "tests/rdma/rc_bed.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#define UNIT        TW_WIRE_UNIT_BYTES
#define ENOUGH      1500u /* reads that hold, and as many that are refused as lapped */
#define ENOUGH_BUSY 20u   /* that came too early */
#define WRITES_MAX  4000000ull
#define SESSION     70u
#define DAWDLE_NS   60000u

struct place { /* as a subscriber knows it from the wire; a torn one costs a try */
	_Atomic uint64_t packet_seq, log_pos, units;
};

static struct rc_bed bed;
static struct place recent[RC_PLACES];
static _Atomic uint64_t newest;
static _Atomic bool done;
static uint64_t whole, lapped, early, torn, other;

static bool know(uint64_t packet_seq, uint64_t *log_pos, uint64_t *units)
{
	const struct place *place = &recent[packet_seq % RC_PLACES];
	*log_pos = atomic_load_explicit(&place->log_pos, memory_order_relaxed);
	*units = atomic_load_explicit(&place->units, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&place->packet_seq, memory_order_relaxed) == packet_seq;
}

/* One to three datagrams, at the place where the writer is: a lap behind it, or what it writes now. */
static bool choose(uint64_t turn, struct tw_read *read)
{
	uint64_t last = atomic_load_explicit(&newest, memory_order_relaxed);
	uint64_t log_pos, units, first_pos, first_units;
	if (last < 300) {
		return false;
	}
	*read = (struct tw_read){ .id = turn, .channel = 1, .session = SESSION, .publisher = 1 };
	if (turn % 16 == 0) {
		if (!know(last, &log_pos, &units)) {
			return false;
		}
		read->begin = log_pos + units; /* begins there, unless units are skipped */
		read->end = read->begin + 2;
		return true;
	}
	/* the oldest that is whole, by what is known here, and some before and after it */
	uint64_t seq = last - 1;
	if (!know(last, &log_pos, &units)) {
		return false;
	}
	while (know(seq, &first_pos, &first_units) && first_pos + RC_UNITS >= log_pos + units) {
		seq--;
	}
	seq += test_mix(turn) % 5;
	uint64_t count = 1 + test_mix(turn + 1) % 3;
	if (!know(seq, &first_pos, &first_units) || !know(seq + count - 1, &log_pos, &units)) {
		return false;
	}
	read->begin = first_pos;
	read->end = log_pos + units;
	return true;
}

static void judge(const struct tw_read *read, const struct tw_read_done *end)
{
	bool of_now = read->end - read->begin == 2 && read->id % 16 == 0;
	switch (end->status) {
	case TW_READ_OK:
		whole++;
		/* the two units of a datagram that is being written hold nothing to be compared */
		torn += !of_now && !rc_is_whole(&bed.channels[0], read, end->data, end->len_bytes);
		break;
	case TW_READ_GONE:
		lapped++;
		break;
	case TW_READ_BUSY:
		early++;
		break;
	default:
		other++;
		break;
	}
}

static void *poster(void *arg)
{
	struct tw_reader *reader = arg;
	struct tw_read asked[16];
	uint64_t posted = 0;
	for (uint64_t turn = 0; !atomic_load_explicit(&done, memory_order_relaxed); turn++) {
		struct tw_read read;
		struct tw_read_done end;
		/* few at a time: what waits in a queue is laps away when its turn comes */
		bool chosen = posted % 2 == 0 || tw_reader_up(reader) != 0;
		if (chosen && choose(turn, &read)) {
			asked[posted % 16] = read;
			read.id = posted;
			if (tw_reader_post(reader, &read)) {
				posted++;
				while (!tw_reader_poll(reader, &end)) {
					(void)sched_yield();
				}
				judge(&asked[end.id % 16], &end);
				tw_reader_release(reader, &end);
			}
		}
	}
	return NULL;
}

/* --- the writer ------------------------------------------------------------------------------------ */

struct source {
	uint64_t next_seq, end_seq;
};

static void dawdle(void)
{
	uint64_t until_ns = tw_mono_ns() + DAWDLE_NS;
	while (tw_mono_ns() < until_ns) {
		/* in the middle of a datagram */
	}
}

static int give(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq };
	while (source->next_seq < source->end_seq) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint64_t salt = SESSION * 1000 + 10 + 1;
		uint32_t len = test_msg_make(msg, source->next_seq, salt);
		if (batch->bytes + len > max_bytes) {
			break;
		}
		tw_words_put((uint8_t *)dst + batch->bytes, msg, len);
		batch->bytes += len;
		batch->count++;
		source->next_seq++;
		if (batch->count == 2) {
			dawdle();
		}
	}
	return (int)batch->count;
}

static void remember(const struct tw_pack_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	memcpy(&hdr, dgram->data, sizeof(hdr));
	struct place *place = &recent[hdr.packet_seq % RC_PLACES];
	atomic_store_explicit(&place->packet_seq, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->log_pos, hdr.log_pos, memory_order_relaxed);
	atomic_store_explicit(&place->units, dgram->len_bytes / UNIT, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->packet_seq, hdr.packet_seq, memory_order_relaxed);
	atomic_store_explicit(&newest, hdr.packet_seq, memory_order_relaxed);
}

static uint64_t count_of(unsigned int counter)
{
	return tw_counter_get(&bed.reader_counters, counter);
}

static bool enough(void)
{
	return count_of(TW_READER_replies) >= ENOUGH && count_of(TW_READER_gone) >= ENOUGH &&
	       count_of(TW_READER_busy) >= ENOUGH_BUSY;
}

static void write_on(struct rc_channel *channel)
{
	struct source source = { .next_seq = channel->next_seq, .end_seq = channel->next_seq };
	for (uint64_t i = 0; i < WRITES_MAX && !enough(); i++) {
		struct tw_pack_dgram out;
		source.end_seq += 1 + test_mix(source.end_seq) % 12;
		RC_MUST(tw_pack_poll(&channel->pack, give, &source, 0, 1, &out, 1) == 1);
		remember(&out);
		tw_history_publish(&channel->history);
		tw_history_complete(&channel->history, out.end_pos);
	}
}

int main(int argc, char **argv)
{
	struct in_addr addr;
	pthread_t thread;
	if (argc != 2 || inet_pton(AF_INET, argv[1], &addr) != 1) {
		return 64;
	}
	rc_bed_open(&bed, ntohl(addr.s_addr));
	rc_serve(&bed, rc_server_conf(&bed), true);
	struct tw_reader *reader = rc_reader(&bed, "lap");
	rc_wait_up(reader, true);
	RC_MUST(pthread_create(&thread, NULL, poster, reader) == 0);
	write_on(&bed.channels[0]);
	bool worked = enough();
	atomic_store_explicit(&done, true, memory_order_relaxed);
	(void)pthread_join(thread, NULL);
	printf("%llu whole, %llu lapped, %llu early, %llu other; %llu torn\n",
	       (unsigned long long)whole, (unsigned long long)lapped, (unsigned long long)early,
	       (unsigned long long)other, (unsigned long long)torn);
	bool well = worked && torn == 0 && other == 0 && count_of(TW_READER_failures) == 0 &&
		    tw_counter_get(&bed.server_counters, TW_READ_SERVER_reads) == 0;
	tw_reader_close(reader);
	rc_bed_close(&bed);
	printf("rc_lap: %d passed, %d failed\n", well ? 1 : 0, well ? 0 : 1);
	return well ? 0 : 1;
}
