/* The ring between two threads, one thread: bounds, order, wrap.  With two: stress_read.c, where every read goes
 * through two of them. */
#include <criterion/criterion.h>

#include "base/spsc.h"

struct element {
	uint64_t number;
	uint32_t check;
};

static struct element make(uint64_t number)
{
	return (struct element){ .number = number, .check = (uint32_t)(number * 2654435761u) };
}

Test(spsc, holds_as_many_as_it_says_and_gives_them_back_in_order, .timeout = 60)
{
	struct element memory[8], got = { 0 };
	struct tw_spsc ring;
	tw_spsc_init(&ring, memory, 8, sizeof(memory[0]));
	cr_assert(tw_spsc_empty(&ring));
	cr_assert_not(tw_spsc_pop(&ring, &got));
	uint64_t in = 0, out = 0;
	for (unsigned int round = 0; round < 100; round++) {
		for (unsigned int i = 0; i < 1 + round % 8; i++) {
			struct element e = make(in);
			if (tw_spsc_push(&ring, &e)) {
				in++;
			}
			cr_assert_leq(in - out, 8);
			cr_assert_not(tw_spsc_empty(&ring));
		}
		if (in - out == 8) {
			struct element e = make(in);
			cr_assert_not(tw_spsc_push(&ring, &e), "full");
		}
		for (unsigned int i = 0; i < 1 + round % 5 && tw_spsc_pop(&ring, &got); i++) {
			cr_assert(got.number == out && got.check == make(out).check);
			out++;
		}
	}
	while (tw_spsc_pop(&ring, &got)) {
		cr_assert_eq(got.number, out++);
	}
	cr_assert_eq(in, out);
	cr_assert(tw_spsc_empty(&ring));
}

Test(spsc, indices_wrap, .timeout = 60)
{
	uint32_t memory[4], got;
	struct tw_spsc ring;
	tw_spsc_init(&ring, memory, 4, sizeof(memory[0]));
	/* as after 2^32 - 2 elements */
	ring.tail = ring.head = ring.head_seen = ring.tail_seen = UINT32_MAX - 1;
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert(tw_spsc_push(&ring, &i));
	}
	cr_assert_not(tw_spsc_push(&ring, &(uint32_t){ 9 }));
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert(tw_spsc_pop(&ring, &got));
		cr_assert_eq(got, i);
	}
	cr_assert_not(tw_spsc_pop(&ring, &got));
}

Test(spsc, one_place_is_enough, .timeout = 60)
{
	uint32_t memory[1], got;
	struct tw_spsc ring;
	tw_spsc_init(&ring, memory, 1, sizeof(memory[0]));
	for (uint32_t i = 0; i < 10; i++) {
		cr_assert(tw_spsc_push(&ring, &i));
		cr_assert_not(tw_spsc_push(&ring, &i));
		cr_assert(tw_spsc_pop(&ring, &got));
		cr_assert_eq(got, i);
	}
}
