/* Bounded cursor over outside bytes: decoders read through it and never past the end.
 *
 * A read past the end sets `failed`, consumes nothing and returns 0, so that a decoder may read a
 * whole block and test once.  All reads allow any alignment. */
#ifndef TW_BASE_BYTES_H
#define TW_BASE_BYTES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tw_bytes {
	const uint8_t *at;
	const uint8_t *end;
	bool failed;
};

static inline struct tw_bytes tw_bytes_of(const void *data, size_t len_bytes)
{
	const uint8_t *p = data;
	return (struct tw_bytes){ .at = p,
				  .end = len_bytes == 0 ? p : p + len_bytes,
				  .failed = false };
}

static inline size_t tw_bytes_left(const struct tw_bytes *b)
{
	return (size_t)(b->end - b->at);
}

/* The next `n` bytes, or NULL (and failed) where there are fewer. */
static inline const uint8_t *tw_bytes_take(struct tw_bytes *b, size_t n)
{
	if (b->failed || tw_bytes_left(b) < n) {
		b->failed = true;
		return NULL;
	}
	const uint8_t *p = b->at;
	b->at += n;
	return p;
}

static inline void tw_bytes_skip(struct tw_bytes *b, size_t n)
{
	(void)tw_bytes_take(b, n);
}

static inline uint8_t tw_bytes_u8(struct tw_bytes *b)
{
	const uint8_t *p = tw_bytes_take(b, 1);
	return p != NULL ? *p : 0;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "le reads are plain copies");

/* le16 le32 le64 be16 be32 be64 */
#define TW_BYTES_READ(name, type, swap)                            \
	static inline type tw_bytes_##name(struct tw_bytes *b)     \
	{                                                          \
		const uint8_t *p = tw_bytes_take(b, sizeof(type)); \
		type v = 0;                                        \
		if (p != NULL) {                                   \
			memcpy(&v, p, sizeof(v));                  \
		}                                                  \
		return swap(v);                                    \
	}
#define TW_BYTES_KEEP(v) (v)
TW_BYTES_READ(le16, uint16_t, TW_BYTES_KEEP)
TW_BYTES_READ(le32, uint32_t, TW_BYTES_KEEP)
TW_BYTES_READ(le64, uint64_t, TW_BYTES_KEEP)
TW_BYTES_READ(be16, uint16_t, __builtin_bswap16)
TW_BYTES_READ(be32, uint32_t, __builtin_bswap32)
TW_BYTES_READ(be64, uint64_t, __builtin_bswap64)
#undef TW_BYTES_READ
#undef TW_BYTES_KEEP

#endif
