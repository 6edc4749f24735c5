/* The bytes of a capture; see capture_source.h. */
#include "feedhandler/capture_source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

enum { INFLATE_GZIP_ONLY = 15 + 16 }; /* zlib's windowBits: 32 KiB window, gzip wrapper */

/* False where there is nothing left. */
static bool fill(struct tw_source *source)
{
	if (source->at != source->end) {
		return true;
	}
	if (source->at_end || source->fd < 0) {
		source->at_end = true;
		return false;
	}
	ssize_t n;
	do {
		n = read(source->fd, source->buffer, TW_SOURCE_BUFFER_BYTES);
	} while (n < 0 && errno == EINTR);
	if (n <= 0) {
		source->at_end = true;
		if (n < 0) {
			source->damaged = true;
			source->sys_errno = errno;
			source->text = "read";
		}
		return false;
	}
	source->at = source->buffer;
	source->end = source->buffer + n;
	return true;
}

static long read_plain(struct tw_source *source, void *dst, size_t max_bytes)
{
	if (!fill(source)) {
		return 0;
	}
	size_t n = (size_t)(source->end - source->at);
	if (n > max_bytes) {
		n = max_bytes;
	}
	memcpy(dst, source->at, n);
	source->at += n;
	return (long)n;
}

/* One call of inflate().  False: nothing more can be got, whether at an end or at damage. */
static bool inflate_some(struct tw_source *source)
{
	if (!fill(source)) {
		return false; /* inside a member: cut short, which the reader of the capture finds */
	}
	if (!source->member_begun) {
		/* members may follow each other; anything else after the first one is padding */
		if (*source->at != 0x1f || inflateReset(&source->z) != Z_OK) {
			source->at_end = true;
			source->at = source->end;
			return false;
		}
		source->member_begun = true;
	}
	size_t left = (size_t)(source->end - source->at);
	uInt in = left < UINT_MAX ? (uInt)left : UINT_MAX;
	source->z.next_in = (z_const Bytef *)source->at;
	source->z.avail_in = in;
	int rc = inflate(&source->z, Z_NO_FLUSH);
	source->at += in - source->z.avail_in;
	if (rc == Z_STREAM_END) {
		source->member_begun = false;
		return true;
	}
	if (rc != Z_OK && rc != Z_BUF_ERROR) {
		source->damaged = true;
		source->text = "inflate: damaged gzip data";
		return false;
	}
	return true;
}

static long read_gzip(struct tw_source *source, void *dst, size_t max_bytes)
{
	if (max_bytes > UINT_MAX) {
		max_bytes = UINT_MAX;
	}
	source->z.next_out = dst;
	source->z.avail_out = (uInt)max_bytes;
	while (source->z.avail_out == max_bytes) {
		if (source->damaged || !inflate_some(source)) {
			break;
		}
	}
	return (long)(max_bytes - source->z.avail_out);
}

static long read_more(struct tw_source *source, void *dst, size_t max_bytes)
{
	long n = source->gzip ? read_gzip(source, dst, max_bytes)
			      : read_plain(source, dst, max_bytes);
	if (n == 0) {
		source->ended = true;
		return source->damaged ? -1 : 0;
	}
	return n;
}

long tw_source_read(struct tw_source *source, void *dst, size_t max_bytes)
{
	size_t left = source->peek_bytes - source->peek_read;
	if (max_bytes == 0) {
		return 0;
	}
	if (left == 0) {
		return read_more(source, dst, max_bytes);
	}
	if (left > max_bytes) {
		left = max_bytes;
	}
	memcpy(dst, source->peek + source->peek_read, left);
	source->peek_read += left;
	return (long)left;
}

/* Finds out whether it is gzip and reads ahead what tells the format. */
static int begin(struct tw_source *source, struct tw_error *err)
{
	if (fill(source) && source->end - source->at >= 2 && source->at[0] == 0x1f &&
	    source->at[1] == 0x8b) {
		source->gzip = true;
		source->member_begun = true;
		if (inflateInit2(&source->z, INFLATE_GZIP_ONLY) != Z_OK) {
			return tw_fail(err, TW_ENOMEM, "inflateInit2: out of memory");
		}
		source->inflating = true;
	}
	while (source->peek_bytes < TW_SOURCE_PEEK_BYTES) {
		long n = read_more(source, source->peek + source->peek_bytes,
				   TW_SOURCE_PEEK_BYTES - source->peek_bytes);
		if (n <= 0) {
			break;
		}
		source->peek_bytes += (size_t)n;
	}
	return TW_OK;
}

int tw_source_open_path(struct tw_source *source, const char *path, struct tw_error *err)
{
	*source = (struct tw_source){ .fd = -1, .text = "" };
	source->buffer = malloc(TW_SOURCE_BUFFER_BYTES);
	if (source->buffer == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", path);
	}
	source->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (source->fd < 0) {
		return tw_fail_sys(err, errno == ENOENT ? TW_ENOTFOUND : TW_ESYS, "%s: open", path);
	}
	int rc = begin(source, err);
	if (rc == TW_OK && source->damaged && source->sys_errno != 0) {
		errno = source->sys_errno;
		return tw_fail_sys(err, TW_ESYS, "%s: read", path);
	}
	return rc;
}

int tw_source_open_memory(struct tw_source *source, const void *data, size_t len_bytes,
			  struct tw_error *err)
{
	const uint8_t *p = data;
	*source = (struct tw_source){ .fd = -1, .text = "" };
	source->at = p;
	source->end = len_bytes == 0 ? p : p + len_bytes;
	return begin(source, err);
}

void tw_source_close(struct tw_source *source)
{
	if (source->inflating) {
		(void)inflateEnd(&source->z);
		source->inflating = false;
	}
	if (source->fd >= 0) {
		(void)close(source->fd);
		source->fd = -1;
	}
	free(source->buffer);
	source->buffer = NULL;
}
