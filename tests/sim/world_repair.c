/* A simulated site: its repair servers, each with a manner of its own, and subscribers as their clients.
 *
 * Checked  of every read that is posted: it goes to a server that is up, is of the current session, is
 *          no larger than allowed, not one too many, and not for what was asked for a moment ago;
 *          and of what came by position: no more than the rate pays for. */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "tests/sim/world_impl.h"

#define NO_ANSWER UINT32_MAX

/* --- servers --------------------------------------------------------------------------------- */

bool tw_world_make_servers(struct world *w)
{
	if (tw_history_view_make(&w->view, w->history_memory, w->history_bytes, w->mtu_bytes) !=
	    TW_OK) {
		return false;
	}
	/* there is no life to read until the publisher begins one */
	memset(w->history_memory, 0, sizeof(struct tw_history_control));
	uint64_t marks = tw_history_index_marks(w->view.units);
	w->marks = calloc(marks, sizeof(*w->marks));
	if (w->marks == NULL) {
		return false;
	}
	tw_history_index_init(&w->index, w->marks, marks);
	w->server_count = 1 + tw_world_below(w, MAX_SERVERS);
	for (uint32_t i = 0; i < w->server_count; i++) {
		struct server *server = &w->servers[i];
		do { /* nobody can tell a made-up hole, nor deliver what it names */
			server->manner = (enum manner)tw_world_below(w, MANNERS);
		} while ((w->healing || w->gentle) && server->manner == MANNER_HOLES);
		server->up = true;
		server->delay_ns = 2 * US + tw_world_up_to(w, 30 * US);
		server->jitter_ns = tw_world_up_to(w, 20 * US);
		if (server->manner == MANNER_SLOW) {
			server->delay_ns += tw_world_up_to(w, 1000 * US);
		}
	}
	if (w->healing) {
		w->servers[tw_world_below(w, w->server_count)] =
			(struct server){ .manner = MANNER_HONEST, .up = true, .delay_ns = 20 * US };
	}
	for (uint32_t i = 0; i < w->server_count; i++) {
		if (w->servers[i].manner == MANNER_DIES && w->repairs) {
			tw_world_timer(w, tw_world_up_to(w, 500 * US), T_SERVER, i);
		}
	}
	return true;
}

void tw_world_unmake_servers(struct world *w)
{
	for (uint32_t i = 0; i < w->answer_room; i++) {
		free(w->answers[i].data);
	}
	free(w->answers);
	free(w->marks);
}

void tw_world_toggle_server(struct world *w, uint32_t index)
{
	w->servers[index].up = !w->servers[index].up;
	tw_world_trace(w, "server %" PRIu32 " %s", index, w->servers[index].up ? "lives" : "dies");
	tw_world_timer_in(w, 1 + tw_world_up_to(w, 500 * US), T_SERVER, index);
}

static uint32_t new_answer(struct world *w)
{
	for (uint32_t i = 0; i < w->answer_room; i++) {
		if (!w->answers[i].used) {
			return i;
		}
	}
	uint32_t room = w->answer_room == 0 ? 64 : 2 * w->answer_room;
	struct answer *answers = realloc(w->answers, room * sizeof(*answers));
	if (answers == NULL) {
		tw_world_fail(w, "out of memory");
		return NO_ANSWER;
	}
	memset(answers + w->answer_room, 0, (room - w->answer_room) * sizeof(*answers));
	w->answers = answers;
	uint32_t first = w->answer_room;
	w->answer_room = room;
	return first;
}

static void free_answer(struct world *w, uint32_t index)
{
	free(w->answers[index].data);
	w->answers[index] = (struct answer){ .used = false };
}

