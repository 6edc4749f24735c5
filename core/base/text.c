/* What people type, as values; see text.h. */
#include "base/text.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PPM_DECIMALS 4 /* of a per cent: the last one is 1 ppm */

enum tw_number tw_text_u64(const char *text, bool hex_ok, uint64_t *out)
{
	uint64_t v = 0;
	bool hex = hex_ok && text[0] == '0' && text[1] == 'x';
	const char *c = hex ? text + 2 : text;
	if (hex ? !isxdigit((unsigned char)*c) : !isdigit((unsigned char)*c)) {
		return TW_NUMBER_NONE;
	}
	for (; hex ? isxdigit((unsigned char)*c) : isdigit((unsigned char)*c); c++) {
		unsigned int digit =
			isdigit((unsigned char)*c)
				? (unsigned int)(*c - '0')
				: (unsigned int)(tolower((unsigned char)*c) - 'a' + 10);
		if (__builtin_mul_overflow(v, hex ? 16u : 10u, &v) ||
		    __builtin_add_overflow(v, digit, &v)) {
			return TW_NUMBER_BIG;
		}
	}
	if (*c == '\0') {
		*out = v;
		return TW_NUMBER_OK;
	}
	while (*c == ' ') {
		c++;
	}
	return isalpha((unsigned char)*c) || *c == '%' ? TW_NUMBER_UNIT : TW_NUMBER_NONE;
}

enum tw_number tw_text_ppm(const char *text, uint64_t *out_ppm)
{
	uint64_t v;
	char whole[8];
	size_t n = strcspn(text, ".");
	if (n >= sizeof(whole)) {
		return TW_NUMBER_NONE;
	}
	memcpy(whole, text, n);
	whole[n] = '\0';
	enum tw_number rc = tw_text_u64(whole, false, &v);
	if (rc != TW_NUMBER_OK) {
		return rc;
	}
	v *= TW_PPM_PER_PCT;
	if (text[n] == '.') {
		const char *c = text + n + 1;
		uint64_t unit = TW_PPM_PER_PCT / 10;
		for (int i = 0; isdigit((unsigned char)*c) && i < PPM_DECIMALS; i++, c++) {
			v += unit * (uint64_t)(*c - '0');
			unit /= 10;
		}
		if (*c == '%') {
			return TW_NUMBER_UNIT;
		}
		if (*c != '\0' || c == text + n + 1) {
			return TW_NUMBER_NONE;
		}
	}
	*out_ppm = v;
	return TW_NUMBER_OK;
}

int tw_text_find(const char *set, const char *text)
{
	size_t n = strlen(text);
	int index = 0;
	for (const char *at = set; *at != '\0'; index++) {
		size_t len = strcspn(at, "|");
		if (len == n && memcmp(at, text, n) == 0) {
			return index;
		}
		at += len;
		at += *at == '|' ? 1 : 0;
	}
	return -1;
}

void tw_text_or(const char *set, char *out, size_t size)
{
	size_t used = 0;
	out[0] = '\0';
	for (const char *at = set; *at != '\0' && used < size;) {
		size_t len = strcspn(at, "|");
		const char *next = at + len;
		bool last = *next == '\0' || strchr(next + 1, '|') == NULL;
		int n = snprintf(out + used, size - used, "%.*s%s", (int)len, at,
				 *next == '\0' ? ""
				 : last        ? " or "
					       : ", ");
		used += (size_t)n;
		at = next + (*next == '|' ? 1 : 0);
	}
}

bool tw_text_endpoint(const char *text, uint32_t *address, uint16_t *port)
{
	char host[INET_ADDRSTRLEN];
	const char *colon = strchr(text, ':');
	struct in_addr addr;
	uint64_t number;
	if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
		return false;
	}
	memcpy(host, text, (size_t)(colon - text));
	host[colon - text] = '\0';
	if (inet_pton(AF_INET, host, &addr) != 1 ||
	    tw_text_u64(colon + 1, false, &number) != TW_NUMBER_OK || number > UINT16_MAX) {
		return false;
	}
	*address = ntohl(addr.s_addr);
	*port = (uint16_t)number;
	return true;
}
