/* What a session layer is to the feedhandler: a row of the table in registry.c.
 *
 * It takes datagrams, finds the venue's messages in them, each once and in order, counts gaps and
 * duplicates (TW_SET_fh), and calls the feed's decoder. */
#ifndef TW_FEEDHANDLER_SESSION_H
#define TW_FEEDHANDLER_SESSION_H

#include <stddef.h>

#include "feedhandler/input.h"

struct tw_feed;

struct tw_session {
	const char *name; /* feedhandlers[].session */
	const char *help;
	size_t state_bytes; /* zeroed before the first packet */
	/* another recording begins: any session may follow, the same one goes on */
	void (*part)(void *state);
	void (*packet)(struct tw_feed *feed, void *state, const struct tw_packet *packet);
};

extern const struct tw_session tw_session_iextp; /* IEX-TP version 1 */

#endif
