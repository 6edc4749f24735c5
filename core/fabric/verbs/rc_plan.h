/* Repair by RDMA READ, as far as it needs no device: which READs a range takes, and whether what they brought
 * holds.
 *
 * Chain     The bytes, two READs where the range goes over the end of the log, then the control line: it is not
 *           read before the bytes are there.  Whoever reads has to know beforehand that the
 *           range is published: bytes of a datagram that is being written belong to no earlier lap, and
 *           `intent` says nothing against them.  Where the last control line that was read does not
 *           say so, one more is read before the bytes, and those wait for it.
 * Legs      What has to wait begins a leg of the chain, and a leg is posted when the one before it has completed.
 *           IBV_SEND_FENCE would say the same to the device, but see docs/decisions/021.
 * Judging   session and publisher, then published as known before the bytes, then intent: the rule of
 *           docs/WIRE.md section 8.  A life's own `intent` is never below its `published`, so that a control
 *           line which a new life is just writing does not pass.
 * First life  A grant of session 0 is for memory in which nothing has begun yet: the first life that is read there is
 *           the one that it is for, and it had no `published` before it that could be taken for its own.
 * Threads   pure functions. */
#ifndef TW_FABRIC_VERBS_RC_PLAN_H
#define TW_FABRIC_VERBS_RC_PLAN_H

#include "fabric/verbs/rc_wire.h"
#include "tidewire/wire.h"

#define TW_RC_CHAIN_MAX 4u
#define TW_RC_DEPTH_MAX 16u /* READs under way on one queue pair */

enum tw_rc_target { TW_RC_BYTES = 0, TW_RC_CONTROL_BEFORE, TW_RC_CONTROL_AFTER };

struct tw_rc_step { /* one READ */
	uint64_t remote_addr;
	uint32_t bytes;
	uint32_t offset_bytes; /* TW_RC_BYTES: where they go in the slot */
	enum tw_rc_target target;
	bool waits; /* for all before it: begins a leg */
};
struct tw_rc_chain { /* signalled: the last of each leg */
	struct tw_rc_step steps[TW_RC_CHAIN_MAX];
	uint32_t count;
	bool before; /* a control line is read before the bytes, too */
};

/* The chain for a read by position; `published` as the last control line of this login has shown, 0: none
 * has.  TW_READ_OK; REFUSED: larger than the log.  What is asked of another life than the grant's is READ as
 * well: whose life it is now is what the control line says. */
enum tw_read_status tw_rc_chain_make(struct tw_rc_chain *chain, const struct tw_rc_grant *grant,
				     const struct tw_read *read, uint64_t published);

/* One past the last step of the leg that begins with step `at`. */
uint32_t tw_rc_leg_end(const struct tw_rc_chain *chain, uint32_t at);

/* Whether the bytes hold.  `before` NULL: `published` covered the range already.  *published grows where a
 * control line of the right life shows more; a grant for the first life gets its numbers.  BROKEN: what
 * was read is no control line of that log. */
enum tw_read_status tw_rc_judge(struct tw_rc_grant *grant, const struct tw_read *read,
				const struct tw_wire_control *before,
				const struct tw_wire_control *after, uint64_t *published);

/* Whether the grant is for a life that has ended: time to log in anew. */
bool tw_rc_life_is_over(const struct tw_rc_grant *grant, const struct tw_wire_control *after);

/* READs that may be under way: what both devices can do; 0: none. */
uint32_t tw_rc_depth(uint32_t initiator, uint32_t responder);

/* The `timeout` of a queue pair (4.096 us * 2^n) so that a peer which is silent through TW_RC_RETRIES
 * retransmissions is given up about then, within what devices take. */
#define TW_RC_RETRIES \
	6u /* rxe takes 7, as of receivers that are not ready, for ever (kernel 6.1) */
/* Of the end that READs: the most that there is, and where it is for ever tw_rc_stuck_ns() ends it. */
#define TW_RC_READER_RETRIES 7u
uint8_t tw_rc_ack_timeout(uint64_t give_up_ns);
/* How long READs may take from one completion to the next: twice what a device retransmits for, and where gaps
 * may wait for long a quarter of that, so that a peer which stands still for a moment keeps its queue pair. */
uint64_t tw_rc_stuck_ns(uint64_t give_up_ns);

#endif
