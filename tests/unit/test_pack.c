/* The packer on virtual time: what goes into datagrams, heartbeats, holes, ends and stalls.
 * Whatever comes out has to pass the subscriber's own parser. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/history.h"
#include "protocol/pack.h"
#include "tests/support/bus_msgs.h"
#include "wire/datagram.h"

#define SALT        5u
#define SESSION     77u
#define PUBLISHER   0x20003u
#define WALL        1700000000000000000ull
#define MIN_NS      200000ull
#define MAX_NS      100000000ull
#define MAX_DGRAMS  64u
#define LOG_BYTES   (1u << 20)
#define ENVIRONMENT 0xbeefu

struct source {
	uint64_t next_seq, end_seq; /* what it has: [next, end) */
	uint64_t lapped_to;         /* the next call says that all before is gone */
	int error;                  /* once what it has is out */
	uint64_t bad_from, bad_to;  /* these do not hold */
	unsigned int bad_kind;
	bool ts_bad; /* on every message */
	unsigned int calls;
};

struct bed {
	struct tw_pack pack;
	struct tw_history history;
	struct source source;
	struct tw_pack_dgram out[MAX_DGRAMS];
	uint8_t *memory;
	uint64_t now_ns;
	uint64_t next_packet_seq, next_msg_seq; /* as a subscriber has seen them */
	uint32_t mtu_bytes;
};

/* Spoils message `seq` in one of the ways that only tw_msg_holds() sees. */
static void spoil(const struct source *source, uint8_t *msg)
{
	struct tw_msg_sbe sbe;
	memcpy(&sbe, msg, sizeof(sbe));
	if (source->bad_kind == 0) {
		sbe.schema_id++;
	} else if (source->bad_kind == 1) {
		sbe.template_id =
			TW_MSG_INSTRUMENT_DEFINITION; /* longer than any test message... */
		sbe.block_length = sizeof(struct tw_msg_head) - 8;
	} else {
		sbe.block_length = 0xfff8;
	}
	memcpy(msg, &sbe, sizeof(sbe));
}

static uint32_t make(const struct source *source, uint64_t seq, uint64_t *msg)
{
	uint32_t len = test_msg_make(msg, seq, SALT);
	if (seq >= source->bad_from && seq < source->bad_to) {
		spoil(source, (uint8_t *)msg);
		return source->bad_kind == 1 ? sizeof(struct tw_msg_head) : len;
	}
	return len;
}

static int read_source(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	source->calls++;
	cr_assert_eq((uintptr_t)dst % 8, 0);
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq };
	if (source->lapped_to != 0) {
		batch->end_seq = source->lapped_to;
		source->next_seq = source->lapped_to;
		source->lapped_to = 0;
		return TW_ELAPPED;
	}
	if (source->next_seq == source->end_seq) {
		return source->error;
	}
	memset(dst, 0xdd, max_bytes); /* as the bus, it may leave anything behind the messages */
	while (source->next_seq < source->end_seq) {
		uint64_t msg[TW_MSG_MAX_BYTES / 8];
		uint32_t len = make(source, source->next_seq, msg);
		if (batch->bytes + len > max_bytes) {
			break;
		}
		if (source->ts_bad) {
			((struct tw_msg_head *)msg)->flags |= TW_MSG_TS_BAD;
		}
		memcpy((uint8_t *)dst + batch->bytes, msg, len);
		batch->bytes += len;
		batch->count++;
		source->next_seq++;
	}
	return (int)batch->count;
}

static void bed_up_sized(struct bed *bed, uint32_t mtu_bytes, size_t log_bytes)
{
	memset(bed, 0, sizeof(*bed));
	bed->memory = aligned_alloc(64, log_bytes);
	cr_assert_not_null(bed->memory);
	memset(bed->memory, 0xee, log_bytes);
	cr_assert_eq(tw_history_init(&bed->history, bed->memory, log_bytes, mtu_bytes, SESSION,
				     PUBLISHER),
		     TW_OK);
	struct tw_pack_conf conf = { .channel = 3,
				     .environment = ENVIRONMENT,
				     .session = SESSION,
				     .publisher = PUBLISHER,
				     .mtu_bytes = mtu_bytes,
				     .first_msg_seq = 1,
				     .heartbeat_min_ns = MIN_NS,
				     .heartbeat_max_ns = MAX_NS };
	bed->now_ns = 5000;
	tw_pack_init(&bed->pack, &conf, &bed->history, bed->now_ns);
	bed->source.next_seq = bed->source.end_seq = 1;
	bed->next_packet_seq = bed->next_msg_seq = 1;
	bed->mtu_bytes = mtu_bytes;
}

