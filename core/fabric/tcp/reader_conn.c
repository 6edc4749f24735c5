/* A reader's connection to one repair server.
 *
 * Life      DOWN, CONNECTING, LOGIN, UP; anything that is wrong leads back to DOWN, ends every read under way as
 *           BROKEN and waits (struct tw_read_backoff).  The first good reply makes the wait short again; a login alone does not, or a server that logs in and then lies would
 *           be asked for ever at the shortest interval.
 * Time-out  the oldest read has to be answered whole within idle_timeout_ns from when it became the
 *           oldest: a server that drips is as late as one that is silent. */
#include "fabric/tcp/reader_conn.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "fabric/tcp/tcp.h"

#define SEND_HEADS   16u /* in one send(2) */
#define TURN_REPLIES 16u

static void count(const struct tw_conn *conn, unsigned int counter, uint64_t n)
{
	tw_reader_count(conn->counters, counter, n);
}

static struct tw_read_slot *slot_at(const struct tw_conn *conn, const struct tw_tcp_reader *reader,
				    uint32_t at)
{
	return &reader->slots.slots[conn->fifo[at & (reader->ring_capacity - 1)]];
}

/* The ring has room for every slot, so that a push cannot fail. */
static void end_slot(const struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t slot,
		     enum tw_read_status status, uint32_t len_bytes)
{
	struct tw_reader_end end = { .slot = slot, .len_bytes = len_bytes, .status = status };
	tw_reader_count_end(conn->counters, status);
	TW_ASSERT(tw_spsc_push(&reader->ends, &end));
}

static void end_oldest(struct tw_conn *conn, struct tw_tcp_reader *reader,
		       enum tw_read_status status, uint32_t len_bytes)
{
	uint32_t slot = conn->fifo[conn->first & (reader->ring_capacity - 1)];
	conn->first++;
	end_slot(conn, reader, slot, status, len_bytes);
}

static void set_up(struct tw_conn *conn, struct tw_tcp_reader *reader, bool up)
{
	/* relaxed: only this thread writes it, and nothing is ordered by it */
	uint32_t mask = atomic_load_explicit(&reader->up, memory_order_relaxed);
	mask = up ? mask | 1u << conn->index : mask & ~(1u << conn->index);
	atomic_store_explicit(&reader->up, mask, memory_order_relaxed);
	if (conn->counters != NULL) {
		tw_counter_set(conn->counters, TW_READER_up, up);
	}
}

static void close_socket(struct tw_conn *conn)
{
	if (conn->fd >= 0) {
		close(conn->fd); /* epoll forgets it */
	}
	conn->fd = -1;
	conn->interest = 0;
}

static void fail(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns)
{
	close_socket(conn);
	set_up(conn, reader, false);
	conn->state = TW_CONN_DOWN;
	conn->unsent = conn->last;
	while (conn->first != conn->last) {
		end_oldest(conn, reader, TW_READ_BROKEN, 0);
	}
	conn->head_sent = conn->head_got = conn->body_got = conn->body_bytes = 0;
	conn->in_at = conn->in_end = 0;
	conn->deadline_ns = UINT64_MAX;
	conn->retry_at_ns = tw_read_backoff_fail(&conn->backoff, now_ns);
	count(conn, TW_READER_failures, 1);
}

static bool want(struct tw_conn *conn, const struct tw_tcp_reader *reader, uint32_t interest)
{
	struct epoll_event event = { .events = interest, .data.u32 = conn->index };
	if (interest == conn->interest) {
		return true;
	}
	int op = conn->interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	conn->interest = interest;
	return epoll_ctl(reader->epoll_fd, op, conn->fd, &event) == 0;
}

void tw_conn_init(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t index,
		  uint32_t *fifo)
{
	*conn = (struct tw_conn){
		.fd = -1,
		.index = index,
		.deadline_ns = UINT64_MAX,
		.counters = reader->conf.counters != NULL ? &reader->conf.counters[index] : NULL,
		.fifo = fifo,
	};
	tw_read_backoff_init(&conn->backoff, &reader->conf, (uint64_t)(uintptr_t)fifo);
}

void tw_conn_take(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t slot,
		  uint64_t now_ns)
{
	if (conn->state != TW_CONN_UP) {
		end_slot(conn, reader, slot, TW_READ_REFUSED, 0);
		return;
	}
	if (conn->first == conn->last) {
		conn->deadline_ns = now_ns + reader->conf.idle_timeout_ns;
	}
	conn->fifo[conn->last++ & (reader->ring_capacity - 1)] = slot;
	count(conn, TW_READER_reads, 1);
}

/* --- out --------------------------------------------------------------------------------------- */

