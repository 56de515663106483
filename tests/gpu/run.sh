#!/bin/bash
# All that wants a real GPU, in one go: builds for this machine's GPU, runs the GPU tests, checks memory accesses,
# compares training with the host's, measures images per second beside PyTorch, and prints one table.
#
#   tests/gpu/run.sh [--out DIR] [--bundle FILE] [--seconds S] [--batches "64 256 1024"] [--simulated]
#
# --out        where build, logs and table go (default: build-gpu)
# --bundle     what tests/gpu/bundle.sh made, on machines without the packages
# --seconds    measured for each figure (default: 3)
# --simulated  on the test double instead of a GPU: tries this script; its figures mean nothing
#
# Takes about 7 minutes on 16 cores. The exit code is 1 when a check failed; DIR/table.txt has the table.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD
out=$root/build-gpu bundle='' seconds=3 batches="64 256 1024" simulated=
while [ $# -gt 0 ]; do
  case $1 in
    --simulated) simulated=1; shift; continue ;;
    -h | --help) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --out | --bundle | --seconds | --batches) ;;
    *) echo "tests/gpu/run.sh: unknown option $1; --help lists them" >&2; exit 2 ;;
  esac
  [ $# -ge 2 ] || { echo "tests/gpu/run.sh: $1 wants a value" >&2; exit 2; }
  case $1 in
    --out) out=$(realpath -m "$2") ;;
    --bundle) bundle=$(realpath "$2") || exit 2 ;;
    --seconds) seconds=$2 ;;
    --batches) batches=$2 ;;
  esac
  shift 2
done
mkdir -p "$out/logs"
table=$out/table.txt
: >"$table"
say() { echo "$*" | tee -a "$table"; }
failures=0
started=$SECONDS

# check <name> <time limit> <command>: a line of the table; the output goes to a log.
check() {
  local name=$1 limit=$2 log="$out/logs/${1//[^a-zA-Z0-9]/_}.log" begin=$SECONDS result=passed
  shift 2
  timeout "$limit" "$@" </dev/null >"$log" 2>&1
  case $? in
    0) ;;
    124) result="FAILED: not done in $limit s" ;;
    *) result="FAILED: $(grep -E 'error|FAILED|ERROR' "$log" | tail -n 1 | cut -c1-120)" ;;
  esac
  [ "$result" = passed ] || { failures=$((failures + 1)); result="$result (${log#"$root/"})"; }
  say "$(printf '%-44s %4d s  %s' "$name" $((SECONDS - begin)) "$result")"
  [ "$result" = passed ]
}

# The machine.
if [ -n "$simulated" ]; then
  export RONDO_SIMULATED_GPUS=1
  gpu="SIMULATED: no GPU was used, figures mean nothing"
  capability=
else
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1) ||
    { echo "tests/gpu/run.sh: nvidia-smi finds no GPU; --simulated tries the script without one" >&2; exit 2; }
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
fi
say "$gpu; $(nproc) cores, $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

