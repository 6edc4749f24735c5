# sources of core/protocol
LIB_DIRS += core/protocol
TW_SRCS += core/protocol/arb.c core/protocol/arb_line.c core/protocol/arb_segs.c
TW_SRCS += core/protocol/history.c core/protocol/pack.c
