/* The client of repair over TCP against the real server and against servers played by the test: whatever a
 * server does, each read ends once, and reads from others are not held up. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric/tcp/reader_conn.h"
#include "tests/support/tcp_bed.h"

static struct tcp_bed bed;

static uint64_t seen(uint32_t server, unsigned int counter)
{
	return tw_counter_get(&bed.reader_counters[server], counter);
}

static struct tw_read range(uint32_t server, uint64_t id, uint64_t begin, uint64_t end)
{
	return (struct tw_read){ .id = id,
				 .server = server,
				 .channel = 1,
				 .session = TCP_BED_SESSION,
				 .publisher = 1,
				 .begin = begin,
				 .end = end };
}

/* A reader of servers on these ports. */
static struct tw_reader *open_reader(const uint16_t *ports, uint32_t count,
				     void (*change)(struct tw_reader_conf *conf))
{
	struct tw_reader_server servers[TCP_BED_SERVERS];
	struct tw_reader *reader;
	struct tw_error err;
	for (uint32_t i = 0; i < count; i++) {
		servers[i] =
			(struct tw_reader_server){ .addr = TCP_BED_LOOPBACK, .port = ports[i] };
	}
	struct tw_reader_conf conf = tcp_bed_reader_conf(&bed, servers, count);
	if (change != NULL) {
		change(&conf);
	}
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_OK, "%s", err.text);
	return reader;
}

static void wait_up(struct tw_reader *reader, uint32_t mask)
{
	TCP_WAIT((tw_reader_up(reader) & mask) == mask);
}

static struct tw_read_done next_end(struct tw_reader *reader)
{
	struct tw_read_done done = { .status = TW_READ_STATUSES };
	TCP_WAIT(tw_reader_poll(reader, &done));
	return done;
}

static uint16_t real_server(void)
{
	cr_assert(tcp_bed_serve(&bed, tcp_bed_server_conf(&bed)));
	return tw_read_server_port(bed.server);
}

/* Posts a read and expects it to end so. */
static void expect_end(struct tw_reader *reader, struct tw_read read, enum tw_read_status status)
{
	cr_assert(tw_reader_post(reader, &read));
	struct tw_read_done done = next_end(reader);
	cr_assert_eq(done.id, read.id);
	cr_assert_eq(done.status, status, "read %llu: %d", (unsigned long long)read.id,
		     (int)done.status);
	if (status == TW_READ_OK && !read.by_seq) {
		cr_assert_eq(done.len_bytes, (read.end - read.begin) * 64);
		cr_assert(tcp_bed_is(done.data, done.len_bytes, read.begin));
	} else if (status != TW_READ_OK) {
		cr_assert_eq(done.len_bytes, 0);
	}
	tw_reader_release(reader, &done);
}

Test(reader, ranges_come_back_whole_and_in_order, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	uint16_t port = real_server();
	struct tw_reader *reader = open_reader(&port, 1, NULL);
	wait_up(reader, 1);
	uint64_t posted = 0, ended = 0;
	const uint64_t all = 300;
	uint64_t until_ns = tw_mono_ns() + TCP_BED_WAIT_NS;
	while (ended < all && tw_mono_ns() < until_ns) {
		struct tw_read read =
			range(0, posted, posted * 7, posted * 7 + 1 + posted * 37 % 1024);
		while (posted < all && tw_reader_post(reader, &read)) {
			posted++;
			read = range(0, posted, posted * 7, posted * 7 + 1 + posted * 37 % 1024);
		}
		struct tw_read_done done;
		while (tw_reader_poll(reader, &done)) {
			cr_assert_eq(done.id, ended);
			cr_assert_eq(done.status, TW_READ_OK);
			cr_assert_eq((uintptr_t)done.data % 64, 0);
			cr_assert_eq(done.len_bytes, (1 + ended * 37 % 1024) * 64);
			cr_assert(tcp_bed_is(done.data, done.len_bytes, ended * 7));
			tw_reader_release(reader, &done);
			ended++;
		}
	}
	cr_assert_eq(ended, all);
	cr_assert_eq(seen(0, TW_READER_replies), all);
	cr_assert_eq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_reads), all);
	tw_reader_close(reader);
	tcp_bed_close(&bed);
}

