/* UD over a device that is not there (tests/rdma/fake_verbs.h): what Soft-RoCE cannot show. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/verbs/ud.h"
#include "tests/rdma/fake_verbs.h"
#include "tests/unit/config_text.h"

#define GROUP      0xefc00101u /* 239.192.1.1 */
#define DEPTH      64u
#define LIMIT_NS   60000000000ull /* a hang, not a measure */
#define MEMORY     65536u
#define ELSEWHERE  4096u
#define DGRAM_MAX  1024u
#define BACKOFF_NS 10000000ull

struct ends {
	struct tw_fabric_conf conf;
	struct tw_rx *rx;
	struct tw_tx *tx;
	_Atomic uint64_t of_rx[TW_N_verbs_line_counters], of_tx[TW_N_verbs_line_counters];
	_Atomic uint64_t of_sub[TW_N_sub_line_counters], of_pub[TW_N_pub_line_counters];
	uint64_t posted; /* datagrams; each begins with its number */
	uint8_t *memory; /* registered; datagrams lie one behind the other */
	uint32_t at;
	/* what came last, and how many did */
	uint64_t number, received, recv_ns;
	uint32_t len_bytes, src_addr;
	char notes[2048]; /* all texts of both */
};

static struct ends ends;

uint64_t __real_tw_mono_ns(void);
uint64_t __wrap_tw_mono_ns(void);
static _Atomic uint64_t late_ns, step_ns;

/* Each look at the clock may be the one before which a thread has stood still. */
uint64_t __wrap_tw_mono_ns(void)
{
	const uint64_t step = atomic_load(&step_ns);
	return __real_tw_mono_ns() + atomic_fetch_add(&late_ns, step) + step;
}

/* A turn of both hot threads. */
static void turn(void)
{
	struct tw_rx_dgram out[TW_RX_BATCH];
	struct tw_error note;
	int n = ends.rx != NULL ? tw_rx_poll(ends.rx, 0, out, TW_RX_BATCH) : 0;
	for (int i = 0; i < n; i++) {
		memcpy(&ends.number, out[i].data, sizeof(ends.number));
		for (uint32_t b = sizeof(ends.number); b < out[i].len_bytes; b++) {
			cr_assert_eq(out[i].data[b], (uint8_t)(ends.number + b));
		}
		ends.received++;
		ends.recv_ns = out[i].recv_ns;
		ends.len_bytes = out[i].len_bytes;
		ends.src_addr = out[i].src_addr;
	}
	if (ends.tx != NULL) {
		(void)tw_tx_completed(ends.tx, 0);
	}
	while ((ends.rx != NULL && tw_rx_note(ends.rx, &note)) ||
	       (ends.tx != NULL && tw_tx_note(ends.tx, &note))) {
		size_t used = strlen(ends.notes);
		(void)snprintf(ends.notes + used, sizeof(ends.notes) - used, "%s\n", note.text);
	}
	if (n == 0) {
		(void)usleep(200);
	}
}

#define UNTIL(condition)                                                                  \
	do {                                                                              \
		uint64_t until_ns = tw_mono_ns() + LIMIT_NS;                              \
		while (!(condition)) {                                                    \
			cr_assert_lt(__real_tw_mono_ns(), until_ns, "%s; %s", #condition, \
				     ends.notes);                                         \
			turn();                                                           \
		}                                                                         \
	} while (0)

static void open_rx(void)
{
	const struct tw_rx_endpoint ep = { .group = GROUP, .counters = { ends.of_sub, NULL } };
	struct tw_error err = { .code = TW_OK };
	ends.conf.verbs[0] = (struct tw_counters){ .values = ends.of_rx };
	cr_assert_eq(tw_ud_rx_open(&ends.rx, &ends.conf, &ep, 1, &err), TW_OK, "%s", err.text);
}

