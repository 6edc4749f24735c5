STRESS_TESTS += tests/stress/stress_clock.c
STRESS_TESTS += tests/stress/stress_counters.c
