/* The `udp` transport beside bare sockets that move the same frames the same way.
 *
 * Two processes on the loopback interface: a sender on the first allowed CPU, a receiver on the
 * second, bound by a window so that nothing is dropped.  Runs alternate (bare, ours, bare, ours ...);
 * `bare` has sockets of the same options and sends frames that lie ready, without looking at them on
 * either side: what is left between the two is gathering, CRCs and checking.
 *
 * Latency is one-way from the intended time of a fixed schedule, one datagram at a time.
 *
 * usage: bench_udp [RUNS [DATAGRAMS]] */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "fabric/fabric.h"
#include "fabric/udp/roce.h"
#include "fabric/udp/udp.h"
#include "tests/bench/bench.h"

#define DGRAM_BYTES 1024u
#define FRAME_BYTES (DGRAM_BYTES + TW_ROCE_OVERHEAD_BYTES)
#define BATCH       62u   /* what one GSO send carries */
#define WINDOW      1024u /* datagrams under way */
#define PERIOD_NS   50000u
#define SAMPLES     10000u /* a multiple of 100 */
#define BIG_BYTES   65536u

enum mode { BARE_GSO, OURS_GSO, BARE_PLAIN, OURS_PLAIN, MODES };
static const char *const mode_names[MODES] = { "bare GSO/GRO", "ours GSO/GRO",
					       "bare sendmmsg/recvmmsg", "ours sendmmsg/recvmmsg" };

/* Between the two processes. */
struct shared {
	_Atomic uint64_t received; /* written by the receiver */
	_Atomic int ready;
	_Atomic int stop;
	uint64_t cpu_ns; /* the receiver's, of polls that brought something */
	uint64_t latency_ns[SAMPLES];
};
static struct shared *shared;

static struct tw_fabric_conf conf;
static uint32_t group;
static _Atomic uint64_t counter_values[64];