static void open_tx(void)
{
	const struct tw_tx_endpoint ep = { .groups = { GROUP },
					   .counters = { { ends.of_pub, NULL } },
					   .memory = ends.memory,
					   .memory_bytes = MEMORY };
	struct tw_error err = { .code = TW_OK };
	ends.conf.verbs[0] = (struct tw_counters){ .values = ends.of_tx };
	cr_assert_eq(tw_ud_tx_open(&ends.tx, &ends.conf, &ep, 1, &err), TW_OK, "%s", err.text);
}

static void begin(void)
{
	tw_clock_init();
	fake_begin();
	ends.conf = (struct tw_fabric_conf){ .mtu_bytes = DGRAM_MAX,
					     .tos = 34 << 2,
					     .ttl = 8,
					     .rcvbuf_bytes = 65536,
					     .receive_depth = DEPTH,
					     .partition_key = TW_VERBS_PKEY,
					     .lines[0].address = FAKE_ADDRESS };
	ends.memory = aligned_alloc(4096, MEMORY + ELSEWHERE);
	cr_assert_not_null(ends.memory);
}

static void end(void)
{
	tw_tx_close(ends.tx);
	tw_rx_close(ends.rx);
	free(ends.memory);
	ends.memory = NULL;
	const char *fault = fake_end();
	cr_assert_null(fault, "%s (%s)", fault, fake.order);
	NO_LEAKS();
}

static uint8_t *write_dgram(uint8_t *at, uint64_t number, uint32_t bytes)
{
	memcpy(at, &number, sizeof(number));
	for (uint32_t b = sizeof(number); b < bytes; b++) {
		at[b] = (uint8_t)(number + b);
	}
	return at;
}

/* Posts so many datagrams at once. */
static void post(unsigned int n, uint32_t bytes)
{
	struct tw_tx_dgram dgrams[TW_TX_BATCH];
	for (unsigned int i = 0; i < n; i++) {
		ends.at = ends.at + bytes > MEMORY ? 0 : ends.at;
		dgrams[i].data = write_dgram(ends.memory + ends.at, ++ends.posted, bytes);
		dgrams[i].len_bytes = bytes;
		ends.at += bytes;
	}
	tw_tx_post(ends.tx, 0, dgrams, n);
}

/* One comes through, whatever was lost before. */
static void pass(void)
{
	post(1, 512);
	UNTIL(ends.number == ends.posted);
	cr_assert_eq(ends.len_bytes, 512);
	UNTIL(tw_tx_completed(ends.tx, 0) == ends.posted);
}

static uint64_t of_rx(unsigned int counter)
{
	return ends.of_rx[counter];
}

static uint64_t of_tx(unsigned int counter)
{
	return ends.of_tx[counter];
}

/* --- removal ------------------------------------------------------------------------------------------- */

static void is_healed(void)
{
	UNTIL(of_rx(TW_VERBS_LINE_broken) == 0 && of_tx(TW_VERBS_LINE_broken) == 0);
	pass();
}

Test(verbs_device, removal_and_return, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	pass();
	cr_assert_eq(ends.src_addr, FAKE_SENDER);
	turn(); /* what was lent is posted again */
	fake.stall = true;
	post(3, 512); /* under way when it goes */
	fake_remove();
	UNTIL(fake_live(FAKE_CONTEXT) == 0);
	cr_expect_eq(fake_live(FAKE_QP) + fake_live(FAKE_CQ) + fake_live(FAKE_MR) +
			     fake_live(FAKE_PD) + fake_live(FAKE_AH) + fake_live(FAKE_CHANNEL) +
			     fake_live(FAKE_CM_ID),
		     0);
	/* nothing holds the history any more, and what is posted meanwhile is skipped */
	UNTIL(tw_tx_completed(ends.tx, 0) == ends.posted);
	post(2, 512);
	cr_expect_eq(tw_tx_completed(ends.tx, 0), ends.posted);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_skipped], 2);
	cr_expect_geq(of_rx(TW_VERBS_LINE_device_errors), 1);
	cr_expect_geq(of_tx(TW_VERBS_LINE_device_errors), 1);
	/* a dead device gives nothing back */
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted), DEPTH);
	cr_expect_eq(of_tx(TW_VERBS_LINE_unaccounted), 3);
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds_failed) >= 2 &&
	      of_tx(TW_VERBS_LINE_rebuilds_failed) >= 2);
	cr_expect_eq(of_rx(TW_VERBS_LINE_broken), 1);
	FAKE_LOCK;
	fake.stall = false;
	fake_return();
	FAKE_UNLOCK;
	is_healed();
	cr_expect_eq(of_rx(TW_VERBS_LINE_rebuilds), 1);
	cr_expect_eq(of_tx(TW_VERBS_LINE_rebuilds), 1);
	/* said once each, however often it was tried */
	cr_expect_not_null(strstr(ends.notes, "broke, and is being built anew"), "%s", ends.notes);
	const char *said = strstr(ends.notes, "receive 239.192.1.1 (line a): up again");
	cr_assert_not_null(said, "%s", ends.notes);
	cr_expect_null(strstr(said + 1, "receive 239.192.1.1 (line a): up again"));
	end();
}

