/* The `udp` transport on the loopback interface: real sockets, random groups.  sendmmsg() is wrapped,
 * so that a send can fail as a full or broken device makes it. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "fabric/udp/roce.h"

#define MTU       1024u
#define LINE_A    0x7f000001u /* 127.0.0.1 */
#define LINE_B    0x7f000002u
#define LIMIT_NS  5000000000ull /* after which a datagram is said to be missing */
#define PUBLISHER 77u

typedef _Atomic uint64_t value;

static value sub_values[8][TW_N_sub_line_counters];
static value pub_values[8][TW_N_pub_line_counters];

static struct tw_counters sub_counters(unsigned int i)
{
	return (struct tw_counters){ .values = sub_values[i], .hists = NULL };
}

static struct tw_counters pub_counters(unsigned int i)
{
	return (struct tw_counters){ .values = pub_values[i], .hists = NULL };
}

static uint64_t sub_value(unsigned int i, enum tw_sub_line_counter c)
{
	return atomic_load(&sub_values[i][c]);
}

static uint64_t pub_value(unsigned int i, enum tw_pub_line_counter c)
{
	return atomic_load(&pub_values[i][c]);
}

/* A random group of 239.192.0.0/14, so that tests that run at once do not hear each other. */
static uint32_t a_group(void)
{
	uint32_t r;
	cr_assert_eq(getrandom(&r, sizeof(r), 0), (ssize_t)sizeof(r));
	return 0xefc00000u | (r & 0x3ffffu);
}

static struct tw_fabric_conf a_conf(void)
{
	struct tw_fabric_conf conf;
	memset(&conf, 0, sizeof(conf));
	conf.mtu_bytes = MTU;
	conf.tos = 34 << 2;
	conf.ttl = 1;
	conf.rcvbuf_bytes = 4u << 20;
	conf.lines[0] = (struct tw_fabric_line){ .address = LINE_A, .interface = "lo" };
	conf.lines[1] = (struct tw_fabric_line){ .address = LINE_B, .interface = "lo" };
	return conf;
}

static struct tw_rx *open_rx(const struct tw_fabric_conf *conf, const uint32_t *groups,
			     const uint8_t *lines, uint32_t n, unsigned int first_counters)
{
	struct tw_rx_endpoint eps[8];
	for (uint32_t i = 0; i < n; i++) {
		eps[i] = (struct tw_rx_endpoint){ .group = groups[i],
						  .line = lines[i],
						  .counters = sub_counters(first_counters + i) };
	}
	struct tw_rx *rx;
	struct tw_error err;
	cr_assert_eq(tw_udp_rx_open(&rx, conf, eps, n, &err), TW_OK, "%s", err.text);
	return rx;
}

static struct tw_rx *open_rx_one(const struct tw_fabric_conf *conf, uint32_t group)
{
	return open_rx(conf, &group, (const uint8_t[]){ 0 }, 1, 0);
}

static struct tw_tx *open_tx(const struct tw_fabric_conf *conf, uint32_t group_a, uint32_t group_b)
{
	const struct tw_tx_endpoint ep = { .groups = { group_a, group_b },
					   .publisher = PUBLISHER,
					   .counters = { pub_counters(0), pub_counters(1) } };
	struct tw_tx *tx;
	struct tw_error err;
	cr_assert_eq(tw_udp_tx_open(&tx, conf, &ep, 1, &err), TW_OK, "%s", err.text);
	return tx;
}

/* Contents of datagram `seq`: its number, then bytes that depend on it. */
static void fill(uint8_t *data, uint32_t len_bytes, uint32_t seq)
{
	for (uint32_t i = 0; i < len_bytes; i++) {
		data[i] = (uint8_t)(seq * 31 + i);
	}
	memcpy(data, &seq, len_bytes < sizeof(seq) ? len_bytes : sizeof(seq));
}

