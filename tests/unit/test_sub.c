/* libtidewire over real sockets on `lo`: a publisher made of hand-built datagrams on one side, the
 * public API on the other.  Here: the stream of events.  test_sub_api.c has the rest. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "subscriber/sub_internal.h"
#include "tests/support/probe_alloc.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"

Test(sub, both_lines_in_order_once, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);

	for (uint64_t d = 0; d < 100; d++) {
		pub_bed_orders(&bed, 7, 1 + d * 3, 3, PUB_BED_BOTH);
		cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, (uint32_t)(d + 1) * 3));
	}
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	do { /* the slower line's last one */
		cr_assert(poll_once(sub, &stream, 64) >= 0);
		read_stats(sub, &stats);
	} while (stats.lines[0].datagrams + stats.lines[1].datagrams < 200 &&
		 tw_mono_ns() < end_ns);

	assert_messages(&stream, 7, 1, 301);
	const struct tw_event *session = find(&stream, TW_EV_SESSION, 0);
	const struct tw_event *first = find(&stream, TW_EV_MSG, 0);
	cr_assert(session != NULL && session < first);
	cr_assert_eq(session->seq, 1);
	cr_assert_eq(session->session, 7);
	cr_assert_eq(first->channel, 1);
	cr_assert(first->sent_ns != 0 && first->recv_ns != 0);
	cr_assert_eq(count_of(&stream, TW_EV_GAP), 0);
	cr_assert_eq(count_of(&stream, TW_EV_LINE_UP), 2);

	cr_assert_eq(stats.messages, 300);
	cr_assert_eq(stats.bytes, 300 * sizeof(struct tw_msg_order_add));
	cr_assert_eq(stats.next_seq, 301);
	cr_assert_eq(stats.session, 7);
	uint64_t first_dgrams = 0, duplicates = 0;
	for (unsigned int l = 0; l < 2; l++) {
		const struct tw_sub_line_stats *line = &stats.lines[l];
		cr_assert(line->present && line->up);
		cr_assert_eq(line->datagrams, 100);
		cr_assert_eq(line->datagrams, line->first + line->duplicates + line->heartbeats);
		cr_assert_eq(line->missing, 0);
		cr_assert_eq(line->foreign, 0);
		cr_assert_eq(line->malformed, 0);
		cr_assert_eq(line->icrc_bad, 0);
		cr_assert(line->receive_buffer_bytes > 0);
		first_dgrams += line->first;
		duplicates += line->duplicates;
	}
	cr_assert_eq(first_dgrams, 100);
	cr_assert_eq(duplicates, 100);
	cr_assert_eq(stats.exchange_to_feedhandler.count, 100, "one sample a datagram");
	cr_assert_geq(stats.exchange_to_feedhandler.p50_ns, 1000);
	cr_assert_leq(stats.exchange_to_feedhandler.max_ns, 1100);
	cr_assert_eq(stats.sent_to_received.count, 100);
	cr_assert_eq(stats.received_to_consumed.count, 300, "one sample a message");
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub, gap_is_healed_by_the_other_line, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);

	pub_bed_orders(&bed, 7, 1, 1, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 1));
	pub_bed_orders(&bed, 7, 4, 2, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_GAP, 1));
	const struct tw_event *gap = find(&stream, TW_EV_GAP, 0);
	cr_assert_eq(gap->seq, 2);
	cr_assert_eq(gap->end_seq, 4);
	cr_assert_null(gap->data);
	cr_assert_eq(stream.messages, 1, "what is ahead of the gap is held back");
	read_stats(sub, &stats);
	cr_assert_eq(stats.held_datagrams, 1);

	pub_bed_orders(&bed, 7, 2, 2, PUB_BED_B);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 5));
	assert_messages(&stream, 7, 1, 6);
	for (uint32_t i = 0; i < stream.count; i++) {
		const struct tw_event *ev = &stream.events[i];
		if (ev->type == TW_EV_MSG) {
			bool filled = ev->seq == 2 || ev->seq == 3;
			cr_assert_eq((ev->flags & TW_EV_REPAIRED) != 0, filled);
			cr_assert_eq(ev->line, filled ? 1 : 0);
		}
	}
	read_stats(sub, &stats);
	cr_assert_eq(stats.gaps, 1);
	cr_assert_eq(stats.repaired_by_line, 2);
	cr_assert_eq(stats.repair.count, 1);
	cr_assert_eq(stats.lost_messages, 0);
	cr_assert_eq(stats.held_datagrams, 0);
	cr_assert_eq(stats.held_max, 1);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub, what_nobody_brings_is_lost_exactly, .timeout = 60)
{
	const struct pub_bed_conf hasty = { .channels = 1, .wait_us = 1000 };
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &hasty);

	pub_bed_orders(&bed, 7, 1, 1, PUB_BED_BOTH);
	pub_bed_orders(&bed, 7, 5, 1, PUB_BED_BOTH);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 2));
	const struct tw_event *lost = find(&stream, TW_EV_LOST, 0);
	cr_assert_not_null(lost);
	cr_assert_eq(lost->seq, 2);
	cr_assert_eq(lost->end_seq, 5);
	cr_assert_eq(lost->session, 7);
	cr_assert_eq(lost->channel, 1);
	cr_assert(lost < find(&stream, TW_EV_MSG, (uint32_t)(lost - stream.events)),
		  "LOST stands where the messages would");
	cr_assert_eq(count_of(&stream, TW_EV_LOST), 1);

	/* the tail's loss shows by a heartbeat; a late one of the range is no message any more */
	pub_bed_orders(&bed, 7, 3, 1, PUB_BED_A);
	struct pub_dgram d;
	pub_dgram_begin(&d, &bed, 7, 8);
	pub_dgram_heartbeat(&d, true);
	pub_bed_send(&bed, &d, PUB_BED_BOTH);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_END, 1));
	lost = find(&stream, TW_EV_LOST, (uint32_t)(lost - stream.events) + 1);
	cr_assert_not_null(lost);
	cr_assert_eq(lost->seq, 6);
	cr_assert_eq(lost->end_seq, 8);
	cr_assert_eq(stream.messages, 2);
	read_stats(sub, &stats);
	cr_assert_eq(stats.lost_ranges, 2);
	cr_assert_eq(stats.lost_messages, 5);
	cr_assert_eq(stats.sessions_ended, 1);
	cr_assert_eq(stats.next_seq, 8);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

