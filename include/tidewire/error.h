/* Status codes and error text, shared by the library and the programs.
 *
 * Every fallible function returns int: 0 or a count, or a negative enum tw_status.  The text is
 * written once, where the failure is detected, as "object: call: cause".
 * Threads   no shared state: a struct tw_error belongs to whoever passed it in. */
#ifndef TIDEWIRE_ERROR_H
#define TIDEWIRE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TW_API               __attribute__((visibility("default")))
#define TW_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TW_COLD              __attribute__((cold))
#define TW_MUST_USE          __attribute__((warn_unused_result))
#else
#define TW_API
#define TW_PRINTF(fmt, args)
#define TW_COLD
#define TW_MUST_USE
#endif

/* The largest thing that an error spoils, and so what the caller must rebuild. */
enum tw_scope {
	TW_SCOPE_CALL = 0, /* this call only: nothing has changed */
	TW_SCOPE_CHANNEL,  /* one channel is down, the others go on */
	TW_SCOPE_HANDLE,   /* close the handle and open it again */
	TW_SCOPE_HOST      /* nothing on this host will work until a person changes something */
};

/* name, value, scope, text */
#define TW_STATUS_TABLE(X)                                             \
	X(TW_OK, 0, CALL, "success")                                   \
	X(TW_EARG, -1, CALL, "invalid argument")                       \
	X(TW_ECONFIG, -2, HOST, "configuration error")                 \
	X(TW_ENOMEM, -3, HANDLE, "out of memory")                      \
	X(TW_ESYS, -4, HANDLE, "system call failed")                   \
	X(TW_EFORMAT, -5, CALL, "malformed input")                     \
	X(TW_ENOTFOUND, -6, CALL, "not found")                         \
	X(TW_EBUSY, -7, CALL, "in use by another process")             \
	X(TW_EPERM, -8, HOST, "not permitted")                         \
	X(TW_EUNSUPPORTED, -9, HOST, "not supported here")             \
	X(TW_ESTATE, -10, CALL, "not possible in this state")          \
	X(TW_ELAPPED, -11, CHANNEL, "reader was lapped by the writer") \
	X(TW_ECLOSED, -12, HANDLE, "closed by the other side")         \
	X(TW_EFULL, -13, CALL, "no space left")                        \
	X(TW_ETIMEOUT, -14, CALL, "timed out")                         \
	X(TW_EINTERNAL, -15, HANDLE, "internal error")

enum tw_status {
#define TW_STATUS_ENUM(name, value, scope, text) name = (value),
	TW_STATUS_TABLE(TW_STATUS_ENUM)
#undef TW_STATUS_ENUM
};

#define TW_ERROR_TEXT_BYTES 512

/* Caller's memory; every function that takes one accepts NULL. */
struct tw_error {
	int code;                       /* enum tw_status; TW_OK where nothing was reported */
	int sys_errno;                  /* errno at the failing call, 0 where none was involved */
	char text[TW_ERROR_TEXT_BYTES]; /* NUL-terminated, one line, no trailing newline */
};

/* Short text of a status; "unknown status" for a value outside the table, never NULL. */
TW_API const char *tw_strstatus(int code);

/* What must be rebuilt after `code`; TW_SCOPE_HANDLE for a value outside the table. */
TW_API enum tw_scope tw_status_scope(int code);

#ifdef __cplusplus
}
#endif
#endif
