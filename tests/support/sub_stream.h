/* What tests of libtidewire share: polling a handle into a copy of its stream, with checks that belong
 * to every call.  For Criterion test files. */
#ifndef TW_TESTS_SUB_STREAM_H
#define TW_TESTS_SUB_STREAM_H

#include <criterion/criterion.h>
#include <string.h>

#include "base/clock.h"
#include "tests/support/pub_bed.h"

#if defined(__SANITIZE_ADDRESS__)
#define SUB_STREAM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SUB_STREAM_ASAN 1
#endif
#endif
#ifdef SUB_STREAM_ASAN
#include <sanitizer/lsan_interface.h>
#endif

#define EVENTS_MAX  4096u
#define DEADLINE_NS 20000000000ull /* for what must happen: a bound on hanging, never judged */
#define PATIENT_US  10000000u      /* a gap waits longer than any test */

/* What came out of a handle, as copies. */
struct stream {
	struct tw_event events[EVENTS_MAX];
	uint32_t count;
	uint32_t messages;
	uint32_t wrong; /* messages that did not hold what was sent */
};

static struct stream stream;

static inline bool is_line_event(const struct tw_event *ev)
{
	return ev->type == TW_EV_LINE_DOWN || ev->type == TW_EV_LINE_UP;
}

/* One call; checks everything that it handed out only after it has returned, so that a message whose
 * bytes were overwritten within the call shows. */
static inline int poll_once(struct tw_sub *sub, struct stream *s, unsigned int max)
{
	struct tw_event events[64];

	memset(events, 0xa5, sizeof(events));
	int n = tw_sub_poll(sub, events, max);
	for (int i = 0; i < n && s->count < EVENTS_MAX; i++) {
		if (events[i].type == TW_EV_MSG) {
			s->messages++;
			s->wrong += !pub_dgram_is_order(&events[i]);
		}
		s->events[s->count++] = events[i];
	}
	return n;
}

static inline const struct tw_event *find(const struct stream *s, enum tw_event_type type,
					  uint32_t from)
{
	for (uint32_t i = from; i < s->count; i++) {
		if (s->events[i].type == type) {
			return &s->events[i];
		}
	}
	return NULL;
}

static inline uint32_t count_of(const struct stream *s, enum tw_event_type type)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		n += s->events[i].type == type;
	}
	return n;
}

/* Polls until `n` events of `type` have come; false where they do not. */
static inline bool poll_until(struct tw_sub *sub, struct stream *s, unsigned int max,
			      enum tw_event_type type, uint32_t n)
{
	uint64_t end_ns = tw_mono_ns() + DEADLINE_NS;

	while (count_of(s, type) < n) {
		if (poll_once(sub, s, max) < 0 || tw_mono_ns() > end_ns) {
			return false;
		}
		if (tw_sub_wait(sub, 1000000) < 0) {
			return false;
		}
	}
	return true;
}

/* Messages from .. to - 1 of `session`, each once and in order, and nothing else that is a message. */
static inline void assert_messages(const struct stream *s, uint64_t session, uint64_t from,
				   uint64_t to)
{
	uint64_t seq = from;

	for (uint32_t i = 0; i < s->count; i++) {
		if (s->events[i].type != TW_EV_MSG || s->events[i].session != session) {
			continue;
		}
		cr_assert_eq(s->events[i].seq, seq, "%lu came for %lu", s->events[i].seq, seq);
		cr_assert_eq(s->events[i].end_seq, seq + 1);
		seq++;
	}
	cr_assert_eq(seq, to, "next is %lu, not %lu", seq, to);
	cr_assert_eq(s->wrong, 0);
}

static inline void assert_no_leak(void)
{
#ifdef SUB_STREAM_ASAN
	cr_assert_eq(__lsan_do_recoverable_leak_check(), 0);
#endif
}

static inline void read_stats(const struct tw_sub *sub, struct tw_sub_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
	cr_assert_eq(tw_sub_stats_read(sub, 1, stats), TW_OK);
}

static inline struct tw_sub *open_bed(struct pub_bed *bed, const struct pub_bed_conf *conf)
{
	struct tw_error err = { 0 };
	struct tw_sub *sub = NULL;

	cr_assert(pub_bed_open(bed, conf));
	int rc = pub_bed_subscribe(bed, NULL, &sub, &err);
	cr_assert_eq(rc, TW_OK, "%s", err.text);
	memset(&stream, 0, sizeof(stream));
	return sub;
}

static const struct pub_bed_conf patient = { .channels = 1, .wait_us = PATIENT_US };

#endif
