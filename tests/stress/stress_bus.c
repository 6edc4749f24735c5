/* The bus under a writer that does not wait: threads and processes read along, fall behind, are
 * lapped on purpose, and check every byte of every message they are given.
 *
 * What must hold   delivered and lost partition the numbers; nothing torn is delivered; a gated
 *                  writer loses nothing, though a gate is killed on the way.
 * Mutants          check_ordering.sh builds this program against a bus that breaks its order, and
 *                  it must then fail.
 * Waiting is for conditions of the shared `board`, never for time. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bus.h"
#include "base/bus_layout.h"
#include "tests/support/bus_msgs.h"
#include "tests/support/temp_dir.h"

#define CHANNEL       1
#define SIZE          TW_BUS_MIN_BYTES
#define SALT          3u
#define PROCESSES     2u
#define THREADS       2u
#define READERS       (PROCESSES + THREADS)
#define EDGE_BYTES    1024u
#define LAPS          300u         /* that every reader which falls behind must see */
#define DELIVERED     20000u       /* that everybody must be given */
#define FREE_MAX      300000000ull /* messages after which that will not come any more */
#define GATED_MSGS    300000ull
#define RELEASE_EVERY 64u

struct board { /* shared by all processes of the test; relaxed but where said */
	_Alignas(128) _Atomic uint64_t written; /* bytes, published or not */
	_Atomic bool done;
	_Alignas(128) _Atomic uint32_t ready;
	_Atomic uint64_t delivered_to; /* by the first gate */
	_Atomic bool gate_failed;      /* then nobody waits for it */
	struct {
		_Alignas(128) _Atomic uint64_t delivered;
		_Atomic uint64_t lost, laps, bad;
	} reader[READERS];
};

static struct board *board;
static struct temp_dir dir;
static int passed, failed;

static void check(bool ok, const char *what)
{
	if (ok) {
		passed++;
	} else {
		failed++;
		fprintf(stderr, "stress_bus: FAILED: %s\n", what);
	}
}

static uint64_t written(void)
{
	return atomic_load_explicit(&board->written, memory_order_relaxed);
}

static bool done(void)
{
	return atomic_load_explicit(&board->done, memory_order_relaxed);
}

static void wait_ready(uint32_t n)
{
	while (atomic_load(&board->ready) < n) {
		sched_yield();
	}
}

/* Falls back until the writer is about to overwrite byte `pos` of the stream, or just has: that is
 * where torn reads are. */
static void fall_behind(uint64_t pos, uint64_t turn)
{
	uint64_t until = pos + SIZE - EDGE_BYTES + test_mix(turn) % (2ull * EDGE_BYTES);
	for (unsigned int i = 1; !done() && written() < until; i++) {
		if (i % 64 == 0) {
			sched_yield();
		}
	}
}

static uint64_t stream_bytes(uint64_t first_seq, uint64_t end_seq)
{
	uint64_t bytes = 0;
	for (uint64_t seq = first_seq; seq < end_seq; seq++) {
		bytes += test_msg_bytes(seq);
	}
	return bytes;
}

static bool batch_holds(const void *msgs, const struct tw_bus_batch *batch)
{
	const uint8_t *at = msgs;
	for (uint32_t i = 0; i < batch->count; i++) {
		uint64_t seq = batch->first_seq + i;
		if (!test_msg_is(at, seq, SALT)) {
			fprintf(stderr, "stress_bus: message %llu is torn or another one\n",
				(unsigned long long)seq);
			return false;
		}
		at += test_msg_bytes(seq);
	}
	return (size_t)(at - (const uint8_t *)msgs) == batch->bytes;
}

