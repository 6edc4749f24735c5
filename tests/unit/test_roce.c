/* RoCE v2 frames: golden bytes, the joined CRC, the identification solved for, and what slips by.
 *
 * The golden frames were built by a bit-by-bit CRC elsewhere; two independent checkers (one of them
 * Wireshark's dissector for the fields) agree with them.  Frames lie in heap blocks of exactly their
 * size, so that under ASan one byte read too far ends the test. */
#include <criterion/criterion.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "fabric/fabric.h"
#include "fabric/udp/gf2.h"
#include "fabric/udp/roce.h"

#define SRC_ADDR 0x0a000001u /* 10.0.0.1 */
#define GROUP    0xefc00101u /* 239.192.1.1 */
#define SRC_PORT 49152u
#define MTU      4096u

static const uint8_t golden_head[TW_ROCE_HDR_BYTES] = {
	0x64, 0x00, 0xff, 0xff, 0x00, 0xff, 0xff, 0xff, 0x00, 0x12,
	0x34, 0x56, 0x01, 0x23, 0x45, 0x67, 0x00, 0x00, 0xab, 0xcd,
}; /* the datagram is the bytes 0 to 63 */
static const uint8_t golden_icrc_id_0[4] = { 0x18, 0x24, 0xb7, 0x9f };
static const uint8_t golden_icrc_id_beef[4] = { 0x1a, 0x10, 0x0f, 0xc4 };

static struct tw_roce_tables tables;

static uint64_t random_state;
static uint64_t next_random(void) /* xorshift64*: the tests replay exactly */
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545f4914f6cdd1dull;
}

static void setup(void)
{
	tw_roce_tables_init(&tables);
	random_state = 0x9e3779b97f4a7c15ull;
}

static struct tw_roce_flow a_sender(void)
{
	struct tw_roce_flow flow;
	tw_roce_sender_init(&flow, SRC_ADDR, SRC_PORT, GROUP, 0xabcd);
	return flow;
}

static struct tw_roce_flow a_receiver(void)
{
	struct tw_roce_flow flow;
	tw_roce_receiver_init(&flow, GROUP);
	tw_roce_receiver_from(&flow, SRC_ADDR, SRC_PORT);
	return flow;
}

/* A frame with a random datagram in a block of its own; the caller frees it. */
static uint8_t *build(struct tw_roce_flow *sender, uint32_t len_bytes, uint16_t ip_id)
{
	uint8_t *frame = malloc(len_bytes + TW_ROCE_OVERHEAD_BYTES);
	cr_assert_not_null(frame);
	uint8_t *data = frame + TW_ROCE_HDR_BYTES;
	for (uint32_t i = 0; i < len_bytes; i++) {
		data[i] = (uint8_t)next_random();
	}
	tw_roce_seal(sender, &tables, len_bytes, tables.crc32->of(0, data, len_bytes), ip_id, frame,
		     data + len_bytes);
	return frame;
}

static enum tw_roce_verdict judge(struct tw_roce_flow *receiver, const uint8_t *frame,
				  uint32_t len_bytes)
{
	struct tw_roce_ud ud;
	return tw_roce_accept(receiver, &tables, frame, len_bytes, MTU, 0, &ud);
}

Test(roce, golden, .init = setup)
{
	uint8_t data[64];
	for (unsigned int i = 0; i < sizeof(data); i++) {
		data[i] = (uint8_t)i;
	}
	const struct {
		uint16_t ip_id;
		const uint8_t *icrc;
	} cases[] = { { 0, golden_icrc_id_0 }, { 0xbeef, golden_icrc_id_beef } };
	for (unsigned int c = 0; c < 2; c++) {
		struct tw_roce_flow sender = a_sender();
		sender.psn = 0x123456;
		uint8_t frame[TW_ROCE_OVERHEAD_BYTES + sizeof(data)];
		memcpy(frame + TW_ROCE_HDR_BYTES, data, sizeof(data));
		tw_roce_seal(&sender, &tables, sizeof(data),
			     tables.crc32->of(0, data, sizeof(data)), cases[c].ip_id, frame,
			     frame + TW_ROCE_HDR_BYTES + sizeof(data));
		cr_assert_arr_eq(frame, golden_head, sizeof(golden_head));
		cr_assert_arr_eq(frame + TW_ROCE_HDR_BYTES + sizeof(data), cases[c].icrc, 4);
		cr_assert_eq(sender.psn, 0x123457u);

		struct tw_roce_flow receiver = a_receiver();
		struct tw_roce_ud ud;
		cr_assert_eq(tw_roce_accept(&receiver, &tables, frame, sizeof(frame), MTU, 0, &ud),
			     TW_ROCE_OK);
		cr_assert_eq(ud.len_bytes, sizeof(data));
		cr_assert_eq(ud.psn, 0x123456u);
		cr_assert_eq(ud.source_qp, 0xabcdu);
		cr_assert_eq(ud.ip_id, cases[c].ip_id);
	}
}

