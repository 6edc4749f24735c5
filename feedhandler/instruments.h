/* Symbols to instrument ids, without regard to the order of appearance.
 *
 * Identity   the venue's own number where the protocol says so.  Else, with a directory file: 1 + the
 *            line's index.  Else, and for symbols that the file does not list: tw_instrument_hash().
 *            A hashed id that another instrument has is refused, never moved: two feedhandlers and a
 *            restart must agree.
 * Memory     one open-addressing table of fixed capacity, made and touched at start; nothing is
 *            allocated afterwards.
 * Threads    one. */
#ifndef TW_FEEDHANDLER_INSTRUMENTS_H
#define TW_FEEDHANDLER_INSTRUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slab.h"
#include "tidewire/error.h"

#define TW_SYMBOL_BYTES        32u         /* as in InstrumentDefinition, NUL-padded */
#define TW_INSTRUMENTS_MAX     (1u << 22)  /* bound of a capacity */
#define TW_DIRECTORY_MAX       (1u << 20)  /* lines */
#define TW_DIRECTORY_MAX_BYTES (64u << 20) /* file */

/* FNV-1a, 32 bits, over the symbol's bytes without padding (offset basis 2166136261, prime 16777619);
 * 0 becomes 1.  Specified in docs/WIRE.md: changing it changes every id. */
uint32_t tw_instrument_hash(const char *symbol, size_t len_bytes);

/* A directory file: one symbol per line, strictly ascending by byte value, each 1 to 31 printable
 * ASCII characters without blanks. */
struct tw_directory {
	char (*symbols)[TW_SYMBOL_BYTES]; /* NUL-padded */
	uint32_t count;
};
/* TW_ECONFIG names the line and what is wrong with it. */
int tw_directory_load(struct tw_directory *dir, const char *path, struct tw_error *err) TW_MUST_USE;
int tw_directory_parse(struct tw_directory *dir, const char *name, const void *data,
		       size_t len_bytes, struct tw_error *err) TW_MUST_USE;
void tw_directory_free(struct tw_directory *dir); /* a zeroed one is fine */
/* 1 + the line's index, 0 where it is not listed. */
uint32_t tw_directory_find(const struct tw_directory *dir, const char symbol[TW_SYMBOL_BYTES]);

enum tw_instrument_state {
	TW_INSTRUMENT_FREE = 0,
	TW_INSTRUMENT_USED,
	TW_INSTRUMENT_REFUSED /* its id is taken: its messages are dropped */
};

struct tw_instrument { /* one cache line */
	uint64_t key; /* how the venue names it: its symbol's bytes as they travel, or its number */
	uint32_t id;
	uint32_t channels; /* bit i: the feedhandler's channel i carries it */
	char symbol[TW_SYMBOL_BYTES];
	uint8_t state;   /* enum tw_instrument_state */
	uint8_t defined; /* an InstrumentDefinition was sent in this session */
	uint8_t listed;  /* the id comes from the directory file */
	/* of a decoder that follows orders */
	uint8_t has_book;   /* orders were sent since the last BookClear */
	uint8_t book_flags; /* TW_MSG_BOOK_BAD once its book is known to lack something, else 0 */
	uint8_t pad[11];
};

struct tw_instruments {
	struct tw_instrument *slots; /* slot_count of them, a power of two, at most half full */
	uint32_t *ids;               /* slot + 1 by id, open addressing over slot_count too */
	uint32_t slot_mask, slot_shift;
	uint64_t slot_factor;                 /* of a key, before the shift */
	struct tw_slab slab;                  /* of slots and ids */
	uint32_t count, max_count;            /* used and refused ones */
	const struct tw_directory *directory; /* borrowed; NULL: none */
};

/* `numbered`: keys are small numbers of the venue's, mostly from 1 on, which lie side by side then. */
int tw_instruments_init(struct tw_instruments *table, uint32_t max_count, bool numbered,
			const struct tw_directory *directory, struct tw_error *err) TW_MUST_USE;
void tw_instruments_fini(struct tw_instruments *table); /* a zeroed one is fine */

/* Adds an instrument that tw_instruments_find() does not know; `symbol` as in struct tw_instrument,
 * `channels` 0 for one that no channel carries: it gets no id and can take none.  NULL: the table is
 * full.  The caller looks at state. */
struct tw_instrument *tw_instruments_add(struct tw_instruments *table, uint64_t key,
					 const char symbol[TW_SYMBOL_BYTES], uint32_t channels);

/* The same for a number of the venue's, not 0: it is key and id. */
struct tw_instrument *tw_instruments_add_numbered(struct tw_instruments *table, uint32_t number,
						  const char symbol[TW_SYMBOL_BYTES],
						  uint32_t channels);
/* Forgets all instruments (numbers that are given anew). */
void tw_instruments_clear(struct tw_instruments *table);

/* Definitions are due again (a new session of the venue). */
void tw_instruments_undefine(struct tw_instruments *table);

static inline uint32_t tw_instruments_slot(const struct tw_instruments *table, uint64_t key)
{
	/* multiplicative hashing: the product's high bits depend on all of the key's, or are its low ones */
	return (uint32_t)((key * table->slot_factor) >> table->slot_shift);
}

/* NULL: not seen yet. */
static inline struct tw_instrument *tw_instruments_find(const struct tw_instruments *table,
							uint64_t key)
{
	for (uint32_t i = tw_instruments_slot(table, key);; i = (i + 1) & table->slot_mask) {
		struct tw_instrument *instrument = &table->slots[i];
		if (instrument->state == TW_INSTRUMENT_FREE) {
			return NULL; /* there is always one: at most half the slots are taken */
		}
		if (instrument->key == key) {
			return instrument;
		}
	}
}

_Static_assert(sizeof(struct tw_instrument) == 64, "one cache line");

#endif
