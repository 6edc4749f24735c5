/* The history log, one thread: where datagrams lie, what is announced when, and when space is
 * free. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/history.h"

#define UNIT TW_WIRE_UNIT_BYTES

struct bed {
	struct tw_history h;
	uint8_t *memory;
};

static void bed_up(struct bed *bed, uint64_t units, uint32_t max_units)
{
	size_t bytes = (units + 1) * UNIT;
	bed->memory = aligned_alloc(UNIT, bytes);
	cr_assert_not_null(bed->memory);
	memset(bed->memory, 0xee, bytes);
	cr_assert_eq(tw_history_init(&bed->h, bed->memory, bytes, max_units * UNIT, 42, 0x10001),
		     TW_OK);
	cr_assert_eq(bed->h.units, units);
}

static uint64_t intent(const struct bed *bed)
{
	return atomic_load(&bed->h.control->intent);
}

static uint64_t published(const struct bed *bed)
{
	return atomic_load(&bed->h.control->published);
}

Test(history, init_lays_out_the_control_line, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed, 64, 16);
	struct tw_history_control *c = bed.h.control;
	cr_assert_eq((void *)c, (void *)bed.memory);
	cr_assert_eq(bed.h.log, bed.memory + UNIT);
	cr_assert_eq(atomic_load(&c->magic), TW_HISTORY_MAGIC);
	cr_assert_eq(atomic_load(&c->session), 42);
	cr_assert_eq(atomic_load(&c->publisher), 0x10001);
	cr_assert_eq(atomic_load(&c->units), 64);
	cr_assert_eq(intent(&bed), 0);
	cr_assert_eq(published(&bed), 0);
	cr_assert_eq(offsetof(struct tw_history_control, intent), 24);
	cr_assert_eq(offsetof(struct tw_history_control, published), 32);
	free(bed.memory);
}

Test(history, init_refuses_what_cannot_work, .timeout = 60)
{
	static _Alignas(64) uint8_t memory[65 * UNIT + 8];
	struct tw_history h;
	cr_assert_eq(tw_history_init(&h, memory + 8, 65 * UNIT, 1024, 1, 1), TW_EARG, "alignment");
	cr_assert_eq(tw_history_init(&h, memory, 65 * UNIT, 1000, 1, 1), TW_EARG, "units");
	cr_assert_eq(tw_history_init(&h, memory, 65 * UNIT, 0, 1, 1), TW_EARG, "nothing");
	cr_assert_eq(tw_history_init(&h, memory, 65 * UNIT - 1, 1024, 1, 1), TW_EARG, "too small");
	cr_assert_eq(tw_history_init(&h, memory, 65 * UNIT, 1024, 1, 1), TW_OK, "just enough");
	cr_assert_eq(tw_history_init(&h, memory, 65 * UNIT + 8, 1024, 1, 1), TW_OK);
	cr_assert_eq(h.units, 64, "whole units only");
}

Test(history, intent_is_raised_before_the_claim_is_given, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed, 64, 16);
	uint8_t *at = tw_history_claim(&bed.h);
	cr_assert_eq(at, bed.h.log);
	cr_assert_eq(intent(&bed), 16);
	cr_assert_eq(tw_history_claim(&bed.h), at, "the claim stands");
	cr_assert_eq(intent(&bed), 16);
	tw_history_commit(&bed.h, 3);
	cr_assert_eq(intent(&bed), 16, "never lowered");
	cr_assert_eq(tw_history_claim_pos(&bed.h), 3);
	cr_assert_eq(tw_history_claim(&bed.h), bed.h.log + 3 * UNIT);
	cr_assert_eq(intent(&bed), 19);
	cr_assert_eq(published(&bed), 0);
	tw_history_publish(&bed.h);
	cr_assert_eq(published(&bed), 3);
	free(bed.memory);
}

Test(history, space_is_free_only_when_sends_are_done, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed, 64, 16);
	for (int i = 0; i < 4; i++) {
		cr_assert_not_null(tw_history_claim(&bed.h));
		tw_history_commit(&bed.h, 16);
	}
	uint64_t before = intent(&bed);
	cr_assert_null(tw_history_claim(&bed.h));
	cr_assert_eq(intent(&bed), before, "a refused claim announces nothing");
	tw_history_complete(&bed.h, 15);
	cr_assert_null(tw_history_claim(&bed.h));
	tw_history_complete(&bed.h, 16);
	cr_assert_eq(tw_history_claim(&bed.h), bed.h.log);
	cr_assert_eq(intent(&bed), 80);
	free(bed.memory);
}

/* Every log size and datagram size that is small: walks several laps and keeps a map of who owns
 * each unit, so that a straddle, an overlap with a send in flight or a position that does not fit
 * its address shows. */
static void walk(uint64_t units, uint32_t max_units, uint32_t pattern)
{
	struct bed bed;
	bed_up(&bed, units, max_units);
	uint64_t done = 0, last_end = 0;
	for (int i = 0; i < 60; i++) {
		uint8_t *at = tw_history_claim(&bed.h);
		if (at == NULL) {
			/* only the claimed size may be missing */
			cr_assert_gt(tw_history_claim_pos(&bed.h) + max_units, done + units);
			done = last_end;
			tw_history_complete(&bed.h, done);
			at = tw_history_claim(&bed.h);
			cr_assert_not_null(at);
		}
		uint64_t pos = tw_history_claim_pos(&bed.h);
		cr_assert_eq((uint64_t)(at - bed.h.log), pos % units * UNIT);
		cr_assert_leq(pos % units + max_units, units, "straddles");
		cr_assert_leq(pos + max_units, done + units, "a send still reads this");
		cr_assert_geq(intent(&bed), pos + max_units);
		cr_assert_geq(pos, last_end);
		cr_assert(pos == last_end || pos % units == 0, "only the end is skipped");
		uint32_t n = 1 + (uint32_t)i * pattern % max_units;
		memset(at, i, (size_t)n * UNIT); /* ASan watches the memory */
		tw_history_commit(&bed.h, n);
		last_end = pos + n;
		cr_assert_geq(tw_history_claim_pos(&bed.h), last_end);
	}
	tw_history_publish(&bed.h);
	cr_assert_eq(published(&bed), tw_history_claim_pos(&bed.h));
	free(bed.memory);
}

Test(history, no_datagram_straddles_whatever_the_sizes, .timeout = 60)
{
	for (uint32_t max_units = 1; max_units <= 8; max_units++) {
		for (uint64_t units = 4ull * max_units; units < 7ull * max_units; units++) {
			for (uint32_t pattern = 0; pattern < 5; pattern++) {
				walk(units, max_units, pattern);
			}
		}
	}
}

Test(history, a_new_life_begins_at_zero, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed, 64, 16);
	cr_assert_not_null(tw_history_claim(&bed.h));
	tw_history_commit(&bed.h, 16);
	tw_history_publish(&bed.h);
	cr_assert_eq(tw_history_init(&bed.h, bed.memory, 65 * UNIT, 1024, 43, 0x10002), TW_OK);
	cr_assert_eq(atomic_load(&bed.h.control->session), 43);
	cr_assert_eq(atomic_load(&bed.h.control->publisher), 0x10002);
	cr_assert_eq(intent(&bed), 0);
	cr_assert_eq(published(&bed), 0);
	cr_assert_eq(tw_history_claim_pos(&bed.h), 0);
	free(bed.memory);
}
