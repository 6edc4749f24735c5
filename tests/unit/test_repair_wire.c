/* Heads of repair over TCP: layout as docs/WIRE.md states it, and every field a receiver must refuse. */
#include <criterion/criterion.h>
#include <string.h>

#include "fabric/repair_wire.h"

#define ENV 0x1234

static const struct tw_read by_pos = {
	.id = 7, .channel = 3, .session = 42, .publisher = 0x10001, .begin = 100, .end = 104
};
static const struct tw_read by_seq = {
	.id = 8, .channel = 3, .by_seq = true, .session = 42, .begin = 1, .end = UINT64_MAX
};

/* Sets each byte of a head in turn to something else; returns how many of the results `holds` takes. */
static unsigned int accepted_when_bent(const void *head, bool (*holds)(const void *head))
{
	unsigned int accepted = 0;
	for (size_t at = 0; at < TW_RW_HEAD_BYTES; at++) {
		for (unsigned int bit = 0; bit < 8; bit++) {
			_Alignas(8) uint8_t bent[TW_RW_HEAD_BYTES];
			memcpy(bent, head, sizeof(bent));
			bent[at] ^= (uint8_t)(1u << bit);
			accepted += holds(bent);
		}
	}
	return accepted;
}

Test(repair_wire, the_bytes_are_those_of_the_document, .timeout = 60)
{
	static const uint8_t read_bytes[TW_RW_HEAD_BYTES] = {
		'T', 'W', 'R', '1', 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, /* lead */
		7,   0,   0,   0,   0, 0, 0, 0,                         /* id */
		42,  0,   0,   0,   0, 0, 0, 0,                         /* session */
		1,   0,   1,   0,   0, 0, 0, 0,                         /* publisher, flags */
		100, 0,   0,   0,   0, 0, 0, 0,                         /* begin */
		104, 0,   0,   0,   0, 0, 0, 0,                         /* end */
	};
	static const uint8_t login_bytes[TW_RW_HEAD_BYTES] = { 'T', 'W', 'R', '1', 1,    0,    1, 0,
							       0,   0,   0,   0,   0x34, 0x12, 0, 0,
							       0,   0,   0,   0,   0,    0,    0, 0,
							       's', 'u', 'b', '-', '1' };
	struct tw_rw_read_head read;
	struct tw_rw_login_head login;
	tw_rw_put_read(&read, &by_pos);
	cr_assert_eq(memcmp(&read, read_bytes, sizeof(read)), 0);
	tw_rw_put_login(&login, ENV, "sub-1");
	cr_assert_eq(memcmp(&login, login_bytes, sizeof(login)), 0);
	tw_rw_put_reply(&read, 7, TW_READ_OK, 256);
	cr_assert_eq(((const uint8_t *)&read)[6], 4);
	cr_assert_eq(((const uint8_t *)&read)[9], 1);
}

Test(repair_wire, what_is_put_is_parsed, .timeout = 60)
{
	struct tw_rw_read_head head;
	struct tw_rw_login_head login;
	struct tw_read got;
	char name[TW_READ_NAME_BYTES];
	uint16_t environment;
	enum tw_rw_login result;

	tw_rw_put_read(&head, &by_pos);
	cr_assert_eq(tw_rw_parse_read(&head, sizeof(head), &got), TW_RW_WELL_FORMED);
	cr_assert(got.id == 7 && got.channel == 3 && !got.by_seq && got.session == 42 &&
		  got.publisher == 0x10001 && got.begin == 100 && got.end == 104);
	tw_rw_put_read(&head, &by_seq);
	cr_assert_eq(tw_rw_parse_read(&head, sizeof(head), &got), TW_RW_WELL_FORMED);
	cr_assert(got.by_seq && got.publisher == 0 && got.begin == 1 && got.end == UINT64_MAX);

	tw_rw_put_login(&login, ENV, "sub-1");
	cr_assert_eq(tw_rw_parse_login(&login, sizeof(login), &environment, name),
		     TW_RW_WELL_FORMED);
	cr_assert_eq(environment, ENV);
	cr_assert_str_eq(name, "sub-1");
	/* a name that fills its field has no NUL on the wire */
	char longest[TW_READ_NAME_BYTES];
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	tw_rw_put_login(&login, ENV, longest);
	cr_assert_eq(tw_rw_parse_login(&login, sizeof(login), &environment, name),
		     TW_RW_WELL_FORMED);
	cr_assert_eq(strlen(name), TW_RW_NAME_BYTES);

	for (unsigned int r = 0; r < TW_LOGIN_RESULTS; r++) {
		tw_rw_put_login_reply(&login, ENV, (enum tw_rw_login)r);
		cr_assert_eq(tw_rw_parse_login_reply(&login, sizeof(login), ENV, &result),
			     TW_RW_WELL_FORMED);
		cr_assert_eq(result, r);
	}
}

