/* The hot thread's half of the RC reader: chains of READs, requests, completions.  See rc_reader.h.
 *
 * Order     each connection has a queue of its reads; they end in its order, whatever completes first.
 * Account   every work request belongs to a read: a leg of a chain ends with its one signalled READ, and
 *           the next is posted then; a request ends with its send and the reply to it.  After the first
 *           completion in error nothing is counted any more: the queue pair is destroyed, and all of that
 *           with it.
 * Kernel    entered for one write(2) when a connection fails, and by some providers in posting. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/verbs/rc_reader.h"

#define COMPLETIONS 8

/* What a wr_id says beside the slot. */
#define WR_LEG            0u /* READs; the signalled one ends the leg */
#define WR_SENT           1u /* a request is out */
#define WR_REPLY          2u
#define WR_BITS           2u
#define WR_ID(slot, what) ((uint64_t)(slot) << WR_BITS | (what))

static struct tw_rc_reader *rc_of(struct tw_reader *reader)
{
	return (void *)reader;
}

static uint32_t slot_at(const struct tw_rc_conn *conn, const struct tw_rc_reader *reader,
			uint32_t at)
{
	return conn->fifo[at & (reader->ring_capacity - 1)];
}

static void done_with(struct tw_rc_op *op, enum tw_read_status status, uint32_t len_bytes)
{
	op->state = TW_RC_OP_DONE;
	op->status = status;
	op->len_bytes = len_bytes;
}

/* --- holding a connection ------------------------------------------------------------------------ */

static bool hold(struct tw_rc_conn *conn)
{
	if (conn->holds) {
		/* relaxed: held, it cannot be taken away; whether it is to end shows here early */
		return !conn->gave_up && atomic_load_explicit(&conn->usable, memory_order_relaxed);
	}
	/* relaxed: this thread has stored it; one that has failed is not to be touched until it is made anew */
	if (atomic_load_explicit(&conn->failed, memory_order_relaxed)) {
		return false;
	}
	atomic_store_explicit(&conn->busy, true, memory_order_relaxed);
	/* RC3: pairs with RC4 */
	atomic_thread_fence(memory_order_seq_cst);
	/* RC2: pairs with RC1 */
	if (!atomic_load_explicit(&conn->usable, memory_order_acquire)) {
		/* RC9: pairs with RC10 */
		atomic_store_explicit(&conn->busy, false, memory_order_release);
		return false;
	}
	conn->holds = true;
	conn->gave_up = false;
	conn->reads_out = conn->asked_out = 0;
	memset(conn->published, 0, conn->grant_count * sizeof(conn->published[0]));
	return true;
}

static void let_go(struct tw_rc_conn *conn)
{
	conn->holds = conn->gave_up = false;
	/* RC9: pairs with RC10 */
	atomic_store_explicit(&conn->busy, false, memory_order_release);
}

static TW_COLD void give_up(struct tw_rc_conn *conn, const struct tw_rc_reader *reader,
			    enum tw_rc_why why)
{
	if (conn->gave_up) {
		return;
	}
	conn->gave_up = true;
	conn->why = why;
	/* RC5: pairs with RC6 */
	atomic_store_explicit(&conn->failed, true, memory_order_release);
	uint64_t one = 1;
	ssize_t unused = write(reader->event_fd, &one, sizeof(one));
	(void)unused; /* it can only say that the thread is woken already */
}

/* --- posting ------------------------------------------------------------------------------------- */

static uint32_t find_grant(const struct tw_rc_conn *conn, uint16_t channel)
{
	uint32_t i = 0;
	while (i < conn->grant_count && conn->grants[i].channel != channel) {
		i++;
	}
	return i;
}

static uintptr_t landing(const struct tw_rc_reader *reader, uint32_t slot,
			 const struct tw_rc_step *step)
{
	switch (step->target) {
	case TW_RC_CONTROL_BEFORE:
		return (uintptr_t)&reader->aux[slot].before;
	case TW_RC_CONTROL_AFTER:
		return (uintptr_t)&reader->aux[slot].after;
	case TW_RC_BYTES:
		break;
	}
	return (uintptr_t)reader->slots.slots[slot].data + step->offset_bytes;
}

