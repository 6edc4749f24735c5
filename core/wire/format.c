/* Formatting messages from their field descriptors, through one bounded writer. */
#include "wire/format.h"

#include <string.h>

#include "wire/datagram.h"

/* Once something did not fit, nothing more is written. */
struct out {
	char *at;
	char *end; /* one byte is kept free for the NUL */
	bool full;
};

static struct out out_open(char *buf, size_t size)
{
	return (struct out){ .at = buf, .end = size > 0 ? buf + size - 1 : buf, .full = size == 0 };
}

static int out_close(struct out *o, char *buf, size_t size)
{
	if (o->full) {
		if (size > 0) {
			buf[0] = '\0';
		}
		return TW_EFULL;
	}
	*o->at = '\0';
	return (int)(o->at - buf);
}

static inline void put(struct out *o, const char *bytes, size_t len)
{
	if (o->full || (size_t)(o->end - o->at) < len) {
		o->full = true;
		return;
	}
	memcpy(o->at, bytes, len);
	o->at += len;
}

static inline void put_str(struct out *o, const char *s)
{
	put(o, s, strlen(s));
}

static inline void put_char(struct out *o, char c)
{
	put(o, &c, 1);
}

#define DIGITS_MAX 20

/* At least `width` decimal digits of v, zero-filled. */
static void put_digits(struct out *o, uint64_t v, unsigned int width)
{
	char digits[DIGITS_MAX];
	unsigned int n = 0;

	do {
		digits[DIGITS_MAX - ++n] = (char)('0' + v % 10);
		v /= 10;
	} while (v != 0);
	while (n < width) {
		digits[DIGITS_MAX - ++n] = '0';
	}
	put(o, digits + DIGITS_MAX - n, n);
}

static void put_u64(struct out *o, uint64_t v)
{
	put_digits(o, v, 1);
}

static uint64_t magnitude(int64_t v)
{
	return v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
}

static void put_i64(struct out *o, int64_t v)
{
	if (v < 0) {
		put_char(o, '-');
	}
	put_u64(o, magnitude(v));
}

/* Nine decimals at most, and no zeros at their end. */
static void put_price(struct out *o, int64_t price)
{
	uint64_t v = magnitude(price);
	uint64_t fraction = v % (uint64_t)TW_PRICE_SCALE;
	unsigned int width = 9;

	if (price < 0) {
		put_char(o, '-');
	}
	put_u64(o, v / (uint64_t)TW_PRICE_SCALE);
	if (fraction == 0) {
		return;
	}
	while (fraction % 10 == 0) {
		fraction /= 10;
		width--;
	}
	put_char(o, '.');
	put_digits(o, fraction, width);
}

static void put_hex_byte(struct out *o, uint8_t byte)
{
	static const char hex[] = "0123456789abcdef";

	put_char(o, hex[byte >> 4]);
	put_char(o, hex[byte & 15]);
}

static bool is_plain(uint8_t byte)
{
	return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

/* Escapes one byte.  What is not printable ASCII becomes the code point of its value, so the output is
 * valid for any input and no byte is lost. */
static void put_json_byte(struct out *o, uint8_t byte)
{
	if (is_plain(byte)) {
		put_char(o, (char)byte);
	} else if (byte == '"' || byte == '\\') {
		put_char(o, '\\');
		put_char(o, (char)byte);
	} else {
		put_str(o, "\\u00");
		put_hex_byte(o, byte);
	}
}

/* A field's bytes. */
static void put_json_bytes(struct out *o, const char *text, size_t len)
{
	put_char(o, '"');
	for (size_t i = 0; i < len; i++) {
		put_json_byte(o, (uint8_t)text[i]);
	}
	put_char(o, '"');
}

/* Bytes of the well-formed UTF-8 sequence of more than one byte that `text` begins with, 0 where it
 * begins with none: no surrogate, nothing longer than it has to be, nothing above U+10FFFF. */
static size_t utf8_bytes(const uint8_t *text)
{
	size_t n = text[0] < 0xc2   ? 0
		   : text[0] < 0xe0 ? 2
		   : text[0] < 0xf0 ? 3
		   : text[0] < 0xf5 ? 4
				    : 0;
	if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)) {
		return 0;
	}
	for (size_t i = 1; i < n; i++) { /* the NUL at the end is no continuation */
		if ((text[i] & 0xc0) != 0x80) {
			return 0;
		}
	}
	return n;
}

