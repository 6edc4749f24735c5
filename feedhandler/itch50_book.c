/* Nasdaq TotalView-ITCH 5.0: orders and trades.  What they become, itch50.c says at its head.
 *
 * Threads   one. */
#include "feedhandler/itch50.h"

static uint16_t book_flags(const struct tw_itch50 *itch, const struct tw_instrument *instrument)
{
	return (uint16_t)(itch->book_flags | instrument->book_flags);
}

/* What the venue says contradicts what it said before. */
static void distrust(struct tw_feed *feed, struct tw_instrument *instrument)
{
	tw_feed_count(feed, TW_FH_unknown_values, 1);
	instrument->book_flags = TW_MSG_BOOK_BAD;
}

static uint64_t priority_of(struct tw_itch50 *itch, const struct tw_venue_msg *msg)
{
	return msg->seq != 0 ? msg->seq : ++itch->arrivals;
}

/* The instrument of a message without a symbol; NULL: not named yet. */
static struct tw_instrument *named(const struct tw_feed *feed, const uint8_t *data)
{
	return tw_instruments_find(&feed->instruments, tw_itch50_locate(data));
}

/* The order that a message names; NULL, and counted as `unknown`, where there is none of its instrument:
 * of one that is not named yet there can be none. */
static struct tw_itch50_order *order_of(struct tw_feed *feed, struct tw_itch50 *itch,
					const uint8_t *data, const struct tw_instrument *instrument,
					enum tw_fh_counter unknown)
{
	if (__builtin_expect(instrument != NULL, 1)) {
		struct tw_itch50_order *order =
			tw_itch50_orders_find(&itch->orders, tw_itch50_be64(data + 11));
		if (__builtin_expect(order != NULL && order->locate == tw_itch50_locate(data), 1)) {
			return order;
		}
	}
	tw_feed_count(feed, unknown, 1);
	return NULL;
}

static uint8_t side_of(uint8_t byte)
{
	return byte == 'B' ? TW_SIDE_BUY : byte == 'S' ? TW_SIDE_SELL : TW_SIDE_NONE;
}

/* The same for a message that says nothing of an order it does not find.  NULL too where no channel
 * carries the instrument, whose orders are not followed. */
static struct tw_itch50_order *order_to_change(struct tw_feed *feed, struct tw_itch50 *itch,
					       const uint8_t *data,
					       struct tw_instrument **instrument_p,
					       enum tw_fh_counter unknown)
{
	*instrument_p = named(feed, data);
	if (*instrument_p != NULL && (*instrument_p)->channels == 0) {
		return NULL;
	}
	return order_of(feed, itch, data, *instrument_p, unknown);
}

/* Who gets a trade that has no symbol; 0: nobody. */
static uint32_t channels_of(struct tw_feed *feed, const struct tw_instrument *instrument,
			    uint16_t locate)
{
	if (__builtin_expect(instrument != NULL, 1)) {
		return instrument->channels;
	}
	if (locate == 0) {
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return 0;
	}
	tw_feed_count(feed, TW_FH_unnamed_messages, 1);
	return feed->open_channels;
}

static void send_to(struct tw_feed *feed, struct tw_instrument *instrument,
		    const struct tw_msg_head *msg, uint32_t channels)
{
	if (__builtin_expect(instrument != NULL, 1)) {
		tw_feed_send(feed, instrument, msg);
	} else {
		tw_feed_emit(feed, msg, channels);
	}
}

