/* The pipeline of one venue feed: datagrams -> session layer -> decoder -> normalized messages.
 *
 * No I/O and no clock: datagrams go in with their receive time, messages come out through the sink.
 * The process, tests, fuzzers and replay inside a consumer drive the same code.
 * Threads    one.
 * Memory     all of it is made by tw_feed_create(); nothing is allocated per packet.
 * Receive time  of a file it is the capture's own timestamp, whatever the replay's speed: that is when
 *            the message was received, and recv_delta_ns stays the figure that it was on that day.
 *            A replay may say that it happens now: shift_ns then moves the exchange's times, and the
 *            receive time is the wall clock's. */
#ifndef TW_FEEDHANDLER_FEED_H
#define TW_FEEDHANDLER_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/counters.h"
#include "feedhandler/input.h"
#include "feedhandler/instruments.h"
#include "feedhandler/protocol.h"
#include "feedhandler/session.h"
#include "tidewire/msg.h"

#define TW_FEED_MAX_CHANNELS        16u
#define TW_FEED_DEFAULT_INSTRUMENTS 65536u

struct tw_feed_sink {
	/* One message for every channel whose bit is set; the bytes are the caller's again on return. */
	void (*message)(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes,
			uint32_t channels);
	void *ctx;
};

struct tw_feed_conf { /* the symbols are borrowed until destroy, all else only during create */
	const char *protocol;  /* of the registry */
	const char *session;   /* NULL or empty: the protocol's usual one */
	const char *directory; /* symbol-sorted file, NULL or empty: none */
	uint16_t venue_id;
	const char *mic; /* four characters, NULL where unknown */
	uint32_t channel_count;
	uint8_t depths[TW_FEED_MAX_CHANNELS]; /* enum tw_depth of each, see config.h */
	char *const
		*symbols[TW_FEED_MAX_CHANNELS]; /* per channel, NULL-terminated; NULL or "*": all */
	uint32_t max_instruments;               /* 0: TW_FEED_DEFAULT_INSTRUMENTS */
	uint32_t
		max_orders; /* live at once, of a protocol that follows orders; 0: its own default */
	uint32_t
		trading_date; /* YYYYMMDD of times that count from midnight; 0: of the receive time */
	struct tw_feed_sink sink;
	struct tw_counters counters; /* of TW_SET_fh; its histograms may be NULL */
};

struct tw_feed_filter {
	const char **symbols; /* sorted */
	uint32_t count;
	bool all;
};

struct tw_feed { /* fields are const after create, but for the state of the parts */
	const struct tw_protocol *protocol;
	const struct tw_session *session;
	void *session_state;
	void *protocol_state; /* made by protocol->open, NULL where there is none */
	struct tw_feed_sink sink;
	struct tw_counters counters;
	struct tw_instruments instruments;
	uint32_t all_channels;  /* a bit for each */
	uint32_t open_channels; /* those that carry all symbols */
	uint16_t venue_id;
	char mic[4];
	struct tw_directory directory;
	struct tw_feed_filter filters[TW_FEED_MAX_CHANNELS];
	uint32_t channel_count;
	int64_t shift_ns; /* added to the venue's times: a replay whose recording happens now */
	uint32_t parts_seen;
	struct tw_input_counts input_seen; /* already in the counters */
};

/* TW_ECONFIG: unknown names, a bad directory file, or two configured symbols whose hashes are equal
 * (the text names both; a directory file cures it). */
int tw_feed_create(struct tw_feed **feed_p, const struct tw_feed_conf *conf,
		   struct tw_error *err) TW_MUST_USE;
void tw_feed_destroy(struct tw_feed *feed); /* NULL ok */

/* Before each packet of an input: true where it begins another recording (the session layer is told). */
static inline bool tw_feed_follow(struct tw_feed *feed, const struct tw_input *input)
{
	if (__builtin_expect(feed->parts_seen == input->parts, 1)) {
		return false;
	}
	feed->parts_seen = input->parts;
	feed->session->part(feed->session_state);
	return true;
}

static inline void tw_feed_packet(struct tw_feed *feed, const struct tw_packet *packet)
{
	feed->session->packet(feed, feed->session_state, packet);
}

/* Brings what the input has counted into the feed's counters. */
void tw_feed_count_input(struct tw_feed *feed, const struct tw_input *input);

/* Runs an input that can wait to its end.  TW_OK (see input->warning), or what stopped it. */
int tw_feed_run(struct tw_feed *feed, struct tw_input *input, struct tw_error *err) TW_MUST_USE;

