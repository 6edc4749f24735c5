/* The parts of tw-fabric: listing devices, and trying multicast.
 * Threads   the main thread. */
#ifndef TW_TOOLS_FABRIC_TOOL_H
#define TW_TOOLS_FABRIC_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "fabric/fabric.h"

/* Devices, ports and GIDs of this machine. */
int tw_fabric_list(FILE *out, bool json, struct tw_error *err);

struct tw_probe_conf {
	bool verbs, json;
	struct tw_fabric_conf fabric;
	uint32_t groups[TW_FABRIC_MAX_LINES]; /* 0: no such line */
	uint32_t count, size_bytes, rate;     /* sending: datagrams on each line, a second */
	uint32_t wait_s;                      /* receiving: for the first one */
};

/* Sends; prints a summary.  TW_OK where every line has taken all. */
int tw_probe_send(const struct tw_probe_conf *conf, struct tw_error *err) TW_MUST_USE;
/* Receives one sender's run; prints a summary.  TW_OK where every line has brought all of it, else
 * TW_ETIMEOUT with what is missing and where to look. */
int tw_probe_receive(const struct tw_probe_conf *conf, struct tw_error *err) TW_MUST_USE;

#endif
