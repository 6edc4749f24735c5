/* The script of a day of orders, scaled to the number of messages asked for.  Every kind of message
 * comes even on the shortest day: a halt for news, a volatility pause, a market-wide halt, an offering
 * that is released and one that is not, a direct listing. */
#include <stdlib.h>
#include <string.h>

#include "gen_flow.h"

#define LEAD_NS        1100000000u /* silence around the day: a heartbeat */
#define PAUSE_NS       300000000u
#define SPIN_GAP_NS    500u
#define NS_PER_S       1000000000ull
#define MIN_ROUNDS     3u
#define MAX_ROUNDS     60u
#define SCRIPT_MSGS    64u /* of single stocks */
#define AFTER_MSGS     16u /* between the system's end and the last message */
#define TAIL_MSGS      (2u + AFTER_MSGS)
#define PER_STOCK_MSGS 18u /* directory, crosses, market-wide halt */
#define LIVE_PER_STOCK 64u
#define LIVE_MSGS      2000u
#define INDEX_LEVEL    585000000000u /* 5,850.00 in 1e-8 */
#define BUSY_ORDERS    4096u

/* Stocks with a part of their own, by index. */
enum {
	FIRST,
	VOLATILE,
	OFFERING,
	NEWS, /* listed elsewhere */
	CANCELLED,
	DIRECT,
	VENUE_HALTED,
	RESTRICTED
};

struct day {
	struct gen_flow flow;
	struct gen_stock *stocks;
	uint32_t n;
};

static bool listed(const struct gen_stock *s)
{
	return s->financial != ' ';
}

static bool restricted(uint32_t index)
{
	return index == OFFERING || index == CANCELLED || index == DIRECT;
}

uint64_t gen_flow_min_messages(uint32_t symbols)
{
	return SCRIPT_MSGS + TAIL_MSGS + LIVE_MSGS +
	       (PER_STOCK_MSGS + LIVE_PER_STOCK) * (uint64_t)symbols;
}

static void set_etp(struct gen_stock *s, struct gen_rng *rng)
{
	static const char subtypes[] = "E I EN";
	uint32_t kind = gen_rng_below(rng, 3);

	s->classification = kind == 2 ? 'N' : 'Q';
	memcpy(s->subtype, subtypes + (size_t)2 * kind, 2);
	s->etp = 'Y';
	s->leverage = 1 + gen_rng_below(rng, 3);
	s->inverse = gen_rng_below(rng, 5) == 0 ? 'Y' : 'N';
}

