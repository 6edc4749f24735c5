/* Nasdaq TotalView-ITCH 5.0: instruments, statuses, auctions and the day's events.
 *
 * Prices     a price of 0 in NOII, IPO, collar and circuit breaker messages means that there is none.
 * W          says that a circuit breaker's level was breached, not what trading does about it (that depends
 *            on level and hour): a market-wide status, unknown, with the reason code of that level.
 *            Halts follow as H messages.
 * O          becomes two PriceLimits: the prices that the opening may have at all (daily), and its collar.
 *            Eligibility and the time of the near execution price have no field.
 * h          of another of Nasdaq's markets is counted and passed over: it is no state of this venue.
 * Threads    one.
 * Spec       [Nasdaq TotalView-ITCH 5.0, 28 April 2023] */
#include "feedhandler/itch50.h"

#define UNKNOWN UINT8_MAX

struct tw_instrument *tw_itch50_first_sight(struct tw_feed *feed, uint16_t locate,
					    const uint8_t *symbol_bytes)
{
	char symbol[TW_SYMBOL_BYTES];
	if (locate == 0 || !tw_feed_symbol(symbol, symbol_bytes, TW_ITCH50_SYMBOL_BYTES)) {
		tw_feed_count(feed, TW_FH_malformed_messages, 1);
		return NULL;
	}
	return tw_feed_first_sight(feed, locate, symbol);
}

static void send_market_wide(struct tw_feed *feed, enum tw_msg_kind kind, struct tw_msg_head *msg,
			     size_t msg_bytes)
{
	tw_feed_kind(msg, kind, msg_bytes);
	tw_feed_emit(feed, msg, feed->all_channels);
}

/* S */
void tw_itch50_system_event(struct tw_feed *feed, struct tw_itch50 *itch,
			    const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter events[] = {
		{ 'O', TW_SESSION_BEGIN },
		{ 'S', TW_SESSION_SYSTEM_START },
		{ 'Q', TW_SESSION_MARKET_OPEN },
		{ 'M', TW_SESSION_MARKET_CLOSE },
		{ 'E', TW_SESSION_SYSTEM_END },
		{ 'C', TW_SESSION_END },
		{ 0 },
	};
	struct tw_msg_session_event e = {
		.event = tw_feed_meaning(feed, events, msg->data[11], UNKNOWN),
		.venue_event = (char)msg->data[11],
	};
	if (e.event == UNKNOWN) {
		return;
	}
	if (e.event ==
	    TW_SESSION_BEGIN) { /* no order is older than this: from here books are whole */
		itch->book_flags = 0;
		tw_itch50_clear_books(feed, itch, msg);
	}
	e.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END);
	e.trading_date = tw_feed_date(feed, e.head.exchange_ns);
	send_market_wide(feed, TW_MSG_SESSION_EVENT, &e.head, sizeof(e));
}

static uint8_t class_of(const uint8_t *p)
{
	if (p[33] == 'Y') {
		return TW_CLASS_ETP;
	}
	switch (p[26]) {
	case 'B': /* bond */
	case 'I': /* 144A */
	case 'N': /* notes */
	case 'Q': /* other securities */
	case 'T': /* convertible debenture */
		return TW_CLASS_UNKNOWN;
	default:
		return TW_CLASS_EQUITY;
	}
}

/* R: a definition in full; the symbol alone may have been announced before. */
void tw_itch50_directory(struct tw_feed *feed, struct tw_itch50 *itch,
			 const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_head head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END);
	struct tw_msg_instrument_definition def = tw_feed_definition(feed, instrument, &head);
	def.round_lot_qty = tw_itch50_be32(p + 21);
	def.class_ = class_of(p);
	def.test = p[29] == 'T';
	def.luld_tier = p[32] == '1' || p[32] == '2' ? (uint8_t)(p[32] - '0') : 0;
	if ((p[29] != 'T' && p[29] != 'P') || (def.luld_tier == 0 && p[32] != ' ')) {
		tw_feed_unknown_value(feed);
	}
	char symbol[TW_SYMBOL_BYTES];
	if (!tw_feed_symbol(symbol, p + 11, TW_ITCH50_SYMBOL_BYTES) ||
	    memcmp(symbol, instrument->symbol, sizeof(symbol)) != 0) {
		tw_feed_unknown_value(feed); /* a locate code keeps its symbol for the day */
		return;
	}
	/* market category, issue classification, issue sub-type */
	def.group[0] = (char)p[19];
	memcpy(def.group + 1, p + 26, 3);
	tw_feed_unpad(def.group, (const uint8_t *)def.group, 4);
	instrument->defined = 1;
	tw_feed_emit(feed, &def.head, instrument->channels);
}

