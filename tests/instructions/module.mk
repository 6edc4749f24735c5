# what valgrind counts instructions in: run.py
COUNTS += tests/instructions/count.c
count_SRCS := tests/instructions/null_fabric.c
count_LDFLAGS := -Wl,--wrap=tw_mono_ns,--wrap=tw_wall_ns
