/* One connection of the read server.
 *
 * Patience  deadlines are for whole things (a login, a head, a reply taken), so that a client that
 *           drips is as late as one that is silent.  A client with nothing to ask stays. */
#include "fabric/tcp/read_server_client.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "fabric/tcp/tcp.h"

/* --- life -------------------------------------------------------------------------------------- */

void tw_client_begin(struct tw_client *client, struct tw_tcp_read_server *server, int fd,
		     uint32_t addr, uint16_t port, uint64_t now_ns)
{
	client->state = TW_CLIENT_NEW;
	client->fd = fd;
	client->interest = 0;
	client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
	client->in_at = client->in_end = client->out_at = client->out_end = 0;
	tw_read_party_begin(&client->party, &server->service, addr, port, now_ns);
	server->open_count++;
	tw_read_service_count(&server->service, TW_READ_SERVER_connections);
}

void tw_client_end(struct tw_client *client, struct tw_tcp_read_server *server)
{
	if (client->state == TW_CLIENT_NONE) {
		return;
	}
	tw_read_service_logout(&server->service, &client->party);
	close(client->fd); /* epoll forgets it */
	client->fd = -1;
	client->state = TW_CLIENT_NONE;
	server->open_count--;
}

static bool want(struct tw_client *client, const struct tw_tcp_read_server *server,
		 uint32_t interest)
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

static void answer_login(struct tw_client *client, struct tw_tcp_read_server *server,
			 enum tw_rw_login result, uint64_t now_ns)
{
	tw_rw_put_login_reply((struct tw_rw_login_head *)(void *)client->out,
			      server->service.conf.environment, result);
	client->out_end = TW_RW_HEAD_BYTES;
	client->state = result == TW_LOGIN_OK ? TW_CLIENT_SERVED : TW_CLIENT_LEAVING;
	client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
}

/* false: it breaks the protocol. */
static bool take_login(struct tw_client *client, struct tw_tcp_read_server *server,
		       const uint8_t *head, uint64_t now_ns)
{
	uint16_t environment;
	char name[TW_READ_NAME_BYTES];
	switch (tw_rw_parse_login(head, TW_RW_HEAD_BYTES, &environment, name)) {
	case TW_RW_WELL_FORMED:
		break;
	case TW_RW_VERSION:
		tw_read_service_count(&server->service, TW_READ_SERVER_refused_version);
		answer_login(client, server, TW_LOGIN_VERSION, now_ns);
		return true;
	default:
		return false;
	}
	answer_login(client, server,
		     tw_read_service_login(&server->service, &client->party, environment, name),
		     now_ns);
	return true;
}

static void answer_read(struct tw_client *client, struct tw_tcp_read_server *server,
			const struct tw_read *read, uint64_t now_ns)
{
	uint32_t bytes;
	uint8_t *head = client->out + client->out_end; /* heads and replies are whole lines */
	enum tw_read_status status = tw_read_service_read(&server->service, &client->party, read,
							  head + TW_RW_HEAD_BYTES, &bytes);
	tw_rw_put_reply((struct tw_rw_read_head *)(void *)head, read->id, status, bytes);
	client->out_end += TW_RW_HEAD_BYTES + bytes;
	client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
	server->turn = client->index + 1 == server->client_count ? 0 : client->index + 1;
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

/* Whether a reply to it fits behind those that wait to be sent. */
static bool fits(const struct tw_client *client, const struct tw_read *read)
{
	uint64_t max_bytes =
		read->by_seq ? TW_READ_MAX_BYTES : (read->end - read->begin) * TW_RW_UNIT_BYTES;
	return client->out_end + max_bytes <= TW_READ_MAX_BYTES;
}

/* Answers what has come, up to the room for one reply of the largest size: many small ones are one
 * send(2), which is what they cost. */
static enum step take_reads(struct tw_client *client, struct tw_tcp_read_server *server,
			    uint64_t now_ns, uint64_t *again_ns)
{
	while (client->in_end - client->in_at >= TW_RW_HEAD_BYTES) {
		struct tw_read read;
		bool well = tw_rw_parse_read(client->in + client->in_at, TW_RW_HEAD_BYTES, &read) ==
			    TW_RW_WELL_FORMED;
		bool waiting = client->out_end > 0;
		if (waiting && (!well || !fits(client, &read))) {
			break;
		}
		if (!well) {
			return STEP_MALFORMED;
		}
		switch (tw_read_service_pace(&server->service, &client->party, now_ns, again_ns)) {
		case TW_PACE_WAIT:
			if (waiting) {
				*again_ns = UINT64_MAX; /* that goes out first */
				return STEP_DONE;
			}
			return STEP_NOTHING;
		case TW_PACE_REVOKE:
			return STEP_REVOKED;
		case TW_PACE_GO:
			break;
		}
		client->in_at += TW_RW_HEAD_BYTES;
		answer_read(client, server, &read, now_ns);
	}
	return STEP_DONE;
}

/* There is no whole head. */
static enum step await(struct tw_client *client, struct tw_tcp_read_server *server, uint64_t now_ns)
{
	enum step step = receive(client);
	bool part = client->in_end > client->in_at;
	if (step == STEP_NOTHING && !part) {
		client->party.slowed_ns = 0; /* it has left a pause */
	}
	if (client->state == TW_CLIENT_SERVED && !part) {
		client->deadline_ns = UINT64_MAX;
	} else if (client->deadline_ns == UINT64_MAX) {
		client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
	}
	return step;
}

/* One step: what is to go out, else what has come in, else what comes. */
static enum step step_on(struct tw_client *client, struct tw_tcp_read_server *server,
			 uint64_t now_ns, uint64_t *again_ns)
{
	if (client->out_end > 0) {
		return flush(client);
	}
	if (client->state == TW_CLIENT_LEAVING) {
		/* closing now, with bytes unread, would take the answer back: TCP would reset */
		client->state = TW_CLIENT_DRAINED;
		client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
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
		return take_reads(client, server, now_ns, again_ns);
	}
	const uint8_t *head = client->in + client->in_at;
	client->in_at += TW_RW_HEAD_BYTES;
	return take_login(client, server, head, now_ns) ? STEP_DONE : STEP_MALFORMED;
}

static void drop(struct tw_client *client, struct tw_tcp_read_server *server,
		 unsigned int of_server, unsigned int of_client)
{
	tw_read_service_count_both(&server->service, &client->party, of_server, of_client, 1);
	tw_client_end(client, server);
}

uint64_t tw_client_turn(struct tw_client *client, struct tw_tcp_read_server *server,
			uint64_t now_ns)
{
	uint64_t again_ns = UINT64_MAX;
	if (tw_read_service_is_revoked(&server->service, &client->party)) {
		drop(client, server, TW_READ_SERVER_revoked, TW_READ_CLIENT_revoked);
		return UINT64_MAX;
	}
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
