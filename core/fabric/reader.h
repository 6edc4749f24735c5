/* Reading ranges of publishers' histories: one interface, several ways: TCP (core/fabric/tcp) and verbs RC
 * (core/fabric/verbs: RDMA READ, or SEND/RECV where a server wants that).
 *
 * Client     tw_reader: posts reads to a list of servers, polls what ended.  Connecting, login and back-off
 *            happen on the reader's own thread.
 *            TCP: so does every socket call; post and poll are two single-producer single-consumer
 *            rings.  They enter the kernel for one write(2) to an eventfd: at once for the first read after
 *            a pause, not for each of a burst: those that follow go out together (gather_ns).
 *            RC: post and poll talk to the device themselves; the kernel is entered for one write(2)
 *            where a connection has broken.
 * Server     tw_read_server: a thread of the publisher that answers reads from history logs, obeying
 *            the intent rule as any reader does, within a rate, and never in the hot thread's way: it
 *            reads memory and takes no lock, and its thread stands back for others (SCHED_BATCH, a
 *            higher nice value) unless it has a CPU of its own.
 * Fairness   the server answers its clients in turn, one reply each.  The client keeps a slot in
 *            reserve for each server that has none, so that one that sits on its reads never stops
 *            reads from another.
 * Wire       docs/WIRE.md, "Repair over TCP" and "Repair over RC": login (magic, version, environment, client
 *            name), then requests and replies of fixed 64-byte heads, little-endian; a reply's bytes follow
 *            its head.
 * Trust      both sides validate every byte; who breaks the rules loses its connection.
 * Kept apart from core/protocol: the structs here are the fabric's own and as small as the wire's. */
#ifndef TW_FABRIC_READER_H
#define TW_FABRIC_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/counters.h"
#include "tidewire/error.h"

#define TW_READER_MAX_SERVERS 16u
#define TW_READER_MAX_SLOTS   4096u
#define TW_READ_MAX_BYTES     65536u
#define TW_READ_SMALL_BYTES \
	8192u /* a datagram of 4096 bytes and its neighbours, or several of 1024 */
#define TW_READ_NAME_BYTES 64u

struct tw_read {
	uint64_t id; /* the caller's: comes back with the reply */
	uint32_t server;
	uint16_t channel;
	bool by_seq; /* begin and end are message numbers, and `publisher` is not looked at */
	uint64_t session;
	uint32_t publisher;
	uint64_t begin, end; /* log units, or message numbers: [begin, end) */
};

enum tw_read_status {
	TW_READ_OK = 0,
	TW_READ_GONE,    /* overwritten, or of another life: this server will never have it */
	TW_READ_REFUSED, /* not logged in, or the channel is not served */
	TW_READ_BUSY,    /* not published yet: ask again */
	TW_READ_BROKEN,  /* connection lost, malformed reply, or no reply within the time-out */
	TW_READ_STATUSES
};

struct tw_read_done {
	uint64_t id;
	enum tw_read_status status;
	uint32_t server;     /* as in the read */
	uint16_t channel;    /* as in the read */
	const uint8_t *data; /* 64-byte aligned; valid until tw_reader_release() of this one */
	uint32_t len_bytes;  /* a multiple of 64; 0 unless OK */
	uint32_t slot;
	bool one_sided; /* by RDMA READ: no CPU of the server took part */
};

struct tw_reader_server {
	uint32_t addr;
	uint16_t port;
}; /* IPv4, host order */
struct tw_reader_conf {
	const struct tw_reader_server *servers;
	uint32_t server_count;
	uint16_t environment;
	/* of this client, for the server's counters and log: printable ASCII, no space, quote or
	 * backslash */
	char name[TW_READ_NAME_BYTES];
	uint32_t slots; /* replies that may be outstanding or unreleased; at least one a server */
	/* more of them, for reads by position of at most TW_READ_SMALL_BYTES: loss that is spread out
	 * is many small reads, and each waits for a round trip */
	uint32_t small_slots;
	/* back-off after a failure: doubles from min to max, begins anew with the first good reply */
	uint64_t connect_timeout_ns, retry_min_ns, retry_max_ns;
	uint64_t idle_timeout_ns; /* from one whole reply to the next while one is owed */
	/* TCP: the longest that a read is held back after one before it, to go out with all that are.  0: none
	 * is.  Else whoever posts has to poll: that is what sends them */
	uint64_t gather_ns;
	uint8_t tos;                        /* IP_TOS of the repair class */
	uint8_t priority;                   /* SO_PRIORITY, 0 to 6 */
	int cpu;                            /* -1: not pinned */
	const struct tw_counters *counters; /* TW_SET_reader, one for each server; NULL: none */
};

struct tw_reader;
struct tw_reader_ops {
	bool (*post)(struct tw_reader *reader, const struct tw_read *read);
	bool (*poll)(struct tw_reader *reader, struct tw_read_done *done);
	void (*release)(struct tw_reader *reader, const struct tw_read_done *done);
	uint32_t (*up)(const struct tw_reader *reader);
	void (*close)(struct tw_reader *reader);
};
struct tw_reader { /* first member of every implementation's reader */
	const struct tw_reader_ops *ops;
};

int tw_tcp_reader_open(struct tw_reader **reader_p, const struct tw_reader_conf *conf,
		       struct tw_error *err) TW_MUST_USE;
/* Servers on RDMA devices: conf.cpu and conf.priority are not looked at.  TW_EUNSUPPORTED: this host has no
 * RDMA device. */
