/* IEX-TP segments: packs messages, numbers them, and keeps the line alive with heartbeats.
 *
 * Spec   [IEX Transport Specification 1.26, Outbound Segment Format]: header of 40 bytes, message
 *        blocks of a 2-byte length and the message; after a second without messages a segment with no
 *        payload that carries the next offset and the next sequence number. */
#include <string.h>

#include "gen.h"

#define HEADER_BYTES     40u
#define VERSION          1u
#define PROTOCOL_TOPS16  0x8003u
#define CHANNEL          1u
#define HEARTBEAT_NS     1000000000u
#define WINDOW_NS        20000u /* events so close together leave in one packet */
#define MAX_DELAY_NS     4096u  /* event to sending, sending to capture: random below it */
#define CAPTURE_DELAY_NS 900u

struct iextp_header {
	uint8_t version, reserved;
	uint16_t protocol;
	uint32_t channel, session;
	uint16_t payload_bytes, messages;
	uint64_t stream_offset, first_seq, send_ns;
};
_Static_assert(sizeof(struct iextp_header) == HEADER_BYTES, "IEX-TP header");
_Static_assert(offsetof(struct iextp_header, stream_offset) == 16, "stream offset");

static void iextp_open(struct gen_feed *feed, uint64_t start_ns)
{
	feed->session = (uint32_t)(start_ns / 1000000000u);
	feed->next_seq = 1;
	feed->stream_offset = 0;
	feed->sent_ns = start_ns;
	feed->used_bytes = HEADER_BYTES;
	feed->messages = 0;
	feed->summary->session = feed->session;
	feed->summary->first_seq = 1;
}

/* Sends the open packet, which may be empty, not before time_ns. */
static int send_segment(struct gen_feed *feed, uint64_t time_ns)
{
	struct tw_gen_summary *sum = feed->summary;
	uint32_t payload = feed->used_bytes - HEADER_BYTES;

	if (time_ns < feed->sent_ns) {
		time_ns = feed->sent_ns;
	}
	const struct iextp_header header = {
		.version = VERSION,
		.protocol = PROTOCOL_TOPS16,
		.channel = CHANNEL,
		.session = feed->session,
		.payload_bytes = (uint16_t)payload,
		.messages = feed->messages,
		.stream_offset = feed->stream_offset,
		.first_seq = feed->next_seq,
		.send_ns = time_ns,
	};
	memcpy(feed->segment, &header, sizeof(header));

	uint64_t seen_ns = time_ns + CAPTURE_DELAY_NS + gen_rng_below(&feed->rng, MAX_DELAY_NS);
	if (seen_ns < sum->last_ns) { /* packets do not overtake each other */
		seen_ns = sum->last_ns;
	}
	int status = tw_gen_capture_write(feed->capture, 0, seen_ns, feed->segment,
					  (uint16_t)feed->used_bytes);
	if (sum->packets++ == 0) {
		sum->first_ns = seen_ns;
	}
	sum->last_ns = seen_ns;
	sum->payload_bytes += payload;
	sum->heartbeats += feed->messages == 0 ? 1 : 0;
	feed->next_seq += feed->messages;
	feed->stream_offset += payload;
	feed->sent_ns = time_ns;
	feed->used_bytes = HEADER_BYTES;
	feed->messages = 0;
	return status;
}

static int iextp_flush(struct gen_feed *feed)
{
	if (feed->messages == 0) {
		return TW_OK;
	}
	return send_segment(feed, feed->last_ns + gen_rng_below(&feed->rng, MAX_DELAY_NS));
}

static int iextp_advance(struct gen_feed *feed, uint64_t time_ns)
{
	int status = TW_OK;

	if (time_ns > feed->begun_ns + WINDOW_NS) {
		status = iextp_flush(feed);
	}
	while (status == TW_OK && feed->messages == 0 && time_ns >= feed->sent_ns + HEARTBEAT_NS) {
		status = send_segment(feed, feed->sent_ns + HEARTBEAT_NS);
	}
	return status;
}

static uint8_t *iextp_append(struct gen_feed *feed, uint64_t time_ns, uint16_t len)
{
	if (iextp_advance(feed, time_ns) != TW_OK) {
		return NULL;
	}
	if (GEN_SEGMENT_BYTES - feed->used_bytes < 2u + len && iextp_flush(feed) != TW_OK) {
		return NULL;
	}
	if (feed->messages == 0) {
		feed->begun_ns = time_ns;
	}
	uint8_t *at = feed->segment + feed->used_bytes;
	memcpy(at, &len, sizeof(len));
	feed->used_bytes += 2u + len;
	feed->messages++;
	feed->last_ns = time_ns;
	return at + 2;
}

const struct gen_framing gen_iextp = {
	.name = "iextp",
	.open = iextp_open,
	.append = iextp_append,
	.advance = iextp_advance,
	.finish = iextp_flush,
};
