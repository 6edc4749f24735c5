/* TOPS 1.6: each type from bytes stated here, then a recorded session with the values that another
 * project's dissectors found in it. */
#include "tests/support/feed_bytes.h"

#define NY_20170417 20170417u

/* One message given to a feed as the session layer would. */
static void give_at(struct bench *b, const char *hex, uint64_t seq, uint64_t recv_ns)
{
	struct tape t = { .len = 0 };
	put_hex(&t, hex);
	uint8_t *block = malloc(t.len + 1); /* exactly its size, for ASan */
	cr_assert_not_null(block);
	memcpy(block + 1, t.bytes, t.len);
	struct tw_venue_msg msg = {
		.data = block + 1, .len_bytes = (uint32_t)t.len, .seq = seq, .recv_ns = recv_ns
	};
	tw_feed_venue_msg(b->feed, &msg);
	free(block);
}

static void give(struct bench *b, const char *hex)
{
	give_at(b, hex, 77, 0);
}

static void open_plain(struct bench *b)
{
	bench_open(b, (struct tw_feed_conf){ 0 });
}

static uint32_t id_of(const char *symbol)
{
	return tw_instrument_hash(symbol, strlen(symbol));
}

/* The first message defines; the one of interest is then the last. */
static const void *last(const struct bench *b, enum tw_msg_kind kind)
{
	cr_assert_gt(b->count, 0);
	return bench_msg(b, b->count - 1, kind);
}

#define ASSERT_CLEAN(b)                                                      \
	do {                                                                 \
		cr_assert_eq(bench_counter(b, TW_FH_unknown_messages), 0);   \
		cr_assert_eq(bench_counter(b, TW_FH_unknown_values), 0);     \
		cr_assert_eq(bench_counter(b, TW_FH_malformed_messages), 0); \
	} while (0)

