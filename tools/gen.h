/* A made-up trading day as an exchange would send it: the parts of tw-gen.
 *
 *   gen_day.c     the script of a day of quotes: what happens when   -> struct gen_event
 *   gen_market.c  instruments, prices, sizes                            (knows no protocol)
 *   gen_tops16.c  one protocol's messages                            -> bytes of one message
 *   gen_iextp.c   its session layer: packets, sequences, heartbeats  -> payload of one UDP datagram
 *   gen_capture.c frames and the output file
 *
 * A day of orders (gen_flow.h) is the same with books behind it: gen_flow_day.c, gen_flow.c and
 * gen_book.c make struct gen_act, gen_itch50.c encodes it, gen_moldudp64.c or gen_binaryfile.c frames.
 *
 * What holds  the output is a function of struct gen_conf alone: integer arithmetic only, no clock, no
 *             locale.  Nothing is allocated after the start.
 * Units       times ns since the Unix epoch; prices int64 in 1e-4 of the currency.
 * Threads     one. */
#ifndef TW_TOOLS_GEN_H
#define TW_TOOLS_GEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen_capture.h"
#include "gen_rng.h"
#include "tidewire/error.h"

#define TW_GEN_MAX_SYMBOLS 100000u
#define TW_GEN_MAX_RATE    100000000u
#define TW_GEN_MAX_SKEW_NS 1000000u
#define GEN_LISTED_EVERY   25u /* the first of so many instruments is listed by this exchange */

struct tw_gen_conf {
	const char *protocol;
	const char *framing; /* NULL: the first that the protocol has */
	uint64_t seed;
	uint64_t messages; /* exactly so many */
	uint64_t rate;     /* messages a second, on average; the day is as long as that makes it */
	uint32_t symbols;
	uint64_t start_ns;
	const char *output; /* "-": standard output */
	enum tw_gen_format format;
	bool gzip;
	uint32_t group; /* IPv4, host order */
	uint16_t port;
	uint16_t port_b; /* 0: line A alone */
	uint32_t group_b;
	uint32_t skew_ns; /* line B arrives so much later on average */
};

/* What was made; the truth that a receiver's counts are compared with. */
struct tw_gen_summary {
	uint64_t messages, packets, heartbeats;
	uint64_t capture_bytes; /* uncompressed */
	uint64_t payload_bytes; /* of the messages, with their framing */
	uint64_t first_seq, last_seq;
	uint64_t first_ns, last_ns; /* of the first and last packet */
	uint32_t session;
	char session_name[11]; /* where it is a name: empty else */
	uint64_t counts[256];  /* by the protocol's type byte */
	uint64_t one_sided_quotes, empty_quotes;
	uint64_t traded_qty, broken_qty; /* printable */
	/* A day of orders: what stands in the books when it has ended. */
	uint64_t unprinted_qty, living_orders, living_qty;
	uint64_t book_hash; /* gen_books_hash() */
};

enum gen_session { GEN_PRE_MARKET, GEN_REGULAR, GEN_POST_MARKET };
enum gen_system {
	GEN_MESSAGES_START,
	GEN_SYSTEM_START,
	GEN_MARKET_OPEN,
	GEN_MARKET_CLOSE,
	GEN_SYSTEM_END,
	GEN_MESSAGES_END
};
enum gen_state { GEN_TRADING, GEN_HALTED, GEN_ACCEPTING, GEN_PAUSED };
enum gen_auction { GEN_OPENING, GEN_CLOSING };
enum gen_cond { GEN_COND_ISO = 1, GEN_COND_ODD_LOT = 2, GEN_COND_EXEMPT = 4, GEN_COND_CROSS = 8 };

struct gen_side { /* absent: both 0 */
	int64_t price;
	uint32_t qty;
};

struct gen_instrument {
	char symbol[8]; /* padded with spaces */
	int64_t tick;
	int64_t base_price; /* the walk does not stray far from it: the previous close */
	int64_t mid_ticks;
	uint32_t spread_ticks; /* typical */
	struct gen_side bid, ask;
	enum gen_state state;
	bool listed; /* by this exchange: has a directory entry, auctions and official prices */
	bool etp, test;
	uint8_t luld_tier;
	bool venue_halted;
	bool short_restricted;
	char short_detail;
};

enum gen_kind {
	GEN_SYSTEM,
	GEN_DIRECTORY,
	GEN_STATUS,
	GEN_VENUE_STATUS,
	GEN_SHORT_SALE,
	GEN_QUOTE,
	GEN_TRADE,
	GEN_BREAK,
	GEN_OFFICIAL,
	GEN_AUCTION
};

