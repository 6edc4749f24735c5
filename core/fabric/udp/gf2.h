/* Polynomials over GF(2) modulo the CRC-32 polynomial, in the bit order of CRC registers (the most
 * significant bit is the coefficient of x^0).
 *
 * A CRC is linear: crc(A followed by B) = crc(A) * x^(8 |B|) + crc(B).  The polynomial is primitive,
 * so x has the order 2^32 - 1 and every shift can be undone.
 * Threads   pure functions. */
#ifndef TW_FABRIC_UDP_GF2_H
#define TW_FABRIC_UDP_GF2_H

#include <stdint.h>

#define TW_GF2_ONE      0x80000000u /* x^0 */
#define TW_GF2_X_ORDER  0xffffffffu /* x^TW_GF2_X_ORDER == 1 */
#define TW_GF2_CRC_POLY 0xedb88320u

/* a * b by carry-less multiplication where the CPU has it (PCLMULQDQ), else bit by bit. */
uint32_t tw_gf2_mul(uint32_t a, uint32_t b);
/* The same, always bit by bit; no branch and no table. */
uint32_t tw_gf2_mul_bits(uint32_t a, uint32_t b);

/* x^exponent. */
uint32_t tw_gf2_x_pow(uint32_t exponent);

#endif
