/* A simulated site from one seed: its making, its faults, its run.  See world.h. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/world_impl.h"

/* --- telling --------------------------------------------------------------------------------- */

void tw_world_trace(const struct world *w, const char *fmt, ...)
{
	if (w->conf.verbose) {
		va_list args;
		va_start(args, fmt);
		printf("%10.3f us  ", (double)tw_sim_now(w->sim) / 1000.0);
		(void)vprintf(fmt, args);
		putchar('\n');
		va_end(args);
	}
}

void tw_world_fail(struct world *w, const char *fmt, ...)
{
	if (w->result->error[0] == '\0') {
		va_list args;
		va_start(args, fmt);
		(void)vsnprintf(w->result->error, sizeof(w->result->error), fmt, args);
		va_end(args);
		tw_world_trace(w, "FAILED: %s", w->result->error);
	}
}

void tw_world_timer(struct world *w, uint64_t at_ns, enum timer type, uint32_t index)
{
	if (tw_sim_timer(w->sim, at_ns, (uint64_t)type << 32 | index) != TW_OK) {
		tw_world_fail(w, "out of memory");
	}
}

void tw_world_timer_in(struct world *w, uint64_t ns, enum timer type, uint32_t index)
{
	tw_world_timer(w, tw_sim_now(w->sim) + ns, type, index);
}

uint64_t tw_world_up_to(struct world *w, uint64_t ns)
{
	return ns == 0 ? 0 : tw_rng_next(&w->rng) % ns;
}

uint32_t tw_world_below(struct world *w, uint32_t limit)
{
	return tw_rng_below(&w->rng, limit);
}

bool tw_world_one_in(struct world *w, uint32_t n)
{
	return tw_world_below(w, n) == 0;
}

/* --- faults ---------------------------------------------------------------------------------- */

static void set_cut(struct world *w, const struct fault *fault, bool cut)
{
	for (uint32_t i = 0; i < w->subs_count; i++) {
		if (fault->sub == MAX_SUBS || fault->sub == i) {
			tw_sim_link(w->sim, i, fault->line)->cut = cut;
		}
	}
}

static void begin_fault(struct world *w, uint32_t index)
{
	const struct fault *fault = &w->faults[index];

	switch (fault->type) {
	case FAULT_CUT:
		tw_world_trace(w, "line %u is cut", fault->line);
		set_cut(w, fault, true);
		w->result->cuts++;
		break;
	case FAULT_CRASH:
		tw_world_trace(w, "publisher crashes");
		w->pub_runs = false;
		w->result->crashes++;
		break;
	case FAULT_STALL:
		tw_world_trace(w, "sub %" PRIu32 ": stalls", fault->sub);
		w->subs[fault->sub].stalled = true;
		w->subs[fault->sub].has_stalled = true;
		w->result->stalls++;
		break;
	case FAULT_RESTART:
		tw_world_start_sub(w, fault->sub);
		break;
	case FAULT_TYPES:
		break;
	}
	tw_world_timer_in(w, fault->duration_ns, T_REPAIR, index);
}

static void end_fault(struct world *w, uint32_t index)
{
	const struct fault *fault = &w->faults[index];

	if (fault->type == FAULT_CUT) {
		set_cut(w, fault, false);
	} else if (fault->type == FAULT_STALL) {
		w->subs[fault->sub].stalled = false;
	} else if (fault->type == FAULT_CRASH && !w->pub_runs) {
		uint64_t back = fault->resend_msgs < w->read_seq ? fault->resend_msgs : 0;
		w->read_seq -= back;
		if (w->read_seq < w->oldest_seq) {
			w->read_seq = w->oldest_seq; /* what is gone was sent by the life before */
		}
		tw_world_start_publisher(w);
	}
	w->faults_over++;
}

static bool all_is_sent(const struct world *w)
{
	const struct session *last = &w->sessions[w->session_count - 1];

	return w->faults_over == w->fault_count && w->pub_runs &&
	       w->pub_session_idx == w->session_count - 1 && last->made == last->msgs &&
	       w->read_seq > last->made;
}

/* From here on the network is perfect, and everything has to come to its end. */
static void heal(struct world *w)
{
	w->healed = true;
	w->heal_ns = tw_sim_now(w->sim);
	for (uint32_t i = 0; i < w->subs_count; i++) {
		for (uint32_t line = 0; line < w->lines; line++) {
			struct tw_sim_link *link = tw_sim_link(w->sim, i, line);
			link->loss_ppm = 0;
			link->duplicate_ppm = 0;
			link->reorder_ppm = 0;
			link->cut = false;
		}
	}
	tw_world_trace(w, "the network heals");
}

