/* Nasdaq BinaryFILE: what is taken for one, its packets and times, its end, its day. */
#include <unistd.h>
#include <zlib.h>

#include "tests/support/itch_bytes.h"
#include "tests/support/temp_dir.h"

static void put_event_block(struct tape *t, uint64_t time_ns)
{
	put_be(t, 12, 2);
	put(t, "S", 1);
	put_be(t, 0, 4);
	put_be(t, time_ns, 6);
	put(t, "Q", 1);
}

/* Times 1, 1, 2, 3, 3, 3. */
static struct tape six(void)
{
	struct tape t = { .len = 0 };
	static const uint64_t times[] = { 1, 1, 2, 3, 3, 3 };
	for (size_t i = 0; i < 6; i++) {
		put_event_block(&t, times[i]);
	}
	return t;
}

static struct tw_input *open_tape(const struct tape *t, const char *name, uint32_t date)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	int rc = tw_input_recording_memory(&input, name, t->bytes, t->len, date, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	return input;
}

struct ended {
	uint64_t packets; /* handed out */
	int rc;
	struct tw_error err;
};

/* Reads to the end; the lengths of the packets add up in counts.bytes. */
static struct ended read_all(struct tw_input *input)
{
	struct ended e = { .packets = 0 };
	struct tw_packet packet;
	uint64_t bytes = 0;
	while ((e.rc = tw_input_next(input, &packet, &e.err)) == 1) {
		e.packets++;
		bytes += packet.len_bytes;
	}
	cr_assert_eq(bytes, input->counts.bytes);
	return e;
}

Test(binaryfile, a_packet_is_a_run_of_one_time, .timeout = 60)
{
	struct tape t = six();
	struct tw_input *input = open_tape(&t, "20191230", 0);
	cr_assert_str_eq(input->session, "binaryfile");
	cr_assert(input->waits);
	static const uint32_t lens[] = { 28, 14, 42 };
	for (uint64_t i = 0; i < 3; i++) {
		struct tw_packet packet;
		cr_assert_eq(tw_input_next(input, &packet, NULL), 1);
		cr_assert_eq(packet.len_bytes, lens[i]);
		cr_assert_eq(packet.recv_ns, MIDNIGHT_NS + i + 1);
	}
	struct tw_packet packet;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_next(input, &packet, &err), TW_ECLOSED);
	cr_assert_eq(tw_input_next(input, &packet, &err), TW_ECLOSED);
	cr_assert_eq(input->counts.packets, 6);
	cr_assert_eq(input->warning.code, TW_OK);
	tw_input_close(input);
}

Test(binaryfile, the_end_of_the_session_ends_it, .timeout = 60)
{
	struct tape t = six();
	put_be(&t, 0, 2);
	put_hex(&t, "ff ff ff 00 01"); /* whatever follows */
	struct tw_input *input = open_tape(&t, "x", 0);
	struct ended e = read_all(input);
	cr_assert_eq(e.rc, TW_ECLOSED);
	cr_assert_not_null(strstr(e.err.text, "end of the session"), "%s", e.err.text);
	cr_assert_eq(input->counts.packets, 6);
	cr_assert_eq(input->warning.code, TW_OK);
	tw_input_close(input);
}

Test(binaryfile, cut_anywhere, .timeout = 60)
{
	struct tape whole = six();
	for (size_t len = 14; len <= whole.len; len++) {
		struct tape t = whole;
		t.len = len;
		struct tw_input *input = open_tape(&t, "cut", 0);
		struct ended e = read_all(input);
		cr_assert_eq(e.rc, TW_ECLOSED);
		cr_assert_eq(input->counts.packets, len / 14);
		cr_assert_eq(input->counts.truncated, len % 14 != 0);
		cr_assert_eq(input->warning.code, len % 14 != 0 ? TW_EFORMAT : TW_OK);
		tw_input_close(input);
	}
}

static uint64_t draw_state;

static uint32_t draw(void) /* xorshift: the same everywhere */
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return (uint32_t)(draw_state >> 32);
}

