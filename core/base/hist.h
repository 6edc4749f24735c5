/* Log-linear latency histogram: relative error at most 1/32, values 0 ns to 2^42 - 1 ns (73 min),
 * larger ones land in the last bucket and count as saturated.
 *
 * Memory    the caller's words, usually inside a counter file, so that others read it live.
 * Threads   one writer; any number of readers, who see each word whole but not one instant. */
#ifndef TW_BASE_HIST_H
#define TW_BASE_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define TW_HIST_SUB_BITS 5u
#define TW_HIST_MAX_BITS 42u
#define TW_HIST_BUCKETS  ((TW_HIST_MAX_BITS - TW_HIST_SUB_BITS + 1u) << TW_HIST_SUB_BITS)

struct tw_hist {
	_Atomic uint64_t count;
	_Atomic uint64_t sum_ns;
	_Atomic uint64_t max_ns;
	_Atomic uint64_t saturated;
	_Atomic uint64_t negative; /* samples below 0 (clock error), recorded as 0 */
	_Atomic uint64_t buckets[TW_HIST_BUCKETS];
};

/* Writer thread only: relaxed load and store, no locked instruction. */
void tw_hist_record(struct tw_hist *hist, int64_t value_ns);
void tw_hist_record_n(struct tw_hist *hist, int64_t value_ns, uint64_t n);

struct tw_hist_summary {
	uint64_t count, mean_ns, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, negative;
};
/* Any thread.  All zero where nothing was recorded.  A quantile is its bucket's upper edge, at most
 * max_ns. */
void tw_hist_summarize(const struct tw_hist *hist, struct tw_hist_summary *out);
uint64_t tw_hist_quantile(const struct tw_hist *hist, double q);

#endif
