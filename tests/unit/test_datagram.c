/* Parsing datagrams: every verdict, every length, every corrupted byte.
 *
 * Datagrams lie in heap blocks of exactly their size, so that under ASan one byte read too far ends
 * the test. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "wire/datagram.h"

#define FIRST_SEQ 1000u

struct built {
	uint8_t bytes[TW_WIRE_DGRAM_MAX_BYTES];
	size_t len;
};

static struct tw_wire_hdr *hdr_of(struct built *b)
{
	return (struct tw_wire_hdr *)(void *)b->bytes;
}

static void build_header(struct built *b)
{
	memset(b, 0, sizeof(*b));
	*hdr_of(b) = (struct tw_wire_hdr){
		.magic = TW_WIRE_MAGIC,
		.version_major = TW_WIRE_MAJOR,
		.version_minor = TW_WIRE_MINOR,
		.header_bytes = TW_WIRE_HDR_BYTES,
		.channel = 7,
		.environment = 0x1234,
		.session = 42,
		.publisher = 9,
		.source_seq = 5,
		.packet_seq = 17,
		.log_pos = 3,
		.first_msg_seq = FIRST_SEQ,
		.send_ns = 1,
	};
	b->len = TW_WIRE_HDR_BYTES;
}

static struct tw_msg_sbe *append_message(struct built *b, enum tw_msg_kind kind)
{
	uint32_t bytes = tw_msg_kind_bytes((uint16_t)kind);
	uint8_t *at = b->bytes + b->len;

	cr_assert_leq(b->len + bytes, sizeof(b->bytes));
	tw_msg_init(at, kind);
	b->len += bytes;
	hdr_of(b)->msg_count++;
	hdr_of(b)->payload_bytes = (uint16_t)(hdr_of(b)->payload_bytes + bytes);
	return (struct tw_msg_sbe *)(void *)at;
}

/* Three messages and padding up to a unit. */
static void build_data(struct built *b)
{
	build_header(b);
	(void)append_message(b, TW_MSG_QUOTE);
	(void)append_message(b, TW_MSG_TRADE);
	(void)append_message(b, TW_MSG_SESSION_EVENT);
	b->len = (b->len + TW_WIRE_UNIT_BYTES - 1) / TW_WIRE_UNIT_BYTES * TW_WIRE_UNIT_BYTES;
}

static void build_hole(struct built *b, uint64_t end_seq)
{
	build_header(b);
	hdr_of(b)->flags = TW_WIRE_HOLE;
	hdr_of(b)->payload_bytes = sizeof(struct tw_wire_hole);
	memcpy(b->bytes + TW_WIRE_HDR_BYTES, &end_seq, sizeof(end_seq));
	b->len = TW_WIRE_HDR_BYTES + TW_WIRE_UNIT_BYTES;
}

/* Parses a copy that is exactly `len` bytes long. */
static enum tw_dgram_verdict parse_exact(const struct built *b, size_t len, struct tw_dgram *out)
{
	uint8_t *copy = malloc(len);
	struct tw_dgram d = { .end_seq = 0xdead };

	cr_assert(copy != NULL || len == 0);
	if (len != 0) {
		memcpy(copy, b->bytes, len);
	}
	enum tw_dgram_verdict verdict = tw_dgram_parse(&d, copy, len);
	if (verdict == TW_DGRAM_OK) {
		/* what was accepted may be walked and read: touch every byte of it */
		const uint8_t *msg = d.msgs;
		uint32_t sum = 0;
		uint16_t count = 0;
		for (; msg < d.msgs + d.msgs_bytes; msg += tw_msg_bytes(msg), count++) {
			const struct tw_msg_sbe *sbe = (const void *)msg;
			cr_assert(tw_msg_holds(msg, tw_msg_bytes(msg)));
			cr_assert_geq(tw_msg_bytes(msg), tw_msg_kind_bytes(sbe->template_id));
			for (uint32_t i = 0; i < tw_msg_bytes(msg); i++) {
				sum += msg[i];
			}
		}
		cr_assert_eq(msg, d.msgs + d.msgs_bytes);
		cr_assert(sum != 0 || count == 0);
		cr_assert_eq(count, d.hdr->msg_count);
		cr_assert_leq(d.msgs + d.msgs_bytes, copy + len);
	} else {
		cr_assert_eq(d.end_seq, 0xdead, "a refused datagram changes nothing");
	}
	if (out != NULL) {
		*out = d;
	}
	free(copy);
	return verdict;
}

