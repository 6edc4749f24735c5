/* Receiving half of the `verbs` transport.
 *
 * Flows     an endpoint is a queue pair on its group with a completion queue and slots of its own, so
 *           that what is borrowed, posted and waiting is one endpoint's affair.
 * Slots     40 bytes of GRH end where the datagram begins, on a cache line.  A slot is posted, or
 *           waits here (stash), or is lent until the next poll, or is spare; spare ones are
 *           posted in chains.
 * Room      the completion queue holds twice what can be posted: it never overflows, whatever comes.
 * Healing   a flow is given up at the beginning of a poll, when nothing of it is lent any more.
 * Stamps    the device's, converted (stamp.h), where it has a clock that can be read and checked;
 *           else the wall clock once for each look at the queue.
 * Hostile   GRH and datagram: the group is compared, the length is bounded by the slot.
 * Threads   see ud.h. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/verbs/grh.h"
#include "fabric/verbs/ud_rx.h"

#define REPOST    16u /* spare slots worth a doorbell while datagrams keep coming */
#define POLLS_MAX 64u /* looks in a row that bring nothing but foreign frames */

/* --- posting ----------------------------------------------------------------------------------- */

bool tw_ud_rx_post(struct ud_rx *rx, struct rx_flow *f)
{
	const uint32_t n = f->spare_count < TW_RX_BATCH ? f->spare_count : TW_RX_BATCH;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t slot = f->spare[f->spare_count - 1 - i];
		rx->sge[i] = (struct ibv_sge){ .addr = (uintptr_t)tw_ud_rx_grh(f, slot),
					       .length = TW_GRH_BYTES + rx->mtu_bytes,
					       .lkey = f->mr->lkey };
		rx->wr[i] = (struct ibv_recv_wr){ .wr_id = slot,
						  .next = i + 1 < n ? &rx->wr[i + 1] : NULL,
						  .sg_list = &rx->sge[i],
						  .num_sge = 1 };
	}
	struct ibv_recv_wr *bad = NULL;
	const int cause = n > 0 ? ibv_post_recv(f->flow.qp, rx->wr, &bad) : 0;
	const uint32_t taken = cause == 0 ? n : (uint32_t)(bad - rx->wr);
	f->spare_count -= taken;
	f->outstanding += taken;
	return cause == 0;
}

/* --- looking ----------------------------------------------------------------------------------- */

/* One completion: a datagram for the stash, or a slot that is spare again. */
static void take(struct ud_rx *rx, struct rx_flow *f, const struct ibv_wc *wc, uint64_t recv_ns)
{
	const uint32_t slot = (uint32_t)wc->wr_id;
	struct rx_done *done = &f->stash[f->got];
	if (__builtin_expect(f->outstanding == 0 || slot >= f->depth, 0)) {
		f->broken =
			true; /* a device that gives back what it has not: its account is worth nothing */
		return;
	}
	f->outstanding--;
	/* before any other field: of a failed one nothing else holds */
	if (__builtin_expect(wc->status != IBV_WC_SUCCESS, 0)) {
		tw_counter_add(&f->counters, TW_SUB_LINE_receive_errors, 1);
		f->broken = true;
		f->spare[f->spare_count++] = slot;
		return;
	}
	bool ours = (wc->wc_flags & IBV_WC_GRH) != 0 && wc->byte_len > TW_GRH_BYTES &&
		    wc->byte_len <= TW_GRH_BYTES + rx->mtu_bytes;
	done->src_addr = 0;
	if (ours) {
		const uint8_t *grh = tw_ud_rx_grh(f, slot);
		ours = rx->base.sourceless ? tw_grh_mgid(grh, f->flow.ah.grh.dgid.raw)
					   : tw_grh_ipv4(grh, f->flow.group, &done->src_addr);
	}
	if (__builtin_expect(!ours, 0)) {
		tw_counter_add(&f->counters, TW_SUB_LINE_foreign_frames, 1);
		f->spare[f->spare_count++] = slot;
		return;
	}
	done->slot = slot;
	done->len_bytes = wc->byte_len - TW_GRH_BYTES;
	done->recv_ns = recv_ns;
	f->got++;
}

