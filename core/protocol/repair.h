/* Repair ladder of one channel at a subscriber, rungs 1, 2 and 5.  Sans-I/O: it looks at the arbiter's
 * gaps, says what to read from which server, takes what came back, and tells the arbiter when a gap
 * has no rung left.
 *
 * Asking     A gap is asked for once it is `due`: every line that is up has passed it, or wait_ns is
 *            over.  All due gaps of a window are asked for at once; neighbours less than join_units apart
 *            become one read; no read is larger than read_max_bytes; never more than reads_max reads
 *            are outstanding, with not much more than bytes_max that they may bring (one by number may
 *            bring read_max_bytes), and never faster than max_bytes_per_s on average (burst: one read).  What is
 *            larger than one read is asked for in several; by position they overlap by one datagram
 *            less a unit, so that each datagram lies whole in one of them.
 * Again      A range is asked for again only after the longer of the measured round trip and back-off
 *            (doubling from retry_min_ns to retry_max_ns), at the next server of the list, at most
 *            attempts_max times in all.
 * Next rung  LOST: when the attempts are over and nothing is outstanding any more, when no server's
 *            history reaches back so far, or give_up_ns after the gap was seen (once more so long where
 *            the ladder was not polled for tw_repair_stall_ns(): a subscriber that stood still has a
 *            history to catch up from); and never while a line may still bring it (see "Giving up" in
 *            arb.h).  What came and found no room in the arbiter's store, or was not posted for
 *            want of a slot, was no attempt.
 * Waiting    A full store sets aside what it has no room for (see "Repair" in arb.h) as long as some
 *            server is trusted to bring it: one that is up, has brought what it was asked for and
 *            has not failed since; or that has not been asked yet, and for a quarter of retry_max_ns then.
 * Addresses  Where both neighbours of a gap are known and of one publisher, it is a range of log units
 *            of that publisher's history; else (a publisher restart) a range of message numbers.  The same
 *            where the position did not bring what it should have.  The head of a session has nobody before
 *            it, but its first publisher's log begins with it: where one read takes all from there to what
 *            lies behind the gap, it is asked for so.  What another publisher's log begins with
 *            later is used, and what it does not have is asked for by number; so is a larger head, a
 *            late joiner's, of which nobody knows yet where the history begins.
 * By number  a server answers with the datagrams from the first that is still there, as many as fit.
 *            What lies before that is gone for good, and so is all of a range that it calls gone: a
 *            history is the last part of a session.  So a range larger than one read is first
 *            asked for whole, and in parts once it is known where the history begins.
 * Servers    are tried in the order of the list.  One that refuses, breaks, sits on a read or does not
 *            bring what it was asked for is left alone for a back-off that doubles in the same way
 *            and ends with the first good answer.
 * Trust      What comes back is as hostile as any datagram: every byte goes through tw_dgram_parse() and the
 *            arbiter, and decides nothing but what that read was to bring.  What is right of a reply
 *            is used, whatever is wrong with the rest.
 * Bounds     fixed at init; no work depends on how far apart two numbers are, and a poll looks at no
 *            more than TW_REPAIR_LOOK_GAPS gaps: the next one goes on there.
 * Threads    one, the subscriber's hot thread. */
#ifndef TW_PROTOCOL_REPAIR_H
#define TW_PROTOCOL_REPAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/arb.h"
#include "tidewire/error.h"

#define TW_REPAIR_MAX_SERVERS    16u
#define TW_REPAIR_MAX_READS      4096u
#define TW_REPAIR_READ_MAX_BYTES 65536u
#define TW_REPAIR_LOOK_GAPS      256u

struct tw_repair_conf {
	uint16_t channel;
	uint32_t servers; /* 1 to TW_REPAIR_MAX_SERVERS */
	uint64_t wait_ns; /* rung 1: for the other line; the arbiter's own wait_ns */
	uint64_t retry_min_ns, retry_max_ns; /* at least 1; times are at most a day */
	uint64_t give_up_ns;      /* from when a gap was seen to LOST, whatever the servers do */
	uint64_t max_bytes_per_s; /* 0: no limit */
	uint32_t attempts_max;    /* 1 to 255 */
	uint32_t reads_max;       /* outstanding, all servers together; 1 to TW_REPAIR_MAX_READS */
	uint64_t bytes_max;       /* of them; 0: no limit */
	/* a multiple of 64, at most TW_REPAIR_READ_MAX_BYTES, and at least two of the arbiter's MTU */
	uint32_t read_max_bytes;
	uint32_t join_units; /* 0: nothing is joined */
};

