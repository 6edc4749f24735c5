/* The repair ladder: what is asked for, where, when, and how much of it. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/probe_alloc.h"
#include "tests/unit/repair_bed.h"

/* Datagrams 0, 1, 2 of which both lines bring the first and the last. */
static struct bed *bed_with_gap(void)
{
	struct bed *bed = bed_new();

	bed_send(bed, 3);
	bed_send(bed, 2);
	bed_send(bed, 4);
	bed_give_both(bed, 0);
	bed_give_both(bed, 2);
	return bed;
}

/* --- making ---------------------------------------------------------------------------------- */

Test(repair, refuses_what_it_cannot_work_with, .timeout = 60)
{
	struct bed *bed = bed_new();
	struct tw_repair_conf good = bed->conf;
	struct tw_repair_conf bad[16];
	struct tw_repair *repair = (void *)1;
	size_t size = tw_repair_size(&good);
	uint32_t n = 0;

	for (size_t i = 0; i < 16; i++) {
		bad[i] = good;
	}
	bad[n++].servers = 0;
	bad[n++].servers = TW_REPAIR_MAX_SERVERS + 1;
	bad[n++].retry_min_ns = 0;
	bad[n++].retry_max_ns = good.retry_min_ns - 1;
	bad[n++].retry_max_ns = UINT64_MAX;
	bad[n++].give_up_ns = UINT64_MAX;
	bad[n++].attempts_max = 0;
	bad[n++].attempts_max = 256;
	bad[n++].reads_max = 0;
	bad[n++].reads_max = TW_REPAIR_MAX_READS + 1;
	bad[n++].read_max_bytes = 0;
	bad[n++].read_max_bytes = 4100;
	bad[n++].read_max_bytes = TW_REPAIR_READ_MAX_BYTES + 64;
	for (uint32_t i = 0; i < n; i++) {
		cr_expect_eq(tw_repair_size(&bad[i]), 0, "%u", i);
	}
	/* valid as such, but not for this arbiter */
	bad[n++].read_max_bytes = 2 * MTU_BYTES - 64;
	bad[n++].wait_ns = good.wait_ns + 1;
	bad[n++].channel = good.channel + 1;
	for (uint32_t i = 0; i < n; i++) {
		cr_expect_eq(tw_repair_init(&repair, bed->repair_memory, size, &bad[i], bed->arb),
			     TW_EARG, "%u", i);
		cr_expect_null(repair);
	}
	cr_expect_eq(tw_repair_init(&repair, bed->repair_memory, size - 1, &good, bed->arb),
		     TW_EARG);
	cr_expect_eq(tw_repair_init(&repair, NULL, size, &good, bed->arb), TW_EARG);
	cr_expect_eq(
		tw_repair_init(&repair, (uint8_t *)bed->repair_memory + 8, size, &good, bed->arb),
		TW_EARG);
	bed_free(bed);

	bed = bed_draft();
	bed->arb_conf.repair = false; /* an arbiter that gives up by itself */
	size_t arb_bytes = tw_arb_size(&bed->arb_conf);
	bed->arb_memory = aligned_alloc(64, arb_bytes);
	bed->repair_memory = aligned_alloc(64, size);
	cr_assert_eq(tw_arb_init(&bed->arb, bed->arb_memory, arb_bytes, &bed->arb_conf, 0), TW_OK);
	cr_expect_eq(tw_repair_init(&repair, bed->repair_memory, size, &good, bed->arb), TW_EARG);
	bed_free(bed);
}

/* --- when ------------------------------------------------------------------------------------ */

