/* The repair ladder's state: its memory, what is outstanding, how its servers do, and the pace.  See
 * repair.h.
 *
 * Pacing   every read costs its bytes at max_bytes_per_s; what is paid lies at most one read's
 *          worth ahead of now.  What a reply brought less, or more, is settled when it comes. */
#include <string.h>

#include "base/fail.h"
#include "base/slab.h"
#include "protocol/repair_impl.h"

#define UNIT            TW_WIRE_UNIT_BYTES
#define NS_PER_S        UINT64_C(1000000000)
#define MAX_NS          (UINT64_C(24) * 3600 * NS_PER_S)
#define FIRST_MSG_BYTES 64u /* until a reply has shown how large messages are */

/* --- memory ---------------------------------------------------------------------------------- */

static bool conf_holds(const struct tw_repair_conf *conf)
{
	return conf->servers >= 1 && conf->servers <= TW_REPAIR_MAX_SERVERS &&
	       conf->retry_min_ns >= 1 && conf->retry_min_ns <= conf->retry_max_ns &&
	       conf->retry_max_ns <= MAX_NS && conf->wait_ns <= MAX_NS &&
	       conf->give_up_ns <= MAX_NS && conf->attempts_max >= 1 &&
	       conf->attempts_max <= UINT8_MAX && conf->reads_max >= 1 &&
	       conf->reads_max <= TW_REPAIR_MAX_READS && conf->read_max_bytes >= 2 * UNIT &&
	       conf->read_max_bytes % UNIT == 0 && conf->read_max_bytes <= TW_REPAIR_READ_MAX_BYTES;
}

static size_t lines_bytes(size_t bytes)
{
	return tw_round_up(bytes, TW_CACHE_LINE_BYTES);
}

size_t tw_repair_size(const struct tw_repair_conf *conf)
{
	if (!conf_holds(conf)) {
		return 0;
	}
	return lines_bytes(sizeof(struct tw_repair)) +
	       lines_bytes(conf->reads_max * sizeof(struct tw_repair_slot)) +
	       lines_bytes(conf->reads_max * sizeof(uint32_t));
}

static void forget_session(struct tw_repair *repair)
{
	memset(repair->slots, 0, repair->conf.reads_max * sizeof(*repair->slots));
	repair->outstanding_bytes = 0;
	repair->free_count = repair->conf.reads_max;
	for (uint32_t i = 0; i < repair->free_count; i++) {
		repair->free_slots[i] = repair->free_count - 1 - i;
	}
	repair->outstanding = 0;
	repair->overdue = 0;
	repair->walk.runs = false;
	tw_repair_later(repair, 0);
	for (uint32_t i = 0; i < repair->conf.servers; i++) {
		repair->servers[i].gone_seq = 0;
		repair->servers[i].has_seq = UINT64_MAX;
	}
	tw_arb_asked(repair->arb, 0, 0);
}

int tw_repair_init(struct tw_repair **repair_p, void *memory, size_t size_bytes,
		   const struct tw_repair_conf *conf, struct tw_arb *arb)
{
	const struct tw_arb_conf *arb_conf = tw_arb_conf(arb);
	uint8_t *base = memory;

	*repair_p = NULL;
	if (!conf_holds(conf) || memory == NULL || (uintptr_t)memory % TW_CACHE_LINE_BYTES != 0 ||
	    size_bytes < tw_repair_size(conf)) {
		return TW_EARG;
	}
	uint32_t mtu_units = (arb_conf->mtu_bytes + UNIT - 1) / UNIT;
	if (!arb_conf->repair || arb_conf->channel != conf->channel ||
	    arb_conf->wait_ns != conf->wait_ns || conf->read_max_bytes < 2 * mtu_units * UNIT) {
		return TW_EARG;
	}
	memset(base, 0, tw_repair_size(conf));
	struct tw_repair *repair = memory;
	repair->conf = *conf;
	repair->arb = arb;
	repair->session = tw_arb_session(arb);
	repair->read_units = conf->read_max_bytes / UNIT;
	repair->overlap_units = mtu_units - 1;
	repair->msg_bytes = FIRST_MSG_BYTES;
	base += lines_bytes(sizeof(*repair));
	repair->slots = (void *)base;
	base += lines_bytes(conf->reads_max * sizeof(struct tw_repair_slot));
	repair->free_slots = (void *)base;
	forget_session(repair);
	tw_arb_expect_repair(arb, true);
	*repair_p = repair;
	return TW_OK;
}

