/* The bus, one thread: numbers, laps, the gate, sessions, and files that lie. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bus.h"
#include "base/bus_layout.h"
#include "tests/support/bus_msgs.h"
#include "tests/support/temp_dir.h"

#define CHANNEL 7
#define SIZE    TW_BUS_MIN_BYTES
#define SALT    99u

struct bed {
	struct temp_dir dir;
	struct tw_bus_writer *writer;
	struct tw_bus_reader *reader;
	uint64_t dst[4096 / 8];
	struct tw_error err;
};

static struct tw_bus_conf conf_of(const struct bed *bed)
{
	return (struct tw_bus_conf){
		.run_dir = bed->dir.path, .channel = CHANNEL, .size_bytes = SIZE, .wall_ns = 1000000
	};
}

static void create(struct bed *bed)
{
	struct tw_bus_conf conf = conf_of(bed);
	cr_assert_eq(tw_bus_create(&bed->writer, &conf, 0, &bed->err), TW_OK, "%s", bed->err.text);
}

static void open_reader(struct bed *bed, bool as_gate)
{
	cr_assert_eq(tw_bus_open(&bed->reader, bed->dir.path, CHANNEL, as_gate, &bed->err), TW_OK,
		     "%s", bed->err.text);
}

static void bed_up(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	cr_assert(temp_dir_make(&bed->dir));
	create(bed);
}

static void bed_down(struct bed *bed)
{
	tw_bus_reader_close(bed->reader);
	tw_bus_writer_close(bed->writer);
	temp_dir_remove(&bed->dir);
}

static bool append_next(struct bed *bed, bool gated)
{
	uint64_t msg[TW_MSG_MAX_BYTES / 8];
	uint32_t len = test_msg_make(msg, tw_bus_writer_next_seq(bed->writer), SALT);
	return tw_bus_append(bed->writer, msg, len, gated);
}

static void append_n(struct bed *bed, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		cr_assert(append_next(bed, false));
	}
}

static void check_batch(const struct bed *bed, const struct tw_bus_batch *batch)
{
	const uint8_t *at = (const uint8_t *)bed->dst;
	for (uint32_t i = 0; i < batch->count; i++) {
		cr_assert(test_msg_is(at, batch->first_seq + i, SALT), "message %llu",
			  (unsigned long long)(batch->first_seq + i));
		at += test_msg_bytes(batch->first_seq + i);
	}
	cr_assert_eq((size_t)(at - (const uint8_t *)bed->dst), batch->bytes);
}

/* Reads until there is nothing; every message is checked.  Returns the messages delivered. */
static uint64_t drain(struct bed *bed, uint64_t *lost)
{
	uint64_t got = 0, next = tw_bus_reader_next_seq(bed->reader);
	for (;;) {
		struct tw_bus_batch batch;
		int rc = tw_bus_read(bed->reader, bed->dst, sizeof(bed->dst), &batch);
		if (rc == 0) {
			return got;
		}
		cr_assert_eq(batch.first_seq, next);
		if (rc == TW_ELAPPED) {
			cr_assert_gt(batch.end_seq, batch.first_seq);
			*lost += batch.end_seq - batch.first_seq;
			next = batch.end_seq;
			continue;
		}
		cr_assert_gt(rc, 0, "%s", tw_strstatus(rc));
		cr_assert_eq((uint32_t)rc, batch.count);
		check_batch(bed, &batch);
		got += batch.count;
		next += batch.count;
	}
}

Test(bus, nothing_is_seen_before_flush, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	uint64_t lost = 0;
	append_n(&bed, 3);
	cr_assert_eq(drain(&bed, &lost), 0);
	tw_bus_flush(bed.writer);
	cr_assert_eq(drain(&bed, &lost), 3);
	cr_assert_eq(lost, 0);
	cr_assert_eq(tw_bus_writer_next_seq(bed.writer), 4);
	cr_assert_eq(tw_bus_reader_next_seq(bed.reader), 4);
	bed_down(&bed);
}

