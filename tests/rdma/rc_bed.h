/* Repair over RC on a real device: histories that are written as a publisher does, a server over them, and a raw
 * client that keeps to no rule.
 *
 * Threads   one test thread; server and reader have their own. */
#ifndef TW_TESTS_RC_BED_H
#define TW_TESTS_RC_BED_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/counters.h"
#include "fabric/reader.h"
#include "fabric/verbs/rc_wire.h"
#include "protocol/history_read.h"
#include "protocol/pack.h"

#define RC_ENV      0x2468
#define RC_CHANNELS 3u /* 1 and 2 have the same readers, 3 has others */
#define RC_CLIENTS  4u
#define RC_MTU      1024u
#define RC_UNITS    1500u /* of a log: some 120 datagrams */
#define RC_PLACES   512u  /* that are remembered; a power of two */
#define RC_WAIT_NS  60000000000ull
#define RC_MS       1000000ull

struct rc_place {
	uint64_t packet_seq, log_pos, units, first_msg_seq, end_msg_seq;
};

struct rc_channel {
	uint16_t id;
	struct tw_slab slab;
	struct tw_history history;
	struct tw_history_view view;
	struct tw_history_index index;
	struct tw_history_mark marks[16];
	struct tw_pack pack;
	uint64_t session, next_seq;
	uint32_t publisher;
	struct rc_place places[RC_PLACES]; /* by packet_seq */
	uint64_t newest;                   /* packet_seq */
};

struct rc_bed {
	uint32_t addr;
	struct tw_stats *stats;
	struct tw_counters server_counters, client_counters[RC_CLIENTS], reader_counters;
	struct rc_channel channels[RC_CHANNELS];
	struct tw_read_server *server;
	uint16_t port;
};

void rc_bed_open(struct rc_bed *bed, uint32_t addr);
void rc_bed_close(struct rc_bed *bed);
/* Begins a life of a channel and fills its log more than once over. */
void rc_begin(struct rc_channel *channel, uint64_t session, uint32_t publisher);
void rc_write(struct rc_channel *channel, uint32_t dgrams);

struct tw_read_server_conf rc_server_conf(struct rc_bed *bed);
void rc_serve(struct rc_bed *bed, struct tw_read_server_conf conf, bool one_sided);
struct tw_reader *rc_reader(struct rc_bed *bed, const char *name);
void rc_wait_up(struct tw_reader *reader, bool up);
/* Posts, and polls until it has ended; the caller releases. */
void rc_read(struct tw_reader *reader, const struct tw_read *read, struct tw_read_done *done);
/* By position: `count` datagrams from `packet_seq` on. */
struct tw_read rc_range(const struct rc_channel *channel, uint64_t packet_seq, uint32_t count);
/* Whether `data` is what was written there: every byte of every datagram in it. */
bool rc_is_whole(const struct rc_channel *channel, const struct tw_read *read, const uint8_t *data,
		 uint32_t len_bytes);

/* Ends the program where something that has to be there is not. */
void rc_die(const char *what) __attribute__((noreturn));
#define RC_MUST(condition)                  \
	do {                                \
		if (!(condition)) {         \
			rc_die(#condition); \
		}                           \
	} while (0)
/* Waits until it holds; a hang, not a measure. */
#define RC_UNTIL(condition)                                        \
	do {                                                       \
		uint64_t rc_until_ns = tw_mono_ns() + RC_WAIT_NS;  \
		while (!(condition)) {                             \
			if (tw_mono_ns() > rc_until_ns) {          \
				rc_die("never came: " #condition); \
			}                                          \
			rc_pause();                                \
		}                                                  \
	} while (0)
void rc_pause(void);

struct rc_raw { /* synchronous, and without any scruple */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory; /* RAW_BYTES */
	struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	uint32_t grant_count;
	bool connected;
};
#define RAW_BYTES 131072u

bool rc_raw_connect(struct rc_raw *raw, const struct rc_bed *bed, uint16_t channel);
void rc_raw_close(struct rc_raw *raw);
/* As when its host loses its power: whatever comes for it finds nobody, and nobody is told. */
void rc_raw_die(struct rc_raw *raw);
enum tw_rw_login rc_raw_login(struct rc_raw *raw, const char *name);
void rc_raw_ask_login(struct rc_raw *raw, const char *name); /* without waiting for the answer */
bool rc_raw_is_answered(struct rc_raw *raw);
const struct tw_rc_grant *rc_raw_grant(const struct rc_raw *raw, uint16_t channel);
/* Status of the work request's completion. */
enum ibv_wc_status rc_raw_rdma(struct rc_raw *raw, enum ibv_wr_opcode opcode, uint64_t addr,
			       uint32_t rkey, uint32_t bytes);
bool rc_raw_receive(struct rc_raw *raw, uint64_t wr_id);
bool rc_raw_send(struct rc_raw *raw, const void *data, uint32_t bytes);
enum ibv_wc_status rc_raw_wait(struct rc_raw *raw, struct ibv_wc *wc);

#endif
