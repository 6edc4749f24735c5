/* Tidewire messages: SBE blocks of fixed length, described for other languages by
 * core/wire/tidewire.xml and in prose by docs/WIRE.md.
 *
 * Layout   every message is the 8-byte SBE header and one block; both together are a multiple of 8
 *          bytes, and a message starts 8-byte aligned in its datagram.  A reader skips templates
 *          that it does not know and the tail of blocks longer than it knows.
 * Units    prices int64 in 1e-9 of the currency, TW_PRICE_NONE where there is none; quantities
 *          uint64; times uint64 ns since the Unix epoch.  Text is padded with NUL bytes. */
#ifndef TIDEWIRE_MSG_H
#define TIDEWIRE_MSG_H

#include <stddef.h>
#include <stdint.h>

#define TW_MSG_SCHEMA_ID      0x5457 /* "WT": Tidewire */
#define TW_MSG_SCHEMA_VERSION 0
#define TW_PRICE_NONE         INT64_MAX
#define TW_PRICE_SCALE        1000000000LL
#define TW_MSG_MAX_BYTES      256u /* header and block; larger ones are malformed */

/* name, template id, JSON kind and struct tag share one table */
#define TW_MSG_TABLE(X)                                                                 \
	X(INSTRUMENT_DEFINITION, 1, InstrumentDefinition, tw_msg_instrument_definition) \
	X(INSTRUMENT_LEG, 2, InstrumentLeg, tw_msg_instrument_leg)                      \
	X(QUOTE, 3, Quote, tw_msg_quote)                                                \
	X(ORDER_ADD, 4, OrderAdd, tw_msg_order_add)                                     \
	X(ORDER_MODIFY, 5, OrderModify, tw_msg_order_modify)                            \
	X(ORDER_REPLACE, 6, OrderReplace, tw_msg_order_replace)                         \
	X(ORDER_DELETE, 7, OrderDelete, tw_msg_order_delete)                            \
	X(ORDER_EXECUTE, 8, OrderExecute, tw_msg_order_execute)                         \
	X(LEVEL_UPDATE, 9, LevelUpdate, tw_msg_level_update)                            \
	X(BOOK_CLEAR, 10, BookClear, tw_msg_book_clear)                                 \
	X(TRADE, 11, Trade, tw_msg_trade)                                               \
	X(TRADE_CANCEL, 12, TradeCancel, tw_msg_trade_cancel)                           \
	X(TRADING_STATUS, 13, TradingStatus, tw_msg_trading_status)                     \
	X(PRICE_LIMITS, 14, PriceLimits, tw_msg_price_limits)                           \
	X(SHORT_SALE_STATUS, 15, ShortSaleStatus, tw_msg_short_sale_status)             \
	X(PARTICIPANT_STATUS, 16, ParticipantStatus, tw_msg_participant_status)         \
	X(AUCTION_IMBALANCE, 17, AuctionImbalance, tw_msg_auction_imbalance)            \
	X(STATISTIC, 18, Statistic, tw_msg_statistic)                                   \
	X(SESSION_EVENT, 19, SessionEvent, tw_msg_session_event)

enum tw_msg_kind {
#define TW_MSG_ENUM(name, id, kind, tag) TW_MSG_##name = (id),
	TW_MSG_TABLE(TW_MSG_ENUM)
#undef TW_MSG_ENUM
		TW_MSG_KIND_LIMIT /* one past the largest known template id */
};

/* Flags of the common head. */
enum tw_msg_flag {
	TW_MSG_EVENT_END = 0x0001,     /* last message of this instrument in the venue's event */
	TW_MSG_SNAPSHOT = 0x0002,      /* part of an image, not a change */
	TW_MSG_BOOK_BAD = 0x0004,      /* derived from a book that did not start at a known state */
	TW_MSG_TS_BAD = 0x0008,        /* recv_delta_ns is saturated or the clock is unsettled */
	TW_MSG_PRINTABLE = 0x0010,     /* counts towards volume */
	TW_MSG_NOT_FIRM = 0x0020,      /* indicative, or the instrument is halted */
	TW_MSG_OUT_OF_SESSION = 0x0040 /* outside the regular market session */
};

