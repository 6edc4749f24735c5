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

#include "base/bytes.h"
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

/* Before the first packet of an input whose packets need not keep their time. */
void tw_feed_read_unpaced(const struct tw_feed *feed, struct tw_input *input);
/* Runs an input that can wait to its end, unpaced.  TW_OK (see input->warning), or what stopped it. */
int tw_feed_run(struct tw_feed *feed, struct tw_input *input, struct tw_error *err) TW_MUST_USE;

/* ---- for session layers ---- */

static inline void tw_feed_count(struct tw_feed *feed, enum tw_fh_counter index, uint64_t n)
{
	tw_counter_add(&feed->counters, (unsigned int)index, n);
}

static inline void tw_feed_venue_msgs(struct tw_feed *feed, const struct tw_venue_msg *msgs,
				      uint32_t count)
{
	tw_feed_count(feed, TW_FH_venue_messages, count);
	feed->protocol->messages(feed, msgs, count);
}

static inline void tw_feed_venue_msg(struct tw_feed *feed, const struct tw_venue_msg *msg)
{
	tw_feed_venue_msgs(feed, msg, 1);
}

/* Messages of one packet on their way to the decoder, which gets many at once. */
#define TW_FEED_RUN_MSGS   64u
#define TW_FEED_AHEAD_MSGS 8u /* at least: a miss of the cache lasts for some of them */
struct tw_feed_run {
	uint32_t count;
	struct tw_venue_msg msgs[TW_FEED_RUN_MSGS];
};

static inline void tw_feed_ahead(const struct tw_feed *feed, const struct tw_venue_msg *msgs,
				 uint32_t count)
{
	if (feed->protocol->ahead != NULL) {
		feed->protocol->ahead(feed, msgs, count);
	}
}

struct tw_feed_blocks { /* of a packet: each is a u16 length and a message */
	uint32_t count;
	bool big_endian;
	bool shown;    /* the decoder has heard of them */
	bool numbered; /* from first_seq on; else all have the number 0, which is none */
	uint64_t first_seq;
	uint64_t recv_ns;
};

/* The decoder hears of messages a few at a time, while the packet itself is still on its way into the cache. */
static inline void tw_feed_run_add(struct tw_feed_run *run, const struct tw_feed *feed,
				   const uint8_t *data, uint32_t len_bytes, uint64_t seq,
				   uint64_t recv_ns, bool shown)
{
	/* field by field: a struct that was just made so and is copied whole waits for its own stores */
	struct tw_venue_msg *msg = &run->msgs[run->count++];
	msg->data = data;
	msg->len_bytes = len_bytes;
	msg->seq = seq;
	msg->recv_ns = recv_ns;
	if (!shown && run->count % TW_FEED_AHEAD_MSGS == 0) {
		tw_feed_ahead(feed, &run->msgs[run->count - TW_FEED_AHEAD_MSGS],
			      TW_FEED_AHEAD_MSGS);
	}
}

/* No more will be added before they are delivered. */
static inline void tw_feed_run_close(const struct tw_feed_run *run, const struct tw_feed *feed,
				     bool shown)
{
	uint32_t left = run->count % TW_FEED_AHEAD_MSGS;
	if (!shown && left > 0) {
		tw_feed_ahead(feed, &run->msgs[run->count - left], left);
	}
}

/* Takes blocks from `from` on, which begin at *payload: TW_FEED_RUN_MSGS of them or all that are left.  False where
 * they reach past the end. */
static inline bool tw_feed_run_take(struct tw_feed_run *run, const struct tw_feed *feed,
				    struct tw_bytes *payload, const struct tw_feed_blocks *blocks,
				    uint32_t from)
{
	uint32_t left = blocks->count - from;
	uint32_t count = left < TW_FEED_RUN_MSGS ? left : TW_FEED_RUN_MSGS;
	run->count = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint16_t len_bytes =
			blocks->big_endian ? tw_bytes_be16(payload) : tw_bytes_le16(payload);
		const uint8_t *data = tw_bytes_take(payload, len_bytes);
		if (data == NULL) {
			return false;
		}
		tw_feed_run_add(run, feed, data, len_bytes,
				blocks->numbered ? blocks->first_seq + from + i : 0,
				blocks->recv_ns, blocks->shown);
	}
	tw_feed_run_close(run, feed, blocks->shown);
	return true;
}

/* A packet's blocks, all of which are there, but for the first `known`, which came before: `run` has the
 * first ones, *rest is what follows. */
