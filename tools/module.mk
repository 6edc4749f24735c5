PROGRAMS += tw-gen-docs
tw-gen-docs_SRCS := tools/gen_docs.c
TW_SRCS += tools/launch.c
PROGRAMS += tw-run tw-demo
tw-run_SRCS := tools/tw_run.c
tw-demo_SRCS := tools/tw_demo.c
PROGRAMS += tw-gen
GEN_SRCS := tools/gen_run.c tools/gen_day.c tools/gen_market.c tools/gen_tops16.c tools/gen_iextp.c \
	tools/gen_capture.c tools/gen_flow_day.c tools/gen_flow.c tools/gen_book.c tools/gen_itch50.c \
	tools/gen_moldudp64.c tools/gen_binaryfile.c
tw-gen_SRCS := tools/tw_gen.c $(GEN_SRCS)
PROGRAMS += tw-exchange
EXCH_SRCS := tools/exch_day.c tools/exch_line.c tools/exch_rerequest.c
tw-exchange_SRCS := tools/tw_exchange.c tools/exch_options.c $(EXCH_SRCS) $(GEN_SRCS)
PROGRAMS += tw-fabric
tw-fabric_SRCS := tools/tw_fabric.c tools/fabric_list.c tools/fabric_probe.c
