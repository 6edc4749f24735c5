/* A bed for the repair ladder's unit tests: a publisher (the real packer and history log), an arbiter with
 * the ladder on top, and a server that answers from that history.  Time moves by hand.
 *
 * Every run goes through the ledger: order, bytes, partition.  A failure is a failed assertion. */
#ifndef TW_TESTS_UNIT_REPAIR_BED_H
#define TW_TESTS_UNIT_REPAIR_BED_H

#include <criterion/criterion.h>
#include <stdint.h>

#include "protocol/history_read.h"
#include "protocol/pack.h"
#include "protocol/repair.h"
#include "tests/sim/ledger.h"

#define A           0u
#define B           1u
#define CHANNEL     3u
#define ENVIRONMENT 77u
#define SESSION     9u
#define PUBLISHER   4u
#define US          UINT64_C(1000)
#define WAIT_NS     (50 * US)
#define RETRY_NS    (100 * US)
#define MTU_BYTES   1024u
#define BED_DGRAMS  4096u
#define BED_READS   64u

struct bed_dgram {
	_Alignas(64) uint8_t bytes[MTU_BYTES];
	uint32_t len_bytes;
	uint64_t first_seq, end_seq, pos, end_pos;
};

struct bed {
	/* publisher */
	struct tw_history history;
	struct tw_history_view view;
	struct tw_history_index index;
	struct tw_history_mark *marks;
	uint8_t *log;
	size_t log_bytes;
	struct tw_pack pack;
	uint64_t session, made_seq, want;
	uint32_t count; /* datagrams, heartbeats not */
	struct bed_dgram *dgrams;
	/* subscriber */
	struct tw_arb_conf arb_conf;
	struct tw_repair_conf conf;
	void *arb_memory, *repair_memory;
	struct tw_arb *arb;
	struct tw_repair *repair;
	struct tw_ledger ledger;
	uint64_t now_ns;
	uint64_t from_history_msgs, from_line_msgs; /* of DATA that fills a gap */
	/* of the last poll */
	struct tw_repair_read reads[BED_READS];
	uint32_t read_count;
	uint8_t *reply;
	size_t reply_bytes;
};

/* Two lines, a store of 512, a history of 1 MiB, one server that is up, joined below 8 units, reads of
 * 16 KiB at most, no pacing, 4 attempts. */
struct bed *bed_new(void);
/* Settings may be changed between these two; bed_open() makes arbiter and ladder. */
struct bed *bed_draft(void);
void bed_open(struct bed *bed);
void bed_free(struct bed *bed);

/* Packs one datagram of `msgs` messages and returns its index; nobody has it yet. */
uint32_t bed_send(struct bed *bed, uint32_t msgs);
void bed_send_many(struct bed *bed, uint32_t dgrams);
/* The publisher begins another life in the same session, in the same memory. */
void bed_restart_publisher(struct bed *bed, uint32_t publisher);
void bed_give(struct bed *bed, uint32_t line, uint32_t index);
void bed_give_both(struct bed *bed, uint32_t index);
/* A heartbeat of now, on both lines. */
void bed_heartbeat(struct bed *bed, unsigned int flags);
void bed_idle(struct bed *bed);
void bed_pass(struct bed *bed, uint64_t ns);
/* The same, but the ladder is not polled meanwhile. */
void bed_stand_still(struct bed *bed, uint64_t ns);

/* Polls the ladder: reads and read_count; pulls. */
uint32_t bed_poll(struct bed *bed);
/* What an honest server has for a read: reply and reply_bytes. */
enum tw_repair_status bed_serve(struct bed *bed, const struct tw_repair_read *read);
/* Hands in the reply and takes in all that it brings. */
void bed_reply(struct bed *bed, uint64_t id, enum tw_repair_status status);
/* Both, for one read or for all of the last poll. */
void bed_answer(struct bed *bed, const struct tw_repair_read *read);
void bed_answer_all(struct bed *bed);
struct tw_repair_stats bed_stats(const struct bed *bed);

#endif
