#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install what building and testing need, on Debian and Ubuntu: say what is
# missing, then install just that.  Elsewhere, or without root, print the list.
# With --ci also what only the full CI run uses.
set -euo pipefail

packages=(build-essential cmake ninja-build pkg-config git
          libpthreadpool-dev libjansson-dev libcmocka-dev libpcre2-dev libutf8proc-dev libpng-dev
          python3 python3-venv unzip)
if [ "${1:-}" = --ci ]; then
    packages+=(clang libclang-rt-dev ccache valgrind
               gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
               libopenmpi-dev openmpi-bin)
fi

installed() {
    dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'
}

if ! command -v dpkg-query >/dev/null; then
    echo "not Debian or Ubuntu: make sure that the counterparts of these are installed: ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "missing packages, and neither root nor sudo to install them: apt-get install ${missing[*]}" >&2
        exit 1
    }
    as_root=(sudo)
fi
echo "installing missing packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
