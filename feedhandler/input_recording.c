/* A recorded feed, whatever it lies in: the file is looked at, then the kind that it is reads it.
 *
 * Threads   one. */
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "feedhandler/input_kinds.h"

static int source_create(struct tw_source **source_p, const char *name, struct tw_error *err)
{
	*source_p = calloc(1, sizeof(**source_p));
	return *source_p != NULL ? TW_OK : tw_fail(err, TW_ENOMEM, "%s: out of memory", name);
}

void tw_input_source_close(struct tw_source *source)
{
	if (source != NULL) {
		tw_source_close(source);
		free(source);
	}
}

/* Passes on how the opening went. */
static int source_opened(struct tw_source **source_p, int rc)
{
	if (rc != TW_OK) {
		tw_input_source_close(*source_p);
		*source_p = NULL;
	}
	return rc;
}

int tw_input_source_path(struct tw_source **source_p, const char *path, struct tw_error *err)
{
	int rc = source_create(source_p, path, err);
	return rc != TW_OK ? rc
			   : source_opened(source_p, tw_source_open_path(*source_p, path, err));
}

int tw_input_source_memory(struct tw_source **source_p, const char *name, const void *data,
			   size_t len_bytes, struct tw_error *err)
{
	int rc = source_create(source_p, name, err);
	return rc != TW_OK ? rc
			   : source_opened(source_p,
					   tw_source_open_memory(*source_p, data, len_bytes, err));
}

int tw_input_refuse(const char *name, const struct tw_source *source, const char *allowed,
		    struct tw_error *err)
{
	const char *inside = source->gzip ? " inside the gzip" : "";
	if (source->peek_bytes == 0) {
		return tw_fail(err, TW_EFORMAT, "%s: not a capture: empty%s%s%s", name, inside,
			       source->damaged ? ": " : "", source->text);
	}
	char hex[TW_SOURCE_PEEK_BYTES * 3 + 1];
	for (size_t i = 0; i < source->peek_bytes; i++) {
		(void)snprintf(hex + i * 3, sizeof(hex) - i * 3, " %02x", source->peek[i]);
	}
	return tw_fail(err, TW_EFORMAT, "%s: not a capture: first bytes%s%s, allowed are %s", name,
		       hex, inside, allowed);
}

static int begin(struct tw_input **input_p, const char *name, struct tw_source *source,
		 uint32_t trading_date, struct tw_error *err)
{
	if (tw_input_is_capture(source)) {
		return tw_input_capture_begin(input_p, name, source, err);
	}
	return tw_input_binaryfile_begin(input_p, name, source, trading_date, err);
}

int tw_input_recording_open(struct tw_input **input_p, const char *path, uint32_t trading_date,
			    struct tw_error *err)
{
	*input_p = NULL;
	struct tw_source *source;
	int rc = tw_input_source_path(&source, path, err);
	return rc != TW_OK ? rc : begin(input_p, path, source, trading_date, err);
}

int tw_input_recording_memory(struct tw_input **input_p, const char *name, const void *data,
			      size_t len_bytes, uint32_t trading_date, struct tw_error *err)
{
	*input_p = NULL;
	struct tw_source *source;
	int rc = tw_input_source_memory(&source, name, data, len_bytes, err);
	return rc != TW_OK ? rc : begin(input_p, name, source, trading_date, err);
}
