#!/bin/bash
# Builds the tests of the collectives with sanitizers and runs them: every suite of tests/comm, with ranks as threads,
# as forked processes and under mpirun.
#   tests/sanitize.sh [thread|address|all] [arguments of ctest]
# thread:  data races among threads (preset tsan, folder build-tsan). Of memory that processes share it sees what each
#          process does by itself.
# address: overruns, use after free, leaks and undefined behaviour (preset asan, folder build-asan).
# all (the default): one after the other. Without arguments of ctest: -R '^comm_'. RONDO_SANITIZE_FOLDER=DIR: build
# there instead. RONDO_NO_INSTALL=1: install nothing.
set -euo pipefail
case "${1:-all}" in
  thread | address) kinds=("$1") ;;
  all) kinds=(thread address) ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit $([[ $1 == -h || $1 == --help ]] && echo 0 || echo 2)
    ;;
esac
shift $(($# > 0))
[ $# -gt 0 ] || set -- -R '^comm_'
. "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
rondo_install "${rondo_packages[@]}"
cd "$rondo_root"

# GCC 12's thread sanitizer cannot live with every address layout that newer kernels choose at random.
fixed_layout=(setarch -R)
"${fixed_layout[@]}" true 2>/dev/null || fixed_layout=()

# Suppressed is what goes on inside of Open MPI and the libraries that it brings along, whoever called them:
# - thread: they are not instrumented, so that their own locks and atomics are unseen, and what one of their threads
#   hands to another (connections, incoming messages) looks like a race. Libraries that stay are silenced as a whole;
#   those that Open MPI loads and unloads, whose names begin with mca_, and libpmix, by their place in a report.
# - address: they do not give back at the end all that they took at the beginning.
suppressions() {  # suppressions KIND
  local libraries='mpi|open-rte|open-pal|event_core(-[0-9.]+)?|event_pthreads(-[0-9.]+)?'
  if [ "$1" = address ]; then
    # Who called asprintf, as they do and we do not, is not seen.
    printf 'leak:%s\n' libmpi. libopen-rte. libopen-pal. libpmix. libevent libhwloc. libfabric. mca_ __vasprintf_internal
  else
    ldconfig -p | sed -nE "s/^\s*(lib($libraries)\.so\.[0-9]+) .*/called_from_lib:\1/p" | sort -u
    local what
    for what in race mutex deadlock signal thread; do
      printf "$what:%s\n" mca_ libpmix. libopen-pal. libopen-rte.
    done
  fi
}

check() {  # check KIND BUILD_FOLDER PRESET ARGUMENTS_OF_CTEST...
  local kind=$1 build=$2 preset=$3 targets
  shift 3
  [ -f "$build/build.ninja" ] || cmake --preset "$preset" -B "$build" >/dev/null || return
  cmake --build "$build" --target build.ninja >/dev/null || return
  mapfile -t targets < <(ninja -C "$build" -t targets all | sed -nE 's|^(tests/comm_[a-z_]+): CXX_EXECUTABLE.*|\1|p')
  cmake --build "$build" --target "${targets[@]}" || return
  suppressions "$kind" >"$build/suppressions"
  # A library that was unloaded has no name any more when leaks are told.
  echo 'int dlclose(void* library) { return library == 0; }' | gcc -shared -fPIC -x c - -o "$build/keep_loaded.so"
  export RONDO_TIMEOUT_FACTOR=5
  export TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1 suppressions=$build/suppressions"
  export ASAN_OPTIONS="detect_stack_use_after_return=1 strict_string_checks=1 verify_asan_link_order=0"
  export LSAN_OPTIONS="suppressions=$build/suppressions print_suppressions=0"
  export UBSAN_OPTIONS="print_stacktrace=1 halt_on_error=1"
  LD_PRELOAD=$build/keep_loaded.so "${fixed_layout[@]}" ctest --test-dir "$build" --output-on-failure --no-tests=error "$@"
}

status=0
for kind in "${kinds[@]}"; do
  preset=${kind:0:1}san
  check "$kind" "${RONDO_SANITIZE_FOLDER:-$rondo_root/build-$preset}" "$preset" "$@" || status=1
done
exit $status
