/* Sending half of the `verbs` transport.
 *
 * Flows     an endpoint has a queue pair for each of its lines: what one line cannot take, or breaks
 *           on, is nobody else's affair.
 * Memory    datagrams go from where they lie, in memory registered for local reading alone, so that
 *           there is no key that anyone else could use.  What lies elsewhere (a heartbeat) or is
 *           short goes inline; what lies elsewhere and does not fit inline is copied to a slot that
 *           belongs to its place in the queue.
 * Chains    one post of work requests for what one call brings, as far as there is room.
 * Skipping  a queue without room, or one that is being built anew, takes nothing and says so in its
 *           counter.
 * Threads   see ud.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/slab.h"
#include "fabric/udp/udp.h"
#include "fabric/verbs/ud.h"
#include "fabric/verbs/ud_ring.h"

#define DEPTH        1024u /* a power of two: a few batches of every publisher's turn */
#define DEPTH_MIN    64u
#define SIGNAL_EVERY 16u
#define INLINE_BYTES 256u /* wanted: beyond that the device's own read is cheaper than our copy */
#define REAP         32
#define FINISH_NS    100000000u /* for sends under way to end by themselves */
#define DRAIN_NS     200000000u /* for flushed work requests to come back */

struct tx_flow {
	struct tw_ud_flow flow;

	/* the flow's owner */
	struct ibv_cq *cq;
	struct ibv_ah *ah;
	struct ibv_mr *mr, *copies_mr;
	struct tw_ud_ring ring;
	uint32_t inline_bytes;
	uint64_t frozen; /* datagrams done when it was given up */
	uint32_t depth;
	struct tw_counters counters;
	uint64_t *dgram_at;     /* the ring's, DEPTH */
	struct tw_slots copies; /* DEPTH */
	uint8_t *memory;        /* const after open */
	size_t memory_bytes;
};

struct tx_endpoint {
	uint64_t posted;                           /* datagrams */
	struct tx_flow *flow[TW_FABRIC_MAX_LINES]; /* NULL: no such line */
};

struct ud_tx {
	struct tw_tx base;
	struct tw_ud ud;
	uint32_t mtu_bytes, endpoints;
	struct ibv_send_wr wr[TW_TX_BATCH];
	struct ibv_sge sge[TW_TX_BATCH];
	struct ibv_wc wc[REAP];
	struct tx_flow *flows;
	uint32_t flow_count;
	struct tx_endpoint endpoint[];
};

struct tw_ud *tw_ud_of_tx(struct tw_tx *tx)
{
	return &((struct ud_tx *)tx)->ud;
}

/* --- completions --------------------------------------------------------------------------------- */

static void give_up(struct tx_flow *f, uint64_t posted)
{
	f->frozen = tw_ud_ring_done(&f->ring, posted);
	tw_ud_give_up(&f->flow);
}

/* False: the queue pair is broken. */
static bool reap(struct tx_flow *f, struct ibv_wc *wc)
{
	int n;
	do {
		n = ibv_poll_cq(f->cq, REAP, wc);
		for (int i = 0; i < n; i++) {
			/* of a failed one nothing holds but its number */
			const bool ok = wc[i].status == IBV_WC_SUCCESS;
			if (!ok) {
				tw_counter_add(&f->counters, TW_PUB_LINE_errors, 1);
			}
			if (!tw_ud_ring_complete(&f->ring, wc[i].wr_id) || !ok) {
				return false;
			}
		}
	} while (n == REAP);
	return n >= 0;
}

static uint64_t flow_done(struct ud_tx *tx, struct tx_flow *f, uint64_t posted)
{
	/* VB2: pairs with VB1, VB5 */
	const uint32_t state = atomic_load_explicit(&f->flow.state, memory_order_acquire);
	if (__builtin_expect(state != TW_UD_HOT, 0)) {
		if (state == TW_UD_RECALLED) {
			give_up(f, posted);
		}
		/* a device that may still read the memory holds it */
		return state == TW_UD_GONE ? posted : f->frozen;
	}
	if (tw_ud_ring_used(&f->ring) > 0 && !reap(f, tx->wc)) {
		give_up(f, posted);
		return f->frozen;
	}
	return tw_ud_ring_done(&f->ring, posted);
}