Test(tops16, quote, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give_at(&b,
		"51 00 c048e39c37b30d15 4154534720202020 55490000 ecb0030000000000 "
		"44b3030000000000 05ed0000",
		0x1122334455667788u, 0);
	cr_assert_eq(b.count, 2);
	const struct tw_msg_instrument_definition *def =
		bench_msg(&b, 0, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_str_eq(def->symbol, "ATSG");
	cr_assert_eq(def->action, TW_DEF_ADD);
	cr_assert_eq(def->head.instrument_id, id_of("ATSG"));
	cr_assert_eq(memcmp(def->mic, "IEXG", 4), 0);
	cr_assert_eq(memcmp(def->currency, "USD", 4), 0);
	const struct tw_msg_quote *q = bench_msg(&b, 1, TW_MSG_QUOTE);
	cr_assert_eq(q->head.instrument_id, id_of("ATSG"));
	cr_assert_eq(q->head.venue_id, 7);
	cr_assert_eq(q->head.flags, TW_MSG_EVENT_END | TW_MSG_TS_BAD); /* no receive time */
	cr_assert_eq(q->head.exchange_ns, 0x150db3379ce348c0u);
	cr_assert_eq(q->head.exchange_seq, 0x55667788u);
	cr_assert_eq(q->bid_qty, 18773);
	cr_assert_eq(q->bid_price, 24190000000);
	cr_assert_eq(q->ask_price, 24250000000);
	cr_assert_eq(q->ask_qty, 60677);
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

Test(tops16, quote_sides_and_flags, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "51 c0 0000000000000001 4141504c20202020 00000000 0000000000000000 "
		 "0000000000000000 00000000");
	const struct tw_msg_quote *q = last(&b, TW_MSG_QUOTE);
	cr_assert_eq(q->bid_price, TW_PRICE_NONE);
	cr_assert_eq(q->ask_price, TW_PRICE_NONE);
	cr_assert_eq(q->bid_qty + q->ask_qty, 0);
	cr_assert_eq(q->head.flags,
		     TW_MSG_EVENT_END | TW_MSG_NOT_FIRM | TW_MSG_OUT_OF_SESSION | TW_MSG_TS_BAD);
	give(&b, "51 80 0000000000000001 4141504c20202020 64000000 1027000000000000 "
		 "0000000000000000 00000000");
	q = last(&b, TW_MSG_QUOTE);
	cr_assert_eq(q->bid_price, 1000000000);
	cr_assert_eq(q->bid_qty, 100);
	cr_assert_eq(q->ask_price, TW_PRICE_NONE);
	cr_assert_eq(q->head.flags & (TW_MSG_NOT_FIRM | TW_MSG_OUT_OF_SESSION), TW_MSG_NOT_FIRM);
	cr_assert_eq(b.count, 3); /* defined once */
	ASSERT_CLEAN(&b);

	/* what the protocol does not list: price without size, size without price, below 0, too large */
	give(&b, "51 40 0000000000000001 4141504c20202020 00000000 1027000000000000 "
		 "0000000000000000 64000000");
	q = last(&b, TW_MSG_QUOTE);
	cr_assert_eq(q->bid_price, TW_PRICE_NONE);
	cr_assert_eq(q->ask_price, TW_PRICE_NONE);
	cr_assert_eq(q->bid_qty + q->ask_qty, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 2);
	give(&b, "51 40 0000000000000001 4141504c20202020 64000000 ffffffffffffffff "
		 "ffffffffffffff7f 64000000");
	q = last(&b, TW_MSG_QUOTE);
	cr_assert_eq(q->bid_price, TW_PRICE_NONE);
	cr_assert_eq(q->ask_price, TW_PRICE_NONE);
	cr_assert_eq(q->bid_qty + q->ask_qty, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 4);
	bench_close(&b);
}

Test(tops16, receive_delta, .timeout = 60)
{
	static const struct {
		int64_t delta_ns;
		int32_t expect;
		bool bad;
	} cases[] = {
		{ 0, 0, false },
		{ 10486, 10486, false },
		{ -5000, -5000, false },
		{ INT32_MAX, INT32_MAX, false },
		{ INT32_MIN, INT32_MIN, false },
		{ (int64_t)INT32_MAX + 1, INT32_MAX, true },
		{ (int64_t)INT32_MIN - 1, INT32_MIN, true },
		{ 300000000000000000, INT32_MAX, true },
	};
	struct bench b;
	open_plain(&b);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t exchange_ns = 0x150db3379ce348c0u;
		give_at(&b, "53 52 c048e39c37b30d15", 1, exchange_ns + (uint64_t)cases[i].delta_ns);
		const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
		cr_assert_eq(e->head.recv_delta_ns, cases[i].expect, "case %zu", i);
		cr_assert_eq((e->head.flags & TW_MSG_TS_BAD) != 0, cases[i].bad, "case %zu", i);
	}
	give_at(&b, "53 52 00c048e39c37b3ff", 1, 5); /* a time before 1970 */
	const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->head.exchange_ns, 0);
	cr_assert((e->head.flags & TW_MSG_TS_BAD) != 0);
	cr_assert_eq(e->trading_date, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

/* A replay that happens now: all times of the venue move, none stays none. */
Test(tops16, times_move_together, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	b.feed->shift_ns = 1000000000;
	give_at(&b,
		"41 4f 80e6072b11a2b014 5a49455854202020 00000000 0000000000000000 "
		"0000000000000000 "
		"00000000 4e 00 80e6f458 0000000000000000 0000000000000000 0000000000000000 "
		"0000000000000000",
		1, 0x14b0a2112b07e680u + 1000000000u + 5);
	const struct tw_msg_auction_imbalance *a = last(&b, TW_MSG_AUCTION_IMBALANCE);
	cr_assert_eq(a->head.exchange_ns, 0x14b0a2112b07e680u + 1000000000u);
	cr_assert_eq(a->head.recv_delta_ns, 5);
	cr_assert_eq(a->scheduled_ns, 1492444801000000000u);
	give_at(&b, "53 52 0000000000000000", 1, 5); /* no time */
	const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->head.exchange_ns, 0);
	b.feed->shift_ns = INT64_MAX; /* too far: its own time stands, and says so */
	give_at(&b, "53 52 80e6072b11a2b014", 1, 5);
	e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->head.exchange_ns, 0x14b0a2112b07e680u);
	cr_assert((e->head.flags & TW_MSG_TS_BAD) != 0);
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

