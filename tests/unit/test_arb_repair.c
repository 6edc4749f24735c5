/* Line arbitration: open gaps as repair sees them, what comes from history, and giving up. */
#include <criterion/criterion.h>

#include "tests/unit/arb_scene.h"

static struct tw_arb_conf repairing(void)
{
	struct tw_arb_conf conf = usual();

	conf.repair = true;
	return conf;
}

static struct scene *running_repair(void)
{
	struct tw_arb_conf conf = repairing();

	return running(&conf);
}

/* Data whose place in the history is `pos`; returns where the next one begins. */
static uint64_t give_at(struct scene *s, uint32_t line, uint64_t pos, uint64_t first_seq,
			uint64_t last_seq)
{
	struct tw_ledger_spec spec = s->spec;

	spec.flags = 0;
	spec.first_seq = first_seq;
	spec.end_seq = last_seq + 1;
	uint32_t len = tw_ledger_dgram(s->bytes, MTU_BYTES, &spec);
	s->spec.log_pos = pos;
	give_data(s, line, first_seq, last_seq);
	return pos + len / 64;
}

static struct tw_arb_gap gap_at(struct scene *s, uint32_t index)
{
	struct tw_arb_gap gap;
	uint32_t id = tw_arb_gap_first(s->arb);

	while (index-- > 0) {
		cr_assert_neq(id, TW_ARB_NO_GAP);
		id = tw_arb_gap_after(s->arb, id);
	}
	cr_assert_neq(id, TW_ARB_NO_GAP);
	tw_arb_gap(s->arb, id, s->now_ns, &gap);
	return gap;
}

#define EXPECT_PLACE(gap, id, begin, end)               \
	do {                                            \
		cr_expect((gap).has_place);             \
		cr_expect_eq((gap).publisher, (id));    \
		cr_expect_eq((gap).begin_pos, (begin)); \
		cr_expect_eq((gap).end_pos, (end));     \
	} while (0)

/* --- gaps ------------------------------------------------------------------------------------ */

/* A line that has brought something is past it, whether there was room for it or not. */
Test(arb_repair, what_is_set_aside_is_due_when_every_line_has_shown_it, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();

	conf.store_dgrams = 1;
	struct scene *s = running(&conf);
	tw_arb_expect_repair(s->arb, true);
	cr_assert_eq(give_data(s, A, 5, 5), TW_ARB_HELD);
	cr_assert_eq(give_data(s, A, 7, 7), TW_ARB_SET_ASIDE);
	EXPECT(s, "gap 4-4, gap 6-7");
	cr_expect_not(gap_at(s, 1).due);
	cr_assert_eq(give_data(s, B, 5, 5), TW_ARB_DUPLICATE);
	cr_assert_eq(give_data(s, B, 7, 7), TW_ARB_SET_ASIDE);
	cr_expect(gap_at(s, 0).due);
	cr_expect(gap_at(s, 1).due);
	EXPECT(s, "");
	scene_free(s);
}

Test(arb_repair, time_gives_nothing_up, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 5, 5);
	give_data(s, B, 5, 5);
	pass(s, 1000 * WAIT_NS);
	idle_all(s);
	EXPECT(s, "gap 4-4, down A, down B");
	cr_expect_eq(give_up(s, 4, 4), 1);
	EXPECT(s, "lost 4-4, data 5-5 A*");
	cr_expect_eq(tw_arb_gaps(s->arb), 0);
	scene_free(s);
}