static enum tw_dgram_verdict parse(const struct built *b)
{
	return parse_exact(b, b->len, NULL);
}

Test(datagram, messages, .timeout = 60)
{
	struct built b;
	struct tw_dgram d;

	build_data(&b);
	cr_assert_eq(tw_dgram_parse(&d, b.bytes, b.len), TW_DGRAM_OK);
	cr_assert_eq((const void *)d.hdr, (const void *)b.bytes);
	cr_assert_eq(d.msgs, b.bytes + TW_WIRE_HDR_BYTES);
	cr_assert_eq(d.msgs_bytes, sizeof(struct tw_msg_quote) + sizeof(struct tw_msg_trade) +
					   sizeof(struct tw_msg_session_event));
	cr_assert_eq(d.len_bytes, b.len);
	cr_assert_eq(d.end_seq, FIRST_SEQ + 3);
	const struct tw_msg_quote *quote = (const void *)d.msgs;
	cr_assert_eq(quote->head.sbe.template_id, TW_MSG_QUOTE);
	cr_assert_eq(quote->head.sbe.block_length, sizeof(*quote) - 8);
	cr_assert_eq(quote->head.sbe.schema_id, TW_MSG_SCHEMA_ID);
}

Test(datagram, heartbeat_end_and_hole, .timeout = 60)
{
	struct built b;
	struct tw_dgram d;

	build_header(&b);
	hdr_of(&b)->flags = TW_WIRE_HEARTBEAT;
	cr_assert_eq(parse_exact(&b, b.len, &d), TW_DGRAM_OK);
	cr_assert(d.msgs_bytes == 0 && d.end_seq == FIRST_SEQ);
	hdr_of(&b)->flags = TW_WIRE_HEARTBEAT | TW_WIRE_END | TW_WIRE_REPLAY;
	cr_assert_eq(parse_exact(&b, b.len, &d), TW_DGRAM_OK);
	cr_assert(d.msgs_bytes == 0 && d.end_seq == FIRST_SEQ);

	build_hole(&b, FIRST_SEQ + 1);
	cr_assert_eq(parse_exact(&b, b.len, &d), TW_DGRAM_OK);
	cr_assert(d.msgs_bytes == 0 && d.end_seq == FIRST_SEQ + 1);
	build_hole(&b, UINT64_MAX);
	cr_assert_eq(parse_exact(&b, b.len, &d), TW_DGRAM_OK);
	cr_assert_eq(d.end_seq, UINT64_MAX);
}

/* A later minor version: a longer header, a payload in a heartbeat, flags that nobody knows yet. */
Test(datagram, growth_is_accepted, .timeout = 60)
{
	struct built b;
	struct tw_dgram d;

	build_data(&b);
	hdr_of(&b)->version_minor = 200;
	hdr_of(&b)->flags = 0xf0;
	cr_assert_eq(parse(&b), TW_DGRAM_OK);

	size_t payload = hdr_of(&b)->payload_bytes;
	memmove(b.bytes + 96, b.bytes + TW_WIRE_HDR_BYTES, payload);
	memset(b.bytes + TW_WIRE_HDR_BYTES, 0xff, 32);
	hdr_of(&b)->header_bytes = 96;
	b.len = 96 + payload;
	cr_assert_eq(tw_dgram_parse(&d, b.bytes, b.len), TW_DGRAM_OK);
	cr_assert_eq(d.msgs, b.bytes + 96);
	hdr_of(&b)->header_bytes = 248;
	cr_assert_eq(parse(&b), TW_DGRAM_SHORT);

	build_header(&b);
	hdr_of(&b)->flags = TW_WIRE_HEARTBEAT;
	hdr_of(&b)->payload_bytes = 16;
	b.len = 128;
	cr_assert_eq(parse_exact(&b, b.len, &d), TW_DGRAM_OK);
	cr_assert_eq(d.msgs_bytes, 0);

	build_data(&b);
	struct tw_msg_sbe *sbe = append_message(&b, TW_MSG_QUOTE); /* after the padding */
	(void)sbe;
	cr_assert_eq(parse(&b), TW_DGRAM_MESSAGES);
}

