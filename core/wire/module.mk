# sources of core/wire
LIB_DIRS += core/wire
TW_SRCS += core/wire/datagram.c core/wire/describe.c core/wire/format.c
