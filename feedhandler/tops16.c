/* IEX TOPS 1.6: best quotes, trades, statuses and auction information of the Investors Exchange.
 *
 * Every message begins alike: type u8, one byte of flags or state, timestamp i64 ns, symbol char[8]
 * (blank-padded; S has none).  Messages may grow: bytes after those known are ignored.
 * Absent     a quote side is absent where price and size are both 0.  A price of 0 elsewhere (adjusted
 *            close, official and auction prices) means that there is none.
 * EVENT_END  on every message: TOPS does not mark the end of an event.
 * Threads    pure functions of feed and message.
 * Spec       [IEX DEEP+ Specification, 14 January 2025] for the messages that it shares with TOPS (S D H
 *            I O P E T B), their values and flag bits; Q, X and A as in Open Markets Initiative's tables
 *            of TOPS 1.6; all checked on recorded sessions. */
#include "base/bytes.h"
#include "config/config.h"
#include "feedhandler/feed.h"
#include "feedhandler/protocol.h"

enum { /* offsets common to all messages */
       AT_STATE = 1,
       AT_TIME = 2,
       AT_SYMBOL = 10,
       AT_REST = 18,
       SYMBOL_BYTES = 8
};

enum { /* length of each message up to the fields that are known */
       SYSTEM_EVENT_BYTES = 10,
       DIRECTORY_BYTES = 31,
       TRADING_STATUS_BYTES = 22,
       RETAIL_BYTES = 18,
       OPERATIONAL_HALT_BYTES = 18,
       SHORT_SALE_BYTES = 19,
       SECURITY_EVENT_BYTES = 18,
       QUOTE_BYTES = 42,
       TRADE_BYTES = 38,
       OFFICIAL_PRICE_BYTES = 26,
       AUCTION_BYTES = 80
};

enum { /* flag bits, from the most significant one down */
       DIRECTORY_TEST = 0x80,
       DIRECTORY_ETP = 0x20,
       QUOTE_HALTED = 0x80,
       QUOTE_OUT_OF_SESSION = 0x40,
       SALE_ISO = 0x80,
       SALE_EXTENDED_HOURS = 0x40,
       SALE_ODD_LOT = 0x20,
       SALE_TRADE_THROUGH_EXEMPT = 0x10,
       SALE_SINGLE_PRICE_CROSS = 0x08
};

#define PRICE_FACTOR 100000 /* 1e-4 to 1e-9 */
#define UNKNOWN      UINT8_MAX

