/* From a captured frame to the UDP datagram in it; see frame.h. */
#include "feedhandler/frame.h"

#include <stdbool.h>

#include "base/bytes.h"

enum {
	ETHERTYPE_IPV4 = 0x0800,
	ETHERTYPE_VLAN = 0x8100,  /* 802.1Q */
	ETHERTYPE_QINQ = 0x88a8,  /* 802.1ad */
	ETHERTYPE_QINQ1 = 0x9100, /* used for outer tags before 802.1ad */
	ETHERTYPE_QINQ2 = 0x9200,
	MAX_TAGS = 8, /* a frame with more is foreign: bounds the walk */
	FAMILY_INET = 2,
	IP_MIN_BYTES = 20,
	IP_FRAGMENT_MASK = 0x3fff, /* more fragments, or an offset */
	IP_PROTOCOL_UDP = 17,
	UDP_BYTES = 8
};

/* Bytes are missing: is the capture to blame, or the frame itself? */
static enum tw_frame_verdict lacking(uint32_t needed_bytes, uint32_t wire_bytes)
{
	return needed_bytes <= wire_bytes ? TW_FRAME_TRUNCATED : TW_FRAME_MALFORMED;
}

static bool is_tag(uint16_t type)
{
	return type == ETHERTYPE_VLAN || type == ETHERTYPE_QINQ || type == ETHERTYPE_QINQ1 ||
	       type == ETHERTYPE_QINQ2;
}

static enum tw_frame_verdict parse_ipv4(struct tw_packet *packet, const uint8_t *data,
					uint32_t cap_bytes, uint32_t wire_bytes)
{
	if (cap_bytes < IP_MIN_BYTES) {
		return lacking(IP_MIN_BYTES, wire_bytes);
	}
	struct tw_bytes ip = tw_bytes_of(data, cap_bytes);
	uint32_t header_bytes = tw_bytes_u8(&ip);
	if (header_bytes >> 4 != 4) {
		return TW_FRAME_FOREIGN;
	}
	header_bytes = (header_bytes & 0x0f) * 4;
	tw_bytes_skip(&ip, 1);
	uint32_t total_bytes = tw_bytes_be16(&ip);
	tw_bytes_skip(&ip, 2);
	uint16_t fragment = tw_bytes_be16(&ip);
	tw_bytes_skip(&ip, 1);
	uint8_t protocol = tw_bytes_u8(&ip);
	tw_bytes_skip(&ip, 2);
	uint32_t src_addr = tw_bytes_be32(&ip);
	uint32_t dst_addr = tw_bytes_be32(&ip);

	if (total_bytes == 0) {
		total_bytes = wire_bytes;
	}
	if (header_bytes < IP_MIN_BYTES || total_bytes < header_bytes || total_bytes > wire_bytes) {
		return TW_FRAME_MALFORMED;
	}
	if (protocol != IP_PROTOCOL_UDP || (fragment & IP_FRAGMENT_MASK) != 0) {
		return TW_FRAME_FOREIGN;
	}
	if (total_bytes - header_bytes < UDP_BYTES) {
		return TW_FRAME_MALFORMED;
	}
	if (cap_bytes < header_bytes + UDP_BYTES) {
		return TW_FRAME_TRUNCATED;
	}
	struct tw_bytes udp = tw_bytes_of(data + header_bytes, UDP_BYTES);
	uint16_t src_port = tw_bytes_be16(&udp);
	uint16_t dst_port = tw_bytes_be16(&udp);
	uint32_t udp_bytes = tw_bytes_be16(&udp);
	if (udp_bytes < UDP_BYTES || udp_bytes > total_bytes - header_bytes) {
		return TW_FRAME_MALFORMED;
	}
	if (cap_bytes < header_bytes + udp_bytes) {
		return TW_FRAME_TRUNCATED;
	}
	*packet = (struct tw_packet){
		.payload = data + header_bytes + UDP_BYTES,
		.len_bytes = udp_bytes - UDP_BYTES,
		.src_addr = src_addr,
		.dst_addr = dst_addr,
		.src_port = src_port,
		.dst_port = dst_port,
	};
	return TW_FRAME_UDP;
}

/* `type_at` is where the EtherType lies; tags and then the IP header follow it at `next_at`. */
static enum tw_frame_verdict parse_typed(struct tw_packet *packet, const uint8_t *data,
					 uint32_t type_at, uint32_t next_at, uint32_t cap_bytes,
					 uint32_t wire_bytes)
{
	if (cap_bytes < next_at) {
		return lacking(next_at, wire_bytes);
	}
	struct tw_bytes at = tw_bytes_of(data + type_at, 2);
	uint16_t type = tw_bytes_be16(&at);
	for (unsigned int tags = 0; is_tag(type); tags++) {
		if (tags == MAX_TAGS) {
			return TW_FRAME_FOREIGN;
		}
		if (cap_bytes - next_at < 4) {
			return lacking(next_at + 4, wire_bytes);
		}
		at = tw_bytes_of(data + next_at + 2, 2);
		type = tw_bytes_be16(&at);
		next_at += 4;
	}
	if (type != ETHERTYPE_IPV4) {
		return TW_FRAME_FOREIGN;
	}
	return parse_ipv4(packet, data + next_at, cap_bytes - next_at, wire_bytes - next_at);
}

static enum tw_frame_verdict parse_family(struct tw_packet *packet, const uint8_t *data,
					  bool either_order, uint32_t cap_bytes,
					  uint32_t wire_bytes)
{
	if (cap_bytes < 4) {
		return lacking(4, wire_bytes);
	}
	struct tw_bytes at = tw_bytes_of(data, 4);
	uint32_t family = tw_bytes_be32(&at);
	if (family != FAMILY_INET && !(either_order && __builtin_bswap32(family) == FAMILY_INET)) {
		return TW_FRAME_FOREIGN;
	}
	return parse_ipv4(packet, data + 4, cap_bytes - 4, wire_bytes - 4);
}

enum tw_frame_verdict tw_frame_parse(struct tw_packet *packet, enum tw_frame_link link,
				     const uint8_t *data, uint32_t cap_bytes, uint32_t wire_bytes)
{
	if (wire_bytes < cap_bytes) { /* a capture may say so; what is at hand was on the wire */
		wire_bytes = cap_bytes;
	}
	switch (link) {
	case TW_FRAME_ETHERNET:
		return parse_typed(packet, data, 12, 14, cap_bytes, wire_bytes);
	case TW_FRAME_RAW_IP:
		return parse_ipv4(packet, data, cap_bytes, wire_bytes);
	case TW_FRAME_NULL:
		return parse_family(packet, data, true, cap_bytes, wire_bytes);
	case TW_FRAME_LOOP:
		return parse_family(packet, data, false, cap_bytes, wire_bytes);
	case TW_FRAME_SLL:
		return parse_typed(packet, data, 14, 16, cap_bytes, wire_bytes);
	case TW_FRAME_SLL2:
		return parse_typed(packet, data, 0, 20, cap_bytes, wire_bytes);
	}
	return TW_FRAME_FOREIGN;
}