static void check(const struct tw_rx_dgram *d, uint32_t len_bytes, uint32_t seq, uint32_t src_addr)
{
	static uint8_t want[TW_WIRE_DGRAM_MAX_BYTES];
	fill(want, len_bytes, seq);
	cr_assert_eq(d->len_bytes, len_bytes, "datagram %u: %u bytes, not %u", seq, d->len_bytes,
		     len_bytes);
	cr_assert_arr_eq(d->data, want, len_bytes, "datagram %u", seq);
	cr_assert_eq((uintptr_t)d->data % 8, 0, "datagram %u at %p", seq, (const void *)d->data);
	cr_assert_eq(d->src_addr, src_addr);
	cr_assert_neq(d->recv_ns, 0);
}

/* Up to `max` datagrams, waiting in the kernel until at least one is there. */
static unsigned int poll_some(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out,
			      unsigned int max)
{
	const uint64_t limit_ns = tw_mono_ns() + LIMIT_NS;
	for (;;) {
		const int n = tw_rx_poll(rx, endpoint, out, max);
		cr_assert_geq(n, 0);
		cr_assert_leq(n, (int)max);
		if (n > 0) {
			return (unsigned int)n;
		}
		cr_assert(tw_mono_ns() < limit_ns, "nothing came");
		cr_assert_geq(tw_rx_wait(rx, 10000000), 0);
	}
}

/* Receives datagrams 0 .. n-1 in order, `max` at a time. */
static void expect(struct tw_rx *rx, uint32_t endpoint, const uint32_t *lens, uint32_t n,
		   unsigned int max, uint32_t src_addr)
{
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint32_t seq = 0;
	while (seq < n) {
		const unsigned int got = poll_some(rx, endpoint, out, max);
		for (unsigned int i = 0; i < got; i++, seq++) {
			cr_assert_lt(seq, n);
			check(&out[i], lens[seq], seq, src_addr);
		}
	}
	cr_assert_eq(tw_rx_poll(rx, endpoint, out, max), 0, "something came twice");
}

/* Posts datagrams 0 .. n-1 in batches of `batch`, from memory that is overwritten at once, as the
 * contract allows where they are completed. */
static void post(struct tw_tx *tx, const uint32_t *lens, uint32_t n, unsigned int batch)
{
	static uint8_t memory[TW_TX_BATCH][TW_WIRE_DGRAM_MAX_BYTES];
	struct tw_tx_dgram dgrams[TW_TX_BATCH];
	const uint64_t before = tw_tx_completed(tx, 0);
	for (uint32_t seq = 0; seq < n;) {
		unsigned int k = 0;
		for (; k < batch && seq < n; k++, seq++) {
			fill(memory[k], lens[seq], seq);
			dgrams[k] =
				(struct tw_tx_dgram){ .data = memory[k], .len_bytes = lens[seq] };
		}
		tw_tx_post(tx, 0, dgrams, k);
		cr_assert_eq(tw_tx_completed(tx, 0) - before, seq);
		memset(memory, 0xee, sizeof(memory));
	}
}

Test(udp, two_receivers_of_one_group, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *first = open_rx_one(&conf, group);
	struct tw_rx *second = open_rx(&conf, &group, (const uint8_t[]){ 0 }, 1, 1);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	const uint32_t lens[] = { 64, 1024, 256, 128 };
	post(tx, lens, 4, 1);
	expect(first, 0, lens, 4, TW_RX_BATCH, LINE_A);
	expect(second, 0, lens, 4, TW_RX_BATCH, LINE_A);
	cr_assert_gt(sub_value(0, TW_SUB_LINE_receive_buffer_bytes), 0);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_datagrams), 4);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_bytes), 64 + 1024 + 256 + 128);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_skipped), 0);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 0);
	tw_tx_close(tx);
	tw_rx_close(first);
	tw_rx_close(second);
}

