/* Repair over RC on a device that is not there (tests/rdma/fake_verbs.h): what it says of itself, and that it goes. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/counters.h"
#include "base/fail.h"
#include "fabric/reader.h"
#include "fabric/verbs/rc_wire.h"
#include "tests/rdma/fake_verbs.h"
#include "tests/unit/config_text.h"
#include "tidewire/wire.h"

#define LIMIT_NS 60000000000ull /* a hang, not a measure */
#define ENV      0x2468
#define SESSION  77u
#define UNITS    64u
#define MS       1000000ull
#define PLACES   2u /* at the server */

static struct {
	struct tw_stats *stats;
	struct tw_counters reader_counters, server_counters, client_counters[PLACES];
	struct tw_reader *reader;
	struct tw_read_server *server;
} bed;

/* A history of one life, all of it published. */
static struct {
	struct tw_wire_control control;
	uint8_t log[UNITS][TW_WIRE_UNIT_BYTES];
} history __attribute__((aligned(4096)));

#define UNTIL(condition)                                                  \
	do {                                                              \
		uint64_t until_ns = tw_mono_ns() + LIMIT_NS;              \
		while (!(condition)) {                                    \
			cr_assert_lt(tw_mono_ns(), until_ns, #condition); \
			(void)usleep(200);                                \
		}                                                         \
	} while (0)

static uint64_t count(unsigned int counter)
{
	return tw_counter_get(&bed.reader_counters, counter);
}

static uint64_t server_count(unsigned int counter)
{
	return tw_counter_get(&bed.server_counters, counter);
}

static void begin(void)
{
	struct tw_error err;
	tw_clock_init();
	fake_begin();
	history.control = (struct tw_wire_control){ .magic = TW_WIRE_CONTROL_MAGIC,
						    .publisher = 1,
						    .session = SESSION,
						    .units = UNITS,
						    .intent = UNITS,
						    .published = UNITS };
	for (unsigned int i = 0; i < UNITS; i++) {
		memset(history.log[i], (int)i, sizeof(history.log[i]));
	}
	cr_assert_eq(tw_stats_create(&bed.stats, NULL, "rc", "test", &err), TW_OK);
	cr_assert_eq(tw_stats_add(bed.stats, TW_SET_reader, "r", &bed.reader_counters, &err),
		     TW_OK);
	cr_assert_eq(tw_stats_add(bed.stats, TW_SET_read_server, "s", &bed.server_counters, &err),
		     TW_OK);
	for (unsigned int i = 0; i < PLACES; i++) {
		cr_assert_eq(tw_stats_add(bed.stats, TW_SET_read_client, "c",
					  &bed.client_counters[i], &err),
			     TW_OK);
	}
	cr_assert_eq(tw_stats_seal(bed.stats, &err), TW_OK);
}

static void end(void)
{
	tw_reader_close(bed.reader);
	tw_read_server_close(bed.server);
	tw_stats_close(bed.stats, true);
	const char *fault = fake_end();
	cr_assert_null(fault, "%s (%s)", fault, fake.order);
	NO_LEAKS();
}

/* --- the client ---------------------------------------------------------------------------------------- */

/* The other end: whatever is sent is a login. */
static void log_in(struct fake_qp *qp, const uint8_t *data, uint32_t bytes)
{
	static _Alignas(8) uint8_t reply[TW_RC_LOGIN_MAX];
	const struct tw_rc_grant grant = { .channel = 1,
					   .one_sided = true,
					   .publisher = 1,
					   .rkey = FAKE_RKEY,
					   .session = SESSION,
					   .control_addr = (uintptr_t)&history.control,
					   .log_addr = (uintptr_t)history.log,
					   .units = UNITS };
	(void)data;
	(void)bytes;
	fake_answer(qp, reply, tw_rc_put_login_reply(reply, ENV, TW_LOGIN_OK, &grant, 1));
}

static struct tw_reader *open_reader(bool counted)
{
	const struct tw_reader_server at = { .addr = FAKE_ADDRESS + 9, .port = 4790 };
	struct tw_error err = { .code = TW_OK };
	struct tw_reader *reader;
	struct tw_reader_conf conf = { .servers = &at,
				       .server_count = 1,
				       .environment = ENV,
				       .name = "reader",
				       .slots = 8,
				       .connect_timeout_ns = 60000 * MS,
				       .retry_min_ns = MS,
				       .retry_max_ns = 20 * MS,
				       .idle_timeout_ns = 3600000 * MS,
				       .cpu = -1,
				       .counters = counted ? &bed.reader_counters : NULL };
	fake.on_send = log_in;
	cr_assert_eq(tw_rc_reader_open(&reader, &conf, &err), TW_OK, "%s", err.text);
	UNTIL(tw_reader_up(reader) == 1);
	return reader;
}

static void post_read(struct tw_reader *reader, bool by_seq)
{
	const struct tw_read read = { .id = 5,
				      .channel = 1,
				      .by_seq = by_seq,
				      .session = SESSION,
				      .publisher = 1,
				      .begin = 8,
				      .end = 24 };
	cr_assert(tw_reader_post(reader, &read));
}

static enum tw_read_status end_read(struct tw_reader *reader)
{
	struct tw_read_done done;
	UNTIL(tw_reader_poll(reader, &done));
	cr_assert_eq(done.id, 5);
	if (done.status == TW_READ_OK) {
		cr_assert_eq(done.len_bytes, 16 * TW_WIRE_UNIT_BYTES);
		cr_assert_arr_eq(done.data, history.log[8], done.len_bytes);
	}
	tw_reader_release(reader, &done);
	return done.status;
}

static void reads_well(struct tw_reader *reader)
{
	UNTIL(tw_reader_up(reader) == 1);
	post_read(reader, false);
	cr_assert_eq(end_read(reader), TW_READ_OK);
}

static void set_stall(bool stall)
{
	FAKE_LOCK;
	fake.stall = stall;
	FAKE_UNLOCK;
}

/* A READ, or a request for what the server is to read: it does not come to an end by itself. */
static void hangs(bool by_seq)
{
	set_stall(true);
	post_read(bed.reader, by_seq);
}

Test(rc_device, client_when_the_device_goes, .timeout = 240)
{
	begin();
	bed.reader = open_reader(true);
	reads_well(bed.reader);
	cr_expect_eq(fake_live(FAKE_CONTEXT), 1, "its own");
	hangs(true);
	fake_remove();
	set_stall(false);
	/* a device that is gone flushes nothing: the end waits neither for that nor for the time-out */
	cr_expect_eq(end_read(bed.reader), TW_READ_BROKEN);
	UNTIL(fake_live(FAKE_CONTEXT) == 0);
	cr_expect_eq(fake_live(FAKE_QP) + fake_live(FAKE_CQ) + fake_live(FAKE_MR) +
			     fake_live(FAKE_PD),
		     0);
	cr_expect_not_null(strstr(fake.order, "QCMPX"), "%s", fake.order);
	cr_expect_eq(tw_reader_up(bed.reader), 0);
	cr_expect_eq(count(TW_READER_device_lost), 1);
	/* tried again and again, without success */
	const uint64_t connects = count(TW_READER_connects);
	UNTIL(count(TW_READER_connects) >= connects + 3);
	cr_expect_eq(count(TW_READER_logins), 1);
	fake_return();
	reads_well(bed.reader);
	cr_expect_eq(count(TW_READER_logins), 2);
	cr_expect_eq(count(TW_READER_device_lost), 1);
	end();
}

/* The device itself says so, and the connection manager nothing. */
Test(rc_device, client_when_the_device_fails, .timeout = 240)
{
	begin();
	bed.reader = open_reader(true);
	reads_well(bed.reader);
	for (unsigned int i = 1; i <= 3; i++) { /* idle, and then not */
		if (i > 1) {
			hangs(i == 2);
		}
		fake_port_event(IBV_EVENT_DEVICE_FATAL);
		if (i > 1) {
			cr_expect_eq(end_read(bed.reader), TW_READ_BROKEN);
			set_stall(false);
		}
		UNTIL(count(TW_READER_logins) == i + 1);
		reads_well(bed.reader);
		cr_expect_eq(count(TW_READER_device_lost), i);
		cr_expect_eq(fake.made[FAKE_CONTEXT], i + 1, "another context each time");
		cr_expect_eq(fake_live(FAKE_CONTEXT), 1);
	}
	end();
}

Test(rc_device, client_whose_queues_fail, .timeout = 240)
{
	static const enum ibv_event_type types[] = { IBV_EVENT_QP_FATAL, IBV_EVENT_CQ_ERR,
						     IBV_EVENT_QP_REQ_ERR,
						     IBV_EVENT_QP_ACCESS_ERR };
	begin();
	bed.reader = open_reader(true);
	for (unsigned int i = 0; i < 8; i++) {
		reads_well(bed.reader);
		if (i >= 4) {
			hangs(i % 2 == 0);
		}
		cr_expect_eq(fake_queue_event(types[i % 4], IBV_QPT_RC), 1);
		if (i >= 4) {
			cr_expect_eq(end_read(bed.reader), TW_READ_BROKEN);
			set_stall(false);
		}
		UNTIL(count(TW_READER_logins) == i + 2);
	}
	reads_well(bed.reader);
	cr_expect_eq(count(TW_READER_queue_errors), 8);
	cr_expect_eq(count(TW_READER_failures), 8);
	cr_expect_eq(count(TW_READER_async_events), 8);
	cr_expect_eq(fake.made[FAKE_CONTEXT], 1, "the device stays open");
	end();
}

Test(rc_device, client_whose_port_and_address_change, .timeout = 240)
{
	begin();
	bed.reader = open_reader(true);
	/* what does no harm is counted, and the connection lives */
	fake_port_event(IBV_EVENT_PORT_ERR);
	fake_port_event(IBV_EVENT_PORT_ACTIVE);
	fake_port_event(IBV_EVENT_GID_CHANGE);
	fake_port_event(IBV_EVENT_SM_CHANGE);
	UNTIL(count(TW_READER_async_events) == 4);
	reads_well(bed.reader);
	cr_expect_eq(count(TW_READER_port_downs), 1);
	cr_expect_eq(count(TW_READER_failures), 0);
	/* its GID is gone: so is the connection, until there is one */
	FAKE_LOCK;
	fake.address_gone = true;
	fake_port_event(IBV_EVENT_GID_CHANGE);
	FAKE_UNLOCK;
	UNTIL(count(TW_READER_address_lost) == 1);
	const uint64_t connects = count(TW_READER_connects);
	UNTIL(count(TW_READER_connects) >= connects + 3);
	cr_expect_eq(tw_reader_up(bed.reader), 0);
	FAKE_LOCK;
	fake.address_gone = false;
	FAKE_UNLOCK;
	reads_well(bed.reader);
	fake_port_event(IBV_EVENT_LID_CHANGE);
	UNTIL(count(TW_READER_address_lost) == 2);
	UNTIL(count(TW_READER_logins) == 3);
	reads_well(bed.reader);
	end();
}

/* Each reader of a process hears what concerns it, and nothing of librdmacm's contexts is taken. */
Test(rc_device, two_clients_in_one_process, .timeout = 240)
{
	begin();
	bed.reader = open_reader(true);
	struct tw_reader *other = open_reader(false);
	cr_expect_eq(fake_live(FAKE_CONTEXT), 2);
	fake_port_event(IBV_EVENT_DEVICE_FATAL);
	UNTIL(fake.made[FAKE_CONTEXT] == 4);
	reads_well(bed.reader);
	reads_well(other);
	tw_reader_close(other);
	end();
}

/* --- the server ---------------------------------------------------------------------------------------- */

static int nothing(void *ctx, const struct tw_read *read, void *dst, uint32_t max_bytes)
{
	(void)ctx;
	(void)read;
	(void)dst;
	(void)max_bytes;
	return 0;
}

static void open_server(void)
{
	const struct tw_read_server_channel channel = {
		.channel = 1, .read = nothing, .memory = &history, .memory_bytes = sizeof(history)
	};
	const struct tw_read_server_conf conf = { .addr = FAKE_ADDRESS,
						  .port = 4790,
						  .environment = ENV,
						  .channels = &channel,
						  .channel_count = 1,
						  .max_clients = PLACES,
						  .idle_timeout_ns = 3600000 * MS,
						  .cpu = -1,
						  .counters = bed.server_counters,
						  .clients = bed.client_counters };
	struct tw_error err = { .code = TW_OK };
	cr_assert_eq(tw_rc_read_server_open(&bed.server, &conf, &err), TW_OK, "%s", err.text);
	cr_expect_eq(server_count(TW_READ_SERVER_device), 1);
	cr_expect_eq(fake_live(FAKE_CONTEXT), 1);
}

static void connect_as(uint8_t version_minor)
{
	struct tw_rc_hello_head hello;
	const unsigned int accepts = fake.accepts;
	tw_rc_put_hello(&hello, 1);
	hello.version_minor = version_minor;
	cr_assert(fake_request(&hello, sizeof(hello)));
	UNTIL(fake.accepts == accepts + 1);
}

/* Somebody connects, who never logs in. */
static void connect_one(void)
{
	connect_as(TW_RC_HELLO_MINOR);
}

Test(rc_device, server_when_the_device_goes_or_fails, .timeout = 240)
{
	begin();
	open_server();
	connect_one();
	fake_port_event(IBV_EVENT_PORT_ERR);
	UNTIL(server_count(TW_READ_SERVER_port_downs) == 1);
	cr_expect_eq(server_count(TW_READ_SERVER_device_lost), 0);
	cr_expect_eq(fake_live(FAKE_QP), 1);
	fake_port_event(IBV_EVENT_DEVICE_FATAL);
	UNTIL(server_count(TW_READ_SERVER_device_lost) == 1);
	UNTIL(server_count(TW_READ_SERVER_device) == 1 && fake.made[FAKE_CONTEXT] == 2);
	connect_one();
	fake_remove();
	UNTIL(server_count(TW_READ_SERVER_device_lost) == 2);
	UNTIL(fake_live(FAKE_CONTEXT) == 0);
	cr_expect_eq(fake_live(FAKE_QP) + fake_live(FAKE_SRQ) + fake_live(FAKE_CQ) +
			     fake_live(FAKE_MR) + fake_live(FAKE_PD) + fake_live(FAKE_CHANNEL),
		     0);
	UNTIL(server_count(TW_READ_SERVER_device) == 0);
	fake_return();
	UNTIL(server_count(TW_READ_SERVER_device) == 1);
	connect_one();
	cr_expect_eq(server_count(TW_READ_SERVER_registered), 3, "a life's memory anew each time");
	end();
}

Test(rc_device, server_whose_queues_or_address_fail, .timeout = 240)
{
	begin();
	open_server();
	connect_one();
	/* of one client's queue pair: that client's end */
	cr_expect_eq(fake_queue_event(IBV_EVENT_QP_FATAL, IBV_QPT_RC), 1);
	UNTIL(server_count(TW_READ_SERVER_broken) == 1 && fake_live(FAKE_QP) == 0);
	/* its GID gone: the same */
	connect_one();
	fake_port_event(IBV_EVENT_GID_CHANGE); /* another's */
	UNTIL(server_count(TW_READ_SERVER_async_events) == 2);
	FAKE_LOCK;
	fake.address_gone = true;
	fake_port_event(IBV_EVENT_GID_CHANGE);
	FAKE_UNLOCK;
	UNTIL(server_count(TW_READ_SERVER_broken) == 2 && fake_live(FAKE_QP) == 0);
	cr_expect_eq(server_count(TW_READ_SERVER_address_lost), 1);
	FAKE_LOCK;
	fake.address_gone = false;
	FAKE_UNLOCK;
	/* of a queue that all share: everything anew */
	connect_one();
	cr_expect_eq(server_count(TW_READ_SERVER_device_lost), 0);
	cr_expect_eq(fake_queue_event(IBV_EVENT_SRQ_ERR, IBV_QPT_RC), 1);
	UNTIL(server_count(TW_READ_SERVER_device_lost) == 1);
	UNTIL(server_count(TW_READ_SERVER_device) == 1 && fake.made[FAKE_SRQ] == 2);
	connect_one();
	cr_expect_eq(fake_queue_event(IBV_EVENT_CQ_ERR, IBV_QPT_RC), 1);
	UNTIL(server_count(TW_READ_SERVER_device_lost) == 2);
	UNTIL(server_count(TW_READ_SERVER_device) == 1 && fake.made[FAKE_SRQ] == 3);
	connect_one();
	end();
}

/* --- clients that say nothing --------------------------------------------------------------------------- */

static atomic_uint answers[TW_LOGIN_RESULTS]; /* to logins */

static void note_answer(struct fake_qp *qp, const uint8_t *data, uint32_t bytes)
{
	static struct tw_rc_grant grants[TW_RC_CHANNELS_MAX];
	enum tw_rw_login result;
	uint32_t grant_count;
	(void)qp;
	if (tw_rc_parse_login_reply(data, bytes, ENV, &result, grants, &grant_count) ==
	    TW_RW_WELL_FORMED) {
		atomic_fetch_add(&answers[result], 1);
	}
}

/* Connects and asks to be let in; its queue pair at the server. */
static struct fake_qp *knock_as(uint8_t version_minor)
{
	struct tw_rw_login_head login;
	connect_as(version_minor);
	struct fake_qp *qp = fake_newest();
	tw_rw_put_login(&login, ENV, "one");
	fake_answer(qp, &login, sizeof(login));
	return qp;
}

static struct fake_qp *log_in_as(uint8_t version_minor, enum tw_rw_login result)
{
	const unsigned int before = atomic_load(&answers[result]);
	struct fake_qp *qp = knock_as(version_minor);
	UNTIL(atomic_load(&answers[result]) == before + 1);
	return qp;
}

static struct fake_qp *log_in_one(enum tw_rw_login result)
{
	return log_in_as(TW_RC_HELLO_MINOR, result);
}

static void lose(const struct fake_qp *qp)
{
	FAKE_LOCK;
	fake.gone = fake_number(qp);
	FAKE_UNLOCK;
}

static unsigned int posted(void)
{
	FAKE_LOCK;
	const unsigned int n = fake.posted;
	FAKE_UNLOCK;
	return n;
}

/* An idle client whose host has gone without a word, and one that is idle. */
Test(rc_device, server_takes_the_place_of_who_is_gone, .timeout = 240)
{
	begin();
	fake.on_send = note_answer;
	open_server();
	lose(log_in_one(TW_LOGIN_OK));
	(void)log_in_one(TW_LOGIN_OK);
	cr_expect_eq(fake.writes, 0, "nobody needs a place");
	(void)log_in_one(TW_LOGIN_FULL);
	UNTIL(server_count(TW_READ_SERVER_clients) == 1);
	cr_expect_eq(server_count(TW_READ_SERVER_broken), 1);
	cr_expect_eq(fake.writes, 1, "to the one that is there");
	(void)log_in_one(TW_LOGIN_OK);
	cr_expect_eq(server_count(TW_READ_SERVER_clients), 2);
	cr_expect_eq(server_count(TW_READ_SERVER_broken), 1);
	end();
}

/* Its queue pair would end by it. */
Test(rc_device, server_does_not_ask_who_knows_no_probes, .timeout = 240)
{
	begin();
	fake.on_send = note_answer;
	open_server();
	for (unsigned int i = 0; i < PLACES; i++) {
		(void)log_in_as(0, TW_LOGIN_OK);
	}
	(void)log_in_one(TW_LOGIN_FULL); /* answered behind the probes */
	cr_expect_eq(fake.writes, 0);
	cr_expect_eq(server_count(TW_READ_SERVER_broken), 0);
	cr_expect_eq(server_count(TW_READ_SERVER_clients), PLACES);
	end();
}

/* A probe has a slot of its own, there is one at a time, and it goes with its client. */
Test(rc_device, server_probes_stand_in_nobodys_way, .timeout = 240)
{
	const struct tw_read read = {
		.channel = 1, .by_seq = true, .session = 1, .begin = 1, .end = 2
	};
	struct tw_rw_read_head ask;
	begin();
	fake.on_send = note_answer;
	open_server();
	struct fake_qp *client = log_in_one(TW_LOGIN_OK);
	(void)log_in_one(TW_LOGIN_OK);
	set_stall(true);
	const unsigned int before = posted();
	(void)knock_as(TW_RC_HELLO_MINOR);
	UNTIL(posted() == before + PLACES + 1); /* probes, and the refusal */
	tw_rw_put_read(&ask, &read);
	fake_answer(client, &ask, sizeof(ask));
	UNTIL(posted() == before + PLACES + 2);
	(void)knock_as(TW_RC_HELLO_MINOR);
	UNTIL(posted() == before + PLACES + 3); /* its refusal */
	UNTIL(server_count(TW_READ_SERVER_refused_full) == 2);
	cr_expect_eq(server_count(TW_READ_SERVER_broken), 0);
	cr_expect_eq(server_count(TW_READ_SERVER_clients), PLACES);
	(void)fake_cm_event(RDMA_CM_EVENT_DISCONNECTED);
	UNTIL(fake_live(FAKE_QP) == 0);
	cr_expect_eq(server_count(TW_READ_SERVER_clients), 0);
	set_stall(false);
	(void)log_in_one(TW_LOGIN_OK);
	end();
}

Test(rc_device, server_whose_probe_is_not_taken, .timeout = 240)
{
	begin();
	fake.on_send = note_answer;
	open_server();
	for (unsigned int i = 0; i < PLACES; i++) {
		(void)log_in_one(TW_LOGIN_OK);
	}
	FAKE_LOCK;
	fake.send_cause = ENOMEM; /* of the first probe */
	FAKE_UNLOCK;
	(void)log_in_one(TW_LOGIN_FULL);
	UNTIL(server_count(TW_READ_SERVER_clients) == PLACES - 1);
	cr_expect_eq(server_count(TW_READ_SERVER_broken), 1);
	cr_expect_eq(fake.writes, 1);
	(void)log_in_one(TW_LOGIN_OK);
	end();
}
