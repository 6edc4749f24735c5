/* Nasdaq TotalView-ITCH 5.0 messages, written where the framing wants them.
 *
 * Spec   [Nasdaq TotalView-ITCH 5.0]: the message format tables.  Integers big-endian, alphanumeric
 *        fields padded on the right with spaces, Price(4) with four decimals, Price(8) with eight,
 *        times in nanoseconds since midnight of the exchange.  The edition with the table of the
 *        direct listing message was not at hand: its layout is that of two other decoders. */
#include <string.h>

#include "gen_flow.h"

#define NS_PER_S 1000000000u

/* A message under construction: fields follow each other as in the document's tables. */
struct message {
	uint8_t *at;
	uint64_t midnight_ns;
};

static void add16(struct message *m, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(m->at, &v, sizeof(v));
	m->at += sizeof(v);
}

static void add32(struct message *m, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(m->at, &v, sizeof(v));
	m->at += sizeof(v);
}

static void add64(struct message *m, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(m->at, &v, sizeof(v));
	m->at += sizeof(v);
}

static void add_char(struct message *m, char c)
{
	*m->at++ = (uint8_t)c;
}

static void add_alpha(struct message *m, const char *text, size_t len)
{
	size_t used = strnlen(text, len);

	memcpy(m->at, text, used);
	memset(m->at + used, ' ', len - used);
	m->at += len;
}

static void add_time(struct message *m, uint64_t time_ns)
{
	uint64_t v = __builtin_bswap64((time_ns - m->midnight_ns) << 16);

	memcpy(m->at, &v, 6);
	m->at += 6;
}

static void add_stock(struct message *m, const struct gen_act *a)
{
	memcpy(m->at, a->stock->in->symbol, 8);
	m->at += 8;
}

static void make_code(struct message *m, const struct gen_act *a)
{
	add_char(m, a->code);
}

static void make_directory(struct message *m, const struct gen_act *a)
{
	const struct gen_stock *s = a->stock;

	add_stock(m, a);
	add_char(m, s->market);
	add_char(m, s->financial);
	add32(m, s->round_lot);
	add_char(m, 'N'); /* round lots only */
	add_char(m, s->classification);
	add_alpha(m, s->subtype, 2);
	add_char(m, s->authenticity);
	add_char(m, s->threshold);
	add_char(m, s->ipo);
	add_char(m, s->tier);
	add_char(m, s->etp);
	add32(m, s->leverage);
	add_char(m, s->inverse);
}

static void make_state(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add_char(m, a->stock->state);
	add_char(m, ' '); /* reserved */
	add_alpha(m, a->text, 4);
}

static void make_venue(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add_char(m, a->detail);
	add_char(m, a->code);
}

static void make_short_sale(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add_char(m, a->stock->short_sale);
}

static void make_position(struct message *m, const struct gen_act *a)
{
	add_alpha(m, a->text, 4);
	add_stock(m, a);
	add_char(m, a->detail);
	add_char(m, 'N'); /* market maker mode: normal */
	add_char(m, a->code);
}

static void make_breakers(struct message *m, const struct gen_act *a)
{
	for (unsigned int i = 0; i < 3; i++) {
		add64(m, a->levels[i]);
	}
}

static void make_ipo(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add32(m, a->when_ns != 0 ? (uint32_t)((a->when_ns - m->midnight_ns) / NS_PER_S) : 0);
	add_char(m, a->code);
	add32(m, a->price);
}

static void make_collar(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add32(m, a->price);
	add32(m, a->upper);
	add32(m, a->lower);
	add32(m, (uint32_t)a->qty);
}

static void make_add(struct message *m, const struct gen_act *a)
{
	add64(m, a->order.ref);
	add_char(m, a->order.side == GEN_BUY ? 'B' : 'S');
	add32(m, a->order.qty);
	add_stock(m, a);
	add32(m, a->order.price);
	if (a->order.participant != 0) {
		add_alpha(m, gen_participants[a->order.participant], 4);
	}
}

static void make_execute(struct message *m, const struct gen_act *a)
{
	add64(m, a->order.ref);
	add32(m, (uint32_t)a->qty);
	add64(m, a->match);
}

static void make_execute_at(struct message *m, const struct gen_act *a)
{
	make_execute(m, a);
	add_char(m, a->printable ? 'Y' : 'N');
	add32(m, a->price);
}

static void make_cancel(struct message *m, const struct gen_act *a)
{
	add64(m, a->order.ref);
	add32(m, (uint32_t)a->qty);
}

static void make_delete(struct message *m, const struct gen_act *a)
{
	add64(m, a->order.ref);
}

static void make_replace(struct message *m, const struct gen_act *a)
{
	add64(m, a->old_ref);
	add64(m, a->order.ref);
	add32(m, a->order.qty);
	add32(m, a->order.price);
}

static void make_hidden_trade(struct message *m, const struct gen_act *a)
{
	add64(m, 0);      /* the order is not named, since 2010 */
	add_char(m, 'B'); /* nor its side, since 2014 */
	add32(m, (uint32_t)a->qty);
	add_stock(m, a);
	add32(m, a->price);
	add64(m, a->match);
}

static void make_cross(struct message *m, const struct gen_act *a)
{
	add64(m, a->qty);
	add_stock(m, a);
	add32(m, a->price);
	add64(m, a->match);
	add_char(m, a->code);
}

static void make_break(struct message *m, const struct gen_act *a)
{
	add64(m, a->match);
}

