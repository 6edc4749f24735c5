/* The hot path of a channel.  See channel.h for threads and ordering. */
#include "publisher/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"

#define LOOK_NS       10000000u  /* between looks for a bus that is not there */
#define LOOK_AGAIN_NS 100000000u /* after one that could not be used */
#define END_SAID      16u        /* heartbeats after which everybody has heard an end */

int tw_pub_channel_init(struct tw_pub_channel *channel, const struct tw_pub_channel_conf *conf,
			uint64_t history_bytes, struct tw_error *err)
{
	*channel = (struct tw_pub_channel){ .conf = *conf };
	tw_bucket_init(&channel->bucket, conf->max_bytes_per_s, conf->burst_bytes, tw_mono_ns());
	int rc = tw_slab_init(&channel->slab,
			      (size_t)history_bytes + sizeof(struct tw_history_control), err);
	if (rc < 0) {
		return rc;
	}
	rc = tw_history_view_make(&channel->view, channel->slab.base, channel->slab.size_bytes,
				  conf->mtu_bytes);
	if (rc < 0) {
		return tw_fail(err, rc, "channel %u: history: %zu bytes, datagrams of %u",
			       conf->channel, channel->slab.size_bytes, conf->mtu_bytes);
	}
	uint64_t marks = tw_history_index_marks(channel->view.units);
	channel->marks = calloc(marks, sizeof(channel->marks[0]));
	if (channel->marks == NULL) {
		return tw_fail(err, TW_ENOMEM, "channel %u: history index: out of memory",
			       conf->channel);
	}
	tw_history_index_init(&channel->index, channel->marks, marks);
	return TW_OK;
}

void tw_pub_channel_fini(struct tw_pub_channel *channel)
{
	tw_bus_reader_close(channel->bus);
	channel->bus = NULL;
	tw_slab_fini(&channel->slab);
	free(channel->marks);
	channel->marks = NULL;
}

static void set_state(struct tw_pub_channel *channel, enum tw_pub_state state)
{
	channel->state_now = state;
	/* relaxed: the main thread only prints it */
	atomic_store_explicit(&channel->state, state, memory_order_relaxed);
}

/* Leaves a text for the main thread to log.  One that it has not come to yet stands. */
static void refuse(struct tw_pub_channel *channel, const struct tw_error *err, uint64_t now_ns)
{
	channel->look_again_ns = now_ns + LOOK_AGAIN_NS;
	bool repeated = channel->state_now == TW_PUB_REFUSED && channel->refused_code == err->code;
	channel->refused_code = err->code;
	set_state(channel, TW_PUB_REFUSED);
	/* PU4: pairs with PU3 */
	if (!repeated && !atomic_load_explicit(&channel->note_full, memory_order_acquire)) {
		channel->note = *err;
		/* PU1: pairs with PU2 */
		atomic_store_explicit(&channel->note_full, true, memory_order_release);
	}
}

bool tw_pub_channel_note(struct tw_pub_channel *channel, struct tw_error *out)
{
	/* PU2: pairs with PU1 */
	if (!atomic_load_explicit(&channel->note_full, memory_order_acquire)) {
		return false;
	}
	*out = channel->note;
	/* PU3: pairs with PU4 */
	atomic_store_explicit(&channel->note_full, false, memory_order_release);
	return true;
}

/* --- sends under way ------------------------------------------------------------------------- */

/* Gives the history back what no send reads any more. */
static void reap(struct tw_pub_channel *channel)
{
	if (channel->send_tail == channel->send_head) {
		return;
	}
	uint64_t done = tw_tx_completed(channel->tx, channel->endpoint);
	while (channel->send_tail != channel->send_head) {
		const struct tw_pub_send *send = &channel->sends[channel->send_tail % TW_PUB_SENDS];
		if (send->posted > done) {
			return;
		}
		tw_history_complete(&channel->history, send->end_pos);
		channel->send_tail++;
	}
}

