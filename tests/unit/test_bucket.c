/* The token bucket: what passes in a time is the rate and one burst, whatever the pattern of asking. */
#include <criterion/criterion.h>

#include "base/bucket.h"

#define MS_NS 1000000ull

Test(bucket, no_limit_never_closes)
{
	struct tw_bucket b;
	tw_bucket_init(&b, 0, 0, 5);
	for (uint64_t i = 0; i < 100; i++) {
		tw_bucket_charge(&b, UINT32_MAX);
		cr_assert_eq(tw_bucket_open_ns(&b, 5), 5);
	}
}

Test(bucket, what_passes_is_rate_and_burst)
{
	/* asked every 3 us, every 1 ms, every 70 ms: 10 s at 1 MB/s with a burst of 20 kB */
	static const uint64_t steps_ns[] = { 3000, MS_NS, 70 * MS_NS };
	for (size_t i = 0; i < sizeof(steps_ns) / sizeof(steps_ns[0]); i++) {
		struct tw_bucket b;
		uint64_t sent = 0, end_ns = 10000 * MS_NS;
		tw_bucket_init(&b, 1000000, 20000, 0);
		for (uint64_t now_ns = 0; now_ns < end_ns; now_ns += steps_ns[i]) {
			while (tw_bucket_open_ns(&b, now_ns) <= now_ns) {
				tw_bucket_charge(&b, 1024);
				sent += 1024;
			}
		}
		cr_assert_leq(sent, 10000000u + 20000u + 1024u);
		/* one who asks rarely fills no more than the burst at a time */
		uint64_t least = steps_ns[i] > 20 * MS_NS ? 10000 / 70 * 20000u : 10000000u - 1024u;
		cr_assert_geq(sent, least, "every %llu ns: %llu", (unsigned long long)steps_ns[i],
			      (unsigned long long)sent);
	}
}

Test(bucket, debt_says_when_it_is_paid)
{
	struct tw_bucket b;
	tw_bucket_init(&b, 1000, 1, 0); /* a byte a millisecond */
	tw_bucket_charge(&b, 501);      /* 500 in debt: open once there is one token again */
	uint64_t open_ns = tw_bucket_open_ns(&b, 0);
	cr_assert_gt(open_ns, 500 * MS_NS);
	cr_assert_leq(open_ns, 501 * MS_NS + 1);
	cr_assert_eq(tw_bucket_open_ns(&b, open_ns), open_ns);
}