Test(udp, two_lines, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t groups[2] = { a_group(), a_group() };
	struct tw_rx *rx = open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
	struct tw_tx *tx = open_tx(&conf, groups[0], groups[1]);
	uint32_t lens[100];
	for (unsigned int i = 0; i < 100; i++) {
		lens[i] = 1024;
	}
	post(tx, lens, 100, 10);
	expect(rx, 0, lens, 100, TW_RX_BATCH, LINE_A);
	expect(rx, 1, lens, 100, TW_RX_BATCH, LINE_B);
	for (unsigned int l = 0; l < 2; l++) {
		cr_assert_eq(pub_value(l, TW_PUB_LINE_datagrams), 100);
		cr_assert_eq(sub_value(l, TW_SUB_LINE_icrc_bad), 0);
		cr_assert_eq(sub_value(l, TW_SUB_LINE_foreign_frames), 0);
	}
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* All channels share the port: what is sent to another group must not come, not even as foreign. */
Test(udp, other_groups_do_not_come, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	const uint32_t other = group ^ 1u;
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_rx *other_rx = open_rx(&conf, &other, (const uint8_t[]){ 0 }, 1, 1);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	struct tw_tx *other_tx = open_tx(&conf, other, 0);
	const uint32_t lens[] = { 64, 128, 192 };
	post(other_tx, (const uint32_t[]){ 512 }, 1, 1);
	post(tx, lens, 3, 1);
	expect(rx, 0, lens, 3, TW_RX_BATCH, LINE_A);
	expect(other_rx, 0, (const uint32_t[]){ 512 }, 1, TW_RX_BATCH, LINE_A);
	cr_assert_eq(sub_value(0, TW_SUB_LINE_foreign_frames), 0);
	tw_tx_close(tx);
	tw_tx_close(other_tx);
	tw_rx_close(rx);
	tw_rx_close(other_rx);
}

/* Lengths in every pattern that decides how runs are cut. */
static uint32_t pattern(unsigned int kind, uint32_t i)
{
	switch (kind) {
	case 0: /* equal */
		return 1024;
	case 1: /* equal, frames of 4 modulo 8: segments lie misaligned */
		return 1020;
	case 2: /* runs that end in a shorter one */
		return i % 7 == 6 ? 64 : 512;
	case 3: /* rising: nothing joins */
		return 64 + 4 * (i % 100);
	case 4: /* singles among runs */
		return i % 5 == 0 ? 1024 : 256;
	default: /* short: more than 62 would fit one send by their bytes */
		return 4;
	}
}
#define PATTERNS 6u

Test(udp, every_way_of_sending_and_receiving, .timeout = 60)
{
	static const unsigned int batches[] = { 1, 2, 5, 63, 64 };
	uint32_t lens[200];
	for (unsigned int send = 0; send < 2; send++) {
		for (unsigned int receive = 0; receive < 2; receive++) {
			struct tw_fabric_conf tx_conf = a_conf(), rx_conf = a_conf();
			tx_conf.gso = send == 0 ? TW_GSO_ON : TW_GSO_OFF;
			rx_conf.gso = receive == 0 ? TW_GSO_AUTO : TW_GSO_OFF;
			const uint32_t group = a_group();
			struct tw_rx *rx = open_rx_one(&rx_conf, group);
			struct tw_tx *tx = open_tx(&tx_conf, group, 0);
			for (unsigned int kind = 0; kind < PATTERNS; kind++) {
				for (uint32_t i = 0; i < 200; i++) {
					lens[i] = pattern(kind, i);
				}
				for (unsigned int b = 0; b < sizeof(batches) / sizeof(batches[0]);
				     b++) {
					post(tx, lens, 200, batches[b]);
					expect(rx, 0, lens, 200, TW_RX_BATCH, LINE_A);
				}
			}
			cr_assert_eq(sub_value(0, TW_SUB_LINE_icrc_bad), 0);
			cr_assert_eq(sub_value(0, TW_SUB_LINE_foreign_frames), 0);
			cr_assert_eq(pub_value(0, TW_PUB_LINE_skipped), 0);
			cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 0);
			tw_tx_close(tx);
			tw_rx_close(rx);
		}
	}
}

