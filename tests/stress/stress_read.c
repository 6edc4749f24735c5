/* Repair reads while the writer laps them: threads read the history by position and by message number, and a client
 * does both through the read server over TCP, for one life after another in the same memory.  Whatever comes
 * back must be whole: each byte of each datagram is compared.
 *
 * Threads   the writer (main), who never waits; one reader by position; one by number; one that is a TCP
 *           client, with the two threads of reader and server behind it.
 * Mutants   check_ordering.sh: a writer that announces too late, a reader that does not look at `intent`. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "base/words.h"
#include "fabric/reader.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#define MTU        1024u
#define UNIT       TW_WIRE_UNIT_BYTES
#define LOG_UNITS  1500u /* some 120 datagrams, and six checkpoints */
#define LIVES      4u
#define ENOUGH     3000u       /* reads of each kind that must hold, and be refused, in each life */
#define ENOUGH_TCP 300u        /* the same over TCP: that hold */
#define LIFE_MAX   40000000ull /* messages after which that will not come any more */
#define RECENT     512u        /* power of two; more than the log holds */
#define ENV        7u

struct place { /* of a datagram, as a subscriber would know it from the wire; torn ones cost a try */
	_Atomic uint64_t packet_seq, log_pos, units, first_msg_seq;
};

static _Alignas(64) uint8_t memory[(LOG_UNITS + 1) * UNIT];
static struct tw_history_mark marks[16];
static struct tw_history_index by_number;
static struct tw_history_view view;
static struct place recent[RECENT];
static _Atomic uint64_t newest; /* packet_seq */
static _Atomic uint32_t life_now;
static _Atomic bool done;

enum kind { BY_POSITION, BY_NUMBER, OVER_TCP, KINDS };
static struct result {
	pthread_t thread;
	_Atomic uint64_t whole, lapped, other, bad;
} results[KINDS];

/* Pairs that never come twice; both halves repeat. */
static uint64_t session_of(uint32_t life)
{
	return 100 + life / 2;
}

static uint32_t publisher_of(uint32_t life)
{
	return 1 + life % 2;
}

static uint64_t salt_of(uint64_t session, uint32_t publisher)
{
	return session * 1000 + publisher;
}

/* --- what must hold ------------------------------------------------------------------------------ */

static bool dgram_is_whole(const uint8_t *at, uint32_t left_bytes, const struct tw_read *read,
			   uint32_t *bytes)
{
	struct tw_wire_hdr hdr;
	struct tw_dgram d;
	if (left_bytes < sizeof(hdr)) {
		return false;
	}
	memcpy(&hdr, at, sizeof(hdr));
	*bytes = (TW_WIRE_HDR_BYTES + hdr.payload_bytes + UNIT - 1) / UNIT * UNIT;
	if (*bytes > left_bytes || tw_dgram_parse(&d, at, *bytes) != TW_DGRAM_OK ||
	    hdr.session != read->session || (!read->by_seq && hdr.publisher != read->publisher)) {
		return false;
	}
	const uint8_t *msg = d.msgs;
	for (uint64_t seq = hdr.first_msg_seq; seq < d.end_seq; seq++) {
		if (!test_msg_is(msg, seq, salt_of(hdr.session, hdr.publisher))) {
			return false;
		}
		msg += test_msg_bytes(seq);
	}
	return true;
}

/* By position: the one datagram there.  By number: a run of them that begins at or behind the first number, has
 * no gap, and is all of one life. */
static bool is_whole(const uint8_t *data, uint32_t len_bytes, const struct tw_read *read)
{
	uint64_t next_seq = 0, log_pos = read->begin;
	uint32_t bytes;
	for (uint32_t at = 0; at < len_bytes; at += bytes) {
		struct tw_wire_hdr hdr;
		if (!dgram_is_whole(data + at, len_bytes - at, read, &bytes)) {
			return false;
		}
		memcpy(&hdr, data + at, sizeof(hdr));
		if (read->by_seq) {
			if ((next_seq != 0 && hdr.first_msg_seq != next_seq) ||
			    hdr.first_msg_seq >= read->end) {
				return false;
			}
			next_seq = hdr.first_msg_seq + hdr.msg_count;
			if (next_seq <= read->begin) {
				return false;
			}
		} else if (hdr.log_pos != log_pos || bytes != len_bytes) {
			return false;
		}
	}
	return true;
}

static void judge(struct result *r, const struct tw_read *read, int rc, const uint8_t *data)
{
	if (rc > 0) {
		r->whole++;
		r->bad += !is_whole(data, (uint32_t)rc, read);
	} else if (rc == 0) {
		r->lapped++;
	} else {
		r->other++;
	}
}

/* --- readers --------------------------------------------------------------------------------------- */

