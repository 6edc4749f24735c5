PROGRAMS += tw-test-wire-send
tw-test-wire-send_SRCS := tests/support/wire_send.c
PROGRAMS += tw-test-bus-feed
tw-test-bus-feed_SRCS := tests/support/bus_feed.c
