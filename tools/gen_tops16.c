/* IEX TOPS 1.6 messages.
 *
 * Spec   [IEX TOPS Specification 1.64]: Administrative, Trading and Auction Message Formats, and
 *        Appendix A for the flags; written from that document alone. */
#include <string.h>

#include "gen.h"

enum { /* Appendix A */
       QUOTE_UNAVAILABLE = 0x80,
       QUOTE_EXTENDED_HOURS = 0x40,
       DIRECTORY_TEST = 0x80,
       DIRECTORY_ETP = 0x20,
       SALE_ISO = 0x80,
       SALE_EXTENDED_HOURS = 0x40,
       SALE_ODD_LOT = 0x20,
       SALE_TRADE_THROUGH_EXEMPT = 0x10,
       SALE_SINGLE_PRICE_CROSS = 0x08
};

#define ROUND_LOT     100u
#define LARGEST_BYTES 80u
#define NS_PER_S      1000000000u

/* A message under construction: fields are appended in the order of the document's tables. */
struct message {
	uint8_t bytes[LARGEST_BYTES];
	uint16_t len;
};

static void add(struct message *m, const void *field, uint16_t len)
{
	memcpy(m->bytes + m->len, field, len);
	m->len = (uint16_t)(m->len + len);
}

static void add_byte(struct message *m, uint32_t v)
{
	uint8_t byte = (uint8_t)v;
	add(m, &byte, 1);
}

static void add_integer(struct message *m, uint32_t v)
{
	add(m, &v, sizeof(v));
}

static void add_price(struct message *m, int64_t v)
{
	add(m, &v, sizeof(v));
}

static void add_long(struct message *m, uint64_t v)
{
	add(m, &v, sizeof(v));
}

static void add_string(struct message *m, const char *text, uint16_t len)
{
	char padded[8] = "        ";

	memcpy(padded, text, strnlen(text, len));
	add(m, padded, len);
}

/* What every message begins with: type, one byte that depends on it, time and (but for S) symbol. */
static void begin(struct message *m, char type, uint32_t second, const struct gen_event *e)
{
	m->len = 0;
	add_byte(m, (uint8_t)type);
	add_byte(m, second);
	add_long(m, e->time_ns);
	if (e->instrument != NULL) {
		add(m, e->instrument->symbol, 8);
	}
}

static void make_system(struct message *m, const struct gen_event *e)
{
	static const char codes[] = {
		[GEN_MESSAGES_START] = 'O', [GEN_SYSTEM_START] = 'S', [GEN_MARKET_OPEN] = 'R',
		[GEN_MARKET_CLOSE] = 'M',   [GEN_SYSTEM_END] = 'E',   [GEN_MESSAGES_END] = 'C',
	};
	begin(m, 'S', (uint8_t)codes[e->system], e);
}

static void make_directory(struct message *m, const struct gen_event *e)
{
	const struct gen_instrument *in = e->instrument;

	begin(m, 'D', (in->test ? DIRECTORY_TEST : 0u) | (in->etp ? DIRECTORY_ETP : 0u), e);
	add_integer(m, ROUND_LOT);
	add_price(m, in->base_price);
	add_byte(m, in->luld_tier);
}

static void make_status(struct message *m, const struct gen_event *e)
{
	static const char codes[] = {
		[GEN_TRADING] = 'T',
		[GEN_HALTED] = 'H',
		[GEN_ACCEPTING] = 'O',
		[GEN_PAUSED] = 'P',
	};
	begin(m, 'H', (uint8_t)codes[e->instrument->state], e);
	add_string(m, e->reason, 4);
}

static void make_venue_status(struct message *m, const struct gen_event *e)
{
	begin(m, 'O', e->instrument->venue_halted ? 'O' : 'N', e);
}

static void make_short_sale(struct message *m, const struct gen_event *e)
{
	begin(m, 'P', e->instrument->short_restricted ? 1 : 0, e);
	add_byte(m, (uint8_t)e->instrument->short_detail);
}

