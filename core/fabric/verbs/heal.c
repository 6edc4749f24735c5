/* Lines, and the cold thread: events of devices and of rdma_cm, and taking apart and building anew
 * what broke.  See ud.h.
 *
 * What heals how
 *   a completion with an error, QP_FATAL ...   queue pair anew, the membership stays
 *   multicast error, address change            membership and queue pair anew
 *   port down                                  counted; the queue pair lives through it
 *   port up again                              on InfiniBand memberships anew: the subnet may have
 *                                              forgotten them; on RoCE the kernel reports again
 *   GID change                                 where the line's GID is another now: device anew
 *   device fatal, removal                      device closed; looked for again with the back-off
 * Order     queue pair, completion queue, memory regions, then protection domain, then context: a
 *           line closes only when none of its flows has anything left.
 * Threads   the cold thread; open and close call the same functions while it does not run. */
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/app.h"
#include "base/clock.h"
#include "base/fail.h"
#include "fabric/udp/udp.h"
#include "fabric/verbs/async.h"
#include "fabric/verbs/ud.h"

#define BACKOFF_MIN_NS 10000000ull   /* a queue pair that broke by chance is back at once */
#define BACKOFF_MAX_NS 1000000000ull /* a device that went may stay away for long */
#define STEADY_NS      5000000000ull /* what broke sooner after it was built waits longer and longer */
#define TURN_MS        100           /* nothing is broken: sampling, and looking at states */
#define TURN_BUSY_MS   5             /* something is */

/* --- notes ------------------------------------------------------------------------------------- */

void tw_ud_say(struct tw_ud *ud, const struct tw_error *what)
{
	(void)pthread_mutex_lock(&ud->note_lock);
	ud->notes[ud->note_head++ % TW_UD_NOTES] = *what; /* counters have them all */
	if (ud->note_head - ud->note_tail > TW_UD_NOTES) {
		ud->note_tail++;
	}
	(void)pthread_mutex_unlock(&ud->note_lock);
}

bool tw_ud_note(struct tw_ud *ud, struct tw_error *out)
{
	(void)pthread_mutex_lock(&ud->note_lock);
	const bool any = ud->note_head != ud->note_tail;
	if (any) {
		*out = ud->notes[ud->note_tail++ % TW_UD_NOTES];
	}
	(void)pthread_mutex_unlock(&ud->note_lock);
	return any;
}

static void say_flow(struct tw_ud *ud, const struct tw_ud_flow *flow, int code, const char *text)
{
	struct tw_error note;
	(void)tw_fail(&note, code, "%s " TW_IPV4_FMT " (line %c): %s", ud->what,
		      TW_IPV4_ARGS(flow->group), 'a' + flow->line, text);
	tw_ud_say(ud, &note);
}

static void poke(int fd)
{
	const uint64_t one = 1;
	/* it can only fail where it is already readable */
	(void)!write(fd, &one, sizeof(one));
}

/* --- who owns a flow ---------------------------------------------------------------------------- */

bool tw_ud_wanted(struct tw_ud_flow *flow, uint32_t state)
{
	if (state == TW_UD_RECALLED) {
		tw_ud_give_up(flow);
	}
	return false;
}

void tw_ud_give_up(struct tw_ud_flow *flow)
{
	/* VB3: pairs with VB4 */
	atomic_store_explicit(&flow->state, TW_UD_COLD, memory_order_release);
}

void tw_ud_recall(struct tw_ud *ud, struct tw_ud_flow *flow, bool rejoin)
{
	uint32_t hot = TW_UD_HOT;
	flow->rejoin = flow->rejoin || rejoin;
	/* relaxed: nothing is handed over yet */
	(void)atomic_compare_exchange_strong_explicit(&flow->state, &hot, TW_UD_RECALLED,
						      memory_order_relaxed, memory_order_relaxed);
	poke(ud->heal_fd);
}

void tw_ud_recall_line(struct tw_ud *ud, unsigned int line, bool rejoin)
{
	for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
		if (f->line == line) {
			tw_ud_recall(ud, f, rejoin);
		}
	}
}

/* --- lines -------------------------------------------------------------------------------------- */

static void close_line(struct tw_ud *ud, unsigned int l)
{
	struct tw_ud_line *line = &ud->lines[l];
	if (ud->line_closing != NULL) {
		ud->line_closing(ud, l);
	}
	if (line->pd != NULL) {
		(void)ibv_dealloc_pd(line->pd);
		line->pd = NULL;
	}
	tw_verbs_close(&line->device);
	line->reopen = false;
}

