/* The feedhandler process: one input, one feed, the buses of its channels.
 *
 * Threads    the hot thread reads, decodes and writes the buses; it alone writes counters and what is
 *            marked so below.  The main thread opens, ticks, joins, sums up and closes.
 * Ordering   pthread_create and pthread_join order everything but `phase`, which orders nothing. */
#ifndef TW_FEEDHANDLER_FEEDHANDLER_H
#define TW_FEEDHANDLER_FEEDHANDLER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/app.h"
#include "base/bus.h"
#include "base/counters.h"
#include "base/cpu.h"
#include "config/config.h"
#include "feedhandler/feed.h"
#include "feedhandler/pace.h"
#include "feedhandler/rerequest_udp.h"
#include "feedhandler/venue_arb.h"

enum tw_feedhandler_phase {
	TW_FH_STARTING = 0,
	TW_FH_WAITING, /* for the publishers of the channels */
	TW_FH_RUNNING,
	TW_FH_DRAINING, /* the input has ended, the publishers have not sent all of it yet */
	TW_FH_ENDED
};

struct tw_feedhandler_channel {
	const struct tw_site_channel *conf;
	struct tw_bus_writer *writer;
	struct tw_counters counters; /* of TW_SET_fh_channel */
	uint64_t session;
};

struct tw_feedhandler {
	const struct tw_site *site;
	const struct tw_site_feedhandler *conf;
	struct tw_app *app;
	struct tw_input *input;
	struct tw_feed *feed;
	struct tw_stats *stats;
	struct tw_counters counters;                      /* of TW_SET_fh */
	struct tw_venue_arb *arb;                         /* of a live input, else NULL */
	struct tw_rerequest_udp *rerequest;               /* where servers are configured */
	struct tw_counters line_counters[TW_VENUE_LINES]; /* of TW_SET_fh_line */
	struct tw_duty duty;
	struct tw_feedhandler_channel channels[TW_FEED_MAX_CHANNELS];
	uint32_t channel_count;
	bool gated; /* the input can wait: nothing is overwritten that a publisher has not sent */
	pthread_t thread;
	bool started;
	const char *idle_why;

	/* hot thread, from its start to pthread_join */
	struct tw_pace pace;
	struct tw_idle idle;
	uint32_t unflushed; /* bit i: channel i has appended but not flushed */
	bool restamped;     /* the feed's shift belongs to this recording */
	uint32_t turns;     /* of a live input, since its lines were counted */
	bool abandoned;     /* stop, or a publisher is gone for good: nothing more is appended */
	uint64_t begun_ns, ended_ns;
	int exit_status;
	struct tw_error error;
	_Atomic int phase; /* enum tw_feedhandler_phase, for the log */

	/* main thread */
	int phase_logged;
	uint64_t gaps_logged, collisions_logged, refused_logged, orders_logged;
};

/* Everything but the hot thread.  The buses come last: a start that fails begins no session. */
int tw_feedhandler_open(struct tw_feedhandler **fh_p, const struct tw_site *site, uint32_t index,
			struct tw_app *app, struct tw_error *err) TW_MUST_USE;
int tw_feedhandler_start(struct tw_feedhandler *fh, struct tw_error *err) TW_MUST_USE;
/* Every 100 ms: logs phases, and what an operator must know of. */
void tw_feedhandler_tick(void *fh);
/* Waits for the hot thread and logs how it ended; its exit status. */
int tw_feedhandler_join(struct tw_feedhandler *fh);
/* One JSON object. */
void tw_feedhandler_summary(const struct tw_feedhandler *fh, FILE *out);
void tw_feedhandler_close(struct tw_feedhandler *fh); /* NULL and half-open ones are fine */

/* What --check looks at: names, directory file, the input's beginning.  Prints what it found. */
int tw_feedhandler_check(const struct tw_site *site, uint32_t index, FILE *out,
			 struct tw_error *err) TW_MUST_USE;

/* The hot thread's main, in hot.c. */
void *tw_feedhandler_hot(void *fh);
/* The feed's sink, in hot.c. */
void tw_feedhandler_message(void *fh, const struct tw_msg_head *msg, uint32_t len_bytes,
			    uint32_t channels);

#endif
