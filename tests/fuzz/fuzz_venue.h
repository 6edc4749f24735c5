/* For the fuzzers of a venue's lines and of re-requests: two lines, servers, and a clock, all moved by bytes.
 *
 * A step is an operation and its arguments.  Packets are made well-formed with numbers near each other, so that
 * gaps come about, or taken as they are.
 * What must hold after each: numbers go out in order, each once; the store keeps its bound; gaps are in order, not
 * empty, behind all that has gone out and in front of something that is held; requests keep their distance, ask
 * for what is missing, and for none of it that somebody else was asked for and may still bring. */
#ifndef TW_TESTS_FUZZ_VENUE_H
#define TW_TESTS_FUZZ_VENUE_H

#include "base/bytes.h"
#include "feedhandler/rerequest.h"
#include "tests/fuzz/fuzz_itch.h"

enum { FUZZ_STORE = 8, FUZZ_NUMBERS = 1024, FUZZ_SERVERS = 2, FUZZ_PACKET = 20 + 16 * 14 };

#define FUZZ_ANSWER_NS 1000000u
#define FUZZ_SERVER    0x0a000001u

struct fuzz_venue {
	struct tw_feed *feed;
	struct tw_venue_arb *arb;
	struct tw_rerequest *rr; /* NULL: without */
	uint64_t now_ns, asked_ns;
	uint64_t near_seq; /* what is made is near it */
	char session;
	uint64_t asked_until_ns[FUZZ_NUMBERS];
	struct tw_request newest; /* end_seq 0: none yet */
};

static uint32_t fuzz_out_seq; /* of the newest message that went out */
static uint64_t fuzz_out_session;

static inline void fuzz_take_venue(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes,
				   uint32_t channels)
{
	uint64_t session = fuzz_count(TW_FH_session_changes);
	fuzz_take_itch(ctx, msg, len_bytes, channels);
	if (msg->exchange_seq == 0 || msg->sbe.template_id == TW_MSG_INSTRUMENT_DEFINITION ||
	    msg->sbe.template_id == TW_MSG_BOOK_CLEAR) {
		return; /* without a number, or beside the message that has it */
	}
	if (session == fuzz_out_session && fuzz_count(TW_FH_unsequenced_packets) == 0) {
		require(msg->exchange_seq >= fuzz_out_seq);
	}
	fuzz_out_seq = msg->exchange_seq;
	fuzz_out_session = session;
}

static inline void fuzz_venue_open(struct fuzz_venue *v, bool repair)
{
	struct tw_feed_conf conf = fuzz_conf();
	conf.protocol = "itch50";
	conf.session = "moldudp64";
	conf.mic = "XNAS";
	conf.depths[0] = conf.depths[1] = TW_DEPTH_ORDERS;
	conf.max_orders = FUZZ_ORDERS;
	conf.sink.message = fuzz_take_venue;
	memset(fuzz_orders, 0, sizeof(fuzz_orders));
	fuzz_defined_count = 0;
	fuzz_out_seq = 0;
	fuzz_out_session = 0;
	*v = (struct fuzz_venue){ .now_ns = 1, .session = 'A', .near_seq = 1 };
	v->feed = fuzz_open(&conf);
	const struct tw_venue_arb_conf ac = { .lines = 2,
					      .store_packets = FUZZ_STORE,
					      .wait_ns = 1000,
					      .repair = repair ? TW_REREQUEST_OUTSTANDING : 0 };
	struct tw_rerequest_conf rc = { .servers = FUZZ_SERVERS,
					.answer_ns = FUZZ_ANSWER_NS,
					.attempts = 3 };
	for (uint32_t i = 0; i < FUZZ_SERVERS; i++) {
		rc.server[i].address = FUZZ_SERVER + i;
		rc.server[i].port = 1;
	}
	require(tw_venue_arb_create(&v->arb, &ac, NULL) == TW_OK);
	require(!repair || tw_rerequest_create(&v->rr, &rc, NULL) == TW_OK);
}

