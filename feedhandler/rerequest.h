/* Whom to ask, when, and for what, of what no line of the venue has brought.  Sans-I/O: times and replies are
 * arguments, requests are results; rerequest_udp.h sends them.
 *
 * Several are outstanding at once, never more than TW_REREQUEST_OUTSTANDING, never closer than TW_REREQUEST_SPACE_NS,
 * and no two for one message.  Each has its own time: after it the next server is asked, a round through
 * all of them doubles it, and after `attempts` in a row without an answer its range is given up.
 * Ranges      a reply is what fits one packet.  Gaps near each other are asked for together, and large ones in
 *             pieces, as far as replies have been found to reach; what a reply was too short for is asked again.
 * Servers     the one that has answered last is asked first; one that did not is passed on.
 * Trust       a reply is hostile until validated: from a configured server, of the session under way, within one
 *             request that is outstanding, and bringing what is missing (tw_venue_arb_repair()).  Who may
 *             be a server is the site's to say: false bytes in a true place nobody can tell.
 * Silence     a range that is given up, when no server has answered anything since it was first asked for,
 *             takes with it what is left of its gap: a dead server costs one gap's time, not each piece's.
 * Threads     one. */
#ifndef TW_FEEDHANDLER_REREQUEST_H
#define TW_FEEDHANDLER_REREQUEST_H

#include "feedhandler/venue_arb.h"

#define TW_REREQUEST_MAX_SERVERS 8u
#define TW_REREQUEST_SPACE_NS    200000u
/* At that spacing a round trip of 12.8 ms; a site's own server is nearer, and the store (store_packets) is what
 * a feed can wait for. */
#define TW_REREQUEST_OUTSTANDING 64u

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

struct tw_request {
	uint32_t server; /* conf.server[] */
	uint32_t len_bytes;
	uint64_t first_seq, end_seq;
	uint8_t bytes[TW_REQUEST_MAX_BYTES];
};

int tw_rerequest_create(struct tw_rerequest **rr_p, const struct tw_rerequest_conf *conf,
			struct tw_error *err) TW_MUST_USE;
void tw_rerequest_destroy(struct tw_rerequest *rr); /* NULL ok */

/* Once a turn, after tw_venue_arb_turn(), until false: the next request that is to leave now.  What cannot be
 * sent counts as sent: it is not answered, which is dealt with. */
bool tw_rerequest_next(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		       uint64_t now_ns, struct tw_request *request);
/* What came from packet->src_addr and src_port.  True: it was taken. */
bool tw_rerequest_reply(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
			const struct tw_packet *packet, uint64_t now_ns);
/* Whether replies may come: something is outstanding, or was until a moment ago. */
bool tw_rerequest_listens(const struct tw_rerequest *rr, uint64_t now_ns);

#endif
