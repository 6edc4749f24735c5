/* The table of live orders against a plain list, in all states of crowding. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "feedhandler/itch50_orders.h"

static uint64_t draw_state;

static uint32_t draw(void) /* xorshift: the same everywhere */
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return (uint32_t)(draw_state >> 32);
}

static void open_table(struct tw_itch50_orders *orders, uint32_t max)
{
	struct tw_error err = { 0 };
	cr_assert_eq(tw_itch50_orders_init(orders, max, &err), TW_OK, "%s", err.text);
}

/* Every field comes from the reference, so that one of another order shows. */
static void fill(struct tw_itch50_order *o, uint64_t ref)
{
	o->priority = ref * 3;
	o->price = (uint32_t)ref ^ 0x5555u;
	o->qty = (uint32_t)ref + 1;
	memcpy(o->participant, &ref, sizeof(o->participant));
	o->locate = (uint16_t)ref;
	o->side = ref % 2 == 0 ? TW_SIDE_BUY : TW_SIDE_SELL;
}

static void assert_filled(const struct tw_itch50_order *o, uint64_t ref)
{
	struct tw_itch50_order want = { .ref = ref };
	fill(&want, ref);
	cr_assert_not_null(o, "%llu is missing", (unsigned long long)ref);
	want.crowded = o->crowded;
	cr_assert_eq(memcmp(o, &want, sizeof(want)), 0, "%llu", (unsigned long long)ref);
}

static bool add(struct tw_itch50_orders *orders, uint64_t ref)
{
	struct tw_itch50_order *slot = tw_itch50_orders_seek(orders, ref);
	if (slot->side != TW_SIDE_NONE || tw_itch50_orders_full(orders)) {
		return false;
	}
	tw_itch50_orders_take(orders, slot, ref);
	fill(slot, ref);
	return true;
}

Test(itch50_orders, full_and_empty, .timeout = 60)
{
	struct tw_itch50_orders orders;
	open_table(&orders, 3);
	cr_assert(add(&orders, 0)); /* 0 is a number like any other */
	cr_assert(add(&orders, UINT64_MAX));
	cr_assert(add(&orders, 7));
	cr_assert_not(add(&orders, 7));
	cr_assert_not(add(&orders, 8));
	assert_filled(tw_itch50_orders_find(&orders, 0), 0);
	assert_filled(tw_itch50_orders_find(&orders, UINT64_MAX), UINT64_MAX);
	cr_assert_null(tw_itch50_orders_find(&orders, 8));
	tw_itch50_orders_remove(&orders, tw_itch50_orders_find(&orders, 0));
	cr_assert_null(tw_itch50_orders_find(&orders, 0));
	cr_assert(add(&orders, 8));
	tw_itch50_orders_clear(&orders);
	cr_assert_eq(orders.count, 0);
	cr_assert_null(tw_itch50_orders_find(&orders, 8));
	tw_itch50_orders_fini(&orders);
	tw_itch50_orders_fini(&orders);
}

Test(itch50_orders, capacities, .timeout = 60)
{
	struct tw_itch50_orders orders;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_itch50_orders_init(&orders, 0, &err), TW_ECONFIG);
	cr_assert_eq(tw_itch50_orders_init(&orders, TW_ITCH50_ORDERS_MAX + 1, &err), TW_ECONFIG);
	for (uint32_t max = 1; max < 200; max++) { /* all fit, and a free slot is left */
		open_table(&orders, max);
		for (uint64_t ref = 0; ref < max; ref++) {
			cr_assert(add(&orders, ref));
		}
		cr_assert(tw_itch50_orders_full(&orders));
		uint64_t slots = (uint64_t)(orders.mask + 1) * TW_ITCH50_ORDERS_BUCKET;
		cr_assert_leq(4 * (uint64_t)max, 3 * slots);
		cr_assert_null(tw_itch50_orders_find(&orders, max));
		tw_itch50_orders_fini(&orders);
	}
}

