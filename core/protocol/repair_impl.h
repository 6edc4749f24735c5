/* The inside of a repair ladder, shared by repair.c, repair_state.c and repair_reply.c. */
#ifndef TW_PROTOCOL_REPAIR_IMPL_H
#define TW_PROTOCOL_REPAIR_IMPL_H

#include "protocol/repair.h"
#include "wire/datagram.h"

#define TW_REPAIR_NO_SERVER UINT32_MAX

/* One read that is outstanding. */
struct tw_repair_slot {
	uint64_t id; /* 0: free */
	uint64_t begin, end;
	uint64_t first_seq,
		end_seq; /* what it may decide; by position at least what it is to bring */
	uint64_t asked_ns;
	uint32_t publisher;
	uint32_t server;
	uint32_t cost_bytes; /* as paced */
	uint32_t room_bytes; /* what may come */
	uint8_t round;       /* of the first of its gaps */
	bool by_seq;
	bool whole;   /* by position: all of the gaps that it is for, from their begin on */
	bool head;    /* by position: from the begin of a log, which may lie behind the gap's */
	bool wide;    /* by number: more than fits into one reply */
	bool overdue; /* its server has been left alone for it */
};

struct tw_repair_server {
	bool up;
	bool was_up;
	bool proven;                   /* has brought what it was asked for since it is up */
	uint64_t first_asked_ns;       /* since then; 0: not yet */
	bool timed;                    /* rtt_ns and deviation_ns have been measured */
	uint32_t strikes;              /* failures since the last good answer */
	uint64_t blocked_ns;           /* until then it is left alone */
	uint64_t rtt_ns, deviation_ns; /* smoothed */
	/* of this session: its history begins at or after gone_seq, and at or before has_seq */
	uint64_t gone_seq, has_seq;
};

/* A reply that is being walked. */
struct tw_repair_walk {
	bool runs;
	struct tw_repair_slot read;
	const uint8_t *data;
	size_t len_bytes, at_bytes;
	bool wrong;                /* something in it is not what was asked for */
	uint64_t got_seq, end_seq; /* [got_seq, end_seq) came; equal: nothing yet */
	uint64_t dgram_bytes, dgram_msgs;
	uint64_t no_room; /* the arbiter's, before */
};

struct tw_repair {
	struct tw_repair_conf conf;
	struct tw_arb *arb;
	uint64_t now_ns;
	uint64_t session;
	uint32_t read_units, overlap_units;
	uint32_t msg_bytes; /* estimate of a message with its share of headers and padding */
	uint64_t serial;    /* of the last read */
	uint64_t paced_ns;  /* when all that was asked for will have been paid at the rate */
	uint64_t overdue_check_ns;
	uint64_t first_ns; /* of the first call */
	/* Those before the arbiter's walker have been looked at, and none of them has to be again before
	 * again_ns.  Going on at the walker makes sense from ahead_ns on, with a gap that is new since
	 * gaps_seen, or when the lines have passed undue_end_seq (0: no matter). */
	uint64_t again_ns, ahead_ns, gaps_seen, undue_end_seq;
	uint64_t began_ns;              /* last time at the oldest gap */
	uint64_t polled_ns, resumed_ns; /* last poll; end of the last time that it stood still */
	struct tw_repair_server servers[TW_REPAIR_MAX_SERVERS];
	struct tw_repair_walk walk;
	struct tw_repair_stats stats;
	uint32_t outstanding, overdue;
	uint64_t outstanding_bytes;
	uint32_t free_count;
	uint32_t *free_slots;
	struct tw_repair_slot *slots;
};

/* repair_state.c */
/* The clock; and a session that is not the one that was asked for ends everything. */
void tw_repair_begin(struct tw_repair *repair, uint64_t now_ns);
/* A gap that has been looked at has to be again at `at_ns`; 0: all of them, now. */
void tw_repair_later(struct tw_repair *repair, uint64_t at_ns);
/* What could not be asked for may be asked for from `at_ns` on. */
void tw_repair_go_on(struct tw_repair *repair, uint64_t at_ns);

struct tw_repair_slot *tw_repair_find(struct tw_repair *repair, uint64_t id);
/* For a read that may bring so many bytes.  NULL: none is to be had.  Where all are taken, one that is
 * overdue is no longer waited for. */
struct tw_repair_slot *tw_repair_take(struct tw_repair *repair, uint32_t room_bytes);
void tw_repair_free(struct tw_repair *repair, struct tw_repair_slot *slot);
bool tw_repair_is_outstanding(const struct tw_repair *repair, uint64_t first_seq, uint64_t end_seq);

/* The back-off after so many times. */
uint64_t tw_repair_back_off_ns(const struct tw_repair *repair, uint32_t times);
/* What a reply may take, by the round trips that were measured. */
uint64_t tw_repair_round_trip_ns(const struct tw_repair_server *server);
/* The server has failed: it is left alone for a while. */
void tw_repair_strike(struct tw_repair *repair, uint32_t server);
/* So is one that sits on a read. */
void tw_repair_check_overdue(struct tw_repair *repair);
/* The first from `from` on, around the list, that may have something before end_seq and may be asked. */
uint32_t tw_repair_pick_server(struct tw_repair *repair, uint32_t from, uint64_t end_seq);
/* No server's history reaches back before that. */
uint64_t tw_repair_gone_seq(const struct tw_repair *repair);

/* How long so many bytes take at the rate; when they may be asked for. */
uint64_t tw_repair_rate_ns(const struct tw_repair *repair, uint64_t bytes);
uint64_t tw_repair_paced_at_ns(const struct tw_repair *repair, uint64_t bytes);

/* repair_reply.c: judges the reply that was walked, if there is one. */
void tw_repair_end_walk(struct tw_repair *repair);

#endif
