/* Opening and closing a publisher, and what its main thread says in the log. */
#include "publisher/publisher.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/rundir.h"
#include "base/text.h"

#define PROGRAM    "tw-publisher"
#define LINE_BYTES 256

struct tw_pub_logged {
	enum tw_pub_state state;
	uint32_t publisher;
	uint64_t session;
	bool any;
};

static const struct tw_site_channel *site_channel(const struct tw_publisher *pub, uint32_t i)
{
	return &pub->site->channels[pub->conf->channels[i]];
}

/* Rounds the path MTU down to whole units and sees to it that every message fits. */
static int choose_mtu(struct tw_publisher *pub, struct tw_error *err)
{
	uint32_t configured = pub->site->fabric.mtu_bytes;
	pub->mtu_bytes = configured - configured % TW_WIRE_UNIT_BYTES;
	if (pub->mtu_bytes > TW_WIRE_DGRAM_MAX_BYTES) {
		pub->mtu_bytes = TW_WIRE_DGRAM_MAX_BYTES;
	}
	if (pub->mtu_bytes < TW_WIRE_HDR_BYTES + TW_MSG_MAX_BYTES) {
		return tw_fail(err, TW_ECONFIG,
			       "%s: fabric.mtu_bytes: found %u, at least %u are needed for a "
			       "message of %u bytes",
			       pub->site->path, configured, TW_WIRE_HDR_BYTES + TW_MSG_MAX_BYTES,
			       TW_MSG_MAX_BYTES);
	}
	return TW_OK;
}

static int open_counters(struct tw_publisher *pub, struct tw_error *err)
{
	int rc = tw_stats_create(&pub->stats, pub->site->run_dir, pub->conf->name, PROGRAM, err);
	if (rc == TW_OK) {
		rc = tw_stats_add(pub->stats, TW_SET_loop, "hot", &pub->loop, err);
	}
	for (uint32_t i = 0; i < pub->conf->channel_count && rc == TW_OK; i++) {
		const struct tw_site_channel *c = site_channel(pub, i);
		char label[48];
		snprintf(label, sizeof(label), "channel %u", c->id);
		rc = tw_stats_add(pub->stats, TW_SET_pub_channel, label, &pub->channels[i].counters,
				  err);
		for (unsigned int l = 0; l < c->lines && rc == TW_OK; l++) {
			snprintf(label, sizeof(label), "channel %u line %c", c->id, 'a' + (int)l);
			rc = tw_stats_add(pub->stats, TW_SET_pub_line, label,
					  &pub->channels[i].lines[l], err);
		}
	}
	for (unsigned int l = 0; pub->verbs && l < TW_MAX_LINES && rc == TW_OK; l++) {
		char label[48];
		snprintf(label, sizeof(label), "line %c", 'a' + (int)l);
		rc = tw_stats_add(pub->stats, TW_SET_verbs_line, label, &pub->verbs_lines[l], err);
	}
	if (rc == TW_OK && pub->conf->repairs) {
		rc = tw_pub_repair_counters(&pub->repair, pub->stats, pub->verbs,
					    pub->conf->repair_clients, err);
	}
	return rc == TW_OK ? tw_stats_seal(pub->stats, err) : rc;
}

static int open_channels(struct tw_publisher *pub, uint32_t index, struct tw_error *err)
{
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		struct tw_pub_channel_conf conf = {
			.run_dir = pub->site->run_dir,
			.channel = site_channel(pub, i)->id,
			.environment = pub->site->environment_id,
			.publisher_base = (index + 1) << 16,
			.mtu_bytes = pub->mtu_bytes,
			.heartbeat_min_ns = (uint64_t)pub->conf->heartbeat_min_us * 1000,
			.heartbeat_max_ns = (uint64_t)pub->conf->heartbeat_ms * 1000000,
			.max_bytes_per_s = (uint64_t)pub->conf->max_mbps * 125000,
			.burst_bytes = (uint64_t)pub->conf->burst_kbytes * 1024,
		};
		int rc = tw_pub_channel_init(&pub->channels[i], &conf, pub->conf->history_bytes,
					     err);
		if (rc != TW_OK) {
			return rc;
		}
		pub->channels[i].endpoint = i;
	}
	return TW_OK;
}

static int open_transmitter(struct tw_publisher *pub, uint32_t index, struct tw_error *err)
{
	struct tw_fabric_conf fabric;
	tw_site_fabric_conf(pub->site, pub->conf->host, &fabric);
	memcpy(fabric.verbs, pub->verbs_lines, sizeof(fabric.verbs));
	struct tw_tx_endpoint
		endpoints[sizeof(pub->conf->channels) / sizeof(pub->conf->channels[0])] = { 0 };
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		const struct tw_site_channel *c = site_channel(pub, i);
		endpoints[i].publisher = (index + 1) << 16;
		endpoints[i].memory = pub->channels[i].slab.base;
		endpoints[i].memory_bytes = pub->channels[i].slab.size_bytes;
		for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
			endpoints[i].groups[l] = l < c->lines ? c->groups[l] : 0;
			endpoints[i].counters[l] = pub->channels[i].lines[l];
		}
	}
	int rc =
		tw_tx_open(&pub->tx, pub->verbs, &fabric, endpoints, pub->conf->channel_count, err);
	if (rc != TW_OK) {
		return rc;
	}
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		pub->channels[i].tx = pub->tx;
	}
	return TW_OK;
}

