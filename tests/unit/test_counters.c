/* Counter files: what is written is read, live and from another process; who owns a name keeps it;
 * a broken file is refused and never harms its reader. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/counters.h"
#include "base/counters_file.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_LSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_LSAN 1
#endif
#endif
#ifdef HAVE_LSAN
#include <sanitizer/lsan_interface.h>
#define ASSERT_NO_LEAK() cr_assert_eq(__lsan_do_recoverable_leak_check(), 0)
#else
#define ASSERT_NO_LEAK() ((void)0)
#endif

static char dir[64];
static struct tw_error err;

static void setup(void)
{
	snprintf(dir, sizeof(dir), "/tmp/tw-test-counters-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
}

static void cleanup(void)
{
	char command[128];
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	if (system(command) != 0) {
		fprintf(stderr, "left behind: %s\n", dir);
	}
}

TestSuite(counters, .init = setup, .fini = cleanup, .timeout = 60);

static const char *in_dir(const char *name)
{
	static char path[512];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static unsigned int files_in_dir(void)
{
	unsigned int n = 0;
	DIR *d = opendir(dir);
	cr_assert_not_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 ? 1 : 0;
	}
	closedir(d);
	return n;
}

struct groups {
	struct tw_counters loop, line_a, line_b, fh;
};

static int make(struct tw_stats **stats, struct groups *g, const char *run_dir)
{
	int rc = tw_stats_create(stats, run_dir, "test", "tw-test", &err);
	if (rc < 0) {
		return rc;
	}
	cr_assert_eq(tw_stats_add(*stats, TW_SET_loop, "", &g->loop, &err), TW_OK);
	cr_assert_eq(tw_stats_add(*stats, TW_SET_sub_line, "channel 1 line a", &g->line_a, &err),
		     TW_OK);
	cr_assert_eq(tw_stats_add(*stats, TW_SET_sub_line, "channel 1 line b", &g->line_b, &err),
		     TW_OK);
	cr_assert_eq(tw_stats_add(*stats, TW_SET_fh, "nasdaq", &g->fh, &err), TW_OK);
	cr_assert_null(g->loop.values, "valid only once sealed");
	return tw_stats_seal(*stats, &err);
}

static uint64_t find(const struct tw_stats_reader *r, const char *group, const char *label,
		     const char *name, struct tw_stats_value *out)
{
	unsigned int found = 0;
	for (uint32_t i = 0; i < tw_stats_value_count(r); i++) {
		struct tw_stats_value v;
		tw_stats_value_at(r, i, &v);
		if (strcmp(v.group, group) == 0 && strcmp(v.label, label) == 0 &&
		    strcmp(v.name, name) == 0) {
			*out = v;
			found++;
		}
	}
	cr_assert_eq(found, 1, "%s (%s) %s: found %u times", group, label, name, found);
	return out->value;
}

Test(counters, what_is_written_is_read_by_name)
{
	struct tw_stats *stats;
	struct tw_stats_reader *r;
	struct tw_stats_value v;
	struct groups g;
	cr_assert_eq(make(&stats, &g, dir), TW_OK, "%s", err.text);
	tw_counter_add(&g.line_a, TW_SUB_LINE_datagrams, 3);
	tw_counter_add(&g.line_b, TW_SUB_LINE_datagrams, 5);
	tw_counter_set(&g.line_b, TW_SUB_LINE_receive_buffer_bytes, UINT64_MAX);
	tw_counter_max(&g.loop, TW_LOOP_max_turn_ns, 9);
	tw_counter_max(&g.loop, TW_LOOP_max_turn_ns, 8);
	tw_hist_record(&g.fh.hists[TW_FH_HIST_exchange_to_feedhandler], 1000);
	cr_assert_eq(tw_counter_get(&g.line_a, TW_SUB_LINE_datagrams), 3);

	cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_OK, "%s", err.text);
	cr_assert_str_eq(tw_stats_program(r), "tw-test");
	cr_assert_eq(tw_stats_pid(r), getpid());
	cr_assert(tw_stats_alive(r));
	cr_assert_eq(tw_stats_value_count(r),
		     TW_N_loop_counters + 2 * TW_N_sub_line_counters + TW_N_fh_counters);
	cr_assert_eq(tw_stats_hist_count(r), TW_N_fh_hists);
	cr_assert_eq(find(r, "sub_line", "channel 1 line a", "datagrams", &v), 3);
	cr_assert_eq(v.kind, TW_KIND_COUNTER);
	cr_assert_eq(find(r, "sub_line", "channel 1 line b", "datagrams", &v), 5);
	cr_assert_eq(find(r, "sub_line", "channel 1 line b", "receive_buffer_bytes", &v),
		     UINT64_MAX);
	cr_assert_str_eq(v.unit, "bytes");
	cr_assert_eq(v.kind, TW_KIND_GAUGE);
	cr_assert_eq(find(r, "loop", "", "max_turn_ns", &v), 9);
	cr_assert_eq(v.kind, TW_KIND_MAX);
	struct tw_stats_hist h;
	struct tw_hist_summary s;
	tw_stats_hist_at(r, 0, &h);
	cr_assert_str_eq(h.group, "fh");
	cr_assert_str_eq(h.label, "nasdaq");
	cr_assert_str_eq(h.name, "exchange_to_feedhandler");
	tw_hist_summarize(h.hist, &s);
	cr_assert_eq(s.count, 1);
	cr_assert_eq(s.max_ns, 1000);

	/* live, and still there once the owner has let go of it */
	tw_counter_add(&g.line_a, TW_SUB_LINE_datagrams, 1);
	cr_assert_eq(find(r, "sub_line", "channel 1 line a", "datagrams", &v), 4);
	tw_stats_close(stats, true);
	cr_assert_eq(files_in_dir(), 0);
	cr_assert_eq(find(r, "sub_line", "channel 1 line a", "datagrams", &v), 4);
	tw_stats_reader_close(r);
	ASSERT_NO_LEAK();
}

