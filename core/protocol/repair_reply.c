/* The repair ladder: what comes back.  See repair.h.
 *
 * Walking   by position the bytes are what lies in the log: units that were skipped at its end and, where
 *           a range was asked for in several reads, the other part of a datagram.  So every unit may
 *           begin a datagram, and one does where the header says that it lies exactly there.  By
 *           number they are whole datagrams, one after the other.
 * Judging   by position a reply must have filled what it was asked for; by number it must have brought
 *           something.  What is wrong with a reply is held against its server. */
#include "base/fail.h"
#include "base/slab.h"
#include "protocol/repair_impl.h"

#define UNIT          TW_WIRE_UNIT_BYTES
#define MIN_MSG_BYTES 16u

/* --- walking --------------------------------------------------------------------------------- */

/* Length in whole units of the datagram whose header lies at the walk's place. */
static uint32_t dgram_bytes(const struct tw_wire_hdr *hdr)
{
	return (uint32_t)tw_round_up((size_t)hdr->header_bytes + hdr->payload_bytes, UNIT);
}

static bool parse(const struct tw_repair_walk *walk, struct tw_dgram *out)
{
	const uint8_t *at = walk->data + walk->at_bytes;
	uint32_t len_bytes = dgram_bytes((const void *)at);

	return len_bytes <= walk->len_bytes - walk->at_bytes &&
	       tw_dgram_parse(out, at, len_bytes) == TW_DGRAM_OK;
}

static bool lies_here(const struct tw_repair *repair, const struct tw_wire_hdr *hdr)
{
	const struct tw_repair_walk *walk = &repair->walk;

	return hdr->magic == TW_WIRE_MAGIC && hdr->session == repair->session &&
	       hdr->publisher == walk->read.publisher &&
	       hdr->log_pos == walk->read.begin + walk->at_bytes / UNIT;
}

/* Whether it is something that this read was to bring, and follows on what came before it: the
 * numbers of a history have no holes.  By position they are exactly those of the gaps and of what lies
 * between them; by number the first datagram may begin earlier and the last one end later. */
static bool was_asked_for(const struct tw_repair *repair, const struct tw_dgram *dgram)
{
	const struct tw_repair_walk *walk = &repair->walk;
	const struct tw_repair_slot *read = &walk->read;
	uint64_t first_seq = dgram->hdr->first_msg_seq;

	if (dgram->hdr->session != repair->session ||
	    (dgram->hdr->flags & TW_WIRE_HEARTBEAT) != 0 ||
	    !tw_seq_before(first_seq, read->end_seq) ||
	    !tw_seq_before(read->first_seq, dgram->end_seq)) {
		return false;
	}
	if (walk->got_seq != walk->end_seq) {
		if (first_seq != walk->end_seq) {
			return false;
		}
	} else if (!read->by_seq && read->whole && !read->head && first_seq != read->first_seq) {
		return false;
	}
	return read->by_seq || !tw_seq_before(read->end_seq, dgram->end_seq);
}

static void count(struct tw_repair_walk *walk, const struct tw_dgram *dgram)
{
	uint64_t first_seq = dgram->hdr->first_msg_seq;

	if (walk->got_seq == walk->end_seq) {
		walk->got_seq = first_seq;
	}
	walk->end_seq = dgram->end_seq;
	if (dgram->msgs_bytes != 0) {
		walk->dgram_bytes += dgram->len_bytes;
		walk->dgram_msgs += dgram->end_seq - first_seq;
	}
}

bool tw_repair_next_dgram(struct tw_repair *repair, struct tw_dgram *out)
{
	struct tw_repair_walk *walk = &repair->walk;
	struct tw_dgram dgram;

	/* the session may have ended while the last one was pulled */
	tw_repair_begin(repair, repair->now_ns);
	while (walk->runs && walk->len_bytes - walk->at_bytes >= UNIT) {
		const struct tw_wire_hdr *hdr = (const void *)(walk->data + walk->at_bytes);
		bool by_seq = walk->read.by_seq;
		bool holds = (by_seq || lies_here(repair, hdr)) && parse(walk, &dgram);
		if (!holds && by_seq) {
			walk->wrong = true; /* where the next one would begin is anybody's guess */
			break;
		}
		walk->at_bytes += holds ? dgram.len_bytes : UNIT;
		if (!holds) {
			continue;
		}
		if (!was_asked_for(repair, &dgram)) {
			walk->wrong = true;
			continue;
		}
		count(walk, &dgram);
		tw_arb_asked(repair->arb, walk->read.first_seq, walk->read.end_seq);
		*out = dgram;
		return true;
	}
	tw_repair_end_walk(repair);
	return false;
}

/* --- judging --------------------------------------------------------------------------------- */