static void die(const char *what)
{
	fprintf(stderr, "bench_udp: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* One side of a run, either way. */
struct side {
	enum mode mode;
	int fd; /* bare */
	struct tw_tx *tx;
	struct tw_rx *rx;
	struct sockaddr_in to;
	struct mmsghdr msgs[BATCH];
	struct iovec iov[BATCH];
	struct tw_tx_dgram dgrams[BATCH];
	_Alignas(struct cmsghdr) uint8_t control[BATCH][CMSG_SPACE(sizeof(int))];
};
static _Alignas(64) uint8_t frames[BATCH * BIG_BYTES];

static bool is_bare(enum mode mode)
{
	return mode == BARE_GSO || mode == BARE_PLAIN;
}

static bool is_gso(enum mode mode)
{
	return mode == BARE_GSO || mode == OURS_GSO;
}

static void open_bare_sender(struct side *s, struct tw_error *err)
{
	struct tw_udp_if iface;
	uint16_t port = 0;
	if (tw_udp_if_find(&iface, &conf, 0, err) != TW_OK ||
	    (s->fd = tw_udp_tx_socket(&iface, &conf, is_gso(s->mode), &port, err)) < 0) {
		die(err->text);
	}
	const int segment_bytes = FRAME_BYTES;
	if (is_gso(s->mode) && setsockopt(s->fd, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes,
					  sizeof(segment_bytes)) != 0) {
		die("UDP_SEGMENT");
	}
	for (unsigned int i = 0; i < BATCH; i++) {
		s->iov[i] = (struct iovec){ frames + (size_t)i * FRAME_BYTES, FRAME_BYTES };
		s->msgs[i].msg_hdr = (struct msghdr){ .msg_name = &s->to,
						      .msg_namelen = sizeof(s->to),
						      .msg_iov = &s->iov[i],
						      .msg_iovlen = 1 };
	}
}

static void open_sender(struct side *s, enum mode mode)
{
	struct tw_error err;
	memset(s, 0, sizeof(*s));
	s->mode = mode;
	s->to = (struct sockaddr_in){ .sin_family = AF_INET,
				      .sin_port = htons(TW_ROCE_PORT),
				      .sin_addr.s_addr = htonl(group) };
	conf.gso = is_gso(mode) ? TW_GSO_ON : TW_GSO_OFF;
	if (is_bare(mode)) {
		open_bare_sender(s, &err);
		return;
	}
	const struct tw_tx_endpoint ep = { .groups = { group, 0 },
					   .publisher = 1,
					   .counters = { { counter_values, NULL } } };
	if (tw_udp_tx_open(&s->tx, &conf, &ep, 1, &err) != TW_OK) {
		die(err.text);
	}
	for (unsigned int i = 0; i < BATCH; i++) {
		s->dgrams[i] =
			(struct tw_tx_dgram){ frames + (size_t)i * DGRAM_BYTES, DGRAM_BYTES };
	}
}

static void send_batch(struct side *s, unsigned int n)
{
	if (!is_bare(s->mode)) {
		tw_tx_post(s->tx, 0, s->dgrams, n);
		return;
	}
	if (s->mode == BARE_GSO) {
		s->iov[0].iov_len = (size_t)n * FRAME_BYTES;
		n = 1;
	}
	for (unsigned int sent = 0; sent < n;) {
		const int r = sendmmsg(s->fd, s->msgs + sent, n - sent, MSG_DONTWAIT);
		if (r < 0) {
			die("sendmmsg");
		}
		sent += (unsigned int)r;
	}
}

static void open_receiver(struct side *s, enum mode mode)
{
	struct tw_error err;
	memset(s, 0, sizeof(*s));
	s->mode = mode;
	conf.gso = is_gso(mode) ? TW_GSO_ON : TW_GSO_OFF;
	if (!is_bare(mode)) {
		const struct tw_rx_endpoint ep = { .group = group,
						   .counters = { counter_values, NULL } };
		if (tw_udp_rx_open(&s->rx, &conf, &ep, 1, &err) != TW_OK) {
			die(err.text);
		}
		return;
	}
	struct tw_udp_if iface;
	uint32_t granted_bytes;
	if (tw_udp_if_find(&iface, &conf, 0, &err) != TW_OK ||
	    (s->fd = tw_udp_rx_socket(&iface, &conf, group, &granted_bytes, &err)) < 0) {
		die(err.text);
	}
	const uint32_t buffer_bytes = is_gso(mode) ? BIG_BYTES : 2048;
	for (unsigned int i = 0; i < BATCH; i++) {
		s->iov[i] = (struct iovec){ frames + (size_t)i * buffer_bytes, buffer_bytes };
		s->msgs[i].msg_hdr =
			(struct msghdr){ .msg_iov = &s->iov[i],
					 .msg_iovlen = 1,
					 .msg_control = is_gso(mode) ? s->control[i] : NULL };
	}
}

/* Up to `max` datagrams (bare GRO: whatever comes); *first is the payload of the first one. */
static unsigned int receive_some(struct side *s, unsigned int max, const uint8_t **first)
{
	if (!is_bare(s->mode)) {
		struct tw_rx_dgram out[TW_RX_BATCH];
		const int n = tw_rx_poll(s->rx, 0, out, max);
		*first = n > 0 ? out[0].data : NULL;
		return n > 0 ? (unsigned int)n : 0;
	}
	if (s->mode == BARE_GSO) {
		for (unsigned int i = 0; i < BATCH; i++) {
			s->msgs[i].msg_hdr.msg_controllen = sizeof(s->control[i]);
		}
	}
	const int got =
		recvmmsg(s->fd, s->msgs, s->mode == BARE_GSO ? 16 : max, MSG_DONTWAIT, NULL);
	unsigned int n = 0;
	for (int i = 0; i < got; i++) {
		n += s->msgs[i].msg_len / FRAME_BYTES;
	}
	*first = frames + TW_ROCE_HDR_BYTES;
	return n;
}

static void close_side(struct side *s)
{
	tw_tx_close(s->tx);
	tw_rx_close(s->rx);
	if (is_bare(s->mode)) {
		close(s->fd);
	}
}

/* The first two CPUs that this process was given: sender, receiver. */
static int cpus[2];

static void find_cpus(void)
{
	cpu_set_t allowed;
	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
		die("sched_getaffinity");
	}
	unsigned int found = 0;
	for (unsigned int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
		if (CPU_ISSET(cpu, &allowed)) {
			cpus[found++] = (int)cpu;
		}
	}
	if (found < 2) {
		fputs("bench_udp: needs two CPUs\n", stderr);
		exit(69);
	}
}

static void pin(int cpu)
{
	struct tw_error err;
	if (tw_cpu_pin(cpu, &err) != TW_OK) {
		die(err.text);
	}
}

static uint64_t cpu_time_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The receiver: until `stop`.  Latency runs carry the intended time in the payload. */
static void receiver(enum mode mode, bool latency)
{
	static struct side s;
	pin(cpus[1]);
	open_receiver(&s, mode);
	atomic_store(&shared->ready, 1);
	uint64_t received = 0;
	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed)) {
		const uint8_t *first;
		const uint64_t begin_ns = cpu_time_ns();
		const unsigned int n = receive_some(&s, latency ? 1 : BATCH, &first);
		if (n == 0) {
			continue;
		}
		shared->cpu_ns += cpu_time_ns() - begin_ns;
		if (latency && received < SAMPLES) {
			uint64_t intended_ns;
			memcpy(&intended_ns, first, sizeof(intended_ns));
			shared->latency_ns[received] = tw_mono_ns() - intended_ns;
		}
		received += n;
		atomic_store_explicit(&shared->received, received, memory_order_release);
	}
	close_side(&s);
	_exit(0);
}