Test(roce, powers_of_x)
{
	cr_assert_eq(tw_gf2_x_pow(0), TW_GF2_ONE);
	cr_assert_eq(tw_gf2_x_pow(TW_GF2_X_ORDER), TW_GF2_ONE, "x has the order 2^32 - 1");
	cr_assert_neq(tw_gf2_x_pow(TW_GF2_X_ORDER / 3), TW_GF2_ONE);
	cr_assert_neq(tw_gf2_x_pow(TW_GF2_X_ORDER / 5), TW_GF2_ONE);
	cr_assert_neq(tw_gf2_x_pow(TW_GF2_X_ORDER / 17), TW_GF2_ONE);
	cr_assert_neq(tw_gf2_x_pow(TW_GF2_X_ORDER / 257), TW_GF2_ONE);
	cr_assert_neq(tw_gf2_x_pow(TW_GF2_X_ORDER / 65537), TW_GF2_ONE);
}

Test(roce, product_agrees_with_zlib, .init = setup)
{
	for (unsigned int i = 0; i < 2000; i++) {
		const uint32_t a = (uint32_t)next_random();
		const uint32_t b = (uint32_t)next_random();
		const uint32_t bytes = (uint32_t)(next_random() % 100000);
		cr_assert_eq(tw_gf2_mul(a, b), tw_gf2_mul_bits(a, b));
		cr_assert_eq(tw_gf2_mul(tw_gf2_x_pow(8 * bytes), a) ^ b,
			     (uint32_t)crc32_combine(a, b, (z_off_t)bytes));
	}
}

/* The ICRC as the specification words it, over one flat buffer. */
static uint32_t straight_icrc(const uint8_t *frame, uint32_t len_bytes, uint16_t ip_id)
{
	static uint8_t flat[8 + 28 + TW_ROCE_OVERHEAD_BYTES + MTU];
	memset(flat, 0xff, 8);
	const uint32_t udp_bytes = 8 + len_bytes, ip_bytes = 20 + udp_bytes;
	const uint8_t ip_udp[28] = {
		0x45,
		0xff,
		(uint8_t)(ip_bytes >> 8),
		(uint8_t)ip_bytes,
		(uint8_t)(ip_id >> 8),
		(uint8_t)ip_id,
		0x40,
		0,
		0xff,
		17,
		0xff,
		0xff,
		10,
		0,
		0,
		1,
		239,
		192,
		1,
		1,
		SRC_PORT >> 8,
		SRC_PORT & 255,
		4791 >> 8,
		4791 & 255,
		(uint8_t)(udp_bytes >> 8),
		(uint8_t)udp_bytes,
		0xff,
		0xff,
	};
	memcpy(flat + 8, ip_udp, sizeof(ip_udp));
	memcpy(flat + 36, frame, len_bytes - 4);
	flat[36 + 4] = 0xff;
	return libdeflate_crc32(0, flat, 36 + len_bytes - 4);
}

Test(roce, joined_crc_is_the_straight_one, .init = setup)
{
	struct tw_roce_flow sender = a_sender();
	for (unsigned int i = 0; i < 3000; i++) {
		const uint32_t len_bytes =
			i <= MTU / 4 ? 4 * i : 4 * (uint32_t)(next_random() % 1025);
		const uint16_t ip_id = (uint16_t)next_random();
		uint8_t *frame = build(&sender, len_bytes, ip_id);
		uint32_t icrc;
		memcpy(&icrc, frame + TW_ROCE_HDR_BYTES + len_bytes, sizeof(icrc));
		cr_assert_eq(icrc, straight_icrc(frame, len_bytes + TW_ROCE_OVERHEAD_BYTES, ip_id),
			     "length %u", len_bytes);
		free(frame);
	}
}

