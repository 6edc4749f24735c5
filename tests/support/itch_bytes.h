/* For the tests of ITCH 5.0: messages from their fields, given to a feed one by one. */
#ifndef TW_TESTS_ITCH_BYTES_H
#define TW_TESTS_ITCH_BYTES_H

#include "config/config.h"
#include "tests/support/feed_bytes.h"

#define MIDNIGHT_NS UINT64_C(1577682000000000000) /* 2019-12-30 00:00 in New York */
#define TIME_NS     UINT64_C(34200000075566)      /* 09:30:00.000075566 */
#define RECV_NS     (MIDNIGHT_NS + TIME_NS + 1500)
#define DOLLARS     INT64_C(1000000000)

static uint64_t next_seq __attribute__((unused)); /* of the next message */

static inline void open_with(struct bench *b, struct tw_feed_conf conf)
{
	conf.protocol = "itch50";
	conf.mic = conf.mic == NULL ? "XNAS" : conf.mic;
	conf.max_orders = conf.max_orders == 0 ? 256 : conf.max_orders;
	conf.max_instruments = conf.max_instruments == 0 ? 64 : conf.max_instruments;
	for (uint32_t c = 0; c < TW_FEED_MAX_CHANNELS; c++) {
		conf.depths[c] = TW_DEPTH_ORDERS;
	}
	bench_open(b, conf);
	next_seq = 1;
}

static inline void open_feed(struct bench *b)
{
	open_with(b, (struct tw_feed_conf){ 0 });
}

static inline void say_bytes(struct bench *b, const struct tape *t)
{
	uint8_t *block = malloc(t->len + 1); /* exactly its size */
	cr_assert_not_null(block);
	if (t->len > 0) {
		memcpy(block + 1, t->bytes, t->len);
	}
	struct tw_venue_msg msg = { .data = block + 1,
				    .len_bytes = (uint32_t)t->len,
				    .seq = next_seq++,
				    .recv_ns = RECV_NS };
	tw_feed_venue_msg(b->feed, &msg);
	free(block);
}

static inline void say(struct bench *b, const char *hex)
{
	struct tape t = { .len = 0 };
	put_hex(&t, hex);
	say_bytes(b, &t);
}

/* 'A' or 'F' of a locate code whose symbol is "S" and the code. */
static inline void add(struct bench *b, uint16_t locate, uint64_t ref, char side, uint32_t qty,
		       uint32_t price, const char *mpid)
{
	struct tape t = { .len = 0 };
	char symbol[16];
	(void)snprintf(symbol, sizeof(symbol), "S%-7u", locate);
	put(&t, mpid == NULL ? "A" : "F", 1);
	put_be(&t, locate, 2);
	put_be(&t, 0, 2);
	put_be(&t, TIME_NS, 6);
	put_be(&t, ref, 8);
	put(&t, &side, 1);
	put_be(&t, qty, 4);
	put(&t, symbol, 8);
	put_be(&t, price, 4);
	if (mpid != NULL) {
		put(&t, mpid, 4);
	}
	say_bytes(b, &t);
}

static inline struct tape about(char type, uint16_t locate, uint64_t ref)
{
	struct tape t = { .len = 0 };
	put(&t, &type, 1);
	put_be(&t, locate, 2);
	put_be(&t, 0, 2);
	put_be(&t, TIME_NS, 6);
	put_be(&t, ref, 8);
	return t;
}

static inline void del(struct bench *b, uint16_t locate, uint64_t ref)
{
	struct tape t = about('D', locate, ref);
	say_bytes(b, &t);
}

static inline void cancel(struct bench *b, uint16_t locate, uint64_t ref, uint32_t qty)
{
	struct tape t = about('X', locate, ref);
	put_be(&t, qty, 4);
	say_bytes(b, &t);
}

static inline void replace(struct bench *b, uint16_t locate, uint64_t ref, uint64_t new_ref,
			   uint32_t qty, uint32_t price)
{
	struct tape t = about('U', locate, ref);
	put_be(&t, new_ref, 8);
	put_be(&t, qty, 4);
	put_be(&t, price, 4);
	say_bytes(b, &t);
}

/* 'E', or 'C' where `printable` is not 0. */
static inline void execute(struct bench *b, uint16_t locate, uint64_t ref, uint32_t qty,
			   char printable, uint32_t price)
{
	struct tape t = about(printable == 0 ? 'E' : 'C', locate, ref);
	put_be(&t, qty, 4);
	put_be(&t, 9000 + ref, 8);
	if (printable != 0) {
		put(&t, &printable, 1);
		put_be(&t, price, 4);
	}
	say_bytes(b, &t);
}

static inline void event(struct bench *b, char code)
{
	struct tape t = { .len = 0 };
	put(&t, "S", 1);
	put_be(&t, 0, 4);
	put_be(&t, TIME_NS, 6);
	put(&t, &code, 1);
	say_bytes(b, &t);
}

static inline const void *last(const struct bench *b, enum tw_msg_kind kind)
{
	return bench_msg(b, b->count - 1, kind);
}

static inline void assert_head(const struct tw_msg_head *h, uint32_t instrument, unsigned int flags)
{
	cr_assert_eq(h->instrument_id, instrument);
	cr_assert_eq(h->venue_id, 7);
	cr_assert_eq(h->flags, flags, "flags %04x", h->flags);
	cr_assert_eq(h->exchange_ns, MIDNIGHT_NS + TIME_NS);
	cr_assert_eq(h->exchange_seq, (uint32_t)(next_seq - 1));
	cr_assert_eq(h->recv_delta_ns, 1500);
}

enum {
	END = TW_MSG_EVENT_END,
	BAD = TW_MSG_EVENT_END | TW_MSG_BOOK_BAD,
	PRINTED = TW_MSG_EVENT_END | TW_MSG_PRINTABLE
};

/* Adds an order and says with which flags it left. */
static inline uint16_t flags_of_next_add(struct bench *b, uint16_t locate)
{
	static uint64_t ref = 1000000;
	add(b, locate, ref++, 'B', 100, 10000, NULL);
	const struct tw_msg_order_add *a = last(b, TW_MSG_ORDER_ADD);
	return a->head.flags;
}

#endif
