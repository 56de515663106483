#!/usr/bin/env bash
# Weak and strong scaling of training over 1 to N ranks on this host.
#
#   bench/scaling.sh [--model NAME] [--ranks "1 2 4"] [--batch B] [--steps S] [--repeats R] [--threads T]
#                    [--data D] [--out DIR]
#
# Strong: all ranks share a batch of B. Weak: every rank has B. Beside each, the machine's honest limit: as
# many unconnected processes of one rank, each on its own core with the same share of the batch, started
# together. Variants alternate, and medians over the repeats are reported: a table here, and in DIR
# scaling.json, the logs of all runs and, where gnuplot is installed, scaling.svg. See bench/README.md.
set -euo pipefail
. "$(dirname "$0")/common.sh"

model=mlp ranks="1 2" batch=64 steps=300 repeats=5 threads=1 data=synthetic out=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
  case $1 in
    --model) model=$2 ;;
    --ranks) ranks=$2 ;;
    --batch) batch=$2 ;;
    --steps) steps=$2 ;;
    --repeats) repeats=$2 ;;
    --threads) threads=$2 ;;
    --data) data=$2 ;;
    --out) out=$2 ;;
    *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift 2
done
bench_need train
out=${out:-$bench_build/scaling-$model}
mkdir -p "$out"
rm -f "$out"/*.jsonl "$out"/*.txt

# The first epoch warms up; the second one counts.
train=("$bench_build/train" --model "$model" --data "$data" --validation-split 0.0001
  --steps-per-epoch "$steps" --epochs 2 --threads "$threads" --progress none)

fail() {
  cat "$1" >&2
  echo "a run failed: its output stands above" >&2
  exit 1
}

# connected <ranks> <batch of a step> <log>
connected() {
  local bind=(--bind-to none)
  [ $(($1 * threads)) -gt ${#bench_cores[@]} ] || bind=(--map-by "slot:PE=$threads" --bind-to core)
  timeout 600 "${rondo_mpirun[@]}" -np "$1" "${bind[@]}" "${train[@]}" --batch-size "$2" --log-jsonl "$3" \
    </dev/null >"$3.out" 2>&1 || fail "$3.out"
}

# copies <processes> <batch of all together> <log>: the log holds every process's lines
copies() {
  local copy pids=() first core
  for ((copy = 0; copy < $1; ++copy)); do
    first=$((copy * threads))
    core=$(for ((t = 0; t < threads; ++t)); do echo "${bench_cores[$(((first + t) % ${#bench_cores[@]}))]}"; done |
      sort -un | paste -sd,)
    timeout 600 taskset -c "$core" "${train[@]}" --log-jsonl "$3.$copy" \
      --batch-size $(($2 * (copy + 1) / $1 - $2 * copy / $1)) </dev/null >"$3.out.$copy" 2>&1 &
    pids+=($!)
  done
  for copy in "${!pids[@]}"; do wait "${pids[$copy]}" || fail "$3.out.$copy"; done
  for ((copy = 0; copy < $1; ++copy)); do cat "$3.$copy"; done >"$3"
  rm -f "$3".?*
}

# Sum over the processes of a log.
samples_per_s() { grep '"epoch":1,' "$1" | grep '"event":"epoch"' | bench_field samples_per_s | awk '{ s += $1 } END { print s }'; }
# split <log> <part>: the share of the ranks' time, in percent
split() {
  local end
  end=$(grep '"event":"end"' "$1")
  awk -v part="$(bench_first_field "$2" <<<"$end")" -v all="$(bench_first_field seconds <<<"$end")" \
    'BEGIN { printf "%.2f\n", (all > 0) ? 100 * part / all : 0 }'
}

echo "$model, batch $batch, $steps steps, $repeats repeats, $threads threads a rank; $(bench_machine)"
for ((repeat = 0; repeat < repeats; ++repeat)); do
  for n in $ranks; do
    for scaling in strong weak; do
      [ "$n" = 1 ] && [ "$scaling" = weak ] && continue  # the same as strong
      all=$batch
      [ "$scaling" = strong ] || all=$((n * batch))
      if [ "$all" -lt "$n" ]; then echo "a batch of $all cannot be shared by $n ranks" >&2; exit 2; fi
      log=$out/$scaling-$n-$repeat
      connected "$n" "$all" "$log.jsonl"
      copies "$n" "$all" "$log-copies.jsonl"
      samples_per_s "$log.jsonl" >>"$out/$scaling-$n.txt"
      samples_per_s "$log-copies.jsonl" >>"$out/$scaling-$n-copies.txt"
      for part in compute communication input; do
        split "$log.jsonl" "${part}_seconds" >>"$out/$scaling-$n-$part.txt"
      done
    done
  done
done
load=$(cut -d ' ' -f 1 /proc/loadavg)

for n in $ranks; do
  [ "$n" != 1 ] || for file in "$out"/strong-1*.txt; do cp "$file" "$out/weak-1${file#"$out/strong-1"}"; done
done
value() { bench_median <"$out/$1.txt"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b; else printf "null" }'; }
# ranks_json <log>: every rank's seconds, from the run of the middle repeat
ranks_json() { grep '"event":"end"' "$1" | sed 's/.*"ranks":\(\[.*\]\).*/\1/'; }

