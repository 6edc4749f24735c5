/* End to end over `udp` on lo (flow.h): quotes a second that the consumer's poll loop gets, on one line
 * and on two; and goodput and latency where 1 % of the datagrams of each line are lost, beside none.
 *
 * The runs under loss and those beside them have the same site: repair from history over TCP for what no
 * line brought, in threads on the same two CPUs, for which both loops give way when they are idle.  At
 * full speed they yield; on a schedule they sleep.
 * Latency is taken at a fixed rate, from the time in the schedule to the consumer.
 *
 * usage: bench_flow [QUOTES_PER_S] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/bench/flow.h"

#define QUOTES      6000000ull
#define RUNS        7
#define PACED_PER_S 200000ull
#define PACED_S     0.5
#define LOSS_PCT    1u

struct goodput { /* series of one setting */
	struct bench_series rate, handed_p50, handed_p99, received_p99, consumed_p99;
	uint64_t lost, by_line, by_history, dropped, datagrams;
};

static uint64_t paced_per_s = PACED_PER_S;

static void add_up(struct goodput *g, const struct flow_result *r)
{
	g->lost += r->lost;
	g->by_line += r->repaired_by_line;
	g->by_history += r->repaired_by_history;
	g->dropped += r->fault_dropped;
	g->datagrams += r->datagrams;
}

static void measure(struct goodput *g, unsigned int lines, unsigned int loss_pct)
{
	struct flow_conf conf = { .quotes = QUOTES,
				  .lines = lines,
				  .loss_pct = loss_pct,
				  .repair = true,
				  .shares = true };
	struct flow_result r;
	flow_run(&conf, &r);
	bench_add(&g->rate, r.quotes_per_s);
	add_up(g, &r);
	conf.quotes_per_s = paced_per_s;
	conf.quotes = (uint64_t)((double)paced_per_s * PACED_S);
	flow_run(&conf, &r);
	bench_add(&g->handed_p50, r.p50_ns);
	bench_add(&g->handed_p99, r.p99_ns);
	bench_add(&g->received_p99, r.sent_to_received_p99_ns);
	bench_add(&g->consumed_p99, r.received_to_consumed_p99_ns);
	add_up(g, &r);
}

static void print(const char *name, const struct goodput *g)
{
	printf("%s: %llu datagrams taken, %llu dropped; quotes: %llu repaired by the other line, "
	       "%llu from history, %llu lost\n",
	       name, (unsigned long long)g->datagrams, (unsigned long long)g->dropped,
	       (unsigned long long)g->by_line, (unsigned long long)g->by_history,
	       (unsigned long long)g->lost);
	bench_print("  goodput", &g->rate, "M quotes/s", 1e-6);
	bench_print("  paced: schedule to consumer p50", &g->handed_p50, "us", 1e-3);
	bench_print("  paced: schedule to consumer p99", &g->handed_p99, "us", 1e-3);
	bench_print("  paced: sent_to_received p99", &g->received_p99, "us", 1e-3);
	bench_print("  paced: received_to_consumed p99", &g->consumed_p99, "us", 1e-3);
}

static void loss(void)
{
	static struct goodput none[2], some[2];
	for (int run = 0; run < RUNS; run++) {
		for (unsigned int i = 0; i < 2; i++) {
			measure(&none[i], i + 1, 0);
			measure(&some[i], i + 1, LOSS_PCT);
		}
	}
	printf("\n%u %% of datagrams lost on each line, repair over TCP; paced at %llu quotes/s\n",
	       LOSS_PCT, (unsigned long long)paced_per_s);
	for (unsigned int i = 0; i < 2; i++) {
		const char *lines = i == 0 ? "one line" : "two lines";
		char name[64];
		(void)snprintf(name, sizeof(name), "%s, no loss", lines);
		print(name, &none[i]);
		(void)snprintf(name, sizeof(name), "%s, %u %%", lines, LOSS_PCT);
		print(name, &some[i]);
		bench_ratio("goodput, loss to none", &some[i].rate, &none[i].rate);
		bench_ratio("p99 schedule to consumer", &some[i].handed_p99, &none[i].handed_p99);
		bench_ratio("p99 sent_to_received", &some[i].received_p99, &none[i].received_p99);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		paced_per_s = strtoull(argv[1], NULL, 10);
		if (paced_per_s < 1000 || paced_per_s > 100000000) {
			fprintf(stderr,
				"usage: bench_flow [QUOTES_PER_S]  (1,000 to 100,000,000)\n");
			return 1;
		}
	}
	struct bench_series rates[2] = { { .n = 0 }, { .n = 0 } };
	uint64_t lost = 0;
	flow_begin("bench_flow");
	for (int run = 0; run < RUNS; run++) {
		for (unsigned int i = 0; i < 2; i++) {
			struct flow_conf conf = { .quotes = QUOTES, .lines = i + 1 };
			struct flow_result r;
			flow_run(&conf, &r);
			bench_add(&rates[i], r.quotes_per_s);
			lost += r.lost;
		}
	}
	printf("quotes of 64 bytes, 15 a datagram, pack -> udp on lo -> tw_sub_poll, 2 CPUs\n");
	bench_print("one line", &rates[0], "M quotes/s", 1e-6);
	bench_print("two lines", &rates[1], "M quotes/s", 1e-6);
	bench_ratio("two lines to one", &rates[1], &rates[0]);
	printf("lost: %llu\n", (unsigned long long)lost);
	loss();
	flow_end();
	return 0;
}
