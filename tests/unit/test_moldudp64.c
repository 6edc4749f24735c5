/* MoldUDP64: framing, numbering, heartbeats, end of session, duplicates, gaps, sessions.
 *
 * Messages are ITCH system events (12 bytes), because they need no instrument: the venue's number of each
 * comes back as exchange_seq. */
#include "config/config.h"
#include "tests/support/feed_bytes.h"

enum { EVENT_BYTES = 12, END_OF_SESSION = 0xffff };

#define SECOND_NS UINT64_C(1000000000)
#define BEGIN_NS  UINT64_C(1577716200000000000) /* 09:30 in New York */

static uint64_t now_ns = BEGIN_NS; /* of the next packet */

static void put_mold(struct tape *t, const char *session, uint64_t seq, uint16_t count)
{
	put(t, session, 10);
	put_be(t, seq, 8);
	put_be(t, count, 2);
}

static void put_event(struct tape *t)
{
	put_be(t, EVENT_BYTES, 2);
	put(t, "S", 1);
	put_be(t, 0, 4);
	put_be(t, UINT64_C(34200000000000), 6);
	put(t, "Q", 1);
}

/* In a block of exactly its size, so that ASan sees one byte too far. */
static void deliver(struct bench *b, const struct tape *t)
{
	uint8_t *block = malloc(t->len + 1);
	cr_assert_not_null(block);
	if (t->len > 0) {
		memcpy(block + 1, t->bytes, t->len);
	}
	struct tw_packet packet = { .payload = block + 1,
				    .len_bytes = (uint32_t)t->len,
				    .recv_ns = now_ns };
	tw_feed_packet(b->feed, &packet);
	free(block);
}

/* `count` messages, or a heartbeat (0), or the end of the session. */
static void send_to(struct bench *b, const char *session, uint64_t seq, uint16_t count)
{
	struct tape packet = { .len = 0 };
	put_mold(&packet, session, seq, count);
	for (uint16_t i = 0; count != END_OF_SESSION && i < count; i++) {
		put_event(&packet);
	}
	deliver(b, &packet);
}

static void send(struct bench *b, uint64_t seq, uint16_t count)
{
	send_to(b, "000010059B", seq, count);
}

static void open_feed(struct bench *b)
{
	bench_open(b, (struct tw_feed_conf){ .protocol = "itch50",
					     .mic = "XNAS",
					     .depths = { TW_DEPTH_ORDERS },
					     .max_orders = 64 });
	now_ns = BEGIN_NS;
}

/* The venue numbers of all messages delivered so far are exactly first .. end - 1. */
static void assert_seqs(const struct bench *b, uint32_t first, uint32_t end)
{
	cr_assert_eq(b->count, end - first, "%zu messages", b->count);
	for (size_t i = 0; i < b->count; i++) {
		const struct tw_msg_head *head = bench_msg(b, i, TW_MSG_SESSION_EVENT);
		cr_assert_eq(head->exchange_seq, first + i);
	}
}

static void assert_counts(const struct bench *b, uint64_t duplicates, uint64_t gaps,
			  uint64_t missing)
{
	cr_assert_eq(bench_counter(b, TW_FH_duplicate_messages), duplicates);
	cr_assert_eq(bench_counter(b, TW_FH_gaps), gaps);
	cr_assert_eq(bench_counter(b, TW_FH_missing_messages), missing);
}

static uint64_t malformed(const struct bench *b)
{
	return bench_counter(b, TW_FH_malformed_packets);
}

static uint64_t foreign(const struct bench *b)
{
	return bench_counter(b, TW_FH_foreign_packets);
}

Test(moldudp64, in_order_from_any_start, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 14757701, 3);
	send(&b, 14757704, 38);
	send(&b, 14757742, 1);
	assert_seqs(&b, 14757701, 14757743);
	assert_counts(&b, 0, 0, 0);
	bench_close(&b);
}

Test(moldudp64, two_lines_cut_differently, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 1, 4); /* line A */
	send(&b, 1, 3); /* line B: all of it known */
	send(&b, 4, 4); /* half of it known */
	send(&b, 5, 3);
	send(&b, 8, 1);
	assert_seqs(&b, 1, 9);
	assert_counts(&b, 3 + 1 + 3, 0, 0);
	bench_close(&b);
}

