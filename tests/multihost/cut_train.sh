#!/bin/bash
# cut_train.sh TRAIN EACH down|silent: with EACH ranks on each host, the last host is cut off (see `cut`) in the middle
# of training. Every rank must end, with an error that names the lost host (on that host: one of the others), within
# LIMIT seconds. Run it inside `hosts`.
set -eu
limit=30  # seconds from the cut: seven heartbeats of one second, and time for a busy machine
. "$(dirname "$(readlink -f "$0")")/cutting.sh"
all_ended() { [ "$(find "$folder" -name 'code*' | wc -l)" = "$ranks" ]; }
under_way() { [ -e "$folder/log" ] && [ "$(grep -c '"event":"step"' "$folder/log")" -gt 20 ]; }

# What a rank on the lost host prints cannot reach the launcher: each writes into files.
run='"$0" --model mlp --data synthetic --batch-size 64 --epochs 1000 --threads 1 --progress none --log-jsonl "$1/log" \
  2>"$1/stderr$OMPI_COMM_WORLD_RANK"; echo $? >"$1/code$OMPI_COMM_WORLD_RANK"'
"$RONDO_HOSTS/mpirun" "$each" bash -c "$run" "$program" "$folder" >"$folder/output" 2>&1 &
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
  # One rank speaks for those that still reach each other.
  [ -n "$text" ] || continue
  spoke[${nodes[r / each]}]=yes
  names_lost $r "$text"
done
for node in "${nodes[@]}"; do
  # Hosts that still reach each other compare what they have to say.
  [ "$node" != "$lost" ] && [ "$node" != "${nodes[0]}" ] || [ -n "${spoke[$node]:-}" ] || fail "nobody on $node said why"
done
kill -9 $launcher 2>/dev/null || true
