/* The Tidewire datagram: what one RoCE v2 UD frame carries.  docs/WIRE.md is the specification.
 *
 * Layout   little-endian, naturally aligned, fixed; a datagram is a whole number of 64-byte units,
 *          because the publisher's history is; what follows payload_bytes is padding.
 * Units    *_bytes octets; *_seq the first is 1; send_ns Unix epoch; log_pos 64-byte units. */
#ifndef TIDEWIRE_WIRE_H
#define TIDEWIRE_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define TW_WIRE_MAGIC               0x31574454u /* "TDW1" in memory order */
#define TW_WIRE_MAJOR               1
#define TW_WIRE_MINOR               0
#define TW_WIRE_UNIT_BYTES          64u   /* history and datagram granularity */
#define TW_WIRE_DGRAM_MAX_BYTES     4096u /* largest path MTU of InfiniBand and RoCE v2 */
#define TW_WIRE_DGRAM_MIN_MTU_BYTES 256u

enum tw_wire_flag {
	TW_WIRE_HEARTBEAT = 0x01, /* no messages; the sequences are those of the next datagram */
	TW_WIRE_END = 0x02,       /* with HEARTBEAT: the session has ended before first_msg_seq */
	TW_WIRE_HOLE = 0x04,  /* the payload is a struct tw_wire_hole and there are no messages */
	TW_WIRE_REPLAY = 0x08 /* recorded data played back: never accepted in production */
};

struct tw_wire_hdr {
	uint32_t magic;
	uint8_t version_major; /* another major is dropped and raises an alarm */
	uint8_t version_minor;
	uint8_t header_bytes; /* >= 64, a multiple of 8: messages begin here */
	uint8_t flags;        /* enum tw_wire_flag */
	uint16_t channel;
	uint16_t environment; /* hash of site and production/test; see tw_site.environment_id */
	uint16_t msg_count;
	uint16_t payload_bytes; /* after the header, without padding */
	uint64_t session;       /* one message-sequence space, owned by the feedhandler */
	uint32_t publisher;     /* one life of one publisher, never reused in a session */
	uint32_t source_seq;    /* low bits of the exchange sequence of the first message */
	uint64_t
		packet_seq; /* dense per publisher life, the first is 1; heartbeats: the next one */
	uint64_t log_pos;   /* where the datagram lies in the publisher's history, free-running */
	uint64_t first_msg_seq; /* heartbeats: the next one */
	uint64_t send_ns;       /* wall clock, taken once before the first post */
};

/* Payload of a HOLE datagram: messages first_msg_seq to end_msg_seq - 1 will never come. */
struct tw_wire_hole {
	uint64_t end_msg_seq;
};

/* First unit of a publisher's history, before the log: docs/WIRE.md section 8.  This is how a copy of it
 * looks; where it lies it is written under a reader's hands. */
struct tw_wire_control {
	uint32_t magic;     /* TW_WIRE_CONTROL_MAGIC */
	uint32_t publisher; /* with session: the life that the log belongs to */
	uint64_t session;
	uint64_t units;     /* size of the log */
	uint64_t intent;    /* log position: what lies below it minus units may not be trusted */
	uint64_t published; /* log position: what lies below it was sent */
	uint64_t reserved[3];
};

#define TW_WIRE_CONTROL_MAGIC 0x54534948u /* "HIST" in memory order */

#define TW_WIRE_HDR_BYTES 64u

#ifdef __cplusplus
static_assert(sizeof(struct tw_wire_hdr) == TW_WIRE_HDR_BYTES, "datagram header is 64 bytes");
static_assert(sizeof(struct tw_wire_control) == TW_WIRE_UNIT_BYTES, "control line is one unit");
#else
_Static_assert(sizeof(struct tw_wire_control) == TW_WIRE_UNIT_BYTES, "control line is one unit");
_Static_assert(sizeof(struct tw_wire_hdr) == TW_WIRE_HDR_BYTES, "datagram header is 64 bytes");
_Static_assert(offsetof(struct tw_wire_hdr, session) == 16, "session");
_Static_assert(offsetof(struct tw_wire_hdr, packet_seq) == 32, "packet_seq");
_Static_assert(offsetof(struct tw_wire_hdr, send_ns) == 56, "send_ns");
#endif
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Tidewire lays its wire structures over memory: little-endian hosts only"
#endif

#endif
