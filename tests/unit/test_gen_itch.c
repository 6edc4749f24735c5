/* tw-gen's ITCH day, taken apart by a reader of its own that shares no code with the generator or the
 * feedhandler: every order from its first message to its last. */
#include "tests/unit/gen_itch.h"

#define MIDNIGHT   1767589200000000000u
#define MAX_ORDERS (MESSAGES * 2)
#define MAX_TRADES MESSAGES
#define ALL_TYPES  "SRHYLVWKJhAFECXDUPQBINO"

struct order {
	uint64_t ref;
	uint32_t qty, price;
	uint16_t locate;
	char side;
};

struct match {
	uint64_t number, qty;
	bool broken;
	bool breakable;
};

struct stock {
	char symbol[8];
	char state;
	bool venue_halted;
};

struct seen {
	uint64_t messages, counts[256], last_ns;
	uint64_t printed, unprinted, broken;
	char event; /* the newest system event */
	struct stock stocks[SYMBOLS + 1];
	struct order orders[MAX_ORDERS]; /* living and dead: those have no quantity */
	uint32_t order_count;
	struct match matches[MAX_TRADES];
	uint32_t match_count;
};

static struct order *find_order(struct seen *s, uint64_t ref)
{
	for (uint32_t i = s->order_count; i-- > 0;) {
		if (s->orders[i].ref == ref) {
			return &s->orders[i];
		}
	}
	return NULL;
}

/* The living order that a message names. */
static struct order *living(struct seen *s, const uint8_t *m)
{
	struct order *o = find_order(s, be(m + 11, 8));

	cr_assert_not_null(o, "%c of an order that never was", m[0]);
	cr_assert_gt(o->qty, 0, "%c of a dead order", m[0]);
	cr_assert_eq(o->locate, be(m + 1, 2));
	return o;
}

static void new_order(struct seen *s, const struct order *order)
{
	cr_assert_null(find_order(s, order->ref), "a reference number used twice");
	cr_assert(order->ref != 0 && order->qty != 0 && order->price != 0);
	cr_assert_leq(order->price, 1999999900u);
	cr_assert(order->side == 'B' || order->side == 'S');
	for (uint32_t i = 0; i < s->order_count; i++) {
		const struct order *o = &s->orders[i];
		if (o->qty != 0 && o->locate == order->locate && o->side != order->side) {
			cr_assert(order->side == 'B' ? order->price < o->price
						     : order->price > o->price,
				  "a crossed book");
		}
	}
	cr_assert_lt(s->order_count, MAX_ORDERS);
	s->orders[s->order_count++] = *order;
}

static void new_match(struct seen *s, uint64_t number, uint64_t qty, bool printable, bool breakable)
{
	cr_assert(s->match_count == 0 || number > s->matches[s->match_count - 1].number);
	cr_assert_lt(s->match_count, MAX_TRADES);
	s->matches[s->match_count++] = (struct match){ number, qty, false, breakable };
	*(printable ? &s->printed : &s->unprinted) += qty;
}

static struct stock *trading(struct seen *s, const uint8_t *m)
{
	struct stock *stock = &s->stocks[be(m + 1, 2)];

	cr_assert_eq(stock->state, 'T', "%c while halted", m[0]);
	cr_assert(!stock->venue_halted);
	return stock;
}

static void see_execution(struct seen *s, const uint8_t *m)
{
	struct order *o = living(s, m);
	uint32_t qty = (uint32_t)be(m + 19, 4);
	bool printable = m[0] == 'E' || m[31] == 'Y';

	cr_assert(qty > 0 && qty <= o->qty, "%u of %u", qty, o->qty);
	o->qty -= qty;
	if (m[0] == 'C') {
		cr_assert(m[31] == 'Y' || m[31] == 'N');
		cr_assert(!printable || be(m + 32, 4) != o->price);
	}
	if (printable) { /* else part of a cross, which may end a halt */
		(void)trading(s, m);
	}
	new_match(s, be(m + 23, 8), qty, printable, printable);
}

