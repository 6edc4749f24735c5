/* The bus, one thread: numbers, laps, the gate, taking over. */
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/bus_bed.h"

Test(bus, nothing_is_seen_before_flush, .timeout = 60)
{
	struct bed bed;
	bed_up(&bed);
	open_reader(&bed, false);
	uint64_t lost = 0;
	append_n(&bed, 3);
	cr_assert_not(tw_bus_has_news(bed.reader));
	cr_assert_eq(drain(&bed, &lost), 0);
	tw_bus_flush(bed.writer);
	cr_assert(tw_bus_has_news(bed.reader));
	cr_assert_eq(drain(&bed, &lost), 3);
	cr_assert_eq(lost, 0);
	cr_assert_not(tw_bus_has_news(bed.reader));
	cr_assert_eq(tw_bus_writer_next_seq(bed.writer), 4);
	cr_assert_eq(tw_bus_reader_next_seq(bed.reader), 4);
	bed_down(&bed);
}

Test(bus, append_flushes_by_itself_within_a_quarter, .timeout = 60)
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

Test(bus, every_batch_size_gives_whole_messages, .timeout = 60)
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

Test(bus, a_message_larger_than_the_room_is_refused_and_stays, .timeout = 60)
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

Test(bus, delivered_and_lost_partition_the_numbers, .timeout = 60)
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

Test(bus, a_lapped_reader_has_head_room, .timeout = 60)
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

Test(bus, opens_at_the_oldest_message, .timeout = 60)
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

Test(bus, a_gate_stops_the_writer_and_loses_nothing, .timeout = 60)
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

Test(bus, a_new_gate_goes_on_where_the_dead_one_released, .timeout = 60)
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

Test(bus, a_gate_that_died_between_the_pairs_leaves_the_last_whole_one, .timeout = 60)
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

Test(bus, a_gate_can_be_lapped_where_the_writer_does_not_wait, .timeout = 60)
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

Test(bus, lives_are_numbered_once, .timeout = 60)
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

Test(bus, one_writer_only, .timeout = 60)
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

Test(bus, end_and_takeover_are_seen_once_drained, .timeout = 60)
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

Test(bus, a_writer_that_died_is_taken_over_after_its_bus_is_drained, .timeout = 60)
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