enum tw_side { TW_SIDE_NONE = 0, TW_SIDE_BUY = 1, TW_SIDE_SELL = 2 };

/* Trade conditions, a set. */
enum tw_cond {
	TW_COND_ODD_LOT = 0x0001,
	TW_COND_ISO = 0x0002,
	TW_COND_EXTENDED_HOURS = 0x0004,
	TW_COND_OPEN_CROSS = 0x0008,
	TW_COND_CLOSE_CROSS = 0x0010,
	TW_COND_HALT_CROSS = 0x0020,
	TW_COND_IPO_CROSS = 0x0040,
	TW_COND_IMPLIED = 0x0080,
	TW_COND_BLOCK = 0x0100,
	TW_COND_TRADE_THROUGH_EXEMPT = 0x0200,
	TW_COND_SINGLE_PRICE_CROSS = 0x0400,
	TW_COND_INTRADAY_CROSS = 0x0800
};

struct tw_msg_sbe {            /* the standard SBE message header */
	uint16_t block_length; /* bytes after this header */
	uint16_t template_id;  /* enum tw_msg_kind */
	uint16_t schema_id;
	uint16_t version;
};

struct tw_msg_head { /* every message begins so */
	struct tw_msg_sbe sbe;
	uint32_t instrument_id; /* with venue and trading date: the identity; 0 for market-wide */
	uint16_t venue_id;      /* site-wide table */
	uint16_t flags;         /* enum tw_msg_flag */
	uint64_t exchange_ns;
	uint32_t exchange_seq; /* low bits of the venue's sequence number */
	int32_t recv_delta_ns; /* exchange_ns -> feedhandler; saturates and sets TS_BAD */
};

enum tw_def_action { TW_DEF_ADD = 1, TW_DEF_MODIFY = 2, TW_DEF_DELETE = 3 };
enum tw_class {
	TW_CLASS_UNKNOWN = 0,
	TW_CLASS_EQUITY = 1,
	TW_CLASS_ETP = 2,
	TW_CLASS_FUTURE = 3,
	TW_CLASS_OPTION = 4,
	TW_CLASS_SPREAD = 5
};

struct tw_msg_instrument_definition {
	struct tw_msg_head head;
	char symbol[32];
	uint64_t raw_id; /* the venue's own number, 0 where there is none */
	char mic[4];
	char currency[4];
	int64_t tick_price;     /* 1e-9, PRICE_NONE where variable or unknown */
	int64_t display_factor; /* 1e-9 */
	int64_t multiplier;     /* 1e-9 contract units, 1e9 for shares */
	uint64_t round_lot_qty;
	uint64_t expiry_ns;
	int64_t strike_price;
	int64_t reference_price; /* adjusted previous close, PRICE_NONE where unknown */
	char group[8];
	uint32_t underlying_id;
	uint32_t trading_date; /* YYYYMMDD, 0 where unknown */
	uint16_t depth_levels;
	uint8_t action;      /* enum tw_def_action */
	uint8_t class_;      /* enum tw_class */
	uint8_t put_call;    /* 'P', 'C' or 0 */
	uint8_t test;        /* 1: a test instrument */
	uint8_t luld_tier;   /* 0 not applicable, 1, 2 */
	uint8_t venue_flags; /* the venue's raw flag byte, 0 where there is none */
};

struct tw_msg_instrument_leg {
	struct tw_msg_head head;
	int64_t leg_price;
	uint32_t leg_instrument_id;
	int32_t ratio;
	uint8_t side; /* enum tw_side */
	uint8_t leg_index;
	uint8_t leg_count;
	uint8_t pad[5];
};