/* Sessions, overlaps, duplicates, a gap that a hole ends and one that a late datagram fills. */
static void send_everything(struct pub_bed *bed)
{
	struct pub_dgram d;

	pub_bed_orders(bed, 7, 1, 5, PUB_BED_A);
	pub_bed_orders(bed, 7, 6, 3, PUB_BED_A);
	pub_bed_orders(bed, 7, 7, 4, PUB_BED_A);
	pub_bed_orders(bed, 7, 1, 5, PUB_BED_A);
	pub_bed_orders(bed, 7, 12, 3, PUB_BED_A);
	pub_dgram_begin(&d, bed, 7, 11);
	pub_dgram_hole(&d, 12);
	pub_bed_send(bed, &d, PUB_BED_A);
	pub_dgram_begin(&d, bed, 7, 20);
	pub_dgram_heartbeat(&d, false);
	pub_bed_send(bed, &d, PUB_BED_A);
	pub_bed_orders(bed, 7, 15, 5, PUB_BED_A);
	pub_bed_orders(bed, 7, 20, 12, PUB_BED_A);
	pub_dgram_begin(&d, bed, 7, 32);
	pub_dgram_heartbeat(&d, true);
	pub_bed_send(bed, &d, PUB_BED_A);
	pub_bed_orders(bed, 9, 1, 12, PUB_BED_A);
	pub_bed_orders(bed, 7, 1, 5, PUB_BED_A); /* stale */
	pub_dgram_begin(&d, bed, 9, 13);
	pub_dgram_heartbeat(&d, true);
	pub_bed_send(bed, &d, PUB_BED_A);
}

