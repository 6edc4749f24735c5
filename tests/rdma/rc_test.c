/* Repair over RC between a real server and a real reader, and clients that break every rule.
 *
 *   rc_test ADDRESS [SCENARIO ...]           all of them without a name
 *   rc_test ADDRESS serve PORT               until it is killed
 *   rc_test ADDRESS follow PORT              reads for ever; says `up`, `down`, `read N` as it goes
 *
 * Prints a line for each check that fails and `rc_test: N passed, N failed`. */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/rdma/rc_bed.h"
#include "tests/support/bus_msgs.h"

static unsigned int failed_checks;

#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			printf("%s:%d: %s\n", __func__, __LINE__, #condition); \
			failed_checks++;                                       \
		}                                                              \
	} while (0)

static uint64_t server_count(const struct rc_bed *bed, unsigned int counter)
{
	return tw_counter_get(&bed->server_counters, counter);
}

static uint64_t reader_count(const struct rc_bed *bed, unsigned int counter)
{
	return tw_counter_get(&bed->reader_counters, counter);
}

/* The oldest datagram that the log still has whole, with the next one claimed. */
static uint64_t oldest(const struct rc_channel *channel)
{
	uint64_t seq = channel->newest;
	while (seq > 1 && channel->places[(seq - 1) % RC_PLACES].packet_seq == seq - 1 &&
	       channel->places[(seq - 1) % RC_PLACES].log_pos + RC_UNITS >=
		       channel->history.intent) {
		seq--;
	}
	return seq;
}

/* Reads all that is there, in ranges of one to many datagrams; returns how many were wrong. */
static uint32_t read_all(struct tw_reader *reader, const struct rc_channel *channel,
			 uint32_t *reads)
{
	uint32_t wrong = 0;
	*reads = 0;
	for (uint64_t seq = oldest(channel); seq <= channel->newest;) {
		struct tw_read_done done;
		uint32_t n = 1 + (uint32_t)(test_mix(seq) % 50);
		n = n > channel->newest - seq + 1 ? (uint32_t)(channel->newest - seq + 1) : n;
		struct tw_read read = rc_range(channel, seq, n);
		read.id = seq;
		rc_read(reader, &read, &done);
		wrong += done.status != TW_READ_OK ||
			 done.len_bytes != (read.end - read.begin) * TW_WIRE_UNIT_BYTES ||
			 !rc_is_whole(channel, &read, done.data, done.len_bytes);
		tw_reader_release(reader, &done);
		*reads += 1;
		seq += n;
	}
	return wrong;
}

static enum tw_read_status status_of(struct tw_reader *reader, struct tw_read read)
{
	struct tw_read_done done;
	rc_read(reader, &read, &done);
	tw_reader_release(reader, &done);
	return done.status;
}

/* --- scenarios ------------------------------------------------------------------------------------- */

