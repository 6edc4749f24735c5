/* run_dir: making, checking and opening in it.
 *
 * The directory may lie in a place where everybody writes (/dev/shm): whatever bears its name is
 * checked through a descriptor, and files are opened relative to that descriptor, so that nothing
 * can be put in between the check and the use. */
#include "base/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

void tw_rundir_default(char path[TW_PATH_BYTES])
{
	snprintf(path, TW_PATH_BYTES, "/dev/shm/tidewire-%u", (unsigned int)geteuid());
}

static int status_of_errno(void)
{
	switch (errno) {
	case ENOENT:
		return TW_ENOTFOUND;
	case EEXIST:
		return TW_EBUSY;
	case EACCES:
	case EPERM:
	case ELOOP: /* O_NOFOLLOW met a symbolic link */
		return TW_EPERM;
	default:
		return TW_ESYS;
	}
}

/* Copies `path` without trailing slashes: with one, the kernel follows a symbolic link in spite of
 * O_NOFOLLOW. */
static int trim(char out[TW_PATH_BYTES], const char *path, struct tw_error *err)
{
	size_t len = path == NULL ? 0 : strnlen(path, TW_PATH_BYTES);
	if (len == 0 || len == TW_PATH_BYTES) {
		return tw_fail(err, TW_EARG, "run_dir: the path is empty or has over %d bytes",
			       TW_PATH_BYTES - 1);
	}
	while (len > 1 && path[len - 1] == '/') {
		len--;
	}
	memcpy(out, path, len);
	out[len] = '\0';
	return TW_OK;
}

static int open_dir(const char *path, struct tw_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		return fd;
	}
	struct stat st;
	int saved = errno;
	if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
		return tw_fail(err, TW_EPERM, "%s: is a symbolic link", path);
	}
	if (saved == ENOTDIR) {
		return tw_fail(err, TW_EPERM, "%s: is no directory", path);
	}
	errno = saved;
	return tw_fail_sys(err, status_of_errno(), "%s: open", path);
}

int tw_rundir_ensure(const char *path, struct tw_error *err)
{
	char dir[TW_PATH_BYTES];
	int rc = trim(dir, path, err);
	if (rc < 0) {
		return rc;
	}
	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		return tw_fail_sys(err, status_of_errno(), "%s: mkdir", dir);
	}
	int fd = open_dir(dir, err);
	if (fd < 0) {
		return fd;
	}
	struct stat st;
	if (fstat(fd, &st) != 0) {
		rc = tw_fail_sys(err, TW_ESYS, "%s: fstat", dir);
	} else if (st.st_uid != geteuid()) {
		rc = tw_fail(err, TW_EPERM, "%s: belongs to user %u, not to us (%u)", dir,
			     (unsigned int)st.st_uid, (unsigned int)geteuid());
	} else if ((st.st_mode & 0777) != 0700) {
		/* a set-group-id bit, as inherited from the parent, does no harm */
		rc = tw_fail(err, TW_EPERM, "%s: has mode %04o, must be 0700", dir,
			     (unsigned int)(st.st_mode & 0777));
	}
	close(fd);
	return rc;
}

int tw_rundir_open_dir(const char *run_dir, struct tw_error *err)
{
	char dir[TW_PATH_BYTES];
	int rc = trim(dir, run_dir, err);
	return rc < 0 ? rc : open_dir(dir, err);
}

int tw_rundir_open(const char *run_dir, const char *name, int flags, mode_t mode,
		   struct tw_error *err)
{
	char dir[TW_PATH_BYTES];
	int rc = trim(dir, run_dir, err);
	if (rc < 0) {
		return rc;
	}
	if (name == NULL || name[0] == '\0' || strchr(name, '/') != NULL ||
	    strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		return tw_fail(err, TW_EARG, "%s: \"%s\" is no file name", dir,
			       name == NULL ? "" : name);
	}
	int dir_fd = open_dir(dir, err);
	if (dir_fd < 0) {
		return dir_fd;
	}
	int fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0) {
		fd = tw_fail_sys(err, status_of_errno(), "%s/%s: open", dir, name);
	}
	close(dir_fd);
	return fd;
}
