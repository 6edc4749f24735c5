/* Golden lines for every kind, hostile text, extreme values and short buffers. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/datagram.h"
#include "wire/format.h"

static union {
	uint64_t align;
	uint8_t bytes[TW_MSG_MAX_BYTES];
	struct tw_msg_head head;
	struct tw_msg_instrument_definition definition;
	struct tw_msg_instrument_leg leg;
	struct tw_msg_quote quote;
	struct tw_msg_order_add add;
	struct tw_msg_order_modify modify;
	struct tw_msg_order_replace replace;
	struct tw_msg_order_delete delete;
	struct tw_msg_order_execute execute;
	struct tw_msg_level_update level;
	struct tw_msg_book_clear clear;
	struct tw_msg_trade trade;
	struct tw_msg_trade_cancel cancel;
	struct tw_msg_trading_status status;
	struct tw_msg_price_limits limits;
	struct tw_msg_short_sale_status short_sale;
	struct tw_msg_participant_status participant;
	struct tw_msg_auction_imbalance auction;
	struct tw_msg_statistic statistic;
	struct tw_msg_session_event event;
} m;

static const struct tw_format_ctx ctx = {
	.seq = 12,
	.session = 7,
	.channel = 3,
	.mic = "XNAS",
	.symbol = "AAPL",
};

static void start(enum tw_msg_kind kind)
{
	memset(&m, 0xa5, sizeof(m));
	tw_msg_init(&m, kind);
	m.head.instrument_id = 5;
	m.head.venue_id = 1;
	m.head.exchange_ns = 1499697277643877000;
	m.head.exchange_seq = 99;
	m.head.recv_delta_ns = -20;
	m.head.flags = TW_MSG_EVENT_END;
}

static const char *json(const struct tw_format_ctx *with)
{
	static char buf[TW_FORMAT_MAX_BYTES];
	int n = tw_format_json(buf, sizeof(buf), with, &m);

	cr_assert_eq(n, (int)strlen(buf));
	return buf;
}

/* The common beginning of a golden line, for ctx and start(). */
#define BEGIN(kind)                                                                    \
	"{\"seq\":12,\"kind\":\"" kind "\",\"venue\":\"XNAS\",\"symbol\":\"AAPL\","    \
	"\"instrument_id\":5,\"exchange_ns\":1499697277643877000,\"exchange_seq\":99," \
	"\"recv_delta_ns\":-20,\"flags\":[\"event_end\"],\"session\":7,\"channel\":3,"

#define EXPECT_BODY(kind, body) cr_assert_str_eq(json(&ctx), BEGIN(kind) body "}")

static int64_t dollars(int64_t ten_thousandths)
{
	return ten_thousandths * (TW_PRICE_SCALE / 10000);
}

Test(format, quotes, .timeout = 60)
{
	start(TW_MSG_QUOTE);
	m.quote.bid_price = dollars(1572500);
	m.quote.bid_qty = 100;
	m.quote.ask_price = dollars(1572601);
	m.quote.ask_qty = 1200;
	EXPECT_BODY("Quote", "\"bid_price\":157.25,\"bid_qty\":100,"
			     "\"ask_price\":157.2601,\"ask_qty\":1200");
	m.quote.bid_price = TW_PRICE_NONE;
	m.quote.bid_qty = 0;
	EXPECT_BODY("Quote", "\"bid_price\":null,\"bid_qty\":null,"
			     "\"ask_price\":157.2601,\"ask_qty\":1200");
	m.quote.ask_price = TW_PRICE_NONE;
	m.quote.bid_price = 0;
	EXPECT_BODY("Quote", "\"bid_price\":0,\"bid_qty\":0,\"ask_price\":null,\"ask_qty\":null");
}