Test(arb_repair, due_when_passed_or_when_the_wait_is_over, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 5, 5);
	cr_expect_not(gap_at(s, 0).due);
	cr_expect_eq(tw_arb_shown_seq(s->arb), 4);
	give_data(s, B, 6, 6);
	cr_expect(gap_at(s, 0).due);
	cr_expect_not(gap_at(s, 0).passed, "a late datagram may come until the deadline");
	pass(s, WAIT_NS);
	cr_expect(gap_at(s, 0).passed);
	give_data(s, B, 9, 9);
	cr_expect_eq(gap_at(s, 1).first_seq, 7);
	cr_expect_eq(gap_at(s, 1).end_seq, 9);
	cr_expect_eq(gap_at(s, 1).seen_ns, s->now_ns);
	cr_expect_not(gap_at(s, 1).due);
	pass(s, WAIT_NS);
	cr_expect(gap_at(s, 1).due);
	cr_expect_not(gap_at(s, 1).passed, "A has not been polled");
	idle(s, A);
	cr_expect(gap_at(s, 1).passed);
	pass(s, 3 * HEARTBEAT_NS);
	idle_all(s);
	cr_expect_eq(tw_arb_shown_seq(s->arb), UINT64_MAX, "nobody waits for a line that is down");
	cr_expect_eq(tw_arb_gaps_seen(s->arb), 2);
	scene_free(s);
}

Test(arb_repair, a_gap_knows_its_place, .timeout = 60)
{
	struct scene *s = running_repair();
	uint64_t begin = give_at(s, A, 100, 4, 6);

	give_at(s, A, begin + 9, 12, 12);
	EXPECT_PLACE(gap_at(s, 0), 1, begin, begin + 9);
	/* from its middle: two gaps, each with its place */
	uint64_t middle = give_at(s, B, begin + 2, 8, 9);
	EXPECT_PLACE(gap_at(s, 0), 1, begin, begin + 2);
	EXPECT_PLACE(gap_at(s, 1), 1, middle, begin + 9);
	/* and from its ends */
	uint64_t after = give_at(s, B, begin, 7, 7);
	cr_expect_eq(tw_arb_gaps(s->arb), 1);
	EXPECT_PLACE(gap_at(s, 0), 1, middle, begin + 9);
	cr_expect_leq(after, begin + 9);
	give_at(s, B, begin + 7, 11, 11);
	EXPECT_PLACE(gap_at(s, 0), 1, middle, begin + 7);
	cr_expect_eq(gap_at(s, 0).first_seq, 10);
	cr_expect_eq(gap_at(s, 0).end_seq, 11);
	scene_free(s);
}

Test(arb_repair, a_heartbeat_says_where_the_next_one_begins, .timeout = 60)
{
	struct scene *s = running_repair();
	uint64_t begin = give_at(s, A, 100, 4, 6);

	s->spec.log_pos = begin + 3;
	give_heartbeat(s, A, 9);
	EXPECT_PLACE(gap_at(s, 0), 1, begin, begin + 3);
	s->spec.log_pos = begin + 8;
	give_heartbeat(s, A, 11);
	EXPECT_PLACE(gap_at(s, 1), 1, begin + 3, begin + 8);
	/* after a restart it tells where the new life goes on */
	s->spec.publisher = 2;
	s->spec.log_pos = 0;
	give_heartbeat(s, A, 11);
	s->spec.log_pos = 4;
	give_heartbeat(s, A, 12);
	EXPECT_PLACE(gap_at(s, 2), 2, 0, 4);
	scene_free(s);
}

Test(arb_repair, no_place_without_two_neighbours_of_one_life, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	struct scene *s = scene_new(&conf);

	s->spec.session = SESSION + 1;
	give_at(s, A, UINT64_MAX / 64, 5, 5);
	cr_expect_not(gap_at(s, 0).has_place, "nobody before it, and no position behind it");
	s->spec.publisher = 2;
	give_at(s, A, 200, 8, 8);
	cr_expect_not(gap_at(s, 1).has_place, "two lives");
	give_at(s, A, 100, 10, 10);
	cr_expect_not(gap_at(s, 2).has_place, "backwards");
	give_at(s, A, 1000000, 12, 12);
	cr_expect_not(gap_at(s, 3).has_place, "more than a message can take");
	give_at(s, A, UINT64_MAX / 64, 14, 14);
	cr_expect_not(gap_at(s, 4).has_place, "no position");
	give_at(s, A, 3, 16, 16);
	cr_expect_not(gap_at(s, 5).has_place, "no position before it");
	cr_expect_eq(tw_arb_gaps(s->arb), 6);
	scene_free(s);
}

