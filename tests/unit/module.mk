UNIT_TESTS += tests/unit/test_schema.c
UNIT_TESTS += tests/unit/test_datagram.c
UNIT_TESTS += tests/unit/test_format.c
UNIT_TESTS += tests/unit/test_roce.c
UNIT_TESTS += tests/unit/test_crc32.c
UNIT_TESTS += tests/unit/test_udp.c tests/unit/test_udp_trouble.c
test_udp_SRCS := tests/support/udp_bed.c tests/support/probe_alloc.c
test_udp_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
test_udp_trouble_SRCS := tests/support/udp_bed.c
test_udp_trouble_LDFLAGS := -Wl,--wrap=sendmmsg
UNIT_TESTS += tests/unit/test_fault.c
UNIT_TESTS += tests/unit/test_verbs.c tests/unit/test_pub_sends.c
FAKE_VERBS := tests/rdma/fake_verbs.c tests/rdma/fake_queues.c tests/rdma/fake_cm.c tests/rdma/fake_ledger.c
UNIT_TESTS += tests/unit/test_verbs_device.c
test_verbs_device_SRCS := $(FAKE_VERBS)
test_verbs_device_LDFLAGS := -Wl,--wrap=fopen,--wrap=tw_mono_ns
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
UNIT_TESTS += tests/unit/test_arb.c tests/unit/test_arb_session.c tests/unit/test_arb_world.c tests/unit/test_arb_repair.c tests/unit/test_arb_latest.c
test_arb_latest_SRCS := tests/unit/arb_scene.c tests/sim/ledger.c
test_arb_repair_SRCS := tests/unit/arb_scene.c tests/sim/ledger.c
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
test_gen_SRCS = $(GEN_SRCS)
UNIT_TESTS += tests/unit/test_gen_itch.c
test_gen_itch_SRCS = $(GEN_SRCS)
UNIT_TESTS += tests/unit/test_gen_mold.c
test_gen_mold_SRCS = $(GEN_SRCS)
UNIT_TESTS += tests/unit/test_iextp.c
UNIT_TESTS += tests/unit/test_tops16.c
UNIT_TESTS += tests/unit/test_wire_doc.c
UNIT_TESTS += tests/unit/test_gen_decode.c
test_gen_decode_SRCS = $(GEN_SRCS)
UNIT_TESTS += tests/unit/test_feed.c
test_feed_SRCS := tests/support/probe_alloc.c
test_feed_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
UNIT_TESTS += tests/unit/test_bus_file.c
UNIT_TESTS += tests/unit/test_sim_net.c
UNIT_TESTS += tests/unit/test_repair_wire.c
UNIT_TESTS += tests/unit/test_reader.c
test_reader_SRCS := tests/support/tcp_bed.c
UNIT_TESTS += tests/unit/test_read_server.c
test_read_server_SRCS := tests/support/tcp_bed.c
UNIT_TESTS += tests/unit/test_history_read.c
UNIT_TESTS += tests/unit/test_itch_data.c
UNIT_TESTS += tests/unit/test_civil.c
UNIT_TESTS += tests/unit/test_itch50_orders.c
UNIT_TESTS += tests/unit/test_moldudp64.c
UNIT_TESTS += tests/unit/test_itch50.c
UNIT_TESTS += tests/unit/test_itch50_book.c
UNIT_TESTS += tests/unit/test_itch50_feed.c
UNIT_TESTS += tests/unit/test_binaryfile.c
UNIT_TESTS += tests/unit/test_sub_repair.c
test_sub_repair_SRCS := tests/support/probe_alloc.c tests/support/pub_bed.c
test_sub_repair_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
UNIT_TESTS += tests/unit/test_sub_late.c
test_sub_late_SRCS := tests/support/probe_alloc.c tests/support/pub_bed.c
test_sub_late_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
UNIT_TESTS += tests/unit/test_spsc.c
UNIT_TESTS += tests/unit/test_repair.c tests/unit/test_repair_trust.c
test_repair_SRCS := tests/unit/repair_bed.c tests/sim/ledger.c tests/support/probe_alloc.c
test_repair_LDFLAGS := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free
test_repair_trust_SRCS := tests/unit/repair_bed.c tests/sim/ledger.c
UNIT_TESTS += tests/unit/test_bucket.c
UNIT_TESTS += tests/unit/test_exch.c
test_exch_SRCS = $(EXCH_SRCS) $(GEN_SRCS)
UNIT_TESTS += tests/unit/test_venue_arb.c
UNIT_TESTS += tests/unit/test_rerequest.c
UNIT_TESTS += tests/unit/test_input_multicast.c
UNIT_TESTS += tests/unit/test_publisher_channel.c
UNIT_TESTS += tests/unit/test_sub_failover.c
test_sub_failover_SRCS := tests/support/pub_bed.c
test_sub_failover_LDFLAGS := -Wl,--wrap=tw_site_load
UNIT_TESTS += tests/unit/test_rc_wire.c
UNIT_TESTS += tests/unit/test_rc_plan.c
UNIT_TESTS += tests/unit/test_reader_pair.c
