/* Command lines: how every program takes an option's value and what it says to a wrong one, the one that
 * tw-feedhandler and tw-publisher have in common, and where summaries go.
 * Threads   the main thread. */
#ifndef TW_BASE_OPTIONS_H
#define TW_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tidewire/error.h"

/* The value of --`name`: TW_OK and `out`, or TW_EARG and "--NAME: found 'TEXT', allowed ...". */
int tw_option_u64(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *out,
		  struct tw_error *err) TW_MUST_USE;
int tw_option_u32(const char *name, const char *text, uint32_t min, uint32_t max, uint32_t *out,
		  struct tw_error *err) TW_MUST_USE;
/* Per cent, 0 to 100 with up to four decimals. */
int tw_option_ppm(const char *name, const char *text, uint32_t *out_ppm,
		  struct tw_error *err) TW_MUST_USE;
/* One word of the set "a|b|c": its index. */
int tw_option_word(const char *name, const char *text, const char *set, uint32_t *out,
		   struct tw_error *err) TW_MUST_USE;

/* The same error for any other value. */
int tw_option_refuse(const char *name, const char *text, const char *allowed,
		     struct tw_error *err) TW_COLD;

/* Prints what is wrong with a command line (NULL where getopt_long() has said it) and where help is;
 * returns EX_USAGE. */
int tw_usage_error(const char *program, const struct tw_error *err);

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