Test(counters, groups_share_no_pair_of_cache_lines)
{
	struct tw_stats *stats;
	struct groups g;
	cr_assert_eq(make(&stats, &g, NULL), TW_OK, "%s", err.text);
	const struct tw_counters *all[] = { &g.loop, &g.line_a, &g.line_b, &g.fh };
	static const unsigned int values[] = { TW_N_loop_counters, TW_N_sub_line_counters,
					       TW_N_sub_line_counters, TW_N_fh_counters };
	const uint8_t *free_from = NULL;
	for (size_t i = 0; i < 4; i++) {
		const uint8_t *at = (const uint8_t *)all[i]->values;
		cr_assert_eq((uintptr_t)at % 128, 0);
		cr_assert(at >= free_from);
		free_from = at + values[i] * sizeof(uint64_t);
	}
	const uint8_t *hist = (const uint8_t *)g.fh.hists;
	cr_assert_eq((uintptr_t)hist % 128, 0);
	cr_assert(hist >= free_from);
	tw_stats_close(stats, true);
	tw_stats_close(NULL, true);
	tw_stats_reader_close(NULL);
	ASSERT_NO_LEAK();
}

/* A process that owns the name, counts once for every byte it is sent, and answers. */
struct child {
	pid_t pid;
	int to, from;
};

