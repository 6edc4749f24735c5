/* Log-linear histogram.
 *
 * Buckets   values below 2^5 have one each; above, every octave is cut into 2^5 equal ones, so that
 *           a bucket is at most 1/32 of its lower edge wide.
 * Memory    a reader may be looking at another process's file: whatever the words hold, no reader
 *           leaves the array or divides by zero. */
#include "base/hist.h"

#include <stddef.h>

#include "tidewire/error.h"

#define SUB       (1u << TW_HIST_SUB_BITS)
#define TOO_LARGE (1ull << TW_HIST_MAX_BITS)

static inline uint64_t bucket_of(uint64_t ns)
{
	/* 0 below 2 SUB, where a value is its own bucket */
	uint64_t shift = 63u - TW_HIST_SUB_BITS - (uint64_t)__builtin_clzll(ns | SUB);
	/* the octave's first bucket is (shift + 1) * SUB; the value's top bits are SUB .. 2 SUB - 1 */
	return shift * SUB + (ns >> shift);
}

/* The largest value that falls into the bucket. */
static uint64_t upper_edge(unsigned int bucket)
{
	if (bucket < SUB) {
		return bucket;
	}
	unsigned int shift = bucket / SUB - 1u;
	return ((uint64_t)(bucket % SUB + SUB + 1u) << shift) - 1u;
}

/* Only this thread writes, so that load and store need not be one. */
static inline void bump(_Atomic uint64_t *word, uint64_t n)
{
	atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void record(struct tw_hist *hist, uint64_t ns, uint64_t bucket, uint64_t n)
{
	/* the maximum first: a quantile read meanwhile is cut off at it */
	if (ns > atomic_load_explicit(&hist->max_ns, memory_order_relaxed)) {
		atomic_store_explicit(&hist->max_ns, ns, memory_order_relaxed);
	}
	bump(&hist->buckets[bucket], n);
	bump(&hist->sum_ns, ns * n);
	bump(&hist->count, n);
}

/* Values that no bucket is for. */
static TW_COLD void record_outlier(struct tw_hist *hist, int64_t value_ns, uint64_t n)
{
	if (value_ns < 0) {
		bump(&hist->negative, n);
		record(hist, 0, 0, n);
	} else {
		bump(&hist->saturated, n);
		record(hist, (uint64_t)value_ns, TW_HIST_BUCKETS - 1u, n);
	}
}

static inline void record_any(struct tw_hist *hist, int64_t value_ns, uint64_t n)
{
	uint64_t ns = (uint64_t)value_ns;

	if (__builtin_expect(ns < TOO_LARGE, 1)) { /* no negative one is */
		record(hist, ns, bucket_of(ns), n);
	} else {
		record_outlier(hist, value_ns, n);
	}
}

void tw_hist_record_n(struct tw_hist *hist, int64_t value_ns, uint64_t n)
{
	if (n != 0) {
		record_any(hist, value_ns, n);
	}
}

void tw_hist_record(struct tw_hist *hist, int64_t value_ns)
{
	record_any(hist, value_ns, 1);
}

struct snapshot {
	uint64_t buckets[TW_HIST_BUCKETS];
	uint64_t total; /* of the buckets, saturating: `count` is of another instant */
	uint64_t max_ns;
};

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static void take(const struct tw_hist *hist, struct snapshot *snap)
{
	snap->total = 0;
	for (size_t i = 0; i < TW_HIST_BUCKETS; i++) {
		snap->buckets[i] = load(&hist->buckets[i]);
		if (__builtin_add_overflow(snap->total, snap->buckets[i], &snap->total)) {
			snap->total = UINT64_MAX;
		}
	}
	snap->max_ns = load(&hist->max_ns);
}

static uint64_t quantile(const struct snapshot *snap, double q)
{
	if (snap->total == 0) {
		return 0;
	}
	/* rank 1 .. total, rounded up; the comparisons also catch NaN and what a double rounds up */
	double want = q > 0.0 ? q * (double)snap->total : 0.0;
	uint64_t rank = snap->total;
	if (want < (double)snap->total && want < 0x1p63) {
		rank = (uint64_t)want;
		rank += (double)rank < want || rank == 0 ? 1 : 0;
	}
	uint64_t seen = 0;
	for (unsigned int i = 0; i < TW_HIST_BUCKETS - 1u; i++) {
		if (snap->buckets[i] >= rank - seen) {
			uint64_t edge = upper_edge(i);
			return edge < snap->max_ns ? edge : snap->max_ns;
		}
		seen += snap->buckets[i];
	}
	return snap->max_ns; /* the last bucket has no upper edge */
}

uint64_t tw_hist_quantile(const struct tw_hist *hist, double q)
{
	struct snapshot snap;
	take(hist, &snap);
	return quantile(&snap, q);
}

void tw_hist_summarize(const struct tw_hist *hist, struct tw_hist_summary *out)
{
	struct snapshot snap;
	take(hist, &snap);
	uint64_t count = load(&hist->count);
	*out = (struct tw_hist_summary){
		.count = count,
		.mean_ns = count == 0 ? 0 : load(&hist->sum_ns) / count,
		.p50_ns = quantile(&snap, 0.50),
		.p90_ns = quantile(&snap, 0.90),
		.p99_ns = quantile(&snap, 0.99),
		.p999_ns = quantile(&snap, 0.999),
		.max_ns = snap.max_ns,
		.negative = load(&hist->negative),
	};
}
