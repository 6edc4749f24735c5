/* What the RC server has of a device: listener, sets, registered histories.
 *
 * Registering  A history is registered with REMOTE_READ alone, once for each life.  What is ours (heads and answers) is
 *              registered for local use in each set's domain, and no key to it ever leaves this process.
 * Ordering     session and publisher are read relaxed: a pair that is torn looks like one more life, and is
 *              looked at again.  Of a first life, one that is seen before its numbers costs its clients a login. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/words.h"
#include "fabric/tcp/tcp.h"
#include "fabric/verbs/rc_plan.h"
#include "fabric/verbs/rc_server.h"
#include "tidewire/wire.h"

#define BACKLOG 128

/* --- lives ------------------------------------------------------------------------------------- */

static struct tw_wire_control read_control(const struct tw_read_server_channel *channel)
{
	struct tw_wire_control control;
	tw_words_move(&control, channel->memory, sizeof(control));
	return control;
}

/* The first life of a memory is what its key was given out for. */
bool tw_rc_set_has_new_life(struct tw_rc_set *set)
{
	for (uint32_t i = 0; i < set->memory_count; i++) {
		struct tw_rc_memory *memory = &set->memories[i];
		if (memory->channel->memory == NULL) {
			continue;
		}
		struct tw_wire_control control = read_control(memory->channel);
		if (memory->grant.session == 0 && control.magic == TW_WIRE_CONTROL_MAGIC) {
			memory->grant.session = control.session;
			memory->grant.publisher = control.publisher;
		} else if (memory->grant.session != 0 &&
			   (control.session != memory->grant.session ||
			    control.publisher != memory->grant.publisher)) {
			return true;
		}
	}
	return false;
}

static int register_memory(struct tw_rc_set *set, struct tw_rc_memory *memory, struct tw_error *err)
{
	const struct tw_read_server_channel *channel = memory->channel;
	memory->mr =
		ibv_reg_mr(set->pd, channel->memory, channel->memory_bytes, IBV_ACCESS_REMOTE_READ);
	if (memory->mr == NULL) {
		return tw_fail_sys(err, errno == ENOMEM ? TW_ENOMEM : TW_ESYS,
				   "repair over RC: channel %u: ibv_reg_mr: %llu bytes of history "
				   "(see ulimit -l)",
				   channel->channel, (unsigned long long)channel->memory_bytes);
	}
	return TW_OK;
}

static void fill_grant(struct tw_rc_memory *memory)
{
	uint64_t unit = TW_WIRE_UNIT_BYTES;
	uint16_t channel = memory->channel->channel;
	memory->grant = (struct tw_rc_grant){ .channel = channel };
	if (memory->mr == NULL) {
		return;
	}
	struct tw_wire_control control = read_control(memory->channel);
	if (control.magic == TW_WIRE_CONTROL_MAGIC) {
		memory->grant.session = control.session;
		memory->grant.publisher = control.publisher;
	}
	memory->grant.control_addr = (uintptr_t)memory->channel->memory;
	memory->grant.log_addr = memory->grant.control_addr + unit;
	memory->grant.units = memory->channel->memory_bytes / unit - 1;
	memory->grant.rkey = memory->mr->rkey;
	memory->grant.one_sided = true;
}

int tw_rc_set_renew(struct tw_rc_set *set, struct tw_error *err)
{
	for (uint32_t i = 0; i < set->memory_count; i++) {
		struct tw_rc_memory *memory = &set->memories[i];
		if (memory->channel->memory == NULL) {
			continue;
		}
		struct tw_wire_control control = read_control(memory->channel);
		bool same = control.session == memory->grant.session &&
			    control.publisher == memory->grant.publisher;
		if (memory->mr != NULL && (same || memory->grant.session == 0)) {
			fill_grant(memory); /* nobody has ever had the key to a life before */
			continue;
		}
		if (memory->mr != NULL && ibv_dereg_mr(memory->mr) != 0) {
			return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_dereg_mr");
		}
		memory->mr = NULL;
		int rc = register_memory(set, memory, err);
		fill_grant(memory);
		if (rc < 0) {
			return rc;
		}
		tw_read_service_count(&set->server->service, TW_READ_SERVER_registered);
	}
	return TW_OK;
}

/* --- sets -------------------------------------------------------------------------------------- */

