/* A made-up day of orders: books, what happens to them, and the script.
 *
 *   gen_book.c      orders, price levels, books
 *   gen_flow.c      what happens to one book: orders come, go, trade           -> struct gen_act
 *   gen_flow_day.c  the script of the day
 *   gen_itch50.c    one protocol's messages                                    -> bytes
 *
 * What holds  an act that names an order names a living one, and never more of it than is left; a book
 *             is never crossed; reference and match numbers are used once a day.
 * Units       prices uint32_t in 1e-4 of the currency, times ns since the Unix epoch. */
#ifndef TW_TOOLS_GEN_FLOW_H
#define TW_TOOLS_GEN_FLOW_H

#include "gen.h"
#include "gen_pace.h"

#define GEN_FLOW_MIN_SYMBOLS 8u     /* five have a script of their own, and some must trade */
#define GEN_FLOW_MAX_SYMBOLS 65535u /* stock locates are 16 bits, and 0 is none */
#define GEN_MAX_PRICE        1999999900u
#define GEN_LEVELS           24u
#define GEN_NO_ORDER         UINT32_MAX

enum gen_book_side { GEN_BUY, GEN_SELL };

struct gen_order {
	uint64_t ref;
	uint32_t qty, price;
	uint32_t next, prev; /* at its level, oldest first */
	uint32_t book;
	uint8_t side;        /* enum gen_book_side */
	uint8_t participant; /* 0: not attributed */
};

struct gen_level {
	uint32_t price, orders;
	uint64_t qty;
	uint32_t head, tail;
};

struct gen_levels { /* of one side; the best is the last */
	uint32_t n;
	struct gen_level at[GEN_LEVELS];
};

struct gen_book {
	struct gen_levels sides[2];
	uint32_t orders;
};

struct gen_books {
	struct gen_book *books;
	struct gen_order *orders;
	uint32_t book_count, capacity;
	uint32_t free;   /* list through next */
	uint32_t living; /* orders */
};

int gen_books_open(struct gen_books *books, uint32_t book_count, uint32_t capacity);
void gen_books_close(struct gen_books *books);
/* The new order, or GEN_NO_ORDER: there is no room for it or for its level. */
uint32_t gen_books_add(struct gen_books *books, const struct gen_order *order);
/* `qty` less; with nothing left the order is dead. */
void gen_books_reduce(struct gen_books *books, uint32_t order, uint32_t qty);
/* NULL: the side is empty. */
const struct gen_level *gen_books_best(const struct gen_books *books, uint32_t book,
				       enum gen_book_side side);
/* FNV-1a (64 bits) over every book in order, each as five fields big-endian: locate (2 bytes, from
 * 1), best bid's price (4) and quantity (8), best offer's price and quantity; an absent side is 0. */
uint64_t gen_books_hash(const struct gen_books *books);

struct gen_stock {
	struct gen_instrument *in;
	uint32_t book; /* index; the locate is one more */
	uint32_t target_orders;
	uint32_t round_lot, leverage;
	char market, financial, classification, subtype[2], authenticity, threshold, ipo, tier, etp,
		inverse;
	char state; /* 'T' trading, 'H' halted, 'P' paused, 'Q' quotation only */
	bool venue_halted;
	bool no_resumption; /* its release was cancelled */
	char short_sale;    /* '0', '1', '2' */
	char retail;        /* 'B', 'S', 'A', 'N' */
};

enum gen_act_kind {
	GEN_ACT_SYSTEM,    /* code: which event */
	GEN_ACT_DIRECTORY, /* everything is in the stock */
	GEN_ACT_STATE,     /* text: reason */
	GEN_ACT_VENUE,     /* code: 'H' or 'T'; detail: which market */
	GEN_ACT_SHORT_SALE,
	GEN_ACT_POSITION,     /* text: participant; code: state; detail: primary or not */
	GEN_ACT_BREAKERS,     /* levels[] in 1e-8 */
	GEN_ACT_BREACH,       /* code: level */
	GEN_ACT_IPO,          /* when_ns, price, code */
	GEN_ACT_COLLAR,       /* price: reference; lower, upper; qty: extensions */
	GEN_ACT_ADD,          /* order */
	GEN_ACT_EXECUTE,      /* order, qty, match */
	GEN_ACT_EXECUTE_AT,   /* the same, price, printable */
	GEN_ACT_CANCEL,       /* order, qty */
	GEN_ACT_DELETE,       /* order */
	GEN_ACT_REPLACE,      /* order: the new one; old_ref */
	GEN_ACT_HIDDEN_TRADE, /* qty, price, match */
	GEN_ACT_CROSS,        /* qty, price, match, code: which */
	GEN_ACT_BREAK,        /* match, qty (of the trade: no protocol needs it) */
	GEN_ACT_IMBALANCE,    /* qty: paired; imbalance_qty, detail: side; price, near, far; code */
	GEN_ACT_RETAIL,
	GEN_ACT_DISCOVERY, /* code: eligible or not; lower, upper, near, when_ns; collars */
	GEN_ACT_KINDS
};

struct gen_act {
	enum gen_act_kind kind;
	uint64_t time_ns;
	const struct gen_stock *stock; /* NULL: of the market */
	struct gen_order order;        /* ref, qty, price, side, participant */
	uint64_t old_ref, match, qty, imbalance_qty, when_ns;
	uint64_t levels[3];
	uint32_t price, near, far, lower, upper, lower_collar, upper_collar;
	uint16_t tracking;
	bool printable;
	char code, detail;
	const char *text;
};

#define GEN_PARTICIPANTS 12u
extern const char *const gen_participants[GEN_PARTICIPANTS + 1]; /* [0] is none */

#define GEN_RECENT 64u

struct gen_flow {
	const struct tw_gen_conf *conf;
	struct gen_feed *feed;
	struct gen_rng rng;
	struct gen_pace pace;
	uint64_t now_ns, last_ns; /* the day's last moment */
	struct gen_stock *stocks;
	uint32_t n, stride; /* stocks by activity: a step of `stride` from one to the next */
	struct gen_books books;
	uint64_t ref, match;
	uint64_t end_messages; /* acts outside the fixed script end here */
	struct {
		uint64_t match, qty;
		const struct gen_stock *stock; /* NULL: broken, or never was */
	} recent[GEN_RECENT];
	uint64_t trades;
	int status;
};

/* gen_flow.c.  All acts of one call have the same time. */
void gen_flow_emit(struct gen_flow *flow, struct gen_act *act);
uint64_t gen_flow_emitted(const struct gen_flow *flow);
bool gen_flow_room(const struct gen_flow *flow, uint64_t messages);
/* Something ordinary, at least one message. */
void gen_flow_step(struct gen_flow *flow);
/* Takes an order out of the books, any; false: there is none. */
bool gen_flow_expire(struct gen_flow *flow);
bool gen_flow_break(struct gen_flow *flow);
/* At most three messages. */
void gen_flow_cross(struct gen_flow *flow, const struct gen_stock *stock, char code);
void gen_flow_imbalance(struct gen_flow *flow, const struct gen_stock *stock, char code);
void gen_flow_state(struct gen_flow *flow, struct gen_stock *stock, char state, const char *reason);

/* gen_flow_day.c */
uint64_t gen_flow_min_messages(uint32_t symbols);
int gen_flow_run(const struct tw_gen_conf *conf, struct gen_instrument *instruments,
		 struct gen_feed *feed);

#endif
