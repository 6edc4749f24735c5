/* CRC-32 by folding.
 *
 * Bits      In a register of n bits, bit i is the coefficient of x^(n-1-i): data as they lie in
 *           memory are polynomials as the CRC sees them.  The product of two such registers of 64
 *           bits has 127, so that in 128 it stands for the product times x.
 * Folding   128 bits V = F x^64 + S (F in the low half) move d bits up by F (x^(d+64) mod P) +
 *           S (x^d mod P), which has 128 bits again and is added to what lies d bits further on.  The
 *           constants are those powers without the x that a product brings along.
 * Ways      one fold waits for the one before it, but four at a time do not wait for each other:
 *           four accumulators, each of which moves by the width of all four.
 * The end   V x^32 mod P, as a CRC is: F x^96 + S x^32 has 96 bits; the upper 64 of them times
 *           x^96 / P is the quotient, and what the quotient times P leaves of the lower 32 the rest. */
#include "fabric/udp/crc32.h"

#include <libdeflate.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

uint32_t tw_crc32_any(uint32_t crc, const void *data, size_t len_bytes)
{
	return libdeflate_crc32(crc, data, len_bytes);
}

static uint32_t copy_any(void *restrict to, const void *restrict data, size_t len_bytes)
{
	memcpy(to, data, len_bytes);
	return libdeflate_crc32(0, data, len_bytes);
}

static bool always(void)
{
	return true;
}

#if defined(__x86_64__)

#define SHORT_BYTES \
	64u /* below that a call of libdeflate is as good, and no variant's loop begins */

const struct tw_crc32_fold tw_crc32_folds[TW_CRC32_FOLDS] = {
	[TW_CRC32_BY_2048] = { 0x7cc8e1e700000000, 0x03f9f86300000000 },
	[TW_CRC32_BY_1024] = { 0x7d657a1000000000, 0x7406fa9500000000 },
	[TW_CRC32_BY_512] = { 0x653d982200000000, 0xcad38e8f00000000 },
	[TW_CRC32_BY_384] = { 0x69ccfc0d00000000, 0x2a28386200000000 },
	[TW_CRC32_BY_256] = { 0x9570d49500000000, 0x01b5fd1d00000000 },
	[TW_CRC32_BY_128] = { 0x65673b4600000000, 0x9ba54c6f00000000 },
	[TW_CRC32_BY_NONE] = { 0, 0 },
};

#define INLINE    static inline __attribute__((always_inline))
#define TARGET128 __attribute__((target("sse4.1,pclmul")))
#define TARGET256 __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define TARGET512 __attribute__((target("avx512f,avx512vl,avx2,pclmul,vpclmulqdq")))

/* For each width: load (and copy where `to` is not NULL, which is known when it is inlined), the
 * constants of a fold in each 128 bits, and the fold itself. */

INLINE TARGET128 __m128i take128(uint8_t *to, const uint8_t *from, size_t at)
{
	const __m128i v = _mm_loadu_si128((const void *)(from + at));
	if (to != NULL) {
		_mm_storeu_si128((void *)(to + at), v);
	}
	return v;
}

INLINE TARGET128 __m128i by128(unsigned int i)
{
	return _mm_loadu_si128((const void *)&tw_crc32_folds[i]);
}

INLINE TARGET128 __m128i fold128(__m128i v, __m128i by, __m128i onto)
{
	return _mm_xor_si128(onto, _mm_xor_si128(_mm_clmulepi64_si128(v, by, 0x00),
						 _mm_clmulepi64_si128(v, by, 0x11)));
}

INLINE TARGET256 __m256i take256(uint8_t *to, const uint8_t *from, size_t at)
{
	const __m256i v = _mm256_loadu_si256((const void *)(from + at));
	if (to != NULL) {
		_mm256_storeu_si256((void *)(to + at), v);
	}
	return v;
}

INLINE TARGET256 __m256i by256(unsigned int i)
{
	return _mm256_broadcastsi128_si256(by128(i));
}

INLINE TARGET256 __m256i fold256(__m256i v, __m256i by, __m256i onto)
{
	return _mm256_xor_si256(onto, _mm256_xor_si256(_mm256_clmulepi64_epi128(v, by, 0x00),
						       _mm256_clmulepi64_epi128(v, by, 0x11)));
}

