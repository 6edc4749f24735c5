/* libFuzzer target: a datagram of any bytes is parsed, and what holds is walked and formatted.
 *
 * The input is a datagram.  Whatever the parser accepts must be what docs/WIRE.md promises, and both
 * outputs of each message must fit and be printable ASCII. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "wire/datagram.h"
#include "wire/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ascii(const char *buf, int n)
{
	TW_ASSERT(n > 0 && (uint32_t)n < TW_FORMAT_MAX_BYTES && buf[n] == '\0');
	for (int i = 0; i < n; i++) {
		TW_ASSERT(buf[i] >= 0x20 && buf[i] < 0x7f);
	}
}

static void format_both(const struct tw_format_ctx *ctx, const uint8_t *msg)
{
	char buf[TW_FORMAT_MAX_BYTES];

	check_ascii(buf, tw_format_json(buf, sizeof(buf), ctx, msg));
	check_ascii(buf, tw_format_text(buf, sizeof(buf), ctx, msg));
}

static void walk(const struct tw_dgram *d)
{
	struct tw_format_ctx ctx = {
		.seq = d->hdr->first_msg_seq,
		.session = d->hdr->session,
		.channel = d->hdr->channel,
		.sent_ns = d->hdr->send_ns,
		.symbol = "TEST",
	};
	const uint8_t *end = d->msgs + d->msgs_bytes;
	const uint8_t *msg = d->msgs;

	for (; msg < end; msg += tw_msg_bytes(msg)) {
		TW_ASSERT(tw_msg_holds(msg, (size_t)(end - msg)));
		format_both(&ctx, msg);
		ctx.seq++;
	}
	TW_ASSERT(msg == end);
	TW_ASSERT((d->hdr->flags & (TW_WIRE_HEARTBEAT | TW_WIRE_HOLE)) != 0 ||
		  ctx.seq == d->end_seq);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_dgram d;
	uint8_t *copy = malloc(size); /* aligned, and ASan sees its end */

	if (size != 0 && copy == NULL) {
		return 0;
	}
	if (size != 0) {
		memcpy(copy, data, size);
	}
	if (tw_dgram_parse(&d, copy, size) == TW_DGRAM_OK) {
		TW_ASSERT(d.len_bytes == size);
		TW_ASSERT(d.msgs + d.msgs_bytes <= copy + size);
		TW_ASSERT(d.end_seq >= d.hdr->first_msg_seq);
		walk(&d);
	}
	free(copy);
	return 0;
}
