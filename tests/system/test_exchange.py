"""tw-exchange as a receiver of its own sees it: MoldUDP64 on two lines, faults, re-requests."""
import datetime
import gzip
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
import zoneinfo

import tw

SESSION = b"TEST000001"
END = 0xFFFF
ROOM = 1472
DAY_NS = 86400 * 10**9
GROUPS, STEP_NS = 150, 4_000_000  # a line's receive buffer holds them all, however late it is read


def make_day(groups=GROUPS):
    """Messages by packet: those of a packet have one time."""
    rng = random.Random(groups)
    return [[b"S" + bytes(4) + (34200 * 10**9 + g * STEP_NS).to_bytes(6, "big") + rng.randbytes(rng.randrange(1, 40))
             for _ in range(rng.randrange(1, 12))] for g in range(groups)]


def blocks(messages):
    return b"".join(len(m).to_bytes(2, "big") + m for m in messages)


def parse(packet):
    """(session, number of the first message, count, messages)"""
    session, seq, count = struct.unpack_from(">10sQH", packet)
    at, messages = 20, []
    for _ in range(0 if count == END else count):
        n = int.from_bytes(packet[at:at + 2], "big")
        messages.append(packet[at + 2:at + 2 + n])
        at += 2 + n
    assert at == len(packet) <= ROOM, packet
    return session, seq, count, messages


class Line:
    """Reads a group until the end of session, or until close()."""

    def __init__(self, group):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind((group, 0))
        self.where = f"{group}:{self.sock.getsockname()[1]}"
        self.sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                             socket.inet_aton(group) + socket.inet_aton("127.0.0.1"))
        self.sock.settimeout(0.1)  # between looks at self.stop
        self.packets = []
        self.stop = False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.stop:
            try:
                self.packets.append(parse(self.sock.recv(2048)))
            except socket.timeout:
                continue
            if self.packets[-1][2] == END:
                return

    def ended(self):
        self.thread.join(60 * tw.SLOW)
        return bool(self.packets) and self.packets[-1][2] == END

    def data(self):
        return [p for p in self.packets if p[2] not in (0, END)]

    def messages(self):
        """By number; a number never means two things."""
        out = {}
        for _, seq, _, messages in self.data():
            for i, m in enumerate(messages):
                assert out.setdefault(seq + i, m) == m
        return out

    def close(self):
        self.stop = True
        self.thread.join()
        self.sock.close()


class Exchange:
    """An exchange and its two lines.  Use as a context manager."""

    def __init__(self, *args, day=None, lines=2):
        self.dir = tempfile.mkdtemp(prefix="tw-test-")
        self.lines = [Line(g) for g in tw.random_groups()[:lines]]
        self.process = None
        self.argv = [tw.program("tw-exchange"), "--session", SESSION.decode(), "--summary", self.path("summary")]
        for name, line in zip(("--a", "--b"), self.lines):
            self.argv += [name, line.where]
        if day is not None:
            with open(self.path("day"), "wb") as f:
                f.write(day)
            self.argv += ["--input", self.path("day")]
        self.argv += args

    def path(self, name):
        return os.path.join(self.dir, name)

    def __enter__(self):
        self.process = tw.Process(self.argv)
        try:
            self.process.wait_line("ready: session")
        except AssertionError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *unused):
        self.process.stop()
        for line in self.lines:
            line.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def server(self):
        line = next(l for l in self.process.lines if "ready: session" in l)
        host, port = line.rsplit(" ", 1)[1].split(":")
        return host, int(port)

    def client(self, address="127.0.0.1"):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((address, 0))
        s.settimeout(60 * tw.SLOW)
        s.connect(self.server())
        return s

    def summary(self):
        with open(self.path("summary"), encoding="utf-8") as f:
            return json.load(f)

    def result(self):
        """The summary after the exchange has left by itself."""
        status = self.process.wait()
        assert status == 0, self.process.lines
        return self.summary()


def request(seq, count, session=SESSION):
    return struct.pack(">10sQH", session, seq, count)


def ask(client, seq, count):
    client.send(request(seq, count))
    return parse(client.recv(2048))


def expand(ranges):
    return {seq for first, n in ranges for seq in range(first, first + n)}


