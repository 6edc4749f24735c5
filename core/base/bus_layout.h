/* What a bus file looks like, and how it is mapped.  Private to bus.c, bus_reader.c, bus_map.c and
 * their tests.
 *
 * File      one header of header_bytes, then the ring of size_bytes.
 * Mapping   header, ring, ring: consecutive addresses, so that a record that runs over the end of
 *           the ring is contiguous all the same.
 * Positions free-running bytes from 0; the byte at position p is ring[p % size_bytes].
 * Segments  the ring is TW_BUS_SEGMENTS equal parts, counted free-running from 0: segment k begins
 *           at position k * segment_bytes.  Once for each segment the writer raises `intent` over
 *           all of it and stores its checkpoint: number << 5 | (offset of the first record that
 *           begins in the segment) / 8.  One word, so that position and number are always of one
 *           piece; which lap it belongs to is decided by `intent`, exactly as for the data.
 * Spec      TW_BUS_VERSION 1.  Magic, version and the offset of `state` stay in every later
 *           version: a new feedhandler marks an older version's file too. */
#ifndef TW_BASE_BUS_LAYOUT_H
#define TW_BASE_BUS_LAYOUT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bus.h"
#include "base/slab.h"
#include "tidewire/msg.h"

#define TW_BUS_MAGIC          0x5355425745444954ull /* "TIDEWBUS" in memory order */
#define TW_BUS_VERSION        1u
#define TW_BUS_SEGMENTS       64u
#define TW_BUS_MIN_BYTES      65536u
#define TW_BUS_MAX_BYTES      (1ull << 40) /* keeps sums from wrapping */
#define TW_BUS_HEADER_BYTES   4096u        /* of the struct; the file rounds it up to a page */
#define TW_BUS_CHECK_BITS     5u
#define TW_BUS_MAX_LIFE       65535u
#define TW_BUS_RECORD_MIN     ((uint32_t)sizeof(struct tw_msg_sbe))
#define TW_BUS_RECORD_MAX     TW_MSG_MAX_BYTES
#define TW_BUS_FILE_NAME      "bus-%u"
#define TW_BUS_NAME_MAX_BYTES 32

struct tw_bus_const { /* const after creation */
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint64_t size_bytes;
	uint64_t session;
	uint32_t segments;
	uint32_t channel;
	uint64_t created_ns; /* wall clock */
	uint32_t writer_pid; /* for people */
	uint32_t pad;
};

struct tw_bus_pair { /* a position and the number of the message that begins there */
	_Atomic uint64_t pos;
	_Atomic uint64_t seq;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): grouped by who writes */
struct tw_bus_header {
	struct tw_bus_const fixed;

	/* writer; one line, because a reader loads both for each batch */
	alignas(TW_CACHE_PAIR_BYTES) _Atomic uint64_t published; /* all below may be read */
	_Atomic uint64_t intent; /* all below it minus size_bytes may be overwritten */

	/* writer, and the one that takes its place */
	alignas(TW_CACHE_PAIR_BYTES) _Atomic uint32_t state; /* enum tw_bus_state */

	/* gate; pair[turn % 2] is the one that holds: a gate that dies half-way leaves the other */
	alignas(TW_CACHE_PAIR_BYTES) _Atomic uint64_t gate_turn;
	struct tw_bus_pair gate[2];
	_Atomic uint64_t lives;    /* publisher lives numbered so far */
	_Atomic uint64_t end_said; /* 1: the end of the session has been announced often enough */

	/* writer, once for each segment */
	alignas(TW_CACHE_PAIR_BYTES) _Atomic uint64_t checkpoint[TW_BUS_SEGMENTS];

	alignas(TW_CACHE_PAIR_BYTES) uint8_t reserved[TW_BUS_HEADER_BYTES - 1024];
};
_Static_assert(offsetof(struct tw_bus_header, published) == 128, "written by the writer");
_Static_assert(offsetof(struct tw_bus_header, intent) == 136, "on the line of published");
_Static_assert(offsetof(struct tw_bus_header, state) == 256, "the same in every version");
_Static_assert(offsetof(struct tw_bus_header, gate_turn) == 384, "written by the gate");
_Static_assert(offsetof(struct tw_bus_header, checkpoint) == 512, "written by the writer");
_Static_assert(offsetof(struct tw_bus_header, reserved) == 1024, "end of version 1");
_Static_assert(sizeof(struct tw_bus_header) == TW_BUS_HEADER_BYTES, "the file's first bytes");
_Static_assert(sizeof(_Atomic uint64_t) == 8 && ATOMIC_LLONG_LOCK_FREE == 2,
	       "shared between processes");
_Static_assert(TW_BUS_RECORD_MAX <= (8u << TW_BUS_CHECK_BITS), "a checkpoint's offset fits");
_Static_assert(TW_BUS_MIN_BYTES / TW_BUS_SEGMENTS >= 2 * TW_BUS_RECORD_MAX,
	       "in each segment a record begins and ends");

struct tw_bus_map {
	int fd; /* -1: not open */
	struct tw_bus_header *header;
	uint8_t *ring;
	struct tw_bus_const
		fixed; /* checked copy; the one in shared memory is never looked at again */
	uint64_t segment_bytes;
};

/* Locks byte 0 of fd (an open file description lock: it goes when the last copy of fd is closed,
 * whatever the process died of).  TW_EBUSY: somebody else has it. */
int tw_bus_lock(int fd, const char *name, struct tw_error *err) TW_MUST_USE;
/* Whether somebody else has it. */
bool tw_bus_locked(int fd);

/* Makes run_dir/name with room for `size_bytes`, maps it for writing and fills in the header. */
int tw_bus_map_make(struct tw_bus_map *map, const char *run_dir, const char *name,
		    const struct tw_bus_const *fixed, struct tw_error *err) TW_MUST_USE;
/* Opens, checks and maps an existing one; the ring read-only, the header too unless `writable`. */
int tw_bus_map_open(struct tw_bus_map *map, const char *run_dir, uint16_t channel, bool writable,
		    struct tw_error *err) TW_MUST_USE;
void tw_bus_map_close(struct tw_bus_map *map); /* zeroed with fd -1 is fine */

/* Marks a channel's present file, if there is one, as SUPERSEDED. */
void tw_bus_supersede(const char *run_dir, uint16_t channel);

#endif