/* false: the connection is lost. */
static bool send_reads(struct tw_conn *conn, struct tw_tcp_reader *reader)
{
	struct tw_rw_read_head heads[SEND_HEADS];
	while (conn->unsent != conn->last) {
		uint32_t n = 0;
		while (n < SEND_HEADS && conn->unsent + n != conn->last) {
			tw_rw_put_read(&heads[n], &slot_at(conn, reader, conn->unsent + n)->read);
			n++;
		}
		uint32_t bytes = n * TW_RW_HEAD_BYTES - conn->head_sent;
		int sent = tw_tcp_send(conn->fd, (const uint8_t *)heads + conn->head_sent, bytes);
		if (sent == TW_TCP_AGAIN) {
			return want(conn, reader, EPOLLIN | EPOLLOUT);
		}
		if (sent < 0) {
			return false;
		}
		uint32_t done = conn->head_sent + (uint32_t)sent;
		conn->unsent += done / TW_RW_HEAD_BYTES;
		conn->head_sent = done % TW_RW_HEAD_BYTES;
	}
	return want(conn, reader, EPOLLIN);
}

static bool send_login(struct tw_conn *conn, struct tw_tcp_reader *reader)
{
	struct tw_rw_login_head head;
	tw_rw_put_login(&head, reader->conf.environment, reader->conf.name);
	while (conn->head_sent < sizeof(head)) {
		int sent = tw_tcp_send(conn->fd, (const uint8_t *)&head + conn->head_sent,
				       (uint32_t)sizeof(head) - conn->head_sent);
		if (sent == TW_TCP_AGAIN) {
			return want(conn, reader, EPOLLIN | EPOLLOUT);
		}
		if (sent < 0) {
			return false;
		}
		conn->head_sent += (uint32_t)sent;
	}
	return want(conn, reader, EPOLLIN);
}

/* --- in ---------------------------------------------------------------------------------------- */

static bool login_answered(struct tw_conn *conn, struct tw_tcp_reader *reader)
{
	enum tw_rw_login result;
	if (tw_rw_parse_login_reply(conn->head, sizeof(conn->head), reader->conf.environment,
				    &result) != TW_RW_WELL_FORMED) {
		count(conn, TW_READER_malformed, 1);
		return false;
	}
	if (result != TW_LOGIN_OK) {
		count(conn, TW_READER_logins_refused, 1);
		tw_read_backoff_longest(&conn->backoff);
		return false;
	}
	conn->state = TW_CONN_UP;
	conn->deadline_ns = UINT64_MAX;
	conn->head_sent = conn->head_got = 0;
	set_up(conn, reader, true);
	count(conn, TW_READER_logins, 1);
	return true;
}

static void reply_is_whole(struct tw_conn *conn, struct tw_tcp_reader *reader,
			   enum tw_read_status status, uint64_t now_ns)
{
	const struct tw_read_slot *slot = slot_at(conn, reader, conn->first);
	if (conn->counters != NULL) {
		tw_hist_record(&conn->counters->hists[TW_READER_HIST_round_trip],
			       (int64_t)(now_ns - slot->posted_ns));
	}
	count(conn, TW_READER_bytes, conn->body_bytes);
	uint32_t bytes = conn->body_bytes;
	conn->head_got = conn->body_got = conn->body_bytes = 0;
	tw_read_backoff_reset(&conn->backoff);
	end_oldest(conn, reader, status, bytes);
	conn->deadline_ns =
		conn->first == conn->last ? UINT64_MAX : now_ns + reader->conf.idle_timeout_ns;
}

/* A whole head has come in. */
static bool head_is_in(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns)
{
	enum tw_read_status status;
	if (conn->state == TW_CONN_LOGIN) {
		return login_answered(conn, reader);
	}
	/* an answer to what was not asked, or not yet in whole */
	if (conn->first == conn->unsent ||
	    tw_rw_parse_reply(conn->head, sizeof(conn->head),
			      &slot_at(conn, reader, conn->first)->read, &status,
			      &conn->body_bytes) != TW_RW_WELL_FORMED) {
		count(conn, TW_READER_malformed, 1);
		return false;
	}
	if (conn->body_bytes == 0) {
		reply_is_whole(conn, reader, status, now_ns);
	}
	return true;
}

/* Takes some of what has come, as recv(2): what was read ahead, else the kernel is asked, for all that there
 * is room for where little is wanted. */
