/* core/wire/tidewire.xml, the C structs and their descriptors say the same.
 *
 * The scanner below reads the XML that we write: elements with quoted attributes and plain text. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/datagram.h"

#define SCHEMA_PATH   "core/wire/tidewire.xml"
#define MAX_XML_BYTES (256u << 10)

struct element {
	char name[64];
	char attrs[512]; /* the text between name and '>' */
	char text[64];   /* what follows up to the next '<' */
	bool closing;
};

struct scanner {
	char *xml;
	const char *at;
};

static struct scanner schema_open(void)
{
	struct scanner s = { .xml = calloc(1, MAX_XML_BYTES + 1), .at = NULL };
	FILE *f = fopen(SCHEMA_PATH, "r");

	cr_assert_not_null(f, "%s: run the tests from the top of the checkout", SCHEMA_PATH);
	size_t n = fread(s.xml, 1, MAX_XML_BYTES, f);
	cr_assert(n > 0 && n < MAX_XML_BYTES);
	(void)fclose(f);
	s.at = s.xml;
	return s;
}

static void schema_close(struct scanner *s)
{
	free(s->xml);
}

static void copy_range(char *dst, size_t size, const char *from, const char *to)
{
	size_t n = (size_t)(to - from);

	cr_assert_lt(n, size, "element too long for the scanner: %.40s", from);
	memcpy(dst, from, n);
	dst[n] = '\0';
}

/* Next element, false at the end. */
static bool next_element(struct scanner *s, struct element *e)
{
	const char *open = strchr(s->at, '<');

	while (open != NULL && (open[1] == '?' || open[1] == '!')) {
		const char *end = strstr(open, open[1] == '?' ? "?>" : "-->");
		cr_assert_not_null(end);
		open = strchr(end, '<');
	}
	if (open == NULL) {
		return false;
	}
	const char *close = strchr(open, '>');
	cr_assert_not_null(close);
	e->closing = open[1] == '/';
	const char *name = open + (e->closing ? 2 : 1);
	const char *after = name + strcspn(name, " \n/>");
	const char *next = strchr(close, '<');
	copy_range(e->name, sizeof(e->name), name, after);
	copy_range(e->attrs, sizeof(e->attrs), after, close);
	e->text[0] = '\0';
	if (next != NULL && (size_t)(next - close) < sizeof(e->text)) {
		copy_range(e->text, sizeof(e->text), close + 1, next);
	}
	s->at = close + 1;
	return true;
}

/* Value of an attribute, "" where it is missing. */
static const char *attr(const struct element *e, const char *name, char value[128])
{
	char key[40];
	(void)snprintf(key, sizeof(key), " %s=\"", name);
	const char *at = strstr(e->attrs, key); /* a line's indentation ends with a space as well */

	value[0] = '\0';
	if (at != NULL) {
		at += strlen(key);
		copy_range(value, 128, at, at + strcspn(at, "\""));
	}
	return value;
}

static bool attr_is(const struct element *e, const char *name, const char *expected)
{
	char value[128];
	return strcmp(attr(e, name, value), expected) == 0;
}

static unsigned long attr_number(const struct element *e, const char *name)
{
	char value[128];
	char *end;
	unsigned long v = strtoul(attr(e, name, value), &end, 10);

	cr_assert(value[0] != '\0' && *end == '\0', "<%s%s: %s is not a number", e->name, e->attrs,
		  name);
	return v;
}

/* Goes to the declaration of type `name` under <types>. */
static struct element find_type(const char *name, struct scanner *s)
{
	struct element e;

	*s = schema_open();
	while (next_element(s, &e) && strcmp(e.name, "sbe:message") != 0) {
		bool type = strcmp(e.name, "type") == 0 || strcmp(e.name, "composite") == 0 ||
			    strcmp(e.name, "enum") == 0 || strcmp(e.name, "set") == 0;
		if (type && !e.closing && attr_is(&e, "name", name)) {
			return e;
		}
	}
	cr_assert_fail("type %s is not declared", name);
	return e;
}

static void check_price(struct scanner *s, const struct element *type)
{
	struct element e;
	char none[32];

	(void)snprintf(none, sizeof(none), "%" PRId64, TW_PRICE_NONE);
	cr_assert_str_eq(type->name, "composite");
	cr_assert(next_element(s, &e) && attr_is(&e, "name", "mantissa"));
	cr_assert(attr_is(&e, "primitiveType", "int64"));
	cr_assert(attr_is(&e, "presence", "optional"));
	cr_assert(attr_is(&e, "nullValue", none));
	cr_assert(next_element(s, &e) && attr_is(&e, "name", "exponent"));
	cr_assert(attr_is(&e, "primitiveType", "int8"));
	cr_assert(attr_is(&e, "presence", "constant"));
	cr_assert_str_eq(e.text, "-9");
}

