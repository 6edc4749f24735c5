/* The commented sample and docs/CONFIG.md, from the key table. */
#include <ctype.h>
#include <string.h>

#include "config/schema.h"

#define COLUMNS 100u

/* Text as comment lines of at most COLUMNS, without its Markdown. */
static void comment(FILE *out, unsigned int indent, const char *text)
{
	unsigned int column = 0;
	while (*text != '\0') {
		size_t n = strcspn(text, " ");
		unsigned int shown = 0;
		for (size_t i = 0; i < n; i++) {
			shown += text[i] != '`' ? 1u : 0u;
		}
		if (column > 0 && column + 1u + shown > COLUMNS) {
			(void)fputc('\n', out);
			column = 0;
		}
		if (column == 0) {
			(void)fprintf(out, "%*s#", (int)indent, "");
			column = indent + 1u;
		}
		(void)fputc(' ', out);
		for (size_t i = 0; i < n; i++) {
			if (text[i] != '`') {
				(void)fputc(text[i], out);
			}
		}
		column += 1u + shown;
		text += n;
		text += strspn(text, " ");
	}
	(void)fputc('\n', out);
}

/* What would be an error, or a surprise, if it stood in the sample as it is. */
static bool in_comment(const struct tw_key *key)
{
	if (tw_key_is_branch(key)) {
		return strcmp(key->path, "fault") == 0; /* refused in production */
	}
	if (strcmp(key->path, "channels[].levels") == 0) {
		return true; /* refused with depth quotes */
	}
	if (key->kind == TW_KEY_FILES) {
		return false; /* the input of the sample */
	}
	/* a second line is optional and usual */
	bool second_line = key->kind == TW_KEY_GROUP ||
			   (key->kind == TW_KEY_INTERFACE && strncmp(key->path, "hosts", 5) == 0);
	return key->def != NULL && key->def[0] == '\0' && key->example[0] != '\0' &&
	       key->kind != TW_KEY_PUBLISHERS && !second_line;
}

static void sample_value(const struct tw_key *key, FILE *out)
{
	bool empty = key->def == NULL || key->def[0] == '\0';
	if (key->kind == TW_KEY_PUBLISHERS && empty) {
		(void)fputs("[]", out);
	} else if (key->kind == TW_KEY_SYMBOLS) {
		(void)fprintf(out, "[\"%s\"]", key->def);
	} else {
		(void)fputs(empty ? key->example : key->def, out);
	}
}

/* `#` in the first column is an example to uncomment; an indented one, or one followed by a single
 * blank, is prose. */
static void sample_keys(FILE *out, const char *prefix, unsigned int indent, bool commented,
			bool element)
{
	char allowed[TW_WHY_BYTES];
	char inner[48];
	bool first = element;
	for (size_t i = 0; i < tw_key_count; i++) {
		const struct tw_key *key = &tw_keys[i];
		if (!tw_key_is_child(key, prefix)) {
			continue;
		}
		bool off = commented || in_comment(key);
		if (indent == 0) {
			(void)fputc('\n', out);
		}
		comment(out, indent, key->help);
		if (!tw_key_is_branch(key)) {
			char line[TW_WHY_BYTES + 16];
			tw_value_allowed(key, allowed);
			(void)snprintf(line, sizeof(line), "Allowed: %s.", allowed);
			comment(out, indent, line);
		}
		/* the dash of an element stands before its first key, which is always required */
		(void)fprintf(out, "%s%*s%s%s:", off ? "#" : "",
			      (int)(first ? indent - 2u : indent), "", first ? "- " : "",
			      tw_key_leaf(key));
		first = false;
		if (!tw_key_is_branch(key)) {
			(void)fputc(' ', out);
			sample_value(key, out);
			(void)fputc('\n', out);
			continue;
		}
		(void)fputc('\n', out);
		if (key->kind == TW_KEY_SECTION) {
			sample_keys(out, key->path, indent + 2u, off, false);
		} else if (key->kind == TW_KEY_MAP) {
			(void)fprintf(out, "%*smd1:\n", (int)indent + 2, "");
			(void)snprintf(inner, sizeof(inner), "%s.<name>", key->path);
			sample_keys(out, inner, indent + 4u, off, false);
		} else {
			(void)snprintf(inner, sizeof(inner), "%s[]", key->path);
			sample_keys(out, inner, indent + 4u, off, true);
		}
	}
}

void tw_config_sample(FILE *out)
{
	comment(out, 0,
		"A Tidewire site with every key. Written by tw-config sample from the key "
		"table; docs/CONFIG.md says the same as tables.");
	comment(out, 0,
		"Values are the defaults, or examples where there is none. A key after a # "
		"in the first column may be left out and has no default, or works only with "
		"other values than those here. Units are part of a key's name.");
	sample_keys(out, "", 0, false, false);
}