static void make_stock(struct gen_stock *s, struct gen_rng *rng)
{
	static const char elsewhere[] = "NAPZV";
	static const char here[] = "QGS";
	static const char classes[] = "CCCCCCAOPU";
	const uint32_t tick = (uint32_t)s->in->tick;
	const uint32_t dearest = GEN_MAX_PRICE / tick;

	if (s->in->mid_ticks > dearest * 9 / 10) { /* prices are 32 bits */
		s->in->mid_ticks = dearest * 9 / 10;
		s->in->base_price = s->in->mid_ticks * tick;
	}
	s->round_lot = s->in->base_price > 10000000 ? 1u : s->in->base_price > 2500000 ? 40u : 100u;
	s->classification = classes[gen_rng_below(rng, 10)];
	s->subtype[0] = 'Z';
	s->subtype[1] = ' ';
	s->authenticity = s->book % 100 == 99 ? 'T' : 'P';
	s->inverse = s->etp = 'N';
	s->tier = s->in->luld_tier == 0 ? ' ' : (char)('0' + s->in->luld_tier);
	s->short_sale = s->in->short_restricted ? '2' : '0';
	s->retail = 'N';
	s->state = 'T';
	if (s->in->etp) {
		set_etp(s, rng);
	}
	if (s->book % 4 == 3) { /* listed elsewhere, which says less */
		s->market = elsewhere[gen_rng_below(rng, 5)];
		s->financial = s->ipo = s->threshold = ' ';
	} else {
		s->market = here[gen_rng_below(rng, 3)];
		s->financial = gen_rng_below(rng, 30) == 0 ? 'D' : 'N';
		s->threshold = gen_rng_below(rng, 20) == 0 ? 'Y' : 'N';
		s->ipo = s->book == OFFERING || s->book == CANCELLED ? 'Y'
			 : s->book == DIRECT                         ? 'Z'
								     : 'N';
	}
	s->state = restricted(s->book) ? 'H' : 'T';
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b != 0) {
		uint32_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

static int open_day(struct day *d, const struct tw_gen_conf *conf,
		    struct gen_instrument *instruments, struct gen_feed *feed)
{
	struct gen_flow *f = &d->flow;

	d->n = conf->symbols;
	d->stocks = calloc(d->n, sizeof(*d->stocks));
	*f = (struct gen_flow){
		.conf = conf,
		.feed = feed,
		.rng = { conf->seed ^ 0x666c6f7700000000u },
		.pace = gen_pace_of(conf->rate),
		.now_ns = conf->start_ns,
		.last_ns = feed->midnight_ns + 86400 * NS_PER_S - 1,
		.stocks = d->stocks,
		.n = d->n,
		.ref = 1000 + conf->seed % 1000,
		.match = 10000 + conf->seed % 1000,
		.stride = d->n * 5 / 8,
	};
	while (gcd(d->n, f->stride) != 1) {
		f->stride++;
	}
	if (d->stocks == NULL) {
		return TW_ENOMEM;
	}
	uint64_t orders = 0;
	for (uint32_t rank = 0; rank < d->n; rank++) {
		struct gen_stock *s = &d->stocks[(uint64_t)rank * f->stride % d->n];
		s->target_orders = 24 + BUSY_ORDERS / (16 + rank);
		orders += s->target_orders;
	}
	for (uint32_t i = 0; i < d->n; i++) {
		d->stocks[i].in = &instruments[i];
		d->stocks[i].book = i;
		make_stock(&d->stocks[i], &f->rng);
	}
	return gen_books_open(&f->books, d->n, (uint32_t)(2 * orders));
}

static void pause_for(struct day *d, uint64_t ns)
{
	struct gen_flow *f = &d->flow;

	f->now_ns += ns;
	if (f->status == TW_OK) {
		f->status = f->feed->framing->advance(f->feed, f->now_ns);
	}
}

static void say(struct day *d, enum gen_act_kind kind, struct gen_stock *s, char code, char detail)
{
	struct gen_act act = { .kind = kind, .stock = s, .code = code, .detail = detail };

	gen_flow_emit(&d->flow, &act);
	d->flow.now_ns += SPIN_GAP_NS;
}

static void say_position(struct day *d, struct gen_stock *s, uint32_t participant, char state)
{
	struct gen_act act = {
		.kind = GEN_ACT_POSITION,
		.stock = s,
		.text = gen_participants[1 + participant % GEN_PARTICIPANTS],
		.code = state,
		.detail = participant == s->book ? 'Y' : 'N',
	};
	gen_flow_emit(&d->flow, &act);
	d->flow.now_ns += SPIN_GAP_NS;
}

static void say_state(struct day *d, uint32_t index, char state, const char *reason)
{
	gen_flow_state(&d->flow, &d->stocks[index], state, reason);
	d->flow.now_ns += SPIN_GAP_NS;
}

/* Everything that is known before the day. */
static void spin(struct day *d)
{
	struct gen_act breakers = {
		.kind = GEN_ACT_BREAKERS, /* 7, 13 and 20 per cent below the index's last close */
		.levels = { INDEX_LEVEL / 100 * 93, INDEX_LEVEL / 100 * 87,
			    INDEX_LEVEL / 100 * 80 },
	};
	for (uint32_t i = 0; i < d->n; i++) {
		struct gen_stock *s = &d->stocks[i];
		say(d, GEN_ACT_DIRECTORY, s, 0, 0);
		say_state(d, i, s->state, restricted(i) ? "IPO1" : "");
		say(d, GEN_ACT_SHORT_SALE, s, 0, 0);
		if (listed(s)) {
			say_position(d, s, i, 'A');
			say_position(d, s, i + 1 + i % 5, i % 37 == 0 ? 'E' : 'A');
		}
	}
	gen_flow_emit(&d->flow, &breakers);
}

static void say_ipo(struct day *d, uint32_t index, char code)
{
	struct gen_act act = {
		.kind = GEN_ACT_IPO,
		.stock = &d->stocks[index],
		.code = code,
	};
	if (code == 'A') { /* a release that is cancelled has no time and no price */
		act.when_ns = d->flow.now_ns + 900 * NS_PER_S;
		act.price = (uint32_t)d->stocks[index].in->base_price;
	}
	gen_flow_emit(&d->flow, &act);
}

static void say_collar(struct day *d, uint32_t index, uint32_t extensions)
{
	const uint32_t price = (uint32_t)d->stocks[index].in->base_price;
	const uint32_t width = price / 20 * (1 + extensions);
	struct gen_act act = {
		.kind = GEN_ACT_COLLAR,
		.stock = &d->stocks[index],
		.price = price,
		.lower = price - width,
		.upper = price + width,
		.qty = extensions,
	};
	gen_flow_emit(&d->flow, &act);
}

static void say_discovery(struct day *d, char eligible)
{
	const uint32_t price = (uint32_t)d->stocks[DIRECT].in->base_price;
	struct gen_act act = {
		.kind = GEN_ACT_DISCOVERY,
		.stock = &d->stocks[DIRECT],
		.code = eligible,
		.lower = price / 5 * 4,
		.upper = price / 5 * 9,
		.near = price,
		.when_ns = d->flow.now_ns,
		.lower_collar = price / 10 * 9,
		.upper_collar = price / 10 * 11,
	};
	gen_flow_emit(&d->flow, &act);
}

/* The whole market stops and comes back: a message a stock each time, and a cross where listed. */
static void market_wide_halt(struct day *d)
{
	struct gen_flow *f = &d->flow;

	say(d, GEN_ACT_BREACH, NULL, '1', 0);
	for (uint32_t i = 0; i < d->n; i++) {
		if (d->stocks[i].state == 'T') {
			say_state(d, i, 'H', "MWC1");
		} else {
			d->stocks[i].no_resumption = true;
		}
	}
	pause_for(d, PAUSE_NS);
	for (uint32_t i = 0; i < d->n; i++) {
		if (!d->stocks[i].no_resumption) {
			say_state(d, i, 'Q', "MWCQ");
		}
	}
	pause_for(d, PAUSE_NS);
	for (uint32_t i = 0; i < d->n; i++) {
		if (!d->stocks[i].no_resumption) {
			if (listed(&d->stocks[i])) {
				gen_flow_imbalance(f, &d->stocks[i], 'H');
				gen_flow_cross(f, &d->stocks[i], 'H');
			}
			say_state(d, i, 'T', "");
		}
	}
}

enum { PRE = 0, REGULAR = 1000, POST = 2000 };

enum action {
	STATE,
	CROSS,
	IMBALANCE,
	IPO,
	COLLAR,
	DISCOVERY,
	VENUE,
	POSITION,
	SHORT,
	RETAIL,
	BREAK,
	HALT
};

/* What happens at a thousandth of a phase, in order. */
static const struct incident {
	uint16_t at;
	uint8_t action; /* enum action */
	uint8_t stock;
	char code, detail;
	const char *reason;
} incidents[] = {
	{ PRE + 100, IPO, OFFERING, 'A', 0, NULL },
	{ PRE + 200, IPO, CANCELLED, 'A', 0, NULL },
	{ PRE + 600, DISCOVERY, DIRECT, 'N', 0, NULL },
	{ PRE + 900, IPO, CANCELLED, 'C', 0, NULL },
	{ REGULAR + 50, STATE, DIRECT, 'Q', 0, "IPOQ" },
	{ REGULAR + 70, DISCOVERY, DIRECT, 'Y', 0, NULL },
	{ REGULAR + 70, IMBALANCE, DIRECT, 'H', 0, NULL },
	{ REGULAR + 90, CROSS, DIRECT, 'H', 0, NULL },
	{ REGULAR + 90, STATE, DIRECT, 'T', 0, "" },
	{ REGULAR + 100, STATE, NEWS, 'H', 0, "T1" },
	{ REGULAR + 130, STATE, NEWS, 'H', 0, "T2" },
	{ REGULAR + 150, STATE, OFFERING, 'Q', 0, "IPOQ" },
	{ REGULAR + 160, STATE, NEWS, 'Q', 0, "T3" },
	{ REGULAR + 180, IMBALANCE, OFFERING, 'H', 0, NULL },
	{ REGULAR + 200, IMBALANCE, OFFERING, 'H', 0, NULL },
	{ REGULAR + 210, STATE, NEWS, 'T', 0, "" }, /* listed elsewhere: no cross here */
	{ REGULAR + 230, CROSS, OFFERING, 'H', 0, NULL },
	{ REGULAR + 230, STATE, OFFERING, 'T', 0, "" },
	{ REGULAR + 250, STATE, VOLATILE, 'P', 0, "LUDP" },
	{ REGULAR + 250, COLLAR, VOLATILE, 0, 0, NULL },
	{ REGULAR + 280, STATE, VOLATILE, 'Q', 0, "T7" },
	{ REGULAR + 280, COLLAR, VOLATILE, 1, 0, NULL },
	{ REGULAR + 280, IMBALANCE, VOLATILE, 'H', 0, NULL },
	{ REGULAR + 300, CROSS, VOLATILE, 'H', 0, NULL },
	{ REGULAR + 300, STATE, VOLATILE, 'T', 0, "" },
	{ REGULAR + 320, VENUE, VENUE_HALTED, 'H', 'Q', NULL },
	{ REGULAR + 320, VENUE, VENUE_HALTED, 'H', 'X', NULL },
	{ REGULAR + 360, VENUE, VENUE_HALTED, 'T', 'Q', NULL },
	{ REGULAR + 360, VENUE, VENUE_HALTED, 'T', 'X', NULL },
	{ REGULAR + 400, POSITION, FIRST, 'W', 0, NULL },
	{ REGULAR + 450, SHORT, RESTRICTED, '1', 0, NULL },
	{ REGULAR + 550, HALT, FIRST, 0, 0, NULL },
	{ REGULAR + 620, RETAIL, FIRST, 0, 0, NULL },
	{ REGULAR + 800, BREAK, FIRST, 0, 0, NULL },
	{ POST + 300, RETAIL, FIRST, 0, 0, NULL },
};

static void happen(struct day *d, const struct incident *in)
{
	struct gen_flow *f = &d->flow;
	struct gen_stock *s = &d->stocks[in->stock];

	switch ((enum action)in->action) {
	case STATE:
		say_state(d, in->stock, in->code, in->reason);
		break;
	case CROSS:
		gen_flow_cross(f, s, in->code);
		f->now_ns += SPIN_GAP_NS;
		break;
	case IMBALANCE:
		gen_flow_imbalance(f, s, in->code);
		break;
	case IPO:
		say_ipo(d, in->stock, in->code);
		break;
	case COLLAR:
		say_collar(d, in->stock, (uint32_t)in->code);
		break;
	case DISCOVERY:
		say_discovery(d, in->code);
		break;
	case VENUE:
		if (in->detail == 'Q') { /* the others' halts do not stop this market */
			s->venue_halted = in->code == 'H';
		}
		say(d, GEN_ACT_VENUE, s, in->code, in->detail);
		break;
	case POSITION:
		say_position(d, s, in->stock, in->code);
		break;
	case SHORT:
		s->short_sale = in->code;
		say(d, GEN_ACT_SHORT_SALE, s, 0, 0);
		break;
	case RETAIL:
		say(d, GEN_ACT_RETAIL, s, 0, 0);
		break;
	case BREAK:
		(void)gen_flow_break(f);
		break;
	case HALT:
		market_wide_halt(d);
		break;
	}
}

static void happen_at(struct day *d, uint32_t at)
{
	for (size_t i = 0; i < sizeof(incidents) / sizeof(incidents[0]); i++) {
		if (incidents[i].at == at) {
			happen(d, &incidents[i]);
		}
	}
}

static void all_listed(struct day *d, char code,
		       void (*what)(struct gen_flow *, const struct gen_stock *, char))
{
	for (uint32_t i = 0; i < d->n && gen_flow_room(&d->flow, 3); i++) {
		const struct gen_stock *s = &d->stocks[i];
		if (listed(s) && s->state == 'T') {
			what(&d->flow, s, code);
			d->flow.now_ns += SPIN_GAP_NS;
		}
	}
}

/* About `messages` messages; the last phase ends where the script says.  With auctions, its second
 * half is the time before a cross, and with code 'A' its first. */
static void phase(struct day *d, uint32_t script, uint64_t messages, char auctions)
{
	struct gen_flow *f = &d->flow;
	const uint64_t begin = gen_flow_emitted(f);
	uint64_t rounds = messages / f->conf->rate; /* one a second */
	uint64_t next_round = 0;
	uint32_t permille = 0;
	uint64_t before = begin;

	rounds = rounds < MIN_ROUNDS ? MIN_ROUNDS : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	while (rounds > 1 && rounds * d->n > messages / 8) {
		rounds--;
	}
	while (gen_flow_room(f, 1) && (script == POST || before < begin + messages)) {
		uint64_t done = before - begin;
		uint64_t half = auctions == 'A' ? 0 : messages / 2;
		if (permille < 999 && permille < done * 1000 / messages) {
			happen_at(d, script + ++permille);
		} else if (next_round < rounds &&
			   done >= half + messages / 2 * next_round / (rounds + 1)) {
			all_listed(d, auctions, gen_flow_imbalance);
			next_round++;
		} else {
			gen_flow_step(f);
		}
		for (; before < gen_flow_emitted(f); before++) {
			f->now_ns += gen_pace_gap(&f->pace, &f->rng);
		}
	}
}

static void play(struct day *d)
{
	struct gen_flow *f = &d->flow;
	const uint64_t all = f->conf->messages;
	const uint64_t live = all - TAIL_MSGS - SCRIPT_MSGS - PER_STOCK_MSGS * (uint64_t)d->n;

	f->end_messages = all - TAIL_MSGS;
	pause_for(d, LEAD_NS);
	say(d, GEN_ACT_SYSTEM, NULL, 'O', 0);
	spin(d);
	pause_for(d, PAUSE_NS);
	say(d, GEN_ACT_SYSTEM, NULL, 'S', 0);
	phase(d, PRE, live / 10, 'O');
	say(d, GEN_ACT_SYSTEM, NULL, 'Q', 0);
	all_listed(d, 'O', gen_flow_cross);
	phase(d, REGULAR, live * 83 / 100, 'C');
	say(d, GEN_ACT_SYSTEM, NULL, 'M', 0);
	all_listed(d, 'C', gen_flow_cross);
	phase(d, POST, live * 7 / 100, 'A');

	/* orders may still go, and trades be broken, after the end */
	say(d, GEN_ACT_SYSTEM, NULL, 'E', 0);
	for (unsigned int i = 0; i < AFTER_MSGS; i++) {
		if (i != 2 || !gen_flow_break(f)) {
			(void)gen_flow_expire(f);
		}
		f->now_ns += gen_pace_gap(&f->pace, &f->rng);
	}
	pause_for(d, PAUSE_NS);
	say(d, GEN_ACT_SYSTEM, NULL, 'C', 0);
	pause_for(d, LEAD_NS);
}

int gen_flow_run(const struct tw_gen_conf *conf, struct gen_instrument *instruments,
		 struct gen_feed *feed)
{
	struct day d = { .n = 0 };
	int status = open_day(&d, conf, instruments, feed);

	if (status == TW_OK) {
		play(&d);
		status = d.flow.status;
		feed->summary->living_orders = d.flow.books.living;
		for (uint32_t i = 0; i < d.flow.books.book_count; i++) {
			for (unsigned int side = 0; side < 2; side++) {
				const struct gen_levels *levels =
					&d.flow.books.books[i].sides[side];
				for (uint32_t l = 0; l < levels->n; l++) {
					feed->summary->living_qty += levels->at[l].qty;
				}
			}
		}
		feed->summary->book_hash = gen_books_hash(&d.flow.books);
	}
	gen_books_close(&d.flow.books);
	free(d.stocks);
	return status;
}
