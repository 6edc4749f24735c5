/* The reading side of the bus.
 *
 * Threads   one thread per reader.
 * Ordering  see bus.c; B2, B4, B8 and the gate's B5 and B10 are here.
 * Lapped    a reader that finds its position below `intent` - size goes on at the checkpoint half a
 *           ring below `published`: `intent` is at most a quarter of the ring ahead of that, so
 *           about a quarter (less one segment) lies between the reader and being lapped again.  A
 *           checkpoint is read and checked like data (B4, B2), so the position and the number are
 *           of one lap.
 * Trust     whatever the file says, at most max_bytes are copied from inside the two mappings of
 *           the ring, and records are walked in the copy, which nobody else writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bus_layout.h"
#include "base/fail.h"
#include "base/words.h"

#ifndef TW_MUTANT
#define TW_MUTANT 0 /* see bus.c */
#endif

#define LOCATE_TRIES 16

struct tw_bus_reader {
	const uint8_t *ring;
	struct tw_bus_header *header; /* read-only mapping unless gate */
	uint64_t mask, size_bytes, segment_bytes;
	uint64_t pos; /* of the next record */
	uint64_t next_seq;
	uint64_t published; /* as last loaded */
	uint64_t gate_turn;
	bool gate;
	bool broken;
	struct tw_bus_map map;
};

static uint64_t load_published(struct tw_bus_reader *reader)
{
	/* B4: pairs with B3 */
	reader->published = atomic_load_explicit(&reader->header->published, memory_order_acquire);
	return reader->published;
}

/* After a copy: where the writer may be by now. */
static uint64_t load_intent_after_copy(const struct tw_bus_reader *reader)
{
	/* B2: pairs with B1 */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&reader->header->intent, memory_order_relaxed);
}

static int broken(struct tw_bus_reader *reader)
{
	reader->broken = true;
	return TW_EFORMAT;
}

/* Finds the checkpoint of `segment`.  Returns 1 (found), 0 (lapped meanwhile: look again) or
 * TW_EFORMAT. */
static int checkpoint(struct tw_bus_reader *reader, uint64_t segment, uint64_t *pos, uint64_t *seq)
{
	uint64_t begin = segment * reader->segment_bytes;
	uint64_t word = atomic_load_explicit(&reader->header->checkpoint[segment % TW_BUS_SEGMENTS],
					     memory_order_relaxed);
	if (load_intent_after_copy(reader) - begin > reader->size_bytes) {
		return 0;
	}
	uint64_t offset = (word & ((1u << TW_BUS_CHECK_BITS) - 1)) * 8;
	*pos = begin + offset;
	*seq = word >> TW_BUS_CHECK_BITS;
	return *seq > 0 && *pos < reader->published && *seq - 1 <= *pos / 8 ? 1 : TW_EFORMAT;
}

/* A position and its number: the oldest that can be read, or half a ring back.  As checkpoint(). */
static int locate(struct tw_bus_reader *reader, bool oldest, uint64_t *pos, uint64_t *seq)
{
	for (int i = 0; i < LOCATE_TRIES; i++) {
		uint64_t published = load_published(reader);
		/* relaxed: only where to look; checkpoint() decides */
		uint64_t intent =
			atomic_load_explicit(&reader->header->intent, memory_order_relaxed);
		if (oldest && intent <= reader->size_bytes) {
			*pos = 0;
			*seq = 1;
			return 1;
		}
		uint64_t last = published / reader->segment_bytes;
		uint64_t segment = last - TW_BUS_SEGMENTS / 2;
		if (oldest) {
			uint64_t lapped = intent - reader->size_bytes;
			segment = lapped / reader->segment_bytes +
				  (lapped % reader->segment_bytes != 0);
		}
		if (segment >= last) { /* not published: no writer of ours is so far ahead */
			return TW_EFORMAT;
		}
		int rc = checkpoint(reader, segment, pos, seq);
		if (rc != 0) {
			return rc;
		}
	}
	return 0;
}

