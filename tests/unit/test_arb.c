/* Line arbitration: order, overlap, gaps, the store, END and holes, by directed cases. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/unit/arb_scene.h"

/* --- making ---------------------------------------------------------------------------------- */

Test(arb, refuses_what_it_cannot_work_with, .timeout = 60)
{
	struct tw_arb *arb = (void *)1;
	struct tw_arb_conf good = usual();
	size_t size = tw_arb_size(&good);
	uint8_t *memory = aligned_alloc(64, size + 64);
	struct tw_arb_conf bad[8];

	for (size_t i = 0; i < 8; i++) {
		bad[i] = good;
	}
	bad[0].lines = 0;
	bad[1].lines = 3;
	bad[2].store_dgrams = 0;
	bad[3].store_dgrams = TW_ARB_STORE_MAX_DGRAMS + 1;
	bad[4].mtu_bytes = TW_WIRE_HDR_BYTES;
	bad[5].mtu_bytes = TW_WIRE_DGRAM_MAX_BYTES + 1;
	bad[6].heartbeat_max_ns = 0;
	bad[7].heartbeat_max_ns = UINT64_MAX / 2;
	for (size_t i = 0; i < 8; i++) {
		cr_expect_eq(tw_arb_size(&bad[i]), 0, "%zu", i);
		cr_expect_eq(tw_arb_init(&arb, memory, size, &bad[i], 0), TW_EARG, "%zu", i);
		cr_expect_null(arb);
	}
	cr_expect_eq(tw_arb_init(&arb, memory, size - 1, &good, 0), TW_EARG);
	cr_expect_eq(tw_arb_init(&arb, memory + 8, size, &good, 0), TW_EARG);
	cr_expect_eq(tw_arb_init(&arb, NULL, size, &good, 0), TW_EARG);
	cr_expect_eq(tw_arb_init(&arb, memory, size, &good, 0), TW_OK);
	cr_expect_eq((void *)arb, (void *)memory);
	cr_expect_eq(tw_arb_session(arb), 0);
	free(memory);
}

/* --- order and overlap ----------------------------------------------------------------------- */

Test(arb, delivers_in_order_and_drops_the_other_line, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_data(s, B, 4, 6), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, A, 4, 6), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, A, 7, 7), TW_ARB_FIRST);
	EXPECT(s, "data 4-6 B, data 7-7 A");
	cr_expect_eq(tw_arb_next_seq(s->arb), 8);
	cr_expect_eq(tw_arb_session(s->arb), SESSION);
	scene_free(s);
}

Test(arb, trims_to_the_new_half, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_data(s, B, 2, 5), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, A, 1, 5), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, A, 1, 6), TW_ARB_FIRST);
	EXPECT(s, "data 4-5 B, data 6-6 A");
	scene_free(s);
}

Test(arb, holds_back_and_fills, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_data(s, A, 6, 7), TW_ARB_HELD);
	cr_expect_eq(tw_arb_held(s->arb), 1);
	cr_expect_eq(give_data(s, A, 6, 7), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, B, 7, 7), TW_ARB_DUPLICATE);
	EXPECT(s, "gap 4-5");
	cr_expect_eq(give_data(s, B, 4, 5), TW_ARB_FIRST);
	EXPECT(s, "fill 4-5 B, data 6-7 A*");
	cr_expect_eq(tw_arb_held(s->arb), 0);
	scene_free(s);
}

Test(arb, one_datagram_fills_several_gaps, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 6, 6);
	give_data(s, A, 8, 8);
	EXPECT(s, "gap 4-5, gap 7-7");
	cr_expect_eq(give_data(s, B, 5, 9), TW_ARB_HELD);
	EXPECT(s, "");
	cr_expect_eq(tw_arb_held(s->arb), 3);
	cr_expect_eq(give_data(s, A, 4, 4), TW_ARB_FIRST);
	EXPECT(s, "fill 4-4 A, fill 5-5 B*, data 6-6 A*, fill 7-7 B*, data 8-8 A*, data 9-9 B*");
	cr_expect_eq(tw_arb_held(s->arb), 0);

	give_data(s, A, 12, 12);
	give_data(s, A, 14, 14);
	cr_expect_eq(give_data(s, B, 8, 15), TW_ARB_FIRST);
	EXPECT(s, "gap 10-11, gap 13-13, fill 10-11 B, data 12-12 A*, fill 13-13 B, data 14-14 A*, "
		  "data 15-15 B");
	scene_free(s);
}

