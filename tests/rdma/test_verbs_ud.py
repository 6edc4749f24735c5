"""UD multicast over real verbs: the processes on rxe devices, alone and sharing their groups with `udp` hosts."""
import json
import os
import re
import unittest
from statistics import median

import bed
import tw
from roce import QKEY, read_pcap, rocev2_check

HELPER = tw.program("tw-test-wire-send")
UD = tw.program("tw-test-ud")
FABRIC = tw.program("tw-fabric")
TOS = 34 << 2
MESSAGES = 4000
WAIT_US = 50000


def setUpModule():
    global G, CAPTURE
    bed.require()
    G = bed.one_guest()
    CAPTURE = tw.generate(G.path("feed.pcap"), messages=MESSAGES, rate=2000)


def tearDownModule():
    G.close()


class Site:
    """A site of two hosts: `v` has the rxe devices, `u` is the network namespace with plain sockets."""
    count = 0

    def __init__(self, sender, speed_pct=100, fabric="", idle="auto", transport="auto", files=None):
        Site.count += 1
        self.name = f"site{Site.count}"
        self.sender, self.processes = sender, []
        self.groups = tw.random_groups()
        self.path = G.path(self.name + ".yaml")
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(f"""site: {self.name}
environment: test
run_dir: /dev/shm/{self.name}
idle: {idle}
fabric: {{ transport: {transport}{fabric} }}
hosts:
  v: {{ address: {G.address("a")}, lines: {{ a: {G.netdev("a")}, b: {G.netdev("b")} }}, addresses: {{ b: {G.address("b")} }} }}
  u: {{ address: {G.address("a", True)}, lines: {{ a: a1, b: b1 }}, addresses: {{ b: {G.address("b", True)} }} }}
venues: [{{ id: 1, mic: IEXG }}]
channels:
  - {{ id: 1, name: one, depth: quotes, groups: {{ a: {self.groups[0]}, b: {self.groups[1]} }} }}
feedhandlers:
  - {{ name: feed, host: {sender}, venue: IEXG, protocol: tops16, channels: [1],
       input: {{ files: {json.dumps([files or CAPTURE])}, speed_pct: {speed_pct} }} }}
publishers:
  - {{ name: pub, host: {sender}, channels: [1], history_ms: 65000, peak_mbps: 4 }}
subscriber: {{ repair: [pub], wait_us: {WAIT_US}, give_up_ms: 60000 }}
""")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for p in reversed(self.processes):
            p.stop()

    def start(self, program, host, *args, out=None):
        p = G.start([tw.program(program), "-c", self.path, *args], out=out, ns=bed.UDP if host == "u" else None)
        self.processes.append(p)
        return p

    def subscriber(self, host, name):
        p = self.start("tw-subscribe", host, "--as", host, "--name", name, "--format", "json", "--summary",
                       G.path(f"{self.name}-{name}.json"), out=G.path(f"{self.name}-{name}.out"))
        p.summary_path, p.out_path = G.path(f"{self.name}-{name}.json"), G.path(f"{self.name}-{name}.out")
        p.wait_line("ready", timeout=120)
        return p

    def publisher(self):
        p = self.start("tw-publisher", self.sender, "--as", "pub", "--summary", G.path(self.name + "-pub.json"))
        p.summary_path = G.path(self.name + "-pub.json")
        p.wait_line("ready", timeout=120)
        return p

    def feed(self):
        return self.start("tw-feedhandler", self.sender, "--as", "feed")


def ended(sub):
    """Whether the subscriber has written the end of the session."""
    with open(sub.out_path, "rb") as f:
        f.seek(0, os.SEEK_END)
        f.seek(max(0, f.tell() - 4096))
        return b'"event":"end"' in f.read()


def finish(process):
    process.stop()
    with open(process.summary_path, encoding="utf-8") as f:
        return json.load(f)


def around_first_cut(sub):
    """Nanoseconds from sent to received of each message before line A first went down, and from then until it came back."""
    before, alone, at = [], [], None
    with open(sub.out_path, encoding="utf-8") as f:
        for line in f:
            if not line.endswith("\n"):
                break
            o = json.loads(line)
            if o.get("event") in ("line_down", "line_up") and o["line"] == "a":
                if at is alone:
                    break
                at = before if o["event"] == "line_up" else alone if at is before else None
            elif "kind" in o and at is not None:
                at.append(o["recv_ns"] - o["sent_ns"])
    return before, alone