/* A reference whose home is `bucket`. */
static uint64_t ref_at(const struct tw_itch50_orders *orders, uint32_t bucket, uint64_t *from)
{
	while (tw_itch50_orders_home(orders, *from) != bucket) {
		++*from;
	}
	return (*from)++;
}

/* Seven orders of one bucket, at the end of the table so that they go round it, among those of the
 * buckets that they crowd: whichever leaves first, the rest stay. */
Test(itch50_orders, crowds_that_go_round_the_end, .timeout = 60)
{
	enum { CROWD = 7, GUESTS = 3, ALL = CROWD + GUESTS };
	struct tw_itch50_orders orders;
	open_table(&orders, 20);
	uint64_t from = 1;
	uint64_t refs[ALL];
	for (unsigned int i = 0; i < CROWD; i++) {
		refs[i] = ref_at(&orders, orders.mask, &from);
	}
	for (uint32_t i = 0; i < GUESTS; i++) {
		refs[CROWD + i] = ref_at(&orders, i, &from);
	}
	for (unsigned int rounds = 0; rounds < 2000; rounds++) {
		bool live[ALL] = { false };
		draw_state = rounds * UINT64_C(0x9e3779b97f4a7c15) + 1;
		for (unsigned int step = 0; step < 60; step++) {
			unsigned int i = draw() % ALL;
			if (live[i]) {
				tw_itch50_orders_remove(&orders,
							tw_itch50_orders_find(&orders, refs[i]));
			} else {
				cr_assert(add(&orders, refs[i]));
			}
			live[i] = !live[i];
			for (unsigned int k = 0; k < ALL; k++) {
				if (live[k]) {
					assert_filled(tw_itch50_orders_find(&orders, refs[k]),
						      refs[k]);
				} else {
					cr_assert_null(tw_itch50_orders_find(&orders, refs[k]));
				}
			}
		}
		tw_itch50_orders_clear(&orders);
	}
	tw_itch50_orders_fini(&orders);
}

/* A day in small: numbers that count up, orders that leave at random, the table nearly full. */
Test(itch50_orders, random_lives_nearly_full, .timeout = 60)
{
	enum { MAX = 1536, STEPS = 200000 }; /* three quarters of 2,048 slots */
	struct tw_itch50_orders orders;
	open_table(&orders, MAX);
	cr_assert_eq(orders.mask + 1, 1024 * 2 / TW_ITCH50_ORDERS_BUCKET);
	static uint64_t live[MAX];
	uint32_t count = 0;
	uint64_t next = 1000;
	draw_state = 1 * UINT64_C(0x9e3779b97f4a7c15) + 1;
	for (unsigned int step = 0; step < STEPS; step++) {
		if (count == 0 || (count < MAX && draw() % 100 < 52)) {
			cr_assert(add(&orders, next));
			live[count++] = next++;
		} else {
			uint32_t i = draw() % count;
			struct tw_itch50_order *order = tw_itch50_orders_find(&orders, live[i]);
			assert_filled(order, live[i]);
			tw_itch50_orders_remove(&orders, order);
			cr_assert_null(tw_itch50_orders_find(&orders, live[i]));
			live[i] = live[--count];
		}
		cr_assert_eq(orders.count, count);
		if (step % 1000 == 0) {
			for (uint32_t i = 0; i < count; i++) {
				assert_filled(tw_itch50_orders_find(&orders, live[i]), live[i]);
			}
		}
	}
	/* and nothing is left behind, marks of crowding included */
	while (count > 0) {
		tw_itch50_orders_remove(&orders, tw_itch50_orders_find(&orders, live[--count]));
	}
	for (uint32_t i = 0; i <= orders.mask; i++) {
		for (uint32_t k = 0; k < TW_ITCH50_ORDERS_BUCKET; k++) {
			cr_assert_eq(orders.buckets[i].slots[k].side, TW_SIDE_NONE);
		}
	}
	tw_itch50_orders_fini(&orders);
}
