/* What a subscriber was given, checked against what was sent: the one judge of the arbiter's tests,
 * its fuzzer and the simulation.
 *
 * Messages   are a function of (session, number): any of them can be made, and compared byte by byte,
 *            without keeping them.
 * Checked    with every run: one session at a time; DATA and LOST in order without gap or overlap, so
 *            that they partition the numbers; the bytes of each message; counts and lengths; GAP runs
 *            in order, disjoint, and never behind what was delivered; fills_gap and gap_ns exactly on
 *            what lies in a reported gap, `repaired` on nothing else; END once, at the end; nothing after it; line states alternate.
 * Latest     with `latest` the numbers that are missing are kept as parts of the reported gaps: DATA lies in
 *            them, or begins where all that is known ends; LOST comes in order, where all before it is
 *            decided.  What is left out without a GAP can only be a hole, and so LOST in the end.
 * LOST       must be excusable: never a number that was given as data and accepted before a hole named
 *            it, and never one that was not made.  The caller says what it gave with tw_ledger_give().
 * Threads    one. */
#ifndef TW_TESTS_SIM_LEDGER_H
#define TW_TESTS_SIM_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/arb.h"

#define TW_LEDGER_SESSIONS 8u
#define TW_LEDGER_MSGS     1024u /* tracked by number; beyond that only order is checked */
#define TW_LEDGER_GAPS     512u
#define TW_LEDGER_LENT     64u /* runs of one datagram that are looked at again */

/* Fills in message `seq` of `session` (up to TW_MSG_MAX_BYTES, 8-byte aligned) and returns its length. */
uint32_t tw_ledger_msg(void *msg, uint64_t session, uint64_t seq);
uint32_t tw_ledger_msg_bytes(uint64_t session, uint64_t seq);

/* A datagram to be made: messages [first_seq, end_seq), or with flags a heartbeat or a hole. */
struct tw_ledger_spec {
	uint8_t flags;
	uint16_t channel, environment;
	uint32_t publisher;
	uint64_t session, packet_seq, log_pos, first_seq, end_seq, send_ns;
};
/* Writes it to `to` (TW_WIRE_DGRAM_MAX_BYTES, 8-byte aligned) and returns its length, whole units.  As
 * many messages as fit in mtu_bytes: see msg_count. */
uint32_t tw_ledger_dgram(void *to, uint32_t mtu_bytes, const struct tw_ledger_spec *spec);

struct tw_ledger_gap {
	uint64_t first_seq, end_seq;
	uint64_t seen_ns; /* tw_ledger.now_ns at the time */
	bool silent;      /* latest: passed over without GAP */
};

/* Bytes that the arbiter has lent; they must stay as they are until the next datagram. */
struct tw_ledger_lent {
	const uint8_t *msgs;
	uint32_t bytes;
	uint64_t hash;
};

struct tw_ledger {
	uint64_t session, next_seq, end_seq; /* end_seq: of the ended session */
	bool started, ended;
	bool any_content;     /* set by the caller: messages are not those of tw_ledger_msg() */
	bool latest;          /* set by the caller, as the arbiter's */
	uint64_t front_seq;   /* latest: one past all that is known */
	uint64_t gap_end_seq; /* of the last reported gap */
	uint32_t gap_count;   /* reported gaps not yet passed; latest: what is open of them */
	struct tw_ledger_gap gaps[TW_LEDGER_GAPS];
	uint32_t lent_count;
	struct tw_ledger_lent lent[TW_LEDGER_LENT];
	uint64_t now_ns; /* set by the caller, who asks tw_ledger_oldest_gap_ns() */
	uint8_t line_up[TW_MAX_LINES], line_known[TW_MAX_LINES];
	uint64_t sessions[TW_LEDGER_SESSIONS]; /* of `given` */
	uint8_t given[TW_LEDGER_SESSIONS][TW_LEDGER_MSGS];
	/* totals */
	uint64_t data_msgs, lost_msgs, repaired_msgs, gaps_reported, sessions_begun, ends, fills,
		ahead; /* runs given out ahead of something missing */
	uint64_t last_lost_first_seq, last_lost_end_seq;
	char error[256]; /* of the first thing that was wrong, empty while all is well */
};

void tw_ledger_init(struct tw_ledger *ledger);
/* The arbiter was given this datagram and answered `result`. */
void tw_ledger_give(struct tw_ledger *ledger, const struct tw_dgram *dgram,
		    enum tw_arb_result result);
/* It took messages [first_seq, end_seq) of this one, which came from history. */
void tw_ledger_repair(struct tw_ledger *ledger, const struct tw_dgram *dgram, uint64_t first_seq,
		      uint64_t end_seq);
/* Whatever comes of `seq` later is too late: it was given up. */
void tw_ledger_too_late(struct tw_ledger *ledger, uint64_t session, uint64_t seq);
/* The arbiter gave this run.  false: something is wrong, see error. */
bool tw_ledger_take(struct tw_ledger *ledger, const struct tw_arb_run *run);
/* All has been pulled: whether what was lent is still as it was. */
bool tw_ledger_pulled(struct tw_ledger *ledger);
/* When the gap was seen that is next to be filled or given up; UINT64_MAX: none is. */
uint64_t tw_ledger_oldest_gap_ns(const struct tw_ledger *ledger);
/* Whether number `seq` of the session was given as data before a hole named it. */
bool tw_ledger_was_given(const struct tw_ledger *ledger, uint64_t session, uint64_t seq);

#endif