static struct child start_child(void)
{
	int down[2], up[2];
	struct child c;
	cr_assert_eq(pipe2(down, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(up, O_CLOEXEC), 0);
	c.pid = fork();
	cr_assert(c.pid >= 0);
	if (c.pid == 0) {
		struct tw_stats *stats;
		struct groups g;
		char byte = 'r';
		close(down[1]);
		if (make(&stats, &g, dir) != TW_OK || write(up[1], &byte, 1) != 1) {
			_exit(1);
		}
		while (read(down[0], &byte, 1) == 1) {
			tw_counter_add(&g.line_a, TW_SUB_LINE_bytes, 100);
			if (write(up[1], &byte, 1) != 1) {
				_exit(2);
			}
		}
		_exit(0); /* as if killed: nothing is closed */
	}
	close(down[0]);
	close(up[1]);
	c.to = down[1];
	c.from = up[0];
	char byte;
	cr_assert_eq(read(c.from, &byte, 1), 1, "the child did not come up");
	return c;
}

static void end_child(struct child *c, int sig)
{
	if (sig != 0) {
		kill(c->pid, sig);
	}
	close(c->to);
	close(c->from);
	cr_assert_eq(waitpid(c->pid, NULL, 0), c->pid);
}

Test(counters, another_process_sees_live_values)
{
	struct child c = start_child();
	struct tw_stats_reader *r;
	struct tw_stats_value v;
	cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_stats_pid(r), c.pid);
	for (unsigned int i = 1; i <= 10; i++) {
		char byte = 'x';
		cr_assert_eq(write(c.to, &byte, 1), 1);
		cr_assert_eq(read(c.from, &byte, 1), 1);
		cr_assert_eq(find(r, "sub_line", "channel 1 line a", "bytes", &v), i * 100);
	}
	cr_assert(tw_stats_alive(r));
	end_child(&c, 0);
	cr_assert_not(tw_stats_alive(r));
	cr_assert_eq(find(r, "sub_line", "channel 1 line a", "bytes", &v), 1000);
	tw_stats_reader_close(r);
	ASSERT_NO_LEAK();
}

Test(counters, a_name_belongs_to_a_living_process)
{
	struct child c = start_child();
	struct tw_stats *stats;
	struct groups g;
	char pid[32];
	cr_assert_eq(make(&stats, &g, dir), TW_EBUSY);
	cr_assert_null(stats);
	snprintf(pid, sizeof(pid), "process %d ", (int)c.pid);
	cr_assert_not_null(strstr(err.text, pid), "%s", err.text);

	/* killed, but not waited for: gone all the same */
	kill(c.pid, SIGKILL);
	siginfo_t info;
	cr_assert_eq(waitid(P_PID, (id_t)c.pid, &info, WEXITED | WNOWAIT), 0);
	cr_assert_eq(make(&stats, &g, dir), TW_OK, "%s", err.text);
	end_child(&c, 0);
	struct tw_stats *second;
	struct groups g2;
	cr_assert_eq(make(&second, &g2, dir), TW_EBUSY, "our own counts too");
	cr_assert_eq(files_in_dir(), 1);
	tw_stats_close(stats, true);
	ASSERT_NO_LEAK();
}

