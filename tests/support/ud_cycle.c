/* Opens and closes what the `verbs` transport is made of, for tests that look for leaks and limits.
 *
 * usage: tw-test-ud cycles|joins|hold|break COUNT ADDRESS GROUP
 *   cycles   so many times: a sender and a receiver, a datagram from one to the other, closed
 *   joins    so many times: joins the group and leaves it, on one event channel
 *   hold     receivers on one group until one is refused or there are so many; prints its error
 *   break    so many times: puts the receiver's queue pair, then the sender's, into the error state
 *            and sends until a datagram comes through again; prints what the lines counted
 * usage: tw-test-ud block COUNT ADDRESS GROUP ADDRESS_B GROUP_B
 *   so many times: stops line A's send queue, sends on both, says that A was overtaken
 * usage: tw-test-ud counters RUN_DIR FILE
 *   the "verbs_line" counters of a counter file: line, name, value
 * Prints descriptors and resident memory after a tenth of the rounds and at the end. */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/verbs/ud.h"

#define HELD_MAX 1024u
#define LIMIT_NS 60000000000ull

struct setting {
	struct tw_fabric_conf conf;
	uint32_t group, count;
};

static _Atomic uint64_t rx_values[TW_N_sub_line_counters], tx_values[TW_N_pub_line_counters];

static int fail(const struct tw_error *err)
{
	fprintf(stderr, "tw-test-ud: %s\n", err->text);
	return tw_exit_status(err->code);
}

static void print_use(const char *when)
{
	unsigned int fds = 0;
	unsigned long pages = 0, resident = 0;
	DIR *dir = opendir("/proc/self/fd");
	while (dir != NULL && readdir(dir) != NULL) {
		fds++;
	}
	if (dir != NULL) {
		(void)closedir(dir);
	}
	FILE *f = fopen("/proc/self/statm", "re");
	if (f != NULL) {
		if (fscanf(f, "%lu %lu", &pages, &resident) != 2) {
			resident = 0;
		}
		(void)fclose(f);
	}
	printf("%s fds %u rss_kb %lu\n", when, fds,
	       resident * (unsigned long)sysconf(_SC_PAGESIZE) / 1024);
	fflush(stdout);
}

static int open_rx(struct tw_rx **rx, const struct setting *s, struct tw_error *err)
{
	const struct tw_rx_endpoint ep = { .group = s->group, .counters = { rx_values, NULL } };
	return tw_ud_rx_open(rx, &s->conf, &ep, 1, err);
}

/* A datagram from one queue to the other; `again`: posted until one comes. */
static int pass_one(struct tw_tx *tx, struct tw_rx *rx, bool again)
{
	static uint8_t bytes[512];
	static uint64_t posted;
	const struct tw_tx_dgram dgram = { .data = bytes, .len_bytes = sizeof(bytes) };
	struct tw_rx_dgram out[TW_RX_BATCH];
	const uint64_t until_ns = tw_mono_ns() + LIMIT_NS;
	const uint64_t first = ++posted;
	int found = 0;
	memcpy(bytes, &posted, sizeof(posted));
	tw_tx_post(tx, 0, &dgram, 1);
	while (found == 0 && tw_mono_ns() < until_ns) {
		const int n = tw_rx_poll(rx, 0, out, TW_RX_BATCH);
		for (int i = 0; i < n; i++) {
			uint64_t number;
			memcpy(&number, out[i].data, sizeof(number));
			found += out[i].len_bytes == sizeof(bytes) && number >= first;
		}
		if (n == 0 && tw_rx_wait(rx, 1000000) == 0 && again) {
			(void)tw_tx_completed(tx, 0);
			memcpy(bytes, &(uint64_t){ ++posted }, sizeof(posted));
			tw_tx_post(tx, 0, &dgram, 1);
		}
	}
	return found > 0 ? TW_OK : TW_ETIMEOUT;
}

static int cycle(const struct setting *s, struct tw_error *err)
{
	const struct tw_tx_endpoint ep = { .groups = { s->group },
					   .counters = { { tx_values, NULL } } };
	struct tw_rx *rx;
	struct tw_tx *tx;
	int rc = open_rx(&rx, s, err);
	if (rc != TW_OK) {
		return rc;
	}
	rc = tw_ud_tx_open(&tx, &s->conf, &ep, 1, err);
	if (rc == TW_OK) {
		rc = pass_one(tx, rx, false);
		if (rc != TW_OK) {
			(void)tw_fail(err, rc, "the datagram did not come");
		}
		tw_tx_close(tx);
	}
	tw_rx_close(rx);
	return rc;
}

static int cycles(const struct setting *s)
{
	struct tw_error err;
	for (uint32_t i = 0; i < s->count; i++) {
		if (cycle(s, &err) != TW_OK) {
			return fail(&err);
		}
		if (i == s->count / 10) {
			print_use("begin");
		}
	}
	print_use("end");
	return 0;
}

static int no_build(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	(void)ud;
	(void)flow;
	(void)err;
	return TW_OK;
}

