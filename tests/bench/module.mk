BENCHES += tests/bench/bench_bus.c
BENCHES += tests/bench/bench_udp.c
BENCHES += tests/bench/bench_decode.c
BENCHES += tests/bench/bench_feed.c
BENCHES += tests/bench/bench_flow.c
bench_flow_SRCS := tests/bench/flow.c
# beside other libraries, where they are
ifeq ($(shell pkg-config --exists libzmq norm 2>/dev/null && echo y),y)
BENCHES += tests/bench/bench_peers.c
bench_peers_SRCS := tests/bench/flow.c
bench_peers_LIBS := -lzmq -lnorm
endif