static int choose(struct tw_publisher *pub, struct tw_site *site, struct tw_error *err)
{
	int rc = choose_mtu(pub, err);
	if (rc != TW_OK) {
		return rc;
	}
	rc = tw_site_resolve_lines(site, pub->conf->host, err);
	if (rc != TW_OK) {
		return rc;
	}
	rc = tw_site_transport(site, pub->transport_why, err);
	if (rc < 0) {
		return rc;
	}
	pub->verbs = rc == TW_TRANSPORT_VERBS;
	const char *why;
	pub->idle = tw_idle_resolve(site->idle, tw_site_hot_threads(site, pub->conf->host), &why);
	snprintf(pub->idle_why, sizeof(pub->idle_why), "%s", why);
	return TW_OK;
}

int tw_publisher_open(struct tw_publisher **pub_p, struct tw_site *site, uint32_t index,
		      struct tw_app *app, struct tw_error *err)
{
	*pub_p = NULL;
	struct tw_publisher *pub = calloc(1, sizeof(*pub));
	if (pub == NULL) {
		return tw_fail(err, TW_ENOMEM, "publisher: out of memory");
	}
	pub->site = site;
	pub->conf = &site->publishers[index];
	pub->host = &site->hosts[pub->conf->host];
	pub->app = app;

	int rc = choose(pub, site, err);
	if (rc != TW_OK) {
		goto undo_pub;
	}
	size_t bytes = pub->conf->channel_count * sizeof(*pub->channels);
	pub->channels = aligned_alloc(TW_CACHE_PAIR_BYTES, bytes);
	pub->logged = calloc(pub->conf->channel_count, sizeof(*pub->logged));
	if (pub->channels == NULL || pub->logged == NULL) {
		rc = tw_fail(err, TW_ENOMEM, "publisher %s: out of memory", pub->conf->name);
		goto undo_pub;
	}
	memset(pub->channels, 0, bytes);
	rc = tw_rundir_ensure(site->run_dir, err);
	if (rc != TW_OK) {
		goto undo_pub;
	}
	rc = open_channels(pub, index, err);
	if (rc != TW_OK) {
		goto undo_pub;
	}
	rc = open_counters(pub, err);
	if (rc != TW_OK) {
		goto undo_pub;
	}
	rc = open_transmitter(pub, index, err);
	if (rc == TW_OK && pub->conf->repairs) {
		rc = tw_pub_repair_open(&pub->repair, site, pub->conf, pub->channels,
					pub->conf->channel_count, err);
	}
	if (rc != TW_OK) {
		goto undo_pub;
	}
	*pub_p = pub;
	return TW_OK;

undo_pub:
	tw_publisher_close(pub);
	return rc;
}

void tw_publisher_close(struct tw_publisher *pub)
{
	if (pub == NULL) {
		return;
	}
	tw_pub_repair_close(&pub->repair); /* reads histories, writes counters */
	tw_tx_close(pub->tx);              /* sends may still read histories */
	for (uint32_t i = 0; pub->channels != NULL && i < pub->conf->channel_count; i++) {
		tw_pub_channel_fini(&pub->channels[i]);
	}
	if (pub->stats != NULL) {
		tw_stats_close(pub->stats, true);
	}
	free(pub->channels);
	free(pub->logged);
	free(pub);
}

static void describe_repair(const struct tw_publisher *pub, char text[LINE_BYTES])
{
	const struct tw_site_publisher *conf = pub->conf;
	if (!conf->repairs) {
		(void)snprintf(text, LINE_BYTES, "repair: none: %s",
			       conf->repair_port == 0
				       ? "repair_port is 0"
				       : "subscriber.repair does not name this publisher");
		return;
	}
	char rate[64] = "";
	if (conf->repair_max_mbps != 0) {
		(void)snprintf(rate, sizeof(rate), ", %u Mbit/s", conf->repair_max_mbps);
	}
	const struct tw_pub_repair_service *ways = pub->repair.ways;
	const char *rc_text = "";
	if (ways[TW_PUB_REPAIR_RC].server != NULL) {
		rc_text = conf->repair_one_sided ? " and RC, one-sided" : " and RC, served";
	}
	(void)snprintf(
		text, LINE_BYTES, "repair: TCP%s at " TW_IPV4_FMT ":%u, up to %u subscribers%s",
		rc_text, TW_IPV4_ARGS(pub->host->address),
		tw_read_server_port(ways[TW_PUB_REPAIR_TCP].server), conf->repair_clients, rate);
}

