/* The library's descriptor for an event loop, over verbs: a subscriber that sleeps on nothing else, and a
 * publisher in another thread that sends one datagram at a time, when the one before it has been delivered.
 *
 *   sub_events ADDRESS_A INTERFACE_A ADDRESS_B INTERFACE_B ROUNDS
 *
 * Quiet     rounds: the publisher sends when the subscriber has armed, and has seen that it is not woken.
 * Race      rounds: it sends some time after the last delivery: before the poll that finds nothing, between
 *           that and the arming, in it, or behind it.
 * Judging   the handle has a timer of its own, TIMER_NS after each arming.  A wake before that is the
 *           datagram's doing.  A later one was lost, unless it is this machine that stood still: then the
 *           publisher, which looks once a millisecond whether it has been delivered, has not looked often.
 * Prints    `rounds N quiet N woken N late N lost N`; ends with 1 where one was lost. */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "tests/support/bus_msgs.h"
#include "tests/support/pub_bed.h"

#define SESSION      7
#define HEARTBEAT_MS 10000u /* the longest there is */
#define TIMER_NS     (HEARTBEAT_MS * 1000000ull)
#define LOOKS_LOST   1000u
#define LIMIT_MS     120000
#define DELAY_NS     400000u /* of a race: longer than a turn of the subscriber takes */

static struct pub_bed bed;
static uint32_t rounds;
static _Atomic uint32_t go, delivered; /* numbers of rounds: from 1 */
static _Atomic bool stop;
static _Atomic uint32_t looks[1u << 16]; /* by round: the publisher's, until it was delivered */

static void die(const char *what)
{
	printf("sub_events: %s in round %u\n", what, atomic_load(&delivered) + 1);
	exit(1);
}

static bool is_quiet(uint32_t round)
{
	return round % 4 == 0;
}

static void *publisher(void *arg)
{
	(void)arg;
	for (uint32_t round = 1; round <= rounds; round++) {
		while (atomic_load(&go) < round) {
			if (atomic_load(&stop)) {
				return NULL;
			}
			(void)sched_yield();
		}
		const uint64_t until_ns =
			tw_mono_ns() + (is_quiet(round) ? 0 : test_mix(round) % DELAY_NS);
		while (tw_mono_ns() < until_ns) {
		}
		pub_bed_orders(&bed, SESSION, round, 1, PUB_BED_A);
		while (atomic_load(&delivered) < round && !atomic_load(&stop)) {
			atomic_fetch_add(&looks[round], 1);
			(void)usleep(1000);
		}
	}
	return NULL;
}

/* Polls down to nothing; returns how many messages came. */
static uint32_t drain(struct tw_sub *sub)
{
	struct tw_event events[8];
	uint32_t messages = 0;
	int n;
	while ((n = tw_sub_poll(sub, events, 8)) > 0) {
		for (int i = 0; i < n; i++) {
			if (events[i].type != TW_EV_MSG) {
				continue;
			}
			messages++;
			if (!pub_dgram_is_order(&events[i])) {
				die("another message");
			}
			atomic_store(&delivered, (uint32_t)events[i].seq);
		}
	}
	if (n < 0) {
		die(tw_strstatus(n));
	}
	return messages;
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd at = { .fd = fd, .events = POLLIN };
	return poll(&at, 1, timeout_ms) == 1;
}

/* Until it sleeps: armed, and not woken.  Nothing is under way; what wakes it is a timer, or what heals.
 * Returns a time before the last arming. */
static uint64_t sleep_soundly(struct tw_sub *sub, int fd)
{
	const uint64_t until_ns = tw_mono_ns() + LIMIT_MS * 1000000ull;
	for (;;) {
		const uint64_t before_ns = tw_mono_ns();
		const int rc = tw_sub_arm(sub);
		if (rc == 0 && !readable(fd, 0)) {
			return before_ns;
		}
		if (rc < 0 || drain(sub) != 0 || before_ns > until_ns) {
			die("is woken again and again by nothing");
		}
	}
}

/* 0: it was woken by the datagram; 1: later. */
static int follow(struct tw_sub *sub, int fd, uint32_t round)
{
	int late = 0;
	if (is_quiet(round)) {
		const uint64_t armed_ns = sleep_soundly(sub, fd);
		atomic_store(&go, round);
		if (!readable(fd, LIMIT_MS)) {
			die("never woken");
		}
		late = tw_mono_ns() - armed_ns >= TIMER_NS;
	} else {
		atomic_store(&go, round);
	}
	while (drain(sub) == 0) {
		const uint64_t armed_ns = tw_mono_ns();
		const int rc = tw_sub_arm(sub);
		if (rc < 0) {
			die(tw_strstatus(rc));
		}
		if (rc == 0 && !readable(fd, LIMIT_MS)) {
			die("never woken");
		}
		late |= rc == 0 && tw_mono_ns() - armed_ns >= TIMER_NS;
	}
	return late;
}

static int run(struct tw_sub *sub)
{
	uint32_t quiet = 0, late = 0, lost = 0;
	pthread_t thread;
	const int fd = tw_sub_event_fd(sub);
	if (fd < 0 || pthread_create(&thread, NULL, publisher, NULL) != 0) {
		die("no descriptor, or no thread");
	}
	for (uint32_t round = 1; round <= rounds; round++) {
		const int was_late = follow(sub, fd, round);
		quiet += is_quiet(round);
		late += (uint32_t)was_late;
		lost += was_late && atomic_load(&looks[round]) >= LOOKS_LOST;
	}
	atomic_store(&stop, true);
	(void)pthread_join(thread, NULL);
	printf("rounds %u quiet %u woken %u late %u lost %u\n", rounds, quiet, rounds - late, late,
	       lost);
	return lost != 0;
}

int main(int argc, char **argv)
{
	struct tw_fabric_line lines[TW_FABRIC_MAX_LINES] = { 0 };
	struct in_addr a, b;
	struct tw_error err;
	struct tw_sub *sub;
	if (argc != 6 || inet_pton(AF_INET, argv[1], &a) != 1 ||
	    inet_pton(AF_INET, argv[3], &b) != 1) {
		fputs("usage: sub_events ADDRESS_A INTERFACE_A ADDRESS_B INTERFACE_B ROUNDS\n",
		      stderr);
		return 64;
	}
	lines[0].address = ntohl(a.s_addr);
	lines[1].address = ntohl(b.s_addr);
	(void)snprintf(lines[0].interface, sizeof(lines[0].interface), "%s", argv[2]);
	(void)snprintf(lines[1].interface, sizeof(lines[1].interface), "%s", argv[4]);
	rounds = (uint32_t)strtoul(argv[5], NULL, 10);
	if (rounds >= sizeof(looks) / sizeof(looks[0]) ||
	    !pub_bed_open(&bed, &(struct pub_bed_conf){ .channels = 1,
							.wait_us = 1000000,
							.heartbeat_ms = HEARTBEAT_MS,
							.verbs = lines })) {
		return 1;
	}
	if (pub_bed_subscribe(&bed, NULL, &sub, &err) != TW_OK) {
		fprintf(stderr, "sub_events: %s\n", err.text);
		return 1;
	}
	const int rc = run(sub);
	tw_sub_close(sub); /* hangs where an event of a completion queue was not acknowledged */
	pub_bed_close(&bed);
	return rc;
}
