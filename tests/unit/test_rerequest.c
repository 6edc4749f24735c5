/* Re-requests without a network: times, requests and replies are what the test makes them. */
#include "config/config.h"
#include "feedhandler/rerequest.h"
#include "tests/support/feed_bytes.h"

enum { EVENT_BYTES = 12, ANSWER_NS = 1000000000, SERVERS = 2, ATTEMPTS = 3, STORE = 4000 };

#define SPACE  TW_REREQUEST_SPACE_NS
#define SERVER 0x0a000001u /* the second is one more */

struct desk {
	struct bench bench;
	struct tw_venue_arb *arb;
	struct tw_rerequest *rr;
	uint64_t now_ns;
};

static struct tape tape;

static void put_mold(const char *session, uint64_t seq, uint16_t count)
{
	tape.len = 0;
	put(&tape, session, 10);
	put_be(&tape, seq, 8);
	put_be(&tape, count, 2);
	for (uint16_t i = 0; i < count; i++) {
		put_be(&tape, EVENT_BYTES, 2);
		put(&tape, "S", 1);
		put_be(&tape, 0, 4);
		put_be(&tape, UINT64_C(34200000000000), 6);
		put(&tape, "Q", 1);
	}
}

static void desk_open(struct desk *d)
{
	*d = (struct desk){ .now_ns = 10 };
	bench_open(&d->bench, (struct tw_feed_conf){ .protocol = "itch50",
						     .mic = "XNAS",
						     .depths = { TW_DEPTH_ORDERS },
						     .max_orders = 64 });
	const struct tw_venue_arb_conf ac = { .lines = 1,
					      .store_packets = STORE,
					      .repair = TW_REREQUEST_OUTSTANDING };
	struct tw_rerequest_conf rc = { .servers = SERVERS,
					.answer_ns = ANSWER_NS,
					.attempts = ATTEMPTS };
	for (uint32_t i = 0; i < SERVERS; i++) {
		rc.server[i].address = SERVER + i;
		rc.server[i].port = 17000;
	}
	struct tw_error err = { 0 };
	cr_assert_eq(tw_venue_arb_create(&d->arb, &ac, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_rerequest_create(&d->rr, &rc, &err), TW_OK, "%s", err.text);
}

static void desk_close(struct desk *d)
{
	tw_rerequest_destroy(d->rr);
	tw_venue_arb_destroy(d->arb);
	bench_close(&d->bench);
}

static void hear_of(struct desk *d, const char *session, uint64_t seq, uint16_t count)
{
	put_mold(session, seq, count);
	const struct tw_packet packet = { .payload = tape.bytes,
					  .len_bytes = (uint32_t)tape.len,
					  .recv_ns = 1 };
	tw_venue_arb_input(d->arb, d->bench.feed, &packet, d->now_ns);
}

static void hear(struct desk *d, uint64_t seq, uint16_t count)
{
	hear_of(d, "000010059B", seq, count);
}

/* The time of all gaps is over, and the line is empty. */
static void make_due(struct desk *d)
{
	tw_venue_arb_turn(d->arb, d->bench.feed, 1, d->now_ns);
	tw_venue_arb_turn(d->arb, d->bench.feed, 1, d->now_ns);
}

static bool next(struct desk *d, struct tw_request *request)
{
	bool asks = tw_rerequest_next(d->rr, d->arb, d->bench.feed, d->now_ns, request);
	if (asks) { /* the session's own, for the range that it says */
		put_mold("000010059B", request->first_seq, 0);
		uint64_t count = request->end_seq - request->first_seq;
		tape.bytes[18] = (uint8_t)(count >> 8);
		tape.bytes[19] = (uint8_t)count;
		cr_assert_eq(request->len_bytes, 20);
		cr_assert_eq(memcmp(request->bytes, tape.bytes, 20), 0);
	}
	return asks;
}

static void must_ask(struct desk *d, uint32_t server, uint64_t first, uint64_t end)
{
	struct tw_request request;
	cr_assert(next(d, &request), "wanted %lu", (unsigned long)first);
	cr_assert_eq(request.first_seq, first, "%lu", (unsigned long)request.first_seq);
	cr_assert_eq(request.end_seq, end, "%lu", (unsigned long)request.end_seq);
	cr_assert_eq(request.server, server, "server %u", request.server);
	cr_assert_not(next(d, &request), "not so soon");
	d->now_ns += SPACE;
}

static void must_not_ask(struct desk *d)
{
	struct tw_request request;
	cr_assert_not(next(d, &request), "asks for %lu", (unsigned long)request.first_seq);
}

static bool reply_of(struct desk *d, uint32_t address, const char *session, uint64_t seq,
		     uint16_t count)
{
	put_mold(session, seq, count);
	const struct tw_packet packet = { .payload = tape.bytes,
					  .len_bytes = (uint32_t)tape.len,
					  .src_addr = address,
					  .src_port = 17000,
					  .recv_ns = 1,
					  .line = TW_VENUE_LINES };
	return tw_rerequest_reply(d->rr, d->arb, d->bench.feed, &packet, d->now_ns);
}

static bool reply(struct desk *d, uint32_t server, uint64_t seq, uint16_t count)
{
	return reply_of(d, SERVER + server, "000010059B", seq, count);
}

static uint64_t count_of(const struct desk *d, unsigned int index)
{
	return bench_counter(&d->bench, index);
}

static void assert_delivered(const struct desk *d, uint64_t end_seq, uint64_t missing)
{
	cr_assert_eq(d->bench.count, end_seq - 1 - missing, "%zu", d->bench.count);
	cr_assert_eq(count_of(d, TW_FH_missing_messages), missing);
	for (size_t i = 0; missing == 0 && i < d->bench.count; i++) {
		const struct tw_msg_head *head = (const void *)d->bench.msgs[i].bytes;
		cr_assert_eq(head->exchange_seq, i + 1);
	}
}

Test(rerequest, all_gaps_are_asked_for_at_once_and_answered_in_any_order, .timeout = 60)
{
	enum { GAPS = 40, STEP = 50 }; /* too far from each other to be one */
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	for (uint64_t i = 1; i <= GAPS; i++) {
		hear(&d, STEP * i, 1);
		if (i < GAPS) {
			hear(&d, STEP * i + 1, STEP - 4); /* the last three are missing */
		}
	}
	must_not_ask(&d); /* nothing is due */
	make_due(&d);
	must_ask(&d, 0, 2, 34);
	must_ask(&d, 0, 34, 50);
	for (uint64_t i = 1; i < GAPS; i++) {
		must_ask(&d, 0, STEP * i + STEP - 3, STEP * i + STEP);
	}
	must_not_ask(&d);
	cr_assert_eq(count_of(&d, TW_FH_rerequests_outstanding), GAPS + 1);
	for (uint64_t i = GAPS - 1; i >= 1; i--) {
		cr_assert(reply(&d, 0, STEP * i + STEP - 3, 3));
		cr_assert_not(reply(&d, 0, STEP * i + STEP - 3, 3), "once is enough");
		cr_assert_eq(d.bench.count, 1);
	}
	cr_assert(reply(&d, 0, 34, 16));
	must_not_ask(&d);
	cr_assert(reply(&d, 0, 2, 32));
	assert_delivered(&d, STEP * GAPS + 1, 0);
	cr_assert_eq(tw_venue_arb_held(d.arb), 0);
	d.now_ns += 10ull * ANSWER_NS;
	must_not_ask(&d);
	cr_assert_eq(count_of(&d, TW_FH_rerequests), GAPS + 1);
	cr_assert_eq(count_of(&d, TW_FH_rerequest_timeouts), 0);
	desk_close(&d);
}

Test(rerequest, neighbours_are_one_request, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 3, 2);
	hear(&d, 8, 1);
	hear(&d, 33, 1);
	hear(&d, 36, 1);
	make_due(&d);
	must_ask(&d, 0, 2, 33); /* to 35 it were more than a reply brings */
	must_ask(&d, 0, 34, 36);
	cr_assert(reply(&d, 0, 34, 2));
	cr_assert(reply(&d, 0, 2, 31));
	assert_delivered(&d, 37, 0);
	desk_close(&d);
}