Test(format, definition_and_leg, .timeout = 60)
{
	start(TW_MSG_INSTRUMENT_DEFINITION);
	memcpy(m.definition.symbol, "ZVZZT", 5);
	m.definition.raw_id = UINT64_MAX;
	memcpy(m.definition.mic, "XNAS", 4);
	memcpy(m.definition.currency, "USD", 3);
	m.definition.tick_price = TW_PRICE_NONE;
	m.definition.display_factor = TW_PRICE_SCALE;
	m.definition.multiplier = TW_PRICE_SCALE;
	m.definition.round_lot_qty = 100;
	m.definition.strike_price = TW_PRICE_NONE;
	m.definition.reference_price = dollars(100000);
	m.definition.trading_date = 20170710;
	m.definition.action = TW_DEF_ADD;
	m.definition.class_ = TW_CLASS_ETP;
	m.definition.test = 1;
	m.definition.luld_tier = 2;
	m.definition.venue_flags = 0xa0;
	cr_assert_str_eq(
		json(&ctx),
		"{\"seq\":12,\"kind\":\"InstrumentDefinition\",\"venue\":\"XNAS\","
		"\"symbol\":\"ZVZZT\",\"instrument_id\":5,\"exchange_ns\":1499697277643877000,"
		"\"exchange_seq\":99,\"recv_delta_ns\":-20,\"flags\":[\"event_end\"],"
		"\"session\":7,\"channel\":3,\"raw_id\":18446744073709551615,\"mic\":\"XNAS\","
		"\"currency\":\"USD\",\"tick_price\":null,\"display_factor\":1,\"multiplier\":1,"
		"\"round_lot_qty\":100,\"expiry_ns\":0,\"strike_price\":null,"
		"\"reference_price\":10,\"group\":null,\"underlying_id\":0,"
		"\"trading_date\":20170710,\"depth_levels\":0,\"action\":\"add\","
		"\"class\":\"etp\",\"put_call\":null,\"test\":true,\"luld_tier\":2,"
		"\"venue_flags\":160}");
	start(TW_MSG_INSTRUMENT_LEG);
	m.leg.leg_price = -dollars(2500);
	m.leg.leg_instrument_id = UINT32_MAX;
	m.leg.ratio = -2;
	m.leg.side = TW_SIDE_SELL;
	m.leg.leg_index = 1;
	m.leg.leg_count = 2;
	EXPECT_BODY("InstrumentLeg", "\"leg_price\":-0.25,\"leg_instrument_id\":4294967295,"
				     "\"ratio\":-2,\"side\":\"sell\",\"leg_index\":1,"
				     "\"leg_count\":2");
}

