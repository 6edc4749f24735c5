"""Repair over RC on a real device: reader and server of the fabric, hostile clients, deaths, a writer that laps."""
import os
import unittest

import bed
import tw

LONG_S = 900
PORT = 4790


def setUpModule():
    global G
    bed.require()
    G = bed.one_guest()


def tearDownModule():
    G.close()


def program(name):
    return os.path.join(os.path.dirname(tw.program("tw-publisher")), "..", "tests", "rdma", name)


def memory():
    return "ulimit -l unlimited; exec "


class Scenarios(unittest.TestCase):
    """tests/rdma/rc_test.c, one scenario a test."""

    def scenario(self, name):
        r = G.run(f"{memory()} {program('rc_test')} {G.address('a')} {name}", timeout=LONG_S, check=False)
        self.assertEqual(r.rc, 0, r.out + r.err)

    def test_repair_is_one_sided(self):
        self.scenario("repair")

    def test_reads_end_in_order(self):
        self.scenario("order")

    def test_served_where_that_is_wanted(self):
        self.scenario("served")

    def test_access(self):
        self.scenario("access")

    def test_hostile_clients(self):
        self.scenario("hostile")

    def test_a_client_that_is_gone_without_a_word(self):
        self.scenario("gone")

    def test_who_does_not_pace_is_revoked(self):
        self.scenario("pace")

    def test_first_life(self):
        self.scenario("first_life")

    def test_new_life(self):
        self.scenario("life")

    def test_service_stops_and_comes_back(self):
        self.scenario("restart")

    def test_nothing_leaks(self):
        before = G.run("rdma resource show").out
        self.scenario("cycles")
        self.assertEqual(G.run("rdma resource show").out, before)


class Laps(unittest.TestCase):
    """A history that is rewritten under READ."""

    def test_nothing_torn_is_accepted(self):
        r = G.run(f"{memory()} {program('rc_lap')} {G.address('a')}", timeout=LONG_S, check=False)
        self.assertEqual(r.rc, 0, r.out + r.err)

    def test_intent_after_the_write_is_noticed(self):
        """Negative control; a race shows or does not: three tries."""
        outs = []
        for _ in range(3):
            r = G.run(f"{memory()} {program('rc_lap_mutant')} {G.address('a')}", timeout=LONG_S, check=False)
            outs.append(r.out + r.err)
            torn = int(r.out.split("; ")[1].split(" torn")[0])
            if r.rc == 1 and torn > 0:
                return
        self.fail("not noticed:\n" + "\n".join(outs))


class Deaths(unittest.TestCase):
    """One side is killed while reads are under way."""

    def start(self, what):
        return G.start(f"{memory()} {program('rc_test')} {G.address('a')} {what} {PORT}")

    def count(self, process, word):
        return sum(line.startswith(word) for line in process.lines(1))

    def until(self, process, word, count):
        process.wait_line(word, timeout=LONG_S, count=count, stream=1)

    def more(self, process, word, count):
        self.until(process, word, self.count(process, word) + count)

    def test_server(self):
        server = self.start("serve")
        follower = self.start("follow")
        for life in (1, 2, 3):
            self.until(follower, "up", life)
            self.more(follower, "read", 3)
            server.kill()
            self.until(follower, "down", life)
            server = self.start("serve")
        self.until(follower, "up", 4)
        self.more(follower, "read", 3)
        self.assertIsNone(follower.poll(), follower.err)
        follower.kill()
        server.kill()

    def test_client(self):
        """The others go on, and its place is free again."""
        server = self.start("serve")
        others = [self.start("follow") for _ in range(2)]
        for _ in range(6):  # more than there are places: each has to be given back
            victim = self.start("follow")
            self.until(victim, "read", 1)
            victim.kill()
        for other in others:
            self.more(other, "read", 2)
            self.assertEqual(self.count(other, "down"), 0)
            self.assertIsNone(other.poll(), other.err)
            other.kill()
        server.kill()


if __name__ == "__main__":
    unittest.main()