Test(roce, every_identification_is_solved, .init = setup, .timeout = 60)
{
	const uint32_t lengths[] = { 0, 64, 1024, 4096 };
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	for (unsigned int l = 0; l < 4; l++) {
		const uint32_t frame_bytes = lengths[l] + TW_ROCE_OVERHEAD_BYTES;
		uint8_t *frame = build(&sender, lengths[l], 0);
		uint8_t *data = frame + TW_ROCE_HDR_BYTES;
		const uint32_t crc = tables.crc32->of(0, data, lengths[l]);
		for (uint32_t id = 0; id < 65536; id++) {
			tw_roce_seal(&sender, &tables, lengths[l], crc, (uint16_t)id, frame,
				     data + lengths[l]);
			struct tw_roce_ud ud;
			const uint16_t guess = (uint16_t)(id * 40503u);
			cr_assert_eq(tw_roce_accept(&receiver, &tables, frame, frame_bytes, MTU,
						    guess, &ud),
				     TW_ROCE_OK);
			cr_assert_eq(ud.ip_id, id);
		}
		free(frame);
	}
}

/* Flips each bit of the pattern at `bit` onwards (bit 0 of a byte goes first into the CRC). */
static void flip(uint8_t *frame, uint32_t bit, uint32_t pattern)
{
	for (; pattern != 0; pattern >>= 1, bit++) {
		frame[bit / 8] ^= (uint8_t)((pattern & 1u) << bit % 8);
	}
}

/* Bits that the ICRC does not cover: byte 4 of the BTH. */
static int touches_mask(uint32_t bit, uint32_t width)
{
	return bit < 40 && bit + width > 32;
}

Test(roce, every_burst_of_3_bits_is_refused, .init = setup, .timeout = 60)
{
	const uint32_t patterns[] = { 0x1, 0x3, 0x5, 0x7 };
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	uint8_t *frame = build(&sender, MTU, 0);
	const uint32_t frame_bytes = MTU + TW_ROCE_OVERHEAD_BYTES;
	for (unsigned int p = 0; p < 4; p++) {
		for (uint32_t bit = 0; bit + 3 <= 8 * frame_bytes; bit++) {
			if (touches_mask(bit, 3)) {
				continue;
			}
			flip(frame, bit, patterns[p]);
			cr_assert_neq(judge(&receiver, frame, frame_bytes), TW_ROCE_OK,
				      "pattern %#x at bit %u", patterns[p], bit);
			flip(frame, bit, patterns[p]);
		}
	}
	cr_assert_eq(judge(&receiver, frame, frame_bytes), TW_ROCE_OK);
	free(frame);
}

/* Random damage slips by where it looks like another identification: 1 in 65,536.  The bound is that
 * and five standard deviations; a check that had lost another bit would exceed it. */
#define TRIALS   1000000u
#define SLIP_MAX 35u /* 15.3 + 5 * 3.9 */

Test(roce, random_damage_slips_1_in_65536, .init = setup, .timeout = 60)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	const uint32_t len_bytes = 128, frame_bytes = len_bytes + TW_ROCE_OVERHEAD_BYTES;
	uint8_t *frame = build(&sender, len_bytes, 0);
	uint8_t *damaged = malloc(frame_bytes);
	cr_assert_not_null(damaged);
	unsigned int slipped = 0;
	for (unsigned int i = 0; i < TRIALS; i++) {
		memcpy(damaged, frame, frame_bytes);
		for (uint32_t b = TW_ROCE_HDR_BYTES; b < frame_bytes; b += 8) {
			const uint64_t noise = next_random();
			const uint32_t left = frame_bytes - b;
			for (uint32_t k = 0; k < (left < 8 ? left : 8); k++) {
				damaged[b + k] ^= (uint8_t)(noise >> 8 * k);
			}
		}
		slipped += judge(&receiver, damaged, frame_bytes) == TW_ROCE_OK;
	}
	cr_log_info("random damage: %u of %u accepted, 1 in 65,536 would be %.1f", slipped, TRIALS,
		    TRIALS / 65536.0);
	cr_assert_leq(slipped, SLIP_MAX);
	free(damaged);
	free(frame);
}

