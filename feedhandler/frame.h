/* From a captured frame to the UDP datagram in it.
 *
 * Every length is believed only as far as an outer one and the captured bytes reach.
 * Threads   pure functions.
 * Spec      [RFC 791 s.3.1] IPv4, [RFC 768] UDP. */
#ifndef TW_FEEDHANDLER_FRAME_H
#define TW_FEEDHANDLER_FRAME_H

#include <stdint.h>

#include "feedhandler/input.h"

enum tw_frame_link {
	TW_FRAME_ETHERNET = 0,
	TW_FRAME_RAW_IP,
	TW_FRAME_NULL, /* 4 bytes of address family in the capturing host's order */
	TW_FRAME_LOOP, /* the same in network order */
	TW_FRAME_SLL,
	TW_FRAME_SLL2
};

enum tw_frame_verdict {
	TW_FRAME_UDP = 0,
	TW_FRAME_FOREIGN,   /* another protocol, or a fragment */
	TW_FRAME_MALFORMED, /* the lengths do not hold even on the wire */
	TW_FRAME_TRUNCATED  /* they do, but the capture has not all the bytes */
};

/* `cap_bytes` are at hand, `wire_bytes` were on the wire.  *packet is set only on TW_FRAME_UDP, all but
 * its recv_ns.  Bytes after the IPv4 total length (padding, FCS, trailers) are ignored.  A total length
 * of 0, as segmentation offload leaves it in a sender's own capture, means the rest of the frame. */
enum tw_frame_verdict tw_frame_parse(struct tw_packet *packet, enum tw_frame_link link,
				     const uint8_t *data, uint32_t cap_bytes, uint32_t wire_bytes);

#endif