Test(bus, append_flushes_by_itself_within_a_quarter, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	uint64_t appended = 0;
	while (appended < 3 * (uint64_t)SIZE) {
		uint64_t seq = tw_bus_writer_next_seq(bed.writer);
		append_n(&bed, 1);
		appended += test_msg_bytes(seq);
		struct tw_bus_map map;
		if (seq % 16 == 0) {
			cr_assert_eq(tw_bus_map_open(&map, bed.dir.path, CHANNEL, false, NULL), 0);
			uint64_t published = atomic_load(&map.header->published);
			uint64_t intent = atomic_load(&map.header->intent);
			cr_assert_leq(appended - published, SIZE / 4);
			cr_assert_geq(intent, appended);
			cr_assert_leq(intent - appended,
				      SIZE / TW_BUS_SEGMENTS + TW_BUS_RECORD_MAX);
			tw_bus_map_close(&map);
		}
	}
	bed_down(&bed);
}

Test(bus, every_batch_size_gives_whole_messages, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	for (uint32_t max = TW_MSG_MAX_BYTES; max <= 1024; max += 8) {
		open_reader(&bed, false);
		append_n(&bed, 40);
		tw_bus_flush(bed.writer);
		uint64_t want = tw_bus_writer_next_seq(bed.writer);
		while (tw_bus_reader_next_seq(bed.reader) < want) {
			struct tw_bus_batch batch;
			int rc = tw_bus_read(bed.reader, bed.dst, max, &batch);
			if (rc == TW_ELAPPED) {
				continue;
			}
			cr_assert_gt(rc, 0);
			cr_assert_leq(batch.bytes, max);
			check_batch(&bed, &batch);
			/* another one would not have fitted, or there is no other one */
			uint64_t next = batch.first_seq + batch.count;
			cr_assert(next == want || batch.bytes + test_msg_bytes(next) > max);
		}
		tw_bus_reader_close(bed.reader);
		bed.reader = NULL;
	}
	bed_down(&bed);
}

Test(bus, a_message_larger_than_the_room_is_refused_and_stays, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	append_n(&bed, 1);
	tw_bus_flush(bed.writer);
	struct tw_bus_batch batch;
	uint32_t len = test_msg_bytes(1);
	cr_assert_eq(tw_bus_read(bed.reader, bed.dst, len - 8, &batch), TW_EFULL);
	cr_assert_eq(tw_bus_read(bed.reader, bed.dst, len, &batch), 1);
	check_batch(&bed, &batch);
	bed_down(&bed);
}

Test(bus, delivered_and_lost_partition_the_numbers, .timeout = 30)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	uint64_t got = 0, lost = 0;
	for (uint64_t burst = 1; burst < 2000; burst = burst * 3 / 2 + 1) {
		for (int i = 0; i < 20; i++) {
			append_n(&bed, burst);
			tw_bus_flush(bed.writer);
			got += drain(&bed, &lost);
			cr_assert_eq(got + lost, tw_bus_writer_next_seq(bed.writer) - 1);
		}
	}
	cr_assert_gt(lost, 0);
	cr_assert_gt(got, lost / 4);
	bed_down(&bed);
}

Test(bus, a_lapped_reader_has_head_room, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	append_n(&bed, 4000); /* several rings */
	tw_bus_flush(bed.writer);
	struct tw_bus_batch batch;
	cr_assert_eq(tw_bus_read(bed.reader, bed.dst, 4096, &batch), TW_ELAPPED);
	cr_assert_eq(batch.first_seq, 1);
	/* a fifth of the ring more, and what it resumed at is still there */
	for (uint64_t bytes = 0; bytes < SIZE / 5;) {
		bytes += test_msg_bytes(tw_bus_writer_next_seq(bed.writer));
		append_n(&bed, 1);
	}
	tw_bus_flush(bed.writer);
	uint64_t end = batch.end_seq;
	cr_assert_gt(tw_bus_read(bed.reader, bed.dst, 4096, &batch), 0);
	cr_assert_eq(batch.first_seq, end);
	check_batch(&bed, &batch);
	bed_down(&bed);
}

