/* Layout of a counter file, version 1.  All integers little-endian, everything naturally aligned.
 *
 *   0               header
 *   groups_offset   group_count groups
 *   values_offset   value_count value descriptors, group after group
 *   hists_offset    hist_count histogram descriptors, group after group
 *   meta_bytes      from here on data: each group's values (u64), then its histograms
 *
 * Everything before meta_bytes is constant once the file has its name; everything after is written
 * by the owner while others read it.  A group's values start on a multiple of 128 bytes and so do
 * its histograms, so that groups with different writers share no pair of cache lines. */
#ifndef TW_BASE_COUNTERS_FILE_H
#define TW_BASE_COUNTERS_FILE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hist.h"
#include "tidewire/error.h"

#define TW_COUNTERS_MAGIC     "TWCNTRS" /* with its NUL, 8 bytes */
#define TW_COUNTERS_VERSION   1u
#define TW_COUNTERS_ALIGN     128u
#define TW_COUNTERS_MAX_BYTES (1u << 28) /* a reader refuses more: no process has that many */
#define TW_COUNTERS_MAX_ITEMS (1u << 20) /* of groups, values, histograms each */

/* magic, version, pid and start_ticks keep their place in every version: a maker must be able to
 * tell whether the owner of a file of another version lives. */
struct tw_counters_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint64_t file_bytes;
	uint64_t meta_bytes;
	uint64_t start_ticks; /* of the process, /proc/PID/stat field 22: tells a pid used again */
	uint64_t created_ns;  /* wall clock */
	uint32_t pid;
	uint32_t group_count;
	uint32_t value_count;
	uint32_t hist_count;
	uint32_t groups_offset;
	uint32_t values_offset;
	uint32_t hists_offset;
	uint32_t hist_bytes; /* of one histogram: 5 words, then the buckets */
	uint32_t hist_sub_bits;
	uint32_t hist_max_bits;
	char program[64];
	uint8_t reserved[104];
};

struct tw_counters_group {
	char set[32]; /* strings are NUL-terminated and hold no control characters */
	char label[128];
	uint32_t first_value; /* index of its first descriptor */
	uint32_t value_count;
	uint32_t first_hist;
	uint32_t hist_count;
	uint64_t values_offset; /* of its data, from the start of the file */
	uint64_t hists_offset;
};

struct tw_counters_value {
	char name[48];
	char unit[8];
	uint32_t kind;  /* enum tw_counter_kind */
	uint32_t group; /* index of the group it belongs to */
};

struct tw_counters_hist {
	char name[48];
	char unit[8]; /* "ns" */
	uint32_t group;
	uint32_t reserved;
};

static_assert(sizeof(struct tw_counters_header) == 256, "header");
static_assert(offsetof(struct tw_counters_header, file_bytes) == 16, "header: sizes");
static_assert(offsetof(struct tw_counters_header, start_ticks) == 32, "header: process");
static_assert(offsetof(struct tw_counters_header, pid) == 48, "header: counts");
static_assert(offsetof(struct tw_counters_header, groups_offset) == 64, "header: offsets");
static_assert(offsetof(struct tw_counters_header, hist_bytes) == 76, "header: histogram");
static_assert(offsetof(struct tw_counters_header, program) == 88, "header: program");
static_assert(sizeof(struct tw_counters_group) == 192, "group");
static_assert(offsetof(struct tw_counters_group, first_value) == 160, "group: indices");
static_assert(offsetof(struct tw_counters_group, values_offset) == 176, "group: offsets");
static_assert(sizeof(struct tw_counters_value) == 64, "value descriptor");
static_assert(offsetof(struct tw_counters_value, kind) == 56, "value descriptor: kind");
static_assert(sizeof(struct tw_counters_hist) == 64, "histogram descriptor");
static_assert(offsetof(struct tw_counters_hist, group) == 56, "histogram descriptor: group");
static_assert(sizeof(_Atomic uint64_t) == 8, "a value is a word");
static_assert(offsetof(struct tw_hist, buckets) == 40, "a histogram starts with five words");
static_assert(sizeof(struct tw_hist) == 40 + 8 * TW_HIST_BUCKETS, "a histogram has no padding");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as memory lies");

/* `meta`: the first meta_avail bytes of a file of file_bytes.  Once this has returned TW_OK, every
 * offset, index and string in the header and tables may be used as it is.  TW_EFORMAT otherwise. */
int tw_counters_check_header(const void *meta, size_t meta_avail, uint64_t file_bytes,
			     struct tw_error *err) TW_MUST_USE;
int tw_counters_check(const void *meta, size_t meta_avail, uint64_t file_bytes,
		      struct tw_error *err) TW_MUST_USE;

/* The time process `pid` started, in clock ticks since boot; 0 where there is no such process (any
 * more), or it is a zombie. */
uint64_t tw_process_start_ticks(uint32_t pid);
/* Whether the process that started then still runs. */
bool tw_process_lives(uint32_t pid, uint64_t start_ticks);

#endif
