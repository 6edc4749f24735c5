#!/bin/busybox sh
# /init of the test bed's guest: modules, the host's root read-only below a tmpfs, the run's own share,
# then the share's boot.sh.  With tw_probe on the kernel's command line: say so and power off.
/bin/busybox mkdir -p /proc /sys /dev /lower /upper /new
/bin/busybox --install -s /bin
PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev

leave() {
	echo "bed: $*" >/dev/ttyS0
	echo o >/proc/sysrq-trigger
	sleep 60
}

share=
for word in $(cat /proc/cmdline); do
	case $word in
	tw_share=*) share=${word#tw_share=} ;;
	tw_probe) leave "probe: the guest boots" ;;
	esac
done

# One that this CPU lacks (crc32_pclmul) may refuse; what is really missing fails where it is needed.
while read -r module; do
	insmod "/modules/$module" 2>/dev/null || echo "bed: module $module: not loaded" >/dev/ttyS0
done </modules/order

nine=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $nine,cache=loose,ro hostroot /lower || leave "cannot mount the host's root"
mount -t tmpfs -o size=75% tmpfs /upper && mkdir /upper/data /upper/work || leave "cannot mount a tmpfs"
mount -t overlay -o lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work overlay /new ||
	leave "cannot mount the overlay"
for d in proc sys dev; do
	mount --move /$d /new/$d
done
mount -t 9p -o $nine,cache=mmap share "/new$share" || leave "cannot mount the share $share"
exec switch_root /new /bin/sh "$share/boot.sh"