Test(bus, opens_at_the_oldest_message, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	for (int i = 0; i < 300; i++) {
		append_n(&bed, 17);
		tw_bus_flush(bed.writer);
		open_reader(&bed, false);
		uint64_t first = tw_bus_reader_next_seq(bed.reader), lost = 0, bytes = 0;
		uint64_t end = tw_bus_writer_next_seq(bed.writer);
		for (uint64_t seq = first; seq < end; seq++) {
			bytes += test_msg_bytes(seq);
		}
		cr_assert(first == 1 || bytes > SIZE - 3 * (SIZE / TW_BUS_SEGMENTS));
		cr_assert_eq(drain(&bed, &lost), end - first);
		cr_assert_eq(lost, 0);
		tw_bus_reader_close(bed.reader);
		bed.reader = NULL;
	}
	bed_down(&bed);
}

Test(bus, a_gate_stops_the_writer_and_loses_nothing, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	cr_assert_not(tw_bus_has_gate(bed.writer));
	open_reader(&bed, true);
	cr_assert(tw_bus_has_gate(bed.writer));
	uint64_t refused = 0, got = 0, lost = 0;
	while (tw_bus_writer_next_seq(bed.writer) < 5000) {
		if (append_next(&bed, true)) {
			continue;
		}
		refused++;
		/* what was read but not released is still protected */
		uint64_t before = got;
		got += drain(&bed, &lost);
		cr_assert_gt(got, before, "a refused append has flushed");
		cr_assert_not(append_next(&bed, true));
		cr_assert_lt(tw_bus_gate_seq(bed.writer), got);
		tw_bus_release(bed.reader);
		cr_assert_eq(tw_bus_gate_seq(bed.writer), got);
		cr_assert(append_next(&bed, true));
	}
	tw_bus_flush(bed.writer);
	got += drain(&bed, &lost);
	tw_bus_release(bed.reader);
	cr_assert_gt(refused, 3);
	cr_assert_eq(lost, 0);
	cr_assert_eq(got, 4999);
	cr_assert_eq(tw_bus_gate_seq(bed.writer), tw_bus_writer_next_seq(bed.writer) - 1);
	bed_down(&bed);
}

Test(bus, a_new_gate_goes_on_where_the_dead_one_released, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	append_n(&bed, 20);
	tw_bus_flush(bed.writer);
	/* a child reads 20, releases, is shown 10 more, reads them and dies without releasing */
	int up[2], down[2];
	cr_assert_eq(pipe(up), 0);
	cr_assert_eq(pipe(down), 0);
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		char c = 0;
		struct tw_bus_reader *reader;
		struct tw_bus_batch batch;
		bool ok = tw_bus_open(&reader, bed.dir.path, CHANNEL, true, NULL) == TW_OK &&
			  tw_bus_new_life(reader, NULL) == 1;
		while (ok && tw_bus_reader_next_seq(reader) <= 20) {
			ok = tw_bus_read(reader, bed.dst, sizeof(bed.dst), &batch) > 0;
		}
		if (ok) {
			tw_bus_release(reader);
		}
		ok = write(up[1], "r", 1) == 1 && read(down[0], &c, 1) == 1 && ok;
		while (ok && tw_bus_reader_next_seq(reader) <= 30) {
			ok = tw_bus_read(reader, bed.dst, sizeof(bed.dst), &batch) > 0;
		}
		_exit(ok ? 0 : 1); /* no close: as killed */
	}
	char c;
	cr_assert_eq(read(up[0], &c, 1), 1);
	cr_assert(tw_bus_has_gate(bed.writer));
	cr_assert_eq(tw_bus_open(&bed.reader, bed.dir.path, CHANNEL, true, &bed.err), TW_EBUSY);
	append_n(&bed, 10);
	tw_bus_flush(bed.writer);
	cr_assert_eq(write(down[1], "g", 1), 1);
	int status;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	cr_assert_not(tw_bus_has_gate(bed.writer));
	cr_assert_eq(tw_bus_gate_seq(bed.writer), 20);

	/* without a gate the writer waits once the ring is full */
	uint64_t lost = 0;
	while (append_next(&bed, true)) {
	}
	open_reader(&bed, true);
	cr_assert_eq(tw_bus_reader_next_seq(bed.reader), 21);
	cr_assert_eq(tw_bus_new_life(bed.reader, &bed.err), 2);
	uint64_t end = tw_bus_writer_next_seq(bed.writer);
	cr_assert_eq(drain(&bed, &lost), end - 21);
	cr_assert_eq(lost, 0);
	tw_bus_release(bed.reader);
	cr_assert(append_next(&bed, true));
	bed_down(&bed);
}

