"""Repair with the real processes on verbs: by RDMA READ, served, and over TCP to and from hosts with sockets alone."""
import json
import os
import unittest

import bed
import tw

MESSAGES = 6000
GRACE_S = 300
# What a line has brought the publisher may not have published yet, if it was interrupted between the two.  A range that
# comes too early twice is asked for by number (tw_repair_reply()): so that it does not, twice is long apart.
PATIENT = ", retry_min_ms: 1000, retry_max_ms: 10000"


def setUpModule():
    global G, CAPTURE
    bed.require()
    G = bed.one_guest()
    CAPTURE = tw.generate(G.path("feed.pcap"), messages=MESSAGES, rate=2000)


def tearDownModule():
    G.close()


class Site:
    """Host `v` has rxe devices, host `u` is the network namespace with plain sockets; datagrams are lost on both lines."""
    count = 0

    def __init__(self, sender, publisher="", subscriber="", loss=5, speed_pct=100):
        Site.count += 1
        self.name, self.sender, self.processes = f"repair{Site.count}", sender, []
        a, b = tw.random_groups()
        self.path = G.path(self.name + ".yaml")
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(f"""site: {self.name}
environment: test
run_dir: /dev/shm/{self.name}
hosts:
  v: {{ address: {G.address("a")}, lines: {{ a: {G.netdev("a")}, b: {G.netdev("b")} }}, addresses: {{ b: {G.address("b")} }} }}
  u: {{ address: {G.address("a", True)}, lines: {{ a: a1, b: b1 }}, addresses: {{ b: {G.address("b", True)} }} }}
venues: [{{ id: 1, mic: IEXG }}]
channels:
  - {{ id: 1, name: one, depth: quotes, groups: {{ a: {a}, b: {b} }} }}
feedhandlers:
  - {{ name: feed, host: {sender}, venue: IEXG, protocol: tops16, channels: [1],
       input: {{ files: {json.dumps([CAPTURE])}, speed_pct: {speed_pct} }} }}
publishers:
  - {{ name: pub, host: {sender}, channels: [1], history_ms: 65000, peak_mbps: 4{publisher} }}
subscriber: {{ repair: [pub], wait_us: 50000, give_up_ms: 60000, attempts: 100, store_datagrams: 16384{subscriber} }}
fault: {{ correlated_loss_pct: {loss} }}
""")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for p in reversed(self.processes):
            p.stop()

    def start(self, program, host, *args, out=None):
        p = G.start(["sh", "-c", 'ulimit -l unlimited; exec "$@"', "-", tw.program(program), "-c", self.path, *args], out=out,
                    ns=bed.UDP if host == "u" else None)
        self.processes.append(p)
        return p

    def subscriber(self, host, name):
        path = G.path(f"{self.name}-{name}")
        p = self.start("tw-subscribe", host, "--as", host, "--name", name, "--format", "json", "--summary", path + ".json",
                       out=path + ".out")
        p.summary_path, p.out_path = path + ".json", path + ".out"
        p.wait_line("ready", timeout=GRACE_S)
        return p

    def publisher(self):
        p = self.start("tw-publisher", self.sender, "--as", "pub", "--summary", G.path(self.name + "-pub.json"))
        p.summary_path = G.path(self.name + "-pub.json")
        p.wait_line("ready", timeout=GRACE_S)
        return p

    def feed(self):
        return self.start("tw-feedhandler", self.sender, "--as", "feed")


def ended(sub):
    with open(sub.out_path, "rb") as f:
        f.seek(0, os.SEEK_END)
        f.seek(max(0, f.tell() - 4096))
        return b'"event":"end"' in f.read()


def lines(sub):
    with open(sub.out_path, "rb") as f:
        return sum(line.endswith(b"\n") for line in f)


def finish(process):
    process.stop()
    with open(process.summary_path, encoding="utf-8") as f:
        return json.load(f)


def messages(sub):
    """Everything of each message but the times of this run and the way it came."""
    apart = ("sent_ns", "recv_ns", "session", "recv_delta_ns", "line", "flags", "repaired")
    with open(sub.out_path, encoding="utf-8") as f:
        objects = [json.loads(line) for line in f]
    return [{k: v for k, v in o.items() if k not in apart} for o in objects if "kind" in o]


