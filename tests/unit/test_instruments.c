/* Symbols to ids: the hash that docs/WIRE.md states, directory files, collisions, a full table. */
#include <unistd.h>

#include "tests/support/feed_bytes.h"

static void name(char out[TW_SYMBOL_BYTES], const char *text)
{
	memset(out, 0, TW_SYMBOL_BYTES);
	memcpy(out, text, strlen(text));
}

/* Published FNV-1a vectors (of "", "a", "foobar"), and the one value that is not FNV-1a's own. */
Test(instruments, hash_is_fnv1a)
{
	cr_assert_eq(tw_instrument_hash("", 0), 0x811c9dc5u);
	cr_assert_eq(tw_instrument_hash("a", 1), 0xe40c292cu);
	cr_assert_eq(tw_instrument_hash("foobar", 6), 0xbf9cf968u);
	/* these four bytes are FNV-1a's shortest way to 0, which is no id */
	cr_assert_eq(tw_instrument_hash("\xcc\x24\x31\xc4", 4), 1u);
}

static int parse(struct tw_directory *dir, const char *text, struct tw_error *err)
{
	return tw_directory_parse(dir, "symbols.txt", text, strlen(text), err);
}

static void refuse(const char *text, const char *why)
{
	struct tw_directory dir;
	struct tw_error err = { 0 };
	cr_assert_eq(parse(&dir, text, &err), TW_ECONFIG, "accepted: %s", text);
	cr_assert(strstr(err.text, why) != NULL, "'%s' is not in: %s", why, err.text);
	cr_assert_null(dir.symbols);
}

Test(instruments, directory_lines_are_ids)
{
	struct tw_directory dir;
	struct tw_error err = { 0 };
	char symbol[TW_SYMBOL_BYTES];
	cr_assert_eq(parse(&dir, "A\nAA\nBRK.A\nZVZZT", &err), TW_OK, "%s", err.text);
	cr_assert_eq(dir.count, 4);
	static const char *const symbols[] = { "A", "AA", "BRK.A", "ZVZZT" };
	for (uint32_t i = 0; i < 4; i++) {
		name(symbol, symbols[i]);
		cr_assert_eq(tw_directory_find(&dir, symbol), i + 1);
	}
	name(symbol, "AB");
	cr_assert_eq(tw_directory_find(&dir, symbol), 0);
	tw_directory_free(&dir);

	refuse("", "0 symbols");
	refuse("B\nA\n", "symbols.txt:2: 'A' is not sorted, it comes after 'B'");
	refuse("A\nB\nB\n", "symbols.txt:3: 'B' is there twice");
	refuse("A\n\nB\n", "symbols.txt:2: empty line");
	refuse("A\r\nB\r\n", "symbols.txt:1: byte 0x0d");
	refuse("A B\n", "symbols.txt:1: byte 0x20");
	refuse("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n", "symbols.txt:1: 32 characters");
}

Test(instruments, directory_file)
{
	char path[] = "/tmp/tw-test-directory-XXXXXX";
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, "AAPL\nMSFT\n", 10), 10);
	cr_assert_eq(close(fd), 0);
	struct tw_directory dir;
	struct tw_error err = { 0 };
	int rc = tw_directory_load(&dir, path, &err);
	(void)unlink(path);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	cr_assert_eq(dir.count, 2);
	tw_directory_free(&dir);
	rc = tw_directory_load(&dir, path, &err);
	cr_assert_eq(rc, TW_ECONFIG);
	cr_assert(strstr(err.text, "open: No such file") != NULL, "%s", err.text);
	cr_assert_eq(tw_directory_load(&dir, "/", &err), TW_ECONFIG);
	cr_assert(strstr(err.text, "not a regular file") != NULL, "%s", err.text);
}

/* The i-th of many symbols of seven letters. */
static size_t letters(char out[TW_SYMBOL_BYTES], uint32_t i)
{
	uint64_t v = i * 0x9e3779b97f4a7c15u;
	memset(out, 0, TW_SYMBOL_BYTES);
	for (size_t k = 0; k < 7; k++, v /= 26) {
		out[k] = (char)('A' + v % 26);
	}
	return 7;
}

/* Two printable symbols with one hash: found here, not stored. */
static bool find_collision(char a[TW_SYMBOL_BYTES], char b[TW_SYMBOL_BYTES])
{
	enum { TRIES = 1u << 18, SLOTS = 1u << 20 };
	uint32_t *seen = calloc(SLOTS, sizeof(*seen));
	cr_assert_not_null(seen);
	bool found = false;
	for (uint32_t i = 1; i <= TRIES && !found; i++) {
		char text[TW_SYMBOL_BYTES];
		uint32_t h = tw_instrument_hash(text, letters(text, i));
		uint32_t slot = h & (SLOTS - 1);
		for (; seen[slot] != 0; slot = (slot + 1) & (SLOTS - 1)) {
			char other[TW_SYMBOL_BYTES];
			if (tw_instrument_hash(other, letters(other, seen[slot])) == h) {
				memcpy(a, other, TW_SYMBOL_BYTES);
				memcpy(b, text, TW_SYMBOL_BYTES);
				found = memcmp(a, b, TW_SYMBOL_BYTES) != 0;
				break;
			}
		}
		seen[slot] = i;
	}
	free(seen);
	return found;
}

