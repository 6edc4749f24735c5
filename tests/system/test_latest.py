"""Mode `latest`: nothing waits for a gap, nothing comes twice or not at all, and what is late says so.  Judged by the
order of the output itself and by a lossless subscriber of the same run."""
import os
import tempfile
import unittest

import tw

LOSS = "  correlated_loss_pct: 5\n  lines:\n    a: { loss_pct: 3 }\n    b: { loss_pct: 3 }\n"
# As patient as a busy machine needs it: who serves may stand still for many seconds.
REPAIR = "{ wait_us: 2000, give_up_ms: 60000, attempts: 255, repair: [pub], store_datagrams: 16384, mode: latest }"


def content(messages):
    """In order, what does not depend on the way that a message took.  Its symbol does: it is not known before the
    instrument's definition has come."""
    return [{k: v for k, v in m.items() if k not in ("recv_ns", "repaired", "late", "symbol")}
            for m in sorted(messages, key=lambda m: m["seq"])]


class Latest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=20000, symbols=200)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def site(self, port, **more):
        settings = dict(files=[self.feed], rate=20000, subscriber=REPAIR,
                        publisher=f", repair_port: {port}, history_ms: 62000, peak_mbps: 8") | more
        return tw.Site(**settings), settings

    def assert_same(self, got, want):
        """As assertEqual(), which takes minutes to say how long lists differ."""
        for g, w in zip(got, want):
            self.assertEqual(g, w)
        self.assertEqual(len(got), len(want))

    def assert_late(self, subscriber):
        """Late is exactly what comes after a later message of its instrument; returns how many are."""
        highest, late, last_seq = {}, 0, 0
        for m in subscriber.messages():
            key = (m["session"], m["venue"], m["instrument_id"])
            self.assertEqual(m.get("late", False), highest.get(key, 0) > m["seq"], m)
            if m["seq"] < last_seq:
                self.assertTrue(m.get("repaired"), m)
            late += m.get("late", False)
            highest[key] = max(highest.get(key, 0), m["seq"])
            last_seq = max(last_seq, m["seq"])
        summary = subscriber.summary()["channels"][0]
        self.assertEqual(summary["mode"], "latest")
        self.assertEqual(summary["late_messages"], late)
        self.assertEqual(summary["held_max"], 0)
        self.assertEqual(summary["next_seq"], last_seq + 1)
        return late

    def assert_gaps(self, subscriber):
        """Each GAP precedes what lies beyond it, and what fills gaps is what was missing."""
        missing, filled, last_seq = set(), set(), 0
        for o in subscriber.objects():
            if "kind" not in o and o["event"] == "gap":
                self.assertEqual(o["seq"], last_seq + 1, o)
                missing |= set(range(o["seq"], o["end_seq"]))
                last_seq = o["end_seq"] - 1
            elif "kind" in o and o.get("repaired"):
                filled.add(o["seq"])
            elif "kind" in o:
                self.assertEqual(o["seq"], last_seq + 1, "neither the next one nor one that was missing")
                last_seq = o["seq"]
        self.assertTrue(filled <= missing)
        return missing, filled

    def test_every_message_once_and_late_ones_say_so(self):
        site, settings = self.site(tw.free_port())
        with site:
            publisher = site.publisher()
            lossless = site.subscriber("--until-end")
            site.write(**settings, fault=LOSS)
            latest = site.subscriber("--until-end")
            ordered = site.subscriber("--until-end", "--mode", "ordered")
            publisher.wait_line("has logged in", count=3)
            self.assertEqual(site.feedhandler().wait(), 0)
            self.assertEqual([s.wait() for s in (lossless, latest, ordered)], [0, 0, 0])
            sent = content(lossless.messages())
            self.assertEqual([m["seq"] for m in sent], list(range(1, len(sent) + 1)))
            self.assert_same(content(latest.messages()), sent)
            self.assertEqual([m["seq"] for m in ordered.messages()], list(range(1, len(sent) + 1)))
            self.assert_same(content(ordered.messages()), sent)
            late = self.assert_late(latest)
            missing, filled = self.assert_gaps(latest)
            self.assertEqual(missing, filled)
            self.assertGreater(late, 0)
            self.assertLess(late, len(filled), "all that was repaired came late: this shows little")
            self.assertEqual([e["seq"] for e in latest.events("end")], [len(sent) + 1])
            self.assertEqual(latest.objects()[-1].get("event"), "end")
            self.assertEqual(ordered.summary()["channels"][0]["late_messages"], 0)

    def test_what_is_lost_is_said_once(self):
        site, settings = self.site(0, subscriber="{ wait_us: 2000, mode: latest }", fault=LOSS)
        with site:
            site.publisher()
            subscriber = site.subscriber("--until-end")
            self.assertEqual(site.feedhandler().wait(), 0)
            self.assertEqual(subscriber.wait(), 1)
            self.assert_late(subscriber)
            self.assert_gaps(subscriber)
            numbers = [m["seq"] for m in subscriber.messages()]
            lost = [(e["seq"], e["end_seq"]) for e in subscriber.events("lost")]
            self.assertGreater(len(lost), 0)
            self.assertEqual(lost, sorted(lost))
            for seq, end_seq in lost:
                numbers += range(seq, end_seq)
            end = subscriber.events("end")[0]["seq"]
            self.assertEqual(sorted(numbers), list(range(1, end)))
            self.assertEqual(subscriber.summary()["lost_messages"], sum(e - s for s, e in lost))

    def test_who_comes_late_hears_what_is_new_first(self):
        site, _ = self.site(tw.free_port())
        with site:
            site.publisher()
            first = site.subscriber("--until-end")
            feed = site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(first.out_path) > 0, "the first messages")
            joiner = site.subscriber("--until-end")
            self.assertEqual(feed.wait(), 0)
            self.assertEqual([first.wait(), joiner.wait()], [0, 0])
            self.assert_same(content(joiner.messages()), content(first.messages()))
            self.assert_late(joiner)

    def test_depths_that_need_their_order_are_refused(self):
        a, b = tw.random_groups()
        channel = f"  - {{ id: 2, name: two, depth: levels, groups: {{ a: {a}, b: {b} }} }}\n"
        site, settings = self.site(0, subscriber="{ wait_us: 2000 }", channels=channel)
        with site:
            p = site.start("tw-subscribe", "--as", "local", "--check", "--channel", "2", "--mode", "latest")
            self.assertEqual(p.wait(), 78)
            self.assertIn("channel 2: found mode latest with depth levels", "\n".join(p.lines))
            site.write(**settings | dict(subscriber="{ mode: latest }"))
            p = site.start("tw-subscribe", "--as", "local", "--check", "--channel", "1")
            self.assertEqual(p.wait(), 78)
            self.assertIn("subscriber.mode: found 'latest', which channels[1] with 'depth: levels' cannot have",
                          "\n".join(p.lines))


if __name__ == "__main__":
    unittest.main()
