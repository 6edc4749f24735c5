/* RoCE v2 UD frames in user space; see roce.h. */
#include "fabric/udp/roce.h"

#include <string.h>

#include "fabric/fabric.h"
#include "fabric/udp/gf2.h"

/* Offsets in the image: 8 bytes of ones, IP header, UDP header, BTH, DETH. */
enum {
	IMG_IP = 8,
	IMG_IP_LENGTH = IMG_IP + 2,
	IMG_IP_ID = IMG_IP + 4,
	IMG_IP_FRAG = IMG_IP + 6,
	IMG_IP_SRC = IMG_IP + 12,
	IMG_IP_DST = IMG_IP + 16,
	IMG_UDP = IMG_IP + 20,
	IMG_UDP_LENGTH = IMG_UDP + 4,
	IMG_BTH = IMG_UDP + 8,
	IMG_DETH = IMG_BTH + 12
};

/* Offsets in a frame. */
enum {
	BTH_OPCODE = 0,
	BTH_FLAGS = 1, /* solicited, migrated, pad count (2 bits), header version (4 bits) */
	BTH_PKEY = 2,
	BTH_MASKED = 4, /* FECN, BECN, reserved: switches may change them */
	BTH_DEST_QP = 5,
	BTH_PSN = 9,
	DETH_QKEY = 12,
	DETH_SOURCE_QP = 17
};

static void put16(uint8_t *p, uint32_t v)
{
	uint16_t be = __builtin_bswap16((uint16_t)v);
	memcpy(p, &be, sizeof(be));
}

static void put32(uint8_t *p, uint32_t v)
{
	uint32_t be = __builtin_bswap32(v);
	memcpy(p, &be, sizeof(be));
}

static void put24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

static uint32_t get24(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static uint32_t get16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t be;
	memcpy(&be, p, sizeof(be));
	return __builtin_bswap32(be);
}

static uint32_t get32le(const uint8_t *p)
{
	uint32_t le;
	memcpy(&le, p, sizeof(le));
	return le;
}

/* Lengths of a frame that carries `frame_bytes` of UDP payload. */
static void set_lengths(uint8_t *img, uint32_t frame_bytes)
{
	put16(img + IMG_IP_LENGTH, TW_ROCE_IP_UDP_BYTES + frame_bytes);
	put16(img + IMG_UDP_LENGTH, 8 + frame_bytes);
}

/* What a difference of images adds to the CRC: the CRC is affine, not linear, so the constant goes. */
static uint32_t image_delta(const uint8_t *difference, size_t image_bytes)
{
	static const uint8_t zero[TW_ROCE_IMAGE_BYTES];
	return tw_crc32_any(0, difference, image_bytes) ^ tw_crc32_any(0, zero, image_bytes);
}

static void init_bytes(uint32_t table[256], size_t at, size_t image_bytes)
{
	uint8_t img[TW_ROCE_IMAGE_BYTES] = { 0 };
	for (unsigned int v = 0; v < 256; v++) {
		img[at] = (uint8_t)v;
		table[v] = image_delta(img, image_bytes);
	}
}

static void init_fields(struct tw_roce_fields *fields, size_t image_bytes)
{
	uint8_t img[TW_ROCE_IMAGE_BYTES] = { 0 };
	for (uint32_t k = 0; k <= TW_ROCE_WORDS_MAX; k++) {
		set_lengths(img, TW_ROCE_OVERHEAD_BYTES + 4 * k);
		fields->lengths[k] = image_delta(img, image_bytes);
	}
	for (unsigned int i = 0; i < 2; i++) {
		init_bytes(fields->id[i], IMG_IP_ID + i, image_bytes);
	}
}