Test(repair, asks_at_once_when_both_lines_have_passed, .timeout = 60)
{
	struct bed *bed = bed_with_gap();
	const struct tw_repair_read *read = &bed->reads[0];

	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_not(read->by_seq);
	cr_expect_eq(read->server, 0);
	cr_expect_eq(read->channel, CHANNEL);
	cr_expect_eq(read->session, SESSION);
	cr_expect_eq(read->publisher, PUBLISHER);
	cr_expect_eq(read->begin, bed->dgrams[1].pos);
	cr_expect_eq(read->end, bed->dgrams[1].end_pos);
	cr_expect_neq(read->id, 0);
	bed_answer_all(bed);
	cr_expect_eq(bed->ledger.next_seq, 10);
	cr_expect_eq(bed->from_history_msgs, 2);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	struct tw_repair_stats stats = bed_stats(bed);
	cr_expect_eq(stats.reads, 1);
	cr_expect_eq(stats.bytes, bed->dgrams[1].len_bytes);
	cr_expect_eq(stats.repaired_msgs, 2);
	cr_expect_eq(stats.retries + stats.gone + stats.refused + stats.busy + stats.broken, 0);
	cr_expect_eq(tw_repair_next_ns(bed->repair), UINT64_MAX);
	bed_free(bed);
}

Test(repair, waits_for_the_other_line_but_no_longer_than_wait_ns, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 3);
	bed_give_both(bed, 0);
	bed_give(bed, A, 2);
	cr_expect_eq(bed_poll(bed), 0);
	cr_expect_eq(tw_repair_next_ns(bed->repair), bed->now_ns + WAIT_NS);
	bed_pass(bed, WAIT_NS - 1);
	cr_expect_eq(bed_poll(bed), 0);
	bed_pass(bed, 1);
	cr_expect_eq(bed_poll(bed), 1);
	bed_give(bed, B, 1); /* and is the first to bring it */
	cr_expect_eq(bed->from_line_msgs, 2);
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, 0);
	cr_expect_eq(bed_stats(bed).broken, 0);
	bed_free(bed);
}

Test(repair, asks_when_the_last_line_passes, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 3);
	bed_give_both(bed, 0);
	bed_give(bed, A, 2);
	cr_expect_eq(bed_poll(bed), 0);
	bed_give(bed, B, 2);
	cr_expect_eq(bed_poll(bed), 1);
	bed_free(bed);
}

Test(repair, never_gives_up_what_a_line_may_still_bring, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 3);
	bed_give_both(bed, 0);
	bed_give(bed, A, 2);
	bed_pass(bed, 2 * bed->conf.give_up_ns); /* stalled; B's queue has not been looked at */
	bed_poll(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_give(bed, B, 1);
	cr_expect_eq(bed->from_line_msgs, 2);

	bed_send_many(bed, 2);
	bed_give(bed, A, 4);
	bed_pass(bed, 2 * bed->conf.give_up_ns);
	bed_idle(bed);
	bed_poll(bed);
	cr_expect_eq(bed->ledger.lost_msgs, 1);
	cr_expect_eq(bed_stats(bed).lost_msgs, 1);
	bed_free(bed);
}

/* --- how much -------------------------------------------------------------------------------- */

/* Every other one of 2 x `gaps` datagrams is lost. */
static void lose_every_other(struct bed *bed, uint32_t gaps)
{
	uint32_t first = bed->count;

	bed_send_many(bed, 2 * gaps + 1);
	for (uint32_t i = first; i < bed->count; i += 2) {
		bed_give_both(bed, i);
	}
}

Test(repair, a_hundred_spaced_gaps_in_one_window, .timeout = 60)
{
	struct bed *bed = bed_new();

	lose_every_other(bed, 100);
	cr_expect_eq(tw_arb_gaps(bed->arb), 100);
	bed_poll(bed);
	cr_expect_leq(bed->read_count, 8, "%u", bed->read_count);
	cr_expect_gt(bed->read_count, 1);
	for (uint32_t i = 0; i < bed->read_count; i++) {
		cr_expect_leq(bed->reads[i].end - bed->reads[i].begin,
			      bed->conf.read_max_bytes / 64);
	}
	bed_answer_all(bed);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}

Test(repair, joins_only_below_join_units, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.join_units = 0;
	bed_open(bed);
	lose_every_other(bed, 10);
	cr_expect_eq(bed_poll(bed), 10);
	bed_answer_all(bed);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0);
	/* exactly: two gaps so far apart are two reads, a unit nearer they are one */
	uint64_t apart = bed->dgrams[2].end_pos - bed->dgrams[2].pos;
	bed_free(bed);
	for (uint64_t more = 0; more < 2; more++) {
		bed = bed_draft();
		bed->conf.join_units = (uint32_t)(apart + more);
		bed_open(bed);
		lose_every_other(bed, 2);
		cr_expect_eq(bed_poll(bed), 2 - more);
		bed_free(bed);
	}
}