def messages(sub):
    """Everything of each message but the times of this run."""
    out = []
    with open(sub.out_path, encoding="utf-8") as f:
        for line in f:
            o = json.loads(line)
            if "kind" in o:
                out.append({k: v for k, v in o.items() if k not in ("sent_ns", "recv_ns", "session", "recv_delta_ns", "line",
                                                                    "flags", "repaired")})
    return out


class Streams(unittest.TestCase):
    def stream(self, sender, subscribers, **settings):
        """The feed from one host to subscribers on others; returns the summaries, publisher's first."""
        with Site(sender, **settings) as site:
            subs = [site.subscriber(host, f"s{i}-{host}") for i, host in enumerate(subscribers)]
            pub = site.publisher()
            site.feed()
            pub.wait_line("has ended", timeout=180)
            for sub in subs:
                tw.wait_until(lambda s=sub: ended(s), f"the end of the session at {sub.summary_path}", 120)
            summaries = [finish(p) for p in (pub, *subs)]
            first = messages(subs[0])
            for sub, summary in zip(subs, summaries[1:]):
                self.assertEqual(summary["lost_messages"], 0)
                self.assertEqual(summary["messages"], summaries[0]["channels"][0]["messages"])
                self.assertEqual(messages(sub), first)
                for line in summary["channels"][0]["lines"]:
                    self.assertEqual((line["malformed"], line["icrc_bad"], line["foreign_source"], line["foreign_frames"]),
                                     (0, 0, 0, 0))
                    self.assertGreater(line["first"] + line["duplicates"], 100)
            self.assertGreaterEqual(len(first), MESSAGES)
            return summaries

    def test_verbs_to_verbs(self):
        with G.sniff("a", udp=True) as sniff:
            pub, one, two = self.stream("v", ["v", "v"])
            self.assertEqual([s["transport"] for s in (pub, one, two)], ["verbs"] * 3)
            # an address that went and came back has another index
            self.assertRegex(one["line_a"], r"rxe_a port 1, GID [1-9][0-9]* \(::ffff:10\.77\.0\.1, RoCE v2")
            self.assertRegex(one["line_b"], r"rxe_b port 1, GID [1-9][0-9]* \(::ffff:10\.78\.0\.1, RoCE v2")
            self.assertEqual(one["receive_stamp"], "poll")
            for line in pub["channels"][0]["lines"]:
                self.assertEqual((line["skipped"], line["errors"]), (0, 0))
            live = [f for f in read_pcap(sniff.path) if f.dst.startswith("239.")]
            self.assertGreater(len(live), 100)
            self.assertEqual({(f.tos, f.ttl, f.dest_qp, f.qkey) for f in live}, {(TOS, 8, 0xFFFFFF, QKEY)})
            self.assertEqual([f for f in live if f.icrc != f.icrc_right], [])
            self.assertIn(" ud ", rocev2_check(self, sniff.path))

    def test_events_instead_of_polling(self):
        _, one = self.stream("v", ["v"], idle="event")
        self.assertEqual((one["idle"], one["transport"]), ("event", "verbs"))

    def test_verbs_to_both(self):
        _, one, two = self.stream("v", ["v", "u"])
        self.assertEqual((one["transport"], two["transport"]), ("verbs", "udp"))

    def test_udp_to_both(self):
        pub, one, two = self.stream("u", ["v", "u"])
        self.assertEqual((pub["transport"], one["transport"], two["transport"]), ("udp", "verbs", "udp"))


