/* The repair service of a publisher: see repair.h. */
#include "publisher/repair.h"

#include <stdlib.h>

#include "base/fail.h"
#include "base/log.h"
#include "base/text.h"
#include "protocol/history_read.h"

#define IDLE_TIMEOUT_NS 5000000000ull  /* a login, the rest of a head, a reply taken */
#define REVOKE_NS       30000000000ull /* of asking for more than is given, without a pause */
#define BYTES_PER_MBIT  125000u
#define ECT0            2u /* of a ToS: a sender that slows down when it is told to */
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

const char *tw_pub_repair_way_name(enum tw_pub_repair_way way)
{
	return way == TW_PUB_REPAIR_RC ? "RC" : "TCP";
}

static int add_counters(struct tw_pub_repair *repair, struct tw_stats *stats,
			enum tw_pub_repair_way way, struct tw_error *err)
{
	struct tw_pub_repair_service *service = &repair->ways[way];
	const char *suffix = way == TW_PUB_REPAIR_RC ? " over RC" : "";
	char label[32];
	service->clients = calloc(repair->max_clients, sizeof(service->clients[0]));
	service->logged = calloc(repair->max_clients, sizeof(service->logged[0]));
	if (service->clients == NULL || service->logged == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair service: calloc: %u clients",
			       repair->max_clients);
	}
	(void)snprintf(label, sizeof(label), "repair%s", suffix);
	int rc = tw_stats_add(stats, TW_SET_read_server, label, &service->counters, err);
	for (uint32_t i = 0; i < repair->max_clients && rc == TW_OK; i++) {
		(void)snprintf(label, sizeof(label), "client %u%s", i + 1, suffix);
		rc = tw_stats_add(stats, TW_SET_read_client, label, &service->clients[i], err);
	}
	return rc;
}

int tw_pub_repair_counters(struct tw_pub_repair *repair, struct tw_stats *stats, bool verbs,
			   uint32_t max_clients, struct tw_error *err)
{
	repair->max_clients = max_clients;
	int rc = add_counters(repair, stats, TW_PUB_REPAIR_TCP, err);
	if (rc == TW_OK && verbs) {
		rc = add_counters(repair, stats, TW_PUB_REPAIR_RC, err);
	}
	return rc;
}

static void fill_conf(struct tw_read_server_conf *out, const struct tw_pub_repair *repair,
		      enum tw_pub_repair_way way, const struct tw_site *site,
		      const struct tw_site_publisher *conf)
{
	const struct tw_site_host *host = &site->hosts[conf->host];
	const struct tw_site_class *qos = &site->fabric.repair;
	/* TCP has the kernel to see to congestion marks */
	uint32_t ect = way == TW_PUB_REPAIR_RC && qos->ecn ? ECT0 : 0;
	*out = (struct tw_read_server_conf){
		.addr = host->address,
		.port = (uint16_t)conf->repair_port,
		.environment = site->environment_id,
		.max_clients = repair->max_clients,
		.max_bytes_per_s = (uint64_t)conf->repair_max_mbps * BYTES_PER_MBIT,
		.client_max_bytes_per_s = (uint64_t)conf->repair_client_max_mbps * BYTES_PER_MBIT,
		.revoke_ns = REVOKE_NS,
		.idle_timeout_ns = IDLE_TIMEOUT_NS,
		.tos = (uint8_t)(qos->dscp << 2 | ect),
		.priority = (uint8_t)(qos->priority < PRIORITY_MAX ? qos->priority : PRIORITY_MAX),
		.cpu = host->cpu_repair,
		.counters = repair->ways[way].counters,
		.clients = repair->ways[way].clients,
	};
}

int tw_pub_repair_open(struct tw_pub_repair *repair, const struct tw_site *site,
		       const struct tw_site_publisher *conf, struct tw_pub_channel *channels,
		       uint32_t channel_count, struct tw_error *err)
{
	struct tw_read_server_channel sources[sizeof(conf->channels) / sizeof(conf->channels[0])];
	struct tw_read_server_conf server;
	for (uint32_t i = 0; i < channel_count; i++) {
		const struct tw_history_view *view = &channels[i].view;
		sources[i] = (struct tw_read_server_channel){
			.channel = channels[i].conf.channel,
			.read = read_channel,
			.ctx = &channels[i],
			.memory = conf->repair_one_sided ? channels[i].slab.base : NULL,
			.memory_bytes = (view->units + 1) * TW_WIRE_UNIT_BYTES,
			.readers =
				0, /* whoever may log in may read all of a publisher's channels */
		};
	}
	int rc = TW_OK;
	for (unsigned int way = 0; way < TW_PUB_REPAIR_WAYS && rc == TW_OK; way++) {
		struct tw_pub_repair_service *service = &repair->ways[way];
		if (service->clients == NULL) {
			continue;
		}
		fill_conf(&server, repair, way, site, conf);
		server.channels = sources;
		server.channel_count = channel_count;
		rc = way == TW_PUB_REPAIR_RC
			     ? tw_rc_read_server_open(&service->server, &server, err)
			     : tw_tcp_read_server_open(&service->server, &server, err);
	}
	return rc;
}

/* A client may have come and gone, or changed places with another, between two ticks: then only the
 * last one is told of. */
static void log_client(const struct tw_read_client_info *info, enum tw_pub_repair_way way,
		       uint32_t clients, uint64_t *logged)
{
	uint64_t now = info->connected ? info->logins : ~info->logins;
	if (info->logins == 0 || now == *logged) {
		return;
	}
	*logged = now;
	tw_log(TW_LOG_INFO, "repair: %s (%s " TW_IPV4_FMT ":%u) %s; %u now", info->name,
	       tw_pub_repair_way_name(way), TW_IPV4_ARGS(info->addr), info->port,
	       info->connected ? "has logged in" : "has gone", clients);
}

static void log_device(struct tw_pub_repair_service *service)
{
	uint64_t lost = tw_counter_get(&service->counters, TW_READ_SERVER_device_lost);
	bool there = tw_counter_get(&service->counters, TW_READ_SERVER_device) != 0;
	if (lost != service->logged_lost || there == service->logged_gone) {
		tw_log(there ? TW_LOG_INFO : TW_LOG_WARNING, "repair over RC: the RDMA device %s",
		       there ? "was lost, and is there again"
			     : "is lost: its clients ask over TCP until it is back");
	}
	service->logged_lost = lost;
	service->logged_gone = !there;
}

void tw_pub_repair_tick(struct tw_pub_repair *repair)
{
	for (unsigned int way = 0; way < TW_PUB_REPAIR_WAYS; way++) {
		struct tw_pub_repair_service *service = &repair->ways[way];
		if (service->server == NULL) {
			continue;
		}
		if (way == TW_PUB_REPAIR_RC) {
			log_device(service);
		}
		uint32_t clients =
			(uint32_t)tw_counter_get(&service->counters, TW_READ_SERVER_clients);
		for (uint32_t i = 0; i < repair->max_clients; i++) {
			struct tw_read_client_info info;
			tw_read_server_client(service->server, i, &info);
			log_client(&info, way, clients, &service->logged[i]);
		}
	}
}

void tw_pub_repair_close(struct tw_pub_repair *repair)
{
	for (unsigned int way = 0; way < TW_PUB_REPAIR_WAYS; way++) {
		struct tw_pub_repair_service *service = &repair->ways[way];
		tw_read_server_close(service->server);
		free(service->clients);
		free(service->logged);
	}
	*repair = (struct tw_pub_repair){ 0 };
}