static pid_t start_receiver(enum mode mode, bool latency)
{
	uint32_t r;
	if (getrandom(&r, sizeof(r), 0) != (ssize_t)sizeof(r)) {
		die("getrandom");
	}
	group = 0xefc00000u | (r & 0x3ffffu);
	memset(shared, 0, sizeof(*shared));
	const pid_t pid = fork();
	if (pid < 0) {
		die("fork");
	}
	if (pid == 0) {
		receiver(mode, latency);
	}
	while (atomic_load(&shared->ready) == 0) {
		sched_yield();
	}
	return pid;
}

static void stop_receiver(pid_t pid)
{
	int status;
	atomic_store(&shared->stop, 1);
	if (waitpid(pid, &status, 0) != pid || status != 0) {
		die("receiver");
	}
}

/* Nothing may be lost: a run that hangs ends the bench. */
static void wait_received(uint64_t at_least)
{
	const uint64_t limit_ns = tw_mono_ns() + 5000000000ull;
	while (atomic_load_explicit(&shared->received, memory_order_acquire) < at_least) {
		if (tw_mono_ns() > limit_ns) {
			fprintf(stderr, "bench_udp: datagrams were lost: %llu of %llu came\n",
				(unsigned long long)atomic_load(&shared->received),
				(unsigned long long)at_least);
			exit(1);
		}
	}
}

struct throughput {
	double per_s, send_ns, receive_ns; /* datagrams; CPU time of each */
};

static struct throughput throughput(enum mode mode, uint64_t datagrams)
{
	static struct side s;
	const pid_t pid = start_receiver(mode, false);
	open_sender(&s, mode);
	const uint64_t begin_ns = tw_mono_ns();
	uint64_t sent = 0, send_ns = 0;
	while (sent < datagrams) {
		if (sent >= WINDOW) {
			wait_received(sent - WINDOW);
		}
		const uint64_t before_ns = cpu_time_ns();
		send_batch(&s, BATCH);
		send_ns += cpu_time_ns() - before_ns;
		sent += BATCH;
	}
	wait_received(sent);
	const uint64_t end_ns = tw_mono_ns();
	stop_receiver(pid);
	close_side(&s);
	return (struct throughput){ .per_s = (double)sent * 1e9 / (double)(end_ns - begin_ns),
				    .send_ns = (double)send_ns / (double)sent,
				    .receive_ns = (double)shared->cpu_ns / (double)sent };
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void latency(enum mode mode, double *p50, double *p99)
{
	static struct side s;
	const pid_t pid = start_receiver(mode, true);
	open_sender(&s, mode);
	uint8_t *stamp = frames + (is_bare(mode) ? TW_ROCE_HDR_BYTES : 0);
	uint64_t intended_ns = tw_mono_ns() + PERIOD_NS;
	for (unsigned int i = 0; i < SAMPLES; i++, intended_ns += PERIOD_NS) {
		while (tw_mono_ns() < intended_ns) {
		}
		memcpy(stamp, &intended_ns, sizeof(intended_ns));
		send_batch(&s, 1);
	}
	wait_received(SAMPLES);
	stop_receiver(pid);
	close_side(&s);
	qsort(shared->latency_ns, SAMPLES, sizeof(uint64_t), compare_u64);
	const unsigned int half = SAMPLES / 2, most = SAMPLES / 100 * 99;
	*p50 = (double)shared->latency_ns[half];
	*p99 = (double)shared->latency_ns[most];
}

int main(int argc, char **argv)
{
	const long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 9;
	const uint64_t datagrams = argc > 2 ? strtoull(argv[2], NULL, 10) : 200000;
	if (runs < 1 || runs > BENCH_MAX_RUNS || datagrams == 0) {
		fputs("usage: bench_udp [RUNS [DATAGRAMS]]\n", stderr);
		return 64;
	}
	find_cpus();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		die("mmap");
	}
	conf.mtu_bytes = DGRAM_BYTES;
	conf.ttl = 1;
	conf.rcvbuf_bytes = 8u << 20;
	conf.lines[0].address = 0x7f000001u;
	memset(frames, 0x5a, sizeof(frames)); /* pages of our own, not the zero page */
	tw_clock_init();
	pin(cpus[0]);