Test(moldudp64, gaps_by_data_and_by_heartbeat, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 1, 2);
	send(&b, 3, 0); /* heartbeat with the next number */
	assert_counts(&b, 0, 0, 0);
	send(&b, 10, 0); /* the loss of the last messages shows */
	assert_counts(&b, 0, 1, 7);
	send(&b, 10, 1);
	assert_counts(&b, 0, 1, 7);
	send(&b, 12, 1);
	assert_counts(&b, 0, 2, 8);
	send(&b, 4, 0); /* an old heartbeat moves nothing back */
	send(&b, 13, 1);
	assert_counts(&b, 0, 2, 8);
	cr_assert_eq(bench_counter(&b, TW_FH_heartbeats), 3);
	cr_assert_eq(b.count, 5);
	bench_close(&b);
}

Test(moldudp64, a_late_packet_is_not_delivered_twice, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 1, 1);
	send(&b, 5, 1);
	send(&b, 2, 3); /* after its gap was counted: passed over, order is kept */
	cr_assert_eq(b.count, 2);
	assert_counts(&b, 3, 1, 3);
	bench_close(&b);
}

/* More than go to the decoder at once, some or all of which came before. */
Test(moldudp64, packets_of_many_messages, .timeout = 60)
{
	enum { MANY = 3 * TW_FEED_RUN_MSGS + 5 };
	for (uint32_t known = 0; known <= MANY; known++) {
		struct bench b;
		open_feed(&b);
		send(&b, 1, (uint16_t)known);
		send(&b, 1, MANY);
		assert_seqs(&b, 1, MANY + 1);
		assert_counts(&b, known, 0, 0);
		cr_assert_eq(bench_counter(&b, TW_FH_venue_messages), MANY);
		bench_close(&b);
	}
}

Test(moldudp64, the_end_of_a_session, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 1, 2);
	send(&b, 5, END_OF_SESSION); /* with the next number, like a heartbeat */
	assert_counts(&b, 0, 1, 2);
	send(&b, 5, END_OF_SESSION); /* sent for a while */
	cr_assert_eq(bench_counter(&b, TW_FH_ended_sessions), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_heartbeats), 0);
	cr_assert_eq(malformed(&b), 0);
	assert_counts(&b, 0, 1, 2);
	/* whatever comes next is another session, from its message 1 on */
	send_to(&b, "000010059C", 3, 1);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);
	assert_counts(&b, 0, 2, 4);
	send_to(&b, "000010059C", 4, END_OF_SESSION);
	cr_assert_eq(bench_counter(&b, TW_FH_ended_sessions), 2);
	bench_close(&b);
}

Test(moldudp64, a_new_session_shows_its_beginning, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 500, 2);
	send_to(&b, "000010059C", 40, 1); /* not ours, and ours is alive */
	cr_assert_eq(foreign(&b), 1);
	send_to(&b, "000010059C", 1, 2);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);
	cr_assert_eq(b.count, 4);
	send(&b, 502, 1); /* a straggler of the one that was left */
	send(&b, 1, 1);
	cr_assert_eq(foreign(&b), 3);
	send_to(&b, "000010059C", 3, 1);
	cr_assert_eq(b.count, 5);
	assert_counts(&b, 0, 0, 0);
	bench_close(&b);
}

Test(moldudp64, a_silent_session_is_left, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 7, 1);
	now_ns += 3 * SECOND_NS - 1;
	send_to(&b, "000010059C", 40, 1);
	cr_assert_eq(foreign(&b), 1);
	now_ns += 1;
	send_to(&b, "000010059C", 41, 1); /* its first 40 are lost */
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);
	assert_counts(&b, 0, 1, 40);
	cr_assert_eq(b.count, 2);
	bench_close(&b);
}

Test(moldudp64, two_sessions_in_one_recording_do_not_alternate, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	for (uint64_t i = 0; i < 100; i++) {
		send(&b, 10 + i, 1);
		send_to(&b, "000010059C", 70 + i, 1);
		now_ns += SECOND_NS;
	}
	assert_seqs(&b, 10, 110);
	cr_assert_eq(foreign(&b), 100);
	assert_counts(&b, 0, 0, 0);
	bench_close(&b);
}

