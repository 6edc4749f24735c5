/* libFuzzer target: re-requests from both ends.
 *
 * The server  (tw-exchange's): the input is what came in.  It lies in a heap block of exactly its size, and is
 *         judged for the session that it names itself and for another one.  What is accepted must be what
 *         its fields make again, byte for byte.
 * Who asks    the input is what two lines and the servers bring, and when; see fuzz_venue.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "tests/fuzz/fuzz_venue.h"
#include "tools/exch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void serve(const uint8_t *data, size_t size)
{
	uint8_t *block = malloc(size != 0 ? size : 1);
	char session[EXCH_SESSION_BYTES] = "SESSION001";
	struct exch_request request = { 0 };

	TW_ASSERT(block != NULL);
	memcpy(block, data, size);
	enum exch_verdict other = exch_request_parse(block, size, session, &request);
	memcpy(session, data, size < sizeof(session) ? size : sizeof(session));
	enum exch_verdict own = exch_request_parse(block, size, session, &request);
	TW_ASSERT(own != EXCH_OTHER_SESSION || size < EXCH_SESSION_BYTES);
	TW_ASSERT((own == EXCH_MALFORMED) == (other == EXCH_MALFORMED));
	if (own == EXCH_WELL_FORMED) {
		uint8_t again[EXCH_HEADER_BYTES];
		TW_ASSERT(size == sizeof(again) && request.seq != 0 && request.count != 0);
		exch_header_make(session, request.seq, request.count, again);
		TW_ASSERT(memcmp(again, block, sizeof(again)) == 0);
	}
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size <= EXCH_HEADER_BYTES + 1) { /* longer ones are malformed whatever follows */
		serve(data, size);
	}
	fuzz_venue_run(data, size, true);
	return 0;
}
