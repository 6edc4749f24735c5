/* From datagrams to events: through the source filter, the parser and their channel's arbiter, whose runs the
 * caller gets as events.
 *
 * Hot       no allocation, lock, log or system call.
 * Resuming  what did not fit into the caller's array stays where it is: a run half handed out, an
 *           arbiter half pulled, a batch half read.  The next call goes on exactly there.
 * Borrowing bytes of a reorder store hold until its arbiter's next input; so a call that handed some out
 *           stops before that.
 * Figures   of lines and stores are the arbiter's, and are copied to the counters when it says that they have
 *           changed; what is counted here is counted as it is handed out. */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

static void count_line(const struct tw_sub_line *line, unsigned int counter)
{
	tw_counter_add(&line->counters, counter, 1);
}

void tw_sub_release(struct tw_sub *sub)
{
	int64_t now_ns = (int64_t)tw_wall_ns();

	for (uint32_t i = 0; i < sub->mark_count; i++) {
		const struct tw_sub_mark *mark = &sub->marks[i];
		tw_hist_record_n(
			&mark->channel->counters.hists[TW_SUB_CHANNEL_HIST_received_to_consumed],
			now_ns - (int64_t)mark->recv_ns, mark->count);
	}
	sub->mark_count = 0;
}

/* What the arbiter has counted. */
static void refresh(const struct tw_sub_channel *channel)
{
	const struct tw_arb *arb = channel->arb;
	struct tw_arb_line_stats stats;

#define SET(name, value) tw_counter_set(&channel->counters, TW_SUB_CHANNEL_##name, value)
	SET(held_datagrams, tw_arb_held(arb));
	SET(store_full, tw_arb_store_full(arb));
	SET(set_aside, tw_arb_set_aside(arb));
	SET(contradictions, tw_arb_contradictions(arb));
#undef SET
	tw_counter_max(&channel->counters, TW_SUB_CHANNEL_held_max, tw_arb_held(arb));
	for (uint32_t l = 0; l < channel->lines; l++) {
		const struct tw_counters *counters = &channel->line[l]->counters;
		tw_arb_line_stats(arb, l, &stats);
		tw_counter_set(counters, TW_SUB_LINE_missing, stats.missing);
		tw_counter_set(counters, TW_SUB_LINE_reordered, stats.reordered);
		tw_counter_set(counters, TW_SUB_LINE_downs, stats.downs);
		tw_counter_set(counters, TW_SUB_LINE_up, stats.up);
	}
}

/* Latency legs of a run, taken at its first message: that one has waited longest in the feedhandler,
 * the bus and the datagram, so the figure bounds the others'.  Sampling every message would make
 * handing one out about half as dear again. */
static void sample(const struct tw_sub_channel *channel, const struct tw_arb_run *run)
{
	struct tw_hist *hists = channel->counters.hists;
	struct tw_msg_head head;

	memcpy(&head, run->msgs, sizeof(head));
	if (UNLIKELY((head.flags & TW_MSG_TS_BAD) != 0)) {
		tw_counter_add(&channel->counters, TW_SUB_CHANNEL_unstamped, 1);
	} else {
		int64_t delta_ns = head.recv_delta_ns;
		/* wraps for a hostile stamp; the histogram then has a senseless sample */
		uint64_t feedhandler_ns = head.exchange_ns + (uint64_t)delta_ns;
		tw_hist_record(&hists[TW_SUB_CHANNEL_HIST_exchange_to_feedhandler], delta_ns);
		tw_hist_record(&hists[TW_SUB_CHANNEL_HIST_feedhandler_to_sent],
			       (int64_t)(run->send_ns - feedhandler_ns));
	}
	tw_hist_record(&hists[TW_SUB_CHANNEL_HIST_sent_to_received],
		       (int64_t)(run->recv_ns - run->send_ns));
	if (UNLIKELY(run->fills_gap)) {
		tw_hist_record(&hists[TW_SUB_CHANNEL_HIST_repair], (int64_t)run->gap_ns);
		tw_counter_add(&channel->counters,
			       run->repaired ? TW_SUB_CHANNEL_repaired_by_history
					     : TW_SUB_CHANNEL_repaired_by_line,
			       run->count);
	}
}

/* Numbers up to `end_seq` were handed out; in `latest` higher ones may have been before. */
static void advance(struct tw_sub_channel *channel, uint64_t end_seq)
{
	if (LIKELY(end_seq > channel->next_seq)) {
		channel->next_seq = end_seq;
		tw_counter_set(&channel->counters, TW_SUB_CHANNEL_next_seq, end_seq);
	}
}

