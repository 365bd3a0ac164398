#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs an NVIDIA GPU: build, compare with the CPU (bytes of the
# reference operations and the encoder, bounds of the fast products), look for
# wrong accesses and races with compute-sanitizer, and time the kernels beside a
# copy and cuBLAS.  Times go to bench/results/.  Without a GPU it says so and
# succeeds.  With ready-made programs in TCQ_GPU_BIN nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() { printf 'check-gpu: SKIPPED: %s\n' "$*"; exit 0; }

bin=${TCQ_GPU_BIN:-build/gpu/bin}
if [ -z "${TCQ_GPU_BIN:-}" ]; then
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
    [ -n "$nvcc" ] || skip "no nvcc"
    command -v nvidia-smi >/dev/null || skip "no NVIDIA driver"
    configure() { # FOLDER OPTION...
        cmake -S . -B "$1" -G Ninja -DTCQ_CUDA=ON -DCMAKE_CUDA_COMPILER="$nvcc" \
            -DCMAKE_CUDA_ARCHITECTURES=native "${@:2}" >/dev/null
    }
    configure build/gpu
    cmake --build build/gpu --target check_cuda bench_cuda
    configure build/gpu-race -DTCQ_CUDA_RACECHECK=ON
    cmake --build build/gpu-race --target check_cuda
    cp build/gpu-race/bin/check_cuda build/gpu/bin/check_cuda_race
fi

code=0
"$bin/check_cuda" || code=$?
[ $code -ne 77 ] || skip "no GPU"
[ $code -eq 0 ] || exit $code

if command -v compute-sanitizer >/dev/null; then
    echo "== compute-sanitizer memcheck"
    compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/check_cuda" brief
    echo "== compute-sanitizer racecheck"
    compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/check_cuda_race" brief
else
    echo "check-gpu: no compute-sanitizer: wrong accesses and races were not looked for"
fi

mkdir -p "${TCQ_GPU_RESULTS:-bench/results}"
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' ' '-')
result=${TCQ_GPU_RESULTS:-bench/results}/gpu-$(date -u +%Y-%m-%d)-$name.txt
{
    date -u +'%Y-%m-%d %H:%M UTC'
    nvidia-smi --query-gpu=name,driver_version,clocks.max.sm,clocks.max.mem --format=csv,noheader
    "$bin/bench_cuda"
} | tee "$result"
echo "check-gpu: times are in $result"
