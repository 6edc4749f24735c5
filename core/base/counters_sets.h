/* counters_table.h as data: what the file writer and the document are made from. */
#ifndef TW_BASE_COUNTERS_SETS_H
#define TW_BASE_COUNTERS_SETS_H

#include <stdint.h>

#include "base/counters.h"

struct tw_counters_value_info {
	const char *name, *unit, *help;
	enum tw_counter_kind kind;
};

struct tw_counters_hist_info {
	const char *name, *help;
};

struct tw_counters_set {
	const char *name, *help;
	const struct tw_counters_value_info *values;
	const struct tw_counters_hist_info *hists;
	uint32_t value_count, hist_count;
};

extern const struct tw_counters_set tw_counters_sets[TW_SET_COUNT];

#endif