static int open_line(struct tw_ud *ud, unsigned int l, struct tw_error *err)
{
	struct tw_ud_line *line = &ud->lines[l];
	int rc = tw_verbs_open(&line->device, &line->conf, &line->need, err);
	if (rc != TW_OK || line->device.context == NULL) {
		return rc;
	}
	rc = tw_verbs_listen(line->device.context, err);
	if (rc != TW_OK) {
		goto undo_device;
	}
	line->pd = ibv_alloc_pd(line->device.context);
	if (line->pd == NULL) {
		rc = tw_fail_sys(err, TW_ESYS, "%s: ibv_alloc_pd", line->device.facts.device);
		goto undo_device;
	}
	return TW_OK;
undo_device:
	close_line(ud, l);
	return rc;
}

/* A device that is open may have lost its port, or have another MTU: then there is no use in building. */
static int check_line(struct tw_ud_line *line, struct tw_error *err)
{
	struct tw_verbs_facts now = line->device.facts;
	int rc = tw_verbs_refresh(&now, line->device.context, err);
	return rc == TW_OK ? tw_verbs_check(&now, &line->need, err) : rc;
}

/* Whether the line's GID is still where it was. */
static bool gid_holds(const struct tw_ud_line *line)
{
	const struct tw_verbs_facts *facts = &line->device.facts;
	struct tw_verbs_place place = { .port = facts->port, .index = (uint8_t)facts->gid_index };
	memcpy(place.gid, facts->gid, sizeof(place.gid));
	return tw_verbs_gid_holds(line->device.context, &place);
}

/* A new device, with everything on it. */
static void reopen(struct tw_ud *ud, unsigned int l)
{
	ud->lines[l].reopen = true;
	tw_ud_recall_line(ud, l, true);
}

static void queue_event(struct tw_ud *ud, unsigned int l, const struct tw_verbs_event *event)
{
	for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
		/* a completion queue's failure takes its queue pair's flow along */
		if (f->line == l && tw_verbs_is_about(event, f->qp)) {
			tw_ud_recall(ud, f, false);
		}
	}
}

/* What is of this line's port. */
static void port_event(struct tw_ud *ud, unsigned int l, enum tw_trouble trouble)
{
	struct tw_ud_line *line = &ud->lines[l];
	switch (trouble) {
	case TW_TROUBLE_PORT_DOWN:
		tw_counter_add(&line->counters, TW_VERBS_LINE_port_downs, 1);
		break;
	case TW_TROUBLE_PORT_UP:
	case TW_TROUBLE_SUBNET:
		tw_counter_add(&line->counters, TW_VERBS_LINE_port_ups,
			       trouble == TW_TROUBLE_PORT_UP);
		if (line->device.facts.link == TW_VERBS_LINK_INFINIBAND) {
			tw_ud_recall_line(ud, l, true);
		}
		break;
	case TW_TROUBLE_GID:
	case TW_TROUBLE_ADDRESS:
		tw_counter_add(&line->counters, TW_VERBS_LINE_gid_changes, 1);
		if (trouble == TW_TROUBLE_ADDRESS || !gid_holds(line)) {
			reopen(ud, l);
		}
		break;
	default:
		break;
	}
}

static void async_events(struct tw_ud *ud, unsigned int l)
{
	struct tw_ud_line *line = &ud->lines[l];
	struct tw_verbs_event event;

	while (line->device.context != NULL && tw_verbs_take_event(line->device.context, &event)) {
		tw_counter_add(&line->counters, TW_VERBS_LINE_async_events, 1);
		if (event.trouble == TW_TROUBLE_DEVICE) {
			tw_counter_add(&line->counters, TW_VERBS_LINE_device_errors, 1);
			reopen(ud, l);
		} else if (event.trouble == TW_TROUBLE_QUEUE) {
			queue_event(ud, l, &event);
		} else if (event.port == line->device.facts.port) {
			port_event(ud, l, event.trouble);
		}
	}
}

/* --- taking apart and building -------------------------------------------------------------------- */

