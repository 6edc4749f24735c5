/* The day in memory: blocks read from a BinaryFILE, or from one that the generator has just made.
 *
 * Spec   [Nasdaq TotalView-ITCH 5.0]: bytes 5 to 10 of every message are its time, in nanoseconds since
 *        midnight.  What is too short for one is as old as the message ahead of it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "base/fail.h"
#include "exch.h"

#define GEN_START_NS     1767623340000000000ull /* 2026-01-05T14:29:00Z: a Monday, 09:29 in New York */
#define DEFAULT_MESSAGES 100000u
#define DEFAULT_RATE     10000u
#define NS_PER_S         1000000000u
#define DAY_NS           (86400ull * NS_PER_S)
#define WINDOW_NS        20000u /* what is due so close together leaves in one packet */
#define READ_BYTES       (1u << 20)
#define LENGTH_BYTES     2u
#define TIME_AT          5u
#define TIME_BYTES       6u

static uint16_t load16be(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static uint64_t load_time(const uint8_t *at)
{
	uint64_t v = 0;

	for (unsigned int i = 0; i < TIME_BYTES; i++) {
		v = v << 8 | at[i];
	}
	return v;
}

static void store_be(uint8_t *at, uint64_t v, unsigned int bytes)
{
	for (unsigned int i = bytes; i > 0; i--, v >>= 8) {
		at[i - 1] = (uint8_t)v;
	}
}

/* Room for `more` elements behind `used` ones. */
static int reserve(void **array, uint64_t *capacity, uint64_t used, uint64_t more, size_t size)
{
	if (*capacity - used >= more) {
		return TW_OK;
	}
	uint64_t wanted = *capacity * 2 > used + more ? *capacity * 2 : used + more;
	void *grown = reallocarray(*array, wanted, size);
	if (grown == NULL) {
		return TW_ENOMEM;
	}
	*array = grown;
	*capacity = wanted;
	return TW_OK;
}

static int add_message(struct exch_day *day, uint64_t at)
{
	void *array = day->messages;
	int status = reserve(&array, &day->capacity, day->count, 1, sizeof(*day->messages));

	if (status == TW_OK) {
		day->messages = array;
		day->messages[day->count++] = (struct exch_message){ .at = at };
	}
	return status;
}

/* Takes the complete blocks from *at on.  1: the file says that it ends here, or there are enough. */
static int take_blocks(struct exch_day *day, uint64_t *at, uint64_t max, const char *name,
		       struct tw_error *err)
{
	while (day->len_bytes - *at >= LENGTH_BYTES) {
		uint16_t len = load16be(day->bytes + *at);
		if (len == 0) {
			return 1;
		}
		if (len > EXCH_MAX_MESSAGE_BYTES) {
			return tw_fail(
				err, TW_EFORMAT,
				"%s: byte %llu: a message of %u bytes; a packet has room for %u",
				name, (unsigned long long)*at, len, EXCH_MAX_MESSAGE_BYTES);
		}
		if (day->len_bytes - *at < LENGTH_BYTES + len) {
			break;
		}
		if (add_message(day, *at) != TW_OK) {
			return tw_fail(err, TW_ENOMEM, "%s: realloc: out of memory", name);
		}
		*at += LENGTH_BYTES + len;
		if (max != 0 && day->count == max) {
			return 1;
		}
	}
	return TW_OK;
}

static int read_some(struct exch_day *day, gzFile file, const char *name, struct tw_error *err)
{
	void *array = day->bytes;
	int code = Z_OK;

	if (reserve(&array, &day->capacity_bytes, day->len_bytes, READ_BYTES, 1) != TW_OK) {
		return tw_fail(err, TW_ENOMEM, "%s: realloc: out of memory", name);
	}
	day->bytes = array;
	int n = gzread(file, day->bytes + day->len_bytes, READ_BYTES);
	if (n < 0 || (n < (int)READ_BYTES && gzerror(file, &code) != NULL && code != Z_OK)) {
		const char *why = gzerror(file, &code);
		return code == Z_ERRNO ? tw_fail_sys(err, TW_ESYS, "%s: read", name)
				       : tw_fail(err, TW_EFORMAT, "%s: read: %s", name, why);
	}
	day->len_bytes += (uint64_t)n;
	return n;
}

/* Takes over `fd`. */
static int read_day(struct exch_day *day, int fd, uint64_t max, const char *name,
		    struct tw_error *err)
{
	gzFile file = gzdopen(fd, "r");
	uint64_t at = 0;
	int status = TW_OK;

	if (file == NULL) {
		(void)close(fd);
		return tw_fail(err, TW_ENOMEM, "%s: gzdopen: out of memory", name);
	}
	while (status == TW_OK) {
		int n = read_some(day, file, name, err);
		status = n < 0 ? n : take_blocks(day, &at, max, name, err);
		if (n == 0 && status == TW_OK && at != day->len_bytes) {
			status = tw_fail(err, TW_EFORMAT, "%s: byte %llu: ends within a message",
					 name, (unsigned long long)at);
		}
		if (n == 0) {
			break;
		}
	}
	(void)gzclose_r(file);
	if (status >= TW_OK && day->count == 0) {
		return tw_fail(err, TW_EFORMAT, "%s: no messages", name);
	}
	return status < TW_OK ? status : TW_OK;
}

static int make_day(struct exch_day *day, const struct exch_day_conf *conf, struct tw_error *err)
{
	char path[64];
	struct tw_gen_summary summary;
	struct tw_gen_conf gen = {
		.protocol = "itch50",
		.framing = "binaryfile",
		.seed = conf->seed,
		.messages = conf->max_messages != 0 ? conf->max_messages : DEFAULT_MESSAGES,
		.rate = conf->rate != 0 ? conf->rate : DEFAULT_RATE,
		.symbols = conf->symbols,
		.start_ns = GEN_START_NS,
		.output = path,
	};
	int fd = memfd_create("tw-exchange", MFD_CLOEXEC);

	if (fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "day: memfd_create");
	}
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int status = tw_gen_run(&gen, &summary, err);
	if (status != TW_OK) {
		(void)close(fd);
		return status;
	}
	return read_day(day, fd, 0, "day", err);
}

