/* librdmacm without a device: ids, memberships, connections.  See fake_verbs.h.
 *
 * Connections  whoever asks is answered at once; what is sent then comes to `on_send`. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rdma/fake_verbs_impl.h"

struct fake_cm_channel {
	struct rdma_event_channel channel;
	struct fake_queue events;
	unsigned int ids;
};
struct fake_id {
	struct rdma_cm_id id; /* first */
	struct fake_id *next;
	unsigned int unacked;
	uint32_t group;
	bool joined, connected, listens;
};
struct fake_cm_event {
	struct rdma_cm_event event; /* first */
	uint8_t data[64];           /* private; gone with the event */
};

static struct fake_id *ids;

/* The channel is the first member, and the whole is aligned as it must be. */
static struct fake_cm_channel *of_channel(struct rdma_event_channel *channel)
{
	return (void *)channel;
}

static struct fake_cm_channel *channel_of(const struct rdma_cm_id *id)
{
	return of_channel(id->channel);
}

static uint32_t group_of(const struct sockaddr *addr)
{
	struct sockaddr_in in;
	memcpy(&in, addr, sizeof(in));
	return ntohl(in.sin_addr.s_addr);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	FAKE_LOCK;
	struct fake_cm_channel *c = calloc(1, sizeof(*c));
	if (c != NULL && fake_queue_open(&c->events)) {
		c->channel.fd = c->events.fd;
		fake_made(FAKE_CM_CHANNEL);
	}
	FAKE_UNLOCK;
	return c != NULL ? &c->channel : NULL;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	struct fake_cm_channel *c = of_channel(channel);
	FAKE_LOCK;
	if (c->ids != 0) {
		fake_fault("an event channel goes with %u ids left", c->ids);
	}
	fake_gone(FAKE_CM_CHANNEL);
	fake_queue_close(&c->events);
	free(c);
	FAKE_UNLOCK;
}

/* --- events ------------------------------------------------------------------------------------------ */

static struct fake_cm_event *put(struct fake_id *id, const struct rdma_cm_event *event)
{
	struct fake_cm_event *item = calloc(1, sizeof(*item));
	if (item != NULL) {
		item->event = *event;
		item->event.id = &id->id;
		fake_queue_put(&channel_of(&id->id)->events, item);
	}
	return item;
}

static void put_type(struct fake_id *id, enum rdma_cm_event_type type, int status)
{
	(void)put(id, &(struct rdma_cm_event){ .event = type, .status = status });
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	FAKE_LOCK;
	*event = fake_queue_take(&of_channel(channel)->events);
	if (*event != NULL) {
		((struct fake_id *)(*event)->id)->unacked++;
	}
	FAKE_UNLOCK;
	return *event != NULL ? 0 : -1;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	FAKE_LOCK;
	((struct fake_id *)event->id)->unacked--;
	free(event);
	FAKE_UNLOCK;
	return 0;
}

unsigned int fake_lose_groups(int status)
{
	unsigned int n = 0;
	FAKE_LOCK;
	for (struct fake_id *id = ids; id != NULL; id = id->next) {
		if (id->joined) {
			put_type(id, RDMA_CM_EVENT_MULTICAST_ERROR, status);
			n++;
		}
	}
	FAKE_UNLOCK;
	return n;
}

unsigned int fake_cm_event(enum rdma_cm_event_type type)
{
	unsigned int n = 0;
	FAKE_LOCK;
	for (struct fake_id *id = ids; id != NULL; id = id->next) {
		if (id->connected) {
			put_type(id, type, 0);
			n++;
		}
	}
	FAKE_UNLOCK;
	return n;
}