/* Everything by RDMA READ; the server's process does nothing but log it in. */
static void repair(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[0];
	uint32_t reads, more;
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(read_all(reader, channel, &reads) == 0);
	CHECK(read_all(reader, &bed->channels[1], &more) == 0);
	reads += more;
	CHECK(reader_count(bed, TW_READER_one_sided) == reads && reads > 4);
	/* a range that goes over the end of the log, and one that comes too early */
	uint64_t begin = (channel->history.head / RC_UNITS) * RC_UNITS - 40;
	struct tw_read over = { .channel = 1,
				.session = channel->session,
				.publisher = channel->publisher,
				.begin = begin,
				.end = begin + 100 };
	while (over.end > channel->history.head) {
		rc_write(channel, 1);
	}
	struct tw_read_done done;
	rc_read(reader, &over, &done);
	CHECK(done.status == TW_READ_OK && done.len_bytes == 100 * TW_WIRE_UNIT_BYTES);
	CHECK(memcmp(done.data, channel->history.log + begin % RC_UNITS * TW_WIRE_UNIT_BYTES,
		     40 * TW_WIRE_UNIT_BYTES) == 0);
	CHECK(memcmp(done.data + 40 * TW_WIRE_UNIT_BYTES, channel->history.log,
		     60 * TW_WIRE_UNIT_BYTES) == 0);
	tw_reader_release(reader, &done);
	struct tw_read early = over;
	early.begin = channel->history.head;
	early.end = early.begin + 16;
	CHECK(status_of(reader, early) == TW_READ_BUSY);
	rc_write(channel, 20);
	CHECK(status_of(reader, early) == TW_READ_OK);
	struct tw_read gone = rc_range(channel, oldest(channel), 1);
	rc_write(channel, 3);
	CHECK(status_of(reader, gone) == TW_READ_GONE);
	gone.session = 5;
	CHECK(status_of(reader, gone) == TW_READ_GONE);
	CHECK(server_count(bed, TW_READ_SERVER_reads) == 0);
	CHECK(server_count(bed, TW_READ_SERVER_bytes) == 0);
	/* by number, which the server has to look for; another set's channel is not ours */
	struct tw_read by_seq = { .channel = 1,
				  .by_seq = true,
				  .session = channel->session,
				  .begin = channel->next_seq - 50,
				  .end = channel->next_seq };
	rc_read(reader, &by_seq, &done);
	CHECK(done.status == TW_READ_OK &&
	      rc_is_whole(channel, &by_seq, done.data, done.len_bytes));
	tw_reader_release(reader, &done);
	CHECK(server_count(bed, TW_READ_SERVER_reads) == 1);
	by_seq.channel = 3;
	by_seq.session = bed->channels[2].session;
	CHECK(status_of(reader, by_seq) == TW_READ_REFUSED);
	CHECK(reader_count(bed, TW_READER_failures) == 0);
	tw_reader_close(reader);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_clients) == 0);
}

/* Many at once, of two kinds: they end in order. */
static void order(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[0];
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	uint64_t posted = 0, ended = 0, wrong = 0;
	while (ended < 400) {
		struct tw_read read = rc_range(channel, channel->newest - 60 + posted % 50, 3);
		read.id = posted;
		if (posted % 3 == 0) {
			read.by_seq = true;
			read.begin = channel->next_seq - 20;
			read.end = channel->next_seq;
		}
		if (posted < 400 && tw_reader_post(reader, &read)) {
			posted++;
			continue;
		}
		struct tw_read_done done;
		RC_UNTIL(tw_reader_poll(reader, &done));
		wrong += done.id != ended || done.status != TW_READ_OK;
		ended++;
		tw_reader_release(reader, &done);
	}
	CHECK(wrong == 0);
	tw_reader_close(reader);
}

/* `one_sided: false`: the same reads, served. */
static void served(struct rc_bed *bed)
{
	uint32_t reads;
	rc_serve(bed, rc_server_conf(bed), false);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(read_all(reader, &bed->channels[0], &reads) == 0);
	CHECK(server_count(bed, TW_READ_SERVER_reads) == reads);
	CHECK(server_count(bed, TW_READ_SERVER_bytes) > 0);
	CHECK(reader_count(bed, TW_READER_one_sided) == 0);
	tw_reader_close(reader);
}

static bool reads_well(struct tw_reader *reader, const struct rc_channel *channel)
{
	uint32_t reads;
	return read_all(reader, channel, &reads) == 0;
}

static uint32_t place_of(const struct rc_bed *bed, const char *name)
{
	for (uint32_t i = 0; i < RC_CLIENTS; i++) {
		struct tw_read_client_info info;
		tw_read_server_client(bed->server, i, &info);
		if (info.connected && strcmp(info.name, name) == 0) {
			return i;
		}
	}
	rc_die("client not found");
}

