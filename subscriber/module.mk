# libtidewire, tw-subscribe and the smallest program that uses the library
LIB_DIRS += subscriber
TW_SRCS += subscriber/sub.c subscriber/sub_clock.c subscriber/sub_plan.c subscriber/sub_event.c subscriber/sub_poll.c subscriber/sub_give.c subscriber/sub_repair.c \
	subscriber/sub_stats.c subscriber/sub_late.c
PROGRAMS += tw-subscribe tw-example-quotes
tw-subscribe_SRCS := subscriber/tw_subscribe.c subscriber/subscribe_out.c \
	subscriber/subscribe_summary.c
tw-example-quotes_SRCS := subscriber/examples/quotes.c