void tw_repair_begin(struct tw_repair *repair, uint64_t now_ns)
{
	repair->now_ns = now_ns > repair->now_ns ? now_ns : repair->now_ns;
	if (repair->first_ns == 0) {
		repair->first_ns = repair->now_ns;
	}
	if (tw_arb_session(repair->arb) != repair->session) {
		repair->session = tw_arb_session(repair->arb);
		forget_session(repair);
	}
}

/* --- outstanding reads ----------------------------------------------------------------------- */

struct tw_repair_slot *tw_repair_find(struct tw_repair *repair, uint64_t id)
{
	struct tw_repair_slot *slot = &repair->slots[id % repair->conf.reads_max];

	return id != 0 && slot->id == id ? slot : NULL;
}

void tw_repair_free(struct tw_repair *repair, struct tw_repair_slot *slot)
{
	repair->overdue -= slot->overdue ? 1 : 0;
	repair->outstanding--;
	repair->outstanding_bytes -= slot->room_bytes;
	slot->id = 0;
	slot->overdue = false;
	repair->free_slots[repair->free_count++] = (uint32_t)(slot - repair->slots);
}

static bool are_taken(const struct tw_repair *repair)
{
	return repair->free_count == 0 ||
	       (repair->conf.bytes_max != 0 && repair->outstanding_bytes >= repair->conf.bytes_max);
}

struct tw_repair_slot *tw_repair_take(struct tw_repair *repair, uint32_t room_bytes)
{
	for (uint32_t i = 0; are_taken(repair) && repair->overdue > 0; i++) {
		if (repair->slots[i].overdue) {
			tw_repair_free(repair, &repair->slots[i]);
		}
	}
	if (are_taken(repair)) {
		return NULL;
	}
	uint32_t index = repair->free_slots[--repair->free_count];
	struct tw_repair_slot *slot = &repair->slots[index];
	repair->outstanding++;
	/* the next number that leads back to this slot */
	uint64_t reads_max = repair->conf.reads_max;
	uint64_t ahead = (index + reads_max - (repair->serial + 1) % reads_max) % reads_max;
	repair->serial += 1 + ahead;
	*slot = (struct tw_repair_slot){ .id = repair->serial, .room_bytes = room_bytes };
	repair->outstanding_bytes += room_bytes;
	return slot;
}

bool tw_repair_is_outstanding(const struct tw_repair *repair, uint64_t first_seq, uint64_t end_seq)
{
	for (uint32_t i = 0; i < repair->conf.reads_max && repair->outstanding > 0; i++) {
		const struct tw_repair_slot *slot = &repair->slots[i];
		if (slot->id != 0 && tw_seq_before(slot->first_seq, end_seq) &&
		    tw_seq_before(first_seq, slot->end_seq)) {
			return true;
		}
	}
	return false;
}

/* --- servers and time ------------------------------------------------------------------------ */

void tw_repair_later(struct tw_repair *repair, uint64_t at_ns)
{
	repair->again_ns = at_ns < repair->again_ns ? at_ns : repair->again_ns;
}

void tw_repair_go_on(struct tw_repair *repair, uint64_t at_ns)
{
	repair->ahead_ns = at_ns < repair->ahead_ns ? at_ns : repair->ahead_ns;
}

/* What is set aside because of a server that does not answer is lost with the rest: so one is trusted with
 * it after a good answer, until the first bad one; and before until a moment after it was first asked. */
static bool is_trusted(const struct tw_repair *repair, const struct tw_repair_server *server)
{
	uint64_t moment_ns = repair->conf.retry_max_ns / 4;

	if (!server->up) {
		return !server->was_up && repair->now_ns - repair->first_ns < moment_ns;
	}
	return server->strikes == 0 && (server->proven || server->first_asked_ns == 0 ||
					repair->now_ns - server->first_asked_ns < moment_ns);
}

static void judge_hope(struct tw_repair *repair)
{
	bool any = false;

	for (uint32_t i = 0; i < repair->conf.servers; i++) {
		any = any || is_trusted(repair, &repair->servers[i]);
	}
	tw_arb_expect_repair(repair->arb, any);
}

uint64_t tw_repair_back_off_ns(const struct tw_repair *repair, uint32_t times)
{
	uint64_t ns = repair->conf.retry_min_ns;

	for (uint32_t i = 1; i < times && ns < repair->conf.retry_max_ns; i++) {
		ns *= 2;
	}
	return ns < repair->conf.retry_max_ns ? ns : repair->conf.retry_max_ns;
}

