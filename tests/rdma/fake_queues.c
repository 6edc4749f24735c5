/* libibverbs without a device: completion queues, queue pairs, and the network between them.  See fake_verbs.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/rdma/fake_verbs_impl.h"

#define GRH    40u
#define POISON 0xa5
#define MTU    4096u

/* --- completion queues ------------------------------------------------------------------------------ */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	FAKE_LOCK;
	struct fake_channel *c = fake_dead(context) ? NULL : fake_make(sizeof(*c), FAKE_CHANNEL);
	if (c != NULL && fake_queue_open(&c->events)) {
		c->channel.context = context;
		c->channel.fd = c->events.fd;
		fake_self(context)->children++;
	}
	FAKE_UNLOCK;
	return c != NULL ? &c->channel : NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct fake_channel *c = (struct fake_channel *)channel;
	FAKE_LOCK;
	fake_none_left(c->children, "completion channel");
	fake_self(channel->context)->children--;
	fake_gone(FAKE_CHANNEL);
	c->events.count = 0; /* they are queues, not the channel's */
	fake_queue_close(&c->events);
	free(c);
	FAKE_UNLOCK;
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	FAKE_LOCK;
	struct fake_cq *q = fake_queue_take(&((struct fake_channel *)channel)->events);
	if (q != NULL) {
		*cq = &q->cq;
		*context = q->cq.cq_context;
		q->events++;
	}
	FAKE_UNLOCK;
	return q != NULL ? 0 : -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	FAKE_LOCK;
	((struct fake_cq *)cq)->acked += n;
	FAKE_UNLOCK;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
			     struct ibv_comp_channel *channel, int vector)
{
	(void)vector;
	FAKE_LOCK;
	struct fake_cq *q = fake_dead(context) ? NULL : fake_make(sizeof(*q), FAKE_CQ);
	if (q != NULL) {
		q->cq.context = context;
		q->cq.cq_context = cq_context;
		q->cq.channel = channel;
		q->cq.cqe = entries;
		fake_self(context)->children++;
		if (channel != NULL) {
			((struct fake_channel *)channel)->children++;
		}
	}
	FAKE_UNLOCK;
	return q != NULL ? &q->cq : NULL;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *q = (struct fake_cq *)cq;
	FAKE_LOCK;
	fake_none_left(q->children, "completion queue");
	if (q->events != q->acked) {
		fake_fault("%u completion events not acknowledged", q->events - q->acked);
	}
	if (cq->channel != NULL) {
		struct fake_queue *events = &((struct fake_channel *)cq->channel)->events;
		for (unsigned int i = 0; i < events->count;) {
			if (events->items[i] == q) {
				(void)fake_queue_take_at(events, i);
			} else {
				i++;
			}
		}
		((struct fake_channel *)cq->channel)->children--;
	}
	fake_self(cq->context)->children--;
	fake_gone(FAKE_CQ);
	free(q);
	FAKE_UNLOCK;
	return 0;
}

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
	struct fake_cq *q = (struct fake_cq *)cq;
	if (q->last - q->first >= (uint32_t)cq->cqe) {
		fake_fault("a completion queue of %d overflows", cq->cqe);
		return;
	}
	struct ibv_wc *at = &q->ring[q->last % FAKE_RING];
	*at = *wc;
	q->ticks[q->last++ % FAKE_RING] = fake_ticks(fake.age_ns) & fake.timestamp_mask;
	if (wc->status != IBV_WC_SUCCESS) {
		memset(at, POISON, sizeof(*at));
		at->wr_id = wc->wr_id;
		at->status = wc->status;
		at->qp_num = wc->qp_num;
	}
	if (q->armed && cq->channel != NULL) {
		struct fake_queue *events = &((struct fake_channel *)cq->channel)->events;
		uint64_t one = 1;
		q->armed = false;
		if (write(events->fd, &one, sizeof(one)) == sizeof(one)) {
			events->items[events->count++] = q;
		}
	}
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *out)
{
	struct fake_cq *q = (struct fake_cq *)cq;
	int n = 0;
	FAKE_LOCK;
	while (n < max && q->first != q->last) {
		out[n++] = q->ring[q->first++ % FAKE_RING];
	}
	FAKE_UNLOCK;
	return n;
}

