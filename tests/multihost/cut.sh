#!/bin/bash
# cut.sh SERIES EACH down|silent: with EACH ranks on each host, the last host is cut off (see `cut`) in the middle of a
# series of collectives. Every rank must end with an error that names a host on the other side of the cut, soon after
# the deadline at the latest. Run it inside `hosts`.
set -eu
limit=25  # seconds from the cut: the deadline of 10 that `series` sets, and time for a busy machine
. "$(dirname "$(readlink -f "$0")")/cutting.sh"
all_through() { [ "$(find "$folder" -name 'rank*[0-9]' | wc -l)" = "$ranks" ]; }
nobody_left() { ! readlink /proc/[0-9]*/exe | grep -qxF "$program"; }

# What a rank on the lost host prints cannot reach the launcher: each writes into a file.
"$RONDO_HOSTS/mpirun" "$each" bash -c '"$0" 120 "$1" 2>"$1/stderr$OMPI_COMM_WORLD_RANK"' "$program" "$folder" \
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
  names_lost $r "$text"
done
wait_for 15 nobody_left || fail "a rank that had failed is still there"

# The launcher cannot tell its daemon on the lost host to end, and may wait for it: that is between the two.
wait_for 5 eval '! kill -0 $launcher 2>/dev/null' || echo "(mpirun still waits for its daemon on $lost)"
kill -9 $launcher 2>/dev/null || true
