/* MoldUDP64: Nasdaq's transport for ITCH over UDP multicast.
 *
 * Packets of line A, of line B and of a gap fill carry the same messages cut differently, so messages
 * are told apart by their own numbers, never by packets.
 * Session    ten bytes that say nothing of order.  Another session is taken where it shows its beginning
 *            (number 1), where ours has ended, or where ours has been silent for SILENCE_NS: three of
 *            the heartbeats that a sender owes.  Until then, and for the session that was left, its
 *            packets are foreign: two sessions in one recording do not alternate.
 * Sequence 0 numbers begin at 1.  Captures that someone re-wrapped have 0 in every packet; their messages
 *            are delivered, with no number, and no gap or duplicate can be told.
 * Blocks     must fill the packet exactly.  Of a packet that lies nothing is used, so that what it held
 *            shows as a gap (a request for retransmission, which looks alike, has no blocks).
 * Threads    one.
 * Spec       [MoldUDP64 1.00 Downstream Packet, Heartbeats, End of Session] */
#include <stdbool.h>

#include "base/bytes.h"
#include "feedhandler/feed.h"
#include "feedhandler/session.h"

enum { SESSION_BYTES = 10, COUNT_END_OF_SESSION = 0xffff };

#define SILENCE_NS UINT64_C(3000000000)

struct header { /* big-endian, in this order, 20 bytes */
	uint8_t session[SESSION_BYTES];
	uint64_t first_seq; /* of the first message, or the next one's */
	uint16_t count;     /* messages; 0 is a heartbeat, 0xffff the end of the session */
};

struct moldudp64 {
	bool begun;
	bool ended;    /* ours is over: any other may follow */
	bool has_left; /* `left` is a session that was ours before */
	uint8_t session[SESSION_BYTES];
	uint8_t left[SESSION_BYTES];
	uint64_t next_seq;
	uint64_t heard_ns; /* receive time of our newest packet, 0 where unknown */
};

static bool carries_messages(const struct header *hdr)
{
	return hdr->count != 0 && hdr->count != COUNT_END_OF_SESSION;
}

/* Whether the blocks fill the packet exactly. */
static bool blocks_hold(struct tw_bytes payload, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tw_bytes_skip(&payload, tw_bytes_be16(&payload));
	}
	return !payload.failed && tw_bytes_left(&payload) == 0;
}

/* All but the blocks, which begin at *payload. */
static bool read_fields(struct header *hdr, struct tw_bytes *payload,
			const struct tw_packet *packet)
{
	*payload = tw_bytes_of(packet->payload, packet->len_bytes);
	const uint8_t *session = tw_bytes_take(payload, SESSION_BYTES);
	hdr->first_seq = tw_bytes_be64(payload);
	hdr->count = tw_bytes_be16(payload);
	if (payload->failed || hdr->first_seq > INT64_MAX - UINT16_MAX) {
		return false;
	}
	memcpy(hdr->session, session, SESSION_BYTES);
	return true;
}

/* Whether a packet of another session makes that one ours. */
static bool may_follow(const struct moldudp64 *state, const struct header *hdr, uint64_t recv_ns)
{
	if (state->has_left && memcmp(hdr->session, state->left, SESSION_BYTES) == 0) {
		return false; /* a straggler */
	}
	bool silent = recv_ns == 0 || state->heard_ns == 0 ||
		      (recv_ns > state->heard_ns && recv_ns - state->heard_ns >= SILENCE_NS);
	return state->ended || hdr->first_seq == 1 || silent;
}

/* False where the packet is of a session that is not, and does not become, ours. */
static bool follow_session(struct tw_feed *feed, struct moldudp64 *state, const struct header *hdr,
			   uint64_t recv_ns)
{
	if (!state->begun) {
		/* a start in mid-session is no gap: nothing was promised before it */
		state->begun = true;
		state->next_seq = hdr->first_seq;
		memcpy(state->session, hdr->session, SESSION_BYTES);
	} else if (memcmp(hdr->session, state->session, SESSION_BYTES) != 0) {
		if (!may_follow(state, hdr, recv_ns)) {
			return false;
		}
		memcpy(state->left, state->session, SESSION_BYTES);
		memcpy(state->session, hdr->session, SESSION_BYTES);
		state->has_left = true;
		state->ended = false;
		state->next_seq = 1; /* a session's first message is number 1 */
		tw_feed_session_changed(feed);
	}
	state->heard_ns = recv_ns;
	return true;
}

/* A packet that carries no message says which number comes next. */
static void note_next(struct tw_feed *feed, struct moldudp64 *state, const struct header *hdr)
{
	if (hdr->count == COUNT_END_OF_SESSION) {
		if (!state->ended) {
			tw_feed_count(feed, TW_FH_ended_sessions, 1);
		}
		state->ended = true;
	} else if (hdr->count == 0) {
		tw_feed_count(feed, TW_FH_heartbeats, 1);
	}
	if (hdr->first_seq > state->next_seq) {
		tw_feed_gap(feed, hdr->first_seq - state->next_seq);
		state->next_seq = hdr->first_seq;
	}
}

