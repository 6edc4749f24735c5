/* A fabric without a network: see null_fabric.h. */
#include "tests/instructions/null_fabric.h"

#include <stdlib.h>
#include <string.h>

#define LOOPBACK 0x7f000001u

int null_tape_open(struct null_tape *tape, uint32_t max_dgrams, uint32_t slot_bytes)
{
	*tape = (struct null_tape){ .max_dgrams = max_dgrams, .slot_bytes = slot_bytes };
	tape->bytes = aligned_alloc(64, (size_t)max_dgrams * slot_bytes);
	tape->dgrams = calloc(max_dgrams, sizeof(tape->dgrams[0]));
	if (tape->bytes == NULL || tape->dgrams == NULL) {
		null_tape_close(tape);
		return TW_ENOMEM;
	}
	return TW_OK;
}

void null_tape_close(struct null_tape *tape)
{
	free(tape->bytes);
	free(tape->dgrams);
	*tape = (struct null_tape){ 0 };
}

/* --- sending ------------------------------------------------------------------------------------ */

static void null_post(struct tw_tx *tx, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
		      unsigned int n)
{
	struct null_tx *null = (struct null_tx *)tx;
	struct null_tape *tape = null->tape;

	(void)endpoint;
	null->posted += n;
	for (unsigned int i = 0; tape != NULL && i < n && tape->count < tape->max_dgrams; i++) {
		uint8_t *to = tape->bytes + (size_t)tape->count * tape->slot_bytes;
		memcpy(to, dgrams[i].data, dgrams[i].len_bytes);
		tape->dgrams[tape->count++] = (struct tw_rx_dgram){
			.data = to, .len_bytes = dgrams[i].len_bytes, .src_addr = LOOPBACK
		};
	}
}

static uint64_t null_completed(struct tw_tx *tx, uint32_t endpoint)
{
	(void)endpoint;
	return ((struct null_tx *)tx)->posted;
}

static void null_tx_close(struct tw_tx *tx)
{
	(void)tx;
}

void null_tx_init(struct null_tx *null, struct null_tape *tape, unsigned int batch_dgrams)
{
	static const struct tw_tx_ops ops = { .post = null_post,
					      .completed = null_completed,
					      .close = null_tx_close };

	*null = (struct null_tx){ .tx = { .ops = &ops, .batch_dgrams = batch_dgrams },
				  .tape = tape };
}

/* --- receiving ---------------------------------------------------------------------------------- */

static int null_poll(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out, unsigned int max)
{
	struct null_queue *queue = &((struct null_rx *)rx)->queues[endpoint];
	unsigned int n = max < TW_RX_BATCH ? max : TW_RX_BATCH;

	n = queue->left < n ? queue->left : n;
	for (unsigned int i = 0; i < n; i++) {
		out[i] = *queue->at++;
	}
	queue->left -= n;
	return (int)n;
}

static int null_wait(struct tw_rx *rx, uint64_t timeout_ns)
{
	(void)rx;
	(void)timeout_ns;
	return 0;
}

static void null_rx_close(struct tw_rx *rx)
{
	(void)rx;
}

void null_rx_init(struct null_rx *null, uint32_t endpoints)
{
	static const struct tw_rx_ops ops = { .poll = null_poll,
					      .wait = null_wait,
					      .close = null_rx_close };

	*null = (struct null_rx){ .rx = { .ops = &ops, .endpoints = endpoints } };
}
