/* TotalView-ITCH 5.0: every message type from bytes stated here. */
#include "tests/support/itch_bytes.h"

Test(itch50, system_events, .timeout = 60)
{
	static const struct {
		char code;
		uint8_t event;
	} codes[] = { { 'O', TW_SESSION_BEGIN },       { 'S', TW_SESSION_SYSTEM_START },
		      { 'Q', TW_SESSION_MARKET_OPEN }, { 'M', TW_SESSION_MARKET_CLOSE },
		      { 'E', TW_SESSION_SYSTEM_END },  { 'C', TW_SESSION_END } };
	struct bench b;
	open_feed(&b);
	for (size_t i = 0; i < 6; i++) {
		struct tape t = { .len = 0 };
		put_hex(&t, "53 0000 0000 1f1acedb172e");
		put(&t, &codes[i].code, 1);
		say_bytes(&b, &t);
		const struct tw_msg_session_event *e = last(&b, TW_MSG_SESSION_EVENT);
		assert_head(&e->head, 0, END);
		cr_assert_eq(e->event, codes[i].event);
		cr_assert_eq(e->venue_event, codes[i].code);
		cr_assert_eq(e->trading_date, 20191230);
	}
	event(&b, 'Z');
	cr_assert_eq(b.count, 6);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50, stock_directory, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* AAPL, Q, N, round lot 100, N, C, Z, P, N, N, 1, N, 0, N */
	say(&b,
	    "52 000e 0000 1f1acedb172e 4141504c20202020 51 4e 00000064 4e 43 5a20 50 4e 4e 31 4e "
	    "00000000 4e");
	cr_assert_eq(b.count, 1);
	const struct tw_msg_instrument_definition *d = last(&b, TW_MSG_INSTRUMENT_DEFINITION);
	assert_head(&d->head, 14, END);
	cr_assert_str_eq(d->symbol, "AAPL");
	cr_assert_eq(d->raw_id, 14);
	cr_assert_eq(memcmp(d->mic, "XNAS", 4), 0);
	cr_assert_eq(memcmp(d->currency, "USD", 4), 0);
	cr_assert_eq(memcmp(d->group, "QCZ\0\0\0\0", 8), 0);
	cr_assert_eq(d->round_lot_qty, 100);
	cr_assert_eq(d->action, TW_DEF_ADD);
	cr_assert_eq(d->class_, TW_CLASS_EQUITY);
	cr_assert_eq(d->luld_tier, 1);
	cr_assert_eq(d->test, 0);
	cr_assert_eq(d->trading_date, 20191230);
	cr_assert_eq(d->reference_price, TW_PRICE_NONE);
	/* once more: it changes; now an ETP, under test, tier 2 */
	say(&b,
	    "52 000e 0000 1f1acedb172e 4141504c20202020 50 20 00000001 4e 51 4520 54 4e 20 32 59 "
	    "00000003 4e");
	d = last(&b, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_eq(d->action, TW_DEF_MODIFY);
	cr_assert_eq(d->class_, TW_CLASS_ETP);
	cr_assert_eq(d->luld_tier, 2);
	cr_assert_eq(d->test, 1);
	cr_assert_eq(d->round_lot_qty, 1);
	/* a bond; no tier */
	say(&b,
	    "52 000f 0000 1f1acedb172e 424f4e4420202020 4e 20 00000001 4e 42 5a20 50 4e 20 20 20 "
	    "00000000 4e");
	d = last(&b, TW_MSG_INSTRUMENT_DEFINITION);
	cr_assert_eq(d->class_, TW_CLASS_UNKNOWN);
	cr_assert_eq(d->luld_tier, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 0);
	/* another symbol under the same code contradicts the day's directory */
	say(&b,
	    "52 000f 0000 1f1acedb172e 4f54484552202020 4e 20 00000001 4e 43 5a20 50 4e 20 20 20 "
	    "00000000 4e");
	cr_assert_eq(b.count, 3);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 2);
	bench_close(&b);
}

