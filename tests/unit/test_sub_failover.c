/* libtidewire with two repair servers of one channel: whatever the first one does, the second one repairs.
 *
 * Site      the configuration allows a channel one publisher, and so one server, until repair servers that do not
 *           publish exist; the test gives the second publisher the channel too, behind the check's back.  All
 *           else is what a process would have: ladder, reader, sockets and two servers with a history each. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "config/config.h"
#include "fabric/reader.h"
#include "subscriber/sub_internal.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"

#define SESSION 7u
#define PER     12u /* orders that fill a datagram to the unit */
#define UNITS   (PUB_BED_MTU_BYTES / TW_WIRE_UNIT_BYTES)
#define ALL     90u /* datagrams */
#define SERVERS 2u

_Static_assert(TW_WIRE_HDR_BYTES + PER * sizeof(struct tw_msg_order_add) == PUB_BED_MTU_BYTES,
	       "a full datagram");

enum mode { HONEST, GARBAGE, REFUSES, GONE, SITS };

struct server {
	struct tw_stats *stats;
	struct tw_counters counters, client;
	struct tw_read_server *server;
	uint16_t port;
	_Atomic enum mode mode;
	_Atomic uint32_t reads;
};

static struct scene {
	struct pub_bed bed;
	struct server servers[SERVERS];
	struct tw_sub *sub;
	uint8_t log[ALL][PUB_BED_MTU_BYTES]; /* written before the first read */
} scene;

int __real_tw_site_load(struct tw_site **site_p, const char *path, struct tw_error *err);
int __wrap_tw_site_load(struct tw_site **site_p, const char *path, struct tw_error *err);
int __wrap_tw_site_load(struct tw_site **site_p, const char *path, struct tw_error *err)
{
	int rc = __real_tw_site_load(site_p, path, err);
	if (rc == TW_OK && (*site_p)->publisher_count == SERVERS) {
		struct tw_site_publisher *second = &(*site_p)->publishers[1];
		second->channels[second->channel_count++] = 0;
	}
	return rc;
}

/* By position: that part of the log.  By number: the datagrams. */
static int history(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	struct server *server = ctx;
	uint64_t begin = read->begin * TW_WIRE_UNIT_BYTES, end = read->end * TW_WIRE_UNIT_BYTES;
	if (read->by_seq) {
		begin = (read->begin - 1) / PER * PUB_BED_MTU_BYTES;
		end = ((read->end - 2) / PER + 1) * PUB_BED_MTU_BYTES;
		end = end > begin + max_bytes ? begin + max_bytes : end;
	}
	atomic_fetch_add(&server->reads, 1);
	while (atomic_load(&server->mode) == SITS) {
		(void)poll(NULL, 0, 1);
	}
	enum mode mode = atomic_load(&server->mode);
	if (mode == REFUSES) {
		return TW_EARG;
	}
	if (mode == GONE || read->session != SESSION || end > sizeof(scene.log)) {
		return 0;
	}
	memcpy(dst, scene.log[0] + begin, end - begin);
	if (mode == GARBAGE) {
		memset(dst, 0xa5, end - begin);
	}
	return (int)(end - begin);
}

static void serve(struct server *s, uint16_t environment)
{
	struct tw_read_server_channel channel = { .channel = 1, .read = history, .ctx = s };
	struct tw_error err;
	cr_assert_eq(tw_stats_create(&s->stats, NULL, "s", "test", &err), TW_OK);
	cr_assert_eq(tw_stats_add(s->stats, TW_SET_read_server, "", &s->counters, &err), TW_OK);
	cr_assert_eq(tw_stats_add(s->stats, TW_SET_read_client, "", &s->client, &err), TW_OK);
	cr_assert_eq(tw_stats_seal(s->stats, &err), TW_OK);
	struct tw_read_server_conf conf = { .addr = 0x7f000001u,
					    .port = s->port,
					    .environment = environment,
					    .channels = &channel,
					    .channel_count = 1,
					    .max_clients = 1,
					    .idle_timeout_ns = DEADLINE_NS,
					    .cpu = -1,
					    .counters = s->counters,
					    .clients = &s->client };
	cr_assert_eq(tw_tcp_read_server_open(&s->server, &conf, &err), TW_OK, "%s", err.text);
	s->port = tw_read_server_port(s->server);
}

static void end_server(struct server *s)
{
	tw_read_server_close(s->server);
	s->server = NULL;
	tw_stats_close(s->stats, true);
	s->stats = NULL;
}

static uint32_t up(void)
{
	return tw_reader_up(scene.sub->reader);
}

