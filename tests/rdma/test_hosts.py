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


def multicast(line, group, count=COUNT):
    """`count` messages from H1 to H2; returns H2's receiver, which ends when it has them all."""
    receiver = bed.mckey(H2, line, group, count)
    receiver.wait_line("receiving", stream=1)
    sender = bed.mckey(H1, line, group, count, "-s")
    if sender.wait() != 0:
        raise AssertionError(sender.tail())
    return receiver


class Multicast(unittest.TestCase):
    def test_lines_are_apart(self):
        groups = tw.random_groups()
        for line, other, group in zip("ab", "ba", groups):
            with self.subTest(line=line), H2.capture(line) as wire, H2.capture(other) as other_wire:
                receiver = multicast(line, group)
                self.assertEqual(receiver.wait(), 0, receiver.tail())
                self.assertEqual(read_pcap(other_wire.path), [])
                out = rocev2_check(self, wire.path, "--group", group, "--qp", "ffffff", "--qkey", f"{QKEY:x}")
                self.assertIn(f"frames {COUNT} ud {COUNT} rc 0", out)

    def test_wireshark_agrees(self):
        group, _ = tw.random_groups()
        with H1.capture("a") as wire:
            receiver = multicast("a", group)
            self.assertEqual(receiver.wait(), 0, receiver.tail())
        rows = tshark(self, wire.path, "infiniband.bth.opcode", "infiniband.deth.q_key", "infiniband.bth.destqp",
                      "infiniband.bth.p_key", "ip.src", "ip.dst")
        self.assertEqual([(*(int(v, 0) for v in r[:4]), *r[4:]) for r in rows],
                         [(0x65, QKEY, 0xFFFFFF, 0xFFFF, H1.address("a"), group)] * COUNT)     # 0x65: mckey adds immediate data
        psns = [f.psn for f in read_pcap(wire.path)]
        self.assertEqual(psns, [(psns[0] + i) & 0xFFFFFF for i in range(COUNT)])

    def test_loss(self):
        """What netem loses at the sender is neither on the wire nor at the receiver."""
        group, _ = tw.random_groups()
        H1.set_loss("b", 30)
        try:
            with H2.capture("b") as wire:
                receiver = multicast("b", group)
                self.addCleanup(receiver.stop)
                lost = H1.netem_drops("b")
                self.assertGreater(lost, 0)
                # A few other frames (IGMP, neighbour discovery) may be among the lost.
                tw.wait_until(lambda: len(read_pcap(wire.path)) >= COUNT - lost, "what was not lost on the wire", 60)
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
            self.assertEqual(multicast("a", group_a).wait(), 0)
        finally:
            H2.plug("b", True)
        H2.run("until [ $(cat /sys/class/net/b0/carrier) = 1 ] && grep -q ACTIVE /sys/class/infiniband/rxe_b/ports/1/state;"
               "do sleep 0.1; done")
        self.assertEqual(multicast("b", group_b).wait(), 0)

    def test_interface_down_and_up_again(self):
        group, _ = tw.random_groups()
        H2.set_link("b", False)
        H2.run("until grep -q DOWN /sys/class/infiniband/rxe_b/ports/1/state; do sleep 0.1; done")
        H2.set_link("b", True)
        H2.run("until grep -q ACTIVE /sys/class/infiniband/rxe_b/ports/1/state; do sleep 0.1; done")
        self.assertEqual(multicast("b", group).wait(), 0)


class Connected(unittest.TestCase):
    def transfer(self, *args):
        server = H2.start(["stdbuf", "-oL", *args])
        server.wait_line("Waiting for client", stream=1)
        H1.run([*args, H2.address("a")])
        self.assertEqual(server.wait(), 0, server.tail())

    def test_messages_and_reads(self):
        with H1.capture("a") as wire:
            self.transfer("ib_send_lat", "-d", "rxe_a", "-R", "-n", "50")
            self.transfer("ib_read_lat", "-d", "rxe_a", "-R", "-n", "50")
        opcodes = {f.opcode for f in read_pcap(wire.path)}
        self.assertTrue({0x04, 0x0C, 0x10, 0x11} <= opcodes, opcodes)      # SEND only, READ request and response, ACK
        rocev2_check(self, wire.path)

    def test_jumbo_frames(self):
        try:
            for h in (H1, H2):
                h.set_mtu("a", bed.JUMBO)
                h.run("until ibv_devinfo -d rxe_a | grep -q 'active_mtu:.*4096'; do sleep 0.1; done")
            with H1.capture("a") as wire:
                self.transfer("ib_send_lat", "-d", "rxe_a", "-R", "-n", "20", "-s", "8192")
            self.assertEqual(max(f.total for f in read_pcap(wire.path)), 20 + 8 + 12 + 4096 + 4)
            rocev2_check(self, wire.path)
        finally:
            for h in (H1, H2):
                h.set_mtu("a", 1500)
