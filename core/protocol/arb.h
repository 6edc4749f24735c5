/* Line arbitration of one channel at a subscriber: orders by message number what comes in on lines A
 * and B, trims overlaps, drops duplicates, holds back what is ahead, finds gaps and gives them up as
 * LOST with the exact range.  Sans-I/O: time and datagrams are arguments, deliveries are pulled.
 *
 * What holds   every number of a session is delivered exactly once and in order (but see "Latest"), or
 *              lies in exactly one LOST run (or before `live` began).  Memory is fixed at init; no work depends on
 *              how far apart two numbers are.
 * Use          tw_arb_input() for each datagram of a line, tw_arb_idle() whenever a line was polled
 *              empty; after each of them pull with tw_arb_next() until it returns false.  A datagram
 *              given before that is a broken invariant and asserts.
 * Cost         nearly every datagram is the next one of a session that misses nothing: it is judged, numbered and
 *              given out as it lies, without the list; and a line that is empty costs two comparisons.
 * Gaps         what a line has shown to exist and nobody has brought.  GAP is reported once, when it
 *              is first seen and whatever comes of it; the DATA runs that fill it (or parts of it)
 *              say so, and the LOST runs name exactly what remains.
 * Giving up    a gap waits wait_ns from when it was seen, and after that until every line that is up,
 *              or has not had the time to come up since init, has either passed it or been polled
 *              empty: a backlog that lies in its queue in order never looks like loss, however long
 *              the subscriber stalled.  A full reorder store gives up the oldest gap at once, up to
 *              what the datagram in hand brings of it.
 * Latest       with conf.latest nothing waits for a gap: what comes ahead of one is given out at once, in
 *              the datagram that brought it, and what fills it when it comes.  Still every number is
 *              delivered once or lies in one LOST run; GAP precedes all that lies beyond it, the DATA
 *              runs of one datagram come in order, LOST runs come in order and each when all before it
 *              is decided, and so does END.  Nothing is stored: store_dgrams bounds the list alone,
 *              which has about two segments for a gap.  A full list is treated as a full store is, but
 *              what goes on where the last datagram ended finds room all the same.
 * Repair       with conf.repair no gap is given up by time: whoever repairs looks at the open gaps, hands
 *              in what history has of them with tw_arb_repair(), and says with tw_arb_give_up() what
 *              nobody will bring.  What comes from history decides only numbers that were asked for and
 *              that the lines have shown to exist, in the current session; it changes no line's state,
 *              begins no session and ends none.  While some server is to be expected to answer
 *              (tw_arb_expect_repair()) a full store gives up nothing either: what finds no room is
 *              set aside, that is, it becomes part of what is missing, and history brings it when
 *              its turn comes.  Otherwise a full store gives up the oldest gap as ever, but not
 *              for a datagram from history: that one is refused.
 * Holes        what a HOLE names and nobody has brought yet becomes LOST in its turn, without a GAP
 *              run where it had not been seen as one.  Whoever is first decides: a HOLE takes nothing
 *              back that is held, and data that comes after the HOLE is a duplicate.
 * Sessions     SESSION precedes everything of a session, the first one too.  A higher session ends
 *              the one before: what is held is delivered, what is missing of the numbers known to
 *              exist is LOST, END if it had been announced; then SESSION.  Lower ones are stale, also
 *              where a stalled subscriber finds them behind the new one in the other line's queue; so
 *              is the one that a lower session took over from (session_takeover_ns).
 * End          the first END that contradicts nothing heard is final.  A smaller END than what is
 *              known to exist, a different END later, and whatever lies beyond the END are refused
 *              and counted (tw_arb_contradictions()).
 * Lines        LINE_UP with the first datagram of the session (or a newer one); LINE_DOWN where a line
 *              polled empty, or bringing nothing but stale sessions, has been silent for three
 *              heartbeat_max_ns, since the session began at the earliest; so too, once, where it was
 *              never heard at all.  Nobody waits for a line that is down.
 * Ownership    a run's bytes lie in the datagram just given to tw_arb_input(), or in the reorder store
 *              until the next tw_arb_input() or tw_arb_idle().
 * Threads      one. */
#ifndef TW_PROTOCOL_ARB_H
#define TW_PROTOCOL_ARB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"
#include "wire/datagram.h"

#define TW_MAX_LINES            2u
#define TW_ARB_STORE_MAX_DGRAMS 65536u

/* Message, packet and session numbers are 64 bits from 1 and never wrap: the one place that says
 * what "before" means for them. */
static inline bool tw_seq_before(uint64_t a_seq, uint64_t b_seq)
{
	return a_seq < b_seq;
}

enum tw_arb_start {
	TW_START_SESSION = 0, /* from message 1: what came before us is LOST unless repaired */
	TW_START_LIVE         /* from the first message heard: what came before does not count */
};

