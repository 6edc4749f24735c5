"""What the guests boot: Debian's kernel package, unpacked and not installed, and an initramfs of our own.

Both lie below BUILD/rdma, in a folder named after the package's version and a hash of what goes into the initramfs;
they are made once, under a lock, and appear by a rename.  Unavailable says why there can be no guest here: a reason to
skip.  Everything else that goes wrong is an error.
"""
import contextlib
import fcntl
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(TOP, os.environ.get("O", "build"), "rdma")
QEMU = "qemu-system-x86_64"
BUSYBOX = "/bin/busybox"
INIT = os.path.join(HERE, "init.sh")
# rxe computes its ICRC with a crc32 module of the crypto API: without one, "rdma link add" fails with ENOENT.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "virtio_net", "veth", "sch_netem",
           "crc32_generic", "crc32_pclmul", "ib_uverbs", "rdma_ucm", "rdma_rxe")
TOOLS = (QEMU, "setpriv", "depmod", "modprobe", "ip", "rdma", "tc", "ibv_devinfo", "mckey", "ib_send_lat")
PROBE_S = 40    # a KVM guest boots within seconds, an emulated one in 10: a hang must not cost much


class Unavailable(Exception):
    """There can be no guest on this machine, and this is why."""


def search_path():
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def tool(name):
    path = shutil.which(name, path=search_path())
    if path is None:
        raise Unavailable(f"[rdma] {name} is not installed (tools/setup.sh rdma)")
    return path


def command(argv, **options):
    p = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p.stdout


def check_machine():
    if os.uname().machine != "x86_64":
        raise Unavailable(f"[rdma] the guest is x86_64 and runs this machine's own programs, but this is {os.uname().machine}")
    for name in TOOLS:
        tool(name)
    if not os.path.exists(BUSYBOX):
        raise Unavailable("[rdma] busybox-static is not installed (tools/setup.sh rdma)")


@contextlib.contextmanager
def locked(name):
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, name), "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def contents_hash():
    h = hashlib.sha256(repr((MODULES, "unpacked")).encode())
    for path in (INIT, BUSYBOX):
        with open(path, "rb") as f:
            h.update(f.read())
    return h.hexdigest()[:12]


def kernel_package():
    """Name and version of the kernel package that apt would take now, or None without apt's lists."""
    try:
        depends = command(["apt-cache", "depends", "linux-image-amd64"], timeout=120)
        name = re.search(r"Depends: (linux-image-\S+)", depends).group(1)
        version = re.search(r"Candidate: (\S+)", command(["apt-cache", "policy", name], timeout=120)).group(1)
        return None if version == "(none)" else (name, version)
    except (OSError, RuntimeError, AttributeError, subprocess.TimeoutExpired):
        return None


def cpio(entries):
    """A newc archive of (name, mode, bytes)."""
    out = bytearray()
    for inode, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        raw = name.encode() + b"\0"
        fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0)
        out += b"070701" + "".join("%08x" % f for f in fields).encode() + raw
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def initramfs(modules):
    entries = [(d, 0o040755, b"") for d in ("bin", "modules")]
    entries += [("init", 0o100755, read(INIT)), ("bin/busybox", 0o100755, read(BUSYBOX))]
    for path in modules:
        data = lzma.decompress(read(path)) if path.endswith(".xz") else read(path)
        entries.append(("modules/" + os.path.basename(path).removesuffix(".xz"), 0o100644, data))
    order = "".join(os.path.basename(p).removesuffix(".xz") + "\n" for p in modules)
    entries.append(("modules/order", 0o100644, order.encode()))
    return gzip.compress(cpio(entries), 6)


def unpacked(bzimage):
    """The kernel as an ELF file, which QEMU starts by its PVH entry: unpacking itself takes an emulated kernel longer than
    all the rest of its boot (10 s against 5 s were measured).  A packing not known here is left to the kernel."""
    sectors, start, size = bzimage[0x1F1], *struct.unpack_from("<II", bzimage, 0x248)
    payload = bzimage[(sectors + 1) * 512 + start:][:size]
    for magic, unpack in ((b"\xfd7zXZ", lambda p: lzma.LZMADecompressor().decompress(p)),
                          (b"\x1f\x8b", lambda p: zlib.decompressobj(31).decompress(p))):
        if payload.startswith(magic):
            return unpack(payload)
    return bzimage