static int take(struct tw_conn *conn, void *to, uint32_t len_bytes)
{
	if (conn->in_at == conn->in_end) {
		if (len_bytes >= TW_CONN_IN_BYTES / 2) {
			return tw_tcp_recv(conn->fd, to, len_bytes);
		}
		int got = tw_tcp_recv(conn->fd, conn->in, TW_CONN_IN_BYTES);
		if (got < 0) {
			return got;
		}
		conn->in_at = 0;
		conn->in_end = (uint32_t)got;
	}
	uint32_t ahead = conn->in_end - conn->in_at;
	uint32_t n = len_bytes < ahead ? len_bytes : ahead;
	memcpy(to, conn->in + conn->in_at, n);
	conn->in_at += n;
	return (int)n;
}

/* Reads what there is, but so many replies in a turn that no server keeps the thread to itself. */
static bool receive(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns)
{
	uint32_t replies = 0;
	while (replies < TURN_REPLIES || conn->in_at < conn->in_end) {
		if (conn->head_got < sizeof(conn->head)) {
			int got = take(conn, conn->head + conn->head_got,
				       (uint32_t)sizeof(conn->head) - conn->head_got);
			if (got < 0) {
				return got == TW_TCP_AGAIN;
			}
			conn->head_got += (uint32_t)got;
			if (conn->head_got < sizeof(conn->head)) {
				continue;
			}
			if (!head_is_in(conn, reader, now_ns)) {
				return false;
			}
			if (conn->body_bytes == 0) {
				replies++;
				continue;
			}
		}
		uint8_t *data = slot_at(conn, reader, conn->first)->data;
		int got = take(conn, data + conn->body_got, conn->body_bytes - conn->body_got);
		if (got < 0) {
			return got == TW_TCP_AGAIN;
		}
		conn->body_got += (uint32_t)got;
		if (conn->body_got == conn->body_bytes) {
			reply_is_whole(conn, reader, TW_READ_OK, now_ns);
			replies++;
		}
	}
	return true;
}

/* --- turns ------------------------------------------------------------------------------------- */

static bool connected(struct tw_conn *conn, struct tw_tcp_reader *reader)
{
	int error = 0;
	socklen_t len = sizeof(error);
	if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
		return false;
	}
	conn->state = TW_CONN_LOGIN;
	return send_login(conn, reader);
}

static bool start(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns)
{
	const struct tw_reader_server *server = &reader->servers[conn->index];
	count(conn, TW_READER_connects, 1);
	conn->fd = tw_tcp_socket();
	if (conn->fd < 0) {
		return false;
	}
	tw_tcp_tune(conn->fd, reader->conf.tos, reader->conf.priority);
	conn->state = TW_CONN_CONNECTING;
	conn->deadline_ns = now_ns + reader->conf.connect_timeout_ns;
	if (tw_tcp_connect(conn->fd, server->addr, server->port) == 0) {
		return connected(conn, reader);
	}
	return errno == EINPROGRESS && want(conn, reader, EPOLLOUT);
}

void tw_conn_events(struct tw_conn *conn, struct tw_tcp_reader *reader, uint32_t events,
		    uint64_t now_ns)
{
	bool well = true;
	switch (conn->state) {
	case TW_CONN_DOWN:
		return; /* closed since epoll saw it */
	case TW_CONN_CONNECTING:
		well = connected(conn, reader);
		break;
	case TW_CONN_LOGIN:
		if ((events & EPOLLOUT) != 0) {
			well = send_login(conn, reader);
		}
		if (well && (events & ~(uint32_t)EPOLLOUT) != 0) {
			well = receive(conn, reader, now_ns);
		}
		break;
	case TW_CONN_UP:
		/* what is unsent is the turn's */
		if ((events & ~(uint32_t)EPOLLOUT) != 0) {
			well = receive(conn, reader, now_ns);
		}
		break;
	}
	if (!well) {
		fail(conn, reader, now_ns);
	}
}

uint64_t tw_conn_turn(struct tw_conn *conn, struct tw_tcp_reader *reader, uint64_t now_ns)
{
	bool well = true;
	if (conn->state == TW_CONN_DOWN) {
		if (now_ns < conn->retry_at_ns) {
			return conn->retry_at_ns;
		}
		well = start(conn, reader, now_ns);
	} else if (now_ns >= conn->deadline_ns) {
		count(conn, TW_READER_timeouts, 1);
		well = false;
	} else if (conn->state == TW_CONN_UP && conn->unsent != conn->last) {
		well = send_reads(conn, reader);
	}
	if (!well) {
		fail(conn, reader, now_ns);
	}
	return conn->state == TW_CONN_DOWN ? conn->retry_at_ns : conn->deadline_ns;
}

void tw_conn_close(struct tw_conn *conn, struct tw_tcp_reader *reader)
{
	close_socket(conn);
	set_up(conn, reader, false);
	conn->state = TW_CONN_DOWN;
}