/* --- making a world -------------------------------------------------------------------------- */

static void make_sessions(struct world *w)
{
	uint64_t id = 1000 + tw_world_below(w, 1000);

	w->session_count = tw_world_one_in(w, 3) ? 2 + tw_world_below(w, MAX_SESSIONS - 1) : 1;
	for (uint32_t i = 0; i < w->session_count; i++) {
		struct session *session = &w->sessions[i];
		id += 1 + tw_world_below(w, 5);
		session->id = id;
		session->msgs = tw_world_one_in(w, 20)
					? 0
					: 1 + tw_world_below(w, tw_world_one_in(w, 4) ? 900 : 120);
		session->ends = i + 1 == w->session_count || tw_world_one_in(w, 2);
	}
	if (w->session_count > 1 && !w->gentle && !w->healing && tw_world_one_in(w, 4)) {
		w->lower_session = true;
		w->sessions[w->session_count - 1].id = w->sessions[0].id - 1;
		w->result->takeovers = 1;
	}
}

static void make_link(struct world *w, uint32_t sub, uint32_t line)
{
	static const uint32_t rates_ppm[] = { 0, 1000, 20000, 100000, 300000, 700000 };
	struct tw_sim_link *link = tw_sim_link(w->sim, sub, line);
	bool loses = !w->gentle || line == w->lossy_line;

	link->delay_ns = 1 * US + tw_world_up_to(w, 20 * US);
	link->jitter_ns = tw_world_one_in(w, 2) ? tw_world_up_to(w, 20 * US) : 0;
	link->reorder_ppm =
		w->reorders && tw_world_one_in(w, 2) ? rates_ppm[tw_world_below(w, 5)] : 0;
	link->reorder_ns = tw_world_up_to(w, w->gentle ? 20 * US : 200 * US);
	link->duplicate_ppm = tw_world_one_in(w, 2) ? rates_ppm[tw_world_below(w, 5)] : 0;
	link->loss_ppm = loses ? rates_ppm[tw_world_below(w, 6)] : 0;
}

static void make_fault(struct world *w, struct fault *fault)
{
	fault->type = (enum fault_type)tw_world_below(w, FAULT_TYPES);
	if (w->gentle && w->reorders && fault->type == FAULT_STALL) {
		fault->type = FAULT_CUT;
	}
	if (w->healing && fault->type == FAULT_CRASH) {
		fault->type = FAULT_RESTART; /* a history dies with its publisher */
	}
	fault->line = w->gentle ? w->lossy_line : tw_world_below(w, w->lines);
	fault->sub = tw_world_below(w, w->subs_count);
	if (fault->type == FAULT_CUT && tw_world_one_in(w, 3)) {
		fault->sub = MAX_SUBS;
	}
	fault->at_ns = tw_world_up_to(w, ACTIVE_NS);
	fault->duration_ns = tw_world_up_to(w, tw_world_one_in(w, 3) ? 2000 * US : 200 * US);
	fault->resend_msgs = tw_world_below(w, 40);
}

static bool make_sub(struct world *w, struct sub *sub)
{
	static const uint32_t stores[] = { 1, 2, 4, 16, 64 };

	sub->conf = (struct tw_arb_conf){
		.channel = CHANNEL,
		.environment = ENVIRONMENT,
		.start = tw_world_one_in(w, 3) ? TW_START_LIVE : TW_START_SESSION,
		.lines = w->lines,
		.wait_ns = WAIT_NS,
		.heartbeat_max_ns = HEARTBEAT_NS,
		.session_takeover_ns = TAKEOVER_NS,
		.store_dgrams = w->gentle || (w->healing && w->servers[0].manner != MANNER_HONEST)
					? 1024
					: stores[tw_world_below(w, 5)],
		.mtu_bytes = w->mtu_bytes,
		.latest = tw_world_one_in(w, 3)
	};
	sub->slow = tw_world_one_in(w, 2);
	sub->batch = 1 + tw_world_below(w, sub->slow ? 3 : 16);
	sub->size_bytes = tw_arb_size(&sub->conf);
	/* whole cache lines: both addends are */
	sub->memory = aligned_alloc(64, sub->size_bytes + GUARD_BYTES);
	return sub->memory != NULL && tw_world_make_repair(w, sub);
}