Test(itch50, trading_action, .timeout = 60)
{
	static const struct {
		const char *state;
		uint8_t status;
	} states[] = { { "48", TW_STATUS_HALTED },
		       { "50", TW_STATUS_PAUSED },
		       { "51", TW_STATUS_QUOTE_ONLY },
		       { "54", TW_STATUS_TRADING },
		       { "5a", TW_STATUS_UNKNOWN } };
	struct bench b;
	open_feed(&b);
	for (size_t i = 0; i < 5; i++) {
		char hex[128];
		(void)snprintf(hex, sizeof(hex),
			       "48 2c3d 0000 1f1acedb172e 5a585a5a54202020 %s 20 %s",
			       states[i].state, i == 3 ? "20202020" : "4c554450");
		say(&b, hex);
		const struct tw_msg_trading_status *s = last(&b, TW_MSG_TRADING_STATUS);
		assert_head(&s->head, 0x2c3d, END);
		cr_assert_eq(s->status, states[i].status);
		cr_assert_eq(s->scope, TW_STATUS_SCOPE_MARKET);
		cr_assert_eq((unsigned long)s->venue_status, strtoul(states[i].state, NULL, 16));
		cr_assert_eq(memcmp(s->reason, i == 3 ? "\0\0\0\0" : "LUDP", 4), 0);
	}
	cr_assert_eq(b.count, 6); /* a definition before the first */
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50, operational_halt_of_this_venue_alone, .timeout = 60)
{
	static const struct {
		const char *mic, *code;
	} venues[] = { { "XNAS", "51" }, { "XBOS", "42" }, { "XPSX", "58" } };
	for (size_t v = 0; v < 3; v++) {
		struct bench b;
		open_with(&b, (struct tw_feed_conf){ .mic = venues[v].mic });
		for (size_t i = 0; i < 3; i++) {
			char hex[128];
			(void)snprintf(hex, sizeof(hex),
				       "68 0005 0000 1f1acedb172e 4142432020202020 %s 48",
				       venues[i].code);
			say(&b, hex);
		}
		cr_assert_eq(b.count, 2);
		const struct tw_msg_trading_status *s = last(&b, TW_MSG_TRADING_STATUS);
		cr_assert_eq(s->scope, TW_STATUS_SCOPE_VENUE);
		cr_assert_eq(s->status, TW_STATUS_HALTED);
		cr_assert_eq(s->venue_status, 'H');
		cr_assert_eq(bench_counter(&b, TW_FH_other_markets), 2);
		bench_close(&b);
	}
	struct bench b;
	open_feed(&b);
	say(&b, "68 0005 0000 1f1acedb172e 4142432020202020 51 54");
	const struct tw_msg_trading_status *s = last(&b, TW_MSG_TRADING_STATUS);
	cr_assert_eq(s->status, TW_STATUS_TRADING);
	bench_close(&b);
}

