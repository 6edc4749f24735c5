/* `sim`: a network on virtual time.  One sender, any number of receivers, one or two lines; each
 * receiver's link to each line loses, doubles, delays and reorders by itself, from one seed.
 *
 * Time       is that of the last event that tw_sim_next() returned; nothing here looks at a clock.
 * Order      a link is first in, first out, whatever its jitter; only a datagram chosen for reordering
 *            comes reorder_ns later than it would have and lets others pass.  Events of one time come
 *            in the order in which they were made: the same seed and calls give the same run.
 * Queues     arrivals wait in a receive queue of fixed depth for tw_sim_recv(); a full one drops, as a
 *            socket or an exhausted receive queue does.
 * Ownership  tw_sim_send() copies; a received datagram is valid until the endpoint's next tw_sim_recv()
 *            or tw_sim_clear().
 * Threads    one. */
#ifndef TW_FABRIC_SIM_NET_H
#define TW_FABRIC_SIM_NET_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/sim/rng.h"
#include "tidewire/error.h"

#define TW_SIM_MAX_LINES 2u

struct tw_sim_link {
	uint32_t loss_ppm, duplicate_ppm, reorder_ppm;
	uint64_t delay_ns, jitter_ns, reorder_ns;
	bool cut; /* partitioned: nothing that is sent comes through */
	/* counted by the network */
	uint64_t sent, lost, duplicated, reordered, overflowed;
};

struct tw_sim_conf {
	uint64_t seed;
	uint32_t receivers;
	uint32_t lines;
	uint32_t queue_dgrams; /* depth of every receive queue */
};

enum tw_sim_event_type {
	TW_SIM_ARRIVAL = 1, /* a datagram waits in the queue of receiver and line */
	TW_SIM_TIMER
};

struct tw_sim_event {
	enum tw_sim_event_type type;
	uint32_t receiver, line; /* ARRIVAL */
	uint64_t timer;          /* TIMER: as given */
};

struct tw_sim_dgram {
	const uint8_t *data; /* 64-byte aligned */
	uint32_t len_bytes;
};

struct tw_sim;

int tw_sim_open(struct tw_sim **sim_p, const struct tw_sim_conf *conf) TW_MUST_USE;
void tw_sim_close(struct tw_sim *sim); /* NULL ok */

/* A link's settings, to be changed at any time; they apply to what is sent from then on. */
struct tw_sim_link *tw_sim_link(struct tw_sim *sim, uint32_t receiver, uint32_t line);

uint64_t tw_sim_now(const struct tw_sim *sim);
/* Sends one datagram to every receiver of a line.  TW_ENOMEM: it went to none, or not to all. */
int tw_sim_send(struct tw_sim *sim, uint32_t line, const void *data,
		uint32_t len_bytes) TW_MUST_USE;
/* Makes a TIMER event at `at_ns`, or now where that is past. */
int tw_sim_timer(struct tw_sim *sim, uint64_t at_ns, uint64_t timer) TW_MUST_USE;
/* Advances time to the next event; false: there is none. */
bool tw_sim_next(struct tw_sim *sim, struct tw_sim_event *event);
/* Takes the oldest datagram from a receive queue; false: it is empty. */
bool tw_sim_recv(struct tw_sim *sim, uint32_t receiver, uint32_t line, struct tw_sim_dgram *out);
/* Whatever waits for this receiver is gone: its process died. */
void tw_sim_clear(struct tw_sim *sim, uint32_t receiver);

#endif