/* The same as one word of a text line. */
static void put_text_bytes(struct out *o, const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = (uint8_t)text[i];
		if (is_plain(byte) && byte != ' ') {
			put_char(o, text[i]);
		} else {
			put_str(o, "\\x");
			put_hex_byte(o, byte);
		}
	}
}

static size_t trim(const char *text, size_t len, bool spaces)
{
	while (len > 0 && (text[len - 1] == '\0' || (spaces && text[len - 1] == ' '))) {
		len--;
	}
	return len;
}

#define NS_PER_S  1000000000u
#define S_PER_DAY 86400u

/* Proleptic Gregorian date of a day since 1970-01-01.  Years run from March, so that the leap day is
 * their last; 719468 days lie between 0000-03-01 and the epoch, 146097 in 400 years. */
static void put_date(struct out *o, uint64_t day)
{
	uint64_t z = day + 719468;
	uint64_t era = z / 146097;
	uint64_t doe = z % 146097;
	uint64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
	uint64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
	uint64_t mp = (5 * doy + 2) / 153;
	uint64_t month = mp < 10 ? mp + 3 : mp - 9;

	put_digits(o, era * 400 + yoe + (month <= 2 ? 1 : 0), 4);
	put_char(o, '-');
	put_digits(o, month, 2);
	put_char(o, '-');
	put_digits(o, doy - (153 * mp + 2) / 5 + 1, 2);
}

static void put_time(struct out *o, uint64_t time_ns)
{
	uint64_t s = time_ns / NS_PER_S;

	put_date(o, s / S_PER_DAY);
	put_char(o, 'T');
	put_digits(o, s % S_PER_DAY / 3600, 2);
	put_char(o, ':');
	put_digits(o, s % 3600 / 60, 2);
	put_char(o, ':');
	put_digits(o, s % 60, 2);
	put_char(o, '.');
	put_digits(o, time_ns % NS_PER_S, 9);
	put_char(o, 'Z');
}

/* An unsigned or signed integer field of any width. */
static uint64_t load_uint(const uint8_t *at, uint16_t size_bytes)
{
	uint64_t v = 0;

	memcpy(&v, at, size_bytes <= sizeof(v) ? size_bytes : sizeof(v));
	return v;
}

static int64_t load_i64(const uint8_t *at)
{
	return (int64_t)load_uint(at, sizeof(int64_t));
}

typedef const char *(*bit_name_func)(unsigned int bit);

/* A set as names with `quote` around and `sep` between them; "bitN" where a bit has no name. */
static void put_set(struct out *o, uint64_t set, bit_name_func name_of, const char *quote)
{
	bool first = true;

	put_char(o, '[');
	for (; set != 0; set &= set - 1) {
		unsigned int bit = (unsigned int)__builtin_ctzll(set);
		const char *name = name_of(bit);

		if (!first) {
			put_char(o, ',');
		}
		first = false;
		put_str(o, quote);
		if (name != NULL) {
			put_str(o, name);
		} else {
			put_str(o, "bit");
			put_u64(o, bit);
		}
		put_str(o, quote);
	}
	put_char(o, ']');
}

static void put_name(struct out *o, const char *name, uint64_t value, const char *quote)
{
	if (name == NULL) {
		put_u64(o, value);
		return;
	}
	put_str(o, quote);
	put_str(o, name);
	put_str(o, quote);
}

static const char *enum_name(const struct tw_field *f, uint64_t value)
{
	return value < f->enum_count ? f->enum_names[value] : NULL;
}

/* How the two outputs differ. */
struct style {
	const char *absent;
	const char *quote;
	void (*put_bytes)(struct out *o, const char *text, size_t len);
};
static const struct style json_style = { "null", "\"", put_json_bytes };
static const struct style text_style = { "-", "", put_text_bytes };

static void put_text(struct out *o, const struct style *style, const char *text, size_t len)
{
	if (len == 0) {
		put_str(o, style->absent);
		return;
	}
	style->put_bytes(o, text, len);
}

static void put_price_or_absent(struct out *o, const struct style *style, int64_t price)
{
	if (price == TW_PRICE_NONE) {
		put_str(o, style->absent);
		return;
	}
	put_price(o, price);
}

