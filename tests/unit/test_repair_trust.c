/* The repair ladder: servers that fail in every way, asking again, and what then becomes of a gap. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/repair_bed.h"

/* Datagrams 0 to 3 of which both lines bring the first and the last. */
static void lose_two(struct bed *bed)
{
	uint32_t first = bed->count;

	bed_send(bed, 3);
	bed_send(bed, 2);
	bed_send(bed, 1);
	bed_send(bed, 4);
	bed_give_both(bed, first);
	bed_give_both(bed, first + 3);
}

static struct bed *bed_of(uint32_t servers)
{
	struct bed *bed = bed_draft();

	bed->conf.servers = servers;
	bed_open(bed);
	for (uint32_t i = 0; i < servers; i++) {
		tw_repair_server(bed->repair, i, true, bed->now_ns);
	}
	return bed;
}

/* Until the next read; fails where none comes within `ns`. */
static void until_read(struct bed *bed, uint64_t ns)
{
	uint64_t end_ns = bed->now_ns + ns;

	while (bed_poll(bed) == 0) {
		bed_pass(bed, RETRY_NS / 10);
		bed_idle(bed);
		cr_assert_leq(bed->now_ns, end_ns, "nothing is asked for");
	}
}

/* --- again ----------------------------------------------------------------------------------- */

Test(repair, backs_off_goes_round_the_servers_and_ends, .timeout = 60)
{
	struct bed *bed = bed_of(3);
	uint64_t back_off_ns = RETRY_NS;

	lose_two(bed);
	for (uint32_t attempt = 0; attempt < bed->conf.attempts_max; attempt++) {
		cr_assert_eq(bed_poll(bed), 1, "attempt %u", attempt);
		cr_expect_eq(bed->reads[0].server, attempt % 3);
		bed_reply(bed, bed->reads[0].id, TW_REPAIR_BUSY);
		bed_pass(bed, back_off_ns - 1);
		bed_idle(bed);
		cr_expect_eq(bed_poll(bed), 0);
		cr_expect_eq(bed->ledger.lost_msgs, 0);
		bed_pass(bed, 1);
		back_off_ns = 2 * back_off_ns;
	}
	cr_expect_eq(bed_poll(bed), 0);
	cr_expect_eq(bed->ledger.lost_msgs, 3);
	struct tw_repair_stats stats = bed_stats(bed);
	cr_expect_eq(stats.lost_msgs, 3);
	cr_expect_eq(stats.busy, 4);
	cr_expect_eq(stats.retries, 3);
	bed_free(bed);
}

Test(repair, not_again_before_a_round_trip, .timeout = 60)
{
	struct bed *bed = bed_of(1);
	uint64_t trip_ns = 6 * RETRY_NS; /* within retry_max_ns: not overdue */

	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	bed_pass(bed, trip_ns);
	bed_answer_all(bed); /* measured: 6, and a deviation of 3: 18 */
	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	bed_pass(bed, 3 * trip_ns - 1);
	bed_idle(bed);
	cr_expect_eq(bed_poll(bed), 0);
	bed_pass(bed, 1);
	cr_expect_eq(bed_poll(bed), 1);
	bed_free(bed);
}

Test(repair, waits_for_what_is_outstanding_after_the_last_attempt, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.attempts_max = 1;
	bed_open(bed);
	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	bed_pass(bed, 5 * RETRY_NS); /* slow, but honest */
	bed_idle(bed);
	cr_expect_eq(bed_poll(bed), 0);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed->read_count = 1;
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, 3);
	bed_free(bed);
}

Test(repair, gives_up_in_time_whatever_the_servers_do, .timeout = 60)
{
	struct bed *bed = bed_of(2);

	tw_repair_server(bed->repair, 0, false, bed->now_ns);
	tw_repair_server(bed->repair, 1, false, bed->now_ns);
	lose_two(bed);
	cr_expect_eq(bed_poll(bed), 0); /* nobody can be asked */
	bed_pass(bed, bed->conf.give_up_ns - 1);
	bed_idle(bed);
	bed_poll(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(tw_repair_next_ns(bed->repair), bed->now_ns + 1);
	bed_pass(bed, 1);
	bed_poll(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 3);
	bed_free(bed);
}

Test(repair, a_server_that_comes_up_is_asked, .timeout = 60)
{
	struct bed *bed = bed_of(1);

	tw_repair_server(bed->repair, 0, false, bed->now_ns);
	lose_two(bed);
	cr_expect_eq(bed_poll(bed), 0);
	bed_pass(bed, 20 * RETRY_NS);
	cr_expect_eq(bed_poll(bed), 0);
	tw_repair_server(bed->repair, 0, true, bed->now_ns);
	cr_expect_eq(bed_poll(bed), 1);
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, 3);
	bed_free(bed);
}

