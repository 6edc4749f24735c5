/* End to end over `udp` on lo: a publisher's packer and sender in one process, libtidewire in the other.
 * Quotes a second that the consumer's poll loop gets, in order, checked by number.
 *
 * The generator is inside the publisher: quotes are copied into the history log as they would be from
 * a bus, packed, sealed, posted on one line or on both.  The publisher stays at most WINDOW datagrams
 * ahead of the consumer (a word in shared memory), so that nothing is lost and the rate is the pipeline's. */
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/slab.h"
#include "config/config.h"
#include "protocol/pack.h"
#include "tests/bench/bench.h"
#include "tidewire/sub.h"
#include "wire/datagram.h"

#define QUOTES        6000000ull
#define WINDOW_MSGS   (1024u * 15u)
#define HISTORY_BYTES (32u << 20)
#define RUNS          7

struct shared {
	_Alignas(128) _Atomic uint64_t consumed; /* messages, by the consumer */
	_Alignas(128) _Atomic uint32_t ready;
	_Atomic uint64_t lost;
};

struct source {
	uint64_t next_seq;
	struct tw_msg_quote quotes[64];
};

static char dir[] = "/dev/shm/tw-bench-XXXXXX";
static char site_path[64];
static struct shared *shared;

static void die(const char *what)
{
	fprintf(stderr, "bench_flow: %s\n", what);
	_exit(1);
}

static void write_site(unsigned int lines)
{
	uint32_t draw = 0;
	if (getrandom(&draw, sizeof(draw), 0) != (ssize_t)sizeof(draw)) {
		die("getrandom");
	}
	uint32_t a = 0xefc00000u | (draw & 0x0003fffeu), b = a | 1;
	FILE *out = fopen(site_path, "we");
	if (out == NULL) {
		die("site.yaml");
	}
	fprintf(out,
		"site: bench-%d\nenvironment: test\nrun_dir: %s/run\nidle: spin\n"
		"fabric: { transport: udp, receive_buffer_kbytes: 16384 }\n"
		"hosts: { h: { address: 127.0.0.1, lines: { a: lo, b: lo } } }\n"
		"venues: [ { id: 1, mic: IEXG } ]\n",
		(int)getpid(), dir);
	fprintf(out, "channels: [ { id: 1, name: c, depth: quotes, groups: { a: %u.%u.%u.%u",
		a >> 24, a >> 16 & 255, a >> 8 & 255, a & 255);
	if (lines == 2) {
		fprintf(out, ", b: %u.%u.%u.%u", b >> 24, b >> 16 & 255, b >> 8 & 255, b & 255);
	}
	fprintf(out, " } } ]\npublishers: [ { name: p, host: h, channels: [1] } ]\n"
		     "subscriber: { wait_us: 100000 }\n");
	if (fclose(out) != 0) {
		die("site.yaml");
	}
}

static int from_memory(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	uint64_t ahead = source->next_seq - 1 -
			 atomic_load_explicit(&shared->consumed, memory_order_relaxed);
	if (source->next_seq > QUOTES || ahead > WINDOW_MSGS) {
		return 0;
	}
	uint32_t n = max_bytes / (uint32_t)sizeof(struct tw_msg_quote);
	if (n > QUOTES + 1 - source->next_seq) {
		n = (uint32_t)(QUOTES + 1 - source->next_seq);
	}
	memcpy(dst, source->quotes, n * sizeof(struct tw_msg_quote));
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq,
					.count = n,
					.bytes = n * (uint32_t)sizeof(struct tw_msg_quote) };
	source->next_seq += n;
	return (int)n;
}

static void publish(const struct tw_site *site, uint64_t session)
{
	struct tw_error err;
	struct tw_fabric_conf fabric;
	struct tw_stats *stats;
	struct tw_tx_endpoint endpoint = { .publisher = 1 };
	struct tw_tx *tx;
	tw_site_fabric_conf(site, 0, &fabric);
	for (uint32_t l = 0; l < site->channels[0].lines; l++) {
		endpoint.groups[l] = site->channels[0].groups[l];
	}
	if (tw_stats_create(&stats, NULL, "bench", "bench_flow", &err) != TW_OK ||
	    tw_stats_add(stats, TW_SET_pub_line, "a", &endpoint.counters[0], &err) != TW_OK ||
	    tw_stats_add(stats, TW_SET_pub_line, "b", &endpoint.counters[1], &err) != TW_OK ||
	    tw_stats_seal(stats, &err) != TW_OK ||
	    tw_udp_tx_open(&tx, &fabric, &endpoint, 1, &err) != TW_OK) {
		die(err.text);
	}
	struct tw_slab slab;
	struct tw_history history;
	if (tw_slab_init(&slab, HISTORY_BYTES, &err) != TW_OK) {
		die(err.text);
	}
	if (tw_history_init(&history, slab.base, slab.size_bytes, fabric.mtu_bytes, session, 1) !=
	    0) {
		die("history");
	}
	const struct tw_pack_conf conf = { .channel = 1,
					   .environment = site->environment_id,
					   .session = session,
					   .publisher = 1,
					   .mtu_bytes = fabric.mtu_bytes,
					   .first_msg_seq = 1,
					   .heartbeat_min_ns = 200000,
					   .heartbeat_max_ns = 100000000 };
	struct tw_pack pack;
	static struct source source;
	source.next_seq = 1;
	for (size_t i = 0; i < sizeof(source.quotes) / sizeof(source.quotes[0]); i++) {
		tw_msg_init(&source.quotes[i], TW_MSG_QUOTE);
		source.quotes[i].head.venue_id = 1;
		source.quotes[i].head.instrument_id = (uint32_t)i + 1;
	}
	tw_pack_init(&pack, &conf, &history, tw_mono_ns());
	while (atomic_load(&shared->consumed) < QUOTES) {
		struct tw_pack_dgram out[TW_TX_BATCH];
		struct tw_tx_dgram post[TW_TX_BATCH];
		int n = tw_pack_poll(&pack, from_memory, &source, tw_mono_ns(), tw_wall_ns(), out,
				     TW_TX_BATCH);
		if (n < 0) {
			die(tw_strstatus(n));
		}
		for (int i = 0; i < n; i++) {
			post[i] = (struct tw_tx_dgram){ .data = out[i].data,
							.len_bytes = out[i].len_bytes };
		}
		if (n > 0) {
			tw_tx_post(tx, 0, post, (unsigned int)n);
			tw_history_publish(&history);
			tw_history_complete(&history, out[n - 1].end_pos);
		}
	}
	tw_tx_close(tx);
	tw_stats_close(stats, true);
	tw_slab_fini(&slab);
}

