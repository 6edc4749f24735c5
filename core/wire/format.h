/* One message as a JSON object or as a line of text.
 *
 * What holds  output is plain ASCII whatever bytes a message carries, and valid JSON; integers and
 *             prices are exact.  Nothing is allocated.
 * JSON        {"seq", "kind", "venue", "symbol", "instrument_id", "exchange_ns", "exchange_seq",
 *             "recv_delta_ns", "flags", "session", "channel"[, "sent_ns"][, "recv_ns"][, "repaired"][, "late"],
 *             the fields of the kind}.  An unknown template has kind null and, in place of the fields,
 *             "template_id" and "block_length".  Absent prices, quantities, text and characters are
 *             null; enums are lower-case names, or the number where it has none; sets are arrays.
 * Text        seq kind venue symbol time field=value ... [flags]; "-" is absent.
 * Threads     pure functions. */
#ifndef TW_WIRE_FORMAT_H
#define TW_WIRE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tidewire/error.h"
#include "tidewire/msg.h"

/* Holds every message with a symbol of at most 32 and a MIC of at most 4 characters. */
#define TW_FORMAT_MAX_BYTES 2048u

struct tw_format_ctx { /* what the message itself does not say */
	uint64_t seq;
	uint64_t session;
	uint64_t sent_ns, recv_ns; /* 0: not printed */
	uint16_t channel;
	bool repaired, late; /* printed only where true */
	const char *mic;     /* NULL or "": the venue is printed as its number */
	const char *symbol;  /* NULL or "": unknown; an InstrumentDefinition prints its own */
};

/* Writes the object (no newline) and a NUL; returns its length, or TW_EFULL (and an empty string where
 * size > 0).  `msg` has passed tw_dgram_parse() or tw_msg_holds(). */
int tw_format_json(char *buf, size_t size, const struct tw_format_ctx *ctx,
		   const void *msg) TW_MUST_USE;
int tw_format_text(char *buf, size_t size, const struct tw_format_ctx *ctx,
		   const void *msg) TW_MUST_USE;

/* The parts, for other output: each returns the length it wrote with a NUL, or TW_EFULL.  A price of
 * TW_PRICE_NONE is "null". */
int tw_format_price(char *buf, size_t size, int64_t price) TW_MUST_USE;
/* JSON string with its quotes from `len` bytes, of which trailing NUL and space are padding; an empty
 * one is "null". */
int tw_format_json_string(char *buf, size_t size, const char *text, size_t len) TW_MUST_USE;
/* The same of a text that is a person's (a name, a path, an error): its UTF-8 stays as it is, an empty
 * one is "".  Errors are the stream's. */
void tw_format_json_text(FILE *out, const char *text);
/* 2017-07-10T14:34:37.643877000Z */
int tw_format_time(char *buf, size_t size, uint64_t time_ns) TW_MUST_USE;

#endif