static void bed_up(struct bed *bed)
{
	bed_up_sized(bed, 1024, LOG_BYTES);
}

static void bed_down(struct bed *bed)
{
	free(bed->memory);
}

static int poll_pack(struct bed *bed, unsigned int max)
{
	return tw_pack_poll(&bed->pack, read_source, &bed->source, bed->now_ns, WALL, bed->out,
			    max);
}

static void check_messages(const struct bed *bed, const struct tw_dgram *d,
			   const struct tw_pack_dgram *out)
{
	const uint8_t *at = d->msgs;
	for (uint64_t seq = d->hdr->first_msg_seq; seq < d->end_seq; seq++) {
		cr_assert_not(seq >= bed->source.bad_from && seq < bed->source.bad_to);
		cr_assert(test_msg_is(at, seq, SALT), "message %llu", (unsigned long long)seq);
		at += test_msg_bytes(seq);
	}
	struct tw_msg_head first;
	memcpy(&first, d->msgs, sizeof(first));
	cr_assert_eq(d->hdr->source_seq, first.exchange_seq);
	cr_assert_eq(out->first_recv_ns, first.exchange_ns + (uint64_t)first.recv_delta_ns);
	cr_assert_eq(out->msg_count, d->hdr->msg_count);
}

/* Everything that holds for any datagram, heartbeat or not. */
static struct tw_dgram check(struct bed *bed, const struct tw_pack_dgram *out)
{
	struct tw_dgram d;
	cr_assert_eq(out->len_bytes % TW_WIRE_UNIT_BYTES, 0);
	cr_assert_leq(out->len_bytes, bed->mtu_bytes);
	cr_assert_eq(tw_dgram_parse(&d, out->data, out->len_bytes), TW_DGRAM_OK);
	cr_assert_eq(d.hdr->channel, 3);
	cr_assert_eq(d.hdr->environment, ENVIRONMENT);
	cr_assert_eq(d.hdr->session, SESSION);
	cr_assert_eq(d.hdr->publisher, PUBLISHER);
	cr_assert_eq(d.hdr->send_ns, WALL);
	cr_assert_eq(d.hdr->packet_seq, bed->next_packet_seq);
	cr_assert_eq(d.hdr->first_msg_seq, bed->next_msg_seq);
	if ((d.hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		cr_assert_eq(out->msg_count, 0);
		cr_assert_eq(d.hdr->log_pos, tw_history_claim_pos(&bed->history));
		cr_assert_eq(out->end_pos, d.hdr->log_pos);
		return d;
	}
	cr_assert_eq(out->data, bed->history.log + d.hdr->log_pos % bed->history.units * 64);
	cr_assert_geq(out->end_pos, d.hdr->log_pos + out->len_bytes / 64);
	uint32_t used = 64u + d.hdr->payload_bytes;
	cr_assert_lt(out->len_bytes - used, 64, "no unit more than needed");
	for (uint32_t i = used; i < out->len_bytes; i++) {
		cr_assert_eq(out->data[i], 0, "padding");
	}
	if ((d.hdr->flags & TW_WIRE_HOLE) != 0) {
		cr_assert_eq(out->msg_count, 0);
		cr_assert_eq(out->first_recv_ns, 0);
	} else {
		check_messages(bed, &d, out);
	}
	bed->next_packet_seq++;
	bed->next_msg_seq = d.end_seq;
	return d;
}

static void check_all(struct bed *bed, int n)
{
	for (int i = 0; i < n; i++) {
		check(bed, &bed->out[i]);
	}
}

Test(pack, a_lone_message_goes_at_once, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.source.end_seq = 2;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	struct tw_dgram d = check(&bed, &bed.out[0]);
	cr_assert_eq(d.hdr->flags, 0);
	cr_assert_eq(d.hdr->msg_count, 1);
	cr_assert_eq(d.hdr->log_pos, 0);
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0);
	bed_down(&bed);
}

Test(pack, datagrams_are_full_while_there_is_more, .timeout = 60)
{
	for (uint32_t mtu = 320; mtu <= 4096; mtu += 64) {
		struct bed bed;
		bed_up_sized(&bed, mtu, LOG_BYTES);
		bed.source.end_seq = 400;
		int n = poll_pack(&bed, 16);
		cr_assert_gt(n, 0);
		for (int i = 0; i < n; i++) {
			struct tw_dgram d = check(&bed, &bed.out[i]);
			cr_assert(d.end_seq == 400 ||
				  64 + d.msgs_bytes + test_msg_bytes(d.end_seq) > mtu);
		}
		bed_down(&bed);
	}
}

