/* Recorded ITCH: every message becomes the very bytes that someone else's decoder and a normalizer written
 * apart from ours make of it.
 *
 * The hashes were made by tests/support/itch_omi.py, which compares every field of the 1,117 messages with
 * the Open Markets Initiative's dissector and builds the images from that one's fields.  `known` is the
 * same where the order of each E, C, X, D and U was added just before, because nearly all recorded ones
 * name orders older than the recording.  The files are not part of the project: without them the test is
 * skipped. */
#include "config/config.h"
#include "tests/support/feed_bytes.h"

static const struct recording {
	const char *name;
	uint64_t venue_msgs, msgs;
	uint64_t hash; /* FNV-1a, 64 bits, over all messages as they lie in memory */
	uint64_t known_msgs, known_hash;
} recordings[] = {
	{ "12302019_SNIPPET.NASDAQ_ITCH50", 1000, 820, UINT64_C(0xfe52854c356e0766), 1708,
	  UINT64_C(0x56529aa9302d0350) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/AddOrderNoMPID.pcap", 5, 9,
	  UINT64_C(0xa91af7d81f20b170), 9, UINT64_C(0xa91af7d81f20b170) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/AddOrderWithMPID.pcap", 5, 10,
	  UINT64_C(0x8aa0649500ce498f), 10, UINT64_C(0x8aa0649500ce498f) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/CrossTrade.pcap", 5, 10,
	  UINT64_C(0xdd51b70af518ee87), 10, UINT64_C(0xdd51b70af518ee87) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/LULDAuctionCollar.pcap", 5, 9,
	  UINT64_C(0xd1a0b5af655d3382), 9, UINT64_C(0xd1a0b5af655d3382) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/MarketParticipantPosition.pcap", 5, 9,
	  UINT64_C(0xddcbc561ee9cd967), 9, UINT64_C(0xddcbc561ee9cd967) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/NetOrderImbalanceIndicator.pcap", 5, 10,
	  UINT64_C(0x69ea4db141da9169), 10, UINT64_C(0x69ea4db141da9169) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/NonCrossTrade.pcap", 5, 9,
	  UINT64_C(0xe0255a51ca66011e), 9, UINT64_C(0xe0255a51ca66011e) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/OrderCancel.pcap", 5, 0,
	  UINT64_C(0xcbf29ce484222325), 15, UINT64_C(0xb444b8c0ad972602) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/OrderDelete.pcap", 5, 0,
	  UINT64_C(0xcbf29ce484222325), 14, UINT64_C(0xb9715127aa8842f9) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/OrderExecuted.pcap", 5, 5,
	  UINT64_C(0xbadd40f1264c37d1), 14, UINT64_C(0xa9d8022345c29433) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/OrderExecutedWithPrice.pcap", 5, 5,
	  UINT64_C(0xb640be032bbca9f5), 14, UINT64_C(0x831e5b9a0bbab543) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/OrderReplace.pcap", 5, 0,
	  UINT64_C(0xcbf29ce484222325), 13, UINT64_C(0x909af1c1be93eb13) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/RegSHORestriction.pcap", 5, 10,
	  UINT64_C(0x6c8843a6906eb989), 10, UINT64_C(0x6c8843a6906eb989) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/StockTradingAction.pcap", 5, 10,
	  UINT64_C(0x1afcd6efc4c73b27), 10, UINT64_C(0x1afcd6efc4c73b27) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0.20230822/SystemEvent.pcap", 1, 1,
	  UINT64_C(0x43d5a787a5067440), 1, UINT64_C(0x43d5a787a5067440) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/AddOrderNoMpidAttributionMessage.pcap", 1, 2,
	  UINT64_C(0x01c113f14c89b340), 2, UINT64_C(0x01c113f14c89b340) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/MarketParticipantPositionMessage.pcap", 1, 2,
	  UINT64_C(0xfc4b3f8cafd78295), 2, UINT64_C(0xfc4b3f8cafd78295) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/Multiple.Packets.pcap", 39, 39,
	  UINT64_C(0xd60939038f6d09c9), 42, UINT64_C(0x247a8bda99c9c825) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/NetOrderImbalanceIndicatorMessage.pcap", 1, 2,
	  UINT64_C(0x14ddcaaae397e4a5), 2, UINT64_C(0x14ddcaaae397e4a5) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/OrderDeleteMessage.pcap", 1, 0,
	  UINT64_C(0xcbf29ce484222325), 3, UINT64_C(0x4a747cc0012d1f5a) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/OrderExecutedMessage.pcap", 1, 1,
	  UINT64_C(0x9eb80959f96f5e15), 3, UINT64_C(0x2988d68bffab5b02) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/OrderReplaceMessage.pcap", 1, 0,
	  UINT64_C(0xcbf29ce484222325), 3, UINT64_C(0x354b52be0c98f7ed) },
	{ "Nasdaq.Equities.TotalView.Itch.v5.0/StockTradingActionMessage.pcap", 1, 2,
	  UINT64_C(0x1650a75288d4f2a5), 2, UINT64_C(0x1650a75288d4f2a5) },
};

