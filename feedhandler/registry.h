/* The tables of inputs, session layers and protocols: a new one is a row here and a file beside it.
 *
 * Threads   read-only. */
#ifndef TW_FEEDHANDLER_REGISTRY_H
#define TW_FEEDHANDLER_REGISTRY_H

#include <stdio.h>

#include "feedhandler/input.h"
#include "feedhandler/protocol.h"
#include "feedhandler/session.h"

struct tw_site;
struct tw_site_feedhandler;

struct tw_input_kind {
	const char *name; /* key below feedhandlers[].input */
	const char *help;
	/* whether this feedhandler is configured for it */
	bool (*configured)(const struct tw_site_feedhandler *conf);
	int (*open)(struct tw_input **input_p, const struct tw_site *site,
		    const struct tw_site_feedhandler *conf, struct tw_error *err);
};

/* TW_ECONFIG lists what there is. */
int tw_registry_protocol(const struct tw_protocol **protocol_p, const char *name,
			 struct tw_error *err) TW_MUST_USE;
/* `name` NULL or empty: the protocol's usual one. */
int tw_registry_session(const struct tw_session **session_p, const char *name,
			const struct tw_protocol *protocol, struct tw_error *err) TW_MUST_USE;
int tw_registry_input(const struct tw_input_kind **kind_p, const struct tw_site_feedhandler *conf,
		      struct tw_error *err) TW_MUST_USE;

/* The tables as text, for --help. */
void tw_registry_print(FILE *out);

#endif
