/* Nasdaq BinaryFILE: what is left of a session where it lies in a file.
 *
 * A packet is a run of blocks as input_binaryfile.c has cut it: u16 BE length, then the message.  The
 * file numbers nothing, so its first message is number 1.  The packet's receive time is that of its first message; the
 * others' are as far from it as their own times are.  Each file is a session: that is what Nasdaq
 * puts in one, and nothing in two files says that one continues the other.
 * Threads   one. */
#include <stdbool.h>

#include "base/bytes.h"
#include "feedhandler/feed.h"
#include "feedhandler/itch50.h"
#include "feedhandler/session.h"

struct binaryfile {
	uint64_t last_seq;
	bool part_begins; /* the next message is another file's first */
};

static void deliver(struct tw_feed *feed, struct tw_feed_run *run)
{
	if (run->count > 0) {
		tw_feed_run_close(run, feed, false);
		tw_feed_venue_msgs(feed, run->msgs, run->count);
		run->count = 0;
	}
}

static void binaryfile_packet(struct tw_feed *feed, void *state_memory,
			      const struct tw_packet *packet)
{
	struct binaryfile *state = state_memory;
	struct tw_bytes at = tw_bytes_of(packet->payload, packet->len_bytes);
	struct tw_feed_run run;
	uint64_t midnight_ns = 0;
	bool first = true;
	if (state->part_begins) {
		state->part_begins = false;
		if (state->last_seq > 0) {
			state->last_seq = 0;
			tw_feed_session_changed(feed);
		}
	}
	run.count = 0;
	while (tw_bytes_left(&at) > 0) {
		uint32_t len_bytes = tw_bytes_be16(&at);
		const uint8_t *data = tw_bytes_take(&at, len_bytes);
		if (data == NULL) {
			tw_feed_count(feed, TW_FH_malformed_packets, 1);
			break;
		}
		uint64_t time_ns = tw_itch50_time_or_0(data, len_bytes);
		if (first) {
			first = false;
			midnight_ns = packet->recv_ns - time_ns;
		}
		tw_feed_run_add(&run, feed, data, len_bytes, ++state->last_seq,
				midnight_ns + time_ns, false);
		if (run.count == TW_FEED_RUN_MSGS) {
			deliver(feed, &run);
		}
	}
	deliver(feed, &run);
}

static void binaryfile_part(void *state_memory)
{
	struct binaryfile *state = state_memory;
	state->part_begins = true;
}

const struct tw_session tw_session_binaryfile = {
	.name = "binaryfile",
	.help = "Nasdaq BinaryFILE: taken where the input is such a file",
	.protocol = "itch50",
	.state_bytes = sizeof(struct binaryfile),
	.part = binaryfile_part,
	.packet = binaryfile_packet,
};
