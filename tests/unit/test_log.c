/* Log lines, as they leave the process. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static int log_pipe[2];
static int real_stderr;

/* Sends standard error through a pipe that takes a few lines without a reader. */
static void divert(void)
{
	cr_assert_eq(pipe2(log_pipe, O_CLOEXEC | O_NONBLOCK), 0);
	real_stderr = dup(STDERR_FILENO);
	cr_assert_eq(dup2(log_pipe[1], STDERR_FILENO), STDERR_FILENO);
}

/* One read gives what one write wrote, or "" where nothing was. */
static void next_write(char line[4096])
{
	ssize_t n = read(log_pipe[0], line, 4095);
	line[n > 0 ? n : 0] = '\0';
}

static void restore(void)
{
	dup2(real_stderr, STDERR_FILENO);
}

static void assert_matches(const char *line, const char *pattern)
{
	regex_t re;
	cr_assert_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
	cr_assert_eq(regexec(&re, line, 0, NULL, 0), 0, "\"%s\" does not match \"%s\"", line,
		     pattern);
	regfree(&re);
}

Test(log, a_line_has_time_program_pid_level_and_text)
{
	char line[4096];
	char own[64];
	divert();
	tw_log_init("tw-test", TW_LOG_INFO);
	tw_log(TW_LOG_WARNING, "channel %d: %s", 7, "gap");
	restore();
	next_write(line);
	assert_matches(line, "^2[0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]"
			     "\\.[0-9]{6}Z tw-test\\[[0-9]+\\] warning: channel 7: gap\n$");
	snprintf(own, sizeof(own), "[%d]", (int)getpid());
	cr_assert_not_null(strstr(line, own));
}

Test(log, lines_above_the_level_are_dropped)
{
	char line[4096];
	divert();
	tw_log_init("tw-test", TW_LOG_WARNING);
	tw_log(TW_LOG_DEBUG, "debug");
	tw_log(TW_LOG_INFO, "info");
	tw_log(TW_LOG_ERROR, "error");
	restore();
	next_write(line);
	assert_matches(line, "\\] error: error\n$");
	cr_assert_null(strstr(line, "info"));
	next_write(line);
	cr_assert_str_empty(line);
}

Test(log, text_from_outside_makes_no_second_line)
{
	char line[4096];
	divert();
	tw_log_init("tw-test", TW_LOG_INFO);
	tw_log(TW_LOG_INFO, "name %s", "a\n2026-01-01T00:00:00Z forged\x1b[31m");
	restore();
	next_write(line);
	cr_assert_eq(strchr(line, '\n'), line + strlen(line) - 1);
	cr_assert_null(strchr(line, '\x1b'));
	cr_assert_not_null(strstr(line, "name a?2026"));
}

Test(log, a_long_line_is_cut_and_says_so)
{
	char line[4096];
	char text[3000];
	memset(text, 'y', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	divert();
	tw_log_init("tw-test", TW_LOG_INFO);
	tw_log(TW_LOG_INFO, "%s", text);
	restore();
	next_write(line);
	cr_assert(strlen(line) <= 1024);
	assert_matches(line, "yyy\\.\\.\\.\n$");
}

Test(log, errno_survives)
{
	divert();
	close(STDERR_FILENO); /* even where the write fails */
	errno = EDOM;
	tw_log(TW_LOG_ERROR, "nowhere to go");
	int after = errno;
	restore();
	cr_assert_eq(after, EDOM);
}