/* --- servers --------------------------------------------------------------------------------- */

Test(repair, a_refusing_server_is_left_alone_for_a_while, .timeout = 60)
{
	struct bed *bed = bed_of(2);

	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 0);
	bed_reply(bed, bed->reads[0].id, TW_REPAIR_REFUSED);
	lose_two(bed); /* another gap need not find out again */
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 1);
	bed_answer_all(bed);
	bed_pass(bed, RETRY_NS);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 1);
	bed_answer_all(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	lose_two(bed); /* it is tried anew, and left alone for longer */
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 0);
	bed_reply(bed, bed->reads[0].id, TW_REPAIR_BROKEN);
	bed_pass(bed, RETRY_NS);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 1);
	bed_answer_all(bed);
	lose_two(bed);
	bed_pass(bed, RETRY_NS - 1);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].server, 1);
	cr_expect_eq(bed_stats(bed).refused, 1);
	cr_expect_eq(bed_stats(bed).broken, 1);
	bed_free(bed);
}

Test(repair, a_silent_server_does_not_hold_up_the_others, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.servers = 2;
	bed->conf.reads_max = 2;
	bed->conf.join_units = 0;
	bed_open(bed);
	tw_repair_server(bed->repair, 1, true, bed->now_ns);
	for (uint32_t i = 0; i < 5; i++) {
		lose_two(bed);
	}
	uint64_t end_ns = bed->now_ns + 60 * RETRY_NS;
	uint64_t late = 0;
	while (tw_arb_gaps(bed->arb) > 0) {
		bed_poll(bed);
		for (uint32_t i = 0; i < bed->read_count; i++) {
			if (bed->reads[i].server == 1) {
				bed_answer(bed, &bed->reads[i]);
			} else {
				late = late == 0 ? bed->reads[i].id : late;
			}
		}
		bed_pass(bed, RETRY_NS / 4);
		bed_idle(bed);
		cr_assert_lt(bed->now_ns, end_ns);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_gt(bed_stats(bed).overdue, 0);
	/* an answer that comes after all is for nobody */
	uint64_t ignored = bed_stats(bed).ignored;
	bed->reply_bytes = 0;
	bed_reply(bed, late, TW_REPAIR_OK);
	cr_expect_eq(bed_stats(bed).ignored, ignored + 1);
	bed_free(bed);
}

Test(repair, answers_to_nobody_are_ignored, .timeout = 60)
{
	struct bed *bed = bed_of(1);

	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	struct tw_repair_read read = bed->reads[0];
	cr_expect_eq(bed_serve(bed, &read), TW_REPAIR_OK);
	bed_reply(bed, read.id + 1, TW_REPAIR_OK);
	bed_reply(bed, 0, TW_REPAIR_OK);
	bed_reply(bed, UINT64_MAX, TW_REPAIR_BROKEN);
	cr_expect_eq(bed_stats(bed).ignored, 3);
	cr_expect_eq(bed->from_history_msgs, 0);
	bed_reply(bed, read.id, TW_REPAIR_OK);
	cr_expect_eq(bed->from_history_msgs, 3);
	bed_reply(bed, read.id, TW_REPAIR_OK); /* twice */
	cr_expect_eq(bed_stats(bed).ignored, 4);
	bed_free(bed);
}

Test(repair, a_new_session_drops_what_is_outstanding, .timeout = 60)
{
	struct bed *bed = bed_of(1);

	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	struct tw_repair_read read = bed->reads[0];
	cr_expect_eq(bed_serve(bed, &read), TW_REPAIR_OK);
	bed->session++;
	bed->made_seq = 1;
	bed_restart_publisher(bed, PUBLISHER + 1);
	bed_give_both(bed, bed_send(bed, 1));
	cr_expect_eq(bed->ledger.lost_msgs, 3);
	bed_reply(bed, read.id, TW_REPAIR_OK);
	cr_expect_eq(bed_stats(bed).ignored, 1);
	cr_expect_eq(tw_repair_outstanding(bed->repair), 0);
	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].session, SESSION + 1);
	cr_expect_neq(bed->reads[0].id, read.id);
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, 3);
	bed_free(bed);
}

