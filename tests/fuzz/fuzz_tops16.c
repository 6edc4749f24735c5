/* Messages of any bytes through the TOPS 1.6 decoder: the input is a run of them, each after its length
 * (u8).  Each becomes at most one message beside a definition, and that is well formed. */
#include "base/bytes.h"
#include "tests/fuzz/fuzz_feed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_feed *feed = fuzz_feed();
	struct tw_bytes at = tw_bytes_of(data, size);
	struct tw_venue_msg msg = { .seq = 1, .recv_ns = 1500000000000000000u };
	while (tw_bytes_left(&at) >= 1) {
		msg.len_bytes = tw_bytes_u8(&at);
		if (msg.len_bytes > tw_bytes_left(&at)) {
			msg.len_bytes = (uint32_t)tw_bytes_left(&at);
		}
		const uint8_t *bytes = tw_bytes_take(&at, msg.len_bytes);
		uint8_t *block = malloc(msg.len_bytes + 1u);
		require(block != NULL && bytes != NULL);
		memcpy(block + 1, bytes, msg.len_bytes);
		msg.data = block + 1;
		uint64_t before = fuzz_messages;
		tw_feed_venue_msg(feed, &msg);
		require(fuzz_messages - before <= 2);
		free(block);
		msg.seq++;
	}
	require(fuzz_count(TW_FH_instruments) <= 8);
	tw_feed_destroy(feed);
	return 0;
}
