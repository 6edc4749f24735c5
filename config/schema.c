/* From the tree to the struct, by the key table. */
#include "config/schema.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "config/keys.h"

#define KEY_BYTES  240u
#define NAME_LIMIT 64u /* longer names have no nearest one */

/* The enum members that "a|b|c" in the table stand for, in that order. */
_Static_assert(TW_IDLE_AUTO == 0 && TW_IDLE_SPIN == 1 && TW_IDLE_YIELD == 2 && TW_IDLE_EVENT == 3,
	       "idle");
_Static_assert(TW_TRANSPORT_AUTO == 0 && TW_TRANSPORT_VERBS == 1 && TW_TRANSPORT_UDP == 2 &&
		       TW_TRANSPORT_SHM == 3,
	       "fabric.transport");
_Static_assert(TW_GSO_AUTO == 0 && TW_GSO_ON == 1 && TW_GSO_OFF == 2, "fabric.gso");
_Static_assert(TW_DEPTH_QUOTES == 0 && TW_DEPTH_LEVELS == 1 && TW_DEPTH_ORDERS == 2, "depth");
_Static_assert(TW_START_SESSION == 0 && TW_START_LIVE == 1, "subscriber.start");
_Static_assert(offsetof(struct tw_site_host, name) == 0, "a mapping's name comes first");

#define SIZE_OF(st, member)  sizeof(((struct st *)NULL)->member)
#define ROW_SECTION(p, text) { .path = (p), .kind = TW_KEY_SECTION, .help = (text) },
#define ROW_ELEMENTS(p, k, st, array, n, lo, hi, text)       \
	{ .path = (p),                                       \
	  .kind = TW_KEY_##k,                                \
	  .offset_bytes = offsetof(struct st, array),        \
	  .size_bytes = sizeof(*((struct st *)NULL)->array), \
	  .count_offset_bytes = offsetof(struct st, n),      \
	  .min = (lo),                                       \
	  .max = (hi),                                       \
	  .help = (text) },
#define ROW_KEY(p, k, st, member, d, ex, text)         \
	{ .path = (p),                                 \
	  .kind = TW_KEY_##k,                          \
	  .offset_bytes = offsetof(struct st, member), \
	  .size_bytes = SIZE_OF(st, member),           \
	  .def = (d),                                  \
	  .example = (ex),                             \
	  .help = (text) },
#define ROW_NUM(p, k, st, member, d, ex, lo, hi, text) \
	{ .path = (p),                                 \
	  .kind = TW_KEY_##k,                          \
	  .offset_bytes = offsetof(struct st, member), \
	  .size_bytes = SIZE_OF(st, member),           \
	  .def = (d),                                  \
	  .example = (ex),                             \
	  .min = (lo),                                 \
	  .max = (hi),                                 \
	  .help = (text) },
#define ROW_SET(p, k, st, member, d, set, text)        \
	{ .path = (p),                                 \
	  .kind = TW_KEY_##k,                          \
	  .offset_bytes = offsetof(struct st, member), \
	  .size_bytes = SIZE_OF(st, member),           \
	  .def = (d),                                  \
	  .example = "",                               \
	  .allowed = (set),                            \
	  .help = (text) },
#define ROW_REFS(p, k, st, array, n, d, ex, text)       \
	{ .path = (p),                                  \
	  .kind = TW_KEY_##k,                           \
	  .offset_bytes = offsetof(struct st, array),   \
	  .size_bytes = SIZE_OF(st, array),             \
	  .count_offset_bytes = offsetof(struct st, n), \
	  .def = (d),                                   \
	  .example = (ex),                              \
	  .help = (text) },

const struct tw_key tw_keys[] = { TW_CONFIG_KEYS(ROW_SECTION, ROW_ELEMENTS, ROW_KEY, ROW_NUM,
						 ROW_SET, ROW_REFS) };
const size_t tw_key_count = sizeof(tw_keys) / sizeof(tw_keys[0]);

#define ROW_PLANNED(p, text) { .path = (p), .instead = (text) },
const struct tw_key_planned tw_keys_planned[] = { TW_CONFIG_PLANNED(ROW_PLANNED) };
const size_t tw_keys_planned_count = sizeof(tw_keys_planned) / sizeof(tw_keys_planned[0]);

/* One load. `key` is the path of what is being read, as a person would write it. */
struct bind {
	struct tw_site *site;
	struct tw_error *err;
	char key[KEY_BYTES];
};