static bool make(struct world *w)
{
	struct tw_sim_conf sim = { .seed = tw_rng_next(&w->rng) };

	w->repairs = tw_world_one_in(w, 2);
	/* large stores, which a crowd would not have room for */
	w->healing = w->repairs && w->conf.subscribers == 0 && tw_world_one_in(w, 2);
	w->gentle = !w->healing && tw_world_one_in(w, 3);
	w->lines = w->gentle || !tw_world_one_in(w, 8) ? 2 : 1;
	w->lossy_line = tw_world_below(w, 2);
	w->reorders = !w->gentle || tw_world_one_in(w, 2);
	w->subs_count = w->conf.subscribers != 0 ? w->conf.subscribers : 1 + tw_world_below(w, 4);
	w->mtu_bytes = 64u * (4 + tw_world_below(w, tw_world_one_in(w, 2) ? 4 : 28)); /* from 256 */
	w->burst_max = 1 + tw_world_below(w, tw_world_one_in(w, 3) ? 60 : 8);
	w->burst_gap_ns = 1 + tw_world_up_to(w, 60 * US);
	make_sessions(w);
	w->retain_msgs = w->gentle || w->healing || tw_world_one_in(w, 2)
				 ? UINT32_MAX
				 : 5 + tw_world_below(w, 60);
	w->oldest_seq = 1;
	w->read_seq = 1;
	w->history_bytes = 64u + w->mtu_bytes * (4 + tw_world_below(w, 8));
	if (w->repairs && (w->healing || tw_world_one_in(w, 2))) {
		w->history_bytes = HISTORY_BYTES;
	}

	sim.receivers = w->subs_count;
	sim.lines = w->lines;
	w->queue_dgrams = w->gentle || w->healing ? 2048 : 4 + tw_world_below(w, 60);
	sim.queue_dgrams = w->queue_dgrams;
	w->history_memory = aligned_alloc(64, w->history_bytes);
	w->subs = calloc(w->subs_count, sizeof(*w->subs));
	if (tw_sim_open(&w->sim, &sim) != TW_OK || w->history_memory == NULL || w->subs == NULL ||
	    !tw_world_make_servers(w)) {
		return false;
	}
	for (uint32_t i = 0; i < w->subs_count; i++) {
		for (uint32_t line = 0; line < w->lines; line++) {
			make_link(w, i, line);
		}
		if (!make_sub(w, &w->subs[i])) {
			return false;
		}
		tw_world_timer(w, tw_world_one_in(w, 3) ? tw_world_up_to(w, ACTIVE_NS) : 0,
			       T_SUB_START, i);
	}
	w->fault_count = tw_world_below(w, MAX_FAULTS + 1);
	for (uint32_t i = 0; i < w->fault_count; i++) {
		make_fault(w, &w->faults[i]);
		tw_world_timer(w, w->faults[i].at_ns, T_FAULT, i);
	}
	tw_world_start_publisher(w);
	w->result->sessions = 1;
	w->result->gentle = w->gentle;
	w->result->repairs = w->repairs;
	w->result->healing = w->healing;
	tw_world_timer(w, 0, T_PRODUCE, 0);
	tw_world_timer(w, 0, T_PUBLISH, 0);
	return true;
}

static void unmake(struct world *w)
{
	for (uint32_t i = 0; w->subs != NULL && i < w->subs_count; i++) {
		free(w->subs[i].memory);
		free(w->subs[i].repair_memory);
	}
	tw_world_unmake_servers(w);
	free(w->subs);
	free(w->history_memory);
	tw_sim_close(w->sim);
}

/* --- running --------------------------------------------------------------------------------- */

static void on_timer(struct world *w, uint64_t id)
{
	uint32_t index = (uint32_t)id;

	switch ((enum timer)(id >> 32)) {
	case T_PRODUCE:
		tw_world_produce(w);
		break;
	case T_NEW_SESSION:
		tw_world_new_session(w);
		break;
	case T_PUBLISH:
		tw_world_publish(w);
		if (!w->healed && all_is_sent(w)) {
			heal(w);
		}
		break;
	case T_POLL:
		tw_world_poll_sub(w, index);
		tw_world_timer_in(w, POLL_NS, T_POLL, index);
		break;
	case T_WAKE:
		w->subs[index].stalled = false;
		break;
	case T_SERVE:
		tw_world_serve(w, index);
		break;
	case T_ANSWER:
		tw_world_answer(w, index);
		break;
	case T_SERVER:
		tw_world_toggle_server(w, index);
		break;
	case T_FAULT:
		begin_fault(w, index);
		break;
	case T_REPAIR:
		end_fault(w, index);
		break;
	case T_SUB_START:
		if (!w->subs[index].runs) {
			tw_world_start_sub(w, index);
		}
		break;
	}
}

