/* Re-requests (rerequest.h) by UDP: a socket of the feedhandler's own.
 *
 * Threads   the hot thread, but for open and close.  A sendto for each request and, while replies may come, a
 *           recvfrom a turn. */
#ifndef TW_FEEDHANDLER_REREQUEST_UDP_H
#define TW_FEEDHANDLER_REREQUEST_UDP_H

#include "feedhandler/rerequest.h"

struct tw_rerequest_udp;

int tw_rerequest_udp_open(struct tw_rerequest_udp **udp_p, const struct tw_rerequest_conf *conf,
			  struct tw_error *err) TW_MUST_USE;
void tw_rerequest_udp_close(struct tw_rerequest_udp *udp); /* NULL ok */
/* Once a turn, after tw_venue_arb_turn(). */
void tw_rerequest_udp_turn(struct tw_rerequest_udp *udp, struct tw_venue_arb *arb,
			   struct tw_feed *feed, uint64_t now_ns);

#endif