int tw_rc_reader_open(struct tw_reader **reader_p, const struct tw_reader_conf *conf,
		      struct tw_error *err) TW_MUST_USE;
/* Asks each server by the first reader where that one is logged in there, else by the second: the same
 * servers in the same order.  Takes ownership of both, also on failure. */
int tw_reader_pair_open(struct tw_reader **reader_p, struct tw_reader *first,
			struct tw_reader *second, struct tw_error *err) TW_MUST_USE;

/* Hot thread.  false: no slot for that server now, or a read that no server could answer (an empty
 * range, more than TW_READ_MAX_BYTES).  Each read that was taken ends, once. */
static inline bool tw_reader_post(struct tw_reader *reader, const struct tw_read *read)
{
	return reader->ops->post(reader, read);
}
/* Hot thread.  At most one; false: none.  Reads of one server end in the order of their posts. */
static inline bool tw_reader_poll(struct tw_reader *reader, struct tw_read_done *done)
{
	return reader->ops->poll(reader, done);
}
/* Hot thread; each read that was polled, whatever its status. */
static inline void tw_reader_release(struct tw_reader *reader, const struct tw_read_done *done)
{
	reader->ops->release(reader, done);
}
/* Any thread: bit mask of servers that are logged in. */
static inline uint32_t tw_reader_up(const struct tw_reader *reader)
{
	return reader->ops->up(reader);
}
void tw_reader_close(struct tw_reader *reader); /* NULL ok; joins its thread */

/* --- server --------------------------------------------------------------------------------------- */

/* Where a channel's bytes come from; called on the server's thread.  By position: copies [begin, end) as it
 * lies in the log into `dst` (64-byte aligned), all of it or nothing.  by_seq: the whole datagrams that hold
 * those numbers or some of them, one after the other, from the first that is still there, as many as
 * fit.  Returns the bytes, a multiple of 64; 0: it has gone; TW_EBUSY: it is not there yet;
 * TW_ENOTFOUND: no such session or publisher; anything else is a refusal. */
typedef int (*tw_read_source_func)(void *ctx, const struct tw_read *read, void *dst,
				   uint32_t max_bytes);

struct tw_read_server_channel {
	uint16_t channel;
	/* RC: channels with the same number have the same readers, and nobody reads another set's memory */
	uint32_t readers;
	tw_read_source_func read;
	void *ctx;
	/* RC, one-sided: control line and log as they lie (docs/WIRE.md section 8), from open to close.
	 * NULL: this channel is served.  Registered for remote reading alone, and not written here. */
	void *memory;
	uint64_t memory_bytes;
};
struct tw_read_server_conf {
	uint32_t addr; /* IPv4 to listen on, host order */
	uint16_t port; /* 0: any */
	uint16_t environment;
	const struct tw_read_server_channel *channels;
	uint32_t channel_count;
	uint32_t max_clients;
	uint64_t max_bytes_per_s; /* all clients together, 0: no limit */
	/* who asks for more is slowed; one that leaves no pause between its reads for revoke_ns on end
	 * loses its connection and has to log in anew.  0: no limit; never */
	uint64_t client_max_bytes_per_s, revoke_ns;
	/* for a login, for the rest of a head, and for taking a whole reply: who needs longer is dropped.  A
	 * client that asks for nothing stays. */
	uint64_t idle_timeout_ns;
	uint8_t tos, priority; /* as in tw_reader_conf */
	int cpu;
	struct tw_counters counters;       /* TW_SET_read_server */
	const struct tw_counters *clients; /* TW_SET_read_client, max_clients of them */
};

struct tw_read_client_info {           /* who has, or had last, place `index` of the counters */
	char name[TW_READ_NAME_BYTES]; /* empty: nobody yet */
	uint32_t addr;
	uint16_t port;
	bool connected;
	uint64_t logins; /* changes whenever the rest does */
};

struct tw_read_server;
struct tw_read_server_ops {
	uint16_t (*port)(const struct tw_read_server *server);
	void (*client)(struct tw_read_server *server, uint32_t index,
		       struct tw_read_client_info *out);
	void (*revoke)(struct tw_read_server *server, uint32_t index);
	void (*close)(struct tw_read_server *server);
};
struct tw_read_server { /* first member of every implementation's server */
	const struct tw_read_server_ops *ops;
};
int tw_tcp_read_server_open(struct tw_read_server **server_p,
			    const struct tw_read_server_conf *conf,
			    struct tw_error *err) TW_MUST_USE;
/* On the RDMA device that has conf.addr; TW_ENOTFOUND: there is none. */
int tw_rc_read_server_open(struct tw_read_server **server_p, const struct tw_read_server_conf *conf,
			   struct tw_error *err) TW_MUST_USE;

static inline uint16_t tw_read_server_port(const struct tw_read_server *server) /* as bound */
{
	return server->ops->port(server);
}
/* Any thread; takes a lock that no hot thread does. */
static inline void tw_read_server_client(struct tw_read_server *server, uint32_t index,
					 struct tw_read_client_info *out)
{
	server->ops->client(server, index, out);
}
/* Any thread: whoever has that place now loses its connection, soon. */
static inline void tw_read_server_revoke(struct tw_read_server *server, uint32_t index)
{
	server->ops->revoke(server, index);
}
void tw_read_server_close(struct tw_read_server *server); /* NULL ok; joins its thread */

#endif
