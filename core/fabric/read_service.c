/* What every read server does: see read_service.h. */
#include "fabric/read_service.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/fail.h"

#define CLIENTS_MAX      4096u
#define CHARGE_MIN_BYTES 1024u /* for a search that found nothing */
#define NICE             5     /* more than the publisher's */

/* Burst of a rate: two whole reads, or what comes due while the thread sleeps (whole milliseconds). */
static uint64_t burst_bytes(uint64_t bytes_per_s)
{
	uint64_t burst = bytes_per_s / 200;
	const uint64_t least = UINT64_C(2) * TW_READ_MAX_BYTES;
	return burst > least ? burst : least;
}

/* --- open and close ---------------------------------------------------------------------------- */

int tw_read_service_init(struct tw_read_service *service, const struct tw_read_server_conf *conf,
			 struct tw_error *err)
{
	*service = (struct tw_read_service){ .conf = *conf };
	pthread_mutex_init(&service->lock, NULL);
	if (conf->max_clients == 0 || conf->max_clients > CLIENTS_MAX || conf->channel_count == 0 ||
	    conf->idle_timeout_ns == 0) {
		return tw_fail(err, TW_EARG,
			       "repair server: %u clients, %u channels: 1 to %u clients, some "
			       "channel and a time-out are needed",
			       conf->max_clients, conf->channel_count, CLIENTS_MAX);
	}
	service->channels = calloc(conf->channel_count, sizeof(service->channels[0]));
	service->places = calloc(conf->max_clients, sizeof(service->places[0]));
	service->infos = calloc(conf->max_clients, sizeof(service->infos[0]));
	if (service->channels == NULL || service->places == NULL || service->infos == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair server: calloc: %u clients",
			       conf->max_clients);
	}
	memcpy(service->channels, conf->channels, conf->channel_count * sizeof(conf->channels[0]));
	memcpy(service->places, conf->clients, conf->max_clients * sizeof(conf->clients[0]));
	service->conf.channels = service->channels;
	service->conf.clients = service->places;
	tw_bucket_init(&service->bucket, conf->max_bytes_per_s, burst_bytes(conf->max_bytes_per_s),
		       tw_mono_ns());
	return TW_OK;
}

void tw_read_service_fini(struct tw_read_service *service)
{
	free(service->infos);
	free(service->places);
	free(service->channels);
	pthread_mutex_destroy(&service->lock);
}

int tw_read_server_stand_back(int cpu, struct tw_error *err)
{
	struct sched_param param = { 0 };
	if (cpu >= 0) {
		return tw_cpu_pin(cpu, err);
	}
	/* both are wishes: raising a nice value needs no privilege, a limit may still be in the way */
	(void)sched_setscheduler(0, SCHED_BATCH, &param);
	(void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE);
	return TW_OK;
}

/* --- counting ---------------------------------------------------------------------------------- */

void tw_read_service_count(const struct tw_read_service *service, unsigned int counter)
{
	tw_counter_add(&service->conf.counters, counter, 1);
}

void tw_read_service_count_both(const struct tw_read_service *service,
				const struct tw_read_party *party, unsigned int of_server,
				unsigned int of_client, uint64_t n)
{
	tw_counter_add(&service->conf.counters, of_server, n);
	if (party->place != TW_NO_PLACE) {
		tw_counter_add(&service->places[party->place], of_client, n);
	}
}

/* --- who is logged in -------------------------------------------------------------------------- */

void tw_read_party_begin(struct tw_read_party *party, const struct tw_read_service *service,
			 uint32_t addr, uint16_t port, uint64_t now_ns)
{
	*party = (struct tw_read_party){ .addr = addr, .port = port, .place = TW_NO_PLACE };
	uint64_t bytes_per_s = service->conf.client_max_bytes_per_s;
	tw_bucket_init(&party->bucket, bytes_per_s, burst_bytes(bytes_per_s), now_ns);
}

