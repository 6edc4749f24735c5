/* IEX-TP version 1: IEX's transport for TOPS and DEEP.
 *
 * One feed is one protocol id and one channel; the first channel heard is ours.  Packets of line A, of
 * line B and of a gap fill carry the same messages cut differently, so messages are told apart by
 * their own numbers, never by packets.
 * Threads   one.
 * Spec      [IEX Trading Alert 2016-059] for a segment without messages: it carries the next offset and
 *           the next number.  The header's layout as in Open Markets Initiative's tables of IEX-TP 1.0,
 *           checked on recorded sessions. */
#include <stdbool.h>

#include "base/bytes.h"
#include "feedhandler/feed.h"
#include "feedhandler/session.h"

enum { HEADER_BYTES = 40, MARK_BYTES = 4, VERSION = 1 };

struct header {                 /* little-endian, in this order; offsets at the right */
	uint32_t channel;       /*  4; version u8, reserved u8 and protocol id u16 come before */
	uint32_t session;       /*  8 */
	uint16_t payload_bytes; /* 12: after this header */
	uint16_t count;         /* 14: messages; 0 is a heartbeat */
	/* stream offset i64 at 16: for gap requests by bytes */
	uint64_t first_seq; /* 24: of the first message, or the next one's */
	uint64_t send_ns;   /* 32 */
};

struct iextp {
	bool begun;
	uint32_t channel, session;
	uint64_t next_seq;
	uint64_t send_ns; /* of the newest packet of this session */
};

/* Whether the packet is this feed's at all. */
static bool is_ours(const struct tw_feed *feed, const struct tw_packet *packet)
{
	struct tw_bytes mark = tw_bytes_of(packet->payload, packet->len_bytes);
	uint8_t version = tw_bytes_u8(&mark);
	tw_bytes_skip(&mark, 1);
	uint16_t protocol = tw_bytes_le16(&mark);
	return !mark.failed && version == VERSION && protocol == feed->protocol->transport_id;
}

/* Whether `count` messages fill `payload_bytes` exactly; nothing of a packet that lies is used. */
static bool blocks_hold(struct tw_bytes payload, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		tw_bytes_skip(&payload, tw_bytes_le16(&payload));
	}
	return !payload.failed && tw_bytes_left(&payload) == 0;
}

/* All but the blocks, which are *payload. */
static bool read_fields(struct header *hdr, struct tw_bytes *payload,
			const struct tw_packet *packet)
{
	struct tw_bytes at = tw_bytes_of(packet->payload, packet->len_bytes);
	tw_bytes_skip(&at, MARK_BYTES);
	hdr->channel = tw_bytes_le32(&at);
	hdr->session = tw_bytes_le32(&at);
	hdr->payload_bytes = tw_bytes_le16(&at);
	hdr->count = tw_bytes_le16(&at);
	tw_bytes_skip(&at, 8);
	hdr->first_seq = tw_bytes_le64(&at);
	hdr->send_ns = tw_bytes_le64(&at);
	const uint8_t *bytes = tw_bytes_take(&at, hdr->payload_bytes);
	if (at.failed || hdr->first_seq > INT64_MAX - UINT16_MAX || hdr->send_ns > INT64_MAX) {
		return false;
	}
	*payload = tw_bytes_of(bytes, hdr->payload_bytes);
	return true;
}

/* False where the packet is not of the session that is under way, nor of a newer one. */
static bool follow_session(struct tw_feed *feed, struct iextp *state, const struct header *hdr)
{
	if (!state->begun) {
		/* a start in mid-session is no gap: nothing was promised before it */
		*state = (struct iextp){ .begun = true,
					 .channel = hdr->channel,
					 .session = hdr->session,
					 .next_seq = hdr->first_seq };
	}
	if (hdr->channel != state->channel) {
		return false;
	}
	if (hdr->session != state->session) {
		if (hdr->send_ns <= state->send_ns) {
			return false; /* a straggler of the session before */
		}
		state->session = hdr->session;
		state->next_seq = 1; /* a session's first message is number 1 */
		tw_feed_session_changed(feed);
	}
	if (hdr->send_ns > state->send_ns) {
		state->send_ns = hdr->send_ns;
	}
	return true;
}

static void iextp_packet(struct tw_feed *feed, void *state_memory, const struct tw_packet *packet)
{
	struct iextp *state = state_memory;
	struct header hdr;
	struct tw_bytes payload;
	if (!is_ours(feed, packet)) {
		tw_feed_count(feed, TW_FH_foreign_packets, 1);
		return;
	}
	struct tw_feed_run run;
	struct tw_feed_blocks blocks = { .numbered = true, .recv_ns = packet->recv_ns };
	bool holds = read_fields(&hdr, &payload, packet);
	if (holds) {
		blocks.count = hdr.count;
		blocks.first_seq = hdr.first_seq;
	}
	if (!holds || !tw_feed_run_take(&run, feed, &payload, &blocks, 0) ||
	    !blocks_hold(payload, blocks.count - run.count)) {
		tw_feed_count(feed, TW_FH_malformed_packets, 1);
		return;
	}
	if (!follow_session(feed, state, &hdr)) {
		tw_feed_count(feed, TW_FH_foreign_packets, 1);
		return;
	}
	if (hdr.count == 0) {
		tw_feed_count(feed, TW_FH_heartbeats, 1);
	}
	if (hdr.first_seq > state->next_seq) {
		tw_feed_gap(feed, hdr.first_seq - state->next_seq);
		state->next_seq = hdr.first_seq;
	}
	uint32_t known = tw_feed_known(hdr.first_seq, hdr.count, state->next_seq);
	state->next_seq += hdr.count - known;
	tw_feed_run_deliver(feed, &run, payload, &blocks, known);
	if (known > 0) {
		tw_feed_count(feed, TW_FH_duplicate_messages, known);
	}
}

static void iextp_part(void *state_memory)
{
	struct iextp *state = state_memory;
	state->send_ns = 0; /* a recording made earlier holds no stragglers */
}

static enum tw_place iextp_place(const struct tw_feed *feed, const void *state_memory,
				 const struct tw_packet *packet, struct tw_span *span)
{
	const struct iextp *state = state_memory;
	struct header hdr;
	struct tw_bytes payload;
	*span = (struct tw_span){ .next_seq = state->next_seq };
	if (!is_ours(feed, packet) || !read_fields(&hdr, &payload, packet)) {
		return TW_PLACE_ASIDE;
	}
	bool ours = state->begun && hdr.session == state->session;
	if (state->begun &&
	    (hdr.channel != state->channel || (!ours && hdr.send_ns <= state->send_ns))) {
		return TW_PLACE_ASIDE;
	}
	span->first_seq = hdr.first_seq;
	span->end_seq = hdr.first_seq + hdr.count;
	span->idle = hdr.count == 0;
	if ((!ours || hdr.first_seq > state->next_seq) && !blocks_hold(payload, hdr.count)) {
		return TW_PLACE_ASIDE;
	}
	return ours ? TW_PLACE_ORDERED : TW_PLACE_NEW;
}

const struct tw_session tw_session_iextp = {
	.name = "iextp",
	.help = "IEX-TP version 1 over UDP multicast",
	.state_bytes = sizeof(struct iextp),
	.part = iextp_part,
	.packet = iextp_packet,
	.place = iextp_place,
};
