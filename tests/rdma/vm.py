"""A guest: one QEMU, its console, its control channel, and what a test does with it.

The guest sees the host's root read-only below a tmpfs, and `guest.dir`, a folder of its own, writable; a path means
the same on both sides.  Commands go to agent.py over a virtio-serial port.  Every descriptor between the host and QEMU, and
between two QEMUs, is one end of a socket pair: no port and no path that another run could want too.
Threads   one reader for each guest; everything else is the caller's.
"""
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import image
import tw

BOOT_S = 180    # takes 10 s alone; the machine may be very loaded
GRACE_S = 180   # for what takes a moment

BOOT_SH = """\
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
ip link set lo up
echo {name} >/proc/sys/kernel/hostname
ulimit -l unlimited
ulimit -c 0
/usr/bin/python3 -I -S {agent}
echo "bed: the agent ended: $?"
echo o >/proc/sysrq-trigger
sleep 60
"""


class GuestError(AssertionError):
    """The guest died, or does not answer, or a command failed; says what its console said."""


@dataclasses.dataclass
class Result:
    rc: int         # negative for a signal
    out: str
    err: str


class GuestProcess:
    """A process in the guest, known by an id; see Guest.start()."""

    def __init__(self, guest, number, cmd):
        self.guest, self.number, self.cmd = guest, number, cmd
        self.pid = self.rc = self.error = None
        self.data = {1: b"", 2: b""}

    @property
    def out(self):
        return self.data[1].decode("utf-8", "replace")

    @property
    def err(self):
        return self.data[2].decode("utf-8", "replace")

    def lines(self, stream=2):
        """Whole lines so far, of standard output (1) or standard error (2)."""
        text = self.data[stream].decode("utf-8", "replace")
        return text.splitlines() if self.rc is not None else text.split("\n")[:-1]

    def poll(self):
        return self.rc

    def _until(self, condition, timeout, what):
        if not self.guest.wait_for(lambda: condition() or self.error, timeout * tw.SLOW):
            raise GuestError(f"{self.guest.name}: {self.cmd}: {what}, after {timeout * tw.SLOW} s\n{self.tail()}")
        if self.error:
            raise GuestError(f"{self.guest.name}: {self.cmd}: {self.error}")

    def tail(self, lines=40):
        return "\n".join([*self.lines(1)[-lines:], *self.lines(2)[-lines:]])

    def wait_line(self, text, timeout=GRACE_S, count=1, stream=2):
        """Until `text` stands in `count` lines."""
        seen = lambda: sum(text in line for line in self.lines(stream)) >= count
        self._until(lambda: seen() or self.rc is not None, timeout, f"no line with '{text}'")
        if not seen():
            raise GuestError(f"{self.guest.name}: {self.cmd}: ended ({self.rc}) without a line with '{text}':\n{self.tail()}")

    def wait(self, timeout=GRACE_S):
        self._until(lambda: self.rc is not None, timeout, "still runs")
        return self.rc

    def signal(self, number):
        """To the process and all that it started."""
        self.guest.say(op="signal", id=self.number, number=int(number))

    def stop(self, timeout=GRACE_S):
        """SIGTERM, and SIGKILL if that is not enough; returns the exit status."""
        if self.rc is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            if not self.guest.wait_for(lambda: self.rc is not None, timeout * tw.SLOW):
                self.kill()
        return self.rc

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.wait(GRACE_S)


class Qmp:
    """QEMU's own control channel."""

    def __init__(self, sock):
        self.file = sock.makefile("rwb")
        self.lock = threading.Lock()
        sock.settimeout(GRACE_S)
        sock.close()
        self.file.readline()
        self.call("qmp_capabilities")

    def call(self, command, **arguments):
        with self.lock:
            self.file.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            self.file.flush()
            while True:
                line = self.file.readline()
                if not line:
                    raise GuestError("QEMU is gone")
                reply = json.loads(line)
                if "error" in reply:
                    raise GuestError(f"{command}: {reply['error']['desc']}")
                if "return" in reply:
                    return reply["return"]


