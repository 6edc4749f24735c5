/* docs/WIRE.md says what the code does: its tables of fields, its enums and its example. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "wire/datagram.h"
#include "wire/format.h"

#define DOC_PATH      "docs/WIRE.md"
#define MAX_DOC_BYTES (256u << 10)

static char *read_doc(void)
{
	char *doc = calloc(1, MAX_DOC_BYTES + 1);
	FILE *f = fopen(DOC_PATH, "r");

	cr_assert_not_null(f, "%s: run the tests from the top of the checkout", DOC_PATH);
	cr_assert_not_null(doc);
	size_t n = fread(doc, 1, MAX_DOC_BYTES, f);
	cr_assert(n > 0 && n < MAX_DOC_BYTES);
	(void)fclose(f);
	return doc;
}

/* Begin of the line after the one that starts with `heading`. */
static const char *after_heading(const char *doc, const char *heading)
{
	const char *at = strstr(doc, heading);

	cr_assert_not_null(at, "no '%s'", heading);
	at = strchr(at + 1, '\n');
	cr_assert_not_null(at);
	return at + 1;
}

struct row {
	unsigned int offset, bytes;
	char type[40], field[40];
};

/* The next cell's first word; false where there is none. */
static bool next_cell(const char **at, char cell[40])
{
	if (**at != '|') {
		return false;
	}
	const char *word = *at + 1 + strspn(*at + 1, " ");
	size_t len = strcspn(word, " |\n");
	cr_assert_lt(len, 40);
	memcpy(cell, word, len);
	cell[len] = '\0';
	*at = word + strcspn(word, "|\n");
	return len != 0;
}

static bool next_number(const char **at, unsigned int *out)
{
	char cell[40];
	char *end = NULL;

	if (!next_cell(at, cell)) {
		return false;
	}
	*out = (unsigned int)strtoul(cell, &end, 10);
	return *end == '\0';
}

/* Next row of a table of fields; false at a line that begins another section. */
static bool next_row(const char **at, struct row *row)
{
	while (**at != '\0' && **at != '#') {
		const char *cell = *at;
		const char *end = strchr(cell, '\n');
		*at = end == NULL ? cell + strlen(cell) : end + 1;
		if (next_number(&cell, &row->offset) && next_number(&cell, &row->bytes) &&
		    next_cell(&cell, row->type) && next_cell(&cell, row->field)) {
			return true;
		}
	}
	return false;
}

static const char *type_name(enum tw_field_type type)
{
	static const char *const names[] = {
		[TW_FIELD_U8] = "u8",          [TW_FIELD_U16] = "u16",
		[TW_FIELD_U32] = "u32",        [TW_FIELD_I32] = "i32",
		[TW_FIELD_U64] = "u64",        [TW_FIELD_I64] = "i64",
		[TW_FIELD_PRICE] = "price",    [TW_FIELD_QTY] = "qty",
		[TW_FIELD_TIME_NS] = "time",   [TW_FIELD_TEXT] = "text",
		[TW_FIELD_CHAR] = "char",      [TW_FIELD_SIDE] = "enum",
		[TW_FIELD_CONDITIONS] = "set", [TW_FIELD_ENUM] = "enum",
		[TW_FIELD_BOOL] = "bool",      [TW_FIELD_SIDE_QTY] = "qty",
		[TW_FIELD_RAW] = "raw",
	};
	return names[type];
}

Test(wire_doc, tables_of_messages, .timeout = 60)
{
	char *doc = read_doc();

	for (unsigned int id = 1; id < TW_MSG_KIND_LIMIT; id++) {
		const struct tw_msg_desc *desc = tw_msg_describe((uint16_t)id);
		char heading[80];
		struct row row;
		unsigned int at_byte = sizeof(struct tw_msg_head);
		uint16_t fields = 0;

		(void)snprintf(heading, sizeof(heading), "\n### %u %s, %u bytes\n", id, desc->kind,
			       desc->size_bytes);
		const char *at = after_heading(doc, heading);
		while (next_row(&at, &row)) {
			cr_assert_eq(row.offset, at_byte, "%s.%s", desc->kind, row.field);
			at_byte += row.bytes;
			if (strcmp(row.type, "padding") == 0) {
				continue;
			}
			cr_assert_lt(fields, desc->field_count, "%s.%s", desc->kind, row.field);
			const struct tw_field *f = &desc->fields[fields++];
			cr_assert_str_eq(row.field, f->name);
			cr_assert_eq(row.offset, f->offset_bytes, "%s.%s", desc->kind, f->name);
			cr_assert_eq(row.bytes, f->size_bytes, "%s.%s", desc->kind, f->name);
			cr_assert_str_eq(row.type, type_name(f->type), "%s.%s: %s", desc->kind,
					 f->name, row.type);
		}
		cr_assert_eq(fields, desc->field_count, "%s", desc->kind);
		cr_assert_eq(at_byte, desc->size_bytes, "%s", desc->kind);
	}
	free(doc);
}

