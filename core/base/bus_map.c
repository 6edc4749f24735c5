/* Bus files: making, checking, mapping and locking them.  Nothing here is on a hot path.
 *
 * Trust     constants are read once with pread(), checked, and kept in a private copy; sizes are
 *           never taken from the mapping again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bus_layout.h"
#include "base/fail.h"
#include "base/rundir.h"

static size_t header_bytes_here(void)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	return page_bytes > TW_BUS_HEADER_BYTES ? page_bytes : TW_BUS_HEADER_BYTES;
}

static struct flock first_byte(short type)
{
	return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
}

int tw_bus_lock(int fd, const char *name, struct tw_error *err)
{
	struct flock lock = first_byte(F_WRLCK);
	if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
		return TW_OK;
	}
	if (errno == EAGAIN || errno == EACCES) {
		return tw_fail(err, TW_EBUSY, "%s: lock: held by another process", name);
	}
	return tw_fail_sys(err, TW_ESYS, "%s: fcntl(F_OFD_SETLK)", name);
}

bool tw_bus_locked(int fd)
{
	struct flock lock = first_byte(F_WRLCK);
	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static bool is_power_of_two(uint64_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

static bool size_allowed(uint64_t size_bytes)
{
	return is_power_of_two(size_bytes) && size_bytes >= TW_BUS_MIN_BYTES &&
	       size_bytes <= TW_BUS_MAX_BYTES && size_bytes % header_bytes_here() == 0;
}

static int map_at(void *at, size_t len_bytes, int prot, int flags, int fd, size_t offset)
{
	void *got = mmap(at, len_bytes, prot, MAP_SHARED | MAP_FIXED | flags, fd, (off_t)offset);
	return got == MAP_FAILED ? -1 : 0;
}

static size_t span_bytes(const struct tw_bus_const *fixed)
{
	return fixed->header_bytes + 2 * (size_t)fixed->size_bytes;
}

/* Maps header, ring, ring at consecutive addresses.  On failure the caller closes the map. */
static int map_all(struct tw_bus_map *map, const char *name, int header_prot, int ring_prot,
		   struct tw_error *err)
{
	size_t header_bytes = map->fixed.header_bytes;
	size_t size_bytes = (size_t)map->fixed.size_bytes;

	/* PROT_NONE first: the three pieces then replace addresses that are ours */
	void *base = mmap(NULL, span_bytes(&map->fixed), PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED) {
		return tw_fail_sys(err, TW_ENOMEM, "%s: mmap %zu bytes", name,
				   span_bytes(&map->fixed));
	}
	map->header = base;
	map->ring = (uint8_t *)base + header_bytes;
	map->segment_bytes = map->fixed.size_bytes / TW_BUS_SEGMENTS;

	/* the writer faults every page in now; readers do as they go, 16 pages at a time */
	int flags = (ring_prot & PROT_WRITE) != 0 ? MAP_POPULATE : 0;
	if (map_at(base, header_bytes, header_prot, MAP_POPULATE, map->fd, 0) != 0 ||
	    map_at(map->ring, size_bytes, ring_prot, flags, map->fd, header_bytes) != 0 ||
	    map_at(map->ring + size_bytes, size_bytes, ring_prot, flags, map->fd, header_bytes) !=
		    0) {
		return tw_fail_sys(err, TW_ESYS, "%s: mmap", name);
	}
	return TW_OK;
}

void tw_bus_map_close(struct tw_bus_map *map)
{
	if (map->header != NULL) {
		munmap(map->header, span_bytes(&map->fixed));
	}
	if (map->fd >= 0) {
		close(map->fd);
	}
	*map = (struct tw_bus_map){ .fd = -1 };
}

/* Takes the memory now: on a full file system a later store would be a SIGBUS. */
static int reserve(int fd, const char *name, size_t len_bytes, struct tw_error *err)
{
	if (fallocate(fd, 0, 0, (off_t)len_bytes) == 0) {
		return TW_OK;
	}
	if (errno == EOPNOTSUPP) { /* a file system without it: there is no better promise to get */
		return ftruncate(fd, (off_t)len_bytes) == 0
			       ? TW_OK
			       : tw_fail_sys(err, TW_ESYS, "%s: ftruncate", name);
	}
	return tw_fail_sys(err, errno == ENOSPC ? TW_EFULL : TW_ESYS, "%s: fallocate %zu bytes",
			   name, len_bytes);
}

