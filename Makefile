# Tidewire.  `make help` lists the targets; `make demo` and `make test` need nothing prepared.
#
#   PROFILE=release|debug|asan|ubsan|tsan|fuzz|coverage   (default release)
#   CC=gcc|clang   V=1 shows the commands   WERROR=1 makes warnings errors   O=DIR build root
#
# Every folder names its own sources in module.mk:
#   TW_SRCS        everything but mains: one internal archive, and what libtidewire is made from
#   LIB_DIRS       folders whose sources go into libtidewire
#   PROGRAMS       tw-NAME ...; tw-NAME_SRCS holds its main
#   UNIT_TESTS SIM_TESTS STRESS_TESTS RDMA_TESTS FUZZERS BENCHES COUNTS   one program for each file

PROFILE ?= release
O ?= build
ifeq ($(origin CC),default)
CC := gcc
endif
ifeq ($(PROFILE),fuzz)
CC := clang
endif
PROFILES := release debug asan ubsan tsan fuzz coverage
ifeq ($(filter $(PROFILE),$(PROFILES)),)
$(error unknown PROFILE=$(PROFILE): one of $(PROFILES))
endif

B := $(O)/$(PROFILE)$(if $(findstring clang,$(CC)),-clang)
Q := $(if $(V),,@)

WARN := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
	-Wformat=2 -Wundef -Wvla -Wcast-align $(if $(WERROR)$(CI),-Werror)
OPT_release := -O3
OPT_debug := -O0
OPT_asan := -O1 -fsanitize=address
OPT_ubsan := -O1 -fsanitize=undefined -fno-sanitize-recover=all
OPT_tsan := -O1 -fsanitize=thread $(if $(findstring clang,$(CC)),,-Wno-tsan)
OPT_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
OPT_coverage := -O0 --coverage
PKGS := yaml-0.1 libpcap zlib libdeflate libibverbs librdmacm
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS = $(shell pkg-config --libs $(PKGS) 2>/dev/null)
CPPFLAGS += -D_GNU_SOURCE -Iinclude -Icore -I. $(EXTRA_CPPFLAGS)
CFLAGS += -std=gnu17 -g -fno-omit-frame-pointer -fPIC -fvisibility=hidden -pthread $(WARN) \
	$(OPT_$(PROFILE)) $(EXTRA_CFLAGS)
LDFLAGS += -pthread $(filter -fsanitize=% --coverage,$(subst fuzzer-no-link$(comma),,$(OPT_$(PROFILE))))
LDLIBS = -Wl,--as-needed $(PKG_LIBS) -lm
comma := ,