/* As a publisher's repair service does it. */
static void answer_honestly(struct world *w, struct answer *a)
{
	const struct tw_repair_read *read = &a->read;
	int rc = TW_ENOTFOUND;

	a->data = malloc(TW_REPAIR_READ_MAX_BYTES);
	if (a->data == NULL) {
		tw_world_fail(w, "out of memory");
	} else if (!w->pub_runs) {
		rc = TW_ECLOSED;
	} else if (read->by_seq) {
		rc = tw_history_read_msgs(&w->view, &w->index, read->session, read->begin,
					  read->end, a->data, TW_REPAIR_READ_MAX_BYTES);
	} else {
		rc = tw_history_read(&w->view, read->session, read->publisher, read->begin,
				     read->end, a->data, TW_REPAIR_READ_MAX_BYTES);
	}
	a->len_bytes = rc > 0 ? (size_t)rc : 0;
	switch (rc) {
	case 0:
	case TW_ENOTFOUND:
		a->status = TW_REPAIR_GONE;
		break;
	case TW_EBUSY:
		a->status = TW_REPAIR_BUSY;
		break;
	case TW_EARG:
	case TW_ECLOSED:
		a->status = TW_REPAIR_BROKEN;
		break;
	default:
		a->status = TW_REPAIR_OK;
		break;
	}
}

/* Changes the headers of an honest answer, in the way that `lie` says. */
static void lie(struct answer *a, uint32_t lie, bool holes)
{
	for (size_t at = 0; at + TW_WIRE_UNIT_BYTES <= a->len_bytes; at += TW_WIRE_UNIT_BYTES) {
		struct tw_wire_hdr hdr;
		memcpy(&hdr, a->data + at, sizeof(hdr));
		if (hdr.magic != TW_WIRE_MAGIC || hdr.session != a->read.session) {
			continue;
		}
		struct tw_wire_hole hole = { .end_msg_seq = hdr.first_msg_seq + (1u << 20) };
		switch (holes ? 99 : lie % 8) {
		case 0:
			hdr.session++;
			break;
		case 1:
			hdr.session--;
			break;
		case 2:
			hdr.flags = TW_WIRE_HEARTBEAT | TW_WIRE_END;
			hdr.msg_count = 0;
			hdr.payload_bytes = 0;
			break;
		case 3: /* beyond everything that there is */
			hdr.first_msg_seq += 1u << 20;
			break;
		case 4:
			hdr.channel++;
			break;
		case 5:
			hdr.environment++;
			break;
		case 6:
			hdr.magic++;
			break;
		case 7:
			hdr.payload_bytes = UINT16_MAX;
			break;
		default:
			if (hdr.header_bytes + hdr.payload_bytes <= TW_WIRE_UNIT_BYTES) {
				break; /* no room for a hole */
			}
			hdr.flags = TW_WIRE_HOLE;
			hdr.msg_count = 0;
			hdr.payload_bytes = sizeof(hole);
			memcpy(a->data + at + TW_WIRE_UNIT_BYTES, &hole, sizeof(hole));
			break;
		}
		memcpy(a->data + at, &hdr, sizeof(hdr));
	}
}

static void fill(struct world *w, uint8_t *data, size_t len_bytes)
{
	for (size_t i = 0; i < len_bytes; i++) {
		data[i] = (uint8_t)tw_world_below(w, 256);
	}
}

/* Another length, with noise or nothing behind what is true. */
static void tear(struct world *w, struct answer *a)
{
	size_t room = a->len_bytes + 256 < TW_REPAIR_READ_MAX_BYTES ? a->len_bytes + 256
								    : TW_REPAIR_READ_MAX_BYTES;
	size_t len_bytes = tw_world_up_to(w, room + 1);

	if (len_bytes > a->len_bytes) {
		fill(w, a->data + a->len_bytes, len_bytes - a->len_bytes);
	}
	a->len_bytes = len_bytes;
}

