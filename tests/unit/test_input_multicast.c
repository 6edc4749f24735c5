/* A venue's multicast as an input, on lo: both lines, the kernel's receive times, groups that are not ours,
 * joins that must be tried again, drops of the kernel, and requests to servers. */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "config/config.h"
#include "feedhandler/rerequest_udp.h"
#include "tests/support/feed_bytes.h"

#define SECOND_NS UINT64_C(1000000000)

static uint32_t random_bits(void)
{
	uint32_t v;
	cr_assert_eq(getrandom(&v, sizeof(v), 0), (ssize_t)sizeof(v));
	return v;
}

/* In 239.192.0.0/14, never below 239.192.1.0. */
static uint32_t random_group(void)
{
	return 0xefc00000u | 0x100u | (random_bits() & 0x3ffffu);
}

static uint16_t random_port(void)
{
	return (uint16_t)(20000u + random_bits() % 12000u);
}

static int sender(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	cr_assert_geq(fd, 0);
	const struct ip_mreqn from = { .imr_address.s_addr = htonl(INADDR_LOOPBACK),
				       .imr_ifindex = (int)if_nametoindex("lo") };
	cr_assert_eq(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &from, sizeof(from)), 0);
	return fd;
}

static void send_to(int fd, uint32_t group, uint16_t port, const void *data, size_t len)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
					.sin_port = htons(port),
					.sin_addr.s_addr = htonl(group) };
	cr_assert_eq(sendto(fd, data, len, 0, (const struct sockaddr *)&to, sizeof(to)),
		     (ssize_t)len);
}