class Lines(unittest.TestCase):
    maxDiff = None

    def test_both_lines_carry_the_day_in_order_and_end(self):
        day = make_day()
        flat = [m for packet in day for m in packet]
        with Exchange("--linger", "1", day=blocks(flat) + b"\0\0") as ex:
            for line in ex.lines:
                self.assertTrue(line.ended())
                self.assertEqual([p[3] for p in line.data()], day)
                seq = 1
                for session, first, _, messages in line.packets:
                    self.assertEqual((session, first), (SESSION, seq))
                    seq += len(messages)
            summary = ex.result()
        self.assertEqual((summary["session"], summary["interrupted"]), (SESSION.decode(), False))
        self.assertEqual((summary["messages"], summary["packets"]), (len(flat), GROUPS))
        for line in ("a", "b"):
            got = summary["lines"][line]
            self.assertEqual((got["packets"], got["messages"]), (GROUPS, len(flat)))
            self.assertEqual((got["dropped"], got["duplicates"], got["reordered"], got["send_errors"]), ([], 0, 0, 0))
            self.assertGreaterEqual(got["ends"], 1)

    def test_heartbeats_while_nothing_happens(self):
        with Exchange("--start-delay-ms", "3600000", day=blocks(make_day()[0]), lines=1) as ex:
            tw.wait_until(lambda: len(ex.lines[0].packets) >= 2, "two heartbeats")
            self.assertEqual(ex.process.stop(), 0)
            summary = ex.summary()
            said = summary["lines"]["a"]["heartbeats"]
            tw.wait_until(lambda: len(ex.lines[0].packets) >= said, "every heartbeat")
            self.assertEqual(ex.lines[0].packets, [(SESSION, 1, 0, [])] * said)
        self.assertEqual(list(summary["lines"]), ["a"])

    def test_the_day_begins_after_the_delay(self):
        day = make_day(1)
        with Exchange("--start-delay-ms", "1500", "--linger", "0", day=blocks(day[0]), lines=1) as ex:
            self.assertTrue(ex.lines[0].ended())
            self.assertEqual([p[3] for p in ex.lines[0].data()], day)
            beats = [p for p in ex.lines[0].packets if p[2] == 0]  # none where it stood still meanwhile
            self.assertEqual(beats, [(SESSION, 1, 0, [])] * len(beats))
            self.assertEqual(ex.result()["lines"]["a"]["heartbeats"], len(beats))

    def test_a_gzip_file_without_an_end_is_played_all_the_same(self):
        day = make_day(20)
        with Exchange("--linger", "0", "--speed-pct", "0", "--rate", "0",
                      day=gzip.compress(blocks(m for p in day for m in p)), lines=1) as ex:
            self.assertTrue(ex.lines[0].ended())
            self.assertEqual(list(ex.lines[0].messages().values()), [m for p in day for m in p])
            # all is due at once: packets are as full as they get
            sizes = [len(blocks(p[3])) for p in ex.lines[0].data()]
            self.assertTrue(all(n > ROOM - 20 - 54 for n in sizes[:-1]), sizes)

    def test_restamped_messages_happen_now(self):
        day = make_day(50)
        midnight = datetime.datetime.now(zoneinfo.ZoneInfo("America/New_York")).replace(
            hour=0, minute=0, second=0, microsecond=0)
        before = time.time_ns()
        with Exchange("--linger", "0", "--restamp", day=blocks(m for p in day for m in p), lines=1) as ex:
            self.assertTrue(ex.lines[0].ended())
            after = time.time_ns()
            got = [m for p in ex.lines[0].data() for m in p[3]]
        stamps = [int.from_bytes(m[5:11], "big") for m in got]
        flat = [m for p in day for m in p]
        self.assertEqual([m[:5] + m[11:] for m in got], [m[:5] + m[11:] for m in flat])
        self.assertEqual([(s - stamps[0]) % DAY_NS for s in stamps],
                         [int.from_bytes(m[5:11], "big") - 34200 * 10**9 for m in flat])
        first = (stamps[0] - (before - int(midnight.timestamp()) * 10**9)) % DAY_NS
        self.assertLess(first, after - before + 10**9)

    def test_stopped_in_the_middle(self):
        with Exchange("--speed-pct", "1", day=blocks(m for p in make_day() for m in p)) as ex:
            tw.wait_until(lambda: all(l.data() for l in ex.lines), "packets on both lines")
            self.assertEqual(ex.process.stop(), 0)
            summary = ex.summary()
            self.assertTrue(summary["interrupted"])
            self.assertLess(summary["messages"], summary["day_messages"])
            self.assertEqual([summary["lines"][l]["ends"] for l in "ab"], [0, 0])


