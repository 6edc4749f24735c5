"""tw-subscribe's command line: when it leaves, with what status, and what it leaves behind."""
import json
import os
import signal
import subprocess
import tempfile
import unittest

import tw


class Subscribe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=5000, rate=5000, seed=5)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def start(self, site, *args, stdout=subprocess.PIPE):
        p = site.start("tw-subscribe", "--as", "local", *args, stdout=stdout)
        p.wait_line("ready")
        return p

    def summary_in(self, lines):
        found = [line for line in lines if line.startswith("{")]
        self.assertEqual(len(found), 1, "\n".join(lines))
        return tw.parse_json(found[0])

    def test_count_is_exact(self):
        with tw.Site(files=[self.feed], rate=20000) as site:
            sub = site.subscriber("--count", "77")
            site.publisher()
            site.feedhandler()
            self.assertEqual(sub.wait(), 0)
            self.assertEqual(len(sub.messages()), 77)
            self.assertEqual(sub.summary()["messages"], 77)
            self.assertEqual(sub.summary()["ended_by"], "count")

    def test_format_none_gives_the_summary_on_standard_output(self):
        with tw.Site(files=[self.feed], rate=20000) as site:
            sub = self.start(site, "--format", "none", "--until-end")
            site.publisher()
            site.feedhandler()
            self.assertEqual(sub.wait(), 0)
            summary = json.loads(sub.popen.stdout.read())
            sub.popen.stdout.close()
        self.assertGreaterEqual(summary["messages"], 5000)
        self.assertEqual(summary["lost_messages"], 0)
        self.assertEqual(sum(summary["kinds"].values()), summary["messages"])
        line = summary["channels"][0]["lines"][0]
        self.assertEqual(line["datagrams"], line["first"] + line["duplicates"] + line["heartbeats"])

    def test_signals_end_it_cleanly(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number), tw.Site(files=[self.feed]) as site:
                sub = site.subscriber()
                counters = [f for f in os.listdir(site.run_dir) if f.endswith(".counters")]
                self.assertEqual(len(counters), 1)
                sub.signal(number)
                self.assertEqual(sub.wait(), 0)
                self.assertEqual(sub.summary()["ended_by"], "signal")
                self.assertEqual([f for f in os.listdir(site.run_dir) if f.endswith(".counters")], [])

    def test_messages_only_is_a_message_a_line(self):
        with tw.Site(files=[self.feed], rate=20000) as site:
            sub = site.subscriber("--until-end", "--messages-only")
            site.publisher()
            site.feedhandler()
            self.assertEqual(sub.wait(), 0)
            objects = sub.objects()
            self.assertTrue(all("kind" in o for o in objects))
            self.assertEqual([o["seq"] for o in objects], list(range(1, len(objects) + 1)))

    def test_a_reader_that_leaves_ends_it(self):
        with tw.Site(files=[self.feed], rate=20000) as site:
            sub = self.start(site, "--format", "json")
            site.publisher()
            site.feedhandler()
            sub.popen.stdout.read(1000)
            sub.popen.stdout.close()
            self.assertEqual(sub.wait(), 0)
            self.assertEqual(self.summary_in(sub.lines)["ended_by"], "output closed")

    def test_a_full_disk_is_an_error(self):
        with tw.Site(files=[self.feed], rate=20000) as site, open("/dev/full", "wb") as full:
            sub = self.start(site, "--format", "json", stdout=full)
            site.publisher()
            site.feedhandler()
            self.assertEqual(sub.wait(), 71)
            sub.wait_line("No space left on device")

    def test_a_reader_that_stalls_does_not_keep_it(self):
        with tw.Site(files=[self.feed], rate=20000) as site:
            sub = self.start(site, "--format", "json")
            site.publisher()
            self.assertEqual(site.feedhandler().wait(), 0)
            sub.signal(signal.SIGINT)
            self.assertEqual(sub.wait(), 71, "output was dropped")
            sub.wait_line("the reader stalls")
            sub.popen.stdout.close()

    def test_the_fault_layer_is_an_alarm(self):
        with tw.Site(files=[self.feed], fault="  correlated_loss_pct: 1\n") as site:
            sub = site.subscriber()
            sub.wait_line("alarm: the fault layer is active")
            sub.signal(signal.SIGINT)
            self.assertEqual(sub.wait(), 0)
            self.assertIs(sub.summary()["fault_layer"], True)

    def test_check_touches_nothing(self):
        with tw.Site(files=[self.feed]) as site:
            good = subprocess.run([tw.program("tw-subscribe"), "-c", site.path, "--as", "local", "--check"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(good.returncode, 0, good.stderr)
            self.assertIn("channel 1", good.stdout)
            self.assertEqual(os.listdir(site.run_dir), [])
            for args, status, word in ((["--channel", "9"], 69, "channel 9"),
                                       (["--as", "nobody"], 69, "nobody"),
                                       (["--name", "a/b"], 64, "a/b"),
                                       (["--format", "xml"], 64, "xml"),
                                       (["--count", "0"], 64, "--count")):
                bad = subprocess.run([tw.program("tw-subscribe"), "-c", site.path, "--check", *args],
                                     capture_output=True, text=True, timeout=60)
                self.assertEqual(bad.returncode, status, (args, bad.stderr))
                self.assertIn(word, bad.stderr)