Test(pack, every_small_amount_of_messages_is_framed, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	for (uint64_t n = 1; n <= 60; n++) {
		bed.source.end_seq += n;
		uint64_t want = bed.source.end_seq;
		while (bed.next_msg_seq < want) {
			int got = poll_pack(&bed, 1);
			cr_assert_eq(got, 1);
			check_all(&bed, got);
		}
		tw_history_publish(&bed.history);
		tw_history_complete(&bed.history, bed.out[0].end_pos);
	}
	bed_down(&bed);
}

Test(pack, heartbeats_climb_the_ladder, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.source.end_seq = 3;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	check_all(&bed, 1);
	for (int round = 0; round < 2; round++) {
		uint64_t gap = MIN_NS;
		for (int i = 0; i < 14; i++) {
			bed.now_ns += gap - 1;
			cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0, "early, rung %d", i);
			bed.now_ns += 1;
			cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1, "due, rung %d", i);
			struct tw_dgram d = check(&bed, &bed.out[0]);
			cr_assert_eq(d.hdr->flags, TW_WIRE_HEARTBEAT);
			cr_assert_eq(bed.out[0].len_bytes, 64);
			gap = 2 * gap > MAX_NS ? MAX_NS : 2 * gap;
		}
		cr_assert_eq(gap, MAX_NS);
		bed.source.end_seq++; /* and a message starts it over */
		cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
		check_all(&bed, 1);
	}
	bed_down(&bed);
}

Test(pack, a_late_heartbeat_does_not_come_twice, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.now_ns += 10 * MAX_NS;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	check_all(&bed, 1);
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0);
	bed.now_ns += 2 * MIN_NS;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	bed_down(&bed);
}

Test(pack, messages_come_before_a_heartbeat_that_is_due, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.now_ns += MAX_NS;
	bed.source.end_seq = 2;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(check(&bed, &bed.out[0]).hdr->flags, 0);
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0);
	bed_down(&bed);
}

Test(pack, a_lapped_source_becomes_a_hole, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.source.end_seq = 4;
	check_all(&bed, poll_pack(&bed, MAX_DGRAMS));
	bed.source.lapped_to = 1000;
	bed.source.end_seq = 1001;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 2);
	struct tw_dgram d = check(&bed, &bed.out[0]);
	cr_assert_eq(d.hdr->flags, TW_WIRE_HOLE);
	cr_assert_eq(d.hdr->first_msg_seq, 4);
	cr_assert_eq(d.end_seq, 1000);
	d = check(&bed, &bed.out[1]);
	cr_assert_eq(d.hdr->first_msg_seq, 1000);
	cr_assert_eq(bed.pack.holes, 1);
	cr_assert_eq(bed.pack.hole_msgs, 996);
	bed_down(&bed);
}

Test(pack, an_end_is_said_at_once_and_again, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.source.end_seq = 10;
	check_all(&bed, poll_pack(&bed, MAX_DGRAMS));
	bed.now_ns += 1;
	tw_pack_end(&bed.pack, bed.now_ns);
	uint64_t gap = 0;
	unsigned int calls = bed.source.calls;
	for (int i = 0; i < 14; i++) {
		if (gap > 0) {
			bed.now_ns += gap - 1;
			cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0);
			bed.now_ns += 1;
		}
		cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
		struct tw_dgram d = check(&bed, &bed.out[0]);
		cr_assert_eq(d.hdr->flags, TW_WIRE_HEARTBEAT | TW_WIRE_END);
		cr_assert_eq(d.end_seq, 10);
		tw_pack_end(&bed.pack, bed.now_ns); /* saying it twice changes nothing */
		gap = gap == 0 ? MIN_NS : 2 * gap > MAX_NS ? MAX_NS : 2 * gap;
	}
	cr_assert_eq(bed.source.calls, calls, "nobody asks an ended source");
	bed_down(&bed);
}

Test(pack, nothing_is_packed_over_sends_in_flight, .timeout = 60)
{
	struct bed bed;
	bed_up_sized(&bed, 1024, 65ul * 64); /* four datagrams */
	bed.source.end_seq = 1000;
	int n = poll_pack(&bed, MAX_DGRAMS);
	cr_assert_eq(n, 4);
	cr_assert_eq(bed.pack.stalls, 0, "it got somewhere");
	check_all(&bed, n);
	uint64_t end_pos[4];
	for (int i = 0; i < 4; i++) {
		end_pos[i] = bed.out[i].end_pos;
	}
	unsigned int calls = bed.source.calls;
	bed.now_ns += 10 * MAX_NS;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0, "neither datagram nor heartbeat");
	cr_assert_eq(bed.pack.stalls, 1);
	cr_assert_eq(bed.source.calls, calls, "nothing was taken that has no place");
	tw_history_complete(&bed.history, end_pos[0]);
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	check_all(&bed, 1);
	tw_history_complete(&bed.history, end_pos[3]);
	n = poll_pack(&bed, MAX_DGRAMS);
	cr_assert_eq(n, 3);
	check_all(&bed, n);
	bed_down(&bed);
}