/* --- lies ------------------------------------------------------------------------------------ */

static struct tw_wire_hdr *first_header(struct bed *bed)
{
	return (void *)bed->reply;
}

static void lie_session(struct bed *bed)
{
	first_header(bed)->session++;
}
static void lie_publisher(struct bed *bed)
{
	first_header(bed)->publisher++;
}
static void lie_place(struct bed *bed)
{
	first_header(bed)->log_pos++;
}
static void lie_number(struct bed *bed)
{
	first_header(bed)->first_msg_seq++;
}
static void lie_channel(struct bed *bed)
{
	first_header(bed)->channel++;
}
static void lie_environment(struct bed *bed)
{
	first_header(bed)->environment++;
}
static void lie_replay(struct bed *bed)
{
	first_header(bed)->flags |= TW_WIRE_REPLAY;
}
static void lie_end(struct bed *bed)
{
	struct tw_wire_hdr *hdr = first_header(bed);
	hdr->flags = TW_WIRE_HEARTBEAT | TW_WIRE_END;
	hdr->msg_count = 0;
	hdr->payload_bytes = 0;
}
static void lie_hole(struct bed *bed)
{
	struct tw_wire_hdr *hdr = first_header(bed);
	struct tw_wire_hole hole = { .end_msg_seq = 1u << 30 };
	hdr->flags = TW_WIRE_HOLE;
	hdr->msg_count = 0;
	hdr->payload_bytes = sizeof(hole);
	memcpy(bed->reply + TW_WIRE_HDR_BYTES, &hole, sizeof(hole));
}
static void lie_long(struct bed *bed)
{
	first_header(bed)->payload_bytes = UINT16_MAX;
}
static void lie_magic(struct bed *bed)
{
	first_header(bed)->magic = 0;
}
static void lie_message(struct bed *bed)
{
	memset(bed->reply + TW_WIRE_HDR_BYTES, 0xff, 8);
}
static void lie_nothing(struct bed *bed)
{
	bed->reply_bytes = 0;
}
static void lie_garbage(struct bed *bed)
{
	memset(bed->reply, 0xa5, bed->reply_bytes);
}

static const struct {
	const char *what;
	void (*tell)(struct bed *bed);
} lies[] = {
	{ "session", lie_session }, { "publisher", lie_publisher },
	{ "place", lie_place },     { "number", lie_number },
	{ "channel", lie_channel }, { "environment", lie_environment },
	{ "replay", lie_replay },   { "end", lie_end },
	{ "hole", lie_hole },       { "long", lie_long },
	{ "magic", lie_magic },     { "message", lie_message },
	{ "nothing", lie_nothing }, { "garbage", lie_garbage },
};

/* The first datagram of an answer is not what was asked for: nothing of it is believed, its server is left
 * alone, and the other one heals the gap. */
Test(repair, a_lie_harms_its_own_read_and_no_more, .timeout = 60)
{
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct bed *bed = bed_of(2);
		lose_two(bed);
		cr_assert_eq(bed_poll(bed), 1);
		cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_OK);
		lies[i].tell(bed);
		bed_reply(bed, bed->reads[0].id, TW_REPAIR_OK);
		cr_assert_eq(tw_arb_next_seq(bed->arb), 4, "%s", lies[i].what);
		cr_expect_eq(bed_stats(bed).broken, 1, "%s", lies[i].what);
		cr_expect_eq(bed->ledger.lost_msgs, 0, "%s", lies[i].what);
		until_read(bed, RETRY_NS);
		cr_expect_eq(bed->reads[0].server, 1, "%s", lies[i].what);
		cr_expect(bed->reads[0].by_seq, "%s", lies[i].what);
		bed_answer_all(bed);
		cr_expect_eq(tw_arb_gaps(bed->arb), 0, "%s", lies[i].what);
		cr_expect_eq(bed->ledger.lost_msgs, 0, "%s", lies[i].what);
		bed_heartbeat(bed, TW_WIRE_END);
		cr_expect(bed->ledger.ended, "%s", lies[i].what);
		bed_free(bed);
	}
}

