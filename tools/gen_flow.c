/* What happens to one book: orders come near the best price and go again, takers sweep the best
 * level, hidden orders trade between the two.  The shares of the kinds are about those of a real
 * day. */
#include <string.h>

#include "gen_flow.h"

#define LOT            100u
#define MAX_ORDER_QTY  999999u
#define PERMILLE(x)    ((x)*1000u)
#define MAX_SWEEP      6u
#define MIN_LIVING     64u /* orders in all that stay, so that the script has some to take away */
#define PICKS          16u
#define TRACK_EXECUTED 2u /* tracking numbers as seen in real feeds: 0 but for what matches */
#define TRACK_CROSSED  1u

const char *const gen_participants[GEN_PARTICIPANTS + 1] = { "",     "TWAA", "TWAB", "TWBC", "TWBD",
							     "TWCE", "TWDF", "TWEG", "TWFH", "TWGI",
							     "TWHJ", "TWIK", "TWJL" };

void gen_flow_emit(struct gen_flow *f, struct gen_act *act)
{
	if (f->status != TW_OK) {
		return;
	}
	act->time_ns = f->now_ns < f->last_ns ? f->now_ns : f->last_ns;
	f->status = f->feed->protocol->act(f->feed, act);
}

uint64_t gen_flow_emitted(const struct gen_flow *f)
{
	return f->feed->summary->messages;
}

bool gen_flow_room(const struct gen_flow *f, uint64_t messages)
{
	return f->status == TW_OK && gen_flow_emitted(f) + messages <= f->end_messages;
}

static uint64_t next_match(struct gen_flow *f)
{
	return f->match += 1 + gen_rng_below(&f->rng, 3);
}

static uint64_t next_ref(struct gen_flow *f)
{
	return f->ref += 1 + gen_rng_below(&f->rng, 6);
}

/* What may be broken later: a cross is not. */
static void remember(struct gen_flow *f, const struct gen_act *act)
{
	unsigned int i = f->trades++ % GEN_RECENT;

	f->recent[i].match = act->match;
	f->recent[i].qty = act->qty;
	f->recent[i].stock = act->stock;
}

static uint32_t order_qty(struct gen_rng *rng)
{
	uint32_t kind = gen_rng_below(rng, 1000);

	if (kind < 250) {
		return 1 + gen_rng_below(rng, LOT - 1);
	}
	if (kind == 999) {
		return MAX_ORDER_QTY - gen_rng_below(rng, 1000);
	}
	uint64_t lots = 1 + gen_rng_exponential(rng, 2);
	uint32_t odd = kind < 280 ? gen_rng_below(rng, LOT) : 0;
	return LOT * (uint32_t)lots + odd;
}

static uint32_t tick_of(const struct gen_stock *s)
{
	return (uint32_t)s->in->tick;
}

static uint32_t priced(uint64_t price)
{
	return price < GEN_MAX_PRICE ? (uint32_t)price : GEN_MAX_PRICE;
}

/* A price for a new order: mostly at the best, sometimes better, else somewhere behind; it may be
 * beyond the other side's best. */
static uint32_t wish_price(struct gen_flow *f, const struct gen_stock *s, enum gen_book_side side)
{
	const struct gen_level *best = gen_books_best(&f->books, s->book, side);
	const int64_t tick = s->in->tick;
	const int64_t away = side == GEN_BUY ? -tick : tick;
	const int64_t middle = s->in->mid_ticks * tick;
	const int64_t spread = s->in->spread_ticks;
	uint32_t kind = gen_rng_below(&f->rng, 100);
	/* ticks behind the middle; nobody joins a best that the market has left behind or passed */
	int64_t lag = best == NULL ? INT64_MAX : ((int64_t)best->price - middle) / away;
	bool wanted = lag >= 0 && lag < 4 * spread;
	int64_t price = 0;

	if (wanted && kind < 10 && lag > spread / 2) {
		price = (int64_t)best->price - away;
	} else if (wanted && kind < 55) {
		price = (int64_t)best->price;
	} else {
		int64_t behind =
			spread / 2 + (int64_t)gen_rng_exponential(&f->rng, 2 + s->in->spread_ticks);
		price = middle + away * (behind + (side == GEN_BUY ? 0 : 1));
	}
	return price < tick ? (uint32_t)tick : priced((uint64_t)price);
}

