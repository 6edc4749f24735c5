/* tw-exchange: plays a day of ITCH live, over MoldUDP64 on two lines and with a re-request server.
 *
 * Every packet has a moment of its own, counted from the begin of the day: what was late does not make
 * later packets late.  What is on a line, and what a fault does to it, is the same in every run.
 * Threads  one. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/options.h"
#include "exch.h"
#include "launch.h"

#define NS_PER_S     1000000000ull
#define NS_PER_MS    1000000ull
#define HEARTBEAT_NS NS_PER_S

struct exchange {
	struct exch_conf conf;
	struct exch_day day;
	struct exch_line lines[EXCH_LINES];
	struct exch_server server;
	int signal_fd;
	uint64_t begin_ns; /* of the day */
	uint64_t sent;     /* messages of the day, on whichever line or none */
	uint64_t packets;
	uint64_t beat_ns; /* when something was sent last */
	uint64_t late_max_ns;
	uint64_t end_ns; /* when the end of session has been said for long enough; 0: not begun */
	bool interrupted;
};

static void send_packet(struct exchange *ex, uint16_t count, uint64_t late_ns, uint64_t now_ns)
{
	uint8_t packet[EXCH_PACKET_BYTES];
	uint16_t taken = 0;
	uint16_t len =
		exch_packet_make(&ex->day, ex->conf.session, ex->sent, count, packet, &taken);

	for (unsigned int i = 0; i < EXCH_LINES; i++) {
		exch_line_send(&ex->lines[i], ex->sent + 1, packet, len, taken);
	}
	ex->sent += taken;
	ex->packets++;
	ex->beat_ns = now_ns;
	ex->late_max_ns = late_ns > ex->late_max_ns ? late_ns : ex->late_max_ns;
}

static void send_beat(struct exchange *ex, bool end, uint64_t now_ns)
{
	uint8_t header[EXCH_HEADER_BYTES];

	exch_header_make(ex->conf.session, ex->sent + 1, end ? EXCH_END_OF_SESSION : 0, header);
	for (unsigned int i = 0; i < EXCH_LINES; i++) {
		exch_line_beat(&ex->lines[i], header, end);
	}
	ex->beat_ns = now_ns;
}

/* Does what is due; when the next thing is. */
static uint64_t advance(struct exchange *ex, uint64_t now_ns)
{
	uint64_t due_ns = UINT64_MAX;

	if (ex->sent < ex->day.count) {
		uint16_t count = exch_day_packet(&ex->day, ex->sent);
		due_ns = ex->begin_ns + ex->day.messages[ex->sent + count - 1].due_ns;
		if (due_ns <= now_ns) {
			send_packet(ex, count, now_ns - due_ns, now_ns);
			return now_ns;
		}
	} else if (ex->end_ns == 0) {
		ex->end_ns = now_ns + ex->conf.linger_s * NS_PER_S;
		send_beat(ex, true, now_ns);
	}
	if (now_ns >= ex->beat_ns + HEARTBEAT_NS) {
		send_beat(ex, ex->end_ns != 0, now_ns);
	}
	due_ns = ex->end_ns != 0 && ex->end_ns < due_ns ? ex->end_ns : due_ns;
	return due_ns < ex->beat_ns + HEARTBEAT_NS ? due_ns : ex->beat_ns + HEARTBEAT_NS;
}

static int play(struct exchange *ex, struct tw_error *err)
{
	enum { SIGNAL, REQUEST, FDS };
	struct pollfd fds[FDS] = {
		[SIGNAL] = { .fd = ex->signal_fd, .events = POLLIN },
		[REQUEST] = { .fd = ex->server.fd, .events = POLLIN }, /* -1 is passed over */
	};
	uint64_t now_ns = tw_mono_ns();

	ex->beat_ns = now_ns;
	while (ex->end_ns == 0 || now_ns < ex->end_ns) {
		uint64_t next_ns = advance(ex, now_ns);
		now_ns = tw_mono_ns();
		uint64_t wait_ns = next_ns > now_ns ? next_ns - now_ns : 0;
		const struct timespec wait = { .tv_sec = (time_t)(wait_ns / NS_PER_S),
					       .tv_nsec = (long)(wait_ns % NS_PER_S) };
		int ready = ppoll(fds, FDS, &wait, NULL);
		if (ready < 0 && errno != EINTR) { /* which SIGCONT may do */
			return tw_fail_sys(err, TW_ESYS, "exchange: ppoll");
		}
		now_ns = tw_mono_ns();
		if (ready <= 0) {
			continue; /* what stands in `fds` is old after an error */
		}
		if (fds[SIGNAL].revents != 0) {
			ex->interrupted = true;
			break;
		}
		if (fds[REQUEST].revents != 0) {
			exch_server_turn(&ex->server, ex->sent, now_ns);
		}
	}
	for (unsigned int i = 0; i < EXCH_LINES; i++) {
		exch_line_flush(&ex->lines[i]);
	}
	return TW_OK;
}

