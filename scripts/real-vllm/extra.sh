#!/bin/bash
# extra.sh [CONNECTOR]: puts what a connector needs beyond vLLM into a folder of its own in the cache,
# where engine.sh finds it (KV_PACKAGE). Most connectors need nothing. Exit status: 3 if this machine
# cannot run it, 1 if it failed.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/env.sh"

CONNECTOR=${1:-}
case $CONNECTOR in
  lmcache)
    # It needs CUDA's packages only where there is a GPU, and vLLM has its other ones.
    packages=(lmcache==0.5.6 aiofile==3.12.3 caio==0.12.10 aiofiles==25.1.0 blake3==1.0.11 awscrt==0.38.1 nvtx==0.2.17
      redis==8.1.0 sortedcontainers==2.4.0 opentelemetry-exporter-prometheus==0.61b0)
    module=lmcache.integration.vllm.lmcache_mp_connector
    ;;
  mooncake)
    packages=(mooncake-transfer-engine-non-cuda==0.3.13.post1) module=mooncake.engine
    needs="libibverbs1 and libnuma1"
    ;;
  *) exit 0 ;;
esac

# ready prints why the module cannot be imported, or nothing.
ready() {
  local said
  said=$(PYTHONPATH=$CACHE/$CONNECTOR timeout 60 "$VENV/bin/python" -c "import $module" 2>&1) || tail -n 1 <<<"${said:-it takes more than 60 s}"
}

if [ "$(cat "$CACHE/$CONNECTOR.stamp" 2>/dev/null)" != "${packages[*]}" ]; then
  rm -rf "${CACHE:?}/$CONNECTOR" "$CACHE/$CONNECTOR.stamp"
  [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$PIP_INDEX_URL}}
  UV_CACHE_DIR=$CACHE/downloads "$CACHE/tools/bin/uv" pip install --quiet --python "$VENV/bin/python" --no-deps \
    --only-binary :all: --target "$CACHE/$CONNECTOR" "${packages[@]}" || fail "installing ${packages[*]} failed"
  echo "${packages[*]}" >"$CACHE/$CONNECTOR.stamp"
fi
why=$(ready)
[ -z "$why" ] || cannot "$CONNECTOR: $why${needs:+ (install $needs)}"
echo "extra: ${packages[*]} is ready in $CACHE/$CONNECTOR"
