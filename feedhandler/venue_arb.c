/* Arbitration of a venue's lines; see venue_arb.h. */
#include "feedhandler/venue_arb.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

struct held {
	struct tw_packet packet; /* its payload is the slot's own room */
	uint64_t first_seq, end_seq;
	bool idle;
};

struct tw_venue_arb {
	struct tw_venue_arb_conf conf;
	struct held *slots;
	uint8_t *room;   /* TW_VENUE_PACKET_MAX_BYTES of each slot */
	uint32_t *order; /* slots held, by first_seq: order[head] .. order[head + held - 1] */
	uint32_t *spare; /* slots not held, those before spare[store_packets - held] */
	uint32_t head, held;
	uint64_t line_first_seq[TW_VENUE_LINES];  /* newest packet of the session under way */
	uint64_t line_empty_turn[TW_VENUE_LINES]; /* when it was last polled empty */
	uint64_t turn;
	uint64_t sessions;
	uint64_t reach_seq;        /* one past all that is held */
	struct tw_venue_gaps gaps; /* in front of what is held and among it */
};

/* A request splits at most the gap that it begins in and the one that it ends in. */
#define GAPS_A_REQUEST 4u

int tw_venue_arb_create(struct tw_venue_arb **arb_p, const struct tw_venue_arb_conf *conf,
			struct tw_error *err)
{
	*arb_p = NULL;
	if (conf->lines == 0 || conf->lines > TW_VENUE_LINES || conf->store_packets == 0) {
		return tw_fail(err, TW_EARG, "venue lines: %u lines, %u packets", conf->lines,
			       conf->store_packets);
	}
	struct tw_venue_arb *arb = calloc(1, sizeof(*arb));
	if (arb == NULL) {
		return tw_fail(err, TW_ENOMEM, "venue lines: out of memory");
	}
	size_t n = conf->store_packets;
	arb->conf = *conf;
	arb->slots = calloc(n, sizeof(*arb->slots));
	arb->order = calloc(n, sizeof(*arb->order));
	arb->spare = calloc(n, sizeof(*arb->spare));
	arb->room = malloc(n * TW_VENUE_PACKET_MAX_BYTES);
	int rc = tw_venue_gaps_init(&arb->gaps,
				    conf->store_packets + GAPS_A_REQUEST * conf->repair + 1, err);
	if (rc != TW_OK) {
		tw_venue_arb_destroy(arb);
		return rc;
	}
	if (arb->slots == NULL || arb->order == NULL || arb->spare == NULL || arb->room == NULL) {
		tw_venue_arb_destroy(arb);
		return tw_fail(err, TW_ENOMEM, "venue lines: out of memory for %zu packets", n);
	}
	memset(arb->room, 0, n * TW_VENUE_PACKET_MAX_BYTES); /* no page fault on the hot path */
	for (uint32_t i = 0; i < conf->store_packets; i++) {
		arb->spare[i] = i;
	}
	*arb_p = arb;
	return TW_OK;
}

void tw_venue_arb_destroy(struct tw_venue_arb *arb)
{
	if (arb != NULL) {
		tw_venue_gaps_fini(&arb->gaps);
		free(arb->slots);
		free(arb->order);
		free(arb->spare);
		free(arb->room);
		free(arb);
	}
}

uint32_t tw_venue_arb_held(const struct tw_venue_arb *arb)
{
	return arb->held;
}

struct tw_venue_gaps *tw_venue_arb_gaps(struct tw_venue_arb *arb)
{
	return &arb->gaps;
}

uint64_t tw_venue_arb_sessions(const struct tw_venue_arb *arb)
{
	return arb->sessions;
}

static enum tw_place place_of(const struct tw_feed *feed, const struct tw_packet *packet,
			      struct tw_span *span)
{
	return feed->session->place(feed, feed->session_state, packet, span);
}

static struct held *held_at(const struct tw_venue_arb *arb, uint32_t at)
{
	return &arb->slots[arb->order[arb->head + at]];
}

static struct held *oldest(const struct tw_venue_arb *arb)
{
	return held_at(arb, 0);
}

static void count_held(const struct tw_venue_arb *arb, const struct tw_feed *feed)
{
	tw_counter_set(&feed->counters, TW_FH_held_packets, arb->held);
	tw_counter_max(&feed->counters, TW_FH_held_max, arb->held);
}

/* To the session layer, whatever is missing before it. */
static void release_oldest(struct tw_venue_arb *arb, struct tw_feed *feed)
{
	uint32_t slot = arb->order[arb->head];
	tw_feed_packet(feed, &arb->slots[slot].packet);
	arb->held--;
	arb->head = arb->held > 0 ? arb->head + 1 : 0;
	arb->spare[arb->conf.store_packets - arb->held - 1] = slot;
}

/* What is missing before `seq` is lost to its last number.  A heartbeat may be held in the middle of a gap. */
static bool is_lost(const struct tw_venue_arb *arb, uint64_t seq)
{
	const struct tw_venue_gap *gap = tw_venue_gaps_at(&arb->gaps, 0);
	return arb->gaps.count > 0 && gap->state == TW_GAP_LOST && gap->end_seq >= seq;
}

