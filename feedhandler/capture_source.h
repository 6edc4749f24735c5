/* The bytes of a capture: a file or memory, inflated on the way where they are gzip.
 *
 * Threads   one. */
#ifndef TW_FEEDHANDLER_CAPTURE_SOURCE_H
#define TW_FEEDHANDLER_CAPTURE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

#include "tidewire/error.h"

enum { TW_SOURCE_BUFFER_BYTES = 256 * 1024, TW_SOURCE_PEEK_BYTES = 8 };

struct tw_source {
	int fd;          /* -1: memory */
	uint8_t *buffer; /* of fd, owned */
	const uint8_t *at, *end;
	bool at_end; /* nothing more comes from fd or memory */

	bool gzip, inflating; /* inflating: `z` is initialised */
	bool member_begun;    /* inside a gzip member: an end here is a cut */
	z_stream z;

	uint8_t peek[TW_SOURCE_PEEK_BYTES]; /* first bytes as read out, given once more by read */
	size_t peek_bytes, peek_read;

	/* How reading ended; both false while it has not, or ended where it may. */
	bool ended;   /* a read found nothing more */
	bool damaged; /* the gzip stream or the file cannot be read on; see text */
	int sys_errno;
	const char *text; /* literal, "" */
};

int tw_source_open_path(struct tw_source *source, const char *path,
			struct tw_error *err) TW_MUST_USE;
int tw_source_open_memory(struct tw_source *source, const void *data, size_t len_bytes,
			  struct tw_error *err) TW_MUST_USE;
void tw_source_close(struct tw_source *source); /* a zeroed or half-open one is fine */

/* Up to `max_bytes`; 0 at the end, -1 where damaged (once all that is right has been given). */
long tw_source_read(struct tw_source *source, void *dst, size_t max_bytes);

#endif
