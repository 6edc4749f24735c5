/* What no key says by itself: names, references, groups, CPUs and times that must agree; then what is
 * derived from them.  Quadratic where the limits of the table keep it small. */
#include <stdarg.h>
#include <string.h>

#include "base/fail.h"
#include "base/rundir.h"
#include "config/schema.h"

#define HISTORY_MAX_BYTES (64ull << 30) /* of one channel: beyond it, a slip of the pen */
#define HISTORY_UNIT      64u           /* see protocol/history.h */

struct check {
	const struct tw_site *site;
	struct tw_error *err;
};

/* `member` is where the line number comes from; a default has none, then `other` is asked. */
static int fail(const struct check *c, const void *member, const void *other, const char *key,
		const char *fmt, ...) TW_PRINTF(5, 6);
static int fail(const struct check *c, const void *member, const void *other, const char *key,
		const char *fmt, ...)
{
	char text[TW_ERROR_TEXT_BYTES];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	uint32_t line = tw_origin_line(c->site, member);
	if (line == 0 && other != NULL) {
		line = tw_origin_line(c->site, other);
	}
	return tw_node_fail(c->err, c->site->path, line > 0 ? line : 1u, key, "%s", text);
}

void tw_group_mac(uint32_t group, char out[18])
{
	(void)snprintf(out, 18, "01:00:5e:%02x:%02x:%02x", group >> 16 & 0x7fu, group >> 8 & 0xffu,
		       group & 0xffu);
}

static int check_venues(const struct check *c)
{
	const struct tw_site_venue *v = c->site->venues;
	char key[64];
	for (uint32_t i = 0; i < c->site->venue_count; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (v[i].id == v[j].id) {
				(void)snprintf(key, sizeof(key), "venues[%u].id", i);
				return fail(c, &v[i].id, NULL, key,
					    "found %u, which venues[%u] has, allowed an id of its "
					    "own",
					    v[i].id, j);
			}
			if (strcmp(v[i].mic, v[j].mic) == 0) {
				(void)snprintf(key, sizeof(key), "venues[%u].mic", i);
				return fail(c, v[i].mic, NULL, key,
					    "found '%s', which venues[%u] has, allowed each mic "
					    "once",
					    v[i].mic, j);
			}
		}
	}
	return TW_OK;
}

static int check_group(const struct check *c, uint32_t i, uint32_t line)
{
	const struct tw_site_channel *channels = c->site->channels;
	const uint32_t *group = &channels[i].groups[line];
	char key[64], mac[18];
	(void)snprintf(key, sizeof(key), "channels[%u].groups.%c", i, 'a' + (int)line);
	if (*group == 0) {
		return TW_OK;
	}
	tw_group_mac(*group, mac);
	if ((*group & 0x7fff00u) == 0) {
		/* they share Ethernet addresses with 224.0.0.0/24, which snooping never prunes */
		return fail(c, group, NULL, key,
			    "found a group with the Ethernet address %s of 224.0.0.%u, which "
			    "switches flood, allowed a group that differs from it in its low 23 "
			    "bits",
			    mac, *group & 0xffu);
	}
	for (uint32_t j = 0; j <= i; j++) {
		for (uint32_t l = 0; l < TW_MAX_LINES; l++) {
			uint32_t other = channels[j].groups[l];
			if (other == 0 || (j == i && l >= line)) {
				continue;
			}
			if (other == *group) {
				return fail(c, group, NULL, key,
					    "found the group of channels[%u].groups.%c, allowed a "
					    "group of its own",
					    j, 'a' + (int)l);
			}
			if ((other & 0x7fffffu) == (*group & 0x7fffffu)) {
				return fail(c, group, NULL, key,
					    "found a group with the Ethernet address %s of "
					    "channels[%u].groups.%c, allowed groups that differ in "
					    "their low 23 bits",
					    mac, j, 'a' + (int)l);
			}
		}
	}
	return TW_OK;
}

