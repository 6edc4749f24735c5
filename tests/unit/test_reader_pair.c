/* Two readers as one: who is asked, and who gets back what. */
#include <criterion/criterion.h>
#include <string.h>

#include "fabric/reader.h"

#define ENDS 8u

struct fake {
	struct tw_reader base;
	uint32_t up, closed, posted, first, last, released;
	struct tw_read_done ends[ENDS];
	bool full;
};

static bool post(struct tw_reader *reader, const struct tw_read *read)
{
	struct fake *fake = (struct fake *)reader;
	if (fake->full) {
		return false;
	}
	/* the largest number that a reader may have */
	fake->ends[fake->last % ENDS] = (struct tw_read_done){
		.id = read->id, .server = read->server, .slot = 2 * TW_READER_MAX_SLOTS - 1
	};
	fake->last++;
	fake->posted++;
	return true;
}

static bool poll_end(struct tw_reader *reader, struct tw_read_done *done)
{
	struct fake *fake = (struct fake *)reader;
	if (fake->first == fake->last) {
		return false;
	}
	*done = fake->ends[fake->first++ % ENDS];
	return true;
}

static void release(struct tw_reader *reader, const struct tw_read_done *done)
{
	cr_assert_eq(done->slot, 2 * TW_READER_MAX_SLOTS - 1);
	((struct fake *)reader)->released++;
}

static uint32_t up(const struct tw_reader *reader)
{
	return ((const struct fake *)reader)->up;
}

static void close_fake(struct tw_reader *reader)
{
	((struct fake *)reader)->closed++;
}

static const struct tw_reader_ops ops = {
	.post = post, .poll = poll_end, .release = release, .up = up, .close = close_fake
};
static struct fake first, second;
static struct tw_reader *pair;

static void setup(void)
{
	struct tw_error err;
	first = second = (struct fake){ .base = { .ops = &ops } };
	cr_assert_eq(tw_reader_pair_open(&pair, &first.base, &second.base, &err), TW_OK);
}

static bool ask(uint64_t id, uint32_t server)
{
	struct tw_read read = { .id = id, .server = server, .session = 1, .end = 1 };
	return tw_reader_post(pair, &read);
}

Test(reader_pair, the_first_where_it_is_logged_in, .init = setup)
{
	first.up = 1u << 1;
	second.up = 1u << 0 | 1u << 1;
	cr_assert_eq(tw_reader_up(pair), 3);
	cr_assert(ask(1, 0));
	cr_assert(ask(2, 1));
	cr_assert_eq(first.posted, 1);
	cr_assert_eq(second.posted, 1);
	first.up = 0; /* it has broken: the second goes on */
	cr_assert_eq(tw_reader_up(pair), 3);
	cr_assert(ask(3, 1));
	cr_assert_eq(second.posted, 2);
	second.full = true;
	cr_assert(!ask(4, 1));
	cr_assert(!ask(5, TW_READER_MAX_SERVERS) && first.posted == 1);
	tw_reader_close(pair);
	cr_assert(first.closed == 1 && second.closed == 1);
}

Test(reader_pair, each_end_goes_back_where_it_came_from, .init = setup)
{
	uint64_t seen = 0;
	struct tw_read_done done;
	first.up = 1;
	for (uint64_t id = 0; id < 6; id++) {
		cr_assert(ask(id, id % 2 == 0 ? 0 : 1));
	}
	/* none of the two is left waiting while the other one has ends */
	for (int i = 0; i < 4; i++) {
		cr_assert(tw_reader_poll(pair, &done));
		seen |= 1u << done.id;
		tw_reader_release(pair, &done);
	}
	cr_assert(first.released == 2 && second.released == 2);
	while (tw_reader_poll(pair, &done)) {
		seen |= 1u << done.id;
		tw_reader_release(pair, &done);
	}
	cr_assert_eq(seen, 0x3f);
	cr_assert(first.released == 3 && second.released == 3);
	tw_reader_close(pair);
}
