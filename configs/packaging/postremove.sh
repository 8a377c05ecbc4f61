#!/bin/sh
# Runs after a removal and after an upgrade. The user remains, because files may belong to it.
set -e

if [ "$1" = purge ]; then
	rm -rf /var/lib/xpyd /var/lib/private/xpyd
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
