#!/bin/bash
# Sets up, builds, trains a model on Fashion-MNIST over several ranks, and prints a table.
#
#   ./run_examples.sh [-np RANKS]... [--model NAME] [--epochs N] [-- further options of train]
#
#   ./run_examples.sh --only xception|shared_lstm [-np RANKS]
#
# --only xception runs Keras' own example of multi_gpu_model instead (models/examples/xception.cpp): Xception, 224 x 224
# images of 1000 classes, a few steps on made-up data, and saves it as build/xception.h5. --only shared_lstm runs the
# Keras FAQ's example of device parallelism (models/examples/shared_lstm.cpp): two branches on two devices of each rank.
#
# Each -np adds a run and a row; without one there is a single run of 2 ranks. The default, cnn for 3 epochs, must
# reach 0.90 validation accuracy, else the exit code is 1. RONDO_NO_INSTALL=1: install nothing.
set -euo pipefail

ranks=()
model=cnn
epochs=3
further=()
target=0.90
only=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --)
      shift
      further=("$@")
      [ $# -eq 0 ] || target=
      break
      ;;
    -np | --model | --epochs | --only)
      [ $# -ge 2 ] || { echo "run_examples.sh: $1 wants a value; --help explains" >&2; exit 2; }
      case $1 in
        -np) ranks+=("$2") ;;
        --only) only=$2 ;;
        --model) model=$2 target= ;;
        --epochs) epochs=$2 target= ;;
      esac
      shift 2
      ;;
    *)
      echo "run_examples.sh: unknown option $1; --help lists them" >&2
      exit 2
      ;;
  esac
done
[ ${#ranks[@]} -gt 0 ] || ranks=(2)
for n in "${ranks[@]}"; do
  [[ $n =~ ^[1-9][0-9]*$ ]] || { echo "run_examples.sh: -np is \"$n\"; it takes a number of at least 1" >&2; exit 2; }
done

case $only in
  '' | xception | shared_lstm) ;;
  *) echo "run_examples.sh: there is no example \"$only\"; --only takes xception or shared_lstm" >&2; exit 2 ;;
esac

. "$(dirname "${BASH_SOURCE[0]}")/cmake/setup.sh"
if [ -n "$only" ]; then
  rondo_set_up "${only}_example"
  cd "$rondo_root/build"
  for n in "${ranks[@]}"; do "${rondo_mpirun[@]}" -np "$n" "./${only}_example"; done
  [ "$only" != xception ] || ls -l xception.h5
  exit
fi
rondo_set_up train
cd "$rondo_root/build"

# values <name> <file>: that number of every epoch's row in a JSON-lines log.
values() { sed -n "/\"event\": *\"epoch\"/s/.*\"$1\": *\([-+.0-9eE]*\).*/\1/p" "$2"; }

rows=()
status=0
for n in "${ranks[@]}"; do
  log=examples-$model-np$n.jsonl
  start=$(rondo_seconds)
  echo "== $model on $n $([ "$n" = 1 ] && echo rank || echo ranks)"
  "${rondo_mpirun[@]}" -np "$n" ./train --model "$model" --epochs "$epochs" --log-jsonl "$log" \
    ${further[@]+"${further[@]}"}
  accuracy=$(values val_accuracy "$log" | tail -n 1)
  speed=$(paste <(values samples "$log") <(values seconds "$log") | awk '{ n += $1; s += $2 } END { print n / s }')
  rows+=("$(printf '%5s  %9.0f  %19s  %7s' "$n" "$speed" "${accuracy:--}" "$(rondo_elapsed "$start")")")
  if [ -n "$target" ] && ! awk -v a="${accuracy:-0}" -v t="$target" 'BEGIN { exit !(a >= t) }'; then
    echo "run_examples.sh: $n ranks reached a validation accuracy of ${accuracy:-nothing}, expected $target" >&2
    status=1
  fi
done

echo
echo "ranks  samples/s  validation accuracy  seconds"
printf '%s\n' "${rows[@]}"
exit $status
