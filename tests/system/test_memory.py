"""Peak memory after a million gaps is that after a thousand: of the publisher, which answers the reads, and of the
subscriber, which asks for them.

A message fills a datagram and half of the datagrams are lost, on the only line, so that some fifth of the messages are a gap
of their own.  All of them are repaired over TCP: messages are fed only as fast as the subscriber delivers
them."""
import os
import time
import unittest

import tw

THOUSAND, MILLION = 1000, 1000000
# Half a byte a gap.  The kernel counts resident pages in batches for each CPU; 0 to 4 pages were seen.
TOLERANCE_PAGES = 128
AHEAD = 60000  # messages under way, a part of what the history holds
STEP = 10000


def peak_bytes(process):
    with open(f"/proc/{process.popen.pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


class Memory(unittest.TestCase):
    def run_to(self, site, feeder, gaps):
        """Feeds until there have been so many gaps and all is delivered; returns the subscriber's counters."""
        fed = feeder.append(0)
        still_since, before = time.monotonic(), None
        while True:
            now = site.counters("sub")["sub_channel"]["channel 1"]
            enough = now["gaps"] >= gaps
            if enough and now["next_seq"] == fed:
                return now
            if not enough and fed - now["next_seq"] < AHEAD:
                fed = feeder.append(STEP)
            if now["next_seq"] != before:
                still_since, before = time.monotonic(), now["next_seq"]
            self.assertLess(time.monotonic() - still_since, 120, f"nothing is delivered any more: {now}")
            time.sleep(0.0005)

    def test_a_million_gaps_cost_nothing(self):
        with tw.Site(lines=1, fabric=", mtu_bytes: 512", fault="  correlated_loss_pct: 50\n",
                     publisher=f", repair_port: {tw.free_port()}, history_ms: 62000, peak_mbps: 8,"
                               " repair_max_mbps: 0, repair_client_max_mbps: 0",
                     subscriber="{ wait_us: 1000, give_up_ms: 60000, attempts: 255, max_mbps: 0, repair: [pub],"
                                " store_datagrams: 65536 }") as site:
            publisher = site.publisher()
            subscriber = site.start("tw-subscribe", "--as", "local", "--name", "sub", "--format", "none",
                                    "--until-end", "--summary", os.path.join(site.dir, "sub.json"))
            subscriber.wait_line("ready")
            publisher.wait_line("has logged in")
            with tw.BusFeed(site, 1, 256) as feeder:
                early = self.run_to(site, feeder, THOUSAND)
                after_thousand = [peak_bytes(p) for p in (publisher, subscriber)]
                late = self.run_to(site, feeder, MILLION)
                after_million = [peak_bytes(p) for p in (publisher, subscriber)]
                self.assertEqual(feeder.end(), 0)
            self.assertEqual(subscriber.wait(), 0, "\n".join(subscriber.lines))
            self.assertLess(early["gaps"], MILLION // 20)
            self.assertEqual(late["lost_messages"], 0)
            self.assertGreaterEqual(late["repaired_by_history"], late["gaps"])
            for name, a, b in zip(("publisher", "subscriber"), after_thousand, after_million):
                self.assertLessEqual((b - a) // os.sysconf("SC_PAGESIZE"), TOLERANCE_PAGES, name)


if __name__ == "__main__":
    unittest.main()
