/* Products and powers modulo the CRC-32 polynomial. */
#include "fabric/udp/gf2.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

uint32_t tw_gf2_mul_bits(uint32_t a, uint32_t b)
{
	uint32_t product = 0;
	for (unsigned int i = 0; i < 32; i++) {
		product ^= b & (0u - (a >> 31));
		a <<= 1;
		b = (b >> 1) ^ (TW_GF2_CRC_POLY & (0u - (b & 1u)));
	}
	return product;
}

#if defined(__x86_64__)
/* Barrett reduction.  In this bit order the product of two 32-bit registers is one bit short of 64, so
 * it is moved up by one; its low half holds the powers from x^32 on.  mu is x^64 / P and P the
 * polynomial with its x^32, both in the same bit order, 33 bits. */
__attribute__((target("pclmul"))) static uint32_t mul_clmul(uint32_t a, uint32_t b)
{
	const __m128i mu = _mm_cvtsi64_si128(0x1f7011641);
	const __m128i p = _mm_cvtsi64_si128(0x1db710641);
	const __m128i ab = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)(uint64_t)a),
						_mm_cvtsi64_si128((int64_t)(uint64_t)b), 0);
	const uint64_t product = (uint64_t)_mm_cvtsi128_si64(ab) << 1;
	const __m128i quotient =
		_mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)(product & 0xffffffffu)), mu, 0);
	const __m128i multiple = _mm_clmulepi64_si128(
		_mm_cvtsi64_si128(_mm_cvtsi128_si64(quotient) & 0xffffffff), p, 0);
	return (uint32_t)((product ^ (uint64_t)_mm_cvtsi128_si64(multiple)) >> 32);
}
#endif

uint32_t tw_gf2_mul(uint32_t a, uint32_t b)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("pclmul")) {
		return mul_clmul(a, b);
	}
#endif
	return tw_gf2_mul_bits(a, b);
}

uint32_t tw_gf2_x_pow(uint32_t exponent)
{
	uint32_t result = TW_GF2_ONE;
	uint32_t square = TW_GF2_ONE >> 1; /* x */
	for (; exponent != 0; exponent >>= 1) {
		if ((exponent & 1u) != 0) {
			result = tw_gf2_mul(result, square);
		}
		square = tw_gf2_mul(square, square);
	}
	return result;
}
