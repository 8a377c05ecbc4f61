#!/bin/bash
# Records the exchanges of a vLLM release anew into sim/testdata/vllm-VERSION: sets it up,
# starts a prefill, a decode and a plain engine on PORT (8360) and the two after it, and
# stops them again. What was recorded before is replaced once all is recorded.
set -euo pipefail
cd "$(dirname "$0")"
. ./env.sh
PORT=${PORT:-8360}
out=../../sim/testdata/vllm-$VERSION

engines=(record-prefill record-decode record-plain)
stop() {
  for name in "${engines[@]}"; do ./engine.sh stop "$name" || true; done # one that never started
  rm -rf "$out.new"
}

VERSION=$VERSION ./setup.sh "$VERSION"
trap stop EXIT
./engine.sh start record-prefill prefill "$PORT"
./engine.sh start record-decode decode $((PORT + 1))
./engine.sh start record-plain plain $((PORT + 2)) --no-enable-prefix-caching
rm -rf "$out.new"
./record "$out.new" 127.0.0.1:"$PORT" 127.0.0.1:$((PORT + 1)) 127.0.0.1:$((PORT + 2))
rm -rf "$out"
mv "$out.new" "$out"