/* How far the near price is from the reference. */
static char variation(const struct gen_act *a)
{
	if (a->near == 0 || a->price == 0) {
		return ' ';
	}
	uint32_t off = a->near > a->price ? a->near - a->price : a->price - a->near;
	uint64_t percent = (uint64_t)off * 100 / a->price;
	return percent < 1    ? 'L'
	       : percent < 10 ? (char)('0' + percent)
	       : percent < 20 ? 'A'
	       : percent < 30 ? 'B'
			      : 'C';
}

static void make_imbalance(struct message *m, const struct gen_act *a)
{
	add64(m, a->qty);
	add64(m, a->imbalance_qty);
	add_char(m, a->detail);
	add_stock(m, a);
	add32(m, a->far);
	add32(m, a->near);
	add32(m, a->price);
	add_char(m, a->code);
	add_char(m, variation(a));
}

static void make_retail(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add_char(m, a->stock->retail);
}

static void make_discovery(struct message *m, const struct gen_act *a)
{
	add_stock(m, a);
	add_char(m, a->code);
	add32(m, a->lower);
	add32(m, a->upper);
	add32(m, a->near);
	add64(m, a->when_ns - m->midnight_ns);
	add32(m, a->lower_collar);
	add32(m, a->upper_collar);
}

static const struct row {
	char type;
	uint8_t len_bytes;
	bool no_locate; /* 0, though a stock is named */
	void (*make)(struct message *m, const struct gen_act *a);
} rows[GEN_ACT_KINDS] = {
	[GEN_ACT_SYSTEM] = { 'S', 12, false, make_code },
	[GEN_ACT_DIRECTORY] = { 'R', 39, false, make_directory },
	[GEN_ACT_STATE] = { 'H', 25, false, make_state },
	[GEN_ACT_VENUE] = { 'h', 21, false, make_venue },
	[GEN_ACT_SHORT_SALE] = { 'Y', 20, false, make_short_sale },
	[GEN_ACT_POSITION] = { 'L', 26, false, make_position },
	[GEN_ACT_BREAKERS] = { 'V', 35, false, make_breakers },
	[GEN_ACT_BREACH] = { 'W', 12, false, make_code },
	[GEN_ACT_IPO] = { 'K', 28, true, make_ipo },
	[GEN_ACT_COLLAR] = { 'J', 35, false, make_collar },
	[GEN_ACT_ADD] = { 'A', 36, false, make_add }, /* or F, with four bytes more */
	[GEN_ACT_EXECUTE] = { 'E', 31, false, make_execute },
	[GEN_ACT_EXECUTE_AT] = { 'C', 36, false, make_execute_at },
	[GEN_ACT_CANCEL] = { 'X', 23, false, make_cancel },
	[GEN_ACT_DELETE] = { 'D', 19, false, make_delete },
	[GEN_ACT_REPLACE] = { 'U', 35, false, make_replace },
	[GEN_ACT_HIDDEN_TRADE] = { 'P', 44, false, make_hidden_trade },
	[GEN_ACT_CROSS] = { 'Q', 40, false, make_cross },
	[GEN_ACT_BREAK] = { 'B', 19, false, make_break },
	[GEN_ACT_IMBALANCE] = { 'I', 50, false, make_imbalance },
	[GEN_ACT_RETAIL] = { 'N', 20, false, make_retail },
	[GEN_ACT_DISCOVERY] = { 'O', 48, false, make_discovery },
};

static void count(struct tw_gen_summary *sum, const struct gen_act *a, char type)
{
	sum->messages++;
	sum->counts[(uint8_t)type]++;
	switch (a->kind) {
	case GEN_ACT_EXECUTE:
	case GEN_ACT_HIDDEN_TRADE:
	case GEN_ACT_CROSS:
		sum->traded_qty += a->qty;
		break;
	case GEN_ACT_EXECUTE_AT:
		*(a->printable ? &sum->traded_qty : &sum->unprinted_qty) += a->qty;
		break;
	case GEN_ACT_BREAK:
		sum->broken_qty += a->qty;
		break;
	default:
		break;
	}
}

static int itch50_act(struct gen_feed *feed, const struct gen_act *a)
{
	const struct row *row = &rows[a->kind];
	bool attributed = a->kind == GEN_ACT_ADD && a->order.participant != 0;
	char type = attributed ? 'F' : row->type;
	uint16_t len = (uint16_t)(row->len_bytes + (attributed ? 4 : 0));
	struct message m = {
		.at = feed->framing->append(feed, a->time_ns, len),
		.midnight_ns = feed->midnight_ns,
	};

	if (m.at == NULL) {
		return TW_ESYS;
	}
	const uint8_t *end = m.at + len;
	add_char(&m, type);
	add16(&m, a->stock != NULL && !row->no_locate ? (uint16_t)(a->stock->book + 1) : 0);
	add16(&m, a->tracking);
	add_time(&m, a->time_ns);
	row->make(&m, a);
	count(feed->summary, a, type);
	return m.at == end ? TW_OK : TW_EINTERNAL;
}

const struct gen_protocol gen_itch50 = {
	.name = "itch50",
	.description = "Nasdaq TotalView-ITCH 5.0",
	.framings = { &gen_moldudp64, &gen_binaryfile },
	.min_symbols = GEN_FLOW_MIN_SYMBOLS,
	.max_symbols = GEN_FLOW_MAX_SYMBOLS,
	.within_midnight = true,
	.min_messages = gen_flow_min_messages,
	.play = gen_flow_run,
	.act = itch50_act,
};
