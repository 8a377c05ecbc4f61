#!/bin/bash
# Records the exchanges of a vLLM release (VERSION) in sim/testdata/vllm-VERSION. The script sets
# the release up, starts a prefill, a decode and a plain engine on PORT (8360) and the two ports
# after it, and stops them again. It replaces an earlier recording after everything is recorded. On
# a busy machine tokens arrive together, which a recording must not show. So record when the machine
# is quiet.
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

# start ROLE PORT [arguments]: starts an engine in the background
start() {
  ./engine.sh start "record-$1" "$@" &
  starting+=($!)
}

[ -n "${GPUS:-}" ] || ./setup.sh "$VERSION" # where there are GPUs, scripts/gpu/e2e.sh has set up
trap stop EXIT
starting=()
start prefill "$PORT"
start decode $((PORT + 1))
start plain $((PORT + 2)) --no-enable-prefix-caching # nothing is cached, and the usage says so
for pid in "${starting[@]}"; do wait "$pid"; done

rm -rf "$out.new"
./record "$out.new" 127.0.0.1:"$PORT" 127.0.0.1:$((PORT + 1)) 127.0.0.1:$((PORT + 2))
rm -rf "$out"
mv "$out.new" "$out"
