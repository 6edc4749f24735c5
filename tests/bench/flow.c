/* A flow of quotes over `udp` on lo: see flow.h. */
#include "tests/bench/flow.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/hist.h"
#include "base/slab.h"
#include "config/config.h"
#include "fabric/reader.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"
#include "tests/bench/bench.h"
#include "tidewire/sub.h"
#include "wire/datagram.h"

#define HISTORY_BYTES   (32u << 20)
#define SAMPLE_MSGS     15u /* one latency for so many quotes */
#define SAMPLE_QUOTES   64u
#define PACED_SLEEP_NS  20000
#define WAIT_NS         1000000u
#define IDLE_TIMEOUT_NS 5000000000ull

struct shared {
	_Alignas(128) _Atomic uint64_t consumed; /* messages, by the consumer */
	_Alignas(128) _Atomic uint32_t site_written;
	_Atomic uint32_t ready;
	_Atomic uint64_t end_ns;
	struct flow_result result;
	struct tw_hist hist;
};

struct source {
	const struct flow_conf *conf;
	uint64_t next_seq, begin_ns;
	struct tw_msg_quote quotes[SAMPLE_QUOTES];
};

/* The publisher's side of a run. */
struct publisher {
	const struct flow_conf *conf;
	const struct tw_site *site;
	struct tw_fabric_conf fabric;
	struct tw_stats *stats;
	struct tw_tx *tx;
	struct tw_tx_endpoint endpoint;
	struct tw_slab slab;
	struct tw_history history;
	struct tw_history_view view;
	struct tw_history_index index;
	struct tw_history_mark *marks;
	struct tw_read_server *server;
	struct tw_counters server_counters, client_counters;
	struct tw_pack pack;
	struct source source;
};

static const char *program = "flow";
static char dir[] = "/dev/shm/tw-bench-XXXXXX";
static char site_path[64];
static struct shared *shared;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", program, what);
	_exit(1);
}

static void wait_for(const _Atomic uint32_t *word, pid_t child)
{
	while (atomic_load(word) == 0) {
		if (child != 0 && waitpid(child, NULL, WNOHANG) == child) {
			die("the consumer left");
		}
		sched_yield();
	}
}

static void write_site(const struct flow_conf *conf, uint32_t group, uint16_t repair_port)
{
	uint32_t a = group, b = group | 1;
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
	if (conf->lines == 2) {
		fprintf(out, ", b: %u.%u.%u.%u", b >> 24, b >> 16 & 255, b >> 8 & 255, b & 255);
	}
	fprintf(out, " } } ]\npublishers: [ { name: p, host: h, channels: [1]");
	if (conf->repair) {
		fprintf(out,
			", repair_port: %u, repair_max_mbps: 0, repair_client_max_mbps: 0 } ]\n"
			"subscriber: { wait_us: 200, store_datagrams: 16384, repair: [p], "
			"max_mbps: "
			"0, "
			"attempts: 100 }\n",
			repair_port);
	} else {
		fprintf(out, " } ]\nsubscriber: { wait_us: 100000 }\n");
	}
	if (conf->loss_pct != 0) {
		fprintf(out, "fault: { seed: %d, lines: { a: { loss_pct: %u }", (int)getpid(),
			conf->loss_pct);
		if (conf->lines == 2) {
			fprintf(out, ", b: { loss_pct: %u }", conf->loss_pct);
		}
		fprintf(out, " } }\n");
	}
	if (fclose(out) != 0) {
		die("site.yaml");
	}
}

/* ---- publisher ---- */

static uint64_t scheduled_ns(const struct source *source, uint64_t seq)
{
	return source->begin_ns +
	       (uint64_t)((double)(seq - 1) * 1e9 / (double)source->conf->quotes_per_s);
}