Test(repair, what_is_larger_than_one_read_is_asked_for_in_several, .timeout = 60)
{
	struct bed *bed = bed_new();
	uint32_t max_units = bed->conf.read_max_bytes / 64;

	bed_send_many(bed, 600);
	bed_give_both(bed, 0);
	bed_give_both(bed, 599);
	cr_assert_gt(bed_poll(bed), 3);
	cr_expect_eq(bed->reads[0].begin, bed->dgrams[1].pos);
	cr_expect_eq(bed->reads[bed->read_count - 1].end, bed->dgrams[598].end_pos);
	for (uint32_t i = 0; i < bed->read_count; i++) {
		cr_expect_leq(bed->reads[i].end - bed->reads[i].begin, max_units);
		/* a datagram less a unit: each lies whole in one of them */
		if (i > 0) {
			cr_expect_eq(bed->reads[i - 1].end - bed->reads[i].begin,
				     MTU_BYTES / 64 - 1);
		}
	}
	bed_answer_all(bed);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(bed_stats(bed).broken, 0);
	bed_free(bed);
}

Test(repair, over_the_end_of_the_log, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->log_bytes = 64 + 64 * 200; /* wraps every few dozen datagrams, and skips units there */
	bed_open(bed);
	for (uint32_t round = 0; round < 40; round++) {
		lose_every_other(bed, 3);
		bed_poll(bed);
		bed_answer_all(bed);
		cr_assert_eq(tw_arb_gaps(bed->arb), 0, "round %u", round);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(bed_stats(bed).broken, 0);
	bed_free(bed);
}

Test(repair, no_more_reads_than_allowed, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.join_units = 0;
	bed->conf.reads_max = 3;
	bed_open(bed);
	lose_every_other(bed, 10);
	cr_expect_eq(bed_poll(bed), 3);
	cr_expect_eq(bed_poll(bed), 0);
	struct tw_repair_read reads[3] = { bed->reads[0], bed->reads[1], bed->reads[2] };
	bed_answer(bed, &reads[1]);
	cr_expect_eq(bed_poll(bed), 1); /* the next gap, not one that has been asked for */
	cr_expect_eq(bed->reads[0].begin, bed->dgrams[7].pos);
	bed_free(bed);
}

Test(repair, paced_by_bytes, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.join_units = 0;
	bed->conf.read_max_bytes = 4096;
	bed->conf.max_bytes_per_s = 1000000; /* one byte a microsecond */
	bed_open(bed);
	uint64_t start_ns = bed->now_ns;
	lose_every_other(bed, 64);
	uint64_t bytes = 0;
	while (tw_arb_gaps(bed->arb) > 0) {
		cr_assert_lt(bed->now_ns, start_ns + 100000 * US);
		bed_poll(bed);
		for (uint32_t i = 0; i < bed->read_count; i++) {
			bytes += 64 * (bed->reads[i].end - bed->reads[i].begin);
		}
		cr_assert_leq(bytes, 4096 + (bed->now_ns - start_ns) / US);
		bed_answer_all(bed);
		bed_pass(bed, 10 * US);
		bed_idle(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	/* and it has not waited for longer than that */
	cr_expect_gt(bytes + 1000, 4096 + (bed->now_ns - start_ns) / US);
	bed_free(bed);
}

/* --- where ----------------------------------------------------------------------------------- */

Test(repair, a_lost_tail_is_healed_by_the_next_heartbeat, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 5);
	bed_give_both(bed, 0);
	bed_give_both(bed, 1);
	cr_expect_eq(bed_poll(bed), 0); /* nobody knows */
	bed_heartbeat(bed, 0);
	cr_expect_eq(bed_poll(bed), 1);
	cr_expect_not(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].begin, bed->dgrams[2].pos);
	cr_expect_eq(bed->reads[0].end, bed->dgrams[4].end_pos);
	bed_answer_all(bed);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	/* what is lost after a heartbeat begins where that said */
	bed_send_many(bed, 2);
	bed_heartbeat(bed, TW_WIRE_END);
	cr_expect_eq(bed_poll(bed), 1);
	cr_expect_not(bed->reads[0].by_seq);
	bed_answer_all(bed);
	cr_expect(bed->ledger.ended);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

Test(repair, the_head_of_a_session_is_asked_for_by_position, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 4);
	bed_give_both(bed, 3);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_not(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].publisher, PUBLISHER);
	cr_expect_eq(bed->reads[0].begin, 0);
	cr_expect_eq(bed->reads[0].end, bed->dgrams[3].pos);
	bed_answer_all(bed);
	cr_expect_eq(bed->from_history_msgs, bed->dgrams[3].first_seq - 1);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

/* Only the session's first publisher has it where the others' logs begin: what those begin with is taken all the
 * same, and none of them has done wrong. */
Test(repair, the_head_of_a_session_that_a_later_life_does_not_have, .timeout = 60)
{
	struct bed *bed = bed_new();
	struct tw_repair_stats stats;

	bed_send_many(bed, 3);
	bed_restart_publisher(bed, PUBLISHER + 1);
	bed_send_many(bed, 3);
	bed_give_both(bed, 5);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_not(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].publisher, PUBLISHER + 1);
	bed_answer_all(bed);
	tw_repair_stats(bed->repair, &stats);
	cr_expect_eq(stats.broken, 0);
	cr_expect_eq(bed_poll(bed), 0, "after a pause, as ever");
	bed_pass(bed, RETRY_NS);
	bed_idle(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].begin, 1);
	cr_expect_eq(bed->reads[0].end, bed->dgrams[3].first_seq);
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_GONE);
	bed_answer_all(bed);
	bed_pass(bed, WAIT_NS);
	bed_idle(bed);
	bed_poll(bed);
	cr_expect_eq(bed->ledger.lost_msgs, bed->dgrams[3].first_seq - 1);
	cr_expect_eq(bed->from_history_msgs, bed->dgrams[5].first_seq - bed->dgrams[3].first_seq);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}

