/* The repair service of a publisher: see repair.h. */
#include "publisher/repair.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/log.h"
#include "protocol/history_read.h"

#define IDLE_TIMEOUT_NS 5000000000ull  /* a login, the rest of a head, a reply taken */
#define REVOKE_NS       30000000000ull /* of asking for more than is given, without a pause */
#define BYTES_PER_MBIT  125000u
#define PRIORITY_MAX    6u /* more needs CAP_NET_ADMIN: socket(7), SO_PRIORITY */

/* On the server's thread. */
static int read_channel(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	const struct tw_pub_channel *channel = ctx;
	if (read->by_seq) {
		return tw_history_read_msgs(&channel->view, &channel->index, read->session,
					    read->begin, read->end, dst, max_bytes);
	}
	return tw_history_read(&channel->view, read->session, read->publisher, read->begin,
			       read->end, dst, max_bytes);
}

int tw_pub_repair_counters(struct tw_pub_repair *repair, struct tw_stats *stats,
			   uint32_t max_clients, struct tw_error *err)
{
	repair->max_clients = max_clients;
	repair->clients = calloc(max_clients, sizeof(repair->clients[0]));
	repair->logged = calloc(max_clients, sizeof(repair->logged[0]));
	if (repair->clients == NULL || repair->logged == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair service: calloc: %u clients", max_clients);
	}
	int rc = tw_stats_add(stats, TW_SET_read_server, "repair", &repair->counters, err);
	for (uint32_t i = 0; i < max_clients && rc == TW_OK; i++) {
		char label[32];
		(void)snprintf(label, sizeof(label), "client %u", i + 1);
		rc = tw_stats_add(stats, TW_SET_read_client, label, &repair->clients[i], err);
	}
	return rc;
}

int tw_pub_repair_open(struct tw_pub_repair *repair, const struct tw_site *site,
		       const struct tw_site_publisher *conf, struct tw_pub_channel *channels,
		       uint32_t channel_count, struct tw_error *err)
{
	const struct tw_site_host *host = &site->hosts[conf->host];
	const struct tw_site_class *qos = &site->fabric.repair;
	struct tw_read_server_channel sources[sizeof(conf->channels) / sizeof(conf->channels[0])];
	for (uint32_t i = 0; i < channel_count; i++) {
		sources[i] = (struct tw_read_server_channel){ .channel = channels[i].conf.channel,
							      .read = read_channel,
							      .ctx = &channels[i] };
	}
	struct tw_read_server_conf server = {
		.addr = host->address,
		.port = (uint16_t)conf->repair_port,
		.environment = site->environment_id,
		.channels = sources,
		.channel_count = channel_count,
		.max_clients = repair->max_clients,
		.max_bytes_per_s = (uint64_t)conf->repair_max_mbps * BYTES_PER_MBIT,
		.client_max_bytes_per_s = (uint64_t)conf->repair_client_max_mbps * BYTES_PER_MBIT,
		.revoke_ns = REVOKE_NS,
		.idle_timeout_ns = IDLE_TIMEOUT_NS,
		.tos = (uint8_t)(qos->dscp << 2),
		.priority = (uint8_t)(qos->priority < PRIORITY_MAX ? qos->priority : PRIORITY_MAX),
		.cpu = host->cpu_repair,
		.counters = repair->counters,
		.clients = repair->clients,
	};
	return tw_tcp_read_server_open(&repair->server, &server, err);
}

/* A client may have come and gone, or changed places with another, between two ticks: then only the
 * last one is told of. */
static void log_client(const struct tw_read_client_info *info, uint32_t clients, uint64_t *logged)
{
	uint64_t now = info->connected ? info->logins : ~info->logins;
	if (info->logins == 0 || now == *logged) {
		return;
	}
	*logged = now;
	tw_log(TW_LOG_INFO, "repair: %s (%u.%u.%u.%u:%u) %s; %u now", info->name, info->addr >> 24,
	       info->addr >> 16 & 255u, info->addr >> 8 & 255u, info->addr & 255u, info->port,
	       info->connected ? "has logged in" : "has gone", clients);
}

void tw_pub_repair_tick(struct tw_pub_repair *repair)
{
	if (repair->server == NULL) {
		return;
	}
	uint32_t clients = (uint32_t)tw_counter_get(&repair->counters, TW_READ_SERVER_clients);
	for (uint32_t i = 0; i < repair->max_clients; i++) {
		struct tw_read_client_info info;
		tw_read_server_client(repair->server, i, &info);
		log_client(&info, clients, &repair->logged[i]);
	}
}

void tw_pub_repair_close(struct tw_pub_repair *repair)
{
	tw_read_server_close(repair->server);
	free(repair->clients);
	free(repair->logged);
	*repair = (struct tw_pub_repair){ 0 };
}
