/* The feedhandler process but for its hot thread; see feedhandler.h. */
#include "feedhandler/feedhandler.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/rundir.h"
#include "base/text.h"
#include "feedhandler/registry.h"
#include "wire/format.h"

static const struct tw_site_channel *channel_conf(const struct tw_site *site,
						  const struct tw_site_feedhandler *conf,
						  uint32_t i)
{
	return &site->channels[conf->channels[i]];
}

/* What the input's packets are for stands above what the protocol usually has. */
static void feed_conf(struct tw_feed_conf *out, const struct tw_site *site,
		      const struct tw_site_feedhandler *conf, const struct tw_input *input,
		      struct tw_counters counters)
{
	*out = (struct tw_feed_conf){
		.protocol = conf->protocol,
		.session = input->session != NULL ? input->session : conf->session,
		.directory = conf->directory,
		.venue_id = conf->venue_id,
		.mic = tw_site_mic(site, conf->venue_id),
		.channel_count = conf->channel_count,
		.max_orders = conf->max_orders,
		.trading_date = conf->trading_date,
		.counters = counters,
	};
	for (uint32_t i = 0; i < conf->channel_count && i < TW_FEED_MAX_CHANNELS; i++) {
		out->symbols[i] = channel_conf(site, conf, i)->symbols;
		out->depths[i] = (uint8_t)channel_conf(site, conf, i)->depth;
	}
}

static int open_input(struct tw_input **input_p, const struct tw_site *site,
		      const struct tw_site_feedhandler *conf, struct tw_error *err)
{
	if (conf->restamp && site->production) {
		return tw_fail(err, TW_ECONFIG,
			       "feedhandler %s: input.restamp makes times up: not in production",
			       conf->name);
	}
	const struct tw_input_kind *kind;
	int rc = tw_registry_input(&kind, conf, err);
	if (rc == TW_OK) {
		rc = kind->open(input_p, site, conf, err);
	}
	if (rc != TW_OK) {
		return rc;
	}
	const char *session = (*input_p)->session;
	if (session != NULL && conf->session[0] != '\0' && strcmp(session, conf->session) != 0) {
		rc = tw_fail(err, TW_ECONFIG,
			     "feedhandler %s: session %s is configured, but the input is for %s",
			     conf->name, conf->session, session);
		tw_input_close(*input_p);
		*input_p = NULL;
	}
	return rc;
}

static int open_counters(struct tw_feedhandler *fh, struct tw_error *err)
{
	int rc = tw_stats_create(&fh->stats, fh->site->run_dir, fh->conf->name, fh->app->program,
				 err);
	if (rc == TW_OK) {
		rc = tw_stats_add(fh->stats, TW_SET_loop, "feedhandler", &fh->duty.counters, err);
	}
	if (rc == TW_OK) {
		rc = tw_stats_add(fh->stats, TW_SET_fh, fh->conf->name, &fh->counters, err);
	}
	for (uint32_t l = 0; rc == TW_OK && l < fh->input->lines; l++) {
		char label[32];
		(void)snprintf(label, sizeof(label), "line %c", 'a' + (int)l);
		rc = tw_stats_add(fh->stats, TW_SET_fh_line, label, &fh->line_counters[l], err);
	}
	for (uint32_t i = 0; rc == TW_OK && i < fh->channel_count; i++) {
		char label[32];
		(void)snprintf(label, sizeof(label), "channel %u", fh->channels[i].conf->id);
		rc = tw_stats_add(fh->stats, TW_SET_fh_channel, label, &fh->channels[i].counters,
				  err);
	}
	if (rc == TW_OK) {
		rc = tw_stats_seal(fh->stats, err);
	}
	if (rc == TW_OK) {
		tw_duty_init(&fh->duty, fh->duty.counters, fh->site->slow_turn_us * UINT64_C(1000));
	}
	return rc;
}

