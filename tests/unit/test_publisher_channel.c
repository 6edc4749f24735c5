/* One channel at the publisher, on virtual time: from a bus in a directory of the test's own to a transmitter that
 * keeps what was posted and completes when it is told to. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "publisher/channel.h"
#include "tests/support/bus_bed.h"
#include "wire/datagram.h"

#define MTU       1024u
#define HISTORY   (256u * 1024u)
#define US        1000ull
#define MS        1000000ull
#define S         1000000000ull
#define BEAT_MIN  (200 * US)
#define BEAT_MAX  (10 * MS)
#define BASE      (3u << 16)
#define POSTS_MAX 8192u

struct post {
	struct tw_wire_hdr hdr;
	uint64_t at_ns;
	uint32_t len_bytes;
	uint64_t hole_end_seq;
};

static struct scene {
	struct bed bed;
	struct tw_tx tx;
	bool stuck; /* sends do not complete */
	uint64_t posted, completed;
	struct post posts[POSTS_MAX];
	uint32_t count;
	uint64_t now_ns;
	struct tw_pub_channel *channel;
	_Atomic uint64_t values[TW_N_pub_channel_counters];
	struct tw_hist hists[TW_N_pub_channel_hists];
} scene;

/* --- what is posted, judged at once ------------------------------------------------------------- */

static void check_messages(const struct tw_dgram *d)
{
	const uint8_t *at = d->msgs;
	for (uint64_t seq = d->hdr->first_msg_seq; seq < d->end_seq; seq++) {
		cr_assert(test_msg_is(at, seq, SALT), "message %llu", (unsigned long long)seq);
		at += test_msg_bytes(seq);
	}
}

static void fake_post(struct tw_tx *tx, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
		      unsigned int n)
{
	(void)tx;
	cr_assert_eq(endpoint, 5);
	for (unsigned int i = 0; i < n; i++) {
		struct tw_dgram d;
		cr_assert_eq(tw_dgram_parse(&d, dgrams[i].data, dgrams[i].len_bytes), TW_DGRAM_OK);
		cr_assert_lt(scene.count, POSTS_MAX);
		struct post *post = &scene.posts[scene.count++];
		*post = (struct post){ .hdr = *d.hdr,
				       .at_ns = scene.now_ns,
				       .len_bytes = dgrams[i].len_bytes };
		if ((d.hdr->flags & TW_WIRE_HOLE) != 0) {
			post->hole_end_seq = d.end_seq;
		} else {
			check_messages(&d);
		}
	}
	/* nothing is released that has not been posted */
	cr_assert_leq(tw_bus_gate_seq(scene.bed.writer) + 1,
		      scene.posts[scene.count - 1].hdr.first_msg_seq +
			      scene.posts[scene.count - 1].hdr.msg_count);
	scene.posted += n;
}

static uint64_t fake_completed(struct tw_tx *tx, uint32_t endpoint)
{
	(void)tx;
	(void)endpoint;
	if (!scene.stuck) {
		scene.completed = scene.posted;
	}
	return scene.completed;
}

static void fake_close(struct tw_tx *tx)
{
	(void)tx;
}

static void fake_overtaken(struct tw_tx *tx, uint32_t endpoint)
{
	(void)tx;
	(void)endpoint;
}

static const struct tw_tx_ops fake_ops = { .post = fake_post,
					   .completed = fake_completed,
					   .overtaken = fake_overtaken,
					   .close = fake_close };

/* --- the scene ---------------------------------------------------------------------------------- */

static struct tw_pub_channel_conf usual(void)
{
	return (struct tw_pub_channel_conf){ .run_dir = scene.bed.dir.path,
					     .channel = CHANNEL,
					     .environment = 9,
					     .publisher_base = BASE,
					     .mtu_bytes = MTU,
					     .heartbeat_min_ns = BEAT_MIN,
					     .heartbeat_max_ns = BEAT_MAX };
}

