/* libtidewire over real sockets on `lo`: what is refused, figures, information, errors, the clock
 * keeper.  test_sub.c has the stream of events. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counters.h"
#include "tests/support/pub_bed.h"
#include "tests/support/sub_stream.h"

/* Polls until the sum of what is refused on line A has reached `n`. */
static void poll_refused(struct tw_sub *sub, struct tw_sub_stats *stats, uint64_t n)
{
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;

	do {
		cr_assert(poll_once(sub, &stream, 64) >= 0);
		read_stats(sub, stats);
	} while (stats->lines[0].foreign + stats->lines[0].malformed < n && tw_mono_ns() < end_ns);
}

Test(sub_api, what_is_not_ours_is_counted_by_cause, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);
	struct pub_dgram d;

	for (unsigned int cause = 0; cause < 10; cause++) {
		pub_dgram_begin(&d, &bed, 7, 1);
		pub_dgram_orders(&d, 2);
		struct tw_wire_hdr *hdr = pub_dgram_hdr(&d);
		struct tw_msg_sbe *second =
			(void *)(d.bytes + TW_WIRE_HDR_BYTES + sizeof(struct tw_msg_order_add));
		switch (cause) {
		case 0:
			hdr->environment ^= 1;
			break;
		case 1:
			hdr->channel = 77;
			break;
		case 2:
			hdr->version_major++;
			break;
		case 3:
			hdr->flags |= TW_WIRE_REPLAY;
			break;
		case 4:
			hdr->magic++;
			break;
		case 5:
			hdr->payload_bytes = 4000;
			break;
		case 6:
			second->block_length = 0xfff8; /* far past the end */
			break;
		case 7:
			second->block_length = 24; /* shorter than an OrderAdd */
			break;
		case 8:
			hdr->msg_count = 3;
			break;
		default:
			d.len_bytes = TW_WIRE_HDR_BYTES - 8; /* padded: a header of zeros follows */
			hdr->first_msg_seq = 0;
			break;
		}
		pub_bed_send(&bed, &d, PUB_BED_A);
	}
	poll_refused(sub, &stats, 10);
	const struct tw_sub_line_stats *line = &stats.lines[0];
	cr_assert_eq(line->foreign_environment, 1);
	cr_assert_eq(line->foreign_channel, 1);
	cr_assert_eq(line->foreign_version, 1);
	cr_assert_eq(line->foreign_replay, 1);
	cr_assert_eq(line->foreign_source, 0);
	cr_assert_eq(line->foreign, 4);
	cr_assert_eq(line->malformed, 6);
	cr_assert_eq(line->datagrams, 0);
	cr_assert_eq(stats.lines[1].foreign + stats.lines[1].malformed, 0);
	cr_assert_eq(stream.messages, 0);
	cr_assert_eq(count_of(&stream, TW_EV_SESSION), 0);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A); /* and it goes on */
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 2));
	assert_messages(&stream, 7, 1, 3);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_api, only_configured_publishers_are_heard, .timeout = 60)
{
	const struct pub_bed_conf conf = { .channels = 1,
					   .wait_us = PATIENT_US,
					   .address = "10.255.0.9" };
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &conf);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A); /* from 127.0.0.1 */
	poll_refused(sub, &stats, 1);
	cr_assert_eq(stats.lines[0].foreign_source, 1);
	cr_assert_eq(stats.lines[0].datagrams, 0);
	cr_assert_eq(stream.count - count_of(&stream, TW_EV_LINE_DOWN), 0);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

/* A publisher's host may have another address on each line. */
Test(sub_api, a_line_has_an_address_of_its_own, .timeout = 60)
{
	const struct pub_bed_conf conf = {
		.channels = 1,
		.wait_us = PATIENT_US,
		.address = "10.255.0.9, addresses: { b: 127.0.0.1 }",
	};
	struct pub_bed bed;
	struct tw_sub *sub = open_bed(&bed, &conf);

	pub_bed_orders(&bed, 7, 1, 2, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 2));
	assert_messages(&stream, 7, 1, 3);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_api, replay_where_it_is_accepted, .timeout = 60)
{
	const struct pub_bed_conf conf = { .channels = 1,
					   .wait_us = PATIENT_US,
					   .subscriber = ", accept_replay: true" };
	struct pub_bed bed;
	struct tw_sub_info info = { .size = sizeof(info) };
	struct tw_sub *sub = open_bed(&bed, &conf);
	struct pub_dgram d;

	pub_dgram_begin(&d, &bed, 7, 1);
	pub_dgram_orders(&d, 2);
	pub_dgram_hdr(&d)->flags |= TW_WIRE_REPLAY;
	pub_bed_send(&bed, &d, PUB_BED_A);
	cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, 2));
	cr_assert_eq(tw_sub_info_read(sub, &info), TW_OK);
	cr_assert_eq(info.accepts_replay, 1);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