static void make_quote(struct message *m, const struct gen_event *e)
{
	const struct gen_instrument *in = e->instrument;
	bool unavailable = in->state != GEN_TRADING || in->venue_halted;

	begin(m, 'Q',
	      (unavailable ? QUOTE_UNAVAILABLE : 0u) |
		      (e->session != GEN_REGULAR ? QUOTE_EXTENDED_HOURS : 0u),
	      e);
	add_integer(m, in->bid.qty);
	add_price(m, in->bid.price);
	add_price(m, in->ask.price);
	add_integer(m, in->ask.qty);
}

static void make_trade(struct message *m, char type, const struct gen_event *e)
{
	uint32_t c = e->conditions;

	begin(m, type,
	      (c & GEN_COND_ISO ? SALE_ISO : 0u) |
		      (e->session != GEN_REGULAR ? SALE_EXTENDED_HOURS : 0u) |
		      (c & GEN_COND_ODD_LOT ? SALE_ODD_LOT : 0u) |
		      (c & GEN_COND_EXEMPT ? SALE_TRADE_THROUGH_EXEMPT : 0u) |
		      (c & GEN_COND_CROSS ? SALE_SINGLE_PRICE_CROSS : 0u),
	      e);
	add_integer(m, e->qty);
	add_price(m, e->price);
	add_long(m, e->trade_id);
}

static void make_official(struct message *m, const struct gen_event *e)
{
	begin(m, 'X', e->auction == GEN_OPENING ? 'Q' : 'M', e);
	add_price(m, e->price);
}

static void make_auction(struct message *m, const struct gen_event *e)
{
	begin(m, 'A', e->auction == GEN_OPENING ? 'O' : 'C', e);
	add_integer(m, e->qty);
	add_price(m, e->price);
	add_price(m, e->clearing_price);
	add_integer(m, e->imbalance_qty);
	add_byte(m, (uint8_t)e->imbalance_side);
	add_byte(m, 0); /* extensions */
	add_integer(m, (uint32_t)(e->scheduled_ns / NS_PER_S));
	add_price(m, e->book_price);
	add_price(m, e->collar_price);
	add_price(m, e->lower_price);
	add_price(m, e->upper_price);
}

static void count(struct tw_gen_summary *sum, const struct gen_event *e, uint8_t type)
{
	sum->messages++;
	sum->counts[type]++;
	if (e->kind == GEN_QUOTE) {
		const struct gen_instrument *in = e->instrument;
		sum->empty_quotes += in->bid.qty == 0 && in->ask.qty == 0 ? 1 : 0;
		sum->one_sided_quotes += (in->bid.qty == 0) != (in->ask.qty == 0) ? 1 : 0;
	} else if (e->kind == GEN_TRADE) {
		sum->traded_qty += e->qty;
	} else if (e->kind == GEN_BREAK) {
		sum->broken_qty += e->qty;
	}
}

static int tops16_event(struct gen_feed *feed, const struct gen_event *e)
{
	struct message m;

	switch (e->kind) {
	case GEN_SYSTEM:
		make_system(&m, e);
		break;
	case GEN_DIRECTORY:
		make_directory(&m, e);
		break;
	case GEN_STATUS:
		make_status(&m, e);
		break;
	case GEN_VENUE_STATUS:
		make_venue_status(&m, e);
		break;
	case GEN_SHORT_SALE:
		make_short_sale(&m, e);
		break;
	case GEN_QUOTE:
		make_quote(&m, e);
		break;
	case GEN_TRADE:
		make_trade(&m, 'T', e);
		break;
	case GEN_BREAK:
		make_trade(&m, 'B', e);
		break;
	case GEN_OFFICIAL:
		make_official(&m, e);
		break;
	case GEN_AUCTION:
		make_auction(&m, e);
		break;
	default:
		return TW_EINTERNAL;
	}
	uint8_t *at = feed->framing->append(feed, e->time_ns, m.len);
	if (at == NULL) {
		return TW_ESYS;
	}
	memcpy(at, m.bytes, m.len);
	count(feed->summary, e, m.bytes[0]);
	return TW_OK;
}

const struct gen_protocol gen_tops16 = {
	.name = "tops16",
	.description = "IEX TOPS 1.6 over IEX-TP 1, UDP multicast",
	.framings = { &gen_iextp },
	.min_symbols = 1,
	.max_symbols = TW_GEN_MAX_SYMBOLS,
	.min_messages = gen_day_min_messages,
	.play = gen_day_run,
	.event = tops16_event,
};
