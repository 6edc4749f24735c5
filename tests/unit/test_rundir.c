/* run_dir: what it accepts and what it refuses. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rundir.h"

static char root[64]; /* a fresh directory of ours */
static char path[TW_PATH_BYTES];
static struct tw_error err;

static void setup(void)
{
	snprintf(root, sizeof(root), "/tmp/tw-test-rundir-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
}

static void cleanup(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", root);
	if (system(command) != 0) {
		fprintf(stderr, "left behind: %s\n", root);
	}
}

TestSuite(rundir, .init = setup, .fini = cleanup, .timeout = 60);

static const char *in_root(const char *name)
{
	snprintf(path, sizeof(path), "%s/%s", root, name);
	return path;
}

Test(rundir, the_default_bears_the_user)
{
	char expected[TW_PATH_BYTES];
	tw_rundir_default(path);
	snprintf(expected, sizeof(expected), "/dev/shm/tidewire-%u", (unsigned int)geteuid());
	cr_assert_str_eq(path, expected);
}

Test(rundir, makes_what_is_missing_for_us_alone)
{
	struct stat st;
	umask(0);
	cr_assert_eq(tw_rundir_ensure(in_root("new"), &err), TW_OK, "%s", err.text);
	cr_assert_eq(stat(path, &st), 0);
	cr_assert(S_ISDIR(st.st_mode));
	cr_assert_eq(st.st_mode & 0777, 0700);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_OK, "second time: %s", err.text);
	in_root("new//");
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_OK, "%s", err.text);
}

Test(rundir, refuses_other_modes)
{
	static const mode_t modes[] = { 0755, 0750, 0701, 0777, 0600, 0500, 0 };
	cr_assert_eq(mkdir(in_root("dir"), 0700), 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		cr_assert_eq(chmod(path, modes[i]), 0);
		cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM, "mode %o", modes[i]);
		cr_assert_not_null(strstr(err.text, path));
	}
	cr_assert_eq(chmod(path, 0700), 0);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_OK);
}

Test(rundir, refuses_a_symbolic_link_with_and_without_a_slash)
{
	char target[TW_PATH_BYTES];
	cr_assert_eq(mkdir(in_root("real"), 0700), 0);
	snprintf(target, sizeof(target), "%s", path);
	cr_assert_eq(symlink(target, in_root("link")), 0);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM);
	cr_assert_not_null(strstr(err.text, "symbolic link"));
	in_root("link/");
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM);
	cr_assert_eq(tw_rundir_open_dir(path, &err), TW_EPERM);
	cr_assert_eq(tw_rundir_open(path, "file", O_RDWR | O_CREAT, 0600, &err), TW_EPERM);
	cr_assert_neq(access(in_root("real/file"), F_OK), 0);
	/* a dangling one must not be made real either */
	cr_assert_eq(symlink("/tmp/tw-test-nowhere/x", in_root("dangling")), 0);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM);
}

Test(rundir, refuses_what_is_no_directory)
{
	int fd = open(in_root("file"), O_WRONLY | O_CREAT, 0700);
	cr_assert(fd >= 0);
	close(fd);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM);
	cr_assert_not_null(strstr(err.text, "no directory"));
}

Test(rundir, refuses_another_users_directory)
{
	if (geteuid() != 0) {
		cr_skip_test("only root can give a directory away");
	}
	cr_assert_eq(mkdir(in_root("theirs"), 0700), 0);
	cr_assert_eq(chown(path, 12345, 12345), 0);
	cr_assert_eq(tw_rundir_ensure(path, &err), TW_EPERM);
	cr_assert_not_null(strstr(err.text, "12345"));
}

Test(rundir, refuses_paths_that_are_none)
{
	char long_path[2 * TW_PATH_BYTES];
	memset(long_path, 'a', sizeof(long_path) - 1);
	long_path[0] = '/';
	long_path[sizeof(long_path) - 1] = '\0';
	cr_assert_eq(tw_rundir_ensure(long_path, &err), TW_EARG);
	cr_assert_eq(tw_rundir_ensure("", &err), TW_EARG);
	cr_assert_eq(tw_rundir_ensure(NULL, &err), TW_EARG);
	cr_assert_eq(tw_rundir_ensure(in_root("a/b/c"), &err), TW_ENOTFOUND);
}

Test(rundir, opens_files_inside_and_nowhere_else)
{
	static const char *const bad[] = { "", ".", "..", "../x", "a/b", "/etc/passwd" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(tw_rundir_open(root, bad[i], O_RDWR | O_CREAT, 0600, &err), TW_EARG,
			     "\"%s\"", bad[i]);
	}
	cr_assert_eq(tw_rundir_open(root, "file", O_RDONLY, 0, &err), TW_ENOTFOUND);
	int fd = tw_rundir_open(root, "file", O_RDWR | O_CREAT | O_EXCL, 0600, &err);
	cr_assert(fd >= 0, "%s", err.text);
	cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	close(fd);
	cr_assert_eq(access(in_root("file"), F_OK), 0);
	cr_assert_eq(tw_rundir_open(root, "file", O_RDWR | O_CREAT | O_EXCL, 0600, &err), TW_EBUSY);
	cr_assert_eq(symlink("file", in_root("alias")), 0);
	cr_assert_eq(tw_rundir_open(root, "alias", O_RDONLY, 0, &err), TW_EPERM);
}
