/* Starting a small site on this machine; see launch.h. */
#include "tools/launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/text.h"
#include "wire/format.h"

#define STOP_GRACE_NS 5000000000ull

int tw_launch_init(struct tw_launch *launch, struct tw_error *err)
{
	char self[TW_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (n < 0) {
		return tw_fail_sys(err, TW_ESYS, "/proc/self/exe: readlink");
	}
	self[n] = '\0';
	char *slash = strrchr(self, '/');
	if (slash == NULL) {
		return tw_fail(err, TW_EINTERNAL, "/proc/self/exe: '%s' has no directory", self);
	}
	*slash = '\0';
	memcpy(launch->bin_dir, self, strlen(self) + 1);

	/* On tmpfs where there is one: the buses are files that should never reach a disk. */
	const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(launch->dir, sizeof(launch->dir), "%s/tw-run-XXXXXX", parent);
	if (mkdtemp(launch->dir) == NULL) {
		int rc = tw_fail_sys(err, TW_ESYS, "%s: mkdtemp", launch->dir);
		launch->dir[0] = '\0';
		return rc;
	}
	snprintf(launch->site_path, sizeof(launch->site_path), "%s/site.yaml", launch->dir);
	snprintf(launch->run_dir, sizeof(launch->run_dir), "%s/run", launch->dir);
	if (mkdir(launch->run_dir, 0700) != 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: mkdir", launch->run_dir);
	}
	return TW_OK;
}

/* A double-quoted YAML scalar: file names may hold anything. */
static void write_pct(FILE *out, const char *key, const char *pct, bool *first)
{
	if (pct != NULL) {
		fprintf(out, "%s%s: %s", *first ? "" : ", ", key, pct);
		*first = false;
	}
}

static void write_faults(FILE *out, const struct tw_launch_site *site)
{
	fprintf(out, "fault:\n  seed: %llu\n", (unsigned long long)site->seed);
	if (site->loss_both_pct != NULL) {
		fprintf(out, "  correlated_loss_pct: %s\n", site->loss_both_pct);
	}
	fprintf(out, "  lines:\n");
	for (int line = 0; line < 2; line++) {
		bool first = true;
		fprintf(out, "    %c: { ", 'a' + line);
		write_pct(out, "loss_pct", site->loss_pct[line], &first);
		write_pct(out, "duplicate_pct", site->duplicate_pct, &first);
		write_pct(out, "reorder_pct", site->reorder_pct, &first);
		fprintf(out, " }\n");
	}
}

/* The venue that a protocol is spoken by, as far as is known here. */
static const char *mic_of(const char *protocol)
{
	return strcmp(protocol, "itch50") == 0 ? "XNAS" : "IEXG";
}

/* A TCP port that nobody listens on now; whoever takes it first afterwards has it. */
static int free_port(uint16_t *port, struct tw_error *err)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) != 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
		int rc = tw_fail_sys(err, TW_ESYS, "a free TCP port on 127.0.0.1");
		if (fd >= 0) {
			close(fd);
		}
		return rc;
	}
	close(fd);
	*port = ntohs(address.sin_port);
	return TW_OK;
}

int tw_launch_write_site(struct tw_launch *launch, const struct tw_launch_site *site,
			 struct tw_error *err)
{
	/* Two groups of 239.192.0.0/14 that differ in the low 23 bits, so that they also differ as
	 * Ethernet addresses; the low bit tells the lines apart. */
	uint32_t draw = 0;
	if (getrandom(&draw, sizeof(draw), 0) != (ssize_t)sizeof(draw)) {
		return tw_fail_sys(err, TW_ESYS, "getrandom");
	}
	uint32_t group = 0xefc00000u | (draw & 0x0003fffeu);

