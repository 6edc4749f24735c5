/* libtidewire: ordered, gap-free market data from Tidewire channels.
 *
 * Order      a channel is `ordered` or `latest`, as its site or tw_sub_conf.mode says.  In both every number
 *            of a session comes in exactly one MSG or LOST, and GAP says what is missing before anything
 *            beyond it comes.
 *            ordered  MSG and LOST come in the order of their numbers; what is ahead of a gap waits for it.
 *            latest   what is ahead of a gap comes at once, so that `seq` goes back where a gap is filled:
 *                     such a MSG has REPAIRED, and LATE besides where one of its instrument with a
 *                     higher `seq` came before.  LOST come in order among themselves, each once all before
 *                     it is decided, and END once everything is.  A message may come before its instrument's
 *                     definition.  For channels of depth `quotes` alone.
 * Threads    a handle belongs to one thread; only tw_sub_stats_read(), tw_sub_info_read(),
 *            tw_sub_channel_at() and tw_sub_mic() may be called from others, between open and close.
 *            One background thread per process keeps the clock, one per handle talks to repair
 *            servers where the site names some, and on `verbs` one per handle hears of events; all
 *            with all signals blocked, and on the CPUs that the thread may use which opens the
 *            handle: pin that afterwards, or they share its CPU.
 * Hot path   tw_sub_poll() never allocates, locks or logs; on `verbs` and `shm` it never enters the
 *            kernel, on `udp` it receives from a socket.  Where something is missing and repair goes over
 *            TCP it may wake the repair thread by a write(2).
 * Ownership  events borrow receive buffers until the next tw_sub_poll(), tw_sub_wait(),
 *            tw_sub_arm() or tw_sub_close() on the same handle.  Copy what must live longer.
 * Errors     int: >= 0 is a result, < 0 is enum tw_status.  Nothing is ever printed.
 * ABI        structs with `size` grow at their end only: the caller sets size to sizeof() of the
 *            struct that it was compiled with, and the library touches no more than that.
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

enum tw_event_flag {
	TW_EV_REPAIRED = 0x01, /* MSG: filled a gap */
	TW_EV_UNKNOWN =
		0x02, /* MSG: a template or schema that this library does not know: skip it */
	/* MSG, latest: older than what came for its instrument (venue and instrument id; any kind of
	 * message).  Where very many instruments are behind gaps at once, one that is not may have it. */
	TW_EV_LATE = 0x04
};

/* A MSG without UNKNOWN is at least as long as the struct of its template id, so that `data` may be
 * used as one; a newer writer's may be longer. */
struct tw_event {            /* 64 bytes, layout is ABI */
	const uint8_t *data; /* MSG: struct tw_msg_head *, 8-byte aligned; else NULL */
	uint64_t seq;
	uint64_t end_seq; /* GAP and LOST: exclusive; MSG: seq + 1; else seq */
	uint64_t session;
	uint64_t sent_ns;   /* MSG: by the publisher */
	uint64_t recv_ns;   /* MSG: when its datagram was polled */
	uint32_t len_bytes; /* MSG: header and block */
	uint16_t channel;
	uint8_t type;  /* enum tw_event_type */
	uint8_t flags; /* enum tw_event_flag */
	uint8_t line;  /* MSG, LINE_DOWN, LINE_UP: 0 is A */
	uint8_t pad[7];
};

struct tw_sub_conf {
	size_t size;              /* of this struct; set by tw_sub_conf_init() */
	const char *site_path;    /* the site's YAML file */
	const char *as;           /* entry of this host, NULL: by host name */
	const char *name;         /* of the counter file; NULL: "sub-PID", then "sub-PID-2" ... */
	const uint16_t *channels; /* ids; NULL: all of the site */
	uint32_t channel_count;
	uint32_t start; /* enum tw_sub_start */
	uint32_t mode;  /* enum tw_sub_mode, for all channels of the handle */
	uint32_t pad;
};

