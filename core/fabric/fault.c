/* The fault layer: a receiver around a receiver.
 *
 * Decisions  each is a hash of the seed, what is decided, the line (not for correlated loss) and the
 *            datagram's identity: session, publisher, packet_seq and, for heartbeats, which repeat
 *            their packet_seq, a count since it last changed.  So the same datagrams suffer the same
 *            faults in every run.  What has no Tidewire header passes unharmed.
 * Cuts       go by message number and not by time for the same reason: how long one lasts is the feed's.
 * Store      datagrams held back are copied into preallocated slots, at most HELD_MAX an endpoint; a
 *            full store delivers at once.  Each of the two queues holds for a constant time and so
 *            is in the order of its due times.
 * Lending    slots handed out are given back by the next poll of the endpoint.
 * Threads    one per handle. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/slab.h"
#include "fabric/fabric.h"
#include "tidewire/wire.h"

#define HELD_MAX 1024u /* a power of two: 10 ms at 100,000 datagrams/s */
#define PPM      1000000u

enum decision { DECIDE_CORRELATED = 1, DECIDE_LOSS, DECIDE_DUPLICATE, DECIDE_REORDER };

struct held {
	uint64_t due_ns; /* mono */
	struct tw_rx_dgram dgram;
	uint32_t slot;
	uint32_t copies;
};

struct queue { /* free-running indices */
	uint32_t head, tail;
	struct held *ring; /* HELD_MAX */
};

/* Identity of the last heartbeat, and how often it came. */
struct beat {
	uint64_t session, packet_seq;
	uint32_t publisher, count;
};

struct fault_endpoint {
	struct tw_fault_line conf;
	uint8_t line;
	struct tw_counters counters;
	struct queue delayed, reordered;
	struct beat beat;
	uint32_t *free_slots; /* HELD_MAX */
	uint32_t free_count;
	uint32_t lent[TW_RX_BATCH]; /* handed out by the last poll */
	uint32_t lent_count;
	struct tw_slots slots; /* count 0 where nothing is ever held */
};

struct fault_rx {
	struct tw_rx base;
	struct tw_rx *inner;
	uint64_t seed, reorder_ns;
	uint32_t correlated_loss_ppm;
	struct fault_endpoint endpoint[];
};

static bool line_active(const struct tw_fault_line *line)
{
	return line->loss_ppm != 0 || line->duplicate_ppm != 0 || line->reorder_ppm != 0 ||
	       line->delay_ns != 0 || line->cut_begin_seq < line->cut_end_seq;
}

bool tw_fault_active(const struct tw_fault_conf *conf)
{
	bool active = conf->correlated_loss_ppm != 0;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		active = active || line_active(&conf->lines[l]);
	}
	return active;
}

/* A bijection of 64 bits in which every input bit changes about half of the output bits (the
 * finalizer of MurmurHash3). */
static uint64_t mix(uint64_t v)
{
	v ^= v >> 33;
	v *= 0xff51afd7ed558ccdull;
	v ^= v >> 33;
	v *= 0xc4ceb9fe1a85ec53ull;
	v ^= v >> 33;
	return v;
}

/* One identity's hash; decisions about it are hashed from here. */
static uint64_t identify(const struct fault_rx *rx, struct fault_endpoint *ep,
			 const struct tw_wire_hdr *hdr)
{
	uint64_t nth = 0; /* 0 for datagrams that use their packet_seq, heartbeats count from 1 */
	if ((hdr->flags & TW_WIRE_HEARTBEAT) != 0) {
		struct beat *beat = &ep->beat;
		if (beat->session != hdr->session || beat->publisher != hdr->publisher ||
		    beat->packet_seq != hdr->packet_seq) {
			*beat = (struct beat){ .session = hdr->session,
					       .packet_seq = hdr->packet_seq,
					       .publisher = hdr->publisher };
		}
		nth = ++beat->count;
	}
	uint64_t h = mix(rx->seed + 0x9e3779b97f4a7c15ull);
	h = mix(h ^ hdr->session);
	h = mix(h ^ hdr->packet_seq);
	return mix(h ^ (nth << 32 | hdr->publisher));
}