TW_SRCS :=
LIB_DIRS :=
PROGRAMS :=
UNIT_TESTS :=
SIM_TESTS :=
STRESS_TESTS :=
RDMA_TESTS :=
FUZZERS :=
BENCHES :=
COUNTS :=
MODULES := $(sort $(wildcard core/*/module.mk core/*/*/module.mk config/module.mk feedhandler/module.mk \
	publisher/module.mk subscriber/module.mk tools/module.mk tests/*/module.mk))
include $(MODULES)

BIN := $(B)/bin
LIB := $(B)/lib
OBJS := $(TW_SRCS:%.c=$(B)/obj/%.o)
LIB_OBJS := $(filter-out $(B)/obj/core/fabric/sim/%,$(foreach d,$(LIB_DIRS),$(filter $(B)/obj/$(d)/%,$(OBJS))))
TESTS := $(UNIT_TESTS) $(SIM_TESTS) $(STRESS_TESTS) $(RDMA_TESTS) $(FUZZERS) $(BENCHES) $(COUNTS)
OTHER_SRCS := $(sort $(foreach p,$(PROGRAMS),$($(p)_SRCS)) $(TESTS) $(foreach t,$(TESTS),$($(notdir $(basename $(t)))_SRCS)))

.PHONY: all help
all: $(PROGRAMS:%=$(BIN)/%) $(LIB)/libtidewire.a $(LIB)/libtidewire.so ## build programs and library (default)

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 22
	@echo 'PROFILE=$(subst $() ,|,$(PROFILES))  CC=gcc|clang  V=1  WERROR=1  O=DIR'

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(if $(V),,@echo '  CC      $<')
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

$(LIB)/libtw-internal.a: $(OBJS)
	@mkdir -p $(@D)
	$(if $(V),,@echo '  AR      $@')
	$(Q)rm -f $@ && ar rcs $@ $(OBJS)

$(LIB)/libtidewire.a: $(LIB_OBJS)
	@mkdir -p $(@D)
	$(if $(V),,@echo '  AR      $@')
	$(Q)rm -f $@ && ar rcs $@ $(LIB_OBJS)

$(LIB)/libtidewire.so: $(LIB_OBJS) subscriber/libtidewire.map
	@mkdir -p $(@D)
	$(if $(V),,@echo '  LD      $@')
	$(Q)$(CC) -shared -Wl,-soname,libtidewire.so.0 -Wl,--version-script=subscriber/libtidewire.map \
		$(LDFLAGS) -o $@ $(LIB_OBJS) $(LDLIBS) && ln -sf libtidewire.so $(LIB)/libtidewire.so.0

# $(1) program, $(2) sources, $(3) extra libraries, $(4) extra link flags
define program_rule
$(1): $(2:%.c=$(B)/obj/%.o) $(LIB)/libtw-internal.a
	@mkdir -p $$(@D)
	$$(if $$(V),,@echo '  LD      $$@')
	$$(Q)$$(CC) $$(LDFLAGS) $(4) -o $$@ $(2:%.c=$(B)/obj/%.o) $$(LIB)/libtw-internal.a $$(LDLIBS) $(3)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$(BIN)/$(p),$($(p)_SRCS),$($(p)_LIBS),)))
test_bins = $(foreach t,$(1),$(B)/tests/$(2)/$(basename $(notdir $(t))))
$(foreach t,$(UNIT_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),unit),$(t) $($(notdir $(basename $(t)))_SRCS),-lcriterion,$($(notdir $(basename $(t)))_LDFLAGS))))
$(foreach t,$(SIM_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),sim),$(t) $($(notdir $(basename $(t)))_SRCS),,)))
$(foreach t,$(STRESS_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),stress),$(t) $($(notdir $(basename $(t)))_SRCS),,)))
$(foreach t,$(RDMA_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),rdma),$(t) $($(notdir $(basename $(t)))_SRCS),,)))
$(foreach t,$(FUZZERS),$(eval $(call program_rule,$(call test_bins,$(t),fuzz),$(t) $($(notdir $(basename $(t)))_SRCS),,-fsanitize=fuzzer)))
$(foreach t,$(BENCHES),$(eval $(call program_rule,$(call test_bins,$(t),bench),$(t) $($(notdir $(basename $(t)))_SRCS),$($(notdir $(basename $(t)))_LIBS),)))
$(foreach t,$(COUNTS),$(eval $(call program_rule,$(call test_bins,$(t),instructions),$(t) $($(notdir $(basename $(t)))_SRCS),,$($(notdir $(basename $(t)))_LDFLAGS))))

.PHONY: unit sim stress rdma fuzzers benches counts count-mutant
unit: $(call test_bins,$(UNIT_TESTS),unit)
sim: $(call test_bins,$(SIM_TESTS),sim)
stress: $(call test_bins,$(STRESS_TESTS),stress)
rdma: $(call test_bins,$(RDMA_TESTS),rdma)
fuzzers: $(call test_bins,$(FUZZERS),fuzz)
benches: $(call test_bins,$(BENCHES),bench)
counts: $(call test_bins,$(COUNTS),instructions)
count-mutant: counts # MUTANT_SRCS and OUT: of tests/instructions/run.py
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) $(LDFLAGS) $(count_LDFLAGS) -o $(OUT) $(MUTANT_SRCS) $(LIB)/libtw-internal.a $(LDLIBS)

-include $(OBJS:.o=.d) $(OTHER_SRCS:%.c=$(B)/obj/%.d)

# --- what people type ------------------------------------------------------------------------------
# A machine that cannot have the virtual machines is told so, and skips that tier.
SETUP_RDMA = tools/setup.sh rdma || echo 'setup: going on without rdma: its tests will be skipped'
.PHONY: demo test test-rdma rdma-shell bench bench-rdma instructions-renew fuzz lint lint-quick format docs setup install
demo: ## install what is missing, build, run the whole way of the data for ten seconds
	@tools/setup.sh build
	@$(MAKE) --no-print-directory -j$$(nproc) all
	@$(BIN)/tw-demo

test: ## install what is missing, run every tier
	@tools/setup.sh build test lint
	@$(SETUP_RDMA)
	@python3 tests/run.py

test-rdma: ## install what is missing, run the tier over real verbs, in virtual machines with Soft-RoCE
	@tools/setup.sh build test
	@$(SETUP_RDMA)
	@python3 tests/run.py rdma

rdma-shell: ## a shell in a virtual machine with Soft-RoCE devices
	@tools/setup.sh test rdma
	@python3 tests/rdma/bed.py shell

test-%: ## run one tier (tests/run.py --list names them)
	@python3 tests/run.py $*

bench: ## measure, as ratios between things of the same run
	@tools/setup.sh build test bench
	@$(MAKE) --no-print-directory -j$$(nproc) all benches
	@python3 tests/bench/run.py $(BIN) $(B)/tests/bench

bench-rdma: ## latency over verbs beside perftest's, in a virtual machine with Soft-RoCE
	@tools/setup.sh build test rdma
	@$(MAKE) --no-print-directory -j$$(nproc) all rdma
	@PYTHONPATH=tests/support:tests/rdma python3 tests/rdma/bench.py $(BIN)

instructions-renew: ## count the hot paths' instructions and make them what the bars of the tests stand above
	@tools/setup.sh build test
	@$(MAKE) --no-print-directory -j$$(nproc) counts
	@python3 tests/instructions/run.py $(B) --renew

fuzz: ## every fuzzer for 60 seconds (FUZZ_SECONDS=N)
	@tools/setup.sh build test
	@python3 tests/run.py --fuzz-seconds $(or $(FUZZ_SECONDS),60) fuzz

C_FILES = $(shell git ls-files --cached --others --exclude-standard -- '*.c' '*.h')
lint-quick: ## formatting, tokens, folder rule, ordering labels
	@clang-format --dry-run -Werror $(C_FILES)
	@tools/lint_tokens.sh

lint: ## lint-quick, clang-tidy and cppcheck
	@tools/setup.sh build lint
	@$(MAKE) --no-print-directory lint-quick
	@printf '%s\n' $(filter %.c,$(C_FILES)) | xargs -P 2 -n 8 sh -c 'clang-tidy --quiet --warnings-as-errors="*" "$$@" -- \
		$(CPPFLAGS) $(PKG_CFLAGS) -std=gnu17 2>/dev/null || { echo "clang-tidy: in one of: $$@"; exit 1; }' tidy
	@cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,portability \
		--suppress=missingIncludeSystem --suppress=unusedStructMember -Iinclude -Icore -I. -D__BYTE_ORDER__=1234 \
		-D__ORDER_LITTLE_ENDIAN__=1234 -D__x86_64__ $(filter-out tests/%,$(filter %.c,$(C_FILES)))

format: ## rewrite every C file with clang-format
	clang-format -i $(C_FILES)

docs: all ## write docs/CONFIG.md, docs/COUNTERS.md and config/sample.yaml from their tables
	$(BIN)/tw-gen-docs

setup: ## install what building, testing and linting need
	@tools/setup.sh build test lint
	@$(SETUP_RDMA)

PREFIX ?= /usr/local
install: all ## install programs, library and headers below PREFIX (DESTDIR is honoured)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib $(DESTDIR)$(PREFIX)/include/tidewire
	install -m 755 $(filter-out $(BIN)/tw-test-% %/tw-gen-docs,$(PROGRAMS:%=$(BIN)/%)) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(LIB)/libtidewire.a $(DESTDIR)$(PREFIX)/lib
	install -m 755 $(LIB)/libtidewire.so $(DESTDIR)$(PREFIX)/lib/libtidewire.so.0
	ln -sf libtidewire.so.0 $(DESTDIR)$(PREFIX)/lib/libtidewire.so
	install -m 644 include/tidewire/*.h $(DESTDIR)$(PREFIX)/include/tidewire

compile_commands.json: Makefile $(MODULES)
	$(file >$@,[)$(foreach s,$(TW_SRCS),$(file >>$@,{"directory":"$(CURDIR)","file":"$(s)","command":"$(CC) $(CPPFLAGS) $(CFLAGS) -c $(s)"},))$(file >>$@,{}])
	@echo wrote $@

.PHONY: clean
clean: ## remove the build folder
	rm -rf $(O)
