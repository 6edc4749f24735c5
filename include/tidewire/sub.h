/* libtidewire: ordered, gap-free market data from Tidewire channels.
 *
 * Threads    a handle belongs to one thread; only tw_sub_stats_read() may be called from another.
 * Hot path   tw_sub_poll() never allocates, locks or logs; on `verbs` and `shm` it never enters the
 *            kernel, on `udp` it receives from a socket.
 * Ownership  events borrow receive buffers until the next tw_sub_poll(), tw_sub_wait() or
 *            tw_sub_close() on the same handle.  Copy what must live longer.
 * Errors     int: >= 0 is a result, < 0 is enum tw_status.
 * Units      *_ns Unix epoch wall clock; *_bytes octets; *_seq the first message is 1. */
#ifndef TIDEWIRE_SUB_H
#define TIDEWIRE_SUB_H

#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"
#include "tidewire/msg.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tw_sub; /* opaque */

enum tw_event_type {
	TW_EV_MSG = 1,   /* one message at `data` */
	TW_EV_GAP,       /* seq .. end_seq - 1 are missing so far */
	TW_EV_LOST,      /* seq .. end_seq - 1 will never come */
	TW_EV_SESSION,   /* a new session began; seq is where it begins for this subscriber */
	TW_EV_END,       /* the session ended and everything of it was delivered or LOST */
	TW_EV_LINE_DOWN, /* `line` is silent */
	TW_EV_LINE_UP,
	TW_EV_DOWN /* the channel cannot go on; tw_sub_error() says why, the others go on */
};

enum tw_event_flag { TW_EV_REPAIRED = 0x01 /* MSG: filled a gap */ };

struct tw_event {            /* 64 bytes, layout is ABI */
	const uint8_t *data; /* MSG: struct tw_msg_head *, 8-byte aligned; else NULL */
	uint64_t seq;
	uint64_t end_seq; /* GAP and LOST: exclusive; MSG: seq + 1 */
	uint64_t session;
	uint64_t sent_ns; /* MSG: by the publisher */
	uint64_t recv_ns; /* MSG: when its datagram was polled */
	uint32_t len_bytes;
	uint16_t channel;
	uint8_t type;  /* enum tw_event_type */
	uint8_t flags; /* enum tw_event_flag */
	uint8_t line;  /* 0 is A */
	uint8_t pad[7];
};

struct tw_sub_conf {
	size_t size;              /* of this struct; set by tw_sub_conf_init() */
	const char *site_path;    /* the site's YAML file */
	const char *as;           /* entry of this host, NULL: by host name */
	const char *name;         /* of the counter file, NULL: "sub-PID" */
	const uint16_t *channels; /* ids; NULL: all of the site */
	uint32_t channel_count;
};

TW_API void tw_sub_conf_init(struct tw_sub_conf *conf);

/* Opens, joins the groups of every channel and line, registers counters under run_dir.  Blocking.
 * *sub_p is NULL on error. */
TW_API int tw_sub_open(struct tw_sub **sub_p, const struct tw_sub_conf *conf,
		       struct tw_error *err) TW_MUST_USE;

/* Fills in up to `max` events (at least 1) and returns how many; 0: nothing now.  Releases what the
 * previous call handed out.  A negative status is sticky: close and open again. */
TW_API int tw_sub_poll(struct tw_sub *sub, struct tw_event *events, unsigned int max);

/* For a consumer that would rather sleep: blocks until something may be there or `timeout_ns` is over.
 * Enters the kernel. */
TW_API int tw_sub_wait(struct tw_sub *sub, uint64_t timeout_ns);

/* One empty turn of the caller's loop, as the site's `idle` says (spin, yield, sleep). */
TW_API void tw_sub_idle(struct tw_sub *sub);

/* Why the handle (channel 0) or a channel failed; code TW_OK where it did not. */
TW_API void tw_sub_error(const struct tw_sub *sub, uint16_t channel, struct tw_error *err);

struct tw_sub_latency {
	uint64_t count, p50_ns, p99_ns, p999_ns, max_ns;
};
struct tw_sub_line_stats {
	uint64_t datagrams, first, duplicates, heartbeats, missing, reordered, foreign, malformed,
		icrc_bad, fault_dropped, fault_duplicated, fault_reordered;
	uint8_t up;
};
struct tw_sub_stats { /* of one channel */
	size_t size;  /* set by the caller to sizeof(struct tw_sub_stats) */
	uint64_t session, next_seq, messages, gaps, repaired_by_line, repaired_by_history,
		repaired_by_snapshot, lost_ranges, lost_messages, session_changes, sessions_ended,
		unknown_messages;
	struct tw_sub_line_stats lines[2];
	struct tw_sub_latency exchange_to_feedhandler, feedhandler_to_sent, sent_to_received,
		received_to_consumed, repair;
};
/* Any thread. TW_ENOTFOUND: the handle has no such channel. */
TW_API int tw_sub_stats_read(const struct tw_sub *sub, uint16_t channel, struct tw_sub_stats *out);

/* MIC of a venue id as the site names it; NULL where it is unknown. */
TW_API const char *tw_sub_mic(const struct tw_sub *sub, uint16_t venue_id);

TW_API void tw_sub_close(struct tw_sub *sub); /* NULL ok, never fails */

#ifdef __cplusplus
}
#endif
#endif
