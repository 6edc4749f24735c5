/* Opening and closing a subscriber handle, and what is known of it.
 *
 * Order     counters are sealed before the receiver is opened, because it writes to them; the clock
 *           keeper comes last, because it counts.  Closing undoes in reverse and takes half-open
 *           handles. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/rundir.h"
#include "base/slab.h"
#include "subscriber/sub_internal.h"

void tw_sub_conf_init(struct tw_sub_conf *conf)
{
	memset(conf, 0, sizeof(*conf));
	conf->size = sizeof(*conf);
}

/* The caller's conf may be older (shorter) or newer than ours; a newer one must ask for nothing that
 * we do not know. */
static int take_conf(struct tw_sub_conf *out, const struct tw_sub_conf *conf, struct tw_error *err)
{
	tw_sub_conf_init(out);
	const size_t least = offsetof(struct tw_sub_conf, channel_count) + sizeof(uint32_t);
	if (conf == NULL || conf->size < least) {
		return tw_fail(err, TW_EARG,
			       "subscriber: open: conf was not made by tw_sub_conf_init()");
	}
	const uint8_t *bytes = (const uint8_t *)conf;
	for (size_t i = sizeof(*out); i < conf->size; i++) {
		if (bytes[i] != 0) {
			return tw_fail(err, TW_EARG,
				       "subscriber: open: conf asks for more than this library "
				       "knows (%zu bytes, %zu known)",
				       conf->size, sizeof(*out));
		}
	}
	size_t size = conf->size < sizeof(*out) ? conf->size : sizeof(*out);
	memcpy(out, conf, size);
	out->size = sizeof(*out);
	return TW_OK;
}

static void make_name(struct tw_sub *sub, const char *name)
{
	static _Atomic unsigned int made;

	if (name != NULL) {
		(void)snprintf(sub->name, sizeof(sub->name), "%s", name);
		return;
	}
	/* a number is all that is wanted of it */
	unsigned int nth = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed) + 1;
	int len = snprintf(sub->name, sizeof(sub->name), "sub-%d", (int)getpid());
	if (nth > 1) {
		(void)snprintf(sub->name + len, sizeof(sub->name) - (size_t)len, "-%u", nth);
	}
}

static void arb_conf(const struct tw_sub *sub, uint32_t site_idx, struct tw_arb_conf *out)
{
	const struct tw_site *site = sub->plan.site;
	const struct tw_site_channel *channel = &site->channels[site_idx];

	*out = (struct tw_arb_conf){
		.channel = channel->id,
		.environment = site->environment_id,
		.accept_replay = site->subscriber.accept_replay,
		.start = site->subscriber.start,
		.lines = channel->lines,
		.wait_ns = (uint64_t)site->subscriber.wait_us * 1000u,
		.heartbeat_max_ns = tw_sub_plan_heartbeat_ns(&sub->plan, site_idx),
		.session_takeover_ns = (uint64_t)site->subscriber.session_takeover_ms * 1000000u,
		.store_dgrams = site->subscriber.store_dgrams,
		.mtu_bytes = site->fabric.mtu_bytes,
		.latest = channel->latest,
	};
	struct tw_repair_conf repair;
	out->repair = tw_sub_repair_conf(sub, site_idx, &repair);
}

/* Bytes of the channel's ladder; 0: it has none, < 0: its settings make no sense. */
static int64_t repair_bytes(const struct tw_sub *sub, uint32_t site_idx,
			    struct tw_repair_conf *conf)
{
	if (!tw_sub_repair_conf(sub, site_idx, conf)) {
		return 0;
	}
	size_t bytes = tw_repair_size(conf);
	return bytes == 0 ? -1 : (int64_t)bytes;
}

/* Bytes of the table by which a channel knows what is late, aligned wherever it begins. */
static size_t late_bytes(const struct tw_arb_conf *conf)
{
	return conf->latest ? tw_sub_late_bytes(TW_SUB_LATE_SETS) + TW_CACHE_PAIR_BYTES : 0;
}