Test(bus, a_gate_that_died_between_the_pairs_leaves_the_last_whole_one, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, true);
	uint64_t lost = 0;
	append_n(&bed, 5);
	tw_bus_flush(bed.writer);
	drain(&bed, &lost);
	tw_bus_release(bed.reader);
	tw_bus_reader_close(bed.reader);
	/* half a release: the pair that is not in force holds anything */
	struct tw_bus_map map;
	cr_assert_eq(tw_bus_map_open(&map, bed.dir.path, CHANNEL, true, NULL), TW_OK);
	uint64_t turn = atomic_load(&map.header->gate_turn);
	atomic_store(&map.header->gate[(turn + 1) % 2].seq, 4711);
	tw_bus_map_close(&map);
	open_reader(&bed, true);
	cr_assert_eq(tw_bus_reader_next_seq(bed.reader), 6);
	bed_down(&bed);
}

Test(bus, a_gate_can_be_lapped_where_the_writer_does_not_wait, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, true);
	append_n(&bed, 3000);
	tw_bus_flush(bed.writer);
	uint64_t lost = 0, got = drain(&bed, &lost);
	cr_assert_gt(lost, 0);
	cr_assert_eq(got + lost, 3000);
	tw_bus_release(bed.reader);
	cr_assert_eq(tw_bus_gate_seq(bed.writer), 3000);
	bed_down(&bed);
}

Test(bus, lives_are_numbered_once, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	cr_assert_eq(tw_bus_new_life(bed.reader, &bed.err), TW_ESTATE);
	tw_bus_reader_close(bed.reader);
	for (int i = 1; i <= 3; i++) {
		open_reader(&bed, true);
		cr_assert_eq(tw_bus_new_life(bed.reader, &bed.err), i);
		tw_bus_reader_close(bed.reader);
	}
	open_reader(&bed, true);
	for (int i = 4; i <= 65535; i++) {
		cr_assert_eq(tw_bus_new_life(bed.reader, NULL), i);
	}
	cr_assert_eq(tw_bus_new_life(bed.reader, &bed.err), TW_EFULL);
	bed_down(&bed);
}

Test(bus, one_writer_only, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	struct tw_bus_conf conf = conf_of(&bed);
	struct tw_bus_writer *second = bed.writer;
	cr_assert_eq(tw_bus_create(&second, &conf, 0, &bed.err), TW_EBUSY);
	cr_assert_null(second);
	/* and the refused one has not touched the bus */
	open_reader(&bed, false);
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_LIVE);
	cr_assert_eq(tw_bus_reader_session(bed.reader), tw_bus_writer_session(bed.writer));
	bed_down(&bed);
}