/* ibv_poll_cq() for an extended queue: the fields that are used, and the stamps.
 * One completion for each start and end: ibv_next_poll() of the rxe provider (rdma-core 44), where it
 * finds nothing more, steps on, and ibv_end_poll() does so again: from then on the queue gives what it
 * has given before. */
static int poll_extended(struct ud_rx *rx, struct rx_flow *f, bool stamps)
{
	struct ibv_cq_ex *cq = f->cq_ex;
	int n = 0;
	while ((unsigned int)n < TW_RX_BATCH) {
		struct ibv_poll_cq_attr attr = { .comp_mask = 0 };
		struct ibv_wc *wc = &rx->wc[n];
		const int rc = ibv_start_poll(cq, &attr);
		if (rc != 0) {
			return rc == ENOENT || n > 0 ? n : -1;
		}
		wc->wr_id = cq->wr_id;
		wc->status = cq->status;
		if (wc->status == IBV_WC_SUCCESS) { /* of a failed one nothing else holds */
			wc->byte_len = ibv_wc_read_byte_len(cq);
			wc->wc_flags = ibv_wc_read_wc_flags(cq);
			rx->ticks[n] = stamps ? ibv_wc_read_completion_ts(cq) : 0;
		}
		ibv_end_poll(cq);
		n++;
	}
	return n;
}

static uint64_t stamp_of(const struct ud_rx *rx, const struct rx_flow *f,
			 const struct tw_clock_curve *curve, unsigned int i, uint64_t now_ns)
{
	const uint64_t ns =
		tw_stamp_wall(curve, rx->clocks[f->flow.line].mask, rx->ticks[i], now_ns);
	if (ns == 0) {
		tw_counter_add(&f->counters, TW_SUB_LINE_stamps_bad, 1);
	}
	return ns != 0 ? ns : now_ns;
}

/* Looks at the completion queue: the stash is empty. */
static void look(struct ud_rx *rx, struct rx_flow *f)
{
	f->got = f->at = 0;
	const bool stamps = rx->stamps[f->flow.line];
	const int n = f->cq_ex != NULL ? poll_extended(rx, f, stamps)
				       : ibv_poll_cq(f->cq, TW_RX_BATCH, rx->wc);
	if (n <= 0) {
		f->broken = f->broken || n < 0;
		f->backlog = 0;
		return;
	}
	const uint64_t recv_ns = tw_wall_ns();
	for (int i = 0; i < n; i++) { /* GRH and first line of each, before any is needed */
		const uint8_t *dgram = tw_slots_dgram(&f->slots, (uint32_t)rx->wc[i].wr_id);
		__builtin_prefetch(dgram - TW_CACHE_LINE_BYTES);
		__builtin_prefetch(dgram);
	}
	f->backlog += (uint32_t)n;
	if (f->backlog < f->depth && f->depth - f->backlog < f->free_min) {
		f->free_min = f->depth - f->backlog;
		tw_counter_set(&f->counters, TW_SUB_LINE_receive_free_min, f->free_min);
	} else if (f->backlog >= f->depth) {
		f->free_min = 0;
		tw_counter_set(&f->counters, TW_SUB_LINE_receive_free_min, 0);
	}
	if ((unsigned int)n < TW_RX_BATCH) {
		f->backlog = 0;
	}
	struct tw_clock_curve curve;
	const bool converts = stamps && tw_stamp_curve(&rx->clocks[f->flow.line], &curve);
	if (stamps && !converts) {
		tw_counter_add(&f->counters, TW_SUB_LINE_stamps_bad, (uint64_t)n);
	}
	for (int i = 0; i < n; i++) {
		const bool ok = converts && rx->wc[i].status == IBV_WC_SUCCESS;
		take(rx, f, &rx->wc[i],
		     ok ? stamp_of(rx, f, &curve, (unsigned int)i, recv_ns) : recv_ns);
	}
}

/* --- polling ----------------------------------------------------------------------------------- */

