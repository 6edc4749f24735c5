TW_SRCS += \
	feedhandler/capture_source.c \
	feedhandler/civil.c \
	feedhandler/feed.c \
	feedhandler/frame.c \
	feedhandler/input_binaryfile.c \
	feedhandler/input_capture.c \
	feedhandler/input_files.c \
	feedhandler/input_multicast.c \
	feedhandler/input_recording.c \
	feedhandler/instruments.c \
	feedhandler/itch50.c \
	feedhandler/itch50_admin.c \
	feedhandler/itch50_book.c \
	feedhandler/itch50_orders.c \
	feedhandler/registry.c \
	feedhandler/session_binaryfile.c \
	feedhandler/session_iextp.c \
	feedhandler/session_moldudp64.c \
	feedhandler/rerequest.c \
	feedhandler/rerequest_udp.c \
	feedhandler/tops16.c \
	feedhandler/venue_arb.c \
	feedhandler/venue_gaps.c
TW_SRCS += \
	feedhandler/feedhandler.c \
	feedhandler/hot.c
PROGRAMS += tw-feedhandler
tw-feedhandler_SRCS := feedhandler/main.c
