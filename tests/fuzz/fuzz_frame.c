/* libFuzzer target: the RoCE v2 frame decoder.
 *
 * Input   mtu selector (1), likely identification (2, little-endian), kind (1), the rest.
 *   kind even   the rest is a frame as it came from the wire
 *   kind odd    the rest is a datagram: sealed as a sender would, it must be accepted, and then it is
 *               damaged by its own first bytes, which must not be believed to be more than it is
 * Frames lie in heap blocks of exactly their size. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "fabric/fabric.h"
#include "fabric/udp/roce.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SRC_ADDR 0x7f000001u
#define GROUP    0xefc00101u
#define SRC_PORT 40000u

static struct tw_roce_tables tables;

static void check_accepted(const struct tw_roce_ud *ud, uint32_t frame_bytes, uint32_t mtu_bytes)
{
	TW_ASSERT(ud->len_bytes + TW_ROCE_OVERHEAD_BYTES == frame_bytes);
	TW_ASSERT(ud->len_bytes <= mtu_bytes && ud->len_bytes % 4 == 0);
	TW_ASSERT(ud->psn <= 0xffffffu && ud->source_qp <= 0xffffffu);
}

/* What is accepted must have the ICRC that a sender with that identification would have written:
 * sealing the datagram again gives the frame back, the fields aside that a sender may choose. */
static void check_sealed_again(const struct tw_roce_ud *ud, const uint8_t *frame)
{
	static const unsigned int chosen[] = { 1, 2, 4, 8, 16 };
	struct tw_roce_flow sender;
	uint8_t hdr[TW_ROCE_HDR_BYTES], icrc[TW_ROCE_ICRC_BYTES];
	tw_roce_sender_init(&sender, SRC_ADDR, SRC_PORT, GROUP, ud->source_qp);
	sender.psn = ud->psn;
	for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
		if (chosen[i] != 4) { /* 4 is masked */
			sender.image[TW_ROCE_IMAGE_BYTES - TW_ROCE_HDR_BYTES + chosen[i]] =
				frame[chosen[i]];
		}
	}
	tw_roce_flow_changed(&sender);
	const uint8_t *dgram = frame + TW_ROCE_HDR_BYTES;
	tw_roce_seal(&sender, &tables, ud->len_bytes, tables.crc32->of(0, dgram, ud->len_bytes),
		     ud->ip_id, hdr, icrc);
	hdr[4] = frame[4];
	TW_ASSERT(memcmp(hdr, frame, sizeof(hdr)) == 0);
	TW_ASSERT(memcmp(icrc, dgram + ud->len_bytes, sizeof(icrc)) == 0);
}

static void judge(const uint8_t *frame, uint32_t frame_bytes, uint32_t mtu_bytes, uint16_t ip_id)
{
	struct tw_roce_flow receiver;
	struct tw_roce_ud ud;
	tw_roce_receiver_init(&receiver, GROUP);
	tw_roce_receiver_from(&receiver, SRC_ADDR, SRC_PORT);
	if (tw_roce_accept(&receiver, &tables, frame, frame_bytes, mtu_bytes, ip_id, &ud) ==
	    TW_ROCE_OK) {
		check_accepted(&ud, frame_bytes, mtu_bytes);
		check_sealed_again(&ud, frame);
	}
}

static void seal_and_damage(const uint8_t *data, uint32_t size, uint32_t mtu_bytes, uint16_t ip_id)
{
	uint32_t len_bytes = size > mtu_bytes ? mtu_bytes : size & ~3u;
	uint8_t *frame = malloc(len_bytes + TW_ROCE_OVERHEAD_BYTES);
	TW_ASSERT(frame != NULL);
	memcpy(frame + TW_ROCE_HDR_BYTES, data, len_bytes);

	struct tw_roce_flow sender, receiver;
	struct tw_roce_ud ud;
	tw_roce_sender_init(&sender, SRC_ADDR, SRC_PORT, GROUP, 42);
	tw_roce_seal(&sender, &tables, len_bytes, tables.crc32->of(0, data, len_bytes), ip_id,
		     frame, frame + TW_ROCE_HDR_BYTES + len_bytes);
	tw_roce_receiver_init(&receiver, GROUP);
	tw_roce_receiver_from(&receiver, SRC_ADDR, SRC_PORT);
	const uint32_t frame_bytes = len_bytes + TW_ROCE_OVERHEAD_BYTES;
	TW_ASSERT(tw_roce_accept(&receiver, &tables, frame, frame_bytes, mtu_bytes, 0, &ud) ==
		  TW_ROCE_OK);
	TW_ASSERT(ud.ip_id == ip_id && ud.source_qp == 42);
	check_sealed_again(&ud, frame);
	if (len_bytes >= 4) {
		uint32_t at = (uint32_t)data[0] << 8 | data[1];
		frame[at % frame_bytes] ^= data[2];
		frame[(at + 1) % frame_bytes] ^= data[3];
		judge(frame, frame_bytes, mtu_bytes, ip_id);
	}
	free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
	if (tables.join[0] == 0) {
		tw_roce_tables_init(&tables);
	}
	if (size < 4 || size > 65536) {
		return 0;
	}
	const uint32_t mtu_bytes = mtus[data[0] % 5];
	const uint16_t ip_id = (uint16_t)(data[1] | data[2] << 8);
	const uint32_t rest = (uint32_t)size - 4;
	if (data[3] % 2 != 0) {
		seal_and_damage(data + 4, rest, mtu_bytes, ip_id);
		return 0;
	}
	uint8_t *frame = malloc(rest == 0 ? 1 : rest);
	TW_ASSERT(frame != NULL);
	memcpy(frame, data + 4, rest);
	judge(frame, rest, mtu_bytes, ip_id);
	free(frame);
	return 0;
}
