/* The simulated network: order, faults and repeatability. */
#include <criterion/criterion.h>
#include <string.h>

#include "fabric/sim/net.h"

#define SENDS 20000u

struct tally {
	uint32_t arrivals, in_order, overtaken;
	uint64_t hash;
};

static struct tw_sim *open_sim(uint64_t seed, uint32_t receivers, uint32_t lines, uint32_t queue)
{
	struct tw_sim_conf conf = {
		.seed = seed, .receivers = receivers, .lines = lines, .queue_dgrams = queue
	};
	struct tw_sim *sim = NULL;

	cr_assert_eq(tw_sim_open(&sim, &conf), TW_OK);
	return sim;
}

/* Sends numbers, one each 100 ns, and receives everything at once as it arrives. */
static struct tally run(struct tw_sim *sim, uint32_t sends)
{
	struct tally tally = { 0 };
	struct tw_sim_event event;
	struct tw_sim_dgram dgram;
	uint64_t last = 0;

	for (uint64_t i = 1; i <= sends; i++) {
		cr_assert_eq(tw_sim_timer(sim, i * 100, i), TW_OK);
	}
	while (tw_sim_next(sim, &event)) {
		if (event.type == TW_SIM_TIMER) {
			cr_assert_eq(tw_sim_now(sim), event.timer * 100);
			cr_assert_eq(tw_sim_send(sim, 0, &event.timer, sizeof(event.timer)), TW_OK);
			continue;
		}
		cr_assert(tw_sim_recv(sim, event.receiver, event.line, &dgram));
		uint64_t number;
		cr_assert_eq(dgram.len_bytes, sizeof(number));
		cr_assert_eq((uintptr_t)dgram.data % 64, 0);
		memcpy(&number, dgram.data, sizeof(number));
		tally.arrivals++;
		tally.in_order += number > last ? 1 : 0;
		tally.overtaken += number < last ? 1 : 0;
		last = number > last ? number : last;
		tally.hash = (tally.hash ^ number ^ tw_sim_now(sim)) * 0x100000001b3u;
	}
	return tally;
}

Test(sim_net, perfect_by_default, .timeout = 60)
{
	struct tw_sim *sim = open_sim(1, 1, 1, 4);
	struct tally tally = run(sim, SENDS);

	cr_expect_eq(tally.in_order, SENDS);
	cr_expect_eq(tally.arrivals, SENDS);
	tw_sim_close(sim);
}

Test(sim_net, jitter_does_not_reorder, .timeout = 60)
{
	struct tw_sim *sim = open_sim(2, 1, 1, SENDS);

	tw_sim_link(sim, 0, 0)->delay_ns = 50;
	tw_sim_link(sim, 0, 0)->jitter_ns = 5000;
	struct tally tally = run(sim, SENDS);
	cr_expect_eq(tally.in_order, SENDS);
	tw_sim_close(sim);
}

Test(sim_net, faults_happen_as_often_as_asked, .timeout = 60)
{
	struct tw_sim *sim = open_sim(3, 1, 1, SENDS);
	struct tw_sim_link *link = tw_sim_link(sim, 0, 0);

	link->loss_ppm = 100000;
	link->duplicate_ppm = 50000;
	link->reorder_ppm = 20000;
	link->reorder_ns = 350;
	struct tally tally = run(sim, SENDS);
	/* 10 %, 5 % and 2 % of 20,000, each within six standard deviations */
	cr_expect(link->lost > 1745 && link->lost < 2255, "%lu", (unsigned long)link->lost);
	cr_expect(link->duplicated > 725 && link->duplicated < 1080);
	cr_expect(link->reordered > 265 && link->reordered < 500);
	cr_expect_eq(link->sent, SENDS);
	cr_expect_eq(tally.arrivals, SENDS - link->lost + link->duplicated);
	cr_expect(tally.overtaken > 0 && tally.overtaken <= link->reordered);
	tw_sim_close(sim);
}

