#!/usr/bin/env bash
# Seconds from starting `mpirun -np 2 ./train` until its first finished training step is in the log.
#
#   bench/startup.sh [--repeats N] [--ranks N] [--model NAME] [--json FILE]
#
# The log is a pipe, and the clock stops when the first step's line comes out of it, so the time holds the
# launcher, MPI, start-up agreement, data, compilation of the model, the step, its epoch's end with a
# validation on six samples, and the log.
set -euo pipefail
. "$(dirname "$0")/common.sh"

repeats=10 ranks=2 model=mlp json=
while [ $# -gt 0 ]; do
  case $1 in
    --repeats) repeats=$2 ;;
    --ranks) ranks=$2 ;;
    --model) model=$2 ;;
    --json) json=$2 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift 2
done
bench_need train

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/log"
exec 3<>"$folder/log"

run=(timeout 60 "${rondo_mpirun[@]}" -np "$ranks" "$bench_build/train" --model "$model" --data synthetic
  --validation-split 0.0001 --steps-per-epoch 1 --epochs 1 --threads 1 --progress none
  --log-jsonl "$folder/log")
bench_machine
for ((i = 0; i <= repeats; ++i)); do  # the first one fills the page cache and does not count
  start=$EPOCHREALTIME
  { "${run[@]}" </dev/null >"$folder/out" 2>&1 || echo failed >&3; } &
  if ! read -r -t 60 line <&3 || [[ $line != *'"event":"step"'* ]]; then
    cat "$folder/out" >&2
    echo "no first step: ${run[*]}" >&2
    exit 1
  fi
  end=$EPOCHREALTIME
  wait $!
  until [[ $line == *'"event":"end"'* ]]; do read -r -t 10 line <&3; done
  [ "$i" = 0 ] || awk -v a="$start" -v b="$end" 'BEGIN { printf "%.4f\n", b - a }' >>"$folder/seconds"
done
median=$(bench_median <"$folder/seconds")
echo "$model on $ranks ranks: first step after $median s" \
  "(median of $repeats; $(sort -g "$folder/seconds" | head -n 1) to $(sort -g "$folder/seconds" | tail -n 1))"
[ -z "$json" ] || echo "[{\"name\": \"$model/startup\", \"ranks\": $ranks, \"seconds\": $median}]" >"$json"
