/* libibverbs without a device: the device, contexts, domains, regions.  See fake_verbs.h. */
#include "tests/rdma/fake_verbs_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/clock_fit.h"

static struct fake_device *devices; /* newest first; older ones are dead */
static struct fake_context *contexts;
static struct fake_mr *mrs;
struct fake_qp *fake_qps;
uint32_t fake_numbers;

/* --- the device ------------------------------------------------------------------------------------ */

static struct fake_device *device_of(const struct ibv_context *context)
{
	return (struct fake_device *)context->device;
}

bool fake_dead(const struct ibv_context *context)
{
	return device_of(context)->dead;
}

static void add_device(void)
{
	struct fake_device *device = calloc(1, sizeof(*device));
	if (device != NULL) {
		device->device.transport_type = IBV_TRANSPORT_IB;
		(void)snprintf(device->device.name, sizeof(device->device.name), FAKE_NAME);
		device->next = devices;
		devices = device;
	}
}

void fake_begin(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.present = true;
	fake.pkeys[0] = 0xffff;
	fake.smallest_read = UINT32_MAX;
	add_device();
}

struct fake_context *fake_self(struct ibv_context *context)
{
	return (void *)((uint8_t *)context - offsetof(struct fake_context, verbs.context));
}

static void free_context(struct fake_context *context)
{
	struct fake_context **at = &contexts;
	while (*at != context) {
		at = &(*at)->next;
	}
	*at = context->next;
	fake_queue_close(&context->events);
	free(context);
}

const char *fake_end(void)
{
	static const char *const names[FAKE_KINDS] = { "contexts",          "domains",
						       "regions",           "completion channels",
						       "completion queues", "shared queues",
						       "queue pairs",       "address handles",
						       "event channels",    "ids" };
	FAKE_LOCK;
	for (unsigned int i = 0; i < FAKE_KINDS; i++) {
		if (fake.live[i] != 0) {
			fake_fault("%u %s left", fake.live[i], names[i]);
		}
	}
	while (devices != NULL) {
		struct fake_device *device = devices;
		devices = device->next;
		if (device->cm != NULL) {
			free_context(fake_self(device->cm));
		}
		free(device);
	}
	FAKE_UNLOCK;
	return fake.fault[0] != '\0' ? fake.fault : NULL;
}

static void put_event(struct fake_context *context, struct ibv_async_event event)
{
	struct fake_event *item = calloc(1, sizeof(*item));
	if (item != NULL) {
		item->event = event;
		fake_queue_put(&context->events, item);
	}
}

void fake_port_event(enum ibv_event_type type)
{
	FAKE_LOCK;
	for (struct fake_context *c = contexts; c != NULL; c = c->next) {
		if (!fake_dead(&c->verbs.context)) {
			put_event(c, (struct ibv_async_event){ .event_type = type,
							       .element.port_num = 1 });
		}
	}
	FAKE_UNLOCK;
}

unsigned int fake_queue_event(enum ibv_event_type type, enum ibv_qp_type of)
{
	unsigned int n = 0;
	FAKE_LOCK;
	for (struct fake_qp *q = fake_qps; q != NULL; q = q->next) {
		if (q->qp.qp_type != of) {
			continue;
		}
		struct ibv_async_event event = { .event_type = type };
		if (type == IBV_EVENT_CQ_ERR) {
			event.element.cq = q->qp.recv_cq;
		} else if (type == IBV_EVENT_SRQ_ERR) {
			event.element.srq = q->qp.srq;
		} else {
			event.element.qp = &q->qp;
		}
		put_event(fake_self(q->qp.context), event);
		n++;
	}
	FAKE_UNLOCK;
	return n;
}

void fake_remove(void)
{
	FAKE_LOCK;
	fake_port_event(IBV_EVENT_DEVICE_FATAL);
	fake.present = false;
	devices->dead = true;
	if (devices->cm != NULL) {
		fake_cm_removed(devices->cm);
	}
	FAKE_UNLOCK;
}

void fake_return(void)
{
	FAKE_LOCK;
	add_device();
	fake.present = true;
	FAKE_UNLOCK;
}

void fake_gid(union ibv_gid *gid)
{
	const uint32_t be = __builtin_bswap32(FAKE_ADDRESS);
	memset(gid, 0, sizeof(*gid));
	if (fake.infiniband) {
		gid->raw[0] = 0xfe;
		gid->raw[1] = 0x80;
		gid->raw[15] = 7;
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &be, sizeof(be));
}

