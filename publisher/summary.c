/* The publisher's summary: one JSON object. */
#include <inttypes.h>

#include "base/text.h"
#include "publisher/publisher.h"
#include "wire/format.h"

static void put_counter(FILE *out, const char *name, const struct tw_counters *counters,
			unsigned int index)
{
	fprintf(out, ",\"%s\":%" PRIu64, name, tw_counter_get(counters, index));
}

/* Figures only where most samples are in range: the stamps of a recording that is played as it is
 * are of another day. */
static void put_hist(FILE *out, const char *name, const struct tw_hist *hist)
{
	struct tw_hist_summary s;
	tw_hist_summarize(hist, &s);
	uint64_t saturated = atomic_load_explicit(&hist->saturated, memory_order_relaxed);
	fprintf(out,
		",\"%s\":{\"count\":%" PRIu64 ",\"saturated\":%" PRIu64 ",\"negative\":%" PRIu64,
		name, s.count, saturated, s.negative);
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = { { "p50_ns", s.p50_ns },
			{ "p99_ns", s.p99_ns },
			{ "p999_ns", s.p999_ns },
			{ "max_ns", s.max_ns } };
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		if (s.count == 0 || saturated > s.count / 2) {
			fprintf(out, ",\"%s\":null", figures[i].name);
		} else {
			fprintf(out, ",\"%s\":%" PRIu64, figures[i].name, figures[i].value);
		}
	}
	fputc('}', out);
}

static void put_line(FILE *out, const struct tw_counters *counters, unsigned int line)
{
	fprintf(out, "%s{\"line\":\"%c\"", line == 0 ? "" : ",", 'a' + (int)line);
	put_counter(out, "datagrams", counters, TW_PUB_LINE_datagrams);
	put_counter(out, "bytes", counters, TW_PUB_LINE_bytes);
	put_counter(out, "skipped", counters, TW_PUB_LINE_skipped);
	put_counter(out, "errors", counters, TW_PUB_LINE_errors);
	fputc('}', out);
}

static void put_channel(FILE *out, const struct tw_site_channel *site,
			const struct tw_pub_channel *channel)
{
	const struct tw_counters *c = &channel->counters;
	fprintf(out, "{\"channel\":%u,\"name\":", site->id);
	tw_format_json_text(out, site->name);
	put_counter(out, "session", c, TW_PUB_CHANNEL_session);
	put_counter(out, "publisher", c, TW_PUB_CHANNEL_publisher);
	put_counter(out, "next_seq", c, TW_PUB_CHANNEL_next_seq);
	put_counter(out, "messages", c, TW_PUB_CHANNEL_messages);
	put_counter(out, "datagrams", c, TW_PUB_CHANNEL_datagrams);
	put_counter(out, "bytes", c, TW_PUB_CHANNEL_bytes);
	put_counter(out, "heartbeats", c, TW_PUB_CHANNEL_heartbeats);
	put_counter(out, "holes", c, TW_PUB_CHANNEL_holes);
	put_counter(out, "hole_messages", c, TW_PUB_CHANNEL_hole_messages);
	put_counter(out, "malformed_messages", c, TW_PUB_CHANNEL_malformed_messages);
	put_counter(out, "history_stalls", c, TW_PUB_CHANNEL_history_stalls);
	put_counter(out, "rate_stalls", c, TW_PUB_CHANNEL_rate_stalls);
	put_counter(out, "history_bytes", c, TW_PUB_CHANNEL_history_bytes);
	fputs(",\"lines\":[", out);
	for (unsigned int l = 0; l < site->lines; l++) {
		put_line(out, &channel->lines[l], l);
	}
	fputc(']', out);
	put_hist(out, "feedhandler_to_sent", &c->hists[TW_PUB_CHANNEL_HIST_feedhandler_to_sent]);
	fputc('}', out);
}

static void put_client(FILE *out, const struct tw_pub_repair_service *repair, uint32_t client)
{
	const struct tw_counters *c = &repair->clients[client];
	struct tw_read_client_info info;
	tw_read_server_client(repair->server, client, &info);
	fputs("{\"name\":", out);
	tw_format_json_text(out, info.name);
	fprintf(out, ",\"address\":\"" TW_IPV4_FMT "\"", TW_IPV4_ARGS(info.addr));
	put_counter(out, "logins", c, TW_READ_CLIENT_logins);
	put_counter(out, "reads", c, TW_READ_CLIENT_reads);
	put_counter(out, "replies", c, TW_READ_CLIENT_replies);
	put_counter(out, "bytes", c, TW_READ_CLIENT_bytes);
	put_counter(out, "gone", c, TW_READ_CLIENT_gone);
	put_counter(out, "busy", c, TW_READ_CLIENT_busy);
	put_counter(out, "refused", c, TW_READ_CLIENT_refused);
	put_counter(out, "paced", c, TW_READ_CLIENT_paced);
	put_counter(out, "dropped", c, TW_READ_CLIENT_dropped);
	put_counter(out, "revoked", c, TW_READ_CLIENT_revoked);
	fputc('}', out);
}

