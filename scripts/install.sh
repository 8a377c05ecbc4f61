#!/bin/bash
# install.sh DESTDIR PREFIX: installs ./xpyd with its unit, manual pages and completions. It changes no
# configuration that is there, and starts nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$1 prefix=$2 files=dist/files
if [ ! -x xpyd ] || [ ! -d $files ]; then
  echo "install: run make package-files first, as the user who owns this directory" >&2
  exit 1
fi
put() { install -D -m "${3:-644}" "$1" "$root$2"; }
# unit FILE: the unit, with the path under which it finds xpyd.
unit() {
  put "$1" "$prefix/lib/systemd/system/${1##*/}"
  sed -i "s|/usr/bin/xpyd|$prefix/bin/xpyd|" "$root$prefix/lib/systemd/system/${1##*/}"
}

put xpyd "$prefix/bin/xpyd" 755
unit configs/xpyd.service
unit configs/xpyd.socket
unit "$files/xpyd@.service"
put configs/packaging/sysusers.conf "$prefix/lib/sysusers.d/xpyd.conf"
for page in $files/man/*; do
  put "$page" "$prefix/share/man/man1/${page##*/}"
done
for page in $files/man5/*; do
  put "$page" "$prefix/share/man/man5/${page##*/}"
done
put $files/completions/xpyd.bash "$prefix/share/bash-completion/completions/xpyd"
put $files/completions/xpyd.zsh "$prefix/share/zsh/site-functions/_xpyd"
put $files/completions/xpyd.fish "$prefix/share/fish/vendor_completions.d/xpyd.fish"
for example in configs/engines/*; do
  put "$example" "$prefix/share/xpyd/engines/${example##*/}"
done
put configs/default.yaml "$prefix/share/doc/xpyd/default.yaml"
[ -e "$root/etc/xpyd/config.yaml" ] || put configs/packaging/config.yaml /etc/xpyd/config.yaml
[ -e "$root/etc/default/xpyd" ] || put configs/packaging/environment /etc/default/xpyd
