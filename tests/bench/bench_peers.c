/* Quotes over `udp` on lo (flow.h) beside ZeroMQ PUB/SUB over TCP and a NORM stream over multicast, as
 * Debian packages them: quotes a second in order, and latency at a fixed rate.
 *
 * All alike: 64 bytes a quote, two processes on two CPUs with whatever threads their library starts, the
 * same window, every number checked, runs in turn.  No high-water mark may drop.  Each waits as it is made
 * to: ours polls; the peers' receivers block, and their senders give the CPU away while a window is full
 * or a schedule not due, so that the library's own thread on that CPU can run.
 * The peers' quotes carry a number and a time and are otherwise taken as they are; ours are also put in a
 * log that repair can read, with a CRC on the wire that is checked. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

/* Two prototypes of normApi.h (1.5.8) are C++ outside its guards: here they become some others. */
#define NormGetRxBindAddress(...) bench_norm_unused_a(void)
#define NormStreamGetVacancy(...) bench_norm_unused_b(void)
#include <normApi.h>
#undef NormGetRxBindAddress
#undef NormStreamGetVacancy

#include "base/clock.h"
#include "base/cpu.h"
#include "base/hist.h"
#include "tests/bench/bench.h"
#include "tests/bench/flow.h"
#include "tidewire/error.h"

#define RUNS          7
#define QUOTES        3000000ull
#define PACED         20000ull
#define PACED_PER_S   20000ull
#define BATCH         15u /* 960 bytes */
#define GIVE_UP_NS    10000000000ull
#define RETRY_NS      1000000ull
#define NORM_PORT     6003u
#define NORM_BUFFER   (16u << 20)
#define NORM_SOCKET   (4u << 20)
#define NORM_RATE_BPS 8e9

struct quote {
	uint64_t seq; /* 0: the receiver is being looked for */
	uint64_t made_ns;
	uint8_t rest[48];
};

struct shared {
	_Alignas(128) _Atomic uint64_t consumed;
	_Alignas(128) _Atomic uint32_t opened; /* by who has to be first */
	_Atomic uint32_t ready;                /* the receiver has heard the sender */
	_Atomic uint64_t end_ns;
	char endpoint[64];
	struct tw_hist hist;
};

struct job {
	uint64_t quotes, quotes_per_s;
	uint32_t batch;
};

struct peer {
	void (*open_sender)(void);
	void (*send)(const struct quote *quotes, uint32_t n, bool flush);
	void (*receive)(const struct job *job); /* to the last quote */
	bool receiver_first;
};

static struct shared *shared;
static uint64_t next_seq = 1; /* of the receiver */

static void die(const char *what)
{
	fprintf(stderr, "bench_peers: %s\n", what);
	_exit(1);
}

/* Receiver: `len` bytes have come, whole quotes.  False: that was the last one. */
static bool take(const struct job *job, const uint8_t *data, size_t len)
{
	uint64_t wall_ns = tw_wall_ns();
	struct quote quote;
	if (len % sizeof(quote) != 0) {
		die("part of a quote");
	}
	for (size_t at = 0; at < len; at += sizeof(quote)) {
		memcpy(&quote, data + at, sizeof(quote));
		if (quote.seq == 0) {
			atomic_store(&shared->ready, 1);
			continue;
		}
		if (quote.seq != next_seq) {
			die("out of order");
		}
		if (next_seq % BATCH == 0) {
			tw_hist_record(&shared->hist, (int64_t)(wall_ns - quote.made_ns));
		}
		next_seq++;
	}
	if (next_seq > job->quotes) {
		atomic_store(&shared->end_ns, tw_mono_ns());
	}
	atomic_store_explicit(&shared->consumed, next_seq - 1, memory_order_relaxed);
	return next_seq <= job->quotes;
}

/* ---- ZeroMQ ---- */

static void *zmq_context, *zmq_out;

static void *zmq_open(int type)
{
	const int unlimited = 0, linger = 0;
	zmq_context = zmq_ctx_new();
	void *socket = zmq_context == NULL ? NULL : zmq_socket(zmq_context, type);
	if (socket == NULL ||
	    zmq_setsockopt(socket, ZMQ_SNDHWM, &unlimited, sizeof(unlimited)) != 0 ||
	    zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof(unlimited)) != 0 ||
	    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger)) != 0) {
		die("zmq_socket");
	}
	return socket;
}

static void zmq_open_sender(void)
{
	size_t len = sizeof(shared->endpoint);
	zmq_out = zmq_open(ZMQ_PUB);
	if (zmq_bind(zmq_out, "tcp://127.0.0.1:*") != 0 ||
	    zmq_getsockopt(zmq_out, ZMQ_LAST_ENDPOINT, shared->endpoint, &len) != 0) {
		die("zmq_bind");
	}
}

