"""What the system tests share: a site of one's own, processes that are cleaned up by id, JSON lines."""
import decimal
import functools
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHARED = os.environ.get("TW_SHARED", os.path.join(TOP, "..", "shared"))
BIN = os.environ.get("TW_BIN", os.path.join(TOP, "build/release/bin"))
SLOW = 5 if os.environ.get("TW_PROFILE") in ("asan", "ubsan", "tsan", "debug") else 1


def data_path(*parts):
    """A file of the shared reference data, or None where they are not at hand."""
    base = os.environ.get("TW_DATA", os.path.join(SHARED, "data"))
    path = os.path.join(base, *parts)
    return path if os.path.exists(path) else None


def program(name):
    return os.path.join(BIN, name)


def random_groups():
    """Two groups of 239.192.0.0/14 that differ as Ethernet addresses too."""
    low = random.SystemRandom().randrange(0, 1 << 18) & ~1
    address = lambda n: ".".join(str((n >> s) & 255) for s in (24, 16, 8, 0))
    return address(0xEFC00000 | low), address(0xEFC00000 | low | 1)


def free_port():
    """A TCP port of 127.0.0.1 that nobody has at the moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class TooLate(Exception):
    """A feed that plays by the clock was over before the test had done what it is about: something stood still for
    seconds, and it was none of ours.  See in_time()."""


def in_time(scene):
    """Plays a scene that came TooLate once more, and ten times in all."""
    @functools.wraps(scene)
    def again(*args):
        for _ in range(9):
            try:
                return scene(*args)
            except TooLate as e:
                print(f"{scene.__name__}: too late, once more: {e}", flush=True)
        return scene(*args)
    return again


def parse_json(text):
    return json.loads(text, parse_float=decimal.Decimal)


def read_counters(path):
    """The values of a counter file (core/base/counters_file.h), by set and then by label."""
    with open(path, "rb") as f:
        data = f.read()
    text = lambda at, size: data[at:at + size].split(b"\0")[0].decode("ascii")
    magic, version = struct.unpack_from("<8sI", data)
    assert magic == b"TWCNTRS\0" and version == 1, (magic, version)
    group_count, = struct.unpack_from("<I", data, 52)
    groups, values = struct.unpack_from("<2I", data, 64)
    out = {}
    for at in range(groups, groups + 192 * group_count, 192):
        first, count = struct.unpack_from("<2I", data, at + 160)
        where, = struct.unpack_from("<Q", data, at + 176)
        names = [text(values + 64 * (first + i), 48) for i in range(count)]
        out.setdefault(text(at, 32), {})[text(at + 32, 128)] = dict(
            zip(names, struct.unpack_from(f"<{count}Q", data, where)))
    return out


class Process:
    """One program.  Its standard error is read line by line; stop() ends it by its id."""

    def __init__(self, argv, stdout=subprocess.DEVNULL):
        self.argv = argv
        self.lines = []
        self.changed = threading.Condition()
        self.closed = False
        self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout,
                                      stderr=subprocess.PIPE, text=True, errors="replace")
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.popen.stderr:
            with self.changed:
                self.lines.append(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def wait_line(self, text, timeout=60, count=1):
        """Until `text` stands in `count` log lines."""
        end = time.monotonic() + timeout * SLOW
        with self.changed:
            while sum(text in l for l in self.lines) < count:
                left = end - time.monotonic()
                if left <= 0 or self.closed:
                    raise AssertionError(f"{self.argv[0]}: no line with '{text}' in:\n" +
                                         "\n".join(self.lines[-40:]))
                self.changed.wait(left)

    def wait(self, timeout=60):
        try:
            rc = self.popen.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.argv[0]} still runs after {timeout * SLOW} s:\n" +
                                 "\n".join(self.lines[-40:]))
        self.reader.join(5)
        return rc

    def signal(self, number):
        self.popen.send_signal(number)

    def stop(self, timeout=60):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()
            try:
                self.popen.wait(timeout * SLOW)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        self.reader.join(5)
        self.popen.stderr.close()
        return self.popen.returncode


class BusFeed:
    """tw-test-bus-feed on a channel of a site: messages of one size, when the test says so.  A context manager."""

    def __init__(self, site, channel, message_bytes):
        self.popen = subprocess.Popen([program("tw-test-bus-feed"), site.run_dir, str(channel), str(message_bytes)],
                                      text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.popen.stdout.readline() == "ready\n"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()

    def append(self, messages):
        """Returns the number of the next one."""
        self.popen.stdin.write(f"{messages}\n")
        self.popen.stdin.flush()
        return int(self.popen.stdout.readline())

    def end(self, timeout=120):
        self.popen.stdin.close()
        return self.popen.wait(timeout)


class Site:
    """A site on lo in a private directory.  Use as a context manager."""

    def __init__(self, **settings):
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = tempfile.mkdtemp(prefix="tw-test-", dir=parent)
        self.run_dir = os.path.join(self.dir, "run")
        os.mkdir(self.run_dir, 0o700)
        self.path = os.path.join(self.dir, "site.yaml")
        self.groups = random_groups()
        self.processes = []
        self.names = 0
        self.write(**settings)

    def write(self, files=(), speed_pct=0, rate=0, channels="", subscriber="{ wait_us: 50000 }",
              fault="", publisher="", feedhandler="", extra="", symbols=None, lines=2, fabric=""):
        a, b = self.groups
        groups = f"{{ a: {a}, b: {b} }}" if lines == 2 else f"{{ a: {a} }}"
        symbol_text = "" if symbols is None else f", symbols: {json.dumps(symbols)}"
        text = f"""site: test-{os.getpid()}-{os.path.basename(self.dir)}
