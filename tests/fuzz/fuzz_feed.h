/* For the fuzzers of session layers and decoders: a feed whose messages must all be well formed. */
#ifndef TW_TESTS_FUZZ_FEED_H
#define TW_TESTS_FUZZ_FEED_H

#include <stdlib.h>

#include "feedhandler/feed.h"
#include "wire/datagram.h"

static _Atomic uint64_t fuzz_counters[TW_N_fh_counters];
static uint64_t fuzz_messages;

static inline void require(bool condition)
{
	if (!condition) {
		abort();
	}
}

static inline void fuzz_take(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes,
			     uint32_t channels)
{
	(void)ctx;
	require(tw_msg_holds(msg, len_bytes));
	require(len_bytes == tw_msg_kind_bytes(msg->sbe.template_id));
	require(channels != 0 && channels < 4);
	require((msg->flags & TW_MSG_EVENT_END) != 0);
	require(msg->instrument_id != 0 || msg->sbe.template_id == TW_MSG_SESSION_EVENT);
	if (msg->sbe.template_id == TW_MSG_QUOTE) { /* a side is there, or it is not */
		const struct tw_msg_quote *q = (const void *)msg;
		require((q->bid_price == TW_PRICE_NONE) == (q->bid_qty == 0));
		require((q->ask_price == TW_PRICE_NONE) == (q->ask_qty == 0));
	}
	fuzz_messages++;
}

static inline uint64_t fuzz_count(unsigned int index)
{
	return atomic_load_explicit(&fuzz_counters[index], memory_order_relaxed);
}

/* The conf of any protocol's feed, but for names and sink. */
static inline struct tw_feed_conf fuzz_conf(void)
{
	static char some[] = "ZIEXT"; /* the feed borrows it */
	static char *symbols[] = { some, NULL };
	return (struct tw_feed_conf){
		.venue_id = 1,
		.channel_count = 2,
		.symbols = { NULL, symbols },
		.max_instruments = 8, /* so that a full table is in reach */
		.counters = { .values = fuzz_counters },
	};
}

/* A fresh one for each input, so that a finding needs nothing that came before it. */
static inline struct tw_feed *fuzz_open(const struct tw_feed_conf *conf)
{
	struct tw_feed *feed;
	for (unsigned int i = 0; i < TW_N_fh_counters; i++) {
		atomic_store_explicit(&fuzz_counters[i], 0, memory_order_relaxed);
	}
	fuzz_messages = 0;
	require(tw_feed_create(&feed, conf, NULL) == TW_OK);
	return feed;
}

static inline struct tw_feed *fuzz_feed(void) /* of TOPS */
{
	struct tw_feed_conf conf = fuzz_conf();
	conf.protocol = "tops16";
	conf.mic = "IEXG";
	conf.sink.message = fuzz_take;
	return fuzz_open(&conf);
}

#endif