class Faults(unittest.TestCase):
    FAULTS = ("--drop-a", "20", "--drop-b", "15.5", "--drop-both", "10", "--duplicate", "20", "--reorder", "20",
              "--speed-pct", "200", "--linger", "0")

    def run_day(self, day, *args):
        with Exchange(*self.FAULTS, *args, day=blocks(m for p in day for m in p)) as ex:
            for line in ex.lines:
                self.assertTrue(line.ended())
            summary = ex.result()
            return summary, ex.lines

    def check_line(self, line, said, flat):
        got = line.messages()
        self.assertEqual(got, {s: flat[s - 1] for s in got})
        missing = set(range(1, len(flat) + 1)) - set(got)
        self.assertEqual(missing, expand(said["dropped"]))
        self.assertEqual(len(missing), said["dropped_messages"])
        firsts = [p[1] for p in line.data()]
        self.assertEqual(len(firsts) - len(set(firsts)), said["duplicates"])
        self.assertEqual(len(set(firsts)), said["packets"])
        late, newest, seen = 0, 0, set()
        for seq in firsts:
            late += seq < newest and seq not in seen
            newest = max(newest, seq)
            seen.add(seq)
        self.assertEqual(late, said["reordered"])
        self.assertGreater(min(said["dropped_packets"], said["duplicates"], said["reordered"]), 0)
        return missing

    def test_faults_are_where_the_summary_says(self):
        day = make_day()
        flat = [m for p in day for m in p]
        summary, lines = self.run_day(day)
        missing = [self.check_line(line, summary["lines"][name], flat) for name, line in zip("ab", lines)]
        self.assertTrue(missing[0] & missing[1])
        self.assertTrue(missing[0] - missing[1])
        self.assertTrue(missing[1] - missing[0])

    def test_the_seed_decides(self):
        day = make_day()
        faults = [[self.run_day(day, "--seed", seed)[0]["lines"][l]["dropped"] for l in "ab"] for seed in "778"]
        self.assertEqual(faults[0], faults[1])
        self.assertNotEqual(faults[0], faults[2])


