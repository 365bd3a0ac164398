#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every target for the given time under address and undefined-behaviour
# sanitizers (clang): scripts/fuzz.sh [SECONDS] [TARGET...].  Inputs that found
# something new are kept in build/fuzz/found/TARGET; one that fails is written
# beside them and named in the last lines.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for program in build/fuzz/bin/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi
for name in "${targets[@]}"; do
    found=build/fuzz/found/$name
    mkdir -p "$found"
    dictionary=()
    [ -f "tests/fuzz/$name.dict" ] && dictionary=("-dict=tests/fuzz/$name.dict")
    echo "fuzz_$name: $seconds seconds"
    if ! "build/fuzz/bin/fuzz_$name" "${dictionary[@]}" -max_total_time="$seconds" -max_len=16384 \
        -timeout=10 -rss_limit_mb=4096 -malloc_limit_mb=1024 -artifact_prefix="build/fuzz/found/" \
        -print_final_stats=1 "$found" "tests/fuzz/corpus/$name" >"$found.log" 2>&1; then
        tail -n 40 "$found.log"
        exit 1
    fi
    grep -E 'stat::number_of_executed_units|stat::new_units_added|stat::peak_rss_mb' "$found.log"
done