Test(repair_wire, a_head_is_not_judged_before_it_is_whole, .timeout = 60)
{
	struct tw_rw_read_head head;
	struct tw_read got;
	enum tw_read_status status;
	uint32_t bytes;
	char name[TW_READ_NAME_BYTES];
	uint16_t environment;
	tw_rw_put_read(&head, &by_pos);
	for (size_t len = 0; len < sizeof(head); len++) {
		cr_assert_eq(tw_rw_parse_read(&head, len, &got), TW_RW_SHORT);
		cr_assert_eq(tw_rw_parse_login(&head, len, &environment, name), TW_RW_SHORT);
		cr_assert_eq(tw_rw_parse_reply(&head, len, &by_pos, &status, &bytes), TW_RW_SHORT);
	}
}

static bool read_holds(const void *head)
{
	struct tw_read got;
	return tw_rw_parse_read(head, TW_RW_HEAD_BYTES, &got) == TW_RW_WELL_FORMED;
}

static bool login_holds(const void *head)
{
	char name[TW_READ_NAME_BYTES];
	uint16_t environment;
	return tw_rw_parse_login(head, TW_RW_HEAD_BYTES, &environment, name) == TW_RW_WELL_FORMED;
}

static bool reply_holds(const void *head)
{
	enum tw_read_status status;
	uint32_t bytes;
	return tw_rw_parse_reply(head, TW_RW_HEAD_BYTES, &by_pos, &status, &bytes) ==
	       TW_RW_WELL_FORMED;
}

static bool gone_holds(const void *head)
{
	return reply_holds(head);
}

Test(repair_wire, no_bit_that_means_nothing_may_be_set, .timeout = 60)
{
	struct tw_rw_read_head head;
	struct tw_rw_login_head login;

	/* free to vary: minor 8, id 64, channel 16, session 64 (42 keeps other bits), publisher 32; flag 0
	 * would make a publisher of it that has no place; of begin and end what keeps 1 to 1024 units:
	 * begin 100 = 64 + 32 + 4, end 104 = 64 + 32 + 8 */
	unsigned int ranges = 0;
	for (unsigned int bit = 0; bit < 64; bit++) {
		struct tw_read r = by_pos;
		r.begin ^= 1ull << bit;
		ranges += r.end > r.begin && r.end - r.begin <= 1024;
		r = by_pos;
		r.end ^= 1ull << bit;
		ranges += r.end > r.begin && r.end - r.begin <= 1024;
	}
	tw_rw_put_read(&head, &by_pos);
	cr_assert_eq(accepted_when_bent(&head, read_holds), 8 + 64 + 16 + 64 + 32 + ranges);

	tw_rw_put_reply(&head, by_pos.id, TW_READ_OK, 4 * TW_RW_UNIT_BYTES);
	cr_assert_eq(accepted_when_bent(&head, reply_holds), 8, "minor version alone");
	tw_rw_put_reply(&head, by_pos.id, TW_READ_GONE, 0);
	/* 1 becomes 3; 0 would owe bytes, the others are no status of a server */
	cr_assert_eq(accepted_when_bent(&head, gone_holds), 8 + 1);

	tw_rw_put_login(&login, ENV, "~");
	/* minor and environment; one character: '~' is 0x7e, and each bit but the highest (0xfe) and the lowest
	 * (DEL) makes another one, of which none is a quote or backslash; then NUL: one letter more, where the
	 * bit alone is printable: 0x40 '@' (0x20 is a space) */
	cr_assert_eq(accepted_when_bent(&login, login_holds), 8 + 16 + 6 + 1);
}

