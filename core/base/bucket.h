/* Token bucket in bytes.  Spending may go into debt, which has to be paid before the next time: what is
 * allowed at all is allowed whole.  Sans-I/O: time is an argument.
 * Threads   one. */
#ifndef TW_BASE_BUCKET_H
#define TW_BASE_BUCKET_H

#include <stdint.h>

struct tw_bucket {
	uint64_t bytes_per_s; /* 0: no limit */
	int64_t tokens_bytes, burst_bytes;
	uint64_t at_ns;
};

/* Full at now_ns.  A burst of 0 becomes one byte. */
void tw_bucket_init(struct tw_bucket *bucket, uint64_t bytes_per_s, uint64_t burst_bytes,
		    uint64_t now_ns);
/* When something may be spent: now_ns itself, or the time at which the debt is paid. */
uint64_t tw_bucket_open_ns(struct tw_bucket *bucket, uint64_t now_ns);
void tw_bucket_charge(struct tw_bucket *bucket, uint64_t bytes);

#endif