static void put_repair(FILE *out, const char *name, const struct tw_pub_repair_service *repair,
		       uint32_t max_clients)
{
	const struct tw_counters *c = &repair->counters;
	if (repair->server == NULL) {
		fprintf(out, ",\"%s\":null", name);
		return;
	}
	fprintf(out, ",\"%s\":{\"port\":%u", name, tw_read_server_port(repair->server));
	put_counter(out, "connections", c, TW_READ_SERVER_connections);
	put_counter(out, "logins", c, TW_READ_SERVER_logins);
	put_counter(out, "clients_max", c, TW_READ_SERVER_clients_max);
	put_counter(out, "refused_environment", c, TW_READ_SERVER_refused_environment);
	put_counter(out, "refused_version", c, TW_READ_SERVER_refused_version);
	put_counter(out, "refused_full", c, TW_READ_SERVER_refused_full);
	put_counter(out, "reads", c, TW_READ_SERVER_reads);
	put_counter(out, "replies", c, TW_READ_SERVER_replies);
	put_counter(out, "bytes", c, TW_READ_SERVER_bytes);
	put_counter(out, "gone", c, TW_READ_SERVER_gone);
	put_counter(out, "busy", c, TW_READ_SERVER_busy);
	put_counter(out, "refused", c, TW_READ_SERVER_refused);
	put_counter(out, "paced", c, TW_READ_SERVER_paced);
	put_counter(out, "malformed", c, TW_READ_SERVER_malformed);
	put_counter(out, "timeouts", c, TW_READ_SERVER_timeouts);
	put_counter(out, "revoked", c, TW_READ_SERVER_revoked);
	put_counter(out, "broken", c, TW_READ_SERVER_broken);
	put_counter(out, "registered", c, TW_READ_SERVER_registered);
	put_counter(out, "device_lost", c, TW_READ_SERVER_device_lost);
	put_counter(out, "async_events", c, TW_READ_SERVER_async_events);
	fputs(",\"clients\":[", out);
	bool first = true;
	for (uint32_t i = 0; i < max_clients; i++) {
		if (tw_counter_get(&repair->clients[i], TW_READ_CLIENT_logins) != 0) {
			fputs(first ? "" : ",", out);
			put_client(out, repair, i);
			first = false;
		}
	}
	fputs("]}", out);
}

void tw_publisher_summary(const struct tw_publisher *pub, FILE *out)
{
	static const char *const modes[] = { "auto", "spin", "yield", "event" };
	fputs("{\"program\":\"tw-publisher\",\"version\":\"" TW_VERSION "\",\"name\":", out);
	tw_format_json_text(out, pub->conf->name);
	fputs(",\"site\":", out);
	tw_format_json_text(out, pub->site->name);
	fprintf(out, ",\"transport\":\"%s\",\"idle\":\"%s\",\"mtu_bytes\":%u",
		pub->verbs ? "verbs" : "udp", modes[pub->idle], pub->mtu_bytes);
	put_counter(out, "turns", &pub->loop, TW_LOOP_turns);
	put_counter(out, "empty_turns", &pub->loop, TW_LOOP_empty_turns);
	put_counter(out, "slow_turns", &pub->loop, TW_LOOP_slow_turns);
	put_counter(out, "max_turn_ns", &pub->loop, TW_LOOP_max_turn_ns);
	put_repair(out, "repair", &pub->repair.ways[TW_PUB_REPAIR_TCP], pub->repair.max_clients);
	put_repair(out, "repair_rc", &pub->repair.ways[TW_PUB_REPAIR_RC], pub->repair.max_clients);
	fputs(",\"channels\":[", out);
	for (uint32_t i = 0; i < pub->conf->channel_count; i++) {
		fputs(i == 0 ? "" : ",", out);
		put_channel(out, &pub->site->channels[pub->conf->channels[i]], &pub->channels[i]);
	}
	fputs("]}\n", out);
}
