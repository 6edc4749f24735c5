/* The history log under a writer that laps its readers: they copy datagrams from wherever they lie,
 * by the rule of protocol/history.h, and whatever the rule accepts must be whole.
 *
 * Ordering  H2 pairs with H1 and H5, H4 pairs with H3: the reading side, which in a later version
 *           the repair service and its clients have as well.
 * Mutants   check_ordering.sh builds this program against a writer that announces too late, and
 *           with readers that do not look at `intent`; both must fail. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/words.h"
#include "protocol/history.h"
#include "protocol/pack.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#ifndef TW_MUTANT
#define TW_MUTANT 0
#endif

#define READERS   2u
#define MTU       1024u
#define LOG_UNITS 250u /* some 20 datagrams, and not a multiple of one */
#define LIVES     6u
#define ENOUGH    15000u      /* datagrams that each reader must accept, and refuse, in each life */
#define LIFE_MAX  50000000ull /* messages after which that will not come any more */
#define SALT      11u
#define RECENT    64u /* power of two; more than the log holds */

struct place { /* of a datagram, as its header on the wire would tell a subscriber */
	_Atomic uint64_t log_pos;
	_Atomic uint64_t packet_seq;
};

static _Alignas(64) uint8_t memory[(LOG_UNITS + 1) * TW_WIRE_UNIT_BYTES];
static struct place recent[RECENT]; /* by packet_seq; torn pairs only cost a try */
static _Atomic uint64_t newest;     /* packet_seq */
static _Atomic uint32_t life_now;
static _Atomic bool done;

struct result {
	pthread_t thread;
	_Atomic uint64_t whole, lapped, other, bad;
};
static struct result results[READERS];

struct source {
	uint64_t next_seq, end_seq;
};

static uint64_t salt_of(uint32_t publisher)
{
	return SALT + 1000 * (uint64_t)publisher;
}

/* The salt is the life's, so that bytes of one life never pass for another's. */
static uint32_t source_life;

static int read_source(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq };
	while (source->next_seq < source->end_seq) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint32_t len = test_msg_make(msg, source->next_seq, salt_of(source_life));
		if (batch->bytes + len > max_bytes) {
			break;
		}
		tw_words_put((uint8_t *)dst + batch->bytes, msg, len);
		batch->bytes += len;
		batch->count++;
		source->next_seq++;
	}
	return (int)batch->count;
}

/* What is in hand must be the datagram that was asked for, every byte of it. */
static bool is_whole(const uint8_t *copy, uint64_t log_pos, uint64_t packet_seq, uint32_t publisher)
{
	struct tw_dgram d;
	if (tw_dgram_parse(&d, copy, MTU) != TW_DGRAM_OK || d.hdr->log_pos != log_pos ||
	    d.hdr->packet_seq != packet_seq || d.hdr->publisher != publisher) {
		return false;
	}
	const uint8_t *at = d.msgs;
	for (uint64_t seq = d.hdr->first_msg_seq; seq < d.end_seq; seq++) {
		if (!test_msg_is(at, seq, salt_of(publisher))) {
			return false;
		}
		at += test_msg_bytes(seq);
	}
	return true;
}

enum outcome { OTHER, LAPPED, ACCEPTED };

/* One repair by the rule. */
static enum outcome fetch(const struct tw_history_control *control, uint64_t log_pos,
			  uint32_t publisher, uint8_t *copy)
{
	/* H4: pairs with H3 */
	if (log_pos >= atomic_load_explicit(&control->published, memory_order_acquire)) {
		return OTHER;
	}
	const uint8_t *log = (const uint8_t *)control + sizeof(*control);
	tw_words_move(copy, log + log_pos % LOG_UNITS * TW_WIRE_UNIT_BYTES, MTU);
	/* H2: pairs with H1, H5 */
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&control->publisher, memory_order_relaxed) != publisher) {
		return OTHER;
	}
	uint64_t intent = atomic_load_explicit(&control->intent, memory_order_relaxed);
	if (log_pos + LOG_UNITS < intent && TW_MUTANT != 5) {
		return LAPPED;
	}
	return ACCEPTED;
}