static int req_notify(struct ibv_cq *cq, int solicited)
{
	(void)solicited;
	FAKE_LOCK;
	((struct fake_cq *)cq)->armed = true;
	FAKE_UNLOCK;
	return fake_dead(cq->context) ? EIO : 0;
}

/* --- extended ones ----------------------------------------------------------------------------------- */

static struct fake_cq *of_ex(struct ibv_cq_ex *cq)
{
	return (struct fake_cq *)cq;
}

static const struct ibv_wc *now_of(struct ibv_cq_ex *cq)
{
	struct fake_cq *q = of_ex(cq);
	if (!q->polling || cq->status != IBV_WC_SUCCESS) {
		fake_fault("a field is read that does not hold");
	}
	return &q->ring[q->first % FAKE_RING];
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct fake_cq *q = of_ex(cq);
	(void)attr;
	FAKE_LOCK;
	q->polling = q->first != q->last;
	if (q->polling) {
		cq->wr_id = q->ring[q->first % FAKE_RING].wr_id;
		cq->status = q->ring[q->first % FAKE_RING].status;
	}
	const bool any = q->polling;
	FAKE_UNLOCK;
	return any ? 0 : ENOENT;
}

static void end_poll(struct ibv_cq_ex *cq)
{
	FAKE_LOCK;
	of_ex(cq)->first++;
	of_ex(cq)->polling = false;
	FAKE_UNLOCK;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return now_of(cq)->byte_len;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return now_of(cq)->wc_flags;
}

static uint64_t read_ts(struct ibv_cq_ex *cq)
{
	(void)now_of(cq);
	if ((of_ex(cq)->flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) == 0) {
		fake_fault("a stamp is read that was not asked for");
	}
	return of_ex(cq)->ticks[of_ex(cq)->first % FAKE_RING];
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	struct fake_cq *q = (struct fake_cq *)ibv_create_cq(context, (int)attr->cqe,
							    attr->cq_context, attr->channel, 0);
	if (q == NULL) {
		return NULL;
	}
	q->flags = attr->wc_flags;
	q->ex.start_poll = start_poll;
	q->ex.end_poll = end_poll;
	q->ex.read_byte_len = read_byte_len;
	q->ex.read_wc_flags = read_wc_flags;
	q->ex.read_completion_ts = read_ts;
	return &q->ex;
}

