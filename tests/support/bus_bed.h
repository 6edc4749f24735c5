/* A bus in a directory of its own, with a writer, a reader and messages that can be checked. */
#ifndef TW_TESTS_BUS_BED_H
#define TW_TESTS_BUS_BED_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

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

static inline struct tw_bus_conf conf_of(const struct bed *bed)
{
	return (struct tw_bus_conf){
		.run_dir = bed->dir.path, .channel = CHANNEL, .size_bytes = SIZE, .wall_ns = 1000000
	};
}

static inline void create(struct bed *bed)
{
	struct tw_bus_conf conf = conf_of(bed);
	cr_assert_eq(tw_bus_create(&bed->writer, &conf, 0, &bed->err), TW_OK, "%s", bed->err.text);
}

static inline void open_reader(struct bed *bed, bool as_gate)
{
	cr_assert_eq(tw_bus_open(&bed->reader, bed->dir.path, CHANNEL, as_gate, &bed->err), TW_OK,
		     "%s", bed->err.text);
}

static inline void bed_up(struct bed *bed)
{
	memset(bed, 0, sizeof(*bed));
	cr_assert(temp_dir_make(&bed->dir));
	create(bed);
}

static inline void bed_down(struct bed *bed)
{
	tw_bus_reader_close(bed->reader);
	tw_bus_writer_close(bed->writer);
	temp_dir_remove(&bed->dir);
}

static inline bool append_next(struct bed *bed, bool gated)
{
	uint64_t msg[TW_MSG_MAX_BYTES / 8];
	uint32_t len = test_msg_make(msg, tw_bus_writer_next_seq(bed->writer), SALT);
	return tw_bus_append(bed->writer, msg, len, gated);
}

static inline void append_n(struct bed *bed, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		cr_assert(append_next(bed, false));
	}
}

static inline void check_batch(const struct bed *bed, const struct tw_bus_batch *batch)
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
static inline uint64_t drain(struct bed *bed, uint64_t *lost)
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

#endif