static void schedule(struct exch_day *day, const struct exch_day_conf *conf)
{
	uint64_t first_ns = UINT64_MAX;
	uint64_t now_ns = 0;

	for (uint64_t i = 0; i < day->count; i++) {
		struct exch_message *m = &day->messages[i];
		const uint8_t *block = day->bytes + m->at;
		if (conf->speed_pct == 0) {
			m->due_ns = conf->rate == 0
					    ? 0
					    : i / conf->rate * NS_PER_S +
						      i % conf->rate * NS_PER_S / conf->rate;
			continue;
		}
		if (load16be(block) >= TIME_AT + TIME_BYTES) {
			uint64_t time_ns = load_time(block + LENGTH_BYTES + TIME_AT);
			first_ns = first_ns == UINT64_MAX ? time_ns : first_ns;
			now_ns = time_ns > first_ns && time_ns - first_ns > now_ns
					 ? time_ns - first_ns
					 : now_ns;
		}
		m->due_ns = now_ns * 100 / conf->speed_pct;
	}
}

int exch_day_init(struct exch_day *day, const struct exch_day_conf *conf, struct tw_error *err)
{
	int status = TW_OK;

	if (conf->input == NULL) {
		status = make_day(day, conf, err);
	} else {
		int fd = open(conf->input, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			return tw_fail_sys(err, TW_ESYS, "%s: open", conf->input);
		}
		status = read_day(day, fd, conf->max_messages, conf->input, err);
	}
	if (status == TW_OK) {
		schedule(day, conf);
	}
	return status;
}

void exch_day_fini(struct exch_day *day)
{
	free(day->messages);
	free(day->bytes);
	*day = (struct exch_day){ 0 };
}

void exch_day_restamp(struct exch_day *day, uint64_t begin_ns)
{
	for (uint64_t i = 0; i < day->count; i++) {
		uint8_t *block = day->bytes + day->messages[i].at;
		if (load16be(block) >= TIME_AT + TIME_BYTES) {
			store_be(block + LENGTH_BYTES + TIME_AT,
				 (begin_ns + day->messages[i].due_ns) % DAY_NS, TIME_BYTES);
		}
	}
}

static uint64_t block_end(const struct exch_day *day, uint64_t i)
{
	uint64_t at = day->messages[i].at;

	return at + LENGTH_BYTES + load16be(day->bytes + at);
}

/* How many of at most `count` messages fit. */
static uint16_t fitting(const struct exch_day *day, uint64_t first, uint64_t count)
{
	uint64_t begin = day->messages[first].at;
	uint16_t n = 0;

	while (n < count && n < EXCH_MAX_COUNT &&
	       block_end(day, first + n) - begin <= EXCH_PACKET_BYTES - EXCH_HEADER_BYTES) {
		n++;
	}
	return n;
}

uint16_t exch_day_packet(const struct exch_day *day, uint64_t first)
{
	uint16_t fit = fitting(day, first, day->count - first);
	uint16_t n = 1;

	while (n < fit &&
	       day->messages[first + n].due_ns - day->messages[first].due_ns <= WINDOW_NS) {
		n++;
	}
	return n;
}

void exch_header_make(const char *session, uint64_t seq, uint16_t count,
		      uint8_t packet[static EXCH_HEADER_BYTES])
{
	memcpy(packet, session, EXCH_SESSION_BYTES);
	store_be(packet + EXCH_SESSION_BYTES, seq, 8);
	store_be(packet + EXCH_SESSION_BYTES + 8, count, 2);
}

uint16_t exch_packet_make(const struct exch_day *day, const char *session, uint64_t first,
			  uint16_t count, uint8_t packet[static EXCH_PACKET_BYTES], uint16_t *taken)
{
	*taken = fitting(day, first, count);
	uint64_t begin = day->messages[first].at;
	uint64_t bytes = block_end(day, first + *taken - 1) - begin;

	exch_header_make(session, first + 1, *taken, packet);
	memcpy(packet + EXCH_HEADER_BYTES, day->bytes + begin, bytes);
	return (uint16_t)(EXCH_HEADER_BYTES + bytes);
}
