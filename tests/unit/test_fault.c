/* The fault layer around a receiver made of an array: determinism, rates, doubling, time. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "tidewire/wire.h"

#define ENDPOINTS 2u
#define MTU       256u

/* Hands out what lies in its queues; buffers are overwritten by the next poll, as real ones are. */
struct fake_rx {
	struct tw_rx base;
	struct {
		const struct tw_wire_hdr *hdrs;
		uint32_t count, at;
		uint64_t lent[TW_RX_BATCH][MTU / 8];
	} queue[ENDPOINTS];
	uint64_t waited_ns; /* of the last wait */
	bool *closed;
};

static int fake_poll(struct tw_rx *base, uint32_t endpoint, struct tw_rx_dgram *out,
		     unsigned int max)
{
	struct fake_rx *fake = (struct fake_rx *)base;
	unsigned int n = 0;
	memset(fake->queue[endpoint].lent, 0xee, sizeof(fake->queue[endpoint].lent));
	while (n < max && n < TW_RX_BATCH &&
	       fake->queue[endpoint].at < fake->queue[endpoint].count) {
		uint8_t *bytes = (uint8_t *)fake->queue[endpoint].lent[n];
		memcpy(bytes, &fake->queue[endpoint].hdrs[fake->queue[endpoint].at++],
		       sizeof(struct tw_wire_hdr));
		out[n++] = (struct tw_rx_dgram){ .data = bytes,
						 .len_bytes = sizeof(struct tw_wire_hdr),
						 .src_addr = 7,
						 .recv_ns = 1 };
	}
	return (int)n;
}

static int fake_wait(struct tw_rx *base, uint64_t timeout_ns)
{
	((struct fake_rx *)base)->waited_ns = timeout_ns;
	return 0;
}

static void fake_close(struct tw_rx *base)
{
	struct fake_rx *fake = (struct fake_rx *)base;
	*fake->closed = true;
	free(fake);
}

static const struct tw_rx_ops fake_ops = { .poll = fake_poll,
					   .wait = fake_wait,
					   .close = fake_close };

static bool inner_closed;
static _Atomic uint64_t values[ENDPOINTS][TW_N_sub_line_counters];

static uint64_t value(unsigned int line, enum tw_sub_line_counter c)
{
	return atomic_load(&values[line][c]);
}

static struct fake_rx *open_fault(struct tw_rx **rx_p, const struct tw_fault_conf *conf)
{
	struct fake_rx *fake = calloc(1, sizeof(*fake));
	cr_assert_not_null(fake);
	fake->base = (struct tw_rx){ .ops = &fake_ops, .endpoints = ENDPOINTS };
	inner_closed = false;
	fake->closed = &inner_closed;
	memset(values, 0, sizeof(values));
	struct tw_rx_endpoint eps[ENDPOINTS];
	for (uint8_t i = 0; i < ENDPOINTS; i++) {
		eps[i] = (struct tw_rx_endpoint){ .line = i, .counters = { values[i], NULL } };
	}
	struct tw_error err;
	cr_assert_eq(tw_fault_open(rx_p, &fake->base, conf, eps, ENDPOINTS, MTU, &err), TW_OK, "%s",
		     err.text);
	return fake;
}

/* Datagrams 1 .. n of a publisher; the caller frees them. */
static struct tw_wire_hdr *stream(uint32_t n)
{
	struct tw_wire_hdr *hdrs = calloc(n, sizeof(*hdrs));
	cr_assert_not_null(hdrs);
	for (uint32_t i = 0; i < n; i++) {
		hdrs[i] = (struct tw_wire_hdr){ .magic = TW_WIRE_MAGIC,
						.version_major = TW_WIRE_MAJOR,
						.header_bytes = TW_WIRE_HDR_BYTES,
						.session = 99,
						.publisher = 3,
						.packet_seq = 1 + i };
	}
	return hdrs;
}