/* As text, without what depends on time. */
static void describe(const struct stream *s, char *out, size_t size)
{
	size_t len = 0;

	out[0] = '\0';
	for (uint32_t i = 0; i < s->count && len < size; i++) {
		const struct tw_event *ev = &s->events[i];
		if (!is_line_event(ev)) {
			len += (size_t)snprintf(out + len, size - len, "%u.%lu:%lu-%lu/%u,%u,%u%c ",
						ev->type, ev->session, ev->seq, ev->end_seq,
						ev->len_bytes, ev->channel, ev->flags,
						ev->data != NULL ? 'd' : '-');
		}
	}
}

Test(sub, any_array_size_gives_the_same_stream, .timeout = 60)
{
	static char one[1 << 16], other[1 << 16];
	static struct stream stream_b;
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &patient);

	send_everything(&bed);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_END, 2));
	tw_sub_close(sub);
	describe(&stream, one, sizeof(one));
	assert_messages(&stream, 9, 1, 13);
	cr_assert_eq(stream.messages, 30 + 12, "31 of the first session, one of them in a hole");
	cr_assert_eq(count_of(&stream, TW_EV_SESSION), 2);
	cr_assert_eq(count_of(&stream, TW_EV_LOST), 1);
	cr_assert_eq(find(&stream, TW_EV_LOST, 0)->seq, 11);
	cr_assert_eq(count_of(&stream, TW_EV_GAP), 2);
	cr_assert_eq(stream.wrong, 0);

	for (unsigned int max = 1; max <= 13; max += 4) {
		struct tw_error err;
		cr_assert_eq(pub_bed_subscribe(&bed, NULL, &sub, &err), TW_OK, "%s", err.text);
		memset(&stream_b, 0, sizeof(stream_b));
		send_everything(&bed);
		cr_assert(poll_until(sub, &stream_b, max, TW_EV_END, 2));
		tw_sub_close(sub);
		describe(&stream_b, other, sizeof(other));
		cr_assert_str_eq(other, one, "array of %u", max);
		cr_assert_eq(stream_b.wrong, 0);
	}
	pub_bed_close(&bed);
	assert_no_leak();
}

/* Everything lies in the socket before the first poll, so that one batch holds datagrams that fill a
 * gap, free the store and go into it again. */
static void check_store_is_not_reused(uint32_t store_datagrams, uint64_t ahead, bool fill)
{
	const struct pub_bed_conf conf = { .channels = 1,
					   .wait_us = PATIENT_US,
					   .store_datagrams = store_datagrams };
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &conf);
	uint64_t next = 1;

	for (unsigned int round = 0; round < 3; round++) {
		pub_bed_orders(&bed, 7, next, 1, PUB_BED_A);
		for (uint64_t d = 0; d < ahead; d++) {
			pub_bed_orders(&bed, 7, next + 2 + d * 2, 2, PUB_BED_A);
		}
		if (fill) {
			pub_bed_orders(&bed, 7, next + 1, 1, PUB_BED_A);
		}
		next += 2 + ahead * 2;
	}
	struct pub_dgram d;
	pub_dgram_begin(&d, &bed, 7, next);
	pub_dgram_heartbeat(&d, true);
	pub_bed_send(&bed, &d, PUB_BED_A);
	if (!fill) { /* the last gap never fills the store: a new session gives it up */
		pub_dgram_begin(&d, &bed, 8, 1);
		pub_dgram_heartbeat(&d, false);
		pub_bed_send(&bed, &d, PUB_BED_A);
	}
	cr_assert(poll_until(sub, &stream, 64, TW_EV_END, 1));
	cr_assert_eq(stream.wrong, 0, "bytes were overwritten in the call that handed them out");
	if (fill) {
		assert_messages(&stream, 7, 1, next);
	} else {
		cr_assert_eq(stream.messages, next - 1 - 3);
		cr_assert_eq(count_of(&stream, TW_EV_LOST), 3);
	}
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub, store_is_not_reused_while_it_is_lent, .timeout = 60)
{
	check_store_is_not_reused(64, 8, true);
}

