/* Log lines on standard error: "2026-11-29T15:30:01.123456Z tw-publisher[123] warning: text".
 * Threads   any; one write(2) a line.  Never called from a hot path. */
#ifndef TW_BASE_LOG_H
#define TW_BASE_LOG_H

#include "tidewire/error.h"

enum tw_log_level { TW_LOG_ERROR = 0, TW_LOG_WARNING, TW_LOG_INFO, TW_LOG_DEBUG };

/* `program` must outlive the process (a literal); lines above `level` are dropped (default:
 * INFO). */
void tw_log_init(const char *program, enum tw_log_level level);
void tw_log(enum tw_log_level level, const char *fmt, ...) TW_PRINTF(2, 3);

#endif
