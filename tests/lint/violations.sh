#!/bin/bash
# The include lint accepts a small good tree, and names file, line and reason for each violation put into it.
# Usage: violations.sh <root of the repository>
set -euo pipefail
lint=$1/.ci/lint_includes
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

fresh_tree() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/runtime/{base,comm,comm/mpi,data,gradsync,optim} "$tree"/models/layers
  printf 'base → comm → data, gradsync → optim → models → tests\n' >"$tree/README.md"
  printf '#include <vector>\n' >"$tree/runtime/base/error.h"
  printf '#include "runtime/base/error.h"\n' >"$tree/runtime/comm/communicator.h"
  printf '#include <mpi.h>\n#include <unistd.h>\n' >"$tree/runtime/comm/mpi/world.cpp"
  printf '#include "runtime/comm/communicator.h"\n' >"$tree/runtime/gradsync/plan.h"
  printf '#include "runtime/base/error.h"\n' >"$tree/runtime/data/source.h"
  printf 'rondo_library(base)\n' >"$tree/runtime/base/CMakeLists.txt"
  printf 'rondo_library(comm DEPENDS rondo_base)\n' >"$tree/runtime/comm/CMakeLists.txt"
  printf 'rondo_library(comm_mpi DEPENDS\n  rondo_comm PRIVATE MPI::MPI_C)\n' >"$tree/runtime/comm/mpi/CMakeLists.txt"
}

# expect_violation <path> <line to append> <text that the complaint must contain>
expect_violation() {
  fresh_tree
  mkdir -p "$(dirname "$tree/$1")"
  printf '%s\n' "$2" >>"$tree/$1"
  local lines output
  lines=$(wc -l <"$tree/$1")
  if output=$("$lint" "$tree"); then
    echo "not found: $2 in $1"
    failures=$((failures + 1))
  elif [[ $output != *"$1:$lines: "*"$3"* ]] || [ "$(wc -l <<<"$output")" != 2 ]; then
    echo "wrong complaint about: $2 in $1:"
    echo "$output"
    failures=$((failures + 1))
  fi
}

fresh_tree
"$lint" "$tree" || { echo "a good tree was refused"; failures=1; }

expect_violation runtime/base/error.h '#include "runtime/comm/communicator.h"' 'against the arrow'
expect_violation runtime/gradsync/plan.h '#  include "runtime/data/source.h"' 'against the arrow'
expect_violation runtime/gradsync/plan.h '#include "runtime/base/eror.h"' 'names no file'
expect_violation runtime/comm/communicator.h '#include <mpi.h>' 'runtime/comm/mpi runtime/comm/host'
expect_violation runtime/optim/sgd.h '#include "runtime/comm/communicator.h"' 'do not see comm'
expect_violation models/layers/dense.h '#include "runtime/comm/communicator.h"' 'do not see comm'
expect_violation runtime/base/error.h '#include "error.h"' 'root of the repository'
expect_violation runtime/base/error.h '#include <boost/any.hpp>' 'not listed'
expect_violation runtime/base/error.h '#include <windows.h>' 'not listed'
expect_violation runtime/elsewhere/new.h '#include "runtime/base/error.h"' 'not on the arrow'
expect_violation runtime/base/CMakeLists.txt 'target_link_libraries(rondo_base PUBLIC rondo_comm)' 'against the arrow'
expect_violation runtime/base/CMakeLists.txt 'rondo_library(extra PRIVATE MPI::MPI_C)' 'the link to MPI::MPI_C'

fresh_tree
printf 'no picture\n' >"$tree/README.md"
if "$lint" "$tree" >/dev/null; then
  echo "a README without the arrow was accepted"
  failures=$((failures + 1))
fi
exit $((failures > 0))
