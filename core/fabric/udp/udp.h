/* What the sending and the receiving half of the `udp` transport share: interfaces and sockets.
 * Threads   set-up only, any thread. */
#ifndef TW_FABRIC_UDP_UDP_H
#define TW_FABRIC_UDP_UDP_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "fabric/fabric.h"

struct tw_udp_if {        /* the interface of a line */
	uint32_t address; /* host order */
	int index;
	uint32_t mtu_bytes;
	bool segments_in_software; /* lo or veth: GSO segments are numbered by the kernel */
	char name[IF_NAMESIZE];
};

/* TW_ECONFIG where conf->mtu_bytes cannot be the length of a datagram. */
int tw_udp_check_mtu(const struct tw_fabric_conf *conf, struct tw_error *err) TW_MUST_USE;

/* Finds the interface that has the line's address and checks that datagrams of conf->mtu_bytes fit
 * it.  TW_ECONFIG names what does not fit. */
int tw_udp_if_find(struct tw_udp_if *iface, const struct tw_fabric_conf *conf, unsigned int line,
		   struct tw_error *err) TW_MUST_USE;

/* A socket that sends from the line's address: never connected, DF set, so that the kernel writes
 * identification 0.  `checksum`: for GSO, which refuses sockets without one.  *port is what to bind
 * to (0: any) and then what is bound.  Returns the descriptor. */
int tw_udp_tx_socket(const struct tw_udp_if *iface, const struct tw_fabric_conf *conf,
		     bool checksum, uint16_t *port, struct tw_error *err) TW_MUST_USE;

/* A socket that receives one group on one interface.  *granted_bytes is the receive buffer in the
 * unit it was asked for (the kernel reports twice that).  Returns the descriptor. */
int tw_udp_rx_socket(const struct tw_udp_if *iface, const struct tw_fabric_conf *conf,
		     uint32_t group, uint32_t *granted_bytes, struct tw_error *err) TW_MUST_USE;

#endif
