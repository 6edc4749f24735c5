/* Session, decoding and normalizing of a feed from memory into a sink that counts: messages a second,
 * beside a walk over the same packets that looks at length and type of each message alone, which is the
 * least that any reader of them does.
 *
 * ITCH is made here: a mix near that of a Nasdaq day (A and F 46 %, D 42 %, U 8 %, E 3 %, X 1 %), steady at
 * so many live orders, which come and go at random: few live orders stay in a cache, many do not.
 * TOPS is quotes and trades of as many instruments. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "config/config.h"
#include "feedhandler/feed.h"
#include "tests/bench/bench.h"

#define MESSAGES     1000000u
#define PER_PACKET   32u
#define PACKET_BYTES 1472u
#define INSTRUMENTS  8000u
#define RUNS         7
#define RECV_NS      UINT64_C(1577716200000000000) /* 2019-12-30 09:30:00 in New York */
#define TIME_OF_DAY  UINT64_C(34200000000000)
#define MOLD_BYTES   20u
#define IEXTP_BYTES  40u

struct packets {
	uint8_t *bytes; /* PACKET_BYTES for each */
	uint32_t *lens;
	uint32_t count, room;
	uint32_t warm;     /* the first so many are not measured */
	uint64_t messages; /* in the others */
};

struct writer { /* one packet under way */
	struct packets *packets;
	uint8_t *at;
	uint32_t msgs;
	uint64_t seq; /* of the packet's first message */
	bool big_endian;
	uint32_t header_bytes;
};

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

static void store(uint8_t *p, uint64_t v, unsigned int bytes, bool big_endian)
{
	for (unsigned int i = 0; i < bytes; i++) {
		p[i] = (uint8_t)(v >> (8 * (big_endian ? bytes - 1 - i : i)));
	}
}

static void be(uint8_t *p, uint64_t v, unsigned int bytes)
{
	store(p, v, bytes, true);
}

static void le(uint8_t *p, uint64_t v, unsigned int bytes)
{
	store(p, v, bytes, false);
}

static void *must(void *p)
{
	if (p == NULL) {
		fprintf(stderr, "bench_decode: out of memory\n");
		exit(1);
	}
	return p;
}

static struct packets packets_new(uint32_t messages)
{
	struct packets p = { .room = messages / PER_PACKET + 2 };
	p.bytes = must(calloc(p.room, PACKET_BYTES));
	p.lens = must(calloc(p.room, sizeof(*p.lens)));
	return p;
}

static uint8_t *packet_at(const struct packets *p, uint32_t i)
{
	return p->bytes + (size_t)i * PACKET_BYTES;
}

static void packet_end(struct writer *w)
{
	if (w->msgs == 0) {
		return;
	}
	uint8_t *packet = packet_at(w->packets, w->packets->count);
	uint32_t len = (uint32_t)(w->at - packet);
	if (w->big_endian) { /* MoldUDP64 */
		memcpy(packet, "0000000001", 10);
		be(packet + 10, w->seq, 8);
		be(packet + 18, w->msgs, 2);
	} else { /* IEX-TP */
		packet[0] = 1;
		le(packet + 2, 0x8003, 2);
		le(packet + 4, 1, 4);
		le(packet + 8, 1, 4);
		le(packet + 12, len - IEXTP_BYTES, 2);
		le(packet + 14, w->msgs, 2);
		le(packet + 24, w->seq, 8);
		le(packet + 32, RECV_NS, 8);
	}
	w->packets->lens[w->packets->count++] = len;
	w->seq += w->msgs;
	w->msgs = 0;
}

/* Room for one message; its length is written. */
static uint8_t *message(struct writer *w, uint32_t len_bytes)
{
	if (w->msgs == PER_PACKET) {
		packet_end(w);
	}
	if (w->msgs == 0) {
		w->at = packet_at(w->packets, w->packets->count) + w->header_bytes;
	}
	store(w->at, len_bytes, 2, w->big_endian);
	uint8_t *msg = w->at + 2;
	w->at += 2 + len_bytes;
	w->msgs++;
	return msg;
}

static void put_symbol(uint8_t *p, uint32_t instrument)
{
	memset(p, ' ', 8);
	for (unsigned int i = 0; i < 4; i++, instrument /= 26) {
		p[i] = (uint8_t)('A' + instrument % 26);
	}
}

/* ---- ITCH ---- */

struct live {
	uint64_t ref;
	uint32_t qty;
	uint16_t locate;
};

static uint8_t *itch(struct writer *w, char type, uint32_t len_bytes, const struct live *order)
{
	uint8_t *p = message(w, len_bytes);
	p[0] = (uint8_t)type;
	be(p + 1, order->locate, 2);
	be(p + 5, TIME_OF_DAY + w->seq, 6);
	be(p + 11, order->ref, 8);
	return p;
}

