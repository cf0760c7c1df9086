# What one does with this repository. `make run` and `make test` do all their
# own set-up; nothing is left running and nothing is written outside this tree
# but what cargo and pip cache, apt's lists, and by `make install`. A package is
# installed only as root: g++ and python3 where they are missing, and redis-server,
# Chromium or valgrind where they can be had in no other way.

CARGO ?= cargo
CC ?= cc
PYTHON ?= python3
# What is built to be used and installed; PROFILE=dev is sooner there, and slower.
PROFILE ?= release
# Where everything is built: cargo is told so, whatever folder or machine else it would build
# for. Never of the environment, as parts of it are deleted, and never a whole path, as that
# may have a space.
TARGET_FOLDER := target
export CARGO_TARGET_DIR := $(CURDIR)/$(TARGET_FOLDER)
unexport CARGO_BUILD_TARGET
RELEASE := $(TARGET_FOLDER)/$(PROFILE:dev=debug)
DEBUG := $(TARGET_FOLDER)/debug
CFLAGS := -std=c11 -O2 -Wall -Wextra
# Where NVIDIA's toolkit is.
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),$(CUDA_HOME)/bin/nvcc)
CUDART_STATIC = $(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a \
	$(CUDA_HOME)/targets/*/lib/libcudart_static.a /usr/lib/*/libcudart_static.a))
# Where the runs on a GPU leave their results.
RESULTS ?= $(or $(OUT),$(RELEASE))

.PHONY: build product command library one-word simulator run named test test-compat test-torch test-threads gpu-build test-gpu bench bench-count bench-ready \
	bench-build bench-gpu check-exports fmt lint doc clean test-build fragment fragment-static conformance conformance-doc charts screenshots \
	book drawings

build: product simulator

# The command and the library. The preloaded library is built by itself, so that
# no feature of the command finds its way into it. `sudo make install` may find no
# cargo, or one that is too old or without a toolchain: then what was built before is used.
RUST := $(shell sed -n 's/^rust-version = "1\.\(.*\)"/\1/p' Cargo.toml)
CAN_BUILD := $(shell $(CARGO) --version 2>/dev/null | awk -F '[ .]' '$$1 == "cargo" && ($$2 > 1 || $$3 >= $(RUST))')
NO_CARGO := no $(CARGO) of 1.$(RUST) or later works here
ifneq ($(CAN_BUILD),)
product: command library $(RELEASE)/NOTICES
else
product:
	@[ -e $(RELEASE)/memcuda ] && [ -e $(RELEASE)/libmemcuda.so ] && [ -e $(RELEASE)/NOTICES ] || { $(CARGO) --version; \
		echo "$(NO_CARGO), and there is nothing built in $(RELEASE): make build, as whoever has one" >&2; exit 1; }
	@echo "$(NO_CARGO): $(RELEASE) is used as it is"
endif

# Only the library is optimized across crates: the command's build would take half as long again.
FOR_COMMAND := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
command:
	$(FOR_COMMAND) $(CARGO) build --profile $(PROFILE) -p memcuda

library:
	$(CARGO) build --profile $(PROFILE) -p memcuda-shim

# The licences of the crates in both.
$(RELEASE)/NOTICES: Cargo.lock packaging/notices.py
	@mkdir -p $(RELEASE)
	$(PYTHON) packaging/notices.py $@ $(CARGO)

# What runs on the library from here, or links against files of here by RUSTFLAGS.
one-word:
	@case "$(CURDIR)" in *[\ :]*) \
		echo "$(CURDIR): a path with a space or a colon cannot be written in LD_PRELOAD; move this folder" >&2; exit 1 ;; \
	esac

simulator:
	$(CARGO) build --profile $(PROFILE) -p memcuda-sim-cuda -p memcuda-sim-cudart -p memcuda-sim-nvml
	sim/install.sh $(RELEASE)

test-build:
	$(MAKE) PROFILE=dev library simulator

# The C example bare and on the pool, two programs with one name, a recorded
# trace, a table. Needs no Python, as packages do.
run: one-word command library simulator fragment named
	@examples/run.sh $(RELEASE)

# Everything that needs no GPU.
test: one-word test-build
	tests/support/tools.sh
	MEMCUDA_TESTS_BUILT=1 $(CARGO) test --workspace --no-fail-fast

fragment: examples/fragment.c simulator
	$(CC) $(CFLAGS) $< -o $(RELEASE)/fragment -L$(RELEASE)/sim -l:libcudart.so.13

