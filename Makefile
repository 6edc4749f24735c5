# Tidewire.  `make help` lists the targets; `make demo` and `make test` need nothing prepared.
#
#   PROFILE=release|debug|asan|ubsan|tsan|fuzz|coverage   (default release)
#   CC=gcc|clang   V=1 shows the commands   WERROR=1 makes warnings errors   O=DIR build root
#
# Every folder names its own sources in module.mk:
#   TW_SRCS        everything but mains: one internal archive, and what libtidewire is made from
#   LIB_DIRS       folders whose sources go into libtidewire
#   PROGRAMS       tw-NAME ...; tw-NAME_SRCS holds its main
#   UNIT_TESTS SIM_TESTS STRESS_TESTS FUZZERS BENCHES   one program for each file

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
PKGS := yaml-0.1 libpcap zlib libdeflate
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
FUZZERS :=
BENCHES :=
MODULES := $(sort $(wildcard core/*/module.mk core/*/*/module.mk config/module.mk feedhandler/module.mk \
	publisher/module.mk subscriber/module.mk tools/module.mk tests/*/module.mk))
include $(MODULES)

BIN := $(B)/bin
LIB := $(B)/lib
OBJS := $(TW_SRCS:%.c=$(B)/obj/%.o)
LIB_OBJS := $(foreach d,$(LIB_DIRS),$(filter $(B)/obj/$(d)/%,$(OBJS)))
ALL_MAINS := $(foreach p,$(PROGRAMS),$($(p)_SRCS)) $(UNIT_TESTS) $(SIM_TESTS) $(STRESS_TESTS) $(FUZZERS) $(BENCHES)

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
$(foreach t,$(SIM_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),sim),$(t),,)))
$(foreach t,$(STRESS_TESTS),$(eval $(call program_rule,$(call test_bins,$(t),stress),$(t),,)))
$(foreach t,$(FUZZERS),$(eval $(call program_rule,$(call test_bins,$(t),fuzz),$(t),,-fsanitize=fuzzer)))
$(foreach t,$(BENCHES),$(eval $(call program_rule,$(call test_bins,$(t),bench),$(t) $($(notdir $(basename $(t)))_SRCS),$($(notdir $(basename $(t)))_LIBS),)))

.PHONY: unit sim stress fuzzers benches
unit: $(call test_bins,$(UNIT_TESTS),unit)
sim: $(call test_bins,$(SIM_TESTS),sim)
stress: $(call test_bins,$(STRESS_TESTS),stress)
fuzzers: $(call test_bins,$(FUZZERS),fuzz)
benches: $(call test_bins,$(BENCHES),bench)

-include $(OBJS:.o=.d) $(ALL_MAINS:%.c=$(B)/obj/%.d)

.PHONY: clean
clean: ## remove the build folder
	rm -rf $(O)
