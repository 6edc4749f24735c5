/* The packer.  What it is for: pack.h.
 *
 * Ordering  everything that goes into the log is written in relaxed 8-byte atomics between
 *           tw_history_claim() and tw_history_commit(); history.c has the fences.  Reading back
 *           what we wrote ourselves needs none. */
#include "protocol/pack.h"

#include <string.h>

#include "base/fail.h"
#include "base/words.h"
#include "wire/datagram.h"

void tw_pack_init(struct tw_pack *pack, const struct tw_pack_conf *conf, struct tw_history *history,
		  uint64_t now_ns)
{
	TW_ASSERT(conf->mtu_bytes % TW_WIRE_UNIT_BYTES == 0 &&
		  conf->mtu_bytes >= 2 * TW_WIRE_UNIT_BYTES &&
		  conf->mtu_bytes <= TW_WIRE_DGRAM_MAX_BYTES &&
		  conf->mtu_bytes / TW_WIRE_UNIT_BYTES <= history->max_units);
	*pack = (struct tw_pack){ .conf = *conf,
				  .history = history,
				  .next_packet_seq = 1,
				  .next_msg_seq = conf->first_msg_seq,
				  .heartbeat_due_ns = now_ns + conf->heartbeat_min_ns,
				  .heartbeat_interval_ns = 2 * conf->heartbeat_min_ns };
}

static struct tw_wire_hdr header(const struct tw_pack *pack, uint64_t wall_ns, unsigned int flags)
{
	if (pack->conf.replay) {
		flags |= TW_WIRE_REPLAY;
	}
	return (struct tw_wire_hdr){ .magic = TW_WIRE_MAGIC,
				     .version_major = TW_WIRE_MAJOR,
				     .version_minor = TW_WIRE_MINOR,
				     .header_bytes = TW_WIRE_HDR_BYTES,
				     .flags = (uint8_t)flags,
				     .channel = pack->conf.channel,
				     .environment = pack->conf.environment,
				     .session = pack->conf.session,
				     .publisher = pack->conf.publisher,
				     .source_seq = pack->last_source_seq,
				     .packet_seq = pack->next_packet_seq,
				     .log_pos = tw_history_claim_pos(pack->history),
				     .first_msg_seq = pack->next_msg_seq,
				     .send_ns = wall_ns };
}

/* Completes the datagram at `at`, whose payload is in place: padding, header, commit. */
static void finish(struct tw_pack *pack, uint8_t *at, struct tw_wire_hdr *hdr,
		   struct tw_pack_dgram *out)
{
	uint32_t used = TW_WIRE_HDR_BYTES + hdr->payload_bytes;
	uint32_t units = (used + TW_WIRE_UNIT_BYTES - 1) / TW_WIRE_UNIT_BYTES;
	tw_words_zero(at + used, units * TW_WIRE_UNIT_BYTES - used);
	tw_words_put(at, hdr, sizeof(*hdr));
	tw_history_commit(pack->history, units);
	pack->next_packet_seq++;
	out->data = at;
	out->len_bytes = units * TW_WIRE_UNIT_BYTES;
	out->msg_count = hdr->msg_count;
	out->end_pos = tw_history_claim_pos(pack->history);
}

static void make_hole(struct tw_pack *pack, uint8_t *at, uint64_t end_seq, uint64_t wall_ns,
		      struct tw_pack_dgram *out)
{
	struct tw_wire_hole hole = { .end_msg_seq = end_seq };
	struct tw_wire_hdr hdr = header(pack, wall_ns, TW_WIRE_HOLE);
	hdr.payload_bytes = sizeof(hole);
	tw_words_put(at + TW_WIRE_HDR_BYTES, &hole, sizeof(hole));
	finish(pack, at, &hdr, out);
	out->first_recv_ns = 0;
	pack->next_msg_seq = end_seq;
}

