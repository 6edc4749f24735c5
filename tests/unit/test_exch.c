/* Parts of tw-exchange: what is a request, how often a source is answered, which packets a fault hits,
 * how the day is cut into packets. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/exch.h"

#define SESSION  "SESSION001"
#define NS_PER_S 1000000000ull

static void put_request(uint8_t at[static EXCH_HEADER_BYTES], uint64_t seq, uint16_t count)
{
	exch_header_make(SESSION, seq, count, at);
}

Test(exch, a_request_is_read_as_the_layout_says)
{
	const uint8_t data[] = { 'S', 'E', 'S', 'S', 'I', 'O', 'N', '0', '0', '1',
				 1,   2,   3,   4,   5,   6,   7,   8,   9,   10 };
	struct exch_request request = { 0 };

	cr_assert_eq(exch_request_parse(data, sizeof(data), SESSION, &request), EXCH_WELL_FORMED);
	cr_assert_eq(request.seq, 0x0102030405060708u);
	cr_assert_eq(request.count, 0x090a);
}

Test(exch, what_is_no_request_is_told_apart)
{
	uint8_t data[EXCH_HEADER_BYTES + 1] = { 0 };
	struct exch_request request = { .seq = 77 };

	put_request(data, 5, 6);
	for (size_t len = 0; len <= sizeof(data); len++) {
		if (len != EXCH_HEADER_BYTES) {
			cr_assert_eq(exch_request_parse(data, len, SESSION, &request),
				     EXCH_MALFORMED, "%zu bytes", len);
		}
	}
	for (unsigned int i = 0; i < EXCH_SESSION_BYTES; i++) {
		data[i] ^= 1;
		cr_assert_eq(exch_request_parse(data, EXCH_HEADER_BYTES, SESSION, &request),
			     EXCH_OTHER_SESSION, "byte %u", i);
		data[i] ^= 1;
	}
	put_request(data, 0, 6);
	cr_assert_eq(exch_request_parse(data, EXCH_HEADER_BYTES, SESSION, &request),
		     EXCH_MALFORMED);
	put_request(data, 5, 0);
	cr_assert_eq(exch_request_parse(data, EXCH_HEADER_BYTES, SESSION, &request),
		     EXCH_MALFORMED);
	cr_assert_eq(request.seq, 77, "set by a request that is none");
	put_request(data, UINT64_MAX, UINT16_MAX);
	cr_assert_eq(exch_request_parse(data, EXCH_HEADER_BYTES, SESSION, &request),
		     EXCH_WELL_FORMED);
}

static unsigned int admitted(struct exch_limits *limits, uint32_t addr, uint64_t now_ns,
			     unsigned int tries)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < tries; i++) {
		n += exch_limits_admit(limits, addr, now_ns) ? 1 : 0;
	}
	return n;
}

Test(exch, a_source_has_a_burst_and_then_its_rate)
{
	static struct exch_limits limits;
	uint64_t now_ns = 5000 * NS_PER_S;

	exch_limits_init(&limits, 100);
	cr_assert_eq(admitted(&limits, 1, now_ns, 50), 10);
	cr_assert_eq(admitted(&limits, 2, now_ns, 50), 10, "another source's bucket");
	for (unsigned int i = 1; i <= 100; i++) {
		cr_assert_eq(admitted(&limits, 1, now_ns + i * NS_PER_S / 100, 5), 1, "%u", i);
	}
	/* idle for long, and still no more than a burst */
	cr_assert_eq(admitted(&limits, 1, now_ns + 1000 * NS_PER_S, 50), 10);
}

Test(exch, the_smallest_rate_is_one_a_second)
{
	static struct exch_limits limits;

	exch_limits_init(&limits, 1);
	cr_assert_eq(admitted(&limits, 9, NS_PER_S, 5), 1);
	cr_assert_eq(admitted(&limits, 9, 2 * NS_PER_S - 1, 5), 0);
	cr_assert_eq(admitted(&limits, 9, 2 * NS_PER_S, 5), 1);
}

Test(exch, many_sources_do_not_free_one_that_asks_all_the_time)
{
	static struct exch_limits limits;
	unsigned int n = 0;

	/* ten thousand sources with one request each, in a second: more than are remembered */
	exch_limits_init(&limits, 100);
	for (uint32_t i = 0; i < 10000; i++) {
		uint64_t now_ns = NS_PER_S + i * (NS_PER_S / 10000);
		cr_assert(exch_limits_admit(&limits, 0x0a000000u + i, now_ns));
		n += admitted(&limits, 0x7f000001u, now_ns, 2);
	}
	cr_assert_geq(n, 100);
	cr_assert_leq(n, 111);
}

Test(exch, faults_hit_their_share_and_the_same_packets_each_time)
{
	const struct exch_faults faults = { .seed = 3,
					    .drop_ppm = { 100000, 0 },
					    .drop_both_ppm = 50000,
					    .duplicate_ppm = 200000 };
	unsigned int dropped[2] = { 0, 0 }, both = 0, twice[2] = { 0, 0 }, twice_both = 0;

	for (uint64_t seq = 1; seq <= 100000; seq++) {
		bool a = exch_dropped(&faults, 0, seq), b = exch_dropped(&faults, 1, seq);
		bool dup_a = exch_duplicated(&faults, 0, seq),
		     dup_b = exch_duplicated(&faults, 1, seq);
		cr_assert_eq(a, exch_dropped(&faults, 0, seq));
		dropped[0] += a ? 1 : 0;
		dropped[1] += b ? 1 : 0;
		both += a && b ? 1 : 0;
		twice[0] += dup_a ? 1 : 0;
		twice[1] += dup_b ? 1 : 0;
		twice_both += dup_a && dup_b ? 1 : 0;
		cr_assert_not(exch_reordered(&faults, 0, seq));
	}
	/* 5 + 10 - 0.5 percent; 5; 20 on each line and, as lines differ, 4 on both */
	cr_assert(dropped[0] > 14000 && dropped[0] < 15000, "%u", dropped[0]);
	cr_assert(dropped[1] > 4700 && dropped[1] < 5300, "%u", dropped[1]);
	cr_assert_eq(both, dropped[1]);
	cr_assert(twice[0] > 19500 && twice[0] < 20500, "%u", twice[0]);
	cr_assert(twice_both > 3700 && twice_both < 4300, "%u", twice_both);
}