static int bind_keys(struct bind *b, const struct tw_node *map, uint32_t line, const char *prefix,
		     void *base);

static size_t path_push(struct bind *b, const char *fmt, ...) TW_PRINTF(2, 3);
static size_t path_push(struct bind *b, const char *fmt, ...)
{
	size_t was = strlen(b->key);
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(b->key + was, sizeof(b->key) - was, fmt, ap);
	va_end(ap);
	return was;
}

static size_t path_push_key(struct bind *b, const char *name)
{
	return path_push(b, "%s%s", b->key[0] != '\0' ? "." : "", name);
}

static void path_pop(struct bind *b, size_t was)
{
	b->key[was] = '\0';
}

static int fail(struct bind *b, uint32_t line, const char *what)
{
	return tw_node_fail(b->err, b->site->path, line, b->key[0] != '\0' ? b->key : "top level",
			    "%s", what);
}

static int fail_type(struct bind *b, const struct tw_key *key, const struct tw_node *node)
{
	char allowed[TW_WHY_BYTES];
	char quoted[TW_FOUND_BYTES];
	char what[TW_WHY_BYTES];
	tw_value_allowed(key, allowed);
	const char *found = node->type == TW_NODE_MAP    ? "a mapping"
			    : node->type == TW_NODE_LIST ? "a list"
			    : node->text[0] == '\0'      ? "nothing"
							 : tw_node_quote(quoted, node->text);
	(void)snprintf(what, sizeof(what), "found %s, allowed %.200s", found, allowed);
	return fail(b, node->line, what);
}

static int origin_add(struct bind *b, const void *member, uint32_t line)
{
	struct tw_site_origins *o = b->site->origins;
	if (o->count == o->room) {
		size_t room = o->room > 0 ? o->room * 2u : 64u;
		struct tw_origin *rows = reallocarray(o->rows, room, sizeof(*rows));
		if (rows == NULL) {
			return tw_fail(b->err, TW_ENOMEM, "%s: out of memory", b->site->path);
		}
		o->rows = rows;
		o->room = room;
	}
	o->rows[o->count++] = (struct tw_origin){ .member = member, .line = line };
	return TW_OK;
}

static int origin_compare(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct tw_origin *)a)->member;
	uintptr_t y = (uintptr_t)((const struct tw_origin *)b)->member;
	return (x > y) - (x < y);
}

uint32_t tw_origin_line(const struct tw_site *site, const void *member)
{
	const struct tw_site_origins *o = site->origins;
	struct tw_origin wanted = { .member = member };
	if (o == NULL || o->count == 0) {
		return 0;
	}
	const struct tw_origin *row =
		bsearch(&wanted, o->rows, o->count, sizeof(wanted), origin_compare);
	return row != NULL ? row->line : 0;
}

/* Single edits (put in, leave out, replace, swap neighbours) that turn a into b. */
static unsigned int edit_distance(const char *a, const char *b)
{
	unsigned int rows[3][NAME_LIMIT + 1u];
	size_t na = strlen(a), nb = strlen(b);
	if (na > NAME_LIMIT || nb > NAME_LIMIT) {
		return UINT32_MAX;
	}
	unsigned int *before = rows[0], *last = rows[1], *now = rows[2];
	for (unsigned int j = 0; j <= nb; j++) {
		before[j] = last[j] = j;
	}
	for (unsigned int i = 1; i <= na; i++) {
		now[0] = i;
		for (unsigned int j = 1; j <= nb; j++) {
			unsigned int d = last[j - 1] + (a[i - 1] != b[j - 1] ? 1u : 0u);
			d = last[j] + 1u < d ? last[j] + 1u : d;
			d = now[j - 1] + 1u < d ? now[j - 1] + 1u : d;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    before[j - 2] + 1u < d) {
				d = before[j - 2] + 1u;
			}
			now[j] = d;
		}
		unsigned int *oldest = before;
		before = last;
		last = now;
		now = oldest;
	}
	return last[nb];
}

/* A name that was cut short, as mtu for mtu_bytes, is as near as one wrong letter. */
static unsigned int name_distance(const char *found, const char *key)
{
	size_t n = strlen(found);
	return n > 1 && strncmp(found, key, n) == 0 ? 1u : edit_distance(found, key);
}

static const char *planned_instead(const char *prefix, const char *name)
{
	size_t n = strlen(prefix);
	for (size_t i = 0; i < tw_keys_planned_count; i++) {
		const char *path = tw_keys_planned[i].path;
		bool under = n == 0 || (strncmp(path, prefix, n) == 0 && path[n] == '.');
		if (under && strcmp(path + (n > 0 ? n + 1u : 0u), name) == 0) {
			return tw_keys_planned[i].instead;
		}
	}
	return NULL;
}

