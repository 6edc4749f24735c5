/* The pipeline as a whole, pacing, and the feedhandler's hot thread with a publisher that is this test. */
#include <inttypes.h>
#include <sysexits.h>

#include "base/clock.h"
#include "base/log.h"
#include "feedhandler/feedhandler.h"
#include "tests/support/feed_bytes.h"
#include "tests/support/probe_alloc.h"
#include "tests/support/temp_dir.h"

#define SECOND_NS 1000000000ull

/* ---- pacing ---- */

Test(feed, pace_by_recorded_time)
{
	struct tw_pace p = { .rate_msgs = 2000 };
	cr_assert(tw_pace_waits(&p));
	p = (struct tw_pace){ 0 };
	cr_assert_not(tw_pace_waits(&p));
	p.speed_pct = 100;
	cr_assert(tw_pace_waits(&p));
	const uint64_t t0 = 5000 * SECOND_NS;
	cr_assert_eq(tw_pace_packet(&p, t0, 7), 7);
	cr_assert_eq(tw_pace_packet(&p, t0 + 3 * SECOND_NS, 8), 7 + 3 * SECOND_NS);
	cr_assert_eq(tw_pace_packet(&p, t0 + 10, 7 + 4 * SECOND_NS),
		     17); /* late ones move nothing */
	cr_assert_eq(tw_pace_packet(&p, t0 - 1, 99), 99);
	cr_assert_eq(tw_pace_packet(&p, 0, 99), 99); /* no time: no wait */
	p = (struct tw_pace){ .speed_pct = 250 };
	cr_assert_eq(tw_pace_packet(&p, t0, 0), 0);
	cr_assert_eq(tw_pace_packet(&p, t0 + 5 * SECOND_NS, 0), 2 * SECOND_NS);
	cr_assert_eq(tw_pace_packet(&p, t0 + 249, 0), 99);
	p = (struct tw_pace){ .speed_pct = 1 };
	cr_assert_eq(tw_pace_packet(&p, 1, 0), 0);
	cr_assert_eq(tw_pace_packet(&p, 1 + 86400 * SECOND_NS, 0), 8640000 * SECOND_NS);
	p = (struct tw_pace){ .speed_pct = 0 };
	cr_assert_eq(tw_pace_packet(&p, t0 + 9, 3), 3);
}

Test(feed, pace_by_rate_never_passes_it)
{
	struct tw_pace p = { .rate_msgs = 3 };
	uint64_t last = 0;
	for (uint64_t n = 0; n < 3000000; n++) {
		uint64_t due = tw_pace_message(&p, 11);
		cr_assert_geq(due, last);
		cr_assert_eq(due, 11 + n * SECOND_NS / 3, "message %" PRIu64, n);
		last = due;
	}
	p = (struct tw_pace){ .rate_msgs = 0 };
	cr_assert_eq(tw_pace_message(&p, 42), 42);
}

/* ---- captures of IEX-TP ---- */

static void put_quote(struct tape *blocks, uint64_t number, unsigned int symbols)
{
	char symbol[16];
	struct tape msg = { .len = 0 };
	(void)snprintf(symbol, sizeof(symbol), "S%-7u", (unsigned int)(number % symbols));
	put_hex(&msg, "51 00");
	put_le(&msg, 1500000000 * SECOND_NS + number, 8);
	put(&msg, symbol, 8);
	put_le(&msg, 100, 4);
	put_le(&msg, 990500, 8);
	put_le(&msg, 990600, 8);
	put_le(&msg, 200, 4);
	put_block(blocks, msg.bytes, msg.len);
}

/* Segments of `each` quotes, for `symbols` symbols in turn.  Packet and quote i are due i ns after the
 * start, the packet received 1 us later. */
