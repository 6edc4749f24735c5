# sources of core/base
LIB_DIRS += core/base
TW_SRCS += core/base/app.c core/base/bucket.c core/base/clock.c core/base/clock_fit.c core/base/counters.c \
	core/base/counters_check.c core/base/counters_doc.c core/base/counters_reader.c \
	core/base/counters_sets.c core/base/cpu.c core/base/error.c core/base/fail.c core/base/hist.c \
	core/base/log.c core/base/options.c core/base/rundir.c core/base/slab.c core/base/text.c
TW_SRCS += core/base/bus.c core/base/bus_map.c core/base/bus_reader.c