/* The next leg of the slot's chain. */
static void post_leg(struct tw_rc_conn *conn, const struct tw_rc_reader *reader, uint32_t slot)
{
	struct tw_rc_op *op = &reader->ops[slot];
	struct ibv_send_wr wrs[TW_RC_CHAIN_MAX];
	struct ibv_sge sges[TW_RC_CHAIN_MAX];
	struct ibv_send_wr *bad;
	uint32_t end = tw_rc_leg_end(&op->chain, op->posted);
	uint32_t n = 0;
	for (; op->posted < end; op->posted++, n++) {
		const struct tw_rc_step *step = &op->chain.steps[op->posted];
		bool last = op->posted + 1 == end;
		sges[n] = (struct ibv_sge){ .addr = landing(reader, slot, step),
					    .length = step->bytes,
					    .lkey = conn->lkey };
		wrs[n] = (struct ibv_send_wr){
			.wr_id = WR_ID(slot, WR_LEG),
			.next = last ? NULL : &wrs[n + 1],
			.sg_list = &sges[n],
			.num_sge = 1,
			.opcode = IBV_WR_RDMA_READ,
			.send_flags = last ? IBV_SEND_SIGNALED : 0,
			.wr.rdma = { .remote_addr = step->remote_addr,
				     .rkey = conn->grants[op->grant].rkey },
		};
	}
	if (ibv_post_send(conn->qp, wrs, &bad) != 0) {
		give_up(conn, reader, TW_RC_WHY_FAILED); /* part of it may be under way */
	}
}

/* false: not now. */
static bool send_chain(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint32_t slot,
		       uint32_t grant)
{
	struct tw_rc_op *op = &reader->ops[slot];
	enum tw_read_status status =
		tw_rc_chain_make(&op->chain, &conn->grants[grant], &reader->slots.slots[slot].read,
				 conn->published[grant]);
	if (status != TW_READ_OK) {
		done_with(op, status, 0);
		return true;
	}
	/* one chain goes in any case: the device itself never has more under way than was agreed */
	if (conn->reads_out != 0 && conn->reads_out + op->chain.count > conn->depth) {
		return false;
	}
	op->state = TW_RC_OP_READING;
	op->grant = grant;
	op->posted = 0;
	conn->reads_out += op->chain.count;
	post_leg(conn, reader, slot);
	return true;
}

/* The receive first, so that no reply ever comes too early. */
static bool send_request(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint32_t slot)
{
	struct tw_rc_op *op = &reader->ops[slot];
	struct tw_rc_aux *aux = &reader->aux[slot];
	struct ibv_recv_wr *bad_recv;
	struct ibv_send_wr *bad_send;
	if (conn->asked_out == TW_RC_CREDITS) {
		return false;
	}
	struct ibv_sge into[2] = {
		{ .addr = (uintptr_t)aux->reply, .length = sizeof(aux->reply), .lkey = conn->lkey },
		{ .addr = (uintptr_t)reader->slots.slots[slot].data,
		  .length = reader->slots.slots[slot].room_bytes,
		  .lkey = conn->lkey },
	};
	struct ibv_sge from = { .addr = (uintptr_t)aux->request,
				.length = sizeof(aux->request),
				.lkey = conn->lkey };
	struct ibv_recv_wr recv = { .wr_id = WR_ID(slot, WR_REPLY), .sg_list = into, .num_sge = 2 };
	struct ibv_send_wr send = { .wr_id = WR_ID(slot, WR_SENT),
				    .sg_list = &from,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED };
	tw_rw_put_read((struct tw_rw_read_head *)(void *)aux->request,
		       &reader->slots.slots[slot].read);
	op->state = TW_RC_OP_ASKED;
	op->pending = 2;
	conn->asked_out++;
	if (ibv_post_recv(conn->qp, &recv, &bad_recv) != 0 ||
	    ibv_post_send(conn->qp, &send, &bad_send) != 0) {
		give_up(conn, reader, TW_RC_WHY_FAILED);
	}
	return true;
}

/* Sends what is unsent, in order, as far as it may. */
static void pump(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	for (; conn->unsent != conn->last && !conn->gave_up; conn->unsent++) {
		uint32_t slot = slot_at(conn, reader, conn->unsent);
		const struct tw_read *read = &reader->slots.slots[slot].read;
		if (reader->ops[slot].state == TW_RC_OP_DONE) {
			continue;
		}
		uint32_t grant = find_grant(conn, read->channel);
		bool sent;
		if (grant == conn->grant_count) {
			done_with(&reader->ops[slot], TW_READ_REFUSED, 0);
			sent = true;
		} else if (conn->grants[grant].one_sided && !read->by_seq) {
			sent = send_chain(conn, reader, slot, grant);
		} else {
			sent = send_request(conn, reader, slot);
		}
		if (!sent) {
			return;
		}
	}
}