void tw_rc_set_receive(struct tw_rc_set *set, uint32_t buffer)
{
	struct ibv_sge sge = { .addr = (uintptr_t)set->in + (uint64_t)buffer * TW_RW_HEAD_BYTES,
			       .length = TW_RW_HEAD_BYTES,
			       .lkey = set->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = buffer, .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	/* the queue has room for all of them; a device that is going takes none */
	(void)ibv_post_srq_recv(set->srq, &wr, &bad);
}

static void close_set(struct tw_rc_set *set)
{
	if (set->srq != NULL) {
		(void)ibv_destroy_srq(set->srq);
	}
	if (set->cq != NULL) {
		(void)ibv_destroy_cq(set->cq);
	}
	if (set->completions != NULL) {
		(void)ibv_destroy_comp_channel(set->completions);
	}
	for (uint32_t i = 0; i < set->memory_count; i++) {
		if (set->memories[i].mr != NULL) {
			(void)ibv_dereg_mr(set->memories[i].mr);
		}
		set->memories[i].mr = NULL;
		set->memories[i].grant = (struct tw_rc_grant){ 0 };
	}
	if (set->mr != NULL) {
		(void)ibv_dereg_mr(set->mr);
	}
	if (set->pd != NULL) {
		(void)ibv_dealloc_pd(set->pd);
	}
	set->srq = NULL;
	set->cq = NULL;
	set->completions = NULL;
	set->mr = NULL;
	set->pd = NULL;
	set->renewing = false;
}

static int open_queues(struct tw_rc_set *set, struct ibv_context *context,
		       const struct ibv_device_attr *device, struct tw_error *err)
{
	struct tw_rc_server *server = set->server;
	uint32_t most = device->max_srq_wr > 0 ? (uint32_t)device->max_srq_wr : 0;
	set->buffers = server->set_buffers < most ? server->set_buffers : most;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = set->buffers, .max_sge = 1 } };
	/* half as much again as can be outstanding: requests, and for each client an answer and a probe */
	uint32_t entries = (set->buffers + 2 * server->client_count) * 3 / 2;
	if (device->max_cqe > 0 && entries > (uint32_t)device->max_cqe) {
		return tw_fail(err, TW_EUNSUPPORTED,
			       "repair over RC: %u clients: a completion queue of %u is needed, "
			       "the device has at most %d: fewer repair_clients",
			       server->service.conf.max_clients, entries, device->max_cqe);
	}
	set->completions = ibv_create_comp_channel(context);
	if (set->completions == NULL || fcntl(set->completions->fd, F_SETFL, O_NONBLOCK) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_create_comp_channel");
	}
	set->cq = ibv_create_cq(context, (int)entries, set, set->completions, 0);
	if (set->cq == NULL || ibv_req_notify_cq(set->cq, 0) != 0) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_create_cq: %u", entries);
	}
	set->srq = ibv_create_srq(set->pd, &srq);
	if (set->srq == NULL) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_create_srq: %u",
				   set->buffers);
	}
	for (uint32_t i = 0; i < set->buffers; i++) {
		tw_rc_set_receive(set, i);
	}
	return TW_OK;
}

static int open_set(struct tw_rc_set *set, struct ibv_context *context,
		    const struct ibv_device_attr *device, struct tw_error *err)
{
	const struct tw_slab *slab = &set->server->slab;
	set->pd = ibv_alloc_pd(context);
	if (set->pd == NULL) {
		return tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_alloc_pd");
	}
	set->mr = ibv_reg_mr(set->pd, slab->base, slab->size_bytes, IBV_ACCESS_LOCAL_WRITE);
	if (set->mr == NULL) {
		return tw_fail_sys(err, TW_ESYS,
				   "repair over RC: ibv_reg_mr: %zu bytes (see ulimit -l)",
				   slab->size_bytes);
	}
	int rc = open_queues(set, context, device, err);
	if (rc == TW_OK) {
		rc = tw_rc_set_renew(set, err);
	}
	if (rc == TW_OK) {
		rc = tw_rc_server_watch(set->server, set->completions->fd,
					(uint32_t)(set - set->server->sets), err);
	}
	return rc;
}

/* --- the device -------------------------------------------------------------------------------- */

static int bind_listener(struct tw_rc_server *server, struct tw_error *err)
{
	struct tw_read_server_conf *conf = &server->service.conf;
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(conf->port),
				   .sin_addr.s_addr = htonl(conf->addr) };
	int rc = tw_rc_id_make(&server->listen_id, server->events, NULL, conf->tos, err);
	if (rc < 0) {
		return rc;
	}
	bool bound = rdma_bind_addr(server->listen_id, (struct sockaddr *)&sin) == 0;
	if (!bound && errno != ENODEV) {
		return tw_fail_sys(err, errno == EADDRINUSE ? TW_EBUSY : TW_ESYS,
				   "repair over RC at " TW_TCP_FMT ": rdma_bind_addr",
				   TW_TCP_ARGS(conf->addr, conf->port));
	}
	if (!bound || server->listen_id->verbs == NULL) {
		return tw_fail(err, TW_ENOTFOUND,
			       "repair over RC at " TW_TCP_FMT
			       ": rdma_bind_addr: no RDMA device has that address",
			       TW_TCP_ARGS(conf->addr, conf->port));
	}
	conf->port = ntohs(rdma_get_src_port(server->listen_id));
	return TW_OK;
}