/* Lays everything of the handle's channels over one slab: channels, lines, source lists, arbiters. */
static int lay_out(struct tw_sub *sub, uint64_t now_ns, struct tw_error *err)
{
	const struct tw_sub_plan *plan = &sub->plan;
	const uint32_t source_max = TW_MAX_PUBLISHERS * (1 + 3 * TW_MAX_LINES);
	uint32_t sources[TW_MAX_PUBLISHERS * (1 + 3 * TW_MAX_LINES)];
	size_t channels_at = 0;
	size_t lines_at = channels_at + plan->channel_count * sizeof(struct tw_sub_channel);
	size_t at = lines_at + plan->line_count * sizeof(struct tw_sub_line);
	struct tw_arb_conf conf;
	struct tw_repair_conf repair;

	size_t bytes = at;
	for (uint32_t i = 0; i < plan->channel_count; i++) {
		arb_conf(sub, plan->channels[i], &conf);
		size_t arb_bytes = tw_arb_size(&conf);
		if (arb_bytes == 0) {
			return tw_fail(err, TW_ECONFIG,
				       "channel %u: line arbiter: settings out of range",
				       conf.channel);
		}
		bytes += tw_round_up(
			tw_sub_plan_sources(plan, plan->channels[i], sources, source_max) *
				sizeof(sources[0]),
			TW_CACHE_LINE_BYTES);
		bytes += tw_round_up(arb_bytes, TW_CACHE_LINE_BYTES);
		int64_t ladder_bytes = repair_bytes(sub, plan->channels[i], &repair);
		if (ladder_bytes < 0) {
			return tw_fail(err, TW_ECONFIG,
				       "channel %u: repair ladder: settings out of range",
				       conf.channel);
		}
		bytes += tw_round_up((size_t)ladder_bytes, TW_CACHE_LINE_BYTES);
		bytes += late_bytes(&conf);
	}
	int rc = tw_slab_init(&sub->slab, bytes, err);
	if (rc < 0) {
		return rc;
	}
	sub->channels = (void *)(sub->slab.base + channels_at);
	sub->lines = (void *)(sub->slab.base + lines_at);
	for (uint32_t i = 0; i < plan->channel_count; i++) {
		struct tw_sub_channel *channel = &sub->channels[i];
		arb_conf(sub, plan->channels[i], &conf);
		channel->id = conf.channel;
		channel->site_idx = plan->channels[i];
		channel->source_count =
			tw_sub_plan_sources(plan, plan->channels[i], sources, source_max);
		size_t source_bytes = channel->source_count * sizeof(sources[0]);
		memcpy(sub->slab.base + at, sources, source_bytes);
		channel->sources = (const void *)(sub->slab.base + at);
		at += tw_round_up(source_bytes, TW_CACHE_LINE_BYTES);
		size_t arb_bytes = tw_arb_size(&conf);
		rc = tw_arb_init(&channel->arb, sub->slab.base + at, arb_bytes, &conf, now_ns);
		if (rc < 0) {
			return tw_fail(err, rc, "channel %u: line arbiter: %s", conf.channel,
				       tw_strstatus(rc));
		}
		at += tw_round_up(arb_bytes, TW_CACHE_LINE_BYTES);
		size_t ladder_bytes = (size_t)repair_bytes(sub, plan->channels[i], &repair);
		if (ladder_bytes > 0) {
			rc = tw_repair_init(&channel->repair, sub->slab.base + at, ladder_bytes,
					    &repair, channel->arb);
			channel->server_count =
				tw_sub_repair_servers(plan, plan->channels[i], channel->servers);
		}
		if (rc < 0) {
			return tw_fail(err, rc, "channel %u: repair ladder: %s", conf.channel,
				       tw_strstatus(rc));
		}
		at += tw_round_up(ladder_bytes, TW_CACHE_LINE_BYTES);
		if (conf.latest) {
			size_t align_at = tw_round_up(at, TW_CACHE_PAIR_BYTES);
			channel->late =
				tw_sub_late_init(sub->slab.base + align_at, TW_SUB_LATE_SETS);
			at += late_bytes(&conf);
		}
		channel->lines = channel->alive = (uint8_t)conf.lines;
		for (uint32_t l = 0; l < conf.lines; l++) {
			struct tw_sub_line *line = &sub->lines[sub->line_count++];
			line->channel = channel;
			line->line = (uint8_t)l;
			line->endpoint = sub->line_count - 1;
			line->next = line + 1;
			channel->line[l] = line;
		}
	}
	sub->lines[sub->line_count - 1].next = sub->lines;
	sub->next_line = sub->lines;
	sub->channel_count = sub->alive = plan->channel_count;
	return TW_OK;
}