static int from_memory(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct source *source = ctx;
	uint64_t quotes = source->conf->quotes;
	uint64_t ahead = source->next_seq - 1 -
			 atomic_load_explicit(&shared->consumed, memory_order_relaxed);
	if (source->next_seq > quotes || ahead > FLOW_WINDOW_MSGS) {
		return 0;
	}
	uint64_t n = max_bytes / sizeof(struct tw_msg_quote), wall_ns = tw_wall_ns();
	if (n > quotes + 1 - source->next_seq) {
		n = quotes + 1 - source->next_seq;
	}
	if (n > SAMPLE_QUOTES) {
		n = SAMPLE_QUOTES;
	}
	if (source->conf->quotes_per_s != 0) {
		uint64_t due = 0;
		while (due < n && scheduled_ns(source, source->next_seq + due) <= wall_ns) {
			source->quotes[due].head.exchange_ns =
				scheduled_ns(source, source->next_seq + due);
			due++;
		}
		n = due;
	} else { /* the rest of the batch is as old as its first one */
		for (uint64_t i = 0; i < n; i++) {
			source->quotes[i].head.exchange_ns = wall_ns;
		}
	}
	if (n == 0) {
		return 0;
	}
	memcpy(dst, source->quotes, n * sizeof(struct tw_msg_quote));
	*batch = (struct tw_bus_batch){ .first_seq = source->next_seq,
					.count = (uint32_t)n,
					.bytes = (uint32_t)(n * sizeof(struct tw_msg_quote)) };
	source->next_seq += n;
	return (int)n;
}

/* On the repair server's thread. */
static int read_history(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	struct publisher *p = ctx;
	if (read->by_seq) {
		return tw_history_read_msgs(&p->view, &p->index, read->session, read->begin,
					    read->end, dst, max_bytes);
	}
	return tw_history_read(&p->view, read->session, read->publisher, read->begin, read->end,
			       dst, max_bytes);
}

static void open_history(struct publisher *p, uint64_t session)
{
	struct tw_error err;
	if (tw_slab_init(&p->slab, HISTORY_BYTES, &err) != TW_OK) {
		die(err.text);
	}
	if (tw_history_view_make(&p->view, p->slab.base, p->slab.size_bytes, p->fabric.mtu_bytes) !=
		    TW_OK ||
	    tw_history_init(&p->history, p->slab.base, p->slab.size_bytes, p->fabric.mtu_bytes,
			    session, 1) != TW_OK) {
		die("history");
	}
	uint64_t marks = tw_history_index_marks(p->view.units);
	p->marks = calloc(marks, sizeof(p->marks[0]));
	if (p->marks == NULL) {
		die("history index: out of memory");
	}
	tw_history_index_init(&p->index, p->marks, marks);
	tw_history_index_begin(&p->index);
}

static void open_publisher(struct publisher *p, uint64_t session)
{
	struct tw_error err;
	tw_site_fabric_conf(p->site, 0, &p->fabric);
	p->endpoint.publisher = 1;
	for (uint32_t l = 0; l < p->site->channels[0].lines; l++) {
		p->endpoint.groups[l] = p->site->channels[0].groups[l];
	}
	if (tw_stats_create(&p->stats, NULL, "bench", program, &err) != TW_OK ||
	    tw_stats_add(p->stats, TW_SET_pub_line, "a", &p->endpoint.counters[0], &err) != TW_OK ||
	    tw_stats_add(p->stats, TW_SET_pub_line, "b", &p->endpoint.counters[1], &err) != TW_OK ||
	    tw_stats_add(p->stats, TW_SET_read_server, "repair", &p->server_counters, &err) !=
		    TW_OK ||
	    tw_stats_add(p->stats, TW_SET_read_client, "client 1", &p->client_counters, &err) !=
		    TW_OK ||
	    tw_stats_seal(p->stats, &err) != TW_OK ||
	    tw_udp_tx_open(&p->tx, &p->fabric, &p->endpoint, 1, &err) != TW_OK) {
		die(err.text);
	}
	open_history(p, session);
	if (p->conf->repair) {
		const struct tw_read_server_channel channel = { .channel = 1,
								.read = read_history,
								.ctx = p };
		const struct tw_read_server_conf server = { .addr = p->site->hosts[0].address,
							    .environment = p->site->environment_id,
							    .channels = &channel,
							    .channel_count = 1,
							    .max_clients = 1,
							    .idle_timeout_ns = IDLE_TIMEOUT_NS,
							    .cpu = -1,
							    .counters = p->server_counters,
							    .clients = &p->client_counters };
		if (tw_tcp_read_server_open(&p->server, &server, &err) != TW_OK) {
			die(err.text);
		}
	}
	const struct tw_pack_conf conf = { .channel = 1,
					   .environment = p->site->environment_id,
					   .session = session,
					   .publisher = 1,
					   .mtu_bytes = p->fabric.mtu_bytes,
					   .first_msg_seq = 1,
					   .heartbeat_min_ns = 200000,
					   .heartbeat_max_ns = 100000000 };
	tw_pack_init(&p->pack, &conf, &p->history, tw_mono_ns());
	p->source = (struct source){ .conf = p->conf, .next_seq = 1 };
	for (uint32_t i = 0; i < SAMPLE_QUOTES; i++) {
		tw_msg_init(&p->source.quotes[i], TW_MSG_QUOTE);
		p->source.quotes[i].head.venue_id = 1;
		p->source.quotes[i].head.instrument_id = i + 1;
	}
}