class Life(unittest.TestCase):
    def counters(self, run_dir, name):
        """The group "verbs_line" of a counter file, by line."""
        out = G.run([tw.program("tw-test-ud"), "counters", run_dir, name + ".counters"]).out
        return {tuple(w[:2]): int(w[2]) for w in (line.split() for line in out.splitlines())}

    def test_link_and_address_come_back(self):
        """Line A loses its link, then its address; each time it comes back by itself, and nothing is lost: B goes on."""
        feed = tw.generate(G.path("long.pcap"), messages=60000, rate=1000)
        with Site("v", files=feed) as site:
            sub = site.subscriber("v", "s")
            pub = site.publisher()
            site.feed()
            sub.wait_line("line a is up", timeout=120)
            G.set_link("a", False)
            sub.wait_line("line a went down", timeout=120)
            pub.wait_line("state DOWN: check the cable, the switch port", timeout=120)
            tw.wait_until(lambda: len(around_first_cut(sub)[1]) >= 1000, "messages of B alone", 120)
            before, alone = around_first_cut(sub)
            G.set_link("a", True)
            sub.wait_line("line a is up", count=2, timeout=120)
            G.run(f"ip addr del {G.address('a')}/24 dev {G.netdev('a')}")
            try:
                sub.wait_line("line a went down", count=2, timeout=120)
                pub.wait_line("no GID of an RDMA device is that address", timeout=120)
            finally:
                G.run(f"ip addr add {G.address('a')}/24 dev {G.netdev('a')}")
                G.run(f"ip route replace 224.0.0.0/4 dev {G.netdev('a')}")
            sub.wait_line("line a is up", count=3, timeout=120)
            for name in ("s", "pub"):
                tw.wait_until(lambda n=name: self.counters("/dev/shm/" + site.name, n)["a", "broken"] == 0, "all healed", 120)
                seen = self.counters("/dev/shm/" + site.name, name)
                self.assertGreaterEqual(seen["a", "port_downs"], 1)
                self.assertGreaterEqual(seen["a", "port_ups"], 1)
                self.assertGreaterEqual(seen["a", "gid_changes"], 1)
                self.assertGreaterEqual(seen["a", "rebuilds"], 1)
                self.assertEqual((seen["a", "unaccounted"], seen["b", "unaccounted"], seen["b", "rebuilds"]), (0, 0, 0))
            got, sent = finish(sub), finish(pub)
            self.assertEqual((got["lost_messages"], got["channels"][0]["lines"][1]["missing"]), (0, 0))
            # who waited for A would have waited for wait_us
            self.assertGreater(len(before), 0)
            self.assertLess(median(alone), median(before) + WAIT_US * 1000 / 2)
            self.assertEqual(sent["channels"][0]["lines"][1]["skipped"], 0)
            self.assertGreater(sent["channels"][0]["lines"][0]["skipped"], 0)

    def test_blocked_line_does_not_hold_the_other(self):
        """A queue pair that sends nothing any more (rxe never lets a qdisc hold one up) holds the memory until it is overtaken."""
        a, b = tw.random_groups()
        out = G.run([UD, "block", "3", G.address("a"), a, G.address("b"), b], timeout=300).out
        self.assertRegex(out, r"^rc 0 held 3 released 3 rebuilds 3 0 unaccounted 0 0\n")

    def test_queue_pairs_in_the_error_state(self):
        out = G.run([UD, "break", "4", G.address("a"), tw.random_groups()[0]], timeout=300).out
        self.assertRegex(out, r"^rc 0 rebuilds 4 4 failed 0 0 unaccounted 0 0 ")

    def test_descriptor_loses_no_wake(self):
        """The library's event loop: no datagram does not wake it, each one does, wherever it falls between poll and arming."""
        program = os.path.join(os.path.dirname(tw.program("tw-publisher")), "..", "tests", "rdma", "sub_events")
        r = G.run([program, G.address("a"), G.netdev("a"), G.address("b"), G.netdev("b"), "600"], timeout=600, check=False)
        self.assertEqual(r.rc, 0, r.out + r.err)
        rounds, quiet, woken, _, lost = map(int, re.search(r"rounds (\d+) quiet (\d+) woken (\d+) late (\d+) lost (\d+)", r.out).groups())
        self.assertEqual((rounds, quiet, lost), (600, 150, 0))
        self.assertGreater(woken, rounds / 2)

    def test_one_more_than_a_group_takes(self):
        out = G.run([UD, "hold", "60", G.address("a"), tw.random_groups()[0]], timeout=300).out
        self.assertIn("held 56\n", out)
        self.assertRegex(out, r"rxe_a \(line a\): ibv_attach_mcast: the device takes at most 56 queue pairs on one group "
                              r"\(max_mcast_qp_attach\)")

    def test_extended_completions(self):
        """The kind of completion queue that devices with a clock get, here without one."""
        group, _ = tw.random_groups()
        words = [f"a={G.address('a')}", f"group_a={group}", "transport=verbs", "count=2000", "size=512"]
        receiver = G.start([HELPER, "receive", *words, "extended=1", "limit_ms=120000"])
        receiver.wait_line("ready", stream=1)
        self.assertIn("datagrams 2000 skipped 0 errors 0", G.run([HELPER, "send", *words, "batch=8"]).out)
        self.assertEqual(receiver.wait(180), 0)
        self.assertIn("received 2000 wrong 0", receiver.out)

    def test_nothing_leaks(self):
        before = G.run("rdma resource show").out
        for mode, count in (("cycles", 200), ("joins", 2000)):
            with self.subTest(mode=mode):
                out = G.run([UD, mode, str(count), G.address("a"), tw.random_groups()[0]], timeout=600).out
                (fds, rss), (fds_end, rss_end) = re.findall(r"fds (\d+) rss_kb (\d+)", out)
                self.assertEqual(fds, fds_end)
                if tw.SLOW == 1:    # a sanitizer keeps what was freed
                    self.assertLess(int(rss_end), int(rss) + 512)
                self.assertEqual(G.run("rdma resource show").out, before)