/* A device that says that it has failed and is there as before. */
Test(verbs_device, failure_without_removal, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	pass();
	fake_port_event(IBV_EVENT_DEVICE_FATAL);
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1 && of_tx(TW_VERBS_LINE_rebuilds) == 1);
	pass();
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted) + of_tx(TW_VERBS_LINE_unaccounted), 0);
	end();
}

/* What a flush brings is taken even where the thread that drains has stood still all the time that it has. */
Test(verbs_device, drain_that_is_late, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	pass();
	turn();
	fake.stall = true;
	post(3, 512);
	atomic_store(&step_ns, 1000000000);
	cr_expect_eq(fake_queue_event(IBV_EVENT_QP_FATAL, IBV_QPT_UD), 2);
	UNTIL(fake.made[FAKE_QP] == 4 && of_rx(TW_VERBS_LINE_broken) == 0 &&
	      of_tx(TW_VERBS_LINE_broken) == 0);
	atomic_store(&step_ns, 0);
	fake.stall = false;
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted), 0);
	cr_expect_eq(of_tx(TW_VERBS_LINE_unaccounted), 0);
	pass();
	end();
}

/* --- memberships --------------------------------------------------------------------------------------- */

Test(verbs_device, lost_membership_is_joined_again, .timeout = 240)
{
	begin();
	open_rx();
	const uint64_t lost_ns = tw_mono_ns();
	FAKE_LOCK;
	fake.failing_joins = 3;
	cr_expect_eq(fake_lose_groups(-5), 1);
	FAKE_UNLOCK;
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1);
	/* at once, then after 10, 20 and 40 ms */
	cr_expect_geq(tw_mono_ns() - lost_ns, 7 * BACKOFF_NS);
	cr_expect_eq(of_rx(TW_VERBS_LINE_multicast_errors), 1 + 3);
	cr_expect_eq(of_rx(TW_VERBS_LINE_rebuilds_failed), 3);
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted), 0);
	cr_expect_eq(fake.joins, 1 + 3 + 1);
	UNTIL(strstr(ends.notes, "up again") != NULL);
	const char *why = strstr(ends.notes, "rdma_join_multicast_ex: Network is unreachable");
	cr_assert_not_null(why, "%s", ends.notes);
	cr_expect_null(strstr(why + 1, "rdma_join_multicast_ex"), "said once: %s", ends.notes);
	open_tx();
	pass();
	end();
}

Test(verbs_device, send_only_is_wanted_and_need_not_be_had, .timeout = 240)
{
	begin();
	open_tx();
	turn();
	cr_expect_eq(fake.full_joins, 0);
	cr_expect_str_empty(ends.notes);
	tw_tx_close(ends.tx);
	fake.refuse_send_only = true;
	open_tx();
	turn();
	cr_expect_eq(fake.joins, 1 + 2);
	cr_expect_eq(fake.full_joins, 1);
	cr_expect_not_null(strstr(ends.notes,
				  "send 239.192.1.1 (line a): no send-only membership to be had: "
				  "joined as a full member"),
			   "%s", ends.notes);
	open_rx();
	pass();
	end();
}