/* Counts what a run other than DATA says. */
static void account(struct tw_sub_channel *channel, const struct tw_arb_run *run)
{
	const struct tw_counters *counters = &channel->counters;

	switch (run->type) {
	case TW_RUN_GAP:
		tw_counter_add(counters, TW_SUB_CHANNEL_gaps, 1);
		break;
	case TW_RUN_LOST:
		tw_counter_add(counters, TW_SUB_CHANNEL_lost_ranges, 1);
		tw_counter_add(counters, TW_SUB_CHANNEL_lost_messages,
			       run->end_seq - run->first_seq);
		advance(channel, run->end_seq);
		break;
	case TW_RUN_SESSION:
		tw_counter_add(counters, TW_SUB_CHANNEL_session_changes, 1);
		tw_counter_set(counters, TW_SUB_CHANNEL_session, run->session);
		channel->next_seq = run->first_seq;
		tw_counter_set(counters, TW_SUB_CHANNEL_first_seq, run->first_seq);
		if (channel->late != NULL) {
			tw_sub_late_forget(channel->late);
		}
		tw_counter_set(counters, TW_SUB_CHANNEL_next_seq, channel->next_seq);
		break;
	case TW_RUN_END:
		tw_counter_add(counters, TW_SUB_CHANNEL_sessions_ended, 1);
		break;
	case TW_RUN_LINE_DOWN:
	case TW_RUN_LINE_UP:
		refresh(channel); /* who gets the event finds the line so */
		break;
	case TW_RUN_DATA:
		break;
	}
}

/* Fetches the next run of the arbiter that is being pulled. */
static bool next_run(struct tw_sub *sub)
{
	struct tw_sub_channel *channel = sub->pulling;

	if (!tw_arb_next(channel->arb, &sub->run)) {
		bool changed = tw_arb_figures_changed(channel->arb);
		if (UNLIKELY(changed)) {
			refresh(channel);
		}
		if (UNLIKELY(channel->repairing || (changed && channel->repair != NULL))) {
			tw_sub_repair_refresh(sub, channel);
		}
		sub->pulling = NULL;
		return false;
	}
	sub->run_channel = channel;
	if (LIKELY(sub->run.type == TW_RUN_DATA)) {
		TW_ASSERT(sub->run.count > 0);
		sample(channel, &sub->run);
		sub->like = (struct tw_event){
			.session = sub->run.session,
			.sent_ns = sub->run.send_ns,
			.recv_ns = sub->run.recv_ns,
			.channel = channel->id,
			.type = TW_EV_MSG,
			.flags = sub->run.fills_gap ? TW_EV_REPAIRED : 0,
			.line = sub->run.line,
		};
	} else {
		account(channel, &sub->run);
	}
	return true;
}

static uint8_t event_type(enum tw_arb_run_type type)
{
	switch (type) {
	case TW_RUN_DATA:
		return TW_EV_MSG;
	case TW_RUN_GAP:
		return TW_EV_GAP;
	case TW_RUN_LOST:
		return TW_EV_LOST;
	case TW_RUN_SESSION:
		return TW_EV_SESSION;
	case TW_RUN_END:
		return TW_EV_END;
	case TW_RUN_LINE_DOWN:
		return TW_EV_LINE_DOWN;
	case TW_RUN_LINE_UP:
		return TW_EV_LINE_UP;
	}
	return 0;
}

static void give_event(struct tw_sub *sub, struct tw_event *event)
{
	const struct tw_arb_run *run = &sub->run;
	bool range = run->type == TW_RUN_GAP || run->type == TW_RUN_LOST;

	*event = (struct tw_event){
		.seq = run->first_seq,
		.end_seq = range ? run->end_seq : run->first_seq,
		.session = run->session,
		.channel = sub->run_channel->id,
		.type = event_type(run->type),
		.line = run->line,
	};
	sub->run_channel = NULL;
}

static void mark(struct tw_sub *sub, uint32_t count)
{
	if (sub->mark_count > 0) {
		struct tw_sub_mark *last = &sub->marks[sub->mark_count - 1];
		if (last->channel == sub->run_channel && last->recv_ns == sub->run.recv_ns) {
			last->count += count;
			return;
		}
	}
	sub->marks[sub->mark_count++] = (struct tw_sub_mark){ .channel = sub->run_channel,
							      .recv_ns = sub->run.recv_ns,
							      .count = count };
}

