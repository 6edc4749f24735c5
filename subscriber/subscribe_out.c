/* Events as lines of JSON or text on a descriptor, and the symbols that they need. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/subscribe.h"
#include "wire/format.h"

#define BUF_BYTES     262144u
#define LINE_BYTES    (TW_FORMAT_MAX_BYTES + 1u) /* and the newline */
#define CHUNK_BYTES   4096u /* a page: so much a pipe takes that polls writable */
#define STOP_WAIT_NS  1000000000ull
#define SYMBOL_SLOTS  131072u
#define SYMBOL_SHIFT  (64 - 17)
#define SYMBOL_SPREAD 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio: spreads dense ids */

_Static_assert(SYMBOL_SLOTS == 1u << (64 - SYMBOL_SHIFT), "the hash covers the table");
_Static_assert(SYMBOL_SLOTS == 2u * TW_SYMBOLS_MAX, "never more than half full");

int tw_symbols_init(struct tw_symbols *symbols, struct tw_error *err)
{
	memset(symbols, 0, sizeof(*symbols));
	symbols->slots = calloc(SYMBOL_SLOTS, sizeof(symbols->slots[0]));
	if (symbols->slots == NULL) {
		return tw_fail(err, TW_ENOMEM, "symbol table: calloc: %u slots", SYMBOL_SLOTS);
	}
	return TW_OK;
}

void tw_symbols_fini(struct tw_symbols *symbols)
{
	free(symbols->slots);
	symbols->slots = NULL;
}

/* Never 0: channel ids start at 1. */
static uint64_t symbol_key(uint16_t channel, const struct tw_msg_head *head)
{
	return (uint64_t)channel << 48 | (uint64_t)head->venue_id << 32 | head->instrument_id;
}

/* The key's slot, or the free one where it belongs.  The table is never more than half full. */
static struct tw_symbol *symbol_slot(const struct tw_symbols *symbols, uint64_t key)
{
	uint64_t at = key * SYMBOL_SPREAD >> SYMBOL_SHIFT;

	while (symbols->slots[at].key != 0 && symbols->slots[at].key != key) {
		at = (at + 1) % SYMBOL_SLOTS;
	}
	return &symbols->slots[at];
}

void tw_symbols_learn(struct tw_symbols *symbols, uint16_t channel, uint64_t session,
		      const struct tw_msg_instrument_definition *definition)
{
	uint64_t key = symbol_key(channel, &definition->head);
	struct tw_symbol *symbol = symbol_slot(symbols, key);

	if (symbol->key == 0) {
		if (symbols->count == TW_SYMBOLS_MAX) {
			symbols->refused++;
			return;
		}
		symbol->key = key;
		symbols->count++;
	}
	symbol->session = session;
	size_t len = strnlen(definition->symbol, sizeof(definition->symbol));
	while (len > 0 && definition->symbol[len - 1] == ' ') {
		len--;
	}
	memcpy(symbol->text, definition->symbol, len);
	symbol->text[len] = '\0';
}

const char *tw_symbols_find(const struct tw_symbols *symbols, uint16_t channel, uint64_t session,
			    const struct tw_msg_head *head)
{
	const struct tw_symbol *symbol = symbol_slot(symbols, symbol_key(channel, head));

	return symbol->key != 0 && symbol->session == session ? symbol->text : NULL;
}

int tw_subscribe_out_init(struct tw_subscribe_out *out, int fd, enum tw_subscribe_format format,
			  struct tw_error *err)
{
	struct stat st;

	memset(out, 0, sizeof(*out));
	out->fd = fd;
	out->format = format;
	if (format == TW_SUBSCRIBE_NONE) {
		return TW_OK;
	}
	if (fstat(fd, &st) < 0) {
		return tw_fail_sys(err, TW_ESYS, "output: fstat");
	}
	out->regular = S_ISREG(st.st_mode);
	out->buf = malloc(BUF_BYTES);
	if (out->buf == NULL) {
		return tw_fail(err, TW_ENOMEM, "output: malloc: %u bytes", BUF_BYTES);
	}
	int rc = tw_symbols_init(&out->symbols, err);
	if (rc < 0) {
		tw_subscribe_out_fini(out);
	}
	return rc;
}

void tw_subscribe_out_fini(struct tw_subscribe_out *out)
{
	tw_symbols_fini(&out->symbols);
	free(out->buf);
	out->buf = NULL;
}

/* True once the descriptor takes CHUNK_BYTES without blocking; false where the program has been
 * stopping for STOP_WAIT_NS and it still does not. */
static bool wait_writable(const struct tw_subscribe_out *out)
{
	struct pollfd pfd = { .fd = out->fd, .events = POLLOUT };
	uint64_t give_up_ns = 0;

	if (out->regular) {
		return true;
	}
	while (poll(&pfd, 1, 100) <= 0) {
		if (!tw_app_stopping(out->app)) {
			continue;
		}
		uint64_t now_ns = tw_mono_ns();
		if (give_up_ns == 0) {
			give_up_ns = now_ns + STOP_WAIT_NS;
		} else if (now_ns >= give_up_ns) {
			return false;
		}
	}
	return true;
}

void tw_subscribe_out_flush(struct tw_subscribe_out *out)
{
	size_t at = 0;

	while (at < out->used && out->error == 0) {
		if (!wait_writable(out)) {
			out->error = ETIMEDOUT;
			break;
		}
		size_t left = out->used - at;
		size_t chunk = !out->regular && left > CHUNK_BYTES ? CHUNK_BYTES : left;
		ssize_t n = write(out->fd, out->buf + at, chunk);
		if (n >= 0) {
			at += (size_t)n;
		} else if (errno != EINTR && errno != EAGAIN) {
			out->error = errno;
		}
	}
	out->used = 0;
}

