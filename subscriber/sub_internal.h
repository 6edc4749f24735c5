/* Inside of a subscriber handle.
 *
 * Threads   everything belongs to the handle's thread, except: counters (read by anyone), fields
 *           marked "const after open" (read by anyone), and struct tw_sub_clock_user (sub_clock.c).
 * Memory    one slab holds channels, lines, source lists and arbiters; it is made at open and never
 *           grows.
 * Batches   one batch of one endpoint is outstanding at a time.  A call to tw_sub_poll() polls on only
 *           while it has handed out nothing, so what it hands out is never overwritten by itself. */
#ifndef TW_SUBSCRIBER_SUB_INTERNAL_H
#define TW_SUBSCRIBER_SUB_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"
#include "base/cpu.h"
#include "base/slab.h"
#include "config/config.h"
#include "fabric/fabric.h"
#include "fabric/reader.h"
#include "protocol/arb.h"
#include "protocol/repair.h"
#include "subscriber/sub_late.h"
#include "tidewire/sub.h"

/* What was handed out and not yet released is accounted in so many (channel, receive stamp) pairs;
 * a call ends early when they are used up, so the figure bounds nothing but a call's size. */
#define TW_SUB_MARKS 128u

#define LIKELY(x)   __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Longest sleep of tw_sub_idle() in event mode. */
#define TW_SUB_IDLE_NS 10000000ull
/* Longest sleep while a read is under way. */
#define TW_SUB_REPLY_NS 200000ull

/* What a configuration means on this host: everything that open decides before it touches the
 * network.  `tw-subscribe --check` stops here. */
struct tw_sub_plan {
	struct tw_site *site;
	uint32_t host;      /* index into site->hosts */
	uint32_t *channels; /* indices into site->channels, in the caller's order */
	uint32_t channel_count;
	uint32_t line_count; /* endpoints of all channels together */
	enum tw_idle_mode idle;
	bool verbs; /* else udp */
	char host_why[128];
	char transport_why[128];
	char idle_why[128];
	char repair_text[256];
};
int tw_sub_plan_make(struct tw_sub_plan *plan, const struct tw_sub_conf *conf,
		     struct tw_error *err) TW_MUST_USE;
void tw_sub_plan_free(struct tw_sub_plan *plan);
/* Addresses that a channel's publishers send from; returns how many (at most `max` are written). */
uint32_t tw_sub_plan_sources(const struct tw_sub_plan *plan, uint32_t channel, uint32_t *out,
			     uint32_t max);
/* Longest heartbeat interval of a channel's publishers. */
uint64_t tw_sub_plan_heartbeat_ns(const struct tw_sub_plan *plan, uint32_t channel);

/* The process's clock keeper: one thread while any handle is open. */
struct tw_sub_clock_user {
	struct tw_counters counters; /* TW_SET_sub; the keeper alone bumps clock_steps */
	struct tw_sub_clock_user *next;
};
int tw_sub_clock_join(struct tw_sub_clock_user *user, struct tw_error *err) TW_MUST_USE;
void tw_sub_clock_leave(struct tw_sub_clock_user *user);

struct tw_sub_channel {
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_arb *arb;
	const uint32_t *sources; /* IPv4 in host order; const after open */
	struct tw_counters counters;
	uint64_t next_seq;        /* after the highest that was handed out */
	struct tw_sub_late *late; /* NULL: the channel is `ordered`; const after open */
	uint32_t source_count;
	uint16_t id;                            /* const after open */
	uint8_t lines;                          /* const after open */
	uint8_t alive;                          /* lines whose endpoint works */
	bool down;                              /* DOWN is due or was handed out */
	uint32_t site_idx;                      /* const after open */
	bool repairing;                         /* a gap is open, or a read under way */
	struct tw_repair *repair;               /* NULL: there is nobody to ask; const after open */
	uint8_t servers[TW_REPAIR_MAX_SERVERS]; /* the ladder's, by the reader's number; const */
	uint32_t server_count;
	struct tw_sub_line *line[TW_MAX_LINES];
	struct tw_error error; /* why it is down */
};

struct tw_sub_line { /* one endpoint of the fabric */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_sub_channel *channel;
	struct tw_counters counters;
	struct tw_sub_line *next; /* of the round */
	uint32_t endpoint;        /* its index in sub->lines, too */
	uint8_t line;             /* 0 is A */
	bool dead;                /* its endpoint is gone */
};

struct tw_sub_mark { /* messages handed out and not yet released */
	struct tw_sub_channel *channel;
	uint64_t recv_ns;
	uint64_t count;
};

struct tw_sub {
	/* the run being handed out: of DATA, msgs, first_seq and count are of what is left, any other
	 * type is one event */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_arb_run run;
	struct tw_event like;               /* DATA: what the events of the run have in common */
	struct tw_sub_channel *run_channel; /* NULL: there is none; else it is `pulling` */

	struct tw_sub_channel *pulling; /* its arbiter may have more runs */
	struct tw_sub_channel *failing; /* DOWN is due */
	bool store_borrowed;            /* tw_sub_drain() has handed out bytes of a reorder store */

