/* One YAML file describes a site and is given to every process; this is the same as typed structs.
 *
 * One table (config/keys.h) holds key, type, unit, default, range and help; parser, errors, commented
 * sample and docs/CONFIG.md come from it.  Errors read "site.yaml:12: publishers[0].heartbeat_ms:
 * found '0', allowed 1 to 10000"; unknown keys name the nearest valid one.
 * Threads    load once, before any thread; read-only after.
 * Ownership  tw_site_load() allocates, tw_site_free() frees all of it. */
#ifndef TW_CONFIG_CONFIG_H
#define TW_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "fabric/fabric.h"
#include "protocol/arb.h"
#include "tidewire/error.h"

#define TW_NAME_BYTES            64
#define TW_FILE_BYTES            512
#define TW_MAX_HOSTS             256u
#define TW_MAX_CHANNELS          256u
#define TW_MAX_VENUES            256u
#define TW_MAX_FEEDHANDLERS      64u
#define TW_MAX_PUBLISHERS        64u
#define TW_MAX_SYMBOLS           4096u
#define TW_MAX_FILES             256u
#define TW_MAX_REREQUEST_SERVERS 8u

enum tw_transport { TW_TRANSPORT_AUTO = 0, TW_TRANSPORT_VERBS, TW_TRANSPORT_UDP, TW_TRANSPORT_SHM };
enum tw_channel_mode { TW_CHANNEL_SITE = 0, TW_CHANNEL_ORDERED, TW_CHANNEL_LATEST };
enum tw_site_mode { TW_SITE_ORDERED = 0, TW_SITE_LATEST };
enum tw_depth { TW_DEPTH_QUOTES = 0, TW_DEPTH_LEVELS, TW_DEPTH_ORDERS };

struct tw_site_class {
	uint32_t dscp, priority;
	bool pfc, ecn;
}; /* fabric.qos.live, .repair */

struct tw_site_fabric {
	enum tw_transport transport;
	uint32_t mtu_bytes, ttl;
	uint32_t receive_buffer_kbytes;
	uint32_t receive_depth; /* 0: what receive_buffer_kbytes holds */
	uint32_t gso;           /* tw_fabric_conf.gso */
	uint32_t partition_key;
	struct tw_site_class live, repair;
};

struct tw_site_host {
	char name[TW_NAME_BYTES];
	uint32_t address;                      /* IPv4, host order */
	char lines[TW_MAX_LINES][16];          /* interface names; "lo" is allowed */
	uint32_t line_addresses[TW_MAX_LINES]; /* of these; 0: `address` */
	struct tw_fabric_line
		resolved[TW_MAX_LINES]; /* by tw_site_resolve_lines() on the host itself */
	int cpu_publisher, cpu_repair, cpu_feedhandler, cpu_subscriber; /* -1: not pinned */
};

struct tw_site_venue {
	uint16_t id;
	char mic[5];
};

struct tw_site_channel {
	uint16_t id;
	char name[TW_NAME_BYTES];
	enum tw_depth depth;
	uint32_t levels; /* depth `levels` */
	enum tw_channel_mode mode;
	bool latest;                   /* derived: of `mode` and subscriber.mode */
	uint32_t groups[TW_MAX_LINES]; /* IPv4, host order; 0: no such line */
	uint32_t lines;                /* 1 or 2 */
	char **symbols;                /* NULL-terminated, sorted; {"*"} is all */
};

/* "ADDRESS:PORT" as one number, 0: none. */
static inline uint32_t tw_endpoint_address(uint64_t endpoint) /* host order */
{
	return (uint32_t)(endpoint >> 16);
}
static inline uint16_t tw_endpoint_port(uint64_t endpoint)
{
	return (uint16_t)endpoint;
}

struct tw_site_feedhandler {
	char name[TW_NAME_BYTES];
	uint32_t host; /* index into hosts */
	uint16_t venue_id;
	char protocol[32]; /* row of the feedhandler's table, checked there: "tops16" */
	char session[32];  /* "iextp"; empty: the protocol's usual one */
	char **files; /* input.files, NULL-terminated, one after the other; joined to the site file's
	               * folder where relative; NULL: input.multicast */
	/* input.multicast of each line, see tw_endpoint_address(); 0: no such line */
	uint64_t multicast[TW_MAX_LINES];
	char interfaces[TW_MAX_LINES][16]; /* input.interfaces: names or addresses; may be empty */
	uint32_t gap_wait_us;              /* input.wait_us */
	uint32_t store_packets;            /* input.store_packets */
	uint64_t rerequest[TW_MAX_REREQUEST_SERVERS]; /* input.rerequest */
	uint32_t rerequest_count, rerequest_ms, rerequest_attempts;
	uint32_t trading_date; /* input.trading_date, YYYYMMDD; 0: from the recording */
	bool restamp;          /* input.restamp: the recording happens now */
	uint32_t speed_pct;    /* input.speed_pct: 100 as captured, 0 as fast as it goes */
	uint32_t rate_msgs;    /* input.rate: at most so many messages a second, 0: no limit */
	char directory[TW_FILE_BYTES]; /* symbol-sorted directory file, may be empty */
	uint32_t max_orders;           /* live at once */
	uint32_t bus_kbytes;
	uint32_t wait_publisher_ms; /* a file input waits so long for its publisher; 0: for ever */
	uint32_t channels[16];      /* indices into channels */
	uint32_t channel_count;
};

