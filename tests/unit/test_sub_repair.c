/* libtidewire with a repair server: datagrams that no line brings come over TCP from a history that the test
 * serves, honestly or not, and are delivered in order through the public API. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/tcp/reader_conn.h"
#include "subscriber/sub_internal.h"
#include "tests/support/probe_alloc.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"

#define SESSION 7u
#define PER     12u /* orders that fill a datagram to the unit */
#define UNITS   (PUB_BED_MTU_BYTES / TW_WIRE_UNIT_BYTES)
#define ALL     150u /* datagrams: more than one read takes */
/* Settings, where all is repaired: a busy machine lets the server's thread stand still for seconds. */
#define PATIENT ", attempts: 250, give_up_ms: 8000"

_Static_assert(TW_WIRE_HDR_BYTES + PER * sizeof(struct tw_msg_order_add) == PUB_BED_MTU_BYTES,
	       "a full datagram");

enum mode { HONEST, GARBAGE, ANOTHER_RANGE, GONE };

static struct scene {
	struct pub_bed bed;
	struct tw_stats *stats;
	struct tw_counters server_counters, client_counters;
	struct tw_read_server *server;
	struct tw_sub *sub;
	uint8_t log[ALL][PUB_BED_MTU_BYTES]; /* written before the first read */
	_Atomic enum mode mode;
	_Atomic uint32_t by_seq, by_position; /* reads */
} scene;

/* By position: that part of the log.  By number: the datagrams. */
static int history(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	const uint8_t *log = scene.log[0];
	(void)ctx;
	uint64_t begin = read->begin * TW_WIRE_UNIT_BYTES, end = read->end * TW_WIRE_UNIT_BYTES;
	if (read->by_seq) {
		begin = (read->begin - 1) / PER * PUB_BED_MTU_BYTES;
		end = ((read->end - 2) / PER + 1) * PUB_BED_MTU_BYTES;
		end = end > begin + max_bytes ? begin + max_bytes : end;
	}
	atomic_fetch_add(read->by_seq ? &scene.by_seq : &scene.by_position, 1);
	enum mode mode = atomic_load(&scene.mode);
	if (mode == GONE || read->session != SESSION || end > sizeof(scene.log)) {
		return 0;
	}
	memcpy(dst, log + begin, end - begin);
	if (mode == GARBAGE) {
		memset(dst, 0xa5, end - begin);
	} else if (mode == ANOTHER_RANGE) {
		memcpy(dst, log, end - begin);
	}
	return (int)(end - begin);
}

static void serve(uint16_t *port)
{
	struct tw_read_server_channel channel = { .channel = 1, .read = history };
	struct tw_error err;
	cr_assert_eq(tw_stats_create(&scene.stats, NULL, "s", "test", &err), TW_OK);
	cr_assert_eq(
		tw_stats_add(scene.stats, TW_SET_read_server, "", &scene.server_counters, &err),
		TW_OK);
	cr_assert_eq(
		tw_stats_add(scene.stats, TW_SET_read_client, "", &scene.client_counters, &err),
		TW_OK);
	cr_assert_eq(tw_stats_seal(scene.stats, &err), TW_OK);
	struct tw_read_server_conf conf = { .addr = 0x7f000001u,
					    .port = *port,
					    .environment = scene.bed.environment,
					    .channels = &channel,
					    .channel_count = 1,
					    .max_clients = 1,
					    .idle_timeout_ns = DEADLINE_NS,
					    .cpu = -1,
					    .counters = scene.server_counters,
					    .clients = &scene.client_counters };
	/* between finding a free port and taking it another test may have it, for as long as that runs */
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	int rc;
	do {
		rc = tw_tcp_read_server_open(&scene.server, &conf, &err);
	} while (rc == TW_EBUSY && *port != 0 && tw_mono_ns() < end_ns);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	*port = tw_read_server_port(scene.server);
}

/* A port that is free now; the site file names it before the environment id is known that a server
 * needs. */
