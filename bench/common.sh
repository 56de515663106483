# Sourced by the scripts of this folder.

. "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"
bench_build=${RONDO_BUILD:-$rondo_root/build}

bench_need() {  # <program of the build folder>
  [ -x "$bench_build/$1" ] && return
  echo "$bench_build/$1 is not there: build it first (cmake --build $bench_build --target $1)," \
    "or name another build folder in RONDO_BUILD" >&2
  exit 1
}

# The middle of the numbers on standard input, one a line.
bench_median() {
  LC_ALL=C sort -g | awk '{ v[NR] = $1 }
    END { if (NR) printf "%.6g\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; else print "null" }'
}

# bench_field <name>: the first number of this name in each line of JSON on standard input.
bench_field() { sed -nE "s/^[^\n]*\"$1\": ?([-+.0-9eE]+|null).*/\1/;T;p"; }
# ... in the first place of the line where it stands, rather than the last.
bench_first_field() { grep -oE "\"$1\": ?([-+.0-9eE]+|null)" | head -n 1 | sed 's/.*: *//'; }

bench_cores=($(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
  awk -F- '{ for (c = $1; c <= (NF > 1 ? $2 : $1); ++c) print c }'))

bench_machine() {
  echo "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), ${#bench_cores[@]} cores," \
    "load $(cut -d ' ' -f 1 /proc/loadavg), $(date -u +%Y-%m-%dT%H:%MZ)"
}
