#!/bin/sh
# What libtidewire.so exports is what the public headers declare and the version script lists.
#
# usage: tests/support/check_symbols.sh BUILD        (a build folder such as build/release)
set -u
build=${1:?usage: check_symbols.sh BUILD}
top=$(cd "$(dirname "$0")/../.." && pwd)
case $build in /*) ;; *) build=$PWD/$build ;; esac
cd "$top" || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
status=0

fail() {
	echo "check_symbols: $*"
	status=1
}

same() { # what-a file-a what-b file-b
	diff -u --label "$1" --label "$3" "$2" "$4" || fail "$1 and $3 differ"
}

so=$build/lib/libtidewire.so
nm -D --defined-only "$so" >"$tmp/nm" || exit 1
# the version node itself is an absolute symbol
awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' "$tmp/nm" | sort -u >"$tmp/exports"
sed -n '/global:/,/local:/p' subscriber/libtidewire.map | sed -n 's/^[ \t]*\([a-z_0-9*]*\);$/\1/p' |
	sort -u >"$tmp/map"
tests/support/public_functions.sh >"$tmp/headers"

[ -s "$tmp/exports" ] || fail "$so exports nothing"
[ -s "$tmp/headers" ] || fail "the public headers declare nothing"
same "public headers" "$tmp/headers" "exports" "$tmp/exports"
same "version script" "$tmp/map" "exports" "$tmp/exports"
awk '$2 !~ /[TtA]/' "$tmp/nm" | grep . && fail "data is exported: only functions may be"
grep -vE '@@?LIBTIDEWIRE_0$| A ' "$tmp/nm" | grep . && fail "a symbol has no version"

soname=$(readelf -d "$so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = libtidewire.so.0 ] || fail "SONAME is '$soname', not libtidewire.so.0"

n=$(wc -l <"$tmp/exports")
[ "$status" -eq 0 ] && echo "check_symbols: $n exported functions, as declared"
exit "$status"
