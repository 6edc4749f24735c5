/* The inside of a simulated site (world.h), shared by its source files. */
#ifndef TW_TESTS_SIM_WORLD_IMPL_H
#define TW_TESTS_SIM_WORLD_IMPL_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/sim/net.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"
#include "protocol/repair.h"
#include "tests/sim/ledger.h"
#include "tests/sim/world.h"

#define US               UINT64_C(1000)
#define CHANNEL          5u
#define ENVIRONMENT      0x7357u
#define MAX_SESSIONS     4u
#define MAX_FAULTS       12u
#define MAX_SUBS         4096u
#define MAX_SERVERS      3u
#define RECENT_READS     64u
#define PUBLISH_MAX      8u
#define GUARD_BYTES      64u
#define GUARD            0xdb
#define HEARTBEAT_NS     (200 * US)
#define HEARTBEAT_MIN_NS (20 * US)
#define WAIT_NS          (100 * US)
#define TAKEOVER_NS      (1500 * US)
#define PUBLISH_NS       (10 * US)
#define POLL_NS          (25 * US)
#define ACTIVE_NS        (6000 * US) /* faults begin before that */
#define GIVE_UP_MAX_NS   (80000 * US)
#define HISTORY_BYTES    (512u * 1024u) /* holds the largest session */
#define HEALING_NS       (20000 * US)   /* within that all is repaired where it can be */

enum timer {                /* the upper half of a timer; the lower half is an index */
	     T_PRODUCE = 1, /* feedhandler: a burst of messages */
	     T_NEW_SESSION, /* feedhandler: restarts */
	     T_PUBLISH,
	     T_POLL, /* subscriber */
	     T_FAULT,
	     T_REPAIR, /* the fault is over */
	     T_SUB_START,
	     T_WAKE,   /* the subscriber's short stall is over */
	     T_SERVE,  /* a read reaches its server */
	     T_ANSWER, /* an answer reaches its subscriber */
	     T_SERVER  /* goes down, or comes up */
};

enum fault_type { FAULT_CUT, FAULT_CRASH, FAULT_STALL, FAULT_RESTART, FAULT_TYPES };

struct fault {
	enum fault_type type;
	uint32_t sub; /* CUT: MAX_SUBS is all */
	uint32_t line;
	uint64_t at_ns, duration_ns;
	uint32_t resend_msgs; /* CRASH */
};

/* How a server answers. */
enum manner {
	MANNER_HONEST,
	MANNER_SLOW,
	MANNER_REFUSES,
	MANNER_BUSY,
	MANNER_DIES,    /* and lives again */
	MANNER_SILENT,  /* takes reads and never answers */
	MANNER_LIES,    /* about sessions, publishers, numbers, places */
	MANNER_HOLES,   /* that what is there is a hole */
	MANNER_TEARS,   /* answers that are cut short, too long or overwritten in part */
	MANNER_GARBAGE, /* bytes of no meaning */
	MANNERS
};

struct server {
	enum manner manner;
	bool up;
	uint64_t delay_ns, jitter_ns; /* each way */
};

/* A read on its way to a server, or its answer on its way back. */
struct answer {
	struct tw_repair_read read;
	uint32_t sub, life;
	bool used, ready;
	enum tw_repair_status status;
	uint8_t *data;
	size_t len_bytes;
};

/* What a subscriber asked for not long ago. */
struct recent {
	struct tw_repair_read read;
	uint64_t at_ns;
	bool answered;
};

struct session {
	uint64_t id;
	uint64_t made; /* messages made so far: 1 .. made */
	uint32_t msgs; /* to be made */
	bool ends;     /* properly, with END */
};

struct figures { /* of an arbiter */
	uint64_t gaps_seen, store_full, set_aside, contradictions, held;
	uint64_t missing[TW_MAX_LINES], reordered[TW_MAX_LINES], downs[TW_MAX_LINES];
	uint64_t up[TW_MAX_LINES];
};

struct sub {
	struct tw_arb *arb;
	struct figures figures; /* as they were last looked at */
	uint8_t *memory;
	size_t size_bytes;
	struct tw_arb_conf conf;
	struct tw_ledger ledger;
	bool runs, stalled, has_stalled;
	uint64_t gaps_reported;     /* by when it was last looked at */
	uint64_t hand_session;      /* of the last datagram given */
	uint32_t start_session_idx; /* what was next to be sent when it started */
	uint64_t start_seq;
	uint32_t batch;
	bool slow; /* one batch of each line a turn: works off a backlog over many of them */