static void see_break(struct seen *s, const uint8_t *m)
{
	for (uint32_t i = 0; i < s->match_count; i++) {
		struct match *match = &s->matches[i];
		if (match->number == be(m + 11, 8)) {
			cr_assert(match->breakable && !match->broken);
			match->broken = true;
			s->broken += match->qty;
			return;
		}
	}
	cr_assert_fail("a break of a trade that never was");
}

static void see_system(struct seen *s, const uint8_t *m)
{
	static const char order[] = "OSQMEC";
	const char *before = s->event == '\0' ? order : strchr(order, s->event) + 1;

	cr_assert_eq((char)m[11], *before, "%c after %c", m[11], s->event);
	s->event = (char)m[11];
}

static void see_state(struct seen *s, const uint8_t *m)
{
	struct stock *stock = &s->stocks[be(m + 1, 2)];

	cr_assert_not_null(strchr("THPQ", m[19]));
	cr_assert_eq(m[20], ' ');
	if (s->event != 'O') { /* the news says something, or there is none: a second reason */
		cr_assert(m[19] != (uint8_t)stock->state || m[19] == 'H');
	}
	stock->state = (char)m[19];
}

static void see_book_message(struct seen *s, const uint8_t *m)
{
	struct order *o = NULL;
	struct order new = { .locate = (uint16_t)be(m + 1, 2) };

	switch (m[0]) {
	case 'A':
	case 'F':
		new.ref = be(m + 11, 8);
		new.side = (char)m[19];
		new.qty = (uint32_t)be(m + 20, 4);
		new.price = (uint32_t)be(m + 32, 4);
		cr_assert_not_null(strchr("TQ", s->stocks[new.locate].state));
		new_order(s, &new);
		break;
	case 'X':
		o = living(s, m);
		cr_assert(be(m + 19, 4) > 0 && be(m + 19, 4) < o->qty);
		o->qty -= (uint32_t)be(m + 19, 4);
		break;
	case 'D':
		living(s, m)->qty = 0;
		break;
	case 'U':
		o = living(s, m);
		o->qty = 0;
		new.side = o->side;
		new.ref = be(m + 19, 8);
		new.qty = (uint32_t)be(m + 27, 4);
		new.price = (uint32_t)be(m + 31, 4);
		new_order(s, &new);
		break;
	default:
		see_execution(s, m);
		break;
	}
}

static void see_other(struct seen *s, const uint8_t *m)
{
	struct stock *stock = &s->stocks[be(m + 1, 2)];

	switch (m[0]) {
	case 'S':
		see_system(s, m);
		break;
	case 'H':
		see_state(s, m);
		break;
	case 'h':
		cr_assert(m[19] == 'Q' || m[19] == 'X');
		stock->venue_halted = m[19] == 'Q' ? m[20] == 'H' : stock->venue_halted;
		break;
	case 'K': /* of no time and no price when cancelled */
		cr_assert(m[23] == 'A' || m[23] == 'C');
		cr_assert_eq(be(m + 19, 4) != 0, m[23] == 'A');
		cr_assert_eq(be(m + 24, 4) != 0, m[23] == 'A');
		break;
	case 'J':
		cr_assert(be(m + 23, 4) > be(m + 19, 4) && be(m + 19, 4) > be(m + 27, 4));
		break;
	case 'P':
		(void)trading(s, m);
		cr_assert_eq(be(m + 11, 8), 0);
		cr_assert_eq(m[19], 'B');
		cr_assert(be(m + 20, 4) > 0 && be(m + 32, 4) > 0);
		new_match(s, be(m + 36, 8), be(m + 20, 4), true, true);
		break;
	case 'Q':
		cr_assert_not_null(strchr("OCH", m[39]));
		cr_assert_eq(be(m + 11, 8) != 0, be(m + 27, 4) != 0);
		new_match(s, be(m + 31, 8), be(m + 11, 8), true, false);
		break;
	case 'B':
		see_break(s, m);
		break;
	default:
		break;
	}
}