static void zmq_send_quotes(const struct quote *quotes, uint32_t n, bool flush)
{
	(void)flush;
	if (zmq_send(zmq_out, quotes, n * sizeof(*quotes), 0) < 0) {
		die("zmq_send");
	}
}

static void zmq_receive(const struct job *job)
{
	void *in = zmq_open(ZMQ_SUB);
	zmq_msg_t msg;
	bool more = true;
	if (zmq_setsockopt(in, ZMQ_SUBSCRIBE, "", 0) != 0 ||
	    zmq_connect(in, shared->endpoint) != 0) {
		die("zmq_connect");
	}
	zmq_msg_init(&msg);
	while (more) {
		if (zmq_msg_recv(&msg, in, 0) < 0) {
			die("zmq_msg_recv");
		}
		more = take(job, zmq_msg_data(&msg), zmq_msg_size(&msg));
	}
	zmq_msg_close(&msg);
}

/* ---- NORM ---- */

static NormInstanceHandle norm_instance;
static NormObjectHandle norm_out;

static NormSessionHandle norm_open(NormNodeId id)
{
	norm_instance = NormCreateInstance(false);
	NormSessionHandle session =
		NormCreateSession(norm_instance, shared->endpoint, NORM_PORT, id);
	if (session == NORM_SESSION_INVALID || !NormSetMulticastInterface(session, "lo") ||
	    !NormSetMulticastLoopback(session, true)) {
		die("NORM: session");
	}
	NormSetRxPortReuse(session, true, NULL, NULL, 0);
	return session;
}

static void norm_open_sender(void)
{
	NormSessionHandle session = norm_open(1);
	NormSetCongestionControl(session, false, false);
	NormSetTxRate(session, NORM_RATE_BPS);
	NormSetGrttEstimate(session, 0.001);
	if (!NormStartSender(session, NormGetRandomSessionId(), NORM_BUFFER,
			     BATCH * sizeof(struct quote), 64, 0, 0)) {
		die("NORM: NormStartSender");
	}
	NormSetTxSocketBuffer(session, NORM_SOCKET);
	norm_out = NormStreamOpen(session, NORM_BUFFER, NULL, 0);
	if (norm_out == NORM_OBJECT_INVALID) {
		die("NORM: NormStreamOpen");
	}
}

static void norm_send(const struct quote *quotes, uint32_t n, bool flush)
{
	unsigned int len = n * (unsigned int)sizeof(*quotes), done = 0;
	uint64_t give_up_ns = tw_mono_ns() + GIVE_UP_NS;
	while (done < len) {
		NormEvent event;
		unsigned int now =
			NormStreamWrite(norm_out, (const char *)quotes + done, len - done);
		done += now;
		if (now == 0) {
			while (NormGetNextEvent(norm_instance, &event, false)) {
			}
			sched_yield();
			if (tw_mono_ns() > give_up_ns) {
				die("NORM: the stream takes nothing");
			}
		}
	}
	if (flush) {
		NormStreamFlush(norm_out, false, NORM_FLUSH_PASSIVE);
	}
}

static void norm_receive(const struct job *job)
{
	static uint8_t buffer[256 * sizeof(struct quote)];
	size_t kept = 0; /* begin of a quote whose rest has not come */
	NormSessionHandle session = norm_open(2);
	NormSetDefaultSyncPolicy(session, NORM_SYNC_STREAM);
	if (!NormStartReceiver(session, NORM_BUFFER)) {
		die("NORM: NormStartReceiver");
	}
	NormSetRxSocketBuffer(session, NORM_SOCKET);
	atomic_store(&shared->opened, 1);
	for (;;) {
		NormEvent event;
		if (!NormGetNextEvent(norm_instance, &event, true)) {
			die("NORM: NormGetNextEvent");
		}
		if (event.type == NORM_RX_OBJECT_ABORTED) {
			die("NORM: the stream was aborted");
		}
		if (event.type != NORM_RX_OBJECT_UPDATED) {
			continue;
		}
		for (;;) {
			unsigned int n = (unsigned int)(sizeof(buffer) - kept);
			if (!NormStreamRead(event.object, (char *)buffer + kept, &n)) {
				die("NORM: the stream broke");
			}
			if (n == 0) {
				break;
			}
			size_t have = kept + n, whole = have - have % sizeof(struct quote);
			if (!take(job, buffer, whole)) {
				return;
			}
			kept = have - whole;
			memmove(buffer, buffer + whole, kept);
		}
	}
}