INLINE TARGET512 __m512i take512(uint8_t *to, const uint8_t *from, size_t at)
{
	const __m512i v = _mm512_loadu_si512(from + at);
	if (to != NULL) {
		_mm512_storeu_si512(to + at, v);
	}
	return v;
}

INLINE TARGET512 __m512i by512(unsigned int i)
{
	return _mm512_broadcast_i32x4(by128(i));
}

INLINE TARGET512 __m512i fold512(__m512i v, __m512i by, __m512i onto)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, by, 0x00),
					 _mm512_clmulepi64_epi128(v, by, 0x11), onto, 0x96);
}

/* V x^32 mod P, complemented. */
INLINE TARGET128 uint32_t reduce(__m128i v)
{
	const __m128i x_95 = _mm_cvtsi64_si128((long long)TW_CRC32_X_95);
	const __m128i mu = _mm_cvtsi64_si128((long long)TW_CRC32_MU);
	const __m128i p = _mm_cvtsi64_si128((long long)TW_CRC32_P);
	/* Of S x^32 only the upper 96 bits count, as of the product: the lower 32 go. */
	const __m128i v96 = _mm_srli_si128(
		_mm_xor_si128(_mm_clmulepi64_si128(v, x_95, 0x00), _mm_srli_si128(v, 4)), 4);
	const __m128i quotient = _mm_clmulepi64_si128(v96, mu, 0x00);
	const __m128i multiple = _mm_clmulepi64_si128(quotient, p, 0x00);
	return ~(uint32_t)_mm_extract_epi32(_mm_xor_si128(multiple, v96), 2);
}

/* The rest behind `at` for every width.  The last bytes, fewer than 16, are folded as the last 16 of
 * all, of which v keeps the others: what v and they have together is moved apart again so that the
 * first part, filled up with zeros in front, is whole. */
INLINE TARGET128 uint32_t finish(__m128i v, uint8_t *to, const uint8_t *from, size_t at, size_t len)
{
	static const uint8_t slide[] = { 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
					 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,
					 4,    5,    6,    7,    8,    9,    10,   11,   12,   13,
					 14,   15,   0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
					 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80 };
	const __m128i by = by128(TW_CRC32_BY_128);
	for (; len - at >= 16; at += 16) {
		v = fold128(v, by, take128(to, from, at));
	}
	const size_t rest = len - at;
	if (rest != 0) {
		const __m128i first = _mm_loadu_si128((const void *)(slide + rest));
		const __m128i second = _mm_loadu_si128((const void *)(slide + 16 + rest));
		const __m128i last = take128(to, from, len - 16);
		/* where `second` has nothing of v its bytes say so: those are the last's */
		const __m128i onto = _mm_blendv_epi8(_mm_shuffle_epi8(v, second), last, second);
		v = fold128(_mm_shuffle_epi8(v, first), by, onto);
	}
	return reduce(v);
}

INLINE TARGET128 uint32_t fold_by_128(uint32_t crc, uint8_t *to, const uint8_t *from, size_t len)
{
	const __m128i by = by128(TW_CRC32_BY_512);
	__m128i a = _mm_xor_si128(take128(to, from, 0), _mm_cvtsi32_si128((int)~crc));
	__m128i b = take128(to, from, 16);
	__m128i c = take128(to, from, 32);
	__m128i d = take128(to, from, 48);
	size_t at = 64;
	for (; len - at >= 64; at += 64) {
		a = fold128(a, by, take128(to, from, at));
		b = fold128(b, by, take128(to, from, at + 16));
		c = fold128(c, by, take128(to, from, at + 32));
		d = fold128(d, by, take128(to, from, at + 48));
	}
	b = fold128(a, by128(TW_CRC32_BY_128), b);
	d = fold128(c, by128(TW_CRC32_BY_128), d);
	return finish(fold128(b, by128(TW_CRC32_BY_256), d), to, from, at, len);
}

