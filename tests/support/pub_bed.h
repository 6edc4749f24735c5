/* A test's own publisher on `lo`, or on RDMA devices, and a site file for subscribers of it: groups drawn at
 * random from 239.192.0.0/14, as is the site's name, a private directory, datagrams made by hand.
 *
 * Threads   one, but for the counters. */
#ifndef TW_TESTS_PUB_BED_H
#define TW_TESTS_PUB_BED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"
#include "fabric/fabric.h"
#include "tests/support/temp_dir.h"
#include "tidewire/sub.h"
#include "tidewire/wire.h"

#define PUB_BED_CHANNELS  2u
#define PUB_BED_MTU_BYTES 1024u

struct pub_bed_conf {
	uint32_t channels; /* 1 or 2: ids 1 and 2 */
	uint32_t wait_us, store_datagrams;
	const char *depth;      /* NULL: orders */
	const char *address;    /* of the publisher's host; NULL: this one */
	const char *subscriber; /* more of that section: ", start: live" */
	const char *fault;      /* the section's body, NULL: none */
	const char *idle;       /* NULL: yield */
	uint16_t repair_port;   /* 0: not named */
	uint16_t repair_port_2; /* of a publisher `pub2`, of channel 2 alone; 0: there is none */
	const struct tw_fabric_line *verbs; /* this host's lines A and B; NULL: `udp` on lo */
	uint32_t heartbeat_ms;              /* 0: the usual */
};

struct pub_bed {
	struct temp_dir dir;
	char name[16]; /* of the site */
	char site[256], run_dir[256];
	uint16_t environment;
	uint32_t groups[PUB_BED_CHANNELS][2];
	struct tw_stats *stats;
	struct tw_tx *tx;
	uint64_t packets; /* sent: each new one gets the next packet_seq */
};

enum pub_bed_lines { PUB_BED_BOTH = 0, PUB_BED_A, PUB_BED_B };

bool pub_bed_open(struct pub_bed *bed, const struct pub_bed_conf *conf);
void pub_bed_close(struct pub_bed *bed);
/* Opens a subscriber of all channels; `name` NULL: the usual one. */
int pub_bed_subscribe(const struct pub_bed *bed, const char *name, struct tw_sub **sub_p,
		      struct tw_error *err);

/* A datagram under construction. */
struct pub_dgram {
	_Alignas(64) uint8_t bytes[PUB_BED_MTU_BYTES];
	uint32_t len_bytes; /* without padding */
};
static inline struct tw_wire_hdr *pub_dgram_hdr(struct pub_dgram *d)
{
	return (struct tw_wire_hdr *)(void *)d->bytes;
}
/* Begins one of channel 1. */
void pub_dgram_begin(struct pub_dgram *d, const struct pub_bed *bed, uint64_t session,
		     uint64_t first_msg_seq);
#define PUB_BED_INSTRUMENTS 3u
/* Appends `n` OrderAdd messages whose order_id and price tell their number and session; instruments take
 * turns. */
void pub_dgram_orders(struct pub_dgram *d, unsigned int n);
void pub_dgram_heartbeat(struct pub_dgram *d, bool end);
void pub_dgram_hole(struct pub_dgram *d, uint64_t end_msg_seq);
/* Whether `ev` carries what pub_dgram_orders() made for its number. */
bool pub_dgram_is_order(const struct tw_event *ev);
/* Posts it on the lines of its channel. */
void pub_bed_send(struct pub_bed *bed, struct pub_dgram *d, enum pub_bed_lines lines);
/* begin, orders and send in one. */
void pub_bed_orders(struct pub_bed *bed, uint64_t session, uint64_t first_msg_seq, unsigned int n,
		    enum pub_bed_lines lines);

#endif