/* Whether this session layer's packets come by multicast, and may be asked for again. */
static int check_live(const struct tw_feed *feed, const struct tw_site_feedhandler *conf,
		      struct tw_error *err)
{
	if (feed->session->place == NULL) {
		return tw_fail(err, TW_ECONFIG,
			       "feedhandler %s: session %s is none of input.multicast", conf->name,
			       feed->session->name);
	}
	if (conf->rerequest_count > 0 && feed->session->request == NULL) {
		return tw_fail(err, TW_ECONFIG,
			       "feedhandler %s: input.rerequest: session %s has no requests by UDP",
			       conf->name, feed->session->name);
	}
	return TW_OK;
}

/* What stands between a live input and the feed. */
static int open_live(struct tw_feedhandler *fh, struct tw_error *err)
{
	const struct tw_site_feedhandler *conf = fh->conf;
	int rc = check_live(fh->feed, conf, err);
	if (rc != TW_OK) {
		return rc;
	}
	const struct tw_venue_arb_conf arb = { .lines = fh->input->lines,
					       .store_packets = conf->store_packets,
					       .wait_ns = conf->gap_wait_us * UINT64_C(1000),
					       .repair = conf->rerequest_count > 0
								 ? TW_REREQUEST_OUTSTANDING
								 : 0 };
	rc = tw_venue_arb_create(&fh->arb, &arb, err);
	if (rc != TW_OK || conf->rerequest_count == 0) {
		return rc;
	}
	_Static_assert(TW_MAX_REREQUEST_SERVERS <= TW_REREQUEST_MAX_SERVERS, "servers");
	struct tw_rerequest_conf rr = { .servers = conf->rerequest_count,
					.answer_ns = conf->rerequest_ms * UINT64_C(1000000),
					.attempts = conf->rerequest_attempts };
	for (uint32_t i = 0; i < rr.servers; i++) {
		rr.server[i].address = tw_endpoint_address(conf->rerequest[i]);
		rr.server[i].port = tw_endpoint_port(conf->rerequest[i]);
	}
	return tw_rerequest_udp_open(&fh->rerequest, &rr, err);
}

static int open_buses(struct tw_feedhandler *fh, struct tw_error *err)
{
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		struct tw_feedhandler_channel *channel = &fh->channels[i];
		struct tw_bus_conf conf = {
			.run_dir = fh->site->run_dir,
			.channel = channel->conf->id,
			.size_bytes = (size_t)fh->conf->bus_kbytes * 1024,
			.wall_ns = tw_wall_ns(),
		};
		int rc = tw_bus_create(&channel->writer, &conf, 0, err);
		if (rc != TW_OK) {
			return rc;
		}
		channel->session = tw_bus_writer_session(channel->writer);
		tw_counter_set(&channel->counters, TW_FH_CHANNEL_session, channel->session);
		tw_counter_set(&channel->counters, TW_FH_CHANNEL_next_seq,
			       tw_bus_writer_next_seq(channel->writer));
	}
	return TW_OK;
}

int tw_feedhandler_open(struct tw_feedhandler **fh_p, const struct tw_site *site, uint32_t index,
			struct tw_app *app, struct tw_error *err)
{
	*fh_p = NULL;
	struct tw_feedhandler *fh = calloc(1, sizeof(*fh));
	if (fh == NULL) {
		return tw_fail(err, TW_ENOMEM, "feedhandler: out of memory");
	}
	fh->site = site;
	fh->conf = &site->feedhandlers[index];
	fh->app = app;
	fh->channel_count = fh->conf->channel_count;
	fh->pace = (struct tw_pace){ .speed_pct = fh->conf->speed_pct,
				     .rate_msgs = fh->conf->rate_msgs };
	fh->idle.mode = tw_idle_resolve(site->idle, tw_site_hot_threads(site, fh->conf->host),
					&fh->idle_why);
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		fh->channels[i].conf = channel_conf(site, fh->conf, i);
	}
	tw_clock_init();
	int rc = open_input(&fh->input, site, fh->conf, err);
	if (rc == TW_OK) {
		TW_ASSERT(fh->input != NULL);
		fh->gated = fh->input->waits;
		rc = tw_rundir_ensure(site->run_dir, err);
	}
	if (rc == TW_OK) {
		rc = open_counters(fh, err);
	}
	if (rc == TW_OK) {
		struct tw_feed_conf conf;
		feed_conf(&conf, site, fh->conf, fh->input, fh->counters);
		conf.sink = (struct tw_feed_sink){ .message = tw_feedhandler_message, .ctx = fh };
		rc = tw_feed_create(&fh->feed, &conf, err);
	}
	if (rc == TW_OK && fh->input->lines > 0) {
		fh->pace = (struct tw_pace){ 0 }; /* what is live comes when it comes */
		rc = open_live(fh, err);
	}
	if (rc == TW_OK) {
		rc = open_buses(fh, err);
	}
	if (rc != TW_OK) {
		tw_feedhandler_close(fh);
		return rc;
	}
	*fh_p = fh;
	return TW_OK;
}