Test(rerequest, what_a_reply_was_too_short_for_is_asked_again_in_smaller_pieces, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 102, 1);
	make_due(&d);
	must_ask(&d, 0, 2, 34);
	must_ask(&d, 0, 34, 66);
	must_ask(&d, 0, 66, 98);
	must_ask(&d, 0, 98, 102);
	must_not_ask(&d);
	cr_assert(reply(&d, 0, 2, 8));
	must_ask(&d, 0, 10, 34); /* 26 at once by now */
	cr_assert(reply(&d, 0, 34, 8));
	must_ask(&d, 0, 42, 63);
	must_ask(&d, 0, 63, 66);
	cr_assert(reply(&d, 0, 10, 24));
	cr_assert(reply(&d, 0, 42, 21));
	cr_assert(reply(&d, 0, 63, 3));
	cr_assert(reply(&d, 0, 98, 4));
	cr_assert(reply(&d, 0, 66, 32));
	assert_delivered(&d, 103, 0);
	desk_close(&d);
}

Test(rerequest, the_next_server_is_asked_and_in_the_end_nobody, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 6, 1);
	make_due(&d);
	must_ask(&d, 0, 2, 6);
	hear(&d, 50, 1); /* another gap has a time of its own */
	make_due(&d);
	d.now_ns += ANSWER_NS / 2;
	must_ask(&d, 0, 7, 39);
	must_ask(&d, 0, 39, 50);
	must_not_ask(&d);
	d.now_ns = 10 + ANSWER_NS;
	must_ask(&d, 1, 2, 6);
	must_not_ask(&d);
	d.now_ns = 10 + ANSWER_NS + SPACE + ANSWER_NS / 2;
	must_ask(&d, 1, 7, 39);
	must_ask(&d, 1, 39, 50);
	cr_assert(reply(&d, 1, 39, 11));
	d.now_ns = 10 + 2ull * ANSWER_NS;
	must_ask(&d, 0, 2, 6); /* the last attempt, for twice as long */
	d.now_ns = 10 + 3ull * ANSWER_NS;
	must_ask(&d, 0, 7, 39);
	d.now_ns = 9 + 4ull * ANSWER_NS;
	must_not_ask(&d);
	assert_delivered(&d, 2, 0);
	d.now_ns++;
	must_not_ask(&d);
	assert_delivered(&d, 7, 4);
	cr_assert_eq(count_of(&d, TW_FH_rerequest_given_up), 1);
	d.now_ns += 2ull * ANSWER_NS;
	must_not_ask(&d);
	assert_delivered(&d, 51, 4 + 32);
	cr_assert_eq(count_of(&d, TW_FH_rerequest_given_up), 2);
	cr_assert_eq(tw_venue_arb_held(d.arb), 0);
	desk_close(&d);
}

