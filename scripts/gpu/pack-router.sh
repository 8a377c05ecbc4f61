#!/bin/bash
# pack-router.sh FOLDER SITE: packs vllm-router into FOLDER, for plans with it as a contender. SITE is a folder
# that has it (pip install --no-deps --target SITE vllm-router). It is not part of pack.sh's folder, because
# both together are too large for some machines' transfers. unpack.sh in FOLDER unpacks it on the GPU machine.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
FOLDER=${1:?usage: pack-router.sh FOLDER SITE}
SITE=${2:?usage: pack-router.sh FOLDER SITE}
[ -f "$SITE/vllm_router_rs.abi3.so" ] || { echo "pack-router: no vllm-router in $SITE" >&2; exit 1; }

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK/vllm-router" "$FOLDER"
cp -r "$SITE"/vllm_router{,.libs,_rs.abi3.so,-*.dist-info} "$HERE/router.py" "$WORK/vllm-router"
find "$WORK" -depth -type d -name __pycache__ -exec rm -r {} +
strip --strip-unneeded "$WORK/vllm-router/vllm_router_rs.abi3.so"
tar -C "$WORK" --sort=name --mtime=@1767225600 --owner=0 --group=0 --numeric-owner -cf - vllm-router |
  xz -T1 --x86 --lzma2=preset=9e >"$FOLDER/router.tar.xz"
(cd "$FOLDER" && sha256sum router.tar.xz >SHA256)
cp "$HERE/unpack.sh" "$FOLDER"
echo "pack-router: $(basename "$SITE"/vllm_router-*.dist-info .dist-info), $(du -sm "$FOLDER" | cut -f1) MB in $FOLDER"
