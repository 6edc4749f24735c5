/* The venue's lines A and B made one: packets go in as they come, and come out to the session layer in the
 * order of the venue's numbers, as far as any line brings them.
 *
 * Sans-I/O: packets and times are arguments.  What a packet's numbers are is asked of the session layer
 * (tw_session.place); trimming of overlaps, duplicates and the counting of gaps stay there, so that one line,
 * two lines and a file are judged by the same code.
 * Holding     a packet that is ahead of the next number is copied into a store of fixed size, ordered by
 *             number.  Its framing was checked before: what lies is not held in place of what is right.
 * Giving up   a gap waits wait_ns from when it was seen, and after that until every line has either passed it
 *             or been polled empty: a backlog that lies in order in a socket never looks like loss.  It is
 *             then due: given up, or with `repair` asked for, all that are due at once (rerequest.h).
 *             A full store gives the oldest gap up at once, as far as the packet in hand reaches.  Given up
 *             means: the packet behind the gap goes to the session layer, which counts what is missing.
 * Sessions    a packet that begins another session ends the one before: what is held of it goes first.
 * Threads     one. */
#ifndef TW_FEEDHANDLER_VENUE_ARB_H
#define TW_FEEDHANDLER_VENUE_ARB_H

#include <stdbool.h>
#include <stdint.h>

#include "feedhandler/feed.h"
#include "feedhandler/venue_gaps.h"

#define TW_VENUE_LINES            2u
#define TW_VENUE_PACKET_MAX_BYTES 9216u /* UDP payload of a jumbo frame */

struct tw_venue_arb_conf {
	uint32_t lines; /* 1 or 2 */
	uint32_t store_packets;
	uint64_t wait_ns;
	/* this many requests may be outstanding: a gap that is due is given up by tw_venue_arb_lose() and for
	 * want of room alone.  0: nobody can be asked */
	uint32_t repair;
};

struct tw_venue_arb;

int tw_venue_arb_create(struct tw_venue_arb **arb_p, const struct tw_venue_arb_conf *conf,
			struct tw_error *err) TW_MUST_USE;
void tw_venue_arb_destroy(struct tw_venue_arb *arb); /* NULL ok */

/* A packet of packet->line; the feed gets it and what it lets go, now or later. */
void tw_venue_arb_input(struct tw_venue_arb *arb, struct tw_feed *feed,
			const struct tw_packet *packet, uint64_t now_ns);
/* Once a turn: bit l of empty_lines says that line l was polled empty since the turn before. */
void tw_venue_arb_turn(struct tw_venue_arb *arb, struct tw_feed *feed, uint32_t empty_lines,
		       uint64_t now_ns);

/* A packet that somebody was asked for, by a request for first_seq .. end_seq - 1.  It is taken where it brings
 * something that is missing, and nothing that was not asked for; it begins no session.  What is ahead of its
 * turn takes a place of the store, which must have one.  True: taken. */
bool tw_venue_arb_repair(struct tw_venue_arb *arb, struct tw_feed *feed,
			 const struct tw_packet *packet, uint64_t first_seq, uint64_t end_seq,
			 uint64_t now_ns);
/* What is still asked for of such a range nobody will bring; with `and_rest` neither what nobody was asked for
 * of the gap that it ends in. */
void tw_venue_arb_lose(struct tw_venue_arb *arb, struct tw_feed *feed, uint64_t first_seq,
		       uint64_t end_seq, bool and_rest);
/* All that is held, in order: the input ends. */
void tw_venue_arb_flush(struct tw_venue_arb *arb, struct tw_feed *feed);

uint32_t tw_venue_arb_held(const struct tw_venue_arb *arb);
/* What is missing, to be asked for. */
struct tw_venue_gaps *tw_venue_arb_gaps(struct tw_venue_arb *arb);
/* Grows with each session: what was asked for before is void. */
uint64_t tw_venue_arb_sessions(const struct tw_venue_arb *arb);

#endif