/* H */
void tw_itch50_trading_action(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter statuses[] = {
		{ 'H', TW_STATUS_HALTED },
		{ 'P', TW_STATUS_PAUSED },
		{ 'Q', TW_STATUS_QUOTE_ONLY },
		{ 'T', TW_STATUS_TRADING },
		{ 0 },
	};
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_trading_status s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.scope = TW_STATUS_SCOPE_MARKET,
		.venue_status = (char)p[19],
	};
	s.status = tw_feed_meaning(feed, statuses, p[19], TW_STATUS_UNKNOWN);
	tw_feed_unpad(s.reason, p + 21, sizeof(s.reason));
	tw_feed_send_as(feed, instrument, TW_MSG_TRADING_STATUS, &s.head, sizeof(s));
}

/* Which of Nasdaq's markets the venue is. */
static char market_of(const struct tw_feed *feed)
{
	if (memcmp(feed->mic, "XBOS", sizeof(feed->mic)) == 0) {
		return 'B';
	}
	return memcmp(feed->mic, "XPSX", sizeof(feed->mic)) == 0 ? 'X' : 'Q';
}

/* h */
void tw_itch50_operational_halt(struct tw_feed *feed, struct tw_itch50 *itch,
				const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter statuses[] = {
		{ 'H', TW_STATUS_HALTED },
		{ 'T', TW_STATUS_TRADING },
		{ 0 },
	};
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	if ((char)p[19] != market_of(feed)) {
		tw_feed_count(feed, TW_FH_other_markets, 1);
		return;
	}
	struct tw_msg_trading_status s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.scope = TW_STATUS_SCOPE_VENUE,
		.venue_status = (char)p[20],
	};
	s.status = tw_feed_meaning(feed, statuses, p[20], TW_STATUS_UNKNOWN);
	tw_feed_send_as(feed, instrument, TW_MSG_TRADING_STATUS, &s.head, sizeof(s));
}

/* Y */
void tw_itch50_short_sale(struct tw_feed *feed, struct tw_itch50 *itch,
			  const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter statuses[] = {
		{ '0', TW_SHORT_UNRESTRICTED },
		{ '1', TW_SHORT_RESTRICTED },
		{ '2', TW_SHORT_RESTRICTED_CONTINUED },
		{ 0 },
	};
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_short_sale_status s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.venue_status = (char)p[19],
	};
	/* otherwise: to err on the safe side */
	s.status = tw_feed_meaning(feed, statuses, p[19], TW_SHORT_RESTRICTED);
	tw_feed_send_as(feed, instrument, TW_MSG_SHORT_SALE_STATUS, &s.head, sizeof(s));
}

/* L */
void tw_itch50_participant(struct tw_feed *feed, struct tw_itch50 *itch,
			   const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 15);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_participant_status s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.primary = p[23] == 'Y',
		.mode = (char)p[24],
		.state = (char)p[25],
	};
	if (p[23] != 'Y' && p[23] != 'N') {
		tw_feed_unknown_value(feed);
	}
	tw_feed_unpad(s.participant, p + 11, 4);
	tw_feed_send_as(feed, instrument, TW_MSG_PARTICIPANT_STATUS, &s.head, sizeof(s));
}

/* V: a message for each of the three levels, from the highest index value down. */
void tw_itch50_circuit_levels(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	for (uint8_t level = 1; level <= 3; level++) {
		uint64_t raw = tw_itch50_be64(msg->data + 3 + (size_t)8 * level);
		struct tw_msg_price_limits l = {
			.head = tw_itch50_stamp(feed, itch, msg,
						level == 3 ? TW_MSG_EVENT_END : 0u),
			.reference_price = TW_PRICE_NONE,
			.lower_price = TW_PRICE_NONE,
			.upper_price = TW_PRICE_NONE,
			.kind = TW_LIMIT_MARKET_WIDE,
			.level = level,
		};
		if (raw > INT64_MAX ||
		    (raw != 0 && !tw_feed_price((int64_t)raw, TW_ITCH50_PRICE8, &l.lower_price))) {
			tw_feed_unknown_value(feed);
		}
		send_market_wide(feed, TW_MSG_PRICE_LIMITS, &l.head, sizeof(l));
	}
}