struct tw_site_publisher {
	char name[TW_NAME_BYTES];
	uint32_t host;
	uint32_t channels[64]; /* indices */
	uint32_t channel_count;
	uint32_t history_ms, peak_mbps;
	uint64_t history_bytes; /* derived: log of one channel, without control line */
	uint32_t heartbeat_min_us, heartbeat_ms;
	uint32_t repair_port;            /* 0: no repair service */
	uint32_t max_mbps, burst_kbytes; /* of a channel on a line; 0: no limit */
	uint32_t repair_clients, repair_max_mbps, repair_client_max_mbps;
	bool repair_one_sided;
	bool repairs; /* derived: subscriber.repair names it, and there is a port */
};

struct tw_site_subscriber {
	uint32_t wait_us;
	enum tw_arb_start start;
	enum tw_site_mode mode;
	bool accept_replay;
	uint32_t store_dgrams;
	uint32_t session_takeover_ms;
	uint32_t repair[16]; /* indices into publishers */
	uint32_t repair_count;
	uint32_t give_up_ms, retry_min_ms, retry_max_ms, max_mbps, attempts, read_kbytes;
};

struct tw_site_origins; /* which line each value came from, for `show` and errors */

struct tw_site {
	char path[TW_FILE_BYTES];
	char name[TW_NAME_BYTES];
	bool production;
	uint16_t environment_id; /* hash of name and environment: tw_wire_hdr.environment */
	char run_dir[TW_FILE_BYTES];
	enum tw_idle_mode idle;
	uint32_t slow_turn_us; /* duty-cycle threshold */
	struct tw_site_fabric fabric;
	struct tw_fault_conf fault; /* refused in production */
	struct tw_site_subscriber subscriber;
	struct tw_site_host *hosts;
	struct tw_site_venue *venues;
	struct tw_site_channel *channels;
	struct tw_site_feedhandler *feedhandlers;
	struct tw_site_publisher *publishers;
	uint32_t host_count, venue_count, channel_count, feedhandler_count, publisher_count;
	struct tw_site_origins *origins;
};

/* Reads, checks and derives.  *site_p is NULL on error; err->text is one line with file, line, key,
 * what was found and what is allowed. */
int tw_site_load(struct tw_site **site_p, const char *path, struct tw_error *err) TW_MUST_USE;
/* The same from memory (tests, fuzzing); `path` only names it in errors. */
int tw_site_parse(struct tw_site **site_p, const char *path, const void *data, size_t len_bytes,
		  struct tw_error *err) TW_MUST_USE;
void tw_site_free(struct tw_site *site); /* NULL ok */

/* This process's host entry: by `as` (host name, feedhandler or publisher name) where it is given,
 * else by the machine's host name, else the only one.
 * `why` says why, for the start-up line: "asked for by name".
 * Returns the index or TW_ENOTFOUND. */
int tw_site_find_host(const struct tw_site *site, const char *as, char why[128],
		      struct tw_error *err);
int tw_site_find_feedhandler(const struct tw_site *site, const char *as, char why[128],
			     struct tw_error *err);
int tw_site_find_publisher(const struct tw_site *site, const char *as, char why[128],
			   struct tw_error *err);
int tw_site_find_channel(const struct tw_site *site, uint16_t id);      /* index, or TW_ENOTFOUND */
const char *tw_site_mic(const struct tw_site *site, uint16_t venue_id); /* NULL where unknown */

/* Fills in hosts[host].resolved from the interfaces of this machine: name, address (of the interface;
 * where it has several the one equal to hosts[host].addresses[line] or .address; a stated one must
 * be there). */
int tw_site_resolve_lines(struct tw_site *site, uint32_t host, struct tw_error *err) TW_MUST_USE;
/* fabric settings for this host, after resolve. */
void tw_site_fabric_conf(const struct tw_site *site, uint32_t host, struct tw_fabric_conf *out);
/* Chooses the transport for the host whose lines have been resolved: AUTO becomes VERBS where a device
 * carries each of its lines, else UDP where that works, or an error with the cure; VERBS and UDP are
 * checked; SHM is TW_EUNSUPPORTED until it exists.  *why gets one sentence. */
int tw_site_transport(const struct tw_site *site, char why[128], struct tw_error *err);
/* Hot threads of this host as configured: its feedhandlers and publishers, and one subscriber. */
unsigned int tw_site_hot_threads(const struct tw_site *site, uint32_t host);

/* "host.name: effective value  # origin" lines for `tw-config show`; the commented sample; the
 * documentation table (Markdown): each writes to a FILE. */
#include <stdio.h>
int tw_site_show(const struct tw_site *site, FILE *out);
void tw_config_sample(FILE *out);
void tw_config_document(FILE *out);

#endif