static bool decide(uint64_t identity, enum decision what, unsigned int line, uint32_t ppm)
{
	const uint64_t h = mix(identity ^ ((uint64_t)what << 8 | line));
	return (h >> 32) * PPM >> 32 < ppm;
}

/* Copies a datagram into the store.  False: no room, or there is no store. */
static bool hold(struct fault_endpoint *ep, struct queue *queue, const struct tw_rx_dgram *dgram,
		 uint64_t due_ns, uint32_t copies)
{
	if (ep->free_count == 0 ||
	    dgram->len_bytes > ep->slots.stride_bytes - TW_SLAB_HEADROOM_BYTES) {
		return false;
	}
	const uint32_t slot = ep->free_slots[--ep->free_count];
	uint8_t *copy = tw_slots_dgram(&ep->slots, slot);
	memcpy(copy, dgram->data, dgram->len_bytes);
	struct held *held = &queue->ring[queue->tail++ & (HELD_MAX - 1)];
	*held = (struct held){ .due_ns = due_ns, .dgram = *dgram, .slot = slot, .copies = copies };
	held->dgram.data = copy;
	return true;
}

static struct held *peek(struct queue *queue)
{
	return queue->head == queue->tail ? NULL : &queue->ring[queue->head & (HELD_MAX - 1)];
}

/* The held datagram that is due first, NULL where none is held. */
static struct held *first_held(struct fault_endpoint *ep, struct queue **queue_p)
{
	struct held *delayed = peek(&ep->delayed);
	struct held *reordered = peek(&ep->reordered);
	const bool second =
		delayed == NULL || (reordered != NULL && reordered->due_ns < delayed->due_ns);
	*queue_p = second ? &ep->reordered : &ep->delayed;
	return second ? reordered : delayed;
}

/* Hands out what is due.  The clock is read only where something is held. */
static unsigned int release(struct fault_endpoint *ep, struct tw_rx_dgram *out, unsigned int max)
{
	struct queue *queue;
	struct held *held = first_held(ep, &queue);
	if (held == NULL) {
		return 0;
	}
	const uint64_t now_ns = tw_mono_ns();
	const uint64_t wall_ns = tw_wall_ns();
	unsigned int n = 0;
	while (n < max && held != NULL && held->due_ns <= now_ns) {
		out[n] = held->dgram;
		out[n++].recv_ns = wall_ns;
		if (--held->copies == 0) {
			/* at most TW_RX_BATCH are handed out in a poll */
			ep->lent[ep->lent_count++] = held->slot;
			queue->head++;
		}
		held = first_held(ep, &queue);
	}
	return n;
}

/* Applies the faults to one datagram that has come in.  Returns how many copies (0 to 2) the caller
 * hands out now. */
static unsigned int suffer(struct fault_rx *rx, struct fault_endpoint *ep,
			   const struct tw_rx_dgram *dgram)
{
	struct tw_wire_hdr hdr;
	if (dgram->len_bytes < sizeof(hdr)) {
		return 1;
	}
	memcpy(&hdr, dgram->data, sizeof(hdr));
	if (hdr.magic != TW_WIRE_MAGIC) {
		return 1;
	}
	const struct tw_fault_line *conf = &ep->conf;
	const uint64_t id = identify(rx, ep, &hdr);
	const bool cut =
		hdr.first_msg_seq >= conf->cut_begin_seq && hdr.first_msg_seq < conf->cut_end_seq;
	if (cut || decide(id, DECIDE_CORRELATED, 0, rx->correlated_loss_ppm) ||
	    decide(id, DECIDE_LOSS, ep->line, conf->loss_ppm)) {
		tw_counter_add(&ep->counters, TW_SUB_LINE_fault_dropped, 1);
		return 0;
	}
	unsigned int copies = 1;
	if (decide(id, DECIDE_DUPLICATE, ep->line, conf->duplicate_ppm)) {
		copies = 2;
	}
	const bool reorder = decide(id, DECIDE_REORDER, ep->line, conf->reorder_ppm);
	if (!reorder && conf->delay_ns == 0) {
		return copies;
	}
	const uint64_t hold_ns = conf->delay_ns + (reorder ? rx->reorder_ns : 0);
	if (!hold(ep, reorder ? &ep->reordered : &ep->delayed, dgram, tw_mono_ns() + hold_ns,
		  copies)) {
		return copies;
	}
	tw_counter_add(&ep->counters, TW_SUB_LINE_fault_reordered, reorder);
	tw_counter_add(&ep->counters, TW_SUB_LINE_fault_duplicated, copies - 1);
	return 0;
}