/* ---- for session layers ---- */

static inline void tw_feed_count(struct tw_feed *feed, enum tw_fh_counter index, uint64_t n)
{
	tw_counter_add(&feed->counters, (unsigned int)index, n);
}

static inline void tw_feed_venue_msg(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	tw_feed_count(feed, TW_FH_venue_messages, 1);
	feed->protocol->message(feed, msg);
}

/* The venue has begun another session: its definitions are due again, and its books are empty. */
void tw_feed_session_changed(struct tw_feed *feed);

/* Messages of the venue will not come any more: counted, and books are incomplete from here on. */
void tw_feed_gap(struct tw_feed *feed, uint64_t missing_msgs);

/* A message that will be delivered shortly: a decoder may fetch what it will look at. */
static inline void tw_feed_ahead(const struct tw_feed *feed, const uint8_t *data,
				 uint32_t len_bytes)
{
	if (feed->protocol->ahead != NULL) {
		feed->protocol->ahead(feed, data, len_bytes);
	}
}

/* ---- for decoders ---- */

/* The common head of everything that comes from `msg`, but for kind and instrument.  A time before
 * 1970 is no time: exchange_ns is then 0, TS_BAD is set and the value counted as unknown. */
struct tw_msg_head tw_feed_stamp(struct tw_feed *feed, const struct tw_venue_msg *msg,
				 int64_t exchange_ns, uint16_t flags);

static inline void tw_feed_kind(struct tw_msg_head *head, enum tw_msg_kind kind, size_t msg_bytes)
{
	head->sbe = (struct tw_msg_sbe){
		.block_length = (uint16_t)(msg_bytes - sizeof(struct tw_msg_sbe)),
		.template_id = (uint16_t)kind,
		.schema_id = TW_MSG_SCHEMA_ID,
		.version = TW_MSG_SCHEMA_VERSION,
	};
}

/* Cold half of tw_feed_instrument(): filters, gives the id, counts refusals. */
struct tw_instrument *tw_feed_first_sight(struct tw_feed *feed, uint64_t key,
					  const char symbol[TW_SYMBOL_BYTES]);
/* Sends the definition that says no more than the symbol, and marks the instrument defined. */
void tw_feed_define(struct tw_feed *feed, struct tw_instrument *instrument,
		    const struct tw_msg_head *head);
/* What every definition of this feed has alike; the decoder adds what its message says. */
struct tw_msg_instrument_definition tw_feed_definition(const struct tw_feed *feed,
						       const struct tw_instrument *instrument,
						       const struct tw_msg_head *head);

static inline void tw_feed_emit(struct tw_feed *feed, const struct tw_msg_head *msg,
				uint32_t channels)
{
	feed->sink.message(feed->sink.ctx, msg,
			   (uint32_t)sizeof(struct tw_msg_sbe) + msg->sbe.block_length, channels);
}

/* One message of an instrument, after its definition where that is due. */
static inline void tw_feed_send(struct tw_feed *feed, struct tw_instrument *instrument,
				const struct tw_msg_head *msg)
{
	if (__builtin_expect(!instrument->defined, 0)) {
		tw_feed_define(feed, instrument, msg);
	}
	tw_feed_emit(feed, msg, instrument->channels);
}

/* A time that the venue gives (from 0 on, 0: none) with feed->shift_ns; false where that leaves the range:
 * a recording of another age, whose own time stands. */
static inline bool tw_feed_time(const struct tw_feed *feed, int64_t venue_ns, uint64_t *ns)
{
	int64_t moved;
	*ns = (uint64_t)venue_ns;
	if (venue_ns == 0) {
		return true;
	}
	if (__builtin_add_overflow(venue_ns, feed->shift_ns, &moved) || moved < 0) {
		return false;
	}
	*ns = (uint64_t)moved;
	return true;
}

/* YYYYMMDD in the venue's zone (tw_protocol.zone_seconds); 0 on the epoch's first day, which stands for a
 * date that is not known. */
uint32_t tw_feed_date(const struct tw_feed *feed, uint64_t exchange_ns);

/* A venue's fixed-point price to 1e-9: `factor` is 1e9 over the venue's scale.  False where it does not
 * fit; *price is then PRICE_NONE. */
static inline bool tw_feed_price(int64_t raw, int64_t factor, int64_t *price)
{
	if (__builtin_mul_overflow(raw, factor, price)) {
		*price = TW_PRICE_NONE;
		return false;
	}
	return true;
}

#endif
