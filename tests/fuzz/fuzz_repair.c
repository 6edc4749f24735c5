/* libFuzzer target: the repair ladder on its arbiter, under any answers.
 *
 * The input's first byte chooses the ladder (servers, reads, pacing, joining) and the mode, then come operations:
 *   0, 1  a datagram on a line: data or a heartbeat, near, at some place in the history
 *   2     a line polled empty
 *   3     the ladder is polled
 *   4     an answer, to a read that is outstanding or to nobody: the bytes that follow, or datagrams made of
 *         a few bytes' choice that may be what was asked for
 *   5     a server comes up or goes down
 *   6, 7  time passes
 * Every run goes through the ledger; no read is too large, goes to a server that is down or is one too many;
 * and in the end, when time has passed and all lines are empty, no gap is left. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/fail.h"
#include "protocol/repair.h"
#include "tests/sim/ledger.h"
#include "wire/datagram.h"

#define CHANNEL      1u
#define ENVIRONMENT  2u
#define MTU_BYTES    1024u
#define WAIT_NS      UINT64_C(1000)
#define HEARTBEAT_NS UINT64_C(5000)
#define GIVE_UP_NS   UINT64_C(200000)
#define KEPT_READS   16u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct rig {
	struct tw_arb *arb;
	struct tw_repair *repair;
	struct tw_arb_conf arb_conf;
	struct tw_repair_conf conf;
	struct tw_ledger ledger;
	uint64_t now_ns;
	uint32_t up;
	struct tw_repair_read reads[KEPT_READS];
	uint32_t read_count;
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
	TW_ASSERT(tw_arb_held(rig->arb) <= rig->arb_conf.store_dgrams);
}

/* What a few bytes choose. */
static uint32_t make(struct tw_bytes *in, uint8_t *to, bool heartbeats)
{
	uint8_t b = tw_bytes_u8(in);
	uint64_t first_seq = 1u + tw_bytes_u8(in);
	bool heartbeat = heartbeats && (b & 0x40) != 0;
	bool hole = !heartbeat && (b & 0xc0) == 0x80;
	struct tw_ledger_spec spec = { .flags = heartbeat ? ((b & 0x80) != 0 ? TW_WIRE_HEARTBEAT |
										       TW_WIRE_END
									     : TW_WIRE_HEARTBEAT)
						: hole    ? TW_WIRE_HOLE
							  : 0,
				       .channel = CHANNEL,
				       .environment = ENVIRONMENT,
				       .publisher = 1u + (b >> 2 & 1u),
				       .session = 100u + (b & 1u),
				       .packet_seq = first_seq,
				       .log_pos = 8u * first_seq + (b >> 3 & 1u),
				       .first_seq = first_seq,
				       .end_seq = first_seq + (heartbeat ? 0 : 1 + (b >> 4 & 3u)) };

	return tw_ledger_dgram(to, MTU_BYTES, &spec);
}

static void input(struct rig *rig, struct tw_bytes *in, uint32_t line)
{
	struct tw_dgram dgram;
	uint32_t len = make(in, rig->dgram, true);

	if (tw_dgram_parse(&dgram, rig->dgram, len) != TW_DGRAM_OK) {
		return;
	}
	(void)tw_arb_input(rig->arb, line, &dgram, rig->now_ns, rig->now_ns);
	pull(rig);
	memset(rig->dgram, 0xa5, len);
}

static void poll(struct rig *rig)
{
	struct tw_repair_read reads[4];
	uint32_t n = tw_repair_poll(rig->repair, rig->now_ns, reads, 4);

	TW_ASSERT(n <= 4);
	TW_ASSERT(tw_repair_outstanding(rig->repair) <= rig->conf.reads_max);
	for (uint32_t i = 0; i < n; i++) {
		const struct tw_repair_read *read = &reads[i];
		TW_ASSERT(read->id != 0 && read->begin < read->end);
		TW_ASSERT(read->server < rig->conf.servers && (rig->up >> read->server & 1u) != 0);
		TW_ASSERT(read->session == tw_arb_session(rig->arb));
		TW_ASSERT(read->by_seq || read->end - read->begin <= rig->conf.read_max_bytes / 64);
		rig->reads[rig->read_count++ % KEPT_READS] = *read;
	}
	pull(rig);
}

static void take_answer(struct rig *rig, uint64_t id, enum tw_repair_status status,
			const uint8_t *bytes, size_t len_bytes)
{
	struct tw_dgram dgram;
	/* the sanitizer watches its end */
	uint8_t *data = aligned_alloc(64, len_bytes / 64 * 64 + 64);
	TW_ASSERT(data != NULL);
	uint8_t *at = data + 64 - len_bytes % 64;
	at = (uintptr_t)at % 8 == 0 ? at : data;

	memcpy(at, bytes, len_bytes);
	tw_repair_reply(rig->repair, id, status, at, len_bytes, rig->now_ns);
	while (tw_repair_next_dgram(rig->repair, &dgram)) {
		(void)tw_arb_repair(rig->arb, &dgram, rig->now_ns, rig->now_ns);
		pull(rig);
	}
	free(data);
}

