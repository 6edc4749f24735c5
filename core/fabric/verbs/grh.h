/* What lies before a received UD datagram.
 *
 * RoCE v2 over IPv4: bytes 0 to 19 of the 40 are undefined and never read; 20 to 39 are the IPv4
 * header as it was on the wire, so that the source is at 32 and the group at 36.
 * InfiniBand: a GRH proper, the group's MGID at 24; the source is a GID and says nothing about an
 * IPv4 address.
 * Hostile   these bytes came from the network.
 * Threads   pure functions. */
#ifndef TW_FABRIC_VERBS_GRH_H
#define TW_FABRIC_VERBS_GRH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TW_GRH_IPV4_AT 20u /* version and header length */
#define TW_GRH_SRC_AT  32u
#define TW_GRH_DST_AT  36u
#define TW_GRH_DGID_AT 24u

static inline uint32_t tw_grh_word(const uint8_t *grh, unsigned int at)
{
	uint32_t be;
	memcpy(&be, grh + at, sizeof(be));
	return __builtin_bswap32(be);
}

/* True where the datagram came to `group` in an IPv4 packet; *src_addr is then its source. */
static inline bool tw_grh_ipv4(const uint8_t *grh, uint32_t group, uint32_t *src_addr)
{
	/* version 4, no options: with any, the fields would lie elsewhere */
	if (grh[TW_GRH_IPV4_AT] != 0x45 || tw_grh_word(grh, TW_GRH_DST_AT) != group) {
		return false;
	}
	*src_addr = tw_grh_word(grh, TW_GRH_SRC_AT);
	return true;
}

/* True where the datagram came to that InfiniBand group. */
static inline bool tw_grh_mgid(const uint8_t *grh, const uint8_t mgid[16])
{
	return memcmp(grh + TW_GRH_DGID_AT, mgid, 16) == 0;
}

#endif