struct tw_arb_conf {
	uint16_t channel;
	uint16_t environment;
	bool accept_replay;
	enum tw_arb_start start;
	uint32_t lines;            /* 1 or 2 */
	uint64_t wait_ns;          /* how long a gap waits for the other line or a late datagram */
	uint64_t heartbeat_max_ns; /* a line silent for three of them is down */
	uint64_t session_takeover_ns; /* only a lower session for so long: adopt it; 0: never */
	uint32_t store_dgrams;        /* reorder store, 1 to TW_ARB_STORE_MAX_DGRAMS */
	uint32_t mtu_bytes;           /* no datagram given to tw_arb_input() is longer */
	bool repair; /* gaps are given up by tw_arb_give_up() and for want of room alone */
	bool latest; /* what is ahead of a gap does not wait for it */
};

/* What tw_arb_input() did with a datagram; exactly one, for the line's counters.  A HOLE counts by
 * what it decides, as data does by what it brings. */
enum tw_arb_result {
	TW_ARB_FIRST = 0, /* brought something new, and that in order or in `latest`: pull it */
	TW_ARB_HELD,      /* ahead of a gap: copied into the store */
	TW_ARB_SET_ASIDE, /* ahead of a gap, no room in the store: left to repair */
	TW_ARB_DUPLICATE, /* nothing new */
	TW_ARB_HEARTBEAT,
	TW_ARB_STALE, /* an older session (see session_takeover_ns) */
	TW_ARB_FOREIGN_CHANNEL,
	TW_ARB_FOREIGN_ENVIRONMENT,
	TW_ARB_FOREIGN_REPLAY,
	TW_ARB_RESULTS
};

enum tw_arb_run_type {
	TW_RUN_DATA = 1, /* `count` messages at `msgs` */
	/* first_seq .. end_seq - 1 are missing so far and may still come.  Not in order: said as
	 * soon as it is seen, ahead of what is still held. */
	TW_RUN_GAP,
	TW_RUN_LOST, /* they will not come */
	TW_RUN_SESSION, /* a new session: expectations are reset; first_seq is where it begins for us */
	TW_RUN_END,     /* the session has ended and everything of it was delivered or LOST */
	TW_RUN_LINE_DOWN, /* `line` */
	TW_RUN_LINE_UP
};

struct tw_arb_run {
	enum tw_arb_run_type type;
	/* DATA: the line it came in on, 0 where it is from history; LINE_UP, LINE_DOWN: which */
	uint8_t line;
	bool from_store;     /* DATA: it was held back */
	bool fills_gap;      /* DATA: (part of) a gap that had been reported */
	bool repaired;       /* DATA: with fills_gap: by history, not by a line */
	const uint8_t *msgs; /* DATA: first message, after trimming */
	uint32_t bytes, count;
	uint64_t first_seq, end_seq;
	uint64_t session;
	uint64_t send_ns, recv_ns; /* DATA: of its datagram */
	/* DATA that fills a gap, and LOST: mono time since the gap was seen; 0 where a HOLE came
	 * before anyone saw a gap. */
	uint64_t gap_ns;
};

/* By packet_seq and publisher life: see arb_line.h. */
struct tw_arb_line_stats {
	uint64_t missing, reordered;
	uint64_t downs; /* from up to down; a line never heard has not gone down */
	bool up;
};

struct tw_arb; /* opaque; lives in caller memory of tw_arb_size() bytes */

/* Bytes that an arbiter of this configuration needs (0: it is not valid), and its making; memory is
 * 64-byte aligned.  TW_EARG for an invalid configuration or memory that is too small or unaligned. */
size_t tw_arb_size(const struct tw_arb_conf *conf);
int tw_arb_init(struct tw_arb **arb_p, void *memory, size_t size_bytes,
		const struct tw_arb_conf *conf, uint64_t now_ns) TW_MUST_USE;

/* `dgram` has passed tw_dgram_parse(). `recv_ns` is the wall-clock stamp, now_ns mono. */
enum tw_arb_result tw_arb_input(struct tw_arb *arb, uint32_t line, const struct tw_dgram *dgram,
				uint64_t recv_ns, uint64_t now_ns);
/* The line's receive queue was found empty at now_ns.  false: nothing has come of that; there is nothing to pull
 * that was not there before, and no figure has changed. */
bool tw_arb_idle(struct tw_arb *arb, uint32_t line, uint64_t now_ns);
/* Next run in order; false: nothing (more) now, and *run is as it was. */
bool tw_arb_next(struct tw_arb *arb, struct tw_arb_run *run);

/* --- repair ---------------------------------------------------------------------------------- */

#define TW_ARB_NO_GAP UINT32_MAX

/* An open gap. */
struct tw_arb_gap {
	uint64_t first_seq, end_seq;
	uint64_t seen_ns;
	bool due;    /* every line that is not down has passed it, or wait_ns is over */
	bool passed; /* nothing of it may still come on a line: see "Giving up" */
	bool has_place;
	/* has_place: it begins with the session, and the place with a log: there it lies, but where what lies
	 * after it is of a publisher that was not the session's first, whose log begins later */
	bool head;
	uint32_t publisher; /* has_place: it lies in [begin_pos, end_pos) of this one's history */
	uint64_t begin_pos, end_pos;
};