/* Another process of the same publisher. */
static void channel_up(const struct tw_pub_channel_conf *conf)
{
	scene.channel = aligned_alloc(TW_CACHE_PAIR_BYTES, sizeof(*scene.channel));
	cr_assert_not_null(scene.channel);
	cr_assert_eq(tw_pub_channel_init(scene.channel, conf, HISTORY, &scene.bed.err), TW_OK, "%s",
		     scene.bed.err.text);
	scene.now_ns = tw_mono_ns(); /* as the bucket does */
	memset(scene.values, 0, sizeof(scene.values));
	scene.channel->counters =
		(struct tw_counters){ .values = scene.values, .hists = scene.hists };
	scene.channel->tx = &scene.tx;
	scene.channel->endpoint = 5;
	scene.posted = scene.completed = 0; /* it counts its own */
}

static void channel_down(void)
{
	tw_pub_channel_fini(scene.channel);
	free(scene.channel);
	scene.channel = NULL;
}

static void up(void)
{
	memset(&scene, 0, sizeof(scene));
	tw_clock_init();
	scene.tx = (struct tw_tx){ .ops = &fake_ops, .batch_dgrams = TW_TX_BATCH };
	bed_up(&scene.bed);
	struct tw_pub_channel_conf conf = usual();
	channel_up(&conf);
}

static void down(void)
{
	channel_down();
	bed_down(&scene.bed);
}

static bool turn(void)
{
	return tw_pub_channel_turn(scene.channel, scene.now_ns);
}

static uint64_t value(enum tw_pub_channel_counter c)
{
	return atomic_load(&scene.values[c]);
}

static void append(uint64_t n)
{
	append_n(&scene.bed, n);
	tw_bus_flush(scene.bed.writer);
}

/* At one instant, until a turn finds nothing to do. */
static void turns(void)
{
	for (unsigned int i = 0; turn(); i++) {
		cr_assert_lt(i, 10000);
	}
}

/* Goes on in steps for so long. */
static void pass(uint64_t ns, uint64_t step_ns)
{
	for (uint64_t end_ns = scene.now_ns + ns; scene.now_ns < end_ns;) {
		scene.now_ns += step_ns;
		turns();
	}
}

/* Posts from `from` on are the messages first .. end - 1 of one life in order, heartbeats between them. */
static void check_stream(uint32_t from, uint64_t first_seq, uint64_t end_seq, uint64_t packet_seq)
{
	uint64_t log_pos = scene.posts[from].hdr.log_pos;
	for (uint32_t i = from; i < scene.count; i++) {
		const struct tw_wire_hdr *hdr = &scene.posts[i].hdr;
		cr_assert_eq(hdr->channel, CHANNEL);
		cr_assert_eq(hdr->environment, 9);
		cr_assert_eq(hdr->session, scene.posts[from].hdr.session);
		cr_assert_eq(hdr->publisher, scene.posts[from].hdr.publisher);
		cr_assert_eq(hdr->first_msg_seq, first_seq);
		cr_assert_eq(hdr->packet_seq, packet_seq);
		if ((hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
			cr_assert_eq(scene.posts[i].len_bytes, TW_WIRE_UNIT_BYTES);
			continue;
		}
		packet_seq++;
		/* what does not fit before the end of the log begins at its begin */
		cr_assert_geq(hdr->log_pos, log_pos);
		cr_assert_lt(hdr->log_pos - log_pos, MTU / TW_WIRE_UNIT_BYTES);
		log_pos = hdr->log_pos + scene.posts[i].len_bytes / TW_WIRE_UNIT_BYTES;
		first_seq = scene.posts[i].hole_end_seq != 0 ? scene.posts[i].hole_end_seq
							     : first_seq + hdr->msg_count;
	}
	cr_assert_eq(first_seq, end_seq);
}

/* Reading by number brings the datagrams of the messages first .. end - 1, or as many as fit. */
static void check_history(uint64_t session, uint64_t first_seq, uint64_t end_seq)
{
	_Alignas(64) static uint8_t copy[65536];
	int bytes = tw_history_read_msgs(&scene.channel->view, &scene.channel->index, session,
					 first_seq, end_seq, copy, sizeof(copy));
	cr_assert_gt(bytes, 0);
	for (uint32_t at = 0; at < (uint32_t)bytes;) {
		struct tw_wire_hdr hdr;
		struct tw_dgram d;
		memcpy(&hdr, copy + at, sizeof(hdr));
		uint32_t len = (TW_WIRE_HDR_BYTES + hdr.payload_bytes + TW_WIRE_UNIT_BYTES - 1) /
			       TW_WIRE_UNIT_BYTES * TW_WIRE_UNIT_BYTES;
		cr_assert_eq(tw_dgram_parse(&d, copy + at, len), TW_DGRAM_OK);
		cr_assert_eq(hdr.session, session);
		cr_assert_leq(hdr.first_msg_seq, first_seq);
		cr_assert_gt(d.end_seq, first_seq);
		check_messages(&d);
		first_seq = d.end_seq;
		at += len;
	}
}

/* --- tests -------------------------------------------------------------------------------------- */

Test(publisher_channel, what_is_on_the_bus_goes_out_once_and_in_order, .init = up, .fini = down,
     .timeout = 60)
{
	cr_assert(turn(), "it finds the bus");
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_LIVE);
	cr_assert_not(turn(), "and nothing on it");
	for (uint64_t n = 0; n < 40; n++) {
		append(n);
		turns();
	}
	cr_assert_eq(tw_bus_gate_seq(scene.bed.writer), 780);
	check_stream(0, 1, 781, 1);
	cr_assert_eq(scene.posts[0].hdr.publisher, BASE | 1);
	cr_assert_eq(scene.posts[0].hdr.session, tw_bus_writer_session(scene.bed.writer));
	cr_assert_eq(scene.posts[0].hdr.log_pos, 0);
	cr_assert_eq(value(TW_PUB_CHANNEL_messages), 780);
	cr_assert_eq(value(TW_PUB_CHANNEL_datagrams), scene.count);
	cr_assert_eq(value(TW_PUB_CHANNEL_next_seq), 781);
	cr_assert_eq(value(TW_PUB_CHANNEL_publisher), BASE | 1);
	cr_assert_eq(value(TW_PUB_CHANNEL_heartbeats), 0);
	check_history(scene.posts[0].hdr.session, 1, 700);
	check_history(scene.posts[0].hdr.session, 777, 781);
}