Test(udp, largest_mtu, .timeout = 30)
{
	struct tw_fabric_conf conf = a_conf();
	conf.mtu_bytes = TW_WIRE_DGRAM_MAX_BYTES;
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	uint32_t lens[64];
	for (unsigned int i = 0; i < 64; i++) {
		lens[i] = 4096;
	}
	post(tx, lens, 64, 64);
	expect(rx, 0, lens, 64, TW_RX_BATCH, LINE_A);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* More came than the caller takes: the rest stays, in order, and what was handed out stays whole
 * until the next poll of that endpoint, whatever happens at the others. */
Test(udp, more_than_max, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t groups[2] = { a_group(), a_group() };
	struct tw_rx *rx = open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
	struct tw_tx *tx = open_tx(&conf, groups[0], groups[1]);
	uint32_t lens[64];
	for (unsigned int i = 0; i < 64; i++) {
		lens[i] = 128;
	}
	post(tx, lens, 64, 64);
	struct tw_rx_dgram held[7], other[7];
	cr_assert_eq(poll_some(rx, 0, held, 7), 7);
	cr_assert_eq(tw_rx_wait(rx, LIMIT_NS), 1, "what is kept is there to be polled");
	uint32_t seq_b = 0;
	while (seq_b < 64) {
		const unsigned int n = poll_some(rx, 1, other, 7);
		for (unsigned int i = 0; i < n; i++) {
			check(&other[i], 128, seq_b++, LINE_B);
		}
	}
	post(tx, lens, 64, 64);
	for (unsigned int i = 0; i < 7; i++) {
		check(&held[i], 128, i, LINE_A);
	}
	uint32_t seq = 7;
	while (seq < 128) {
		const unsigned int n = poll_some(rx, 0, held, 7);
		for (unsigned int i = 0; i < n; i++, seq++) {
			check(&held[i], 128, seq % 64, LINE_A);
		}
	}
	tw_tx_close(tx);
	tw_rx_close(rx);
}

Test(udp, wait_ends_by_time_or_by_arrival, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	const uint64_t before_ns = tw_mono_ns();
	cr_assert_eq(tw_rx_wait(rx, 2000000), 0);
	cr_assert_geq(tw_mono_ns() - before_ns, 2000000);
	post(tx, (const uint32_t[]){ 64 }, 1, 1);
	cr_assert_eq(tw_rx_wait(rx, LIMIT_NS), 1);
	expect(rx, 0, (const uint32_t[]){ 64 }, 1, TW_RX_BATCH, LINE_A);
	cr_assert_eq(tw_rx_wait(rx, 0), 0);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

int __real_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags);
int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags);

/* What the wrapped call does to sends to `group` (0: nothing). */
static struct {
	uint32_t group;
	int error;           /* what a send fails with */
	bool gso_only;       /* sends of one datagram go through */
	unsigned int pass;   /* sends that go through first, one in each call */
	unsigned int fails;  /* then so many fail */
	unsigned int failed; /* have failed */
	unsigned int gso;    /* GSO sends seen */
} trouble;

int __wrap_sendmmsg(int fd, struct mmsghdr *msgs, unsigned int n, int flags)
{
	cr_assert_eq(flags, MSG_DONTWAIT, "a send must never block");
	struct sockaddr_in to;
	memcpy(&to, msgs->msg_hdr.msg_name, sizeof(to));
	const bool gso = msgs->msg_hdr.msg_controllen != 0;
	trouble.gso += gso;
	if (ntohl(to.sin_addr.s_addr) != trouble.group || (trouble.gso_only && !gso)) {
		return __real_sendmmsg(fd, msgs, n, flags);
	}
	if (trouble.pass > 0) {
		trouble.pass--;
		return __real_sendmmsg(fd, msgs, 1, flags);
	}
	if (trouble.failed < trouble.fails) {
		trouble.failed++;
		errno = trouble.error;
		return -1;
	}
	return __real_sendmmsg(fd, msgs, n, flags);
}

static void equal_lengths(uint32_t *lens, uint32_t n, uint32_t len_bytes)
{
	for (uint32_t i = 0; i < n; i++) {
		lens[i] = len_bytes;
	}
}

