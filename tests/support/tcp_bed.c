/* Both sides of repair over TCP for tests: see tcp_bed.h. */
#include "tests/support/tcp_bed.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define UNIT TW_RW_UNIT_BYTES

static uint64_t word_of(uint64_t unit, uint32_t word)
{
	uint64_t x = unit * 8 + word + 1;
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

void tcp_bed_fill(uint8_t *data, uint32_t len_bytes, uint64_t begin)
{
	for (uint32_t at = 0; at < len_bytes; at += 8) {
		uint64_t word = word_of(begin + at / UNIT, at % UNIT / 8);
		memcpy(data + at, &word, sizeof(word));
	}
}

bool tcp_bed_is(const uint8_t *data, uint32_t len_bytes, uint64_t begin)
{
	for (uint32_t at = 0; at < len_bytes; at += 8) {
		uint64_t word = word_of(begin + at / UNIT, at % UNIT / 8);
		if (memcmp(data + at, &word, sizeof(word)) != 0) {
			return false;
		}
	}
	return true;
}

static int source(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	struct tcp_bed *bed = ctx;
	uint64_t oldest = atomic_load_explicit(&bed->oldest, memory_order_relaxed);
	uint64_t published = atomic_load_explicit(&bed->published, memory_order_relaxed);
	uint64_t begin = read->begin, end = read->end;
	uint32_t taken = atomic_load_explicit(&bed->taken_count, memory_order_relaxed);
	if (taken < TCP_BED_TAKEN) { /* this thread alone writes it */
		atomic_store_explicit(&bed->taken[taken], read->id, memory_order_relaxed);
		atomic_store(&bed->taken_count, taken + 1);
	}
	if (read->session != TCP_BED_SESSION) {
		return TW_ENOTFOUND;
	}
	if (read->by_seq) {
		begin = begin < oldest ? oldest : begin;
		end = end > published ? published : end;
		if (end > begin + max_bytes / UNIT) {
			end = begin + max_bytes / UNIT;
		}
		if (end <= begin) {
			return begin >= published ? TW_EBUSY : 0;
		}
	} else if (end > published) {
		return TW_EBUSY;
	} else if (begin < oldest) {
		return 0;
	}
	tcp_bed_fill(dst, (uint32_t)(end - begin) * UNIT, begin);
	return (int)((end - begin) * UNIT);
}

bool tcp_bed_open(struct tcp_bed *bed)
{
	struct tw_error err;
	memset(bed, 0, sizeof(*bed));
	atomic_store(&bed->published, 1u << 20);
	tw_clock_init();
	bool well = tw_stats_create(&bed->stats, NULL, "bed", "test", &err) == TW_OK &&
		    tw_stats_add(bed->stats, TW_SET_read_server, "s", &bed->server_counters,
				 &err) == TW_OK;
	for (uint32_t i = 0; i < TCP_BED_CLIENTS && well; i++) {
		well = tw_stats_add(bed->stats, TW_SET_read_client, "c", &bed->client_counters[i],
				    &err) == TW_OK;
	}
	for (uint32_t i = 0; i < TCP_BED_SERVERS && well; i++) {
		well = tw_stats_add(bed->stats, TW_SET_reader, "r", &bed->reader_counters[i],
				    &err) == TW_OK;
	}
	return well && tw_stats_seal(bed->stats, &err) == TW_OK;
}

void tcp_bed_close(struct tcp_bed *bed)
{
	tw_read_server_close(bed->server);
	tw_stats_close(bed->stats, true);
}

struct tw_read_server_conf tcp_bed_server_conf(struct tcp_bed *bed)
{
	return (struct tw_read_server_conf){
		.addr = TCP_BED_LOOPBACK,
		.environment = TCP_BED_ENV,
		.max_clients = TCP_BED_CLIENTS,
		.idle_timeout_ns = 10000 * TCP_MS,
		.cpu = -1,
		.counters = bed->server_counters,
		.clients = bed->client_counters,
	};
}

bool tcp_bed_serve(struct tcp_bed *bed, struct tw_read_server_conf conf)
{
	struct tw_read_server_channel channel = { .channel = 1, .read = source, .ctx = bed };
	struct tw_error err;
	conf.channels = &channel;
	conf.channel_count = 1;
	int rc = tw_tcp_read_server_open(&bed->server, &conf, &err);
	if (rc < 0) {
		fprintf(stderr, "tcp_bed: %s\n", err.text);
	}
	return rc == TW_OK;
}

struct tw_reader_conf tcp_bed_reader_conf(struct tcp_bed *bed,
					  const struct tw_reader_server *servers, uint32_t count)
{
	return (struct tw_reader_conf){
		.servers = servers,
		.server_count = count,
		.environment = TCP_BED_ENV,
		.name = "reader",
		.slots = 8,
		.connect_timeout_ns = 10000 * TCP_MS,
		.retry_min_ns = 1 * TCP_MS,
		.retry_max_ns = 20 * TCP_MS,
		.idle_timeout_ns = 10000 * TCP_MS,
		.cpu = -1,
		.counters = bed->reader_counters,
	};
}

void tcp_pause(void)
{
	(void)poll(NULL, 0, 1);
}

/* --- raw sockets -------------------------------------------------------------------------------- */

static int limit(int fd)
{
	struct timeval t = { .tv_sec = (time_t)(TCP_BED_WAIT_NS / 1000000000u) };
	int one = 1;
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	return fd;
}

int tcp_listen(uint16_t *port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(*port),
				   .sin_addr.s_addr = htonl(TCP_BED_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int one = 1;
	int fd = limit(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    bind(fd, (const struct sockaddr *)&sin, sizeof(sin)) != 0 || listen(fd, 16) != 0 ||
	    getsockname(fd, (struct sockaddr *)&sin, &len) != 0) {
		perror("tcp_listen");
		return -1;
	}
	*port = ntohs(sin.sin_port);
	return fd;
}

int tcp_accept(int listen_fd)
{
	return limit(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC));
}

int tcp_connect(uint16_t port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_port = htons(port),
				   .sin_addr.s_addr = htonl(TCP_BED_LOOPBACK) };
	int fd = limit(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (fd < 0 || connect(fd, (const struct sockaddr *)&sin, sizeof(sin)) != 0) {
		perror("tcp_connect");
		return -1;
	}
	return fd;
}

bool tcp_put(int fd, const void *data, size_t len_bytes)
{
	const uint8_t *at = data;
	while (len_bytes > 0) {
		ssize_t sent = send(fd, at, len_bytes, MSG_NOSIGNAL);
		if (sent <= 0) {
			return false;
		}
		at += sent;
		len_bytes -= (size_t)sent;
	}
	return true;
}

bool tcp_get(int fd, void *data, size_t len_bytes)
{
	return recv(fd, data, len_bytes, MSG_WAITALL) == (ssize_t)len_bytes;
}

bool tcp_ended(int fd)
{
	uint8_t bytes[4096];
	ssize_t got;
	uint64_t until_ns = tw_mono_ns() + TCP_BED_WAIT_NS;
	do {
		got = recv(fd, bytes, sizeof(bytes), 0);
	} while (got > 0 && tw_mono_ns() < until_ns);
	return got == 0 || (got < 0 && tw_mono_ns() < until_ns);
}

bool tcp_take_login(int fd)
{
	struct tw_rw_login_head head;
	uint16_t environment;
	char name[TW_READ_NAME_BYTES];
	if (!tcp_get(fd, &head, sizeof(head)) ||
	    tw_rw_parse_login(&head, sizeof(head), &environment, name) != TW_RW_WELL_FORMED ||
	    environment != TCP_BED_ENV) {
		return false;
	}
	tw_rw_put_login_reply(&head, TCP_BED_ENV, TW_LOGIN_OK);
	return tcp_put(fd, &head, sizeof(head));
}

enum tw_rw_login tcp_login(int fd, uint16_t environment, const char *name)
{
	struct tw_rw_login_head head;
	enum tw_rw_login result;
	tw_rw_put_login(&head, environment, name);
	if (!tcp_put(fd, &head, sizeof(head)) || !tcp_get(fd, &head, sizeof(head)) ||
	    tw_rw_parse_login_reply(&head, sizeof(head), environment, &result) !=
		    TW_RW_WELL_FORMED) {
		return TW_LOGIN_RESULTS;
	}
	return result;
}