Test(reader, what_a_server_cannot_give, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	uint16_t port = real_server();
	struct tw_reader *reader = open_reader(&port, 1, NULL);
	wait_up(reader, 1);
	atomic_store(&bed.oldest, 500);
	atomic_store(&bed.published, 1000);
	expect_end(reader, range(0, 1, 500, 1000), TW_READ_OK);
	expect_end(reader, range(0, 2, 499, 501), TW_READ_GONE);
	expect_end(reader, range(0, 3, 990, 1001), TW_READ_BUSY);
	struct tw_read read = range(0, 4, 600, 601);
	read.channel = 2;
	expect_end(reader, read, TW_READ_REFUSED);
	read = range(0, 5, 600, 601);
	read.session++;
	expect_end(reader, read, TW_READ_GONE);
	cr_assert_eq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_gone), 2);
	cr_assert_eq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_busy), 1);
	cr_assert_eq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_refused), 1);
	cr_assert_eq(tw_counter_get(&bed.client_counters[0], TW_READ_CLIENT_reads), 5);

	/* by number: what is still there of it */
	read = range(0, 6, 1, 2000);
	read.by_seq = true;
	cr_assert(tw_reader_post(reader, &read));
	struct tw_read_done done = next_end(reader);
	cr_assert_eq(done.status, TW_READ_OK);
	cr_assert_eq(done.len_bytes, 500 * 64);
	cr_assert(tcp_bed_is(done.data, done.len_bytes, 500));
	tw_reader_release(reader, &done);

	/* not even asked for */
	read = range(0, 7, 5, 5);
	cr_assert_not(tw_reader_post(reader, &read));
	read = range(0, 7, 5, 5 + 1025);
	cr_assert_not(tw_reader_post(reader, &read));
	read = range(1, 7, 5, 6);
	cr_assert_not(tw_reader_post(reader, &read), "no such server");
	tw_reader_close(reader);
	tcp_bed_close(&bed);
}

static void another_environment(struct tw_reader_conf *conf)
{
	conf->environment = TCP_BED_ENV ^ 1;
}

Test(reader, another_environment_is_refused, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	uint16_t port = real_server();
	struct tw_reader *reader = open_reader(&port, 1, another_environment);
	TCP_WAIT(seen(0, TW_READER_logins_refused) >= 2); /* it keeps trying */
	cr_assert_eq(tw_reader_up(reader), 0);
	cr_assert_eq(seen(0, TW_READER_logins), 0);
	cr_assert_geq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_refused_environment), 2);
	cr_assert_eq(tw_counter_get(&bed.server_counters, TW_READ_SERVER_logins), 0);
	expect_end(reader, range(0, 1, 0, 1), TW_READ_REFUSED);
	tw_reader_close(reader);
	tcp_bed_close(&bed);
}

Test(reader, open_refuses_what_cannot_work, .timeout = 60)
{
	struct tw_reader_server server = { .addr = TCP_BED_LOOPBACK, .port = 1 };
	struct tw_reader *reader;
	struct tw_error err;
	cr_assert(tcp_bed_open(&bed));
	const struct tw_reader_conf good = tcp_bed_reader_conf(&bed, &server, 1);
	struct tw_reader_conf conf = good;
	conf.server_count = 0;
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_EARG);
	cr_assert_null(reader);
	conf = good;
	conf.slots = 0;
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_EARG);
	conf = good;
	conf.retry_min_ns = conf.retry_max_ns + 1;
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_EARG);
	conf = good;
	conf.name[0] = ' ';
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_EARG);
	conf = good;
	conf.cpu = 100000;
	cr_assert_eq(tw_tcp_reader_open(&reader, &conf, &err), TW_EARG);
	cr_assert_not_null(strstr(err.text, "100000"));
	tcp_bed_close(&bed);
}

