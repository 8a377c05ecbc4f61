#!/bin/bash
# fuzz.sh [TIME]: runs every fuzz target of the module for TIME (5m), one after the other, and fails
# at the first finding. A finding is minimised in ten steps, because the default may take minutes.
# The inputs found go to the go build cache.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-5m}
targets=$(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort)
[ -n "$targets" ] || { echo "fuzz: no fuzz target in the tree" >&2; exit 1; }
while IFS=: read -r file func; do
  name=${func#func }
  echo "== $(dirname "$file") $name for $time"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x "$(dirname "$file")" </dev/null
done <<<"$targets"