/* Two datagrams of a new life that follow on one of the life before, and of which both lines bring the last. */
static void lose_between_lives(struct bed *bed, uint32_t msgs)
{
	bed_send(bed, 1);
	bed_give_both(bed, 0);
	bed_restart_publisher(bed, PUBLISHER + 1);
	bed_send(bed, 2);
	bed_send(bed, msgs);
	bed_give_both(bed, 2);
}

/* The same where the read was by number. */
Test(repair, a_lie_by_number, .timeout = 60)
{
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct bed *bed = bed_of(2);
		if (lies[i].tell == lie_publisher || lies[i].tell == lie_place ||
		    lies[i].tell == lie_number || lies[i].tell == lie_hole) {
			bed_free(bed); /* a range of numbers says nothing about those */
			continue;
		}
		lose_between_lives(bed, 2);
		cr_assert_eq(bed_poll(bed), 1);
		cr_assert(bed->reads[0].by_seq);
		cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_OK);
		lies[i].tell(bed);
		bed_reply(bed, bed->reads[0].id, TW_REPAIR_OK);
		cr_assert_eq(tw_arb_next_seq(bed->arb), 2, "%s", lies[i].what);
		cr_expect_eq(bed->ledger.lost_msgs, 0, "%s", lies[i].what);
		until_read(bed, 2 * RETRY_NS);
		bed_answer_all(bed);
		cr_expect_eq(tw_arb_gaps(bed->arb), 0, "%s", lies[i].what);
		cr_expect_eq(bed->ledger.lost_msgs, 0, "%s", lies[i].what);
		bed_free(bed);
	}
}

Test(repair, what_is_right_of_an_answer_is_used, .timeout = 60)
{
	struct bed *bed = bed_of(1);

	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_OK);
	bed->reply_bytes -= 1; /* torn: the second datagram is not whole */
	bed_reply(bed, bed->reads[0].id, TW_REPAIR_OK);
	cr_expect_eq(bed->from_history_msgs, 2);
	cr_expect_eq(bed_stats(bed).broken, 1);
	until_read(bed, 2 * RETRY_NS);
	cr_expect_eq(bed->reads[0].begin, bed->dgrams[2].first_seq, "only the rest");
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, 3);
	bed_free(bed);
}

/* A server that lies about one gap cannot touch another one. */
Test(repair, nothing_is_decided_that_was_not_asked_for, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.join_units = 0;
	bed->conf.read_max_bytes = TW_REPAIR_READ_MAX_BYTES;
	bed_open(bed);
	lose_between_lives(bed, 3); /* by number */
	lose_two(bed);
	cr_assert_eq(bed_poll(bed), 2);
	cr_assert(bed->reads[0].by_seq);
	struct tw_wire_hole hole = { .end_msg_seq = bed->made_seq - 1 };
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_OK);
	struct tw_wire_hdr *hdr = first_header(bed);
	hdr->flags = TW_WIRE_HOLE;
	hdr->msg_count = 0;
	hdr->payload_bytes = sizeof(hole);
	memcpy(bed->reply + TW_WIRE_HDR_BYTES, &hole, sizeof(hole));
	bed->reply_bytes = 128;
	bed_reply(bed, bed->reads[0].id, TW_REPAIR_OK);
	cr_expect_eq(bed->ledger.lost_msgs, 2, "its own repair");
	bed_answer(bed, &bed->reads[1]);
	cr_expect_eq(bed->from_history_msgs, 3);
	cr_expect_eq(bed->ledger.lost_msgs, 2);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}

/* A line that lies about where the log goes on. */
Test(repair, a_false_place_is_healed_by_number, .timeout = 60)
{
	struct bed *bed = bed_of(1);

	bed_send(bed, 1);
	bed_send(bed, 2);
	bed_give_both(bed, 0);
	struct tw_ledger_spec spec = { .flags = TW_WIRE_HEARTBEAT,
				       .channel = CHANNEL,
				       .environment = ENVIRONMENT,
				       .publisher = PUBLISHER,
				       .session = SESSION,
				       .packet_seq = 3,
				       .log_pos = bed->dgrams[1].end_pos + 5,
				       .first_seq = 4,
				       .end_seq = 4 };
	struct tw_dgram dgram;
	uint32_t len = tw_ledger_dgram(bed->reply, MTU_BYTES, &spec);
	cr_assert_eq(tw_dgram_parse(&dgram, bed->reply, len), TW_DGRAM_OK);
	for (uint32_t line = 0; line < 2; line++) {
		struct tw_arb_run run;
		tw_arb_input(bed->arb, line, &dgram, 0, bed->now_ns);
		while (tw_arb_next(bed->arb, &run)) {
			cr_assert(tw_ledger_take(&bed->ledger, &run));
		}
	}
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 4);
		until_read(bed, 4 * RETRY_NS);
		bed_answer_all(bed);
	}
	cr_expect(bed->reads[0].by_seq);
	cr_expect_eq(bed->from_history_msgs, 2);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

