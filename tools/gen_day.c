/* The script of a trading day, scaled to the number of messages asked for: the exchange's state of
 * everything, pre-market, opening auctions, the regular session with its incidents, closing auctions,
 * post-market, end. */
#include <string.h>

#include "gen.h"
#include "gen_pace.h"

#define LEAD_NS          1100000000u /* silence around the day: a heartbeat */
#define PAUSE_NS         300000000u  /* between the first messages and the system's start */
#define SPIN_GAP_NS      500u
#define MIN_LIVE_MSGS    500u
#define MIN_ROUNDS       3u
#define MAX_ROUNDS       60u
#define RECENT_TRADES    64u
#define TRADE_PPM        260000u
#define FOLLOW_QUOTE_PPM 500000u
#define BREAK_PPM        20u
#define SHORT_SALE_PPM   5u
#define NS_PER_S         1000000000ull

struct day {
	const struct tw_gen_conf *conf;
	struct gen_instrument *instruments;
	uint32_t n;
	struct gen_feed *feed;
	struct gen_rng rng;
	uint64_t now_ns;
	enum gen_session session;
	uint64_t phase_end; /* messages in all at its end */
	struct gen_pace pace;
	uint64_t trade_id;
	struct gen_event recent[RECENT_TRADES];
	uint64_t trades;
	int status;
};

static uint32_t listed_of(uint32_t symbols)
{
	return (symbols + GEN_LISTED_EVERY - 1) / GEN_LISTED_EVERY;
}

/* Messages that the script needs whatever the length of the day. */
static uint64_t fixed_messages(uint32_t symbols)
{
	uint64_t listed = listed_of(symbols);

	return 6 + 4ull * symbols + listed + 4 * listed;
}

uint64_t gen_day_min_messages(uint32_t symbols)
{
	return fixed_messages(symbols) + MIN_LIVE_MSGS +
	       20ull * (MIN_ROUNDS + 1) * listed_of(symbols);
}

static uint64_t emitted(const struct day *d)
{
	return d->feed->summary->messages;
}

static bool room(const struct day *d, uint64_t messages)
{
	return d->status == TW_OK && emitted(d) + messages <= d->phase_end;
}

/* One message now. */
static void emit(struct day *d, struct gen_event *e)
{
	if (d->status != TW_OK) {
		return;
	}
	e->time_ns = d->now_ns;
	d->status = d->feed->protocol->event(d->feed, e);
}

static void emit_kind(struct day *d, enum gen_kind kind, const struct gen_instrument *in,
		      const char *reason)
{
	struct gen_event e = {
		.kind = kind,
		.session = d->session,
		.instrument = in,
		.reason = reason,
	};
	emit(d, &e);
}

static void emit_system(struct day *d, enum gen_system system)
{
	struct gen_event e = { .kind = GEN_SYSTEM, .session = d->session, .system = system };

	emit(d, &e);
}

static void pause_for(struct day *d, uint64_t ns)
{
	d->now_ns += ns;
	if (d->status == TW_OK) {
		d->status = d->feed->framing->advance(d->feed, d->now_ns);
	}
}

/* State of every instrument before anything happens. */
static void spin(struct day *d)
{
	for (uint32_t i = 0; i < d->n; i++) {
		const struct gen_instrument *in = &d->instruments[i];
		static const enum gen_kind kinds[] = { GEN_SHORT_SALE, GEN_VENUE_STATUS,
						       GEN_STATUS };
		for (unsigned int k = 0; k < 3; k++) {
			emit_kind(d, kinds[k], in, "");
			d->now_ns += SPIN_GAP_NS;
		}
	}
	for (uint32_t i = 0; i < d->n; i++) {
		if (d->instruments[i].listed) {
			emit_kind(d, GEN_DIRECTORY, &d->instruments[i], "");
			d->now_ns += SPIN_GAP_NS;
		}
	}
	for (uint32_t i = 0; i < d->n; i++) {
		emit_kind(d, GEN_QUOTE, &d->instruments[i], "");
		d->now_ns += SPIN_GAP_NS;
	}
}

static void clear_quote(struct gen_instrument *in)
{
	in->bid = (struct gen_side){ 0, 0 };
	in->ask = (struct gen_side){ 0, 0 };
}

static void set_state(struct day *d, struct gen_instrument *in, enum gen_state state,
		      const char *reason)
{
	if (!room(d, 2) || in->state == state) {
		return;
	}
	in->state = state;
	emit_kind(d, GEN_STATUS, in, reason);
	if (state == GEN_HALTED || state == GEN_TRADING) {
		clear_quote(in);
		if (state == GEN_TRADING) {
			gen_quote_step(in, &d->rng);
		}
		emit_kind(d, GEN_QUOTE, in, "");
	}
}

