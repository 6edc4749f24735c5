/* Slabs and slots: sizes, alignment, contents, refusal. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/slab.h"

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

Test(slab, round_up)
{
	cr_assert_eq(tw_round_up(0, 64), 0);
	cr_assert_eq(tw_round_up(1, 64), 64);
	cr_assert_eq(tw_round_up(64, 64), 64);
	cr_assert_eq(tw_round_up(65, 64), 128);
	cr_assert_eq(tw_round_up(7, 3), 9);
}

Test(slab, sizes_round_up_to_pages_and_come_zeroed)
{
	static const size_t sizes[] = { 1,        4095,           4096,
					4097,     1u << 20,       (2u << 20) - 1,
					2u << 20, (2u << 20) + 1, 5u << 20 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct tw_slab slab;
		struct tw_error err;
		int rc = tw_slab_init(&slab, sizes[i], &err);
		cr_assert_eq(rc, TW_OK, "%zu: %s", sizes[i], err.text);
		cr_assert(slab.size_bytes >= sizes[i]);
		cr_assert_eq(slab.size_bytes % page, 0);
		cr_assert_eq((uintptr_t)slab.base % page, 0);
		if (sizes[i] >= 2u << 20) {
			cr_assert_eq((uintptr_t)slab.base % (2u << 20), 0,
				     "no huge page can lie here");
		}
		cr_assert(all_zero(slab.base, slab.size_bytes));
		memset(slab.base, 0xa5, slab.size_bytes);
		tw_slab_fini(&slab);
		cr_assert_null(slab.base);
		cr_assert_eq(slab.size_bytes, 0);
	}
}

Test(slab, every_page_is_present_from_the_start)
{
	struct tw_slab slab;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	cr_assert_eq(tw_slab_init(&slab, 3u << 20, NULL), TW_OK);
	size_t pages = slab.size_bytes / page;
	unsigned char present[2048];
	cr_assert(pages <= sizeof(present));
	cr_assert_eq(mincore(slab.base, slab.size_bytes, present), 0);
	for (size_t i = 0; i < pages; i++) {
		cr_assert(present[i] & 1, "page %zu of %zu", i, pages);
	}
	tw_slab_fini(&slab);
}

static size_t address_space_pages(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "re");
	cr_assert_not_null(f);
	cr_assert_eq(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return pages;
}

Test(slab, what_is_mapped_goes_back)
{
	size_t before = 0;
	for (int i = 0; i <= 50; i++) {
		struct tw_slab slab;
		cr_assert_eq(tw_slab_init(&slab, 3u << 20, NULL), TW_OK);
		tw_slab_fini(&slab);
		if (i == 0) { /* stdio has its buffers from here on */
			before = address_space_pages();
		}
	}
	cr_assert(address_space_pages() < before + 256, "grew by %zu pages",
		  address_space_pages() - before);
}

Test(slab, impossible_sizes_are_refused)
{
	struct tw_slab slab;
	struct tw_error err;
	cr_assert_eq(tw_slab_init(&slab, 0, &err), TW_EARG);
	cr_assert_null(slab.base);
	cr_assert_eq(tw_slab_init(&slab, SIZE_MAX, &err), TW_EARG);
	cr_assert_eq(tw_slab_init(&slab, SIZE_MAX / 2, &err), TW_ENOMEM);
	cr_assert_str_not_empty(err.text);
	tw_slab_fini(&slab); /* what init left behind */
	tw_slab_fini(&slab);
}

Test(slab, locking_says_what_the_limit_says)
{
	struct tw_slab slab;
	struct tw_error err;
	cr_assert_eq(tw_slab_init(&slab, 64u << 10, NULL), TW_OK);
	int rc = tw_slab_lock(&slab, &err);
	struct rlimit limit;
	cr_assert_eq(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= slab.size_bytes) {
		cr_assert_eq(rc, TW_OK, "%s", err.text);
	} else if (rc != TW_OK) { /* CAP_IPC_LOCK passes over the limit */
		cr_assert_not_null(strstr(err.text, "mlock"));
	}
	tw_slab_fini(&slab);
}

Test(slots, every_datagram_is_aligned_inside_and_apart)
{
	static const uint32_t sizes[] = { 1, 63, 64, 65, 1024, 1100, 4096 };
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct tw_slots slots;
		uint32_t n = 100;
		cr_assert_eq(tw_slots_init(&slots, n, sizes[i], NULL), TW_OK);
		cr_assert_eq(slots.count, n);
		uint8_t *free_from = slots.slab.base;
		for (uint32_t s = 0; s < n; s++) {
			uint8_t *dgram = tw_slots_dgram(&slots, s);
			cr_assert_eq((uintptr_t)dgram % TW_CACHE_LINE_BYTES, 0);
			uint8_t *grh = dgram - TW_GRH_BYTES;
			cr_assert_eq(grh, dgram - TW_SLAB_HEADROOM_BYTES + 24);
			cr_assert(grh >= free_from, "slot %u overlaps the one before", s);
			free_from = dgram + sizes[i];
		}
		cr_assert(free_from <= slots.slab.base + slots.slab.size_bytes);
		tw_slots_fini(&slots);
		cr_assert_eq(slots.count, 0);
	}
}

Test(slots, impossible_shapes_are_refused)
{
	struct tw_slots slots;
	struct tw_error err;
	cr_assert_eq(tw_slots_init(&slots, 0, 1024, &err), TW_EARG);
	cr_assert_eq(tw_slots_init(&slots, 16, 0, &err), TW_EARG);
	cr_assert_eq(tw_slots_init(&slots, 1, UINT32_MAX, &err), TW_EARG);
	cr_assert_lt(tw_slots_init(&slots, UINT32_MAX, UINT32_MAX - 256, &err), 0);
	cr_assert_null(slots.slab.base);
	tw_slots_fini(&slots);
}
