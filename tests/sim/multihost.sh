#!/bin/bash
# multihost.sh TRAIN HOSTS EACH: a run on HOSTS hosts (see ../multihost/hosts) with EACH simulated GPUs has the losses
# of one rank on its host's cores.
set -eu
train=$1
hosts=$2
each=$3
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../multihost" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run=("$train" --model mlp --data synthetic --optimizer sgd --batch-size 64 --steps-per-epoch 20 --epochs 1
  --validation-split 0.001 --threads 1)

RONDO_SIMULATED_GPUS=$each "$tools/hosts" --hosts "$hosts" "$tools/mpirun" "$each" "${run[@]}" --device cuda \
  --log-jsonl "$folder/gpus" >"$folder/output" 2>&1 || {
  code=$?
  cat "$folder/output"
  exit $code
}
grep -q "SIMULATED GPUS" "$folder/output" || { cat "$folder/output"; echo "FAILED: no GPU was simulated"; exit 1; }
"${run[@]}" --device cpu --log-jsonl "$folder/host" >"$folder/output" 2>&1 || { cat "$folder/output"; exit 1; }
losses() { sed -nE 's/.*"event":"step".*"loss":([^,}]+).*/\1/p' "$1"; }
paste <(losses "$folder/host") <(losses "$folder/gpus") | awk '
  { d = $1 - $2; if (d < 0) d = -d; if (d / $1 > worst) worst = d / $1; if (NF != 2) short = 1 }
  END {
    printf "%d losses, the last %s and %s, largest relative difference %.1e\n", NR, $1, $2, worst
    exit short || NR != 20 || !(worst <= 1e-5)
  }'
