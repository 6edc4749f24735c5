/* For the feedhandler's tests: bytes appended one field at a time, frames and captures built from
 * them, and a feed whose messages are collected. */
#ifndef TW_TESTS_FEED_BYTES_H
#define TW_TESTS_FEED_BYTES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "feedhandler/feed.h"
#include "feedhandler/input.h"

struct tape {
	uint8_t bytes[1u << 17];
	size_t len;
};

static inline void put(struct tape *t, const void *data, size_t len)
{
	cr_assert_leq(t->len + len, sizeof(t->bytes));
	if (len > 0) {
		memcpy(t->bytes + t->len, data, len);
	}
	t->len += len;
}

static inline void put_int(struct tape *t, uint64_t v, unsigned int bytes, bool big)
{
	uint8_t out[8];
	for (unsigned int i = 0; i < bytes; i++) {
		unsigned int shift = 8 * (big ? bytes - 1 - i : i);
		out[i] = (uint8_t)(v >> shift);
	}
	put(t, out, bytes);
}

static inline void put_le(struct tape *t, uint64_t v, unsigned int bytes)
{
	put_int(t, v, bytes, false);
}

static inline void put_be(struct tape *t, uint64_t v, unsigned int bytes)
{
	put_int(t, v, bytes, true);
}

/* "51 00 c0 ..." */
static inline void put_hex(struct tape *t, const char *hex)
{
	for (const char *p = hex; *p != '\0';) {
		if (*p == ' ') {
			p++;
			continue;
		}
		char pair[3] = { p[0], p[1], '\0' };
		char *end;
		unsigned long v = strtoul(pair, &end, 16);
		cr_assert(end == pair + 2, "not hex: %s", pair);
		put_le(t, v, 1);
		p += 2;
	}
}

/* ---- IEX-TP ---- */

struct iextp_hdr {
	uint16_t protocol;
	uint32_t channel, session;
	uint16_t count;
	uint64_t seq, send_ns;
};

/* A segment whose payload is `blocks` as they are. */
static inline void put_iextp(struct tape *t, struct iextp_hdr h, const struct tape *blocks)
{
	put_le(t, 1, 1);
	put_le(t, 0, 1);
	put_le(t, h.protocol, 2);
	put_le(t, h.channel, 4);
	put_le(t, h.session, 4);
	put_le(t, blocks == NULL ? 0 : blocks->len, 2);
	put_le(t, h.count, 2);
	put_le(t, 0, 8);
	put_le(t, h.seq, 8);
	put_le(t, h.send_ns, 8);
	if (blocks != NULL) {
		put(t, blocks->bytes, blocks->len);
	}
}

static inline void put_block(struct tape *t, const void *msg, size_t len)
{
	put_le(t, len, 2);
	put(t, msg, len);
}

/* ---- frames ---- */

/* IPv4 and UDP around `payload`; `options` is a multiple of 4 bytes. */
static inline void put_ipv4_udp(struct tape *t, const void *payload, size_t len,
				unsigned int options, uint16_t fragment)
{
	size_t header = 20 + options;
	put_be(t, 0x40 | header / 4, 1);
	put_be(t, 0, 1);
	put_be(t, header + 8 + len, 2);
	put_be(t, 0x1234, 2);
	put_be(t, fragment, 2);
	put_be(t, 16, 1);
	put_be(t, 17, 1);
	put_be(t, 0, 2);
	put_be(t, 0x17e29b84, 4);
	put_be(t, 0xe9d71501, 4);
	for (unsigned int i = 0; i < options; i++) {
		put_be(t, 1, 1); /* no operation */
	}
	put_be(t, 5001, 2);
	put_be(t, 10378, 2);
	put_be(t, 8 + len, 2);
	put_be(t, 0, 2);
	put(t, payload, len);
}

