#include "config/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "base/fail.h"

#define CHUNK_BYTES ((size_t)64 * 1024)
#define PATH_SHOWN  200u /* of a file's name in an error */
#define KEY_SHOWN   240u

struct tw_node_chunk {
	struct tw_node_chunk *next;
	size_t used_bytes, size_bytes;
	_Alignas(16) unsigned char bytes[];
};

/* One open mapping or list; `key` waits for its value. */
struct level {
	struct tw_node *node;
	const char *key;
	uint32_t key_line;
};

struct reader {
	struct tw_tree *tree;
	const char *path;
	struct tw_error *err;
	const unsigned char *data;
	size_t len_bytes;
	struct level levels[TW_NODE_MAX_DEPTH];
	uint32_t depth, documents;
};

int tw_node_fail(struct tw_error *err, const char *path, uint32_t line, const char *key,
		 const char *fmt, ...)
{
	char text[TW_ERROR_TEXT_BYTES];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	size_t n = strlen(path);
	const char *cut = n > PATH_SHOWN ? "..." : "";
	const char *shown = n > PATH_SHOWN ? path + n - PATH_SHOWN : path;
	return tw_fail(err, TW_ECONFIG, "%s%s:%u: %s: %s", cut, shown, line, key, text);
}

const char *tw_node_quote(char out[TW_FOUND_BYTES], const char *text)
{
	static const char hex[] = "0123456789abcdef";
	char *o = out;
	const char *end = out + TW_FOUND_BYTES - sizeof("\\xff...'");
	*o++ = '\'';
	const unsigned char *c = (const unsigned char *)text;
	for (; *c != '\0' && o < end; c++) {
		if (*c >= 0x20 && *c < 0x7f) {
			*o++ = (char)*c;
		} else {
			*o++ = '\\';
			*o++ = 'x';
			*o++ = hex[*c >> 4];
			*o++ = hex[*c & 15];
		}
	}
	if (*c != '\0') {
		memcpy(o, "...", 3);
		o += 3;
	}
	*o++ = '\'';
	*o = '\0';
	return out;
}

static void *arena_take(struct tw_tree *tree, size_t n)
{
	n = (n + 15u) & ~(size_t)15u;
	struct tw_node_chunk *chunk = tree->chunks;
	if (chunk == NULL || chunk->size_bytes - chunk->used_bytes < n) {
		size_t size = n > CHUNK_BYTES ? n : CHUNK_BYTES;
		chunk = malloc(sizeof(*chunk) + size);
		if (chunk == NULL) {
			return NULL;
		}
		*chunk = (struct tw_node_chunk){ .next = tree->chunks, .size_bytes = size };
		tree->chunks = chunk;
	}
	void *p = chunk->bytes + chunk->used_bytes;
	chunk->used_bytes += n;
	return p;
}

void tw_tree_free(struct tw_tree *tree)
{
	while (tree->chunks != NULL) {
		struct tw_node_chunk *next = tree->chunks->next;
		free(tree->chunks);
		tree->chunks = next;
	}
	*tree = (struct tw_tree){ 0 };
}

const struct tw_node *tw_node_child(const struct tw_node *map, const char *name)
{
	if (map == NULL || map->type != TW_NODE_MAP) {
		return NULL;
	}
	for (const struct tw_node *n = map->first; n != NULL; n = n->next) {
		if (strcmp(n->key, name) == 0) {
			return n;
		}
	}
	return NULL;
}

/* "channels[3].groups": where the reader stands, for errors. */
static const char *where(const struct reader *r, char out[KEY_SHOWN])
{
	size_t used = 0;
	out[0] = '\0';
	for (uint32_t i = 0; i < r->depth && used < KEY_SHOWN - 1u; i++) {
		const struct level *level = &r->levels[i];
		char quoted[TW_FOUND_BYTES];
		/* all but the innermost have attached what is being read as their last child */
		bool inner = i + 1u == r->depth;
		const char *key = inner ? level->key : level->node->last->key;
		int n = 0;
		if (level->node->type == TW_NODE_LIST) {
			n = snprintf(out + used, KEY_SHOWN - used, "[%u]",
				     level->node->count - (inner ? 0u : 1u));
		} else if (key != NULL) {
			(void)tw_node_quote(quoted, key);
			quoted[strlen(quoted) - 1] = '\0';
			n = snprintf(out + used, KEY_SHOWN - used, "%s%s", used > 0 ? "." : "",
				     quoted + 1);
		}
		used += n > 0 ? (size_t)n : 0;
	}
	return out[0] != '\0' ? out : "top level";
}

