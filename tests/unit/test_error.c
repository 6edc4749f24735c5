/* Status table, error text, exit statuses. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/fail.h"

static const int codes[] = {
#define CODE(name, value, scope, text) name,
	TW_STATUS_TABLE(CODE)
#undef CODE
};
#define N_CODES (sizeof(codes) / sizeof(codes[0]))

Test(error, every_status_has_its_own_text)
{
	for (size_t i = 0; i < N_CODES; i++) {
		cr_assert_str_not_empty(tw_strstatus(codes[i]));
		for (size_t j = 0; j < i; j++) {
			cr_assert_neq(codes[i], codes[j]);
			cr_assert_str_neq(tw_strstatus(codes[i]), tw_strstatus(codes[j]));
		}
	}
	cr_assert_str_eq(tw_strstatus(TW_ELAPPED), "reader was lapped by the writer");
}

Test(error, a_status_outside_the_table_is_named_so)
{
	static const int odd[] = { 1, 4711, -16, -1000, INT32_MIN };
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		cr_assert_str_eq(tw_strstatus(odd[i]), "unknown status");
		cr_assert_eq(tw_status_scope(odd[i]), TW_SCOPE_HANDLE);
	}
}

Test(error, scopes)
{
	cr_assert_eq(tw_status_scope(TW_EARG), TW_SCOPE_CALL);
	cr_assert_eq(tw_status_scope(TW_ELAPPED), TW_SCOPE_CHANNEL);
	cr_assert_eq(tw_status_scope(TW_ECLOSED), TW_SCOPE_HANDLE);
	cr_assert_eq(tw_status_scope(TW_ECONFIG), TW_SCOPE_HOST);
}

Test(error, fail_fills_in_and_returns_the_code)
{
	struct tw_error err;
	memset(&err, 0x5a, sizeof(err));
	cr_assert_eq(tw_fail(&err, TW_EFORMAT, "line %d: %s", 7, "no number"), TW_EFORMAT);
	cr_assert_eq(err.code, TW_EFORMAT);
	cr_assert_eq(err.sys_errno, 0);
	cr_assert_str_eq(err.text, "line 7: no number");
	cr_assert_eq(tw_fail(NULL, TW_EBUSY, "nobody %s", "listens"), TW_EBUSY);
}

Test(error, a_text_may_be_wrapped_by_itself)
{
	struct tw_error err;
	(void)tw_fail(&err, TW_ESYS, "inner");
	(void)tw_fail(&err, TW_ESYS, "outer: %s", err.text);
	cr_assert_str_eq(err.text, "outer: inner");
}

Test(error, a_text_is_one_clean_line)
{
	struct tw_error err;
	(void)tw_fail(&err, TW_EFORMAT, "name \"%s\"", "a\nb\x1b[2J\x7f");
	cr_assert_str_eq(err.text, "name \"a?b?[2J?\"");
	(void)tw_fail(&err, TW_EFORMAT, "%s", "z\xc3\xbcrich"); /* UTF-8 passes */
	cr_assert_str_eq(err.text, "z\xc3\xbcrich");
}

Test(error, a_failed_call_keeps_errno_and_its_text)
{
	struct tw_error err;
	errno = ENOENT;
	cr_assert_eq(tw_fail_sys(&err, TW_ENOTFOUND, "%s: open", "/a/b"), TW_ENOTFOUND);
	cr_assert_eq(errno, ENOENT);
	cr_assert_eq(err.sys_errno, ENOENT);
	cr_assert_str_eq(err.text, "/a/b: open: No such file or directory");
}

Test(error, what_is_too_long_loses_its_middle_not_its_cause)
{
	struct tw_error err;
	char name[2 * TW_ERROR_TEXT_BYTES];
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	errno = EACCES;
	(void)tw_fail_sys(&err, TW_EPERM, "%s", name);
	static const char tail[] = ": Permission denied";
	cr_assert_eq(strlen(err.text), TW_ERROR_TEXT_BYTES - 1);
	cr_assert_str_eq(err.text + TW_ERROR_TEXT_BYTES - sizeof(tail), tail);
	(void)tw_fail(&err, TW_EARG, "%s", name);
	cr_assert_eq(strlen(err.text), TW_ERROR_TEXT_BYTES - 1);
}

Test(error, exit_statuses)
{
	cr_assert_eq(tw_exit_status(TW_OK), 0);
	cr_assert_eq(tw_exit_status(12), 0); /* a count */
	cr_assert_eq(tw_exit_status(TW_EARG), 64);
	cr_assert_eq(tw_exit_status(TW_EFORMAT), 65);
	cr_assert_eq(tw_exit_status(TW_EBUSY), 69);
	cr_assert_eq(tw_exit_status(TW_EINTERNAL), 70);
	cr_assert_eq(tw_exit_status(-4711), 70);
	cr_assert_eq(tw_exit_status(TW_ESYS), 71);
	cr_assert_eq(tw_exit_status(TW_EPERM), 77);
	cr_assert_eq(tw_exit_status(TW_ECONFIG), 78);
	for (size_t i = 1; i < N_CODES; i++) {
		int status = tw_exit_status(codes[i]);
		cr_assert(status >= 64 && status <= 78, "%d leaves with %d", codes[i], status);
	}
}

Test(error, a_broken_invariant_aborts, .signal = SIGABRT)
{
	TW_ASSERT(1 + 1 == 2);
	TW_ASSERT(errno == -1);
}