Test(arb, fills_a_gap_from_its_middle, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 10, 10);
	cr_expect_eq(give_data(s, B, 6, 7), TW_ARB_HELD);
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "gap 4-9, lost 4-5, fill 6-7 B*, lost 8-9, data 10-10 A*");
	scene_free(s);
}

/* --- giving up ------------------------------------------------------------------------------- */

Test(arb, waits_for_the_deadline_and_for_every_line, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 5, 5);
	EXPECT(s, "gap 4-4");
	pass(s, WAIT_NS - 1);
	idle_all(s); /* empty, but before the deadline: counts for nothing later */
	EXPECT(s, "");
	pass(s, 1);
	idle(s, A);
	EXPECT(s, ""); /* B was not polled since */
	give_data(s, B, 1, 3);
	pass(s, 10 * WAIT_NS);
	idle(s, A);
	EXPECT(s, ""); /* B works off a backlog: however long that takes */
	give_data(s, B, 4, 5);
	EXPECT(s, "fill 4-4 B, data 5-5 A*");
	scene_free(s);
}

Test(arb, gives_up_when_polled_empty_after_the_deadline, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 5, 5);
	pass(s, WAIT_NS);
	idle(s, B);
	EXPECT(s, "gap 4-4, lost 4-4, data 5-5 A*"); /* A is past it */
	cr_expect_eq(give_data(s, B, 4, 4), TW_ARB_DUPLICATE);
	EXPECT(s, "");
	cr_expect_eq(s->ledger.lost_msgs, 1);
	scene_free(s);
}

Test(arb, waits_for_a_line_that_was_not_polled_yet, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);

	give_data(s, A, 1, 1);
	give_data(s, A, 3, 3);
	pass(s, 2 * WAIT_NS);
	idle(s, A);
	EXPECT(s, "up A, session 7 from 1, data 1-1 A, gap 2-2");
	give_data(s, B, 1, 2);
	EXPECT(s, "up B, fill 2-2 B, data 3-3 A*");
	scene_free(s);

	s = scene_new(&conf);
	give_data(s, A, 1, 1);
	give_data(s, A, 3, 3);
	pass(s, 3 * HEARTBEAT_NS); /* nobody polls B at all: not for ever */
	idle(s, A);
	EXPECT(s, "up A, session 7 from 1, data 1-1 A, gap 2-2, down A, lost 2-2, data 3-3 A*");
	scene_free(s);
}

Test(arb, gives_up_when_both_lines_are_past, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 5, 5);
	give_data(s, B, 5, 5);
	EXPECT(s, "gap 4-4"); /* both past, but a late one may come until the deadline */
	pass(s, WAIT_NS);
	give_data(s, A, 6, 6);
	EXPECT(s, "lost 4-4, data 5-5 A*, data 6-6 A*");
	scene_free(s);
}

Test(arb, a_datagram_in_hand_is_never_given_up, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 9, 9);
	give_data(s, B, 9, 9);
	pass(s, 5 * WAIT_NS);
	/* The first chance to give the gap up is the very datagram that fills part of it. */
	cr_expect_eq(give_data(s, B, 5, 6), TW_ARB_HELD);
	EXPECT(s, "gap 4-8, lost 4-4, fill 5-6 B*, lost 7-8, data 9-9 A*");
	scene_free(s);
}

Test(arb, each_gap_has_its_own_deadline, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 5, 5);
	pass(s, WAIT_NS / 2);
	give_data(s, A, 7, 7);
	pass(s, WAIT_NS / 2);
	idle_all(s);
	EXPECT(s, "gap 4-4, gap 6-6, lost 4-4, data 5-5 A*");
	pass(s, WAIT_NS / 2);
	idle_all(s);
	EXPECT(s, "lost 6-6, data 7-7 A*");
	scene_free(s);
}

Test(arb, gap_time_is_reported, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = running(&conf);
	struct tw_dgram dgram;
	struct tw_arb_run run;

	give_data(s, A, 5, 5);
	pass(s, 400);
	s->spec.first_seq = 4;
	s->spec.end_seq = 5;
	s->spec.send_ns = 123;
	uint32_t len = tw_ledger_dgram(s->bytes, MTU_BYTES, &s->spec);
	cr_assert_eq(tw_dgram_parse(&dgram, s->bytes, len), TW_DGRAM_OK);
	tw_arb_input(s->arb, B, &dgram, 456, s->now_ns);
	cr_assert(tw_arb_next(s->arb, &run));
	cr_expect_eq(run.gap_ns, 400);
	cr_expect(run.fills_gap && !run.from_store);
	cr_expect_eq(run.send_ns, 123);
	cr_expect_eq(run.recv_ns, 456);
	cr_expect_eq(run.msgs, dgram.msgs, "straight from the datagram");
	cr_assert(tw_arb_next(s->arb, &run));
	cr_expect_eq(run.gap_ns, 0);
	cr_expect(!run.fills_gap && run.from_store);
	cr_assert_not(tw_arb_next(s->arb, &run));
	scene_free(s);
}

