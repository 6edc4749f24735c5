/* Instruments and how their prices and sizes move.  Knows no protocol and no time. */
#include <string.h>

#include "gen.h"

#define LOT              100u
#define TICK_ABOVE_1     100 /* one cent */
#define TICK_BELOW_1     1
#define DEAREST_INDEX    10u
#define DEAREST_TICKS    50000000 /* 500,000.00 */
#define PERMILLE(chance) ((chance)*1000u)

/* "TW" and letters, some with a class suffix: no two alike, and no ticker that somebody may know. */
static void make_symbol(char symbol[8], uint32_t index)
{
	char letters[8];
	unsigned int n = 0;
	unsigned int len = 2;

	memset(symbol, ' ', 8);
	symbol[0] = 'T';
	symbol[1] = 'W';
	for (uint32_t v = index + 1; v != 0; v = (v - 1) / 26) {
		letters[n++] = (char)('A' + (v - 1) % 26);
	}
	while (n != 0) {
		symbol[len++] = letters[--n];
	}
	if (index % 17 == 16 && len <= 6) {
		symbol[len] = '.';
		symbol[len + 1] = 'A';
	}
}

void gen_instruments_make(struct gen_instrument *instruments, uint32_t n, struct gen_rng *rng)
{
	for (uint32_t i = 0; i < n; i++) {
		struct gen_instrument *in = &instruments[i];
		bool cheap = i % 50 == 49;

		memset(in, 0, sizeof(*in));
		make_symbol(in->symbol, i);
		in->tick = cheap ? TICK_BELOW_1 : TICK_ABOVE_1;
		in->mid_ticks = cheap ? 2000 + gen_rng_below(rng, 7000)
				      : (int64_t)(120 + gen_rng_exponential(rng, 6000));
		if (i == DEAREST_INDEX) {
			in->mid_ticks = DEAREST_TICKS;
		}
		in->base_price = in->mid_ticks * in->tick;
		in->spread_ticks = 1 + (uint32_t)(in->mid_ticks / 2500) + gen_rng_below(rng, 3);
		in->listed = i % GEN_LISTED_EVERY == 0;
		in->test = in->listed && i / GEN_LISTED_EVERY % 4 == 0;
		in->etp = gen_rng_below(rng, 4) == 0;
		in->luld_tier = (uint8_t)gen_rng_below(rng, 3);
		in->short_restricted = gen_rng_chance(rng, PERMILLE(30));
		in->short_detail = !in->short_restricted ? ' ' : in->listed ? 'C' : 'N';
	}
}

static uint32_t round_lots(struct gen_rng *rng)
{
	return LOT * (1 + (uint32_t)gen_rng_exponential(rng, 3));
}

/* Drawn back to the base price the harder the further away. */
void gen_walk(struct gen_instrument *in, struct gen_rng *rng)
{
	int64_t base = in->base_price / in->tick;
	int64_t step = 1 + gen_rng_below(rng, 1 + in->spread_ticks / 2);
	int64_t away = (in->mid_ticks - base) * 400 / base;
	bool down = (int64_t)gen_rng_below(rng, 1000) < 500 + away;

	in->mid_ticks += down ? -step : step;
	if (in->mid_ticks < 2 + in->spread_ticks) {
		in->mid_ticks = 2 + in->spread_ticks;
	}
}

void gen_quote_step(struct gen_instrument *in, struct gen_rng *rng)
{
	const struct gen_side bid = in->bid;
	const struct gen_side ask = in->ask;

	if (gen_rng_chance(rng, PERMILLE(400))) {
		gen_walk(in, rng);
	}
	int64_t below = (1 + gen_rng_below(rng, in->spread_ticks)) / 2;
	int64_t above = 1 + gen_rng_below(rng, in->spread_ticks) / 2;
	in->bid = (struct gen_side){ (in->mid_ticks - below) * in->tick, round_lots(rng) };
	in->ask = (struct gen_side){ (in->mid_ticks + above) * in->tick, round_lots(rng) };
	if (gen_rng_chance(rng, PERMILLE(120))) {
		in->bid = (struct gen_side){ 0, 0 };
	} else if (gen_rng_chance(rng, PERMILLE(120))) {
		in->ask = (struct gen_side){ 0, 0 };
	}
	if (in->bid.price == bid.price && in->bid.qty == bid.qty && in->ask.price == ask.price &&
	    in->ask.qty == ask.qty) { /* an update changes something */
		struct gen_side *side = in->bid.qty != 0 ? &in->bid : &in->ask;
		side->qty += LOT;
	}
}

static int64_t trade_price(const struct gen_instrument *in, struct gen_rng *rng)
{
	uint32_t at = gen_rng_below(rng, 10);

	if (in->bid.qty == 0 && in->ask.qty == 0) {
		return in->mid_ticks * in->tick;
	}
	if (in->bid.qty == 0) {
		return in->ask.price;
	}
	if (in->ask.qty == 0) {
		return in->bid.price;
	}
	if (at < 4) {
		return (in->bid.price + in->ask.price) / 2;
	}
	return at < 7 ? in->bid.price : in->ask.price;
}

void gen_trade_make(struct gen_instrument *in, struct gen_rng *rng, struct gen_event *event)
{
	bool iso = gen_rng_chance(rng, PERMILLE(150));
	uint32_t qty = 1 + gen_rng_below(rng, LOT - 1);

	if (!gen_rng_chance(rng, PERMILLE(300))) {
		bool mixed = gen_rng_chance(rng, PERMILLE(50));
		qty = round_lots(rng) + (mixed ? qty : 0);
	}
	event->kind = GEN_TRADE;
	event->instrument = in;
	event->price = trade_price(in, rng);
	event->qty = qty;
	event->conditions = (iso ? GEN_COND_ISO : 0u) | (qty < LOT ? GEN_COND_ODD_LOT : 0u);
	if (iso && gen_rng_chance(rng, PERMILLE(50))) {
		event->conditions |= GEN_COND_EXEMPT;
	}
}

void gen_auction_make(const struct gen_instrument *in, struct gen_rng *rng, struct gen_event *event)
{
	int64_t reference = in->mid_ticks * in->tick;
	uint32_t sides = gen_rng_below(rng, 8);

	event->kind = GEN_AUCTION;
	event->instrument = in;
	event->collar_price = in->base_price;
	event->lower_price = in->base_price * 9 / 10;
	event->upper_price = in->base_price * 11 / 10;
	event->qty = event->imbalance_qty = 0;
	event->price = event->clearing_price = event->book_price = 0;
	event->imbalance_side = 'N';
	if (sides == 0) { /* nothing on the auction book */
		return;
	}
	event->qty = round_lots(rng) * 10;
	event->price = reference;
	event->clearing_price = reference + in->tick * (int64_t)gen_rng_below(rng, 5);
	event->book_price = reference + in->tick * (int64_t)gen_rng_below(rng, 9);
	if (sides > 2) {
		event->imbalance_qty = round_lots(rng);
		event->imbalance_side = sides % 2 == 0 ? 'B' : 'S';
	}
}
