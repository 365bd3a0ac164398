#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a build folder and says what was skipped and why, which
# CTest keeps to its log.
#   scripts/test.sh BUILD [CTEST ARGUMENTS]
set -euo pipefail

build=$1
shift
log=$build/Testing/Temporary/LastTest.log
output=$(mktemp)
trap 'rm -f "$output"' EXIT
rc=0
ctest --test-dir "$build" --output-on-failure "$@" | tee "$output" || rc=$?

# Whole tests are skipped by their exit code, parts of them by cmocka and unittest.
[ ! -f "$log" ] || awk '
    function add(what, reason) {
        if (!seen[what]++) list = list "\n  " what ": " reason
    }
    /^[0-9]+\/[0-9]+ Test: /            { name = $3; reason = "not run" }
    /^not run: /                         { reason = substr($0, 10) }
    /^([a-z_]+: )?(skipped|SKIPPED): /   { sub(/^.*(skipped|SKIPPED): /, ""); add(name, $0) }
    /^\[  SKIPPED \] [a-z_0-9]+$/        { add(name " (" $4 ")", reason) }
    /^OK \(skipped=[0-9]+\)$/            { add(name " (parts of it)", $2) }
    END { if (list) print "\nSkipped:" list }' "$log"

total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$output")
failed=$(sed -n 's/.* \([0-9]*\) tests failed out of [0-9]*$/\1/p' "$output")
skipped=$(grep -c '(Skipped)$' "$output" || true)
[ -z "$total" ] || echo "$((total - failed - skipped)) passed, $failed failed, $skipped skipped"
exit "$rc"
