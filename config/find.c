/* Which entries of a site are this process's. */
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "config/config.h"

#define WHY_BYTES 128

/* Index of the host called `name`, -1. */
static int host_named(const struct tw_site *site, const char *name)
{
	for (uint32_t i = 0; i < site->host_count; i++) {
		if (strcmp(site->hosts[i].name, name) == 0) {
			return (int)i;
		}
	}
	return -1;
}

static int host_by_as(const struct tw_site *site, const char *as, char why[WHY_BYTES],
		      struct tw_error *err)
{
	int host = host_named(site, as);
	if (host >= 0) {
		(void)snprintf(why, WHY_BYTES, "asked for by name");
		return host;
	}
	for (uint32_t i = 0; i < site->feedhandler_count; i++) {
		if (strcmp(site->feedhandlers[i].name, as) == 0) {
			host = (int)site->feedhandlers[i].host;
		}
	}
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		if (strcmp(site->publishers[i].name, as) == 0) {
			host = (int)site->publishers[i].host;
		}
	}
	if (host < 0) {
		return tw_fail(err, TW_ENOTFOUND,
			       "%s: no host, feedhandler or publisher is called '%.64s'",
			       site->path, as);
	}
	(void)snprintf(why, WHY_BYTES, "%.60s runs there", as);
	return host;
}

int tw_site_find_host(const struct tw_site *site, const char *as, char why[WHY_BYTES],
		      struct tw_error *err)
{
	char name[256] = "";
	if (as != NULL) {
		return host_by_as(site, as, why, err);
	}
	if (gethostname(name, sizeof(name) - 1u) != 0) {
		name[0] = '\0';
	}
	int host = host_named(site, name);
	if (host < 0) {
		name[strcspn(name, ".")] = '\0';
		host = host_named(site, name);
	}
	if (host >= 0) {
		(void)snprintf(why, WHY_BYTES, "this machine's name");
		return host;
	}
	if (site->host_count == 1) {
		(void)snprintf(why, WHY_BYTES, "the only host");
		return 0;
	}
	return tw_fail(err, TW_ENOTFOUND,
		       "%s: no host is called '%.64s' as this machine: add it to hosts or use "
		       "--as NAME",
		       site->path, name);
}

/* Both kinds of process, seen alike. */
struct roster {
	const char *kind;
	uint32_t count;
	const char *(*name)(const struct tw_site *site, uint32_t i);
	uint32_t (*host)(const struct tw_site *site, uint32_t i);
};

static int find_process(const struct tw_site *site, const struct roster *r, const char *as,
			char why[WHY_BYTES], struct tw_error *err)
{
	char host_why[WHY_BYTES];
	int found = -1;
	for (uint32_t i = 0; i < r->count && as != NULL; i++) {
		if (strcmp(r->name(site, i), as) == 0) {
			(void)snprintf(why, WHY_BYTES, "asked for by name");
			return (int)i;
		}
	}
	int host = tw_site_find_host(site, as, host_why, err);
	if (host < 0) {
		return host;
	}
	for (uint32_t i = 0; i < r->count; i++) {
		if (r->host(site, i) != (uint32_t)host) {
			continue;
		}
		if (found >= 0) {
			return tw_fail(err, TW_ENOTFOUND,
				       "%s: host %s runs more than one %s, %s and %s: use --as "
				       "NAME",
				       site->path, site->hosts[host].name, r->kind,
				       r->name(site, (uint32_t)found), r->name(site, i));
		}
		found = (int)i;
	}
	if (found < 0) {
		return tw_fail(err, TW_ENOTFOUND, "%s: host %s runs no %s", site->path,
			       site->hosts[host].name, r->kind);
	}
	(void)snprintf(why, WHY_BYTES, "the only one of host %.40s (%.40s)", site->hosts[host].name,
		       host_why);
	return found;
}

static const char *feedhandler_name(const struct tw_site *site, uint32_t i)
{
	return site->feedhandlers[i].name;
}

static uint32_t feedhandler_host(const struct tw_site *site, uint32_t i)
{
	return site->feedhandlers[i].host;
}

static const char *publisher_name(const struct tw_site *site, uint32_t i)
{
	return site->publishers[i].name;
}

static uint32_t publisher_host(const struct tw_site *site, uint32_t i)
{
	return site->publishers[i].host;
}

int tw_site_find_feedhandler(const struct tw_site *site, const char *as, char why[WHY_BYTES],
			     struct tw_error *err)
{
	const struct roster r = { "feedhandler", site->feedhandler_count, feedhandler_name,
				  feedhandler_host };
	return find_process(site, &r, as, why, err);
}

int tw_site_find_publisher(const struct tw_site *site, const char *as, char why[WHY_BYTES],
			   struct tw_error *err)
{
	const struct roster r = { "publisher", site->publisher_count, publisher_name,
				  publisher_host };
	return find_process(site, &r, as, why, err);
}

int tw_site_find_channel(const struct tw_site *site, uint16_t id)
{
	for (uint32_t i = 0; i < site->channel_count; i++) {
		if (site->channels[i].id == id) {
			return (int)i;
		}
	}
	return TW_ENOTFOUND;
}

const char *tw_site_mic(const struct tw_site *site, uint16_t venue_id)
{
	for (uint32_t i = 0; i < site->venue_count; i++) {
		if (site->venues[i].id == venue_id) {
			return site->venues[i].mic;
		}
	}
	return NULL;
}