static bool crosses(const struct gen_flow *f, const struct gen_stock *s, enum gen_book_side side,
		    uint32_t price)
{
	const struct gen_level *other =
		gen_books_best(&f->books, s->book, side == GEN_BUY ? GEN_SELL : GEN_BUY);

	return other != NULL && (side == GEN_BUY ? price >= other->price : price <= other->price);
}

/* An order of the book, the rather the nearer to the best; GEN_NO_ORDER where it has none. */
static uint32_t some_order(struct gen_flow *f, const struct gen_stock *s)
{
	const struct gen_book *book = &f->books.books[s->book];
	unsigned int side = gen_rng_below(&f->rng, 2);

	if (book->sides[side].n == 0) {
		side ^= 1;
	}
	const struct gen_levels *levels = &book->sides[side];
	if (levels->n == 0) {
		return GEN_NO_ORDER;
	}
	uint32_t down = (uint32_t)gen_rng_exponential(&f->rng, 3) % levels->n;
	const struct gen_level *level = &levels->at[levels->n - 1 - down];
	uint32_t index = gen_rng_below(&f->rng, 4) == 0 ? level->head : level->tail;
	for (uint32_t back = gen_rng_below(&f->rng, 3);
	     back > 0 && f->books.orders[index].prev != GEN_NO_ORDER; back--) {
		index = f->books.orders[index].prev;
	}
	return index;
}

static void delete_order(struct gen_flow *f, const struct gen_stock *s, uint32_t index)
{
	struct gen_act act = {
		.kind = GEN_ACT_DELETE,
		.stock = s,
		.order = f->books.orders[index],
	};
	gen_books_reduce(&f->books, index, act.order.qty);
	gen_flow_emit(f, &act);
}

/* `qty` of an order, which has as much: at its own price, or at another. */
static void execute(struct gen_flow *f, const struct gen_stock *s, uint32_t index, uint32_t qty,
		    uint32_t price, bool printable)
{
	struct gen_act act = {
		.kind = GEN_ACT_EXECUTE,
		.stock = s,
		.order = f->books.orders[index],
		.qty = qty,
		.price = price,
		.match = next_match(f),
		.tracking = TRACK_EXECUTED,
		.printable = printable,
	};
	if (price != act.order.price || !printable) {
		act.kind = GEN_ACT_EXECUTE_AT;
	}
	gen_books_reduce(&f->books, index, qty);
	gen_flow_emit(f, &act);
	if (printable) {
		remember(f, &act);
	}
}

/* Somebody takes from the best level of this side. */
static void take(struct gen_flow *f, const struct gen_stock *s, enum gen_book_side side)
{
	const uint32_t tick = tick_of(s);
	uint32_t left = order_qty(&f->rng);

	for (unsigned int i = 0; i < MAX_SWEEP && left > 0 && gen_flow_room(f, 1); i++) {
		const struct gen_level *best = gen_books_best(&f->books, s->book, side);
		if (best == NULL) {
			return;
		}
		const struct gen_order *o = &f->books.orders[best->head];
		uint32_t qty = left < o->qty ? left : o->qty;
		uint32_t price = o->price;
		/* rarely the order gets a better price than it shows */
		if (gen_rng_chance(&f->rng, PERMILLE(30)) && price > tick &&
		    price < GEN_MAX_PRICE - tick) {
			price = side == GEN_BUY ? price - tick : price + tick;
		}
		left -= qty;
		execute(f, s, best->head, qty, price, true);
	}
}

/* Makes room in a full side: somebody far from the best gives up. */
static void delete_worst(struct gen_flow *f, const struct gen_stock *s, enum gen_book_side side)
{
	const struct gen_levels *levels = &f->books.books[s->book].sides[side];

	if (levels->n != 0) {
		delete_order(f, s, levels->at[0].tail);
	}
}

