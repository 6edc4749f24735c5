/* Packer: turns a channel's messages into datagrams in the history log.  Sans-I/O: a source
 * callback gives messages, the caller sends what comes back; time is an argument.
 *
 * Batching is natural: whatever the source has goes into the datagram, up to the MTU; an empty
 * source or a full datagram ends it.  No timer delays a lone message.
 * Heartbeats: the first comes heartbeat_min_ns after the last datagram, then the interval doubles
 * up to heartbeat_max_ns.  An ended session's heartbeats carry END and start at once.
 * Malformed messages (tw_msg_holds) never reach the wire: each run of them becomes a hole, the
 * messages before and after it travel as always.
 * Threads    one. */
#ifndef TW_PROTOCOL_PACK_H
#define TW_PROTOCOL_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bus.h"
#include "protocol/history.h"
#include "tidewire/wire.h"

/* As tw_bus_read(): > 0, 0, TW_ELAPPED (batch names what is gone) or another error.  Each result
 * continues where the one before ended; what leaves room for one more message was all there is.  `dst` lies in the history log: it is written in 8-byte
 * atomics (base/words.h), and anything up to max_bytes of it may be. */
typedef int (*tw_pack_source_func)(void *ctx, void *dst, uint32_t max_bytes,
				   struct tw_bus_batch *batch);

struct tw_pack_conf {
	uint16_t channel;
	uint16_t environment;
	uint64_t session;
	uint32_t publisher;
	uint32_t mtu_bytes; /* a multiple of 64, at most the history's max_dgram_bytes */
	uint64_t first_msg_seq;
	uint64_t heartbeat_min_ns, heartbeat_max_ns;
	bool replay;
};

struct tw_pack {
	struct tw_pack_conf conf;
	struct tw_history *history;
	uint64_t next_packet_seq, next_msg_seq;
	uint32_t last_source_seq;
	uint64_t heartbeat_due_ns;      /* mono */
	uint64_t heartbeat_interval_ns; /* from the next heartbeat to the one after it */
	bool ended;
	int error; /* the source's, when it came behind datagrams of the same poll */
	/* for the caller's counters; holes are those of a lapped source, not of malformed ones */
	uint64_t stalls, holes, hole_msgs, malformed_msgs;
	uint32_t carry_bytes, carry_count; /* taken from the source, not yet packed */
	_Alignas(64) uint8_t heartbeat[TW_WIRE_UNIT_BYTES];
	/* cold: what follows a malformed message */
	_Alignas(64) uint8_t carry[TW_WIRE_DGRAM_MAX_BYTES];
};

struct tw_pack_dgram {
	const uint8_t *data;
	uint32_t len_bytes; /* a multiple of 64 */
	uint32_t msg_count; /* 0: heartbeat or hole */
	uint64_t end_pos;   /* log position after it, for tw_history_complete() */
	/* exchange_ns + recv_delta_ns of its first message; 0: none or TS_BAD */
	uint64_t first_recv_ns;
};

void tw_pack_init(struct tw_pack *pack, const struct tw_pack_conf *conf, struct tw_history *history,
		  uint64_t now_ns);

/* Packs up to `max` datagrams; the headers carry send_ns = wall_ns.  Heartbeats come only when the
 * source had nothing and one is due.  Returns how many (0: nothing to send) or the source's error.
 * The caller posts them all, then calls tw_history_publish(), and tw_history_complete() when their
 * sends are done.  A heartbeat's bytes are valid until the next call. */
int tw_pack_poll(struct tw_pack *pack, tw_pack_source_func source, void *ctx, uint64_t now_ns,
		 uint64_t wall_ns, struct tw_pack_dgram *out, unsigned int max);

/* A heartbeat now, due or not. */
void tw_pack_beat(struct tw_pack *pack, uint64_t now_ns, uint64_t wall_ns,
		  struct tw_pack_dgram *out);

/* Whether messages were taken from the source that are not in any datagram yet. */
static inline bool tw_pack_carries(const struct tw_pack *pack)
{
	return pack->carry_bytes != 0;
}

/* Whether tw_pack_poll() has something to do though the source has nothing. */
static inline bool tw_pack_is_due(const struct tw_pack *pack, uint64_t now_ns)
{
	return now_ns >= pack->heartbeat_due_ns || pack->carry_bytes != 0 || pack->error != TW_OK;
}

/* The source is drained and will never give more: heartbeats carry END from now on. */
void tw_pack_end(struct tw_pack *pack, uint64_t now_ns);

#endif