struct tw_msg_quote { /* best bid and offer; an absent side is PRICE_NONE and quantity 0 */
	struct tw_msg_head head;
	int64_t bid_price;
	uint64_t bid_qty;
	int64_t ask_price;
	uint64_t ask_qty;
};

struct tw_msg_order_add {
	struct tw_msg_head head;
	uint64_t order_id;
	int64_t price;
	uint64_t qty;
	uint64_t priority;
	char participant[8];
	uint8_t side;
	uint8_t pad[7];
};

struct tw_msg_order_modify { /* same order id; qty is the new open quantity */
	struct tw_msg_head head;
	uint64_t order_id;
	int64_t price;
	uint64_t qty;
	uint64_t priority;
	uint8_t side;
	uint8_t keeps_priority;
	uint8_t pad[6];
};

struct tw_msg_order_replace {
	struct tw_msg_head head;
	uint64_t order_id;
	uint64_t new_order_id;
	int64_t price;
	uint64_t qty;
	uint64_t priority;
	char participant[8];
	uint8_t side;
	uint8_t pad[7];
};

struct tw_msg_order_delete {
	struct tw_msg_head head;
	uint64_t order_id;
	uint8_t side;
	uint8_t pad[7];
};

struct tw_msg_order_execute {
	struct tw_msg_head head;
	uint64_t order_id;
	int64_t price;
	uint64_t qty;
	uint64_t remaining_qty;
	uint64_t match_id;
	uint32_t conditions; /* enum tw_cond */
	uint8_t side;        /* of the resting order */
	uint8_t aggressor;   /* enum tw_side */
	uint8_t pad[2];
	char venue_conditions[8];
};

struct tw_msg_level_update { /* keyed by price; qty 0 removes the level */
	struct tw_msg_head head;
	int64_t price;
	uint64_t qty;
	uint32_t order_count;
	uint8_t side;
	uint8_t implied; /* 1: the implied book */
	uint8_t pad[2];
};

struct tw_msg_book_clear {
	struct tw_msg_head head;
	uint8_t side; /* TW_SIDE_NONE: both */
	uint8_t pad[7];
};

struct tw_msg_trade {
	struct tw_msg_head head;
	int64_t price;
	uint64_t qty;
	uint64_t match_id;
	uint32_t conditions; /* enum tw_cond */
	uint8_t aggressor;   /* enum tw_side */
	uint8_t pad[3];
	char venue_conditions[8]; /* the venue's raw condition bytes */
};

struct tw_msg_trade_cancel {
	struct tw_msg_head head;
	int64_t price;
	uint64_t qty;
	uint64_t match_id;
	uint32_t conditions;
	uint8_t pad[4];
	char venue_conditions[8];
};

enum tw_trading_status {
	TW_STATUS_UNKNOWN = 0,
	TW_STATUS_TRADING = 1,
	TW_STATUS_HALTED = 2,
	TW_STATUS_PAUSED = 3, /* order acceptance period, no matching */
	TW_STATUS_QUOTE_ONLY = 4,
	TW_STATUS_PRE_OPEN = 5,
	TW_STATUS_CLOSED = 6
};
enum tw_status_scope_kind {
	TW_STATUS_SCOPE_MARKET = 1, /* every venue: a regulatory state */
	TW_STATUS_SCOPE_VENUE = 2   /* this venue only: an operational halt */
};

struct tw_msg_trading_status {
	struct tw_msg_head head;
	uint8_t status; /* enum tw_trading_status */
	uint8_t scope;  /* enum tw_status_scope_kind */
	char venue_status;
	uint8_t pad;
	char reason[4];
};

enum tw_limit_kind {
	TW_LIMIT_LULD = 1,
	TW_LIMIT_AUCTION_COLLAR = 2,
	TW_LIMIT_MARKET_WIDE = 3,
	TW_LIMIT_DAILY = 4
};