/* Nobody reads without a login, with another set's key, or after having been revoked; nobody writes. */
static void access_rules(struct rc_bed *bed)
{
	struct rc_raw owner, other, thief;
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(rc_raw_connect(&owner, bed, 1) && rc_raw_login(&owner, "owner") == TW_LOGIN_OK);
	CHECK(rc_raw_connect(&other, bed, 3) && rc_raw_login(&other, "other") == TW_LOGIN_OK);
	const struct tw_rc_grant *mine = rc_raw_grant(&owner, 1);
	const struct tw_rc_grant *theirs = rc_raw_grant(&other, 3);
	CHECK(mine != NULL && theirs != NULL && owner.grant_count == 2 && other.grant_count == 1);
	CHECK(rc_raw_rdma(&owner, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey, 4096) ==
	      IBV_WC_SUCCESS);
	CHECK(memcmp(owner.memory, bed->channels[0].history.log, 4096) == 0);
	CHECK(rc_raw_rdma(&other, IBV_WR_RDMA_READ, theirs->log_addr, theirs->rkey, 4096) ==
	      IBV_WC_SUCCESS);

	/* the right address and key, and no login */
	CHECK(rc_raw_connect(&thief, bed, 1));
	enum ibv_wc_status status =
		rc_raw_rdma(&thief, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey, 64);
	CHECK(status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ACCESS_ERR);
	static const uint8_t nothing[64];
	CHECK(memcmp(thief.memory, nothing, sizeof(nothing)) == 0);
	rc_raw_close(&thief);
	/* logged in, with the key of a set of other readers */
	CHECK(rc_raw_connect(&thief, bed, 1) && rc_raw_login(&thief, "thief") == TW_LOGIN_OK);
	CHECK(rc_raw_rdma(&thief, IBV_WR_RDMA_READ, theirs->log_addr, theirs->rkey, 64) ==
	      IBV_WC_REM_ACCESS_ERR);
	/* and what has failed stays failed */
	CHECK(rc_raw_rdma(&thief, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey, 64) !=
	      IBV_WC_SUCCESS);
	rc_raw_close(&thief);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_clients) == 3);
	/* a write, and bytes beyond what is registered */
	CHECK(rc_raw_connect(&thief, bed, 1) && rc_raw_login(&thief, "thief") == TW_LOGIN_OK);
	CHECK(rc_raw_rdma(&thief, IBV_WR_RDMA_WRITE, mine->log_addr, mine->rkey, 64) !=
	      IBV_WC_SUCCESS);
	rc_raw_close(&thief);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_clients) == 3);
	CHECK(rc_raw_connect(&thief, bed, 1) && rc_raw_login(&thief, "thief") == TW_LOGIN_OK);
	CHECK(rc_raw_rdma(&thief, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey,
			  (RC_UNITS + 1) * 64) != IBV_WC_SUCCESS);
	rc_raw_close(&thief);
	/* revoked: `owner` could read a moment ago */
	CHECK(rc_raw_rdma(&owner, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey, 64) ==
	      IBV_WC_SUCCESS);
	uint32_t place = place_of(bed, "owner");
	tw_read_server_revoke(bed->server, place);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_revoked) == 1);
	CHECK(rc_raw_rdma(&owner, IBV_WR_RDMA_READ, mine->log_addr, mine->rkey, 64) !=
	      IBV_WC_SUCCESS);
	CHECK(tw_counter_get(&bed->client_counters[place], TW_READ_CLIENT_revoked) == 1);
	rc_raw_close(&owner);
	/* nobody else has noticed anything */
	CHECK(rc_raw_rdma(&other, IBV_WR_RDMA_READ, theirs->log_addr, theirs->rkey, 4096) ==
	      IBV_WC_SUCCESS);
	CHECK(reads_well(reader, &bed->channels[0]) && reads_well(reader, &bed->channels[1]));
	CHECK(reader_count(bed, TW_READER_failures) == 0 &&
	      reader_count(bed, TW_READER_logins) == 1);
	rc_raw_close(&other);
	tw_reader_close(reader);
}