static int open_at_gate(struct tw_bus_reader *reader, const char *name, struct tw_error *err)
{
	int rc = tw_bus_lock(reader->map.fd, name, err);
	if (rc != TW_OK) {
		return rc;
	}
	reader->gate = true;
	/* B9: pairs with B10 of the last gate */
	reader->gate_turn = atomic_load_explicit(&reader->header->gate_turn, memory_order_acquire);
	const struct tw_bus_pair *pair = &reader->header->gate[reader->gate_turn % 2];
	reader->pos = atomic_load_explicit(&pair->pos, memory_order_relaxed);
	reader->next_seq = atomic_load_explicit(&pair->seq, memory_order_relaxed);
	if (reader->pos > load_published(reader) || reader->pos % 8 != 0 || reader->next_seq == 0 ||
	    reader->next_seq - 1 > reader->pos / 8) {
		return tw_fail(err, TW_EFORMAT, "%s: gate: position %llu, number %llu cannot be",
			       name, (unsigned long long)reader->pos,
			       (unsigned long long)reader->next_seq);
	}
	return TW_OK;
}

static int open_at_oldest(struct tw_bus_reader *reader, const char *name, struct tw_error *err)
{
	int rc = locate(reader, true, &reader->pos, &reader->next_seq);
	if (rc == 0) { /* the writer is faster than we look: anywhere will do */
		rc = locate(reader, false, &reader->pos, &reader->next_seq);
	}
	if (rc != 1) {
		return tw_fail(err, TW_EFORMAT, "%s: positions and checkpoints do not hold", name);
	}
	return TW_OK;
}

int tw_bus_open(struct tw_bus_reader **reader_p, const char *run_dir, uint16_t channel,
		bool as_gate, struct tw_error *err)
{
	*reader_p = NULL;
	struct tw_bus_reader *reader = calloc(1, sizeof(*reader));
	if (reader == NULL) {
		return tw_fail(err, TW_ENOMEM, "bus of channel %u: out of memory", channel);
	}
	char name[TW_BUS_NAME_MAX_BYTES];
	snprintf(name, sizeof(name), TW_BUS_FILE_NAME, channel);

	int rc = tw_bus_map_open(&reader->map, run_dir, channel, as_gate, err);
	if (rc != TW_OK) {
		goto undo_reader;
	}
	reader->header = reader->map.header;
	reader->ring = reader->map.ring;
	reader->size_bytes = reader->map.fixed.size_bytes;
	reader->mask = reader->size_bytes - 1;
	reader->segment_bytes = reader->map.segment_bytes;

	/* B8: pairs with B7; the successor is not in place yet, or came just after our open() */
	if (atomic_load_explicit(&reader->header->state, memory_order_acquire) ==
	    TW_BUS_SUPERSEDED) {
		rc = tw_fail(err, TW_ENOTFOUND, "%s: being replaced", name);
		goto undo_reader;
	}
	rc = as_gate ? open_at_gate(reader, name, err) : open_at_oldest(reader, name, err);
	if (rc != TW_OK) {
		goto undo_reader;
	}
	*reader_p = reader;
	return TW_OK;

undo_reader:
	tw_bus_reader_close(reader);
	return rc;
}

uint64_t tw_bus_reader_session(const struct tw_bus_reader *reader)
{
	return reader->map.fixed.session;
}

uint64_t tw_bus_reader_next_seq(const struct tw_bus_reader *reader)
{
	return reader->next_seq;
}

int tw_bus_new_life(struct tw_bus_reader *reader, struct tw_error *err)
{
	if (!reader->gate) {
		return tw_fail(err, TW_ESTATE, "bus of channel %u: life: not the gate",
			       reader->map.fixed.channel);
	}
	/* relaxed, no read-modify-write: the gate's lock makes us the only one */
	uint64_t lives = atomic_load_explicit(&reader->header->lives, memory_order_relaxed);
	if (lives >= TW_BUS_MAX_LIFE) {
		return tw_fail(err, TW_EFULL, "bus of channel %u: %u publisher lives are used up",
			       reader->map.fixed.channel, TW_BUS_MAX_LIFE);
	}
	atomic_store_explicit(&reader->header->lives, lives + 1, memory_order_relaxed);
	return (int)(lives + 1);
}

/* Counts the whole records at the beginning of a private copy.  False where a length cannot be. */
static bool walk(const uint8_t *copy, uint32_t len_bytes, struct tw_bus_batch *batch)
{
	uint32_t at = 0, count = 0;
	while (len_bytes - at >= TW_BUS_RECORD_MIN) {
		uint16_t block_length;
		memcpy(&block_length, copy + at, sizeof(block_length));
		uint32_t record_bytes = TW_BUS_RECORD_MIN + block_length;
		if (record_bytes % 8 != 0 || record_bytes > TW_BUS_RECORD_MAX) {
			return false;
		}
		if (record_bytes > len_bytes - at) {
			break;
		}
		at += record_bytes;
		count++;
	}
	batch->count = count;
	batch->bytes = at;
	return true;
}