# The build.
options=(-DRONDO_CUDA=ON -DRONDO_WERROR=OFF -DCMAKE_BUILD_TYPE=Release)
[ -z "$capability" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$capability-real")
data=fashion-mnist
if [ -n "$bundle" ]; then
  prefix=$out/bundle
  mkdir -p "$prefix"
  tar --extract --file "$bundle" --directory "$prefix" || exit 2
  libraries=$prefix/usr/lib/x86_64-linux-gnu
  ln -sf mpirun.openmpi "$prefix/usr/bin/mpirun"
  export PATH=$prefix/usr/bin:$PATH LD_LIBRARY_PATH=$libraries:$libraries/openmpi/lib:$libraries/pmix2/lib:${LD_LIBRARY_PATH:-}
  export OPAL_PREFIX=$prefix/usr PMIX_INSTALL_PREFIX=$libraries/pmix2
  export PKG_CONFIG_SYSROOT_DIR=$prefix PKG_CONFIG_LIBDIR=$libraries/pkgconfig:$prefix/usr/share/pkgconfig
  options+=("-DCMAKE_PREFIX_PATH=$prefix/usr;$libraries" "-DMPI_C_COMPILER=$prefix/usr/bin/mpicc.openmpi"
    -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu "-DPKG_CONFIG_EXECUTABLE=$prefix/usr/bin/pkgconf")
  data=$prefix/usr/share/datasets/fashion-mnist
fi
python=$(command -v python3 || true)
if [ -n "$python" ]; then  # PyTorch's packages bring NCCL and cuDNN
  for package in nccl cudnn; do
    folder=$("$python" -c "import nvidia.$package as p; print(list(p.__path__)[0])" 2>/dev/null) || continue
    options+=("-D${package^^}_ROOT=$folder")
    export LD_LIBRARY_PATH=$folder/lib:${LD_LIBRARY_PATH:-}
  done
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v ninja >/dev/null && options+=(-G Ninja)
build=$out/build
tests=(kernels_sim_linear_test kernels_sim_rest_test)
targets=(train rondo_cuda "${tests[@]}")
[ -z "$simulated" ] || targets+=(rondo_cuda_sim)
check configure 120 cmake -S . -B "$build" "${options[@]}" || { tail -n 20 "$out/logs/configure.log"; exit 1; }
check build 300 cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" ||
  { tail -n 20 "$out/logs/build.log"; exit 1; }
cd "$build"
./train --check-build >"$out/logs/check_build.log" 2>&1
say "$(tr '\n' ';' <"$out/logs/check_build.log" | sed 's/;$//; s/;/; /g')"

# Correctness.
for test in "${tests[@]}"; do
  check "conformance: $test" 120 "./tests/$test"
done
if [ -z "$simulated" ] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "./tests/kernels_sim_rest_test" --gtest_filter='*Activation*:*Softmax*:*Update*:*Loss*'
  done
fi

# field <name> <file>: that number in every line of a JSON-lines file.
field() { sed -nE "s/.*\"$1\": ?([-+.0-9eE]+).*/\1/p" "$2"; }
train() {  # <log> <options>
  local log=$1
  shift
  rm -f "$log"
  timeout 100 ./train --progress none --seed 7 --log-jsonl "$log" "$@" </dev/null >"$log.out" 2>&1
}
# Forty steps on the device and on the host: the largest relative difference of a loss.
same_losses() {  # <model> <tolerance>
  local steps=40
  [ -z "$simulated" ] || steps=5
  for device in cuda cpu; do
    train "$out/$1-$device.jsonl" --device "$device" --model "$1" --data synthetic --epochs 1 --optimizer sgd \
      --learning-rate 0.05 --steps-per-epoch "$steps" --validation-split 0.001 ||
      { tail -n 5 "$out/$1-$device.jsonl.out"; echo "error: training $1 on $device failed"; return 1; }
  done
  paste <(grep '"event":"step"' "$out/$1-cuda.jsonl" | sed -nE 's/.*"loss":([-+.0-9eE]+).*/\1/p') \
    <(grep '"event":"step"' "$out/$1-cpu.jsonl" | sed -nE 's/.*"loss":([-+.0-9eE]+).*/\1/p') |
    awk -v limit="$2" -v wanted="$steps" '
      NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
      END { printf "%d losses, largest relative difference %.2e\n", n, worst
            if (n != wanted || worst > limit) { print "error: more than " limit " or steps missing"; exit 1 } }'
}
export -f same_losses train field 2>/dev/null
export out simulated
for model in mlp cnn; do
  check "losses of $model as on the host, 1e-4" 150 bash -c "same_losses $model 1e-4"
  say "    $(tail -n 1 "$out/logs/losses_of_${model}_as_on_the_host__1e_4.log" 2>/dev/null)"
done
if [ -z "$simulated" ]; then
  train "$out/accuracy.jsonl" --device cuda --model cnn --data "$data" --epochs 3
  accuracy=$(grep '"event":"epoch"' "$out/accuracy.jsonl" | tail -n 1 | sed -nE 's/.*"val_accuracy":([0-9.]+).*/\1/p')
  say "cnn on Fashion-MNIST, 3 epochs, float32: validation accuracy ${accuracy:-not reached: $(tail -n 1 "$out/accuracy.jsonl.out")}"
fi

# Speed. A first epoch warms up, the second counts.
say ""
say "$(printf '%-22s %-8s %-9s %6s %12s' implementation model precision batch images/s)"
row() { say "$(printf '%-22s %-8s %-9s %6d %12.0f' "$@")"; }
declare -A best
for batch in $batches; do
  for precision in f32 tf32; do
    flags=()
    [ "$precision" = f32 ] || flags=(--tf32)
    steps=$((seconds * 300000 / batch / 2 + 20))
    [ -z "$simulated" ] || steps=2
    train "$out/speed.jsonl" --device cuda --model cnn --data synthetic --epochs 2 --batch-size "$batch" \
      --steps-per-epoch "$steps" --validation-split 0.001 "${flags[@]}"
    rate=$(grep '"event":"epoch"' "$out/speed.jsonl" | tail -n 1 | sed -nE 's/.*"samples_per_s":([0-9.]+).*/\1/p')
    [ -n "$rate" ] || { say "cnn $precision batch $batch: $(tail -n 1 "$out/speed.jsonl.out")"; failures=$((failures + 1)); continue; }
    row Rondo cnn "$precision" "$batch" "$rate"
    best[$precision/$batch]=$rate
  done
done
if [ -n "$python" ] && "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  for precision in f32 tf32 bf16; do
    # shellcheck disable=SC2086
    timeout 120 "$python" "$root/bench/peers/torch_gpu.py" --model cnn --precision "$precision" --batch $batches \
      --seconds "$seconds" >"$out/torch-$precision.jsonl" 2>"$out/logs/torch-$precision.log" ||
      say "torch $precision: $(tail -n 1 "$out/logs/torch-$precision.log")"
    while read -r batch rate name; do
      row "${name//\"/}" cnn "$precision" "$batch" "$rate"
      [ -z "${best[$precision/$batch]:-}" ] ||
        say "$(awk -v a="${best[$precision/$batch]}" -v b="$rate" 'BEGIN { printf "    Rondo / torch: %.2f", a / b }')"
    done < <(sed -nE 's/.*"impl": "torch ([^"]*)".*"batch": ([0-9]+), "images_per_s": ([0-9.]+).*/\2 \3 torch_\1/p' "$out/torch-$precision.jsonl")
  done
else
  say "PyTorch with a GPU is not installed: no comparison"
fi
say ""
say "$((SECONDS - started)) s, $failures failed checks"
[ "$failures" = 0 ]
