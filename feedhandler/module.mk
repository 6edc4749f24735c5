TW_SRCS += \
	feedhandler/capture_source.c \
	feedhandler/feed.c \
	feedhandler/frame.c \
	feedhandler/input_capture.c \
	feedhandler/input_files.c \
	feedhandler/instruments.c \
	feedhandler/registry.c \
	feedhandler/session_iextp.c \
	feedhandler/tops16.c
TW_SRCS += \
	feedhandler/feedhandler.c \
	feedhandler/hot.c
PROGRAMS += tw-feedhandler
tw-feedhandler_SRCS := feedhandler/main.c