/* What has its turn, and what stands behind nothing but what is lost. */
static void release_due(struct tw_venue_arb *arb, struct tw_feed *feed)
{
	struct tw_span span;
	while (arb->held > 0) {
		const struct held *held = oldest(arb);
		bool ahead = place_of(feed, &held->packet, &span) == TW_PLACE_ORDERED &&
			     span.first_seq > span.next_seq;
		if (ahead) {
			tw_venue_gaps_trim(&arb->gaps, span.next_seq);
			if (!is_lost(arb, held->first_seq)) {
				break;
			}
		}
		release_oldest(arb, feed);
	}
	if (arb->held == 0) {
		tw_venue_gaps_clear(&arb->gaps);
	}
	count_held(arb, feed);
}

/* Where it belongs among what is held: behind those that do not begin after it. */
static uint32_t position_of(const struct tw_venue_arb *arb, const struct tw_span *span)
{
	uint32_t low = 0, high = arb->held;
	if (high > 0 && held_at(arb, high - 1)->first_seq <= span->first_seq) {
		return high; /* nearly always the newest */
	}
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (held_at(arb, mid)->first_seq <= span->first_seq) {
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return low;
}

/* The store has it already, or it is a heartbeat that says nothing new. */
static bool is_known(const struct tw_venue_arb *arb, const struct tw_span *span)
{
	if (arb->held == 0) {
		return false;
	}
	if (span->idle) {
		return held_at(arb, arb->held - 1)->end_seq >= span->end_seq;
	}
	uint32_t at = position_of(arb, span);
	const struct held *before = at > 0 ? held_at(arb, at - 1) : NULL;
	if (before == NULL || before->idle) {
		return false;
	}
	/* the end of a session has no messages either, but says more than they do */
	bool empty = span->first_seq == span->end_seq;
	return empty ? before->first_seq == span->first_seq && before->end_seq == span->end_seq
		     : before->end_seq >= span->end_seq;
}

static void hold(struct tw_venue_arb *arb, struct tw_feed *feed, const struct tw_packet *packet,
		 const struct tw_span *span, uint64_t now_ns)
{
	uint32_t at = position_of(arb, span);
	uint32_t slot = arb->spare[arb->conf.store_packets - arb->held - 1];
	if (arb->head + arb->held == arb->conf.store_packets) { /* after as many have left it */
		memmove(arb->order, arb->order + arb->head, arb->held * sizeof(*arb->order));
		arb->head = 0;
	}
	uint32_t *place = arb->order + arb->head + at;
	memmove(place + 1, place, (arb->held - at) * sizeof(*place));
	*place = slot;
	uint8_t *room = arb->room + (size_t)slot * TW_VENUE_PACKET_MAX_BYTES;
	memcpy(room, packet->payload, packet->len_bytes);
	arb->slots[slot] = (struct held){ .packet = *packet,
					  .first_seq = span->first_seq,
					  .end_seq = span->end_seq,
					  .idle = span->idle };
	arb->slots[slot].packet.payload = room;
	if (arb->held++ == 0) {
		arb->reach_seq = span->next_seq;
	}
	if (span->first_seq > arb->reach_seq) {
		tw_venue_gaps_append(&arb->gaps, arb->reach_seq, span->first_seq, now_ns);
	} else {
		tw_venue_gaps_cut(&arb->gaps, span->first_seq, span->end_seq);
	}
	arb->reach_seq = span->end_seq > arb->reach_seq ? span->end_seq : arb->reach_seq;
	tw_feed_count(feed, TW_FH_packets_held, 1);
	count_held(arb, feed);
}

static void give_up(struct tw_venue_arb *arb, struct tw_feed *feed)
{
	if (arb->held > 0) {
		release_oldest(arb, feed);
		release_due(arb, feed);
	}
}

void tw_venue_arb_flush(struct tw_venue_arb *arb, struct tw_feed *feed)
{
	while (arb->held > 0) {
		release_oldest(arb, feed);
	}
	tw_venue_gaps_clear(&arb->gaps);
	count_held(arb, feed);
}

static void note_line(struct tw_venue_arb *arb, const struct tw_packet *packet,
		      const struct tw_span *span)
{
	if (packet->line < arb->conf.lines && span->first_seq > arb->line_first_seq[packet->line]) {
		arb->line_first_seq[packet->line] = span->first_seq;
	}
}

static void take_ahead(struct tw_venue_arb *arb, struct tw_feed *feed,
		       const struct tw_packet *packet, const struct tw_span *span, uint64_t now_ns)
{
	if (is_known(arb, span)) {
		tw_feed_count(feed, span->idle ? TW_FH_heartbeats : TW_FH_duplicate_messages,
			      span->idle ? 1 : span->end_seq - span->first_seq);
		return;
	}
	bool full = arb->held == arb->conf.store_packets;
	if (full) {
		tw_feed_count(feed, TW_FH_store_full, 1);
	}
	if (full && span->first_seq > oldest(arb)->first_seq) {
		give_up(arb, feed);
		struct tw_span now;
		if (place_of(feed, packet, &now) == TW_PLACE_ORDERED &&
		    now.first_seq > now.next_seq) {
			hold(arb, feed, packet, &now, now_ns);
			return;
		}
		full = true; /* what was given up has brought its turn */
	}
	if (full || packet->len_bytes > TW_VENUE_PACKET_MAX_BYTES) {
		tw_feed_packet(feed, packet);
		release_due(arb, feed);
		return;
	}
	hold(arb, feed, packet, span, now_ns);
	if (is_lost(arb, oldest(arb)->first_seq)) {
		release_due(arb, feed); /* it was late, and what is before it lost */
	}
}

void tw_venue_arb_input(struct tw_venue_arb *arb, struct tw_feed *feed,
			const struct tw_packet *packet, uint64_t now_ns)
{
	struct tw_span span;
	switch (place_of(feed, packet, &span)) {
	case TW_PLACE_ASIDE:
		tw_feed_packet(feed, packet);
		return;
	case TW_PLACE_NEW:
		tw_venue_arb_flush(arb, feed);
		arb->sessions++;
		memset(arb->line_first_seq, 0, sizeof(arb->line_first_seq));
		note_line(arb, packet, &span);
		tw_feed_packet(feed, packet);
		return;
	case TW_PLACE_ORDERED:
		break;
	}
	note_line(arb, packet, &span);
	if (__builtin_expect(span.first_seq > span.next_seq, 0)) {
		take_ahead(arb, feed, packet, &span, now_ns);
		return;
	}
	tw_feed_packet(feed, packet);
	if (__builtin_expect(arb->held > 0, 0)) {
		release_due(arb, feed);
	}
}

/* Whether no line can bring it any more: each has passed it, or was polled empty after its time was over.  A poll
 * from before says nothing about what came since. */
static bool no_line_has(const struct tw_venue_arb *arb, const struct tw_venue_gap *gap)
{
	for (uint32_t l = 0; l < arb->conf.lines; l++) {
		if (arb->line_first_seq[l] < gap->end_seq &&
		    arb->line_empty_turn[l] <= gap->timed_turn) {
			return false;
		}
	}
	return true;
}

void tw_venue_arb_turn(struct tw_venue_arb *arb, struct tw_feed *feed, uint32_t empty_lines,
		       uint64_t now_ns)
{
	struct tw_venue_gaps *gaps = &arb->gaps;
	if (__builtin_expect(arb->held == 0, 1)) {
		return;
	}
	arb->turn++;
	for (uint32_t l = 0; l < arb->conf.lines; l++) {
		if ((empty_lines >> l & 1u) != 0) {
			arb->line_empty_turn[l] = arb->turn;
		}
	}
	while (gaps->timed < gaps->count &&
	       now_ns - tw_venue_gaps_at(gaps, gaps->timed)->seen_ns >= arb->conf.wait_ns) {
		tw_venue_gaps_at(gaps, gaps->timed++)->timed_turn = arb->turn;
	}
	while (gaps->due < gaps->timed && no_line_has(arb, tw_venue_gaps_at(gaps, gaps->due))) {
		gaps->due++;
	}
	if (gaps->due > 0 && arb->conf.repair == 0) {
		give_up(arb, feed); /* one a turn, so that none gets long */
	}
}

void tw_venue_arb_lose(struct tw_venue_arb *arb, struct tw_feed *feed, uint64_t first_seq,
		       uint64_t end_seq, bool and_rest)
{
	tw_venue_gaps_lose(&arb->gaps, first_seq, end_seq, and_rest);
	release_due(arb, feed);
}

bool tw_venue_arb_repair(struct tw_venue_arb *arb, struct tw_feed *feed,
			 const struct tw_packet *packet, uint64_t first_seq, uint64_t end_seq,
			 uint64_t now_ns)
{
	struct tw_span span;
	if (arb->held == 0 || place_of(feed, packet, &span) != TW_PLACE_ORDERED || span.idle ||
	    span.first_seq < first_seq || span.end_seq > end_seq ||
	    !tw_venue_gaps_missing(&arb->gaps, span.first_seq, span.end_seq)) {
		return false;
	}
	if (span.first_seq > span.next_seq) {
		if (arb->held == arb->conf.store_packets ||
		    packet->len_bytes > TW_VENUE_PACKET_MAX_BYTES) {
			return false;
		}
		hold(arb, feed, packet, &span, now_ns);
		release_due(arb, feed); /* what is lost may stand right before it */
		return true;
	}
	tw_feed_packet(feed, packet);
	struct tw_span after;
	(void)place_of(feed, packet, &after);
	release_due(arb, feed);
	return after.next_seq >= span.end_seq; /* or its framing does not hold */
}
