#!/bin/bash
# check-packages.sh DIR: installs the packages of DIR (make packages) in a fresh Debian, upgrades, removes
# and purges them, and looks at what is there after each step. The rpm goes into the same Debian, whose
# shell runs its scripts. Needs root, debootstrap and rpm. Exit status 3 means that it cannot run here.
# check-service.sh does with a running systemd what a chroot cannot.
set -euo pipefail
dir=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
arch=$(dpkg --print-architecture)

command -v rpm >/dev/null || { echo "check-packages: needs rpm" >&2; exit 3; }
deb=$(echo "$dir"/xpyd_*_"$arch".deb)
rpm=$(echo "$dir"/xpyd-*."$(uname -m)".rpm)
[ -f "$deb" ] && [ -f "$rpm" ] || { echo "check-packages: no deb or no rpm for $arch in $dir; run make packages" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
fresh() {
  rm -rf "$root"
  mkdir "$root"
  "$here/debian-root.sh" "$root"
}
in_root() { chroot "$root" "$@"; }
fail() { echo "check-packages: $*" >&2; exit 1; }
is() { [ "$2" = "$3" ] || fail "$1 is \"$2\", want \"$3\""; }

# installed looks at what every package must have brought.
installed() {
  is "the version" "$(in_root xpyd version --json | sed 's/.*"version":"v\([^"]*\)".*/\1/')" "$1"
  for f in lib/systemd/system/xpyd.service lib/systemd/system/xpyd@.service lib/systemd/system/xpyd.socket \
    share/man/man1/xpyd.1.gz share/man/man1/xpyd-serve.1.gz share/bash-completion/completions/xpyd \
    share/zsh/site-functions/_xpyd share/fish/vendor_completions.d/xpyd.fish share/doc/xpyd/docs/guides/bare-metal.md; do
    [ -s "$root/usr/$f" ] || fail "the package lacks /usr/$f"
  done
  is "the configuration's owner" "$(in_root stat -c '%a %U:%G' /etc/xpyd/config.yaml)" "640 root:xpyd"
  # It lacks the engines, and systemd does not start it again for that.
  local status=0
  in_root xpyd check --config /etc/xpyd/config.yaml 2>/dev/null || status=$?
  is "the exit status without engines" "$status" 2
  # systemd finds nothing wrong with the units at the places where they are.
  is "what systemd says of the units" "$(in_root systemd-analyze verify xpyd.service xpyd@one.service xpyd.socket 2>&1)" ""
  is "the state of the unit" "$(in_root systemctl is-enabled xpyd.service 2>/dev/null || true)" disabled
}

# kept checks that a changed configuration has survived.
kept() { is "the first line of the configuration" "$(head -n 1 "$root/etc/xpyd/config.yaml")" "# mine"; }

# nothing_left looks for what a removal has left. The user stays.
nothing_left() {
  local left
  left=$(find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/tmp" -o -path "$root/var/lib/rpm" \) -prune -o -name '*xpyd*' -print)
  is "what is left of it" "$left" ""
}

echo "== $(basename "$deb")"
fresh
cp "$deb" "$root/tmp/xpyd.deb"
version=$(dpkg-deb -f "$deb" Version | sed 's/~/-/')
dpkg-deb -f "$deb" Package Version Architecture Maintainer Description >/dev/null
in_root dpkg -i /tmp/xpyd.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i"; }
installed "$version"
in_root getent passwd xpyd >/dev/null || fail "there is no user xpyd"
sed -i '1i # mine' "$root/etc/xpyd/config.yaml"
in_root dpkg -i /tmp/xpyd.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i, the second time"; }
kept
in_root dpkg -r xpyd >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -r"; }
kept
[ ! -e "$root/usr/bin/xpyd" ] || fail "a removal leaves the program"
in_root dpkg -P xpyd >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -P"; }
nothing_left

echo "== $(basename "$rpm")"
fresh
with_rpm() { rpm --root "$root" --nodeps --nosignature "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "rpm $*"; }; }
with_rpm -i "$rpm"
installed "$version"
sed -i '1i # mine' "$root/etc/xpyd/config.yaml"
with_rpm -U --replacepkgs "$rpm"
kept
with_rpm -e xpyd
[ ! -e "$root/usr/bin/xpyd" ] || fail "a removal leaves the program"
is "the configuration that rpm saved" "$(head -n 1 "$root/etc/xpyd/config.yaml.rpmsave")" "# mine"

for other in "$dir"/*.deb "$dir"/*.rpm; do
  [ -s "$other" ] || fail "$other is empty"
done
echo "== checksums"
(cd "$dir" && sha256sum --quiet -c SHA256SUMS)
