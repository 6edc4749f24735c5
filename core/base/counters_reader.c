/* Reading the counter file of another process.
 *
 * Memory    header and tables are copied and the copy is validated, so that nothing the owner does
 *           to them later matters.  Values and histograms are read where they are mapped, at
 *           offsets taken from the copy; any value there is a value.  Whoever may shorten the file
 *           (the same user only, by the mode of run_dir) can still make a read of it a SIGBUS. */
#include "base/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/counters_file.h"
#include "base/fail.h"
#include "base/rundir.h"

struct tw_stats_reader {
	uint8_t *map;
	size_t size_bytes;
	uint8_t *meta; /* validated copy; the next four point into it */
	const struct tw_counters_header *header;
	const struct tw_counters_group *groups;
	const struct tw_counters_value *values;
	const struct tw_counters_hist *hists;
};

static bool read_all(int fd, void *dst, size_t bytes)
{
	size_t done = 0;
	while (done < bytes) {
		ssize_t n = pread(fd, (uint8_t *)dst + done, bytes - done, (off_t)done);
		if (n <= 0) {
			if (n < 0 && errno == EINTR) {
				continue;
			}
			return false;
		}
		done += (size_t)n;
	}
	return true;
}

static int load_meta(struct tw_stats_reader *r, int fd, struct tw_error *err)
{
	struct tw_counters_header h;
	if (!read_all(fd, &h, sizeof(h))) {
		return tw_fail(err, TW_EFORMAT, "shorter than a header");
	}
	int rc = tw_counters_check_header(&h, sizeof(h), r->size_bytes, err);
	if (rc < 0) {
		return rc;
	}
	size_t meta_bytes = (size_t)h.meta_bytes;
	r->meta = malloc(meta_bytes);
	if (r->meta == NULL) {
		return tw_fail(err, TW_ENOMEM, "out of memory");
	}
	if (!read_all(fd, r->meta, meta_bytes)) {
		return tw_fail(err, TW_EFORMAT, "shorter than its tables");
	}
	/* the header once more: it may have changed since */
	rc = tw_counters_check(r->meta, meta_bytes, r->size_bytes, err);
	if (rc < 0) {
		return rc;
	}
	/* table offsets are multiples of 8 within memory from malloc() */
	r->header = (const void *)r->meta;
	r->groups = (const void *)(r->meta + r->header->groups_offset);
	r->values = (const void *)(r->meta + r->header->values_offset);
	r->hists = (const void *)(r->meta + r->header->hists_offset);
	return TW_OK;
}

static int load(struct tw_stats_reader *r, int fd, struct tw_error *err)
{
	struct stat st;
	if (fstat(fd, &st) != 0) {
		return tw_fail_sys(err, TW_ESYS, "fstat");
	}
	if (!S_ISREG(st.st_mode) || st.st_size <= 0) {
		return tw_fail(err, TW_EFORMAT, "no regular file, or empty");
	}
	if (st.st_size > (off_t)TW_COUNTERS_MAX_BYTES) {
		return tw_fail(err, TW_EFORMAT, "%lld bytes are too many", (long long)st.st_size);
	}
	r->size_bytes = (size_t)st.st_size;
	int rc = load_meta(r, fd, err);
	if (rc < 0) {
		return rc;
	}
	void *map = mmap(NULL, r->size_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED) {
		return tw_fail_sys(err, TW_ESYS, "mmap");
	}
	r->map = map;
	return TW_OK;
}

int tw_stats_open(struct tw_stats_reader **reader_p, const char *run_dir, const char *file_name,
		  struct tw_error *err)
{
	*reader_p = NULL;
	/* O_NONBLOCK: a FIFO under that name must not hold us up */
	int fd = tw_rundir_open(run_dir, file_name, O_RDONLY | O_NONBLOCK, 0, err);
	if (fd < 0) {
		return fd;
	}
	struct tw_error why = { 0 };
	int rc = TW_ENOMEM;
	struct tw_stats_reader *r = calloc(1, sizeof(*r));
	if (r != NULL) {
		rc = load(r, fd, &why);
	}
	close(fd);
	if (rc < 0) {
		tw_stats_reader_close(r);
		return tw_fail(err, rc, "%s/%s: %s", run_dir, file_name,
			       why.code != TW_OK ? why.text : tw_strstatus(rc));
	}
	*reader_p = r;
	return TW_OK;
}

const char *tw_stats_program(const struct tw_stats_reader *r)
{
	return r->header->program;
}

int tw_stats_pid(const struct tw_stats_reader *r)
{
	return (int)r->header->pid;
}

bool tw_stats_alive(const struct tw_stats_reader *r)
{
	return tw_process_lives(r->header->pid, r->header->start_ticks);
}

uint32_t tw_stats_value_count(const struct tw_stats_reader *r)
{
	return r->header->value_count;
}

void tw_stats_value_at(const struct tw_stats_reader *r, uint32_t index, struct tw_stats_value *out)
{
	TW_ASSERT(index < r->header->value_count);
	const struct tw_counters_value *v = &r->values[index];
	const struct tw_counters_group *g = &r->groups[v->group];
	const _Atomic uint64_t *values = (const void *)(r->map + g->values_offset);
	*out = (struct tw_stats_value){
		.group = g->set,
		.label = g->label,
		.name = v->name,
		.unit = v->unit,
		.kind = (enum tw_counter_kind)v->kind,
		.value =
			atomic_load_explicit(&values[index - g->first_value], memory_order_relaxed),
	};
}

uint32_t tw_stats_hist_count(const struct tw_stats_reader *r)
{
	return r->header->hist_count;
}

void tw_stats_hist_at(const struct tw_stats_reader *r, uint32_t index, struct tw_stats_hist *out)
{
	TW_ASSERT(index < r->header->hist_count);
	const struct tw_counters_hist *d = &r->hists[index];
	const struct tw_counters_group *g = &r->groups[d->group];
	const struct tw_hist *hists = (const void *)(r->map + g->hists_offset);
	*out = (struct tw_stats_hist){ .group = g->set,
				       .label = g->label,
				       .name = d->name,
				       .hist = &hists[index - g->first_hist] };
}

void tw_stats_reader_close(struct tw_stats_reader *r)
{
	if (r == NULL) {
		return;
	}
	if (r->map != NULL) {
		munmap(r->map, r->size_bytes);
	}
	free(r->meta);
	free(r);
}
