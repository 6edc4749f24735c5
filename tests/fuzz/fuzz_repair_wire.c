/* libFuzzer target: the heads of repair over TCP, both directions.
 *
 * Input   one byte: who reads (0 login, 1 login reply, 2 read, 3 reply to a read by position, 4 by number),
 *         then what came in.
 * What is accepted must be what the writing side would have written, byte for byte but for the minor
 * version, and keep what its reader relies on.  Heads lie in heap blocks of exactly their size. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/repair_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENVIRONMENT 0x3039

static void expect_same(const void *head, const void *again)
{
	uint8_t mine[TW_RW_HEAD_BYTES];
	memcpy(mine, again, sizeof(mine));
	mine[5] = ((const uint8_t *)head)[5]; /* version_minor */
	TW_ASSERT(memcmp(mine, head, sizeof(mine)) == 0);
}

static void login(const uint8_t *data, size_t size)
{
	struct tw_rw_login_head again;
	uint16_t environment;
	char name[TW_READ_NAME_BYTES];
	if (tw_rw_parse_login(data, size, &environment, name) == TW_RW_WELL_FORMED) {
		TW_ASSERT(tw_rw_name_holds(name));
		tw_rw_put_login(&again, environment, name);
		expect_same(data, &again);
	}
}

static void login_reply(const uint8_t *data, size_t size)
{
	struct tw_rw_login_head again;
	enum tw_rw_login result;
	if (tw_rw_parse_login_reply(data, size, ENVIRONMENT, &result) == TW_RW_WELL_FORMED) {
		uint16_t environment;
		memcpy(&environment, data + 12, sizeof(environment));
		TW_ASSERT(result < TW_LOGIN_RESULTS);
		TW_ASSERT(result != TW_LOGIN_OK || environment == ENVIRONMENT);
		tw_rw_put_login_reply(&again, environment, result);
		expect_same(data, &again);
	}
}

static void read_request(const uint8_t *data, size_t size)
{
	struct tw_rw_read_head again;
	struct tw_read read;
	if (tw_rw_parse_read(data, size, &read) == TW_RW_WELL_FORMED) {
		TW_ASSERT(read.end > read.begin && read.session != 0 && read.server == 0);
		TW_ASSERT(read.by_seq || (read.end - read.begin) * 64 <= TW_READ_MAX_BYTES);
		tw_rw_put_read(&again, &read);
		expect_same(data, &again);
	}
}

static void reply(const uint8_t *data, size_t size, bool by_seq)
{
	const struct tw_read asked = {
		.id = 7, .channel = 1, .by_seq = by_seq, .session = 5, .begin = 10, .end = 14
	};
	struct tw_rw_read_head again;
	enum tw_read_status status;
	uint32_t bytes;
	if (tw_rw_parse_reply(data, size, &asked, &status, &bytes) == TW_RW_WELL_FORMED) {
		TW_ASSERT(bytes <= TW_READ_MAX_BYTES && bytes % 64 == 0);
		TW_ASSERT((status == TW_READ_OK) == (bytes != 0));
		TW_ASSERT(by_seq || status != TW_READ_OK || bytes == 4 * 64);
		tw_rw_put_reply(&again, asked.id, status, bytes);
		expect_same(data, &again);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0) {
		return 0;
	}
	uint8_t *head = malloc(size > 1 ? size - 1 : 1);
	TW_ASSERT(head != NULL);
	memcpy(head, data + 1, size - 1);
	switch (data[0] % 5) {
	case 0:
		login(head, size - 1);
		break;
	case 1:
		login_reply(head, size - 1);
		break;
	case 2:
		read_request(head, size - 1);
		break;
	default:
		reply(head, size - 1, data[0] % 5 == 4);
		break;
	}
	free(head);
	return 0;
}
