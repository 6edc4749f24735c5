/* TotalView-ITCH 5.0: days and times, and what is done with what does not fit. */
#include "tests/support/itch_bytes.h"

/* ---- times ---- */

/* One event, received at `recv_ns`. */
static const struct tw_msg_session_event *event_at(struct bench *b, uint64_t recv_ns,
						   uint64_t time_ns)
{
	struct tape t = { .len = 0 };
	put(&t, "S", 1);
	put_be(&t, 0, 4);
	put_be(&t, time_ns, 6);
	put(&t, "Q", 1);
	struct tw_venue_msg msg = {
		.data = t.bytes, .len_bytes = (uint32_t)t.len, .seq = next_seq++, .recv_ns = recv_ns
	};
	tw_feed_venue_msg(b->feed, &msg);
	return last(b, TW_MSG_SESSION_EVENT);
}

#define SUMMER_RECV_NS UINT64_C(1692711000000000000) /* 2023-08-22 13:30 UTC: 09:30 in New York */
#define OPEN_NS        UINT64_C(34200000000000)

Test(itch50_feed, the_day_comes_from_the_receive_time, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	const struct tw_msg_session_event *e = event_at(&b, SUMMER_RECV_NS + 10, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, SUMMER_RECV_NS);
	cr_assert_eq(e->head.recv_delta_ns, 10);
	cr_assert_eq(e->head.flags, END);
	cr_assert_eq(e->trading_date, 20230822);
	/* the next day, and a winter's */
	e = event_at(&b, SUMMER_RECV_NS + UINT64_C(86400000000000), OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, SUMMER_RECV_NS + UINT64_C(86400000000000));
	cr_assert_eq(e->trading_date, 20230823);
	e = event_at(&b, MIDNIGHT_NS + OPEN_NS, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, MIDNIGHT_NS + OPEN_NS);
	/* a packet without a time is of the day under way, and its delta unknown */
	e = event_at(&b, 0, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, MIDNIGHT_NS + OPEN_NS);
	cr_assert_eq(e->head.flags, END | TW_MSG_TS_BAD);
	bench_close(&b);
}

Test(itch50_feed, another_day_forgets_orders_and_codes, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	add(&b, 5, 1, 'B', 100, 10000, NULL);
	size_t before = b.count;
	(void)event_at(&b, SUMMER_RECV_NS, OPEN_NS);
	(void)bench_msg(&b, before, TW_MSG_BOOK_CLEAR);
	cr_assert_eq(bench_counter(&b, TW_FH_orders), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 0);
	bench_close(&b);
}

Test(itch50_feed, the_day_is_configured, .timeout = 60)
{
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .trading_date = 20191230 });
	const struct tw_msg_session_event *e = event_at(&b, MIDNIGHT_NS + OPEN_NS + 7, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, MIDNIGHT_NS + OPEN_NS);
	cr_assert_eq(e->head.recv_delta_ns, 7);
	e = event_at(&b, SUMMER_RECV_NS,
		     OPEN_NS); /* recorded on another day: its delta says nothing */
	cr_assert_eq(e->head.exchange_ns, MIDNIGHT_NS + OPEN_NS);
	cr_assert_eq(e->head.flags, END | TW_MSG_TS_BAD);
	cr_assert_eq(e->trading_date, 20191230);
	bench_close(&b);
	struct tw_feed_conf conf = { .protocol = "itch50",
				     .depths = { TW_DEPTH_ORDERS },
				     .channel_count = 1,
				     .trading_date = 20190229 };
	struct tw_feed *feed;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert_not_null(strstr(err.text, "20190229"), "%s", err.text);
}

Test(itch50_feed, no_day_at_all, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	const struct tw_msg_session_event *e = event_at(&b, 0, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, OPEN_NS);
	cr_assert_eq(e->head.flags, END | TW_MSG_TS_BAD);
	cr_assert_eq(e->trading_date, 0);
	/* the epoch's first day stands for none */
	const uint64_t first_ns = UINT64_C(18000000000000);
	e = event_at(&b, first_ns + OPEN_NS, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, first_ns + OPEN_NS);
	cr_assert_eq(e->head.recv_delta_ns, 0);
	cr_assert_eq(e->head.flags, END | TW_MSG_TS_BAD);
	cr_assert_eq(e->trading_date, 0);
	bench_close(&b);
}

Test(itch50_feed, a_time_of_no_day, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	const struct tw_msg_session_event *e =
		event_at(&b, MIDNIGHT_NS + OPEN_NS, UINT64_C(90000000000000));
	cr_assert_eq(e->head.exchange_ns, 0);
	cr_assert_eq(e->head.flags, END | TW_MSG_TS_BAD);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_values), 1);
	bench_close(&b);
}

