/* docs/COUNTERS.md, from counters_table.h and the layout in counters_file.h. */
#include "base/counters_file.h"
#include "base/counters_sets.h"

static const char *kind_name(enum tw_counter_kind kind)
{
	switch (kind) {
	case TW_KIND_COUNTER:
		return "counter";
	case TW_KIND_GAUGE:
		return "gauge";
	case TW_KIND_MAX:
		return "max";
	}
	return "?";
}

static void document_set(FILE *out, const struct tw_counters_set *set)
{
	fprintf(out, "\n### `%s`\n\nOne group for each: %s.\n\n", set->name, set->help);
	fprintf(out, "| counter | kind | unit | meaning |\n|---|---|---|---|\n");
	for (uint32_t i = 0; i < set->value_count; i++) {
		const struct tw_counters_value_info *v = &set->values[i];
		fprintf(out, "| `%s` | %s | %s | %s |\n", v->name, kind_name(v->kind), v->unit,
			v->help);
	}
	if (set->hist_count == 0) {
		return;
	}
	fprintf(out, "\n| histogram | unit | meaning |\n|---|---|---|\n");
	for (uint32_t i = 0; i < set->hist_count; i++) {
		fprintf(out, "| `%s` | ns | %s |\n", set->hists[i].name, set->hists[i].help);
	}
}

#define FIELD(type, field, meaning)                                                             \
	fprintf(out, "| %zu | %zu | `%s` | %s |\n", offsetof(struct tw_counters_##type, field), \
		sizeof(((struct tw_counters_##type *)0)->field), #field, meaning)

static void field_table(FILE *out, const char *title, size_t bytes)
{
	fprintf(out, "\n%s, %zu bytes:\n\n| at | bytes | field | meaning |\n|---|---|---|---|\n",
		title, bytes);
}

static void document_header(FILE *out)
{
	field_table(out, "Header", sizeof(struct tw_counters_header));
	FIELD(header, magic, "`" TW_COUNTERS_MAGIC "` and a NUL");
	FIELD(header, version, "of this layout; a reader refuses another");
	FIELD(header, header_bytes, "of this header");
	FIELD(header, file_bytes, "of the file");
	FIELD(header, meta_bytes, "header and tables; data begins here");
	FIELD(header, start_ticks, "when the process started, field 22 of `/proc/PID/stat`");
	FIELD(header, created_ns, "wall clock, ns since the Unix epoch");
	FIELD(header, pid, "of the owner");
	FIELD(header, group_count, "groups");
	FIELD(header, value_count, "values of all groups");
	FIELD(header, hist_count, "histograms of all groups");
	FIELD(header, groups_offset, "of the table of groups");
	FIELD(header, values_offset, "of the table of value descriptors");
	FIELD(header, hists_offset, "of the table of histogram descriptors");
	FIELD(header, hist_bytes, "of one histogram");
	FIELD(header, hist_sub_bits, "an octave is cut into two to the power of this");
	FIELD(header, hist_max_bits, "values from two to the power of this on saturate");
	FIELD(header, program, "name of the program");
	FIELD(header, reserved, "zero");
}

static void document_tables(FILE *out)
{
	field_table(out, "Group", sizeof(struct tw_counters_group));
	FIELD(group, set, "name of the set, one of those above");
	FIELD(group, label, "which one: \"channel 1 line a\"");
	FIELD(group, first_value, "index of its first value descriptor");
	FIELD(group, value_count, "its values");
	FIELD(group, first_hist, "index of its first histogram descriptor");
	FIELD(group, hist_count, "its histograms");
	FIELD(group, values_offset, "of its values in the file, a multiple of 128");
	FIELD(group, hists_offset, "of its histograms in the file, a multiple of 128");

	field_table(out, "Value descriptor", sizeof(struct tw_counters_value));
	FIELD(value, name, "name");
	FIELD(value, unit, "unit, may be empty");
	FIELD(value, kind, "0 counter, 1 gauge, 2 max");
	FIELD(value, group, "index of its group");

	field_table(out, "Histogram descriptor", sizeof(struct tw_counters_hist));
	FIELD(hist, name, "name");
	FIELD(hist, unit, "unit");
	FIELD(hist, group, "index of its group");
	FIELD(hist, reserved, "zero");
}

static void document_layout(FILE *out)
{
	fprintf(out,
		"\n## The file\n\n"
		"Version %u.  Integers are little-endian and naturally aligned.  Strings end in a "
		"NUL and hold no\ncontrol characters.  Everything before `meta_bytes` is constant "
		"once the file has its name; everything\nafter is written by the owner, each value "
		"by one thread, in whole 64-bit words, without any order\nbetween words.\n",
		TW_COUNTERS_VERSION);
	document_header(out);
	document_tables(out);
	fprintf(out,
		"\nA histogram is %zu words of 64 bits: `count`, `sum_ns`, `max_ns`, `saturated` "
		"(values of 2^%u and more),\n`negative` (values below 0, recorded as 0), then %u "
		"buckets.  Bucket `b` below %u holds the value `b`;\nwith `s = b / %u - 1` and "
		"`t = b %% %u + %u` any other holds the values from `t << s` to\n"
		"`((t + 1) << s) - 1`.\n",
		sizeof(struct tw_hist) / sizeof(uint64_t), TW_HIST_MAX_BITS, TW_HIST_BUCKETS,
		1u << TW_HIST_SUB_BITS, 1u << TW_HIST_SUB_BITS, 1u << TW_HIST_SUB_BITS,
		1u << TW_HIST_SUB_BITS);
}

void tw_counters_document(FILE *out)
{
	fprintf(out,
		"<!-- Generated from core/base/counters_table.h; edit that. -->\n"
		"# Counters\n\n"
		"Every process keeps its counters and latency histograms in a file "
		"`run_dir/NAME.counters`, which others\nmap read-only and read without disturbing "
		"it.  A **counter** only grows, a **gauge** is a present value,\na **max** is the "
		"largest value so far.  All begin at 0 when the process starts.\n\n"
		"## Sets\n");
	for (unsigned int i = 0; i < TW_SET_COUNT; i++) {
		document_set(out, &tw_counters_sets[i]);
	}
	document_layout(out);
}