static void make_data(struct tw_pack *pack, uint8_t *at, uint32_t bytes, uint32_t count,
		      uint64_t wall_ns, struct tw_pack_dgram *out)
{
	struct tw_msg_head first;
	memcpy(&first, at + TW_WIRE_HDR_BYTES, sizeof(first));
	pack->last_source_seq = first.exchange_seq;

	struct tw_wire_hdr hdr = header(pack, wall_ns, 0);
	hdr.msg_count = (uint16_t)count;
	hdr.payload_bytes = (uint16_t)bytes;
	finish(pack, at, &hdr, out);
	/* a saturated delta says nothing about when the message came in */
	out->first_recv_ns = (first.flags & TW_MSG_TS_BAD) != 0
				     ? 0
				     : first.exchange_ns + (uint64_t)(int64_t)first.recv_delta_ns;
	pack->next_msg_seq += count;
}

struct run { /* of messages that are all well formed, or all not */
	uint32_t bytes, count;
};

/* The messages at the front of `msgs` that hold, nearly always all of them. */
static struct run run_that_holds(const uint8_t *msgs, uint32_t bytes, uint32_t count)
{
	struct run run = { 0, 0 };

	if (__builtin_expect(tw_msgs_hold(msgs, bytes, count), 1)) {
		return (struct run){ bytes, count };
	}
	while (run.count < count && tw_msg_holds(msgs + run.bytes, bytes - run.bytes)) {
		run.bytes += tw_msg_bytes(msgs + run.bytes);
		run.count++;
	}
	return run;
}

/* Those that do not.  One whose length leads nowhere takes all that follow with it. */
static struct run run_malformed(const uint8_t *msgs, uint32_t bytes, uint32_t count)
{
	struct run run = { 0, 0 };
	while (run.count < count && !tw_msg_holds(msgs + run.bytes, bytes - run.bytes)) {
		uint32_t left = bytes - run.bytes;
		uint32_t len =
			left >= sizeof(struct tw_msg_sbe) ? tw_msg_bytes(msgs + run.bytes) : 0;
		if (len == 0 || len % 8 != 0 || len > left) {
			return (struct run){ bytes, count };
		}
		run.bytes += len;
		run.count++;
	}
	return run;
}

static void carry(struct tw_pack *pack, const uint8_t *msgs, uint32_t bytes, uint32_t count)
{
	TW_ASSERT(bytes <= sizeof(pack->carry));
	memmove(pack->carry, msgs, bytes);
	pack->carry_bytes = count > 0 ? bytes : 0;
	pack->carry_count = count;
}

/* Messages for the datagram at `at`: what was carried over, else the source's. */
static int take(struct tw_pack *pack, tw_pack_source_func source, void *ctx, uint8_t *at,
		struct tw_bus_batch *batch)
{
	uint32_t room_bytes = pack->conf.mtu_bytes - TW_WIRE_HDR_BYTES;
	if (__builtin_expect(pack->carry_bytes != 0, 0)) {
		/* came from one read of as much room: it fits */
		tw_words_put(at + TW_WIRE_HDR_BYTES, pack->carry, pack->carry_bytes);
		*batch = (struct tw_bus_batch){ .first_seq = pack->next_msg_seq,
						.count = pack->carry_count,
						.bytes = pack->carry_bytes };
		carry(pack, pack->carry, 0, 0);
		return (int)batch->count;
	}
	if (__builtin_expect(pack->error != TW_OK, 0)) {
		int rc = pack->error;
		pack->error = TW_OK;
		return rc;
	}
	if (pack->ended) {
		return 0;
	}
	int rc = source(ctx, at + TW_WIRE_HDR_BYTES, room_bytes, batch);
	if (rc > 0) {
		TW_ASSERT(batch->first_seq == pack->next_msg_seq && batch->count == (uint32_t)rc &&
			  batch->bytes <= room_bytes);
	} else if (rc == TW_ELAPPED) {
		TW_ASSERT(batch->first_seq == pack->next_msg_seq &&
			  batch->end_seq > batch->first_seq);
	}
	return rc;
}

/* Why there is nothing after this. */
enum why { WHY_UNKNOWN = 0, WHY_DRAINED, WHY_STALLED };