one=null
[ ! -f "$out/strong-1.txt" ] || one=$(value strong-1)
rows=()
printf '%-7s %5s %6s %11s %8s %11s %9s | %8s %8s %8s\n' scaling ranks batch samples/s "vs one" "N copies" \
  "vs copies" "compute%" "comm%" "input%"
for scaling in strong weak; do
  : >"$out/$scaling.dat"
  for n in $ranks; do
    all=$batch
    [ "$scaling" = strong ] || all=$((n * batch))
    rate=$(value "$scaling-$n") limit=$(value "$scaling-$n-copies")
    versus_one=null
    [ "$one" = null ] || versus_one=$(ratio "$rate" "$(awk -v a="$one" -v n="$n" 'BEGIN { print a * n }')")
    versus_copies=$(ratio "$rate" "$limit")
    shares=("$(value "$scaling-$n-compute")" "$(value "$scaling-$n-communication")" "$(value "$scaling-$n-input")")
    printf '%-7s %5d %6d %11.1f %8s %11.1f %9s | %8.1f %8.1f %8.1f\n' "$scaling" "$n" "$all" "$rate" \
      "$versus_one" "$limit" "$versus_copies" "${shares[@]}"
    echo "$n $rate $limit $one" >>"$out/$scaling.dat"
    log=$out/$scaling-$n-$((repeats / 2)).jsonl
    [ -f "$log" ] || log=$out/strong-$n-$((repeats / 2)).jsonl
    rows+=("{\"scaling\": \"$scaling\", \"model\": \"$model\", \"ranks\": $n, \"batch\": $all,
  \"samples_per_s\": $rate, \"efficiency_vs_one\": $versus_one,
  \"copies_samples_per_s\": $limit, \"efficiency_vs_copies\": $versus_copies,
  \"compute_percent\": ${shares[0]}, \"communication_percent\": ${shares[1]}, \"input_percent\": ${shares[2]},
  \"seconds_of_ranks\": $(ranks_json "$log")}")
  done
done
(IFS=, && printf '[%s]\n' "${rows[*]}") >"$out/scaling.json"
echo "vs one: samples/s over N times those of one rank. vs copies: over those of N unconnected processes."
echo "Load at the end: $load. Written: $out/scaling.json"

if ! command -v gnuplot >/dev/null; then
  echo "No plot: gnuplot is not installed (Debian: apt-get install gnuplot-nox)."
  exit 0
fi
gnuplot <<PLOT
set terminal svg size 900,420 font "sans,12" background "white"
set output "$out/scaling.svg"
set multiplot layout 1,2 title "$model, batch $batch, samples/s (medians of $repeats)"
set key below
set grid
set xlabel "ranks"
set xtics 1
set yrange [0:*]
set offsets 0.2, 0.2, 0, 0
do for [scaling in "strong weak"] {
  set title scaling." scaling"
  file = "$out/".scaling.".dat"
  plot file using 1:(\$4*\$1) with lines dashtype 2 linecolor "gray" title "N x one rank", \\
       file using 1:3 with linespoints pointtype 4 title "N unconnected copies", \\
       file using 1:2 with linespoints pointtype 7 title "Rondo"
}
unset multiplot
PLOT
echo "Written: $out/scaling.svg"