struct tw_msg_price_limits {
	struct tw_msg_head head;
	int64_t reference_price;
	int64_t lower_price;
	int64_t upper_price;
	uint8_t kind;  /* enum tw_limit_kind */
	uint8_t level; /* of a market-wide circuit breaker */
	uint8_t pad[2];
	uint32_t extension;
};

enum tw_short_sale {
	TW_SHORT_UNRESTRICTED = 0,
	TW_SHORT_RESTRICTED = 1,
	TW_SHORT_RESTRICTED_CONTINUED = 2
};

struct tw_msg_short_sale_status {
	struct tw_msg_head head;
	uint8_t status; /* enum tw_short_sale */
	char detail;    /* the venue's raw reason */
	char venue_status;
	uint8_t pad[5];
};

struct tw_msg_participant_status {
	struct tw_msg_head head;
	char participant[8];
	uint8_t primary;
	char mode;
	char state;
	uint8_t pad[5];
};

enum tw_auction {
	TW_AUCTION_OPEN = 1,
	TW_AUCTION_CLOSE = 2,
	TW_AUCTION_IPO = 3,
	TW_AUCTION_HALT = 4,
	TW_AUCTION_VOLATILITY = 5
};

struct tw_msg_auction_imbalance {
	struct tw_msg_head head;
	uint64_t paired_qty;
	uint64_t imbalance_qty;
	int64_t reference_price;
	int64_t near_price; /* clearing price of auction and continuous book together */
	int64_t far_price;  /* clearing price of the auction book alone */
	int64_t collar_reference_price;
	int64_t lower_collar_price;
	int64_t upper_collar_price;
	uint64_t scheduled_ns;
	uint8_t auction; /* enum tw_auction */
	uint8_t side;    /* of the imbalance */
	uint8_t extensions;
	char venue_auction;
	char variation; /* the venue's raw price-variation indicator */
	uint8_t pad[3];
};

enum tw_statistic {
	TW_STAT_OFFICIAL_OPEN = 1,
	TW_STAT_OFFICIAL_CLOSE = 2,
	TW_STAT_HIGH = 3,
	TW_STAT_LOW = 4,
	TW_STAT_SETTLEMENT = 5,
	TW_STAT_VOLUME = 6,
	TW_STAT_OPEN_INTEREST = 7,
	TW_STAT_IPO_PRICE = 8,
	TW_STAT_RETAIL_INTEREST = 9
};

struct tw_msg_statistic {
	struct tw_msg_head head;
	int64_t price; /* PRICE_NONE where the statistic is a quantity */
	uint64_t qty;
	uint16_t type; /* enum tw_statistic */
	char venue_type;
	uint8_t pad[5];
};

enum tw_session_event {
	TW_SESSION_BEGIN = 1,
	TW_SESSION_SYSTEM_START = 2,
	TW_SESSION_MARKET_OPEN = 3,
	TW_SESSION_MARKET_CLOSE = 4,
	TW_SESSION_SYSTEM_END = 5,
	TW_SESSION_END = 6
};

struct tw_msg_session_event {
	struct tw_msg_head head;
	uint32_t trading_date; /* YYYYMMDD in the venue's zone, 0 where unknown */
	uint8_t event;         /* enum tw_session_event */
	char venue_event;
	uint8_t pad[2];
};

#ifndef __cplusplus
_Static_assert(sizeof(struct tw_msg_head) == 32, "common head");
_Static_assert(sizeof(struct tw_msg_quote) == 64, "a quote is one unit");
#define TW_MSG_SIZE_CHECK(name, id, kind, tag)                                                \
	_Static_assert(sizeof(struct tag) % 8 == 0 && sizeof(struct tag) <= TW_MSG_MAX_BYTES, \
		       #kind " is a multiple of 8 bytes and within the limit");
TW_MSG_TABLE(TW_MSG_SIZE_CHECK)
#undef TW_MSG_SIZE_CHECK
#endif

#endif
