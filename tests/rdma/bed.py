#!/usr/bin/env python3
"""The RDMA test bed: real verbs, on Soft-RoCE in small virtual machines.

usage: bed.py run [--hosts N] [--mtu N] COMMAND...   in a guest with rxe; exit status and output are the command's
       bed.py shell                                  a shell in such a guest; exit or Ctrl-D powers off, Ctrl-A X kills
       bed.py image                                  fetches the kernel, makes the initramfs, probes KVM: all that a run needs
       bed.py check                                  whether there can be guests here; exit status 69 and the reason if not

Topologies, both with two lines a and b:
  one_guest()   a0 and b0 with rxe devices rxe_a and rxe_b, address 10.77.0.1 and 10.78.0.1: the `verbs` host.  The other
                ends of these links, a1 and b1, 10.77.0.2 and 10.78.0.2, lie in the network namespace `udp`: a host with
                plain sockets, for udp against verbs.  Processes on one rxe device reach each other too, multicast
                included; rxe_a and rxe_b do not reach each other (one kernel: that traffic would go over lo).
  guests(n)     n guests, h1 h2 ..., each with a0 (rxe_a, 10.77.0.N) and b0 (rxe_b, 10.78.0.N), joined line by line.
"""
import argparse
import os
import shlex
import shutil
import socket
import sys
import unittest

if __name__ == "__main__":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import image
import vm

LINES = "ab"
NET = {"a": "10.77.0.", "b": "10.78.0."}
UDP = "udp"     # the network namespace of one_guest()'s host without rxe
JUMBO = 9000
PERFTEST_PORT = 18515


class Nic:
    """One network card of a guest; `wires` are ends of socket pairs to the other guests of its line."""

    def __init__(self, line, host, wires):
        self.line, self.wires = line, wires
        self.mac = f"52:54:00:77:{ord(line):02x}:{host:02x}"

    def fds(self):
        return [w.fileno() for w in self.wires]

    def argv(self):
        net = f"net_{self.line}"
        if len(self.wires) == 1:
            argv = ["-netdev", f"socket,id={net},fd={self.wires[0].fileno()}"]
        else:   # a hub in this QEMU
            argv = ["-netdev", f"hubport,id={net},hubid={ord(self.line)}"]
            for i, w in enumerate(self.wires):
                argv += ["-netdev", f"socket,id={net}_wire{i},fd={w.fileno()}",
                         "-netdev", f"hubport,id={net}_port{i},hubid={ord(self.line)},netdev={net}_wire{i}"]
        return argv + ["-device", f"virtio-net-pci,id=nic_{self.line},netdev={net},mac={self.mac},romfile="]


class Host(vm.Guest):
    """A guest with rxe on lines a and b."""

    def netdev(self, line):
        return line + "0"

    def rxe(self, line):
        return "rxe_" + line

    def address(self, line, udp=False):
        return NET[line] + str(2 if udp else self.number)

    def gid(self, line):
        """The RoCE v2 GID that is this host's address, as sysfs writes its end."""
        return "ffff:" + ":".join(socket.inet_aton(self.address(line)).hex()[i:i + 4] for i in (0, 4))

    def _add_rxe(self):
        """Every line's rxe device, until its GID is there: the kernel adds that a little later."""
        script = ["set -e", "ip route add 224.0.0.0/4 dev a0"]
        for line in LINES:
            script.append(f"rdma link add rxe_{line} type rxe netdev {line}0")
        for line in LINES:
            script.append(f"until cat /sys/class/infiniband/rxe_{line}/ports/1/gids/* 2>/dev/null | grep -q {self.gid(line)} &&"
                          f" grep -q ACTIVE /sys/class/infiniband/rxe_{line}/ports/1/state; do sleep 0.1; done")
        self.run("\n".join(script), timeout=vm.GRACE_S)

    def set_mtu(self, line, mtu, udp=False):
        self.run(f"ip link set {line}0 mtu {mtu}")
        if udp:
            self.run(f"ip link set {line}1 mtu {mtu}", ns=UDP)

    def set_loss(self, line, percent, udp=False):
        """Loses what leaves on this line, for real; 0 ends it.  `udp`: what the namespace sends."""
        dev, ns = (line + "1", UDP) if udp else (line + "0", None)
        self.run(f"tc qdisc replace dev {dev} root netem loss {percent}%" if percent else
                 f"tc qdisc del dev {dev} root", ns=ns)

    def set_link(self, line, up):
        """Takes the interface down, or up again."""
        self.run(f"ip link set {line}0 {'up' if up else 'down'}")

    def sniff(self, line, udp=False):
        """tcpdump on this line's interface: the RoCE v2 frames that the kernel sends and gets there (a context manager with
        `path`).  A GSO send is one frame on a veth, cut here at 9216 bytes: send without."""
        return Sniff(self, line, udp)

    def netem_drops(self, line, udp=False):
        dev, ns = (line + "1", UDP) if udp else (line + "0", None)
        out = self.run(f"tc -s qdisc show dev {dev}", ns=ns).out
        return int(out.split("(dropped ")[1].split(",")[0]) if "netem" in out else 0