static inline void put_ethernet(struct tape *t, uint16_t type)
{
	put_hex(t, "01 00 5e 57 15 01 02 00 00 00 00 01");
	put_be(t, type, 2);
}

/* ---- captures ---- */

struct pcap_kind {
	bool big, nano;
};

static inline void put_pcap_header(struct tape *t, struct pcap_kind k, uint32_t link)
{
	put_int(t, k.nano ? 0xa1b23c4d : 0xa1b2c3d4, 4, k.big);
	put_int(t, 2, 2, k.big);
	put_int(t, 4, 2, k.big);
	put_int(t, 0, 8, k.big);
	put_int(t, 65535, 4, k.big);
	put_int(t, link, 4, k.big);
}

static inline void put_pcap_packet(struct tape *t, struct pcap_kind k, uint64_t ns,
				   const void *data, size_t captured, size_t wire)
{
	put_int(t, ns / 1000000000u, 4, k.big);
	put_int(t, ns % 1000000000u / (k.nano ? 1 : 1000), 4, k.big);
	put_int(t, captured, 4, k.big);
	put_int(t, wire, 4, k.big);
	put(t, data, captured);
}

/* ---- a feed that collects ---- */

struct collected {
	uint32_t channels;
	uint32_t len;
	_Alignas(8) uint8_t bytes[TW_MSG_MAX_BYTES];
};

struct bench {
	_Atomic uint64_t counters[TW_N_fh_counters];
	struct tw_counters group;
	struct tw_feed *feed;
	struct collected *msgs;
	size_t count, room;
};

static inline void bench_take(void *ctx, const struct tw_msg_head *msg, uint32_t len,
			      uint32_t channels)
{
	struct bench *b = ctx;
	if (b->count == b->room) {
		b->room = b->room == 0 ? 64 : b->room * 2;
		b->msgs = realloc(b->msgs, b->room * sizeof(*b->msgs));
		cr_assert_not_null(b->msgs);
	}
	struct collected *c = &b->msgs[b->count++];
	cr_assert_leq(len, sizeof(c->bytes));
	c->channels = channels;
	c->len = len;
	memcpy(c->bytes, msg, len);
}

static inline void bench_open(struct bench *b, struct tw_feed_conf conf)
{
	memset(b, 0, sizeof(*b));
	b->group.values = b->counters;
	conf.protocol = conf.protocol == NULL ? "tops16" : conf.protocol;
	conf.channel_count = conf.channel_count == 0 ? 1 : conf.channel_count;
	conf.venue_id = conf.venue_id == 0 ? 7 : conf.venue_id;
	conf.mic = conf.mic == NULL ? "IEXG" : conf.mic;
	conf.counters = b->group;
	conf.sink = (struct tw_feed_sink){ .message = bench_take, .ctx = b };
	struct tw_error err = { 0 };
	int rc = tw_feed_create(&b->feed, &conf, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
}

static inline void bench_close(struct bench *b)
{
	tw_feed_destroy(b->feed);
	free(b->msgs);
}

static inline uint64_t bench_counter(const struct bench *b, unsigned int index)
{
	return tw_counter_get(&b->group, index);
}

static inline const void *bench_msg(const struct bench *b, size_t i, enum tw_msg_kind kind)
{
	cr_assert_lt(i, b->count, "only %zu messages", b->count);
	const struct tw_msg_head *head = (const void *)b->msgs[i].bytes;
	cr_assert_eq(head->sbe.template_id, kind, "message %zu is of kind %u", i,
		     head->sbe.template_id);
	cr_assert_eq(b->msgs[i].len, head->sbe.block_length + sizeof(head->sbe));
	return head;
}

/* ---- recorded captures, where they are ---- */

static inline bool data_path(char *path, size_t size, const char *name)
{
	const char *root = getenv("TW_DATA");
	(void)snprintf(path, size, "%s/%s", root != NULL ? root : "../shared/data", name);
	struct stat st;
	return stat(path, &st) == 0;
}

#endif
