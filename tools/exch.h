/* A made-up exchange on the wire: the parts of tw-exchange.
 *
 *   exch_day.c        the day's messages in memory, and when each of them is due
 *   exch_line.c       packets on a multicast line, and the faults done to them
 *   exch_rerequest.c  the re-request server: what is asked, by whom, how often
 *   exch_options.c    the command line
 *   tw_exchange.c     plays the day
 *
 * Units    messages are counted from 0 in the day and from 1 (`_seq`) on the wire; times ns.
 * Threads  one.
 * Spec     [MoldUDP64 Protocol Specification 1.00]: a packet is a header of 20 bytes (session, sequence
 *          number of the first message, count) and message blocks of a 2-byte length and the message;
 *          a request packet is such a header alone, and the reply to it a packet unicast to where it
 *          came from.  All numbers big-endian. */
#ifndef TW_TOOLS_EXCH_H
#define TW_TOOLS_EXCH_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gen.h"
#include "tidewire/error.h"

#define EXCH_SESSION_BYTES     10u
#define EXCH_HEADER_BYTES      20u
#define EXCH_PACKET_BYTES      GEN_SEGMENT_BYTES
#define EXCH_MAX_MESSAGE_BYTES (EXCH_PACKET_BYTES - EXCH_HEADER_BYTES - 2u)
#define EXCH_MAX_COUNT         0xfffeu
#define EXCH_END_OF_SESSION    0xffffu
#define EXCH_LINES             2u
#define EXCH_MAX_SPEED_PCT     1000000u

/* ---- exch_day.c ---- */

struct exch_message {
	uint64_t at;     /* of its block in exch_day.bytes: length and message */
	uint64_t due_ns; /* after the day's begin; never before the one ahead of it */
};

struct exch_day {
	uint8_t *bytes; /* blocks as they stand in packets and in a BinaryFILE */
	uint64_t len_bytes, capacity_bytes;
	struct exch_message *messages;
	uint64_t count, capacity;
};

struct exch_day_conf {
	const char *input; /* BinaryFILE, plain or gzip; NULL: made by the generator */
	uint64_t seed;     /* of the generator, as are: */
	uint32_t symbols;  /* */
	uint64_t
		max_messages; /* exactly so many, or at most so many of the input; 0: the default, or all */
	uint64_t rate; /* messages a second: of the day that is made; of the play with speed 0 */
	uint32_t speed_pct; /* 100: in the messages' own time; 0: evenly at `rate` (0: at once) */
};

/* Reads the whole day.  `day` is zeroed; exch_day_fini() also after a failure. */
int exch_day_init(struct exch_day *day, const struct exch_day_conf *conf,
		  struct tw_error *err) TW_MUST_USE;
void exch_day_fini(struct exch_day *day);
/* Messages get the timestamps that they are due at, where the day begins `begin_ns` after midnight. */
void exch_day_restamp(struct exch_day *day, uint64_t begin_ns);
/* How many messages from `first` on leave in one packet: the same ones whenever it is asked. */
uint16_t exch_day_packet(const struct exch_day *day, uint64_t first);
/* A packet of as many whole messages as fit, at most `count` and at least one; how many there are
 * in *taken, and its length. */
uint16_t exch_packet_make(const struct exch_day *day, const char *session, uint64_t first,
			  uint16_t count, uint8_t packet[static EXCH_PACKET_BYTES],
			  uint16_t *taken);
void exch_header_make(const char *session, uint64_t seq, uint16_t count,
		      uint8_t packet[static EXCH_HEADER_BYTES]);

/* ---- exch_line.c ---- */

struct exch_faults {
	uint64_t seed;
	uint32_t drop_ppm[EXCH_LINES];
	uint32_t drop_both_ppm, duplicate_ppm, reorder_ppm;
};

/* A function of the faults, the line and the packet's first message alone. */
bool exch_dropped(const struct exch_faults *faults, unsigned int line, uint64_t seq);
bool exch_duplicated(const struct exch_faults *faults, unsigned int line, uint64_t seq);
bool exch_reordered(const struct exch_faults *faults, unsigned int line, uint64_t seq);

struct exch_line_stats {
	uint64_t packets, messages; /* that left, duplicates aside */
	uint64_t heartbeats, ends;
	uint64_t dropped_packets, dropped_messages;
	uint64_t duplicates; /* packets */
	uint64_t reordered;  /* packets that their successor overtook */
	uint64_t send_errors;
};

