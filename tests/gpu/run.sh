#!/bin/bash
# All that wants a real GPU, in one go: builds for this machine's GPU, runs the GPU tests, checks memory accesses,
# compares training with the host's, measures images per second beside PyTorch, and prints one table.
#
#   tests/gpu/run.sh [--out DIR] [--build DIR] [--bundle FILE] [--checks] [--seconds S] [--batches "64 256 1024"]
#                    [--simulated]
#
# --out        where build, logs and table go (default: build-gpu)
# --build      programs that are built already, instead of building
# --bundle     what tests/gpu/bundle.sh made, on machines without the packages
# --checks     no measurements
# --seconds    measured for each figure (default: 3)
# --simulated  on the test double instead of a GPU: tries this script; its figures mean nothing
#
# Takes about 7 minutes on 16 cores. The exit code is 1 when a check failed, 77 without a GPU; DIR/table.txt has the
# table.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
root=$PWD
out=$root/build-gpu build='' bundle='' checks='' seconds=3 batches="64 256 1024" simulated=
while [ $# -gt 0 ]; do
  case $1 in
    --simulated) simulated=1; shift; continue ;;
    --checks) checks=1; shift; continue ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --out | --build | --bundle | --seconds | --batches) ;;
    *) echo "tests/gpu/run.sh: unknown option $1; --help lists them" >&2; exit 2 ;;
  esac
  [ $# -ge 2 ] || { echo "tests/gpu/run.sh: $1 wants a value" >&2; exit 2; }
  case $1 in
    --out) out=$(realpath -m "$2") ;;
    --build) build=$(realpath "$2") || exit 2 ;;
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
  export RONDO_SIMULATED_GPUS=2
  gpu="SIMULATED: no GPU was used, figures mean nothing"
  gpus=2 capability=
else
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) ||
    { echo "tests/gpu/run.sh: nvidia-smi finds no GPU; --simulated tries the script without one" >&2; exit 77; }
  gpus=$(wc -l <<<"$gpu")
  gpu="$gpus x $(head -n 1 <<<"$gpu")"
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
tests=(kernels_sim_linear_test kernels_sim_rest_test kernels_sim_half_test)
[ "$gpus" = 1 ] || tests+=(nccl_sim_test)
if [ -z "$build" ]; then
  build=$out/build
  targets=(train rondo_cuda step_bench allreduce_bench "${tests[@]}")
  [ -z "$simulated" ] || targets+=(rondo_cuda_sim)
  check configure 120 cmake -S . -B "$build" "${options[@]}" || { tail -n 20 "$out/logs/configure.log"; exit 1; }
  check build "$((4800 / $(nproc)))" cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" ||
    { tail -n 20 "$out/logs/build.log"; exit 1; }
fi
cd "$build" || exit 2
./train --check-build >"$out/logs/check_build.log" 2>&1
say "$(tr '\n' ';' <"$out/logs/check_build.log" | sed 's/;$//; s/;/; /g')"

# Correctness.
if [ -z "$simulated" ]; then  # else they are tests by themselves
  for test in "${tests[@]}"; do check "conformance: $test" 120 "./tests/$test"; done
fi
if [ -z "$simulated" ] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    check "compute-sanitizer $tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "./tests/kernels_sim_rest_test" --gtest_filter='*Activation*:*Softmax*:*Update*:*Loss*'
  done
fi