/* In `latest`: says which of the messages that are about to be handed out are late.  While a run is being
 * handed out its arbiter stays as it is. */
static void mark_late(struct tw_sub_channel *channel, const struct tw_arb_run *run,
		      struct tw_event *events, unsigned int n)
{
	uint64_t open_seq = tw_arb_next_seq(channel->arb);
	uint64_t late_msgs = 0;

	if (tw_arb_gaps(channel->arb) == 0 || run->first_seq < open_seq) {
		open_seq = 0; /* it is ahead of nothing */
	}
	if (open_seq == 0 && !run->fills_gap) {
		return;
	}
	for (unsigned int i = 0; i < n; i++) {
		bool known = (events[i].flags & TW_EV_UNKNOWN) == 0;
		const struct tw_msg_head *msg = known ? (const void *)events[i].data : NULL;
		if (tw_sub_late_take(channel->late, msg, events[i].seq, open_seq)) {
			events[i].flags |= TW_EV_LATE;
			late_msgs++;
		}
	}
	tw_counter_add(&channel->counters, TW_SUB_CHANNEL_late_messages, late_msgs);
}

/* Up to `max` (>= 1) messages of the current DATA run. */
static unsigned int give_messages(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	struct tw_sub_channel *channel = sub->run_channel;
	struct tw_arb_run *run = &sub->run;
	unsigned int n = run->count < max ? run->count : max;
	const uint8_t *at = run->msgs;
	uint64_t seq = run->first_seq;

	for (struct tw_event *event = events; event < events + n; event++) {
		const struct tw_msg_sbe *sbe = (const void *)at;
		uint32_t len_bytes = tw_msg_bytes(at);
		*event = sub->like;
		event->data = at;
		event->len_bytes = len_bytes;
		event->seq = seq++;
		event->end_seq = seq;
		/* templates are numbered without holes from 1 */
		if (UNLIKELY((uint32_t)sbe->template_id - 1u >= TW_MSG_KIND_LIMIT - 1u)) {
			event->flags |= TW_EV_UNKNOWN;
			tw_counter_add(&channel->counters, TW_SUB_CHANNEL_unknown_messages, 1);
		}
		at += len_bytes;
	}
	tw_counter_add(&channel->counters, TW_SUB_CHANNEL_messages, n);
	tw_counter_add(&channel->counters, TW_SUB_CHANNEL_bytes, (uint64_t)(at - run->msgs));
	if (UNLIKELY(channel->late != NULL)) {
		mark_late(channel, run, events, n);
	}
	mark(sub, n);
	advance(channel, seq);
	sub->store_borrowed |= run->from_store;
	run->msgs = at;
	run->first_seq = seq;
	run->count -= n;
	if (run->count == 0) {
		sub->run_channel = NULL;
	}
	return n;
}

static bool has_room(const struct tw_sub *sub, unsigned int given, unsigned int max)
{
	return given < max && sub->mark_count < TW_SUB_MARKS;
}

/* Events of sub->pulling, which is NULL after that where it has no more; else there was no room. */
static unsigned int give(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	unsigned int n = 0;

	while (has_room(sub, n, max) && (sub->run_channel != NULL || next_run(sub))) {
		if (LIKELY(sub->run.type == TW_RUN_DATA)) {
			n += give_messages(sub, events + n, max - n);
		} else {
			give_event(sub, events + n++);
		}
	}
	return n;
}

static void give_down(struct tw_sub *sub, struct tw_event *event)
{
	struct tw_sub_channel *channel = sub->failing;

	*event = (struct tw_event){
		.seq = channel->next_seq,
		.end_seq = channel->next_seq,
		.session = tw_arb_session(channel->arb),
		.channel = channel->id,
		.type = TW_EV_DOWN,
	};
	sub->failing = NULL;
}

static bool is_source(const struct tw_sub_channel *channel, uint32_t address)
{
	for (uint32_t i = 0; i < channel->source_count; i++) {
		if (channel->sources[i] == address) {
			return true;
		}
	}
	return false;
}

static TW_COLD void foreign_channel(struct tw_sub *sub, uint16_t id)
{
	bool ours = false;

	for (uint32_t i = 0; i < sub->channel_count; i++) {
		ours |= sub->channels[i].id == id;
	}
	if (!ours) {
		tw_counter_add(&sub->counters, TW_SUB_foreign_datagrams, 1);
	}
}