Test(itch50, short_sale, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	static const char *const actions[] = { "30", "31", "32", "39" };
	static const uint8_t want[] = { TW_SHORT_UNRESTRICTED, TW_SHORT_RESTRICTED,
					TW_SHORT_RESTRICTED_CONTINUED, TW_SHORT_RESTRICTED };
	for (size_t i = 0; i < 4; i++) {
		char hex[128];
		(void)snprintf(hex, sizeof(hex), "59 24bd 0000 1f1acedb172e 534f504120202020 %s",
			       actions[i]);
		say(&b, hex);
		const struct tw_msg_short_sale_status *s = last(&b, TW_MSG_SHORT_SALE_STATUS);
		assert_head(&s->head, 0x24bd, END);
		cr_assert_eq(s->status, want[i]);
		cr_assert_eq(s->venue_status, (char)strtoul(actions[i], NULL, 16));
		cr_assert_eq(s->detail, 0);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50, participant_position, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* MPID "GS", FDLS, primary, normal, active */
	say(&b, "4c 0e40 0000 1f1acedb172e 47532020 46444c5320202020 59 4e 41");
	const struct tw_msg_participant_status *s = last(&b, TW_MSG_PARTICIPANT_STATUS);
	assert_head(&s->head, 0x0e40, END);
	cr_assert_eq(memcmp(s->participant, "GS\0\0\0\0\0", 8), 0);
	cr_assert_eq(s->primary, 1);
	cr_assert_eq(s->mode, 'N');
	cr_assert_eq(s->state, 'A');
	say(&b, "4c 0e40 0000 1f1acedb172e 4d41584d 46444c5320202020 4e 53 44");
	s = last(&b, TW_MSG_PARTICIPANT_STATUS);
	cr_assert_eq(s->primary, 0);
	cr_assert_eq(memcmp(s->participant, "MAXM\0\0\0", 8), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 0);
	bench_close(&b);
}

Test(itch50, market_wide_circuit_breakers, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* 3014.30, 2819.83, 2593.00 with eight decimals */
	say(&b, "56 0000 0000 1f1acedb172e 000000462ea0c980 00000041a77f1dc0 0000003c5f7c0100");
	static const int64_t want[] = { INT64_C(3014300000000), INT64_C(2819830000000),
					INT64_C(2593000000000) };
	cr_assert_eq(b.count, 3);
	for (size_t i = 0; i < 3; i++) {
		const struct tw_msg_price_limits *l = bench_msg(&b, i, TW_MSG_PRICE_LIMITS);
		assert_head(&l->head, 0, i == 2 ? END : 0); /* one event of the market */
		cr_assert_eq(l->kind, TW_LIMIT_MARKET_WIDE);
		cr_assert_eq(l->level, i + 1);
		cr_assert_eq(l->lower_price, want[i], "%lld", (long long)l->lower_price);
		cr_assert_eq(l->reference_price, TW_PRICE_NONE);
		cr_assert_eq(l->upper_price, TW_PRICE_NONE);
	}
	/* values that do not fit are none, not something else */
	say(&b, "56 0000 0000 1f1acedb172e ffffffffffffffff 7fffffffffffffff 0000000000000000");
	for (size_t i = 3; i < 6; i++) {
		const struct tw_msg_price_limits *l = bench_msg(&b, i, TW_MSG_PRICE_LIMITS);
		cr_assert_eq(l->lower_price, TW_PRICE_NONE);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 2);

	say(&b, "57 0000 0000 1f1acedb172e 32");
	const struct tw_msg_trading_status *s = last(&b, TW_MSG_TRADING_STATUS);
	assert_head(&s->head, 0, END);
	cr_assert_eq(s->status, TW_STATUS_UNKNOWN); /* what it does to trading, H messages say */
	cr_assert_eq(s->scope, TW_STATUS_SCOPE_MARKET);
	cr_assert_eq(s->venue_status, '2');
	cr_assert_eq(memcmp(s->reason, "MWC2", 4), 0);
	say(&b, "57 0000 0000 1f1acedb172e 34");
	cr_assert_eq(b.count, 7);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 3);
	bench_close(&b);
}

Test(itch50, ipo_quoting_period, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* locate code 0, as the specification has it, and a symbol that nobody has named */
	say(&b, "4b 0000 0000 1f1acedb172e 4e45574320202020 00009088 41 0002bf20");
	cr_assert_eq(b.count, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unnamed_messages), 1);
	say(&b, "59 0101 0000 1f1acedb172e 4e45574320202020 30"); /* names NEWC */
	say(&b, "4b 0000 0000 1f1acedb172e 4e45574320202020 00009088 41 0002bf20");
	const struct tw_msg_statistic *s = last(&b, TW_MSG_STATISTIC);
	assert_head(&s->head, 0x0101, END);
	cr_assert_eq(s->type, TW_STAT_IPO_PRICE);
	cr_assert_eq(s->price, 18 * DOLLARS);
	cr_assert_eq(s->qty, MIDNIGHT_NS + 37000 * UINT64_C(1000000000)); /* 10:16:40 */
	cr_assert_eq(s->venue_type, 'A');
	/* cancelled: neither time nor price; with its own locate code */
	say(&b, "4b 0101 0000 1f1acedb172e 4e45574320202020 00000000 43 00000000");
	s = last(&b, TW_MSG_STATISTIC);
	assert_head(&s->head, 0x0101, END);
	cr_assert_eq(s->price, TW_PRICE_NONE);
	cr_assert_eq(s->qty, 0);
	cr_assert_eq(s->venue_type, 'C');
	/* no time of any day */
	say(&b, "4b 0101 0000 1f1acedb172e 4e45574320202020 ffffffff 41 0002bf20");
	s = last(&b, TW_MSG_STATISTIC);
	cr_assert_eq(s->qty, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50, luld_auction_collar, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	say(&b, "4a 2c3d 0000 1f1acedb172e 5a585a5a54202020 00020918 00022344 0001aa90 00000002");
	const struct tw_msg_price_limits *l = last(&b, TW_MSG_PRICE_LIMITS);
	assert_head(&l->head, 0x2c3d, END);
	cr_assert_eq(l->kind, TW_LIMIT_AUCTION_COLLAR);
	cr_assert_eq(l->reference_price, INT64_C(13340000000));
	cr_assert_eq(l->upper_price, INT64_C(14010000000));
	cr_assert_eq(l->lower_price, INT64_C(10920000000));
	cr_assert_eq(l->extension, 2);
	cr_assert_eq(l->level, 0);
	bench_close(&b);
}

