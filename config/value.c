/* Values of keys: from text into the struct, from the struct back into text, and what is allowed. */
#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/rundir.h"
#include "base/text.h"
#include "config/schema.h"

const char *tw_key_leaf(const struct tw_key *key)
{
	const char *dot = strrchr(key->path, '.');
	return dot != NULL ? dot + 1 : key->path;
}

bool tw_key_is_child(const struct tw_key *key, const char *prefix)
{
	size_t n = strlen(prefix);
	if (n > 0) {
		if (strncmp(key->path, prefix, n) != 0 || key->path[n] != '.') {
			return false;
		}
		n++;
	}
	return strchr(key->path + n, '.') == NULL;
}

const char *tw_key_unit(const struct tw_key *key)
{
	static const char *const units[] = { "us", "ms", "bytes", "kbytes", "mbps", "pct" };
	const char *tail = strrchr(tw_key_leaf(key), '_');
	for (size_t i = 0; tail != NULL && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(tail + 1, units[i]) == 0) {
			return units[i];
		}
	}
	return "";
}

static void uint_store(const struct tw_key *key, void *base, uint64_t v)
{
	void *at = (char *)base + key->offset_bytes;
	uint8_t v8 = (uint8_t)v;
	uint16_t v16 = (uint16_t)v;
	uint32_t v32 = (uint32_t)v;
	switch (key->size_bytes) {
	case 1:
		memcpy(at, &v8, 1);
		break;
	case 2:
		memcpy(at, &v16, 2);
		break;
	case 4:
		memcpy(at, &v32, 4);
		break;
	default:
		TW_ASSERT(key->size_bytes == 8);
		memcpy(at, &v, 8);
	}
}

static uint64_t uint_load(const struct tw_key *key, const void *base)
{
	const void *at = (const char *)base + key->offset_bytes;
	uint8_t v8;
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;
	switch (key->size_bytes) {
	case 1:
		memcpy(&v8, at, 1);
		return v8;
	case 2:
		memcpy(&v16, at, 2);
		return v16;
	case 4:
		memcpy(&v32, at, 4);
		return v32;
	default:
		TW_ASSERT(key->size_bytes == 8);
		memcpy(&v64, at, 8);
		return v64;
	}
}

void tw_value_allowed(const struct tw_key *key, char out[TW_WHY_BYTES])
{
	switch (key->kind) {
	case TW_KEY_SECTION:
	case TW_KEY_MAP:
		(void)snprintf(out, TW_WHY_BYTES, "a mapping");
		break;
	case TW_KEY_LIST:
		(void)snprintf(out, TW_WHY_BYTES, "a list of mappings");
		break;
	case TW_KEY_UINT:
	case TW_KEY_ENUM:
		if (key->allowed != NULL) {
			tw_text_or(key->allowed, out, TW_WHY_BYTES);
			break;
		}
		/* fall through */
	case TW_KEY_US_NS:
	case TW_KEY_CPU:
		(void)snprintf(out, TW_WHY_BYTES, "%" PRIu64 " to %" PRIu64, key->min, key->max);
		break;
	case TW_KEY_HEX:
		(void)snprintf(out, TW_WHY_BYTES, "%" PRIu64 " to %" PRIu64 ", also in hex (0x)",
			       key->min, key->max);
		break;
	case TW_KEY_POW2:
		(void)snprintf(out, TW_WHY_BYTES, "a power of two from %" PRIu64 " to %" PRIu64,
			       key->min, key->max);
		break;
	case TW_KEY_PCT:
		(void)snprintf(out, TW_WHY_BYTES, "0 to 100 with up to four decimals");
		break;
	case TW_KEY_BOOL:
		(void)snprintf(out, TW_WHY_BYTES, "true or false");
		break;
	case TW_KEY_NAME:
		(void)snprintf(out, TW_WHY_BYTES,
			       "up to %zu letters, digits, '.', '_' and '-', the first one a "
			       "letter or digit",
			       key->size_bytes - 1u);
		break;
	case TW_KEY_INTERFACE:
		(void)snprintf(out, TW_WHY_BYTES, "the name of an interface, up to 15 characters");
		break;
	case TW_KEY_MIC:
		(void)snprintf(out, TW_WHY_BYTES, "four capital letters or digits");
		break;
	case TW_KEY_FILE:
		(void)snprintf(out, TW_WHY_BYTES, "a path of up to %zu bytes",
			       key->size_bytes - 1u);
		break;
	case TW_KEY_RUN_DIR:
		(void)snprintf(out, TW_WHY_BYTES, "an absolute path of up to %zu bytes",
			       key->size_bytes - 1u);
		break;
	case TW_KEY_ADDRESS:
		(void)snprintf(out, TW_WHY_BYTES, "the IPv4 address of one host");
		break;
	case TW_KEY_GROUP:
		(void)snprintf(out, TW_WHY_BYTES,
			       "an IPv4 multicast group, 224.0.1.0 to 239.255.255.255");
		break;
	case TW_KEY_FEED_GROUP:
		(void)snprintf(out, TW_WHY_BYTES,
			       "an IPv4 multicast group and a UDP port, as 239.1.2.3:26477");
		break;
	case TW_KEY_HOST:
		(void)snprintf(out, TW_WHY_BYTES, "the name of a host under hosts");
		break;
	case TW_KEY_VENUE:
		(void)snprintf(out, TW_WHY_BYTES, "the mic of a venue under venues");
		break;
	case TW_KEY_CHANNELS:
		(void)snprintf(out, TW_WHY_BYTES, "a list of ids of channels, as [1, 2]");
		break;
	case TW_KEY_PUBLISHERS:
		(void)snprintf(out, TW_WHY_BYTES, "a list of names of publishers, as [pub1]");
		break;
	case TW_KEY_ENDPOINTS:
		(void)snprintf(out, TW_WHY_BYTES,
			       "a list of up to %u addresses and UDP ports, as "
			       "[\"10.0.0.9:17000\"]",
			       TW_MAX_REREQUEST_SERVERS);
		break;
	case TW_KEY_SYMBOLS:
		(void)snprintf(out, TW_WHY_BYTES,
			       "a list of symbols of up to 32 characters, or [\"*\"]");
		break;
	case TW_KEY_FILES:
		(void)snprintf(out, TW_WHY_BYTES, "a path of up to %u bytes, or a list of them",
			       TW_FILE_BYTES - 1u);
		break;
	}
}