/* A million messages, and no server: not so many times the patience that one piece has. */
Test(rerequest, silence_costs_a_gap_its_time_once, .timeout = 60)
{
	struct desk d;
	struct tw_request request;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 1000002, 1);
	make_due(&d);
	const uint64_t end_ns = d.now_ns + 5ull * ANSWER_NS;
	uint32_t outstanding = 0;
	while (d.bench.count < 2 && d.now_ns < end_ns) {
		while (next(&d, &request)) {
			outstanding++;
		}
		d.now_ns += SPACE;
	}
	assert_delivered(&d, 1000003, 1000000);
	cr_assert_eq(outstanding, ATTEMPTS * TW_REREQUEST_OUTSTANDING);
	cr_assert_eq(count_of(&d, TW_FH_rerequests_outstanding), TW_REREQUEST_OUTSTANDING);
	desk_close(&d);
}

/* The server's history begins in the gap: what it has is not given up with what it has not. */
Test(rerequest, what_a_server_still_has_is_delivered, .timeout = 60)
{
	enum { GONE = 100, END = 3000 };
	struct desk d;
	struct tw_request request;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, END, 1);
	make_due(&d);
	uint64_t end_ns = d.now_ns + 60ull * ANSWER_NS;
	while (tw_venue_arb_held(d.arb) > 0 && d.now_ns < end_ns) {
		while (next(&d, &request)) {
			if (request.first_seq >= GONE) {
				uint64_t n = request.end_seq - request.first_seq;
				cr_assert(reply(&d, request.server, request.first_seq,
						(uint16_t)(n < 20 ? n : 20)));
			}
		}
		d.now_ns += SPACE;
	}
	/* a piece that begins before its history gets no answer at all */
	uint64_t missing = count_of(&d, TW_FH_missing_messages);
	cr_assert_geq(missing, GONE - 2);
	cr_assert_lt(missing, GONE + 32);
	cr_assert_eq(d.bench.count, END - missing);
	desk_close(&d);
}