void tw_publisher_describe(const struct tw_publisher *pub, void (*line)(const char *text))
{
	char text[LINE_BYTES];
	snprintf(text, sizeof(text), "transport %s", pub->transport_why);
	line(text);
	for (unsigned int l = 0; l < TW_MAX_LINES; l++) {
		const struct tw_fabric_line *at = &pub->host->resolved[l];
		if (at->address != 0) {
			const char *device = tw_tx_describe(pub->tx, l);
			snprintf(text, sizeof(text), "line %c: %s " TW_IPV4_FMT "%s%s",
				 'a' + (int)l, at->interface, TW_IPV4_ARGS(at->address),
				 device[0] != '\0' ? ": " : "", device);
			line(text);
		}
	}
	snprintf(text, sizeof(text),
		 "datagrams up to %u bytes; history %u ms at %u Mbit/s: %.1f MB a channel",
		 pub->mtu_bytes, pub->conf->history_ms, pub->conf->peak_mbps,
		 (double)pub->conf->history_bytes / 1e6);
	line(text);
	if (pub->host->cpu_publisher >= 0) {
		snprintf(text, sizeof(text), "idle: %s; pinned to CPU %d", pub->idle_why,
			 pub->host->cpu_publisher);
	} else {
		snprintf(text, sizeof(text), "idle: %s; not pinned", pub->idle_why);
	}
	line(text);
	describe_repair(pub, text);
	line(text);
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		const struct tw_site_channel *c = site_channel(pub, i);
		int len = snprintf(text, sizeof(text), "channel %u (%s):", c->id, c->name);
		for (unsigned int l = 0; l < c->lines && len > 0 && len < LINE_BYTES; l++) {
			len += snprintf(text + len, sizeof(text) - (size_t)len,
					" line %c " TW_IPV4_FMT, 'a' + (int)l,
					TW_IPV4_ARGS(c->groups[l]));
		}
		line(text);
	}
}

int tw_publisher_start(struct tw_publisher *pub, struct tw_error *err)
{
	int rc = tw_thread_start(&pub->thread, "publisher", tw_publisher_hot, pub, err);
	pub->started = rc == TW_OK;
	return rc;
}

int tw_publisher_join(struct tw_publisher *pub, struct tw_error *err)
{
	if (!pub->started) {
		return TW_OK;
	}
	pthread_join(pub->thread, NULL);
	pub->started = false;
	tw_publisher_tick(pub); /* what came after the last one */
	if (pub->hot_status != TW_OK && err != NULL) {
		*err = pub->hot_err;
	}
	return pub->hot_status;
}

/* Counters and state are looked at one after the other, while the hot thread goes on: a line may be
 * of a session that has just been left.  The next tick says what came after it. */
static void log_changes(struct tw_pub_channel *channel, struct tw_pub_logged *logged)
{
	uint16_t id = channel->conf.channel;
	struct tw_error note;
	if (tw_pub_channel_note(channel, &note)) {
		tw_log(TW_LOG_ERROR, "%s", note.text);
	}
	struct tw_pub_logged now = {
		.state = atomic_load_explicit(&channel->state, memory_order_relaxed),
		.session = tw_counter_get(&channel->counters, TW_PUB_CHANNEL_session),
		.publisher = (uint32_t)tw_counter_get(&channel->counters, TW_PUB_CHANNEL_publisher),
		.any = true
	};
	bool sends = now.state == TW_PUB_LIVE || now.state == TW_PUB_ENDED;
	if (sends && (now.session != logged->session || now.publisher != logged->publisher)) {
		tw_log(TW_LOG_INFO, "channel %u: session %" PRIu64 ", publisher %u.%u", id,
		       now.session, now.publisher >> 16, now.publisher & 0xffffu);
		logged->state = TW_PUB_LIVE;
	}
	if (now.state == TW_PUB_WAITING && (!logged->any || logged->state != TW_PUB_WAITING)) {
		tw_log(TW_LOG_INFO, "channel %u: waiting for a feedhandler", id);
	}
	if (now.state == TW_PUB_ENDED && logged->state != TW_PUB_ENDED) {
		tw_log(TW_LOG_INFO,
		       "channel %u: session %" PRIu64 " has ended after message %" PRIu64, id,
		       now.session,
		       tw_counter_get(&channel->counters, TW_PUB_CHANNEL_next_seq) - 1);
	}
	*logged = now;
}

void tw_publisher_tick(void *ctx)
{
	struct tw_publisher *pub = ctx;
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		log_changes(&pub->channels[i], &pub->logged[i]);
	}
	struct tw_error note;
	while (tw_tx_note(pub->tx, &note)) {
		tw_log(note.code == TW_OK ? TW_LOG_INFO : TW_LOG_WARNING, "%s", note.text);
	}
	tw_pub_repair_tick(&pub->repair);
}