/* A read of something that is about to be overwritten. */
static bool choose(uint64_t turn, bool by_seq, struct tw_read *read)
{
	uint32_t life = atomic_load_explicit(&life_now, memory_order_relaxed);
	uint64_t last = atomic_load_explicit(&newest, memory_order_relaxed);
	uint64_t back = (by_seq ? 40 : 80) + test_mix(turn) % 90;
	if (life == 0 || last <= back) {
		return false;
	}
	uint64_t packet_seq = last - back;
	const struct place *place = &recent[packet_seq % RECENT];
	uint64_t log_pos = atomic_load_explicit(&place->log_pos, memory_order_relaxed);
	uint64_t units = atomic_load_explicit(&place->units, memory_order_relaxed);
	uint64_t seq = atomic_load_explicit(&place->first_msg_seq, memory_order_relaxed);
	*read = (struct tw_read){ .id = turn,
				  .channel = 1,
				  .by_seq = by_seq,
				  .session = session_of(life),
				  .publisher = publisher_of(life),
				  .begin = by_seq ? seq : log_pos,
				  .end = by_seq ? seq + 1 + turn % 100 : log_pos + units };
	atomic_thread_fence(memory_order_seq_cst);
	return units > 0 &&
	       atomic_load_explicit(&place->packet_seq, memory_order_relaxed) == packet_seq &&
	       atomic_load_explicit(&life_now, memory_order_relaxed) == life;
}

static int read_history(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	(void)ctx;
	return read->by_seq ? tw_history_read_msgs(&view, &by_number, read->session, read->begin,
						   read->end, dst, max_bytes)
			    : tw_history_read(&view, read->session, read->publisher, read->begin,
					      read->end, dst, max_bytes);
}

static void *local_reader(void *arg)
{
	struct result *r = arg;
	bool by_seq = r == &results[BY_NUMBER];
	_Alignas(64) static _Thread_local uint8_t copy[TW_READ_MAX_BYTES];
	for (uint64_t turn = 0; !atomic_load_explicit(&done, memory_order_relaxed); turn++) {
		struct tw_read read;
		if (choose(turn, by_seq, &read)) {
			judge(r, &read, read_history(NULL, &read, copy, sizeof(copy)), copy);
		} else {
			sched_yield();
		}
	}
	return NULL;
}

static void die(const char *what, const struct tw_error *err)
{
	printf("stress_read: %s: %s\n", what, err->text);
	exit(2);
}

struct tcp {
	struct tw_stats *stats;
	struct tw_counters server_counters, client_counters;
	struct tw_read_server *server;
	struct tw_reader *reader;
};

static void tcp_open(struct tcp *tcp)
{
	struct tw_error err = { 0 };
	struct tw_read_server_channel channel = { .channel = 1, .read = read_history };
	if (tw_stats_create(&tcp->stats, NULL, "stress", "test", &err) < 0 ||
	    tw_stats_add(tcp->stats, TW_SET_read_server, "", &tcp->server_counters, &err) < 0 ||
	    tw_stats_add(tcp->stats, TW_SET_read_client, "", &tcp->client_counters, &err) < 0 ||
	    tw_stats_seal(tcp->stats, &err) < 0) {
		die("counters", &err);
	}
	struct tw_read_server_conf server = { .addr = 0x7f000001u,
					      .environment = ENV,
					      .channels = &channel,
					      .channel_count = 1,
					      .max_clients = 1,
					      .idle_timeout_ns = 60000000000ull,
					      .cpu = -1,
					      .counters = tcp->server_counters,
					      .clients = &tcp->client_counters };
	if (tw_tcp_read_server_open(&tcp->server, &server, &err) < 0) {
		die("server", &err);
	}
	struct tw_reader_server at = { .addr = server.addr,
				       .port = tw_read_server_port(tcp->server) };
	struct tw_reader_conf reader = { .servers = &at,
					 .server_count = 1,
					 .environment = ENV,
					 .name = "stress",
					 .slots = 8,
					 .connect_timeout_ns = 60000000000ull,
					 .retry_min_ns = 1000000,
					 .retry_max_ns = 1000000,
					 .idle_timeout_ns = 60000000000ull,
					 .gather_ns = 100000,
					 .cpu = -1 };
	if (tw_tcp_reader_open(&tcp->reader, &reader, &err) < 0) {
		die("reader", &err);
	}
}

/* Several reads under way, kept by their ids. */
static void *tcp_reader(void *arg)
{
	struct result *r = arg;
	struct tcp tcp = { 0 };
	struct tw_read asked[8];
	tcp_open(&tcp);
	uint64_t posted = 0;
	for (uint64_t turn = 0; !atomic_load_explicit(&done, memory_order_relaxed); turn++) {
		struct tw_read read;
		struct tw_read_done end;
		if (tw_reader_up(tcp.reader) != 0 && choose(turn, turn % 2 == 0, &read)) {
			/* eight slots and ends in order: an id is free when a slot is */
			read.id = posted % 8;
			if (tw_reader_post(tcp.reader, &read)) {
				asked[read.id] = read;
				posted++;
			}
		}
		if (!tw_reader_poll(tcp.reader, &end)) {
			sched_yield();
			continue;
		}
		int rc = end.status == TW_READ_OK     ? (int)end.len_bytes
			 : end.status == TW_READ_GONE ? 0
						      : -1;
		judge(r, &asked[end.id], rc, end.data);
		r->bad += end.status == TW_READ_BROKEN;
		tw_reader_release(tcp.reader, &end);
	}
	tw_reader_close(tcp.reader);
	tw_read_server_close(tcp.server);
	tw_stats_close(tcp.stats, true);
	return NULL;
}

