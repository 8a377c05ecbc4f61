#!/bin/bash
# unpack.sh [FOLDER]: on the GPU machine, unpacks what pack.sh packed into FOLDER (/tmp), makes the models,
# and writes FOLDER/vllm.env, which rig.py's shell reads first. Beside what pack-router.sh packed, it unpacks that.
# Where the pack is too large for one transfer, part-00 and the scripts may come first, and the programs later: they
# are unpacked whenever they are there.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
TO=${1:-/tmp}
PY=${PY:-$(command -v python3)}
OVERLAY=$TO/vllm-overlay

# inflate FILE: not every image has xz.
inflate() {
  "$PY" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer, 1 << 22)' "$1"
}

mkdir -p "$TO"
if [ -e "$HERE/router.tar.xz" ]; then
  (cd "$HERE" && sha256sum -c --quiet SHA256)
  inflate "$HERE/router.tar.xz" | tar -C "$TO" -xf -
  "$PY" "$TO/vllm-router/router.py" --help >/dev/null
  echo "unpacked vllm-router after $SECONDS s: export ROUTER=$TO/vllm-router/router.py"
  exit
fi
if [ ! -e "$OVERLAY/.ok" ]; then
  (cd "$HERE" && sha256sum -c --quiet SHA256)
  inflate "$HERE/part-00" | tar -C "$TO" -xf -
  "$PY" "$HERE/models.py" "$TO/models"
  (cd "$OVERLAY" && "$PY" -m compileall -q -j 0 . >/dev/null 2>&1) || true
  touch "$OVERLAY/.ok"
fi
for program in xpyd e2e; do
  if [ -e "$HERE/$program.xz" ]; then
    inflate "$HERE/$program.xz" >"$TO/$program"
    chmod +x "$TO/$program"
  fi
done

SITE=$("$PY" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
INCLUDE=$("$PY" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
cat >"$TO/vllm.env" <<V
export PY=$PY MODELS=$TO/models XPYD=$TO/xpyd PYTHONPATH=$OVERLAY\${PYTHONPATH:+:\$PYTHONPATH}
export LD_LIBRARY_PATH=\${LD_LIBRARY_PATH:+\$LD_LIBRARY_PATH:}$SITE/nvidia/cu13/lib:$SITE/nvidia/nccl/lib OMP_NUM_THREADS=2
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 TOKENIZERS_PARALLELISM=false
# The image has none of these kernels' compilers, or the pack not their code.
export VLLM_USE_FLASHINFER_SAMPLER=0 VLLM_USE_DEEP_GEMM=0 VLLM_ALLREDUCE_USE_FLASHINFER=0 VLLM_HOST_IP=127.0.0.1
# NVLink multicast stays off: on a shared host a program that uses it can put others' GPUs out of service.
export VLLM_ALLREDUCE_USE_SYMM_MEM=0 VLLM_USE_NCCL_SYMM_MEM=0 NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export VLLM_CACHE_ROOT=$TO/vllm-cache TRITON_CACHE_DIR=$TO/vllm-cache/triton TORCHINDUCTOR_CACHE_DIR=$TO/vllm-cache/inductor
export UCX_TLS=\${UCX_TLS:-cuda_ipc,cuda_copy,sm,tcp,self} UCX_NET_DEVICES=\${UCX_NET_DEVICES:-lo} UCX_RCACHE_MAX_UNRELEASED=1024 UCX_LOG_LEVEL=warn
V
[ -f "$INCLUDE/Python.h" ] || echo "export CPATH=$TO/python-include\${CPATH:+:\$CPATH}" >>"$TO/vllm.env"
command -v gcc >/dev/null || command -v cc >/dev/null || command -v clang >/dev/null ||
  echo "unpack: no C compiler here, and Triton needs one" >&2
echo "unpacked after $SECONDS s: $(du -sm "$OVERLAY" | cut -f1) MB"
