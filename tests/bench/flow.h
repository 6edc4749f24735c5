/* A flow of quotes over `udp` on lo, as the benches measure it: a publisher's packer and sender in this
 * process, libtidewire in a child, which checks every number.
 *
 * The generator is inside the publisher: quotes are copied into the history log as they would be from a
 * bus, packed, sealed, posted on one line or on both.  The publisher stays at most FLOW_WINDOW_MSGS ahead
 * of the consumer (a word in shared memory), so that nothing is lost by queueing and the rate is the
 * pipeline's; or it follows a schedule, where latency is asked for.
 * Threads   the two loops on the first two CPUs; a repair service and its client share those. */
#ifndef TW_TESTS_BENCH_FLOW_H
#define TW_TESTS_BENCH_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_WINDOW_MSGS (1024u * 15u)

struct flow_conf {
	uint64_t quotes;
	uint64_t quotes_per_s; /* 0: as fast as it goes */
	unsigned int lines;    /* 1 or 2 */
	unsigned int loss_pct; /* of datagrams, on each line independently, by the fault layer */
	bool repair;           /* what no line brought comes from history over TCP */
	/* others need the CPUs of the two loops, whose idle turns give way: at full speed they yield, on
	 * a schedule they sleep, the consumer in tw_sub_wait() */
	bool shares;
};

struct flow_result {
	double quotes_per_s; /* begin of publishing to the consumer's last quote; lost ones are not counted */
	double p50_ns, p99_ns; /* made to handed to the consumer, one quote in 15; with a schedule:
				 * from its time in the schedule */
	double sent_to_received_p99_ns, received_to_consumed_p99_ns; /* tw_sub_stats_read() */
	uint64_t lost, repaired_by_line, repaired_by_history, fault_dropped, datagrams;
};

/* Pins this process; `name` is for messages.  Exits where it cannot work. */
void flow_begin(const char *name);
void flow_run(const struct flow_conf *conf, struct flow_result *result);
void flow_end(void);

#endif
