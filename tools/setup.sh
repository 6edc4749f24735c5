#!/bin/sh
# Installs the Debian packages that a step needs and that are missing; says what it does.
#   tools/setup.sh build|test|lint|bench|rdma ...
# rdma: what tests/rdma runs in virtual machines, and the kernel that these boot (below O, default build).
set -eu

build="gcc libc6-dev make pkg-config libyaml-dev libpcap-dev zlib1g-dev libdeflate-dev libibverbs-dev librdmacm-dev"
test="g++ libcriterion-dev python3 clang libclang-rt-14-dev tshark tcpdump iproute2 valgrind"
lint="clang-format clang-tidy cppcheck"
bench="libzmq3-dev libnorm-dev"
rdma="qemu-system-x86 busybox-static kmod python3 rdma-core ibverbs-providers ibverbs-utils rdmacm-utils perftest
	iproute2 tcpdump tshark"

want=
kernel=
for step in "$@"; do
	case $step in
	build) want="$want $build" ;;
	test) want="$want $test" ;;
	lint) want="$want $lint" ;;
	bench) want="$want $bench" ;;
	rdma)
		if [ "$(uname -m)" != x86_64 ]; then
			echo "setup: rdma: the virtual machines are x86_64 and run this machine's programs: not on $(uname -m)" >&2
			exit 69
		fi
		want="$want $rdma"
		kernel=yes
		;;
	*)
		echo "setup: unknown step '$step': build, test, lint, bench or rdma" >&2
		exit 64
		;;
	esac
done

if ! command -v dpkg-query >/dev/null 2>&1; then
	# shellcheck disable=SC2086
	echo "setup: not a Debian system: please have these or their like installed:" $want >&2
	[ -z "$kernel" ] || exit 69
	exit 0
fi

as_root=
log=$(mktemp)
trap 'rm -f "$log"' EXIT

need_root() {
	[ "$(id -u)" -ne 0 ] || return 0
	if ! command -v sudo >/dev/null 2>&1; then
		echo "setup: $1 and neither root nor sudo; as root run: $2" >&2
		exit 77
	fi
	as_root=sudo
}

refresh() {
	echo "setup: refreshing the package lists first"
	$as_root apt-get update -qq >"$log" 2>&1
}

install() {
	# shellcheck disable=SC2086
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1
}

missing=
for package in $want; do
	status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
	case "$status $missing " in
	installed*) ;;
	*" $package "*) ;;
	*) missing="$missing $package" ;;
	esac
done
if [ -n "$missing" ]; then
	need_root "missing packages" "apt-get install$missing"
	echo "setup: installing missing packages with $as_root apt-get:$missing"
	if ! install; then
		if ! refresh || ! install; then
			cat "$log" >&2
			echo "setup: apt-get could not install:$missing" >&2
			exit 69
		fi
	fi
fi

if [ -n "$kernel" ]; then
	# The lists may be none, or older than the mirror's kernel: then once more with new ones.
	bed=$(dirname "$0")/../tests/rdma/bed.py
	if ! python3 "$bed" image; then
		need_root "no kernel package" "apt-get update"
		if ! refresh || ! python3 "$bed" image; then
			exit 69
		fi
	fi
fi