static void close_publisher(struct publisher *p)
{
	tw_read_server_close(p->server);
	tw_tx_close(p->tx);
	tw_stats_close(p->stats, true);
	tw_slab_fini(&p->slab);
	free(p->marks);
}

static void post(struct publisher *p, const struct tw_pack_dgram *out, unsigned int n)
{
	struct tw_tx_dgram dgrams[TW_TX_BATCH];
	struct tw_wire_hdr hdr;
	for (unsigned int i = 0; i < n; i++) {
		dgrams[i] =
			(struct tw_tx_dgram){ .data = out[i].data, .len_bytes = out[i].len_bytes };
	}
	memcpy(&hdr, out[0].data, sizeof(hdr));
	tw_history_index_note(&p->index, hdr.log_pos, hdr.first_msg_seq);
	tw_tx_post(p->tx, 0, dgrams, n);
	tw_history_publish(&p->history);
	tw_history_complete(&p->history, out[n - 1].end_pos);
}

/* The publisher's idle turn where others need its CPU. */
static void give_way(const struct flow_conf *conf)
{
	if (conf->quotes_per_s == 0) {
		sched_yield();
	} else {
		nanosleep(&(struct timespec){ .tv_nsec = PACED_SLEEP_NS }, NULL);
	}
}

static void publish(struct publisher *p)
{
	(void)prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* sleep no longer than asked for */
	while (atomic_load_explicit(&shared->consumed, memory_order_relaxed) < p->conf->quotes) {
		struct tw_pack_dgram out[TW_TX_BATCH];
		int n = tw_pack_poll(&p->pack, from_memory, &p->source, tw_mono_ns(), tw_wall_ns(),
				     out, tw_tx_batch(p->tx));
		if (n < 0) {
			die(tw_strstatus(n));
		}
		if (n > 0) {
			post(p, out, (unsigned int)n);
		} else if (p->conf->shares) {
			give_way(p->conf);
		}
	}
}

/* ---- consumer ---- */

/* Quote `seq` is handed over; numbers and order are checked. */
static void take(const struct tw_event *event, uint64_t *next, uint64_t *lost, uint64_t wall_ns)
{
	if (event->type == TW_EV_MSG) {
		if (event->seq != *next) {
			die("out of order");
		}
		if (*next % SAMPLE_MSGS == 0) {
			struct tw_msg_head head;
			memcpy(&head, event->data, sizeof(head));
			tw_hist_record(&shared->hist, (int64_t)(wall_ns - head.exchange_ns));
		}
		++*next;
	} else if (event->type == TW_EV_LOST) {
		*lost += event->end_seq - event->seq;
		*next = event->end_seq;
	} else if (event->type == TW_EV_DOWN) {
		die("the channel is down");
	}
}

static void report(const struct tw_sub *sub, const struct flow_conf *conf, uint64_t lost)
{
	struct flow_result *r = &shared->result;
	struct tw_sub_stats stats = { .size = sizeof(stats) };
	struct tw_hist_summary summary;
	if (tw_sub_stats_read(sub, 1, &stats) != TW_OK) {
		die("tw_sub_stats_read");
	}
	tw_hist_summarize(&shared->hist, &summary);
	*r = (struct flow_result){ .p50_ns = (double)summary.p50_ns,
				   .p99_ns = (double)summary.p99_ns,
				   .sent_to_received_p99_ns = (double)stats.sent_to_received.p99_ns,
				   .received_to_consumed_p99_ns =
					   (double)stats.received_to_consumed.p99_ns,
				   .lost = lost,
				   .repaired_by_line = stats.repaired_by_line,
				   .repaired_by_history = stats.repaired_by_history };
	for (uint32_t l = 0; l < conf->lines; l++) {
		r->fault_dropped += stats.lines[l].fault_dropped;
		r->datagrams += stats.lines[l].datagrams;
	}
}