static uint32_t no_unbuild(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	(void)ud;
	(void)flow;
	return 0;
}

static int joins(const struct setting *s)
{
	static const struct tw_ud_flow_ops ops = { .build = no_build, .unbuild = no_unbuild };
	static struct tw_ud ud;
	static struct tw_ud_flow flow;
	const uint32_t groups[TW_FABRIC_MAX_LINES] = { 1 };
	struct tw_error err;
	flow.ops = &ops;
	flow.group = s->group;
	int rc = tw_ud_init(&ud, "join", &s->conf, groups, &err);
	for (uint32_t i = 0; i < s->count && rc == TW_OK; i++) {
		flow.receives = i % 2 == 0;
		rc = tw_ud_join(&ud, &flow, &err);
		tw_ud_leave(&flow);
		if (i == s->count / 10) {
			print_use("begin");
		}
	}
	if (rc != TW_OK) {
		(void)fail(&err);
	} else {
		print_use("end");
	}
	tw_ud_fini(&ud);
	return rc == TW_OK ? 0 : 1;
}

static int hold(struct setting *s)
{
	static struct tw_rx *held[HELD_MAX];
	struct tw_error err;
	uint32_t n = 0;
	int rc = TW_OK;
	s->conf.receive_depth = 64;
	while (n < s->count && n < HELD_MAX && rc == TW_OK) {
		rc = open_rx(&held[n], s, &err);
		n += rc == TW_OK;
	}
	printf("held %u\n", n);
	if (rc != TW_OK) {
		printf("error %s\n", err.text);
	}
	for (uint32_t i = 0; i < n; i++) {
		tw_rx_close(held[i]);
	}
	return 0;
}

static uint64_t counted(struct tw_ud *ud, unsigned int counter)
{
	return tw_counter_get(&ud->lines[0].counters, counter);
}

/* What a device does to a queue pair that it finds at fault. */
static int break_one(struct tw_ud *ud)
{
	const uint64_t before = counted(ud, TW_VERBS_LINE_rebuilds);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	return ibv_modify_qp(ud->flows->qp, &attr, IBV_QP_STATE) == 0 ? (int)before : -1;
}

static int breaks(const struct setting *s)
{
	const struct tw_tx_endpoint ep = { .groups = { s->group },
					   .counters = { { tx_values, NULL } } };
	struct tw_error err;
	struct tw_rx *rx = NULL;
	struct tw_tx *tx = NULL;
	int rc = open_rx(&rx, s, &err);
	rc = rc == TW_OK ? tw_ud_tx_open(&tx, &s->conf, &ep, 1, &err) : rc;
	if (rc != TW_OK) {
		tw_rx_close(rx);
		return fail(&err);
	}
	for (uint32_t i = 0; i < 2 * s->count && rc == TW_OK; i++) {
		struct tw_ud *ud = i % 2 == 0 ? tw_ud_of_rx(rx) : tw_ud_of_tx(tx);
		const int before = break_one(ud);
		const uint64_t until_ns = tw_mono_ns() + LIMIT_NS;
		while (counted(ud, TW_VERBS_LINE_rebuilds) == (uint64_t)before &&
		       tw_mono_ns() < until_ns && rc == TW_OK) {
			rc = pass_one(tx, rx, true);
		}
		rc = before < 0 || rc != TW_OK ? TW_EINTERNAL : pass_one(tx, rx, true);
	}
	printf("rc %d rebuilds %llu %llu failed %llu %llu unaccounted %llu %llu errors %llu %llu "
	       "skipped %llu\n",
	       rc, (unsigned long long)counted(tw_ud_of_rx(rx), TW_VERBS_LINE_rebuilds),
	       (unsigned long long)counted(tw_ud_of_tx(tx), TW_VERBS_LINE_rebuilds),
	       (unsigned long long)counted(tw_ud_of_rx(rx), TW_VERBS_LINE_rebuilds_failed),
	       (unsigned long long)counted(tw_ud_of_tx(tx), TW_VERBS_LINE_rebuilds_failed),
	       (unsigned long long)counted(tw_ud_of_rx(rx), TW_VERBS_LINE_unaccounted),
	       (unsigned long long)counted(tw_ud_of_tx(tx), TW_VERBS_LINE_unaccounted),
	       (unsigned long long)rx_values[TW_SUB_LINE_receive_errors],
	       (unsigned long long)tx_values[TW_PUB_LINE_errors],
	       (unsigned long long)tx_values[TW_PUB_LINE_skipped]);
	tw_tx_close(tx);
	tw_rx_close(rx);
	return rc == TW_OK ? 0 : 1;
}

/* The flow of a line; the list has them in no order. */
static struct tw_ud_flow *flow_of(struct tw_ud *ud, unsigned int line)
{
	struct tw_ud_flow *f = ud->flows;
	while (f->line != line) {
		f = f->next;
	}
	return f;
}