Test(counters, of_two_that_start_at_once_the_second_is_refused)
{
	struct tw_stats *first, *second;
	struct tw_counters c1, c2;
	cr_assert_eq(tw_stats_create(&first, dir, "x", "p", &err), TW_OK);
	cr_assert_eq(tw_stats_create(&second, dir, "x", "p", &err), TW_OK);
	cr_assert_eq(tw_stats_add(first, TW_SET_loop, "", &c1, &err), TW_OK);
	cr_assert_eq(tw_stats_add(second, TW_SET_loop, "", &c2, &err), TW_OK);
	cr_assert_eq(tw_stats_seal(first, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_stats_seal(second, &err), TW_EBUSY);
	cr_assert_null(c2.values);
	tw_stats_close(second, true); /* must not take the first one's file along */
	cr_assert_eq(access(in_dir("x.counters"), F_OK), 0);
	cr_assert_eq(files_in_dir(), 1);
	tw_counter_add(&c1, TW_LOOP_turns, 1);
	tw_stats_close(first, true);
	cr_assert_eq(files_in_dir(), 0);
	ASSERT_NO_LEAK();
}

/* Changes bytes of a file in place. */
static void patch(const char *name, off_t at, const void *bytes, size_t n)
{
	int fd = open(in_dir(name), O_RDWR);
	cr_assert(fd >= 0);
	cr_assert_eq(pwrite(fd, bytes, n, at), (ssize_t)n);
	close(fd);
}

Test(counters, a_pid_that_was_used_again_is_another_process)
{
	struct tw_stats *stats;
	struct groups g;
	cr_assert_eq(make(&stats, &g, dir), TW_OK);
	tw_stats_close(stats, false); /* the file stays, with our pid */
	cr_assert_eq(make(&stats, &g, dir), TW_EBUSY);
	uint64_t ticks = tw_process_start_ticks((uint32_t)getpid()) - 1;
	patch("test.counters", offsetof(struct tw_counters_header, start_ticks), &ticks,
	      sizeof(ticks));
	cr_assert_eq(make(&stats, &g, dir), TW_OK, "%s", err.text);
	/* another version's owner is respected as well */
	uint32_t version = TW_COUNTERS_VERSION + 1;
	patch("test.counters", offsetof(struct tw_counters_header, version), &version,
	      sizeof(version));
	struct tw_stats *second;
	cr_assert_eq(make(&second, &g, dir), TW_EBUSY);
	tw_stats_close(stats, true);
}

Test(counters, what_is_no_counter_file_gives_way_but_a_link_is_not_followed)
{
	struct tw_stats *stats;
	struct groups g;
	int fd = open(in_dir("test.counters"), O_WRONLY | O_CREAT, 0600);
	cr_assert(fd >= 0 && write(fd, "rubbish", 7) == 7);
	close(fd);
	cr_assert_eq(make(&stats, &g, dir), TW_OK, "%s", err.text);
	tw_stats_close(stats, true);

	fd = open(in_dir("precious"), O_WRONLY | O_CREAT, 0600);
	cr_assert(fd >= 0 && write(fd, "precious", 8) == 8);
	close(fd);
	cr_assert_eq(symlink("precious", in_dir("test.counters")), 0);
	cr_assert_eq(make(&stats, &g, dir), TW_EPERM);
	struct tw_stats_reader *r;
	cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_EPERM);
	struct stat st;
	cr_assert_eq(stat(in_dir("precious"), &st), 0);
	cr_assert_eq(st.st_size, 8);
}

Test(counters, only_our_own_file_is_removed)
{
	struct tw_stats *stats;
	struct groups g;
	cr_assert_eq(make(&stats, &g, dir), TW_OK);
	cr_assert_eq(unlink(in_dir("test.counters")), 0);
	int fd = open(in_dir("test.counters"), O_WRONLY | O_CREAT | O_EXCL, 0600);
	cr_assert(fd >= 0);
	close(fd);
	tw_stats_close(stats, true);
	cr_assert_eq(access(in_dir("test.counters"), F_OK), 0);
}

Test(counters, a_full_file_system_is_an_error_not_a_signal)
{
	struct tw_stats *stats;
	struct groups g;
	signal(SIGXFSZ, SIG_IGN);
	struct rlimit limit = { 4096, 4096 }; /* as good as full: no file may grow past it */
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_assert_eq(make(&stats, &g, dir), TW_ESYS);
	cr_assert_eq(err.sys_errno, EFBIG);
	cr_assert_eq(files_in_dir(), 0);
	tw_stats_close(stats, true);
	ASSERT_NO_LEAK();
}

Test(counters, misuse_is_refused)
{
	static const char *const bad[] = { "", "a/b", "../a", ".hidden", "a\nb" };
	struct tw_stats *stats;
	struct tw_counters c;
	char label[200];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(tw_stats_create(&stats, dir, bad[i], "p", &err), TW_EARG);
		cr_assert_null(stats);
	}
	cr_assert_eq(tw_stats_create(&stats, dir, "x", "p", &err), TW_OK);
	memset(label, 'l', sizeof(label));
	label[128] = '\0';
	cr_assert_eq(tw_stats_add(stats, TW_SET_loop, label, &c, &err), TW_EARG);
	cr_assert_eq(tw_stats_add(stats, TW_SET_loop, "a\x1b", &c, &err), TW_EARG);
	cr_assert_eq(tw_stats_add(stats, (enum tw_set)99, "", &c, &err), TW_EARG);
	label[127] = '\0';
	cr_assert_eq(tw_stats_add(stats, TW_SET_loop, label, &c, &err), TW_OK);
	cr_assert_eq(tw_stats_seal(stats, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_stats_seal(stats, &err), TW_ESTATE);
	cr_assert_eq(tw_stats_add(stats, TW_SET_loop, "", &c, &err), TW_ESTATE);
	tw_stats_close(stats, true);

	chmod(dir, 0755);
	cr_assert_eq(tw_stats_create(&stats, dir, "x", "p", &err), TW_EPERM);
	ASSERT_NO_LEAK();
}

