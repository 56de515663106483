#!/bin/bash
# Sets up, builds and runs all tests. Arguments go to ctest: tests/run.sh -L unit, tests/run.sh -R comm.
# RONDO_NO_INSTALL=1: install nothing. RONDO_WERROR=ON: warnings are errors.
set -euo pipefail
case "${1:-}" in
  -h | --help)
    sed -n '2,3s/^# //p' "$0"
    exit 0
    ;;
esac
. "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
rondo_set_up all
exec ctest --test-dir "$rondo_root/build" --output-on-failure --no-tests=error --schedule-random --parallel 2 "$@"