/* Unknown templates and longer blocks are skipped by their length. */
Test(datagram, unknown_templates_and_longer_blocks, .timeout = 60)
{
	struct built b;

	for (uint32_t block = 0; block <= 264; block++) {
		for (uint32_t known = 0; known < 2; known++) {
			build_header(&b);
			struct tw_msg_sbe *sbe = append_message(&b, TW_MSG_QUOTE);
			sbe->template_id = known ? TW_MSG_QUOTE : 0x8001;
			sbe->block_length = (uint16_t)block;
			sbe->version = 3;
			b.len = TW_WIRE_HDR_BYTES + 8 + block;
			hdr_of(&b)->payload_bytes = (uint16_t)(8 + block);
			uint32_t least = known ? sizeof(struct tw_msg_quote) - 8 : 24;
			bool holds =
				block % 8 == 0 && block >= least && block + 8 <= TW_MSG_MAX_BYTES;
			cr_assert_eq(parse(&b), holds ? TW_DGRAM_OK : TW_DGRAM_MESSAGES,
				     "block %u known %u", block, known);
			cr_assert_eq(tw_msg_holds(sbe, 8 + block), holds);
		}
	}
}

Test(datagram, verdicts_of_the_header, .timeout = 60)
{
	struct built b;

#define EXPECT(change, verdict)                                  \
	do {                                                     \
		build_data(&b);                                  \
		struct tw_wire_hdr *h = hdr_of(&b);              \
		change;                                          \
		cr_assert_eq(parse(&b), verdict, "%s", #change); \
	} while (0)
	EXPECT(h->magic ^= 1u, TW_DGRAM_MAGIC);
	EXPECT(h->version_major = 2, TW_DGRAM_VERSION);
	EXPECT(h->version_major = 0, TW_DGRAM_VERSION);
	EXPECT(h->header_bytes = 56, TW_DGRAM_HEADER);
	EXPECT(h->header_bytes = 68, TW_DGRAM_HEADER);
	EXPECT(h->header_bytes = 0, TW_DGRAM_HEADER);
	EXPECT(h->payload_bytes = (uint16_t)(b.len - 64 + 1), TW_DGRAM_SHORT);
	EXPECT(h->payload_bytes = UINT16_MAX, TW_DGRAM_SHORT);
	EXPECT(h->payload_bytes = (uint16_t)(h->payload_bytes - 8), TW_DGRAM_MESSAGES);
	EXPECT(h->payload_bytes = (uint16_t)(h->payload_bytes + 8), TW_DGRAM_MESSAGES);
	EXPECT(h->payload_bytes = 0, TW_DGRAM_MESSAGES);
	EXPECT(h->session = 0, TW_DGRAM_HEADER);
	EXPECT(h->packet_seq = 0, TW_DGRAM_HEADER);
	EXPECT(h->packet_seq = UINT64_MAX, TW_DGRAM_HEADER);
	EXPECT(h->log_pos = UINT64_MAX, TW_DGRAM_HEADER);
	EXPECT(h->log_pos = UINT64_MAX - 64, TW_DGRAM_OK);
	EXPECT(h->first_msg_seq = 0, TW_DGRAM_HEADER);
	EXPECT(h->first_msg_seq = UINT64_MAX - 2, TW_DGRAM_HEADER);
	EXPECT(h->first_msg_seq = UINT64_MAX - 3, TW_DGRAM_OK);
	EXPECT(h->msg_count = 0, TW_DGRAM_HEADER);
	EXPECT(h->msg_count = 2, TW_DGRAM_MESSAGES);
	EXPECT(h->msg_count = 4, TW_DGRAM_MESSAGES);
	EXPECT(h->msg_count = UINT16_MAX, TW_DGRAM_MESSAGES);
	EXPECT(h->flags = TW_WIRE_REPLAY, TW_DGRAM_OK);
	EXPECT(h->flags = TW_WIRE_END, TW_DGRAM_HEADER);
	EXPECT(h->flags = TW_WIRE_HEARTBEAT, TW_DGRAM_HEADER); /* with messages */
	EXPECT(h->flags = TW_WIRE_HOLE, TW_DGRAM_HEADER);
	EXPECT(h->flags = TW_WIRE_HOLE | TW_WIRE_HEARTBEAT, TW_DGRAM_HEADER);
#undef EXPECT

	build_hole(&b, FIRST_SEQ);
	cr_assert_eq(parse(&b), TW_DGRAM_HEADER, "an empty hole");
	build_hole(&b, 1);
	cr_assert_eq(parse(&b), TW_DGRAM_HEADER, "a hole that ends before it begins");
	build_hole(&b, FIRST_SEQ + 9);
	hdr_of(&b)->flags |= TW_WIRE_END;
	cr_assert_eq(parse(&b), TW_DGRAM_HEADER);
	build_hole(&b, FIRST_SEQ + 9);
	hdr_of(&b)->flags |= TW_WIRE_HEARTBEAT;
	cr_assert_eq(parse(&b), TW_DGRAM_HEADER);
	build_hole(&b, FIRST_SEQ + 9);
	hdr_of(&b)->payload_bytes = 7;
	cr_assert_eq(parse(&b), TW_DGRAM_HEADER, "half a hole");
}

Test(datagram, verdicts_of_the_messages, .timeout = 60)
{
	struct built b;

#define EXPECT(change)                                                     \
	do {                                                               \
		build_header(&b);                                          \
		(void)append_message(&b, TW_MSG_TRADE);                    \
		struct tw_msg_sbe *m = append_message(&b, TW_MSG_QUOTE);   \
		(void)append_message(&b, TW_MSG_TRADE);                    \
		change;                                                    \
		cr_assert_eq(parse(&b), TW_DGRAM_MESSAGES, "%s", #change); \
	} while (0)
	EXPECT(m->block_length = 48);               /* shorter than a Quote */
	EXPECT(m->block_length = 55);               /* no multiple of 8 */
	EXPECT(m->block_length = 16);               /* shorter than the common head */
	EXPECT(m->block_length = TW_MSG_MAX_BYTES); /* with its header past the limit */
	EXPECT(m->block_length = UINT16_MAX);
	EXPECT(m->block_length = 0);
	EXPECT(m->schema_id = 0);
	EXPECT(m->template_id = TW_MSG_INSTRUMENT_DEFINITION); /* too short for one */
#undef EXPECT
}

Test(datagram, every_truncation, .timeout = 60)
{
	struct built b;

	build_data(&b);
	size_t needed = TW_WIRE_HDR_BYTES + hdr_of(&b)->payload_bytes;
	for (size_t len = 0; len <= b.len; len++) {
		cr_assert_eq(parse_exact(&b, len, NULL),
			     len < needed ? TW_DGRAM_SHORT : TW_DGRAM_OK, "%zu bytes", len);
	}
	build_hole(&b, FIRST_SEQ + 2);
	for (size_t len = 0; len <= b.len; len++) {
		cr_assert_eq(parse_exact(&b, len, NULL), len < 72 ? TW_DGRAM_SHORT : TW_DGRAM_OK,
			     "%zu bytes", len);
	}
	/* a header that promises no more than there is, messages that do */
	build_data(&b);
	for (size_t len = TW_WIRE_HDR_BYTES; len < needed; len++) {
		hdr_of(&b)->payload_bytes = (uint16_t)(len - TW_WIRE_HDR_BYTES);
		cr_assert_eq(parse_exact(&b, len, NULL), TW_DGRAM_MESSAGES, "%zu bytes", len);
	}
}

/* Every value of every byte; what is still accepted is walked by parse_exact(). */
Test(datagram, every_corrupted_byte, .timeout = 120)
{
	struct built b;
	unsigned int accepted = 0;
	unsigned int refused = 0;

	build_header(&b);
	(void)append_message(&b, TW_MSG_BOOK_CLEAR);
	(void)append_message(&b, TW_MSG_QUOTE);
	for (size_t at = 0; at < b.len; at++) {
		uint8_t good = b.bytes[at];
		for (unsigned int value = 0; value < 256; value++) {
			b.bytes[at] = (uint8_t)value;
			if (parse(&b) == TW_DGRAM_OK) {
				accepted++;
			} else {
				refused++;
			}
		}
		b.bytes[at] = good;
	}
	cr_assert_gt(accepted, 0);
	cr_assert_gt(refused, 0);
}

Test(datagram, all_sizes_up_to_the_largest, .timeout = 60)
{
	struct built b;

	for (size_t count = 1; count <= (sizeof(b.bytes) - TW_WIRE_HDR_BYTES) / 40; count++) {
		build_header(&b);
		for (size_t i = 0; i < count; i++) {
			(void)append_message(&b, TW_MSG_SESSION_EVENT);
		}
		cr_assert_eq(parse(&b), TW_DGRAM_OK, "%zu messages", count);
	}
	uint8_t *large = calloc(1, TW_WIRE_DGRAM_MAX_BYTES + 8);
	struct tw_dgram d;
	cr_assert_not_null(large);
	build_data(&b);
	memcpy(large, b.bytes, b.len);
	cr_assert_eq(tw_dgram_parse(&d, large, TW_WIRE_DGRAM_MAX_BYTES), TW_DGRAM_OK);
	cr_assert_eq(tw_dgram_parse(&d, large, TW_WIRE_DGRAM_MAX_BYTES + 8), TW_DGRAM_HEADER);
	free(large);
}

Test(datagram, one_message_holds, .timeout = 60)
{
	for (unsigned int id = 1; id < TW_MSG_KIND_LIMIT; id++) {
		uint32_t bytes = tw_msg_kind_bytes((uint16_t)id);
		uint8_t *msg = malloc(bytes);
		cr_assert_not_null(msg);
		tw_msg_init(msg, (enum tw_msg_kind)id);
		cr_assert_eq(tw_msg_bytes(msg), bytes);
		for (uint32_t len = 0; len < bytes; len++) {
			uint8_t *part = malloc(len == 0 ? 1 : len);
			cr_assert_not_null(part);
			memcpy(part, msg, len);
			cr_assert_not(tw_msg_holds(part, len), "template %u in %u bytes", id, len);
			free(part);
		}
		cr_assert(tw_msg_holds(msg, bytes));
		cr_assert(tw_msg_holds(msg, bytes + 64));
		free(msg);
	}
}

Test(datagram, verdicts_have_texts, .timeout = 60)
{
	for (int v = TW_DGRAM_OK; v <= TW_DGRAM_MESSAGES; v++) {
		const char *text = tw_dgram_verdict_text((enum tw_dgram_verdict)v);
		cr_assert(text != NULL && text[0] != '\0');
		for (int other = TW_DGRAM_OK; other < v; other++) {
			cr_assert_str_neq(text,
					  tw_dgram_verdict_text((enum tw_dgram_verdict)other));
		}
	}
}
