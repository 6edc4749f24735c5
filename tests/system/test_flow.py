"""Real and generated captures through all three processes: what arrives is what was recorded."""
import os
import subprocess
import tempfile
import unittest

import tops
import tw

TOPS16 = tw.data_path("iex", "TOPS16.pcapng.gz")
ITCH = tw.data_path("nasdaq", "12302019_SNIPPET.NASDAQ_ITCH50")
# Before the first message of a symbol the feedhandler says what the symbol is; those have no
# counterpart in the capture.
OWN_KINDS = {"InstrumentDefinition"}
# What differs from run to run.
OF_THE_RUN = ("session", "sent_ns", "recv_ns", "repaired")


def stable(message):
    return {k: v for k, v in message.items() if k not in OF_THE_RUN}


def tw_run(*args, timeout=120):
    """(exit status, messages, summary, standard error) of one tw-run."""
    with tempfile.TemporaryDirectory() as d:
        summary = os.path.join(d, "summary.json")
        p = subprocess.run([tw.program("tw-run"), "--format", "json", "--summary", summary, *args],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=timeout * tw.SLOW)
        messages = [tw.parse_json(line) for line in p.stdout.decode("utf-8").splitlines()]
        loaded = None
        if os.path.exists(summary):
            with open(summary, encoding="utf-8") as f:
                loaded = tw.parse_json(f.read())
        return p.returncode, messages, loaded, p.stderr.decode("utf-8", "replace")


class Flow(unittest.TestCase):
    def assert_message(self, got, want, index):
        for name, value in want.items():
            if name == "in_effect":
                self.assertEqual(got["status"] != "unrestricted", value, f"message {index}: {got}")
                continue
            self.assertIn(name, got, f"message {index}: {got}")
            seen = got[name]
            if isinstance(value, set):
                if name == "flags":
                    seen = set(seen) - {"ts_bad"}  # as the capture's own stamps are
                seen = set(seen)
            self.assertEqual(seen, value, f"message {index}, {name}: got {got}, want {want}")

    def assert_stream(self, path, messages):
        wanted = list(tops.decode(path))
        # A directory message is told from the feedhandler's own by its sequence and kind.
        directory = {w["exchange_seq"] for w in wanted if w["kind"] == "InstrumentDefinition"}
        got = []
        for m in messages:
            if m["kind"] in OWN_KINDS and (m["exchange_seq"] not in directory or
                                           m["round_lot_qty"] == 0):
                continue
            got.append(m)
        self.assertEqual(len(got), len(wanted))
        for i, (g, w) in enumerate(zip(got, wanted)):
            self.assert_message(g, w, i)

    def assert_in_order(self, messages):
        self.assertEqual([m["seq"] for m in messages], list(range(1, len(messages) + 1)))


@unittest.skipUnless(TOPS16, "needs ../shared/data/iex/TOPS16.pcapng.gz or TW_DATA")
class RealCapture(Flow):
    def test_a_file_may_have_any_name(self):
        with tempfile.TemporaryDirectory() as d:
            path = tw.generate(os.path.join(d, "b\u00f6rse \"x\" \\n #1: {a}\u20ac.pcap"), messages=2000)
            status, messages, summary, err = tw_run(path)
            self.assertEqual(status, 0, err)
            self.assertGreaterEqual(len(messages), 2000)
            self.assertEqual(summary["messages"], len(messages))

    def test_every_field_equals_the_independent_decode(self):
        status, messages, summary, log = tw_run(TOPS16)
        self.assertEqual(status, 0, log)
        kinds = [m["kind"] for m in messages]
        self.assertEqual(kinds.count("Quote"), 27217)
        self.assertEqual(kinds.count("Trade"), 6390)
        self.assertEqual(kinds.count("TradeCancel"), 3)
        self.assertEqual(kinds.count("TradingStatus"), 7803 + 7801)
        self.assertEqual(kinds.count("ShortSaleStatus"), 7802)
        self.assertEqual(kinds.count("AuctionImbalance"), 642)
        self.assertEqual(kinds.count("SessionEvent"), 6)
        quotes = [m for m in messages if m["kind"] == "Quote"]
        self.assertEqual(sum(q["bid_price"] is None or q["ask_price"] is None for q in quotes), 24431)
        self.assert_in_order(messages)
        self.assert_stream(TOPS16, messages)
        self.assertEqual(summary["lost_messages"], 0)

    def test_the_same_stream_in_spite_of_faults(self):
        status, clean, _, log = tw_run(TOPS16)
        self.assertEqual(status, 0, log)
        status, faulty, summary, log = tw_run("--duplicate", "5", "--reorder", "5", "--loss-b", "5", TOPS16)
        self.assertEqual(status, 0, log)
        self.assertEqual(len(faulty), len(clean))
        for got, want in zip(faulty, clean):
            self.assertEqual(stable(got), stable(want))
        lines = summary["channels"][0]["lines"]
        for line in lines:
            self.assertGreater(line["fault_duplicated"], 0)
            self.assertGreater(line["fault_reordered"], 0)
        self.assertEqual(lines[0]["fault_dropped"], 0)
        self.assertGreater(lines[1]["fault_dropped"], 0)
        self.assertEqual(summary["lost_messages"], 0)