Test(instruments, collisions_are_refused, .timeout = 60)
{
	char a[TW_SYMBOL_BYTES], b[TW_SYMBOL_BYTES];
	cr_assert(find_collision(a, b));
	struct tw_instruments table;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_instruments_init(&table, 16, false, NULL, &err), TW_OK);
	/* one that no channel carries takes no id */
	struct tw_instrument *unheard = tw_instruments_add(&table, 1, b, 0);
	cr_assert_eq(unheard->id, 0);
	struct tw_instrument *first = tw_instruments_add(&table, 2, a, 1);
	cr_assert_eq(first->state, TW_INSTRUMENT_USED);
	cr_assert_eq(first->id, tw_instrument_hash(a, strlen(a)));
	struct tw_instrument *second = tw_instruments_add(&table, 3, b, 1);
	cr_assert_eq(second->state, TW_INSTRUMENT_REFUSED);
	cr_assert_eq(second->channels, 0);
	cr_assert_eq(tw_instruments_find(&table, 3), second); /* known, so that it counts once */
	tw_instruments_fini(&table);

	/* symbols that the configuration names are refused at start, with the cure */
	char *symbols[] = { a, b, NULL };
	_Atomic uint64_t counters[TW_N_fh_counters] = { 0 };
	struct tw_feed_conf conf = { .protocol = "tops16",
				     .channel_count = 1,
				     .symbols = { symbols },
				     .counters = { .values = counters } };
	struct tw_feed *feed;
	cr_assert_eq(tw_feed_create(&feed, &conf, &err), TW_ECONFIG);
	cr_assert(strstr(err.text, a) != NULL && strstr(err.text, b) != NULL, "%s", err.text);
	cr_assert(strstr(err.text, "directory file") != NULL, "%s", err.text);
}

Test(instruments, directory_ids_come_first)
{
	struct tw_directory dir;
	struct tw_error err = { 0 };
	cr_assert_eq(parse(&dir, "AAPL\nMSFT\n", &err), TW_OK);
	struct tw_instruments table;
	cr_assert_eq(tw_instruments_init(&table, 16, false, &dir, &err), TW_OK);
	char symbol[TW_SYMBOL_BYTES];
	name(symbol, "MSFT");
	struct tw_instrument *msft = tw_instruments_add(&table, 10, symbol, 1);
	name(symbol, "NEW");
	struct tw_instrument *unlisted = tw_instruments_add(&table, 11, symbol, 1);
	name(symbol, "AAPL");
	struct tw_instrument *aapl = tw_instruments_add(&table, 12, symbol, 1);
	cr_assert_eq(aapl->id, 1);
	cr_assert_eq(msft->id, 2);
	cr_assert(aapl->listed && msft->listed && !unlisted->listed);
	cr_assert_eq(unlisted->id, tw_instrument_hash("NEW", 3));
	tw_instruments_fini(&table);
	tw_directory_free(&dir);
}

Test(instruments, the_order_of_appearance_does_not_matter, .timeout = 60)
{
	enum { COUNT = 2000 };
	struct tw_error err = { 0 };
	struct tw_instruments up, down;
	cr_assert_eq(tw_instruments_init(&up, COUNT, false, NULL, &err), TW_OK);
	cr_assert_eq(tw_instruments_init(&down, COUNT, false, NULL, &err), TW_OK);
	for (uint32_t i = 0; i < COUNT; i++) {
		char symbol[TW_SYMBOL_BYTES] = "";
		(void)snprintf(symbol, sizeof(symbol), "T%u", i);
		cr_assert_not_null(tw_instruments_add(&up, i * 977u, symbol, 1));
		uint32_t j = COUNT - 1 - i;
		(void)snprintf(symbol, sizeof(symbol), "T%u", j);
		cr_assert_not_null(tw_instruments_add(&down, j * 977u, symbol, 1));
	}
	for (uint32_t i = 0; i < COUNT; i++) {
		struct tw_instrument *x = tw_instruments_find(&up, i * 977u);
		struct tw_instrument *y = tw_instruments_find(&down, i * 977u);
		cr_assert_not_null(x);
		cr_assert_not_null(y);
		cr_assert_neq(x->id, 0);
		cr_assert_eq(x->id, y->id);
	}
	tw_instruments_fini(&up);
	tw_instruments_fini(&down);
}

Test(instruments, a_full_table_refuses)
{
	struct tw_instruments table;
	struct tw_error err = { 0 };
	char symbol[TW_SYMBOL_BYTES] = "";
	cr_assert_eq(tw_instruments_init(&table, 3, false, NULL, &err), TW_OK);
	for (uint64_t key = 1; key <= 3; key++) {
		symbol[0] = (char)('A' + key);
		cr_assert_not_null(tw_instruments_add(&table, key, symbol, 1));
	}
	symbol[0] = 'Z';
	cr_assert_null(tw_instruments_add(&table, 4, symbol, 1));
	cr_assert_null(tw_instruments_find(&table, 4));
	cr_assert_not_null(tw_instruments_find(&table, 2));
	tw_instruments_fini(&table);
	cr_assert_eq(tw_instruments_init(&table, 0, false, NULL, &err), TW_EARG);
	cr_assert_eq(tw_instruments_init(&table, UINT32_MAX, false, NULL, &err), TW_EARG);
}
