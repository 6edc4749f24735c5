"""Line A cut for seconds while line B goes on, with the real processes: the stream shows neither loss nor added delay,
and what B loses meanwhile is repaired without waiting for the line that is down.

The fault layer cuts by message number, so that every run is cut in the same place.  Delay is judged against another
subscriber of the same run that has both lines, and against the gap wait, which is what anybody who waited for line A
would have paid."""
import os
import statistics
import tempfile
import unittest

import tw

CUT_BEGIN, CUT_END = 6000, 22000
CUT = f"  lines: {{ a: {{ cut_begin: {CUT_BEGIN}, cut_end: {CUT_END} }} }}\n"
WAIT_NS = 2 * 10**9


class Lines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        # About 5 s of feed, played with its own timing; the cut takes some 3 s of it.
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=26000, rate=5000, seed=5)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def assert_whole(self, subscriber):
        messages = subscriber.messages()
        self.assertEqual([m["seq"] for m in messages], list(range(1, len(messages) + 1)))
        self.assertGreaterEqual(len(messages), 26000)
        self.assertEqual(subscriber.events("lost"), [])
        return messages

    def test_nothing_shows_of_a_cut_but_the_line_itself(self):
        settings = dict(files=[self.feed], speed_pct=100, publisher=", heartbeat_ms: 400",
                        subscriber=f"{{ wait_us: {WAIT_NS // 1000} }}")
        with tw.Site(**settings, fault=CUT) as site:
            cut = site.subscriber("--until-end")
            site.write(**settings)
            beside = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler()
            self.assertEqual(cut.wait(), 0, "\n".join(cut.lines))
            self.assertEqual(beside.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            with_cut, without = self.assert_whole(cut), self.assert_whole(beside)
            self.assertEqual(len(with_cut), len(without))

            # The line came up, went down in the cut, and came up again after it: as often as that where the machine has
            # not stopped the publisher for so long that B went down too.
            channel = cut.summary()["channels"][0]
            a, b = channel["lines"]
            order = [o.get("event") if "kind" not in o else o["seq"] for o in cut.objects()
                     if "kind" in o or o.get("line") == "a"]
            order = order[order.index("line_up"):]  # silent for long at the begin, it is down before it ever was up
            if b["downs"] == 0:
                self.assertEqual([o for o in order if isinstance(o, str)], ["line_up", "line_down", "line_up"])
                self.assertEqual(a["downs"], 1)
                numbers = order[order.index("line_down") + 1:len(order) - 1 - order[::-1].index("line_up")]
                self.assertGreater(numbers[0], CUT_BEGIN)
                # B may bring CUT_END long before A does where the machine is busy
                self.assertGreater(len(numbers), (CUT_END - CUT_BEGIN) // 10, "it was down for a part of the cut")
            self.assertGreaterEqual(a["downs"], 1)

            # No gap was seen, nothing was held back, nothing had to be repaired.  But A comes back with what B's queue
            # has behind a backlog, where the machine is busy: then one gap, until that queue is polled.
            gaps = cut.events("gap")
            self.assertLessEqual(len(gaps), 1)
            self.assertTrue(all(g["end_seq"] >= CUT_END for g in gaps), gaps)
            zeros = ("repaired_by_history", "lost_messages") + (() if gaps else ("held_max", "repaired_by_line"))
            for zero in zeros:
                self.assertEqual(channel[zero], 0, zero)
            self.assertGreater(a["fault_dropped"], 0)
            self.assertEqual((b["fault_dropped"], b["missing"]), (0, 0))

            # nobody waited: not on the way, against the other one, nor from there to the consumer
            later_ns = [m["recv_ns"] - n["recv_ns"] for m, n in zip(with_cut, without)
                        if CUT_BEGIN <= m["seq"] < CUT_END]
            self.assertEqual({m["sent_ns"] for m in with_cut}, {n["sent_ns"] for n in without})
            self.assertLess(statistics.median(later_ns), WAIT_NS / 20)
            self.assertLess(channel["latency"]["received_to_consumed"]["p99_ns"], WAIT_NS / 2)

    def test_a_line_that_is_down_delays_no_repair(self):
        """B loses and A is down: with both lines up each gap would wait WAIT_NS for A, and so would all behind it."""
        port = tw.free_port()
        with tw.Site(files=[self.feed], speed_pct=200, publisher=f", repair_port: {port}",
                     subscriber=f"{{ wait_us: {WAIT_NS // 1000}, give_up_ms: 8000, attempts: 100, repair: [pub],"
                                " store_datagrams: 16384 }",
                     fault=f"  lines: {{ a: {{ cut_end: {10**9} }}, b: {{ loss_pct: 5 }} }}\n") as site:
            publisher = site.publisher()
            subscriber = site.subscriber("--until-end")
            publisher.wait_line("has logged in")
            self.assertEqual(site.feedhandler().wait(), 0)
            self.assertEqual(subscriber.wait(), 0, "\n".join(subscriber.lines))
            self.assert_whole(subscriber)
            channel = subscriber.summary()["channels"][0]
            self.assertEqual(channel["lines"][0]["datagrams"], 0)
            self.assertGreater(channel["repaired_by_history"], 0)
            self.assertEqual(channel["repaired_by_line"], 0)
            repair = channel["latency"]["repair"]
            self.assertGreater(repair["count"], 10)
            self.assertLess(repair["p99_ns"], WAIT_NS)

    def test_a_lost_tail_shows_by_a_heartbeat(self):
        """The last messages are lost on both lines and nothing comes after them: not even the session ends."""
        lost = "{ cut_begin: 91, cut_end: 101 }"
        with tw.Site(publisher=f", repair_port: {tw.free_port()}, heartbeat_ms: 10",
                     subscriber="{ wait_us: 2000, give_up_ms: 8000, attempts: 255, repair: [pub] }",
                     fault=f"  lines: {{ a: {lost}, b: {lost} }}\n") as site:
            publisher = site.publisher()
            subscriber = site.subscriber("--until-end")
            publisher.wait_line("has logged in")
            with tw.BusFeed(site, 1, 64) as feeder:
                self.assertEqual(feeder.append(50), 51)
                self.assertEqual(feeder.append(40), 91)
                channel = lambda: site.counters(subscriber.name)["sub_channel"]["channel 1"]
                tw.wait_until(lambda: channel()["next_seq"] == 91, "all before the tail")
                self.assertEqual(feeder.append(10), 101)
                tw.wait_until(lambda: channel()["next_seq"] == 101, "the tail")
                now = channel()
                self.assertEqual((now["repaired_by_history"], now["repaired_by_line"], now["lost_messages"]), (10, 0, 0))
                self.assertEqual(feeder.end(), 0)
            self.assertEqual(subscriber.wait(), 0)
            self.assertEqual([m["seq"] for m in subscriber.messages()], list(range(1, 101)))


if __name__ == "__main__":
    unittest.main()