Test(pack, the_log_wraps_without_a_straddle, .timeout = 60)
{
	for (uint32_t units = 64; units < 96; units++) {
		struct bed bed;
		bed_up_sized(&bed, 1024, (units + 1ul) * 64);
		bed.source.end_seq = 2000;
		while (bed.next_msg_seq < 2000) {
			int n = poll_pack(&bed, MAX_DGRAMS);
			cr_assert_gt(n, 0);
			check_all(&bed, n);
			for (int i = 0; i < n; i++) {
				const uint8_t *end = bed.out[i].data + bed.out[i].len_bytes;
				cr_assert_leq(end, bed.history.log + (size_t)units * 64);
			}
			tw_history_publish(&bed.history);
			tw_history_complete(&bed.history, bed.out[n - 1].end_pos);
		}
		bed_down(&bed);
	}
}

Test(pack, malformed_messages_never_travel, .timeout = 60)
{
	for (unsigned int kind = 0; kind < 3; kind++) {
		for (uint64_t from = 1; from < 30; from++) {
			for (uint64_t n = 1; n < 12; n += 5) {
				struct bed bed;
				bed_up_sized(&bed, 2048, LOG_BYTES);
				bed.source.end_seq = 41;
				bed.source.bad_kind = kind;
				bed.source.bad_from = from;
				bed.source.bad_to = from + n;
				uint64_t hole_msgs = 0;
				while (bed.next_msg_seq < 41) {
					cr_assert_eq(poll_pack(&bed, 1), 1);
					struct tw_dgram d = check(&bed, &bed.out[0]);
					if ((d.hdr->flags & TW_WIRE_HOLE) != 0) {
						hole_msgs += d.end_seq - d.hdr->first_msg_seq;
					}
				}
				cr_assert_eq(bed.pack.malformed_msgs, hole_msgs);
				cr_assert_eq(bed.pack.holes, 0);
				cr_assert_geq(hole_msgs, n);
				/* only a length that leads nowhere takes good ones with it */
				cr_assert(kind == 2 || hole_msgs == n, "%llu of %llu",
					  (unsigned long long)hole_msgs, (unsigned long long)n);
				cr_assert_not(tw_pack_carries(&bed.pack));
				bed_down(&bed);
			}
		}
	}
}

Test(pack, a_datagram_with_room_left_is_the_last, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	cr_assert_not(tw_pack_is_due(&bed.pack, bed.now_ns));
	bed.source.end_seq = 3;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(bed.source.calls, 1, "it was all there was");
	check_all(&bed, 1);
	bed.now_ns += MAX_NS;
	cr_assert(tw_pack_is_due(&bed.pack, bed.now_ns), "a heartbeat");
	bed_down(&bed);
}

Test(pack, an_error_comes_after_the_datagrams_before_it, .timeout = 60)
{
	struct bed bed;
	/* as many messages as fill a datagram: one that has room left is the last of its poll */
	for (uint64_t end_seq = 3;; end_seq++) {
		bed_up(&bed);
		bed.source.end_seq = end_seq;
		bed.source.error = TW_EFORMAT;
		cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
		if (bed.source.calls == 2) {
			break;
		}
		bed_down(&bed);
	}
	check_all(&bed, 1);
	bed.source.error = 0;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), TW_EFORMAT, "kept");
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 0, "once");
	bed.source.error = TW_EFULL;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), TW_EFULL);
	bed_down(&bed);
}

Test(pack, replay_is_flagged_everywhere, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.pack.conf.replay = true;
	bed.source.end_seq = 3;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(check(&bed, &bed.out[0]).hdr->flags, TW_WIRE_REPLAY);
	bed.source.lapped_to = 9;
	bed.source.end_seq = 9;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(check(&bed, &bed.out[0]).hdr->flags, TW_WIRE_REPLAY | TW_WIRE_HOLE);
	bed.now_ns += MAX_NS;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(check(&bed, &bed.out[0]).hdr->flags, TW_WIRE_REPLAY | TW_WIRE_HEARTBEAT);
	bed_down(&bed);
}

Test(pack, a_stamp_that_is_bad_is_not_given_on, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	bed.source.end_seq = 3;
	bed.source.ts_bad = true;
	cr_assert_eq(poll_pack(&bed, MAX_DGRAMS), 1);
	cr_assert_eq(bed.out[0].first_recv_ns, 0);
	bed_down(&bed);
}