struct play {
	struct bench b;
	uint64_t msgs, hash;
};

static void play_take(void *ctx, const struct tw_msg_head *msg, uint32_t len, uint32_t channels)
{
	struct play *p = ctx;
	cr_assert_eq(channels, 1);
	p->msgs++;
	for (uint32_t i = 0; i < len; i++) {
		p->hash = (p->hash ^ ((const uint8_t *)msg)[i]) * UINT64_C(0x100000001b3);
	}
}

/* Adds the order that a message names, unless it is there: the same that itch_omi.py does. */
static void prime(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	uint64_t ref = 0;
	struct tape add = { .len = 0 };
	for (unsigned int i = 0; i < 8; i++) {
		ref = ref << 8 | msg->data[11 + i];
	}
	put(&add, "A", 1);
	put(&add, msg->data + 1, 2);
	put_be(&add, 0, 2);
	put(&add, msg->data + 5, 6);
	put_be(&add, ref, 8);
	put(&add, ref % 2 == 0 ? "B" : "S", 1);
	put_be(&add, 1000000, 4);
	put(&add, "PRIMED  ", 8);
	put_be(&add, 10000 + ref % 1000, 4);
	struct tw_venue_msg first = *msg;
	first.data = add.bytes;
	first.len_bytes = (uint32_t)add.len;
	tw_protocol_itch50.messages(feed, &first, 1);
}

/* Orders that the recording has added itself are primed in vain: the second A is dropped. */
static void primed_messages(struct tw_feed *feed, const struct tw_venue_msg *msgs, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (strchr("ECXDU", msgs[i].data[0]) != NULL) {
			prime(feed, &msgs[i]);
		}
		tw_protocol_itch50.messages(feed, &msgs[i], 1);
	}
}

/* Plays one file to its end; the caller looks at the counters. */
static void play(struct play *p, const char *path, const struct tw_protocol *as)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_recording_open(&input, path, 0, &err), TW_OK, "%s", err.text);
	*p = (struct play){ .hash = UINT64_C(0xcbf29ce484222325) };
	bench_open(&p->b, (struct tw_feed_conf){ .protocol = "itch50",
						 .session = input->session,
						 .mic = "XNAS",
						 .venue_id = 1,
						 .depths = { TW_DEPTH_ORDERS },
						 .max_orders = 4096 });
	p->b.feed->sink = (struct tw_feed_sink){ .message = play_take, .ctx = p };
	if (as != NULL) {
		p->b.feed->protocol = as;
	}
	cr_assert_eq(tw_feed_run(p->b.feed, input, &err), TW_OK, "%s: %s", path, err.text);
	cr_assert_eq(input->warning.code, TW_OK, "%s: %s", path, input->warning.text);
	tw_input_close(input);
}

static bool recording_path(char *path, size_t size, const struct recording *r)
{
	char name[256];
	(void)snprintf(name, sizeof(name), "nasdaq/%s", r->name);
	return data_path(path, size, name);
}

#define COUNT (sizeof(recordings) / sizeof(recordings[0]))