static unsigned int hand_out(struct rx_flow *f, struct tw_rx_dgram *out, unsigned int max)
{
	unsigned int n = 0;
	while (n < max && f->at < f->got) {
		const struct rx_done *done = &f->stash[f->at++];
		out[n++] = (struct tw_rx_dgram){ .data = tw_slots_dgram(&f->slots, done->slot),
						 .len_bytes = done->len_bytes,
						 .src_addr = done->src_addr,
						 .recv_ns = done->recv_ns };
		f->lent[f->lent_count++] = done->slot;
	}
	return n;
}

int tw_ud_rx_poll(struct tw_rx *base, uint32_t endpoint, struct tw_rx_dgram *out, unsigned int max)
{
	struct ud_rx *rx = tw_ud_rx_self(base);
	TW_ASSERT(endpoint < base->endpoints);
	struct rx_flow *f = &rx->flows[endpoint];
	unsigned int n = 0;

	max = max > TW_RX_BATCH ? TW_RX_BATCH : max;
	while (f->lent_count > 0) {
		f->spare[f->spare_count++] = f->lent[--f->lent_count];
	}
	if (f->at == f->got && !tw_ud_mine(&f->flow)) {
		return 0;
	}
	/* 0 means that the queue is empty: what is foreign is read past, but not for ever */
	for (unsigned int looks = 0; n == 0 && looks < POLLS_MAX; looks++) {
		if (f->at == f->got) {
			if (f->broken) {
				tw_ud_give_up(&f->flow);
				return 0;
			}
			look(rx, f);
			if (f->got == 0 && f->backlog == 0) {
				break;
			}
		}
		n = hand_out(f, out, max);
	}
	while (f->spare_count >= (n == 0 ? 1 : REPOST) && !f->broken) {
		f->broken = !tw_ud_rx_post(rx, f);
	}
	return (int)n;
}

/* --- event mode -------------------------------------------------------------------------------- */

/* Takes what the completion channel has; they say no more than that a queue is to be looked at. */
static void channel_events(struct ud_rx *rx, unsigned int line)
{
	struct ibv_cq *cq;
	void *context;
	while (rx->channels[line] != NULL &&
	       ibv_get_cq_event(rx->channels[line], &cq, &context) == 0) {
		struct rx_flow *f = context;
		f->armed = false;
		ibv_ack_cq_events(cq, 1);
	}
}

int tw_ud_rx_arm(struct tw_rx *base, uint64_t *due_ns)
{
	struct ud_rx *rx = tw_ud_rx_self(base);
	(void)due_ns; /* nothing here goes by time */
	uint64_t count;
	(void)!read(rx->ud.heal_fd, &count, sizeof(count));
	for (uint32_t i = 0; i < base->endpoints; i++) {
		struct rx_flow *f = &rx->flows[i];
		if (f->at < f->got) {
			return 1;
		}
		if (!tw_ud_mine(&f->flow)) {
			continue; /* heal_fd says when */
		}
		channel_events(rx, f->flow.line); /* lives as long as any flow of the line */
		if (!f->armed) {
			f->broken = ibv_req_notify_cq(f->cq, 0) != 0 || f->broken;
			f->armed = true;
		}
		/* what came before the request makes no event */
		look(rx, f);
		if (f->got > 0 || f->broken) {
			return 1;
		}
	}
	return 0;
}

int tw_ud_rx_event_fd(const struct tw_rx *base)
{
	return tw_ud_rx_self_const(base)->epoll_fd;
}

int tw_ud_rx_wait(struct tw_rx *base, uint64_t timeout_ns)
{
	uint64_t due_ns = UINT64_MAX;
	const int rc = tw_ud_rx_arm(base, &due_ns);
	if (rc != 0) {
		return rc;
	}
	struct pollfd fd = { .fd = tw_ud_rx_event_fd(base), .events = POLLIN };
	const struct timespec timeout = { .tv_sec = (time_t)(timeout_ns / 1000000000u),
					  .tv_nsec = (long)(timeout_ns % 1000000000u) };
	const int ready = ppoll(&fd, 1, &timeout, NULL);
	if (ready < 0) {
		return errno == EINTR ? 0 : TW_ESYS;
	}
	return ready > 0;
}