	uint16_t repair_port = 0;
	if (site->repair) {
		int rc = free_port(&repair_port, err);
		if (rc != TW_OK) {
			return rc;
		}
	}
	FILE *out = fopen(launch->site_path, "wxe");
	if (out == NULL) {
		return tw_fail_sys(err, TW_ESYS, "%s: fopen", launch->site_path);
	}
	fprintf(out, "# written by a launcher; gone when it leaves\n");
	fprintf(out, "site: run-%d\nenvironment: test\nrun_dir: ", (int)getpid());
	tw_format_json_text(out, launch->run_dir);
	fprintf(out, "\nfabric: { transport: udp }\n");
	fprintf(out, "hosts:\n  local: { address: 127.0.0.1, lines: { a: lo, b: lo } }\n");
	const char *mic = mic_of(site->protocol);
	fprintf(out, "venues:\n  - { id: 1, mic: %s }\n", mic);
	fprintf(out, "channels:\n  - { id: 1, name: run, depth: %s, groups: { a: ", site->depth);
	for (uint32_t line = 0; line < 2; line++) {
		uint32_t g = group | line;
		fprintf(out, "%s" TW_IPV4_FMT, line == 0 ? "" : ", b: ", TW_IPV4_ARGS(g));
	}
	fprintf(out, " } }\n");
	fprintf(out,
		"feedhandlers:\n  - name: feed\n    host: local\n    venue: %s\n    protocol: "
		"%s\n"
		"    channels: [1]\n    input:\n      speed_pct: %u\n      rate: %u\n      "
		"restamp: %s\n"
		"      files:\n",
		mic, site->protocol, site->speed_pct, site->rate_msgs,
		site->restamp ? "true" : "false");
	for (uint32_t i = 0; i < site->file_count; i++) {
		fprintf(out, "        - ");
		tw_format_json_text(out, site->files[i]);
		fputc('\n', out);
	}
	fprintf(out,
		"publishers:\n  - { name: pub, host: local, channels: [1], repair_port: %u }\n",
		repair_port);
	/* The processes share few CPUs: a gap may wait a while for the other line, longer where nothing
	 * else can fill it, and a repair server that is late is not a bad one. */
	fprintf(out, "subscriber: { %s }\n",
		site->repair ? "wait_us: 5000, give_up_ms: 8000, retry_max_ms: 32000, "
			       "repair: [pub]"
			     : "wait_us: 50000");
	if (site->loss_pct[0] != NULL || site->loss_pct[1] != NULL || site->loss_both_pct != NULL ||
	    site->duplicate_pct != NULL || site->reorder_pct != NULL) {
		write_faults(out, site);
	}
	bool failed = ferror(out) != 0;
	if (fclose(out) != 0 || failed) {
		return tw_fail_sys(err, TW_ESYS, "%s: write", launch->site_path);
	}
	return TW_OK;
}

static void child_exec(const char *path, char *const argv[], int stdout_fd, int log_fd,
		       pid_t parent) __attribute__((noreturn));
static void child_exec(const char *path, char *const argv[], int stdout_fd, int log_fd,
		       pid_t parent)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent) {
		_exit(127); /* the launcher died before prctl() could take effect */
	}
	int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	dup2(null_fd, STDIN_FILENO);
	dup2(stdout_fd >= 0 ? stdout_fd : null_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	execv(path, argv);
	dprintf(STDERR_FILENO, "error: %s: execv: %s\n", path, strerror(errno));
	_exit(127);
}

int tw_launch_start(struct tw_launch *launch, const char *program, char *const argv[],
		    int stdout_fd, struct tw_error *err)
{
	if (launch->child_count == TW_LAUNCH_MAX_CHILDREN) {
		return tw_fail(err, TW_EFULL, "%s: more than %u children", program,
			       TW_LAUNCH_MAX_CHILDREN);
	}
	char path[2 * TW_PATH_BYTES];
	snprintf(path, sizeof(path), "%s/%s", launch->bin_dir, program);
	if (access(path, X_OK) != 0) {
		return tw_fail_sys(err, TW_ENOTFOUND, "%s: it must lie beside this program: access",
				   path);
	}
	int log[2];
	if (pipe2(log, O_CLOEXEC) != 0) {
		return tw_fail_sys(err, TW_ESYS, "%s: pipe2", program);
	}
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid < 0) {
		int rc = tw_fail_sys(err, TW_ESYS, "%s: fork", program);
		close(log[0]);
		close(log[1]);
		return rc;
	}
	if (pid == 0) {
		child_exec(path, argv, stdout_fd, log[1], parent);
	}
	close(log[1]);
	fcntl(log[0], F_SETFL, O_NONBLOCK);

	uint32_t index = launch->child_count++;
	struct tw_launch_child *child = &launch->children[index];
	memset(child, 0, sizeof(*child));
	child->name = program;
	child->pid = pid;
	child->pidfd = pidfd_open(pid, 0);
	child->log_fd = log[0];
	return (int)index;
}

static void child_line(const struct tw_launch *launch, struct tw_launch_child *child)
{
	child->line[child->line_bytes] = '\0';
	child->line_bytes = 0;
	bool is_error = strstr(child->line, "error: ") != NULL;
	if (is_error || !child->last_is_error) {
		memcpy(child->last, child->line, sizeof(child->last));
		child->last_is_error = is_error;
	}
	if (strstr(child->line, "ready") != NULL) {
		child->ready = true;
	}
	if (launch->verbose) {
		fprintf(stderr, "%s\n", child->line);
	}
}

static void child_read(const struct tw_launch *launch, struct tw_launch_child *child)
{
	char chunk[4096];
	for (;;) {
		ssize_t n = read(child->log_fd, chunk, sizeof(chunk));
		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			if (n == 0) {
				close(child->log_fd);
				child->log_fd = -1;
			}
			return;
		}
		for (ssize_t i = 0; i < n; i++) {
			if (chunk[i] == '\n') {
				child_line(launch, child);
			} else if (child->line_bytes + 1 < sizeof(child->line)) {
				child->line[child->line_bytes++] = chunk[i];
			}
		}
	}
}

