/* A private directory that goes with its files. */
#ifndef TW_TESTS_TEMP_DIR_H
#define TW_TESTS_TEMP_DIR_H

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct temp_dir {
	char path[128];
};

static inline bool temp_dir_make(struct temp_dir *dir)
{
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(dir->path, sizeof(dir->path), "%s/tw-test-XXXXXX", parent);
	return mkdtemp(dir->path) != NULL;
}

static inline void temp_dir_remove(const struct temp_dir *dir)
{
	DIR *d = opendir(dir->path);
	if (d != NULL) {
		const struct dirent *entry;
		while ((entry = readdir(d)) != NULL) {
			(void)unlinkat(dirfd(d), entry->d_name, 0); /* "." and ".." refuse */
		}
		closedir(d);
	}
	(void)rmdir(dir->path);
}

#endif
