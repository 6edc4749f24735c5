/* The publisher: sends the channels of one configuration entry.
 *
 * Threads   one hot thread turns over all channels; the repair service, where there is one, has its
 *           own; the main thread opens, ticks, joins, prints. */
#ifndef TW_PUBLISHER_PUBLISHER_H
#define TW_PUBLISHER_PUBLISHER_H

#include <pthread.h>
#include <stdio.h>

#include "base/app.h"
#include "base/counters.h"
#include "base/cpu.h"
#include "config/config.h"
#include "publisher/channel.h"
#include "publisher/repair.h"

struct tw_publisher {
	/* const after open */
	const struct tw_site *site;
	const struct tw_site_publisher *conf;
	const struct tw_site_host *host;
	struct tw_app *app;
	enum tw_idle_mode idle;
	uint32_t mtu_bytes;
	bool verbs; /* else udp */
	char transport_why[128];
	char idle_why[128];

	struct tw_stats *stats;
	struct tw_counters loop;
	struct tw_counters verbs_lines[TW_FABRIC_MAX_LINES];
	struct tw_tx *tx;
	struct tw_pub_channel *channels; /* conf->channel_count of them */
	struct tw_pub_repair repair;     /* conf->repairs: from start to join */
	pthread_t thread;
	bool started;
	int hot_status; /* of the hot thread, after join */
	struct tw_error hot_err;

	/* main thread */
	struct tw_pub_logged *logged; /* what the log says about each channel */
};

/* Opens everything that `index` of the site's publishers needs, up to the transmitter.  `site` has
 * its lines resolved here and must outlive the publisher. */
int tw_publisher_open(struct tw_publisher **pub_p, struct tw_site *site, uint32_t index,
		      struct tw_app *app, struct tw_error *err) TW_MUST_USE;
void tw_publisher_close(struct tw_publisher *pub); /* joined or never started; NULL ok */

/* What was chosen and why, one line each. */
void tw_publisher_describe(const struct tw_publisher *pub, void (*line)(const char *text));

int tw_publisher_start(struct tw_publisher *pub, struct tw_error *err) TW_MUST_USE;
/* Every 100 ms: logs what has changed. */
void tw_publisher_tick(void *pub);
/* After stop: TW_OK, or why the hot thread gave up. */
int tw_publisher_join(struct tw_publisher *pub, struct tw_error *err);

/* One JSON object and a newline; after join. */
void tw_publisher_summary(const struct tw_publisher *pub, FILE *out);

/* The hot thread (hot.c); `arg` is the publisher. */
void *tw_publisher_hot(void *arg);

#endif