static void feed(struct fake_rx *fake, unsigned int endpoint, const struct tw_wire_hdr *hdrs,
		 uint32_t n)
{
	fake->queue[endpoint].hdrs = hdrs;
	fake->queue[endpoint].count = n;
	fake->queue[endpoint].at = 0;
}

static uint64_t seq_of(const struct tw_rx_dgram *d)
{
	struct tw_wire_hdr hdr;
	cr_assert_eq(d->len_bytes, sizeof(hdr));
	cr_assert_eq((uintptr_t)d->data % 8, 0);
	memcpy(&hdr, d->data, sizeof(hdr));
	cr_assert_eq(hdr.magic, TW_WIRE_MAGIC);
	return hdr.packet_seq;
}

/* Polls until everything fed has come through, `max` at a time; times[seq] counts arrivals. */
static uint32_t drain(struct tw_rx *rx, struct fake_rx *fake, unsigned int endpoint,
		      unsigned int max, uint8_t *times)
{
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint32_t total = 0;
	for (;;) {
		const int n = tw_rx_poll(rx, endpoint, out, max);
		cr_assert(n >= 0 && n <= (int)max);
		for (int i = 0; i < n; i++) {
			times[seq_of(&out[i])]++;
		}
		total += (uint32_t)n;
		if (n == 0 && fake->queue[endpoint].at == fake->queue[endpoint].count) {
			return total;
		}
	}
}

#define N 100000u

static uint8_t *run(const struct tw_fault_conf *conf, unsigned int endpoint, unsigned int max)
{
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, conf);
	struct tw_wire_hdr *hdrs = stream(N);
	uint8_t *times = calloc(N + 1, 1);
	cr_assert_not_null(times);
	feed(fake, endpoint, hdrs, N);
	drain(rx, fake, endpoint, max, times);
	tw_rx_close(rx);
	cr_assert(inner_closed);
	free(hdrs);
	return times;
}

/* Whether a count is what `n` draws at `rate` give, to five standard deviations. */
static void check_rate(const char *what, uint32_t count, double n, double rate)
{
	const double sigma = sqrt(n * rate * (1 - rate));
	cr_assert(fabs(count - n * rate) <= 5 * sigma, "%s: %u of %.0f, expected %.0f +- %.0f",
		  what, count, n, n * rate, 5 * sigma);
}

static uint32_t count_times(const uint8_t *times, uint8_t want)
{
	uint32_t n = 0;
	for (uint32_t seq = 1; seq <= N; seq++) {
		n += times[seq] == want;
	}
	return n;
}

Test(fault, active)
{
	struct tw_fault_conf conf = { .seed = 1, .reorder_ns = 5 };
	cr_assert_not(tw_fault_active(&conf));
	conf.correlated_loss_ppm = 1;
	cr_assert(tw_fault_active(&conf));
	conf.correlated_loss_ppm = 0;
	conf.lines[1].delay_ns = 1;
	cr_assert(tw_fault_active(&conf));
}

/* From one message number to another, heartbeats too, and neither the other line nor anything around it. */
Test(fault, a_line_is_cut_by_message_number, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 3 };
	conf.lines[1].cut_begin_seq = 300;
	conf.lines[1].cut_end_seq = 600;
	cr_assert(tw_fault_active(&conf));
	for (unsigned int endpoint = 0; endpoint < ENDPOINTS; endpoint++) {
		struct tw_wire_hdr *hdrs = stream(1000);
		struct tw_rx *rx;
		struct fake_rx *fake = open_fault(&rx, &conf);
		uint8_t times[1001] = { 0 };
		for (uint32_t i = 0; i < 1000; i++) {
			hdrs[i].first_msg_seq = i;
			hdrs[i].flags = i % 5 == 0 ? TW_WIRE_HEARTBEAT : 0;
		}
		feed(fake, endpoint, hdrs, 1000);
		drain(rx, fake, endpoint, 10, times);
		for (uint32_t i = 0; i < 1000; i++) {
			uint64_t seq = hdrs[i].first_msg_seq;
			bool cut = endpoint == 1 && seq >= 300 && seq < 600;
			cr_assert_eq(times[i + 1], cut ? 0 : 1, "%u", i);
		}
		cr_assert_eq(value(1, TW_SUB_LINE_fault_dropped), endpoint == 1 ? 300 : 0);
		tw_rx_close(rx);
		free(hdrs);
	}
	conf.lines[1].cut_end_seq = 300;
	cr_assert_not(tw_fault_active(&conf));
}