Test(format, orders, .timeout = 60)
{
	start(TW_MSG_ORDER_ADD);
	m.add.order_id = 1;
	m.add.price = dollars(10001);
	m.add.qty = 2;
	m.add.priority = 3;
	memcpy(m.add.participant, "MMID    ", 8);
	m.add.side = TW_SIDE_BUY;
	EXPECT_BODY("OrderAdd", "\"order_id\":1,\"price\":1.0001,\"qty\":2,\"priority\":3,"
				"\"participant\":\"MMID\",\"side\":\"buy\"");
	start(TW_MSG_ORDER_MODIFY);
	m.modify.order_id = 4;
	m.modify.price = TW_PRICE_NONE;
	m.modify.keeps_priority = 1;
	EXPECT_BODY("OrderModify", "\"order_id\":4,\"price\":null,\"qty\":0,\"priority\":0,"
				   "\"side\":\"none\",\"keeps_priority\":true");
	start(TW_MSG_ORDER_REPLACE);
	m.replace.order_id = 5;
	m.replace.new_order_id = 6;
	m.replace.side = 9;
	EXPECT_BODY("OrderReplace", "\"order_id\":5,\"new_order_id\":6,\"price\":0,\"qty\":0,"
				    "\"priority\":0,\"participant\":null,\"side\":9");
	start(TW_MSG_ORDER_DELETE);
	m.delete.order_id = UINT64_MAX;
	m.delete.side = TW_SIDE_SELL;
	EXPECT_BODY("OrderDelete", "\"order_id\":18446744073709551615,\"side\":\"sell\"");
	start(TW_MSG_ORDER_EXECUTE);
	m.execute.order_id = 7;
	m.execute.price = dollars(1);
	m.execute.qty = 8;
	m.execute.remaining_qty = 9;
	m.execute.match_id = 10;
	m.execute.conditions = TW_COND_OPEN_CROSS | TW_COND_SINGLE_PRICE_CROSS;
	m.execute.side = TW_SIDE_BUY;
	m.execute.aggressor = TW_SIDE_SELL;
	m.execute.venue_conditions[0] = 'O';
	EXPECT_BODY("OrderExecute",
		    "\"order_id\":7,\"price\":0.0001,\"qty\":8,\"remaining_qty\":9,"
		    "\"match_id\":10,\"conditions\":[\"open_cross\",\"single_price_cross\"],"
		    "\"side\":\"buy\",\"aggressor\":\"sell\",\"venue_conditions\":\"O\"");
	start(TW_MSG_LEVEL_UPDATE);
	m.level.price = dollars(20000);
	m.level.order_count = 4;
	m.level.side = TW_SIDE_SELL;
	EXPECT_BODY("LevelUpdate", "\"price\":2,\"qty\":0,\"order_count\":4,\"side\":\"sell\","
				   "\"implied\":false");
	start(TW_MSG_BOOK_CLEAR);
	EXPECT_BODY("BookClear", "\"side\":\"none\"");
}

Test(format, trades, .timeout = 60)
{
	start(TW_MSG_TRADE);
	m.head.flags = TW_MSG_EVENT_END | TW_MSG_PRINTABLE | TW_MSG_OUT_OF_SESSION | 0x8000;
	m.trade.price = dollars(1573000);
	m.trade.qty = 50;
	m.trade.match_id = 1234567890123;
	m.trade.conditions = TW_COND_ODD_LOT | TW_COND_EXTENDED_HOURS | 1u << 31;
	m.trade.venue_conditions[0] = 0x60;
	cr_assert_str_eq(
		json(&ctx),
		"{\"seq\":12,\"kind\":\"Trade\",\"venue\":\"XNAS\",\"symbol\":\"AAPL\","
		"\"instrument_id\":5,\"exchange_ns\":1499697277643877000,\"exchange_seq\":99,"
		"\"recv_delta_ns\":-20,\"flags\":[\"event_end\",\"printable\",\"out_of_session\","
		"\"bit15\"],\"session\":7,\"channel\":3,\"price\":157.3,\"qty\":50,"
		"\"match_id\":1234567890123,\"conditions\":[\"odd_lot\",\"extended_hours\","
		"\"bit31\"],\"aggressor\":\"none\",\"venue_conditions\":\"`\"}");
	start(TW_MSG_TRADE_CANCEL);
	m.cancel.price = dollars(1573000);
	m.cancel.qty = 50;
	m.cancel.match_id = 3;
	m.cancel.venue_conditions[0] = ' '; /* a flag byte of 0x20 is no padding */
	m.cancel.venue_conditions[1] = 0x18;
	EXPECT_BODY("TradeCancel", "\"price\":157.3,\"qty\":50,\"match_id\":3,\"conditions\":[],"
				   "\"venue_conditions\":\" \\u0018\"");
}