static void post(struct tw_pub_channel *channel, const struct tw_pack_dgram *dgrams, unsigned int n)
{
	struct tw_tx_dgram out[TW_TX_BATCH];
	for (unsigned int i = 0; i < n; i++) {
		out[i] = (struct tw_tx_dgram){ .data = dgrams[i].data,
					       .len_bytes = dgrams[i].len_bytes };
		tw_bucket_charge(&channel->bucket, dgrams[i].len_bytes);
	}
	tw_tx_post(channel->tx, channel->endpoint, out, n);
	channel->posted += n;
	/* where no entry is left, the last one grows: a slow line makes this coarse, never full */
	channel->send_head += channel->send_head - channel->send_tail < TW_PUB_SENDS;
	channel->sends[(channel->send_head - 1) % TW_PUB_SENDS] =
		(struct tw_pub_send){ .posted = channel->posted, .end_pos = dgrams[n - 1].end_pos };
}

/* --- a life ---------------------------------------------------------------------------------- */

/* Begins a life on the bus that was just opened. */
static int begin(struct tw_pub_channel *channel, uint64_t now_ns, struct tw_error *err)
{
	int life = tw_bus_new_life(channel->bus, err);
	if (life < 0) {
		return life;
	}
	struct tw_pack_conf conf = { .channel = channel->conf.channel,
				     .environment = channel->conf.environment,
				     .session = tw_bus_reader_session(channel->bus),
				     .publisher = channel->conf.publisher_base | (uint32_t)life,
				     .mtu_bytes = channel->conf.mtu_bytes,
				     .first_msg_seq = tw_bus_reader_next_seq(channel->bus),
				     .heartbeat_min_ns = channel->conf.heartbeat_min_ns,
				     .heartbeat_max_ns = channel->conf.heartbeat_max_ns };
	int rc = tw_history_init(&channel->history, channel->slab.base, channel->slab.size_bytes,
				 conf.mtu_bytes, conf.session, conf.publisher);
	if (rc != TW_OK) {
		return tw_fail(err, rc, "channel %u: history: %zu bytes: too small", conf.channel,
			       channel->slab.size_bytes);
	}
	tw_history_index_begin(&channel->index);
	tw_pack_init(&channel->pack, &conf, &channel->history, now_ns);
	channel->seen.stalls = channel->seen.holes = 0;
	channel->seen.hole_msgs = channel->seen.malformed_msgs = 0;
	tw_counter_set(&channel->counters, TW_PUB_CHANNEL_session, conf.session);
	tw_counter_set(&channel->counters, TW_PUB_CHANNEL_publisher, conf.publisher);
	tw_counter_set(&channel->counters, TW_PUB_CHANNEL_next_seq, conf.first_msg_seq);
	tw_counter_set(&channel->counters, TW_PUB_CHANNEL_history_bytes,
		       channel->history.units * TW_WIRE_UNIT_BYTES);
	set_state(channel, TW_PUB_LIVE);
	return TW_OK;
}

static void leave_bus(struct tw_pub_channel *channel)
{
	tw_bus_reader_close(channel->bus);
	channel->bus = NULL;
	channel->look_again_ns = 0;
}