static uint32_t choose_place(const struct tw_read_service *service, const char *name, uint32_t addr)
{
	uint32_t best = TW_NO_PLACE;
	for (uint32_t i = 0; i < service->conf.max_clients; i++) {
		const struct tw_read_client_info *info = &service->infos[i].client;
		if (info->connected) {
			continue;
		}
		if (info->addr == addr && strcmp(info->name, name) == 0) {
			return i;
		}
		/* numbers of logins grow: the smallest is the oldest, 0 nobody's */
		if (best == TW_NO_PLACE || info->logins < service->infos[best].client.logins) {
			best = i;
		}
	}
	return best;
}

static void log_in(struct tw_read_service *service, struct tw_read_party *party, const char *name)
{
	uint32_t place = choose_place(service, name, party->addr);
	struct tw_read_client_info *info = &service->infos[place].client;
	const struct tw_counters *counters = &service->places[place];
	if (info->addr != party->addr || strcmp(info->name, name) != 0) {
		for (unsigned int i = 0; i < TW_N_read_client_counters; i++) {
			tw_counter_set(counters, i, 0);
		}
	}
	tw_read_service_count(service, TW_READ_SERVER_logins);
	service->logged_in++;
	pthread_mutex_lock(&service->lock);
	service->infos[place].revoke = false;
	*info = (struct tw_read_client_info){
		.addr = party->addr,
		.port = party->port,
		.connected = true,
		.logins = tw_counter_get(&service->conf.counters, TW_READ_SERVER_logins),
	};
	memcpy(info->name, name, strnlen(name, sizeof(info->name) - 1));
	pthread_mutex_unlock(&service->lock);
	party->place = place;
	tw_counter_add(counters, TW_READ_CLIENT_logins, 1);
	tw_counter_set(counters, TW_READ_CLIENT_connected, 1);
	tw_counter_set(counters, TW_READ_CLIENT_address, party->addr);
	tw_counter_set(&service->conf.counters, TW_READ_SERVER_clients, service->logged_in);
	tw_counter_max(&service->conf.counters, TW_READ_SERVER_clients_max, service->logged_in);
}

enum tw_rw_login tw_read_service_login(struct tw_read_service *service, struct tw_read_party *party,
				       uint16_t environment, const char *name)
{
	if (environment != service->conf.environment) {
		tw_read_service_count(service, TW_READ_SERVER_refused_environment);
		return TW_LOGIN_ENVIRONMENT;
	}
	if (service->logged_in >= service->conf.max_clients) {
		tw_read_service_count(service, TW_READ_SERVER_refused_full);
		return TW_LOGIN_FULL;
	}
	log_in(service, party, name);
	return TW_LOGIN_OK;
}

void tw_read_service_logout(struct tw_read_service *service, struct tw_read_party *party)
{
	if (party->place == TW_NO_PLACE) {
		return;
	}
	service->logged_in--;
	pthread_mutex_lock(&service->lock);
	service->infos[party->place].client.connected = false;
	pthread_mutex_unlock(&service->lock);
	tw_counter_set(&service->places[party->place], TW_READ_CLIENT_connected, 0);
	tw_counter_set(&service->conf.counters, TW_READ_SERVER_clients, service->logged_in);
	party->place = TW_NO_PLACE;
}

void tw_read_service_client(struct tw_read_service *service, uint32_t index,
			    struct tw_read_client_info *out)
{
	*out = (struct tw_read_client_info){ 0 };
	if (index < service->conf.max_clients) {
		pthread_mutex_lock(&service->lock);
		*out = service->infos[index].client;
		pthread_mutex_unlock(&service->lock);
	}
}

void tw_read_service_revoke(struct tw_read_service *service, uint32_t index)
{
	if (index < service->conf.max_clients) {
		pthread_mutex_lock(&service->lock);
		service->infos[index].revoke = service->infos[index].client.connected;
		pthread_mutex_unlock(&service->lock);
	}
}

