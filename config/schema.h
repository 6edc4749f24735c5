/* What the key table becomes inside the program, and what walks it.
 * Threads   the table is constant; the rest belongs to one load. */
#ifndef TW_CONFIG_SCHEMA_H
#define TW_CONFIG_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "config/config.h"
#include "config/node.h"

enum tw_key_kind {
	TW_KEY_SECTION = 0, /* a mapping of keys */
	TW_KEY_LIST,        /* a list of mappings, each one element of an array */
	TW_KEY_MAP,  /* a mapping of names to mappings, each one element; its name comes first */
	TW_KEY_UINT, /* stored in 2, 4 or 8 bytes */
	TW_KEY_HEX,  /* the same, also as 0x... */
	TW_KEY_POW2,
	TW_KEY_US_NS, /* microseconds in the file, nanoseconds in the struct */
	TW_KEY_PCT,   /* per cent with up to four decimals, parts per million in the struct */
	TW_KEY_BOOL,
	TW_KEY_ENUM, /* `allowed` in the order of the values, stored in 1 or 4 bytes */
	TW_KEY_CPU,  /* int, -1 where it is not given */
	TW_KEY_NAME,
	TW_KEY_INTERFACE,
	TW_KEY_MIC,
	TW_KEY_FILE, /* relative ones begin at the site file's folder */
	TW_KEY_RUN_DIR,
	TW_KEY_ADDRESS,
	TW_KEY_GROUP,
	TW_KEY_FEED_GROUP, /* GROUP:PORT, both in 8 bytes, see tw_endpoint_address() */
	TW_KEY_HOST,       /* name of a host, its index in the struct */
	TW_KEY_VENUE,      /* MIC of a venue, its id in the struct */
	TW_KEY_CHANNELS,   /* list of channel ids, indices in the struct */
	TW_KEY_PUBLISHERS /* list of publisher names, indices in the struct */,
	TW_KEY_ENDPOINTS, /* list of ADDRESS:PORT, each as FEED_GROUP */
	TW_KEY_SYMBOLS,
	TW_KEY_FILES /* one path or a list of them, each as FILE */
};

struct tw_key {
	const char *path; /* "fabric.mtu_bytes", "hosts.<name>.address", "channels[].groups.a" */
	enum tw_key_kind kind;
	size_t offset_bytes, size_bytes; /* of the member; LIST, MAP: size of one element */
	size_t count_offset_bytes;       /* LIST, MAP and lists of references */
	const char *def;                 /* as in a file; NULL: required; "": none */
	const char *example;             /* for the sample, where there is no default */
	uint64_t min, max;               /* numbers; LIST and MAP: how many elements */
	const char *allowed;             /* "a|b|c" */
	const char *help;
};

extern const struct tw_key tw_keys[];
extern const size_t tw_key_count;

struct tw_key_planned { /* known to the design, refused by name */
	const char *path, *instead;
};
extern const struct tw_key_planned tw_keys_planned[];
extern const size_t tw_keys_planned_count;

/* "mtu_bytes" of "fabric.mtu_bytes". */
const char *tw_key_leaf(const struct tw_key *key);
/* Whether the key's path is the prefix ("" is the top) and one step more. */
bool tw_key_is_child(const struct tw_key *key, const char *prefix);
static inline bool tw_key_is_branch(const struct tw_key *key)
{
	return key->kind <= TW_KEY_MAP;
}
/* Unit by the suffix of the name: "ms" of history_ms; "" where it has none. */
const char *tw_key_unit(const struct tw_key *key);

/* Whether a file of this name can be meant: not empty, nothing unprintable. */
bool tw_value_is_path(const char *text);

#define TW_VALUE_BYTES 640 /* fits every scalar value as text */
/* Scalars.  On failure `why` says "found X, allowed Y" and nothing is stored. */
#define TW_WHY_BYTES 320
int tw_value_parse(const struct tw_key *key, const struct tw_site *site, void *base,
		   const char *text, bool quoted, char why[TW_WHY_BYTES]) TW_MUST_USE;
/* What may stand there: "1 to 10000", "auto, spin, yield or event". */
void tw_value_allowed(const struct tw_key *key, char out[TW_WHY_BYTES]);
/* One "ADDRESS:PORT" of a FEED_GROUP or of a list of ENDPOINTS; false where it cannot be meant. */
bool tw_value_endpoint(const char *text, bool group, uint64_t *endpoint);
/* The value in the struct as it would stand in a file (lists in full). */
void tw_value_print(const struct tw_key *key, const struct tw_site *site, const void *base,
		    FILE *out);

/* Where values came from: address of the struct member -> line of the file. */
struct tw_origin {
	const void *member;
	uint32_t line;
};
struct tw_site_origins {
	struct tw_origin *rows; /* by address once the load is done */
	size_t count, room;
};
uint32_t tw_origin_line(const struct tw_site *site, const void *member); /* 0: a default */

/* Fills in *site from the tree and the defaults. */
int tw_schema_bind(struct tw_site *site, const struct tw_node *root,
		   struct tw_error *err) TW_MUST_USE;
/* What no key says by itself: references, names, groups, CPUs, times; then what is derived. */
int tw_site_check(struct tw_site *site, struct tw_error *err) TW_MUST_USE;

/* As tw_site_show(), only what concerns one host where `host` is not negative. */
int tw_site_show_host(const struct tw_site *site, int host, FILE *out);

/* Whether a RoCE device of this machine has the interface, so that its frames never reach a socket;
 * `device` gets its name.  `sysfs` is "/sys" but in tests. */
bool tw_machine_roce_device(const char *sysfs, const char *interface, char device[64]);

/* Ethernet address of a group, "01:00:5e:40:01:01". */
void tw_group_mac(uint32_t group, char out[18]);

#endif