static __attribute__((cold)) void look_for_bus(struct tw_pub_channel *channel, uint64_t now_ns)
{
	struct tw_error err = { .code = TW_OK };
	reap(channel);
	if (now_ns < channel->look_again_ns) {
		return;
	}
	channel->look_again_ns = now_ns + LOOK_NS;
	/* also where nothing is sent: a line that broke heals only once this thread has let go of it */
	(void)tw_tx_completed(channel->tx, channel->endpoint);
	if (channel->send_tail != channel->send_head) {
		/* The new life's history would overwrite what sends still read.  Whether a burst's last
		 * ones are done may show with one more post: a heartbeat of the life that is over. */
		struct tw_pack_dgram last;
		tw_pack_beat(&channel->pack, now_ns, tw_wall_ns(), &last);
		post(channel, &last, 1);
		return;
	}
	int rc = tw_bus_open(&channel->bus, channel->conf.run_dir, channel->conf.channel, true,
			     &err);
	if (rc == TW_ENOTFOUND) {
		if (channel->state_now != TW_PUB_WAITING) {
			set_state(channel, TW_PUB_WAITING);
		}
		return;
	}
	if (rc == TW_EBUSY) {
		(void)tw_fail(&err, rc, "channel %u: its bus: another publisher is attached",
			      channel->conf.channel);
	}
	if (rc == TW_OK && tw_bus_reader_session(channel->bus) == channel->broken_session) {
		leave_bus(channel); /* refused already: a new one has to come */
		channel->look_again_ns = now_ns + LOOK_AGAIN_NS;
		return;
	}
	if (rc == TW_OK && tw_bus_is_over(channel->bus)) {
		/* left over from an earlier run: who starts now expects the next session */
		leave_bus(channel);
		channel->look_again_ns = now_ns + LOOK_AGAIN_NS;
		set_state(channel, TW_PUB_WAITING);
		return;
	}
	if (rc == TW_OK) {
		rc = begin(channel, now_ns, &err);
	}
	if (rc != TW_OK) {
		leave_bus(channel);
		refuse(channel, &err, now_ns);
	}
}

static __attribute__((cold)) void bus_broken(struct tw_pub_channel *channel, int rc,
					     uint64_t now_ns)
{
	struct tw_error err;
	channel->broken_session = tw_bus_reader_session(channel->bus);
	(void)tw_fail(
		&err, rc,
		"channel %u: bus of session %llu: message %llu: %s; waiting for a new session",
		channel->conf.channel, (unsigned long long)channel->broken_session,
		(unsigned long long)channel->pack.next_msg_seq, tw_strstatus(rc));
	leave_bus(channel);
	refuse(channel, &err, now_ns);
}

/* --- turns ----------------------------------------------------------------------------------- */

static int from_bus(void *ctx, void *dst, uint32_t max_bytes, struct tw_bus_batch *batch)
{
	return tw_bus_read(ctx, dst, max_bytes, batch);
}

static void count_up(const struct tw_pub_channel *channel, unsigned int index, uint64_t total,
		     uint64_t *seen)
{
	tw_counter_add(&channel->counters, index, total - *seen);
	*seen = total;
}

/* Counters that stand still while all is well. */
static void count_rare(struct tw_pub_channel *channel)
{
	const struct tw_pack *pack = &channel->pack;
	if (pack->stalls != channel->seen.stalls) {
		/* the log is full of what one line has not sent: the other goes on without it */
		tw_tx_overtaken(channel->tx, channel->endpoint);
		count_up(channel, TW_PUB_CHANNEL_history_stalls, pack->stalls,
			 &channel->seen.stalls);
	}
	if (pack->holes != channel->seen.holes) {
		count_up(channel, TW_PUB_CHANNEL_holes, pack->holes, &channel->seen.holes);
		count_up(channel, TW_PUB_CHANNEL_hole_messages, pack->hole_msgs,
			 &channel->seen.hole_msgs);
	}
	if (pack->malformed_msgs != channel->seen.malformed_msgs) {
		count_up(channel, TW_PUB_CHANNEL_malformed_messages, pack->malformed_msgs,
			 &channel->seen.malformed_msgs);
	}
}

static void count(struct tw_pub_channel *channel, const struct tw_pack_dgram *dgrams,
		  unsigned int n, uint64_t wall_ns)
{
	struct tw_hist *hist = &channel->counters.hists[TW_PUB_CHANNEL_HIST_feedhandler_to_sent];
	uint64_t bytes = 0, msgs = 0;
	for (unsigned int i = 0; i < n; i++) {
		bytes += dgrams[i].len_bytes;
		msgs += dgrams[i].msg_count;
		if (dgrams[i].first_recv_ns != 0) {
			tw_hist_record(hist, (int64_t)(wall_ns - dgrams[i].first_recv_ns));
		}
	}
	tw_counter_add(&channel->counters, TW_PUB_CHANNEL_messages, msgs);
	tw_counter_add(&channel->counters, TW_PUB_CHANNEL_datagrams, n);
	tw_counter_add(&channel->counters, TW_PUB_CHANNEL_bytes, bytes);
	tw_counter_set(&channel->counters, TW_PUB_CHANNEL_next_seq, channel->pack.next_msg_seq);
}

