/* Nasdaq TotalView-ITCH 5.0 at depth `orders`: the decoder, its state and what its messages mean.
 *
 * An order message changes an order by its reference number; side, price and participant are the
 * ones of its A or F message.  So live orders are kept here, and each message leaves with all of it.
 * Unknown orders  those added before we began, or after a gap (docs/decisions/002-itch-unknown-orders.md).
 *            X, D and U on one are counted and sent as nothing: a replacement's side is not known, so
 *            the new number stays unknown too.  E and C are trades all the same: they are sent
 *            with no side and no remaining quantity, E with no price either.
 * Unnamed instruments  a locate code is named by the first message that carries a symbol.  Trades before that
 *            go, without a definition, to the channels that carry all symbols; they are counted.
 * BOOK_BAD   on order messages until a day is followed from its "start of messages" on, and again after a
 *            gap; on those of one instrument after an order of it was refused or contradicted.
 * PRINTABLE  on E, P and Q with shares, on C only where it says so: what it does not print, Q prints in bulk.
 * Aggressor  the other side of a resting order's; none in a cross (C that is not printable, Q) and for P,
 *            whose side field is 'B' whatever rested [s.1.5.1].
 * EVENT_END  on every message: ITCH does not mark the end of an event.
 * Priority   of an order is the venue's number of the message that brought it; C, E and X keep it.
 * Days       times count from midnight in New York: of trading_date where it is configured, else of the day
 *            that the message was received on there.  Without either (the epoch's first day stands
 *            for that) they count from that day, with TS_BAD.
 * Threads    one.
 * Spec       [Nasdaq TotalView-ITCH 5.0, 28 April 2023]; cross type I as in its edition of 2017 */
#include "feedhandler/itch50.h"

#include <stdlib.h>

#include "base/fail.h"
#include "config/config.h"
#include "feedhandler/civil.h"

const struct tw_itch50_handler tw_itch50_handlers[256] = {
	['S'] = { tw_itch50_system_event, 12 },    ['R'] = { tw_itch50_directory, 39 },
	['H'] = { tw_itch50_trading_action, 25 },  ['Y'] = { tw_itch50_short_sale, 20 },
	['L'] = { tw_itch50_participant, 26 },     ['V'] = { tw_itch50_circuit_levels, 35 },
	['W'] = { tw_itch50_circuit_breach, 12 },  ['K'] = { tw_itch50_ipo, 28 },
	['J'] = { tw_itch50_collar, 35 },          ['h'] = { tw_itch50_operational_halt, 21 },
	['A'] = { tw_itch50_order_added, 36 },     ['F'] = { tw_itch50_order_added_by, 40 },
	['E'] = { tw_itch50_order_executed, 31 },  ['C'] = { tw_itch50_order_executed_at, 36 },
	['X'] = { tw_itch50_order_cancelled, 23 }, ['D'] = { tw_itch50_order_deleted, 19 },
	['U'] = { tw_itch50_order_replaced, 35 },  ['P'] = { tw_itch50_hidden_trade, 44 },
	['Q'] = { tw_itch50_cross_trade, 40 },     ['B'] = { tw_itch50_broken_trade, 19 },
	['I'] = { tw_itch50_imbalance, 50 },       ['N'] = { tw_itch50_retail_interest, 20 },
	['O'] = { tw_itch50_capital_raise, 48 },
};

void tw_itch50_clear_books(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg)
{
	for (uint32_t i = 0; i <= feed->instruments.slot_mask; i++) {
		struct tw_instrument *instrument = &feed->instruments.slots[i];
		instrument->book_flags = 0;
		if (!instrument->has_book) {
			continue;
		}
		instrument->has_book = 0;
		unsigned int flags = TW_MSG_EVENT_END | itch->book_flags;
		struct tw_msg_book_clear c = {
			.head = tw_itch50_stamp(feed, itch, msg, flags),
			.side = TW_SIDE_NONE,
		};
		tw_feed_send_as(feed, instrument, TW_MSG_BOOK_CLEAR, &c.head, sizeof(c));
	}
	tw_itch50_orders_clear(&itch->orders);
}

/* Another session: its orders are others, and its locate codes are given anew. */
static void clear_all(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg)
{
	itch->clear_due = false;
	itch->book_flags = TW_MSG_BOOK_BAD;
	tw_itch50_clear_books(feed, itch, msg);
	tw_instruments_clear(&feed->instruments);
	tw_counter_set(&feed->counters, TW_FH_instruments, 0);
}

/* The day of `recv_ns`, as the recording has it, is not the one under way. */
static void another_day(struct tw_itch50 *itch, uint64_t recv_ns)
{
	struct tw_civil_day day = { 0 };
	bool known = recv_ns != 0 && tw_new_york_day_of(&day, recv_ns);
	if (itch->day_ns == UINT64_MAX || (itch->dated && !known)) {
		return; /* configured; or a packet without a time, which is of the day under way */
	}
	/* numbers of orders and locate codes are a day's */
	itch->clear_due = itch->clear_due || (itch->dated && day.begin_ns != itch->midnight_ns);
	itch->midnight_ns = known ? day.begin_ns : 0;
	itch->day_ns = known ? day.end_ns - day.begin_ns : 0;
	itch->dated = known && tw_civil_days(day.date) != 0;
}

