/* Repair over RC: which READs a range takes, and whether what they brought holds. */
#include <criterion/criterion.h>

#include "fabric/verbs/rc_plan.h"

#define UNITS   1000u
#define LOG     0x7f0000010040ull
#define CONTROL 0x7f0000010000ull

static struct tw_rc_grant grant = { .channel = 1,
				    .one_sided = true,
				    .publisher = 3,
				    .rkey = 7,
				    .session = 77,
				    .control_addr = CONTROL,
				    .log_addr = LOG,
				    .units = UNITS };

static struct tw_read range(uint64_t begin, uint64_t end)
{
	return (struct tw_read){
		.channel = 1, .session = 77, .publisher = 3, .begin = begin, .end = end
	};
}

static struct tw_wire_control control(uint64_t intent, uint64_t published)
{
	return (struct tw_wire_control){ .magic = TW_WIRE_CONTROL_MAGIC,
					 .publisher = 3,
					 .session = 77,
					 .units = UNITS,
					 .intent = intent,
					 .published = published };
}

static bool is_step(const struct tw_rc_step *step, enum tw_rc_target target, uint64_t addr,
		    uint32_t bytes, bool waits)
{
	return step->target == target && step->remote_addr == addr && step->bytes == bytes &&
	       step->waits == waits;
}

Test(rc_plan, chain_of_what_is_known_to_be_published)
{
	struct tw_rc_chain chain;
	struct tw_read read = range(2100, 2110);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 2110), TW_READ_OK);
	cr_assert_eq(chain.count, 2);
	cr_assert(!chain.before);
	cr_assert(is_step(&chain.steps[0], TW_RC_BYTES, LOG + 100 * 64, 640, false));
	/* the control line waits for the bytes: this is what the whole rule stands on */
	cr_assert(is_step(&chain.steps[1], TW_RC_CONTROL_AFTER, CONTROL, 64, true));
}

Test(rc_plan, chain_of_what_may_not_be_published)
{
	struct tw_rc_chain chain;
	struct tw_read read = range(2100, 2110);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 2109), TW_READ_OK);
	cr_assert_eq(chain.count, 3);
	cr_assert(chain.before);
	cr_assert(is_step(&chain.steps[0], TW_RC_CONTROL_BEFORE, CONTROL, 64, false));
	cr_assert(is_step(&chain.steps[1], TW_RC_BYTES, LOG + 100 * 64, 640, true));
	cr_assert(is_step(&chain.steps[2], TW_RC_CONTROL_AFTER, CONTROL, 64, true));
}

Test(rc_plan, range_over_the_end_of_the_log)
{
	struct tw_rc_chain chain;
	struct tw_read read = range(2990, 3030);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_OK);
	cr_assert_eq(chain.count, 4);
	cr_assert(is_step(&chain.steps[1], TW_RC_BYTES, LOG + 990 * 64, 640, true));
	cr_assert_eq(chain.steps[1].offset_bytes, 0);
	cr_assert(is_step(&chain.steps[2], TW_RC_BYTES, LOG, 30 * 64, false));
	cr_assert_eq(chain.steps[2].offset_bytes, 640);
	cr_assert(is_step(&chain.steps[3], TW_RC_CONTROL_AFTER, CONTROL, 64, true));

	read = range(2990, 3000); /* up to the end, and not a byte more */
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 3000), TW_READ_OK);
	cr_assert_eq(chain.count, 2);
	read = range(3000, 3001); /* from its begin */
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 3001), TW_READ_OK);
	cr_assert(is_step(&chain.steps[0], TW_RC_BYTES, LOG, 64, false));
}

/* Each leg is posted when the one before it has completed. */
Test(rc_plan, legs)
{
	struct tw_rc_chain chain;
	struct tw_read read = range(2990, 3030);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_OK);
	cr_assert_eq(tw_rc_leg_end(&chain, 0), 1, "the control line");
	cr_assert_eq(tw_rc_leg_end(&chain, 1), 3, "the bytes, over the end of the log");
	cr_assert_eq(tw_rc_leg_end(&chain, 3), 4, "the control line again");
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 3030), TW_READ_OK);
	cr_assert_eq(tw_rc_leg_end(&chain, 0), 2);
	cr_assert_eq(tw_rc_leg_end(&chain, 2), 3);
}