struct ibv_device **ibv_get_device_list(int *count)
{
	FAKE_LOCK;
	struct ibv_device **list = calloc(2, sizeof(struct ibv_device *));
	if (list != NULL && fake.present) {
		list[0] = &devices->device;
	}
	if (count != NULL) {
		*count = fake.present;
	}
	FAKE_UNLOCK;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

#undef ibv_query_port
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
		      size_t bytes)
{
	FAKE_LOCK;
	int rc = fake_dead(context) ? EIO : port != 1 || bytes < sizeof(*attr) ? EINVAL : 0;
	if (rc == 0) {
		*attr = (struct ibv_port_attr){ .state = IBV_PORT_ACTIVE,
						.active_mtu = IBV_MTU_1024,
						.max_mtu = IBV_MTU_4096,
						.pkey_tbl_len = 2,
						.gid_tbl_len = 8,
						.link_layer = fake.infiniband
								      ? IBV_LINK_LAYER_INFINIBAND
								      : IBV_LINK_LAYER_ETHERNET };
	}
	FAKE_UNLOCK;
	return rc;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){ .max_qp_wr = FAKE_RING,
					  .max_cqe = 2 * FAKE_RING,
					  .max_sge = 4,
					  .max_qp = 64,
					  .max_qp_rd_atom = 16,
					  .max_qp_init_rd_atom = 16,
					  .max_srq = 8,
					  .max_srq_wr = FAKE_RING,
					  .max_mcast_grp = 64,
					  .max_mcast_qp_attach = 64,
					  .phys_port_cnt = 1 };
	return fake_dead(context) ? EIO : 0;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t bytes)
{
	(void)input;
	memset(attr, 0, bytes);
	attr->completion_timestamp_mask = fake.timestamp_mask;
	attr->hca_core_clock = fake.clock_khz;
	return ibv_query_device(context, &attr->orig_attr);
}

uint64_t fake_ticks(uint64_t age_ns)
{
	const tw_clock_wide ns = (tw_clock_wide)(tw_wall_ns() - age_ns);
	return (uint64_t)(ns * (tw_clock_wide)fake.clock_khz / 1000000) + fake.clock_offset;
}

static int query_rt_values(struct ibv_context *context, struct ibv_values_ex *values)
{
	values->comp_mask = 0;
	if (fake_dead(context) || fake.clock_khz == 0) {
		return EOPNOTSUPP;
	}
	const uint64_t ticks = fake_ticks(0);
	values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	/* as the providers do: ticks, cut into what looks like a time */
	values->raw_clock.tv_sec = (time_t)(ticks / 1000000000u);
	values->raw_clock.tv_nsec = (long)(ticks % 1000000000u);
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	FAKE_LOCK;
	const bool ok =
		!fake_dead(context) && port == 1 && index == FAKE_GID_INDEX && !fake.address_gone;
	fake_gid(gid);
	FAKE_UNLOCK;
	return ok ? 0 : -1;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_bytes)
{
	(void)flags;
	(void)entry_bytes;
	if (max == 0 || fake_dead(context) || fake.address_gone) {
		return 0;
	}
	entries[0] = (struct ibv_gid_entry){ .gid_index = FAKE_GID_INDEX,
					     .port_num = 1,
					     .gid_type = fake.infiniband ? IBV_GID_TYPE_IB
									 : IBV_GID_TYPE_ROCE_V2 };
	fake_gid(&entries[0].gid);
	return 1;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	(void)port;
	if (fake_dead(context) || index < 0 || index > 1) {
		return -1;
	}
	*pkey = __builtin_bswap16(fake.pkeys[index]);
	return 0;
}

/* --- contexts, domains, regions ------------------------------------------------------------------- */

static struct ibv_context *open_context(struct ibv_device *device, bool of_cm)
{
	struct fake_context *c = calloc(1, sizeof(*c));
	if (c == NULL || ((struct fake_device *)device)->dead || !fake_queue_open(&c->events)) {
		free(c);
		errno = ENODEV;
		return NULL;
	}
	c->of_cm = of_cm;
	c->verbs.sz = sizeof(c->verbs);
	c->verbs.query_port = query_port;
	c->verbs.query_device_ex = query_device_ex;
	c->verbs.query_rt_values = query_rt_values;
	struct ibv_context *context = &c->verbs.context;
	context->device = device;
	context->async_fd = c->events.fd;
	context->abi_compat = __VERBS_ABI_IS_EXTENDED;
	fake_queue_ops(&c->verbs);
	c->next = contexts;
	contexts = c;
	if (!of_cm) {
		fake_made(FAKE_CONTEXT);
	}
	return context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	FAKE_LOCK;
	struct ibv_context *context = open_context(device, false);
	FAKE_UNLOCK;
	return context;
}

