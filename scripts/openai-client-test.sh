#!/bin/bash
# openai-client-test.sh: two simulated engines and ./xpyd serve on loopback; the official
# Python client (pinned) streams through them, the decode engine is killed in mid-stream,
# and the client must raise. Leaves nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."
version=3.54.0
work=$(mktemp -d)
pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "openai==$version"

# free_ports N: ports that were free a moment ago.
free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))
PY
}
read -r prefill decode prefill_side decode_side listen admin < <(free_ports 6)

# wait_for URL PID LOG: until it answers 200, for at most 20 s.
wait_for() {
  for _ in $(seq 200); do
    kill -0 "$2" 2>/dev/null || break
    python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1], timeout=1)' "$1" 2>/dev/null && return
    sleep 0.1
  done
  echo "$1 does not answer:" >&2
  cat "$3" >&2
  exit 1
}

./xpyd sim --role prefill --listen "127.0.0.1:$prefill" --side-channel "127.0.0.1:$prefill_side" >"$work/prefill.log" 2>&1 &
pids+=($!)
./xpyd sim --role decode --listen "127.0.0.1:$decode" --side-channel "127.0.0.1:$decode_side" >"$work/decode.log" 2>&1 &
decode_pid=$!
pids+=("$decode_pid")
wait_for "http://127.0.0.1:$prefill/health" "${pids[0]}" "$work/prefill.log"
wait_for "http://127.0.0.1:$decode/health" "$decode_pid" "$work/decode.log"
./xpyd serve --listen "127.0.0.1:$listen" --admin "127.0.0.1:$admin" \
  --prefill "http://127.0.0.1:$prefill" --decode "http://127.0.0.1:$decode" >"$work/serve.log" 2>&1 &
pids+=($!)
wait_for "http://127.0.0.1:$listen/readyz" "${pids[2]}" "$work/serve.log"

"$work/venv/bin/python" scripts/openai_raises.py "http://127.0.0.1:$listen/v1" "$decode_pid" ||
  { cat "$work/serve.log" >&2; exit 1; }