static uint32_t load_le32(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

static int64_t load_le64(const uint8_t *p)
{
	int64_t v;
	memcpy(&v, p, sizeof(v));
	return v;
}

/* A price of which 0 means none. */
static int64_t optional_price(struct tw_feed *feed, const uint8_t *p)
{
	int64_t raw = load_le64(p);
	int64_t price = TW_PRICE_NONE;
	if (raw != 0 && !tw_feed_price(raw, PRICE_FACTOR, &price)) {
		tw_feed_unknown_value(feed);
	}
	return price;
}

static int64_t price_of(struct tw_feed *feed, const uint8_t *p)
{
	int64_t price;
	if (!tw_feed_price(load_le64(p), PRICE_FACTOR, &price)) {
		tw_feed_unknown_value(feed);
	}
	return price;
}

static struct tw_msg_head stamp(struct tw_feed *feed, const struct tw_venue_msg *msg,
				unsigned int flags)
{
	return tw_feed_stamp(feed, msg, load_le64(msg->data + AT_TIME), (uint16_t)flags);
}

/* Not inlined: who looks an instrument up would save registers for it. */
static __attribute__((cold, noinline)) struct tw_instrument *first_sight(struct tw_feed *feed,
									 uint64_t key,
									 const uint8_t *bytes)
{
	char symbol[TW_SYMBOL_BYTES];
	if (!tw_feed_symbol(symbol, bytes, SYMBOL_BYTES)) {
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return NULL;
	}
	return tw_feed_first_sight(feed, key, symbol);
}

/* NULL: no channel carries it, or it was refused. */
static struct tw_instrument *instrument_of(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	uint64_t key;
	memcpy(&key, msg->data + AT_SYMBOL, sizeof(key));
	struct tw_instrument *instrument = tw_instruments_find(&feed->instruments, key);
	if (__builtin_expect(instrument == NULL, 0)) {
		instrument = first_sight(feed, key, msg->data + AT_SYMBOL);
	}
	return instrument != NULL && instrument->channels != 0 ? instrument : NULL;
}

/* One side of a quote.  Price without size, size without price or a price below 0 are not in the
 * protocol: no side that one could trade on, so it is absent. */
static void quote_side(struct tw_feed *feed, int64_t raw_price, uint32_t size, int64_t *price,
		       uint64_t *qty)
{
	*price = TW_PRICE_NONE;
	*qty = 0;
	if (raw_price > 0 && size > 0 && tw_feed_price(raw_price, PRICE_FACTOR, price)) {
		*qty = size;
	} else if (raw_price != 0 || size != 0) {
		tw_feed_unknown_value(feed);
	}
}

static void quote(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	const uint8_t *p = msg->data;
	unsigned int flags = TW_MSG_EVENT_END;
	flags |= (p[AT_STATE] & QUOTE_HALTED) != 0 ? TW_MSG_NOT_FIRM : 0u;
	flags |= (p[AT_STATE] & QUOTE_OUT_OF_SESSION) != 0 ? TW_MSG_OUT_OF_SESSION : 0u;
	struct tw_msg_quote q = { .head = stamp(feed, msg, flags) };
	tw_feed_kind(&q.head, TW_MSG_QUOTE, sizeof(q));
	q.head.instrument_id = instrument->id;
	quote_side(feed, load_le64(p + 22), load_le32(p + 18), &q.bid_price, &q.bid_qty);
	quote_side(feed, load_le64(p + 30), load_le32(p + 38), &q.ask_price, &q.ask_qty);
	tw_feed_send(feed, instrument, &q.head);
}

static uint32_t conditions_of(uint8_t sale)
{
	uint32_t conditions = 0;
	conditions |= (sale & SALE_ISO) != 0 ? TW_COND_ISO : 0u;
	conditions |= (sale & SALE_EXTENDED_HOURS) != 0 ? TW_COND_EXTENDED_HOURS : 0u;
	conditions |= (sale & SALE_ODD_LOT) != 0 ? TW_COND_ODD_LOT : 0u;
	conditions |= (sale & SALE_TRADE_THROUGH_EXEMPT) != 0 ? TW_COND_TRADE_THROUGH_EXEMPT : 0u;
	conditions |= (sale & SALE_SINGLE_PRICE_CROSS) != 0 ? TW_COND_SINGLE_PRICE_CROSS : 0u;
	return conditions;
}

/* Every trade counts towards volume, whatever its flags [IEX DEEP+ appendix A, eligibility]. */
static unsigned int trade_flags(uint8_t sale)
{
	return TW_MSG_EVENT_END | TW_MSG_PRINTABLE |
	       ((sale & SALE_EXTENDED_HOURS) != 0 ? TW_MSG_OUT_OF_SESSION : 0u);
}

static void trade(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	const uint8_t *p = msg->data;
	struct tw_msg_trade t = {
		.head = stamp(feed, msg, trade_flags(p[AT_STATE])),
		.price = price_of(feed, p + 22),
		.qty = load_le32(p + 18),
		.match_id = (uint64_t)load_le64(p + 30),
		.conditions = conditions_of(p[AT_STATE]),
		.aggressor = TW_SIDE_NONE,
		.venue_conditions = { (char)p[AT_STATE] },
	};
	tw_feed_send_as(feed, instrument, TW_MSG_TRADE, &t.head, sizeof(t));
}

static void trade_break(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	const uint8_t *p = msg->data;
	struct tw_msg_trade_cancel c = {
		.head = stamp(feed, msg, trade_flags(p[AT_STATE])),
		.price = price_of(feed, p + 22),
		.qty = load_le32(p + 18),
		.match_id = (uint64_t)load_le64(p + 30),
		.conditions = conditions_of(p[AT_STATE]),
		.venue_conditions = { (char)p[AT_STATE] },
	};
	tw_feed_send_as(feed, instrument, TW_MSG_TRADE_CANCEL, &c.head, sizeof(c));
}

/* A definition in full; the symbol alone may have been announced before. */
static void directory(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	const uint8_t *p = msg->data;
	struct tw_msg_head head = stamp(feed, msg, TW_MSG_EVENT_END);
	struct tw_msg_instrument_definition def = tw_feed_definition(feed, instrument, &head);
	def.venue_flags = p[AT_STATE];
	def.test = (p[AT_STATE] & DIRECTORY_TEST) != 0;
	def.class_ = (p[AT_STATE] & DIRECTORY_ETP) != 0 ? TW_CLASS_ETP : TW_CLASS_EQUITY;
	def.round_lot_qty = load_le32(p + 18);
	def.reference_price = optional_price(feed, p + 22);
	def.luld_tier = p[30];
	if (def.luld_tier > 2) {
		tw_feed_unknown_value(feed);
		def.luld_tier = 0;
	}
	instrument->defined = 1;
	tw_feed_emit(feed, &def.head, instrument->channels);
}

static void trading_status(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter statuses[] = {
		{ 'H', TW_STATUS_HALTED }, /* across all markets */
		{ 'O', TW_STATUS_PAUSED }, /* released into an order acceptance period */
		{ 'P', TW_STATUS_PAUSED }, /* paused, and an order acceptance period */
		{ 'T', TW_STATUS_TRADING }, { 0 },
	};
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_trading_status s = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.scope = TW_STATUS_SCOPE_MARKET,
		.venue_status = (char)msg->data[AT_STATE],
	};
	s.status = tw_feed_meaning(feed, statuses, msg->data[AT_STATE], TW_STATUS_UNKNOWN);
	tw_feed_unpad(s.reason, msg->data + AT_REST, sizeof(s.reason));
	tw_feed_send_as(feed, instrument, TW_MSG_TRADING_STATUS, &s.head, sizeof(s));
}