Test(sim_net, same_seed_same_run, .timeout = 60)
{
	uint64_t hashes[3];

	for (uint32_t i = 0; i < 3; i++) {
		struct tw_sim *sim = open_sim(i == 2 ? 8 : 7, 1, 1, SENDS);
		tw_sim_link(sim, 0, 0)->loss_ppm = 300000;
		tw_sim_link(sim, 0, 0)->jitter_ns = 1000;
		hashes[i] = run(sim, 2000).hash;
		tw_sim_close(sim);
	}
	cr_expect_eq(hashes[0], hashes[1]);
	cr_expect_neq(hashes[0], hashes[2]);
}

Test(sim_net, links_are_apart_and_can_be_cut, .timeout = 60)
{
	struct tw_sim *sim = open_sim(4, 2, 2, 8);
	struct tw_sim_event event;
	uint32_t got[2][2] = { { 0 } };

	tw_sim_link(sim, 1, 0)->cut = true;
	for (uint32_t line = 0; line < 2; line++) {
		cr_assert_eq(tw_sim_send(sim, line, "x", 1), TW_OK);
	}
	while (tw_sim_next(sim, &event)) {
		cr_assert_eq(event.type, TW_SIM_ARRIVAL);
		got[event.receiver][event.line]++;
	}
	cr_expect(got[0][0] == 1 && got[0][1] == 1 && got[1][0] == 0 && got[1][1] == 1);
	tw_sim_close(sim);
}

Test(sim_net, a_full_queue_drops_and_a_dead_process_has_none, .timeout = 60)
{
	struct tw_sim *sim = open_sim(5, 1, 1, 3);
	struct tw_sim_event event;
	struct tw_sim_dgram dgram;
	uint32_t arrivals = 0;

	for (uint8_t i = 0; i < 10; i++) {
		cr_assert_eq(tw_sim_send(sim, 0, &i, 1), TW_OK);
	}
	while (tw_sim_next(sim, &event)) {
		arrivals++;
	}
	cr_expect_eq(arrivals, 3);
	cr_expect_eq(tw_sim_link(sim, 0, 0)->overflowed, 7);
	cr_assert(tw_sim_recv(sim, 0, 0, &dgram));
	cr_expect_eq(dgram.data[0], 0, "the oldest comes first, the newest is dropped");
	tw_sim_clear(sim, 0);
	cr_expect_not(tw_sim_recv(sim, 0, 0, &dgram));
	tw_sim_close(sim);
	tw_sim_close(NULL);
}

Test(sim_net, timers_of_one_time_keep_their_order, .timeout = 60)
{
	struct tw_sim *sim = open_sim(6, 1, 1, 1);
	struct tw_sim_event event;

	for (uint64_t i = 0; i < 1000; i++) {
		cr_assert_eq(tw_sim_timer(sim, 500 - i / 100, i), TW_OK);
	}
	uint64_t count = 0;
	uint64_t last_at = 0;
	uint64_t last = 0;
	while (tw_sim_next(sim, &event)) {
		cr_assert(tw_sim_now(sim) > last_at || count == 0 || event.timer == last + 1);
		cr_assert_geq(tw_sim_now(sim), last_at);
		last_at = tw_sim_now(sim);
		last = event.timer;
		count++;
	}
	cr_expect_eq(count, 1000);
	cr_assert_eq(tw_sim_timer(sim, 3, 77), TW_OK); /* past: comes now */
	cr_assert(tw_sim_next(sim, &event));
	cr_expect_eq(tw_sim_now(sim), last_at);
	tw_sim_close(sim);
}

Test(sim_net, refuses_nonsense, .timeout = 60)
{
	struct tw_sim *sim = (void *)1;
	struct tw_sim_conf conf = { .receivers = 0, .lines = 1, .queue_dgrams = 1 };

	cr_expect_eq(tw_sim_open(&sim, &conf), TW_EARG);
	cr_expect_null(sim);
	conf = (struct tw_sim_conf){ .receivers = 1, .lines = 3, .queue_dgrams = 1 };
	cr_expect_eq(tw_sim_open(&sim, &conf), TW_EARG);
	conf = (struct tw_sim_conf){ .receivers = 1, .lines = 1, .queue_dgrams = 0 };
	cr_expect_eq(tw_sim_open(&sim, &conf), TW_EARG);
}