Test(repair, a_head_that_has_been_overwritten_is_asked_for_by_number, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->log_bytes = 64 + 64 * 1500;
	bed_open(bed);
	bed_send_many(bed, 4);
	bed_give_both(bed, 3);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_not(bed->reads[0].by_seq);
	while (bed_serve(bed, &bed->reads[0]) == TW_REPAIR_OK) {
		bed_send(bed, 1);
	}
	bed_answer_all(bed);
	bed_pass(bed, RETRY_NS);
	bed_idle(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].begin, 1);
	bed_free(bed);
}

Test(repair, a_head_that_finds_no_room_is_asked_for_again_by_position, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 1;
	bed_open(bed);
	bed_send_many(bed, 4);
	bed_give_both(bed, 3);
	cr_assert_eq(bed_poll(bed), 1);
	bed_give(bed, A, 2); /* set aside */
	bed_answer_all(bed);
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 10);
		bed_pass(bed, RETRY_NS);
		bed_idle(bed);
		bed_poll(bed);
		for (uint32_t i = 0; i < bed->read_count; i++) {
			cr_expect_not(bed->reads[i].by_seq);
		}
		bed_answer_all(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

Test(repair, a_late_joiner_asks_by_number_from_the_begin, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 2000);
	bed_give_both(bed, 1999);
	cr_assert_eq(bed_poll(bed), 1, "nobody knows yet where the history begins");
	cr_expect(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].begin, 1);
	cr_expect_eq(bed->reads[0].end, bed->dgrams[1999].first_seq);
	bed_answer_all(bed);
	cr_expect_gt(bed_poll(bed), 1, "now all of the rest at once");
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 30);
		bed_answer_all(bed);
		bed_pass(bed, RETRY_NS);
		bed_poll(bed);
	}
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}

