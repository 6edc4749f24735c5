/* counters_table.h as data, and the check that its names fit the file's fields. */
#include "base/counters_sets.h"

#include "base/counters_file.h"

#define NOTHING(...)

#define VALUE_FITS(set, SET, name_, kind_, unit_, help_)                                      \
	static_assert(sizeof(#name_) <= sizeof(((struct tw_counters_value *)0)->name) &&      \
			      sizeof(unit_) <= sizeof(((struct tw_counters_value *)0)->unit), \
		      #set "." #name_);
#define HIST_FITS(set, SET, name_, help_)                                             \
	static_assert(sizeof(#name_) <= sizeof(((struct tw_counters_hist *)0)->name), \
		      #set "." #name_);
#define VALUE_INFO(set, SET, name_, kind_, unit_, help_) \
	{ .name = #name_, .unit = unit_, .help = help_, .kind = TW_KIND_##kind_ },
#define HIST_INFO(set, SET, name_, help_) { .name = #name_, .help = help_ },

/* Each array ends in an empty entry, which is not counted: a set may lack one of the two. */
/* clang-format off */
#define SET_ARRAYS(set_, help_)                                                              \
	static_assert(sizeof(#set_) <= sizeof(((struct tw_counters_group *)0)->set), #set_); \
	TW_COUNTERS_##set_(VALUE_FITS, HIST_FITS)                                            \
	static const struct tw_counters_value_info set_##_values[] = {                       \
		TW_COUNTERS_##set_(VALUE_INFO, NOTHING) { .name = NULL }                     \
	};                                                                                   \
	static const struct tw_counters_hist_info set_##_hists[] = {                         \
		TW_COUNTERS_##set_(NOTHING, HIST_INFO) { .name = NULL }                      \
	};
/* clang-format on */
TW_COUNTER_SETS(SET_ARRAYS)

#define SET_INFO(set, help_)                                               \
	[TW_SET_##set] = { .name = #set,                                   \
			   .help = help_,                                  \
			   .values = set##_values,                         \
			   .hists = set##_hists,                           \
			   .value_count = (uint32_t)TW_N_##set##_counters, \
			   .hist_count = (uint32_t)TW_N_##set##_hists },
const struct tw_counters_set tw_counters_sets[TW_SET_COUNT] = { TW_COUNTER_SETS(SET_INFO) };