static inline uint64_t fuzz_next_seq(const struct fuzz_venue *v)
{
	uint8_t none[20] = { 0 };
	const struct tw_packet packet = { .payload = none, .len_bytes = sizeof(none) };
	struct tw_span span;
	(void)v->feed->session->place(v->feed, v->feed->session_state, &packet, &span);
	return span.next_seq;
}

static inline void fuzz_venue_check(struct fuzz_venue *v)
{
	const struct tw_venue_gaps *gaps = tw_venue_arb_gaps(v->arb);
	uint64_t at = fuzz_next_seq(v);
	require(tw_venue_arb_held(v->arb) <= FUZZ_STORE);
	require(gaps->due <= gaps->timed && gaps->timed <= gaps->count);
	require(gaps->head + gaps->count <= gaps->capacity);
	require((gaps->count == 0) == (tw_venue_arb_held(v->arb) == 0));
	for (uint32_t i = 0; i < gaps->count; i++) {
		const struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		require(gap->first_seq >= at && gap->end_seq > gap->first_seq);
		require(i > 0 || gap->state != TW_GAP_LOST || gap[1].first_seq == gap->end_seq);
		require(gap->state == TW_GAP_OPEN || (v->rr != NULL && i < gaps->due));
		require(gap->state != TW_GAP_OPEN || i >= gaps->due ||
			gap->end_seq > gaps->open_seq);
		at = gap->end_seq;
	}
}

static inline void fuzz_ask(struct fuzz_venue *v)
{
	struct tw_request r;
	const struct tw_venue_gaps *gaps = tw_venue_arb_gaps(v->arb);
	while (v->rr != NULL && tw_rerequest_next(v->rr, v->arb, v->feed, v->now_ns, &r)) {
		require(v->asked_ns == 0 || v->now_ns - v->asked_ns >= TW_REREQUEST_SPACE_NS);
		require(r.server < FUZZ_SERVERS && r.first_seq < r.end_seq && r.len_bytes == 20);
		require(r.end_seq - r.first_seq <= UINT16_MAX);
		require(tw_venue_gaps_asked(gaps, r.first_seq, r.end_seq));
		v->asked_ns = v->now_ns;
		v->newest = r;
		for (uint64_t seq = r.first_seq; seq < r.end_seq && seq < FUZZ_NUMBERS; seq++) {
			if (tw_venue_gaps_missing(gaps, seq, seq + 1)) {
				require(v->asked_until_ns[seq] <= v->now_ns);
				v->asked_until_ns[seq] = v->now_ns + FUZZ_ANSWER_NS;
			}
		}
	}
}

/* A packet of system events, or an end of session. */
static inline uint32_t fuzz_mold(const struct fuzz_venue *v, uint64_t seq, uint16_t count,
				 uint8_t out[FUZZ_PACKET])
{
	uint8_t *p = out;
	memset(out, v->session, 10);
	for (unsigned int i = 0; i < 8; i++) {
		out[10 + i] = (uint8_t)(seq >> (56 - 8 * i));
	}
	out[18] = (uint8_t)(count >> 8);
	out[19] = (uint8_t)count;
	p += 20;
	for (uint16_t i = 0; count <= 16 && i < count; i++, p += 14) {
		static const uint8_t event[14] = { 0,    12,   'S', 0, 0, 0, 0,
						   0x1f, 0x1a, 0,   0, 0, 0, 'Q' };
		memcpy(p, event, sizeof(event));
	}
	return (uint32_t)(p - out);
}

