/* What is missing of a venue's numbers, as ranges in order: who waits for a line, who may be asked for, who has
 * been, and who is lost.
 *
 * Order       by number, and so by the time they were seen: a gap begins behind all that was there before it.
 *             Those whose time is over come first, and those that no line may bring any more first among them.
 * Pieces      what is asked for is a range of its own from then on.  Neighbours of one state without a
 *             message between them are made one again, so that they number no more than what is held and what
 *             is outstanding.
 * Cost        a search is a bisection, a change moves the nearer end; who is asked for is near the front.
 * Memory      one array of fixed size, made at start.
 * Threads     one. */
#ifndef TW_FEEDHANDLER_VENUE_GAPS_H
#define TW_FEEDHANDLER_VENUE_GAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "tidewire/error.h"

enum tw_gap_state {
	TW_GAP_OPEN = 0, /* nobody was asked */
	TW_GAP_ASKED,    /* somebody was, and may still bring it */
	TW_GAP_LOST      /* nobody will bring it: it goes with what is behind it */
};

struct tw_venue_gap { /* first_seq .. end_seq - 1 */
	uint64_t first_seq, end_seq;
	uint64_t seen_ns;
	uint64_t
		timed_turn; /* the turn in which its time was over; while it is among the timed ones */
	enum tw_gap_state state;
};

struct tw_venue_gaps {
	struct tw_venue_gap *room;
	uint32_t capacity;
	uint32_t head, count; /* room[head] .. room[head + count - 1] */
	uint32_t timed;       /* the first so many have waited long enough */
	uint32_t due;         /* of these, so many cannot come by a line any more */
	uint64_t open_seq;    /* no due one that is open ends at or before it */
};

int tw_venue_gaps_init(struct tw_venue_gaps *gaps, uint32_t capacity,
		       struct tw_error *err) TW_MUST_USE;
void tw_venue_gaps_fini(struct tw_venue_gaps *gaps); /* a zeroed one is fine */
void tw_venue_gaps_clear(struct tw_venue_gaps *gaps);

static inline struct tw_venue_gap *tw_venue_gaps_at(const struct tw_venue_gaps *gaps, uint32_t i)
{
	return &gaps->room[gaps->head + i];
}

/* Another one, behind all others. */
void tw_venue_gaps_append(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq,
			  uint64_t now_ns);
/* Those numbers are here. */
void tw_venue_gaps_cut(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq);
/* Everything before next_seq is over. */
void tw_venue_gaps_trim(struct tw_venue_gaps *gaps, uint64_t next_seq);
/* Whether anything of the range is missing. */
bool tw_venue_gaps_missing(const struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq);

/* Takes the oldest that is due and open, and those behind it that are whole within max_msgs of its beginning:
 * they are ASKED now.  False: there is none. */
bool tw_venue_gaps_ask(struct tw_venue_gaps *gaps, uint64_t max_msgs, uint64_t *first_seq,
		       uint64_t *end_seq);
/* Whether anything ASKED of such a range is still missing. */
bool tw_venue_gaps_asked(const struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq);
/* What is still ASKED of it may be asked for again. */
void tw_venue_gaps_reopen(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq);
/* What is still ASKED of it is lost; with `and_rest` also what nobody was asked for of the gap that it ends in. */
void tw_venue_gaps_lose(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq,
			bool and_rest);

#endif