uint64_t tw_repair_round_trip_ns(const struct tw_repair_server *server)
{
	return server->rtt_ns + 4 * server->deviation_ns;
}

void tw_repair_strike(struct tw_repair *repair, uint32_t server_idx)
{
	struct tw_repair_server *server = &repair->servers[server_idx];

	server->strikes += server->strikes < UINT32_MAX ? 1 : 0;
	server->blocked_ns = repair->now_ns + tw_repair_back_off_ns(repair, server->strikes);
	judge_hope(repair);
}

void tw_repair_server(struct tw_repair *repair, uint32_t server_idx, bool up, uint64_t now_ns)
{
	TW_ASSERT(server_idx < repair->conf.servers);
	struct tw_repair_server *server = &repair->servers[server_idx];

	tw_repair_begin(repair, now_ns);
	if (up == server->up) {
		return;
	}
	server->up = up;
	server->proven = false;
	if (up) { /* perhaps another life, with another history */
		server->first_asked_ns = 0;
		server->was_up = true;
		server->blocked_ns = 0;
		server->gone_seq = 0;
		server->has_seq = UINT64_MAX;
		tw_repair_later(repair, 0);
	}
	judge_hope(repair);
}

uint32_t tw_repair_pick_server(struct tw_repair *repair, uint32_t from, uint64_t end_seq)
{
	for (uint32_t i = 0; i < repair->conf.servers; i++) {
		uint32_t index = (from + i) % repair->conf.servers;
		const struct tw_repair_server *server = &repair->servers[index];
		if (!server->up || !tw_seq_before(server->gone_seq, end_seq)) {
			continue;
		}
		if (repair->now_ns >= server->blocked_ns) {
			return index;
		}
		tw_repair_later(repair, server->blocked_ns);
	}
	return TW_REPAIR_NO_SERVER;
}

uint64_t tw_repair_gone_seq(const struct tw_repair *repair)
{
	uint64_t gone_seq = UINT64_MAX;

	for (uint32_t i = 0; i < repair->conf.servers; i++) {
		uint64_t seq = repair->servers[i].gone_seq;
		gone_seq = tw_seq_before(seq, gone_seq) ? seq : gone_seq;
	}
	return gone_seq;
}

void tw_repair_check_overdue(struct tw_repair *repair)
{
	if (repair->now_ns < repair->overdue_check_ns) {
		return;
	}
	judge_hope(repair);
	repair->overdue_check_ns = repair->now_ns + repair->conf.retry_min_ns;
	if (repair->outstanding == repair->overdue) {
		return;
	}
	for (uint32_t i = 0; i < repair->conf.reads_max; i++) {
		struct tw_repair_slot *slot = &repair->slots[i];
		const struct tw_repair_server *server = &repair->servers[slot->server];
		uint64_t limit_ns = server->timed ? 2 * tw_repair_round_trip_ns(server) : 0;
		limit_ns =
			limit_ns < repair->conf.retry_max_ns ? repair->conf.retry_max_ns : limit_ns;
		/* while we stood still its answer could not be taken */
		uint64_t since_ns =
			slot->asked_ns < repair->resumed_ns ? repair->resumed_ns : slot->asked_ns;
		if (slot->id == 0 || slot->overdue || repair->now_ns - since_ns < limit_ns) {
			continue;
		}
		slot->overdue = true;
		repair->overdue++;
		repair->stats.overdue++;
		tw_repair_strike(repair, slot->server);
		tw_repair_go_on(repair, 0); /* its slot may be had */
	}
}

/* --- pacing ---------------------------------------------------------------------------------- */

uint64_t tw_repair_rate_ns(const struct tw_repair *repair, uint64_t bytes)
{
	uint64_t rate = repair->conf.max_bytes_per_s;

	return rate == 0 ? 0 : (bytes * NS_PER_S + rate - 1) / rate;
}

uint64_t tw_repair_paced_at_ns(const struct tw_repair *repair, uint64_t bytes)
{
	uint64_t burst_ns = tw_repair_rate_ns(repair, repair->conf.read_max_bytes);
	uint64_t due_ns = repair->paced_ns + tw_repair_rate_ns(repair, bytes);

	return due_ns > burst_ns ? due_ns - burst_ns : 0;
}
