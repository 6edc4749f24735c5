/* Order books of fixed size: orders in one pool, each side's levels in an array whose last entry is
 * the best, so that what happens most often moves least.  Nothing is allocated after the start. */
#include <stdlib.h>
#include <string.h>

#include "gen_flow.h"

#define FNV_BASIS 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

int gen_books_open(struct gen_books *books, uint32_t book_count, uint32_t capacity)
{
	*books = (struct gen_books){ .book_count = book_count, .capacity = capacity };
	books->books = calloc(book_count, sizeof(*books->books));
	books->orders = calloc(capacity, sizeof(*books->orders));
	if (books->books == NULL || books->orders == NULL) {
		return TW_ENOMEM;
	}
	for (uint32_t i = 0; i < capacity; i++) {
		books->orders[i].next = i + 1 < capacity ? i + 1 : GEN_NO_ORDER;
	}
	return TW_OK;
}

void gen_books_close(struct gen_books *books)
{
	free(books->books);
	free(books->orders);
	books->books = NULL;
	books->orders = NULL;
}

/* A bid is better than another the higher, an offer the lower. */
static bool worse(enum gen_book_side side, uint32_t price, uint32_t than)
{
	return side == GEN_BUY ? price < than : price > than;
}

/* The level at this price, made if need be; NULL where there is no room. */
static struct gen_level *level_at(struct gen_levels *levels, enum gen_book_side side,
				  uint32_t price)
{
	uint32_t i = levels->n;

	while (i > 0 && worse(side, price, levels->at[i - 1].price)) {
		i--;
	}
	if (i > 0 && levels->at[i - 1].price == price) {
		return &levels->at[i - 1];
	}
	if (levels->n == GEN_LEVELS) {
		return NULL;
	}
	memmove(&levels->at[i + 1], &levels->at[i], (levels->n - i) * sizeof(levels->at[0]));
	levels->n++;
	levels->at[i] = (struct gen_level){
		.price = price,
		.head = GEN_NO_ORDER,
		.tail = GEN_NO_ORDER,
	};
	return &levels->at[i];
}

uint32_t gen_books_add(struct gen_books *books, const struct gen_order *order)
{
	struct gen_book *book = &books->books[order->book];
	uint32_t index = books->free;

	if (index == GEN_NO_ORDER) {
		return GEN_NO_ORDER;
	}
	struct gen_level *level =
		level_at(&book->sides[order->side], (enum gen_book_side)order->side, order->price);
	if (level == NULL) {
		return GEN_NO_ORDER;
	}
	struct gen_order *o = &books->orders[index];
	books->free = o->next;
	*o = *order;
	o->next = GEN_NO_ORDER;
	o->prev = level->tail;
	if (level->tail == GEN_NO_ORDER) {
		level->head = index;
	} else {
		books->orders[level->tail].next = index;
	}
	level->tail = index;
	level->orders++;
	level->qty += o->qty;
	book->orders++;
	books->living++;
	return index;
}

static void unlink_order(struct gen_books *books, struct gen_level *level, uint32_t index)
{
	struct gen_order *o = &books->orders[index];

	if (o->prev == GEN_NO_ORDER) {
		level->head = o->next;
	} else {
		books->orders[o->prev].next = o->next;
	}
	if (o->next == GEN_NO_ORDER) {
		level->tail = o->prev;
	} else {
		books->orders[o->next].prev = o->prev;
	}
	o->next = books->free;
	books->free = index;
	level->orders--;
	books->books[o->book].orders--;
	books->living--;
}

void gen_books_reduce(struct gen_books *books, uint32_t index, uint32_t qty)
{
	struct gen_order *o = &books->orders[index];
	struct gen_levels *levels = &books->books[o->book].sides[o->side];
	uint32_t i = levels->n - 1;

	while (levels->at[i].price != o->price) {
		i--;
	}
	struct gen_level *level = &levels->at[i];
	level->qty -= qty;
	o->qty -= qty;
	if (o->qty != 0) {
		return;
	}
	unlink_order(books, level, index);
	if (level->orders == 0) {
		levels->n--;
		memmove(level, level + 1, (levels->n - i) * sizeof(*level));
	}
}

const struct gen_level *gen_books_best(const struct gen_books *books, uint32_t book,
				       enum gen_book_side side)
{
	const struct gen_levels *levels = &books->books[book].sides[side];

	return levels->n != 0 ? &levels->at[levels->n - 1] : NULL;
}

static uint64_t hash_be(uint64_t hash, uint64_t v, unsigned int bytes)
{
	while (bytes-- > 0) {
		hash = (hash ^ (v >> 8 * bytes & 0xff)) * FNV_PRIME;
	}
	return hash;
}

uint64_t gen_books_hash(const struct gen_books *books)
{
	uint64_t hash = FNV_BASIS;

	for (uint32_t i = 0; i < books->book_count; i++) {
		hash = hash_be(hash, i + 1, 2);
		for (unsigned int side = 0; side < 2; side++) {
			const struct gen_level *best =
				gen_books_best(books, i, (enum gen_book_side)side);
			hash = hash_be(hash, best != NULL ? best->price : 0, 4);
			hash = hash_be(hash, best != NULL ? best->qty : 0, 8);
		}
	}
	return hash;
}
