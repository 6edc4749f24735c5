/* MoldUDP64 packets: packs messages, numbers them, keeps the session alive with heartbeats and says
 * when it has ended.  With two lines every packet leaves on both; the lines deliver in order, each
 * with delays of its own, and the capture holds what arrives in order of time.
 *
 * Spec   [MoldUDP64 Protocol Specification 1.00]: header of 20 bytes (session, sequence number of the
 *        first message, count), message blocks of a 2-byte length and the message; a heartbeat has
 *        count 0 and the next sequence number, and so have the packets after the end with count
 *        0xffff.  All numbers big-endian. */
#include <stdio.h>
#include <string.h>

#include "gen.h"

#define HEADER_BYTES     20u
#define SESSION_BYTES    10u
#define HEARTBEAT_NS     1000000000u
#define WINDOW_NS        20000u /* events so close together leave in one packet */
#define MAX_DELAY_NS     4096u  /* event to sending, sending to capture: random below it */
#define CAPTURE_DELAY_NS 900u
#define END_OF_SESSION   0xffffu
#define END_PACKETS      3u
#define DAY_S            86400u
static void store16be(uint8_t *at, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(at, &v, sizeof(v));
}

static void store64be(uint8_t *at, uint64_t v)
{
	v = __builtin_bswap64(v);
	memcpy(at, &v, sizeof(v));
}

static void mold_open(struct gen_feed *feed, uint64_t start_ns)
{
	struct tw_gen_summary *sum = feed->summary;

	(void)snprintf(sum->session_name, sizeof(sum->session_name), "%09u%c",
		       (unsigned int)(start_ns / 1000000000u / DAY_S % 1000000000u),
		       (char)('A' + feed->rng.state % 26));
	memcpy(feed->segment, sum->session_name, SESSION_BYTES);
	feed->next_seq = 1;
	feed->sent_ns = start_ns;
	feed->used_bytes = HEADER_BYTES;
	feed->messages = 0;
	sum->first_seq = 1;
}

/* The line whose oldest packet arrives first, or NULL. */
static struct gen_line *next_line(struct gen_feed *feed)
{
	struct gen_line *a = &feed->lines[0];
	struct gen_line *b = &feed->lines[1];

	if (a->head == a->tail || b->head == b->tail) {
		return a->head != a->tail ? a : b->head != b->tail ? b : NULL;
	}
	return a->waiting[a->head % GEN_WAITING].seen_ns <=
			       b->waiting[b->head % GEN_WAITING].seen_ns
		       ? a
		       : b;
}

static int deliver(struct gen_feed *feed, struct gen_line *line)
{
	struct tw_gen_summary *sum = feed->summary;
	struct gen_packet *packet = &line->waiting[line->head++ % GEN_WAITING];

	if (packet->seen_ns < sum->last_ns) { /* the other line had no room and was let go first */
		packet->seen_ns = sum->last_ns;
	}
	if (sum->packets++ == 0) {
		sum->first_ns = packet->seen_ns;
	}
	sum->last_ns = packet->seen_ns;
	return tw_gen_capture_write(feed->capture, line == &feed->lines[0] ? 0 : 1, packet->seen_ns,
				    packet->bytes, packet->len_bytes);
}

/* What arrives by then: nothing that is sent later can be earlier. */
static int deliver_until(struct gen_feed *feed, uint64_t time_ns)
{
	int status = TW_OK;

	for (struct gen_line *line = next_line(feed);
	     status == TW_OK && line != NULL &&
	     line->waiting[line->head % GEN_WAITING].seen_ns <= time_ns;
	     line = next_line(feed)) {
		status = deliver(feed, line);
	}
	return status;
}

static int put_on_line(struct gen_feed *feed, struct gen_line *line, uint64_t seen_ns)
{
	int status = TW_OK;

	while (status == TW_OK && line->tail - line->head == GEN_WAITING) {
		status = deliver(feed, next_line(feed));
	}
	struct gen_packet *packet = &line->waiting[line->tail++ % GEN_WAITING];
	/* packets of a line do not overtake each other */
	line->last_ns = seen_ns < line->last_ns ? line->last_ns : seen_ns;
	packet->seen_ns = line->last_ns;
	packet->len_bytes = (uint16_t)feed->used_bytes;
	memcpy(packet->bytes, feed->segment, feed->used_bytes);
	return status;
}

/* Sends the open packet, which may be empty, not before time_ns. */
static int send_packet(struct gen_feed *feed, uint64_t time_ns, uint16_t count)
{
	struct tw_gen_summary *sum = feed->summary;

	if (time_ns < feed->sent_ns) {
		time_ns = feed->sent_ns;
	}
	store64be(feed->segment + SESSION_BYTES, feed->next_seq);
	store16be(feed->segment + SESSION_BYTES + 8, count);
	sum->payload_bytes += feed->used_bytes - HEADER_BYTES;
	sum->heartbeats += count != 0 ? 0 : feed->two_lines ? 2 : 1;

	uint64_t seen_ns = time_ns + CAPTURE_DELAY_NS;
	int status = put_on_line(feed, &feed->lines[0],
				 seen_ns + gen_rng_below(&feed->rng, MAX_DELAY_NS));
	if (status == TW_OK && feed->two_lines) {
		status = put_on_line(feed, &feed->lines[1],
				     seen_ns + feed->skew_ns +
					     gen_rng_below(&feed->rng_b, MAX_DELAY_NS));
	}
	if (status == TW_OK) {
		status = deliver_until(feed, seen_ns);
	}
	feed->next_seq += feed->messages;
	feed->sent_ns = time_ns;
	feed->used_bytes = HEADER_BYTES;
	feed->messages = 0;
	return status;
}

static int flush(struct gen_feed *feed)
{
	if (feed->messages == 0) {
		return TW_OK;
	}
	return send_packet(feed, feed->last_ns + gen_rng_below(&feed->rng, MAX_DELAY_NS),
			   feed->messages);
}

static int mold_advance(struct gen_feed *feed, uint64_t time_ns)
{
	int status = TW_OK;

	if (time_ns > feed->begun_ns + WINDOW_NS) {
		status = flush(feed);
	}
	while (status == TW_OK && feed->messages == 0 && time_ns >= feed->sent_ns + HEARTBEAT_NS) {
		status = send_packet(feed, feed->sent_ns + HEARTBEAT_NS, 0);
	}
	return status;
}

static uint8_t *mold_append(struct gen_feed *feed, uint64_t time_ns, uint16_t len)
{
	if (mold_advance(feed, time_ns) != TW_OK) {
		return NULL;
	}
	if (GEN_SEGMENT_BYTES - feed->used_bytes < 2u + len && flush(feed) != TW_OK) {
		return NULL;
	}
	if (feed->messages == 0) {
		feed->begun_ns = time_ns;
	}
	uint8_t *at = feed->segment + feed->used_bytes;
	store16be(at, len);
	feed->used_bytes += 2u + len;
	feed->messages++;
	feed->last_ns = time_ns;
	return at + 2;
}

static int mold_finish(struct gen_feed *feed)
{
	int status = flush(feed);

	for (unsigned int i = 0; status == TW_OK && i < END_PACKETS; i++) {
		status = send_packet(feed, feed->sent_ns + HEARTBEAT_NS, END_OF_SESSION);
	}
	return status == TW_OK ? deliver_until(feed, UINT64_MAX) : status;
}

const struct gen_framing gen_moldudp64 = {
	.name = "moldudp64",
	.two_lines = true,
	.open = mold_open,
	.append = mold_append,
	.advance = mold_advance,
	.finish = mold_finish,
};
