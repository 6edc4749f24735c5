# sources of core/fabric/sim
TW_SRCS += core/fabric/sim/net.c