class Rerequests(unittest.TestCase):
    maxDiff = None

    def test_what_no_line_carried_is_had_again(self):
        flat = [m for p in make_day() for m in p]
        with Exchange("--drop-both", "30", "--speed-pct", "200", "--linger", "3600", "--rerequest", "127.0.0.1:0",
                      day=blocks(flat)) as ex, ex.client() as client:
            self.assertTrue(all(line.ended() for line in ex.lines))
            got = ex.lines[0].messages()
            wanted = sorted(set(range(1, len(flat) + 1)) - set(got))
            self.assertTrue(wanted)
            asked = 0
            while wanted:
                run = 1
                while run < len(wanted) and wanted[run] == wanted[0] + run:
                    run += 1
                session, seq, count, messages = ask(client, wanted[0], run)
                self.assertEqual((session, seq, len(messages)), (SESSION, wanted[0], count))
                self.assertTrue(0 < count <= run)
                got.update(zip(range(seq, seq + count), messages))
                wanted = wanted[count:]
                asked += 1
            self.assertEqual([got[s] for s in sorted(got)], flat)
            self.assertEqual(ex.process.stop(), 0)
            summary = ex.summary()
            self.assertEqual(expand(summary["lines"]["a"]["dropped"]), expand(summary["lines"]["b"]["dropped"]))
            self.assertEqual((summary["requests"]["answered"], summary["requests"]["messages"]),
                             (asked, summary["lines"]["a"]["dropped_messages"]))

    def test_a_reply_is_as_many_whole_messages_as_fit(self):
        flat = [m for p in make_day() for m in p]
        with Exchange("--speed-pct", "0", "--rate", "0", "--linger", "3600", "--rerequest", "127.0.0.1:0",
                      day=blocks(flat)) as ex, ex.client() as client:
            self.assertTrue(ex.lines[0].ended())
            for first in (1, 17, len(flat) // 2):
                _, seq, count, messages = ask(client, first, 65535)
                self.assertEqual((seq, messages), (first, flat[first - 1:first - 1 + count]))
                self.assertGreater(20 + len(blocks(flat[first - 1:first + count])), ROOM)
            self.assertEqual(ask(client, len(flat), 10)[1:], (len(flat), 1, flat[-1:]))

    def test_bad_requests_get_no_reply_and_are_counted(self):
        flat = [m for p in make_day(40) for m in p]
        n = len(flat)
        with Exchange("--speed-pct", "0", "--rate", "0", "--linger", "3600", "--rerequest", "127.0.0.1:0",
                      "--store-messages", "50", day=blocks(flat)) as ex, ex.client() as client:
            self.assertTrue(ex.lines[0].ended())
            good = request(n, 1)
            for bad in (b"", good[:-1], good + b"\0", good * 100, request(n, 0), request(0, 1),
                        request(n, 1, b"TEST000002"), request(1, 1, bytes(10)),
                        request(n + 1, 1), request((1 << 64) - 1, 65535), request(n - 50, 1)):
                client.send(bad)
            # the queue keeps its order: an answer to any of these would be here first
            self.assertEqual(ask(client, n - 49, 1)[1:], (n - 49, 1, [flat[n - 50]]))
            self.assertEqual(ex.process.stop(), 0)
            self.assertEqual(ex.summary()["requests"],
                             {"received": 12, "answered": 1, "messages": 1, "malformed": 6, "other_session": 2,
                              "refused": 3, "limited": 0, "send_errors": 0})

    def test_what_has_not_been_sent_is_refused(self):
        flat = [m for p in make_day(1500) for m in p]  # ten minutes at this speed
        with Exchange("--speed-pct", "1", "--rerequest", "127.0.0.1:0", day=blocks(flat)) as ex, \
                ex.client() as client:
            tw.wait_until(lambda: ex.lines[0].data(), "the first packet")
            client.send(request(len(flat), 1))
            self.assertEqual(ask(client, 1, 1)[1:], (1, 1, flat[:1]))  # behind the refused one in the queue
            self.assertEqual(ex.process.stop(), 0)
            requests = ex.summary()["requests"]
            self.assertEqual((requests["received"], requests["refused"], requests["answered"]), (2, 1, 1))

    def test_one_address_is_answered_so_often(self):
        flat = [m for p in make_day() for m in p]
        with Exchange("--speed-pct", "0", "--rate", "0", "--linger", "3600", "--rerequest", "127.0.0.1:0",
                      "--rerequest-rate", "1", day=blocks(flat)) as ex, ex.client() as greedy, \
                ex.client("127.0.0.2") as other:
            self.assertTrue(ex.lines[0].ended())
            for _ in range(100):
                greedy.send(request(1, 1))
            self.assertEqual(ask(other, 2, 1)[1], 2)  # behind those of the other address
            self.assertEqual(ex.process.stop(), 0)
            requests = ex.summary()["requests"]
            self.assertEqual((requests["received"], requests["answered"] + requests["limited"]), (101, 101))
            self.assertGreaterEqual(requests["answered"], 2)
            self.assertGreater(requests["limited"], 0)

    def test_a_made_up_day_is_the_generators(self):
        made = ("--seed", "7", "--messages", "3000", "--symbols", "8", "--rate", "20000")
        with Exchange(*made, "--speed-pct", "100000", "--linger", "3600", "--rerequest", "127.0.0.1:0") as ex, \
                ex.client() as client:
            path = ex.path("made")
            subprocess.run([tw.program("tw-gen"), "--protocol", "itch50", "--framing", "binaryfile", *made,
                            "--output", path], check=True, stderr=subprocess.DEVNULL, timeout=60 * tw.SLOW)
            tw.wait_until(lambda: any(p[2] == END for p in ex.lines[0].packets), "the end")
            got = []
            while len(got) < 3000:
                got += ask(client, len(got) + 1, 65535)[3]
            with open(path, "rb") as f:
                self.assertEqual(blocks(got) + b"\0\0", f.read())


class Mistakes(unittest.TestCase):
    def run_it(self, *args):
        p = subprocess.run([tw.program("tw-exchange"), *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, timeout=60 * tw.SLOW)
        return p.returncode, p.stdout, p.stderr

    def test_options(self):
        self.assertEqual(self.run_it("--help")[::2], (0, ""))
        self.assertRegex(self.run_it("--version")[1], r"^tw-exchange \d+\.\d+\.\d+\n$")
        a = ("--a", "239.192.0.1:30001")
        for args, says in ((("--frobnicate",), "frobnicate"), ((), "--help"), (("--a", "10.0.0.1:5"), "10.0.0.1:5"),
                           ((*a, "--b", a[1]), "same group"), ((*a, "--drop-a", "100.1"), "100.1"),
                           ((*a, "--drop-a", "1.00001"), "1.00001"), ((*a, "--session", "not this"), "not this"),
                           ((*a, "--drop-b", "1"), "--b"), ((*a, "--linger"), "requires an argument"),
                           ((*a, "--rerequest", "239.192.0.1:5"), "239.192.0.1:5"), ((*a, "what"), "what")):
            with self.subTest(args=args):
                status, out, err = self.run_it(*args)
                self.assertEqual((status, out), (64, ""))
                self.assertIn(says, err)

    def test_files(self):
        with tempfile.NamedTemporaryFile() as f:
            for content, says in ((b"", "no messages"), (b"\0\0", "no messages"), (b"\0\5abc", "within a message"),
                                  (b"\x10\0" + bytes(4096), "4096 bytes"),
                                  (gzip.compress(bytes([0, 12]) * 999)[:-9], f.name)):
                with self.subTest(content=content[:16]):
                    f.seek(0)
                    f.truncate()
                    f.write(content)
                    f.flush()
                    status, _, err = self.run_it("--a", "239.192.0.1:30001", "--input", f.name)
                    self.assertEqual(status, 65)
                    self.assertIn(says, err)
        status, _, err = self.run_it("--a", "239.192.0.1:30001", "--input", "/nowhere")
        self.assertIn("/nowhere: open: No such file", err)
        self.assertNotEqual(status, 0)


if __name__ == "__main__":
    unittest.main()