/* --- servers played by the test ------------------------------------------------------------------ */

struct fake {
	int listen_fd, fd;
	uint16_t port;
};

static struct fake fake_open(void)
{
	struct fake fake = { .fd = -1 };
	fake.listen_fd = tcp_listen(&fake.port);
	cr_assert_geq(fake.listen_fd, 0);
	return fake;
}

static void fake_accept(struct fake *fake, bool log_in)
{
	fake->fd = tcp_accept(fake->listen_fd);
	cr_assert_geq(fake->fd, 0);
	if (log_in) {
		cr_assert(tcp_take_login(fake->fd));
	}
}

static struct tw_read fake_take(const struct fake *fake)
{
	struct tw_rw_read_head head;
	struct tw_read read;
	cr_assert(tcp_get(fake->fd, &head, sizeof(head)));
	cr_assert_eq(tw_rw_parse_read(&head, sizeof(head), &read), TW_RW_WELL_FORMED);
	return read;
}

static bool fake_answer(const struct fake *fake, const struct tw_read *read)
{
	static uint8_t data[TW_READ_MAX_BYTES];
	struct tw_rw_read_head head;
	uint32_t bytes = (uint32_t)(read->end - read->begin) * 64;
	tw_rw_put_reply(&head, read->id, TW_READ_OK, bytes);
	tcp_bed_fill(data, bytes, read->begin);
	return tcp_put(fake->fd, &head, sizeof(head)) && tcp_put(fake->fd, data, bytes);
}

static void fake_drop(struct fake *fake)
{
	close(fake->fd);
	fake->fd = -1;
}