/* ---- a run ---- */

static const struct peer zeromq = { .open_sender = zmq_open_sender,
				    .send = zmq_send_quotes,
				    .receive = zmq_receive };
static const struct peer norm = { .open_sender = norm_open_sender,
				  .send = norm_send,
				  .receive = norm_receive,
				  .receiver_first = true };

static void pin(int cpu)
{
	struct tw_error err;
	if (tw_cpu_pin(cpu, &err) != TW_OK) {
		die(err.text);
	}
}

static void wait_for(const _Atomic uint32_t *word)
{
	uint64_t give_up_ns = tw_mono_ns() + GIVE_UP_NS;
	while (atomic_load(word) == 0) {
		if (tw_mono_ns() > give_up_ns) {
			die("the other process does not come");
		}
		sched_yield();
	}
}

/* How many quotes may go now, with their times. */
static uint32_t make(const struct job *job, uint64_t next, uint64_t begin_ns, struct quote *out)
{
	uint64_t ahead = next - 1 - atomic_load_explicit(&shared->consumed, memory_order_relaxed);
	uint64_t now_ns = tw_wall_ns();
	uint32_t n = 0;
	while (ahead <= FLOW_WINDOW_MSGS && n < job->batch && next + n <= job->quotes) {
		uint64_t at_ns = now_ns;
		if (job->quotes_per_s != 0) {
			at_ns = begin_ns + (next + n - 1) * 1000000000u / job->quotes_per_s;
			if (at_ns > now_ns) {
				break;
			}
		}
		out[n].seq = next + n;
		out[n].made_ns = at_ns;
		n++;
	}
	return n;
}

/* The sender's process. */
static void send_all(const struct peer *peer, const struct job *job, uint64_t *begin_mono_ns)
{
	struct quote quotes[BATCH];
	memset(quotes, 0, sizeof(quotes));
	if (peer->receiver_first) {
		wait_for(&shared->opened);
	}
	peer->open_sender();
	atomic_store(&shared->opened, 1);
	uint64_t give_up_ns = tw_mono_ns() + GIVE_UP_NS;
	for (uint64_t again_ns = 0; atomic_load(&shared->ready) == 0; sched_yield()) {
		uint64_t now_ns = tw_mono_ns();
		if (now_ns > give_up_ns) {
			die("the receiver hears nothing");
		}
		if (now_ns >= again_ns) {
			peer->send(quotes, BATCH, true);
			again_ns = now_ns + RETRY_NS;
		}
	}
	*begin_mono_ns = tw_mono_ns();
	give_up_ns = *begin_mono_ns + GIVE_UP_NS;
	uint64_t begin_ns = tw_wall_ns(), next = 1;
	while (atomic_load_explicit(&shared->consumed, memory_order_relaxed) < job->quotes) {
		uint32_t n = make(job, next, begin_ns, quotes);
		if (n > 0) {
			next += n;
			peer->send(quotes, n, job->quotes_per_s != 0 || next > job->quotes);
			continue;
		}
		if (tw_mono_ns() > give_up_ns) {
			die("the receiver did not get everything");
		}
		sched_yield();
	}
}

/* Both sides are processes of their own: what a library keeps ends with them. */
static pid_t start(void (*run)(const struct peer *, const struct job *, _Atomic uint64_t *),
		   const struct peer *peer, const struct job *job, int cpu,
		   _Atomic uint64_t *begin_ns)
{
	pid_t child = fork();
	if (child < 0) {
		die("fork");
	}
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(cpu);
		run(peer, job, begin_ns);
		_exit(0);
	}
	return child;
}

static void sender(const struct peer *peer, const struct job *job, _Atomic uint64_t *begin_ns)
{
	uint64_t ns;
	send_all(peer, job, &ns);
	atomic_store(begin_ns, ns);
}

static void receiver(const struct peer *peer, const struct job *job, _Atomic uint64_t *begin_ns)
{
	(void)begin_ns;
	if (!peer->receiver_first) {
		wait_for(&shared->opened);
	}
	peer->receive(job);
}

struct figures {
	struct bench_series rate, p50, p99;
};