void fake_cm_removed(const struct ibv_context *context)
{
	for (struct fake_id *id = ids; id != NULL; id = id->next) {
		if (id->id.verbs == context) {
			put_type(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
		}
	}
}

/* --- ids ----------------------------------------------------------------------------------------------- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context,
		   enum rdma_port_space ps)
{
	FAKE_LOCK;
	struct fake_id *id = calloc(1, sizeof(*id));
	if (id != NULL) {
		id->id.channel = channel;
		id->id.context = context;
		id->id.ps = ps;
		id->next = ids;
		ids = id;
		of_channel(channel)->ids++;
		fake_made(FAKE_CM_ID);
		*out = &id->id;
	}
	FAKE_UNLOCK;
	return id != NULL ? 0 : -1;
}

static bool is_of_id(const void *item, const void *of)
{
	return ((const struct rdma_cm_event *)item)->id == of;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct fake_id *self = (struct fake_id *)id, **at = &ids;
	FAKE_LOCK;
	if (self->unacked != 0) {
		fake_fault("an id goes before %u of its events are acknowledged", self->unacked);
	}
	if (self->joined) {
		fake_fault("an id goes that has not left its group");
	}
	fake_queue_drop(&channel_of(id)->events, is_of_id, id);
	while (*at != self) {
		at = &(*at)->next;
	}
	*at = self->next;
	channel_of(id)->ids--;
	fake_gone(FAKE_CM_ID);
	free(self);
	FAKE_UNLOCK;
	return 0;
}

static int bind_to_device(struct rdma_cm_id *id)
{
	id->verbs = fake.address_gone ? NULL : fake_cm_context();
	id->port_num = 1;
	errno = ENODEV;
	return id->verbs != NULL ? 0 : -1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	FAKE_LOCK;
	memcpy(&id->route.addr.src_sin, addr, sizeof(id->route.addr.src_sin));
	int rc = bind_to_device(id);
	FAKE_UNLOCK;
	return rc;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
	(void)id;
	(void)level;
	(void)name;
	(void)value;
	(void)bytes;
	return 0;
}

/* --- memberships ----------------------------------------------------------------------------------------- */

/* As the kernel maps it: RoCE has the IPv4 address, InfiniBand an MGID of the partition's. */
static void mgid_of(uint32_t group, uint8_t out[16])
{
	const uint32_t be = htonl(fake.infiniband ? group & 0x0fffffffu : group);
	memset(out, 0, 16);
	if (fake.infiniband) {
		const uint8_t head[] = { 0xff,
					 0x12,
					 0x40,
					 0x1b,
					 (uint8_t)(fake.pkeys[fake.pkey_index] >> 8),
					 (uint8_t)fake.pkeys[fake.pkey_index] };
		memcpy(out, head, sizeof(head));
	} else {
		out[10] = out[11] = 0xff;
	}
	memcpy(out + 12, &be, sizeof(be));
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
			   void *context)
{
	struct fake_id *self = (struct fake_id *)id;
	const bool full = attr->join_flags == RDMA_MC_JOIN_FLAG_FULLMEMBER;
	int rc = 0;
	(void)context;
	FAKE_LOCK;
	fake.joins++;
	if (!full && fake.refuse_send_only) {
		errno = EOPNOTSUPP;
		rc = -1;
	} else if (id->verbs == NULL) {
		errno = ENODEV;
		rc = -1;
	} else if (fake.failing_joins > 0) {
		fake.failing_joins--;
		put_type(self, RDMA_CM_EVENT_MULTICAST_ERROR, -ENETUNREACH);
	} else {
		struct rdma_cm_event event = { .event = RDMA_CM_EVENT_MULTICAST_JOIN };
		struct rdma_ud_param *ud = &event.param.ud;
		fake.full_joins += full;
		self->group = group_of(attr->addr);
		self->joined = true;
		ud->qp_num = 0xffffff;
		ud->qkey = FAKE_QKEY;
		ud->ah_attr = (struct ibv_ah_attr){ .is_global = 1,
						    .dlid = fake.infiniband ? FAKE_MLID : 0,
						    .port_num = 1 };
		mgid_of(self->group, ud->ah_attr.grh.dgid.raw);
		(void)put(self, &event);
	}
	FAKE_UNLOCK;
	return rc;
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct fake_id *self = (struct fake_id *)id;
	FAKE_LOCK;
	const bool ours = self->joined && self->group == group_of(addr);
	self->joined = false;
	FAKE_UNLOCK;
	return ours ? 0 : -1;
}

/* --- connections ------------------------------------------------------------------------------------------ */

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
		      int timeout_ms)
{
	(void)src;
	(void)timeout_ms;
	FAKE_LOCK;
	memcpy(&id->route.addr.dst_sin, dst, sizeof(id->route.addr.dst_sin));
	const bool ok = bind_to_device(id) == 0;
	put_type((struct fake_id *)id, ok ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR,
		 ok ? 0 : -ENODEV);
	FAKE_UNLOCK;
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	(void)timeout_ms;
	FAKE_LOCK;
	put_type((struct fake_id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	FAKE_UNLOCK;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	FAKE_LOCK;
	fake.connects++;
	const bool ours = fake_find_qp(param->qp_num) != NULL;
	if (!ours) {
		fake_fault("a connection for a queue pair that is not there");
	}
	put_type((struct fake_id *)id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	((struct fake_id *)id)->connected = true;
	FAKE_UNLOCK;
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	FAKE_LOCK;
	((struct fake_id *)id)->connected = false;
	FAKE_UNLOCK;
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id;
	attr->port_num = 1;
	attr->ah_attr = (struct ibv_ah_attr){ .is_global = 1,
					      .port_num = 1,
					      .grh.sgid_index = FAKE_GID_INDEX };
	attr->max_rd_atomic = attr->max_dest_rd_atomic = 16;
	*mask = IBV_QP_STATE;
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)backlog;
	FAKE_LOCK;
	((struct fake_id *)id)->listens = true;
	FAKE_UNLOCK;
	return 0;
}

bool fake_request(const void *hello, uint8_t bytes)
{
	FAKE_LOCK;
	const struct fake_id *listener = ids;
	while (listener != NULL && !listener->listens) {
		listener = listener->next;
	}
	struct rdma_cm_id *id = NULL;
	struct fake_cm_event *item = NULL;
	if (listener != NULL && rdma_create_id(listener->id.channel, &id, NULL, RDMA_PS_TCP) == 0) {
		id->verbs = listener->id.verbs;
		id->port_num = 1;
		id->context = listener->id.context;
		item = put((struct fake_id *)id,
			   &(struct rdma_cm_event){ .event = RDMA_CM_EVENT_CONNECT_REQUEST });
	}
	if (item != NULL) {
		memcpy(item->data, hello, bytes);
		item->event.param.conn.private_data = item->data;
		item->event.param.conn.private_data_len = bytes;
	}
	FAKE_UNLOCK;
	return item != NULL;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	FAKE_LOCK;
	fake.accepts++;
	if (fake_find_qp(param->qp_num) == NULL) {
		fake_fault("a connection for a queue pair that is not there");
	}
	((struct fake_id *)id)->connected = true;
	put_type((struct fake_id *)id, RDMA_CM_EVENT_ESTABLISHED, 0);
	FAKE_UNLOCK;
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
	(void)id;
	(void)data;
	(void)bytes;
	return 0;
}