Test(counters, many_groups)
{
	enum { N = 300 };
	static struct tw_counters c[N];
	struct tw_stats *stats;
	struct tw_stats_reader *r;
	cr_assert_eq(tw_stats_create(&stats, dir, "x", "p", &err), TW_OK);
	for (int i = 0; i < N; i++) {
		char label[32];
		snprintf(label, sizeof(label), "channel %d", i);
		cr_assert_eq(tw_stats_add(stats, TW_SET_sub_channel, label, &c[i], &err), TW_OK);
	}
	cr_assert_eq(tw_stats_seal(stats, &err), TW_OK, "%s", err.text);
	for (uint64_t i = 0; i < N; i++) {
		tw_counter_set(&c[i], TW_SUB_CHANNEL_next_seq, i + 1);
		tw_hist_record_n(&c[i].hists[TW_SUB_CHANNEL_HIST_repair], 1, i + 1);
	}
	cr_assert_eq(tw_stats_open(&r, dir, "x.counters", &err), TW_OK, "%s", err.text);
	for (uint32_t i = 0; i < N; i++) {
		struct tw_stats_value v;
		struct tw_stats_hist h;
		tw_stats_value_at(r, i * TW_N_sub_channel_counters + TW_SUB_CHANNEL_next_seq, &v);
		cr_assert_str_eq(v.name, "next_seq");
		cr_assert_eq(v.value, i + 1);
		tw_stats_hist_at(r, i * TW_N_sub_channel_hists + TW_SUB_CHANNEL_HIST_repair, &h);
		cr_assert_str_eq(h.name, "repair");
		cr_assert_eq(atomic_load(&h.hist->count), i + 1);
	}
	tw_stats_reader_close(r);
	tw_stats_close(stats, true);
	ASSERT_NO_LEAK();
}

/* Looks at everything that a reader hands out. */
static size_t walk(const struct tw_stats_reader *r)
{
	size_t seen = strlen(tw_stats_program(r)) + (size_t)tw_stats_pid(r);
	for (uint32_t i = 0; i < tw_stats_value_count(r); i++) {
		struct tw_stats_value v;
		tw_stats_value_at(r, i, &v);
		seen += strlen(v.group) + strlen(v.label) + strlen(v.name) + strlen(v.unit) +
			(size_t)v.value;
		cr_assert(v.kind <= TW_KIND_MAX);
	}
	for (uint32_t i = 0; i < tw_stats_hist_count(r); i++) {
		struct tw_stats_hist h;
		tw_stats_hist_at(r, i, &h);
		seen += strlen(h.group) + strlen(h.label) + strlen(h.name) +
			(size_t)tw_hist_quantile(h.hist, 0.5);
	}
	return seen;
}

