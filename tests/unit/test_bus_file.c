/* Bus files: session numbers, sizes, and files that lie. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/bus_bed.h"

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

Test(bus_file, a_session_is_above_all_that_is_known, .timeout = 60)
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

Test(bus_file, the_last_session_number_is_not_wrapped, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	tw_bus_writer_close(bed.writer);
	struct tw_bus_conf conf = conf_of(&bed);
	cr_assert_eq(tw_bus_create(&bed.writer, &conf, UINT64_MAX, &bed.err), TW_EFULL);
	cr_assert_null(bed.writer);
	bed_down(&bed);
}

Test(bus_file, no_bus_is_not_found, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	cr_assert_eq(tw_bus_open(&bed.reader, bed.dir.path, CHANNEL + 1, false, &bed.err),
		     TW_ENOTFOUND);
	cr_assert_null(bed.reader);
	bed_down(&bed);
}

Test(bus_file, sizes_are_checked, .timeout = 60)
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

Test(bus_file, every_wrong_constant_is_refused, .timeout = 60)
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

Test(bus_file, short_files_and_other_things_are_refused, .timeout = 60)
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

Test(bus_file, wrong_positions_never_leave_the_mapping, .timeout = 60)
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

Test(bus_file, a_wrong_record_length_breaks_the_reader_for_good, .timeout = 60)
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
