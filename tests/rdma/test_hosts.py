"""The bed's second topology: two hosts with an rxe device on each of two lines, and the wires between them."""
import unittest

import bed
import tw
from roce import QKEY, read_pcap, rocev2_check, tshark

COUNT = 100


def setUpModule():
    global BED, H1, H2
    bed.require()
    BED = bed.guests(2)
    H1, H2 = BED.hosts


def tearDownModule():
    BED.close()


def multicast(line, group):
    bed.multicast(H1, H2, line, group, COUNT)


class Multicast(unittest.TestCase):
    def test_lines_are_apart(self):
        groups = tw.random_groups()
        for line, other, group in zip("ab", "ba", groups):
            with self.subTest(line=line), H2.capture(line) as wire, H2.capture(other) as other_wire:
                multicast(line, group)
                self.assertEqual(read_pcap(other_wire.path), [])
                frames = read_pcap(wire.path)
                self.assertGreaterEqual(len(frames), COUNT)
                out = rocev2_check(self, wire.path, "--group", group, "--qp", "ffffff", "--qkey", f"{QKEY:x}")
                self.assertIn(f"frames {len(frames)} ud {len(frames)} rc 0", out)

    def test_wireshark_agrees(self):
        group, _ = tw.random_groups()
        with H1.capture("a") as wire:
            multicast("a", group)
        rows = tshark(self, wire.path, "infiniband.bth.opcode", "infiniband.deth.q_key", "infiniband.bth.destqp",
                      "infiniband.bth.p_key", "ip.src", "ip.dst")
        self.assertEqual([(*(int(v, 0) for v in r[:4]), *r[4:]) for r in rows],
                         [(0x65, QKEY, 0xFFFFFF, 0xFFFF, H1.address("a"), group)] * len(rows))     # 0x65: mckey adds immediate data
        self.assertGreaterEqual(len(rows), COUNT)
        frames = read_pcap(wire.path)
        for qp in {f.source_qp for f in frames}:
            psns = [f.psn for f in frames if f.source_qp == qp]
            self.assertEqual(psns, [(psns[0] + i) & 0xFFFFFF for i in range(len(psns))])

    def test_loss(self):
        """What netem loses at the sender is neither on the wire nor at the receiver."""
        group, _ = tw.random_groups()
        H1.set_loss("b", 30)
        try:
            with H2.capture("b") as wire:
                receiver = bed.mckey(H2, "b", group, COUNT)
                self.addCleanup(receiver.stop)
                receiver.wait_line("receiving", stream=1)
                self.assertEqual(bed.mckey(H1, "b", group, COUNT, "-s").wait(), 0)
                lost = H1.netem_drops("b")
                self.assertGreater(lost, 0)
                self.assertLess(len(read_pcap(wire.path)), COUNT)
                self.assertIsNone(receiver.poll())
        finally:
            H1.set_loss("b", 0)


class Links(unittest.TestCase):
    def test_cable_out_and_in_again(self):
        """The carrier of line b goes and comes back, and multicast with it; line a has nothing to do with it."""
        group_a, group_b = tw.random_groups()
        H2.plug("b", False)
        try:
            H2.run("until [ $(cat /sys/class/net/b0/carrier) = 0 ] && grep -q DOWN /sys/class/infiniband/rxe_b/ports/1/state;"
                   "do sleep 0.1; done")
            multicast("a", group_a)
        finally:
            H2.plug("b", True)
        H2.run("until [ $(cat /sys/class/net/b0/carrier) = 1 ] && grep -q ACTIVE /sys/class/infiniband/rxe_b/ports/1/state;"
               "do sleep 0.1; done")
        multicast("b", group_b)

    def test_interface_down_and_up_again(self):
        group, _ = tw.random_groups()
        H2.set_link("b", False)
        H2.run("until grep -q DOWN /sys/class/infiniband/rxe_b/ports/1/state; do sleep 0.1; done")
        H2.set_link("b", True)
        H2.run("until grep -q ACTIVE /sys/class/infiniband/rxe_b/ports/1/state; do sleep 0.1; done")
        multicast("b", group)


class Connected(unittest.TestCase):
    def test_messages_and_reads(self):
        with H1.capture("a") as wire:
            for tool in ("ib_send_lat", "ib_read_lat"):
                bed.perftest(H1, H2, "a", tool, "-n", 50)
        opcodes = {f.opcode for f in read_pcap(wire.path)}
        self.assertTrue({0x04, 0x0C, 0x10, 0x11} <= opcodes, opcodes)      # SEND only, READ request and response, ACK
        rocev2_check(self, wire.path)

    def test_jumbo_frames(self):
        try:
            for h in (H1, H2):
                h.set_mtu("a", bed.JUMBO)
                h.run("until ibv_devinfo -d rxe_a | grep -q 'active_mtu:.*4096'; do sleep 0.1; done")
            with H1.capture("a") as wire:
                bed.perftest(H1, H2, "a", "ib_send_lat", "-n", 20, "-s", 8192)
            self.assertEqual(max(f.total for f in read_pcap(wire.path)), 20 + 8 + 12 + 4096 + 4)
            rocev2_check(self, wire.path)
        finally:
            for h in (H1, H2):
                h.set_mtu("a", 1500)