/* --- the store ------------------------------------------------------------------------------- */

Test(arb, full_store_gives_up_the_oldest_gap, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.store_dgrams = 2;
	struct scene *s = running(&conf);

	give_data(s, A, 5, 5);
	give_data(s, A, 7, 7);
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	EXPECT(s, "gap 4-4, gap 6-6");
	cr_expect_eq(give_data(s, A, 9, 9), TW_ARB_HELD);
	EXPECT(s, "lost 4-4, data 5-5 A*, gap 8-8");
	cr_expect_eq(tw_arb_store_full(s->arb), 1);
	cr_expect_eq(tw_arb_held(s->arb), 2);
	cr_expect_eq(give_data(s, B, 6, 6), TW_ARB_FIRST);
	EXPECT(s, "fill 6-6 B, data 7-7 A*");
	scene_free(s);
}

Test(arb, full_store_keeps_what_the_datagram_in_hand_brings, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.store_dgrams = 1;
	struct scene *s = running(&conf);

	give_data(s, A, 10, 10);
	cr_expect_eq(give_data(s, B, 6, 7), TW_ARB_HELD);
	EXPECT(s, "gap 4-9, lost 4-5, fill 6-7 B");
	cr_expect_eq(give_data(s, B, 8, 9), TW_ARB_FIRST);
	EXPECT(s, "fill 8-9 B, data 10-10 A*");
	cr_expect_eq(tw_arb_held(s->arb), 0);
	scene_free(s);
}

Test(arb, full_store_does_not_reuse_what_it_lends, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.store_dgrams = 1;
	struct scene *s = running(&conf);

	give_data(s, A, 5, 5);
	cr_expect_eq(give_data(s, A, 8, 8), TW_ARB_HELD); /* held while 5 is still being read */
	EXPECT(s, "gap 4-4, lost 4-4, data 5-5 A*, gap 6-7");
	cr_expect_eq(give_data(s, B, 6, 7), TW_ARB_FIRST);
	EXPECT(s, "fill 6-7 B, data 8-8 A*");
	scene_free(s);
}

Test(arb, duplicates_need_no_room, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.store_dgrams = 1;
	struct scene *s = running(&conf);

	give_data(s, A, 5, 5);
	cr_expect_eq(give_data(s, B, 5, 5), TW_ARB_DUPLICATE);
	cr_expect_eq(give_heartbeat(s, B, 6), TW_ARB_HEARTBEAT);
	EXPECT(s, "gap 4-4");
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	scene_free(s);
}

Test(arb, heartbeats_and_holes_cannot_grow_the_list, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.store_dgrams = 1;
	struct scene *s = running(&conf);

	for (uint64_t seq = 5; seq < 900; seq += 2) {
		give_heartbeat(s, A, seq);
		s->text[0] = '\0';
		give_hole(s, B, seq + 1, seq + 1);
		s->text[0] = '\0';
	}
	cr_expect_gt(tw_arb_store_full(s->arb), 0);
	give_end(s, A, 901);
	pass(s, WAIT_NS);
	idle_all(s);
	cr_expect(s->ledger.ended);
	cr_expect_eq(s->ledger.lost_msgs, 897);
	scene_free(s);
}

Test(arb, a_lie_about_the_future_is_one_lost_range, .timeout = 60)
{
	struct scene *s = running_usual();
	uint64_t far = 1ull << 60;

	cr_expect_eq(give_data(s, A, far, far), TW_ARB_HELD);
	give_data(s, A, 4, 4);
	EXPECT(s, "gap 4-1152921504606846975, fill 4-4 A");
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "lost 5-1152921504606846975, data 1152921504606846976-1152921504606846976 A*");
	cr_expect_eq(give_hole(s, A, far + 1, UINT64_MAX - 1), TW_ARB_FIRST);
	EXPECT(s, "lost 1152921504606846977-18446744073709551614");
	give_end(s, A, UINT64_MAX);
	EXPECT(s, "end 18446744073709551615");
	scene_free(s);
}

/* --- heartbeats and END ---------------------------------------------------------------------- */