Test(itch_data, every_field_of_every_recording, .timeout = 60)
{
	for (size_t i = 0; i < COUNT; i++) {
		const struct recording *r = &recordings[i];
		char path[512];
		if (!recording_path(path, sizeof(path), r)) {
			cr_skip_test("the recordings are not at hand");
		}
		struct play p;
		play(&p, path, NULL);
		cr_assert_eq(bench_counter(&p.b, TW_FH_venue_messages), r->venue_msgs, "%s",
			     r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_malformed_messages), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_messages), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_values), 0, "%s", r->name);
		cr_assert_eq(p.msgs, r->msgs, "%s: %llu", r->name, (unsigned long long)p.msgs);
		cr_assert_eq(p.hash, r->hash, "%s: %016llx", r->name, (unsigned long long)p.hash);
		bench_close(&p.b);
	}
}

Test(itch_data, every_field_where_orders_are_known, .timeout = 60)
{
	struct tw_protocol primed = tw_protocol_itch50;
	primed.messages = primed_messages;
	for (size_t i = 0; i < COUNT; i++) {
		const struct recording *r = &recordings[i];
		char path[512];
		if (!recording_path(path, sizeof(path), r)) {
			cr_skip_test("the recordings are not at hand");
		}
		struct play p;
		play(&p, path, &primed);
		cr_assert_eq(p.msgs, r->known_msgs, "%s: %llu", r->name,
			     (unsigned long long)p.msgs);
		cr_assert_eq(p.hash, r->known_hash, "%s: %016llx", r->name,
			     (unsigned long long)p.hash);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_executed), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_priced), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_cancelled), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_deleted), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_replaced), 0, "%s", r->name);
		bench_close(&p.b);
	}
}

/* In the excerpt as it is: orders of another time are counted by type and change nothing. */
Test(itch_data, unknown_orders_of_the_excerpt, .timeout = 60)
{
	char path[512];
	if (!recording_path(path, sizeof(path), &recordings[0])) {
		cr_skip_test("the recordings are not at hand");
	}
	struct play p;
	play(&p, path, NULL);
	uint64_t deleted = bench_counter(&p.b, TW_FH_unknown_deleted);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_executed), 28);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_priced), 1);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_cancelled), 6);
	cr_assert_eq(deleted, 139);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_replaced), 225);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unnamed_messages), 15);
	/* what is left are the orders of A and F, less those that D took */
	cr_assert_eq(bench_counter(&p.b, TW_FH_orders), 367 + 193 - (167 - deleted));
	cr_assert_eq(bench_counter(&p.b, TW_FH_gaps), 0);
	bench_close(&p.b);
}

/* Someone wrapped these anew, with number 0 in every packet: no gap storm. */
Test(itch_data, captures_without_numbers_have_no_gaps, .timeout = 60)
{
	for (size_t i = 0; i < COUNT; i++) {
		const struct recording *r = &recordings[i];
		char path[512];
		if (strstr(r->name, "20230822/") == NULL) {
			continue;
		}
		if (!recording_path(path, sizeof(path), r)) {
			cr_skip_test("the recordings are not at hand");
		}
		struct play p;
		play(&p, path, NULL);
		cr_assert_eq(bench_counter(&p.b, TW_FH_gaps), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_duplicate_messages), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_session_changes), 0, "%s", r->name);
		cr_assert_eq(bench_counter(&p.b, TW_FH_unsequenced_packets), r->venue_msgs, "%s",
			     r->name);
		bench_close(&p.b);
	}
}

/* Two packets of one session, far apart: one gap, of exactly what lies between. */
Test(itch_data, the_gap_between_two_packets, .timeout = 60)
{
	char path[512];
	if (!data_path(path, sizeof(path),
		       "nasdaq/Nasdaq.Equities.TotalView.Itch.v5.0/Multiple.Packets.pcap")) {
		cr_skip_test("the recordings are not at hand");
	}
	struct play p;
	play(&p, path, NULL);
	cr_assert_eq(bench_counter(&p.b, TW_FH_packets), 2);
	cr_assert_eq(bench_counter(&p.b, TW_FH_venue_messages), 39);
	cr_assert_eq(bench_counter(&p.b, TW_FH_gaps), 1);
	cr_assert_eq(bench_counter(&p.b, TW_FH_missing_messages), 19009117 - 14764497);
	cr_assert_eq(bench_counter(&p.b, TW_FH_unknown_deleted), 1);
	cr_assert_eq(bench_counter(&p.b, TW_FH_orders), 38);
	bench_close(&p.b);
}
