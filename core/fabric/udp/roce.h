/* RoCE v2 UD SEND frames as a UDP payload: BTH (12), DETH (8), datagram, ICRC (4).
 *
 * ICRC      CRC-32 over 8 bytes of ones, the IP header (ToS, TTL, checksum as ones), the UDP header
 *           (checksum as ones), the BTH (its byte 4 as ones) and the rest; stored little-endian.
 *           The first 56 of those bytes, up to the DETH, are kept as an image and patched.
 * Sending   a datagram's own CRC is computed once, while it is copied, and joined with each line's
 *           header CRC.
 * Receiving the IP header does not reach a socket.  All of it is known but the identification, which
 *           is solved for: docs/decisions/001-udp-icrc-check.md says what that leaves unchecked.
 * Hostile   tw_roce_accept() takes any bytes and reads none past `len_bytes`.
 * Threads   pure functions on the caller's memory.
 * Units     addresses and ports in host order. */
#ifndef TW_FABRIC_UDP_ROCE_H
#define TW_FABRIC_UDP_ROCE_H

#include <stdint.h>

#include "fabric/udp/crc32.h"
#include "tidewire/wire.h"

#define TW_ROCE_BTH_BYTES      12u
#define TW_ROCE_DETH_BYTES     8u
#define TW_ROCE_HDR_BYTES      (TW_ROCE_BTH_BYTES + TW_ROCE_DETH_BYTES)
#define TW_ROCE_ICRC_BYTES     4u
#define TW_ROCE_OVERHEAD_BYTES (TW_ROCE_HDR_BYTES + TW_ROCE_ICRC_BYTES)
#define TW_ROCE_IP_UDP_BYTES   28u
#define TW_ROCE_IMAGE_BYTES    (8u + TW_ROCE_IP_UDP_BYTES + TW_ROCE_HDR_BYTES)
#define TW_ROCE_UD_SEND        0x64u /* BTH opcode: UD, SEND only */
#define TW_ROCE_PKEY           0xffffu

#define TW_ROCE_WORDS_MAX (TW_WIRE_DGRAM_MAX_BYTES / 4)

/* What the fields that the kernel writes, and that change from frame to frame, add to the CRC of an
 * image. */
struct tw_roce_fields {
	uint32_t lengths[TW_ROCE_WORDS_MAX + 1];
	uint32_t id[2][256]; /* by byte */
};

/* Constants of the linear algebra, the same for all; 24 KB, of which a run of equal datagrams touches
 * a few lines.  Indices `[words]` are a datagram's length. */
struct tw_roce_tables { /* const after init */
	const struct tw_crc32 *crc32;
	/* powers of x: what stands before a datagram moves by its length */
	uint32_t join[TW_ROCE_WORDS_MAX + 1];
	/* and from the end of the covered bytes back to the IP identification */
	uint32_t solve[TW_ROCE_WORDS_MAX + 1];
	struct tw_roce_fields sent, received; /* to a sender's image, to a receiver's */
	uint32_t psn[3][256];                 /* to a sender's; by byte */
	/* added to the CRC before a frame, makes the byte 4 that the frame has count as ones */
	uint32_t masked[256];
};
void tw_roce_tables_init(struct tw_roce_tables *tables);

/* One direction between two addresses: the image of the covered header bytes, with lengths,
 * identification and PSN 0. */
struct tw_roce_flow {
	uint8_t image[TW_ROCE_IMAGE_BYTES];
	uint32_t image_bytes; /* a receiver's ends before the BTH, which comes with the frame */
	uint32_t image_crc;
	uint32_t psn; /* sender: of the next frame, 24 bits */
};

/* Nonzero 24-bit source QP number of a publisher: neither 0 nor 1, which are management's, nor the
 * multicast QP. */
uint32_t tw_roce_source_qp(uint32_t publisher);

void tw_roce_sender_init(struct tw_roce_flow *flow, uint32_t src_addr, uint16_t src_port,
			 uint32_t group, uint32_t source_qp);
/* After a change of the image by the caller. */
void tw_roce_flow_changed(struct tw_roce_flow *flow);
/* Writes the frame's header and ICRC for the flow's next PSN.  `dgram_crc` is that of the datagram
 * alone (tables->crc32).  `ip_id` is what the kernel will write into the IP header: 0, or the segment's
 * index under GSO.  len_bytes: a multiple of 4, at most
 * TW_WIRE_DGRAM_MAX_BYTES. */
void tw_roce_seal(struct tw_roce_flow *flow, const struct tw_roce_tables *tables,
		  uint32_t len_bytes, uint32_t dgram_crc, uint16_t ip_id,
		  uint8_t hdr[TW_ROCE_HDR_BYTES], uint8_t icrc[TW_ROCE_ICRC_BYTES]);

enum tw_roce_verdict {
	TW_ROCE_OK = 0,
	TW_ROCE_FOREIGN, /* not a UD SEND of ours: length, opcode, pad, P_Key, QP or Q_Key */
	TW_ROCE_ICRC_BAD
};
struct tw_roce_ud {         /* an accepted frame */
	uint32_t len_bytes; /* of the datagram, which begins TW_ROCE_HDR_BYTES into the frame */
	uint32_t psn;
	uint32_t source_qp;
	uint16_t ip_id; /* as the ICRC implies it */
};

void tw_roce_receiver_init(struct tw_roce_flow *flow, uint32_t group);
/* Before frames of what may be another sender. */
void tw_roce_receiver_from(struct tw_roce_flow *flow, uint32_t src_addr, uint16_t src_port);
/* Judges one frame.  `ip_id` is the likely identification: where it is right all 32 bits of the ICRC
 * are checked, where not, 16.  *out is set where the verdict is TW_ROCE_OK. */
enum tw_roce_verdict tw_roce_accept(const struct tw_roce_flow *flow,
				    const struct tw_roce_tables *tables, const uint8_t *frame,
				    uint32_t len_bytes, uint32_t mtu_bytes, uint16_t ip_id,
				    struct tw_roce_ud *out);

#endif
