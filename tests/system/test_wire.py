"""What the `udp` transport puts on a wire, seen from outside: two network namespaces, a veth pair, a capture.

The judges of tests/support/roce.py, which share no code with the sender, look at every frame.
"""
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

import tw
from roce import QKEY, read_pcap, rocev2_check, tshark

HELPER = tw.program("tw-test-wire-send")
LIMIT_S = 20
TOS = 34 << 2


def run(*argv, **kw):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, **kw)


def must(*argv):
    p = run(*argv)
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {p.stdout.strip()}")
    return p.stdout


class Capture:
    """tcpdump on an interface of a namespace; ends by itself after `count` frames."""

    def __init__(self, ns, interface, path, count, snap):
        self.path = path
        # In immediate mode each frame takes a slot of the snapshot length: 8 MiB hold 4,096 short ones.
        self.popen = subprocess.Popen(
            ["ip", "netns", "exec", ns, "tcpdump", "-i", interface, "-w", path, "-U", "--immediate-mode",
             "-Z", "root", "-B", "8192", "-s", str(snap), "-c", str(count), "udp", "dst", "port", "4791"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.popen.stderr:
            if "listening on" in line:
                return
        raise RuntimeError("tcpdump did not start")

    def finish(self):
        try:
            self.popen.communicate(timeout=LIMIT_S)
        finally:
            self.close()
        return read_pcap(self.path)

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self.popen.stderr.close()


class Helper:
    """tw-test-wire-send in a namespace, past its `ready`."""

    def __init__(self, ns, mode, **options):
        self.popen = subprocess.Popen(
            ["ip", "netns", "exec", ns, HELPER, mode] + [f"{k}={v}" for k, v in options.items()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.popen.stdout.readline() != "ready\n":
            raise RuntimeError(self.popen.communicate(timeout=LIMIT_S)[1])

    def finish(self):
        """Lets it go on and returns its lines as dictionaries."""
        out, err = self.popen.communicate("\n", timeout=LIMIT_S)
        if self.popen.returncode != 0:
            raise RuntimeError(f"exit {self.popen.returncode}: {err}")
        words = [line.split() for line in out.splitlines()]
        return [{k: v if k == "line" else int(v) for k, v in zip(w[::2], w[1::2])} for w in words]

    def close(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        for f in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            f.close()


class Wire(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        for tool in ("ip", "tcpdump"):
            if shutil.which(tool) is None:
                self.skipTest(f"{tool} is not installed")
        if not os.path.exists(HELPER):
            self.fail(f"{HELPER} is not built")
        tag = f"tw{os.getpid()}-{random.SystemRandom().randrange(1 << 24):x}"
        self.a, self.b = tag + "a", tag + "b"
        for ns in (self.a, self.b):
            p = run("ip", "netns", "add", ns)
            if p.returncode != 0:
                self.skipTest(f"no network namespaces here: {p.stdout.strip()}")
            self.addCleanup(run, "ip", "netns", "del", ns)
            p = run("ip", "netns", "exec", ns, "true")
            if p.returncode != 0:
                self.skipTest(f"no network namespaces here: {p.stdout.strip()}")
        self.dir = tempfile.mkdtemp(prefix="tw-wire-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.wire(0)
        low = random.SystemRandom().randrange(1 << 17)
        self.groups = [socket.inet_ntoa(struct.pack(">I", 0xEFC00000 | low << 1 | i)) for i in (0, 1)]

    def wire(self, n):
        """A veth pair: v<n> with 10.77.<n>.1 in namespace a, w<n> with 10.77.<n>.2 in namespace b."""
        must("ip", "link", "add", f"v{n}", "netns", self.a, "type", "veth", "peer", "name", f"w{n}", "netns", self.b)
        for ns, interface, host in ((self.a, f"v{n}", 1), (self.b, f"w{n}", 2)):
            must("ip", "-n", ns, "addr", "add", f"10.77.{n}.{host}/24", "dev", interface)
            must("ip", "-n", ns, "link", "set", interface, "up")

    def segment_on_sending(self):
        """Makes the kernel cut GSO sends before they reach the veth device, and so the capture."""
        must("ip", "-n", self.a, "link", "set", "v0", "gso_max_segs", "1")

    def capture(self, count, snap=2048):
        c = Capture(self.b, "w0", os.path.join(self.dir, "wire.pcap"), count, snap)
        self.addCleanup(c.close)
        return c

    def helper(self, ns, mode, **options):
        h = Helper(ns, mode, group_a=self.groups[0], tos=TOS, **options)
        self.addCleanup(h.close)
        return h

    def send(self, **options):
        return self.helper(self.a, "send", a="10.77.0.1", **options).finish()

    def captured(self, count, **options):
        c = self.capture(count)
        lines = self.send(count=count, **options)
        self.assertEqual(lines, [{"line": "a", "datagrams": count, "skipped": 0, "errors": 0}])
        return c.finish()

    def check_frames(self, frames, count, size, ids, publisher=1):
        self.assertEqual(len(frames), count)
        for seq, f in enumerate(frames):
            self.assertEqual(f.icrc, f.icrc_right, f"frame {seq}")
            self.assertEqual((f.src, f.dst, f.dport), ("10.77.0.1", self.groups[0], 4791))
            self.assertEqual((f.tos, f.ttl, f.frag), (TOS, 8, 0x4000))
            self.assertEqual((f.opcode, f.flags, f.pkey, f.masked), (0x64, 0, b"\xff\xff", 0))
            self.assertEqual((f.dest_qp, f.qkey), (0xFFFFFF, QKEY))
            self.assertEqual(f.psn, seq)
            self.assertEqual(f.source_qp, frames[0].source_qp)
            self.assertEqual(f.udp_len, f.total - 20)
            self.assertEqual(f.datagram, bytes((seq * 7 + i) & 255 for i in range(size)))
        self.assertNotIn(frames[0].source_qp, (0, 1, 0xFFFFFF))
        self.assertEqual(len({f.sport for f in frames}), 1, "one flow")
        self.assertEqual([f.id for f in frames], ids)

    def ids_of_runs(self, count, batch):
        """Identifications of `count` equal datagrams posted `batch` at a time, at most 62 in a send."""
        ids = []
        while len(ids) < count:
            left = min(batch, count - len(ids))
            while left:
                run_length = min(left, 62)
                ids += range(run_length)
                left -= run_length
        return ids

    def test_single_datagrams(self):
        frames = self.captured(50, gso="auto", batch=1, size=512)
        self.check_frames(frames, 50, 512, [0] * 50)
        self.assertEqual({f.checksum for f in frames}, {0})

    def test_batches_without_gso(self):
        frames = self.captured(150, gso="off", batch=64, size=1024)
        self.check_frames(frames, 150, 1024, [0] * 150)
        self.assertEqual({f.checksum for f in frames}, {0})

    def test_batches_with_gso(self):
        self.segment_on_sending()
        frames = self.captured(150, gso="auto", batch=64, size=1024)
        self.check_frames(frames, 150, 1024, self.ids_of_runs(150, 64))

    def test_auto_uses_gso_on_veth(self):
        """Seen before segmentation: one super-datagram of 62 frames, and the 2 of the batch that are left."""
        c = self.capture(2, snap=65535)
        self.send(gso="auto", batch=64, size=1024, count=64)
        self.assertEqual([f.total for f in c.finish()], [28 + 62 * 1048, 28 + 2 * 1048])

    def test_without_checksum_offload(self):
        """There older kernels refuse GSO sends (EIO), newer ones cut them themselves: nothing is lost either way."""
        disable = ("import fcntl,socket,struct,ctypes;"
                   "v=ctypes.create_string_buffer(struct.pack('II',0x17,0));"  # ETHTOOL_STXCSUM off
                   "fcntl.ioctl(socket.socket(),0x8946,struct.pack('16sP16x',b'v0',ctypes.addressof(v)))")
        must("ip", "netns", "exec", self.a, sys.executable, "-c", disable)
        frames = self.captured(150, gso="on", batch=64, size=1024)
        self.assertIn([f.id for f in frames], ([0] * 150, self.ids_of_runs(150, 64)))
        for seq, f in enumerate(frames):
            self.assertEqual(f.icrc, f.icrc_right, f"frame {seq}")
            self.assertEqual(f.datagram, bytes((seq * 7 + i) & 255 for i in range(1024)))

    def test_received_at_the_other_end(self):
        for cut, gso in ((False, "auto"), (True, "auto"), (False, "off")):
            if cut:
                self.segment_on_sending()
            for receive in ("auto", "off"):
                with self.subTest(cut=cut, gso=gso, receive=receive):
                    rx = self.helper(self.b, "receive", a="10.77.0.2", count=300, gso=receive)
                    self.send(count=300, batch=64, gso=gso)
                    self.assertEqual(rx.finish(),
                                     [{"received": 300, "wrong": 0, "icrc_bad": 0, "foreign_frames": 0}])

    def test_full_queue_is_counted(self):
        """A device queue that drops says so: every datagram is either sent or counted as skipped."""
        p = run("ip", "netns", "exec", self.a, "tc", "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "8kbit",
                "burst", "3000", "limit", "6000")
        if p.returncode != 0:
            self.skipTest(f"no tbf queue here: {p.stdout.strip()}")
        for gso, batch in (("off", 64), ("off", 1)):
            with self.subTest(gso=gso, batch=batch):
                line, = self.send(count=200, batch=batch, gso=gso)
                self.assertEqual(line["datagrams"] + line["skipped"], 200)
                self.assertGreater(line["skipped"], 0)
                self.assertEqual(line["errors"], 0)

    def test_lines_fail_alone(self):
        self.wire(1)
        for gso in ("auto", "off"):
            with self.subTest(gso=gso):
                must("ip", "-n", self.a, "link", "set", "v1", "up")
                tx = self.helper(self.a, "send", a="10.77.0.1", b="10.77.1.1", group_b=self.groups[1], count=128,
                                 gso=gso)
                must("ip", "-n", self.a, "link", "set", "v1", "down")
                a, b = tx.finish()
                self.assertEqual(a, {"line": "a", "datagrams": 128, "skipped": 0, "errors": 0})
                self.assertEqual(b, {"line": "b", "datagrams": 0, "skipped": 0, "errors": 128})

    def capture_both_ways(self):
        """A capture file with frames sent one by one, in batches, and in GSO runs."""
        self.segment_on_sending()
        c = self.capture(200)
        self.send(count=20, batch=1)
        self.send(count=90, batch=64, gso="off", size=256)
        self.send(count=90, batch=64, gso="on")
        self.assertEqual(len(c.finish()), 200)
        return c.path

    def test_shared_checker_agrees(self):
        out = rocev2_check(self, self.capture_both_ways(), "--group", self.groups[0], "--tos", str(TOS),
                           "--qp", "ffffff", "--qkey", f"{QKEY:x}")
        self.assertIn("frames 200 ud 200 rc 0", out)

    def test_wireshark_agrees(self):
        rows = tshark(self, self.capture_both_ways(), "infiniband.bth.opcode", "infiniband.deth.q_key",
                      "infiniband.bth.destqp", "infiniband.bth.p_key", "ip.dsfield", "ip.dsfield.dscp", "ip.dsfield.ecn",
                      "udp.dstport")
        self.assertEqual([[int(v, 0) for v in row] for row in rows],
                         [[0x64, QKEY, 0xFFFFFF, 0xFFFF, TOS, 34, 0, 4791]] * 200)


class Judges(unittest.TestCase):
    """The judges themselves, on frames that another vendor's hosts exchanged."""

    def setUp(self):
        self.pcap = tw.data_path("rocev2", "roce.pcap")
        if self.pcap is None:
            self.skipTest("the shared captures are not at hand")

    def test_shared_checker(self):
        self.assertIn("frames 105 ud 0 rc 105 icrc_bad 0", rocev2_check(self, self.pcap))

    def test_own_icrc(self):
        frames = read_pcap(self.pcap)
        self.assertEqual(len(frames), 105)
        for f in frames:
            self.assertEqual(f.icrc, f.icrc_right)