/* See "Order"; the site's `subscriber.mode` and `channels[].mode` unless it says otherwise. */
enum tw_sub_mode { TW_SUB_MODE_SITE = 0, TW_SUB_MODE_ORDERED, TW_SUB_MODE_LATEST };

/* Where a subscriber that comes late begins; the site's `subscriber.start` unless it says otherwise. */
enum tw_sub_start {
	TW_SUB_START_SITE = 0,
	TW_SUB_START_SESSION, /* at message 1: what cannot be repaired is LOST */
	TW_SUB_START_LIVE     /* at the first message heard: what came before does not count */
};

TW_API void tw_sub_conf_init(struct tw_sub_conf *conf);

/* Opens, joins the groups of every channel and line, registers counters under run_dir.  Blocking.
 * Nothing of `conf` is kept.  *sub_p is NULL on error. */
TW_API int tw_sub_open(struct tw_sub **sub_p, const struct tw_sub_conf *conf,
		       struct tw_error *err) TW_MUST_USE;

/* Fills in up to `max` events (at least 1) and returns how many; 0: nothing now.  Releases what the
 * previous call handed out.  Returns with the first endpoint that had something, so that nobody's
 * message waits for others' sockets: a result below `max` does not mean that nothing is left.
 * A negative status is sticky: close and open again.  (TW_EARG for max 0 or no events is not.) */
TW_API int tw_sub_poll(struct tw_sub *sub, struct tw_event *events, unsigned int max);

/* For a consumer that would rather sleep: blocks until something may be there (1) or `timeout_ns` is
 * over (0).  It may wake early for a timer of its own, so poll after either.  Enters the kernel. */
TW_API int tw_sub_wait(struct tw_sub *sub, uint64_t timeout_ns);

/* For a consumer with an event loop of its own: a descriptor that becomes readable when a poll may
 * give something, or a timer of the handle's is due.  Wait for it (poll, epoll, select); do not read,
 * write or close it; it lives as long as the handle.  Negative status where there is none to be had.
 * The first call makes it. */
TW_API int tw_sub_event_fd(struct tw_sub *sub);

/* Before each wait for that descriptor, after polls down to one that gave 0: 0, it is armed and the
 * caller may sleep; 1, something may be there already: poll first; negative: as tw_sub_poll(), or
 * TW_ESTATE without tw_sub_event_fd().  One arming is good for one wake: a descriptor that was not
 * armed again may stay silent.  Releases what was handed out.  Enters the kernel. */
TW_API int tw_sub_arm(struct tw_sub *sub);

/* One empty turn of the caller's loop, after a poll that gave nothing, as the site's `idle` says: a
 * pause, a yield, or a sleep until something may be there (then it enters the kernel). */
TW_API void tw_sub_idle(struct tw_sub *sub);

/* Why the handle (channel 0) or a channel failed; code TW_OK where it did not, TW_ENOTFOUND where the
 * handle has no such channel.  The handle's thread only. */
TW_API void tw_sub_error(const struct tw_sub *sub, uint16_t channel, struct tw_error *err);

