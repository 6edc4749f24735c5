/* The command line that tw-feedhandler and tw-publisher have in common, and where summaries go.
 * Threads   the main thread. */
#ifndef TW_BASE_OPTIONS_H
#define TW_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "tidewire/error.h"

struct tw_options {
	const char *config;  /* -c, --config: required */
	const char *as;      /* --as, or NULL */
	const char *summary; /* --summary, or NULL */
	bool check;          /* --check */
};

/* Exit status to leave with (after --help, --version or a mistake, which it has printed), or -1 to go
 * on.  The strings are argv's. */
int tw_options_parse(struct tw_options *opt, int argc, char **argv, const char *program,
		     void (*help)(FILE *out));

/* Standard output where `path` is NULL or "-".  To be opened before the run, so that a path that cannot
 * be written is an error at the start. */
int tw_summary_open(FILE **out, const char *path, struct tw_error *err) TW_MUST_USE;
int tw_summary_close(FILE *out, const char *path, struct tw_error *err) TW_MUST_USE;

#endif
