/* Receivers and senders of the `udp` transport on the loopback interface, for unit tests.
 *
 * Datagram `seq` has contents that follow from its number.  Counters are arrays of this process: slot i
 * of receivers is what their endpoint i counts from first_counters on, slots 0 and 1 of a sender are
 * its lines.  Checks are Criterion's: call from the bodies of tests. */
#ifndef TW_TESTS_UDP_BED_H
#define TW_TESTS_UDP_BED_H

#include <stdint.h>

#include "fabric/fabric.h"

#define UDP_BED_MTU    1024u
#define UDP_BED_LINE_A 0x7f000001u /* 127.0.0.1 */
#define UDP_BED_LINE_B 0x7f000002u
#define UDP_BED_SLOTS  8u

struct tw_counters udp_bed_sub_counters(unsigned int i);
struct tw_counters udp_bed_pub_counters(unsigned int i);
uint64_t udp_bed_sub_value(unsigned int i, enum tw_sub_line_counter c);
uint64_t udp_bed_pub_value(unsigned int i, enum tw_pub_line_counter c);
uint32_t udp_bed_group(void);
struct tw_fabric_conf udp_bed_conf(void);
struct tw_rx *udp_bed_open_rx(const struct tw_fabric_conf *conf, const uint32_t *groups,
			      const uint8_t *lines, uint32_t n, unsigned int first_counters);
struct tw_rx *udp_bed_open_rx_one(const struct tw_fabric_conf *conf, uint32_t group);
struct tw_tx *udp_bed_open_tx(const struct tw_fabric_conf *conf, uint32_t group_a,
			      uint32_t group_b);
void udp_bed_fill(uint8_t *data, uint32_t len_bytes, uint32_t seq);
void udp_bed_check(const struct tw_rx_dgram *d, uint32_t len_bytes, uint32_t seq,
		   uint32_t src_addr);
unsigned int udp_bed_poll(struct tw_rx *rx, uint32_t endpoint, struct tw_rx_dgram *out,
			  unsigned int max);
void udp_bed_expect(struct tw_rx *rx, uint32_t endpoint, const uint32_t *lens, uint32_t n,
		    unsigned int max, uint32_t src_addr);
void udp_bed_post(struct tw_tx *tx, const uint32_t *lens, uint32_t n, unsigned int batch);
void udp_bed_clear_counters(void);

#endif
