/* Validating datagrams and walking their messages: the first code that sees bytes from the network.
 *
 * The walk tests bounds once for each message and gathers all other bits of their headers, so that a
 * good datagram costs no mispredicted branch. */
#include "wire/datagram.h"

#include <string.h>

#include "base/fail.h"

#define SBE_BYTES         ((uint32_t)sizeof(struct tw_msg_sbe))
#define HEAD_BLOCK_BYTES  ((uint32_t)sizeof(struct tw_msg_head) - SBE_BYTES)
#define BLOCK_LIMIT_BYTES (TW_MSG_MAX_BYTES - SBE_BYTES)

/* Smallest block by template id.  Blocks only ever grow, so a known template that is shorter than
 * this version's struct would let a reader of that struct run past the message.  Entry 0 stands for
 * every template that is not known here. */
static const uint8_t block_min_bytes[TW_MSG_KIND_LIMIT] = { [0] = HEAD_BLOCK_BYTES,
#define BLOCK_MIN(name, id, kind, tag) [id] = (uint8_t)(sizeof(struct tag) - SBE_BYTES),
							    TW_MSG_TABLE(BLOCK_MIN)
#undef BLOCK_MIN
};

static inline uint32_t known_template(uint32_t template_id)
{
	return template_id < TW_MSG_KIND_LIMIT ? template_id : 0;
}

/* What SBE headers say, gathered: each bit that is set in any of them. */
struct sbe_bits {
	uint32_t blocks;  /* lengths */
	uint32_t spares;  /* lengths less what is needed: the highest bit where one is too short */
	uint32_t schemas; /* differences from ours */
};

/* Adds a message's header; returns the message's length. */
static inline uint32_t gather_sbe(struct sbe_bits *bits, const uint8_t *msg)
{
	struct tw_msg_sbe sbe;

	memcpy(&sbe, msg, sizeof(sbe));
	uint32_t block = sbe.block_length;
	bits->blocks |= block;
	bits->spares |= block - block_min_bytes[known_template(sbe.template_id)];
	bits->schemas |= (uint32_t)(sbe.schema_id ^ TW_MSG_SCHEMA_ID);
	return SBE_BYTES + block;
}

/* Whether all of them hold. */
static inline bool sbe_hold(const struct sbe_bits *bits)
{
	/* multiples of 8 up to the limit have no other bits than those of the limit */
	_Static_assert(BLOCK_LIMIT_BYTES % 8 == 0 &&
			       (BLOCK_LIMIT_BYTES & (BLOCK_LIMIT_BYTES + 8)) == 0,
		       "the limit's bits are those that are allowed");
	return ((bits->blocks & ~BLOCK_LIMIT_BYTES) | bits->spares >> 31 | bits->schemas) == 0;
}

static inline bool walk(const uint8_t *msgs, uint32_t bytes, uint32_t count)
{
	uint32_t offset = 0;
	struct sbe_bits bits = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		if (offset + (uint32_t)sizeof(struct tw_msg_head) > bytes) {
			return false;
		}
		offset += gather_sbe(&bits, msgs + offset);
	}
	return sbe_hold(&bits) && offset == bytes;
}

bool tw_msgs_hold(const void *msgs, uint32_t bytes, uint32_t count)
{
	return walk(msgs, bytes, count);
}

bool tw_msg_holds(const void *msg, size_t len_bytes)
{
	struct sbe_bits bits = { 0 };

	if (len_bytes < sizeof(struct tw_msg_head)) {
		return false;
	}
	return gather_sbe(&bits, msg) <= len_bytes && sbe_hold(&bits);
}

/* Sequences start at 1, and the arithmetic that readers do on them must not wrap. */
static bool sequences_hold(const struct tw_wire_hdr *hdr)
{
	return hdr->session != 0 && hdr->packet_seq != 0 && hdr->packet_seq != UINT64_MAX &&
	       hdr->first_msg_seq != 0 && hdr->first_msg_seq <= UINT64_MAX - hdr->msg_count &&
	       hdr->log_pos <= UINT64_MAX - TW_WIRE_DGRAM_MAX_BYTES / TW_WIRE_UNIT_BYTES;
}