static int refuse(const struct reader *r, uint32_t line, const char *found, const char *allowed)
{
	char key[KEY_SHOWN];
	return tw_node_fail(r->err, r->path, line, where(r, key), "found %s, allowed %s", found,
			    allowed);
}

static uint32_t mark_line(const yaml_mark_t *mark)
{
	return (uint32_t)mark->line + 1u;
}

/* What libyaml says, and how we say it. */
static const struct {
	const char *problem, *found, *allowed;
} phrases[] = {
	{ "found a tab character that violates indentation", "a tab", "spaces for indentation" },
	{ "could not find expected ':'", "a line without ':'", "'key: value'" },
	{ "mapping values are not allowed in this context", "a ':' where no key can begin",
	  "one 'key: value' in a line, a text with ': ' in quotes" },
	{ "block sequence entries are not allowed in this context", "a '-' where no list can begin",
	  "a list on lines of its own" },
	{ "found unexpected end of stream", "the end of the file inside quotes",
	  "the closing quote" },
	{ "found unexpected document indicator", "'---' or '...' inside quotes",
	  "the closing quote" },
	{ "found unknown escape character", "an unknown escape in double quotes",
	  "the escapes of YAML, or single quotes" },
	{ "found undefined tag handle", "a tag", "plain values" },
	{ "did not find expected <document start>", "text after the end of the document",
	  "one document" },
	{ "did not find expected key", "something else than the next key",
	  "a key at the indentation of its neighbours" },
	{ "did not find expected '-' indicator", "something else than the next '-'",
	  "list elements at one indentation" },
	{ "did not find expected ',' or ']'", "something else inside [ ]", "',' or ']'" },
	{ "did not find expected ',' or '}'", "something else inside { }", "',' or '}'" },
	{ "did not find expected node content", "no value", "a value" },
};

/* The byte at libyaml's mark, -1 at the end.  Its columns count characters. */
static int byte_at(const struct reader *r, const yaml_mark_t *mark)
{
	size_t at = 0;
	for (size_t i = 0; i < mark->index && at < r->len_bytes; i++) {
		at++;
		while (at < r->len_bytes && (r->data[at] & 0xc0) == 0x80) {
			at++;
		}
	}
	return at < r->len_bytes ? r->data[at] : -1;
}

static int refuse_syntax(const struct reader *r, const yaml_parser_t *parser)
{
	const char *problem = parser->problem != NULL ? parser->problem : "malformed";
	const yaml_mark_t *mark = &parser->problem_mark;
	if (parser->error == YAML_MEMORY_ERROR) {
		return tw_fail(r->err, TW_ENOMEM, "%s: libyaml: out of memory", r->path);
	}
	char column[32];
	char found[128];
	(void)snprintf(column, sizeof(column), "column %zu", (size_t)mark->column + 1u);
	int c = byte_at(r, mark);
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++) {
		if (strcmp(problem, phrases[i].problem) == 0) {
			bool ended = c < 0 && strstr(phrases[i].found, "something else") != NULL;
			return tw_node_fail(r->err, r->path, mark_line(mark), column,
					    "found %s, allowed %s",
					    ended ? "the end of the file" : phrases[i].found,
					    phrases[i].allowed);
		}
	}
	if (strcmp(problem, "found character that cannot start any token") == 0) {
		char text[2] = { (char)c, '\0' };
		char quoted[TW_FOUND_BYTES];
		if (c == '\t') {
			return tw_node_fail(r->err, r->path, mark_line(mark), column,
					    "found a tab, allowed spaces for indentation");
		}
		(void)snprintf(found, sizeof(found), "%s before a value",
			       tw_node_quote(quoted, text));
		return tw_node_fail(r->err, r->path, mark_line(mark), column,
				    "found %s, allowed there only inside quotes", found);
	}
	return tw_node_fail(r->err, r->path, mark_line(mark), column,
			    "found text that is not YAML (%s), allowed YAML 1.1", problem);
}

/* Length of the UTF-8 character at `p`, 0 where it is none: no overlong form, no surrogate, at most
 * U+10FFFF. */
static size_t utf8_len(const unsigned char *p, size_t left)
{
	uint32_t c;
	size_t n;
	if (p[0] < 0x80) {
		return 1;
	} else if (p[0] >= 0xc2 && p[0] < 0xe0) {
		n = 2;
		c = p[0] & 0x1fu;
	} else if (p[0] >= 0xe0 && p[0] < 0xf0) {
		n = 3;
		c = p[0] & 0x0fu;
	} else if (p[0] >= 0xf0 && p[0] < 0xf5) {
		n = 4;
		c = p[0] & 0x07u;
	} else {
		return 0;
	}
	if (left < n) {
		return 0;
	}
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80) {
			return 0;
		}
		c = c << 6 | (p[i] & 0x3fu);
	}
	bool bad = (n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
		   (n == 4 && (c < 0x10000 || c > 0x10ffff));
	return bad ? 0 : n;
}