static void read_along(unsigned int which)
{
	struct tw_bus_reader *reader;
	struct tw_error err;
	uint64_t dst[512];
	uint64_t bad = 0;
	if (tw_bus_open(&reader, dir.path, CHANNEL, false, &err) != TW_OK) {
		fprintf(stderr, "stress_bus: %s\n", err.text);
		board->reader[which].bad = 1;
		atomic_fetch_add(&board->ready, 1);
		return;
	}
	atomic_fetch_add(&board->ready, 1);
	uint64_t next = 1, pos = 0;
	for (uint64_t turn = 0; bad == 0; turn++) {
		if (which % 2 == 1 && turn % 4 == 0) { /* every other reader */
			fall_behind(pos, turn);
		}
		struct tw_bus_batch batch;
		int rc = tw_bus_read(reader, dst, sizeof(dst), &batch);
		if (rc > 0) {
			bad += batch.first_seq != next || !batch_holds(dst, &batch);
			atomic_fetch_add(&board->reader[which].delivered, batch.count);
			next += batch.count;
			pos += batch.bytes;
		} else if (rc == TW_ELAPPED) {
			bad += batch.first_seq != next || batch.end_seq <= next;
			atomic_fetch_add(&board->reader[which].lost,
					 batch.end_seq - batch.first_seq);
			atomic_fetch_add(&board->reader[which].laps, 1);
			next = batch.end_seq;
			pos += stream_bytes(batch.first_seq, batch.end_seq);
		} else if (rc < 0) {
			fprintf(stderr, "stress_bus: read: %s\n", tw_strstatus(rc));
			bad++;
		} else if (tw_bus_reader_state(reader) == TW_BUS_ENDED) {
			break;
		}
	}
	tw_bus_reader_close(reader);
	board->reader[which].bad += bad;
}

static void *read_thread(void *arg)
{
	read_along(*(const unsigned int *)arg);
	return NULL;
}

static struct tw_bus_writer *make_writer(void)
{
	struct tw_bus_conf conf = { .run_dir = dir.path, .channel = CHANNEL, .size_bytes = SIZE };
	struct tw_bus_writer *writer;
	struct tw_error err;
	if (tw_bus_create(&writer, &conf, 0, &err) != TW_OK) {
		fprintf(stderr, "stress_bus: %s\n", err.text);
		exit(1);
	}
	atomic_store(&board->written, 0);
	atomic_store(&board->done, false);
	atomic_store(&board->ready, 0);
	return writer;
}

static void append(struct tw_bus_writer *writer, uint64_t seq, bool gated)
{
	uint64_t msg[TW_MSG_MAX_BYTES / 8];
	uint32_t len = test_msg_make(msg, seq, SALT);
	while (!tw_bus_append(writer, msg, len, gated && !atomic_load(&board->gate_failed))) {
		sched_yield();
	}
	atomic_store_explicit(&board->written, written() + len, memory_order_relaxed);
	if (test_mix(seq) % 16 == 0) {
		tw_bus_flush(writer);
	}
}

static void finish_writing(struct tw_bus_writer *writer)
{
	tw_bus_end(writer);
	atomic_store(&board->done, true);
}

static pid_t start_process(void (*fn)(unsigned int), unsigned int arg)
{
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0) {
		perror("stress_bus: fork");
		exit(1);
	}
	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	return pid;
}

static bool left_well(pid_t pid)
{
	int status = 0;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Whether the readers have been through what this test is for. */
static bool enough(void)
{
	for (unsigned int i = 0; i < READERS; i++) {
		if (board->reader[i].bad != 0) {
			return true;
		}
		if (board->reader[i].delivered < DELIVERED ||
		    (i % 2 == 1 && board->reader[i].laps < LAPS)) {
			return false;
		}
	}
	return true;
}

static void free_running(void)
{
	memset(board->reader, 0, sizeof(board->reader));
	struct tw_bus_writer *writer = make_writer();
	pid_t pids[PROCESSES];
	pthread_t threads[THREADS];
	unsigned int which[THREADS];
	for (unsigned int i = 0; i < PROCESSES; i++) {
		pids[i] = start_process(read_along, i);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		which[i] = PROCESSES + i;
		if (pthread_create(&threads[i], NULL, read_thread, &which[i]) != 0) {
			exit(1);
		}
	}
	wait_ready(READERS);
	uint64_t total = 0;
	while (total < FREE_MAX && (total % 1024 != 0 || !enough())) {
		append(writer, ++total, false);
	}
	finish_writing(writer);
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
	}
	for (unsigned int i = 0; i < PROCESSES; i++) {
		check(left_well(pids[i]), "a reading process ends well");
	}
	for (unsigned int i = 0; i < READERS; i++) {
		printf("reader %u: %llu delivered, %llu lost in %llu laps\n", i,
		       (unsigned long long)board->reader[i].delivered,
		       (unsigned long long)board->reader[i].lost,
		       (unsigned long long)board->reader[i].laps);
		check(board->reader[i].bad == 0, "every message is what was written");
		check(board->reader[i].delivered + board->reader[i].lost == total,
		      "delivered and lost partition the numbers");
		check(board->reader[i].delivered >= DELIVERED, "enough was delivered");
		check(i % 2 == 0 || board->reader[i].laps >= LAPS, "readers were lapped");
	}
	tw_bus_writer_close(writer);
}