Test(repair, a_late_joiner_gets_what_is_still_there, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->log_bytes = 64 + 64 * 2000;
	bed_open(bed);
	bed_send_many(bed, 2000);
	bed_give_both(bed, 1999);
	bed_pass(bed, WAIT_NS);
	bed_idle(bed);
	uint64_t start_ns = bed->now_ns;
	bed_poll(bed);
	for (uint32_t turns = 0; tw_arb_gaps(bed->arb) > 0; turns++) {
		cr_assert_lt(turns, 50);
		bed_answer_all(bed);
		bed_pass(bed, RETRY_NS);
		bed_idle(bed);
		bed_poll(bed);
	}
	cr_expect_lt(bed->now_ns - start_ns, bed->conf.give_up_ns / 2);
	cr_expect_eq(bed->ledger.last_lost_first_seq, 1);
	cr_expect_eq(bed->ledger.lost_msgs, bed->ledger.last_lost_end_seq - 1, "one range");
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	cr_expect_gt(bed->from_history_msgs, 500);
	bed_free(bed);
}

Test(repair, between_two_lives_of_a_publisher_by_number, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 2);
	bed_give_both(bed, 0);
	bed->made_seq = bed->dgrams[1].first_seq; /* goes on where it had not sent */
	bed_restart_publisher(bed, PUBLISHER + 1);
	bed_send_many(bed, 3);
	bed_give_both(bed, 4);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect(bed->reads[0].by_seq);
	cr_expect_eq(bed->reads[0].begin, bed->dgrams[1].first_seq);
	cr_expect_eq(bed->reads[0].end, bed->dgrams[4].first_seq);
	bed_answer_all(bed);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	cr_expect_eq(bed->ledger.lost_msgs, 0);
	bed_free(bed);
}

Test(repair, what_a_new_life_does_not_have_is_lost_at_once, .timeout = 60)
{
	struct bed *bed = bed_new();

	bed_send_many(bed, 2);
	bed_give_both(bed, 0);
	bed_restart_publisher(bed, PUBLISHER + 1); /* it has sent all of that */
	bed_send_many(bed, 2);
	bed_give_both(bed, 2);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect(bed->reads[0].by_seq);
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_GONE);
	bed_answer_all(bed);
	bed_pass(bed, WAIT_NS);
	bed_idle(bed);
	cr_expect_eq(bed_poll(bed), 0);
	cr_expect_eq(bed->ledger.lost_msgs, 2);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0);
	bed_free(bed);
}

Test(repair, does_not_ask_for_what_lies_before_a_history, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->log_bytes = 64 + 64 * 2000;
	bed->conf.servers = 2; /* the other one is down, but may still come */
	bed->conf.attempts_max = 255;
	bed->arb_conf.store_dgrams = 1;
	bed_open(bed);
	bed_send_many(bed, 800);
	bed_give_both(bed, 799);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect_eq(bed->reads[0].begin, 1);
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_OK);
	uint64_t begin_seq = ((const struct tw_wire_hdr *)(const void *)bed->reply)->first_msg_seq;
	cr_assert_gt(begin_seq, 1);
	bed_answer_all(bed); /* and there is no room for any of it */
	cr_expect_eq(bed->from_history_msgs, 0);
	uint32_t again = 0;
	for (uint32_t turns = 0; turns < 40; turns++) {
		bed_poll(bed);
		for (uint32_t i = 0; i < bed->read_count; i++) {
			cr_expect(bed->reads[i].by_seq);
			cr_expect_geq(bed->reads[i].begin, begin_seq);
			again += bed->reads[i].begin == begin_seq ? 1 : 0;
			bed_reply(bed, bed->reads[i].id, TW_REPAIR_BUSY);
		}
		bed_pass(bed, RETRY_NS);
		bed_idle(bed);
	}
	cr_expect_gt(again, 0);
	cr_expect_eq(bed->ledger.lost_msgs, 0, "the other server has not been heard");
	bed_free(bed);
}