void tw_feedhandler_close(struct tw_feedhandler *fh)
{
	if (fh == NULL) {
		return;
	}
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		tw_bus_writer_close(fh->channels[i].writer);
	}
	tw_rerequest_udp_close(fh->rerequest);
	tw_venue_arb_destroy(fh->arb);
	tw_feed_destroy(fh->feed);
	tw_stats_close(fh->stats, false); /* the last figures stay readable until the next start */
	tw_input_close(fh->input);
	free(fh);
}

int tw_feedhandler_start(struct tw_feedhandler *fh, struct tw_error *err)
{
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		tw_log(TW_LOG_INFO, "channel %u %s: session %" PRIu64 ", bus of %" PRIu32 " KB",
		       fh->channels[i].conf->id, fh->channels[i].conf->name,
		       fh->channels[i].session, fh->conf->bus_kbytes);
	}
	tw_log(TW_LOG_INFO, "idle: %s", fh->idle_why);
	int rc = tw_thread_start(&fh->thread, "tw-feedhandler", tw_feedhandler_hot, fh, err);
	fh->started = rc == TW_OK;
	return rc;
}

static void log_input(const struct tw_feedhandler *fh)
{
	const struct tw_site_feedhandler *conf = fh->conf;
	if (conf->files != NULL) {
		tw_log(TW_LOG_INFO, "reading %s%s", conf->files[0],
		       conf->files[1] != NULL ? " and more" : "");
		return;
	}
	for (uint32_t l = 0; l < fh->input->lines; l++) {
		uint32_t group = tw_endpoint_address(conf->multicast[l]);
		tw_log(TW_LOG_INFO,
		       "reading line %c: " TW_IPV4_FMT ":%u, receive buffer of %" PRIu32
		       " bytes; receive times: the kernel's (SO_TIMESTAMPNS)",
		       'a' + (int)l, TW_IPV4_ARGS(group), tw_endpoint_port(conf->multicast[l]),
		       fh->input->line[l].receive_buffer_bytes);
	}
}

static void log_phase(struct tw_feedhandler *fh)
{
	int phase = atomic_load_explicit(&fh->phase, memory_order_relaxed); /* orders nothing */
	if (phase == fh->phase_logged) {
		return;
	}
	fh->phase_logged = phase;
	switch (phase) {
	case TW_FH_WAITING:
		tw_log(TW_LOG_INFO, "waiting for the publisher of every channel");
		break;
	case TW_FH_RUNNING:
		log_input(fh);
		break;
	case TW_FH_DRAINING:
		tw_log(TW_LOG_INFO, "the input has ended, waiting until all of it is sent");
		break;
	default:
		break;
	}
}

/* Logs when a counter has grown since it was last looked at. */
static void log_growth(const struct tw_feedhandler *fh, enum tw_fh_counter index, uint64_t *logged,
		       const char *text)
{
	uint64_t now = tw_counter_get(&fh->counters, (unsigned int)index);
	if (now != *logged) {
		tw_log(TW_LOG_WARNING, "%s: %" PRIu64 " so far", text, now);
		*logged = now;
	}
}

