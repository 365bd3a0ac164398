#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Install into a temporary prefix, then build and run one small program against
# it in the three ways that users do: CMake package, pkg-config, static library.
set -euo pipefail
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR= cmake --install "$build" --prefix "$work/prefix" >/dev/null
mkdir "$work/program"
cat > "$work/program/main.c" <<'C'
#include <stdio.h>
#include <tcq.h>
int main(void)
{
    return printf("%s %d\n", tcq_version(), tcq_code_integer(0)) < 0;
}
C
cat > "$work/program/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(program LANGUAGES C)
find_package(tcq REQUIRED)
add_executable(program main.c)
target_link_libraries(program tcq::tcq)
CMAKE

expected="$(sed -n 's/^project(tcq VERSION \([0-9.]*\).*/\1/p' "$(dirname "$0")/../CMakeLists.txt") "
cmake -S "$work/program" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/program" | grep -q "^$expected"

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name tcq.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
flags() { pkg-config "$@" tcq; }
cc "$work/program/main.c" $(flags --cflags --libs) -o "$work/shared"
LD_LIBRARY_PATH=$libdir "$work/shared" | grep -q "^$expected"
cc "$work/program/main.c" $(flags --cflags) "$libdir/libtcq.a" \
    $(flags --static --libs-only-l | sed 's/-ltcq//') -o "$work/static"
"$work/static" | grep -q "^$expected"
echo "CMake package, pkg-config and static library: all build and run"