static int refuse(const struct tw_key *key, const char *text, const char *hint,
		  char why[TW_WHY_BYTES])
{
	char quoted[TW_FOUND_BYTES];
	char allowed[TW_WHY_BYTES];
	tw_value_allowed(key, allowed);
	(void)snprintf(why, TW_WHY_BYTES, "found %s, allowed %.180s%s",
		       text[0] != '\0' ? tw_node_quote(quoted, text) : "nothing", allowed, hint);
	return TW_ECONFIG;
}

static int number_parse(const struct tw_key *key, void *base, const char *text, bool quoted,
			char why[TW_WHY_BYTES])
{
	uint64_t v = 0;
	if (text[0] == '0' && isdigit((unsigned char)text[1])) {
		return refuse(key, text, ": a leading zero would make it octal", why);
	}
	enum tw_number rc = key->kind == TW_KEY_PCT
				    ? tw_text_ppm(text, &v)
				    : tw_text_u64(text, key->kind == TW_KEY_HEX, &v);
	if (rc == TW_NUMBER_UNIT && (key->kind == TW_KEY_PCT || tw_key_unit(key)[0] != '\0')) {
		return refuse(key, text, ": the unit is in the key's name", why);
	}
	bool in_set = key->allowed == NULL || tw_text_find(key->allowed, text) >= 0;
	bool is_pow2 = key->kind != TW_KEY_POW2 || (v & (v - 1u)) == 0;
	if (rc != TW_NUMBER_OK || !in_set || !is_pow2 ||
	    (key->allowed == NULL && (v < key->min || v > key->max))) {
		return refuse(key, text, "", why);
	}
	if (quoted) {
		return refuse(key, text, ": a number, without quotes", why);
	}
	uint_store(key, base, key->kind == TW_KEY_US_NS ? v * 1000u : v);
	return TW_OK;
}

static bool is_name(const char *text)
{
	if (!isalnum((unsigned char)text[0])) {
		return false;
	}
	for (const char *c = text; *c != '\0'; c++) {
		if (!isalnum((unsigned char)*c) && strchr("._-", *c) == NULL) {
			return false;
		}
	}
	return true;
}

static bool is_interface(const char *text)
{
	for (const char *c = text; *c != '\0'; c++) {
		/* what the kernel refuses in a name, and what would not print */
		if (!isgraph((unsigned char)*c) || strchr("/:%", *c) != NULL) {
			return false;
		}
	}
	return text[0] != '\0' && strcmp(text, ".") != 0 && strcmp(text, "..") != 0;
}

static bool is_mic(const char *text)
{
	size_t n = 0;
	while (isupper((unsigned char)text[n]) || isdigit((unsigned char)text[n])) {
		n++;
	}
	return n == 4 && text[n] == '\0';
}

bool tw_value_is_path(const char *text)
{
	for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
		if (*c < 0x20 || *c == 0x7f) {
			return false;
		}
	}
	return text[0] != '\0';
}