Test(bus, end_and_takeover_are_seen_once_drained, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	uint64_t lost = 0;
	append_n(&bed, 3);
	tw_bus_end(bed.writer);
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_LIVE);
	cr_assert_eq(drain(&bed, &lost), 3);
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_ENDED);
	uint64_t old = tw_bus_writer_session(bed.writer);
	tw_bus_writer_close(bed.writer);
	create(&bed);
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_SUPERSEDED);
	tw_bus_reader_close(bed.reader);
	open_reader(&bed, false);
	cr_assert_gt(tw_bus_reader_session(bed.reader), old);
	cr_assert_eq(tw_bus_reader_next_seq(bed.reader), 1);
	bed_down(&bed);
}

Test(bus, a_writer_that_died_is_taken_over_after_its_bus_is_drained, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, true);
	append_n(&bed, 2);
	tw_bus_writer_close(bed.writer); /* no end */
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_LIVE);
	create(&bed);
	append_n(&bed, 1);
	tw_bus_flush(bed.writer);
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_LIVE);
	uint64_t lost = 0;
	cr_assert_eq(drain(&bed, &lost), 2, "of the old session");
	cr_assert_eq(tw_bus_reader_state(bed.reader), TW_BUS_SUPERSEDED);
	cr_assert_not(tw_bus_has_gate(bed.writer), "the gate of the old file is not the new one's");
	bed_down(&bed);
}

static void store_session(const struct bed *bed, const char *text)
{
	char path[256];
	snprintf(path, sizeof(path), "%s/session-%u", bed->dir.path, CHANNEL);
	FILE *f = fopen(path, "w");
	cr_assert_not_null(f);
	fputs(text, f);
	fclose(f);
}

static void path_of(const struct bed *bed, const char *kind, char path[256])
{
	snprintf(path, 256, "%s/%s-%u", bed->dir.path, kind, CHANNEL);
}

/* The session that the next feedhandler gets. */
static uint64_t next_session(struct bed *bed, uint64_t wall_ms, uint64_t heard)
{
	struct tw_bus_conf conf = conf_of(bed);
	conf.wall_ns = wall_ms * 1000000;
	tw_bus_writer_close(bed->writer);
	cr_assert_eq(tw_bus_create(&bed->writer, &conf, heard, &bed->err), TW_OK, "%s",
		     bed->err.text);
	return tw_bus_writer_session(bed->writer);
}

Test(bus, a_session_is_above_all_that_is_known, .timeout = 10)
{
	struct bed bed;
	char bus[256], session[256];
	bed_up(&bed);
	path_of(&bed, "bus", bus);
	path_of(&bed, "session", session);
	cr_assert_eq(tw_bus_writer_session(bed.writer), 2, "wall clock 1 ms");
	cr_assert_eq(next_session(&bed, 1, 0), 3, "stored");
	cr_assert_eq(next_session(&bed, 500, 0), 501, "wall clock");
	cr_assert_eq(next_session(&bed, 400, 0), 502, "wall clock stepped back");
	cr_assert_eq(next_session(&bed, 400, 900), 901, "heard");
	cr_assert_eq(unlink(session), 0);
	cr_assert_eq(next_session(&bed, 400, 0), 902, "state file lost: the bus knows");
	cr_assert_eq(unlink(bus), 0);
	cr_assert_eq(next_session(&bed, 400, 0), 903, "bus lost: the state file knows");
	cr_assert_eq(unlink(session), 0);
	cr_assert_eq(unlink(bus), 0);
	cr_assert_eq(next_session(&bed, 400, 0), 401);
	static const char *const bad[] = { "",
					   "x\n",
					   "-5\n",
					   "12",
					   "12 \n",
					   "0\n",
					   "99999999999999999999\n",
					   "18446744073709551615\n" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		store_session(&bed, bad[i]);
		cr_assert_eq(next_session(&bed, 400, 0), 402 + i, "'%s'", bad[i]);
	}
	bed_down(&bed);
}

Test(bus, the_last_session_number_is_not_wrapped, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	tw_bus_writer_close(bed.writer);
	struct tw_bus_conf conf = conf_of(&bed);
	cr_assert_eq(tw_bus_create(&bed.writer, &conf, UINT64_MAX, &bed.err), TW_EFULL);
	cr_assert_null(bed.writer);
	bed_down(&bed);
}