/* Moved to now, the day is still the recording's. */
Test(itch50_feed, a_replay_that_happens_now, .timeout = 60)
{
	const int64_t shift_ns = INT64_C(100000000000000001);
	struct bench b;
	open_feed(&b);
	b.feed->shift_ns = shift_ns;
	const struct tw_msg_session_event *e =
		event_at(&b, MIDNIGHT_NS + OPEN_NS + 5 + (uint64_t)shift_ns, OPEN_NS);
	cr_assert_eq(e->head.exchange_ns, MIDNIGHT_NS + OPEN_NS + (uint64_t)shift_ns);
	cr_assert_eq(e->head.recv_delta_ns, 5);
	cr_assert_eq(e->head.flags, END);
	bench_close(&b);
}

/* ---- what does not fit ---- */

Test(itch50_feed, lengths, .timeout = 60)
{
	static const struct {
		char type;
		unsigned int bytes;
	} types[] = { { 'S', 12 }, { 'R', 39 }, { 'H', 25 }, { 'Y', 20 }, { 'L', 26 }, { 'V', 35 },
		      { 'W', 12 }, { 'K', 28 }, { 'J', 35 }, { 'h', 21 }, { 'A', 36 }, { 'F', 40 },
		      { 'E', 31 }, { 'C', 36 }, { 'X', 23 }, { 'D', 19 }, { 'U', 35 }, { 'P', 44 },
		      { 'Q', 40 }, { 'B', 19 }, { 'I', 50 }, { 'N', 20 }, { 'O', 48 } };
	struct bench b;
	open_feed(&b);
	uint64_t bad = 0;
	struct tape t = { .len = 0 };
	say_bytes(&b, &t);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), ++bad);
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		memset(t.bytes, 0, 64);
		t.bytes[0] = (uint8_t)types[i].type;
		t.bytes[2] = 1;
		for (t.len = 1; t.len < types[i].bytes; t.len++) {
			say_bytes(&b, &t);
			cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), ++bad, "%c %zu",
				     types[i].type, t.len);
		}
	}
	cr_assert_eq(b.count, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_messages), 0);
	/* a later edition may add to the end of one */
	say(&b, "59 0007 0000 1f1acedb172e 4e45574320202020 30 ffffff");
	(void)last(&b, TW_MSG_SHORT_SALE_STATUS);
	say(&b, "7a 0007 0000 1f1acedb172e 00");
	cr_assert_eq(bench_counter(&b, TW_FH_unknown_messages), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), bad);
	bench_close(&b);
}

Test(itch50_feed, names_that_are_none, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	say(&b, "59 0007 0000 1f1acedb172e 2020202020202020 30"); /* empty */
	say(&b, "59 0007 0000 1f1acedb172e 4120424320202020 30"); /* a blank inside */
	say(&b, "59 0007 0000 1f1acedb172e 4142430020202020 30"); /* not printable */
	say(&b, "59 0000 0000 1f1acedb172e 4e45574320202020 30"); /* code 0 is the market */
	execute(&b, 0, 1, 10, 0, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), 5);
	cr_assert_eq(b.count, 0);
	bench_close(&b);
}

Test(itch50_feed, instruments_beyond_the_table, .timeout = 60)
{
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .max_instruments = 2 });
	add(&b, 1, 1, 'B', 100, 10000, NULL);
	add(&b, 2, 2, 'B', 100, 10000, NULL);
	add(&b, 3, 3, 'B', 100, 10000, NULL);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments_refused), 1);
	cr_assert_eq(b.count, 4);
	bench_close(&b);
}

Test(itch50_feed, what_is_refused_at_start, .timeout = 60)
{
	static const struct {
		uint8_t depth;
		const char *directory, *text;
	} wrong[] = { { TW_DEPTH_QUOTES, "", "depth 'quotes', protocol itch50 gives: orders" },
		      { TW_DEPTH_LEVELS, "", "depth 'levels', protocol itch50 gives: orders" },
		      { TW_DEPTH_ORDERS, "/etc/tidewire/symbols", "numbers" } };
	for (size_t i = 0; i < 3; i++) {
		struct tw_feed_conf conf = { .protocol = "itch50",
					     .channel_count = 1,
					     .depths = { wrong[i].depth },
					     .directory = wrong[i].directory };
		struct tw_feed *feed;
		struct tw_error err = { 0 };
		cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
		cr_assert_not_null(strstr(err.text, wrong[i].text), "%s", err.text);
	}
}

/* Ids are the venue's numbers, whatever the order in which symbols come and whatever their hashes. */
Test(itch50_feed, ids_are_locate_codes, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	for (unsigned int i = 0; i < 60; i++) {
		uint16_t locate = (uint16_t)(65535 - 977 * i);
		add(&b, locate, i + 1, 'B', 100, 10000, NULL);
		const struct tw_msg_order_add *a = last(&b, TW_MSG_ORDER_ADD);
		cr_assert_eq(a->head.instrument_id, locate);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_id_collisions), 0);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 60);
	bench_close(&b);
}
