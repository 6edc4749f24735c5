/* Token bucket; see bucket.h. */
#include "base/bucket.h"

#define REFILL_MAX_NS 1000000000ull
#define RATE_MAX      10000000000ull /* times REFILL_MAX_NS fits 64 bits */

void tw_bucket_init(struct tw_bucket *bucket, uint64_t bytes_per_s, uint64_t burst_bytes,
		    uint64_t now_ns)
{
	int64_t burst = burst_bytes == 0                        ? 1
			: burst_bytes < (uint64_t)INT64_MAX / 2 ? (int64_t)burst_bytes
								: INT64_MAX / 2;
	*bucket = (struct tw_bucket){
		.bytes_per_s = bytes_per_s < RATE_MAX ? bytes_per_s : RATE_MAX,
		.tokens_bytes = burst,
		.burst_bytes = burst,
		.at_ns = now_ns,
	};
}

uint64_t tw_bucket_open_ns(struct tw_bucket *bucket, uint64_t now_ns)
{
	if (bucket->bytes_per_s == 0) {
		return now_ns;
	}
	uint64_t past_ns = now_ns - bucket->at_ns;
	past_ns = past_ns < REFILL_MAX_NS ? past_ns : REFILL_MAX_NS;
	uint64_t refill = past_ns * bucket->bytes_per_s / 1000000000u;
	if (refill > 0) { /* else what has passed is kept for the next time */
		bucket->at_ns = now_ns;
		bucket->tokens_bytes += (int64_t)refill;
		if (bucket->tokens_bytes > bucket->burst_bytes) {
			bucket->tokens_bytes = bucket->burst_bytes;
		}
	}
	if (bucket->tokens_bytes > 0) {
		return now_ns;
	}
	uint64_t debt = (uint64_t)(1 - bucket->tokens_bytes);
	return now_ns + debt * 1000000000u / bucket->bytes_per_s + 1;
}

void tw_bucket_charge(struct tw_bucket *bucket, uint64_t bytes)
{
	if (bucket->bytes_per_s != 0) {
		bucket->tokens_bytes -= (int64_t)bytes;
	}
}
