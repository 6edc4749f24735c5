/* What the benches share: series of one figure, medians with spread, ratios of pairs.
 *
 * Figures of one run alternate (A B A B ...), so that a drifting machine touches both alike; an
 * absolute figure stands only beside the one it is compared with. */
#ifndef TW_TESTS_BENCH_H
#define TW_TESTS_BENCH_H

#include <stdio.h>
#include <stdlib.h>

#define BENCH_MAX_RUNS 64

struct bench_series {
	double v[BENCH_MAX_RUNS];
	int n;
};

static inline void bench_add(struct bench_series *s, double v)
{
	if (s->n < BENCH_MAX_RUNS) {
		s->v[s->n++] = v;
	}
}

static inline int bench_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

struct bench_spread {
	double min, median, max;
};

static inline struct bench_spread bench_spread(const struct bench_series *s)
{
	struct bench_series sorted = *s;
	qsort(sorted.v, (size_t)sorted.n, sizeof(sorted.v[0]), bench_compare);
	if (sorted.n == 0) {
		return (struct bench_spread){ 0, 0, 0 };
	}
	return (struct bench_spread){ sorted.v[0], sorted.v[sorted.n / 2], sorted.v[sorted.n - 1] };
}

static inline void bench_print(const char *name, const struct bench_series *s, const char *unit,
			       double scale)
{
	struct bench_spread p = bench_spread(s);
	printf("%-44s %12.3f %s   (%.3f to %.3f, %d runs)\n", name, p.median * scale, unit,
	       p.min * scale, p.max * scale, s->n);
}

/* Ratio a/b, pair by pair. */
static inline void bench_ratio(const char *name, const struct bench_series *a,
			       const struct bench_series *b)
{
	struct bench_series r = { .n = 0 };
	for (int i = 0; i < a->n && i < b->n; i++) {
		bench_add(&r, a->v[i] / b->v[i]);
	}
	struct bench_spread p = bench_spread(&r);
	printf("ratio %-38s %12.3f       (%.3f to %.3f, %d pairs)\n", name, p.median, p.min, p.max,
	       r.n);
}

#endif