static void set_venue_halt(struct day *d, struct gen_instrument *in, bool halted)
{
	if (!room(d, 2) || in->venue_halted == halted) {
		return;
	}
	in->venue_halted = halted;
	emit_kind(d, GEN_VENUE_STATUS, in, "");
	clear_quote(in);
	if (!halted) {
		gen_quote_step(in, &d->rng);
	}
	emit_kind(d, GEN_QUOTE, in, "");
}

static void toggle_short_sale(struct day *d, struct gen_instrument *in)
{
	if (!room(d, 1)) {
		return;
	}
	in->short_restricted = !in->short_restricted;
	if (in->listed) {
		in->short_detail = in->short_restricted ? 'A' : 'D';
	} else {
		in->short_detail = in->short_restricted ? 'N' : ' ';
	}
	emit_kind(d, GEN_SHORT_SALE, in, "");
}

static void emit_trade(struct day *d, struct gen_event *e)
{
	d->trade_id += 1 + gen_rng_below(&d->rng, 150);
	e->trade_id = d->trade_id;
	e->session = d->session;
	emit(d, e);
	d->recent[d->trades++ % RECENT_TRADES] = *e;
}

/* Takes back one of the latest trades, which keeps its own conditions. */
static void break_trade(struct day *d)
{
	uint64_t have = d->trades < RECENT_TRADES ? d->trades : RECENT_TRADES;

	if (have == 0 || !room(d, 1)) {
		return;
	}
	struct gen_event *trade = &d->recent[gen_rng_below(&d->rng, (uint32_t)have)];
	if (trade->kind == GEN_BREAK) { /* a trade is broken once */
		return;
	}
	trade->kind = GEN_BREAK;
	emit(d, trade);
}

static void trade(struct day *d, struct gen_instrument *in)
{
	struct gen_event e = { 0 };

	gen_trade_make(in, &d->rng, &e);
	emit_trade(d, &e);
	if (room(d, 1) && gen_rng_chance(&d->rng, FOLLOW_QUOTE_PPM)) {
		gen_quote_step(in, &d->rng);
		emit_kind(d, GEN_QUOTE, in, "");
	}
}

/* Instruments of low index are the busy ones. */
static struct gen_instrument *pick(struct day *d)
{
	uint32_t i = gen_rng_below(&d->rng, d->n);

	i = gen_rng_below(&d->rng, i + 1);
	for (uint32_t tried = 0; tried < d->n; tried++) {
		struct gen_instrument *in = &d->instruments[(i + tried) % d->n];
		if (in->state == GEN_TRADING && !in->venue_halted) {
			return in;
		}
	}
	return NULL;
}

/* Nothing trades, and the script goes on only with messages: lets the first instrument trade. */
static void wake(struct day *d)
{
	struct gen_instrument *in = &d->instruments[0];
	uint64_t before = emitted(d);

	set_state(d, in, GEN_TRADING, "");
	set_venue_halt(d, in, false);
	if (emitted(d) == before) { /* no room for status and quote */
		toggle_short_sale(d, in);
	}
}

static void ordinary(struct day *d)
{
	struct gen_instrument *in = pick(d);

	if (in == NULL) {
		wake(d);
	} else if (gen_rng_chance(&d->rng, BREAK_PPM)) {
		break_trade(d);
	} else if (gen_rng_chance(&d->rng, SHORT_SALE_PPM)) {
		toggle_short_sale(d, in);
	} else if (gen_rng_chance(&d->rng, TRADE_PPM)) {
		trade(d, in);
	} else {
		gen_quote_step(in, &d->rng);
		emit_kind(d, GEN_QUOTE, in, "");
	}
}

/* What happens at a thousandth of a phase, so that the shortest day has every kind of message. */
static void incident(struct day *d, enum gen_session session, uint32_t permille)
{
	struct gen_instrument *listed = &d->instruments[0];
	struct gen_instrument *other = &d->instruments[d->n > 1 ? 1 : 0];
	struct gen_instrument *third = &d->instruments[d->n / 2];

	switch ((uint32_t)session * 1000 + permille) {
	case GEN_PRE_MARKET * 1000 + 300:
	case GEN_REGULAR * 1000 + 500:
		toggle_short_sale(d, third);
		break;
	case GEN_REGULAR * 1000 + 100:
		set_state(d, other, GEN_HALTED, other->listed ? "T1" : "NA");
		break;
	case GEN_REGULAR * 1000 + 200:
		set_state(d, other, GEN_TRADING, "");
		break;
	case GEN_REGULAR * 1000 + 250:
		set_venue_halt(d, third, true);
		break;
	case GEN_REGULAR * 1000 + 320:
		set_venue_halt(d, third, false);
		break;
	case GEN_REGULAR * 1000 + 600:
		set_state(d, listed, GEN_HALTED, "T1");
		break;
	case GEN_REGULAR * 1000 + 660:
		set_state(d, listed, GEN_ACCEPTING, "T2");
		break;
	case GEN_REGULAR * 1000 + 680:
		set_state(d, listed, GEN_PAUSED, "MCB1");
		break;
	case GEN_REGULAR * 1000 + 700:
		set_state(d, listed, GEN_TRADING, "");
		break;
	case GEN_REGULAR * 1000 + 800:
	case GEN_POST_MARKET * 1000 + 500:
		break_trade(d);
		break;
	default:
		break;
	}
}

