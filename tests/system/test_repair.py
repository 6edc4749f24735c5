"""What no line brings comes from the publisher's history over TCP, with the real processes; and what a repair server
does wrong harms nothing but its own repair."""
import os
import socket
import tempfile
import threading
import unittest

import tw

LOSS = "  correlated_loss_pct: 5\n"


class BadServer:
    """Takes every connection and does `behave(connection)` with it, in a thread."""

    def __init__(self, behave):
        self.behave = behave
        self.taken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.kept = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.taken += 1
            self.kept.append(connection)
            try:
                self.behave(connection)
            except OSError:
                pass

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.kept:
            connection.close()
        self.thread.join(5)


def garbage(connection):
    connection.sendall(os.urandom(256))
    connection.close()


def silence(_):
    pass


def slam(connection):
    connection.close()


class Repair(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.feed = tw.generate(os.path.join(cls.dir.name, "feed.pcap"), messages=20000)

    @classmethod
    def tearDownClass(cls):
        cls.dir.cleanup()

    def settings(self, port, **more):
        # As patient as a busy machine needs it: who serves may stand still for many seconds.  So is the store: a full
        # one would give gaps up; and the history has to be.
        return dict(files=[self.feed], fault=LOSS, rate=20000,
                    publisher=f", repair_port: {port}, history_ms: 62000, peak_mbps: 8",
                    subscriber="{ wait_us: 2000, give_up_ms: 60000, attempts: 255, repair: [pub],"
                               " store_datagrams: 16384 }") | more

    def play(self, site, subscriber):
        """One feed from begin to end; the subscriber's exit status."""
        self.assertEqual(site.feedhandler().wait(), 0)
        return subscriber.wait()

    def assert_whole(self, subscriber):
        self.assertEqual([m["seq"] for m in subscriber.messages()],
                         list(range(1, len(subscriber.messages()) + 1)))
        self.assertEqual(subscriber.events("lost"), [])

    def test_loss_on_both_lines_is_repaired_from_history(self):
        with tw.Site(**self.settings(tw.free_port())) as site:
            summary = os.path.join(site.dir, "pub.json")
            publisher = site.publisher("--summary", summary)
            subscriber = site.subscriber("--until-end")
            publisher.wait_line("has logged in")
            self.assertEqual(self.play(site, subscriber), 0)
            self.assert_whole(subscriber)
            channel = subscriber.summary()["channels"][0]
            self.assertGreater(channel["repaired_by_history"], 0)
            self.assertEqual(channel["lost_messages"], 0)
            self.assertGreater(channel["repair_reads"], 0)
            publisher.wait_line("has gone")
            self.assertEqual(publisher.stop(), 0)
            with open(summary, encoding="utf-8") as f:
                repair = tw.parse_json(f.read())["repair"]
            # a read may be under way when the subscriber has all it wants
            self.assertLessEqual(repair["reads"], channel["repair_reads"])
            self.assertGreaterEqual(repair["bytes"], channel["repair_bytes"])
            self.assertEqual([c["name"] for c in repair["clients"]], ["sub1"])
            self.assertEqual(repair["malformed"], 0)

    def test_a_late_joiner_gets_the_session_from_its_begin(self):
        with tw.Site(**self.settings(tw.free_port(), fault="", rate=0)) as site:
            site.publisher()
            self.assertEqual(site.feedhandler().wait(), 0)
            subscriber = site.subscriber("--until-end")
            self.assertEqual(subscriber.wait(), 0)
            self.assert_whole(subscriber)
            self.assertGreater(len(subscriber.messages()), 20000 - 1)

    def test_one_session_after_another_in_the_same_history(self):
        with tw.Site(**self.settings(tw.free_port())) as site:
            publisher = site.publisher()
            sessions = set()
            for life in range(3):
                feed = site.feedhandler()
                # who came before that could hear the end of the session before
                publisher.wait_line("publisher 1.", count=life + 1)
                subscriber = site.subscriber("--until-end")
                self.assertEqual(feed.wait(), 0)
                self.assertEqual(subscriber.wait(), 0)
                self.assert_whole(subscriber)
                sessions |= {m["session"] for m in subscriber.messages()}
            self.assertEqual(len(sessions), 3)
            publisher.wait_line("has gone", count=3)

    def test_without_servers_it_is_lost_as_ever(self):
        with tw.Site(**self.settings(0, subscriber="{ wait_us: 2000 }")) as site:
            publisher = site.publisher()
            publisher.wait_line("repair: none")
            subscriber = site.subscriber("--until-end")
            self.play(site, subscriber)
            self.assertGreater(subscriber.summary()["lost_messages"], 0)

    def test_a_port_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with tw.Site(**self.settings(port)) as site:
                publisher = site.start("tw-publisher", "--as", "pub")
                self.assertEqual(publisher.wait(), 69)
                self.assertIn(f"127.0.0.1:{port}", "\n".join(publisher.lines))

    def play_beside(self, behave):
        """The real server behind a port that the subscriber believes to be `behave`'s."""
        bad = BadServer(behave)
        self.addCleanup(bad.close)
        # The publisher serves its own port; the subscriber's file names the bad one.
        with tw.Site(**self.settings(0, subscriber="{ wait_us: 2000 }")) as site:
            site.publisher()
            site.write(**self.settings(bad.port, subscriber="{ wait_us: 2000, give_up_ms: 300, "
                                                         "retry_max_ms: 40, repair: [pub] }"))
            subscriber = site.subscriber("--until-end")
            self.play(site, subscriber)
            summary = subscriber.summary()
            self.assertGreater(summary["lost_messages"], 0)
            self.assertEqual(summary["channels"][0]["repaired_by_history"], 0)
            delivered = len(subscriber.messages())
            self.assertEqual(delivered + summary["lost_messages"], summary["channels"][0]["next_seq"] - 1)
            self.assertGreater(delivered, 15000)
        self.assertGreater(bad.taken, 0)

    def test_a_server_that_sends_garbage(self):
        self.play_beside(garbage)

    def test_a_server_that_says_nothing(self):
        self.play_beside(silence)

    def test_a_server_that_hangs_up(self):
        self.play_beside(slam)


if __name__ == "__main__":
    unittest.main()