static void table_row(FILE *out, const struct tw_key *key)
{
	char allowed[TW_WHY_BYTES];
	tw_value_allowed(key, allowed);
	(void)fprintf(out, "| `%s` | ", key->path);
	for (const char *c = allowed; *c != '\0'; c++) {
		if (*c == '*') {
			(void)fputc('\\', out);
		}
		(void)fputc(*c, out);
	}
	const char *unit = tw_key_unit(key);
	static const struct {
		const char *suffix, *unit;
	} units[] = { { "us", "µs" },      { "ms", "ms" },       { "bytes", "bytes" },
		      { "kbytes", "KiB" }, { "mbps", "Mbit/s" }, { "pct", "%" } };
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(units[i].suffix, unit) == 0) {
			(void)fprintf(out, " (%s)", units[i].unit);
		}
	}
	if (key->def == NULL) {
		(void)fputs(" | **required**", out);
	} else if (key->def[0] == '\0') {
		(void)fputs(" | none", out);
	} else if (key->kind == TW_KEY_SYMBOLS) {
		(void)fprintf(out, " | `[\"%s\"]`", key->def);
	} else {
		(void)fprintf(out, " | `%s`", key->def);
	}
	(void)fprintf(out, " | %s |\n", key->help);
}

static void document_keys(FILE *out, const char *prefix)
{
	char inner[48];
	bool table = false;
	for (size_t i = 0; i < tw_key_count; i++) {
		if (!tw_key_is_child(&tw_keys[i], prefix) || tw_key_is_branch(&tw_keys[i])) {
			continue;
		}
		if (!table) {
			(void)fputs("\n| key | allowed | default | meaning |\n|---|---|---|---|\n",
				    out);
		}
		table = true;
		table_row(out, &tw_keys[i]);
	}
	for (size_t i = 0; i < tw_key_count; i++) {
		const struct tw_key *key = &tw_keys[i];
		if (!tw_key_is_child(key, prefix) || !tw_key_is_branch(key)) {
			continue;
		}
		(void)snprintf(inner, sizeof(inner), "%s%s", key->path,
			       key->kind == TW_KEY_LIST  ? "[]"
			       : key->kind == TW_KEY_MAP ? ".<name>"
							 : "");
		(void)fprintf(out, "\n## `%s`\n\n%s", inner, key->help);
		if (key->kind != TW_KEY_SECTION) {
			(void)fprintf(out, " %u to %u of them.", (unsigned int)key->min,
				      (unsigned int)key->max);
		}
		(void)fputc('\n', out);
		document_keys(out, inner);
	}
}

void tw_config_document(FILE *out)
{
	(void)fputs(
		"# Configuration\n\n"
		"Generated by `tw-gen-docs` from `config/keys.h`; edit that, not this.\n\n"
		"One YAML file describes a site and is given to every process (`-c site.yaml`). A "
		"process finds its entry by\n`--as NAME` (a host, feedhandler or publisher) or by "
		"the machine's host name, and says which and why.\n`tw-config check FILE` looks at "
		"the whole site, `tw-config show FILE --as NAME` prints effective values with\n"
		"their origin, `tw-config sample` prints a file with every key and its help.\n\n"
		"- Units are part of a key's name and never of a value: `history_ms: 10000`. "
		"1 kbyte is 1024 bytes.\n"
		"- An error is one line: `FILE:LINE: KEY: found X, allowed Y`. An unknown key is "
		"an error that names the nearest one.\n",
		out);
	(void)fprintf(
		out,
		"- The file is UTF-8, at most %zu KiB, one document, nested at most %u deep. "
		"Anchors, aliases, tags and\n  duplicate keys are errors: what a person reads is "
		"what is there. Numbers are decimal and without quotes.\n",
		TW_NODE_MAX_FILE_BYTES / 1024u, TW_NODE_MAX_DEPTH);
	(void)fputs(
		"- A relative file name begins at the folder of the site file.\n"
		"- Names of feedhandlers and publishers are unique in a site; a host may share "
		"its name only with what runs on it.\n"
		"- Two groups of a site never share an Ethernet address (their low 23 bits "
		"differ), nor one with 224.0.0.0/24,\n  which switches flood.\n"
		"- A channel has one feedhandler and one publisher, on the same host: the bus "
		"between them is shared memory.\n"
		"- A host's hot threads have CPUs of their own; the same CPU twice is an error.\n"
		"- History memory of a channel is `history_ms` x `peak_mbps` x 125 bytes, and at "
		"least four heartbeats long.\n\n"
		"The environment id that every datagram carries: the 64-bit FNV-1a hash h of the "
		"site's name; h ^= h >> 30;\nh ^= h >> 15; its low 15 bits (1 where they are 0), "
		"shifted left by one; bit 0 is set in production. So no test\nsite has the id of a "
		"production site, whatever their names.\n\n"
		"## Top level\n",
		out);
	document_keys(out, "");
	(void)fputs("\n## Not supported by this version\n\nThese keys are refused by name:\n\n",
		    out);
	for (size_t i = 0; i < tw_keys_planned_count; i++) {
		(void)fprintf(out, "- `%s`: %s\n", tw_keys_planned[i].path,
			      tw_keys_planned[i].instead);
	}
}