Test(publisher_channel, looks_for_a_bus_now_and_then, .init = up, .fini = down, .timeout = 60)
{
	tw_bus_writer_close(scene.bed.writer);
	scene.bed.writer = NULL;
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/bus-%u", scene.bed.dir.path, CHANNEL);
	cr_assert_eq(unlink(path), 0);
	cr_assert_not(turn());
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_WAITING);
	create(&scene.bed);
	scene.now_ns += 10 * MS - 1;
	cr_assert_not(turn(), "no system call before its time");
	scene.now_ns++;
	cr_assert(turn());
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_LIVE);
}

Test(publisher_channel, heartbeats_double_up_to_their_most, .init = up, .fini = down, .timeout = 60)
{
	append(3);
	turns();
	uint32_t first = scene.count;
	uint64_t before_ns = scene.now_ns, want_ns = BEAT_MIN;
	pass(100 * MS, 10 * US);
	cr_assert_gt(scene.count, first + 10);
	for (uint32_t i = first; i < scene.count; i++) {
		cr_assert_eq(scene.posts[i].hdr.flags, TW_WIRE_HEARTBEAT);
		uint64_t after_ns = scene.posts[i].at_ns - before_ns;
		cr_assert(after_ns >= want_ns && after_ns < want_ns + 10 * US, "%u: %llu", i,
			  (unsigned long long)after_ns);
		before_ns = scene.posts[i].at_ns;
		want_ns = want_ns * 2 < BEAT_MAX ? want_ns * 2 : BEAT_MAX;
	}
	check_stream(0, 1, 4, 1);
	cr_assert_eq(value(TW_PUB_CHANNEL_heartbeats), scene.count - first);

	/* a datagram begins the ladder anew */
	append(1);
	turns();
	before_ns = scene.now_ns;
	uint32_t again = scene.count;
	pass(BEAT_MIN, 10 * US);
	cr_assert_eq(scene.count, again + 1);
	cr_assert_eq(scene.posts[again].at_ns - before_ns, BEAT_MIN);
	/* a late turn brings one, not all that were due */
	scene.now_ns += S;
	turns();
	cr_assert_eq(scene.count, again + 2);
}