Test(itch50, net_order_imbalance, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* paired 5,000,000,000; imbalance 300 to sell; TSLA; far none, near 420.69, reference 420.00 */
	say(&b, "49 2010 0000 1f1acedb172e 000000012a05f200 000000000000012c 53 54534c4120202020 "
		"00000000 00403134 00401640 43 4c");
	const struct tw_msg_auction_imbalance *a = last(&b, TW_MSG_AUCTION_IMBALANCE);
	assert_head(&a->head, 0x2010, END);
	cr_assert_eq(a->paired_qty, UINT64_C(5000000000));
	cr_assert_eq(a->imbalance_qty, 300);
	cr_assert_eq(a->side, TW_SIDE_SELL);
	cr_assert_eq(a->far_price, TW_PRICE_NONE);
	cr_assert_eq(a->near_price, INT64_C(420690000000), "%lld", (long long)a->near_price);
	cr_assert_eq(a->reference_price, INT64_C(420000000000), "%lld",
		     (long long)a->reference_price);
	cr_assert_eq(a->auction, TW_AUCTION_CLOSE);
	cr_assert_eq(a->venue_auction, 'C');
	cr_assert_eq(a->variation, 'L');
	cr_assert_eq(a->lower_collar_price, TW_PRICE_NONE);
	static const struct {
		const char *direction, *cross;
		uint8_t side, auction;
	} more[] = { { "42", "4f", TW_SIDE_BUY, TW_AUCTION_OPEN },
		     { "4e", "48", TW_SIDE_NONE, TW_AUCTION_HALT },
		     { "4f", "41", TW_SIDE_NONE, 0 }, /* too few orders; extended trading close */
		     { "50", "4f", TW_SIDE_NONE, TW_AUCTION_OPEN }, /* paused */
		     { "5a", "5a", TW_SIDE_NONE, 0 } };
	for (size_t i = 0; i < 5; i++) {
		char hex[256];
		(void)snprintf(hex, sizeof(hex),
			       "49 2010 0000 1f1acedb172e 0000000000000000 0000000000000000 %s "
			       "54534c4120202020 00000000 00000000 00000000 %s 20",
			       more[i].direction, more[i].cross);
		say(&b, hex);
		a = last(&b, TW_MSG_AUCTION_IMBALANCE);
		cr_assert_eq(a->side, more[i].side);
		cr_assert_eq(a->auction, more[i].auction);
		cr_assert_eq(a->near_price, TW_PRICE_NONE);
		cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), i == 4 ? 2 : 0);
	}
	bench_close(&b);
}