bool tw_rc_hot_post(struct tw_reader *base, const struct tw_read *read)
{
	struct tw_rc_reader *reader = rc_of(base);
	uint32_t slot;
	if (!tw_read_slots_take(&reader->slots, read, &slot)) {
		return false;
	}
	struct tw_rc_conn *conn = &reader->conns[read->server];
	conn->fifo[conn->last++ & (reader->ring_capacity - 1)] = slot;
	reader->ops[slot] = (struct tw_rc_op){ .state = TW_RC_OP_UNSENT };
	if (!hold(conn)) {
		done_with(&reader->ops[slot], TW_READ_REFUSED, 0);
		return true;
	}
	tw_reader_count(conn->counters, TW_READER_reads, 1);
	pump(conn, reader);
	return true;
}

/* --- completions --------------------------------------------------------------------------------- */

static void chain_is_done(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint32_t slot)
{
	struct tw_rc_op *op = &reader->ops[slot];
	struct tw_rc_aux *aux = &reader->aux[slot];
	const struct tw_read *read = &reader->slots.slots[slot].read;
	conn->reads_out -= op->chain.count;
	enum tw_read_status status =
		tw_rc_judge(&conn->grants[op->grant], read, op->chain.before ? &aux->before : NULL,
			    &aux->after, &conn->published[op->grant]);
	if (status == TW_READ_BROKEN) {
		give_up(conn, reader, TW_RC_WHY_MALFORMED);
		return;
	}
	op->one_sided = true;
	tw_reader_count(conn->counters, TW_READER_one_sided, 1);
	tw_reader_count(conn->counters, TW_READER_lapped, status == TW_READ_GONE);
	uint64_t bytes = (read->end - read->begin) * TW_RW_UNIT_BYTES;
	tw_reader_count(conn->counters, TW_READER_bytes, status == TW_READ_OK ? bytes : 0);
	done_with(op, status, status == TW_READ_OK ? (uint32_t)bytes : 0);
	if (tw_rc_life_is_over(&conn->grants[op->grant], &aux->after)) {
		/* the server sends its clients away then; two lives in a moment it may see as one */
		give_up(conn, reader, TW_RC_WHY_LIFE);
	}
}

static void reply_is_here(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint32_t slot,
			  uint32_t len_bytes)
{
	struct tw_rc_op *op = &reader->ops[slot];
	uint32_t bytes = 0;
	if (len_bytes < TW_RW_HEAD_BYTES ||
	    tw_rw_parse_reply(reader->aux[slot].reply, TW_RW_HEAD_BYTES,
			      &reader->slots.slots[slot].read, &op->status,
			      &bytes) != TW_RW_WELL_FORMED ||
	    len_bytes != TW_RW_HEAD_BYTES + bytes) {
		give_up(conn, reader, TW_RC_WHY_MALFORMED);
		return;
	}
	op->len_bytes = bytes;
	tw_reader_count(conn->counters, TW_READER_bytes, bytes);
}

static void take(struct tw_rc_conn *conn, struct tw_rc_reader *reader, const struct ibv_wc *wc)
{
	if (wc->status != IBV_WC_SUCCESS) {
		give_up(conn, reader, tw_rc_why_of(wc->status));
		return;
	}
	uint32_t slot = (uint32_t)(wc->wr_id >> WR_BITS);
	struct tw_rc_op *op = &reader->ops[slot];
	uint32_t what = (uint32_t)wc->wr_id & ((1u << WR_BITS) - 1);
	if (what == WR_LEG) {
		conn->progress_ns = tw_mono_ns();
		if (op->posted < op->chain.count) {
			post_leg(conn, reader, slot);
		} else {
			chain_is_done(conn, reader, slot);
		}
		return;
	}
	if (what == WR_REPLY) {
		reply_is_here(conn, reader, slot, wc->byte_len);
	}
	op->pending--;
	if (op->pending == 0 && !conn->gave_up) {
		conn->asked_out--;
		done_with(op, op->status, op->len_bytes);
	}
}

/* Its queue pair has been destroyed: no byte of these slots is written any more. */
static TW_COLD void end_all(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	for (uint32_t at = conn->first; at != conn->last; at++) {
		struct tw_rc_op *op = &reader->ops[slot_at(conn, reader, at)];
		if (op->state != TW_RC_OP_DONE) {
			done_with(op, TW_READ_BROKEN, 0);
		}
	}
	conn->unsent = conn->last;
	let_go(conn);
}