class Repair(unittest.TestCase):
    lossless = None

    @classmethod
    def setUpClass(cls):
        with Site("v", loss=0) as site:
            sub = site.subscriber("v", "lossless")
            pub = site.publisher()
            site.feed()
            pub.wait_line("has ended", timeout=GRACE_S)
            tw.wait_until(lambda: ended(sub), "the end of the session", GRACE_S)
            finish(sub)
            cls.lossless = messages(sub)

    def play(self, site, hosts, logins):
        """The feed to subscribers on `hosts`; their summaries' channels, behind the publisher's summary."""
        pub = site.publisher()
        subs = [site.subscriber(host, f"s{i}-{host}") for i, host in enumerate(hosts)]
        pub.wait_line("has logged in", count=logins, timeout=GRACE_S)
        site.feed()
        pub.wait_line("has ended", timeout=GRACE_S)
        for sub in subs:
            tw.wait_until(lambda s=sub: ended(s), f"the end of the session at {sub.summary_path}", GRACE_S)
        summaries = [finish(sub) for sub in subs]
        for sub, summary in zip(subs, summaries):
            self.assertEqual(summary["lost_messages"], 0)
            self.assertEqual(messages(sub), self.lossless)
            self.assertGreater(summary["channels"][0]["repaired_by_history"], 0)
            self.assertGreater(summary["channels"][0]["repair_reads"], 0)
        return [finish(pub), *(s["channels"][0] for s in summaries)]

    def test_one_sided(self):
        """By RDMA READ, and the publisher's repair service has done nothing but log them in."""
        with Site("v", subscriber=PATIENT) as site:
            pub, *subs = self.play(site, ["v", "v"], logins=4)
        for sub in subs:
            self.assertGreater(sub["repair_one_sided"], 0)
            self.assertEqual(sub["repair_one_sided"], sub["repair_reads"])
        for way in ("repair", "repair_rc"):
            self.assertEqual({k: pub[way][k] for k in ("reads", "replies", "bytes", "busy", "gone", "refused", "paced")},
                             dict.fromkeys(("reads", "replies", "bytes", "busy", "gone", "refused", "paced"), 0), way)
        self.assertGreaterEqual(pub["repair_rc"]["logins"], 2)

    def test_served(self):
        with Site("v", publisher=", repair_one_sided: false") as site:
            pub, sub = self.play(site, ["v"], logins=2)
        self.assertEqual(sub["repair_one_sided"], 0)
        self.assertGreater(pub["repair_rc"]["replies"], 0)
        self.assertEqual(pub["repair"]["reads"], 0)

    def test_verbs_publisher_repairs_both_kinds_of_host(self):
        with Site("v", subscriber=PATIENT) as site:
            pub, verbs, udp = self.play(site, ["v", "u"], logins=3)
        self.assertGreater(verbs["repair_one_sided"], 0)
        self.assertEqual(udp["repair_one_sided"], 0)
        self.assertEqual(pub["repair_rc"]["reads"], 0)
        self.assertEqual({c["name"]: c["replies"] > 0 for c in pub["repair"]["clients"]}, {"s0-v": False, "s1-u": True})

    def test_udp_publisher_repairs_both_kinds_of_host(self):
        with Site("u") as site:
            pub, verbs, udp = self.play(site, ["v", "u"], logins=2)
        self.assertIsNone(pub["repair_rc"])
        self.assertEqual((verbs["repair_one_sided"], udp["repair_one_sided"]), (0, 0))
        self.assertEqual({c["name"]: c["replies"] > 0 for c in pub["repair"]["clients"]}, {"s0-v": True, "s1-u": True})

    def test_killed_in_the_middle(self):
        """SIGKILL of a subscriber, then of the publisher, which is started again: who stays has each message once, or in a
        LOST range (what the dead publisher's history alone had), and goes on being repaired by RDMA READ."""
        with Site("v") as site:
            pub = site.publisher()
            stays, dies = site.subscriber("v", "stays"), site.subscriber("v", "dies")
            pub.wait_line("has logged in", count=4, timeout=GRACE_S)
            site.feed()
            tw.wait_until(lambda: lines(stays) >= 500, "messages", GRACE_S)
            dies.kill()
            tw.wait_until(lambda: lines(stays) >= 1500, "messages beside one that was killed", GRACE_S)
            pub.kill()
            pub = site.publisher()
            pub.wait_line("has ended", timeout=GRACE_S)
            tw.wait_until(lambda: ended(stays), "the end of the session", GRACE_S)
            summary, _ = finish(stays), finish(pub)
            got = messages(stays)
        channel = summary["channels"][0]
        by_seq = {m["seq"]: m for m in self.lossless}
        self.assertEqual(got, [by_seq[m["seq"]] for m in got])
        self.assertFalse(channel["lost_cut"])
        parts = sorted([(m["seq"], m["seq"] + 1) for m in got] + [(r["seq"], r["end_seq"]) for r in channel["lost"]])
        self.assertEqual([parts[0][0], *(end for _, end in parts)], [*(begin for begin, _ in parts), channel["next_seq"]])
        self.assertEqual((parts[0][0], channel["next_seq"]), (1, len(self.lossless) + 1))
        self.assertLess(summary["lost_messages"], len(self.lossless) // 2)
        self.assertGreater(channel["repair_one_sided"], 0)


if __name__ == "__main__":
    unittest.main()
