PROGRAMS += tw-test-wire-send
tw-test-wire-send_SRCS := tests/support/wire_send.c
