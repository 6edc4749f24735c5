"""ITCH through all three processes: what arrives is what an independent decode of the same bytes says."""
import gzip
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import itch
import tw

EXCERPT = tw.data_path("nasdaq", "12302019_SNIPPET.NASDAQ_ITCH50")
CAPTURE = tw.data_path("nasdaq", "Nasdaq.Equities.TotalView.Itch.v5.0", "Multiple.Packets.pcap")


def tw_run(*args, depth="orders", timeout=60):
    """(exit status, messages, standard error) of one tw-run."""
    p = subprocess.run([tw.program("tw-run"), "--protocol", "itch50", "--depth", depth, "--speed", "0",
                        "--format", "json", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, timeout=timeout * tw.SLOW)
    messages = [tw.parse_json(line) for line in p.stdout.decode("utf-8").splitlines()]
    return p.returncode, messages, p.stderr.decode("utf-8", "replace")


def block(text):
    raw = bytes.fromhex(text)
    return len(raw).to_bytes(2, "big") + raw


# A day in small, from its start of messages on: VOO is defined, an order comes, is replaced, trades twice
# (once in a cross), the rest is cancelled; a hidden trade; a broken one; the end of the day and of the file.
DAY = b"".join(block(m) for m in (
    "53 0000 0000 09c6a8b5c400 4f",
    "56 0000 0000 09c6a8b5c400 000000462eac0ec0 00000041a7809a60 0000003c5f81de00",
    "52 20bd 0000 09c6a8b5c401 564f4f2020202020 50 20 00000064 4e 51 4520 50 4e 20 31 59 00000000 4e",
    "4b 0000 0000 09c6a8b5c402 564f4f2020202020 00009088 41 0002bf20",
    "4f 20bd 0000 09c6a8b5c403 564f4f2020202020 59 00013880 00046500 0001d4c0 00001f1acedb172e 0001a5e0 000203a0",
    "68 20bd 0000 09c6a8b5c404 564f4f2020202020 51 48",
    "68 20bd 0000 09c6a8b5c404 564f4f2020202020 58 48",
    "57 0000 0000 09c6a8b5c405 31",
    "41 20bd 0000 1f1acedb172e 0000000000000011 42 0000012c 564f4f2020202020 000d55ac",
    "46 20bd 0000 1f1acedb172e 0000000000000012 53 00000064 564f4f2020202020 000d5610 47534350",
    "55 20bd 0000 1f1acedb172f 0000000000000012 0000000000000013 00000065 000d5620",
    "45 20bd 0000 1f1acedb1730 0000000000000013 00000001 0000000000000101",
    "43 20bd 0000 1f1acedb1730 0000000000000011 00000064 0000000000000102 4e 000d55ac",
    "51 20bd 0000 1f1acedb1730 00000000000000c8 564f4f2020202020 000d55ac 0000000000000103 4f",
    "58 20bd 0000 1f1acedb1731 0000000000000011 0000000a",
    "44 20bd 0000 1f1acedb1732 0000000000000011",
    "50 20bd 0000 1f1acedb1733 0000000000000000 42 00000005 564f4f2020202020 000d55b0 0000000000000104",
    "42 20bd 0000 1f1acedb1734 0000000000000104",
    "49 20bd 0000 1f1acedb1735 0000000000000064 0000000000000032 53 564f4f2020202020 00000000 000d55b0 000d55ac "
    "43 4c",
    "53 0000 0000 34630b8a0000 4d",
)) + b"\0\0"


class Itch(unittest.TestCase):
    maxDiff = None

    def assert_stream(self, messages, wanted):
        self.assertEqual([m["seq"] for m in messages], list(range(1, len(messages) + 1)))
        self.assertEqual([m["kind"] for m in messages], [w["kind"] for w in wanted])
        for i, (got, want) in enumerate(zip(messages, wanted)):
            self.assertEqual(got["venue"], "XNAS")
            for name, value in itch.shown(want).items():
                self.assertIn(name, got, f"message {i}: {got}")
                seen = set(got[name]) if isinstance(value, set) else got[name]
                self.assertEqual(seen, value, f"message {i}, {name}: got {got}, want {want}")

    def write(self, name, data):
        directory = tempfile.mkdtemp(prefix="tw-test-")
        self.addCleanup(shutil.rmtree, directory)
        path = os.path.join(directory, name)
        with open(path, "wb") as f:
            f.write(data)
        return path


class Small(Itch):
    def wanted(self, date=20191230):
        path = self.write("day", DAY)
        decoder = itch.Decoder(trading_date=date)
        out = list(itch.decode(itch.binaryfile(path), decoder))
        self.assertEqual(sum(decoder.unknown.values()), 0)
        return out

    def test_a_day_from_its_beginning(self):
        wanted = self.wanted()
        kinds = [w["kind"] for w in wanted]
        self.assertEqual(kinds, ["SessionEvent", "PriceLimits", "PriceLimits", "PriceLimits", "InstrumentDefinition",
                                 "Statistic", "PriceLimits", "PriceLimits", "TradingStatus", "TradingStatus",
                                 "OrderAdd", "OrderAdd", "OrderReplace",
                                 "OrderExecute", "OrderExecute", "Trade", "OrderModify", "OrderDelete", "Trade",
                                 "TradeCancel", "AuctionImbalance", "SessionEvent"])
        path = self.write("12302019.NASDAQ_ITCH50", DAY)
        status, messages, log = tw_run(path)
        self.assertEqual(status, 0, log)
        self.assert_stream(messages, wanted)
        # volume: what is printed, each trade once
        printed = sum(m["qty"] for m in messages if m["kind"] in ("Trade", "OrderExecute") and
                      "printable" in m["flags"])
        self.assertEqual(printed, 1 + 200 + 5)
        self.assertFalse(any("book_bad" in m["flags"] for m in messages))
        self.assertEqual({m["symbol"] for m in messages if m["instrument_id"]}, {"VOO"})

    def test_gzip(self):
        path = self.write("S123019-v50.txt.gz", gzip.compress(DAY))
        status, messages, log = tw_run(path)
        self.assertEqual(status, 0, log)
        self.assert_stream(messages, self.wanted())

    def test_a_file_without_a_date(self):
        path = self.write("day.itch", DAY)
        status, messages, log = tw_run(path)
        self.assertEqual(status, 0, log)
        self.assertEqual(len(messages), 22)
        for m in messages:
            self.assertIn("ts_bad", m["flags"])
            self.assertEqual(m["recv_delta_ns"], 0)
            self.assertEqual(m["exchange_ns"] // (86400 * 10**9), 0)
        self.assertEqual(messages[0]["trading_date"], 0)

    def test_the_date_is_configured(self):
        path = self.write("day.itch", DAY)
        with tw.Site(files=[path]) as site:
            with open(site.path, encoding="utf-8") as f:
                text = f.read()
            for old, new in (("IEXG", "XNAS"), ("tops16", "itch50"), ("depth: quotes", "depth: orders"),
                             ("    input:\n", "    input:\n      trading_date: 20230822\n")):
                self.assertIn(old, text)
                text = text.replace(old, new)
            with open(site.path, "w", encoding="utf-8") as f:
                f.write(text)
            out = os.path.join(site.dir, "summary.json")
            subscriber = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler("--summary", out)
            self.assertEqual(feed.wait(), 0, "\n".join(feed.lines))
            subscriber.wait()
            messages = subscriber.messages()
            with open(out, encoding="utf-8") as f:
                summary = json.load(f)
        self.assertEqual(messages[0]["trading_date"], 20230822)
        self.assertEqual(messages[0]["flags"], ["event_end"])
        self.assertEqual(summary["venue_messages"], 20)
        self.assertEqual(summary["unknown_values"], 0)
        self.assertEqual(summary["orders"], 1)
        self.assertEqual(summary["exchange_to_feedhandler"]["max_ns"], 0)

    def test_depths_that_need_a_book_are_refused(self):
        path = self.write("day.itch", DAY)
        for depth in ("quotes", "levels"):
            status, messages, log = tw_run(path, depth=depth)
            self.assertNotEqual(status, 0)
            self.assertEqual(messages, [])
            self.assertIn(f"depth '{depth}', protocol itch50 gives: orders", log)


@unittest.skipUnless(EXCERPT and CAPTURE, "needs ../shared/data/nasdaq or TW_DATA")
class Recorded(Itch):
    def test_the_excerpt_equals_the_independent_decode(self):
        decoder = itch.Decoder(trading_date=20191230)
        wanted = list(itch.decode(itch.binaryfile(EXCERPT), decoder))
        status, messages, log = tw_run(EXCERPT)
        self.assertEqual(status, 0, log)
        self.assert_stream(messages, wanted)
        kinds = [m["kind"] for m in messages]
        self.assertEqual(kinds.count("OrderAdd"), 367 + 193)
        self.assertEqual(kinds.count("OrderExecute"), 28 + 1)
        self.assertEqual(kinds.count("Trade"), 4 + 4)
        self.assertEqual(kinds.count("AuctionImbalance"), 4)
        self.assertEqual(kinds.count("SessionEvent"), 1)
        self.assertEqual(kinds.count("OrderDelete"), 167 - decoder.unknown["D"])

    def test_a_capture_equals_the_independent_decode(self):
        status, messages, log = tw_run(CAPTURE)
        self.assertEqual(status, 0, log)
        self.assert_stream(messages, list(itch.decode(itch.moldudp64(CAPTURE), itch.Decoder())))
        self.assertEqual([m["kind"] for m in messages].count("OrderAdd"), 36 + 2)


if __name__ == "__main__":
    unittest.main()
