#!/bin/bash
# pack.sh FOLDER: puts into FOLDER all that a GPU machine without a network needs to run the rig: vLLM
# and NIXL cut down to what GPUs of compute capability 9.0 run, in one file (part-00, 45 to 54 MB), the
# scripts, xpyd and the checks of make e2e. The machine must have torch, as requirements-*.txt leaves out what such
# images hold.
#
#   VLLM=0.26.0    the version; there is a requirements-VERSION.txt for each
#   GPU_CACHE      where packs are kept (~/.cache/xpyd-gpu), by the hash of what they are made of
#   PYTHON         a Python 3.12 (python3.12)
#   THREADS        of the compression (3)
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
VERSION=${VLLM:-0.26.0}
CACHE=${GPU_CACHE:-$HOME/.cache/xpyd-gpu}
PYTHON=${PYTHON:-python3.12}
THREADS=${THREADS:-3}
LIST=$HERE/requirements-$VERSION.txt
FOLDER=${1:?usage: pack.sh FOLDER}

for tool in "$PYTHON" xz readelf strip go; do
  command -v "$tool" >/dev/null || { echo "pack: $tool is missing" >&2; exit 1; }
done
[ "$(uname -m)" = x86_64 ] || { echo "pack: the wheels are for x86_64" >&2; exit 1; }
[ -f "$LIST" ] || { echo "pack: no $LIST" >&2; exit 1; }

mkdir -p "$CACHE"
KEY=$(cat "$HERE/pack.sh" "$HERE/prune.py" "$LIST" | sha256sum | cut -c1-16)
PACK=$CACHE/$VERSION-$KEY

# Other chips' kernels, attention that compute capability 9.0 does not pick, MLA, FP4, DeepGEMM, the Rust
# frontend; headers, locales, tests, licences.
trim() {
  rm -rf vllm/{vllm-rs,kernels/helion/configs,vllm_flash_attn/_vllm_fa2_C.abi3.so}
  rm -rf vllm/third_party/{fmha_sm100,tml_fa4,deep_gemm}
  rm -rf vllm/_{flashkda,deepselect,qutlass,flashmla,flashmla_extension}_C.abi3.so
  rm -rf nixl_ep nixl_ep_cu13 nixl_cu13.scripts cryptography
  rm -rf bin include pkgconfig pycountry/locales xgrammar/lib mistral_common/data tvm_ffi/include
  find . -type f \( -name '*.a' -o -name '*.la' -o -name '*.pyi' -o -name '*.pyc' -o -path './tvm_ffi/*.h' \
    -o -path './vllm/*' -regex '.*\.\(jpg\|png\|gif\|svg\)' \) -delete
  find . -depth -type d \( -name __pycache__ -o -name tests -o -name licenses -o -name sboms \) -exec rm -rf {} +
  # The scripts in bin, which is gone, have hashes that name the folder. The same input packs to the same bytes.
  sed -i '/^bin\//d' ./*.dist-info/RECORD
  strip --strip-unneeded xgrammar/libxgrammar_bindings.so
}

make_pack() (
  work=$(mktemp -d "$CACHE/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  "$PYTHON" -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --no-deps uv==0.13.9
  UV_CONCURRENT_INSTALLS=$THREADS "$work/venv/bin/uv" pip install -q --no-cache --no-deps --require-hashes \
    --only-binary :all: --python "$work/venv/bin/python" --target "$work/vllm-overlay" -r "$LIST"
  cd "$work/vllm-overlay"
  trim
  "$PYTHON" "$HERE/prune.py" .
  # vLLM compiles small C files at run time; not every image has Python's headers.
  cp -r "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" "$work/python-include"
  mkdir "$work/pack"
  tar -C "$work" --sort=name --mtime=@1767225600 --mode=u=rwX,go=rX --owner=0 --group=0 --numeric-owner -cf - \
    vllm-overlay python-include | xz -T"$THREADS" --x86 --lzma2=preset=9e --block-size=96MiB >"$work/pack/part-00"
  (cd "$work/pack" && sha256sum part-00 >SHA256)
  rm -rf "$PACK"
  mv "$work/pack" "$PACK"
)

(cd "$PACK" 2>/dev/null && sha256sum -c --quiet SHA256) || make_pack
mkdir -p "$FOLDER"
cp "$PACK"/{part-00,SHA256} "$HERE"/{unpack.sh,*.py} "$FOLDER"
rm -rf "$FOLDER/plans"
rm -rf "$FOLDER/scripts"
mkdir "$FOLDER/scripts"
cp -r "$HERE/plans" "$HERE/e2e.sh" "$FOLDER"
cp -r "$HERE/../real-vllm" "$FOLDER/scripts"
RELEASE=$(git -C "$HERE" describe --tags --always --dirty 2>/dev/null || echo devel)
build() { # MODULE PACKAGE PROGRAM
  CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -C "$HERE/../../$1" -trimpath -ldflags "-s -w -X xpyd/cmd.version=$RELEASE" -o "$(realpath "$FOLDER")/$3" "$2"
  xz -f -T1 --x86 --lzma2=preset=9e "$FOLDER/$3"
}
build . . xpyd
build tools ./e2e e2e
echo "pack: vLLM $VERSION, $(du -sm "$FOLDER" | cut -f1) MB in $FOLDER, part-00 $(cut -c1-16 "$PACK/SHA256")"