/* --- the writer ------------------------------------------------------------------------------------ */

struct source {
	uint64_t next_seq, end_seq, salt;
};

static int give(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq };
	while (source->next_seq < source->end_seq) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint32_t len = test_msg_make(msg, source->next_seq, source->salt);
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

static void remember(const struct tw_pack_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	memcpy(&hdr, dgram->data, sizeof(hdr));
	struct place *place = &recent[hdr.packet_seq % RECENT];
	atomic_store_explicit(&place->packet_seq, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->log_pos, hdr.log_pos, memory_order_relaxed);
	atomic_store_explicit(&place->units, dgram->len_bytes / UNIT, memory_order_relaxed);
	atomic_store_explicit(&place->first_msg_seq, hdr.first_msg_seq, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	atomic_store_explicit(&place->packet_seq, hdr.packet_seq, memory_order_relaxed);
	atomic_store_explicit(&newest, hdr.packet_seq, memory_order_relaxed);
}

static bool enough(uint32_t lives)
{
	for (unsigned int i = 0; i < KINDS; i++) {
		const struct result *r = &results[i];
		uint64_t whole = (i == OVER_TCP ? ENOUGH_TCP : ENOUGH) * (uint64_t)lives;
		uint64_t lapped = i == OVER_TCP ? 0 : (uint64_t)ENOUGH * lives;
		if (r->bad == 0 && (r->whole < whole || r->lapped < lapped)) {
			return false;
		}
	}
	return true;
}

static void write_life(uint32_t life)
{
	struct tw_history history;
	static struct tw_pack pack;
	struct tw_pack_conf conf = { .channel = 1,
				     .environment = ENV,
				     .session = session_of(life),
				     .publisher = publisher_of(life),
				     .mtu_bytes = MTU,
				     .first_msg_seq = 1,
				     .heartbeat_min_ns = 1000,
				     .heartbeat_max_ns = 1000 };
	struct source source = { .next_seq = 1,
				 .end_seq = 1,
				 .salt = salt_of(conf.session, conf.publisher) };
	if (tw_history_init(&history, memory, sizeof(memory), MTU, conf.session, conf.publisher) !=
	    TW_OK) {
		exit(2);
	}
	tw_history_index_begin(&by_number);
	tw_pack_init(&pack, &conf, &history, 0);
	atomic_store_explicit(&newest, 0, memory_order_relaxed);
	atomic_store_explicit(&life_now, life, memory_order_relaxed);
	while (source.end_seq < LIFE_MAX && !enough(life)) {
		struct tw_pack_dgram out[4];
		source.end_seq += 1 + test_mix(source.end_seq) % 30;
		int n = tw_pack_poll(&pack, give, &source, 0, 1, out, 4);
		if (n <= 0) {
			exit(2);
		}
		struct tw_wire_hdr first;
		memcpy(&first, out[0].data, sizeof(first));
		tw_history_index_note(&by_number, first.log_pos, first.first_msg_seq);
		tw_history_publish(&history);
		for (int i = 0; i < n; i++) {
			remember(&out[i]);
		}
		tw_history_complete(&history, out[n - 1].end_pos); /* no send is slow here */
	}
}

int main(void)
{
	static const char *const names[KINDS] = { "by position", "by number", "over TCP" };
	int passed = 0, failed = 0;
	uint64_t mark_count = tw_history_index_marks(LOG_UNITS);
	if (mark_count > sizeof(marks) / sizeof(marks[0]) ||
	    tw_history_view_make(&view, memory, sizeof(memory), MTU) != TW_OK) {
		return 2;
	}
	tw_history_index_init(&by_number, marks, mark_count);
	for (unsigned int i = 0; i < KINDS; i++) {
		if (pthread_create(&results[i].thread, NULL,
				   i == OVER_TCP ? tcp_reader : local_reader, &results[i]) != 0) {
			perror("stress_read: pthread_create");
			return 2;
		}
	}
	for (uint32_t life = 1; life <= LIVES; life++) {
		write_life(life);
	}
	bool worked = enough(LIVES);
	atomic_store_explicit(&done, true, memory_order_relaxed);
	for (unsigned int i = 0; i < KINDS; i++) {
		pthread_join(results[i].thread, NULL);
		const struct result *r = &results[i];
		printf("%s: %llu whole, %llu lapped, %llu not there; %llu torn\n", names[i],
		       (unsigned long long)r->whole, (unsigned long long)r->lapped,
		       (unsigned long long)r->other, (unsigned long long)r->bad);
		passed += r->bad == 0;
		failed += r->bad != 0;
	}
	passed += worked;
	failed += !worked;
	printf("stress_read: %d passed, %d failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
