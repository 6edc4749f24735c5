/* A fabric without a network: a sender that has sent as soon as it was given something, and a receiver that
 * hands out what lies prepared in memory.
 *
 * Tape      what a sender took, copied one after the other; a receiver's queues point into it.
 * Threads   one. */
#ifndef TW_TESTS_NULL_FABRIC_H
#define TW_TESTS_NULL_FABRIC_H

#include <stdint.h>

#include "fabric/fabric.h"

struct null_tape {
	uint8_t *bytes; /* 64-byte aligned */
	struct tw_rx_dgram *dgrams;
	uint32_t max_dgrams, slot_bytes; /* const after open */
	uint32_t count;                  /* beyond max_dgrams nothing is kept */
};
int null_tape_open(struct null_tape *tape, uint32_t max_dgrams, uint32_t slot_bytes);
void null_tape_close(struct null_tape *tape);

struct null_tx {
	struct tw_tx tx;
	struct null_tape *tape; /* NULL: nothing is kept */
	uint64_t posted;
};
void null_tx_init(struct null_tx *null, struct null_tape *tape, unsigned int batch_dgrams);

struct null_queue {
	const struct tw_rx_dgram *at;
	uint32_t left;
};
struct null_rx {
	struct tw_rx rx;
	struct null_queue queues[TW_FABRIC_MAX_LINES]; /* one for each endpoint */
};
void null_rx_init(struct null_rx *null, uint32_t endpoints);

#endif
