/* What every read server does, whatever its clients are connected by: who may log in, which place of the counters
 * a client has, its pace, and asking the channel's source.
 *
 * Pace      a read waits until neither its client nor the server as a whole is in debt, then it is
 *           answered and charged.  A read that brings nothing is charged too, or asking for nothing
 *           would be free.
 * Places    counters have a place for each client; one that comes back gets its own again, anybody
 *           else the one that was left longest ago, counted anew.
 * Threads   the server's own alone, but for `infos` under its lock. */
#ifndef TW_FABRIC_READ_SERVICE_H
#define TW_FABRIC_READ_SERVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bucket.h"
#include "fabric/reader.h"
#include "fabric/repair_wire.h"

/* Connections beyond max_clients: what has not logged in yet, and what is being told that it may not. */
#define TW_SERVER_EXTRA 16u
#define TW_NO_PLACE     UINT32_MAX

struct tw_read_info { /* of a place */
	struct tw_read_client_info client;
	bool revoke; /* somebody wants it gone */
};

struct tw_read_service {
	struct tw_bucket bucket; /* of all clients */
	uint32_t logged_in;

	/* const after init */
	struct tw_read_server_conf conf; /* arrays are ours */
	struct tw_read_server_channel *channels;
	struct tw_counters *places; /* max_clients */

	pthread_mutex_t lock; /* of infos: the server's thread writes, any other may read */
	struct tw_read_info *infos;
};

struct tw_read_party { /* a client, as far as it does not matter how it is connected */
	uint32_t addr;
	uint16_t port;
	uint32_t place;     /* in the counters; TW_NO_PLACE: not logged in */
	uint64_t slowed_ns; /* since when every read of it has had to wait; 0: has not */
	bool waits;         /* its oldest read has been counted as paced */
	struct tw_bucket bucket;
};

int tw_read_service_init(struct tw_read_service *service, const struct tw_read_server_conf *conf,
			 struct tw_error *err) TW_MUST_USE;
void tw_read_service_fini(struct tw_read_service *service); /* after a failed init, too */
void tw_read_party_begin(struct tw_read_party *party, const struct tw_read_service *service,
			 uint32_t addr, uint16_t port, uint64_t now_ns);

/* Counts the refusal or logs it in.  A login that is not well-formed but for its version is the caller's. */
enum tw_rw_login tw_read_service_login(struct tw_read_service *service, struct tw_read_party *party,
				       uint16_t environment, const char *name);
void tw_read_service_logout(struct tw_read_service *service, struct tw_read_party *party);
/* Asks the source; charges and counts. */
enum tw_read_status tw_read_service_read(struct tw_read_service *service,
					 struct tw_read_party *party, const struct tw_read *read,
					 uint8_t *dst, uint32_t *bytes);

enum tw_read_pace { TW_PACE_GO, TW_PACE_WAIT, TW_PACE_REVOKE };
/* Whether its oldest read may be answered; WAIT: not before *again_ns. */
enum tw_read_pace tw_read_service_pace(struct tw_read_service *service, struct tw_read_party *party,
				       uint64_t now_ns, uint64_t *again_ns);

void tw_read_service_count(const struct tw_read_service *service, unsigned int counter);
/* The same thing of the server as a whole and of the client. */
void tw_read_service_count_both(const struct tw_read_service *service,
				const struct tw_read_party *party, unsigned int of_server,
				unsigned int of_client, uint64_t n);

/* Any thread. */
void tw_read_service_client(struct tw_read_service *service, uint32_t index,
			    struct tw_read_client_info *out);
void tw_read_service_revoke(struct tw_read_service *service, uint32_t index);
/* Server's thread: whether that place was to be revoked; asks once. */
bool tw_read_service_is_revoked(struct tw_read_service *service, const struct tw_read_party *party);

/* The thread stands back for live data where it has no CPU of its own: a batch thread with a nice value above
 * the one that it has inherited, whatever that is: of a fixed one nobody knows how far back it is. */
int tw_read_server_stand_back(int cpu, struct tw_error *err) TW_MUST_USE;

#endif
