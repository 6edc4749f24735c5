"""Late subscribers, restarts, stalls and every start order, each as the design says."""
import itertools
import os
import signal
import struct
import tempfile
import unittest

import tw


class Life(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        # About 4 s of feed, played with its own timing.
        cls.slow = tw.generate(os.path.join(cls.dir.name, "slow.pcap"), messages=20000, rate=5000, seed=3)
        cls.fast = tw.generate(os.path.join(cls.dir.name, "fast.pcap"), messages=3000, seed=4)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def assert_partition(self, sub, session=None):
        """Delivered and LOST cover 1 .. last once; returns the last number."""
        spans = [(o["seq"], o["seq"] + 1) for o in sub.messages() if session in (None, o["session"])]
        spans += [(o["seq"], o["end_seq"]) for o in sub.events("lost") if session in (None, o["session"])]
        at = 1
        for begin, end in sorted(spans):
            self.assertEqual(begin, at)
            at = end
        return at - 1

    def test_any_start_order(self):
        for order in itertools.permutations(("sub", "pub", "feed")):
            with self.subTest(order=order), tw.Site(files=[self.fast], rate=20000) as site:
                sub = None
                for who in order:
                    if who == "sub":
                        sub = site.subscriber("--until-end")
                    elif who == "pub":
                        site.publisher()
                    else:
                        feed = site.feedhandler()
                status = sub.wait()
                self.assertEqual(feed.wait(), 0)
                last = self.assert_partition(sub)
                self.assertGreaterEqual(last, 3000)
                lost = sub.events("lost")
                self.assertEqual(status, 1 if lost else 0)
                if order.index("sub") == 0:
                    self.assertEqual(lost, [], "who listened from the start misses nothing")

    def test_late_subscriber_gets_the_rest_and_says_what_it_missed(self):
        with tw.Site(files=[self.slow], speed_pct=100) as site:
            first = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(first.out_path) > 100000, "some messages")
            late = site.subscriber("--until-end")
            self.assertEqual(first.wait(), 0)
            self.assertEqual(late.wait(), 1)
            self.assertEqual(feed.wait(), 0)
            total = self.assert_partition(first)
            self.assertEqual(self.assert_partition(late), total)
            lost = late.events("lost")
            self.assertEqual([e["seq"] for e in lost], [1], "one range, from the session's begin")
            tail = late.messages()
            self.assertEqual([m["seq"] for m in tail], list(range(lost[0]["end_seq"], total + 1)))

    @tw.in_time
    def test_late_live_subscriber_misses_nothing_by_definition(self):
        with tw.Site(files=[self.slow], speed_pct=100,
                     subscriber="{ wait_us: 50000, start: live }") as site:
            first = site.subscriber("--until-end")
            site.publisher()
            site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(first.out_path) > 100000, "some messages")
            late = site.subscriber("--until-end")
            self.assertEqual(first.wait(), 0)
            self.assertEqual(late.wait(), 0)
            seqs = [m["seq"] for m in late.messages()]
            if not seqs:
                raise tw.TooLate("all had been sent before it came")
            self.assertGreater(seqs[0], 1)
            self.assertEqual(seqs, list(range(seqs[0], first.messages()[-1]["seq"] + 1)))

    def test_publisher_restart_continues_the_session(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how=how), tw.Site(files=[self.slow], speed_pct=100) as site:
                sub = site.subscriber("--until-end")
                pub = site.publisher()
                feed = site.feedhandler()
                tw.wait_until(lambda: os.path.getsize(sub.out_path) > 100000, "some messages")
                pub.signal(how)
                pub.wait()
                site.publisher()
                self.assertEqual(sub.wait(), 0, "\n".join(sub.lines))
                self.assertEqual(feed.wait(), 0)
                self.assertEqual(sub.events("lost"), [])
                self.assertEqual(len({m["session"] for m in sub.messages()}), 1)
                self.assertEqual(len(sub.events("session")), 1)
                self.assertGreaterEqual(self.assert_partition(sub), 20000)

    def test_feedhandler_restart_begins_a_new_session(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how=how), tw.Site(files=[self.slow], speed_pct=100) as site:
                sub = site.subscriber()
                site.publisher()
                feed = site.feedhandler()
                tw.wait_until(lambda: os.path.getsize(sub.out_path) > 100000, "some messages")
                feed.signal(how)
                feed.wait()
                again = site.feedhandler()
                self.assertEqual(again.wait(), 0)
                tw.wait_until(lambda: sub.events("end") and
                              sub.events("end")[-1]["session"] == sub.events("session")[-1]["session"],
                              "the second session's end")
                sub.stop()
                sessions = [e["session"] for e in sub.events("session")]
                self.assertEqual(len(sessions), 2)
                self.assertGreater(sessions[1], sessions[0])
                self.assertEqual(sub.events("lost"), [])
                for session in sessions:
                    self.assert_partition(sub, session)
                self.assertGreaterEqual(self.assert_partition(sub, sessions[1]), 20000)

    def test_stopped_subscriber_hurts_itself_alone(self):
        with tw.Site(files=[self.slow], speed_pct=100, extra="") as site:
            steady = site.subscriber("--until-end")
            stalled = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(stalled.out_path) > 50000, "some messages")
            begin = os.path.getsize(steady.out_path)
            stalled.signal(signal.SIGSTOP)
            tw.wait_until(lambda: os.path.getsize(steady.out_path) > begin + 1500000 or steady.popen.poll() is not None,
                          "the other one goes on, to its end if it was near to that")
            stalled.signal(signal.SIGCONT)
            self.assertEqual(steady.wait(), 0)
            status = stalled.wait()
            self.assertEqual(feed.wait(), 0)
            self.assertEqual(steady.events("lost"), [])
            self.assertEqual(self.assert_partition(stalled), self.assert_partition(steady))
            self.assertEqual(status, 1 if stalled.events("lost") else 0)

    def test_subscriber_restart(self):
        with tw.Site(files=[self.slow], speed_pct=100) as site:
            sub = site.subscriber()
            site.publisher()
            site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(sub.out_path) > 50000, "some messages")
            sub.signal(signal.SIGKILL)
            sub.wait()
            again = site.subscriber("--until-end")
            self.assertEqual(again.wait(), 1)
            self.assertEqual(len(again.events("lost")), 1)
            self.assertGreaterEqual(self.assert_partition(again), 20000)

    def test_an_ended_session_is_not_told_again(self):
        """A second run in the same run_dir begins with its own session, whatever the order."""
        with tw.Site(files=[self.fast], rate=20000) as site:
            for _ in range(2):
                sub = site.subscriber("--until-end")
                pub = site.publisher()
                feed = site.feedhandler()
                self.assertEqual(sub.wait(), 0, "\n".join(sub.lines))
                self.assertEqual(feed.wait(), 0)
                self.assertEqual(len(sub.events("session")), 1)
                # at least 16 heartbeats of the end: the ladder up to 100 ms, and some more
                tw.wait_until(lambda: self.end_is_said(site), "the end was told often enough")
                self.assertEqual(pub.stop(), 0)

    @staticmethod
    def end_is_said(site):
        """The word of the bus that a publisher sets once everybody has heard the end."""
        with open(os.path.join(site.run_dir, "bus-1"), "rb") as f:
            f.seek(384 + 8 + 32 + 8)
            return struct.unpack("<Q", f.read(8))[0] == 1

    def test_a_rate_limit_delays_and_loses_nothing(self):
        with tw.Site(files=[self.fast], publisher=", max_mbps: 2, burst_kbytes: 4") as site:
            sub = site.subscriber("--until-end")
            summary = os.path.join(site.dir, "pub.json")
            pub = site.publisher("--summary", summary)
            self.assertEqual(site.feedhandler().wait(), 0)
            self.assertEqual(sub.wait(), 0)
            self.assertEqual(pub.stop(), 0)
            with open(summary, encoding="utf-8") as f:
                channel = tw.parse_json(f.read())["channels"][0]
            self.assertGreater(channel["rate_stalls"], 0)
            first, last = sub.messages()[0], sub.messages()[-1]
            # from the first datagram to the last one no more than the rate and one burst went out
            seconds = (last["sent_ns"] - first["sent_ns"]) / 1e9
            self.assertLessEqual(channel["bytes"], seconds * 2e6 / 8 + 4096 + 2 * 1024)

    def test_two_writers_of_a_channel_are_refused(self):
        with tw.Site(files=[self.slow], speed_pct=1) as site: # for minutes
            site.publisher()
            site.feedhandler().wait_line("session")
            second = site.feedhandler()
            self.assertNotEqual(second.wait(), 0)
            self.assertTrue(any("error" in line for line in second.lines), second.lines)
