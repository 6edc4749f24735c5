/* Line arbitration in `latest` mode: what is ahead of a gap does not wait for it. */
#include <criterion/criterion.h>

#include "protocol/arb_impl.h"
#include "tests/unit/arb_scene.h"

static struct scene *latest(uint32_t store_dgrams, bool repair)
{
	struct tw_arb_conf conf = usual();

	conf.latest = true;
	conf.repair = repair;
	conf.store_dgrams = store_dgrams;
	return running(&conf);
}

/* --- giving out ------------------------------------------------------------------------------ */

Test(arb_latest, in_order_it_is_as_ever, .timeout = 60)
{
	struct scene *s = latest(8, false);

	cr_expect_eq(give_data(s, B, 4, 6), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, A, 4, 6), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, A, 5, 7), TW_ARB_FIRST);
	EXPECT(s, "data 4-6 B, data 7-7 A");
	cr_expect_eq(tw_arb_next_seq(s->arb), 8);
	cr_expect_eq(s->arb->segs.count, 0, "nothing is kept while nothing is missing");
	scene_free(s);
}

Test(arb_latest, what_is_ahead_of_a_gap_comes_at_once, .timeout = 60)
{
	struct scene *s = latest(8, false);

	cr_expect_eq(give_data(s, A, 6, 7), TW_ARB_FIRST);
	EXPECT(s, "gap 4-5, data 6-7 A");
	cr_expect_eq(tw_arb_held(s->arb), 0);
	cr_expect_eq(tw_arb_next_seq(s->arb), 4);
	cr_expect_eq(give_data(s, A, 6, 7), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, B, 7, 7), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, A, 8, 8), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, B, 4, 5), TW_ARB_FIRST);
	EXPECT(s, "data 8-8 A, fill 4-5 B");
	cr_expect_eq(tw_arb_next_seq(s->arb), 9);
	cr_expect_eq(s->arb->segs.count, 0);
	scene_free(s);
}

Test(arb_latest, one_datagram_fills_several_gaps, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 6);
	give_data(s, A, 8, 8);
	give_data(s, A, 11, 11);
	EXPECT(s, "gap 4-5, data 6-6 A, gap 7-7, data 8-8 A, gap 9-10, data 11-11 A");
	cr_expect_eq(give_data(s, B, 5, 12), TW_ARB_FIRST);
	EXPECT(s, "fill 5-5 B, fill 7-7 B, fill 9-10 B, data 12-12 B");
	cr_expect_eq(tw_arb_gaps(s->arb), 1);
	cr_expect_eq(s->arb->segs.count, 2, "one gap, and one piece of what is done");
	cr_expect_eq(give_data(s, A, 3, 13), TW_ARB_FIRST);
	EXPECT(s, "fill 4-4 A, data 13-13 A");
	cr_expect_eq(s->arb->segs.count, 0);
	scene_free(s);
}

Test(arb_latest, a_gap_fills_from_its_middle_and_its_ends, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 14, 14);
	give_data(s, B, 8, 9);
	EXPECT(s, "gap 4-13, data 14-14 A, fill 8-9 B");
	cr_expect_eq(s->arb->segs.count, 4);
	cr_expect_eq(give_data(s, A, 7, 8), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, A, 9, 10), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, B, 13, 14), TW_ARB_FIRST);
	EXPECT(s, "fill 7-7 A, fill 10-10 A, fill 13-13 B");
	cr_expect_eq(s->arb->segs.count, 4, "gap, done, gap, done");
	cr_expect_eq(give_data(s, B, 1, 4), TW_ARB_FIRST);
	cr_expect_eq(tw_arb_next_seq(s->arb), 5);
	cr_expect_eq(give_data(s, B, 11, 12), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, B, 4, 14), TW_ARB_FIRST);
	EXPECT(s, "fill 4-4 B, fill 11-12 B, fill 5-6 B");
	cr_expect_eq(s->arb->segs.count, 0);
	scene_free(s);
}

