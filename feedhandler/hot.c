/* The hot thread of the feedhandler: reads, paces, decodes, writes the buses.
 *
 * It logs nothing, and allocates nothing but where the next of several files is opened; how it ended
 * is left in the struct for the main thread.
 * Gate       a file waits for its publishers: before the first packet until each channel has one, then
 *            wherever a bus is full, and at the end until all has been released. */
#include <inttypes.h>
#include <sysexits.h>

#include "base/clock.h"
#include "base/fail.h"
#include "feedhandler/feedhandler.h"

#define MS_NS         1000000ull
#define GATE_CHECK_NS (10 * MS_NS) /* between looks at the publishers: each is a system call */

static void enter(struct tw_feedhandler *fh, enum tw_feedhandler_phase phase)
{
	atomic_store_explicit(&fh->phase, (int)phase, memory_order_relaxed); /* orders nothing */
}

static void flush(struct tw_feedhandler *fh)
{
	for (uint32_t left = fh->unflushed; left != 0; left &= left - 1) {
		tw_bus_flush(fh->channels[__builtin_ctz(left)].writer);
	}
	fh->unflushed = 0;
}

/* Gives up: what is on the buses stays, nothing more is appended. */
static void abandon(struct tw_feedhandler *fh, int exit_status)
{
	if (!fh->abandoned) {
		fh->abandoned = true;
		fh->exit_status = exit_status;
	}
}

/* A channel whose publisher is missing, or channel_count. */
static uint32_t ungated_channel(const struct tw_feedhandler *fh)
{
	for (uint32_t c = 0; c < fh->channel_count; c++) {
		if (!tw_bus_has_gate(fh->channels[c].writer)) {
			return c;
		}
	}
	return fh->channel_count;
}

/* How long publishers have been missing; one watch for one wait. */
struct gate_watch {
	uint64_t next_ns;    /* when to look again */
	uint64_t missing_ns; /* since when one is missing; 0: none is */
};

/* True while all channels have a publisher.  Abandons where one is missing for too long. */
static bool gates_hold(struct tw_feedhandler *fh, struct gate_watch *watch, uint64_t now_ns)
{
	if (now_ns < watch->next_ns) {
		return watch->missing_ns == 0;
	}
	watch->next_ns = now_ns + GATE_CHECK_NS;
	uint32_t c = ungated_channel(fh);
	if (c == fh->channel_count) {
		watch->missing_ns = 0;
		return true;
	}
	if (watch->missing_ns == 0) {
		watch->missing_ns = now_ns;
	}
	uint64_t limit_ns = fh->conf->wait_publisher_ms * MS_NS;
	if (limit_ns != 0 && now_ns - watch->missing_ns >= limit_ns) {
		(void)tw_fail(&fh->error, TW_ETIMEOUT,
			      "channel %u: no publisher has opened its bus for %" PRIu32 " ms",
			      fh->channels[c].conf->id, fh->conf->wait_publisher_ms);
		abandon(fh, EX_UNAVAILABLE);
	}
	return false;
}

/* One empty turn; false where the wait is over for good. */
static bool wait_turn(struct tw_feedhandler *fh)
{
	if (tw_app_stopping(fh->app)) {
		abandon(fh, EX_OK);
	}
	if (fh->abandoned) {
		return false;
	}
	tw_idle_turn(&fh->idle);
	return true;
}

static void wait_until(struct tw_feedhandler *fh, uint64_t due_ns, uint64_t now_ns)
{
	if (due_ns <= now_ns) {
		return;
	}
	flush(fh); /* nobody waits for what comes next */
	while (wait_turn(fh) && tw_mono_ns() < due_ns) {
	}
	tw_idle_reset(&fh->idle);
}

static void wait_for_publishers(struct tw_feedhandler *fh)
{
	enter(fh, TW_FH_WAITING);
	uint64_t now_ns = tw_mono_ns();
	struct gate_watch watch = { .missing_ns = now_ns };
	while (!gates_hold(fh, &watch, now_ns) && wait_turn(fh)) {
		now_ns = tw_mono_ns();
	}
	tw_idle_reset(&fh->idle);
}

/* The bus is full; false where the message must be dropped because all is given up. */
static bool append_waiting(struct tw_feedhandler *fh, struct tw_feedhandler_channel *channel,
			   const void *msg, uint32_t len_bytes)
{
	tw_counter_add(&channel->counters, TW_FH_CHANNEL_stalls, 1);
	flush(fh);
	struct gate_watch watch = { 0 };
	do {
		(void)gates_hold(fh, &watch, tw_mono_ns());
		if (!wait_turn(fh)) {
			return false;
		}
	} while (!tw_bus_append(channel->writer, msg, len_bytes, true));
	tw_idle_reset(&fh->idle);
	return true;
}

