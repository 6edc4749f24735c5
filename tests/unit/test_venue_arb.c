/* Two venue lines made one: every loss and order of a small session on both lines, waiting, giving up, the
 * bound of the store, sessions, and what a server may bring.
 *
 * MoldUDP64 packets of ITCH system events, one message each unless it says otherwise: the venue's number of
 * each comes back as exchange_seq. */
#include "config/config.h"
#include "feedhandler/venue_arb.h"
#include "tests/support/feed_bytes.h"

enum { EVENT_BYTES = 12, END_OF_SESSION = 0xffff, STORE = 8, WAIT_NS = 1000, A = 0, B = 1 };

#define BEGIN_NS UINT64_C(1577716200000000000)

struct scene {
	struct bench bench;
	struct tw_venue_arb *arb;
	uint64_t now_ns;
};

static void scene_open(struct scene *s, bool repair, uint32_t lines)
{
	bench_open(&s->bench, (struct tw_feed_conf){ .protocol = "itch50",
						     .mic = "XNAS",
						     .depths = { TW_DEPTH_ORDERS },
						     .max_orders = 64 });
	const struct tw_venue_arb_conf conf = {
		.lines = lines, .store_packets = STORE, .wait_ns = WAIT_NS, .repair = repair ? 4 : 0
	};
	struct tw_error err = { 0 };
	cr_assert_eq(tw_venue_arb_create(&s->arb, &conf, &err), TW_OK, "%s", err.text);
	s->now_ns = 1;
}

static void scene_close(struct scene *s)
{
	tw_venue_arb_destroy(s->arb);
	bench_close(&s->bench);
}

static void put_packet(struct tape *t, const char *session, uint64_t seq, uint16_t count)
{
	t->len = 0;
	put(t, session, 10);
	put_be(t, seq, 8);
	put_be(t, count, 2);
	for (uint16_t i = 0; count != END_OF_SESSION && i < count; i++) {
		put_be(t, EVENT_BYTES, 2);
		put(t, "S", 1);
		put_be(t, 0, 4);
		put_be(t, UINT64_C(34200000000000), 6);
		put(t, "Q", 1);
	}
}

/* From a block that is freed at once: what is held must be a copy. */
static struct tw_packet packet_of(const struct tape *t, size_t line, uint8_t **block)
{
	*block = malloc(t->len + 1);
	cr_assert_not_null(*block);
	memcpy(*block + 1, t->bytes, t->len);
	return (struct tw_packet){ .payload = *block + 1,
				   .len_bytes = (uint32_t)t->len,
				   .recv_ns = BEGIN_NS,
				   .line = (uint32_t)line };
}

static struct tape tape;

static void hear_of(struct scene *s, uint32_t line, const char *session, uint64_t seq,
		    uint16_t count)
{
	uint8_t *block;
	put_packet(&tape, session, seq, count);
	struct tw_packet packet = packet_of(&tape, line, &block);
	tw_venue_arb_input(s->arb, s->bench.feed, &packet, s->now_ns);
	free(block);
}

static void hear(struct scene *s, uint32_t line, uint64_t seq, uint16_t count)
{
	hear_of(s, line, "000010059B", seq, count);
}

static bool bring(struct scene *s, const char *session, uint64_t seq, uint16_t count,
		  uint64_t asked_first, uint64_t asked_end)
{
	uint8_t *block;
	put_packet(&tape, session, seq, count);
	struct tw_packet packet = packet_of(&tape, TW_VENUE_LINES, &block);
	bool taken = tw_venue_arb_repair(s->arb, s->bench.feed, &packet, asked_first, asked_end,
					 s->now_ns);
	free(block);
	return taken;
}

static void turn(struct scene *s, uint32_t empty_lines)
{
	tw_venue_arb_turn(s->arb, s->bench.feed, empty_lines, s->now_ns);
}

/* Time runs out and every line is found empty. */
static void time_out(struct scene *s)
{
	s->now_ns += WAIT_NS;
	turn(s, 3);
	turn(s, 3);
}

static uint64_t count(const struct scene *s, unsigned int index)
{
	return bench_counter(&s->bench, index);
}

/* The numbers delivered are exactly those of `mask` (bit n: number n + 1), each once, in order. */
static void assert_mask(const struct scene *s, uint32_t mask, const char *what)
{
	size_t at = 0;
	for (uint32_t n = 0; n < 32; n++) {
		if ((mask >> n & 1u) == 0) {
			continue;
		}
		cr_assert_lt(at, s->bench.count, "%s: number %u is not there", what, n + 1);
		const struct tw_msg_head *head = (const void *)s->bench.msgs[at].bytes;
		cr_assert_eq(head->exchange_seq, n + 1, "%s: message %zu has number %u", what, at,
			     head->exchange_seq);
		at++;
	}
	cr_assert_eq(s->bench.count, at, "%s: %zu messages, wanted %zu", what, s->bench.count, at);
}