Test(fault, nothing_configured_nothing_changed, .timeout = 60)
{
	const struct tw_fault_conf conf = { .seed = 5 };
	uint8_t *times = run(&conf, 0, TW_RX_BATCH);
	cr_assert_eq(count_times(times, 1), N);
	free(times);
}

Test(fault, loss_is_the_same_for_the_same_seed, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 12345 };
	conf.lines[0].loss_ppm = 100000;
	uint8_t *first = run(&conf, 0, TW_RX_BATCH);
	const uint64_t dropped = value(0, TW_SUB_LINE_fault_dropped);
	uint8_t *second = run(&conf, 0, 3);
	cr_assert_arr_eq(first, second, N + 1, "the batch size must not matter");
	cr_assert_eq(count_times(first, 0), dropped);
	cr_assert_eq(count_times(first, 1), N - dropped);
	check_rate("lost", (uint32_t)dropped, N, 0.1);
	conf.seed++;
	uint8_t *third = run(&conf, 0, TW_RX_BATCH);
	uint32_t both = 0;
	for (uint32_t seq = 1; seq <= N; seq++) {
		both += first[seq] == 0 && third[seq] == 0;
	}
	check_rate("lost under both seeds", both, N, 0.01);
	free(first);
	free(second);
	free(third);
}

Test(fault, everything_and_nothing_are_exact, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 9 };
	conf.lines[0].loss_ppm = 1000000;
	uint8_t *times = run(&conf, 0, TW_RX_BATCH);
	cr_assert_eq(count_times(times, 0), N);
	free(times);
	times = run(&conf, 1, TW_RX_BATCH);
	cr_assert_eq(count_times(times, 1), N, "the other line loses nothing");
	free(times);
}

Test(fault, lines_lose_independently_or_together, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 77 };
	conf.lines[0].loss_ppm = conf.lines[1].loss_ppm = 200000;
	uint8_t *a = run(&conf, 0, 17), *b = run(&conf, 1, 31);
	uint32_t both = 0;
	for (uint32_t seq = 1; seq <= N; seq++) {
		both += a[seq] == 0 && b[seq] == 0;
	}
	check_rate("lost on both lines", both, N, 0.04);
	free(a);
	free(b);

	conf.lines[0].loss_ppm = conf.lines[1].loss_ppm = 0;
	conf.correlated_loss_ppm = 50000;
	a = run(&conf, 0, 17);
	b = run(&conf, 1, 31);
	cr_assert_arr_eq(a, b, N + 1);
	check_rate("lost on every line", count_times(a, 0), N, 0.05);
	free(a);
	free(b);
}

Test(fault, doubles_come_twice, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 4 };
	conf.lines[0].duplicate_ppm = 300000;
	uint8_t *wide = run(&conf, 0, TW_RX_BATCH);
	check_rate("doubled", count_times(wide, 2), N, 0.3);
	cr_assert_eq(count_times(wide, 1) + count_times(wide, 2), N);
	cr_assert_eq(value(0, TW_SUB_LINE_fault_duplicated), count_times(wide, 2));
	uint8_t *one = run(&conf, 0, 1); /* second copies wait for the next poll */
	cr_assert_arr_eq(wide, one, N + 1);
	free(wide);
	free(one);
}

