/* The client of repair over RC, inside.  What it promises: fabric/reader.h.
 *
 * Threads   The cold thread connects, logs in, hears what the connection manager and the device say, destroys and begins again.
 *           The hot thread posts to the queue pair and polls its completions, and nobody else does
 *           while it may.
 * Hands     A connection is the cold thread's until it says `usable`.  The hot thread takes hold of it (`busy`)
 *           with the first read, and lets go when none is outstanding: both say what they do before they look
 *           at what the other one does, so that at least one of them sees the other.  Where the queue pair
 *           fails while it is held, the hot thread says `failed` and touches it no more; the cold one
 *           destroys it and says `dead`; only then do the reads end, because only then nothing can be
 *           written into their slots any more.
 * Ordering  RC1 pairs with RC2: a connection that is usable has its queue pair and its grants.
 *           RC3 pairs with RC4: see Hands.
 *           RC5 pairs with RC6: the hot thread has done with the queue pair, and why.
 *           RC7 pairs with RC8: the queue pair has been destroyed.
 *           RC9 pairs with RC10: the hot thread has let go.
 *           RC11 pairs with RC12: `stop`; only its value counts. */
#ifndef TW_FABRIC_VERBS_RC_READER_H
#define TW_FABRIC_VERBS_RC_READER_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fabric/read_slots.h"
#include "fabric/verbs/rc_plan.h"
#include "fabric/verbs/rc_qp.h"
#include "fabric/verbs/rc_wire.h"

/* Beside a slot's bytes: a control line before and after, the head of a request and of its reply. */
struct tw_rc_aux {
	struct tw_wire_control before, after;
	uint8_t request[TW_RW_HEAD_BYTES], reply[TW_RW_HEAD_BYTES];
};
/* Of a connection: its login. */
struct tw_rc_login {
	uint8_t request[TW_RW_HEAD_BYTES];
	uint8_t reply[TW_RC_LOGIN_MAX];
};
_Static_assert(sizeof(struct tw_rc_aux) == 256 && sizeof(struct tw_rc_login) % 64 == 0, "units");

enum tw_rc_op_state {
	TW_RC_OP_UNSENT = 0,
	TW_RC_OP_READING, /* a leg of its chain is out */
	TW_RC_OP_ASKED,   /* a request is out: its send and the reply to it are awaited */
	TW_RC_OP_DONE
};
struct tw_rc_op { /* of a slot; the hot thread's */
	enum tw_rc_op_state state;
	enum tw_read_status status;
	uint32_t len_bytes;
	uint32_t pending;         /* ASKED: completions awaited */
	uint32_t grant;           /* READING: index */
	struct tw_rc_chain chain; /* READING */
	uint32_t posted;          /* READING: steps of it */
	bool one_sided;
};

/* Why a connection has ended. */
enum tw_rc_why {
	TW_RC_WHY_FAILED = 0,
	TW_RC_WHY_TIMEOUT,   /* ours */
	TW_RC_WHY_STUCK,     /* ours: READs that neither end nor fail */
	TW_RC_WHY_SILENT,    /* retransmissions exceeded */
	TW_RC_WHY_NOT_READY, /* receiver not ready for too long */
	TW_RC_WHY_ACCESS,    /* remote access error, or remote invalid request */
	TW_RC_WHY_MALFORMED,
	TW_RC_WHY_HUNG_UP,
	TW_RC_WHY_LIFE, /* what it had a key to has ended */
	TW_RC_WHY_DEVICE,
	TW_RC_WHY_QUEUES, /* the device says so of ours */
	TW_RC_WHY_ADDRESS /* the GID, LID or partition that it was made with is not ours any more */
};

enum tw_rc_conn_state {
	TW_RC_DOWN = 0, /* until retry_at_ns */
	TW_RC_ADDRESS,
	TW_RC_ROUTE,
	TW_RC_CONNECTING,
	TW_RC_LOGIN,
	TW_RC_UP,
	TW_RC_CLOSING, /* broken while the hot thread held it: until that has done with it */
	TW_RC_GONE     /* destroyed: until the hot thread has ended its reads and let go */
};