static int open_counters(struct tw_sub *sub, struct tw_error *err)
{
	const char *run_dir = sub->plan.site->run_dir;
	char label[64];

	int rc = tw_rundir_ensure(run_dir, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_stats_create(&sub->stats, run_dir, sub->name, program_invocation_short_name, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_stats_add(sub->stats, TW_SET_sub, sub->name, &sub->counters, err);
	if (rc >= 0) {
		rc = tw_stats_add(sub->stats, TW_SET_loop, "subscriber", &sub->loop, err);
	}
	for (uint32_t i = 0; i < sub->channel_count && rc >= 0; i++) {
		struct tw_sub_channel *channel = &sub->channels[i];
		(void)snprintf(label, sizeof(label), "channel %u", channel->id);
		rc = tw_stats_add(sub->stats, TW_SET_sub_channel, label, &channel->counters, err);
	}
	for (uint32_t i = 0; i < sub->line_count && rc >= 0; i++) {
		struct tw_sub_line *line = &sub->lines[i];
		(void)snprintf(label, sizeof(label), "channel %u line %c", line->channel->id,
			       'a' + line->line);
		rc = tw_stats_add(sub->stats, TW_SET_sub_line, label, &line->counters, err);
	}
	for (uint32_t l = 0; l < TW_FABRIC_MAX_LINES && sub->plan.verbs && rc >= 0; l++) {
		(void)snprintf(label, sizeof(label), "line %c", 'a' + (char)l);
		rc = tw_stats_add(sub->stats, TW_SET_verbs_line, label, &sub->verbs_lines[l], err);
	}
	if (rc >= 0) {
		rc = tw_sub_repair_counters(sub, err);
	}
	return rc < 0 ? rc : tw_stats_seal(sub->stats, err);
}

static int open_fabric(struct tw_sub *sub, struct tw_error *err)
{
	const struct tw_site *site = sub->plan.site;
	struct tw_fabric_conf conf;

	struct tw_rx_endpoint *endpoints = calloc(sub->line_count, sizeof(endpoints[0]));
	if (endpoints == NULL) {
		return tw_fail(err, TW_ENOMEM, "subscriber: calloc: %u endpoints", sub->line_count);
	}
	for (uint32_t i = 0; i < sub->line_count; i++) {
		const struct tw_sub_line *line = &sub->lines[i];
		endpoints[i] = (struct tw_rx_endpoint){
			.group = site->channels[line->channel->site_idx].groups[line->line],
			.line = line->line,
			.counters = line->counters,
		};
	}
	tw_site_fabric_conf(site, sub->plan.host, &conf);
	memcpy(conf.verbs, sub->verbs_lines, sizeof(conf.verbs));
	int rc = tw_rx_open(&sub->rx, sub->plan.verbs, &conf, endpoints, sub->line_count, err);
	if (rc >= 0 && tw_fault_active(&site->fault)) {
		struct tw_rx *inner = sub->rx;
		sub->rx = NULL; /* the fault layer owns it, on failure too */
		rc = tw_fault_open(&sub->rx, inner, &site->fault, endpoints, sub->line_count,
				   conf.mtu_bytes, err);
		sub->fault_active = rc >= 0;
	}
	free(endpoints);
	return rc;
}

/* Everything after the plan; the caller closes what is there on failure. */
static int open_planned(struct tw_sub *sub, struct tw_error *err)
{
	const struct tw_site *site = sub->plan.site;

	tw_clock_init();
	int rc = lay_out(sub, tw_mono_ns(), err);
	if (rc < 0) {
		return rc;
	}
	sub->idle.mode = sub->plan.idle;
	sub->mtu_bytes = site->fabric.mtu_bytes;
	sub->slow_turn_ns = (uint64_t)site->slow_turn_us * 1000u;
	sub->gap_wait_ns = (uint64_t)site->subscriber.wait_us * 1000u;
	sub->timer_ns = UINT64_MAX;
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		uint64_t ns = tw_sub_plan_heartbeat_ns(&sub->plan, sub->channels[i].site_idx);
		sub->timer_ns = ns < sub->timer_ns ? ns : sub->timer_ns;
	}
	rc = open_counters(sub, err);
	if (rc < 0) {
		return rc;
	}
	rc = open_fabric(sub, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_sub_repair_open(sub, err);
	if (rc < 0) {
		return rc;
	}
	sub->clock.counters = sub->counters;
	rc = tw_sub_clock_join(&sub->clock, err);
	sub->clock_joined = rc >= 0;
	return rc;
}

int tw_sub_open(struct tw_sub **sub_p, const struct tw_sub_conf *conf, struct tw_error *err)
{
	struct tw_sub_conf own;

	*sub_p = NULL;
	int rc = take_conf(&own, conf, err);
	if (rc < 0) {
		return rc;
	}
	size_t bytes = tw_round_up(sizeof(struct tw_sub), _Alignof(struct tw_sub));
	struct tw_sub *sub = aligned_alloc(_Alignof(struct tw_sub), bytes);
	if (sub == NULL) {
		return tw_fail(err, TW_ENOMEM, "subscriber: aligned_alloc: %zu bytes", bytes);
	}
	memset(sub, 0, bytes);
	sub->event_fd = sub->timer_fd = -1;
	rc = tw_sub_plan_make(&sub->plan, &own, err);
	if (rc >= 0) {
		make_name(sub, own.name);
		rc = open_planned(sub, err);
	}
	if (rc < 0) {
		tw_sub_close(sub);
		return rc;
	}
	*sub_p = sub;
	return TW_OK;
}

void tw_sub_close(struct tw_sub *sub)
{
	if (sub == NULL) {
		return;
	}
	if (sub->clock_joined) {
		tw_sub_clock_leave(&sub->clock);
	}
	tw_reader_close(sub->reader); /* writes counters */
	tw_sub_event_close(sub);
	tw_rx_close(sub->rx);
	tw_stats_close(sub->stats, true);
	tw_slab_fini(&sub->slab);
	tw_sub_plan_free(&sub->plan);
	free(sub);
}

void tw_sub_error(const struct tw_sub *sub, uint16_t channel, struct tw_error *err)
{
	if (err == NULL) {
		return;
	}
	if (channel == 0) {
		*err = sub->error;
		return;
	}
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		if (sub->channels[i].id == channel) {
			/* one line's failure does not fail the channel */
			if (sub->channels[i].down) {
				*err = sub->channels[i].error;
			} else {
				memset(err, 0, sizeof(*err));
			}
			return;
		}
	}
	(void)tw_fail(err, TW_ENOTFOUND, "channel %u: not of this handle", channel);
}

const char *tw_sub_mic(const struct tw_sub *sub, uint16_t venue_id)
{
	return tw_site_mic(sub->plan.site, venue_id);
}