Test(arb_repair, the_head_of_a_session_lies_at_the_begin_of_a_log, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	struct scene *s = scene_new(&conf);

	s->spec.publisher = 5;
	uint64_t end = give_at(s, A, 40, 9, 9);
	EXPECT_PLACE(gap_at(s, 0), 5, 0, 40);
	cr_expect(gap_at(s, 0).head);
	give_at(s, A, end + 4, 12, 12);
	cr_expect_not(gap_at(s, 1).head);
	/* what comes of it: the part before it is a head still, the part behind it is not */
	end = give_at(s, B, 10, 4, 5);
	EXPECT_PLACE(gap_at(s, 0), 5, 0, 10);
	cr_expect(gap_at(s, 0).head);
	EXPECT_PLACE(gap_at(s, 1), 5, end, 40);
	cr_expect_not(gap_at(s, 1).head);
	/* a log that begins later does not have it */
	s->spec.publisher = 6;
	give_at(s, B, 0, 3, 3);
	cr_expect_eq(gap_at(s, 0).end_seq, 3);
	cr_expect_not(gap_at(s, 0).has_place);
	scene_free(s);
}

Test(arb_repair, a_head_that_a_heartbeat_shows_has_a_place, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	struct scene *s = scene_new(&conf);

	s->spec.log_pos = 8;
	give_heartbeat(s, A, 3);
	EXPECT_PLACE(gap_at(s, 0), s->spec.publisher, 0, 8);
	cr_expect(gap_at(s, 0).head);
	scene_free(s);
}

/* It begins with what it hears: whatever is missing has somebody before it. */
Test(arb_repair, a_live_subscriber_has_no_head, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	conf.start = TW_START_LIVE;
	struct scene *s = scene_new(&conf);

	uint64_t end = give_at(s, A, 40, 9, 9);
	give_at(s, A, end + 4, 12, 12);
	cr_assert_eq(tw_arb_gaps(s->arb), 1);
	EXPECT_PLACE(gap_at(s, 0), s->spec.publisher, end, end + 4);
	cr_expect_not(gap_at(s, 0).head);
	scene_free(s);
}

Test(arb_repair, gaps_are_found_by_number, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 6, 7); /* missing: 4-5, 8-9 */
	give_data(s, A, 10, 10);
	uint32_t first = tw_arb_gap_first(s->arb);
	uint32_t second = tw_arb_gap_after(s->arb, first);
	cr_expect_eq(tw_arb_gap_after(s->arb, second), TW_ARB_NO_GAP);
	cr_expect_eq(tw_arb_gap_from(s->arb, 4, 100), first);
	cr_expect_eq(tw_arb_gap_from(s->arb, 5, 6), first);
	cr_expect_eq(tw_arb_gap_from(s->arb, 6, 8), TW_ARB_NO_GAP);
	cr_expect_eq(tw_arb_gap_from(s->arb, 6, 9), second);
	cr_expect_eq(tw_arb_gap_from(s->arb, 10, 100), TW_ARB_NO_GAP);
	cr_expect_eq(tw_arb_gap_from(s->arb, 11, 100), TW_ARB_NO_GAP);
	cr_expect_eq(tw_arb_gap_from(s->arb, 1, 4), TW_ARB_NO_GAP);
	scene_free(s);
}

