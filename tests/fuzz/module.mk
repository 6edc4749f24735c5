FUZZERS += tests/fuzz/fuzz_datagram.c
FUZZERS += tests/fuzz/fuzz_frame.c
FUZZERS += tests/fuzz/fuzz_config.c
FUZZERS += tests/fuzz/fuzz_counters.c
FUZZERS += tests/fuzz/fuzz_capture.c
FUZZERS += tests/fuzz/fuzz_iextp.c
FUZZERS += tests/fuzz/fuzz_tops16.c
FUZZERS += tests/fuzz/fuzz_arb.c
