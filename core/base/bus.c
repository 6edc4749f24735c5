/* The writing side of the bus: sessions, appending, the gate as the writer sees it.
 *
 * Threads   one thread per writer.
 * Ordering  B1 pairs with B2 (bus_reader.c): a reader that copied a byte of what the writer has put
 *                in place of older data sees the `intent` that was raised before.
 *           B3 pairs with B4: what lies below `published` was written before.
 *           B5 pairs with B6: the gate has copied what it gives back before the writer overwrites
 *           it. B7 pairs with B8: a reader that sees ENDED or SUPERSEDED sees the last `published`.
 *           B9 pairs with B10: the gate's pair is whole before `gate_turn` names it.
 * Mutants   TW_MUTANT breaks the order on purpose: tests/stress/check_ordering.sh builds such
 *           programs and expects the stress tests to fail.  0 everywhere else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bus_layout.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/rundir.h"
#include "base/words.h"

#ifndef TW_MUTANT
#define TW_MUTANT 0
#endif

#define NS_PER_MS 1000000u

struct tw_bus_writer {
	/* hot: append touches this and the ring, nothing else */
	uint8_t *ring;
	uint64_t mask; /* size_bytes - 1 */
	uint64_t pos;  /* of the next record */
	uint64_t next_seq;
	uint64_t segment_end; /* a record that begins here opens a segment */

	struct tw_bus_header *header;
	uint64_t published; /* as stored in the header */
	uint64_t size_bytes;
	uint64_t segment_bytes;
	bool ended;

	struct tw_bus_map map;
	int lock_fd;
};

static void session_name(char name[TW_BUS_NAME_MAX_BYTES], uint16_t channel, const char *suffix)
{
	snprintf(name, TW_BUS_NAME_MAX_BYTES, "session-%u%s", channel, suffix);
}

/* The stored session number; 0 where there is none.  One that cannot be read must not keep a feed
 * down: wall clock, the last bus and what was heard stand in for it. */
static uint64_t session_stored(const char *run_dir, uint16_t channel)
{
	char name[TW_BUS_NAME_MAX_BYTES];
	session_name(name, channel, "");
	int fd = tw_rundir_open(run_dir, name, O_RDONLY, 0, NULL);
	if (fd < 0) {
		return 0;
	}
	char text[24] = { 0 };
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);

	char *end = text;
	errno = 0;
	unsigned long long session =
		n > 0 && text[0] >= '1' && text[0] <= '9' ? strtoull(text, &end, 10) : 0;
	if (session == 0 || errno != 0 || strcmp(end, "\n") != 0 || session == UINT64_MAX) {
		tw_log(TW_LOG_WARNING, "%s/%s: not a session number, passed over", run_dir, name);
		return 0;
	}
	return session;
}

static int session_store(const char *run_dir, uint16_t channel, uint64_t session,
			 struct tw_error *err)
{
	char name[TW_BUS_NAME_MAX_BYTES], temp[TW_BUS_NAME_MAX_BYTES];
	session_name(name, channel, "");
	session_name(temp, channel, ".new");

	int fd = tw_rundir_open(run_dir, temp, O_WRONLY | O_CREAT | O_TRUNC, 0600, err);
	if (fd < 0) {
		return fd;
	}
	char text[24];
	int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)session);
	ssize_t n = write(fd, text, (size_t)len);
	if (n != len || fsync(fd) != 0) {
		int rc = tw_fail_sys(err, TW_ESYS, "%s/%s: write", run_dir, temp);
		close(fd);
		return rc;
	}
	close(fd);
	char from[TW_PATH_BYTES], to[TW_PATH_BYTES];
	snprintf(from, sizeof(from), "%s/%s", run_dir, temp);
	snprintf(to, sizeof(to), "%s/%s", run_dir, name);
	return rename(from, to) == 0 ? TW_OK : tw_fail_sys(err, TW_ESYS, "%s: rename", to);
}

/* The session of the file that is there now, 0 where there is none or it does not hold. */
static uint64_t session_of_file(const char *run_dir, uint16_t channel)
{
	struct tw_bus_map map;
	if (tw_bus_map_open(&map, run_dir, channel, false, NULL) != TW_OK) {
		return 0;
	}
	uint64_t session = map.fixed.session;
	tw_bus_map_close(&map);
	return session;
}

