"""Repair by RDMA READ between two hosts, with loss on the wire for real; and what is on the wire."""
import json
import os
import unittest

import bed
import tw
from roce import read_pcap, rocev2_check

MESSAGES = 6000
GRACE_S = 300
HEAD = 40       # a message; no line brings a datagram before its own
REPAIR_TOS = 26 << 2 | 2
LIVE_TOS = 34 << 2


def setUpModule():
    global BED, H1, H2, CAPTURE
    bed.require()
    BED = bed.guests(2)
    H1, H2 = BED.hosts
    CAPTURE = tw.generate(H1.path("feed.pcap"), messages=MESSAGES, rate=2000)


def tearDownModule():
    BED.close()


class Hosts(unittest.TestCase):
    def setUp(self):
        self.processes = []
        self.addCleanup(lambda: [p.stop() for p in reversed(self.processes)])

    def write(self, name, fault):
        # Machines that stand still for seconds: give_up_ms keeps queue pairs for a quarter of it; and a range that comes too
        # early twice (the publisher has sent it, and was interrupted before it said so) is asked for by number: PATIENT in
        # test_verbs_repair.py
        a, b = tw.random_groups()
        text = f"""site: {name}
environment: test
run_dir: /dev/shm/{name}
fabric: {{ transport: verbs }}
hosts:
  one: {{ address: {H1.address("a")}, lines: {{ a: a0, b: b0 }}, addresses: {{ b: {H1.address("b")} }} }}
  two: {{ address: {H2.address("a")}, lines: {{ a: a0, b: b0 }}, addresses: {{ b: {H2.address("b")} }} }}
venues: [{{ id: 1, mic: IEXG }}]
channels:
  - {{ id: 1, name: one, depth: quotes, groups: {{ a: {a}, b: {b} }} }}
feedhandlers:
  - {{ name: feed, host: one, venue: IEXG, protocol: tops16, channels: [1],
       input: {{ files: {json.dumps([CAPTURE])}, speed_pct: 100 }} }}
publishers:
  - {{ name: pub, host: one, channels: [1], history_ms: 250000, peak_mbps: 1 }}
subscriber: {{ repair: [pub], wait_us: 50000, give_up_ms: 240000, retry_min_ms: 1000, retry_max_ms: 10000, attempts: 250,
              store_datagrams: 16384 }}
fault: {{ {fault} }}
"""
        for host in (H1, H2):
            with open(host.path(name + ".yaml"), "w", encoding="utf-8") as f:
                f.write(text)

    def start(self, host, name, program, *args, out=None):
        p = host.start(["sh", "-c", 'ulimit -l unlimited; exec "$@"', "-", tw.program(program), "-c", host.path(name + ".yaml"),
                        *args], out=out)
        self.processes.append(p)
        return p

    def subscriber(self, host, name, who):
        path = host.path(f"{name}-{who}")
        p = self.start(host, name, "tw-subscribe", "--as", "one" if host is H1 else "two", "--name", who, "--format", "json",
                       "--summary", path + ".json", out=path + ".out")
        p.summary_path, p.out_path = path + ".json", path + ".out"
        p.wait_line("ready", timeout=GRACE_S)
        return p

    def publisher(self, name):
        p = self.start(H1, name, "tw-publisher", "--as", "pub", "--summary", H1.path(name + "-pub.json"))
        p.summary_path = H1.path(name + "-pub.json")
        p.wait_line("ready", timeout=GRACE_S)
        return p

    def play(self, name, fault):
        """The feed to two subscribers on either host: what the subscribers got, and the summaries."""
        self.write(name, fault)
        pub = self.publisher(name)
        places = ((H1, "near"), (H2, "far1"), (H2, "far2"))
        subs = [self.subscriber(host, name, who) for host, who in places]
        pub.wait_line("has logged in", count=6, timeout=GRACE_S)
        for host, who in places:    # what the publisher says of a login the subscriber may not have heard yet
            tw.wait_until(lambda h=host, w=who: can_read(h, name, w), f"RDMA READ for {who}", GRACE_S)
        self.start(H1, name, "tw-feedhandler", "--as", "feed")
        pub.wait_line("has ended", timeout=GRACE_S)
        for sub in subs:
            tw.wait_until(lambda s=sub: ended(s), f"the end of the session at {sub.summary_path}", GRACE_S)
        summaries = [finish(p) for p in (pub, *subs)]
        for summary in summaries[1:]:
            self.assertEqual(summary["lost_messages"], 0, f"{summary}\n{summaries[0]}")
        return [messages(sub) for sub in subs], summaries

    def test_two_hosts(self):
        """Every kind of loss (of the session's begin, on both lines at once, on a wire, in the middle of a repair) is repaired by
        RDMA READ, and nobody but a NIC does anything for it at the publisher."""
        lossless, _ = self.play("lossless", "correlated_loss_pct: 0")
        cut = f"{{ cut_begin: 1, cut_end: {HEAD} }}"
        try:
            for line in "ab":
                H1.set_loss(line, 2)
            with H2.capture("a") as wire:
                lossy, (pub, *subs) = self.play("lossy", f"correlated_loss_pct: 3, lines: {{ a: {cut}, b: {cut} }}")
        finally:
            for line in "ab":
                H1.set_loss(line, 0)
        for got, summary in zip(lossy, subs):
            channel = summary["channels"][0]
            self.assertEqual(without_way(got), without_way(lossless[0]))
            self.assertTrue(got[0].get("repaired"), got[0])
            self.assertGreater(channel["repair_one_sided"], 0)
            self.assertEqual(channel["repair_one_sided"], channel["repair_reads"])
        for way in ("repair", "repair_rc"):
            counters = {k: pub[way][k] for k in ("reads", "replies", "bytes", "busy", "gone", "refused", "paced")}
            self.assertEqual(counters, dict.fromkeys(counters, 0), f"{way}: {pub}\n{subs}")
        # RC in both directions has the class of repair; its opcodes: 0x0c READ request, 0x0d to 0x10 its responses
        frames = [f for f in read_pcap(wire.path) if f.opcode < 0x20 and f.dest_qp > 1]
        self.assertTrue({0x0c} < {f.opcode for f in frames})
        self.assertEqual({f.src for f in frames}, {H1.address("a"), H2.address("a")})
        self.assertEqual({f.tos for f in frames}, {REPAIR_TOS})
        self.assertEqual({f.tos for f in read_pcap(wire.path) if f.dest_qp == 0xFFFFFF}, {LIVE_TOS})
        self.assertIn(f" rc {len(frames)}", rocev2_check(self, wire.path))


def ended(sub):
    with open(sub.out_path, "rb") as f:
        f.seek(0, os.SEEK_END)
        f.seek(max(0, f.tell() - 4096))
        return b'"event":"end"' in f.read()


def can_read(host, name, who):
    path = host.path(f"{name}-{who}.counters")
    host.run(["cp", f"/dev/shm/{name}/{who}.counters", path], timeout=GRACE_S)
    return tw.read_counters(path)["reader"]["repair by pub over RC"]["up"] == 1


def finish(process):
    process.stop()
    with open(process.summary_path, encoding="utf-8") as f:
        return json.load(f)


def messages(sub):
    with open(sub.out_path, encoding="utf-8") as f:
        objects = [json.loads(line) for line in f]
    return [o for o in objects if "kind" in o]


def without_way(objects):
    """Everything of each message but the times of this run and the way it came."""
    apart = ("sent_ns", "recv_ns", "session", "recv_delta_ns", "line", "flags", "repaired")
    return [{k: v for k, v in o.items() if k not in apart} for o in objects]


if __name__ == "__main__":
    unittest.main()
