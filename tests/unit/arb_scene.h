/* Scenes for the arbiter's unit tests: datagrams and time go in, what comes out is compared as text.
 *
 * Text      one group of words for each run, comma between:
 *             up A | down B | session 7 from 1 | data 1-3 A | fill 4-5 B | gap 4-5 | lost 4-5 | end 9
 *           with R for a line where it is from history, and with `*` after it where the run came from the store.
 * Checked   every run also goes through the ledger: order, bytes, partition.  A failure is a failed
 *           assertion of the test that runs. */
#ifndef TW_TESTS_UNIT_ARB_SCENE_H
#define TW_TESTS_UNIT_ARB_SCENE_H

#include <criterion/criterion.h>
#include <stdint.h>

#include "protocol/arb.h"
#include "tests/sim/ledger.h"
#include "wire/datagram.h"

#define A            0u
#define B            1u
#define CHANNEL      3u
#define ENVIRONMENT  77u
#define SESSION      7u
#define WAIT_NS      UINT64_C(1000)
#define HEARTBEAT_NS UINT64_C(10000)
#define TAKEOVER_NS  UINT64_C(500000)
#define MTU_BYTES    2048u

struct scene {
	struct tw_arb *arb;
	void *memory;
	struct tw_ledger ledger;
	struct tw_arb_conf conf;
	struct tw_ledger_spec spec; /* of the next datagram; fields stay */
	uint64_t now_ns;
	_Alignas(64) uint8_t bytes[TW_WIRE_DGRAM_MAX_BYTES];
	char text[4096];
};

/* Two lines, a store of 8, from message 1. */
struct tw_arb_conf usual(void);
struct scene *scene_new(const struct tw_arb_conf *conf);
/* Begins anew in the same memory. */
void scene_restart(struct scene *scene);
void scene_free(struct scene *scene);
/* A scene where both lines are up and 1 to 3 have been delivered. */
struct scene *running(const struct tw_arb_conf *conf);
struct scene *running_usual(void);

/* Give a datagram on a line and pull everything.  Last numbers are inclusive. */
enum tw_arb_result give_data(struct scene *scene, uint32_t line, uint64_t first_seq,
			     uint64_t last_seq);
enum tw_arb_result give_flags(struct scene *scene, uint32_t line, unsigned int flags,
			      uint64_t first_seq, uint64_t end_seq);
enum tw_arb_result give_heartbeat(struct scene *scene, uint32_t line, uint64_t next_seq);
enum tw_arb_result give_end(struct scene *scene, uint32_t line, uint64_t next_seq);
enum tw_arb_result give_hole(struct scene *scene, uint32_t line, uint64_t first_seq,
			     uint64_t last_seq);
/* From history; spec.flags are the caller's. */
enum tw_arb_repaired give_history(struct scene *scene, uint64_t first_seq, uint64_t last_seq);
uint64_t give_up(struct scene *scene, uint64_t first_seq, uint64_t last_seq);
/* The line was polled empty; pulls everything. */
void idle(struct scene *scene, uint32_t line);
void idle_all(struct scene *scene);
void pass(struct scene *scene, uint64_t ns);

/* What came out since the last time. */
#define EXPECT(scene, want)                                                                \
	do {                                                                               \
		cr_assert_str_eq((scene)->text, (want), "got  %s\nwant %s", (scene)->text, \
				 (want));                                                  \
		(scene)->text[0] = '\0';                                                   \
	} while (0)

#endif
