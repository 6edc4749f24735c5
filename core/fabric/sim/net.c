/* `sim`: a network on virtual time: see net.h.
 *
 * One binary heap holds arrivals and timers, ordered by time and then by the order of their making.
 * A datagram lives in a frame that all its arrivals and queue entries share by reference count. */
#include "fabric/sim/net.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

#define FRAME_ALIGN_BYTES 64u

struct frame {
	uint8_t *data; /* capacity_bytes */
	uint32_t len_bytes, capacity_bytes, refs;
	struct frame *next_free;
};

struct entry { /* of the heap */
	uint64_t at_ns, order;
	struct frame *frame; /* NULL: a timer */
	uint64_t timer;
	uint32_t endpoint;
};

struct endpoint {
	struct tw_sim_link link;
	uint64_t last_at_ns;   /* of the last arrival that was not reordered */
	struct frame *current; /* handed out by tw_sim_recv() */
	struct frame **queue;
	uint32_t head, count;
};

struct tw_sim {
	struct tw_sim_conf conf;
	struct tw_rng rng;
	uint64_t now_ns, next_order;
	struct entry *heap;
	size_t heap_count, heap_size;
	struct frame *free_frames;
	struct endpoint *endpoints; /* receiver * lines + line */
	struct frame **queues;
};

/* --- frames ---------------------------------------------------------------------------------- */

static struct frame *make_frame(struct tw_sim *sim, const void *data, uint32_t len_bytes)
{
	struct frame *frame = sim->free_frames;

	if (frame != NULL) {
		sim->free_frames = frame->next_free;
	} else {
		frame = calloc(1, sizeof(*frame));
		if (frame == NULL) {
			return NULL;
		}
	}
	if (frame->data == NULL || frame->capacity_bytes < len_bytes) {
		uint32_t capacity = (len_bytes + FRAME_ALIGN_BYTES - 1) & ~(FRAME_ALIGN_BYTES - 1);
		free(frame->data);
		frame->capacity_bytes = 0;
		frame->data = aligned_alloc(FRAME_ALIGN_BYTES, capacity);
		if (frame->data == NULL) {
			free(frame);
			return NULL;
		}
		frame->capacity_bytes = capacity;
	}
	memcpy(frame->data, data, len_bytes);
	frame->len_bytes = len_bytes;
	frame->refs = 1;
	return frame;
}

static void release_frame(struct tw_sim *sim, struct frame *frame)
{
	if (frame != NULL && --frame->refs == 0) {
		frame->next_free = sim->free_frames;
		sim->free_frames = frame;
	}
}

/* --- heap ------------------------------------------------------------------------------------ */

static bool is_earlier(const struct entry *a, const struct entry *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static int push_entry(struct tw_sim *sim, struct entry entry)
{
	if (sim->heap_count == sim->heap_size) {
		size_t size = sim->heap_size == 0 ? 256 : sim->heap_size * 2;
		struct entry *heap = realloc(sim->heap, size * sizeof(*heap));
		if (heap == NULL) {
			return TW_ENOMEM;
		}
		sim->heap = heap;
		sim->heap_size = size;
	}
	entry.at_ns = entry.at_ns < sim->now_ns ? sim->now_ns : entry.at_ns;
	entry.order = sim->next_order++;
	size_t i = sim->heap_count++;
	while (i > 0) {
		size_t parent = (i - 1) / 2;
		if (!is_earlier(&entry, &sim->heap[parent])) {
			break;
		}
		sim->heap[i] = sim->heap[parent];
		i = parent;
	}
	sim->heap[i] = entry;
	return TW_OK;
}

static struct entry pop_entry(struct tw_sim *sim)
{
	struct entry top = sim->heap[0];
	struct entry last = sim->heap[--sim->heap_count];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= sim->heap_count) {
			break;
		}
		if (child + 1 < sim->heap_count &&
		    is_earlier(&sim->heap[child + 1], &sim->heap[child])) {
			child++;
		}
		if (!is_earlier(&sim->heap[child], &last)) {
			break;
		}
		sim->heap[i] = sim->heap[child];
		i = child;
	}
	if (sim->heap_count > 0) {
		sim->heap[i] = last;
	}
	return top;
}

/* --- sending --------------------------------------------------------------------------------- */

static int schedule(struct tw_sim *sim, uint32_t index, struct frame *frame)
{
	struct endpoint *to = &sim->endpoints[index];
	struct tw_sim_link *link = &to->link;
	uint64_t at_ns = sim->now_ns + link->delay_ns;

	if (link->jitter_ns != 0) {
		at_ns += tw_rng_next(&sim->rng) % (link->jitter_ns + 1);
	}
	at_ns = at_ns < to->last_at_ns ? to->last_at_ns : at_ns;
	if (tw_rng_chance(&sim->rng, link->reorder_ppm)) {
		link->reordered++;
		at_ns += link->reorder_ns;
	} else {
		to->last_at_ns = at_ns;
	}
	int rc = push_entry(sim,
			    (struct entry){ .at_ns = at_ns, .frame = frame, .endpoint = index });
	if (rc == TW_OK) {
		frame->refs++;
	}
	return rc;
}