INLINE TARGET256 uint32_t fold_by_256(uint32_t crc, uint8_t *to, const uint8_t *from, size_t len)
{
	const __m256i by = by256(TW_CRC32_BY_1024), by_one = by256(TW_CRC32_BY_256);
	__m256i a = _mm256_xor_si256(take256(to, from, 0),
				     _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc)));
	size_t at = 32;
	if (len >= 128) {
		__m256i b = take256(to, from, 32);
		__m256i c = take256(to, from, 64);
		__m256i d = take256(to, from, 96);
		for (at = 128; len - at >= 128; at += 128) {
			a = fold256(a, by, take256(to, from, at));
			b = fold256(b, by, take256(to, from, at + 32));
			c = fold256(c, by, take256(to, from, at + 64));
			d = fold256(d, by, take256(to, from, at + 96));
		}
		b = fold256(a, by_one, b);
		d = fold256(c, by_one, d);
		a = fold256(b, by256(TW_CRC32_BY_512), d);
	}
	for (; len - at >= 32; at += 32) {
		a = fold256(a, by_one, take256(to, from, at));
	}
	return finish(fold128(_mm256_castsi256_si128(a), by128(TW_CRC32_BY_128),
			      _mm256_extracti128_si256(a, 1)),
		      to, from, at, len);
}

INLINE TARGET512 uint32_t fold_by_512(uint32_t crc, uint8_t *to, const uint8_t *from, size_t len)
{
	const __m512i by = by512(TW_CRC32_BY_2048), by_one = by512(TW_CRC32_BY_512);
	__m512i a = _mm512_xor_si512(take512(to, from, 0),
				     _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	size_t at = 64;
	if (len >= 256) {
		__m512i b = take512(to, from, 64);
		__m512i c = take512(to, from, 128);
		__m512i d = take512(to, from, 192);
		for (at = 256; len - at >= 256; at += 256) {
			a = fold512(a, by, take512(to, from, at));
			b = fold512(b, by, take512(to, from, at + 64));
			c = fold512(c, by, take512(to, from, at + 128));
			d = fold512(d, by, take512(to, from, at + 192));
		}
		b = fold512(a, by_one, b);
		d = fold512(c, by_one, d);
		a = fold512(b, by512(TW_CRC32_BY_1024), d);
	}
	for (; len - at >= 64; at += 64) {
		a = fold512(a, by_one, take512(to, from, at));
	}
	/* each 128 bits onto the last, which stay: by 384, 256, 128 and not at all */
	const __m512i by_place = _mm512_loadu_si512(&tw_crc32_folds[TW_CRC32_BY_384]);
	a = fold512(a, by_place, _mm512_maskz_mov_epi64(0xc0, a));
	const __m256i half =
		_mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
	return finish(
		_mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)), to,
		from, at, len);
}

/* The two functions of a variant; `to` is a constant in each. */
#define VARIANT(bits)                                                                            \
	static TARGET##bits uint32_t of_##bits(uint32_t crc, const void *data, size_t len_bytes) \
	{                                                                                        \
		return len_bytes < SHORT_BYTES ? tw_crc32_any(crc, data, len_bytes)              \
					       : fold_by_##bits(crc, NULL, data, len_bytes);     \
	}                                                                                        \
	static TARGET##bits uint32_t copy_##bits(void *restrict to, const void *restrict data,   \
						 size_t len_bytes)                               \
	{                                                                                        \
		return len_bytes < SHORT_BYTES ? copy_any(to, data, len_bytes)                   \
					       : fold_by_##bits(0, to, data, len_bytes);         \
	}

VARIANT(128)
VARIANT(256)
VARIANT(512)

static bool has_128(void)
{
	return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

static bool has_256(void)
{
	return has_128() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}

static bool has_512(void)
{
	return has_256() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
}
#endif

static const struct tw_crc32 variants[] = {
#if defined(__x86_64__)
	{ "VPCLMULQDQ, 512 bits", has_512, of_512, copy_512 },
	{ "VPCLMULQDQ, 256 bits", has_256, of_256, copy_256 },
	{ "PCLMULQDQ, 128 bits", has_128, of_128, copy_128 },
#endif
	{ "libdeflate", always, tw_crc32_any, copy_any },
};

const struct tw_crc32 *tw_crc32_variant(unsigned int i)
{
	return i < sizeof(variants) / sizeof(variants[0]) ? &variants[i] : NULL;
}

const struct tw_crc32 *tw_crc32_best(void)
{
	const struct tw_crc32 *best = &variants[0];
	while (!best->supported()) {
		best++;
	}
	return best;
}
