#!/bin/bash
# The library example in README.md is the program that the installed-consumer test builds and runs.
# Usage: readme_example.sh <root of the repository>
set -euo pipefail
diff <(awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1/README.md") \
  "$1/tests/consumer/project/main.cpp"
