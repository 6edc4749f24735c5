/* An RDMA device that is not there: what core/fabric/verbs calls of libibverbs and librdmacm, in the test
 * program itself, whose symbols win over the libraries'.  For what Soft-RoCE cannot show: removal, a
 * lost membership, inline sends, clocks, refusals, InfiniBand.
 *
 * Network   what is sent to a group comes, at once, to every queue pair of this process that is attached
 *           to it; what is sent on a connection comes to `on_send`, which may answer; an RDMA READ
 *           copies from this process' memory, an RDMA WRITE has to be one of no bytes.
 * Ledger    every object is counted, and what is destroyed too early, twice, without its events having been
 *           acknowledged, or used against the rules, is noted: fake_end() tells the first.
 * Poison    of a completion in error no field but wr_id, status, qp_num and vendor_err holds anything.
 * Threads   any: one lock.  `fake` is set before anything is opened, or between FAKE_LOCK and FAKE_UNLOCK. */
#ifndef TW_TESTS_FAKE_VERBS_H
#define TW_TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_NAME      "fake0"
#define FAKE_ADDRESS   0x0a4d0001u /* 10.77.0.1 */
#define FAKE_SENDER    0x0a4d0002u /* where datagrams come from */
#define FAKE_GID_INDEX 3
#define FAKE_RKEY      0x77u
#define FAKE_MLID      0xc003u
#define FAKE_QKEY      0x01234567u

enum fake_kind {
	FAKE_CONTEXT = 0,
	FAKE_PD,
	FAKE_MR,
	FAKE_CHANNEL, /* of completions */
	FAKE_CQ,
	FAKE_SRQ,
	FAKE_QP,
	FAKE_AH,
	FAKE_CM_CHANNEL,
	FAKE_CM_ID,
	FAKE_KINDS
};

struct fake_qp;
struct fake {
	/* what the device is */
	bool present, infiniband, address_gone;
	uint16_t pkeys[2]; /* network order is the fake's affair */
	uint32_t max_inline;
	uint64_t timestamp_mask, clock_khz; /* 0: no clock */
	uint64_t clock_offset;              /* ticks at the epoch */

	/* what it is to do; counts go down as it happens */
	bool refuse_send_only;
	unsigned int failing_joins;    /* so many end with an error */
	bool stall;                    /* what is sent stays in the queue */
	int send_cause, receive_cause; /* != 0: the next post is refused with it ... */
	unsigned int take;             /* ... behind so many of its chain */
	uint32_t gone; /* number of a queue pair whose other end is: sending ends it; 0: none */
	enum ibv_wc_status receive_status; /* != SUCCESS: of the next datagram's completion */
	uint64_t age_ns; /* how long before now datagrams have come, by its clock */
	/* what is sent on a connection; it may call fake_answer() */
	void (*on_send)(struct fake_qp *qp, const uint8_t *data, uint32_t bytes);

	/* what was seen */
	unsigned int live[FAKE_KINDS], made[FAKE_KINDS];
	unsigned int joins, full_joins, inlined, posted, reads, writes, connects, accepts;
	uint32_t largest_inlined, smallest_read; /* bytes; not inlined: read from memory */
	struct ibv_ah_attr ah;                   /* the last one made */
	uint16_t pkey_index;                     /* of the last queue pair that went to INIT */
	char order[256]; /* what was destroyed, a letter each: see fake_order */
	char fault[128]; /* the first against the rules */
};
extern struct fake fake;
extern pthread_mutex_t fake_lock; /* recursive */
#define FAKE_LOCK   ((void)pthread_mutex_lock(&fake_lock))
#define FAKE_UNLOCK ((void)pthread_mutex_unlock(&fake_lock))

/* A RoCE device at FAKE_ADDRESS without inline room and clock. */
void fake_begin(void);
/* NULL: nothing is left and nothing was against the rules. */
const char *fake_end(void);

/* The device goes: events to whoever hears them, and nothing of it works or comes back any more. */
void fake_remove(void);
/* Another one of that name is there. */
void fake_return(void);
/* To every context that the programs have opened. */
void fake_port_event(enum ibv_event_type type);
/* To the contexts of queue pairs of a type, about each of them; returns how many. */
unsigned int fake_queue_event(enum ibv_event_type type, enum ibv_qp_type of);
/* To every id that has joined; its membership is gone. */
unsigned int fake_lose_groups(int status);
/* To each id of a connection. */
unsigned int fake_cm_event(enum rdma_cm_event_type type);
/* Asks the one that listens for a connection; false: nobody does. */
bool fake_request(const void *hello, uint8_t bytes);
/* The queue pair that was made last; NULL: it is not there any more, nor is another. */
struct fake_qp *fake_newest(void);
uint32_t fake_number(const struct fake_qp *qp);
/* To one end of a connection: it was called `on_send` for, or is the newest. */
void fake_answer(struct fake_qp *qp, const void *data, uint32_t bytes);
unsigned int fake_live(enum fake_kind kind);
/* Ticks of the device's clock so long ago. */
uint64_t fake_ticks(uint64_t age_ns);

#endif
