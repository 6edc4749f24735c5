/* The server of repair over TCP against clients played by the test: whatever one of them does, the others are
 * served, within the rate, and each is counted apart. */
#include <criterion/criterion.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/read_service.h"
#include "tests/support/tcp_bed.h"

static struct tcp_bed bed;

static uint64_t seen(unsigned int counter)
{
	return tw_counter_get(&bed.server_counters, counter);
}

static uint64_t of_client(uint32_t place, unsigned int counter)
{
	return tw_counter_get(&bed.client_counters[place], counter);
}

static uint16_t serve(void (*change)(struct tw_read_server_conf *conf))
{
	cr_assert(tcp_bed_open(&bed));
	struct tw_read_server_conf conf = tcp_bed_server_conf(&bed);
	if (change != NULL) {
		change(&conf);
	}
	cr_assert(tcp_bed_serve(&bed, conf));
	return tw_read_server_port(bed.server);
}

static int client(uint16_t port, const char *name)
{
	int fd = tcp_connect(port);
	cr_assert_geq(fd, 0);
	cr_assert_eq(tcp_login(fd, TCP_BED_ENV, name), TW_LOGIN_OK);
	return fd;
}

static struct tw_read range(uint64_t id, uint64_t begin, uint64_t end)
{
	return (struct tw_read){ .id = id,
				 .channel = 1,
				 .session = TCP_BED_SESSION,
				 .publisher = 1,
				 .begin = begin,
				 .end = end };
}

static void ask(int fd, struct tw_read read)
{
	struct tw_rw_read_head head;
	tw_rw_put_read(&head, &read);
	cr_assert(tcp_put(fd, &head, sizeof(head)));
}

static void expect_answer(int fd, struct tw_read read)
{
	static uint8_t data[TW_READ_MAX_BYTES];
	struct tw_rw_read_head head;
	enum tw_read_status status;
	uint32_t bytes;
	cr_assert(tcp_get(fd, &head, sizeof(head)));
	cr_assert_eq(tw_rw_parse_reply(&head, sizeof(head), &read, &status, &bytes),
		     TW_RW_WELL_FORMED);
	cr_assert_eq(status, TW_READ_OK);
	cr_assert(tcp_get(fd, data, bytes));
	cr_assert(tcp_bed_is(data, bytes, read.begin));
}

Test(read_server, who_breaks_the_protocol_loses_the_connection, .timeout = 60)
{
	uint16_t port = serve(NULL);
	int good = client(port, "good");
	struct tw_rw_read_head read;
	struct tw_rw_login_head login;
	struct tw_read ok = range(1, 0, 8);
	uint8_t garbage[256];
	memset(garbage, 0x5a, sizeof(garbage));

	int fd = tcp_connect(port); /* not even a login */
	cr_assert(tcp_put(fd, garbage, sizeof(garbage)));
	cr_assert(tcp_ended(fd));
	close(fd);
	fd = tcp_connect(port); /* a read before the login */
	tw_rw_put_read(&read, &ok);
	cr_assert(tcp_put(fd, &read, sizeof(read)));
	cr_assert(tcp_ended(fd));
	close(fd);
	fd = client(port, "twice"); /* a second login */
	tw_rw_put_login(&login, TCP_BED_ENV, "twice");
	cr_assert(tcp_put(fd, &login, sizeof(login)));
	cr_assert(tcp_ended(fd));
	close(fd);
	const struct tw_read bad[] = { range(1, 5, 5), range(1, 5, 5 + 1025), range(1, 6, 5) };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fd = client(port, "bad");
		ask(fd, ok); /* what came before it is answered */
		expect_answer(fd, ok);
		ask(fd, bad[i]);
		cr_assert(tcp_ended(fd));
		close(fd);
	}
	cr_assert_eq(seen(TW_READ_SERVER_malformed), 6);
	cr_assert_eq(of_client(2, TW_READ_CLIENT_dropped), 3, "one place for one name");
	cr_assert_eq(of_client(2, TW_READ_CLIENT_logins), 3);
	cr_assert_eq(of_client(2, TW_READ_CLIENT_replies), 3);
	ask(good, ok);
	expect_answer(good, ok);
	close(good);
	tcp_bed_close(&bed);
}

