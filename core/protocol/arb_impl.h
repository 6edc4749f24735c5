/* The inside of an arbiter, shared by arb.c, arb_take.c, arb_latest.c, arb_memory.c and
 * arb_repair.c. */
#ifndef TW_PROTOCOL_ARB_IMPL_H
#define TW_PROTOCOL_ARB_IMPL_H

#include "protocol/arb.h"
#include "protocol/arb_line.h"
#include "protocol/arb_segs.h"

/* More than one datagram can add: a gap before it, or a gap cut in three. */
#define TW_ARB_INPUT_SEGS      4u
#define TW_ARB_DOWN_HEARTBEATS 3u

/* The datagram in hand: given, but not yet taken in. */
struct tw_arb_hand {
	struct tw_dgram dgram;
	uint64_t recv_ns;
	uint32_t line;
	bool held;
	bool repair; /* from history */
	bool giving; /* latest: being given out */
};

/* latest: what is left of the datagram in hand, and what it is like. */
struct tw_arb_giving {
	struct tw_arb_seg like;
	struct tw_arb_cursor cursor;
	uint64_t first_seq, end_seq;
};

struct tw_arb {
	struct tw_arb_conf conf;
	uint64_t now_ns;
	uint64_t session; /* 0: none */
	uint64_t next_seq, known_end;
	struct tw_arb_place tail; /* of known_end */
	uint64_t final_seq;       /* one past the last of an ended session, 0: not ended */
	bool end_reported;
	bool notice_due;      /* a line's, or a gap: see below */
	bool figures_changed; /* since tw_arb_figures_changed() */
	bool stale_heard;     /* nothing but stale sessions since stale_since_ns */
	bool expects_repair;
	struct tw_arb_hand hand;
	struct tw_arb_segs segs;
	struct tw_arb_slots slots;
	struct tw_arb_line lines[TW_MAX_LINES];

	uint64_t left_session; /* a lower one has taken over from it */
	uint64_t stale_since_ns;
	uint64_t store_full, set_aside, contradictions;
	uint64_t gaps_seen;
	uint64_t asked_first_seq, asked_end_seq; /* what history may decide */
	uint64_t repaired_msgs, repair_no_room;
	uint64_t gap_first_seq, gap_end_seq; /* GAP to report; equal: none */
	uint32_t line_notices[TW_MAX_LINES]; /* enum tw_arb_run_type to report, 0: none */
	uint32_t seg_limit;
	struct tw_arb_giving giving; /* while hand.giving */
};

static inline uint64_t tw_min_seq(uint64_t a_seq, uint64_t b_seq)
{
	return tw_seq_before(a_seq, b_seq) ? a_seq : b_seq;
}

static inline uint64_t tw_max_seq(uint64_t a_seq, uint64_t b_seq)
{
	return tw_seq_before(a_seq, b_seq) ? b_seq : a_seq;
}

static inline void tw_arb_advance_clock(struct tw_arb *arb, uint64_t now_ns)
{
	arb->now_ns = now_ns > arb->now_ns ? now_ns : arb->now_ns;
}

/* Whether the list has room for so many datagrams.  A second one's worth is kept for a gap at the end, which
 * from then on can grow: so what has to be set aside always can be. */
static inline bool tw_arb_segs_have_room(const struct tw_arb *arb, uint32_t dgrams)
{
	return arb->segs.count + dgrams * TW_ARB_INPUT_SEGS <= arb->seg_limit;
}

/* So many units behind where a datagram lies. */
static inline struct tw_arb_place tw_arb_place_at(const struct tw_wire_hdr *hdr, uint32_t units)
{
	/* beyond that, positions in bytes are none */
	bool holds = hdr->log_pos < UINT64_MAX / TW_WIRE_UNIT_BYTES / 2;

	return (struct tw_arb_place){ holds ? hdr->log_pos + units : TW_ARB_NO_POS,
				      hdr->publisher };
}

/* Where a datagram lies. */
static inline struct tw_arb_place tw_arb_begin_place(const struct tw_wire_hdr *hdr)
{
	return tw_arb_place_at(hdr, 0);
}

/* Where the one after it may begin; for a heartbeat both are the same. */
static inline struct tw_arb_place tw_arb_end_place(const struct tw_wire_hdr *hdr)
{
	uint32_t bytes = (uint32_t)hdr->header_bytes + hdr->payload_bytes;
	bool heartbeat = (hdr->flags & TW_WIRE_HEARTBEAT) != 0;

	return tw_arb_place_at(
		hdr, heartbeat ? 0 : (bytes + TW_WIRE_UNIT_BYTES - 1) / TW_WIRE_UNIT_BYTES);
}

/* arb.c */
/* Whether channel, environment and kind are ours: TW_ARB_FIRST, else why not. */
enum tw_arb_result tw_arb_judge_origin(const struct tw_arb *arb, const struct tw_wire_hdr *hdr);
/* Numbers that a datagram may decide: what is not delivered yet, up to a final END; of one from
 * history what was asked for and is known to exist. */
bool tw_arb_range(const struct tw_arb *arb, const struct tw_dgram *dgram, bool repair,
		  uint64_t *first_seq, uint64_t *end_seq);
/* Whether anything in [first_seq, end_seq), which begins at or past next_seq, is not decided. */
bool tw_arb_any_missing(const struct tw_arb *arb, uint64_t first_seq, uint64_t end_seq);
/* Whether nothing of a gap may still come on any line: see "Giving up" in arb.h. */
bool tw_arb_lines_past(const struct tw_arb *arb, const struct tw_arb_seg *gap);
/* A DATA segment as a run. */
void tw_arb_data_run(struct tw_arb *arb, const struct tw_arb_seg *seg, struct tw_arb_run *run);

/* arb_take.c */
/* Takes in what is in hand, which `hand.held` does not say any more; in `latest` it begins to be given out. */
void tw_arb_take_in(struct tw_arb *arb);
/* Whether a datagram of a line finds room.  What is next to deliver always does: it leaves at once. */
bool tw_arb_has_room(const struct tw_arb *arb, const struct tw_wire_hdr *hdr);
/* Takes from a datagram that finds no room no more than that its numbers exist.  What is set aside within
 * wait_ns is one gap, as it would be had the line not brought it: so the list stays short.  false: not
 * even for that is there room. */
bool tw_arb_set_aside_dgram(struct tw_arb *arb, uint32_t line_idx, const struct tw_dgram *dgram);

/* arb_latest.c: the next part that is new of what is being given out; false: there is no more. */
bool tw_arb_give_next(struct tw_arb *arb, struct tw_arb_run *run);
/* What was given out and has come to the front leaves. */
void tw_arb_pop_done(struct tw_arb *arb);

#endif
