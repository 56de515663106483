#!/bin/bash
# Fuzzes the readers of JSON, of what the helper program sends and of .keras archives, each for a third of the
# time (60 seconds), from the corpus kept here and what earlier runs left in the build folder. Ends with a status
# other than 0 at the first input that crashes, hangs, takes much memory, or makes a sanitizer complain; that input
# is then in the build folder, too.
# Needs clang, and the libraries of the build folder, which are used as they are: what parses is instrumented.
# usage: tests/fuzz/run.sh [seconds] [build folder]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-60}
build=$(cd "${2:-build}" && pwd)
work=$build/fuzz
corpus=$PWD/tests/fuzz/corpus
words=$PWD/tests/fuzz/keras.dict
mkdir -p "$work"

compiler=(clang++ -std=c++20 -O1 -gline-tables-only -DFMT_SHARED -I. -fsanitize=fuzzer-no-link,address,undefined
          -fno-sanitize-recover=all -Wno-nullability-completeness)
! command -v ccache >/dev/null || compiler=(ccache "${compiler[@]}")
linker=(clang++ -fsanitize=fuzzer,address,undefined)

object() { echo "$work/${1//\//_}.o"; }
objects() { local source; for source in "$@"; do object "$source"; done; }
compile() {
  local source running=() failed=0
  for source in "$@"; do
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n || failed=1
    "${compiler[@]}" -c "$source" -o "$(object "$source")" &
    running+=($!)
  done
  for source in "${running[@]}"; do wait "$source" || failed=1; done
  return $failed
}

readers=(models/graph/{config,graph}.cpp models/layers/{structure,call_list,config_parts,registry}.cpp
         models/keras/{json,keras3_config,training_config,optimizer_config,optimizer_layout}.cpp
         models/keras/{weight_layout,class_names,file_content,wire}.cpp)
unzip=models/keras/helper/zip_file.cpp
start=$SECONDS
compile "${readers[@]}" $unzip tests/fuzz/{json,message,zip}_fuzz.cpp tests/fuzz/json_mutator.cpp

mapfile -t libraries < <(find "$build/models" "$build/runtime" -name 'librondo_*.a' | LC_ALL=C sort)
system=(-Wl,--start-group "${libraries[@]}" -Wl,--end-group -lfmt -lspdlog -ldnnl -lgomp -lxxhash -lz -lpthread -ldl)
mapfile -t -d ' ' mpi < <(printf '%s ' "$(pkg-config --libs hwloc) $(mpicc --showme:link)")
link() {
  local target=$1
  shift
  mapfile -t files < <(objects "$@")
  "${linker[@]}" -o "$work/$target" "${files[@]}" "${system[@]}" "${mpi[@]}"
}
link json tests/fuzz/{json_fuzz,json_mutator}.cpp "${readers[@]}"
link message tests/fuzz/message_fuzz.cpp "${readers[@]}"
"${linker[@]}" -o "$work/zip" "$(object tests/fuzz/zip_fuzz.cpp)" "$(object $unzip)" -lminizip -lz -lfmt
echo "built in $((SECONDS - start)) s"

for target in json message zip; do
  mkdir -p "$work/found-$target"
  (cd "$work" && timeout $((seconds + 60)) "./$target" -max_total_time=$((seconds / 3)) -timeout=5 -rss_limit_mb=1024 \
    -max_len=16384 -dict="$words" -print_final_stats=1 -verbosity=0 "found-$target" "$corpus/$target") \
    >"$work/$target.log" 2>&1 </dev/null || {
    tail -n 40 "$work/$target.log"
    echo "$target: failed; the input is in $work"
    exit 1
  }
  awk -v target=$target '/number_of_executed_units/ { n = $2 } /average_exec_per_sec/ { rate = $2 } /peak_rss_mb/ { rss = $2 }
    END { printf "%s: %d inputs, %d a second, at most %d MiB\n", target, n, rate, rss }' "$work/$target.log"
done
