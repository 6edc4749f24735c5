# sources of core/fabric
LIB_DIRS += core/fabric
TW_SRCS += core/fabric/fabric.c core/fabric/fault.c \
	core/fabric/udp/crc32.c core/fabric/udp/gf2.c core/fabric/udp/roce.c core/fabric/udp/udp_rx.c \
	core/fabric/udp/udp_socket.c core/fabric/udp/udp_tx.c
TW_SRCS += core/fabric/read_service.c core/fabric/read_slots.c core/fabric/reader.c \
	core/fabric/reader_pair.c core/fabric/repair_wire.c
TW_SRCS += core/fabric/tcp/read_server.c core/fabric/tcp/read_server_client.c core/fabric/tcp/reader.c \
	core/fabric/tcp/reader_conn.c core/fabric/tcp/tcp.c
TW_SRCS += core/fabric/verbs/rc_conn.c core/fabric/verbs/rc_hot.c core/fabric/verbs/rc_memory.c \
	core/fabric/verbs/rc_plan.c core/fabric/verbs/rc_qp.c core/fabric/verbs/rc_reader.c \
	core/fabric/verbs/rc_server.c core/fabric/verbs/rc_server_client.c core/fabric/verbs/rc_wire.c