environment: test
run_dir: {self.run_dir}
fabric: {{ transport: udp{fabric} }}
hosts:
  local: {{ address: 127.0.0.1, lines: {{ a: lo, b: lo }} }}
venues:
  - {{ id: 1, mic: IEXG }}
channels:
  - {{ id: 1, name: one, depth: quotes, groups: {groups}{symbol_text} }}
{channels}feedhandlers:
  - name: feed
    host: local
    venue: IEXG
    protocol: tops16
    channels: [1]
{feedhandler}    input:
      speed_pct: {speed_pct}
      rate: {rate}
      files: {json.dumps([str(f) for f in files] or ["/nowhere.pcap"])}
publishers:
  - {{ name: pub, host: local, channels: [1]{publisher} }}
subscriber: {subscriber}
{extra}"""
        if fault:
            text += "fault:\n" + fault
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for p in reversed(self.processes):
            p.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def start(self, name, *args, stdout=subprocess.DEVNULL):
        p = Process([program(name), "-c", self.path, *args], stdout)
        self.processes.append(p)
        return p

    def counters(self, name):
        """Those of a process of this site; files of one that was killed stay."""
        return read_counters(os.path.join(self.run_dir, name + ".counters"))

    def publisher(self, *args):
        p = self.start("tw-publisher", "--as", "pub", *args)
        p.wait_line("ready")
        return p

    def feedhandler(self, *args):
        return self.start("tw-feedhandler", "--as", "feed", *args)

    def subscriber(self, *args, ready=True):
        """A subscriber that writes messages and events to a file; see Subscriber."""
        self.names += 1
        s = Subscriber(self, f"sub{self.names}", args)
        self.processes.append(s)
        if ready:
            s.wait_line("ready")
        return s


class Subscriber(Process):
    def __init__(self, site, name, args):
        self.name = name
        self.out_path = os.path.join(site.dir, name + ".out")
        self.summary_path = os.path.join(site.dir, name + ".json")
        self.out = open(self.out_path, "wb")
        super().__init__([program("tw-subscribe"), "-c", site.path, "--as", "local", "--name", name,
                          "--format", "json", "--summary", self.summary_path, *args], self.out)

    def stop(self, timeout=60):
        rc = super().stop(timeout)
        self.out.close()
        return rc

    def objects(self):
        with open(self.out_path, encoding="utf-8") as f:
            return [parse_json(line) for line in f]

    def messages(self):
        return [o for o in self.objects() if "kind" in o]

    def events(self, name=None):
        return [o for o in self.objects() if "kind" not in o and name in (None, o["event"])]

    def summary(self):
        with open(self.summary_path, encoding="utf-8") as f:
            return parse_json(f.read())


def wait_until(condition, what, timeout=60):
    """Polls a condition that has no descriptor to wait on."""
    end = time.monotonic() + timeout * SLOW
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("not within time: " + what)
        time.sleep(0.02)


def generate(path, messages=20000, rate=20000, seed=1, symbols=50,
             start="2026-01-05T14:29:00Z"):
    subprocess.run([program("tw-gen"), "--protocol", "tops16", "--seed", str(seed), "--messages",
                    str(messages), "--rate", str(rate), "--symbols", str(symbols), "--start", start, "--output", path],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
    return path
