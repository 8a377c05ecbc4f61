#!/bin/bash
# lock.sh updates the pins of everything that the clients depend on. Edit the versions in
# python/requirements.in, tools/*.in, node/package.json and go/go.mod first. It needs uv, npm and go
# in PATH.
set -euo pipefail
cd "$(dirname "$0")"
# guidellm needs torch. It gets the same one as vLLM, so that both environments share its files.
torch=$(mktemp)
trap 'rm -f "$torch"' EXIT
grep -E '^(torch|triton|nvidia|cuda)' ../../scripts/real-vllm/requirements-0.32.0.txt >"$torch"
for tool in tools/*.in; do
  uv pip compile -q -c "$torch" --python-version 3.12 --python-platform linux --no-annotate --no-header "$tool" -o "${tool%.in}.txt"
done
uv pip compile -q --universal --python-version 3.10 --generate-hashes --no-annotate --no-header python/requirements.in -o python/requirements.txt
(cd node && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund)
(cd go && go mod tidy)