class Guest:
    """boot() begins to boot, ready() waits for it; close() powers off.  boot() must be called by a thread that lives
    as long as the guest (QEMU is killed with it, whatever happens to the program)."""

    def __init__(self, name, nics=(), memory_mbytes=1024, cpus=2, console="file", append=""):
        self.name, self.nics, self.console, self.append = name, nics, console, append
        self.memory_mbytes, self.cpus = memory_mbytes, cpus
        self.dir = tempfile.mkdtemp(prefix=f"tw-rdma-{name}-")
        self.console_path = os.path.join(self.dir, "console.log")
        self.boot_script = BOOT_SH.format(name=name, agent=shlex.quote(os.path.join(image.HERE, "agent.py")))
        self.release = None
        self.processes = {}
        self.next_id = 1
        self.captures = 0
        self.changed = threading.Condition()
        self.gone = False
        self.qemu = self.qmp = None

    # --- life ---

    def boot(self):
        kernel, initrd = image.get()
        accel = image.accelerator(kernel, initrd)
        with open(self.path("boot.sh"), "w", encoding="utf-8") as f:
            f.write(self.boot_script)
        self.sock, agent = socket.socketpair()
        self.qmp_sock, qmp = socket.socketpair()
        fds = [agent.fileno(), qmp.fileno()]
        argv = image.machine_argv(accel, kernel, initrd, f"tw_share={self.dir} {self.append}")
        argv += ["-m", str(self.memory_mbytes), "-smp", str(self.cpus), "-name", self.name,
                 "-virtfs", "local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap",
                 "-virtfs", f"local,path={self.dir},mount_tag=share,security_model=none",
                 "-chardev", f"{self.console_chardev()},id=console,logfile={self.console_path}",
                 "-serial", "chardev:console",
                 "-chardev", f"socket,id=agent,fd={fds[0]}", "-device", "virtio-serial-pci",
                 "-device", "virtserialport,chardev=agent,name=tidewire.bed",
                 "-chardev", f"socket,id=qmp,fd={fds[1]}", "-mon", "chardev=qmp,mode=control"]
        for nic in self.nics:
            argv += nic.argv()
            fds += nic.fds()
        self.qemu = subprocess.Popen(argv, stdin=None if self.console == "stdio" else subprocess.DEVNULL,
                                     stdout=None if self.console == "stdio" else subprocess.DEVNULL,
                                     stderr=None if self.console == "stdio" else subprocess.PIPE, pass_fds=fds)
        agent.close()
        qmp.close()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.say(op="hello")
        return self

    def console_chardev(self):
        return "stdio,mux=on,signal=off" if self.console == "stdio" else "null"

    def ready(self, timeout=BOOT_S):
        """Until the guest's agent answers."""
        if not self.wait_for(lambda: self.release, timeout * tw.SLOW):
            raise GuestError(self.story(f"did not boot within {timeout * tw.SLOW} s"))
        self.qmp = Qmp(self.qmp_sock)
        return self

    def close(self):
        """Powers off; the folder goes too."""
        if self.qemu is not None:
            if self.release is not None and not self.gone:
                self.say(op="poweroff")
                self.wait_for(lambda: self.gone, GRACE_S, dead_ok=True)
            try:
                self.qemu.wait(0 if self.release is None else GRACE_S)
            except subprocess.TimeoutExpired:
                self.qemu.kill()
                self.qemu.wait()
            self.reader.join(GRACE_S)
            self.sock.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self.boot().ready()

    def __exit__(self, *unused):
        self.close()

    def story(self, what):
        """`what`, with the panic if there was one, QEMU's own words, and the end of the console."""
        text = ""
        if os.path.exists(self.console_path):
            with open(self.console_path, encoding="utf-8", errors="replace") as f:
                text = f.read()
        panic = re.search(r"Kernel panic.*|BUG: .*|Oops: .*", text)
        parts = [f"guest {self.name}: {what}" + (f": {panic.group(0).strip()}" if panic else "")]
        if self.qemu is not None and self.qemu.poll() is not None:
            parts.append(f"QEMU ended: {self.qemu.returncode}")
            if self.qemu.stderr:
                parts += self.qemu.stderr.read().decode("utf-8", "replace").splitlines()
        return "\n  ".join([*parts, "console:", *text.splitlines()[-40:]])

    # --- the channel ---

    def say(self, **message):
        try:
            self.sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass        # whoever waits for the answer learns that the guest is gone

    def _read(self):
        pending = []
        while True:
            try:
                data = self.sock.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            head, newline, rest = data.rpartition(b"\n")
            if not newline:
                pending.append(data)
                continue
            lines = b"".join([*pending, head]).split(b"\n")
            pending = [rest]
            with self.changed:
                for line in lines:
                    self._on_message(json.loads(line))
                self.changed.notify_all()
        with self.changed:
            self.gone = True
            self.changed.notify_all()

    def _on_message(self, m):
        if "hello" in m:
            self.release = m["hello"]
            return
        p = self.processes.get(m["id"])
        if p is None:
            return
        if "data" in m:
            p.data[m["stream"]] += m["data"].encode("latin-1")
        elif "pid" in m:
            p.pid = m["pid"]
        elif "error" in m:
            p.error = m["error"]
        else:
            p.rc = m["exit"]

    def wait_for(self, condition, timeout_s, dead_ok=False):
        """Whether `condition`, over what the channel brings, came true; raises when the guest is gone."""
        end = time.monotonic() + timeout_s
        with self.changed:
            while not condition():
                if self.gone and not dead_ok:
                    break
                left = end - time.monotonic()
                if left <= 0 or self.gone:
                    return False
                self.changed.wait(left)
            else:
                return True
        try:
            self.qemu.wait(5)
        except subprocess.TimeoutExpired:
            pass
        raise GuestError(self.story("is gone"))

    # --- what tests do ---

    def start(self, cmd, env=None, cwd=None, out=None, ns=None):
        """Starts a shell command (str) or an argument list in the background.  `out`: a file in the guest for its
        standard output, for what is large; `ns`: a network namespace."""
        if ns:
            cmd = ["nsenter", f"--net=/run/netns/{ns}", *(["/bin/sh", "-c", cmd] if isinstance(cmd, str) else cmd)]
        with self.changed:
            p = GuestProcess(self, self.next_id, cmd if isinstance(cmd, str) else shlex.join(map(str, cmd)))
            self.next_id += 1
            self.processes[p.number] = p
        self.say(op="start", id=p.number, cmd=cmd if isinstance(cmd, str) else [str(a) for a in cmd], env=env or {},
                 cwd=cwd or self.dir, out=out)
        p._until(lambda: p.pid is not None, GRACE_S, "not started")
        return p

    def run(self, cmd, timeout=GRACE_S, check=True, **options):
        """Runs a command to its end and returns a Result; one that lasts longer than `timeout` seconds is killed.
        Raises GuestError for that, and with `check` for an exit status other than 0."""
        p = self.start(cmd, **options)
        try:
            p.wait(timeout)
        except GuestError:
            if not self.gone:
                p.kill()
            raise
        if check and p.rc != 0:
            raise GuestError(f"{self.name}: {p.cmd}: exit {p.rc}\n{p.tail()}")
        return Result(p.rc, p.out, p.err)

    def path(self, name):
        """A file of the folder that host and guest share."""
        return os.path.join(self.dir, name)

    def put(self, path, data):
        """Writes bytes to any file of the guest."""
        with tempfile.NamedTemporaryFile(dir=self.dir) as f:
            f.write(data)
            f.flush()
            self.run(["cp", "--no-preserve=mode", f.name, path])

    def get(self, path):
        """The bytes of any file of the guest."""
        fd, name = tempfile.mkstemp(dir=self.dir)
        os.close(fd)
        try:
            self.run(["cp", "--no-preserve=mode", path, name])
            return image.read(name)
        finally:
            os.unlink(name)