static void put_value(struct out *o, const struct style *style, const struct tw_field *f,
		      const uint8_t *at)
{
	const char *text = (const char *)at;

	switch (f->type) {
	case TW_FIELD_PRICE:
		put_price_or_absent(o, style, load_i64(at));
		return;
	case TW_FIELD_SIDE_QTY:
		if (load_i64(at - sizeof(int64_t)) == TW_PRICE_NONE) {
			put_str(o, style->absent);
			return;
		}
		put_u64(o, load_uint(at, f->size_bytes));
		return;
	case TW_FIELD_I32:
		put_i64(o, (int32_t)(uint32_t)load_uint(at, f->size_bytes));
		return;
	case TW_FIELD_I64:
		put_i64(o, load_i64(at));
		return;
	case TW_FIELD_TEXT:
		put_text(o, style, text, trim(text, f->size_bytes, true));
		return;
	case TW_FIELD_RAW:
	case TW_FIELD_CHAR:
		put_text(o, style, text, trim(text, f->size_bytes, false));
		return;
	case TW_FIELD_SIDE:
		put_name(o, tw_side_name(*at), *at, style->quote);
		return;
	case TW_FIELD_ENUM: {
		uint64_t value = load_uint(at, f->size_bytes);
		put_name(o, enum_name(f, value), value, style->quote);
		return;
	}
	case TW_FIELD_BOOL:
		put_str(o, *at != 0 ? "true" : "false");
		return;
	case TW_FIELD_CONDITIONS:
		put_set(o, load_uint(at, f->size_bytes), tw_cond_name, style->quote);
		return;
	case TW_FIELD_U8:
	case TW_FIELD_U16:
	case TW_FIELD_U32:
	case TW_FIELD_U64:
	case TW_FIELD_QTY:
	case TW_FIELD_TIME_NS:
		put_u64(o, load_uint(at, f->size_bytes));
		return;
	}
}

static void put_key(struct out *o, const char *name)
{
	put_str(o, ",\"");
	put_str(o, name);
	put_str(o, "\":");
}

static void put_key_u64(struct out *o, const char *name, uint64_t v)
{
	put_key(o, name);
	put_u64(o, v);
}

static void put_venue(struct out *o, const struct style *style, const struct tw_format_ctx *ctx,
		      uint16_t venue_id)
{
	if (ctx->mic != NULL && ctx->mic[0] != '\0') {
		style->put_bytes(o, ctx->mic, strlen(ctx->mic));
		return;
	}
	put_u64(o, venue_id);
}

static void put_symbol(struct out *o, const struct style *style, const struct tw_format_ctx *ctx,
		       const struct tw_msg_head *head)
{
	const char *symbol = ctx->symbol != NULL ? ctx->symbol : "";
	size_t len = strlen(symbol);

	if (head->sbe.template_id == TW_MSG_INSTRUMENT_DEFINITION) {
		const struct tw_msg_instrument_definition *def = (const void *)head;
		symbol = def->symbol;
		len = sizeof(def->symbol);
	}
	put_text(o, style, symbol, trim(symbol, len, true));
}

/* The symbol of a definition has already been printed with the head. */
static bool in_head(const struct tw_msg_desc *desc, const struct tw_field *f)
{
	return desc->template_id == TW_MSG_INSTRUMENT_DEFINITION &&
	       f->offset_bytes == offsetof(struct tw_msg_instrument_definition, symbol);
}

static void put_json_head(struct out *o, const struct tw_format_ctx *ctx,
			  const struct tw_msg_head *head, const char *kind)
{
	put_str(o, "{\"seq\":");
	put_u64(o, ctx->seq);
	put_key(o, "kind");
	put_text(o, &json_style, kind != NULL ? kind : "", kind != NULL ? strlen(kind) : 0);
	put_key(o, "venue");
	put_venue(o, &json_style, ctx, head->venue_id);
	put_key(o, "symbol");
	put_symbol(o, &json_style, ctx, head);
	put_key_u64(o, "instrument_id", head->instrument_id);
	put_key_u64(o, "exchange_ns", head->exchange_ns);
	put_key_u64(o, "exchange_seq", head->exchange_seq);
	put_key(o, "recv_delta_ns");
	put_i64(o, head->recv_delta_ns);
	put_key(o, "flags");
	put_set(o, head->flags, tw_msg_flag_name, "\"");
	put_key_u64(o, "session", ctx->session);
	put_key_u64(o, "channel", ctx->channel);
	if (ctx->sent_ns != 0) {
		put_key_u64(o, "sent_ns", ctx->sent_ns);
	}
	if (ctx->recv_ns != 0) {
		put_key_u64(o, "recv_ns", ctx->recv_ns);
	}
	if (ctx->repaired) {
		put_key(o, "repaired");
		put_str(o, "true");
	}
	if (ctx->late) {
		put_key(o, "late");
		put_str(o, "true");
	}
}

