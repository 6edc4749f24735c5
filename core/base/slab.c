/* Memory for a NIC: huge pages where they are to be had, and every page present before the first
 * use, so that no hot thread takes a page fault. */
#include "base/slab.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fail.h"

#define HUGE_BYTES ((size_t)2 << 20) /* the x86-64 and (4 KiB granule) arm64 huge page */

static_assert(TW_SLAB_HEADROOM_BYTES >= TW_GRH_BYTES, "the GRH lies in the head-room");
static_assert(TW_SLAB_HEADROOM_BYTES % TW_CACHE_LINE_BYTES == 0, "datagrams stay aligned");

/* Makes the pages present and says so where that is not possible: a huge page that a cgroup's
 * limit denies would otherwise be a SIGBUS at the first touch. */
static int populate(uint8_t *base, size_t size_bytes, size_t page_bytes)
{
#ifdef MADV_POPULATE_WRITE
	int rc;
	do {
		rc = madvise(base, size_bytes, MADV_POPULATE_WRITE);
	} while (rc != 0 && errno == EINTR);
	if (rc == 0 || errno != EINVAL) {
		return rc;
	}
#endif
	for (size_t at = 0; at < size_bytes; at += page_bytes) { /* before Linux 5.14 */
		base[at] = 0;
	}
	return 0;
}

static bool map_huge(struct tw_slab *slab, size_t size_bytes)
{
	size_t size = tw_round_up(size_bytes, HUGE_BYTES);
	/* the flag's own size field: 21 is log2 of 2 MiB, whatever the system's default is */
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT);
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (p == MAP_FAILED) {
		return false;
	}
	if (populate(p, size, HUGE_BYTES) != 0) {
		munmap(p, size);
		return false;
	}
	*slab = (struct tw_slab){ .base = p, .size_bytes = size, .huge = true };
	return true;
}

/* Where it is large enough for one, the mapping starts on a huge page's border: transparent huge
 * pages need that.  The ends that are too much go back. */
static uint8_t *map_aligned(size_t size, size_t align)
{
	size_t extra = align > (size_t)sysconf(_SC_PAGESIZE) ? align : 0;
	if (size > SIZE_MAX - extra) {
		errno = ENOMEM;
		return NULL;
	}
	uint8_t *p = mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (p == MAP_FAILED) {
		return NULL;
	}
	if (extra == 0) {
		return p;
	}
	size_t head = (align - (uintptr_t)p % align) % align;
	if (head > 0) {
		munmap(p, head);
	}
	if (extra - head > 0) {
		munmap(p + head + size, extra - head);
	}
	return p + head;
}

int tw_slab_init(struct tw_slab *slab, size_t size_bytes, struct tw_error *err)
{
	*slab = (struct tw_slab){ 0 };
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (size_bytes == 0 || size_bytes > SIZE_MAX / 2) {
		return tw_fail(err, TW_EARG, "slab: %zu bytes: out of range", size_bytes);
	}
	if (size_bytes >= HUGE_BYTES && map_huge(slab, size_bytes)) {
		return TW_OK;
	}
	size_t size = tw_round_up(size_bytes, page);
	uint8_t *base = map_aligned(size, size >= HUGE_BYTES ? HUGE_BYTES : page);
	if (base == NULL) {
		return tw_fail_sys(err, TW_ENOMEM, "slab: mmap %zu bytes", size);
	}
	if (size >= HUGE_BYTES) {
		(void)madvise(base, size, MADV_HUGEPAGE); /* advice: the kernel may lack it */
	}
	if (populate(base, size, page) != 0) {
		int rc = tw_fail_sys(err, TW_ENOMEM, "slab: populate %zu bytes", size);
		munmap(base, size);
		return rc;
	}
	*slab = (struct tw_slab){ .base = base, .size_bytes = size };
	return TW_OK;
}

int tw_slab_lock(const struct tw_slab *slab, struct tw_error *err)
{
	if (mlock(slab->base, slab->size_bytes) != 0) {
		return tw_fail_sys(err, errno == EPERM ? TW_EPERM : TW_ENOMEM,
				   "slab: mlock %zu bytes (see ulimit -l)", slab->size_bytes);
	}
	return TW_OK;
}

void tw_slab_fini(struct tw_slab *slab)
{
	if (slab->base != NULL) {
		munmap(slab->base, slab->size_bytes);
	}
	*slab = (struct tw_slab){ 0 };
}

int tw_slots_init(struct tw_slots *slots, uint32_t count, uint32_t dgram_bytes,
		  struct tw_error *err)
{
	*slots = (struct tw_slots){ 0 };
	if (count == 0 || dgram_bytes == 0 ||
	    dgram_bytes > UINT32_MAX - TW_SLAB_HEADROOM_BYTES - TW_CACHE_LINE_BYTES) {
		return tw_fail(err, TW_EARG, "slots: %u of %u bytes: out of range", count,
			       dgram_bytes);
	}
	size_t stride =
		tw_round_up((size_t)TW_SLAB_HEADROOM_BYTES + dgram_bytes, TW_CACHE_LINE_BYTES);
	size_t total;
	if (__builtin_mul_overflow(stride, (size_t)count, &total)) {
		return tw_fail(err, TW_EARG, "slots: %u of %u bytes: out of range", count,
			       dgram_bytes);
	}
	int rc = tw_slab_init(&slots->slab, total, err);
	if (rc < 0) {
		return rc;
	}
	slots->count = count;
	slots->stride_bytes = (uint32_t)stride;
	return TW_OK;
}

void tw_slots_fini(struct tw_slots *slots)
{
	tw_slab_fini(&slots->slab);
	*slots = (struct tw_slots){ 0 };
}
