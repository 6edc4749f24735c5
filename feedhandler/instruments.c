/* Symbols to instrument ids; see instruments.h. */
#include "feedhandler/instruments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

#define FNV_OFFSET_BASIS 2166136261u
#define FNV_PRIME        16777619u

uint32_t tw_instrument_hash(const char *symbol, size_t len_bytes)
{
	uint32_t h = FNV_OFFSET_BASIS;
	for (size_t i = 0; i < len_bytes; i++) {
		h = (h ^ (uint8_t)symbol[i]) * FNV_PRIME;
	}
	return h == 0 ? 1 : h; /* 0 is "market-wide" */
}

/* One line of a directory file into `dir`, which has room for it. */
static int take_line(struct tw_directory *dir, const char *name, const char *line, size_t len_bytes,
		     struct tw_error *err)
{
	unsigned int number = dir->count + 1;
	if (len_bytes == 0) {
		return tw_fail(err, TW_ECONFIG, "%s:%u: empty line, wanted a symbol", name, number);
	}
	if (len_bytes >= TW_SYMBOL_BYTES) {
		return tw_fail(err, TW_ECONFIG, "%s:%u: %zu characters, allowed are 1 to %u", name,
			       number, len_bytes, TW_SYMBOL_BYTES - 1);
	}
	for (size_t i = 0; i < len_bytes; i++) {
		unsigned char c = (unsigned char)line[i];
		if (c <= ' ' || c > '~') {
			return tw_fail(err, TW_ECONFIG,
				       "%s:%u: byte 0x%02x, allowed is printable ASCII", name,
				       number, c);
		}
	}
	char *symbol = dir->symbols[dir->count];
	memset(symbol, 0, TW_SYMBOL_BYTES);
	memcpy(symbol, line, len_bytes);
	if (dir->count > 0) {
		int order = memcmp(dir->symbols[dir->count - 1], symbol, TW_SYMBOL_BYTES);
		if (order >= 0) {
			return tw_fail(err, TW_ECONFIG, "%s:%u: '%s' %s '%s'", name, number, symbol,
				       order == 0 ? "is there twice, after"
						  : "is not sorted, it comes after",
				       dir->symbols[dir->count - 1]);
		}
	}
	dir->count++;
	return TW_OK;
}

int tw_directory_parse(struct tw_directory *dir, const char *name, const void *data,
		       size_t len_bytes, struct tw_error *err)
{
	*dir = (struct tw_directory){ 0 };
	const char *at = data;
	const char *end = len_bytes == 0 ? at : at + len_bytes;
	size_t lines = 0;
	for (const char *p = at; p != end; lines++) {
		const char *newline = memchr(p, '\n', (size_t)(end - p));
		p = newline == NULL ? end : newline + 1;
	}
	if (lines == 0 || lines > TW_DIRECTORY_MAX) {
		return tw_fail(err, TW_ECONFIG, "%s: %zu symbols, allowed are 1 to %u", name, lines,
			       TW_DIRECTORY_MAX);
	}
	dir->symbols = malloc(lines * sizeof(*dir->symbols));
	if (dir->symbols == NULL) {
		return tw_fail(err, TW_ENOMEM, "%s: out of memory", name);
	}
	while (at != end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));
		const char *stop = newline == NULL ? end : newline;
		int rc = take_line(dir, name, at, (size_t)(stop - at), err);
		if (rc != TW_OK) {
			tw_directory_free(dir);
			return rc;
		}
		at = newline == NULL ? end : newline + 1;
	}
	return TW_OK;
}

int tw_directory_load(struct tw_directory *dir, const char *path, struct tw_error *err)
{
	*dir = (struct tw_directory){ 0 };
	char *data = NULL;
	int rc;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return tw_fail_sys(err, TW_ECONFIG, "%s: open", path);
	}
	struct stat st;
	if (fstat(fd, &st) < 0) {
		rc = tw_fail_sys(err, TW_ESYS, "%s: fstat", path);
		goto out;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)TW_DIRECTORY_MAX_BYTES) {
		rc = tw_fail(err, TW_ECONFIG, "%s: not a regular file of at most %u bytes", path,
			     TW_DIRECTORY_MAX_BYTES);
		goto out;
	}
	size_t size = (size_t)st.st_size;
	data = malloc(size + 1);
	if (data == NULL) {
		rc = tw_fail(err, TW_ENOMEM, "%s: out of memory", path);
		goto out;
	}
	size_t have = 0;
	while (have < size) {
		ssize_t n = read(fd, data + have, size - have);
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			rc = tw_fail_sys(err, TW_ESYS, "%s: read", path);
			goto out;
		}
		if (n == 0) {
			break;
		}
		have += (size_t)n;
	}
	rc = tw_directory_parse(dir, path, data, have, err);
out:
	free(data);
	(void)close(fd);
	return rc;
}

void tw_directory_free(struct tw_directory *dir)
{
	free(dir->symbols);
	*dir = (struct tw_directory){ 0 };
}

static int compare_symbols(const void *a, const void *b)
{
	return memcmp(a, b, TW_SYMBOL_BYTES);
}

