/* Every key's effective value and where it came from, and what follows from them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/schema.h"

struct show {
	const struct tw_site *site;
	FILE *out;
	int host; /* -1: all */
};

static void show_leaf(const struct show *s, const struct tw_key *key, const char *path,
		      const void *base)
{
	char *value = NULL;
	size_t len = 0;
	uint32_t line = tw_origin_line(s->site, (const char *)base + key->offset_bytes);
	FILE *text = open_memstream(&value, &len);
	if (text == NULL) {
		return;
	}
	tw_value_print(key, s->site, base, text);
	if (fclose(text) == 0) {
		(void)fprintf(s->out, "%s:%s%s  # ", path, len > 0 ? " " : "", value);
		if (line > 0) {
			(void)fprintf(s->out, "%s:%u\n", s->site->path, line);
		} else {
			(void)fputs("default\n", s->out);
		}
	}
	free(value);
}

static bool concerns(const struct show *s, const char *list, uint32_t i)
{
	if (s->host < 0) {
		return true;
	}
	if (strcmp(list, "hosts") == 0) {
		return i == (uint32_t)s->host;
	}
	if (strcmp(list, "feedhandlers") == 0) {
		return s->site->feedhandlers[i].host == (uint32_t)s->host;
	}
	if (strcmp(list, "publishers") == 0) {
		return s->site->publishers[i].host == (uint32_t)s->host;
	}
	return true;
}

static void show_keys(const struct show *s, const char *prefix, const char *path, const void *base);

static void show_elements(const struct show *s, const struct tw_key *key)
{
	const char *elements;
	uint32_t count;
	char prefix[32], path[TW_NAME_BYTES + 32];
	memcpy(&elements, (const char *)s->site + key->offset_bytes, sizeof(elements));
	memcpy(&count, (const char *)s->site + key->count_offset_bytes, sizeof(count));
	bool list = key->kind == TW_KEY_LIST;
	(void)snprintf(prefix, sizeof(prefix), "%s%s", key->path, list ? "[]" : ".<name>");
	for (uint32_t i = 0; i < count; i++) {
		if (!concerns(s, key->path, i)) {
			continue;
		}
		if (list) {
			(void)snprintf(path, sizeof(path), "%s[%u]", key->path, i);
		} else {
			(void)snprintf(path, sizeof(path), "%s.%s", key->path,
				       s->site->hosts[i].name);
		}
		show_keys(s, prefix, path, elements + i * key->size_bytes);
	}
}

static void show_keys(const struct show *s, const char *prefix, const char *path, const void *base)
{
	char child[TW_NAME_BYTES + 64];
	for (size_t i = 0; i < tw_key_count; i++) {
		const struct tw_key *key = &tw_keys[i];
		if (!tw_key_is_child(key, prefix)) {
			continue;
		}
		(void)snprintf(child, sizeof(child), "%s%s%s", path, path[0] != '\0' ? "." : "",
			       tw_key_leaf(key));
		if (!tw_key_is_branch(key)) {
			show_leaf(s, key, child, base);
		} else if (key->kind == TW_KEY_SECTION) {
			show_keys(s, key->path, child, base);
		} else {
			show_elements(s, key);
		}
	}
}

static void show_derived(const struct show *s)
{
	const struct tw_site *site = s->site;
	char mac[18];
	(void)fprintf(s->out, "environment_id: 0x%04x  # derived\n", site->environment_id);
	for (uint32_t i = 0; i < site->channel_count; i++) {
		for (uint32_t line = 0; line < site->channels[i].lines; line++) {
			tw_group_mac(site->channels[i].groups[line], mac);
			(void)fprintf(s->out, "channels[%u].groups.%c.mac: %s  # derived\n", i,
				      'a' + (int)line, mac);
		}
	}
	for (uint32_t i = 0; i < site->publisher_count; i++) {
		if (concerns(s, "publishers", i)) {
			(void)fprintf(s->out,
				      "publishers[%u].history_bytes: %" PRIu64
				      "  # derived, of each channel\n",
				      i, site->publishers[i].history_bytes);
		}
	}
	for (uint32_t i = 0; i < site->host_count; i++) {
		if (concerns(s, "hosts", i)) {
			(void)fprintf(s->out, "hosts.%s.hot_threads: %u  # derived\n",
				      site->hosts[i].name, tw_site_hot_threads(site, i));
		}
	}
}

int tw_site_show_host(const struct tw_site *site, int host, FILE *out)
{
	const struct show s = { .site = site, .out = out, .host = host };
	show_keys(&s, "", "", site);
	show_derived(&s);
	return fflush(out) == 0 && ferror(out) == 0 ? TW_OK : TW_ESYS;
}

int tw_site_show(const struct tw_site *site, FILE *out)
{
	return tw_site_show_host(site, -1, out);
}