Test(roce, bursts_of_32_bits_slip_1_in_65536, .init = setup, .timeout = 60)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	const uint32_t len_bytes = 1024, frame_bytes = len_bytes + TW_ROCE_OVERHEAD_BYTES;
	uint8_t *frame = build(&sender, len_bytes, 0);
	unsigned int slipped = 0;
	for (unsigned int i = 0; i < TRIALS; i++) {
		const uint64_t r = next_random();
		const uint32_t bit =
			8 * TW_ROCE_HDR_BYTES +
			(uint32_t)(r >> 32) % (8 * (frame_bytes - TW_ROCE_HDR_BYTES) - 31);
		const uint32_t pattern = (uint32_t)r | 1u;
		flip(frame, bit, pattern);
		slipped += judge(&receiver, frame, frame_bytes) == TW_ROCE_OK;
		flip(frame, bit, pattern);
	}
	cr_log_info("bursts: %u of %u accepted", slipped, TRIALS);
	cr_assert_leq(slipped, SLIP_MAX);
	free(frame);
}

/* With the identification known nothing short of a whole CRC collision passes: damage that another
 * identification would explain has that as its only excuse. */
Test(roce, what_slips_shows_another_identification, .init = setup)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	uint8_t *frame = build(&sender, 64, 0);
	/* exchange the ICRC for that of the same frame under identification 5 */
	struct tw_roce_flow again = a_sender();
	uint8_t hdr[TW_ROCE_HDR_BYTES];
	tw_roce_seal(&again, &tables, 64, tables.crc32->of(0, frame + TW_ROCE_HDR_BYTES, 64), 5,
		     hdr, frame + TW_ROCE_HDR_BYTES + 64);
	struct tw_roce_ud ud;
	cr_assert_eq(
		tw_roce_accept(&receiver, &tables, frame, 64 + TW_ROCE_OVERHEAD_BYTES, MTU, 0, &ud),
		TW_ROCE_OK);
	cr_assert_eq(ud.ip_id, 5);
	free(frame);
}

Test(roce, other_header_fields_are_covered, .init = setup)
{
	struct tw_roce_flow sender = a_sender();
	uint8_t *frame = build(&sender, 256, 0);
	const uint32_t frame_bytes = 256 + TW_ROCE_OVERHEAD_BYTES;
	struct tw_roce_flow receiver = a_receiver();
	for (unsigned int bit = 0; bit < 32; bit++) {
		tw_roce_receiver_from(&receiver, SRC_ADDR ^ 1u << bit, SRC_PORT);
		cr_assert_eq(judge(&receiver, frame, frame_bytes), TW_ROCE_ICRC_BAD);
	}
	for (unsigned int bit = 0; bit < 16; bit++) {
		tw_roce_receiver_from(&receiver, SRC_ADDR, (uint16_t)(SRC_PORT ^ 1u << bit));
		cr_assert_eq(judge(&receiver, frame, frame_bytes), TW_ROCE_ICRC_BAD);
	}
	for (unsigned int bit = 0; bit < 28; bit++) {
		tw_roce_receiver_init(&receiver, GROUP ^ 1u << bit);
		tw_roce_receiver_from(&receiver, SRC_ADDR, SRC_PORT);
		cr_assert_eq(judge(&receiver, frame, frame_bytes), TW_ROCE_ICRC_BAD);
	}
	/* the flags and the fragment offset beside the identification are not solved for */
	for (unsigned int bit = 0; bit < 16; bit++) {
		receiver = a_receiver();
		receiver.image[8 + 6 + bit / 8] ^= (uint8_t)(1u << bit % 8);
		tw_roce_flow_changed(&receiver);
		cr_assert_eq(judge(&receiver, frame, frame_bytes), TW_ROCE_ICRC_BAD);
	}
	free(frame);
}

Test(roce, what_switches_may_change_is_masked, .init = setup)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	uint8_t *frame = build(&sender, 128, 0);
	for (unsigned int v = 0; v < 256; v++) {
		frame[4] = (uint8_t)v;
		cr_assert_eq(judge(&receiver, frame, 128 + TW_ROCE_OVERHEAD_BYTES), TW_ROCE_OK);
	}
	free(frame);
}