static int text_parse(const struct tw_key *key, const struct tw_site *site, void *base,
		      const char *text, char why[TW_WHY_BYTES])
{
	char joined[2 * TW_FILE_BYTES + 2];
	bool ok = false;
	switch (key->kind) {
	case TW_KEY_NAME:
		ok = is_name(text);
		break;
	case TW_KEY_INTERFACE:
		ok = is_interface(text);
		break;
	case TW_KEY_MIC:
		ok = is_mic(text);
		break;
	case TW_KEY_RUN_DIR:
		ok = tw_value_is_path(text) && text[0] == '/';
		break;
	default:
		ok = tw_value_is_path(text);
	}
	if (!ok || strlen(text) >= key->size_bytes) {
		return refuse(key, text, "", why);
	}
	const char *slash = strrchr(site->path, '/');
	if (key->kind == TW_KEY_FILE && text[0] != '/' && slash != NULL) {
		(void)snprintf(joined, sizeof(joined), "%.*s%s", (int)(slash - site->path + 1),
			       site->path, text);
		if (strlen(joined) >= key->size_bytes) {
			return refuse(key, text, " with the folder of the site file", why);
		}
		text = joined;
	}
	memcpy((char *)base + key->offset_bytes, text, strlen(text) + 1u);
	return TW_OK;
}

bool tw_value_endpoint(const char *text, bool group, uint64_t *endpoint)
{
	uint32_t v;
	uint16_t port;
	if (!tw_text_endpoint(text, &v, &port) || port == 0) {
		return false;
	}
	*endpoint = (uint64_t)v << 16 | port;
	return group ? v >= 0xe0000100u && v < 0xf0000000u : v >> 24 != 0 && v < 0xe0000000u;
}

static int address_parse(const struct tw_key *key, void *base, const char *text,
			 char why[TW_WHY_BYTES])
{
	struct in_addr addr;
	if (key->kind == TW_KEY_FEED_GROUP) {
		uint64_t endpoint;
		if (!tw_value_endpoint(text, true, &endpoint)) {
			return refuse(key, text, "", why);
		}
		uint_store(key, base, endpoint);
		return TW_OK;
	}
	bool ok = inet_pton(AF_INET, text, &addr) == 1;
	uint32_t v = ok ? ntohl(addr.s_addr) : 0;
	if (key->kind == TW_KEY_GROUP) {
		/* 224.0.0.0/24 is the routers' own */
		ok = ok && v >= 0xe0000100u && v < 0xf0000000u;
	} else {
		ok = ok && v >> 24 != 0 && v < 0xe0000000u;
	}
	if (!ok) {
		return refuse(key, text, "", why);
	}
	uint_store(key, base, v);
	return TW_OK;
}

static int reference_parse(const struct tw_key *key, const struct tw_site *site, void *base,
			   const char *text, char why[TW_WHY_BYTES])
{
	if (key->kind == TW_KEY_HOST) {
		for (uint32_t i = 0; i < site->host_count; i++) {
			if (strcmp(site->hosts[i].name, text) == 0) {
				uint_store(key, base, i);
				return TW_OK;
			}
		}
	} else {
		for (uint32_t i = 0; i < site->venue_count; i++) {
			if (strcmp(site->venues[i].mic, text) == 0) {
				uint_store(key, base, site->venues[i].id);
				return TW_OK;
			}
		}
	}
	return refuse(key, text, "", why);
}

int tw_value_parse(const struct tw_key *key, const struct tw_site *site, void *base,
		   const char *text, bool quoted, char why[TW_WHY_BYTES])
{
	int v;
	switch (key->kind) {
	case TW_KEY_UINT:
	case TW_KEY_HEX:
	case TW_KEY_POW2:
	case TW_KEY_US_NS:
	case TW_KEY_PCT:
	case TW_KEY_CPU:
		return number_parse(key, base, text, quoted, why);
	case TW_KEY_BOOL:
	case TW_KEY_ENUM:
		v = key->kind == TW_KEY_ENUM ? tw_text_find(key->allowed, text)
					     : tw_text_find("false|true", text);
		if (v < 0 || (quoted && key->kind == TW_KEY_BOOL)) {
			return refuse(key, text, v < 0 ? "" : ", without quotes", why);
		}
		uint_store(key, base, (uint64_t)v);
		return TW_OK;
	case TW_KEY_ADDRESS:
	case TW_KEY_GROUP:
	case TW_KEY_FEED_GROUP:
		return address_parse(key, base, text, why);
	case TW_KEY_HOST:
	case TW_KEY_VENUE:
		return reference_parse(key, site, base, text, why);
	default:
		return text_parse(key, site, base, text, why);
	}
}