class Errors(unittest.TestCase):
    def refused(self, host="v", **settings):
        with Site("v", **settings) as site:
            r = G.run([tw.program("tw-subscribe"), "-c", site.path, "--as", host, "--check"], check=False,
                      ns=bed.UDP if host == "u" else None)
            self.assertNotEqual(r.rc, 0)
            return r.err

    def test_larger_than_the_port_can_send(self):
        self.assertRegex(self.refused(transport="verbs", fabric=", mtu_bytes: 4096"),
                         r"line a: fabric.mtu_bytes: 4096, but rxe_a port 1 has an active MTU of 1024 \(it can do 4096\): set "
                         r"fabric.mtu_bytes to 1024, or raise the MTU of the interface")

    def test_partition(self):
        self.assertRegex(self.refused(transport="verbs", fabric=", partition_key: 0x8001"),
                         r"fabric.partition_key: found 0x8001, allowed on RoCE 0xffff \(line a, rxe_a\)")

    def test_udp_where_rxe_has_the_port(self):
        self.assertRegex(self.refused(transport="udp"), r"bind port 4791 \(unload rdma_rxe, .* or use transport verbs")

    def test_no_device(self):
        self.assertRegex(self.refused(host="u", transport="verbs"),
                         r"verbs: a1, 10.77.0.2: no GID of an RDMA device is that address: .*rxe_a port 1 index 1: "
                         r"::ffff:10.77.0.1 RoCE v2")


class Tool(unittest.TestCase):
    def test_lists_devices(self):
        out = G.run([FABRIC]).out
        self.assertRegex(out, r"rxe_a port 1: ACTIVE, Ethernet, MTU 1024 of 4096")
        listed = json.loads(G.run([FABRIC, "--json"]).out)
        rxe_a = [d for d in listed["ports"] if d["device"] == "rxe_a"][0]
        self.assertEqual((rxe_a["state"], rxe_a["link"], rxe_a["max_mcast_qp_attach"], rxe_a["timestamps"]),
                         ("ACTIVE", "Ethernet", 56, False))
        self.assertIn({"gid": "::ffff:10.77.0.1", "type": "RoCE v2", "interface": "a0"},
                      [{k: v for k, v in gid.items() if k != "index"} for gid in rxe_a["gids"]])

    def test_says_what_would_be_used(self):
        with Site("v") as site:
            out = G.run([FABRIC, "-c", site.path, "--as", "v"]).out
            self.assertRegex(out, r"transport verbs: a is rxe_a port 1 GID [1-9][0-9]*, b is rxe_b port 1 GID [1-9]")
            out = G.run([FABRIC, "-c", site.path, "--as", "u"], ns=bed.UDP).out
            self.assertIn("transport udp: port 4791 can be bound", out)

    def test_tries_multicast_between_hosts(self):
        for sender, receiver in (("v", "u"), ("u", "v")):
            with self.subTest(sender=sender), Site("v") as site:
                r = site.start("tw-fabric", receiver, "receive", "--as", receiver, "--channel", "1", "--json", "--wait", "120")
                r.wait_line("waiting", timeout=120)
                s = site.start("tw-fabric", sender, "send", "--as", sender, "--channel", "1", "--count", "500")
                self.assertEqual((s.wait(120), r.wait(180)), (0, 0), s.tail() + r.tail())
                result = json.loads(r.out)
                self.assertEqual([(x["line"], x["received"], x["lost"]) for x in result["lines"]],
                                 [("a", 500, 0), ("b", 500, 0)])

    def test_nobody_sends(self):
        with Site("v") as site:
            r = site.start("tw-fabric", "v", "receive", "--as", "v", "--channel", "1", "--wait", "1")
            self.assertEqual(r.wait(120), 69)
            self.assertIn("nothing came", r.err)


if __name__ == "__main__":
    unittest.main()