static uint64_t ud_tx_completed(struct tw_tx *base, uint32_t endpoint)
{
	struct ud_tx *tx = (struct ud_tx *)base;
	TW_ASSERT(endpoint < tx->endpoints);
	struct tx_endpoint *ep = &tx->endpoint[endpoint];
	uint64_t done = ep->posted;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (ep->flow[l] != NULL) {
			const uint64_t of_line = flow_done(tx, ep->flow[l], ep->posted);
			done = of_line < done ? of_line : done;
		}
	}
	return done;
}

static void ud_tx_overtaken(struct tw_tx *base, uint32_t endpoint)
{
	struct ud_tx *tx = (struct ud_tx *)base;
	TW_ASSERT(endpoint < tx->endpoints);
	struct tx_endpoint *ep = &tx->endpoint[endpoint];
	uint64_t done[TW_FABRIC_MAX_LINES] = { 0 }, most = 0;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (ep->flow[l] != NULL) {
			done[l] = flow_done(tx, ep->flow[l], ep->posted);
			most = done[l] > most ? done[l] : most;
		}
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		/* VB2: pairs with VB1, VB5 */
		if (ep->flow[l] != NULL && done[l] < most &&
		    atomic_load_explicit(&ep->flow[l]->flow.state, memory_order_acquire) ==
			    TW_UD_HOT) {
			give_up(ep->flow[l], ep->posted);
		}
	}
}

/* --- posting ------------------------------------------------------------------------------------- */

static bool is_registered(const struct tx_flow *f, const struct tw_tx_dgram *dgram)
{
	const size_t at = (size_t)(dgram->data - f->memory); /* before it: far beyond the end */
	return at < f->memory_bytes && dgram->len_bytes <= f->memory_bytes - at;
}

static void fill(struct ud_tx *tx, struct tx_flow *f, unsigned int i,
		 const struct tw_tx_dgram *dgram, uint64_t number, bool last)
{
	struct ibv_sge *sge = &tx->sge[i];
	struct ibv_send_wr *wr = &tx->wr[i];
	unsigned int flags = tw_ud_ring_post(&f->ring, number, last) ? IBV_SEND_SIGNALED : 0;

	*sge = (struct ibv_sge){ .addr = (uintptr_t)dgram->data, .length = dgram->len_bytes };
	if (dgram->len_bytes <= f->inline_bytes) {
		flags |= IBV_SEND_INLINE;
	} else if (is_registered(f, dgram)) {
		sge->lkey = f->mr->lkey;
	} else {
		uint8_t *copy =
			tw_slots_dgram(&f->copies, (uint32_t)(f->ring.posted & (f->depth - 1)));
		memcpy(copy, dgram->data, dgram->len_bytes);
		sge->addr = (uintptr_t)copy;
		sge->lkey = f->copies_mr->lkey;
	}
	wr->wr_id = f->ring.posted;
	wr->next = last ? NULL : &tx->wr[i + 1];
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = flags;
	wr->wr.ud.ah = f->ah;
	wr->wr.ud.remote_qpn = f->flow.remote_qpn;
	wr->wr.ud.remote_qkey = f->flow.remote_qkey;
}

/* Posts what there is room for; returns how many the queue took. */
static unsigned int post_line(struct ud_tx *tx, struct tx_flow *f, uint64_t posted,
			      const struct tw_tx_dgram *dgrams, unsigned int n)
{
	/* VB2: pairs with VB1, VB5 */
	const uint32_t state = atomic_load_explicit(&f->flow.state, memory_order_acquire);
	if (__builtin_expect(state != TW_UD_HOT, 0)) {
		if (state == TW_UD_RECALLED) {
			give_up(f, posted);
		}
		return 0;
	}
	if (tw_ud_ring_room(&f->ring) < n && !reap(f, tx->wc)) {
		give_up(f, posted);
		return 0;
	}
	const uint32_t room = tw_ud_ring_room(&f->ring);
	const unsigned int fits = n < room ? n : room;
	if (fits == 0) {
		return 0;
	}
	for (unsigned int i = 0; i < fits; i++) {
		fill(tx, f, i, &dgrams[i], posted + i + 1, i + 1 == fits);
	}
	struct ibv_send_wr *bad = NULL;
	const int cause = ibv_post_send(f->flow.qp, tx->wr, &bad);
	if (__builtin_expect(cause == 0, 1)) {
		return fits;
	}
	const unsigned int taken = (unsigned int)(bad - tx->wr);
	tw_ud_ring_unpost(&f->ring, fits - taken);
	if (cause != ENOMEM) { /* that is a full queue, smaller than was asked for */
		tw_counter_add(&f->counters, TW_PUB_LINE_errors, 1);
		give_up(f, posted + taken);
	}
	return taken;
}