Test(sub, full_store_is_not_reused_while_it_is_lent, .timeout = 60)
{
	check_store_is_not_reused(16, 20, false);
}

Test(sub, session_change_resets_and_says_so, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A);
	pub_bed_orders(&bed, 7, 6, 2, PUB_BED_A);
	pub_bed_orders(&bed, 8, 1, 3, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 7));
	static const struct {
		uint8_t type;
		uint64_t session, seq;
	} want[] = {
		{ TW_EV_SESSION, 7, 1 }, { TW_EV_MSG, 7, 1 },     { TW_EV_MSG, 7, 2 },
		{ TW_EV_GAP, 7, 3 },     { TW_EV_LOST, 7, 3 },    { TW_EV_MSG, 7, 6 },
		{ TW_EV_MSG, 7, 7 },     { TW_EV_SESSION, 8, 1 }, { TW_EV_MSG, 8, 1 },
		{ TW_EV_MSG, 8, 2 },     { TW_EV_MSG, 8, 3 },
	};
	uint32_t at = 0;
	for (uint32_t i = 0; i < stream.count; i++) {
		const struct tw_event *ev = &stream.events[i];
		if (is_line_event(ev)) {
			continue;
		}
		cr_assert_lt(at, sizeof(want) / sizeof(want[0]));
		cr_assert_eq(ev->type, want[at].type, "event %u", at);
		cr_assert_eq(ev->session, want[at].session, "event %u", at);
		cr_assert_eq(ev->seq, want[at].seq, "event %u", at);
		at++;
	}
	cr_assert_eq(at, sizeof(want) / sizeof(want[0]));
	read_stats(sub, &stats);
	cr_assert_eq(stats.session_changes, 2);
	cr_assert_eq(stats.session, 8);
	cr_assert_eq(stats.next_seq, 4);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub, unknown_templates_and_bad_stamps, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);
	struct pub_dgram d;

	pub_dgram_begin(&d, &bed, 7, 1);
	pub_dgram_orders(&d, 2);
	struct tw_msg_head *head = (void *)(d.bytes + TW_WIRE_HDR_BYTES);
	head->flags |= TW_MSG_TS_BAD;
	head->sbe.template_id = 999;
	pub_bed_send(&bed, &d, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 2));
	const struct tw_event *ev = find(&stream, TW_EV_MSG, 0);
	cr_assert_eq(ev[0].flags, TW_EV_UNKNOWN);
	cr_assert_eq(ev[1].flags, 0);
	read_stats(sub, &stats);
	cr_assert_eq(stats.unknown_messages, 1);
	cr_assert_eq(stats.unstamped, 1);
	cr_assert_eq(stats.exchange_to_feedhandler.count, 0);
	cr_assert_eq(stats.feedhandler_to_sent.count, 0);
	cr_assert_eq(stats.sent_to_received.count, 1);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub, poll_does_not_allocate, .timeout = 60)
{
	const struct pub_bed_conf hasty = { .channels = 2, .wait_us = 1000, .store_datagrams = 16 };
	struct pub_bed bed;
	uint64_t before = probe_alloc_calls();
	struct tw_sub *sub = open_bed(&bed, &hasty);
	cr_assert_gt(probe_alloc_calls(), before, "the probe does not see what open allocates");

	uint64_t in_poll = 0;
	for (uint64_t round = 0; round < 20; round++) {
		uint64_t session = 7 + round;
		struct pub_dgram d;
		pub_bed_orders(&bed, session, 1, 3, PUB_BED_BOTH);
		pub_bed_orders(&bed, session, 4, 3, PUB_BED_A);
		for (uint64_t i = 0; i < 20; i++) { /* more than the store holds */
			pub_bed_orders(&bed, session, 10 + i * 2, 2, PUB_BED_BOTH);
		}
		pub_dgram_begin(&d, &bed, session, 50);
		pub_dgram_heartbeat(&d, true);
		pub_bed_send(&bed, &d, PUB_BED_BOTH);
		pub_dgram_hdr(&d)->environment ^= 1;
		pub_bed_send(&bed, &d, PUB_BED_BOTH);
		uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
		while (count_of(&stream, TW_EV_END) <= round && tw_mono_ns() < end_ns) {
			before = probe_alloc_calls();
			cr_assert(poll_once(sub, &stream, 64) >= 0);
			tw_sub_idle(sub);
			in_poll += probe_alloc_calls() - before;
		}
	}
	cr_assert_eq(count_of(&stream, TW_EV_END), 20);
	cr_assert_geq(count_of(&stream, TW_EV_LOST), 20);
	cr_assert_eq(in_poll, 0, "%lu calls of the allocator", in_poll);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

/* A receiver whose endpoints fail when told to. */
struct failing_rx {
	struct tw_rx base;
	struct tw_rx *inner;
	bool fails[4];
};

static int failing_poll(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out,
			unsigned int max)
{
	struct failing_rx *f = (struct failing_rx *)rx;

	return f->fails[endpoint] ? TW_ESYS : tw_rx_poll(f->inner, endpoint, out, max);
}

static int failing_wait(struct tw_rx *rx, uint64_t timeout_ns)
{
	return tw_rx_wait(((struct failing_rx *)rx)->inner, timeout_ns);
}

Test(sub, one_channel_fails_alone_and_then_the_handle, .timeout = 60)
{
	static const struct tw_rx_ops ops = { .poll = failing_poll, .wait = failing_wait };
	const struct pub_bed_conf two = { .channels = 2, .wait_us = PATIENT_US };
	struct pub_bed bed;
	struct tw_error err = { 0 };
	struct tw_sub *sub = open_bed(&bed, &two);
	struct failing_rx rx = { .base = { .ops = &ops, .endpoints = 4 }, .inner = sub->rx };
	struct pub_dgram d;

	sub->rx = &rx.base;
	rx.fails[0] = true; /* line A of channel 1: the channel goes on */
	pub_bed_orders(&bed, 7, 1, 1, PUB_BED_B);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 1));
	cr_assert_eq(count_of(&stream, TW_EV_DOWN), 0);
	tw_sub_error(sub, 1, &err);
	cr_assert_eq(err.code, TW_OK);

	rx.fails[1] = true;
	cr_assert(poll_until(sub, &stream, 64, TW_EV_DOWN, 1));
	cr_assert_eq(find(&stream, TW_EV_DOWN, 0)->channel, 1);
	cr_assert_eq(find(&stream, TW_EV_DOWN, 0)->seq, 2);
	tw_sub_error(sub, 1, &err);
	cr_assert_eq(err.code, TW_ESYS);
	cr_assert(strstr(err.text, "channel 1 line b") != NULL, "%s", err.text);
	tw_sub_error(sub, 2, &err);
	cr_assert_eq(err.code, TW_OK);
	tw_sub_error(sub, 3, &err);
	cr_assert_eq(err.code, TW_ENOTFOUND);

	pub_dgram_begin(&d, &bed, 7, 1);
	pub_dgram_hdr(&d)->channel = 2;
	pub_dgram_orders(&d, 2);
	pub_bed_send(&bed, &d, PUB_BED_BOTH);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 3));

	rx.fails[2] = rx.fails[3] = true;
	cr_assert(poll_until(sub, &stream, 1, TW_EV_DOWN, 2));
	cr_assert_eq(poll_once(sub, &stream, 64), TW_ESYS);
	cr_assert_eq(poll_once(sub, &stream, 64), TW_ESYS, "it is sticky");
	cr_assert_eq(tw_sub_wait(sub, 0), TW_ESYS);
	tw_sub_error(sub, 0, &err);
	cr_assert_eq(err.code, TW_ESYS);
	sub->rx = rx.inner;
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}
