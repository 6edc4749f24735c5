/* Pinning hot threads, and what they do when there is nothing to do. */
#ifndef TW_BASE_CPU_H
#define TW_BASE_CPU_H

#include <stdint.h>

#include "tidewire/error.h"

enum tw_idle_mode { TW_IDLE_AUTO = 0, TW_IDLE_SPIN, TW_IDLE_YIELD, TW_IDLE_EVENT };

/* CPUs that this process may run on. */
unsigned int tw_cpu_allowed(void);

/* Pins the calling thread; cpu < 0 leaves it alone.  TW_EARG names the CPU and the allowed set. */
int tw_cpu_pin(int cpu, struct tw_error *err);

/* Resolves AUTO: YIELD where `hot_threads` of this host exceed the allowed CPUs, else SPIN; other
 * modes come back as they are.  *why (NULL allowed) gets a sentence for the start-up line, such as
 * "3 hot threads on 2 CPUs: yield", which stays until this thread's next call. */
enum tw_idle_mode tw_idle_resolve(enum tw_idle_mode mode, unsigned int hot_threads,
				  const char **why);

/* One empty turn of a hot loop.  SPIN: a pause instruction; YIELD: a few pauses, then sched_yield;
 * EVENT: a bounded sleep (50 us) for loops without a descriptor of their own to wait on. */
struct tw_idle {
	enum tw_idle_mode mode; /* resolved */
	uint32_t empty_turns;   /* since the last work */
};
void tw_idle_turn(struct tw_idle *idle);
static inline void tw_idle_reset(struct tw_idle *idle)
{
	idle->empty_turns = 0;
}

#endif
