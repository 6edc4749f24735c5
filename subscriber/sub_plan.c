/* What a configuration means for a subscriber on this host: site file, host entry, channels, lines,
 * transport, idle mode and whose datagrams are accepted.  Touches no network and no shared memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "subscriber/sub_internal.h"

#define LOOPBACK 0x7f000001u

static bool name_holds(const char *name)
{
	size_t len = strlen(name);

	/* it becomes a file name in a directory that others read */
	return len > 0 && len < TW_NAME_BYTES && name[0] != '.' &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
		       len;
}

static int check_conf(const struct tw_sub_conf *conf, struct tw_error *err)
{
	if (conf->site_path == NULL) {
		return tw_fail(err, TW_EARG, "subscriber: open: site_path is NULL");
	}
	if (conf->name != NULL && !name_holds(conf->name)) {
		return tw_fail(err, TW_EARG,
			       "subscriber: open: name '%.80s' is not 1 to %d of A-Z a-z 0-9 . _ - "
			       "without a leading dot",
			       conf->name, TW_NAME_BYTES - 1);
	}
	if (conf->mode > TW_SUB_MODE_LATEST) {
		return tw_fail(err, TW_EARG, "subscriber: open: mode %u is not one of tw_sub_mode",
			       conf->mode);
	}
	if (conf->channels != NULL && conf->channel_count == 0) {
		return tw_fail(err, TW_EARG, "subscriber: open: channel_count is 0");
	}
	return TW_OK;
}

/* What the caller wants in place of the site's mode. */
static int choose_mode(struct tw_site *site, uint32_t idx, uint32_t mode, struct tw_error *err)
{
	struct tw_site_channel *channel = &site->channels[idx];

	if (mode == TW_SUB_MODE_LATEST && channel->depth != TW_DEPTH_QUOTES) {
		return tw_fail(err, TW_ECONFIG,
			       "channel %u: found mode latest with depth %s, allowed with depth "
			       "quotes alone",
			       channel->id,
			       channel->depth == TW_DEPTH_LEVELS ? "levels" : "orders");
	}
	if (mode != TW_SUB_MODE_SITE) {
		channel->latest = mode == TW_SUB_MODE_LATEST;
	}
	return TW_OK;
}

static int add_channel(struct tw_sub_plan *plan, uint32_t idx, uint32_t mode, struct tw_error *err)
{
	const struct tw_site_channel *channel = &plan->site->channels[idx];
	int rc;

	for (uint32_t i = 0; i < plan->channel_count; i++) {
		if (plan->channels[i] == idx) {
			return tw_fail(err, TW_EARG, "channel %u: named twice", channel->id);
		}
	}
	rc = choose_mode(plan->site, idx, mode, err);
	if (rc < 0) {
		return rc;
	}
	plan->channels[plan->channel_count++] = idx;
	plan->line_count += channel->lines;
	return TW_OK;
}

static int choose_channels(struct tw_sub_plan *plan, const struct tw_sub_conf *conf,
			   struct tw_error *err)
{
	uint32_t wanted = conf->channels != NULL ? conf->channel_count : plan->site->channel_count;
	int rc = TW_OK;

	if (wanted == 0 || wanted > plan->site->channel_count) {
		return tw_fail(err, TW_EARG, "%s: channels: %u wanted, the site has %u",
			       plan->site->path, wanted, plan->site->channel_count);
	}
	plan->channels = calloc(wanted, sizeof(plan->channels[0]));
	if (plan->channels == NULL) {
		return tw_fail(err, TW_ENOMEM, "subscriber: calloc: %u channels", wanted);
	}
	for (uint32_t i = 0; i < wanted && rc >= 0; i++) {
		int idx = (int)i;
		if (conf->channels != NULL) {
			idx = tw_site_find_channel(plan->site, conf->channels[i]);
		}
		if (idx < 0) {
			return tw_fail(err, TW_ENOTFOUND, "%s: channels: no channel %u",
				       plan->site->path, conf->channels[i]);
		}
		rc = add_channel(plan, (uint32_t)idx, conf->mode, err);
	}
	return rc;
}

static int check_channels(const struct tw_sub_plan *plan, struct tw_error *err)
{
	const struct tw_site_host *host = &plan->site->hosts[plan->host];

	for (uint32_t i = 0; i < plan->channel_count; i++) {
		const struct tw_site_channel *channel = &plan->site->channels[plan->channels[i]];
		for (uint32_t l = 0; l < channel->lines; l++) {
			if (host->resolved[l].address == 0) {
				return tw_fail(err, TW_ECONFIG,
					       "%s: hosts.%s.lines.%c: channel %u has line %c, the "
					       "host names no interface for it",
					       plan->site->path, host->name, 'a' + (char)l,
					       channel->id, 'a' + (char)l);
			}
		}
		if (tw_sub_plan_sources(plan, plan->channels[i], NULL, 0) == 0) {
			return tw_fail(err, TW_ECONFIG,
				       "%s: publishers: none sends channel %u, so nothing on it "
				       "would be accepted",
				       plan->site->path, channel->id);
		}
	}
	return TW_OK;
}