def module_files(root, version):
    """The files of MODULES and of what they need, each after its needs."""
    command([tool("depmod"), "-b", root, version])
    files = []
    for name in MODULES:
        shown = command([tool("modprobe"), "-d", root, "-S", version, "--show-depends", name])
        for path in re.findall(r"^insmod (\S+)", shown, re.M):
            if path not in files:
                files.append(path)
    return files


def fetch(package, work):
    """The package's file; it stays in the cache, for the next change of the initramfs."""
    name, version = package
    kept = os.path.join(CACHE, f"{name}_{version.replace(':', '.')}.deb")
    if not os.path.exists(kept):
        print(f"bed: fetching the kernel package {name} {version}", file=sys.stderr, flush=True)
        try:
            command(["apt-get", "download", "-qq", f"{name}={version}"], cwd=work, timeout=900)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as e:
            raise Unavailable("[rdma] no kernel package: " + " ".join(str(e).split())) from e
        os.rename(os.path.join(work, next(f for f in os.listdir(work) if f.endswith(".deb"))), kept)
    return kept


def build(package, folder):
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="new-") as work:
        deb = fetch(package, work)
        print(f"bed: making {folder}", file=sys.stderr, flush=True)
        root = os.path.join(work, "root")
        command(["dpkg", "-x", deb, root])
        release = os.listdir(os.path.join(root, "lib/modules"))[0]
        new = os.path.join(work, "image")
        os.mkdir(new)
        with open(os.path.join(new, "vmlinux"), "wb") as f:
            f.write(unpacked(read(os.path.join(root, "boot/vmlinuz-" + release))))
        with open(os.path.join(new, "initrd"), "wb") as f:
            f.write(initramfs(module_files(root, release)))
        os.rename(new, folder)


def get():
    """Paths of kernel and initramfs; makes them where they are not there yet."""
    check_machine()
    package, made_of = kernel_package(), contents_hash()
    with locked("lock"):
        if package is not None:
            folder = os.path.join(CACHE, f"{package[0]}_{package[1].replace(':', '.')}_{made_of}")
        else:
            old = sorted(d for d in os.listdir(CACHE) if d.endswith("_" + made_of))     # no lists: what is there
            if not old:
                raise Unavailable("[rdma] apt knows no kernel package linux-image-amd64 (apt-get update)")
            folder = os.path.join(CACHE, old[-1])
        if not os.path.isdir(folder):
            build(package, folder)
    return os.path.join(folder, "vmlinux"), os.path.join(folder, "initrd")


def machine_argv(accel, kernel, initrd, append):
    # Whoever started it may have ended before the kernel was asked to kill it with that.
    alive = [tool("setpriv"), "--pdeathsig", "KILL", "/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', str(os.getpid())]
    return [*alive, tool(QEMU), "-nodefaults", "-no-user-config", "-no-reboot",
            "-machine", "q35", "-accel", accel + (",thread=multi" if accel == "tcg" else ""), "-cpu", "max",
            "-display", "none", "-kernel", kernel, "-initrd", initrd,
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check " + append]


def probe(accel, kernel, initrd, limit_s=PROBE_S):
    """Whether a guest really comes up: a /dev/kvm that opens may still refuse, or hang while the kernel starts."""
    argv = machine_argv(accel, kernel, initrd, "tw_probe") + ["-m", "512", "-serial", "stdio"]
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        out, _ = p.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        p.kill()
        p.communicate()
        return False
    return p.returncode == 0 and b"bed: probe: the guest boots" in out


def accelerator(kernel, initrd):
    """kvm or tcg: TW_RDMA_ACCEL, or what a probe found out, remembered for this QEMU on this kernel."""
    forced = os.environ.get("TW_RDMA_ACCEL")
    if forced:
        return forced
    path = os.path.join(CACHE, "accel.json")
    key = [os.uname().release, os.uname().version, command([tool(QEMU), "--version"]), os.access("/dev/kvm", os.W_OK)]
    with locked("accel.lock"):
        try:
            with open(path, encoding="utf-8") as f:
                known = json.load(f)
            if known["key"] == key:
                return known["accel"]
        except (OSError, ValueError, KeyError):
            pass
        start = time.monotonic()
        accel = "kvm" if os.access("/dev/kvm", os.R_OK | os.W_OK) and probe("kvm", kernel, initrd) else "tcg"
        print(f"bed: {accel}, after a probe of {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        with open(path + ".new", "w", encoding="utf-8") as f:
            json.dump({"key": key, "accel": accel}, f)
        os.rename(path + ".new", path)
        return accel
