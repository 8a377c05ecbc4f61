#!/bin/sh
# Runs before a removal and before an upgrade. Only a removal stops xpyd: dpkg then passes "remove", and rpm
# passes 0. Running answers have timeouts.drain to end.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
for unit in xpyd.socket xpyd.service $(systemctl list-units --all --plain --no-legend 'xpyd@*.service' | cut -d' ' -f1); do
	systemctl --quiet disable --now "$unit" || true
done
