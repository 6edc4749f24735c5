/* The `udp` transport on the loopback interface: what is sent comes, once, whole and aligned. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/probe_alloc.h"
#include "tests/support/udp_bed.h"
#include "tidewire/wire.h"

#define LIMIT_NS 5000000000ull

Test(udp, two_receivers_of_one_group, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *first = udp_bed_open_rx_one(&conf, group);
	struct tw_rx *second = udp_bed_open_rx(&conf, &group, (const uint8_t[]){ 0 }, 1, 1);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	const uint32_t lens[] = { 64, 1024, 256, 128 };
	udp_bed_post(tx, lens, 4, 1);
	udp_bed_expect(first, 0, lens, 4, TW_RX_BATCH, UDP_BED_LINE_A);
	udp_bed_expect(second, 0, lens, 4, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_gt(udp_bed_sub_value(0, TW_SUB_LINE_receive_buffer_bytes), 0);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_datagrams), 4);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_bytes), 64 + 1024 + 256 + 128);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_skipped), 0);
	cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 0);
	tw_tx_close(tx);
	tw_rx_close(first);
	tw_rx_close(second);
}

Test(udp, two_lines, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t groups[2] = { udp_bed_group(), udp_bed_group() };
	struct tw_rx *rx = udp_bed_open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
	struct tw_tx *tx = udp_bed_open_tx(&conf, groups[0], groups[1]);
	uint32_t lens[100];
	for (unsigned int i = 0; i < 100; i++) {
		lens[i] = 1024;
	}
	udp_bed_post(tx, lens, 100, 10);
	udp_bed_expect(rx, 0, lens, 100, TW_RX_BATCH, UDP_BED_LINE_A);
	udp_bed_expect(rx, 1, lens, 100, TW_RX_BATCH, UDP_BED_LINE_B);
	for (unsigned int l = 0; l < 2; l++) {
		cr_assert_eq(udp_bed_pub_value(l, TW_PUB_LINE_datagrams), 100);
		cr_assert_eq(udp_bed_sub_value(l, TW_SUB_LINE_icrc_bad), 0);
		cr_assert_eq(udp_bed_sub_value(l, TW_SUB_LINE_foreign_frames), 0);
	}
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* All channels share the port: what is sent to another group must not come, not even as foreign. */
Test(udp, other_groups_do_not_come, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	const uint32_t other = group ^ 1u;
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_rx *other_rx = udp_bed_open_rx(&conf, &other, (const uint8_t[]){ 0 }, 1, 1);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	struct tw_tx *other_tx = udp_bed_open_tx(&conf, other, 0);
	const uint32_t lens[] = { 64, 128, 192 };
	udp_bed_post(other_tx, (const uint32_t[]){ 512 }, 1, 1);
	udp_bed_post(tx, lens, 3, 1);
	udp_bed_expect(rx, 0, lens, 3, TW_RX_BATCH, UDP_BED_LINE_A);
	udp_bed_expect(other_rx, 0, (const uint32_t[]){ 512 }, 1, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_foreign_frames), 0);
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
	uint32_t lens[100];
	for (unsigned int send = 0; send < 2; send++) {
		for (unsigned int receive = 0; receive < 2; receive++) {
			struct tw_fabric_conf tx_conf = udp_bed_conf(), rx_conf = udp_bed_conf();
			tx_conf.gso = send == 0 ? TW_GSO_ON : TW_GSO_OFF;
			rx_conf.gso = receive == 0 ? TW_GSO_AUTO : TW_GSO_OFF;
			const uint32_t group = udp_bed_group();
			struct tw_rx *rx = udp_bed_open_rx_one(&rx_conf, group);
			struct tw_tx *tx = udp_bed_open_tx(&tx_conf, group, 0);
			for (unsigned int kind = 0; kind < PATTERNS; kind++) {
				for (uint32_t i = 0; i < 100; i++) {
					lens[i] = pattern(kind, i);
				}
				for (unsigned int b = 0; b < sizeof(batches) / sizeof(batches[0]);
				     b++) {
					udp_bed_post(tx, lens, 100, batches[b]);
					udp_bed_expect(rx, 0, lens, 100, TW_RX_BATCH,
						       UDP_BED_LINE_A);
				}
			}
			cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_icrc_bad), 0);
			cr_assert_eq(udp_bed_sub_value(0, TW_SUB_LINE_foreign_frames), 0);
			cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_skipped), 0);
			cr_assert_eq(udp_bed_pub_value(0, TW_PUB_LINE_errors), 0);
			tw_tx_close(tx);
			tw_rx_close(rx);
		}
	}
}