Test(read_server, logins_are_judged, .timeout = 60)
{
	uint16_t port = serve(NULL);
	int fd = tcp_connect(port);
	cr_assert_eq(tcp_login(fd, TCP_BED_ENV + 2, "x"), TW_LOGIN_ENVIRONMENT);
	cr_assert(tcp_ended(fd));
	close(fd);
	fd = tcp_connect(port);
	struct tw_rw_login_head login;
	tw_rw_put_login(&login, TCP_BED_ENV, "x");
	login.lead.version_major++;
	cr_assert(tcp_put(fd, &login, sizeof(login)));
	cr_assert(tcp_get(fd, &login, sizeof(login)));
	cr_assert_eq(login.lead.status, TW_LOGIN_VERSION);
	cr_assert(tcp_ended(fd));
	close(fd);
	cr_assert_eq(seen(TW_READ_SERVER_refused_environment), 1);
	cr_assert_eq(seen(TW_READ_SERVER_refused_version), 1);
	cr_assert_eq(seen(TW_READ_SERVER_malformed), 0);

	/* as many as there are places, then one more, then one in the place of who left */
	int fds[TCP_BED_CLIENTS];
	char name[8] = "a";
	for (uint32_t i = 0; i < TCP_BED_CLIENTS; i++, name[0]++) {
		fds[i] = client(port, name);
	}
	fd = tcp_connect(port);
	cr_assert_eq(tcp_login(fd, TCP_BED_ENV, "e"), TW_LOGIN_FULL);
	close(fd);
	cr_assert_eq(seen(TW_READ_SERVER_refused_full), 1);
	cr_assert_eq(seen(TW_READ_SERVER_clients), TCP_BED_CLIENTS);
	struct tw_read_client_info info;
	tw_read_server_client(bed.server, 2, &info);
	cr_assert_str_eq(info.name, "c");
	cr_assert(info.connected && info.addr == TCP_BED_LOOPBACK);
	ask(fds[2], range(1, 0, 1));
	expect_answer(fds[2], range(1, 0, 1));
	close(fds[2]);
	TCP_WAIT(seen(TW_READ_SERVER_clients) == TCP_BED_CLIENTS - 1);
	cr_assert_eq(of_client(2, TW_READ_CLIENT_connected), 0);
	cr_assert_eq(of_client(2, TW_READ_CLIENT_reads), 1, "until somebody else comes");
	fds[2] = client(port, "f");
	cr_assert_eq(of_client(2, TW_READ_CLIENT_reads), 0);
	tw_read_server_client(bed.server, 2, &info);
	cr_assert_str_eq(info.name, "f");
	for (uint32_t i = 0; i < TCP_BED_CLIENTS; i++) {
		close(fds[i]);
	}
	TCP_WAIT(seen(TW_READ_SERVER_clients) == 0);
	tcp_bed_close(&bed);
}

static void impatient(struct tw_read_server_conf *conf)
{
	conf->idle_timeout_ns = 200 * TCP_MS;
}

