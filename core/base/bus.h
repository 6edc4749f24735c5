/* The bus: a broadcast ring of messages in shared memory, one writer, any number of readers.
 *
 * Records   are messages as they travel (SBE header and block, a multiple of 8 bytes); the length
 *           is 8 + block_length, and numbers count up by one from message to message.
 * Memory    run_dir/bus-CHANNEL; the data area is mapped twice in a row, so that no record is ever
 *           split.  Position counters are free-running bytes.  Layout: base/bus_layout.h.
 * Torn reads  before the writer overwrites it stores `intent`, then a release fence; after writing
 *           it stores `published` with release.  A reader copies, then an acquire fence, then loads
 *           `intent`: what intent has lapped is thrown away.  Data moves by relaxed 8-byte atomics.
 * Lapped readers  find a position and its number in the checkpoints (one for each 64th of the ring)
 *           and go on half a ring behind the writer, so that they are not lapped again at once.
 * Stopping the writer  no reader can, except the one publisher that has attached as the gate, and
 *           that only where the writer asks for it (tw_bus_append with `gated`).  How far the gate
 *           has come stays in the file, so that a restarted publisher goes on where the last one
 *           stopped.  Being the gate is a lock that the kernel drops when the process ends.  While
 *           nobody is the gate a gated append goes on refusing: an input that can wait, waits for
 *           the next gate.
 * Sessions  one file is one session.  A new feedhandler marks the old file SUPERSEDED and renames a
 *           new one over it; readers drain the old one, then open the new one.
 * Two writers of one channel are refused by a lock on run_dir/bus-CHANNEL.lock.
 * Threads   a writer belongs to one thread, a reader to one thread.
 * Trust     run_dir is ours alone (mode 0700).  What is in the file is checked all the same, and no
 *           value in it makes a reader leave its mapping; shortening a mapped file is the one thing
 *           that nobody can guard against (SIGBUS). */
#ifndef TW_BASE_BUS_H
#define TW_BASE_BUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/error.h"

enum tw_bus_state {
	TW_BUS_LIVE = 1,
	TW_BUS_ENDED = 2 /* no more messages will come */,
	TW_BUS_SUPERSEDED = 3 /* another file has taken its place */
};

struct tw_bus_writer;
struct tw_bus_reader;

struct tw_bus_conf {
	const char *run_dir;
	uint16_t channel;
	size_t size_bytes; /* power of two, at least 64 KiB */
	uint64_t wall_ns;  /* for the session number: max(stored, wall clock in ms) + 1 */
};

/* Becomes the channel's one writer and begins a new session at message 1.  The session number is
 * max(run_dir/session-CHANNEL, an existing bus file's, heard, wall clock in ms) + 1 and is stored.
 * `heard` is the highest session heard on the groups, 0 if none.  TW_EBUSY: another writer
 * lives. */
int tw_bus_create(struct tw_bus_writer **writer_p, const struct tw_bus_conf *conf, uint64_t heard,
		  struct tw_error *err) TW_MUST_USE;
uint64_t tw_bus_writer_session(const struct tw_bus_writer *writer);
uint64_t tw_bus_writer_next_seq(const struct tw_bus_writer *writer); /* of the next append */

/* Appends one message (8 + block_length bytes, at most TW_MSG_MAX_BYTES, validated by the caller).
 * Invisible until tw_bus_flush(), which publishes all that was appended; append flushes by itself
 * before more than a quarter of the ring is unpublished.  With `gated` nothing that the gate has
 * not yet released is overwritten: false means no room now (all is flushed, try again later), also
 * while no gate lives; without, it always succeeds. */
bool tw_bus_append(struct tw_bus_writer *writer, const void *msg, uint32_t len_bytes, bool gated);
void tw_bus_flush(struct tw_bus_writer *writer);
/* True while a publisher is attached as the gate and its process lives.  One system call. */
bool tw_bus_has_gate(const struct tw_bus_writer *writer);
/* How many messages the gate has released: tw_bus_writer_next_seq() - 1 once the publisher has sent
 * everything that was appended and flushed. */
uint64_t tw_bus_gate_seq(const struct tw_bus_writer *writer);
/* Marks the end of the session (after a flush).  Readers see ENDED once they have drained it. */
void tw_bus_end(struct tw_bus_writer *writer);
/* Leaves the file for readers; gives up the lock.  NULL ok. */
void tw_bus_writer_close(struct tw_bus_writer *writer);

/* Opens the current bus of a channel at its oldest readable message (to a 64th of the ring), or,
 * `as_gate`, where the last gate stopped.  TW_ENOTFOUND: no feedhandler has made it yet, or it is
 * being replaced this instant.  TW_EBUSY: another gate lives.  TW_EFORMAT: not a bus of this
 * version. */
int tw_bus_open(struct tw_bus_reader **reader_p, const char *run_dir, uint16_t channel,
		bool as_gate, struct tw_error *err) TW_MUST_USE;
uint64_t tw_bus_reader_session(const struct tw_bus_reader *reader);
uint64_t tw_bus_reader_next_seq(const struct tw_bus_reader *reader);

/* Gate only: a number never given before in this session, from 1; TW_EFULL after 65,535. */
int tw_bus_new_life(struct tw_bus_reader *reader, struct tw_error *err) TW_MUST_USE;

struct tw_bus_batch {
	uint64_t first_seq; /* of the first message copied; lapped: the first that is gone */
	uint64_t end_seq;   /* lapped only: one past the last one that is gone */
	uint32_t count;     /* messages copied */
	uint32_t bytes;     /* of them */
};
/* Copies as many whole messages as fit into dst (8-byte aligned, max_bytes, a multiple of 8).
 * Returns
 *   > 0          messages copied; 0: nothing there now (see tw_bus_reader_state)
 *   TW_ELAPPED   batch->first_seq .. end_seq - 1 are gone; reading goes on at end_seq
 *   TW_EFORMAT   a record's length cannot be right: the bus is broken (for good: open it again)
 *   TW_EFULL     the next message alone is larger than max_bytes
 * Of a message only the length is checked.  dst is written in relaxed 8-byte atomics, up to
 * max_bytes whatever the result: it may be memory that others read by a rule of their own (the
 * history log).  Hot: no system call, lock or allocation. */
int tw_bus_read(struct tw_bus_reader *reader, void *dst, uint32_t max_bytes,
		struct tw_bus_batch *batch);
/* Whether tw_bus_read() would give or say something. */
bool tw_bus_has_news(struct tw_bus_reader *reader);
/* Gate only: everything read so far has been sent and may be overwritten. */
void tw_bus_release(struct tw_bus_reader *reader);
/* Gate only.  Everybody who listened has heard that the session has ended: a gate that comes later
 * need not say it again.  Stays in the file. */
void tw_bus_end_said(struct tw_bus_reader *reader);
/* Whether there is nothing left to send or to say: ENDED, drained, and the end was said. */
bool tw_bus_is_over(struct tw_bus_reader *reader);
/* ENDED and SUPERSEDED are reported only once the reader has drained what was published. */
enum tw_bus_state tw_bus_reader_state(struct tw_bus_reader *reader);
void tw_bus_reader_close(struct tw_bus_reader *reader); /* NULL ok; releases the gate */

#endif
