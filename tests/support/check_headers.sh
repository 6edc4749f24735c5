#!/bin/sh
# Headers stand alone, and the public ones work from C++.
#
# usage: tests/support/check_headers.sh BUILD        (a build folder such as build/release)
#
# Every public header compiles by itself as strict C11 and C++17, every internal one as the code base
# is compiled; and a generated C++ program that takes the address of every exported function links
# with both libraries and runs: a missing extern "C" shows there only.
set -u
build=${1:?usage: check_headers.sh BUILD}
top=$(cd "$(dirname "$0")/../.." && pwd)
case $build in /*) ;; *) build=$PWD/$build ;; esac
cd "$top" || exit 1
CC=${CC:-gcc}
CXX=${CXX:-g++}
warn="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wundef -Werror"
libs="$(pkg-config --libs yaml-0.1 libpcap zlib libdeflate libibverbs librdmacm 2>/dev/null) -lm -pthread"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
passed=0
failed=0

check() { # name command...
	name=$1
	shift
	if "$@" >"$tmp/out" 2>&1; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "check_headers: $name:"
		cat "$tmp/out"
	fi
}

for h in include/tidewire/*.h; do
	name=${h#include/}
	printf '#include "%s"\n#include "%s"\n' "$name" "$name" >"$tmp/one.c"
	cp "$tmp/one.c" "$tmp/one.cc"
	# shellcheck disable=SC2086 # lists of options
	check "$name alone in C11" "$CC" -std=c11 $warn -Wstrict-prototypes -Iinclude -c -o "$tmp/one.o" "$tmp/one.c"
	# shellcheck disable=SC2086
	check "$name alone in C++17" "$CXX" -std=c++17 $warn -Iinclude -c -o "$tmp/one.o" "$tmp/one.cc"
done

# -include, so that a header's unused inline functions count as a header's
echo 'typedef int not_empty;' >"$tmp/unit.c"
for h in $(find core config feedhandler publisher subscriber tools -name '*.h' | sort); do
	# shellcheck disable=SC2086,SC2046
	check "$h alone" "$CC" -std=gnu17 $warn -D_GNU_SOURCE -Iinclude -Icore -I. \
		$(pkg-config --cflags yaml-0.1 libpcap zlib libdeflate 2>/dev/null) \
		-include "$h" -c -o "$tmp/one.o" "$tmp/unit.c"
done

exported=$(tests/support/public_functions.sh)
if [ -z "$exported" ]; then
	echo "check_headers: no exported function found"
	failed=$((failed + 1))
fi
{
	for h in include/tidewire/*.h; do
		printf '#include "%s"\n' "${h#include/}"
	done
	printf '#include <cstdint>\n#include <cstdio>\nint main()\n{\n\tstd::uintptr_t sum = 0;\n'
	for f in $exported; do
		printf '\tsum |= reinterpret_cast<std::uintptr_t>(&%s);\n' "$f"
	done
	cat <<'END'
	tw_sub_conf conf;
	tw_sub_conf_init(&conf);
	std::puts(tw_strstatus(TW_OK));
	return sum != 0 && conf.size == sizeof(conf) ? 0 : 1;
}
END
} >"$tmp/link.cc"
# shellcheck disable=SC2086
check "C++ program with libtidewire.so" "$CXX" -std=c++17 $warn -Iinclude -o "$tmp/shared" "$tmp/link.cc" \
	"$build/lib/libtidewire.so" "-Wl,-rpath,$build/lib"
check "C++ program with libtidewire.so runs" "$tmp/shared"
# shellcheck disable=SC2086
check "C++ program with libtidewire.a" "$CXX" -std=c++17 $warn -Iinclude -o "$tmp/static" "$tmp/link.cc" \
	"$build/lib/libtidewire.a" $libs
check "C++ program with libtidewire.a runs" "$tmp/static"

echo "check_headers: $passed passed, $failed failed"
[ "$failed" -eq 0 ]