Test(repair_wire, a_reply_must_be_the_answer, .timeout = 60)
{
	struct tw_rw_read_head head;
	enum tw_read_status status;
	uint32_t bytes;
#define REPLY(asked) tw_rw_parse_reply(&head, sizeof(head), asked, &status, &bytes)
	tw_rw_put_reply(&head, 7, TW_READ_OK, 256);
	cr_assert_eq(REPLY(&by_pos), TW_RW_WELL_FORMED);
	cr_assert_eq(bytes, 256);
	cr_assert_eq(status, TW_READ_OK);
	cr_assert_eq(REPLY(&by_seq), TW_RW_FIELDS, "another id");
	tw_rw_put_reply(&head, 7, TW_READ_OK, 192);
	cr_assert_eq(REPLY(&by_pos), TW_RW_FIELDS, "less than was asked for");
	tw_rw_put_reply(&head, 7, TW_READ_OK, 320);
	cr_assert_eq(REPLY(&by_pos), TW_RW_FIELDS, "more than was asked for");
	tw_rw_put_reply(&head, 7, TW_READ_BUSY, 64);
	cr_assert_eq(REPLY(&by_pos), TW_RW_FIELDS, "bytes of nothing");
	tw_rw_put_reply(&head, 7, TW_READ_BROKEN, 0);
	cr_assert_eq(REPLY(&by_pos), TW_RW_FIELDS, "not a server's to say");
	for (uint32_t n = 0; n <= TW_READ_MAX_BYTES + 64; n += 32) {
		tw_rw_put_reply(&head, 8, TW_READ_OK, n);
		bool fits = n > 0 && n % 64 == 0 && n <= TW_READ_MAX_BYTES;
		cr_assert_eq(REPLY(&by_seq) == TW_RW_WELL_FORMED, fits, "%u bytes", n);
	}
	tw_rw_put_read(&head, &by_pos);
	cr_assert_eq(REPLY(&by_pos), TW_RW_KIND, "a read");
#undef REPLY
}

Test(repair_wire, strangers_and_other_versions_are_told_apart, .timeout = 60)
{
	struct tw_rw_login_head login;
	char name[TW_READ_NAME_BYTES];
	uint16_t environment;
	enum tw_rw_login result;
	tw_rw_put_login(&login, ENV, "a");
	login.lead.version_major = 2;
	cr_assert_eq(tw_rw_parse_login(&login, sizeof(login), &environment, name), TW_RW_VERSION);
	login.lead.magic ^= 1;
	cr_assert_eq(tw_rw_parse_login(&login, sizeof(login), &environment, name), TW_RW_MAGIC);
	tw_rw_put_login_reply(&login, ENV, TW_LOGIN_OK);
	cr_assert_eq(tw_rw_parse_login_reply(&login, sizeof(login), ENV + 1, &result), TW_RW_FIELDS,
		     "welcome to somewhere else");
	tw_rw_put_login_reply(&login, ENV, TW_LOGIN_ENVIRONMENT);
	cr_assert_eq(tw_rw_parse_login_reply(&login, sizeof(login), ENV + 1, &result),
		     TW_RW_WELL_FORMED, "a refusal says which one it is");
	login.lead.status = TW_LOGIN_RESULTS;
	cr_assert_eq(tw_rw_parse_login_reply(&login, sizeof(login), ENV, &result), TW_RW_FIELDS);
}

Test(repair_wire, ranges_and_names, .timeout = 60)
{
	struct tw_read r = by_pos;
	cr_assert(tw_rw_read_holds(&r));
	r.end = r.begin + 1024;
	cr_assert(tw_rw_read_holds(&r));
	r.end++;
	cr_assert_not(tw_rw_read_holds(&r));
	r.end = r.begin;
	cr_assert_not(tw_rw_read_holds(&r));
	r.begin = UINT64_MAX;
	r.end = 0;
	cr_assert_not(tw_rw_read_holds(&r), "wrapped");
	r = by_seq;
	cr_assert(tw_rw_read_holds(&r));
	r.begin = 0;
	cr_assert_not(tw_rw_read_holds(&r), "numbers begin at 1");
	r = by_pos;
	r.session = 0;
	cr_assert_not(tw_rw_read_holds(&r));

	cr_assert(tw_rw_name_holds("sub-123.a_b"));
	cr_assert_not(tw_rw_name_holds(""));
	cr_assert_not(tw_rw_name_holds("a b"));
	cr_assert_not(tw_rw_name_holds("a\"b"));
	cr_assert_not(tw_rw_name_holds("a\\b"));
	cr_assert_not(tw_rw_name_holds("a\nb"));
	cr_assert_not(tw_rw_name_holds("\xc3\xa4"));
}