FAULTS = ("--loss", "5", "--loss-both", "2", "--duplicate", "5", "--reorder", "5")


class Repaired(Flow):
    """What both lines lose comes from the publisher's history: the stream is the one without faults."""

    def assert_repaired(self, *args):
        status, clean, _, log = tw_run(*args)
        self.assertEqual(status, 0, log)
        status, faulty, summary, log = tw_run(*FAULTS, *args)
        self.assertEqual(status, 0, log)
        self.assertEqual(len(faulty), len(clean))
        for got, want in zip(faulty, clean):
            self.assertEqual(stable(got), stable(want))
        self.assertEqual(summary["lost_messages"], 0)
        channel = summary["channels"][0]
        self.assertGreater(channel["repaired_by_line"], 0)
        self.assertGreater(channel["repaired_by_history"], 0)

    @unittest.skipUnless(TOPS16, "needs ../shared/data/iex/TOPS16.pcapng.gz or TW_DATA")
    def test_tops16(self):
        self.assert_repaired(TOPS16)

    @unittest.skipUnless(ITCH, "needs ../shared/data/nasdaq or TW_DATA")
    def test_itch_excerpt(self):
        # slowly, so that its thousand messages are enough datagrams to lose some of
        self.assert_repaired("--protocol", "itch50", "--depth", "orders", "--rate", "2000", ITCH)


class Generated(Flow):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=20000, seed=7)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def test_every_field_equals_the_independent_decode(self):
        status, messages, summary, log = tw_run(self.feed)
        self.assertEqual(status, 0, log)
        self.assert_in_order(messages)
        self.assert_stream(self.feed, messages)
        self.assertEqual(summary["messages"], len(messages))

    def test_two_files_are_one_stream(self):
        more = tw.generate(os.path.join(self.dir.name, "more.pcap"), messages=2000, seed=8,
                           start="2026-01-02T14:29:00Z")
        status, messages, _, log = tw_run(more, self.feed)
        self.assertEqual(status, 0, log)
        self.assert_in_order(messages)
        self.assertGreaterEqual(len(messages), 22000)

    def test_correlated_loss_is_reported_exactly(self):
        status, everything, _, log = tw_run(self.feed)
        self.assertEqual(status, 0, log)
        with tw.Site(files=[self.feed], rate=50000,
                     fault="  seed: 11\n  correlated_loss_pct: 2\n") as site:
            sub = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler()
            self.assertEqual(sub.wait(), 1, "something is lost, so the exit status is 1")
            self.assertEqual(feed.wait(), 0)
            messages, lost, summary = sub.messages(), sub.events("lost"), sub.summary()
        self.assertGreater(len(lost), 0)
        covered = sorted([(m["seq"], m["seq"] + 1) for m in messages] +
                         [(e["seq"], e["end_seq"]) for e in lost])
        at = 1
        for begin, end in covered:
            self.assertEqual(begin, at, "delivered and LOST must partition what was sent")
            at = end
        self.assertEqual(at, len(everything) + 1)
        by_seq = {m["seq"]: m for m in everything}
        for m in messages:
            want, got = stable(by_seq[m["seq"]]), stable(m)
            for either in (want, got):
                # the name may have been in a definition that was lost
                either.pop("symbol")
            self.assertEqual(got, want)
        self.assertEqual(summary["lost_messages"], sum(e["end_seq"] - e["seq"] for e in lost))
        self.assertEqual(summary["lost_ranges"], len(lost))

    def test_independent_loss_heals_from_the_other_line(self):
        """On both lines: of a loss on the line that is behind all the time nothing is ever seen."""
        status, messages, summary, log = tw_run("--loss", "10", self.feed)
        self.assertEqual(status, 0, log)
        self.assert_in_order(messages)
        self.assert_stream(self.feed, messages)
        channel = summary["channels"][0]
        for line in channel["lines"]:
            self.assertGreater(line["fault_dropped"], 0)
        self.assertGreater(channel["repaired_by_line"], 0)

    def test_bad_input_is_named(self):
        bad = os.path.join(self.dir.name, "bad.pcap")
        with open(bad, "w", encoding="ascii") as f:
            f.write("this is no capture at all\n")
        status, messages, _, log = tw_run(bad)
        self.assertEqual(status, 65, log)
        self.assertEqual(messages, [])
        self.assertIn("bad.pcap", log)

    def test_a_missing_file_is_named(self):
        status, _, _, log = tw_run(os.path.join(self.dir.name, "nowhere.pcap"))
        self.assertEqual(status, 65, log)
        self.assertIn("nowhere.pcap", log)

    def test_truncated_capture_gives_what_is_whole(self):
        short = os.path.join(self.dir.name, "short.pcap")
        with open(self.feed, "rb") as f, open(short, "wb") as g:
            whole = f.read()
            g.write(whole[:len(whole) // 2 + 7])
        status, messages, _, log = tw_run(short)
        self.assertEqual(status, 0, log)
        self.assert_in_order(messages)
        self.assertGreater(len(messages), 5000)
