"""The bed itself, in one guest: its commands, its rxe devices, its udp host, its losses, and how it fails."""
import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import bed
import image
import tw
import vm
from roce import QKEY, read_pcap, rocev2_check

HELPER = tw.program("tw-test-wire-send")


def setUpModule():
    global G
    bed.require()
    G = bed.one_guest()


def tearDownModule():
    G.close()


class Commands(unittest.TestCase):
    def test_status_and_output(self):
        r = G.run("echo one; echo two >&2; exit 7", check=False)
        self.assertEqual((r.rc, r.out, r.err), (7, "one\n", "two\n"))
        with self.assertRaisesRegex(vm.GuestError, "exit 7\ntwo"):
            G.run("echo two >&2; exit 7")
        self.assertEqual(G.run(["printf", "%s|", "a b", "$HOME", "'"]).out, "a b|$HOME|'|")
        self.assertEqual(G.run("echo $FOO; pwd", env={"FOO": "bar"}, cwd="/usr").out, "bar\n/usr\n")

    def test_not_there(self):
        with self.assertRaisesRegex(vm.GuestError, "No such file"):
            G.run(["/no/such/program"])

    def test_is_this_machines_root_but_not_writable(self):
        self.assertEqual(G.run(["sha256sum", os.path.abspath(__file__)]).out.split()[0],
                         hashlib.sha256(image.read(__file__)).hexdigest())
        name = f"/tmp/bed-{os.path.basename(G.dir)}"
        G.run(f"echo here > {name}; mkdir -p /dev/shm/x")
        self.assertEqual(G.run(["cat", name]).out, "here\n")
        self.assertFalse(os.path.exists(name))

    def test_files(self):
        data = os.urandom(100_000)
        G.put("/dev/shm/there", data)
        self.assertEqual(G.get("/dev/shm/there"), data)
        with open(G.path("from host"), "wb") as f:
            f.write(data)
        G.run(["cp", G.path("from host"), G.path("from guest")])
        self.assertEqual(image.read(G.path("from guest")), data)

    def test_much_output(self):
        r = G.run("head -c 3000000 /dev/zero | tr '\\0' '\\377'")
        self.assertEqual(len(r.out), 3_000_000)     # bytes that are no text arrive, each as one replacement character
        p = G.start("head -c 3000000 /dev/zero; echo end >&2", out=G.path("zeros"))
        self.assertEqual((p.wait(), p.err, os.path.getsize(G.path("zeros"))), (0, "end\n", 3_000_000))

    def test_timeout_kills_all_of_it(self):
        with self.assertRaisesRegex(vm.GuestError, "still runs"):
            G.run(f"echo $$ > {G.path('pids')}; sleep 3600 & echo $! >> {G.path('pids')}; wait", timeout=10)
        pids = image.read(G.path("pids")).split()
        self.assertEqual(len(pids), 2)
        G.run("".join(f"while kill -0 {int(p)}; do sleep 0.1; done 2>/dev/null;" for p in pids))

    def test_several_at_once(self):
        """Each needs the other to go on."""
        G.run("mkfifo /dev/shm/to1 /dev/shm/to2")
        one = G.start("echo ping > /dev/shm/to2; read x < /dev/shm/to1; echo $x")
        two = G.start("read x < /dev/shm/to2; echo pong > /dev/shm/to1; echo $x")
        self.assertEqual((one.wait(), two.wait(), one.out, two.out), (0, 0, "pong\n", "ping\n"))

    def test_background(self):
        trap = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
        p = G.start(trap)
        p.wait_line("ready", stream=1)
        self.assertIsNone(p.poll())
        self.assertEqual((p.stop(), p.lines(1)), (5, ["ready", "bye"]))
        p = G.start(trap)
        p.wait_line("ready", stream=1)
        self.assertEqual(p.kill(), -signal.SIGKILL)
        p = G.start("echo something else >&2")
        with self.assertRaisesRegex(vm.GuestError, "ended.*without a line with 'ready'"):
            p.wait_line("ready")

    def test_child_that_outlives_its_parent(self):
        """It holds the pipe open; the parent's exit status does not wait for that."""
        p = G.start("sh -c 'until [ -e /dev/shm/go ]; do sleep 0.1; done; echo late' & echo early")
        self.assertEqual((p.wait(), p.out), (0, "early\n"))
        G.run("touch /dev/shm/go")
        tw.wait_until(lambda: "late" in p.lines(1), "what the child says", 60)