Test(udp, largest_mtu, .timeout = 60)
{
	struct tw_fabric_conf conf = udp_bed_conf();
	conf.mtu_bytes = TW_WIRE_DGRAM_MAX_BYTES;
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	uint32_t lens[64];
	for (unsigned int i = 0; i < 64; i++) {
		lens[i] = 4096;
	}
	udp_bed_post(tx, lens, 64, 64);
	udp_bed_expect(rx, 0, lens, 64, TW_RX_BATCH, UDP_BED_LINE_A);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* More came than the caller takes: the rest stays, in order, and what was handed out stays whole
 * until the next poll of that endpoint, whatever happens at the others. */
Test(udp, more_than_max, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t groups[2] = { udp_bed_group(), udp_bed_group() };
	struct tw_rx *rx = udp_bed_open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
	struct tw_tx *tx = udp_bed_open_tx(&conf, groups[0], groups[1]);
	uint32_t lens[64];
	for (unsigned int i = 0; i < 64; i++) {
		lens[i] = 128;
	}
	udp_bed_post(tx, lens, 64, 64);
	struct tw_rx_dgram held[7], other[7];
	cr_assert_eq(udp_bed_poll(rx, 0, held, 7), 7);
	cr_assert_eq(tw_rx_wait(rx, LIMIT_NS), 1, "what is kept is there to be polled");
	uint32_t seq_b = 0;
	while (seq_b < 64) {
		const unsigned int n = udp_bed_poll(rx, 1, other, 7);
		for (unsigned int i = 0; i < n; i++) {
			udp_bed_check(&other[i], 128, seq_b++, UDP_BED_LINE_B);
		}
	}
	udp_bed_post(tx, lens, 64, 64);
	for (unsigned int i = 0; i < 7; i++) {
		udp_bed_check(&held[i], 128, i, UDP_BED_LINE_A);
	}
	uint32_t seq = 7;
	while (seq < 128) {
		const unsigned int n = udp_bed_poll(rx, 0, held, 7);
		for (unsigned int i = 0; i < n; i++, seq++) {
			udp_bed_check(&held[i], 128, seq % 64, UDP_BED_LINE_A);
		}
	}
	tw_tx_close(tx);
	tw_rx_close(rx);
}

Test(udp, wait_ends_by_time_or_by_arrival, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t group = udp_bed_group();
	struct tw_rx *rx = udp_bed_open_rx_one(&conf, group);
	struct tw_tx *tx = udp_bed_open_tx(&conf, group, 0);
	const uint64_t before_ns = tw_mono_ns();
	cr_assert_eq(tw_rx_wait(rx, 2000000), 0);
	cr_assert_geq(tw_mono_ns() - before_ns, 2000000);
	udp_bed_post(tx, (const uint32_t[]){ 64 }, 1, 1);
	cr_assert_eq(tw_rx_wait(rx, LIMIT_NS), 1);
	udp_bed_expect(rx, 0, (const uint32_t[]){ 64 }, 1, TW_RX_BATCH, UDP_BED_LINE_A);
	cr_assert_eq(tw_rx_wait(rx, 0), 0);
	tw_tx_close(tx);
	tw_rx_close(rx);
}

/* Once opened, neither side allocates: whatever is sent, received, kept for later or refused. */
Test(udp, polling_and_posting_allocate_nothing, .timeout = 60)
{
	const struct tw_fabric_conf conf = udp_bed_conf();
	const uint32_t groups[2] = { udp_bed_group(), udp_bed_group() };
	struct tw_rx *rx = udp_bed_open_rx(&conf, groups, (const uint8_t[]){ 0, 1 }, 2, 0);
	struct tw_tx *tx = udp_bed_open_tx(&conf, groups[0], groups[1]);
	static uint8_t data[TW_TX_BATCH][1024];
	struct tw_tx_dgram dgrams[TW_TX_BATCH];
	struct tw_rx_dgram out[TW_RX_BATCH];
	for (unsigned int i = 0; i < TW_TX_BATCH; i++) {
		dgrams[i] = (struct tw_tx_dgram){ data[i], pattern(4, i) };
	}
	const uint64_t before = probe_alloc_calls();
	unsigned int received = 0;
	for (unsigned int turn = 0; turn < 10; turn++) {
		tw_tx_post(tx, 0, dgrams, turn % 2 == 0 ? 1 : TW_TX_BATCH);
		for (uint32_t endpoint = 0; endpoint < 2; endpoint++) {
			for (int n; (n = tw_rx_poll(rx, endpoint, out, 7)) > 0;) {
				received += (unsigned int)n;
			}
		}
		(void)tw_rx_wait(rx, 0);
	}
	cr_assert_eq(probe_alloc_calls(), before);
	cr_assert_gt(received, 0);
	tw_tx_close(tx);
	tw_rx_close(rx);
	cr_assert_gt(probe_alloc_calls(), before, "the probe sees close give memory back");
}