Test(reader, a_server_that_dies_in_the_middle_of_a_reply, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	struct tw_reader *reader = open_reader(&fake.port, 1, NULL);
	fake_accept(&fake, true);
	wait_up(reader, 1);
	for (uint64_t id = 0; id < 3; id++) {
		struct tw_read read = range(0, id, id * 100, id * 100 + 64);
		cr_assert(tw_reader_post(reader, &read));
	}
	struct tw_read first = fake_take(&fake);
	struct tw_rw_read_head head;
	uint8_t half[32 * 64];
	cr_assert(fake_answer(&fake, &first));
	struct tw_read second = fake_take(&fake);
	tw_rw_put_reply(&head, second.id, TW_READ_OK, 64 * 64);
	tcp_bed_fill(half, sizeof(half), second.begin);
	cr_assert(tcp_put(fake.fd, &head, sizeof(head)) && tcp_put(fake.fd, half, sizeof(half)));
	fake_drop(&fake);
	for (uint64_t id = 0; id < 3; id++) {
		struct tw_read_done done = next_end(reader);
		cr_assert_eq(done.id, id);
		cr_assert_eq(done.status, id == 0 ? TW_READ_OK : TW_READ_BROKEN);
		tw_reader_release(reader, &done);
	}
	/* it comes back, and so does the reader */
	fake_accept(&fake, true);
	wait_up(reader, 1);
	struct tw_read read = range(0, 9, 40, 50);
	cr_assert(tw_reader_post(reader, &read));
	read = fake_take(&fake);
	cr_assert(fake_answer(&fake, &read));
	struct tw_read_done done = next_end(reader);
	cr_assert_eq(done.status, TW_READ_OK);
	cr_assert(tcp_bed_is(done.data, done.len_bytes, 40));
	tw_reader_release(reader, &done);
	cr_assert_eq(seen(0, TW_READER_logins), 2);
	cr_assert_eq(seen(0, TW_READER_malformed), 0);
	tw_reader_close(reader);
	fake_drop(&fake);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

/* --- lies ----------------------------------------------------------------------------------------- */

static void put_reply_lie(unsigned int lie, const struct tw_read *read,
			  struct tw_rw_read_head *head)
{
	tw_rw_put_reply(head, read->id, TW_READ_OK, (uint32_t)(read->end - read->begin) * 64);
	switch (lie) {
	case 0:
		head->id++;
		break;
	case 1:
		head->lead.bytes -= 64;
		break;
	case 2:
		head->lead.bytes = UINT32_MAX;
		break;
	case 3:
		head->lead.status = TW_READ_BROKEN;
		break;
	case 4:
		head->lead.status = 255;
		break;
	case 5:
		head->lead.kind = TW_RW_LOGIN_REPLY;
		break;
	case 6:
		head->lead.magic = 0;
		break;
	case 7:
		head->lead.version_major++;
		break;
	case 8:
		head->lead.status = TW_READ_GONE; /* with bytes */
		break;
	case 9:
		head->end = 1;
		break;
	case 10:
		head->lead.bytes = 0; /* OK with nothing */
		break;
	default:
		memset(head, 0xa5, sizeof(*head));
		break;
	}
}

Test(reader, every_lie_breaks_one_connection_and_no_more, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	uint16_t ports[2] = { fake.port, real_server() };
	struct tw_reader *reader = open_reader(ports, 2, NULL);
	for (unsigned int lie = 0; lie < 12; lie++) {
		fake_accept(&fake, true);
		wait_up(reader, 3);
		struct tw_read read = range(0, 100 + lie, 8, 16);
		struct tw_rw_read_head head;
		cr_assert(tw_reader_post(reader, &read));
		read = fake_take(&fake);
		put_reply_lie(lie, &read, &head);
		cr_assert(tcp_put(fake.fd, &head, sizeof(head)));
		struct tw_read_done done = next_end(reader);
		cr_assert_eq(done.status, TW_READ_BROKEN, "lie %u", lie);
		tw_reader_release(reader, &done);
		cr_assert(tcp_ended(fake.fd), "lie %u", lie);
		fake_drop(&fake);
		expect_end(reader, range(1, lie, lie, lie + 8), TW_READ_OK);
	}
	cr_assert_eq(seen(0, TW_READER_malformed), 12);
	cr_assert_eq(seen(1, TW_READER_failures), 0);
	/* an answer that nobody asked for, and one to a login that is none */
	struct tw_rw_read_head head;
	fake_accept(&fake, true);
	wait_up(reader, 1);
	tw_rw_put_reply(&head, 0, TW_READ_GONE, 0);
	cr_assert(tcp_put(fake.fd, &head, sizeof(head)));
	cr_assert(tcp_ended(fake.fd));
	fake_drop(&fake);
	fake_accept(&fake, false);
	cr_assert(tcp_put(fake.fd, &head, sizeof(head)));
	cr_assert(tcp_ended(fake.fd));
	fake_drop(&fake);
	cr_assert_eq(seen(0, TW_READER_malformed), 14);
	tw_reader_close(reader);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

static void short_timeouts(struct tw_reader_conf *conf)
{
	conf->idle_timeout_ns = 200 * TCP_MS;
	conf->connect_timeout_ns = 200 * TCP_MS;
}

Test(reader, a_server_that_drips_is_as_late_as_one_that_is_silent, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	uint16_t ports[2] = { fake.port, real_server() };
	struct tw_reader *reader = open_reader(ports, 2, short_timeouts);
	fake_accept(&fake, true);
	wait_up(reader, 3);
	struct tw_read read = range(0, 1, 0, 1024);
	cr_assert(tw_reader_post(reader, &read));
	struct tw_rw_read_head head;
	read = fake_take(&fake);
	tw_rw_put_reply(&head, read.id, TW_READ_OK, TW_READ_MAX_BYTES);
	cr_assert(tcp_put(fake.fd, &head, sizeof(head)));
	/* a byte now and then, and meanwhile the other server is read from */
	struct tw_read_done done;
	uint64_t others = 0;
	bool ended = false;
	for (uint64_t id = 10; !ended; id++) {
		uint8_t byte = 0;
		(void)tcp_put(fake.fd, &byte, 1);
		struct tw_read other = range(1, id, id, id + 16);
		cr_assert(tw_reader_post(reader, &other));
		while (!ended) {
			done = next_end(reader);
			tw_reader_release(reader, &done);
			if (done.id == id) {
				others += done.status == TW_READ_OK;
				break;
			}
			ended = true;
		}
	}
	cr_assert_eq(done.id, 1);
	cr_assert_eq(done.status, TW_READ_BROKEN);
	cr_assert_gt(others, 0);
	cr_assert_eq(seen(0, TW_READER_timeouts), 1);
	fake_drop(&fake);
	/* one that takes the connection and says nothing at all */
	fake_accept(&fake, false);
	TCP_WAIT(seen(0, TW_READER_timeouts) >= 2);
	cr_assert_eq(seen(1, TW_READER_timeouts), 0);
	tw_reader_close(reader);
	fake_drop(&fake);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

Test(reader, a_server_that_sits_on_its_reads_leaves_a_slot_for_each_other, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake silent = fake_open(), other = fake_open();
	uint16_t ports[3] = { silent.port, other.port, real_server() };
	struct tw_reader *reader = open_reader(ports, 3, NULL);
	fake_accept(&silent, true);
	fake_accept(&other, true);
	wait_up(reader, 7);
	struct tw_read read = range(0, 0, 0, 1);
	uint32_t taken = 0;
	for (; taken < 100 && tw_reader_post(reader, &read); taken++) {
		read.id++;
	}
	cr_assert_eq(taken, 8 - 2);
	read = range(1, 200, 0, 1);
	cr_assert(tw_reader_post(reader, &read));
	cr_assert_not(tw_reader_post(reader, &read), "the last one is the third server's");
	for (uint64_t id = 300; id < 320; id++) {
		expect_end(reader, range(2, id, id, id + 1), TW_READ_OK);
	}
	/* slots come back with the ends, not before they are released */
	fake_drop(&silent);
	struct tw_read_done done[6];
	for (uint32_t i = 0; i < taken; i++) {
		done[i] = next_end(reader);
		cr_assert_eq(done[i].status, TW_READ_BROKEN);
		cr_assert_eq(done[i].id, i);
	}
	read = range(1, 201, 0, 1);
	cr_assert_not(tw_reader_post(reader, &read));
	for (uint32_t i = 0; i < taken; i++) {
		tw_reader_release(reader, &done[i]);
	}
	cr_assert(tw_reader_post(reader, &read));
	tw_reader_close(reader);
	fake_drop(&other);
	close(silent.listen_fd);
	close(other.listen_fd);
	tcp_bed_close(&bed);
}

static void gathers_for_an_hour(struct tw_reader_conf *conf)
{
	conf->idle_timeout_ns = conf->gather_ns = 3600 * 1000 * TCP_MS;
}

static void gathers_for_a_moment(struct tw_reader_conf *conf)
{
	conf->idle_timeout_ns = 3600 * 1000 * TCP_MS;
	conf->gather_ns = 8 * TCP_MS;
}

static bool has_come(const struct fake *fake)
{
	uint8_t byte;
	return recv(fake->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

Test(reader, a_lone_read_goes_at_once_and_those_close_behind_it_wait, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	struct tw_reader *reader = open_reader(&fake.port, 1, gathers_for_an_hour);
	struct tw_tcp_reader *inside = (void *)reader;
	fake_accept(&fake, true);
	wait_up(reader, 1);
	for (uint64_t id = 0; id < 3; id++) {
		struct tw_read read = range(0, id, id, id + 4);
		struct tw_read_done done;
		cr_assert(tw_reader_post(reader, &read));
		cr_assert_eq(inside->gathered, id != 0);
		if (id == 0) {
			cr_assert_eq(fake_take(&fake).id, 0);
		}
		cr_assert_not(tw_reader_poll(reader, &done));
		cr_assert_not(has_come(&fake));
	}
	cr_assert_eq(inside->pause_ns, inside->conf.gather_ns / 8);
	tw_reader_close(reader);
	fake_drop(&fake);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

Test(reader, what_waits_goes_out_together_when_the_pause_is_over, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	struct tw_reader *reader = open_reader(&fake.port, 1, gathers_for_a_moment);
	const struct tw_tcp_reader *inside = (void *)reader;
	struct tw_read_done done;
	uint64_t id = 0;
	fake_accept(&fake, true);
	wait_up(reader, 1);
	for (unsigned int round = 0; round < 4; round++) { /* nothing is ever answered */
		for (uint64_t end = id + 2; id < end; id++) {
			struct tw_read read = range(0, id, id, id + 4);
			cr_assert(tw_reader_post(reader, &read));
		}
		TCP_WAIT(!tw_reader_poll(reader, &done) && !inside->gathered);
		cr_assert_leq(inside->pause_ns, 8 * TCP_MS);
		cr_assert_eq(fake_take(&fake).id, id - 2);
		cr_assert_eq(fake_take(&fake).id, id - 1);
	}
	tw_reader_close(reader);
	fake_drop(&fake);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

static void slow_retries(struct tw_reader_conf *conf)
{
	conf->retry_min_ns = 20 * TCP_MS;
	conf->retry_max_ns = 160 * TCP_MS;
}

Test(reader, back_off_doubles_and_a_login_alone_does_not_shorten_it, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	struct tw_reader *reader = open_reader(&fake.port, 1, slow_retries);
	const uint64_t least_ms[] = { 20, 40, 80, 160, 160 };
	fake_accept(&fake, true);
	wait_up(reader, 1);
	for (unsigned int i = 0; i < 5; i++) {
		uint64_t dropped_ns = tw_mono_ns();
		fake_drop(&fake);
		fake_accept(&fake, true);
		/* late is allowed, early is not */
		uint64_t waited_ns = tw_mono_ns() - dropped_ns;
		cr_assert_geq(waited_ns, least_ms[i] * TCP_MS, "try %u", i);
	}
	/* a good reply does; the machine may be busy, but not each time */
	uint64_t shortest_ns = UINT64_MAX;
	for (uint64_t id = 0; id < 5; id++) {
		wait_up(reader, 1);
		struct tw_read read = range(0, id, 0, 4);
		cr_assert(tw_reader_post(reader, &read));
		read = fake_take(&fake);
		cr_assert(fake_answer(&fake, &read));
		struct tw_read_done done = next_end(reader);
		cr_assert_eq(done.status, TW_READ_OK);
		tw_reader_release(reader, &done);
		uint64_t dropped_ns = tw_mono_ns();
		fake_drop(&fake);
		fake_accept(&fake, true);
		uint64_t waited_ns = tw_mono_ns() - dropped_ns;
		cr_assert_geq(waited_ns, 20 * TCP_MS);
		shortest_ns = waited_ns < shortest_ns ? waited_ns : shortest_ns;
	}
	cr_assert_lt(shortest_ns, 160 * TCP_MS);
	cr_assert_eq(seen(0, TW_READER_failures), 10);
	tw_reader_close(reader);
	fake_drop(&fake);
	close(fake.listen_fd);
	tcp_bed_close(&bed);
}

Test(reader, nobody_listens_and_then_somebody_does, .timeout = 60)
{
	cr_assert(tcp_bed_open(&bed));
	struct fake fake = fake_open();
	close(fake.listen_fd);
	struct tw_reader *reader = open_reader(&fake.port, 1, NULL);
	TCP_WAIT(seen(0, TW_READER_failures) >= 3);
	cr_assert_eq(tw_reader_up(reader), 0);
	expect_end(reader, range(0, 1, 0, 1), TW_READ_REFUSED);
	struct tw_read_server_conf conf = tcp_bed_server_conf(&bed);
	conf.port = fake.port;
	cr_assert(tcp_bed_serve(&bed, conf));
	wait_up(reader, 1);
	expect_end(reader, range(0, 2, 0, 1), TW_READ_OK);
	/* the server's end is noticed without a read */
	tw_read_server_close(bed.server);
	bed.server = NULL;
	TCP_WAIT(tw_reader_up(reader) == 0);
	tw_reader_close(reader);
	tcp_bed_close(&bed);
}
