/* What a venue's protocol is to the feedhandler: a row of the table in registry.c.
 *
 * A decoder turns one venue message into normalized ones and hands them to the feed (feed.h).  It
 * counts what it does not know and passes over it; nothing that a venue sends is fatal. */
#ifndef TW_FEEDHANDLER_PROTOCOL_H
#define TW_FEEDHANDLER_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include "tidewire/error.h"

struct tw_feed;
struct tw_feed_conf;

struct tw_venue_msg { /* one message of the venue, as the session layer found it */
	const uint8_t *data;
	uint32_t len_bytes;
	uint64_t seq;     /* the venue's number, 0 where it has none */
	uint64_t recv_ns; /* of its packet, 0 where unknown */
};

struct tw_protocol {
	const char *name;    /* feedhandlers[].protocol */
	const char *session; /* the usual session layer, where the configuration names none */
	const char *help;
	const char *currency;  /* of every instrument, "" where it differs */
	uint32_t transport_id; /* how the session layer marks it: IEX-TP message protocol id */
	uint16_t depth_levels; /* of a book that it can give, for InstrumentDefinition */
	int32_t zone_seconds;  /* added to UTC: the day that this gives is the trading date */
	uint32_t depths;       /* bit for each enum tw_depth that it gives */
	bool numbered;         /* an instrument's id is the venue's own number, which is its key */
	void (*messages)(struct tw_feed *feed, const struct tw_venue_msg *msgs, uint32_t count);

	/* The rest may be NULL.  `open` makes feed->protocol_state, `close` frees it. */
	int (*open)(struct tw_feed *feed, const struct tw_feed_conf *conf, struct tw_error *err);
	void (*close)(struct tw_feed *feed);
	void (*session_changed)(struct tw_feed *feed); /* NULL: definitions are due again */
	void (*gap)(struct tw_feed *feed);
	/* Messages that will come shortly, or never: what they will look at may be fetched. */
	void (*ahead)(const struct tw_feed *feed, const struct tw_venue_msg *msgs, uint32_t count);
};

extern const struct tw_protocol tw_protocol_tops16; /* IEX TOPS 1.6 */
extern const struct tw_protocol tw_protocol_itch50; /* Nasdaq TotalView-ITCH 5.0 */

#endif
