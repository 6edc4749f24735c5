PROGRAMS += tw-test-wire-send tw-test-ud
tw-test-wire-send_SRCS := tests/support/wire_send.c
tw-test-ud_SRCS := tests/support/ud_cycle.c
PROGRAMS += tw-test-bus-feed
tw-test-bus-feed_SRCS := tests/support/bus_feed.c
