# SPDX-License-Identifier: Apache-2.0
# A thin front to CMake: what a newcomer types.  `make help` lists the targets.
BUILD := build/release
# For cmake, e.g. CMAKE_ARGS=-DTCQ_CUDA=OFF; given again, it configures again.
CMAKE_ARGS ?=
# Where `make install` puts things, if not below /usr/local.
PREFIX ?=

.PHONY: all configure demo test check-full check-gpu bench install help clean

all: configure
	cmake --build $(BUILD)

configure: scripts/install-deps.sh
	@scripts/install-deps.sh
	@test -f $(BUILD)/build.ninja -a -z "$(CMAKE_ARGS)" || cmake --preset release $(CMAKE_ARGS)

demo: all
	@scripts/python-env.sh
	@scripts/demo.sh

test: all
	@scripts/python-env.sh
	@scripts/test.sh $(BUILD)

check-full: all
	@scripts/check-full.sh

check-gpu: configure
	@scripts/check-gpu.sh

bench: all
	$(BUILD)/bin/tcq bench

# ldconfig: a freshly installed shared library is found by programs only after it.
install: all
	cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))
	@if [ -z "$(DESTDIR)$(PREFIX)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

clean:
	rm -rf build

help:
	@echo "make            build into $(BUILD) (the command: $(BUILD)/bin/tcq)"
	@echo "make demo       pack a real language model at 4 bits, verify it, let it answer"
	@echo "make test       the tests"
	@echo "make check-full the long sweeps: every kernel shape, sanitizers, valgrind, fuzzing"
	@echo "make check-gpu  everything that needs an NVIDIA GPU"
	@echo "make bench      speed of the kernels beside the machine's limits"
	@echo "make install    header, libraries, tcq.pc, CMake package (PREFIX=/usr/local)"