Test(bus, no_bus_is_not_found, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	cr_assert_eq(tw_bus_open(&bed.reader, bed.dir.path, CHANNEL + 1, false, &bed.err),
		     TW_ENOTFOUND);
	cr_assert_null(bed.reader);
	bed_down(&bed);
}

Test(bus, sizes_are_checked, .timeout = 10)
{
	struct bed bed;
	bed_up(&bed);
	static const size_t bad[] = { 0, 4096, 32768, 65535, 65537, 98304, SIZE_MAX };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct tw_bus_conf conf = conf_of(&bed);
		struct tw_bus_writer *writer;
		conf.channel = CHANNEL + 1;
		conf.size_bytes = bad[i];
		cr_assert_eq(tw_bus_create(&writer, &conf, 0, &bed.err), TW_EARG, "%zu", bad[i]);
	}
	bed_down(&bed);
}

/* --- files that lie ------------------------------------------------------------------------------- */

static void poke(const struct bed *bed, size_t offset, const void *bytes, size_t len)
{
	char path[256];
	path_of(bed, "bus", path);
	int fd = open(path, O_WRONLY);
	cr_assert_geq(fd, 0);
	cr_assert_eq(pwrite(fd, bytes, len, (off_t)offset), (ssize_t)len);
	close(fd);
}

static void expect_refused(struct bed *bed, const char *what)
{
	for (int gate = 0; gate < 2; gate++) {
		cr_assert_eq(
			tw_bus_open(&bed->reader, bed->dir.path, CHANNEL, gate != 0, &bed->err),
			TW_EFORMAT, "%s", what);
		cr_assert_null(bed->reader);
	}
}

Test(bus, every_wrong_constant_is_refused, .timeout = 20)
{
	struct bed bed;
	bed_up(&bed);
	struct tw_bus_map map;
	cr_assert_eq(tw_bus_map_open(&map, bed.dir.path, CHANNEL, false, NULL), TW_OK);
	struct tw_bus_const good = map.fixed;
	tw_bus_map_close(&map);
	for (int i = 0; i < 10; i++) {
		struct tw_bus_const bad = good;
		switch (i) {
		case 0:
			bad.magic ^= 1;
			break;
		case 1:
			bad.version++;
			break;
		case 2:
			bad.header_bytes = 0;
			break;
		case 3:
			bad.header_bytes = UINT32_MAX;
			break;
		case 4:
			bad.size_bytes *= 2;
			break;
		case 5:
			bad.size_bytes += 8;
			break;
		case 6:
			bad.size_bytes = 1ull << 63;
			break;
		case 7:
			bad.segments = 0;
			break;
		case 8:
			bad.session = 0;
			break;
		default:
			bad.channel++;
		}
		poke(&bed, 0, &bad, sizeof(bad));
		expect_refused(&bed, "constant");
	}
	poke(&bed, 0, &good, sizeof(good));
	open_reader(&bed, true);
	bed_down(&bed);
}

Test(bus, short_files_and_other_things_are_refused, .timeout = 10)
{
	struct bed bed;
	char path[256];
	bed_up(&bed);
	path_of(&bed, "bus", path);
	tw_bus_writer_close(bed.writer); /* or its mapping would lose its file */
	bed.writer = NULL;
	static const off_t lengths[] = { SIZE + TW_BUS_HEADER_BYTES - 1, TW_BUS_HEADER_BYTES, 128,
					 63, 0 };
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		cr_assert_eq(truncate(path, lengths[i]), 0);
		expect_refused(&bed, "length");
	}
	create(&bed); /* a broken file does not stop the next feedhandler */
	open_reader(&bed, false);
	tw_bus_reader_close(bed.reader);
	tw_bus_writer_close(bed.writer);
	bed.writer = NULL;
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(mkfifo(path, 0600), 0);
	for (int gate = 0; gate < 2; gate++) {
		cr_assert_eq(tw_bus_open(&bed.reader, bed.dir.path, CHANNEL, gate != 0, &bed.err),
			     TW_EPERM);
	}
	cr_assert_eq(unlink(path), 0);
	cr_assert_eq(symlink("/dev/zero", path), 0);
	cr_assert_eq(tw_bus_open(&bed.reader, bed.dir.path, CHANNEL, false, &bed.err), TW_EPERM);
	bed_down(&bed);
}