static void child_reap(struct tw_launch_child *child)
{
	int status = 0;
	pid_t pid;
	do {
		pid = waitpid(child->pid, &status, 0);
	} while (pid < 0 && errno == EINTR);
	child->exited = true;
	child->pid = 0;
	child->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (child->pidfd >= 0) {
		close(child->pidfd);
		child->pidfd = -1;
	}
}

int tw_launch_turn(struct tw_launch *launch, int signal_fd, int timeout_ms)
{
	struct pollfd fds[1 + 2 * TW_LAUNCH_MAX_CHILDREN];
	nfds_t n = 0;
	fds[n++] = (struct pollfd){ .fd = signal_fd, .events = POLLIN };
	for (uint32_t i = 0; i < launch->child_count; i++) {
		const struct tw_launch_child *child = &launch->children[i];
		fds[n++] = (struct pollfd){ .fd = child->log_fd, .events = POLLIN };
		fds[n++] = (struct pollfd){ .fd = child->exited ? -1 : child->pidfd,
					    .events = POLLIN };
	}
	if (poll(fds, n, timeout_ms) <= 0) {
		return 0;
	}
	for (uint32_t i = 0; i < launch->child_count; i++) {
		struct tw_launch_child *child = &launch->children[i];
		bool left = fds[2 + 2 * i].revents != 0;
		if (fds[1 + 2 * i].revents != 0 || (left && child->log_fd >= 0)) {
			child_read(launch, child); /* its last words come before its exit */
		}
		if (left) {
			child_reap(child);
		}
	}
	return signal_fd >= 0 && (fds[0].revents & POLLIN) != 0 ? 1 : 0;
}

int tw_launch_wait_ready(struct tw_launch *launch, uint32_t index, int signal_fd,
			 uint32_t timeout_ms, struct tw_error *err)
{
	const struct tw_launch_child *child = &launch->children[index];
	uint64_t end_ns = tw_mono_ns() + (uint64_t)timeout_ms * 1000000u;
	while (!child->ready) {
		if (child->exited) {
			return tw_fail(err, TW_ECLOSED, "%s left with %d: %s", child->name,
				       child->status, child->last);
		}
		uint64_t now_ns = tw_mono_ns();
		if (now_ns >= end_ns) {
			return tw_fail(err, TW_ETIMEOUT, "%s was not ready after %u ms: %s",
				       child->name, timeout_ms, child->last);
		}
		if (tw_launch_turn(launch, signal_fd, (int)((end_ns - now_ns) / 1000000u) + 1) !=
		    0) {
			return tw_fail(err, TW_ESTATE, "stopped by a signal");
		}
	}
	return TW_OK;
}

int tw_launch_stop(struct tw_launch *launch, uint32_t index)
{
	struct tw_launch_child *child = &launch->children[index];
	if (!child->exited && child->pid > 0) {
		kill(child->pid, SIGTERM);
		uint64_t end_ns = tw_mono_ns() + STOP_GRACE_NS;
		bool killed = false;
		while (!child->exited) {
			uint64_t now_ns = tw_mono_ns();
			if (now_ns >= end_ns && !killed) {
				kill(child->pid, SIGKILL);
				killed = true;
			}
			tw_launch_turn(launch, -1,
				       killed ? 1000 : (int)((end_ns - now_ns) / 1000000u) + 1);
		}
	}
	if (child->log_fd >= 0) {
		child_read(launch, child);
	}
	return child->status;
}

static void remove_directory(const char *path)
{
	DIR *dir = opendir(path);
	if (dir != NULL) {
		const struct dirent *entry;
		while ((entry = readdir(dir)) != NULL) {
			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
				continue;
			}
			if (unlinkat(dirfd(dir), entry->d_name, 0) != 0 &&
			    (errno == EISDIR || errno == EPERM)) {
				char below[2 * TW_PATH_BYTES];
				int n = snprintf(below, sizeof(below), "%s/%s", path,
						 entry->d_name);
				if (n > 0 && (size_t)n < sizeof(below)) {
					remove_directory(below);
				}
			}
		}
		closedir(dir);
	}
	rmdir(path);
}

void tw_launch_fini(struct tw_launch *launch)
{
	/* In the reverse of their starting: consumers outlive what feeds them only when asked to. */
	for (uint32_t i = launch->child_count; i-- > 0;) {
		(void)tw_launch_stop(launch, i);
		if (launch->children[i].log_fd >= 0) {
			close(launch->children[i].log_fd);
		}
	}
	launch->child_count = 0;
	if (launch->dir[0] != '\0' && !launch->keep) {
		remove_directory(launch->dir);
	}
	launch->dir[0] = '\0';
}

int tw_launch_signal_fd(struct tw_error *err)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
		return tw_fail_sys(err, TW_ESYS, "sigprocmask");
	}
	int fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "signalfd");
	}
	return fd;
}
