/* The hot paths of publisher and subscriber, for valgrind to count instructions in: see run.py, which runs
 * this under callgrind and knows what counts.
 *
 * Regions   callgrind counts while region() runs, and writes down what it has when case_over() is called;
 *           the nth line of standard output says what the nth of these was.  What comes
 *           before a case goes through region(), too, and is "warm": it would be counted with the case.
 * Network   there is none (null_fabric.h): the channel posts to a sender that is done at once, what it
 *           sent is kept, and that is what the subscribers are given.  A handle is opened as ever and
 *           then has its receiver exchanged.
 * Clocks    stand still but for pass(): same source, same branches, same counts.
 * Threads   one; each handle's clock keeper is dismissed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bus.h"
#include "base/clock.h"
#include "publisher/channel.h"
#include "subscriber/sub_internal.h"
#include "tests/instructions/null_fabric.h"
#include "tests/support/temp_dir.h"
#include "wire/datagram.h"

#define MTU_BYTES     1024u
#define MSG_BYTES     48u
#define FULL_MSGS     ((MTU_BYTES - TW_WIRE_HDR_BYTES) / MSG_BYTES)
#define BATCH         TW_TX_BATCH
#define WARM_DGRAMS   (2 * BATCH)
#define CASE_DGRAMS   (8 * BATCH)
#define TAPE_DGRAMS   (WARM_DGRAMS + 3 * CASE_DGRAMS)
#define HISTORY_BYTES (256u * 1024u)
#define BUS_BYTES     (1u << 20)
#define EVENTS        256u
#define CHANNEL       1u
#define BARE_CHANNEL  2u /* a bus with nobody but us on it */
#define TURN_NS       1000u

static struct scene {
	struct temp_dir dir;
	struct null_tape tape;
	struct null_tx tx;
	struct tw_stats *stats;
	struct tw_bus_writer *bus, *bare_writer;
	struct tw_bus_reader *bare_reader;
	struct tw_pub_channel channel;
	struct tw_sub *sub;
	struct null_rx rx;
	struct tw_event events[EVENTS];
	struct tw_arb *arb;
	struct tw_dgram parsed[CASE_DGRAMS];
	uint32_t at;       /* into the tape: what the subscriber gets next */
	uint64_t messages; /* that came out */
} scene;

static uint64_t now_ns = 1000000000000u;

uint64_t __wrap_tw_mono_ns(void);
uint64_t __wrap_tw_wall_ns(void);

uint64_t __wrap_tw_mono_ns(void)
{
	return now_ns;
}

uint64_t __wrap_tw_wall_ns(void)
{
	return now_ns;
}

static void pass(void)
{
	now_ns += TURN_NS;
}

static _Noreturn void die(const char *what, const struct tw_error *err)
{
	fprintf(stderr, "count: %s%s%s\n", what, err != NULL ? ": " : "",
		err != NULL ? err->text : "");
	exit(1);
}

static void must(bool holds, const char *what)
{
	if (!holds) {
		die(what, NULL);
	}
}

/* Not static: callgrind knows them by name. */
void region(void (*work)(void));
void case_over(void);

__attribute__((noinline)) void region(void (*work)(void))
{
	work();
	__asm__ volatile("" ::: "memory"); /* no tail call: callgrind sees us return */
}

__attribute__((noinline)) void case_over(void)
{
	__asm__ volatile("" ::: "memory");
}

/* `per` is what the figure is divided by. */
static void report(const char *name, const char *per, uint32_t units, uint32_t messages)
{
	printf("case %s %s %u %u\n", name, per, units, messages);
	case_over();
}

static void warm(void)
{
	report("warm", "turn", 1, 0);
}

/* --- bus ---------------------------------------------------------------------------------------- */

static struct tw_msg_order_delete message;

static void message_make(void)
{
	_Static_assert(sizeof(message) == MSG_BYTES, "20 of them fill a datagram");
	tw_msg_init(&message, TW_MSG_ORDER_DELETE);
	message.head.venue_id = 1;
	message.head.exchange_ns = now_ns;
	message.head.recv_delta_ns = TURN_NS;
}

static void append(struct tw_bus_writer *writer, uint32_t messages)
{
	for (uint32_t i = 0; i < messages; i++) {
		must(tw_bus_append(writer, &message, MSG_BYTES, true), "the bus has no room");
	}
	tw_bus_flush(writer);
}