void tw_feedhandler_message(void *fh_p, const struct tw_msg_head *msg, uint32_t len_bytes,
			    uint32_t channels)
{
	struct tw_feedhandler *fh = fh_p;
	if (fh->pace.rate_msgs != 0) {
		uint64_t now_ns = tw_mono_ns();
		wait_until(fh, tw_pace_message(&fh->pace, now_ns), now_ns);
	}
	for (uint32_t left = channels; left != 0 && !fh->abandoned; left &= left - 1) {
		uint32_t c = (uint32_t)__builtin_ctz(left);
		struct tw_feedhandler_channel *channel = &fh->channels[c];
		if (!tw_bus_append(channel->writer, msg, len_bytes, fh->gated) &&
		    !append_waiting(fh, channel, msg, len_bytes)) {
			return;
		}
		fh->unflushed |= UINT32_C(1) << c;
		tw_counter_add(&channel->counters, TW_FH_CHANNEL_messages, 1);
		tw_counter_add(&channel->counters, TW_FH_CHANNEL_bytes, len_bytes);
		tw_counter_set(&channel->counters, TW_FH_CHANNEL_next_seq,
			       tw_bus_writer_next_seq(channel->writer));
	}
}

/* Where the site says so, the recording happens now.  Played by its own time, what was received with
 * the first packet is received now, and so on: how late this thread reads it shows in recv_delta_ns.
 * At another speed or rate there is no such schedule: each packet is received now, with the delta that
 * it was recorded with. */
static void restamp(struct tw_feedhandler *fh, struct tw_packet *packet)
{
	if (!fh->conf->restamp || packet->recv_ns == 0 || packet->recv_ns > INT64_MAX) {
		return;
	}
	uint64_t wall_ns = tw_wall_ns();
	bool by_time = fh->pace.speed_pct == 100 && fh->pace.rate_msgs == 0;
	if (!by_time || !fh->restamped) {
		fh->feed->shift_ns = (int64_t)wall_ns - (int64_t)packet->recv_ns;
		fh->restamped = true;
	}
	packet->recv_ns = wall_ns;
}

/* The first packet of the next of several recordings is due at once, the others relative to it. */
static void follow_input(struct tw_feedhandler *fh)
{
	if (tw_feed_follow(fh->feed, fh->input)) {
		fh->pace.packets_begun = false;
		fh->restamped = false;
	}
}

/* Turns between looks at the lines' counts while packets come. */
#define COUNT_TURNS 256u

static void count_lines(const struct tw_feedhandler *fh, uint64_t now_ns)
{
	for (uint32_t l = 0; l < fh->input->lines; l++) {
		const struct tw_input_line *line = &fh->input->line[l];
		const struct tw_counters *to = &fh->line_counters[l];
		tw_counter_set(to, TW_FH_LINE_packets, line->packets);
		tw_counter_set(to, TW_FH_LINE_bytes, line->bytes);
		tw_counter_set(to, TW_FH_LINE_truncated, line->truncated);
		tw_counter_set(to, TW_FH_LINE_kernel_drops, line->kernel_drops);
		tw_counter_set(to, TW_FH_LINE_unstamped, line->unstamped);
		tw_counter_set(to, TW_FH_LINE_silent_ms,
			       now_ns > line->heard_ns ? (now_ns - line->heard_ns) / MS_NS : 0);
		tw_counter_set(to, TW_FH_LINE_receive_buffer_bytes, line->receive_buffer_bytes);
		tw_counter_set(to, TW_FH_LINE_joins, /* the main thread's; orders nothing */
			       atomic_load_explicit(&line->joins, memory_order_relaxed));
		tw_counter_set(to, TW_FH_LINE_joins_failed,
			       atomic_load_explicit(&line->joins_failed, memory_order_relaxed));
	}
}

/* A turn of a live input, after its packet where there was one. */
static void live_turn(struct tw_feedhandler *fh, bool idle, uint64_t now_ns)
{
	tw_venue_arb_turn(fh->arb, fh->feed, fh->input->empty_lines, now_ns);
	if (fh->rerequest != NULL) {
		tw_rerequest_udp_turn(fh->rerequest, fh->arb, fh->feed, now_ns);
	}
	flush(fh);
	if (idle || ++fh->turns % COUNT_TURNS == 0) {
		count_lines(fh, now_ns);
	}
}