static const char *event_name(uint8_t type)
{
	switch (type) {
	case TW_EV_GAP:
		return "gap";
	case TW_EV_LOST:
		return "lost";
	case TW_EV_SESSION:
		return "session";
	case TW_EV_END:
		return "end";
	case TW_EV_LINE_DOWN:
		return "line_down";
	case TW_EV_LINE_UP:
		return "line_up";
	case TW_EV_DOWN:
		return "down";
	default:
		return "unknown";
	}
}

/* {"event":"lost","channel":1,"session":5,"seq":7,"end_seq":9} */
static int event_json(const struct tw_subscribe_out *out, char *at, const struct tw_event *event)
{
	char more[TW_ERROR_TEXT_BYTES + 512] = "";
	struct tw_error err;

	switch (event->type) {
	case TW_EV_GAP:
	case TW_EV_LOST:
		(void)snprintf(more, sizeof(more), ",\"seq\":%" PRIu64 ",\"end_seq\":%" PRIu64,
			       event->seq, event->end_seq);
		break;
	case TW_EV_LINE_DOWN:
	case TW_EV_LINE_UP:
		(void)snprintf(more, sizeof(more), ",\"line\":\"%c\"", 'a' + event->line);
		break;
	case TW_EV_DOWN: {
		char text[TW_ERROR_TEXT_BYTES + 256];
		tw_sub_error(out->sub, event->channel, &err);
		if (tw_format_json_string(text, sizeof(text), err.text, strlen(err.text)) > 0) {
			(void)snprintf(more, sizeof(more), ",\"error\":%s", text);
		}
		break;
	}
	default:
		(void)snprintf(more, sizeof(more), ",\"seq\":%" PRIu64, event->seq);
		break;
	}
	return snprintf(at, LINE_BYTES,
			"{\"event\":\"%s\",\"channel\":%u,\"session\":%" PRIu64 "%s}",
			event_name(event->type), event->channel, event->session, more);
}

/* lost channel=1 session=5 seq=7 end_seq=9 */
static int event_text(const struct tw_subscribe_out *out, char *at, const struct tw_event *event)
{
	char more[TW_ERROR_TEXT_BYTES + 64] = "";
	struct tw_error err;

	switch (event->type) {
	case TW_EV_GAP:
	case TW_EV_LOST:
		(void)snprintf(more, sizeof(more), " seq=%" PRIu64 " end_seq=%" PRIu64, event->seq,
			       event->end_seq);
		break;
	case TW_EV_LINE_DOWN:
	case TW_EV_LINE_UP:
		(void)snprintf(more, sizeof(more), " line=%c", 'a' + event->line);
		break;
	case TW_EV_DOWN:
		tw_sub_error(out->sub, event->channel, &err);
		(void)snprintf(more, sizeof(more), " error=%s", err.text);
		break;
	default:
		(void)snprintf(more, sizeof(more), " seq=%" PRIu64, event->seq);
		break;
	}
	return snprintf(at, LINE_BYTES, "-- %s channel=%u session=%" PRIu64 "%s",
			event_name(event->type), event->channel, event->session, more);
}

static int message(struct tw_subscribe_out *out, char *at, const struct tw_event *event)
{
	const struct tw_msg_head *head = (const void *)event->data;
	struct tw_format_ctx ctx = {
		.seq = event->seq,
		.session = event->session,
		.sent_ns = event->sent_ns,
		.recv_ns = event->recv_ns,
		.channel = event->channel,
		.repaired = (event->flags & TW_EV_REPAIRED) != 0,
		.late = (event->flags & TW_EV_LATE) != 0,
		.mic = tw_sub_mic(out->sub, head->venue_id),
	};

	/* a late one says nothing newer than what is known, if anything is */
	if (head->sbe.template_id == TW_MSG_INSTRUMENT_DEFINITION &&
	    (!ctx.late ||
	     tw_symbols_find(&out->symbols, event->channel, event->session, head) == NULL)) {
		tw_symbols_learn(&out->symbols, event->channel, event->session,
				 (const void *)event->data);
	}
	ctx.symbol = tw_symbols_find(&out->symbols, event->channel, event->session, head);
	return out->format == TW_SUBSCRIBE_JSON
		       ? tw_format_json(at, TW_FORMAT_MAX_BYTES, &ctx, event->data)
		       : tw_format_text(at, TW_FORMAT_MAX_BYTES, &ctx, event->data);
}

void tw_subscribe_out_event(struct tw_subscribe_out *out, const struct tw_event *event)
{
	int len = 0;

	if (out->format == TW_SUBSCRIBE_NONE || out->error != 0) {
		return;
	}
	char *at = out->buf + out->used;
	if (event->type == TW_EV_MSG) {
		len = message(out, at, event);
	} else if (out->messages_only) {
		return;
	} else if (out->format == TW_SUBSCRIBE_JSON) {
		len = event_json(out, at, event);
	} else {
		len = event_text(out, at, event);
	}
	/* TW_FORMAT_MAX_BYTES holds every message, and our own lines are shorter */
	TW_ASSERT(len > 0 && (unsigned int)len < LINE_BYTES);
	at[len] = '\n';
	out->used += (size_t)len + 1;
	if (out->used + LINE_BYTES > BUF_BYTES) {
		tw_subscribe_out_flush(out);
	}
}