Test(counters, no_changed_byte_harms_the_reader)
{
	static const uint8_t flips[] = { 0x01, 0x80, 0xff };
	struct tw_stats *stats;
	struct groups g;
	cr_assert_eq(make(&stats, &g, dir), TW_OK);
	tw_stats_close(stats, false);
	int fd = open(in_dir("test.counters"), O_RDWR);
	cr_assert(fd >= 0);
	struct tw_counters_header h;
	cr_assert_eq(pread(fd, &h, sizeof(h), 0), (ssize_t)sizeof(h));
	size_t refused = 0;
	size_t seen = 0;
	/* all of the tables, and the first values after them */
	for (off_t at = 0; at < (off_t)h.meta_bytes + 64; at++) {
		uint8_t byte;
		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		for (size_t i = 0; i < sizeof(flips); i++) {
			uint8_t bad = byte ^ flips[i];
			struct tw_stats_reader *r;
			cr_assert_eq(pwrite(fd, &bad, 1, at), 1);
			int rc = tw_stats_open(&r, dir, "test.counters", &err);
			if (rc == TW_OK) {
				seen += walk(r);
				tw_stats_reader_close(r);
			} else {
				cr_assert_eq(rc, TW_EFORMAT, "byte %ld: %s", (long)at, err.text);
				cr_assert_null(r);
				refused++;
			}
			/* magic, version, sizes and counts admit no change at all */
			cr_assert(rc != TW_OK || at >= 24);
		}
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	}
	cr_assert(refused > 1000 && seen > 0, "%zu refused", refused);
	struct tw_stats_reader *r;
	cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_OK, "%s", err.text);
	tw_stats_reader_close(r);
	close(fd);
	ASSERT_NO_LEAK();
}

Test(counters, a_shorter_or_longer_file_is_refused)
{
	struct tw_stats *stats;
	struct tw_stats_reader *r;
	struct groups g;
	struct stat st;
	cr_assert_eq(make(&stats, &g, dir), TW_OK);
	tw_stats_close(stats, false);
	cr_assert_eq(stat(in_dir("test.counters"), &st), 0);
	cr_assert_eq(truncate(in_dir("test.counters"), st.st_size + 1), 0);
	cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_EFORMAT);
	for (off_t size = st.st_size - 1; size >= 0; size -= size > 5000 ? 997 : 1) {
		cr_assert_eq(truncate(in_dir("test.counters"), size), 0);
		cr_assert_eq(tw_stats_open(&r, dir, "test.counters", &err), TW_EFORMAT);
		cr_assert_null(r);
	}
	cr_assert_eq(tw_stats_open(&r, dir, "absent.counters", &err), TW_ENOTFOUND);
	cr_assert_eq(mkfifo(in_dir("fifo.counters"), 0600), 0);
	cr_assert_eq(tw_stats_open(&r, dir, "fifo.counters", &err), TW_EFORMAT);
	ASSERT_NO_LEAK();
}

Test(counters, the_duty_cycle)
{
	struct tw_stats *stats;
	struct groups g;
	struct tw_duty duty;
	cr_assert_eq(make(&stats, &g, NULL), TW_OK);
	tw_duty_init(&duty, g.loop, 100);
	tw_duty_turn(&duty, 1000, 1); /* the first has no length */
	tw_duty_turn(&duty, 1100, 0);
	tw_duty_turn(&duty, 1301, 5);
	tw_duty_turn(&duty, 1302, 0);
	cr_assert_eq(tw_counter_get(&g.loop, TW_LOOP_turns), 4);
	cr_assert_eq(tw_counter_get(&g.loop, TW_LOOP_empty_turns), 2);
	cr_assert_eq(tw_counter_get(&g.loop, TW_LOOP_max_turn_ns), 201);
	cr_assert_eq(tw_counter_get(&g.loop, TW_LOOP_slow_turns), 1);
	tw_stats_close(stats, false);
}

Test(counters, the_document_names_every_counter)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	cr_assert_not_null(out);
	tw_counters_document(out);
	cr_assert_eq(fclose(out), 0);
#define NAMED_C(set, SET, name, kind, unit, help)                          \
	cr_assert_not_null(strstr(text, "| `" #name "` | "), "%s", #name); \
	cr_assert_not_null(strstr(text, help), "%s", help);
#define NAMED_H(set, SET, name, help) \
	cr_assert_not_null(strstr(text, "| `" #name "` | ns | " help " |\n"), "%s", #name);
#define NAMED_S(set, help)                                          \
	cr_assert_not_null(strstr(text, "### `" #set "`\n"), #set); \
	TW_COUNTERS_##set(NAMED_C, NAMED_H)
	TW_COUNTER_SETS(NAMED_S)
	cr_assert_not_null(strstr(text, "| 48 | 4 | `pid` | of the owner |\n"));
	free(text);
	ASSERT_NO_LEAK();
}
