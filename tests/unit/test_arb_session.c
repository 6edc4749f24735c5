/* Line arbitration: sessions, lines that come and go, and line statistics, by directed cases. */
#include <criterion/criterion.h>

#include "tests/unit/arb_scene.h"

/* --- sessions -------------------------------------------------------------------------------- */

Test(arb, starts_at_one_or_live, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);
	cr_expect_eq(give_data(s, A, 5, 6), TW_ARB_HELD);
	EXPECT(s, "up A, session 7 from 1, gap 1-4");
	pass(s, WAIT_NS);
	idle_all(s);
	EXPECT(s, "lost 1-4, data 5-6 A*");
	scene_free(s);

	conf.start = TW_START_LIVE;
	s = scene_new(&conf);
	cr_expect_eq(give_data(s, A, 5, 6), TW_ARB_FIRST);
	cr_expect_eq(give_data(s, B, 3, 4), TW_ARB_DUPLICATE);
	cr_expect_eq(give_data(s, B, 4, 7), TW_ARB_FIRST);
	EXPECT(s, "up A, session 7 from 5, data 5-6 A, up B, data 7-7 B");
	scene_free(s);

	s = scene_new(&conf);
	give_heartbeat(s, A, 9);
	EXPECT(s, "up A, session 7 from 9");
	scene_free(s);
}

Test(arb, a_new_session_that_goes_on_with_our_number_is_another, .timeout = 60)
{
	struct scene *s = running_usual();

	s->spec.session++;
	cr_expect_eq(give_data(s, A, 4, 5), TW_ARB_HELD);
	EXPECT(s, "session 8 from 1, gap 1-3");
	scene_free(s);
}

Test(arb, new_session_flushes_the_old_one, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 6, 6);
	give_hole(s, A, 8, 8);
	give_heartbeat(s, A, 11);
	EXPECT(s, "gap 4-5, gap 7-7, gap 9-10");
	s->spec.session = SESSION + 1;
	cr_expect_eq(give_data(s, B, 2, 2), TW_ARB_HELD);
	EXPECT(s,
	       "lost 4-5, data 6-6 A*, lost 7-7, lost 8-8, lost 9-10, session 8 from 1, gap 1-1");
	cr_expect_eq(tw_arb_store_full(s->arb), 0);
	s->spec.session = SESSION;
	cr_expect_eq(give_data(s, A, 11, 11), TW_ARB_STALE);
	s->spec.session = SESSION + 1;
	give_data(s, A, 1, 1);
	EXPECT(s, "fill 1-1 A, data 2-2 B*");
	scene_free(s);
}

Test(arb, lines_begin_anew_with_a_session, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 4, 8);
	give_data(s, B, 4, 8);
	s->spec.session = SESSION + 1;
	give_data(s, A, 5, 5);
	EXPECT(s, "data 4-8 A, session 8 from 1, gap 1-4");
	pass(s, WAIT_NS);
	idle(s, A);
	EXPECT(s, ""); /* B was past 4, but in the session before */
	give_data(s, B, 1, 4);
	EXPECT(s, "fill 1-4 B, data 5-5 A*");
	scene_free(s);
}

Test(arb, new_session_after_an_announced_end, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.start = TW_START_LIVE;
	struct scene *s = running(&conf);

	give_end(s, A, 6);
	EXPECT(s, "gap 4-5");
	s->spec.session = SESSION + 3;
	cr_expect_eq(give_data(s, B, 20, 21), TW_ARB_FIRST);
	EXPECT(s, "lost 4-5, end 6, session 10 from 20, data 20-21 B");
	scene_free(s);
}

