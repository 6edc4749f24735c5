/* Starting a small site on this machine: what tw-run and tw-demo share.
 *
 * A launch owns a private directory (site.yaml, run_dir), draws its own groups from 239.192.0.0/14
 * and starts the Tidewire programs that lie beside the calling one.  Children get SIGTERM when the
 * launcher dies, and are stopped by process id, never by name.
 * Threads    one. */
#ifndef TW_TOOLS_LAUNCH_H
#define TW_TOOLS_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/rundir.h"
#include "tidewire/error.h"

#define TW_LAUNCH_MAX_CHILDREN 8u
#define TW_LAUNCH_MAX_ARGS     32u

struct tw_launch_site { /* what the written configuration says */
	const char *protocol;
	const char *depth;
	const char *const *files; /* inputs, in order */
	uint32_t file_count;
	uint32_t speed_pct; /* 100: as captured, 0: not by time */
	uint32_t rate_msgs; /* 0: no limit */
	bool restamp;       /* the recording happens now */
	bool repair;        /* gaps are repaired from the publisher's history */
	uint64_t seed;
	/* faults in percent with up to four places, as text for the file; NULL: none */
	const char *loss_pct[2], *loss_both_pct, *duplicate_pct, *reorder_pct;
};

struct tw_launch_child {
	const char *name; /* for messages; a literal */
	pid_t pid;        /* 0: not running */
	int pidfd;
	int log_fd; /* its standard error */
	bool ready; /* has said so */
	bool exited;
	int status;     /* exit status; 128 + signal */
	char line[512]; /* unfinished log line */
	size_t line_bytes;
	char last[512]; /* last error or, failing that, last log line: the reason when it fails */
	bool last_is_error;
};

struct tw_launch {
	char dir[TW_PATH_BYTES];
	char site_path[TW_PATH_BYTES + 16];
	char run_dir[TW_PATH_BYTES + 16];
	char bin_dir[TW_PATH_BYTES];
	struct tw_launch_child children[TW_LAUNCH_MAX_CHILDREN];
	uint32_t child_count;
	bool verbose; /* children's log lines go to standard error */
	bool keep;    /* leave the directory behind */
};

/* Makes the directory and finds the programs; `launch` is zeroed but for verbose and keep. */
int tw_launch_init(struct tw_launch *launch, struct tw_error *err) TW_MUST_USE;
/* Writes site.yaml. */
int tw_launch_write_site(struct tw_launch *launch, const struct tw_launch_site *site,
			 struct tw_error *err) TW_MUST_USE;
/* Starts `program` with argv[1..] (NULL-terminated); `stdout_fd` < 0: /dev/null.  Index of the child. */
int tw_launch_start(struct tw_launch *launch, const char *program, char *const argv[],
		    int stdout_fd, struct tw_error *err) TW_MUST_USE;
/* Handles what children log and their exits until `timeout_ms` is over, something happened, or a stop
 * signal is pending on `signal_fd` (-1: none).  Returns 1 for the signal, else 0. */
int tw_launch_turn(struct tw_launch *launch, int signal_fd, int timeout_ms);
/* Turns until child `index` has said that it is ready: 0, TW_ETIMEOUT, TW_ECLOSED where it has left
 * (err has its last words), TW_ESTATE where the signal came. */
int tw_launch_wait_ready(struct tw_launch *launch, uint32_t index, int signal_fd,
			 uint32_t timeout_ms, struct tw_error *err) TW_MUST_USE;
/* SIGTERM, then SIGKILL where it stays longer than 5 s; the exit status. */
int tw_launch_stop(struct tw_launch *launch, uint32_t index);
/* Stops all children and removes the directory.  A zeroed launch is fine. */
void tw_launch_fini(struct tw_launch *launch);

/* A descriptor that becomes readable on SIGINT or SIGTERM (which it blocks). */
int tw_launch_signal_fd(struct tw_error *err) TW_MUST_USE;

#endif