/* Whether every subscriber has seen the end of the last session. */
static bool is_over(const struct world *w)
{
	const struct session *last = &w->sessions[w->session_count - 1];

	for (uint32_t i = 0; i < w->subs_count; i++) {
		const struct tw_ledger *ledger = &w->subs[i].ledger;
		if (!w->subs[i].runs || !ledger->ended || ledger->session != last->id) {
			return false;
		}
	}
	return true;
}

/* How long it may take from healing to the end: END comes with the next heartbeat; a subscriber that is
 * in another session adopts a lower one only after the takeover time, heard at heartbeats; and what
 * END reveals waits its time, or is repaired or given up, and is seen at the next poll; a slow subscriber
 * may have full queues to work off. */
static uint64_t bound_ns(const struct world *w)
{
	uint64_t start_ns = w->heal_ns < ACTIVE_NS ? ACTIVE_NS - w->heal_ns : 0;

	return start_ns + 2 * HEARTBEAT_NS + WAIT_NS + 2 * POLL_NS + PUBLISH_NS + 300 * US +
	       (w->lower_session ? TAKEOVER_NS + HEARTBEAT_NS : 0) +
	       (w->repairs ? GIVE_UP_MAX_NS : 0) + w->queue_dgrams * POLL_NS;
}

static void check_ends(struct world *w)
{
	const struct session *last = &w->sessions[w->session_count - 1];

	for (uint32_t i = 0; i < w->subs_count; i++) {
		struct sub *sub = &w->subs[i];
		if (sub->ledger.next_seq != last->msgs + 1u || tw_arb_held(sub->arb) != 0 ||
		    tw_arb_next_seq(sub->arb) != last->msgs + 1u) {
			tw_world_fail(w,
				      "subscriber %" PRIu32 ": %" PRIu64
				      " is next after the end, %" PRIu32 " held",
				      i, sub->ledger.next_seq, tw_arb_held(sub->arb));
		}
		for (uint32_t line = 0; line < w->lines; line++) {
			w->result->overflowed += tw_sim_link(w->sim, i, line)->overflowed;
		}
		tw_world_add_totals(w, sub);
	}
}

static void run(struct world *w)
{
	struct tw_sim_event event;
	uint64_t over_ns = 0; /* then a little longer: END must not come twice */

	while (w->result->error[0] == '\0' && tw_sim_next(w->sim, &event)) {
		w->result->events++;
		if (event.type == TW_SIM_TIMER) {
			on_timer(w, event.timer);
		} else {
			tw_world_poll_sub(w, event.receiver);
		}
		uint64_t now_ns = tw_sim_now(w->sim);
		if (!w->healed) {
			if (now_ns > 100 * ACTIVE_NS) {
				tw_world_fail(w, "the publisher does not come to its end");
			}
			continue;
		}
		if (over_ns == 0 && event.type == TW_SIM_TIMER && is_over(w)) {
			over_ns = now_ns;
		}
		if (over_ns != 0 && now_ns > over_ns + 2 * HEARTBEAT_NS) {
			check_ends(w);
			return;
		}
		if (over_ns == 0 && now_ns > w->heal_ns + bound_ns(w)) {
			tw_world_fail(w, "no end %" PRIu64 " ns after the network healed",
				      now_ns - w->heal_ns);
		}
	}
}

void tw_world_run(const struct tw_world_conf *conf, struct tw_world_result *result)
{
	struct world world = { .conf = *conf, .result = result };
	uint64_t seed = conf->seed;

	*result = (struct tw_world_result){ .trace_hash = 0xcbf29ce484222325u };
	tw_rng_init(&world.rng, tw_splitmix_next(&seed));
	if (make(&world)) {
		run(&world);
	} else {
		tw_world_fail(&world, "out of memory");
	}
	result->passed = result->error[0] == '\0';
	unmake(&world);
}
