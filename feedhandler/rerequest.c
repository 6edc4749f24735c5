/* Requests for missing messages of a venue; see rerequest.h.
 *
 * Spec      [MoldUDP64 1.00 Request Packet] */
#include "feedhandler/rerequest.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"

#define REQUEST_MSGS     1000u /* most of one request; a reply holds what fits a packet */
#define REQUEST_SPACE_NS 200000ull
#define REPLIES_MAX      32u /* read in one turn */

struct tw_rerequest {
	struct tw_rerequest_conf conf;
	int fd;
	bool asked;
	uint32_t server;   /* the one asked last */
	uint32_t attempts; /* in a row that brought nothing */
	uint64_t asked_first_seq, asked_end_seq;
	uint64_t asked_ns;
	uint8_t reply[TW_VENUE_PACKET_MAX_BYTES];
};

int tw_rerequest_open(struct tw_rerequest **rr_p, const struct tw_rerequest_conf *conf,
		      struct tw_error *err)
{
	*rr_p = NULL;
	TW_ASSERT(conf->servers > 0 && conf->servers <= TW_REREQUEST_MAX_SERVERS);
	struct tw_rerequest *rr = calloc(1, sizeof(*rr));
	if (rr == NULL) {
		return tw_fail(err, TW_ENOMEM, "rerequest: out of memory");
	}
	rr->conf = *conf;
	rr->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (rr->fd < 0) {
		int rc = tw_fail_sys(err, TW_ESYS, "rerequest: socket");
		free(rr);
		return rc;
	}
	*rr_p = rr;
	return TW_OK;
}

void tw_rerequest_close(struct tw_rerequest *rr)
{
	if (rr != NULL) {
		(void)close(rr->fd);
		free(rr);
	}
}

static bool is_server(const struct tw_rerequest *rr, const struct sockaddr_in *from)
{
	for (uint32_t i = 0; i < rr->conf.servers; i++) {
		if (ntohl(from->sin_addr.s_addr) == rr->conf.server[i].address &&
		    ntohs(from->sin_port) == rr->conf.server[i].port) {
			return true;
		}
	}
	return false;
}

static void read_replies(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed)
{
	for (uint32_t i = 0; i < REPLIES_MAX; i++) {
		struct sockaddr_in from = { .sin_family = AF_UNSPEC };
		socklen_t from_len = sizeof(from);
		/* MSG_TRUNC: the whole length, so that a reply that was cut shows */
		ssize_t n = recvfrom(rr->fd, rr->reply, sizeof(rr->reply), MSG_DONTWAIT | MSG_TRUNC,
				     (struct sockaddr *)&from, &from_len);
		if (n < 0) { /* none, or that a server's port is closed: its time runs out */
			return;
		}
		const struct tw_packet packet = { .payload = rr->reply,
						  .len_bytes = (uint32_t)n,
						  .src_addr = ntohl(from.sin_addr.s_addr),
						  .src_port = ntohs(from.sin_port),
						  .recv_ns = tw_wall_ns(),
						  .line = TW_VENUE_LINES };
		bool taken = (size_t)n <= sizeof(rr->reply) && is_server(rr, &from) && rr->asked &&
			     tw_venue_arb_repair(arb, feed, &packet, rr->asked_end_seq);
		tw_feed_count(feed, taken ? TW_FH_rerequest_replies : TW_FH_rerequest_refused, 1);
	}
}

static void ask(struct tw_rerequest *rr, struct tw_feed *feed, uint64_t first_seq, uint64_t end_seq,
		uint64_t now_ns)
{
	uint8_t request[TW_REQUEST_MAX_BYTES];
	uint64_t count = end_seq - first_seq < REQUEST_MSGS ? end_seq - first_seq : REQUEST_MSGS;
	uint32_t len_bytes =
		feed->session->request(feed->session_state, first_seq, (uint16_t)count, request);
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons(rr->conf.server[rr->server].port),
		.sin_addr.s_addr = htonl(rr->conf.server[rr->server].address),
	};
	/* what cannot be sent is not answered, which is dealt with */
	(void)sendto(rr->fd, request, len_bytes, MSG_DONTWAIT, (const struct sockaddr *)&to,
		     sizeof(to));
	rr->asked = true;
	rr->asked_first_seq = first_seq;
	rr->asked_end_seq = first_seq + count;
	rr->asked_ns = now_ns;
	tw_feed_count(feed, TW_FH_rerequests, 1);
}

void tw_rerequest_turn(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		       uint64_t now_ns)
{
	uint64_t first_seq, end_seq;
	if (rr->asked) {
		read_replies(rr, arb, feed);
	}
	if (!tw_venue_arb_overdue(arb, feed, &first_seq, &end_seq)) {
		/* what was asked for is here, or was given up; late replies are read for a while */
		rr->attempts = 0;
		rr->asked = rr->asked && now_ns - rr->asked_ns < rr->conf.answer_ns;
		return;
	}
	uint64_t since_ns = now_ns - rr->asked_ns;
	bool waiting = rr->asked && first_seq == rr->asked_first_seq;
	if (!waiting) { /* another gap, or the rest of one that got an answer */
		if (rr->asked_ns == 0 || since_ns >= REQUEST_SPACE_NS) {
			rr->attempts = 1;
			ask(rr, feed, first_seq, end_seq, now_ns);
		}
		return;
	}
	if (since_ns < rr->conf.answer_ns) {
		return;
	}
	tw_feed_count(feed, TW_FH_rerequest_timeouts, 1);
	rr->server = rr->server + 1 < rr->conf.servers ? rr->server + 1 : 0;
	if (rr->attempts < rr->conf.attempts) {
		rr->attempts++;
		ask(rr, feed, first_seq, end_seq, now_ns);
		return;
	}
	tw_feed_count(feed, TW_FH_rerequest_given_up, 1);
	rr->asked = false;
	tw_venue_arb_give_up(arb, feed);
}
