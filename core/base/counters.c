/* Making a counter file.  Its layout is in counters_file.h.
 *
 * A file appears whole: it is made under a name of its own and renamed when everything is in it.
 * Owners    a file belongs to the process whose pid and start time it bears.  Whoever makes or
 *           removes a file holds a lock on run_dir meanwhile, so that of two processes that start
 *           under one name at once the second finds the first.
 * Memory    the blocks are allocated before they are mapped: a full file system is an error at the
 *           start, not a SIGBUS at some counter's first bump. */
#include "base/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counters_file.h"
#include "base/counters_sets.h"
#include "base/fail.h"
#include "base/rundir.h"
#include "base/slab.h"

#define SUFFIX         ".counters"
#define NAME_MAX_BYTES 192 /* leaves room for suffixes within NAME_MAX */

struct added {
	enum tw_set set;
	char label[sizeof(((struct tw_counters_group *)0)->label)];
	struct tw_counters *out; /* the caller's, filled in at seal */
};

struct tw_stats {
	int dir_fd; /* -1: private memory */
	char file_name[NAME_MAX_BYTES + sizeof(SUFFIX)];
	char program[sizeof(((struct tw_counters_header *)0)->program)];
	struct added *added;
	uint32_t added_count, added_room;
	uint8_t *base; /* NULL until sealed */
	size_t size_bytes;
	dev_t dev; /* of the file made; another process may have put its own in its place since */
	ino_t ino;
};

static bool is_plain(const char *text)
{
	for (; *text != '\0'; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == 0x7f) {
			return false;
		}
	}
	return true;
}

uint64_t tw_process_start_ticks(uint32_t pid)
{
	char path[64];
	char text[1024];
	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return 0;
	}
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	/* pid (name) state ...: the name may hold anything, so count fields from the last ')' */
	const char *p = strrchr(text, ')');
	if (p == NULL || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X') {
		return 0;
	}
	p++;
	for (int field = 3; field <= 22; field++) {
		p = strchr(p, ' ');
		if (p == NULL) {
			return 0;
		}
		p++;
	}
	return strtoull(p, NULL, 10);
}

