/* Parts of the program tw-subscribe: output of events, tallies for the summary.
 *
 * Threads   an output and a tally belong to the hot thread; the summary is written after it ended. */
#ifndef TW_SUBSCRIBER_SUBSCRIBE_H
#define TW_SUBSCRIBER_SUBSCRIBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/app.h"
#include "tidewire/sub.h"

enum tw_subscribe_format { TW_SUBSCRIBE_TEXT = 0, TW_SUBSCRIBE_JSON, TW_SUBSCRIBE_NONE };

/* Symbols by (channel, venue, instrument), learned from InstrumentDefinition messages.  A new session
 * begins a new trading date's identities, so a symbol counts only in the session that named it.
 * Fixed at init: what comes when it is full stays unknown and is counted. */
#define TW_SYMBOLS_MAX 65536u

struct tw_symbol {
	uint64_t key; /* 0: free */
	uint64_t session;
	char text[40];
};
struct tw_symbols {
	struct tw_symbol *slots;
	uint64_t count, refused;
};
int tw_symbols_init(struct tw_symbols *symbols, struct tw_error *err) TW_MUST_USE;
void tw_symbols_fini(struct tw_symbols *symbols);
void tw_symbols_learn(struct tw_symbols *symbols, uint16_t channel, uint64_t session,
		      const struct tw_msg_instrument_definition *definition);
/* NULL where it is unknown. */
const char *tw_symbols_find(const struct tw_symbols *symbols, uint16_t channel, uint64_t session,
			    const struct tw_msg_head *head);

/* Lines on a descriptor, buffered.  A reader that stalls stalls us, but not the end of the program. */
struct tw_subscribe_out {
	int fd;
	enum tw_subscribe_format format;
	bool messages_only; /* of events only messages are written */
	bool regular;       /* a plain file: writes do not block */
	int error;          /* errno of the first failed write, 0; then nothing more is written */
	const struct tw_app *app;
	const struct tw_sub *sub;
	struct tw_symbols symbols;
	char *buf;
	size_t used;
};
int tw_subscribe_out_init(struct tw_subscribe_out *out, int fd, enum tw_subscribe_format format,
			  struct tw_error *err) TW_MUST_USE;
void tw_subscribe_out_event(struct tw_subscribe_out *out, const struct tw_event *event);
void tw_subscribe_out_flush(struct tw_subscribe_out *out);
void tw_subscribe_out_fini(struct tw_subscribe_out *out);

/* What the events of a run said, for the summary. */
#define TW_TALLY_RANGES 64u

struct tw_tally_range {
	uint64_t session, seq, end_seq;
};
struct tw_tally_channel {
	uint16_t id;
	bool ended, down;
	uint64_t range_count; /* all; the first TW_TALLY_RANGES are kept */
	struct tw_tally_range ranges[TW_TALLY_RANGES];
};
struct tw_tally {
	struct tw_tally_channel *channels;
	uint32_t channel_count;
	uint64_t messages, lost_ranges, lost_messages;
	uint64_t kinds[TW_MSG_KIND_LIMIT]; /* by template id; 0: unknown templates */
};
int tw_tally_init(struct tw_tally *tally, const struct tw_sub *sub,
		  struct tw_error *err) TW_MUST_USE;
void tw_tally_fini(struct tw_tally *tally);
void tw_tally_event(struct tw_tally *tally, const struct tw_event *event);
/* Every channel has ended or is down. */
bool tw_tally_over(const struct tw_tally *tally);
bool tw_tally_any_down(const struct tw_tally *tally);

/* One JSON object and a newline. */
void tw_subscribe_summary(FILE *file, const struct tw_sub *sub, const struct tw_tally *tally,
			  const struct tw_symbols *symbols, const char *ended_by);

#endif
