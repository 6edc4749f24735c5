/* A publisher's channel over a sender whose sends take time: what it knows to be done, and when. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/verbs/ud_ring.h"
#include "publisher/channel.h"
#include "tests/support/bus_bed.h"

#define DEPTH     4096u
#define MTU_BYTES 512u

/* A sender with the real account of a send queue, and completions when the test lets them come. */
struct slow_tx {
	struct tw_tx base;
	struct tw_ud_ring ring;
	uint64_t dgram[DEPTH];
	uint64_t total;
	bool held;
	unsigned int overtaken, posts, asked; /* asked: what is done */
};

static void slow_post(struct tw_tx *base, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
		      unsigned int n)
{
	struct slow_tx *tx = (struct slow_tx *)base;
	(void)endpoint;
	(void)dgrams;
	for (unsigned int i = 0; i < n; i++) {
		cr_assert_gt(tw_ud_ring_room(&tx->ring), 0);
		(void)tw_ud_ring_post(&tx->ring, ++tx->total, i + 1 == n);
	}
	tx->posts++;
}

static uint64_t slow_completed(struct tw_tx *base, uint32_t endpoint)
{
	struct slow_tx *tx = (struct slow_tx *)base;
	(void)endpoint;
	tx->asked++;
	if (!tx->held) {
		(void)tw_ud_ring_complete(&tx->ring, tx->ring.signalled);
	}
	return tw_ud_ring_done(&tx->ring, tx->total);
}

static void slow_overtaken(struct tw_tx *base, uint32_t endpoint)
{
	(void)endpoint;
	((struct slow_tx *)base)->overtaken++;
}

static const struct tw_tx_ops slow_ops = { .post = slow_post,
					   .completed = slow_completed,
					   .overtaken = slow_overtaken };

static struct bed bus;
static struct slow_tx tx;
static struct tw_pub_channel channel;
static struct tw_stats *stats;
static uint64_t now_ns;

static void up(uint64_t history_bytes)
{
	struct tw_error err;
	struct tw_counters counters;
	bed_up(&bus);
	now_ns = tw_mono_ns();
	const struct tw_pub_channel_conf conf = { .run_dir = bus.dir.path,
						  .channel = CHANNEL,
						  .publisher_base = 1u << 16,
						  .mtu_bytes = MTU_BYTES,
						  .heartbeat_min_ns = 200000,
						  .heartbeat_max_ns = 100000000 };
	cr_assert_eq(tw_pub_channel_init(&channel, &conf, history_bytes, &err), TW_OK, "%s",
		     err.text);
	cr_assert_eq(tw_stats_create(&stats, NULL, "t", "t", &err), TW_OK);
	cr_assert_eq(tw_stats_add(stats, TW_SET_pub_channel, "t", &counters, &err), TW_OK);
	cr_assert_eq(tw_stats_seal(stats, &err), TW_OK);
	channel.counters = counters;
	memset(&tx, 0, sizeof(tx));
	tx.base.ops = &slow_ops;
	tx.base.batch_dgrams = TW_TX_BATCH;
	tw_ud_ring_init(&tx.ring, tx.dgram, DEPTH, 16);
	channel.tx = &tx.base;
}

static void down(void)
{
	tw_pub_channel_fini(&channel);
	tw_stats_close(stats, false);
	bed_down(&bus);
}

static bool turn(void)
{
	now_ns += 1000000; /* past heartbeats and looks for a bus, in time */
	return tw_pub_channel_turn(&channel, now_ns);
}

static void until_live(void)
{
	for (unsigned int i = 0; i < 1000 && channel.state_now != TW_PUB_LIVE; i++) {
		(void)turn();
	}
	cr_assert_eq(channel.state_now, TW_PUB_LIVE);
}

static void publish_one(void)
{
	append_n(&bus, 1);
	tw_bus_flush(bus.writer);
	(void)turn();
}

Test(pub_sends, more_posts_under_way_than_are_told_apart, .timeout = 60)
{
	up(4u << 20);
	until_live();
	tx.held = true;
	const unsigned int before = tx.posts;
	for (unsigned int i = 0; i < 3 * TW_PUB_SENDS; i++) {
		publish_one();
	}
	cr_assert_eq(tx.posts - before, 3 * TW_PUB_SENDS, "nothing waited");
	cr_assert_leq(channel.send_head - channel.send_tail, TW_PUB_SENDS);
	cr_assert_lt(channel.history.completed, channel.history.head);
	tx.held = false;
	for (unsigned int i = 0; i < 4; i++) { /* what was not asked for shows with a heartbeat */
		(void)turn();
	}
	cr_assert_eq(channel.send_head, channel.send_tail);
	cr_assert_eq(channel.history.completed, channel.history.head);
	down();
}

Test(pub_sends, a_full_history_says_so_and_goes_on, .timeout = 60)
{
	up(64 * MTU_BYTES);
	until_live();
	tx.held = true;
	for (unsigned int i = 0; i < 200 && tx.overtaken == 0; i++) {
		publish_one();
	}
	cr_assert_gt(tx.overtaken, 0);
	const uint64_t stuck = channel.pack.next_msg_seq;
	(void)turn();
	cr_assert_eq(channel.pack.next_msg_seq, stuck);
	tx.held = false;
	for (unsigned int i = 0; i < 10; i++) {
		(void)turn();
	}
	cr_assert_eq(channel.pack.next_msg_seq, tw_bus_writer_next_seq(bus.writer));
	down();
}

/* The last sends of a life were not asked for: the next life asks, with a heartbeat of the old one. */
Test(pub_sends, a_new_life_waits_for_the_sends_of_the_old_one, .timeout = 60)
{
	up(4u << 20);
	until_live();
	const uint64_t session = channel.pack.conf.session;
	tx.held = true;
	for (unsigned int i = 0; i < 5; i++) {
		publish_one();
	}
	tw_bus_writer_close(bus.writer);
	create(&bus);
	for (unsigned int i = 0; i < 50; i++) {
		(void)turn();
		cr_assert_eq(channel.pack.conf.session, session, "sends still read its history");
	}
	cr_assert_null(channel.bus);
	tx.held = false;
	for (unsigned int i = 0; i < 1000 && channel.pack.conf.session == session; i++) {
		(void)turn();
	}
	cr_assert_gt(channel.pack.conf.session, session);
	cr_assert_eq(channel.send_head, channel.send_tail);
	publish_one();
	cr_assert_eq(channel.pack.next_msg_seq, 2);
	down();
}

/* The hot thread's call is where a line that broke is let go of, also where nothing was ever sent. */
Test(pub_sends, a_channel_without_a_bus_lets_its_sender_work, .timeout = 60)
{
	char path[300];
	up(4u << 20);
	tw_bus_writer_close(bus.writer);
	bus.writer = NULL;
	(void)snprintf(path, sizeof(path), "%s/bus-%u", bus.dir.path, CHANNEL);
	cr_assert_eq(unlink(path), 0);
	for (unsigned int i = 0; i < 100; i++) {
		(void)turn();
	}
	cr_assert_eq(channel.state_now, TW_PUB_WAITING);
	cr_assert_eq(tx.posts, 0);
	cr_assert_geq(tx.asked, 5, "as often as it looks for its bus, every 10 ms: %u", tx.asked);
	down();
}
