#!/bin/bash
# instance-unit.sh UNIT: prints xpyd@.service, which is xpyd.service with other files and another head.
set -euo pipefail
echo "# Several xpyd on one host: xpyd@NAME reads /etc/xpyd/NAME.yaml and /etc/default/xpyd-NAME."
echo
sed -e '1,/^$/d' \
  -e 's|/etc/xpyd/config\.yaml|/etc/xpyd/%i.yaml|' \
  -e 's|/etc/default/xpyd$|/etc/default/xpyd-%i|' \
  -e 's|main xpyd$|main xpyd@NAME|' \
  -e 's|^Description=xpyd,|Description=xpyd %i,|' "$1"
