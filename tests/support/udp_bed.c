/* Receivers and senders of the `udp` transport on the loopback interface, with datagrams whose contents
 * follow from their numbers.  Checks are Criterion's: for the bodies of tests. */
#include "tests/support/udp_bed.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "tidewire/wire.h"

#define LIMIT_NS  5000000000ull /* after which a datagram is said to be missing */
#define PUBLISHER 77u

typedef _Atomic uint64_t value;

static value sub_values[UDP_BED_SLOTS][TW_N_sub_line_counters];
static value pub_values[UDP_BED_SLOTS][TW_N_pub_line_counters];

struct tw_counters udp_bed_sub_counters(unsigned int i)
{
	return (struct tw_counters){ .values = sub_values[i], .hists = NULL };
}

struct tw_counters udp_bed_pub_counters(unsigned int i)
{
	return (struct tw_counters){ .values = pub_values[i], .hists = NULL };
}

uint64_t udp_bed_sub_value(unsigned int i, enum tw_sub_line_counter c)
{
	return atomic_load(&sub_values[i][c]);
}

uint64_t udp_bed_pub_value(unsigned int i, enum tw_pub_line_counter c)
{
	return atomic_load(&pub_values[i][c]);
}

/* A random group of 239.192.0.0/14, so that tests that run at once do not hear each other. */
uint32_t udp_bed_group(void)
{
	uint32_t r;
	cr_assert_eq(getrandom(&r, sizeof(r), 0), (ssize_t)sizeof(r));
	return 0xefc00000u | (r & 0x3ffffu);
}

struct tw_fabric_conf udp_bed_conf(void)
{
	struct tw_fabric_conf conf;
	memset(&conf, 0, sizeof(conf));
	conf.mtu_bytes = UDP_BED_MTU;
	conf.tos = 34 << 2;
	conf.ttl = 1;
	conf.rcvbuf_bytes = 212992; /* what an unprivileged process gets by default */
	conf.lines[0] = (struct tw_fabric_line){ .address = UDP_BED_LINE_A, .interface = "lo" };
	conf.lines[1] = (struct tw_fabric_line){ .address = UDP_BED_LINE_B, .interface = "lo" };
	return conf;
}

struct tw_rx *udp_bed_open_rx(const struct tw_fabric_conf *conf, const uint32_t *groups,
			      const uint8_t *lines, uint32_t n, unsigned int first_counters)
{
	struct tw_rx_endpoint eps[UDP_BED_SLOTS];
	for (uint32_t i = 0; i < n; i++) {
		eps[i] = (struct tw_rx_endpoint){ .group = groups[i],
						  .line = lines[i],
						  .counters = udp_bed_sub_counters(first_counters +
										   i) };
	}
	struct tw_rx *rx;
	struct tw_error err;
	cr_assert_eq(tw_udp_rx_open(&rx, conf, eps, n, &err), TW_OK, "%s", err.text);
	return rx;
}

struct tw_rx *udp_bed_open_rx_one(const struct tw_fabric_conf *conf, uint32_t group)
{
	return udp_bed_open_rx(conf, &group, (const uint8_t[]){ 0 }, 1, 0);
}

struct tw_tx *udp_bed_open_tx(const struct tw_fabric_conf *conf, uint32_t group_a, uint32_t group_b)
{
	const struct tw_tx_endpoint ep = { .groups = { group_a, group_b },
					   .publisher = PUBLISHER,
					   .counters = { udp_bed_pub_counters(0),
							 udp_bed_pub_counters(1) } };
	struct tw_tx *tx;
	struct tw_error err;
	cr_assert_eq(tw_udp_tx_open(&tx, conf, &ep, 1, &err), TW_OK, "%s", err.text);
	return tx;
}

/* Contents of datagram `seq`: its number, then bytes that depend on it. */
void udp_bed_fill(uint8_t *data, uint32_t len_bytes, uint32_t seq)
{
	for (uint32_t i = 0; i < len_bytes; i++) {
		data[i] = (uint8_t)(seq * 31 + i);
	}
	memcpy(data, &seq, len_bytes < sizeof(seq) ? len_bytes : sizeof(seq));
}

void udp_bed_check(const struct tw_rx_dgram *d, uint32_t len_bytes, uint32_t seq, uint32_t src_addr)
{
	static uint8_t want[TW_WIRE_DGRAM_MAX_BYTES];
	udp_bed_fill(want, len_bytes, seq);
	cr_assert_eq(d->len_bytes, len_bytes, "datagram %u: %u bytes, not %u", seq, d->len_bytes,
		     len_bytes);
	cr_assert_arr_eq(d->data, want, len_bytes, "datagram %u", seq);
	cr_assert_eq((uintptr_t)d->data % 8, 0, "datagram %u at %p", seq, (const void *)d->data);
	cr_assert_eq(d->src_addr, src_addr);
	cr_assert_neq(d->recv_ns, 0);
}

/* Up to `max` datagrams, waiting in the kernel until at least one is there. */
unsigned int udp_bed_poll(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out,
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
void udp_bed_expect(struct tw_rx *rx, uint32_t endpoint, const uint32_t *lens, uint32_t n,
		    unsigned int max, uint32_t src_addr)
{
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint32_t seq = 0;
	while (seq < n) {
		const unsigned int got = udp_bed_poll(rx, endpoint, out, max);
		for (unsigned int i = 0; i < got; i++, seq++) {
			cr_assert_lt(seq, n);
			udp_bed_check(&out[i], lens[seq], seq, src_addr);
		}
	}
	cr_assert_eq(tw_rx_poll(rx, endpoint, out, max), 0, "something came twice");
}

/* Posts datagrams 0 .. n-1 in batches of `batch`, from memory that is overwritten at once, as the
 * contract allows where they are completed. */
void udp_bed_post(struct tw_tx *tx, const uint32_t *lens, uint32_t n, unsigned int batch)
{
	static uint8_t memory[TW_TX_BATCH][TW_WIRE_DGRAM_MAX_BYTES];
	struct tw_tx_dgram dgrams[TW_TX_BATCH];
	const uint64_t before = tw_tx_completed(tx, 0);
	for (uint32_t seq = 0; seq < n;) {
		unsigned int k = 0;
		for (; k < batch && seq < n; k++, seq++) {
			udp_bed_fill(memory[k], lens[seq], seq);
			dgrams[k] =
				(struct tw_tx_dgram){ .data = memory[k], .len_bytes = lens[seq] };
		}
		tw_tx_post(tx, 0, dgrams, k);
		cr_assert_eq(tw_tx_completed(tx, 0) - before, seq);
		memset(memory, 0xee, sizeof(memory));
	}
}

void udp_bed_clear_counters(void)
{
	memset(sub_values, 0, sizeof(sub_values));
	memset(pub_values, 0, sizeof(pub_values));
}