static struct tw_input *open_lines(struct tw_input_multicast_conf *conf, uint32_t lines)
{
	struct tw_input *input;
	struct tw_error err = { 0 };
	conf->lines = lines;
	for (uint32_t l = 0; l < lines; l++) {
		conf->line[l].group = random_group();
		conf->line[l].port = random_port();
		if (conf->line[l].interface[0] == '\0') {
			memcpy(conf->line[l].interface, "lo", 3);
		}
	}
	int rc = tw_input_multicast_open(&input, conf, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	return input;
}

/* The next packet, which must come: what was sent on lo is in the socket when sendto() returns, but the
 * kernel may take it in on another CPU. */
static struct tw_packet must_come(struct tw_input *input)
{
	struct tw_packet packet;
	struct tw_error err = { 0 };
	uint64_t end_ns = tw_mono_ns() + 20 * SECOND_NS;
	int rc;
	while ((rc = tw_input_next(input, &packet, &err)) == 0 && tw_mono_ns() < end_ns) {
	}
	cr_assert_eq(rc, 1, "no packet came: %s", err.text);
	return packet;
}

Test(input_multicast, two_lines, .timeout = 60)
{
	struct tw_input_multicast_conf conf = { .receive_buffer_bytes = 1u << 18 };
	memcpy(conf.line[1].interface, "127.0.0.1", 10); /* by address: lo as well */
	struct tw_input *input = open_lines(&conf, 2);
	struct tw_packet packet;
	struct tw_error err = { 0 };
	cr_assert_eq(tw_input_next(input, &packet, &err), 0);
	cr_assert_eq(input->empty_lines, 3);
	cr_assert_not(input->waits);
	cr_assert_gt(input->line[0].receive_buffer_bytes, 0);
	int fd = sender();
	uint64_t before_ns = tw_wall_ns();
	for (uint8_t i = 0; i < 40; i++) { /* more than a batch */
		send_to(fd, conf.line[0].group, conf.line[0].port, &i, 1);
	}
	uint8_t seen[2] = { 0, 0 };
	send_to(fd, conf.line[1].group, conf.line[1].port, "bb", 2);
	for (int i = 0; i < 41; i++) {
		packet = must_come(input);
		cr_assert_lt(packet.line, 2);
		cr_assert_eq(packet.dst_addr, conf.line[packet.line].group);
		cr_assert_eq(packet.dst_port, conf.line[packet.line].port);
		cr_assert_eq(packet.len_bytes, 1 + packet.line);
		cr_assert_eq(packet.payload[0], packet.line == 0 ? seen[0] : 'b');
		/* the kernel's clock and ours differ by what the fit of the TSC is off */
		cr_assert_gt(packet.recv_ns + SECOND_NS, before_ns);
		cr_assert_lt(packet.recv_ns, tw_wall_ns() + SECOND_NS);
		seen[packet.line]++;
	}
	cr_assert_eq(seen[0], 40);
	cr_assert_eq(seen[1], 1);
	cr_assert_eq(input->line[0].packets, 40);
	cr_assert_eq(input->line[1].bytes, 2);
	cr_assert_eq(input->line[0].unstamped + input->line[1].unstamped, 0);
	cr_assert_eq(input->counts.packets, 41);
	(void)close(fd);
	tw_input_close(input);
}

Test(input_multicast, nothing_of_other_groups, .timeout = 60)
{
	struct tw_input_multicast_conf conf = { 0 };
	struct tw_input *input = open_lines(&conf, 1);
	struct tw_input_multicast_conf other_conf = { 0 };
	struct tw_input *other = open_lines(&other_conf, 1); /* joined by this host all the same */
	int fd = sender();
	send_to(fd, other_conf.line[0].group, conf.line[0].port, "no", 2);
	send_to(fd, INADDR_LOOPBACK, conf.line[0].port, "no", 2);
	send_to(fd, conf.line[0].group, conf.line[0].port, "yes", 3);
	struct tw_packet packet = must_come(input);
	cr_assert_eq(packet.len_bytes, 3);
	cr_assert_eq(input->line[0].packets, 1);
	(void)close(fd);
	tw_input_close(input);
	tw_input_close(other);
}

Test(input_multicast, a_packet_beyond_the_buffer_is_dropped_and_counted, .timeout = 60)
{
	static uint8_t data[TW_VENUE_PACKET_MAX_BYTES + 1];
	struct tw_input_multicast_conf conf = { .receive_buffer_bytes = 1u << 18 };
	struct tw_input *input = open_lines(&conf, 1);
	int fd = sender();
	send_to(fd, conf.line[0].group, conf.line[0].port, data, sizeof(data));
	send_to(fd, conf.line[0].group, conf.line[0].port, data, sizeof(data) - 1);
	struct tw_packet packet = must_come(input);
	cr_assert_eq(packet.len_bytes, TW_VENUE_PACKET_MAX_BYTES);
	cr_assert_eq(input->line[0].truncated, 1);
	cr_assert_eq(input->counts.truncated, 1);
	(void)close(fd);
	tw_input_close(input);
}

Test(input_multicast, drops_of_the_kernel_are_counted, .timeout = 60)
{
	static const uint8_t data[1000];
	struct tw_input_multicast_conf conf = { .receive_buffer_bytes = 4096 };
	struct tw_input *input = open_lines(&conf, 1);
	int fd = sender();
	const uint64_t sent = 400;
	for (uint64_t i = 0; i < sent; i++) {
		send_to(fd, conf.line[0].group, conf.line[0].port, data, sizeof(data));
	}
	uint64_t end_ns = tw_mono_ns() + 20 * SECOND_NS;
	struct tw_packet packet;
	struct tw_error err = { 0 };
	/* the count comes with a packet that was queued after the drops */
	while (input->line[0].kernel_drops == 0 && tw_mono_ns() < end_ns) {
		(void)tw_input_next(input, &packet, &err);
		if (input->empty_lines != 0) {
			send_to(fd, conf.line[0].group, conf.line[0].port, data, sizeof(data));
		}
	}
	cr_assert_gt(input->line[0].kernel_drops, 0);
	cr_assert_leq(input->line[0].kernel_drops, sent);
	(void)close(fd);
	tw_input_close(input);
}

Test(input_multicast, an_interface_that_is_not_there_is_waited_for, .timeout = 60)
{
	tw_log_init("test", TW_LOG_ERROR);
	struct tw_input_multicast_conf conf = { 0 };
	memcpy(conf.line[0].interface, "tw-none0", 9);
	struct tw_input *input = open_lines(&conf, 1);
	cr_assert_eq(input->line[0].joins, 0);
	cr_assert_eq(input->line[0].joins_failed, 1);
	uint64_t end_ns = tw_mono_ns() + 20 * SECOND_NS;
	while (input->line[0].joins_failed < 2 && tw_mono_ns() < end_ns) {
		input->ops->tick(input);
	}
	cr_assert_eq(input->line[0].joins_failed, 2);
	cr_assert_eq(input->line[0].joins, 0);
	tw_input_close(input);
}

/* A group that brings nothing is joined again, and is heard after it. */
Test(input_multicast, a_silent_line_is_joined_again, .timeout = 60)
{
	tw_log_init("test", TW_LOG_ERROR);
	struct tw_input_multicast_conf conf = { 0 };
	struct tw_input *input = open_lines(&conf, 1);
	cr_assert_eq(input->line[0].joins, 1);
	uint64_t end_ns = tw_mono_ns() + 30 * SECOND_NS;
	while (input->line[0].joins < 2 && tw_mono_ns() < end_ns) {
		input->ops->tick(input);
	}
	cr_assert_eq(input->line[0].joins, 2);
	int fd = sender();
	send_to(fd, conf.line[0].group, conf.line[0].port, "yes", 3);
	cr_assert_eq(must_come(input).len_bytes, 3);
	(void)close(fd);
	tw_input_close(input);
}

static int listener(uint32_t group, uint16_t port)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const int on = 1;
	const struct timeval limit = { .tv_sec = 50 };
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = htons(port),
					.sin_addr.s_addr = htonl(group) };
	const struct ip_mreqn member = { .imr_multiaddr.s_addr = htonl(group),
					 .imr_ifindex = (int)if_nametoindex("lo") };
	cr_assert_geq(fd, 0);
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
	cr_assert_eq(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof(member)), 0);
	return fd;
}