/* --- queue pairs -------------------------------------------------------------------------------------- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	FAKE_LOCK;
	struct fake_srq *s = fake_dead(pd->context) ? NULL : fake_make(sizeof(*s), FAKE_SRQ);
	if (s != NULL) {
		s->srq.context = pd->context;
		s->srq.pd = pd;
		s->ring.room = attr->attr.max_wr;
		((struct fake_pd *)pd)->children++;
	}
	FAKE_UNLOCK;
	return s != NULL ? &s->srq : NULL;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	FAKE_LOCK;
	((struct fake_pd *)srq->pd)->children--;
	fake_gone(FAKE_SRQ);
	free(srq);
	FAKE_UNLOCK;
	return 0;
}

#undef ibv_create_qp
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	FAKE_LOCK;
	struct fake_qp *q = NULL;
	if (fake_dead(pd->context) || attr->cap.max_inline_data > fake.max_inline) {
		errno = fake_dead(pd->context) ? EIO : EINVAL;
	} else {
		q = fake_make(sizeof(*q), FAKE_QP);
	}
	if (q != NULL) {
		q->qp = (struct ibv_qp){ .context = pd->context,
					 .pd = pd,
					 .send_cq = attr->send_cq,
					 .recv_cq = attr->recv_cq,
					 .srq = attr->srq,
					 .qp_num = ++fake_numbers,
					 .qp_type = attr->qp_type };
		q->ring.room = attr->cap.max_recv_wr;
		q->max_send = attr->cap.max_send_wr;
		q->max_inline = attr->cap.max_inline_data;
		q->next = fake_qps;
		fake_qps = q;
		((struct fake_pd *)pd)->children++;
		((struct fake_cq *)attr->send_cq)->children++;
		((struct fake_cq *)attr->recv_cq)->children++;
	}
	FAKE_UNLOCK;
	return q != NULL ? &q->qp : NULL;
}

const struct ibv_qp *fake_find_qp(uint32_t qp_num)
{
	const struct fake_qp *q = fake_qps;
	while (q != NULL && q->qp.qp_num != qp_num) {
		q = q->next;
	}
	return q != NULL ? &q->qp : NULL;
}

struct fake_qp *fake_newest(void)
{
	FAKE_LOCK;
	struct fake_qp *q = fake_qps;
	FAKE_UNLOCK;
	return q;
}

uint32_t fake_number(const struct fake_qp *qp)
{
	return qp->qp.qp_num;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp, **at = &fake_qps;
	FAKE_LOCK;
	if (q->events != 0) {
		fake_fault("a queue pair goes before %u of its events are acknowledged", q->events);
	}
	if (q->attached) {
		fake_fault("a queue pair goes that is attached to a group");
	}
	fake_queue_drop(&fake_self(qp->context)->events, fake_is_of_queue, qp);
	while (*at != q) {
		at = &(*at)->next;
	}
	*at = q->next;
	((struct fake_pd *)qp->pd)->children--;
	((struct fake_cq *)qp->send_cq)->children--;
	((struct fake_cq *)qp->recv_cq)->children--;
	fake_gone(FAKE_QP);
	free(q);
	FAKE_UNLOCK;
	return 0;
}

static void finish(struct fake_qp *q, struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status)
{
	complete(cq, &(struct ibv_wc){ .wr_id = wr_id, .status = status, .qp_num = q->qp.qp_num });
}

static void flush(struct fake_qp *q)
{
	for (uint32_t i = 0; i < q->stalled_count; i++) {
		finish(q, q->qp.send_cq, q->stalled[i].wr_id, IBV_WC_WR_FLUSH_ERR);
	}
	q->stalled_count = 0;
	while (q->ring.first != q->ring.last) {
		finish(q, q->qp.recv_cq, q->ring.recvs[q->ring.first++ % FAKE_RING].wr_id,
		       IBV_WC_WR_FLUSH_ERR);
	}
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	int rc = 0;
	FAKE_LOCK;
	if (fake_dead(qp->context)) {
		rc = EIO;
	} else if ((mask & IBV_QP_STATE) != 0) {
		qp->state = attr->qp_state;
		if (attr->qp_state == IBV_QPS_ERR) {
			flush(q);
		} else if (attr->qp_state == IBV_QPS_INIT) {
			fake.pkey_index = attr->pkey_index;
		}
	}
	FAKE_UNLOCK;
	return rc;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	FAKE_LOCK;
	const bool ok = !fake_dead(qp->context) && lid == (fake.infiniband ? FAKE_MLID : 0);
	if (ok) {
		memcpy(q->group, gid->raw, sizeof(q->group));
		q->attached = true;
	}
	FAKE_UNLOCK;
	return ok ? 0 : EIO;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	(void)lid;
	FAKE_LOCK;
	const bool ok = q->attached && memcmp(q->group, gid->raw, sizeof(q->group)) == 0;
	q->attached = q->attached && !ok;
	FAKE_UNLOCK;
	return ok ? 0 : EINVAL;
}

/* --- posting, and the network --------------------------------------------------------------------------- */