Test(arb, a_lower_session_takes_over_only_when_alone_for_long, .timeout = 60)
{
	struct scene *s = running_usual();

	s->spec.session = SESSION - 1;
	cr_expect_eq(give_data(s, A, 1, 1), TW_ARB_STALE);
	pass(s, TAKEOVER_NS - 1);
	cr_expect_eq(give_data(s, A, 2, 2), TW_ARB_STALE);
	s->spec.session = SESSION;
	give_data(s, B, 4, 4); /* the higher one lives: begin to wait anew */
	EXPECT(s, "down A, data 4-4 B");
	s->spec.session = SESSION - 1;
	cr_expect_eq(give_data(s, A, 3, 3), TW_ARB_STALE);
	pass(s, TAKEOVER_NS - 1);
	cr_expect_eq(give_data(s, A, 4, 4), TW_ARB_STALE);
	pass(s, 1);
	cr_expect_eq(give_data(s, A, 5, 5), TW_ARB_HELD);
	EXPECT(s, "up A, session 6 from 1, gap 1-4");
	s->spec.session = SESSION;
	cr_expect_eq(give_data(s, B, 5, 5),
		     TW_ARB_STALE); /* what is left of it brings nothing back */
	s->spec.session = SESSION + 1;
	cr_expect_eq(give_data(s, B, 1, 1), TW_ARB_FIRST);
	EXPECT(s, "lost 1-4, data 5-5 A*, session 8 from 1, data 1-1 B");
	scene_free(s);

	struct tw_arb_conf conf = usual();
	conf.session_takeover_ns = 0;
	s = running(&conf);
	s->spec.session = SESSION - 1;
	give_data(s, A, 1, 1);
	pass(s, 1ull << 62);
	cr_expect_eq(give_data(s, A, 2, 2), TW_ARB_STALE);
	scene_free(s);
}

/* After a stall the new session may come on one line before the other's queue has been worked off. */
Test(arb, a_backlog_of_the_old_session_is_not_silence, .timeout = 60)
{
	struct scene *s = running_usual();

	pass(s, 10 * HEARTBEAT_NS);
	s->spec.session = SESSION + 1;
	give_data(s, A, 1, 1);
	give_data(s, A, 3, 3);
	EXPECT(s, "session 8 from 1, data 1-1 A, gap 2-2");
	s->spec.session = SESSION;
	pass(s, WAIT_NS);
	cr_expect_eq(give_data(s, B, 4, 4), TW_ARB_STALE);
	idle(s, A);
	pass(s, 3 * HEARTBEAT_NS - WAIT_NS - 1);
	cr_expect_eq(give_data(s, B, 5, 5), TW_ARB_STALE);
	EXPECT(s, "");
	s->spec.session = SESSION + 1;
	give_data(s, B, 1, 2);
	EXPECT(s, "fill 2-2 B, data 3-3 A*");
	/* but a line that brings nothing else for so long is down */
	s->spec.session = SESSION + 2;
	give_data(s, A, 1, 1);
	give_data(s, A, 3, 3);
	pass(s, 3 * HEARTBEAT_NS);
	s->spec.session = SESSION + 1;
	cr_expect_eq(give_data(s, B, 3, 3), TW_ARB_STALE);
	EXPECT(s, "session 9 from 1, data 1-1 A, gap 2-2, down B, lost 2-2, data 3-3 A*");
	scene_free(s);
}

Test(arb, foreign_datagrams_touch_nothing, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);

	s->spec.channel = CHANNEL + 1;
	cr_expect_eq(give_data(s, A, 1, 1), TW_ARB_FOREIGN_CHANNEL);
	s->spec.channel = CHANNEL;
	s->spec.environment = ENVIRONMENT + 1;
	cr_expect_eq(give_data(s, A, 1, 1), TW_ARB_FOREIGN_ENVIRONMENT);
	s->spec.environment = ENVIRONMENT;
	cr_expect_eq(give_flags(s, A, TW_WIRE_REPLAY, 1, 2), TW_ARB_FOREIGN_REPLAY);
	EXPECT(s, "");
	cr_expect_eq(tw_arb_session(s->arb), 0);
	scene_free(s);

	conf.accept_replay = true;
	s = scene_new(&conf);
	cr_expect_eq(give_flags(s, A, TW_WIRE_REPLAY, 1, 2), TW_ARB_FIRST);
	EXPECT(s, "up A, session 7 from 1, data 1-1 A");
	scene_free(s);
}

/* --- lines ----------------------------------------------------------------------------------- */

Test(arb, nobody_waits_for_a_line_that_is_down, .timeout = 60)
{
	struct scene *s = running_usual();

	pass(s, 3 * HEARTBEAT_NS - 1);
	give_heartbeat(s, A, 4);
	idle_all(s);
	EXPECT(s, "");
	pass(s, 1);
	idle_all(s);
	EXPECT(s, "down B");
	give_data(s, A, 5, 5);
	pass(s, WAIT_NS);
	idle(s, A);
	EXPECT(s, "gap 4-4, lost 4-4, data 5-5 A*");
	cr_expect_eq(give_data(s, B, 4, 5), TW_ARB_DUPLICATE);
	EXPECT(s, "up B");

	struct tw_arb_line_stats stats;
	tw_arb_line_stats(s->arb, B, &stats);
	cr_expect(stats.up);
	cr_expect_eq(stats.downs, 1);
	scene_free(s);
}