class Verbs(unittest.TestCase):
    def test_devices(self):
        for line in bed.LINES:
            text = G.run(["ibv_devinfo", "-v", "-d", G.rxe(line)]).out
            self.assertIn("PORT_ACTIVE", text)
            self.assertIn("::ffff:" + G.address(line), text)

    def test_mtu(self):
        try:
            G.set_mtu("b", bed.JUMBO, udp=True)
            G.run("until ibv_devinfo -d rxe_b | grep -q 'active_mtu:.*4096'; do sleep 0.1; done")
        finally:
            G.set_mtu("b", 1500, udp=True)
        G.run("until ibv_devinfo -d rxe_b | grep -q 'active_mtu:.*1024'; do sleep 0.1; done")

    def test_multicast_on_each_line(self):
        for line, group in zip(bed.LINES, tw.random_groups()):
            with self.subTest(line=line):
                bed.multicast(G, G, line, group, 20)

    def test_connected(self):
        self.assertIn("t_typical", bed.perftest(G, G, "a", "ib_send_lat", "-n", 50))


class UdpHost(unittest.TestCase):
    def send(self, group, count, **options):
        words = [f"{k}={v}" for k, v in {"a": G.address("a", udp=True), "group_a": group, "count": count, **options}.items()]
        return G.run([HELPER, "send", *words], ns=bed.UDP).out

    def test_frames_reach_a_ud_queue_pair(self):
        """Frames of the `udp` transport, written by an ordinary socket, taken by rxe."""
        group, _ = tw.random_groups()
        for gso in ("off", "on"):
            with self.subTest(gso=gso), G.sniff("a") as sniff:
                receiver = bed.mckey(G, "a", group, 100, "-S", "1024")
                receiver.wait_line("receiving", stream=1)
                self.assertIn("datagrams 100", self.send(group, 100, size=1024, batch=64, gso=gso))
                self.assertEqual(receiver.wait(), 0, receiver.tail())
                self.assertIn("data transfers complete", receiver.out)
                if gso == "off":
                    tw.wait_until(lambda: len(read_pcap(sniff.path)) >= 100, "100 frames in the capture", 60)
                    out = rocev2_check(self, sniff.path, "--group", group, "--qp", "ffffff", "--qkey", f"{QKEY:x}")
                    self.assertIn("frames 100 ud 100", out)

    def test_port_belongs_to_rxe_outside_the_namespace(self):
        r = G.run([HELPER, "receive", f"a={G.address('a')}", "group_a=239.192.7.7", "count=1", "limit_ms=1000"], check=False)
        self.assertNotEqual(r.rc, 0)
        self.assertIn("4791", r.err)


class Loss(unittest.TestCase):
    def check(self, udp, send):
        with G.sniff("a", udp=not udp) as sniff:
            G.set_loss("a", 30, udp=udp)
            try:
                send()
                lost = G.netem_drops("a", udp=udp)
            finally:
                G.set_loss("a", 0, udp=udp)
            self.assertGreater(lost, 0)
            tw.wait_until(lambda: read_pcap(sniff.path), "what was not lost in the capture", 60)
            if udp:     # mckey's sends are not sure to have left: see bed.multicast()
                # Other frames (IGMP, neighbour discovery) may be among those lost.
                tw.wait_until(lambda: len(read_pcap(sniff.path)) >= 500 - lost, "all that was not lost", 60)
            self.assertLess(len(read_pcap(sniff.path)), 500)

    def test_of_verbs(self):
        group, _ = tw.random_groups()
        self.check(False, lambda: self.assertEqual(bed.mckey(G, "a", group, 500, "-s").wait(), 0))

    def test_of_udp(self):
        self.check(True, lambda: G.run([HELPER, "send", f"a={G.address('a', udp=True)}", "group_a=239.192.8.8", "count=500",
                                        "gso=off"], ns=bed.UDP))


