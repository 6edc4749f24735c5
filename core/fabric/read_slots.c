/* What every reader has: see read_slots.h. */
#include "fabric/read_slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/splitmix.h"
#include "fabric/repair_wire.h"

int tw_reader_conf_check(const struct tw_reader_conf *conf, struct tw_error *err)
{
	if (conf->server_count == 0 || conf->server_count > TW_READER_MAX_SERVERS ||
	    conf->slots < conf->server_count || conf->slots > TW_READER_MAX_SLOTS ||
	    conf->small_slots > TW_READER_MAX_SLOTS) {
		return tw_fail(err, TW_EARG,
			       "repair reader: %u servers, %u slots and %u small ones: 1 to %u "
			       "servers are possible, with a slot each and at most %u of either",
			       conf->server_count, conf->slots, conf->small_slots,
			       TW_READER_MAX_SERVERS, TW_READER_MAX_SLOTS);
	}
	if (conf->retry_min_ns == 0 || conf->retry_min_ns > conf->retry_max_ns ||
	    conf->connect_timeout_ns == 0 || conf->idle_timeout_ns == 0) {
		return tw_fail(err, TW_EARG, "repair reader: times are 0 or contradict each other");
	}
	if (!tw_rw_name_holds(conf->name)) {
		return tw_fail(err, TW_EARG, "repair reader: name is not printable ASCII");
	}
	return TW_OK;
}

int tw_read_slots_init(struct tw_read_slots *slots, const struct tw_reader_conf *conf,
		       size_t extra_bytes, struct tw_error *err)
{
	*slots = (struct tw_read_slots){ .large = conf->slots,
					 .count = conf->slots + conf->small_slots,
					 .server_count = conf->server_count };
	slots->free_slots = calloc(slots->count, sizeof(slots->free_slots[0]));
	slots->slots = calloc(slots->count, sizeof(slots->slots[0]));
	if (slots->free_slots == NULL || slots->slots == NULL) {
		return tw_fail(err, TW_ENOMEM, "repair reader: calloc: %u slots", slots->count);
	}
	slots->extra_at = (size_t)conf->slots * TW_READ_MAX_BYTES +
			  (size_t)conf->small_slots * TW_READ_SMALL_BYTES;
	int rc = tw_slab_init(&slots->slab, slots->extra_at + extra_bytes, err);
	if (rc < 0) {
		return rc;
	}
	uint8_t *data = slots->slab.base;
	for (uint32_t i = 0; i < slots->count; i++) {
		uint32_t bytes = i < conf->slots ? TW_READ_MAX_BYTES : TW_READ_SMALL_BYTES;
		slots->slots[i].data = data;
		slots->slots[i].room_bytes = bytes;
		slots->free_slots[i] = i;
		data += bytes;
	}
	slots->free_count = conf->slots;
	slots->free_small = slots->free_slots + conf->slots;
	slots->free_small_count = conf->small_slots;
	slots->idle_servers = conf->server_count;
	return TW_OK;
}

void tw_read_slots_fini(struct tw_read_slots *slots)
{
	tw_slab_fini(&slots->slab);
	free(slots->slots);
	free(slots->free_slots);
	*slots = (struct tw_read_slots){ 0 };
}

static bool take_small(struct tw_read_slots *slots, const struct tw_read *read, uint32_t *slot)
{
	if (slots->free_small_count == 0 || read->by_seq ||
	    read->end - read->begin > TW_READ_SMALL_BYTES / TW_RW_UNIT_BYTES) {
		return false;
	}
	*slot = slots->free_small[--slots->free_small_count];
	return true;
}

/* Each server that holds none has one in reserve. */
static bool take_large(struct tw_read_slots *slots, const struct tw_read *read, uint32_t *slot)
{
	bool first = slots->held[read->server] == 0;
	if (slots->free_count <= slots->idle_servers - first) {
		return false;
	}
	*slot = slots->free_slots[--slots->free_count];
	slots->held[read->server]++;
	slots->idle_servers -= first;
	return true;
}

bool tw_read_slots_take(struct tw_read_slots *slots, const struct tw_read *read, uint32_t *slot)
{
	if (read->server >= slots->server_count || !tw_rw_read_holds(read) ||
	    (!take_small(slots, read, slot) && !take_large(slots, read, slot))) {
		return false;
	}
	slots->slots[*slot].read = *read;
	slots->slots[*slot].posted_ns = tw_mono_ns();
	return true;
}

void tw_read_slots_give(struct tw_read_slots *slots, const struct tw_read_done *done)
{
	if (done->slot >= slots->large) {
		TW_ASSERT(slots->free_small_count < slots->count - slots->large);
		slots->free_small[slots->free_small_count++] = done->slot;
		return;
	}
	TW_ASSERT(slots->free_count < slots->large && slots->held[done->server] > 0);
	slots->free_slots[slots->free_count++] = done->slot;
	slots->idle_servers += --slots->held[done->server] == 0;
}

void tw_read_slots_done(const struct tw_read_slots *slots, uint32_t slot,
			enum tw_read_status status, uint32_t len_bytes, struct tw_read_done *done)
{
	const struct tw_read_slot *at = &slots->slots[slot];
	*done = (struct tw_read_done){
		.id = at->read.id,
		.status = status,
		.server = at->read.server,
		.channel = at->read.channel,
		.data = at->data,
		.len_bytes = len_bytes,
		.slot = slot,
	};
}

void tw_reader_count(const struct tw_counters *counters, unsigned int counter, uint64_t n)
{
	if (counters != NULL) {
		tw_counter_add(counters, counter, n);
	}
}

void tw_reader_count_end(const struct tw_counters *counters, enum tw_read_status status)
{
	static const unsigned int ends[TW_READ_STATUSES] = {
		[TW_READ_OK] = TW_READER_replies,      [TW_READ_GONE] = TW_READER_gone,
		[TW_READ_REFUSED] = TW_READER_refused, [TW_READ_BUSY] = TW_READER_busy,
		[TW_READ_BROKEN] = TW_READER_broken,
	};
	tw_reader_count(counters, ends[status], 1);
}

void tw_read_backoff_init(struct tw_read_backoff *backoff, const struct tw_reader_conf *conf,
			  uint64_t seed)
{
	*backoff = (struct tw_read_backoff){ .min_ns = conf->retry_min_ns,
					     .max_ns = conf->retry_max_ns,
					     .next_ns = conf->retry_min_ns,
					     .seed = tw_splitmix_mix(seed ^ tw_mono_ns()) };
}

uint64_t tw_read_backoff_fail(struct tw_read_backoff *backoff, uint64_t now_ns)
{
	backoff->seed = tw_splitmix_mix(backoff->seed + now_ns);
	uint64_t at_ns = now_ns + backoff->next_ns + backoff->seed % (backoff->next_ns / 4 + 1);
	backoff->next_ns *= 2;
	if (backoff->next_ns > backoff->max_ns) {
		backoff->next_ns = backoff->max_ns;
	}
	return at_ns;
}