/* --- sending ------------------------------------------------------------------------------------------- */

static void inline_room(uint32_t room, uint32_t used)
{
	static const uint32_t sizes[] = { 64, 68, 256, 260, 512 };
	uint8_t *const elsewhere = ends.memory + MEMORY;
	unsigned int fit = 0;
	fake.max_inline = room;
	fake.inlined = fake.largest_inlined = 0;
	fake.smallest_read = UINT32_MAX;
	open_tx();
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		post(1, sizes[i]);
		UNTIL(ends.number == ends.posted);
		cr_expect_eq(ends.len_bytes, sizes[i]);
		/* and from where nothing is registered */
		const struct tw_tx_dgram dgram = { .data = write_dgram(elsewhere, ++ends.posted,
								       sizes[i]),
						   .len_bytes = sizes[i] };
		tw_tx_post(ends.tx, 0, &dgram, 1);
		memset(elsewhere, 0, sizes[i]); /* it is not needed any more */
		UNTIL(ends.number == ends.posted);
		fit += sizes[i] <= used ? 2 : 0;
	}
	cr_expect_eq(fake.inlined, fit, "room %u: %u", room, fake.inlined);
	cr_expect_eq(fake.largest_inlined, used);
	cr_expect_eq(fake.smallest_read, used == 0 ? 64 : used + 4);
	tw_tx_close(ends.tx);
	ends.tx = NULL;
}

Test(verbs_device, small_datagrams_go_inline, .timeout = 240)
{
	begin();
	open_rx();
	inline_room(400, 256); /* more than is wanted */
	inline_room(100, 64);
	inline_room(0, 0);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_errors], 0);
	end();
}

Test(verbs_device, chain_that_is_refused_in_its_middle, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	pass();
	/* full: what it has not taken is skipped, and that is all */
	FAKE_LOCK;
	fake.send_cause = ENOMEM;
	fake.take = 2;
	FAKE_UNLOCK;
	post(8, 512);
	UNTIL(ends.number == ends.posted - 6);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_skipped], 6);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_errors], 0);
	pass();
	cr_expect_eq(ends.received, 1 + 2 + 1);
	cr_expect_eq(of_tx(TW_VERBS_LINE_rebuilds), 0);
	/* anything else is a queue pair to be built anew */
	FAKE_LOCK;
	fake.send_cause = EINVAL;
	fake.take = 3;
	FAKE_UNLOCK;
	post(8, 512);
	UNTIL(of_tx(TW_VERBS_LINE_rebuilds) == 1);
	UNTIL(tw_tx_completed(ends.tx, 0) == ends.posted);
	pass();
	cr_expect_eq(ends.received, 4 + 3 + 1);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_skipped], 6 + 5);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_errors], 1);
	cr_expect_eq(ends.of_pub[TW_PUB_LINE_datagrams] + ends.of_pub[TW_PUB_LINE_skipped],
		     ends.posted);
	cr_expect_eq(of_tx(TW_VERBS_LINE_unaccounted), 0);
	end();
}

/* --- receiving ------------------------------------------------------------------------------------------ */

static void error_completion(bool extended)
{
	begin();
	ends.conf.extended_completions = extended;
	open_rx();
	open_tx();
	pass();
	post(2, 512);
	FAKE_LOCK;
	fake.receive_status = IBV_WC_LOC_PROT_ERR;
	FAKE_UNLOCK;
	post(1,
	     512); /* of its completion, and of all that are flushed, no other field holds anything */
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1);
	cr_expect_eq(ends.received, 1 + 2, "what came before it: %llu",
		     (unsigned long long)ends.received);
	cr_expect_geq(ends.of_sub[TW_SUB_LINE_receive_errors], 1);
	cr_expect_eq(ends.of_sub[TW_SUB_LINE_foreign_frames], 0);
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted), 0);
	pass();
	end();
}

Test(verbs_device, completion_in_error, .timeout = 240)
{
	error_completion(false);
}

Test(verbs_device, completion_in_error_of_an_extended_queue, .timeout = 240)
{
	error_completion(true);
}