/* Nothing stops a live feed: no pace, no gate, and what is held back is passed on before the end. */
static void run_live(struct tw_feedhandler *fh)
{
	enter(fh, TW_FH_RUNNING);
	struct tw_packet packet;
	while (!fh->abandoned) {
		int rc = tw_input_next(fh->input, &packet, &fh->error);
		uint64_t now_ns = tw_mono_ns();
		tw_duty_turn(&fh->duty, now_ns, rc == 1);
		if (rc < 0) {
			fh->exit_status = tw_exit_status(rc);
			tw_venue_arb_flush(fh->arb, fh->feed);
			break;
		}
		if (rc == 1) {
			tw_idle_reset(&fh->idle);
			tw_venue_arb_input(fh->arb, fh->feed, &packet, now_ns);
		}
		live_turn(fh, rc == 0, now_ns);
		tw_feed_count_input(fh->feed, fh->input);
		if (rc == 0) {
			tw_idle_turn(&fh->idle);
		}
		if (tw_app_stopping(fh->app)) {
			tw_venue_arb_flush(fh->arb, fh->feed);
			abandon(fh, EX_OK);
		}
	}
	count_lines(fh, tw_mono_ns());
}

/* Until the input ends, fails, or all is given up. */
static void run(struct tw_feedhandler *fh)
{
	enter(fh, TW_FH_RUNNING);
	struct tw_packet packet;
	if (!tw_pace_waits(&fh->pace) && !fh->conf->restamp) {
		tw_feed_read_unpaced(fh->feed, fh->input);
	}
	while (!fh->abandoned) {
		int rc = tw_input_next(fh->input, &packet, &fh->error);
		uint64_t now_ns = tw_mono_ns();
		tw_duty_turn(&fh->duty, now_ns, rc == 1);
		if (rc == 1) {
			follow_input(fh);
			wait_until(fh, tw_pace_packet(&fh->pace, packet.recv_ns, now_ns), now_ns);
			tw_idle_reset(&fh->idle);
			if (!fh->abandoned) {
				restamp(fh, &packet);
				tw_feed_packet(fh->feed, &packet);
				flush(fh);
			}
		} else if (rc < 0) {
			if (rc == TW_ECLOSED) { /* the normal end of a file */
				fh->error = (struct tw_error){ 0 };
			} else {
				fh->exit_status = tw_exit_status(rc);
			}
			return;
		}
		tw_feed_count_input(fh->feed, fh->input);
		if (tw_app_stopping(fh->app)) {
			abandon(fh, EX_OK);
		}
	}
}

static bool all_released(const struct tw_feedhandler *fh)
{
	for (uint32_t c = 0; c < fh->channel_count; c++) {
		const struct tw_bus_writer *writer = fh->channels[c].writer;
		if (tw_bus_gate_seq(writer) + 1 < tw_bus_writer_next_seq(writer)) {
			return false;
		}
	}
	return true;
}

static void drain(struct tw_feedhandler *fh)
{
	enter(fh, TW_FH_DRAINING);
	struct gate_watch watch = { 0 };
	while (!fh->abandoned && !all_released(fh)) {
		(void)gates_hold(fh, &watch, tw_mono_ns());
		(void)wait_turn(fh);
	}
}

void *tw_feedhandler_hot(void *fh_p)
{
	struct tw_feedhandler *fh = fh_p;
	int cpu = fh->site->hosts[fh->conf->host].cpu_feedhandler;
	int rc = tw_cpu_pin(cpu, &fh->error);
	if (rc != TW_OK) {
		abandon(fh, tw_exit_status(rc));
	}
	if (fh->gated && !fh->abandoned) {
		wait_for_publishers(fh);
	}
	fh->begun_ns = tw_mono_ns();
	if (fh->arb != NULL) {
		run_live(fh);
	} else {
		run(fh);
	}
	tw_feed_count_input(fh->feed, fh->input);
	flush(fh);
	if (fh->gated) {
		drain(fh);
	}
	for (uint32_t c = 0; c < fh->channel_count; c++) {
		tw_bus_end(fh->channels[c].writer);
	}
	fh->ended_ns = tw_mono_ns();
	enter(fh, TW_FH_ENDED);
	tw_app_stop(fh->app, fh->exit_status);
	return NULL;
}
