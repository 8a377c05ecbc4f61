#!/bin/sh
# Runs after an installation and after an upgrade. dpkg passes "configure" and the previous version. rpm
# passes the number of versions that are now installed.
set -e

case "$1" in
configure) upgrade=$2 ;;
1) upgrade= ;;
[2-9]) upgrade=yes ;;
*) exit 0 ;;
esac

if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers /usr/lib/sysusers.d/xpyd.conf
fi
# The configuration may contain keys, so rpm unpacks it for root alone. xpyd's group must read it.
if getent group xpyd >/dev/null && [ "$(stat -c %G /etc/xpyd/config.yaml)" = root ]; then
	chgrp xpyd /etc/xpyd/config.yaml
fi

[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
if [ -z "$upgrade" ]; then
	echo "xpyd: name your engines in /etc/xpyd/config.yaml, then: systemctl enable --now xpyd"
	exit 0
fi

# hand_over UNIT lets a successor with the new program take over the ports. No connection is lost, and the
# old process finishes its running answers. xpyd gives up a successor that does not start within 30 s.
hand_over() {
	before=$(systemctl show --property=MainPID --value "$1")
	kill -USR2 "$before" || return 0
	for _ in $(seq 40); do
		[ "$(systemctl show --property=MainPID --value "$1")" = "$before" ] || return 0
		sleep 1
	done
	echo "xpyd: $1 still runs the version before this one; sudo journalctl -u $1 says why" >&2
}

for unit in $(systemctl list-units --plain --no-legend --state=active 'xpyd.service' 'xpyd@*.service' | cut -d' ' -f1); do
	hand_over "$unit"
done
