# sources of core/fabric/verbs
TW_SRCS += core/fabric/verbs/choose.c core/fabric/verbs/device.c
