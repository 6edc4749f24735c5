/* What of the `verbs` transport needs no device: choosing and judging ports from query results, the GRH,
 * the account of a send queue, stamps of a device's clock. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/verbs/device.h"
#include "fabric/verbs/grh.h"
#include "fabric/verbs/stamp.h"
#include "fabric/verbs/ud_ring.h"

#define ADDRESS 0x0a000001u /* 10.0.0.1 */
#define GROUP   0xefc00101u /* 239.192.1.1 */

static struct tw_verbs_gid roce(const char *device, const char *interface, uint32_t index,
				enum tw_verbs_gid_type type, uint32_t address)
{
	struct tw_verbs_gid gid = {
		.raw = { [10] = 0xff,
			 [11] = 0xff,
			 [12] = (uint8_t)(address >> 24),
			 [13] = (uint8_t)(address >> 16),
			 [14] = (uint8_t)(address >> 8),
			 [15] = (uint8_t)address },
		.index = index,
		.type = type,
		.link = TW_VERBS_LINK_ETHERNET,
		.port = 1,
	};
	(void)snprintf(gid.device, sizeof(gid.device), "%s", device);
	(void)snprintf(gid.interface, sizeof(gid.interface), "%s", interface);
	return gid;
}

static int choose(struct tw_verbs_gid *gids, uint32_t count, uint32_t devices,
		  const char *interface, struct tw_error *err)
{
	const struct tw_verbs_table table = { .gids = gids, .count = count, .devices = devices };
	struct tw_verbs_want want = { .address = ADDRESS, .pkey = TW_VERBS_PKEY };
	(void)snprintf(want.interface, sizeof(want.interface), "%s", interface);
	return tw_verbs_choose(&table, &want, err);
}

Test(verbs, gid_that_is_the_address)
{
	struct tw_error err;
	struct tw_verbs_gid gids[] = {
		roce("mlx5_0", "eth2", 0, TW_VERBS_GID_ROCE_V1, ADDRESS),
		roce("mlx5_0", "eth2", 1, TW_VERBS_GID_ROCE_V2, ADDRESS + 1),
		roce("mlx5_1", "eth3", 3, TW_VERBS_GID_ROCE_V2, ADDRESS), /* a bond's other half */
		roce("mlx5_0", "eth2", 5, TW_VERBS_GID_ROCE_V2, ADDRESS),
	};
	cr_assert_eq(choose(gids, 4, 2, "eth2", &err), 3);
	cr_assert_eq(choose(gids, 4, 2, "eth3", &err), 2);
	cr_assert_eq(choose(gids, 4, 2, "", &err), 2);
	/* a kernel that does not name the interface: better than nothing, never before one that does */
	gids[2].interface[0] = '\0';
	cr_assert_eq(choose(gids, 4, 2, "eth2", &err), 3);
	cr_assert_eq(choose(gids, 3, 2, "eth2", &err), 2);
}

Test(verbs, none_is_the_address)
{
	struct tw_error err;
	cr_assert_eq(choose(NULL, 0, 0, "eth2", &err), TW_EUNSUPPORTED);
	cr_expect_str_eq(err.text,
			 "verbs: eth2, 10.0.0.1: this machine has no RDMA device: load its "
			 "driver, or use fabric.transport: udp");

	struct tw_verbs_gid gids[] = {
		roce("mlx5_0", "eth2", 0, TW_VERBS_GID_ROCE_V2, ADDRESS + 1),
		roce("mlx5_0", "eth2", 1, TW_VERBS_GID_ROCE_V1, ADDRESS),
	};
	cr_assert_eq(choose(gids, 1, 1, "eth2", &err), TW_EUNSUPPORTED);
	cr_expect_str_eq(
		err.text,
		"verbs: eth2, 10.0.0.1: no GID of an RDMA device is that address: give a "
		"RoCE interface the address, or use fabric.transport: udp (GIDs: mlx5_0 port "
		"1 index 0: ::ffff:10.0.0.2 RoCE v2 on eth2)");
	cr_assert_eq(choose(gids, 2, 1, "eth2", &err), TW_EUNSUPPORTED);
	cr_expect_not_null(
		strstr(err.text, "device mlx5_0 has that address as a RoCE v1 GID alone"));
	/* the address is there, but on another interface than the line's */
	gids[1] = roce("mlx5_1", "eth3", 0, TW_VERBS_GID_ROCE_V2, ADDRESS);
	cr_assert_eq(choose(gids, 2, 2, "eth2", &err), TW_EUNSUPPORTED);
	gids[0].transport = TW_VERBS_IWARP;
	cr_assert_eq(choose(gids, 1, 1, "eth2", &err), TW_EUNSUPPORTED);
	cr_expect_not_null(strstr(err.text, "device mlx5_0 is iWARP, which has no multicast: use "
					    "fabric.transport: udp"));
}