/* A and F. */
static void add(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg,
		const uint8_t *mpid)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 24);
	if (instrument == NULL) {
		return;
	}
	uint64_t ref = tw_itch50_be64(p + 11);
	uint32_t qty = tw_itch50_be32(p + 20);
	uint32_t price = tw_itch50_be32(p + 32);
	uint8_t side = side_of(p[19]);
	if (__builtin_expect(side == TW_SIDE_NONE || qty == 0, 0)) {
		distrust(feed, instrument); /* no order that could be in a book */
		return;
	}
	struct tw_itch50_order *slot = tw_itch50_orders_seek(&itch->orders, ref);
	bool repeated = slot->side != TW_SIDE_NONE;
	if (__builtin_expect(repeated || tw_itch50_orders_full(&itch->orders), 0)) {
		/* not sent either: what is sent is what is followed, or it would never leave a book */
		tw_feed_count(feed, repeated ? TW_FH_orders_repeated : TW_FH_orders_refused, 1);
		instrument->book_flags = TW_MSG_BOOK_BAD;
		return;
	}
	unsigned int flags = TW_MSG_EVENT_END | book_flags(itch, instrument);
	struct tw_msg_order_add a = {
		.head = tw_itch50_stamp(feed, itch, msg, flags),
		.order_id = ref,
		.price = (int64_t)price * TW_ITCH50_PRICE4,
		.qty = qty,
		.priority = priority_of(itch, msg),
		.side = side,
	};
	if (mpid != NULL) {
		tw_feed_unpad(a.participant, mpid, 4);
	}
	tw_itch50_orders_take(&itch->orders, slot, ref);
	slot->priority = a.priority;
	slot->price = price;
	slot->qty = qty;
	memcpy(slot->participant, a.participant, sizeof(slot->participant));
	slot->locate = tw_itch50_locate(p);
	slot->side = side;
	instrument->has_book = 1;
	tw_feed_send_as(feed, instrument, TW_MSG_ORDER_ADD, &a.head, sizeof(a));
}

void tw_itch50_order_added(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg)
{
	add(feed, itch, msg, NULL);
}

void tw_itch50_order_added_by(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	add(feed, itch, msg, msg->data + 36);
}

/* What a trade does to its order, and what the order says of the trade. */
static void take_from(struct tw_feed *feed, struct tw_itch50 *itch, struct tw_itch50_order *order,
		      struct tw_instrument *instrument, struct tw_msg_order_execute *e,
		      bool printable)
{
	uint32_t qty = (uint32_t)e->qty;
	if (__builtin_expect(qty > order->qty, 0)) {
		distrust(feed, instrument);
		order->qty = qty;
	}
	order->qty -= qty;
	e->remaining_qty = order->qty;
	e->side = order->side;
	if (printable) {
		e->aggressor = order->side == TW_SIDE_BUY ? TW_SIDE_SELL : TW_SIDE_BUY;
	}
	if (e->price == TW_PRICE_NONE) {
		e->price = (int64_t)order->price * TW_ITCH50_PRICE4;
	}
	if (order->qty == 0) {
		tw_itch50_orders_remove(&itch->orders, order);
	}
}

/* E and C but for what they say of price and printing: `e` has those. */
static void execute(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg,
		    struct tw_msg_order_execute *e, enum tw_fh_counter unknown, unsigned int flags)
{
	const uint8_t *p = msg->data;
	uint16_t locate = tw_itch50_locate(p);
	struct tw_instrument *instrument = named(feed, p);
	if (instrument != NULL && instrument->channels == 0) {
		return;
	}
	struct tw_itch50_order *order = order_of(feed, itch, p, instrument, unknown);
	uint32_t channels = channels_of(feed, instrument, locate);
	if (channels == 0) {
		return;
	}
	e->order_id = tw_itch50_be64(p + 11);
	e->qty = tw_itch50_be32(p + 19);
	e->match_id = tw_itch50_be64(p + 23);
	if (__builtin_expect(order != NULL, 1)) {
		take_from(feed, itch, order, instrument, e, (flags & TW_MSG_PRINTABLE) != 0);
		flags |= book_flags(itch, instrument);
	} else {
		flags |= TW_MSG_BOOK_BAD;
	}
	e->head = tw_itch50_stamp(feed, itch, msg, flags | TW_MSG_EVENT_END);
	tw_feed_kind(&e->head, TW_MSG_ORDER_EXECUTE, sizeof(*e));
	e->head.instrument_id = locate;
	send_to(feed, instrument, &e->head, channels);
}