static void answer(struct world *w, struct answer *a, enum manner manner)
{
	answer_honestly(w, a);
	switch (manner) {
	case MANNER_REFUSES:
		a->status = TW_REPAIR_REFUSED;
		break;
	case MANNER_BUSY:
		a->status = TW_REPAIR_BUSY;
		break;
	case MANNER_LIES:
	case MANNER_HOLES:
		lie(a, tw_world_below(w, 64), manner == MANNER_HOLES);
		break;
	case MANNER_TEARS:
		if (a->status == TW_REPAIR_OK) {
			tear(w, a);
		}
		break;
	case MANNER_GARBAGE:
		a->status = (enum tw_repair_status)tw_world_below(w, TW_REPAIR_BROKEN + 2);
		a->len_bytes = tw_world_below(w, 3000);
		fill(w, a->data, a->len_bytes);
		break;
	case MANNER_HONEST:
	case MANNER_SLOW:
	case MANNER_DIES:
	case MANNER_SILENT:
	case MANNERS:
		break;
	}
}

static uint64_t way_ns(struct world *w, const struct server *server)
{
	return server->delay_ns + tw_world_up_to(w, server->jitter_ns);
}

void tw_world_serve(struct world *w, uint32_t index)
{
	struct answer *a = &w->answers[index];
	const struct server *server = &w->servers[a->read.server];

	if (server->manner == MANNER_SILENT) {
		free_answer(w, index);
		return;
	}
	if (!server->up) {
		a->status = TW_REPAIR_BROKEN;
	} else {
		answer(w, a, server->manner);
	}
	tw_world_timer_in(w, way_ns(w, server), T_ANSWER, index);
}

/* --- subscribers as clients ------------------------------------------------------------------ */

bool tw_world_make_repair(struct world *w, struct sub *sub)
{
	static const uint32_t joins[] = { 0, 8, 64 };

	sub->repairs = w->repairs;
	sub->conf.repair = w->repairs;
	if (!sub->repairs) {
		return true;
	}
	uint64_t retry_ns = 50 * US + tw_world_up_to(w, 150 * US);
	uint32_t scale = (w->healing ? 8 : 2) + tw_world_below(w, 7);
	sub->repair_conf = (struct tw_repair_conf){
		.channel = CHANNEL,
		.servers = w->server_count,
		.wait_ns = WAIT_NS,
		.retry_min_ns = retry_ns,
		.retry_max_ns = 8 * retry_ns,
		.give_up_ns = w->healing ? GIVE_UP_MAX_NS : tw_world_up_to(w, 5000 * US),
		.max_bytes_per_s = tw_world_one_in(w, 2) ? 0
				   : w->healing          ? 100000000u + tw_world_below(w, 100000000)
							 : 50000u + tw_world_below(w, 2000000),
		.attempts_max = w->healing ? UINT8_MAX : 1 + tw_world_below(w, 6),
		.reads_max = (w->healing ? 4 : 1) + tw_world_below(w, 13),
		.bytes_max = tw_world_one_in(w, 2) ? 0 : 4096u + tw_world_below(w, 65536),
		.read_max_bytes = scale * w->mtu_bytes < TW_REPAIR_READ_MAX_BYTES
					  ? scale * w->mtu_bytes
					  : TW_REPAIR_READ_MAX_BYTES,
		.join_units = joins[tw_world_below(w, 3)]
	};
	sub->repair_bytes = tw_repair_size(&sub->repair_conf);
	sub->repair_memory = aligned_alloc(64, sub->repair_bytes + GUARD_BYTES);
	return sub->repair_memory != NULL;
}

void tw_world_start_repair(struct world *w, uint32_t index)
{
	struct sub *sub = &w->subs[index];

	sub->life++;
	sub->open_reads = 0;
	sub->recent_count = 0;
	sub->paid_bytes = 0;
	sub->start_ns = tw_sim_now(w->sim);
	sub->polled_ns = sub->resumed_ns = 0;
	if (!sub->repairs) {
		return;
	}
	memset(sub->repair_memory, GUARD, sub->repair_bytes + GUARD_BYTES);
	if (tw_repair_init(&sub->repair, sub->repair_memory, sub->repair_bytes, &sub->repair_conf,
			   sub->arb) != TW_OK) {
		tw_world_fail(w, "the repair ladder refuses its configuration");
	}
}