Test(publisher_channel, a_rate_limit_holds_at_every_moment_and_loses_nothing, .init = up,
     .fini = down)
{
	const uint64_t rate = 1000000, burst = 4096;
	channel_down();
	struct tw_pub_channel_conf conf = usual();
	conf.max_bytes_per_s = rate;
	conf.burst_bytes = burst;
	channel_up(&conf);
	uint64_t begin_ns = scene.now_ns;
	for (unsigned int i = 0; i < 2000; i++) {
		while (!append_next(&scene.bed, true)) {
			cr_assert_lt(scene.now_ns - begin_ns, 10 * S, "it does not go on");
			pass(MS, 50 * US);
		}
	}
	tw_bus_flush(scene.bed.writer);
	pass(S, 500 * US);
	cr_assert_eq(value(TW_PUB_CHANNEL_holes), 0);
	check_stream(0, 1, 2001, 1);
	cr_assert_gt(value(TW_PUB_CHANNEL_rate_stalls), 0);
	uint64_t bytes = 0, last_ns = begin_ns;
	for (uint32_t i = 0; i < scene.count; i++) {
		bytes += scene.posts[i].len_bytes;
		/* spending may go into debt by less than one datagram */
		cr_assert_leq(bytes, (scene.posts[i].at_ns - begin_ns) * rate / S + burst + MTU,
			      "%u", i);
		last_ns = scene.posts[i].hdr.msg_count != 0 ? scene.posts[i].at_ns : last_ns;
	}
	/* and it is used: 2,000 messages are some 300 KB */
	cr_assert_lt(last_ns - begin_ns, S / 2);
	cr_assert_gt(last_ns - begin_ns, S / 5);
}

Test(publisher_channel, a_bus_that_has_lapped_it_is_a_hole, .init = up, .fini = down, .timeout = 60)
{
	append(10);
	turns();
	append(2000); /* several times what the ring holds */
	turns();
	append(5);
	turns();
	check_stream(0, 1, 2016, 1);
	uint32_t holes = 0;
	uint64_t missing = 0;
	for (uint32_t i = 0; i < scene.count; i++) {
		if ((scene.posts[i].hdr.flags & TW_WIRE_HOLE) != 0) {
			holes++;
			cr_assert_eq(scene.posts[i].hdr.first_msg_seq, 11);
			missing += scene.posts[i].hole_end_seq - scene.posts[i].hdr.first_msg_seq;
		}
	}
	cr_assert_eq(holes, 1);
	cr_assert_gt(missing, 1000);
	cr_assert_eq(value(TW_PUB_CHANNEL_holes), 1);
	cr_assert_eq(value(TW_PUB_CHANNEL_hole_messages), missing);
	cr_assert_eq(value(TW_PUB_CHANNEL_messages), 2015 - missing);
}

static void append_malformed(void)
{
	uint64_t msg[TW_MSG_MAX_BYTES / 8];
	uint32_t len = test_msg_make(msg, tw_bus_writer_next_seq(scene.bed.writer), SALT);
	struct tw_msg_head *head = (void *)msg;
	head->sbe.schema_id ^= 1;
	cr_assert(tw_bus_append(scene.bed.writer, msg, len, false));
}

Test(publisher_channel, malformed_messages_never_go_out, .init = up, .fini = down, .timeout = 60)
{
	append_n(&scene.bed, 2);
	append_malformed();
	append_malformed();
	append(2);
	turns();
	check_stream(0, 1, 7, 1);
	cr_assert_eq(value(TW_PUB_CHANNEL_malformed_messages), 2);
	cr_assert_eq(value(TW_PUB_CHANNEL_messages), 4);
	cr_assert_eq(value(TW_PUB_CHANNEL_holes), 0, "the bus has lapped nobody");
	cr_assert_eq(tw_bus_gate_seq(scene.bed.writer), 6);
}