void tw_roce_tables_init(struct tw_roce_tables *tables)
{
	const uint32_t word = tw_gf2_x_pow(32);
	const uint32_t word_back = tw_gf2_x_pow(TW_GF2_X_ORDER - 32);
	/* The 4 bytes of identification and flags enter the register times x^32; behind them come
	 * TTL to destination (12), the UDP header (8), BTH and DETH (20) and the datagram. */
	const uint32_t behind_bits = 32 + 8 * (12 + 8 + TW_ROCE_HDR_BYTES);
	/* A CRC is added to the 4 bytes that follow it; a difference in the byte behind those is
	 * moved forward by a byte. */
	const uint32_t byte_back = tw_gf2_x_pow(TW_GF2_X_ORDER - 8);

	tables->join[0] = TW_GF2_ONE;
	tables->solve[0] = tw_gf2_x_pow(TW_GF2_X_ORDER - behind_bits);
	for (uint32_t k = 1; k <= TW_ROCE_WORDS_MAX; k++) {
		tables->join[k] = tw_gf2_mul(tables->join[k - 1], word);
		tables->solve[k] = tw_gf2_mul(tables->solve[k - 1], word_back);
	}
	init_fields(&tables->sent, TW_ROCE_IMAGE_BYTES);
	init_fields(&tables->received, IMG_BTH);
	for (unsigned int i = 0; i < 3; i++) {
		init_bytes(tables->psn[i], IMG_BTH + BTH_PSN + i, TW_ROCE_IMAGE_BYTES);
	}
	_Static_assert(BTH_MASKED == 4, "right behind the 4 bytes");
	for (uint32_t v = 0; v < 256; v++) {
		tables->masked[v] = tw_gf2_mul(byte_back, (v ^ 0xff) << 24);
	}
	tables->crc32 = tw_crc32_best();
}

uint32_t tw_roce_source_qp(uint32_t publisher)
{
	return 2u + publisher % (TW_ROCE_MCAST_QP - 2u);
}

static void flow_init(struct tw_roce_flow *flow, uint32_t group, uint32_t image_bytes)
{
	uint8_t *img = flow->image;
	memset(flow, 0, sizeof(*flow));
	flow->image_bytes = image_bytes;
	memset(img, 0xff, IMG_IP);
	img[IMG_IP] = 0x45;
	img[IMG_IP + 1] = 0xff;           /* ToS */
	img[IMG_IP_FRAG] = 0x40;          /* do not fragment */
	img[IMG_IP + 8] = 0xff;           /* TTL */
	img[IMG_IP + 9] = 17;             /* UDP */
	put16(img + IMG_IP + 10, 0xffff); /* checksum */
	put32(img + IMG_IP_DST, group);
	put16(img + IMG_UDP + 2, TW_ROCE_PORT);
	put16(img + IMG_UDP + 6, 0xffff); /* checksum */
}

static void set_source(struct tw_roce_flow *flow, uint32_t src_addr, uint16_t src_port)
{
	put32(flow->image + IMG_IP_SRC, src_addr);
	put16(flow->image + IMG_UDP, src_port);
}

void tw_roce_sender_init(struct tw_roce_flow *flow, uint32_t src_addr, uint16_t src_port,
			 uint32_t group, uint32_t source_qp)
{
	flow_init(flow, group, TW_ROCE_IMAGE_BYTES);
	set_source(flow, src_addr, src_port);
	uint8_t *bth = flow->image + IMG_BTH;
	bth[BTH_OPCODE] = TW_ROCE_UD_SEND;
	put16(bth + BTH_PKEY, TW_ROCE_PKEY);
	bth[BTH_MASKED] = 0xff;
	put24(bth + BTH_DEST_QP, TW_ROCE_MCAST_QP);
	put32(bth + DETH_QKEY, TW_ROCE_QKEY);
	put24(bth + DETH_SOURCE_QP, source_qp);
	tw_roce_flow_changed(flow);
}

void tw_roce_flow_changed(struct tw_roce_flow *flow)
{
	flow->image_crc = tw_crc32_any(0, flow->image, flow->image_bytes);
}

/* CRC of the image with lengths and identification. */
static uint32_t image_crc(const struct tw_roce_flow *flow, const struct tw_roce_fields *fields,
			  uint32_t len_bytes, uint16_t ip_id)
{
	return flow->image_crc ^ fields->lengths[len_bytes / 4] ^ fields->id[0][ip_id >> 8] ^
	       fields->id[1][ip_id & 0xff];
}

