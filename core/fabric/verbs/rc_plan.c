/* Chains of READs and what becomes of them: see rc_plan.h. */
#include "fabric/verbs/rc_plan.h"

#define UNIT TW_WIRE_UNIT_BYTES

static void add(struct tw_rc_chain *chain, struct tw_rc_step step)
{
	/* whatever follows a READ waits for it; two READs of bytes need not */
	const struct tw_rc_step *last = chain->count == 0 ? NULL : &chain->steps[chain->count - 1];
	step.waits = last != NULL && (step.target != TW_RC_BYTES || last->target != TW_RC_BYTES);
	chain->steps[chain->count++] = step;
}

static void add_control(struct tw_rc_chain *chain, const struct tw_rc_grant *grant,
			enum tw_rc_target target)
{
	add(chain, (struct tw_rc_step){ .remote_addr = grant->control_addr,
					.bytes = sizeof(struct tw_wire_control),
					.target = target });
}

static void add_bytes(struct tw_rc_chain *chain, const struct tw_rc_grant *grant, uint64_t unit_idx,
		      uint64_t units, uint64_t offset_units)
{
	add(chain, (struct tw_rc_step){ .remote_addr = grant->log_addr + unit_idx * UNIT,
					.bytes = (uint32_t)(units * UNIT),
					.offset_bytes = (uint32_t)(offset_units * UNIT),
					.target = TW_RC_BYTES });
}

enum tw_read_status tw_rc_chain_make(struct tw_rc_chain *chain, const struct tw_rc_grant *grant,
				     const struct tw_read *read, uint64_t published)
{
	uint64_t units = read->end - read->begin;
	if (read->by_seq || read->end <= read->begin || units > grant->units ||
	    units > TW_READ_MAX_BYTES / UNIT) {
		return TW_READ_REFUSED;
	}
	uint64_t begin_idx = read->begin % grant->units;
	uint64_t to_end = grant->units - begin_idx;
	uint64_t first = units < to_end ? units : to_end;

	*chain = (struct tw_rc_chain){ .before = read->end > published || grant->session == 0 };
	if (chain->before) {
		add_control(chain, grant, TW_RC_CONTROL_BEFORE);
	}
	add_bytes(chain, grant, begin_idx, first, 0);
	if (first < units) {
		add_bytes(chain, grant, 0, units - first, first);
	}
	add_control(chain, grant, TW_RC_CONTROL_AFTER);
	return TW_READ_OK;
}

uint32_t tw_rc_leg_end(const struct tw_rc_chain *chain, uint32_t at)
{
	uint32_t end = at + 1;
	while (end < chain->count && !chain->steps[end].waits) {
		end++;
	}
	return end;
}

static bool is_control(const struct tw_wire_control *control, const struct tw_rc_grant *grant)
{
	return control->magic == TW_WIRE_CONTROL_MAGIC && control->units == grant->units;
}

static bool is_asked_for(const struct tw_read *read, const struct tw_rc_grant *grant)
{
	return read->session == grant->session && read->publisher == grant->publisher;
}

static bool is_life(const struct tw_wire_control *control, const struct tw_rc_grant *grant)
{
	return control->session == grant->session && control->publisher == grant->publisher;
}

/* The first life of a memory: whether there is one, and it is the one that is asked for. */
static enum tw_read_status find_life(struct tw_rc_grant *grant, const struct tw_read *read,
				     const struct tw_wire_control *before)
{
	if (before == NULL) {
		return TW_READ_BROKEN; /* a chain for such a grant has it */
	}
	if (before->magic == 0) {
		return TW_READ_BUSY; /* its numbers come before its magic */
	}
	if (!is_control(before, grant)) {
		return TW_READ_BROKEN;
	}
	if (before->session != read->session || before->publisher != read->publisher) {
		return TW_READ_GONE;
	}
	grant->session = before->session;
	grant->publisher = before->publisher;
	return TW_READ_OK;
}

enum tw_read_status tw_rc_judge(struct tw_rc_grant *grant, const struct tw_read *read,
				const struct tw_wire_control *before,
				const struct tw_wire_control *after, uint64_t *published)
{
	uint64_t known = *published;
	enum tw_read_status life =
		grant->session == 0 ? find_life(grant, read, before) : TW_READ_OK;
	if (life != TW_READ_OK) {
		return life;
	}
	if (!is_control(after, grant) || (before != NULL && !is_control(before, grant))) {
		return TW_READ_BROKEN;
	}
	if (!is_asked_for(read, grant) || !is_life(after, grant) ||
	    (before != NULL && !is_life(before, grant))) {
		return TW_READ_GONE;
	}
	if (before != NULL && before->published > known) {
		known = before->published;
	}
	*published = after->published > known ? after->published : known;
	if (read->end > known) {
		return TW_READ_BUSY;
	}
	/* as one who reads on that host would see it; the second holds in every life, and not across two */
	if (after->intent > grant->units && read->begin < after->intent - grant->units) {
		return TW_READ_GONE;
	}
	return after->intent < known ? TW_READ_GONE : TW_READ_OK;
}

bool tw_rc_life_is_over(const struct tw_rc_grant *grant, const struct tw_wire_control *after)
{
	return grant->session != 0 && is_control(after, grant) && !is_life(after, grant);
}

uint32_t tw_rc_depth(uint32_t initiator, uint32_t responder)
{
	uint32_t depth = initiator < responder ? initiator : responder;
	return depth < TW_RC_DEPTH_MAX ? depth : TW_RC_DEPTH_MAX;
}

#define ACK_TIMEOUT_MIN 12u /* 17 ms: less would be a guess about other people's switches */
#define ACK_TIMEOUT_MAX 14u /* 67 ms: what a packet that was lost costs before it is sent again */

uint8_t tw_rc_ack_timeout(uint64_t give_up_ns)
{
	uint8_t n = ACK_TIMEOUT_MIN;
	while (n < ACK_TIMEOUT_MAX && (4096ull << (n + 1)) * (TW_RC_RETRIES + 1) <= give_up_ns) {
		n++;
	}
	return n;
}

uint64_t tw_rc_stuck_ns(uint64_t give_up_ns)
{
	uint64_t ns = 2 * (4096ull << tw_rc_ack_timeout(give_up_ns)) * (TW_RC_RETRIES + 1);
	ns = ns < give_up_ns / 4 ? give_up_ns / 4 : ns;
	return ns < give_up_ns ? ns : give_up_ns;
}
