# sources of core/protocol
LIB_DIRS += core/protocol
TW_SRCS += core/protocol/arb.c core/protocol/arb_take.c core/protocol/arb_line.c core/protocol/arb_segs.c core/protocol/arb_repair.c \
	core/protocol/arb_memory.c core/protocol/arb_latest.c
TW_SRCS += core/protocol/history.c core/protocol/pack.c
TW_SRCS += core/protocol/history_read.c
TW_SRCS += core/protocol/repair.c core/protocol/repair_state.c core/protocol/repair_reply.c
