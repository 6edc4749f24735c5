/* A recording of any bytes: refused, or read to an end; of a BinaryFILE every byte up to its end is in a
 * packet, and all packets hold for the session layer. */
#include "tests/fuzz/fuzz_itch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	uint32_t date = size > 0 && data[size - 1] % 2 == 0 ? 20191230 : 0;
	int rc = tw_input_recording_memory(&input, "fuzz", data, size, date, &err);
	require((rc == TW_OK) == (input != NULL));
	if (rc != TW_OK) {
		require(rc == TW_EFORMAT && err.text[0] != '\0');
		return 0;
	}
	if (input->session == NULL) { /* a capture: fuzz_capture is for those */
		tw_input_close(input);
		return 0;
	}
	struct tw_feed *feed = fuzz_feed_itch(input->session);
	rc = tw_feed_run(feed, input, &err);
	require(rc == TW_OK || rc == TW_EFORMAT); /* damaged gzip */
	require(fuzz_count(TW_FH_malformed_packets) == 0);
	require(fuzz_count(TW_FH_venue_messages) == input->counts.packets);
	require(fuzz_count(TW_FH_packets) == input->counts.packets);
	fuzz_close_itch(feed);
	tw_input_close(input);
	return 0;
}
