/* Requests for missing messages of a venue; see rerequest.h.
 *
 * Spec      [MoldUDP64 1.00 Request Packet] */
#include "feedhandler/rerequest.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

#define REPLY_MSGS     32u /* a reply's, before one was seen: short messages in an Ethernet frame */
#define REPLY_MSGS_MAX 1000u /* in a jumbo frame */
#define DOUBLINGS_MAX  4u

struct asked {
	bool used;
	bool late;       /* its time is over; it is to be asked again */
	uint32_t server; /* the one asked last */
	uint32_t attempts;
	uint64_t first_seq, end_seq;
	uint64_t first_asked_ns;
	uint64_t due_ns; /* of the answer */
};

struct tw_rerequest {
	struct tw_rerequest_conf conf;
	uint64_t sessions;   /* those of the arbitration that the requests belong to */
	uint32_t server;     /* whom to ask first */
	uint32_t reply_msgs; /* what a reply brings */
	uint32_t outstanding, late;
	bool asked_ever, answered_ever;
	uint64_t asked_ns, answered_ns; /* newest request and reply */
	uint64_t due_ns;                /* the next answer's, or earlier */
	uint64_t looked_ns;             /* for a place */
	struct asked asked[TW_REREQUEST_OUTSTANDING];
};

int tw_rerequest_create(struct tw_rerequest **rr_p, const struct tw_rerequest_conf *conf,
			struct tw_error *err)
{
	*rr_p = NULL;
	TW_ASSERT(conf->servers > 0 && conf->servers <= TW_REREQUEST_MAX_SERVERS);
	struct tw_rerequest *rr = calloc(1, sizeof(*rr));
	if (rr == NULL) {
		return tw_fail(err, TW_ENOMEM, "rerequest: out of memory");
	}
	rr->conf = *conf;
	rr->reply_msgs = REPLY_MSGS;
	rr->due_ns = UINT64_MAX;
	*rr_p = rr;
	return TW_OK;
}

void tw_rerequest_destroy(struct tw_rerequest *rr)
{
	free(rr);
}

bool tw_rerequest_listens(const struct tw_rerequest *rr, uint64_t now_ns)
{
	return rr->outstanding > 0 ||
	       (rr->asked_ever && now_ns - rr->asked_ns < rr->conf.answer_ns);
}

static uint32_t server_after(const struct tw_rerequest *rr, uint32_t server)
{
	return server + 1 < rr->conf.servers ? server + 1 : 0;
}

static void forget(struct tw_rerequest *rr, struct asked *asked)
{
	rr->outstanding--;
	rr->late -= asked->late ? 1 : 0;
	asked->used = false;
	asked->late = false;
}

/* Not where a line has brought it all, or it was given up. */
static bool is_needed(const struct asked *asked, struct tw_venue_arb *arb)
{
	return tw_venue_gaps_asked(tw_venue_arb_gaps(arb), asked->first_seq, asked->end_seq);
}

/* Another session: its numbers are others. */
static void follow_session(struct tw_rerequest *rr, const struct tw_venue_arb *arb)
{
	if (rr->sessions != tw_venue_arb_sessions(arb)) {
		rr->sessions = tw_venue_arb_sessions(arb);
		memset(rr->asked, 0, sizeof(rr->asked));
		rr->outstanding = 0;
		rr->late = 0;
		rr->due_ns = UINT64_MAX;
	}
}

/* Nobody has answered its request in time. */
static void time_out(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		     struct asked *asked)
{
	tw_feed_count(feed, TW_FH_rerequest_timeouts, 1);
	if (asked->server == rr->server) {
		rr->server = server_after(rr, rr->server);
	}
	if (asked->attempts < rr->conf.attempts) {
		asked->late = true;
		rr->late++;
		return;
	}
	bool silence = !rr->answered_ever || rr->answered_ns < asked->first_asked_ns;
	tw_feed_count(feed, TW_FH_rerequest_given_up, 1);
	forget(rr, asked);
	tw_venue_arb_lose(arb, feed, asked->first_seq, asked->end_seq, silence);
}

/* Looks at all that is outstanding: what is here by now, and whose time is over. */
static void look(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		 uint64_t now_ns)
{
	uint64_t due_ns = UINT64_MAX;
	for (uint32_t i = 0; i < TW_REREQUEST_OUTSTANDING && rr->outstanding > 0; i++) {
		struct asked *asked = &rr->asked[i];
		if (!asked->used) {
			continue;
		}
		if (!is_needed(asked, arb)) {
			forget(rr, asked);
		} else if (!asked->late && now_ns >= asked->due_ns) {
			time_out(rr, arb, feed, asked);
		}
		if (asked->used && !asked->late && asked->due_ns < due_ns) {
			due_ns = asked->due_ns;
		}
	}
	rr->due_ns = due_ns;
}

/* One that is to be asked again, and still has to be; NULL: none. */
static struct asked *find_late(struct tw_rerequest *rr, struct tw_venue_arb *arb)
{
	for (uint32_t i = 0; i < TW_REREQUEST_OUTSTANDING && rr->late > 0; i++) {
		struct asked *asked = &rr->asked[i];
		if (asked->late && is_needed(asked, arb)) {
			return asked;
		}
		if (asked->late) {
			forget(rr, asked);
		}
	}
	return NULL;
}