static void consume(void)
{
	struct tw_error err;
	struct tw_sub_conf conf;
	struct tw_sub *sub;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	tw_sub_conf_init(&conf);
	conf.site_path = site_path;
	if (tw_sub_open(&sub, &conf, &err) != TW_OK) {
		die(err.text);
	}
	if (tw_cpu_pin(1, &err) != TW_OK) {
		die(err.text);
	}
	atomic_store(&shared->ready, 1);
	struct tw_event events[256];
	uint64_t next = 1, lost = 0;
	while (next <= QUOTES) {
		int n = tw_sub_poll(sub, events, 256);
		if (n < 0) {
			die(tw_strstatus(n));
		}
		for (int i = 0; i < n; i++) {
			if (events[i].type == TW_EV_MSG) {
				if (events[i].seq != next) {
					die("out of order");
				}
				next++;
			} else if (events[i].type == TW_EV_LOST) {
				lost += events[i].end_seq - events[i].seq;
				next = events[i].end_seq;
			}
		}
		if (n > 0) {
			atomic_store_explicit(&shared->consumed, next - 1, memory_order_relaxed);
		}
	}
	atomic_store(&shared->lost, lost);
	tw_sub_close(sub);
	_exit(0);
}

/* Quotes a second; *lost counts what was. */
static double flow(unsigned int lines, uint64_t *lost)
{
	struct tw_error err;
	struct tw_site *site;
	write_site(lines);
	if (tw_site_load(&site, site_path, &err) != TW_OK ||
	    tw_site_resolve_lines(site, 0, &err) != TW_OK) {
		die(err.text);
	}
	atomic_store(&shared->consumed, 0);
	atomic_store(&shared->ready, 0);
	pid_t child = fork();
	if (child < 0) {
		die("fork");
	}
	if (child == 0) {
		consume();
	}
	while (atomic_load(&shared->ready) == 0) {
		if (waitpid(child, NULL, WNOHANG) == child) {
			die("the consumer left");
		}
		tw_idle_turn(&(struct tw_idle){ .mode = TW_IDLE_YIELD });
	}
	uint64_t begin_ns = tw_mono_ns();
	publish(site, begin_ns);
	double seconds = (double)(tw_mono_ns() - begin_ns) / 1e9;
	int status = 0;
	if (waitpid(child, &status, 0) != child || status != 0) {
		die("the consumer failed");
	}
	*lost += atomic_load(&shared->lost);
	tw_site_free(site);
	return (double)QUOTES / seconds;
}

int main(void)
{
	struct tw_error err;
	tw_clock_init();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || mkdtemp(dir) == NULL || tw_cpu_allowed() < 2) {
		fprintf(stderr, "bench_flow: two CPUs and /dev/shm are needed\n");
		return 1;
	}
	snprintf(site_path, sizeof(site_path), "%s/site.yaml", dir);
	if (tw_cpu_pin(0, &err) != TW_OK) {
		fprintf(stderr, "bench_flow: %s\n", err.text);
		return 1;
	}
	struct bench_series one = { .n = 0 }, two = { .n = 0 };
	uint64_t lost = 0;
	for (int run = 0; run < RUNS; run++) {
		bench_add(&one, flow(1, &lost));
		bench_add(&two, flow(2, &lost));
	}
	printf("quotes of 64 bytes, 15 a datagram, pack -> udp on lo -> tw_sub_poll, 2 CPUs\n");
	bench_print("one line", &one, "M quotes/s", 1e-6);
	bench_print("two lines", &two, "M quotes/s", 1e-6);
	bench_ratio("two lines to one", &two, &one);
	printf("lost: %llu\n", (unsigned long long)lost);
	unlink(site_path);
	char run_dir[64];
	snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	rmdir(run_dir);
	rmdir(dir);
	return 0;
}