static int post_ring(struct fake_ring *ring, const struct ibv_pd *pd, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	unsigned int taken = 0;
	for (; wr != NULL; wr = wr->next, taken++) {
		int rc = ring->last - ring->first >= ring->room ? ENOMEM : 0;
		if (fake.receive_cause != 0 && taken == fake.take) {
			rc = fake.receive_cause;
			fake.receive_cause = 0;
		}
		if (rc != 0) {
			*bad = wr;
			return rc;
		}
		struct fake_recv *r = &ring->recvs[ring->last++ % FAKE_RING];
		*r = (struct fake_recv){ .wr_id = wr->wr_id, .count = wr->num_sge };
		for (int i = 0; i < wr->num_sge && i < 2; i++) {
			r->sge[i] = wr->sg_list[i];
			fake_check_sge(pd, &r->sge[i]);
		}
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	FAKE_LOCK;
	*bad = wr;
	int rc = fake_dead(qp->context) ? EIO
					: post_ring(&((struct fake_qp *)qp)->ring, qp->pd, wr, bad);
	if (rc == 0 && qp->state == IBV_QPS_ERR) {
		flush((struct fake_qp *)qp);
	}
	FAKE_UNLOCK;
	return rc;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	FAKE_LOCK;
	*bad = wr;
	int rc = fake_dead(srq->context)
			 ? EIO
			 : post_ring(&((struct fake_srq *)srq)->ring, srq->pd, wr, bad);
	FAKE_UNLOCK;
	return rc;
}

static void receive(struct fake_qp *q, const uint8_t *grh, const uint8_t *data, uint32_t bytes)
{
	uint8_t all[GRH + MTU];
	const uint32_t head = grh != NULL ? GRH : 0;
	struct fake_ring *ring =
		q->qp.srq != NULL ? &((struct fake_srq *)q->qp.srq)->ring : &q->ring;
	if (ring->first == ring->last || bytes > MTU) {
		return; /* nobody has room for it */
	}
	if (grh != NULL) {
		memcpy(all, grh, GRH);
	}
	memcpy(all + head, data, bytes);
	const struct fake_recv *r = &ring->recvs[ring->first++ % FAKE_RING];
	if (fake.receive_status != IBV_WC_SUCCESS) {
		finish(q, q->qp.recv_cq, r->wr_id, fake.receive_status);
		fake.receive_status = IBV_WC_SUCCESS;
		q->qp.state = IBV_QPS_ERR;
		flush(q);
		return;
	}
	uint32_t at = 0;
	for (int i = 0; i < r->count && at < head + bytes; i++) {
		const uint32_t left = head + bytes - at;
		const uint32_t n = r->sge[i].length < left ? r->sge[i].length : left;
		memcpy((void *)(uintptr_t)r->sge[i].addr, all + at, n);
		at += n;
	}
	complete(q->qp.recv_cq, &(struct ibv_wc){ .wr_id = r->wr_id,
						  .status = IBV_WC_SUCCESS,
						  .byte_len = head + bytes,
						  .qp_num = q->qp.qp_num,
						  .wc_flags = grh != NULL ? IBV_WC_GRH : 0 });
}

void fake_answer(struct fake_qp *qp, const void *data, uint32_t bytes)
{
	FAKE_LOCK;
	receive(qp, NULL, data, bytes);
	FAKE_UNLOCK;
}

static void multicast(const union ibv_gid *to, const uint8_t *data, uint32_t bytes)
{
	uint8_t grh[GRH];
	const uint32_t src = __builtin_bswap32(FAKE_SENDER);
	memset(grh, POISON, sizeof(grh));
	if (fake.infiniband) {
		grh[0] = 0x60;
		memcpy(grh + 24, to->raw, 16);
	} else {
		grh[20] = 0x45;
		memcpy(grh + 32, &src, sizeof(src));
		memcpy(grh + 36, to->raw + 12, 4);
	}
	for (struct fake_qp *q = fake_qps; q != NULL; q = q->next) {
		if (q->attached && !fake_dead(q->qp.context) && q->qp.state >= IBV_QPS_RTR &&
		    q->qp.state <= IBV_QPS_RTS &&
		    memcmp(q->group, to->raw, sizeof(q->group)) == 0) {
			receive(q, grh, data, bytes);
		}
	}
}

static void transmit(struct fake_qp *q, const struct ibv_send_wr *wr)
{
	uint8_t data[MTU];
	uint32_t bytes = 0;
	if (wr->opcode == IBV_WR_RDMA_WRITE) {
		fake.writes++;
		if (wr->num_sge != 0) {
			fake_fault("an RDMA WRITE of something");
		}
		return;
	}
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];
		if ((wr->send_flags & IBV_SEND_INLINE) == 0) {
			fake_check_sge(q->qp.pd, sge);
		}
		if (wr->opcode == IBV_WR_RDMA_READ) {
			fake.reads++;
			memcpy((void *)(uintptr_t)sge->addr,
			       (const void *)(uintptr_t)wr->wr.rdma.remote_addr, sge->length);
			return;
		}
		memcpy(data, (const void *)(uintptr_t)sge->addr, sge->length);
		bytes = sge->length;
	}
	if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
		fake.inlined++;
		fake.largest_inlined = bytes > fake.largest_inlined ? bytes : fake.largest_inlined;
	} else {
		fake.smallest_read = bytes < fake.smallest_read ? bytes : fake.smallest_read;
	}
	if (q->qp.qp_type == IBV_QPT_UD) {
		multicast(&((const struct fake_ah *)wr->wr.ud.ah)->attr.grh.dgid, data, bytes);
	} else if (fake.on_send != NULL) {
		fake.on_send(q, data, bytes);
	}
}

