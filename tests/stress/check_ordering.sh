#!/usr/bin/env bash
# Negative controls of the stress tests: builds bus and history log with their order broken on purpose
# (-DTW_MUTANT=N, see core/base/bus.c) and expects the tests to notice.
#   check_ordering.sh [BUILD]        BUILD: build root, default `build`
# Only orders that show on every machine are broken here: x86 hides a missing release.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
cc=${CC:-gcc}
out=$build/mutants
passed=0 failed=0

say() { # OK? TEXT
	if [ "$1" = 1 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'FAILED: '
	fi
	printf '%s\n' "$2"
}

make --no-print-directory O="$build" PROFILE=release CC="$cc" "$build/release/lib/libtw-internal.a" \
	>"$build.ordering.log" 2>&1 || {
	tail -20 "$build.ordering.log"
	echo "check_ordering: 0 passed, 1 failed"
	exit 1
}
rm -f "$build.ordering.log"
mkdir -p "$out"

# The mutated files come before the archive, whose members of the same names are then not taken.
compile() { # MUTANT TEST
	# shellcheck disable=SC2046
	"$cc" -std=gnu17 -O2 -D_GNU_SOURCE -Iinclude -Icore -I. -pthread -DTW_MUTANT="$1" \
		-o "$out/$2-$1" "tests/stress/$2.c" core/base/bus.c core/base/bus_reader.c \
		core/protocol/history.c core/protocol/history_read.c \
		"$build/release/lib/libtw-internal.a" \
		$(pkg-config --libs yaml-0.1 libpcap zlib libdeflate libibverbs librdmacm) -lm
}

control() { # TEST
	if compile 0 "$1" && timeout 120 "$out/$1-0" >"$out/log" 2>&1; then
		say 1 "$1, order intact: passes"
	else
		tail -5 "$out/log"
		say 0 "$1, order intact: must pass"
	fi
}

# A race shows or does not: three tries.  Exit status 1 is what the test says itself; a crash or a hang
# is no detection.
mutant() { # NUMBER TEST WHAT
	local i
	if ! compile "$1" "$2"; then
		say 0 "$2, $3: does not build"
		return
	fi
	for i in 1 2 3; do
		timeout 120 "$out/$2-$1" >"$out/log" 2>&1
		if [ $? = 1 ]; then
			say 1 "$2, $3: noticed"
			return
		fi
	done
	tail -5 "$out/log"
	say 0 "$2, $3: not noticed"
}

control stress_bus
mutant 1 stress_bus "intent raised after the bytes are overwritten"
mutant 2 stress_bus "messages published before they are written"
mutant 3 stress_bus "readers do not look at intent"
control stress_history
mutant 4 stress_history "intent raised after the datagram is written"
mutant 5 stress_history "readers do not look at intent"
control stress_read
mutant 4 stress_read "intent raised after the datagram is written"
mutant 6 stress_read "readers do not look at intent"

echo "check_ordering: $passed passed, $failed failed"
[ "$failed" = 0 ]
