/* Which messages are late in `latest` mode: the table against a model that forgets nothing, and the flag as the
 * public API gives it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/splitmix.h"
#include "fabric/sim/rng.h"
#include "subscriber/sub_internal.h"
#include "subscriber/sub_late.h"
#include "tests/support/probe_alloc.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"

/* --- the table ------------------------------------------------------------------------------- */

static struct tw_sub_late *late_new(uint32_t sets)
{
	size_t bytes = (tw_sub_late_bytes(sets) + 127) / 128 * 128;
	void *memory = aligned_alloc(128, bytes);

	cr_assert_not_null(memory);
	memset(memory, 0, bytes);
	return tw_sub_late_init(memory, sets);
}

static bool take(struct tw_sub_late *late, uint16_t venue_id, uint32_t instrument_id, uint64_t seq,
		 uint64_t open_seq)
{
	struct tw_msg_head msg = { .venue_id = venue_id, .instrument_id = instrument_id };

	return tw_sub_late_take(late, &msg, seq, open_seq);
}

Test(sub_late, a_later_one_of_the_same_instrument_makes_it_late, .timeout = 60)
{
	struct tw_sub_late *late = late_new(2);

	cr_expect_not(take(late, 1, 5, 20, 10));
	cr_expect_not(take(late, 2, 5, 21, 10), "the same id at another venue");
	cr_expect_not(take(late, 1, 6, 22, 10));
	cr_expect(take(late, 1, 5, 19, 10));
	cr_expect(take(late, 1, 5, 12, 0), "what it comes after need not be the last one");
	cr_expect_not(take(late, 1, 7, 12, 0));
	cr_expect(take(late, 2, 5, 20, 0));
	cr_expect_not(take(late, 2, 5, 21, 0), "not after itself");
	cr_expect_not(take(late, 2, 5, 22, 0));
	free(late);
}

/* As many as a set has room for, whichever set they are in. */
Test(sub_late, neighbours_in_a_set_are_told_apart, .timeout = 60)
{
	struct tw_sub_late *late = late_new(2);

	for (uint16_t venue_id = 1; venue_id <= 4; venue_id++) {
		cr_assert_not(take(late, venue_id, 5, 11u + venue_id, 10), "venue %u", venue_id);
	}
	for (uint32_t id = 6; id <= 8; id++) {
		cr_assert_not(take(late, 1, id, 10u + id, 10), "instrument %u", id);
	}
	for (uint16_t venue_id = 1; venue_id <= 4; venue_id++) {
		cr_assert(take(late, venue_id, 5, 11, 0), "venue %u", venue_id);
		cr_assert_not(take(late, venue_id, 5, 11u + venue_id, 0), "venue %u", venue_id);
	}
	cr_expect(take(late, 1, 6, 15, 0));
	cr_expect_not(take(late, 2, 6, 11, 0));
	cr_expect_not(take(late, 5, 5, 11, 0));
	free(late);
}

Test(sub_late, what_nobody_can_tell_is_late_after_anything, .timeout = 60)
{
	struct tw_sub_late *late = late_new(2);

	cr_expect_not(tw_sub_late_take(late, NULL, 20, 10));
	cr_expect_not(tw_sub_late_take(late, NULL, 21, 10));
	cr_expect(tw_sub_late_take(late, NULL, 15, 0));
	cr_expect_not(take(late, 1, 1, 15, 0), "it belongs to no instrument that anybody knows");
	free(late);
}

Test(sub_late, a_new_session_forgets, .timeout = 60)
{
	struct tw_sub_late *late = late_new(2);

	take(late, 1, 5, 20, 10);
	for (uint32_t i = 0; i < 3 * 65536; i++) { /* more than there are epochs */
		tw_sub_late_forget(late);
		cr_assert_not(take(late, 1, 5, 12, 0), "after %u sessions", i);
		cr_assert_not(tw_sub_late_take(late, NULL, 12, 0));
	}
	take(late, 1, 5, 20, 10);
	cr_expect(take(late, 1, 5, 12, 0));
	free(late);
}

/* A stream with gaps that are filled in any order, and a model of what was handed out. */
struct model {
	struct tw_rng rng;
	uint64_t next_seq;
	uint64_t missing[64]; /* in order */
	uint32_t missing_count;
	uint64_t highest[4][4096]; /* by venue and instrument */
	uint32_t wrongly_fresh, wrongly_late, right_late, fills;
};

static void judge(struct model *m, struct tw_sub_late *late, uint32_t instruments, uint64_t seq)
{
	/* the same for a number whenever it comes */
	uint64_t state = seq;
	uint64_t word = tw_splitmix_next(&state);
	uint16_t venue_id = (uint16_t)(word % 4);
	uint32_t id = (uint32_t)(word >> 8) % instruments;
	uint64_t *highest = &m->highest[venue_id][id];
	uint64_t open_seq = m->missing_count > 0 && seq > m->missing[0] ? m->missing[0] : 0;
	bool is_late = take(late, venue_id, id, seq, open_seq);

	m->wrongly_fresh += *highest > seq && !is_late;
	m->wrongly_late += *highest < seq && is_late;
	m->right_late += *highest > seq && is_late;
	*highest = seq > *highest ? seq : *highest;
}

