/* One line of a channel at a subscriber: see arb_line.h. */
#include "protocol/arb_line.h"

#include "protocol/arb.h"

#define SEEN_BITS 64u

static uint64_t count_ones(uint64_t bits)
{
	return (uint64_t)__builtin_popcountll(bits);
}

static void settle_life(struct tw_arb_line *line, struct tw_arb_life *life)
{
	line->missing += count_ones(~life->seen);
	life->seen = TW_ARB_SEEN_ALL;
}

/* Everything below `next_seq`, which is past life->next_seq, should have come by now. */
static void grow_life(struct tw_arb_line *line, struct tw_arb_life *life, uint64_t next_seq,
		      uint64_t now_ns)
{
	uint64_t step = next_seq - life->next_seq;

	if (step >= SEEN_BITS) {
		line->missing += count_ones(~life->seen) + (step - SEEN_BITS);
		life->seen = 0;
	} else {
		uint64_t leaving = life->seen >> (SEEN_BITS - step);
		line->missing += step - count_ones(leaving);
		life->seen <<= step;
	}
	life->next_seq = next_seq;
	life->grown_ns = now_ns;
}

static struct tw_arb_life *to_front(struct tw_arb_line *line, struct tw_arb_life *life)
{
	struct tw_arb_life first = *life;

	*life = line->lives[0];
	line->lives[0] = first;
	return &line->lives[0];
}

/* The life of the datagram's publisher on this line, which becomes the first.  One that is new here begins with
 * this datagram, in the place of the one that was silent for longest. */
static struct tw_arb_life *find_life(struct tw_arb_line *line, const struct tw_wire_hdr *hdr,
				     uint64_t now_ns)
{
	struct tw_arb_life *oldest = &line->lives[0];

	for (uint32_t i = 0; i < TW_ARB_LIVES; i++) {
		struct tw_arb_life *life = &line->lives[i];
		if (life->next_seq != 0 && life->publisher == hdr->publisher) {
			return to_front(line, life);
		}
		if (life->next_seq == 0 ||
		    (oldest->next_seq != 0 && life->grown_ns <= oldest->grown_ns)) {
			oldest = life;
		}
	}
	settle_life(line, oldest);
	*oldest = (struct tw_arb_life){ .publisher = hdr->publisher,
					.next_seq = hdr->packet_seq,
					.seen = TW_ARB_SEEN_ALL,
					.grown_ns = now_ns };
	return to_front(line, oldest);
}

void tw_arb_line_init(struct tw_arb_line *line, uint64_t now_ns)
{
	*line = (struct tw_arb_line){ .heard_ns = now_ns, .idle_ns = now_ns };
	for (uint32_t i = 0; i < TW_ARB_LIVES; i++) {
		line->lives[i].seen = TW_ARB_SEEN_ALL;
	}
}

void tw_arb_line_reset(struct tw_arb_line *line, uint64_t now_ns)
{
	line->end_seq = 0;
	line->heard_ns = line->state == TW_ARB_LINE_UP ? now_ns : line->heard_ns;
	for (uint32_t i = 0; i < TW_ARB_LIVES; i++) {
		settle_life(line, &line->lives[i]);
		line->lives[i] = (struct tw_arb_life){ .seen = TW_ARB_SEEN_ALL };
	}
}

static void count(struct tw_arb_line *line, const struct tw_wire_hdr *hdr, uint64_t now_ns)
{
	struct tw_arb_life *life = find_life(line, hdr, now_ns);
	bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;
	uint64_t next_seq = heartbeat ? hdr->packet_seq : hdr->packet_seq + 1;

	if (tw_seq_before(life->next_seq, next_seq)) {
		grow_life(line, life, next_seq, now_ns);
		life->seen |= heartbeat ? 0 : 1;
		return;
	}
	if (heartbeat) {
		return;
	}
	uint64_t back = life->next_seq - next_seq;
	if (back >= SEEN_BITS) {
		line->reordered++;
	} else if ((life->seen >> back & 1) == 0) {
		life->seen |= 1ull << back;
		line->reordered++;
	}
}

bool tw_arb_line_count_any(struct tw_arb_line *line, const struct tw_wire_hdr *hdr, uint64_t now_ns)
{
	uint64_t before = line->missing + line->reordered;

	count(line, hdr, now_ns);
	line->check_ns = 0; /* a number may be open now */
	return line->missing + line->reordered != before;
}

bool tw_arb_line_silent(struct tw_arb_line *line, uint64_t down_ns, uint64_t now_ns)
{
	if (line->state == TW_ARB_LINE_DOWN || now_ns - line->heard_ns < down_ns) {
		return false;
	}
	line->downs += line->state == TW_ARB_LINE_UP ? 1 : 0;
	line->state = TW_ARB_LINE_DOWN;
	return true;
}

static uint64_t add_capped(uint64_t at_ns, uint64_t wait_ns)
{
	return wait_ns < UINT64_MAX - at_ns ? at_ns + wait_ns : UINT64_MAX;
}

bool tw_arb_line_check(struct tw_arb_line *line, uint64_t wait_ns, uint64_t down_ns,
		       uint64_t now_ns)
{
	bool goes_down = tw_arb_line_silent(line, down_ns, now_ns);

	line->check_ns =
		line->state == TW_ARB_LINE_DOWN ? UINT64_MAX : add_capped(line->heard_ns, down_ns);
	for (uint32_t i = 0; i < TW_ARB_LIVES; i++) {
		struct tw_arb_life *life = &line->lives[i];
		if (life->seen == TW_ARB_SEEN_ALL) {
			continue;
		}
		uint64_t settle_ns = add_capped(life->grown_ns, wait_ns);
		if (now_ns >= settle_ns) {
			settle_life(line, life);
		} else if (settle_ns < line->check_ns) {
			line->check_ns = settle_ns;
		}
	}
	return goes_down;
}