static void add(struct gen_flow *f, const struct gen_stock *s)
{
	enum gen_book_side side = gen_rng_below(&f->rng, 2) == 0 ? GEN_BUY : GEN_SELL;
	const uint32_t tick = tick_of(s);
	uint32_t price = wish_price(f, s, side);

	if (crosses(f, s, side, price)) {
		enum gen_book_side other = side == GEN_BUY ? GEN_SELL : GEN_BUY;
		if (s->state == 'T' && f->books.living > MIN_LIVING &&
		    gen_rng_chance(&f->rng, PERMILLE(150))) {
			take(f, s, other);
			return;
		}
		/* the others wait at their own side's best, or where it would be */
		const struct gen_level *own = gen_books_best(&f->books, s->book, side);
		price = gen_books_best(&f->books, s->book, other)->price;
		if (side == GEN_BUY ? price <= tick : price > GEN_MAX_PRICE - tick) {
			return;
		}
		price = own != NULL ? own->price : side == GEN_BUY ? price - tick : price + tick;
	}
	struct gen_act act = { .kind = GEN_ACT_ADD, .stock = s };
	act.order = (struct gen_order){
		.ref = f->ref,
		.qty = order_qty(&f->rng),
		.price = price,
		.book = s->book,
		.side = (uint8_t)side,
	};
	if (gen_rng_chance(&f->rng, PERMILLE(300))) {
		act.order.participant = (uint8_t)(1 + gen_rng_below(&f->rng, GEN_PARTICIPANTS));
	}
	act.order.ref = next_ref(f);
	if (gen_books_add(&f->books, &act.order) == GEN_NO_ORDER) {
		delete_worst(f, s, side);
		return;
	}
	gen_flow_emit(f, &act);
}

static void cancel(struct gen_flow *f, const struct gen_stock *s, uint32_t index)
{
	const struct gen_order *o = &f->books.orders[index];

	if (o->qty == 1) {
		delete_order(f, s, index);
		return;
	}
	struct gen_act act = { .kind = GEN_ACT_CANCEL, .stock = s, .order = *o };
	act.qty = o->qty > LOT ? LOT * (1 + gen_rng_below(&f->rng, (o->qty - 1) / LOT))
			       : 1 + gen_rng_below(&f->rng, o->qty - 1);
	gen_books_reduce(&f->books, index, (uint32_t)act.qty);
	gen_flow_emit(f, &act);
}

/* The same side, stock and participant; a new number, at the end of the queue. */
static void replace(struct gen_flow *f, const struct gen_stock *s, uint32_t index)
{
	struct gen_act act = {
		.kind = GEN_ACT_REPLACE,
		.stock = s,
		.order = f->books.orders[index],
	};
	enum gen_book_side side = (enum gen_book_side)act.order.side;
	uint32_t price = wish_price(f, s, side);

	if (crosses(f, s, side, price)) {
		delete_order(f, s, index);
		return;
	}
	const uint32_t old_price = act.order.price;
	act.old_ref = act.order.ref;
	gen_books_reduce(&f->books, index, act.order.qty);
	act.order.ref = next_ref(f);
	act.order.qty = order_qty(&f->rng);
	act.order.price = price;
	if (gen_books_add(&f->books, &act.order) == GEN_NO_ORDER) {
		/* a side with no room for one more level still has that of the old order, or
		 * room where it was */
		act.order.price = old_price;
		(void)gen_books_add(&f->books, &act.order);
	}
	gen_flow_emit(f, &act);
}

static void hidden_trade(struct gen_flow *f, const struct gen_stock *s)
{
	const struct gen_level *bid = gen_books_best(&f->books, s->book, GEN_BUY);
	const struct gen_level *ask = gen_books_best(&f->books, s->book, GEN_SELL);
	struct gen_act act = {
		.kind = GEN_ACT_HIDDEN_TRADE,
		.stock = s,
		.qty = order_qty(&f->rng),
		.match = next_match(f),
		.tracking = TRACK_EXECUTED,
	};

	if (bid != NULL && ask != NULL) { /* halves of a tick are real */
		act.price = (bid->price + ask->price) / 2;
	} else if (bid != NULL || ask != NULL) {
		act.price = bid != NULL ? bid->price : ask->price;
	} else {
		act.price = (uint32_t)(s->in->mid_ticks * s->in->tick);
	}
	gen_flow_emit(f, &act);
	remember(f, &act);
}