Test(read_server, who_is_too_slow_is_dropped_and_who_is_quiet_is_not, .timeout = 60)
{
	uint16_t port = serve(impatient);
	int quiet = client(port, "quiet");
	int silent = tcp_connect(port);  /* never logs in */
	int half = client(port, "half"); /* never finishes a head */
	int full = client(port, "full"); /* never takes its replies */
	int small = 4096;
	(void)setsockopt(full, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	cr_assert(tcp_put(half, "TWR1", 4));
	for (uint64_t id = 0; id < 512; id++) { /* 32 MB of replies: no buffer takes them */
		struct tw_rw_read_head head;
		struct tw_read read = range(id, 0, 1024);
		tw_rw_put_read(&head, &read);
		(void)tcp_put(full, &head, sizeof(head));
	}
	TCP_WAIT(seen(TW_READ_SERVER_timeouts) == 3);
	cr_assert_eq(of_client(0, TW_READ_CLIENT_dropped), 0);
	cr_assert_eq(of_client(1, TW_READ_CLIENT_dropped), 1);
	cr_assert_eq(of_client(2, TW_READ_CLIENT_dropped), 1);
	cr_assert_eq(seen(TW_READ_SERVER_clients), 1);
	cr_assert(tcp_ended(silent));
	ask(quiet, range(9, 3, 4));
	expect_answer(quiet, range(9, 3, 4));
	close(quiet);
	close(silent);
	close(half);
	close(full);
	tcp_bed_close(&bed);
}

static void limited(struct tw_read_server_conf *conf)
{
	conf->client_max_bytes_per_s = 4u << 20;
}

/* What a limit promises is a least time for so many bytes, whatever else the machine does. */
static void expect_paced(const int *fds, uint32_t clients, uint64_t bytes_per_s)
{
	const uint64_t reads = 16;
	uint64_t begun_ns = tw_mono_ns();
	for (uint64_t id = 0; id < reads; id++) {
		for (uint32_t i = 0; i < clients; i++) {
			ask(fds[i], range(id, id, id + 1024));
		}
	}
	for (uint64_t id = 0; id < reads; id++) {
		for (uint32_t i = 0; i < clients; i++) {
			expect_answer(fds[i], range(id, id, id + 1024));
		}
	}
	uint64_t took_ns = tw_mono_ns() - begun_ns;
	/* the burst is free, and so is the last one, which is charged after it was sent */
	uint64_t bytes = (clients * reads - 1 - 2) * TW_READ_MAX_BYTES;
	cr_assert_geq(took_ns, bytes * 1000000000u / bytes_per_s - TCP_MS);
	cr_assert_gt(seen(TW_READ_SERVER_paced), 0);
}

Test(read_server, a_client_is_held_to_its_rate, .timeout = 60)
{
	uint16_t port = serve(limited);
	int fd = client(port, "one");
	expect_paced(&fd, 1, 4u << 20);
	cr_assert_gt(of_client(0, TW_READ_CLIENT_paced), 0);
	cr_assert_eq(seen(TW_READ_SERVER_revoked), 0);
	close(fd);
	tcp_bed_close(&bed);
}

static void limited_together(struct tw_read_server_conf *conf)
{
	conf->max_bytes_per_s = 8u << 20;
}

Test(read_server, all_clients_together_are_held_to_the_rate, .timeout = 60)
{
	uint16_t port = serve(limited_together);
	int fds[2] = { client(port, "one"), client(port, "two") };
	expect_paced(fds, 2, 8u << 20);
	close(fds[0]);
	close(fds[1]);
	tcp_bed_close(&bed);
}

Test(read_server, one_client_does_not_starve_another, .timeout = 60)
{
	uint16_t port = serve(limited_together);
	int greedy = client(port, "greedy"), modest = client(port, "modest");
	const uint64_t flood = 100;
	for (uint64_t id = 0; id < flood; id++) {
		ask(greedy, range(id, id, id + 1024));
	}
	/* it is under way, and the rate is used up */
	expect_answer(greedy, range(0, 0, 1024));
	TCP_WAIT(seen(TW_READ_SERVER_paced) > 0);
	struct tw_rw_read_head heads[4];
	for (uint64_t i = 0; i < 4; i++) {
		struct tw_read read = range(1000 + i, i, i + 1024);
		tw_rw_put_read(&heads[i], &read);
	}
	cr_assert(tcp_put(modest, heads, sizeof(heads)));
	for (uint64_t i = 0; i < 4; i++) {
		expect_answer(modest, range(1000 + i, i, i + 1024));
	}
	/* by turns, once it is there */
	uint32_t since = 0, found = 0;
	for (uint32_t i = 0; i < atomic_load(&bed.taken_count) && found < 4; i++) {
		bool mine = atomic_load(&bed.taken[i]) >= 1000;
		cr_assert(found == 0 || mine || since == 0, "at %u", i);
		since = mine ? 0 : since + 1;
		found += mine;
	}
	cr_assert_eq(found, 4);
	cr_assert_lt(of_client(0, TW_READ_CLIENT_replies), flood);
	close(greedy);
	close(modest);
	tcp_bed_close(&bed);
}

static void strict(struct tw_read_server_conf *conf)
{
	conf->client_max_bytes_per_s = 1u << 20;
	conf->revoke_ns = 300 * TCP_MS;
}

Test(read_server, who_never_pauses_is_revoked, .timeout = 60)
{
	uint16_t port = serve(strict);
	int greedy = client(port, "greedy"), modest = client(port, "modest");
	for (uint64_t id = 0; id < 100; id++) {
		struct tw_rw_read_head head;
		struct tw_read read = range(id, id, id + 1024);
		tw_rw_put_read(&head, &read);
		(void)tcp_put(greedy, &head, sizeof(head));
	}
	cr_assert(tcp_ended(greedy));
	TCP_WAIT(seen(TW_READ_SERVER_revoked) == 1);
	cr_assert_eq(of_client(0, TW_READ_CLIENT_revoked), 1);
	cr_assert_lt(of_client(0, TW_READ_CLIENT_replies), 100);
	/* as much, with a pause after each: it is slowed and stays */
	for (uint64_t id = 0; id < 8; id++) {
		ask(modest, range(id, id, id + 1024));
		expect_answer(modest, range(id, id, id + 1024));
	}
	cr_assert_gt(of_client(1, TW_READ_CLIENT_paced), 0);
	cr_assert_eq(seen(TW_READ_SERVER_revoked), 1);
	close(greedy);
	close(modest);
	tcp_bed_close(&bed);
}

/* By somebody's will: that one alone, and it may come back. */
Test(read_server, one_is_revoked, .timeout = 60)
{
	uint16_t port = serve(NULL);
	int bad = client(port, "bad"), good = client(port, "good");
	uint32_t place = 0;
	struct tw_read_client_info info;
	for (uint32_t i = 0; i < TCP_BED_CLIENTS; i++) {
		tw_read_server_client(bed.server, i, &info);
		place = strcmp(info.name, "bad") == 0 ? i : place;
	}
	tw_read_server_revoke(bed.server, place);
	cr_assert(tcp_ended(bad));
	TCP_WAIT(seen(TW_READ_SERVER_revoked) == 1);
	cr_assert_eq(of_client(place, TW_READ_CLIENT_revoked), 1);
	tw_read_server_revoke(bed.server, place); /* nobody is there */
	ask(good, range(1, 10, 12));
	expect_answer(good, range(1, 10, 12));
	close(bad);
	bad = client(port, "bad");
	ask(bad, range(2, 10, 12));
	expect_answer(bad, range(2, 10, 12));
	cr_assert_eq(seen(TW_READ_SERVER_revoked), 1);
	close(bad);
	close(good);
	tcp_bed_close(&bed);
}

Test(read_server, more_knock_than_there_is_room_for, .timeout = 60)
{
	uint16_t port = serve(impatient);
	int fds[40];
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		fds[i] = tcp_connect(port);
		cr_assert_geq(fds[i], 0);
	}
	/* nobody logs in, so all of them are shown out, also those who were not let in at first */
	TCP_WAIT(seen(TW_READ_SERVER_timeouts) == sizeof(fds) / sizeof(fds[0]));
	int fd = client(port, "at-last");
	close(fd);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		close(fds[i]);
	}
	tcp_bed_close(&bed);
}