static void ud_tx_post(struct tw_tx *base, uint32_t endpoint, const struct tw_tx_dgram *dgrams,
		       unsigned int n)
{
	struct ud_tx *tx = (struct ud_tx *)base;
	TW_ASSERT(endpoint < tx->endpoints && n <= TW_TX_BATCH);
	struct tx_endpoint *ep = &tx->endpoint[endpoint];
	uint64_t bytes[TW_TX_BATCH + 1]; /* of the first so many */
	bytes[0] = 0;
	for (unsigned int i = 0; i < n; i++) {
		TW_ASSERT(dgrams[i].len_bytes <= tx->mtu_bytes && dgrams[i].len_bytes % 4 == 0);
		bytes[i + 1] = bytes[i] + dgrams[i].len_bytes;
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		struct tx_flow *f = ep->flow[l];
		if (f == NULL) {
			continue;
		}
		const unsigned int taken = post_line(tx, f, ep->posted, dgrams, n);
		tw_counter_add(&f->counters, TW_PUB_LINE_datagrams, taken);
		tw_counter_add(&f->counters, TW_PUB_LINE_bytes, bytes[taken]);
		if (__builtin_expect(taken < n, 0)) {
			tw_counter_add(&f->counters, TW_PUB_LINE_skipped, n - taken);
		}
	}
	ep->posted += n;
}

/* --- building and taking apart --------------------------------------------------------------------- */

/* Waits for sends to end by themselves, then flushes.  A work request of our own behind the last one
 * comes back when all before it have.  The time is looked at before the queue: a thread that stood
 * still meanwhile looks once more. */
static uint32_t drain(struct tx_flow *f)
{
	struct ibv_wc wc[REAP]; /* not the hot thread's */
	struct tw_ud_ring *ring = &f->ring;
	uint64_t until_ns = tw_mono_ns() + FINISH_NS;
	for (bool late = false; ring->signalled > ring->completed && !late;) {
		late = tw_mono_ns() >= until_ns;
		late = !reap(f, wc) || late;
	}
	if (tw_ud_ring_used(ring) == 0) {
		return 0;
	}
	tw_ud_qp_flush(&f->flow);
	struct ibv_send_wr *bad = NULL;
	struct ibv_send_wr wr = { .wr_id = ring->posted + 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.ud = { .ah = f->ah,
					     .remote_qpn = f->flow.remote_qpn,
					     .remote_qkey = f->flow.remote_qkey } };
	const bool marked = ibv_post_send(f->flow.qp, &wr, &bad) == 0;
	ring->posted += marked;
	until_ns = tw_mono_ns() + DRAIN_NS;
	while (tw_ud_ring_used(ring) > 0) {
		const bool late = tw_mono_ns() >= until_ns;
		const int n = ibv_poll_cq(f->cq, REAP, wc);
		for (int i = 0; i < n; i++) {
			(void)tw_ud_ring_complete(ring, wc[i].wr_id);
		}
		if (n < 0 || (n == 0 && late)) {
			break;
		}
	}
	return tw_ud_ring_used(ring);
}

static uint32_t unbuild(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	struct tx_flow *f = (struct tx_flow *)flow;
	uint32_t lost = 0;
	(void)ud;
	if (flow->qp != NULL) {
		lost = f->ah != NULL ? drain(f) : 0;
		(void)ibv_destroy_qp(flow->qp);
		flow->qp = NULL;
	}
	if (f->ah != NULL) {
		(void)ibv_destroy_ah(f->ah);
		f->ah = NULL;
	}
	if (f->cq != NULL) {
		(void)ibv_destroy_cq(f->cq);
		f->cq = NULL;
	}
	struct ibv_mr **mrs[] = { &f->mr, &f->copies_mr };
	for (unsigned int i = 0; i < 2; i++) {
		if (*mrs[i] != NULL) {
			(void)ibv_dereg_mr(*mrs[i]);
			*mrs[i] = NULL;
		}
	}
	return lost;
}

