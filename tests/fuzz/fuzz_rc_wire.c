/* libFuzzer target: what repair over RC has beyond TCP's heads, both directions, and what a client makes of it.
 *
 * Input   one byte: who reads (0 hello, 1 login reply, 2 two control lines and a range), then what came in.
 * What is accepted must be what the writing side would have written but for the minor version; no READ that
 * follows from a grant leaves what the grant spans. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/verbs/rc_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENVIRONMENT 0x3039

static void greet(const uint8_t *data, size_t size)
{
	struct tw_rc_hello_head again;
	struct tw_rc_hello hello;
	if (tw_rc_parse_hello(data, size, &hello) == TW_RW_WELL_FORMED) {
		tw_rc_put_hello(&again, hello.channel);
		TW_ASSERT(hello.takes_probes == (data[5] >= again.version_minor));
		again.version_minor = data[5];
		TW_ASSERT(memcmp(&again, data, sizeof(again)) == 0);
	}
}

/* Ranges at the log's borders, and the READs that they become. */
static void use(const struct tw_rc_grant *grant)
{
	const uint64_t begins[] = {
		0, 1, grant->units - 1, grant->units, grant->units * 7 + 3, UINT64_MAX - 2048
	};
	const uint64_t spans[] = { 1, 2, 1023, 1024 };
	for (unsigned int i = 0; i < sizeof(begins) / sizeof(begins[0]) * 4; i++) {
		struct tw_rc_chain chain;
		struct tw_read read = { .session = grant->session,
					.publisher = grant->publisher,
					.begin = begins[i / 4],
					.end = begins[i / 4] + spans[i % 4] };
		uint64_t got = 0;
		if (tw_rc_chain_make(&chain, grant, &read, 0) != TW_READ_OK) {
			continue;
		}
		for (uint32_t s = 0; s < chain.count; s++) {
			const struct tw_rc_step *step = &chain.steps[s];
			if (step->target != TW_RC_BYTES) {
				TW_ASSERT(step->remote_addr == grant->control_addr);
				continue;
			}
			TW_ASSERT(step->remote_addr >= grant->log_addr);
			TW_ASSERT(step->remote_addr - grant->log_addr + step->bytes <=
				  grant->units * 64);
			TW_ASSERT(step->offset_bytes + step->bytes <= TW_READ_MAX_BYTES);
			got += step->bytes;
		}
		TW_ASSERT(got == spans[i % 4] * 64);
	}
}

static void login_reply(const uint8_t *data, size_t size)
{
	static struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	static uint8_t again[TW_RC_LOGIN_MAX];
	enum tw_rw_login result;
	uint32_t count;
	if (tw_rc_parse_login_reply(data, size, ENVIRONMENT, &result, grants, &count) !=
	    TW_RW_WELL_FORMED) {
		return;
	}
	uint16_t environment;
	memcpy(&environment, data + 12, sizeof(environment));
	TW_ASSERT(tw_rc_put_login_reply(again, environment, result, grants, count) == size);
	again[5] = data[5]; /* version_minor */
	TW_ASSERT(memcmp(again, data, size) == 0);
	for (uint32_t i = 0; i < count; i++) {
		if (grants[i].one_sided) {
			use(&grants[i]);
		}
	}
}

static void controls(const uint8_t *data, size_t size)
{
	struct {
		struct tw_wire_control before, after;
		uint64_t begin, end, published;
	} in;
	struct tw_rc_grant grant = { .session = 5, .publisher = 6, .units = 100 };
	if (size != sizeof(in)) {
		return;
	}
	memcpy(&in, data, sizeof(in));
	struct tw_read read = { .session = 5, .publisher = 6, .begin = in.begin, .end = in.end };
	uint64_t known = in.published;
	if (in.published % 2 == 1) { /* one for a first life */
		grant.session = grant.publisher = 0;
	}
	if (tw_rc_judge(&grant, &read, &in.before, &in.after, &known) == TW_READ_OK) {
		TW_ASSERT(in.after.session == 5 && in.after.publisher == 6);
		TW_ASSERT(in.end <= in.before.published || in.end <= in.published);
		TW_ASSERT(in.after.intent <= 100 || in.begin >= in.after.intent - 100);
	}
	TW_ASSERT(known >= in.published);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0) {
		return 0;
	}
	uint8_t *in = malloc(size > 1 ? size - 1 : 1);
	TW_ASSERT(in != NULL);
	memcpy(in, data + 1, size - 1);
	switch (data[0] % 3) {
	case 0:
		greet(in, size - 1);
		break;
	case 1:
		login_reply(in, size - 1);
		break;
	default:
		controls(in, size - 1);
		break;
	}
	free(in);
	return 0;
}