struct tw_sub_latency {
	uint64_t count, p50_ns, p99_ns, p999_ns, max_ns;
	uint64_t negative;  /* samples below 0 (clocks of two hosts disagree), counted as 0 */
	uint64_t saturated; /* samples over 73 minutes: an old recording, not a latency */
};
struct tw_sub_line_stats {
	uint64_t datagrams; /* accepted: first + duplicates + heartbeats */
	uint64_t first, duplicates, heartbeats, missing, reordered;
	uint64_t foreign; /* all of foreign_* together */
	uint64_t malformed, icrc_bad, fault_dropped, fault_duplicated, fault_reordered;
	uint64_t bytes, stale, downs, receive_buffer_bytes;
	uint64_t foreign_source, foreign_environment, foreign_channel, foreign_version,
		foreign_replay, foreign_frames;
	uint8_t up;
	uint8_t present; /* the channel has this line */
	uint8_t pad[6];
};
struct tw_sub_stats { /* of one channel */
	size_t size;  /* set by the caller to sizeof(struct tw_sub_stats) */
	uint64_t session, next_seq, messages, gaps, repaired_by_line, repaired_by_history,
		repaired_by_snapshot, lost_ranges, lost_messages, session_changes, sessions_ended,
		unknown_messages;
	struct tw_sub_line_stats lines[2];
	/* The first three legs are sampled at the first message of a datagram, which has waited
	 * longest; received_to_consumed and its count are of messages. */
	struct tw_sub_latency exchange_to_feedhandler, feedhandler_to_sent, sent_to_received,
		received_to_consumed, repair;
	uint64_t unstamped; /* samples left out of the first two legs: TS_BAD was set */
	uint64_t bytes, holes, held_datagrams, held_max, store_full, set_aside, contradictions;
	/* reads from history: asked for, bytes that came, asked for again, ended without bytes */
	uint64_t repair_reads, repair_bytes, repair_retries, repair_failed;
	uint64_t repair_one_sided; /* reads that were done by RDMA READ */
	uint64_t late_messages;    /* with TW_EV_LATE */
};
/* Any thread; each figure is whole, together they are not of one instant.  TW_ENOTFOUND: the handle
 * has no such channel. */
TW_API int tw_sub_stats_read(const struct tw_sub *sub, uint16_t channel, struct tw_sub_stats *out);

/* What open found and chose; strings live as long as the handle. */
struct tw_sub_info {
	size_t size; /* set by the caller to sizeof(struct tw_sub_info) */
	const char *site, *environment;
	const char *host, *host_why;           /* entry of the site file, and why that one */
	const char *transport, *transport_why; /* "verbs" or "udp", and why */
	const char *idle, *idle_why;           /* "spin", "yield" or "event", and why */
	const char *clock_source;              /* "tsc" or "vdso" */
	/* "poll": queueing lies in sent_to_received; "nic": the device's clock; else "poll" and why */
	const char *receive_stamp;
	const char *run_dir, *counters; /* directory, and name of the counter file in it */
	uint32_t channel_count;
	int32_t cpu;          /* the site's CPU for a subscriber of this host, -1: none */
	uint8_t fault_active; /* the fault layer loses, doubles or delays datagrams: an alarm */
	uint8_t accepts_replay;
	uint8_t pad[6];
	const char *repair;   /* who is asked for what is missing, in order, or why nobody is */
	const char *lines[2]; /* `verbs`: device, port and GID of each line; else "" */
};
TW_API int tw_sub_info_read(const struct tw_sub *sub, struct tw_sub_info *out);

struct tw_sub_channel_info {
	size_t size; /* set by the caller to sizeof(struct tw_sub_channel_info) */
	const char *name;
	uint32_t groups[2]; /* IPv4 in host order, 0: no such line */
	uint16_t id;
	uint8_t latest; /* its mode: see "Order" */
	uint8_t pad[5];
};
/* Channels of the handle in the order of their opening; TW_ENOTFOUND past the last one. */
TW_API int tw_sub_channel_at(const struct tw_sub *sub, uint32_t index,
			     struct tw_sub_channel_info *out);

/* MIC of a venue id as the site names it; NULL where it is unknown. */
TW_API const char *tw_sub_mic(const struct tw_sub *sub, uint16_t venue_id);

TW_API void tw_sub_close(struct tw_sub *sub); /* NULL ok, never fails */

#ifdef __cplusplus
static_assert(sizeof(void *) != 8 || sizeof(struct tw_event) == 64, "an event is a cache line");
#else
_Static_assert(sizeof(void *) != 8 || sizeof(struct tw_event) == 64, "an event is a cache line");
#endif

#ifdef __cplusplus
}
#endif
#endif
