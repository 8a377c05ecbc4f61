#!/bin/bash
# debian-root.sh DIR: a fresh Debian with systemd in the empty directory DIR. It needs root and
# debootstrap, and the network once: the Debian is kept in PACKAGES_CACHE (~/.cache/xpyd-packages).
# Exit status 3 means that it cannot run here.
set -euo pipefail
cache=${PACKAGES_CACHE:-$HOME/.cache/xpyd-packages}
[ "$(id -u)" = 0 ] || { echo "debian-root: needs root" >&2; exit 3; }
command -v debootstrap >/dev/null || { echo "debian-root: needs debootstrap" >&2; exit 3; }
if [ ! -f "$cache/bookworm.tar" ]; then
  mkdir -p "$cache"
  new=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  debootstrap --variant=minbase --include=systemd bookworm "$new/root" >"$cache/debootstrap.log" ||
    { tail -n 5 "$cache/debootstrap.log" "$new/root/debootstrap/debootstrap.log" >&2; exit 1; }
  rm -rf "$new"/root/var/cache/apt/* "$new"/root/var/lib/apt/lists/*
  tar -C "$new/root" -cf "$new/tar" .
  mv "$new/tar" "$cache/bookworm.tar"
fi
tar -C "$1" -xf "$cache/bookworm.tar"
