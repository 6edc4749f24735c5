/* One repair server as the reader's thread sees it: connection, login, reads under way.
 *
 * Threads   the reader's own alone, but for `slots`, which pass to it and back with the rings.
 * Bounds    reads under way are slots; there is no other buffer than one head each way and what is read ahead. */
#ifndef TW_FABRIC_TCP_READER_CONN_H
#define TW_FABRIC_TCP_READER_CONN_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/spsc.h"
#include "fabric/read_slots.h"
#include "fabric/reader.h"
#include "fabric/repair_wire.h"

struct tw_reader_end { /* element of the ring back to the hot thread */
	uint32_t slot;
	uint32_t len_bytes;
	enum tw_read_status status;
};

#define TW_CONN_IN_BYTES 16384u

enum tw_conn_state {
	TW_CONN_DOWN = 0, /* until retry_at_ns */
	TW_CONN_CONNECTING,
	TW_CONN_LOGIN, /* sent or being sent, not answered */
	TW_CONN_UP
};

struct tw_conn {
	enum tw_conn_state state;
	int fd; /* -1: none */
	uint32_t index;
	uint32_t interest; /* epoll events asked for */
	uint64_t retry_at_ns;
	struct tw_read_backoff backoff;
	uint64_t deadline_ns; /* connecting, login, or the next whole reply; UINT64_MAX: none */
	const struct tw_counters *counters; /* NULL: none */

	/* reads under way, oldest first: a ring of slot numbers, free-running indices */
	uint32_t *fifo;
	uint32_t first, unsent, last; /* first <= unsent <= last */
	uint32_t head_sent;           /* bytes of the head at `unsent` that are out */

	/* what comes in: a head, then its bytes straight into the slot */
	uint32_t head_got, body_got, body_bytes;
	uint32_t in_at, in_end;       /* of `in`: what was read ahead */
	uint8_t in[TW_CONN_IN_BYTES]; /* several small replies cost one recv(2) */
	_Alignas(8) uint8_t head[TW_RW_HEAD_BYTES];
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): grouped by who writes */
struct tw_tcp_reader {
	struct tw_reader base;
	/* hot thread */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_read_slots slots;
	uint64_t called_ns; /* when the reader's thread was called last, mono */
	uint64_t pause_ns;  /* from then to the next time, at least */
	bool gathered;      /* something of `posts` waits for that */

	/* both */
	struct tw_spsc posts; /* of slot numbers, to the reader's thread */
	struct tw_spsc ends;  /* of struct tw_reader_end, back */
	_Alignas(TW_CACHE_PAIR_BYTES) _Atomic bool stop;
	_Atomic uint32_t up;

	/* const after open */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_reader_conf conf;
	struct tw_reader_server servers[TW_READER_MAX_SERVERS];
	uint32_t ring_capacity;
	void *post_memory, *end_memory;
	int epoll_fd, event_fd;
	pthread_t thread;
	bool started;
	sem_t ready; /* the thread has set start_status */
	int start_status;
	struct tw_error start_err;

	/* the reader's thread */
	_Alignas(TW_CACHE_PAIR_BYTES) struct tw_conn conns[TW_READER_MAX_SERVERS];
};

void tw_conn_init(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t index,
		  uint32_t *fifo);
/* A slot that was posted; ends it at once where the server is not up. */
void tw_conn_take(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t slot,
		  uint64_t now_ns);
/* What epoll reported. */
void tw_conn_events(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t events,
		    uint64_t now_ns);
/* Connects, gives up, sends what is unsent; returns when it has to be called next (mono). */
uint64_t tw_conn_turn(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns);
void tw_conn_close(struct tw_conn *conn, struct tw_tcp_reader *reader);

#endif
