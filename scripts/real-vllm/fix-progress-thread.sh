#!/bin/bash
# fix-progress-thread.sh VENV. NIXL's progress thread polls without a pause and takes one core for
# each engine. With 100,000 µs between two looks an idle engine costs 2 % of a core.
set -euo pipefail
for api in "$1"/lib/python3.*/site-packages/nixl_cu1[23]/_api.py; do
  [ ! -f "$api" ] || sed -i 's/\(agent_config\.pthrDelay\) = 0$/\1 = 100000/' "$api"
done
grep -q 'agent_config\.pthrDelay = 100000$' "$1"/lib/python3.*/site-packages/nixl_cu1*/_api.py