Test(tops16, trade_and_break, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b,
	     "54 00 b28fa5a0ab866d14 5a49455854202020 64000000 241d0f0000000000 968f020000000000");
	const struct tw_msg_trade *t = last(&b, TW_MSG_TRADE);
	cr_assert_eq(t->price, 99050000000);
	cr_assert_eq(t->qty, 100);
	cr_assert_eq(t->match_id, 167830);
	cr_assert_eq(t->conditions, 0);
	cr_assert_eq(t->aggressor, TW_SIDE_NONE);
	cr_assert_eq(t->venue_conditions[0], 0);
	cr_assert_eq(t->head.flags, TW_MSG_EVENT_END | TW_MSG_PRINTABLE | TW_MSG_TS_BAD);
	static const struct {
		const char *flag;
		uint32_t conditions;
	} flags[] = {
		{ "80", TW_COND_ISO },
		{ "40", TW_COND_EXTENDED_HOURS },
		{ "20", TW_COND_ODD_LOT },
		{ "10", TW_COND_TRADE_THROUGH_EXEMPT },
		{ "08", TW_COND_SINGLE_PRICE_CROSS },
		{ "f8", TW_COND_ISO | TW_COND_EXTENDED_HOURS | TW_COND_ODD_LOT |
				TW_COND_TRADE_THROUGH_EXEMPT | TW_COND_SINGLE_PRICE_CROSS },
	};
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		char hex[160];
		(void)snprintf(hex, sizeof(hex),
			       "54 %s b28fa5a0ab866d14 5a49455854202020 64000000 241d0f0000000000 "
			       "968f020000000000",
			       flags[i].flag);
		give(&b, hex);
		t = last(&b, TW_MSG_TRADE);
		cr_assert_eq(t->conditions, flags[i].conditions, "flag %s", flags[i].flag);
		cr_assert_eq((uint8_t)t->venue_conditions[0], strtoul(flags[i].flag, NULL, 16));
		bool extended = (flags[i].conditions & TW_COND_EXTENDED_HOURS) != 0;
		cr_assert_eq((t->head.flags & TW_MSG_OUT_OF_SESSION) != 0, extended);
		cr_assert((t->head.flags & TW_MSG_PRINTABLE) != 0);
	}
	give(&b,
	     "42 18 b28fa5a0ab866d14 5a49455854202020 64000000 241d0f0000000000 968f060000000000");
	const struct tw_msg_trade_cancel *c = last(&b, TW_MSG_TRADE_CANCEL);
	cr_assert_eq(c->price, 99050000000);
	cr_assert_eq(c->qty, 100);
	cr_assert_eq(c->match_id, 429974);
	cr_assert_eq(c->conditions, TW_COND_TRADE_THROUGH_EXEMPT | TW_COND_SINGLE_PRICE_CROSS);
	cr_assert_eq(c->venue_conditions[0], 0x18);
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

Test(tops16, system_events, .timeout = 60)
{
	static const struct {
		char venue;
		uint8_t event;
	} events[] = {
		{ 'O', TW_SESSION_BEGIN },       { 'S', TW_SESSION_SYSTEM_START },
		{ 'R', TW_SESSION_MARKET_OPEN }, { 'M', TW_SESSION_MARKET_CLOSE },
		{ 'E', TW_SESSION_SYSTEM_END },  { 'C', TW_SESSION_END },
	};
	struct bench b;
	char *one[] = { (char[]){ "ZIEXT" }, NULL };
	bench_open(&b, (struct tw_feed_conf){ .channel_count = 2, .symbols = { NULL, one } });
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		char hex[64];
		(void)snprintf(hex, sizeof(hex), "53 %02x 00a09997e93db614",
			       (unsigned int)(unsigned char)events[i].venue);
		give(&b, hex);
		const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
		cr_assert_eq(e->event, events[i].event);
		cr_assert_eq(e->venue_event, events[i].venue);
		cr_assert_eq(e->head.instrument_id, 0);
		cr_assert_eq(e->trading_date, NY_20170417);
		cr_assert_eq(b.msgs[b.count - 1].channels, 3); /* market-wide: every channel */
	}
	ASSERT_CLEAN(&b);
	give(&b, "53 5a 00a09997e93db614");
	cr_assert_eq(b.count, 6);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	/* the date is New York's */
	give(&b, "53 4f 00e0e3d0e7959c14"); /* 2017-01-24 03:00:00 UTC */
	const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->trading_date, 20170123, "%u", e->trading_date);
	bench_close(&b);
}