/* Names what was probably meant: the nearest key here, or the same key where it belongs. */
static int fail_unknown(struct bind *b, const struct tw_node *node, const char *prefix)
{
	const struct tw_key *nearest = NULL, *elsewhere = NULL;
	unsigned int best = UINT32_MAX;
	char quoted[TW_FOUND_BYTES];
	char what[TW_WHY_BYTES];
	(void)tw_node_quote(quoted, node->key);
	const char *instead = planned_instead(prefix, node->key);
	if (instead != NULL) {
		(void)snprintf(what, sizeof(what),
			       "found key %s, not supported by this version: %s", quoted, instead);
		return fail(b, node->line, what);
	}
	for (size_t i = 0; i < tw_key_count; i++) {
		const struct tw_key *key = &tw_keys[i];
		if (tw_key_is_child(key, prefix)) {
			unsigned int d = name_distance(node->key, tw_key_leaf(key));
			nearest = d < best ? key : nearest;
			best = d < best ? d : best;
		} else if (elsewhere == NULL && strcmp(tw_key_leaf(key), node->key) == 0) {
			elsewhere = key;
		}
	}
	if (elsewhere != NULL && best > 1) {
		(void)snprintf(what, sizeof(what), "found unknown key %s, allowed as %s", quoted,
			       elsewhere->path);
	} else if (nearest != NULL && best <= 1u + strlen(node->key) / 3u) {
		(void)snprintf(what, sizeof(what), "found unknown key %s, nearest is '%s'", quoted,
			       tw_key_leaf(nearest));
	} else {
		size_t used = (size_t)snprintf(what, sizeof(what), "found unknown key %s, allowed",
					       quoted);
		const char *mark = " ";
		for (size_t i = 0; i < tw_key_count && used < sizeof(what); i++) {
			if (tw_key_is_child(&tw_keys[i], prefix)) {
				used += (size_t)snprintf(what + used, sizeof(what) - used, "%s%s",
							 mark, tw_key_leaf(&tw_keys[i]));
				mark = ", ";
			}
		}
	}
	return fail(b, node->line, what);
}

static int check_known(struct bind *b, const struct tw_node *map, const char *prefix)
{
	for (const struct tw_node *n = map->first; n != NULL; n = n->next) {
		bool known = false;
		for (size_t i = 0; i < tw_key_count && !known; i++) {
			known = tw_key_is_child(&tw_keys[i], prefix) &&
				strcmp(tw_key_leaf(&tw_keys[i]), n->key) == 0;
		}
		if (!known) {
			return fail_unknown(b, n, prefix);
		}
	}
	return TW_OK;
}

static int symbol_order(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* NULL-terminated; the pointers and the text behind them are one allocation.  Each text gets `prefix`
 * where `wants_prefix` says so. */
static int bind_texts(struct bind *b, const struct tw_key *key, const struct tw_node *first,
		      uint32_t count, const char *prefix, bool (*wants_prefix)(const char *text),
		      void *base)
{
	size_t bytes = 0;
	for (const struct tw_node *n = first; n != NULL; n = n->next) {
		bytes += strlen(n->text) + 1u + (wants_prefix(n->text) ? strlen(prefix) : 0);
	}
	char **texts = malloc((count + 1u) * sizeof(*texts) + bytes);
	if (texts == NULL) {
		return tw_fail(b->err, TW_ENOMEM, "%s: out of memory", b->site->path);
	}
	memcpy((char *)base + key->offset_bytes, &texts, sizeof(texts));
	char *text = (char *)(texts + count + 1u);
	uint32_t i = 0;
	for (const struct tw_node *n = first; n != NULL; n = n->next) {
		texts[i++] = text;
		text = stpcpy(text, wants_prefix(n->text) ? prefix : "");
		text = stpcpy(text, n->text) + 1;
	}
	texts[count] = NULL;
	return TW_OK;
}

static bool is_relative(const char *path)
{
	return path[0] != '/';
}

static bool never(const char *text)
{
	(void)text;
	return false;
}

static int bind_files(struct bind *b, const struct tw_key *key, const struct tw_node *node,
		      void *base)
{
	if (node == NULL) { /* there is another input, which tw_site_check() looks at */
		return TW_OK;
	}
	bool scalar = node->type == TW_NODE_SCALAR;
	const struct tw_node one = { .text = node->text, .line = node->line };
	const struct tw_node *first = scalar ? &one : node->first;
	uint32_t count = scalar ? 1u : node->count;
	char folder[TW_FILE_BYTES] = "";
	const char *slash = strrchr(b->site->path, '/');
	if (slash != NULL) {
		(void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - b->site->path + 1),
			       b->site->path);
	}
	if (count == 0 || count > TW_MAX_FILES) {
		char what[TW_WHY_BYTES];
		(void)snprintf(what, sizeof(what), "found %u files, allowed 1 to %u", count,
			       TW_MAX_FILES);
		return fail(b, node->line, what);
	}
	for (const struct tw_node *n = first; n != NULL; n = n->next) {
		size_t room = is_relative(n->text) ? strlen(folder) : 0;
		if ((!scalar && n->type != TW_NODE_SCALAR) || !tw_value_is_path(n->text) ||
		    strlen(n->text) + room >= TW_FILE_BYTES) {
			return fail_type(b, key, scalar ? node : n);
		}
	}
	return bind_texts(b, key, first, count, folder, is_relative, base);
}