Test(verbs, table_too_long_for_an_error)
{
	struct tw_error err;
	struct tw_verbs_gid gids[64];
	for (uint32_t i = 0; i < 64; i++) {
		gids[i] = roce("mlx5_0", "eth2", i, TW_VERBS_GID_ROCE_V2, ADDRESS + 1 + i);
	}
	gids[1].empty = true;
	cr_assert_eq(choose(gids, 64, 1, "eth2", &err), TW_EUNSUPPORTED);
	cr_expect_not_null(strstr(err.text, "mlx5_0 port 1: no GID, Ethernet; "));
	cr_expect_not_null(strstr(err.text, " more (tw-fabric))"), "%s", err.text);
}

Test(verbs, infiniband_by_hardware_address)
{
	struct tw_error err;
	struct tw_verbs_gid gid = { .device = "mlx4_0",
				    .raw = { 0xfe, 0x80, [15] = 7 },
				    .type = TW_VERBS_GID_IB,
				    .link = TW_VERBS_LINK_INFINIBAND,
				    .port = 1 };
	struct tw_verbs_want want = { .address = ADDRESS, .has_hw_gid = true, .pkey = 0xffff };
	const struct tw_verbs_table table = { .gids = &gid, .count = 1, .devices = 1 };
	memcpy(want.hw_gid, gid.raw, sizeof(gid.raw));
	cr_assert_eq(tw_verbs_choose(&table, &want, &err), 0);
	want.hw_gid[15] = 8;
	cr_assert_eq(tw_verbs_choose(&table, &want, &err), TW_EUNSUPPORTED);
	want.has_hw_gid = false;
	cr_assert_eq(tw_verbs_choose(&table, &want, &err), TW_EUNSUPPORTED);
}

/* --- judging ----------------------------------------------------------------------------------- */

static struct tw_verbs_facts good(void)
{
	return (struct tw_verbs_facts){ .device = "mlx5_0",
					.interface = "eth2",
					.link = TW_VERBS_LINK_ETHERNET,
					.state = TW_VERBS_PORT_ACTIVE,
					.port = 1,
					.active_mtu_bytes = 1024,
					.max_mtu_bytes = 4096,
					.max_mcast_grp = 8,
					.max_mcast_qp_attach = 240,
					.pkey = TW_VERBS_PKEY,
					.pkey_there = true };
}

static const struct tw_verbs_need need = {
	.line = 'b', .mtu_bytes = 1024, .groups = 8, .partition_key = TW_VERBS_PKEY
};

static void refused(const struct tw_verbs_facts *facts, const struct tw_verbs_need *what, int code,
		    const char *text)
{
	struct tw_error err = { 0 };
	cr_expect_eq(tw_verbs_check(facts, what, &err), code, "%s", text);
	cr_expect_str_eq(err.text, text);
}

Test(verbs, port_that_will_do)
{
	struct tw_error err;
	struct tw_verbs_facts f = good();
	cr_expect_eq(tw_verbs_check(&f, &need, &err), TW_OK);
	f.active_mtu_bytes = 4096;
	cr_expect_eq(tw_verbs_check(&f, &need, &err), TW_OK);
}