/* 1: one datagram; 0: nothing to send; or the source's error.  *why is set where it is known. */
static int make_next(struct tw_pack *pack, tw_pack_source_func source, void *ctx, uint64_t wall_ns,
		     struct tw_pack_dgram *out, enum why *why)
{
	uint8_t *at = tw_history_claim(pack->history);
	if (at == NULL) {
		*why = WHY_STALLED;
		return 0;
	}
	struct tw_bus_batch batch = { 0 };
	int rc = take(pack, source, ctx, at, &batch);
	if (rc == TW_ELAPPED) {
		pack->holes++;
		pack->hole_msgs += batch.end_seq - batch.first_seq;
		make_hole(pack, at, batch.end_seq, wall_ns, out);
		return 1;
	}
	if (rc <= 0) {
		return rc;
	}
	const uint8_t *msgs = at + TW_WIRE_HDR_BYTES;
	struct run run = run_that_holds(msgs, batch.bytes, batch.count);
	if (__builtin_expect(run.count == batch.count, 1)) {
		make_data(pack, at, run.bytes, run.count, wall_ns, out);
		if (TW_WIRE_HDR_BYTES + run.bytes + TW_MSG_MAX_BYTES <= pack->conf.mtu_bytes) {
			*why = WHY_DRAINED;
		}
		return 1;
	}
	bool malformed = run.count == 0;
	if (malformed) {
		run = run_malformed(msgs, batch.bytes, batch.count);
	}
	carry(pack, msgs + run.bytes, batch.bytes - run.bytes, batch.count - run.count);
	if (malformed) {
		pack->malformed_msgs += run.count;
		make_hole(pack, at, pack->next_msg_seq + run.count, wall_ns, out);
	} else {
		make_data(pack, at, run.bytes, run.count, wall_ns, out);
	}
	return 1;
}

void tw_pack_beat(struct tw_pack *pack, uint64_t now_ns, uint64_t wall_ns,
		  struct tw_pack_dgram *out)
{
	struct tw_wire_hdr hdr =
		header(pack, wall_ns, TW_WIRE_HEARTBEAT | (pack->ended ? TW_WIRE_END : 0u));
	memcpy(pack->heartbeat, &hdr, sizeof(hdr));
	*out = (struct tw_pack_dgram){ .data = pack->heartbeat,
				       .len_bytes = sizeof(pack->heartbeat),
				       .end_pos = tw_history_claim_pos(pack->history) };

	if (pack->heartbeat_interval_ns > pack->conf.heartbeat_max_ns) {
		pack->heartbeat_interval_ns = pack->conf.heartbeat_max_ns;
	}
	/* from now, not from when it was due: a late turn must not bring two in a row */
	pack->heartbeat_due_ns = now_ns + pack->heartbeat_interval_ns;
	pack->heartbeat_interval_ns *= 2;
}

int tw_pack_poll(struct tw_pack *pack, tw_pack_source_func source, void *ctx, uint64_t now_ns,
		 uint64_t wall_ns, struct tw_pack_dgram *out, unsigned int max)
{
	unsigned int n = 0;
	enum why why = WHY_UNKNOWN;
	while (n < max && why == WHY_UNKNOWN) {
		int rc = make_next(pack, source, ctx, wall_ns, &out[n], &why);
		if (rc < 0 && n == 0) {
			return rc;
		}
		if (rc <= 0) {
			pack->error = rc; /* for the next call: these datagrams come first */
			break;
		}
		n++;
	}
	if (n > 0) {
		pack->heartbeat_due_ns = now_ns + pack->conf.heartbeat_min_ns;
		pack->heartbeat_interval_ns = 2 * pack->conf.heartbeat_min_ns;
	} else if (why == WHY_STALLED) {
		pack->stalls++;
	} else if (max > 0 && now_ns >= pack->heartbeat_due_ns) {
		tw_pack_beat(pack, now_ns, wall_ns, &out[n++]);
	}
	return (int)n;
}

void tw_pack_end(struct tw_pack *pack, uint64_t now_ns)
{
	if (!pack->ended) {
		pack->ended = true;
		pack->heartbeat_due_ns = now_ns;
		pack->heartbeat_interval_ns = pack->conf.heartbeat_min_ns;
	}
}