Test(repair, overwritten_by_position_is_asked_for_by_number, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->log_bytes = 64 + 64 * 1500;
	bed_open(bed);
	bed_send_many(bed, 200);
	bed_give_both(bed, 0);
	bed_give_both(bed, 199);
	cr_assert_gt(bed_poll(bed), 1);
	while (bed_serve(bed, &bed->reads[0]) == TW_REPAIR_OK) {
		bed_send(bed, 1);
	}
	cr_assert_eq(bed_serve(bed, &bed->reads[0]), TW_REPAIR_GONE);
	bed_answer(bed, &bed->reads[0]);
	for (uint32_t i = 1; i < bed->read_count; i++) {
		bed_reply(bed, bed->reads[i].id, TW_REPAIR_BUSY);
	}
	cr_expect_eq(bed_poll(bed), 0);
	bed_pass(bed, RETRY_NS);
	bed_idle(bed);
	cr_assert_eq(bed_poll(bed), 1);
	cr_expect(bed->reads[0].by_seq);
	for (uint32_t turns = 0; bed->read_count > 0; turns++) {
		cr_assert_lt(turns, 10);
		bed_answer_all(bed);
		bed_poll(bed);
	}
	cr_expect_gt(bed->from_history_msgs, 0);
	cr_expect_gt(bed->ledger.lost_msgs, 0);
	cr_expect_eq(tw_arb_gaps(bed->arb), 0, "lost at once: no server reaches back so far");
	cr_expect_eq(bed->ledger.next_seq, bed->dgrams[199].end_seq);
	bed_free(bed);
}

/* --- bounds ---------------------------------------------------------------------------------- */

/* Gap after gap, some healed, some given up: memory is what it was, and nobody is asked to look at more
 * than what is open. */
Test(repair, a_million_gaps_need_no_memory, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->conf.attempts_max = 1;
	bed_open(bed);
	uint32_t first = bed_send(bed, 1);
	bed_give_both(bed, first);
	uint64_t calls = probe_alloc_calls();
	for (uint32_t gap = 0; gap < 1000000; gap++) {
		bed->count = 0;
		bed_send(bed, 1);
		bed_send(bed, 1);
		bed_give(bed, A, 1);
		bed_give(bed, B, 1);
		cr_assert_eq(bed_poll(bed), 1);
		if (gap % 4 == 0) {
			bed_reply(bed, bed->reads[0].id, TW_REPAIR_BUSY);
			bed_pass(bed, RETRY_NS);
			bed_idle(bed);
			bed_poll(bed);
		} else {
			bed_answer_all(bed);
		}
		cr_assert_eq(tw_arb_gaps(bed->arb), 0, "gap %u", gap);
	}
	cr_expect_eq(probe_alloc_calls(), calls);
	cr_expect_eq(bed->ledger.lost_msgs, 250000);
	cr_expect_eq(bed->from_history_msgs, 750000);
	cr_expect_eq(tw_repair_outstanding(bed->repair), 0);
	bed_free(bed);
}

/* Hundreds of gaps open at once: a poll looks at a part of them, all of them are asked for. */
Test(repair, more_gaps_than_one_poll_looks_at, .timeout = 60)
{
	struct bed *bed = bed_draft();
	bed->arb_conf.store_dgrams = 2048;
	bed->conf.attempts_max = 1;
	bed->conf.join_units = 0;
	bed->conf.reads_max = 1000;
	bed_open(bed);
	lose_every_other(bed, 500);
	cr_assert_eq(tw_arb_gaps(bed->arb), 500);
	uint32_t reads = 0;
	uint32_t polls = 0;
	while (bed_poll(bed) > 0) {
		reads += bed->read_count;
		polls++;
		/* nobody answers */
	}
	cr_expect_eq(reads, 500);
	cr_expect_eq(polls, (500 + BED_READS - 1) / BED_READS);
	cr_expect_geq(tw_repair_next_ns(bed->repair), bed->now_ns + RETRY_NS);
	bed_pass(bed, bed->conf.give_up_ns);
	bed_idle(bed);
	for (polls = 0; tw_arb_gaps(bed->arb) > 0; polls++) {
		bed_poll(bed);
	}
	cr_expect_eq(polls, (500 + TW_REPAIR_LOOK_GAPS - 1) / TW_REPAIR_LOOK_GAPS);
	cr_expect_eq(bed->ledger.next_seq, bed->made_seq);
	bed_free(bed);
}
