/* tw-gen's MoldUDP64 packets on one line and on two, taken apart by a reader of its own. */
#include "tests/unit/gen_itch.h"

static uint32_t le32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

static uint32_t internet_sum(const uint8_t *at, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++) {
		sum += i % 2 == 0 ? (uint32_t)at[i] << 8 : at[i];
	}
	return (sum & 0xffff) + (sum >> 16);
}

struct line {
	struct blob messages; /* with their lengths, as in a plain file */
	uint64_t next_seq, packets, heartbeats, ends, last_ns;
	uint64_t *times; /* of every packet */
	uint32_t ip_id;
	char session[10];
};

static void see_packet(struct line *line, const uint8_t *p, uint32_t len, uint64_t time_ns)
{
	uint64_t count = be(p + 18, 2);
	uint32_t at = 20;

	cr_assert_geq(len, 20);
	cr_assert_leq(len, 1472);
	if (line->packets == 0) {
		memcpy(line->session, p, 10);
	}
	cr_assert_arr_eq(p, line->session, 10);
	cr_assert_eq(be(p + 10, 8), line->next_seq);
	if (line->packets != 0) {
		cr_assert_leq(time_ns - line->last_ns, 1000200000u, "silence");
	}
	if (count == 0xffff) {
		line->ends++;
		count = 0;
	} else {
		cr_assert_eq(line->ends, 0, "something behind the end");
		line->heartbeats += count == 0 ? 1 : 0;
	}
	for (uint64_t i = 0; i < count; i++) {
		cr_assert_leq(at + 2, len);
		at += 2 + (uint32_t)be(p + at, 2);
	}
	cr_assert_eq(at, len, "messages fill the packet");
	memcpy(line->messages.bytes + line->messages.len, p + 20, len - 20);
	line->messages.len += len - 20;
	line->next_seq += count;
	line->last_ns = time_ns;
	line->times[line->packets++] = time_ns;
}

static void see_frame(struct line lines[2], const uint8_t *eth, uint32_t len, uint64_t time_ns)
{
	const uint8_t *ip = eth + 14;
	const uint8_t *udp = ip + 20;
	struct line *line = &lines[be(ip + 16, 4) == GROUP_B];

	cr_assert_geq(len, 62);
	cr_assert_eq(be(eth, 6), 0x01005e000000u | (be(ip + 16, 4) & 0x7fffff));
	cr_assert_eq(be(eth + 12, 2), 0x0800);
	cr_assert_eq(be(ip + 2, 2), len - 14);
	cr_assert_eq(be(ip + 4, 2), line->ip_id++ & 0xffff);
	cr_assert(be(ip + 16, 4) == GROUP_A || be(ip + 16, 4) == GROUP_B);
	cr_assert_eq(be(ip + 12, 4), be(ip + 16, 4) == GROUP_A ? 0x0ac30001 : 0x0ac30002);
	cr_assert_eq(internet_sum(ip, 20, 0), 0xffff, "IP checksum");
	cr_assert_eq(be(udp + 2, 2), PORT);
	cr_assert_eq(be(udp + 4, 2), len - 34);
	uint32_t sum = internet_sum(ip + 12, 8, 17 + (uint32_t)be(udp + 4, 2));
	sum = internet_sum(udp, len - 34, sum);
	cr_assert_eq((sum & 0xffff) + (sum >> 16), 0xffff, "UDP checksum");
	see_packet(line, udp + 8, len - 42, time_ns);
}

/* All packets of a capture, each on its line. */
static void see_capture(const struct blob *blob, struct line lines[2])
{
	uint64_t last_ns = 0;
	size_t at = 24;

	for (unsigned int i = 0; i < 2; i++) {
		lines[i] = (struct line){ .next_seq = 1 };
		lines[i].messages.bytes = malloc(MAX_BYTES);
		lines[i].times = calloc(MESSAGES, sizeof(uint64_t));
		cr_assert(lines[i].messages.bytes != NULL && lines[i].times != NULL);
	}
	cr_assert_gt(blob->len, 24);
	cr_assert_eq(le32(blob->bytes), 0xa1b23c4d, "nanosecond pcap");
	while (at < blob->len) {
		const uint8_t *r = blob->bytes + at;
		cr_assert_geq(blob->len - at, 16);
		uint32_t len = le32(r + 8);
		uint64_t time_ns = le32(r) * UINT64_C(1000000000) + le32(r + 4);
		cr_assert_eq(le32(r + 12), len);
		cr_assert_leq(len, blob->len - at - 16);
		cr_assert_geq(time_ns, last_ns, "the capture is in order of time");
		last_ns = time_ns;
		see_frame(lines, r + 16, len, time_ns);
		at += 16 + len;
	}
}