static inline void tw_feed_run_deliver(struct tw_feed *feed, struct tw_feed_run *run,
				       struct tw_bytes rest, const struct tw_feed_blocks *blocks,
				       uint32_t known)
{
	uint32_t at = 0;
	while (at < blocks->count) {
		uint32_t skip = known > at ? known - at : 0;
		if (skip < run->count) {
			tw_feed_venue_msgs(feed, run->msgs + skip, run->count - skip);
		}
		at += run->count;
		if (at < blocks->count) {
			(void)tw_feed_run_take(run, feed, &rest, blocks, at);
		}
	}
}

/* How many of `count` messages from first_seq on come before next_seq. */
static inline uint32_t tw_feed_known(uint64_t first_seq, uint32_t count, uint64_t next_seq)
{
	uint64_t known = next_seq > first_seq ? next_seq - first_seq : 0;
	return known < count ? (uint32_t)known : count;
}

/* The venue has begun another session: its definitions are due again, and its books are empty. */
void tw_feed_session_changed(struct tw_feed *feed);

/* Messages of the venue will not come any more: counted, and books are incomplete from here on. */
void tw_feed_gap(struct tw_feed *feed, uint64_t missing_msgs);

/* ---- for decoders ---- */

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

/* The same of one that has all but kind and instrument: how a decoder's message ends. */
static inline void tw_feed_send_as(struct tw_feed *feed, struct tw_instrument *instrument,
				   enum tw_msg_kind kind, struct tw_msg_head *msg, size_t msg_bytes)
{
	tw_feed_kind(msg, kind, msg_bytes);
	msg->instrument_id = instrument->id;
	tw_feed_send(feed, instrument, msg);
}

static inline void tw_feed_unknown_value(struct tw_feed *feed)
{
	tw_feed_count(feed, TW_FH_unknown_values, 1);
}

/* What the letters of a venue's field mean here; {0} ends a table. */
struct tw_feed_letter {
	char letter;
	uint8_t meaning;
};

/* A letter that is not in the table is counted, and means `otherwise`.  For what comes rarely: a switch is
 * quicker. */
static inline uint8_t tw_feed_meaning(struct tw_feed *feed, const struct tw_feed_letter *table,
				      uint8_t letter, uint8_t otherwise)
{
	for (; table->letter != '\0'; table++) {
		if ((uint8_t)table->letter == letter) {
			return table->meaning;
		}
	}
	tw_feed_unknown_value(feed);
	return otherwise;
}

/* Blank-padded text to NUL-padded. */
static inline void tw_feed_unpad(char *dst, const uint8_t *src, size_t len_bytes)
{
	memcpy(dst, src, len_bytes);
	for (size_t i = len_bytes; i > 0 && dst[i - 1] == ' '; i--) {
		dst[i - 1] = '\0';
	}
}

/* The same of a symbol; false where it is empty, has a blank within or holds what does not print. */
bool tw_feed_symbol(char symbol[TW_SYMBOL_BYTES], const uint8_t *bytes, size_t len_bytes);

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

/* The common head of everything that comes from `msg`, but for kind and instrument.  A time before
 * 1970 is no time: exchange_ns is then 0, TS_BAD is set and the value counted as unknown. */
static inline struct tw_msg_head tw_feed_stamp(struct tw_feed *feed, const struct tw_venue_msg *msg,
					       int64_t exchange_ns, uint16_t flags)
{
	struct tw_msg_head head = {
		.venue_id = feed->venue_id,
		.flags = flags,
		.exchange_seq = (uint32_t)msg->seq,
	};
	if (exchange_ns < 0) {
		tw_feed_count(feed, TW_FH_unknown_values, 1);
		head.flags |= TW_MSG_TS_BAD;
		return head;
	}
	if (!tw_feed_time(feed, exchange_ns, &head.exchange_ns) || msg->recv_ns == 0 ||
	    msg->recv_ns > INT64_MAX) {
		head.flags |= TW_MSG_TS_BAD;
		return head;
	}
	/* both are within 0 .. INT64_MAX, so the difference fits */
	int64_t delta_ns = (int64_t)msg->recv_ns - (int64_t)head.exchange_ns;
	if (feed->counters.hists != NULL) {
		tw_hist_record(&feed->counters.hists[TW_FH_HIST_exchange_to_feedhandler], delta_ns);
	}
	if (delta_ns > INT32_MAX || delta_ns < INT32_MIN) {
		head.flags |= TW_MSG_TS_BAD;
		delta_ns = delta_ns < 0 ? INT32_MIN : INT32_MAX;
	}
	head.recv_delta_ns = (int32_t)delta_ns;
	return head;
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
