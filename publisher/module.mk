TW_SRCS += publisher/channel.c publisher/hot.c publisher/publisher.c publisher/repair.c \
	publisher/summary.c
PROGRAMS += tw-publisher
tw-publisher_SRCS := publisher/main.c
