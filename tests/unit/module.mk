UNIT_TESTS += tests/unit/test_schema.c
UNIT_TESTS += tests/unit/test_datagram.c
UNIT_TESTS += tests/unit/test_format.c
UNIT_TESTS += tests/unit/test_roce.c
UNIT_TESTS += tests/unit/test_udp.c tests/unit/test_udp_trouble.c
test_udp_SRCS := tests/support/udp_bed.c tests/support/probe_alloc.c
test_udp_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
test_udp_trouble_SRCS := tests/support/udp_bed.c
test_udp_trouble_LDFLAGS := -Wl,--wrap=sendmmsg
UNIT_TESTS += tests/unit/test_fault.c
UNIT_TESTS += tests/unit/test_bus.c
UNIT_TESTS += tests/unit/test_history.c
UNIT_TESTS += tests/unit/test_pack.c
UNIT_TESTS += tests/unit/test_error.c
UNIT_TESTS += tests/unit/test_log.c
UNIT_TESTS += tests/unit/test_bytes.c
UNIT_TESTS += tests/unit/test_slab.c
UNIT_TESTS += tests/unit/test_rundir.c
UNIT_TESTS += tests/unit/test_cpu.c
UNIT_TESTS += tests/unit/test_hist.c
UNIT_TESTS += tests/unit/test_arb.c tests/unit/test_arb_session.c tests/unit/test_arb_world.c
test_arb_SRCS := tests/unit/arb_scene.c tests/sim/ledger.c
test_arb_session_SRCS := tests/unit/arb_scene.c tests/sim/ledger.c
test_arb_world_SRCS := tests/unit/arb_scene.c tests/sim/ledger.c
UNIT_TESTS += tests/unit/test_clock.c
UNIT_TESTS += tests/unit/test_capture.c
UNIT_TESTS += tests/unit/test_config.c
UNIT_TESTS += tests/unit/test_config_errors.c
UNIT_TESTS += tests/unit/test_sub.c tests/unit/test_sub_api.c tests/unit/test_subscribe.c
test_sub_SRCS := tests/support/probe_alloc.c tests/support/pub_bed.c
test_sub_api_SRCS := tests/support/pub_bed.c
test_subscribe_SRCS := tests/support/pub_bed.c subscriber/subscribe_out.c subscriber/subscribe_summary.c
test_sub_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
UNIT_TESTS += tests/unit/test_instruments.c
UNIT_TESTS += tests/unit/test_counters.c
UNIT_TESTS += tests/unit/test_app.c
UNIT_TESTS += tests/unit/test_gen.c
test_gen_SRCS := tools/gen_run.c tools/gen_day.c tools/gen_market.c tools/gen_tops16.c \
	tools/gen_iextp.c tools/gen_capture.c
UNIT_TESTS += tests/unit/test_iextp.c
UNIT_TESTS += tests/unit/test_tops16.c
UNIT_TESTS += tests/unit/test_wire_doc.c
UNIT_TESTS += tests/unit/test_gen_decode.c
test_gen_decode_SRCS := tools/gen_run.c tools/gen_day.c tools/gen_market.c tools/gen_tops16.c \
	tools/gen_iextp.c tools/gen_capture.c
UNIT_TESTS += tests/unit/test_feed.c
test_feed_SRCS := tests/support/probe_alloc.c
test_feed_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
UNIT_TESTS += tests/unit/test_bus_file.c
UNIT_TESTS += tests/unit/test_sim_net.c
