/* History log: the datagrams of one channel as a byte log in 64-byte units, which is also the
 * memory that the sends are posted from.  Sans-I/O: lives in the caller's (registered) memory.
 *
 * Positions  log_pos is free-running in units; a datagram never straddles the end of the log (the
 *            units that would not hold it are skipped), so the bytes between two neighbours'
 *            log_pos are exactly what a gap between them misses.
 * Control    struct tw_history_control is part of the wire contract: whoever repairs READs it after
 *            the bytes.  `intent`: what lies below it minus `units` is being overwritten and may
 *            not be trusted; stored before the first byte of a datagram is written, followed by a
 *            release fence.  `published`: everything below it has been posted; stored with
 *            release after the post.
 * Reading    load `published` (acquire); copy; acquire fence; load the control line.  The bytes at
 *            log_pos hold iff session and publisher are the expected ones, log_pos + units >=
 *            intent, and the datagram's own header says what was expected.
 * Ordering   the writer's side of this is in history.c, H1 and H3; log bytes are written in relaxed
 *            8-byte atomics (base/words.h), so that a reader on this host races with nothing.
 * Threads    one writer.  Readers, local or by RDMA, only read. */
#ifndef TW_PROTOCOL_HISTORY_H
#define TW_PROTOCOL_HISTORY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slab.h"
#include "tidewire/wire.h"

#define TW_HISTORY_MAGIC TW_WIRE_CONTROL_MAGIC

struct tw_history_control { /* struct tw_wire_control, 64-byte aligned */
	_Atomic uint32_t magic;
	_Atomic uint32_t publisher; /* with session: the life that the log belongs to */
	_Atomic uint64_t session;
	_Atomic uint64_t units;     /* size of the log */
	_Atomic uint64_t intent;    /* log position */
	_Atomic uint64_t published; /* log position */
	uint64_t reserved[3];
};
_Static_assert(sizeof(struct tw_history_control) == sizeof(struct tw_wire_control) &&
		       offsetof(struct tw_history_control, session) ==
			       offsetof(struct tw_wire_control, session) &&
		       offsetof(struct tw_history_control, intent) ==
			       offsetof(struct tw_wire_control, intent) &&
		       offsetof(struct tw_history_control, published) ==
			       offsetof(struct tw_wire_control, published),
	       "as on the wire");

struct tw_history {
	struct tw_history_control *control;
	uint8_t *log; /* 64-byte aligned, units * 64 bytes */
	uint64_t units;
	uint64_t head;      /* where the next datagram begins, skipped units included */
	uint64_t head_idx;  /* head % units */
	uint64_t intent;    /* as stored in control */
	uint64_t completed; /* units below it are no longer referenced by any send */
	uint32_t max_units; /* largest datagram */
};

/* Lays control and log over `memory` (64-byte aligned) of `size_bytes` and begins a life.  The log
 * gets all whole units after the control line; at least 4 datagrams of max_dgram_bytes (a multiple
 * of 64), else TW_EARG.  Memory of an earlier life may be used again once no send references it:
 * whoever still reads that life sees the control line change before any of its bytes do. */
int tw_history_init(struct tw_history *history, void *memory, size_t size_bytes,
		    uint32_t max_dgram_bytes, uint64_t session, uint32_t publisher) TW_MUST_USE;

/* Where the next datagram of at most max_dgram_bytes goes: claims it (stores intent, fence), or
 * NULL where sends still reference that space.  May be called again without a commit: the claim
 * stands. */
uint8_t *tw_history_claim(struct tw_history *history);
/* log_pos that the claimed datagram will have, and that the next one has if nothing is claimed. */
uint64_t tw_history_claim_pos(const struct tw_history *history);
/* The claimed datagram occupies `units`. */
void tw_history_commit(struct tw_history *history, uint32_t units);
/* All committed datagrams have been posted on every line that takes them. */
void tw_history_publish(struct tw_history *history);
/* Sends up to log position `pos` (exclusive) have completed on every line. */
void tw_history_complete(struct tw_history *history, uint64_t pos);

#endif
