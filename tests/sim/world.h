/* A simulated site from one seed: one channel, its feedhandler, its publisher (the real packer and
 * history log), the network, and subscribers (the real arbiter), all on virtual time.
 *
 * From the seed come the sizes, the links (loss, duplication, jitter, reordering), and what happens:
 * lines cut, publisher crashes, feedhandler restarts, stalled, late and restarted subscribers, a source
 * that laps the publisher.  After the last of it the network heals, and then everything must come to
 * its end within a bound.
 *
 * Latest         a third of the subscribers take what comes in `latest` mode.
 * Gentle worlds  lose on one line only, cut no other, and reorder within wait_ns: no LOST is allowed but
 *                for what came before a subscriber listened.
 * Repair         in half of the worlds subscribers repair (the real ladder) from servers that answer from
 *                the publisher's real history: honest, slow, or each wrong in its own way.
 * Healing worlds of these have one honest server that can be reached and a history that holds the
 *                session; whatever else happens, what was sent is delivered, all of it.
 * Threads        one. */
#ifndef TW_TESTS_SIM_WORLD_H
#define TW_TESTS_SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct tw_world_conf {
	uint64_t seed;
	uint32_t subscribers; /* 0: from the seed */
	bool verbose;         /* print what happens */
};

struct tw_world_result {
	bool passed;
	char error[512];
	uint64_t trace_hash; /* of every run of every subscriber: equal for equal seeds */
	bool gentle, repairs, healing;
	/* how much of it there was, summed over subscribers */
	uint64_t events, data_msgs, lost_msgs, gaps, fills, ahead, ends, holes, crashes, sessions,
		cuts, stalls, restarts, store_full, set_aside, overflowed, downs, takeovers,
		repaired_msgs, reads, retries, gone, refused, busy, broken, overdue, ignored,
		given_up;
};

void tw_world_run(const struct tw_world_conf *conf, struct tw_world_result *result);

#endif