	/* repair */
	bool repairs;
	uint32_t life; /* answers to an earlier one are for nobody */
	struct tw_repair_conf repair_conf;
	struct tw_repair *repair;
	uint8_t *repair_memory;
	size_t repair_bytes;
	uint32_t open_reads;
	uint64_t start_ns, paid_bytes;
	uint64_t polled_ns, resumed_ns; /* as the ladder sees them */
	struct recent recent[RECENT_READS];
	uint32_t recent_count;
};

struct world {
	struct tw_world_conf conf;
	struct tw_world_result *result;
	struct tw_rng rng;
	struct tw_sim *sim;
	uint32_t lines, subs_count, mtu_bytes, queue_dgrams, burst_max;
	uint64_t burst_gap_ns;
	bool gentle;
	bool reorders;       /* gentle: either this, or subscribers stall: a stall stretches it */
	uint32_t lossy_line; /* gentle: the one that loses, and may be cut */
	bool lower_session;  /* the last session's number is below the one before */

	/* feedhandler and bus */
	struct session sessions[MAX_SESSIONS];
	uint32_t session_count, session_idx;
	uint64_t oldest_seq; /* of what the source still has */
	uint32_t retain_msgs;

	/* publisher */
	struct tw_pack pack;
	struct tw_history history;
	uint8_t *history_memory;
	size_t history_bytes;
	uint32_t publisher_id, pub_session_idx;
	uint64_t read_seq; /* next to take from the source */
	bool pub_runs;
	uint64_t sent_ns; /* when the last message was sent */

	/* repair servers: the publisher's history under several manners */
	bool repairs;
	bool healing; /* see world.h */
	struct tw_history_view view;
	struct tw_history_index index;
	struct tw_history_mark *marks;
	struct server servers[MAX_SERVERS];
	uint32_t server_count;
	struct answer *answers;
	uint32_t answer_room;

	struct fault faults[MAX_FAULTS];
	uint32_t fault_count, faults_over;
	bool healed;
	uint64_t heal_ns;
	struct sub *subs;
};

/* world.c */
__attribute__((format(printf, 2, 3))) void tw_world_trace(const struct world *w, const char *fmt,
							  ...);
/* Only the first failure is kept; the run ends with it. */
__attribute__((format(printf, 2, 3))) void tw_world_fail(struct world *w, const char *fmt, ...);
void tw_world_timer(struct world *w, uint64_t at_ns, enum timer type, uint32_t index);
void tw_world_timer_in(struct world *w, uint64_t ns, enum timer type, uint32_t index);
uint64_t tw_world_up_to(struct world *w, uint64_t ns); /* [0, ns) */
uint32_t tw_world_below(struct world *w, uint32_t limit);
bool tw_world_one_in(struct world *w, uint32_t n);

/* world_pub.c: feedhandler, source and publisher */
void tw_world_produce(struct world *w);
void tw_world_new_session(struct world *w);
void tw_world_start_publisher(struct world *w);
void tw_world_publish(struct world *w);

/* world_sub.c: subscribers, and what they must hold to */
void tw_world_start_sub(struct world *w, uint32_t index);
void tw_world_poll_sub(struct world *w, uint32_t index);
/* Gives a datagram that came from history to the arbiter, and pulls. */
void tw_world_give_repair(struct world *w, uint32_t index, const struct tw_dgram *dgram);
void tw_world_pull(struct world *w, uint32_t index);
/* Adds what the subscriber has done in this life to the result. */
void tw_world_add_totals(struct world *w, const struct sub *sub);

/* world_repair.c: repair servers, and subscribers as their clients */
bool tw_world_make_servers(struct world *w);
bool tw_world_make_repair(struct world *w, struct sub *sub);
void tw_world_start_repair(struct world *w, uint32_t index);
void tw_world_poll_repair(struct world *w, uint32_t index);
void tw_world_serve(struct world *w, uint32_t answer);
void tw_world_answer(struct world *w, uint32_t answer);
void tw_world_toggle_server(struct world *w, uint32_t server);
void tw_world_unmake_servers(struct world *w);

#endif