static bool completes(struct tw_tx *tx, uint64_t posted, uint64_t within_ns)
{
	const uint64_t until_ns = tw_mono_ns() + within_ns;
	while (tw_tx_completed(tx, 0) < posted && tw_mono_ns() < until_ns) {
		(void)usleep(1000);
	}
	return tw_tx_completed(tx, 0) >= posted;
}

static int block(const struct setting *s, uint32_t group_b)
{
	static uint8_t bytes[512];
	static _Atomic uint64_t values_b[TW_N_pub_line_counters];
	const struct tw_tx_endpoint ep = { .groups = { s->group, group_b },
					   .counters = { { tx_values, NULL },
							 { values_b, NULL } } };
	const struct tw_tx_dgram dgram = { .data = bytes, .len_bytes = sizeof(bytes) };
	struct tw_error err;
	struct tw_tx *tx;
	if (tw_ud_tx_open(&tx, &s->conf, &ep, 1, &err) != TW_OK) {
		return fail(&err);
	}
	struct tw_ud *ud = tw_ud_of_tx(tx);
	unsigned int held = 0, released = 0;
	uint64_t posted = 0;
	int rc = TW_OK;
	for (uint32_t i = 0; i < s->count && rc == TW_OK; i++) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD };
		const uint64_t rebuilds = counted(ud, TW_VERBS_LINE_rebuilds);
		tw_tx_post(tx, 0, &dgram, 1);
		posted++;
		if (!completes(tx, posted, LIMIT_NS) ||
		    ibv_modify_qp(flow_of(ud, 0)->qp, &attr, IBV_QP_STATE) != 0) {
			rc = TW_EINTERNAL;
			break;
		}
		tw_tx_post(tx, 0, &dgram, 1);
		posted++;
		held += !completes(tx, posted, 200000000);
		tw_tx_overtaken(tx, 0);
		released += completes(tx, posted, LIMIT_NS);
		const uint64_t until_ns = tw_mono_ns() + LIMIT_NS;
		while (counted(ud, TW_VERBS_LINE_rebuilds) == rebuilds && tw_mono_ns() < until_ns) {
			(void)usleep(1000);
		}
	}
	printf("rc %d held %u released %u rebuilds %llu %llu", rc, held, released,
	       (unsigned long long)counted(ud, TW_VERBS_LINE_rebuilds),
	       (unsigned long long)tw_counter_get(&ud->lines[1].counters, TW_VERBS_LINE_rebuilds));
	printf(" unaccounted %llu %llu\n",
	       (unsigned long long)counted(ud, TW_VERBS_LINE_unaccounted),
	       (unsigned long long)tw_counter_get(&ud->lines[1].counters,
						  TW_VERBS_LINE_unaccounted));
	tw_tx_close(tx);
	return rc == TW_OK ? 0 : 1;
}

static int counters(const char *run_dir, const char *file)
{
	struct tw_stats_reader *reader;
	struct tw_error err;
	if (tw_stats_open(&reader, run_dir, file, &err) != TW_OK) {
		return fail(&err);
	}
	for (uint32_t i = 0; i < tw_stats_value_count(reader); i++) {
		struct tw_stats_value v;
		tw_stats_value_at(reader, i, &v);
		if (strcmp(v.group, "verbs_line") == 0) {
			printf("%c %s %llu\n", v.label[strlen("line ")], v.name,
			       (unsigned long long)v.value);
		}
	}
	tw_stats_reader_close(reader);
	return 0;
}

int main(int argc, char **argv)
{
	struct in_addr address, group, address_b, group_b;
	if (argc == 4 && strcmp(argv[1], "counters") == 0) {
		return counters(argv[2], argv[3]);
	}
	const bool two = argc == 7 && strcmp(argv[1], "block") == 0 &&
			 inet_pton(AF_INET, argv[5], &address_b) == 1 &&
			 inet_pton(AF_INET, argv[6], &group_b) == 1;
	if ((argc != 5 && !two) || inet_pton(AF_INET, argv[3], &address) != 1 ||
	    inet_pton(AF_INET, argv[4], &group) != 1) {
		fputs("usage: tw-test-ud cycles|joins|hold|break COUNT ADDRESS GROUP\n", stderr);
		return 64;
	}
	struct setting s = { .conf = { .mtu_bytes = 1024,
				       .ttl = 8,
				       .rcvbuf_bytes = 256u << 10,
				       .partition_key = TW_VERBS_PKEY },
			     .group = ntohl(group.s_addr),
			     .count = (uint32_t)strtoul(argv[2], NULL, 10) };
	s.conf.lines[0].address = ntohl(address.s_addr);
	if (two) {
		s.conf.lines[1].address = ntohl(address_b.s_addr);
		return block(&s, ntohl(group_b.s_addr));
	}
	return strcmp(argv[1], "cycles") == 0  ? cycles(&s)
	       : strcmp(argv[1], "joins") == 0 ? joins(&s)
	       : strcmp(argv[1], "hold") == 0  ? hold(&s)
	       : strcmp(argv[1], "break") == 0 ? breaks(&s)
					       : 64;
}
