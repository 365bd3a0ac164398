#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs an NVIDIA GPU: build, compare with the CPU (bytes of the
# reference operations and the encoder, bounds of the fast products, layers and
# whole models through the public interface), look for
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
    cmake --build build/gpu --target check_cuda check_linear check_sample check_model bench_cuda tcq_command
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

code=0
"$bin/check_cuda" || code=$?
[ $code -ne 77 ] || skip "no GPU"
[ $code -eq 0 ] || exit $code
"$bin/check_linear"
"$bin/check_sample"

# Every family, small, in every form of weights; then two layers of a real shape.
echo "== models against the CPU"
tests/python/run tests/cuda/models.py "$work" "$bin/tcq" > "$work/list" || {
    [ $? -eq 77 ] || exit 1
    echo "check-gpu: the small models were not made: numpy or safetensors is missing"
}
for bits in 2 3 4; do
    "$bin/tcq" synth --shape smollm2-135m --layers 2 --bits $bits -o "$work/smol$bits" --quiet
    echo "$work/smol$bits" >> "$work/list"
done
mapfile -t models < "$work/list"
"$bin/check_model" "${models[@]}" > "$work/checks" || { grep -v '^ok' "$work/checks"; exit 1; }
tail -n 1 "$work/checks"

# The demo's model, packed at 4 bits: greedy text of prompts that both sides take
# in batches of up to 32 tokens.
real=${TCQ_GPU_MODEL:-build/demo/SmolLM2-135M-4bit}
if [ -d "$real" ]; then
    "$bin/check_model" "$real"
    for prompt in 'Once upon a time' 'The capital of France is' 'Water boils at' \
        'The first three prime numbers are' 'My favourite season is'; do
        for device in cpu cuda; do
            "$bin/tcq" run "$real" --raw "$prompt" -n 100 --quiet --device $device > "$work/$device"
        done
        cmp "$work/cpu" "$work/cuda"
    done
    echo "check-gpu: greedy text of $real is the CPU's"
else
    echo "check-gpu: $real is not there (make demo, then tcq quantize --bits 4): not compared"
fi

if command -v compute-sanitizer >/dev/null; then
    echo "== compute-sanitizer memcheck"
    compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/check_cuda" brief
    compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/check_linear"
    compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/check_sample" brief
    compute-sanitizer --tool memcheck --error-exitcode 1 "$bin/check_model" brief \
        "${models[0]}" "$work/smol3" > "$work/checks" || { cat "$work/checks"; exit 1; }
    echo "== compute-sanitizer racecheck"
    compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/check_cuda" brief
    compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/check_sample" brief
    compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/check_model" brief \
        "${models[0]}" "$work/smol3" > "$work/checks" || { cat "$work/checks"; exit 1; }
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
    "$bin/tcq" bench --device cuda
    "$bin/tcq" synth --shape qwen3-8b --bits 3 -o "$work/qwen3-8b" --quiet
    "$bin/tcq" bench --model "$work/qwen3-8b" --device cuda --json "$work/bench.json"
} | tee "$result"
python3 - "$work/bench.json" <<'PYTHON'
import json, sys
r = json.load(open(sys.argv[1]))
share = r["decode_linear_seconds"] / r["decode_seconds"]
sys.exit(f"check-gpu: decode is {share:.0%} of what its linear layers allow" if share < 0.7 else 0)
PYTHON
echo "check-gpu: times are in $result"
