/* A capture of any bytes is refused, or gives packets that lie within what was captured, and every
 * frame is counted as exactly one thing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "feedhandler/frame.h"
#include "feedhandler/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition) {
		abort();
	}
}

enum { CALLS_MAX = 4096 }; /* a kilobyte of gzip may be a megabyte of packets */

/* The same bytes as one frame of each link, in a block of exactly their size: libpcap's own buffer is
 * larger than a packet and would hide a byte read too far. */
static void as_frame(const uint8_t *data, uint32_t size)
{
	uint8_t *block = malloc(size + 1u);
	require(block != NULL);
	memcpy(block + 1, data, size);
	for (enum tw_frame_link link = TW_FRAME_ETHERNET; link <= TW_FRAME_SLL2; link++) {
		struct tw_packet packet;
		for (uint32_t cut = 0; cut < 64; cut += 9) { /* bytes that the capture left out */
			if (tw_frame_parse(&packet, link, block + 1, size, size + cut) ==
			    TW_FRAME_UDP) {
				require(packet.payload >= block + 1);
				require(packet.payload + packet.len_bytes <= block + 1 + size);
			}
		}
	}
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 0 && size < UINT16_MAX) {
		as_frame(data, (uint32_t)size);
	}
	struct tw_input *input;
	struct tw_error err = { 0 };
	int rc = tw_input_capture_memory(&input, "fuzz", data, size, &err);
	require((rc == TW_OK) == (input != NULL));
	if (rc != TW_OK) {
		require(rc == TW_EFORMAT && err.text[0] != '\0');
		return 0;
	}
	struct tw_packet packet;
	uint64_t datagrams = 0;
	for (unsigned int i = 0; i < CALLS_MAX; i++) {
		rc = tw_input_next(input, &packet, &err);
		if (rc < 0) {
			break;
		}
		if (rc == 1) {
			datagrams++;
			/* a call that ASan looks into */
			require(memchr(packet.payload, 0, packet.len_bytes) == NULL ||
				packet.len_bytes > 0);
			require(packet.recv_ns <= INT64_MAX);
		}
	}
	require(rc >= 0 || rc == TW_ECLOSED || rc == TW_EFORMAT);
	const struct tw_input_counts *c = &input->counts;
	uint64_t cut = input->warning.code != TW_OK ? 1 : 0; /* counted, but was no whole frame */
	uint64_t things = datagrams + c->foreign + c->malformed + c->truncated;
	require(things == c->packets || things == c->packets + cut);
	tw_input_close(input);
	return 0;
}
