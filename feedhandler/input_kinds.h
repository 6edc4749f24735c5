/* The kinds of recordings, for the one that looks at a file and chooses: each takes over an open source.
 *
 * Ownership  the source is the callee's, on failure too. */
#ifndef TW_FEEDHANDLER_INPUT_KINDS_H
#define TW_FEEDHANDLER_INPUT_KINDS_H

#include "feedhandler/capture_source.h"
#include "feedhandler/input.h"

/* Whether its first bytes are a capture's. */
bool tw_input_is_capture(const struct tw_source *source);
int tw_input_capture_begin(struct tw_input **input_p, const char *name, struct tw_source *source,
			   struct tw_error *err) TW_MUST_USE;
/* `trading_date` YYYYMMDD; 0: from the name, else not known. */
int tw_input_binaryfile_begin(struct tw_input **input_p, const char *name, struct tw_source *source,
			      uint32_t trading_date, struct tw_error *err) TW_MUST_USE;

/* TW_EFORMAT: what the source begins with instead of what is allowed. */
int tw_input_refuse(const char *name, const struct tw_source *source, const char *allowed,
		    struct tw_error *err);

int tw_input_source_path(struct tw_source **source_p, const char *path,
			 struct tw_error *err) TW_MUST_USE;
int tw_input_source_memory(struct tw_source **source_p, const char *name, const void *data,
			   size_t len_bytes, struct tw_error *err) TW_MUST_USE;
void tw_input_source_close(struct tw_source *source); /* NULL ok */

#endif