/* One counter of a line for each result. */
static const uint8_t counter_of[TW_ARB_RESULTS] = {
	[TW_ARB_FIRST] = TW_SUB_LINE_first,
	[TW_ARB_HELD] = TW_SUB_LINE_first,
	[TW_ARB_SET_ASIDE] = TW_SUB_LINE_first,
	[TW_ARB_DUPLICATE] = TW_SUB_LINE_duplicates,
	[TW_ARB_HEARTBEAT] = TW_SUB_LINE_heartbeats,
	[TW_ARB_STALE] = TW_SUB_LINE_stale,
	[TW_ARB_FOREIGN_CHANNEL] = TW_SUB_LINE_foreign_channel,
	[TW_ARB_FOREIGN_ENVIRONMENT] = TW_SUB_LINE_foreign_environment,
	[TW_ARB_FOREIGN_REPLAY] = TW_SUB_LINE_foreign_replay,
};

static void count_result(struct tw_sub *sub, const struct tw_sub_line *line,
			 const struct tw_dgram *dgram, enum tw_arb_result result)
{
	unsigned int counter = counter_of[result];

	count_line(line, counter);
	if (LIKELY(result < TW_ARB_STALE)) { /* accepted */
		count_line(line, TW_SUB_LINE_datagrams);
		tw_counter_add(&line->counters, TW_SUB_LINE_bytes, dgram->len_bytes);
		if (UNLIKELY((dgram->hdr->flags & TW_WIRE_HOLE) != 0) &&
		    counter == TW_SUB_LINE_first) {
			tw_counter_add(&line->channel->counters, TW_SUB_CHANNEL_holes, 1);
		}
	} else if (result == TW_ARB_FOREIGN_CHANNEL) {
		foreign_channel(sub, dgram->hdr->channel);
	}
}

/* Gives the next datagram of the batch to its arbiter. */
static void input(struct tw_sub *sub)
{
	const struct tw_sub_line *line = sub->batch_line;
	const struct tw_rx_dgram *rx = &sub->batch[sub->batch_at++];
	struct tw_dgram dgram;

	if (sub->batch_at == sub->batch_count) {
		sub->batch_line = NULL;
	} else {
		/* header and first messages; on verbs and shm they are not in this core's cache */
		__builtin_prefetch(sub->batch[sub->batch_at].data);
		__builtin_prefetch(sub->batch[sub->batch_at].data + TW_CACHE_LINE_BYTES);
	}
	/* before anything of a stranger's bytes is looked at */
	if (UNLIKELY(!is_source(line->channel, rx->src_addr)) && !sub->rx->sourceless) {
		count_line(line, TW_SUB_LINE_foreign_source);
		return;
	}
	enum tw_dgram_verdict verdict = tw_dgram_parse(&dgram, rx->data, rx->len_bytes);
	/* the reorder store has slots of the site's MTU */
	if (UNLIKELY(verdict != TW_DGRAM_OK || rx->len_bytes > sub->mtu_bytes)) {
		count_line(line, verdict == TW_DGRAM_VERSION ? TW_SUB_LINE_foreign_version
							     : TW_SUB_LINE_malformed);
		return;
	}
	enum tw_arb_result result =
		tw_arb_input(line->channel->arb, line->line, &dgram, rx->recv_ns, sub->now_ns);
	count_result(sub, line, &dgram, result);
	sub->pulling = line->channel;
}

/* The next step of repair in a call; false: there is none.  `empty`: the call has handed out nothing yet, so
 * that a reply which was handed out in calls before makes room for the next one. */
static __attribute__((noinline)) bool step_repair(struct tw_sub *sub, bool empty)
{
	if (sub->reply_channel != NULL && !sub->store_borrowed) {
		tw_sub_repair_input(sub);
		if (empty) {
			tw_sub_repair_release(sub);
		}
		return true;
	}
	if (sub->repair_due) {
		sub->repair_due = false;
		tw_sub_repair_turn(sub);
		return true;
	}
	return false;
}

unsigned int tw_sub_drain(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	unsigned int n = 0;

	sub->store_borrowed = false;
	while (has_room(sub, n, max)) {
		if (sub->pulling != NULL) {
			n += give(sub, events + n, max - n);
		} else if (UNLIKELY(sub->failing != NULL)) {
			give_down(sub, events + n++);
		} else if (UNLIKELY(sub->reply_channel != NULL || sub->repair_due) &&
			   step_repair(sub, n == 0)) {
			continue;
		} else if (sub->batch_line == NULL || sub->store_borrowed) {
			break;
		} else {
			input(sub);
		}
	}
	return n;
}
