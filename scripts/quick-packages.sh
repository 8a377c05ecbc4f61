#!/bin/bash
# quick-packages.sh DIR: a deb and an rpm for this machine's architecture in DIR, by nfpm alone, and in
# DIR/next the same as a later version, for upgrades. dist/nfpm takes what they contain from
# .goreleaser.yaml. They are for checks: make packages builds those of a release.
# NFPM is the command that runs nfpm. It needs dist/files and dist/nfpm (`make quick-packages` builds both).
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
rm -rf "$out"
date=$(git log -1 --format=%cI)
commit=g$(git rev-parse --short HEAD)

package() { # VERSION DIR
  mkdir -p "$2"
  go build -trimpath -buildvcs=auto -ldflags "-s -w -X xpyd/cmd.version=v$1" -o "$2/xpyd" .
  dist/nfpm -version "$1" -arch "$(go env GOARCH)" -date "$date" -binary "$2/xpyd" .goreleaser.yaml "$2"
  for config in "$2"/*.yaml; do
    $NFPM package --config "$config" --packager "$(basename "$config" .yaml)" --target "$2/"
  done
  (cd "$2" && sha256sum ./*.deb ./*.rpm >SHA256SUMS)
}
package "0.0.0-quick.$commit" "$out"
package "9999.0.0-quick.$commit" "$out/next"