/* Levels and orders are made of every change before them, so nothing of them may come out of turn. */
static int check_mode(const struct check *c, uint32_t i)
{
	const struct tw_site_channel *channel = &c->site->channels[i];
	const char *depth = channel->depth == TW_DEPTH_LEVELS ? "levels" : "orders";
	char key[64];
	if (!channel->latest || channel->depth == TW_DEPTH_QUOTES) {
		return TW_OK;
	}
	if (channel->mode == TW_CHANNEL_LATEST) {
		(void)snprintf(key, sizeof(key), "channels[%u].mode", i);
		return fail(c, &channel->mode, NULL, key,
			    "found 'latest' with 'depth: %s', allowed with 'depth: quotes' alone",
			    depth);
	}
	return fail(c, &c->site->subscriber.mode, NULL, "subscriber.mode",
		    "found 'latest', which channels[%u] with 'depth: %s' cannot have, allowed "
		    "ordered, or 'mode: ordered' in that channel",
		    i, depth);
}

static int check_channels(const struct check *c)
{
	const struct tw_site_channel *ch = c->site->channels;
	char key[64];
	for (uint32_t i = 0; i < c->site->channel_count; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (ch[i].id == ch[j].id) {
				(void)snprintf(key, sizeof(key), "channels[%u].id", i);
				return fail(c, &ch[i].id, NULL, key,
					    "found %u, which channels[%u] has, allowed an id of "
					    "its own",
					    ch[i].id, j);
			}
			if (strcmp(ch[i].name, ch[j].name) == 0) {
				(void)snprintf(key, sizeof(key), "channels[%u].name", i);
				return fail(c, ch[i].name, NULL, key,
					    "found '%s', which channels[%u] has, allowed a name of "
					    "its own",
					    ch[i].name, j);
			}
		}
		if (ch[i].depth != TW_DEPTH_LEVELS && tw_origin_line(c->site, &ch[i].levels) != 0) {
			(void)snprintf(key, sizeof(key), "channels[%u].levels", i);
			return fail(c, &ch[i].levels, NULL, key,
				    "found a number of levels, allowed with 'depth: levels' alone");
		}
		int rc = check_mode(c, i);
		for (uint32_t line = 0; line < TW_MAX_LINES && rc == TW_OK; line++) {
			rc = check_group(c, i, line);
		}
		if (rc < 0) {
			return rc;
		}
	}
	return TW_OK;
}

/* Feedhandlers and publishers share what is checked of their names. */
struct process {
	const char *list, *name;
	uint32_t index, host;
};

static struct process process_at(const struct tw_site *site, uint32_t i)
{
	if (i < site->feedhandler_count) {
		const struct tw_site_feedhandler *f = &site->feedhandlers[i];
		return (struct process){ "feedhandlers", f->name, i, f->host };
	}
	const struct tw_site_publisher *p = &site->publishers[i - site->feedhandler_count];
	return (struct process){ "publishers", p->name, i - site->feedhandler_count, p->host };
}

/* A name given by --as means one host. */
static int check_names(const struct check *c)
{
	const struct tw_site *site = c->site;
	char key[64];
	for (uint32_t i = 0; i < site->feedhandler_count + site->publisher_count; i++) {
		struct process p = process_at(site, i);
		(void)snprintf(key, sizeof(key), "%s[%u].name", p.list, p.index);
		for (uint32_t j = 0; j < i; j++) {
			struct process q = process_at(site, j);
			if (strcmp(p.name, q.name) == 0) {
				return fail(c, p.name, NULL, key,
					    "found '%s', which %s[%u] has, allowed a name of its "
					    "own: it names files and the process for --as",
					    p.name, q.list, q.index);
			}
		}
		for (uint32_t h = 0; h < site->host_count; h++) {
			if (strcmp(site->hosts[h].name, p.name) == 0 && h != p.host) {
				return fail(c, p.name, NULL, key,
					    "found '%s', the name of another host than its own, "
					    "allowed a name that means one host",
					    p.name);
			}
		}
	}
	return TW_OK;
}

static int check_feedhandlers(const struct check *c)
{
	const struct tw_site_feedhandler *f = c->site->feedhandlers;
	int owner[TW_MAX_CHANNELS];
	char key[64];
	memset(owner, -1, sizeof(owner));
	for (uint32_t i = 0; i < c->site->feedhandler_count; i++) {
		for (uint32_t k = 0; k < f[i].channel_count; k++) {
			uint32_t channel = f[i].channels[k];
			if (owner[channel] >= 0) {
				(void)snprintf(key, sizeof(key), "feedhandlers[%u].channels[%u]", i,
					       k);
				return fail(c, f[i].channels, NULL, key,
					    "found channel %u, which feedhandlers[%d] writes, "
					    "allowed one feedhandler for a channel",
					    c->site->channels[channel].id, owner[channel]);
			}
			owner[channel] = (int)i;
		}
	}
	return TW_OK;
}

