/* Repair over TCP on the wire: docs/WIRE.md, "Repair over TCP".
 *
 * Every message is a head of 64 bytes and `bytes` more, which only a good reply has.  What a kind of
 * message does not use is zero, and a receiver refuses anything else: nothing can hide there, and a
 * later minor version can use it.
 * Every function here takes bytes from outside and looks at no more than it was given.
 * Threads   pure functions. */
#ifndef TW_FABRIC_REPAIR_WIRE_H
#define TW_FABRIC_REPAIR_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "fabric/reader.h"

#define TW_RW_WIRE_MAGIC 0x31525754u /* "TWR1" in memory order */
#define TW_RW_WIRE_MAJOR 1u
#define TW_RW_WIRE_MINOR 0u
#define TW_RW_HEAD_BYTES 64u
#define TW_RW_UNIT_BYTES 64u
#define TW_RW_NAME_BYTES 40u /* on the wire; without a NUL where all of it is used */

enum tw_rw_kind { TW_RW_LOGIN = 1, TW_RW_LOGIN_REPLY = 2, TW_RW_READ = 3, TW_RW_READ_REPLY = 4 };

enum tw_rw_login {
	TW_LOGIN_OK = 0,
	TW_LOGIN_ENVIRONMENT, /* another site, or test and production */
	TW_LOGIN_VERSION,     /* another major version */
	TW_LOGIN_FULL,        /* max_clients are logged in */
	TW_LOGIN_RESULTS
};

/* Common to all heads. */
struct tw_rw_lead { /* 16 bytes */
	uint32_t magic;
	uint8_t version_major;
	uint8_t version_minor;
	uint8_t kind;         /* enum tw_rw_kind */
	uint8_t status;       /* LOGIN_REPLY: enum tw_rw_login; READ_REPLY: enum tw_read_status */
	uint32_t bytes;       /* that follow the head: READ_REPLY with status OK; else 0 */
	uint16_t environment; /* LOGIN, LOGIN_REPLY */
	uint16_t channel;     /* READ */
};

struct tw_rw_login_head { /* LOGIN, LOGIN_REPLY (whose name is empty) */
	struct tw_rw_lead lead;
	uint64_t reserved;
	char name[TW_RW_NAME_BYTES]; /* of the client, padded with NUL */
};

struct tw_rw_read_head { /* READ, READ_REPLY (which has nothing but the id) */
	struct tw_rw_lead lead;
	uint64_t id;
	uint64_t session;
	uint32_t publisher; /* 0 with BY_SEQ */
	uint32_t flags;     /* 1: BY_SEQ */
	uint64_t begin, end;
	uint64_t reserved;
};
#define TW_RW_BY_SEQ 1u

_Static_assert(sizeof(struct tw_rw_lead) == 16, "16 bytes");
_Static_assert(sizeof(struct tw_rw_login_head) == TW_RW_HEAD_BYTES, "64 bytes");
_Static_assert(sizeof(struct tw_rw_read_head) == TW_RW_HEAD_BYTES, "64 bytes");
_Static_assert(offsetof(struct tw_rw_login_head, name) == 24, "name");
_Static_assert(offsetof(struct tw_rw_read_head, begin) == 40, "begin");

enum tw_rw_verdict {
	TW_RW_WELL_FORMED = 0,
	TW_RW_SHORT,   /* not a whole head yet */
	TW_RW_MAGIC,   /* not this protocol */
	TW_RW_VERSION, /* another major version */
	TW_RW_KIND,    /* not what may come here */
	TW_RW_FIELDS   /* fields that contradict themselves, or the request */
};

/* Writing: each fills in a whole head. */
void tw_rw_put_login(struct tw_rw_login_head *head, uint16_t environment, const char *name);
void tw_rw_put_login_reply(struct tw_rw_login_head *head, uint16_t environment,
			   enum tw_rw_login result);
void tw_rw_put_read(struct tw_rw_read_head *head, const struct tw_read *read);
void tw_rw_put_reply(struct tw_rw_read_head *head, uint64_t id, enum tw_read_status status,
		     uint32_t bytes);

/* Whether a name may be logged in with: 1 to TW_READ_NAME_BYTES - 1 printable characters without
 * space, quote and backslash.  It is cut to TW_RW_NAME_BYTES on the wire. */
bool tw_rw_name_holds(const char *name);

/* Server: a login.  For TW_RW_VERSION nothing is set; the environment is the caller's to judge. */
enum tw_rw_verdict tw_rw_parse_login(const void *data, size_t len_bytes, uint16_t *environment,
				     char name[TW_READ_NAME_BYTES]);
/* Client: the answer to a login. */
enum tw_rw_verdict tw_rw_parse_login_reply(const void *data, size_t len_bytes, uint16_t environment,
					   enum tw_rw_login *result);
/* Server: a read.  Its range is not empty and fits one reply; server is 0. */
enum tw_rw_verdict tw_rw_parse_read(const void *data, size_t len_bytes, struct tw_read *out);
/* Client: a reply to `asked`, the oldest read that has none.  *bytes follow. */
enum tw_rw_verdict tw_rw_parse_reply(const void *data, size_t len_bytes,
				     const struct tw_read *asked, enum tw_read_status *status,
				     uint32_t *bytes);

/* Whether any server could answer it. */
bool tw_rw_read_holds(const struct tw_read *read);

#endif