Test(format, states, .timeout = 60)
{
	start(TW_MSG_TRADING_STATUS);
	m.status.status = TW_STATUS_HALTED;
	m.status.scope = TW_STATUS_SCOPE_MARKET;
	m.status.venue_status = 'H';
	memcpy(m.status.reason, "T1  ", 4);
	EXPECT_BODY("TradingStatus", "\"status\":\"halted\",\"scope\":\"market\","
				     "\"venue_status\":\"H\",\"reason\":\"T1\"");
	m.status.status = 200;
	m.status.scope = 0;
	m.status.venue_status = 0;
	EXPECT_BODY("TradingStatus",
		    "\"status\":200,\"scope\":0,\"venue_status\":null,\"reason\":\"T1\"");
	start(TW_MSG_PRICE_LIMITS);
	m.limits.reference_price = TW_PRICE_NONE;
	m.limits.lower_price = dollars(90000);
	m.limits.upper_price = dollars(110000);
	m.limits.kind = TW_LIMIT_LULD;
	m.limits.extension = 1;
	EXPECT_BODY("PriceLimits", "\"reference_price\":null,\"lower_price\":9,"
				   "\"upper_price\":11,\"limit_kind\":\"luld\",\"level\":0,"
				   "\"extension\":1");
	start(TW_MSG_SHORT_SALE_STATUS);
	m.short_sale.status = TW_SHORT_RESTRICTED;
	m.short_sale.detail = ' ';
	m.short_sale.venue_status = 1;
	EXPECT_BODY("ShortSaleStatus", "\"status\":\"restricted\",\"detail\":\" \","
				       "\"venue_status\":\"\\u0001\"");
	start(TW_MSG_PARTICIPANT_STATUS);
	memcpy(m.participant.participant, "ABCDEFGH", 8);
	m.participant.primary = 1;
	m.participant.mode = 'N';
	m.participant.state = 'A';
	EXPECT_BODY("ParticipantStatus", "\"participant\":\"ABCDEFGH\",\"primary\":true,"
					 "\"mode\":\"N\",\"state\":\"A\"");
	start(TW_MSG_SESSION_EVENT);
	m.event.trading_date = 20191230;
	m.event.event = TW_SESSION_MARKET_OPEN;
	m.event.venue_event = 'Q';
	EXPECT_BODY("SessionEvent", "\"trading_date\":20191230,\"event\":\"market_open\","
				    "\"venue_event\":\"Q\"");
}

Test(format, auctions_and_statistics, .timeout = 60)
{
	start(TW_MSG_AUCTION_IMBALANCE);
	m.auction.paired_qty = 1000;
	m.auction.imbalance_qty = 200;
	m.auction.reference_price = dollars(100000);
	m.auction.near_price = dollars(100100);
	m.auction.far_price = TW_PRICE_NONE;
	m.auction.collar_reference_price = TW_PRICE_NONE;
	m.auction.lower_collar_price = TW_PRICE_NONE;
	m.auction.upper_collar_price = TW_PRICE_NONE;
	m.auction.scheduled_ns = 1499697300000000000;
	m.auction.auction = TW_AUCTION_OPEN;
	m.auction.side = TW_SIDE_BUY;
	m.auction.venue_auction = 'O';
	EXPECT_BODY("AuctionImbalance",
		    "\"paired_qty\":1000,\"imbalance_qty\":200,\"reference_price\":10,"
		    "\"near_price\":10.01,\"far_price\":null,\"collar_reference_price\":null,"
		    "\"lower_collar_price\":null,\"upper_collar_price\":null,"
		    "\"scheduled_ns\":1499697300000000000,\"auction\":\"open\",\"side\":\"buy\","
		    "\"extensions\":0,\"venue_auction\":\"O\",\"variation\":null");
	start(TW_MSG_STATISTIC);
	m.statistic.price = dollars(100200);
	m.statistic.type = TW_STAT_OFFICIAL_CLOSE;
	m.statistic.venue_type = 'M';
	EXPECT_BODY("Statistic", "\"price\":10.02,\"qty\":0,\"type\":\"official_close\","
				 "\"venue_type\":\"M\"");
	m.statistic.type = 999;
	EXPECT_BODY("Statistic", "\"price\":10.02,\"qty\":0,\"type\":999,\"venue_type\":\"M\"");
}