bool tw_process_lives(uint32_t pid, uint64_t start_ticks)
{
	uint64_t found = tw_process_start_ticks(pid);
	if (found != 0) {
		return found == start_ticks;
	}
	/* where there is no /proc at all, the pid alone has to do */
	return access("/proc/self/stat", R_OK) != 0 && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

/* TW_EBUSY where a living process owns the name.  What is no counter file may be replaced. */
static int check_owner(const struct tw_stats *s, struct tw_error *err)
{
	/* O_NONBLOCK: a FIFO under that name must not hold us up */
	int fd = openat(s->dir_fd, s->file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0) {
		return errno == ENOENT ? TW_OK
				       : tw_fail_sys(err, errno == ELOOP ? TW_EPERM : TW_ESYS,
						     "counters %s: open", s->file_name);
	}
	struct tw_counters_header h = { 0 };
	ssize_t n = pread(fd, &h, sizeof(h), 0);
	close(fd);
	if (n != (ssize_t)sizeof(h) || memcmp(h.magic, TW_COUNTERS_MAGIC, sizeof(h.magic)) != 0 ||
	    h.pid == 0 || h.pid > INT_MAX || !tw_process_lives(h.pid, h.start_ticks)) {
		return TW_OK;
	}
	return tw_fail(err, TW_EBUSY, "counters %s: process %u uses that name", s->file_name,
		       h.pid);
}

static int lock_dir(const struct tw_stats *s, struct tw_error *err)
{
	while (flock(s->dir_fd, LOCK_EX) != 0) {
		if (errno != EINTR) {
			return tw_fail_sys(err, TW_ESYS, "counters %s: flock run_dir",
					   s->file_name);
		}
	}
	return TW_OK;
}

static void unlock_dir(const struct tw_stats *s)
{
	flock(s->dir_fd, LOCK_UN);
}

static int open_dir(struct tw_stats *s, const char *run_dir, struct tw_error *err)
{
	int rc = tw_rundir_ensure(run_dir, err);
	if (rc == TW_OK) {
		rc = tw_rundir_open_dir(run_dir, err);
	}
	if (rc < 0) {
		return rc;
	}
	s->dir_fd = rc;
	return check_owner(s, err);
}

int tw_stats_create(struct tw_stats **stats_p, const char *run_dir, const char *name,
		    const char *program, struct tw_error *err)
{
	*stats_p = NULL;
	size_t len = strnlen(name, NAME_MAX_BYTES + 1);
	if (len == 0 || len > NAME_MAX_BYTES || strchr(name, '/') != NULL || name[0] == '.' ||
	    !is_plain(name) || !is_plain(program)) {
		return tw_fail(err, TW_EARG, "counters \"%s\": no name for a file", name);
	}
	struct tw_stats *s = calloc(1, sizeof(*s));
	if (s == NULL) {
		return tw_fail(err, TW_ENOMEM, "counters %s: out of memory", name);
	}
	s->dir_fd = -1;
	snprintf(s->file_name, sizeof(s->file_name), "%s" SUFFIX, name);
	snprintf(s->program, sizeof(s->program), "%s", program);
	int rc = run_dir != NULL ? open_dir(s, run_dir, err) : TW_OK;
	if (rc < 0) {
		tw_stats_close(s, false);
		return rc;
	}
	*stats_p = s;
	return TW_OK;
}

int tw_stats_add(struct tw_stats *s, enum tw_set set, const char *label, struct tw_counters *out,
		 struct tw_error *err)
{
	*out = (struct tw_counters){ 0 };
	if (s->base != NULL) {
		return tw_fail(err, TW_ESTATE, "counters %s: already sealed", s->file_name);
	}
	if ((unsigned int)set >= TW_SET_COUNT || strlen(label) >= sizeof(s->added->label) ||
	    !is_plain(label)) {
		return tw_fail(err, TW_EARG, "counters %s: set %d labelled \"%s\"", s->file_name,
			       (int)set, label);
	}
	if (s->added_count == s->added_room) {
		uint32_t room = s->added_room == 0 ? 16 : s->added_room * 2;
		struct added *more = NULL;
		if (room <= TW_COUNTERS_MAX_ITEMS) {
			more = reallocarray(s->added, room, sizeof(*more));
		}
		if (more == NULL) {
			return tw_fail(err, TW_ENOMEM, "counters %s: %u groups", s->file_name,
				       room);
		}
		s->added = more;
		s->added_room = room;
	}
	struct added *a = &s->added[s->added_count++];
	*a = (struct added){ .set = set, .out = out };
	snprintf(a->label, sizeof(a->label), "%s", label);
	return TW_OK;
}

static uint64_t align_up(uint64_t n)
{
	return tw_round_up(n, TW_COUNTERS_ALIGN);
}

/* Counts everything and lays it out; the header then says where each part goes. */
static int lay_out(const struct tw_stats *s, struct tw_counters_header *h, struct tw_error *err)
{
	uint64_t values = 0;
	uint64_t hists = 0;
	uint64_t data_bytes = 0;
	for (uint32_t i = 0; i < s->added_count; i++) {
		const struct tw_counters_set *set = &tw_counters_sets[s->added[i].set];
		values += set->value_count;
		hists += set->hist_count;
		data_bytes += align_up(set->value_count * sizeof(uint64_t));
		data_bytes += align_up(set->hist_count * sizeof(struct tw_hist));
	}
	uint64_t groups_at = sizeof(*h);
	uint64_t values_at = groups_at + s->added_count * sizeof(struct tw_counters_group);
	uint64_t hists_at = values_at + values * sizeof(struct tw_counters_value);
	uint64_t meta_bytes = align_up(hists_at + hists * sizeof(struct tw_counters_hist));
	uint64_t file_bytes = meta_bytes + data_bytes;
	if (file_bytes > TW_COUNTERS_MAX_BYTES) {
		return tw_fail(err, TW_EFULL, "counters %s: %llu bytes for %u groups: too many",
			       s->file_name, (unsigned long long)file_bytes, s->added_count);
	}
	*h = (struct tw_counters_header){ .magic = TW_COUNTERS_MAGIC,
					  .version = TW_COUNTERS_VERSION,
					  .header_bytes = sizeof(*h),
					  .file_bytes = file_bytes,
					  .meta_bytes = meta_bytes,
					  .start_ticks = tw_process_start_ticks((uint32_t)getpid()),
					  .created_ns = tw_wall_ns(),
					  .pid = (uint32_t)getpid(),
					  .group_count = s->added_count,
					  .value_count = (uint32_t)values,
					  .hist_count = (uint32_t)hists,
					  .groups_offset = (uint32_t)groups_at,
					  .values_offset = (uint32_t)values_at,
					  .hists_offset = (uint32_t)hists_at,
					  .hist_bytes = sizeof(struct tw_hist),
					  .hist_sub_bits = TW_HIST_SUB_BITS,
					  .hist_max_bits = TW_HIST_MAX_BITS };
	memcpy(h->program, s->program, sizeof(h->program));
	return TW_OK;
}

static void put_text(char *field, size_t bytes, const char *text)
{
	snprintf(field, bytes, "%s",
		 text); /* lengths were checked, at the latest by the compiler */
}

static void write_descriptors(uint8_t *base, const struct tw_counters_header *h,
			      const struct tw_counters_set *set, const struct tw_counters_group *g,
			      uint32_t group)
{
	for (uint32_t i = 0; i < set->value_count; i++) {
		struct tw_counters_value v = { .kind = (uint32_t)set->values[i].kind,
					       .group = group };
		put_text(v.name, sizeof(v.name), set->values[i].name);
		put_text(v.unit, sizeof(v.unit), set->values[i].unit);
		memcpy(base + h->values_offset + (g->first_value + i) * sizeof(v), &v, sizeof(v));
	}
	for (uint32_t i = 0; i < set->hist_count; i++) {
		struct tw_counters_hist d = { .unit = "ns", .group = group };
		put_text(d.name, sizeof(d.name), set->hists[i].name);
		memcpy(base + h->hists_offset + (g->first_hist + i) * sizeof(d), &d, sizeof(d));
	}
}

/* Fills in all that is constant.  Values and histograms are zero, as the memory came. */
static void write_tables(const struct tw_stats *s, uint8_t *base,
			 const struct tw_counters_header *h)
{
	memcpy(base, h, sizeof(*h));
	uint64_t data_at = h->meta_bytes;
	uint32_t next_value = 0;
	uint32_t next_hist = 0;
	for (uint32_t i = 0; i < s->added_count; i++) {
		const struct tw_counters_set *set = &tw_counters_sets[s->added[i].set];
		struct tw_counters_group g = { .first_value = next_value,
					       .value_count = set->value_count,
					       .first_hist = next_hist,
					       .hist_count = set->hist_count,
					       .values_offset = data_at };
		g.hists_offset = data_at + align_up(set->value_count * sizeof(uint64_t));
		data_at = g.hists_offset + align_up(set->hist_count * sizeof(struct tw_hist));
		put_text(g.set, sizeof(g.set), set->name);
		put_text(g.label, sizeof(g.label), s->added[i].label);
		memcpy(base + h->groups_offset + i * sizeof(g), &g, sizeof(g));
		write_descriptors(base, h, set, &g, i);
		next_value += set->value_count;
		next_hist += set->hist_count;
	}
}

static void hand_out(const struct tw_stats *s, uint8_t *base, const struct tw_counters_header *h)
{
	for (uint32_t i = 0; i < s->added_count; i++) {
		struct tw_counters_group g;
		memcpy(&g, base + h->groups_offset + i * sizeof(g), sizeof(g));
		/* offsets are multiples of 128 in page-aligned memory */
		s->added[i].out->values = (void *)(base + g.values_offset);
		s->added[i].out->hists = (void *)(base + g.hists_offset);
	}
}

static uint8_t *map_private(const struct tw_stats *s, size_t size, struct tw_error *err)
{
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED) {
		tw_fail_sys(err, TW_ENOMEM, "counters %s: mmap %zu bytes", s->file_name, size);
		return NULL;
	}
	return p;
}