/* Walks the gaps of a read: the note of the one behind `id` (TW_ARB_NO_GAP: the first), or NULL. */
static struct tw_arb_note *next_gap(struct tw_repair *repair, const struct tw_repair_slot *read,
				    uint32_t *id)
{
	struct tw_arb *arb = repair->arb;
	struct tw_arb_gap gap;

	*id = *id == TW_ARB_NO_GAP ? tw_arb_gap_from(arb, read->first_seq, read->end_seq)
				   : tw_arb_gap_after(arb, *id);
	if (*id == TW_ARB_NO_GAP) {
		return NULL;
	}
	tw_arb_gap(arb, *id, repair->now_ns, &gap);
	return tw_seq_before(gap.first_seq, read->end_seq) ? tw_arb_gap_note(arb, *id) : NULL;
}

/* Its place has not brought what it should have: from now on by number, in so manieth a round. */
static void ask_by_seq(struct tw_repair *repair, const struct tw_repair_slot *read,
		       uint8_t min_rounds)
{
	uint32_t id = TW_ARB_NO_GAP;
	struct tw_arb_note *note;

	while ((note = next_gap(repair, read, &id)) != NULL) {
		if (note->rounds < min_rounds) {
			continue;
		}
		note->by_seq = true;
		if (!note->asked_by_seq) {
			note->asked_to = UINT64_MAX; /* the round is over */
		}
	}
}

/* It was no attempt: what is missing of it may be asked for as if it had not been, after a pause. */
static void was_no_attempt(struct tw_repair *repair, const struct tw_repair_slot *read)
{
	uint32_t id = TW_ARB_NO_GAP;
	struct tw_arb_note *note;

	while ((note = next_gap(repair, read, &id)) != NULL) {
		if (note->rounds == 0) {
			continue;
		}
		note->rounds--;
		note->asked_to = UINT64_MAX;
		note->retry_ns = repair->now_ns + repair->conf.retry_min_ns;
		tw_repair_later(repair, note->retry_ns);
	}
}

/* The rest of a wide read may be asked for at once, as it was not what came; unless it has been asked
 * for again since. */
static void go_on(struct tw_repair *repair, const struct tw_repair_slot *read, uint64_t first_seq)
{
	uint32_t id = tw_arb_gap_from(repair->arb, first_seq, read->end_seq);

	if (id != TW_ARB_NO_GAP) {
		struct tw_arb_note *note = tw_arb_gap_note(repair->arb, id);
		if (note->asked_by_seq && note->rounds == read->round) {
			note->asked_to = first_seq;
			tw_repair_later(repair, 0);
		}
	}
}

static void learn_size(struct tw_repair *repair, const struct tw_repair_walk *walk)
{
	if (walk->dgram_msgs == 0) {
		return;
	}
	uint64_t bytes = walk->dgram_bytes / walk->dgram_msgs;
	bytes = (3ull * repair->msg_bytes + bytes + 3) / 4;
	repair->msg_bytes = (uint32_t)(bytes < MIN_MSG_BYTES ? MIN_MSG_BYTES : bytes);
}

static bool has_brought_all(const struct tw_repair *repair)
{
	const struct tw_repair_walk *walk = &repair->walk;
	const struct tw_repair_slot *read = &walk->read;
	bool some = walk->got_seq != walk->end_seq;

	if (walk->wrong || !some) {
		return false;
	}
	if (read->by_seq || !read->whole) {
		return true;
	}
	return tw_arb_gap_from(repair->arb, read->first_seq, read->end_seq) == TW_ARB_NO_GAP;
}

/* A log that was read from its begin on does not begin with the session: it is not the first publisher's. */
static bool began_later(const struct tw_repair_walk *walk)
{
	return walk->read.head && !walk->wrong && walk->got_seq != walk->end_seq;
}

/* By number: where the server's history begins, and what is to be asked for next. */
static void learn_begin(struct tw_repair *repair)
{
	const struct tw_repair_walk *walk = &repair->walk;
	struct tw_repair_server *server = &repair->servers[walk->read.server];

	if (tw_seq_before(walk->read.begin, walk->got_seq) &&
	    tw_seq_before(server->gone_seq, walk->got_seq)) {
		server->gone_seq = walk->got_seq;
		tw_repair_later(repair, 0);
	}
	if (tw_seq_before(walk->got_seq, server->has_seq)) {
		server->has_seq = walk->got_seq;
	}
	if (walk->read.wide && tw_seq_before(walk->end_seq, walk->read.end_seq)) {
		go_on(repair, &walk->read, walk->end_seq);
	}
}

