/* Ranges of missing numbers; see venue_gaps.h. */
#include "feedhandler/venue_gaps.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

int tw_venue_gaps_init(struct tw_venue_gaps *gaps, uint32_t capacity, struct tw_error *err)
{
	*gaps = (struct tw_venue_gaps){ .capacity = capacity };
	gaps->room = calloc(capacity, sizeof(*gaps->room));
	return gaps->room != NULL ? TW_OK
				  : tw_fail(err, TW_ENOMEM, "venue lines: out of memory for gaps");
}

void tw_venue_gaps_fini(struct tw_venue_gaps *gaps)
{
	free(gaps->room);
	*gaps = (struct tw_venue_gaps){ 0 };
}

void tw_venue_gaps_clear(struct tw_venue_gaps *gaps)
{
	gaps->head = 0;
	gaps->count = 0;
	gaps->timed = 0;
	gaps->due = 0;
	gaps->open_seq = 0;
}

/* The first one that ends behind `seq`; count where none does. */
static uint32_t find(const struct tw_venue_gaps *gaps, uint64_t seq)
{
	uint32_t low = 0, high = gaps->count;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (tw_venue_gaps_at(gaps, mid)->end_seq > seq) {
			high = mid;
		} else {
			low = mid + 1;
		}
	}
	return low;
}

static bool is_full(const struct tw_venue_gaps *gaps)
{
	return gaps->count == gaps->capacity;
}

static void move(struct tw_venue_gaps *gaps, uint32_t to, uint32_t from, uint32_t n)
{
	memmove(&gaps->room[to], &gaps->room[from], n * sizeof(*gaps->room));
}

/* Makes room for one at `i`, which is not yet filled in. */
static void make_place(struct tw_venue_gaps *gaps, uint32_t i)
{
	TW_ASSERT(!is_full(gaps));
	if (gaps->head > 0 && i < gaps->count - i) {
		move(gaps, gaps->head - 1, gaps->head, i);
		gaps->head--;
	} else {
		if (gaps->head + gaps->count == gaps->capacity) { /* after as many have left it */
			move(gaps, 0, gaps->head, gaps->count);
			gaps->head = 0;
		}
		move(gaps, gaps->head + i + 1, gaps->head + i, gaps->count - i);
	}
	gaps->count++;
}

static void remove_at(struct tw_venue_gaps *gaps, uint32_t i)
{
	if (i < gaps->count - i) {
		move(gaps, gaps->head + 1, gaps->head, i);
		gaps->head++;
	} else {
		move(gaps, gaps->head + i, gaps->head + i + 1, gaps->count - i - 1);
	}
	gaps->count--;
	gaps->timed -= i < gaps->timed ? 1 : 0;
	gaps->due -= i < gaps->due ? 1 : 0;
}

/* Gap `i` becomes two, the first of them first_end_seq long, the second from second_seq on. */
static void split(struct tw_venue_gaps *gaps, uint32_t i, uint64_t first_end_seq,
		  uint64_t second_seq)
{
	make_place(gaps, i + 1);
	struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
	gap[1] = gap[0];
	gap[0].end_seq = first_end_seq;
	gap[1].first_seq = second_seq;
	gaps->timed += i < gaps->timed ? 1 : 0;
	gaps->due += i < gaps->due ? 1 : 0;
}

void tw_venue_gaps_append(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq,
			  uint64_t now_ns)
{
	make_place(gaps, gaps->count);
	*tw_venue_gaps_at(gaps, gaps->count - 1) = (struct tw_venue_gap){ .first_seq = first_seq,
									  .end_seq = end_seq,
									  .seen_ns = now_ns };
}

void tw_venue_gaps_cut(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq)
{
	uint32_t i = find(gaps, first_seq);
	while (i < gaps->count && tw_venue_gaps_at(gaps, i)->first_seq < end_seq) {
		struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		if (gap->first_seq < first_seq && gap->end_seq > end_seq) {
			split(gaps, i, first_seq, end_seq);
			return;
		}
		if (gap->first_seq < first_seq) {
			gap->end_seq = first_seq;
			i++;
		} else if (gap->end_seq > end_seq) {
			gap->first_seq = end_seq;
			return;
		} else {
			remove_at(gaps, i);
		}
	}
}

void tw_venue_gaps_trim(struct tw_venue_gaps *gaps, uint64_t next_seq)
{
	while (gaps->count > 0 && tw_venue_gaps_at(gaps, 0)->end_seq <= next_seq) {
		remove_at(gaps, 0);
	}
	if (gaps->count > 0 && tw_venue_gaps_at(gaps, 0)->first_seq < next_seq) {
		tw_venue_gaps_at(gaps, 0)->first_seq = next_seq;
	}
}

