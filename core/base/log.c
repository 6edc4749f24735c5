/* Log lines on standard error.
 *
 * Threads   any.  A line is built on the caller's stack and leaves in one write(2), so that lines
 *           of threads and processes that share the descriptor do not mix. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024u /* below PIPE_BUF: a line stays whole in a pipe too */

/* Set once at start, usually before there are threads; nothing is ordered by them. */
static const char *_Atomic log_program = "tidewire";
static _Atomic int log_level = TW_LOG_INFO;

void tw_log_init(const char *program, enum tw_log_level level)
{
	atomic_store_explicit(&log_program, program, memory_order_relaxed);
	atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

static const char *level_name(enum tw_log_level level)
{
	switch (level) {
	case TW_LOG_ERROR:
		return "error";
	case TW_LOG_WARNING:
		return "warning";
	case TW_LOG_INFO:
		return "info";
	case TW_LOG_DEBUG:
		return "debug";
	}
	return "?";
}

/* Returns the length; `line` has LINE_BYTES. */
static size_t prefix(char *line, enum tw_log_level level)
{
	struct timespec now = { 0 };
	struct tm tm = { 0 };
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	size_t len = strftime(line, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	int more =
		snprintf(line + len, LINE_BYTES - len, ".%06ldZ %.64s[%d] %s: ", now.tv_nsec / 1000,
			 atomic_load_explicit(&log_program, memory_order_relaxed), (int)getpid(),
			 level_name(level));
	return len + (more > 0 ? (size_t)more : 0);
}

void tw_log(enum tw_log_level level, const char *fmt, ...)
{
	if ((int)level > atomic_load_explicit(&log_level, memory_order_relaxed)) {
		return;
	}
	int saved = errno;
	char line[LINE_BYTES];
	size_t start = prefix(line, level);
	size_t room = sizeof(line) - start;
	va_list args;
	va_start(args, fmt);
	int n = vsnprintf(line + start, room, fmt, args);
	va_end(args);
	size_t end = start + (n > 0 ? (size_t)n : 0);
	if (end > sizeof(line) - 1) {
		end = sizeof(line) - 1;
		memcpy(line + end - 3, "...", 3);
	}
	for (size_t i = start; i < end; i++) { /* text may quote names from outside */
		unsigned char c = (unsigned char)line[i];
		if (c < 0x20 || c == 0x7f) {
			line[i] = '?';
		}
	}
	line[end] = '\n'; /* where the NUL was */
	while (write(STDERR_FILENO, line, end + 1) < 0 && errno == EINTR) {
	}
	errno = saved;
}
