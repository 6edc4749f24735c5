/* Field descriptors of every message: names, types and places for whatever prints or documents them.
 *
 * A field is named as its struct member; only `class_` loses the underscore that C++ wants, and the
 * `kind` of PriceLimits is `limit_kind`, because `kind` names the message in JSON. */
#include "wire/datagram.h"

#define COUNT(array) (uint16_t)(sizeof(array) / sizeof((array)[0]))

/* One field of `struct tag`, named in output as `text`. */
#define FIELD_AS(tag, member, text, kind)                                                      \
	{                                                                                      \
		.name = (text), .type = TW_FIELD_##kind,                                       \
		.offset_bytes = (uint16_t)offsetof(struct tag, member),                        \
		.size_bytes = (uint16_t)sizeof(((struct tag *)0)->member), .enum_names = NULL, \
		.enum_count = 0                                                                \
	}
#define FIELD(tag, member, kind) FIELD_AS(tag, member, #member, kind)
#define ENUM_AS(tag, member, text, names)                                                         \
	{                                                                                         \
		.name = (text), .type = TW_FIELD_ENUM,                                            \
		.offset_bytes = (uint16_t)offsetof(struct tag, member),                           \
		.size_bytes = (uint16_t)sizeof(((struct tag *)0)->member), .enum_names = (names), \
		.enum_count = COUNT(names)                                                        \
	}
#define ENUM(tag, member, names) ENUM_AS(tag, member, #member, names)

static const char *const def_action_names[] = {
	[TW_DEF_ADD] = "add",
	[TW_DEF_MODIFY] = "modify",
	[TW_DEF_DELETE] = "delete",
};
static const char *const class_names[] = {
	[TW_CLASS_UNKNOWN] = "unknown", [TW_CLASS_EQUITY] = "equity", [TW_CLASS_ETP] = "etp",
	[TW_CLASS_FUTURE] = "future",   [TW_CLASS_OPTION] = "option", [TW_CLASS_SPREAD] = "spread",
};
static const char *const trading_status_names[] = {
	[TW_STATUS_UNKNOWN] = "unknown",       [TW_STATUS_TRADING] = "trading",
	[TW_STATUS_HALTED] = "halted",         [TW_STATUS_PAUSED] = "paused",
	[TW_STATUS_QUOTE_ONLY] = "quote_only", [TW_STATUS_PRE_OPEN] = "pre_open",
	[TW_STATUS_CLOSED] = "closed",
};
static const char *const status_scope_names[] = {
	[TW_STATUS_SCOPE_MARKET] = "market",
	[TW_STATUS_SCOPE_VENUE] = "venue",
};
static const char *const limit_kind_names[] = {
	[TW_LIMIT_LULD] = "luld",
	[TW_LIMIT_AUCTION_COLLAR] = "auction_collar",
	[TW_LIMIT_MARKET_WIDE] = "market_wide",
	[TW_LIMIT_DAILY] = "daily",
};
static const char *const short_sale_names[] = {
	[TW_SHORT_UNRESTRICTED] = "unrestricted",
	[TW_SHORT_RESTRICTED] = "restricted",
	[TW_SHORT_RESTRICTED_CONTINUED] = "restricted_continued",
};
static const char *const auction_names[] = {
	[TW_AUCTION_OPEN] = "open",
	[TW_AUCTION_CLOSE] = "close",
	[TW_AUCTION_IPO] = "ipo",
	[TW_AUCTION_HALT] = "halt",
	[TW_AUCTION_VOLATILITY] = "volatility",
};
static const char *const statistic_names[] = {
	[TW_STAT_OFFICIAL_OPEN] = "official_open",
	[TW_STAT_OFFICIAL_CLOSE] = "official_close",
	[TW_STAT_HIGH] = "high",
	[TW_STAT_LOW] = "low",
	[TW_STAT_SETTLEMENT] = "settlement",
	[TW_STAT_VOLUME] = "volume",
	[TW_STAT_OPEN_INTEREST] = "open_interest",
	[TW_STAT_IPO_PRICE] = "ipo_price",
	[TW_STAT_RETAIL_INTEREST] = "retail_interest",
};
static const char *const session_event_names[] = {
	[TW_SESSION_BEGIN] = "begin",
	[TW_SESSION_SYSTEM_START] = "system_start",
	[TW_SESSION_MARKET_OPEN] = "market_open",
	[TW_SESSION_MARKET_CLOSE] = "market_close",
	[TW_SESSION_SYSTEM_END] = "system_end",
	[TW_SESSION_END] = "end",
};

static const char *const side_names[] = {
	[TW_SIDE_NONE] = "none",
	[TW_SIDE_BUY] = "buy",
	[TW_SIDE_SELL] = "sell",
};
static const char *const flag_names[] = {
	"event_end", "snapshot", "book_bad", "ts_bad", "printable", "not_firm", "out_of_session",
};
_Static_assert(TW_MSG_OUT_OF_SESSION == 1 << (COUNT(flag_names) - 1), "a name for each flag");
static const char *const cond_names[] = {
	"odd_lot",
	"iso",
	"extended_hours",
	"open_cross",
	"close_cross",
	"halt_cross",
	"ipo_cross",
	"implied",
	"block",
	"trade_through_exempt",
	"single_price_cross",
	"intraday_cross",
};
_Static_assert(TW_COND_INTRADAY_CROSS == 1 << (COUNT(cond_names) - 1), "a name for each condition");

