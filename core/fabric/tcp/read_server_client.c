/* One connection of the read server.
 *
 * Pace      a read waits until neither its client nor the server as a whole is in debt, then it is
 *           answered and charged.  A read that brings nothing is charged too, or asking for nothing
 *           would be free.
 * Patience  deadlines are for whole things (a login, a head, a reply taken), so that a client that
 *           drips is as late as one that is silent.  A client with nothing to ask stays.
 * Places    counters have a place for each client; one that comes back gets its own again, anybody
 *           else the one that was left longest ago, counted anew. */
#include "fabric/tcp/read_server_client.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "fabric/tcp/tcp.h"

#define CHARGE_MIN_BYTES 1024u /* for a search that found nothing */

/* --- counting ---------------------------------------------------------------------------------- */

static void count(const struct tw_read_server *server, unsigned int counter)
{
	tw_counter_add(&server->conf.counters, counter, 1);
}

/* The same thing of the server as a whole and of the client. */
static void count_both(const struct tw_client *client, const struct tw_read_server *server,
		       unsigned int of_server, unsigned int of_client, uint64_t n)
{
	tw_counter_add(&server->conf.counters, of_server, n);
	if (client->place != TW_NO_PLACE) {
		tw_counter_add(&server->places[client->place], of_client, n);
	}
}

static uint32_t choose_place(const struct tw_read_server *server, const char *name, uint32_t addr)
{
	uint32_t best = TW_NO_PLACE;
	for (uint32_t i = 0; i < server->conf.max_clients; i++) {
		const struct tw_read_client_info *info = &server->infos[i];
		if (info->connected) {
			continue;
		}
		if (info->addr == addr && strcmp(info->name, name) == 0) {
			return i;
		}
		/* numbers of logins grow: the smallest is the oldest, 0 nobody's */
		if (best == TW_NO_PLACE || info->logins < server->infos[best].logins) {
			best = i;
		}
	}
	return best;
}

static void log_in(struct tw_client *client, struct tw_read_server *server, const char *name)
{
	uint32_t place = choose_place(server, name, client->addr);
	struct tw_read_client_info *info = &server->infos[place];
	const struct tw_counters *counters = &server->places[place];
	if (info->addr != client->addr || strcmp(info->name, name) != 0) {
		for (unsigned int i = 0; i < TW_N_read_client_counters; i++) {
			tw_counter_set(counters, i, 0);
		}
	}
	count(server, TW_READ_SERVER_logins);
	server->logged_in++;
	pthread_mutex_lock(&server->lock);
	*info = (struct tw_read_client_info){
		.addr = client->addr,
		.port = client->port,
		.connected = true,
		.logins = tw_counter_get(&server->conf.counters, TW_READ_SERVER_logins),
	};
	memcpy(info->name, name, strnlen(name, sizeof(info->name) - 1));
	pthread_mutex_unlock(&server->lock);
	client->place = place;
	tw_counter_add(counters, TW_READ_CLIENT_logins, 1);
	tw_counter_set(counters, TW_READ_CLIENT_connected, 1);
	tw_counter_set(counters, TW_READ_CLIENT_address, client->addr);
	tw_counter_set(&server->conf.counters, TW_READ_SERVER_clients, server->logged_in);
	tw_counter_max(&server->conf.counters, TW_READ_SERVER_clients_max, server->logged_in);
}

static void log_out(struct tw_client *client, struct tw_read_server *server)
{
	if (client->place == TW_NO_PLACE) {
		return;
	}
	server->logged_in--;
	pthread_mutex_lock(&server->lock);
	server->infos[client->place].connected = false;
	pthread_mutex_unlock(&server->lock);
	tw_counter_set(&server->places[client->place], TW_READ_CLIENT_connected, 0);
	tw_counter_set(&server->conf.counters, TW_READ_SERVER_clients, server->logged_in);
	client->place = TW_NO_PLACE;
}

/* --- life -------------------------------------------------------------------------------------- */

