#!/bin/bash
# check-service.sh DEB: boots a fresh Debian in a container and runs service-steps.sh there: the package
# is installed, serves simulated engines, is upgraded under load, hangs, crashes and is removed, as on a
# real host. It needs root, debootstrap and systemd-nspawn. Exit status 3 means that it cannot run here.
set -euo pipefail
deb=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
nspawn=${NSPAWN:-systemd-nspawn}
command -v "$nspawn" >/dev/null || { echo "check-service: needs systemd-nspawn (apt-get install systemd-container)" >&2; exit 3; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir "$root"
"$here/debian-root.sh" "$root"
cp "$deb" "$root/xpyd.deb"
cp "$here/service-steps.sh" "$root/steps"
cat >"$root/etc/systemd/system/steps.service" <<EOF
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /steps
ExecStopPost=/bin/sh -c 'echo \$EXIT_STATUS >/status; systemctl --force poweroff'
StandardOutput=file:/said
StandardError=file:/said
TimeoutStartSec=180
[Install]
WantedBy=default.target
EOF
ln -s ../steps.service "$root/etc/systemd/system/multi-user.target.wants/steps.service"
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout 300 "$nspawn" --quiet --directory="$root" --register=no --keep-unit \
  --machine=xpyd-check --private-network /lib/systemd/systemd systemd.unit=multi-user.target \
  </dev/null >"$work/console" 2>&1 || true
cat "$root/said" 2>/dev/null || { cat "$work/console"; echo "check-service: the container did not boot" >&2; exit 1; }
[ "$(cat "$root/status" 2>/dev/null)" = 0 ] || { chroot "$root" journalctl -D /var/log/journal --no-pager -n 60 2>/dev/null; echo "check-service: FAILED" >&2; exit 1; }
