#!/bin/bash
# train.sh TRAIN HOSTS EACH: a run on HOSTS hosts of EACH ranks has the losses of one with as many ranks on one host.
set -eu
train=$1
hosts=$2
each=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
run=("$train" --model mlp --data synthetic --optimizer sgd --batch-size 50 --steps-per-epoch 12 --epochs 2
  --validation-split 0.001 --threads 1 --progress none --log-jsonl)

"$here/hosts" --hosts "$hosts" "$here/mpirun" "$each" "${run[@]}" "$folder/many" >"$folder/output" 2>&1 || {
  code=$?
  cat "$folder/output"
  exit $code
}
mpirun -np $((hosts * each)) --oversubscribe "${run[@]}" "$folder/one" >"$folder/output" 2>&1 || {
  cat "$folder/output"
  exit 1
}
losses() { sed -nE 's/.*"event":"step".*"loss":([^,}]+).*/\1/p' "$1"; }
paste <(losses "$folder/one") <(losses "$folder/many") | awk '
  { d = $1 - $2; if (d < 0) d = -d; if (d / $1 > worst) worst = d / $1; if (NF != 2) short = 1 }
  END {
    printf "%d losses, the last %s and %s, largest relative difference %.1e\n", NR, $1, $2, worst
    exit short || NR != 24 || !(worst <= 1e-6)
  }'
