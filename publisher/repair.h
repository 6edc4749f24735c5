/* The repair service of a publisher: read servers over the histories of its channels: one over TCP, for whoever
 * has sockets alone, and on `verbs` one over RC on the same port number.
 *
 * Threads   each server's own thread reads histories and indices while the hot thread writes them, by the
 *           rules of protocol/history.h; it is the only thing that they share.  The main thread opens,
 *           ticks, closes.
 * Lives     a history's memory and its view are there from open to close; a new session begins a new
 *           life in the same memory, and the reading rule sees it. */
#ifndef TW_PUBLISHER_REPAIR_H
#define TW_PUBLISHER_REPAIR_H

#include "config/config.h"
#include "fabric/reader.h"
#include "publisher/channel.h"

enum tw_pub_repair_way { TW_PUB_REPAIR_TCP = 0, TW_PUB_REPAIR_RC, TW_PUB_REPAIR_WAYS };

struct tw_pub_repair_service { /* zeroed: there is none */
	struct tw_read_server *server;
	struct tw_counters counters;
	struct tw_counters *clients; /* max_clients of them */
	uint64_t *logged;     /* by client: the login that the log has told of; ~0: and its end */
	uint64_t logged_lost; /* devices lost that the log has told of */
	bool logged_gone;     /* and that the last one is not back */
};

struct tw_pub_repair { /* zeroed: there is none */
	struct tw_pub_repair_service ways[TW_PUB_REPAIR_WAYS];
	uint32_t max_clients;
};

/* "TCP", "RC". */
const char *tw_pub_repair_way_name(enum tw_pub_repair_way way);

/* Adds the counters of services with so many clients each, before seal. */
int tw_pub_repair_counters(struct tw_pub_repair *repair, struct tw_stats *stats, bool verbs,
			   uint32_t max_clients, struct tw_error *err) TW_MUST_USE;
/* After seal; channels must outlive the service. */
int tw_pub_repair_open(struct tw_pub_repair *repair, const struct tw_site *site,
		       const struct tw_site_publisher *conf, struct tw_pub_channel *channels,
		       uint32_t channel_count, struct tw_error *err) TW_MUST_USE;
/* Logs who has come and gone. */
void tw_pub_repair_tick(struct tw_pub_repair *repair);
void tw_pub_repair_close(struct tw_pub_repair *repair); /* a zeroed one is fine */

#endif