#define F(member, kind) FIELD(tw_msg_instrument_definition, member, kind)
static const struct tw_field instrument_definition_fields[] = {
	F(symbol, TEXT),
	F(raw_id, U64),
	F(mic, TEXT),
	F(currency, TEXT),
	F(tick_price, PRICE),
	F(display_factor, PRICE),
	F(multiplier, PRICE),
	F(round_lot_qty, QTY),
	F(expiry_ns, TIME_NS),
	F(strike_price, PRICE),
	F(reference_price, PRICE),
	F(group, TEXT),
	F(underlying_id, U32),
	F(trading_date, U32),
	F(depth_levels, U16),
	ENUM(tw_msg_instrument_definition, action, def_action_names),
	ENUM_AS(tw_msg_instrument_definition, class_, "class", class_names),
	F(put_call, CHAR),
	F(test, BOOL),
	F(luld_tier, U8),
	F(venue_flags, U8),
};
#undef F

#define F(member, kind) FIELD(tw_msg_instrument_leg, member, kind)
static const struct tw_field instrument_leg_fields[] = {
	F(leg_price, PRICE), F(leg_instrument_id, U32), F(ratio, I32),
	F(side, SIDE),       F(leg_index, U8),          F(leg_count, U8),
};
#undef F

#define F(member, kind) FIELD(tw_msg_quote, member, kind)
static const struct tw_field quote_fields[] = {
	F(bid_price, PRICE),
	F(bid_qty, SIDE_QTY),
	F(ask_price, PRICE),
	F(ask_qty, SIDE_QTY),
};
#undef F

#define F(member, kind) FIELD(tw_msg_order_add, member, kind)
static const struct tw_field order_add_fields[] = {
	F(order_id, U64), F(price, PRICE),      F(qty, QTY),
	F(priority, U64), F(participant, TEXT), F(side, SIDE),
};
#undef F

#define F(member, kind) FIELD(tw_msg_order_modify, member, kind)
static const struct tw_field order_modify_fields[] = {
	F(order_id, U64), F(price, PRICE), F(qty, QTY),
	F(priority, U64), F(side, SIDE),   F(keeps_priority, BOOL),
};
#undef F

#define F(member, kind) FIELD(tw_msg_order_replace, member, kind)
static const struct tw_field order_replace_fields[] = {
	F(order_id, U64), F(new_order_id, U64), F(price, PRICE), F(qty, QTY),
	F(priority, U64), F(participant, TEXT), F(side, SIDE),
};
#undef F

#define F(member, kind) FIELD(tw_msg_order_delete, member, kind)
static const struct tw_field order_delete_fields[] = {
	F(order_id, U64),
	F(side, SIDE),
};
#undef F

#define F(member, kind) FIELD(tw_msg_order_execute, member, kind)
static const struct tw_field order_execute_fields[] = {
	F(order_id, U64),      F(price, PRICE),    F(qty, QTY),
	F(remaining_qty, QTY), F(match_id, U64),   F(conditions, CONDITIONS),
	F(side, SIDE),         F(aggressor, SIDE), F(venue_conditions, RAW),
};
#undef F

#define F(member, kind) FIELD(tw_msg_level_update, member, kind)
static const struct tw_field level_update_fields[] = {
	F(price, PRICE), F(qty, QTY), F(order_count, U32), F(side, SIDE), F(implied, BOOL),
};
#undef F

#define F(member, kind) FIELD(tw_msg_book_clear, member, kind)
static const struct tw_field book_clear_fields[] = {
	F(side, SIDE),
};
#undef F

#define F(member, kind) FIELD(tw_msg_trade, member, kind)
static const struct tw_field trade_fields[] = {
	F(price, PRICE),           F(qty, QTY),        F(match_id, U64),
	F(conditions, CONDITIONS), F(aggressor, SIDE), F(venue_conditions, RAW),
};
#undef F

#define F(member, kind) FIELD(tw_msg_trade_cancel, member, kind)
static const struct tw_field trade_cancel_fields[] = {
	F(price, PRICE),          F(qty, QTY), F(match_id, U64), F(conditions, CONDITIONS),
	F(venue_conditions, RAW),
};
#undef F

#define F(member, kind) FIELD(tw_msg_trading_status, member, kind)
static const struct tw_field trading_status_fields[] = {
	ENUM(tw_msg_trading_status, status, trading_status_names),
	ENUM(tw_msg_trading_status, scope, status_scope_names),
	F(venue_status, CHAR),
	F(reason, TEXT),
};
#undef F