/* False: one of the two could not. */
static bool run(const struct peer *peer, const struct job *job, struct figures *figures)
{
	static struct {
		_Atomic uint64_t begin_ns;
	} * times;
	if (times == NULL) {
		times = mmap(NULL, sizeof(*times), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (times == MAP_FAILED) {
			die("mmap");
		}
	}
	uint8_t draw[3];
	memset(shared, 0, sizeof(*shared));
	if (getrandom(draw, sizeof(draw), 0) != (ssize_t)sizeof(draw)) {
		die("getrandom");
	}
	(void)snprintf(shared->endpoint, sizeof(shared->endpoint), "239.%u.%u.%u",
		       192u | (draw[0] & 3u), draw[1], draw[2]);
	pid_t in = start(receiver, peer, job, 1, &times->begin_ns);
	pid_t out = start(sender, peer, job, 0, &times->begin_ns);
	int status = 0, failed = 0;
	for (int i = 0; i < 2; i++) {
		pid_t gone = wait(&status);
		failed |= status;
		if (status != 0 && i == 0) {
			kill(gone == in ? out : in, SIGKILL);
		}
	}
	if (failed != 0) {
		return false;
	}
	if (job->quotes_per_s == 0) {
		bench_add(&figures->rate, (double)job->quotes * 1e9 /
						  (double)(atomic_load(&shared->end_ns) -
							   atomic_load(&times->begin_ns)));
	} else {
		bench_add(&figures->p50, (double)tw_hist_quantile(&shared->hist, 0.5));
		bench_add(&figures->p99, (double)tw_hist_quantile(&shared->hist, 0.99));
	}
	return true;
}

static void run_ours(struct figures *figures)
{
	struct flow_conf conf = { .quotes = QUOTES, .lines = 1 };
	struct flow_result r;
	flow_run(&conf, &r);
	if (r.lost != 0) {
		die("lost quotes");
	}
	bench_add(&figures->rate, r.quotes_per_s);
	conf.quotes = PACED;
	conf.quotes_per_s = PACED_PER_S;
	flow_run(&conf, &r);
	bench_add(&figures->p50, r.p50_ns);
	bench_add(&figures->p99, r.p99_ns);
}

static void print(const char *name, const struct figures *f)
{
	bench_print(name, &f->rate, "M quotes/s", 1e-6);
	if (f->p50.n > 0) {
		bench_print("  p50, paced", &f->p50, "us", 1e-3);
		bench_print("  p99, paced", &f->p99, "us", 1e-3);
	}
}

int main(void)
{
	static struct figures ours, single, batched, stream;
	const struct job one = { .quotes = QUOTES / 3, .batch = 1 };
	const struct job many = { .quotes = QUOTES, .batch = BATCH };
	const struct job norm_many = { .quotes = QUOTES / 3, .batch = BATCH };
	const struct job paced = { .quotes = PACED, .quotes_per_s = PACED_PER_S, .batch = BATCH };
	bool zmq_works = true, norm_works = true;
	flow_begin("bench_peers");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		die("mmap");
	}
	for (int i = 0; i < RUNS; i++) {
		run_ours(&ours);
		zmq_works = zmq_works && run(&zeromq, &one, &single) &&
			    run(&zeromq, &many, &batched) && run(&zeromq, &paced, &single);
		norm_works = norm_works && run(&norm, &norm_many, &stream) &&
			     run(&norm, &paced, &stream);
	}
	int major = 0, minor = 0, patch = 0;
	zmq_version(&major, &minor, &patch);
	printf("quotes of 64 bytes, one process to another on lo, 2 CPUs; ZeroMQ %d.%d.%d", major,
	       minor, patch);
	(void)NormGetVersion(&major, &minor, &patch);
	printf(", NORM %d.%d.%d\npaced: %llu quotes/s, each on its own, from the time in the "
	       "schedule\n",
	       major, minor, patch, PACED_PER_S);
	print("ours, one line", &ours);
	print("ZeroMQ PUB/SUB, TCP, 1 quote a message", &single);
	print("ZeroMQ PUB/SUB, TCP, 15 quotes a message", &batched);
	if (norm_works) {
		print("NORM stream, multicast, 960-byte segments", &stream);
	} else {
		printf("NORM: not every run ended: left out\n");
	}
	bench_ratio("ours / zeromq, 1 quote a message", &ours.rate, &single.rate);
	bench_ratio("ours / zeromq, 15 quotes a message", &ours.rate, &batched.rate);
	bench_ratio("ours / zeromq, p50", &ours.p50, &single.p50);
	bench_ratio("ours / zeromq, p99", &ours.p99, &single.p99);
	if (norm_works) {
		bench_ratio("ours / norm", &ours.rate, &stream.rate);
		bench_ratio("ours / norm, p50", &ours.p50, &stream.p50);
		bench_ratio("ours / norm, p99", &ours.p99, &stream.p99);
	}
	flow_end();
	return zmq_works ? 0 : 1;
}