uint32_t tw_directory_find(const struct tw_directory *dir, const char symbol[TW_SYMBOL_BYTES])
{
	if (dir->count == 0) {
		return 0;
	}
	const char(*found)[TW_SYMBOL_BYTES] =
		bsearch(symbol, dir->symbols, dir->count, sizeof(*dir->symbols), compare_symbols);
	return found == NULL ? 0
			     : (uint32_t)(found - (const char(*)[TW_SYMBOL_BYTES])dir->symbols) + 1;
}

int tw_instruments_init(struct tw_instruments *table, uint32_t max_count, bool numbered,
			const struct tw_directory *directory, struct tw_error *err)
{
	*table = (struct tw_instruments){ .directory = directory, .max_count = max_count };
	if (max_count == 0 || max_count > TW_INSTRUMENTS_MAX) {
		return tw_fail(err, TW_EARG, "instruments: capacity %u, allowed is 1 to %u",
			       max_count, TW_INSTRUMENTS_MAX);
	}
	uint32_t bits = 4;
	while ((UINT32_C(1) << bits) < max_count * 2) {
		bits++;
	}
	uint32_t slot_count = UINT32_C(1) << bits;
	table->slot_mask = slot_count - 1;
	table->slot_shift = 64 - bits;
	table->slot_factor =
		numbered ? UINT64_C(1) << table->slot_shift : UINT64_C(0x9e3779b97f4a7c15);
	/* present and zeroed: the hot thread takes no page fault on a first sight */
	int rc = tw_slab_init(&table->slab,
			      slot_count * (sizeof(*table->slots) + sizeof(*table->ids)), err);
	if (rc != TW_OK) {
		return rc;
	}
	table->slots = (void *)table->slab.base;
	table->ids = (void *)(table->slots + slot_count);
	return TW_OK;
}

void tw_instruments_fini(struct tw_instruments *table)
{
	tw_slab_fini(&table->slab);
	*table = (struct tw_instruments){ 0 };
}

/* Takes `id` for the instrument in `slot`; false where another one has it. */
static bool take_id(struct tw_instruments *table, uint32_t id, uint32_t slot)
{
	uint32_t i = tw_instruments_slot(table, id);
	while (table->ids[i] != 0) {
		if (table->slots[table->ids[i] - 1].id == id) {
			return false;
		}
		i = (i + 1) & table->slot_mask;
	}
	table->ids[i] = slot + 1;
	return true;
}

/* NULL: the table is full. */
static struct tw_instrument *take_slot(struct tw_instruments *table, uint64_t key,
				       const char symbol[TW_SYMBOL_BYTES], uint32_t channels)
{
	if (table->count == table->max_count) {
		return NULL;
	}
	uint32_t slot = tw_instruments_slot(table, key);
	while (table->slots[slot].state != TW_INSTRUMENT_FREE) {
		slot = (slot + 1) & table->slot_mask;
	}
	struct tw_instrument *instrument = &table->slots[slot];
	instrument->key = key;
	instrument->channels = channels;
	memcpy(instrument->symbol, symbol, TW_SYMBOL_BYTES);
	instrument->state = TW_INSTRUMENT_USED;
	table->count++;
	return instrument;
}

struct tw_instrument *tw_instruments_add_numbered(struct tw_instruments *table, uint32_t number,
						  const char symbol[TW_SYMBOL_BYTES],
						  uint32_t channels)
{
	struct tw_instrument *instrument = take_slot(table, number, symbol, channels);
	if (instrument != NULL) {
		instrument->id = number;
	}
	return instrument;
}

struct tw_instrument *tw_instruments_add(struct tw_instruments *table, uint64_t key,
					 const char symbol[TW_SYMBOL_BYTES], uint32_t channels)
{
	struct tw_instrument *instrument = take_slot(table, key, symbol, channels);
	if (instrument == NULL || channels == 0) {
		return instrument;
	}
	uint32_t slot = (uint32_t)(instrument - table->slots);
	uint32_t listed = 0;
	uint32_t line_count = 0;
	if (table->directory != NULL) {
		listed = tw_directory_find(table->directory, symbol);
		line_count = table->directory->count;
	}
	uint32_t id = listed;
	if (listed == 0) {
		id = tw_instrument_hash(symbol, strnlen(symbol, TW_SYMBOL_BYTES));
	}
	instrument->listed = listed != 0;
	/* the directory's ids are taken whether or not their symbols have been seen */
	if ((listed == 0 && id <= line_count) || !take_id(table, id, slot)) {
		instrument->state = TW_INSTRUMENT_REFUSED;
		instrument->channels = 0;
		return instrument;
	}
	instrument->id = id;
	return instrument;
}

void tw_instruments_clear(struct tw_instruments *table)
{
	if (table->count > 0) {
		memset(table->slots, 0, (table->slot_mask + 1ul) * sizeof(*table->slots));
		memset(table->ids, 0, (table->slot_mask + 1ul) * sizeof(*table->ids));
		table->count = 0;
	}
}

void tw_instruments_undefine(struct tw_instruments *table)
{
	for (uint32_t i = 0; i <= table->slot_mask; i++) {
		table->slots[i].defined = 0;
	}
}
