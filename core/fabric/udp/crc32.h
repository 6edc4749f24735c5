/* CRC-32 of the ICRC (0xEDB88320, bits reflected, ones before and after, as zlib's and Ethernet's) by
 * folding with carry-less multiplication, alone or while copying.
 *
 * Variants  for what CPUs have; all give the same.  What is short, and CPUs without carry-less
 *           multiplication (and all that are not x86-64), is libdeflate's.
 * Threads   pure functions. */
#ifndef TW_FABRIC_UDP_CRC32_H
#define TW_FABRIC_UDP_CRC32_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tw_crc32 {
	const char *name;
	bool (*supported)(void); /* by this CPU and its kernel */
	/* CRC of what `crc` is the CRC of (0: of nothing), followed by the data. */
	uint32_t (*of)(uint32_t crc, const void *data, size_t len_bytes);
	/* CRC of the data alone, copied in the same pass; the two do not overlap. */
	uint32_t (*copy)(void *restrict to, const void *restrict data, size_t len_bytes);
};

/* From the fastest to the one that every CPU has; NULL behind that. */
const struct tw_crc32 *tw_crc32_variant(unsigned int i);
/* The fastest that is supported. */
const struct tw_crc32 *tw_crc32_best(void);

/* The last of the variants, without a choice: for what is short or rare. */
uint32_t tw_crc32_any(uint32_t crc, const void *data, size_t len_bytes);

#if defined(__x86_64__)
/* The constants, for the test that derives them anew.  Registers as in gf2.h, in the upper halves. */
struct tw_crc32_fold {
	uint64_t first, second; /* x^(bits + 63), x^(bits - 1) */
};
enum { /* how many bits what is folded moves; the last four are one load */
       TW_CRC32_BY_2048,
       TW_CRC32_BY_1024,
       TW_CRC32_BY_512,
       TW_CRC32_BY_384,
       TW_CRC32_BY_256,
       TW_CRC32_BY_128,
       TW_CRC32_BY_NONE, /* zeros: what stays is added as it is */
       TW_CRC32_FOLDS
};
extern const struct tw_crc32_fold tw_crc32_folds[TW_CRC32_FOLDS];
#define TW_CRC32_X_95 0xccaa009e00000000ull
#define TW_CRC32_MU   0xb4e5b025f7011641ull /* x^96 / P, bit 0 is x^64; its x^0 has no place */
#define TW_CRC32_P    0x1db710641ull        /* bit 0 is x^32 */
#endif

#endif
