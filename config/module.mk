LIB_DIRS += config
TW_SRCS += config/node.c config/value.c config/schema.c config/check.c config/config.c config/find.c \
	config/machine.c config/transport.c config/show.c config/document.c
PROGRAMS += tw-config
tw-config_SRCS := config/tw_config.c