/* Six packets on two lines, B two packets behind A: every set of losses on either line. */
Test(venue_arb, every_loss_on_two_lines, .timeout = 120)
{
	enum { PACKETS = 6, ALL = (1 << PACKETS) - 1, LAG = 2 };
	for (uint32_t masks = 0; masks < 1u << (2 * PACKETS); masks++) {
		uint32_t lost_a = masks & ALL, lost_b = masks >> PACKETS;
		char what[64];
		(void)snprintf(what, sizeof(what), "lost on A 0x%x, on B 0x%x", lost_a, lost_b);
		struct scene s;
		scene_open(&s, false, 2);
		hear(&s, A, 1, 0); /* both begin */
		for (uint32_t step = 0; step < PACKETS + LAG; step++) {
			if (step < PACKETS && (lost_a >> step & 1u) == 0) {
				hear(&s, A, step + 1, 1);
			}
			if (step >= LAG && (lost_b >> (step - LAG) & 1u) == 0) {
				hear(&s, B, step - LAG + 1, 1);
			}
			s.now_ns += WAIT_NS / 8; /* nothing is overdue before B has caught up */
			turn(&s, 0);
		}
		time_out(&s);
		while (tw_venue_arb_held(s.arb) > 0) {
			time_out(&s);
		}
		hear(&s, A, PACKETS + 1, 0); /* a heartbeat shows what is missing at the end */
		time_out(&s);
		uint32_t gone = lost_a & lost_b;
		assert_mask(&s, ALL & ~gone, what);
		cr_assert_eq(count(&s, TW_FH_missing_messages), (uint64_t)__builtin_popcount(gone),
			     "%s", what);
		cr_assert_eq(tw_venue_arb_held(s.arb), 0, "%s", what);
		scene_close(&s);
	}
}

static void permute(uint32_t *order, uint32_t n, uint32_t at, uint32_t *runs)
{
	if (at < n) {
		for (uint32_t i = at; i < n; i++) {
			uint32_t swap = order[at];
			order[at] = order[i];
			order[i] = swap;
			permute(order, n, at + 1, runs);
			order[i] = order[at];
			order[at] = swap;
		}
		return;
	}
	struct scene s;
	scene_open(&s, false, 1);
	hear(&s, A, 1, 0);
	for (uint32_t i = 0; i < n; i++) {
		hear(&s, A, 2 * order[i] + 1, 2);
	}
	assert_mask(&s, (1u << 2 * n) - 1, "order");
	cr_assert_eq(count(&s, TW_FH_gaps), 0);
	cr_assert_eq(count(&s, TW_FH_duplicate_messages), 0);
	scene_close(&s);
	(*runs)++;
}

Test(venue_arb, every_order_of_one_line, .timeout = 60)
{
	uint32_t order[] = { 0, 1, 2, 3, 4 };
	uint32_t runs = 0;
	permute(order, 5, 0, &runs);
	cr_assert_eq(runs, 120);
}

Test(venue_arb, lines_may_cut_the_messages_differently, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 2);
	hear(&s, A, 6, 3); /* 3 to 5 are missing on A */
	hear(&s, B, 1, 4);
	hear(&s, B, 5, 3);
	assert_mask(&s, 0xff, "cut");
	cr_assert_eq(count(&s, TW_FH_gaps), 0);
	cr_assert_eq(count(&s, TW_FH_duplicate_messages), 4);
	scene_close(&s);
}

Test(venue_arb, a_gap_waits_for_its_time_and_for_a_line_with_a_backlog, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 1);
	hear(&s, B, 1, 1);
	hear(&s, A, 3, 1);
	s.now_ns += WAIT_NS - 1;
	turn(&s, 3);
	turn(&s, 3);
	cr_assert_eq(count(&s, TW_FH_gaps), 0, "before its time");
	s.now_ns += 1000 * WAIT_NS; /* the thread stood still */
	turn(&s, 3);
	cr_assert_eq(count(&s, TW_FH_gaps), 0, "a poll from before says nothing");
	turn(&s, 1); /* B still has packets */
	turn(&s, 1);
	cr_assert_eq(count(&s, TW_FH_gaps), 0, "B may bring it");
	hear(&s, B, 2, 1);
	assert_mask(&s, 0x7, "the backlog had it");
	cr_assert_eq(count(&s, TW_FH_gaps), 0);

	hear(&s, A, 5, 1);
	s.now_ns += WAIT_NS;
	turn(&s, 0);
	hear(&s, B, 5, 1); /* has passed it too */
	turn(&s, 0);
	assert_mask(&s, 0x17, "both have passed it");
	cr_assert_eq(count(&s, TW_FH_missing_messages), 1);
	hear(&s, B, 4, 1); /* too late */
	assert_mask(&s, 0x17, "late");
	scene_close(&s);
}

