/* Histogram: error bound, edges, odd values, and memory that holds garbage. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hist.h"

#define LIMIT (1ull << TW_HIST_MAX_BITS)

static struct tw_hist *fresh(void)
{
	struct tw_hist *h = calloc(1, sizeof(*h));
	cr_assert_not_null(h);
	return h;
}

static uint64_t rng_state = 0x9e3779b97f4a7c15u;
static uint64_t next_random(void) /* xorshift64 */
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state;
}

/* As likely in every octave. */
static uint64_t random_value(void)
{
	unsigned int bits = (unsigned int)(next_random() % (TW_HIST_MAX_BITS + 1));
	return bits == 0 ? 0 : next_random() >> (64 - bits);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

Test(hist, nothing_recorded_is_all_zero)
{
	struct tw_hist *h = fresh();
	struct tw_hist_summary s;
	memset(&s, 0xff, sizeof(s));
	tw_hist_summarize(h, &s);
	struct tw_hist_summary zero = { 0 };
	cr_assert_arr_eq(&s, &zero, sizeof(zero));
	cr_assert_eq(tw_hist_quantile(h, 0.5), 0);
	free(h);
}

Test(hist, quantiles_of_random_values_are_within_a_bucket_of_the_true_ones)
{
	static const double qs[] = { 0.0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0 };
	enum { N = 20000 };
	static uint64_t values[N];
	for (int round = 0; round < 5; round++) {
		struct tw_hist *h = fresh();
		uint64_t sum = 0;
		for (size_t i = 0; i < N; i++) {
			values[i] = random_value();
			sum += values[i];
			tw_hist_record(h, (int64_t)values[i]);
		}
		qsort(values, N, sizeof(values[0]), compare);
		for (size_t i = 0; i < sizeof(qs) / sizeof(qs[0]); i++) {
			double rank = ceil(qs[i] * N);
			uint64_t exact = values[rank < 1 ? 0 : (size_t)rank - 1];
			uint64_t got = tw_hist_quantile(h, qs[i]);
			cr_assert(got >= exact, "q %g: %lu below %lu", qs[i], got, exact);
			cr_assert(got - exact <= exact / 32, "q %g: %lu for %lu", qs[i], got,
				  exact);
			cr_assert(got <= values[N - 1], "q %g above the maximum", qs[i]);
		}
		struct tw_hist_summary s;
		tw_hist_summarize(h, &s);
		cr_assert_eq(s.count, N);
		cr_assert_eq(s.max_ns, values[N - 1]);
		cr_assert_eq(s.mean_ns, sum / N);
		cr_assert_eq(s.p50_ns, tw_hist_quantile(h, 0.5));
		cr_assert_eq(s.p999_ns, tw_hist_quantile(h, 0.999));
		free(h);
	}
}

Test(hist, every_border_lands_in_a_bucket_that_holds_it)
{
	for (unsigned int bit = 0; bit < TW_HIST_MAX_BITS; bit++) {
		for (int d = -1; d <= 1; d++) {
			uint64_t v = (uint64_t)((INT64_C(1) << bit) + d);
			struct tw_hist *h = fresh();
			tw_hist_record(h, (int64_t)v);
			/* a second, larger value, so that the maximum does not help */
			tw_hist_record(h, (int64_t)LIMIT - 1);
			uint64_t got = tw_hist_quantile(h, 0.5);
			cr_assert(got >= v && got - v <= v / 32, "%lu gives %lu", v, got);
			free(h);
		}
	}
}

Test(hist, buckets_do_not_overlap)
{
	struct tw_hist *h = fresh();
	for (uint64_t v = 0; v < 5000; v++) {
		tw_hist_record(h, (int64_t)v);
	}
	unsigned int used = 0;
	uint64_t total = 0;
	for (size_t i = 0; i < TW_HIST_BUCKETS; i++) {
		total += h->buckets[i];
		used += h->buckets[i] != 0 ? 1 : 0;
	}
	cr_assert_eq(total, 5000);
	/* 32 of one value, then 32 for each of the octaves from 32 to 4096, and 8 of 128 */
	cr_assert_eq(used, 32 + 7 * 32 + (5000 - 4096) / 128 + 1);
	free(h);
}

Test(hist, negative_values_count_as_zero_and_are_counted)
{
	struct tw_hist *h = fresh();
	tw_hist_record(h, -1);
	tw_hist_record(h, INT64_MIN);
	tw_hist_record(h, 7);
	struct tw_hist_summary s;
	tw_hist_summarize(h, &s);
	cr_assert_eq(s.count, 3);
	cr_assert_eq(s.negative, 2);
	cr_assert_eq(s.p50_ns, 0);
	cr_assert_eq(s.max_ns, 7);
	cr_assert_eq(s.mean_ns, 2);
	free(h);
}

Test(hist, too_large_values_saturate_and_are_counted)
{
	struct tw_hist *h = fresh();
	tw_hist_record(h, (int64_t)LIMIT - 1);
	cr_assert_eq(h->saturated, 0);
	cr_assert_eq(tw_hist_quantile(h, 1.0), LIMIT - 1);
	tw_hist_record(h, (int64_t)LIMIT);
	tw_hist_record(h, INT64_MAX);
	cr_assert_eq(h->saturated, 2);
	cr_assert_eq(h->count, 3);
	cr_assert_eq(h->buckets[TW_HIST_BUCKETS - 1], 3);
	cr_assert_eq(tw_hist_quantile(h, 1.0), (uint64_t)INT64_MAX);
	free(h);
}

Test(hist, n_at_once_is_n_times_one)
{
	struct tw_hist *one = fresh();
	struct tw_hist *many = fresh();
	for (int i = 0; i < 200; i++) {
		int64_t v = (int64_t)random_value() - 1000;
		uint64_t n = next_random() % 5;
		tw_hist_record_n(many, v, n);
		for (uint64_t k = 0; k < n; k++) {
			tw_hist_record(one, v);
		}
	}
	cr_assert_arr_eq(one, many, sizeof(*one));
	free(one);
	free(many);
}

Test(hist, odd_quantiles_are_clamped)
{
	struct tw_hist *h = fresh();
	for (int i = 1; i <= 10; i++) {
		tw_hist_record(h, i);
	}
	cr_assert_eq(tw_hist_quantile(h, -1.0), 1);
	cr_assert_eq(tw_hist_quantile(h, 0.0), 1);
	cr_assert_eq(tw_hist_quantile(h, 0.1), 1);
	cr_assert_eq(tw_hist_quantile(h, 0.11), 2);
	cr_assert_eq(tw_hist_quantile(h, 2.0), 10);
	cr_assert_eq(tw_hist_quantile(h, INFINITY), 10);
	cr_assert_eq(tw_hist_quantile(h, (double)NAN), 1);
	free(h);
}

Test(hist, garbage_is_survived)
{
	struct tw_hist *h = fresh();
	struct tw_hist_summary s;
	for (int round = 0; round < 300; round++) {
		uint64_t *words = (uint64_t *)(void *)h;
		for (size_t i = 0; i < sizeof(*h) / sizeof(*words); i++) {
			words[i] = round == 0 ? UINT64_MAX : next_random() >> (round % 64);
		}
		tw_hist_summarize(h, &s);
		cr_assert(s.p50_ns <= s.max_ns && s.p999_ns <= s.max_ns);
		cr_assert(s.p50_ns <= s.p90_ns && s.p90_ns <= s.p99_ns && s.p99_ns <= s.p999_ns);
	}
	free(h);
}