static void append_bare(void)
{
	append(scene.bare_writer, FULL_MSGS);
}

static void read_bare(void)
{
	static _Alignas(64) uint8_t out[MTU_BYTES];
	struct tw_bus_batch batch;
	int n = tw_bus_read(scene.bare_reader, out, MTU_BYTES - TW_WIRE_HDR_BYTES, &batch);

	must(n == (int)FULL_MSGS, "the bus gives what was appended");
	tw_bus_release(scene.bare_reader);
}

static struct tw_bus_writer *open_bus(uint16_t channel)
{
	struct tw_bus_writer *writer;
	struct tw_error err;
	struct tw_bus_conf conf = { .run_dir = scene.dir.path,
				    .channel = channel,
				    .size_bytes = BUS_BYTES,
				    .wall_ns = now_ns };

	if (tw_bus_create(&writer, &conf, 0, &err) < 0) {
		die("bus", &err);
	}
	return writer;
}

static void bus_cases(void)
{
	struct tw_error err;

	scene.bare_writer = open_bus(BARE_CHANNEL);
	if (tw_bus_open(&scene.bare_reader, scene.dir.path, BARE_CHANNEL, true, &err) < 0) {
		die("bus", &err);
	}
	/* twice over the whole ring, so that it has gone round when it counts */
	for (uint32_t i = 0; i < 2 * BUS_BYTES / (FULL_MSGS * MSG_BYTES); i++) {
		append_bare();
		read_bare();
	}
	warm();
	for (uint32_t i = 0; i < CASE_DGRAMS; i++) {
		region(append_bare);
		read_bare();
	}
	report("bus_append", "datagram", CASE_DGRAMS, CASE_DGRAMS * FULL_MSGS);
	for (uint32_t i = 0; i < CASE_DGRAMS; i++) {
		append_bare();
		region(read_bare);
	}
	report("bus_read", "datagram", CASE_DGRAMS, CASE_DGRAMS * FULL_MSGS);
	tw_bus_reader_close(scene.bare_reader);
	tw_bus_writer_close(scene.bare_writer);
}

/* --- publisher ---------------------------------------------------------------------------------- */

static void publish_turn(void)
{
	(void)tw_pub_channel_turn(&scene.channel, now_ns);
}

/* `turns` turns, each with so many datagrams of so many messages waiting on the bus. */
static void publish(uint32_t turns, uint32_t dgrams, uint32_t messages)
{
	for (uint32_t i = 0; i < turns; i++) {
		uint64_t posted = scene.tx.posted;
		append(scene.bus, dgrams * messages);
		pass();
		region(publish_turn);
		must(scene.tx.posted - posted == dgrams, "a turn posts what is on the bus");
	}
}

static void open_publisher(void)
{
	struct tw_error err;
	struct tw_pub_channel_conf conf = { .run_dir = scene.dir.path,
					    .channel = CHANNEL,
					    .environment = scene.sub->plan.site->environment_id,
					    .publisher_base = 1u << 16,
					    .mtu_bytes = MTU_BYTES,
					    .heartbeat_min_ns = 1000000,
					    .heartbeat_max_ns = 10000000 };

	if (tw_pub_channel_init(&scene.channel, &conf, HISTORY_BYTES, &err) < 0 ||
	    tw_stats_create(&scene.stats, NULL, "count", "test", &err) < 0 ||
	    tw_stats_add(scene.stats, TW_SET_pub_channel, "channel 1", &scene.channel.counters,
			 &err) < 0 ||
	    tw_stats_seal(scene.stats, &err) < 0) {
		die("publisher", &err);
	}
	null_tx_init(&scene.tx, &scene.tape, BATCH);
	scene.channel.tx = &scene.tx.tx;
}

