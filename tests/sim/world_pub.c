/* A simulated site: its feedhandler, the source that stands for the bus, and its publisher. */
#include "tests/sim/world_impl.h"

/* --- feedhandler and source ------------------------------------------------------------------ */

static struct session *making(struct world *w)
{
	return &w->sessions[w->session_idx];
}

void tw_world_produce(struct world *w)
{
	struct session *session = making(w);
	uint32_t burst = 1 + tw_world_below(w, w->burst_max);

	while (burst-- > 0 && session->made < session->msgs) {
		session->made++;
	}
	if (w->session_idx == w->pub_session_idx && session->made > w->retain_msgs &&
	    w->oldest_seq < session->made - w->retain_msgs + 1) {
		w->oldest_seq = session->made - w->retain_msgs + 1;
	}
	if (session->made < session->msgs) {
		tw_world_timer_in(w, 1 + tw_world_up_to(w, w->burst_gap_ns), T_PRODUCE, 0);
	} else if (w->session_idx + 1 < w->session_count) {
		tw_world_timer_in(w, 500 * US + tw_world_up_to(w, 500 * US), T_NEW_SESSION, 0);
	}
}

void tw_world_new_session(struct world *w)
{
	w->session_idx++;
	w->result->sessions++;
	tw_world_trace(w, "feedhandler: session %" PRIu64, making(w)->id);
	tw_world_timer_in(w, 1 + tw_world_up_to(w, w->burst_gap_ns), T_PRODUCE, 0);
}

/* The bus as the publisher reads it. */
static int read_source(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	struct world *w = ctx;
	const struct session *session = &w->sessions[w->pub_session_idx];
	uint8_t *to = dst;

	*batch = (struct tw_bus_batch){ .first_seq = w->read_seq };
	if (w->read_seq < w->oldest_seq) {
		batch->end_seq = w->oldest_seq;
		w->read_seq = w->oldest_seq;
		return TW_ELAPPED;
	}
	while (w->read_seq <= session->made &&
	       batch->bytes + tw_ledger_msg_bytes(session->id, w->read_seq) <= max_bytes) {
		batch->bytes += tw_ledger_msg(to + batch->bytes, session->id, w->read_seq++);
		batch->count++;
	}
	return (int)batch->count;
}

/* --- publisher ------------------------------------------------------------------------------- */

void tw_world_start_publisher(struct world *w)
{
	const struct session *session = &w->sessions[w->pub_session_idx];
	struct tw_pack_conf conf = { .channel = CHANNEL,
				     .environment = ENVIRONMENT,
				     .session = session->id,
				     .publisher = ++w->publisher_id,
				     .mtu_bytes = w->mtu_bytes,
				     .first_msg_seq = w->read_seq,
				     .heartbeat_min_ns = HEARTBEAT_MIN_NS,
				     .heartbeat_max_ns = HEARTBEAT_NS };

	if (tw_history_init(&w->history, w->history_memory, w->history_bytes, w->mtu_bytes,
			    session->id, conf.publisher) != TW_OK) {
		tw_world_fail(w, "history refuses %zu bytes", w->history_bytes);
	}
	tw_history_index_begin(&w->index);
	tw_pack_init(&w->pack, &conf, &w->history, tw_sim_now(w->sim));
	w->pub_runs = true;
	tw_world_trace(w, "publisher %" PRIu32 ": session %" PRIu64 " from %" PRIu64,
		       conf.publisher, session->id, w->read_seq);
}

static void send_one(struct world *w, const struct tw_pack_dgram *dgram)
{
	struct tw_dgram parsed;
	enum tw_dgram_verdict verdict = tw_dgram_parse(&parsed, dgram->data, dgram->len_bytes);

	if (verdict != TW_DGRAM_OK) {
		tw_world_fail(w, "the packer made a datagram that is refused: %s",
			      tw_dgram_verdict_text(verdict));
		return;
	}
	if ((parsed.hdr->flags & TW_WIRE_HEARTBEAT) == 0) {
		w->sent_ns = tw_sim_now(w->sim);
		tw_history_index_note(&w->index, parsed.hdr->log_pos, parsed.hdr->first_msg_seq);
	}
	w->result->holes += (parsed.hdr->flags & TW_WIRE_HOLE) != 0 ? 1 : 0;
	tw_world_trace(w,
		       "sent %" PRIu64 ":%" PRIu64 " packet %" PRIu64 " [%" PRIu64 ", %" PRIu64
		       ") flags %x",
		       parsed.hdr->session, (uint64_t)parsed.hdr->publisher, parsed.hdr->packet_seq,
		       parsed.hdr->first_msg_seq, parsed.end_seq, parsed.hdr->flags);
	for (uint32_t line = 0; line < w->lines; line++) {
		if (tw_sim_send(w->sim, line, dgram->data, dgram->len_bytes) != TW_OK) {
			tw_world_fail(w, "out of memory");
		}
	}
}

/* Once it has sent all of a session: ends it, or goes on to the next one. */
static void drained(struct world *w)
{
	const struct session *session = &w->sessions[w->pub_session_idx];

	if (session->made < session->msgs || w->read_seq <= session->made) {
		return;
	}
	/* A new session flushes the old one: what another line was still to bring of it is LOST.  Gentle
	 * worlds give it the time that a restart takes; healing ones also until all has been repaired:
	 * the new session takes the history's memory. */
	uint64_t settle_ns = w->healing ? HEALING_NS : w->gentle ? 300 * US : 0;
	uint64_t still_ns = tw_sim_now(w->sim) - w->sent_ns;
	bool settled = settle_ns == 0 ||
		       (still_ns > settle_ns && (!w->healing || w->faults_over == w->fault_count));
	if (w->pub_session_idx < w->session_idx && settled) {
		w->pub_session_idx++;
		w->read_seq = 1;
		w->oldest_seq = 1;
		tw_world_start_publisher(w);
	} else if (w->pub_session_idx == w->session_idx && session->ends) {
		tw_pack_end(&w->pack, tw_sim_now(w->sim));
	}
}

void tw_world_publish(struct world *w)
{
	struct tw_pack_dgram dgrams[PUBLISH_MAX];
	uint64_t now_ns = tw_sim_now(w->sim);
	int n;

	tw_world_timer_in(w, PUBLISH_NS, T_PUBLISH, 0);
	if (!w->pub_runs) {
		return;
	}
	do {
		n = tw_pack_poll(&w->pack, read_source, w, now_ns, now_ns, dgrams, PUBLISH_MAX);
		if (n < 0) {
			tw_world_fail(w, "packer: %s", tw_strstatus(n));
		}
		for (int i = 0; i < n; i++) {
			send_one(w, &dgrams[i]);
		}
		tw_history_publish(&w->history);
		if (n > 0) {
			tw_history_complete(&w->history, dgrams[n - 1].end_pos);
		}
	} while (n == (int)PUBLISH_MAX);
	drained(w);
}