/* What the repair ladder keeps with a gap: zeroes for a new one; the parts of a gap that is cut all
 * have it.  The arbiter does not look at it. */
struct tw_arb_note {
	uint64_t asked_to; /* up to where it was asked for in this round */
	uint64_t retry_ns; /* when the next round may begin */
	uint8_t rounds;    /* begun */
	uint8_t server;    /* asked last */
	bool asked_by_seq; /* what asked_to is */
	bool by_seq;       /* its place has not proved right */
	uint64_t
		grace_ns; /* when it is given up instead, where nobody looked for long; 0: not so */
};

/* Open gaps in order.  Ids hold until the next call that is not of a const arbiter; TW_ARB_NO_GAP ends
 * the list.  Gaps that are due come before all that are not. */
uint32_t tw_arb_gaps(const struct tw_arb *arb); /* how many */
/* The first one of which something lies at or after `seq`; TW_ARB_NO_GAP, too, where none does before
 * end_seq. */
uint32_t tw_arb_gap_from(const struct tw_arb *arb, uint64_t seq, uint64_t end_seq);
uint32_t tw_arb_gap_first(const struct tw_arb *arb);
uint32_t tw_arb_gap_after(const struct tw_arb *arb, uint32_t gap_id);
void tw_arb_gap(const struct tw_arb *arb, uint32_t gap_id, uint64_t now_ns, struct tw_arb_gap *out);
struct tw_arb_note *tw_arb_gap_note(struct tw_arb *arb, uint32_t gap_id);
/* One place in the list that outlasts changes, TW_ARB_NO_GAP: behind its end.  Where its gap goes away
 * it moves on to the next, and from behind the end to a new gap, so that what lies before it is what was
 * walked over. */
uint32_t tw_arb_gap_walker(const struct tw_arb *arb);
void tw_arb_gap_walk_to(struct tw_arb *arb, uint32_t gap_id);
/* Whether there is room for what history has of the gap: a free slot, or nothing is held before it.  Looks
 * at no more than a few gaps, so that false may also mean that many lie before it. */
bool tw_arb_gap_has_room(const struct tw_arb *arb, uint32_t gap_id);
uint64_t tw_arb_gaps_seen(const struct tw_arb *arb); /* ever */
/* Every line that is not down has shown the numbers before it; UINT64_MAX: all lines are down. */
uint64_t tw_arb_shown_seq(const struct tw_arb *arb);

/* Only numbers of [first_seq, end_seq) may be decided by tw_arb_repair() from now on. */
void tw_arb_asked(struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq);
/* Whether a server may still bring what is missing: false at first, and without conf.repair for ever. */
void tw_arb_expect_repair(struct tw_arb *arb, bool expected);
enum tw_arb_repaired {
	TW_ARB_REPAIRED = 0,   /* brought something: pull it */
	TW_ARB_REPAIR_NOTHING, /* nothing that is missing and was asked for */
	TW_ARB_REPAIR_NO_ROOM, /* the store is full */
	TW_ARB_REPAIR_REFUSED  /* another channel, environment or session, a heartbeat, too long */
};
/* A datagram from history; use as tw_arb_input(). */
enum tw_arb_repaired tw_arb_repair(struct tw_arb *arb, const struct tw_dgram *dgram,
				   uint64_t recv_ns, uint64_t now_ns);
/* What is missing of [first_seq, end_seq) becomes LOST in its turn; a gap that lies only partly in it is
 * cut, or left alone where the list has no room for that.  Pull afterwards.  Returns how many. */
uint64_t tw_arb_give_up(struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq, uint64_t now_ns);
uint64_t tw_arb_repaired_msgs(const struct tw_arb *arb);
uint64_t tw_arb_repair_no_room(const struct tw_arb *arb); /* datagrams refused for want of room */
const struct tw_arb_conf *tw_arb_conf(const struct tw_arb *arb);

/* --- reading --------------------------------------------------------------------------------- */

uint64_t tw_arb_session(const struct tw_arb *arb);  /* 0: none heard yet */
uint64_t tw_arb_next_seq(const struct tw_arb *arb); /* next to deliver; all before it is decided */
uint32_t tw_arb_held(const struct tw_arb *arb);     /* datagrams in the store */
uint64_t tw_arb_store_full(const struct tw_arb *arb);     /* gaps given up for want of room */
uint64_t tw_arb_set_aside(const struct tw_arb *arb);      /* datagrams left to repair for it */
uint64_t tw_arb_contradictions(const struct tw_arb *arb); /* datagrams that an END contradicts */
void tw_arb_line_stats(const struct tw_arb *arb, uint32_t line, struct tw_arb_line_stats *out);
/* Whether, since this was last asked, the figures from tw_arb_held() on may have changed, or a gap was seen. */
bool tw_arb_figures_changed(struct tw_arb *arb);

#endif
