#!/usr/bin/env bash
# One training step in Rondo and in PyTorch, measured in turns on one core.
#
#   PY=~/rondo-peers/bin/python bench/compare.sh [--models "mlp cnn"] [--batch B] [--rounds R] [--seconds S]
#                                                [--core C] [--clock wall|cpu] [--json FILE]
#
# Every round runs all variants once; the table has the medians over the rounds, and Rondo's speed over that of
# PyTorch's fastest variant. --clock cpu compares CPU time, for machines that others use as well.
set -euo pipefail
. "$(dirname "$0")/common.sh"

models="mlp cnn" batch=64 rounds=5 seconds=3 core=${bench_cores[-1]} clock=wall json=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
  case $1 in
    --models) models=$2 ;;
    --batch) batch=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --core) core=$2 ;;
    --clock) clock=$2 ;;
    --json) json=$2 ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift 2
done
bench_need step_bench
python=${PY:-python3}
peers=$rondo_root/bench/peers
"$python" -c 'import torch' 2>/dev/null || {
  echo "$python has no torch: see bench/peers/README.md, and name its python in PY" >&2
  exit 1
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# measure <model> <variant> <file>
measure() {
  local common=(--model "$1" --batch "$batch" --threads 1 --seconds "$seconds" --clock "$clock" --json "$3")
  local torch=(taskset -c "$core" "$python" "$peers/torch_step.py" "${common[@]}" --adam fused)
  case $2 in
    rondo) taskset -c "$core" "$bench_build/step_bench" "${common[@]}" ;;
    torch) "${torch[@]}" ;;
    torch-huge) GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "${torch[@]}" ;;
    torch-cl) "${torch[@]}" --channels-last ;;
    torch-cl-huge) GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "${torch[@]}" --channels-last ;;
  esac >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
}
variants_of() {
  echo "rondo torch torch-huge"
  [ "$1" = mlp ] || echo "torch-cl torch-cl-huge"
}
# ms <file> <phase>
ms() { tr -d '\n' <"$1" | grep -oE '\{[^}]*\}' | grep "/$2\"" | bench_field ms; }

echo "batch $batch, 1 thread on core $core, $clock time, $rounds rounds of $seconds s; $(bench_machine)"
phases="forward loss backward update step"
for ((round = 0; round < rounds; ++round)); do
  for model in $models; do
    for variant in $(variants_of "$model"); do
      measure "$model" "$variant" "$folder/rows"
      for phase in $phases; do ms "$folder/rows" "$phase" >>"$folder/$model-$variant-$phase"; done
    done
  done
done

rows=()
printf '%-6s %-15s %10s %10s %10s %10s %10s %12s\n' model variant forward loss backward update "step ms" images/s
for model in $models; do
  best=
  for variant in $(variants_of "$model"); do
    values=()
    for phase in $phases; do
      values+=("$(bench_median <"$folder/$model-$variant-$phase")")
      rate=$(awk -v b="$batch" -v ms="${values[-1]}" 'BEGIN { printf "%.1f", b / ms * 1e3 }')
      rows+=("{\"name\": \"$model/$phase\", \"variant\": \"$variant\", \"images_per_s\": $rate, \"ms\": ${values[-1]}}")
    done
    printf '%-6s %-15s %10.4f %10.4f %10.4f %10.4f %10.4f %12.1f\n' "$model" "$variant" "${values[@]}" "$rate"
    if [ "$variant" = rondo ]; then
      mine=${values[-1]}
    elif [ -z "$best" ] || awk -v a="${values[-1]}" -v b="$best" 'BEGIN { exit !(a < b) }'; then
      best=${values[-1]} name=$variant
    fi
  done
  # Round by round against the variant that is the fastest by its median: what load there was hit both.
  paired=$(paste "$folder/$model-$name-step" "$folder/$model-rondo-step" | awk '{ print $1 / $2 }' | bench_median)
  awk -v model="$model" -v name="$name" -v a="$best" -v b="$mine" -v paired="$paired" 'BEGIN {
    printf "%-6s Rondo is %.2f times as fast as %s (median of the rounds'\'' ratios: %.2f)\n", model, a / b, name, paired }'
  rows+=("{\"name\": \"$model/ratio\", \"variant\": \"$name\", \"ratio\": $(awk -v a="$best" -v b="$mine" 'BEGIN { printf "%.3f", a / b }'), \"paired_ratio\": $paired}")
done
echo "Load at the end: $(cut -d ' ' -f 1 /proc/loadavg)"
[ -z "$json" ] || (IFS=, && printf '[%s]\n' "${rows[*]}") >"$json"