/* A kernel that refuses GSO: once, then the line does without, and nothing is lost or doubled. */
Test(udp, refused_gso_falls_back_for_good, .timeout = 30)
{
	static const int errors[] = { EIO, EINVAL };
	for (unsigned int e = 0; e < 2; e++) {
		struct tw_fabric_conf conf = a_conf();
		conf.gso = TW_GSO_ON;
		const uint32_t group = a_group();
		struct tw_rx *rx = open_rx_one(&conf, group);
		struct tw_tx *tx = open_tx(&conf, group, 0);
		uint32_t lens[192];
		equal_lengths(lens, 192, 1024);
		memset(&trouble, 0, sizeof(trouble));
		post(tx, lens, 64, 64);
		expect(rx, 0, lens, 64, TW_RX_BATCH, LINE_A);
		cr_assert_gt(trouble.gso, 0);
		memset(&trouble, 0, sizeof(trouble));
		trouble.group = group;
		trouble.error = errors[e];
		trouble.gso_only = true;
		trouble.fails = 1000;
		post(tx, lens, 192, 64);
		expect(rx, 0, lens, 192, TW_RX_BATCH, LINE_A);
		cr_assert_eq(trouble.failed, 1);
		cr_assert_eq(pub_value(0, TW_PUB_LINE_datagrams), 256 * (e + 1));
		cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 0);
		cr_assert_eq(pub_value(0, TW_PUB_LINE_skipped), 0);
		tw_tx_close(tx);
		tw_rx_close(rx);
	}
}

/* A line whose queue is full skips what is left of the post; the other line gets everything. */
Test(udp, a_full_line_skips, .timeout = 30)
{
	static const int errors[] = { EAGAIN, ENOBUFS };
	for (unsigned int e = 0; e < 2; e++) {
		struct tw_fabric_conf conf = a_conf();
		conf.gso = TW_GSO_OFF;
		const uint32_t groups[2] = { a_group(), a_group() };
		struct tw_rx *rx = open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
		struct tw_tx *tx = open_tx(&conf, groups[0], groups[1]);
		uint32_t lens[40];
		equal_lengths(lens, 40, 512);
		memset(&trouble, 0, sizeof(trouble));
		trouble.group = groups[0];
		trouble.error = errors[e];
		trouble.pass = 3;
		trouble.fails = 1;
		memset(pub_values, 0, sizeof(pub_values));
		post(tx, lens, 40, 40);
		expect(rx, 0, lens, 3, TW_RX_BATCH, LINE_A);
		expect(rx, 1, lens, 40, TW_RX_BATCH, LINE_B);
		cr_assert_eq(pub_value(0, TW_PUB_LINE_datagrams), 3);
		cr_assert_eq(pub_value(0, TW_PUB_LINE_skipped), 37);
		cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 0);
		cr_assert_eq(pub_value(1, TW_PUB_LINE_datagrams), 40);
		cr_assert_eq(pub_value(1, TW_PUB_LINE_skipped), 0);
		/* once there is room again the line goes on */
		post(tx, lens, 40, 40);
		expect(rx, 0, lens, 40, TW_RX_BATCH, LINE_A);
		tw_tx_close(tx);
		tw_rx_close(rx);
	}
}

/* An error that was pending on the socket spoils one call, not the datagram. */
Test(udp, a_pending_error_costs_nothing, .timeout = 30)
{
	struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	uint32_t lens[10];
	equal_lengths(lens, 10, 256);
	trouble.group = group;
	trouble.error = ECONNREFUSED;
	trouble.fails = 1;
	post(tx, lens, 10, 10);
	expect(rx, 0, lens, 10, TW_RX_BATCH, LINE_A);
	cr_assert_eq(trouble.failed, 1);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_datagrams), 10);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 0);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* A datagram that cannot be sent is counted, and those behind it are tried. */