Test(verbs_device, receives_that_are_refused_in_their_middle, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	pass();
	FAKE_LOCK;
	fake.receive_cause = EINVAL;
	fake.take = 5;
	FAKE_UNLOCK;
	post(40, 512); /* what they had is posted again */
	UNTIL(ends.number == ends.posted);
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1);
	cr_expect_eq(of_rx(TW_VERBS_LINE_unaccounted), 0);
	for (unsigned int i = 0; i < 3 * DEPTH; i++) {
		pass(); /* no slot is lost */
	}
	end();
}

Test(verbs_device, queue_events_rebuild_their_flow, .timeout = 240)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_QP_ACCESS_ERR,
						     IBV_EVENT_CQ_ERR };
	begin();
	open_rx();
	open_tx();
	for (unsigned int i = 0; i < 3; i++) {
		cr_expect_eq(fake_queue_event(types[i], IBV_QPT_UD), 2);
		UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == i + 1 &&
		      of_tx(TW_VERBS_LINE_rebuilds) == i + 1);
		pass();
	}
	cr_expect_eq(of_rx(TW_VERBS_LINE_async_events), 3);
	cr_expect_eq(fake.joins, 2, "the memberships stay");
	end();
}

/* --- the descriptor --------------------------------------------------------------------------------------- */

static bool readable(int timeout_ms)
{
	struct pollfd fd = { .fd = tw_rx_event_fd(ends.rx), .events = POLLIN };
	return poll(&fd, 1, timeout_ms) == 1;
}

static int arm(void)
{
	uint64_t due_ns = UINT64_MAX;
	const int rc = tw_rx_arm(ends.rx, &due_ns);
	cr_assert_eq(due_ns, UINT64_MAX, "nothing goes by time");
	return rc;
}

/* Each datagram is sent when the one before it has come: before the arming, after it, or before the poll
 * that was to find nothing.  Nothing else ever wakes it. */
Test(verbs_device, descriptor_says_each_datagram_once, .timeout = 240)
{
	begin();
	open_rx();
	open_tx();
	for (unsigned int i = 0; i < 600; i++) {
		turn(); /* the queue is empty */
		switch (i % 3) {
		case 0:
			cr_assert_eq(arm(), 0);
			cr_assert_not(readable(0), "round %u: nothing has come", i);
			post(1, 64);
			cr_assert(readable(60000), "round %u", i);
			break;
		case 1:
			post(1, 64);
			cr_assert_eq(arm(), 1, "it came when nobody had asked yet");
			break;
		default:
			cr_assert_eq(arm(), 0);
			cr_assert_eq(arm(), 0, "twice is no harm");
			post(1, 64);
			cr_assert_eq(arm(), 1, "nor is it to arm instead of polling");
			break;
		}
		const uint64_t received = ends.received;
		turn();
		cr_assert_eq(ends.received, received + 1);
		cr_assert_eq(ends.number, ends.posted);
	}
	/* what heals wakes it too, so that the thread that sleeps polls again */
	turn();
	cr_assert_eq(arm(), 0);
	cr_assert_not(readable(0));
	cr_expect_eq(fake_queue_event(IBV_EVENT_QP_FATAL, IBV_QPT_UD), 2);
	cr_assert(readable(60000));
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1 && of_tx(TW_VERBS_LINE_rebuilds) == 1);
	pass();
	/* closed with events that nobody has taken */
	turn();
	UNTIL(arm() == 0);
	post(1, 64);
	cr_assert(readable(60000));
	end();
}

/* --- stamps --------------------------------------------------------------------------------------------- */