struct watcher {
	const struct tw_sub *sub;
	/* nothing is ordered by either */
	_Atomic bool stop;
	_Atomic uint64_t reads;
	uint64_t backwards, last;
};

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct tw_sub_stats stats = { .size = sizeof(stats) };

	while (!atomic_load_explicit(&w->stop, memory_order_relaxed)) {
		if (tw_sub_stats_read(w->sub, 1, &stats) == TW_OK) {
			w->backwards += stats.messages < w->last || stats.messages > 2000;
			w->last = stats.messages;
			atomic_fetch_add_explicit(&w->reads, 1, memory_order_relaxed);
		}
	}
	return NULL;
}

Test(sub_api, stats_from_another_thread, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_stats stats;
	struct tw_sub *sub = open_bed(&bed, &patient);
	struct watcher watcher = { .sub = sub };
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, watch, &watcher), 0);
	while (atomic_load_explicit(&watcher.reads, memory_order_relaxed) == 0) {
		sched_yield();
	}
	for (uint64_t d = 0; d < 200; d++) {
		pub_bed_orders(&bed, 7, 1 + d * 10, 10, PUB_BED_BOTH);
		cr_assert(poll_until(sub, &stream, 64, TW_EV_MSG, (uint32_t)(d + 1) * 10));
	}
	atomic_store_explicit(&watcher.stop, true, memory_order_relaxed);
	pthread_join(thread, NULL);
	cr_assert_eq(watcher.backwards, 0);
	read_stats(sub, &stats);
	cr_assert_eq(stats.messages, 2000);
	cr_assert_eq(tw_sub_stats_read(sub, 2, &stats), TW_ENOTFOUND);
	stats.size = 4;
	cr_assert_eq(tw_sub_stats_read(sub, 1, &stats), TW_EARG);

	/* an older caller's shorter struct: not a byte more is written */
	struct {
		struct tw_sub_stats stats;
		uint8_t guard[64];
	} old;
	memset(&old, 0x5a, sizeof(old));
	old.stats.size = offsetof(struct tw_sub_stats, gaps);
	cr_assert_eq(tw_sub_stats_read(sub, 1, &old.stats), TW_OK);
	cr_assert_eq(old.stats.messages, 2000);
	cr_assert_eq(old.stats.gaps, 0x5a5a5a5a5a5a5a5aull);
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

Test(sub_api, wait_and_idle, .timeout = 60)
{
	const struct pub_bed_conf conf = { .channels = 1, .wait_us = PATIENT_US, .idle = "event" };
	struct pub_bed bed;
	struct tw_event ev;
	struct tw_sub *sub = open_bed(&bed, &conf);

	cr_assert_eq(tw_sub_poll(sub, &ev, 0), TW_EARG);
	cr_assert_eq(tw_sub_poll(sub, NULL, 1), TW_EARG);
	cr_assert_eq(tw_sub_poll(sub, &ev, 1), 0, "that was no reason to stop");
	cr_assert_eq(tw_sub_wait(sub, 1000000), 0);
	pub_bed_orders(&bed, 7, 1, 3, PUB_BED_A);
	cr_assert_eq(tw_sub_wait(sub, DEADLINE_NS), 1);
	cr_assert(poll_until(sub, &stream, 1, TW_EV_MSG, 1));
	cr_assert_eq(tw_sub_wait(sub, DEADLINE_NS), 1, "two more are there");
	cr_assert(poll_until(sub, &stream, 1, TW_EV_MSG, 3));
	for (unsigned int i = 0; i < 3; i++) {
		tw_sub_idle(sub);
		cr_assert(poll_once(sub, &stream, 1) >= 0);
	}
	tw_sub_close(sub);
	pub_bed_close(&bed);
	assert_no_leak();
}

static int readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	return poll(&p, 1, timeout_ms);
}