/* Every byte of every range comes once, from inside the log, and goes to its place. */
Test(rc_plan, all_ranges)
{
	for (uint64_t begin = 5000; begin < 7000; begin += 37) {
		for (uint64_t units = 1; units <= UNITS; units += 111) {
			struct tw_rc_chain chain;
			struct tw_read read = range(begin, begin + units);
			uint64_t to = 0;
			cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_OK);
			cr_assert_leq(chain.count, TW_RC_CHAIN_MAX);
			for (uint32_t i = 1; i + 1 < chain.count; i++) {
				const struct tw_rc_step *step = &chain.steps[i];
				uint64_t idx = (step->remote_addr - LOG) / 64;
				cr_assert_eq(idx, (begin + to / 64) % UNITS);
				cr_assert_leq(idx + step->bytes / 64, UNITS);
				cr_assert_eq(step->offset_bytes, to);
				to += step->bytes;
			}
			cr_assert_eq(to, units * 64);
		}
	}
}

Test(rc_plan, what_is_not_read_at_all)
{
	struct tw_rc_chain chain;
	struct tw_read read = range(10, 20);
	read = range(10, 10 + UNITS + 1);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_REFUSED);
	read = range(20, 20);
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_REFUSED);
	read = range(10, 20);
	read.by_seq = true;
	cr_assert_eq(tw_rc_chain_make(&chain, &grant, &read, 0), TW_READ_REFUSED);
	struct tw_rc_grant large = grant;
	large.units = 1u << 20;
	read = range(0, 1025); /* more than a slot holds */
	cr_assert_eq(tw_rc_chain_make(&chain, &large, &read, 0), TW_READ_REFUSED);
}

Test(rc_plan, judge_laps)
{
	struct tw_read read = range(2100, 2110);
	uint64_t published = 2200;
	struct tw_wire_control after = control(3100, 3090);
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &after, &published), TW_READ_OK);
	cr_assert_eq(published, 3090, "it is learnt from every line");
	after = control(3101, 3090); /* its first unit is about to be overwritten */
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &after, &published), TW_READ_GONE);
	after = control(1u << 30, 1u << 30);
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &after, &published), TW_READ_GONE);
	/* the first lap, where intent is less than the log */
	read = range(0, 10);
	published = 10;
	after = control(16, 10);
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &after, &published), TW_READ_OK);
}

/* Bytes that were not published before they were read may be half of what they are now. */
Test(rc_plan, judge_published)
{
	struct tw_read read = range(2100, 2110);
	struct tw_wire_control before = control(2116, 2100), after = control(2126, 2110);
	uint64_t published = 0;
	cr_assert_eq(tw_rc_judge(&grant, &read, &before, &after, &published), TW_READ_BUSY);
	cr_assert_eq(published, 2110);
	before = control(2126, 2110);
	published = 0;
	cr_assert_eq(tw_rc_judge(&grant, &read, &before, &after, &published), TW_READ_OK);
	/* what a later line says was so later */
	published = 2109;
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &after, &published), TW_READ_BUSY);
}

Test(rc_plan, judge_lives)
{
	struct tw_read read = range(2100, 2110);
	struct tw_wire_control good = control(2126, 2110), bad = good;
	uint64_t published = 2110;
	bad.session = 78;
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &bad, &published), TW_READ_GONE);
	cr_assert_eq(tw_rc_judge(&grant, &read, &bad, &good, &published), TW_READ_GONE);
	bad = good;
	bad.publisher = 4;
	bad.published = 9999;
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &bad, &published), TW_READ_GONE);
	cr_assert_eq(published, 2110, "nothing is learnt from another life");
	cr_assert(tw_rc_life_is_over(&grant, &bad));
	cr_assert(!tw_rc_life_is_over(&grant, &good));
	read.session = 76; /* an old one, and the grant's goes on */
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &good, &published), TW_READ_GONE);
	read.session = 77;
	bad.magic = 0;
	cr_assert(!tw_rc_life_is_over(&grant, &bad), "no line of that log at all");
	/* a new life that has just put its intent where the old one's was */
	bad = control(0, 2110);
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &bad, &published), TW_READ_GONE);
	bad = good;
	bad.magic = 0;
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &bad, &published), TW_READ_BROKEN);
	cr_assert_eq(tw_rc_judge(&grant, &read, &bad, &good, &published), TW_READ_BROKEN);
	bad = good;
	bad.units = UNITS + 1;
	cr_assert_eq(tw_rc_judge(&grant, &read, NULL, &bad, &published), TW_READ_BROKEN);
}

