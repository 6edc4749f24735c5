/* Nasdaq BinaryFILE as an input: the messages of a day, each after its length (u16 big-endian); a length
 * of 0 ends the session, and what follows is not read.
 *
 * Recognised by its first messages, all of which must be of ITCH 5.0 and as long as that type is: the
 * format has no mark of its own.
 * Packets    a run of messages of one time, so that a replay keeps the venue's own timing; where nobody asks for it
 *            (tw_input.unpaced), as many as a decoder takes at once.  The session layer gives each its time.
 * Receive time  nobody received these messages: it is the venue's own time, and recv_delta_ns is 0.  The day
 *            is the configured one; else the one in the file's name, as Nasdaq writes it (MMDDYYYY, YYYYMMDD
 *            or S and MMDDYY); else the epoch's first, which stands for a day that is not known.
 * Threads    one. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "feedhandler/civil.h"
#include "feedhandler/input_kinds.h"
#include "feedhandler/itch50.h"

enum {
	LENGTH_BYTES = 2,
	BUFFER_BYTES = 256 * 1024, /* more than the longest message, 65,535 and its length */
	LOOK_AT = 64,              /* messages that must hold, or all that there are */
	MAY_GROW_BYTES = 16,       /* by which a later edition may have lengthened a type */
	NAME_BYTES = 256,
	MOST_DIGITS = 8, /* of a date */
	UNKNOWN_DATE = 19700101
};

struct binaryfile {
	struct tw_input input;
	struct tw_source *source; /* owned */
	uint8_t *buffer;
	size_t at, end; /* of what is in the buffer and not handed out */
	bool exhausted; /* the source has no more */
	uint64_t midnight_ns;
	char name[NAME_BYTES];
};

/* Reads on until the buffer is full or the source is exhausted. */
static void fill(struct binaryfile *file)
{
	memmove(file->buffer, file->buffer + file->at, file->end - file->at);
	file->end -= file->at;
	file->at = 0;
	while (!file->exhausted && file->end < BUFFER_BYTES) {
		long n = tw_source_read(file->source, file->buffer + file->end,
					BUFFER_BYTES - file->end);
		if (n <= 0) {
			file->exhausted = true;
			break;
		}
		file->end += (size_t)n;
	}
}

/* The block that begins at `at`; false where it is not in the buffer to its end. */
static bool block_at(const struct binaryfile *file, size_t at, uint32_t *len_bytes)
{
	struct tw_bytes bytes = tw_bytes_of(file->buffer + at, file->end - at);
	*len_bytes = tw_bytes_be16(&bytes);
	tw_bytes_skip(&bytes, *len_bytes);
	return !bytes.failed;
}

static uint64_t time_of(const struct binaryfile *file, size_t at, uint32_t len_bytes)
{
	return tw_itch50_time_or_0(file->buffer + at + LENGTH_BYTES, len_bytes);
}

/* Nothing whole is left: did the file end where it may? */
static int read_ended(struct binaryfile *file, struct tw_error *err)
{
	const struct tw_source *source = file->source;
	unsigned long long messages = file->input.counts.packets;
	if (source->damaged) {
		return tw_fail(err, TW_EFORMAT, "%s: after message %llu: %s", file->name, messages,
			       source->text);
	}
	if (file->end > file->at) {
		(void)tw_fail(&file->input.warning, TW_EFORMAT,
			      "%s: ends in the middle of message %llu", file->name, messages + 1);
		file->input.counts.truncated++;
	} else if (source->gzip && source->member_begun) {
		(void)tw_fail(&file->input.warning, TW_EFORMAT,
			      "%s: the gzip data ends early, after message %llu", file->name,
			      messages);
	}
	return tw_fail(err, TW_ECLOSED, "%s: end of the file", file->name);
}

static int binaryfile_next(struct tw_input *input, struct tw_packet *packet, struct tw_error *err)
{
	struct binaryfile *file = (struct binaryfile *)input; /* input is its first member */
	uint32_t len_bytes;
	if (!block_at(file, file->at, &len_bytes)) {
		fill(file);
		if (!block_at(file, file->at, &len_bytes)) {
			return read_ended(file, err);
		}
	}
	if (len_bytes == 0) {
		return tw_fail(err, TW_ECLOSED, "%s: end of the session", file->name);
	}
	size_t begin = file->at;
	uint64_t time_ns = time_of(file, begin, len_bytes);
	uint64_t count = 0;
	do {
		count++;
		file->at += LENGTH_BYTES + len_bytes;
	} while (block_at(file, file->at, &len_bytes) && len_bytes != 0 &&
		 (input->unpaced ? count < TW_FEED_RUN_MSGS
				 : time_of(file, file->at, len_bytes) == time_ns));
	input->counts.packets += count;
	input->counts.bytes += file->at - begin;
	*packet = (struct tw_packet){
		.payload = file->buffer + begin,
		.len_bytes = (uint32_t)(file->at - begin),
		.recv_ns = file->midnight_ns + time_ns,
	};
	return 1;
}

