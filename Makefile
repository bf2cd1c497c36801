# dflash-parity: `make quick` judges the small cases, `make parity` gives the whole verdict, `make test` runs the test
# suites, `make help` lists the rest. Each installs what a fresh Debian machine lacks (or prints the line to run), builds,
# and runs.

VERSION := $(shell sed -n 's/^.define DFLASH_VERSION_[MP][A-Z]* \([0-9]*\)$$/\1/p' impl/include/dflash/api.h | paste -sd.)
CC      := gcc
BUILD   := build

# -ffp-contract=off: a product and a sum are fused only where the source says fma.
WARNINGS := -Wall -Wextra -Wconversion -Wshadow -Wcast-qual -Wstrict-prototypes -Wmissing-prototypes -Wvla
OPT      := -O2
CFLAGS   := -std=c17 $(OPT) -g -ffp-contract=off -fno-fast-math $(WARNINGS) $(if $(WERROR),-Werror) $(EXTRA_CFLAGS)
LDFLAGS  := $(EXTRA_LDFLAGS)

# Empty until .ci/setup has run; every target that compiles runs in a second make after it.
PACKAGES       = hdf5 libcjson
PACKAGE_CFLAGS = $(shell pkg-config --cflags $(PACKAGES))
PACKAGE_LIBS   = $(shell pkg-config --libs $(PACKAGES)) -lpthread -lm
CPPFLAGS       = -D_GNU_SOURCE -Iimpl/include -Iimpl -Iharness -I$(BUILD) $(PACKAGE_CFLAGS) -MMD -MP

# The CPU's operations are one text compiled for three instruction sets, with the same bits from each.
ISA_SOURCES   := matmul rmsnorm rope_apply attention conv elementwise probe table
FLAGS_generic :=
FLAGS_avx2    := -mavx2 -mfma -mf16c
FLAGS_avx512  := -mavx512f -mavx2 -mfma -mf16c -mprefer-vector-width=512
MACHINE       := $(shell uname -m)
ISAS          := generic $(if $(filter x86_64,$(MACHINE)),avx2 avx512)

