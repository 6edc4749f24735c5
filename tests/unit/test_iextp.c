/* IEX-TP: framing, numbering, heartbeats, duplicates, gaps, session changes.
 *
 * Messages are TOPS system events (10 bytes), because they need no instrument: the venue's number of
 * each comes back as exchange_seq. */
#include "tests/support/feed_bytes.h"

enum { TOPS16 = 0x8003, EVENT_BYTES = 10 };

static void put_events(struct tape *blocks, unsigned int count)
{
	static const uint8_t event[EVENT_BYTES] = { 'S', 'R', 1 };
	for (unsigned int i = 0; i < count; i++) {
		put_block(blocks, event, sizeof(event));
	}
}

static struct iextp_hdr hdr(uint64_t seq, uint16_t count)
{
	return (struct iextp_hdr){ .protocol = TOPS16,
				   .channel = 1,
				   .session = 100,
				   .count = count,
				   .seq = seq,
				   .send_ns = 1000 + seq };
}

/* In a block of exactly its size, so that ASan sees one byte too far. */
static void deliver(struct bench *b, const struct tape *t)
{
	uint8_t *block = malloc(t->len + 1);
	cr_assert_not_null(block);
	memcpy(block + 1, t->bytes, t->len);
	struct tw_packet packet = { .payload = block + 1,
				    .len_bytes = (uint32_t)t->len,
				    .recv_ns = 5 };
	tw_feed_packet(b->feed, &packet);
	free(block);
}

static void send_events(struct bench *b, struct iextp_hdr h)
{
	struct tape blocks = { .len = 0 };
	struct tape packet = { .len = 0 };
	put_events(&blocks, h.count);
	put_iextp(&packet, h, &blocks);
	deliver(b, &packet);
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

Test(iextp, in_order_from_any_start, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(1000, 3));
	send_events(&b, hdr(1003, 52));
	send_events(&b, hdr(1055, 1));
	assert_seqs(&b, 1000, 1056);
	assert_counts(&b, 0, 0, 0);
	cr_assert_eq(bench_counter(&b, TW_FH_venue_messages), 56);
	bench_close(&b);
}

Test(iextp, two_lines_cut_differently, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(1, 4)); /* line A */
	send_events(&b, hdr(1, 3)); /* line B: all of it known */
	send_events(&b, hdr(4, 4)); /* half of it known */
	send_events(&b, hdr(5, 3));
	send_events(&b, hdr(8, 1));
	assert_seqs(&b, 1, 9);
	assert_counts(&b, 3 + 1 + 3, 0, 0);
	bench_close(&b);
}

Test(iextp, gaps_by_data_and_by_heartbeat, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(1, 2));
	send_events(&b, hdr(3, 0)); /* heartbeat with the next number */
	assert_counts(&b, 0, 0, 0);
	send_events(&b, hdr(10, 0)); /* the loss of the last messages shows */
	assert_counts(&b, 0, 1, 7);
	send_events(&b, hdr(10, 1));
	assert_counts(&b, 0, 1, 7);
	send_events(&b, hdr(12, 1));
	assert_counts(&b, 0, 2, 8);
	send_events(&b, hdr(4, 0)); /* an old heartbeat moves nothing back */
	send_events(&b, hdr(13, 1));
	assert_counts(&b, 0, 2, 8);
	cr_assert_eq(bench_counter(&b, TW_FH_heartbeats), 3);
	cr_assert_eq(b.count, 5);
	bench_close(&b);
}

Test(iextp, a_late_packet_is_not_delivered_twice, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(1, 1));
	send_events(&b, hdr(5, 1));
	send_events(&b, hdr(2, 3)); /* after its gap was counted: passed over, order is kept */
	cr_assert_eq(b.count, 2);
	assert_counts(&b, 3, 1, 3);
	bench_close(&b);
}

Test(iextp, a_new_session_starts_at_one, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(500, 2));
	struct iextp_hdr next = hdr(1, 2);
	next.session = 101;
	next.send_ns = 9000;
	send_events(&b, next);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);
	assert_counts(&b, 0, 0, 0);
	cr_assert_eq(b.count, 4);

	send_events(&b, hdr(502, 1)); /* a straggler of the old one, sent before */
	cr_assert_eq(b.count, 4);
	cr_assert_eq(bench_counter(&b, TW_FH_foreign_packets), 1);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);

	next.session = 102; /* the next one, whose first messages were lost */
	next.send_ns = 9001;
	next.seq = 4;
	send_events(&b, next);
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 2);
	assert_counts(&b, 0, 1, 3);
	bench_close(&b);
}