static void see_message(struct seen *s, const uint8_t *m, uint64_t len)
{
	static const uint8_t sizes[256] = {
		['S'] = 12, ['R'] = 39, ['H'] = 25, ['Y'] = 20, ['L'] = 26, ['V'] = 35,
		['W'] = 12, ['K'] = 28, ['J'] = 35, ['h'] = 21, ['A'] = 36, ['F'] = 40,
		['E'] = 31, ['C'] = 36, ['X'] = 23, ['D'] = 19, ['U'] = 35, ['P'] = 44,
		['Q'] = 40, ['B'] = 19, ['I'] = 50, ['N'] = 20, ['O'] = 48,
	};
	/* where the symbol stands; K names it without a locate */
	static const uint8_t symbols[256] = {
		['H'] = 11, ['Y'] = 11, ['h'] = 11, ['J'] = 11, ['N'] = 11, ['O'] = 11,
		['L'] = 15, ['A'] = 24, ['F'] = 24, ['P'] = 24, ['Q'] = 19, ['I'] = 28,
	};
	uint64_t locate = be(m + 1, 2);

	cr_assert_eq(len, sizes[m[0]], "type %c: %u bytes", m[0], (unsigned int)len);
	cr_assert_eq(locate == 0, strchr("SVWK", m[0]) != NULL);
	cr_assert_leq(locate, SYMBOLS);
	cr_assert_geq(be(m + 5, 6), s->last_ns);
	s->last_ns = be(m + 5, 6);
	s->messages++;
	s->counts[m[0]]++;
	if (m[0] == 'R') {
		cr_assert_eq(locate, s->counts['R'], "locates count from 1");
		memcpy(s->stocks[locate].symbol, m + 11, 8);
	}
	if (symbols[m[0]] != 0) {
		cr_assert_arr_eq(m + symbols[m[0]], s->stocks[locate].symbol, 8);
	}
	if (strchr("AFECXDU", m[0]) != NULL) {
		see_book_message(s, m);
	} else {
		see_other(s, m);
	}
}

/* All messages of a plain file, whose end a length of zero marks. */
static struct seen *see_all(const struct blob *blob)
{
	struct seen *s = calloc(1, sizeof(*s));
	size_t at = 0;

	cr_assert_not_null(s);
	for (;;) {
		cr_assert_leq(at + 2, blob->len);
		uint64_t len = be(blob->bytes + at, 2);
		at += 2;
		if (len == 0) {
			break;
		}
		cr_assert_leq(at + len, blob->len);
		see_message(s, blob->bytes + at, len);
		at += len;
	}
	cr_assert_eq(at, blob->len, "nothing behind the end");
	return s;
}

static uint64_t hash_be(uint64_t hash, uint64_t v, unsigned int bytes)
{
	for (unsigned int i = 0; i < bytes; i++) {
		hash ^= v >> 8 * (bytes - 1 - i) & 0xff;
		hash *= 0x100000001b3u;
	}
	return hash;
}