static int bind_symbols(struct bind *b, const struct tw_key *key, const struct tw_node *node,
			void *base)
{
	static const struct tw_node star = { .text = "*" };
	const struct tw_node *first = node != NULL ? node->first : &star;
	uint32_t count = node != NULL ? node->count : 1u;
	char quoted[TW_FOUND_BYTES];
	char what[TW_WHY_BYTES];
	if (count == 0 || count > TW_MAX_SYMBOLS) {
		(void)snprintf(what, sizeof(what), "found %u symbols, allowed 1 to %u", count,
			       TW_MAX_SYMBOLS);
		return fail(b, node != NULL ? node->line : 0, what);
	}
	for (const struct tw_node *n = first; n != NULL; n = n->next) {
		size_t len = strlen(n->text);
		bool ok = n->type == TW_NODE_SCALAR && len > 0 && len <= 32;
		for (const char *c = n->text; *c != '\0' && ok; c++) {
			/* spaces occur in venues' symbols, quotes would break what show prints */
			ok = *c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\';
		}
		if (!ok || (strchr(n->text, '*') != NULL && (len > 1 || count > 1))) {
			return fail_type(b, key, n);
		}
	}
	int rc = bind_texts(b, key, first, count, "", never, base);
	if (rc != TW_OK) {
		return rc;
	}
	char **symbols;
	memcpy(&symbols, (char *)base + key->offset_bytes, sizeof(symbols));
	/* sorted: looked up by whoever filters, and neighbours show what is there twice */
	qsort(symbols, count, sizeof(*symbols), symbol_order);
	for (uint32_t i = 1; i < count; i++) {
		if (strcmp(symbols[i - 1u], symbols[i]) == 0) {
			(void)snprintf(what, sizeof(what),
				       "found %s twice, allowed each symbol once",
				       tw_node_quote(quoted, symbols[i]));
			return fail(b, node != NULL ? node->line : 0, what);
		}
	}
	return TW_OK;
}

/* Index of the channel or publisher that `text` names, -1 where there is none. */
static int64_t reference_find(const struct tw_site *site, const struct tw_key *key,
			      const char *text)
{
	char id[16];
	if (key->kind == TW_KEY_CHANNELS) {
		for (uint32_t i = 0; i < site->channel_count; i++) {
			(void)snprintf(id, sizeof(id), "%u", site->channels[i].id);
			if (strcmp(id, text) == 0) {
				return i;
			}
		}
		return -1;
	}
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		if (strcmp(site->publishers[i].name, text) == 0) {
			return i;
		}
	}
	return -1;
}

static int bind_references(struct bind *b, const struct tw_key *key, const struct tw_node *node,
			   void *base)
{
	uint32_t *indices = (void *)((char *)base + key->offset_bytes);
	uint32_t room = (uint32_t)(key->size_bytes / sizeof(*indices));
	uint32_t count = 0;
	char quoted[TW_FOUND_BYTES];
	char what[TW_WHY_BYTES];
	if (node != NULL && (node->count > room || (node->count == 0 && key->def == NULL))) {
		(void)snprintf(what, sizeof(what), "found %u of them, allowed %u to %u",
			       node->count, key->def == NULL ? 1u : 0u, room);
		return fail(b, node->line, what);
	}
	for (const struct tw_node *n = node != NULL ? node->first : NULL; n != NULL; n = n->next) {
		int64_t found =
			n->type == TW_NODE_SCALAR ? reference_find(b->site, key, n->text) : -1;
		if (found < 0) {
			size_t was = path_push(b, "[%u]", count);
			int rc = fail_type(b, key, n);
			path_pop(b, was);
			return rc;
		}
		for (uint32_t i = 0; i < count; i++) {
			if (indices[i] == (uint32_t)found) {
				(void)snprintf(what, sizeof(what),
					       "found %s twice, allowed each of them once",
					       tw_node_quote(quoted, n->text));
				return fail(b, n->line, what);
			}
		}
		indices[count++] = (uint32_t)found;
	}
	memcpy((char *)base + key->count_offset_bytes, &count, sizeof(count));
	return TW_OK;
}