/* Datagrams came two seconds before they are polled, as the device's clock has it. */
Test(verbs_device, stamps_of_the_device, .timeout = 240)
{
	const uint64_t age_ns = 2000000000, slack_ns = 500000000;
	begin();
	fake.timestamp_mask = (1ull << 48) - 1;
	fake.clock_khz = 156250;
	fake.clock_offset = 0x123456789abcull;
	fake.age_ns = age_ns;
	open_rx();
	/* on a machine that stands still now and then the clock may not be to be read closely */
	for (unsigned int i = 0; i < 20 && strcmp(ends.rx->stamp, "nic") != 0; i++) {
		tw_rx_close(ends.rx);
		open_rx();
	}
	cr_assert_str_eq(ends.rx->stamp, "nic");
	open_tx();
	bool seen = false;
	const uint64_t until_ns = tw_mono_ns() + LIMIT_NS;
	while (!seen) {
		const uint64_t before_ns = tw_wall_ns();
		pass();
		const uint64_t after_ns = tw_wall_ns();
		seen = ends.recv_ns > before_ns - age_ns - slack_ns &&
		       ends.recv_ns < after_ns - age_ns + slack_ns;
		cr_assert_lt(tw_mono_ns(), until_ns, "stamp %lld ns from the poll",
			     (long long)(ends.recv_ns - after_ns));
	}
	end();
}

Test(verbs_device, clock_that_cannot_be_read, .timeout = 240)
{
	begin();
	fake.timestamp_mask = UINT64_MAX;
	fake.clock_khz = 0;
	open_rx();
	cr_expect_str_eq(ends.rx->stamp, "poll: the clock of fake0 cannot be read");
	open_tx();
	const uint64_t before_ns = tw_wall_ns();
	pass();
	cr_expect_geq(ends.recv_ns, before_ns);
	end();
}

/* --- InfiniBand ----------------------------------------------------------------------------------------- */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

/* An IPoIB interface's files: the hardware address ends with the port's GID. */
FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char address[] = "80:00:00:29:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:07\n";
	static char pkey[] = "0x8001\n";
	if (strcmp(path, "/sys/class/net/ib0/address") == 0) {
		return fmemopen(address, strlen(address), "r");
	}
	if (strcmp(path, "/sys/class/net/ib0/pkey") == 0) {
		return fmemopen(pkey, strlen(pkey), "r");
	}
	return __real_fopen(path, mode);
}

Test(verbs_device, infiniband, .timeout = 240)
{
	static const uint8_t mgid[16] = { 0xff, 0x12,        0x40, 0x1b, 0x80,
					  0x01, [12] = 0x0f, 0xc0, 0x01, 0x01 };
	begin();
	fake.infiniband = true;
	fake.pkeys[1] = 0x8001;
	ends.conf.partition_key = 0x8001;
	(void)snprintf(ends.conf.lines[0].interface, sizeof(ends.conf.lines[0].interface), "ib0");
	fake.pkey_index = 1; /* of the interface, which rdma_cm joins for */
	open_rx();
	open_tx();
	cr_expect_str_eq(tw_rx_describe(ends.rx, 0),
			 "fake0 port 1, GID 3 (fe80::7, InfiniBand), MTU 1024");
	cr_expect(ends.rx->sourceless);
	pass();
	cr_expect_eq(ends.src_addr, 0);
	cr_expect_eq(fake.pkey_index, 1, "the partition's place in the port's table");
	cr_expect_arr_eq(fake.ah.grh.dgid.raw, mgid, sizeof(mgid));
	cr_expect_eq(fake.ah.dlid, FAKE_MLID);
	cr_expect_eq(fake.ah.grh.sgid_index, FAKE_GID_INDEX);
	cr_expect_eq(fake.ah.grh.hop_limit, 8);
	/* a subnet manager that has forgotten us: memberships anew, with new queue pairs */
	fake_port_event(IBV_EVENT_CLIENT_REREGISTER);
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 1 && of_tx(TW_VERBS_LINE_rebuilds) == 1);
	cr_expect_eq(fake.joins, 4);
	pass();
	/* another LID: the device anew */
	fake_port_event(IBV_EVENT_LID_CHANGE);
	UNTIL(of_rx(TW_VERBS_LINE_rebuilds) == 2 && of_tx(TW_VERBS_LINE_rebuilds) == 2);
	cr_expect_eq(of_rx(TW_VERBS_LINE_gid_changes), 1);
	pass();
	end();
}