/* Between the runs of one datagram no gap is given up, whatever the time: the rest may fill it. */
Test(arb_latest, the_rest_of_a_datagram_is_not_too_late, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 6);
	give_data(s, A, 8, 8);
	EXPECT(s, "gap 4-5, data 6-6 A, gap 7-7, data 8-8 A");
	pass(s, 5 * WAIT_NS);
	tw_arb_idle(s->arb, B, s->now_ns);
	tw_arb_idle(s->arb, A, s->now_ns); /* not pulled: both gaps may be given up now */
	cr_expect_eq(give_data(s, B, 4, 9), TW_ARB_FIRST);
	EXPECT(s, "fill 4-5 B, fill 7-7 B, data 9-9 B");
	scene_free(s);
}

/* --- LOST, END, holes, sessions -------------------------------------------------------------- */

Test(arb_latest, what_nobody_brings_is_lost_in_order, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 6);
	pass(s, WAIT_NS / 2);
	give_data(s, A, 10, 10);
	give_data(s, B, 8, 8);
	EXPECT(s, "gap 4-5, data 6-6 A, gap 7-9, data 10-10 A, fill 8-8 B");
	pass(s, WAIT_NS / 2);
	idle_all(s);
	EXPECT(s, "lost 4-5");
	cr_expect_eq(tw_arb_next_seq(s->arb), 7);
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "lost 7-7, lost 9-9");
	cr_expect_eq(tw_arb_next_seq(s->arb), 11);
	cr_expect_eq(give_data(s, B, 4, 9), TW_ARB_DUPLICATE);
	EXPECT(s, "");
	scene_free(s);
}

Test(arb_latest, the_end_waits_for_what_is_missing, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 8);
	give_end(s, A, 11);
	EXPECT(s, "gap 4-5, data 6-8 A, gap 9-10");
	give_data(s, B, 9, 12);
	EXPECT(s, "fill 9-10 B"); /* 11 and 12 lie beyond the end */
	give_data(s, B, 4, 5);
	EXPECT(s, "fill 4-5 B, end 11");
	scene_free(s);
}

Test(arb_latest, a_hole_waits_for_its_turn, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 6);
	cr_expect_eq(give_hole(s, A, 7, 9), TW_ARB_FIRST);
	EXPECT(s, "gap 4-5, data 6-6 A");
	cr_expect_eq(give_data(s, B, 8, 10), TW_ARB_FIRST); /* whoever is first decides */
	EXPECT(s, "data 10-10 B");
	cr_expect_eq(give_hole(s, A, 5, 6), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, B, 4, 4), TW_ARB_FIRST);
	EXPECT(s, "fill 4-4 B, lost 5-5, lost 7-9");
	cr_expect_eq(tw_arb_next_seq(s->arb), 11);
	cr_expect_eq(give_hole(s, B, 11, 12), TW_ARB_FIRST);
	EXPECT(s, "lost 11-12");
	cr_expect_eq(s->arb->segs.count, 0);
	scene_free(s);
}

Test(arb_latest, a_new_session_ends_the_one_before, .timeout = 60)
{
	struct scene *s = latest(8, false);

	give_data(s, A, 6, 6);
	give_data(s, A, 8, 8);
	EXPECT(s, "gap 4-5, data 6-6 A, gap 7-7, data 8-8 A");
	s->spec.session = SESSION + 1;
	cr_expect_eq(give_data(s, A, 3, 4), TW_ARB_FIRST);
	EXPECT(s, "lost 4-5, lost 7-7, session 8 from 1, gap 1-2, data 3-4 A");
	cr_expect_eq(give_data(s, B, 1, 4), TW_ARB_FIRST);
	EXPECT(s, "fill 1-2 B");
	scene_free(s);
}

/* --- bounds ---------------------------------------------------------------------------------- */

/* Every other message comes, then the rest from the back: the list never grows beyond two segments a gap. */
Test(arb_latest, the_list_is_short, .timeout = 60)
{
	struct scene *s = latest(64, false);
	const uint64_t last_seq = 103;

	for (uint64_t seq = 5; seq <= last_seq; seq += 2) {
		cr_assert_eq(give_data(s, A, seq, seq), TW_ARB_FIRST);
		cr_assert_leq(s->arb->segs.count, 2 * tw_arb_gaps(s->arb));
	}
	cr_expect_eq(tw_arb_gaps(s->arb), 50);
	for (uint64_t seq = last_seq - 1; seq > 4; seq -= 2) {
		cr_assert_eq(give_data(s, B, seq, seq), TW_ARB_FIRST);
		cr_assert_leq(s->arb->segs.count, 2 * tw_arb_gaps(s->arb));
	}
	cr_expect_eq(s->arb->segs.count, 2);
	cr_expect_eq(give_data(s, B, 4, 4), TW_ARB_FIRST);
	cr_expect_eq(s->arb->segs.count, 0);
	cr_expect_eq(s->ledger.data_msgs, last_seq);
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	scene_free(s);
}