static void stream_through(struct model *m, struct tw_sub_late *late, uint32_t instruments,
			   uint32_t steps)
{
	memset(m, 0, sizeof(*m));
	tw_rng_init(&m->rng, 11);
	m->next_seq = 1;
	for (uint32_t i = 0; i < steps; i++) {
		bool full = m->missing_count == 64;
		if (!full && tw_rng_below(&m->rng, 16) == 0) {
			m->missing[m->missing_count++] = m->next_seq++;
		} else if (m->missing_count > 0 && (full || tw_rng_below(&m->rng, 16) == 0)) {
			uint32_t at = tw_rng_below(&m->rng, m->missing_count);
			uint64_t seq = m->missing[at];
			m->missing_count--;
			memmove(&m->missing[at], &m->missing[at + 1],
				(m->missing_count - at) * sizeof(m->missing[0]));
			m->fills++;
			judge(m, late, instruments, seq);
		} else {
			/* nothing is asked of the table while nothing is missing */
			if (m->missing_count > 0) {
				judge(m, late, instruments, m->next_seq);
			}
			m->next_seq++;
		}
	}
}

Test(sub_late, with_room_it_is_exact, .timeout = 60)
{
	struct tw_sub_late *late = late_new(1024);
	static struct model m;

	stream_through(&m, late, 100, 300000);
	cr_expect_eq(m.wrongly_fresh, 0);
	cr_expect_eq(m.wrongly_late, 0);
	cr_expect_gt(m.right_late, 1000);
	cr_expect_gt(m.fills - m.right_late, 1000);
	free(late);
}

/* Far more instruments than entries, but those behind a gap at one time find room. */
Test(sub_late, entries_before_the_oldest_gap_are_free, .timeout = 60)
{
	struct tw_sub_late *late = late_new(2);
	uint64_t open_seq = 1;

	for (uint32_t i = 0; i < 100000; i++, open_seq += 100) {
		for (uint32_t k = 0; k < 3; k++) {
			cr_assert_not(take(late, 1, 3 * i + k, open_seq + 10 + k, open_seq));
		}
		cr_assert(take(late, 1, 3 * i, open_seq, 0));
		cr_assert_not(take(late, 2, 7, open_seq + 1, 0));
	}
	free(late);
}

Test(sub_late, a_full_table_is_never_wrongly_fresh, .timeout = 60)
{
	struct tw_sub_late *late = late_new(4);
	static struct model m;

	stream_through(&m, late, 4096, 300000);
	cr_expect_eq(m.wrongly_fresh, 0);
	cr_expect_gt(m.wrongly_late, 100, "the table was not full: this has shown nothing");
	cr_expect_gt(m.right_late, 100);
	free(late);
}

/* --- through the API ------------------------------------------------------------------------- */

static const struct pub_bed_conf patient_latest = {
	.channels = 1,
	.wait_us = PATIENT_US,
	.depth = "quotes",
	.subscriber = ", mode: latest",
};

/* By the order of what came: late is what comes after a later one of its instrument. */
static void assert_flags(const struct stream *s, uint32_t want_late)
{
	uint64_t highest[PUB_BED_INSTRUMENTS] = { 0 };
	uint32_t late = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct tw_event *ev = &s->events[i];
		if (ev->type == TW_EV_SESSION) {
			memset(highest, 0, sizeof(highest));
		}
		if (ev->type != TW_EV_MSG) {
			continue;
		}
		uint64_t *last = &highest[ev->seq % PUB_BED_INSTRUMENTS];
		bool is_late = *last > ev->seq;
		cr_assert_eq((ev->flags & TW_EV_LATE) != 0, is_late, "%lu after %lu", ev->seq,
			     *last);
		cr_assert(!is_late || (ev->flags & TW_EV_REPAIRED) != 0);
		late += is_late;
		*last = ev->seq > *last ? ev->seq : *last;
	}
	cr_assert_eq(late, want_late);
	cr_assert_eq(s->wrong, 0);
}

static void assert_order(const struct stream *s, const uint64_t *seqs, uint32_t count)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		if (s->events[i].type == TW_EV_MSG) {
			cr_assert_lt(n, count);
			cr_assert_eq(s->events[i].seq, seqs[n], "%lu came for %lu",
				     s->events[i].seq, seqs[n]);
			n++;
		}
	}
	cr_assert_eq(n, count);
}