class Sniff:
    """In immediate mode each frame takes a slot of the snapshot length: 32 MiB hold 3,600 of them."""

    def __init__(self, host, line, udp):
        host.captures += 1
        self.host, self.dev, self.ns = host, line + "01"[udp], UDP if udp else None
        self.path = host.path(f"sniff{host.captures}.pcap")

    def __enter__(self):
        self.process = self.host.start(["tcpdump", "-i", self.dev, "-w", self.path, "-U", "--immediate-mode", "-Z", "root",
                                        "-B", "32768", "-s", "9216", "udp", "dst", "port", "4791"], ns=self.ns)
        self.process.wait_line("listening on")
        return self

    def __exit__(self, *unused):
        self.process.stop()


class OneGuest(Host):
    def __init__(self, name="one", mtu=1500, **options):
        super().__init__(name, **options)
        self.number, self.mtu = 1, mtu

    def ready(self, timeout=vm.BOOT_S):
        super().ready(timeout)
        script = ["set -e", f"ip netns add {UDP}", f"ip -n {UDP} link set lo up"]
        for line in LINES:
            script += [f"ip link add {line}0 mtu {self.mtu} type veth peer name {line}1 mtu {self.mtu} netns {UDP}",
                       f"ip addr add {self.address(line)}/24 dev {line}0", f"ip link set {line}0 up",
                       f"ip -n {UDP} addr add {self.address(line, udp=True)}/24 dev {line}1",
                       f"ip -n {UDP} link set {line}1 up"]
        self.run("\n".join(script))
        self._add_rxe()
        return self


class WiredGuest(Host):
    """One of guests(n)."""

    def __init__(self, number, nics, mtu, **options):
        super().__init__(f"h{number}", nics=nics, **options)
        self.number, self.mtu = number, mtu

    def ready(self, timeout=vm.BOOT_S):
        super().ready(timeout)
        script = ["set -e"]
        for nic in self.nics:
            dev = nic.line + "0"
            script += [f"for d in /sys/class/net/*; do if [ $(cat $d/address) = {nic.mac} ]; then n=${{d##*/}}; fi; done",
                       f"ip link set $n name {dev} mtu {self.mtu} up", f"ip addr add {self.address(nic.line)}/24 dev {dev}"]
        self.run("\n".join(script))
        self._add_rxe()
        return self

    def plug(self, line, plugged):
        """Pulls the cable, or plugs it in again: the carrier goes, as on a real link."""
        self.qmp.call("set_link", name=f"nic_{line}", up=plugged)

    def capture(self, line):
        return Capture(self, line)


class Capture:
    """What is on the wire of one line, at this guest's card, into `path` (a context manager)."""

    def __init__(self, guest, line):
        guest.captures += 1
        self.guest, self.line, self.name = guest, line, f"capture{guest.captures}"
        self.path = guest.path(self.name + ".pcap")

    def __enter__(self):
        self.guest.qmp.call("object-add", **{"qom-type": "filter-dump", "id": self.name, "netdev": "net_" + self.line,
                                             "file": self.path})
        return self

    def __exit__(self, *unused):
        self.guest.qmp.call("object-del", id=self.name)


class Guests:
    """Several guests on the same two lines."""

    def __init__(self, count=2, mtu=1500, **options):
        wires = {line: [[] for _ in range(count)] for line in LINES}
        for ends in wires.values():
            for other in range(1, count):
                here, there = socket.socketpair()
                ends[0].append(here)
                ends[other].append(there)
        self.hosts = [WiredGuest(i + 1, [Nic(line, i + 1, wires[line][i]) for line in LINES], mtu, **options)
                      for i in range(count)]

    def boot(self):
        for h in self.hosts:
            h.boot()
        for h in self.hosts:
            for nic in h.nics:
                for w in nic.wires:
                    w.close()
        return self

    def ready(self):
        for h in self.hosts:
            h.ready()
        return self

    def close(self):
        for h in self.hosts:
            h.close()


def require():
    """For setUpModule(): skips the module where there can be no guest."""
    try:
        image.get()
    except image.Unavailable as e:
        raise unittest.SkipTest(str(e)) from e


def booted(make):
    """What make() begins to boot, when it is ready.  A guest that died on the way there has told nothing of what is to be
    tested, only of how busy the machine is (early panics and stalls under emulation): that is shown, and tried again."""
    for left in (2, 1, 0):
        guest = make()
        try:
            guest.boot()
            guest.ready()
            return guest
        except vm.GuestError as e:
            guest.close()
            if left == 0:
                raise
            print(e, file=sys.stderr, flush=True)
        except BaseException:
            guest.close()
            raise


def one_guest(**options):
    """The guest of a test module, booted; close() it in tearDownModule()."""
    return booted(lambda: OneGuest(**options))


