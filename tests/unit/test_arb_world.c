/* Line arbitration in a small world, exhaustively: five datagrams on each of two lines, batched alike or
 * not; every subset of the ten lost, what remains in every order in which two lines can merge. */
#include <criterion/criterion.h>

#include "tests/unit/arb_scene.h"

#define DGRAMS   5u
#define MSGS     9u /* messages 1 to 9 */
#define PATTERNS 5u

/* Ends of the five datagrams of a line, exclusive. */
static const uint64_t batching[PATTERNS][DGRAMS] = {
	{ 2, 4, 6, 8, 10 }, { 3, 5, 7, 9, 10 }, { 2, 3, 4, 5, 10 },
	{ 6, 7, 8, 9, 10 }, { 3, 4, 8, 9, 10 },
};

struct small_world {
	struct scene *scene;
	uint32_t mask; /* bit line * DGRAMS + i: that datagram comes */
	uint32_t pattern[2];
	uint64_t step_ns;
	uint64_t runs, runs_with_loss;
};

static uint64_t dgram_first(uint32_t pattern, uint32_t i)
{
	return i == 0 ? 1 : batching[pattern][i - 1];
}

/* One order of arrival: bit k of `order`: the k-th to come is line B's next. */
static void play(struct small_world *world, uint32_t order, uint32_t arrivals)
{
	struct scene *s = world->scene;
	uint32_t next[2] = { 0, 0 };

	scene_restart(s);
	for (uint32_t k = 0; k < arrivals; k++) {
		uint32_t line = order >> k & 1u;
		while ((world->mask >> (line * DGRAMS + next[line]) & 1u) == 0) {
			next[line]++;
		}
		uint32_t i = next[line]++;
		give_data(s, line, dgram_first(world->pattern[line], i),
			  batching[world->pattern[line]][i] - 1);
		pass(s, world->step_ns);
		if (world->step_ns != 0) {
			idle_all(s);
		}
	}
	give_end(s, A, MSGS + 1);
	pass(s, WAIT_NS);
	idle_all(s);
	cr_assert(s->ledger.ended, "no END: %s", s->text);
	cr_assert_eq(s->ledger.data_msgs + s->ledger.lost_msgs, MSGS, "%s", s->text);
	cr_assert_eq(tw_arb_held(s->arb), 0, "%s", s->text);
	if (world->step_ns == 0 && tw_arb_store_full(s->arb) == 0) {
		uint64_t lost = 0; /* nothing but what really came on no line */
		for (uint64_t seq = 1; seq <= MSGS; seq++) {
			lost += tw_ledger_was_given(&s->ledger, SESSION, seq) ? 0 : 1;
		}
		cr_assert_eq(s->ledger.lost_msgs, lost, "%s", s->text);
	}
	world->runs++;
	world->runs_with_loss += s->ledger.lost_msgs != 0 ? 1 : 0;
}

static void play_all_orders(struct small_world *world)
{
	uint32_t per_line = (1u << DGRAMS) - 1;
	uint32_t on_a = (uint32_t)__builtin_popcount(world->mask & per_line);
	uint32_t on_b = (uint32_t)__builtin_popcount(world->mask >> DGRAMS);
	uint32_t arrivals = on_a + on_b;

	for (uint32_t order = 0; order < 1u << arrivals; order++) {
		if ((uint32_t)__builtin_popcount(order) == on_b) {
			play(world, order, arrivals);
		}
	}
}

static struct small_world small_world(uint32_t store_dgrams, uint64_t step_ns)
{
	struct tw_arb_conf conf = usual();

	conf.store_dgrams = store_dgrams;
	return (struct small_world){ .scene = scene_new(&conf), .step_ns = step_ns };
}

static void play_all_masks(uint32_t store_dgrams, uint64_t step_ns, uint32_t pattern_a,
			   uint32_t pattern_b)
{
	struct small_world world = small_world(store_dgrams, step_ns);

	world.pattern[A] = pattern_a;
	world.pattern[B] = pattern_b;
	for (world.mask = 0; world.mask < 1u << (2 * DGRAMS); world.mask++) {
		play_all_orders(&world);
	}
	cr_assert_eq(world.runs, 15525); /* sum of C(5,a) C(5,b) C(a+b,a) */
	cr_assert_gt(world.runs_with_loss, world.runs / 20);
	cr_assert_lt(world.runs_with_loss, world.runs);
	scene_free(world.scene);
}

Test(arb_world, every_loss_in_every_order_of_arrival, .timeout = 120)
{
	for (uint32_t pair = 0; pair < PATTERNS * PATTERNS; pair++) {
		play_all_masks(8, 0, pair / PATTERNS, pair % PATTERNS);
	}
}

Test(arb_world, small_store, .timeout = 120)
{
	for (uint32_t pair = 0; pair < PATTERNS * PATTERNS; pair += 3) {
		play_all_masks(1 + pair % 2, 0, pair / PATTERNS, pair % PATTERNS);
	}
}

Test(arb_world, time_passes_between, .timeout = 120)
{
	for (uint32_t pair = 0; pair < PATTERNS * PATTERNS; pair += 3) {
		play_all_masks(1 + pair % 4, WAIT_NS / 2, pair / PATTERNS, pair % PATTERNS);
	}
}

/* Each line's datagrams in any order, each twice: every mask of one line, all permutations. */
Test(arb_world, any_order, .timeout = 120)
{
	struct small_world world = small_world(8, 0);
	uint32_t perm[DGRAMS] = { 0, 1, 2, 3, 4 };
	uint32_t count[DGRAMS] = { 0 };
	uint32_t i = 0;
	struct scene *s = world.scene;

	for (;;) { /* Heap's permutations */
		for (uint32_t mask = 0; mask < 1u << DGRAMS; mask++) {
			uint64_t lost = 0;
			scene_restart(s);
			for (uint32_t k = 0; k < 2 * DGRAMS; k++) {
				uint32_t d = perm[k % DGRAMS];
				if ((mask >> d & 1u) != 0) {
					give_data(s, k < DGRAMS ? A : B, dgram_first(1, d),
						  batching[1][d] - 1);
				}
			}
			give_end(s, B, MSGS + 1);
			pass(s, WAIT_NS);
			idle_all(s);
			for (uint32_t d = 0; d < DGRAMS; d++) {
				lost += (mask >> d & 1u) != 0 ? 0
							      : batching[1][d] - dgram_first(1, d);
			}
			cr_assert_eq(s->ledger.lost_msgs, lost, "%s", s->text);
			cr_assert(s->ledger.ended);
		}
		while (i < DGRAMS && count[i] >= i) {
			count[i++] = 0;
		}
		if (i == DGRAMS) {
			break;
		}
		uint32_t j = i % 2 == 0 ? 0 : count[i];
		uint32_t t = perm[j];
		perm[j] = perm[i];
		perm[i] = t;
		count[i]++;
		i = 0;
	}
	scene_free(s);
}
