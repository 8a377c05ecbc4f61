#!/bin/bash
# Records the exchanges of a vLLM release (VERSION) anew into sim/testdata/vllm-VERSION: sets
# it up, starts a prefill, a decode and a plain engine on PORT (8360) and the two after it, and
# stops them again. What was recorded before is replaced once all is recorded. Tokens come
# together on a busy machine, which nobody wants in a recording: record when it is quiet.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
export VERSION
PORT=${PORT:-8360}
out=../../sim/testdata/vllm-$VERSION

stop() {
  for role in prefill decode plain; do
    [ ! -f "$RUN/record-$role.pid" ] || ./engine.sh stop "record-$role"
  done
  rm -rf "$out.new"
}

# start ROLE PORT [arguments]: in the background
start() {
  ./engine.sh start "record-$1" "$@" &
  starting+=($!)
}

./setup.sh "$VERSION"
trap stop EXIT
starting=()
start prefill "$PORT"
start decode $((PORT + 1))
start plain $((PORT + 2)) --no-enable-prefix-caching # nothing cached: the usage says so
for pid in "${starting[@]}"; do wait "$pid"; done

rm -rf "$out.new"
./record "$out.new" 127.0.0.1:"$PORT" 127.0.0.1:$((PORT + 1)) 127.0.0.1:$((PORT + 2))
rm -rf "$out"
mv "$out.new" "$out"