static int send_one(struct fake_qp *q, const struct ibv_send_wr *wr)
{
	const uint32_t bytes = wr->num_sge > 0 ? wr->sg_list[0].length : 0;
	if ((wr->send_flags & IBV_SEND_INLINE) != 0 && bytes > q->max_inline) {
		return EINVAL;
	}
	if (q->qp.state == IBV_QPS_ERR) {
		finish(q, q->qp.send_cq, wr->wr_id, IBV_WC_WR_FLUSH_ERR);
		return 0;
	}
	if (q->stalled_count >= q->max_send) {
		return ENOMEM;
	}
	fake.posted++;
	if (fake.stall) {
		q->stalled[q->stalled_count++].wr_id = wr->wr_id;
		return 0;
	}
	if (q->qp.qp_num == fake.gone) {
		finish(q, q->qp.send_cq, wr->wr_id, IBV_WC_RETRY_EXC_ERR);
		q->qp.state = IBV_QPS_ERR;
		flush(q);
		return 0;
	}
	transmit(q, wr);
	if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) {
		finish(q, q->qp.send_cq, wr->wr_id, IBV_WC_SUCCESS);
	}
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	int rc = 0;
	FAKE_LOCK;
	for (unsigned int taken = 0; wr != NULL && rc == 0; wr = rc == 0 ? wr->next : wr, taken++) {
		if (fake_dead(qp->context)) {
			rc = EIO;
		} else if (fake.send_cause != 0 && taken == fake.take) {
			rc = fake.send_cause;
			fake.send_cause = 0;
		} else {
			rc = send_one((struct fake_qp *)qp, wr);
		}
		*bad = wr;
	}
	FAKE_UNLOCK;
	return rc;
}

void fake_queue_ops(struct verbs_context *verbs)
{
	verbs->create_cq_ex = create_cq_ex;
	verbs->context.ops.poll_cq = poll_cq;
	verbs->context.ops.req_notify_cq = req_notify;
	verbs->context.ops.post_send = post_send;
	verbs->context.ops.post_recv = post_recv;
	verbs->context.ops.post_srq_recv = post_srq_recv;
}
