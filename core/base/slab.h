/* Memory that a NIC may read and write: page aligned, zeroed, on huge pages where they are to be
 * had (MAP_HUGETLB, else transparent), every page present from the start.
 *
 * Receive slots reserve the GRH: a slot is TW_SLAB_HEADROOM_BYTES of head-room and then the
 * datagram, so that the 40 GRH bytes end where the datagram starts on a cache line.
 * Ownership  the caller's; everything is made at start, nothing grows. */
#ifndef TW_BASE_SLAB_H
#define TW_BASE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

#define TW_CACHE_LINE_BYTES    64u
#define TW_CACHE_PAIR_BYTES    128u /* x86 fetches lines in pairs */
#define TW_SLAB_HEADROOM_BYTES 64u
#define TW_GRH_BYTES           40u /* the GRH lies at slot + 24 */

static inline size_t tw_round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

struct tw_slab {
	uint8_t *base;
	size_t size_bytes; /* as mapped: rounded up to the page size in use */
	bool huge;         /* explicit huge pages */
};

int tw_slab_init(struct tw_slab *slab, size_t size_bytes, struct tw_error *err) TW_MUST_USE;
/* Keeps it out of swap.  Needs RLIMIT_MEMLOCK or CAP_IPC_LOCK; on failure nothing has changed. */
int tw_slab_lock(const struct tw_slab *slab, struct tw_error *err) TW_MUST_USE;
void tw_slab_fini(struct tw_slab *slab); /* a zeroed or half-made slab is fine */

/* Slots of one slab: count x (head-room + dgram_bytes), the datagram cache-line aligned. */
struct tw_slots {
	struct tw_slab slab;
	uint32_t count;
	uint32_t stride_bytes;
};
int tw_slots_init(struct tw_slots *slots, uint32_t count, uint32_t dgram_bytes,
		  struct tw_error *err) TW_MUST_USE;
void tw_slots_fini(struct tw_slots *slots);
static inline uint8_t *tw_slots_dgram(const struct tw_slots *slots, uint32_t index)
{
	return slots->slab.base + (size_t)index * slots->stride_bytes + TW_SLAB_HEADROOM_BYTES;
}

#endif
