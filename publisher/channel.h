/* One channel at the publisher: bus -> packer -> history log -> every line.
 *
 * Life      waits for the channel's bus; with it begins a life (session, publisher number, empty
 *           history), and goes on until the bus says that another has taken its place.
 * Gate      the publisher is the bus's gate: it releases what it has read only after posting it, so
 *           that whoever comes after it sends again what it may not have sent.  Subscribers drop
 *           what they have twice.
 * Threads   all of it is the hot thread's, but tw_pub_channel_note(), which is the main one's, and
 *           `view` and `index`, which the repair service reads by the rules of their headers.
 * Ordering  PU1 pairs with PU2, PU3 with PU4: `note` belongs to the hot thread while `note_full` is
 *           false, to the main thread while it is true.
 * Kernel    the hot thread enters it for a bus file to be opened or closed, at most every 10 ms and
 *           only while the channel has none, and where the fabric does in posting. */
#ifndef TW_PUBLISHER_CHANNEL_H
#define TW_PUBLISHER_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bucket.h"
#include "base/bus.h"
#include "base/counters.h"
#include "base/slab.h"
#include "fabric/fabric.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"

#define TW_PUB_SENDS 256u /* posts under way that are told apart; a power of two */

enum tw_pub_state {
	TW_PUB_WAITING = 0, /* no feedhandler has made a bus yet */
	TW_PUB_LIVE,
	TW_PUB_ENDED,  /* the session has; its heartbeats go on */
	TW_PUB_REFUSED /* there is a bus, and something is wrong with it: see the note */
};

struct tw_pub_channel_conf { /* const after init */
	const char *run_dir;
	uint16_t channel;
	uint16_t environment;
	uint32_t publisher_base; /* the life goes into the low 16 bits */
	uint32_t mtu_bytes;      /* a multiple of 64 */
	uint64_t heartbeat_min_ns, heartbeat_max_ns;
	uint64_t max_bytes_per_s, burst_bytes; /* 0: no limit */
};

struct tw_pub_send {     /* one post */
	uint64_t posted; /* datagrams of this endpoint up to and with it */
	uint64_t end_pos;
};

struct tw_pub_channel {
	struct tw_pub_channel_conf conf;
	struct tw_bus_reader *bus; /* NULL: none now */
	struct tw_tx *tx;          /* borrowed */
	uint32_t endpoint;
	uint64_t posted; /* datagrams, heartbeats too */
	struct tw_pub_send sends[TW_PUB_SENDS];
	uint32_t send_head, send_tail; /* free-running */
	uint64_t look_again_ns;        /* mono: when to look for a bus next */
	uint64_t broken_session;       /* is not opened again; 0: none */
	uint32_t end_heartbeats;       /* of the session that has ended */
	enum tw_pub_state state_now;
	int refused_code; /* status behind REFUSED: a repetition is not noted again */
	struct tw_counters counters;
	struct tw_counters lines[TW_FABRIC_MAX_LINES];
	struct tw_slab slab;     /* control line and log */
	struct tw_bucket bucket; /* max_bytes_per_s */
	struct tw_history history;
	struct tw_history_view view; /* const after init */
	struct tw_history_index index;
	struct tw_history_mark *marks; /* of the index */
	struct tw_pack pack;
	struct {
		uint64_t stalls, holes, hole_msgs, malformed_msgs;
	} seen; /* the packer's counts already in ours */

	/* for the main thread */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic uint32_t state; /* enum tw_pub_state */
	_Atomic bool note_full;
	struct tw_error note;
};

/* Allocates the history log and its index.  Counters and tx are set by the caller before the first turn. */
int tw_pub_channel_init(struct tw_pub_channel *channel, const struct tw_pub_channel_conf *conf,
			uint64_t history_bytes, struct tw_error *err) TW_MUST_USE;
/* Gives the bus back.  A zeroed channel is fine. */
void tw_pub_channel_fini(struct tw_pub_channel *channel);

/* One turn; true where there was something to do. */
bool tw_pub_channel_turn(struct tw_pub_channel *channel, uint64_t now_ns);

/* Main thread: takes the note, if there is one. */
bool tw_pub_channel_note(struct tw_pub_channel *channel, struct tw_error *out);

#endif