/* Heartbeats repeat their packet_seq; each is judged on its own. */
Test(fault, heartbeats_are_judged_one_by_one, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 8 };
	conf.lines[0].loss_ppm = 500000;
	struct tw_wire_hdr *hdrs = stream(1000);
	for (uint32_t i = 0; i < 1000; i++) {
		hdrs[i].flags = TW_WIRE_HEARTBEAT;
		hdrs[i].packet_seq = 5;
	}
	uint8_t times[2][6];
	uint32_t came[2];
	for (unsigned int r = 0; r < 2; r++) {
		struct tw_rx *rx;
		struct fake_rx *fake = open_fault(&rx, &conf);
		memset(times[r], 0, sizeof(times[r]));
		feed(fake, 0, hdrs, 1000);
		came[r] = drain(rx, fake, 0, 10, times[r]);
		tw_rx_close(rx);
	}
	check_rate("heartbeats", came[0], 1000, 0.5);
	cr_assert_eq(came[0], came[1]);
	free(hdrs);
}

Test(fault, other_bytes_pass_unharmed, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 8, .correlated_loss_ppm = 1000000 };
	struct tw_wire_hdr *hdrs = stream(10);
	hdrs[3].magic ^= 1;
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, &conf);
	feed(fake, 0, hdrs, 10);
	struct tw_rx_dgram out[TW_RX_BATCH];
	cr_assert_eq(tw_rx_poll(rx, 0, out, TW_RX_BATCH), 1);
	cr_assert_eq(value(0, TW_SUB_LINE_fault_dropped), 9);
	tw_rx_close(rx);
	free(hdrs);
}

#define REORDER_NS 2000000u

Test(fault, reordered_ones_come_by_time, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 21, .reorder_ns = REORDER_NS };
	conf.lines[0].reorder_ppm = 300000;
	struct tw_wire_hdr *hdrs = stream(64);
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, &conf);
	feed(fake, 0, hdrs, 64);
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint8_t times[65] = { 0 };
	const uint64_t begin_ns = tw_mono_ns();
	int n = tw_rx_poll(rx, 0, out, TW_RX_BATCH);
	const uint64_t held = value(0, TW_SUB_LINE_fault_reordered);
	cr_assert(held > 5 && held < 40, "%u held", (unsigned int)held);
	cr_assert_eq(n, 64 - (int)held);
	uint64_t last = 0;
	for (int i = 0; i < n; i++) {
		const uint64_t seq = seq_of(&out[i]);
		cr_assert_gt(seq, last, "the others stay in order");
		last = seq;
		times[seq]++;
	}
	/* nothing else arrives: they come all the same, once their time is over and not before */
	cr_assert_geq(tw_rx_wait(rx, 1000000000), 0);
	cr_assert_leq(fake->waited_ns, REORDER_NS, "a wait ends when the first one is due");
	uint32_t late = 0;
	last = 0;
	while (late < held) {
		n = tw_rx_poll(rx, 0, out, 4);
		const uint64_t now_ns = tw_mono_ns();
		for (int i = 0; i < n; i++) {
			cr_assert_geq(now_ns - begin_ns, REORDER_NS);
			const uint64_t seq = seq_of(&out[i]);
			cr_assert_gt(seq, last, "held ones keep their order among each other");
			last = seq;
			times[seq]++;
			late++;
			cr_assert_neq(out[i].recv_ns, 1, "stamped when it came out");
		}
	}
	for (unsigned int seq = 1; seq <= 64; seq++) {
		cr_assert_eq(times[seq], 1);
	}
	cr_assert_eq(tw_rx_wait(rx, 12345), 0);
	cr_assert_eq(fake->waited_ns, 12345, "nothing is held any more");
	tw_rx_close(rx);
	free(hdrs);
}