/* A grant that was given out before anything was written there. */
Test(rc_plan, first_life)
{
	struct tw_rc_grant first = grant;
	struct tw_rc_chain chain;
	struct tw_read read = range(0, 10);
	struct tw_wire_control nothing = { 0 }, before = control(16, 10), after = control(26, 20);
	uint64_t published = 0;
	first.session = first.publisher = 0;
	cr_assert_eq(tw_rc_chain_make(&chain, &first, &read, 0), TW_READ_OK);
	cr_assert(chain.before && chain.count == 3);
	cr_assert_eq(tw_rc_judge(&first, &read, &nothing, &nothing, &published), TW_READ_BUSY);
	cr_assert_eq(tw_rc_judge(&first, &read, &nothing, &after, &published), TW_READ_BUSY);
	cr_assert_eq(first.session, 0);
	cr_assert_eq(published, 0);
	read.session = 76; /* of an earlier server, perhaps */
	cr_assert_eq(tw_rc_judge(&first, &read, &before, &after, &published), TW_READ_GONE);
	cr_assert_eq(first.session, 0);
	read.session = 77;
	cr_assert_eq(tw_rc_judge(&first, &read, NULL, &after, &published), TW_READ_BROKEN);
	cr_assert_eq(tw_rc_judge(&first, &read, &before, &after, &published), TW_READ_OK);
	cr_assert(first.session == 77 && first.publisher == 3 && published == 20);
	/* from now on it is for that one alone */
	read.session = 78;
	cr_assert_eq(tw_rc_judge(&first, &read, NULL, &after, &published), TW_READ_GONE);
	read.session = 77;
	read.publisher = 4; /* posted when nothing was known */
	cr_assert_eq(tw_rc_judge(&first, &read, &before, &after, &published), TW_READ_GONE);
	read.publisher = 3;
	/* a life that begins while it is read */
	first.session = first.publisher = 0;
	read.session = 77;
	published = 0;
	before = control(0, 0);
	cr_assert_eq(tw_rc_judge(&first, &read, &before, &after, &published), TW_READ_BUSY);
	first.session = first.publisher = 0;
	before.units = UNITS + 1;
	cr_assert_eq(tw_rc_judge(&first, &read, &before, &after, &published), TW_READ_BROKEN);
}

Test(rc_plan, depth_and_patience)
{
	cr_assert_eq(tw_rc_depth(4, 16), 4);
	cr_assert_eq(tw_rc_depth(128, 8), 8);
	cr_assert_eq(tw_rc_depth(255, 255), TW_RC_DEPTH_MAX);
	cr_assert_eq(tw_rc_depth(16, 0), 0);
	cr_assert_eq(tw_rc_ack_timeout(0), 12);
	cr_assert_eq(tw_rc_ack_timeout(300000000ull), 13, "7 times 34 ms");
	cr_assert_eq(tw_rc_ack_timeout(UINT64_MAX), 14);
	cr_assert_eq(tw_rc_stuck_ns(2000000000ull), 2 * 7 * (4096ull << 14), "0.94 s");
	cr_assert_eq(tw_rc_stuck_ns(100000000ull), 100000000ull);
	cr_assert_eq(tw_rc_stuck_ns(60000000000ull), 15000000000ull,
		     "where there is time, a quarter");
	for (uint64_t ns = 500000000ull; ns < 30000000000ull; ns += 500000000ull) {
		uint64_t whole_ns = (4096ull << tw_rc_ack_timeout(ns)) * (TW_RC_RETRIES + 1);
		cr_assert(whole_ns <= ns && (whole_ns * 2 > ns || tw_rc_ack_timeout(ns) == 14));
	}
}
