/* Counter files: whatever the bytes, the check takes or refuses them, and what it took can be read
 * through without leaving them. */
#include <stdlib.h>
#include <string.h>

#include "base/counters.h"
#include "base/counters_file.h"

static size_t sink; /* keeps the reads */

static uint64_t word_at(const uint8_t *p)
{
	uint64_t word;
	memcpy(&word, p, sizeof(word));
	return word;
}

/* What counters_reader.c does with a file that has been taken. */
static void walk(const uint8_t *file)
{
	struct tw_counters_header h;
	memcpy(&h, file, sizeof(h));
	sink += strlen(h.program);
	for (uint32_t i = 0; i < h.value_count; i++) {
		struct tw_counters_value v;
		struct tw_counters_group g;
		memcpy(&v, file + h.values_offset + (size_t)i * sizeof(v), sizeof(v));
		memcpy(&g, file + h.groups_offset + (size_t)v.group * sizeof(g), sizeof(g));
		sink += strlen(v.name) + strlen(v.unit) + strlen(g.set) + strlen(g.label);
		if (v.kind > TW_KIND_MAX || i - g.first_value >= g.value_count) {
			abort();
		}
		sink += word_at(file + g.values_offset + (size_t)(i - g.first_value) * 8);
	}
	for (uint32_t i = 0; i < h.hist_count; i++) {
		struct tw_counters_hist d;
		struct tw_counters_group g;
		memcpy(&d, file + h.hists_offset + (size_t)i * sizeof(d), sizeof(d));
		memcpy(&g, file + h.groups_offset + (size_t)d.group * sizeof(g), sizeof(g));
		sink += strlen(d.name);
		if (i - g.first_hist >= g.hist_count) {
			abort();
		}
		const void *hist =
			file + g.hists_offset + (size_t)(i - g.first_hist) * sizeof(struct tw_hist);
		struct tw_hist_summary s;
		tw_hist_summarize(hist, &s);
		if (s.p50_ns > s.max_ns) {
			abort();
		}
	}
}

/* The reader copies no more than header and tables: they alone must do, and one byte less not. */
static void check_tables_alone(const uint8_t *file, size_t size)
{
	struct tw_counters_header h;
	memcpy(&h, file, sizeof(h));
	size_t meta_bytes = (size_t)h.meta_bytes;
	uint8_t *meta = malloc(meta_bytes);
	if (meta == NULL) {
		return;
	}
	memcpy(meta, file, meta_bytes);
	if (tw_counters_check(meta, meta_bytes, size, NULL) != TW_OK ||
	    tw_counters_check(meta, meta_bytes - 1, size, NULL) != TW_EFORMAT) {
		abort();
	}
	free(meta);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *file = malloc(size > 0 ? size : 1); /* exactly as large, for ASan */
	if (file == NULL) {
		return 0;
	}
	memcpy(file, data, size);
	struct tw_error err = { 0 };
	int rc = tw_counters_check(file, size, size, &err);
	if (rc == TW_OK) {
		walk(file);
		check_tables_alone(file, size);
	} else if (rc != TW_EFORMAT || err.text[0] == '\0') {
		abort();
	}
	free(file);
	return 0;
}