struct member {
	const char *name;
	size_t offset, bytes;
};

static void check_members(const char *doc, const char *heading, const struct member *members,
			  size_t n)
{
	const char *at = after_heading(doc, heading);
	struct row row;

	for (size_t i = 0; i < n; i++) {
		cr_assert(next_row(&at, &row), "%s: no %s", heading, members[i].name);
		cr_assert_str_eq(row.field, members[i].name);
		cr_assert_eq(row.offset, members[i].offset, "%s", row.field);
		cr_assert_eq(row.bytes, members[i].bytes, "%s", row.field);
	}
	cr_assert_not(next_row(&at, &row), "%s: %s is one too many", heading, row.field);
}

Test(wire_doc, tables_of_headers, .timeout = 60)
{
	char *doc = read_doc();
#define MEMBER(tag, member)                                                              \
	{                                                                                \
#member, offsetof(struct tag, member), sizeof(((struct tag *)0)->member) \
	}
	static const struct member header[] = {
		MEMBER(tw_wire_hdr, magic),         MEMBER(tw_wire_hdr, version_major),
		MEMBER(tw_wire_hdr, version_minor), MEMBER(tw_wire_hdr, header_bytes),
		MEMBER(tw_wire_hdr, flags),         MEMBER(tw_wire_hdr, channel),
		MEMBER(tw_wire_hdr, environment),   MEMBER(tw_wire_hdr, msg_count),
		MEMBER(tw_wire_hdr, payload_bytes), MEMBER(tw_wire_hdr, session),
		MEMBER(tw_wire_hdr, publisher),     MEMBER(tw_wire_hdr, source_seq),
		MEMBER(tw_wire_hdr, packet_seq),    MEMBER(tw_wire_hdr, log_pos),
		MEMBER(tw_wire_hdr, first_msg_seq), MEMBER(tw_wire_hdr, send_ns),
	};
	static const struct member head[] = {
		MEMBER(tw_msg_sbe, block_length),   MEMBER(tw_msg_sbe, template_id),
		MEMBER(tw_msg_sbe, schema_id),      MEMBER(tw_msg_sbe, version),
		MEMBER(tw_msg_head, instrument_id), MEMBER(tw_msg_head, venue_id),
		MEMBER(tw_msg_head, flags),         MEMBER(tw_msg_head, exchange_ns),
		MEMBER(tw_msg_head, exchange_seq),  MEMBER(tw_msg_head, recv_delta_ns),
	};
#undef MEMBER
	check_members(doc, "\n## 2 Datagram\n", header, sizeof(header) / sizeof(header[0]));
	check_members(doc, "\n## 4 Messages\n", head, sizeof(head) / sizeof(head[0]));
	free(doc);
}

/* The row of an enum holds "value name" for every value, in order. */
static void check_enum(const char *doc, const char *name, const struct tw_field *f)
{
	char row[40];

	(void)snprintf(row, sizeof(row), "\n| %s | ", name);
	const char *at = strstr(doc, row);
	cr_assert_not_null(at, "no row of %s", name);
	const char *end = strchr(at + 1, '\n');
	for (unsigned int v = 0; v < f->enum_count; v++) {
		char pair[48];
		if (f->enum_names[v] == NULL) {
			continue;
		}
		(void)snprintf(pair, sizeof(pair), " %u %s", v, f->enum_names[v]);
		const char *found = strstr(at, pair);
		cr_assert(found != NULL && found < end, "%s: no '%s'", name, pair);
		cr_assert_not(isalnum((unsigned char)found[strlen(pair)]));
	}
}

static const struct tw_field *field(uint16_t id, const char *name)
{
	const struct tw_msg_desc *desc = tw_msg_describe(id);

	for (uint16_t i = 0; i < desc->field_count; i++) {
		if (strcmp(desc->fields[i].name, name) == 0) {
			return &desc->fields[i];
		}
	}
	cr_assert_fail("%s has no %s", desc->kind, name);
	return NULL;
}