Test(tops16, security_directory, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "44 80 0020897b5a1fb614 5a49455854202020 64000000 241d0f0000000000 01");
	cr_assert_eq(b.count, 1); /* it is the definition: none comes before it */
	const struct tw_msg_instrument_definition *d = last(&b, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_eq(d->action, TW_DEF_ADD);
	cr_assert_str_eq(d->symbol, "ZIEXT");
	cr_assert_eq(d->head.instrument_id, id_of("ZIEXT"));
	cr_assert_eq(d->test, 1);
	cr_assert_eq(d->class_, TW_CLASS_EQUITY);
	cr_assert_eq(d->round_lot_qty, 100);
	cr_assert_eq(d->reference_price, 99050000000);
	cr_assert_eq(d->luld_tier, 1);
	cr_assert_eq(d->venue_flags, 0x80);
	cr_assert_eq(d->trading_date, NY_20170417);
	cr_assert_eq(d->depth_levels, 1);
	cr_assert_eq(d->tick_price, TW_PRICE_NONE);
	cr_assert_eq(d->strike_price, TW_PRICE_NONE);
	cr_assert_eq(d->multiplier, TW_PRICE_SCALE);

	give(&b, "44 60 0020897b5a1fb614 5a49455854202020 0a000000 0000000000000000 02");
	cr_assert_eq(b.count, 2);
	d = last(&b, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_eq(d->action, TW_DEF_MODIFY);
	cr_assert_eq(d->class_, TW_CLASS_ETP);
	cr_assert_eq(d->test, 0);
	cr_assert_eq(d->round_lot_qty, 10);
	cr_assert_eq(d->reference_price, TW_PRICE_NONE);
	cr_assert_eq(d->luld_tier, 2);
	ASSERT_CLEAN(&b);
	give(&b, "44 60 0020897b5a1fb614 5a49455854202020 0a000000 0000000000000000 03");
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(tops16, statuses, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "48 48 ac63c02096866d14 5a49455854202020 54312020");
	const struct tw_msg_trading_status *s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_HALTED);
	cr_assert_eq(s->scope, TW_STATUS_SCOPE_MARKET);
	cr_assert_eq(s->venue_status, 'H');
	cr_assert_eq(memcmp(s->reason, "T1\0\0", 4), 0);
	give(&b, "48 4f ac63c02096866d14 5a49455854202020 49504f32");
	s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_PAUSED);
	cr_assert_eq(memcmp(s->reason, "IPO2", 4), 0);
	give(&b, "48 50 ac63c02096866d14 5a49455854202020 20202020");
	s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_PAUSED);
	cr_assert_eq(memcmp(s->reason, "\0\0\0\0", 4), 0);
	give(&b, "48 54 ac63c02096866d14 5a49455854202020 20202020");
	cr_assert_eq(
		((const struct tw_msg_trading_status *)last(&b, TW_MSG_TRADING_STATUS))->status,
		TW_STATUS_TRADING);

	give(&b, "4f 4f ac63c02096866d14 5a49455854202020");
	s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_HALTED);
	cr_assert_eq(s->scope, TW_STATUS_SCOPE_VENUE);
	cr_assert_eq(s->venue_status, 'O');
	give(&b, "4f 4e ac63c02096866d14 5a49455854202020");
	s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_TRADING);
	cr_assert_eq(s->scope, TW_STATUS_SCOPE_VENUE);
	ASSERT_CLEAN(&b);

	give(&b,
	     "48 58 ac63c02096866d14 5a49455854202020 20202020"); /* not listed: passed on as such */
	s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_UNKNOWN);
	cr_assert_eq(s->venue_status, 'X');
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(tops16, short_sale, .timeout = 60)
{
	static const struct {
		const char *hex;
		uint8_t status;
		char detail;
	} cases[] = {
		{ "50 01 ac63c02096866d14 5a49455854202020 41", TW_SHORT_RESTRICTED, 'A' },
		{ "50 01 ac63c02096866d14 5a49455854202020 43", TW_SHORT_RESTRICTED_CONTINUED,
		  'C' },
		{ "50 01 ac63c02096866d14 5a49455854202020 4e", TW_SHORT_RESTRICTED, 'N' },
		{ "50 00 ac63c02096866d14 5a49455854202020 44", TW_SHORT_UNRESTRICTED, 'D' },
		{ "50 00 ac63c02096866d14 5a49455854202020 20", TW_SHORT_UNRESTRICTED, ' ' },
	};
	struct bench b;
	open_plain(&b);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		give(&b, cases[i].hex);
		const struct tw_msg_short_sale_status *s = last(&b, TW_MSG_SHORT_SALE_STATUS);
		cr_assert_eq(s->status, cases[i].status, "case %zu", i);
		cr_assert_eq(s->detail, cases[i].detail);
	}
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

