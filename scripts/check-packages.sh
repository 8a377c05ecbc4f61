#!/bin/bash
# check-packages.sh DIR NEXT: installs the packages of DIR (make packages, make quick-packages) in a fresh
# Debian, upgrades them to those of NEXT, removes and purges them, and looks at what is there after each
# step. DIR itself as NEXT installs the same again. The rpm goes into the same Debian, whose shell runs its
# scripts. Needs root, debootstrap and rpm. Exit status 3 means that it cannot run here.
# check-service.sh does with a running systemd what a chroot cannot.
set -euo pipefail
dir=$(realpath "$1")
next=$(realpath "$2")
exposure=15 # tenths, as make check-unit
here=$(realpath "$(dirname "$0")")
arch=$(dpkg --print-architecture)

command -v rpm >/dev/null || { echo "check-packages: needs rpm" >&2; exit 3; }
# one FILES: the one that there is. A second would be of another version.
one() {
  [ $# = 1 ] && [ -f "$1" ] || { echo "check-packages: want one file, found $*; run make packages or make quick-packages" >&2; exit 1; }
  echo "$1"
}
deb=$(one "$dir"/xpyd_*_"$arch".deb)
rpm=$(one "$dir"/xpyd-*."$(uname -m)".rpm)
next_deb=$(one "$next"/xpyd_*_"$arch".deb)
next_rpm=$(one "$next"/xpyd-*."$(uname -m)".rpm)

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
installed() { # VERSION
  is "the version" "$(in_root xpyd version --json | sed 's/.*"version":"v\([^"]*\)".*/\1/')" "$1"
  for f in lib/systemd/system/xpyd.service lib/systemd/system/xpyd@.service lib/systemd/system/xpyd.socket \
    share/man/man1/xpyd.1.gz share/man/man1/xpyd-serve.1.gz share/man/man5/xpyd.yaml.5.gz share/bash-completion/completions/xpyd \
    share/zsh/site-functions/_xpyd share/fish/vendor_completions.d/xpyd.fish share/doc/xpyd/docs/guides/bare-metal.md \
    share/doc/xpyd/docs/measured.md; do
    [ -s "$root/usr/$f" ] || fail "the package lacks /usr/$f"
  done
  [ ! -e "$root/usr/share/doc/xpyd/docs/results" ] || fail "the package has what was measured, which stays in the repository"
  is "the configuration's owner" "$(in_root stat -c '%a %U:%G' /etc/xpyd/config.yaml)" "640 root:xpyd"
  # It lacks the engines, and systemd does not start it again for that.
  local status=0
  in_root xpyd check --config /etc/xpyd/config.yaml 2>/dev/null || status=$?
  is "the exit status without engines" "$status" 2
  # systemd finds nothing wrong with the units at the places where they are. There is no man to show the page that they name.
  is "what systemd says of the units" "$(in_root systemd-analyze verify --man=no xpyd.service xpyd@one.service xpyd.socket 2>&1)" ""
  is "the state of the unit" "$(in_root systemctl is-enabled xpyd.service 2>/dev/null || true)" disabled
  for f in xpyd.service xpyd@.service; do
    in_root systemd-analyze security --no-pager --offline=yes --threshold="$exposure" "/usr/lib/systemd/system/$f" >"$work/log" 2>&1 ||
      { tail -n 1 "$work/log"; fail "$f is exposed too far"; }
    echo "   $f: $(tail -n 1 "$work/log" | grep -o 'exposure level.*: [0-9.]*')"
    grep -q '^WatchdogSec=[1-9]' "$root/usr/lib/systemd/system/$f" || fail "$f has no watchdog"
  done
}

# kept checks that a changed configuration has survived.
kept() { is "the first line of the configuration" "$(head -n 1 "$root/etc/xpyd/config.yaml")" "# mine"; }

# nothing_left looks for what a removal has left. The user stays.
nothing_left() {
  local left
  left=$(find "$root" -xdev \( -path "$root/proc" -o -path "$root/sys" -o -path "$root/tmp" -o -path "$root/var/lib/rpm" \) -prune -o -name '*xpyd*' -print)
  is "what is left of it" "$left" ""
}

# The version of the program, which has no ~.
deb_version() { dpkg-deb -f "$1" Version | sed 's/~/-/'; }
# Names with kind, mode and owner, without times and sizes.
deb_files() { dpkg-deb -c "$1" | awk '{ print $1, $2, $6, $7, $8 }' | sort; }
rpm_files() { rpm -qp --nosignature --qf '[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES} %{FILEFLAGS:fflags}\n]' "$1" | sort; }

# What make packages and make quick-packages build comes from one list, and so is the same.
is "the files of the next deb" "$(deb_files "$next_deb")" "$(deb_files "$deb")"
is "the files of the next rpm" "$(rpm_files "$next_rpm")" "$(rpm_files "$rpm")"

echo "== $(basename "$deb")"
fresh
cp "$deb" "$root/tmp/xpyd.deb"
cp "$next_deb" "$root/tmp/next.deb"
version=$(deb_version "$deb")
dpkg-deb -f "$deb" Package Version Architecture Maintainer Description >/dev/null
in_root dpkg -i /tmp/xpyd.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i"; }
installed "$version"
in_root getent passwd xpyd >/dev/null || fail "there is no user xpyd"
sed -i '1i # mine' "$root/etc/xpyd/config.yaml"
in_root dpkg -i /tmp/next.deb >"$work/log" 2>&1 || { cat "$work/log"; fail "dpkg -i, the second time"; }
installed "$(deb_version "$next_deb")"
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
with_rpm -U --replacepkgs "$next_rpm"
installed "$(deb_version "$next_deb")"
kept
with_rpm -e xpyd
[ ! -e "$root/usr/bin/xpyd" ] || fail "a removal leaves the program"
is "the configuration that rpm saved" "$(head -n 1 "$root/etc/xpyd/config.yaml.rpmsave")" "# mine"

echo "== checksums"
for other in "$dir"/*.deb "$dir"/*.rpm; do
  [ -s "$other" ] || fail "$other is empty"
done
(cd "$dir" && sha256sum --quiet -c SHA256SUMS)