/* The hot thread may be kept from its first look: leaving the group would lose what comes meanwhile.
 * Line b, which nothing comes on, tells when both have been looked at. */
Test(input_multicast, a_line_that_nobody_has_read_yet_is_not_joined_again, .timeout = 120)
{
	tw_log_init("test", TW_LOG_ERROR);
	struct tw_input_multicast_conf conf = { 0 };
	struct tw_input *input = open_lines(&conf, 2);
	int other = listener(conf.line[0].group, conf.line[0].port);
	int fd = sender();
	char got[8];
	for (int i = 0; i < 2; i++) { /* the kernel may take them in on another CPU: in turn */
		send_to(fd, conf.line[0].group, conf.line[0].port, "yes", 3);
		cr_assert_eq(recv(other, got, sizeof(got), 0), 3);
	}
	uint64_t end_ns = tw_mono_ns() + 60 * SECOND_NS;
	while (input->line[1].joins < 2 && tw_mono_ns() < end_ns) {
		input->ops->tick(input);
	}
	cr_assert_eq(input->line[1].joins, 2);
	cr_assert_eq(input->line[0].joins, 1);
	cr_assert_eq(input->line[0].joins_failed, 0);
	cr_assert_eq(must_come(input).len_bytes, 3);
	(void)close(fd);
	(void)close(other);
	tw_input_close(input);
}

/* ---- requests ---- */

enum { EVENT_BYTES = 12 };

static void put_mold(struct tape *t, uint64_t seq, uint16_t count)
{
	t->len = 0;
	put(t, "000010059B", 10);
	put_be(t, seq, 8);
	put_be(t, count, 2);
	for (uint16_t i = 0; i < count; i++) {
		put_be(t, EVENT_BYTES, 2);
		put(t, "S", 1);
		put_be(t, 0, 4);
		put_be(t, UINT64_C(34200000000000), 6);
		put(t, "Q", 1);
	}
}

struct desk { /* a feed with a gap, and two servers */
	struct bench bench;
	struct tw_venue_arb *arb;
	struct tw_rerequest_udp *rr;
	int server[2];
	uint64_t now_ns;
};

static struct tape tape;

static int server_socket(struct tw_rerequest_conf *conf, uint32_t i)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	cr_assert_geq(fd, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&at, len), 0);
	cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	conf->server[i].address = INADDR_LOOPBACK;
	conf->server[i].port = ntohs(at.sin_port);
	return fd;
}

static void hear(struct desk *d, uint64_t seq, uint16_t count)
{
	put_mold(&tape, seq, count);
	const struct tw_packet packet = { .payload = tape.bytes,
					  .len_bytes = (uint32_t)tape.len,
					  .recv_ns = 1 };
	tw_venue_arb_input(d->arb, d->bench.feed, &packet, d->now_ns);
}

static void desk_turn(struct desk *d)
{
	tw_venue_arb_turn(d->arb, d->bench.feed, 1, d->now_ns);
	tw_rerequest_udp_turn(d->rr, d->arb, d->bench.feed, d->now_ns);
}