/* Leaves on the tape: WARM and CASE of full datagrams, CASE of them in batches, CASE of one message. */
static void publisher_cases(void)
{
	if (null_tape_open(&scene.tape, TAPE_DGRAMS, MTU_BYTES) < 0) {
		die("out of memory", NULL);
	}
	scene.bus = open_bus(CHANNEL);
	open_publisher();
	publish_turn(); /* finds the bus */
	publish(WARM_DGRAMS, 1, FULL_MSGS);
	warm();
	publish(CASE_DGRAMS, 1, FULL_MSGS);
	report("publish_full", "datagram", CASE_DGRAMS, CASE_DGRAMS * FULL_MSGS);
	publish(CASE_DGRAMS / BATCH, BATCH, FULL_MSGS);
	report("publish_batch", "datagram", CASE_DGRAMS, CASE_DGRAMS * FULL_MSGS);
	publish(CASE_DGRAMS, 1, 1);
	report("publish_single", "datagram", CASE_DGRAMS, CASE_DGRAMS);
	for (uint32_t i = 0; i < CASE_DGRAMS; i++) {
		region(publish_turn);
	}
	report("publish_nothing", "turn", CASE_DGRAMS, 0);
	must(scene.tape.count == TAPE_DGRAMS, "everything is on the tape, and no heartbeat");
	tw_pub_channel_fini(&scene.channel);
	tw_bus_writer_close(scene.bus);
	tw_stats_close(scene.stats, true);
}

/* --- subscriber --------------------------------------------------------------------------------- */

static void open_subscriber(uint32_t lines)
{
	char path[160];
	struct tw_sub_conf conf;
	struct tw_error err;

	snprintf(path, sizeof(path), "%s/site.yaml", scene.dir.path);
	FILE *f = fopen(path, "we");
	must(f != NULL, "a site file");
	fprintf(f,
		"site: count\nenvironment: test\nrun_dir: %s\nidle: spin\n"
		"fabric: { transport: udp, mtu_bytes: %u }\n"
		"hosts:\n  here: { address: 127.0.0.1, lines: { a: lo, b: lo } }\n"
		"venues:\n  - { id: 1, mic: XTST }\n"
		"channels:\n  - { id: 1, name: one, depth: orders, groups: { a: 239.193.0.1%s } }\n"
		"publishers:\n  - { name: pub, host: here, channels: [1] }\n",
		scene.dir.path, MTU_BYTES, lines == 2 ? ", b: 239.193.0.2" : "");
	must(fclose(f) == 0, "a site file");
	tw_sub_conf_init(&conf);
	conf.site_path = path;
	conf.as = "here";
	conf.name = "count";
	if (tw_sub_open(&scene.sub, &conf, &err) < 0) {
		die("subscriber", &err);
	}
	tw_sub_clock_leave(&scene.sub->clock);
	scene.sub->clock_joined = false;
	tw_rx_close(scene.sub->rx);
	null_rx_init(&scene.rx, lines);
	scene.sub->rx = &scene.rx.rx;
	scene.at = 0;
	scene.messages = 0;
}

static void close_subscriber(void)
{
	tw_sub_close(scene.sub); /* the null receiver's close does nothing */
	scene.sub = NULL;
}

static bool queued(void)
{
	return scene.rx.queues[0].left != 0 || scene.rx.queues[1].left != 0 ||
	       scene.sub->batch_line != NULL || scene.sub->pulling != NULL;
}

static int poll_once(void)
{
	int n = tw_sub_poll(scene.sub, scene.events, EVENTS);

	must(n >= 0, "poll");
	return n;
}

/* Until everything that came in has come out or was dropped. */
static void poll_all(void)
{
	do {
		int n = poll_once();
		for (int i = 0; i < n; i++) {
			scene.messages += scene.events[i].type == TW_EV_MSG;
		}
	} while (queued());
}

static void poll_nothing(void)
{
	must(poll_once() == 0, "nothing comes from nothing");
}

/* The tape's next datagrams, `batch` at a time on every line. */
static void subscribe(uint32_t dgrams, uint32_t batch, uint32_t messages)
{
	uint64_t before = scene.messages;

	for (uint32_t i = 0; i < dgrams; i += batch) {
		pass();
		for (uint32_t l = 0; l < scene.rx.rx.endpoints; l++) {
			scene.rx.queues[l] =
				(struct null_queue){ &scene.tape.dgrams[scene.at], batch };
		}
		for (uint32_t b = 0; b < batch; b++) {
			scene.tape.dgrams[scene.at++].recv_ns = now_ns;
		}
		region(poll_all);
	}
	must(scene.messages - before == (uint64_t)dgrams * messages, "each message comes once");
}