/* Asks for inline room, and for less where the device has not so much. */
static int make_qp(struct ud_tx *tx, struct tx_flow *f, struct tw_error *err)
{
	struct tw_ud_line *line = &tx->ud.lines[f->flow.line];
	static const uint32_t wanted[] = { INLINE_BYTES, 64, 0 };
	for (unsigned int i = 0; i < sizeof(wanted) / sizeof(wanted[0]) && f->flow.qp == NULL;
	     i++) {
		/* one more than the ring uses: for the mark behind the last one */
		struct ibv_qp_init_attr attr = { .send_cq = f->cq,
						 .recv_cq = f->cq,
						 .cap = { .max_send_wr = f->depth + 1,
							  .max_recv_wr = 1,
							  .max_send_sge = 1,
							  .max_recv_sge = 1,
							  .max_inline_data = wanted[i] },
						 .qp_type = IBV_QPT_UD };
		f->flow.qp = ibv_create_qp(line->pd, &attr);
		f->inline_bytes = attr.cap.max_inline_data < INLINE_BYTES ? attr.cap.max_inline_data
									  : INLINE_BYTES;
	}
	return f->flow.qp != NULL ? TW_OK
				  : tw_ud_fail(&tx->ud, &f->flow, errno, "ibv_create_qp", err);
}

static int register_memory(struct ud_tx *tx, struct tx_flow *f, struct tw_error *err)
{
	struct ibv_pd *pd = tx->ud.lines[f->flow.line].pd;
	if (f->memory_bytes > 0) {
		f->mr = ibv_reg_mr(pd, f->memory, f->memory_bytes, 0);
		if (f->mr == NULL) {
			return tw_ud_fail(&tx->ud, &f->flow, errno,
					  "ibv_reg_mr of the history (see ulimit -l)", err);
		}
	}
	f->copies_mr = ibv_reg_mr(pd, f->copies.slab.base, f->copies.slab.size_bytes, 0);
	return f->copies_mr != NULL ? TW_OK
				    : tw_ud_fail(&tx->ud, &f->flow, errno, "ibv_reg_mr", err);
}

static int make_ah(struct ud_tx *tx, struct tx_flow *f, struct tw_error *err)
{
	struct tw_ud_line *line = &tx->ud.lines[f->flow.line];
	struct ibv_ah_attr attr = f->flow.ah;
	/* rdma_cm leaves the traffic class 0, whatever RDMA_OPTION_ID_TOS said */
	attr.is_global = 1;
	attr.port_num = line->device.facts.port;
	attr.grh.sgid_index = (uint8_t)line->device.facts.gid_index;
	attr.grh.traffic_class = tx->ud.tos;
	attr.grh.hop_limit = tx->ud.ttl;
	f->ah = ibv_create_ah(line->pd, &attr);
	return f->ah != NULL ? TW_OK : tw_ud_fail(&tx->ud, &f->flow, errno, "ibv_create_ah", err);
}

static int build(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	struct ud_tx *tx = (void *)((char *)ud - offsetof(struct ud_tx, ud));
	struct tx_flow *f = (struct tx_flow *)flow;
	int rc = TW_OK;

	/* what is not known to be done holds memory: a log of a few datagrams must not wait for it */
	const size_t quarter = f->memory_bytes / tx->mtu_bytes / 4;
	const uint32_t every = quarter >= SIGNAL_EVERY ? SIGNAL_EVERY
			       : quarter > 0           ? (uint32_t)quarter
						       : 1;
	tw_ud_ring_init(&f->ring, f->dgram_at, f->depth, every);
	f->cq = ibv_create_cq(ud->lines[flow->line].device.context, (int)f->depth * 3 / 2 + 1, f,
			      NULL, 0);
	if (f->cq == NULL) {
		rc = tw_ud_fail(ud, flow, errno, "ibv_create_cq", err);
	}
	if (rc == TW_OK) {
		rc = make_qp(tx, f, err);
	}
	if (rc == TW_OK) {
		rc = register_memory(tx, f, err);
	}
	if (rc == TW_OK) {
		rc = tw_ud_qp_up(ud, flow, err);
	}
	if (rc == TW_OK) {
		rc = make_ah(tx, f, err);
	}
	if (rc != TW_OK) {
		(void)unbuild(ud, flow);
	}
	return rc;
}

static const struct tw_ud_flow_ops flow_ops = { .build = build, .unbuild = unbuild };

/* --- opening and closing ----------------------------------------------------------------------------- */

static const char *ud_tx_describe(const struct tw_tx *base, unsigned int line)
{
	return line < TW_FABRIC_MAX_LINES ? ((const struct ud_tx *)base)->ud.lines[line].text : "";
}

static bool ud_tx_note(struct tw_tx *base, struct tw_error *out)
{
	return tw_ud_note(&((struct ud_tx *)base)->ud, out);
}