Test(venue_arb, each_gap_has_its_own_time, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 1);
	hear(&s, A, 1, 1);
	hear(&s, A, 3, 1);
	s.now_ns += WAIT_NS / 2;
	hear(&s, A, 5, 1);
	s.now_ns += WAIT_NS / 2;
	turn(&s, 1);
	turn(&s, 1);
	assert_mask(&s, 0x5, "the first one alone");
	turn(&s, 1);
	turn(&s, 1);
	assert_mask(&s, 0x5, "the second one is younger");
	s.now_ns += WAIT_NS / 2;
	turn(&s, 1);
	turn(&s, 1);
	assert_mask(&s, 0x15, "now it is not");
	scene_close(&s);
}

Test(venue_arb, the_store_is_bounded, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 1);
	for (uint64_t seq = 3; seq < 3 + STORE; seq++) {
		hear(&s, A, seq, 1);
		hear(&s, B, seq, 1); /* takes no room */
		hear(&s, A, seq + 1, 0);
	}
	cr_assert_eq(tw_venue_arb_held(s.arb), STORE);
	cr_assert_eq(s.bench.count, 1);
	hear(&s, A, 3 + STORE, 1);
	cr_assert_eq(tw_venue_arb_held(s.arb), 0);
	cr_assert_eq(s.bench.count, 1 + STORE + 1);
	cr_assert_eq(count(&s, TW_FH_missing_messages), 1);
	cr_assert_gt(count(&s, TW_FH_store_full), 0);

	/* full of single packets with gaps: one goes for each that comes, whatever side of them it is on */
	uint64_t seq = 3 + STORE + 2;
	for (int i = 0; i < 3 * STORE; i++, seq += 2) {
		hear(&s, A, seq, 1);
		cr_assert_leq(tw_venue_arb_held(s.arb), STORE);
	}
	cr_assert_eq(tw_venue_arb_held(s.arb), STORE);
	size_t before = s.bench.count;
	hear(&s, B, seq - 2 * STORE - 1,
	     1); /* in front of all: no copy is needed, it comes first */
	cr_assert_eq(s.bench.count, before + 2, "it, and the one behind it");
	scene_close(&s);
}

Test(venue_arb, a_malformed_packet_is_not_held, .timeout = 60)
{
	struct scene s;
	uint8_t *block;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 1);
	put_packet(&tape, "000010059B", 3, 1);
	tape.bytes[19] = 2; /* says two messages */
	struct tw_packet packet = packet_of(&tape, A, &block);
	tw_venue_arb_input(s.arb, s.bench.feed, &packet, s.now_ns);
	free(block);
	cr_assert_eq(tw_venue_arb_held(s.arb), 0);
	cr_assert_eq(count(&s, TW_FH_malformed_packets), 1);
	cr_assert_eq(count(&s, TW_FH_gaps), 0);
	hear(&s, B, 3, 1);
	hear(&s, B, 2, 1);
	assert_mask(&s, 0x7, "the good ones");
	scene_close(&s);
}

Test(venue_arb, a_new_session_lets_the_old_one_go, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 2);
	hear(&s, A, 4, 1);
	hear(&s, A, 9, 0);                  /* what comes next; also held */
	hear_of(&s, A, "000010059C", 5, 1); /* foreign: does not begin */
	cr_assert_eq(s.bench.count, 2);
	hear_of(&s, A, "000010059C", 1, 1);
	cr_assert_eq(s.bench.count, 2 + 1 + 1);
	cr_assert_eq(count(&s, TW_FH_session_changes), 1);
	cr_assert_eq(count(&s, TW_FH_missing_messages), 1 + 4);
	hear_of(&s, B, "000010059C", 3, 1);
	hear(&s, B, 3, 1); /* a straggler */
	hear_of(&s, B, "000010059C", 2, 1);
	cr_assert_eq(s.bench.count, 6);
	cr_assert_eq(count(&s, TW_FH_foreign_packets), 2);
	scene_close(&s);
}