struct ibv_context *fake_cm_context(void)
{
	if (!fake.present) {
		return NULL;
	}
	if (devices->cm == NULL) {
		devices->cm = open_context(&devices->device, true);
	}
	return devices->cm;
}

int ibv_close_device(struct ibv_context *context)
{
	FAKE_LOCK;
	fake_none_left(fake_self(context)->children, "context");
	fake_gone(FAKE_CONTEXT);
	free_context(fake_self(context));
	FAKE_UNLOCK;
	return 0;
}

bool fake_is_of_queue(const void *item, const void *of)
{
	const struct fake_event *event = item;
	return event->event.element.qp == of; /* a union of pointers */
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *out)
{
	FAKE_LOCK;
	if (fake_self(context)->of_cm) {
		fake_fault("the events of a context that others share are taken");
	}
	struct fake_event *event = fake_queue_take(&fake_self(context)->events);
	if (event != NULL) {
		*out = event->event;
		free(event);
		for (struct fake_qp *q = fake_qps; q != NULL; q = q->next) {
			q->events += out->element.qp == &q->qp;
		}
	}
	FAKE_UNLOCK;
	return event != NULL ? 0 : -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	FAKE_LOCK;
	for (struct fake_qp *q = fake_qps; q != NULL; q = q->next) {
		q->events -= event->element.qp == &q->qp;
	}
	FAKE_UNLOCK;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd = NULL;
	FAKE_LOCK;
	if (fake_dead(context)) {
		errno = EIO;
	} else {
		pd = fake_make(sizeof(*pd), FAKE_PD);
	}
	if (pd != NULL) {
		pd->pd.context = context;
		fake_self(context)->children++;
	}
	FAKE_UNLOCK;
	return pd != NULL ? &pd->pd : NULL;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	FAKE_LOCK;
	fake_none_left(((struct fake_pd *)pd)->children, "domain");
	fake_self(pd->context)->children--;
	fake_gone(FAKE_PD);
	free(pd);
	FAKE_UNLOCK;
	return 0;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes, int access)
{
	struct fake_mr *mr = NULL;
	(void)access;
	FAKE_LOCK;
	if (fake_dead(pd->context)) {
		errno = EIO;
	} else {
		mr = fake_make(sizeof(*mr), FAKE_MR);
	}
	if (mr != NULL) {
		mr->mr = (struct ibv_mr){ .context = pd->context,
					  .pd = pd,
					  .addr = addr,
					  .length = bytes,
					  .lkey = ++fake_numbers,
					  .rkey = FAKE_RKEY };
		mr->next = mrs;
		mrs = mr;
		((struct fake_pd *)pd)->children++;
	}
	FAKE_UNLOCK;
	return mr != NULL ? &mr->mr : NULL;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes, uint64_t iova,
				unsigned int access)
{
	(void)iova;
	return ibv_reg_mr(pd, addr, bytes, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	FAKE_LOCK;
	struct fake_mr **at = &mrs;
	while (&(*at)->mr != mr) {
		at = &(*at)->next;
	}
	*at = (*at)->next;
	((struct fake_pd *)mr->pd)->children--;
	fake_gone(FAKE_MR);
	free(mr);
	FAKE_UNLOCK;
	return 0;
}

void fake_check_sge(const struct ibv_pd *pd, const struct ibv_sge *sge)
{
	for (const struct fake_mr *mr = mrs; mr != NULL; mr = mr->next) {
		const uint64_t at = sge->addr - (uintptr_t)mr->mr.addr;
		if (mr->mr.lkey == sge->lkey && mr->mr.pd == pd && at < mr->mr.length &&
		    sge->length <= mr->mr.length - at) {
			return;
		}
	}
	fake_fault("%u bytes outside of their region", sge->length);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	FAKE_LOCK;
	struct fake_ah *ah = fake_dead(pd->context) ? NULL : fake_make(sizeof(*ah), FAKE_AH);
	if (ah != NULL) {
		ah->ah.pd = pd;
		ah->ah.context = pd->context;
		ah->attr = fake.ah = *attr;
		((struct fake_pd *)pd)->children++;
	}
	FAKE_UNLOCK;
	return ah != NULL ? &ah->ah : NULL;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	FAKE_LOCK;
	((struct fake_pd *)ah->pd)->children--;
	fake_gone(FAKE_AH);
	free(ah);
	FAKE_UNLOCK;
	return 0;
}
