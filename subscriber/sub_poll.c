/* The hot path: endpoints are polled in turn, datagrams go through the source filter, the parser and
 * their channel's arbiter, and the arbiter's runs become events.
 *
 * Hot       no allocation, lock, log or system call here beyond the fabric's own.
 * Resuming  what did not fit into the caller's array stays where it is: a run half handed out, an
 *           arbiter half pulled, a batch half read.  The next call goes on exactly there.
 * Repair    one branch while nothing is missing; else see sub_repair.c.
 * Borrowing bytes of a datagram hold until its endpoint is polled again, bytes of a reorder store
 *           until that arbiter's next input; so a call that handed out either stops before that. */
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

static void count_line(const struct tw_sub_line *line, unsigned int counter)
{
	tw_counter_add(&line->counters, counter, 1);
}

/* The caller is done with everything handed out. */
static void release(struct tw_sub *sub)
{
	if (sub->mark_count == 0) {
		return;
	}
	int64_t now_ns = (int64_t)tw_wall_ns();
	for (uint32_t i = 0; i < sub->mark_count; i++) {
		const struct tw_sub_mark *mark = &sub->marks[i];
		tw_hist_record_n(
			&mark->channel->counters.hists[TW_SUB_CHANNEL_HIST_received_to_consumed],
			now_ns - (int64_t)mark->recv_ns, mark->count);
	}
	sub->mark_count = 0;
}

/* Duty cycle: a turn lasts from one poll to the next one and so includes the caller's work. */
static void turn(struct tw_sub *sub, uint64_t now_ns)
{
	if (sub->turn_ns != 0) {
		uint64_t turn_ns = now_ns - sub->turn_ns;
		tw_counter_max(&sub->loop, TW_LOOP_max_turn_ns, turn_ns);
		if (UNLIKELY(turn_ns > sub->slow_turn_ns)) {
			tw_counter_add(&sub->loop, TW_LOOP_slow_turns, 1);
		}
	}
	tw_counter_add(&sub->loop, TW_LOOP_turns, 1);
	sub->turn_ns = now_ns;
}

static void refresh_line(const struct tw_sub_line *line)
{
	struct tw_arb_line_stats stats;

	tw_arb_line_stats(line->channel->arb, line->line, &stats);
	tw_counter_set(&line->counters, TW_SUB_LINE_missing, stats.missing);
	tw_counter_set(&line->counters, TW_SUB_LINE_reordered, stats.reordered);
	tw_counter_set(&line->counters, TW_SUB_LINE_downs, stats.downs);
	tw_counter_set(&line->counters, TW_SUB_LINE_up, stats.up);
}