static inline void fuzz_hear(struct fuzz_venue *v, uint32_t line, const void *bytes, size_t len,
			     bool reply, uint32_t server)
{
	uint8_t *block = malloc(len + 1); /* exactly its size, so that ASan sees one too far */
	require(block != NULL);
	memcpy(block + 1, bytes, len);
	const struct tw_packet packet = { .payload = block + 1,
					  .len_bytes = (uint32_t)len,
					  .src_addr = FUZZ_SERVER + server,
					  .src_port = 1,
					  .recv_ns = 1577716200000000000u + v->now_ns,
					  .line = line };
	if (!reply) {
		tw_venue_arb_input(v->arb, v->feed, &packet, v->now_ns);
	} else if (v->rr != NULL) {
		struct tw_span span = { 0 };
		uint64_t changes = fuzz_count(TW_FH_session_changes);
		(void)v->feed->session->place(v->feed, v->feed->session_state, &packet, &span);
		bool taken = tw_rerequest_reply(v->rr, v->arb, v->feed, &packet, v->now_ns);
		require(!taken || (server < FUZZ_SERVERS && span.first_seq < span.end_seq));
		require(changes == fuzz_count(TW_FH_session_changes));
		if (taken) { /* the rest of that request may be asked for again */
			memset(v->asked_until_ns, 0, sizeof(v->asked_until_ns));
		}
	}
	free(block);
}

static inline void fuzz_step(struct fuzz_venue *v, struct tw_bytes *at)
{
	uint8_t packet[FUZZ_PACKET];
	uint8_t op = tw_bytes_u8(at), a = tw_bytes_u8(at), b = tw_bytes_u8(at);
	uint64_t seq = v->near_seq + (a & 31u);
	uint64_t sessions = tw_venue_arb_sessions(v->arb);
	switch (op % 8) {
	case 0: /* a packet near the newest, on either line */
	case 1: {
		uint16_t count = b < 0xf8 ? b & 15u : b < 0xfc ? 0xffff : 0;
		fuzz_hear(v, op >> 3 & 1u, packet, fuzz_mold(v, seq, count, packet), false, 0);
		v->near_seq += (op >> 4 & 1u) != 0 ? a & 31u : 0;
		break;
	}
	case 2:
		v->now_ns += ((uint64_t)a << 8 | b) << (op >> 4);
		break;
	case 3:
		tw_venue_arb_turn(v->arb, v->feed, a & 3u, v->now_ns);
		break;
	case 4: { /* any bytes */
		size_t len = a < tw_bytes_left(at) ? a : tw_bytes_left(at);
		fuzz_hear(v, b & 1u, tw_bytes_take(at, len), len, (b & 2u) != 0, b >> 2 & 3u);
		break;
	}
	case 5: /* an answer, somewhat as it should be */
		seq = v->newest.first_seq + (a & 3u) - (a >> 7);
		fuzz_hear(v, TW_VENUE_LINES, packet, fuzz_mold(v, seq, b & 15u, packet), true,
			  op >> 3 & 3u);
		break;
	case 6: /* the answer */
		seq = v->newest.end_seq - v->newest.first_seq;
		fuzz_hear(v, TW_VENUE_LINES, packet,
			  fuzz_mold(v, v->newest.first_seq, seq < 16 ? (uint16_t)seq : 16, packet),
			  true, a % FUZZ_SERVERS);
		break;
	case 7:
		if ((a & 7u) == 0) {
			v->session++;
			v->near_seq = 1;
		}
		break;
	}
	if (sessions != tw_venue_arb_sessions(v->arb)) {
		memset(v->asked_until_ns, 0, sizeof(v->asked_until_ns));
	}
	fuzz_ask(v);
	fuzz_venue_check(v);
}

static inline void fuzz_venue_run(const uint8_t *data, size_t size, bool repair)
{
	struct fuzz_venue v;
	struct tw_bytes at = tw_bytes_of(data, size);
	fuzz_venue_open(&v, repair);
	while (tw_bytes_left(&at) >= 3) {
		fuzz_step(&v, &at);
	}
	tw_venue_arb_flush(v.arb, v.feed);
	fuzz_venue_check(&v);
	require(tw_venue_arb_held(v.arb) == 0);
	tw_rerequest_destroy(v.rr);
	tw_venue_arb_destroy(v.arb);
	fuzz_close_itch(v.feed);
}

#endif