Test(roce, foreign_frames, .init = setup)
{
	const struct {
		const char *what;
		uint32_t byte;
		uint8_t value;
		enum tw_roce_verdict verdict;
	} cases[] = {
		{ "opcode RC SEND", 0, 0x04, TW_ROCE_FOREIGN },
		{ "opcode UD SEND with immediate", 0, 0x65, TW_ROCE_FOREIGN },
		{ "pad count 1", 1, 0x10, TW_ROCE_FOREIGN },
		{ "pad count 3", 1, 0x30, TW_ROCE_FOREIGN },
		{ "header version 1", 1, 0x01, TW_ROCE_FOREIGN },
		{ "P_Key", 2, 0xfe, TW_ROCE_FOREIGN },
		{ "P_Key", 3, 0xfe, TW_ROCE_FOREIGN },
		{ "destination QP", 5, 0x00, TW_ROCE_FOREIGN },
		{ "destination QP", 7, 0xfe, TW_ROCE_FOREIGN },
		{ "Q_Key", 12, 0x81, TW_ROCE_FOREIGN },
		{ "Q_Key", 15, 0x68, TW_ROCE_FOREIGN },
		/* ours, but changed under way */
		{ "solicited event", 1, 0x80, TW_ROCE_ICRC_BAD },
		{ "limited membership", 2, 0x7f, TW_ROCE_ICRC_BAD },
		{ "PSN", 11, 0x77, TW_ROCE_ICRC_BAD },
		{ "source QP", 19, 0x01, TW_ROCE_ICRC_BAD },
	};
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	uint8_t *frame = build(&sender, 64, 0);
	for (unsigned int c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		const uint8_t before = frame[cases[c].byte];
		frame[cases[c].byte] = cases[c].value;
		cr_assert_eq(judge(&receiver, frame, 64 + TW_ROCE_OVERHEAD_BYTES), cases[c].verdict,
			     "%s", cases[c].what);
		frame[cases[c].byte] = before;
	}
	free(frame);
}

Test(roce, lengths, .init = setup)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	for (uint32_t frame_bytes = 0; frame_bytes <= 1024 + TW_ROCE_OVERHEAD_BYTES + 8;
	     frame_bytes++) {
		uint8_t *frame = calloc(1, frame_bytes == 0 ? 1 : frame_bytes);
		cr_assert_not_null(frame);
		bool valid = frame_bytes >= TW_ROCE_OVERHEAD_BYTES && frame_bytes % 4 == 0;
		if (valid) {
			free(frame);
			frame = build(&sender, frame_bytes - TW_ROCE_OVERHEAD_BYTES, 0);
		} else if (frame_bytes >= TW_ROCE_HDR_BYTES) {
			memcpy(frame, golden_head, TW_ROCE_HDR_BYTES);
		}
		valid = valid && frame_bytes <= 1024 + TW_ROCE_OVERHEAD_BYTES;
		struct tw_roce_ud ud;
		cr_assert_eq(tw_roce_accept(&receiver, &tables, frame, frame_bytes, 1024, 0, &ud),
			     valid ? TW_ROCE_OK : TW_ROCE_FOREIGN, "%u bytes", frame_bytes);
		free(frame);
	}
}

Test(roce, psn_wraps_at_24_bits, .init = setup)
{
	struct tw_roce_flow sender = a_sender(), receiver = a_receiver();
	sender.psn = 0xfffffe;
	const uint32_t want[] = { 0xfffffe, 0xffffff, 0, 1 };
	for (unsigned int i = 0; i < 4; i++) {
		uint8_t *frame = build(&sender, 64, 0);
		struct tw_roce_ud ud;
		cr_assert_eq(tw_roce_accept(&receiver, &tables, frame, 88, MTU, 0, &ud),
			     TW_ROCE_OK);
		cr_assert_eq(ud.psn, want[i]);
		free(frame);
	}
}

Test(roce, source_qp_numbers)
{
	const uint32_t publishers[] = { 0,        1,        2,         0xfffffc,   0xfffffd,
					0xfffffe, 0xffffff, 0x1000000, 0x7fffffff, 0xffffffff };
	for (unsigned int i = 0; i < sizeof(publishers) / sizeof(publishers[0]); i++) {
		const uint32_t qp = tw_roce_source_qp(publishers[i]);
		cr_assert(qp > 1 && qp < TW_ROCE_MCAST_QP, "publisher %u: %#x", publishers[i], qp);
	}
	cr_assert_neq(tw_roce_source_qp(1), tw_roce_source_qp(2));
	cr_assert_neq(tw_roce_source_qp(0x10001), tw_roce_source_qp(0x20001));
}
