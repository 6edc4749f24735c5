#!/bin/sh
# Installs the Debian packages that a step needs and that are missing; says what it does.
#   tools/setup.sh build|test|lint|bench ...
set -eu

build="gcc libc6-dev make pkg-config libyaml-dev libpcap-dev zlib1g-dev libdeflate-dev"
test="g++ libcriterion-dev python3 clang libclang-rt-14-dev tshark tcpdump iproute2"
lint="clang-format clang-tidy cppcheck"
bench="libzmq3-dev libnorm-dev"

want=
for step in "$@"; do
	case $step in
	build) want="$want $build" ;;
	test) want="$want $test" ;;
	lint) want="$want $lint" ;;
	bench) want="$want $bench" ;;
	*)
		echo "setup: unknown step '$step': build, test, lint or bench" >&2
		exit 64
		;;
	esac
done

if ! command -v dpkg-query >/dev/null 2>&1; then
	echo "setup: not a Debian system: please have these or their like installed:$want" >&2
	exit 0
fi

missing=
for package in $want; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null 2>&1; then
		echo "setup: missing packages and neither root nor sudo; as root run: apt-get install$missing" >&2
		exit 77
	fi
	as_root=sudo
fi
echo "setup: installing missing packages with $as_root apt-get:$missing"
export DEBIAN_FRONTEND=noninteractive
install() {
	# shellcheck disable=SC2086
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! install; then
	echo "setup: refreshing the package lists first"
	if ! $as_root apt-get update -qq >"$log" 2>&1 || ! install; then
		cat "$log" >&2
		echo "setup: apt-get could not install:$missing" >&2
		exit 69
	fi
fi