/* W */
void tw_itch50_circuit_breach(struct tw_feed *feed, struct tw_itch50 *itch,
			      const struct tw_venue_msg *msg)
{
	char level = (char)msg->data[11];
	if (level < '1' || level > '3') {
		tw_feed_unknown_value(feed);
		return;
	}
	struct tw_msg_trading_status s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.status = TW_STATUS_UNKNOWN,
		.scope = TW_STATUS_SCOPE_MARKET,
		.venue_status = level,
		.reason = { 'M', 'W', 'C', level },
	};
	send_market_wide(feed, TW_MSG_TRADING_STATUS, &s.head, sizeof(s));
}

/* The instrument of a message that has its symbol but may have locate code 0.  Rare: a walk will do. */
static struct tw_instrument *find_symbol(const struct tw_feed *feed, const uint8_t *bytes)
{
	char symbol[TW_SYMBOL_BYTES];
	if (!tw_feed_symbol(symbol, bytes, TW_ITCH50_SYMBOL_BYTES)) {
		return NULL;
	}
	for (uint32_t i = 0; i <= feed->instruments.slot_mask; i++) {
		struct tw_instrument *instrument = &feed->instruments.slots[i];
		if (instrument->state == TW_INSTRUMENT_USED &&
		    memcmp(instrument->symbol, symbol, sizeof(symbol)) == 0) {
			return instrument;
		}
	}
	return NULL;
}

/* A time of day in seconds to one since the epoch; 0 where there is none. */
static uint64_t time_of(struct tw_feed *feed, const struct tw_itch50 *itch, uint32_t seconds)
{
	uint64_t ns = 0;
	if (seconds >= TW_ITCH50_LONGEST_DAY_NS / 1000000000u) {
		tw_feed_unknown_value(feed);
	} else if (seconds != 0 && itch->dated) {
		int64_t at_ns = (int64_t)(itch->midnight_ns + seconds * UINT64_C(1000000000));
		(void)tw_feed_time(feed, at_ns, &ns);
	}
	return ns;
}

/* K: its locate code is always 0 [s.1.2.6].  qty is the time of release for quotation, 0 where it is
 * cancelled, and then there is no price either. */
void tw_itch50_ipo(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument;
	if (tw_itch50_locate(p) != 0) {
		instrument = tw_itch50_instrument(feed, p, p + 11);
	} else {
		instrument = find_symbol(feed, p + 11);
		if (instrument == NULL) {
			tw_feed_count(feed, TW_FH_unnamed_messages, 1);
		}
	}
	if (instrument == NULL || instrument->channels == 0) {
		return;
	}
	struct tw_msg_statistic s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.price = tw_itch50_optional_price(p + 24),
		.qty = time_of(feed, itch, tw_itch50_be32(p + 19)),
		.type = TW_STAT_IPO_PRICE,
		.venue_type = (char)p[23],
	};
	if (p[23] != 'A' && p[23] != 'C') {
		tw_feed_unknown_value(feed);
	}
	tw_feed_send_as(feed, instrument, TW_MSG_STATISTIC, &s.head, sizeof(s));
}

/* J */
void tw_itch50_collar(struct tw_feed *feed, struct tw_itch50 *itch, const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_price_limits l = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.reference_price = tw_itch50_optional_price(p + 19),
		.lower_price = tw_itch50_optional_price(p + 27),
		.upper_price = tw_itch50_optional_price(p + 23),
		.kind = TW_LIMIT_AUCTION_COLLAR,
		.extension = tw_itch50_be32(p + 31),
	};
	tw_feed_send_as(feed, instrument, TW_MSG_PRICE_LIMITS, &l.head, sizeof(l));
}