static void auction_round(struct day *d, enum gen_auction auction, uint64_t scheduled_ns)
{
	for (uint32_t i = 0; i < d->n && room(d, 1); i++) {
		if (d->instruments[i].listed) {
			struct gen_event e = { .session = d->session,
					       .auction = auction,
					       .scheduled_ns = scheduled_ns };
			gen_auction_make(&d->instruments[i], &d->rng, &e);
			emit(d, &e);
		}
	}
}

/* Auction match of every listed instrument: the trade and the official price it makes. */
static void auction_match(struct day *d, enum gen_auction auction)
{
	for (uint32_t i = 0; i < d->n; i++) {
		struct gen_instrument *in = &d->instruments[i];
		if (!in->listed) {
			continue;
		}
		struct gen_event e = { 0 };
		gen_trade_make(in, &d->rng, &e);
		e.price = in->mid_ticks * in->tick;
		e.qty = 1000 + e.qty;
		e.conditions = GEN_COND_CROSS | GEN_COND_EXEMPT;
		emit_trade(d, &e);
		e.kind = GEN_OFFICIAL;
		e.auction = auction;
		emit(d, &e);
		d->now_ns += SPIN_GAP_NS;
	}
}

/* `messages` messages of one session; with auctions, their second half is the time before a match. */
static void phase(struct day *d, enum gen_session session, uint64_t messages, bool auctions)
{
	const uint64_t begin = emitted(d);
	const uint64_t match_ns = d->now_ns + messages * NS_PER_S / d->conf->rate;
	uint64_t rounds = messages / d->conf->rate; /* one a second */
	uint64_t next_round = 0;
	uint32_t permille = 0;
	uint64_t before = begin;

	rounds = rounds < MIN_ROUNDS ? MIN_ROUNDS : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	d->session = session;
	d->phase_end = begin + messages;
	while (room(d, 1)) {
		uint64_t done = emitted(d) - begin;
		uint64_t due = messages / 2 + messages / 2 * next_round / (rounds + 1);
		if (permille < done * 1000 / messages) {
			incident(d, session, ++permille);
		} else if (auctions && next_round < rounds && done >= due) {
			auction_round(d, session == GEN_PRE_MARKET ? GEN_OPENING : GEN_CLOSING,
				      match_ns);
			next_round++;
		} else {
			ordinary(d);
		}
		for (; before < emitted(d); before++) {
			d->now_ns += gen_pace_gap(&d->pace, &d->rng);
		}
	}
}

int gen_day_run(const struct tw_gen_conf *conf, struct gen_instrument *instruments,
		struct gen_feed *feed)
{
	struct day d = {
		.conf = conf,
		.instruments = instruments,
		.n = conf->symbols,
		.feed = feed,
		.rng = { conf->seed ^ 0x6461790000000000u },
		.now_ns = conf->start_ns,
		.session = GEN_PRE_MARKET,
		.phase_end = UINT64_MAX,
		.pace = gen_pace_of(conf->rate),
		.trade_id = 100000 + conf->seed % 100000,
	};
	const uint64_t live = conf->messages - fixed_messages(conf->symbols);
	const uint64_t pre = live / 10;
	const uint64_t post = live * 7 / 100;

	pause_for(&d, LEAD_NS);
	emit_system(&d, GEN_MESSAGES_START);
	spin(&d);
	pause_for(&d, PAUSE_NS);
	emit_system(&d, GEN_SYSTEM_START);
	phase(&d, GEN_PRE_MARKET, pre, true);

	d.session = GEN_REGULAR;
	d.phase_end = UINT64_MAX;
	emit_system(&d, GEN_MARKET_OPEN);
	auction_match(&d, GEN_OPENING);
	phase(&d, GEN_REGULAR, live - pre - post, true);

	d.phase_end = UINT64_MAX;
	emit_system(&d, GEN_MARKET_CLOSE);
	auction_match(&d, GEN_CLOSING);
	phase(&d, GEN_POST_MARKET, post, false);
	emit_system(&d, GEN_SYSTEM_END);
	pause_for(&d, PAUSE_NS);
	emit_system(&d, GEN_MESSAGES_END);
	pause_for(&d, LEAD_NS);
	return d.status;
}