static void wait_longer(struct tw_ud_flow *flow, uint64_t now_ns)
{
	flow->retry_at_ns = now_ns + flow->backoff_ns;
	flow->backoff_ns = flow->backoff_ns == 0 ? BACKOFF_MIN_NS : flow->backoff_ns * 2;
	flow->backoff_ns = flow->backoff_ns > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : flow->backoff_ns;
}

/* The hot thread has given it up: nothing of it stays in the device. */
static void take_apart(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	struct tw_ud_line *line = &ud->lines[flow->line];
	const uint32_t lost = flow->ops->unbuild(ud, flow);
	tw_counter_add(&line->counters, TW_VERBS_LINE_unaccounted, lost);
	if (flow->rejoin || line->reopen) {
		tw_ud_leave(flow);
	}
	flow->rejoin = false;
	const uint64_t now_ns = tw_mono_ns();
	if (now_ns - flow->built_ns > STEADY_NS) {
		flow->backoff_ns = 0;
	}
	wait_longer(flow, now_ns);
	/* VB5: pairs with VB2 */
	atomic_store_explicit(&flow->state, TW_UD_GONE, memory_order_release);
}

static int build(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	struct tw_ud_line *line = &ud->lines[flow->line];
	int rc = line->device.context != NULL ? check_line(line, err)
					      : open_line(ud, flow->line, err);
	if (rc == TW_OK && flow->join != TW_UD_JOINED) {
		rc = tw_ud_join(ud, flow, err);
	}
	if (rc == TW_OK) {
		rc = flow->ops->build(ud, flow, err);
	}
	if (rc != TW_OK) {
		return rc;
	}
	flow->built_ns = tw_mono_ns();
	/* VB1: pairs with VB2 */
	atomic_store_explicit(&flow->state, TW_UD_HOT, memory_order_release);
	return TW_OK;
}

static void try_again(struct tw_ud *ud, struct tw_ud_flow *flow)
{
	struct tw_ud_line *line = &ud->lines[flow->line];
	const uint64_t now_ns = tw_mono_ns();
	struct tw_error err = { .code = TW_OK };

	if (now_ns < flow->retry_at_ns || line->reopen) {
		return;
	}
	if (flow->rejoin) {
		tw_ud_leave(flow);
		flow->rejoin = false;
	}
	if (build(ud, flow, &err) == TW_OK) {
		tw_counter_add(&line->counters, TW_VERBS_LINE_rebuilds, 1);
		say_flow(ud, flow, TW_OK, "up again");
		flow->told = false;
		poke(ud->heal_fd);
		return;
	}
	tw_counter_add(&line->counters, TW_VERBS_LINE_rebuilds_failed, 1);
	if (!flow->told) {
		tw_ud_say(ud, &err);
		flow->told = true;
	}
	wait_longer(flow, now_ns);
}

static uint32_t load_state(const struct tw_ud_flow *flow)
{
	/* VB4: pairs with VB3 */
	return atomic_load_explicit(&flow->state, memory_order_acquire);
}

/* One look at everything; returns how many flows are not HOT. */
static uint32_t heal(struct tw_ud *ud)
{
	uint32_t broken[TW_FABRIC_MAX_LINES] = { 0 }, left[TW_FABRIC_MAX_LINES] = { 0 };
	for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
		if (load_state(f) == TW_UD_COLD) {
			say_flow(ud, f, TW_ECLOSED, "broke, and is being built anew");
			take_apart(ud, f);
		}
		left[f->line] += load_state(f) != TW_UD_GONE;
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (ud->lines[l].reopen && left[l] == 0) {
			/* also memberships of flows that were GONE before the device went */
			for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
				if (f->line == l) {
					tw_ud_leave(f);
				}
			}
			close_line(ud, l);
		}
	}
	for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
		if (load_state(f) == TW_UD_GONE) {
			try_again(ud, f);
		}
		broken[f->line] += load_state(f) != TW_UD_HOT;
	}
	uint32_t all = 0;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		if (ud->lines[l].used) {
			tw_counter_set(&ud->lines[l].counters, TW_VERBS_LINE_broken, broken[l]);
		}
		all += broken[l];
	}
	return all;
}

