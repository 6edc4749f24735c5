/* One client of the RC server, from its connection request to the end of its queue pair.
 *
 * Requests  a head each, in buffers of the set's shared queue; a client has TW_RC_CREDITS of them without an
 *           answer and no more.  Answers come in order, one at a time.
 * Probes    a client that reads one-sidedly says nothing for days, and one whose host lost its power neither.
 *           Where somebody is refused because all places are taken, each of the others is sent an
 *           RDMA WRITE of no bytes, which a live client's device acknowledges whatever its process does, and
 *           which is the end of a queue pair whose other end is gone.  An answer under way does as well.
 * Ends      whatever is wrong leads to ERR, and from there to nowhere: a queue pair that has failed is
 *           never used again.  What it was sending is waited for, for a while; then it is
 *           destroyed, and with it whatever it still had. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/verbs/rc_plan.h"
#include "fabric/verbs/rc_server.h"

#define DRAIN_NS 1000000000ull
#define PROBE_NS 10000000000ull /* between rounds of probes */
#define SENDS    2u             /* an answer and a probe */

/* --- beginning --------------------------------------------------------------------------------- */

static struct tw_rc_client *free_client(struct tw_rc_server *server)
{
	for (uint32_t i = 0; i < server->client_count; i++) {
		if (server->clients[i].state == TW_RC_CLIENT_NONE) {
			return &server->clients[i];
		}
	}
	return NULL;
}

/* The set that has the channel; any for 0; NULL: there is none, or not now. */
static struct tw_rc_set *set_of(const struct tw_rc_server *server, uint16_t channel)
{
	for (uint32_t i = 0; i < server->set_count; i++) {
		struct tw_rc_set *set = &server->sets[i];
		for (uint32_t m = 0; m < set->memory_count; m++) {
			if (channel == 0 || set->memories[m].channel->channel == channel) {
				return set->renewing ? NULL : set;
			}
		}
	}
	return NULL;
}

static int make_qp(struct tw_rc_client *client, const struct tw_rc_server *server,
		   struct rdma_cm_id *id, struct tw_error *err)
{
	struct ibv_qp_init_attr init = { .send_cq = client->set->cq,
					 .recv_cq = client->set->cq,
					 .srq = client->set->srq,
					 .cap = { .max_send_wr = SENDS, .max_send_sge = 1 },
					 .qp_type = IBV_QPT_RC,
					 .sq_sig_all = 1 };
	struct tw_rc_qp_conf conf = {
		.tos = server->service.conf.tos,
		.ack_timeout = tw_rc_ack_timeout(server->service.conf.idle_timeout_ns),
		.retries = TW_RC_RETRIES,
		.responder = server->responder,
	};
	client->qp = ibv_create_qp(client->set->pd, &init);
	if (client->qp == NULL) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_create_qp");
	}
	int rc = tw_rc_qp_init(id, client->qp, 0, err);
	if (rc == TW_OK) {
		rc = tw_rc_qp_ready(id, client->qp, &conf, err);
	}
	if (rc < 0) {
		return rc;
	}
	struct rdma_conn_param accept = { .responder_resources = (uint8_t)conf.responder,
					  .rnr_retry_count = TW_RC_RNR_RETRIES,
					  .srq = 1,
					  .qp_num = client->qp->qp_num };
	if (rdma_accept(id, &accept) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: rdma_accept");
	}
	client->place = conf.place;
	return TW_OK;
}