static void subscriber_cases(uint32_t lines, const char *const names[4])
{
	const uint32_t dgrams = lines * CASE_DGRAMS;

	subscribe(WARM_DGRAMS, 1, FULL_MSGS);
	warm();
	subscribe(CASE_DGRAMS, 1, FULL_MSGS);
	report(names[0], "datagram", dgrams, CASE_DGRAMS * FULL_MSGS);
	subscribe(CASE_DGRAMS, TW_RX_BATCH, FULL_MSGS);
	report(names[1], "datagram", dgrams, CASE_DGRAMS * FULL_MSGS);
	subscribe(CASE_DGRAMS, 1, 1);
	report(names[2], "datagram", dgrams, CASE_DGRAMS);
	for (uint32_t i = 0; i < CASE_DGRAMS; i++) {
		region(poll_nothing);
	}
	report(names[3], "turn", CASE_DGRAMS, 0);
}

/* --- parser and arbiter alone ------------------------------------------------------------------- */

static void parse_all(void)
{
	for (uint32_t i = 0; i < CASE_DGRAMS; i++) {
		const struct tw_rx_dgram *rx = &scene.tape.dgrams[i];
		must(tw_dgram_parse(&scene.parsed[i], rx->data, rx->len_bytes) == TW_DGRAM_OK,
		     "parse");
	}
}

static void arbitrate(uint32_t line, uint32_t index)
{
	struct tw_arb_run run;

	(void)tw_arb_input(scene.arb, line, &scene.parsed[index], now_ns, now_ns);
	while (tw_arb_next(scene.arb, &run)) {
		scene.messages += run.type == TW_RUN_DATA ? run.count : 0;
	}
}

static void arb_begin(void)
{
	for (uint32_t i = 0; i < WARM_DGRAMS; i++) {
		arbitrate(0, i);
		arbitrate(1, i);
	}
}

static void arb_in_order(void)
{
	for (uint32_t i = WARM_DGRAMS; i < WARM_DGRAMS + BATCH; i++) {
		arbitrate(0, i);
	}
}

static void arb_duplicates(void)
{
	for (uint32_t i = WARM_DGRAMS; i < WARM_DGRAMS + BATCH; i++) {
		arbitrate(1, i);
	}
}

static void arb_swapped(void)
{
	for (uint32_t i = WARM_DGRAMS + BATCH; i < WARM_DGRAMS + 2 * BATCH; i += 2) {
		arbitrate(0, i + 1);
		arbitrate(0, i);
	}
}

static void arb_cases(uint16_t environment)
{
	struct tw_arb_conf conf = { .channel = CHANNEL,
				    .environment = environment,
				    .lines = 2,
				    .wait_ns = 1000000000,
				    .heartbeat_max_ns = 1000000000,
				    .store_dgrams = 64,
				    .mtu_bytes = MTU_BYTES };
	size_t bytes = (tw_arb_size(&conf) + 63) / 64 * 64;
	void *memory = aligned_alloc(64, bytes);

	must(memory != NULL && tw_arb_init(&scene.arb, memory, bytes, &conf, now_ns) == TW_OK,
	     "arbiter");
	region(parse_all);
	report("parse", "datagram", CASE_DGRAMS, CASE_DGRAMS * FULL_MSGS);
	scene.messages = 0;
	region(arb_begin);
	warm();
	region(arb_in_order);
	report("arb_in_order", "datagram", BATCH, BATCH * FULL_MSGS);
	region(arb_duplicates);
	report("arb_duplicates", "datagram", BATCH, 0);
	region(arb_swapped);
	report("arb_swapped", "datagram", BATCH, BATCH * FULL_MSGS);
	must(scene.messages == (uint64_t)(WARM_DGRAMS + 2 * BATCH) * FULL_MSGS,
	     "the arbiter gives each message once");
	free(memory);
}

int main(void)
{
	static const char *const one[] = { "poll_full", "poll_batch", "poll_single",
					   "poll_nothing" };
	static const char *const two[] = { "poll2_full", "poll2_batch", "poll2_single",
					   "poll2_nothing" };

	must(temp_dir_make(&scene.dir), "a directory");
	message_make();
	open_subscriber(1);
	uint16_t environment = scene.sub->plan.site->environment_id;
	bus_cases();
	publisher_cases();
	subscriber_cases(1, one);
	close_subscriber();
	open_subscriber(2);
	subscriber_cases(2, two);
	close_subscriber();
	arb_cases(environment);
	null_tape_close(&scene.tape);
	temp_dir_remove(&scene.dir);
	return 0;
}