bool tw_read_service_is_revoked(struct tw_read_service *service, const struct tw_read_party *party)
{
	if (party->place == TW_NO_PLACE) {
		return false;
	}
	pthread_mutex_lock(&service->lock);
	bool revoked = service->infos[party->place].revoke;
	service->infos[party->place].revoke = false;
	pthread_mutex_unlock(&service->lock);
	return revoked;
}

/* --- reads ------------------------------------------------------------------------------------- */

static enum tw_read_status read_source(const struct tw_read_service *service,
				       const struct tw_read *read, uint8_t *dst, uint32_t *bytes)
{
	const struct tw_read_server_channel *channel = NULL;
	for (uint32_t i = 0; i < service->conf.channel_count && channel == NULL; i++) {
		const struct tw_read_server_channel *at = &service->channels[i];
		channel = at->channel == read->channel ? at : NULL;
	}
	*bytes = 0;
	if (channel == NULL) {
		return TW_READ_REFUSED;
	}
	int rc = channel->read(channel->ctx, read, dst, TW_READ_MAX_BYTES);
	if (rc > 0) {
		uint64_t whole = (read->end - read->begin) * TW_RW_UNIT_BYTES;
		TW_ASSERT((uint32_t)rc <= TW_READ_MAX_BYTES &&
			  (uint32_t)rc % TW_RW_UNIT_BYTES == 0 &&
			  (read->by_seq || (uint64_t)rc == whole));
		*bytes = (uint32_t)rc;
		return TW_READ_OK;
	}
	if (rc == TW_EBUSY) {
		return TW_READ_BUSY;
	}
	return rc == 0 || rc == TW_ENOTFOUND ? TW_READ_GONE : TW_READ_REFUSED;
}

enum tw_read_status tw_read_service_read(struct tw_read_service *service,
					 struct tw_read_party *party, const struct tw_read *read,
					 uint8_t *dst, uint32_t *bytes)
{
	enum tw_read_status status = read_source(service, read, dst, bytes);
	uint64_t charge = *bytes > CHARGE_MIN_BYTES ? *bytes : CHARGE_MIN_BYTES;
	tw_bucket_charge(&party->bucket, charge);
	tw_bucket_charge(&service->bucket, charge);
#define COUNT(name, n) \
	tw_read_service_count_both(service, party, TW_READ_SERVER_##name, TW_READ_CLIENT_##name, n)
	COUNT(reads, 1);
	switch (status) {
	case TW_READ_OK:
		COUNT(replies, 1);
		COUNT(bytes, *bytes);
		break;
	case TW_READ_GONE:
		COUNT(gone, 1);
		break;
	case TW_READ_BUSY:
		COUNT(busy, 1);
		break;
	case TW_READ_REFUSED:
	case TW_READ_BROKEN:
	case TW_READ_STATUSES:
		COUNT(refused, 1);
		break;
	}
#undef COUNT
	return status;
}

enum tw_read_pace tw_read_service_pace(struct tw_read_service *service, struct tw_read_party *party,
				       uint64_t now_ns, uint64_t *again_ns)
{
	/* its client alone answers for its own debt */
	uint64_t own_ns = tw_bucket_open_ns(&party->bucket, now_ns);
	uint64_t all_ns = tw_bucket_open_ns(&service->bucket, now_ns);
	uint64_t open_ns = own_ns > all_ns ? own_ns : all_ns;
	bool waits = open_ns > now_ns;
	if (waits && !party->waits) {
		tw_read_service_count_both(service, party, TW_READ_SERVER_paced,
					   TW_READ_CLIENT_paced, 1);
	}
	party->waits = waits;
	if (own_ns > now_ns && party->slowed_ns == 0) {
		party->slowed_ns = now_ns;
	}
	uint64_t revoke_ns = service->conf.revoke_ns;
	if (party->slowed_ns != 0 && revoke_ns != 0 && now_ns - party->slowed_ns >= revoke_ns) {
		return TW_PACE_REVOKE;
	}
	*again_ns = waits ? open_ns : *again_ns;
	return waits ? TW_PACE_WAIT : TW_PACE_GO;
}