/* libyaml would find these too, but says neither line nor column. */
static int check_text(const struct reader *r)
{
	uint32_t line = 1, column = 1;
	for (size_t at = 0; at < r->len_bytes;) {
		unsigned char c = r->data[at];
		size_t n = utf8_len(r->data + at, r->len_bytes - at);
		bool control = c == 0x7f || (c < 0x20 && c != '\t' && c != '\n' && c != '\r');
		if (n == 0 || control) {
			char key[32];
			(void)snprintf(key, sizeof(key), "column %u", column);
			return tw_node_fail(
				r->err, r->path, line, key, "found byte 0x%02x, allowed %s", c,
				n == 0 ? "UTF-8 text" : "printable text, tabs and line ends");
		}
		at += n;
		column++;
		if (c == '\n' || (c == '\r' && (at == r->len_bytes || r->data[at] != '\n'))) {
			line++;
			column = 1;
		}
	}
	return TW_OK;
}

static struct tw_node *node_new(struct reader *r, enum tw_node_type type, uint32_t line)
{
	struct tw_node *node = arena_take(r->tree, sizeof(*node));
	if (node == NULL) {
		(void)tw_fail(r->err, TW_ENOMEM, "%s: out of memory", r->path);
		return NULL;
	}
	*node = (struct tw_node){ .type = type, .line = line, .text = "" };
	return node;
}

static int take_key(struct reader *r, struct level *level, const struct tw_node *node)
{
	char quoted[TW_FOUND_BYTES];
	char found[128];
	if (node->type != TW_NODE_SCALAR || node->text[0] == '\0') {
		return refuse(r, node->line,
			      node->type == TW_NODE_SCALAR ? "an empty key"
							   : "a mapping or list as a key",
			      "a name as a key");
	}
	if (level->node->count == TW_NODE_MAX_KEYS) {
		return refuse(r, node->line, "more than 1024 keys in one mapping", "1024 keys");
	}
	for (const struct tw_node *n = level->node->first; n != NULL; n = n->next) {
		if (strcmp(n->key, node->text) == 0) {
			(void)snprintf(found, sizeof(found),
				       "key %s a second time (first: line %u)",
				       tw_node_quote(quoted, node->text), n->line);
			return refuse(r, node->line, found, "each key once");
		}
	}
	level->key = node->text;
	level->key_line = node->line;
	return TW_OK;
}

static int attach(struct reader *r, struct tw_node *node)
{
	if (r->depth == 0) {
		r->tree->root = node;
		return TW_OK;
	}
	struct level *level = &r->levels[r->depth - 1u];
	struct tw_node *parent = level->node;
	if (parent->type == TW_NODE_MAP) {
		if (level->key == NULL) {
			return take_key(r, level, node);
		}
		node->key = level->key;
		node->line = level->key_line;
		level->key = NULL;
	}
	if (parent->last == NULL) {
		parent->first = node;
	} else {
		parent->last->next = node;
	}
	parent->last = node;
	parent->count++;
	return TW_OK;
}

static int check_plain(const struct reader *r, uint32_t line, const yaml_char_t *anchor,
		       const yaml_char_t *tag)
{
	char quoted[TW_FOUND_BYTES];
	char found[128];
	if (anchor == NULL && tag == NULL) {
		return TW_OK;
	}
	(void)snprintf(found, sizeof(found), "%s %s", anchor != NULL ? "anchor" : "tag",
		       tw_node_quote(quoted, (const char *)(anchor != NULL ? anchor : tag)));
	return refuse(r, line, found, "plain values without anchors, aliases and tags");
}

static int on_scalar(struct reader *r, const yaml_event_t *event)
{
	uint32_t line = mark_line(&event->start_mark);
	size_t n = event->data.scalar.length;
	const char *value = (const char *)event->data.scalar.value;
	int rc = check_plain(r, line, event->data.scalar.anchor, event->data.scalar.tag);
	if (rc < 0) {
		return rc;
	}
	if (n > TW_NODE_MAX_SCALAR_BYTES) {
		return refuse(r, line, "a text of more than 1024 bytes", "up to 1024 bytes");
	}
	if (strlen(value) != n) {
		return refuse(r, line, "a NUL byte", "text");
	}
	struct tw_node *node = node_new(r, TW_NODE_SCALAR, line);
	char *copy = node != NULL ? arena_take(r->tree, n + 1u) : NULL;
	if (copy == NULL) {
		return tw_fail(r->err, TW_ENOMEM, "%s: out of memory", r->path);
	}
	memcpy(copy, value, n + 1u);
	node->text = copy;
	node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	return attach(r, node);
}