/* Whoever is not in the protocol is dropped, and nobody else. */
static void hostile(struct rc_bed *bed)
{
	static const uint8_t junk[200] = { 0x54, 0x57 };
	struct tw_rw_login_head login;
	struct tw_rw_read_head ask;
	struct rc_raw raw;
	struct ibv_wc wc;
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	/* a head of nothing; more than a head; a read before the login */
	static const uint32_t sizes[] = { 64, 200, 3 };
	uint64_t malformed = 0, broken = 0;
	for (unsigned int i = 0; i < 3; i++) {
		CHECK(rc_raw_connect(&raw, bed, 0));
		CHECK(rc_raw_send(&raw, junk, sizes[i]));
		malformed += sizes[i] <= 64;
		broken += sizes[i] > 64; /* the device itself says so */
		RC_UNTIL(server_count(bed, TW_READ_SERVER_malformed) == malformed &&
			 server_count(bed, TW_READ_SERVER_broken) == broken);
		rc_raw_close(&raw);
	}
	/* no such channel, no hello */
	CHECK(!rc_raw_connect(&raw, bed, 44));
	rc_raw_close(&raw);
	/* another environment is told so */
	CHECK(rc_raw_connect(&raw, bed, 0));
	tw_rw_put_login(&login, RC_ENV + 1, "elsewhere");
	CHECK(rc_raw_receive(&raw, 2) && rc_raw_send(&raw, &login, sizeof(login)));
	CHECK(rc_raw_wait(&raw, &wc) == IBV_WC_SUCCESS && rc_raw_wait(&raw, &wc) == IBV_WC_SUCCESS);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_refused_environment) == 1);
	rc_raw_close(&raw);
	/* asks and has no room for the answer: the server's send is refused until it gives up */
	CHECK(rc_raw_connect(&raw, bed, 0) && rc_raw_login(&raw, "deaf") == TW_LOGIN_OK);
	struct tw_read read = rc_range(&bed->channels[0], bed->channels[0].newest, 1);
	tw_rw_put_read(&ask, &read);
	CHECK(rc_raw_send(&raw, &ask, sizeof(ask)));
	RC_UNTIL(server_count(bed, TW_READ_SERVER_broken) == broken + 1);
	rc_raw_close(&raw);
	/* more requests than it has credits for; the first answer is not out yet */
	CHECK(rc_raw_connect(&raw, bed, 0) && rc_raw_login(&raw, "greedy") == TW_LOGIN_OK);
	for (unsigned int i = 0; i < TW_RC_CREDITS + 4; i++) {
		CHECK(rc_raw_send(&raw, &ask, sizeof(ask)));
	}
	RC_UNTIL(server_count(bed, TW_READ_SERVER_malformed) +
			 server_count(bed, TW_READ_SERVER_broken) >
		 malformed + broken + 1);
	rc_raw_close(&raw);
	/* too many: RC_CLIENTS places, and the reader has one */
	struct rc_raw others[RC_CLIENTS];
	RC_UNTIL(server_count(bed, TW_READ_SERVER_clients) == 1);
	for (unsigned int i = 0; i < RC_CLIENTS; i++) {
		CHECK(rc_raw_connect(&others[i], bed, 0));
		CHECK(rc_raw_login(&others[i], "one-of-many") ==
		      (i + 1 < RC_CLIENTS ? TW_LOGIN_OK : TW_LOGIN_FULL));
	}
	for (unsigned int i = 0; i < RC_CLIENTS; i++) {
		rc_raw_close(&others[i]);
	}
	CHECK(reads_well(reader, &bed->channels[0]));
	CHECK(reader_count(bed, TW_READER_failures) == 0);
	tw_reader_close(reader);
}