static void print_list(FILE *f, const char *name, const uint64_t *values, const char *const *names,
		       size_t n)
{
	(void)fprintf(f, "\"%s\":{", name);
	for (size_t i = 0; i < n; i++) {
		(void)fprintf(f, "%s\"%s\":%" PRIu64, i == 0 ? "" : ",", names[i], values[i]);
	}
}

/* Where the line has gaps: [first number, messages], ascending; packets and faults are gone through
 * once more. */
static void print_dropped(FILE *f, const struct exchange *ex, unsigned int line)
{
	uint64_t seq = 0, n = 0;
	const char *comma = "";

	(void)fputs(",\"dropped\":[", f);
	for (uint64_t at = 0; at < ex->sent;) {
		uint16_t count = exch_day_packet(&ex->day, at);
		if (exch_dropped(&ex->conf.faults, line, at + 1)) {
			if (n != 0 && seq + n != at + 1) {
				(void)fprintf(f, "%s[%" PRIu64 ",%" PRIu64 "]", comma, seq, n);
				comma = ",";
				n = 0;
			}
			seq = n == 0 ? at + 1 : seq;
			n += count;
		}
		at += count;
	}
	if (n != 0) {
		(void)fprintf(f, "%s[%" PRIu64 ",%" PRIu64 "]", comma, seq, n);
	}
	(void)fputs("]}", f);
}

static void print_line(FILE *f, const struct exchange *ex, unsigned int line)
{
	const struct exch_line_stats *s = &ex->lines[line].stats;
	static const char *const names[] = { "packets",    "messages",        "heartbeats",
					     "ends",       "dropped_packets", "dropped_messages",
					     "duplicates", "reordered",       "send_errors" };
	const uint64_t values[] = { s->packets,    s->messages,        s->heartbeats,
				    s->ends,       s->dropped_packets, s->dropped_messages,
				    s->duplicates, s->reordered,       s->send_errors };

	print_list(f, line == 0 ? "a" : "b", values, names, sizeof(values) / sizeof(values[0]));
	print_dropped(f, ex, line);
}

static void print_summary(FILE *f, const struct exchange *ex)
{
	const struct exch_server_stats *s = &ex->server.stats;
	static const char *const names[] = {
		"received",      "answered", "messages", "malformed",
		"other_session", "refused",  "limited",  "send_errors"
	};
	const uint64_t values[] = { s->received,      s->answered, s->messages, s->malformed,
				    s->other_session, s->refused,  s->limited,  s->send_errors };

	(void)fprintf(f,
		      "{\"session\":\"%s\",\"day_messages\":%" PRIu64 ",\"messages\":%" PRIu64
		      ",\"packets\":%" PRIu64 ",\"late_max_ns\":%" PRIu64
		      ",\"interrupted\":%s,\"lines\":{",
		      ex->conf.session, ex->day.count, ex->sent, ex->packets, ex->late_max_ns,
		      ex->interrupted ? "true" : "false");
	for (unsigned int i = 0; i < EXCH_LINES && ex->lines[i].fd >= 0; i++) {
		(void)fputs(i == 0 ? "" : ",", f);
		print_line(f, ex, i);
	}
	(void)fputs("}", f);
	if (ex->server.fd >= 0) {
		(void)fputs(",", f);
		print_list(f, "requests", values, names, sizeof(values) / sizeof(values[0]));
		(void)fputs("}", f);
	}
	(void)fputs("}\n", f);
}

