#!/bin/bash
# e2e.sh record | e2e.sh run [arguments of e2e]: on the GPU machine, after unpack.sh: what make record and make e2e do
# on a CPU, with the vLLM of the pack. record writes sim/testdata beside this file. GPUS is how many GPUs to use (1).
set -euo pipefail
cd "$(dirname "$0")"
TO=${TO:-/tmp}
. "$TO/vllm.env"
export E2E_CACHE=${E2E_CACHE:-$TO/e2e-cache} GPUS=${GPUS:-1}
VERSION=$(sed -n 's/^Version: //p' "$TO"/vllm-overlay/vllm-*.dist-info/METADATA | head -1)
export VERSION
. scripts/real-vllm/env.sh

# The environment is the image's own Python with the pack.
mkdir -p "$VENV/bin" "$RUN"
printf '#!/bin/sh\nexec %q "$@"\n' "$PY" >"$VENV/bin/python"
printf '#!/bin/sh\nexec %q -m vllm.entrypoints.cli.main "$@"\n' "$PY" >"$VENV/bin/vllm"
chmod +x "$VENV"/bin/*
[ -f "$MODEL.stamp" ] || "$PY" scripts/real-vllm/model.py "$MODEL"
touch "$MODEL.stamp" "$VENV.stamp"

case ${1:-} in
  record) scripts/real-vllm/record.sh ;;
  run) shift && "$TO/e2e" -xpyd "$TO/xpyd" "$@" ;;
  *) fail "record or run" ;;
esac
