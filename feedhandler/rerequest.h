/* Asks servers by UDP for what no line of the venue has brought.
 *
 * One request is outstanding at a time, for the oldest gap; a server that does not answer is followed by the
 * next one, and after `attempts` in a row without progress the gap is given up.  Two requests are never closer
 * than REQUEST_SPACE_NS.  What comes back is hostile until validated: from a configured server, of the session
 * under way, and no more than was asked for (tw_venue_arb_repair()).
 * Threads   the hot thread, but for open and close. */
#ifndef TW_FEEDHANDLER_REREQUEST_H
#define TW_FEEDHANDLER_REREQUEST_H

#include "feedhandler/venue_arb.h"

#define TW_REREQUEST_MAX_SERVERS 8u

struct tw_rerequest_conf {
	uint32_t servers; /* 1 or more */
	struct {
		uint32_t address; /* IPv4, host order */
		uint16_t port;
	} server[TW_REREQUEST_MAX_SERVERS];
	uint64_t answer_ns; /* how long a server has */
	uint32_t attempts;
};

struct tw_rerequest;

int tw_rerequest_open(struct tw_rerequest **rr_p, const struct tw_rerequest_conf *conf,
		      struct tw_error *err) TW_MUST_USE;
void tw_rerequest_close(struct tw_rerequest *rr); /* NULL ok */
/* Once a turn, after tw_venue_arb_turn(). */
void tw_rerequest_turn(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		       uint64_t now_ns);

#endif