static void check_plain(const struct element *type, const char *primitive, unsigned long count,
			const char *field)
{
	char length[128];

	cr_assert_str_eq(type->name, "type", "%s", field);
	cr_assert(attr_is(type, "primitiveType", primitive), "%s: not a %s", field, primitive);
	cr_assert_eq(strtoul(attr(type, "length", length), NULL, 10), count == 1 ? 0 : count,
		     "%s: length '%s'", field, length);
}

static const char *lower(const struct element *e, char out[128])
{
	(void)attr(e, "name", out);
	for (char *c = out; *c != '\0'; c++) {
		*c = (char)tolower((unsigned char)*c);
	}
	return out;
}

/* Every name that C has is declared with the same value, and no other. */
static void check_names(struct scanner *s, const struct element *type, const char *kind,
			const char *item, unsigned int size_bytes,
			const char *(*name_of)(const void *ctx, unsigned int value),
			const void *ctx)
{
	struct element e;
	char encoding[16];
	char name[128];
	unsigned int declared = 0;
	unsigned int known = 0;

	(void)snprintf(encoding, sizeof(encoding), "uint%u", size_bytes * 8);
	cr_assert_str_eq(type->name, kind);
	cr_assert(attr_is(type, "encodingType", encoding), "%s", type->attrs);
	while (next_element(s, &e) && strcmp(e.name, item) == 0) {
		if (!e.closing) {
			const char *in_c = name_of(ctx, (unsigned int)strtoul(e.text, NULL, 10));
			cr_assert_not_null(in_c, "%s%s: only in XML", e.text, e.attrs);
			cr_assert_str_eq(lower(&e, name), in_c);
			declared++;
		}
	}
	for (unsigned int v = 0; v < 256; v++) {
		known += name_of(ctx, v) != NULL ? 1 : 0;
	}
	cr_assert_eq(declared, known, "%s: %u names in XML, %u in C", type->attrs, declared, known);
}

static const char *enum_name_of(const void *ctx, unsigned int value)
{
	const struct tw_field *f = ctx;
	return value < f->enum_count ? f->enum_names[value] : NULL;
}

static const char *side_name_of(const void *ctx, unsigned int value)
{
	(void)ctx;
	return value < 256 ? tw_side_name((uint8_t)value) : NULL;
}

static const char *bool_name_of(const void *ctx, unsigned int value)
{
	(void)ctx;
	return value == 0 ? "f" : value == 1 ? "t" : NULL;
}

static const char *flag_name_of(const void *ctx, unsigned int value)
{
	(void)ctx;
	return tw_msg_flag_name(value);
}

static const char *cond_name_of(const void *ctx, unsigned int value)
{
	(void)ctx;
	return tw_cond_name(value);
}

static void check_type(const struct tw_field *f, const char *type_name)
{
	struct scanner s;
	struct element type = find_type(type_name, &s);

	switch (f->type) {
	case TW_FIELD_U8:
		check_plain(&type, "uint8", 1, f->name);
		break;
	case TW_FIELD_U16:
		check_plain(&type, "uint16", 1, f->name);
		break;
	case TW_FIELD_U32:
		check_plain(&type, "uint32", 1, f->name);
		break;
	case TW_FIELD_I32:
		check_plain(&type, "int32", 1, f->name);
		break;
	case TW_FIELD_I64:
		check_plain(&type, "int64", 1, f->name);
		break;
	case TW_FIELD_U64:
		check_plain(&type, "uint64", 1, f->name);
		break;
	case TW_FIELD_QTY:
	case TW_FIELD_SIDE_QTY:
		cr_assert_str_eq(type_name, "Quantity", "%s", f->name);
		check_plain(&type, "uint64", 1, f->name);
		break;
	case TW_FIELD_TIME_NS:
		cr_assert_str_eq(type_name, "Nanoseconds", "%s", f->name);
		check_plain(&type, "uint64", 1, f->name);
		break;
	case TW_FIELD_PRICE:
		check_price(&s, &type);
		break;
	case TW_FIELD_TEXT:
		check_plain(&type, "char", f->size_bytes, f->name);
		break;
	case TW_FIELD_RAW:
		check_plain(&type, "uint8", f->size_bytes, f->name);
		break;
	case TW_FIELD_CHAR:
		check_plain(&type, "char", 1, f->name);
		break;
	case TW_FIELD_SIDE:
		check_names(&s, &type, "enum", "validValue", f->size_bytes, side_name_of, NULL);
		break;
	case TW_FIELD_BOOL:
		check_names(&s, &type, "enum", "validValue", f->size_bytes, bool_name_of, NULL);
		break;
	case TW_FIELD_ENUM:
		check_names(&s, &type, "enum", "validValue", f->size_bytes, enum_name_of, f);
		break;
	case TW_FIELD_CONDITIONS:
		check_names(&s, &type, "set", "choice", f->size_bytes, cond_name_of, NULL);
		break;
	}
	schema_close(&s);
}

