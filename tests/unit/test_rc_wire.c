/* Repair over RC: the hello, and login replies with their grants. */
#include <criterion/criterion.h>
#include <string.h>

#include "fabric/verbs/rc_wire.h"

#define ENV 0x2468

static struct tw_rc_grant a_grant(uint16_t channel)
{
	return (struct tw_rc_grant){ .channel = channel,
				     .one_sided = true,
				     .publisher = 65537,
				     .rkey = 0x1234,
				     .session = 77,
				     .control_addr = 0x7f0000001000,
				     .log_addr = 0x7f0000001040,
				     .units = 1000 };
}

static struct {
	uint8_t bytes[TW_RC_LOGIN_MAX];
	uint32_t len_bytes;
	struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	uint32_t count;
	enum tw_rw_login result;
} reply;

static void make(enum tw_rw_login result, const struct tw_rc_grant *grants, uint32_t count)
{
	memset(&reply, 0xee, sizeof(reply));
	reply.len_bytes = tw_rc_put_login_reply(reply.bytes, ENV, result, grants, count);
}

static enum tw_rw_verdict parse(void)
{
	return tw_rc_parse_login_reply(reply.bytes, reply.len_bytes, ENV, &reply.result,
				       reply.grants, &reply.count);
}

/* One grant with a byte of it changed, and the verdict on that. */
static enum tw_rw_verdict changed(uint32_t at, uint8_t value)
{
	struct tw_rc_grant grant = a_grant(1);
	make(TW_LOGIN_OK, &grant, 1);
	reply.bytes[at] = value;
	return parse();
}

Test(rc_wire, hello)
{
	struct tw_rc_hello_head head;
	uint8_t padded[56] = { 0 };
	struct tw_rc_hello hello = { 0 };
	tw_rc_put_hello(&head, 7);
	memcpy(padded, &head, sizeof(head));
	cr_assert_eq(padded[0], 'T');
	cr_assert_eq(padded[3], '1');
	cr_assert_eq(tw_rc_parse_hello(padded, sizeof(padded), &hello), TW_RW_WELL_FORMED);
	cr_assert_eq(hello.channel, 7);
	cr_assert(hello.takes_probes);
	cr_assert_eq(tw_rc_parse_hello(padded, 15, &hello), TW_RW_SHORT);
	cr_assert_eq(tw_rc_parse_hello(NULL, 0, &hello), TW_RW_SHORT);
	padded[5] = 9; /* a later minor */
	cr_assert_eq(tw_rc_parse_hello(padded, 16, &hello), TW_RW_WELL_FORMED);
	cr_assert(hello.takes_probes);
	padded[5] = 0; /* the first one */
	cr_assert_eq(tw_rc_parse_hello(padded, 16, &hello), TW_RW_WELL_FORMED);
	cr_assert(!hello.takes_probes);
	padded[15] = 1;
	cr_assert_eq(tw_rc_parse_hello(padded, 16, &hello), TW_RW_FIELDS);
	padded[4] = 2;
	cr_assert_eq(tw_rc_parse_hello(padded, 16, &hello), TW_RW_VERSION);
	padded[0] = 0;
	cr_assert_eq(tw_rc_parse_hello(padded, 16, &hello), TW_RW_MAGIC);
}

Test(rc_wire, login_reply)
{
	struct tw_rc_grant grants[3] = { a_grant(1), { .channel = 2 }, a_grant(9) };
	make(TW_LOGIN_OK, grants, 3);
	cr_assert_eq(reply.len_bytes, 64 + 3 * 64);
	cr_assert_eq(parse(), TW_RW_WELL_FORMED);
	cr_assert_eq(reply.result, TW_LOGIN_OK);
	cr_assert_eq(reply.count, 3);
	for (unsigned int i = 0; i < 3; i++) {
		const struct tw_rc_grant *got = &reply.grants[i];
		cr_assert(got->channel == grants[i].channel &&
			  got->one_sided == grants[i].one_sided && got->rkey == grants[i].rkey &&
			  got->session == grants[i].session &&
			  got->publisher == grants[i].publisher &&
			  got->control_addr == grants[i].control_addr &&
			  got->log_addr == grants[i].log_addr && got->units == grants[i].units);
	}
	make(TW_LOGIN_FULL, NULL, 0);
	cr_assert_eq(parse(), TW_RW_WELL_FORMED);
	cr_assert_eq(reply.result, TW_LOGIN_FULL);
	cr_assert_eq(reply.count, 0);
}