IMPL_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(filter-out impl/cpu/%,$(wildcard impl/*/*.c)) impl/cpu/heads.c) \
                $(foreach isa,$(ISAS),$(ISA_SOURCES:%=$(BUILD)/impl/cpu/$(isa)/%.o))
# The CUDA backend, where nvcc is. CUDA_ARCHS=90 builds for one architecture alone, which is quicker; the last one listed
# also leaves PTX for devices to come. -fmad=false: as -ffp-contract=off. cuBLAS is loaded by the class that needs it, from
# the folder that -rpath names or the loader's own.
NVCC       := $(shell command -v nvcc 2>/dev/null)
CUDA_ARCHS := 80 90 100 120
ifneq ($(NVCC),)
CUDA_HOME    := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_FLAGS   := -std=c++17 -O3 -lineinfo -fmad=false $(if $(WERROR),-Werror all-warnings) \
                $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
                -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
                -Xcompiler -Wall,-Wextra,-ffp-contract=off $(EXTRA_CUDA_FLAGS)
CUDA_OBJECTS := $(patsubst %.cu,$(BUILD)/%.o,$(wildcard impl/cuda/*.cu impl/cuda/*/*.cu))
CUDA_LIBS    := -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -ldl -lrt
CUDA_FACTS   := $(lastword $(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')) for sm $(CUDA_ARCHS)
IMPL_OBJECTS += $(CUDA_OBJECTS)
CPPFLAGS     += -DDF_WITH_CUDA
endif

MAIN_OBJECT     := $(BUILD)/harness/cli/main.o
HARNESS_OBJECTS := $(filter-out $(MAIN_OBJECT) $(BUILD)/harness/tests/%,$(patsubst %.c,$(BUILD)/%.o,$(wildcard harness/*/*.c)))
TEST_OBJECTS    := $(patsubst %.c,$(BUILD)/%.o,$(wildcard harness/tests/*.c harness/tests/*/*.c))
OBJECTS         := $(IMPL_OBJECTS) $(HARNESS_OBJECTS) $(TEST_OBJECTS) $(MAIN_OBJECT)

.PHONY: api quick parity test bench identity soak gpu-record build oracles sanitize format clean distclean help setup release-check
.PHONY: run-quick run-parity run-test run-bench run-identity run-soak run-gpu-record build-facts build-flags source-digests

help:
	@echo 'make quick     the CPU program alone, and the verdict over the small cases'
	@echo 'make parity    verdict over every case of fixtures/cases.json'
	@echo 'make test      the test suites'
	@echo 'make identity  the same bits however the work is cut, full-size cases included'
	@echo 'make soak      1,000 isolated runs on random inputs: no bound may raise a false alarm'
	@echo 'make bench     times and memory of the full-size case, as a table and as reports/out/bench.json'
	@echo 'make build     build/dflash-parity alone'
	@echo 'make oracles   run the upstream reference and write oracles/*.h5 again (ONLY=GLOB for some)'
	@echo 'make sanitize  the test suites under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make gpu-record NAME=x  on a machine with a GPU: run everything there, write reports/gpu/x.record.json'
	@echo 'make api       which case of the gate judges each public function, measured'
	@echo 'make release-check  fails unless the records of GPUs were made of these sources'
	@echo 'make format    clang-format over the sources'
	@echo 'make library   libdflash.a, libdflash.so and dflash.pc'
	@echo 'make install   program, libraries and headers (DESTDIR, PREFIX); make uninstall removes them'
	@echo 'make dist      the sources of this commit as one archive'
	@echo 'make clean     remove what was built, and keep downloads and checkpoints; make distclean removes all'

# Most goals run a make of their own over the same objects: several goals are done one after another.
ifneq ($(word 2,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

parity test bench identity soak gpu-record: setup
	@$(MAKE) --no-print-directory run-$@

build: setup
	@$(MAKE) --no-print-directory $(BUILD)/dflash-parity

setup:
	@.ci/setup
	@command -v nvcc >/dev/null 2>&1 || echo 'nvcc is not here: building the CPU backend alone' >&2

# What the program alone needs, and no CUDA, which takes minutes to compile.
quick:
	@.ci/setup program
	@echo 'building the CPU program alone; make build adds the CUDA backend where nvcc is, which takes minutes' >&2
	@$(MAKE) --no-print-directory NVCC= run-quick

run-quick: $(BUILD)/dflash-parity
	$(BUILD)/dflash-parity gate -k 'tiny-*'

run-parity: $(BUILD)/dflash-parity
	$(BUILD)/dflash-parity gate

# What runs on a GPU is proved by its record; here it is only said whether that is fresh.
run-test: $(BUILD)/tests $(BUILD)/dflash-parity $(BUILD)/draft_loop
	@.ci/rooms
	@$(BUILD)/dflash-parity release-check || true
	$(BUILD)/tests

NAME := gpu
run-gpu-record: $(BUILD)/tests $(BUILD)/dflash-parity
	reports/gpu/record.sh --binary $(BUILD)/dflash-parity --tests $(BUILD)/tests --out $(BUILD)/gpu \
	    --record 'reports/gpu/$(NAME).record.json' --name '$(NAME)'

api: setup
	@MAKE='$(MAKE)' CC='$(CC)' BUILD='$(BUILD)' .ci/api

release-check: build
	$(BUILD)/dflash-parity release-check

run-identity: $(BUILD)/dflash-parity
	@mkdir -p reports/out
	$(BUILD)/dflash-parity identity --case '*' --out reports/out/identity.json

run-soak: $(BUILD)/dflash-parity
	$(BUILD)/dflash-parity soak

# With the environment of `make oracles` the reference is timed beside it; with gnuplot the cost is drawn.
run-bench: $(BUILD)/dflash-parity
	@mkdir -p reports/out
	$(BUILD)/dflash-parity bench --out reports/out/bench.json --sweep reports/out/cost.txt \
	    $(if $(wildcard $(VENV)/ready),--torch $(VENV)/bin/python)
	gnuplot -d reports/cost.gp

# A test that leaks fails as well, in its own process and in the programs that it starts (the suite `sanitizer` sees that
# leaks are looked for at all). A damaged file may say that it needs more memory than there is, which malloc refuses.
sanitize: setup
	@ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 $(MAKE) --no-print-directory run-test BUILD=$(BUILD)/sanitize \
	    EXTRA_CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=undefined' EXTRA_LDFLAGS='-fsanitize=address,undefined'

# One short line a file; V=1 shows the commands.
say = $(if $(V),,@printf '%-3s %s\n' $(1) '$(2)';)

# The end of a recipe that wrote $$new: it becomes the target if it differs, so that what hangs on it is made again only
# then.
replace = if cmp -s $$new $@; then rm $$new; else mv $$new $@; fi

# ---- Compiling ------------------------------------------------------------------------------------------------------

$(BUILD)/dflash-parity: $(MAIN_OBJECT) $(HARNESS_OBJECTS) $(IMPL_OBJECTS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(CUDA_LIBS) $(PACKAGE_LIBS)

$(BUILD)/tests: $(TEST_OBJECTS) $(HARNESS_OBJECTS) $(IMPL_OBJECTS)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(CUDA_LIBS) $(PACKAGE_LIBS) $(shell pkg-config --libs check)

$(BUILD)/harness/tests/%.o: harness/tests/%.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) -Iharness/tests -DDP_BUILD_DIR='"$(BUILD)"' $(shell pkg-config --cflags check) $(CFLAGS) -c -o $@ $<

$(BUILD)/%.o: %.cu
	@mkdir -p $(@D)
	$(call say,NV,$<)$(NVCC) -D_GNU_SOURCE -DDF_WITH_CUDA -Iimpl/include -Iimpl $(CUDA_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# What compiles, and flags that change the code: other ones compile everything again.
$(OBJECTS): $(BUILD)/flags.txt
$(BUILD)/flags.txt: build-flags
	@mkdir -p $(@D)
	@new=$@.$$$$; { $(CC) --version | head -n 1; \
	   printf '%s\n' '$(CC)' '$(filter-out -Werror,$(CFLAGS))' '$(CPPFLAGS)' '$(foreach isa,$(ISAS),$(FLAGS_$(isa)))' \
	       '$(NVCC) $(CUDA_FACTS)' '$(filter-out -Werror all-warnings,$(CUDA_FLAGS))'; } > $$new; \
	    $(replace)

define isa_rule
$(BUILD)/impl/cpu/$(1)/%.o: impl/cpu/%.c
	@mkdir -p $$(@D)
	$$(call say,CC,$$< ($(1)))$$(CC) $$(CPPFLAGS) $$(CFLAGS) -O3 $$(FLAGS_$(1)) -DDF_ISA=$(1) -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# Facts for --version and reports.
$(BUILD)/harness/base/environment.o: $(BUILD)/build_facts.h
$(BUILD)/build_facts.h: build-facts
	@mkdir -p $(@D)
	@new=$@.$$$$; { echo '#define DP_BUILD_VERSION "$(VERSION)"'; \
	   echo "#define DP_BUILD_COMMIT \"$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)\""; \
	   echo "#define DP_BUILD_DIRTY $$(git diff --quiet HEAD 2>/dev/null && echo 0 || echo 1)"; \
	   echo "#define DP_BUILD_COMPILER \"$$($(CC) --version | head -n 1)\""; \
	   echo '#define DP_BUILD_FLAGS "$(CFLAGS)"'; \
	   echo '#define DP_BUILD_CUDA "$(or $(CUDA_FACTS),not built)"'; } > $$new; \
	    $(replace)

# The files that a record of a GPU stands for: what computes, what judges, and by what.
RECORD_ROOMS := base store run limits formulas preflight judge check vectors identity cli tests/cuda
SOURCES_OF_RECORD := $(sort $(filter %.c %.h %.cu %.cuh,$(wildcard impl/*/* impl/cuda/*/* $(RECORD_ROOMS:%=harness/%/*))) \
                     fixtures/cases.json $(wildcard oracles/*.h5))
$(BUILD)/harness/bench/source_digests.o: $(BUILD)/source_digests.inc
$(BUILD)/source_digests.inc: source-digests
	@mkdir -p $(@D)
	@new=$@.$$$$; sha256sum $(SOURCES_OF_RECORD) | sed 's/^\([0-9a-f]*\) [ *]\(.*\)$$/    {"\2", "\1"},/' > $$new; \
	    $(replace)

# ---- The reference ----------------------------------------------------------------------------------------------------

VENV := $(BUILD)/oracle-venv
$(VENV)/ready: oracles/requirements.txt oracles/requirements-nodeps.txt oracles/requirements-transformers4.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install -q -r oracles/requirements.txt
	$(VENV)/bin/pip install -q --no-deps -r oracles/requirements-nodeps.txt
	$(VENV)/bin/pip install -q --no-deps --upgrade --target $(VENV)/transformers4 -r oracles/requirements-transformers4.txt
	touch $@

# Checkpoints that are not stored are written by the gate the first time; the generator needs them too.
oracles: build $(VENV)/ready
	$(BUILD)/dflash-parity gate --prepare $(if $(ONLY),-k '$(ONLY)')
	$(VENV)/bin/python oracles/generate.py --cases fixtures/cases.json $(if $(ONLY),--only '$(ONLY)')
	$(if $(ONLY),,$(VENV)/bin/python oracles/vectors.py --transformers4 $(VENV)/transformers4)

# ---- Housekeeping -------------------------------------------------------------------------------------------------------

format:
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh')

# Downloads and full-size checkpoints stay.
clean:
	@[ ! -d $(BUILD) ] || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name oracle-venv ! -name checkpoints -exec rm -rf {} +

distclean:
	rm -rf $(BUILD)

include package.mk

-include $(OBJECTS:.o=.d)