Test(rerequest, a_reply_is_refused_unless_it_is_what_was_asked_for, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 6, 1);
	cr_assert_not(reply(&d, 0, 2, 4), "nothing was asked for");
	cr_assert_not(tw_rerequest_listens(d.rr, d.now_ns));
	make_due(&d);
	must_ask(&d, 0, 2, 6);
	cr_assert(tw_rerequest_listens(d.rr, d.now_ns));
	cr_assert_not(reply(&d, SERVERS, 2, 4), "a stranger");
	cr_assert_not(reply(&d, 0, 2, 5), "more");
	cr_assert_not(reply(&d, 0, 1, 2), "from before it");
	cr_assert_not(reply(&d, 0, 2, 0), "a heartbeat");
	cr_assert_not(reply_of(&d, SERVER, "000010059C", 2, 4), "another session");
	cr_assert_not(reply_of(&d, SERVER, "000010059C", 1, 4), "which begins");
	put_mold("000010059B", 2, 4);
	const struct tw_packet cut = { .payload = tape.bytes,
				       .len_bytes = (uint32_t)tape.len - 1,
				       .src_addr = SERVER,
				       .src_port = 17000,
				       .line = TW_VENUE_LINES };
	cr_assert_not(tw_rerequest_reply(d.rr, d.arb, d.bench.feed, &cut, d.now_ns), "cut");
	cr_assert_eq(count_of(&d, TW_FH_rerequest_refused), 8);
	must_not_ask(&d); /* the request stands */
	cr_assert_eq(d.bench.count, 1);
	cr_assert(reply(&d, 1, 2, 4), "a server is a server");
	assert_delivered(&d, 7, 0);
	d.now_ns += ANSWER_NS;
	cr_assert_not(tw_rerequest_listens(d.rr, d.now_ns));
	desk_close(&d);
}

Test(rerequest, what_a_line_has_brought_is_not_asked_for_again, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 6, 1);
	hear(&d, 100, 1);
	make_due(&d);
	must_ask(&d, 0, 2, 6);
	must_ask(&d, 0, 7, 39);
	hear(&d, 2, 4);
	hear(&d, 39, 61); /* before it was asked for */
	must_not_ask(&d);
	d.now_ns += ANSWER_NS;
	must_ask(&d, 1, 7, 39);
	cr_assert_eq(count_of(&d, TW_FH_rerequest_timeouts), 1);
	cr_assert_not(reply(&d, 0, 2, 4), "late");
	cr_assert(reply(&d, 0, 7, 32), "late, and still wanted");
	assert_delivered(&d, 101, 0);
	desk_close(&d);
}

Test(rerequest, a_session_takes_its_requests_with_it, .timeout = 60)
{
	struct desk d;
	struct tw_request request;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 6, 1);
	make_due(&d);
	must_ask(&d, 0, 2, 6);
	hear_of(&d, "000010059C", 1, 1);
	hear_of(&d, "000010059C", 9, 1);
	cr_assert_not(reply_of(&d, SERVER, "000010059C", 2, 4), "asked of the other session");
	make_due(&d);
	cr_assert(tw_rerequest_next(d.rr, d.arb, d.bench.feed, d.now_ns, &request));
	cr_assert(request.first_seq == 2 && request.end_seq == 9);
	cr_assert_eq(memcmp(request.bytes, "000010059C", 10), 0);
	cr_assert(reply_of(&d, SERVER, "000010059C", 2, 7));
	cr_assert_eq(d.bench.count, 2 + 9);
	desk_close(&d);
}

/* A full store has no place for what is ahead of its turn, and gives the oldest gap up for the line. */
Test(rerequest, a_full_store_refuses_what_is_ahead, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	hear(&d, 1, 1);
	hear(&d, 40, 1);
	for (uint64_t i = 0; i < STORE - 1; i++) {
		hear(&d, 80 + i, 1);
	}
	cr_assert_eq(tw_venue_arb_held(d.arb), STORE);
	make_due(&d);
	must_ask(&d, 0, 2, 34);
	must_ask(&d, 0, 34, 40);
	must_ask(&d, 0, 41, 73);
	must_ask(&d, 0, 73, 80);
	cr_assert_not(reply(&d, 0, 41, 32));
	cr_assert(reply(&d, 0, 2, 32), "this needs none");
	cr_assert(reply(&d, 0, 34, 6));
	cr_assert(reply(&d, 0, 73, 7), "there is one");
	d.now_ns += ANSWER_NS;
	must_ask(&d, 1, 41, 73);
	cr_assert(reply(&d, 1, 41, 32));
	assert_delivered(&d, 80 + STORE - 1, 0);
	desk_close(&d);
}