Test(verbs, ports_that_will_not)
{
	struct tw_verbs_facts f = good();
	f.state = TW_VERBS_PORT_DOWN;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0 port 1 on eth2: state DOWN: check the cable, the switch port, and "
		"that "
		"the interface is up (ip link set dev NAME up)");
	f.link = TW_VERBS_LINK_INFINIBAND;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0 port 1 on eth2: state DOWN: check cable and switch port");
	f.state = TW_VERBS_PORT_INIT;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0 port 1 on eth2: state INIT: no subnet manager has brought it up: "
		"start "
		"opensm, or check the one there is");

	f = good();
	f.transport = TW_VERBS_IWARP;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0: iWARP has no UD multicast: use fabric.transport: udp");
	f.transport = TW_VERBS_OTHER; /* EFA and its like */
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0: this kind of device has no UD multicast: use fabric.transport: "
		"udp");

	f = good();
	f.link = TW_VERBS_LINK_OTHER;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0 port 1: link layer neither Ethernet nor InfiniBand: use "
		"fabric.transport: udp");

	f = good();
	f.max_mcast_grp = 0;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0: no multicast (max_mcast_grp 0, max_mcast_qp_attach 240): use "
		"fabric.transport: udp");
	f.max_mcast_grp = 7;
	refused(&f, &need, TW_EUNSUPPORTED,
		"line b: mlx5_0: 8 groups wanted, max_mcast_grp is 7: fewer channels, or another "
		"device");

	f = good();
	f.active_mtu_bytes = 512;
	refused(&f, &need, TW_ECONFIG,
		"line b: fabric.mtu_bytes: 1024, but mlx5_0 port 1 has an active MTU of 512 (it "
		"can do "
		"4096): set fabric.mtu_bytes to 512, or raise the MTU of the interface and of the "
		"switch");
}

Test(verbs, partitions)
{
	struct tw_error err;
	struct tw_verbs_facts f = good();
	struct tw_verbs_need other = need;
	other.partition_key = 0x8001;
	refused(&f, &other, TW_ECONFIG,
		"fabric.partition_key: found 0x8001, allowed on RoCE 0xffff (line b, mlx5_0): "
		"partitions are InfiniBand's, use VLANs");
	f.link = TW_VERBS_LINK_INFINIBAND;
	refused(&f, &other, TW_ECONFIG,
		"fabric.partition_key: found 0x8001, interface eth2 of line b is in partition "
		"0xffff: "
		"name that, or another interface");
	f.pkey = 0x0001; /* a limited member of the same partition */
	cr_expect_eq(tw_verbs_check(&f, &other, &err), TW_OK);
	f.pkey_there = false;
	refused(&f, &other, TW_ECONFIG,
		"fabric.partition_key: 0x8001 is not in the table of mlx5_0 port 1: the subnet "
		"manager "
		"must make the port a member");
}

/* --- the GRH ----------------------------------------------------------------------------------- */

Test(verbs, grh_of_ipv4)
{
	uint8_t grh[40];
	uint32_t src = 0;
	memset(grh, 0xee, sizeof(grh)); /* bytes 0 to 19 hold anything */
	memset(grh + 20, 0, 20);
	grh[20] = 0x45;
	memcpy(grh + 32, (const uint8_t[]){ 10, 77, 0, 2 }, 4);
	memcpy(grh + 36, (const uint8_t[]){ 239, 192, 1, 1 }, 4);
	cr_expect(tw_grh_ipv4(grh, GROUP, &src));
	cr_expect_eq(src, 0x0a4d0002u);
	cr_expect_not(tw_grh_ipv4(grh, GROUP + 1, &src));
	grh[20] = 0x46; /* options */
	cr_expect_not(tw_grh_ipv4(grh, GROUP, &src));
	grh[20] = 0x60; /* not IPv4 */
	cr_expect_not(tw_grh_ipv4(grh, GROUP, &src));
}

Test(verbs, grh_of_infiniband)
{
	uint8_t grh[40] = { 0 };
	const uint8_t mgid[16] = { 0xff, 0x12, 0x40, 0x1b, [15] = 9 };
	cr_expect_not(tw_grh_mgid(grh, mgid));
	memcpy(grh + 24, mgid, sizeof(mgid));
	cr_expect(tw_grh_mgid(grh, mgid));
}

/* --- the account of a send queue ------------------------------------------------------------------ */

#define DEPTH 64u

Test(verbs, lone_datagrams_ask_at_once)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	tw_ud_ring_init(&ring, dgram, DEPTH, 16);
	for (uint64_t i = 1; i <= 200; i++) {
		cr_assert(tw_ud_ring_post(&ring, i, true), "none is on its way");
		cr_assert_eq(tw_ud_ring_done(&ring, i), i - 1);
		cr_assert(tw_ud_ring_complete(&ring, i));
		cr_assert_eq(tw_ud_ring_done(&ring, i), i);
		cr_assert_eq(tw_ud_ring_room(&ring), DEPTH);
	}
}

