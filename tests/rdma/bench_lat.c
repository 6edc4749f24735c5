/* Latency over real verbs, for tests/rdma/bench.py to set beside perftest's: two processes, one outstanding
 * operation, both polling.
 *
 * usage: bench_lat ud ADDRESS BYTES ROUNDS     half the round trip of a datagram of BYTES, multicast both ways
 *        bench_lat read ADDRESS DGRAMS ROUNDS  reading DGRAMS datagrams of another process's history by RDMA READ
 * Prints what each round took, sorted, as `us X`.  A datagram that does not come within LOST_NS is sent again and its round not taken;
 * the bytes of every read are checked, outside of what is timed.
 * Threads   each process one, on a CPU of its own, and what the fabric has. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "fabric/fabric.h"
#include "tests/rdma/rc_bed.h"

#define GROUP_PING  0xefc14d01u /* 239.193.77.1 */
#define GROUP_PONG  0xefc14d02u
#define SLOTS       256u
#define WARM_ROUNDS 100u
#define LOST_NS     (10000 * RC_MS)
#define ROUNDS_MAX  100000u

static uint64_t samples[ROUNDS_MAX];

static void must(int rc, const struct tw_error *err)
{
	if (rc < 0) {
		rc_die(err->text);
	}
}

static void pin(int cpu)
{
	struct tw_error err;
	must(tw_cpu_pin(cpu, &err), &err);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void print_samples(uint32_t n, double divisor)
{
	RC_MUST(n > 0);
	qsort(samples, n, sizeof(samples[0]), compare);
	for (uint32_t i = 0; i < n; i++) {
		printf("us %.3f\n", (double)samples[i] / divisor / 1000);
	}
}

/* --- UD ----------------------------------------------------------------------------------------- */

struct side {
	struct tw_tx *tx;
	struct tw_rx *rx;
	uint8_t *memory;
	uint64_t posted, completed;
	uint32_t bytes;
};

static void open_side(struct side *side, uint32_t addr, uint32_t bytes, bool pings)
{
	static _Atomic uint64_t rx_values[TW_N_sub_line_counters],
		tx_values[TW_N_pub_line_counters];
	struct tw_error err;
	struct tw_fabric_conf conf = { .mtu_bytes = RC_MTU,
				       .tos = 136,
				       .ttl = 1,
				       .rcvbuf_bytes = 1u << 20,
				       .partition_key = 0xffff,
				       .lines = { { .address = addr }, { .address = addr } } };
	side->bytes = bytes;
	side->memory = aligned_alloc(4096, SLOTS * RC_MTU);
	RC_MUST(side->memory != NULL);
	memset(side->memory, 0, SLOTS * RC_MTU);
	const struct tw_tx_endpoint to = { .groups = { pings ? GROUP_PING : GROUP_PONG },
					   .publisher = pings ? 1 : 2,
					   .counters = { { tx_values, NULL } },
					   .memory = side->memory,
					   .memory_bytes = SLOTS * RC_MTU };
	const struct tw_rx_endpoint from = { .group = pings ? GROUP_PONG : GROUP_PING,
					     .counters = { rx_values, NULL } };
	must(tw_ud_rx_open(&side->rx, &conf, &from, 1, &err), &err);
	must(tw_ud_tx_open(&side->tx, &conf, &to, 1, &err), &err);
}

/* The memory of a slot is free again long before its turn comes: there is one datagram on its way. */
static void post(struct side *side, uint64_t number)
{
	uint8_t *slot = side->memory + side->posted++ % SLOTS * RC_MTU;
	memcpy(slot, &number, sizeof(number));
	const struct tw_tx_dgram dgram = { .data = slot, .len_bytes = side->bytes };
	tw_tx_post(side->tx, 0, &dgram, 1);
	side->completed = tw_tx_completed(side->tx, 0);
}

/* Number of the newest datagram that has come; 0: none. */
static uint64_t take(struct side *side)
{
	struct tw_rx_dgram out[TW_RX_BATCH];
	uint64_t number = 0;
	int n = tw_rx_poll(side->rx, 0, out, TW_RX_BATCH);
	RC_MUST(n >= 0);
	for (int i = 0; i < n; i++) {
		RC_MUST(out[i].len_bytes == side->bytes);
		memcpy(&number, out[i].data, sizeof(number));
	}
	return number;
}

static void pong(uint32_t addr, uint32_t bytes)
{
	struct side side = { 0 };
	open_side(&side, addr, bytes, false);
	for (;;) {
		uint64_t number = take(&side);
		if (number != 0) {
			post(&side, number);
		}
	}
}

/* How long it took; 0: it was lost. */
static uint64_t round_trip(struct side *side, uint64_t number)
{
	uint64_t begin_ns = tw_mono_ns(), ns = 0;
	post(side, number);
	while (take(side) != number) {
		ns = tw_mono_ns() - begin_ns;
		if (ns > LOST_NS) {
			return 0;
		}
	}
	return tw_mono_ns() - begin_ns;
}

static void ping(uint32_t addr, uint32_t bytes, uint32_t rounds)
{
	struct side side = { 0 };
	uint64_t number = 0;
	uint32_t taken = 0, lost = 0;
	open_side(&side, addr, bytes, true);
	RC_UNTIL(round_trip(&side, ++number) != 0); /* until the other is there */
	for (uint32_t i = 0; i < WARM_ROUNDS + rounds; i++) {
		uint64_t ns = round_trip(&side, ++number);
		lost += ns == 0;
		if (i >= WARM_ROUNDS && ns != 0) {
			samples[taken++] = ns;
		}
	}
	print_samples(taken, 2);
	printf("lost %u of %u\n", lost, WARM_ROUNDS + rounds);
	tw_tx_close(side.tx);
	tw_rx_close(side.rx);
	free(side.memory);
}

/* --- READ --------------------------------------------------------------------------------------- */

static struct rc_bed bed;

/* Both processes make the same histories; what they read is compared with the rule that made them. */
static void serve(uint32_t addr, int port_fd)
{
	rc_bed_open(&bed, addr);
	rc_serve(&bed, rc_server_conf(&bed), true);
	RC_MUST(write(port_fd, &bed.port, sizeof(bed.port)) == (ssize_t)sizeof(bed.port));
	for (;;) {
		(void)pause();
	}
}

/* The newest datagrams that lie one after the other, not at both ends of the log. */
static struct tw_read in_one_piece(const struct rc_channel *channel, uint32_t dgrams)
{
	for (uint64_t first = channel->newest - dgrams + 1;; first--) {
		struct tw_read read = rc_range(channel, first, dgrams);
		if (read.begin % RC_UNITS + (read.end - read.begin) <= RC_UNITS) {
			return read;
		}
	}
}

static void read_history(uint32_t addr, int port_fd, uint32_t dgrams, uint32_t rounds)
{
	struct tw_read_done done;
	rc_bed_open(&bed, addr);
	RC_MUST(read(port_fd, &bed.port, sizeof(bed.port)) == (ssize_t)sizeof(bed.port));
	struct tw_reader *reader = rc_reader(&bed, "bench");
	rc_wait_up(reader, true);
	const struct tw_read read = in_one_piece(&bed.channels[0], dgrams);
	uint32_t taken = 0;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < WARM_ROUNDS + rounds; i++) {
		uint64_t begin_ns = tw_mono_ns();
		rc_read(reader, &read, &done);
		uint64_t ns = tw_mono_ns() - begin_ns;
		RC_MUST(done.status == TW_READ_OK && done.one_sided);
		RC_MUST(rc_is_whole(&bed.channels[0], &read, done.data, done.len_bytes));
		bytes = done.len_bytes;
		tw_reader_release(reader, &done);
		if (i >= WARM_ROUNDS) {
			samples[taken++] = ns;
		}
	}
	print_samples(taken, 1);
	printf("bytes %llu\n", (unsigned long long)bytes);
	tw_reader_close(reader);
	rc_bed_close(&bed);
}

int main(int argc, char **argv)
{
	struct in_addr in;
	int port[2];

	if (argc != 5 || inet_pton(AF_INET, argv[2], &in) != 1) {
		fprintf(stderr, "usage: bench_lat ud|read ADDRESS BYTES|DGRAMS ROUNDS\n");
		return 64;
	}
	const bool ud = strcmp(argv[1], "ud") == 0;
	const uint32_t addr = ntohl(in.s_addr);
	const uint32_t size = (uint32_t)strtoul(argv[3], NULL, 10);
	const uint32_t rounds = (uint32_t)strtoul(argv[4], NULL, 10);
	RC_MUST(rounds <= ROUNDS_MAX && size > 0 && size <= RC_MTU);
	RC_MUST(pipe(port) == 0);
	tw_clock_init();
	pid_t child = fork();
	RC_MUST(child >= 0);
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(1);
		if (ud) {
			pong(addr, size);
		}
		serve(addr, port[1]);
	}
	pin(0);
	if (ud) {
		ping(addr, size, rounds);
	} else {
		read_history(addr, port[0], size, rounds);
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	return 0;
}
