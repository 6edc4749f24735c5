/* One line of a channel at a subscriber: whether it is up, how far it has come, and what it missed by
 * packet_seq.  Part of line arbitration (arb.h).
 *
 * Statistics  go by publisher life: a restarted publisher counts from 1 again and nothing is missing
 *             for that.  A number is missing when it has not come within wait_ns and before the line
 *             was polled empty, or before 64 later ones; so `missing` never has to be taken back.
 * Threads     one. */
#ifndef TW_PROTOCOL_ARB_LINE_H
#define TW_PROTOCOL_ARB_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "tidewire/wire.h"

#define TW_ARB_LIVES 4u /* publishers that may alternate on a line; more only blur statistics */

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
	uint64_t missing, reordered, downs;
	enum tw_arb_line_state state;
	uint32_t last_life; /* index of the one heard last */
	struct tw_arb_life lives[TW_ARB_LIVES];
};

void tw_arb_line_init(struct tw_arb_line *line, uint64_t now_ns);
/* A new session: its numbers and its publishers' lives begin anew.  A line that is up has the time of
 * any silence to bring something of it: what lies in its queue first may be of the session before. */
void tw_arb_line_reset(struct tw_arb_line *line, uint64_t now_ns);
/* Accounts for a datagram's packet_seq. */
void tw_arb_line_count(struct tw_arb_line *line, const struct tw_wire_hdr *hdr, uint64_t now_ns);
/* The line was polled empty: what is still open after wait_ns is missing. */
void tw_arb_line_settle(struct tw_arb_line *line, uint64_t wait_ns, uint64_t now_ns);
/* Heard: true where it comes up by that. */
bool tw_arb_line_heard(struct tw_arb_line *line, uint64_t now_ns);
/* Nothing is there: true where it goes down by that, silent for down_ns. */
bool tw_arb_line_silent(struct tw_arb_line *line, uint64_t down_ns, uint64_t now_ns);

#endif
