/* Repair over TCP on 127.0.0.1: a read server over made-up history, raw sockets that play either side, and
 * counters to look at.
 *
 * Threads   one test thread; the server and readers under test have their own. */
#ifndef TW_TESTS_TCP_BED_H
#define TW_TESTS_TCP_BED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/counters.h"
#include "fabric/reader.h"
#include "fabric/repair_wire.h"

#define TCP_BED_ENV      0x2468
#define TCP_BED_LOOPBACK 0x7f000001u
#define TCP_BED_CLIENTS  4u
#define TCP_BED_SERVERS  3u
#define TCP_BED_SESSION  77u
#define TCP_BED_TAKEN    1024u
#define TCP_BED_WAIT_NS  30000000000ull /* for what has to happen: a hang, not a measure */
#define TCP_MS           1000000ull

/* What the server serves: channel 1, session TCP_BED_SESSION; unit p holds words made from p.  By number:
 * message n is in unit n. */
struct tcp_bed {
	struct tw_stats *stats;
	struct tw_counters server_counters;
	struct tw_counters client_counters[TCP_BED_CLIENTS];
	struct tw_counters reader_counters[TCP_BED_SERVERS];
	_Atomic uint64_t oldest, published; /* units that are there: [oldest, published) */
	/* ids of the reads in the order in which the server has taken them */
	_Atomic uint64_t taken[TCP_BED_TAKEN];
	_Atomic uint32_t taken_count;
	struct tw_read_server *server;
};

bool tcp_bed_open(struct tcp_bed *bed);
void tcp_bed_close(struct tcp_bed *bed);
/* As a publisher would; the test changes what it wants. */
struct tw_read_server_conf tcp_bed_server_conf(struct tcp_bed *bed);
/* Opens bed->server; channels come from the bed.  port 0: any. */
bool tcp_bed_serve(struct tcp_bed *bed, struct tw_read_server_conf conf);
struct tw_reader_conf tcp_bed_reader_conf(struct tcp_bed *bed,
					  const struct tw_reader_server *servers, uint32_t count);
/* Whether `len_bytes` at `data` are the units from `begin` on. */
bool tcp_bed_is(const uint8_t *data, uint32_t len_bytes, uint64_t begin);
void tcp_bed_fill(uint8_t *data, uint32_t len_bytes, uint64_t begin);

/* Polls until `condition` holds. */
#define TCP_WAIT(condition)                                                       \
	do {                                                                      \
		const uint64_t tcp_until_ns = tw_mono_ns() + TCP_BED_WAIT_NS;     \
		while (!(condition)) {                                            \
			cr_assert(tw_mono_ns() < tcp_until_ns, "%s", #condition); \
			tcp_pause();                                              \
		}                                                                 \
	} while (0)
void tcp_pause(void); /* lets others run */

/* Raw sockets, blocking, with TCP_BED_WAIT_NS as time-out; -1 on failure. */
int tcp_listen(uint16_t *port);
int tcp_accept(int listen_fd);
int tcp_connect(uint16_t port);
bool tcp_put(int fd, const void *data, size_t len_bytes);
bool tcp_get(int fd, void *data, size_t len_bytes);
bool tcp_ended(int fd); /* the other side closes or resets; what it still sends is dropped */
/* The server's side of a login, and the client's (with the answer). */
bool tcp_take_login(int fd);
enum tw_rw_login tcp_login(int fd, uint16_t environment, const char *name);

#endif
