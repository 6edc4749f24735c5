/* What tw-gen writes, read by the feedhandler: two hands, one specification.  Every kind comes out as
 * often as it went in, and the volumes agree. */
#include "tests/support/feed_bytes.h"
#include "tests/support/temp_dir.h"
#include "tools/gen.h"

#define SYMBOLS 60u

struct tally {
	uint64_t kinds[TW_MSG_KIND_LIMIT];
	uint64_t traded, broken, one_sided, empty;
	uint32_t last_seq;
};

static void take(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes, uint32_t channels)
{
	struct tally *tally = ctx;

	cr_assert_eq(channels, 1);
	cr_assert_eq(len_bytes, msg->sbe.block_length + sizeof(msg->sbe));
	tally->kinds[msg->sbe.template_id]++;
	tally->last_seq = msg->exchange_seq;
	if (msg->sbe.template_id == TW_MSG_TRADE) {
		tally->traded += ((const struct tw_msg_trade *)(const void *)msg)->qty;
	} else if (msg->sbe.template_id == TW_MSG_TRADE_CANCEL) {
		tally->broken += ((const struct tw_msg_trade_cancel *)(const void *)msg)->qty;
	} else if (msg->sbe.template_id == TW_MSG_QUOTE) {
		const struct tw_msg_quote *q = (const void *)msg;
		bool no_bid = q->bid_price == TW_PRICE_NONE;
		bool no_ask = q->ask_price == TW_PRICE_NONE;
		tally->empty += no_bid && no_ask ? 1 : 0;
		tally->one_sided += no_bid != no_ask ? 1 : 0;
	}
}

static void decode(const char *path, struct tally *tally)
{
	_Atomic uint64_t values[TW_N_fh_counters] = { 0 };
	struct tw_feed *feed = NULL;
	struct tw_input *input = NULL;
	struct tw_error err = { 0 };
	const struct tw_feed_conf conf = {
		.protocol = "tops16",
		.venue_id = 1,
		.mic = "IEXG",
		.channel_count = 1,
		.sink = { take, tally },
		.counters = { .values = values },
	};

	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_input_capture_open(&input, path, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_feed_run(feed, input, &err), TW_OK, "%s", err.text);
	cr_assert_eq(input->warning.code, TW_OK, "%s", input->warning.text);
	static const unsigned int none[] = { TW_FH_unknown_messages, TW_FH_unknown_values,
					     TW_FH_malformed_messages };
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		cr_assert_eq(tw_counter_get(&conf.counters, none[i]), 0, "counter %u", none[i]);
	}
	tw_input_close(input);
	tw_feed_destroy(feed);
}

static void round_trip(enum tw_gen_format format, bool gzip)
{
	struct temp_dir dir;
	char path[160];
	struct tw_gen_summary sum;
	struct tw_error err = { 0 };
	struct tally tally = { 0 };
	struct tw_gen_conf conf = {
		.protocol = "tops16",
		.seed = 11,
		.messages = 20000,
		.rate = 10000,
		.symbols = SYMBOLS,
		.start_ns = 1767623340000000000,
		.output = path,
		.format = format,
		.gzip = gzip,
		.group = 0xefc31001u,
		.port = 10378,
	};

	cr_assert(temp_dir_make(&dir));
	(void)snprintf(path, sizeof(path), "%s/day", dir.path);
	cr_assert_eq(tw_gen_run(&conf, &sum, &err), TW_OK, "%s", err.text);
	decode(path, &tally);
	temp_dir_remove(&dir);

	cr_assert_eq(tally.kinds[TW_MSG_QUOTE], sum.counts['Q']);
	cr_assert_eq(tally.kinds[TW_MSG_TRADE], sum.counts['T']);
	cr_assert_eq(tally.kinds[TW_MSG_TRADE_CANCEL], sum.counts['B']);
	cr_assert_eq(tally.kinds[TW_MSG_TRADING_STATUS], sum.counts['H'] + sum.counts['O']);
	cr_assert_eq(tally.kinds[TW_MSG_SHORT_SALE_STATUS], sum.counts['P']);
	cr_assert_eq(tally.kinds[TW_MSG_STATISTIC], sum.counts['X']);
	cr_assert_eq(tally.kinds[TW_MSG_AUCTION_IMBALANCE], sum.counts['A']);
	cr_assert_eq(tally.kinds[TW_MSG_SESSION_EVENT], sum.counts['S']);
	/* one at first sight of each symbol, and one for each directory message after that */
	cr_assert_eq(tally.kinds[TW_MSG_INSTRUMENT_DEFINITION], SYMBOLS + sum.counts['D']);
	cr_assert_eq(tally.traded, sum.traded_qty);
	cr_assert_eq(tally.broken, sum.broken_qty);
	cr_assert_eq(tally.one_sided, sum.one_sided_quotes);
	cr_assert_eq(tally.empty, sum.empty_quotes);
	cr_assert_eq(tally.last_seq, (uint32_t)sum.last_seq);
}

Test(gen_decode, pcap, .timeout = 60)
{
	round_trip(TW_GEN_PCAP, false);
}

Test(gen_decode, gzipped_pcapng, .timeout = 60)
{
	round_trip(TW_GEN_PCAPNG, true);
}