Test(format, context, .timeout = 60)
{
	struct tw_format_ctx c = { .seq = UINT64_MAX, .session = UINT64_MAX, .channel = 65535 };

	start(TW_MSG_BOOK_CLEAR);
	m.head.flags = 0;
	m.head.recv_delta_ns = INT32_MIN;
	m.head.exchange_ns = UINT64_MAX;
	m.head.venue_id = 65535;
	cr_assert_str_eq(json(&c),
			 "{\"seq\":18446744073709551615,\"kind\":\"BookClear\",\"venue\":65535,"
			 "\"symbol\":null,\"instrument_id\":5,\"exchange_ns\":18446744073709551615,"
			 "\"exchange_seq\":99,\"recv_delta_ns\":-2147483648,\"flags\":[],"
			 "\"session\":18446744073709551615,\"channel\":65535,\"side\":\"none\"}");
	c.sent_ns = 1;
	c.recv_ns = 2;
	c.repaired = true;
	c.late = true;
	c.mic = "";
	c.symbol = "";
	cr_assert_not_null(strstr(json(&c), "\"channel\":65535,\"sent_ns\":1,\"recv_ns\":2,"
					    "\"repaired\":true,\"late\":true,\"side\""));
	cr_assert_not_null(strstr(json(&c), "\"venue\":65535,\"symbol\":null,"));
}

Test(format, unknown_template, .timeout = 60)
{
	start(TW_MSG_QUOTE);
	m.head.sbe.template_id = 0x8001;
	m.head.sbe.block_length = 88;
	cr_assert_str_eq(
		json(&ctx),
		"{\"seq\":12,\"kind\":null,\"venue\":\"XNAS\",\"symbol\":\"AAPL\","
		"\"instrument_id\":5,\"exchange_ns\":1499697277643877000,\"exchange_seq\":99,"
		"\"recv_delta_ns\":-20,\"flags\":[\"event_end\"],\"session\":7,\"channel\":3,"
		"\"template_id\":32769,\"block_length\":88}");
}

Test(format, prices_are_exact, .timeout = 60)
{
	static const struct {
		int64_t price;
		const char *text;
	} cases[] = {
		{ 0, "0" },
		{ 1, "0.000000001" },
		{ -1, "-0.000000001" },
		{ 10, "0.00000001" },
		{ 999999999, "0.999999999" },
		{ 1000000000, "1" },
		{ 1000000001, "1.000000001" },
		{ 1100000000, "1.1" },
		{ 157250000000, "157.25" },
		{ -157250000000, "-157.25" },
		{ 100000000000, "100" },
		{ TW_PRICE_NONE, "null" },
		{ INT64_MAX - 1, "9223372036.854775806" },
		{ INT64_MIN, "-9223372036.854775808" },
	};
	char buf[32];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int n = tw_format_price(buf, sizeof(buf), cases[i].price);
		cr_assert_str_eq(buf, cases[i].text);
		cr_assert_eq(n, (int)strlen(buf));
	}
	/* and back again, for values of every magnitude */
	for (int64_t v = 1; v < INT64_MAX / 11; v = v * 11 + 7) {
		cr_assert_gt(tw_format_price(buf, sizeof(buf), v), 0);
		char *end = NULL;
		int64_t back = strtoll(buf, &end, 10) * TW_PRICE_SCALE;
		int64_t unit = TW_PRICE_SCALE;
		for (end += *end == '.' ? 1 : 0; *end != '\0'; end++) {
			unit /= 10;
			back += unit * (*end - '0');
		}
		cr_assert_eq(back, v, "%s", buf);
	}
}

Test(format, times, .timeout = 60)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {
		{ 0, "1970-01-01T00:00:00.000000000Z" },
		{ 1, "1970-01-01T00:00:00.000000001Z" },
		{ 951782399999999999, "2000-02-28T23:59:59.999999999Z" },
		{ 951782400000000000, "2000-02-29T00:00:00.000000000Z" },
		{ 951868800000000000, "2000-03-01T00:00:00.000000000Z" },
		{ 1499697277643877000, "2017-07-10T14:34:37.643877000Z" },
		{ 4107542400000000000, "2100-03-01T00:00:00.000000000Z" },
		{ UINT64_MAX, "2554-07-21T23:34:33.709551615Z" },
	};
	char buf[32];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cr_assert_eq(tw_format_time(buf, sizeof(buf), cases[i].ns), 30);
		cr_assert_str_eq(buf, cases[i].text);
	}
}

