# sources of core/fabric/verbs
TW_SRCS += core/fabric/verbs/async.c core/fabric/verbs/choose.c core/fabric/verbs/device.c core/fabric/verbs/heal.c \
	core/fabric/verbs/join.c core/fabric/verbs/qp.c core/fabric/verbs/stamp.c core/fabric/verbs/ud_rx.c \
	core/fabric/verbs/ud_rx_open.c core/fabric/verbs/ud_tx.c
