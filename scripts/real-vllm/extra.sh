#!/bin/bash
# extra.sh [CONNECTOR]: puts what a connector needs beyond vLLM into a folder of its own in the cache,
# where engine.sh finds it (KV_PACKAGE). Most connectors need nothing. Exit status: 3 if this machine
# cannot run it, 1 if it failed.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/env.sh"

CONNECTOR=${1:-}
case $CONNECTOR in
  mooncake) packages=(mooncake-transfer-engine-non-cuda==0.3.13.post1) module=mooncake.engine ;;
  *) exit 0 ;;
esac

ready() { PYTHONPATH=$CACHE/$CONNECTOR timeout 60 "$VENV/bin/python" -c "import $module" 2>&1 | tail -n 1; }

if [ "$(cat "$CACHE/$CONNECTOR.stamp" 2>/dev/null)" != "${packages[*]}" ]; then
  rm -rf "${CACHE:?}/$CONNECTOR" "$CACHE/$CONNECTOR.stamp"
  [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$PIP_INDEX_URL}}
  UV_CACHE_DIR=$CACHE/downloads "$CACHE/tools/bin/uv" pip install --quiet --python "$VENV/bin/python" --no-deps \
    --only-binary :all: --target "$CACHE/$CONNECTOR" "${packages[@]}" || fail "installing ${packages[*]} failed"
  echo "${packages[*]}" >"$CACHE/$CONNECTOR.stamp"
fi
why=$(ready) && [ -z "$why" ] || cannot "$CONNECTOR: $why (mooncake: install libibverbs1 and libnuma1)"
echo "extra: ${packages[*]} is ready in $CACHE/$CONNECTOR"