static void ud_tx_close(struct tw_tx *base)
{
	struct ud_tx *tx = (struct ud_tx *)base;
	tw_ud_fini(&tx->ud);
	for (uint32_t i = 0; tx->flows != NULL && i < tx->flow_count; i++) {
		tw_slots_fini(&tx->flows[i].copies);
		free(tx->flows[i].dgram_at);
	}
	free(tx->flows);
	free(tx);
}

static const struct tw_tx_ops ud_tx_ops = {
	.post = ud_tx_post,
	.completed = ud_tx_completed,
	.overtaken = ud_tx_overtaken,
	.describe = ud_tx_describe,
	.note = ud_tx_note,
	.close = ud_tx_close,
};

static uint32_t choose_depth(const struct tw_verbs_facts *facts)
{
	uint32_t depth = DEPTH;
	while (depth > DEPTH_MIN &&
	       (depth + 1 > facts->max_qp_wr || depth * 3 / 2 + 1 > facts->max_cqe)) {
		depth /= 2;
	}
	return depth;
}

static int open_flow(struct ud_tx *tx, struct tx_flow *f, const struct tw_tx_endpoint *want,
		     unsigned int l, struct tw_error *err)
{
	f->flow.ops = &flow_ops;
	f->flow.group = want->groups[l];
	f->flow.line = (uint8_t)l;
	f->counters = want->counters[l];
	f->memory = want->memory;
	f->memory_bytes = want->memory_bytes;
	f->depth = choose_depth(&tx->ud.lines[l].device.facts);
	f->dgram_at = calloc(f->depth, sizeof(f->dgram_at[0]));
	if (f->dgram_at == NULL) {
		return tw_fail(err, TW_ENOMEM, "verbs sender: calloc: %u sends", f->depth);
	}
	int rc = tw_slots_init(&f->copies, f->depth, tx->mtu_bytes, err);
	return rc == TW_OK ? tw_ud_add(&tx->ud, &f->flow, err) : rc;
}

static int open_all(struct ud_tx *tx, const struct tw_fabric_conf *conf,
		    const struct tw_tx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	uint32_t groups[TW_FABRIC_MAX_LINES] = { 0 };
	for (uint32_t i = 0; i < n; i++) {
		for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
			groups[l] += endpoints[i].groups[l] != 0;
			tx->flow_count += endpoints[i].groups[l] != 0;
		}
	}
	const size_t bytes = (tx->flow_count == 0 ? 1 : tx->flow_count) * sizeof(struct tx_flow);
	tx->flows = aligned_alloc(_Alignof(struct tx_flow), bytes);
	if (tx->flows == NULL) {
		return tw_fail(err, TW_ENOMEM, "verbs sender: aligned_alloc: %zu bytes", bytes);
	}
	memset(tx->flows, 0, bytes);
	int rc = tw_ud_init(&tx->ud, "send", conf, groups, err);
	struct tx_flow *next = tx->flows;
	for (uint32_t i = 0; i < n && rc == TW_OK; i++) {
		for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES && rc == TW_OK; l++) {
			if (endpoints[i].groups[l] != 0) {
				tx->endpoint[i].flow[l] = next;
				rc = open_flow(tx, next++, &endpoints[i], l, err);
			}
		}
	}
	return rc == TW_OK ? tw_ud_start(&tx->ud, err) : rc;
}

int tw_ud_tx_open(struct tw_tx **tx_p, const struct tw_fabric_conf *conf,
		  const struct tw_tx_endpoint *endpoints, uint32_t n, struct tw_error *err)
{
	*tx_p = NULL;
	int rc = tw_udp_check_mtu(conf, err);
	if (rc != TW_OK) {
		return rc;
	}
	struct ud_tx *tx = calloc(1, sizeof(*tx) + n * sizeof(tx->endpoint[0]));
	if (tx == NULL) {
		return tw_fail(err, TW_ENOMEM, "verbs sender: calloc: %u endpoints", n);
	}
	tx->base.ops = &ud_tx_ops;
	tx->base.batch_dgrams = TW_TX_BATCH;
	tx->mtu_bytes = conf->mtu_bytes;
	tx->endpoints = n;
	rc = open_all(tx, conf, endpoints, n, err);
	if (rc != TW_OK) {
		ud_tx_close(&tx->base);
		return rc;
	}
	*tx_p = &tx->base;
	return TW_OK;
}