/* 2 to 5 are missing, and overdue. */
static void desk_open(struct desk *d)
{
	*d = (struct desk){ .now_ns = SECOND_NS };
	bench_open(&d->bench, (struct tw_feed_conf){ .protocol = "itch50",
						     .mic = "XNAS",
						     .depths = { TW_DEPTH_ORDERS },
						     .max_orders = 64 });
	const struct tw_venue_arb_conf ac = { .lines = 1, .store_packets = 8, .repair = 8 };
	struct tw_rerequest_conf rc = { .servers = 2, .answer_ns = SECOND_NS, .attempts = 3 };
	struct tw_error err = { 0 };
	d->server[0] = server_socket(&rc, 0);
	d->server[1] = server_socket(&rc, 1);
	cr_assert_eq(tw_venue_arb_create(&d->arb, &ac, &err), TW_OK, "%s", err.text);
	cr_assert_eq(tw_rerequest_udp_open(&d->rr, &rc, &err), TW_OK, "%s", err.text);
	hear(d, 1, 1);
	hear(d, 6, 1);
	desk_turn(d);
	desk_turn(d);
}

static void desk_close(struct desk *d)
{
	(void)close(d->server[0]);
	(void)close(d->server[1]);
	tw_rerequest_udp_close(d->rr);
	tw_venue_arb_destroy(d->arb);
	bench_close(&d->bench);
}

/* The request that the server got, which must be for `first` and `count`; who asked. */
static struct sockaddr_in must_ask(struct desk *d, int server, uint64_t first, uint16_t count)
{
	uint8_t got[64];
	struct sockaddr_in from;
	socklen_t len = sizeof(from);
	uint64_t end_ns = tw_mono_ns() + 20 * SECOND_NS;
	ssize_t n;
	do {
		n = recvfrom(d->server[server], got, sizeof(got), 0, (struct sockaddr *)&from,
			     &len);
	} while (n < 0 && tw_mono_ns() < end_ns);
	put_mold(&tape, first, 0);
	tape.bytes[18] = (uint8_t)(count >> 8);
	tape.bytes[19] = (uint8_t)count;
	cr_assert_eq(n, 20, "%zd bytes", n);
	cr_assert_eq(memcmp(got, tape.bytes, 20), 0);
	cr_assert_lt(recv(d->server[server], got, sizeof(got), 0), 0, "one request at a time");
	return from;
}

static void answer(int fd, const struct sockaddr_in *to, uint64_t seq, uint16_t count)
{
	put_mold(&tape, seq, count);
	cr_assert_eq(sendto(fd, tape.bytes, tape.len, 0, (const struct sockaddr *)to, sizeof(*to)),
		     (ssize_t)tape.len);
}

static uint64_t count_of(const struct desk *d, unsigned int index)
{
	return bench_counter(&d->bench, index);
}

/* Turns without the clock moving, until that many replies were looked at. */
static void turn_until(struct desk *d, unsigned int index, uint64_t wanted)
{
	uint64_t end_ns = tw_mono_ns() + 20 * SECOND_NS;
	while (count_of(d, index) < wanted && tw_mono_ns() < end_ns) {
		desk_turn(d);
	}
	cr_assert_eq(count_of(d, index), wanted);
}

Test(rerequest_udp, a_gap_is_asked_for_until_it_is_filled, .timeout = 60)
{
	struct desk d;
	desk_open(&d);
	struct sockaddr_in from = must_ask(&d, 0, 2, 4);
	desk_turn(&d);
	cr_assert_eq(count_of(&d, TW_FH_rerequests), 1);
	answer(d.server[0], &from, 2, 3); /* what fitted its packet */
	turn_until(&d, TW_FH_rerequest_replies, 1);
	cr_assert_eq(d.bench.count, 4);
	d.now_ns += 1000000;
	desk_turn(&d);
	from = must_ask(&d, 0, 5, 1);
	answer(d.server[0], &from, 5, 1);
	turn_until(&d, TW_FH_rerequest_replies, 2);
	cr_assert_eq(d.bench.count, 6);
	cr_assert_eq(count_of(&d, TW_FH_gaps), 0);
	cr_assert_eq(tw_venue_arb_held(d.arb), 0);
	desk_close(&d);
}

Test(rerequest_udp, a_stranger_is_not_listened_to, .timeout = 60)
{
	struct desk d;
	struct tw_rerequest_conf unused;
	desk_open(&d);
	struct sockaddr_in from = must_ask(&d, 0, 2, 4);
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int stranger = server_socket(&unused, 0);
	answer(stranger, &from, 2, 4);
	turn_until(&d, TW_FH_rerequest_refused, 1);
	answer(d.server[0], &from, 2, 5); /* more than was asked for */
	turn_until(&d, TW_FH_rerequest_refused, 2);
	cr_assert_eq(d.bench.count, 1);
	answer(d.server[1], &from, 2, 4); /* a server is a server */
	turn_until(&d, TW_FH_rerequest_replies, 1);
	cr_assert_eq(d.bench.count, 6);
	(void)close(stranger);
	desk_close(&d);
}