# train <file for the JSON lines> <ranks> <options>
train() {
  local log=$1 ranks=$2 launch=()
  shift 2
  rm -f "$log"
  [ "$ranks" = 1 ] || launch=(mpirun -np "$ranks" --bind-to none --oversubscribe)
  timeout 100 "${launch[@]}" ./train --progress none --log-jsonl "$log" "$@" </dev/null >"$log.out" 2>&1
}
# values <event> <field> <file>: of all its lines of that event.
values() { { grep "\"event\":\"$1\"" "$3" 2>/dev/null || true; } | sed -nE "s/.*\"$2\":([-+.0-9eE]+).*/\1/p"; }
# Forty steps on the GPUs and on the host: the largest relative difference of a loss.
same_losses() {  # <model> <ranks> <tolerance>
  local steps=40 device
  [ -z "$simulated" ] || steps=3
  for device in cuda cpu; do
    train "$out/$1-$device.jsonl" "$([ $device = cuda ] && echo "$2" || echo 1)" --device $device --model "$1" \
      --data synthetic --seed 7 --epochs 1 --optimizer sgd --learning-rate 0.05 --batch-size 64 \
      --steps-per-epoch "$steps" --validation-split 0.001 ||
      { tail -n 5 "$out/$1-$device.jsonl.out"; echo "error: training $1 on $device failed"; return 1; }
  done
  paste <(values step loss "$out/$1-cuda.jsonl") <(values step loss "$out/$1-cpu.jsonl") |
    awk -v limit="$3" -v wanted="$steps" '
      NF == 2 { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst) worst = d; ++n }
      END { printf "%d losses, largest relative difference %.2e\n", n, worst
            if (n != wanted || worst > limit) { print "error: more than " limit " or steps missing"; exit 1 } }'
}
# Mean validation accuracy of three seeds in each precision; bf16 may lose half a point.
same_accuracy() {
  local precision seed
  for precision in f32 bf16; do
    for seed in 1 2 3; do
      train "$out/accuracy-$precision-$seed.jsonl" 1 --device cuda --model cnn --data "$data" --epochs 3 \
        --seed $seed --precision $precision ||
        { tail -n 5 "$out/accuracy-$precision-$seed.jsonl.out"; echo "error: training in $precision failed"; return 1; }
      echo "$precision $(values epoch val_accuracy "$out/accuracy-$precision-$seed.jsonl" | tail -n 1)"
    done
  done | awk '{ sum[$1] += $2; ++n[$1] }
    END { if (n["f32"] != 3 || n["bf16"] != 3) { print "error: accuracies are missing"; exit 1 }
          a = sum["f32"] / 3; b = sum["bf16"] / 3
          printf "validation accuracy of 3 seeds after 3 epochs: f32 %.4f, bf16 %.4f\n", a, b
          if (b < a - 0.005) { print "error: bf16 loses more than half a point"; exit 1 } }'
}
export -f same_losses same_accuracy train values
export out simulated data
compare() {  # <name> <limit> <command>: a check, and its last line
  check "$1" "$2" bash -c "$3"
  say "    $(tail -n 1 "$out/logs/${1//[^a-zA-Z0-9]/_}.log" 2>/dev/null)"
}
for model in mlp cnn; do
  compare "losses of $model as on the host, 1e-4" 150 "same_losses $model 1 1e-4"
done
[ "$gpus" = 1 ] || compare "losses of mlp on $gpus GPUs as on the host, 1e-4" 150 "same_losses mlp $gpus 1e-4"
[ -n "$simulated" ] || compare "accuracy of cnn in bf16 as in f32" 200 same_accuracy

finish() {
  say ""
  say "$((SECONDS - started)) s, $failures failed checks"
  [ "$failures" = 0 ]
  exit
}
[ -z "$checks" ] || finish

# Speed. A first epoch warms up, the second counts.
say ""
say "$(printf '%-22s %-8s %-9s %6s %12s' implementation model precision batch images/s)"
row() { say "$(printf '%-22s %-8s %-9s %6d %12.0f' "$@")"; }
declare -A best
# speed <model> <precision> <batch> <steps> <name> [options]
speed() {
  local model=$1 precision=$2 batch=$3 steps=$4 name=$5 rate
  shift 5
  [ -z "$simulated" ] || steps=3
  train "$out/speed.jsonl" 1 --device cuda --model "$model" --data synthetic:$((steps * batch)) --epochs 2 \
    --batch-size "$batch" --steps-per-epoch "$steps" --validation-split 0.001 --precision "$precision" "$@"
  rate=$(values epoch samples_per_s "$out/speed.jsonl" | tail -n 1)
  if [ -z "$rate" ]; then
    say "$model $precision batch $batch: $(tail -n 1 "$out/speed.jsonl.out")"
    failures=$((failures + 1))
    return
  fi
  row "$name" "$model" "$precision" "$batch" "$rate"
  [ "$name" != Rondo ] || best[$model/$precision/$batch]=$rate
}
torch=
if [ -n "$python" ] && "$python" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then torch=1; fi
torch_speed() {  # <model> <precision> <batches>
  [ -n "$torch" ] || return 0
  # shellcheck disable=SC2086
  timeout 120 "$python" "$root/bench/peers/torch_gpu.py" --model "$1" --precision "$2" --batch $3 \
    --seconds "$seconds" >"$out/torch.jsonl" 2>"$out/logs/torch-$1-$2.log" ||
    say "torch $1 $2: $(tail -n 1 "$out/logs/torch-$1-$2.log")"
  local batch rate name
  while read -r batch rate name; do
    row "$name" "$1" "$2" "$batch" "$rate"
    [ -z "${best[$1/$2/$batch]:-}" ] ||
      say "$(awk -v a="${best[$1/$2/$batch]}" -v b="$rate" 'BEGIN { printf "    Rondo / torch: %.2f", a / b }')"
  done < <(sed -nE 's/.*"impl": "torch ([^"]*)".*"batch": ([0-9]+), "images_per_s": ([0-9.]+).*/\2 \3 torch_\1/p' "$out/torch.jsonl")
}
for precision in f32 tf32 bf16; do
  for batch in $batches; do speed cnn $precision "$batch" $((seconds * 150000 / batch + 20)) Rondo; done
  torch_speed cnn $precision "$batches"
done
smallest=$(tr ' ' '\n' <<<"$batches" | sort -n | head -n 1)
speed cnn bf16 "$smallest" $((seconds * 150000 / smallest + 20)) "without replay" --no-replay
[ -n "$torch" ] || say "PyTorch with a GPU is not installed: no comparison"
# The zoo, at the size of its papers. Slow on the test double, where shapes and layers have tests of their own.
if [ -z "$simulated" ]; then
  for model in resnet50 xception mobilenet; do
    speed $model bf16 64 $((seconds * 10)) Rondo
    torch_speed $model bf16 64
  done
fi

# What the GPU's time goes into, and how much of it is idle.
largest=$(tr ' ' '\n' <<<"$batches" | sort -n | tail -n 1)
if [ -z "$simulated" ]; then
  nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits --loop-ms=250 --id=0 >"$out/busy.txt" 2>/dev/null &
  watcher=$!
  train "$out/busy.jsonl" 1 --device cuda --model cnn --data synthetic --epochs 1 --batch-size "$largest" \
    --steps-per-epoch "$((seconds * 300000 / largest))" --validation-split 0.001 --precision bf16
  kill $watcher 2>/dev/null
  say ""
  say "GPU busy at batch $largest in bf16, as the driver samples it: $(sort -n "$out/busy.txt" |
    awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] " % (median of " NR ")"; else print "not known" }')"
fi
shares() {
  timeout 100 ./step_bench --device cuda --model cnn --batch "$1" --seconds "$2" --warmup 0.2 --profile
}
if shares "$([ -z "$simulated" ] && echo "$largest" || echo 4)" "$([ -z "$simulated" ] && echo 2 || echo 0.05)" \
  >"$out/shares.txt" 2>"$out/logs/shares.log"; then
  say ""
  sed -n '/^phase  *step/,$p' "$out/shares.txt" | tee -a "$table"
else
  say "step_bench: $(tail -n 1 "$out/logs/shares.log")"
  failures=$((failures + 1))
fi

# All-reduce between GPUs.
say ""
if [ "$gpus" = 1 ]; then
  say "One GPU: no all-reduce to measure"
elif timeout 120 mpirun -np "$gpus" --oversubscribe ./allreduce_bench --device cuda --min 64K --factor 16 \
  --max "$([ -z "$simulated" ] && echo 1G || echo 1M)" --repeats 5 >"$out/allreduce.txt" 2>"$out/logs/allreduce.log"; then
  tee -a "$table" <"$out/allreduce.txt"
else
  say "allreduce_bench: $(grep -m 1 error "$out/logs/allreduce.log")"
  failures=$((failures + 1))
fi
finish