named: examples/named.c simulator
	$(CC) $(CFLAGS) $< -o $(RELEASE)/named -L$(RELEASE)/sim -l:libcudart.so.13

# The same over NVIDIA's runtime, linked statically.
fragment-static: examples/fragment.c
	@mkdir -p $(RELEASE)
	@[ -n "$(CUDART_STATIC)" ] || { echo "no libcudart_static.a below CUDA_HOME=$(CUDA_HOME)" >&2; exit 1; }
	$(CC) $(CFLAGS) $< -o $(RELEASE)/fragment-static $(CUDART_STATIC) -ldl -lpthread -lrt

# What a program can ask of the driver about memory, as one program.
conformance:
	@mkdir -p $(RELEASE)
	CC=$(CC) tests/conformance/build.sh $(RELEASE)/conformance

# docs/conformance.md, from the runs that tests/gpu/conformance.py recorded.
conformance-doc: conformance
	$(RELEASE)/conformance --list >$(RELEASE)/conformance.list
	tests/conformance/document.py $(RELEASE)/conformance.list >$(RELEASE)/conformance.md
	mv $(RELEASE)/conformance.md docs/conformance.md

# NVIDIA's own runtimes over the simulated driver, an old glibc and PyTorch's reader of
# snapshots. Fetches them (pip, apt-get) into target/compat.
test-compat: build wheel-portable
	$(PYTHON) tests/compat/cudart.py
	$(PYTHON) tests/compat/old_glibc.py
	$(PYTHON) tests/compat/wheel.py
	$(PYTHON) tests/compat/memory_viz.py

# The real allocators of PyTorch's releases over the simulated GPU. Fetches their wheels
# into target/compat, 7 GB the first time, of which 20 MB stay.
test-torch: build
	$(PYTHON) tests/compat/torch_allocators.py

# Programs with many threads, the library under LLVM's ThreadSanitizer.
test-threads: test-build
	tests/threads/run.sh $(DEBUG)

# The pictures of docs/live.md.
screenshots: test-build
	mkdir -p docs/images
	MEMCUDA_SCREENSHOTS="$(CURDIR)/docs/images" $(CARGO) test -p memcuda --test cli browser

# The charts and tables of docs, from the committed results or from
# RESULTS="a.jsonl b.jsonl".
charts:
	$(PYTHON) docs/charts/draw.py $(if $(filter command,$(origin RESULTS)),$(RESULTS))

# What things cost without a GPU, about 10 minutes: in the pool, in instructions,
# through the hooks over the simulated GPU, in the keeper, for names, and what
# recorded jobs would hold. JSON=FILE appends the results to a file, one object
# a line, but those of the keeper and of names, which are printed only;
# benches/compare.py lays two such files side by side.
JSON ?=
AS_JSON := $(if $(JSON),--json >>$(JSON))
POOL_BENCH = $(CARGO) bench -p memcuda --no-default-features --bench
bench: build
	$(POOL_BENCH) pool -- $(AS_JSON)
	-$(POOL_BENCH) count -- $(AS_JSON)
	$(PYTHON) benches/hooks.py --release $(RELEASE) $(AS_JSON)
	$(PYTHON) benches/replay.py --memcuda $(RELEASE)/memcuda $(AS_JSON)
	$(FOR_COMMAND) $(CARGO) bench -p memcuda --bench keeper
	benches/names.sh $(RELEASE)
	$(PYTHON) benches/traces.py --release $(RELEASE) $(AS_JSON)

# Instructions of a malloc and its free, against those in benches/count;
# UPDATE=1 writes them down. The same on every x86-64 machine.
bench-count bench-ready: export RUSTFLAGS :=
bench-count: library simulator
	$(POOL_BENCH) count -- $(if $(UPDATE),--update)

# What is counted, built alone.
bench-ready: library simulator
	$(POOL_BENCH) count --no-run

# The pool's bench as a program, to be run on another machine.
bench-build: build
	$(POOL_BENCH) pool --no-run
	cp "$$(ls -t $(RELEASE)/deps/pool-* | grep -v '\.d$$' | head -n 1)" $(RELEASE)/bench-pool

# A machine with a GPU may have no cargo: then what was built elsewhere is used.
ifneq ($(CAN_BUILD),)
gpu-build: build test-build
else
gpu-build:
	@for file in $(RELEASE)/libmemcuda.so $(RELEASE)/memcuda $(DEBUG)/libmemcuda.so; do \
		[ -e $$file ] || { echo "$(NO_CARGO), and there is no $$file: build it elsewhere (make build test-build)" >&2; exit 1; }; \
	done
	@echo "$(NO_CARGO): $(RELEASE) and $(DEBUG) are used as they are"