void tw_itch50_order_executed(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	struct tw_msg_order_execute e = { .price = TW_PRICE_NONE };
	execute(feed, itch, msg, &e, TW_FH_unknown_executed, TW_MSG_PRINTABLE);
}

void tw_itch50_order_executed_at(struct tw_feed *feed, struct tw_itch50 *itch,
				 const struct tw_venue_msg *msg)
{
	uint8_t printable = msg->data[31];
	struct tw_msg_order_execute e = {
		.price = tw_itch50_price(msg->data + 32),
		.venue_conditions = { (char)printable },
	};
	if (printable != 'Y' && printable != 'N') {
		tw_feed_count(feed, TW_FH_unknown_values, 1);
	}
	execute(feed, itch, msg, &e, TW_FH_unknown_priced,
		printable == 'Y' ? TW_MSG_PRINTABLE : 0u);
}

/* The order leaves the book: D, X of all that is left, U by nothing. */
static void drop_order(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg,
		       struct tw_instrument *instrument, struct tw_itch50_order *order)
{
	unsigned int flags = TW_MSG_EVENT_END | book_flags(itch, instrument);
	struct tw_msg_order_delete d = {
		.head = tw_itch50_stamp(feed, itch, msg, flags),
		.order_id = order->ref,
		.side = order->side,
	};
	tw_itch50_orders_remove(&itch->orders, order);
	tw_feed_send_as(feed, instrument, TW_MSG_ORDER_DELETE, &d.head, sizeof(d));
}

void tw_itch50_order_deleted(struct tw_feed *feed, struct tw_itch50 *itch,
			     const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument;
	struct tw_itch50_order *order =
		order_to_change(feed, itch, msg->data, &instrument, TW_FH_unknown_deleted);
	if (order != NULL) {
		drop_order(feed, itch, msg, instrument, order);
	}
}

void tw_itch50_order_cancelled(struct tw_feed *feed, struct tw_itch50 *itch,
			       const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument;
	struct tw_itch50_order *order =
		order_to_change(feed, itch, msg->data, &instrument, TW_FH_unknown_cancelled);
	if (order == NULL) {
		return;
	}
	uint32_t qty = tw_itch50_be32(msg->data + 19);
	if (qty >= order->qty) {
		if (qty > order->qty) {
			distrust(feed, instrument);
		}
		drop_order(feed, itch, msg, instrument, order);
		return;
	}
	order->qty -= qty;
	unsigned int flags = TW_MSG_EVENT_END | book_flags(itch, instrument);
	struct tw_msg_order_modify m = {
		.head = tw_itch50_stamp(feed, itch, msg, flags),
		.order_id = order->ref,
		.price = (int64_t)order->price * TW_ITCH50_PRICE4,
		.qty = order->qty,
		.priority = order->priority,
		.side = order->side,
		.keeps_priority = 1,
	};
	tw_feed_send_as(feed, instrument, TW_MSG_ORDER_MODIFY, &m.head, sizeof(m));
}