int tw_bus_map_make(struct tw_bus_map *map, const char *run_dir, const char *name,
		    const struct tw_bus_const *fixed, struct tw_error *err)
{
	*map = (struct tw_bus_map){ .fd = -1 };
	if (!size_allowed(fixed->size_bytes)) {
		return tw_fail(err, TW_EARG,
			       "%s: size %llu bytes: allowed are powers of two from %u", name,
			       (unsigned long long)fixed->size_bytes, TW_BUS_MIN_BYTES);
	}
	map->fixed = *fixed;
	map->fixed.magic = TW_BUS_MAGIC;
	map->fixed.version = TW_BUS_VERSION;
	map->fixed.segments = TW_BUS_SEGMENTS;
	map->fixed.header_bytes = (uint32_t)header_bytes_here();

	map->fd = tw_rundir_open(run_dir, name, O_RDWR | O_CREAT | O_EXCL, 0600, err);
	if (map->fd < 0) {
		int code = map->fd;
		map->fd = -1;
		return code;
	}
	int rc = reserve(map->fd, name, map->fixed.header_bytes + (size_t)map->fixed.size_bytes,
			 err);
	if (rc == TW_OK) {
		rc = map_all(map, name, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, err);
	}
	if (rc != TW_OK) {
		tw_bus_map_close(map);
		return rc;
	}
	/* nobody sees any of it before the rename */
	struct tw_bus_header *header = map->header;
	header->fixed = map->fixed;
	atomic_init(&header->published, 0);
	atomic_init(&header->intent, 0);
	atomic_init(&header->state, TW_BUS_LIVE);
	atomic_init(&header->gate[0].pos, 0);
	atomic_init(&header->gate[0].seq, 1);
	return TW_OK;
}

static int check_fixed(const struct tw_bus_const *fixed, const char *name, uint16_t channel,
		       uint64_t file_bytes, struct tw_error *err)
{
	if (fixed->magic != TW_BUS_MAGIC) {
		return tw_fail(err, TW_EFORMAT, "%s: not a bus file", name);
	}
	if (fixed->version != TW_BUS_VERSION) {
		return tw_fail(err, TW_EFORMAT, "%s: version %u, this program reads %u", name,
			       fixed->version, TW_BUS_VERSION);
	}
	if (fixed->header_bytes != header_bytes_here() || fixed->segments != TW_BUS_SEGMENTS ||
	    !size_allowed(fixed->size_bytes) ||
	    file_bytes != fixed->header_bytes + fixed->size_bytes) {
		return tw_fail(err, TW_EFORMAT,
			       "%s: sizes do not hold: header %u, ring %llu, file %llu bytes", name,
			       fixed->header_bytes, (unsigned long long)fixed->size_bytes,
			       (unsigned long long)file_bytes);
	}
	if (fixed->channel != channel || fixed->session == 0) {
		return tw_fail(err, TW_EFORMAT, "%s: of channel %u, session %llu", name,
			       fixed->channel, (unsigned long long)fixed->session);
	}
	return TW_OK;
}

static int read_fixed(struct tw_bus_map *map, const char *name, uint16_t channel,
		      struct tw_error *err)
{
	struct stat st;
	if (fstat(map->fd, &st) != 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: fstat", name);
	}
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		return tw_fail(err, TW_EPERM, "%s: not a regular file of ours", name);
	}
	ssize_t n = pread(map->fd, &map->fixed, sizeof(map->fixed), 0);
	if (n < 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: pread", name);
	}
	if ((size_t)n < sizeof(map->fixed)) {
		return tw_fail(err, TW_EFORMAT, "%s: %zd bytes: not a bus file", name, n);
	}
	return check_fixed(&map->fixed, name, channel, (uint64_t)st.st_size, err);
}

int tw_bus_map_open(struct tw_bus_map *map, const char *run_dir, uint16_t channel, bool writable,
		    struct tw_error *err)
{
	*map = (struct tw_bus_map){ .fd = -1 };
	char name[TW_BUS_NAME_MAX_BYTES];
	snprintf(name, sizeof(name), TW_BUS_FILE_NAME, channel);

	/* non-blocking: means nothing for a file, and a FIFO in its place does not hang us */
	int flags = (writable ? O_RDWR : O_RDONLY) | O_NONBLOCK;
	int fd = tw_rundir_open(run_dir, name, flags, 0, err);
	if (fd < 0) {
		return fd;
	}
	map->fd = fd;
	int rc = read_fixed(map, name, channel, err);
	if (rc == TW_OK) {
		int header_prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
		rc = map_all(map, name, header_prot, PROT_READ, err);
	}
	if (rc != TW_OK) {
		tw_bus_map_close(map);
	}
	return rc;
}

void tw_bus_supersede(const char *run_dir, uint16_t channel)
{
	char name[TW_BUS_NAME_MAX_BYTES];
	snprintf(name, sizeof(name), TW_BUS_FILE_NAME, channel);
	int fd = tw_rundir_open(run_dir, name, O_RDWR | O_NONBLOCK, 0, NULL);
	if (fd < 0) {
		return;
	}
	struct stat st;
	uint64_t magic = 0;
	size_t len_bytes = header_bytes_here();
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)len_bytes &&
	    pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	    magic == TW_BUS_MAGIC) {
		struct tw_bus_header *header =
			mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (header != MAP_FAILED) {
			/* B7: pairs with B8; the old writer is gone (we hold its lock) */
			atomic_store_explicit(&header->state, TW_BUS_SUPERSEDED,
					      memory_order_release);
			munmap(header, len_bytes);
		}
	}
	close(fd);
}