Test(arb_repair, the_walker_moves_on_when_its_gap_goes_away, .timeout = 60)
{
	struct scene *s = running_repair();

	cr_expect_eq(tw_arb_gap_walker(s->arb), TW_ARB_NO_GAP);
	give_data(s, A, 5, 5);
	cr_expect_eq(tw_arb_gap_walker(s->arb), tw_arb_gap_first(s->arb), "from behind the end");
	give_data(s, A, 7, 7);
	give_data(s, A, 11, 11);
	uint32_t ids[3];
	ids[0] = tw_arb_gap_first(s->arb);
	ids[1] = tw_arb_gap_after(s->arb, ids[0]);
	ids[2] = tw_arb_gap_after(s->arb, ids[1]);
	tw_arb_gap_walk_to(s->arb, ids[1]);
	give_data(s, B, 4, 4);
	cr_expect_eq(tw_arb_gap_walker(s->arb), ids[1]);
	give_data(s, B, 6, 6);
	cr_expect_eq(tw_arb_gap_walker(s->arb), ids[2]);
	/* of a gap that is cut all parts keep the note */
	tw_arb_gap_note(s->arb, ids[2])->rounds = 7;
	give_data(s, B, 9, 9);
	cr_expect_eq(tw_arb_gap_walker(s->arb), tw_arb_gap_first(s->arb),
		     "none of its parts was walked over");
	cr_expect_eq(tw_arb_gap_note(s->arb, tw_arb_gap_first(s->arb))->rounds, 7);
	cr_expect_eq(tw_arb_gap_note(s->arb, ids[2])->rounds, 7);
	cr_expect_eq(tw_arb_gap_after(s->arb, tw_arb_gap_first(s->arb)), ids[2]);
	give_up(s, 8, 10);
	cr_expect_eq(tw_arb_gap_walker(s->arb), TW_ARB_NO_GAP);
	cr_expect_eq(tw_arb_gap_first(s->arb), TW_ARB_NO_GAP);
	scene_free(s);
}

/* --- from history ---------------------------------------------------------------------------- */

Test(arb_repair, what_comes_from_history_says_so, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 6, 6);
	give_data(s, A, 8, 8);
	tw_arb_asked(s->arb, 4, 8);
	cr_expect_eq(give_history(s, 7, 7), TW_ARB_REPAIRED);
	EXPECT(s, "gap 4-5, gap 7-7");
	cr_expect_eq(tw_arb_repaired_msgs(s->arb), 0, "not delivered yet");
	cr_expect_eq(give_history(s, 3, 7), TW_ARB_REPAIRED); /* trimmed on both sides */
	EXPECT(s, "fill 4-5 R, data 6-6 A*, fill 7-7 R*, data 8-8 A*");
	cr_expect_eq(tw_arb_repaired_msgs(s->arb), 3);
	cr_expect_eq(give_history(s, 4, 5), TW_ARB_REPAIR_NOTHING);
	scene_free(s);
}

Test(arb_repair, history_decides_what_was_asked_for_and_is_known, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 9, 9);
	EXPECT(s, "gap 4-8");
	cr_expect_eq(give_history(s, 4, 8), TW_ARB_REPAIR_NOTHING, "nothing was asked for");
	tw_arb_asked(s->arb, 5, 7);
	cr_expect_eq(give_history(s, 4, 8), TW_ARB_REPAIRED);
	EXPECT(s, ""); /* 5 and 6 are held, 4 is missing */
	give_data(s, B, 4, 4);
	EXPECT(s, "fill 4-4 B, fill 5-6 R*");
	tw_arb_asked(s->arb, 1, UINT64_MAX);
	cr_expect_eq(give_history(s, 7, 12), TW_ARB_REPAIRED);
	EXPECT(s, "fill 7-8 R, data 9-9 A*"); /* nobody has shown 10 */
	cr_expect_eq(tw_arb_next_seq(s->arb), 10);
	cr_expect_eq(give_history(s, 10, 12), TW_ARB_REPAIR_NOTHING);
	scene_free(s);
}

Test(arb_repair, what_is_cut_off_leaves_no_place, .timeout = 60)
{
	struct scene *s = running_repair();
	uint64_t begin = give_at(s, A, 100, 4, 4);

	give_at(s, A, begin + 20, 12, 12);
	tw_arb_asked(s->arb, 8, 9); /* one of three messages of that datagram */
	s->spec.log_pos = begin + 4;
	cr_expect_eq(give_history(s, 7, 9), TW_ARB_REPAIRED);
	cr_expect_eq(tw_arb_gaps(s->arb), 2);
	cr_expect_not(gap_at(s, 0).has_place);
	cr_expect_not(gap_at(s, 1).has_place);
	scene_free(s);
}