Test(rc_wire, most_grants)
{
	static struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	for (uint32_t i = 0; i < TW_RC_CHANNELS_MAX; i++) {
		grants[i] = a_grant((uint16_t)(i + 1));
	}
	make(TW_LOGIN_OK, grants, TW_RC_CHANNELS_MAX);
	cr_assert_eq(reply.len_bytes, TW_RC_LOGIN_MAX);
	cr_assert_eq(parse(), TW_RW_WELL_FORMED);
	cr_assert_eq(reply.count, TW_RC_CHANNELS_MAX);
}

Test(rc_wire, length_and_count_agree)
{
	struct tw_rc_grant grants[2] = { a_grant(1), a_grant(2) };
	make(TW_LOGIN_OK, grants, 2);
	reply.len_bytes -= 64; /* the second did not come */
	cr_assert_eq(parse(), TW_RW_FIELDS);
	make(TW_LOGIN_OK, grants, 2);
	reply.len_bytes += 64;
	cr_assert_eq(parse(), TW_RW_FIELDS);
	make(TW_LOGIN_OK, grants, 2);
	reply.len_bytes = 63;
	cr_assert_eq(parse(), TW_RW_SHORT);
	make(TW_LOGIN_OK, grants, 1);
	reply.bytes[8] = 65; /* bytes: not whole grants */
	cr_assert_eq(parse(), TW_RW_FIELDS);
	make(TW_LOGIN_OK, NULL, 0); /* welcome, and to nothing */
	cr_assert_eq(parse(), TW_RW_FIELDS);
	make(TW_LOGIN_FULL, grants, 1); /* not welcome, with a key all the same */
	cr_assert_eq(parse(), TW_RW_FIELDS);
}

Test(rc_wire, twice_the_same_channel)
{
	struct tw_rc_grant grants[2] = { a_grant(1), a_grant(1) };
	make(TW_LOGIN_OK, grants, 2);
	cr_assert_eq(parse(), TW_RW_FIELDS);
}

Test(rc_wire, places_hold)
{
	const uint32_t at = 64;
	cr_assert_eq(changed(at + 0, 5), TW_RW_WELL_FORMED); /* another channel */
	cr_assert_eq(changed(at + 2, 3), TW_RW_FIELDS);      /* a flag of tomorrow */
	cr_assert_eq(changed(at + 3, 1), TW_RW_FIELDS);
	cr_assert_eq(changed(at + 2, 0), TW_RW_FIELDS);  /* served, and yet with a key */
	cr_assert_eq(changed(at + 8, 0), TW_RW_FIELDS);  /* a publisher, and no session */
	cr_assert_eq(changed(at + 16, 1), TW_RW_FIELDS); /* control line across two units */
	cr_assert_eq(changed(at + 24, 0x41), TW_RW_FIELDS);
	cr_assert_eq(changed(at + 38, 0xff), TW_RW_FIELDS); /* a log larger than any */
	cr_assert_eq(changed(at + 44, 1), TW_RW_FIELDS);
	cr_assert_eq(changed(at + 48, 1), TW_RW_FIELDS);
	cr_assert_eq(changed(at + 63, 1), TW_RW_FIELDS);

	struct tw_rc_grant grant = a_grant(1);
	grant.session = grant.publisher = 0; /* nothing has begun there */
	make(TW_LOGIN_OK, &grant, 1);
	cr_assert_eq(parse(), TW_RW_WELL_FORMED);
	grant = a_grant(1);
	grant.log_addr = UINT64_MAX - 999 * 64 - 63; /* its last unit would begin at the very end */
	make(TW_LOGIN_OK, &grant, 1);
	cr_assert_eq(parse(), TW_RW_FIELDS);
	grant = a_grant(1);
	grant.units = 0;
	make(TW_LOGIN_OK, &grant, 1);
	cr_assert_eq(parse(), TW_RW_FIELDS);
	grant.units = TW_RC_UNITS_MAX + 1;
	make(TW_LOGIN_OK, &grant, 1);
	cr_assert_eq(parse(), TW_RW_FIELDS);
}