Test(arb_latest, a_full_list_gives_up_the_oldest_gap, .timeout = 60)
{
	struct scene *s = latest(1, false);
	uint64_t seq = 5;

	while (tw_arb_store_full(s->arb) == 0) {
		cr_assert_eq(give_data(s, A, seq, seq), TW_ARB_FIRST);
		cr_assert_leq(s->arb->segs.count, s->arb->seg_limit);
		seq += 2;
		cr_assert_lt(seq, 200);
	}
	cr_expect_eq(s->ledger.last_lost_first_seq, 4);
	cr_expect_eq(s->ledger.last_lost_end_seq, 5);
	/* a datagram that has found room keeps it while it is given out, though the list is full then */
	cr_expect_eq(tw_arb_gaps(s->arb), 7);
	cr_expect_eq(tw_arb_store_full(s->arb), 1);
	cr_expect_eq(give_data(s, A, seq - 1, seq), TW_ARB_FIRST,
		     "it goes on where the last ended");
	cr_expect_eq(tw_arb_store_full(s->arb), 1);
	scene_free(s);
}

Test(arb_latest, with_repair_a_full_list_sets_aside, .timeout = 60)
{
	struct scene *s = latest(1, true);
	uint64_t seq = 5;

	tw_arb_expect_repair(s->arb, true);
	while (give_data(s, A, seq, seq) == TW_ARB_FIRST) {
		seq += 2;
		cr_assert_lt(seq, 200);
	}
	cr_expect_eq(tw_arb_set_aside(s->arb), 1);
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	cr_expect_eq(s->ledger.lost_msgs, 0);
	tw_arb_asked(s->arb, 1, seq + 1);
	for (uint64_t fill_seq = 4; fill_seq <= seq; fill_seq++) {
		(void)give_history(s, fill_seq, fill_seq);
	}
	cr_expect_eq(s->ledger.data_msgs, seq);
	cr_expect_eq(s->arb->segs.count, 0);
	scene_free(s);
}

/* --- repair ---------------------------------------------------------------------------------- */

Test(arb_latest, history_fills_without_a_store, .timeout = 60)
{
	struct scene *s = latest(1, true);

	give_data(s, A, 6, 6);
	give_data(s, A, 9, 9);
	EXPECT(s, "gap 4-5, data 6-6 A, gap 7-8, data 9-9 A");
	pass(s, 20 * WAIT_NS);
	idle_all(s);
	EXPECT(s, "");
	tw_arb_asked(s->arb, 5, 8);
	cr_expect_eq(give_history(s, 3, 8), TW_ARB_REPAIRED);
	EXPECT(s, "fill 5-5 R, fill 7-7 R");
	cr_expect_eq(give_history(s, 3, 8), TW_ARB_REPAIR_NOTHING);
	cr_expect_eq(tw_arb_repaired_msgs(s->arb), 2);
	cr_expect_eq(give_up(s, 8, 8), 1);
	EXPECT(s, ""); /* in its turn */
	cr_expect_eq(give_up(s, 4, 4), 1);
	EXPECT(s, "lost 4-4, lost 8-8");
	cr_expect_eq(tw_arb_next_seq(s->arb), 10);
	scene_free(s);
}

Test(arb_latest, needs_no_memory_for_a_store, .timeout = 60)
{
	struct tw_arb_conf conf = usual();

	conf.store_dgrams = 1024;
	size_t ordered_bytes = tw_arb_size(&conf);
	conf.latest = true;
	cr_expect_leq(tw_arb_size(&conf) + 1024u * (MTU_BYTES - TW_WIRE_HDR_BYTES), ordered_bytes);
}