void tw_feedhandler_tick(void *fh_p)
{
	struct tw_feedhandler *fh = fh_p;
	log_phase(fh);
	if (fh->input->ops->tick != NULL) {
		fh->input->ops->tick(fh->input);
	}
	log_growth(fh, TW_FH_missing_messages, &fh->gaps_logged,
		   "gaps in the venue's sequence, missing messages");
	log_growth(fh, TW_FH_id_collisions, &fh->collisions_logged,
		   "instruments refused because their id is taken (a directory file cures it)");
	log_growth(fh, TW_FH_orders_refused, &fh->orders_logged,
		   "orders not followed because max_orders are live");
	log_growth(fh, TW_FH_instruments_refused, &fh->refused_logged,
		   "messages dropped because the instrument table is full");
}

int tw_feedhandler_join(struct tw_feedhandler *fh)
{
	if (!fh->started) {
		return 0;
	}
	(void)pthread_join(fh->thread, NULL);
	fh->started = false;
	tw_feedhandler_tick(fh);
	if (fh->input->warning.code != TW_OK) {
		tw_log(TW_LOG_WARNING, "%s", fh->input->warning.text);
	}
	if (fh->error.code != TW_OK) {
		tw_log(TW_LOG_ERROR, "%s", fh->error.text);
	}
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		const struct tw_feedhandler_channel *channel = &fh->channels[i];
		tw_log(TW_LOG_INFO,
		       "channel %u %s: session %" PRIu64 " ended after %" PRIu64 " messages",
		       channel->conf->id, channel->conf->name, channel->session,
		       tw_counter_get(&channel->counters, TW_FH_CHANNEL_messages));
	}
	return fh->exit_status;
}

static void json_latency(FILE *out, const char *name, const struct tw_hist *hist)
{
	struct tw_hist_summary s;
	tw_hist_summarize(hist, &s);
	(void)fprintf(out,
		      "  \"%s\": { \"count\": %" PRIu64 ", \"mean_ns\": %" PRIu64
		      ", \"p50_ns\": %" PRIu64 ", \"p99_ns\": %" PRIu64 ", \"max_ns\": %" PRIu64
		      ", \"negative\": %" PRIu64 " },\n",
		      name, s.count, s.mean_ns, s.p50_ns, s.p99_ns, s.max_ns, s.negative);
}

static void json_lines(const struct tw_feedhandler *fh, FILE *out)
{
#define NAME_OF(set, SET, name, kind, unit, help) #name,
#define NOTHING(set, SET, name, help)
	static const char *const names[] = { TW_COUNTERS_fh_line(NAME_OF, NOTHING) };
#undef NAME_OF
#undef NOTHING
	for (uint32_t l = 0; l < fh->input->lines; l++) {
		(void)fprintf(out, "%s\n    { \"line\": \"%c\"", l == 0 ? "" : ",", 'a' + (int)l);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
			(void)fprintf(out, ", \"%s\": %" PRIu64, names[i],
				      tw_counter_get(&fh->line_counters[l], (unsigned int)i));
		}
		(void)fputs(" }", out);
	}
}