/* --- the store ------------------------------------------------------------------------------- */

/* A full store with a server that may still help: what finds no room is brought by history in its turn. */
Test(repair, what_finds_no_room_is_set_aside, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 4;
	bed_open(bed);
	bed_send_many(bed, 200);
	bed_give_both(bed, 0);
	for (uint32_t i = 2; i < 200; i++) {
		bed_give_both(bed, i);
	}
	cr_expect_eq(tw_arb_held(bed->arb), 4);
	cr_expect_geq(tw_arb_set_aside(bed->arb), 194);
	cr_expect_leq(tw_arb_gaps(bed->arb), 2, "what is set aside is one gap");
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 100);
		until_read(bed, 8 * RETRY_NS);
		bed_answer_all(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(tw_arb_store_full(bed->arb), 0);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}

/* As long as some server is trusted: one that has brought something, until it fails; or for a moment. */
Test(repair, what_finds_no_room_is_given_up_where_no_server_is_trusted, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 4;
	bed->conf.attempts_max = 200;
	bed_open(bed);
	bed_send_many(bed, 100);
	bed_give_both(bed, 0);
	for (uint32_t i = 2; i < 50; i++) {
		bed_give_both(bed, i);
	}
	cr_expect_eq(tw_arb_store_full(bed->arb), 0, "for a moment");
	uint64_t aside = tw_arb_set_aside(bed->arb);
	cr_expect_gt(aside, 0);
	cr_assert_gt(bed_poll(bed), 0);
	bed_pass(bed, bed->conf.retry_max_ns / 4);
	bed_poll(bed);
	bed_give_both(bed, 50);
	cr_expect_eq(tw_arb_set_aside(bed->arb), aside);
	cr_expect_gt(tw_arb_store_full(bed->arb), 0);
	cr_expect_eq(bed->ledger.lost_msgs, bed->dgrams[1].end_seq - bed->dgrams[1].first_seq);
	bed_free(bed);
}

Test(repair, a_server_is_trusted_until_it_fails, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 4;
	bed_open(bed);
	bed_send_many(bed, 20);
	bed_give_both(bed, 0);
	bed_give_both(bed, 2);
	cr_assert_eq(bed_poll(bed), 1);
	bed_answer_all(bed);
	bed_pass(bed, bed->conf.retry_max_ns);
	for (uint32_t i = 4; i < 12; i++) {
		bed_give_both(bed, i);
	}
	uint64_t aside = tw_arb_set_aside(bed->arb);
	cr_expect_gt(aside, 0);
	cr_assert_gt(bed_poll(bed), 0);
	bed_reply(bed, bed->reads[0].id, TW_REPAIR_REFUSED);
	bed_give_both(bed, 12);
	cr_expect_eq(tw_arb_set_aside(bed->arb), aside);
	cr_expect_eq(tw_arb_store_full(bed->arb), 1);
	bed_free(bed);
}

