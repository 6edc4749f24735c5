/* When the next packet or message of a recorded feed is due.
 *
 * Both schedules are absolute: due times are counted from the start, so that a late one moves nothing
 * that follows, and the mean rate never passes the one asked for.
 * Units     ns of whatever clock the caller passes as now_ns; pure functions of it. */
#ifndef TW_FEEDHANDLER_PACE_H
#define TW_FEEDHANDLER_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct tw_pace {
	uint32_t speed_pct; /* 100: as recorded; 0: no wait */
	uint32_t rate_msgs; /* messages a second; 0: no limit */
	bool packets_begun, msgs_begun;
	uint64_t packet_start_ns, recorded_start_ns;
	uint64_t msg_start_ns, msgs;
};

/* Whether anything is ever waited for: what is not may be read ahead, and in larger pieces. */
static inline bool tw_pace_waits(const struct tw_pace *pace)
{
	return pace->speed_pct != 0 || pace->rate_msgs != 0;
}

/* `recorded_ns` is the packet's receive time in the recording, 0 where unknown. */
static inline uint64_t tw_pace_packet(struct tw_pace *pace, uint64_t recorded_ns, uint64_t now_ns)
{
	if (pace->speed_pct == 0 || recorded_ns == 0) {
		return now_ns;
	}
	if (!pace->packets_begun) {
		pace->packets_begun = true;
		pace->packet_start_ns = now_ns;
		pace->recorded_start_ns = recorded_ns;
	}
	if (recorded_ns < pace->recorded_start_ns) {
		return now_ns; /* recorded before the first one: due already */
	}
	uint64_t since_ns = recorded_ns - pace->recorded_start_ns;
	/* in two steps, so that no recording is too long for 64 bits */
	return pace->packet_start_ns + since_ns / pace->speed_pct * 100 +
	       since_ns % pace->speed_pct * 100 / pace->speed_pct;
}

/* Counts the message. */
static inline uint64_t tw_pace_message(struct tw_pace *pace, uint64_t now_ns)
{
	if (pace->rate_msgs == 0) {
		return now_ns;
	}
	if (!pace->msgs_begun) {
		pace->msgs_begun = true;
		pace->msg_start_ns = now_ns;
	}
	uint64_t n = pace->msgs++;
	return pace->msg_start_ns + n / pace->rate_msgs * 1000000000u +
	       n % pace->rate_msgs * 1000000000u / pace->rate_msgs;
}

#endif
