/* One multicast line.  A packet that is held back leaves behind its successor, or ahead of the next
 * heartbeat where none comes. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/log.h"
#include "exch.h"

enum decision { DECIDE_BOTH = 1, DECIDE_DROP, DECIDE_DUPLICATE, DECIDE_REORDER };

static bool decide(const struct exch_faults *faults, enum decision what, unsigned int line,
		   uint64_t seq, uint32_t ppm)
{
	struct gen_rng rng = { faults->seed };

	rng.state = gen_rng_next(&rng) ^ ((uint64_t)what << 8 | line);
	rng.state = gen_rng_next(&rng) ^ seq;
	return gen_rng_chance(&rng, ppm);
}

bool exch_dropped(const struct exch_faults *faults, unsigned int line, uint64_t seq)
{
	return decide(faults, DECIDE_BOTH, 0, seq, faults->drop_both_ppm) ||
	       decide(faults, DECIDE_DROP, line, seq, faults->drop_ppm[line]);
}

bool exch_duplicated(const struct exch_faults *faults, unsigned int line, uint64_t seq)
{
	return decide(faults, DECIDE_DUPLICATE, line, seq, faults->duplicate_ppm);
}

bool exch_reordered(const struct exch_faults *faults, unsigned int line, uint64_t seq)
{
	return decide(faults, DECIDE_REORDER, line, seq, faults->reorder_ppm);
}

int exch_line_init(struct exch_line *line, unsigned int index, const struct sockaddr_in *group,
		   struct in_addr interface, const struct exch_faults *faults, struct tw_error *err)
{
	const struct sockaddr_in from = { .sin_family = AF_INET, .sin_addr = interface };
	const char name = (char)('A' + index);

	memset(line, 0, sizeof(*line));
	line->index = index;
	line->group = *group;
	line->faults = faults;
	line->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (line->fd < 0) {
		return tw_fail_sys(err, TW_ESYS, "line %c: socket", name);
	}
	if (bind(line->fd, (const struct sockaddr *)&from, sizeof(from)) != 0) {
		return tw_fail_sys(err, TW_ESYS, "line %c: bind to %s", name, inet_ntoa(interface));
	}
	/* with its default TTL of 1 nothing of it leaves the subnet */
	if (setsockopt(line->fd, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof(interface)) != 0) {
		return tw_fail_sys(err, TW_ESYS, "line %c: IP_MULTICAST_IF %s", name,
				   inet_ntoa(interface));
	}
	return TW_OK;
}

void exch_line_fini(struct exch_line *line)
{
	if (line->fd >= 0) {
		(void)close(line->fd);
		line->fd = -1;
	}
}

static bool transmit(struct exch_line *line, const uint8_t *packet, uint16_t len_bytes)
{
	if (sendto(line->fd, packet, len_bytes, 0, (const struct sockaddr *)&line->group,
		   sizeof(line->group)) == (ssize_t)len_bytes) {
		return true;
	}
	if (line->stats.send_errors++ == 0) {
		struct tw_error err;
		(void)tw_fail_sys(&err, TW_ESYS, "line %c: sendto", 'A' + (int)line->index);
		tw_log(TW_LOG_WARNING, "%s (further ones are counted only)", err.text);
	}
	return false;
}

static void transmit_messages(struct exch_line *line, const uint8_t *packet, uint16_t len_bytes,
			      uint16_t messages, bool twice)
{
	if (transmit(line, packet, len_bytes)) {
		line->stats.packets++;
		line->stats.messages += messages;
	}
	if (twice && transmit(line, packet, len_bytes)) {
		line->stats.duplicates++;
	}
}

void exch_line_flush(struct exch_line *line)
{
	if (line->fd >= 0 && line->held.len_bytes != 0) {
		transmit_messages(line, line->held.bytes, line->held.len_bytes, line->held.messages,
				  line->held.twice);
		line->held.len_bytes = 0;
	}
}

void exch_line_send(struct exch_line *line, uint64_t seq, const uint8_t *packet, uint16_t len_bytes,
		    uint16_t messages)
{
	if (line->fd < 0) {
		return;
	}
	if (exch_dropped(line->faults, line->index, seq)) {
		line->stats.dropped_packets++;
		line->stats.dropped_messages += messages;
		return;
	}
	bool twice = exch_duplicated(line->faults, line->index, seq);
	bool holding = line->held.len_bytes != 0;
	if (!holding && exch_reordered(line->faults, line->index, seq)) {
		memcpy(line->held.bytes, packet, len_bytes);
		line->held.len_bytes = len_bytes;
		line->held.messages = messages;
		line->held.twice = twice;
		return;
	}
	transmit_messages(line, packet, len_bytes, messages, twice);
	if (holding) {
		line->stats.reordered++;
		exch_line_flush(line);
	}
}

void exch_line_beat(struct exch_line *line, const uint8_t header[static EXCH_HEADER_BYTES],
		    bool end)
{
	if (line->fd < 0) {
		return;
	}
	exch_line_flush(line);
	if (transmit(line, header, EXCH_HEADER_BYTES)) {
		line->stats.heartbeats += end ? 0 : 1;
		line->stats.ends += end ? 1 : 0;
	}
}