void tw_rc_client_begin(struct tw_rc_server *server, struct rdma_cm_id *id,
			const struct rdma_conn_param *param, uint64_t now_ns)
{
	struct tw_rc_client *client = free_client(server);
	struct tw_rc_set *set = NULL;
	struct tw_rc_hello hello = { 0 };
	tw_read_service_count(&server->service, TW_READ_SERVER_connections);
	if (tw_rc_parse_hello(param->private_data, param->private_data_len, &hello) ==
	    TW_RW_WELL_FORMED) {
		set = set_of(server, hello.channel);
	} else {
		tw_read_service_count(&server->service, TW_READ_SERVER_malformed);
	}
	if (client == NULL || set == NULL) {
		(void)rdma_reject(id, NULL, 0);
		(void)rdma_destroy_id(id);
		return;
	}
	const struct sockaddr_in *peer = (const void *)rdma_get_peer_addr(id);
	*client =
		(struct tw_rc_client){ .state = TW_RC_CLIENT_NEW,
				       .index = client->index,
				       .id = id,
				       .set = set,
				       .next_ns = now_ns,
				       .deadline_ns = now_ns + server->service.conf.idle_timeout_ns,
				       .takes_probes = hello.takes_probes,
				       .out = TW_RC_NO_OUT };
	set->client_count++;
	id->context = client;
	tw_read_party_begin(&client->party, &server->service, ntohl(peer->sin_addr.s_addr),
			    ntohs(peer->sin_port), now_ns);
	if (make_qp(client, server, id, NULL) < 0) {
		tw_read_service_count(&server->service, TW_READ_SERVER_broken);
		(void)rdma_reject(id, NULL, 0);
		tw_rc_client_destroy(client, server);
	}
}

/* --- ending ------------------------------------------------------------------------------------ */

static void give_out_back(struct tw_rc_client *client, struct tw_rc_server *server)
{
	if (client->out != TW_RC_NO_OUT) {
		server->free_outs[server->free_out_count++] = client->out;
	}
	client->out = TW_RC_NO_OUT;
	client->sending = false;
	for (uint32_t i = 0; i < server->client_count; i++) {
		if (server->clients[i].request_count != 0) {
			server->clients[i].next_ns = 0; /* it may have waited for one */
		}
	}
}

static void give_requests_back(struct tw_rc_client *client)
{
	for (uint32_t i = 0; i < client->request_count; i++) {
		tw_rc_set_receive(client->set, client->requests[i]);
	}
	client->request_count = 0;
}

void tw_rc_client_leave(struct tw_rc_client *client, struct tw_rc_server *server, uint64_t now_ns)
{
	if (client->state == TW_RC_CLIENT_NONE || client->state == TW_RC_CLIENT_ENDING) {
		return;
	}
	tw_read_service_logout(&server->service, &client->party);
	tw_rc_qp_break(client->qp);
	(void)rdma_disconnect(client->id); /* it may be the other side that has gone */
	give_requests_back(client);
	client->state = TW_RC_CLIENT_ENDING;
	client->deadline_ns = now_ns + DRAIN_NS;
	client->next_ns = 0;
}

void tw_rc_client_destroy(struct tw_rc_client *client, struct tw_rc_server *server)
{
	if (client->state == TW_RC_CLIENT_NONE) {
		return;
	}
	tw_read_service_logout(&server->service, &client->party);
	client->state = TW_RC_CLIENT_ENDING;
	if (client->qp != NULL) {
		/* what is in the queue by then is its own; afterwards its number may be another's */
		tw_rc_qp_break(client->qp);
		tw_rc_set_drain(client->set);
		(void)ibv_destroy_qp(client->qp);
		client->qp = NULL;
		tw_rc_set_drain(client->set);
	}
	give_requests_back(client);
	give_out_back(client, server);
	(void)rdma_destroy_id(client->id);
	client->id = NULL;
	client->set->client_count--;
	client->state = TW_RC_CLIENT_NONE;
}

/* --- what comes -------------------------------------------------------------------------------- */

void tw_rc_client_sent(struct tw_rc_client *client, struct tw_rc_server *server, bool well)
{
	client->broken |= !well;
	client->next_ns = 0;
	give_out_back(client, server);
}

void tw_rc_client_breaks(struct tw_rc_client *client)
{
	client->broken = true;
	client->next_ns = 0;
}

void tw_rc_client_probed(struct tw_rc_client *client, bool well)
{
	client->probing = false;
	if (!well) {
		tw_rc_client_breaks(client);
	}
}

void tw_rc_client_asks(struct tw_rc_client *client, uint32_t buffer, uint32_t len_bytes)
{
	bool comes_right =
		client->state == TW_RC_CLIENT_NEW || client->state == TW_RC_CLIENT_SERVED;
	client->next_ns = 0;
	if (!comes_right || len_bytes != TW_RW_HEAD_BYTES ||
	    client->request_count == TW_RC_CREDITS) {
		client->malformed |= comes_right;
		tw_rc_set_receive(client->set, buffer);
		return;
	}
	client->requests[client->request_count++] = buffer;
}

