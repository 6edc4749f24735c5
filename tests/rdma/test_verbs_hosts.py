"""UD multicast over verbs between two hosts, two wires, with losses on both."""
import json
import unittest

import bed
import tw
from roce import QKEY, read_pcap
from test_verbs_ud import TOS, ended, finish, messages

MESSAGES = 6000
LOSS_PCT = 15


def setUpModule():
    global BED, ONE, TWO
    bed.require()
    BED = bed.guests(2)
    ONE, TWO = BED.hosts


def tearDownModule():
    BED.close()


def site(groups, feed):
    path = ONE.path("hosts.yaml")
    hosts = "".join(f"  h{i}: {{ address: {h.address('a')}, lines: {{ a: {h.netdev('a')}, b: {h.netdev('b')} }}, "
                    f"addresses: {{ b: {h.address('b')} }} }}\n" for i, h in enumerate((ONE, TWO), 1))
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"""site: hosts
environment: test
run_dir: /dev/shm/hosts
fabric: {{ transport: auto }}
hosts:
{hosts}venues: [{{ id: 1, mic: IEXG }}]
channels:
  - {{ id: 1, name: one, depth: quotes, groups: {{ a: {groups[0]}, b: {groups[1]} }} }}
feedhandlers:
  - {{ name: feed, host: h1, venue: IEXG, protocol: tops16, channels: [1], input: {{ files: {json.dumps([feed])}, speed_pct: 100 }} }}
publishers:
  - {{ name: pub, host: h1, channels: [1], history_ms: 65000, peak_mbps: 4 }}
subscriber: {{ repair: [pub], wait_us: 50000, give_up_ms: 60000, attempts: 200 }}
""")
    return path


class Hosts(unittest.TestCase):
    def subscriber(self, guest, name, path):
        summary, out = guest.path(name + ".json"), guest.path(name + ".out")
        p = guest.start([tw.program("tw-subscribe"), "-c", path, "--as", name, "--format", "json", "--summary", summary], out=out)
        p.summary_path, p.out_path = summary, out
        p.wait_line("ready", timeout=180)
        return p

    def test_losses_on_both_wires_are_healed(self):
        groups = tw.random_groups()
        path = site(groups, tw.generate(ONE.path("feed.pcap"), messages=MESSAGES, rate=2000))
        processes = []
        try:
            here, there = self.subscriber(ONE, "h1", path), self.subscriber(TWO, "h2", path)
            processes += [here, there]
            pub = ONE.start([tw.program("tw-publisher"), "-c", path, "--as", "pub", "--summary", ONE.path("pub.json")])
            pub.summary_path = ONE.path("pub.json")
            processes.append(pub)
            pub.wait_line("ready", timeout=180)
            for line in ("a", "b"):
                ONE.set_loss(line, LOSS_PCT)
            with ONE.capture("a") as capture:
                processes.append(ONE.start([tw.program("tw-feedhandler"), "-c", path, "--as", "feed"]))
                pub.wait_line("has ended", timeout=300)
                for sub in (here, there):
                    tw.wait_until(lambda s=sub: ended(s), f"the end of the session at {sub.summary_path}", 180)
            for line in ("a", "b"):
                self.assertGreater(ONE.netem_drops(line), 0)
                ONE.set_loss(line, 0)
            got, local, sent = finish(there), finish(here), finish(pub)
        finally:
            for p in processes:
                p.stop()
        self.assertEqual([s["transport"] for s in (got, local, sent)], ["verbs"] * 3)
        self.assertEqual((got["lost_messages"], local["lost_messages"]), (0, 0))
        self.assertEqual(got["messages"], sent["channels"][0]["messages"])
        self.assertEqual(messages(there), messages(here))
        channel = got["channels"][0]
        self.assertGreater(channel["lines"][0]["missing"], 0)
        self.assertGreater(channel["lines"][1]["missing"], 0)
        self.assertGreater(channel["repaired_by_history"], 0, channel)
        live = [f for f in read_pcap(capture.path) if f.dst == groups[0]]
        self.assertGreater(len(live), 100)
        self.assertEqual({(f.tos, f.dest_qp, f.qkey, f.src) for f in live}, {(TOS, 0xFFFFFF, QKEY, ONE.address("a"))})
        self.assertEqual([f for f in live if f.icrc != f.icrc_right], [])


if __name__ == "__main__":
    unittest.main()