/* Next <field>, its name without the underscore that keeps `class_` from being a keyword. */
static void expect_field(struct scanner *s, const char *name, unsigned int id, size_t offset,
			 char type_name[128])
{
	struct element e;
	char found[128];

	cr_assert(next_element(s, &e) && strcmp(e.name, "field") == 0, "no field %s", name);
	(void)attr(&e, "name", found);
	if (found[strlen(found) - 1] == '_') {
		found[strlen(found) - 1] = '\0';
	}
	cr_assert_str_eq(found, name);
	cr_assert_eq(attr_number(&e, "id"), id, "%s", name);
	cr_assert_eq(attr_number(&e, "offset"), offset - sizeof(struct tw_msg_sbe), "%s", name);
	(void)attr(&e, "type", type_name);
}

#define HEAD_FIELDS 6u
#define HEAD_FIELD(member, kind)                                         \
	{                                                                \
		.name = #member, .type = TW_FIELD_##kind,                \
		.offset_bytes = offsetof(struct tw_msg_head, member),    \
		.size_bytes = sizeof(((struct tw_msg_head *)0)->member), \
	}

static void check_head(struct scanner *s)
{
	static const struct tw_field head[HEAD_FIELDS] = {
		HEAD_FIELD(instrument_id, U32), HEAD_FIELD(venue_id, U16),
		HEAD_FIELD(flags, CONDITIONS),  HEAD_FIELD(exchange_ns, TIME_NS),
		HEAD_FIELD(exchange_seq, U32),  HEAD_FIELD(recv_delta_ns, I32),
	};
	char type_name[128];

	for (unsigned int i = 0; i < HEAD_FIELDS; i++) {
		expect_field(s, head[i].name, i + 1, head[i].offset_bytes, type_name);
		if (head[i].type == TW_FIELD_CONDITIONS) {
			struct scanner types;
			struct element type = find_type(type_name, &types);
			check_names(&types, &type, "set", "choice", head[i].size_bytes,
				    flag_name_of, NULL);
			schema_close(&types);
		} else {
			check_type(&head[i], type_name);
		}
	}
}

static void check_message(struct scanner *s, const struct element *e)
{
	const struct tw_msg_desc *desc = tw_msg_describe((uint16_t)attr_number(e, "id"));
	struct element end;
	char type_name[128];

	cr_assert_not_null(desc, "%s: only in XML", e->attrs);
	cr_assert(attr_is(e, "name", desc->kind), "%s", desc->kind);
	cr_assert_eq(attr_number(e, "blockLength"), desc->size_bytes - sizeof(struct tw_msg_sbe),
		     "%s", desc->kind);
	check_head(s);
	for (unsigned int i = 0; i < desc->field_count; i++) {
		const struct tw_field *f = &desc->fields[i];
		expect_field(s, f->name, HEAD_FIELDS + 1 + i, f->offset_bytes, type_name);
		check_type(f, type_name);
	}
	cr_assert(next_element(s, &end) && end.closing, "%s: a field only in XML", desc->kind);
}

Test(schema, xml_says_what_the_descriptors_say, .timeout = 60)
{
	struct scanner s = schema_open();
	struct element e;
	unsigned int messages = 0;

	while (next_element(&s, &e)) {
		if (strcmp(e.name, "sbe:messageSchema") == 0 && !e.closing) {
			cr_assert_eq(attr_number(&e, "version"), TW_MSG_SCHEMA_VERSION);
			cr_assert(attr_is(&e, "byteOrder", "littleEndian"));
		} else if (strcmp(e.name, "sbe:message") == 0) {
			check_message(&s, &e);
			messages++;
		}
	}
	cr_assert_eq(messages, TW_MSG_KIND_LIMIT - 1);
	schema_close(&s);
}