Test(moldudp64, another_recording_may_go_on_or_begin_anew, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 10, 2);
	b.feed->session->part(b.feed->session_state);
	send(&b, 12, 1); /* the same session goes on */
	assert_counts(&b, 0, 0, 0);
	send_to(&b, "000010059C", 1, 1);
	b.feed->session->part(b.feed->session_state);
	send(&b, 13, 1); /* even one that was left */
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 2);
	cr_assert_eq(foreign(&b), 0);
	bench_close(&b);
}

/* Nobody numbers from 0: re-wrapped captures do, in every packet. */
Test(moldudp64, packets_without_numbers, .timeout = 60)
{
	static const char zeros[10] = "";
	struct bench b;
	open_feed(&b);
	for (unsigned int i = 0; i < 5; i++) {
		send_to(&b, zeros, 0, 2);
	}
	send_to(&b, zeros, 0, 0);
	cr_assert_eq(b.count, 10);
	for (size_t i = 0; i < b.count; i++) {
		const struct tw_msg_head *head = bench_msg(&b, i, TW_MSG_SESSION_EVENT);
		cr_assert_eq(head->exchange_seq, 0);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_unsequenced_packets), 5);
	cr_assert_eq(bench_counter(&b, TW_FH_heartbeats), 1);
	assert_counts(&b, 0, 0, 0);
	/* and they say nothing of the session that has numbers */
	send(&b, 100, 1);
	send_to(&b, zeros, 0, 1);
	send(&b, 101, 1);
	assert_counts(&b, 0, 0, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 0);
	bench_close(&b);
}

/* Of a packet whose blocks do not fill it exactly nothing is used, and the next one shows the gap. */
Test(moldudp64, packets_that_lie, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	send(&b, 1, 1);
	struct tape whole = { .len = 0 };
	put_mold(&whole, "000010059B", 2, 3);
	for (unsigned int i = 0; i < 3; i++) {
		put_event(&whole);
	}
	uint64_t bad = 0;
	for (size_t len = 0; len < whole.len; len++) { /* cut anywhere */
		struct tape cut = whole;
		cut.len = len;
		deliver(&b, &cut);
		cr_assert_eq(malformed(&b), ++bad, "%zu bytes", len);
	}
	struct tape longer = whole;
	put(&longer, "x", 1); /* one byte too many */
	deliver(&b, &longer);
	longer = whole;
	longer.bytes[20 + 14] = 1; /* a length past the end */
	deliver(&b, &longer);
	longer = whole;
	longer.bytes[19] =
		4; /* more messages than there are: as a request for retransmission has */
	deliver(&b, &longer);
	longer = whole;
	longer.bytes[19] = 0; /* a heartbeat carries nothing */
	deliver(&b, &longer);
	longer = whole;
	longer.bytes[10] = 0x80; /* no number that a session could reach */
	deliver(&b, &longer);
	cr_assert_eq(malformed(&b), bad + 5);
	cr_assert_eq(b.count, 1);
	assert_counts(&b, 0, 0, 0);
	deliver(&b, &whole);
	assert_seqs(&b, 1, 5);
	send(&b, 6, 1);
	assert_counts(&b, 0, 1, 1);
	bench_close(&b);
}

Test(moldudp64, messages_of_no_bytes_have_numbers_too, .timeout = 60)
{
	struct bench b;
	open_feed(&b);
	struct tape packet = { .len = 0 };
	put_mold(&packet, "000010059B", 5, 3);
	put_be(&packet, 0, 2);
	put_event(&packet);
	put_be(&packet, 0, 2);
	deliver(&b, &packet);
	send(&b, 8, 1);
	cr_assert_eq(b.count, 2);
	cr_assert_eq(bench_counter(&b, TW_FH_venue_messages), 4);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_messages), 2);
	assert_counts(&b, 0, 0, 0);
	const struct tw_msg_head *head = bench_msg(&b, 0, TW_MSG_SESSION_EVENT);
	cr_assert_eq(head->exchange_seq, 6);
	bench_close(&b);
}
