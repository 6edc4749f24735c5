BENCHES += tests/bench/bench_bus.c
BENCHES += tests/bench/bench_udp.c
BENCHES += tests/bench/bench_flow.c