/* Who is asked for what is missing, for people. */
static void describe_repair(struct tw_sub_plan *plan)
{
	const struct tw_site *site = plan->site;
	const size_t size = sizeof(plan->repair_text);
	size_t len = 0;

	if (site->subscriber.repair_count == 0) {
		(void)snprintf(plan->repair_text, size,
			       "by the other line alone: subscriber.repair is empty");
		return;
	}
	for (uint32_t i = 0; i < site->subscriber.repair_count && len < size; i++) {
		const struct tw_site_publisher *p = &site->publishers[site->subscriber.repair[i]];
		uint32_t address = site->hosts[p->host].address;
		int n = snprintf(plan->repair_text + len, size - len, "%s%s at " TW_IPV4_FMT ":%u",
				 i == 0 ? "by " : ", ", p->name, TW_IPV4_ARGS(address),
				 p->repair_port);
		len += n > 0 ? (size_t)n : 0;
	}
}

int tw_sub_plan_make(struct tw_sub_plan *plan, const struct tw_sub_conf *conf, struct tw_error *err)
{
	memset(plan, 0, sizeof(*plan));
	int rc = check_conf(conf, err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_site_load(&plan->site, conf->site_path, err);
	if (rc < 0) {
		return rc;
	}
	if (conf->start != TW_SUB_START_SITE) {
		plan->site->subscriber.start =
			conf->start == TW_SUB_START_LIVE ? TW_START_LIVE : TW_START_SESSION;
	}
	rc = tw_site_find_host(plan->site, conf->as, plan->host_why, err);
	if (rc < 0) {
		goto undo_site;
	}
	plan->host = (uint32_t)rc;
	rc = choose_channels(plan, conf, err);
	if (rc < 0) {
		goto undo_site;
	}
	rc = tw_site_resolve_lines(plan->site, plan->host, err);
	if (rc < 0) {
		goto undo_site;
	}
	rc = check_channels(plan, err);
	if (rc < 0) {
		goto undo_site;
	}
	rc = tw_site_transport(plan->site, plan->transport_why, err);
	if (rc < 0) {
		goto undo_site;
	}
	plan->verbs = rc == TW_TRANSPORT_VERBS;
	const char *why = "";
	plan->idle = tw_idle_resolve(plan->site->idle, tw_site_hot_threads(plan->site, plan->host),
				     &why);
	(void)snprintf(plan->idle_why, sizeof(plan->idle_why), "%s", why);
	describe_repair(plan);
	return TW_OK;
undo_site:
	tw_sub_plan_free(plan);
	return rc;
}

void tw_sub_plan_free(struct tw_sub_plan *plan)
{
	free(plan->channels);
	tw_site_free(plan->site);
	memset(plan, 0, sizeof(*plan));
}

static bool publishes(const struct tw_site_publisher *publisher, uint32_t channel)
{
	for (uint32_t i = 0; i < publisher->channel_count; i++) {
		if (publisher->channels[i] == channel) {
			return true;
		}
	}
	return false;
}

/* `out` NULL: any number above 0 stands for "some". */
static uint32_t add_source(uint32_t *out, uint32_t count, uint32_t max, uint32_t address)
{
	if (address == 0) {
		return count;
	}
	if (out == NULL) {
		return 1;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (out[i] == address) {
			return count;
		}
	}
	if (count < max) {
		out[count++] = address;
	}
	return count;
}

uint32_t tw_sub_plan_sources(const struct tw_sub_plan *plan, uint32_t channel, uint32_t *out,
			     uint32_t max)
{
	const struct tw_site *site = plan->site;
	uint32_t count = 0;

	for (uint32_t p = 0; p < site->publisher_count; p++) {
		if (!publishes(&site->publishers[p], channel)) {
			continue;
		}
		const struct tw_site_host *host = &site->hosts[site->publishers[p].host];
		count = add_source(out, count, max, host->address);
		for (uint32_t l = 0; l < TW_MAX_LINES; l++) {
			/* resolved only where the publisher's host is this one */
			count = add_source(out, count, max, host->resolved[l].address);
			count = add_source(out, count, max, host->line_addresses[l]);
			if (strcmp(host->lines[l], "lo") == 0) {
				count = add_source(out, count, max, LOOPBACK);
			}
		}
	}
	return count;
}

uint64_t tw_sub_plan_heartbeat_ns(const struct tw_sub_plan *plan, uint32_t channel)
{
	const struct tw_site *site = plan->site;
	uint64_t longest_ns = 1000000;

	for (uint32_t p = 0; p < site->publisher_count; p++) {
		uint64_t ns = (uint64_t)site->publishers[p].heartbeat_ms * 1000000u;
		if (publishes(&site->publishers[p], channel) && ns > longest_ns) {
			longest_ns = ns;
		}
	}
	return longest_ns;
}
