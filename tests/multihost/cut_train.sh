#!/bin/bash
# cut_train.sh TRAIN EACH down|silent: with EACH ranks on each host, the last host is cut off (see `cut`) in the middle
# of training. Every rank must end, with an error that names the lost host (on that host: one of the others), within
# LIMIT seconds. Run it inside `hosts`.
set -eu
train=$(readlink -f "$1")
each=$2
how=$3
limit=30  # seconds from the cut: seven heartbeats of one second, and time for a busy machine
read -ra nodes <<<"$RONDO_HOST_NAMES"
ranks=$((each * ${#nodes[@]}))
lost=${nodes[-1]}
folder=$(mktemp -d)

fail() {
  echo "FAILED: $1"
  tail -n 5 "$folder"/stderr* "$folder/output" "$folder/log" 2>/dev/null
  exit 1
}
wait_for() {  # wait_for SECONDS CONDITION...
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}
all_ended() { [ "$(find "$folder" -name 'code*' | wc -l)" = "$ranks" ]; }
under_way() { [ -e "$folder/log" ] && [ "$(grep -c '"event":"step"' "$folder/log")" -gt 20 ]; }

# What a rank on the lost host prints cannot reach the launcher: each writes into files.
run='"$0" --model mlp --data synthetic --batch-size 64 --epochs 1000 --threads 1 --progress none --log-jsonl "$1/log" \
  2>"$1/stderr$OMPI_COMM_WORLD_RANK"; echo $? >"$1/code$OMPI_COMM_WORLD_RANK"'
"$RONDO_HOSTS/mpirun" "$each" bash -c "$run" "$train" "$folder" >"$folder/output" 2>&1 &
launcher=$!
wait_for 60 under_way || fail "training did not get under way"

"$RONDO_HOSTS/cut" "$lost" "$how"
cut=$SECONDS
wait_for $limit all_ended || fail "after $limit s only these ranks had ended: $(cd "$folder" && echo code*)"
echo "all ranks ended within $((SECONDS - cut)) s of the cut:"
declare -A spoke
for ((r = 0; r < ranks; ++r)); do
  code=$(<"$folder/code$r")
  text=$(grep 'error: ' "$folder/stderr$r" || true)
  echo "rank $r: exit code $code; $text"
  [ "$code" != 0 ] || fail "rank $r did not fail"
  here=${nodes[r / each]}
  other=$lost
  if [ "$here" = "$lost" ]; then other="node[0-9]"; fi
  # One rank speaks for those that still reach each other; its own host does not count.
  [ -n "$text" ] || continue
  spoke[$here]=yes
  grep -qE "$other" <<<"${text//$here/}" || fail "rank $r does not name the lost host, $other"
done
for node in "${nodes[@]}"; do
  # Hosts that still reach each other compare what they have to say.
  [ "$node" != "$lost" ] && [ "$node" != "${nodes[0]}" ] || [ -n "${spoke[$node]:-}" ] || fail "nobody on $node said why"
done
kill -9 $launcher 2>/dev/null || true