static int fault_poll(struct tw_rx *base, uint32_t endpoint, struct tw_rx_dgram *out,
		      unsigned int max)
{
	struct fault_rx *rx = (struct fault_rx *)base;
	TW_ASSERT(endpoint < base->endpoints);
	struct fault_endpoint *ep = &rx->endpoint[endpoint];
	max = max > TW_RX_BATCH ? TW_RX_BATCH : max;
	while (ep->lent_count > 0) {
		ep->free_slots[ep->free_count++] = ep->lent[--ep->lent_count];
	}
	unsigned int n = release(ep, out, max);
	if (n == max) {
		return (int)n;
	}
	struct tw_rx_dgram in[TW_RX_BATCH];
	const int got = tw_rx_poll(rx->inner, endpoint, in, max - n);
	if (got < 0) {
		return n > 0 ? (int)n : got; /* the inner receiver will say so again */
	}
	for (int i = 0; i < got; i++) {
		const unsigned int copies = suffer(rx, ep, &in[i]);
		if (copies == 0) {
			continue;
		}
		out[n++] = in[i];
		if (copies == 1) {
			continue;
		}
		/* A second copy goes where the ones still to be judged leave room, else out of the
		 * store with the next poll, else there is none. */
		bool doubled = true;
		if (n + (unsigned int)(got - 1 - i) < max) {
			out[n++] = in[i];
		} else {
			doubled = hold(ep, &ep->delayed, &in[i], tw_mono_ns(), 1);
		}
		tw_counter_add(&ep->counters, TW_SUB_LINE_fault_duplicated, doubled);
	}
	return (int)n;
}

static uint64_t next_due_ns(struct fault_rx *rx)
{
	uint64_t due_ns = UINT64_MAX;
	for (uint32_t i = 0; i < rx->base.endpoints; i++) {
		struct queue *queue;
		const struct held *held = first_held(&rx->endpoint[i], &queue);
		if (held != NULL && held->due_ns < due_ns) {
			due_ns = held->due_ns;
		}
	}
	return due_ns;
}

static int fault_arm(struct tw_rx *base, uint64_t *due_ns)
{
	struct fault_rx *rx = (struct fault_rx *)base;
	const uint64_t own_ns = next_due_ns(rx);
	*due_ns = own_ns < *due_ns ? own_ns : *due_ns;
	if (own_ns != UINT64_MAX && own_ns <= tw_mono_ns()) {
		return 1;
	}
	return tw_rx_arm(rx->inner, due_ns);
}

static int fault_event_fd(const struct tw_rx *base)
{
	return tw_rx_event_fd(((const struct fault_rx *)base)->inner);
}

static const char *fault_describe(const struct tw_rx *base, unsigned int line)
{
	return tw_rx_describe(((const struct fault_rx *)base)->inner, line);
}

static bool fault_note(struct tw_rx *base, struct tw_error *out)
{
	return tw_rx_note(((struct fault_rx *)base)->inner, out);
}