/* What would be taken for granted, and has no effect on the input that there is; numbers with defaults stand in
 * every sample. */
static int check_input_keys(const struct check *c, uint32_t i)
{
	const struct tw_site_feedhandler *f = &c->site->feedhandlers[i];
	const struct {
		const char *name;
		const void *member;
		bool given, of_files;
	} keys[] = {
		{ "restamp", &f->restamp, f->restamp, true },
		{ "interfaces.a", f->interfaces[0], f->interfaces[0][0] != '\0', false },
		{ "interfaces.b", f->interfaces[1], f->interfaces[1][0] != '\0', false },
		{ "rerequest", f->rerequest, f->rerequest_count > 0, false },
	};
	char key[64];
	for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
		if (keys[k].given && keys[k].of_files != (f->files != NULL)) {
			(void)snprintf(key, sizeof(key), "feedhandlers[%u].input.%s", i,
				       keys[k].name);
			return fail(c, keys[k].member, NULL, key,
				    "found with %s, allowed with 'input.%s' alone",
				    f->files != NULL ? "files" : "multicast",
				    keys[k].of_files ? "files" : "multicast");
		}
	}
	return TW_OK;
}

static int check_inputs(const struct check *c)
{
	char key[64];
	for (uint32_t i = 0; i < c->site->feedhandler_count; i++) {
		const struct tw_site_feedhandler *f = &c->site->feedhandlers[i];
		bool live = f->multicast[0] != 0;
		(void)snprintf(key, sizeof(key), "feedhandlers[%u].input", i);
		if (live && f->files != NULL) {
			return fail(c, &f->multicast[0], &f->files, key,
				    "found files and multicast, allowed one of them");
		}
		if (f->multicast[1] != 0 && !live) {
			return fail(c, &f->multicast[1], NULL, key,
				    "found multicast.b alone, allowed multicast.a, or both");
		}
		if (!live && f->files == NULL) {
			return fail(c, f->name, NULL, key,
				    "found nothing, required is files or multicast");
		}
		if (live && f->multicast[0] == f->multicast[1] &&
		    strcmp(f->interfaces[0], f->interfaces[1]) == 0) {
			return fail(c, &f->multicast[1], NULL, key,
				    "found one group and port for both lines, allowed with two "
				    "interfaces that are given here");
		}
		int rc = check_input_keys(c, i);
		if (rc < 0) {
			return rc;
		}
	}
	return TW_OK;
}

/* The bus between them is shared memory. */
static int check_same_host(const struct check *c, uint32_t publisher, uint32_t k)
{
	const struct tw_site_publisher *p = &c->site->publishers[publisher];
	char key[64];
	for (uint32_t i = 0; i < c->site->feedhandler_count; i++) {
		const struct tw_site_feedhandler *f = &c->site->feedhandlers[i];
		for (uint32_t n = 0; n < f->channel_count; n++) {
			if (f->channels[n] == p->channels[k] && f->host != p->host) {
				(void)snprintf(key, sizeof(key), "publishers[%u].channels[%u]",
					       publisher, k);
				return fail(c, p->channels, NULL, key,
					    "found channel %u, whose feedhandler '%s' runs on host "
					    "'%s', allowed channels of feedhandlers on the "
					    "publisher's own host '%s'",
					    c->site->channels[p->channels[k]].id, f->name,
					    c->site->hosts[f->host].name,
					    c->site->hosts[p->host].name);
			}
		}
	}
	return TW_OK;
}