void tw_itch50_order_replaced(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument;
	struct tw_itch50_order *old =
		order_to_change(feed, itch, p, &instrument, TW_FH_unknown_replaced);
	if (old == NULL) {
		return;
	}
	struct tw_itch50_order order = *old; /* side, instrument and participant stay */
	order.ref = tw_itch50_be64(p + 19);
	order.qty = tw_itch50_be32(p + 27);
	order.price = tw_itch50_be32(p + 31);
	bool repeated =
		order.ref != old->ref && tw_itch50_orders_find(&itch->orders, order.ref) != NULL;
	if (__builtin_expect(repeated || order.qty == 0, 0)) {
		if (repeated) {
			tw_feed_count(feed, TW_FH_orders_repeated, 1);
		}
		distrust(feed, instrument);
		drop_order(feed, itch, msg, instrument, old); /* that much is sure */
		return;
	}
	order.priority = priority_of(itch, msg);
	uint64_t old_ref = old->ref;
	tw_itch50_orders_remove(&itch->orders, old);
	struct tw_itch50_order *slot = tw_itch50_orders_seek(&itch->orders, order.ref);
	tw_itch50_orders_take(&itch->orders, slot, order.ref);
	tw_itch50_orders_copy(slot, &order);

	unsigned int flags = TW_MSG_EVENT_END | book_flags(itch, instrument);
	struct tw_msg_order_replace r = {
		.head = tw_itch50_stamp(feed, itch, msg, flags),
		.order_id = old_ref,
		.new_order_id = order.ref,
		.price = (int64_t)order.price * TW_ITCH50_PRICE4,
		.qty = order.qty,
		.priority = order.priority,
		.side = order.side,
	};
	memcpy(r.participant, order.participant, sizeof(order.participant));
	tw_feed_send_as(feed, instrument, TW_MSG_ORDER_REPLACE, &r.head, sizeof(r));
}

/* P: a match with a hidden order. */
void tw_itch50_hidden_trade(struct tw_feed *feed, struct tw_itch50 *itch,
			    const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 24);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_trade t = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END | TW_MSG_PRINTABLE),
		.price = tw_itch50_price(p + 32),
		.qty = tw_itch50_be32(p + 20),
		.match_id = tw_itch50_be64(p + 36),
		.aggressor = TW_SIDE_NONE,
	};
	tw_feed_send_as(feed, instrument, TW_MSG_TRADE, &t.head, sizeof(t));
}

/* An IPO's cross and one after a halt are the same type: what it was, a trading action says. */
static uint32_t cross_conditions(struct tw_feed *feed, uint8_t type)
{
	switch (type) {
	case 'O':
		return TW_COND_OPEN_CROSS;
	case 'C':
		return TW_COND_CLOSE_CROSS;
	case 'H':
		return TW_COND_HALT_CROSS;
	case 'I':
		return TW_COND_INTRADAY_CROSS;
	default:
		tw_feed_count(feed, TW_FH_unknown_values, 1);
		return 0;
	}
}

/* Q: one for every instrument after a cross, with no shares where there was nothing to match. */
void tw_itch50_cross_trade(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 19);
	if (instrument == NULL) {
		return;
	}
	uint64_t qty = tw_itch50_be64(p + 11);
	unsigned int flags = TW_MSG_EVENT_END | (qty > 0 ? TW_MSG_PRINTABLE : 0u);
	struct tw_msg_trade t = {
		.head = tw_itch50_stamp(feed, itch, msg, flags),
		.price = tw_itch50_optional_price(p + 27),
		.qty = qty,
		.match_id = tw_itch50_be64(p + 31),
		.conditions = cross_conditions(feed, p[39]),
		.aggressor = TW_SIDE_NONE,
		.venue_conditions = { (char)p[39] },
	};
	tw_feed_send_as(feed, instrument, TW_MSG_TRADE, &t.head, sizeof(t));
}

/* B: names the match alone; price and quantity are those of the trade that had it. */
void tw_itch50_broken_trade(struct tw_feed *feed, struct tw_itch50 *itch,
			    const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = named(feed, msg->data);
	uint16_t locate = tw_itch50_locate(msg->data);
	uint32_t channels = channels_of(feed, instrument, locate);
	if (channels == 0) {
		return;
	}
	struct tw_msg_trade_cancel c = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.price = TW_PRICE_NONE,
		.match_id = tw_itch50_be64(msg->data + 11),
	};
	tw_feed_kind(&c.head, TW_MSG_TRADE_CANCEL, sizeof(c));
	c.head.instrument_id = locate;
	send_to(feed, instrument, &c.head, channels);
}
