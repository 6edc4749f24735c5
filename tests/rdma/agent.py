"""Runs in the guest: starts processes for the host, over a virtio-serial port, one JSON object a line.

From the host: {"op": "start", "id", "cmd", "env", "cwd", "out"} starts the shell command or argument list
`cmd`, its standard output into the file `out` where one is given; {"op": "signal", "id", "number"} signals its whole
process group; {"op": "poweroff"}.  To the host: {"id", "pid"} or {"id", "error"}; {"id", "stream": 1 or 2, "data"}, bytes
as latin-1; {"id", "exit"}, negative for a signal, sent after all output that was there when it ended.
When the host is gone the guest powers off: no VM outlives the test that started it.
"""
import glob
import json
import os
import selectors
import signal
import subprocess
import sys
import time

PORT = "tidewire.bed"
CHUNK_BYTES = 1 << 16
ALONE_S = 30


def open_port():
    for path in glob.glob("/sys/class/virtio-ports/*"):
        with open(os.path.join(path, "name"), encoding="ascii") as f:
            if f.read().strip() == PORT:
                return os.open("/dev/" + os.path.basename(path), os.O_RDWR)
    raise SystemExit("agent: no virtio port " + PORT)


def poweroff():
    os.sync()
    with open("/proc/sysrq-trigger", "w", encoding="ascii") as f:
        f.write("o")
    time.sleep(60)


class Agent:
    def __init__(self):
        self.port = open_port()
        self.met, self.alone_until = False, time.monotonic() + ALONE_S
        self.pending = b""
        self.processes = {}
        self.poll = selectors.DefaultSelector()
        self.poll.register(self.port, selectors.EVENT_READ, self.on_port)

    def say(self, **message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self.port, data):]

    def on_port(self):
        data = os.read(self.port, CHUNK_BYTES)
        if not data:
            # Until the host's first word an empty read may only mean that QEMU is not there yet.
            if self.met or time.monotonic() > self.alone_until:
                poweroff()
            time.sleep(0.02)
            return
        self.met = True
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            getattr(self, "op_" + message.pop("op"))(**message)

    def op_hello(self):
        self.say(hello=os.uname().release)

    def op_poweroff(self):
        poweroff()

    def op_start(self, id, cmd, env, cwd, out):
        try:
            stdout = open(out, "wb") if out else subprocess.PIPE
            p = subprocess.Popen(["/bin/sh", "-c", cmd] if isinstance(cmd, str) else cmd, env={**os.environ, **env},
                                 cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                                 start_new_session=True)
        except OSError as e:
            self.say(id=id, error=str(e))
            return
        if out:
            stdout.close()
        self.processes[id] = p
        for stream, pipe in ((1, p.stdout), (2, p.stderr)):
            if pipe:
                os.set_blocking(pipe.fileno(), False)
                self.poll.register(pipe, selectors.EVENT_READ,
                                   lambda id=id, stream=stream, pipe=pipe: self.on_pipe(id, stream, pipe))
        pidfd = os.pidfd_open(p.pid)
        self.poll.register(pidfd, selectors.EVENT_READ, lambda: self.on_exit(id, p, pidfd))
        self.say(id=id, pid=p.pid)

    def op_signal(self, id, number):
        if id in self.processes:
            os.killpg(self.processes[id].pid, number)

    def on_pipe(self, id, stream, pipe):
        """Passes one chunk on; false when there is none now, or ever again."""
        if pipe.closed:     # by an event of the same turn
            return False
        try:
            data = os.read(pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.poll.unregister(pipe)
            pipe.close()
            return False
        self.say(id=id, stream=stream, data=data.decode("latin-1"))
        return True

    def on_exit(self, id, p, pidfd):
        self.poll.unregister(pidfd)
        os.close(pidfd)
        p.wait()
        for stream, pipe in ((1, p.stdout), (2, p.stderr)):
            while pipe and self.on_pipe(id, stream, pipe):
                pass
        del self.processes[id]
        self.say(id=id, exit=p.returncode)

    def run(self):
        while True:
            for key, _ in self.poll.select():
                key.data()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(Agent().run())