static void retail(struct gen_flow *f, struct gen_stock *s)
{
	static const char flags[] = "BSAN";
	const char *was = strchr(flags, s->retail);
	struct gen_act act = { .kind = GEN_ACT_RETAIL, .stock = s };

	s->retail = flags[((was - flags) + 1 + gen_rng_below(&f->rng, 3)) % 4];
	gen_flow_emit(f, &act);
}

bool gen_flow_break(struct gen_flow *f)
{
	uint32_t i = gen_rng_below(&f->rng, GEN_RECENT);

	for (uint32_t tried = 0; tried < GEN_RECENT; tried++, i = (i + 1) % GEN_RECENT) {
		if (f->recent[i].stock != NULL) {
			struct gen_act act = {
				.kind = GEN_ACT_BREAK,
				.stock = f->recent[i].stock,
				.match = f->recent[i].match,
				.qty = f->recent[i].qty,
			};
			f->recent[i].stock = NULL; /* a trade is broken once */
			gen_flow_emit(f, &act);
			return true;
		}
	}
	return false;
}

static bool open_for_orders(const struct gen_stock *s)
{
	return (s->state == 'T' || s->state == 'Q') && !s->venue_halted;
}

/* Few stocks have most of the day, those of low rank, which are spread over the directory; but all
 * have some of it. */
static struct gen_stock *pick(struct gen_flow *f)
{
	for (unsigned int tried = 0; tried < PICKS; tried++) {
		uint32_t rank = gen_rng_below(&f->rng, f->n);
		if (!gen_rng_chance(&f->rng, PERMILLE(150))) {
			rank = gen_rng_below(&f->rng, rank + 1);
			rank = gen_rng_below(&f->rng, rank + 1);
		}
		struct gen_stock *s = &f->stocks[(uint64_t)rank * f->stride % f->n];
		if (open_for_orders(s)) {
			return s;
		}
	}
	return NULL;
}

/* An order comes or goes, such that the book keeps about the size it should have. */
static void come_or_go(struct gen_flow *f, const struct gen_stock *s, bool come)
{
	uint32_t orders = f->books.books[s->book].orders;

	if (orders > s->target_orders && gen_rng_below(&f->rng, 2) == 0) {
		come = false;
	} else if (orders < s->target_orders / 2 && gen_rng_below(&f->rng, 2) == 0) {
		come = true;
	}
	if (come || orders == 0 || f->books.living <= MIN_LIVING) {
		add(f, s);
	} else {
		delete_order(f, s, some_order(f, s));
	}
}

static void act_on(struct gen_flow *f, struct gen_stock *s)
{
	uint32_t kind = gen_rng_below(&f->rng, 10000);
	uint32_t index = some_order(f, s);
	bool spare = f->books.living > MIN_LIVING;

	if (gen_rng_chance(&f->rng, PERMILLE(200))) {
		gen_walk(s->in, &f->rng);
	}
	if (kind < 8300 || index == GEN_NO_ORDER) {
		come_or_go(f, s, kind < 4600);
	} else if (kind < 9600) {
		replace(f, s, index);
	} else if (kind < 9750) {
		cancel(f, s, index);
	} else if (kind < 9755) {
		retail(f, s);
	} else if (s->state != 'T') {
		come_or_go(f, s, true);
	} else if (kind < 9830) {
		hidden_trade(f, s);
	} else if (kind == 9830 && gen_rng_below(&f->rng, 50) == 0) {
		(void)gen_flow_break(f);
	} else if (spare) {
		take(f, s, (enum gen_book_side)f->books.orders[index].side);
	}
}