Test(arb_repair, strangers_are_refused, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 5, 5);
	tw_arb_asked(s->arb, 1, UINT64_MAX);
	s->spec.session = SESSION + 1;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIR_REFUSED);
	s->spec.session = SESSION - 1;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIR_REFUSED);
	s->spec.session = SESSION;
	s->spec.channel++;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIR_REFUSED);
	s->spec.channel--;
	s->spec.environment++;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIR_REFUSED);
	s->spec.environment--;
	s->spec.flags = TW_WIRE_REPLAY;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIR_REFUSED);
	s->spec.flags = TW_WIRE_HEARTBEAT | TW_WIRE_END;
	cr_expect_eq(give_history(s, 9, 8), TW_ARB_REPAIR_REFUSED);
	EXPECT(s, "gap 4-4");
	s->spec.flags = 0;
	cr_expect_eq(give_history(s, 4, 4), TW_ARB_REPAIRED);
	EXPECT(s, "fill 4-4 R, data 5-5 A*");
	scene_free(s);

	struct tw_arb_conf conf = repairing();
	s = scene_new(&conf);
	tw_arb_asked(s->arb, 1, UINT64_MAX);
	cr_expect_eq(give_history(s, 1, 1), TW_ARB_REPAIR_REFUSED, "no session yet");
	EXPECT(s, "");
	scene_free(s);
}

Test(arb_repair, a_datagram_longer_than_the_mtu_is_refused, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	conf.mtu_bytes = 256;
	struct scene *s = scene_new(&conf);

	give_data(s, A, 1, 1);
	give_data(s, A, 20, 20);
	tw_arb_asked(s->arb, 1, 20);
	cr_expect_eq(give_history(s, 2, 12), TW_ARB_REPAIR_REFUSED);
	cr_expect_eq(give_history(s, 3, 3), TW_ARB_REPAIRED);
	scene_free(s);
}

Test(arb_repair, history_changes_no_line, .timeout = 60)
{
	struct scene *s = running_repair();
	struct tw_arb_line_stats before;
	struct tw_arb_line_stats after;

	give_data(s, B, 6, 6); /* A is behind */
	tw_arb_line_stats(s->arb, A, &before);
	uint64_t shown_seq = tw_arb_shown_seq(s->arb);
	tw_arb_asked(s->arb, 4, 6);
	s->spec.packet_seq = 1000;
	cr_expect_eq(give_history(s, 4, 5), TW_ARB_REPAIRED);
	tw_arb_line_stats(s->arb, A, &after);
	cr_expect_eq(after.missing + after.reordered, before.missing + before.reordered);
	cr_expect_eq(tw_arb_shown_seq(s->arb), shown_seq);
	pass(s, 3 * HEARTBEAT_NS);
	s->text[0] = '\0';
	give_history(s, 4, 5);
	idle_all(s);
	EXPECT(s, "down A, down B");
	scene_free(s);
}

Test(arb_repair, a_hole_from_history_is_lost, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 8, 8);
	tw_arb_asked(s->arb, 4, 7);
	s->spec.flags = TW_WIRE_HOLE;
	cr_expect_eq(give_history(s, 2, 1000), TW_ARB_REPAIRED);
	EXPECT(s, "gap 4-7, lost 4-6"); /* not 7, which was not asked for */
	scene_free(s);
}