void tw_repair_end_walk(struct tw_repair *repair)
{
	struct tw_repair_walk *walk = &repair->walk;
	struct tw_repair_server *server = &repair->servers[walk->read.server];

	if (!walk->runs) {
		return;
	}
	walk->runs = false;
	learn_size(repair, walk);
	if (has_brought_all(repair)) {
		server->proven = true;
		server->strikes = 0;
		server->blocked_ns = 0;
	} else if (walk->no_room != tw_arb_repair_no_room(repair->arb)) {
		was_no_attempt(repair, &walk->read);
	} else if (began_later(walk)) {
		ask_by_seq(repair, &walk->read, 1);
	} else {
		repair->stats.broken++;
		tw_repair_strike(repair, walk->read.server);
		if (!walk->read.by_seq) {
			ask_by_seq(repair, &walk->read, 1);
		}
	}
	if (walk->read.by_seq && !walk->wrong && walk->got_seq != walk->end_seq) {
		learn_begin(repair);
	}
}

/* --- replies --------------------------------------------------------------------------------- */

/* As TCP does it: gains of an eighth and a quarter. */
static void learn_round_trip(struct tw_repair_server *server, uint64_t trip_ns)
{
	if (!server->timed) {
		server->timed = true;
		server->rtt_ns = trip_ns;
		server->deviation_ns = trip_ns / 2;
		return;
	}
	uint64_t off_ns =
		trip_ns > server->rtt_ns ? trip_ns - server->rtt_ns : server->rtt_ns - trip_ns;
	server->deviation_ns = server->deviation_ns - server->deviation_ns / 4 + off_ns / 4;
	server->rtt_ns = server->rtt_ns - server->rtt_ns / 8 + trip_ns / 8;
}

static void is_gone(struct tw_repair *repair, const struct tw_repair_slot *read)
{
	struct tw_repair_server *server = &repair->servers[read->server];

	repair->stats.gone++;
	server->strikes = 0;
	if (!read->by_seq) {
		ask_by_seq(repair, read, 1);
	} else if (tw_seq_before(server->gone_seq, read->end)) {
		server->gone_seq = read->end;
		tw_repair_later(repair, 0);
	}
}

static void begin_walk(struct tw_repair *repair, const struct tw_repair_slot *read,
		       const uint8_t *data, size_t len_bytes)
{
	size_t max_bytes =
		read->by_seq ? TW_REPAIR_READ_MAX_BYTES : (size_t)(read->end - read->begin) * UNIT;

	TW_ASSERT((uintptr_t)data % 8 == 0);
	repair->stats.bytes += len_bytes;
	repair->walk =
		(struct tw_repair_walk){ .runs = true,
					 .read = *read,
					 .data = data,
					 .len_bytes = len_bytes < max_bytes ? len_bytes : max_bytes,
					 .wrong = len_bytes > max_bytes || len_bytes % UNIT != 0 ||
						  (!read->by_seq && len_bytes < max_bytes),
					 .no_room = tw_arb_repair_no_room(repair->arb) };
}

/* What came less, or more, than was paid for. */
static void settle(struct tw_repair *repair, const struct tw_repair_slot *read, size_t len_bytes)
{
	if (len_bytes > read->cost_bytes) {
		repair->paced_ns += tw_repair_rate_ns(repair, len_bytes - read->cost_bytes);
	} else {
		uint64_t back_ns = tw_repair_rate_ns(repair, read->cost_bytes) -
				   tw_repair_rate_ns(repair, len_bytes);
		repair->paced_ns -= back_ns < repair->paced_ns ? back_ns : repair->paced_ns;
	}
}

void tw_repair_reply(struct tw_repair *repair, uint64_t id, enum tw_repair_status status,
		     const uint8_t *data, size_t len_bytes, uint64_t now_ns)
{
	tw_repair_end_walk(repair);
	tw_repair_begin(repair, now_ns);
	struct tw_repair_slot *slot = tw_repair_find(repair, id);
	if (slot == NULL) {
		repair->stats.ignored++;
		return;
	}
	struct tw_repair_slot read = *slot;
	struct tw_repair_server *server = &repair->servers[read.server];
	tw_repair_free(repair, slot);
	tw_repair_go_on(repair, 0);
	settle(repair, &read, status == TW_REPAIR_OK ? len_bytes : 0);
	switch (status) {
	case TW_REPAIR_OK:
		learn_round_trip(server, repair->now_ns - read.asked_ns);
		begin_walk(repair, &read, data, len_bytes);
		return;
	case TW_REPAIR_GONE:
		learn_round_trip(server, repair->now_ns - read.asked_ns);
		is_gone(repair, &read);
		return;
	case TW_REPAIR_BUSY:
		repair->stats.busy++;
		if (!read.by_seq) {
			ask_by_seq(repair, &read, 2); /* does it exist at all? */
		}
		return;
	case TW_REPAIR_UNPOSTED:
		repair->stats.reads--;
		was_no_attempt(repair, &read);
		return;
	case TW_REPAIR_REFUSED:
		repair->stats.refused++;
		break;
	case TW_REPAIR_BROKEN:
		repair->stats.broken++;
		break;
	}
	tw_repair_strike(repair, read.server);
}