	static struct bench_series rate[MODES], send[MODES], receive[MODES], p50[2], p99[2];
	for (int mode = 0; mode < MODES; mode++) {
		(void)throughput((enum mode)mode, datagrams / 10 + BATCH); /* warm */
	}
	for (long r = 0; r < runs; r++) {
		for (int mode = 0; mode < MODES; mode++) {
			const struct throughput t = throughput((enum mode)mode, datagrams);
			bench_add(&rate[mode], t.per_s);
			bench_add(&send[mode], t.send_ns);
			bench_add(&receive[mode], t.receive_ns);
		}
		for (int k = 0; k < 2; k++) {
			double half, most;
			latency(k == 0 ? BARE_PLAIN : OURS_PLAIN, &half, &most);
			bench_add(&p50[k], half);
			bench_add(&p99[k], most);
		}
	}
	printf("%u-byte datagrams in %u-byte frames, batches of %u, lo, two processes\n",
	       DGRAM_BYTES, FRAME_BYTES, BATCH);
	for (int mode = 0; mode < MODES; mode++) {
		printf("%s\n", mode_names[mode]);
		bench_print("  rate", &rate[mode], "M datagrams/s", 1e-6);
		bench_print("  CPU time, sender", &send[mode], "ns a datagram", 1);
		bench_print("  CPU time, receiver", &receive[mode], "ns a datagram", 1);
	}
	bench_ratio("ours / bare, GSO/GRO", &rate[OURS_GSO], &rate[BARE_GSO]);
	bench_ratio("ours / bare, sendmmsg/recvmmsg", &rate[OURS_PLAIN], &rate[BARE_PLAIN]);
	bench_ratio("CPU sending, GSO/GRO", &send[OURS_GSO], &send[BARE_GSO]);
	bench_ratio("CPU receiving, GSO/GRO", &receive[OURS_GSO], &receive[BARE_GSO]);
	bench_ratio("CPU sending, sendmmsg", &send[OURS_PLAIN], &send[BARE_PLAIN]);
	bench_ratio("CPU receiving, recvmmsg", &receive[OURS_PLAIN], &receive[BARE_PLAIN]);
	bench_ratio("ours GSO/GRO / bare sendmmsg/recvmmsg", &rate[OURS_GSO], &rate[BARE_PLAIN]);
	printf("one-way at %.0f datagrams/s, from the intended time\n", 1e9 / PERIOD_NS);
	bench_print("bare p50", &p50[0], "us", 1e-3);
	bench_print("ours p50", &p50[1], "us", 1e-3);
	bench_print("bare p99", &p99[0], "us", 1e-3);
	bench_print("ours p99", &p99[1], "us", 1e-3);
	bench_ratio("ours / bare, p50", &p50[1], &p50[0]);
	bench_ratio("ours / bare, p99", &p99[1], &p99[0]);
	return 0;
}