static void put_feed(struct tape *file, unsigned int packets, uint16_t each, unsigned int symbols)
{
	static const struct pcap_kind kind = { .big = false, .nano = true };
	static struct tape blocks, segment, frame;
	file->len = 0;
	put_pcap_header(file, kind, 1);
	for (uint64_t first = 0; first < (uint64_t)packets * each; first += each) {
		blocks.len = segment.len = frame.len = 0;
		for (uint64_t i = 0; i < each; i++) {
			put_quote(&blocks, first + i, symbols);
		}
		put_iextp(&segment,
			  (struct iextp_hdr){ .protocol = 0x8003,
					      .channel = 1,
					      .session = 7,
					      .count = each,
					      .seq = 1 + first,
					      .send_ns = 1 + first },
			  &blocks);
		put_ethernet(&frame, 0x0800);
		put_ipv4_udp(&frame, segment.bytes, segment.len, 0, 0);
		put_pcap_packet(file, kind, 1500000000 * SECOND_NS + first + 1000, frame.bytes,
				frame.len, frame.len);
	}
}

Test(feed, runs_a_capture_without_allocating, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 500, 1, 5);
	struct bench b;
	bench_open(&b, (struct tw_feed_conf){ 0 });
	b.room = 600;
	b.msgs = malloc(b.room * sizeof(*b.msgs));
	cr_assert_not_null(b.msgs);
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_capture_memory(&input, "feed", file.bytes, file.len, &err), TW_OK);
	struct tw_packet packet;
	cr_assert_eq(tw_input_next(input, &packet, &err), 1); /* libpcap may size its buffer now */
	tw_feed_packet(b.feed, &packet);
	uint64_t before = probe_alloc_calls();
	int rc = tw_feed_run(b.feed, input, &err);
	cr_assert_eq(probe_alloc_calls(), before);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	cr_assert_eq(b.count, 505);
	cr_assert_eq(bench_counter(&b, TW_FH_packets), 500);
	cr_assert_eq(bench_counter(&b, TW_FH_instruments), 5);
	const struct tw_msg_quote *q = bench_msg(&b, 504, TW_MSG_QUOTE);
	cr_assert_eq(q->head.recv_delta_ns, 1000);
	cr_assert_eq(q->head.flags, TW_MSG_EVENT_END);
	tw_input_close(input);
	bench_close(&b);
}

Test(feed, wrong_names_are_refused)
{
	struct tw_feed *feed;
	struct tw_error err = { 0 };
	_Atomic uint64_t counters[TW_N_fh_counters] = { 0 };
	struct tw_feed_conf conf = { .protocol = "tops99",
				     .channel_count = 1,
				     .counters = { .values = counters } };
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert(strstr(err.text, "'tops99': not known, there are: tops16") != NULL, "%s",
		  err.text);
	conf.protocol = "tops16";
	conf.session = "carrier-pigeon";
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert(strstr(err.text, "there are: iextp") != NULL, "%s", err.text);
	conf.session = NULL;
	conf.directory = "no/such/directory";
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	conf.directory = NULL;
	conf.channel_count = 17;
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert_null(feed);
}

static void write_file(const char *path, const struct tape *file)
{
	FILE *out = fopen(path, "w");
	cr_assert_not_null(out);
	cr_assert_eq(fwrite(file->bytes, 1, file->len, out), file->len);
	cr_assert_eq(fclose(out), 0);
}