/* Idle clients, of which one is gone without a word: its place is free as soon as somebody needs one. */
static void gone(struct rc_bed *bed)
{
	struct rc_raw dead, newcomer, idle[RC_CLIENTS - 2];
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(rc_raw_connect(&dead, bed, 0) && rc_raw_login(&dead, "dead") == TW_LOGIN_OK);
	for (unsigned int i = 0; i < RC_CLIENTS - 2; i++) {
		CHECK(rc_raw_connect(&idle[i], bed, 0));
		CHECK(rc_raw_login(&idle[i], "idle") == TW_LOGIN_OK);
	}
	rc_raw_die(&dead);
	CHECK(rc_raw_connect(&newcomer, bed, 0));
	CHECK(rc_raw_login(&newcomer, "newcomer") == TW_LOGIN_FULL);
	rc_raw_close(&newcomer);
	RC_UNTIL(server_count(bed, TW_READ_SERVER_clients) == RC_CLIENTS - 1);
	CHECK(rc_raw_connect(&newcomer, bed, 0));
	CHECK(rc_raw_login(&newcomer, "newcomer") == TW_LOGIN_OK);
	/* the others' devices have answered, though none of their programs has */
	CHECK(server_count(bed, TW_READ_SERVER_broken) == 1);
	CHECK(server_count(bed, TW_READ_SERVER_clients) == RC_CLIENTS);
	CHECK(reads_well(reader, &bed->channels[0]));
	CHECK(reader_count(bed, TW_READER_failures) == 0);
	rc_raw_close(&dead);
	rc_raw_close(&newcomer);
	for (unsigned int i = 0; i < RC_CLIENTS - 2; i++) {
		rc_raw_close(&idle[i]);
	}
	tw_reader_close(reader);
}

static void drop_ends(struct tw_reader *reader)
{
	struct tw_read_done done;
	while (tw_reader_poll(reader, &done)) {
		tw_reader_release(reader, &done);
	}
}

/* Never leaves a pause. */
static bool is_revoked(struct rc_bed *bed, struct tw_reader *reader)
{
	const struct rc_channel *channel = &bed->channels[0];
	struct tw_read read = rc_range(channel, channel->newest - 80, 60);
	(void)tw_reader_post(reader, &read);
	drop_ends(reader);
	return server_count(bed, TW_READ_SERVER_revoked) != 0;
}

static bool has_noticed(struct rc_bed *bed, struct tw_reader *reader)
{
	drop_ends(reader);
	return reader_count(bed, TW_READER_failures) != 0;
}

/* Served reads faster than the rate: slowed, then sent away. */
static void pace(struct rc_bed *bed)
{
	struct tw_read_server_conf conf = rc_server_conf(bed);
	conf.client_max_bytes_per_s = 65536;
	conf.revoke_ns = 300 * RC_MS;
	rc_serve(bed, conf, false);
	struct tw_reader *reader = rc_reader(bed, "greedy");
	rc_wait_up(reader, true);
	RC_UNTIL(is_revoked(bed, reader));
	CHECK(server_count(bed, TW_READ_SERVER_paced) != 0);
	RC_UNTIL(has_noticed(bed, reader));
	tw_reader_close(reader);
}

/* A new life: everybody logs in anew, nothing of the old one can be had by its key. */
static void life(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[0];
	struct rc_raw raw, between;
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(rc_raw_connect(&between, bed, 1));
	CHECK(rc_raw_connect(&raw, bed, 1) && rc_raw_login(&raw, "old") == TW_LOGIN_OK);
	struct tw_rc_grant before = *rc_raw_grant(&raw, 1);
	struct tw_read old = rc_range(channel, channel->newest, 1);
	uint64_t registered = server_count(bed, TW_READ_SERVER_registered);
	CHECK(registered == RC_CHANNELS);
	rc_begin(channel, 90, 2);
	rc_raw_ask_login(&between, "between");
	RC_UNTIL(reader_count(bed, TW_READER_logins) == 2);
	rc_wait_up(reader, true);
	/* who was connected before, and asked for the old life's key after it, has not got it */
	CHECK(!rc_raw_is_answered(&between));
	rc_raw_close(&between);
	CHECK(server_count(bed, TW_READ_SERVER_registered) == registered + 1);
	CHECK(rc_raw_rdma(&raw, IBV_WR_RDMA_READ, before.log_addr, before.rkey, 64) !=
	      IBV_WC_SUCCESS);
	rc_raw_close(&raw);
	CHECK(status_of(reader, old) == TW_READ_GONE);
	CHECK(reads_well(reader, channel));
	/* the old key, by who may read the new life */
	CHECK(rc_raw_connect(&raw, bed, 1) && rc_raw_login(&raw, "new") == TW_LOGIN_OK);
	CHECK(rc_raw_grant(&raw, 1)->session == 90 && rc_raw_grant(&raw, 1)->rkey != before.rkey);
	CHECK(rc_raw_rdma(&raw, IBV_WR_RDMA_READ, before.log_addr, before.rkey, 64) !=
	      IBV_WC_SUCCESS);
	rc_raw_close(&raw);
	CHECK(reader_count(bed, TW_READER_hung_up) == 1);
	tw_reader_close(reader);
}