/* A subscriber that stood still longer than give_up_ns asks before it gives up. */
Test(repair, who_stood_still_has_as_long_again, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed_open(bed);
	bed_send_many(bed, 5);
	bed_give_both(bed, 0);
	bed_give_both(bed, 2);
	cr_assert_eq(bed_poll(bed), 1);
	bed_stand_still(bed, 10 * bed->conf.give_up_ns);
	bed_idle(bed);
	until_read(bed, 8 * RETRY_NS); /* again: its server was left alone meanwhile */
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_pass(bed, bed->conf.give_up_ns);
	bed_idle(bed);
	bed_poll(bed);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0, "but not for ever");
	cr_expect_gt(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

/* Reads that cannot be posted are no attempts. */
Test(repair, want_of_a_slot_is_no_attempt, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.attempts_max = 2;
	bed->conf.give_up_ns = 1000 * RETRY_NS;
	bed_open(bed);
	bed_send_many(bed, 5);
	bed_give_both(bed, 0);
	bed_give_both(bed, 2);
	for (uint32_t i = 0; i < 10; i++) {
		until_read(bed, 8 * RETRY_NS);
		cr_assert_eq(bed->read_count, 1);
		tw_repair_reply(bed->repair, bed->reads[0].id, TW_REPAIR_UNPOSTED, NULL, 0,
				bed->now_ns);
	}
	until_read(bed, 8 * RETRY_NS);
	bed_answer_all(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(bed_stats(bed).reads, 1);
	bed_free(bed);
}

/* Nor is one whose bytes found no room. */
Test(repair, want_of_room_is_no_attempt, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 3;
	bed->conf.join_units = 0;
	bed->conf.attempts_max = 1;
	bed->conf.give_up_ns = 1000 * RETRY_NS;
	bed_open(bed);
	bed_send_many(bed, 8);
	bed_give_both(bed, 0);
	bed_give_both(bed, 2);
	bed_give_both(bed, 4);
	cr_assert_eq(bed_poll(bed), 2); /* 1 and 3 */
	struct tw_repair_read reads[2];
	memcpy(reads, bed->reads, sizeof(reads));
	bed_give_both(bed, 6);
	bed_answer(bed, &reads[1]);
	cr_assert_eq(tw_arb_repair_no_room(bed->arb), 1);
	bed_pass(bed, 8 * RETRY_NS);
	bed_idle(bed);
	bed_poll(bed);
	bed_answer(bed, &reads[0]);
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 20);
		until_read(bed, 8 * RETRY_NS);
		bed_answer_all(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

Test(repair, no_more_bytes_are_outstanding_than_allowed, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.join_units = 0;
	bed->conf.bytes_max = 1;
	bed_open(bed);
	bed_send_many(bed, 9);
	for (uint32_t i = 0; i < 9; i += 2) {
		bed_give_both(bed, i);
	}
	cr_assert_eq(bed_poll(bed), 1, "one goes in any case");
	struct tw_repair_read first = bed->reads[0];
	cr_expect_eq(bed_poll(bed), 0);
	bed_answer(bed, &first);
	cr_expect_eq(bed_poll(bed), 1, "and the next one when it has ended");
	bed_free(bed);
}

Test(repair, a_full_store_takes_the_next_rung, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 4;
	bed->conf.join_units = 0;
	bed_open(bed);
	bed_send_many(bed, 20);
	for (uint32_t i = 0; i < 7; i += 2) {
		bed_give_both(bed, i); /* 1, 3, 5 are missing, three are held */
	}
	cr_assert_eq(bed_poll(bed), 3);
	struct tw_repair_read reads[3];
	memcpy(reads, bed->reads, sizeof(reads));
	bed_give_both(bed, 8);
	cr_expect_eq(bed_poll(bed), 0, "there is no room for what would not be next to deliver");
	/* nor for what was asked for before */
	bed_answer(bed, &reads[1]);
	cr_expect_eq(tw_arb_repair_no_room(bed->arb), 1);
	cr_expect_eq(bed_stats(bed).broken, 0, "which is not the server's fault");
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_answer(bed, &reads[0]);
	cr_expect_eq(bed->from_history_msgs, bed->dgrams[1].end_seq - bed->dgrams[1].first_seq);
	bed_give_both(bed, 10); /* there is room for one */
	/* with nobody to ask the oldest gap goes at once */
	tw_repair_server(bed->repair, 0, false, bed->now_ns);
	bed_give_both(bed, 12);
	cr_expect_eq(tw_arb_store_full(bed->arb), 1);
	cr_expect_eq(bed->ledger.last_lost_first_seq, bed->dgrams[3].first_seq);
	cr_expect_eq(bed->ledger.last_lost_end_seq, bed->dgrams[3].end_seq);
	uint64_t lost_msgs = bed->ledger.lost_msgs;
	tw_repair_server(bed->repair, 0, true, bed->now_ns);
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 20);
		until_read(bed, 8 * RETRY_NS);
		bed_answer_all(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, lost_msgs);
	bed_free(bed);
}