Test(feed, several_captures_are_one_input, .timeout = 60)
{
	static struct tape file;
	struct temp_dir dir;
	char a[160], b[160], c[160];
	cr_assert(temp_dir_make(&dir));
	(void)snprintf(a, sizeof(a), "%s/a", dir.path);
	(void)snprintf(b, sizeof(b), "%s/b", dir.path);
	(void)snprintf(c, sizeof(c), "%s/c", dir.path);
	put_feed(&file, 10, 1, 1);
	write_file(a, &file);
	size_t each = (file.len - 24) / 10;
	/* the same session goes on: 10 known messages, then 10 new ones, cut in the last */
	put_feed(&file, 20, 1, 1);
	file.len -= each / 2;
	write_file(b, &file);
	/* another session, sent before all of that: a straggler within one recording, but not here */
	put_feed(&file, 5, 1, 1);
	for (size_t i = 0; i < 5; i++) {
		uint8_t *segment = file.bytes + 24 + i * each + 16 + 14 + 28;
		segment[8] = 99;            /* session */
		memset(segment + 32, 0, 8); /* send time */
		segment[32] = 1;
	}
	write_file(c, &file);
	char *paths[] = { a, b, c, NULL };
	struct bench bench;
	bench_open(&bench, (struct tw_feed_conf){ 0 });
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_files_open(&input, paths, 0, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_feed_run(bench.feed, input, &err), TW_OK, "%s", err.text);
	cr_assert_eq(bench_counter(&bench, TW_FH_packets), 10 + 19 + 5);
	cr_assert_eq(bench_counter(&bench, TW_FH_truncated_packets), 1);
	cr_assert_eq(bench_counter(&bench, TW_FH_duplicate_messages), 10);
	cr_assert_eq(bench_counter(&bench, TW_FH_session_changes), 1);
	cr_assert_eq(bench_counter(&bench, TW_FH_foreign_packets), 0);
	cr_assert_eq(bench_counter(&bench, TW_FH_gaps), 0);
	cr_assert_eq(bench_counter(&bench, TW_FH_venue_messages), 19 + 5);
	cr_assert(strstr(input->warning.text, "/b: ends in the middle of packet 20") != NULL, "%s",
		  input->warning.text);
	tw_input_close(input);
	bench_close(&bench);

	(void)unlink(c);
	cr_assert_eq(tw_input_files_open(&input, paths, 0, &err),
		     TW_ENOTFOUND); /* at once, not later */
	cr_assert(strstr(err.text, c) != NULL, "%s", err.text);
	temp_dir_remove(&dir);
}

/* ---- the process, with this test as its publisher ---- */

struct stage {
	struct temp_dir dir;
	struct tw_site *site;
	struct tw_app app;
	struct tw_feedhandler *fh;
	struct tw_error err;
};

static void stage_open(struct stage *s, const struct tape *file, const char *input_more,
		       unsigned int wait_ms)
{
	memset(s, 0, sizeof(*s));
	cr_assert(temp_dir_make(&s->dir));
	char path[160];
	(void)snprintf(path, sizeof(path), "%s/feed.pcap", s->dir.path);
	write_file(path, file);
	char yaml[2048];
	int n = snprintf(
		yaml, sizeof(yaml),
		"site: t\nenvironment: test\nrun_dir: %s\nfabric: { transport: udp }\n"
		"hosts: { h: { address: 127.0.0.1, lines: { a: lo } } }\n"
		"venues: [ { id: 1, mic: IEXG } ]\n"
		"channels:\n"
		"  - { id: 4, name: all, depth: quotes, groups: { a: 239.192.7.4 } }\n"
		"  - { id: 5, name: one, depth: quotes, symbols: [S1], groups: { a: "
		"239.192.7.5 } }\n"
		"feedhandlers:\n"
		"  - { name: f, host: h, venue: IEXG, protocol: tops16, bus_kbytes: 64,\n"
		"      wait_publisher_ms: %u, input: { files: [%s]%s }, channels: [4, 5] }\n",
		s->dir.path, wait_ms, path, input_more);
	int rc = tw_site_parse(&s->site, "t.yaml", yaml, (size_t)n, &s->err);
	cr_assert_eq(rc, TW_OK, "%s", s->err.text);
	tw_log_init("test", TW_LOG_ERROR);
	tw_app_init(&s->app, "test");
	rc = tw_feedhandler_open(&s->fh, s->site, 0, &s->app, &s->err);
	cr_assert_eq(rc, TW_OK, "%s", s->err.text);
}

static void stage_start(struct stage *s)
{
	int rc = tw_feedhandler_start(s->fh, &s->err);
	cr_assert_eq(rc, TW_OK, "%s", s->err.text);
}

static void stage_close(struct stage *s)
{
	tw_feedhandler_close(s->fh);
	tw_site_free(s->site);
	temp_dir_remove(&s->dir);
}

struct publisher {
	struct tw_bus_reader *reader;
	uint64_t msgs, kinds[TW_MSG_KIND_LIMIT];
	struct tw_msg_head last_quote;
	bool ended;
};