Test(fault, delay_keeps_order_and_time, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 2 };
	conf.lines[0].delay_ns = REORDER_NS;
	conf.lines[0].duplicate_ppm = 500000;
	struct tw_wire_hdr *hdrs = stream(500);
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, &conf);
	feed(fake, 0, hdrs, 500);
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint8_t times[501] = { 0 };
	uint64_t last = 1, begin_ns = tw_mono_ns();
	uint32_t total = 0;
	while (fake->queue[0].at < 500 || last < 500 || times[500] == 0) {
		const int n = tw_rx_poll(rx, 0, out, 5);
		const uint64_t now_ns = tw_mono_ns();
		for (int i = 0; i < n; i++, total++) {
			cr_assert_geq(now_ns - begin_ns, REORDER_NS);
			const uint64_t seq = seq_of(&out[i]);
			cr_assert_geq(seq, last);
			last = seq;
			times[seq]++;
		}
	}
	for (int n; (n = tw_rx_poll(rx, 0, out, 5)) > 0;) {
		total += (uint32_t)n;
	}
	cr_assert_eq(total, 500 + value(0, TW_SUB_LINE_fault_duplicated));
	cr_assert_eq(value(0, TW_SUB_LINE_fault_reordered), 0);
	tw_rx_close(rx);
	free(hdrs);
}

/* More at once than the store holds: the rest is delivered at once and nothing is lost. */
Test(fault, full_store_delivers_at_once, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 2, .reorder_ns = 20000000 };
	conf.lines[0].reorder_ppm = 1000000;
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, &conf);
	struct tw_wire_hdr *hdrs = stream(3000);
	uint8_t *times = calloc(3001, 1);
	cr_assert_not_null(times);
	feed(fake, 0, hdrs, 3000);
	uint32_t total = 0;
	struct tw_rx_dgram out[TW_RX_BATCH];
	while (total < 3000) {
		const int n = tw_rx_poll(rx, 0, out, TW_RX_BATCH);
		for (int i = 0; i < n; i++) {
			times[seq_of(&out[i])]++;
		}
		total += (uint32_t)n;
	}
	for (unsigned int seq = 1; seq <= 3000; seq++) {
		cr_assert_eq(times[seq], 1);
	}
	const uint64_t held = value(0, TW_SUB_LINE_fault_reordered);
	cr_assert(held >= 512 && held < 3000, "%u held", (unsigned int)held);
	cr_assert_eq(value(0, TW_SUB_LINE_fault_dropped), 0);
	free(times);
	free(hdrs);
	tw_rx_close(rx);
}

/* What the layer hands out from its store lies still until the next poll of that endpoint. */
Test(fault, handed_out_ones_lie_still, .timeout = 60)
{
	struct tw_fault_conf conf = { .seed = 6, .reorder_ns = 1 };
	conf.lines[0].reorder_ppm = conf.lines[1].reorder_ppm = 1000000;
	struct tw_wire_hdr *hdrs = stream(40);
	struct tw_rx *rx;
	struct fake_rx *fake = open_fault(&rx, &conf);
	feed(fake, 0, hdrs, 40);
	feed(fake, 1, hdrs, 40);
	struct tw_rx_dgram held[TW_RX_BATCH], other[TW_RX_BATCH];
	cr_assert_eq(tw_rx_poll(rx, 0, held, 20), 0);
	int n;
	do {
		n = tw_rx_poll(rx, 0, held, 10);
	} while (n == 0);
	for (unsigned int turns = 0; turns < 20; turns++) {
		cr_assert_geq(tw_rx_poll(rx, 1, other, 7), 0);
	}
	for (int i = 0; i < n; i++) {
		cr_assert_eq(seq_of(&held[i]), 1 + (uint64_t)i);
	}
	tw_rx_close(rx);
	free(hdrs);
}

Test(fault, failure_closes_the_inner_one)
{
	struct fake_rx *fake = calloc(1, sizeof(*fake));
	cr_assert_not_null(fake);
	fake->base = (struct tw_rx){ .ops = &fake_ops, .endpoints = 1 };
	inner_closed = false;
	fake->closed = &inner_closed;
	const struct tw_fault_conf conf = { .seed = 1, .correlated_loss_ppm = 1 };
	const struct tw_rx_endpoint eps[2] = { { .line = 0 }, { .line = 1 } };
	struct tw_rx *rx = &fake->base;
	struct tw_error err;
	cr_assert_eq(tw_fault_open(&rx, &fake->base, &conf, eps, 2, MTU, &err), TW_EARG);
	cr_assert_null(rx);
	cr_assert(inner_closed);
}
