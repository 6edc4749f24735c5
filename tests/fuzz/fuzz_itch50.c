/* Messages of any bytes through the ITCH 5.0 decoder: the input is a run of them, each after its length
 * (u8).  Lengths from 253 on are instead: a gap, another session, another day. */
#include "base/bytes.h"
#include "tests/fuzz/fuzz_itch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ANOTHER_DAY = 253, ANOTHER_SESSION = 254, GAP = 255 };

#define DAY_NS UINT64_C(86400000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_feed *feed = fuzz_feed_itch(NULL);
	struct tw_bytes at = tw_bytes_of(data, size);
	struct tw_venue_msg msg = { .seq = 1, .recv_ns = 1577716200000000000u };
	while (tw_bytes_left(&at) >= 1) {
		msg.len_bytes = tw_bytes_u8(&at);
		if (msg.len_bytes == GAP) {
			tw_feed_gap(feed, 1);
			continue;
		}
		if (msg.len_bytes == ANOTHER_SESSION) {
			tw_feed_session_changed(feed);
			continue;
		}
		if (msg.len_bytes == ANOTHER_DAY) {
			msg.recv_ns += DAY_NS;
			continue;
		}
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
		/* a definition and two or three messages, after a BookClear for each instrument */
		require(fuzz_messages - before <= 3 + 8);
		free(block);
		msg.seq++;
	}
	fuzz_close_itch(feed);
	return 0;
}