static void check_books(const struct seen *s, const struct tw_gen_summary *sum)
{
	uint64_t hash = 0xcbf29ce484222325u;
	uint64_t orders = 0;
	uint64_t qty = 0;

	for (uint16_t locate = 1; locate <= s->counts['R']; locate++) {
		uint64_t best[2][2] = { { 0, 0 }, { 0, 0 } }; /* bid and offer: price, quantity */
		for (uint32_t i = 0; i < s->order_count; i++) {
			const struct order *o = &s->orders[i];
			uint64_t *b = best[o->side == 'S'];
			if (o->locate != locate || o->qty == 0) {
				continue;
			}
			orders++;
			qty += o->qty;
			if (b[0] == 0 || (o->side == 'B' ? o->price > b[0] : o->price < b[0])) {
				b[0] = o->price;
				b[1] = 0;
			}
			b[1] += o->price == b[0] ? o->qty : 0;
		}
		hash = hash_be(hash, locate, 2);
		for (unsigned int side = 0; side < 2; side++) {
			hash = hash_be(hash, best[side][0], 4);
			hash = hash_be(hash, best[side][1], 8);
		}
	}
	cr_assert_eq(orders, sum->living_orders);
	cr_assert_eq(qty, sum->living_qty);
	cr_assert_eq(hash, sum->book_hash);
	cr_assert_gt(orders, 0);
}

static void check_summary(const struct seen *s, const struct tw_gen_summary *sum)
{
	cr_assert_eq(s->messages, sum->messages);
	cr_assert_eq(s->messages, sum->last_seq);
	cr_assert_eq(sum->first_seq, 1);
	cr_assert_arr_eq(s->counts, sum->counts, sizeof(s->counts));
	cr_assert_eq(s->printed, sum->traded_qty);
	cr_assert_eq(s->unprinted, sum->unprinted_qty);
	cr_assert_eq(s->broken, sum->broken_qty);
	cr_assert_eq(s->event, 'C');
	for (const char *type = ALL_TYPES; *type != '\0'; type++) {
		cr_assert_gt(s->counts[(uint8_t)*type], 0, "no %c in the day", *type);
	}
	check_books(s, sum);
}

Test(gen_itch, every_order_lives_as_it_should, .timeout = 120)
{
	struct tw_gen_summary sum;
	struct blob blob = generate(&itch_base, &sum);
	struct seen *s = see_all(&blob);

	check_summary(s, &sum);
	cr_assert_eq(s->messages, MESSAGES);
	cr_assert_eq(blob.len, sum.capture_bytes);
	cr_assert_eq(sum.packets, 0);
	cr_assert_eq(s->last_ns, sum.last_ns - MIDNIGHT);
	cr_assert_eq(s->counts['S'], 6);
	free(s);
	free(blob.bytes);
}

Test(gen_itch, the_shortest_days_have_everything, .timeout = 120)
{
	static const uint32_t symbols[] = { GEN_FLOW_MIN_SYMBOLS, 9, 31, SYMBOLS };

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		struct tw_gen_conf conf = itch_base;
		struct tw_gen_summary sum;
		conf.seed = 100 + i;
		conf.symbols = symbols[i];
		conf.messages = gen_flow_min_messages(symbols[i]);
		struct blob blob = generate(&conf, &sum);
		struct seen *s = see_all(&blob);
		check_summary(s, &sum);
		cr_assert_eq(s->messages, conf.messages);
		free(s);
		free(blob.bytes);
	}
}

