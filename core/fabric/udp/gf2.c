/* Powers of x modulo the CRC-32 polynomial. */
#include "fabric/udp/gf2.h"

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
