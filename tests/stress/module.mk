STRESS_TESTS += tests/stress/stress_clock.c
STRESS_TESTS += tests/stress/stress_counters.c
STRESS_TESTS += tests/stress/stress_bus.c
STRESS_TESTS += tests/stress/stress_history.c
STRESS_TESTS += tests/stress/stress_read.c
