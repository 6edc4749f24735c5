/* A handle's figures, read from its counters, and what open found and chose.
 *
 * Threads   any, between open and close: counters are relaxed atomics, the rest is const after open.
 *           No lock; each figure is whole, together they are not of one instant. */
#include <string.h>

#include "base/clock.h"
#include "subscriber/sub_internal.h"

static void read_latency(const struct tw_hist *hist, struct tw_sub_latency *out)
{
	struct tw_hist_summary summary;

	tw_hist_summarize(hist, &summary);
	*out = (struct tw_sub_latency){
		.count = summary.count,
		.p50_ns = summary.p50_ns,
		.p99_ns = summary.p99_ns,
		.p999_ns = summary.p999_ns,
		.max_ns = summary.max_ns,
		.negative = summary.negative,
		/* a figure like the others: nothing is ordered by it */
		.saturated = atomic_load_explicit(&hist->saturated, memory_order_relaxed),
	};
}

static void read_line(const struct tw_sub_line *line, struct tw_sub_line_stats *out)
{
#define GET(name) tw_counter_get(&line->counters, TW_SUB_LINE_##name)
	*out = (struct tw_sub_line_stats){
		.datagrams = GET(datagrams),
		.first = GET(first),
		.duplicates = GET(duplicates),
		.heartbeats = GET(heartbeats),
		.missing = GET(missing),
		.reordered = GET(reordered),
		.malformed = GET(malformed),
		.icrc_bad = GET(icrc_bad),
		.fault_dropped = GET(fault_dropped),
		.fault_duplicated = GET(fault_duplicated),
		.fault_reordered = GET(fault_reordered),
		.bytes = GET(bytes),
		.stale = GET(stale),
		.downs = GET(downs),
		.receive_buffer_bytes = GET(receive_buffer_bytes),
		.foreign_source = GET(foreign_source),
		.foreign_environment = GET(foreign_environment),
		.foreign_channel = GET(foreign_channel),
		.foreign_version = GET(foreign_version),
		.foreign_replay = GET(foreign_replay),
		.foreign_frames = GET(foreign_frames),
		.up = GET(up) != 0,
		.present = 1,
	};
#undef GET
	out->foreign = out->foreign_source + out->foreign_environment + out->foreign_channel +
		       out->foreign_version + out->foreign_replay + out->foreign_frames;
}

static void read_channel(const struct tw_sub_channel *channel, struct tw_sub_stats *out)
{
	const struct tw_hist *hists = channel->counters.hists;

#define GET(name) tw_counter_get(&channel->counters, TW_SUB_CHANNEL_##name)
	*out = (struct tw_sub_stats){
		.session = GET(session),
		.next_seq = GET(next_seq),
		.messages = GET(messages),
		.gaps = GET(gaps),
		.repaired_by_line = GET(repaired_by_line),
		.repaired_by_history = GET(repaired_by_history),
		.repaired_by_snapshot = GET(repaired_by_snapshot),
		.lost_ranges = GET(lost_ranges),
		.lost_messages = GET(lost_messages),
		.session_changes = GET(session_changes),
		.sessions_ended = GET(sessions_ended),
		.unknown_messages = GET(unknown_messages),
		.unstamped = GET(unstamped),
		.bytes = GET(bytes),
		.holes = GET(holes),
		.held_datagrams = GET(held_datagrams),
		.held_max = GET(held_max),
		.store_full = GET(store_full),
		.set_aside = GET(set_aside),
		.contradictions = GET(contradictions),
		.repair_reads = GET(repair_reads),
		.repair_bytes = GET(repair_bytes),
		.repair_retries = GET(repair_retries),
		.repair_failed = GET(repair_failed),
		.repair_one_sided = GET(repair_one_sided),
		.late_messages = GET(late_messages),
	};
#undef GET
	for (uint32_t l = 0; l < channel->lines; l++) {
		read_line(channel->line[l], &out->lines[l]);
	}
#define LEG(name) read_latency(&hists[TW_SUB_CHANNEL_HIST_##name], &out->name)
	LEG(exchange_to_feedhandler);
	LEG(feedhandler_to_sent);
	LEG(sent_to_received);
	LEG(received_to_consumed);
	LEG(repair);
#undef LEG
}

/* Gives the caller as much of `from` as its struct holds; `size` stays the caller's. */
static int give(void *out, size_t out_bytes, const void *from, size_t from_bytes)
{
	size_t bytes = out_bytes < from_bytes ? out_bytes : from_bytes;

	if (bytes < sizeof(size_t)) {
		return TW_EARG;
	}
	memcpy((uint8_t *)out + sizeof(size_t), (const uint8_t *)from + sizeof(size_t),
	       bytes - sizeof(size_t));
	return TW_OK;
}

_Static_assert(offsetof(struct tw_sub_stats, size) == 0, "size comes first");
_Static_assert(offsetof(struct tw_sub_info, size) == 0, "size comes first");
_Static_assert(offsetof(struct tw_sub_channel_info, size) == 0, "size comes first");

int tw_sub_stats_read(const struct tw_sub *sub, uint16_t channel, struct tw_sub_stats *out)
{
	struct tw_sub_stats own;

	for (uint32_t i = 0; i < sub->channel_count; i++) {
		if (sub->channels[i].id == channel) {
			read_channel(&sub->channels[i], &own);
			return give(out, out->size, &own, sizeof(own));
		}
	}
	return TW_ENOTFOUND;
}

static const char *idle_text(enum tw_idle_mode mode)
{
	switch (mode) {
	case TW_IDLE_SPIN:
		return "spin";
	case TW_IDLE_YIELD:
		return "yield";
	case TW_IDLE_EVENT:
		return "event";
	case TW_IDLE_AUTO:
		break;
	}
	return "auto";
}

int tw_sub_info_read(const struct tw_sub *sub, struct tw_sub_info *out)
{
	const struct tw_site *site = sub->plan.site;
	const struct tw_site_host *host = &site->hosts[sub->plan.host];
	struct tw_sub_info own = {
		.site = site->name,
		.environment = site->production ? "production" : "test",
		.host = host->name,
		.host_why = sub->plan.host_why,
		.transport = sub->plan.verbs ? "verbs" : "udp",
		.transport_why = sub->plan.transport_why,
		.idle = idle_text(sub->plan.idle),
		.idle_why = sub->plan.idle_why,
		.clock_source = tw_clock_source(),
		.receive_stamp = sub->rx->stamp,
		.run_dir = site->run_dir,
		.counters = sub->name,
		.channel_count = sub->channel_count,
		.cpu = host->cpu_subscriber,
		.fault_active = sub->fault_active,
		.accepts_replay = site->subscriber.accept_replay,
		.repair = sub->plan.repair_text,
		.lines = { tw_rx_describe(sub->rx, 0), tw_rx_describe(sub->rx, 1) },
	};

	return give(out, out->size, &own, sizeof(own));
}

int tw_sub_channel_at(const struct tw_sub *sub, uint32_t index, struct tw_sub_channel_info *out)
{
	if (index >= sub->channel_count) {
		return TW_ENOTFOUND;
	}
	const struct tw_sub_channel *channel = &sub->channels[index];
	const struct tw_site_channel *site = &sub->plan.site->channels[channel->site_idx];
	struct tw_sub_channel_info own = {
		.name = site->name,
		.groups = { site->groups[0], site->groups[1] },
		.id = channel->id,
		.latest = channel->late != NULL,
	};

	return give(out, out->size, &own, sizeof(own));
}