Test(arb, a_backlog_does_not_look_like_silence, .timeout = 60)
{
	struct scene *s = running_usual();

	pass(s, 10 * HEARTBEAT_NS); /* the process was stopped; both queues are full */
	give_data(s, A, 4, 5);
	give_data(s, B, 4, 5);
	idle_all(s);
	EXPECT(s, "data 4-5 A");
	scene_free(s);
}

Test(arb, a_line_that_was_never_heard_is_said_to_be_down_once, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);
	struct tw_arb_line_stats stats;

	give_data(s, A, 1, 1);
	for (int i = 0; i < 10; i++) {
		pass(s, HEARTBEAT_NS);
		give_heartbeat(s, A, 2);
		idle_all(s);
	}
	EXPECT(s, "up A, session 7 from 1, data 1-1 A, down B");
	tw_arb_line_stats(s->arb, B, &stats);
	cr_expect(!stats.up);
	cr_expect_eq(stats.downs, 0);
	scene_free(s);
}

Test(arb, a_line_that_brings_only_an_older_session_is_not_waited_for, .timeout = 60)
{
	struct scene *s = running_usual();

	give_data(s, A, 5, 5);
	s->spec.session = SESSION - 1;
	for (int i = 0; i < 30; i++) {
		pass(s, HEARTBEAT_NS / 10);
		cr_expect_eq(give_heartbeat(s, B, 9), TW_ARB_STALE); /* never polled empty */
		s->spec.session = SESSION;
		give_heartbeat(s, A, 6);
		s->spec.session = SESSION - 1;
	}
	EXPECT(s, "gap 4-4, down B, lost 4-4, data 5-5 A*");
	scene_free(s);
}

Test(arb, what_every_line_has_shown, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect_eq(tw_arb_shown_seq(s->arb), 4);
	give_data(s, A, 4, 5);
	cr_expect_eq(tw_arb_shown_seq(s->arb), 4, "B has not");
	give_data(s, B, 4, 6);
	cr_expect_eq(tw_arb_shown_seq(s->arb), 6, "A has not");
	give_heartbeat(s, A, 7);
	cr_expect_eq(tw_arb_shown_seq(s->arb), 7);
	scene_free(s);
}

Test(arb, one_line_only, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	conf.lines = 1;
	struct scene *s = scene_new(&conf);

	give_data(s, A, 1, 2);
	give_data(s, A, 4, 4);
	pass(s, WAIT_NS);
	idle(s, A);
	EXPECT(s, "up A, session 7 from 1, data 1-2 A, gap 3-3, lost 3-3, data 4-4 A*");
	scene_free(s);
}

/* --- line statistics ------------------------------------------------------------------------- */

static enum tw_arb_result give_packet(struct scene *scene, uint32_t publisher, uint64_t packet_seq)
{
	scene->spec.publisher = publisher;
	scene->spec.packet_seq = packet_seq;
	return give_data(scene, A, 1, 1);
}

static struct tw_arb_line_stats stats_of_a(const struct scene *scene)
{
	struct tw_arb_line_stats stats;

	tw_arb_line_stats(scene->arb, A, &stats);
	return stats;
}

Test(arb, counts_missing_packets_once_they_cannot_come, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);

	give_packet(s, 1, 10); /* what came before we listened is not missing */
	give_packet(s, 1, 13);
	idle(s, A);
	cr_expect_eq(stats_of_a(s).missing, 0, "11 and 12 may still come");
	give_packet(s, 1, 12);
	give_packet(s, 1, 12); /* a duplicate is not reordered */
	cr_expect_eq(stats_of_a(s).reordered, 1);
	pass(s, WAIT_NS);
	idle(s, A);
	cr_expect_eq(stats_of_a(s).missing, 1);
	give_packet(s, 1, 14 + 100); /* 14 to 113 */
	pass(s, WAIT_NS);
	idle(s, A);
	cr_expect_eq(stats_of_a(s).missing, 101);
	s->spec.packet_seq = 118; /* a heartbeat says that 115 to 117 were sent */
	give_heartbeat(s, A, 2);
	for (uint64_t seq = 118; seq < 118 + 80; seq++) { /* never idle: they leave the window */
		give_packet(s, 1, seq);
	}
	cr_expect_eq(stats_of_a(s).missing, 104);
	cr_expect_eq(stats_of_a(s).reordered, 1);
	scene_free(s);
}

