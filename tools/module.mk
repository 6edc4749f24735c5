PROGRAMS += tw-gen-docs
tw-gen-docs_SRCS := tools/gen_docs.c
TW_SRCS += tools/launch.c
PROGRAMS += tw-run tw-demo
tw-run_SRCS := tools/tw_run.c
tw-demo_SRCS := tools/tw_demo.c
PROGRAMS += tw-gen
tw-gen_SRCS := tools/tw_gen.c tools/gen_run.c tools/gen_day.c tools/gen_market.c tools/gen_tops16.c \
	tools/gen_iextp.c tools/gen_capture.c