static int bind_endpoints(struct bind *b, const struct tw_key *key, const struct tw_node *node,
			  void *base)
{
	uint64_t *endpoints = (void *)((char *)base + key->offset_bytes);
	uint32_t count = 0;
	char quoted[TW_FOUND_BYTES];
	char what[TW_WHY_BYTES];
	if (node != NULL && node->count > key->size_bytes / sizeof(*endpoints)) {
		return fail_type(b, key, node);
	}
	for (const struct tw_node *n = node != NULL ? node->first : NULL; n != NULL; n = n->next) {
		if (n->type != TW_NODE_SCALAR ||
		    !tw_value_endpoint(n->text, false, &endpoints[count])) {
			size_t was = path_push(b, "[%u]", count);
			int rc = fail_type(b, key, n);
			path_pop(b, was);
			return rc;
		}
		for (uint32_t i = 0; i < count; i++) {
			if (endpoints[i] == endpoints[count]) {
				(void)snprintf(what, sizeof(what),
					       "found %s twice, allowed each of them once",
					       tw_node_quote(quoted, n->text));
				return fail(b, n->line, what);
			}
		}
		count++;
	}
	memcpy((char *)base + key->count_offset_bytes, &count, sizeof(count));
	return TW_OK;
}

static int bind_leaf(struct bind *b, const struct tw_key *key, const struct tw_node *node,
		     uint32_t line, void *base)
{
	char why[TW_WHY_BYTES];
	bool list = key->kind >= TW_KEY_CHANNELS;
	if (node == NULL && key->def == NULL) {
		char allowed[TW_WHY_BYTES];
		tw_value_allowed(key, allowed);
		(void)snprintf(why, sizeof(why), "found nothing, required is %.200s", allowed);
		return fail(b, line, why);
	}
	bool one_of_list =
		node != NULL && key->kind == TW_KEY_FILES && node->type == TW_NODE_SCALAR;
	if (node != NULL && !one_of_list && node->type != (list ? TW_NODE_LIST : TW_NODE_SCALAR)) {
		return fail_type(b, key, node);
	}
	int rc = node != NULL ? origin_add(b, (char *)base + key->offset_bytes, node->line) : TW_OK;
	if (rc < 0) {
		return rc;
	}
	switch (key->kind) {
	case TW_KEY_SYMBOLS:
		return bind_symbols(b, key, node, base);
	case TW_KEY_FILES:
		return bind_files(b, key, node, base);
	case TW_KEY_CHANNELS:
	case TW_KEY_PUBLISHERS:
		return bind_references(b, key, node, base);
	case TW_KEY_ENDPOINTS:
		return bind_endpoints(b, key, node, base);
	default:
		break;
	}
	if (node == NULL && key->def[0] == '\0') {
		int none = -1;
		if (key->kind == TW_KEY_CPU) {
			memcpy((char *)base + key->offset_bytes, &none, sizeof(none));
		}
		return TW_OK;
	}
	rc = tw_value_parse(key, b->site, base, node != NULL ? node->text : key->def,
			    node != NULL && node->quoted, why);
	return rc < 0 ? fail(b, node != NULL ? node->line : line, why) : TW_OK;
}

static int bind_element(struct bind *b, const struct tw_key *key, const struct tw_node *node,
			const char *prefix, void *element)
{
	static const struct tw_key name_key = { .path = "name",
						.kind = TW_KEY_NAME,
						.size_bytes = TW_NAME_BYTES };
	char why[TW_WHY_BYTES];
	if (node->type != TW_NODE_MAP) {
		struct tw_key section = { .path = "", .kind = TW_KEY_SECTION };
		return fail_type(b, &section, node);
	}
	if (key->kind == TW_KEY_MAP) {
		int rc = tw_value_parse(&name_key, b->site, element, node->key, false, why);
		rc = rc < 0 ? fail(b, node->line, why) : origin_add(b, element, node->line);
		if (rc < 0) {
			return rc;
		}
	}
	return bind_keys(b, node, node->line, prefix, element);
}