Test(arb_repair, a_full_store_refuses_what_would_have_to_be_held, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	conf.store_dgrams = 2;
	struct scene *s = running(&conf);

	give_data(s, A, 5, 5);
	give_data(s, A, 7, 7);
	tw_arb_asked(s->arb, 4, 7);
	cr_expect_eq(give_history(s, 6, 6), TW_ARB_REPAIR_NO_ROOM);
	cr_expect_eq(tw_arb_repair_no_room(s->arb), 1);
	EXPECT(s, "gap 4-4, gap 6-6");
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	cr_expect_eq(give_history(s, 4, 6), TW_ARB_REPAIRED); /* leaves at once */
	EXPECT(s, "fill 4-4 R, data 5-5 A*, fill 6-6 R, data 7-7 A*");
	cr_expect_eq(tw_arb_held(s->arb), 0);
	/* a line takes the next rung as ever */
	give_data(s, A, 9, 9);
	give_data(s, A, 11, 11);
	give_data(s, A, 13, 13);
	EXPECT(s, "gap 8-8, gap 10-10, lost 8-8, data 9-9 A*, gap 12-12");
	scene_free(s);
}

/* --- giving up ------------------------------------------------------------------------------- */

Test(arb_repair, gives_up_exactly_what_it_is_told, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 8, 8);
	give_data(s, A, 11, 11);
	EXPECT(s, "gap 4-7, gap 9-10");
	cr_expect_eq(give_up(s, 6, 9), 3);
	EXPECT(s, ""); /* in its turn */
	cr_expect_eq(tw_arb_gaps(s->arb), 2);
	cr_expect_eq(give_up(s, 1, 3), 0);
	cr_expect_eq(give_up(s, 12, 20), 0);
	cr_expect_eq(give_up(s, 6, 8), 0);
	cr_expect_eq(give_data(s, B, 6, 7), TW_ARB_DUPLICATE); /* too late */
	give_data(s, B, 4, 5);
	EXPECT(s, "fill 4-5 B, lost 6-7, data 8-8 A*, lost 9-9");
	give_data(s, B, 10, 10);
	EXPECT(s, "fill 10-10 B, data 11-11 A*");
	scene_free(s);
}

Test(arb_repair, giving_up_everything_reaches_the_end, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 6, 6);
	give_end(s, A, 10);
	EXPECT(s, "gap 4-5, gap 7-9");
	cr_expect_eq(give_up(s, 1, UINT64_MAX - 1), 5);
	EXPECT(s, "lost 4-5, data 6-6 A*, lost 7-9, end 10");
	scene_free(s);
}

Test(arb_repair, cuts_cannot_grow_the_list_without_end, .timeout = 60)
{
	struct tw_arb_conf conf = repairing();
	conf.store_dgrams = 1;
	struct scene *s = running(&conf);
	uint64_t lost_msgs = 0;

	give_data(s, A, 1000, 1000);
	s->text[0] = '\0';
	for (uint64_t seq = 5; seq < 999; seq += 2) {
		lost_msgs += give_up(s, seq, seq);
	}
	cr_expect_gt(lost_msgs, 2);
	cr_expect_lt(lost_msgs, 12, "%lu", lost_msgs);
	lost_msgs += give_up(s, 4, 999);
	cr_expect_eq(lost_msgs, 996);
	cr_expect_eq(tw_arb_next_seq(s->arb), 1001);
	scene_free(s);
}

Test(arb_repair, a_new_session_flushes_gaps, .timeout = 60)
{
	struct scene *s = running_repair();

	give_data(s, A, 5, 5);
	tw_arb_gap_walk_to(s->arb, tw_arb_gap_first(s->arb));
	s->spec.session = SESSION + 1;
	give_at(s, A, 7, 2, 2);
	EXPECT(s, "gap 4-4, lost 4-4, data 5-5 A*, session 8 from 1, gap 1-1");
	cr_expect_eq(tw_arb_gap_walker(s->arb), tw_arb_gap_first(s->arb));
	cr_expect_eq(tw_arb_gaps(s->arb), 1);
	EXPECT_PLACE(gap_at(s, 0), s->spec.publisher, 0, s->spec.log_pos);
	cr_expect(gap_at(s, 0).head, "the place before it is of another session");
	scene_free(s);
}
