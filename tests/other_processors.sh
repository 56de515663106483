#!/bin/bash
# Builds the arithmetic of reductions for processors that this machine may not have, and runs its tests there:
#   tests/other_processors.sh
# Arm64: with a cross compiler, under an emulator (Debian: g++-aarch64-linux-gnu qemu-user). AVX-512: with this
# machine's compiler; its tests run where this processor has it. What is missing is said and left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
googletest=/usr/src/googletest/googletest  # libgtest-dev brings its source along
sources=(runtime/comm/reduce.cpp runtime/comm/reduce_baseline.cpp runtime/base/error.cpp runtime/base/dtype.cpp
  tests/comm/reduce_test.cpp)

# build OUTPUT COMPILER FLAGS...: the tests, statically linked, with the kernels' own flags.
build() {
  local output=$1 compiler=$2
  shift 2
  "$compiler" -std=c++17 -O1 -w -I"$googletest/include" -I"$googletest" "$googletest/src/gtest-all.cc" \
    "$googletest/src/gtest_main.cc" -c
  "$compiler" -std=c++20 -O3 -ffp-contract=off -DFMT_HEADER_ONLY -I"$OLDPWD" -I"$googletest/include" \
    -idirafter /usr/include -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wno-restrict -Werror "$@" \
    "${sources[@]/#/$OLDPWD/}" gtest-all.o gtest_main.o -static -lpthread -o "$output" 2> >(grep -vE 'getaddrinfo|SocketWriter' >&2)
}

left_out=0
cd "$folder"
if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64 >/dev/null; then
  echo "Arm64:"
  build arm64 aarch64-linux-gnu-g++
  qemu-aarch64 ./arm64 --gtest_brief=1
else
  echo "Arm64: left out, aarch64-linux-gnu-g++ or qemu-aarch64 is missing"
  left_out=1
fi
if [ "$(uname -m)" = x86_64 ]; then
  echo "AVX-512:"
  sources+=(runtime/comm/reduce_avx2.cpp)
  build avx512 g++ -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mf16c
  if grep -q avx512bw /proc/cpuinfo; then
    ./avx512 --gtest_brief=1
  else
    echo "built; this processor cannot run it"
  fi
fi
exit $((left_out ? 77 : 0))
