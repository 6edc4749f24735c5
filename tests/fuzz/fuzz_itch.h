/* For the fuzzers of ITCH: a reader of the messages, which follows orders by them alone.
 *
 * What must hold: an order is added before it changes, and its side stays; a trade that names a side names
 * an order that is there, and leaves of it what it says; a book that was cleared has no orders; at the
 * end the reader has as many orders as the decoder. */
#ifndef TW_TESTS_FUZZ_ITCH_H
#define TW_TESTS_FUZZ_ITCH_H

#include "config/config.h"
#include "tests/fuzz/fuzz_feed.h"

enum { FUZZ_ORDERS = 6 };

struct fuzz_order {
	uint64_t id, qty;
	uint32_t instrument;
	uint8_t side; /* TW_SIDE_NONE: free */
};

static struct fuzz_order fuzz_orders[FUZZ_ORDERS];
static uint32_t fuzz_defined[64]; /* instruments */
static unsigned int fuzz_defined_count;

static inline unsigned int fuzz_live(void)
{
	unsigned int n = 0;
	for (unsigned int i = 0; i < FUZZ_ORDERS; i++) {
		n += fuzz_orders[i].side != TW_SIDE_NONE;
	}
	return n;
}

static inline struct fuzz_order *fuzz_find(uint64_t id)
{
	for (unsigned int i = 0; i < FUZZ_ORDERS; i++) {
		if (fuzz_orders[i].side != TW_SIDE_NONE && fuzz_orders[i].id == id) {
			return &fuzz_orders[i];
		}
	}
	return NULL;
}

static inline struct fuzz_order *fuzz_known(uint64_t id, uint32_t instrument, uint8_t side)
{
	struct fuzz_order *order = fuzz_find(id);
	require(order != NULL && order->instrument == instrument && order->side == side);
	return order;
}

static inline void fuzz_add(uint64_t id, uint32_t instrument, uint8_t side, uint64_t qty,
			    int64_t price)
{
	require(side == TW_SIDE_BUY || side == TW_SIDE_SELL);
	require(qty > 0 && price >= 0 && price != TW_PRICE_NONE && fuzz_find(id) == NULL);
	for (unsigned int i = 0; i < FUZZ_ORDERS; i++) {
		if (fuzz_orders[i].side == TW_SIDE_NONE) {
			fuzz_orders[i] = (struct fuzz_order){ id, qty, instrument, side };
			return;
		}
	}
	abort(); /* more than the decoder may follow */
}

static inline void fuzz_execute(const struct tw_msg_order_execute *e)
{
	if (e->side == TW_SIDE_NONE) { /* of an order that nobody knows nothing is made up */
		require((e->head.flags & TW_MSG_BOOK_BAD) != 0 && e->remaining_qty == 0 &&
			e->aggressor == TW_SIDE_NONE);
		return;
	}
	struct fuzz_order *order = fuzz_known(e->order_id, e->head.instrument_id, e->side);
	require(e->price != TW_PRICE_NONE && e->aggressor != e->side);
	require(e->remaining_qty == (e->qty < order->qty ? order->qty - e->qty : 0));
	order->qty = e->remaining_qty;
	if (order->qty == 0) {
		order->side = TW_SIDE_NONE;
	}
}

static inline void fuzz_follow(const struct tw_msg_head *msg)
{
	switch (msg->sbe.template_id) {
	case TW_MSG_ORDER_ADD: {
		const struct tw_msg_order_add *a = (const void *)msg;
		fuzz_add(a->order_id, msg->instrument_id, a->side, a->qty, a->price);
		break;
	}
	case TW_MSG_ORDER_MODIFY: {
		const struct tw_msg_order_modify *m = (const void *)msg;
		struct fuzz_order *order = fuzz_known(m->order_id, msg->instrument_id, m->side);
		require(m->qty > 0 && m->qty <= order->qty && m->keeps_priority == 1);
		order->qty = m->qty;
		break;
	}
	case TW_MSG_ORDER_REPLACE: {
		const struct tw_msg_order_replace *r = (const void *)msg;
		fuzz_known(r->order_id, msg->instrument_id, r->side)->side = TW_SIDE_NONE;
		fuzz_add(r->new_order_id, msg->instrument_id, r->side, r->qty, r->price);
		break;
	}
	case TW_MSG_ORDER_DELETE: {
		const struct tw_msg_order_delete *d = (const void *)msg;
		fuzz_known(d->order_id, msg->instrument_id, d->side)->side = TW_SIDE_NONE;
		break;
	}
	case TW_MSG_ORDER_EXECUTE:
		fuzz_execute((const void *)msg);
		break;
	case TW_MSG_BOOK_CLEAR:
		for (unsigned int i = 0; i < FUZZ_ORDERS; i++) {
			if (fuzz_orders[i].instrument == msg->instrument_id) {
				fuzz_orders[i].side = TW_SIDE_NONE;
			}
		}
		break;
	default:
		break;
	}
}

/* A definition comes first, but for trades of an instrument without a name. */
static inline void fuzz_named(const struct tw_msg_head *msg)
{
	uint16_t kind = msg->sbe.template_id;
	if (msg->instrument_id == 0) {
		require(kind == TW_MSG_SESSION_EVENT || kind == TW_MSG_TRADING_STATUS ||
			kind == TW_MSG_PRICE_LIMITS);
		return;
	}
	for (unsigned int i = 0; i < fuzz_defined_count; i++) {
		if (fuzz_defined[i] == msg->instrument_id) {
			return;
		}
	}
	if (kind != TW_MSG_INSTRUMENT_DEFINITION) {
		require(kind == TW_MSG_ORDER_EXECUTE || kind == TW_MSG_TRADE_CANCEL);
		return;
	}
	const struct tw_msg_instrument_definition *d = (const void *)msg;
	require(d->symbol[0] != '\0' && d->raw_id == msg->instrument_id);
	if (fuzz_defined_count < sizeof(fuzz_defined) / sizeof(fuzz_defined[0])) {
		fuzz_defined[fuzz_defined_count++] = msg->instrument_id;
	}
}

static inline void fuzz_take_itch(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes,
				  uint32_t channels)
{
	(void)ctx;
	require(tw_msg_holds(msg, len_bytes));
	require(len_bytes == tw_msg_kind_bytes(msg->sbe.template_id));
	require(channels != 0 && channels < 4);
	require((msg->flags & TW_MSG_EVENT_END) != 0 ||
		msg->sbe.template_id == TW_MSG_PRICE_LIMITS ||
		msg->sbe.template_id == TW_MSG_INSTRUMENT_DEFINITION);
	fuzz_named(msg);
	fuzz_follow(msg);
	fuzz_messages++;
}

static inline struct tw_feed *fuzz_feed_itch(const char *session)
{
	struct tw_feed_conf conf = fuzz_conf();
	conf.protocol = "itch50";
	conf.session = session;
	conf.mic = "XNAS";
	conf.depths[0] = conf.depths[1] = TW_DEPTH_ORDERS;
	conf.max_orders = FUZZ_ORDERS;
	conf.sink.message = fuzz_take_itch;
	memset(fuzz_orders, 0, sizeof(fuzz_orders));
	fuzz_defined_count = 0;
	return fuzz_open(&conf);
}

static inline void fuzz_close_itch(struct tw_feed *feed)
{
	require(fuzz_count(TW_FH_instruments) <= 8);
	require(fuzz_live() == fuzz_count(TW_FH_orders));
	tw_feed_destroy(feed);
}

#endif
