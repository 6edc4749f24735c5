/* Two readers of the same servers as one: a server is asked by the first where that one is logged in, else by the
 * second.  So a subscriber on `verbs` repairs from a publisher that has sockets alone, and goes on
 * over TCP while RC cannot be had.
 *
 * Order     reads of one server end in the order of their posts as long as the way stays the same.
 * Slots     the second's numbers follow the first's, so that a release finds its reader. */
#include <stdlib.h>

#include "base/fail.h"
#include "fabric/reader.h"

#define SECOND (2 * TW_READER_MAX_SLOTS) /* of both sizes */

struct pair {
	struct tw_reader base;
	struct tw_reader *first, *second;
	bool turn; /* the second is polled first */
};

static struct pair *pair_of(struct tw_reader *reader)
{
	return (struct pair *)reader;
}

static bool post(struct tw_reader *reader, const struct tw_read *read)
{
	struct pair *pair = pair_of(reader);
	bool by_first = read->server < TW_READER_MAX_SERVERS &&
			(tw_reader_up(pair->first) >> read->server & 1u) != 0;
	return tw_reader_post(by_first ? pair->first : pair->second, read);
}

static bool poll_one(struct pair *pair, bool second, struct tw_read_done *done)
{
	if (!tw_reader_poll(second ? pair->second : pair->first, done)) {
		return false;
	}
	done->slot += second ? SECOND : 0;
	return true;
}

static bool poll(struct tw_reader *reader, struct tw_read_done *done)
{
	struct pair *pair = pair_of(reader);
	pair->turn = !pair->turn;
	return poll_one(pair, pair->turn, done) || poll_one(pair, !pair->turn, done);
}

static void release(struct tw_reader *reader, const struct tw_read_done *done)
{
	struct pair *pair = pair_of(reader);
	struct tw_read_done own = *done;
	bool second = done->slot >= SECOND;
	own.slot -= second ? SECOND : 0;
	tw_reader_release(second ? pair->second : pair->first, &own);
}

static uint32_t up(const struct tw_reader *reader)
{
	const struct pair *pair = (const struct pair *)reader;
	return tw_reader_up(pair->first) | tw_reader_up(pair->second);
}

static void close_pair(struct tw_reader *reader)
{
	struct pair *pair = pair_of(reader);
	tw_reader_close(pair->first);
	tw_reader_close(pair->second);
	free(pair);
}

int tw_reader_pair_open(struct tw_reader **reader_p, struct tw_reader *first,
			struct tw_reader *second, struct tw_error *err)
{
	static const struct tw_reader_ops ops = {
		.post = post, .poll = poll, .release = release, .up = up, .close = close_pair
	};
	*reader_p = NULL;
	struct pair *pair = calloc(1, sizeof(*pair));
	if (pair == NULL) {
		tw_reader_close(first);
		tw_reader_close(second);
		return tw_fail(err, TW_ENOMEM, "repair reader: out of memory");
	}
	*pair = (struct pair){ .base = { .ops = &ops }, .first = first, .second = second };
	*reader_p = &pair->base;
	return TW_OK;
}