/* Without `first` that server's port has nobody behind it. */
static void scene_open(bool first, unsigned int retry_ms)
{
	/* ports that are free now: the file names them before the environment id is known */
	for (uint32_t i = 0; i < SERVERS; i++) {
		serve(&scene.servers[i], 1);
	}
	for (uint32_t i = 0; i < SERVERS; i++) {
		end_server(&scene.servers[i]);
	}
	char text[160];
	(void)snprintf(text, sizeof(text),
		       ", repair: [pub, pub2], retry_min_ms: %u, retry_max_ms: %u, attempts: 250, "
		       "give_up_ms: 8000",
		       retry_ms, 10 * retry_ms);
	struct pub_bed_conf conf = {
		.channels = 2,
		.wait_us = 1000,
		.store_datagrams = 256,
		.subscriber =
			", repair: [pub, pub2], retry_min_ms: 2, retry_max_ms: 20, attempts: 250, "
			"give_up_ms: 8000",
		.repair_port = scene.servers[0].port,
		.repair_port_2 = scene.servers[1].port,
	};
	struct tw_error err;
	cr_assert(pub_bed_open(&scene.bed, &conf));
	for (uint32_t i = first ? 0 : 1; i < SERVERS; i++) {
		serve(&scene.servers[i], scene.bed.environment);
	}
	for (uint32_t i = 0; i < ALL; i++) {
		struct pub_dgram d;
		pub_dgram_begin(&d, &scene.bed, SESSION, 1 + i * PER);
		pub_dgram_orders(&d, PER);
		pub_dgram_hdr(&d)->packet_seq = i + 1;
		pub_dgram_hdr(&d)->log_pos = i * UNITS;
		memcpy(scene.log[i], d.bytes, sizeof(scene.log[i]));
	}
	cr_assert_eq(pub_bed_subscribe(&scene.bed, "sub", &scene.sub, &err), TW_OK, "%s", err.text);
	cr_assert_eq(scene.sub->channels[0].server_count, SERVERS);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	while (up() != (first ? 3u : 2u) && tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	cr_assert_eq(up(), first ? 3u : 2u);
}

static void scene_close(void)
{
	for (uint32_t i = 0; i < SERVERS; i++) {
		atomic_store(&scene.servers[i].mode, HONEST); /* none sits any more */
	}
	tw_sub_close(scene.sub);
	for (uint32_t i = 0; i < SERVERS; i++) {
		if (scene.servers[i].server != NULL) {
			end_server(&scene.servers[i]);
		}
	}
	pub_bed_close(&scene.bed);
}

/* Sends datagrams from .. to - 1 of which no line brings every third; returns how many that are. */
static uint32_t play(uint32_t from, uint32_t to)
{
	uint32_t dropped = 0;
	for (uint32_t i = from; i < to; i++) {
		struct pub_dgram d = { .len_bytes = PUB_BED_MTU_BYTES };
		memcpy(d.bytes, scene.log[i], sizeof(d.bytes));
		dropped += i % 3 == 1;
		if (i % 3 != 1) {
			pub_bed_send(&scene.bed, &d, PUB_BED_BOTH);
		}
	}
	return dropped;
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

static uint64_t replies_of(uint32_t server)
{
	return tw_counter_get(&scene.sub->servers[server], TW_READER_replies);
}

static void expect_whole(uint32_t dropped)
{
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1));
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	struct tw_sub_stats stats = stats_now();
	cr_assert_eq(stats.repaired_by_history, dropped * PER);
	cr_assert_eq(stats.lost_messages, 0);
	cr_assert_gt(replies_of(1), 0);
}

static void first_one(enum mode mode)
{
	scene_open(true, 2);
	atomic_store(&scene.servers[0].mode, mode);
	uint32_t dropped = play(0, ALL);
	send_end();
	expect_whole(dropped);
	cr_assert_gt(atomic_load(&scene.servers[0].reads), 0, "it is asked first");
	cr_assert_gt(stats_now().repair_retries, 0);
	cr_assert_eq(atomic_load(&scene.servers[0].mode), mode, "and is as it was to the end");
	scene_close();
	assert_no_leak();
}

Test(sub_failover, the_first_is_asked_and_the_second_is_not, .timeout = 60)
{
	scene_open(true, 5000);
	uint32_t dropped = play(0, ALL);
	send_end();
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_END, 1));
	assert_messages(&stream, SESSION, 1, 1 + ALL * PER);
	cr_assert_eq(stats_now().repaired_by_history, dropped * PER);
	cr_assert_gt(replies_of(0), 0);
	cr_assert_eq(replies_of(1), 0);
	scene_close();
}

Test(sub_failover, a_first_that_is_not_there, .timeout = 60)
{
	scene_open(false, 2);
	uint32_t dropped = play(0, ALL);
	send_end();
	expect_whole(dropped);
	cr_assert_eq(replies_of(0), 0);
	scene_close();
}

Test(sub_failover, a_first_that_sends_garbage, .timeout = 60)
{
	first_one(GARBAGE);
}

Test(sub_failover, a_first_that_refuses, .timeout = 60)
{
	first_one(REFUSES);
}

Test(sub_failover, a_first_whose_history_has_gone, .timeout = 60)
{
	first_one(GONE);
}

Test(sub_failover, a_first_that_sits_on_what_it_was_asked, .timeout = 60)
{
	first_one(SITS);
}

Test(sub_failover, a_first_that_dies_and_comes_back, .timeout = 60)
{
	scene_open(true, 2);
	uint32_t dropped = play(0, ALL / 3);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_MSG, (ALL / 3 - 2) * PER));
	end_server(&scene.servers[0]);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	while (up() != 2 && tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	uint64_t by_first = replies_of(0);
	cr_assert_gt(by_first, 0);
	dropped += play(ALL / 3, 2 * ALL / 3);
	cr_assert(poll_until(scene.sub, &stream, 64, TW_EV_MSG, (2 * ALL / 3 - 2) * PER));
	cr_assert_gt(replies_of(1), 0);
	cr_assert_eq(replies_of(0), by_first);

	serve(&scene.servers[0], scene.bed.environment);
	while (up() != 3 && tw_mono_ns() < end_ns) {
		cr_assert(poll_once(scene.sub, &stream, 64) >= 0);
	}
	dropped += play(2 * ALL / 3, ALL);
	send_end();
	expect_whole(dropped);
	cr_assert_gt(replies_of(0), by_first, "the list's order holds again");
	scene_close();
	assert_no_leak();
}