static int session_next(const struct tw_bus_conf *conf, uint64_t heard, uint64_t *session,
			struct tw_error *err)
{
	uint64_t known[] = { session_stored(conf->run_dir, conf->channel),
			     session_of_file(conf->run_dir, conf->channel), heard,
			     conf->wall_ns / NS_PER_MS };
	uint64_t max = 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		max = known[i] > max ? known[i] : max;
	}
	if (max == UINT64_MAX) {
		return tw_fail(err, TW_EFULL, "channel %u: session: no number is left",
			       conf->channel);
	}
	*session = max + 1;
	return TW_OK;
}

/* Puts the finished file in place of the old one.  The old one is marked first: should we die in
 * between, its readers look for a new file until the next feedhandler has made one. */
static int put_in_place(const struct tw_bus_conf *conf, const char *temp, struct tw_error *err)
{
	char from[TW_PATH_BYTES], to[TW_PATH_BYTES];
	snprintf(from, sizeof(from), "%s/%s", conf->run_dir, temp);
	snprintf(to, sizeof(to), "%s/" TW_BUS_FILE_NAME, conf->run_dir, conf->channel);
	tw_bus_supersede(conf->run_dir, conf->channel);
	return rename(from, to) == 0 ? TW_OK : tw_fail_sys(err, TW_ESYS, "%s: rename", to);
}

static int make_file(struct tw_bus_writer *writer, const struct tw_bus_conf *conf, uint64_t heard,
		     struct tw_error *err)
{
	struct tw_bus_const fixed = { .size_bytes = conf->size_bytes,
				      .channel = conf->channel,
				      .created_ns = conf->wall_ns,
				      .writer_pid = (uint32_t)getpid() };
	int rc = session_next(conf, heard, &fixed.session, err);
	if (rc != TW_OK) {
		return rc;
	}
	char temp[TW_BUS_NAME_MAX_BYTES], path[TW_PATH_BYTES];
	snprintf(temp, sizeof(temp), TW_BUS_FILE_NAME ".new", conf->channel);
	snprintf(path, sizeof(path), "%s/%s", conf->run_dir, temp);
	unlink(path); /* left by a writer that died here */
	rc = tw_bus_map_make(&writer->map, conf->run_dir, temp, &fixed, err);
	if (rc != TW_OK) {
		unlink(path);
		return rc;
	}
	rc = session_store(conf->run_dir, conf->channel, fixed.session, err);
	if (rc == TW_OK) {
		rc = put_in_place(conf, temp, err);
	}
	if (rc != TW_OK) {
		unlink(path);
	}
	return rc;
}

int tw_bus_create(struct tw_bus_writer **writer_p, const struct tw_bus_conf *conf, uint64_t heard,
		  struct tw_error *err)
{
	*writer_p = NULL;
	if (strlen(conf->run_dir) + TW_BUS_NAME_MAX_BYTES >= TW_PATH_BYTES) {
		return tw_fail(err, TW_EARG, "%s: path too long", conf->run_dir);
	}
	struct tw_bus_writer *writer = calloc(1, sizeof(*writer));
	if (writer == NULL) {
		return tw_fail(err, TW_ENOMEM, "bus of channel %u: out of memory", conf->channel);
	}
	writer->map.fd = -1;

	char name[TW_BUS_NAME_MAX_BYTES];
	snprintf(name, sizeof(name), TW_BUS_FILE_NAME ".lock", conf->channel);
	int rc = writer->lock_fd = tw_rundir_open(conf->run_dir, name, O_RDWR | O_CREAT, 0600, err);
	if (rc < 0) {
		goto undo_writer;
	}
	rc = tw_bus_lock(writer->lock_fd, name, err);
	if (rc != TW_OK) {
		goto undo_writer;
	}
	rc = make_file(writer, conf, heard, err);
	if (rc != TW_OK) {
		goto undo_writer;
	}
	writer->header = writer->map.header;
	writer->ring = writer->map.ring;
	writer->size_bytes = writer->map.fixed.size_bytes;
	writer->mask = writer->size_bytes - 1;
	writer->segment_bytes = writer->map.segment_bytes;
	writer->next_seq = 1;
	*writer_p = writer;
	return TW_OK;

undo_writer:
	tw_bus_writer_close(writer);
	return rc;
}

uint64_t tw_bus_writer_session(const struct tw_bus_writer *writer)
{
	return writer->map.fixed.session;
}

uint64_t tw_bus_writer_next_seq(const struct tw_bus_writer *writer)
{
	return writer->next_seq;
}