void tw_client_begin(struct tw_client *client, struct tw_read_server *server, int fd, uint32_t addr,
		     uint16_t port, uint64_t now_ns)
{
	client->state = TW_CLIENT_NEW;
	client->fd = fd;
	client->interest = 0;
	client->addr = addr;
	client->port = port;
	client->place = TW_NO_PLACE;
	client->deadline_ns = now_ns + server->conf.idle_timeout_ns;
	client->slowed_ns = 0;
	client->waits = false;
	client->in_at = client->in_end = client->out_at = client->out_end = 0;
	tw_bucket_init(&client->bucket, server->conf.client_max_bytes_per_s,
		       tw_read_burst_bytes(server->conf.client_max_bytes_per_s), now_ns);
	server->open_count++;
	count(server, TW_READ_SERVER_connections);
}

void tw_client_end(struct tw_client *client, struct tw_read_server *server)
{
	if (client->state == TW_CLIENT_NONE) {
		return;
	}
	log_out(client, server);
	close(client->fd); /* epoll forgets it */
	client->fd = -1;
	client->state = TW_CLIENT_NONE;
	server->open_count--;
}

static bool want(struct tw_client *client, const struct tw_read_server *server, uint32_t interest)
{
	struct epoll_event event = { .events = interest, .data.u32 = client->index };
	if (interest == client->interest) {
		return true;
	}
	int op = client->interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	if (interest == 0) {
		op = EPOLL_CTL_DEL;
	}
	client->interest = interest;
	return epoll_ctl(server->epoll_fd, op, client->fd, &event) == 0;
}

/* --- answers ----------------------------------------------------------------------------------- */

static void answer_login(struct tw_client *client, struct tw_read_server *server,
			 enum tw_rw_login result, uint64_t now_ns)
{
	tw_rw_put_login_reply((struct tw_rw_login_head *)(void *)client->out,
			      server->conf.environment, result);
	client->out_end = TW_RW_HEAD_BYTES;
	client->state = result == TW_LOGIN_OK ? TW_CLIENT_SERVED : TW_CLIENT_LEAVING;
	client->deadline_ns = now_ns + server->conf.idle_timeout_ns;
}

/* false: it breaks the protocol. */
static bool take_login(struct tw_client *client, struct tw_read_server *server, const uint8_t *head,
		       uint64_t now_ns)
{
	uint16_t environment;
	char name[TW_READ_NAME_BYTES];
	switch (tw_rw_parse_login(head, TW_RW_HEAD_BYTES, &environment, name)) {
	case TW_RW_WELL_FORMED:
		break;
	case TW_RW_VERSION:
		count(server, TW_READ_SERVER_refused_version);
		answer_login(client, server, TW_LOGIN_VERSION, now_ns);
		return true;
	default:
		return false;
	}
	if (environment != server->conf.environment) {
		count(server, TW_READ_SERVER_refused_environment);
		answer_login(client, server, TW_LOGIN_ENVIRONMENT, now_ns);
	} else if (server->logged_in >= server->conf.max_clients) {
		count(server, TW_READ_SERVER_refused_full);
		answer_login(client, server, TW_LOGIN_FULL, now_ns);
	} else {
		log_in(client, server, name);
		answer_login(client, server, TW_LOGIN_OK, now_ns);
	}
	return true;
}