/* --- answers ----------------------------------------------------------------------------------- */

static uint8_t *out_of(const struct tw_rc_server *server, uint32_t out)
{
	return server->slab.base + (size_t)out * TW_RC_OUT_BYTES;
}

/* Takes the oldest request out of its buffer. */
static void take_request(struct tw_rc_client *client, uint8_t head[TW_RW_HEAD_BYTES])
{
	uint32_t buffer = client->requests[0];
	memcpy(head, client->set->in + (size_t)buffer * TW_RW_HEAD_BYTES, TW_RW_HEAD_BYTES);
	client->request_count--;
	memmove(client->requests, client->requests + 1,
		client->request_count * sizeof(client->requests[0]));
	tw_rc_set_receive(client->set, buffer);
}

static void send_out(struct tw_rc_client *client, struct tw_rc_server *server, uint32_t bytes)
{
	struct ibv_sge sge = { .addr = (uintptr_t)out_of(server, client->out),
			       .length = bytes,
			       .lkey = client->set->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = TW_RC_SENT | client->index,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	client->sending = ibv_post_send(client->qp, &wr, &bad) == 0;
	client->broken |= !client->sending;
}

static void probe(struct tw_rc_client *client)
{
	struct ibv_send_wr wr = { .wr_id = TW_RC_PROBE | client->index,
				  .opcode = IBV_WR_RDMA_WRITE,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	client->probing = ibv_post_send(client->qp, &wr, &bad) == 0;
	if (!client->probing) {
		tw_rc_client_breaks(client);
	}
}

/* However often somebody knocks: once in a while, and never two under way. */
static void probe_all(struct tw_rc_server *server, uint64_t now_ns)
{
	if (now_ns < server->probe_ns) {
		return;
	}
	server->probe_ns = now_ns + PROBE_NS;
	for (uint32_t i = 0; i < server->client_count; i++) {
		struct tw_rc_client *client = &server->clients[i];
		if (client->state == TW_RC_CLIENT_SERVED && client->takes_probes &&
		    !client->broken && !client->sending && !client->probing) {
			probe(client);
		}
	}
}

static void answer_login(struct tw_rc_client *client, struct tw_rc_server *server,
			 enum tw_rw_login result, uint64_t now_ns)
{
	struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	uint32_t count = 0;
	bool any = false;
	if (result == TW_LOGIN_OK) {
		for (; count < client->set->memory_count; count++) {
			const struct tw_rc_memory *memory = &client->set->memories[count];
			grants[count] = (struct tw_rc_grant){ .channel = memory->channel->channel };
			if (memory->grant.one_sided) {
				grants[count] = memory->grant;
				any = true;
			}
		}
		client->state = TW_RC_CLIENT_SERVED;
		client->deadline_ns = UINT64_MAX;
		client->broken |= any && tw_rc_qp_open_memory(client->qp, true, NULL) < 0;
	} else {
		client->state = TW_RC_CLIENT_LEAVING;
		client->deadline_ns = now_ns + server->service.conf.idle_timeout_ns;
	}
	if (result == TW_LOGIN_FULL) {
		probe_all(server, now_ns);
	}
	uint32_t bytes =
		tw_rc_put_login_reply(out_of(server, client->out), server->service.conf.environment,
				      result, grants, count);
	send_out(client, server, bytes);
}

static void take_login(struct tw_rc_client *client, struct tw_rc_server *server, uint64_t now_ns)
{
	_Alignas(8) uint8_t head[TW_RW_HEAD_BYTES];
	uint16_t environment;
	char name[TW_READ_NAME_BYTES];
	take_request(client, head);
	switch (tw_rw_parse_login(head, sizeof(head), &environment, name)) {
	case TW_RW_WELL_FORMED:
		answer_login(
			client, server,
			tw_read_service_login(&server->service, &client->party, environment, name),
			now_ns);
		return;
	case TW_RW_VERSION:
		tw_read_service_count(&server->service, TW_READ_SERVER_refused_version);
		answer_login(client, server, TW_LOGIN_VERSION, now_ns);
		return;
	default:
		client->malformed = true;
	}
}

static bool in_set(const struct tw_rc_set *set, uint16_t channel)
{
	for (uint32_t i = 0; i < set->memory_count; i++) {
		if (set->memories[i].channel->channel == channel) {
			return true;
		}
	}
	return false;
}

static void answer_read(struct tw_rc_client *client, struct tw_rc_server *server)
{
	_Alignas(8) uint8_t head[TW_RW_HEAD_BYTES];
	struct tw_read read;
	uint32_t bytes;
	take_request(client, head);
	if (tw_rw_parse_read(head, sizeof(head), &read) != TW_RW_WELL_FORMED) {
		client->malformed = true;
		return;
	}
	uint8_t *out = out_of(server, client->out);
	if (!in_set(client->set, read.channel)) {
		read.channel = 0; /* another set's: nobody serves it here */
	}
	enum tw_read_status status = tw_read_service_read(&server->service, &client->party, &read,
							  out + TW_RW_HEAD_BYTES, &bytes);
	tw_rw_put_reply((struct tw_rw_read_head *)(void *)out, read.id, status, bytes);
	server->turn = client->index + 1 == server->client_count ? 0 : client->index + 1;
	send_out(client, server, TW_RW_HEAD_BYTES + bytes);
}

/* --- turns ------------------------------------------------------------------------------------- */

static uint64_t drop(struct tw_rc_client *client, struct tw_rc_server *server,
		     unsigned int of_server, unsigned int of_client, uint64_t now_ns)
{
	tw_read_service_count_both(&server->service, &client->party, of_server, of_client, 1);
	tw_rc_client_leave(client, server, now_ns);
	return 0;
}

/* What it asks for; it is not sending anything. */
static uint64_t serve(struct tw_rc_client *client, struct tw_rc_server *server, uint64_t now_ns)
{
	uint64_t again_ns = UINT64_MAX;
	if (client->request_count == 0) {
		client->party.slowed_ns = 0; /* it has left a pause */
		return client->deadline_ns;
	}
	if (client->state == TW_RC_CLIENT_SERVED) {
		switch (tw_read_service_pace(&server->service, &client->party, now_ns, &again_ns)) {
		case TW_PACE_WAIT:
			return again_ns;
		case TW_PACE_REVOKE:
			return drop(client, server, TW_READ_SERVER_revoked, TW_READ_CLIENT_revoked,
				    now_ns);
		case TW_PACE_GO:
			break;
		}
	}
	if (client->state == TW_RC_CLIENT_NEW && tw_rc_set_has_new_life(client->set)) {
		/* nobody is given the key to a life that is over: all of the set go at once */
		server->lives_ns = now_ns;
		return client->deadline_ns;
	}
	if (server->free_out_count == 0) {
		return client->deadline_ns; /* until somebody's answer is out */
	}
	client->out = server->free_outs[--server->free_out_count];
	if (client->state == TW_RC_CLIENT_SERVED) {
		answer_read(client, server);
	} else {
		take_login(client, server, now_ns);
	}
	if (!client->sending) {
		give_out_back(client, server);
		return 0;
	}
	return client->deadline_ns;
}

uint64_t tw_rc_client_turn(struct tw_rc_client *client, struct tw_rc_server *server,
			   uint64_t now_ns)
{
	if (client->state == TW_RC_CLIENT_ENDING) {
		if (client->sending && now_ns < client->deadline_ns) {
			return client->deadline_ns;
		}
		tw_rc_client_destroy(client, server);
		return UINT64_MAX;
	}
	if (tw_read_service_is_revoked(&server->service, &client->party)) {
		client->broken |= tw_rc_qp_open_memory(client->qp, false, NULL) < 0;
		return drop(client, server, TW_READ_SERVER_revoked, TW_READ_CLIENT_revoked, now_ns);
	}
	if (client->malformed) {
		return drop(client, server, TW_READ_SERVER_malformed, TW_READ_CLIENT_dropped,
			    now_ns);
	}
	if (client->broken) {
		return drop(client, server, TW_READ_SERVER_broken, TW_READ_CLIENT_dropped, now_ns);
	}
	if (now_ns >= client->deadline_ns) {
		return drop(client, server, TW_READ_SERVER_timeouts, TW_READ_CLIENT_dropped,
			    now_ns);
	}
	if (client->sending || client->state == TW_RC_CLIENT_LEAVING) {
		return client->deadline_ns;
	}
	return serve(client, server, now_ns);
}
