/* The server of repair over RC, inside.  What it promises: fabric/reader.h.
 *
 * Sets      Channels with the same readers share a protection domain, a completion queue and a shared receive
 *           queue; a client's queue pair lies in one of them.
 * Lives     a history's memory is registered for one life: when its control line names another, everybody
 *           of that set is sent away to log in anew, and then it is registered anew.
 * Device    the one that has the configured address.  When it is taken away all of this ends, and is made
 *           again as soon as there is one.
 * Threads   the server's own alone, but for what the service keeps under its lock. */
#ifndef TW_FABRIC_VERBS_RC_SERVER_H
#define TW_FABRIC_VERBS_RC_SERVER_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/slab.h"
#include "fabric/read_service.h"
#include "fabric/verbs/rc_qp.h"
#include "fabric/verbs/rc_wire.h"

enum tw_rc_client_state {
	TW_RC_CLIENT_NONE = 0,
	TW_RC_CLIENT_NEW,     /* accepted; its login is awaited */
	TW_RC_CLIENT_SERVED,  /* logged in: the access flags of its queue pair are REMOTE_READ */
	TW_RC_CLIENT_LEAVING, /* refused: the answer goes out, then it is to close */
	TW_RC_CLIENT_ENDING   /* its queue pair is in ERR; what it sends last is awaited */
};

#define TW_RC_OUTS      32u /* answers that may be under way, all clients together */
#define TW_RC_OUT_BYTES (TW_RW_HEAD_BYTES + TW_READ_MAX_BYTES)
#define TW_RC_NO_OUT    UINT32_MAX
/* In a wr_id: an answer to that client, a probe of it; else a receive buffer. */
#define TW_RC_SENT  (1ull << 32)
#define TW_RC_PROBE (1ull << 33)

struct tw_rc_set;

struct tw_rc_client {
	enum tw_rc_client_state state;
	uint32_t index;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct tw_rc_set *set;
	struct tw_verbs_place place;
	struct tw_read_party party;
	uint64_t next_ns;                 /* its next turn; UINT64_MAX: when something comes */
	uint64_t deadline_ns;             /* login, leaving, ending; UINT64_MAX: none */
	uint32_t requests[TW_RC_CREDITS]; /* receive buffers with what it asks for, oldest first */
	uint32_t request_count;
	bool sending; /* an answer is under way */
	bool probing; /* a probe is */
	bool takes_probes;
	bool broken; /* its queue pair, or it, has failed */
	bool malformed;
	uint32_t out; /* buffer of the answer under way; TW_RC_NO_OUT: none */
};

struct tw_rc_memory { /* of one channel */
	const struct tw_read_server_channel *channel;
	struct ibv_mr *mr;        /* NULL: the channel is served */
	struct tw_rc_grant grant; /* as it is given out now; session 0: there is no life */
};

struct tw_rc_set {
	struct tw_rc_server *server;
	uint32_t readers; /* as configured */
	struct ibv_pd *pd;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_comp_channel *completions;
	struct ibv_mr *mr; /* the slab, local alone */
	uint32_t buffers;  /* receive buffers in the shared queue */
	uint8_t *in;       /* of them, a head each; in the slab */
	struct tw_rc_memory *memories;
	uint32_t memory_count;
	uint32_t client_count; /* whose queue pairs lie in it */
	bool renewing;         /* everybody has to go before it is registered anew */
};

struct tw_rc_server {
	struct tw_read_server base;
	struct tw_read_service service;
	/* the server's thread */
	struct tw_rc_client *clients; /* client_count of them */
	uint32_t client_count, turn;
	uint32_t free_outs[TW_RC_OUTS], free_out_count;
	uint32_t responder;           /* READs of one queue pair that the device answers at once */
	struct rdma_cm_id *listen_id; /* NULL: no device now */
	struct ibv_context *context;  /* of its device, this server's own */
	bool removed;                 /* the device is being taken away */
	uint64_t reopen_ns, lives_ns; /* when to look again */
	uint64_t probe_ns;            /* clients are not probed before */
	struct tw_rc_set *sets;
	uint32_t set_count;

	/* const after open */
	struct tw_rc_memory *memories; /* of all sets */
	struct tw_slab slab;           /* what goes out, then for each set what comes in */
	uint32_t set_buffers;          /* receive buffers that a set may have */
	struct rdma_event_channel *events;
	int epoll_fd, event_fd;
	pthread_t thread;
	bool started;
	sem_t ready; /* the thread has set start_status */
	int start_status;
	struct tw_error start_err;
	_Atomic bool stop;
};

#define TW_RC_WAKE_EVENT  UINT32_MAX /* in the epoll set; below them the numbers of sets */
#define TW_RC_CM_EVENT    (UINT32_MAX - 1)
#define TW_RC_ASYNC_EVENT (UINT32_MAX - 2)

int tw_rc_server_watch(const struct tw_rc_server *server, int fd, uint32_t which,
		       struct tw_error *err) TW_MUST_USE;

/* rc_memory.c: what belongs to the device.  Opens listener and sets; nothing is left of it on failure. */
int tw_rc_device_open(struct tw_rc_server *server, struct tw_error *err) TW_MUST_USE;
void tw_rc_device_close(struct tw_rc_server *server); /* clients have ended */
/* Takes the device's asynchronous events. */
void tw_rc_server_events(struct tw_rc_server *server);
bool tw_rc_set_has_new_life(struct tw_rc_set *set);
/* Registers anew what has begun another life; nobody may be able to read the old one. */
int tw_rc_set_renew(struct tw_rc_set *set, struct tw_error *err) TW_MUST_USE;
void tw_rc_set_receive(struct tw_rc_set *set, uint32_t buffer); /* gives it back to the queue */

/* rc_server_client.c */
/* A connection request: takes it or rejects it. */
void tw_rc_client_begin(struct tw_rc_server *server, struct rdma_cm_id *id,
			const struct rdma_conn_param *param, uint64_t now_ns);
void tw_rc_client_sent(struct tw_rc_client *client, struct tw_rc_server *server, bool well);
void tw_rc_client_probed(struct tw_rc_client *client, bool well);
void tw_rc_client_asks(struct tw_rc_client *client, uint32_t buffer, uint32_t len_bytes);
/* One answer at most.  Returns when it wants the next turn. */
uint64_t tw_rc_client_turn(struct tw_rc_client *client, struct tw_rc_server *server,
			   uint64_t now_ns);
/* Its queue pair has failed, or cannot be reached any more: it goes with its next turn. */
void tw_rc_client_breaks(struct tw_rc_client *client);
/* Sends it away: its queue pair goes to ERR at once. */
void tw_rc_client_leave(struct tw_rc_client *client, struct tw_rc_server *server, uint64_t now_ns);
/* Destroys what is left of it. */
void tw_rc_client_destroy(struct tw_rc_client *client, struct tw_rc_server *server);

/* rc_server.c: takes what is in the set's completion queue. */
void tw_rc_set_drain(struct tw_rc_set *set);

#endif