static void *reader(void *arg)
{
	struct result *r = arg;
	const struct tw_history_control *control = (const struct tw_history_control *)memory;
	_Alignas(64) uint8_t copy[MTU];
	for (uint64_t turn = 0; !atomic_load_explicit(&done, memory_order_relaxed); turn++) {
		uint32_t publisher = atomic_load_explicit(&life_now, memory_order_relaxed);
		uint64_t last = atomic_load_explicit(&newest, memory_order_relaxed);
		uint64_t back = 12 + test_mix(turn) % 24; /* about where the writer is writing */
		if (publisher == 0 || last <= back) {
			continue;
		}
		uint64_t packet_seq = last - back;
		const struct place *place = &recent[packet_seq % RECENT];
		uint64_t log_pos = atomic_load_explicit(&place->log_pos, memory_order_relaxed);
		if (atomic_load_explicit(&place->packet_seq, memory_order_relaxed) != packet_seq) {
			continue;
		}
		enum outcome outcome = fetch(control, log_pos, publisher, copy);
		r->lapped += outcome == LAPPED;
		r->other += outcome == OTHER;
		if (outcome == ACCEPTED && !is_whole(copy, log_pos, packet_seq, publisher)) {
			r->bad++;
		}
		r->whole += outcome == ACCEPTED;
	}
	return NULL;
}

static void remember(const struct tw_pack_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	memcpy(&hdr, dgram->data, sizeof(hdr));
	struct place *place = &recent[hdr.packet_seq % RECENT];
	atomic_store_explicit(&place->packet_seq, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->log_pos, hdr.log_pos, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->packet_seq, hdr.packet_seq, memory_order_relaxed);
	atomic_store_explicit(&newest, hdr.packet_seq, memory_order_relaxed);
}

static bool enough(uint32_t lives)
{
	for (unsigned int i = 0; i < READERS; i++) {
		if (results[i].bad == 0 && (results[i].whole < (uint64_t)ENOUGH * lives ||
					    results[i].lapped < (uint64_t)ENOUGH * lives)) {
			return false;
		}
	}
	return true;
}

static void write_life(uint32_t publisher)
{
	struct tw_history history;
	static struct tw_pack pack;
	struct source source = { .next_seq = 1, .end_seq = 1 };
	struct tw_pack_conf conf = { .channel = 1,
				     .session = 9,
				     .publisher = publisher,
				     .mtu_bytes = MTU,
				     .first_msg_seq = 1,
				     .heartbeat_min_ns = 1000,
				     .heartbeat_max_ns = 1000 };
	if (tw_history_init(&history, memory, sizeof(memory), MTU, 9, publisher) != TW_OK) {
		exit(1);
	}
	tw_pack_init(&pack, &conf, &history, 0);
	source_life = publisher;
	atomic_store_explicit(&newest, 0, memory_order_relaxed);
	atomic_store_explicit(&life_now, publisher, memory_order_relaxed);
	while (source.end_seq < LIFE_MAX && !enough(publisher)) {
		struct tw_pack_dgram out[8];
		source.end_seq += 1 + test_mix(source.end_seq) % 30;
		int n = tw_pack_poll(&pack, read_source, &source, 0, 1, out, 8);
		if (n <= 0) {
			exit(1);
		}
		tw_history_publish(&history);
		for (int i = 0; i < n; i++) {
			remember(&out[i]);
		}
		tw_history_complete(&history, out[n - 1].end_pos); /* no send is slow here */
	}
}

int main(void)
{
	int passed = 0, failed = 0;
	for (unsigned int i = 0; i < READERS; i++) {
		if (pthread_create(&results[i].thread, NULL, reader, &results[i]) != 0) {
			perror("stress_history: pthread_create");
			return 1;
		}
	}
	for (uint32_t life = 1; life <= LIVES; life++) {
		write_life(life);
	}
	atomic_store_explicit(&done, true, memory_order_relaxed);
	for (unsigned int i = 0; i < READERS; i++) {
		pthread_join(results[i].thread, NULL);
		const struct result *r = &results[i];
		printf("reader %u: %llu accepted, %llu lapped, %llu not there; %llu torn\n", i,
		       (unsigned long long)r->whole, (unsigned long long)r->lapped,
		       (unsigned long long)r->other, (unsigned long long)r->bad);
		bool worked = r->whole >= (uint64_t)ENOUGH * LIVES &&
			      r->lapped >= (uint64_t)ENOUGH * LIVES;
		bool whole = r->bad == 0;
		passed += worked + whole;
		failed += !worked + !whole;
	}
	printf("stress_history: %d passed, %d failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
