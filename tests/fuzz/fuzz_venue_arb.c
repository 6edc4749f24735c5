/* libFuzzer target: a venue's two lines made one, without servers; see fuzz_venue.h. */
#include "tests/fuzz/fuzz_venue.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_venue_run(data, size, false);
	return 0;
}
