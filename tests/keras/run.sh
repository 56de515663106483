#!/bin/bash
# Exchanges files with real Keras and writes RESULTS.md; with --golden first makes the golden files anew.
# Needs the network once: Keras comes from PyPI into $RONDO_KERAS_VENV, by default outside of this tree.
# usage: tests/keras/run.sh [--golden] [build folder]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
golden=0
if [ "${1:-}" = --golden ]; then
  golden=1
  shift
fi
build=${1:-$here/../../build}
venv=${RONDO_KERAS_VENV:-$HOME/.cache/rondo/keras}
python=$venv/bin/python
[ -x "$python" ] || python3 -m venv "$venv"
"$python" -c 'import keras, tf_keras, h5py' 2>/dev/null || "$venv/bin/pip" install -q -r "$here/requirements.txt"
export PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive
[ $golden = 0 ] || "$python" "$here/make_golden.py" "$here/golden"
cmake --build "$build" --target keras_exchange
exec "$python" "$here/exchange.py" "$build/keras_exchange" "$here/golden" "$here/RESULTS.md"