static void itch_add(struct writer *w, struct live *order, uint64_t *next_ref)
{
	*order = (struct live){ .ref = *next_ref,
				.qty = 100 + (uint32_t)(rng() % 900),
				.locate = (uint16_t)(1 + rng() % INSTRUMENTS) };
	*next_ref += 1 + rng() % 4; /* hidden orders take numbers too */
	bool attributed = rng() % 3 == 0;
	uint8_t *p = itch(w, attributed ? 'F' : 'A', attributed ? 40 : 36, order);
	p[19] = rng() % 2 == 0 ? 'B' : 'S';
	be(p + 20, order->qty, 4);
	put_symbol(p + 24, order->locate);
	be(p + 32, 100000 + rng() % 1000000, 4);
	if (attributed) {
		memcpy(p + 36, "NSDQ", 4);
	}
}

static void itch_change(struct writer *w, struct live *order, uint64_t *next_ref)
{
	unsigned int draw = (unsigned int)(rng() % 100);
	if (draw < 15) {
		uint8_t *p = itch(w, 'U', 35, order);
		order->ref = (*next_ref)++;
		be(p + 19, order->ref, 8);
		be(p + 27, order->qty, 4);
		be(p + 31, 100000 + rng() % 1000000, 4);
	} else if (draw < 21) {
		uint8_t *p = itch(w, 'E', 31, order);
		be(p + 19, 1, 4);
		be(p + 23, w->seq, 8);
		order->qty--;
	} else if (draw < 23) {
		uint8_t *p = itch(w, 'X', 23, order);
		be(p + 19, 1, 4);
		order->qty--;
	} else {
		(void)itch(w, 'D', 19, order);
		*order = (struct live){ 0 };
	}
	if (order->qty == 1) {
		(void)itch(w, 'D', 19, order);
		*order = (struct live){ 0 };
	}
}

static struct packets make_itch(uint32_t live_orders)
{
	struct packets packets = packets_new(live_orders + MESSAGES + 2 * PER_PACKET);
	struct live *live = must(calloc(live_orders, sizeof(*live)));
	struct writer w = {
		.packets = &packets, .seq = 1, .big_endian = true, .header_bytes = MOLD_BYTES
	};
	uint64_t next_ref = 1000;
	for (uint32_t i = 0; i < live_orders; i++) {
		itch_add(&w, &live[i], &next_ref);
	}
	packet_end(&w);
	packets.warm = packets.count;
	uint64_t begin = w.seq;
	uint32_t hole = live_orders; /* an order that has left is followed by one that comes */
	while (w.seq - begin < MESSAGES - PER_PACKET) {
		if (hole < live_orders) {
			itch_add(&w, &live[hole], &next_ref);
			hole = live_orders;
			continue;
		}
		uint32_t i = (uint32_t)(rng() % live_orders);
		itch_change(&w, &live[i], &next_ref);
		hole = live[i].locate == 0 ? i : live_orders;
	}
	packet_end(&w);
	packets.messages = w.seq - begin;
	free(live);
	return packets;
}

/* ---- TOPS ---- */

static struct packets make_tops(void)
{
	struct packets packets = packets_new(MESSAGES + INSTRUMENTS);
	struct writer w = { .packets = &packets, .seq = 1, .header_bytes = IEXTP_BYTES };
	for (uint32_t i = 0; i < INSTRUMENTS + MESSAGES - 2 * PER_PACKET; i++) {
		bool trade = i >= INSTRUMENTS && rng() % 5 == 0;
		uint8_t *p = message(&w, trade ? 38 : 42);
		p[0] = trade ? 'T' : 'Q';
		le(p + 2, RECV_NS, 8);
		put_symbol(p + 10, i < INSTRUMENTS ? i : (uint32_t)(rng() % INSTRUMENTS));
		le(p + 18, 100 + rng() % 900, 4);
		le(p + 22, 100000 + rng() % 1000000, 8);
		le(p + 30, 100000 + rng() % 1000000, 8);
		if (!trade) {
			le(p + 38, 100 + rng() % 900, 4);
		}
		if (i == INSTRUMENTS - 1) {
			packet_end(&w);
			packets.warm = packets.count;
			packets.messages = w.seq;
		}
	}
	packet_end(&w);
	packets.messages = w.seq - packets.messages;
	return packets;
}

/* ---- measuring ---- */

static _Atomic uint64_t counter_values[TW_N_fh_counters];
static struct tw_hist hist;
static uint64_t taken;

static void take(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes, uint32_t channels)
{
	(void)ctx;
	taken += len_bytes + msg->instrument_id + channels; /* read, so that it must be written */
}