static void itch50_message(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg)
{
	if (msg->len_bytes == 0) {
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return;
	}
	const struct tw_itch50_handler *handler = &tw_itch50_handlers[msg->data[0]];
	if (handler->fn == NULL) {
		tw_feed_count(feed, TW_FH_unknown_messages, 1);
		return;
	}
	if (msg->len_bytes <
	    handler->min_bytes) { /* the one length check: offsets are fixed after it */
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return;
	}
	uint64_t recv_ns = msg->recv_ns == 0 ? 0 : msg->recv_ns - (uint64_t)feed->shift_ns;
	if (__builtin_expect(recv_ns - itch->midnight_ns >= itch->day_ns, 0)) {
		another_day(itch, recv_ns);
	}
	if (__builtin_expect(itch->clear_due, 0)) {
		clear_all(feed, itch, msg);
	}
	handler->fn(feed, itch, msg);
}

/* Fetches what the message will look at.  Order messages have their number in one place, U its new one behind it,
 * and all have their locate code; what else lies there does no harm.  Inlined always: gcc takes a function that does
 * nothing but prefetch for one that does nothing, and drops its calls. */
static inline __attribute__((always_inline)) void fetch(const struct tw_feed *feed,
							const struct tw_itch50 *itch,
							const struct tw_venue_msg *msg)
{
	const uint8_t *data = msg->data;
	if (msg->len_bytes >= 19) {
		tw_itch50_orders_prefetch(&itch->orders, tw_itch50_be64(data + 11));
		if (data[0] == 'U' && msg->len_bytes >= 27) {
			tw_itch50_orders_prefetch(&itch->orders, tw_itch50_be64(data + 19));
		}
		const struct tw_instruments *instruments = &feed->instruments;
		uint32_t slot = tw_instruments_slot(instruments, tw_itch50_locate(data));
		__builtin_prefetch(&instruments->slots[slot]);
	}
}

static void itch50_ahead(const struct tw_feed *feed, const struct tw_venue_msg *msgs,
			 uint32_t count)
{
	const struct tw_itch50 *itch = feed->protocol_state;
	for (uint32_t i = 0; i < count; i++) {
		fetch(feed, itch, &msgs[i]);
	}
}

static void itch50_messages(struct tw_feed *feed, const struct tw_venue_msg *msgs, uint32_t count)
{
	struct tw_itch50 *itch = feed->protocol_state;
	for (uint32_t i = 0; i < count; i++) {
		itch50_message(feed, itch, &msgs[i]);
	}
	tw_counter_set(&feed->counters, TW_FH_orders, itch->orders.count);
}

static int itch50_open(struct tw_feed *feed, const struct tw_feed_conf *conf, struct tw_error *err)
{
	struct tw_civil_day day = { 0 };
	if (conf->trading_date != 0 && !tw_new_york_day(&day, conf->trading_date)) {
		return tw_fail(err, TW_ECONFIG,
			       "trading_date: found %u, allowed is a day as YYYYMMDD",
			       conf->trading_date);
	}
	struct tw_itch50 *itch = calloc(1, sizeof(*itch));
	if (itch == NULL) {
		return tw_fail(err, TW_ENOMEM, "itch50: out of memory");
	}
	uint32_t max = conf->max_orders != 0 ? conf->max_orders : TW_ITCH50_ORDERS_DEFAULT;
	int rc = tw_itch50_orders_init(&itch->orders, max, err);
	if (rc != TW_OK) {
		free(itch);
		return rc;
	}
	itch->book_flags = TW_MSG_BOOK_BAD;
	if (conf->trading_date != 0) {
		itch->midnight_ns = day.begin_ns;
		itch->day_ns = UINT64_MAX;
		itch->dated = true;
	}
	feed->protocol_state = itch;
	return TW_OK;
}

static void itch50_close(struct tw_feed *feed)
{
	struct tw_itch50 *itch = feed->protocol_state;
	tw_itch50_orders_fini(&itch->orders);
	free(itch);
	feed->protocol_state = NULL;
}

static void itch50_session_changed(struct tw_feed *feed)
{
	struct tw_itch50 *itch = feed->protocol_state;
	itch->clear_due = true; /* with the next message, whose stamp a BookClear can have */
}

static void itch50_gap(struct tw_feed *feed)
{
	struct tw_itch50 *itch = feed->protocol_state;
	itch->book_flags = TW_MSG_BOOK_BAD;
}

const struct tw_protocol tw_protocol_itch50 = {
	.name = "itch50",
	.session = "moldudp64",
	.help = "Nasdaq TotalView-ITCH 5.0: orders and trades",
	.currency = "USD",
	.depth_levels = 0,
	/* New York in winter.  In summer the day rolls at 01:00 there, when Nasdaq is closed either way. */
	.zone_seconds = -5 * 3600,
	.depths = 1u << TW_DEPTH_ORDERS,
	.numbered = true,
	.messages = itch50_messages,
	.open = itch50_open,
	.close = itch50_close,
	.session_changed = itch50_session_changed,
	.gap = itch50_gap,
	.ahead = itch50_ahead,
};