Test(wire_doc, enums_and_sets, .timeout = 60)
{
	char *doc = read_doc();

	check_enum(doc, "DefinitionAction", field(TW_MSG_INSTRUMENT_DEFINITION, "action"));
	check_enum(doc, "InstrumentClass", field(TW_MSG_INSTRUMENT_DEFINITION, "class"));
	check_enum(doc, "TradingStatus", field(TW_MSG_TRADING_STATUS, "status"));
	check_enum(doc, "Scope", field(TW_MSG_TRADING_STATUS, "scope"));
	check_enum(doc, "LimitKind", field(TW_MSG_PRICE_LIMITS, "limit_kind"));
	check_enum(doc, "ShortSale", field(TW_MSG_SHORT_SALE_STATUS, "status"));
	check_enum(doc, "Auction", field(TW_MSG_AUCTION_IMBALANCE, "auction"));
	check_enum(doc, "Statistic", field(TW_MSG_STATISTIC, "type"));
	check_enum(doc, "SessionEvent", field(TW_MSG_SESSION_EVENT, "event"));
	for (unsigned int bit = 0; bit < 32; bit++) {
		char row[64];
		if (tw_msg_flag_name(bit) != NULL) {
			(void)snprintf(row, sizeof(row), "| 0x%04x | %s |", 1u << bit,
				       tw_msg_flag_name(bit));
			cr_assert_not_null(strstr(doc, row), "no %s", row);
		}
		if (tw_cond_name(bit) != NULL) {
			(void)snprintf(row, sizeof(row), "| 0x%04x | %s |", 1u << bit,
				       tw_cond_name(bit));
			cr_assert_not_null(strstr(doc, row), "no %s", row);
		}
	}
	free(doc);
}

#define FRAME_BYTES 152u
#define ROCE_BYTES  20u
#define ICRC_BYTES  4u

/* The ICRC by the document's recipe, with zlib's CRC. */
static uint32_t icrc_of(const uint8_t *frame)
{
	static const uint8_t before[] = {
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, /* ones */
		0x45, 0xff, 0,    180,  0,    0,    0x40, 0,    /* IP: length 180, id 0, DF */
		0xff, 17,   0xff, 0xff, 10,   0,    0,    1,    239,  192,
		1,    1,    0xc0, 0x00, 0x12, 0xb7, 0,    160,  0xff, 0xff, /* UDP: 49152 to 4791 */
	};
	uint8_t covered[FRAME_BYTES];

	memcpy(covered, frame, sizeof(covered));
	covered[4] = 0xff;
	uLong crc = crc32(0, before, sizeof(before));
	return (uint32_t)crc32(crc, covered, FRAME_BYTES - ICRC_BYTES);
}

Test(wire_doc, the_example, .timeout = 60)
{
	char *doc = read_doc();
	const char *at = strstr(after_heading(doc, "\n## 10 Example\n"), "\n```\n") + 5;
	union {
		uint64_t align;
		uint8_t bytes[FRAME_BYTES - ROCE_BYTES - ICRC_BYTES];
	} dgram;
	uint8_t frame[FRAME_BYTES];
	char text[TW_FORMAT_MAX_BYTES];
	struct tw_dgram d;

	for (unsigned int i = 0; i < FRAME_BYTES; i++) {
		char *end = NULL;
		frame[i] = (uint8_t)strtoul(at, &end, 16);
		cr_assert_eq(end - at, i % 16 == 0 ? 2 : 3, "byte %u", i);
		at = end + (i % 16 == 15 ? 1 : 0);
	}
	uint32_t icrc;
	memcpy(&icrc, frame + FRAME_BYTES - ICRC_BYTES, sizeof(icrc));
	cr_assert_eq(icrc, icrc_of(frame), "%08x", icrc_of(frame));
	(void)snprintf(text, sizeof(text), "The ICRC is 0x%08x:", icrc);
	cr_assert_not_null(strstr(at, text));

	memcpy(dgram.bytes, frame + ROCE_BYTES, sizeof(dgram.bytes));
	cr_assert_eq(tw_dgram_parse(&d, dgram.bytes, sizeof(dgram.bytes)), TW_DGRAM_OK);
	const struct tw_format_ctx ctx = {
		.seq = d.hdr->first_msg_seq,
		.session = d.hdr->session,
		.channel = d.hdr->channel,
		.mic = "XNAS",
		.symbol = "AAPL",
	};
	int n = tw_format_json(text, sizeof(text), &ctx, d.msgs);
	cr_assert_gt(n, 0);
	const char *json = strstr(at, "```json\n") + 8;
	cr_assert_eq(strncmp(json, text, (size_t)n), 0, "%s", text);
	cr_assert_eq(json[n], '\n');
	free(doc);
}