Test(udp, errors_are_counted_one_by_one, .timeout = 30)
{
	struct tw_fabric_conf conf = a_conf();
	conf.gso = TW_GSO_OFF;
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	uint32_t lens[10];
	equal_lengths(lens, 10, 256);
	trouble.group = group;
	trouble.error = EPERM;
	trouble.pass = 2;
	trouble.fails = 5; /* datagrams 2 and 3, and the first try of 4 */
	post(tx, lens, 10, 10);
	struct tw_rx_dgram out[TW_RX_BATCH];
	for (uint32_t seq = 0; seq < 10;) {
		const unsigned int n = poll_some(rx, 0, out, TW_RX_BATCH);
		for (unsigned int i = 0; i < n; i++, seq++) {
			seq += seq == 2 ? 2 : 0;
			check(&out[i], 256, seq, LINE_A);
		}
	}
	cr_assert_eq(pub_value(0, TW_PUB_LINE_datagrams), 8);
	cr_assert_eq(pub_value(0, TW_PUB_LINE_errors), 2);
	cr_assert_eq(tw_tx_completed(tx, 0), 10);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* A plain socket that writes frames of its own making. */
struct raw {
	int fd;
	struct sockaddr_in to;
	struct tw_roce_flow flow;
	struct tw_roce_powers powers;
};

static void open_raw(struct raw *raw, uint32_t group, int pmtu_discover)
{
	memset(raw, 0, sizeof(*raw));
	raw->fd = socket(AF_INET, SOCK_DGRAM, 0);
	cr_assert_geq(raw->fd, 0);
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(LINE_A) };
	socklen_t len = sizeof(sin);
	cr_assert_eq(bind(raw->fd, (struct sockaddr *)&sin, len), 0);
	cr_assert_eq(getsockname(raw->fd, (struct sockaddr *)&sin, &len), 0);
	cr_assert_eq(setsockopt(raw->fd, IPPROTO_IP, IP_MULTICAST_IF, &sin.sin_addr,
				sizeof(sin.sin_addr)),
		     0);
	cr_assert_eq(setsockopt(raw->fd, IPPROTO_IP, IP_MTU_DISCOVER, &pmtu_discover,
				sizeof(pmtu_discover)),
		     0);
	raw->to = (struct sockaddr_in){ .sin_family = AF_INET,
					.sin_port = htons(TW_ROCE_PORT),
					.sin_addr.s_addr = htonl(group) };
	tw_roce_powers_init(&raw->powers);
	tw_roce_sender_init(&raw->flow, LINE_A, ntohs(sin.sin_port), group, 42);
}

static uint32_t build(struct raw *raw, uint8_t *frame, uint32_t len_bytes, uint32_t seq)
{
	fill(frame + TW_ROCE_HDR_BYTES, len_bytes, seq);
	tw_roce_seal(&raw->flow, &raw->powers, len_bytes,
		     tw_roce_crc(frame + TW_ROCE_HDR_BYTES, len_bytes), 0, frame,
		     frame + TW_ROCE_HDR_BYTES + len_bytes);
	return len_bytes + TW_ROCE_OVERHEAD_BYTES;
}

static void send_raw(struct raw *raw, const uint8_t *frame, uint32_t frame_bytes)
{
	cr_assert_eq(sendto(raw->fd, frame, frame_bytes, 0, (struct sockaddr *)&raw->to,
			    sizeof(raw->to)),
		     (ssize_t)frame_bytes);
}