static int lapped(struct tw_bus_reader *reader, struct tw_bus_batch *batch)
{
	uint64_t pos, seq;
	int rc = locate(reader, false, &pos, &seq);
	if (rc == 0) {
		return 0; /* and again at the next call */
	}
	if (rc != 1 || pos <= reader->pos || seq <= reader->next_seq) {
		return broken(reader);
	}
	batch->first_seq = reader->next_seq;
	batch->end_seq = seq;
	reader->pos = pos;
	reader->next_seq = seq;
	return TW_ELAPPED;
}

int tw_bus_read(struct tw_bus_reader *reader, void *dst, uint32_t max_bytes,
		struct tw_bus_batch *batch)
{
	*batch = (struct tw_bus_batch){ .first_seq = reader->next_seq };
	if (__builtin_expect(reader->broken, 0)) {
		return TW_EFORMAT;
	}
	uint64_t avail = reader->published - reader->pos;
	if (avail < max_bytes) {
		avail = load_published(reader) - reader->pos;
	}
	if (avail == 0) {
		return 0;
	}
	if (avail > reader->size_bytes) {
		/* the sign tells a position behind us, which no writer of ours publishes */
		return avail >> 63 != 0 ? broken(reader) : lapped(reader, batch);
	}
	uint32_t len_bytes = avail < max_bytes ? (uint32_t)avail : max_bytes;
	tw_words_move(dst, reader->ring + (reader->pos & reader->mask), len_bytes);
	if (TW_MUTANT != 3 && /* believes what it has copied */
	    load_intent_after_copy(reader) - reader->pos > reader->size_bytes) {
		return lapped(reader, batch);
	}
	if (!walk(dst, len_bytes, batch) || (len_bytes == avail && batch->bytes != len_bytes)) {
		return broken(reader); /* also where a record crosses `published` */
	}
	if (batch->count == 0) {
		return TW_EFULL;
	}
	reader->pos += batch->bytes;
	reader->next_seq += batch->count;
	return (int)batch->count;
}

void tw_bus_release(struct tw_bus_reader *reader)
{
	TW_ASSERT(reader->gate);
	/* the pair that is not in force, then its turn: a successor always finds a whole one */
	uint64_t turn = reader->gate_turn + 1;
	struct tw_bus_pair *pair = &reader->header->gate[turn % 2];
	atomic_store_explicit(&pair->seq, reader->next_seq, memory_order_relaxed);
	/* B5: pairs with B6 */
	atomic_store_explicit(&pair->pos, reader->pos, memory_order_release);
	/* B10: pairs with B9 */
	atomic_store_explicit(&reader->header->gate_turn, turn, memory_order_release);
	reader->gate_turn = turn;
}

bool tw_bus_has_news(struct tw_bus_reader *reader)
{
	return reader->broken || reader->published != reader->pos ||
	       load_published(reader) != reader->pos;
}

enum tw_bus_state tw_bus_reader_state(struct tw_bus_reader *reader)
{
	/* B8: pairs with B7; before `published`, so that nothing comes after it */
	uint32_t state = atomic_load_explicit(&reader->header->state, memory_order_acquire);
	if ((state != TW_BUS_ENDED && state != TW_BUS_SUPERSEDED) ||
	    (!reader->broken && load_published(reader) != reader->pos)) {
		return TW_BUS_LIVE;
	}
	return (enum tw_bus_state)state;
}

void tw_bus_end_said(struct tw_bus_reader *reader)
{
	TW_ASSERT(reader->gate);
	/* relaxed: read by a later gate alone, which has its lock from the kernel */
	atomic_store_explicit(&reader->header->end_said, 1, memory_order_relaxed);
}

bool tw_bus_is_over(struct tw_bus_reader *reader)
{
	return tw_bus_reader_state(reader) == TW_BUS_ENDED &&
	       atomic_load_explicit(&reader->header->end_said, memory_order_relaxed) != 0;
}

void tw_bus_reader_close(struct tw_bus_reader *reader)
{
	if (reader == NULL) {
		return;
	}
	tw_bus_map_close(&reader->map); /* the last reference to the description: the lock goes */
	free(reader);
}