static uint16_t free_port(void)
{
	uint16_t port = 0;
	scene.bed.environment = 1;
	serve(&port);
	tw_read_server_close(scene.server);
	tw_stats_close(scene.stats, true);
	return port;
}

static void scene_open(const char *settings)
{
	char text[160];
	(void)snprintf(text, sizeof(text), ", repair: [pub], retry_min_ms: 2, retry_max_ms: 20%s",
		       settings);
	uint16_t port = free_port();
	struct pub_bed_conf conf = { .channels = 1,
				     .wait_us = 1000,
				     .store_datagrams = 256,
				     .subscriber = text,
				     .repair_port = port };
	struct tw_error err;
	cr_assert(pub_bed_open(&scene.bed, &conf));
	serve(&port);
	for (uint32_t i = 0; i < ALL; i++) {
		struct pub_dgram d;
		pub_dgram_begin(&d, &scene.bed, SESSION, 1 + i * PER);
		pub_dgram_orders(&d, PER);
		pub_dgram_hdr(&d)->packet_seq = i + 1;
		pub_dgram_hdr(&d)->log_pos = i * UNITS;
		memcpy(scene.log[i], d.bytes, sizeof(scene.log[i]));
	}
	cr_assert_eq(pub_bed_subscribe(&scene.bed, "sub", &scene.sub, &err), TW_OK, "%s", err.text);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	while (tw_reader_up(scene.sub->reader) == 0 && tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	cr_assert_eq(tw_reader_up(scene.sub->reader), 1);
}

static void scene_close(void)
{
	tw_sub_close(scene.sub);
	tw_read_server_close(scene.server);
	tw_stats_close(scene.stats, true);
	pub_bed_close(&scene.bed);
}

static void send_one(uint32_t i)
{
	struct pub_dgram d = { .len_bytes = PUB_BED_MTU_BYTES };
	memcpy(d.bytes, scene.log[i], sizeof(d.bytes));
	pub_bed_send(&scene.bed, &d, PUB_BED_BOTH);
}

static void send_end(void)
{
	struct pub_dgram d;
	pub_dgram_begin(&d, &scene.bed, SESSION, 1 + ALL * PER);
	pub_dgram_heartbeat(&d, true);
	pub_dgram_hdr(&d)->packet_seq = ALL + 1;
	pub_dgram_hdr(&d)->log_pos = ALL * UNITS;
	pub_bed_send(&scene.bed, &d, PUB_BED_BOTH);
}

static struct tw_sub_stats stats_now(void)
{
	struct tw_sub_stats stats = { .size = sizeof(stats) };
	cr_assert_eq(tw_sub_stats_read(scene.sub, 1, &stats), TW_OK);
	return stats;
}

/* Whether no line brings datagram i. */
static bool is_dropped(uint32_t i)
{
	return i % 5 == 2 || (i >= 40 && i < 60) || i == ALL - 1;
}

/* For the message of an assertion: what would tell why it failed, where it does so once in a thousand runs. */
static const char *figures(void)
{
	static char text[2048];
	struct tw_sub_stats s = stats_now();
	uint32_t strange = 0; /* repaired or LOST, although the lines were to bring it */

	for (uint32_t i = 0; i < stream.count; i++) {
		const struct tw_event *ev = &stream.events[i];
		bool missing = ev->type == TW_EV_LOST || (ev->flags & TW_EV_REPAIRED) != 0;
		strange += missing && !is_dropped((uint32_t)(ev->seq - 1) / PER);
	}
	int len = snprintf(
		text, sizeof(text),
		"messages %lu wrong %u strange %u gaps %lu by_line %lu by_history %lu lost %lu "
		"in %lu sessions %lu held_max %lu store_full %lu set_aside %lu contradictions %lu "
		"reads %lu retries %lu failed %lu served by position %u by number %u",
		s.messages, stream.wrong, strange, s.gaps, s.repaired_by_line,
		s.repaired_by_history, s.lost_messages, s.lost_ranges, s.session_changes,
		s.held_max, s.store_full, s.set_aside, s.contradictions, s.repair_reads,
		s.repair_retries, s.repair_failed, atomic_load(&scene.by_position),
		atomic_load(&scene.by_seq));
	for (uint32_t l = 0; l < 2; l++) {
		const struct tw_sub_line_stats *line = &s.lines[l];
		len += snprintf(text + len, sizeof(text) - (size_t)len,
				"; line %c: datagrams %lu first %lu missing %lu reordered %lu "
				"foreign %lu malformed %lu stale %lu downs %lu",
				'a' + l, line->datagrams, line->first, line->missing,
				line->reordered, line->foreign, line->malformed, line->stale,
				line->downs);
	}
	return text;
}

static uint32_t play(uint32_t from)
{
	uint32_t dropped = from;
	for (uint32_t i = from; i < ALL; i++) {
		if (is_dropped(i)) {
			dropped++;
		} else {
			send_one(i);
		}
	}
	send_end();
	return dropped;
}

Test(sub_repair, what_no_line_brings_comes_from_history, .timeout = 60)
{
	scene_open(PATIENT);
	uint32_t dropped = play(0);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS, allocated = 0;
	while (count_of(&stream, TW_EV_END) == 0 && tw_mono_ns() < end_ns) {
		struct tw_event events[7]; /* runs are handed out in pieces */
		uint64_t before = probe_alloc_calls();
		int n = tw_sub_poll(scene.sub, events, 7);
		allocated += probe_alloc_calls() - before;
		cr_assert_geq(n, 0);
		for (int i = 0; i < n; i++) {
			uint32_t at = events[i].type == TW_EV_MSG
					      ? (uint32_t)(events[i].seq - 1) / PER
					      : 0;
			if (events[i].type == TW_EV_MSG) {
				cr_assert(pub_dgram_is_order(&events[i]));
				cr_assert_eq((events[i].flags & TW_EV_REPAIRED) != 0,
					     is_dropped(at));
			}
			stream.events[stream.count++] = events[i];
		}
	}
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	struct tw_sub_stats stats = stats_now();
	cr_assert_eq(stats.repaired_by_history, dropped * PER, "%s", figures());
	cr_assert_eq(stats.repaired_by_line, 0);
	cr_assert_eq(stats.lost_messages, 0);
	cr_assert_eq(allocated, 0, "the hot path allocates");
	cr_assert_gt(atomic_load(&scene.by_position), 0);
	/* a read may still be under way when a line, or an overlap, has made it needless */
	while (scene.sub->repairing != 0 && tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	stats = stats_now();
	cr_assert_eq(stats.repair_reads,
		     tw_counter_get(&scene.server_counters, TW_READ_SERVER_reads));
	cr_assert_eq(stats.repair_bytes,
		     tw_counter_get(&scene.server_counters, TW_READ_SERVER_bytes));
	scene_close();
	assert_no_leak();
}

/* Whether a reply lies ready that brings what is to be handed out next. */
static bool next_is_ready(void)
{
	struct tw_tcp_reader *reader = (void *)scene.sub->reader;
	struct tw_reader_end end;
	if (tw_spsc_empty(&reader->ends)) {
		return false;
	}
	memcpy(&end, tw_spsc_place(&reader->ends, atomic_load(&reader->ends.head)), sizeof(end));
	uint64_t at = reader->slots.slots[end.slot].read.begin / UNITS;
	return end.status == TW_READ_OK &&
	       tw_arb_next_seq(scene.sub->channels[0].arb) == 1 + at * PER;
}

/* It holds back all that lies behind it: no poll looks at the lines first, or seems idle to its caller. */
Test(sub_repair, a_reply_that_lies_ready_is_taken_at_once, .timeout = 60)
{
	scene_open(PATIENT);
	for (uint32_t i = 0; i < ALL; i++) {
		if (i % 10 != 5) {
			send_one(i);
		}
	}
	send_end();
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	while (count_of(&stream, TW_EV_END) == 0 && tw_mono_ns() < end_ns) {
		bool ready = next_is_ready();
		int n = poll_once(scene.sub, &stream, 64);
		cr_assert_geq(n, ready, "after message %u", stream.messages);
	}
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	scene_close();
	assert_no_leak();
}

Test(sub_repair, a_head_is_read_from_the_begin_of_the_log, .timeout = 60)
{
	scene_open(PATIENT);
	uint32_t dropped = play(30);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	cr_assert_eq(stats_now().repaired_by_history, dropped * PER, "%s", figures());
	cr_assert_eq(atomic_load(&scene.by_seq), 0);
	scene_close();
}

Test(sub_repair, a_late_joiner_asks_by_number, .timeout = 60)
{
	scene_open(PATIENT);
	uint32_t dropped = play(120);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	cr_assert_eq(stats_now().repaired_by_history, dropped * PER, "%s", figures());
	cr_assert_gt(atomic_load(&scene.by_seq), 0);
	scene_close();
}

/* A server that lies until it has been asked a few times, and then does not. */
static void expect_outlasted(enum mode mode)
{
	scene_open(PATIENT);
	atomic_store(&scene.mode, mode);
	play(0);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	while (atomic_load(&scene.by_position) + atomic_load(&scene.by_seq) < 6 &&
	       tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	cr_assert_eq(stats_now().repaired_by_history, 0);
	cr_assert_eq(count_of(&stream, TW_EV_END), 0);
	atomic_store(&scene.mode, HONEST);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	cr_assert_eq(stream.wrong, 0);
	cr_assert_gt(stats_now().repair_retries, 0);
	scene_close();
}

Test(sub_repair, garbage_is_outlasted, .timeout = 60)
{
	expect_outlasted(GARBAGE);
}

Test(sub_repair, what_has_gone_is_lost_exactly, .timeout = 60)
{
	scene_open("");
	atomic_store(&scene.mode, GONE);
	uint32_t dropped = play(0);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	uint64_t next_seq = 1, lost = 0;
	for (uint32_t i = 0; i < stream.count; i++) {
		const struct tw_event *ev = &stream.events[i];
		if (ev->type == TW_EV_MSG || ev->type == TW_EV_LOST) {
			cr_assert_eq(ev->seq, next_seq);
			next_seq = ev->end_seq;
			lost += ev->type == TW_EV_LOST ? ev->end_seq - ev->seq : 0;
		}
	}
	cr_assert_eq(next_seq, 1 + ALL * PER);
	cr_assert_eq(lost, dropped * PER, "%s", figures());
	cr_assert_eq(stats_now().lost_messages, lost);
	cr_assert_gt(stats_now().repair_failed, 0);
	scene_close();
}

Test(sub_repair, another_range_than_was_asked_for_decides_nothing_else, .timeout = 60)
{
	scene_open(", give_up_ms: 300");
	atomic_store(&scene.mode, ANOTHER_RANGE);
	uint32_t dropped = play(0);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	cr_assert_eq(stream.wrong, 0);
	struct tw_sub_stats stats = stats_now();
	cr_assert_eq(stats.messages + stats.lost_messages, ALL * PER, "%s", figures());
	/* what such an answer holds by chance of what was asked for is as good as any */
	cr_assert_eq(stats.repaired_by_history + stats.lost_messages, dropped * PER, "%s",
		     figures());
	cr_assert_gt(stats.lost_messages, 0, "%s", figures());
	scene_close();
}

Test(sub_repair, a_server_that_is_down_is_waited_for_no_longer_than_stated, .timeout = 60)
{
	scene_open(", give_up_ms: 300");
	tw_read_server_close(scene.server);
	scene.server = NULL;
	uint32_t dropped = play(0);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1), "%s", figures());
	cr_assert_eq(stats_now().lost_messages, dropped * PER, "%s", figures());
	scene_close();
}