/* A context of our own, and not that of the listener: its asynchronous events are ours alone. */
static int open_context(struct tw_rc_server *server, struct ibv_device_attr *device,
			struct tw_error *err)
{
	int rc = tw_verbs_again(&server->context, server->listen_id->verbs, err);
	if (rc == TW_OK) {
		rc = tw_rc_server_watch(server, server->context->async_fd, TW_RC_ASYNC_EVENT, err);
	}
	if (rc == TW_OK && ibv_query_device(server->context, device) != 0) {
		rc = tw_fail_sys(err, TW_ESYS, "repair over RC: ibv_query_device");
	}
	return rc;
}

int tw_rc_device_open(struct tw_rc_server *server, struct tw_error *err)
{
	struct ibv_device_attr device;
	int rc = bind_listener(server, err);
	if (rc == TW_OK) {
		rc = open_context(server, &device, err);
	}
	if (rc == TW_OK) {
		server->responder = device.max_qp_rd_atom > 0 ? (uint32_t)device.max_qp_rd_atom : 0;
	}
	for (uint32_t i = 0; i < server->set_count && rc == TW_OK; i++) {
		rc = open_set(&server->sets[i], server->context, &device, err);
	}
	if (rc == TW_OK && rdma_listen(server->listen_id, BACKLOG) != 0) {
		rc = tw_fail_sys(err, errno == EADDRINUSE ? TW_EBUSY : TW_ESYS,
				 "repair over RC at " TW_TCP_FMT ": rdma_listen",
				 TW_TCP_ARGS(server->service.conf.addr, server->service.conf.port));
	}
	if (rc < 0) {
		tw_rc_device_close(server);
		return rc;
	}
	tw_counter_set(&server->service.conf.counters, TW_READ_SERVER_device, 1);
	return TW_OK;
}

void tw_rc_device_close(struct tw_rc_server *server)
{
	for (uint32_t i = 0; i < server->set_count; i++) {
		close_set(&server->sets[i]);
	}
	if (server->context != NULL) {
		(void)ibv_close_device(server->context);
		server->context = NULL;
	}
	if (server->listen_id != NULL) {
		(void)rdma_destroy_id(server->listen_id);
		server->listen_id = NULL;
	}
	server->removed = false;
	tw_counter_set(&server->service.conf.counters, TW_READ_SERVER_device, 0);
}

/* --- the device's events ------------------------------------------------------------------------ */

/* A queue that all clients of a set share: nothing goes on without it. */
static bool is_shared(const struct tw_rc_server *server, const struct tw_verbs_event *event)
{
	bool shared = false;
	for (uint32_t i = 0; i < server->set_count; i++) {
		const struct tw_rc_set *set = &server->sets[i];
		shared |= (event->cq != NULL && event->cq == set->cq) ||
			  (event->srq != NULL && event->srq == set->srq);
	}
	return shared;
}

static void client_event(struct tw_rc_server *server, struct tw_rc_client *client,
			 const struct tw_verbs_event *event)
{
	bool lost = event->trouble == TW_TROUBLE_ADDRESS ||
		    (event->trouble == TW_TROUBLE_GID &&
		     !tw_verbs_gid_holds(server->context, &client->place));
	if (tw_verbs_is_about(event, client->qp)) {
		tw_rc_client_breaks(client);
	} else if (lost && event->port == client->place.port) {
		tw_read_service_count(&server->service, TW_READ_SERVER_address_lost);
		tw_rc_client_breaks(client);
	}
}

void tw_rc_server_events(struct tw_rc_server *server)
{
	struct tw_verbs_event event;
	while (server->context != NULL && tw_verbs_take_event(server->context, &event)) {
		tw_read_service_count(&server->service, TW_READ_SERVER_async_events);
		server->removed |= event.trouble == TW_TROUBLE_DEVICE || is_shared(server, &event);
		if (event.trouble == TW_TROUBLE_PORT_DOWN &&
		    event.port == server->listen_id->port_num) {
			tw_read_service_count(&server->service, TW_READ_SERVER_port_downs);
		}
		for (uint32_t i = 0; i < server->client_count && !server->removed; i++) {
			struct tw_rc_client *client = &server->clients[i];
			if (client->state != TW_RC_CLIENT_NONE) {
				client_event(server, client, &event);
			}
		}
	}
}