Test(schema, id_and_header, .timeout = 60)
{
	static const char *const header[] = { "blockLength", "templateId", "schemaId", "version" };
	struct scanner s = schema_open();
	struct element e;

	cr_assert(next_element(&s, &e));
	cr_assert_eq(attr_number(&e, "id"), TW_MSG_SCHEMA_ID);
	schema_close(&s);
	(void)find_type("messageHeader", &s);
	for (unsigned int i = 0; i < 4; i++) {
		cr_assert(next_element(&s, &e) && attr_is(&e, "name", header[i]));
		cr_assert(attr_is(&e, "primitiveType", "uint16"));
	}
	schema_close(&s);
}

/* Where the structs are padded, by their own members. */
struct pad {
	uint16_t template_id;
	size_t offset, bytes;
};
#define PAD(id, tag)                                                                   \
	{                                                                              \
		TW_MSG_##id, offsetof(struct tag, pad), sizeof(((struct tag *)0)->pad) \
	}
static const struct pad pads[] = {
	PAD(INSTRUMENT_LEG, tw_msg_instrument_leg),
	PAD(ORDER_ADD, tw_msg_order_add),
	PAD(ORDER_MODIFY, tw_msg_order_modify),
	PAD(ORDER_REPLACE, tw_msg_order_replace),
	PAD(ORDER_DELETE, tw_msg_order_delete),
	PAD(ORDER_EXECUTE, tw_msg_order_execute),
	PAD(LEVEL_UPDATE, tw_msg_level_update),
	PAD(BOOK_CLEAR, tw_msg_book_clear),
	PAD(TRADE, tw_msg_trade),
	PAD(TRADE_CANCEL, tw_msg_trade_cancel),
	PAD(TRADING_STATUS, tw_msg_trading_status),
	PAD(PRICE_LIMITS, tw_msg_price_limits),
	PAD(SHORT_SALE_STATUS, tw_msg_short_sale_status),
	PAD(PARTICIPANT_STATUS, tw_msg_participant_status),
	PAD(AUCTION_IMBALANCE, tw_msg_auction_imbalance),
	PAD(STATISTIC, tw_msg_statistic),
	PAD(SESSION_EVENT, tw_msg_session_event),
};

static void cover(uint8_t *bytes, size_t offset, size_t n, const char *what)
{
	for (size_t i = offset; i < offset + n; i++) {
		cr_assert_lt(i, TW_MSG_MAX_BYTES, "%s: past the largest message", what);
		cr_assert_eq(bytes[i], 0, "%s: byte %zu belongs to two fields", what, i);
		bytes[i] = 1;
	}
}

Test(schema, descriptors_and_padding_cover_each_struct_once, .timeout = 60)
{
	for (unsigned int id = 1; id < TW_MSG_KIND_LIMIT; id++) {
		const struct tw_msg_desc *desc = tw_msg_describe((uint16_t)id);
		uint8_t bytes[TW_MSG_MAX_BYTES] = { 0 };
		size_t after = sizeof(struct tw_msg_head);

		cover(bytes, 0, sizeof(struct tw_msg_head), "head");
		for (uint16_t i = 0; i < desc->field_count; i++) {
			const struct tw_field *f = &desc->fields[i];
			cr_assert_geq(f->offset_bytes, after, "%s.%s: out of order", desc->kind,
				      f->name);
			cover(bytes, f->offset_bytes, f->size_bytes, f->name);
			after = f->offset_bytes + f->size_bytes;
		}
		for (size_t i = 0; i < sizeof(pads) / sizeof(pads[0]); i++) {
			if (pads[i].template_id == id) {
				cover(bytes, pads[i].offset, pads[i].bytes, desc->kind);
			}
		}
		for (size_t i = 0; i < desc->size_bytes; i++) {
			cr_assert_eq(bytes[i], 1, "%s: byte %zu is no field's", desc->kind, i);
		}
	}
}

Test(schema, kinds_and_sizes_agree_with_the_table, .timeout = 60)
{
#define CHECK_KIND(name, id, kind, tag)                                    \
	cr_assert_str_eq(tw_msg_kind_name(id), #kind);                     \
	cr_assert_eq(tw_msg_kind_bytes(id), sizeof(struct tag), #kind);    \
	cr_assert_eq(tw_msg_describe(id)->size_bytes, sizeof(struct tag)); \
	cr_assert_eq(tw_msg_describe(id)->template_id, (id));
	TW_MSG_TABLE(CHECK_KIND)
#undef CHECK_KIND
	static const uint16_t unknown[] = { 0, TW_MSG_KIND_LIMIT, 255, 256, 0x8001, UINT16_MAX };
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		cr_assert_null(tw_msg_describe(unknown[i]));
		cr_assert_null(tw_msg_kind_name(unknown[i]));
		cr_assert_eq(tw_msg_kind_bytes(unknown[i]), 0);
	}
}
