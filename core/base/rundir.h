/* run_dir: where the processes of one site and host meet (counters, buses, state).
 * Default /dev/shm/tidewire-UID.  Mode 0700 and owned by us, or refused. */
#ifndef TW_BASE_RUNDIR_H
#define TW_BASE_RUNDIR_H

#include <stddef.h>
#include <sys/types.h>

#include "tidewire/error.h"

#define TW_PATH_BYTES 512

/* Writes the default path. */
void tw_rundir_default(char path[TW_PATH_BYTES]);

/* Makes the directory where it is missing and checks owner, type (no symbolic link) and mode. */
int tw_rundir_ensure(const char *path, struct tw_error *err) TW_MUST_USE;

/* Opens the directory itself, following no symbolic link; the descriptor or a negative status. */
int tw_rundir_open_dir(const char *run_dir, struct tw_error *err) TW_MUST_USE;

/* Opens run_dir/name with O_NOFOLLOW | O_CLOEXEC | flags; the descriptor or a negative status. */
int tw_rundir_open(const char *run_dir, const char *name, int flags, mode_t mode,
		   struct tw_error *err) TW_MUST_USE;

#endif
