#!/bin/sh
# Names of the functions that the public headers declare with TW_API, one a line.
cd "$(dirname "$0")/../.." || exit 1
# one piece for each TW_API; the name stands before the first parenthesis
cat include/tidewire/*.h | tr '\n\t' '  ' | sed 's/TW_API/\n&/g' |
	sed -n 's/^TW_API[^(;]*[ *]\([a-z_0-9]*\)(.*/\1/p' | grep -v '^__attribute__$' | sort -u
