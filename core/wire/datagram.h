/* Validating datagrams and walking their messages.
 *
 * Every byte is hostile until tw_dgram_parse() has accepted it; nothing is ever read past `len`.
 * Threads   pure functions. */
#ifndef TW_WIRE_DATAGRAM_H
#define TW_WIRE_DATAGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"
#include "tidewire/msg.h"
#include "tidewire/wire.h"

/* Why a datagram was refused; each has a counter of its own at the subscriber. */
enum tw_dgram_verdict {
	TW_DGRAM_OK = 0,
	TW_DGRAM_SHORT,   /* less than a header, or payload past the end */
	TW_DGRAM_MAGIC,   /* not ours */
	TW_DGRAM_VERSION, /* another major */
	TW_DGRAM_HEADER,  /* header_bytes, flags or sequences that contradict themselves */
	TW_DGRAM_MESSAGES /* not exactly msg_count well-formed messages in payload_bytes */
};

/* A datagram that holds; points into the caller's bytes. */
struct tw_dgram {
	const struct tw_wire_hdr *hdr; /* 8-byte aligned by the fabric's promise */
	const uint8_t *msgs;           /* first message, 8-byte aligned */
	uint32_t msgs_bytes;           /* payload without padding; 0 for heartbeats and holes */
	uint32_t len_bytes;            /* whole datagram */
	uint64_t end_seq;              /* one past the last message; holes: hole.end_msg_seq */
};

/* `data` must be 8-byte aligned.  Checks, in this order: length, magic, major, header_bytes (>= 64,
 * multiple of 8), payload within len, len within TW_WIRE_DGRAM_MAX_BYTES, session and sequences (>= 1,
 * no wrap), flags (END only with HEARTBEAT, HOLE not with HEARTBEAT; heartbeats and holes carry no
 * messages; a hole's end is past its begin; a datagram that is neither has at least one message), and
 * each message (our schema; block_length a multiple of 8, at least that of the common head and of the
 * known template's struct, at most TW_MSG_MAX_BYTES with its header).  So the messages of an accepted
 * datagram may be read through the struct of their template.  Flags that are not known are ignored.
 * *out is set only on TW_DGRAM_OK. */
enum tw_dgram_verdict tw_dgram_parse(struct tw_dgram *out, const void *data, size_t len_bytes);
const char *tw_dgram_verdict_text(enum tw_dgram_verdict verdict);

/* Length of the message at `msg`, valid after parse. */
static inline uint32_t tw_msg_bytes(const void *msg)
{
	return (uint32_t)sizeof(struct tw_msg_sbe) + ((const struct tw_msg_sbe *)msg)->block_length;
}

/* Whether a message of `len_bytes` available bytes is well formed (as parse checks each). */
bool tw_msg_holds(const void *msg, size_t len_bytes);
/* Whether exactly `count` of them fill `bytes` bytes. */
bool tw_msgs_hold(const void *msgs, uint32_t bytes, uint32_t count);

/* Fills in an SBE header and zeroes the rest of a message of a known kind. */
void tw_msg_init(void *msg, enum tw_msg_kind kind);
/* Size of a known kind's struct, 0 for an unknown template id. */
uint32_t tw_msg_kind_bytes(uint16_t template_id);
const char *tw_msg_kind_name(uint16_t template_id); /* "Quote"; NULL for an unknown one */

/* Field descriptors of every message, in struct order: the one table behind JSON and text output
 * and the test that compares tidewire.xml with the structs. */
enum tw_field_type {
	TW_FIELD_U8,
	TW_FIELD_U16,
	TW_FIELD_U32,
	TW_FIELD_I32,
	TW_FIELD_U64,
	TW_FIELD_I64,
	TW_FIELD_PRICE,
	TW_FIELD_QTY,
	TW_FIELD_TIME_NS,
	TW_FIELD_TEXT,
	TW_FIELD_CHAR,
	TW_FIELD_SIDE,
	TW_FIELD_CONDITIONS,
	TW_FIELD_ENUM,
	TW_FIELD_BOOL,     /* u8, 0 is false */
	TW_FIELD_SIDE_QTY, /* quantity at the price just before it: none where that is PRICE_NONE */
	TW_FIELD_RAW       /* bytes of the venue: as TEXT, but a space is not padding */
};
struct tw_field {
	const char *name;
	enum tw_field_type type;
	uint16_t offset_bytes; /* from the message's start */
	uint16_t size_bytes;
	const char *const *enum_names; /* TW_FIELD_ENUM: by value, NULL entries unknown */
	uint16_t enum_count;
};
struct tw_msg_desc {
	const char *kind;
	uint16_t template_id, size_bytes, field_count;
	const struct tw_field *fields; /* without the common head and padding */
};
const struct tw_msg_desc *tw_msg_describe(uint16_t template_id); /* NULL for an unknown one */

/* Names as output and tidewire.xml spell them, NULL for an unknown value; `bit` counts from 0. */
const char *tw_side_name(uint8_t side);
const char *tw_msg_flag_name(unsigned int bit);
const char *tw_cond_name(unsigned int bit);

#endif