void tw_bus_flush(struct tw_bus_writer *writer)
{
	if (writer->published != writer->pos) {
		writer->published = writer->pos;
		if (TW_MUTANT == 1) { /* intent after the bytes */
			atomic_store_explicit(&writer->header->intent, writer->pos,
					      memory_order_relaxed);
		}
		/* B3: pairs with B4 */
		atomic_store_explicit(&writer->header->published, writer->pos,
				      memory_order_release);
	}
}

/* How far the gate has come.  A pair that the gate is just writing anew is newer than asked for,
 * and each of its words is good alone. */
static const struct tw_bus_pair *gate_pair(const struct tw_bus_writer *writer)
{
	/* B9: pairs with B10 */
	uint64_t turn = atomic_load_explicit(&writer->header->gate_turn, memory_order_acquire);
	return &writer->header->gate[turn % 2];
}

/* Once for each segment, and kept out of line so that append stays small.
 * The next record is the first to begin in its segment: raises `intent` over all of the segment and
 * the record that may hang out of it, and stores the checkpoint. */
static __attribute__((noinline)) bool open_segment(struct tw_bus_writer *writer, bool gated)
{
	uint64_t segment = writer->pos / writer->segment_bytes;
	uint64_t begin = segment * writer->segment_bytes;
	uint64_t end = begin + writer->segment_bytes;
	uint64_t intent = end + TW_BUS_RECORD_MAX;

	if (intent - writer->published > writer->size_bytes / 4) {
		tw_bus_flush(writer);
	}
	if (gated && intent > writer->size_bytes) {
		/* B6: pairs with B5 */
		uint64_t released =
			atomic_load_explicit(&gate_pair(writer)->pos, memory_order_acquire);
		if (intent - writer->size_bytes > released) {
			tw_bus_flush(writer); /* or the gate would wait for us, and we for it */
			return false;
		}
	}
	/* relaxed, and ordered before every later store to the ring by the fence */
	if (TW_MUTANT != 1) {
		atomic_store_explicit(&writer->header->intent, intent, memory_order_relaxed);
	}
	/* B1: pairs with B2 */
	atomic_thread_fence(memory_order_release);

	uint64_t checkpoint = writer->next_seq << TW_BUS_CHECK_BITS | (writer->pos - begin) / 8;
	atomic_store_explicit(&writer->header->checkpoint[segment % TW_BUS_SEGMENTS], checkpoint,
			      memory_order_relaxed); /* published by B3, like the data */
	writer->segment_end = end;
	return true;
}

bool tw_bus_append(struct tw_bus_writer *writer, const void *msg, uint32_t len_bytes, bool gated)
{
	/* a record of another length than it says would cost every reader its place in the ring */
	uint16_t block_length;
	memcpy(&block_length, msg, sizeof(block_length));
	TW_ASSERT(len_bytes == TW_BUS_RECORD_MIN + block_length && len_bytes % 8 == 0 &&
		  len_bytes <= TW_BUS_RECORD_MAX);

	if (__builtin_expect(writer->pos >= writer->segment_end, 0) &&
	    !open_segment(writer, gated)) {
		return false;
	}
	if (TW_MUTANT == 2) { /* announced before it is written */
		atomic_store_explicit(&writer->header->published, writer->pos + len_bytes,
				      memory_order_release);
	}
	/* runs over the end of the ring into its second mapping */
	tw_words_put(writer->ring + (writer->pos & writer->mask), msg, len_bytes);
	writer->pos += len_bytes;
	writer->next_seq++;
	return true;
}

bool tw_bus_has_gate(const struct tw_bus_writer *writer)
{
	return tw_bus_locked(writer->map.fd);
}

uint64_t tw_bus_gate_seq(const struct tw_bus_writer *writer)
{
	/* relaxed: the number goes into a decision, no memory depends on it */
	uint64_t next = atomic_load_explicit(&gate_pair(writer)->seq, memory_order_relaxed);
	return next > 0 ? next - 1 : 0;
}

void tw_bus_end(struct tw_bus_writer *writer)
{
	tw_bus_flush(writer);
	writer->ended = true;
	/* B7: pairs with B8 */
	atomic_store_explicit(&writer->header->state, TW_BUS_ENDED, memory_order_release);
}

void tw_bus_writer_close(struct tw_bus_writer *writer)
{
	if (writer == NULL) {
		return;
	}
	if (writer->header != NULL) {
		tw_bus_flush(writer);
	}
	tw_bus_map_close(&writer->map);
	if (writer->lock_fd >= 0) {
		close(writer->lock_fd);
	}
	free(writer);
}
