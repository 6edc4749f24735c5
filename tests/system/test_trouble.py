"""Repair servers that stop, die and come back, answer wrongly for a while, or slowly; subscribers that stand still for
seconds.  Whatever happens: every message is delivered once, or lies in one LOST range, and who has no trouble of its
own notices none."""
import os
import signal
import socket
import tempfile
import threading
import unittest

import tw

LOSS = "  correlated_loss_pct: 5\n"
# As patient as a busy machine needs it: what is LOST here is so because nobody has it.
PATIENT = ("{ wait_us: 2000, give_up_ms: 60000, attempts: 255, retry_max_ms: 100, store_datagrams: 65536,"
           " repair: [pub] }")
MESSAGES = 12000


class Proxy:
    """Between a subscriber and its repair server.  What the server says goes through `way`: bytes -> bytes; it may take
    its time.  Where it leaves something out the connection ends: a stream that goes on behind a hole is what no TCP
    makes, and what lies across the hole could pass for a message.  Connections are made anew as often as the
    subscriber likes."""

    def __init__(self, port):
        self.server = port
        self.way = self.honest
        self.connections = 0
        self.closed = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets, self.threads = [], []
        self._run(self._accept)

    def _run(self, target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server))
            except OSError:
                client.close()
                continue
            self.connections += 1
            self.sockets += [client, server]
            self._run(self._pump, client, server, False)
            self._run(self._pump, server, client, True)

    def _pump(self, source, sink, answers):
        logged_in = not answers
        try:
            while data := source.recv(65536):
                said = self.way(data) if logged_in and answers else data
                sink.sendall(said)
                if len(said) < len(data):
                    break
                logged_in = True
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closed = True
        for s in [self.listener] + self.sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        for thread in self.threads:
            thread.join(5)

    @staticmethod
    def honest(data):
        return data

    @staticmethod
    def garbage(data):
        return os.urandom(len(data))

    @staticmethod
    def lies(data):
        """An answer's head, and nothing of what it promises."""
        return data[:64] + bytes(len(data[64:]))

    @staticmethod
    def hangs_up(_):
        return b""

    @staticmethod
    def breaks_off(data):
        return data[:len(data) // 2]

    def silent(self, data):
        """Until it is told to be something else."""
        while self.way == self.silent and not self.closed:
            threading.Event().wait(0.01)
        return data

    @staticmethod
    def slow(data):
        threading.Event().wait(0.02)
        return data


class Trouble(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        # About 3 s of feed, played with its own timing.
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=MESSAGES, rate=5000, seed=6)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def settings(self, port, **more):
        # as much history as the patience needs
        return dict(files=[self.feed], fault=LOSS, speed_pct=100, subscriber=PATIENT,
                    publisher=f", repair_port: {port}, history_ms: 62000, peak_mbps: 8") | more

    def two(self, site, settings):
        """A subscriber with the site's faults, and one without any."""
        hurt = site.subscriber("--until-end")
        site.write(**(settings | dict(fault="")))
        return hurt, site.subscriber("--until-end")

    def assert_partition(self, sub):
        """Delivered and LOST cover 1 .. last once; returns the last number."""
        spans = [(m["seq"], m["seq"] + 1) for m in sub.messages()]
        spans += [(e["seq"], e["end_seq"]) for e in sub.events("lost")]
        self.assertEqual(len({m["session"] for m in sub.messages()}), 1)
        at = 1
        for begin, end in sorted(spans):
            self.assertEqual(begin, at)
            at = end
        return at - 1

    def assert_whole(self, sub):
        self.assertEqual(sub.events("lost"), [])
        self.assertGreaterEqual(self.assert_partition(sub), MESSAGES)

    def assert_same(self, one, other):
        """To the last field, when it was received apart."""
        streams = [[{k: v for k, v in m.items() if k not in ("recv_ns", "line", "repaired")} for m in s.messages()]
                   for s in (one, other)]
        self.assertEqual(len(streams[0]), len(streams[1]))
        for got, want in zip(*streams):
            self.assertEqual(got, want)

    def counters(self, site, sub):
        """Of a subscriber that runs; those of one that has ended are gone."""
        try:
            return site.counters(sub.name)
        except FileNotFoundError:
            raise tw.TooLate(f"{sub.name} has ended") from None

    def channel(self, site, sub):
        return self.counters(site, sub)["sub_channel"]["channel 1"]

    def expect_to_come(self, seq, messages):
        if seq + messages > MESSAGES:
            raise tw.TooLate(f"at {seq} of {MESSAGES}, there are no {messages} to come")

    def wait_for(self, site, sub, name, more_than):
        tw.wait_until(lambda: self.channel(site, sub)[name] > more_than, f"{name} > {more_than}")

    def let_pass(self, site, sub):
        """Half of the feed."""
        begin = self.channel(site, sub)["messages"]
        self.expect_to_come(begin, MESSAGES // 2)
        self.wait_for(site, sub, "messages", begin + MESSAGES // 2)

    @tw.in_time
    def test_a_server_that_stands_still_and_goes_on(self):
        settings = self.settings(tw.free_port())
        with tw.Site(**settings) as site:
            hurt, well = self.two(site, settings)
            publisher = site.publisher()
            feed = site.feedhandler()
            self.wait_for(site, hurt, "repaired_by_history", 50)
            publisher.signal(signal.SIGSTOP)
            lines = lambda: self.counters(site, hurt)["sub_line"].values()
            tw.wait_until(lambda: all(l["downs"] > 0 for l in lines()), "both lines silent")
            self.expect_to_come(site.counters("pub")["pub_channel"]["channel 1"]["next_seq"], 4000)
            repaired = self.channel(site, hurt)["repaired_by_history"]
            publisher.signal(signal.SIGCONT)
            self.assertEqual(hurt.wait(), 0, "\n".join(hurt.lines))
            self.assertEqual(well.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(hurt)
            self.assert_whole(well)
            self.assertGreater(hurt.summary()["channels"][0]["repaired_by_history"], repaired)

    @tw.in_time
    def test_a_server_that_is_killed_and_comes_back(self):
        """What it had is gone with it, and nothing else: from its next life on everything is repaired."""
        settings = self.settings(tw.free_port())
        with tw.Site(**settings) as site:
            hurt, well = self.two(site, settings)
            publisher = site.publisher()
            feed = site.feedhandler()
            self.wait_for(site, hurt, "repaired_by_history", 50)
            publisher.signal(signal.SIGKILL)
            publisher.wait()
            sent_to = site.counters("pub")["pub_channel"]["channel 1"]["next_seq"]
            self.expect_to_come(sent_to, 4000)
            site.publisher()
            status = hurt.wait()
            self.assertEqual(well.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(well)
            self.assertEqual(well.summary()["channels"][0]["repaired_by_history"], 0)
            self.assertEqual(self.assert_partition(hurt), self.assert_partition(well))
            lost = hurt.events("lost")
            self.assertEqual(status, 1 if lost else 0)
            # the counters are set after the post: one batch may have gone out beyond them
            self.assertLess(max([e["end_seq"] for e in lost] or [0]), sent_to + 64 * 16)
            self.assertGreater(sum(c["reads"] for c in site.counters("pub")["read_server"].values()), 0)

    @tw.in_time
    def test_a_subscriber_that_stands_still_for_seconds(self):
        """Its receive buffers run over; it gets all of that from history, and the other one notices nothing."""
        settings = self.settings(tw.free_port(), fault="", fabric=", receive_buffer_kbytes: 64")
        with tw.Site(**settings) as site:
            stalled, steady = site.subscriber("--until-end"), site.subscriber("--until-end")
            publisher = site.publisher()
            publisher.wait_line("has logged in", count=2)
            feed = site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(stalled.out_path) > 50000, "some messages")
            stalled.signal(signal.SIGSTOP)
            self.let_pass(site, steady)
            stalled.signal(signal.SIGCONT)
            self.assertEqual(stalled.wait(), 0, "\n".join(stalled.lines))
            self.assertEqual(steady.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(steady)
            self.assert_same(stalled, steady)
            summary = stalled.summary()["channels"][0]
            self.assertGreater(summary["repaired_by_history"], 1000)
            self.assertGreater(min(l["missing"] for l in summary["lines"]), 0)

    @tw.in_time
    def test_a_subscriber_that_stands_still_for_longer_than_the_history(self):
        """What has gone is LOST, exactly that, and the other one notices nothing."""
        settings = self.settings(tw.free_port(), fault="", fabric=", receive_buffer_kbytes: 64",
                                 subscriber="{ wait_us: 2000, give_up_ms: 400, repair: [pub] }")
        settings["publisher"] = settings["publisher"].split(", history_ms")[0] + \
            ", heartbeat_ms: 10, history_ms: 500, peak_mbps: 1"
        with tw.Site(**settings) as site:
            stalled = site.subscriber("--until-end")
            site.write(**(settings | dict(fabric="")))
            steady = site.subscriber("--until-end")
            site.publisher()
            feed = site.feedhandler()
            tw.wait_until(lambda: os.path.getsize(stalled.out_path) > 50000, "some messages")
            stalled.signal(signal.SIGSTOP)
            self.let_pass(site, steady)
            before = self.channel(site, stalled)["messages"]
            stalled.signal(signal.SIGCONT)
            self.assertEqual(stalled.wait(), 1)
            self.assertEqual(steady.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(steady)
            self.assertEqual(self.assert_partition(stalled), self.assert_partition(steady))
            lost = stalled.events("lost")
            self.assertEqual(stalled.summary()["lost_messages"], sum(e["end_seq"] - e["seq"] for e in lost))
            self.assertGreater(len(stalled.messages()), before)

    @tw.in_time
    def play_through(self, way, trouble):
        """The server behind a proxy that is `way` until `trouble` of the subscriber's counters shows it, then honest:
        all that was missing by then is delivered after all."""
        port = tw.free_port()
        proxy = Proxy(port)
        self.addCleanup(proxy.close)
        proxy.way = getattr(proxy, way)
        with tw.Site(**self.settings(port, speed_pct=300)) as site:
            site.publisher()
            settings = self.settings(proxy.port, speed_pct=300)
            site.write(**settings)
            hurt, well = self.two(site, settings)
            feed = site.feedhandler()
            tw.wait_until(lambda: trouble(self.counters(site, hurt)), f"the trouble of a server that is {way}")
            proxy.way = proxy.honest
            self.assertEqual(hurt.wait(120), 0, "\n".join(hurt.lines))
            self.assertEqual(well.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(well)
            self.assert_same(hurt, well)
            self.assertGreater(hurt.summary()["channels"][0]["repaired_by_history"], 0)
            self.assertEqual(well.summary()["channels"][0]["repair_reads"], 0)

    def test_garbage_for_a_while(self):
        self.play_through("garbage", lambda c: c["reader"]["repair by pub"]["malformed"] > 3)

    def test_lies_for_a_while(self):
        self.play_through("lies", lambda c: c["sub_channel"]["channel 1"]["repair_failed"] > 3)

    def test_hanging_up_for_a_while(self):
        self.play_through("hangs_up", lambda c: c["reader"]["repair by pub"]["broken"] > 3)

    def test_breaking_off_for_a_while(self):
        self.play_through("breaks_off", lambda c: c["reader"]["repair by pub"]["failures"] > 3)

    def test_silence_for_a_while(self):
        self.play_through("silent", lambda c: c["sub_channel"]["channel 1"]["repair_retries"] > 3)

    def test_slowness_for_a_while(self):
        self.play_through("slow", lambda c: c["reader"]["repair by pub"]["replies"] > 10)

    @tw.in_time
    def test_answers_that_come_too_late(self):
        """They are to what has been LOST meanwhile, and change nothing of it."""
        port = tw.free_port()
        proxy = Proxy(port)
        self.addCleanup(proxy.close)
        proxy.way = proxy.silent
        settings = self.settings(port, speed_pct=200, subscriber="{ wait_us: 2000, give_up_ms: 300, repair: [pub] }")
        with tw.Site(**settings) as site:
            site.publisher()
            settings["publisher"] = settings["publisher"].replace(str(port), str(proxy.port))
            site.write(**settings)
            hurt, well = self.two(site, settings)
            feed = site.feedhandler()
            self.wait_for(site, hurt, "lost_messages", 0)
            proxy.way = proxy.honest
            self.assertEqual(hurt.wait(), 1)
            self.assertEqual(well.wait(), 0)
            self.assertEqual(feed.wait(), 0)
            self.assert_whole(well)
            self.assertEqual(self.assert_partition(hurt), self.assert_partition(well))
            self.assertGreater(proxy.connections, 0)


if __name__ == "__main__":
    unittest.main()
