#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A virtual environment in build/venv with what the Python tests need.  The
# tests that need it are skipped, and say so, where it cannot be made.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=build/venv
stamp=$venv/requirements.txt
cmp -s tests/python/requirements.txt "$stamp" && exit 0
echo "making $venv with $(grep -v '^#' tests/python/requirements.txt | tr '\n' ' ')"
mkdir -p build
if python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check -r tests/python/requirements.txt; then
    cp tests/python/requirements.txt "$stamp"
else
    echo "no Python environment: the tests that compare with Python packages will be skipped" >&2
fi
