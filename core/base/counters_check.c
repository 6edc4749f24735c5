/* Validating a counter file.  Works on bytes, knows no file: this is what the fuzzer calls. */
#include <stdbool.h>
#include <string.h>

#include "base/counters.h"
#include "base/counters_file.h"
#include "base/fail.h"

#define BAD(err, ...) tw_fail(err, TW_EFORMAT, "counter file: " __VA_ARGS__)

static bool is_text(const char *field, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)field[i];
		if (c == 0) {
			return true;
		}
		if (c < 0x20 || c == 0x7f) {
			return false; /* it may go to a terminal */
		}
	}
	return false;
}

/* [offset, offset + count * item) lies in [from, to) and is aligned. */
static bool fits(uint64_t offset, uint64_t count, uint64_t item, uint64_t from, uint64_t to,
		 uint64_t align)
{
	/* count <= TW_COUNTERS_MAX_ITEMS and item <= sizeof(struct tw_hist): no overflow */
	return offset % align == 0 && offset >= from && offset <= to && count * item <= to - offset;
}

int tw_counters_check_header(const void *meta, size_t meta_avail, uint64_t file_bytes,
			     struct tw_error *err)
{
	struct tw_counters_header h;
	if (meta_avail < sizeof(h) || file_bytes < sizeof(h)) {
		return BAD(err, "%zu bytes are too few", meta_avail);
	}
	memcpy(&h, meta, sizeof(h));
	if (memcmp(h.magic, TW_COUNTERS_MAGIC, sizeof(h.magic)) != 0) {
		return BAD(err, "wrong magic");
	}
	if (h.version != TW_COUNTERS_VERSION || h.header_bytes != sizeof(h)) {
		return BAD(err,
			   "version %u with a header of %u bytes; this reader knows %u with %zu",
			   h.version, h.header_bytes, TW_COUNTERS_VERSION, sizeof(h));
	}
	if (h.file_bytes != file_bytes || file_bytes > TW_COUNTERS_MAX_BYTES) {
		return BAD(err, "%llu bytes, the header says %llu", (unsigned long long)file_bytes,
			   (unsigned long long)h.file_bytes);
	}
	if (h.meta_bytes < sizeof(h) || h.meta_bytes > file_bytes) {
		return BAD(err, "%llu bytes of tables in %llu", (unsigned long long)h.meta_bytes,
			   (unsigned long long)file_bytes);
	}
	if (h.hist_bytes != sizeof(struct tw_hist) || h.hist_sub_bits != TW_HIST_SUB_BITS ||
	    h.hist_max_bits != TW_HIST_MAX_BITS) {
		return BAD(err, "histograms of another shape");
	}
	if (h.group_count > TW_COUNTERS_MAX_ITEMS || h.value_count > TW_COUNTERS_MAX_ITEMS ||
	    h.hist_count > TW_COUNTERS_MAX_ITEMS) {
		return BAD(err, "%u groups, %u values, %u histograms: too many", h.group_count,
			   h.value_count, h.hist_count);
	}
	if (h.pid == 0 || h.pid > INT32_MAX || !is_text(h.program, sizeof(h.program))) {
		return BAD(err, "owner is no process");
	}
	if (!fits(h.groups_offset, h.group_count, sizeof(struct tw_counters_group), sizeof(h),
		  h.meta_bytes, 8) ||
	    !fits(h.values_offset, h.value_count, sizeof(struct tw_counters_value), sizeof(h),
		  h.meta_bytes, 8) ||
	    !fits(h.hists_offset, h.hist_count, sizeof(struct tw_counters_hist), sizeof(h),
		  h.meta_bytes, 8)) {
		return BAD(err, "a table lies outside of its %llu bytes",
			   (unsigned long long)h.meta_bytes);
	}
	return TW_OK;
}

static int check_values(const uint8_t *meta, const struct tw_counters_header *h,
			const struct tw_counters_group *g, uint32_t group, struct tw_error *err)
{
	for (uint32_t i = g->first_value; i < g->first_value + g->value_count; i++) {
		struct tw_counters_value v;
		memcpy(&v, meta + h->values_offset + (size_t)i * sizeof(v), sizeof(v));
		if (!is_text(v.name, sizeof(v.name)) || !is_text(v.unit, sizeof(v.unit)) ||
		    v.kind > TW_KIND_MAX || v.group != group) {
			return BAD(err, "descriptor of value %u is broken", i);
		}
	}
	return TW_OK;
}

static int check_hists(const uint8_t *meta, const struct tw_counters_header *h,
		       const struct tw_counters_group *g, uint32_t group, struct tw_error *err)
{
	for (uint32_t i = g->first_hist; i < g->first_hist + g->hist_count; i++) {
		struct tw_counters_hist d;
		memcpy(&d, meta + h->hists_offset + (size_t)i * sizeof(d), sizeof(d));
		if (!is_text(d.name, sizeof(d.name)) || !is_text(d.unit, sizeof(d.unit)) ||
		    d.group != group) {
			return BAD(err, "descriptor of histogram %u is broken", i);
		}
	}
	return TW_OK;
}

int tw_counters_check(const void *meta, size_t meta_avail, uint64_t file_bytes,
		      struct tw_error *err)
{
	int rc = tw_counters_check_header(meta, meta_avail, file_bytes, err);
	if (rc < 0) {
		return rc;
	}
	const uint8_t *bytes = meta;
	struct tw_counters_header h;
	memcpy(&h, bytes, sizeof(h));
	if (h.meta_bytes > meta_avail) {
		return BAD(err, "tables are cut short");
	}
	uint32_t next_value = 0;
	uint32_t next_hist = 0;
	for (uint32_t i = 0; i < h.group_count; i++) {
		struct tw_counters_group g;
		memcpy(&g, bytes + h.groups_offset + (size_t)i * sizeof(g), sizeof(g));
		/* groups share out the descriptors in order, without gap or overlap */
		if (!is_text(g.set, sizeof(g.set)) || !is_text(g.label, sizeof(g.label)) ||
		    g.first_value != next_value || g.value_count > h.value_count - next_value ||
		    g.first_hist != next_hist || g.hist_count > h.hist_count - next_hist ||
		    !fits(g.values_offset, g.value_count, sizeof(uint64_t), h.meta_bytes,
			  file_bytes, TW_COUNTERS_ALIGN) ||
		    !fits(g.hists_offset, g.hist_count, sizeof(struct tw_hist), h.meta_bytes,
			  file_bytes, TW_COUNTERS_ALIGN)) {
			return BAD(err, "group %u is broken", i);
		}
		rc = check_values(bytes, &h, &g, i, err);
		if (rc == TW_OK) {
			rc = check_hists(bytes, &h, &g, i, err);
		}
		if (rc < 0) {
			return rc;
		}
		next_value += g.value_count;
		next_hist += g.hist_count;
	}
	if (next_value != h.value_count || next_hist != h.hist_count) {
		return BAD(err, "descriptors that belong to no group");
	}
	return TW_OK;
}