/* Whether the struct holds a number, if only an index. */
static bool is_number(const struct tw_key *key)
{
	bool text = key->kind >= TW_KEY_NAME && key->kind <= TW_KEY_RUN_DIR;
	return !text && !tw_key_is_branch(key) && key->kind < TW_KEY_CHANNELS;
}

static void endpoint_print(uint64_t endpoint, FILE *out)
{
	uint32_t v = tw_endpoint_address(endpoint);
	if (v != 0) {
		(void)fprintf(out, TW_IPV4_FMT ":%u", TW_IPV4_ARGS(v), tw_endpoint_port(endpoint));
	}
}

static void list_print(const struct tw_key *key, const struct tw_site *site, const void *base,
		       FILE *out)
{
	const char *member = (const char *)base + key->offset_bytes;
	const uint32_t *indices = (const void *)member;
	uint32_t n = 0;
	bool texts = key->kind == TW_KEY_SYMBOLS || key->kind == TW_KEY_FILES;
	if (!texts) {
		memcpy(&n, (const char *)base + key->count_offset_bytes, sizeof(n));
	}
	(void)fputc('[', out);
	for (uint32_t i = 0; i < n; i++) {
		if (key->kind == TW_KEY_CHANNELS) {
			(void)fprintf(out, "%s%u", i > 0 ? ", " : "",
				      site->channels[indices[i]].id);
		} else if (key->kind == TW_KEY_ENDPOINTS) {
			(void)fputs(i > 0 ? ", \"" : "\"", out);
			endpoint_print(((const uint64_t *)(const void *)member)[i], out);
			(void)fputc('"', out);
		} else {
			(void)fprintf(out, "%s%s", i > 0 ? ", " : "",
				      site->publishers[indices[i]].name);
		}
	}
	if (texts) {
		char **all;
		memcpy(&all, member, sizeof(all));
		for (size_t i = 0; all != NULL && all[i] != NULL; i++) {
			(void)fprintf(out, "%s\"%s\"", i > 0 ? ", " : "", all[i]);
		}
	}
	(void)fputc(']', out);
}

static void address_print(uint32_t address, FILE *out)
{
	if (address != 0) {
		(void)fprintf(out, TW_IPV4_FMT, TW_IPV4_ARGS(address));
	}
}

void tw_value_print(const struct tw_key *key, const struct tw_site *site, const void *base,
		    FILE *out)
{
	uint64_t v = is_number(key) ? uint_load(key, base) : 0;
	const char *set;
	switch (key->kind) {
	case TW_KEY_UINT:
	case TW_KEY_POW2:
		(void)fprintf(out, "%" PRIu64, v);
		break;
	case TW_KEY_HEX:
		(void)fprintf(out, v > 255 ? "0x%" PRIx64 : "%" PRIu64, v);
		break;
	case TW_KEY_US_NS:
		(void)fprintf(out, "%" PRIu64, v / 1000u);
		break;
	case TW_KEY_PCT: {
		char text[24];
		int n = snprintf(text, sizeof(text), "%" PRIu64 ".%04u", v / 10000u,
				 (unsigned int)(v % 10000u));
		while (text[n - 1] == '0' || text[n - 1] == '.') {
			bool point = text[n - 1] == '.';
			text[--n] = '\0';
			if (point) {
				break;
			}
		}
		(void)fputs(text, out);
		break;
	}
	case TW_KEY_BOOL:
		(void)fputs(v != 0 ? "true" : "false", out);
		break;
	case TW_KEY_ENUM:
		set = key->allowed;
		for (; v > 0; v--) {
			set += strcspn(set, "|") + 1u;
		}
		(void)fprintf(out, "%.*s", (int)strcspn(set, "|"), set);
		break;
	case TW_KEY_CPU:
		if ((int32_t)v >= 0) {
			(void)fprintf(out, "%" PRIu64, v);
		}
		break;
	case TW_KEY_ADDRESS:
	case TW_KEY_GROUP:
		address_print((uint32_t)v, out);
		break;
	case TW_KEY_FEED_GROUP:
		endpoint_print(v, out);
		break;
	case TW_KEY_HOST:
		(void)fputs(site->hosts[v].name, out);
		break;
	case TW_KEY_VENUE:
		(void)fputs(tw_site_mic(site, (uint16_t)v), out);
		break;
	case TW_KEY_CHANNELS:
	case TW_KEY_PUBLISHERS:
	case TW_KEY_ENDPOINTS:
	case TW_KEY_SYMBOLS:
	case TW_KEY_FILES:
		list_print(key, site, base, out);
		break;
	default:
		(void)fputs((const char *)base + key->offset_bytes, out);
	}
}