static void operational_halt(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter statuses[] = {
		{ 'O', TW_STATUS_HALTED },
		{ 'N', TW_STATUS_TRADING }, /* not halted here; the market's state is H's */
		{ 0 },
	};
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_trading_status s = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.scope = TW_STATUS_SCOPE_VENUE,
		.venue_status = (char)msg->data[AT_STATE],
	};
	s.status = tw_feed_meaning(feed, statuses, msg->data[AT_STATE], TW_STATUS_UNKNOWN);
	tw_feed_send_as(feed, instrument, TW_MSG_TRADING_STATUS, &s.head, sizeof(s));
}

static void short_sale(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	uint8_t state = msg->data[AT_STATE];
	char detail = (char)msg->data[AT_REST];
	struct tw_msg_short_sale_status s = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.status = TW_SHORT_UNRESTRICTED,
		.detail = detail,
		.venue_status = (char)state,
	};
	if (state !=
	    0) { /* 1; anything else is taken for the restriction, to err on the safe side */
		s.status = detail == 'C' ? TW_SHORT_RESTRICTED_CONTINUED : TW_SHORT_RESTRICTED;
	}
	bool known =
		detail == ' ' || detail == 'A' || detail == 'C' || detail == 'D' || detail == 'N';
	if (state > 1 || !known) {
		tw_feed_unknown_value(feed);
	}
	tw_feed_send_as(feed, instrument, TW_MSG_SHORT_SALE_STATUS, &s.head, sizeof(s));
}

/* Which sides have hidden interest for retail orders: qty is the set, bit 0 buy and bit 1 sell. */
static void retail_interest(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter sides[] = {
		{ ' ', 0 },
		{ 'A', TW_SIDE_BUY },
		{ 'B', TW_SIDE_SELL },
		{ 'C', TW_SIDE_BUY | TW_SIDE_SELL },
		{ 0 },
	};
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_statistic s = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.price = TW_PRICE_NONE,
		.type = TW_STAT_RETAIL_INTEREST,
		.venue_type = (char)msg->data[AT_STATE],
	};
	s.qty = tw_feed_meaning(feed, sides, msg->data[AT_STATE], UNKNOWN);
	if (s.qty == UNKNOWN) {
		return; /* no interest that could be stated */
	}
	tw_feed_send_as(feed, instrument, TW_MSG_STATISTIC, &s.head, sizeof(s));
}

static void official_price(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter types[] = {
		{ 'Q', TW_STAT_OFFICIAL_OPEN },
		{ 'M', TW_STAT_OFFICIAL_CLOSE },
		{ 0 },
	};
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_statistic s = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.price = optional_price(feed, msg->data + AT_REST),
		.venue_type = (char)msg->data[AT_STATE],
	};
	s.type = tw_feed_meaning(feed, types, msg->data[AT_STATE], UNKNOWN);
	if (s.type == UNKNOWN) {
		return; /* a price of nobody knows what */
	}
	tw_feed_send_as(feed, instrument, TW_MSG_STATISTIC, &s.head, sizeof(s));
}

static uint8_t auction_of(struct tw_feed *feed, uint8_t type)
{
	switch (type) {
	case 'O':
		return TW_AUCTION_OPEN;
	case 'C':
		return TW_AUCTION_CLOSE;
	case 'I':
		return TW_AUCTION_IPO;
	case 'H':
		return TW_AUCTION_HALT;
	case 'V':
		return TW_AUCTION_VOLATILITY;
	default:
		tw_feed_unknown_value(feed);
		return 0;
	}
}

static uint8_t imbalance_side(struct tw_feed *feed, uint8_t side)
{
	switch (side) {
	case 'B':
		return TW_SIDE_BUY;
	case 'S':
		return TW_SIDE_SELL;
	case 'N':
		return TW_SIDE_NONE;
	default:
		tw_feed_unknown_value(feed);
		return TW_SIDE_NONE;
	}
}