static void answer(struct rig *rig, struct tw_bytes *in)
{
	static uint8_t bytes[8 * TW_WIRE_DGRAM_MAX_BYTES];
	uint8_t b = tw_bytes_u8(in);
	const struct tw_repair_read *read = &rig->reads[(b >> 3) % KEPT_READS];
	enum tw_repair_status status = (enum tw_repair_status)(b & 7u);
	size_t len = 0;

	if ((b & 7u) == 7) { /* raw */
		size_t raw_len = tw_bytes_le16(in) % (2 * MTU_BYTES);
		const uint8_t *raw = tw_bytes_take(in, raw_len);
		if (raw != NULL) {
			rig->ledger.any_content = true;
			memcpy(bytes, raw, raw_len);
			len = raw_len;
		}
		status = TW_REPAIR_OK;
	} else if ((b & 7u) >= 5) {
		uint32_t count = 1u + tw_bytes_u8(in) % 8;
		for (uint32_t i = 0; i < count; i++) {
			struct tw_wire_hdr hdr;
			uint32_t dgram_len = make(in, bytes + len, false);
			memcpy(&hdr, bytes + len, sizeof(hdr));
			if (!read->by_seq && (b & 7u) == 5) { /* where it should lie */
				hdr.log_pos = read->begin + len / 64;
				hdr.publisher = read->publisher;
				memcpy(bytes + len, &hdr, sizeof(hdr));
			}
			len += dgram_len;
		}
		status = TW_REPAIR_OK;
	}
	take_answer(rig, read->id, status, bytes, len);
}

static void operate(struct rig *rig, struct tw_bytes *in)
{
	uint8_t op = tw_bytes_u8(in);
	uint32_t line = (op >> 3) % rig->arb_conf.lines;
	uint32_t server = (op >> 3) % rig->conf.servers;

	switch (op & 7) {
	case 2:
		tw_arb_idle(rig->arb, line, rig->now_ns);
		pull(rig);
		break;
	case 3:
		poll(rig);
		break;
	case 4:
		answer(rig, in);
		break;
	case 5:
		rig->up ^= 1u << server;
		tw_repair_server(rig->repair, server, (rig->up >> server & 1u) != 0, rig->now_ns);
		break;
	case 6:
		rig->now_ns += (op >> 3) * (WAIT_NS / 8);
		break;
	case 7:
		rig->now_ns += (op >> 3) * HEARTBEAT_NS;
		break;
	default:
		input(rig, in, line);
		break;
	}
}

static void open_rig(struct rig *rig, uint8_t choice, void **arb_memory, void **repair_memory)
{
	memset(rig, 0, sizeof(*rig));
	rig->arb_conf =
		(struct tw_arb_conf){ .channel = CHANNEL,
				      .environment = ENVIRONMENT,
				      .start = (choice & 2) != 0 ? TW_START_LIVE : TW_START_SESSION,
				      .lines = (choice & 1) != 0 ? 1 : 2,
				      .wait_ns = WAIT_NS,
				      .heartbeat_max_ns = HEARTBEAT_NS,
				      .session_takeover_ns = 20 * HEARTBEAT_NS,
				      .store_dgrams = (choice & 4) != 0 ? 64 : 4,
				      .mtu_bytes = MTU_BYTES,
				      .repair = true,
				      .latest = (choice & 128) != 0 };
	rig->conf = (struct tw_repair_conf){ .channel = CHANNEL,
					     .servers = 1 + (choice >> 3 & 1u),
					     .wait_ns = WAIT_NS,
					     .retry_min_ns = 500,
					     .retry_max_ns = 4000,
					     .give_up_ns = GIVE_UP_NS,
					     .max_bytes_per_s = (choice & 16) != 0 ? 100000000 : 0,
					     .attempts_max = 3,
					     .reads_max = (choice & 32) != 0 ? 8 : 2,
					     .read_max_bytes = 2 * MTU_BYTES,
					     .join_units = (choice & 64) != 0 ? 16 : 0 };
	tw_ledger_init(&rig->ledger);
	rig->ledger.latest = rig->arb_conf.latest;
	size_t bytes = tw_arb_size(&rig->arb_conf);
	*arb_memory = aligned_alloc(64, bytes);
	TW_ASSERT(*arb_memory != NULL &&
		  tw_arb_init(&rig->arb, *arb_memory, bytes, &rig->arb_conf, 0) == TW_OK);
	bytes = tw_repair_size(&rig->conf);
	*repair_memory = aligned_alloc(64, bytes);
	TW_ASSERT(*repair_memory != NULL && tw_repair_init(&rig->repair, *repair_memory, bytes,
							   &rig->conf, rig->arb) == TW_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rig rig;
	struct tw_bytes in = tw_bytes_of(data, size);
	void *arb_memory;
	void *repair_memory;

	open_rig(&rig, tw_bytes_u8(&in), &arb_memory, &repair_memory);
	while (tw_bytes_left(&in) > 0 && !in.failed) {
		operate(&rig, &in);
	}
	/* It may have stood still, and has as long once more; from here on it does not. */
	uint64_t step_ns = tw_repair_stall_ns(&rig.conf);
	for (uint64_t ns = 0; ns < GIVE_UP_NS + 2 * step_ns; ns += step_ns) {
		rig.now_ns += step_ns;
		for (uint32_t line = 0; line < rig.arb_conf.lines; line++) {
			tw_arb_idle(rig.arb, line, rig.now_ns);
			pull(&rig);
		}
		poll(&rig);
		poll(&rig);
	}
	TW_ASSERT(tw_arb_gaps(rig.arb) == 0 && tw_arb_held(rig.arb) == 0);
	free(arb_memory);
	free(repair_memory);
	return 0;
}
