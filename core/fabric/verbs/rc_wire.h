/* Repair over RC on the wire, beyond what it shares with TCP (fabric/repair_wire.h): docs/WIRE.md, "Repair over
 * RC".
 *
 * Hello     private data of the connection request: which channels the client is after, because that
 *           decides which protection domain its queue pair lies in; and, by the minor version, that the
 *           server may ask its device whether it is still there.
 * Grants    behind the head of a good LOGIN_REPLY: for each channel where its history lies, or that it is
 *           served.  All of a reply is validated before any of it is used.
 * Threads   pure functions. */
#ifndef TW_FABRIC_VERBS_RC_WIRE_H
#define TW_FABRIC_VERBS_RC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/repair_wire.h"

#define TW_RC_HELLO_MAGIC    0x31435754u /* "TWC1" in memory order */
#define TW_RC_HELLO_MINOR    1u          /* 1: its queue pair takes RDMA WRITEs of no bytes */
#define TW_RC_HELLO_BYTES    16u
#define TW_RC_GRANT_BYTES    64u
#define TW_RC_CHANNELS_MAX   256u /* of one server */
#define TW_RC_LOGIN_MAX      (TW_RW_HEAD_BYTES + TW_RC_CHANNELS_MAX * TW_RC_GRANT_BYTES)
#define TW_RC_CREDITS        8u           /* requests of a client that have no answer yet */
#define TW_RC_UNITS_MAX      (1ull << 40) /* of a log */
#define TW_RC_GRANT_ONESIDED 1u           /* flags */

struct tw_rc_hello_head {
	uint32_t magic;
	uint8_t version_major, version_minor; /* TW_RW_WIRE_MAJOR, TW_RC_HELLO_MINOR */
	uint16_t channel;                     /* of the set that is meant; 0: whatever there is */
	uint64_t reserved;
};

struct tw_rc_grant_head {
	uint16_t channel;
	uint16_t flags;
	uint32_t publisher;
	uint64_t session;
	uint64_t control_addr, log_addr;
	uint64_t units; /* of the log */
	uint32_t rkey;
	uint32_t reserved;
	uint64_t more[2]; /* zero */
};
_Static_assert(sizeof(struct tw_rc_hello_head) == TW_RC_HELLO_BYTES, "16 bytes");
_Static_assert(sizeof(struct tw_rc_grant_head) == TW_RC_GRANT_BYTES, "64 bytes");
_Static_assert(offsetof(struct tw_rc_grant_head, rkey) == 40, "rkey");

/* What a client may do with a channel.  Where it is not one-sided everything behind that is 0.  Session 0: no life
 * has begun in that memory yet; the first one may be read. */
struct tw_rc_grant {
	uint16_t channel;
	bool one_sided;
	uint32_t publisher, rkey;
	uint64_t session, control_addr, log_addr, units;
};

struct tw_rc_hello {
	uint16_t channel;
	bool takes_probes; /* RDMA WRITEs of no bytes */
};

void tw_rc_put_hello(struct tw_rc_hello_head *head, uint16_t channel);
enum tw_rw_verdict tw_rc_parse_hello(const void *data, size_t len_bytes, struct tw_rc_hello *out);

/* Fills in `out` (TW_RC_LOGIN_MAX); returns its bytes.  count is 0 unless result is TW_LOGIN_OK. */
uint32_t tw_rc_put_login_reply(void *out, uint16_t environment, enum tw_rw_login result,
			       const struct tw_rc_grant *grants, uint32_t count);
/* grants has room for TW_RC_CHANNELS_MAX. */
enum tw_rw_verdict tw_rc_parse_login_reply(const void *data, size_t len_bytes, uint16_t environment,
					   enum tw_rw_login *result, struct tw_rc_grant *grants,
					   uint32_t *count);

#endif