Test(verbs, one_in_many_asks_in_a_burst)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	unsigned int asked = 0;
	tw_ud_ring_init(&ring, dgram, DEPTH, 16);
	for (uint64_t i = 1; i <= DEPTH; i++) {
		asked += tw_ud_ring_post(&ring, i, i % 8 == 0);
	}
	cr_expect_eq(asked, 1 + (DEPTH - 8) / 16, "%u", asked);
	cr_expect_eq(tw_ud_ring_room(&ring), 0);
	/* an overfull queue can always be told by a completion to come */
	cr_expect_gt(ring.signalled, ring.completed);
	cr_expect(tw_ud_ring_complete(&ring, ring.signalled));
	cr_expect_eq(tw_ud_ring_done(&ring, DEPTH), ring.signalled);
}

Test(verbs, burst_end_shows_with_the_next_post)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	tw_ud_ring_init(&ring, dgram, DEPTH, 16);
	cr_expect(tw_ud_ring_post(&ring, 1, true));
	cr_expect_not(tw_ud_ring_post(&ring, 2, true), "one is on its way");
	cr_expect(tw_ud_ring_complete(&ring, 1));
	cr_expect_eq(tw_ud_ring_done(&ring, 2), 1);
	cr_expect(tw_ud_ring_post(&ring, 3, true), "a heartbeat asks");
	cr_expect(tw_ud_ring_complete(&ring, 3));
	cr_expect_eq(tw_ud_ring_done(&ring, 3), 3);
}

Test(verbs, skipped_datagrams_are_done_in_their_turn)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	tw_ud_ring_init(&ring, dgram, DEPTH, 4);
	cr_expect_eq(tw_ud_ring_done(&ring, 7), 7, "nothing was ever posted");
	(void)tw_ud_ring_post(&ring, 8, true);
	cr_expect_eq(tw_ud_ring_done(&ring, 12), 7);
	(void)tw_ud_ring_post(&ring, 13, true); /* 9 to 12 were skipped */
	cr_expect(tw_ud_ring_complete(&ring, 1));
	cr_expect_eq(tw_ud_ring_done(&ring, 14), 12);
	cr_expect(tw_ud_ring_complete(&ring, 2));
	cr_expect_eq(tw_ud_ring_done(&ring, 14), 14);
}

Test(verbs, numbers_that_are_not_under_way)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	tw_ud_ring_init(&ring, dgram, DEPTH, 4);
	cr_expect_not(tw_ud_ring_complete(&ring, 0));
	cr_expect_not(tw_ud_ring_complete(&ring, 1));
	(void)tw_ud_ring_post(&ring, 1, true);
	cr_expect_not(tw_ud_ring_complete(&ring, 2));
	cr_expect(tw_ud_ring_complete(&ring, 1));
	cr_expect_not(tw_ud_ring_complete(&ring, 1), "twice");
}

Test(verbs, refused_work_requests_are_taken_back)
{
	uint64_t dgram[DEPTH];
	struct tw_ud_ring ring;
	tw_ud_ring_init(&ring, dgram, DEPTH, 4);
	for (uint64_t i = 1; i <= 3; i++) {
		(void)tw_ud_ring_post(&ring, i, i == 3); /* the last one asks */
	}
	tw_ud_ring_unpost(&ring, 2);
	cr_expect_eq(tw_ud_ring_used(&ring), 1);
	/* 1 did not ask, so the next one must */
	cr_expect(tw_ud_ring_post(&ring, 4, true));
	cr_expect_eq(ring.posted, 2);
	cr_expect(tw_ud_ring_complete(&ring, 2));
	cr_expect_eq(tw_ud_ring_done(&ring, 4), 4);
}

/* --- stamps ------------------------------------------------------------------------------------ */

#define KHZ       156250u /* 6.4 ns a tick */
#define WALL_NS   1800000000000000000ull
#define TICKS(ns) ((ns)*KHZ / 1000000u)

static struct tw_clock_reading reading(uint64_t base, uint64_t ns)
{
	return (struct tw_clock_reading){ .tsc = base + TICKS(ns), .wall_ns = WALL_NS + ns };
}