struct tw_rc_device {                /* a device that some connection uses, or has used */
	struct ibv_context *context; /* this reader's own; NULL: free place */
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* the slab */
	uint32_t users;
	uint32_t initiator; /* READs that one of its queue pairs can have under way */
	bool removed;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): grouped by who writes */
struct tw_rc_conn {
	/* the cold thread's */
	enum tw_rc_conn_state state;
	uint32_t index;
	struct rdma_cm_id *id;
	struct tw_rc_device *device;
	uint64_t retry_at_ns, deadline_ns;
	struct tw_read_backoff backoff;
	struct tw_rc_login *login;   /* in the slab */
	struct tw_verbs_place place; /* from RTR on */
	bool login_sent, login_answered;
	uint32_t login_bytes;
	const struct tw_counters *counters; /* NULL: none */

	/* const while usable, but for the life of a grant that had none: the hot thread's */
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint32_t lkey, depth; /* READs under way */
	struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	uint32_t grant_count;

	/* both: who writes them stands in front */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic bool usable; /* cold */
	_Atomic bool dead;                                 /* cold */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic bool busy;   /* hot */
	_Atomic bool failed;                               /* hot */
	_Atomic bool good;                                 /* hot: a read has been answered */
	enum tw_rc_why why;                                /* hot, before `failed` */

	/* the hot thread's */
	bool holds, gave_up; /* mirrors of busy and failed */
	uint32_t *fifo;      /* slots, oldest first; a ring with free-running indices */
	uint32_t first, unsent, last;
	uint32_t reads_out, asked_out;
	uint64_t progress_ns;                   /* when a read, or a leg of one, ended last */
	uint64_t published[TW_RC_CHANNELS_MAX]; /* as last read, by grant; anew with each hold */
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): grouped by who writes */
struct tw_rc_reader {
	struct tw_reader base;
	/* hot thread */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_read_slots slots;
	struct tw_rc_op *ops; /* by slot */
	uint32_t turn;        /* which connection is looked at first */

	/* both */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic uint32_t up;
	_Atomic bool stop;

	/* const after open */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_reader_conf conf;
	struct tw_reader_server servers[TW_READER_MAX_SERVERS];
	struct tw_rc_aux *aux; /* by slot, in the slab */
	uint32_t ring_capacity;
	struct rdma_event_channel *events;
	int epoll_fd, event_fd;
	pthread_t thread;
	bool started;

	/* the cold thread */
	struct tw_rc_device devices[TW_READER_MAX_SERVERS];
	struct tw_rc_conn *conns; /* server_count of them */
};

/* rc_conn.c, the cold thread.  Connects, gives up, destroys; returns when it has to be called next. */
uint64_t tw_rc_conn_turn(struct tw_rc_conn *conn, struct tw_rc_reader *reader, uint64_t now_ns);
void tw_rc_conn_event(struct tw_rc_conn *conn, struct tw_rc_reader *reader,
		      enum rdma_cm_event_type event, int status, uint64_t now_ns);
/* The hot thread does not run any more. */
void tw_rc_conn_close(struct tw_rc_conn *conn, struct tw_rc_reader *reader);

void tw_rc_device_release(struct tw_rc_device *device); /* an unused place is fine */
/* Takes the asynchronous events of a device, and ends the connections that one of them is about. */
void tw_rc_device_events(struct tw_rc_device *device, struct tw_rc_reader *reader, uint64_t now_ns);

/* rc_hot.c, the hot thread. */
bool tw_rc_hot_post(struct tw_reader *reader, const struct tw_read *read);
bool tw_rc_hot_poll(struct tw_reader *reader, struct tw_read_done *done);
void tw_rc_hot_release(struct tw_reader *reader, const struct tw_read_done *done);

/* Of a failed completion. */
enum tw_rc_why tw_rc_why_of(enum ibv_wc_status status);

#endif