int tw_format_json(char *buf, size_t size, const struct tw_format_ctx *ctx, const void *msg)
{
	const struct tw_msg_head *head = msg;
	const struct tw_msg_desc *desc = tw_msg_describe(head->sbe.template_id);
	struct out o = out_open(buf, size);

	put_json_head(&o, ctx, head, desc != NULL ? desc->kind : NULL);
	if (desc == NULL) {
		put_key_u64(&o, "template_id", head->sbe.template_id);
		put_key_u64(&o, "block_length", head->sbe.block_length);
	}
	for (uint16_t i = 0; desc != NULL && i < desc->field_count; i++) {
		const struct tw_field *f = &desc->fields[i];
		if (!in_head(desc, f)) {
			put_key(&o, f->name);
			put_value(&o, &json_style, f, (const uint8_t *)msg + f->offset_bytes);
		}
	}
	put_char(&o, '}');
	return out_close(&o, buf, size);
}

int tw_format_text(char *buf, size_t size, const struct tw_format_ctx *ctx, const void *msg)
{
	const struct tw_msg_head *head = msg;
	const struct tw_msg_desc *desc = tw_msg_describe(head->sbe.template_id);
	struct out o = out_open(buf, size);

	put_u64(&o, ctx->seq);
	put_char(&o, ' ');
	if (desc != NULL) {
		put_str(&o, desc->kind);
	} else {
		put_str(&o, "template");
		put_u64(&o, head->sbe.template_id);
	}
	put_char(&o, ' ');
	put_venue(&o, &text_style, ctx, head->venue_id);
	put_char(&o, ' ');
	put_symbol(&o, &text_style, ctx, head);
	put_char(&o, ' ');
	put_time(&o, head->exchange_ns);
	for (uint16_t i = 0; desc != NULL && i < desc->field_count; i++) {
		const struct tw_field *f = &desc->fields[i];
		if (!in_head(desc, f)) {
			put_char(&o, ' ');
			put_str(&o, f->name);
			put_char(&o, '=');
			put_value(&o, &text_style, f, (const uint8_t *)msg + f->offset_bytes);
		}
	}
	put_char(&o, ' ');
	put_set(&o, head->flags, tw_msg_flag_name, "");
	if (ctx->repaired) {
		put_str(&o, " repaired");
	}
	if (ctx->late) {
		put_str(&o, " late");
	}
	return out_close(&o, buf, size);
}

int tw_format_price(char *buf, size_t size, int64_t price)
{
	struct out o = out_open(buf, size);

	put_price_or_absent(&o, &json_style, price);
	return out_close(&o, buf, size);
}

int tw_format_json_string(char *buf, size_t size, const char *text, size_t len)
{
	struct out o = out_open(buf, size);

	put_text(&o, &json_style, text, trim(text, len, true));
	return out_close(&o, buf, size);
}

void tw_format_json_text(FILE *out, const char *text)
{
	(void)fputc('"', out);
	while (*text != '\0') {
		char buf[8];
		struct out one = out_open(buf, sizeof(buf));
		size_t n = utf8_bytes((const uint8_t *)text);
		if (n == 0) {
			put_json_byte(&one, (uint8_t)*text);
			n = 1;
		} else {
			put(&one, text, n);
		}
		(void)fwrite(buf, 1, (size_t)(one.at - buf), out);
		text += n;
	}
	(void)fputc('"', out);
}

int tw_format_time(char *buf, size_t size, uint64_t time_ns)
{
	struct out o = out_open(buf, size);

	put_time(&o, time_ns);
	return out_close(&o, buf, size);
}