Test(tops16, security_event_and_retail_interest, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "45 4f 00f0302a5b25b614 5a49455854202020");
	const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->event, TW_SESSION_MARKET_OPEN);
	cr_assert_eq(e->head.instrument_id, id_of("ZIEXT"));
	give(&b, "45 43 00f0302a5b25b614 5a49455854202020");
	e = last(&b, TW_MSG_SESSION_EVENT);
	cr_assert_eq(e->event, TW_SESSION_MARKET_CLOSE);
	cr_assert_eq(e->venue_event, 'C');

	static const char interests[] = " ABC"; /* none, buy, sell, both */
	for (unsigned int i = 0; i < 4; i++) {
		char hex[64];
		(void)snprintf(hex, sizeof(hex), "49 %02x ac63c02096866d14 5a49455854202020",
			       (unsigned int)(unsigned char)interests[i]);
		give(&b, hex);
		const struct tw_msg_statistic *s = last(&b, TW_MSG_STATISTIC);
		cr_assert_eq(s->type, TW_STAT_RETAIL_INTEREST);
		cr_assert_eq(s->qty, i);
		cr_assert_eq(s->price, TW_PRICE_NONE);
		cr_assert_eq(s->venue_type, interests[i]);
	}
	ASSERT_CLEAN(&b);
	size_t before = b.count;
	give(&b, "45 5a 00f0302a5b25b614 5a49455854202020");
	give(&b, "49 5a ac63c02096866d14 5a49455854202020");
	cr_assert_eq(b.count, before);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 2);
	bench_close(&b);
}

Test(tops16, official_price, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "58 51 f85f3a86d5b10d15 5a58494554202020 40420f0000000000");
	const struct tw_msg_statistic *s = last(&b, TW_MSG_STATISTIC);
	cr_assert_eq(s->type, TW_STAT_OFFICIAL_OPEN);
	cr_assert_eq(s->price, 100000000000);
	give(&b, "58 4d f85f3a86d5b10d15 5a58494554202020 0000000000000000");
	s = last(&b, TW_MSG_STATISTIC);
	cr_assert_eq(s->type, TW_STAT_OFFICIAL_CLOSE);
	cr_assert_eq(s->price, TW_PRICE_NONE);
	cr_assert_eq(s->venue_type, 'M');
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

Test(tops16, auction_information, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "41 4f 80e6072b11a2b014 5a49455854202020 a0860100 "
		 "241d0f0000000000 ec1d0f0000000000 10270000 42 02 80e6f458 "
		 "181f0f0000000000 241e0f0000000000 0084030000000000 40420f0000000000");
	const struct tw_msg_auction_imbalance *a = last(&b, TW_MSG_AUCTION_IMBALANCE);
	cr_assert_eq(a->auction, TW_AUCTION_OPEN);
	cr_assert_eq(a->venue_auction, 'O');
	cr_assert_eq(a->paired_qty, 100000);
	cr_assert_eq(a->reference_price, 99050000000);
	cr_assert_eq(a->near_price, 99070000000);
	cr_assert_eq(a->imbalance_qty, 10000);
	cr_assert_eq(a->side, TW_SIDE_BUY);
	cr_assert_eq(a->extensions, 2);
	cr_assert_eq(a->scheduled_ns, 1492444800000000000u);
	cr_assert_eq(a->far_price, 99100000000, "%ld", (long)a->far_price);
	cr_assert_eq(a->collar_reference_price, 99075600000, "%ld",
		     (long)a->collar_reference_price);
	cr_assert_eq(a->lower_collar_price, 23040000000);
	cr_assert_eq(a->upper_collar_price, 100000000000);
	/* nothing paired, no collar, and each type and side */
	static const char types[] = "OCIHV";
	static const char sides[] = "BSN";
	static const uint8_t side_of[] = { TW_SIDE_BUY, TW_SIDE_SELL, TW_SIDE_NONE };
	for (unsigned int i = 0; i < 15; i++) {
		char hex[256];
		(void)snprintf(
			hex, sizeof(hex),
			"41 %02x 80e6072b11a2b014 5a49455854202020 00000000 "
			"0000000000000000 0000000000000000 00000000 %02x 00 00000000 "
			"0000000000000000 0000000000000000 0000000000000000 0000000000000000",
			(unsigned int)(unsigned char)types[i % 5],
			(unsigned int)(unsigned char)sides[i / 5]);
		give(&b, hex);
		a = last(&b, TW_MSG_AUCTION_IMBALANCE);
		cr_assert_eq(a->auction, TW_AUCTION_OPEN + i % 5);
		cr_assert_eq(a->side, side_of[i / 5]);
		cr_assert_eq(a->reference_price, TW_PRICE_NONE);
		cr_assert_eq(a->near_price, TW_PRICE_NONE);
		cr_assert_eq(a->far_price, TW_PRICE_NONE);
		cr_assert_eq(a->collar_reference_price, TW_PRICE_NONE);
		cr_assert_eq(a->lower_collar_price, TW_PRICE_NONE);
		cr_assert_eq(a->upper_collar_price, TW_PRICE_NONE);
	}
	ASSERT_CLEAN(&b);
	bench_close(&b);
}