/* One read to post: the same for TCP and, later, an RDMA READ chain. */
struct tw_repair_read {
	uint64_t id; /* comes back with the reply; never 0, never the same again */
	uint32_t server;
	uint16_t channel;
	bool by_seq; /* false: log units of `publisher`, true: message numbers */
	uint64_t session;
	uint32_t publisher;
	uint64_t begin, end; /* [begin, end) */
};

enum tw_repair_status {
	TW_REPAIR_OK = 0, /* bytes: whole datagrams as they lie in the log, one after the other */
	/* Overwritten, or of another life: this server will never have it.  By position: not all of
	 * it; what is left of it is asked for by number. */
	TW_REPAIR_GONE,
	TW_REPAIR_REFUSED, /* not logged in, channel not served, revoked, too many */
	TW_REPAIR_BUSY,    /* ask again later */
	TW_REPAIR_BROKEN,  /* connection lost, malformed reply */
	TW_REPAIR_UNPOSTED /* it could not be posted: nobody was asked */
};

struct tw_repair_stats {
	uint64_t reads;                       /* posted */
	uint64_t bytes;                       /* of replies */
	uint64_t repaired_msgs;               /* delivered from history */
	uint64_t retries;                     /* reads of a range that had been asked for before */
	uint64_t refused, gone, busy, broken; /* ends of reads that were not good ones */
	uint64_t overdue;   /* reads whose server was left alone because they took too long */
	uint64_t ignored;   /* replies to reads that were not outstanding */
	uint64_t lost_msgs; /* given up */
};

/* From when on it stood still. */
static inline uint64_t tw_repair_stall_ns(const struct tw_repair_conf *conf)
{
	return (conf->give_up_ns < conf->retry_max_ns ? conf->give_up_ns : conf->retry_max_ns) / 4;
}

struct tw_repair;
size_t tw_repair_size(const struct tw_repair_conf *conf); /* 0: it is not valid */
/* TW_EARG for a configuration that is not valid, one that does not fit the arbiter's, or memory that is too
 * small or not 64-byte aligned.  The arbiter is one with conf.repair. */
int tw_repair_init(struct tw_repair **repair_p, void *memory, size_t size_bytes,
		   const struct tw_repair_conf *conf, struct tw_arb *arb) TW_MUST_USE;
/* Whether a server can be asked at all (logged in); all start down. */
void tw_repair_server(struct tw_repair *repair, uint32_t server, bool up, uint64_t now_ns);
/* Reads to post now; returns how many (at most max).  Cheap when the arbiter has no gap.  Also tells the
 * arbiter what has no rung left: pull tw_arb_next() afterwards. */
uint32_t tw_repair_poll(struct tw_repair *repair, uint64_t now_ns, struct tw_repair_read *out,
			uint32_t max);
/* A read has ended (in whole).  For OK, `data` (8-byte aligned, caller's, valid while pulling) is walked with
 * tw_repair_next_dgram(); each datagram it gives is to be handed to tw_arb_repair() and pulled. */
void tw_repair_reply(struct tw_repair *repair, uint64_t id, enum tw_repair_status status,
		     const uint8_t *data, size_t len_bytes, uint64_t now_ns);
bool tw_repair_next_dgram(struct tw_repair *repair, struct tw_dgram *out);
/* When the next poll may have something to do that no datagram or reply brings about: for a caller
 * that sleeps.  UINT64_MAX: never; a time that is past: now. */
uint64_t tw_repair_next_ns(const struct tw_repair *repair);
uint32_t tw_repair_outstanding(const struct tw_repair *repair);
void tw_repair_stats(const struct tw_repair *repair, struct tw_repair_stats *out);

#endif
