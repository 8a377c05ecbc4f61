#!/bin/bash
# check-configs.sh: every example configuration loads.
set -euo pipefail
cd "$(dirname "$0")/.."
for f in configs/*.yaml; do
  [ "$f" = configs/compose.yaml ] && continue
  echo "== $f"
  ./xpyd check --config "$f"
done
# TestComposeFile reads the compose file on every machine. docker's own reader checks more, if there
# is a docker. It needs no daemon.
if docker compose version >/dev/null 2>&1; then
  for profile in sim gpu monitoring; do
    echo "== configs/compose.yaml, profile $profile"
    docker compose -f configs/compose.yaml --profile "$profile" config -q
  done
fi