static void moldudp64_packet(struct tw_feed *feed, void *state_memory,
			     const struct tw_packet *packet)
{
	struct moldudp64 *state = state_memory;
	struct header hdr;
	struct tw_bytes payload;
	struct tw_feed_run run;
	struct tw_feed_blocks blocks = { .big_endian = true,
					 .shown = packet->shown,
					 .recv_ns = packet->recv_ns };
	bool holds = read_fields(&hdr, &payload, packet);
	if (holds && carries_messages(&hdr)) {
		blocks.count = hdr.count;
		blocks.first_seq = hdr.first_seq;
		blocks.numbered = hdr.first_seq != 0;
	}
	if (!holds || !tw_feed_run_take(&run, feed, &payload, &blocks, 0) ||
	    !blocks_hold(payload, blocks.count - run.count)) {
		tw_feed_count(feed, TW_FH_malformed_packets, 1);
		return;
	}
	if (hdr.first_seq == 0 && blocks.count > 0) {
		tw_feed_count(feed, TW_FH_unsequenced_packets, 1);
		tw_feed_run_deliver(feed, &run, payload, &blocks, 0);
		return;
	}
	if (hdr.first_seq ==
	    0) { /* nothing comes next: it says no more than that someone is there */
		tw_feed_count(feed, TW_FH_heartbeats, 1);
		return;
	}
	if (!follow_session(feed, state, &hdr, packet->recv_ns)) {
		tw_feed_count(feed, TW_FH_foreign_packets, 1);
		return;
	}
	note_next(feed, state, &hdr);
	uint32_t known = tw_feed_known(hdr.first_seq, blocks.count, state->next_seq);
	state->next_seq += blocks.count - known;
	tw_feed_run_deliver(feed, &run, payload, &blocks, known);
	if (known > 0) {
		tw_feed_count(feed, TW_FH_duplicate_messages, known);
	}
}

static enum tw_place moldudp64_place(const struct tw_feed *feed, const void *state_memory,
				     const struct tw_packet *packet, struct tw_span *span)
{
	const struct moldudp64 *state = state_memory;
	struct header hdr;
	struct tw_bytes payload;
	(void)feed;
	*span = (struct tw_span){ .next_seq = state->next_seq };
	if (!read_fields(&hdr, &payload, packet) || hdr.first_seq == 0) {
		return TW_PLACE_ASIDE;
	}
	bool ours = state->begun && memcmp(hdr.session, state->session, SESSION_BYTES) == 0;
	if (!ours && state->begun && !may_follow(state, &hdr, packet->recv_ns)) {
		return TW_PLACE_ASIDE;
	}
	uint16_t count = carries_messages(&hdr) ? hdr.count : 0;
	span->first_seq = hdr.first_seq;
	span->end_seq = hdr.first_seq + count;
	span->idle = hdr.count == 0;
	if ((!ours || hdr.first_seq > state->next_seq) && !blocks_hold(payload, count)) {
		return TW_PLACE_ASIDE;
	}
	return ours ? TW_PLACE_ORDERED : TW_PLACE_NEW;
}

static void moldudp64_ahead(const struct tw_feed *feed, const struct tw_packet *packet)
{
	struct header hdr;
	struct tw_bytes payload;
	struct tw_feed_run run;
	if (read_fields(&hdr, &payload, packet) && carries_messages(&hdr)) {
		const struct tw_feed_blocks blocks = { .count = hdr.count, .big_endian = true };
		(void)tw_feed_run_take(&run, feed, &payload, &blocks, 0);
	}
}

static uint32_t moldudp64_request(const void *state_memory, uint64_t first_seq, uint16_t count,
				  uint8_t out[TW_REQUEST_MAX_BYTES])
{
	const struct moldudp64 *state = state_memory;
	memcpy(out, state->session, SESSION_BYTES);
	for (unsigned int i = 0; i < sizeof(first_seq); i++) {
		out[SESSION_BYTES + i] = (uint8_t)(first_seq >> (56 - 8 * i));
	}
	out[SESSION_BYTES + 8] = (uint8_t)(count >> 8);
	out[SESSION_BYTES + 9] = (uint8_t)count;
	return SESSION_BYTES + 10;
}

static void moldudp64_part(void *state_memory)
{
	struct moldudp64 *state = state_memory;
	state->heard_ns = 0; /* another recording: any session may follow, even one heard before */
	state->has_left = false;
}

const struct tw_session tw_session_moldudp64 = {
	.name = "moldudp64",
	.help = "MoldUDP64 1.00 over UDP multicast",
	.state_bytes = sizeof(struct moldudp64),
	.part = moldudp64_part,
	.packet = moldudp64_packet,
	.place = moldudp64_place,
	.ahead = moldudp64_ahead,
	.request = moldudp64_request,
};
