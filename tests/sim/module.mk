# simulations, and the judge that they share with the arbiter's unit tests and fuzzer
sim_protocol_SRCS := tests/sim/ledger.c tests/sim/world.c tests/sim/world_pub.c tests/sim/world_sub.c \
	tests/sim/world_repair.c
SIM_TESTS += tests/sim/sim_protocol.c