Test(arb, a_restarted_publisher_misses_nothing, .timeout = 60)
{
	struct tw_arb_conf conf = usual();
	struct scene *s = scene_new(&conf);

	for (uint64_t seq = 1; seq <= 1000; seq++) {
		give_packet(s, 1, seq);
	}
	for (uint64_t seq = 1; seq <= 10; seq++) {
		give_packet(s, 2, seq);
		give_packet(s, 1,
			    1000 + seq); /* and two that alternate do not disturb each other */
	}
	for (uint32_t life = 10; life < 30; life++) { /* nor do more than are remembered */
		give_packet(s, life, 5);
	}
	pass(s, WAIT_NS);
	idle(s, A);
	cr_expect_eq(stats_of_a(s).missing, 0);
	cr_expect_eq(stats_of_a(s).reordered, 0);
	s->spec.session++;
	give_packet(s, 1, 1); /* a new session: lives begin anew */
	pass(s, WAIT_NS);
	idle(s, A);
	cr_expect_eq(stats_of_a(s).missing, 0);
	cr_expect_eq(stats_of_a(s).reordered, 0);
	scene_free(s);
}

/* --- what is said of changes ----------------------------------------------------------------- */

Test(arb, an_empty_line_is_worth_a_pull_when_time_has_changed_something, .timeout = 60)
{
	struct scene *s = running_usual();

	idle_all(s);                        /* they have come up: looked at once */
	for (uint32_t i = 1; i < 30; i++) { /* three heartbeats less a little */
		pass(s, HEARTBEAT_NS / 10);
		cr_expect(!tw_arb_idle(s->arb, B, s->now_ns));
		give_heartbeat(s, A, 4);
	}
	pass(s, HEARTBEAT_NS / 10);
	cr_expect(tw_arb_idle(s->arb, B, s->now_ns));
	give_heartbeat(s, A, 4); /* pulls */
	EXPECT(s, "down B");
	pass(s, HEARTBEAT_NS);
	cr_expect(!tw_arb_idle(s->arb, B, s->now_ns), "it cannot go down twice");
	give_data(s, A, 5, 5);
	cr_expect(tw_arb_idle(s->arb, B, s->now_ns), "a gap may be given up");
	scene_free(s);
}

Test(arb, figures_that_change_are_said_to, .timeout = 60)
{
	struct scene *s = running_usual();

	cr_expect(tw_arb_figures_changed(s->arb), "a session, and two lines that came up");
	cr_expect(!tw_arb_figures_changed(s->arb));
	give_data(s, A, 4, 5);
	give_data(s, B, 4, 5);
	cr_expect(!tw_arb_figures_changed(s->arb), "nothing but numbers");
	give_data(s, A, 7, 7);
	cr_expect(tw_arb_figures_changed(s->arb), "one is held");
	give_data(s, A, 8, 8);
	cr_expect(tw_arb_figures_changed(s->arb), "another");
	give_data(s, A, 6, 6);
	cr_expect(tw_arb_figures_changed(s->arb), "they are given out");
	s->spec.packet_seq += 5;
	give_data(s, A, 9, 9);
	cr_expect(!tw_arb_figures_changed(s->arb), "what was jumped over may still come");
	s->spec.packet_seq -= 2;
	give_data(s, A, 9, 9);
	cr_expect(tw_arb_figures_changed(s->arb), "one came after a later one");
	cr_expect(tw_arb_idle(s->arb, A, s->now_ns), "and three are open");
	(void)tw_arb_figures_changed(s->arb);
	pass(s, WAIT_NS - 1);
	cr_expect(!tw_arb_idle(s->arb, A, s->now_ns));
	pass(s, 1);
	cr_expect(tw_arb_idle(s->arb, A, s->now_ns));
	cr_expect(tw_arb_figures_changed(s->arb), "three are missing");
	s->spec.session++;
	give_data(s, A, 1, 1);
	cr_expect(tw_arb_figures_changed(s->arb), "a session");
	scene_free(s);
}
