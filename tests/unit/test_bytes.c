/* The bounded cursor: every read at every truncation. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/bytes.h"

static const uint8_t sample[] = { 0x81, 0x02, 0x83, 0x04, 0x85, 0x06, 0x87, 0x08 };

struct read {
	const char *name;
	size_t bytes;
	uint64_t (*fn)(struct tw_bytes *b);
	uint64_t value; /* of `sample` */
};

#define READ(kind)                                      \
	static uint64_t read_##kind(struct tw_bytes *b) \
	{                                               \
		return tw_bytes_##kind(b);              \
	}
READ(u8)
READ(le16)
READ(le32)
READ(le64)
READ(be16)
READ(be32)
READ(be64)
#undef READ

static const struct read reads[] = {
	{ "u8", 1, read_u8, 0x81 },
	{ "le16", 2, read_le16, 0x0281 },
	{ "le32", 4, read_le32, 0x04830281 },
	{ "le64", 8, read_le64, 0x0887068504830281 },
	{ "be16", 2, read_be16, 0x8102 },
	{ "be32", 4, read_be32, 0x81028304 },
	{ "be64", 8, read_be64, 0x8102830485068708 },
};
#define N_READS (sizeof(reads) / sizeof(reads[0]))

/* Exactly `len` bytes on the heap, so that ASan sees a read of one more. */
static uint8_t *exactly(size_t len)
{
	uint8_t *p = malloc(len > 0 ? len : 1);
	cr_assert_not_null(p);
	memcpy(p, sample, len);
	return p;
}

Test(bytes, every_read_at_every_length)
{
	for (size_t i = 0; i < N_READS; i++) {
		for (size_t len = 0; len <= sizeof(sample); len++) {
			uint8_t *p = exactly(len);
			struct tw_bytes b = tw_bytes_of(p, len);
			uint64_t v = reads[i].fn(&b);
			bool fits = len >= reads[i].bytes;
			cr_assert_eq(b.failed, !fits, "%s of %zu", reads[i].name, len);
			cr_assert_eq(v, fits ? reads[i].value : 0, "%s of %zu: %#lx", reads[i].name,
				     len, (unsigned long)v);
			cr_assert_eq(tw_bytes_left(&b), fits ? len - reads[i].bytes : len);
			free(p);
		}
	}
}

Test(bytes, every_read_at_every_alignment)
{
	_Alignas(8) uint8_t room[2 * sizeof(sample)];
	for (size_t shift = 0; shift < sizeof(sample); shift++) {
		memcpy(room + shift, sample, sizeof(sample));
		for (size_t i = 0; i < N_READS; i++) {
			struct tw_bytes b = tw_bytes_of(room + shift, sizeof(sample));
			cr_assert_eq(reads[i].fn(&b), reads[i].value, "%s", reads[i].name);
		}
	}
}

Test(bytes, a_failure_sticks)
{
	for (size_t i = 0; i < N_READS; i++) {
		struct tw_bytes b = tw_bytes_of(sample, sizeof(sample));
		cr_assert_null(tw_bytes_take(&b, sizeof(sample) + 1));
		cr_assert(b.failed);
		cr_assert_eq(reads[i].fn(&b), 0, "%s reads on after a failure", reads[i].name);
		cr_assert_eq(tw_bytes_left(&b), sizeof(sample));
	}
}

Test(bytes, take_and_skip)
{
	struct tw_bytes b = tw_bytes_of(sample, sizeof(sample));
	cr_assert_eq(tw_bytes_take(&b, 3), sample);
	tw_bytes_skip(&b, 1);
	cr_assert_eq(tw_bytes_u8(&b), 0x85);
	cr_assert_eq(tw_bytes_take(&b, 3), sample + 5);
	cr_assert_not(b.failed);
	cr_assert_eq(tw_bytes_left(&b), 0);
	cr_assert_eq(tw_bytes_take(&b, 0), sample + sizeof(sample)); /* nothing is there to take */
	cr_assert_not(b.failed);
	tw_bytes_skip(&b, 1);
	cr_assert(b.failed);
}

Test(bytes, a_huge_length_does_not_wrap)
{
	struct tw_bytes b = tw_bytes_of(sample, sizeof(sample));
	tw_bytes_skip(&b, 2);
	cr_assert_null(tw_bytes_take(&b, SIZE_MAX));
	cr_assert(b.failed);
	cr_assert_eq(b.at, sample + 2);
}

Test(bytes, nothing_at_all)
{
	struct tw_bytes b = tw_bytes_of(NULL, 0);
	cr_assert_eq(tw_bytes_left(&b), 0);
	cr_assert_eq(tw_bytes_be32(&b), 0);
	cr_assert(b.failed);
}
