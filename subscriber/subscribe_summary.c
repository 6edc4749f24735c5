/* The tally of a run and the summary made from it: one JSON object on one line.
 *
 * Names are those of struct tw_sub_stats, so that counters, library and summary say the same. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "subscriber/subscribe.h"
#include "wire/datagram.h"
#include "wire/format.h"

int tw_tally_init(struct tw_tally *tally, const struct tw_sub *sub, struct tw_error *err)
{
	struct tw_sub_info info = { .size = sizeof(info) };
	struct tw_sub_channel_info channel = { .size = sizeof(channel) };

	memset(tally, 0, sizeof(*tally));
	int rc = tw_sub_info_read(sub, &info);
	if (rc < 0) {
		return tw_fail(err, rc, "subscriber: info: %s", tw_strstatus(rc));
	}
	tally->channels = calloc(info.channel_count, sizeof(tally->channels[0]));
	if (tally->channels == NULL) {
		return tw_fail(err, TW_ENOMEM, "tally: calloc: %u channels", info.channel_count);
	}
	while (tw_sub_channel_at(sub, tally->channel_count, &channel) >= 0) {
		tally->channels[tally->channel_count++].id = channel.id;
	}
	return TW_OK;
}

void tw_tally_fini(struct tw_tally *tally)
{
	free(tally->channels);
	tally->channels = NULL;
}

static struct tw_tally_channel *find(const struct tw_tally *tally, uint16_t id)
{
	for (uint32_t i = 0; i < tally->channel_count; i++) {
		if (tally->channels[i].id == id) {
			return &tally->channels[i];
		}
	}
	return NULL;
}

static void add_message(struct tw_tally *tally, const struct tw_event *event)
{
	const struct tw_msg_head *head = (const void *)event->data;

	tally->messages++;
	tally->kinds[(event->flags & TW_EV_UNKNOWN) != 0 ? 0 : head->sbe.template_id]++;
}

static void add_range(struct tw_tally *tally, struct tw_tally_channel *channel,
		      const struct tw_event *event)
{
	if (channel->range_count < TW_TALLY_RANGES) {
		channel->ranges[channel->range_count] = (struct tw_tally_range){
			.session = event->session, .seq = event->seq, .end_seq = event->end_seq
		};
	}
	channel->range_count++;
	tally->lost_ranges++;
	tally->lost_messages += event->end_seq - event->seq;
}

void tw_tally_event(struct tw_tally *tally, const struct tw_event *event)
{
	if (event->type == TW_EV_MSG) {
		add_message(tally, event);
		return;
	}
	struct tw_tally_channel *channel = find(tally, event->channel);
	TW_ASSERT(channel != NULL);
	switch (event->type) {
	case TW_EV_LOST:
		add_range(tally, channel, event);
		break;
	case TW_EV_SESSION:
		channel->ended = false;
		break;
	case TW_EV_END:
		channel->ended = true;
		break;
	case TW_EV_DOWN:
		channel->down = true;
		break;
	default:
		break;
	}
}

bool tw_tally_over(const struct tw_tally *tally)
{
	for (uint32_t i = 0; i < tally->channel_count; i++) {
		if (!tally->channels[i].ended && !tally->channels[i].down) {
			return false;
		}
	}
	return true;
}

bool tw_tally_any_down(const struct tw_tally *tally)
{
	for (uint32_t i = 0; i < tally->channel_count; i++) {
		if (tally->channels[i].down) {
			return true;
		}
	}
	return false;
}

static void put_string(FILE *file, const char *key, const char *text)
{
	fprintf(file, "\"%s\":", key);
	if (text[0] != '\0') {
		tw_format_json_text(file, text);
	} else {
		fputs("null", file);
	}
}

static void put_count(FILE *file, const char *key, uint64_t value)
{
	fprintf(file, ",\"%s\":%" PRIu64, key, value);
}

static void put_bool(FILE *file, const char *key, bool value)
{
	fprintf(file, ",\"%s\":%s", key, value ? "true" : "false");
}

static void put_info(FILE *file, const struct tw_sub *sub)
{
	struct tw_sub_info info = { .size = sizeof(info) };

	(void)tw_sub_info_read(sub, &info);
	const char *const texts[][2] = {
		{ "site", info.site },
		{ "environment", info.environment },
		{ "host", info.host },
		{ "host_why", info.host_why },
		{ "transport", info.transport },
		{ "transport_why", info.transport_why },
		{ "idle", info.idle },
		{ "idle_why", info.idle_why },
		{ "clock_source", info.clock_source },
		{ "receive_stamp", info.receive_stamp },
		{ "repair", info.repair },
		{ "line_a", info.lines[0] },
		{ "line_b", info.lines[1] },
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		fputc(',', file);
		put_string(file, texts[i][0], texts[i][1]);
	}
	fprintf(file, ",\"cpu\":%d", (int)info.cpu);
	put_bool(file, "fault_layer", info.fault_active != 0);
	put_bool(file, "accepts_replay", info.accepts_replay != 0);
}

static void put_kinds(FILE *file, const struct tw_tally *tally)
{
	const char *comma = "";

	fputs(",\"kinds\":{", file);
	for (unsigned int id = 0; id < TW_MSG_KIND_LIMIT; id++) {
		if (tally->kinds[id] != 0) {
			fprintf(file, "%s\"%s\":%" PRIu64, comma,
				id == 0 ? "unknown" : tw_msg_kind_name((uint16_t)id),
				tally->kinds[id]);
			comma = ",";
		}
	}
	fputc('}', file);
}

static void put_line(FILE *file, const struct tw_sub_line_stats *stats, char name)
{
	fprintf(file, "{\"line\":\"%c\"", name);
	put_bool(file, "up", stats->up != 0);
#define PUT(field) put_count(file, #field, stats->field)
	PUT(datagrams);
	PUT(bytes);
	PUT(first);
	PUT(duplicates);
	PUT(heartbeats);
	PUT(missing);
	PUT(reordered);
	PUT(downs);
	PUT(stale);
	PUT(malformed);
	PUT(icrc_bad);
	PUT(foreign);
	PUT(foreign_source);
	PUT(foreign_environment);
	PUT(foreign_channel);
	PUT(foreign_version);
	PUT(foreign_replay);
	PUT(foreign_frames);
	PUT(fault_dropped);
	PUT(fault_duplicated);
	PUT(fault_reordered);
	PUT(receive_buffer_bytes);
#undef PUT
	fputc('}', file);
}

/* A leg whose samples are mostly out of range has no percentiles worth a figure: a recording played
 * back, or clocks that disagree.  Then it says so in place of them. */