bool tw_venue_gaps_missing(const struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq)
{
	uint32_t i = find(gaps, first_seq);
	return i < gaps->count && tw_venue_gaps_at(gaps, i)->first_seq < end_seq;
}

bool tw_venue_gaps_ask(struct tw_venue_gaps *gaps, uint64_t max_msgs, uint64_t *first_seq,
		       uint64_t *end_seq)
{
	uint32_t i = find(gaps, gaps->open_seq);
	while (i < gaps->due && tw_venue_gaps_at(gaps, i)->state != TW_GAP_OPEN) {
		gaps->open_seq = tw_venue_gaps_at(gaps, i)->end_seq;
		i++;
	}
	if (i >= gaps->due) {
		return false;
	}
	uint64_t first = tw_venue_gaps_at(gaps, i)->first_seq;
	if (tw_venue_gaps_at(gaps, i)->end_seq - first > max_msgs) {
		if (is_full(gaps)) {
			return false; /* its neighbours will make room */
		}
		split(gaps, i, first + max_msgs, first + max_msgs);
	}
	uint64_t end;
	do {
		struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		gap->state = TW_GAP_ASKED;
		end = gap->end_seq;
		i++;
	} while (i < gaps->due && tw_venue_gaps_at(gaps, i)->state == TW_GAP_OPEN &&
		 tw_venue_gaps_at(gaps, i)->end_seq - first <= max_msgs);
	gaps->open_seq = end;
	*first_seq = first;
	*end_seq = end;
	return true;
}

bool tw_venue_gaps_asked(const struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq)
{
	for (uint32_t i = find(gaps, first_seq); i < gaps->count; i++) {
		const struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		if (gap->first_seq >= end_seq) {
			return false;
		}
		if (gap->state == TW_GAP_ASKED) {
			return true;
		}
	}
	return false;
}

/* There is no message between gap `i` and the one behind it. */
static bool continues(const struct tw_venue_gaps *gaps, uint32_t i)
{
	const struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
	return i + 1 < gaps->count && gap[0].end_seq == gap[1].first_seq;
}

/* Makes one of gap `i` and each neighbour that continues it. */
static void merge(struct tw_venue_gaps *gaps, uint32_t i)
{
	if (i > 0 && continues(gaps, i - 1)) {
		i--;
	}
	for (unsigned int n = 0; n < 2 && continues(gaps, i); n++) {
		struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		bool one = i + 1 < gaps->due && gap[0].state == gap[1].state &&
			   gap[0].state != TW_GAP_ASKED;
		if (!one) {
			i++;
			continue;
		}
		uint64_t end_seq = gap[1].end_seq;
		remove_at(gaps, i + 1);
		tw_venue_gaps_at(gaps, i)->end_seq = end_seq;
	}
}

/* What is ASKED of the range is `state` from now on; where it ends. */
static void settle(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq,
		   enum tw_gap_state state)
{
	uint64_t at = first_seq;
	uint32_t i;
	while ((i = find(gaps, at)) < gaps->count &&
	       tw_venue_gaps_at(gaps, i)->first_seq < end_seq) {
		struct tw_venue_gap *gap = tw_venue_gaps_at(gaps, i);
		at = gap->end_seq;
		if (gap->state == TW_GAP_ASKED) {
			gap->state = state;
			merge(gaps, i);
		}
	}
}

void tw_venue_gaps_reopen(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq)
{
	settle(gaps, first_seq, end_seq, TW_GAP_OPEN);
	gaps->open_seq = gaps->open_seq < first_seq ? gaps->open_seq : first_seq;
}

void tw_venue_gaps_lose(struct tw_venue_gaps *gaps, uint64_t first_seq, uint64_t end_seq,
			bool and_rest)
{
	settle(gaps, first_seq, end_seq, TW_GAP_LOST);
	if (!and_rest) {
		return;
	}
	uint32_t i = find(gaps, end_seq - 1);
	if (i == gaps->count || tw_venue_gaps_at(gaps, i)->first_seq >= end_seq) {
		return;
	}
	for (; i + 1 < gaps->due && continues(gaps, i); i++) {
		struct tw_venue_gap *next = tw_venue_gaps_at(gaps, i + 1);
		if (next->state == TW_GAP_OPEN) {
			next->state = TW_GAP_LOST;
			merge(gaps, i + 1);
			return; /* what is behind it was asked for before, or is another gap */
		}
	}
}