static bool same(const struct blob *a, const struct blob *b)
{
	return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

Test(gen_itch, a_seed_is_a_day, .timeout = 60)
{
	struct tw_gen_summary sum[4];
	struct tw_gen_conf conf = moldudp64(true);
	struct blob first = generate(&conf, &sum[0]);
	struct blob again = generate(&conf, &sum[1]);

	cr_assert(same(&first, &again));
	cr_assert_arr_eq(&sum[0], &sum[1], sizeof(sum[0]));
	conf.gzip = true;
	struct blob packed = generate(&conf, &sum[2]);
	cr_assert(same(&first, &packed));
	conf.gzip = false;
	conf.seed++;
	struct blob other = generate(&conf, &sum[3]);
	cr_assert_not(same(&first, &other));
	cr_assert_neq(sum[0].book_hash, sum[3].book_hash);
	free(first.bytes);
	free(again.bytes);
	free(packed.bytes);
	free(other.bytes);
}

/* These very bytes were decoded by another project's dissectors (the Open Markets Initiative's, of
 * Nasdaq TotalView-ITCH 5.0 as of February 2026), and every field of every message had the value that
 * the model had meant.  Whoever changes them has that to do again. */
Test(gen_itch, the_bytes_are_pinned, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_gen_conf conf = moldudp64(false);
	struct blob plain = generate(&itch_base, &sum);
	struct blob capture = generate(&conf, &sum);
	uLong plain_crc = crc32(0, plain.bytes, (uInt)plain.len);
	uLong capture_crc = crc32(0, capture.bytes, (uInt)capture.len);

	cr_assert_eq(plain_crc, 0x3e939e58u, "%08lx", plain_crc);
	cr_assert_eq(capture_crc, 0xd193df9du, "%08lx", capture_crc);
	free(plain.bytes);
	free(capture.bytes);
}

Test(gen_itch, the_day_begins_at_midnight_in_new_york, .timeout = 60)
{
	static const struct {
		uint64_t s, midnight_s;
	} cases[] = {
		{ 1767623340, 1767589200 }, /* 2026-01-05T14:29:00Z */
		{ 1767589199, 1767502800 }, /* a second before midnight */
		{ 1767589200, 1767589200 },
		{ 1772807400,
		  1772773200 }, /* 2026-03-06T14:30:00Z, the Friday before summer time */
		{ 1773063000, 1773028800 }, /* 2026-03-09T13:30:00Z, the Monday after */
		{ 1782912600, 1782878400 }, /* 2026-07-01T13:30:00Z */
		{ 1793367000,
		  1793332800 }, /* 2026-10-30T13:30:00Z, the last Friday of summer time */
		{ 1793629800, 1793595600 }, /* 2026-11-02T14:30:00Z */
		{ 1709217000, 1709182800 }, /* 2024-02-29T14:30:00Z */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_assert_eq(gen_midnight_ns(cases[i].s * 1000000000u),
			     cases[i].midnight_s * 1000000000u, "case %zu", i);
	}
}

Test(gen_itch, settings_are_checked, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_error err;

#define REFUSED(change)                                                           \
	do {                                                                      \
		struct tw_gen_conf c = moldudp64(true);                           \
		c.output = "/nonexistent/never-made";                             \
		change;                                                           \
		err.text[0] = '\0';                                               \
		cr_assert_eq(tw_gen_run(&c, &sum, &err), TW_EARG, "%s", #change); \
		cr_assert_neq(err.text[0], '\0');                                 \
	} while (0)
	REFUSED(c.framing = "soupbintcp");
	REFUSED(c.framing = "iextp");
	REFUSED(c.framing = "binaryfile"); /* it has no lines */
	REFUSED(c.symbols = GEN_FLOW_MIN_SYMBOLS - 1);
	REFUSED((c.symbols = GEN_FLOW_MAX_SYMBOLS + 1, c.messages = 100000000));
	REFUSED(c.messages = gen_flow_min_messages(SYMBOLS) - 1);
	REFUSED(c.start_ns += 866 * UINT64_C(60000000000)); /* past midnight */
	REFUSED(c.start_ns = 1000000000u);
	REFUSED(c.group_b = c.group);
	REFUSED(c.skew_ns = TW_GEN_MAX_SKEW_NS + 1);
#undef REFUSED
}

Test(gen_itch, a_failing_output_is_reported, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_error err = { 0 };
	struct tw_gen_conf conf = itch_base;

	conf.output = "/dev/full";
	conf.messages = 100000; /* more than is kept before the first write */
	cr_assert_eq(tw_gen_run(&conf, &sum, &err), TW_ESYS);
	cr_assert_not_null(strstr(err.text, "/dev/full: write: "));
	conf = moldudp64(true);
	conf.output = "/dev/full";
	cr_assert_eq(tw_gen_run(&conf, &sum, &err), TW_ESYS);
	cr_assert_not_null(strstr(err.text, "/dev/full: write: "));
}