static void refresh_channel(const struct tw_sub_channel *channel)
{
	uint32_t held = tw_arb_held(channel->arb);

	tw_counter_set(&channel->counters, TW_SUB_CHANNEL_held_datagrams, held);
	tw_counter_max(&channel->counters, TW_SUB_CHANNEL_held_max, held);
	tw_counter_set(&channel->counters, TW_SUB_CHANNEL_store_full,
		       tw_arb_store_full(channel->arb));
	tw_counter_set(&channel->counters, TW_SUB_CHANNEL_set_aside,
		       tw_arb_set_aside(channel->arb));
	tw_counter_set(&channel->counters, TW_SUB_CHANNEL_contradictions,
		       tw_arb_contradictions(channel->arb));
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
		if (run->line < channel->lines) {
			refresh_line(channel->line[run->line]);
		}
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
		refresh_channel(channel);
		if (channel->repair != NULL) {
			tw_sub_repair_refresh(sub, channel);
		}
		sub->pulling = NULL;
		return false;
	}
	sub->run_channel = channel;
	if (LIKELY(sub->run.type == TW_RUN_DATA)) {
		TW_ASSERT(sub->run.count > 0);
		sub->run_at = sub->run.msgs;
		sub->run_seq = sub->run.first_seq;
		sub->run_left = sub->run.count;
		sample(channel, &sub->run);
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
	const struct tw_arb_run *run = &sub->run;
	unsigned int n = sub->run_left < max ? sub->run_left : max;
	uint8_t flags = run->fills_gap ? TW_EV_REPAIRED : 0;
	const uint8_t *at = sub->run_at;
	uint64_t seq = sub->run_seq;
	uint64_t unknown = 0;

	for (unsigned int i = 0; i < n; i++) {
		const struct tw_msg_sbe *sbe = (const void *)at;
		uint32_t len_bytes = tw_msg_bytes(at);
		/* templates are numbered without holes from 1 */
		bool known = (uint32_t)sbe->template_id - 1u < TW_MSG_KIND_LIMIT - 1u;
		unknown += !known;
		events[i] = (struct tw_event){
			.data = at,
			.seq = seq,
			.end_seq = seq + 1,
			.session = run->session,
			.sent_ns = run->send_ns,
			.recv_ns = run->recv_ns,
			.len_bytes = len_bytes,
			.channel = channel->id,
			.type = TW_EV_MSG,
			.flags = (uint8_t)(known ? flags : flags | TW_EV_UNKNOWN),
			.line = run->line,
		};
		at += len_bytes;
		seq++;
	}
	tw_counter_add(&channel->counters, TW_SUB_CHANNEL_messages, n);
	tw_counter_add(&channel->counters, TW_SUB_CHANNEL_bytes, (uint64_t)(at - sub->run_at));
	if (UNLIKELY(channel->late != NULL)) {
		mark_late(channel, run, events, n);
	}
	if (UNLIKELY(unknown != 0)) {
		tw_counter_add(&channel->counters, TW_SUB_CHANNEL_unknown_messages, unknown);
	}
	mark(sub, n);
	advance(channel, seq);
	sub->store_borrowed |= run->from_store;
	sub->run_at = at;
	sub->run_seq = seq;
	sub->run_left -= n;
	if (sub->run_left == 0) {
		sub->run_channel = NULL;
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

static TW_COLD void foreign_channel(struct tw_sub *sub, const struct tw_sub_line *line, uint16_t id)
{
	bool ours = false;

	for (uint32_t i = 0; i < sub->channel_count; i++) {
		ours |= sub->channels[i].id == id;
	}
	count_line(line, TW_SUB_LINE_foreign_channel);
	if (!ours) {
		tw_counter_add(&sub->counters, TW_SUB_foreign_datagrams, 1);
	}
}

static void count_accepted(const struct tw_sub_line *line, const struct tw_rx_dgram *rx,
			   unsigned int counter)
{
	count_line(line, TW_SUB_LINE_datagrams);
	tw_counter_add(&line->counters, TW_SUB_LINE_bytes, rx->len_bytes);
	count_line(line, counter);
}

static void count_result(struct tw_sub *sub, const struct tw_sub_line *line,
			 const struct tw_rx_dgram *rx, const struct tw_dgram *dgram,
			 enum tw_arb_result result)
{
	const struct tw_sub_channel *channel = line->channel;

	switch (result) {
	case TW_ARB_HELD:
	case TW_ARB_SET_ASIDE:
	case TW_ARB_FIRST:
		count_accepted(line, rx, TW_SUB_LINE_first);
		if (UNLIKELY((dgram->hdr->flags & TW_WIRE_HOLE) != 0)) {
			tw_counter_add(&channel->counters, TW_SUB_CHANNEL_holes, 1);
		}
		break;
	case TW_ARB_DUPLICATE:
		count_accepted(line, rx, TW_SUB_LINE_duplicates);
		break;
	case TW_ARB_HEARTBEAT:
		count_accepted(line, rx, TW_SUB_LINE_heartbeats);
		break;
	case TW_ARB_STALE:
		count_line(line, TW_SUB_LINE_stale);
		break;
	case TW_ARB_FOREIGN_CHANNEL:
		foreign_channel(sub, line, dgram->hdr->channel);
		break;
	case TW_ARB_FOREIGN_ENVIRONMENT:
		count_line(line, TW_SUB_LINE_foreign_environment);
		break;
	case TW_ARB_FOREIGN_REPLAY:
		count_line(line, TW_SUB_LINE_foreign_replay);
		break;
	case TW_ARB_RESULTS:
		break;
	}
}

/* Gives the next datagram of the batch to its arbiter. */
static void input(struct tw_sub *sub)
{
	const struct tw_sub_line *line = sub->batch_line;
	const struct tw_rx_dgram *rx = &sub->batch[sub->batch_at++];
	struct tw_dgram dgram;

	if (sub->batch_at < sub->batch_count) {
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
	count_result(sub, line, rx, &dgram, result);
	sub->pulling = line->channel;
}

/* Everything that can be handed out without polling an endpoint. */
static unsigned int drain(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	unsigned int n = 0;

	while (n < max && sub->mark_count < TW_SUB_MARKS) {
		if (sub->run_channel != NULL) {
			if (LIKELY(sub->run.type == TW_RUN_DATA)) {
				n += give_messages(sub, events + n, max - n);
			} else {
				give_event(sub, events + n++);
			}
		} else if (sub->pulling != NULL) {
			(void)next_run(sub);
		} else if (UNLIKELY(sub->failing != NULL)) {
			give_down(sub, events + n++);
		} else if (UNLIKELY(sub->repair_due)) {
			sub->repair_due = false;
			tw_sub_repair_turn(sub);
		} else if (UNLIKELY(sub->reply_channel != NULL) && !sub->store_borrowed) {
			tw_sub_repair_input(sub);
		} else if (sub->batch_line == NULL || sub->store_borrowed) {
			break;
		} else if (sub->batch_at < sub->batch_count) {
			input(sub);
		} else {
			refresh_line(sub->batch_line);
			sub->batch_line = NULL;
		}
	}
	return n;
}

static TW_COLD void line_failed(struct tw_sub *sub, struct tw_sub_line *line, int status)
{
	struct tw_sub_channel *channel = line->channel;

	line->dead = true;
	(void)tw_fail(&channel->error, status, "channel %u line %c: receive: %s", channel->id,
		      'a' + line->line, tw_strstatus(status));
	if (--channel->alive > 0) {
		return;
	}
	channel->down = true;
	sub->failing = channel;
	if (--sub->alive == 0) {
		sub->error = channel->error;
		sub->failing_status = status;
	}
}

/* Polls the next endpoint of the round. */
static void poll_endpoint(struct tw_sub *sub)
{
	uint32_t endpoint = sub->cursor;
	struct tw_sub_line *line = &sub->lines[endpoint];

	sub->cursor = endpoint + 1 == sub->line_count ? 0 : endpoint + 1;
	if (UNLIKELY(line->channel->down)) {
		return;
	}
	int got = 0;
	if (LIKELY(!line->dead)) {
		got = tw_rx_poll(sub->rx, endpoint, sub->batch, TW_RX_BATCH);
	}
	if (got > 0) {
		sub->batch_at = 0;
		sub->batch_count = (uint32_t)got;
		sub->batch_line = line;
		return;
	}
	if (UNLIKELY(got < 0)) {
		line_failed(sub, line, got);
		return;
	}
	/* A dead line counts as empty: the arbiter finds it silent and waits for it no longer.  The
	 * time was taken before the poll: whatever was there then has been seen. */
	tw_arb_idle(line->channel->arb, line->line, sub->now_ns);
	sub->pulling = line->channel;
}

int tw_sub_poll(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	if (UNLIKELY(events == NULL || max == 0)) {
		return TW_EARG;
	}
	if (UNLIKELY(sub->failing_status != 0 && sub->failing == NULL)) {
		sub->failed = sub->failing_status;
	}
	if (UNLIKELY(sub->failed != 0)) {
		return sub->failed;
	}
	release(sub);
	sub->store_borrowed = false;
	sub->now_ns = tw_mono_ns();
	turn(sub, sub->now_ns);

	/* the status is an int, so more than that cannot be reported */
	max = max > INT32_MAX ? INT32_MAX : max;
	sub->repair_due = sub->repairing != 0;
	if (UNLIKELY(sub->reply_held)) {
		tw_sub_repair_release(sub);
	}
	unsigned int n = drain(sub, events, max);
	for (uint32_t polls = 0; n == 0 && polls < sub->line_count; polls++) {
		if (polls > 0) {
			sub->now_ns = tw_mono_ns();
		}
		poll_endpoint(sub);
		n = drain(sub, events, max);
	}
	if (n == 0) {
		tw_counter_add(&sub->loop, TW_LOOP_empty_turns, 1);
	} else {
		tw_idle_reset(&sub->idle);
		if (sub->batch_line != NULL) {
			refresh_line(sub->batch_line);
		}
	}
	return (int)n;
}

bool tw_sub_has_work(const struct tw_sub *sub)
{
	return sub->run_channel != NULL || sub->pulling != NULL || sub->failing != NULL ||
	       sub->reply_channel != NULL || sub->failing_status != 0 || sub->batch_line != NULL;
}

uint64_t tw_sub_sleep_ns(const struct tw_sub *sub)
{
	if (sub->repairing != 0) {
		uint64_t ns = tw_sub_repair_sleep_ns(sub, tw_mono_ns());
		return ns < sub->gap_wait_ns ? ns : sub->gap_wait_ns;
	}
	for (uint32_t i = 0; i < sub->channel_count; i++) {
		const struct tw_sub_channel *channel = &sub->channels[i];
		if (!channel->down && tw_arb_gaps(channel->arb) != 0) {
			return sub->gap_wait_ns;
		}
	}
	return sub->timer_ns;
}

void tw_sub_settle(struct tw_sub *sub)
{
	release(sub);
	sub->turn_ns = 0; /* sleeps on purpose: not a stall */
}

int tw_sub_wait(struct tw_sub *sub, uint64_t timeout_ns)
{
	tw_sub_settle(sub);
	if (sub->failed != 0) {
		return sub->failed;
	}
	if (tw_sub_has_work(sub)) {
		return 1;
	}
	uint64_t sleep_ns = tw_sub_sleep_ns(sub);
	bool own_timer = sleep_ns < timeout_ns;
	int rc = tw_rx_wait(sub->rx, own_timer ? sleep_ns : timeout_ns);
	return rc == 0 && own_timer ? 1 : rc;
}

void tw_sub_idle(struct tw_sub *sub)
{
	if (sub->idle.mode == TW_IDLE_EVENT) {
		(void)tw_sub_wait(sub, TW_SUB_IDLE_NS);
		return;
	}
	if (sub->idle.mode != TW_IDLE_SPIN) {
		sub->turn_ns = 0; /* gave the CPU away on purpose: not a stall */
	}
	tw_idle_turn(&sub->idle);
}
