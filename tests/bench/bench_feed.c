/* What a feedhandler does with a day, by protocol: a recording that tw-gen has made is mapped, and goes
 * through input, session layer, decoder and normalizing into a sink that counts, on one thread.
 * Messages a second of the venue's; every message that was generated must have been decoded.
 *
 * usage: bench_feed [MESSAGES [RUNS]] */
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "config/config.h"
#include "feedhandler/feed.h"
#include "feedhandler/input.h"
#include "tests/bench/bench.h"

#define MESSAGES     "2000000"
#define RUNS         7
#define INSTRUMENTS  "1000"
#define PATH_BYTES   4096
#define TRADING_DATE 20260105u
#define FEEDS        (sizeof(feeds) / sizeof(feeds[0]))

struct feed {
	const char *protocol, *framing, *title;
	enum tw_depth depth;
};

static const struct feed feeds[] = {
	{ "itch50", "binaryfile", "ITCH 5.0, BinaryFILE", TW_DEPTH_ORDERS },
	{ "itch50", "moldudp64", "ITCH 5.0, MoldUDP64 in pcap", TW_DEPTH_ORDERS },
	{ "tops16", "iextp", "TOPS 1.6, IEX-TP in pcap", TW_DEPTH_QUOTES },
};

struct recording {
	const void *data;
	size_t bytes;
};

static _Atomic uint64_t counter_values[TW_N_fh_counters];
static struct tw_hist hist;
static uint64_t taken, normalized;

static void die(const char *what)
{
	fprintf(stderr, "bench_feed: %s\n", what);
	exit(1);
}

/* tw-gen of the same build: of TW_BIN, else ../../bin beside this program's folder. */
static void generator(char path[PATH_BYTES])
{
	char self[PATH_BYTES - 32];
	const char *bin = getenv("TW_BIN");
	if (bin != NULL) {
		(void)snprintf(path, PATH_BYTES, "%s/tw-gen", bin);
		return;
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0) {
		die("/proc/self/exe");
	}
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash != NULL) {
		*slash = '\0';
	}
	(void)snprintf(path, PATH_BYTES, "%s/../../bin/tw-gen", self);
}

static struct recording record(const struct feed *feed, const char *messages)
{
	char gen[PATH_BYTES], path[] = "/dev/shm/tw-bench-XXXXXX";
	extern char **environ;
	int fd = mkstemp(path), status = 0;
	if (fd < 0) {
		die("/dev/shm");
	}
	generator(gen);
	const char *const argv[] = { gen,           "--protocol", feed->protocol, "--framing",
				     feed->framing, "--messages", messages,       "--symbols",
				     INSTRUMENTS,   "--rate",     "100000",       "--output",
				     path,          NULL };
	pid_t child;
	bool made = posix_spawn(&child, gen, NULL, NULL, (char *const *)(uintptr_t)argv, environ) ==
			    0 &&
		    waitpid(child, &status, 0) == child && status == 0;
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC); /* tw-gen may have put another file there */
	unlink(path);
	struct stat st;
	if (!made || fd < 0 || fstat(fd, &st) != 0) {
		die("tw-gen has made no recording");
	}
	struct recording r = { .bytes = (size_t)st.st_size };
	r.data = mmap(NULL, r.bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	close(fd);
	if (r.data == MAP_FAILED) {
		die("mmap of the recording");
	}
	return r;
}

static void take(void *ctx, const struct tw_msg_head *msg, uint32_t len_bytes, uint32_t channels)
{
	(void)ctx;
	taken += len_bytes + msg->instrument_id + channels; /* read, so that it must be written */
	normalized++;
}