class Failures(unittest.TestCase):
    def test_panic_is_reported(self):
        with vm.Guest("panic") as g:
            with self.assertRaisesRegex(vm.GuestError, "(?s)guest panic: is gone: Kernel panic.*sysrq.*console:"):
                g.run("echo c > /proc/sysrq-trigger")
            with self.assertRaisesRegex(vm.GuestError, "is gone"):
                g.run("true")
            qemu, folder = g.qemu, g.dir
        self.assertIsNotNone(qemu.returncode)
        self.assertFalse(os.path.exists(folder))

    def test_boot_that_takes_too_long(self):
        g = vm.Guest("slow").boot()
        try:
            with self.assertRaisesRegex(vm.GuestError, "(?s)did not boot within.*console:"):
                g.ready(0.01)
        finally:
            g.close()
        self.assertIsNotNone(g.qemu.returncode)

    def test_boot_that_fails(self):
        g = vm.Guest("broken")
        try:
            g.boot_script = "echo 'no such luck'\necho o >/proc/sysrq-trigger\nsleep 60\n"
            g.boot()
            with self.assertRaisesRegex(vm.GuestError, "(?s)is gone.*QEMU ended: 0.*no such luck"):
                g.ready()
        finally:
            g.close()

    def test_what_dies_while_it_boots_is_made_again(self):
        deaths = [mock.Mock(**{"ready.side_effect": vm.GuestError("panic")}) for _ in range(3)]
        good = mock.Mock()
        with mock.patch("sys.stderr", io.StringIO()) as said:
            self.assertIs(bed.booted(mock.Mock(side_effect=[*deaths[:2], good])), good)
            self.assertEqual(said.getvalue(), "panic\npanic\n")
            with self.assertRaises(vm.GuestError):
                bed.booted(mock.Mock(side_effect=deaths))
        for guest in deaths:
            guest.close.assert_called_with()
        good.close.assert_not_called()

    def test_probe_survives_what_hangs(self):
        """A QEMU that never comes up is killed at the limit."""
        kernel, initrd = image.get()
        with tempfile.TemporaryDirectory() as d, mock.patch.dict(os.environ, PATH=d + ":" + os.environ["PATH"]):
            pid_file = os.path.join(d, "pid")
            with open(os.path.join(d, image.QEMU), "w", encoding="ascii") as f:
                f.write(f"#!/bin/sh\necho $$ > {pid_file}.new; mv {pid_file}.new {pid_file}\nexec sleep 3600\n")
            os.chmod(f.name, 0o755)
            self.assertFalse(image.probe("kvm", kernel, initrd, limit_s=10))
            with self.assertRaises(ProcessLookupError):
                os.kill(int(image.read(pid_file)), 0)

    def test_no_guest_outlives_its_test(self):
        """The program that started it is killed; nothing else tells QEMU to end."""
        program = ("import sys, vm; g = vm.Guest('orphan', nics=()).boot(); print(g.qemu.pid, g.dir, flush=True);"
                   "sys.stdin.read()")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        p = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        pid, folder = p.stdout.readline().split()
        p.kill()
        p.wait()
        p.stdin.close()
        p.stdout.close()
        try:
            tw.wait_until(lambda: gone(int(pid)), "the end of QEMU", 60)
        finally:
            subprocess.run(["rm", "-rf", folder], check=True)


def gone(pid):
    """Ended, be it that whoever inherited it has not asked yet."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
