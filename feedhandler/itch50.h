/* What the parts of the ITCH 5.0 decoder share: the table and its state
 * in itch50.c, orders and trades in itch50_book.c, everything else in itch50_admin.c.
 *
 * Threads   one; everything here belongs to a feed. */
#ifndef TW_FEEDHANDLER_ITCH50_H
#define TW_FEEDHANDLER_ITCH50_H

#include <string.h>

#include "feedhandler/feed.h"
#include "feedhandler/itch50_orders.h"

enum { /* offsets common to all messages: type u8, then these, big-endian */
       TW_ITCH50_AT_LOCATE = 1, /* u16; the tracking number u16 follows */
       TW_ITCH50_AT_TIME = 5,   /* u48, ns since midnight in New York */
       TW_ITCH50_HEAD_BYTES = 11,
       TW_ITCH50_SYMBOL_BYTES = 8
};

#define TW_ITCH50_PRICE4 100000 /* 1e-4 to 1e-9 */
#define TW_ITCH50_PRICE8 10     /* 1e-8 to 1e-9 */

struct tw_itch50 { /* feed->protocol_state */
	struct tw_itch50_orders orders;
	uint64_t midnight_ns; /* of the day under way */
	uint64_t day_ns;      /* what was received so long after it is of another day */
	bool dated;           /* that day is known */
	bool clear_due;       /* another session has begun: what is known of the last one is void */
	uint16_t book_flags;  /* TW_MSG_BOOK_BAD until a day has been followed from its beginning */
	uint64_t arrivals;    /* messages without a number */
};

typedef void tw_itch50_fn(struct tw_feed *feed, struct tw_itch50 *itch,
			  const struct tw_venue_msg *msg);

struct tw_itch50_handler {
	tw_itch50_fn *fn;
	uint32_t min_bytes; /* messages may grow: what follows is passed over */
};
extern const struct tw_itch50_handler tw_itch50_handlers[256];

/* In itch50_book.c. */
tw_itch50_fn tw_itch50_order_added, tw_itch50_order_added_by, tw_itch50_order_executed,
	tw_itch50_order_executed_at, tw_itch50_order_cancelled, tw_itch50_order_deleted,
	tw_itch50_order_replaced, tw_itch50_hidden_trade, tw_itch50_cross_trade,
	tw_itch50_broken_trade;
/* In itch50_admin.c. */
tw_itch50_fn tw_itch50_system_event, tw_itch50_directory, tw_itch50_trading_action,
	tw_itch50_operational_halt, tw_itch50_short_sale, tw_itch50_participant,
	tw_itch50_circuit_levels, tw_itch50_circuit_breach, tw_itch50_ipo, tw_itch50_collar,
	tw_itch50_imbalance, tw_itch50_retail_interest, tw_itch50_capital_raise;

/* Books are empty: BookClear for each that was not, and all orders are forgotten. */
void tw_itch50_clear_books(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg);

static inline uint16_t tw_itch50_be16(const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline uint32_t tw_itch50_be32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline uint64_t tw_itch50_be64(const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

static inline uint16_t tw_itch50_locate(const uint8_t *data)
{
	return tw_itch50_be16(data + TW_ITCH50_AT_LOCATE);
}

static inline uint64_t tw_itch50_time_of_day(const uint8_t *data)
{
	/* the two bytes before it are the tracking number's */
	return tw_itch50_be64(data + TW_ITCH50_AT_TIME - 2) & UINT64_C(0xffffffffffff);
}

/* Of any message; 0 where it is too short to have one. */
static inline uint64_t tw_itch50_time_or_0(const uint8_t *data, uint32_t len_bytes)
{
	return len_bytes < TW_ITCH50_HEAD_BYTES ? 0 : tw_itch50_time_of_day(data);
}

/* 25 hours: the longest day.  What lies beyond is no time of day. */
#define TW_ITCH50_LONGEST_DAY_NS UINT64_C(90000000000000)

static inline struct tw_msg_head tw_itch50_stamp(struct tw_feed *feed, const struct tw_itch50 *itch,
						 const struct tw_venue_msg *msg, unsigned int flags)
{
	uint64_t ns = tw_itch50_time_of_day(msg->data);
	int64_t exchange_ns = -1;
	if (__builtin_expect(ns < TW_ITCH50_LONGEST_DAY_NS, 1)) {
		exchange_ns = (int64_t)(itch->midnight_ns + ns);
	}
	if (__builtin_expect(!itch->dated, 0)) {
		flags |= TW_MSG_TS_BAD;
	}
	return tw_feed_stamp(feed, msg, exchange_ns, (uint16_t)flags);
}

static inline int64_t tw_itch50_price(const uint8_t *p)
{
	return (int64_t)tw_itch50_be32(p) * TW_ITCH50_PRICE4; /* fits: 32 bits times 17 */
}

/* A price of which 0 means none. */
static inline int64_t tw_itch50_optional_price(const uint8_t *p)
{
	return tw_itch50_be32(p) == 0 ? TW_PRICE_NONE : tw_itch50_price(p);
}

/* First sight of a locate code, with its symbol; NULL where that cannot be one. */
struct tw_instrument *tw_itch50_first_sight(struct tw_feed *feed, uint16_t locate,
					    const uint8_t *symbol);

/* The instrument of a message that carries its symbol.  NULL: no channel carries it. */
static inline struct tw_instrument *tw_itch50_instrument(struct tw_feed *feed, const uint8_t *data,
							 const uint8_t *symbol)
{
	uint16_t locate = tw_itch50_locate(data);
	struct tw_instrument *instrument = tw_instruments_find(&feed->instruments, locate);
	if (__builtin_expect(instrument == NULL, 0)) {
		instrument = tw_itch50_first_sight(feed, locate, symbol);
	}
	return instrument != NULL && instrument->channels != 0 ? instrument : NULL;
}

#endif