static void put_leg(FILE *file, const char *name, const struct tw_sub_latency *leg,
		    const char *stamps, const char *comma)
{
	uint64_t bad = leg->negative + leg->saturated;

	fprintf(file, "%s\"%s\":{\"count\":%" PRIu64, comma, name, leg->count);
	if (leg->count == 0 || bad > leg->count / 2) {
		fputs(",\"p50_ns\":null,\"p99_ns\":null,\"p999_ns\":null,\"max_ns\":null", file);
	} else {
		put_count(file, "p50_ns", leg->p50_ns);
		put_count(file, "p99_ns", leg->p99_ns);
		put_count(file, "p999_ns", leg->p999_ns);
		put_count(file, "max_ns", leg->max_ns);
	}
	put_count(file, "negative", leg->negative);
	put_count(file, "saturated", leg->saturated);
	fputc(',', file);
	put_string(file, "stamps", stamps);
	if (bad > leg->count / 2) {
		fputc(',', file);
		put_string(file, "note",
			   "most samples are out of range: recorded input or clocks that disagree");
	}
	fputc('}', file);
}

static void put_latency(FILE *file, const struct tw_sub_stats *stats)
{
	fputs(",\"latency\":{", file);
	put_leg(file, "exchange_to_feedhandler", &stats->exchange_to_feedhandler,
		"exchange timestamp to feedhandler wall clock; first message of a datagram", "");
	put_leg(file, "feedhandler_to_sent", &stats->feedhandler_to_sent,
		"feedhandler wall clock to publisher wall clock; first message of a datagram", ",");
	put_leg(file, "sent_to_received", &stats->sent_to_received,
		"publisher wall clock to poll, with queueing and, between hosts, the clock error",
		",");
	put_leg(file, "received_to_consumed", &stats->received_to_consumed,
		"poll to the poll that releases the batch; every message", ",");
	put_leg(file, "repair", &stats->repair, "monotonic, gap seen to gap filled", ",");
	fputc('}', file);
	put_count(file, "unstamped", stats->unstamped);
}

