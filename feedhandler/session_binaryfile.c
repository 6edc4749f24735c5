/* Nasdaq BinaryFILE: what is left of a session where it lies in a file.
 *
 * A packet is a run of blocks as input_binaryfile.c has cut it: u16 BE length, then the message.  The
 * file numbers nothing, so its first message is number 1.  Each file is a session: that is what Nasdaq
 * puts in one, and nothing in two files says that one continues the other.
 * Threads   one. */
#include <stdbool.h>

#include "base/bytes.h"
#include "feedhandler/feed.h"
#include "feedhandler/session.h"

struct binaryfile {
	uint64_t last_seq;
	bool part_begins; /* the next message is another file's first */
};

static void binaryfile_packet(struct tw_feed *feed, void *state_memory,
			      const struct tw_packet *packet)
{
	struct binaryfile *state = state_memory;
	struct tw_bytes at = tw_bytes_of(packet->payload, packet->len_bytes);
	if (state->part_begins) {
		state->part_begins = false;
		if (state->last_seq > 0) {
			state->last_seq = 0;
			tw_feed_session_changed(feed);
		}
	}
	while (tw_bytes_left(&at) > 0) {
		struct tw_venue_msg msg = { .recv_ns = packet->recv_ns };
		msg.len_bytes = tw_bytes_be16(&at);
		msg.data = tw_bytes_take(&at, msg.len_bytes);
		if (msg.data == NULL) {
			tw_feed_count(feed, TW_FH_malformed_packets, 1);
			return;
		}
		msg.seq = ++state->last_seq;
		tw_feed_venue_msg(feed, &msg);
	}
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
