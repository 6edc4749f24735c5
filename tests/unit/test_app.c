/* The housekeeping loop, its signals and its threads.  Each program is a child process that reports
 * by bytes in a pipe. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/app.h"
#include "base/log.h"

TestSuite(app, .timeout = 60);

static struct tw_app app;
static int report[2], command[2];

static void say(char c)
{
	if (write(report[1], &c, 1) != 1) {
		_exit(99);
	}
}

static char hear(void)
{
	char c = 0;
	cr_assert_eq(read(report[0], &c, 1), 1, "the child has gone");
	return c;
}

/* Returns 0 in the child. */
static pid_t split(void)
{
	cr_assert_eq(pipe2(report, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(command, O_CLOEXEC), 0);
	pid_t pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0) {
		close(report[0]);
		close(command[1]);
		tw_log_init("tw-test", TW_LOG_ERROR);
	} else {
		close(report[1]);
		close(command[0]);
	}
	return pid;
}

static int status_of(pid_t pid)
{
	int status = 0;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert(WIFEXITED(status), "died of signal %d", WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void tick_once(void *ctx)
{
	bool *said = ctx;
	if (!*said) {
		*said = true;
		say('t');
	}
}

/* A shutdown that never ends, but answers whether it lives. */
static void hang(void)
{
	char c;
	say('h');
	while (read(command[0], &c, 1) == 1) {
		say(c);
	}
	_exit(98);
}

static void stopped_by(int sig)
{
	pid_t pid = split();
	if (pid == 0) {
		bool said = false;
		tw_app_init(&app, "tw-test");
		_exit(tw_app_run(&app, tick_once, &said));
	}
	cr_assert_eq(hear(), 't');
	kill(pid, sig);
	cr_assert_eq(status_of(pid), 0);
}

Test(app, sigterm_stops_it)
{
	stopped_by(SIGTERM);
}

Test(app, sigint_stops_it)
{
	stopped_by(SIGINT);
}

Test(app, a_signal_before_the_loop_is_not_lost)
{
	pid_t pid = split();
	if (pid == 0) {
		tw_app_init(&app, "tw-test");
		raise(SIGTERM); /* pending from here */
		_exit(tw_app_run(&app, NULL, NULL));
	}
	cr_assert_eq(status_of(pid), 0);
}

static void *stop_with_69(void *arg)
{
	(void)arg;
	tw_app_stop(&app, 69);
	tw_app_stop(&app, 0); /* the first one stands */
	return NULL;
}

Test(app, a_thread_stops_it_with_its_status)
{
	pid_t pid = split();
	if (pid == 0) {
		pthread_t thread;
		tw_app_init(&app, "tw-test");
		if (tw_thread_start(&thread, "stopper", stop_with_69, NULL, NULL) != TW_OK) {
			_exit(97);
		}
		int status = tw_app_run(&app, NULL, NULL);
		if (!tw_app_stopping(&app)) {
			_exit(96);
		}
		pthread_join(thread, NULL);
		_exit(status);
	}
	cr_assert_eq(status_of(pid), 69);
}

static void second_signal(int first, int second)
{
	pid_t pid = split();
	if (pid == 0) {
		bool said = false;
		tw_app_init(&app, "tw-test");
		(void)tw_app_run(&app, tick_once, &said);
		hang();
	}
	cr_assert_eq(hear(), 't');
	kill(pid, first);
	cr_assert_eq(hear(), 'h');
	kill(pid, second);
	cr_assert_eq(status_of(pid), 128 + second);
}

Test(app, a_second_signal_ends_a_hanging_shutdown)
{
	second_signal(SIGTERM, SIGTERM);
	second_signal(SIGINT, SIGTERM);
	second_signal(SIGTERM, SIGINT);
}

Test(app, after_an_end_of_its_own_one_signal_is_still_polite)
{
	pid_t pid = split();
	if (pid == 0) {
		tw_app_init(&app, "tw-test");
		tw_app_stop(&app, 3);
		(void)tw_app_run(&app, NULL, NULL);
		hang();
	}
	cr_assert_eq(hear(), 'h');
	kill(pid, SIGTERM);
	/* the signal was there first: who answers has taken it */
	cr_assert_eq(write(command[1], "e", 1), 1);
	cr_assert_eq(hear(), 'e');
	kill(pid, SIGTERM);
	cr_assert_eq(status_of(pid), 128 + SIGTERM);
}

Test(app, a_broken_pipe_is_an_error_not_a_signal)
{
	pid_t pid = split();
	if (pid == 0) {
		int fds[2];
		tw_app_init(&app, "tw-test");
		if (pipe(fds) != 0) {
			_exit(97);
		}
		close(fds[0]);
		_exit(write(fds[1], "x", 1) < 0 ? 42 : 96);
	}
	cr_assert_eq(status_of(pid), 42);
}

static void *look_around(void *arg)
{
	struct {
		char name[16];
		sigset_t mask;
	} *seen = arg;
	/* the maker names the thread after it has begun */
	do {
		pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	} while (strncmp(seen->name, "a-rather-long", 13) != 0);
	pthread_sigmask(SIG_BLOCK, NULL, &seen->mask);
	return NULL;
}

Test(app, a_thread_has_a_name_and_takes_no_signals_but_its_faults)
{
	struct {
		char name[16];
		sigset_t mask;
	} seen = { .name = "" };
	sigset_t before, after;
	pthread_t thread;
	pthread_sigmask(SIG_BLOCK, NULL, &before);
	cr_assert_eq(tw_thread_start(&thread, "a-rather-long-name", look_around, &seen, NULL),
		     TW_OK);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_str_eq(seen.name, "a-rather-long-n");
	cr_assert(sigismember(&seen.mask, SIGTERM));
	cr_assert(sigismember(&seen.mask, SIGUSR1));
	cr_assert_not(sigismember(&seen.mask, SIGSEGV));
	cr_assert_not(sigismember(&seen.mask, SIGABRT));
	pthread_sigmask(SIG_BLOCK, NULL, &after);
	for (int sig = 1; sig < 32; sig++) {
		cr_assert_eq(sigismember(&before, sig), sigismember(&after, sig));
	}
}