/* A cross after a halt and an IPO's are one type; the extended trading close has none here. */
static uint8_t auction_of(struct tw_feed *feed, uint8_t type)
{
	switch (type) {
	case 'O':
		return TW_AUCTION_OPEN;
	case 'C':
		return TW_AUCTION_CLOSE;
	case 'H':
		return TW_AUCTION_HALT;
	case 'A':
		return 0;
	default:
		tw_feed_unknown_value(feed);
		return 0;
	}
}

/* No side where there is no imbalance, where there are too few orders to tell, and in a pause. */
static uint8_t imbalance_side(struct tw_feed *feed, uint8_t direction)
{
	switch (direction) {
	case 'B':
		return TW_SIDE_BUY;
	case 'S':
		return TW_SIDE_SELL;
	case 'N':
	case 'O':
	case 'P':
		return TW_SIDE_NONE;
	default:
		tw_feed_unknown_value(feed);
		return TW_SIDE_NONE;
	}
}

/* I */
void tw_itch50_imbalance(struct tw_feed *feed, struct tw_itch50 *itch,
			 const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 28);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_auction_imbalance a = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.paired_qty = tw_itch50_be64(p + 11),
		.imbalance_qty = tw_itch50_be64(p + 19),
		.reference_price = tw_itch50_optional_price(p + 44),
		.near_price = tw_itch50_optional_price(p + 40),
		.far_price = tw_itch50_optional_price(p + 36),
		.collar_reference_price = TW_PRICE_NONE,
		.lower_collar_price = TW_PRICE_NONE,
		.upper_collar_price = TW_PRICE_NONE,
		.auction = auction_of(feed, p[48]),
		.side = imbalance_side(feed, p[27]),
		.venue_auction = (char)p[48],
		.variation = (char)p[49],
	};
	tw_feed_send_as(feed, instrument, TW_MSG_AUCTION_IMBALANCE, &a.head, sizeof(a));
}

/* N: which sides have hidden interest for retail orders; qty is the set, bit 0 buy and bit 1 sell. */
void tw_itch50_retail_interest(struct tw_feed *feed, struct tw_itch50 *itch,
			       const struct tw_venue_msg *msg)
{
	static const struct tw_feed_letter sides[] = {
		{ 'N', 0 },
		{ 'B', TW_SIDE_BUY },
		{ 'S', TW_SIDE_SELL },
		{ 'A', TW_SIDE_BUY | TW_SIDE_SELL },
		{ 0 },
	};
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_statistic s = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.price = TW_PRICE_NONE,
		.type = TW_STAT_RETAIL_INTEREST,
		.venue_type = (char)p[19],
	};
	s.qty = tw_feed_meaning(feed, sides, p[19], UNKNOWN);
	if (s.qty == UNKNOWN) {
		return; /* no interest that could be stated */
	}
	tw_feed_send_as(feed, instrument, TW_MSG_STATISTIC, &s.head, sizeof(s));
}

/* O: price discovery of a direct listing with capital raise. */
void tw_itch50_capital_raise(struct tw_feed *feed, struct tw_itch50 *itch,
			     const struct tw_venue_msg *msg)
{
	const uint8_t *p = msg->data;
	struct tw_instrument *instrument = tw_itch50_instrument(feed, p, p + 11);
	if (instrument == NULL) {
		return;
	}
	struct tw_msg_price_limits allowed = {
		.head = tw_itch50_stamp(feed, itch, msg, 0),
		.reference_price = TW_PRICE_NONE,
		.lower_price = tw_itch50_optional_price(p + 20),
		.upper_price = tw_itch50_optional_price(p + 24),
		.kind = TW_LIMIT_DAILY,
	};
	struct tw_msg_price_limits collar = {
		.head = tw_itch50_stamp(feed, itch, msg, TW_MSG_EVENT_END),
		.reference_price = tw_itch50_optional_price(p + 28),
		.lower_price = tw_itch50_optional_price(p + 40),
		.upper_price = tw_itch50_optional_price(p + 44),
		.kind = TW_LIMIT_AUCTION_COLLAR,
	};
	tw_feed_send_as(feed, instrument, TW_MSG_PRICE_LIMITS, &allowed.head, sizeof(allowed));
	tw_feed_send_as(feed, instrument, TW_MSG_PRICE_LIMITS, &collar.head, sizeof(collar));
}