void tw_roce_seal(struct tw_roce_flow *flow, const struct tw_roce_tables *tables,
		  uint32_t len_bytes, uint32_t dgram_crc, uint16_t ip_id,
		  uint8_t hdr[TW_ROCE_HDR_BYTES], uint8_t icrc[TW_ROCE_ICRC_BYTES])
{
	const uint32_t psn = flow->psn;
	flow->psn = (psn + 1) & 0xffffffu;
	memcpy(hdr, flow->image + IMG_BTH, TW_ROCE_HDR_BYTES);
	hdr[BTH_MASKED] = 0;
	put24(hdr + BTH_PSN, psn);

	const uint32_t head = image_crc(flow, &tables->sent, len_bytes, ip_id) ^
			      tables->psn[0][psn >> 16] ^ tables->psn[1][psn >> 8 & 0xff] ^
			      tables->psn[2][psn & 0xff];
	const uint32_t crc = tw_gf2_mul(tables->join[len_bytes / 4], head) ^ dgram_crc;
	memcpy(icrc, &crc, TW_ROCE_ICRC_BYTES);
}

void tw_roce_receiver_init(struct tw_roce_flow *flow, uint32_t group)
{
	flow_init(flow, group, IMG_BTH);
	tw_roce_flow_changed(flow);
}

void tw_roce_receiver_from(struct tw_roce_flow *flow, uint32_t src_addr, uint16_t src_port)
{
	if (get32(flow->image + IMG_IP_SRC) != src_addr ||
	    get16(flow->image + IMG_UDP) != src_port) {
		set_source(flow, src_addr, src_port);
		tw_roce_flow_changed(flow);
	}
}

/* Whether it is a frame that Tidewire sends: what another RDMA application multicasts is not. */
static int is_ours(const uint8_t *frame, uint32_t len_bytes, uint32_t mtu_bytes)
{
	if (len_bytes < TW_ROCE_OVERHEAD_BYTES || len_bytes > TW_ROCE_OVERHEAD_BYTES + mtu_bytes ||
	    len_bytes % 4 != 0) {
		return 0;
	}
	/* Pad count and header version 0.  A P_Key matches where its low 15 bits do, whatever the
	 * membership bit says, because our side is a full member. */
	return frame[BTH_OPCODE] == TW_ROCE_UD_SEND && (frame[BTH_FLAGS] & 0x3f) == 0 &&
	       (frame[BTH_PKEY] & 0x7f) == 0x7f && frame[BTH_PKEY + 1] == 0xff &&
	       get24(frame + BTH_DEST_QP) == TW_ROCE_MCAST_QP &&
	       get32(frame + DETH_QKEY) == TW_ROCE_QKEY;
}

enum tw_roce_verdict tw_roce_accept(const struct tw_roce_flow *flow,
				    const struct tw_roce_tables *tables, const uint8_t *frame,
				    uint32_t len_bytes, uint32_t mtu_bytes, uint16_t ip_id,
				    struct tw_roce_ud *out)
{
	if (!is_ours(frame, len_bytes, mtu_bytes)) {
		return TW_ROCE_FOREIGN;
	}
	const uint32_t dgram_bytes = len_bytes - TW_ROCE_OVERHEAD_BYTES;
	const uint32_t before = image_crc(flow, &tables->received, dgram_bytes, ip_id) ^
				tables->masked[frame[BTH_MASKED]];
	const uint32_t crc = tables->crc32->of(before, frame, TW_ROCE_HDR_BYTES + dgram_bytes);
	const uint32_t delta = crc ^ get32le(frame + len_bytes - TW_ROCE_ICRC_BYTES);
	if (__builtin_expect(delta != 0, 0)) {
		/* Another identification explains the difference, or nothing does: moved back to
		 * where it arose, it must be a change of those 16 bits and of no flag. */
		const uint32_t word = tw_gf2_mul(tables->solve[dgram_bytes / 4], delta);
		if (word >> 16 != 0) {
			return TW_ROCE_ICRC_BAD;
		}
		ip_id = (uint16_t)(ip_id ^ __builtin_bswap16((uint16_t)word));
	}
	out->len_bytes = dgram_bytes;
	out->psn = get24(frame + BTH_PSN);
	out->source_qp = get24(frame + DETH_SOURCE_QP);
	out->ip_id = ip_id;
	return TW_ROCE_OK;
}