#define F(member, kind) FIELD(tw_msg_price_limits, member, kind)
static const struct tw_field price_limits_fields[] = {
	F(reference_price, PRICE),
	F(lower_price, PRICE),
	F(upper_price, PRICE),
	ENUM_AS(tw_msg_price_limits, kind, "limit_kind", limit_kind_names),
	F(level, U8),
	F(extension, U32),
};
#undef F

#define F(member, kind) FIELD(tw_msg_short_sale_status, member, kind)
static const struct tw_field short_sale_status_fields[] = {
	ENUM(tw_msg_short_sale_status, status, short_sale_names),
	F(detail, CHAR),
	F(venue_status, CHAR),
};
#undef F

#define F(member, kind) FIELD(tw_msg_participant_status, member, kind)
static const struct tw_field participant_status_fields[] = {
	F(participant, TEXT),
	F(primary, BOOL),
	F(mode, CHAR),
	F(state, CHAR),
};
#undef F

#define F(member, kind) FIELD(tw_msg_auction_imbalance, member, kind)
static const struct tw_field auction_imbalance_fields[] = {
	F(paired_qty, QTY),
	F(imbalance_qty, QTY),
	F(reference_price, PRICE),
	F(near_price, PRICE),
	F(far_price, PRICE),
	F(collar_reference_price, PRICE),
	F(lower_collar_price, PRICE),
	F(upper_collar_price, PRICE),
	F(scheduled_ns, TIME_NS),
	ENUM(tw_msg_auction_imbalance, auction, auction_names),
	F(side, SIDE),
	F(extensions, U8),
	F(venue_auction, CHAR),
	F(variation, CHAR),
};
#undef F

#define F(member, kind) FIELD(tw_msg_statistic, member, kind)
static const struct tw_field statistic_fields[] = {
	F(price, PRICE),
	F(qty, QTY),
	ENUM(tw_msg_statistic, type, statistic_names),
	F(venue_type, CHAR),
};
#undef F

#define F(member, kind) FIELD(tw_msg_session_event, member, kind)
static const struct tw_field session_event_fields[] = {
	F(trading_date, U32),
	ENUM(tw_msg_session_event, event, session_event_names),
	F(venue_event, CHAR),
};
#undef F

#define DESCRIBE(upper, kind_text, lower)                              \
	[TW_MSG_##upper] = {                                           \
		.kind = (kind_text),                                   \
		.template_id = TW_MSG_##upper,                         \
		.size_bytes = (uint16_t)sizeof(struct tw_msg_##lower), \
		.field_count = COUNT(lower##_fields),                  \
		.fields = lower##_fields,                              \
	}
static const struct tw_msg_desc descriptions[TW_MSG_KIND_LIMIT] = {
	DESCRIBE(INSTRUMENT_DEFINITION, "InstrumentDefinition", instrument_definition),
	DESCRIBE(INSTRUMENT_LEG, "InstrumentLeg", instrument_leg),
	DESCRIBE(QUOTE, "Quote", quote),
	DESCRIBE(ORDER_ADD, "OrderAdd", order_add),
	DESCRIBE(ORDER_MODIFY, "OrderModify", order_modify),
	DESCRIBE(ORDER_REPLACE, "OrderReplace", order_replace),
	DESCRIBE(ORDER_DELETE, "OrderDelete", order_delete),
	DESCRIBE(ORDER_EXECUTE, "OrderExecute", order_execute),
	DESCRIBE(LEVEL_UPDATE, "LevelUpdate", level_update),
	DESCRIBE(BOOK_CLEAR, "BookClear", book_clear),
	DESCRIBE(TRADE, "Trade", trade),
	DESCRIBE(TRADE_CANCEL, "TradeCancel", trade_cancel),
	DESCRIBE(TRADING_STATUS, "TradingStatus", trading_status),
	DESCRIBE(PRICE_LIMITS, "PriceLimits", price_limits),
	DESCRIBE(SHORT_SALE_STATUS, "ShortSaleStatus", short_sale_status),
	DESCRIBE(PARTICIPANT_STATUS, "ParticipantStatus", participant_status),
	DESCRIBE(AUCTION_IMBALANCE, "AuctionImbalance", auction_imbalance),
	DESCRIBE(STATISTIC, "Statistic", statistic),
	DESCRIBE(SESSION_EVENT, "SessionEvent", session_event),
};

const struct tw_msg_desc *tw_msg_describe(uint16_t template_id)
{
	if (template_id >= TW_MSG_KIND_LIMIT || descriptions[template_id].kind == NULL) {
		return NULL;
	}
	return &descriptions[template_id];
}

const char *tw_msg_kind_name(uint16_t template_id)
{
	const struct tw_msg_desc *desc = tw_msg_describe(template_id);

	return desc != NULL ? desc->kind : NULL;
}

const char *tw_side_name(uint8_t side)
{
	return side < COUNT(side_names) ? side_names[side] : NULL;
}

const char *tw_msg_flag_name(unsigned int bit)
{
	return bit < COUNT(flag_names) ? flag_names[bit] : NULL;
}

const char *tw_cond_name(unsigned int bit)
{
	return bit < COUNT(cond_names) ? cond_names[bit] : NULL;
}