Test(udp, damaged_and_foreign_frames_are_counted, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct raw raw;
	open_raw(&raw, group, IP_PMTUDISC_DO);
	static uint8_t frame[2048];

	/* every byte of the datagram and of the ICRC once */
	const uint32_t len_bytes = 96;
	for (uint32_t at = TW_ROCE_HDR_BYTES; at < len_bytes + TW_ROCE_OVERHEAD_BYTES; at++) {
		const uint32_t frame_bytes = build(&raw, frame, len_bytes, at);
		frame[at] ^= 0x41;
		send_raw(&raw, frame, frame_bytes);
	}
	build(&raw, frame, len_bytes, 0);
	frame[0] = 0x04; /* RC SEND */
	send_raw(&raw, frame, len_bytes + TW_ROCE_OVERHEAD_BYTES);
	build(&raw, frame, len_bytes, 0);
	frame[15] ^= 1; /* Q_Key */
	send_raw(&raw, frame, len_bytes + TW_ROCE_OVERHEAD_BYTES);
	send_raw(&raw, frame, 0);
	send_raw(&raw, frame, 23);
	send_raw(&raw, frame, build(&raw, frame, MTU + 4, 0));
	/* and one that is whole comes through behind them */
	send_raw(&raw, frame, build(&raw, frame, len_bytes, 0));
	expect(rx, 0, &len_bytes, 1, TW_RX_BATCH, LINE_A);
	cr_assert_eq(sub_value(0, TW_SUB_LINE_icrc_bad), len_bytes + TW_ROCE_ICRC_BYTES);
	cr_assert_eq(sub_value(0, TW_SUB_LINE_foreign_frames), 5);
	close(raw.fd);
	tw_rx_close(rx);
}

/* An ICRC that counts with DF clear is not explained by an identification. */
Test(udp, frames_without_df_are_refused, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct raw without_df, with_df;
	open_raw(&without_df, group, IP_PMTUDISC_DONT);
	open_raw(&with_df, group, IP_PMTUDISC_DO);
	without_df.flow.image[8 + 6] = 0;
	static uint8_t frame[2048];
	send_raw(&without_df, frame, build(&without_df, frame, 64, 9));
	send_raw(&with_df, frame, build(&with_df, frame, 64, 0));
	expect(rx, 0, (const uint32_t[]){ 64 }, 1, TW_RX_BATCH, LINE_A);
	cr_assert_eq(sub_value(0, TW_SUB_LINE_icrc_bad), 1);
	close(without_df.fd);
	close(with_df.fd);
	tw_rx_close(rx);
}

/* A GSO send in which one segment is damaged: just that one is lost, the others keep their numbers. */
Test(udp, one_damaged_segment_of_a_run, .timeout = 30)
{
	const struct tw_fabric_conf conf = a_conf();
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct raw raw;
	open_raw(&raw, group, IP_PMTUDISC_DO);
	static uint8_t run[10 * (256 + TW_ROCE_OVERHEAD_BYTES)];
	const uint32_t step = 256 + TW_ROCE_OVERHEAD_BYTES;
	for (uint32_t i = 0; i < 10; i++) {
		uint8_t *frame = run + i * step;
		fill(frame + TW_ROCE_HDR_BYTES, 256, i);
		tw_roce_seal(&raw.flow, &raw.powers, 256,
			     tw_roce_crc(frame + TW_ROCE_HDR_BYTES, 256), (uint16_t)i, frame,
			     frame + step - TW_ROCE_ICRC_BYTES);
	}
	run[4 * step + 100] ^= 0x10;
	const int segment_bytes = (int)step;
	cr_assert_eq(
		setsockopt(raw.fd, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, sizeof(segment_bytes)),
		0);
	send_raw(&raw, run, sizeof(run));
	struct tw_rx_dgram out[TW_RX_BATCH];
	for (uint32_t seq = 0; seq < 10;) {
		const unsigned int n = poll_some(rx, 0, out, TW_RX_BATCH);
		for (unsigned int k = 0; k < n; k++, seq++) {
			seq += seq == 4;
			check(&out[k], 256, seq, LINE_A);
		}
	}
	cr_assert_eq(sub_value(0, TW_SUB_LINE_icrc_bad), 1);
	close(raw.fd);
	tw_rx_close(rx);
}

