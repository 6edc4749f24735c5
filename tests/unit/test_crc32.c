/* CRC-32 by folding: every variant that this CPU has beside zlib's. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "fabric/udp/crc32.h"
#include "fabric/udp/gf2.h"

#define LEN_MAX 4200u
#define ALIGNS  64u
#define CANARY  0xc5

static uint8_t data[LEN_MAX];
static uint32_t expected[LEN_MAX + 1]; /* by length, from data[0] on */

static void setup(void)
{
	uint64_t x = 0x9e3779b97f4a7c15ull;
	expected[0] = (uint32_t)crc32(0, NULL, 0);
	for (unsigned int i = 0; i < LEN_MAX; i++) {
		x ^= x >> 12;
		x ^= x << 25;
		x ^= x >> 27;
		data[i] = (uint8_t)(x * 0x2545f4914f6cdd1dull >> 56);
		expected[i + 1] = (uint32_t)crc32(expected[i], &data[i], 1);
	}
}

/* The next variant that can run here, from *i on. */
static const struct tw_crc32 *next_variant(unsigned int *i)
{
	const struct tw_crc32 *variant;
	while ((variant = tw_crc32_variant((*i)++)) != NULL) {
		if (variant->supported()) {
			return variant;
		}
		cr_log_info("not on this CPU: %s", variant->name);
	}
	return NULL;
}

Test(crc32, check_value)
{
	const struct tw_crc32 *variant;
	for (unsigned int i = 0; (variant = next_variant(&i)) != NULL;) {
		cr_assert_eq(variant->of(0, "123456789", 9), 0xcbf43926u, "%s", variant->name);
	}
	cr_assert_eq(tw_crc32_any(0, "123456789", 9), 0xcbf43926u);
}

Test(crc32, the_best_is_the_first_supported)
{
	unsigned int i = 0;
	cr_assert_eq(tw_crc32_best(), next_variant(&i));
	unsigned int variants = 0;
	while (tw_crc32_variant(variants) != NULL) {
		variants++;
	}
	cr_assert(tw_crc32_variant(variants - 1)->supported(), "one that every CPU has");
}

Test(crc32, all_lengths_and_alignments, .init = setup, .timeout = 600)
{
	static _Alignas(ALIGNS) uint8_t from[LEN_MAX + ALIGNS];
	const struct tw_crc32 *variant;
	for (unsigned int align = 0; align < ALIGNS; align++) {
		memcpy(from + align, data, LEN_MAX);
		for (unsigned int i = 0; (variant = next_variant(&i)) != NULL;) {
			for (uint32_t len = 0; len <= LEN_MAX; len++) {
				cr_assert_eq(variant->of(0, from + align, len), expected[len],
					     "%s: %u bytes at %u", variant->name, len, align);
			}
		}
	}
}

Test(crc32, copies_are_whole_and_no_more, .init = setup, .timeout = 600)
{
	static _Alignas(ALIGNS) uint8_t from[LEN_MAX + ALIGNS];
	static _Alignas(ALIGNS) uint8_t to[1 + LEN_MAX + ALIGNS + 1];
	const struct tw_crc32 *variant;
	for (unsigned int align = 0; align < ALIGNS; align++) {
		const unsigned int to_align = align * 37 % ALIGNS; /* all, in another order */
		memcpy(from + align, data, LEN_MAX);
		for (unsigned int i = 0; (variant = next_variant(&i)) != NULL;) {
			for (uint32_t len = 0; len <= LEN_MAX; len++) {
				uint8_t *at = to + 1 + to_align;
				memset(at - 1, CANARY, len + 2);
				cr_assert_eq(variant->copy(at, from + align, len), expected[len],
					     "%s: %u bytes at %u", variant->name, len, align);
				cr_assert(memcmp(at, data, len) == 0 && at[-1] == CANARY &&
						  at[len] == CANARY,
					  "%s: %u bytes at %u", variant->name, len, align);
			}
		}
	}
}

Test(crc32, in_two_parts, .init = setup, .timeout = 600)
{
	const uint32_t lens[] = { 63, 64, 300, 1044, LEN_MAX };
	const struct tw_crc32 *variant;
	for (unsigned int i = 0; (variant = next_variant(&i)) != NULL;) {
		for (unsigned int l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
			for (uint32_t cut = 0; cut <= lens[l]; cut++) {
				const uint32_t first = variant->of(0, data, cut);
				cr_assert_eq(variant->of(first, data + cut, lens[l] - cut),
					     expected[lens[l]], "%s: %u of %u bytes", variant->name,
					     cut, lens[l]);
			}
		}
	}
}

/* Two pages between two that may not be touched. */
static uint8_t *guarded_pages(size_t page_bytes)
{
	uint8_t *pages = mmap(NULL, 4 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(pages, MAP_FAILED);
	cr_assert_eq(mprotect(pages + page_bytes, 2 * page_bytes, PROT_READ | PROT_WRITE), 0);
	return pages + page_bytes;
}

Test(crc32, touches_nothing_beside, .init = setup, .timeout = 600)
{
	const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	const size_t room = 2 * page_bytes;
	cr_assert_geq(room, LEN_MAX);
	uint8_t *from = guarded_pages(page_bytes), *to = guarded_pages(page_bytes);
	const struct tw_crc32 *variant;
	for (uint32_t len = 0; len <= LEN_MAX; len++) {
		const size_t at[] = { 0, room - len };
		for (unsigned int a = 0; a < 2; a++) {
			memcpy(from + at[a], data, len);
			for (unsigned int i = 0; (variant = next_variant(&i)) != NULL;) {
				cr_assert_eq(variant->of(0, from + at[a], len), expected[len]);
				cr_assert_eq(variant->copy(to + at[1 - a], from + at[a], len),
					     expected[len]);
			}
		}
	}
}

#if defined(__x86_64__)
Test(crc32, constants_are_what_they_are_called)
{
	const uint32_t by[] = {
		[TW_CRC32_BY_2048] = 2048, [TW_CRC32_BY_1024] = 1024, [TW_CRC32_BY_512] = 512,
		[TW_CRC32_BY_384] = 384,   [TW_CRC32_BY_256] = 256,   [TW_CRC32_BY_128] = 128,
	};
	cr_assert_eq(sizeof(by) / sizeof(by[0]), TW_CRC32_BY_NONE);
	cr_assert_eq(tw_crc32_folds[TW_CRC32_BY_NONE].first, 0);
	cr_assert_eq(tw_crc32_folds[TW_CRC32_BY_NONE].second, 0);
	for (unsigned int i = 0; i < TW_CRC32_BY_NONE; i++) {
		const uint32_t bits = by[i];
		const struct tw_crc32_fold *fold = &tw_crc32_folds[i];
		cr_assert_eq(fold->first, (uint64_t)tw_gf2_x_pow(bits + 63) << 32, "%u", bits);
		cr_assert_eq(fold->second, (uint64_t)tw_gf2_x_pow(bits - 1) << 32, "%u", bits);
	}
	cr_assert_eq(TW_CRC32_X_95, (uint64_t)tw_gf2_x_pow(95) << 32);
	cr_assert_eq(TW_CRC32_P, (uint64_t)TW_GF2_CRC_POLY << 1 | 1);

	/* x^96 / P by long division; bit 0 of the remainder is the next power below */
	uint64_t remainder = 1, mu = 0;
	for (unsigned int i = 0; i < 64; i++) {
		if ((remainder & 1) != 0) {
			mu |= 1ull << i;
			remainder ^= TW_CRC32_P;
		}
		remainder >>= 1;
	}
	cr_assert_eq(TW_CRC32_MU, mu);
}
#endif