	bool repair_due;                      /* this call has not had its turn of repair */
	bool reply_held;                      /* `reply` is not given back yet */
	uint32_t repairing;                   /* channels that are */
	struct tw_sub_channel *reply_channel; /* its ladder is walking `reply`; NULL: walked */
	uint64_t reply_ns;                    /* wall clock when it was begun */
	uint32_t servers_up, repair_cursor;
	struct tw_read_done reply;

	uint32_t batch_at, batch_count;
	struct tw_sub_line *batch_line; /* NULL: all of the batch was given to its arbiter */
	struct tw_sub_line *next_line;  /* to poll next */
	uint32_t mark_count;
	uint64_t now_ns;  /* mono, taken before the latest poll of an endpoint */
	uint64_t turn_ns; /* mono, entry of the latest tw_sub_poll(); 0: the turn does not count */
	uint64_t long_turn_ns; /* a longer one is slow, or the longest so far */
	int failed;            /* sticky status, 0 */
	int failing_status;    /* becomes `failed` once the last DOWN was handed out */
	struct tw_idle idle;

	/* const after open */
	struct tw_rx *rx;
	struct tw_reader *reader; /* NULL: no channel has a repair server */
	struct tw_counters rc_servers[TW_READER_MAX_SERVERS]; /* as servers, over RC; verbs */
	struct tw_sub_channel *channels;
	struct tw_sub_line *lines;
	uint32_t mtu_bytes;
	uint32_t channel_count, line_count, alive; /* `alive`: channels, the handle's thread only */
	uint64_t slow_turn_ns;
	uint64_t gap_wait_ns; /* longest sleep while a gap is open */
	uint64_t timer_ns;    /* longest sleep otherwise: arbiters watch for silent lines */
	struct tw_counters counters, loop;
	struct tw_counters servers[TW_READER_MAX_SERVERS]; /* of site->subscriber.repair */
	struct tw_counters verbs_lines[TW_FABRIC_MAX_LINES];

	struct tw_rx_dgram batch[TW_RX_BATCH];
	struct tw_sub_mark marks[TW_SUB_MARKS];

	/* cold */
	struct tw_slab slab;
	struct tw_stats *stats;
	struct tw_sub_clock_user clock;
	bool clock_joined, fault_active;
	int event_fd, timer_fd; /* for an event loop of the caller's, -1 until asked for */
	struct tw_sub_plan plan;
	char name[TW_NAME_BYTES];
	struct tw_error error;
};

/* sub_give.c.  The caller is done with everything handed out. */
void tw_sub_release(struct tw_sub *sub);
/* Everything that can be handed out without polling an endpoint. */
unsigned int tw_sub_drain(struct tw_sub *sub, struct tw_event *events, unsigned int max);

/* Whether a poll would give something without looking at any endpoint, and how long the handle may
 * sleep before an arbiter or the ladder wants the time (sub_poll.c). */
bool tw_sub_has_work(const struct tw_sub *sub);
uint64_t tw_sub_sleep_ns(const struct tw_sub *sub);
/* What was handed out is given back: the caller is about to sleep. */
void tw_sub_settle(struct tw_sub *sub);

void tw_sub_event_close(struct tw_sub *sub);

/* Repair (sub_repair.c).  Which of site->subscriber.repair send a channel. */
uint32_t tw_sub_repair_servers(const struct tw_sub_plan *plan, uint32_t site_idx,
			       uint8_t out[TW_REPAIR_MAX_SERVERS]);
/* Settings of a channel's ladder; false: there is nobody to ask. */
bool tw_sub_repair_conf(const struct tw_sub *sub, uint32_t site_idx, struct tw_repair_conf *out);
int tw_sub_repair_counters(struct tw_sub *sub, struct tw_error *err) TW_MUST_USE; /* before seal */
int tw_sub_repair_open(struct tw_sub *sub, struct tw_error *err) TW_MUST_USE;     /* after it */
/* Hot path.  After a channel with a ladder was pulled: whether it is still repairing. */
void tw_sub_repair_refresh(struct tw_sub *sub, struct tw_sub_channel *channel);
/* Gives the reply back if it was walked to its end; nothing of it may be borrowed. */
void tw_sub_repair_release(struct tw_sub *sub);
/* At the begin of a poll, while sub->repairing or sub->reply_held: the poll has its turn of repair before it, and
 * nothing of the calls before is borrowed any more. */
void tw_sub_repair_begin(struct tw_sub *sub);
/* Once in a poll while sub->repairing, with nothing half pulled: begins the next reply or asks. */
void tw_sub_repair_turn(struct tw_sub *sub);
/* While sub->reply_channel and nothing of a store is borrowed: gives its next datagram to the arbiter. */
void tw_sub_repair_input(struct tw_sub *sub);
/* How long the handle may sleep. */
uint64_t tw_sub_repair_sleep_ns(const struct tw_sub *sub, uint64_t now_ns);

#endif