static void expect_rx_error(const struct tw_fabric_conf *conf, uint32_t group, int code,
			    const char *text)
{
	const struct tw_rx_endpoint ep = { .group = group, .counters = sub_counters(0) };
	struct tw_rx *rx = (void *)&rx;
	struct tw_error err = { .code = 0 };
	cr_assert_eq(tw_udp_rx_open(&rx, conf, &ep, 1, &err), code, "%s", err.text);
	cr_assert_null(rx);
	cr_assert_eq(err.code, code);
	cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

static void expect_tx_error(const struct tw_fabric_conf *conf, uint32_t group, int code,
			    const char *text)
{
	const struct tw_tx_endpoint ep = { .groups = { group, 0 },
					   .counters = { pub_counters(0), pub_counters(1) } };
	struct tw_tx *tx = (void *)&tx;
	struct tw_error err = { .code = 0 };
	cr_assert_eq(tw_udp_tx_open(&tx, conf, &ep, 1, &err), code, "%s", err.text);
	cr_assert_null(tx);
	cr_assert_not_null(strstr(err.text, text), "%s", err.text);
}

Test(udp, what_cannot_be_opened, .timeout = 30)
{
	struct tw_fabric_conf conf = a_conf();
	expect_rx_error(&conf, 0x0a000001, TW_EARG, "10.0.0.1: line 0: not a multicast address");
	expect_tx_error(&conf, 0x0a000001, TW_EARG, "10.0.0.1: not a multicast address");
	conf.lines[0].address = 0xc0000201; /* 192.0.2.1, documentation */
	expect_rx_error(&conf, a_group(), TW_ECONFIG, "192.0.2.1");
	expect_tx_error(&conf, a_group(), TW_ECONFIG, "192.0.2.1");
	conf = a_conf();
	conf.mtu_bytes = 1022;
	expect_rx_error(&conf, a_group(), TW_ECONFIG, "1022");
	conf.mtu_bytes = 8192;
	expect_tx_error(&conf, a_group(), TW_ECONFIG, "8192");
	tw_rx_close(NULL);
	tw_tx_close(NULL);
}

/* A network of our own, in which ports may be taken and interfaces changed. */
static void enter_own_network(void)
{
	if (unshare(CLONE_NEWNET) != 0) {
		cr_skip_test("needs a network namespace: unshare: %s", strerror(errno));
	}
}

static void set_lo(int mtu_bytes)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	cr_assert_geq(fd, 0);
	struct ifreq req;
	memset(&req, 0, sizeof(req));
	memcpy(req.ifr_name, "lo", 3);
	req.ifr_flags = IFF_UP;
	cr_assert_eq(ioctl(fd, SIOCSIFFLAGS, &req), 0);
	req.ifr_mtu = mtu_bytes;
	cr_assert_eq(ioctl(fd, SIOCSIFMTU, &req), 0);
	close(fd);
}

Test(udp, a_taken_port_names_rdma_rxe, .timeout = 30)
{
	enter_own_network();
	set_lo(65536);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	const struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(TW_ROCE_PORT) };
	cr_assert_eq(bind(fd, (const struct sockaddr *)&sin, sizeof(sin)), 0);
	const struct tw_fabric_conf conf = a_conf();
	expect_rx_error(&conf, a_group(), TW_EBUSY, "modprobe -r rdma_rxe");
	close(fd);
	tw_rx_close(open_rx_one(&conf, a_group()));
}

Test(udp, mtu_must_fit_the_interface, .timeout = 30)
{
	enter_own_network();
	set_lo(1000);
	struct tw_fabric_conf conf = a_conf();
	expect_rx_error(&conf, a_group(), TW_ECONFIG, "interface MTU of 1076");
	expect_tx_error(&conf, a_group(), TW_ECONFIG, "the interface has 1000");
	conf.mtu_bytes = 1000 - 52;
	const uint32_t group = a_group();
	struct tw_rx *rx = open_rx_one(&conf, group);
	struct tw_tx *tx = open_tx(&conf, group, 0);
	uint32_t lens[20];
	for (unsigned int i = 0; i < 20; i++) {
		lens[i] = conf.mtu_bytes;
	}
	post(tx, lens, 20, 10);
	expect(rx, 0, lens, 20, TW_RX_BATCH, LINE_A);
	tw_tx_close(tx);
	tw_rx_close(rx);
}