/* Messages a second. */
static double decode(const struct feed *kind, const struct recording *r, uint64_t messages)
{
	struct tw_feed_conf conf = {
		.protocol = kind->protocol,
		.session = kind->framing,
		.mic = "XNAS",
		.venue_id = 1,
		.channel_count = 1,
		.depths = { (uint8_t)kind->depth },
		.trading_date = TRADING_DATE,
		.counters = { .values = counter_values, .hists = &hist },
		.sink = { .message = take },
	};
	struct tw_error err = { 0 };
	struct tw_feed *feed = NULL;
	struct tw_input *input = NULL;
	struct tw_packet packet;
	memset(counter_values, 0, sizeof(counter_values));
	normalized = 0;
	if (tw_feed_create(&feed, &conf, &err) != TW_OK ||
	    tw_input_recording_memory(&input, "made.bin", r->data, r->bytes, TRADING_DATE, &err) !=
		    TW_OK) {
		die(err.text);
	}
	tw_feed_read_unpaced(feed, input); /* as a feedhandler does with speed_pct 0 */
	uint64_t begin_ns = tw_mono_ns();
	int rc;
	while ((rc = tw_input_next(input, &packet, &err)) >= 0) {
		if (rc == 1) { /* 0: a frame that was none of a feed's */
			tw_feed_packet(feed, &packet);
		}
	}
	uint64_t ns = tw_mono_ns() - begin_ns;
	if (rc != TW_ECLOSED) {
		die(err.text);
	}
	uint64_t decoded = tw_counter_get(&feed->counters, TW_FH_venue_messages);
	uint64_t odd = tw_counter_get(&feed->counters, TW_FH_gaps) +
		       tw_counter_get(&feed->counters, TW_FH_malformed_packets) +
		       tw_counter_get(&feed->counters, TW_FH_malformed_messages) +
		       tw_counter_get(&feed->counters, TW_FH_orders_refused);
	tw_input_close(input);
	tw_feed_destroy(feed);
	if (decoded != messages || odd != 0) { /* then something else was measured */
		fprintf(stderr,
			"bench_feed: %s: %llu of %llu messages decoded, %llu not as meant\n",
			kind->title, (unsigned long long)decoded, (unsigned long long)messages,
			(unsigned long long)odd);
		exit(1);
	}
	return (double)messages / (double)ns * 1e9;
}

int main(int argc, char **argv)
{
	static struct bench_series rates[FEEDS];
	struct recording recordings[FEEDS];
	uint64_t made[FEEDS];
	struct tw_error err = { 0 };
	const char *text = argc > 1 ? argv[1] : MESSAGES;
	uint64_t messages = strtoull(text, NULL, 10);
	unsigned long runs = argc > 2 ? strtoul(argv[2], NULL, 10) : RUNS;
	tw_clock_init();
	if (messages == 0 || runs < 1 || runs > BENCH_MAX_RUNS) {
		die("usage: bench_feed [MESSAGES [RUNS]]");
	}
	if (tw_cpu_pin(0, &err) != TW_OK) {
		fprintf(stderr, "bench_feed: not pinned: %s\n", err.text);
	}
	for (size_t i = 0; i < FEEDS; i++) {
		recordings[i] = record(&feeds[i], text);
	}
	for (unsigned long run = 0; run < runs; run++) {
		for (size_t i = 0; i < FEEDS; i++) {
			bench_add(&rates[i], decode(&feeds[i], &recordings[i], messages));
			made[i] = normalized;
		}
	}
	printf("%llu messages of %s instruments from tw-gen, from memory, one thread\n",
	       (unsigned long long)messages, INSTRUMENTS);
	for (size_t i = 0; i < FEEDS; i++) {
		bench_print(feeds[i].title, &rates[i], "M messages/s", 1e-6);
		printf("  %.1f MB, %llu normalized messages\n", (double)recordings[i].bytes / 1e6,
		       (unsigned long long)made[i]);
		munmap((void *)(uintptr_t)recordings[i].data, recordings[i].bytes);
	}
	bench_ratio("ITCH in a capture to BinaryFILE", &rates[1], &rates[0]);
	bench_ratio("TOPS to ITCH, both in a capture", &rates[2], &rates[1]);
	return taken == 0; /* never: keeps what was measured from being optimised away */
}