static int check_publisher_channels(const struct check *c)
{
	const struct tw_site_publisher *p = c->site->publishers;
	int owner[TW_MAX_CHANNELS];
	char key[64];
	memset(owner, -1, sizeof(owner));
	for (uint32_t i = 0; i < c->site->publisher_count; i++) {
		for (uint32_t k = 0; k < p[i].channel_count; k++) {
			uint32_t channel = p[i].channels[k];
			if (owner[channel] >= 0) {
				(void)snprintf(key, sizeof(key), "publishers[%u].channels[%u]", i,
					       k);
				return fail(c, p[i].channels, NULL, key,
					    "found channel %u, which publishers[%d] sends, allowed "
					    "one publisher for a channel: two on one channel are "
					    "not supported by this version",
					    c->site->channels[channel].id, owner[channel]);
			}
			owner[channel] = (int)i;
			int rc = check_same_host(c, i, k);
			if (rc < 0) {
				return rc;
			}
		}
	}
	return TW_OK;
}

static int check_publisher_times(const struct check *c)
{
	const struct tw_site_publisher *p = c->site->publishers;
	char key[64];
	for (uint32_t i = 0; i < c->site->publisher_count; i++) {
		if (p[i].heartbeat_min_us > p[i].heartbeat_ms * 1000u) {
			(void)snprintf(key, sizeof(key), "publishers[%u].heartbeat_min_us", i);
			return fail(c, &p[i].heartbeat_min_us, &p[i].heartbeat_ms, key,
				    "found %u, allowed at most heartbeat_ms, %u us",
				    p[i].heartbeat_min_us, p[i].heartbeat_ms * 1000u);
		}
		if (p[i].history_ms < 4u * p[i].heartbeat_ms) {
			(void)snprintf(key, sizeof(key), "publishers[%u].history_ms", i);
			return fail(c, &p[i].history_ms, &p[i].heartbeat_ms, key,
				    "found %u, allowed at least four times heartbeat_ms, %u: a "
				    "loss may show only with a heartbeat",
				    p[i].history_ms, 4u * p[i].heartbeat_ms);
		}
		if (p[i].history_bytes > HISTORY_MAX_BYTES) {
			(void)snprintf(key, sizeof(key), "publishers[%u].history_ms", i);
			return fail(c, &p[i].history_ms, &p[i].peak_mbps, key,
				    "found %u, which at peak_mbps %u is %llu MiB a channel, "
				    "allowed %llu MiB",
				    p[i].history_ms, p[i].peak_mbps,
				    (unsigned long long)p[i].history_bytes >> 20,
				    HISTORY_MAX_BYTES >> 20);
		}
	}
	return TW_OK;
}

/* A service that cannot open its port would keep its publisher from starting. */
static int check_repair(const struct check *c)
{
	const struct tw_site_publisher *p = c->site->publishers;
	const struct tw_site_subscriber *s = &c->site->subscriber;
	char key[64];
	for (uint32_t i = 0; i < c->site->publisher_count; i++) {
		for (uint32_t j = 0; j < i; j++) {
			if (p[i].repairs && p[j].repairs && p[i].host == p[j].host &&
			    p[i].repair_port == p[j].repair_port) {
				(void)snprintf(key, sizeof(key), "publishers[%u].repair_port", i);
				return fail(c, &p[i].repair_port, p[i].name, key,
					    "found %u, which publishers[%u] on the same host has, "
					    "allowed a port of its own",
					    p[i].repair_port, j);
			}
		}
	}
	for (uint32_t i = 0; i < s->repair_count; i++) {
		const struct tw_site_publisher *named = &p[s->repair[i]];
		if (named->repair_port == 0) {
			(void)snprintf(key, sizeof(key), "subscriber.repair[%u]", i);
			return fail(c, s->repair, NULL, key,
				    "found '%s', whose repair_port is 0, allowed publishers with a "
				    "repair service",
				    named->name);
		}
	}
	for (uint32_t i = 0; i < c->site->publisher_count; i++) {
		/* the loss of a datagram may show only with a heartbeat, and is asked for after that */
		uint32_t least_ms = 4u * p[i].heartbeat_ms + s->give_up_ms;
		if (p[i].repairs && p[i].history_ms < least_ms) {
			(void)snprintf(key, sizeof(key), "publishers[%u].history_ms", i);
			return fail(c, &p[i].history_ms, &s->give_up_ms, key,
				    "found %u, allowed at least four times heartbeat_ms and "
				    "subscriber.give_up_ms together, %u: what is asked for must "
				    "still be there",
				    p[i].history_ms, least_ms);
		}
	}
	if (s->retry_min_ms > s->retry_max_ms) {
		return fail(c, &s->retry_min_ms, &s->retry_max_ms, "subscriber.retry_min_ms",
			    "found %u, allowed at most retry_max_ms, which is %u", s->retry_min_ms,
			    s->retry_max_ms);
	}
	return TW_OK;
}