Test(exch, a_hundred_percent_is_all)
{
	const struct exch_faults faults = { .reorder_ppm = 1000000 };

	for (uint64_t seq = 1; seq <= 10000; seq++) {
		cr_assert(exch_reordered(&faults, 1, seq));
	}
}

/* A day of messages of `len` bytes, `gap_ns` apart. */
static void open_day(struct exch_day *day, unsigned int count, unsigned int len, uint64_t gap_ns,
		     uint64_t max, uint32_t speed_pct, uint64_t rate)
{
	char path[] = "/tmp/tw-test-exch-XXXXXX";
	int fd = mkstemp(path);
	struct tw_error err = { 0 };

	cr_assert_geq(fd, 0);
	FILE *f = fdopen(fd, "wb");
	cr_assert_not_null(f);
	for (unsigned int i = 0; i < count; i++) {
		uint8_t block[2 + EXCH_MAX_MESSAGE_BYTES] = { (uint8_t)(len >> 8), (uint8_t)len,
							      'S' };
		uint64_t time_ns = 1000 + i * gap_ns;
		for (unsigned int k = 0; k < 6; k++) {
			block[2 + 5 + k] = (uint8_t)(time_ns >> (8 * (5 - k)));
		}
		cr_assert_eq(fwrite(block, 2 + len, 1, f), 1);
	}
	cr_assert_eq(fclose(f), 0);
	const struct exch_day_conf conf = {
		.input = path, .max_messages = max, .rate = rate, .speed_pct = speed_pct
	};
	memset(day, 0, sizeof(*day));
	int status = exch_day_init(day, &conf, &err);
	(void)unlink(path);
	cr_assert_eq(status, TW_OK, "%s", err.text);
}

Test(exch, messages_are_due_at_their_own_time_or_evenly, .timeout = 60)
{
	struct exch_day day;

	open_day(&day, 100, 12, 1000000, 0, 50, 7);
	cr_assert_eq(day.count, 100);
	cr_assert_eq(day.messages[0].due_ns, 0);
	cr_assert_eq(day.messages[99].due_ns, 99 * 2000000u);
	exch_day_fini(&day);
	open_day(&day, 100, 12, 1000000, 30, 0, 7);
	cr_assert_eq(day.count, 30, "at most so many");
	cr_assert_eq(day.messages[29].due_ns, 4 * NS_PER_S + NS_PER_S / 7);
	exch_day_fini(&day);
}

Test(exch, packets_are_cut_by_room_and_by_time, .timeout = 60)
{
	struct exch_day day;
	uint8_t packet[EXCH_PACKET_BYTES];
	uint16_t taken = 0;

	/* three of the largest kind that fits three times: 3 * (2 + 482) = 1452 */
	open_day(&day, 10, 482, 1, 0, 100, 0);
	cr_assert_eq(exch_day_packet(&day, 0), 3);
	cr_assert_eq(exch_day_packet(&day, 9), 1);
	cr_assert_eq(exch_packet_make(&day, SESSION, 4, 10, packet, &taken), EXCH_PACKET_BYTES);
	cr_assert_eq(taken, 3);
	cr_assert_eq(packet[17], 5, "number of the first message");
	cr_assert_eq(packet[19], 3);
	exch_day_fini(&day);
	/* one byte more and it is two */
	open_day(&day, 10, 483, 1, 0, 100, 0);
	cr_assert_eq(exch_day_packet(&day, 0), 2);
	exch_day_fini(&day);
	/* 20 us from the first to the last, both included */
	open_day(&day, 10, 12, 10000, 0, 100, 0);
	cr_assert_eq(exch_day_packet(&day, 0), 3);
	exch_day_fini(&day);
	/* the largest message has room to the byte */
	open_day(&day, 2, EXCH_MAX_MESSAGE_BYTES, 0, 0, 100, 0);
	cr_assert_eq(exch_packet_make(&day, SESSION, 0, 2, packet, &taken), EXCH_PACKET_BYTES);
	cr_assert_eq(taken, 1);
	exch_day_fini(&day);
}

Test(exch, a_restamped_day_goes_past_midnight, .timeout = 60)
{
	struct exch_day day;
	const uint64_t last_second_ns = 86399 * NS_PER_S;

	open_day(&day, 3, 12, NS_PER_S, 0, 100, 0);
	exch_day_restamp(&day, last_second_ns);
	for (unsigned int i = 0; i < 3; i++) {
		const uint8_t *at = day.bytes + day.messages[i].at + 2 + 5;
		uint64_t time_ns = 0;
		for (unsigned int k = 0; k < 6; k++) {
			time_ns = time_ns << 8 | at[k];
		}
		cr_assert_eq(time_ns, i == 0 ? last_second_ns : (i - 1) * NS_PER_S);
		cr_assert_eq(at[-5], 'S');
	}
	exch_day_fini(&day);
}