/* A heartbeat or a hole, as its flags say; sets end_seq. */
static enum tw_dgram_verdict parse_special(struct tw_dgram *d)
{
	const struct tw_wire_hdr *hdr = d->hdr;
	bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;
	bool hole = (hdr->flags & TW_WIRE_HOLE) != 0;
	struct tw_wire_hole end;

	if (heartbeat == hole || hdr->msg_count != 0) {
		return TW_DGRAM_HEADER;
	}
	if (heartbeat) {
		d->end_seq = hdr->first_msg_seq;
		return TW_DGRAM_OK;
	}
	if ((hdr->flags & TW_WIRE_END) != 0 || hdr->payload_bytes < sizeof(end)) {
		return TW_DGRAM_HEADER;
	}
	memcpy(&end, d->msgs, sizeof(end));
	if (end.end_msg_seq <= hdr->first_msg_seq) {
		return TW_DGRAM_HEADER;
	}
	d->end_seq = end.end_msg_seq;
	return TW_DGRAM_OK;
}

enum tw_dgram_verdict tw_dgram_parse(struct tw_dgram *out, const void *data, size_t len_bytes)
{
	const struct tw_wire_hdr *hdr = data;

	if (len_bytes < TW_WIRE_HDR_BYTES) {
		return TW_DGRAM_SHORT;
	}
	if (hdr->magic != TW_WIRE_MAGIC) {
		return TW_DGRAM_MAGIC;
	}
	if (hdr->version_major != TW_WIRE_MAJOR) {
		return TW_DGRAM_VERSION;
	}
	if (hdr->header_bytes < TW_WIRE_HDR_BYTES || hdr->header_bytes % 8 != 0) {
		return TW_DGRAM_HEADER;
	}
	if ((size_t)hdr->header_bytes + hdr->payload_bytes > len_bytes) {
		return TW_DGRAM_SHORT;
	}
	if (len_bytes > TW_WIRE_DGRAM_MAX_BYTES || !sequences_hold(hdr)) {
		return TW_DGRAM_HEADER;
	}

	struct tw_dgram d = {
		.hdr = hdr,
		.msgs = (const uint8_t *)data + hdr->header_bytes,
		.msgs_bytes = 0,
		.len_bytes = (uint32_t)len_bytes,
		.end_seq = hdr->first_msg_seq + hdr->msg_count,
	};
	if ((hdr->flags & (TW_WIRE_HEARTBEAT | TW_WIRE_HOLE | TW_WIRE_END)) != 0) {
		enum tw_dgram_verdict verdict = parse_special(&d);
		if (verdict == TW_DGRAM_OK) {
			*out = d;
		}
		return verdict;
	}
	if (hdr->msg_count == 0) {
		return TW_DGRAM_HEADER;
	}
	if (!walk(d.msgs, hdr->payload_bytes, hdr->msg_count)) {
		return TW_DGRAM_MESSAGES;
	}
	d.msgs_bytes = hdr->payload_bytes;
	*out = d;
	return TW_DGRAM_OK;
}

const char *tw_dgram_verdict_text(enum tw_dgram_verdict verdict)
{
	switch (verdict) {
	case TW_DGRAM_OK:
		return "well formed";
	case TW_DGRAM_SHORT:
		return "shorter than its header or payload";
	case TW_DGRAM_MAGIC:
		return "not a Tidewire datagram";
	case TW_DGRAM_VERSION:
		return "another major version";
	case TW_DGRAM_HEADER:
		return "contradictory header";
	case TW_DGRAM_MESSAGES:
		return "malformed messages";
	}
	return "unknown verdict";
}

void tw_msg_init(void *msg, enum tw_msg_kind kind)
{
	uint32_t bytes = tw_msg_kind_bytes((uint16_t)kind);
	struct tw_msg_sbe *sbe = msg;

	TW_ASSERT(bytes != 0);
	memset(msg, 0, bytes);
	sbe->block_length = (uint16_t)(bytes - SBE_BYTES);
	sbe->template_id = (uint16_t)kind;
	sbe->schema_id = TW_MSG_SCHEMA_ID;
	sbe->version = TW_MSG_SCHEMA_VERSION;
}

uint32_t tw_msg_kind_bytes(uint16_t template_id)
{
	uint32_t known = known_template(template_id);

	return known != 0 ? SBE_BYTES + block_min_bytes[known] : 0;
}
