/* Filling in a struct tw_error; exit statuses; the assertion that guards memory. */
#include "base/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sysexits.h>

/* Text may quote names and values from outside: keep it one line, and a terminal's state whole. */
static void clean(char *text)
{
	for (char *p = text; *p != '\0'; p++) {
		unsigned char c = (unsigned char)*p;
		if (c < 0x20 || c == 0x7f) {
			*p = '?';
		}
	}
}

/* `tail` is kept whole where the rest is too long: it holds the cause. */
TW_PRINTF(4, 0)
static void store(struct tw_error *err, int code, int sys_errno, const char *fmt, va_list args,
		  const char *tail)
{
	/* formatted apart from err->text, which may itself be one of the arguments */
	char text[TW_ERROR_TEXT_BYTES];
	size_t tail_len = strnlen(tail, TW_ERROR_TEXT_BYTES / 2);
	size_t room = sizeof(text) - tail_len;
	if (vsnprintf(text, room, fmt, args) < 0) {
		text[0] = '\0';
	}
	size_t used = strlen(text);
	memcpy(text + used, tail, tail_len);
	text[used + tail_len] = '\0';
	clean(text);
	err->code = code;
	err->sys_errno = sys_errno;
	memcpy(err->text, text, used + tail_len + 1);
}

int tw_fail(struct tw_error *err, int code, const char *fmt, ...)
{
	if (err != NULL) {
		va_list args;
		va_start(args, fmt);
		store(err, code, 0, fmt, args, "");
		va_end(args);
	}
	return code;
}

int tw_fail_sys(struct tw_error *err, int code, const char *fmt, ...)
{
	int saved = errno;
	if (err != NULL) {
		char buf[128];
		char tail[sizeof(buf) + 2];
		snprintf(tail, sizeof(tail), ": %s", strerror_r(saved, buf, sizeof(buf)));
		va_list args;
		va_start(args, fmt);
		store(err, code, saved, fmt, args, tail);
		va_end(args);
	}
	errno = saved;
	return code;
}

int tw_exit_status(int code)
{
	if (code >= 0) {
		return EX_OK;
	}
	switch (code) {
	case TW_EARG:
		return EX_USAGE;
	case TW_EFORMAT:
		return EX_DATAERR;
	case TW_ENOTFOUND:
	case TW_EBUSY:
	case TW_EUNSUPPORTED:
	case TW_ELAPPED:
	case TW_ECLOSED:
	case TW_EFULL:
	case TW_ETIMEOUT:
		return EX_UNAVAILABLE;
	case TW_ENOMEM:
	case TW_ESYS:
		return EX_OSERR;
	case TW_EPERM:
		return EX_NOPERM;
	case TW_ECONFIG:
		return EX_CONFIG;
	default:
		return EX_SOFTWARE;
	}
}

void tw_assert_failed(const char *file, int line, const char *cond)
{
	/* straight to the descriptor: stdio may be what is broken */
	dprintf(2, "%s:%d: assertion failed: %s\n", file, line, cond);
	abort();
}
