/* One connection as the read server sees it: buffers, login, reads, pace.
 *
 * Threads   the server's own alone.
 * Bounds    each connection has IN_BYTES of requests, and room for one reply of the largest size or as many
 *           small ones as fit there; a request is taken only when there is room for the reply, so TCP
 *           itself holds a client back. */
#ifndef TW_FABRIC_TCP_READ_SERVER_CLIENT_H
#define TW_FABRIC_TCP_READ_SERVER_CLIENT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slab.h"
#include "fabric/read_service.h"

#define TW_SERVER_IN_BYTES (32u * TW_RW_HEAD_BYTES)

enum tw_client_state {
	TW_CLIENT_NONE = 0,
	TW_CLIENT_NEW,     /* connected; its login is awaited */
	TW_CLIENT_SERVED,  /* logged in */
	TW_CLIENT_LEAVING, /* refused: the answer goes out, then it is to close */
	TW_CLIENT_DRAINED  /* refused, the answer is out */
};

struct tw_client {
	enum tw_client_state state;
	int fd; /* -1: none */
	uint32_t index, interest;
	struct tw_read_party party;
	uint64_t next_ns;       /* its next turn; UINT64_MAX: when epoll reports something */
	uint64_t deadline_ns;   /* login, rest of a head, reply taken; UINT64_MAX: none */
	uint32_t in_at, in_end; /* requests received and not taken */
	uint32_t out_at, out_end;
	uint8_t *in;  /* TW_SERVER_IN_BYTES */
	uint8_t *out; /* a head and TW_READ_MAX_BYTES, 64-byte aligned */
};

struct tw_tcp_read_server {
	struct tw_read_server base;
	struct tw_read_service service;
	/* the server's thread */
	struct tw_client *clients; /* client_count of them */
	uint32_t client_count, open_count;
	uint32_t turn; /* who is served first in the next round */
	bool listening;

	/* const after open */
	uint8_t *buffers; /* of all connections; their pages come when they are used */
	int listen_fd, epoll_fd, event_fd;
	pthread_t thread;
	bool started;
	sem_t ready; /* the thread has set start_status */
	int start_status;
	struct tw_error start_err;
	_Atomic bool stop;
};

void tw_client_begin(struct tw_client *client, struct tw_tcp_read_server *server, int fd,
		     uint32_t addr, uint16_t port, uint64_t now_ns);
/* One reply of the largest size at most, or several small ones.  Returns when it wants the next turn: now_ns, later, or UINT64_MAX for when
 * epoll reports something. */
uint64_t tw_client_turn(struct tw_client *client, struct tw_tcp_read_server *server,
			uint64_t now_ns);
void tw_client_end(struct tw_client *client, struct tw_tcp_read_server *server);

#endif
