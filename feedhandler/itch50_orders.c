/* The live orders of an ITCH feed; see itch50_orders.h. */
#include "feedhandler/itch50_orders.h"

#include <string.h>

#include "base/fail.h"

int tw_itch50_orders_init(struct tw_itch50_orders *orders, uint32_t max_count, struct tw_error *err)
{
	*orders = (struct tw_itch50_orders){ 0 };
	if (max_count == 0 || max_count > TW_ITCH50_ORDERS_MAX) {
		return tw_fail(err, TW_ECONFIG, "max_orders: %u, allowed is 1 to %u", max_count,
			       TW_ITCH50_ORDERS_MAX);
	}
	uint64_t wanted_slots = (uint64_t)max_count + (max_count + 2) / 3;
	uint64_t wanted = (wanted_slots + 1) / TW_ITCH50_ORDERS_BUCKET;
	uint32_t bits = 4;
	while ((UINT64_C(1) << bits) < wanted) {
		bits++;
	}
	size_t bucket_count = (size_t)1 << bits;
	int rc = tw_slab_init(&orders->slab, bucket_count * sizeof(*orders->buckets), err);
	if (rc != TW_OK) {
		return rc;
	}
	orders->buckets = (void *)orders->slab.base; /* zeroed: all free */
	orders->mask = (uint32_t)(bucket_count - 1);
	orders->shift = 64 - bits;
	orders->max_count = max_count;
	return TW_OK;
}

void tw_itch50_orders_fini(struct tw_itch50_orders *orders)
{
	tw_slab_fini(&orders->slab);
	*orders = (struct tw_itch50_orders){ 0 };
}

void tw_itch50_orders_clear(struct tw_itch50_orders *orders)
{
	if (orders->count > 0) {
		memset(orders->buckets, 0, ((size_t)orders->mask + 1) * sizeof(*orders->buckets));
		orders->count = 0;
	}
}

/* In bucket `i`: an order that belongs no later than bucket `hole`, counted in a circle; NULL: none. */
static struct tw_itch50_order *crowded_out(const struct tw_itch50_orders *orders, uint32_t hole,
					   uint32_t i)
{
	struct tw_itch50_order *slots = orders->buckets[i].slots;
	for (uint32_t k = 0; k < TW_ITCH50_ORDERS_BUCKET && slots[k].side != TW_SIDE_NONE; k++) {
		uint32_t home = tw_itch50_orders_home(orders, slots[k].ref);
		if (((i - home) & orders->mask) >= ((i - hole) & orders->mask)) {
			return &slots[k];
		}
	}
	return NULL;
}

/* Frees one slot of a bucket; what is taken stays first.  The slot that is free afterwards. */
static struct tw_itch50_order *free_slot(struct tw_itch50_bucket *bucket,
					 struct tw_itch50_order *slot)
{
	struct tw_itch50_order *end = slot;
	while (end < &bucket->slots[TW_ITCH50_ORDERS_BUCKET - 1] && end[1].side != TW_SIDE_NONE) {
		end++;
	}
	if (end != slot) {
		tw_itch50_orders_copy(slot, end);
	}
	end->side = TW_SIDE_NONE;
	return end;
}

void tw_itch50_orders_remove(struct tw_itch50_orders *orders, struct tw_itch50_order *order)
{
	struct tw_itch50_bucket *buckets = orders->buckets;
	uint32_t hole = tw_itch50_orders_bucket(orders, order);
	struct tw_itch50_order *end = free_slot(&buckets[hole], order);
	orders->count--;
	/* Everyone past a bucket for lack of room has marked it, so an unmarked one ends the search. */
	for (uint32_t i = hole; buckets[i].slots[0].crowded != 0;) {
		i = (i + 1) & orders->mask;
		struct tw_itch50_order *moves = crowded_out(orders, hole, i);
		if (moves != NULL) {
			tw_itch50_orders_copy(end, moves);
			end = free_slot(&buckets[i], moves);
			hole = i;
		} else if (buckets[i].slots[0].crowded == 0) {
			buckets[hole].slots[0].crowded = 0; /* nobody is past it any more */
		}
	}
}