static void feed_packets(struct tw_feed *feed, const struct packets *p, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct tw_packet packet = { .payload = packet_at(p, i),
					    .len_bytes = p->lens[i],
					    .recv_ns = RECV_NS + i };
		tw_feed_packet(feed, &packet);
	}
}

/* Messages a second. */
static double decode(const char *protocol, enum tw_depth depth, const struct packets *p)
{
	struct tw_feed_conf conf = {
		.protocol = protocol,
		.mic = "XNAS",
		.venue_id = 1,
		.channel_count = 1,
		.depths = { (uint8_t)depth },
		.counters = { .values = counter_values, .hists = &hist },
		.sink = { .message = take },
	};
	struct tw_feed *feed;
	struct tw_error err = { 0 };
	memset(counter_values, 0, sizeof(counter_values));
	if (tw_feed_create(&feed, &conf, &err) != TW_OK) {
		fprintf(stderr, "bench_decode: %s\n", err.text);
		exit(1);
	}
	feed_packets(feed, p, 0, p->warm);
	uint64_t begin_ns = tw_mono_ns();
	feed_packets(feed, p, p->warm, p->count);
	uint64_t ns = tw_mono_ns() - begin_ns;
	uint64_t odd = tw_counter_get(&feed->counters, TW_FH_gaps) +
		       tw_counter_get(&feed->counters, TW_FH_malformed_packets) +
		       tw_counter_get(&feed->counters, TW_FH_malformed_messages) +
		       tw_counter_get(&feed->counters, TW_FH_unknown_values) +
		       tw_counter_get(&feed->counters, TW_FH_orders_refused) +
		       tw_counter_get(&feed->counters, TW_FH_unknown_deleted);
	tw_feed_destroy(feed);
	if (odd != 0) { /* then something else was measured than what is said */
		fprintf(stderr, "bench_decode: %s: %llu messages were not as meant\n", protocol,
			(unsigned long long)odd);
		exit(1);
	}
	return (double)p->messages / (double)ns * 1e9;
}

static double walk(const struct packets *p, bool big_endian, uint32_t header_bytes)
{
	uint64_t begin_ns = tw_mono_ns();
	for (uint32_t i = p->warm; i < p->count; i++) {
		const uint8_t *at = packet_at(p, i) + header_bytes;
		const uint8_t *end = packet_at(p, i) + p->lens[i];
		while (at < end) {
			uint16_t len;
			memcpy(&len, at, sizeof(len));
			len = big_endian ? __builtin_bswap16(len) : len;
			taken += at[2];
			at += 2 + len;
		}
	}
	return (double)p->messages / (double)(tw_mono_ns() - begin_ns) * 1e9;
}

static void packets_free(struct packets *p)
{
	free(p->bytes);
	free(p->lens);
}

int main(void)
{
	static const uint32_t live[] = { 10000, 1000000 };
	struct bench_series walks = { .n = 0 }, itches[2] = { { .n = 0 }, { .n = 0 } };
	struct bench_series tops = { .n = 0 }, tops_walks = { .n = 0 };
	tw_clock_init();
	struct tw_error err = { 0 };
	if (tw_cpu_pin(0, &err) != TW_OK) {
		fprintf(stderr, "bench_decode: not pinned: %s\n", err.text);
	}
	struct packets few = make_itch(live[0]);
	struct packets many = make_itch(live[1]);
	struct packets quotes = make_tops();
	for (int run = 0; run < RUNS; run++) {
		bench_add(&walks, walk(&few, true, MOLD_BYTES));
		bench_add(&itches[0], decode("itch50", TW_DEPTH_ORDERS, &few));
		bench_add(&itches[1], decode("itch50", TW_DEPTH_ORDERS, &many));
		bench_add(&tops_walks, walk(&quotes, false, IEXTP_BYTES));
		bench_add(&tops, decode("tops16", TW_DEPTH_QUOTES, &quotes));
	}
	printf("one thread, %u instruments, %u messages a packet\n", INSTRUMENTS, PER_PACKET);
	bench_print("ITCH, length and type alone", &walks, "M messages/s", 1e-6);
	bench_print("ITCH, 10,000 live orders", &itches[0], "M messages/s", 1e-6);
	bench_print("ITCH, 1,000,000 live orders", &itches[1], "M messages/s", 1e-6);
	bench_ratio("few live orders to the walk", &itches[0], &walks);
	bench_ratio("many live orders to few", &itches[1], &itches[0]);
	bench_print("TOPS, length and type alone", &tops_walks, "M messages/s", 1e-6);
	bench_print("TOPS", &tops, "M messages/s", 1e-6);
	bench_ratio("TOPS to the walk", &tops, &tops_walks);
	packets_free(&few);
	packets_free(&many);
	packets_free(&quotes);
	return taken == 0; /* never: keeps what was measured from being optimised away */
}