/* Instruments of 1 2 3 ... are 1 2 0 1 2 0 ... */
static void gap_and_fill(unsigned int max)
{
	static const uint64_t order[] = { 1, 2, 6, 7, 9, 10, 4, 5, 8, 3, 11 };
	struct tw_sub_stats stats;
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &patient_latest);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A);
	pub_bed_orders(&bed, 7, 6, 2, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, max, TW_EV_MSG, 4), "nothing waits for 3 to 5");
	pub_bed_orders(&bed, 7, 9, 2, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, max, TW_EV_MSG, 6));
	read_stats(sub, &stats);
	cr_assert_eq(stats.next_seq, 11);
	cr_assert_eq(stats.gaps, 2);
	cr_assert_eq(stats.held_max, 0);

	uint64_t before = probe_alloc_calls();
	pub_bed_orders(&bed, 7, 4, 7, PUB_BED_B); /* 4, 5 and 8 of it are missing */
	cr_assert(poll_until(sub, &stream, max, TW_EV_MSG, 9));
	pub_bed_orders(&bed, 7, 3, 1, PUB_BED_B);
	pub_bed_orders(&bed, 7, 11, 1, PUB_BED_B);
	cr_assert(poll_until(sub, &stream, max, TW_EV_MSG, 11));
	cr_assert_eq(probe_alloc_calls(), before);
	assert_order(&stream, order, 11);
	/* 4 after 7, 3 after 6; 5 and 8 come in the order of theirs */
	assert_flags(&stream, 2);
	read_stats(sub, &stats);
	cr_assert_eq(stats.late_messages, 2);
	cr_assert_eq(stats.repaired_by_line, 4);
	cr_assert_eq(stats.next_seq, 12);
	cr_assert_eq(stats.messages, 11);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_late, gaps_fill_late, .timeout = 60)
{
	gap_and_fill(64);
}

Test(sub_late, one_event_a_call_is_the_same, .timeout = 60)
{
	gap_and_fill(1);
}

Test(sub_late, lost_and_end_come_last, .timeout = 60)
{
	static const uint8_t types[] = { TW_EV_SESSION, TW_EV_MSG,  TW_EV_GAP, TW_EV_MSG,
					 TW_EV_MSG,     TW_EV_LOST, TW_EV_END };
	struct pub_bed_conf conf = patient_latest;
	struct tw_sub_stats stats;
	struct pub_bed bed;
	struct pub_dgram end;
	uint32_t n = 0;

	conf.wait_us = 20000;
	struct tw_sub *sub = open_bed(&bed, &conf);
	pub_bed_orders(&bed, 7, 1, 1, PUB_BED_BOTH);
	pub_bed_orders(&bed, 7, 4, 2, PUB_BED_BOTH);
	pub_dgram_begin(&end, &bed, 7, 6);
	pub_dgram_heartbeat(&end, true);
	pub_bed_send(&bed, &end, PUB_BED_BOTH);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_END, 1));
	for (uint32_t i = 0; i < stream.count; i++) {
		const struct tw_event *ev = &stream.events[i];
		if (!is_line_event(ev)) {
			cr_assert_lt(n, sizeof(types));
			cr_assert_eq(ev->type, types[n], "event %u is %u", n, ev->type);
			n++;
		}
	}
	cr_assert_eq(n, sizeof(types));
	read_stats(sub, &stats);
	cr_assert_eq(stats.lost_messages, 2);
	cr_assert_eq(stats.next_seq, 6, "LOST does not take it back");
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_late, a_new_session_begins_anew, .timeout = 60)
{
	static const uint64_t order[] = { 1, 2, 9, 10, 2, 3, 1 };
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &patient_latest);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A);
	pub_bed_orders(&bed, 7, 9, 2, PUB_BED_A);
	pub_bed_orders(&bed, 8, 2, 2, PUB_BED_A);
	pub_bed_orders(&bed, 8, 1, 1, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 7));
	assert_order(&stream, order, 7);
	assert_flags(&stream, 0); /* 1 of session 8 comes after 10 of session 7 */
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_late, the_caller_chooses, .timeout = 60)
{
	const struct pub_bed_conf levels = { .channels = 1, .depth = "levels" };
	struct tw_sub_channel_info info = { .size = sizeof(info) };
	struct tw_error err = { 0 };
	struct tw_sub_conf conf;
	struct tw_sub *sub;
	struct pub_bed bed;

	cr_assert(pub_bed_open(&bed, &patient_latest));
	tw_sub_conf_init(&conf);
	conf.site_path = bed.site;
	conf.as = "here";
	conf.mode = TW_SUB_MODE_ORDERED;
	cr_assert_eq(tw_sub_open(&sub, &conf, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_sub_channel_at(sub, 0, &info), TW_OK);
	cr_expect_eq(info.latest, 0);
	cr_expect_null(sub->channels[0].late);
	tw_sub_close(sub);
	conf.mode = TW_SUB_MODE_SITE;
	cr_assert_eq(tw_sub_open(&sub, &conf, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_sub_channel_at(sub, 0, &info), TW_OK);
	cr_expect_eq(info.latest, 1);
	tw_sub_close(sub);
	conf.mode = TW_SUB_MODE_LATEST + 1;
	cr_expect_eq(tw_sub_open(&sub, &conf, &err), TW_EARG);
	pub_bed_close(&bed);

	cr_assert(pub_bed_open(&bed, &levels));
	conf.site_path = bed.site;
	conf.mode = TW_SUB_MODE_LATEST;
	cr_expect_eq(tw_sub_open(&sub, &conf, &err), TW_ECONFIG);
	cr_expect_not_null(strstr(err.text, "channel 1: found mode latest with depth levels"), "%s",
			   err.text);
	pub_bed_close(&bed);
	assert_no_leak();
}
