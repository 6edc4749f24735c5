/* One line of a channel at a subscriber: whether it is up, how far it has come, and what it missed by
 * packet_seq.  Part of line arbitration (arb.h).
 *
 * Statistics  go by publisher life: a restarted publisher counts from 1 again and nothing is missing
 *             for that.  A number is missing when it has not come within wait_ns and before the line
 *             was polled empty, or before 64 later ones; so `missing` never has to be taken back.
 * Cost        a datagram that follows the one before it, of a publisher that misses nothing, is an addition; a
 *             line that is polled empty is looked at when time can have changed something (check_ns).
 * Threads     one. */
#ifndef TW_PROTOCOL_ARB_LINE_H
#define TW_PROTOCOL_ARB_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tidewire/wire.h"

#define TW_ARB_LIVES    4u /* publishers that may alternate on a line; more only blur statistics */
#define TW_ARB_SEEN_ALL UINT64_MAX

struct tw_arb_life {
	uint64_t next_seq; /* highest packet_seq + 1; 0: unused */
	uint64_t seen;     /* bit i: next_seq - 1 - i came, or has been counted as missing */
	uint64_t grown_ns; /* when next_seq last grew */
	uint32_t publisher;
};

enum tw_arb_line_state { TW_ARB_LINE_NEW = 0, TW_ARB_LINE_UP, TW_ARB_LINE_DOWN };

struct tw_arb_line {
	uint64_t end_seq;  /* one past the highest message number it has shown in this session */
	uint64_t heard_ns; /* mono, last datagram of this session */
	uint64_t idle_ns;  /* mono, last polled empty */
	uint64_t check_ns; /* before that tw_arb_line_check() finds nothing */
	enum tw_arb_line_state state;
	struct tw_arb_life lives[TW_ARB_LIVES]; /* the one heard last is the first */
	uint64_t missing, reordered, downs;
};

void tw_arb_line_init(struct tw_arb_line *line, uint64_t now_ns);
/* A new session: its numbers and its publishers' lives begin anew.  A line that is up has the time of
 * any silence to bring something of it: what lies in its queue first may be of the session before. */
void tw_arb_line_reset(struct tw_arb_line *line, uint64_t now_ns);
/* Nothing is there: true where it goes down by that, silent for down_ns. */
bool tw_arb_line_silent(struct tw_arb_line *line, uint64_t down_ns, uint64_t now_ns);
/* The line was polled empty, at check_ns or later: what is still open after wait_ns is missing, and a line that
 * was silent for down_ns goes down; true where it does. */
bool tw_arb_line_check(struct tw_arb_line *line, uint64_t wait_ns, uint64_t down_ns,
		       uint64_t now_ns);

/* Heard: true where it comes up by that. */
static inline bool tw_arb_line_heard(struct tw_arb_line *line, uint64_t now_ns)
{
	line->heard_ns = now_ns;
	if (line->state == TW_ARB_LINE_UP) {
		return false;
	}
	line->state = TW_ARB_LINE_UP;
	line->check_ns = 0;
	return true;
}

/* Accounts for a datagram's packet_seq; false: `missing` and `reordered` are what they were. */
bool tw_arb_line_count_any(struct tw_arb_line *line, const struct tw_wire_hdr *hdr,
			   uint64_t now_ns);
static inline bool tw_arb_line_count(struct tw_arb_line *line, const struct tw_wire_hdr *hdr,
				     uint64_t now_ns)
{
	struct tw_arb_life *life = &line->lives[0];

	if (life->publisher != hdr->publisher || life->next_seq != hdr->packet_seq ||
	    life->seen != TW_ARB_SEEN_ALL || (hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		return tw_arb_line_count_any(line, hdr, now_ns);
	}
	life->next_seq++;
	life->grown_ns = now_ns;
	return false;
}

#endif