void gen_flow_step(struct gen_flow *f)
{
	const uint64_t before = gen_flow_emitted(f);

	for (unsigned int tried = 0; tried < PICKS && gen_flow_emitted(f) == before; tried++) {
		struct gen_stock *s = pick(f);
		if (s != NULL) {
			act_on(f, s);
		}
	}
	if (gen_flow_emitted(f) == before) { /* nobody wants anything */
		retail(f, &f->stocks[gen_rng_below(&f->rng, f->n)]);
	}
}

bool gen_flow_expire(struct gen_flow *f)
{
	uint32_t first = gen_rng_below(&f->rng, f->n);

	for (uint32_t i = 0; i < f->n; i++) {
		const struct gen_stock *s = &f->stocks[(first + i) % f->n];
		uint32_t index = some_order(f, s);
		if (index != GEN_NO_ORDER) {
			delete_order(f, s, index);
			return true;
		}
	}
	return false;
}

void gen_flow_state(struct gen_flow *f, struct gen_stock *s, char state, const char *reason)
{
	struct gen_act act = { .kind = GEN_ACT_STATE, .stock = s, .text = reason };

	s->state = state;
	gen_flow_emit(f, &act);
}

/* At the price of the best of one side; some of what is shown there takes part, which is no print of
 * its own: the cross is one. */
void gen_flow_cross(struct gen_flow *f, const struct gen_stock *s, char code)
{
	enum gen_book_side side = gen_rng_below(&f->rng, 2) == 0 ? GEN_BUY : GEN_SELL;
	const struct gen_level *best = gen_books_best(&f->books, s->book, side);
	struct gen_act act = {
		.kind = GEN_ACT_CROSS,
		.stock = s,
		.code = code,
		.tracking = TRACK_CROSSED,
		.price = (uint32_t)(s->in->mid_ticks * s->in->tick),
	};

	if (best != NULL) {
		act.price = best->price;
	}
	for (unsigned int i = 0;
	     i < 2 && best != NULL && best->price == act.price && f->books.living > MIN_LIVING;
	     i++) {
		uint32_t left = f->books.orders[best->head].qty;
		uint32_t qty = i == 0 ? left : 1 + gen_rng_below(&f->rng, left);
		act.qty += qty;
		execute(f, s, best->head, qty, act.price, false);
		best = gen_books_best(&f->books, s->book, side);
	}
	if (code == 'H' || gen_rng_below(&f->rng, 4) != 0) {
		act.qty += LOT * (1 + gen_rng_exponential(&f->rng, 60)); /* on the cross alone */
	}
	if (act.qty == 0) { /* no cross: it is said all the same */
		act.price = 0;
	}
	act.match = next_match(f);
	gen_flow_emit(f, &act);
}

void gen_flow_imbalance(struct gen_flow *f, const struct gen_stock *s, char code)
{
	const uint32_t tick = tick_of(s);
	uint32_t kind = gen_rng_below(&f->rng, 8);
	struct gen_act act = {
		.kind = GEN_ACT_IMBALANCE,
		.stock = s,
		.code = code,
		.detail = 'O',
	};

	if (kind != 0) { /* else too few orders to say anything */
		const struct gen_level *best =
			gen_books_best(&f->books, s->book, kind % 2 == 0 ? GEN_BUY : GEN_SELL);
		act.price = best != NULL ? best->price : (uint32_t)(s->in->mid_ticks * s->in->tick);
		act.qty = LOT * (1 + gen_rng_exponential(&f->rng, 80));
		act.detail = 'N';
		/* what would clear is known only later on the way to the cross */
		if (kind > 2) {
			uint64_t off = gen_rng_exponential(&f->rng, act.price / tick / 40 + 1);
			act.near = priced(act.price + off * tick);
			off = gen_rng_exponential(&f->rng, off + 1);
			act.far = priced(act.price + off * tick);
		}
		if (kind > 4) {
			act.imbalance_qty = 1 + gen_rng_exponential(&f->rng, 5000);
			act.detail = kind % 2 == 0 ? 'B' : 'S';
		}
	}
	gen_flow_emit(f, &act);
}