Test(arb, heartbeat_reveals_a_lost_tail, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_heartbeat(s, A, 4), TW_ARB_HEARTBEAT);
	EXPECT(s, "");
	give_heartbeat(s, A, 6);
	give_heartbeat(s, B, 6);
	EXPECT(s, "gap 4-5");
	give_data(s, B, 5, 7);
	EXPECT(s, "");
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "lost 4-4, fill 5-5 B*, data 6-7 B*");
	scene_free(s);
}

Test(arb, end_waits_for_everything_before_it, .timeout = 60)
{
	struct scene *s = running_usual();

	give_end(s, A, 6);
	EXPECT(s, "gap 4-5");
	give_data(s, B, 4, 4);
	EXPECT(s, "fill 4-4 B");
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "lost 5-5, end 6");
	give_end(s, B, 6);
	give_data(s, B, 5, 5);
	idle_all(s);
	EXPECT(s, "");
	cr_expect_eq(tw_arb_contradictions(s->arb), 0);
	scene_free(s);
}

Test(arb, an_empty_session_ends, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);

	give_end(s, B, 1);
	EXPECT(s, "up B, session 7 from 1, end 1");
	scene_free(s);
}

Test(arb, contradictions_of_an_end_are_refused_and_counted, .timeout = 60)
{
	struct scene *s = running_usual();

	give_end(s, A, 3); /* smaller than what was delivered: not believed */
	EXPECT(s, "");
	cr_expect_eq(tw_arb_contradictions(s->arb), 1);
	give_end(s, A, 6);
	EXPECT(s, "gap 4-5");
	cr_expect_eq(give_data(s, B, 6, 8), TW_ARB_DUPLICATE); /* beyond the end */
	cr_expect_eq(tw_arb_contradictions(s->arb), 2);
	give_heartbeat(s, B, 9);
	give_end(s, B, 7);
	give_end(s, B, 5);
	cr_expect_eq(tw_arb_contradictions(s->arb), 5);
	EXPECT(s, "");
	cr_expect_eq(give_data(s, B, 4, 8), TW_ARB_FIRST); /* its half before the end is good */
	EXPECT(s, "fill 4-5 B, end 6");
	cr_expect_eq(tw_arb_contradictions(s->arb), 6);
	cr_expect_eq(give_hole(s, B, 6, 9), TW_ARB_DUPLICATE);
	EXPECT(s, "");
	scene_free(s);
}

/* --- holes ----------------------------------------------------------------------------------- */

Test(arb, hole_in_order_is_lost_at_once, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_hole(s, A, 4, 9), TW_ARB_FIRST);
	cr_expect_eq(give_hole(s, B, 4, 9), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, B, 10, 10), TW_ARB_FIRST);
	EXPECT(s, "lost 4-9, data 10-10 B");
	cr_expect_eq(give_hole(s, A, 8, 11), TW_ARB_FIRST); /* overlaps what was delivered */
	EXPECT(s, "lost 11-11");
	scene_free(s);
}

Test(arb, hole_ahead_waits_its_turn, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(give_hole(s, A, 6, 8), TW_ARB_HELD);
	cr_expect_eq(tw_arb_held(s->arb), 0); /* needs no slot */
	cr_expect_eq(give_data(s, A, 9, 9), TW_ARB_HELD);
	EXPECT(s, "gap 4-5");
	cr_expect_eq(give_data(s, B, 7, 7), TW_ARB_DUPLICATE); /* the hole was first */
	give_data(s, B, 4, 5);
	EXPECT(s, "fill 4-5 B, lost 6-8, data 9-9 A*");
	scene_free(s);
}

Test(arb, hole_takes_nothing_back, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 6, 6);
	give_data(s, A, 9, 9);
	EXPECT(s, "gap 4-5, gap 7-8");
	cr_expect_eq(give_hole(s, B, 5, 11), TW_ARB_HELD);
	EXPECT(s, "");
	give_data(s, A, 4, 4);
	EXPECT(s, "fill 4-4 A, lost 5-5, data 6-6 A*, lost 7-8, data 9-9 A*, lost 10-11");
	scene_free(s);
}

Test(arb, hole_inside_a_gap_leaves_the_rest_waiting, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 10, 10);
	give_hole(s, A, 6, 7);
	give_data(s, B, 4, 5);
	EXPECT(s, "gap 4-9, fill 4-5 B, lost 6-7");
	give_data(s, B, 8, 9);
	EXPECT(s, "fill 8-9 B, data 10-10 A*");
	scene_free(s);
}
