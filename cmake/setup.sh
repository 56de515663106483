# Sourced by run_examples.sh, tests/run.sh and .ci/run: installs missing packages and builds into build/.
# Needs bash; the caller's working folder does not matter.

rondo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rondo_packages=(
  g++ cmake ninja-build ccache pkg-config libopenmpi-dev openmpi-bin libdnnl-dev ocl-icd-opencl-dev
  libcxxopts-dev nlohmann-json3-dev libspdlog-dev libfmt-dev zlib1g-dev libhwloc-dev libxxhash-dev librandom123-dev
  libhdf5-dev libminizip-dev
  libgtest-dev libgmock-dev libbenchmark-dev dataset-fashion-mnist iproute2
)

# Open MPI refuses to run as root, and more ranks than cores, unless told. Other launchers ignore these.
rondo_mpirun=(mpirun --oversubscribe)
if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

rondo_seconds() { date +%s.%N; }
rondo_elapsed() { awk -v a="$1" -v b="$(rondo_seconds)" 'BEGIN { printf "%.1f", b - a }'; }

# rondo_install <packages>: through apt what dpkg does not know as installed. RONDO_NO_INSTALL=1 switches it off.
rondo_install() {
  local missing=() package run=()
  if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian system; these packages' counterparts are needed: $*"
    return
  fi
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "${RONDO_NO_INSTALL:-0}" = 1 ]; then
    echo "Not installed, and RONDO_NO_INSTALL=1 forbids to: ${missing[*]}"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Missing packages, and no sudo to install them. As root: apt-get install ${missing[*]}" >&2
      return 1
    fi
    run=(sudo)
  fi
  echo "Will install with ${run[*]:+${run[*]} }apt-get: ${missing[*]}  (RONDO_NO_INSTALL=1 switches this off)"
  run+=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
  local log
  log=$(mktemp)
  if ! "${run[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1; then
    # The package lists may be absent or stale.
    if ! { "${run[@]}" update && "${run[@]}" install -y --no-install-recommends "${missing[@]}"; } \
        </dev/null >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      echo "apt-get could not install: ${missing[*]}" >&2
      return 1
    fi
  fi
  rm -f "$log"
}

# rondo_build <targets>: configures build/ where needed and builds. RONDO_WERROR=ON makes warnings errors.
rondo_build() {
  local build=$rondo_root/build options=() jobs
  [ -z "${RONDO_WERROR:-}" ] || options+=("-DRONDO_WERROR=$RONDO_WERROR")
  # A configured folder reconfigures by itself; only a changed option needs asking for.
  if [ ! -f "$build/build.ninja" ] || { [ ${#options[@]} -gt 0 ] &&
      ! grep -q "^RONDO_WERROR:BOOL=$RONDO_WERROR\$" "$build/CMakeCache.txt"; }; then
    (cd "$rondo_root" && cmake --preset default "${options[@]}") >"$build.log" 2>&1 || {
      cat "$build.log" >&2
      rm -f "$build.log"
      return 1
    }
    rm -f "$build.log"
  fi
  # A compiler takes about a gigabyte at its worst: on small machines memory, not cores, sets the limit.
  jobs=$(awk -v cores="$(nproc)" '/^MemAvailable/ { fit = int($2 / 1048576); print fit < 1 ? 1 : fit < cores ? fit : cores }' \
    /proc/meminfo)
  cmake --build "$build" -j "$jobs" --target "$@"
}

# rondo_set_up <targets>: both, and says how long each took.
rondo_set_up() {
  local start
  start=$(rondo_seconds)
  rondo_install "${rondo_packages[@]}"
  echo "Set-up: $(rondo_elapsed "$start") s"
  start=$(rondo_seconds)
  rondo_build "$@"
  echo "Build: $(rondo_elapsed "$start") s"
}