/* More than the buffer, in messages of all lengths: nothing is lost where it is refilled. */
Test(binaryfile, longer_than_the_buffer, .timeout = 60)
{
	enum { MESSAGES = 40000 };
	size_t size = (size_t)MESSAGES * 64;
	uint8_t *bytes = malloc(size);
	cr_assert_not_null(bytes);
	size_t len = 0;
	draw_state = 3 * UINT64_C(0x9e3779b97f4a7c15) + 1;
	for (unsigned int i = 0; i < MESSAGES; i++) {
		struct tape t = { .len = 0 };
		unsigned int more = draw() % 17;
		put_be(&t, 12 + more, 2);
		put(&t, "S", 1);
		put_be(&t, 0, 4);
		put_be(&t, i / 3, 6);
		put(&t, "Q", 1);
		put(&t, "0123456789abcdef", more);
		memcpy(bytes + len, t.bytes, t.len);
		len += t.len;
	}
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_recording_memory(&input, "x", bytes, len, 0, &err), TW_OK, "%s",
		     err.text);
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .session = "binaryfile" });
	cr_assert_eq(tw_feed_run(b.feed, input, &err), TW_OK, "%s", err.text);
	cr_assert_eq(b.count, MESSAGES);
	for (unsigned int i = 0; i < MESSAGES; i++) {
		const struct tw_msg_head *head = bench_msg(&b, i, TW_MSG_SESSION_EVENT);
		cr_assert_eq(head->exchange_seq, i + 1);
		cr_assert_eq(head->exchange_ns, UINT64_C(18000000000000) + i / 3);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_packets), MESSAGES);
	cr_assert_eq(bench_counter(&b, TW_FH_input_bytes), len);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_packets), 0);
	bench_close(&b);
	tw_input_close(input);
	free(bytes);
}

static void refuse(const struct tape *t, const char *text)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	int rc = tw_input_recording_memory(&input, "tape", t->bytes, t->len, 0, &err);
	cr_assert_eq(rc, TW_EFORMAT);
	cr_assert_null(input);
	cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

Test(binaryfile, what_is_none, .timeout = 60)
{
	struct tape t = { .len = 0 };
	refuse(&t, "empty");
	put(&t, "symbol,price\n1,2\n", 17);
	refuse(&t, "first bytes 73 79 6d 62 6f 6c 2c 70, allowed are pcap, pcapng, BinaryFILE");
	t.len = 0;
	put_be(&t, 0, 2); /* an end without a beginning */
	refuse(&t, "first bytes 00 00");
	t = six();
	t.len = 13; /* not one message */
	refuse(&t, "not a capture");
	t = six();
	t.bytes[1] = 11; /* shorter than its type */
	refuse(&t, "not a capture");
	t = six();
	t.bytes[14 + 2] = 'z'; /* a type that there is not */
	refuse(&t, "not a capture");
	/* at most so much longer than its type */
	t.len = 0;
	put_be(&t, 12 + 17, 2);
	put(&t, "S0000000000000000000000000000", 29);
	refuse(&t, "not a capture");
	/* what comes after the messages that are looked at may be new */
	t.len = 0;
	for (unsigned int i = 0; i < 64; i++) {
		put_event_block(&t, i);
	}
	put_hex(&t, "0003 7a 00 00");
	struct tw_input *input = open_tape(&t, "x", 0);
	cr_assert_eq(read_all(input).packets, 65);
	tw_input_close(input);
}

