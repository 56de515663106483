# What cut.sh and cut_train.sh share: source it with the program, the ranks on each host, and how the link is cut.
program=$(readlink -f "$1")
each=$2
how=$3
read -ra nodes <<<"$RONDO_HOST_NAMES"
ranks=$((each * ${#nodes[@]}))
lost=${nodes[-1]}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $1"
  tail -n 5 "$folder"/rank* "$folder"/stderr* "$folder/output" "$folder/log" 2>/dev/null
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
# names_lost RANK TEXT: the text names a host on the other side of the cut; the rank's own does not count.
names_lost() {
  local here=${nodes[$1 / each]} other=$lost
  if [ "$here" = "$lost" ]; then other="node[0-9]"; fi
  grep -qE "$other" <<<"${2//$here/}" || fail "rank $1 does not name the lost host, $other"
}