Test(publisher_channel, an_end_is_said_until_all_have_heard_it, .init = up, .fini = down,
     .timeout = 60)
{
	append(4);
	tw_bus_end(scene.bed.writer);
	turns();
	uint32_t data = 0;
	while (data < scene.count && (scene.posts[data].hdr.flags & TW_WIRE_HEARTBEAT) == 0) {
		data++;
	}
	cr_assert_eq(scene.count, data + 1, "the end is said at once");
	cr_assert_eq(scene.posts[data].hdr.flags, TW_WIRE_HEARTBEAT | TW_WIRE_END);
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_ENDED);
	check_stream(0, 1, 5, 1);

	/* a publisher that is started again before that says it again, in another life */
	pass(BEAT_MAX, 10 * US);
	cr_assert_lt(scene.count - data, 16);
	channel_down();
	struct tw_pub_channel_conf conf = usual();
	channel_up(&conf);
	uint32_t again = scene.count;
	turns();
	cr_assert_eq(scene.count, again + 1);
	cr_assert_eq(scene.posts[again].hdr.flags, TW_WIRE_HEARTBEAT | TW_WIRE_END);
	cr_assert_eq(scene.posts[again].hdr.publisher, BASE | 2);
	cr_assert_eq(scene.posts[again].hdr.packet_seq, 1);
	cr_assert_eq(scene.posts[again].hdr.first_msg_seq, 5);

	/* and one that is started after that does not */
	pass(20 * BEAT_MAX, 100 * US);
	cr_assert_geq(scene.count - again, 16);
	channel_down();
	channel_up(&conf);
	again = scene.count;
	turns();
	pass(S, MS);
	cr_assert_eq(scene.count, again);
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_WAITING);
	/* but the next session */
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	append(2);
	pass(200 * MS, MS);
	cr_assert_gt(scene.count, again);
	check_stream(again, 1, 3, 1);
}

Test(publisher_channel, a_new_session_begins_when_the_old_one_is_drained, .init = up, .fini = down,
     .timeout = 60)
{
	append(7);
	turns();
	uint32_t first = scene.count;
	append(3);
	uint64_t old = tw_bus_writer_session(scene.bed.writer);
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	uint64_t session = tw_bus_writer_session(scene.bed.writer);
	cr_assert_gt(session, old);
	append(2);
	turns();
	uint32_t second = first;
	while (second < scene.count && scene.posts[second].hdr.session == old) {
		second++;
	}
	cr_assert_gt(second, first, "what was left of the old one");
	cr_assert_lt(second, scene.count);
	cr_assert_eq(scene.posts[second].hdr.session, session);
	check_stream(second, 1, 3, 1);
	cr_assert_eq(scene.posts[second].hdr.log_pos, 0);
	cr_assert_eq(value(TW_PUB_CHANNEL_session), session);
	cr_assert_eq(value(TW_PUB_CHANNEL_messages), 12);
	check_history(session, 1, 3);
	check_history(session, 2, 3);
	scene.count = second;
	check_stream(0, 1, 11, 1);
}

Test(publisher_channel, a_restart_goes_on_where_the_last_one_had_sent, .init = up, .fini = down,
     .timeout = 60)
{
	append(50);
	turns();
	uint64_t session = scene.posts[0].hdr.session;
	channel_down();
	append(20);
	uint32_t again = scene.count;
	struct tw_pub_channel_conf conf = usual();
	channel_up(&conf);
	turns();
	cr_assert_eq(scene.posts[again].hdr.session, session);
	cr_assert_eq(scene.posts[again].hdr.publisher, BASE | 2);
	check_stream(again, 51, 71, 1);
}

/* What sends still read is not written over, and no new life begins in that memory. */
Test(publisher_channel, sends_that_do_not_complete_hold_the_next_life, .init = up, .fini = down,
     .timeout = 60)
{
	scene.stuck = true;
	for (unsigned int i = 0; i < 400; i++) {
		append(1);
		turns();
	}
	cr_assert_eq(scene.count, 400, "there is room in the log for all");
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	append(1);
	pass(100 * MS, MS);
	/* heartbeats of the old life, to learn whether its sends are done */
	cr_assert_gt(scene.count, 400);
	cr_assert_eq(scene.posts[scene.count - 1].hdr.session, scene.posts[0].hdr.session);
	cr_assert_neq(scene.posts[scene.count - 1].hdr.flags & TW_WIRE_HEARTBEAT, 0);
	scene.stuck = false;
	pass(100 * MS, MS);
	cr_assert_eq(value(TW_PUB_CHANNEL_session), tw_bus_writer_session(scene.bed.writer));
	cr_assert_eq(value(TW_PUB_CHANNEL_messages), 401);
}

Test(publisher_channel, a_new_life_waits_for_the_last_ones_sends, .init = up, .fini = down,
     .timeout = 60)
{
	scene.stuck = true;
	append(3);
	turns();
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	append(1);
	pass(S, MS);
	uint32_t count = scene.count;
	cr_assert_eq(scene.posts[count - 1].hdr.session, scene.posts[0].hdr.session);
	scene.stuck = false;
	pass(100 * MS, MS);
	check_stream(count, 1, 2, 1);
	cr_assert_eq(scene.posts[count].hdr.session, tw_bus_writer_session(scene.bed.writer));
}

