/* Plays a feedhandler for tests that need messages of one size, many of them, and say when.
 *
 * usage: tw-test-bus-feed RUN_DIR CHANNEL BYTES
 * Makes the channel's bus and prints `ready`.  Each line of its input is a number: so many messages of BYTES (32 to 256,
 * a multiple of 8) are appended, then the number of the next one is printed.  The end of its input ends the session.
 * Waits for its publisher as a file input does, and gives up after LIMIT_NS without room. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bus.h"
#include "base/clock.h"
#include "base/fail.h"
#include "tidewire/msg.h"

#define LIMIT_NS  120000000000ull
#define BUS_BYTES (1u << 20)

/* One that no version knows, so that any length holds. */
static uint32_t make(uint64_t msg[TW_MSG_MAX_BYTES / 8], uint32_t len_bytes, uint64_t seq)
{
	struct tw_msg_head head = { .sbe = { .block_length = (uint16_t)(len_bytes - 8),
					     .template_id = 1000,
					     .schema_id = TW_MSG_SCHEMA_ID },
				    .exchange_ns = tw_wall_ns(),
				    .exchange_seq = (uint32_t)seq };
	memcpy(msg, &head, sizeof(head));
	for (uint32_t i = sizeof(head) / 8; i < len_bytes / 8; i++) {
		msg[i] = seq;
	}
	return len_bytes;
}

static bool append(struct tw_bus_writer *writer, uint32_t len_bytes)
{
	uint64_t msg[TW_MSG_MAX_BYTES / 8];
	uint64_t until_ns = tw_mono_ns() + LIMIT_NS;
	uint32_t len = make(msg, len_bytes, tw_bus_writer_next_seq(writer));

	while (!tw_bus_append(writer, msg, len, true)) {
		if (tw_mono_ns() > until_ns) {
			return false;
		}
		sched_yield();
	}
	return true;
}

static int feed(struct tw_bus_writer *writer, uint32_t len_bytes)
{
	char line[32];

	(void)puts("ready");
	(void)fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		for (unsigned long long n = strtoull(line, NULL, 10); n > 0; n--) {
			if (!append(writer, len_bytes)) {
				(void)fputs("tw-test-bus-feed: no room\n", stderr);
				return TW_EFULL;
			}
		}
		tw_bus_flush(writer);
		(void)printf("%" PRIu64 "\n", tw_bus_writer_next_seq(writer));
		(void)fflush(stdout);
	}
	tw_bus_end(writer);
	return TW_OK;
}

int main(int argc, char **argv)
{
	struct tw_error err = { 0 };
	struct tw_bus_writer *writer;

	if (argc != 4) {
		(void)fputs("usage: tw-test-bus-feed RUN_DIR CHANNEL BYTES\n", stderr);
		return 64;
	}
	unsigned long len_bytes = strtoul(argv[3], NULL, 10);
	if (len_bytes < sizeof(struct tw_msg_head) || len_bytes > TW_MSG_MAX_BYTES ||
	    len_bytes % 8 != 0) {
		(void)fputs("tw-test-bus-feed: BYTES: 32 to 256, a multiple of 8\n", stderr);
		return 64;
	}
	tw_clock_init();
	struct tw_bus_conf conf = { .run_dir = argv[1],
				    .channel = (uint16_t)strtoul(argv[2], NULL, 10),
				    .size_bytes = BUS_BYTES,
				    .wall_ns = tw_wall_ns() };
	int rc = tw_bus_create(&writer, &conf, 0, &err);
	if (rc != TW_OK) {
		(void)fprintf(stderr, "tw-test-bus-feed: %s\n", err.text);
		return tw_exit_status(rc);
	}
	rc = feed(writer, (uint32_t)len_bytes);
	tw_bus_writer_close(writer);
	return rc == TW_OK ? 0 : tw_exit_status(rc);
}