/* For reads by message number: one of each batch is enough. */
static void note_first(struct tw_pub_channel *channel, const struct tw_pack_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	memcpy(&hdr, dgram->data, sizeof(hdr)); /* our own store: nothing to wait for */
	tw_history_index_note(&channel->index, hdr.log_pos, hdr.first_msg_seq);
}

/* Nothing is on the bus: has the session ended, or has another begun? */
static bool idle_turn(struct tw_pub_channel *channel, uint64_t now_ns)
{
	switch (tw_bus_reader_state(channel->bus)) {
	case TW_BUS_ENDED:
		if (channel->state_now != TW_PUB_ENDED) {
			channel->end_heartbeats = 0;
			tw_pack_end(&channel->pack, now_ns);
			set_state(channel, TW_PUB_ENDED);
			return true;
		}
		return false;
	case TW_BUS_SUPERSEDED:
		leave_bus(channel);
		return true;
	case TW_BUS_LIVE:
		break;
	}
	return false;
}

/* Datagrams that the rate limit lets go now, if they are as large as any. */
static unsigned int rate_room(struct tw_pub_channel *channel, uint64_t now_ns)
{
	struct tw_bucket *bucket = &channel->bucket;
	const unsigned int most = tw_tx_batch(channel->tx);
	if (bucket->bytes_per_s == 0) {
		return most;
	}
	if (tw_bucket_open_ns(bucket, now_ns) > now_ns) {
		return 0;
	}
	uint64_t whole = (uint64_t)bucket->tokens_bytes / channel->conf.mtu_bytes;
	return whole == 0 ? 1 : whole < most ? (unsigned int)whole : most;
}

bool tw_pub_channel_turn(struct tw_pub_channel *channel, uint64_t now_ns)
{
	if (channel->bus == NULL) {
		look_for_bus(channel, now_ns);
		return channel->bus != NULL;
	}
	reap(channel);
	if (!tw_pack_is_due(&channel->pack, now_ns) && !tw_bus_has_news(channel->bus)) {
		return idle_turn(channel, now_ns);
	}
	unsigned int room = rate_room(channel, now_ns);
	if (room == 0) {
		tw_counter_add(&channel->counters, TW_PUB_CHANNEL_rate_stalls, 1);
		return false;
	}
	struct tw_pack_dgram dgrams[TW_TX_BATCH];
	uint64_t wall_ns = tw_wall_ns();
	int n = tw_pack_poll(&channel->pack, from_bus, channel->bus, now_ns, wall_ns, dgrams, room);
	if (n == 0) {
		count_rare(channel);
		/* stalled, and messages are still to come? */
		return !tw_pack_carries(&channel->pack) && idle_turn(channel, now_ns);
	}
	if (n < 0) {
		bus_broken(channel, n, now_ns);
		return true;
	}
	post(channel, dgrams, (unsigned int)n);
	if (dgrams[0].data == channel->pack.heartbeat) { /* comes alone and uses no history */
		tw_counter_add(&channel->counters, TW_PUB_CHANNEL_heartbeats, 1);
		if (channel->state_now == TW_PUB_ENDED && ++channel->end_heartbeats == END_SAID) {
			tw_bus_end_said(channel->bus);
		}
		return true;
	}
	note_first(channel, &dgrams[0]);
	tw_history_publish(&channel->history);
	if (!tw_pack_carries(&channel->pack)) {
		tw_bus_release(channel->bus); /* only now: all of it has been posted */
	}
	count(channel, dgrams, (unsigned int)n, wall_ns);
	count_rare(channel);
	return true;
}