/* A range that nobody was asked for; NULL: there is none, or no room for one. */
static struct asked *take_open(struct tw_rerequest *rr, struct tw_venue_arb *arb, uint64_t now_ns)
{
	uint32_t i = 0;
	while (i < TW_REREQUEST_OUTSTANDING && rr->asked[i].used) {
		i++;
	}
	uint64_t first_seq, end_seq;
	if (i == TW_REREQUEST_OUTSTANDING ||
	    !tw_venue_gaps_ask(tw_venue_arb_gaps(arb), rr->reply_msgs, &first_seq, &end_seq)) {
		return NULL;
	}
	rr->outstanding++;
	rr->asked[i] = (struct asked){ .used = true,
				       .server = rr->server,
				       .first_seq = first_seq,
				       .end_seq = end_seq,
				       .first_asked_ns = now_ns };
	return &rr->asked[i];
}

static uint64_t answer_ns(const struct tw_rerequest *rr, const struct asked *asked)
{
	uint32_t rounds = (asked->attempts - 1) / rr->conf.servers;
	return rr->conf.answer_ns << (rounds < DOUBLINGS_MAX ? rounds : DOUBLINGS_MAX);
}

bool tw_rerequest_next(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
		       uint64_t now_ns, struct tw_request *request)
{
	follow_session(rr, arb);
	if (rr->outstanding == 0 && tw_venue_arb_gaps(arb)->due == 0) {
		return false; /* nearly always */
	}
	if (now_ns >= rr->due_ns) {
		look(rr, arb, feed, now_ns);
	}
	if (rr->asked_ever && now_ns - rr->asked_ns < TW_REREQUEST_SPACE_NS) {
		return false;
	}
	struct asked *asked = find_late(rr, arb);
	if (asked != NULL) {
		asked->late = false;
		rr->late--;
		asked->server = server_after(rr, asked->server);
	} else {
		if (rr->outstanding == TW_REREQUEST_OUTSTANDING &&
		    now_ns - rr->looked_ns >= TW_REREQUEST_SPACE_NS) {
			rr->looked_ns = now_ns;
			look(rr, arb, feed, now_ns);
		}
		asked = take_open(rr, arb, now_ns);
	}
	if (asked == NULL) {
		return false;
	}
	asked->attempts++;
	asked->due_ns = now_ns + answer_ns(rr, asked);
	rr->due_ns = asked->due_ns < rr->due_ns ? asked->due_ns : rr->due_ns;
	rr->asked_ever = true;
	rr->asked_ns = now_ns;
	request->server = asked->server;
	request->first_seq = asked->first_seq;
	request->end_seq = asked->end_seq;
	request->len_bytes = feed->session->request(feed->session_state, asked->first_seq,
						    (uint16_t)(asked->end_seq - asked->first_seq),
						    request->bytes);
	tw_feed_count(feed, TW_FH_rerequests, 1);
	tw_counter_max(&feed->counters, TW_FH_rerequests_outstanding, rr->outstanding);
	return true;
}

/* Which server it is from; conf.servers: none. */
static uint32_t server_of(const struct tw_rerequest *rr, const struct tw_packet *packet)
{
	uint32_t i = 0;
	while (i < rr->conf.servers && (packet->src_addr != rr->conf.server[i].address ||
					packet->src_port != rr->conf.server[i].port)) {
		i++;
	}
	return i;
}

/* The request that asked for all of the span; NULL: none did. */
static struct asked *request_of(struct tw_rerequest *rr, const struct tw_span *span)
{
	for (uint32_t i = 0; i < TW_REREQUEST_OUTSTANDING; i++) {
		struct asked *asked = &rr->asked[i];
		if (asked->used && asked->first_seq <= span->first_seq &&
		    span->end_seq <= asked->end_seq) {
			return asked;
		}
	}
	return NULL;
}

/* How many messages a reply may be asked for: as many as they bring, and now and then more. */
static void learn(struct tw_rerequest *rr, uint64_t asked_msgs, uint64_t msgs)
{
	if (msgs < asked_msgs) {
		uint32_t mean = (uint32_t)((3 * (uint64_t)rr->reply_msgs + msgs) / 4);
		rr->reply_msgs = mean > 1 ? mean : 1;
	} else if (asked_msgs >= rr->reply_msgs && rr->reply_msgs < REPLY_MSGS_MAX) {
		rr->reply_msgs++;
	}
}

bool tw_rerequest_reply(struct tw_rerequest *rr, struct tw_venue_arb *arb, struct tw_feed *feed,
			const struct tw_packet *packet, uint64_t now_ns)
{
	follow_session(rr, arb);
	struct tw_span span;
	uint32_t server = server_of(rr, packet);
	struct asked *asked = NULL;
	if (server < rr->conf.servers && rr->outstanding > 0 &&
	    feed->session->place(feed, feed->session_state, packet, &span) == TW_PLACE_ORDERED &&
	    span.first_seq < span.end_seq) {
		asked = request_of(rr, &span);
	}
	if (asked == NULL ||
	    !tw_venue_arb_repair(arb, feed, packet, asked->first_seq, asked->end_seq, now_ns)) {
		tw_feed_count(feed, TW_FH_rerequest_refused, 1);
		return false;
	}
	tw_feed_count(feed, TW_FH_rerequest_replies, 1);
	learn(rr, asked->end_seq - asked->first_seq, span.end_seq - span.first_seq);
	rr->server = server;
	rr->answered_ever = true;
	rr->answered_ns = now_ns;
	forget(rr, asked);
	tw_venue_gaps_reopen(tw_venue_arb_gaps(arb), asked->first_seq, asked->end_seq);
	return true;
}
