#!/bin/bash
# cut.sh SERIES EACH down|silent: with EACH ranks on each host, the last host is cut off (see `cut`) in the middle of a
# series of collectives. Every rank must end with an error that names a host on the other side of the cut, soon after
# the deadline at the latest. Run it inside `hosts`.
set -eu
series=$(readlink -f "$1")
each=$2
how=$3
limit=25  # seconds from the cut: the deadline of 10 that `series` sets, and time for a busy machine
read -ra nodes <<<"$RONDO_HOST_NAMES"
ranks=$((each * ${#nodes[@]}))
lost=${nodes[-1]}
folder=$(mktemp -d)

fail() {
  echo "FAILED: $1"
  tail -n 5 "$folder"/rank* "$folder"/stderr* "$folder/output" 2>/dev/null
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
all_through() { [ "$(find "$folder" -name 'rank*[0-9]' | wc -l)" = "$ranks" ]; }
nobody_left() { ! readlink /proc/[0-9]*/exe | grep -qxF "$series"; }

# What a rank on the lost host prints cannot reach the launcher: each writes into a file.
"$RONDO_HOSTS/mpirun" "$each" bash -c '"$0" 120 "$1" 2>"$1/stderr$OMPI_COMM_WORLD_RANK"' "$series" "$folder" \
  >"$folder/output" 2>&1 &
launcher=$!
wait_for 60 test -e "$folder/running" || fail "the series did not get under way"
grep -q "^$ranks ranks on ${#nodes[@]} hosts: ${nodes[0]} " "$folder/output" || fail "the topology is wrong"

"$RONDO_HOSTS/cut" "$lost" "$how"
cut=$SECONDS
wait_for $limit all_through || fail "after $limit s only these ranks had ended: $(cd "$folder" && echo rank*[0-9])"
echo "all ranks ended within $((SECONDS - cut)) s of the cut:"
for ((r = 0; r < ranks; ++r)); do
  text=$(<"$folder/rank$r")
  echo "rank $r: $text"
  [[ $text == error:* ]] || fail "rank $r did not fail"
  here=${nodes[r / each]}
  other=$lost
  if [ "$here" = "$lost" ]; then other="node[0-9]"; fi
  # Its own host does not count.
  grep -qE "$other" <<<"${text//$here/}" || fail "rank $r does not name the lost host, $other"
done
wait_for 15 nobody_left || fail "a rank that had failed is still there"

# The launcher cannot tell its daemon on the lost host to end, and may wait for it: that is between the two.
wait_for 5 eval '! kill -0 $launcher 2>/dev/null' || echo "(mpirun still waits for its daemon on $lost)"
kill -9 $launcher 2>/dev/null || true