static void publisher_open(struct publisher *p, const struct stage *s, uint16_t channel)
{
	struct tw_error err = { 0 };
	*p = (struct publisher){ 0 };
	int rc = tw_bus_open(&p->reader, s->site->run_dir, channel, true, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
}

/* Takes what is there, and releases it. */
static void publisher_take(struct publisher *p)
{
	static _Alignas(8) uint8_t bytes[4096];
	struct tw_bus_batch batch;
	int rc = tw_bus_read(p->reader, bytes, sizeof(bytes), &batch);
	cr_assert_geq(rc, 0, "%d", rc);
	cr_assert(rc == 0 || batch.first_seq == p->msgs + 1, "each number once and in order");
	const uint8_t *at = bytes;
	for (int i = 0; i < rc; i++) {
		const struct tw_msg_sbe *sbe = (const void *)at;
		p->kinds[sbe->template_id]++;
		if (sbe->template_id == TW_MSG_QUOTE) {
			memcpy(&p->last_quote, at, sizeof(p->last_quote));
		}
		at += sizeof(*sbe) + sbe->block_length;
	}
	p->msgs += (uint64_t)rc;
	tw_bus_release(p->reader);
	p->ended = rc == 0 && tw_bus_reader_state(p->reader) == TW_BUS_ENDED;
}

Test(feed, every_message_reaches_the_publishers, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 90, 10, 3);
	struct stage s;
	stage_open(&s, &file, "", 0);
	stage_start(&s);
	struct publisher all, one;
	publisher_open(&all, &s, 4);
	publisher_open(&one, &s, 5);
	while (!all.ended || !one.ended) { /* the Test's timeout ends it */
		publisher_take(&all);
		publisher_take(&one);
	}
	cr_assert_eq(tw_feedhandler_join(s.fh), EX_OK);
	cr_assert_eq(all.kinds[TW_MSG_QUOTE], 900);
	cr_assert_eq(all.kinds[TW_MSG_INSTRUMENT_DEFINITION], 3);
	cr_assert_eq(one.kinds[TW_MSG_QUOTE], 300);
	cr_assert_eq(one.kinds[TW_MSG_INSTRUMENT_DEFINITION], 1);
	const struct tw_counters *c = &s.fh->channels[0].counters;
	cr_assert_eq(tw_counter_get(c, TW_FH_CHANNEL_messages), 903);
	cr_assert_eq(tw_counter_get(c, TW_FH_CHANNEL_next_seq), 904);
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	cr_assert_not_null(out);
	tw_feedhandler_summary(s.fh, out);
	cr_assert_eq(fclose(out), 0);
	cr_assert(strstr(text, "\"venue_messages\": 900,") != NULL, "%s", text);
	cr_assert(strstr(text, "\"exit_status\": 0,") != NULL, "%s", text);
	free(text);
	tw_bus_reader_close(all.reader);
	tw_bus_reader_close(one.reader);
	stage_close(&s);
}

/* The bus holds 64 KB, the feed makes twice that: without its publisher the feedhandler stands still. */
Test(feed, a_full_bus_stops_the_file_until_it_is_released, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 200, 10, 1);
	struct stage s;
	stage_open(&s, &file, "", 0);
	stage_start(&s);
	struct publisher all, one;
	publisher_open(&all, &s, 4);
	publisher_open(&one, &s, 5);
	const struct tw_counters *c = &s.fh->channels[0].counters;
	while (tw_counter_get(c, TW_FH_CHANNEL_stalls) == 0) { /* the Test's timeout ends it */
		publisher_take(&one);
	}
	cr_assert_leq(tw_counter_get(c, TW_FH_CHANNEL_bytes), 65536);
	while (!all.ended || !one.ended) {
		publisher_take(&all);
		publisher_take(&one);
	}
	cr_assert_eq(tw_feedhandler_join(s.fh), EX_OK);
	cr_assert_eq(all.kinds[TW_MSG_QUOTE], 2000);
	tw_bus_reader_close(all.reader);
	tw_bus_reader_close(one.reader);
	stage_close(&s);
}

