/* Which messages of a channel in `latest` mode come late: see sub_late.h. */
#include "subscriber/sub_late.h"

#include <string.h>

#include "base/fail.h"
#include "base/slab.h"

#define WAYS   7u
#define SPREAD 0x9e3779b97f4a7c15ull /* 2^64 / golden ratio: spreads dense ids */

struct entry {
	uint64_t seq; /* highest one handed out ahead of a gap */
	uint32_t instrument_id;
	uint16_t venue_id;
	uint16_t epoch; /* of the session; any other than the current one: free */
};

struct set {
	struct entry ways[WAYS];
	struct entry rest; /* all that found no way */
};

struct tw_sub_late {
	uint64_t highest_seq; /* handed out ahead of a gap, of any instrument */
	uint32_t shift;       /* of the hash: its upper bits number the set */
	uint32_t set_count;
	uint16_t epoch;
	_Alignas(TW_CACHE_PAIR_BYTES) struct set sets[];
};

_Static_assert(sizeof(struct set) == TW_CACHE_PAIR_BYTES, "a set is a pair of cache lines");

size_t tw_sub_late_bytes(uint32_t sets)
{
	return sizeof(struct tw_sub_late) + sets * sizeof(struct set);
}

struct tw_sub_late *tw_sub_late_init(void *memory, uint32_t sets)
{
	struct tw_sub_late *late = memory;

	TW_ASSERT(sets >= 2 && (sets & (sets - 1)) == 0);
	TW_ASSERT((uintptr_t)memory % _Alignof(struct tw_sub_late) == 0);
	late->set_count = sets;
	late->shift = 64 - (uint32_t)__builtin_ctz(sets);
	late->epoch = 1; /* no zeroed entry is of it */
	return late;
}

void tw_sub_late_forget(struct tw_sub_late *late)
{
	late->highest_seq = 0;
	if (++late->epoch == 0) { /* after 65,535 sessions old entries would come to life again */
		memset(late->sets, 0, late->set_count * sizeof(struct set));
		late->epoch = 1;
	}
}

static bool is_later(const struct tw_sub_late *late, const struct entry *entry, uint64_t seq)
{
	return entry->epoch == late->epoch && entry->seq > seq;
}

static void raise(const struct tw_sub_late *late, struct entry *entry, uint64_t seq)
{
	if (!is_later(late, entry, seq)) {
		entry->seq = seq;
		entry->epoch = late->epoch;
	}
}

bool tw_sub_late_take(struct tw_sub_late *late, const struct tw_msg_head *msg, uint64_t seq,
		      uint64_t open_seq)
{
	bool is_late = late->highest_seq > seq;
	struct entry *found = NULL;
	struct entry *unused = NULL;

	if (open_seq != 0 && !is_late) {
		late->highest_seq = seq;
	}
	if (msg == NULL) {
		return is_late;
	}
	uint64_t key = (uint64_t)msg->venue_id << 32 | msg->instrument_id;
	struct set *set = &late->sets[key * SPREAD >> late->shift];
	for (uint32_t i = 0; i < WAYS && found == NULL; i++) {
		struct entry *entry = &set->ways[i];
		bool current = entry->epoch == late->epoch;
		if (current && entry->venue_id == msg->venue_id &&
		    entry->instrument_id == msg->instrument_id) {
			found = entry;
		} else if (!current || entry->seq < open_seq) {
			unused = entry;
		}
	}
	is_late = is_later(late, &set->rest, seq) || (found != NULL && is_later(late, found, seq));
	if (open_seq == 0) {
		return is_late;
	}
	if (found == NULL && unused != NULL) {
		*unused = (struct entry){ .instrument_id = msg->instrument_id,
					  .venue_id = msg->venue_id };
		found = unused;
	}
	raise(late, found != NULL ? found : &set->rest, seq);
	return is_late;
}