static void *cold_thread(void *arg)
{
	struct tw_ud *ud = arg;
	uint64_t sample_ns = 0;
	uint32_t broken = 0;

	/* relaxed: it orders nothing, and the join does */
	while (!atomic_load_explicit(&ud->stopping, memory_order_relaxed)) {
		struct pollfd fds[2 + TW_FABRIC_MAX_LINES] = {
			{ .fd = ud->wake_fd, .events = POLLIN },
			{ .fd = ud->channel->fd, .events = POLLIN },
		};
		for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
			const struct ibv_context *context = ud->lines[l].device.context;
			fds[2 + l] =
				(struct pollfd){ .fd = context != NULL ? context->async_fd : -1,
						 .events = POLLIN };
		}
		(void)poll(fds, 2 + TW_FABRIC_MAX_LINES, broken > 0 ? TURN_BUSY_MS : TURN_MS);
		tw_ud_cm_events(ud);
		for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
			async_events(ud, l);
		}
		broken = heal(ud);
		const uint64_t now_ns = tw_mono_ns();
		if (ud->sample != NULL && now_ns - sample_ns >= TW_CLOCK_REFIT_NS) {
			sample_ns = now_ns;
			ud->sample(ud);
		}
	}
	return NULL;
}

/* --- opening and closing ---------------------------------------------------------------------------- */

int tw_ud_init(struct tw_ud *ud, const char *what, const struct tw_fabric_conf *conf,
	       const uint32_t groups[TW_FABRIC_MAX_LINES], struct tw_error *err)
{
	ud->what = what;
	ud->tos = conf->tos;
	ud->ttl = conf->ttl;
	ud->wake_fd = ud->heal_fd = -1;
	(void)pthread_mutex_init(&ud->note_lock, NULL);
	ud->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ud->heal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ud->wake_fd < 0 || ud->heal_fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "verbs: eventfd");
	}
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		struct tw_ud_line *line = &ud->lines[l];
		if (groups[l] == 0) {
			continue;
		}
		line->used = true;
		line->conf = conf->lines[l];
		line->counters = conf->verbs[l];
		if (line->counters.values == NULL) {
			line->counters.values = line->own;
		}
		line->need = (struct tw_verbs_need){ .line = (char)('a' + l),
						     .mtu_bytes = conf->mtu_bytes,
						     .groups = groups[l],
						     .partition_key = conf->partition_key };
		int rc = open_line(ud, l, err);
		if (rc != TW_OK) {
			return rc;
		}
		tw_verbs_facts_text(&line->device.facts, line->text, sizeof(line->text));
	}
	return tw_ud_channel_open(ud, err);
}

int tw_ud_add(struct tw_ud *ud, struct tw_ud_flow *flow, struct tw_error *err)
{
	if (flow->group >> 28 != 0xe) {
		return tw_fail(err, TW_EARG, "%s " TW_IPV4_FMT ": not a multicast address",
			       ud->what, TW_IPV4_ARGS(flow->group));
	}
	atomic_store_explicit(&flow->state, TW_UD_GONE, memory_order_relaxed); /* one thread yet */
	flow->next = ud->flows;
	ud->flows = flow;
	int rc = build(ud, flow, err);
	if (rc == TW_OK && flow->fallback) {
		say_flow(ud, flow, TW_OK,
			 "no send-only membership to be had: joined as a full member");
	}
	return rc;
}

int tw_ud_start(struct tw_ud *ud, struct tw_error *err)
{
	int rc = tw_thread_start(&ud->thread, "tw-verbs", cold_thread, ud, err);
	ud->started = rc == TW_OK;
	return rc;
}

void tw_ud_fini(struct tw_ud *ud)
{
	if (ud->started) {
		atomic_store_explicit(&ud->stopping, true, memory_order_relaxed);
		poke(ud->wake_fd);
		(void)pthread_join(ud->thread, NULL);
		ud->started = false;
	}
	for (struct tw_ud_flow *f = ud->flows; f != NULL; f = f->next) {
		struct tw_ud_line *line = &ud->lines[f->line];
		tw_counter_add(&line->counters, TW_VERBS_LINE_unaccounted, f->ops->unbuild(ud, f));
		tw_ud_leave(f);
	}
	ud->flows = NULL;
	for (unsigned int l = 0; l < TW_FABRIC_MAX_LINES; l++) {
		close_line(ud, l);
	}
	if (ud->channel != NULL) {
		rdma_destroy_event_channel(ud->channel);
		ud->channel = NULL;
	}
	if (ud->wake_fd >= 0) {
		close(ud->wake_fd);
	}
	if (ud->heal_fd >= 0) {
		close(ud->heal_fd);
	}
	(void)pthread_mutex_destroy(&ud->note_lock);
}
