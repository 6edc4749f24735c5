/* A YAML file as a tree of nodes with line numbers: the only place that sees libyaml.
 *
 * The subset   one document of mappings, lists and scalars.  Anchors, aliases, tags, duplicate keys
 *              and keys that are not scalars are refused, so that what a person reads is what is there.
 * Bounds       the limits below hold before anything is allocated for what would break them.
 * Errors       one line: "FILE:LINE: KEY: found X, allowed Y". */
#ifndef TW_CONFIG_NODE_H
#define TW_CONFIG_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

#define TW_NODE_MAX_FILE_BYTES   ((size_t)1 << 20)
#define TW_NODE_MAX_DEPTH        16u
#define TW_NODE_MAX_NODES        100000u
#define TW_NODE_MAX_SCALAR_BYTES 1024u
#define TW_NODE_MAX_KEYS         1024u /* of one mapping; finding duplicates is quadratic in it */

enum tw_node_type { TW_NODE_SCALAR = 0, TW_NODE_MAP, TW_NODE_LIST };

struct tw_node {
	enum tw_node_type type;
	uint32_t line;
	uint32_t count;        /* children of a mapping or list */
	bool quoted;           /* a scalar that is quoted or a block: text, never a number */
	const char *text;      /* of a scalar; else "" */
	const char *key;       /* in a mapping; else NULL */
	struct tw_node *first; /* children in file order */
	struct tw_node *last;
	struct tw_node *next;
};

struct tw_node_chunk;
struct tw_tree {
	struct tw_node *root;
	struct tw_node_chunk *chunks;
	uint32_t nodes;
};

/* `path` names the file in errors.  After a failure the tree is empty. */
int tw_tree_parse(struct tw_tree *tree, const char *path, const void *data, size_t len_bytes,
		  struct tw_error *err) TW_MUST_USE;
void tw_tree_free(struct tw_tree *tree);

/* The child of a mapping by name, or NULL (also for a NULL node). */
const struct tw_node *tw_node_child(const struct tw_node *map, const char *name);

/* "FILE:LINE: KEY: text"; a long path keeps its tail, and text from the file must already be escaped. */
int tw_node_fail(struct tw_error *err, const char *path, uint32_t line, const char *key,
		 const char *fmt, ...) TW_PRINTF(5, 6) TW_COLD;

#define TW_FOUND_BYTES 72
/* 'text' in quotes, shortened, with everything but printable ASCII escaped. */
const char *tw_node_quote(char out[TW_FOUND_BYTES], const char *text);

#endif
