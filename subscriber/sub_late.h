/* Which messages of a channel in `latest` mode come late: a message is, when one of its instrument with
 * a higher number was handed out before.
 *
 * What holds  a message that is late is called late.  One that is not may be called so, too, where more
 *             instruments are behind gaps at once than their set of the table has room for.
 * Table       (venue, instrument) -> highest number handed out ahead of an open gap.  What lies before the
 *             oldest open gap matters to nobody, so an entry with such a number is free, and while nothing is
 *             missing nothing is written.  Each set has eight entries in two cache lines; the last one stands
 *             for all instruments that found the others taken.
 * Memory      the caller's, zeroed; nothing grows.
 * Threads     one, the handle's. */
#ifndef TW_SUBSCRIBER_SUB_LATE_H
#define TW_SUBSCRIBER_SUB_LATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tidewire/msg.h"

#define TW_SUB_LATE_SETS 8192u /* 57,344 instruments, 1 MiB */

struct tw_sub_late;

size_t tw_sub_late_bytes(uint32_t sets);
/* `sets` is a power of two; memory is zeroed and 128-byte aligned. */
struct tw_sub_late *tw_sub_late_init(void *memory, uint32_t sets);
/* A new session: its numbers begin anew. */
void tw_sub_late_forget(struct tw_sub_late *late);
/* Whether message `seq` is late; `msg` NULL: of an instrument that nobody can tell.  With open_seq not 0 it
 * is ahead of the gap that begins there, the oldest one, and what comes later will be judged by it. */
bool tw_sub_late_take(struct tw_sub_late *late, const struct tw_msg_head *msg, uint64_t seq,
		      uint64_t open_seq);

#endif