Test(venue_arb, the_end_of_a_session_is_held_too, .timeout = 60)
{
	struct scene s;
	scene_open(&s, false, 2);
	hear(&s, A, 1, 1);
	hear(&s, A, 3, END_OF_SESSION);
	hear(&s, B, 3, END_OF_SESSION);
	cr_assert_eq(tw_venue_arb_held(s.arb), 1);
	cr_assert_eq(count(&s, TW_FH_ended_sessions), 0);
	hear(&s, B, 2, 1);
	assert_mask(&s, 0x3, "all");
	cr_assert_eq(count(&s, TW_FH_ended_sessions), 1);
	cr_assert_eq(count(&s, TW_FH_gaps), 0);
	scene_close(&s);

	scene_open(&s, false, 1);
	hear(&s, A, 1, 1);
	hear(&s, A, 3, 2);
	hear(&s, A, 5, END_OF_SESSION); /* where what is held ends too */
	cr_assert_eq(tw_venue_arb_held(s.arb), 2);
	hear(&s, A, 2, 1);
	assert_mask(&s, 0xf, "all");
	cr_assert_eq(count(&s, TW_FH_ended_sessions), 1);
	scene_close(&s);
}

/* What is due and was not asked for: first_seq, end_seq of each, then 0. */
static void assert_asked(struct scene *s, const uint64_t *wanted)
{
	uint64_t first, end;
	for (; *wanted != 0; wanted += 2) {
		cr_assert(tw_venue_gaps_ask(tw_venue_arb_gaps(s->arb), 100, &first, &end));
		cr_assert_eq(first, wanted[0], "%lu", (unsigned long)first);
		cr_assert_eq(end, wanted[1], "%lu", (unsigned long)end);
	}
	cr_assert_not(tw_venue_gaps_ask(tw_venue_arb_gaps(s->arb), 100, &first, &end));
}

Test(venue_arb, what_was_asked_for_is_taken_and_nothing_else, .timeout = 60)
{
	static const char *const ours = "000010059B";
	struct scene s;
	scene_open(&s, true, 2);
	hear(&s, A, 1, 1);
	cr_assert_not(bring(&s, ours, 2, 1, 1, 100), "nothing is missing");
	hear(&s, A, 6, 1);
	assert_asked(&s, (const uint64_t[]){ 0 });
	time_out(&s);
	assert_asked(&s, (const uint64_t[]){ 2, 6, 0 });
	cr_assert_eq(count(&s, TW_FH_gaps), 0, "with repair nothing is given up by time");
	cr_assert_not(bring(&s, "000010059C", 1, 5, 2, 6), "another session");
	cr_assert_not(bring(&s, ours, 2, 5, 2, 6), "more than was asked for");
	cr_assert_not(bring(&s, ours, 1, 2, 2, 6), "from before what was asked for");
	cr_assert_not(bring(&s, ours, 6, 1, 2, 8), "nothing new");
	cr_assert_not(bring(&s, ours, 2, 0, 2, 6), "a heartbeat");
	cr_assert_not(bring(&s, ours, 6, END_OF_SESSION, 2, 6), "an end");
	cr_assert_eq(s.bench.count, 1);
	cr_assert(bring(&s, ours, 4, 1, 2, 6), "in the middle: it is held");
	cr_assert_not(bring(&s, ours, 4, 1, 2, 6), "it is there");
	cr_assert_eq(tw_venue_arb_held(s.arb), 2);
	cr_assert(bring(&s, ours, 2, 1, 2, 6));
	assert_mask(&s, 0x3, "the first part");
	cr_assert(bring(&s, ours, 2, 3, 2, 6), "with overlaps");
	assert_mask(&s, 0xf, "but for the last");
	cr_assert(bring(&s, ours, 5, 1, 2, 6));
	assert_mask(&s, 0x3f, "all");
	cr_assert_eq(count(&s, TW_FH_gaps), 0);
	scene_close(&s);
}

Test(venue_arb, a_repair_that_lies_is_refused, .timeout = 60)
{
	struct scene s;
	uint8_t *block;
	scene_open(&s, true, 1);
	hear(&s, A, 1, 1);
	hear(&s, A, 4, 1);
	for (uint64_t first = 2; first < 4; first++) { /* in turn, and ahead of it */
		put_packet(&tape, "000010059B", first, 1);
		tape.bytes[21]++; /* its block ends behind the packet */
		struct tw_packet packet = packet_of(&tape, TW_VENUE_LINES, &block);
		cr_assert_not(tw_venue_arb_repair(s.arb, s.bench.feed, &packet, 2, 4, s.now_ns));
		free(block);
	}
	assert_mask(&s, 0x1, "nothing of it");
	cr_assert_eq(tw_venue_arb_held(s.arb), 1);
	scene_close(&s);
}