/* Each type cut at every length below its own is malformed, and longer ones are read. */
Test(tops16, lengths, .timeout = 60)
{
	static const struct {
		char type;
		size_t len;
	} types[] = {
		{ 'S', 10 }, { 'D', 31 }, { 'H', 22 }, { 'I', 18 }, { 'O', 18 }, { 'P', 19 },
		{ 'E', 18 }, { 'Q', 42 }, { 'T', 38 }, { 'B', 38 }, { 'X', 26 }, { 'A', 80 }
	};
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct bench b;
		open_plain(&b);
		struct tape t = { .len = 0 };
		put_le(&t, (uint8_t)types[i].type, 1);
		put_le(&t, 'O', 1);
		put_le(&t, 1000, 8);
		put(&t, "ZIEXT   ", 8);
		put_le(&t, 0, 8);
		memset(t.bytes + t.len, 0, 80);
		uint64_t malformed = 0;
		for (size_t len = 0; len <= types[i].len + 3; len++) {
			uint8_t *block = malloc(len + 1);
			cr_assert_not_null(block);
			memcpy(block + 1, t.bytes, len);
			struct tw_venue_msg msg = { .data = block + 1, .len_bytes = (uint32_t)len };
			tw_feed_venue_msg(b.feed, &msg);
			free(block);
			malformed += len < types[i].len;
			cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), malformed,
				     "%c of %zu bytes", types[i].type, len);
		}
		cr_assert_eq(malformed, types[i].len);
		bench_close(&b);
	}
}

Test(tops16, unknown_types_and_bad_symbols, .timeout = 60)
{
	struct bench b;
	open_plain(&b);
	give(&b, "38 01 0000000000000001 5a49455854202020 64000000 1027000000000000"); /* DEEP's */
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_messages), 1);
	give(&b, "4f 4e 0000000000000001 2020202020202020"); /* no symbol */
	give(&b, "4f 4e 0000000000000001 4141204120202020"); /* a blank inside */
	give(&b, "4f 4e 0000000000000001 41410a2020202020");
	give(&b, "4f 4e 0000000000000001 4141000000000000");
	give(&b, "4f 4e 0000000000000001 c3a9202020202020");
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), 5);
	cr_assert_eq(b.count, 0);
	give(&b, "4f 4e 0000000000000001 4141414141414141"); /* all eight */
	const struct tw_msg_instrument_definition *d =
		bench_msg(&b, 0, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_str_eq(d->symbol, "AAAAAAAA");
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 1);
	bench_close(&b);
}

Test(tops16, channels_take_what_their_symbols_say, .timeout = 60)
{
	struct bench b;
	char *some[] = { (char[]){ "MSFT" }, (char[]){ "AAPL" }, NULL };
	char *one[] = { (char[]){ "AAPL" }, NULL };
	char *all[] = { (char[]){ "*" }, NULL };
	bench_open(&b, (struct tw_feed_conf){ .channel_count = 3, .symbols = { some, one, all } });
	give(&b, "4f 4e 0000000000000001 4141504c20202020"); /* AAPL */
	give(&b, "4f 4e 0000000000000001 4d53465420202020"); /* MSFT */
	give(&b, "4f 4e 0000000000000001 5a49455854202020"); /* ZIEXT */
	static const uint32_t expect[] = { 7, 5, 4 };
	cr_assert_eq(b.count, 6);
	for (size_t i = 0; i < 6; i++) { /* the definition goes where the message goes */
		cr_assert_eq(b.msgs[i].channels, expect[i / 2], "message %zu", i);
	}
	bench_close(&b);

	bench_open(&b, (struct tw_feed_conf){ .channel_count = 1, .symbols = { one } });
	give(&b, "4f 4e 0000000000000001 4d53465420202020");
	cr_assert_eq(b.count, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 0);
	bench_close(&b);
}

Test(tops16, a_full_table_drops_and_counts, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ .max_instruments = 1 });
	give(&b, "4f 4e 0000000000000001 4141504c20202020");
	give(&b, "4f 4e 0000000000000001 4d53465420202020");
	give(&b, "4f 4e 0000000000000001 4141504c20202020");
	cr_assert_eq(b.count, 3);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments_refused), 1);
	bench_close(&b);
}

/* ---- a recorded session ---- */

struct sums {
	uint64_t defs[4], quotes, no_bid, no_ask, one_absent, bid_price, bid_qty, ask_price,
		ask_qty, not_firm, out_of_session, trades, trade_price, trade_qty, match_ids, iso,
		extended, odd_lot, exempt, cross, cancels, market[8], venue[8], restricted,
		unrestricted, auctions, opening, buy, sell, paired, imbalance, reference,
		no_reference, near, far, no_far, collar, lower, upper, scheduled_s, events,
		exchange_ns, ts_bad;
};