endif

# The command, the examples and the real frameworks on a real GPU, about 30
# minutes in all; GPU_TESTS="smoke identical" runs only those. Fails, and says so,
# where something is missing. GPU_TESTS=suites runs other projects' own tests, whose
# sources are in the folder SOURCES (tests/gpu/suites.py), GPU_TESTS=samples NVIDIA's
# samples, built in the folder PROGRAMS (tests/gpu/samples.py).
GPU_TESTS ?= smoke conformance random_calls random_programs random_torch starvation identical keep_parity frameworks ipc names checkpoint
test-gpu: gpu-build
	@failed=; \
	for name in $(GPU_TESTS); do \
		echo "== tests/gpu/$$name"; \
		case $$name in \
		smoke) PYTHON=$(PYTHON) tests/gpu/smoke.sh $(RELEASE) ;; \
		conformance) $(PYTHON) tests/gpu/conformance.py --out $(RESULTS)/conformance-gpu ;; \
		frameworks) $(PYTHON) tests/gpu/frameworks.py --results $(RESULTS)/frameworks.jsonl ;; \
		names) $(PYTHON) tests/gpu/names.py --results $(RESULTS)/names.jsonl ;; \
		suites) OUT=$(RESULTS) $(PYTHON) tests/gpu/suites.py --sources "$(SOURCES)" ;; \
		samples) OUT=$(RESULTS) $(PYTHON) tests/gpu/samples.py --programs "$(PROGRAMS)" ;; \
		*) $(PYTHON) tests/gpu/$$name.py ;; \
		esac || failed="$$failed $$name"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# All that is measured on a GPU, under an hour and a half with 5 repeats (REPEATS=1 for a
# quick look). All but `pair` go on where an earlier run left off, DEADLINE seconds each;
# WHEELS is a folder with RMM's wheels. GPU_BENCHES="matrix" runs only that.
REPEATS ?= 5
DEADLINE ?= inf
GPU_BENCHES ?= pair matrix turns largest_batch together
bench-gpu: gpu-build
	@failed=; \
	for name in $(GPU_BENCHES); do \
		echo "== benches/gpu/$$name"; \
		results=$(RESULTS)/$$name.jsonl; \
		case $$name in \
		pair) $(NVCC) -O2 -o $(RELEASE)/pair benches/gpu/pair.cu -L$(CUDA_HOME)/lib64/stubs -lcuda && \
			$(PYTHON) benches/gpu/pair.py $(RELEASE)/pair --repeats $(REPEATS) --results $$results ;; \
		matrix) $(PYTHON) benches/gpu/matrix.py --repeats $(REPEATS) --deadline $(DEADLINE) \
			$(if $(WHEELS),--wheels $(WHEELS)) --results $$results ;; \
		turns) $(PYTHON) benches/gpu/turns.py --repeats $(REPEATS) --steps 40 --deadline $(DEADLINE) --results $$results ;; \
		together) $(PYTHON) benches/gpu/together.py --repeats $(REPEATS) --deadline $(DEADLINE) --results $$results ;; \
		*) $(PYTHON) benches/gpu/$$name.py --deadline $(DEADLINE) --results $$results ;; \
		esac || failed="$$failed $$name"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# The symbols of libmemcuda.so: those of the list, no more and no fewer; of no newer glibc; none inside.
check-exports: library
	shim/check-exports.sh $(RELEASE)/libmemcuda.so
	shim/check-floor.sh $(RELEASE)/libmemcuda.so
	shim/check-stripped.sh $(RELEASE)/libmemcuda.so

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

# docs/ as a book of web pages, in target/book. Cargo builds mdbook at the first time,
# in about a minute, without what it needs to serve and to watch.
MDBOOK := target/tools/bin/mdbook
book: $(MDBOOK)
	rm -rf target/book
	$(MDBOOK) build docs
	$(PYTHON) packaging/book.py target/book

$(MDBOOK):
	$(CARGO) install mdbook --version 0.5.4 --locked --no-default-features --features search --debug \
		--root target/tools --target-dir target/tools/build
	rm -rf target/tools/build

# The drawings of docs/how-it-works.md; those with figures are `charts`.
drawings:
	$(PYTHON) docs/drawings/draw.py

clean:
	$(CARGO) clean

include packaging/install.mk