void tw_feedhandler_summary(const struct tw_feedhandler *fh, FILE *out)
{
#define NAME_OF(set, SET, name, kind, unit, help) #name,
#define NOTHING(set, SET, name, help)
	static const char *const names[] = { TW_COUNTERS_fh(NAME_OF, NOTHING) };
#undef NAME_OF
#undef NOTHING
	(void)fprintf(out, "{\n  \"program\": \"%s\",\n  \"version\": \"%s\",\n  \"name\": ",
		      fh->app->program, TW_VERSION);
	tw_format_json_text(out, fh->conf->name);
	(void)fprintf(out, ",\n  \"environment\": \"%s\",\n  \"protocol\": \"%s\",\n  \"files\": [",
		      fh->site->production ? "production" : "test", fh->conf->protocol);
	for (size_t i = 0; fh->conf->files != NULL && fh->conf->files[i] != NULL; i++) {
		(void)fputs(i == 0 ? "" : ", ", out);
		tw_format_json_text(out, fh->conf->files[i]);
	}
	(void)fprintf(out, "],\n  \"lines\": [");
	json_lines(fh, out);
	(void)fprintf(out, "],\n  \"exit_status\": %d,\n  \"error\": ", fh->exit_status);
	tw_format_json_text(out, fh->error.text);
	(void)fprintf(out, ",\n  \"warning\": ");
	tw_format_json_text(out, fh->input->warning.text);
	(void)fprintf(out, ",\n  \"elapsed_ns\": %" PRIu64 ",\n  \"clock\": \"%s\",\n",
		      fh->ended_ns - fh->begun_ns, tw_clock_source());
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		(void)fprintf(out, "  \"%s\": %" PRIu64 ",\n", names[i],
			      tw_counter_get(&fh->counters, (unsigned int)i));
	}
	json_latency(out, "exchange_to_feedhandler",
		     &fh->counters.hists[TW_FH_HIST_exchange_to_feedhandler]);
	(void)fprintf(out, "  \"channels\": [");
	for (uint32_t i = 0; i < fh->channel_count; i++) {
		const struct tw_feedhandler_channel *channel = &fh->channels[i];
		(void)fprintf(out, "%s\n    { \"id\": %u, \"name\": ", i == 0 ? "" : ",",
			      channel->conf->id);
		tw_format_json_text(out, channel->conf->name);
		(void)fprintf(out,
			      ", \"session\": %" PRIu64 ", \"messages\": %" PRIu64
			      ", \"bytes\": %" PRIu64 ", \"stalls\": %" PRIu64
			      ", \"next_seq\": %" PRIu64 " }",
			      channel->session,
			      tw_counter_get(&channel->counters, TW_FH_CHANNEL_messages),
			      tw_counter_get(&channel->counters, TW_FH_CHANNEL_bytes),
			      tw_counter_get(&channel->counters, TW_FH_CHANNEL_stalls),
			      tw_counter_get(&channel->counters, TW_FH_CHANNEL_next_seq));
	}
	(void)fprintf(out, "\n  ]\n}\n");
}

int tw_feedhandler_check(const struct tw_site *site, uint32_t index, FILE *out,
			 struct tw_error *err)
{
	const struct tw_site_feedhandler *conf = &site->feedhandlers[index];
	struct tw_stats *stats = NULL;
	struct tw_feed *feed = NULL;
	struct tw_input *input = NULL;
	struct tw_counters counters = { 0 };
	int rc = tw_stats_create(&stats, NULL, "check", "tw-feedhandler", err);
	if (rc == TW_OK) {
		rc = tw_stats_add(stats, TW_SET_fh, conf->name, &counters, err);
	}
	if (rc == TW_OK) {
		rc = tw_stats_seal(stats, err);
	}
	if (rc == TW_OK) {
		rc = open_input(&input, site, conf, err);
	}
	if (rc == TW_OK) {
		TW_ASSERT(input != NULL);
		struct tw_feed_conf fc;
		feed_conf(&fc, site, conf, input, counters);
		rc = tw_feed_create(&feed, &fc, err);
		if (rc == TW_OK && input->lines > 0) {
			rc = check_live(feed, conf, err);
		}
	}
	if (rc == TW_OK) {
		(void)fprintf(out,
			      "feedhandler %s: protocol %s, session %s, %u channels, %u symbols in "
			      "the directory, input %s can be read\n",
			      conf->name, feed->protocol->name, feed->session->name,
			      conf->channel_count, feed->directory.count,
			      conf->files != NULL ? conf->files[0] : "multicast");
	}
	tw_input_close(input);
	tw_feed_destroy(feed);
	tw_stats_close(stats, true);
	return rc;
}
