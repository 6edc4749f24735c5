RDMA_TESTS += tests/rdma/rc_test.c tests/rdma/rc_lap.c tests/rdma/rc_lap_mutant.c
rc_test_SRCS := tests/rdma/rc_bed.c
rc_lap_SRCS := tests/rdma/rc_bed.c
rc_lap_mutant_SRCS := tests/rdma/rc_lap.c tests/rdma/rc_bed.c
# make bench-rdma
RDMA_TESTS += tests/rdma/bench_lat.c
bench_lat_SRCS := tests/rdma/rc_bed.c
RDMA_TESTS += tests/rdma/sub_events.c
sub_events_SRCS := tests/support/pub_bed.c