Test(read_server, its_thread_stands_behind_the_publisher_whatever_that_ones_nice_value_is,
     .timeout = 60)
{
	struct tw_error err;
	int nice = getpriority(PRIO_PROCESS, 0) + 3;
	cr_assert_eq(setpriority(PRIO_PROCESS, 0, nice), 0);
	nice = getpriority(PRIO_PROCESS, 0); /* 19 is the last */
	cr_assert_eq(tw_read_server_stand_back(-1, &err), TW_OK);
	cr_assert_eq(getpriority(PRIO_PROCESS, 0), nice + 5 < 19 ? nice + 5 : 19);
	cr_assert_eq(sched_getscheduler(0), SCHED_BATCH);
}

Test(read_server, open_says_what_is_wrong, .timeout = 60)
{
	uint16_t port = serve(NULL);
	struct tw_read_server_channel channel = { .channel = 1 };
	struct tw_read_server_conf conf = tcp_bed_server_conf(&bed);
	struct tw_read_server *server;
	struct tw_error err;
	conf.channels = &channel;
	conf.channel_count = 1;
	conf.port = port;
	cr_assert_eq(tw_tcp_read_server_open(&server, &conf, &err), TW_EBUSY);
	cr_assert_null(server);
	cr_assert_not_null(strstr(err.text, "127.0.0.1:"), "%s", err.text);
	conf.port = 0;
	conf.addr = 0xc0000201u; /* 192.0.2.1, documentation: nobody's */
	cr_assert_eq(tw_tcp_read_server_open(&server, &conf, &err), TW_ESYS);
	conf = tcp_bed_server_conf(&bed);
	cr_assert_eq(tw_tcp_read_server_open(&server, &conf, &err), TW_EARG, "no channel");
	conf.channels = &channel;
	conf.channel_count = 1;
	conf.cpu = 100000;
	cr_assert_eq(tw_tcp_read_server_open(&server, &conf, &err), TW_EARG);
	tw_read_server_close(NULL);
	tcp_bed_close(&bed);
}