/* What is awaited first is a READ. */
static bool is_reading(const struct tw_rc_conn *conn, const struct tw_rc_reader *reader)
{
	return reader->ops[slot_at(conn, reader, conn->first)].state == TW_RC_OP_READING;
}

/* From one end to the next while one is owed. */
static bool is_late(const struct tw_rc_conn *conn, const struct tw_rc_reader *reader)
{
	uint32_t oldest = slot_at(conn, reader, conn->first);
	uint64_t limit_ns = is_reading(conn, reader) ? tw_rc_stuck_ns(reader->conf.idle_timeout_ns)
						     : reader->conf.idle_timeout_ns;
	uint64_t since_ns = reader->slots.slots[oldest].posted_ns;
	since_ns = since_ns < conn->progress_ns ? conn->progress_ns : since_ns;
	return tw_mono_ns() - since_ns >= limit_ns;
}

static void look(struct tw_rc_conn *conn, struct tw_rc_reader *reader)
{
	struct ibv_wc wcs[COMPLETIONS];
	if (conn->gave_up) {
		/* RC8: pairs with RC7 */
		if (atomic_load_explicit(&conn->dead, memory_order_acquire)) {
			end_all(conn, reader);
		}
		return;
	}
	int n = ibv_poll_cq(conn->cq, COMPLETIONS, wcs);
	for (int i = 0; i < n && !conn->gave_up; i++) {
		take(conn, reader, &wcs[i]);
	}
	/* relaxed: whether it has been taken away, which has been counted; a device that is gone flushes nothing */
	bool ended = n == 0 && !atomic_load_explicit(&conn->usable, memory_order_relaxed);
	if (n < 0 || ended) {
		give_up(conn, reader, TW_RC_WHY_FAILED);
	} else if (n == 0 && is_late(conn, reader)) {
		give_up(conn, reader,
			is_reading(conn, reader) ? TW_RC_WHY_STUCK : TW_RC_WHY_TIMEOUT);
	} else if (n > 0 && !conn->gave_up) {
		pump(conn, reader);
	}
}

/* The oldest has ended. */
static void pop(struct tw_rc_conn *conn, struct tw_rc_reader *reader, struct tw_read_done *done)
{
	uint32_t slot = slot_at(conn, reader, conn->first);
	const struct tw_rc_op *op = &reader->ops[slot];
	tw_read_slots_done(&reader->slots, slot, op->status, op->len_bytes, done);
	done->one_sided = op->one_sided;
	tw_reader_count_end(conn->counters, op->status);
	conn->progress_ns = tw_mono_ns();
	if (op->status != TW_READ_REFUSED && op->status != TW_READ_BROKEN) {
		/* relaxed: only that it was so, some time */
		atomic_store_explicit(&conn->good, true, memory_order_relaxed);
		if (conn->counters != NULL) {
			uint64_t posted_ns = reader->slots.slots[slot].posted_ns;
			tw_hist_record(&conn->counters->hists[TW_READER_HIST_round_trip],
				       (int64_t)(conn->progress_ns - posted_ns));
		}
	}
	bool was_unsent = conn->unsent == conn->first;
	conn->first++;
	conn->unsent += was_unsent;
	if (conn->first == conn->last &&
	    conn->holds) { /* each has ended: none is with the device */
		let_go(conn);
	}
}

bool tw_rc_hot_poll(struct tw_reader *base, struct tw_read_done *done)
{
	struct tw_rc_reader *reader = rc_of(base);
	uint32_t count = reader->conf.server_count;
	for (uint32_t i = 0; i < count; i++) {
		struct tw_rc_conn *conn = &reader->conns[reader->turn];
		reader->turn = reader->turn + 1 == count ? 0 : reader->turn + 1;
		if (conn->first == conn->last) {
			continue;
		}
		const struct tw_rc_op *op = &reader->ops[slot_at(conn, reader, conn->first)];
		if (op->state != TW_RC_OP_DONE) {
			look(conn, reader);
		}
		if (op->state == TW_RC_OP_DONE) {
			pop(conn, reader, done);
			return true;
		}
	}
	return false;
}

void tw_rc_hot_release(struct tw_reader *base, const struct tw_read_done *done)
{
	tw_read_slots_give(&rc_of(base)->slots, done);
}

enum tw_rc_why tw_rc_why_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return TW_RC_WHY_SILENT;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return TW_RC_WHY_NOT_READY;
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return TW_RC_WHY_ACCESS;
	case IBV_WC_WR_FLUSH_ERR: /* the cold thread has broken it: it knows why */
	default:
		return TW_RC_WHY_FAILED;
	}
}
