#!/bin/sh
# Packs `make bench-proxy` for a machine without a compiler, a network or its own nginx:
#   scripts/bench-pack.sh OUT.tar.xz [PROGRAM...]
# takes xpyd, dist/tools and each program with its libraries (nginx and haproxy, by name or path; without
# any, those of the two that are installed). There:
#   tar xf OUT.tar.xz && bench-proxy/run --cores 4
# runs it with the flags of `make bench-proxy`, and leaves bench-proxy/bench-out/proxy/results.json.
# --from of `make bench-proxy` renders that here.
set -eu
out=$1
shift
if [ $# = 0 ]; then
	for name in nginx haproxy; do
		if path=$(PATH=$PATH:/usr/sbin command -v $name); then set -- "$@" "$path"; fi
	done
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pack=$work/bench-proxy
mkdir -p "$pack/dist" "$pack/bin" "$pack/lib"
cp xpyd "$pack/xpyd"
cp dist/tools "$pack/dist/tools"

# A program runs with the loader and the libraries of the machine that it comes from.
add() {
	path=$(PATH=$PATH:/usr/sbin command -v "$1") || { echo "bench-pack: no program $1" >&2; exit 1; }
	name=$(basename "$path")
	libraries=$(ldd "$path")
	case $libraries in *"not found"*) echo "bench-pack: $path lacks a library: $libraries" >&2; exit 1 ;; esac
	loader=$(echo "$libraries" | awk '$1 ~ /^\// { print $1 }')
	cp "$path" "$pack/lib/$name"
	for file in $loader $(echo "$libraries" | awk '$2 == "=>" { print $3 }'); do
		cp -L "$file" "$pack/lib/"
	done
	cat >"$pack/bin/$name" <<-END
		#!/bin/sh
		lib=\$(dirname "\$(readlink -f "\$0")")/../lib
		exec "\$lib/$(basename "$loader")" --library-path "\$lib" "\$lib/$name" "\$@"
	END
	chmod +x "$pack/bin/$name"
}
for program; do add "$program"; done

cat >"$pack/run" <<-'END'
	#!/bin/sh
	cd "$(dirname "$(readlink -f "$0")")" && PATH=$PWD/bin:$PATH exec dist/tools proxy "$@"
END
chmod +x "$pack/run"
tar -C "$work" -cf - bench-proxy | xz -T0 -3 >"$out"
echo "$out: $(du -h "$out" | cut -f1), with $(cd "$pack/bin" && echo *)"
