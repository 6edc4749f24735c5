/* libFuzzer target: the arbiter under any sequence of datagrams and times.
 *
 * The input's first byte chooses the arbiter (lines, store, start, mode), then come operations:
 *   0-3   a well-formed datagram of a few bytes' choice: data, heartbeat, END, hole; near or far ahead
 *   4     the bytes that follow as a datagram, if they hold
 *   5     a line polled empty
 *   6, 7  time passes
 * Every run goes through the ledger (order, partition, bytes), nothing is held beyond the store, and in
 * the end, when time has passed and all lines are empty, no gap is left. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "protocol/arb.h"
#include "tests/sim/ledger.h"
#include "wire/datagram.h"

#define CHANNEL      1u
#define ENVIRONMENT  2u
#define MTU_BYTES    1024u
#define WAIT_NS      UINT64_C(1000)
#define HEARTBEAT_NS UINT64_C(5000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rig {
	struct tw_arb *arb;
	struct tw_arb_conf conf;
	struct tw_ledger ledger;
	uint64_t now_ns;
	_Alignas(64) uint8_t dgram[TW_WIRE_DGRAM_MAX_BYTES];
};

static void pull(struct rig *rig)
{
	struct tw_arb_run run;

	while (tw_arb_next(rig->arb, &run)) {
		if (!tw_ledger_take(&rig->ledger, &run)) {
			(void)fprintf(stderr, "%s\n", rig->ledger.error);
			abort();
		}
	}
	TW_ASSERT(tw_ledger_pulled(&rig->ledger));
	TW_ASSERT(tw_arb_held(rig->arb) <= rig->conf.store_dgrams);
	TW_ASSERT(!rig->ledger.started || rig->ledger.next_seq == tw_arb_next_seq(rig->arb));
}

static void give(struct rig *rig, uint32_t line, uint32_t len_bytes)
{
	struct tw_dgram dgram;

	if (tw_dgram_parse(&dgram, rig->dgram, len_bytes) != TW_DGRAM_OK) {
		return;
	}
	enum tw_arb_result result = tw_arb_input(rig->arb, line, &dgram, rig->now_ns, rig->now_ns);
	TW_ASSERT(result < TW_ARB_RESULTS);
	tw_ledger_give(&rig->ledger, &dgram, result);
	pull(rig);
	memset(rig->dgram, 0xa5, len_bytes); /* it was only lent */
}

/* 0..255, the last few of them far away. */
static uint64_t read_seq(struct tw_bytes *in)
{
	uint8_t b = tw_bytes_u8(in);

	return b < 250 ? 1u + b : UINT64_MAX - 255u + b;
}

static void give_made(struct rig *rig, struct tw_bytes *in, uint32_t line, uint8_t kind)
{
	static const uint8_t flags[4] = { 0, TW_WIRE_HEARTBEAT, TW_WIRE_HEARTBEAT | TW_WIRE_END,
					  TW_WIRE_HOLE };
	uint8_t b = tw_bytes_u8(in);
	uint64_t first_seq = read_seq(in);
	uint64_t end_seq = flags[kind] == TW_WIRE_HOLE ? read_seq(in) : first_seq + 1 + (b >> 5);
	struct tw_ledger_spec spec = { .flags = flags[kind],
				       .channel = CHANNEL,
				       .environment = ENVIRONMENT,
				       .publisher = b >> 2 & 7u,
				       .session = 100u + (b & 3u),
				       .packet_seq = 1u + tw_bytes_u8(in),
				       .first_seq = first_seq,
				       .end_seq = end_seq };

	give(rig, line, tw_ledger_dgram(rig->dgram, MTU_BYTES, &spec));
}

static void give_raw(struct rig *rig, struct tw_bytes *in, uint32_t line)
{
	size_t len = tw_bytes_le16(in) % (MTU_BYTES + 1);
	const uint8_t *bytes = tw_bytes_take(in, len);

	if (bytes != NULL) {
		rig->ledger.any_content = true;
		memcpy(rig->dgram, bytes, len);
		give(rig, line, (uint32_t)len);
	}
}

static void idle(struct rig *rig, uint32_t line)
{
	struct tw_arb_run run;

	if (!tw_arb_idle(rig->arb, line, rig->now_ns)) {
		TW_ASSERT(!tw_arb_next(rig->arb, &run));
	}
	pull(rig);
}

static void idle_all(struct rig *rig)
{
	for (uint32_t line = 0; line < rig->conf.lines; line++) {
		idle(rig, line);
	}
}

static void operate(struct rig *rig, struct tw_bytes *in)
{
	uint8_t op = tw_bytes_u8(in);
	uint32_t line = (op >> 3) % rig->conf.lines;

	switch (op & 7) {
	case 4:
		give_raw(rig, in, line);
		break;
	case 5:
		idle(rig, line);
		break;
	case 6:
		rig->now_ns += (op >> 3) * (WAIT_NS / 8);
		break;
	case 7:
		rig->now_ns += (op >> 3) * HEARTBEAT_NS;
		break;
	default:
		give_made(rig, in, line, op & 3);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig rig;
	struct tw_bytes in = tw_bytes_of(data, size);
	uint8_t choice = tw_bytes_u8(&in);

	rig.conf =
		(struct tw_arb_conf){ .channel = CHANNEL,
				      .environment = ENVIRONMENT,
				      .accept_replay = (choice & 1) != 0,
				      .start = (choice & 2) != 0 ? TW_START_LIVE : TW_START_SESSION,
				      .lines = (choice & 4) != 0 ? 1 : 2,
				      .wait_ns = WAIT_NS,
				      .heartbeat_max_ns = HEARTBEAT_NS,
				      .session_takeover_ns = 20 * HEARTBEAT_NS,
				      .store_dgrams = 1u + (choice >> 3 & 7u),
				      .mtu_bytes = MTU_BYTES,
				      .latest = (choice & 64) != 0 };
	rig.now_ns = 0;
	tw_ledger_init(&rig.ledger);
	rig.ledger.latest = rig.conf.latest;
	size_t bytes = tw_arb_size(&rig.conf);
	void *memory = aligned_alloc(64, bytes); /* the sanitizer watches its end */
	TW_ASSERT(memory != NULL);
	TW_ASSERT(tw_arb_init(&rig.arb, memory, bytes, &rig.conf, rig.now_ns) == TW_OK);
	while (tw_bytes_left(&in) > 0 && !in.failed) {
		operate(&rig, &in);
	}
	rig.now_ns += WAIT_NS;
	idle_all(&rig);
	TW_ASSERT(tw_arb_held(rig.arb) == 0);
	free(memory);
	return 0;
}