Test(venue_arb, a_lost_range_goes_when_its_turn_comes, .timeout = 60)
{
	struct scene s;
	scene_open(&s, true, 1);
	hear(&s, A, 1, 1);
	hear(&s, A, 3, 1);
	hear(&s, A, 6, 1);
	hear(&s, A, 8, 1);
	time_out(&s);
	assert_asked(&s, (const uint64_t[]){ 2, 8, 0 });
	tw_venue_arb_lose(s.arb, s.bench.feed, 4, 6, false);
	assert_mask(&s, 0x1, "the oldest may still come");
	tw_venue_gaps_reopen(tw_venue_arb_gaps(s.arb), 2, 8);
	assert_asked(&s, (const uint64_t[]){ 2, 3, 7, 8, 0 });
	cr_assert(bring(&s, "000010059B", 2, 1, 2, 3));
	assert_mask(&s, 0x27, "up to the gap that is open");
	cr_assert_eq(count(&s, TW_FH_missing_messages), 2);
	hear(&s, A, 7, 1); /* late */
	assert_mask(&s, 0xe7, "all but what was lost");
	cr_assert_eq(tw_venue_arb_held(s.arb), 0);
	scene_close(&s);
}

Test(venue_arb, gaps_shrink_and_split_as_packets_come, .timeout = 60)
{
	struct scene s;
	scene_open(&s, true, 2);
	hear(&s, A, 1, 1);
	hear(&s, A, 10, 1);
	hear(&s, A, 13, 0); /* a heartbeat ends a gap too */
	hear(&s, B, 4, 2);
	hear(&s, B, 8, 3); /* overlaps what is held */
	time_out(&s);
	uint64_t first, end;
	struct tw_venue_gaps *gaps = tw_venue_arb_gaps(s.arb);
	cr_assert_eq(gaps->count, 3);
	cr_assert_eq(gaps->due, 3);
	cr_assert(tw_venue_gaps_ask(gaps, 6, &first, &end));
	cr_assert(first == 2 && end == 8, "two in one: %lu", (unsigned long)end);
	cr_assert(tw_venue_gaps_ask(gaps, 1, &first, &end));
	cr_assert(first == 11 && end == 12, "a piece");
	tw_venue_gaps_reopen(gaps, 11, 12);
	cr_assert_eq(gaps->count, 3, "made one again");
	cr_assert(tw_venue_gaps_ask(gaps, 9, &first, &end));
	cr_assert(first == 11 && end == 13);
	tw_venue_gaps_lose(gaps, 11, 13, true);
	tw_venue_arb_lose(s.arb, s.bench.feed, 2, 8, true);
	assert_mask(&s, 1u | 3u << 3 | 7u << 7, "what was held");
	cr_assert_eq(count(&s, TW_FH_missing_messages), 2 + 2 + 2);
	scene_close(&s);
}

/* IEX-TP has the same stage in front of it. */
Test(venue_arb, iextp, .timeout = 60)
{
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	const struct tw_venue_arb_conf conf = { .lines = 2,
						.store_packets = 4,
						.wait_ns = WAIT_NS };
	struct tw_venue_arb *arb;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_venue_arb_create(&arb, &conf, &err), TW_OK, "%s", err.text);
	static const uint64_t seqs[] = { 1, 3, 5, 4, 2 };
	static const uint32_t held[] = { 0, 1, 2, 3, 0 };
	for (size_t i = 0; i < sizeof(seqs) / sizeof(seqs[0]); i++) {
		static struct tape blocks;
		uint8_t *block;
		blocks.len = 0;
		tape.len = 0;
		put_le(&blocks, 1, 2);
		put(&blocks, "?", 1); /* of no known type: counted */
		put_iextp(&tape,
			  (struct iextp_hdr){ .protocol = (uint16_t)b.feed->protocol->transport_id,
					      .channel = 1,
					      .session = 1,
					      .count = 1,
					      .seq = seqs[i],
					      .send_ns = BEGIN_NS + seqs[i] },
			  &blocks);
		struct tw_packet packet = packet_of(&tape, i % 2, &block);
		tw_venue_arb_input(arb, b.feed, &packet, 1);
		free(block);
		cr_assert_eq(tw_venue_arb_held(arb), held[i], "after packet %zu", i);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_venue_messages), 5);
	cr_assert_eq(bench_counter(&b, TW_FH_gaps), 0);
	tw_venue_arb_destroy(arb);
	bench_close(&b);
}