static void auction(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	const uint8_t *p = msg->data;
	struct tw_msg_auction_imbalance a = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.paired_qty = load_le32(p + 18),
		.imbalance_qty = load_le32(p + 38),
		.reference_price = optional_price(feed, p + 22),
		.near_price = optional_price(feed, p + 30), /* of all eligible orders */
		.far_price = optional_price(feed, p + 48),  /* of the auction book alone */
		.collar_reference_price = optional_price(feed, p + 56),
		.lower_collar_price = optional_price(feed, p + 64),
		.upper_collar_price = optional_price(feed, p + 72),
		.auction = auction_of(feed, p[AT_STATE]),
		.side = imbalance_side(feed, p[42]),
		.extensions = p[43],
		.venue_auction = (char)p[AT_STATE],
	};
	(void)tw_feed_time(feed, load_le32(p + 44) * INT64_C(1000000000), &a.scheduled_ns);
	tw_feed_send_as(feed, instrument, TW_MSG_AUCTION_IMBALANCE, &a.head, sizeof(a));
}

static void send_session_event(struct tw_feed *feed, const struct tw_venue_msg *msg, uint8_t event,
			       struct tw_instrument *instrument)
{
	struct tw_msg_session_event e = {
		.head = stamp(feed, msg, TW_MSG_EVENT_END),
		.event = event,
		.venue_event = (char)msg->data[AT_STATE],
	};
	e.trading_date = tw_feed_date(feed, e.head.exchange_ns);
	tw_feed_kind(&e.head, TW_MSG_SESSION_EVENT, sizeof(e));
	if (instrument == NULL) {
		tw_feed_emit(feed, &e.head, feed->all_channels); /* market-wide */
		return;
	}
	e.head.instrument_id = instrument->id;
	tw_feed_send(feed, instrument, &e.head);
}

static void system_event(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter events[] = {
		{ 'O', TW_SESSION_BEGIN },
		{ 'S', TW_SESSION_SYSTEM_START },
		{ 'R', TW_SESSION_MARKET_OPEN },
		{ 'M', TW_SESSION_MARKET_CLOSE },
		{ 'E', TW_SESSION_SYSTEM_END },
		{ 'C', TW_SESSION_END },
		{ 0 },
	};
	uint8_t event = tw_feed_meaning(feed, events, msg->data[AT_STATE], UNKNOWN);
	if (event != UNKNOWN) {
		send_session_event(feed, msg, event, NULL);
	}
}

/* Opening or closing process of one instrument complete. */
static void security_event(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter events[] = {
		{ 'O', TW_SESSION_MARKET_OPEN },
		{ 'C', TW_SESSION_MARKET_CLOSE },
		{ 0 },
	};
	struct tw_instrument *instrument = instrument_of(feed, msg);
	if (instrument == NULL) {
		return;
	}
	uint8_t event = tw_feed_meaning(feed, events, msg->data[AT_STATE], UNKNOWN);
	if (event != UNKNOWN) {
		send_session_event(feed, msg, event, instrument);
	}
}

struct handler {
	void (*fn)(struct tw_feed *feed, const struct tw_venue_msg *msg);
	uint32_t min_bytes;
};

static const struct handler handlers[256] = {
	['S'] = { system_event, SYSTEM_EVENT_BYTES },
	['D'] = { directory, DIRECTORY_BYTES },
	['H'] = { trading_status, TRADING_STATUS_BYTES },
	['I'] = { retail_interest, RETAIL_BYTES },
	['O'] = { operational_halt, OPERATIONAL_HALT_BYTES },
	['P'] = { short_sale, SHORT_SALE_BYTES },
	['E'] = { security_event, SECURITY_EVENT_BYTES },
	['Q'] = { quote, QUOTE_BYTES },
	['T'] = { trade, TRADE_BYTES },
	['B'] = { trade_break, TRADE_BYTES },
	['X'] = { official_price, OFFICIAL_PRICE_BYTES },
	['A'] = { auction, AUCTION_BYTES },
};

static void tops16_message(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	if (msg->len_bytes == 0) {
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return;
	}
	const struct handler *handler = &handlers[msg->data[0]];
	if (handler->fn == NULL) {
		tw_feed_count(feed, TW_FH_unknown_messages, 1);
		return;
	}
	if (msg->len_bytes <
	    handler->min_bytes) { /* the one length check: offsets are fixed after it */
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return;
	}
	handler->fn(feed, msg);
}

static void tops16_messages(struct tw_feed *feed, const struct tw_venue_msg *msgs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tops16_message(feed, &msgs[i]);
	}
}

const struct tw_protocol tw_protocol_tops16 = {
	.name = "tops16",
	.session = "iextp",
	.help = "IEX TOPS 1.6: top of book and trades",
	.currency = "USD",
	.transport_id = 0x8003,
	.depth_levels = 1,
	/* New York in winter.  In summer the day rolls at 01:00 there, when IEX is closed either way. */
	.zone_seconds = -5 * 3600,
	.depths = 1u << TW_DEPTH_QUOTES,
	.messages = tops16_messages,
};
