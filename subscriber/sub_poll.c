/* The hot path: endpoints are polled in turn, and what came of that is handed out (sub_give.c).
 *
 * Hot       no allocation, lock, log or system call here beyond the fabric's own.
 * Empty     a poll that finds nothing looks at the clock and at each endpoint, and asks the arbiter whether time has
 *           changed anything, which is a comparison.
 * Repair    one branch while nothing is missing; else see sub_repair.c.
 * Borrowing bytes of a datagram hold until its endpoint is polled again, so a call that handed some out polls
 *           no other. */
#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

static TW_COLD void note_long_turn(struct tw_sub *sub, uint64_t turn_ns)
{
	tw_counter_max(&sub->loop, TW_LOOP_max_turn_ns, turn_ns);
	if (turn_ns > sub->slow_turn_ns) {
		tw_counter_add(&sub->loop, TW_LOOP_slow_turns, 1);
	}
	sub->long_turn_ns = turn_ns < sub->slow_turn_ns ? turn_ns : sub->slow_turn_ns;
}

/* Duty cycle: a turn lasts from one poll to the next one and so includes the caller's work. */
static void turn(struct tw_sub *sub, uint64_t now_ns)
{
	if (UNLIKELY(now_ns - sub->turn_ns > sub->long_turn_ns) && sub->turn_ns != 0) {
		note_long_turn(sub, now_ns - sub->turn_ns);
	}
	tw_counter_add(&sub->loop, TW_LOOP_turns, 1);
	sub->turn_ns = now_ns;
}

/* Whether the call before left something of what lines brought. */
static inline bool half_done(const struct tw_sub *sub)
{
	return sub->pulling != NULL || sub->batch_line != NULL || sub->failing != NULL;
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

/* Polls a line's endpoint; false: nothing has come of that. */
static bool poll_endpoint(struct tw_sub *sub, struct tw_sub_line *line)
{
	int got = 0;

	if (LIKELY(!line->dead)) {
		got = tw_rx_poll(sub->rx, line->endpoint, sub->batch, TW_RX_BATCH);
	} else if (line->channel->down) { /* so are all of its lines */
		return false;
	}
	if (got > 0) {
		sub->batch_at = 0;
		sub->batch_count = (uint32_t)got;
		sub->batch_line = line;
		return true;
	}
	if (UNLIKELY(got < 0)) {
		line_failed(sub, line, got);
		return true;
	}
	/* A dead line counts as empty: the arbiter finds it silent and waits for it no longer.  The
	 * time was taken before the poll: whatever was there then has been seen. */
	if (LIKELY(!tw_arb_idle(line->channel->arb, line->line, sub->now_ns))) {
		return false;
	}
	sub->pulling = line->channel;
	return true;
}

int tw_sub_poll(struct tw_sub *sub, struct tw_event *events, unsigned int max)
{
	if (UNLIKELY(events == NULL || max == 0)) {
		return TW_EARG;
	}
	if (UNLIKELY(sub->failing_status != 0 && sub->failing == NULL)) {
		sub->failed = sub->failing_status;
		return sub->failed;
	}
	if (sub->mark_count != 0) {
		tw_sub_release(sub);
	}
	sub->now_ns = tw_mono_ns();
	turn(sub, sub->now_ns);
	bool due = half_done(sub);
	if (UNLIKELY(sub->repairing != 0 || sub->reply_held)) {
		tw_sub_repair_begin(sub);
		due = true;
	}
	unsigned int n = due ? tw_sub_drain(sub, events, max) : 0;
	struct tw_sub_line *line = sub->next_line;
	while (n == 0) {
		if (poll_endpoint(sub, line)) {
			n = tw_sub_drain(sub, events, max);
		}
		line = line->next;
		if (n != 0 || line == sub->next_line) {
			break;
		}
		sub->now_ns = tw_mono_ns();
	}
	sub->next_line = line;
	if (n == 0) {
		tw_counter_add(&sub->loop, TW_LOOP_empty_turns, 1);
	} else {
		tw_idle_reset(&sub->idle);
	}
	return (int)n; /* far below INT_MAX: of a batch, a reply and a store */
}

bool tw_sub_has_work(const struct tw_sub *sub)
{
	return half_done(sub) || sub->reply_channel != NULL || sub->failing_status != 0;
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
	if (sub->mark_count != 0) {
		tw_sub_release(sub);
	}
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
