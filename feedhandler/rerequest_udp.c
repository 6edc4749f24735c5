/* Re-requests by UDP; see rerequest_udp.h. */
#include "feedhandler/rerequest_udp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"

#define REPLIES_MAX 32u /* read in one turn */

struct tw_rerequest_udp {
	struct tw_rerequest *rr;
	int fd;
	struct sockaddr_in servers[TW_REREQUEST_MAX_SERVERS];
	uint8_t reply[TW_VENUE_PACKET_MAX_BYTES];
};

int tw_rerequest_udp_open(struct tw_rerequest_udp **udp_p, const struct tw_rerequest_conf *conf,
			  struct tw_error *err)
{
	*udp_p = NULL;
	struct tw_rerequest_udp *udp = calloc(1, sizeof(*udp));
	if (udp == NULL) {
		return tw_fail(err, TW_ENOMEM, "rerequest: out of memory");
	}
	udp->fd = -1;
	int rc = tw_rerequest_create(&udp->rr, conf, err);
	if (rc == TW_OK) {
		udp->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		rc = udp->fd >= 0 ? TW_OK : tw_fail_sys(err, TW_ESYS, "rerequest: socket");
	}
	if (rc != TW_OK) {
		tw_rerequest_udp_close(udp);
		return rc;
	}
	for (uint32_t i = 0; i < conf->servers; i++) {
		udp->servers[i] = (struct sockaddr_in){
			.sin_family = AF_INET,
			.sin_port = htons(conf->server[i].port),
			.sin_addr.s_addr = htonl(conf->server[i].address),
		};
	}
	*udp_p = udp;
	return TW_OK;
}

void tw_rerequest_udp_close(struct tw_rerequest_udp *udp)
{
	if (udp != NULL) {
		if (udp->fd >= 0) {
			(void)close(udp->fd);
		}
		tw_rerequest_destroy(udp->rr);
		free(udp);
	}
}

static void read_replies(struct tw_rerequest_udp *udp, struct tw_venue_arb *arb,
			 struct tw_feed *feed, uint64_t now_ns)
{
	for (uint32_t i = 0; i < REPLIES_MAX; i++) {
		struct sockaddr_in from = { .sin_family = AF_UNSPEC };
		socklen_t from_len = sizeof(from);
		/* MSG_TRUNC: the whole length, so that a reply that was cut shows */
		ssize_t n = recvfrom(udp->fd, udp->reply, sizeof(udp->reply),
				     MSG_DONTWAIT | MSG_TRUNC, (struct sockaddr *)&from, &from_len);
		if (n < 0) { /* none, or that a server's port is closed: its time runs out */
			return;
		}
		if ((size_t)n > sizeof(udp->reply)) {
			tw_feed_count(feed, TW_FH_rerequest_refused, 1);
			continue;
		}
		const struct tw_packet packet = { .payload = udp->reply,
						  .len_bytes = (uint32_t)n,
						  .src_addr = ntohl(from.sin_addr.s_addr),
						  .src_port = ntohs(from.sin_port),
						  .recv_ns = tw_wall_ns(),
						  .line = TW_VENUE_LINES };
		(void)tw_rerequest_reply(udp->rr, arb, feed, &packet, now_ns);
	}
}

void tw_rerequest_udp_turn(struct tw_rerequest_udp *udp, struct tw_venue_arb *arb,
			   struct tw_feed *feed, uint64_t now_ns)
{
	struct tw_request request;
	if (tw_rerequest_listens(udp->rr, now_ns)) {
		read_replies(udp, arb, feed, now_ns);
	}
	while (tw_rerequest_next(udp->rr, arb, feed, now_ns, &request)) {
		const struct sockaddr_in *to = &udp->servers[request.server];
		/* what cannot be sent is not answered, which is dealt with */
		(void)sendto(udp->fd, request.bytes, request.len_bytes, MSG_DONTWAIT,
			     (const struct sockaddr *)to, sizeof(*to));
	}
}