/* A key that was given out before there was anything: for the first life, without another login. */
static void first_life(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[1];
	struct tw_read read = rc_range(channel, channel->newest, 1);
	memset(channel->slab.base, 0, channel->slab.size_bytes);
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	rc_wait_up(reader, true);
	CHECK(status_of(reader, read) == TW_READ_BUSY);
	CHECK(reads_well(reader, &bed->channels[0]));
	rc_begin(channel, read.session, read.publisher);
	read.session++;
	CHECK(status_of(reader, read) == TW_READ_GONE);
	CHECK(reads_well(reader, channel));
	CHECK(reader_count(bed, TW_READER_logins) == 1);
	CHECK(server_count(bed, TW_READ_SERVER_registered) == RC_CHANNELS);
	/* so soon that the server may take it for the first: who has read the first finds out */
	rc_begin(channel, read.session, read.publisher);
	(void)status_of(reader, rc_range(channel, channel->newest, 1));
	RC_UNTIL(reader_count(bed, TW_READER_logins) == 2);
	rc_wait_up(reader, true);
	CHECK(reads_well(reader, channel));
	CHECK(server_count(bed, TW_READ_SERVER_reads) == 0);
	tw_reader_close(reader);
}

/* The service stops with reads under way: each of them ends; it comes back, and so does the reader. */
static void restart(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[0];
	rc_serve(bed, rc_server_conf(bed), true);
	struct tw_reader *reader = rc_reader(bed, "good");
	for (unsigned int round = 0; round < 5; round++) {
		struct tw_read_done done;
		uint64_t posted = 0, ended = 0;
		rc_wait_up(reader, true);
		while (posted < 12) {
			struct tw_read read = rc_range(channel, channel->newest - 70, 50);
			read.id = posted;
			posted += tw_reader_post(reader, &read);
		}
		tw_read_server_close(bed->server);
		bed->server = NULL;
		while (ended < posted) {
			RC_UNTIL(tw_reader_poll(reader, &done));
			CHECK(done.id == ended);
			CHECK(done.status == TW_READ_OK || done.status == TW_READ_BROKEN);
			CHECK(done.status != TW_READ_OK || done.len_bytes > 0);
			tw_reader_release(reader, &done);
			ended++;
		}
		rc_wait_up(reader, false);
		struct tw_read read = rc_range(channel, channel->newest, 1);
		CHECK(status_of(reader, read) == TW_READ_REFUSED);
		rc_serve(bed, rc_server_conf(bed), true);
		rc_wait_up(reader, true);
		CHECK(reads_well(reader, channel));
	}
	CHECK(reader_count(bed, TW_READER_logins) >= 6);
	tw_reader_close(reader);
}

static unsigned int count_fds(void)
{
	unsigned int n = 0;
	DIR *dir = opendir("/proc/self/fd");
	RC_MUST(dir != NULL);
	while (readdir(dir) != NULL) {
		n++;
	}
	(void)closedir(dir);
	return n;
}

