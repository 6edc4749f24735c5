/* Datagrams of any bytes through IEX-TP: the input is a run of them, each after its length (u16 LE). */
#include "base/bytes.h"
#include "tests/fuzz/fuzz_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_feed *feed = fuzz_feed();
	struct tw_bytes at = tw_bytes_of(data, size);
	uint64_t packets = 0;
	uint64_t in_blocks = 0;
	while (tw_bytes_left(&at) >= 2) {
		size_t len = tw_bytes_le16(&at);
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
					    .recv_ns = 1 };
		tw_feed_packet(feed, &packet);
		free(block);
		packets++;
		in_blocks += len / 2;
	}
	/* every packet is one thing, and no message is delivered that was not in one */
	require(fuzz_count(TW_FH_foreign_packets) + fuzz_count(TW_FH_malformed_packets) <= packets);
	require(fuzz_count(TW_FH_venue_messages) + fuzz_count(TW_FH_duplicate_messages) <=
		in_blocks);
	tw_feed_destroy(feed);
	return 0;
}