static void consume(const struct flow_conf *conf)
{
	struct tw_error err;
	struct tw_sub_conf sub_conf;
	struct tw_sub *sub;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	wait_for(&shared->site_written, 0);
	/* before open: threads of the library inherit it */
	if (tw_cpu_pin(1, &err) != TW_OK) {
		die(err.text);
	}
	tw_sub_conf_init(&sub_conf);
	sub_conf.site_path = site_path;
	if (tw_sub_open(&sub, &sub_conf, &err) != TW_OK) {
		die(err.text);
	}
	atomic_store(&shared->ready, 1);
	struct tw_event events[256];
	uint64_t next = 1, lost = 0;
	while (next <= conf->quotes) {
		int n = tw_sub_poll(sub, events, 256);
		if (n < 0) {
			die(tw_strstatus(n));
		}
		uint64_t wall_ns = n > 0 ? tw_wall_ns() : 0;
		for (int i = 0; i < n; i++) {
			take(&events[i], &next, &lost, wall_ns);
		}
		if (n > 0) {
			atomic_store_explicit(&shared->consumed, next - 1, memory_order_relaxed);
		} else if (conf->shares && conf->quotes_per_s == 0) {
			sched_yield();
		} else if (conf->shares && tw_sub_wait(sub, WAIT_NS) < 0) {
			die("tw_sub_wait");
		}
	}
	atomic_store(&shared->end_ns, tw_mono_ns());
	report(sub, conf, lost);
	tw_sub_close(sub);
	_exit(0);
}

/* ---- a run ---- */

static uint32_t draw_group(void)
{
	uint32_t draw = 0;
	if (getrandom(&draw, sizeof(draw), 0) != (ssize_t)sizeof(draw)) {
		die("getrandom");
	}
	return 0xefc00000u | (draw & 0x0003fffeu);
}

static struct tw_site *load_site(void)
{
	struct tw_error err;
	struct tw_site *site;
	if (tw_site_load(&site, site_path, &err) != TW_OK ||
	    tw_site_resolve_lines(site, 0, &err) != TW_OK) {
		die(err.text);
	}
	return site;
}

void flow_run(const struct flow_conf *conf, struct flow_result *result)
{
	static struct publisher publisher;
	uint32_t group = draw_group();
	memset(shared, 0, sizeof(*shared));
	pid_t child = fork(); /* before there are threads */
	if (child < 0) {
		die("fork");
	}
	if (child == 0) {
		consume(conf);
	}
	write_site(conf, group, TW_ROCE_PORT); /* the port is known when the server is open */
	struct tw_site *site = load_site();
	publisher = (struct publisher){ .conf = conf, .site = site };
	open_publisher(&publisher, tw_mono_ns());
	if (conf->repair) {
		write_site(conf, group, tw_read_server_port(publisher.server));
	}
	atomic_store(&shared->site_written, 1);
	wait_for(&shared->ready, child);
	while (conf->repair &&
	       tw_counter_get(&publisher.server_counters, TW_READ_SERVER_clients) == 0) {
		sched_yield();
	}
	uint64_t begin_ns = tw_mono_ns();
	publisher.source.begin_ns = tw_wall_ns();
	publish(&publisher);
	int status = 0;
	if (waitpid(child, &status, 0) != child || status != 0) {
		die("the consumer failed");
	}
	close_publisher(&publisher);
	tw_site_free(site);
	*result = shared->result;
	result->quotes_per_s = (double)(conf->quotes - result->lost) * 1e9 /
			       (double)(atomic_load(&shared->end_ns) - begin_ns);
}

void flow_begin(const char *name)
{
	struct tw_error err;
	program = name;
	tw_clock_init();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED || mkdtemp(dir) == NULL || tw_cpu_allowed() < 2) {
		die("two CPUs and /dev/shm are needed");
	}
	(void)snprintf(site_path, sizeof(site_path), "%s/site.yaml", dir);
	if (tw_cpu_pin(0, &err) != TW_OK) {
		die(err.text);
	}
}

void flow_end(void)
{
	char run_dir[64];
	unlink(site_path);
	(void)snprintf(run_dir, sizeof(run_dir), "%s/run", dir);
	rmdir(run_dir);
	rmdir(dir);
	munmap(shared, sizeof(*shared));
}