/* Of the session before, which lay elsewhere in the same memory, a reader by number is told nothing. */
Test(publisher_channel, the_history_is_of_one_session, .init = up, .fini = down, .timeout = 60)
{
	for (unsigned int i = 0; i < 300; i++) {
		append(1);
		turns();
	}
	uint64_t old = scene.posts[0].hdr.session;
	check_history(old, 200, 250);
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	for (unsigned int i = 0; i < 30; i++) {
		append(10);
		turns();
	}
	uint64_t session = tw_bus_writer_session(scene.bed.writer);
	for (uint64_t seq = 1; seq < 300; seq++) {
		check_history(session, seq, seq + 1);
	}
	uint8_t copy[8];
	cr_assert_eq(tw_history_read_msgs(&scene.channel->view, &scene.channel->index, old, 200,
					  250, copy, sizeof(copy)),
		     TW_ENOTFOUND);
}

/* The same where it is the log that is full: 256 KiB, and a post is as much as there is. */
Test(publisher_channel, a_full_history_stops_it, .init = up, .fini = down, .timeout = 60)
{
	scene.stuck = true;
	uint64_t fed = 0;
	for (unsigned int i = 0; i < TW_PUB_SENDS; i++) { /* slabs may be of huge pages */
		append(100);
		fed += 100;
		turns();
		if (value(TW_PUB_CHANNEL_history_stalls) > 0) {
			break;
		}
	}
	cr_assert_gt(value(TW_PUB_CHANNEL_history_stalls), 0);
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < scene.count; i++) {
		bytes += scene.posts[i].len_bytes;
	}
	cr_assert_leq(bytes, scene.channel->history.units * TW_WIRE_UNIT_BYTES);
	uint32_t count = scene.count;
	scene.now_ns += MS;
	cr_assert_not(turn());
	cr_assert_eq(scene.count, count,
		     "no heartbeat either: it would say what has not been sent");
	scene.stuck = false;
	turns();
	check_stream(0, 1, fed + 1, 1);
}

Test(publisher_channel, one_publisher_at_a_time, .init = up, .fini = down, .timeout = 60)
{
	struct tw_error note;
	struct tw_bus_reader *other;
	cr_assert_eq(tw_bus_open(&other, scene.bed.dir.path, CHANNEL, true, &note), TW_OK);
	append(1);
	cr_assert_not(turn());
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_REFUSED);
	cr_assert(tw_pub_channel_note(scene.channel, &note));
	cr_assert_not_null(strstr(note.text, "another publisher is attached"), "%s", note.text);
	pass(S, MS);
	cr_assert_not(tw_pub_channel_note(scene.channel, &note), "said once");
	cr_assert_eq(scene.count, 0);
	tw_bus_reader_close(other);
	pass(200 * MS, MS);
	check_stream(0, 1, 2, 1);
}

/* A record whose length leads nowhere: the session is left for good, the next one is taken. */
Test(publisher_channel, a_broken_bus_is_left_until_the_next_session, .init = up, .fini = down,
     .timeout = 60)
{
	append(1);
	turns();
	uint64_t at = test_msg_bytes(1);
	append(3);
	char path[300];
	(void)snprintf(path, sizeof(path), "%s/bus-%u", scene.bed.dir.path, CHANNEL);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	uint16_t length = 3;
	cr_assert_eq(pwrite(fd, &length, 2, (off_t)(TW_BUS_HEADER_BYTES + at)), 2);
	close(fd);
	turns();
	struct tw_error note;
	cr_assert(tw_pub_channel_note(scene.channel, &note));
	cr_assert_not_null(strstr(note.text, "message 2"), "%s", note.text);
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_REFUSED);
	uint32_t count = scene.count;
	pass(S, MS);
	cr_assert_eq(scene.count, count);
	cr_assert_not(tw_pub_channel_note(scene.channel, &note));
	tw_bus_writer_close(scene.bed.writer);
	create(&scene.bed);
	append(2);
	pass(200 * MS, MS);
	cr_assert_eq(atomic_load(&scene.channel->state), TW_PUB_LIVE);
	check_stream(count, 1, 3, 1);
}
