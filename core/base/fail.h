/* Filling in a struct tw_error; the private half of include/tidewire/error.h. */
#ifndef TW_BASE_FAIL_H
#define TW_BASE_FAIL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tidewire/error.h"

/* Records `code` and the formatted text ("object: call: cause") in `err` (NULL allowed) and returns
 * `code`, so that `return tw_fail(...)` reads well. */
int tw_fail(struct tw_error *err, int code, const char *fmt, ...) TW_PRINTF(3, 4) TW_COLD;

/* The same for a failed system call: appends ": strerror(errno)" and keeps errno in sys_errno. */
int tw_fail_sys(struct tw_error *err, int code, const char *fmt, ...) TW_PRINTF(3, 4) TW_COLD;

/* sysexits.h value that a main leaves with after `code`: 64 usage, 65 data, 69 unavailable,
 * 70 internal, 71 OS, 77 permission, 78 configuration. */
int tw_exit_status(int code);

/* Guards memory: never compiled out.  Prints file, line and condition, then aborts.  Only for our
 * own broken invariants, never for input. */
#define TW_ASSERT(cond)                                              \
	do {                                                         \
		if (__builtin_expect(!(cond), 0)) {                  \
			tw_assert_failed(__FILE__, __LINE__, #cond); \
		}                                                    \
	} while (0)
void tw_assert_failed(const char *file, int line, const char *cond) TW_COLD
	__attribute__((noreturn));

#endif