/* Whether a read asks again for what was asked for less than the shortest back-off ago.  Of what was too
 * large for one read, the parts overlap by a datagram less a unit. */
static void check_again(struct world *w, const struct sub *sub, const struct tw_repair_read *read)
{
	uint64_t allowed = read->by_seq ? 0 : w->mtu_bytes / TW_WIRE_UNIT_BYTES - 1;

	for (uint32_t i = 0; i < RECENT_READS && i < sub->recent_count; i++) {
		const struct recent *recent = &sub->recent[i];
		const struct tw_repair_read *old = &recent->read;
		uint64_t begin = old->begin > read->begin ? old->begin : read->begin;
		uint64_t end = old->end < read->end ? old->end : read->end;
		/* between joined gaps lies what may have been asked for and come */
		if (recent->answered || sub->repair_conf.join_units != 0 ||
		    old->by_seq != read->by_seq || old->publisher != read->publisher ||
		    old->session != read->session ||
		    tw_sim_now(w->sim) - recent->at_ns >= sub->repair_conf.retry_min_ns) {
			continue;
		}
		if (begin < end && end - begin > allowed) {
			tw_world_fail(w,
				      "[%" PRIu64 ", %" PRIu64 ") is asked for again after %" PRIu64
				      " ns",
				      begin, end, tw_sim_now(w->sim) - recent->at_ns);
		}
	}
}

static void check_read(struct world *w, const struct sub *sub, const struct tw_repair_read *read)
{
	if (read->id == 0 || read->server >= w->server_count || !w->servers[read->server].up ||
	    read->channel != CHANNEL || read->session != tw_arb_session(sub->arb) ||
	    read->begin >= read->end) {
		tw_world_fail(w, "a read that makes no sense: [%" PRIu64 ", %" PRIu64 ")",
			      read->begin, read->end);
	}
	if (!read->by_seq &&
	    read->end - read->begin > sub->repair_conf.read_max_bytes / TW_WIRE_UNIT_BYTES) {
		tw_world_fail(w, "a read of %" PRIu64 " units", read->end - read->begin);
	}
	if (tw_repair_outstanding(sub->repair) > sub->repair_conf.reads_max) {
		tw_world_fail(w, "%" PRIu32 " reads are outstanding",
			      tw_repair_outstanding(sub->repair));
	}
	check_again(w, sub, read);
}

static void post(struct world *w, uint32_t sub_idx, const struct tw_repair_read *read)
{
	struct sub *sub = &w->subs[sub_idx];

	tw_world_trace(w,
		       "  sub %" PRIu32 ": read %" PRIu64 " at server %" PRIu32 " %s [%" PRIu64
		       ", %" PRIu64 ")",
		       sub_idx, read->id, read->server, read->by_seq ? "messages" : "units",
		       read->begin, read->end);
	check_read(w, sub, read);
	sub->recent[sub->recent_count++ % RECENT_READS] =
		(struct recent){ .read = *read, .at_ns = tw_sim_now(w->sim) };
	uint32_t index = new_answer(w);
	if (index == NO_ANSWER) {
		return;
	}
	w->answers[index] =
		(struct answer){ .read = *read, .sub = sub_idx, .life = sub->life, .used = true };
	tw_world_timer_in(w, way_ns(w, &w->servers[read->server]), T_SERVE, index);
}