static void binaryfile_close(struct tw_input *input)
{
	struct binaryfile *file = (struct binaryfile *)input;
	tw_input_source_close(file->source);
	free(file->buffer);
	free(file);
}

static const struct tw_input_ops binaryfile_ops = { .next = binaryfile_next,
						    .close = binaryfile_close };

/* Whether the first messages are of ITCH 5.0; there must be one. */
static bool is_itch50(const struct binaryfile *file)
{
	size_t at = 0;
	uint32_t len_bytes;
	for (unsigned int i = 0; i < LOOK_AT; i++) {
		if (!block_at(file, at, &len_bytes) || len_bytes == 0) {
			return i > 0;
		}
		uint32_t wanted = tw_itch50_handlers[file->buffer[at + LENGTH_BYTES]].min_bytes;
		if (wanted == 0 || len_bytes < wanted || len_bytes > wanted + MAY_GROW_BYTES) {
			return false;
		}
		at += LENGTH_BYTES + len_bytes;
	}
	return true;
}

/* The date in one run of digits, as Nasdaq writes it; 0 where it is none. */
static uint32_t date_of(uint32_t number, size_t digits, bool after_s)
{
	uint32_t date = 0;
	if (digits == 8 && tw_civil_days(number) >= 0) {
		date = number; /* YYYYMMDD */
	} else if (digits == 8) {
		date = number % 10000 * 10000 + number / 10000; /* MMDDYYYY */
	} else if (digits == 6 && after_s) {
		date = 20000000 + number % 100 * 10000 + number / 100; /* S, MMDDYY */
	}
	return tw_civil_days(date) >= 0 ? date : 0;
}

/* The first run of digits in the file's name that is a date; 0 where there is none. */
static uint32_t date_in_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash != NULL ? slash + 1 : path;
	for (const char *p = name; *p != '\0';) {
		bool after_s = p != name && p[-1] == 'S';
		uint32_t number = 0;
		size_t digits = 0;
		for (; isdigit((unsigned char)*p); p++, digits++) {
			number = digits < MOST_DIGITS ? number * 10 + (uint32_t)(*p - '0') : number;
		}
		uint32_t date = date_of(number, digits, after_s);
		if (date != 0) {
			return date;
		}
		p += digits == 0 ? 1 : 0;
	}
	return 0;
}

static int begin(struct binaryfile *file, const char *path, uint32_t trading_date,
		 struct tw_error *err)
{
	file->buffer = malloc(BUFFER_BYTES);
	if (file->buffer == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", file->name);
	}
	fill(file);
	if (!is_itch50(file)) {
		return tw_input_refuse(file->name, file->source,
				       "pcap, pcapng, BinaryFILE of ITCH 5.0 and gzip of each",
				       err);
	}
	uint32_t date = trading_date != 0 ? trading_date : date_in_name(path);
	struct tw_civil_day day;
	if (!tw_new_york_day(&day, date != 0 ? date : UNKNOWN_DATE)) {
		return tw_fail(err, TW_ECONFIG,
			       "trading_date: found %u, allowed is a day as YYYYMMDD", date);
	}
	file->midnight_ns = day.begin_ns;
	return TW_OK;
}

int tw_input_binaryfile_begin(struct tw_input **input_p, const char *name, struct tw_source *source,
			      uint32_t trading_date, struct tw_error *err)
{
	struct binaryfile *file = calloc(1, sizeof(*file));
	if (file == NULL) {
		tw_input_source_close(source);
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", name);
	}
	file->input = (struct tw_input){ .ops = &binaryfile_ops,
					 .waits = true,
					 .session = tw_session_binaryfile.name };
	file->source = source;
	(void)snprintf(file->name, sizeof(file->name), "%s", name);
	int rc = begin(file, name, trading_date, err);
	if (rc != TW_OK) {
		binaryfile_close(&file->input);
		return rc;
	}
	*input_p = &file->input;
	return TW_OK;
}