Test(binaryfile, the_day_of_a_file, .timeout = 60)
{
	static const struct {
		const char *name;
		uint32_t date; /* configured */
		uint64_t midnight_s;
	} files[] = {
		{ "12302019_SNIPPET.NASDAQ_ITCH50", 0, 1577682000 },
		{ "/tmp/20230822/12302019.NASDAQ_ITCH50.gz", 0, 1577682000 },
		{ "20191230.BX_ITCH_50.gz", 0, 1577682000 },
		{ "S082223-v50.txt.gz", 0, 1692676800 },
		{ "x1230_20191230", 0, 1577682000 },
		{ "12302019.NASDAQ_ITCH50", 20230822, 1692676800 }, /* what is configured stands */
		{ "082223.txt", 0, 18000 }, /* six digits alone are no date */
		{ "13322019", 0, 18000 },
		{ "123020191", 0, 18000 },
		{ "itch", 0, 18000 },
	};
	struct tape t = six();
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct tw_input *input = open_tape(&t, files[i].name, files[i].date);
		struct tw_packet packet;
		cr_assert_eq(tw_input_next(input, &packet, NULL), 1);
		cr_assert_eq(packet.recv_ns, files[i].midnight_s * 1000000000u + 1, "%s",
			     files[i].name);
		tw_input_close(input);
	}
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_recording_memory(&input, "x", t.bytes, t.len, 20190229, &err),
		     TW_ECONFIG);
	cr_assert_null(input);
}

/* A name that is longer than what is kept of it for error texts still gives its date. */
Test(binaryfile, a_long_path, .timeout = 60)
{
	char name[400];
	memset(name, 'd', sizeof(name));
	memcpy(name + 350, "/12302019.ITCH50", 17);
	struct tape t = six();
	struct tw_input *input = open_tape(&t, name, 0);
	struct tw_packet packet;
	cr_assert_eq(tw_input_next(input, &packet, NULL), 1);
	cr_assert_eq(packet.recv_ns, MIDNIGHT_NS + 1);
	tw_input_close(input);
}

static void write_file(const char *path, const struct tape *t, bool gzip, size_t cut)
{
	if (gzip) {
		gzFile out = gzopen(path, "wb");
		cr_assert_not_null(out);
		cr_assert_eq(gzwrite(out, t->bytes, (unsigned int)t->len), (int)t->len);
		cr_assert_eq(gzclose(out), Z_OK);
	} else {
		FILE *out = fopen(path, "we");
		cr_assert_not_null(out);
		cr_assert_eq(fwrite(t->bytes, 1, t->len, out), t->len);
		cr_assert_eq(fclose(out), 0);
	}
	struct stat st;
	cr_assert_eq(stat(path, &st), 0);
	cr_assert_eq(truncate(path, st.st_size - (off_t)cut), 0);
}

Test(binaryfile, gzip, .timeout = 60)
{
	struct temp_dir dir;
	char path[256];
	cr_assert(temp_dir_make(&dir));
	(void)snprintf(path, sizeof(path), "%s/12302019.NASDAQ_ITCH50.gz", dir.path);
	struct tape t = six();
	write_file(path, &t, true, 0);
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_recording_open(&input, path, 0, &err), TW_OK, "%s", err.text);
	struct ended e = read_all(input);
	cr_assert_eq(e.rc, TW_ECLOSED);
	cr_assert_eq(e.packets, 3);
	cr_assert_eq(input->warning.code, TW_OK);
	tw_input_close(input);
	write_file(path, &t, true, 4); /* its trailer is cut */
	cr_assert_eq(tw_input_recording_open(&input, path, 0, &err), TW_OK, "%s", err.text);
	e = read_all(input);
	cr_assert_eq(e.packets, 3);
	cr_assert_eq(input->warning.code, TW_EFORMAT);
	tw_input_close(input);
	temp_dir_remove(&dir);
}

