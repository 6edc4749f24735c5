/* Messages whose every word follows from their number, for tests of whatever carries messages: a
 * message that is torn, shifted or of another number does not pass. */
#ifndef TW_TESTS_BUS_MSGS_H
#define TW_TESTS_BUS_MSGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidewire/msg.h"

static inline uint64_t test_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	return x ^ x >> 32;
}

/* 32 to TW_MSG_MAX_BYTES, by number. */
static inline uint32_t test_msg_bytes(uint64_t seq)
{
	uint32_t words = (TW_MSG_MAX_BYTES - (uint32_t)sizeof(struct tw_msg_head)) / 8 + 1;
	return (uint32_t)sizeof(struct tw_msg_head) + 8 * (uint32_t)(test_mix(seq) % words);
}

/* Makes message `seq` of `channel` (8-byte aligned) and returns its length.  The template is one
 * that this version does not know, so that any length holds. */
static inline uint32_t test_msg_make(void *out, uint64_t seq, uint64_t salt)
{
	uint32_t len_bytes = test_msg_bytes(seq);
	struct tw_msg_head head = { .sbe = { .block_length = (uint16_t)(len_bytes - 8),
					     .template_id = 1000,
					     .schema_id = TW_MSG_SCHEMA_ID },
				    .instrument_id = (uint32_t)test_mix(seq + salt),
				    .exchange_ns = seq,
				    .exchange_seq = (uint32_t)seq,
				    .recv_delta_ns = (int32_t)(seq % 1000) };
	memcpy(out, &head, sizeof(head));
	uint64_t *words = out;
	for (uint32_t i = sizeof(head) / 8; i < len_bytes / 8; i++) {
		words[i] = test_mix(seq * 64 + i + salt);
	}
	return len_bytes;
}

static inline bool test_msg_is(const void *msg, uint64_t seq, uint64_t salt)
{
	uint64_t want[TW_MSG_MAX_BYTES / 8];
	uint32_t len_bytes = test_msg_make(want, seq, salt);
	return memcmp(msg, want, len_bytes) == 0;
}

#endif