Test(format, strings_are_escaped, .timeout = 60)
{
	static const struct {
		const char *text;
		size_t len;
		const char *json;
	} cases[] = {
		{ "", 0, "null" },
		{ "\0\0\0\0", 4, "null" },
		{ "    ", 4, "null" },
		{ "A \0 \0", 5, "\"A\"" },
		{ " A", 2, "\" A\"" },
		{ "A\0B", 3, "\"A\\u0000B\"" },
		{ "\"\\/", 3, "\"\\\"\\\\/\"" },
		{ "\n\r\t\x1b\x7f", 5, "\"\\u000a\\u000d\\u0009\\u001b\\u007f\"" },
		{ "\x80\xff\xc3\xa9", 4, "\"\\u0080\\u00ff\\u00c3\\u00a9\"" },
		{ "</script>", 9, "\"</script>\"" },
	};
	char buf[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int n = tw_format_json_string(buf, sizeof(buf), cases[i].text, cases[i].len);
		cr_assert_str_eq(buf, cases[i].json);
		cr_assert_eq(n, (int)strlen(buf));
	}
}

Test(format, a_persons_text_keeps_its_utf8, .timeout = 60)
{
	static const struct {
		const char *text, *json;
	} cases[] = {
		{ "", "\"\"" },
		{ " a ", "\" a \"" },
		{ "\"\\/", "\"\\\"\\\\/\"" },
		{ "\n\x1b\x7f", "\"\\u000a\\u001b\\u007f\"" },
		{ "b\xc3\xb6rse", "\"b\xc3\xb6rse\"" },
		{ "\xe2\x82\xac\xed\x9f\xbf\xee\x80\x80",
		  "\"\xe2\x82\xac\xed\x9f\xbf\xee\x80\x80\"" },
		{ "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"" },
		/* cut short, alone, longer than it has to be, a surrogate, too high */
		{ "\xc3", "\"\\u00c3\"" },
		{ "\xe2\x82", "\"\\u00e2\\u0082\"" },
		{ "\xf0\x90\x80", "\"\\u00f0\\u0090\\u0080\"" },
		{ "\xc3\"", "\"\\u00c3\\\"\"" },
		{ "\xb6", "\"\\u00b6\"" },
		{ "\xc0\xaf\xc1\xbf", "\"\\u00c0\\u00af\\u00c1\\u00bf\"" },
		{ "\xe0\x9f\xbf", "\"\\u00e0\\u009f\\u00bf\"" },
		{ "\xf0\x8f\xbf\xbf", "\"\\u00f0\\u008f\\u00bf\\u00bf\"" },
		{ "\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\"" },
		{ "\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\"" },
		{ "\xf5\x80\x80\x80\xff", "\"\\u00f5\\u0080\\u0080\\u0080\\u00ff\"" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *got = NULL;
		size_t len = 0;
		FILE *out = open_memstream(&got, &len);
		cr_assert_not_null(out);
		tw_format_json_text(out, cases[i].text);
		cr_assert_eq(fclose(out), 0);
		cr_assert_str_eq(got, cases[i].json, "case %zu", i);
		free(got);
	}
}

Test(format, text_lines, .timeout = 60)
{
	char buf[TW_FORMAT_MAX_BYTES];
	struct tw_format_ctx c = ctx;

	start(TW_MSG_TRADE);
	m.head.flags |= TW_MSG_PRINTABLE;
	m.trade.price = dollars(1573000);
	m.trade.qty = 50;
	m.trade.match_id = 77;
	m.trade.conditions = TW_COND_ODD_LOT | TW_COND_ISO;
	m.trade.venue_conditions[0] = (char)0xa0;
	cr_assert_gt(tw_format_text(buf, sizeof(buf), &c, &m), 0);
	cr_assert_str_eq(buf,
			 "12 Trade XNAS AAPL 2017-07-10T14:34:37.643877000Z price=157.3 qty=50 "
			 "match_id=77 conditions=[odd_lot,iso] aggressor=none "
			 "venue_conditions=\\xa0 [event_end,printable]");
	c.symbol = "A B\n";
	c.repaired = true;
	c.late = true;
	start(TW_MSG_QUOTE);
	m.quote.bid_price = TW_PRICE_NONE;
	m.quote.ask_price = dollars(10);
	m.quote.ask_qty = 3;
	cr_assert_gt(tw_format_text(buf, sizeof(buf), &c, &m), 0);
	cr_assert_str_eq(buf,
			 "12 Quote XNAS A\\x20B\\x0a 2017-07-10T14:34:37.643877000Z bid_price=- "
			 "bid_qty=- ask_price=0.001 ask_qty=3 [event_end] repaired late");
	m.head.sbe.template_id = 300;
	cr_assert_gt(tw_format_text(buf, sizeof(buf), &ctx, &m), 0);
	cr_assert_str_eq(buf,
			 "12 template300 XNAS AAPL 2017-07-10T14:34:37.643877000Z [event_end]");
}

/* A buffer of every size up to what is needed: refused, empty, and not a byte past its end. */
Test(format, short_buffers, .timeout = 60)
{
	for (unsigned int id = 1; id <= TW_MSG_KIND_LIMIT; id++) {
		memset(&m, 0xff, sizeof(m));
		m.head.sbe.template_id = (uint16_t)id;
		int need = (int)strlen(json(&ctx));
		for (int size = 0; size <= need; size++) {
			char *buf = malloc((size_t)size + 1);
			cr_assert_not_null(buf);
			memset(buf, '#', (size_t)size + 1);
			cr_assert_eq(tw_format_json(buf, (size_t)size, &ctx, &m), TW_EFULL);
			cr_assert(size == 0 || buf[0] == '\0');
			cr_assert_eq(buf[size], '#');
			free(buf);
		}
		char *buf = malloc((size_t)need + 1);
		cr_assert_not_null(buf);
		cr_assert_eq(tw_format_json(buf, (size_t)need + 1, &ctx, &m), need);
		free(buf);
	}
}

/* Every byte value in every place: always ASCII, always within the promised size. */
Test(format, any_bytes_fit_and_are_ascii, .timeout = 60)
{
	const struct tw_format_ctx worst = {
		.seq = UINT64_MAX,
		.session = UINT64_MAX,
		.sent_ns = UINT64_MAX,
		.recv_ns = UINT64_MAX,
		.channel = UINT16_MAX,
		.repaired = true,
		.late = true,
		.mic = "\x01\x02\x03\x04",
		.symbol = "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"
			  "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
	};
	char buf[TW_FORMAT_MAX_BYTES];

	for (unsigned int byte = 0; byte < 256; byte++) {
		for (unsigned int id = 1; id <= TW_MSG_KIND_LIMIT; id++) {
			memset(&m, (int)byte, sizeof(m));
			m.head.sbe.template_id = (uint16_t)id;
			int n = tw_format_json(buf, sizeof(buf), &worst, &m);
			cr_assert_gt(n, 0, "byte %u template %u", byte, id);
			for (int i = 0; i < n; i++) {
				cr_assert(buf[i] >= 0x20 && buf[i] < 0x7f);
			}
			n = tw_format_text(buf, sizeof(buf), &worst, &m);
			cr_assert_gt(n, 0);
			for (int i = 0; i < n; i++) {
				cr_assert(buf[i] >= 0x20 && buf[i] < 0x7f);
			}
		}
	}
}
