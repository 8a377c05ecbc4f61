#!/bin/bash
# package-files.sh DIR: writes what packages contain beside the binary and what is in the repository:
# man pages, completions of shells, and the unit for several instances. It needs ./xpyd and
# dist/manpages of this machine's architecture (`make package-files` builds both).
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
rm -rf "$out"
mkdir -p "$out/man" "$out/man5" "$out/completions"
# Without SOURCE_DATE_EPOCH the pages would have the day of the build.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0) dist/manpages configs/default.yaml "$out/man"
mv "$out"/man/*.5 "$out/man5"
gzip -9n "$out"/man/*.1 "$out"/man5/*.5
for shell in bash zsh fish; do
  ./xpyd completion "$shell" >"$out/completions/xpyd.$shell"
done
scripts/instance-unit.sh configs/xpyd.service >"$out/xpyd@.service"