/* --- gated ----------------------------------------------------------------------------------- */

/* Reads as the gate, slowly, releasing now and then.  The first gate goes on until it is killed. */
static void read_as_gate(unsigned int which)
{
	struct tw_bus_reader *reader;
	struct tw_error err;
	uint64_t dst[512];
	uint64_t bad = 0, lost = 0, first, next;
	if (tw_bus_open(&reader, dir.path, CHANNEL, true, &err) != TW_OK) {
		fprintf(stderr, "stress_bus: %s\n", err.text);
		_exit(1);
	}
	first = next = tw_bus_reader_next_seq(reader);
	atomic_fetch_add(&board->ready, 1);
	for (uint64_t turn = 0;; turn++) {
		struct tw_bus_batch batch;
		uint32_t max = (uint32_t)(TW_MSG_MAX_BYTES + 8 * (test_mix(turn) % 400));
		int rc = tw_bus_read(reader, dst, max, &batch);
		if (rc > 0) {
			bad += batch.first_seq != next || !batch_holds(dst, &batch);
			next += batch.count;
			if (which == 0) {
				atomic_store(&board->delivered_to, next);
			}
		} else if (rc < 0) {
			fprintf(stderr, "stress_bus: gate: %s\n", tw_strstatus(rc));
			atomic_store(&board->gate_failed, true);
			lost++;
			break;
		} else if (tw_bus_reader_state(reader) == TW_BUS_ENDED) {
			break;
		} else {
			sched_yield();
		}
		/* with nothing to read always: else the writer would wait for us and we for it */
		if (rc == 0 || turn % RELEASE_EVERY < 3) {
			tw_bus_release(reader);
		}
	}
	tw_bus_release(reader);
	tw_bus_reader_close(reader);
	board->reader[which].delivered = next - first;
	board->reader[which].lost = lost;
	board->reader[which].laps = first;
	board->reader[which].bad = bad;
}

/* Kills the first gate in the middle of whatever it does and starts the second. */
static pid_t replace_gate(const struct tw_bus_writer *writer, pid_t first)
{
	int status = 0;
	kill(first, SIGKILL);
	check(waitpid(first, &status, 0) == first && WIFSIGNALED(status),
	      "the first gate was killed");
	check(!tw_bus_has_gate(writer), "a dead gate is none");
	return start_process(read_as_gate, 1);
}

static void gated(void)
{
	struct tw_bus_writer *writer = make_writer();
	atomic_store(&board->delivered_to, 1);
	memset(board->reader, 0, sizeof(board->reader));
	pid_t first = start_process(read_as_gate, 0);
	wait_ready(1);
	check(tw_bus_has_gate(writer), "a gate is seen");
	pid_t second = 0;
	for (uint64_t seq = 1; seq <= GATED_MSGS; seq++) {
		append(writer, seq, true);
		if (seq == GATED_MSGS / 2) {
			second = replace_gate(writer, first);
		}
	}
	finish_writing(writer);
	check(left_well(second), "the second gate ends well");
	uint64_t resumed = board->reader[1].laps, end = resumed + board->reader[1].delivered;
	uint64_t reached = atomic_load(&board->delivered_to);
	printf("gate: the first reached %llu, the second went from %llu to %llu\n",
	       (unsigned long long)reached, (unsigned long long)resumed, (unsigned long long)end);
	check(board->reader[1].bad == 0, "every message is what was written");
	check(board->reader[1].lost == 0, "a gate is not lapped");
	check(resumed > 1 && resumed <= reached, "the second goes on where the first released");
	check(end == GATED_MSGS + 1, "nothing is lost");
	check(tw_bus_gate_seq(writer) == GATED_MSGS, "the writer sees all of it released");
	tw_bus_writer_close(writer);
}

int main(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED || !temp_dir_make(&dir)) {
		perror("stress_bus");
		return 1;
	}
	gated(); /* before any thread: TSan and fork */
	free_running();
	temp_dir_remove(&dir);
	printf("stress_bus: %d passed, %d failed\n", passed, failed);
	return failed == 0 ? 0 : 1;
}
