/* A descriptor for an event loop of the caller's: the receiver's own one and a timer, together.
 * Threads   the handle's. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fail.h"
#include "subscriber/sub_internal.h"

static int watch(int epoll_fd, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int tw_sub_event_fd(struct tw_sub *sub)
{
	if (sub->event_fd >= 0) {
		return sub->event_fd;
	}
	sub->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	sub->event_fd = epoll_create1(EPOLL_CLOEXEC);
	if (sub->timer_fd >= 0 && sub->event_fd >= 0 && watch(sub->event_fd, sub->timer_fd) == 0 &&
	    watch(sub->event_fd, tw_rx_event_fd(sub->rx)) == 0) {
		return sub->event_fd;
	}
	const int cause = errno;
	tw_sub_event_close(sub);
	errno = cause;
	return tw_fail_sys(&sub->error, TW_ESYS, "subscriber: event descriptor");
}

void tw_sub_event_close(struct tw_sub *sub)
{
	if (sub->event_fd >= 0) {
		close(sub->event_fd);
	}
	if (sub->timer_fd >= 0) {
		close(sub->timer_fd);
	}
	sub->event_fd = sub->timer_fd = -1;
}

int tw_sub_arm(struct tw_sub *sub)
{
	if (sub->event_fd < 0) {
		return TW_ESTATE;
	}
	tw_sub_settle(sub);
	if (sub->failed != 0) {
		return sub->failed;
	}
	if (tw_sub_has_work(sub)) {
		return 1;
	}
	const uint64_t now_ns = tw_mono_ns();
	uint64_t due_ns = now_ns + tw_sub_sleep_ns(sub);
	int rc = tw_rx_arm(sub->rx, &due_ns);
	if (rc != 0) {
		return rc;
	}
	/* 0 would disarm it */
	due_ns = due_ns == 0 ? 1 : due_ns;
	const struct itimerspec at = { .it_value = { .tv_sec = (time_t)(due_ns / 1000000000u),
						     .tv_nsec = (long)(due_ns % 1000000000u) } };
	return timerfd_settime(sub->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0 ? 0 : TW_ESYS;
}