/* A list or a mapping of names: each entry is an element of an array allocated here. */
static int bind_elements(struct bind *b, const struct tw_key *key, const struct tw_node *node,
			 uint32_t line)
{
	enum tw_node_type wanted = key->kind == TW_KEY_LIST ? TW_NODE_LIST : TW_NODE_MAP;
	size_t size = key->size_bytes;
	char prefix[32];
	char what[TW_WHY_BYTES];
	bool nothing = node == NULL || (node->type == TW_NODE_SCALAR && node->text[0] == '\0');
	if (!nothing && node->type != wanted) {
		return fail_type(b, key, node);
	}
	uint32_t count = nothing ? 0 : node->count;
	if (count < key->min || count > key->max) {
		(void)snprintf(what, sizeof(what), "found %u of them, allowed %u to %u", count,
			       (unsigned int)key->min, (unsigned int)key->max);
		return fail(b, node != NULL ? node->line : line, what);
	}
	char *elements = count > 0 ? calloc(count, size) : NULL;
	if (count > 0 && elements == NULL) {
		return tw_fail(b->err, TW_ENOMEM, "%s: out of memory", b->site->path);
	}
	memcpy((char *)b->site + key->offset_bytes, &elements, sizeof(elements));
	(void)snprintf(prefix, sizeof(prefix), "%s%s", key->path,
		       key->kind == TW_KEY_LIST ? "[]" : ".<name>");
	for (uint32_t i = 0; i < count; i++) {
		const struct tw_node *n = i > 0 ? node->next : node->first;
		char quoted[TW_FOUND_BYTES];
		size_t was;
		if (key->kind == TW_KEY_LIST) {
			was = path_push(b, "[%u]", i);
		} else {
			/* not a valid name yet: escaped as every text of the file, without quotes */
			(void)tw_node_quote(quoted, n->key);
			quoted[strlen(quoted) - 1u] = '\0';
			was = path_push(b, ".%s", quoted + 1);
		}
		/* counted first, so that a failure frees it too */
		uint32_t bound = i + 1u;
		memcpy((char *)b->site + key->count_offset_bytes, &bound, sizeof(bound));
		int rc = bind_element(b, key, n, prefix, elements + i * size);
		path_pop(b, was);
		if (rc < 0) {
			return rc;
		}
		node = n;
	}
	return TW_OK;
}

static int bind_branch(struct bind *b, const struct tw_key *key, const struct tw_node *node,
		       uint32_t line, void *base)
{
	if (key->kind != TW_KEY_SECTION) {
		return bind_elements(b, key, node, line);
	}
	/* a section whose keys are all commented out has no value at all */
	bool nothing = node == NULL || (node->type == TW_NODE_SCALAR && node->text[0] == '\0');
	if (!nothing && node->type != TW_NODE_MAP) {
		return fail_type(b, key, node);
	}
	return bind_keys(b, nothing ? NULL : node, node != NULL ? node->line : line, key->path,
			 base);
}

/* All keys one step below `prefix`; `map` NULL: none is given. */
static int bind_keys(struct bind *b, const struct tw_node *map, uint32_t line, const char *prefix,
		     void *base)
{
	int rc = map != NULL ? check_known(b, map, prefix) : TW_OK;
	for (size_t i = 0; i < tw_key_count && rc == TW_OK; i++) {
		const struct tw_key *key = &tw_keys[i];
		if (!tw_key_is_child(key, prefix)) {
			continue;
		}
		const struct tw_node *node = tw_node_child(map, tw_key_leaf(key));
		size_t was = path_push_key(b, tw_key_leaf(key));
		rc = tw_key_is_branch(key) ? bind_branch(b, key, node, line, base)
					   : bind_leaf(b, key, node, line, base);
		path_pop(b, was);
	}
	return rc;
}

int tw_schema_bind(struct tw_site *site, const struct tw_node *root, struct tw_error *err)
{
	struct bind b = { .site = site, .err = err };
	int rc = bind_keys(&b, root, root->line, "", site);
	if (rc == TW_OK && site->origins->count > 0) {
		qsort(site->origins->rows, site->origins->count, sizeof(*site->origins->rows),
		      origin_compare);
	}
	return rc;
}