static int open_sockets(struct exchange *ex, struct tw_error *err)
{
	const struct exch_conf *conf = &ex->conf;
	int status = TW_OK;

	for (unsigned int i = 0; status == TW_OK && i < EXCH_LINES; i++) {
		if (conf->groups[i].sin_port != 0) {
			status = exch_line_init(&ex->lines[i], i, &conf->groups[i],
						conf->interfaces[i], &conf->faults, err);
		}
	}
	if (status == TW_OK && conf->serve) {
		status = exch_server_init(&ex->server, &conf->rerequest, &ex->day, conf->session,
					  conf->store_messages, conf->rerequest_rate, err);
	}
	return status;
}

static const char *endpoint_text(const struct sockaddr_in *addr, char text[static 32])
{
	char ip[INET_ADDRSTRLEN];

	if (addr->sin_port == 0) {
		return "none";
	}
	(void)snprintf(text, 32, "%s:%u",
		       inet_ntop(AF_INET, &addr->sin_addr, ip, sizeof(ip)) != NULL ? ip : "?",
		       ntohs(addr->sin_port));
	return text;
}

static void begin(struct exchange *ex)
{
	char a[32], b[32], rerequest[32];
	uint64_t delay_ns = ex->conf.start_delay_ms * NS_PER_MS;
	uint64_t wall_ns = tw_wall_ns() + delay_ns;

	if (ex->conf.restamp) {
		exch_day_restamp(&ex->day, wall_ns - gen_midnight_ns(wall_ns));
		/* a large day takes its time */
		uint64_t now_ns = tw_wall_ns();
		delay_ns = wall_ns > now_ns ? wall_ns - now_ns : 0;
	}
	tw_log(TW_LOG_INFO,
	       "ready: session %.10s, %" PRIu64 " messages, lines %s %s, re-requests %s",
	       ex->conf.session, ex->day.count, endpoint_text(&ex->conf.groups[0], a),
	       endpoint_text(&ex->conf.groups[1], b), endpoint_text(&ex->server.addr, rerequest));
	ex->begin_ns = tw_mono_ns() + delay_ns;
}

static int run(struct exchange *ex, FILE *out, struct tw_error *err)
{
	int status = exch_day_init(&ex->day, &ex->conf.day, err);

	if (status == TW_OK) {
		status = open_sockets(ex, err);
	}
	if (status == TW_OK) {
		ex->signal_fd = tw_launch_signal_fd(err);
		status = ex->signal_fd < 0 ? ex->signal_fd : TW_OK;
	}
	if (status == TW_OK) {
		begin(ex);
		status = play(ex, err);
	}
	if (status == TW_OK) {
		print_summary(out, ex);
	}
	if (ex->signal_fd >= 0) {
		(void)close(ex->signal_fd);
	}
	exch_server_fini(&ex->server);
	for (unsigned int i = 0; i < EXCH_LINES; i++) {
		exch_line_fini(&ex->lines[i]);
	}
	exch_day_fini(&ex->day);
	return status;
}

int main(int argc, char **argv)
{
	static struct exchange ex = {
		.lines = { { .fd = -1 }, { .fd = -1 } },
		.server = { .fd = -1 },
		.signal_fd = -1,
	};
	struct tw_error err = { 0 };
	FILE *out = NULL;

	int exit_status = exch_options_parse(&ex.conf, argc, argv);
	if (exit_status >= 0) {
		return exit_status;
	}
	tw_log_init("tw-exchange", TW_LOG_INFO);
	tw_clock_init();
	(void)prctl(PR_SET_TIMERSLACK,
		    1ul); /* ns: the default of 50 us would be seen on the wire */
	if (ex.conf.session[0] == '\0') {
		(void)snprintf(ex.conf.session, sizeof(ex.conf.session), "%010" PRIu64,
			       (uint64_t)(tw_wall_ns() / NS_PER_S % 10000000000u));
	}
	int status = tw_summary_open(&out, ex.conf.summary, &err);
	if (status == TW_OK) {
		status = run(&ex, out, &err);
		int closed = tw_summary_close(out, ex.conf.summary, status == TW_OK ? &err : NULL);
		status = status != TW_OK ? status : closed;
	}
	if (status != TW_OK) {
		tw_log(TW_LOG_ERROR, "%s", err.text);
		return tw_exit_status(status);
	}
	return 0;
}