/* Every host may subscribe, so it needs an interface for each line that any channel uses. */
static int check_host_lines(const struct check *c)
{
	const struct tw_site *site = c->site;
	char key[TW_NAME_BYTES + 32];
	const struct tw_site_channel *two = NULL;
	for (uint32_t i = 0; i < site->channel_count && two == NULL; i++) {
		two = site->channels[i].lines > 1 ? &site->channels[i] : NULL;
	}
	for (uint32_t h = 0; h < site->host_count && two != NULL; h++) {
		if (site->hosts[h].lines[1][0] == '\0') {
			(void)snprintf(key, sizeof(key), "hosts.%s.lines.b", site->hosts[h].name);
			return fail(c, site->hosts[h].lines[0], NULL, key,
				    "found nothing, required is an interface: channel %u has a "
				    "group on line b",
				    two->id);
		}
	}
	return TW_OK;
}

static int check_host_roles(const struct check *c, const struct tw_site_host *host)
{
	const struct {
		const char *role;
		const int *cpu;
	} roles[] = {
		{ "publisher", &host->cpu_publisher },
		{ "repair", &host->cpu_repair },
		{ "feedhandler", &host->cpu_feedhandler },
		{ "subscriber", &host->cpu_subscriber },
	};
	char key[TW_NAME_BYTES + 32];
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		for (size_t j = 0; j < i; j++) {
			if (*roles[i].cpu >= 0 && *roles[i].cpu == *roles[j].cpu) {
				(void)snprintf(key, sizeof(key), "hosts.%s.cpus.%s", host->name,
					       roles[i].role);
				return fail(c, roles[i].cpu, NULL, key,
					    "found %d, which cpus.%s has, allowed a CPU of its own "
					    "for each hot thread",
					    *roles[i].cpu, roles[j].role);
			}
		}
	}
	return TW_OK;
}

/* One CPU for a role, so a pinned role runs once on its host. */
static int check_cpus(const struct check *c)
{
	const struct tw_site *site = c->site;
	char key[TW_NAME_BYTES + 32];
	for (uint32_t h = 0; h < site->host_count; h++) {
		const struct tw_site_host *host = &site->hosts[h];
		int rc = check_host_roles(c, host);
		if (rc < 0) {
			return rc;
		}
		for (uint32_t i = 0; i < site->feedhandler_count + site->publisher_count; i++) {
			struct process p = process_at(site, i);
			bool publishes = p.list[0] == 'p';
			const int *cpu = publishes ? &host->cpu_publisher : &host->cpu_feedhandler;
			for (uint32_t j = 0; j < i && p.host == h && *cpu >= 0; j++) {
				struct process q = process_at(site, j);
				if (q.host != h || strcmp(q.list, p.list) != 0) {
					continue;
				}
				(void)snprintf(key, sizeof(key), "hosts.%s.cpus.%s", host->name,
					       publishes ? "publisher" : "feedhandler");
				return fail(c, cpu, NULL, key,
					    "found CPU %d for both '%s' and '%s', allowed one "
					    "pinned process: leave the key out",
					    *cpu, q.name, p.name);
			}
		}
	}
	return TW_OK;
}

static int check_fabric(const struct check *c)
{
	const struct tw_site_fabric *f = &c->site->fabric;
	/* with verbs it is the device that decides: an InfiniBand fabric has partitions */
	if (f->partition_key != 0xffffu && f->transport == TW_TRANSPORT_UDP) {
		return fail(c, &f->partition_key, NULL, "fabric.partition_key",
			    "found 0x%x, allowed 0xffff: partitions are InfiniBand's, and "
			    "udp is RoCE",
			    f->partition_key);
	}
	if (f->live.ecn) {
		return fail(c, &f->live.ecn, NULL, "fabric.qos.live.ecn",
			    "found true, allowed false: nobody answers a mark on multicast, so it "
			    "is sent Not-ECT");
	}
	return TW_OK;
}