/* Prices back in the venue's 1e-4. */
static uint64_t raw(int64_t price)
{
	return price == TW_PRICE_NONE ? 0 : (uint64_t)(price / 100000);
}

static void sum_trade(struct sums *s, const struct tw_msg_trade *t)
{
	s->trades++;
	s->trade_price += raw(t->price);
	s->trade_qty += t->qty;
	s->match_ids += t->match_id;
	s->iso += (t->conditions & TW_COND_ISO) != 0;
	s->extended += (t->conditions & TW_COND_EXTENDED_HOURS) != 0;
	s->odd_lot += (t->conditions & TW_COND_ODD_LOT) != 0;
	s->exempt += (t->conditions & TW_COND_TRADE_THROUGH_EXEMPT) != 0;
	s->cross += (t->conditions & TW_COND_SINGLE_PRICE_CROSS) != 0;
}

static void sum_auction(struct sums *s, const struct tw_msg_auction_imbalance *a)
{
	s->auctions++;
	s->opening += a->auction == TW_AUCTION_OPEN;
	s->buy += a->side == TW_SIDE_BUY;
	s->sell += a->side == TW_SIDE_SELL;
	s->paired += a->paired_qty;
	s->imbalance += a->imbalance_qty;
	s->reference += raw(a->reference_price);
	s->no_reference += a->reference_price == TW_PRICE_NONE;
	s->near += raw(a->near_price);
	s->far += raw(a->far_price);
	s->no_far += a->far_price == TW_PRICE_NONE;
	s->collar += raw(a->collar_reference_price);
	s->lower += raw(a->lower_collar_price);
	s->upper += raw(a->upper_collar_price);
	s->scheduled_s += a->scheduled_ns / 1000000000u;
}

static void sum_quote(struct sums *s, const struct tw_msg_quote *q)
{
	bool no_bid = q->bid_price == TW_PRICE_NONE;
	bool no_ask = q->ask_price == TW_PRICE_NONE;
	s->quotes++;
	s->no_bid += no_bid;
	s->no_ask += no_ask;
	s->one_absent += no_bid || no_ask;
	s->bid_price += raw(q->bid_price);
	s->bid_qty += q->bid_qty;
	s->ask_price += raw(q->ask_price);
	s->ask_qty += q->ask_qty;
	s->not_firm += (q->head.flags & TW_MSG_NOT_FIRM) != 0;
	s->out_of_session += (q->head.flags & TW_MSG_OUT_OF_SESSION) != 0;
}

static void sum_up(void *ctx, const struct tw_msg_head *msg, uint32_t len, uint32_t channels)
{
	struct sums *s = ctx;
	const void *m = msg;
	(void)len;
	cr_assert_eq(channels, 1);
	cr_assert((msg->flags & TW_MSG_EVENT_END) != 0);
	s->ts_bad += (msg->flags & TW_MSG_TS_BAD) != 0;
	const struct tw_msg_instrument_definition *def = m;
	bool of_venue = true;
	switch (msg->sbe.template_id) {
	case TW_MSG_INSTRUMENT_DEFINITION:
		s->defs[def->action]++;
		of_venue = def->round_lot_qty != 0; /* else it is ours, beside the message's own */
		break;
	case TW_MSG_QUOTE:
		sum_quote(s, m);
		break;
	case TW_MSG_TRADE:
		sum_trade(s, m);
		break;
	case TW_MSG_TRADE_CANCEL:
		s->cancels++;
		break;
	case TW_MSG_AUCTION_IMBALANCE:
		sum_auction(s, m);
		break;
	case TW_MSG_TRADING_STATUS: {
		const struct tw_msg_trading_status *t = m;
		(t->scope == TW_STATUS_SCOPE_MARKET ? s->market : s->venue)[t->status]++;
		break;
	}
	case TW_MSG_SHORT_SALE_STATUS: {
		const struct tw_msg_short_sale_status *t = m;
		s->restricted += t->status == TW_SHORT_RESTRICTED;
		s->unrestricted += t->status == TW_SHORT_UNRESTRICTED;
		break;
	}
	case TW_MSG_SESSION_EVENT:
		s->events++;
		break;
	default:
		cr_assert_fail("kind %u", msg->sbe.template_id);
	}
	s->exchange_ns += of_venue ? msg->exchange_ns : 0;
}

/* Counts of the data folder's INDEX.md; sums from the Open Markets Initiative's TOPS dissector under
 * tshark, by field. */
