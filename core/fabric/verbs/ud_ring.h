/* What is under way in one send queue.
 *
 * Numbers   work requests are numbered from 1 (their wr_id); the completion of one says that all
 *           before it are done too, so that just some ask for one.
 * Signals   one in `every`, and the last of a chain wherever no completion is on its way: a lone
 *           datagram is then known to be done as soon as it is.  The last few of a burst may stay
 *           unknown until the next post, which asks: a publisher's heartbeat comes soon.
 * Skipped   datagrams that the line did not take need no completion: they are done when everything
 *           before them is.
 * Threads   the flow's owner.  Pure: no clock, no device. */
#ifndef TW_FABRIC_VERBS_UD_RING_H
#define TW_FABRIC_VERBS_UD_RING_H

#include <stdbool.h>
#include <stdint.h>

struct tw_ud_ring {
	uint64_t posted, completed; /* work requests, free-running */
	uint64_t signalled;         /* the last one that asks for a completion */
	uint64_t *dgram; /* by number modulo depth: which datagram of the endpoint it is */
	uint32_t depth;  /* a power of two */
	uint32_t every;  /* at most depth / 2 */
};

static inline void tw_ud_ring_init(struct tw_ud_ring *ring, uint64_t *dgram, uint32_t depth,
				   uint32_t every)
{
	*ring = (struct tw_ud_ring){ .dgram = dgram, .depth = depth, .every = every };
}

static inline uint32_t tw_ud_ring_used(const struct tw_ud_ring *ring)
{
	return (uint32_t)(ring->posted - ring->completed);
}

static inline uint32_t tw_ud_ring_room(const struct tw_ud_ring *ring)
{
	return ring->depth - tw_ud_ring_used(ring);
}

/* Takes the next number for datagram `dgram` (counted from 1 over the endpoint's life).  Room must
 * be there.  Returns whether that work request is to ask for a completion. */
static inline bool tw_ud_ring_post(struct tw_ud_ring *ring, uint64_t dgram, bool last)
{
	const uint64_t number = ++ring->posted;
	ring->dgram[number & (ring->depth - 1)] = dgram;
	const bool none_coming = ring->signalled <= ring->completed;
	if (number - ring->signalled >= ring->every || (last && none_coming)) {
		ring->signalled = number;
		return true;
	}
	return false;
}

/* The last `n` numbers were not taken by the queue after all. */
static inline void tw_ud_ring_unpost(struct tw_ud_ring *ring, uint32_t n)
{
	ring->posted -= n;
	if (ring->signalled > ring->posted) {
		/* one that is still there may have asked before it: to be sure, ask with the next */
		ring->signalled = ring->completed;
	}
}

/* The completion of `number`.  False: nothing of that number is under way. */
static inline bool tw_ud_ring_complete(struct tw_ud_ring *ring, uint64_t number)
{
	if (number <= ring->completed || number > ring->posted) {
		return false;
	}
	ring->completed = number;
	return true;
}

/* Datagrams of the endpoint that this line has nothing to do with any more, of `total` offered. */
static inline uint64_t tw_ud_ring_done(const struct tw_ud_ring *ring, uint64_t total)
{
	if (ring->completed == ring->posted) {
		return total;
	}
	return ring->dgram[(ring->completed + 1) & (ring->depth - 1)] - 1;
}

#endif