/* Opened and closed again and again: nothing is left. */
static void cycles(struct rc_bed *bed)
{
	unsigned int before = 0;
	for (unsigned int i = 0; i < 200; i++) {
		rc_serve(bed, rc_server_conf(bed), true);
		struct tw_reader *reader = rc_reader(bed, "good");
		if (i % 4 == 0) {
			rc_wait_up(reader, true);
			struct tw_read read =
				rc_range(&bed->channels[0], bed->channels[0].newest, 1);
			CHECK(tw_reader_post(reader, &read)); /* and is never polled */
		}
		if (i % 2 == 0) {
			tw_reader_close(reader);
			tw_read_server_close(bed->server);
		} else {
			tw_read_server_close(bed->server);
			tw_reader_close(reader);
		}
		bed->server = NULL;
		if (i % 20 == 0) {
			printf("cycle %u\n", i);
			(void)fflush(stdout);
		}
		if (i == 20) { /* librdmacm keeps what it has opened once */
			before = count_fds();
		}
	}
	CHECK(count_fds() == before);
}

/* --- for the tests that kill one side ---------------------------------------------------------------- */

static void serve(struct rc_bed *bed)
{
	rc_serve(bed, rc_server_conf(bed), true);
	printf("serving\n");
	(void)fflush(stdout);
	for (;;) {
		struct timespec second = { .tv_sec = 1 };
		(void)nanosleep(&second, NULL);
	}
}

/* The other process has written the same. */
static void follow(struct rc_bed *bed)
{
	struct rc_channel *channel = &bed->channels[0];
	struct tw_reader *reader = rc_reader(bed, "follower");
	bool up = false;
	uint64_t posted = 0, ended = 0, well = 0;
	for (;;) {
		struct tw_read read = rc_range(channel, channel->newest - 60 + posted % 40, 10);
		struct tw_read_done done;
		bool now = tw_reader_up(reader) != 0;
		if (now != up) {
			printf("%s\n", now ? "up" : "down");
			(void)fflush(stdout);
			up = now;
		}
		read.id = posted;
		if (up && tw_reader_post(reader, &read)) {
			posted++;
		}
		if (!tw_reader_poll(reader, &done)) {
			rc_pause();
			continue;
		}
		RC_MUST(done.id == ended++);
		if (done.status == TW_READ_OK) {
			read = rc_range(channel, channel->newest - 60 + done.id % 40, 10);
			RC_MUST(rc_is_whole(channel, &read, done.data, done.len_bytes));
			well++;
			if (well % 100 == 0) {
				printf("read %llu\n", (unsigned long long)well);
				(void)fflush(stdout);
			}
		}
		tw_reader_release(reader, &done);
	}
}

static const struct scenario {
	const char *name;
	void (*run)(struct rc_bed *bed);
} scenarios[] = {
	{ "repair", repair },       { "order", order },           { "served", served },
	{ "access", access_rules }, { "hostile", hostile },       { "pace", pace },
	{ "gone", gone },           { "first_life", first_life }, { "life", life },
	{ "restart", restart },     { "cycles", cycles },
};

int main(int argc, char **argv)
{
	struct in_addr addr;
	unsigned int passed = 0, failed = 0;
	static struct rc_bed bed;
	if (argc < 2 || inet_pton(AF_INET, argv[1], &addr) != 1) {
		return 64;
	}
	if (argc == 4 && (strcmp(argv[2], "serve") == 0 || strcmp(argv[2], "follow") == 0)) {
		rc_bed_open(&bed, ntohl(addr.s_addr));
		bed.port = (uint16_t)strtoul(argv[3], NULL, 10);
		(strcmp(argv[2], "serve") == 0 ? serve : follow)(&bed);
	}
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		bool wanted = argc == 2;
		for (int a = 2; a < argc; a++) {
			wanted |= strcmp(argv[a], scenarios[i].name) == 0;
		}
		if (!wanted) {
			continue;
		}
		unsigned int before = failed_checks;
		printf("%s\n", scenarios[i].name);
		(void)fflush(stdout);
		rc_bed_open(&bed, ntohl(addr.s_addr));
		scenarios[i].run(&bed);
		rc_bed_close(&bed);
		passed += failed_checks == before;
		failed += failed_checks != before;
	}
	printf("rc_test: %u passed, %u failed\n", passed, failed);
	return failed == 0 && passed != 0 ? 0 : 1;
}
