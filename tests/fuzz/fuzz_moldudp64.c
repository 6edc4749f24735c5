/* Datagrams of any bytes through MoldUDP64: the input is a run of them, each after its length (u16 LE).
 * Lengths from 0xfffe on are instead: four seconds of silence, another recording. */
#include "base/bytes.h"
#include "tests/fuzz/fuzz_itch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SILENCE = 0xfffe, ANOTHER_RECORDING = 0xffff };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_feed *feed = fuzz_feed_itch("moldudp64");
	struct tw_bytes at = tw_bytes_of(data, size);
	uint64_t packets = 0;
	uint64_t in_blocks = 0;
	uint64_t now_ns = 1577716200000000000u;
	while (tw_bytes_left(&at) >= 2) {
		size_t len = tw_bytes_le16(&at);
		if (len == SILENCE) {
			now_ns += 4000000000u;
			continue;
		}
		if (len == ANOTHER_RECORDING) {
			feed->session->part(feed->session_state);
			continue;
		}
		if (len > tw_bytes_left(&at)) {
			len = tw_bytes_left(&at);
		}
		const uint8_t *bytes = tw_bytes_take(&at, len);
		uint8_t *block =
			malloc(len + 1); /* exactly its size, so that ASan sees one too far */
		require(block != NULL && bytes != NULL);
		memcpy(block + 1, bytes, len);
		struct tw_packet packet = { .payload = block + 1,
					    .len_bytes = (uint32_t)len,
					    .recv_ns = now_ns };
		tw_feed_packet(feed, &packet);
		free(block);
		packets++;
		in_blocks += len / 2;
	}
	/* every packet is one thing, and no message is delivered that was not in one */
	require(fuzz_count(TW_FH_foreign_packets) + fuzz_count(TW_FH_malformed_packets) +
			fuzz_count(TW_FH_heartbeats) + fuzz_count(TW_FH_unsequenced_packets) <=
		packets);
	require(fuzz_count(TW_FH_venue_messages) + fuzz_count(TW_FH_duplicate_messages) <=
		in_blocks);
	require(fuzz_count(TW_FH_missing_messages) >= fuzz_count(TW_FH_gaps));
	fuzz_close_itch(feed);
	return 0;
}
