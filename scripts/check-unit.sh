#!/bin/bash
# check-unit.sh UNIT EXPOSURE: systemd must accept the unit, the one for several instances that is made
# from it, and its socket unit if there is one beside it, without a message. It must rate the exposure at
# EXPOSURE or less (in tenths: 15 is 1.5). The script needs no running systemd and no root.
set -euo pipefail
unit=$(realpath "$1") exposure=$2
here=$(realpath "$(dirname "$0")")
# verify looks for the ExecStart binary. The unit is checked as it will be installed.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '#!/bin/sh\n' >"$work/xpyd"
chmod 755 "$work/xpyd"
sed "s|/usr/bin/xpyd|$work/xpyd|" "$unit" >"$work/xpyd.service"
"$here/instance-unit.sh" "$work/xpyd.service" >"$work/xpyd@.service"
units=("$work/xpyd.service" "$work/xpyd@.service")
if [ -e "${unit%.service}.socket" ]; then
  cp "${unit%.service}.socket" "$work/xpyd.socket"
  units+=("$work/xpyd.socket")
fi
# The examples of units for engines name a program that is not here either.
cp "$work/xpyd" "$work/vllm"
for engine in "${unit%/*}"/engines/*.service; do
  made=$work/${engine##*/}
  sed -e "s|/opt/vllm/bin/vllm|$work/vllm|"  -e '/^User=vllm$/d' "$engine" >"$made"
  units+=("$made")
done
# The manual page that the unit names need not be installed here.
said=$(systemd-analyze verify --man=no "${units[@]}" 2>&1) || { echo "$said"; exit 1; }
[ -z "$said" ] || { echo "$said"; exit 1; }
grep -q '^WatchdogSec=' "$unit" || { echo "$unit has no WatchdogSec="; exit 1; }
for made in "${units[@]:0:2}"; do
  systemd-analyze security --no-pager --offline=yes --threshold="$exposure" "$made" | tail -n 1
done