/* An event loop of the caller's: poll down to nothing, arm, sleep on the descriptor. */
Test(sub_api, descriptor_for_an_event_loop, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub *sub;
	struct tw_error err;
	struct tw_event events[8];
	cr_assert(pub_bed_open(&bed, &(struct pub_bed_conf){ .channels = 1, .wait_us = 1000 }));
	cr_assert_eq(pub_bed_subscribe(&bed, NULL, &sub, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_sub_arm(sub), TW_ESTATE, "nobody has asked for the descriptor");
	const int fd = tw_sub_event_fd(sub);
	cr_assert_geq(fd, 0);
	cr_assert_eq(tw_sub_event_fd(sub), fd);
	unsigned int messages = 0, sleeps = 0;
	for (uint64_t seq = 1; seq <= 50; seq += 2) {
		pub_bed_orders(&bed, 7, seq, 2, PUB_BED_BOTH);
		while (messages < seq + 1) {
			const int n = tw_sub_poll(sub, events, 8);
			cr_assert_geq(n, 0);
			for (int i = 0; i < n; i++) {
				messages += events[i].type == TW_EV_MSG;
			}
			if (n == 0 && tw_sub_arm(sub) == 0) {
				sleeps++;
				cr_assert_eq(readable(fd, 30000), 1, "after %u messages", messages);
			}
		}
	}
	/* nothing comes any more: the timers of silent lines wake it still */
	while (tw_sub_poll(sub, events, 8) > 0) {
	}
	if (tw_sub_arm(sub) == 0) {
		sleeps++;
		cr_assert_eq(readable(fd, 30000), 1);
	}
	cr_assert_gt(sleeps, 0);
	tw_sub_close(sub);
	pub_bed_close(&bed);
}

Test(sub_api, info_and_counter_file, .timeout = 60)
{
	const struct pub_bed_conf conf = { .channels = 2,
					   .wait_us = PATIENT_US,
					   .fault = "  correlated_loss_pct: 100\n" };
	struct pub_bed bed;
	struct tw_error err;
	struct tw_sub_stats stats;
	struct tw_sub_info info = { .size = sizeof(info) };
	struct tw_sub_channel_info channel = { .size = sizeof(channel) };
	struct tw_stats_reader *reader;
	struct tw_sub *other;
	char path[512];
	struct tw_sub *sub = open_bed(&bed, &conf);

	cr_assert_eq(tw_sub_info_read(sub, &info), TW_OK);
	cr_assert_str_eq(info.site, bed.name);
	cr_assert_str_eq(info.environment, "test");
	cr_assert_str_eq(info.host, "here");
	cr_assert_str_eq(info.transport, "udp");
	cr_assert_str_eq(info.idle, "yield");
	cr_assert_eq(info.channel_count, 2);
	cr_assert_eq(info.cpu, -1);
	cr_assert_eq(info.fault_active, 1);
	cr_assert_eq(tw_sub_channel_at(sub, 1, &channel), TW_OK);
	cr_assert_eq(channel.id, 2);
	cr_assert_str_eq(channel.name, "channel-2");
	cr_assert_eq(channel.groups[1], bed.groups[1][1]);
	cr_assert_eq(tw_sub_channel_at(sub, 2, &channel), TW_ENOTFOUND);
	cr_assert_str_eq(tw_sub_mic(sub, 1), "XTST");
	cr_assert_null(tw_sub_mic(sub, 2));

	pub_bed_orders(&bed, 7, 1, 3, PUB_BED_A);
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;
	do {
		cr_assert_geq(poll_once(sub, &stream, 64), 0);
		read_stats(sub, &stats);
	} while (stats.lines[0].fault_dropped == 0 && tw_mono_ns() < end_ns);
	cr_assert_eq(stats.lines[0].fault_dropped, 1);
	cr_assert_eq(stream.messages, 0);

	snprintf(path, sizeof(path), "%s.counters", info.counters);
	cr_assert_eq(tw_stats_open(&reader, bed.run_dir, path, &err), TW_OK, "%s", err.text);
	uint32_t groups = 0;
	for (uint32_t i = 0; i < tw_stats_value_count(reader); i++) {
		struct tw_stats_value value;
		tw_stats_value_at(reader, i, &value);
		groups += strcmp(value.name, "fault_dropped") == 0 &&
			  strcmp(value.label, "channel 1 line a") == 0 && value.value == 1;
	}
	cr_assert_eq(groups, 1);
	tw_stats_reader_close(reader);

	/* a second handle gets a name of its own, but not one that is taken */
	cr_assert_eq(pub_bed_subscribe(&bed, NULL, &other, &err), TW_OK, "%s", err.text);
	tw_sub_close(other);
	cr_assert_eq(pub_bed_subscribe(&bed, info.counters, &other, &err), TW_EBUSY);
	cr_assert_null(other);
	snprintf(path, sizeof(path), "%s/%s.counters", bed.run_dir, info.counters);
	cr_assert_eq(access(path, R_OK), 0);
	tw_sub_close(sub);
	cr_assert_neq(access(path, R_OK), 0, "close removes it");
	pub_bed_close(&bed);
	assert_no_leak();
}

static void assert_refused(const struct tw_sub_conf *conf, int code, const char *text)
{
	struct tw_error err = { 0 };
	struct tw_sub *sub = (struct tw_sub *)&err;

	cr_assert_eq(tw_sub_open(&sub, conf, &err), code, "%s", err.text);
	cr_assert_null(sub);
	cr_assert(strstr(err.text, text) != NULL, "'%s' is not in '%s'", text, err.text);
	cr_assert_eq(tw_sub_open(&sub, conf, NULL), code);
}

Test(sub_api, open_says_what_is_wrong, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_sub_conf conf;
	uint16_t channels[] = { 1, 1 };

	cr_assert(pub_bed_open(&bed, &patient));
	tw_sub_conf_init(&conf);
	assert_refused(&conf, TW_EARG, "site_path");
	assert_refused(NULL, TW_EARG, "tw_sub_conf_init");
	conf.site_path = "/nowhere/site.yaml";
	cr_assert_lt(tw_sub_open(&(struct tw_sub *){ NULL }, &conf, NULL), 0);
	conf.site_path = bed.site;
	conf.as = "nobody";
	assert_refused(&conf, TW_ENOTFOUND, "nobody");
	conf.as = "here";
	conf.name = "../up";
	assert_refused(&conf, TW_EARG, "../up");
	conf.name = "";
	assert_refused(&conf, TW_EARG, "name");
	conf.name = NULL;
	conf.channels = channels;
	assert_refused(&conf, TW_EARG, "channel_count");
	conf.channel_count = 2;
	assert_refused(&conf, TW_EARG, "channels");
	conf.channel_count = 1;
	channels[0] = 9;
	assert_refused(&conf, TW_ENOTFOUND, "channel 9");
	conf.channels = NULL;
	conf.size = 8;
	assert_refused(&conf, TW_EARG, "tw_sub_conf_init");

	struct {
		struct tw_sub_conf conf;
		uint64_t newer;
	} future = { .newer = 0 };
	tw_sub_conf_init(&conf);
	conf.site_path = bed.site;
	conf.as = "here";
	future.conf = conf;
	future.conf.size = sizeof(future);
	struct tw_sub *sub = NULL;
	cr_assert_eq(tw_sub_open(&sub, &future.conf, NULL), TW_OK);
	tw_sub_close(sub);
	future.newer = 1;
	assert_refused(&future.conf, TW_EARG, "more than this library knows");
	tw_sub_close(NULL);
	pub_bed_close(&bed);
	assert_no_leak();
}

static bool has_clock_thread(void)
{
	char path[64], name[32];
	bool found = false;
	DIR *dir = opendir("/proc/self/task");

	for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
		snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
		FILE *f = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
		if (f != NULL) {
			found |= fgets(name, sizeof(name), f) != NULL &&
				 strcmp(name, "tw-clock\n") == 0;
			fclose(f);
		}
	}
	closedir(dir);
	return found;
}

Test(sub_api, clock_keeper_lives_as_long_as_a_handle, .timeout = 60)
{
	struct pub_bed bed;
	struct tw_error err;
	struct tw_sub *second = NULL;
	struct tw_sub *first = open_bed(&bed, &patient);

	cr_assert_eq(pub_bed_subscribe(&bed, NULL, &second, &err), TW_OK, "%s", err.text);
	cr_assert(has_clock_thread());
	tw_sub_close(first);
	cr_assert(has_clock_thread());
	tw_sub_close(second);
	cr_assert_not(has_clock_thread());
	cr_assert_eq(pub_bed_subscribe(&bed, NULL, &first, &err), TW_OK, "%s", err.text);
	cr_assert(has_clock_thread());
	tw_sub_close(first);
	cr_assert_not(has_clock_thread());
	pub_bed_close(&bed);
	assert_no_leak();
}