Test(itch50, retail_interest, .timeout = 60)
{
	static const char *const flags[] = { "4e", "42", "53", "41", "5a" };
	static const uint64_t want[] = { 0, TW_SIDE_BUY, TW_SIDE_SELL, TW_SIDE_BUY | TW_SIDE_SELL };
	struct bench b;
	open_feed(&b);
	for (size_t i = 0; i < 5; i++) {
		char hex[128];
		(void)snprintf(hex, sizeof(hex), "4e 0007 0000 1f1acedb172e 4d53465420202020 %s",
			       flags[i]);
		say(&b, hex);
		const struct tw_msg_statistic *s = last(&b, TW_MSG_STATISTIC);
		cr_assert_eq(s->type, TW_STAT_RETAIL_INTEREST);
		cr_assert_eq(s->price, TW_PRICE_NONE);
		cr_assert_eq(s->qty,
			     want[i < 4 ? i : 3]); /* of a flag that is none nothing is said */
	}
	cr_assert_eq(b.count, 5);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

Test(itch50, capital_raise, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* eligible; allowed 8.00 to 28.80; near 12.00 at some time; collar 10.80 to 13.20 */
	say(&b, "4f 0009 0000 1f1acedb172e 444c435220202020 59 00013880 00046500 0001d4c0 "
		"00001f1acedb172e 0001a5e0 000203a0");
	cr_assert_eq(b.count, 3);
	const struct tw_msg_price_limits *l = bench_msg(&b, 1, TW_MSG_PRICE_LIMITS);
	assert_head(&l->head, 9, 0);
	cr_assert_eq(l->kind, TW_LIMIT_DAILY);
	cr_assert_eq(l->lower_price, 8 * DOLLARS);
	cr_assert_eq(l->upper_price, INT64_C(28800000000));
	cr_assert_eq(l->reference_price, TW_PRICE_NONE);
	l = last(&b, TW_MSG_PRICE_LIMITS);
	assert_head(&l->head, 9, END);
	cr_assert_eq(l->kind, TW_LIMIT_AUCTION_COLLAR);
	cr_assert_eq(l->reference_price, 12 * DOLLARS);
	cr_assert_eq(l->lower_price, INT64_C(10800000000));
	cr_assert_eq(l->upper_price, INT64_C(13200000000));
	bench_close(&b);
}

Test(itch50, trades_that_name_no_order, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	/* P: number 0, 'B' whatever rested, 14 shares of MU at 40.3460, match 255569 */
	say(&b, "50 1ac8 0002 1f1acedb172e 0000000000000000 42 0000000e 4d55202020202020 00062804 "
		"000000000003e651");
	const struct tw_msg_trade *t = last(&b, TW_MSG_TRADE);
	assert_head(&t->head, 0x1ac8, PRINTED);
	cr_assert_eq(t->qty, 14);
	cr_assert_eq(t->price, INT64_C(40346000000), "%lld", (long long)t->price);
	cr_assert_eq(t->match_id, 255569);
	cr_assert_eq(t->aggressor, TW_SIDE_NONE);
	cr_assert_eq(t->conditions, 0);

	static const struct {
		const char *type;
		uint32_t condition;
	} crosses[] = { { "4f", TW_COND_OPEN_CROSS },
			{ "43", TW_COND_CLOSE_CROSS },
			{ "48", TW_COND_HALT_CROSS },
			{ "49", TW_COND_INTRADAY_CROSS },
			{ "5a", 0 } };
	for (size_t i = 0; i < 5; i++) {
		char hex[160];
		(void)snprintf(
			hex, sizeof(hex),
			"51 03d7 0001 1f1acedb172e 0000000100000000 4241432d51202020 000186a0 "
			"000000000003e63e %s",
			crosses[i].type);
		say(&b, hex);
		t = last(&b, TW_MSG_TRADE);
		assert_head(&t->head, 0x03d7, PRINTED);
		cr_assert_eq(t->qty, UINT64_C(0x100000000));
		cr_assert_eq(t->price, 10 * DOLLARS);
		cr_assert_eq(t->match_id, 0x3e63e);
		cr_assert_eq(t->conditions, crosses[i].condition);
		cr_assert_eq((unsigned long)t->venue_conditions[0],
			     strtoul(crosses[i].type, NULL, 16));
		cr_assert_eq(t->aggressor, TW_SIDE_NONE);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	/* a cross with nothing to match says that it is over, and is no trade at a price of 0 */
	say(&b, "51 03d7 0001 1f1acedb172e 0000000000000000 4241432d51202020 00000000 "
		"000000000003e63f 4f");
	t = last(&b, TW_MSG_TRADE);
	assert_head(&t->head, 0x03d7, END);
	cr_assert_eq(t->qty, 0);
	cr_assert_eq(t->price, TW_PRICE_NONE);
	bench_close(&b);
}

Test(itch50, broken_trade, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	say(&b, "42 0005 0000 1f1acedb172e 000000000003e651");
	const struct tw_msg_trade_cancel *c = last(&b, TW_MSG_TRADE_CANCEL);
	assert_head(&c->head, 5, END);
	cr_assert_eq(c->match_id, 255569);
	cr_assert_eq(c->price, TW_PRICE_NONE);
	cr_assert_eq(c->qty, 0);
	bench_close(&b);
}