static void put_lost(FILE *file, const struct tw_tally_channel *tally)
{
	uint64_t kept = tally->range_count < TW_TALLY_RANGES ? tally->range_count : TW_TALLY_RANGES;

	fputs(",\"lost\":[", file);
	for (uint64_t i = 0; i < kept; i++) {
		const struct tw_tally_range *range = &tally->ranges[i];
		fprintf(file,
			"%s{\"session\":%" PRIu64 ",\"seq\":%" PRIu64 ",\"end_seq\":%" PRIu64 "}",
			i == 0 ? "" : ",", range->session, range->seq, range->end_seq);
	}
	fputc(']', file);
	put_bool(file, "lost_cut", tally->range_count > kept);
}

static void put_channel(FILE *file, const struct tw_sub *sub, const struct tw_tally_channel *tally,
			const struct tw_sub_channel_info *info)
{
	struct tw_sub_stats stats = { .size = sizeof(stats) };

	(void)tw_sub_stats_read(sub, info->id, &stats);
	fprintf(file, "{\"channel\":%u,", info->id);
	put_string(file, "name", info->name);
	fputc(',', file);
	put_string(file, "mode", info->latest ? "latest" : "ordered");
	put_bool(file, "ended", tally->ended);
	put_bool(file, "down", tally->down);
#define PUT(field) put_count(file, #field, stats.field)
	PUT(session);
	PUT(next_seq);
	PUT(messages);
	PUT(bytes);
	PUT(unknown_messages);
	put_count(file, "duplicates", stats.lines[0].duplicates + stats.lines[1].duplicates);
	PUT(gaps);
	PUT(repaired_by_line);
	PUT(repaired_by_history);
	PUT(repaired_by_snapshot);
	PUT(late_messages);
	PUT(lost_ranges);
	PUT(lost_messages);
	put_lost(file, tally);
	PUT(holes);
	PUT(session_changes);
	PUT(sessions_ended);
	PUT(held_max);
	PUT(store_full);
	PUT(set_aside);
	PUT(contradictions);
	PUT(repair_reads);
	PUT(repair_bytes);
	PUT(repair_retries);
	PUT(repair_failed);
	PUT(repair_one_sided);
#undef PUT
	fputs(",\"lines\":[", file);
	for (unsigned int l = 0; l < 2 && stats.lines[l].present; l++) {
		fputs(l == 0 ? "" : ",", file);
		put_line(file, &stats.lines[l], (char)('a' + l));
	}
	fputc(']', file);
	put_latency(file, &stats);
	fputc('}', file);
}

void tw_subscribe_summary(FILE *file, const struct tw_sub *sub, const struct tw_tally *tally,
			  const struct tw_symbols *symbols, const char *ended_by)
{
	struct tw_sub_channel_info info = { .size = sizeof(info) };

	fputs("{\"program\":\"tw-subscribe\",\"version\":\"" TW_VERSION "\",", file);
	put_string(file, "ended_by", ended_by);
	put_info(file, sub);
	put_count(file, "messages", tally->messages);
	put_count(file, "lost_ranges", tally->lost_ranges);
	put_count(file, "lost_messages", tally->lost_messages);
	put_kinds(file, tally);
	put_count(file, "symbols", symbols->count);
	put_count(file, "symbols_refused", symbols->refused);
	fputs(",\"channels\":[", file);
	for (uint32_t i = 0; tw_sub_channel_at(sub, i, &info) >= 0; i++) {
		fputs(i == 0 ? "" : ",", file);
		put_channel(file, sub, &tally->channels[i], &info);
	}
	fputs("]}\n", file);
}