struct exch_line {
	int fd; /* -1: there is no such line */
	unsigned int index;
	struct sockaddr_in group;
	const struct exch_faults *faults;
	struct exch_line_stats stats;
	struct { /* waits for its successor; len_bytes 0: nothing does */
		uint8_t bytes[EXCH_PACKET_BYTES];
		uint16_t len_bytes, messages;
		bool twice;
	} held;
};

int exch_line_init(struct exch_line *line, unsigned int index, const struct sockaddr_in *group,
		   struct in_addr interface, const struct exch_faults *faults,
		   struct tw_error *err) TW_MUST_USE;
void exch_line_fini(struct exch_line *line); /* fd < 0 ok */
/* Messages, with the faults.  A line that there is not takes everything and does nothing. */
void exch_line_send(struct exch_line *line, uint64_t seq, const uint8_t *packet, uint16_t len_bytes,
		    uint16_t messages);
/* A header alone, heartbeat or end of session: behind what is held, and without faults. */
void exch_line_beat(struct exch_line *line, const uint8_t header[static EXCH_HEADER_BYTES],
		    bool end);
void exch_line_flush(struct exch_line *line); /* what is held */

/* ---- exch_rerequest.c ---- */

struct exch_request {
	uint64_t seq;
	uint16_t count;
};

enum exch_verdict { EXCH_WELL_FORMED, EXCH_MALFORMED, EXCH_OTHER_SESSION };

/* `data` is what came in: anything.  *request is set where it is well-formed. */
enum exch_verdict exch_request_parse(const void *data, size_t len_bytes, const char *session,
				     struct exch_request *request);

#define EXCH_LIMIT_SETS 256u
#define EXCH_LIMIT_WAYS 4u

/* How often each source may be answered: a bucket for each of the most recent ones.  A source that is
 * forgotten has been idle for longer than its neighbours. */
struct exch_limits {
	uint64_t period_ns; /* between answers, in the long run */
	uint64_t burst_ns;  /* ahead of that */
	struct exch_source {
		uint32_t addr;
		bool used;
		uint64_t next_ns; /* when its bucket is full again */
	} sources[EXCH_LIMIT_SETS][EXCH_LIMIT_WAYS];
};

/* `rate` answers a second, and a tenth of that (at least one) at once. */
void exch_limits_init(struct exch_limits *limits, uint32_t rate);
bool exch_limits_admit(struct exch_limits *limits, uint32_t addr, uint64_t now_ns);

struct exch_server_stats {
	uint64_t received, answered, messages; /* answered: with so many messages */
	uint64_t malformed, other_session;     /* ignored */
	uint64_t refused;                      /* not sent yet, or no longer in the store */
	uint64_t limited;                      /* too many from one source */
	uint64_t send_errors;
};

struct exch_server {
	int fd; /* -1: there is none */
	struct sockaddr_in addr;
	const struct exch_day *day;
	const char *session;
	uint64_t store_messages; /* the newest so many are answered */
	struct exch_limits limits;
	struct exch_server_stats stats;
};

int exch_server_init(struct exch_server *server, const struct sockaddr_in *addr,
		     const struct exch_day *day, const char *session, uint64_t store_messages,
		     uint32_t rate, struct tw_error *err) TW_MUST_USE;
void exch_server_fini(struct exch_server *server); /* fd < 0 ok */
/* Handles some of what has come in; the first `sent` messages of the day have been sent. */
void exch_server_turn(struct exch_server *server, uint64_t sent, uint64_t now_ns);

/* ---- exch_options.c ---- */

struct exch_conf {
	struct exch_day_conf day;
	struct exch_faults faults;
	struct sockaddr_in groups[EXCH_LINES]; /* port 0: none */
	struct in_addr interfaces[EXCH_LINES];
	bool serve;
	struct sockaddr_in rerequest;
	uint32_t rerequest_rate;
	uint64_t store_messages; /* 0: all */
	uint32_t start_delay_ms, linger_s;
	bool restamp;
	char session[EXCH_SESSION_BYTES + 1]; /* padded with spaces; empty: of the time */
	const char *summary;
};

/* Exit status to leave with, of which it has said why, or -1 to go on.  The strings are argv's. */
int exch_options_parse(struct exch_conf *conf, int argc, char **argv);

#endif
