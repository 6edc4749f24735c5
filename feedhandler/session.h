/* What a session layer is to the feedhandler: a row of the table in registry.c.
 *
 * It takes datagrams, finds the venue's messages in them, each once and in order, counts gaps and
 * duplicates (TW_SET_fh), and calls the feed's decoder. */
#ifndef TW_FEEDHANDLER_SESSION_H
#define TW_FEEDHANDLER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "feedhandler/input.h"

struct tw_feed;

/* Where a packet stands in the session that is under way. */
enum tw_place {
	TW_PLACE_ASIDE = 0, /* nowhere: foreign, malformed, or without numbers */
	TW_PLACE_ORDERED,   /* as its span says */
	TW_PLACE_NEW        /* it begins another session, or the first one */
};
struct tw_span {
	uint64_t next_seq;           /* what the session layer waits for */
	uint64_t first_seq, end_seq; /* the packet's messages; equal: it has none and comes next */
	bool idle;                   /* a heartbeat: it says no more than its number */
};

#define TW_REQUEST_MAX_BYTES 32u

struct tw_session {
	const char *name; /* feedhandlers[].session */
	const char *help;
	const char *protocol; /* the only one that it carries, NULL: it does not matter */
	size_t state_bytes;   /* zeroed before the first packet */
	/* another recording begins: any session may follow, the same one goes on */
	void (*part)(void *state);
	void (*packet)(struct tw_feed *feed, void *state, const struct tw_packet *packet);
	/* What packet() would take it for; changes nothing.  Where first_seq > next_seq the framing has been
	 * looked at, else only the header.  NULL: such packets have no lines. */
	enum tw_place (*place)(const struct tw_feed *feed, const void *state,
			       const struct tw_packet *packet, struct tw_span *span);
	/* A packet that will come shortly: the decoder may hear of its first messages (tw_feed_ahead()).
	 * NULL: nothing is known of them. */
	void (*ahead)(const struct tw_feed *feed, const struct tw_packet *packet);
	/* The datagram that asks a server for messages first_seq .. of the session under way; its length.
	 * NULL: there is no such request, or it is not a datagram. */
	uint32_t (*request)(const void *state, uint64_t first_seq, uint16_t count,
			    uint8_t out[TW_REQUEST_MAX_BYTES]);
};

extern const struct tw_session tw_session_iextp;      /* IEX-TP version 1 */
extern const struct tw_session tw_session_moldudp64;  /* MoldUDP64 1.00 */
extern const struct tw_session tw_session_binaryfile; /* Nasdaq BinaryFILE, as its input cuts it */

#endif
