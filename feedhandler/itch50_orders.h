/* The live orders of an ITCH feed, by the venue's reference number.
 *
 * Buckets of one cache line, two orders each.  An order lies in the first bucket from its home on that has
 * room, and marks those that had none; removing from a marked one moves back who belongs there, so
 * that no tombstones gather in a day of hundreds of millions of orders.
 * Memory    one slab, made and present at start; at most three quarters of the slots are taken.  Nothing is
 *           allocated afterwards.
 * Threads   one. */
#ifndef TW_FEEDHANDLER_ITCH50_ORDERS_H
#define TW_FEEDHANDLER_ITCH50_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slab.h"
#include "tidewire/error.h"
#include "tidewire/msg.h"

#define TW_ITCH50_ORDERS_DEFAULT (3u << 20) /* 128 MB */
#define TW_ITCH50_ORDERS_MAX     (1u << 28)

struct tw_itch50_order {
	uint64_t ref;
	uint64_t priority;   /* among orders of one price, lower first */
	uint32_t price;      /* as the venue counts, 1e-4 */
	uint32_t qty;        /* open */
	char participant[4]; /* NUL-padded */
	uint16_t locate;
	uint8_t side;    /* enum tw_side; TW_SIDE_NONE: the slot is free */
	uint8_t crowded; /* of the bucket, in its first slot: someone went past it for lack of room */
};
_Static_assert(sizeof(struct tw_itch50_order) == 32, "half a cache line");

#define TW_ITCH50_ORDERS_BUCKET 2u

struct tw_itch50_bucket { /* a cache line; what is taken comes first */
	struct tw_itch50_order slots[TW_ITCH50_ORDERS_BUCKET];
};

struct tw_itch50_orders {
	struct tw_slab slab;
	struct tw_itch50_bucket *buckets; /* a power of two */
	uint32_t mask, shift;             /* of a bucket's index */
	uint32_t count, max_count;
};

int tw_itch50_orders_init(struct tw_itch50_orders *orders, uint32_t max_count,
			  struct tw_error *err) TW_MUST_USE;
void tw_itch50_orders_fini(struct tw_itch50_orders *orders); /* a zeroed one is fine */
void tw_itch50_orders_clear(struct tw_itch50_orders *orders);

static inline uint32_t tw_itch50_orders_home(const struct tw_itch50_orders *orders, uint64_t ref)
{
	/* multiplicative hashing: references count up, and so land evenly apart */
	return (uint32_t)((ref * 0x9e3779b97f4a7c15u) >> orders->shift);
}

static inline void tw_itch50_orders_prefetch(const struct tw_itch50_orders *orders, uint64_t ref)
{
	__builtin_prefetch(&orders->buckets[tw_itch50_orders_home(orders, ref)], 1);
}

static inline uint32_t tw_itch50_orders_bucket(const struct tw_itch50_orders *orders,
					       const struct tw_itch50_order *slot)
{
	return (uint32_t)(((uintptr_t)slot - (uintptr_t)orders->buckets) /
			  sizeof(*orders->buckets));
}

/* The order's slot, or the free one where it belongs.  There is always a free one. */
static inline struct tw_itch50_order *tw_itch50_orders_seek(const struct tw_itch50_orders *orders,
							    uint64_t ref)
{
	for (uint32_t i = tw_itch50_orders_home(orders, ref);; i = (i + 1) & orders->mask) {
		struct tw_itch50_order *slots = orders->buckets[i].slots;
		for (uint32_t k = 0; k < TW_ITCH50_ORDERS_BUCKET; k++) {
			if (slots[k].side == TW_SIDE_NONE || slots[k].ref == ref) {
				return &slots[k]; /* a bucket's free slots come last */
			}
		}
	}
}

/* NULL where it is not there. */
static inline struct tw_itch50_order *tw_itch50_orders_find(const struct tw_itch50_orders *orders,
							    uint64_t ref)
{
	struct tw_itch50_order *order = tw_itch50_orders_seek(orders, ref);
	return order->side != TW_SIDE_NONE ? order : NULL;
}

static inline bool tw_itch50_orders_full(const struct tw_itch50_orders *orders)
{
	return orders->count == orders->max_count;
}

/* Takes the free slot that seek gave for `ref`, nothing having changed since.  The caller fills in the
 * rest, `side` for certain; but for copying an order into it there is tw_itch50_orders_copy(). */
static inline void tw_itch50_orders_take(struct tw_itch50_orders *orders,
					 struct tw_itch50_order *slot, uint64_t ref)
{
	uint32_t at = tw_itch50_orders_bucket(orders, slot);
	for (uint32_t i = tw_itch50_orders_home(orders, ref); i != at; i = (i + 1) & orders->mask) {
		orders->buckets[i].slots[0].crowded = 1;
	}
	slot->ref = ref;
	orders->count++;
}

/* All but `crowded`, which belongs to the bucket. */
static inline void tw_itch50_orders_copy(struct tw_itch50_order *dst,
					 const struct tw_itch50_order *src)
{
	uint8_t crowded = dst->crowded;
	*dst = *src;
	dst->crowded = crowded;
}

/* Other orders may move: pointers to them are stale afterwards. */
void tw_itch50_orders_remove(struct tw_itch50_orders *orders, struct tw_itch50_order *order);

#endif