def guests(count=2, **options):
    """The guests of a test module, booted; close() the result in tearDownModule()."""
    return booted(lambda: Guests(count, **options))


def mckey(host, line, group, count, *args):
    """The multicast example of librdmacm; with -s it sends.  It says `receiving` once it has joined."""
    return host.start(["stdbuf", "-oL", "mckey", "-m", group, "-b", host.address(line), "-c", "1", "-C", str(count), *args])


def multicast(sender, receiver, line, group, count):
    """`count` messages of mckey from one host to another.  mckey looks at no completion's status, and in a guest of a very
    loaded machine some of its sends never reached the wire (65 and 72 of 100 did, in 2 runs of 25; Linux 6.1): it sends
    again until the receiver has enough."""
    rx = mckey(receiver, line, group, count)
    rx.wait_line("receiving", stream=1)
    for _ in range(5):
        tx = mckey(sender, line, group, count, "-s")
        if tx.wait() != 0:
            raise vm.GuestError(tx.tail())
        if receiver.wait_for(lambda: rx.rc is not None, 20):
            break
    if rx.wait() != 0:
        raise vm.GuestError(rx.tail())


def perftest(client, server, line, *argv, pin=False, timeout=60):
    """One of perftest's tools between two hosts; returns what the client prints.  `pin`: the client to CPU 0, the server to 1.
    Never with its -R: there the client does not wait for the server's rdma_listen(), and is refused now and then."""
    def command(host, cpu):
        gid = host.run(f"cd /sys/class/infiniband/{host.rxe(line)}/ports/1/gids; grep -l {host.gid(line)} * 2>/dev/null").out
        return [*(["taskset", "-c", cpu] if pin else []), *argv, "-d", host.rxe(line), "-x", gid.split()[0], "-p", PERFTEST_PORT]
    serving = server.start(command(server, 1))
    server.run(f"until ss -Htln 'sport = :{PERFTEST_PORT}' | grep -q .; do sleep 0.05; done")
    out = client.run([*command(client, 0), server.address(line)], timeout=timeout).out
    if serving.wait() != 0:
        raise vm.GuestError(serving.tail())
    return out


# --- the tool --------------------------------------------------------------------------------------

def do_run(opt):
    cmd = opt.command[0] if len(opt.command) == 1 else shlex.join(opt.command)
    bed = guests(opt.hosts, mtu=opt.mtu) if opt.hosts > 1 else one_guest(mtu=opt.mtu)
    try:
        host = bed.hosts[0] if opt.hosts > 1 else bed
        p = host.start(cmd, cwd=os.getcwd())
        shown = {1: 0, 2: 0}
        while True:
            ended = p.rc is not None
            for stream, to in ((1, sys.stdout), (2, sys.stderr)):
                to.buffer.write(p.data[stream][shown[stream]:])
                to.flush()
                shown[stream] = len(p.data[stream])
            if ended:
                return p.rc if p.rc >= 0 else 128 - p.rc
            host.wait_for(lambda: p.rc is not None or any(len(p.data[s]) > shown[s] for s in shown), 3600)
    finally:
        bed.close()


def do_shell(opt):
    guest = OneGuest(console="stdio", mtu=opt.mtu).boot()
    size = shutil.get_terminal_size()
    try:
        guest.ready()
        print(f"bed: verbs host with rxe_a, rxe_b; `ip netns exec {UDP} ...` is the udp host; files in {guest.dir} are shared\r\n"
              "bed: exit or Ctrl-D powers off; Ctrl-A X kills the guest\r", flush=True)
        guest.start(f"stty -F /dev/ttyS0 sane rows {size.lines} columns {size.columns};"
                    "exec setsid -c -w bash -i </dev/ttyS0 >/dev/ttyS0 2>&1",
                    cwd=os.getcwd(), env={"TERM": os.environ.get("TERM", "vt100")}).wait(7 * 86400)
    except vm.GuestError as e:
        if guest.qemu.wait() != 0:
            raise
        print(f"bed: {str(e).splitlines()[0]}")
    finally:
        guest.close()
    return 0


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sub = ap.add_subparsers(dest="what", required=True)
    for name in ("run", "shell", "image", "check"):
        p = sub.add_parser(name)
        p.add_argument("--mtu", type=int, default=1500)
        if name == "run":
            p.add_argument("--hosts", type=int, default=1)
            p.add_argument("command", nargs=argparse.REMAINDER)
    opt = ap.parse_args()
    try:
        if opt.what == "run":
            return do_run(opt)
        if opt.what == "shell":
            return do_shell(opt)
        if opt.what == "image":
            kernel, initrd = image.get()
            print(f"{os.path.dirname(kernel)}: {image.accelerator(kernel, initrd)}")
        image.check_machine()
        return 0
    except image.Unavailable as e:
        print(f"bed: {e}", file=sys.stderr)
        return 69
    except vm.GuestError as e:
        print(f"bed: {e}", file=sys.stderr)
        return 71


if __name__ == "__main__":
    sys.exit(main())