Test(verbs, rate_of_a_clock)
{
	int64_t ppm;
	cr_expect(tw_stamp_rate_holds(reading(5, 0), reading(5, 20000000), KHZ, &ppm));
	cr_expect_eq(ppm, 0);
	/* 10 % off, a wrong unit, standing still, going back */
	cr_expect_not(
		tw_stamp_rate_holds(reading(5, 0), reading(5, 20000000), KHZ + KHZ / 10, &ppm));
	cr_expect_lt(ppm, -TW_STAMP_RATE_PPM);
	cr_expect_not(tw_stamp_rate_holds(reading(5, 0), reading(5, 20000000), KHZ / 1000, &ppm));
	cr_expect_not(tw_stamp_rate_holds(reading(5, 0), reading(5, 20000000), 1000000, &ppm));
	cr_expect_not(tw_stamp_rate_holds(reading(5, 0), reading(5, 20000000), 0, &ppm));
	cr_expect_not(tw_stamp_rate_holds(reading(5, 7), reading(5, 7), KHZ, &ppm));
	cr_expect_not(tw_stamp_rate_holds(reading(5, 9), reading(5, 7), KHZ, &ppm));
}

/* Stamps of 48 bits that wrap while they are used. */
Test(verbs, stamps_become_wall_clock)
{
	static struct tw_stamp stamp;
	const uint64_t mask = (1ull << 48) - 1;
	const uint64_t base = mask - TICKS(500000000ull); /* half a second before it wraps */
	struct tw_clock_curve curve;
	int64_t ppm;
	struct tw_clock_reading a = reading(base, 0), b = reading(base, 20000000);
	cr_assert(tw_stamp_begin(&stamp, mask, KHZ, a, b, &ppm));
	for (uint64_t ns = 120000000; ns < 3000000000ull; ns += 100000000) {
		const uint64_t now_ns = WALL_NS + ns;
		cr_assert(tw_stamp_curve(&stamp, &curve));
		for (uint64_t age_ns = 0; age_ns <= 50000000; age_ns += 10000000) {
			const uint64_t at = (base + TICKS(ns - age_ns)) & mask;
			const uint64_t wall_ns = tw_stamp_wall(&curve, mask, at, now_ns);
			cr_assert_neq(wall_ns, 0);
			cr_assert_lt(llabs((int64_t)(wall_ns - (now_ns - age_ns))), 1000);
		}
		struct tw_clock_reading r = reading(base, ns);
		r.tsc &= mask;
		tw_stamp_reading(&stamp, r);
	}
}

Test(verbs, stamps_not_believed)
{
	static struct tw_stamp stamp;
	struct tw_clock_curve curve;
	int64_t ppm;
	struct tw_clock_reading a = reading(0, 0), b = reading(0, 20000000);
	cr_expect_not(tw_stamp_begin(&stamp, UINT64_MAX, KHZ * 2, a, b, &ppm));
	cr_expect_not(tw_stamp_curve(&stamp, &curve));
	cr_expect_not(tw_stamp_begin(&stamp, UINT64_MAX, 0, a, b, &ppm));
	cr_expect_not(tw_stamp_begin(&stamp, 0, KHZ, a, b, &ppm));
	cr_assert(tw_stamp_begin(&stamp, UINT64_MAX, KHZ, a, b, &ppm));
	cr_assert(tw_stamp_curve(&stamp, &curve));
	const uint64_t now_ns = WALL_NS + 20000000;
	cr_expect_neq(tw_stamp_wall(&curve, UINT64_MAX, b.tsc, now_ns), 0);
	/* from the future, and older than any queue is long */
	cr_expect_eq(tw_stamp_wall(&curve, UINT64_MAX, b.tsc + TICKS(5000000ull), now_ns), 0);
	cr_expect_eq(tw_stamp_wall(&curve, UINT64_MAX, b.tsc - TICKS(11000000000ull), now_ns), 0);
	/* a device whose clock changes its rate is no longer believed, and is again when it holds */
	tw_stamp_reading(&stamp, (struct tw_clock_reading){ .tsc = b.tsc + TICKS(100300000ull),
							    .wall_ns = b.wall_ns + 100000000 });
	cr_expect_not(tw_stamp_curve(&stamp, &curve));
}