static int on_open(struct reader *r, enum tw_node_type type, const yaml_event_t *event)
{
	uint32_t line = mark_line(&event->start_mark);
	bool map = type == TW_NODE_MAP;
	int rc = check_plain(
		r, line, map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor,
		map ? event->data.mapping_start.tag : event->data.sequence_start.tag);
	if (rc < 0) {
		return rc;
	}
	if (r->depth == TW_NODE_MAX_DEPTH) {
		return refuse(r, line, "mappings and lists nested more than 16 deep", "16 levels");
	}
	struct tw_node *node = node_new(r, type, line);
	if (node == NULL) {
		return TW_ENOMEM;
	}
	/* as a key it is refused there and then, so it never becomes a level */
	rc = attach(r, node);
	if (rc == TW_OK) {
		r->levels[r->depth++] = (struct level){ .node = node };
	}
	return rc;
}

static int on_event(struct reader *r, const yaml_event_t *event)
{
	uint32_t line = mark_line(&event->start_mark);
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (r->documents++ > 0) {
			return refuse(r, line, "a second document", "one document in a file");
		}
		if (event->data.document_start.tag_directives.start !=
		    event->data.document_start.tag_directives.end) {
			return refuse(r, line, "a %TAG directive", "plain values without tags");
		}
		return TW_OK;
	case YAML_ALIAS_EVENT:
		return refuse(r, line, "an alias",
			      "plain values without anchors, aliases and tags");
	case YAML_SCALAR_EVENT:
		return on_scalar(r, event);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(r, TW_NODE_LIST, event);
	case YAML_MAPPING_START_EVENT:
		return on_open(r, TW_NODE_MAP, event);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		return TW_OK;
	default:
		return TW_OK;
	}
}

static int read_events(struct reader *r, yaml_parser_t *parser)
{
	bool more = true;
	while (more) {
		yaml_event_t event;
		if (yaml_parser_parse(parser, &event) == 0) {
			return refuse_syntax(r, parser);
		}
		more = event.type != YAML_STREAM_END_EVENT;
		int rc;
		bool is_node = event.type == YAML_SCALAR_EVENT ||
			       event.type == YAML_SEQUENCE_START_EVENT ||
			       event.type == YAML_MAPPING_START_EVENT;
		r->tree->nodes += is_node ? 1u : 0u;
		if (r->tree->nodes > TW_NODE_MAX_NODES) {
			rc = refuse(r, mark_line(&event.start_mark),
				    "more than 100000 keys and values", "100000");
		} else {
			rc = on_event(r, &event);
		}
		yaml_event_delete(&event);
		if (rc < 0) {
			return rc;
		}
	}
	return TW_OK;
}

int tw_tree_parse(struct tw_tree *tree, const char *path, const void *data, size_t len_bytes,
		  struct tw_error *err)
{
	*tree = (struct tw_tree){ 0 };
	struct reader r = {
		.tree = tree, .path = path, .err = err, .data = data, .len_bytes = len_bytes
	};
	if (len_bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) {
		/* libyaml would take the byte order mark for indentation */
		r.data += 3;
		r.len_bytes -= 3;
	}
	if (len_bytes > TW_NODE_MAX_FILE_BYTES) {
		return tw_node_fail(err, path, 1, "top level",
				    "found more than 1 MiB, allowed 1 MiB of YAML");
	}
	int rc = check_text(&r);
	if (rc < 0) {
		return rc;
	}
	yaml_parser_t parser;
	if (yaml_parser_initialize(&parser) == 0) {
		return tw_fail(err, TW_ENOMEM, "%s: libyaml: out of memory", path);
	}
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, r.len_bytes > 0 ? r.data : (const void *)"",
				     r.len_bytes);
	rc = read_events(&r, &parser);
	yaml_parser_delete(&parser);
	if (rc == TW_OK && (tree->root == NULL || tree->root->type != TW_NODE_MAP)) {
		rc = tw_node_fail(err, path, tree->root != NULL ? tree->root->line : 1u,
				  "top level",
				  "found %s, allowed a mapping that begins with 'site: NAME'",
				  tree->root == NULL                 ? "nothing"
				  : tree->root->type == TW_NODE_LIST ? "a list"
								     : "a single value");
	}
	if (rc < 0) {
		tw_tree_free(tree);
	}
	return rc;
}