static void lines_free(struct line lines[2])
{
	for (unsigned int i = 0; i < 2; i++) {
		free(lines[i].messages.bytes);
		free(lines[i].times);
	}
}

Test(gen_mold, packets_hold_what_the_plain_file_holds, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_gen_conf conf = moldudp64(false);
	struct blob plain = generate(&itch_base, &sum);
	struct blob capture = generate(&conf, &sum);
	struct line lines[2];

	see_capture(&capture, lines);
	cr_assert_eq(lines[0].messages.len + 2, plain.len);
	cr_assert_arr_eq(lines[0].messages.bytes, plain.bytes, lines[0].messages.len);
	cr_assert_eq(lines[0].next_seq, MESSAGES + 1);
	cr_assert_eq(lines[0].packets, sum.packets);
	cr_assert_eq(lines[0].heartbeats, sum.heartbeats);
	cr_assert_geq(lines[0].heartbeats, 2);
	cr_assert_eq(lines[0].ends, 3);
	cr_assert_eq(lines[0].times[0], sum.first_ns);
	cr_assert_eq(lines[0].last_ns, sum.last_ns);
	cr_assert_arr_eq(lines[0].session, sum.session_name, 10);
	cr_assert_eq(lines[1].packets, 0);
	cr_assert_eq(capture.len, sum.capture_bytes);
	lines_free(lines);
	free(plain.bytes);
	free(capture.bytes);
}

Test(gen_mold, both_lines_carry_the_same, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_gen_conf one = moldudp64(false);
	struct tw_gen_conf two = moldudp64(true);
	struct blob single = generate(&one, &sum);
	struct blob both = generate(&two, &sum);
	struct line alone[2];
	struct line lines[2];
	uint64_t b_first = 0;
	uint64_t skew_ns = 0;

	see_capture(&single, alone);
	see_capture(&both, lines);
	cr_assert_eq(lines[0].packets, alone[0].packets);
	cr_assert_eq(lines[1].packets, alone[0].packets);
	cr_assert_eq(lines[0].packets + lines[1].packets, sum.packets);
	cr_assert_eq(lines[0].heartbeats + lines[1].heartbeats, sum.heartbeats);
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert_eq(lines[i].ends, 3);
		cr_assert_arr_eq(lines[i].session, alone[0].session, 10);
		cr_assert_eq(lines[i].messages.len, alone[0].messages.len);
		cr_assert_arr_eq(lines[i].messages.bytes, alone[0].messages.bytes,
				 alone[0].messages.len);
	}
	for (uint64_t i = 0; i < lines[0].packets; i++) {
		/* at this rate nothing waits so long that a line has to be let go early */
		cr_assert_eq(lines[0].times[i], alone[0].times[i], "line A is as without line B");
		b_first += lines[1].times[i] < lines[0].times[i] ? 1 : 0;
		skew_ns += lines[1].times[i] - lines[0].times[i];
	}
	cr_assert(b_first > lines[0].packets / 20 && b_first < lines[0].packets / 2);
	cr_assert_gt(skew_ns / lines[0].packets, 1000u);
	cr_assert_lt(skew_ns / lines[0].packets, 2000u);
	lines_free(alone);
	lines_free(lines);
	free(single.bytes);
	free(both.bytes);
}

/* A skew of many packets: the lines are let go early, but order and content stay. */
Test(gen_mold, a_long_skew_keeps_the_order, .timeout = 60)
{
	struct tw_gen_summary sum;
	struct tw_gen_conf conf = moldudp64(true);
	conf.skew_ns = TW_GEN_MAX_SKEW_NS;
	conf.rate = 10000000;
	struct blob blob = generate(&conf, &sum);
	struct line lines[2];

	see_capture(&blob, lines);
	cr_assert_eq(lines[0].packets, lines[1].packets);
	cr_assert_eq(lines[0].messages.len, lines[1].messages.len);
	cr_assert_arr_eq(lines[0].messages.bytes, lines[1].messages.bytes, lines[0].messages.len);
	lines_free(lines);
	free(blob.bytes);
}