Test(tops16, recorded_session, .timeout = 120)
{
	char path[512];
	if (!data_path(path, sizeof(path), "iex/TOPS16.pcapng.gz")) {
		cr_skip_test("%s is not there", path);
	}
	_Atomic uint64_t counters[TW_N_fh_counters] = { 0 };
	struct sums s = { .quotes = 0 };
	struct tw_feed_conf conf = { .protocol = "tops16",
				     .channel_count = 1,
				     .counters = { .values = counters },
				     .sink = { .message = sum_up, .ctx = &s } };
	struct tw_error err = { 0 };
	struct tw_feed *feed;
	struct tw_input *input;
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_input_capture_open(&input, path, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_feed_run(feed, input, &err), TW_OK, "%s", err.text);
	tw_input_close(input);
	tw_feed_destroy(feed);

	static const struct {
		unsigned int counter;
		uint64_t expect;
	} counts[] = {
		{ TW_FH_packets, 13022 },        { TW_FH_heartbeats, 237 },
		{ TW_FH_venue_messages, 57674 }, { TW_FH_gaps, 0 },
		{ TW_FH_missing_messages, 0 },   { TW_FH_duplicate_messages, 0 },
		{ TW_FH_foreign_packets, 0 },    { TW_FH_malformed_packets, 0 },
		{ TW_FH_truncated_packets, 0 },  { TW_FH_unknown_messages, 0 },
		{ TW_FH_unknown_values, 0 },     { TW_FH_malformed_messages, 0 },
		{ TW_FH_session_changes, 0 },    { TW_FH_id_collisions, 0 },
		{ TW_FH_instruments, 7799 },
	};
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		cr_assert_eq(counters[counts[i].counter], counts[i].expect, "counter %u: %lu",
			     counts[i].counter, (unsigned long)counters[counts[i].counter]);
	}
	cr_assert_eq(s.quotes, 27217);
	cr_assert_eq(s.one_absent, 24431);
	cr_assert_eq(s.no_bid, 24007);
	cr_assert_eq(s.no_ask, 23862);
	cr_assert_eq(s.bid_price, 1585780800);
	cr_assert_eq(s.bid_qty, 1673727);
	cr_assert_eq(s.ask_price, 1595443600);
	cr_assert_eq(s.ask_qty, 1746010);
	cr_assert_eq(s.not_firm, 4 + 4);
	cr_assert_eq(s.out_of_session, 17621 + 4);
	cr_assert_eq(s.trades, 6390);
	cr_assert_eq(s.trade_price, 3045447650);
	cr_assert_eq(s.trade_qty, 1427907);
	cr_assert_eq(s.match_ids, 1518835946);
	cr_assert_eq(s.iso, 1786 + 1483 + 659 + 513);
	cr_assert_eq(s.extended, 1483 + 513 + 236 + 110);
	cr_assert_eq(s.odd_lot, 659 + 513 + 442 + 110);
	cr_assert_eq(s.exempt, 24);
	cr_assert_eq(s.cross, 24);
	cr_assert_eq(s.cancels, 3);
	cr_assert_eq(s.market[TW_STATUS_TRADING], 7800);
	cr_assert_eq(s.market[TW_STATUS_HALTED], 3);
	cr_assert_eq(s.venue[TW_STATUS_TRADING], 7800);
	cr_assert_eq(s.venue[TW_STATUS_HALTED], 1);
	cr_assert_eq(s.restricted, 3);
	cr_assert_eq(s.unrestricted, 7799);
	cr_assert_eq(s.auctions, 642);
	cr_assert_eq(s.opening, 360);
	cr_assert_eq(s.buy, 95);
	cr_assert_eq(s.sell, 99);
	cr_assert_eq(s.paired, 238884);
	cr_assert_eq(s.imbalance, 485289);
	cr_assert_eq(s.reference, 38869600);
	cr_assert_eq(s.no_reference, 448);
	cr_assert_eq(s.near, 38874450);
	cr_assert_eq(s.far, 21598400);
	cr_assert_eq(s.no_far, 534);
	cr_assert_eq(s.collar, 352471150);
	cr_assert_eq(s.lower, 317209100);
	cr_assert_eq(s.upper, 387733200);
	cr_assert_eq(s.scheduled_s, 962818552800);
	cr_assert_eq(s.events, 6);
	cr_assert_eq(s.defs[TW_DEF_ADD], 7799);
	cr_assert_eq(s.defs[TW_DEF_MODIFY], 0);
	cr_assert_eq(s.exchange_ns, 15203380541541135277u);
	cr_assert_eq(s.ts_bad, 0);
}
