/* What people type, as values: numbers, per cent, one word of a set, ADDRESS:PORT.  For command lines
 * and site files, which say in their own words what is wrong. */
#ifndef TW_BASE_TEXT_H
#define TW_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TW_PPM_PER_PCT 10000u

enum tw_number {
	TW_NUMBER_OK = 0,
	TW_NUMBER_NONE, /* not a number */
	TW_NUMBER_UNIT, /* one with letters or a % behind it */
	TW_NUMBER_BIG   /* more than 64 bits */
};

/* Digits and nothing else: no sign, no space; hex as 0x1f, where that is allowed.  Of base 10 also with
 * leading zeros.  Sets `out` where it returns TW_NUMBER_OK. */
enum tw_number tw_text_u64(const char *text, bool hex_ok, uint64_t *out);

/* Per cent of up to seven digits with up to four decimals, in parts per million. */
enum tw_number tw_text_ppm(const char *text, uint64_t *out_ppm);

/* Index of `text` in the set "a|b|c", -1 where it is not there. */
int tw_text_find(const char *set, const char *text);

/* "a|b|c" as "a, b or c", cut to `size`. */
void tw_text_or(const char *set, char *out, size_t size);

/* An address in host order, in a format and its arguments. */
#define TW_IPV4_FMT     "%u.%u.%u.%u"
#define TW_IPV4_ARGS(a) (a) >> 24, (a) >> 16 & 255u, (a) >> 8 & 255u, (a)&255u

/* "10.0.0.9:17000", in host order; both are set, or neither. */
bool tw_text_endpoint(const char *text, uint32_t *address, uint16_t *port);

#endif