Test(feed, no_publisher_is_an_error_after_the_time_given, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 1, 1, 1);
	struct stage s;
	stage_open(&s, &file, "", 20);
	struct publisher all; /* one of two is not enough */
	publisher_open(&all, &s, 4);
	stage_start(&s);
	cr_assert_eq(tw_feedhandler_join(s.fh), EX_UNAVAILABLE);
	cr_assert_eq(s.fh->error.code, TW_ETIMEOUT);
	cr_assert(strstr(s.fh->error.text, "channel 5: no publisher") != NULL, "%s",
		  s.fh->error.text);
	publisher_take(&all);
	cr_assert_eq(all.msgs, 0);
	cr_assert(all.ended); /* the session is ended cleanly all the same */
	tw_bus_reader_close(all.reader);
	stage_close(&s);
}

Test(feed, stop_ends_the_session, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 90, 10, 1);
	struct stage s;
	stage_open(&s, &file, ", rate: 1000", 0); /* would take 0.9 s */
	stage_start(&s);
	struct publisher all, one;
	publisher_open(&all, &s, 4);
	publisher_open(&one, &s, 5);
	while (all.msgs < 3) {
		publisher_take(&all);
	}
	tw_app_stop(&s.app, EX_OK);
	cr_assert_eq(tw_feedhandler_join(s.fh), EX_OK);
	while (!all.ended) {
		publisher_take(&all);
	}
	cr_assert_eq(all.msgs, tw_counter_get(&s.fh->channels[0].counters, TW_FH_CHANNEL_messages));
	tw_bus_reader_close(all.reader);
	tw_bus_reader_close(one.reader);
	stage_close(&s);
}

Test(feed, damage_ends_with_what_was_right, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 10, 1, 1);
	size_t each = (file.len - 24) / 10;
	memset(file.bytes + 24 + 6 * each + 8, 0xff, 4);
	struct stage s;
	stage_open(&s, &file, "", 0);
	stage_start(&s);
	struct publisher all, one;
	publisher_open(&all, &s, 4);
	publisher_open(&one, &s, 5);
	while (!all.ended || !one.ended) {
		publisher_take(&all);
		publisher_take(&one);
	}
	cr_assert_eq(tw_feedhandler_join(s.fh), EX_DATAERR);
	cr_assert_eq(all.kinds[TW_MSG_QUOTE], 6);
	cr_assert(strstr(s.fh->error.text, "after packet 6") != NULL, "%s", s.fh->error.text);
	tw_bus_reader_close(all.reader);
	tw_bus_reader_close(one.reader);
	stage_close(&s);
}

/* As recorded the times are of 2017; restamped they are of this run, with the delta as recorded. */
Test(feed, a_recording_can_happen_now, .timeout = 60)
{
	static struct tape file;
	put_feed(&file, 30, 1, 1);
	for (unsigned int now = 0; now < 2; now++) {
		struct stage s;
		uint64_t before_ns = tw_wall_ns();
		stage_open(&s, &file, now ? ", speed_pct: 0, restamp: true" : ", speed_pct: 0", 0);
		stage_start(&s);
		struct publisher all, one;
		publisher_open(&all, &s, 4);
		publisher_open(&one, &s, 5);
		while (!all.ended || !one.ended) {
			publisher_take(&all);
			publisher_take(&one);
		}
		cr_assert_eq(tw_feedhandler_join(s.fh), EX_OK);
		uint64_t after_ns = tw_wall_ns();
		cr_assert_eq(all.kinds[TW_MSG_QUOTE], 30);
		cr_assert_eq(all.last_quote.recv_delta_ns, 1000);
		cr_assert_eq(all.last_quote.flags, TW_MSG_EVENT_END);
		uint64_t received_ns = all.last_quote.exchange_ns + 1000;
		if (now) {
			cr_assert(received_ns >= before_ns && received_ns <= after_ns);
		} else {
			cr_assert_eq(received_ns, 1500000000 * SECOND_NS + 29 + 1000);
		}
		tw_bus_reader_close(all.reader);
		tw_bus_reader_close(one.reader);
		stage_close(&s);
	}
}