Test(bus, wrong_positions_never_leave_the_mapping, .timeout = 60)
{
	static const uint64_t values[] = {
		0,          8,          4,          SIZE,           SIZE + 1,  3 * (uint64_t)SIZE,
		1ull << 40, 1ull << 62, 1ull << 63, UINT64_MAX - 7, UINT64_MAX
	};
	static const size_t fields[] = {
		offsetof(struct tw_bus_header, published), offsetof(struct tw_bus_header, intent),
		offsetof(struct tw_bus_header, gate_turn), offsetof(struct tw_bus_header, gate),
		offsetof(struct tw_bus_header, gate) + 8,  offsetof(struct tw_bus_header, state),
		offsetof(struct tw_bus_header, checkpoint)
	};
	struct bed bed;
	bed_up(&bed);
	for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
		for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
			for (int full = 0; full < 2; full++) {
				tw_bus_writer_close(bed.writer);
				create(&bed);
				struct tw_bus_reader *early;
				cr_assert_eq(
					tw_bus_open(&early, bed.dir.path, CHANNEL, false, NULL),
					TW_OK);
				append_n(&bed, full ? 3000 : 30);
				tw_bus_flush(bed.writer);
				for (size_t k = 0; k < (f == 6 ? TW_BUS_SEGMENTS : 1); k++) {
					poke(&bed, fields[f] + 8 * k, &values[v], 8);
				}
				struct tw_bus_batch batch;
				for (int i = 0; i < 200; i++) {
					if (tw_bus_read(early, bed.dst, 4096, &batch) <= 0) {
						(void)tw_bus_reader_state(early);
					}
				}
				tw_bus_reader_close(early);
				for (int gate = 0; gate < 2; gate++) {
					if (tw_bus_open(&bed.reader, bed.dir.path, CHANNEL,
							gate != 0, NULL) == TW_OK) {
						for (int i = 0; i < 200; i++) {
							(void)tw_bus_read(bed.reader, bed.dst, 4096,
									  &batch);
						}
						tw_bus_reader_close(bed.reader);
						bed.reader = NULL;
					}
				}
			}
		}
	}
	bed_down(&bed);
}

Test(bus, a_wrong_record_length_breaks_the_reader_for_good, .timeout = 20)
{
	static const uint16_t bad[] = { 1, 7, 0xfff8, 0xffff, TW_MSG_MAX_BYTES, 240 };
	struct bed bed;
	bed_up(&bed);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		tw_bus_writer_close(bed.writer);
		create(&bed);
		open_reader(&bed, false);
		append_n(&bed, 3);
		tw_bus_flush(bed.writer);
		size_t third = TW_BUS_HEADER_BYTES + test_msg_bytes(1) + test_msg_bytes(2);
		cr_assert_neq(test_msg_bytes(3), 248);
		poke(&bed, third, &bad[i], 2);
		struct tw_bus_batch batch;
		cr_assert_eq(tw_bus_read(bed.reader, bed.dst, 4096, &batch), TW_EFORMAT, "%u",
			     bad[i]);
		append_n(&bed, 1);
		tw_bus_flush(bed.writer);
		cr_assert_eq(tw_bus_read(bed.reader, bed.dst, 4096, &batch), TW_EFORMAT);
		tw_bus_reader_close(bed.reader);
		bed.reader = NULL;
	}
	bed_down(&bed);
}