/* The first sight of a symbol in a new session defines it again. */
Test(iextp, a_new_session_defines_again, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	struct tape msg = { .len = 0 };
	put_hex(&msg, "4f 4e ac63c02096866d14 5a49455854202020");
	for (uint32_t session = 100; session < 102; session++) {
		struct tape blocks = { .len = 0 };
		struct tape packet = { .len = 0 };
		put_block(&blocks, msg.bytes, msg.len);
		put_block(&blocks, msg.bytes, msg.len);
		struct iextp_hdr h = hdr(1, 2);
		h.session = session;
		h.send_ns = session;
		put_iextp(&packet, h, &blocks);
		deliver(&b, &packet);
	}
	cr_assert_eq(b.count, 6);
	for (size_t i = 0; i < 6; i += 3) {
		(void)bench_msg(&b, i, TW_MSG_INSTRUMENT_DEFINITION);
		(void)bench_msg(&b, i + 1, TW_MSG_TRADING_STATUS);
		(void)bench_msg(&b, i + 2, TW_MSG_TRADING_STATUS);
	}
	bench_close(&b);
}

Test(iextp, what_is_not_ours_is_foreign, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	send_events(&b, hdr(1, 1));
	struct iextp_hdr h = hdr(2, 1);
	h.protocol = 0x8004; /* DEEP 1.0 */
	send_events(&b, h);
	h = hdr(2, 1);
	h.channel = 2;
	send_events(&b, h);
	struct tape t = { .len = 0 };
	put_iextp(&t, hdr(2, 0), NULL);
	t.bytes[0] = 2; /* version */
	deliver(&b, &t);
	t.len = 3; /* not even the protocol */
	t.bytes[0] = 1;
	deliver(&b, &t);
	t.len = 0;
	deliver(&b, &t);
	cr_assert_eq(bench_counter(&b, TW_FH_foreign_packets), 5);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_packets), 0);
	send_events(&b, hdr(2, 1));
	assert_seqs(&b, 1, 3);
	bench_close(&b);
}

Test(iextp, framing_that_does_not_hold_gives_nothing, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	struct tape blocks = { .len = 0 };
	struct tape whole = { .len = 0 };
	put_events(&blocks, 3);
	put_iextp(&whole, hdr(1, 3), &blocks);
	uint64_t malformed = 0;
	for (size_t len = 4; len < whole.len; len++) { /* cut short anywhere */
		struct tape cut = { .len = 0 };
		put(&cut, whole.bytes, len);
		deliver(&b, &cut);
		cr_assert_eq(bench_counter(&b, TW_FH_malformed_packets), ++malformed, "cut at %zu",
			     len);
	}
	static const struct {
		size_t at;
		uint8_t value;
		const char *what;
	} faults[] = {
		{ 12, 37, "payload longer than the packet" },
		{ 12, 35, "payload ends inside the last block" },
		{ 12, 0, "no payload for three blocks" },
		{ 14, 2, "fewer messages than blocks" },
		{ 14, 4, "more messages than blocks" },
		{ 14, 0, "a heartbeat with payload" },
		{ 40, 9, "a block too short" },
		{ 40, 11, "a block too long" },
		{ 41, 0xff, "a block past the packet's end" },
		{ 31, 0x80, "a negative number" },
		{ 39, 0x80, "a negative time" },
	};
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		struct tape bad = whole;
		bad.bytes[faults[i].at] = faults[i].value;
		deliver(&b, &bad);
		cr_assert_eq(bench_counter(&b, TW_FH_malformed_packets), ++malformed, "%s",
			     faults[i].what);
	}
	cr_assert_eq(b.count, 0);
	assert_counts(&b, 0, 0, 0);
	put_le(&whole, 0, 6); /* bytes after the payload are padding */
	deliver(&b, &whole);
	assert_seqs(&b, 1, 4);
	bench_close(&b);
}