static void check_paid(struct world *w, struct sub *sub, const struct answer *a)
{
	const struct tw_repair_read *read = &a->read;
	uint64_t rate = sub->repair_conf.max_bytes_per_s;
	uint64_t bytes = (read->end - read->begin) * TW_WIRE_UNIT_BYTES;

	if (read->by_seq || a->status != TW_REPAIR_OK || a->len_bytes != bytes || rate == 0) {
		return; /* what did not come is given back */
	}
	sub->paid_bytes += bytes;
	uint64_t time_ns = tw_sim_now(w->sim) - sub->start_ns;
	if (sub->paid_bytes > rate * time_ns / 1000000000u + sub->repair_conf.read_max_bytes + 64) {
		tw_world_fail(w, "%" PRIu64 " bytes in %" PRIu64 " ns", sub->paid_bytes, time_ns);
	}
}

static void mark_answered(struct sub *sub, uint64_t id)
{
	for (uint32_t i = 0; i < RECENT_READS && i < sub->recent_count; i++) {
		if (sub->recent[i].read.id == id) {
			sub->recent[i].answered = true;
		}
	}
}

static void take_answer(struct world *w, uint32_t index)
{
	struct answer *a = &w->answers[index];
	struct sub *sub = &w->subs[a->sub];
	uint64_t now_ns = tw_sim_now(w->sim);
	uint32_t times = tw_world_one_in(w, 50) ? 2 : 1; /* the second one is for nobody */
	struct tw_dgram dgram;

	tw_world_trace(w, "  sub %" PRIu32 ": answer %" PRIu64 ": %d, %zu bytes", a->sub,
		       a->read.id, (int)a->status, a->len_bytes);
	check_paid(w, sub, a);
	if (a->status == TW_REPAIR_OK) {
		mark_answered(sub, a->read.id);
	}
	while (times-- > 0) {
		tw_repair_reply(sub->repair, a->read.id, a->status, a->data, a->len_bytes, now_ns);
		while (w->result->error[0] == '\0' && tw_repair_next_dgram(sub->repair, &dgram)) {
			tw_world_give_repair(w, a->sub, &dgram);
		}
	}
	free_answer(w, index);
}

void tw_world_answer(struct world *w, uint32_t index)
{
	struct answer *a = &w->answers[index];
	struct sub *sub = &w->subs[a->sub];

	if (a->life != sub->life) {
		free_answer(w, index);
		return;
	}
	a->ready = true;
	tw_world_poll_sub(w, a->sub);
}

void tw_world_poll_repair(struct world *w, uint32_t index)
{
	struct sub *sub = &w->subs[index];
	struct tw_repair_read reads[8];
	uint64_t now_ns = tw_sim_now(w->sim);
	uint32_t n;

	if (!sub->repairs) {
		return;
	}
	for (uint32_t i = 0; i < w->answer_room; i++) {
		if (w->answers[i].used && w->answers[i].ready && w->answers[i].sub == index &&
		    w->answers[i].life == sub->life) {
			take_answer(w, i);
		}
	}
	for (uint32_t i = 0; i < w->server_count; i++) {
		tw_repair_server(sub->repair, i, w->servers[i].up, now_ns);
	}
	if (now_ns - sub->polled_ns > tw_repair_stall_ns(&sub->repair_conf)) {
		sub->resumed_ns = now_ns;
	}
	sub->polled_ns = now_ns;
	/* a poll looks at a part of the gaps; all of them want to be looked at now */
	uint32_t polls = 2 + tw_arb_gaps(sub->arb) / TW_REPAIR_LOOK_GAPS;
	do {
		n = tw_repair_poll(sub->repair, now_ns, reads, 1 + index % 8);
		for (uint32_t i = 0; i < n; i++) {
			post(w, index, &reads[i]);
		}
		tw_world_pull(w, index);
	} while (w->result->error[0] == '\0' && (n > 0 || polls-- > 0));
	for (uint32_t i = 0; i < GUARD_BYTES; i++) {
		if (sub->repair_memory[sub->repair_bytes + i] != GUARD) {
			tw_world_fail(w, "subscriber %" PRIu32 ": repair wrote past its memory",
				      index);
		}
	}
}
