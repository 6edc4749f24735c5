/* Counters and histograms of a process, in one file under run_dir that others map read-only.
 *
 * File      described by itself: header (magic, version, sizes, pid, program, start time), a table
 *           of groups (type, label, first value, first histogram), a table of value descriptors
 *           (name, unit, kind), then the values and histograms.  A reader needs no table of its own
 *           and refuses another version.  Layout: counters_file.h and docs/COUNTERS.md.
 * Groups    one instance of a counter set: "pub_line" labelled "channel 1 line a".  Each group
 *           starts on its own pair of cache lines and has one writing thread.
 * Table     counters_table.h is the one place that names sets and counters; enum, layout and
 *           document come from it.
 * Threads   create, add, seal and close: one thread, at start and end.  Bumping: the group's
 *           writer.  Reading: anyone. */
#ifndef TW_BASE_COUNTERS_H
#define TW_BASE_COUNTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/counters_table.h"
#include "base/hist.h"
#include "tidewire/error.h"

enum tw_counter_kind { TW_KIND_COUNTER = 0, TW_KIND_GAUGE, TW_KIND_MAX };

/* enum tw_set { TW_SET_fh_channel, ... };
 * enum tw_fh_channel_counter { TW_FH_CHANNEL_messages, ... };
 * enum tw_fh_channel_hist { TW_FH_CHANNEL_HIST_exchange_to_feedhandler, ... } */
#define TW_SET_ENUM(set, help) TW_SET_##set,
enum tw_set { TW_COUNTER_SETS(TW_SET_ENUM) TW_SET_COUNT };
#undef TW_SET_ENUM

struct tw_counters { /* one group; valid until tw_stats_close() */
	_Atomic uint64_t *values;
	struct tw_hist *hists;
};

struct tw_stats;

/* Makes run_dir/NAME.counters, replacing one of the same name whose process is gone; TW_EBUSY where
 * that process lives.  run_dir NULL: private memory, nothing to read from outside. */
int tw_stats_create(struct tw_stats **stats_p, const char *run_dir, const char *name,
		    const char *program, struct tw_error *err) TW_MUST_USE;
/* Adds a group before seal.  *out is filled in by tw_stats_seal() and must stay where it is until
 * then.  `label` (at most 127 bytes) is copied. */
int tw_stats_add(struct tw_stats *stats, enum tw_set set, const char *label,
		 struct tw_counters *out, struct tw_error *err) TW_MUST_USE;
/* Lays the file out and publishes it (rename).  TW_EBUSY where another process took the name since
 * tw_stats_create(). */
int tw_stats_seal(struct tw_stats *stats, struct tw_error *err) TW_MUST_USE;
/* Unmaps; `unlink_file` removes it. NULL ok. */
void tw_stats_close(struct tw_stats *stats, bool unlink_file);

static inline void tw_counter_add(const struct tw_counters *c, unsigned int index, uint64_t n)
{
	/* single writer: no locked add, and nothing is ordered by a counter */
	uint64_t v = atomic_load_explicit(&c->values[index], memory_order_relaxed);
	atomic_store_explicit(&c->values[index], v + n, memory_order_relaxed);
}
static inline void tw_counter_set(const struct tw_counters *c, unsigned int index, uint64_t v)
{
	atomic_store_explicit(&c->values[index], v, memory_order_relaxed);
}
static inline void tw_counter_max(const struct tw_counters *c, unsigned int index, uint64_t v)
{
	if (v > atomic_load_explicit(&c->values[index], memory_order_relaxed)) {
		atomic_store_explicit(&c->values[index], v, memory_order_relaxed);
	}
}
static inline uint64_t tw_counter_get(const struct tw_counters *c, unsigned int index)
{
	return atomic_load_explicit(&c->values[index], memory_order_relaxed);
}

/* Reading another process's file.  Every byte of it is hostile until validated. */
struct tw_stats_reader;
struct tw_stats_value {
	const char *group, *label, *name, *unit;
	enum tw_counter_kind kind;
	uint64_t value;
};
struct tw_stats_hist {
	const char *group, *label, *name;
	const struct tw_hist *hist;
};
/* file_name with its suffix: "pub1.counters".  Strings handed out live until the reader closes. */
int tw_stats_open(struct tw_stats_reader **reader_p, const char *run_dir, const char *file_name,
		  struct tw_error *err) TW_MUST_USE;
const char *tw_stats_program(const struct tw_stats_reader *reader);
int tw_stats_pid(const struct tw_stats_reader *reader);
/* Whether that process still runs (and is not another one with the same pid). */
bool tw_stats_alive(const struct tw_stats_reader *reader);
uint32_t tw_stats_value_count(const struct tw_stats_reader *reader);
void tw_stats_value_at(const struct tw_stats_reader *reader, uint32_t index,
		       struct tw_stats_value *out);
uint32_t tw_stats_hist_count(const struct tw_stats_reader *reader);
void tw_stats_hist_at(const struct tw_stats_reader *reader, uint32_t index,
		      struct tw_stats_hist *out);
void tw_stats_reader_close(struct tw_stats_reader *reader); /* NULL ok */

/* Writes docs/COUNTERS.md. */
void tw_counters_document(FILE *out);

/* Duty cycle of a hot loop: longest turn, turns over the threshold, empty turns (set "loop"). */
struct tw_duty {
	struct tw_counters counters; /* of TW_SET_loop */
	uint64_t last_ns, threshold_ns;
};
void tw_duty_init(struct tw_duty *duty, struct tw_counters counters, uint64_t threshold_ns);
/* Once a turn with the mono_ns that the turn already has; `work` 0 counts as an empty poll. */
void tw_duty_turn(struct tw_duty *duty, uint64_t now_ns, unsigned int work);

#endif