static enum tw_read_status read_source(const struct tw_read_server *server,
				       const struct tw_read *read, uint8_t *dst, uint32_t *bytes)
{
	const struct tw_read_server_channel *channel = NULL;
	for (uint32_t i = 0; i < server->conf.channel_count && channel == NULL; i++) {
		channel =
			server->channels[i].channel == read->channel ? &server->channels[i] : NULL;
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

static void answer_read(struct tw_client *client, struct tw_read_server *server,
			const struct tw_read *read, uint64_t now_ns)
{
	uint32_t bytes;
	enum tw_read_status status =
		read_source(server, read, client->out + TW_RW_HEAD_BYTES, &bytes);
	tw_rw_put_reply((struct tw_rw_read_head *)(void *)client->out, read->id, status, bytes);
	client->out_end = TW_RW_HEAD_BYTES + bytes;
	client->deadline_ns = now_ns + server->conf.idle_timeout_ns;
	uint64_t charge = bytes > CHARGE_MIN_BYTES ? bytes : CHARGE_MIN_BYTES;
	tw_bucket_charge(&client->bucket, charge);
	tw_bucket_charge(&server->bucket, charge);
	server->turn = client->index + 1 == server->client_count ? 0 : client->index + 1;

	count_both(client, server, TW_READ_SERVER_reads, TW_READ_CLIENT_reads, 1);
	switch (status) {
	case TW_READ_OK:
		count_both(client, server, TW_READ_SERVER_replies, TW_READ_CLIENT_replies, 1);
		count_both(client, server, TW_READ_SERVER_bytes, TW_READ_CLIENT_bytes, bytes);
		break;
	case TW_READ_GONE:
		count_both(client, server, TW_READ_SERVER_gone, TW_READ_CLIENT_gone, 1);
		break;
	case TW_READ_BUSY:
		count_both(client, server, TW_READ_SERVER_busy, TW_READ_CLIENT_busy, 1);
		break;
	case TW_READ_REFUSED:
	case TW_READ_BROKEN:
	case TW_READ_STATUSES:
		count_both(client, server, TW_READ_SERVER_refused, TW_READ_CLIENT_refused, 1);
		break;
	}
}

/* --- turns ------------------------------------------------------------------------------------- */

enum step {
	STEP_DONE,    /* something was done: the next one gets its turn */
	STEP_NOTHING, /* there is nothing to do, or it has to wait */
	STEP_LOST,    /* the connection */
	STEP_MALFORMED,
	STEP_REVOKED
};

static enum step flush(struct tw_client *client)
{
	int sent = tw_tcp_send(client->fd, client->out + client->out_at,
			       client->out_end - client->out_at);
	if (sent < 0) {
		return sent == TW_TCP_AGAIN ? STEP_NOTHING : STEP_LOST;
	}
	client->out_at += (uint32_t)sent;
	if (client->out_at < client->out_end) {
		return STEP_DONE;
	}
	client->out_at = client->out_end = 0;
	client->deadline_ns = UINT64_MAX;
	return STEP_DONE;
}

static enum step receive(struct tw_client *client)
{
	if (client->in_at > 0) {
		memmove(client->in, client->in + client->in_at, client->in_end - client->in_at);
		client->in_end -= client->in_at;
		client->in_at = 0;
	}
	if (client->in_end == TW_SERVER_IN_BYTES) {
		return STEP_NOTHING;
	}
	int got = tw_tcp_recv(client->fd, client->in + client->in_end,
			      TW_SERVER_IN_BYTES - client->in_end);
	if (got < 0) {
		return got == TW_TCP_AGAIN ? STEP_NOTHING : STEP_LOST;
	}
	client->in_end += (uint32_t)got;
	return STEP_DONE;
}

/* Whether the oldest read has to wait, and since when; its client alone answers for its own debt. */
static enum step wait_for_rate(struct tw_client *client, struct tw_read_server *server,
			       uint64_t now_ns, uint64_t *again_ns)
{
	uint64_t own_ns = tw_bucket_open_ns(&client->bucket, now_ns);
	uint64_t all_ns = tw_bucket_open_ns(&server->bucket, now_ns);
	uint64_t open_ns = own_ns > all_ns ? own_ns : all_ns;
	if (open_ns <= now_ns) {
		client->waits = false;
		return STEP_DONE;
	}
	if (!client->waits) {
		client->waits = true;
		count_both(client, server, TW_READ_SERVER_paced, TW_READ_CLIENT_paced, 1);
	}
	if (own_ns > now_ns && client->slowed_ns == 0) {
		client->slowed_ns = now_ns;
	}
	*again_ns = open_ns;
	return STEP_NOTHING;
}

static enum step take_read(struct tw_client *client, struct tw_read_server *server, uint64_t now_ns,
			   uint64_t *again_ns)
{
	struct tw_read read;
	if (tw_rw_parse_read(client->in + client->in_at, TW_RW_HEAD_BYTES, &read) !=
	    TW_RW_WELL_FORMED) {
		return STEP_MALFORMED;
	}
	enum step step = wait_for_rate(client, server, now_ns, again_ns);
	uint64_t revoke_ns = server->conf.revoke_ns;
	if (client->slowed_ns != 0 && revoke_ns != 0 && now_ns - client->slowed_ns >= revoke_ns) {
		return STEP_REVOKED;
	}
	if (step == STEP_DONE) {
		client->in_at += TW_RW_HEAD_BYTES;
		answer_read(client, server, &read, now_ns);
	}
	return step;
}

/* There is no whole head. */
static enum step await(struct tw_client *client, struct tw_read_server *server, uint64_t now_ns)
{
	enum step step = receive(client);
	bool part = client->in_end > client->in_at;
	if (step == STEP_NOTHING && !part) {
		client->slowed_ns = 0; /* it has left a pause */
	}
	if (client->state == TW_CLIENT_SERVED && !part) {
		client->deadline_ns = UINT64_MAX;
	} else if (client->deadline_ns == UINT64_MAX) {
		client->deadline_ns = now_ns + server->conf.idle_timeout_ns;
	}
	return step;
}

/* One step: what is to go out, else what has come in, else what comes. */
static enum step step_on(struct tw_client *client, struct tw_read_server *server, uint64_t now_ns,
			 uint64_t *again_ns)
{
	if (client->out_end > 0) {
		return flush(client);
	}
	if (client->state == TW_CLIENT_LEAVING) {
		/* closing now, with bytes unread, would take the answer back: TCP would reset */
		client->state = TW_CLIENT_DRAINED;
		client->deadline_ns = now_ns + server->conf.idle_timeout_ns;
		return shutdown(client->fd, SHUT_WR) == 0 ? STEP_DONE : STEP_LOST;
	}
	if (client->state == TW_CLIENT_DRAINED) {
		client->in_at = client->in_end = 0;
		return receive(client);
	}
	if (client->in_end - client->in_at < TW_RW_HEAD_BYTES) {
		return await(client, server, now_ns);
	}
	if (client->state == TW_CLIENT_SERVED) {
		client->deadline_ns = UINT64_MAX; /* that it waits is our doing */
		return take_read(client, server, now_ns, again_ns);
	}
	const uint8_t *head = client->in + client->in_at;
	client->in_at += TW_RW_HEAD_BYTES;
	return take_login(client, server, head, now_ns) ? STEP_DONE : STEP_MALFORMED;
}

static void drop(struct tw_client *client, struct tw_read_server *server, unsigned int of_server,
		 unsigned int of_client)
{
	count_both(client, server, of_server, of_client, 1);
	tw_client_end(client, server);
}

uint64_t tw_client_turn(struct tw_client *client, struct tw_read_server *server, uint64_t now_ns)
{
	uint64_t again_ns = UINT64_MAX;
	/* whoever is late has had its chance first: the delay may have been ours */
	enum step step = step_on(client, server, now_ns, &again_ns);
	bool late = now_ns >= client->deadline_ns;
	switch (step) {
	case STEP_DONE:
		if (late && client->state == TW_CLIENT_DRAINED) { /* it could go on for ever */
			break;
		}
		return now_ns;
	case STEP_NOTHING:
		break;
	case STEP_LOST:
		tw_client_end(client, server);
		return UINT64_MAX;
	case STEP_MALFORMED:
		drop(client, server, TW_READ_SERVER_malformed, TW_READ_CLIENT_dropped);
		return UINT64_MAX;
	case STEP_REVOKED:
		drop(client, server, TW_READ_SERVER_revoked, TW_READ_CLIENT_revoked);
		return UINT64_MAX;
	}
	if (late) {
		drop(client, server, TW_READ_SERVER_timeouts, TW_READ_CLIENT_dropped);
		return UINT64_MAX;
	}
	/* what waits for the rate is not read on: a client that has gone shows when its turn comes */
	uint32_t interest = client->out_end > 0 ? EPOLLOUT : EPOLLIN;
	if (again_ns != UINT64_MAX) {
		interest = 0;
	}
	if (!want(client, server, interest)) {
		tw_client_end(client, server);
		return UINT64_MAX;
	}
	return again_ns < client->deadline_ns ? again_ns : client->deadline_ns;
}