/* Each file is a session: numbers begin again, orders are forgotten, definitions are due. */
Test(binaryfile, several_files, .timeout = 60)
{
	struct temp_dir dir;
	char one[256], two[256], capture[256];
	cr_assert(temp_dir_make(&dir));
	(void)snprintf(one, sizeof(one), "%s/12302019.ITCH50", dir.path);
	(void)snprintf(two, sizeof(two), "%s/12312019.ITCH50", dir.path);
	(void)snprintf(capture, sizeof(capture), "%s/capture.pcap", dir.path);
	struct tape t = six();
	write_file(one, &t, false, 0);
	write_file(two, &t, false, 0);
	struct tape pcap = { .len = 0 };
	put_pcap_header(&pcap, (struct pcap_kind){ 0 }, 1);
	write_file(capture, &pcap, false, 0);

	char *paths[] = { one, two, NULL };
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_files_open(&input, paths, 0, &err), TW_OK, "%s", err.text);
	cr_assert_str_eq(input->session, "binaryfile");
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .session = input->session });
	cr_assert_eq(tw_feed_run(b.feed, input, &err), TW_OK, "%s", err.text);
	cr_assert_eq(b.count, 12);
	for (size_t i = 0; i < 12; i++) {
		const struct tw_msg_session_event *e = bench_msg(&b, i, TW_MSG_SESSION_EVENT);
		cr_assert_eq(e->head.exchange_seq, i % 6 + 1);
		cr_assert_eq(e->trading_date, i < 6 ? 20191230 : 20191231);
		cr_assert_eq(e->head.recv_delta_ns, 0);
		cr_assert_eq(e->head.flags, END);
	}
	cr_assert_eq(bench_counter(&b, TW_FH_session_changes), 1);
	bench_close(&b);
	tw_input_close(input);

	char *mixed[] = { one, capture, NULL };
	cr_assert_eq(tw_input_files_open(&input, mixed, 0, &err), TW_EFORMAT);
	cr_assert_not_null(strstr(err.text, "capture.pcap"), "%s", err.text);
	char *other_way[] = { capture, one, NULL };
	cr_assert_eq(tw_input_files_open(&input, other_way, 0, &err), TW_EFORMAT);
	temp_dir_remove(&dir);
}

Test(binaryfile, it_carries_itch_alone, .timeout = 60)
{
	struct tw_feed_conf conf = { .protocol = "tops16",
				     .session = "binaryfile",
				     .channel_count = 1 };
	struct tw_feed *feed;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert_not_null(strstr(err.text, "carries itch50"), "%s", err.text);
}

/* Where nobody keeps the venue's timing, a packet has messages of several times, each of which is received at its
 * own, and as many as a decoder takes at once. */
Test(binaryfile, unpaced_packets_are_long, .timeout = 60)
{
	struct tape t = six();
	struct tw_input *input = open_tape(&t, "20191230", 0);
	struct bench b;
	struct tw_packet packet;
	struct tw_error err = { 0 };
	open_with(&b, (struct tw_feed_conf){ .session = "binaryfile" });
	tw_feed_read_unpaced(b.feed, input);
	cr_assert_eq(tw_input_next(input, &packet, &err), 1);
	cr_assert_eq(packet.len_bytes, t.len);
	tw_feed_packet(b.feed, &packet);
	cr_assert_eq(b.count, 6);
	for (size_t i = 0; i < 6; i++) {
		const struct tw_msg_head *head = bench_msg(&b, i, TW_MSG_SESSION_EVENT);
		cr_assert_eq(head->recv_delta_ns, 0);
	}
	cr_assert_eq(tw_input_next(input, &packet, &err), TW_ECLOSED);
	bench_close(&b);
	tw_input_close(input);

	struct tape many = { .len = 0 };
	for (uint64_t i = 0; i < 3 * TW_FEED_RUN_MSGS + 1; i++) {
		put_event_block(&many, i);
	}
	input = open_tape(&many, "20191230", 0);
	input->unpaced = true;
	cr_assert_eq(read_all(input).packets, 4);
	tw_input_close(input);
}

Test(binaryfile, a_packet_that_is_cut, .timeout = 60)
{
	struct bench b;
	open_with(&b, (struct tw_feed_conf){ .session = "binaryfile" });
	struct tape t = six();
	struct tw_packet packet = { .payload = t.bytes, .len_bytes = 14 + 13, .recv_ns = RECV_NS };
	tw_feed_packet(b.feed, &packet);
	cr_assert_eq(b.count, 1);
	cr_assert_eq(bench_counter(&b, TW_FH_malformed_packets), 1);
	bench_close(&b);
}