static int fault_wait(struct tw_rx *base, uint64_t timeout_ns)
{
	struct fault_rx *rx = (struct fault_rx *)base;
	const uint64_t due_ns = next_due_ns(rx);
	if (due_ns == UINT64_MAX) {
		return tw_rx_wait(rx->inner, timeout_ns);
	}
	const uint64_t now_ns = tw_mono_ns();
	if (due_ns <= now_ns) {
		return 1;
	}
	const bool due_first = due_ns - now_ns <= timeout_ns;
	const int ready = tw_rx_wait(rx->inner, due_first ? due_ns - now_ns : timeout_ns);
	return ready == 0 && due_first ? 1 : ready;
}

static void fault_close(struct tw_rx *base)
{
	struct fault_rx *rx = (struct fault_rx *)base;
	for (uint32_t i = 0; i < base->endpoints; i++) {
		struct fault_endpoint *ep = &rx->endpoint[i];
		free(ep->delayed.ring);
		free(ep->reordered.ring);
		free(ep->free_slots);
		tw_slots_fini(&ep->slots);
	}
	tw_rx_close(rx->inner);
	free(rx);
}

static const struct tw_rx_ops fault_rx_ops = {
	.poll = fault_poll,
	.wait = fault_wait,
	.event_fd = fault_event_fd,
	.arm = fault_arm,
	.describe = fault_describe,
	.note = fault_note,
	.close = fault_close,
};

static int init_store(struct fault_endpoint *ep, uint32_t mtu_bytes, struct tw_error *err)
{
	ep->delayed.ring = calloc(HELD_MAX, sizeof(struct held));
	ep->reordered.ring = calloc(HELD_MAX, sizeof(struct held));
	ep->free_slots = calloc(HELD_MAX, sizeof(*ep->free_slots));
	if (ep->delayed.ring == NULL || ep->reordered.ring == NULL || ep->free_slots == NULL) {
		return tw_fail(err, TW_ENOMEM, "fault layer: calloc: %u entries", HELD_MAX);
	}
	int ret = tw_slots_init(&ep->slots, HELD_MAX, mtu_bytes, err);
	if (ret != TW_OK) {
		return ret;
	}
	for (uint32_t i = 0; i < HELD_MAX; i++) {
		ep->free_slots[i] = i;
	}
	ep->free_count = HELD_MAX;
	return TW_OK;
}

int tw_fault_open(struct tw_rx **rx_p, struct tw_rx *inner, const struct tw_fault_conf *conf,
		  const struct tw_rx_endpoint *endpoints, uint32_t n, uint32_t mtu_bytes,
		  struct tw_error *err)
{
	*rx_p = NULL;
	struct fault_rx *rx = calloc(1, sizeof(*rx) + n * sizeof(rx->endpoint[0]));
	if (rx == NULL) {
		tw_rx_close(inner);
		return tw_fail(err, TW_ENOMEM, "fault layer: calloc: %u endpoints", n);
	}
	rx->base = (struct tw_rx){ .ops = &fault_rx_ops,
				   .endpoints = n,
				   .stamp = inner->stamp,
				   .sourceless = inner->sourceless };
	rx->inner = inner;
	rx->seed = conf->seed;
	rx->reorder_ns = conf->reorder_ns;
	rx->correlated_loss_ppm = conf->correlated_loss_ppm;
	int ret = TW_OK;
	if (inner->endpoints != n) {
		ret = tw_fail(err, TW_EARG, "fault layer: %u endpoints around a receiver of %u", n,
			      inner->endpoints);
	}
	for (uint32_t i = 0; ret == TW_OK && i < n; i++) {
		struct fault_endpoint *ep = &rx->endpoint[i];
		TW_ASSERT(endpoints[i].line < TW_FABRIC_MAX_LINES);
		ep->line = endpoints[i].line;
		ep->conf = conf->lines[ep->line];
		ep->counters = endpoints[i].counters;
		if (ep->conf.delay_ns != 0 || ep->conf.reorder_ppm != 0 ||
		    ep->conf.duplicate_ppm != 0) {
			ret = init_store(ep, mtu_bytes, err);
		}
	}
	if (ret != TW_OK) {
		fault_close(&rx->base);
		return ret;
	}
	*rx_p = &rx->base;
	return TW_OK;
}