struct gen_event {
	enum gen_kind kind;
	uint64_t time_ns;
	enum gen_session session;
	const struct gen_instrument *instrument; /* NULL: GEN_SYSTEM */
	enum gen_system system;
	enum gen_auction auction; /* AUCTION; OFFICIAL: which price */
	const char *reason;       /* STATUS: at most 4 characters */
	int64_t price;            /* TRADE, BREAK, OFFICIAL; AUCTION: the reference price */
	uint32_t qty;             /* TRADE, BREAK; AUCTION: paired */
	uint32_t conditions;      /* TRADE, BREAK: enum gen_cond */
	uint64_t trade_id;
	uint32_t imbalance_qty; /* AUCTION from here on */
	char imbalance_side;    /* 'B', 'S', 'N' */
	int64_t clearing_price, book_price;
	int64_t collar_price, lower_price, upper_price; /* 0: none */
	uint64_t scheduled_ns;
};

struct gen_feed;
struct gen_act;

/* One session layer: packs messages and sends them.  All return 0, or a status where the output
 * failed. */
struct gen_framing {
	const char *name;
	bool plain; /* a file of messages, no capture */
	bool two_lines;
	void (*open)(struct gen_feed *feed, uint64_t start_ns);
	/* Room for a message of `len` bytes, or NULL where the output failed. */
	uint8_t *(*append)(struct gen_feed *feed, uint64_t time_ns, uint16_t len);
	/* Nothing happens before time_ns: heartbeats are due, a packet may be complete. */
	int (*advance)(struct gen_feed *feed, uint64_t time_ns);
	int (*finish)(struct gen_feed *feed); /* the rest, and the session's end */
};
extern const struct gen_framing gen_iextp;
extern const struct gen_framing gen_moldudp64;
extern const struct gen_framing gen_binaryfile;

/* One protocol: a script plays the day, and the protocol encodes what happens in order of time.  A
 * row of the table in gen_run.c. */
struct gen_protocol {
	const char *name, *description;
	const struct gen_framing *framings[3]; /* the first is the default; NULL past the last */
	uint32_t min_symbols, max_symbols;
	bool within_midnight; /* the day may not last past midnight in New York */
	uint64_t (*min_messages)(uint32_t symbols);
	int (*play)(const struct tw_gen_conf *conf, struct gen_instrument *instruments,
		    struct gen_feed *feed);
	/* One message, of a day of quotes or of a day of orders. */
	int (*event)(struct gen_feed *feed, const struct gen_event *event);
	int (*act)(struct gen_feed *feed, const struct gen_act *act);
};
extern const struct gen_protocol gen_tops16;
extern const struct gen_protocol gen_itch50;

#define GEN_SEGMENT_BYTES 1472u /* UDP payload in a 1,500-byte MTU */

#define GEN_WAITING 64u /* packets under way on a line: a power of two */

struct gen_packet {
	uint64_t seen_ns;
	uint16_t len_bytes;
	uint8_t bytes[GEN_SEGMENT_BYTES];
};

struct gen_line {
	struct gen_packet waiting[GEN_WAITING];
	uint32_t head, tail; /* free-running */
	uint64_t last_ns;
};

struct gen_feed {
	const struct gen_protocol *protocol;
	const struct gen_framing *framing;
	struct tw_gen_capture *capture;
	struct tw_gen_summary *summary;
	struct gen_rng rng, rng_b; /* delays on the way only */
	uint32_t session;
	uint64_t next_seq, stream_offset;
	uint64_t begun_ns, last_ns; /* first and newest event of the open packet */
	uint64_t sent_ns;           /* newest packet */
	uint64_t midnight_ns;       /* the last one in New York before the day */
	uint32_t skew_ns;
	bool two_lines;
	uint32_t used_bytes;
	uint16_t messages;
	uint8_t segment[GEN_SEGMENT_BYTES];
	struct gen_line lines[TW_GEN_LINES];
};

/* gen_market.c */
void gen_instruments_make(struct gen_instrument *instruments, uint32_t n, struct gen_rng *rng);
/* One step of an instrument's price. */
void gen_walk(struct gen_instrument *in, struct gen_rng *rng);
/* One step of an instrument's quote. */
void gen_quote_step(struct gen_instrument *in, struct gen_rng *rng);
/* A price that a trade may have now, and a size. */
void gen_trade_make(struct gen_instrument *in, struct gen_rng *rng, struct gen_event *event);
void gen_auction_make(const struct gen_instrument *in, struct gen_rng *rng,
		      struct gen_event *event);

/* gen_day.c */
uint64_t gen_day_min_messages(uint32_t symbols);
int gen_day_run(const struct tw_gen_conf *conf, struct gen_instrument *instruments,
		struct gen_feed *feed);

/* gen_run.c: the whole. */
uint64_t gen_midnight_ns(uint64_t time_ns); /* the last one in New York, not before 1970-01-02 */
int tw_gen_run(const struct tw_gen_conf *conf, struct tw_gen_summary *summary,
	       struct tw_error *err) TW_MUST_USE;
const struct gen_protocol *tw_gen_protocol(unsigned int index); /* NULL past the last */

#endif