int tw_sim_send(struct tw_sim *sim, uint32_t line, const void *data, uint32_t len_bytes)
{
	struct frame *frame = make_frame(sim, data, len_bytes);
	int rc = frame == NULL ? TW_ENOMEM : TW_OK;

	TW_ASSERT(line < sim->conf.lines);
	for (uint32_t r = 0; r < sim->conf.receivers && rc == TW_OK; r++) {
		uint32_t index = r * sim->conf.lines + line;
		struct tw_sim_link *link = &sim->endpoints[index].link;
		link->sent++;
		if (tw_rng_chance(&sim->rng, link->loss_ppm) || link->cut) {
			link->lost++;
			continue;
		}
		rc = schedule(sim, index, frame);
		if (rc == TW_OK && tw_rng_chance(&sim->rng, link->duplicate_ppm)) {
			link->duplicated++;
			rc = schedule(sim, index, frame);
		}
	}
	release_frame(sim, frame);
	return rc;
}

int tw_sim_timer(struct tw_sim *sim, uint64_t at_ns, uint64_t timer)
{
	return push_entry(sim, (struct entry){ .at_ns = at_ns, .timer = timer });
}

/* --- receiving ------------------------------------------------------------------------------- */

/* Puts an arrived frame into its queue; false: it is full. */
static bool queue_frame(struct tw_sim *sim, struct endpoint *at, struct frame *frame)
{
	if (at->count == sim->conf.queue_dgrams) {
		at->link.overflowed++;
		release_frame(sim, frame);
		return false;
	}
	at->queue[(at->head + at->count) % sim->conf.queue_dgrams] = frame;
	at->count++;
	return true;
}

bool tw_sim_next(struct tw_sim *sim, struct tw_sim_event *event)
{
	while (sim->heap_count > 0) {
		struct entry entry = pop_entry(sim);
		sim->now_ns = entry.at_ns;
		if (entry.frame == NULL) {
			*event =
				(struct tw_sim_event){ .type = TW_SIM_TIMER, .timer = entry.timer };
			return true;
		}
		if (queue_frame(sim, &sim->endpoints[entry.endpoint], entry.frame)) {
			*event =
				(struct tw_sim_event){ .type = TW_SIM_ARRIVAL,
						       .receiver = entry.endpoint / sim->conf.lines,
						       .line = entry.endpoint % sim->conf.lines };
			return true;
		}
	}
	return false;
}

bool tw_sim_recv(struct tw_sim *sim, uint32_t receiver, uint32_t line, struct tw_sim_dgram *out)
{
	TW_ASSERT(receiver < sim->conf.receivers && line < sim->conf.lines);
	struct endpoint *at = &sim->endpoints[receiver * sim->conf.lines + line];

	release_frame(sim, at->current);
	at->current = NULL;
	if (at->count == 0) {
		return false;
	}
	at->current = at->queue[at->head];
	at->head = (at->head + 1) % sim->conf.queue_dgrams;
	at->count--;
	*out = (struct tw_sim_dgram){ .data = at->current->data,
				      .len_bytes = at->current->len_bytes };
	return true;
}

void tw_sim_clear(struct tw_sim *sim, uint32_t receiver)
{
	struct tw_sim_dgram dgram;

	for (uint32_t line = 0; line < sim->conf.lines; line++) {
		while (tw_sim_recv(sim, receiver, line, &dgram)) {
		}
	}
}

/* --- open, close ----------------------------------------------------------------------------- */

int tw_sim_open(struct tw_sim **sim_p, const struct tw_sim_conf *conf)
{
	*sim_p = NULL;
	if (conf->receivers == 0 || conf->lines == 0 || conf->lines > TW_SIM_MAX_LINES ||
	    conf->queue_dgrams == 0) {
		return TW_EARG;
	}
	struct tw_sim *sim = calloc(1, sizeof(*sim));
	if (sim == NULL) {
		return TW_ENOMEM;
	}
	size_t n = (size_t)conf->receivers * conf->lines;
	sim->conf = *conf;
	tw_rng_init(&sim->rng, conf->seed);
	sim->endpoints = calloc(n, sizeof(*sim->endpoints));
	sim->queues = calloc(n * conf->queue_dgrams, sizeof(struct frame *));
	if (sim->endpoints == NULL || sim->queues == NULL) {
		tw_sim_close(sim);
		return TW_ENOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		sim->endpoints[i].queue = &sim->queues[i * conf->queue_dgrams];
	}
	*sim_p = sim;
	return TW_OK;
}

void tw_sim_close(struct tw_sim *sim)
{
	if (sim == NULL) {
		return;
	}
	for (size_t i = 0; i < sim->heap_count; i++) {
		release_frame(sim, sim->heap[i].frame);
	}
	for (uint32_t r = 0;
	     sim->endpoints != NULL && sim->queues != NULL && r < sim->conf.receivers; r++) {
		tw_sim_clear(sim, r);
	}
	while (sim->free_frames != NULL) {
		struct frame *frame = sim->free_frames;
		sim->free_frames = frame->next_free;
		free(frame->data);
		free(frame);
	}
	free(sim->heap);
	free(sim->endpoints);
	free(sim->queues);
	free(sim);
}

struct tw_sim_link *tw_sim_link(struct tw_sim *sim, uint32_t receiver, uint32_t line)
{
	TW_ASSERT(receiver < sim->conf.receivers && line < sim->conf.lines);
	return &sim->endpoints[receiver * sim->conf.lines + line].link;
}

uint64_t tw_sim_now(const struct tw_sim *sim)
{
	return sim->now_ns;
}
