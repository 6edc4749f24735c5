/* What every reader has: slots for reads that are outstanding or unreleased, a reserve for each server, back-off,
 * and how ends are counted.
 *
 * Slots     conf.slots that take any read, then conf.small_slots for small ones by position.
 *
 * Reserve   each server that holds no slot has one in reserve, so that one server that sits on its reads
 *           never stops reads from another.
 * Threads   take and give: the hot one.  What is in a slot belongs to whoever works on its read. */
#ifndef TW_FABRIC_READ_SLOTS_H
#define TW_FABRIC_READ_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slab.h"
#include "fabric/reader.h"

struct tw_read_slot {
	struct tw_read read;
	uint64_t posted_ns; /* mono */
	uint8_t *data;      /* of the slab; const after init */
	uint32_t room_bytes;
};

struct tw_read_slots {
	/* hot thread */
	uint32_t *free_slots; /* those of whole size */
	uint32_t *free_small;
	uint32_t free_count, free_small_count;
	uint32_t idle_servers; /* servers that hold no slot of whole size */
	uint32_t held[TW_READER_MAX_SERVERS];
	/* const after init */
	uint32_t large, count; /* of whole size; of both sizes */
	uint32_t server_count;
	struct tw_read_slot *slots;
	struct tw_slab slab; /* data of all slots, then what extra_bytes were asked for */
	size_t extra_at;
};

/* Checks what all readers need of a configuration. */
int tw_reader_conf_check(const struct tw_reader_conf *conf, struct tw_error *err) TW_MUST_USE;

int tw_read_slots_init(struct tw_read_slots *slots, const struct tw_reader_conf *conf,
		       size_t extra_bytes, struct tw_error *err) TW_MUST_USE;
void tw_read_slots_fini(struct tw_read_slots *slots); /* a zeroed one is fine */
/* A slot with the read in it, posted now; false: none for that server now, or no read at all. */
bool tw_read_slots_take(struct tw_read_slots *slots, const struct tw_read *read, uint32_t *slot);
void tw_read_slots_give(struct tw_read_slots *slots, const struct tw_read_done *done);
/* What poll says of a slot whose read has ended. */
void tw_read_slots_done(const struct tw_read_slots *slots, uint32_t slot,
			enum tw_read_status status, uint32_t len_bytes, struct tw_read_done *done);

/* TW_SET_reader; NULL: not counted. */
void tw_reader_count(const struct tw_counters *counters, unsigned int counter, uint64_t n);
void tw_reader_count_end(const struct tw_counters *counters, enum tw_read_status status);

/* Doubles from retry_min_ns to retry_max_ns, and up to a quarter more, so that a thousand subscribers do not
 * come back at one instant. */
struct tw_read_backoff {
	uint64_t min_ns, max_ns, next_ns;
	uint64_t seed;
};
void tw_read_backoff_init(struct tw_read_backoff *backoff, const struct tw_reader_conf *conf,
			  uint64_t seed);
uint64_t tw_read_backoff_fail(struct tw_read_backoff *backoff, uint64_t now_ns); /* when to retry */
static inline void tw_read_backoff_reset(struct tw_read_backoff *backoff)
{
	backoff->next_ns = backoff->min_ns;
}
/* What only a person can change, or time. */
static inline void tw_read_backoff_longest(struct tw_read_backoff *backoff)
{
	backoff->next_ns = backoff->max_ns;
}

#endif