/* A cut that never is would be taken for one that did no harm. */
static int check_cuts(const struct check *c)
{
	char key[64];
	for (uint32_t l = 0; l < TW_MAX_LINES; l++) {
		const struct tw_fault_line *line = &c->site->fault.lines[l];
		bool given = line->cut_begin_seq != 0 || line->cut_end_seq != 0;
		if (given && line->cut_end_seq <= line->cut_begin_seq) {
			(void)snprintf(key, sizeof(key), "fault.lines.%c.cut_end", 'a' + (int)l);
			return fail(c, &line->cut_end_seq, &line->cut_begin_seq, key,
				    "found %llu, allowed more than cut_begin, which is %llu",
				    (unsigned long long)line->cut_end_seq,
				    (unsigned long long)line->cut_begin_seq);
		}
	}
	return TW_OK;
}

static int check_production(const struct check *c)
{
	const struct tw_site *site = c->site;
	const struct tw_site_origins *o = site->origins;
	uintptr_t begin = (uintptr_t)&site->fault, end = begin + sizeof(site->fault);
	if (!site->production) {
		return TW_OK;
	}
	if (site->subscriber.accept_replay) {
		return fail(c, &site->subscriber.accept_replay, NULL, "subscriber.accept_replay",
			    "found true, allowed false in production");
	}
	for (size_t i = 0; i < o->count; i++) {
		uintptr_t at = (uintptr_t)o->rows[i].member;
		if (at >= begin && at < end) {
			return fail(c, o->rows[i].member, NULL, "fault",
				    "found an injected fault, allowed none in production");
		}
	}
	return TW_OK;
}

/* FNV-1a of the name, folded to 15 bits; bit 0 says production.  So no test site ever has the id of a
 * production site, whatever their names, and the id is never 0. */
static uint16_t environment_id(const struct tw_site *site)
{
	uint64_t h = 0xcbf29ce484222325ull;
	for (const char *c = site->name; *c != '\0'; c++) {
		h = (h ^ (uint8_t)*c) * 0x100000001b3ull;
	}
	h ^= h >> 30;
	h ^= h >> 15;
	uint16_t name = (uint16_t)(h & 0x7fffu);
	name = name != 0 ? name : 1;
	return (uint16_t)(name << 1 | (site->production ? 1 : 0));
}

static void derive(struct tw_site *site)
{
	site->environment_id = environment_id(site);
	if (site->run_dir[0] == '\0') {
		tw_rundir_default(site->run_dir);
	}
	for (uint32_t i = 0; i < site->channel_count; i++) {
		struct tw_site_channel *channel = &site->channels[i];
		channel->lines = channel->groups[1] != 0 ? 2 : 1;
		channel->latest = channel->mode == TW_CHANNEL_LATEST ||
				  (channel->mode == TW_CHANNEL_SITE &&
				   site->subscriber.mode == TW_SITE_LATEST);
	}
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		struct tw_site_publisher *p = &site->publishers[i];
		/* ms times Mbit/s is 125 bytes; at least the 4 datagrams that a log must hold */
		uint64_t bytes = (uint64_t)p->history_ms * p->peak_mbps * 125u;
		uint64_t least = 4ull * site->fabric.mtu_bytes;
		bytes = bytes > least ? bytes : least;
		p->history_bytes = (bytes + HISTORY_UNIT - 1u) / HISTORY_UNIT * HISTORY_UNIT;
	}
	for (uint32_t i = 0; i < site->subscriber.repair_count; i++) {
		struct tw_site_publisher *p = &site->publishers[site->subscriber.repair[i]];
		p->repairs = p->repair_port != 0;
	}
}

int tw_site_check(struct tw_site *site, struct tw_error *err)
{
	static int (*const checks[])(const struct check *) = {
		check_fabric, check_venues,       check_channels,           check_host_lines,
		check_names,  check_feedhandlers, check_publisher_channels, check_publisher_times,
		check_repair, check_cpus,         check_production,         check_inputs,
		check_cuts,
	};
	const struct check c = { .site = site, .err = err };
	int rc = TW_OK;
	derive(site);
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]) && rc == TW_OK; i++) {
		rc = checks[i](&c);
	}
	return rc;
}