/* Opens a file that has no name but its maker's. */
static int open_temp(const struct tw_stats *s, char *temp, size_t temp_bytes, struct tw_error *err)
{
	static _Atomic unsigned int serial; /* makes names differ; orders nothing */
	snprintf(temp, temp_bytes, ".%s.%d.%u", s->file_name, (int)getpid(),
		 atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
	int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(s->dir_fd, temp, flags, 0600);
	if (fd < 0 && errno == EEXIST) { /* left by a process that had our pid and was killed */
		unlinkat(s->dir_fd, temp, 0);
		fd = openat(s->dir_fd, temp, flags, 0600);
	}
	return fd >= 0 ? fd : tw_fail_sys(err, TW_ESYS, "counters %s: open", temp);
}

static uint8_t *map_file(struct tw_stats *s, int fd, size_t size, struct tw_error *err)
{
	struct stat st;
	int rc = posix_fallocate(fd, 0, (off_t)size);
	if (rc != 0) {
		errno = rc;
		tw_fail_sys(err, rc == ENOSPC ? TW_EFULL : TW_ESYS,
			    "counters %s: posix_fallocate %zu bytes", s->file_name, size);
		return NULL;
	}
	if (fstat(fd, &st) != 0) {
		tw_fail_sys(err, TW_ESYS, "counters %s: fstat", s->file_name);
		return NULL;
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (p == MAP_FAILED) {
		tw_fail_sys(err, TW_ENOMEM, "counters %s: mmap %zu bytes", s->file_name, size);
		return NULL;
	}
	return p;
}

static int take_name(const struct tw_stats *s, const char *temp, struct tw_error *err)
{
	int rc = lock_dir(s, err);
	if (rc < 0) {
		return rc;
	}
	rc = check_owner(s, err);
	if (rc == TW_OK && renameat(s->dir_fd, temp, s->dir_fd, s->file_name) != 0) {
		rc = tw_fail_sys(err, TW_ESYS, "counters %s: rename", s->file_name);
	}
	unlock_dir(s);
	return rc;
}

static int seal_file(struct tw_stats *s, const struct tw_counters_header *h, struct tw_error *err)
{
	char temp[sizeof(s->file_name) + 32];
	size_t size = (size_t)h->file_bytes;
	int fd = open_temp(s, temp, sizeof(temp), err);
	if (fd < 0) {
		return fd;
	}
	struct tw_error why = { .code = TW_ESYS };
	uint8_t *base = map_file(s, fd, size, &why);
	close(fd);
	int rc = why.code;
	if (base == NULL) {
		if (err != NULL) {
			*err = why;
		}
		goto undo_temp;
	}
	write_tables(s, base, h);
	rc = take_name(s, temp, err);
	if (rc < 0) {
		goto undo_map;
	}
	s->base = base;
	s->size_bytes = size;
	return TW_OK;

undo_map:
	munmap(base, size);
undo_temp:
	unlinkat(s->dir_fd, temp, 0);
	return rc;
}

int tw_stats_seal(struct tw_stats *s, struct tw_error *err)
{
	if (s->base != NULL) {
		return tw_fail(err, TW_ESTATE, "counters %s: already sealed", s->file_name);
	}
	struct tw_counters_header h = { 0 };
	int rc = lay_out(s, &h, err);
	if (rc < 0) {
		return rc;
	}
	if (s->dir_fd >= 0) {
		rc = seal_file(s, &h, err);
		if (rc < 0) {
			return rc;
		}
	} else {
		uint8_t *base = map_private(s, (size_t)h.file_bytes, err);
		if (base == NULL) {
			return TW_ENOMEM;
		}
		write_tables(s, base, &h);
		s->base = base;
		s->size_bytes = (size_t)h.file_bytes;
	}
	hand_out(s, s->base, &h);
	return TW_OK;
}

/* Removes the file where it is still ours. */
static void remove_file(const struct tw_stats *s)
{
	struct stat st;
	if (lock_dir(s, NULL) < 0) {
		return;
	}
	if (fstatat(s->dir_fd, s->file_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_dev == s->dev && st.st_ino == s->ino) {
		unlinkat(s->dir_fd, s->file_name, 0);
	}
	unlock_dir(s);
}

void tw_stats_close(struct tw_stats *s, bool unlink_file)
{
	if (s == NULL) {
		return;
	}
	if (s->base != NULL) {
		if (unlink_file && s->dir_fd >= 0) {
			remove_file(s);
		}
		munmap(s->base, s->size_bytes);
	}
	if (s->dir_fd >= 0) {
		close(s->dir_fd);
	}
	free(s->added);
	free(s);
}

void tw_duty_init(struct tw_duty *duty, struct tw_counters counters, uint64_t threshold_ns)
{
	*duty = (struct tw_duty){ .counters = counters, .threshold_ns = threshold_ns };
}

void tw_duty_turn(struct tw_duty *duty, uint64_t now_ns, unsigned int work)
{
	const struct tw_counters *c = &duty->counters;
	tw_counter_add(c, TW_LOOP_turns, 1);
	if (work == 0) {
		tw_counter_add(c, TW_LOOP_empty_turns, 1);
	}
	if (duty->last_ns != 0) { /* the first turn has no length */
		uint64_t turn_ns = now_ns - duty->last_ns;
		tw_counter_max(c, TW_LOOP_max_turn_ns, turn_ns);
		if (turn_ns > duty->threshold_ns) {
			tw_counter_add(c, TW_LOOP_slow_turns, 1);
		}
	}
	duty->last_ns = now_ns;
}
